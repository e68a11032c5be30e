"""Assignments and centers of rows that are read in passes, of which only the undecided are held."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.errors import DataError, SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import (
    CostRows,
    SeparableCost,
    typical_margin,
)
from optfair.methods.fair_clustering.algorithms.descent import Assigned, reseed
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import (
    CURVED,
    LARGEST,
    POLYHEDRAL,
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
    boundary_means,
    box_for,
    followed_prices,
    label_masses,
    mass_pass,
    price,
    select_arcs,
    spread,
)
from optfair.methods.fair_clustering.algorithms.soft_descent import (
    FINAL,
    FURTHER,
    Scale,
    SmoothedStart,
    SoftRows,
    SoftSums,
    soft_descent,
)
from optfair.rows.sources import Chunk, RowSource
from optfair.rows.survey import Rows, Survey

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

# Rows per block of a pass; groups up to which their prices are a matrix product.
BLOCK, KINDS = 4_096, 16
# In single precision: no end of a box, and more than that.
ENDLESS, OUT = 1e34, 1e38

# One pass over a chunk: sums of the rows that are settled, and the few that are not.


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

    Rows whose choice single precision settles beyond its rounding are settled so; the others are
    looked at again in double precision. What is summed up is in double precision for all.

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
        (K, d), G, m = self.centers.shape, len(self.prices), len(rows.X)
        best, free, paid = np.empty(m, dtype=np.intp), np.zeros(m, dtype=bool), np.empty(m)
        sums, value, rough = np.zeros((K, d)), 0.0, self._rough()
        numbers = np.arange(K)[:, None]
        for start in range(0, m, BLOCK):
            at = slice(start, start + BLOCK)
            X, groups, w = rows.X[at], rows.groups[at], rows.weights[at]
            k, near = rough(X, groups)
            again = np.flatnonzero(near & (w > 0.0))
            if again.size:
                k[again], opened, low = self._closely(X[again], groups[again])
                free[start + again[opened]] = True
                value += float(w[again[opened]] @ low[opened])
            apart = np.take(self.centers, k, axis=0)
            np.subtract(X, apart, out=apart)
            paid[at] = np.einsum("ij,ij->i", apart, apart)
            sums += ((k == numbers) * np.where(free[at], 0.0, w)) @ X
            best[at] = k
        w = np.where(free, 0.0, rows.weights)
        masses = label_masses(best, rows.groups, w, (G, K))
        cost = float(w @ paid)
        paid *= w > 0.0
        most = np.argpartition(-paid, K)[:K] if m > K else np.arange(m)
        most = most[paid[most] > 0.0]
        most = most[np.argsort(-paid[most], kind="stable")]
        return AssignmentPart(
            m,
            value + cost + float((masses * self.prices).sum()),
            masses,
            sums,
            cost,
            _taken(rows, np.flatnonzero(free)),
            _taken(rows, most),
            paid[most],
        )

    def _rough(self) -> Callable[[Floats, Integers], tuple[Integers, NDArray[np.bool_]]]:
        """Return the function (rows, groups) -> (cheapest clusters, whether others come near)."""
        middle, K = self.centers.mean(axis=0), len(self.centers)
        own = self.centers - middle
        across = (-2.0 * own).astype(np.float32)
        level = np.square(own).sum(axis=1)
        charge = np.stack([level + p for p in self.prices], axis=1)  # K x G
        reach, size = float(np.sqrt(level.max())), float(np.abs(charge).max())
        off = (own.shape[1] + 8.0) * float(np.finfo(np.float32).eps)
        none = np.full(self.prices.shape, np.inf)
        box = Box(none, none) if self.box is None else self.box
        # in a matrix product an infinite side would spoil the others
        down = np.minimum(box.down.T, ENDLESS).astype(np.float32)
        up = np.minimum(box.up, ENDLESS).astype(np.float32)
        codes = np.stack([np.arange(K), np.ones(K)]).astype(np.float32)
        kinds, flat = np.arange(len(self.prices))[:, None], charge.astype(np.float32)

        def rough(X: Floats, groups: Integers) -> tuple[Integers, NDArray[np.bool_]]:
            own = np.empty(X.T.shape, dtype=np.float32)
            np.subtract(X.T, middle[:, None], out=own, casting="same_kind")
            S = across @ own
            if len(kinds) <= KINDS:
                of = (groups == kinds).astype(np.float32)
                S += flat @ of
            else:
                S += np.take(flat, groups, axis=1)
            low = S.min(axis=0)
            first = (low == S).astype(np.float32)
            k, ties = codes @ first
            best = np.minimum(k, K - 1.0).astype(np.intp)
            S -= down @ of if len(kinds) <= KINDS else np.take(down, groups, axis=1)
            first *= OUT
            S += first
            rounding = off * (np.square(np.sqrt(np.einsum("ij,ij->j", own, own)) + reach) + size)
            top = low + np.take(up, groups * K + best)
            return best, (S.min(axis=0) <= top + rounding) | (ties > 1.0)

        return rough

    def _closely(self, X: Floats, groups: Integers) -> tuple[Integers, NDArray[np.bool_], Floats]:
        """Return cheapest clusters, whether others become cheapest in the box, reduced costs."""
        # clusters along the first axis, also of the prices: three times as fast
        reduced = np.asarray(cdist(self.centers, X, "sqeuclidean"))
        reduced += np.take(np.ascontiguousarray(self.prices.T), groups, axis=1)
        here = np.arange(len(X))
        best = reduced.argmin(axis=0)
        low = reduced[best, here]
        if self.box is None:
            return best, np.ones(len(X), dtype=bool), low
        # (D + Λ)_k - down_k <= low + up_best for some other k
        up = self.box.up[groups, best]
        reduced -= np.take(np.ascontiguousarray(self.box.down.T), groups, axis=1)
        reduced[best, here] = np.inf
        return best, np.asarray(reduced.min(axis=0) <= low + up), low


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


@dataclass(frozen=True, eq=False)
class SoftPass:
    """The map of a pass of `soft_descent`; it may keep the rows of chunks by their indices."""

    survey: Survey
    scale: Scale
    centers: Floats
    prices: Floats
    tau: float
    curved: bool
    kept: dict[int, SoftRows] | None = None

    def __call__(self, chunk: Chunk) -> SoftSums:
        """Return the sums of one chunk."""
        soft = None if self.kept is None else self.kept.get(chunk.index)
        if soft is None:
            rows = self.survey.read(chunk)
            kinds = rows.groups.astype(np.min_scalar_type(len(self.prices)))
            own = _taken(rows, np.argsort(kinds, kind="stable"))
            soft = SoftRows(own.X, own.groups, own.weights, self.scale)
            if self.kept is not None:
                self.kept[chunk.index] = soft
        return soft.at(self.centers, self.prices, self.tau, self.curved)


def _taken(rows: Rows, at: Integers) -> Rows:
    return Rows(rows.X[at], rows.groups[at], rows.weights[at])


def _both(a: Rows, b: Rows) -> Rows:
    return Rows(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.groups, b.groups]),
        np.concatenate([a.weights, b.weights]),
    )


# The mass-dual search over such passes.

Part = TypeVar("Part")
# How often a box is halved whose master would be too large.
HALVINGS = 30
# No row of weight may leave a cluster at this cost.
NEVER = 1e30


@dataclass(frozen=True, eq=False)
class PassedAssignment:
    """Assignment found, by what is needed of it.

    Attributes
    ----------
    prices, boundary : arrays (G, K), (G, K, d)
        Λ of the best bound, and `boundary_means`.
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
    boundary: Floats
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


class PassedRows:
    """Assignments and centers of rows that are read in passes; as `HeldRows`.

    Parameters
    ----------
    program : MassProgram
        The rules.
    source : RowSource
        Rows.
    survey : Survey
        Their first pass.
    unit : float
        Size of a cost, that gaps refer to.
    prices : array (G, K), optional
        Prices near the optimum, e.g. of a sample.
    n_jobs : int
        Threads.
    """

    def __init__(
        self,
        program: MassProgram,
        source: RowSource,
        survey: Survey,
        unit: float,
        prices: Floats | None = None,
        n_jobs: int = 1,
    ) -> None:
        self.program, self.source, self.survey, self.unit = program, source, survey, unit
        self.prices, self.n_jobs, self.passes, self.header = prices, n_jobs, 0, survey.header
        self.tolerance = POLYHEDRAL if program.polyhedral else CURVED
        self.scale = Scale.of(survey.sample.X, survey.sample.weights)
        # half as large as the rows, and most of a pass: kept where the rows are in memory, too
        self.kept: dict[int, SoftRows] | None = {} if source.in_memory else None

    def assign(
        self,
        centers: Floats,
        before: Assigned[PassedAssignment] | None,
        left: float,
        *,
        brief: bool = True,
    ) -> Assigned[PassedAssignment] | None:
        """Return the optimal assignment at given centers, searched from the prices before."""
        # the first assignment is made whatever the limit
        deadline = np.inf if before is None else time.perf_counter() + left
        search = PassedSearch(self, centers, deadline, brief=brief)
        prices = self.prices
        if before is not None:
            was = before.answer
            cost = SeparableCost("sqeuclidean", self.survey.sample.X, centers)
            followed = followed_prices(
                was.prices, cost, was.boundary, before.centers, centers, abs(before.objective)
            )
            prices = self.program.possible(followed)
        assigned = search.assign(prices)
        if assigned is None:
            if before is not None:
                return None
            raise SolverFailure(
                "no assignment was found in the passes made",
                f"{self.passes} passes",
                "give other centers, or fit a sample in memory to see why",
            )
        gap = max(0.0, assigned.objective - assigned.bound) / max(
            self.unit, abs(assigned.objective)
        )
        return Assigned(assigned.objective, gap, assigned.status, centers, assigned)

    def begun(
        self, centers: Floats, tol: float, max_iter: int, left: float = np.inf
    ) -> SmoothedStart | None:
        """Return where centers go in passes in which few rows choose softly; prices go along.

        None without such passes, as `soft_descent`.
        """
        few = self.survey.sample
        if self.prices is None or not self.program.form.b.size or max_iter < 2:
            return None
        cost = SeparableCost("sqeuclidean", few.X, centers)
        margin = typical_margin(CostRows(cost, few.groups, few.weights))
        stated = self.program, self._softly, self.scale, centers, self.prices, margin, FINAL
        soft = soft_descent(
            *stated, tol=tol, max_iter=max_iter, reach=FURTHER, deadline=time.perf_counter() + left
        )
        if soft is not None:
            self.prices = soft.prices
        self.kept = None if self.kept is None else {}
        return soft

    def _softly(self, centers: Floats, prices: Floats, tau: float, curved: bool) -> SoftSums:
        made = SoftPass(self.header, self.scale, centers, prices, tau, curved, self.kept)
        sums: SoftSums = self.pass_over(made, operator.add)
        return sums

    def move(self, step: Assigned[PassedAssignment]) -> tuple[Floats, list[int]]:
        """Return the means of the clusters; an empty one gets a row that costs much."""
        mass, moved = step.answer, step.centers.copy()
        weight = mass.masses.sum(axis=0)
        held = weight > 0.0
        moved[held] = mass.sums[held] / weight[held, None]
        return moved, reseed(moved, weight, mass.far.X)

    def pass_over(self, function: Callable[[Chunk], Part], combine: Callable[..., Part]) -> Part:
        """Return what a pass finds."""
        self.passes += 1
        part: Part = self.source.map_reduce(function, combine, self.n_jobs)
        return part

    def assignments(self, centers: Floats, prices: Floats, box: Box | None) -> AssignmentPart:
        """Return the pass at given prices, over the rows that the first pass saw."""
        part = self.pass_over(AssignmentPass(self.header, centers, prices, box), joined)
        if part.rows != self.survey.rows:
            raise DataError(
                "the source does not give the same rows in every pass",
                f"{self.survey.rows} rows in the first pass, {part.rows} in a later one",
                "give a function that returns a new iterator over all rows each time",
            )
        return part


class PassedSearch(PriceSearch):
    r"""Maximise :math:`q(\Lambda)` by passes over rows that are never held.

    The steps are those of `PriceSearch`; the rows outside the box enter the master as one mass
    per group and cluster, which is all it needs of them.

    Parameters
    ----------
    rows : PassedRows
        Makes the passes; boxes are made from its sample.
    centers : array (K, d)
    deadline : float
        ``time.perf_counter()`` value after which no new pass starts.
    """

    def __init__(
        self, rows: PassedRows, centers: Floats, deadline: float = np.inf, *, brief: bool = False
    ) -> None:
        few = rows.survey.sample
        costs = CostRows(SeparableCost("sqeuclidean", few.X, centers), few.groups, few.weights)
        super().__init__(rows.program, costs, rows.tolerance, deadline, brief=brief)
        self.size, self.rows, self.centers = rows.survey.rows, rows, centers
        self.look: tuple[Box | None, _Opened, FreeRows]  # of the last pass
        self.lowest: tuple[Candidate, _Opened] | None = None

    def assign(self, prices: Floats | None) -> PassedAssignment | None:
        """Search from given prices; None when time is up before there is an assignment."""
        try:
            status = self.run(prices)
        except KeyboardInterrupt:
            status = "interrupted"
        return None if self.lowest is None else self._assignment(status)

    def _price(self, prices: Floats, ranks: Floats) -> Pricing:
        """Make a pass and hand the rows it left open to the master's format."""
        box, scaled, few = None, ranks * (self.costs.size / self.size), price(self.costs, prices)
        if self.size > SMALL:
            box = box_for(self.costs, few, scaled)
        part = self.rows.assignments(self.centers, prices, box)
        costs = _few_costs(part, self.centers)
        pricing = price(costs, prices)
        free = select_arcs(costs, pricing, box, self.program.shares)
        for _ in range(HALVINGS):
            if box is None or free.arcs.weight.size <= LARGEST:
                break
            scaled = scaled / 2.0
            box = box_for(self.costs, few, scaled)  # what a smaller box opens is at hand
            free = select_arcs(costs, pricing, box, self.program.shares)
        self.look = box, _Opened(part, costs), free
        return replace(pricing, value=part.value)

    def _open(self, pricing: Pricing, ranks: Floats) -> tuple[Box | None, FreeRows]:
        box, _, free = self.look
        return box, free

    def _keep(self, candidate: Candidate) -> None:
        super()._keep(candidate)
        self.lowest = candidate, self.look[1]

    def _smoothed(self, tau: float) -> MassOracle:
        return lambda prices, curvature: self.rows.pass_over(
            SmoothedPass(self.rows.header, self.centers, prices, tau), operator.add
        )

    def _assignment(self, status: str) -> PassedAssignment:
        """Put the settled rows and the open ones together."""
        if self.lowest is None:
            raise KeyboardInterrupt
        candidate, opened = self.lowest
        part, costs = opened.part, opened.costs
        rows, clusters, fractions = spread(costs, candidate.pricing, candidate.free, candidate.flow)
        own = costs.rows[rows]
        real = own < len(part.open.X)  # the others are the settled rows, counted already
        own, clusters, fractions = own[real], clusters[real], fractions[real]
        G, K = part.masses.shape
        X, groups, w = part.open.X, part.open.groups, part.open.weights
        mass = w[own] * fractions
        masses = part.masses + label_masses(clusters, groups[own], mass, (G, K))
        sums = part.sums.copy()
        np.add.at(sums, clusters, mass[:, None] * X[own])
        far = np.asarray(cdist(self.centers, X, "sqeuclidean")) if len(X) else np.zeros((K, 0))
        # the largest fraction, the first one on ties
        order = np.lexsort((clusters, -fractions, own))
        first = order[np.diff(own[order], prepend=-1) != 0]
        i, k = own[first], clusters[first]
        rules = self.program.form.objective(candidate.y)
        free = costs.rows[candidate.free.positions]
        inside = free < len(X)
        undecided = np.zeros((free.size, part.sums.shape[1]))
        undecided[inside] = X[free[inside]]
        boundary = boundary_means(
            candidate.free,
            undecided,
            np.where(inside, costs.weights[candidate.free.positions], 0.0),
            (G, K),
        )
        return PassedAssignment(
            self.program.prices(self.y, self.z),
            boundary,
            masses,
            part.masses + label_masses(k, groups[i], w[i], (G, K)),
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
