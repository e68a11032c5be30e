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
from optfair.methods.fair_clustering.algorithms.entropic_projection import (
    only_equations,
    price_step,
)
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import (
    CURVED,
    POLYHEDRAL,
    PriceSearch,
    SmoothedRows,
    smoothed_prices,
    thinned,
    typical_margin,
)
from optfair.methods.fair_clustering.algorithms.pricing import MassPass, spread

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Found = TypeVar("Found")

# Weight share below which a cluster counts as empty: fractions there are a solver's rounding.
EMPTY = 1e-9
# Least part of the usual rows that a box begins with.
LEAST_BOX = 0.0625


# The loop.


@dataclass(frozen=True, eq=False)
class Assigned(Generic[Found]):
    """One assignment: objective, relative gap, how its search ended, and what centers need of it."""

    objective: float
    gap: float
    status: str
    centers: Floats
    found: Found


@dataclass(frozen=True, eq=False)
class Descent(Generic[Found]):
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

    best: Assigned[Found]
    history: tuple[float, ...]
    gaps: tuple[float, ...]
    status: str
    reseeded: tuple[tuple[int, int], ...]
    seconds: float


def descend(
    centers: Floats,
    assign: Callable[[Floats, Assigned[Found] | None, float], Assigned[Found] | None],
    move: Callable[[Assigned[Found]], tuple[Floats, list[int]]],
    *,
    max_iter: int,
    tol: float,
    rise: float,
    unit: float = 0.0,
    mixed: bool = False,
    time_limit: float | None = None,
    report: Callable[[int, Assigned[Found]], None] | None = None,
) -> Descent[Found]:
    """Alternate until the objective falls by at most the share ``tol`` of itself.

    Centers may go beyond the ones that ``move`` returns; where that raises the objective, they go
    there only, and it never ends there.

    Parameters
    ----------
    centers : array (K, d)
        Start.
    assign : callable
        (centers, assignment before or None, seconds left) -> `Assigned`, None when time is up;
        the first one is made whatever the limit.
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
    best: Assigned[Found] | None = None
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
        if step.status in ("time_limit", "interrupted"):
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
        self, centers: Floats, before: Assigned[Flow] | None, left: float
    ) -> Assigned[Flow] | None:
        """Return the optimal assignment at given centers, searched from the prices before."""
        costs = self.costs.moved(centers)
        deadline = np.inf if before is None else time.perf_counter() + left
        stated = self.program, costs, self.tolerance, deadline
        search = PriceSearch(*stated, brief=True, share=self.share)
        status = search.run(self.prices if before is None else before.found.prices)
        best = search.candidate
        if best is None:
            if before is not None and status == "time_limit":
                return None
            raise SolverFailure(
                "no assignment was found", f"the search {status}", "rescale the columns"
            )
        self.share = eased(self.share, search)
        rows, clusters, fractions = spread(costs, best.pricing, best.free, best.flow)
        gap = max(0.0, best.objective - search.bound) / max(self.unit, abs(best.objective))
        prices = self.program.prices(search.y, search.z)
        flow = Flow(costs.rows[rows], clusters, fractions, prices)
        return Assigned(best.objective, gap, status, centers, flow)

    def move(self, step: Assigned[Flow]) -> tuple[Floats, list[int]]:
        """Return the best centers of an assignment, and the clusters that were empty."""
        return moved_centers(self.costs.cost, self.weights, step.centers, step.found)


def eased(share: float, search: PriceSearch) -> float:
    """Return the part of the usual rows that the next box begins with: less where one sufficed."""
    rounds = len(search.history)
    return min(1.0, max(LEAST_BOX, share * (0.5 if rounds <= 1 else 2.0 if rounds > 3 else 1.0)))


def moved_centers(
    cost: SeparableCost, weights: Floats, centers: Floats, flow: Flow
) -> tuple[Floats, list[int]]:
    """Return the best centers of an assignment made at ``centers``, and the clusters that were empty.

    An empty cluster gets the row that costs most as its center, which changes nothing for the
    assignment at hand.
    """
    K = centers.shape[0]
    held = weights[flow.rows] * flow.fractions
    A = sp.csr_array((held, (flow.clusters, flow.rows)), shape=(K, cost.rows))
    weight: Floats = np.asarray(A.sum(axis=1), dtype=float).ravel()
    moved, some = centers.copy(), weight > 0.0
    if cost.metric == "sqeuclidean":
        moved[some] = np.asarray(A @ cost.points)[some] / weight[some, None]
    else:
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


# Where it starts: near its end, from rows that choose softly.

# Rows from which it pays; rows per block of a pass.
FEWEST, BLOCK = 2_000, 4_096
# Temperatures in typical margins, and the relative fall of the objective at which each is left,
# or the passes.
LADDER = ((0.1, 1e-5, 120), (0.03, 3e-6, 80))
# Distance of masses from the rules, in parts of a typical cluster, at which centers move.
NEAR = 0.25
# Damping of the prices' Newton steps, as a share of masses: first, least and most.
FIRST, LEAST, MOST = 0.05, 0.01, 10.0
# Rows that the first prices are made from.
STARTERS = 4_000
# A box of prices that is none: damping bounds the steps.
WIDE = 1e3


@dataclass(frozen=True, eq=False)
class SmoothedStart:
    """Centers (K, d), prices (G, K), and the number of times that centers moved."""

    centers: Floats
    prices: Floats
    moves: int


def smoothed_descent(
    program: MassProgram,
    costs: CostRows,
    *,
    tol: float,
    max_iter: int,
    deadline: float = np.inf,
) -> SmoothedStart | None:
    r"""Return centers and prices near those of an alternation of exact assignments and means.

    .. math::
        \min_\mu \max_\Lambda\; -\tau \sum_i w_i \log \sum_k e^{-(\|x_i - \mu_k\|^2 +
        \Lambda_{g_i k})/\tau} + \min_M \{h(M) - \langle\Lambda, M\rangle : \text{rules}\}

    at two low temperatures τ. One pass gives masses, their curvature and means: prices take a
    damped Newton step, and centers move beyond their means, in the same pass where masses are near
    the rules. Passes are in single precision, as nothing is proved here. None where rows are too
    few, there are no rules, or their step fails.

    Parameters
    ----------
    program : MassProgram
        The rules.
    costs : CostRows
        Rows, metric "sqeuclidean", at the centers to start from.
    tol : float
        Relative fall of the objective at which the alternation will end.
    max_iter : int
        Moves of the centers.
    deadline : float
        ``time.perf_counter()`` value.
    """
    if costs.size < FEWEST or max_iter < 2 or not program.form.b.size:
        return None
    margin = typical_margin(costs)
    few = thinned(costs, STARTERS)
    nothing = np.zeros(program.masses.shape)
    prices = smoothed_prices(
        program, few, lambda tau: SmoothedRows(few, tau), few.size, nothing, deadline=deadline
    )
    if prices is None or not margin > 0.0:
        return None
    search = _Search(program, _Rows(costs), prices, max_iter, deadline)
    for share, fall, most in LADDER:
        if not search.descend(share * margin, max(tol, fall), most):
            return None
    rows = search.rows
    return SmoothedStart(
        search.centers * rows.unit + rows.middle, search.prices * rows.unit**2, search.moves
    )


class _Rows:
    """Rows about their mean, in their own unit and single precision, ordered by group."""

    def __init__(self, costs: CostRows) -> None:
        X, w = costs.cost.points[costs.rows], costs.weights
        self.weights, self.middle = w, w @ X
        X = X - self.middle
        self.unit = float(np.sqrt(w @ np.square(X).sum(axis=1))) or 1.0
        X /= self.unit
        self.size = float(w @ np.square(X).sum(axis=1))
        root = np.sqrt(w)
        self.root = root.astype(np.float32)
        self.across = np.ones((X.shape[1] + 1, len(X)), dtype=np.float32)
        self.across[:-1] = X.T
        self.along = np.ascontiguousarray((self.across * root).T, dtype=np.float32)
        self.pieces = [
            (g, int(start), min(int(start) + BLOCK, int(own[-1]) + 1))
            for g in range(costs.group_count)
            if (own := costs.members(g)).size
            for start in range(int(own[0]), int(own[-1]) + 1, BLOCK)
        ]
        self.begin = (costs.cost.centers - self.middle) / self.unit

    def at(self, centers: Floats, prices: Floats, tau: float) -> tuple[MassPass, Floats]:
        """Return value, masses and curvature over τ, and Σ w R x of each cluster."""
        (G, K), d = prices.shape, centers.shape[1]
        value, sums = -self.size / tau, np.zeros((G, K, d + 1))
        curved = np.zeros((G, K, K))
        norms = np.square(centers).sum(axis=1)
        for g, start, stop in self.pieces:
            map_ = np.hstack([2.0 * centers, -(norms + prices[g])[:, None]]) / tau
            S = map_.astype(np.float32) @ self.across[:, start:stop]
            top = S.max(axis=0)
            S -= top
            np.exp(S, out=S)
            total = S.sum(axis=0)
            value += float(self.weights[start:stop] @ (top + np.log(total)))
            S *= self.root[start:stop] / total
            sums[g] += S @ self.along[start:stop]
            curved[g] -= S @ S.T
        masses = sums[:, :, -1].copy()
        diagonal = np.arange(K)
        curved[:, diagonal, diagonal] += masses
        return MassPass(value, masses, curved), sums[:, :, :-1].sum(axis=0)


class _Search:
    """Prices and centers as they move, in the unit of the rows."""

    def __init__(
        self, program: MassProgram, rows: _Rows, prices: Floats, most: int, deadline: float
    ) -> None:
        self.program, self.rows, self.centers = program, rows, rows.begin
        self.prices = prices / rows.unit**2
        self.most, self.deadline, self.moves, self.passes = most, deadline, 0, 0
        form, at = program.form, program.masses.ravel()
        self.equations = form.A.toarray()[:, at] if only_equations(program) else None

    def descend(self, temperature: float, fall: float, passes: int) -> bool:
        """Move prices and centers at one temperature until the objective falls by so little."""
        unit = self.rows.unit**2
        tau, form = temperature / unit, self.program.form
        hot = replace(
            self.program, form=replace(form, P=form.P / temperature, q=form.q / temperature)
        )
        damping, z, y = FIRST, self._multipliers(hot, tau), np.zeros(form.q.size)
        found, sums = self._pass(self.prices, tau)
        most, near = self.passes + passes, NEAR / self.prices.shape[1]
        while self.passes < most and self.moves < self.most:
            if time.perf_counter() > self.deadline:
                return True
            step = self._step(hot, found, z, tau, damping)
            if step is None:
                return False
            y_new, z_new, distance = step
            prices = hot.prices(y_new, z_new) * tau
            if distance > near:
                ahead, beyond = self._pass(prices, tau)
                before = None if z is None else hot.rule_bound(y, z) - found.value
                if before is not None and hot.rule_bound(y_new, z_new) - ahead.value <= before:
                    damping *= 5.0  # further than the curvature reaches
                    if damping > MOST:
                        return True
                    continue
                found, sums, damping = ahead, beyond, max(damping / 3.0, LEAST)
            else:
                own = found.masses.sum(axis=0)[:, None]
                means = np.where(own > 1e-9, sums / np.maximum(own, 1e-12), self.centers)
                fell = float((own * np.square(means - self.centers)).sum())
                cost = -(found.value * tau + float((self.prices * found.masses).sum()))
                self.centers = self.centers + REACH * (means - self.centers)
                self.moves += 1
            y, z, self.prices = y_new, z_new, prices
            if distance <= near:
                if fell <= fall * abs(cost):
                    return True
                damping = max(damping / 2.0, LEAST)
                found, sums = self._pass(self.prices, tau)
        return True

    def _pass(self, prices: Floats, tau: float) -> tuple[MassPass, Floats]:
        self.passes += 1
        return self.rows.at(self.centers, prices, tau)

    def _multipliers(self, hot: MassProgram, tau: float) -> Floats | None:
        """Return multipliers of equations whose prices are the nearest to those at hand."""
        if self.equations is None:
            return None
        form = hot.form
        own = self.prices / tau - form.q[hot.masses]
        z = np.asarray(np.linalg.lstsq(self.equations.T, own.ravel(), rcond=None)[0])
        self.prices = hot.prices(np.zeros(form.q.size), z) * tau
        return z

    def _step(
        self, hot: MassProgram, found: MassPass, z: Floats | None, tau: float, damping: float
    ) -> tuple[Floats, Floats, float] | None:
        """Return masses and multipliers of a damped step, and how far masses are from the rules."""
        G, K = found.masses.shape
        own = np.maximum(found.masses, hot.shares[:, None] / K)
        curved = np.asarray(found.curvature) + damping * own[:, :, None] * np.eye(K)
        form = hot.form
        if self.equations is None or z is None:
            held = MassPass(found.value, found.masses, curved)
            step = price_step(hot, held, self.prices / tau, WIDE, z)
            if step is None:
                return None
            apart = found.masses - step.y[hot.masses]
            return step.y, step.z, float(np.abs(apart / hot.shares[:, None]).max())
        y = np.zeros(form.q.size)
        y[hot.masses] = found.masses
        B = self.equations
        half = np.einsum("rgk,gkl->rgl", B.reshape(-1, G, K), curved).reshape(len(B), -1)
        newton = half @ B.T
        newton[np.diag_indices(len(B))] += 1e-9 * np.trace(newton)
        left = form.A @ y - form.b
        return y, z + np.linalg.solve(newton, left), float(np.abs(left).max())
