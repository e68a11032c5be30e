"""Assignments of rows of which some cannot share a cluster: links have prices, and few rows are free at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.errors import SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.algorithms.mass_program import (
    Arcs,
    Block,
    MassProgram,
    MasterResult,
    RestrictedMaster,
)
from optfair.methods.fair_clustering.algorithms.price_search import solve_mass_dual
from optfair.methods.fair_clustering.algorithms.pricing import Round, exact_totals
from optfair.proofs.cones import Cone

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Bools = NDArray[np.bool_]

# Rows that masters begin with, and have at most; arcs up to which all are in the first one.
FIRST, MOST, ALL = 1_000, 64_000, 2_000
# Masters; sweeps over the links; sets of links without a common row that sweeps go through.
ROUNDS, SWEEPS, MATCHINGS = 40, 20, 64


@dataclass(frozen=True, eq=False)
class ApartResult:
    """Fractions of rows (n x K), prices of links (m x K), and as `MassResult`."""

    fractions: Floats
    links: Floats
    y: Floats
    z: Floats
    status: str
    history: list[Round] = field(default_factory=list)


def matchings(pairs: Integers, rows: int) -> list[Integers]:
    """Return sets of pairs without a common row, most of the pairs in all."""
    left, sets = np.random.default_rng(0).permutation(len(pairs)), list[Integers]()
    while left.size and len(sets) < MATCHINGS:
        rank, first = np.arange(left.size), np.full(rows, left.size)
        for end in pairs[left].T:
            np.minimum.at(first, end, rank)
        own = (first[pairs[left]] == rank[:, None]).all(axis=1)
        sets.append(left[own])
        left = left[~own]
    return sets


def settled(costs: Floats, pairs: Integers, sets: list[Integers], links: Floats) -> Floats:
    r"""Return prices of links that raise the bound, for costs of rows (n x K) without them.

    .. math::
        \max_{v \ge 0}\; \sum_i \min_k \Big(c_{ik} + \sum_{p \ni i} v_{pk}\Big) - \sum_{pk} v_{pk}

    one link at a time, exactly: where both rows of a pair want one cluster, the price lies
    between what either pays to leave it.
    """
    links, reduced = links.copy(), costs.copy()
    for pair, price in zip(pairs.T, (links, links), strict=True):
        np.add.at(reduced, pair, price)
    for own in sets:
        ends = pairs[own]
        for end in ends.T:
            reduced[end] -= links[own]
        wanted, regret = [], []
        for end in ends.T:
            low = np.partition(reduced[end], 1, axis=1)[:, :2]
            wanted.append(reduced[end].argmin(axis=1))
            regret.append(low[:, 1] - low[:, 0])
        price = np.where(wanted[0] == wanted[1], 0.5 * (regret[0] + regret[1]), 0.0)
        links[own] = 0.0
        links[own, wanted[0]] = price
        for end in ends.T:
            reduced[end, wanted[0]] += price
    return links


class _Master(RestrictedMaster):
    """A master in which pairs of arcs, given by their numbers, carry at most one row together."""

    def __init__(
        self,
        program: MassProgram,
        arcs: Arcs,
        prices: Floats,
        box: tuple[Floats, Floats] | None,
        pairs: Integers,
    ) -> None:
        super().__init__(program, arcs, prices, box, None)
        old, m = self.rules, len(pairs)
        at = old.height + np.arange(m)
        self.rules = Block(
            np.concatenate([old.row, at, at]),
            np.concatenate([old.column, self.ny + pairs[:, 0], self.ny + pairs[:, 1]]),
            np.concatenate([old.value, np.ones(2 * m)]),
            old.height + m,
        )
        self.right = np.concatenate([self.right, np.ones(m)])
        # these rows are not of masses, whose unit is taken out of the objective
        self.scale = np.concatenate([self.scale, np.full(m, self.unit)])
        self.cones = (*self.cones, Cone("nonneg", old.height, old.height + m))


class ApartSearch:
    """Prices of masses and links, one restricted master at a time.

    Rows that no price in a box moves stay where they are; masters are linear programs in the
    others, with the links between them. Links to rows that stay keep their prices.
    """

    def __init__(
        self,
        program: MassProgram,
        cost: SeparableCost,
        groups: Integers,
        weights: Floats,
        pairs: Integers,
    ) -> None:
        self.program, self.groups, self.weights = program, groups, weights
        self.costs = weights[:, None] * cost.matrix()
        self.pairs, n = pairs, groups.size
        self.sets = matchings(pairs, n)
        ends = np.ravel(pairs.T)
        entries = np.ones(ends.size), (ends, np.tile(np.arange(len(pairs)), 2))
        self.to_rows: Any = sp.csr_array(entries, shape=(n, len(pairs)))
        neighbours = np.ones(ends.size), (ends, np.ravel(pairs.T[::-1]))
        self.neighbours: Any = sp.csr_array(neighbours, shape=(n, n))
        self.links = np.zeros((len(pairs), cost.clusters))
        self.bound, self.objective = -np.inf, np.inf
        self.best: tuple[Floats, Floats, Floats] | None = None
        self.fractions: Floats | None = None
        self.history: list[Round] = []

    def run(
        self,
        y: Floats,
        z: Floats,
        tolerance: float,
        deadline: float,
        report: Callable[[Round], None] | None,
    ) -> str:
        """Search from multipliers of the rules on; return optimal, stalled or time_limit."""
        wanted, quiet, least = float(FIRST), 0, np.inf
        for _ in range(ROUNDS):
            prices = self.program.prices(y, z)
            reduced = self._price(prices, y, z)
            gap = self.gap()
            if gap <= tolerance:
                return "optimal"
            quiet = 0 if gap <= 0.5 * least or not np.isfinite(gap) else quiet + 1
            least = min(least, gap)
            if time.perf_counter() > deadline:
                return "time_limit"
            if quiet >= 5:
                return "stalled"
            master, free, both = self._solved(reduced, prices, wanted, deadline)
            if master.status != "optimal":
                wanted *= 4.0
                if wanted > MOST:
                    return "stalled"
                continue
            m = z.size
            y, z, self.links[both] = master.y, master.z[:m], master.z[m:]
            if master.slack.sum() <= 1e-12:
                self._keep(master, reduced, free)
                wanted = max(0.5 * wanted, FIRST)
            else:
                wanted = min(4.0 * wanted, MOST)
            rows = int((free.sum(axis=1) > 1).sum())
            entry = Round(rows, int(free.sum()), self.bound, float(master.slack.sum()), self.gap())
            self.history.append(entry)
            if report is not None:
                report(entry)
        return "stalled"

    def gap(self) -> float:
        """Return the relative gap of the assignment, infinite before there is one."""
        if self.fractions is None:
            return np.inf
        return (self.objective - self.bound) / (abs(self.objective) or 1.0)

    def _price(self, prices: Floats, y: Floats, z: Floats) -> Floats:
        """Settle the links at prices of masses, take the bound, and return reduced costs (n x K)."""
        plain = self.costs + self.weights[:, None] * prices[self.groups]
        before = -np.inf
        for _ in range(SWEEPS):
            self.links = settled(plain, self.pairs, self.sets, self.links)
            reduced = plain + self.to_rows @ self.links
            value = float(reduced.min(axis=1).sum() - self.links.sum())
            if value <= before + 1e-9 * abs(value):
                break
            before = value
        bound = value + self.program.rule_bound(y, z)
        if bound > self.bound:
            self.bound, self.best = bound, (y, z, self.links.copy())
        return np.asarray(reduced)

    def _free(self, reduced: Floats, width: float) -> Bools:
        """Return the arcs of the next master (n x K): near the least, and not held by a neighbour."""
        low = reduced.min(axis=1, keepdims=True)
        arcs = reduced - low <= width * self.weights[:, None]
        for _ in range(SWEEPS):
            single = arcs.sum(axis=1, keepdims=True) == 1
            held = self.neighbours @ (arcs & single).astype(float) > 0.0
            free = arcs & ~held
            stuck = ~free.any(axis=1)
            if stuck.any():  # these rows and those that hold their arcs get all arcs
                around = self.neighbours @ (arcs & stuck[:, None]).astype(float) > 0.0
                arcs[stuck | (around & arcs & single).any(axis=1)] = True
            elif (free == arcs).all():
                break
            else:
                arcs = free
        return np.asarray(arcs)

    def _solved(
        self, reduced: Floats, prices: Floats, wanted: float, deadline: float
    ) -> tuple[MasterResult, Bools, Any]:
        """Solve a master in which about ``wanted`` rows are free; return it, its arcs and links."""
        n, K = reduced.shape
        whole = n * K <= ALL
        low = np.partition(reduced, 1, axis=1)[:, :2]
        margin = (low[:, 1] - low[:, 0]) / self.weights
        rank = min(int(wanted), n - 1)
        width = np.inf if whole else float(np.partition(margin, rank)[rank])
        free = self._free(reduced, width)
        several = free.sum(axis=1) > 1
        rows = np.flatnonzero(several)
        row, cluster = np.nonzero(free[rows])
        number = np.full((n, K), -1, dtype=np.intp)
        number[rows[row], cluster] = np.arange(row.size)
        first, second = self.pairs.T
        both = np.nonzero((number[first] >= 0) & (number[second] >= 0))
        pairs = np.stack([number[end[both[0]], both[1]] for end in (first, second)], axis=1)
        # the links of this master are not priced but rows of it
        other = self.links.copy()
        other[both] = 0.0
        plain = reduced + self.to_rows @ (other - self.links)
        weight = self.weights[rows]
        regret = plain[rows[row], cluster] / weight[row]
        regret -= np.minimum.reduceat(regret, np.flatnonzero(np.diff(row, prepend=-1)))[row]
        rest = np.flatnonzero(~several)
        key = self.groups[rest] * K + free[rest].argmax(axis=1)
        shape = prices.shape
        fixed = np.asarray(np.bincount(key, self.weights[rest], shape[0] * K), dtype=float)
        kinds = self.groups[rows]
        held, total = exact_totals(fixed.reshape(shape), weight, kinds, self.program.shares)
        arcs = Arcs(row, cluster, regret, kinds, total, held)
        side = np.full(shape, 0.5 * width)
        box = None if whole else (side, side)
        for tolerance in (1e-10, 1e-9):
            model = _Master(self.program, arcs, prices, box, pairs)
            left = deadline - time.perf_counter()
            master = model.solve_linear(left, tolerance)
            if master.status == "optimal":
                break
        return master, free, both

    def _keep(self, master: MasterResult, reduced: Floats, free: Bools) -> None:
        """Take the assignment of a master whose box is not active, if it costs less."""
        A = free.astype(float)
        several = free.sum(axis=1) > 1
        flow = np.zeros(reduced.shape)
        flow[free & several[:, None]] = master.flow
        A[several] = flow[several] / flow[several].sum(axis=1, keepdims=True)
        y = master.y.copy()
        for g, at in enumerate(self.program.masses):
            own = self.groups == g
            y[at] = self.weights[own] @ A[own]
        objective = float((self.costs * A).sum()) + self.program.form.objective(y)
        if objective < self.objective:
            self.objective, self.fractions = objective, A


def solve_apart(
    program: MassProgram,
    cost: SeparableCost,
    groups: Integers,
    weights: Floats,
    pairs: Integers,
    *,
    feasible: Floats,
    prices: Floats | None = None,
    tolerance: float = 1e-9,
    deadline: float = np.inf,
    report: Callable[[Round], None] | None = None,
) -> ApartResult:
    """Minimise as `solve_mass_dual`, with A_ik + A_jk <= 1 for all pairs (i, j) and clusters k.

    Raises
    ------
    SolverFailure
        Curved rules; no assignment before the deadline, or found at all.
    """
    if not program.polyhedral:
        raise SolverFailure("masters with links are linear programs, and a rule is curved")
    rest: dict[str, Any] = {"tolerance": tolerance, "deadline": deadline, "report": report}
    start = solve_mass_dual(
        program, cost, groups, weights, feasible=feasible, prices=prices, **rest
    )
    ends = np.sort(pairs, axis=1)
    _, first = np.unique(ends[:, 0] * groups.size + ends[:, 1], return_index=True)
    search = ApartSearch(program, cost, groups, weights, ends[first])
    status = search.run(start.y, start.z, *rest.values())
    if search.fractions is None or search.best is None:
        raise SolverFailure("no assignment that keeps linked rows apart was found", status)
    y, z, kept_apart = search.best
    links = np.zeros((len(pairs), cost.clusters))
    links[first] = kept_apart
    return ApartResult(search.fractions, links, y, z, status, [*start.history, *search.history])
