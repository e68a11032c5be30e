"""The mass-dual search where rows are read in passes and only the undecided ones are held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.methods.fair_clustering.algorithms.costs import CostRows, SeparableCost
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import (
    LARGEST,
    SMALL,
    Candidate,
    PriceSearch,
)
from optfair.methods.fair_clustering.algorithms.pricing import (
    Box,
    FreeRows,
    MassOracle,
    MassPass,
    Pricing,
    box_for,
    mass_pass,
    price,
    select_arcs,
    spread,
)
from optfair.rows.sources import Chunk
from optfair.rows.survey import Rows, Survey

# One pass of fair k-means over a chunk: sums of the rows that are settled, and the few that are not.

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]


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
        The other rows, as they are.
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
    """

    survey: Survey
    centers: Floats
    prices: Floats
    box: Box | None

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


@dataclass(frozen=True, eq=False)
class SmoothedPass:
    """The map of a pass whose rows choose softly, at temperature tau; see `smoothed_prices`."""

    survey: Survey
    centers: Floats
    prices: Floats
    tau: float

    def __call__(self, chunk: Chunk) -> MassPass:
        """Return value, masses and curvature of one chunk."""
        rows = self.survey.read(chunk)
        far = cdist(rows.X, self.centers, "sqeuclidean") * (-1.0 / self.tau)
        return mass_pass(far, rows.groups, rows.weights, self.prices)


def _taken(rows: Rows, at: Integers) -> Rows:
    return Rows(rows.X[at], rows.groups[at], rows.weights[at])


def _both(a: Rows, b: Rows) -> Rows:
    return Rows(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.groups, b.groups]),
        np.concatenate([a.weights, b.weights]),
    )


# The mass-dual search where rows are read in passes and only the undecided ones are held.

#: (prices, box) -> the pass over all rows; (prices, temperature) -> the pass of soft choices
PassMaker = Callable[[Floats, Box | None], AssignmentPart]
SoftPassMaker = Callable[[Floats, float], MassPass]

# How often a box is halved whose master would be too large.
HALVINGS = 30
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
    make, soften : callable
        Make passes at these centers.
    tolerance : float
        Relative gap at which the search ends.
    deadline : float
        ``time.perf_counter()`` value after which no new pass starts.
    """

    # a pass over all rows costs more than a large master
    growth = (4.0, 16.0)

    def __init__(
        self,
        program: MassProgram,
        survey: Survey,
        centers: Floats,
        make: PassMaker,
        soften: SoftPassMaker,
        tolerance: float,
        deadline: float = np.inf,
    ) -> None:
        few = survey.sample
        cost = SeparableCost("sqeuclidean", few.X, centers)
        super().__init__(program, CostRows(cost, few.groups, few.weights), tolerance, deadline)
        self.size, self.survey, self.centers = survey.rows, survey, centers
        self.make, self.soften = make, soften
        self.look: tuple[Box | None, _Opened, FreeRows]  # of the last pass
        self.found: tuple[Candidate, _Opened] | None = None

    def assign(self, prices: Floats | None) -> StreamedAssignment | None:
        """Search from given prices; None when time is up before there is an assignment."""
        try:
            status = self.run(prices)
        except KeyboardInterrupt:
            status = "interrupted"
        return None if self.found is None else self._assignment(status)

    def _price(self, prices: Floats, ranks: Floats) -> Pricing:
        """Make a pass and hand the rows it left open to the master's format."""
        box = None
        if self.size > SMALL:
            scaled = ranks * (self.costs.size / self.size)
            box = box_for(self.costs, price(self.costs, prices), scaled)
        part = self.make(prices, box)
        costs = _few_costs(part, self.centers)
        pricing = price(costs, prices)
        free = select_arcs(costs, pricing, box, self.program.shares)
        for _ in range(HALVINGS):
            if box is None or free.arcs.weight.size <= LARGEST:
                break
            box = Box(box.down / 2.0, box.up / 2.0)  # what a smaller box opens is at hand
            free = select_arcs(costs, pricing, box, self.program.shares)
        self.look = box, _Opened(part, costs), free
        return replace(pricing, value=part.value)

    def _open(self, pricing: Pricing, ranks: Floats) -> tuple[Box | None, FreeRows]:
        box, _, free = self.look
        return box, free

    def _keep(self, candidate: Candidate) -> None:
        super()._keep(candidate)
        self.found = candidate, self.look[1]

    def _smoothed(self, tau: float) -> MassOracle:
        return lambda prices, curvature: self.soften(prices, tau)

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
