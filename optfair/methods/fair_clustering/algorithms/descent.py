"""Alternation of exact assignments and centers: the one loop, and its steps on rows in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.errors import SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import CostRows, SeparableCost, best_centers
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import (
    CURVED,
    LEAST_BOX,
    POLYHEDRAL,
    MassResult,
    PriceSearch,
)
from optfair.methods.fair_clustering.algorithms.pricing import (
    boundary_means,
    followed_prices,
    spread,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Answer = TypeVar("Answer")

# Weight share below which a cluster counts as empty: fractions there are a solver's rounding.
EMPTY = 1e-9
# Weights so many times apart are beyond the digits of the programs that share rows out.
APART = 1e8


# The loop.


@dataclass(frozen=True, eq=False)
class Assigned(Generic[Answer]):
    """One assignment: objective, relative gap, how its search ended, and what centers need of it."""

    objective: float
    gap: float
    status: str
    centers: Floats
    answer: Answer


@dataclass(frozen=True, eq=False)
class Descent(Generic[Answer]):
    """Where the alternation stopped.

    Attributes
    ----------
    best : Assigned
        Last assignment that did not raise the objective.
    history, gaps : tuples of float
        Objective and relative gap of each assignment.
    status : {"converged", "max_iter", "time_limit", "interrupted"}
    reseeded : tuple of (iteration, cluster)
    seconds : float
    """

    best: Assigned[Answer]
    history: tuple[float, ...]
    gaps: tuple[float, ...]
    status: str
    reseeded: tuple[tuple[int, int], ...]
    seconds: float


def descend(
    centers: Floats,
    assign: Callable[[Floats, Assigned[Answer] | None, float], Assigned[Answer] | None],
    move: Callable[[Assigned[Answer]], tuple[Floats, list[int]]],
    *,
    max_iter: int,
    tol: float,
    rise: float,
    unit: float = 0.0,
    mixed: bool = False,
    time_limit: float | None = None,
    report: Callable[[int, Assigned[Answer]], None] | None = None,
) -> Descent[Answer]:
    """Alternate until the objective falls by at most the share ``tol`` of itself.

    Centers may go beyond the ones that ``move`` returns; where that raises the objective, they go
    there only, and it never ends there.

    Parameters
    ----------
    centers : array (K, d)
        Start.
    assign : callable
        (centers, assignment before or None, seconds left) -> `Assigned`, None when time is up
        and there is one before.
    move : callable
        assignment -> (next centers, clusters that got a new one because they were empty).
    max_iter : int
    tol : float
    rise : float
        Relative rise of the objective that two exact steps may show.
    unit : float
        Size of a cost; rises are relative to the larger of it and the objective.
    mixed : bool
        Whether centers go where `Mixing` says.
    time_limit : float, optional
    report : callable, optional
        Called with the number of each iteration and its assignment; a KeyboardInterrupt that it
        raises ends the alternation.

    Raises
    ------
    SolverFailure
        The objective rose.
    """
    begin = time.perf_counter()
    best: Assigned[Answer] | None = None
    history: list[float] = []
    gaps: list[float] = []
    reseeded: list[tuple[int, int]] = []
    status, beyond, nearer = "", False, centers
    mixing: Mixing | None = Mixing() if mixed else None
    while not status:
        left = np.inf if time_limit is None else time_limit - (time.perf_counter() - begin)
        try:
            step = assign(centers, best, left) if best is None or left > 0 else None
        except KeyboardInterrupt:
            if best is None:
                raise
            status = "interrupted"
            break
        if step is None:
            status = "time_limit"
            break
        # centers that leave rows out of reach lead nowhere: the proof is made where they are
        if step.status in ("time_limit", "interrupted", "out of reach"):
            status = step.status
        if best is not None:
            if status and not np.isfinite(step.gap):  # cut short: the one before has a proof
                break
            fell = best.objective - step.objective
            if beyond and not status and fell < 0:
                centers, beyond = nearer, False
                mixing = Mixing()
                continue
            if not status and fell < -rise * max(unit, abs(best.objective)):
                raise SolverFailure(
                    "the objective rose although both steps are exact",
                    f"from {best.objective:.10g} to {step.objective:.10g}",
                    "ask for a smaller tolerance, or another solver; rows that are read must be"
                    " the same in every pass",
                )
            if fell <= tol * abs(best.objective):
                if beyond and not status:  # plain centers have the last word
                    mixing = Mixing()
                else:
                    status = status or "converged"
            if fell < 0:  # by less than the tolerance, or cut short: the previous one is better
                break
        best = step
        history.append(step.objective)
        gaps.append(step.gap)
        try:
            if report is not None:
                report(len(history), step)
        except KeyboardInterrupt:
            status = "interrupted"
        if len(history) == max_iter:
            status = status or "max_iter"
        if not status:
            nearer, empty = move(step)
            reseeded += [(len(history), k) for k in empty]
            centers, beyond = nearer, False
            if mixing is not None and not empty:
                centers, beyond = mixing.ahead(step.centers, nearer)
    if best is None:
        raise SolverFailure("the time limit is too short for one assignment", remedy="give more")
    taken = time.perf_counter() - begin
    return Descent(best, tuple(history), tuple(gaps), status, tuple(reseeded), taken)


# Part of its mean's way that a center goes beyond it.
REACH = 1.5
# Assignments that an extrapolation looks back on, directions it does not tell apart, and how much
# longer than the plain step it may be.
DEPTH, ALIKE, LONGEST = 3, 1e-2, 20.0


class Mixing:
    r"""Anderson's extrapolation of centers μ and the ways v to their means.

    .. math::
        \mu + \beta v - \textstyle\sum_j \gamma_j (\Delta\mu_j + \beta \Delta v_j), \qquad
        \gamma \in \arg\min \|v - \textstyle\sum_j \gamma_j \Delta v_j\|

    over the last few assignments: what slow iterations do many times over is done at once.
    """

    def __init__(self) -> None:
        self.centers: list[Floats] = []
        self.ways: list[Floats] = []

    def ahead(self, centers: Floats, means: Floats) -> tuple[Floats, bool]:
        """Return where to go on, and whether that is beyond the means."""
        way = means - centers
        self.centers, self.ways = [*self.centers, centers][-DEPTH:], [*self.ways, way][-DEPTH:]
        if len(self.ways) < 2:
            return means, False
        moved, turned = (
            np.diff(np.reshape(each, (len(each), -1)), axis=0) for each in (self.centers, self.ways)
        )
        gamma = np.linalg.lstsq(turned.T, way.ravel(), rcond=ALIKE)[0]
        step = REACH * way - (gamma @ (moved + REACH * turned)).reshape(way.shape)
        longest = LONGEST * float(np.linalg.norm(way))
        return centers + step * min(1.0, longest / max(float(np.linalg.norm(step)), 1e-300)), True


def reseed(
    centers: Floats,
    weight: Floats,
    far: Floats,
    harmless: Callable[[int, Floats], bool] = lambda k, row: True,
) -> list[int]:
    """Give clusters without weight the rows ``far``, costliest first, as centers; return them.

    ``harmless`` says whether what little cluster k holds costs nothing to speak of at a row.
    """
    reseeded: list[int] = []
    rows = iter(far)
    for k in np.flatnonzero(weight <= EMPTY).tolist():
        for row in rows:
            if not harmless(k, row):
                break
            if cdist(row[None], centers).min() > 0.0:
                centers[k] = row
                reseeded.append(k)
                break
    return reseeded


# Its steps on rows in memory.


@dataclass(frozen=True, eq=False)
class Flow:
    """Entries of an assignment, rows in the user's order, and its prices."""

    rows: Integers
    clusters: Integers
    fractions: Floats
    prices: Floats


@dataclass(frozen=True, eq=False)
class HeldFlow(Flow):
    """With the `boundary_means` of the assignment, and the end of its search."""

    boundary: Floats
    known: MassResult | None = None


class HeldRows:
    """Assignments and centers of rows in memory, from arrays alone.

    Parameters
    ----------
    program : MassProgram
        Rules on the masses.
    cost : SeparableCost
        Rows and metric; its centers are where the first assignment is.
    groups, weights : arrays (n,)
        Group index and weight (total 1) of each row.
    unit : float
        Size of a cost, that gaps refer to.
    prices : array (G, K), optional
        Where the first search starts.
    """

    def __init__(
        self,
        program: MassProgram,
        cost: SeparableCost,
        groups: Integers,
        weights: Floats,
        unit: float,
        prices: Floats | None = None,
    ) -> None:
        self.program, self.weights, self.unit, self.prices = program, weights, unit, prices
        self.costs = CostRows(cost, groups, weights)
        self.tolerance, self.share = POLYHEDRAL if program.polyhedral else CURVED, 1.0

    def assign(
        self, centers: Floats, before: Assigned[HeldFlow] | None, left: float
    ) -> Assigned[HeldFlow] | None:
        """Return the optimal assignment at given centers, searched from the prices before.

        A first one that is cut short has infinite objective and gap, and no rows: of its centers and
        prices the proof makes an incumbent.
        """
        costs = self.costs.moved(centers)
        stated = self.program, costs, self.tolerance, time.perf_counter() + left
        search = PriceSearch(*stated, brief=True, share=self.share)
        status = search.run(self.prices if before is None else self._followed(before, centers))
        best = search.candidate
        if best is None:
            if status == "time_limit":
                return None if before is not None else self._cut_short(search, centers)
            apart = float(self.weights.max() / self.weights[self.weights > 0.0].min())
            heavy = f"; rows weigh up to {apart:.1e} times what others weigh" * (apart > APART)
            light = "leave out rows that weigh next to nothing, or " * bool(heavy)
            raise SolverFailure(
                "no assignment was found",
                f"the search {status}{heavy}",
                f"{light}rescale the columns",
            )
        self.share = eased(self.share, search)
        rows, clusters, fractions = spread(costs, best.pricing, best.free, best.flow)
        gap = max(0.0, best.objective - search.bound) / max(self.unit, abs(best.objective))
        prices = self.program.prices(search.y, search.z)
        free = costs.rows[best.free.positions]
        boundary = boundary_means(
            best.free, costs.cost.points[free], self.weights[free], prices.shape
        )
        entries, ends = (costs.rows[rows], clusters, fractions), (search.y, search.z)
        known = MassResult(*entries, *ends, status, best.objective, search.bound)
        return Assigned(
            best.objective, gap, status, centers, HeldFlow(*entries, prices, boundary, known)
        )

    def _cut_short(self, search: PriceSearch, centers: Floats) -> Assigned[HeldFlow]:
        reached = np.zeros(self.program.masses.shape)
        if search.pricing is not None:
            reached = search.pricing.prices
        none, nothing = np.zeros(0), np.zeros(0, dtype=np.intp)
        flow = HeldFlow(nothing, nothing, none, reached, np.zeros((*reached.shape, 0)))
        return Assigned(np.inf, np.inf, "time_limit", centers, flow)

    def _followed(self, before: Assigned[HeldFlow], centers: Floats) -> Floats:
        answer = before.answer
        followed = followed_prices(
            answer.prices,
            self.costs.cost,
            answer.boundary,
            before.centers,
            centers,
            abs(before.objective),
        )
        # a box is for rows that err, not for prices that no multipliers have
        return self.program.possible(followed)

    def move(self, step: Assigned[HeldFlow]) -> tuple[Floats, list[int]]:
        """Return the best centers of an assignment, and the clusters that were empty."""
        return moved_centers(self.costs.cost, self.weights, step.centers, step.answer)


def eased(share: float, search: PriceSearch) -> float:
    """Return the part of the usual rows that the next box begins with: less where two sufficed."""
    rounds = len(search.history)
    return min(1.0, max(LEAST_BOX, share * (0.5 if rounds <= 2 else 2.0 if rounds > 3 else 1.0)))


def moved_centers(
    cost: SeparableCost, weights: Floats, centers: Floats, flow: Flow
) -> tuple[Floats, list[int]]:
    """Return the best centers of an assignment made at ``centers``, and the clusters that were empty.

    An empty cluster gets the row that costs most as its center, which changes nothing for the
    assignment at hand.
    """
    K = centers.shape[0]
    held = weights[flow.rows] * flow.fractions
    weight: Floats = np.asarray(np.bincount(flow.clusters, held, K), dtype=float)
    moved, some = centers.copy(), weight > 0.0
    if cost.metric == "sqeuclidean":
        entries = held, flow.clusters, np.arange(held.size + 1)
        sums = sp.csc_array(entries, shape=(K, held.size)) @ cost.points[flow.rows]
        moved[some] = np.asarray(sums)[some] / weight[some, None]
    else:
        A = sp.csr_array((held, (flow.clusters, flow.rows)), shape=(K, cost.rows))
        moved[some] = best_centers(cost.metric, cost.points, A.T.toarray()[:, some])
    if (weight > EMPTY).all():
        return moved, []
    at = replace(cost, centers=centers).columns(flow.rows)
    paid = flow.fractions * at[flow.clusters, np.arange(flow.rows.size)]
    far = np.bincount(flow.rows, paid, cost.rows) * (weights > 0.0)
    worst = np.argsort(-far, kind="stable")[: 10 * K]
    total = float(weights @ far)

    def harmless(k: int, row: Floats) -> bool:
        own = flow.rows[flow.clusters == k]
        there = replace(cost, points=cost.points[own], centers=row[None], charge=None).columns(
            slice(None)
        )
        return float(there[0] @ held[flow.clusters == k]) <= EMPTY * total

    return moved, reseed(moved, weight, cost.points[worst[far[worst] > 0.0]], harmless)
