"""Branching on sites: every case is bounded by prices, from a linear program that grows by the rows it needs; and sites that cover all rows."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.linear_program import HeldProgram, row_scale
from optfair.methods.fair_clustering.location_bound import Lagrangian, SitePrices, SiteWorths
from optfair.numbers import Floats, Indices

# Fractions of sites that are whole, and by how much a row may exceed its site.
WHOLE, EXCESS = 1e-6, 1e-9
# Rounds in which rows that exceed are added.
ROUNDS = 60
# Price of breaking the rules, in typical costs; by how much it grows, and how often.
PENALTY, DEARER, TIMES = 1e3, 1e3, 3
# Share of the gap that cases may use.
SHARE = 0.9


@dataclass(frozen=True, eq=False)
class SiteSplit:
    """A site is open, or it is closed."""

    site: int
    opened: SiteNode
    closed: SiteNode


SiteNode = SiteSplit | SitePrices


def site_cases(
    node: SiteNode, opened: tuple[int, ...] = (), closed: tuple[int, ...] = ()
) -> Iterator[tuple[SitePrices, tuple[int, ...], tuple[int, ...]]]:
    """Yield the prices of every case, with the sites that are open and closed there."""
    if isinstance(node, SitePrices):
        yield node, opened, closed
        return
    yield from site_cases(node.opened, (*opened, node.site), closed)
    yield from site_cases(node.closed, opened, (*closed, node.site))


def bound_of_cases(lagrangian: Lagrangian, tree: SiteNode) -> float:
    """Return what a tree proves: the least bound of its cases."""
    known: dict[int, SiteWorths | None] = {}
    least = np.inf
    for prices, opened, closed in site_cases(tree):
        decided = (*opened, *closed)
        if len({*decided}) < len(decided) or not {*decided} <= {*range(lagrangian.m)}:
            return -np.inf  # every site is open or closed, once
        if id(prices) not in known:
            known[id(prices)] = lagrangian.worths(prices)
        worths = known[id(prices)]
        if worths is None:
            return -np.inf
        least = min(least, worths.least(_indices(opened), _indices(closed)))
    return float(least)


def _indices(sites: tuple[int, ...]) -> Indices:
    return np.array(sites, dtype=np.intp)


class Known(NamedTuple):
    """Prices and what they prove."""

    prices: SitePrices
    worths: SiteWorths


@dataclass(eq=False)
class _Node:
    """A case of the search, with the best prices that are known for it."""

    opened: tuple[int, ...]
    closed: tuple[int, ...]
    known: Known
    site: int = -1
    children: tuple[_Node, ...] = field(default=())

    @property
    def bound(self) -> float:
        """What its prices prove."""
        return self.known.worths.least(_indices(self.opened), _indices(self.closed))

    def split(self, site: int) -> tuple[_Node, _Node]:
        """Return the cases in which a site is open, and closed."""
        self.site = site
        self.children = (
            _Node((*self.opened, site), self.closed, self.known),
            _Node(self.opened, (*self.closed, site), self.known),
        )
        return self.children[0], self.children[1]

    def frozen(self) -> SiteNode:
        """Return the tree below."""
        if not self.children:
            return self.known.prices
        opened, closed = (child.frozen() for child in self.children)
        return SiteSplit(self.site, opened, closed)


class SiteTree:
    """Branch and bound on which sites are open, best case first.

    Parameters
    ----------
    lagrangian : Lagrangian
        Costs and linear rules.
    prices : SitePrices
        Those to start from.
    objective : callable
        () -> the cost of the best assignment that is known.
    attempt : callable
        Called with sites whose assignment may be better.
    gap : float
        Relative gap.
    deadline : float
        ``time.perf_counter()`` value.
    """

    def __init__(
        self,
        lagrangian: Lagrangian,
        prices: SitePrices,
        objective: Callable[[], float],
        attempt: Callable[[Indices], Any],
        gap: float,
        deadline: float,
    ) -> None:
        self.lagrangian, self.objective, self.attempt = lagrangian, objective, attempt
        self.gap, self.deadline = gap, deadline
        worths = lagrangian.worths(prices)
        self.root = None if worths is None else _Node((), (), Known(prices, worths))
        self.status, self.nodes = "stalled", 0

    @property
    def target(self) -> float:
        """What a case must reach."""
        value = self.objective()
        return value - SHARE * self.gap * abs(value) if np.isfinite(value) else np.inf

    def run(self, most: int) -> SiteNode | None:
        """Close every case, if the sites that prices leave open and the rows are no more than ``most`` cells.

        None where nothing can be proved of cases.
        """
        if self.root is None:
            return None
        try:
            self._run(self.root, most)
        except KeyboardInterrupt:
            self.status = "interrupted"
        return self.root.frozen()

    def _run(self, root: _Node, most: int) -> None:
        start = self._fixed(root)
        if start is None:
            self.status = "optimal"
            return
        free = np.setdiff1d(np.arange(self.lagrangian.m), start.closed)
        if int((self.lagrangian.w > 0.0).sum()) * free.size > most:
            return
        program = _SiteProgram(self.lagrangian, free)
        heap: list[tuple[float, int, _Node]] = [(start.bound, 0, start)]
        while heap:
            bound, _, node = heap[0]
            if bound >= self.target:
                break
            if time.perf_counter() > self.deadline:
                self.status = "time_limit"
                return
            heapq.heappop(heap)
            for child in self._processed(node, program):
                self.nodes += 1
                heapq.heappush(heap, (child.bound, self.nodes, child))
        self.status = "optimal"

    def _processed(self, node: _Node, program: _SiteProgram) -> tuple[_Node, ...]:
        """Bound a case anew; return what is left to look at."""
        lagrangian = self.lagrangian
        solved = program.solved(node.opened, node.closed, self._far, self.deadline)
        fractions = np.zeros(lagrangian.m)
        if solved is not None:
            prices, fractions = solved
            self._better(node, prices)
            self.attempt(lagrangian.likely(fractions))
        if node.bound >= self.target:
            return ()
        inner = self._fixed(node)
        if inner is None:
            return ()
        free = np.setdiff1d(np.arange(lagrangian.m), [*inner.opened, *inner.closed])
        if not free.size or len(inner.opened) == lagrangian.most:
            self._better(inner, self.attempt(_indices(inner.opened)))
            return ()
        apart = np.abs(fractions[free] - 0.5)
        if (
            apart.min() >= 0.5 - WHOLE
        ):  # all are whole: try what they are, then part one of the open
            apart = -fractions[free]
        return inner.split(int(free[int(apart.argmin())]))

    def _far(self, value: float) -> bool:
        return value < self.target

    def _better(self, node: _Node, prices: SitePrices | None) -> None:
        """Give a case other prices, if they prove more."""
        worths = None if prices is None else self.lagrangian.worths(prices)
        if prices is None or worths is None:
            return
        if worths.least(_indices(node.opened), _indices(node.closed)) > node.bound:
            node.known = Known(prices, worths)

    def _fixed(self, node: _Node) -> _Node | None:
        """Close all sites that cost too much by the prices of a case, open those that are missed too much.

        Returns the case that is left, None where none is.
        """
        target, worths = self.target, node.known.worths
        if node.bound >= target:
            return None
        for j in range(self.lagrangian.m):
            if j in node.opened or j in node.closed:
                continue
            here, there = _indices(node.opened), _indices(node.closed)
            if worths.least(np.append(here, j), there) >= target:
                node = node.split(j)[1]
            elif worths.least(here, np.append(there, j)) >= target:
                node = node.split(j)[0]
        return node


class _SiteProgram:
    """The linear program of all cases: only limits on sites change, and rows that are exceeded are added."""

    def __init__(self, lagrangian: Lagrangian, sites: Indices) -> None:
        self.lagrangian, self.sites = lagrangian, sites
        program, form, w = lagrangian.program, lagrangian.program.form, lagrangian.w
        self.rows = np.flatnonzero(w > 0.0)
        n, m, G, size = self.rows.size, sites.size, lagrangian.shares.size, form.q.size
        groups, D = lagrangian.groups[self.rows], lagrangian.D[np.ix_(self.rows, sites)]
        self.fraction = w[self.rows] / lagrangian.shares[groups]
        kept = np.ones(size, dtype=bool)
        kept[np.delete(program.masses, sites, axis=1)] = False
        self.unit = np.ones(size)
        self.unit[program.masses] = lagrangian.shares[:, None]
        position = np.cumsum(kept) - 1
        masses = n * m + position[program.masses[:, sites]]
        columns = n * m + int(kept.sum())
        self.at = columns + np.arange(m)
        self.width = columns + m + 2
        A = sp.coo_array(form.A @ sp.diags_array(self.unit))
        inside = kept[A.col]
        rules = sp.csr_array(
            (A.data[inside], (A.row[inside], n * m + position[A.col[inside]])),
            shape=(form.b.size, self.width),
        )
        self.scale = row_scale(rules)
        room = sp.coo_array(lagrangian.room[:, sites])
        linked = sp.csr_array((room.data, (room.row, self.at[room.col])), shape=rules.shape)
        broken = sp.csr_array(
            (
                np.append(-np.ones(form.b.size), np.ones(int(form.equal.sum()))),
                (
                    np.append(np.arange(form.b.size), np.flatnonzero(form.equal)),
                    np.repeat([self.width - 2, self.width - 1], [form.b.size, form.equal.sum()]),
                ),
            ),
            shape=rules.shape,
        )
        right = lagrangian.sides * self.scale
        cell = np.arange(n * m)
        row, site = cell // m, cell % m
        sums = sp.csr_array((np.ones(n * m), (row, cell)), shape=(n, self.width))
        gathered = sp.csr_array(
            (
                np.append(-self.fraction[row], np.ones(G * m)),
                (np.append(groups[row] * m + site, np.arange(G * m)), np.append(cell, masses)),
            ),
            shape=(G * m, self.width),
        )
        inside_sites = sp.csr_array(
            (
                np.repeat([1.0, -1.0], G * m),
                (np.tile(np.arange(G * m), 2), np.append(masses, np.tile(self.at, G))),
            ),
            shape=(G * m, self.width),
        )
        count = sp.csr_array((np.ones(m), (np.zeros(m, dtype=int), self.at)), shape=(1, self.width))
        matrix = sp.csc_array(
            sp.vstack(
                [
                    sums,
                    gathered,
                    sp.diags_array(self.scale) @ (rules - linked) + broken,
                    inside_sites,
                    count,
                ]
            )
        )
        low = np.concatenate(
            [
                np.ones(n),
                np.zeros(G * m),
                np.where(form.equal, right, -np.inf),
                np.full(G * m, -np.inf),
                [1.0],
            ]
        )
        high = np.concatenate(
            [np.ones(n), np.zeros(G * m), right, np.zeros(G * m), [float(lagrangian.most)]]
        )
        self.typical = lagrangian.typical
        cost = np.zeros(self.width)
        cost[: n * m] = (w[self.rows, None] * D).ravel()
        cost[n * m : columns] = (form.q * self.unit)[kept]
        cost[self.at] = lagrangian.opening[sites]
        cost = cost / self.typical
        self.penalty = PENALTY
        cost[-2:] = self.penalty
        lower, upper = np.zeros(self.width), np.full(self.width, np.inf)
        free = np.ones(size, dtype=bool)
        free[program.masses] = False
        lower[n * m : columns] = np.where(free[kept], -np.inf, 0.0)
        upper[self.at] = 1.0
        self.held = HeldProgram(cost, matrix, low, high, lower, upper, tolerance=1e-9)
        self.shape, self.offset, self.cost = (n, m), form.offset, cost
        self.groups = groups

    def solved(
        self,
        opened: tuple[int, ...],
        closed: tuple[int, ...],
        far: Callable[[float], bool],
        deadline: float,
    ) -> tuple[SitePrices, Floats] | None:
        """Return prices of a case and the fractions to which sites are open; None where it fails.

        Rules may be broken at a price, which grows while that pays and ``far`` holds of the optimum.
        """
        n, m = self.shape
        low = np.isin(self.sites, opened).astype(float)
        high = (~np.isin(self.sites, closed)).astype(float)
        if (low > high).any():
            return None
        last = np.arange(self.width - 2, self.width)
        for turn in range(TIMES + 1):
            for _ in range(ROUNDS):
                left = deadline - time.perf_counter()
                result = self.held.solve(self.at, low, high, max(left, 1e-3))
                if result.status != "optimal":
                    return None
                A, y = result.x[: n * m].reshape(n, m), result.x[self.at]
                over = np.flatnonzero(y + EXCESS < A)
                if not over.size:
                    break
                self._add_order(over)
            value = float(result.x @ self.cost) * self.typical + self.offset
            if result.x[last].max() <= WHOLE or not far(value) or turn == TIMES:
                break
            self.penalty *= DEARER
            self.cost[last] = self.penalty
            self.held.set_costs(last, self.cost[last])
        fractions = np.zeros(self.lagrangian.m)
        fractions[self.sites] = y
        return self._prices(result.prices), fractions

    def _add_order(self, cells: Indices) -> None:
        """Let some fractions be at most what is open of their sites."""
        count = cells.size
        row = np.arange(count)
        columns = np.append(cells, self.at[cells % self.shape[1]])
        entries = np.repeat([1.0, -1.0], count), (np.append(row, row), columns)
        rows = sp.csr_array(entries, shape=(count, self.width))
        self.held.add_rows(rows, np.full(count, -np.inf), np.zeros(count))

    def _prices(self, duals: Floats) -> SitePrices:
        lagrangian, (n, m) = self.lagrangian, self.shape
        G, r = lagrangian.shares.size, self.scale.size
        duals = duals * self.typical
        u = np.zeros(lagrangian.n)
        u[self.rows] = duals[:n] / lagrangian.w[self.rows]
        lam = np.zeros((G, lagrangian.m))
        lam[:, self.sites] = duals[n : n + G * m].reshape(G, m) / lagrangian.shares[:, None]
        z = -duals[n + G * m : n + G * m + r] * self.scale
        z = np.where(lagrangian.program.form.nonnegative, np.maximum(z, 0.0), z)
        return SitePrices(u, lam, z, np.zeros(G))


# Sites that cover all rows.

# Cases of a cover looked at between two glances at the clock.
GLANCE = 64


def covering_sites(
    reach: NDArray[np.bool_], most: int, deadline: float = np.inf
) -> tuple[Indices | None, bool]:
    r"""Find at most so many sites that every row reaches one of, or exclude them all.

    .. math:: \text{find } S,\; |S| \le k,\; \text{with } S \cap R_i \ne \emptyset \;\forall i

    by cases on the row that reaches the fewest sites left: one of them is open, those before it
    are closed. A case ends where the rows that the largest of them reach together are too few.
    Nothing is rounded, so that a search that ends without sites proves that there are none.

    Parameters
    ----------
    reach : array (n, m) of bool
        Whether a row reaches a site.
    most : int
        Sites that may be open.
    deadline : float
        ``time.perf_counter()`` value at which the search gives up.

    Returns
    -------
    sites : array or None
    decided : bool
        False where time was up.

    Examples
    --------
    >>> reach = np.array([[True, False, True], [False, True, True], [True, False, False]])
    >>> covering_sites(reach, 2)[0].tolist(), covering_sites(reach, 1)
    ([0, 1], (None, True))
    """
    rows = _least(reach)
    m = reach.shape[1]
    every = np.ones(len(rows), dtype=bool), np.ones(m, dtype=bool)
    cases: list[tuple[NDArray[np.bool_], NDArray[np.bool_], tuple[int, ...]]] = [(*every, ())]
    looked = 0
    while cases:
        looked += 1
        if looked % GLANCE == 0 and time.perf_counter() > deadline:
            return None, False
        left, free, opened = cases.pop()
        here = rows[left] & free
        if not len(here):
            return np.array(sorted(opened), dtype=np.intp), True
        picks = most - len(opened)
        gains = here.sum(axis=0)
        if picks <= 0 or np.sort(gains)[-picks:].sum() < len(here):
            continue
        each = here.sum(axis=1)
        row = int(each.argmin())
        sites = np.flatnonzero(here[row])
        sites = sites[np.argsort(-gains[sites], kind="stable")]
        at = np.flatnonzero(left)
        further: list[tuple[NDArray[np.bool_], NDArray[np.bool_], tuple[int, ...]]] = []
        for j in sites.tolist():
            free = free.copy()
            rest = left.copy()
            rest[at[here[:, j]]] = False
            free[j] = False
            further.append((rest, free, (*opened, j)))
        cases += reversed(further)
    return None, True


def _least(reach: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows' sets of sites that contain no other row's set."""
    rows = np.unique(reach, axis=0)
    rows = rows[np.argsort(rows.sum(axis=1), kind="stable")].astype(np.float32)
    kept = np.ones(len(rows), dtype=bool)
    size = rows.sum(axis=1)
    for start in range(0, len(rows), 512):
        part = slice(start, start + 512)
        # a set contains an earlier one: the one's sites all are in the other
        inside = rows @ rows[part].T >= size[:, None]
        earlier = np.arange(len(rows))[:, None] < np.arange(len(rows))[None, part]
        kept[part] = ~(inside & earlier).any(axis=0)
    return np.asarray(rows[kept] > 0.5)
