"""The mass-dual search where rows are read in passes and only the undecided ones are held."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.methods.fair_clustering.algorithms.costs import CostRows, SeparableCost
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram, solve_master
from optfair.methods.fair_clustering.algorithms.price_search import Candidate, PriceSearch
from optfair.methods.fair_clustering.algorithms.pricing import (
    Box,
    FreeRows,
    Pricing,
    box_for,
    price,
    select_arcs,
    spread,
)
from optfair.rows.row_source import Chunk
from optfair.rows.survey import Rows, Survey

__all__ = ["AssignmentPart", "AssignmentPass", "StreamedAssignment", "StreamedSearch", "joined"]


# One pass of fair k-means over a chunk: sums of the rows that are settled, and the few that are not.

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]


# A block r ranks from a boundary holds about r rows.
BLOCK = 2.0


@dataclass(frozen=True, eq=False)
class AssignmentPart:
    """What a pass over some chunks found at prices Λ; parts add up.

    Attributes
    ----------
    rows : int
        Rows read.
    value : float
        Σ w_i min_k (D_ik + Λ_gk), over all rows.
    masses : array (G, K)
        Weight of the settled rows: those whose cheapest cluster is the same in the whole box.
    sums : array (K, d)
        Σ w_i x_i of the settled rows of each cluster.
    cost : float
        Σ w_i D_ik of the settled rows.
    open : Rows
        The other rows, as they are; of a thinned pass, rows that stand for all.
    far : Rows
        The K settled rows that cost most, for clusters that need a new center.
    spent : array (K,)
        Their costs.
    """

    rows: int
    value: float
    masses: Floats
    sums: Floats
    cost: float
    open: Rows
    far: Rows
    spent: Floats


def joined(a: AssignmentPart, b: AssignmentPart) -> AssignmentPart:
    """Return the part of both."""
    spent = np.concatenate([a.spent, b.spent])
    most = np.argsort(-spent, kind="stable")[: len(a.sums)]
    far = _both(a.far, b.far)
    return AssignmentPart(
        a.rows + b.rows,
        a.value + b.value,
        a.masses + b.masses,
        a.sums + b.sums,
        a.cost + b.cost,
        _both(a.open, b.open),
        _taken(far, most),
        spent[most],
    )


@dataclass(frozen=True, eq=False)
class AssignmentPass:
    """The map of a pass; an object of numbers, so that it travels to workers.

    Parameters
    ----------
    survey : Survey
        Groups and columns; its sample is left behind by `Survey.header`.
    centers : array (K, d)
    prices : array (G, K)
        Λ.
    box : Box or None
        Rows whose cheapest cluster can change in it stay open; None: all rows.
    thin : bool
        Return rows that stand for all instead; see `thinned`.
    """

    survey: Survey
    centers: Floats
    prices: Floats
    box: Box | None
    thin: bool = False

    def __call__(self, chunk: Chunk) -> AssignmentPart:
        """Return the part of one chunk."""
        rows = self.survey.read(chunk)
        K, G = len(self.centers), len(self.prices)
        m = len(rows.X)
        far = np.asarray(cdist(self.centers, rows.X, "sqeuclidean"))
        # clusters along the first axis, also of the prices: three times as fast
        reduced = far + np.take(np.ascontiguousarray(self.prices.T), rows.groups, axis=1)
        here = np.arange(m)
        best = reduced.argmin(axis=0)
        low = reduced[best, here]
        value = float(rows.weights @ low)
        if self.thin:
            none = _taken(rows, here[:0])
            zeros = np.zeros((G, K)), np.zeros((K, rows.X.shape[1]))
            kept = _thinned_chunk(rows, reduced, best, low)
            return AssignmentPart(m, value, *zeros, 0.0, kept, none, np.zeros(0))
        free = self._free(rows, reduced, best, low)
        settled = np.flatnonzero(~free)
        w, k = rows.weights[settled], best[settled]
        gathering = sp.csr_array((w, (k, settled)), shape=(K, m))
        paid = far[k, settled] * (w > 0)
        most = np.argpartition(-paid, K)[:K] if paid.size > K else np.arange(paid.size)
        most = most[np.argsort(-paid[most], kind="stable")]
        masses = np.bincount(rows.groups[settled] * K + k, w, G * K).astype(float).reshape(G, K)
        return AssignmentPart(
            m,
            value,
            masses,
            np.asarray(gathering @ rows.X),
            float(w @ paid),
            _taken(rows, np.flatnonzero(free)),
            _taken(rows, settled[most]),
            paid[most],
        )

    def _free(self, rows: Rows, reduced: Floats, best: Integers, low: Floats) -> NDArray[np.bool_]:
        """Return whether another cluster can become cheapest in the box."""
        if self.box is None:
            return np.asarray(rows.weights > 0.0)
        # (D + Λ)_k - down_k <= low + up_best for some other k
        up = self.box.up[rows.groups, best]
        reduced = reduced - np.take(np.ascontiguousarray(self.box.down.T), rows.groups, axis=1)
        reduced[best, np.arange(best.size)] = np.inf
        return np.asarray((reduced.min(axis=0) <= low + up) & (rows.weights > 0.0))


def _thinned_chunk(rows: Rows, reduced: Floats, best: Integers, low: Floats) -> Rows:
    K = len(reduced)
    second, regret = best, np.zeros(best.size)
    if K > 1:
        here = np.arange(best.size)
        reduced[best, here] = np.inf
        second = reduced.argmin(axis=0)
        regret = reduced[second, here] - low
    stratum = (rows.groups * K + best) * K + second
    return thinned(rows, stratum, regret, None)


def thinned(rows: Rows, stratum: Integers, regret: Floats, unit: float | None) -> Rows:
    """Return few rows that stand for all of them.

    Rows of one stratum are lined up by regret and cut into blocks that double in size: next to
    a boundary every row stands for itself, far away one stands for many.

    Parameters
    ----------
    rows : Rows
        Rows, or rows that already stand for others.
    stratum : array (m,) of int
        Group and the two cheapest clusters.
    regret : array (m,)
        Difference of the two.
    unit : float, optional
        Weight of a single row, to rank rows that stand for others; None: each is one.
    """
    order = np.lexsort((regret, stratum))
    stratum, n = stratum[order], order.size
    new = np.diff(stratum, prepend=-1) != 0
    begin = np.flatnonzero(new)
    size = np.ones(n) if unit is None else rows.weights[order] / unit
    before = np.cumsum(size) - size
    rank = before - np.repeat(before[begin], np.diff(np.append(begin, n)))
    level = np.floor(np.log(np.maximum(rank, 0.0) + 1.0) / np.log(BLOCK))
    cut = np.flatnonzero(new | (np.diff(level, prepend=-1.0) != 0.0))
    middle = order[(cut + np.append(cut[1:], n)) // 2]
    weight = np.add.reduceat(rows.weights[order], cut)
    return Rows(rows.X[middle], rows.groups[middle], weight)


def _taken(rows: Rows, at: Integers) -> Rows:
    return Rows(rows.X[at], rows.groups[at], rows.weights[at])


def _both(a: Rows, b: Rows) -> Rows:
    return Rows(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.groups, b.groups]),
        np.concatenate([a.weights, b.weights]),
    )


# The mass-dual search where rows are read in passes and only the undecided ones are held.

# (prices, box, whether to thin) -> the pass over all rows
PassMaker = Callable[[Floats, Box | None, bool], AssignmentPart]

# Rows up to which every row is held and one master is enough.
SMALL = 100
# Ranks a box starts with, and bounds on its growth; a master of more open rows is slow.
FEWEST, MOST, LARGEST = 64.0, 2_400.0, 12_000
# A master that misses this many rows is far off: thin the rows instead of widening the box.
FAR, LONG_STEPS, ROUNDS, HALVINGS = 300.0, 4, 60, 30
# No row of weight may leave a cluster at this cost.
NEVER = 1e30


@dataclass(frozen=True, eq=False)
class StreamedAssignment:
    """Assignment found, by what is needed of it.

    Attributes
    ----------
    prices : array (G, K)
        Λ of the best bound.
    masses, hard_masses : arrays (G, K)
        Weight of groups in clusters, soft and of the hard labels.
    sums : array (K, d)
        Σ w_i A_ik x_i.
    objective : float
        Mean cost of the soft assignment, h(M) included.
    hard_cost : float
        Mean cost of the hard labels.
    bound : float
        Lower bound on the objective, recomputed from all rows.
    split : int
        Fractions beyond one for each row.
    far : Rows
        Rows that cost most.
    status : str
        optimal, stalled, time_limit or interrupted.
    """

    prices: Floats
    masses: Floats
    hard_masses: Floats
    sums: Floats
    objective: float
    hard_cost: float
    bound: float
    split: int
    far: Rows
    status: str


@dataclass(frozen=True, eq=False)
class _Opened:
    """A pass with the rows it left open and the master's costs of them."""

    part: AssignmentPart
    costs: CostRows


class StreamedSearch(PriceSearch):
    r"""Maximise :math:`q(\Lambda)` by passes over rows that are never held.

    The steps are those of `PriceSearch`; the rows outside the box enter the master as one mass
    per group and cluster, which is all it needs of them.

    Parameters
    ----------
    program : MassProgram
        The rules.
    survey : Survey
        Rows, groups and the sample that boxes are made from.
    centers : array (K, d)
    make : callable
        Makes a pass at these centers.
    tolerance : float
        Relative gap at which the search ends.
    deadline : float
        ``time.perf_counter()`` value after which no new pass starts.
    far : bool
        Whether the prices to start from are likely to be far from the optimum.
    """

    def __init__(
        self,
        program: MassProgram,
        survey: Survey,
        centers: Floats,
        make: PassMaker,
        tolerance: float,
        deadline: float = np.inf,
        far: bool = False,
    ) -> None:
        few = survey.sample
        cost = SeparableCost("sqeuclidean", few.X, centers)
        super().__init__(program, CostRows(cost, few.groups, few.weights), tolerance, deadline)
        self.survey, self.centers, self.make = survey, centers, make
        self.far = far
        self.found: tuple[Candidate, _Opened] | None = None

    def assign(self, prices: Floats) -> StreamedAssignment | None:
        """Search from given prices; None when time is up before there is an assignment."""
        try:
            status = self.run(prices)
        except KeyboardInterrupt:
            status = "interrupted"
        return None if self.found is None else self._assignment(status)

    def run(self, prices: Floats | None) -> str:
        """Search from given prices; return optimal, stalled or time_limit."""
        n = self.survey.rows
        at = np.zeros(self.program.masses.shape) if prices is None else prices
        ranks = np.full(at.shape, np.clip(2e-3 * n, FEWEST, MOST) / min(at.size, 50))
        steps, quiet, best_gap = LONG_STEPS, 0, np.inf
        last, inactive = None, False
        if self.far:
            steps, at = steps - 1, self._thin(at)
        self.far = False
        for _ in range(ROUNDS):
            box, opened, pricing, free = self._look(at, ranks)
            if last is not None:
                bound = pricing.value + self.program.rule_bound(last.y, last.z)
                if bound > self.bound:
                    self.bound, self.y, self.z = bound, last.y, last.z
                gap = self._record(free, last)
                if gap <= self.tolerance:
                    return "optimal"
                if inactive:  # only rounding is left
                    quiet = 0 if gap <= best_gap / 2.0 else quiet + 1
                    best_gap = min(gap, best_gap)
                    if quiet >= 2:
                        return "stalled"
            if time.perf_counter() > self.deadline:
                return "time_limit"
            master = self._solve(free, at, box)
            if master is None:
                return "time_limit" if time.perf_counter() > self.deadline else "stalled"
            fresh = self._candidate(pricing, free, box, master)
            inactive = fresh is not None
            if fresh is not None and (
                self.candidate is None or fresh.objective < self.candidate.objective
            ):
                self.candidate, self.found = fresh, (fresh, opened)
            last, at = master, self.program.prices(master.y, master.z)
            if inactive:
                ranks = np.maximum(ranks / 8.0, 1.0)
                continue
            missing = master.slack * n
            if missing.sum() > FAR and steps > 0:
                self.far = True
                steps, last, at = steps - 1, None, self._thin(at)
            else:
                active = master.slack > 1e-3 * master.slack.max()
                # a pass over all rows costs more than a large master
                wider = np.clip(2.0 * missing, 4.0 * ranks, 16.0 * ranks)
                ranks = np.where(active, wider, ranks)
        return "stalled"

    def _look(self, at: Floats, ranks: Floats) -> tuple[Box | None, _Opened, Pricing, FreeRows]:
        """Make a pass and hand the rows it left open to the master's format."""
        box = None
        if self.survey.rows > SMALL:
            scaled = ranks * (self.costs.size / self.survey.rows)
            box = box_for(self.costs, price(self.costs, at), scaled)
        part = self.make(at, box, False)
        costs = _few_costs(part, self.centers)
        pricing = price(costs, at)
        free = select_arcs(costs, pricing, box, self.program.shares)
        for _ in range(HALVINGS):
            if box is None or free.arcs.weight.size <= LARGEST:
                break
            box = Box(box.down / 2.0, box.up / 2.0)  # what a smaller box opens is at hand
            free = select_arcs(costs, pricing, box, self.program.shares)
        return box, _Opened(part, costs), replace(pricing, value=part.value), free

    def _thin(self, at: Floats) -> Floats:
        """Return prices that are optimal for rows that stand for all of them."""
        part = self.make(at, None, True)
        rows = part.open
        reduced = np.asarray(cdist(self.centers, rows.X, "sqeuclidean")) + at[rows.groups].T
        K, here = len(self.centers), np.arange(len(rows.X))
        best = reduced.argmin(axis=0)
        low = reduced[best, here]
        reduced[best, here] = np.inf
        second = reduced.argmin(axis=0)
        stratum = (rows.groups * K + best) * K + second
        rows = thinned(rows, stratum, reduced[second, here] - low, 1.0 / self.survey.rows)
        cost = SeparableCost("sqeuclidean", rows.X, self.centers)
        few = CostRows(cost, rows.groups, rows.weights)
        free = select_arcs(few, price(few, at), None, self.program.shares)
        left = self.deadline - time.perf_counter()
        master = solve_master(self.program, free.arcs, at, None, left)
        return self.program.prices(master.y, master.z) if master.status == "optimal" else at

    def _assignment(self, status: str) -> StreamedAssignment:
        """Put the settled rows and the open ones together."""
        if self.found is None:
            raise KeyboardInterrupt
        candidate, opened = self.found
        part, costs = opened.part, opened.costs
        rows, clusters, fractions = spread(costs, candidate.pricing, candidate.free, candidate.flow)
        own = costs.rows[rows]
        real = own < len(part.open.X)  # the others are the settled rows, counted already
        own, clusters, fractions = own[real], clusters[real], fractions[real]
        G, K = part.masses.shape
        X, groups, w = part.open.X, part.open.groups, part.open.weights
        mass = w[own] * fractions
        masses = part.masses + _table(groups[own], clusters, mass, G, K)
        sums = part.sums.copy()
        np.add.at(sums, clusters, mass[:, None] * X[own])
        far = np.asarray(cdist(self.centers, X, "sqeuclidean")) if len(X) else np.zeros((K, 0))
        # the largest fraction, the first one on ties
        order = np.lexsort((clusters, -fractions, own))
        first = order[np.diff(own[order], prepend=-1) != 0]
        i, k = own[first], clusters[first]
        rules = self.program.form.objective(candidate.y)
        return StreamedAssignment(
            self.program.prices(self.y, self.z),
            masses,
            part.masses + _table(groups[i], k, w[i], G, K),
            sums,
            part.cost + float(mass @ far[clusters, own]) + rules,
            part.cost + float(w[i] @ far[k, i]),
            self.bound,
            own.size - np.unique(own).size,
            part.far,
            status,
        )


def _few_costs(part: AssignmentPart, centers: Floats) -> CostRows:
    """Return the costs of the open rows, and of one row per group and cluster for the rest."""
    rows = part.open
    g, k = np.nonzero(part.masses)
    K = len(centers)
    D = np.empty((len(rows.X) + g.size, K))
    if len(rows.X):
        D[: len(rows.X)] = cdist(rows.X, centers, "sqeuclidean")
    D[len(rows.X) :] = NEVER
    D[len(rows.X) + np.arange(g.size), k] = 0.0
    groups = np.concatenate([rows.groups, g])
    weights = np.concatenate([rows.weights, part.masses[g, k]])
    return CostRows(SeparableCost("precomputed", D), groups, weights)


def _table(groups: Integers, clusters: Integers, mass: Floats, G: int, K: int) -> Floats:
    return np.asarray(np.bincount(groups * K + clusters, mass, G * K), dtype=float).reshape(G, K)
