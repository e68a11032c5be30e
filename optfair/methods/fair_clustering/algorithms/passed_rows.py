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
    Charge,
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
    Pricing,
    boundary_means,
    box_for,
    followed_prices,
    label_masses,
    price,
    select_arcs,
    spread,
)
from optfair.methods.fair_clustering.algorithms.row_passes import (
    AssignmentPart,
    AssignmentPass,
    SmoothedPass,
    SoftPass,
    joined,
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
    sums : array (K, d), or (G K, d) where costs have factors
        Σ w_i A_ik x_i, or that of each group.
    paid : array (G,)
        Σ w_i A_ik D_ik of each group, without its factor.
    rest : float
        What the masses cost, h(M).
    objective : float
        Cost of the soft assignment, with factors and h(M).
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
    paid: Floats
    rest: float
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

    def assignments(
        self, centers: Floats, prices: Floats, box: Box | None, factors: Floats | None = None
    ) -> AssignmentPart:
        """Return the pass at given prices, over the rows that the first pass saw."""
        made = AssignmentPass(self.header, centers, prices, box, factors)
        part = self.pass_over(made, joined)
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
    factors : array (G,), optional
        What costs of each group are multiplied by, positive.
    """

    def __init__(
        self,
        rows: PassedRows,
        centers: Floats,
        deadline: float = np.inf,
        *,
        brief: bool = False,
        factors: Floats | None = None,
    ) -> None:
        few = rows.survey.sample
        charge = None if factors is None else Charge(factors=factors[few.groups])
        cost = SeparableCost("sqeuclidean", few.X, centers, charge=charge)
        costs = CostRows(cost, few.groups, few.weights)
        super().__init__(rows.program, costs, rows.tolerance, deadline, brief=brief)
        self.size, self.rows, self.centers = rows.survey.rows, rows, centers
        self.factors = factors
        self.paying = np.ones(rows.survey.shares.size) if factors is None else factors
        if factors is not None:
            # factors are orders apart, and so are margins of groups: no temperature suits them all
            self.long_steps = 0
        self.look: tuple[Box | None, _Opened, FreeRows]  # of the last pass
        self.lowest: tuple[Candidate, _Opened] | None = None

    def assign(self, prices: Floats | None) -> PassedAssignment | None:
        """Search from given prices; None when time is up before there is an assignment."""
        try:
            status = self.run(prices)
        except KeyboardInterrupt:
            if self.lowest is None:
                raise
            status = "interrupted"
        return None if self.lowest is None else self._assignment(status)

    def _price(self, prices: Floats, ranks: Floats) -> Pricing:
        """Make a pass and hand the rows it left open to the master's format."""
        box, scaled, few = None, ranks * (self.costs.size / self.size), price(self.costs, prices)
        if self.size > SMALL:
            box = box_for(self.costs, few, scaled)
        part = self.rows.assignments(self.centers, prices, box, self.factors)
        costs = self._few_costs(part)
        pricing = price(costs, prices)
        free = select_arcs(costs, pricing, box, self.program.shares)
        for _ in range(HALVINGS):
            if box is None or free.arcs.weight.size <= LARGEST:
                break
            scaled = scaled / 2.0
            box = box_for(self.costs, few, scaled)  # what a smaller box opens is at hand
            free = select_arcs(costs, pricing, box, self.program.shares)
        self.look = box, _Opened(part, costs), free
        return replace(pricing, value=float(self.paying @ part.value))

    def _open(self, pricing: Pricing, ranks: Floats) -> tuple[Box | None, FreeRows]:
        box, _, free = self.look
        return box, free

    def _keep(self, candidate: Candidate) -> None:
        super()._keep(candidate)
        self.lowest = candidate, self.look[1]

    def _smoothed(self, tau: float) -> MassOracle:
        return lambda prices, curvature: self.rows.pass_over(
            SmoothedPass(self.rows.header, self.centers, prices, tau, self.factors), operator.add
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
        sums, cell = part.sums.copy(), clusters
        if self.factors is not None:
            cell = groups[own] * K + clusters
        np.add.at(sums, cell, mass[:, None] * X[own])
        far = np.asarray(cdist(self.centers, X, "sqeuclidean")) if len(X) else np.zeros((K, 0))
        paid = np.asarray(part.cost + np.bincount(groups[own], mass * far[clusters, own], G))
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
            paid,
            rules,
            float(self.paying @ paid) + rules,
            float(part.cost.sum()) + float(w[i] @ far[k, i]),
            self.bound,
            own.size - np.unique(own).size,
            part.far,
            status,
        )

    def _few_costs(self, part: AssignmentPart) -> CostRows:
        """Return the costs of the open rows, and of one row per group and cluster for the rest."""
        rows = part.open
        g, k = np.nonzero(part.masses)
        D = np.empty((len(rows.X) + g.size, len(self.centers)))
        if len(rows.X):
            D[: len(rows.X)] = cdist(rows.X, self.centers, "sqeuclidean")
        if self.factors is not None:
            D[: len(rows.X)] *= self.factors[rows.groups, None]
        D[len(rows.X) :] = NEVER
        D[len(rows.X) + np.arange(g.size), k] = 0.0
        groups = np.concatenate([rows.groups, g])
        weights = np.concatenate([rows.weights, part.masses[g, k]])
        return CostRows(SeparableCost("precomputed", D), groups, weights)
