"""Rows that are linked: kept apart by prices, or together as units that choose a cluster as one row does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from optfair.backends.linear_program import solve_linear_program
from optfair.errors import SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.algorithms.mass_program import Block, MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import solve_mass_dual
from optfair.methods.fair_clustering.algorithms.pricing import Round, exact_totals
from optfair.methods.fair_clustering.algorithms.restricted_master import (
    Arcs,
    MasterResult,
    RestrictedMaster,
)
from optfair.numbers import Floats, Indices
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm

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
    objective: float
    bound: float
    history: list[Round] = field(default_factory=list)


def matchings(pairs: Indices, rows: int) -> list[Indices]:
    """Return sets of pairs without a common row, most of the pairs in all."""
    left, sets = np.random.default_rng(0).permutation(len(pairs)), list[Indices]()
    while left.size and len(sets) < MATCHINGS:
        rank, first = np.arange(left.size), np.full(rows, left.size)
        for end in pairs[left].T:
            np.minimum.at(first, end, rank)
        own = (first[pairs[left]] == rank[:, None]).all(axis=1)
        sets.append(left[own])
        left = left[~own]
    return sets


def settled(costs: Floats, pairs: Indices, sets: list[Indices], links: Floats) -> Floats:
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
        pairs: Indices,
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
        groups: Indices,
        weights: Floats,
        pairs: Indices,
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
        self.best: tuple[Floats, Floats] | None = None
        self.fractions: Floats | None = None
        self.y = np.zeros(program.form.q.size)
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
            reduced = self._price(prices, y, z, deadline)
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

    def _price(self, prices: Floats, y: Floats, z: Floats, deadline: float) -> Floats:
        """Settle the links at prices of masses, take the bound, and return reduced costs (n x K)."""
        plain = self.costs + self.weights[:, None] * prices[self.groups]
        before = -np.inf
        for _ in range(SWEEPS):
            self.links = settled(plain, self.pairs, self.sets, self.links)
            reduced = plain + self.to_rows @ self.links
            value = float(reduced.min(axis=1).sum() - self.links.sum())
            if value <= before + 1e-9 * abs(value) or time.perf_counter() > deadline:
                break
            before = value
        bound = value + self.program.rule_bound(y, z)
        if bound > self.bound:
            self.bound, self.best = bound, (z, self.links.copy())
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
        model = _Master(self.program, arcs, prices, box, pairs)
        master = model.solve_linear(deadline - time.perf_counter(), 1e-10)
        return master, free, both

    def _keep(self, master: MasterResult, reduced: Floats, free: Bools) -> None:
        """Take the assignment of a master whose box is not active, if it costs less."""
        A = free.astype(float)
        several = free.sum(axis=1) > 1
        flow = np.zeros(reduced.shape)
        flow[free & several[:, None]] = master.flow
        A[several] = flow[several] / flow[several].sum(axis=1, keepdims=True)
        self._take(A, master.y.copy())

    def share(self) -> None:
        """Take the cheapest fractions that all rows of a group share."""
        program, form, K = self.program, self.program.form, self.costs.shape[1]
        kinds = np.unique(np.sort(self.groups[self.pairs], axis=1), axis=0)
        m, columns = form.b.size, program.masses[kinds.T].reshape(2, -1)
        rows = np.tile(np.arange(columns.shape[1]), 2)
        part = np.repeat(1.0 / program.shares[kinds.T], K)
        both = sp.csr_array((part, (rows, columns.ravel())), shape=(columns.shape[1], form.q.size))
        closed = replace(
            form,
            A=sp.csc_array(sp.vstack([form.A, both])),
            b=np.concatenate([form.b, np.ones(columns.shape[1])]),
            cones=(*form.cones, Cone("nonneg", m, m + columns.shape[1])),
        )
        own = sp.csr_array(
            (np.ones(self.groups.size), self.groups, np.arange(self.groups.size + 1))
        )
        mean = np.asarray(own.T @ self.costs) / program.shares[:, None]
        y = replace(program, form=closed).feasible(mean)
        if y is not None:
            A = np.maximum(y[program.masses], 0.0)[self.groups]
            self._take(A / A.sum(axis=1, keepdims=True), y)

    def _take(self, A: Floats, y: Floats) -> None:
        """Take an assignment, with auxiliaries in y, if it costs less."""
        for g, at in enumerate(self.program.masses):
            own = self.groups == g
            y[at] = self.weights[own] @ A[own]
        objective = float((self.costs * A).sum()) + self.program.form.objective(y)
        if objective < self.objective:
            self.objective, self.fractions, self.y = objective, A, y


def solve_apart(
    program: MassProgram,
    cost: SeparableCost,
    groups: Indices,
    weights: Floats,
    pairs: Indices,
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
        Curved rules; no assignment found, nor one in which all rows of a group are alike.
    """
    if not program.polyhedral:
        raise SolverFailure(
            "masters with links are linear programs, and a rule is curved",
            remedy="use linear rules, or solve a FairAssignment at given centers by a conic solver",
        )
    rest: dict[str, Any] = {"tolerance": tolerance, "deadline": deadline, "report": report}
    start = solve_mass_dual(
        program, cost, groups, weights, feasible=feasible, prices=prices, **rest
    )
    ends = np.sort(pairs, axis=1)
    _, first = np.unique(ends[:, 0] * groups.size + ends[:, 1], return_index=True)
    search = ApartSearch(program, cost, groups, weights, ends[first])
    status = search.run(start.y, start.z, *rest.values())
    if search.fractions is None:
        search.share()
    if search.fractions is None or search.best is None:
        raise SolverFailure("no assignment that keeps linked rows apart was found", status)
    z, kept_apart = search.best
    links = np.zeros((len(pairs), cost.clusters))
    links[first] = kept_apart
    worth = search.objective, search.bound
    history = [*start.history, *search.history]
    return ApartResult(search.fractions, links, search.y, z, status, *worth, history)


# Most masses of units that prices are sought of, and digits in which units are of one kind.
MASSES, DIGITS = 4_000, 12
# Relative size of a sum of entries that is rounding.
CANCELLED = 1e-13


def linked_parts(pairs: Indices, rows: int) -> Indices:
    """Return the number of the unit of each row: rows that are linked, directly or through others."""
    graph = sp.coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(rows, rows))
    return np.asarray(sp.csgraph.connected_components(graph, directed=False)[1], dtype=np.intp)


class LinkedRows:
    r"""Units of rows that have the same fractions.

    Units of one kind have the same shares :math:`c_{tg}` of the groups in their weight, so the
    masses of kinds give those of groups, :math:`M_{gk} = \sum_t c_{tg} M'_{tk}`. What weighs nothing is
    of any kind.

    Parameters
    ----------
    pairs : array (m, 2) of int
        Rows that must be together.
    groups, weights : arrays (n,)
        Group index and weight of each row.
    shape : (G, K)
        Numbers of groups and clusters.

    Raises
    ------
    SolverFailure
        Weights and groups of linked rows are of too many kinds.
    """

    def __init__(
        self, pairs: Indices, groups: Indices, weights: Floats, shape: tuple[int, int]
    ) -> None:
        n, (G, self.clusters) = groups.size, shape
        self.unit, self.weights = linked_parts(pairs, n), weights
        count = int(self.unit.max()) + 1
        self.heavy = np.asarray(np.bincount(self.unit, weights), dtype=float)
        self.merged: Any = sp.csr_array((np.ones(n), (self.unit, np.arange(n))), shape=(count, n))
        rows = np.bincount(self.unit)
        light = self.heavy[self.unit] == 0.0
        #: part that each row has in its unit, by weight, or by number where that is nothing
        self.part = np.where(light, 1.0, weights)
        self.part /= np.where(self.heavy > 0.0, self.heavy, rows)[self.unit]
        share = np.zeros((count, G))
        np.add.at(share, (self.unit, groups), weights)
        some = self.heavy > 0.0
        table = np.round(share[some] / self.heavy[some, None], DIGITS)
        kinds, kind = np.unique(table, axis=0, return_inverse=True)
        self.kind = np.zeros(count, dtype=np.intp)
        self.kind[some] = kind.ravel()
        self.kinds = np.zeros(kinds.shape)  # of all the weight of a kind, without that rounding
        np.add.at(self.kinds, self.kind, share)
        self.kinds /= np.bincount(self.kind, self.heavy)[:, None]
        if len(self.kinds) * self.clusters > MASSES:
            raise SolverFailure(
                f"units of linked rows are of {len(self.kinds)} kinds",
                "each has its own shares of the groups, and its own prices",
                "weigh linked rows alike, or solve a FairAssignment at given centers by highs",
            )

    def cost(self, cost: SeparableCost) -> SeparableCost:
        """Return the mean costs of the rows of units."""
        paid = np.asarray(self.merged @ (self.part[:, None] * cost.matrix()))
        return SeparableCost("precomputed", paid)

    def placed(self, A: Floats, cost: SeparableCost, apart: Indices) -> Floats:
        """Return fractions of units (units, K) with those that weigh nothing where they cost least.

        Parameters
        ----------
        A : array (units, K)
            Of units that have weight.
        cost : SeparableCost
            Of units.
        apart : array (m, 2) of int
            Units that share no cluster.

        Raises
        ------
        SolverFailure
            Units that others leave no room.
        """
        light = np.flatnonzero(self.heavy == 0.0)
        if not light.size:
            return A
        A, D = A.copy(), cost.points[light]
        A[light] = np.eye(self.clusters)[D.argmin(axis=1)]
        number = np.full(len(A), -1)
        number[light] = np.arange(light.size)
        apart = apart[(number[apart] >= 0).any(axis=1)]
        if not len(apart):
            return A
        # A_ik + A_jk <= 1, of which what has weight is known
        m, K, size = len(apart), self.clusters, light.size * self.clusters
        right, rows = np.ones((m, K)), sp.csr_array((m * K, size))
        for end in apart.T:
            own = np.flatnonzero(number[end] >= 0)
            at = own[:, None] * K + np.arange(K), number[end[own], None] * K + np.arange(K)
            entries = np.ones(own.size * K), (at[0].ravel(), at[1].ravel())
            rows = rows + sp.csr_array(entries, shape=(m * K, size))
            right -= np.where(number[end] >= 0, 0.0, 1.0)[:, None] * A[end]
        once = sp.kron(sp.eye_array(light.size), np.ones((1, K)))
        one = np.ones(light.size)
        answer = solve_linear_program(
            D.ravel() / (float(np.abs(D).max()) or 1.0),
            sp.csc_array(sp.vstack([once, rows])),
            np.concatenate([one, np.full(m * K, -np.inf)]),
            np.concatenate([one, np.maximum(right, 0.0).ravel()]),
            np.zeros(size),
            np.ones(size),
        )
        if answer.status != "optimal":
            raise SolverFailure(
                "rows without weight are kept apart from others that leave them no room",
                answer.status,
                "leave them out, or solve a FairAssignment at given centers by highs",
            )
        made = np.maximum(answer.x, 0.0).reshape(-1, K)
        A[light] = made / made.sum(axis=1, keepdims=True)
        return A

    def program(self, rules: MassProgram) -> tuple[MassProgram, Any]:
        """Return the rules on the masses of kinds, and the matrix from its columns to theirs."""
        form, size = rules.form, len(self.kinds) * self.clusters
        to = sp.kron(self.kinds.T, sp.eye_array(self.clusters), format="coo")
        other = np.setdiff1d(np.arange(form.q.size), rules.masses.ravel())
        entries = (
            np.concatenate([to.data, np.ones(other.size)]),
            (
                np.concatenate([rules.masses.ravel()[to.row], other]),
                np.concatenate([to.col, size + np.arange(other.size)]),
            ),
        )
        lift = sp.csc_array(entries, shape=(form.q.size, size + other.size))
        rows = form.A @ lift
        # what cancels but for rounding is no row that says masses are 0
        kept = abs(rows) > CANCELLED * (abs(form.A) @ lift)
        made = ConicForm(
            sp.csc_array(lift.T @ form.P @ lift),
            np.asarray(lift.T @ form.q),
            form.offset,
            sp.csc_array(rows.multiply(kept)),
            form.b,
            form.cones,
            {"masses": slice(0, size)},
        )
        masses = np.arange(size).reshape(len(self.kinds), self.clusters)
        shares = np.asarray(np.bincount(self.kind, self.heavy, len(self.kinds)), dtype=float)
        return MassProgram(made, masses, shares), lift

    def link_prices(self, apart: Any, needed: Floats) -> Floats:
        """Return prices of the pairs (m x K) that add up to what each row needs.

        Pairs that close a circle have price 0.

        Parameters
        ----------
        apart : sparse (m, n)
            First row of each pair less the second.
        needed : array (n, K)
            Sums to 0 over the rows of each unit.
        """
        m, n = apart.shape
        ends = np.sort(apart.indices.reshape(m, 2), axis=1).astype(np.int64)
        graph = sp.csr_array((np.ones(m), tuple(ends.T)), shape=(n, n))
        tree = sp.csgraph.minimum_spanning_tree(graph).tocoo()
        keys, edge = np.unique(ends[:, 0] * n + ends[:, 1], return_index=True)
        own = edge[np.searchsorted(keys, tree.row.astype(np.int64) * n + tree.col)]
        # one row of each unit follows from the others
        kept = np.setdiff1d(np.arange(n), np.unique(self.unit, return_index=True)[1])
        prices = np.zeros((m, needed.shape[1]))
        if kept.size:
            matrix = sp.csc_array(sp.csr_array(apart[own])[:, kept].T)
            prices[own] = splu(matrix).solve(needed[kept])
        return prices


def solve_linked(
    linked: LinkedRows,
    rules: MassProgram,
    cost: SeparableCost,
    apart: Indices,
    prices: Floats | None,
    **options: Any,
) -> ApartResult:
    """Minimise the cost of units under the rules by the mass-dual algorithm.

    See `solve_mass_dual`, and `solve_apart` for the pairs of rows that are kept ``apart``.
    """
    program, lift = linked.program(rules)
    feasible = program.feasible()
    if feasible is None:
        raise SolverFailure("no masses of linked rows obey the rules")
    paid, heavy = linked.cost(cost), linked.heavy
    options |= {"feasible": feasible, "prices": None if prices is None else linked.kinds @ prices}
    # links of what weighs nothing have no price: others come first
    ends, some = linked.unit[apart], np.flatnonzero(heavy)
    number = np.full(heavy.size, -1)
    number[some] = np.arange(some.size)
    priced = (number[ends] >= 0).all(axis=1)
    own = SeparableCost("precomputed", paid.points[some])
    stated = program, own, linked.kind[some], heavy[some]
    A, links = np.zeros(paid.points.shape), np.zeros((len(ends), linked.clusters))
    if priced.any():
        solved = solve_apart(*stated, number[ends[priced]], **options)
        A[some], links[priced] = solved.fractions, solved.links
    else:
        plain = solve_mass_dual(*stated, **options)
        A[some[plain.rows], plain.clusters] = plain.fractions
        worth = plain.objective, plain.bound
        solved = ApartResult(A, links, plain.y, plain.z, plain.status, *worth, plain.history)
    A = linked.placed(A, paid, ends)
    return replace(solved, fractions=A[linked.unit], links=links, y=np.asarray(lift @ solved.y))
