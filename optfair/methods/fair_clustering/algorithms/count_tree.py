"""Labels that obey the rules: whole rows are assigned, by branching on whole numbers of rows."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.linear_program import HeldProgram, row_scale, solve_linear_program
from optfair.methods.fair_clustering.algorithms.costs import price_unit
from optfair.methods.fair_clustering.algorithms.integer_masses import (
    FRACTION,
    SOUGHT,
    CountedRows,
    CountRules,
    WholeCounts,
)
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import PriceSearch
from optfair.methods.fair_clustering.algorithms.pricing import (
    box_for,
    label_masses,
    price,
    select_arcs,
    spread,
)
from optfair.proofs.cones import Cone
from optfair.proofs.rounding import loss
from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

# Rows next to each boundary that are told apart, and boundaries that share so many of them.
RANKS, SHARED, LEAST = 8.0, 2_000.0, 1.0
# Arcs that a tree is tried on at most, and price of a row that leaves its box on the open side.
MOST_ARCS, FAR = 80_000, 1e6
# Share of the largest price below which a regret is rounding.
TIED = 1e-12
# Rows that are moved at most where labels miss their counts.
MOVED = 200
# Nodes after which labels are sought otherwise.
UNLABELLED = 400
# Nodes from one dive to the next.
EVERY = 40
# Arcs up to which a general solver looks for labels too, and the part of the time that it has, after a
# first search of as much.
FEW, PART = 2_000, 0.1
# Share of the gap that is left to rounding, least gap that is asked for.
SPARE, LEAST_GAP = 0.05, 1e-9


@dataclass(frozen=True, eq=False)
class Labelling:
    """Labels found.

    Attributes
    ----------
    labels : array (n,)
        Cluster of each row.
    objective : float
        Mean cost.
    bound : float
        No labels that obey the rules cost less: of the soft problem, or of the cases.
    prices : array (G, K)
        Prices at which each row's label is cheapest.
    cases : int
        Cases that prove the bound; 0 where it is that of the soft problem.
    """

    labels: Integers
    objective: float
    bound: float
    prices: Floats
    cases: int = 0

    @property
    def gap(self) -> float:
        """Relative difference of objective and bound."""
        return (self.objective - self.bound) / (abs(self.objective) or 1.0)


# The tree.

#: (counts (G, K), deadline) -> the cheapest labels with these counts
Labeller = Callable[[Floats, float], Labelling | None]


@dataclass(order=True)
class Node:
    """Counts within limits, and the prices that bound what they cost."""

    value: float
    number: int
    low: Floats = field(compare=False)
    high: Floats = field(compare=False)
    counts: Floats = field(compare=False)
    y: Floats = field(compare=False)
    z: Floats = field(compare=False)
    prices: Floats = field(compare=False)


class CountTree:
    r"""Branch and bound over counts :math:`N_{gk}`, with the rows next to each boundary in one model.

    .. math::
        \min_N\; \sum_g w_g T_g(N_g) \quad\text{s.t.}\quad \text{rules}(N),\;
        \underline N \le N \le \overline N

    Each case is bounded by a linear program that is exact for prices in a box and charges what
    leaves it, so that it bounds from below whatever the counts; then by its prices, in a pass over
    all rows with every rounding charged. Counts of small groups are branched on first; now and
    then a dive follows the cheaper side down to whole counts, which are labelled.

    Parameters
    ----------
    program : MassProgram
        Polyhedral rules.
    rows : CountedRows
        The rows.
    prices : array (G, K)
        Prices of the soft optimum.
    labelled : callable
        Labels rows by counts.
    """

    def __init__(
        self, program: MassProgram, rows: CountedRows, prices: Floats, labelled: Labeller
    ) -> None:
        self.program, self.rows, self.costs = program, rows, rows.costs
        self.unit, self.counts = rows.unit, rows.total
        self.labelled, self.mean = labelled, float(rows.unit.mean())
        self.rules = CountRules(program, rows.unit, rows.total)
        base = price(rows.costs, prices)
        self.base = replace(base, value=base.value + rows.value)
        self.cuts: list[Floats] = []
        self.passes, self.nodes, self._spent = 0, 0, 0.0
        self._model = self._written()

    @property
    def fits(self) -> bool:
        """Whether it can be tried."""
        return self._model is not None and self.rules.root is not None

    def _written(self) -> HeldProgram | None:
        """Return the linear program in y (counts, auxiliaries), arcs and what leaves the box."""
        program, form = self.program, self.program.form
        G, K = program.masses.shape
        ranks = np.full((G, K), max(min(RANKS, SHARED / (G * K)), LEAST))
        box = box_for(self.costs, self.base, ranks)
        arcs = select_arcs(self.costs, self.base, box, program.shares).arcs
        na = arcs.row.size
        if na > MOST_ARCS:
            return None
        largest = np.abs(self.base.prices).max()
        apart = arcs.regret[arcs.regret > TIED * largest]  # all arcs may tie: then prices say
        typical = price_unit(apart if apart.size else self.base.prices, 0.25)
        typical = np.exp2(np.round(np.log2(typical)))
        self.mean *= typical  # costs near 1, whatever the units of the rows
        unit = np.ones(form.q.size)
        unit[program.masses] = self.unit[:, None]
        A = sp.csc_array(form.A @ sp.diags_array(unit))
        self.scale = row_scale(A)
        simplex = program.simplex_rows
        at = program.masses.ravel()
        own = sp.csc_array((np.ones(G * K), (np.arange(G * K), at)), shape=(G * K, form.q.size))
        index = arcs.group[arcs.row] * K + arcs.cluster
        gathered = sp.csc_array((-np.ones(na), (index, np.arange(na))), shape=(G * K, na))
        size = np.round(arcs.weight / self.unit[arcs.group])  # rows in each class
        classes = sp.csc_array((np.ones(na), (arcs.row, np.arange(na))), shape=(size.size, na))
        beyond = sp.eye_array(G * K)
        rows = sp.block_array(
            [
                [sp.vstack([sp.diags_array(self.scale) @ A, simplex]), None, None, None],
                [own, gathered, -beyond, beyond],
                [None, classes, None, None],
            ],
            format="csc",
        )
        high = form.b * self.scale
        low = np.where(self.rules.equal, high, -np.inf)
        fixed = np.round(arcs.fixed / self.unit[:, None]).ravel()
        low, high = (np.concatenate([v, self.counts, fixed, size]) for v in (low, high))
        weight = np.repeat(self.unit, K) / self.mean
        slopes = [
            np.minimum(s.ravel(), FAR * (typical + largest)) * weight for s in (box.down, box.up)
        ]
        # what rows cost, and what the rules do
        self._rows_cost = np.concatenate(
            [
                np.zeros(form.q.size),
                arcs.regret * self.unit[arcs.group[arcs.row]] / self.mean,
                *slopes,
            ]
        )
        self._rows_cost[at] = -(self.base.prices * self.unit[:, None]).ravel() / self.mean
        cost = self._rows_cost.copy()
        cost[: form.q.size] += form.q * unit / self.mean
        self._cost = cost
        lower = np.zeros(cost.size)
        lower[: form.q.size] = -np.inf
        lower[at] = 0.0
        most = np.full(cost.size, np.inf)
        return HeldProgram(cost, rows, low, high, lower, most, tolerance=1e-9)

    def _solved(
        self, low: Floats, high: Floats, deadline: float, above: Node | None = None
    ) -> Node | None:
        """Return the case within limits; None where its linear program is not solved."""
        G, K = self.program.masses.shape
        at, model = self.program.masses.ravel(), self._model
        if model is None:
            return None
        answer = model.solve(at, low[at], high[at], deadline - time.perf_counter())
        if answer.status == "infeasible" and above is not None:
            # what excludes it are its own halves, bounded by the case they are of until then
            self.nodes += 1
            nothing = np.full((G, K), np.nan)
            return replace(above, number=self.nodes, low=low, high=high, counts=nothing)
        if answer.status != "optimal":
            return None
        m = self.program.form.b.size
        d = answer.prices
        ends = m + G, m + G + G * K
        share = d[d.size - len(self.cuts) :] if self.cuts else np.zeros(0)
        by_row = (d[ends[0] : ends[1]].reshape(G, K) + d[m : m + G, None]) * (
            self.mean / self.unit[:, None]
        )
        prices = (1.0 - share.sum()) * self.base.prices + by_row
        for part, cut in zip(share, self.cuts, strict=True):
            prices = prices + part * cut
        y = answer.x[: self.program.form.q.size].copy()
        counts = y[self.program.masses]
        y[self.program.masses] = counts * self.unit[:, None]
        self.nodes += 1
        value = (
            float(self._cost @ answer.x) * self.mean + self.base.value + self.program.form.offset
        )
        z = -d[:m] * self.scale * self.mean
        return Node(value, self.nodes, low, high, counts, y, z, prices)

    def proved(self, node: Node) -> float:
        """Return what the prices of a case prove, rounded down."""
        begin = time.perf_counter()
        paid, size = self.rows.proved(node.prices)
        at = self.program.masses
        low, high = node.low.copy(), node.high.copy()
        low[at] *= self.rows.rows.least[:, None] * (1.0 - 1e-12)
        high[at] *= self.rows.rows.most[:, None] * (1.0 + 1e-12)
        rules = self.program.proved_bound(node.y, node.z, node.prices, (low, high))
        self.passes += 1
        self._spent += time.perf_counter() - begin
        if rules.unpaid is not None:
            return -np.inf
        off = float(np.abs(node.z) @ self.rules.slack)
        total = abs(paid) + abs(rules.value) + off
        terms = self.costs.size + self.rows.rows.rows
        return paid + rules.value - off - loss(terms, size + total)

    def run(self, best: Labelling | None, gap: float, deadline: float) -> Labelling | None:
        """Return the best labels found, with a proved bound of all labels that obey the rules.

        Parameters
        ----------
        best : Labelling or None
            Labels at hand.
        gap : float
            Relative gap at which the search ends.
        deadline : float
            ``time.perf_counter()`` value at which it ends.

        Returns
        -------
        Labelling or None
            None where there were none and so many cases have shown none.
        """
        root = None if self.rules.root is None else self._solved(*self.rules.root, deadline)
        if root is None:
            return best
        held, settled, dived = [root], np.inf, -EVERY
        while held:
            target = np.inf if best is None else self._target(best, gap)
            if held[0].value >= target or self._late(len(held), deadline):
                break
            if best is None and self.nodes > UNLABELLED:
                return None
            diving = best is None or self.nodes - dived >= EVERY
            dived = self.nodes if diving else dived
            node: Node | None = heapq.heappop(held)
            spent = False
            while node is not None:
                j = self._fractional(node)
                if j is None:
                    best, again = self._whole(node, best, deadline)
                    if again is not None and not spent:
                        heapq.heappush(held, again)
                    elif not spent:
                        settled = min(settled, self.proved(node))
                    break
                children = self._children(node, j, deadline)
                if children is None:  # no time: the case stays as it is
                    if not spent:
                        heapq.heappush(held, node)
                    deadline = -np.inf
                    break
                least = np.inf if best is None else best.objective
                below = [c for c in children if diving and c.value < least]
                better = min(below, default=None)
                for child in children if not spent else []:
                    if not child.value < target:
                        settled = min(settled, self.proved(child))
                    elif child is not better:
                        heapq.heappush(held, child)
                # what is good enough is settled: a dive below it looks for labels only
                node, spent = better, spent or (better is not None and not better.value < target)
        if best is None:
            return None
        for case in held:
            settled = min(settled, self.proved(case))
        bound = min(settled, best.objective)
        return replace(best, bound=bound, cases=self.passes) if bound > best.bound else best

    def _target(self, best: Labelling, gap: float) -> float:
        """Return what a case must cost to be left aside."""
        return best.objective - max((1.0 - SPARE) * gap, LEAST_GAP) * abs(best.objective)

    def _late(self, cases: int, deadline: float) -> bool:
        """Whether there is only time left to prove the cases that are open."""
        each = self._spent / max(self.passes, 1)
        return time.perf_counter() + 1.5 * each * cases > deadline

    def _fractional(self, node: Node) -> int | None:
        """Return the column of a count to branch on, None where all are whole.

        Counts of small groups come first: a row of them moves more.
        """
        at = self.program.masses
        off = np.abs(node.counts - np.round(node.counts))
        weight = np.where(off > FRACTION, off, 0.0) / self.counts[:, None]
        if np.isnan(node.counts).any():  # none are known: halve the widest limits
            weight = node.high[at] - node.low[at]
        if not weight.max() > 0.0:
            return None
        return int(at.ravel()[int(weight.argmax())])

    def _whole(
        self, node: Node, best: Labelling | None, deadline: float
    ) -> tuple[Labelling | None, Node | None]:
        """Label whole counts; return the best labels, and the case anew if the model was short."""
        if np.isnan(node.counts).any():
            return best, None
        fresh = self.labelled(np.round(node.counts), deadline)
        if fresh is None:
            return best, None
        again = self._cut(node, fresh, deadline)
        return (fresh if best is None or fresh.objective < best.objective else best), again

    def _children(self, node: Node, j: int, deadline: float) -> list[Node] | None:
        children = []
        value = float(node.counts[self.program.masses == j][0])
        if np.isnan(value):
            value = 0.5 * (node.low[j] + node.high[j])
        for side in (0, 1):
            low, high = node.low.copy(), node.high.copy()
            if side:
                low[j] = np.floor(value) + 1.0
            else:
                high[j] = np.floor(value)
            limits = self.rules.tightened(low, high)
            if limits is None:
                continue
            child = self._solved(*limits, deadline, node)
            if child is None:
                return None
            children.append(child)
        return children

    def _cut(self, node: Node, fresh: Labelling, deadline: float) -> Node | None:
        """Tell the model what whole counts cost, where it is short; return the case anew."""
        cost, prices = fresh.objective, fresh.prices
        if node.value >= cost - 1e-9 * abs(cost) or self._model is None:
            return None
        value, _ = self.rows.proved(prices)
        row = self._rows_cost.copy()
        at = self.program.masses.ravel()
        row[at] += (prices * self.unit[:, None]).ravel() / self.mean
        least = (value - self.base.value) / self.mean
        self._model.add_rows(row[None], np.array([least]), np.array([np.inf]))
        self.cuts.append(prices)
        again = self._solved(node.low, node.high, deadline)
        return again if again is not None and again.value > node.value + 1e-12 * abs(cost) else None


# The search that it is part of.


class IntegerSearch(WholeCounts):
    r"""Minimise over whole numbers of rows :math:`N_{gk}`, which fix masses :math:`w_g N_{gk}`.

    For fixed masses the rows' problem is a transportation problem, whose vertices assign whole
    rows. So a labelling that obeys the rules is a choice of G·K integers.

    Parameters
    ----------
    program : MassProgram
        Polyhedral rules.
    rows : CountedRows
        The rows.
    prices, bound : array (G, K), float
        Prices of the soft optimum, and the bound that they prove.
    """

    def __init__(
        self, program: MassProgram, rows: CountedRows, prices: Floats, bound: float
    ) -> None:
        super().__init__(program, rows.unit, rows.total)
        self.rows, self.costs, self.prices, self.bound = rows, rows.costs, prices, bound
        self.pricing = price(rows.costs, prices)

    def first(
        self, masses: Floats, whole: NDArray[np.bool_] | None = None, time_limit: float = np.inf
    ) -> Floats | None:
        """Return counts that obey the rules near given masses, None where there are none.

        Parameters
        ----------
        masses : array (G, K)
            Of the soft optimum.
        whole : array (G,) of bool, optional
            Groups whose counts are to be whole; all by default.
        """
        G, K = self.program.masses.shape
        box = box_for(self.costs, self.pricing, np.full((G, K), 2.0))
        slope = np.stack([box.down, box.up])
        finite = slope[np.isfinite(slope)]
        typical = float(finite.mean()) if finite.size and finite.mean() > 0.0 else 1.0
        slope = np.where(np.isfinite(slope), slope / typical, 1e3) + 1e-3
        weight = self.unit[:, None] / self.unit.mean()
        cost, matrix, low, high = self._rules(2 * G * K, SOUGHT)
        # N - up + down = masses in rows
        deviation = sp.hstack(
            [self._counts(), -sp.eye_array(G * K), sp.eye_array(G * K)], format="csc"
        )
        target = (masses / self.unit[:, None]).ravel()
        cost[-2 * G * K :] = np.concatenate(
            [(slope[0] * weight).ravel(), (slope[1] * weight).ravel()]
        )
        answer = solve_linear_program(
            cost,
            sp.vstack([matrix, deviation]),
            np.concatenate([low, target]),
            np.concatenate([high, target]),
            self._lower(2 * G * K),
            np.full(cost.size, np.inf),
            tolerance=1e-9,
            time_limit=time_limit,
            integer=self._integer(cost.size, whole),
            gap=0.02 * float(np.abs(cost).max(initial=0.0)),
        )
        if not answer.x.size:
            return None
        return np.asarray(answer.x[self.program.masses])

    def labelled(self, counts: Floats, deadline: float = np.inf) -> Labelling | None:
        """Return the cheapest labels with given counts."""
        masses = np.round(counts) * self.unit[:, None]
        masses *= self.program.shares[:, None] / masses.sum(axis=1, keepdims=True)
        fixed = _fixed(self.program, masses, self.rows.value)
        search = PriceSearch(fixed, self.costs, 1e-9, deadline)
        search.run(self.prices)
        best, costs = search.candidate, self.costs
        if best is None:
            return None
        rows, clusters, fractions = spread(costs, best.pricing, best.free, best.flow)
        order = np.lexsort((fractions, rows))
        last = order[np.diff(rows[order], append=-1) != 0]
        labels = np.empty(costs.size, dtype=np.intp)
        labels[rows[last]] = clusters[last]
        moved = self._moved(self.rows.kept(labels), np.round(counts))
        if moved is None:
            return None
        prices = search.program.prices(search.y, search.z)
        return Labelling(moved, self.rows.cost(moved), self.bound, prices)

    def _moved(self, labels: Integers, counts: Floats) -> Integers | None:
        """Return labels with these counts, by few rows moved along cheapest paths; None where many are off.

        Rows that ties have split are rounded, and may miss the counts by a row.
        """
        off = counts - self._counted(labels)
        if np.abs(off).sum() > 2.0 * MOVED:
            return None
        labels, K = labels.copy(), counts.shape[1]
        for g in np.flatnonzero(off.any(axis=1)):
            parts = [(block, a, b) for h, a, b, block in self.costs.blocks() if h == g]
            D = np.hstack([block for block, _, _ in parts])
            rows = np.concatenate([np.arange(a, b) for _, a, b in parts])
            single = self.rows.alone[rows]
            while off[g].any():
                start, at = int(off[g].argmin()), labels[rows]
                move, who = np.full((K, K), np.inf), np.zeros((K, K), dtype=np.intp)
                for k in range(K):
                    own = np.flatnonzero(single & (at == k))
                    if own.size:
                        gains = D[:, own] - D[k, own]
                        who[k], move[k] = own[gains.argmin(axis=1)], gains.min(axis=1)
                path = _cheapest(move, start, off[g] > 0.0)
                if path is None:
                    return None
                for j, k in pairwise(path):
                    labels[rows[who[j, k]]] = k
                off[g, start], off[g, path[-1]] = off[g, start] + 1.0, off[g, path[-1]] - 1.0
        return labels

    def _counted(self, labels: Integers) -> Floats:
        shape = self.program.masses.shape
        return label_masses(labels, self.costs.groups, self.rows.counts, shape)

    def best(self, masses: Floats, gap: float, time_limit: float) -> Labelling | None:
        """Return labels and a bound that differ by the relative gap, or by more when time is up.

        None where no labels obey the rules. A dive into the counts finds the first labels; where
        it does not, those are taken whose counts are near the masses of the soft optimum.
        """
        end, few = time.perf_counter() + time_limit, self.costs.size * self.costs.clusters <= FEW
        tree = CountTree(self.program, self.rows, self.prices, self.labelled)
        branched = tree.fits and time_limit > 0.0
        until = time.perf_counter() + PART * time_limit if few else end
        labelling = tree.run(None, gap, until) if branched else None
        if labelling is not None and (not few or labelling.gap <= gap):
            return labelling
        counts = self.cheapest(self.rows, PART * time_limit) if few and branched else None
        if counts is None and labelling is None:
            counts = self.first(masses, time_limit=max(time_limit, 1.0))
        fresh = None if counts is None else self.labelled(counts)
        if labelling is None:
            labelling = fresh
        elif fresh is not None and fresh.objective < labelling.objective:
            labelling = replace(fresh, bound=labelling.bound, cases=labelling.cases)
        if not branched:
            return labelling
        again = CountTree(self.program, self.rows, self.prices, self.labelled)
        return again.run(labelling, gap, end)


def _cheapest(move: Floats, start: int, ends: NDArray[np.bool_]) -> list[int] | None:
    """Return the clusters of a cheapest path to one of some ends, None without any."""
    K = len(move)
    far, before = np.full(K, np.inf), np.full(K, -1)
    far[start] = 0.0
    for _ in range(K):
        via = far[:, None] + move
        best = via.argmin(axis=0)
        better = via[best, np.arange(K)] < far - 1e-12 * np.abs(
            far, where=np.isfinite(far), out=np.zeros(K)
        )
        better[start] = False
        if not better.any():
            break
        far[better], before[better] = via[best, np.arange(K)][better], best[better]
    path = [int(np.where(ends, far, np.inf).argmin())]
    if not ends.any() or not np.isfinite(far[path[0]]):
        return None
    while path[-1] != start:
        if before[path[-1]] < 0 or len(path) > K:
            return None
        path.append(int(before[path[-1]]))
    return path[::-1]


def _fixed(program: MassProgram, masses: Floats, paid: float) -> MassProgram:
    """Return the program whose only rule is that the masses are these; something is paid before."""
    G, K = masses.shape
    empty = sp.csc_array((G * K, G * K))
    A = sp.csc_array(sp.eye_array(G * K))
    columns = {"masses": slice(0, G * K)}
    cones = (Cone("zero", 0, G * K),)
    form = ConicForm(empty, np.zeros(G * K), paid, A, masses.ravel(), cones, columns)
    return MassProgram(form, np.arange(G * K).reshape(G, K), program.shares)
