"""The mass-dual algorithm: the search for the best prices of the masses, in a few passes over the rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.costs import (
    CostRows,
    SeparableCost,
    least_margin,
    typical_margin,
)
from optfair.methods.fair_clustering.algorithms.entropic_projection import project_masses
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.pricing import (
    Box,
    Entries,
    FreeRows,
    MassOracle,
    MassPass,
    Pricing,
    Round,
    box_for,
    pass_over,
    price,
    repaired,
    select_arcs,
    spread,
    value_within,
)
from optfair.methods.fair_clustering.algorithms.restricted_master import (
    Arcs,
    MasterResult,
    solve_master,
)

# Gaps the search aims at: linear programming is exact, an interior-point master is not.
POLYHEDRAL, CURVED = 1e-10, 3e-8


Floats = NDArray[np.float64]
Integers = NDArray[np.intp]


# Prices near the optimum from rows whose choice is smoothed: the long step of the search.

# Temperatures, in typical margins: the first and the last, and the factor from one to the next.
WARMEST, COLDEST, FACTOR = 10.0, 0.01, 0.3
# The last is lower where margins of a group are this much less than those of all.
UNEVEN = 100.0
# Distance of the masses from the rules, in fractions of groups, at which a temperature is left;
# at the last one so many rows of a typical group, if that is less.
NEAR, NEAR_ROWS = 1e-2, 10.0
# Rows that the temperatures but the last look at.
FEW, FEWER = 20_000, 4_000
# Rows per piece of a smoothed pass. Logarithm of a fraction that is as good as none, and by how
# much prices may move, over τ, before it is looked at again which those are. Rounding of curvature.
PIECE, FRACTION, MOVED, SINGLE = 4_096, 10.0, 6.0, 1e-6
# Logarithm below which a fraction is as good as none: products of numbers that are nearly no numbers
# are slow.
LEAST_LOG = -25.0


def smoothed_prices(
    program: MassProgram,
    few: CostRows,
    whole: Callable[[float], MassOracle],
    size: int,
    prices: Floats,
    *,
    warmest: float = WARMEST,
    deadline: float = np.inf,
    z: Floats | None = None,
) -> tuple[Floats, Floats] | None:
    r"""Return prices near the optimal ones, and multipliers of the rules; None if that fails.

    .. math::
        \max_\Lambda\; -\tau \sum_i w_i \log \sum_k e^{-(D_{ik} + \Lambda_{g_i k})/\tau}
        + \min_M \{h(M) - \langle\Lambda, M\rangle : \text{rules}\}

    for falling temperatures τ, each from the prices of the one before. That is the projection of
    responsibilities :math:`e^{-D/\tau}` on the rules, whose Newton steps are few whatever the
    number of clusters and groups; the prices err by about τ.

    Parameters
    ----------
    program : MassProgram
        The rules.
    few : CostRows
        Rows of which every temperature but the last is content; see `thinned`.
    whole : callable
        Returns the oracle of all rows at a temperature, such as `SmoothedRows`.
    size : int
        Number of all rows.
    prices : array (G, K)
        Where to start.
    warmest : float
        First temperature, in typical margins between a row's two cheapest clusters: low where
        the prices are nearly right.
    deadline : float
        ``time.perf_counter()`` value after which no new pass starts.
    z : array, optional
        Multipliers of the rules where they are known: those that are 0 say which have no price.
    """
    unit = typical_margin(few)
    if not unit > 0.0:
        return None
    coldest = COLDEST * min(1.0, UNEVEN * least_margin(few) / unit)
    best: tuple[Floats, Floats] | None = None
    rows = NEAR_ROWS * few.group_count / size
    share = max(warmest, coldest)
    while share >= coldest and time.perf_counter() < deadline:
        last = share * FACTOR < coldest
        tau = unit * share
        oracle = whole(tau) if last else SmoothedRows(few, tau)
        projection = project_masses(
            oracle,
            program.heated(tau),
            prices=prices / tau,
            tolerance=min(NEAR, rows) if last else NEAR,
            deadline=deadline,
            rough=True,
            z=z,
        )
        if projection.status == "interrupted":
            raise KeyboardInterrupt
        if not np.isfinite(projection.value):
            break
        prices, z = best = projection.prices * tau, projection.z
        share *= FACTOR
    return best


class SmoothedRows:
    """The oracle of rows in memory whose log densities are -D/τ.

    Rows whose first cluster has next to all of them are settled while prices stay about the same:
    their masses are sums. The others are looked at in single precision, as nothing is proved here.
    """

    def __init__(self, costs: CostRows, tau: float) -> None:
        self.costs, self.tau = costs, tau
        self.seen: Floats | None = None  # the prices at which rows were settled

    def __call__(self, prices: Floats, curvature: bool = True) -> MassPass:
        """Return the pass at given prices."""
        if self.seen is None or np.ptp(prices - self.seen, axis=1).max() > MOVED:
            self._settle(prices)
        moved = prices - np.asarray(self.seen)
        blocks = ((g, S.copy(), w) for g, S, w in self.near)
        near = pass_over(blocks, moved, curvature=curvature)
        value = near.value + self.value - float((self.settled * moved).sum())
        masses = near.masses + self.settled
        if near.curvature is None:
            return MassPass(value, masses)
        curved = 0.5 * (near.curvature + near.curvature.transpose(0, 2, 1))
        # rounded, it might not be semidefinite
        curved += SINGLE * masses[:, :, None] * np.eye(masses.shape[1])
        return MassPass(value, masses, curved)

    def _settle(self, prices: Floats) -> None:
        self.seen, self.value, self.settled = prices, 0.0, np.zeros(prices.shape)
        self.near: list[tuple[int, NDArray[np.float32], Floats]] = []
        for g, start, stop, block in self.costs.blocks():
            for first in range(start, stop, PIECE):
                own = slice(first, min(first + PIECE, stop))
                S = block[:, own.start - start : own.stop - start] * (-1.0 / self.tau)
                S -= prices[g][:, None]
                top = S.max(axis=0)
                S -= top
                w, best = self.costs.weights[own], S == 0.0
                open_ = (S > -(FRACTION + MOVED)).sum(axis=0) > 1
                self.value += float(w @ top)
                self.settled[g] += best @ np.where(open_, 0.0, w)
                near = np.maximum(S[:, open_], LEAST_LOG).astype(np.float32)
                self.near.append((g, near, w[open_]))


def thinned(costs: CostRows, size: int = FEW) -> CostRows:
    """Return about ``size`` rows, every group with its share; all rows where they are few."""
    if costs.size <= size:
        return costs
    rng = np.random.default_rng(0)
    rows, weights = [], []
    for g in range(costs.group_count):
        own = costs.members(g)
        count = min(own.size, max(1_000, round(size * own.size / costs.size)))
        own = np.sort(rng.choice(own, count, replace=False))
        part = costs.weights[own]
        rows.append(costs.rows[own])
        weights.append(part * (costs.weights[costs.members(g)].sum() / part.sum()))
    return CostRows(costs.cost, costs.labels, np.concatenate(weights), np.concatenate(rows))


# The search for the best prices: price all arcs, solve a master that is exact in a box, repeat.

logger = logging.getLogger("optfair")


# Rows up to which all arcs enter one master; rows a box may grow to, and rows a price where that is more.
SMALL, LARGEST, EACH_PRICE = 100, 4_000, 10
# Rows a box starts with: a share of all, within bounds; and boundaries it is divided among at most.
SHARE, FEWEST, MOST, BOUNDARIES = 0.02, 64, 600, 400
# Least part of these, where prices are all but right.
LEAST_BOX = 0.0625
# A master that misses this many rows, and more than one a price, is far from the optimum: take a long
# step instead of many, from this temperature on. Else a side of its box that was active gets so much
# wider, at least and at most.
FAR, LONG_STEPS, COOL = LARGEST, 2, 1.0
WIDER = 4.0, 16.0
ROUNDS = 200
# By how much a known assignment and its multipliers may miss the rules, as masses their definition.
OBEYED = 1e-12


@dataclass(frozen=True, eq=False)
class Candidate:
    """A rule-feasible flow on the arcs of one master, and what it costs."""

    pricing: Pricing
    free: FreeRows
    flow: Floats
    y: Floats
    objective: float


class PriceSearch:
    r"""Maximise :math:`q(\Lambda)`, one restricted master at a time.

    A master is exact for prices in a box around the current ones, because it holds every arc
    that can become cheapest there. So each round either ends with the box inactive, and its
    prices are optimal, or moves to a strictly better bound, after which the box is widened
    where it was active.

    Parameters
    ----------
    program : MassProgram
        The rules.
    costs : CostRows
        The rows.
    tolerance : float
        Relative gap at which the search ends.
    deadline : float
        ``time.perf_counter()`` value after which no new pass starts.
    report : callable, optional
        Called with each `Round`.
    brief : bool
        Whether a bound is taken from the master where its box is not active: what it says of the
        rows outside needs no pass. Otherwise a pass over all rows recomputes every bound.
    share : float
        Part of the usual rows that the first box has, where prices are nearly right.
    """

    def __init__(
        self,
        program: MassProgram,
        costs: CostRows,
        tolerance: float,
        deadline: float = np.inf,
        report: Callable[[Round], None] | None = None,
        *,
        brief: bool = False,
        share: float = 1.0,
    ) -> None:
        self.program, self.costs, self.brief, self.share = program, costs, brief, share
        self.tolerance, self.deadline, self.report = tolerance, deadline, report
        self.size, self.cap = costs.size, max(2 * costs.size, 20_000)
        self.few: CostRows | None = None
        self.long_steps = LONG_STEPS
        self.bound = -np.inf
        self.y, self.z = np.zeros(program.form.q.size), np.zeros(program.form.b.size)
        self.near: Floats | None = None  # multipliers of the last prices
        self.candidate: Candidate | None = None
        self.pricing: Pricing | None = None
        self.history: list[Round] = []

    def run(self, prices: Floats | None) -> str:
        """Search from given prices, or from none; return optimal, stalled or time_limit."""
        steps, quiet, best_gap = self.long_steps, 0, np.inf
        rows = min(max(SHARE * self.size, FEWEST), MOST)
        if prices is None:
            prices = np.zeros(self.program.masses.shape)
            rows = min(2 * rows, MOST)
            if self.size > SMALL and time.perf_counter() < self.deadline:
                prices = self._long_step(prices)
        ranks = np.full(prices.shape, self.share * rows / min(prices.size, BOUNDARIES))
        opened: tuple[FreeRows, MasterResult] | None = None
        inactive = False
        for _ in range(ROUNDS):
            pricing = self.pricing = self._price(prices, ranks)
            if opened is not None:
                free, master = opened
                gap = self._bounded(pricing.value, free, master)
                if gap <= self.tolerance:
                    return "optimal"
                if inactive:  # only rounding is left
                    quiet = 0 if gap <= best_gap / 2.0 else quiet + 1
                    best_gap = min(gap, best_gap)
                    if quiet >= (3 if self.program.polyhedral else 2):
                        return "stalled"
            if time.perf_counter() > self.deadline:
                return "time_limit"
            box, free = self._open(pricing, ranks)
            result = self._solve(free, prices, box)
            if result is None:
                return "time_limit" if time.perf_counter() > self.deadline else "stalled"
            fresh = self._candidate(pricing, free, box, result)
            inactive = fresh is not None
            if fresh is not None and (
                self.candidate is None or fresh.objective < self.candidate.objective
            ):
                self._keep(fresh)
            opened, prices = (free, result), self.program.prices(result.y, result.z)
            if inactive and self.brief:
                value = value_within(pricing, free, box, prices)
                if self._bounded(value, free, result) <= self.tolerance:
                    return "optimal"
            if inactive:  # near the optimum a small box is scaled better
                ranks = np.maximum(ranks / 8.0, 1.0)
                continue
            missing = result.slack * self.size
            if missing.sum() > max(FAR, prices.size) and steps > 0:
                steps, opened = steps - 1, None
                prices = self._long_step(prices, COOL)
            else:
                active = result.slack > 1e-3 * result.slack.max()
                wider = np.clip(2.0 * missing, WIDER[0] * ranks, WIDER[1] * ranks)
                ranks = np.where(active, wider, ranks)
        return "stalled"

    def _bounded(self, value: float, free: FreeRows, master: MasterResult) -> float:
        """Take the bound of a master's prices, of that value over the rows; return the gap."""
        bound = value + self.program.rule_bound(master.y, master.z)
        if bound > self.bound:
            self.bound, self.y, self.z = bound, master.y, master.z
        return self._record(free, master)

    def _price(self, prices: Floats, ranks: Floats) -> Pricing:
        return price(self.costs, prices)

    def _keep(self, candidate: Candidate) -> None:
        self.candidate = candidate

    def _long_step(self, prices: Floats, warmest: float = WARMEST) -> Floats:
        if self.few is None:
            self.few = thinned(self.costs, min(FEW, max(FEWER, self.costs.size // 16)))
        step = smoothed_prices(
            self.program,
            self.few,
            self._smoothed,
            self.size,
            prices,
            warmest=warmest,
            deadline=self.deadline,
            z=self.near,
        )
        if step is not None:
            prices, self.near = step
        return prices

    def _smoothed(self, tau: float) -> MassOracle:
        return SmoothedRows(self.costs, tau)

    def gap(self) -> float:
        """Return the relative gap of the candidate, infinite before there is one."""
        if self.candidate is None:
            return np.inf
        objective = self.candidate.objective
        # an optimum of zero needs a unit: a millionth of the typical regret
        arcs = self.candidate.free.arcs
        typical = float(arcs.regret.mean()) if arcs.regret.size else 0.0
        unit = abs(objective) + 1e-6 * typical + np.finfo(float).tiny
        return float(max(0.0, objective - self.bound) / unit)

    def _record(self, free: FreeRows, master: MasterResult) -> float:
        gap, slack = self.gap(), float(master.slack.sum())
        entry = Round(free.arcs.weight.size, free.arcs.row.size, self.bound, slack, gap)
        self.history.append(entry)
        logger.debug("mass-dual %s", entry)
        if self.report is not None:
            self.report(entry)
        return gap

    def _open(self, pricing: Pricing, ranks: Floats) -> tuple[Box | None, FreeRows]:
        """Choose box and arcs of the next master: wide enough to move, never above the cap."""
        if self.costs.size <= SMALL:
            return None, select_arcs(self.costs, pricing, None, self.program.shares)
        most = max(LARGEST, EACH_PRICE * ranks.size)
        while True:
            box = box_for(self.costs, pricing, ranks)
            free = select_arcs(self.costs, pricing, box, self.program.shares)
            fits = free.arcs.row.size <= self.cap and free.arcs.weight.size <= most
            if fits or ranks.max() <= 1e-3:
                return box, free
            ranks /= 2.0

    def _solve(self, free: FreeRows, prices: Floats, box: Box | None) -> MasterResult | None:
        """Solve the master; a numerical failure is tried again with more room, then less box."""
        for shrink, tolerance in ((1.0, 1e-10), (0.25, 1e-9), (0.0625, 1e-8)):
            left = self.deadline - time.perf_counter()
            bounds = None if box is None else (shrink * box.down, shrink * box.up)
            master = solve_master(
                self.program, free.arcs, prices, bounds, left, tolerance=tolerance, z=self.near
            )
            if master.status == "optimal":
                self.near = master.z
                return master
            if master.status == "time_limit":  # the solver's clock need not be ours
                self.deadline = -np.inf
                break
        return None

    def incumbent(self, feasible: Floats) -> Entries:
        """Return the entries of the candidate; without one, those of rows moved to obey the rules.

        Masses are the nearest to the choice of the rows at the last prices, by a master that opens no
        row: a missed weight costs what a row typically pays for its second cluster.
        """
        if self.candidate is not None:
            c = self.candidate
            return spread(self.costs, c.pricing, c.free, c.flow)
        program, costs, shape = self.program, self.costs, self.program.masses.shape
        pricing = self.pricing or price(costs, np.zeros(shape))
        own = costs.groups * shape[1] + pricing.best
        chosen: Floats = np.bincount(own, costs.weights, program.masses.size).astype(float)
        nothing, none = np.zeros(0, dtype=np.intp), np.zeros(0)
        closed = Arcs(nothing, nothing, none, nothing, none, chosen.reshape(shape))
        margin = np.full(shape, COLDEST * typical_margin(costs) or 1.0)
        near = solve_master(program, closed, pricing.prices, (margin, margin))
        y = feasible
        if near.status == "optimal":
            y = near.y
            if not np.isfinite(self.bound):
                self.y, self.z = near.y, near.z
        return repaired(costs, pricing, y[program.masses])

    def _candidate(
        self, pricing: Pricing, free: FreeRows, box: Box | None, master: MasterResult
    ) -> Candidate | None:
        """Turn a master whose box is not active into a candidate with a sparse flow."""
        program, arcs = self.program, free.arcs
        if master.slack.sum() > (1e-12 if program.polyhedral else 1e-8):
            return None
        flow, y = master.flow, master.y.copy()
        if not program.polyhedral:  # an interior point is not sparse: fix M, take a vertex
            fixed = y[program.masses]
            bounds = None if box is None else (box.down, box.up)
            vertex = solve_master(program, arcs, pricing.prices, bounds, masses=fixed)
            flow = vertex.flow if vertex.status == "optimal" else flow
        total = np.bincount(arcs.row, flow, arcs.weight.size)
        flow = flow * (arcs.weight / total)[arcs.row]
        shape = program.masses.shape
        index = arcs.group[arcs.row] * shape[1] + arcs.cluster
        masses = arcs.fixed + np.bincount(index, flow, arcs.fixed.size).reshape(shape)
        y[program.masses] = masses
        objective = (
            pricing.value
            + float(flow @ arcs.regret)
            - float((pricing.prices * masses).sum())
            + program.form.objective(y)
        )
        return Candidate(pricing, free, flow, y, objective)


# The mass-dual algorithm: exact fair assignment at the cost of a few passes over the rows.


@dataclass(frozen=True, eq=False)
class MassResult:
    """Assignment and prices found, rows in the user's order.

    Attributes
    ----------
    rows, clusters, fractions : arrays
        Entries of the assignment; a row that is not split has one entry.
    y, z : arrays
        Masses and auxiliaries at the best bound, and the multipliers of the rules;
        the prices are ``program.prices(y, z)``.
    status : str
        optimal, stalled, time_limit or interrupted.
    objective, bound : float
        What the assignment costs, and what the prices prove; infinite where nothing is known.
    history : list of Round
    links : array (m, K), optional
        Prices of pairs of rows that are kept apart.
    """

    rows: Integers
    clusters: Integers
    fractions: Floats
    y: Floats
    z: Floats
    status: str
    objective: float
    bound: float
    history: list[Round] = field(default_factory=list)
    links: Floats | None = None


def solve_mass_dual(
    program: MassProgram,
    cost: SeparableCost,
    groups: Integers,
    weights: Floats,
    *,
    feasible: Floats,
    prices: Floats | None = None,
    share: float = 1.0,
    tolerance: float = 1e-9,
    deadline: float = np.inf,
    report: Callable[[Round], None] | None = None,
    known: MassResult | None = None,
) -> MassResult:
    r"""Minimise :math:`\sum_{ik} w_i A_{ik} D_{ik} + h(M(A))` subject to the rules on M.

    Parameters
    ----------
    program : MassProgram
        Rules and mass objective.
    cost : SeparableCost
        Costs of rows in clusters.
    groups, weights : arrays (n,)
        Group index and weight (total 1) of each row.
    feasible : array
        A feasible y: the incumbent's masses where time runs out and no nearer ones are known.
    prices : array (G, K), optional
        Prices to start from.
    share : float
        As of `PriceSearch`.
    tolerance : float
        Relative gap at which the search ends.
    deadline : float
        ``time.perf_counter()`` value after which the incumbent is returned.
    report : callable, optional
        Called after each round.
    known : MassResult, optional
        An assignment of these rows, with multipliers. What it costs and what they prove is computed
        anew; where these are that near there is nothing to search.
    """
    costs = CostRows(cost, groups, weights)
    if known is not None and known.z.size == program.form.b.size:
        ended = _weighed(program, costs, known)
        if ended.history[-1].slack <= OBEYED and ended.history[-1].gap <= tolerance:
            if report is not None:
                report(ended.history[-1])
            return ended
    search = PriceSearch(program, costs, tolerance, deadline, report, share=share)
    try:
        status = search.run(prices)
    except KeyboardInterrupt:
        status = "interrupted"
    costs, objective = search.costs, np.inf
    if search.candidate is not None:
        objective = search.candidate.objective
    rows, clusters, fractions = search.incumbent(feasible)
    return MassResult(
        costs.rows[rows],
        clusters,
        fractions,
        search.y,
        search.z,
        status,
        objective,
        search.bound,
        search.history,
    )


def _weighed(program: MassProgram, costs: CostRows, known: MassResult) -> MassResult:
    """Return a result with what its assignment costs and its multipliers prove under the rules."""
    rows, clusters, G, K = known.rows, known.clusters, costs.group_count, costs.clusters
    weights, form = np.empty(costs.size), program.form
    weights[costs.rows] = costs.weights
    held, y = weights[rows] * known.fractions, known.y.copy()
    cell = costs.labels[rows] * K + clusters
    y[program.masses] = np.bincount(cell, held, G * K).reshape(G, K)
    slack, z, size = form.slack(y), known.z, 1.0 + float(np.abs(known.z).max(initial=0.0))
    apart = [c.distance(slack[c.start : c.stop]) for c in form.cones]
    outside = [c.distance(z[c.start : c.stop], dual=True) for c in form.cones]
    missed = max([*apart, max([*outside, program.stationarity(known.y, z)]) / size])
    objective = float(held @ costs.cost.paired(rows, clusters)) + form.objective(y)
    value = price(costs, program.prices(known.y, z)).value
    bound = value + program.rule_bound(known.y, z)
    gap = max(0.0, objective - bound) / max(abs(objective), np.finfo(float).tiny)
    ended = Round(0, 0, bound, missed, gap)
    return replace(known, objective=objective, bound=bound, history=[ended])
