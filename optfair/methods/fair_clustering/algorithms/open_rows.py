"""Labels under rules that whole numbers of rows do not settle: the rows that fractions or prices leave open."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.linear_program import LinearProgramResult, solve_linear_program
from optfair.methods.fair_clustering.algorithms.charged_rows import Demands
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.algorithms.integer_masses import SOUGHT
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.pricing import label_masses
from optfair.numbers import Floats, Indices

Bools = NDArray[np.bool_]

# Fraction from which on a row is in one cluster.
WHOLE = 1.0 - 1e-9
# Rows next to each boundary that are open, in how many together; arcs up to which they are looked for.
RANKS, TOGETHER, MOST_ARCS = 8, 400, 16_000_000
# Part of the time in which all rules are to hold; after it, as little as may be is missed.
STRICT = 0.6
# Price of missing a rule by its own size, in what all open rows pay.
MISSED = 1e3
# Rounds in which rows that are kept apart leave each other's clusters.
ROUNDS = 60


@dataclass(frozen=True, eq=False)
class Lines:
    """Rows of a linear program with their limits, and the size that a miss of each has; 0 of none."""

    matrix: Any
    low: Floats
    high: Floats
    side: Floats


@dataclass(frozen=True, eq=False)
class PricedRows:
    """Rows in fractions and at prices, with what labels of theirs are to keep.

    Attributes
    ----------
    assignment : array (n, K)
        Fractions.
    cost : SeparableCost
    groups, weights : arrays (n,)
    prices : array (G, K)
        Of a group in a cluster, in units of the costs.
    demands : Demands
        What is asked of costs.
    units : array (n,) of int
        Unit of each row; those of one unit are together.
    apart : array (m, 2) of int
        Rows that share no cluster.
    """

    assignment: Floats
    cost: SeparableCost
    groups: Indices
    weights: Floats
    prices: Floats
    demands: Demands
    units: Indices
    apart: Indices

    def opened(self, labels: Indices, wider: int = 1) -> OpenRows:
        """Return the rows that are split, and for each group and cluster those that prices nearly put there.

        Parameters
        ----------
        labels : array (n,) of int
            Largest fractions, alike in each unit.
        wider : int
            So many times as many rows next to each boundary.
        """
        n, K = self.assignment.shape
        units, apart = self.units, self.apart
        wanted = self._wanted(labels, wider)
        chosen = np.flatnonzero(wanted.sum(axis=1) > 1)
        number = np.full(len(wanted), -1)
        number[chosen] = np.arange(chosen.size)
        at = np.flatnonzero(number[units] >= 0)
        ends = number[units[apart]]
        taken = np.zeros((chosen.size, K))
        for here, there in ((0, 1), (1, 0)):
            one = (ends[:, here] >= 0) & (ends[:, there] < 0)
            np.add.at(taken, (ends[one, here], labels[apart[one, there]]), 1.0)
        G = len(self.prices)
        paid = np.zeros(G)
        if self.demands.by_group:
            rest = np.delete(np.arange(n), at)
            of_rest = self.weights[rest] * self.cost.paired(rest, labels[rest])
            paid += np.bincount(self.groups[rest], of_rest, G)
            paid /= np.bincount(self.groups, self.weights, G)
        return OpenRows(
            at,
            self.cost.columns(at),
            self.groups[at],
            self.weights[at],
            number[units[at]],
            wanted[chosen],
            ends[(ends >= 0).all(axis=1)],
            taken,
            self.demands,
            paid,
        )

    def _wanted(self, labels: Indices, wider: int) -> Bools:
        """Return which clusters each unit may have, at most its own where it stays."""
        (n, K), G, units = self.assignment.shape, len(self.prices), self.units
        split = np.unique(units[self.assignment.max(axis=1) < WHOLE])
        wanted = np.zeros((int(units.max()) + 1, K), dtype=bool)
        wanted[split] = True
        if n * K <= MOST_ARCS:
            regret = self.cost.columns(slice(None)).T + self.prices[self.groups]
            regret -= regret[np.arange(n), labels][:, None]
            ranks = max(wider * min(RANKS, TOGETHER // (G * K)), 1)
            for g in range(G):
                own = np.flatnonzero(self.groups == g)
                for k in range(K):
                    far = np.where(labels[own] == k, np.inf, regret[own, k])
                    first = own[np.argsort(far, kind="stable")[:ranks]]
                    wanted[units[first], k] = True
        some: Bools = np.logical_or.reduce(wanted, axis=1)
        wanted[units, labels] |= some[units]
        if self.demands.bars:
            row, where = np.nonzero(replace(self.cost, charge=self.demands.charge).barred().T)
            wanted[units[row], where] = False
        return wanted


@dataclass(frozen=True, eq=False)
class UnitArcs:
    """Clusters that units may choose, numbered, and what their rows pay there.

    Attributes
    ----------
    unit, cluster : arrays (a,) of int
        Of each arc.
    number : array (units, K) of int
        Number of each arc, -1 where there is none.
    row, arc : arrays (e,) of int
        Entries: a row on an arc of its unit.
    paid : array (e,)
        Weighted cost of each entry.
    """

    unit: Indices
    cluster: Indices
    number: Indices
    row: Indices
    arc: Indices
    paid: Floats

    @classmethod
    def of(cls, rows: OpenRows, allowed: Bools) -> UnitArcs:
        """Return the arcs of units that are allowed (units, K)."""
        unit, cluster = np.nonzero(allowed)
        number = np.full(allowed.shape, -1)
        number[unit, cluster] = np.arange(unit.size)
        row, where = np.nonzero(allowed[rows.unit])
        paid = rows.weights[row] * rows.costs[where, row]
        return cls(unit, cluster, number, row, number[rows.unit[row], where], paid)

    @property
    def size(self) -> int:
        """How many there are."""
        return int(self.unit.size)

    @property
    def typical(self) -> float:
        """What a unit pays in all its clusters."""
        return float(np.abs(self.paid).sum()) / len(self.number) or 1.0

    @property
    def reach_all(self) -> bool:
        """Whether each unit has one."""
        return np.unique(self.unit).size == len(self.number)

    def chosen(self, x: Floats) -> Indices:
        """Return the cluster of each unit whose arc has most."""
        part = np.zeros(self.number.shape)
        part[self.unit, self.cluster] = x[: self.size]
        chosen: Indices = part.argmax(axis=1)
        return chosen


@dataclass(frozen=True, eq=False)
class OpenRows:
    r"""Rows whose clusters are chosen anew, all others keep theirs.

    .. math::
        \min_{x \in \{0, 1\}, y}\; \sum_{u, k} c_{uk} x_{uk} + q^T y
        \quad\text{s.t.}\quad \sum_k x_{uk} = 1,\; M(x) = y_M,\; \text{rules}(y),\;
        b_g(x) \le u_g,\; x_{uk} + x_{vk} \le 1

    over units u, which are rows that must be together; :math:`b_g` is the mean cost of a group.
    With ``worst`` the largest :math:`b_g` is least. Class: MILP in few rows.

    Attributes
    ----------
    at : array (s,) of int
        Their numbers.
    costs : array (K, s)
    groups, weights : arrays (s,)
    unit : array (s,) of int
        Unit of each, numbered from 0 on.
    free : array (units, K) of bool
        Clusters that a unit may have.
    apart : array (m, 2) of int
        Units that share no cluster.
    taken : array (units, K)
        How many of the other rows of a cluster a unit is kept apart from.
    demands : Demands
        What is asked of costs of groups.
    paid : array (G,)
        What all other rows pay of their means; nothing where no group has a price.
    """

    at: Indices
    costs: Floats
    groups: Indices
    weights: Floats
    unit: Indices
    free: Bools
    apart: Indices
    taken: Floats
    demands: Demands
    paid: Floats

    def chosen(
        self, program: MassProgram, labels: Indices, masses: Floats, gap: float, deadline: float
    ) -> Indices:
        """Return labels with those of these rows chosen by the program above.

        Where it has no solution, or shows none in time, rules are missed by as little as it finds;
        without time labels stay.

        Parameters
        ----------
        program : MassProgram
            Polyhedral rules.
        labels : array (n,) of int
            To begin with; of all rows.
        masses : array (G, K)
            Of these labels.
        gap : float
            Difference of objective and bound at which the search ends, in units of costs.
        deadline : float
            ``time.perf_counter()`` value at which it ends.
        """
        begin = time.perf_counter()
        if not self.at.size or begin >= deadline:
            return labels
        # weights that differ do not add up to what equations ask
        odd = bool(program.form.equal.any()) and np.unique(self.weights).size > len(masses)
        until = begin if odd else begin + STRICT * (deadline - begin)
        rest = masses - label_masses(labels[self.at], self.groups, self.weights, masses.shape)
        first = self._first(labels)
        for missing, end in ((False, until), (True, deadline)):
            arcs = UnitArcs.of(self, self.free if missing else self.free & (self.taken == 0.0))
            if time.perf_counter() >= end or not arcs.reach_all:
                continue
            answer = self._solved(program, rest, arcs, first, gap, missing, end)
            if answer.x.size:
                first = arcs.chosen(answer.x)
                break
        labels = labels.copy()
        labels[self.at] = first[self.unit]
        return labels

    def _first(self, labels: Indices) -> Indices:
        """Return a cluster of each unit; rows that are kept apart have left each other's, if they can."""
        units, K = self.free.shape
        own = np.zeros(units, dtype=np.intp)
        own[self.unit] = labels[self.at]
        if not len(self.apart) and not self.taken.any():
            return own
        ends = np.concatenate([self.apart, self.apart[:, ::-1]]).T
        mates = sp.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(units, units))
        paid = np.zeros((units, K))
        np.add.at(paid, self.unit, (self.weights * self.costs).T)
        far = np.where(self.free, paid / (np.abs(paid).max() or 1.0), np.inf)
        rng, every = np.random.default_rng(0), np.arange(units)
        for _ in range(ROUNDS):
            clashes = self.taken + mates @ np.eye(K)[own]
            stuck = clashes[every, own] > 0.0
            if not stuck.any():
                break
            # no two neighbours move at once, so that what clashes never grows
            rank = np.where(stuck, rng.random(units), -1.0)
            ahead = np.full(units, -1.0)
            np.maximum.at(ahead, ends[0], rank[ends[1]])
            moves = stuck & (rank > ahead)
            own = np.where(moves, (2.0 * clashes + far).argmin(axis=1), own)
        return own

    def _lines(self, program: MassProgram, rest: Floats, arcs: UnitArcs) -> list[Lines]:
        """Return the lines of the program in (arcs, y, largest cost).

        Parameters
        ----------
        program : MassProgram
        rest : array (G, K)
            Masses of all other rows.
        arcs : UnitArcs
        """
        form, (G, K), units = program.form, program.masses.shape, len(self.free)
        ny, at, own, every = form.q.size, program.masses.ravel(), arcs.arc, np.arange(arcs.size)
        g, w = self.groups[arcs.row], self.weights[arcs.row]

        def lines(of_arcs: Any, of_y: Any, of_top: Any, low: Any, high: Any, side: Any) -> Lines:
            width, height = (arcs.size, ny, 1), high.size
            parts = [
                sp.csr_array((height, n)) if part is None else sp.csr_array(part)
                for part, n in zip((of_arcs, of_y, of_top), width, strict=True)
            ]
            whole = np.broadcast_to(side, height)
            return Lines(sp.hstack(parts), np.broadcast_to(low, height), high, whole)

        once = sp.csr_array((np.ones(arcs.size), (arcs.unit, every)), shape=(units, arcs.size))
        gathered = sp.csr_array((w, (g * K + arcs.cluster[own], own)), shape=(G * K, arcs.size))
        to = sp.csr_array((-np.ones(at.size), (np.arange(at.size), at)), shape=(at.size, ny))
        slack = SOUGHT * (1.0 + np.abs(form.b))
        least = np.where(form.equal, form.b - slack, -np.inf)
        made = [
            lines(once, None, None, 1.0, np.ones(units), 0.0),
            lines(gathered, to, None, -rest.ravel(), -rest.ravel(), 0.0),
            lines(None, form.A, None, least, form.b + slack, 1.0 + np.abs(form.b)),
        ]
        mean = sp.csr_array((arcs.paid / program.shares[g], (g, own)), shape=(G, arcs.size))
        if (upper := self.demands.upper) is not None:
            some = np.flatnonzero(np.isfinite(upper))
            left = (upper - self.paid)[some]
            made.append(lines(mean[some], None, None, -np.inf, left, arcs.typical + upper[some]))
        if self.demands.worst:
            made.append(lines(mean, None, -np.ones((G, 1)), -np.inf, -self.paid, 0.0))
        ends = arcs.number[self.apart]
        pair, common = np.nonzero((ends >= 0).all(axis=1))
        entries = (
            np.ones(2 * pair.size),
            (
                np.repeat(np.arange(pair.size), 2),
                ends[pair, :, common].ravel(),
            ),
        )
        both = sp.csr_array(entries, shape=(pair.size, arcs.size))
        made.append(lines(both, None, None, -np.inf, np.ones(pair.size), 2.0))
        return made

    def _solved(
        self,
        program: MassProgram,
        rest: Floats,
        arcs: UnitArcs,
        first: Indices,
        gap: float,
        missing: bool,
        end: float,
    ) -> LinearProgramResult:
        """Return the solution of the program in (arcs, y, largest cost, what is missed)."""
        form, per_unit, u, k = program.form, arcs.typical, arcs.unit, arcs.cluster
        a, ny = arcs.size, form.q.size
        cost = np.zeros(a + ny + 1)
        cost[:a] = 0.0 if self.demands.worst else np.bincount(arcs.arc, arcs.paid, a)
        cost[a:-1], cost[-1] = form.q, float(self.demands.worst)
        lines = self._lines(program, rest, arcs)
        matrix = sp.csr_array(sp.vstack([r.matrix for r in lines]))
        low, high, side = (
            np.concatenate([getattr(r, name) for r in lines]) for name in ("low", "high", "side")
        )
        size = np.ones(cost.size)
        size[a + program.masses.ravel()] = typical = float(self.weights.mean())
        size[-1] = per_unit
        lower = np.append(np.zeros(a), np.full(ny + 1, -np.inf))
        if missing:
            price = MISSED * per_unit * len(self.free)
            cost[:a] += price * self.taken[u, k]
            over, under = (
                np.flatnonzero(side > 0.0),
                np.flatnonzero((side > 0.0) & np.isfinite(low)),
            )
            both, misses = np.concatenate([over, under]), over.size + under.size
            signs = np.repeat([-1.0, 1.0], [over.size, under.size])
            more = sp.csr_array((signs, (both, np.arange(misses))), shape=(high.size, misses))
            matrix = sp.csr_array(sp.hstack([matrix, more]))
            cost = np.concatenate([cost, price / side[both]])
            lower = np.concatenate([lower, np.zeros(misses)])
            size = np.concatenate([size, typical * side[both]])
        most = np.full(cost.size, np.inf)
        most[:a] = 1.0
        start = np.full(cost.size, np.nan)
        start[:a] = first[u] == k
        return solve_linear_program(
            cost / per_unit,
            matrix,
            low,
            high,
            lower,
            most,
            tolerance=1e-9,
            time_limit=max(end - time.perf_counter(), 1e-3),
            integer=np.arange(cost.size) < a,
            gap=gap / per_unit,
            start=start,
            units=size,
        )
