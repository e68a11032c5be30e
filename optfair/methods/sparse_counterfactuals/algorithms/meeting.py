"""Come close to 0 from both sides: exchange the choices of some rows, half of them at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from optfair.methods.sparse_counterfactuals.algorithms.table import Pool, RowTable

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["meet"]


def meet(
    table: RowTable, base: Indices, capacity: int, size: int, rng: np.random.Generator
) -> Indices:
    """Return choices (n,) whose sum is nearest to 0 among many changes of a plan.

    Some rows are split into two halves. All combinations of the choices of each half within
    its share of the budget are listed; for each combination of the first half, the one of the
    second half that brings the sum nearest to 0 is found by bisection. With m combinations a
    half, m² plans are compared in m log m steps.

    Parameters
    ----------
    table : RowTable
        Choices of all rows.
    base : int array (n,)
        The plan to start from, within the budget.
    capacity : int
        Budget in units.
    size : int
        Most combinations of a half.
    rng : numpy.random.Generator
        Breaks ties between rows.
    """
    spent = table.costs[base]
    slack = capacity - int(spent.sum())
    # rows that spend and rows that do not, two of each in turn: an end of the range has the
    # former at their best and the latter at their worst, so that each alone moves one way
    halves = _Half(slack // 2), _Half(slack - slack // 2)
    order = _in_turns(np.lexsort((rng.random(table.rows), -spent)))
    for row in order:
        pool = table.pool(int(row))
        # the emptier half first, so that both grow alike
        for half in sorted(halves, key=lambda h: h.total):
            if half.take(int(row), pool, int(spent[row]), size, rng):
                break
    free = [row for half in halves for row in half.rows]
    rest = float(table.effects[np.delete(base, free)].sum())
    (a, first), (b, second) = (half.combinations() for half in halves)
    if not a.size or not b.size:
        return base
    by_a, by_b = np.argsort(a), np.argsort(b)
    a, b = a[by_a], b[by_b]
    after = np.searchsorted(b, -rest - a)
    best, found = np.inf, (0, 0)
    for place in (np.minimum(after, b.size - 1), np.maximum(after - 1, 0)):
        off = np.abs(rest + a + b[place])
        i = int(off.argmin())
        if off[i] < best:
            best, found = float(off[i]), (i, int(place[i]))
    chosen = base.copy()
    chosen[halves[0].rows] = first[by_a[found[0]]]
    chosen[halves[1].rows] = second[by_b[found[1]]]
    return chosen


def _in_turns(order: Indices) -> Indices:
    """Return the entries two from the front, two from the back, and so on."""
    front = (order.size + 1) // 2
    rank = np.concatenate([np.arange(front), np.arange(order.size - front)[::-1]])
    back = np.arange(order.size) >= front
    return order[np.argsort(rank // 2 * 4 + rank % 2 + 2 * back)]


@dataclass
class _Half:
    """Rows whose choices are exchanged together, within a budget of their own."""

    budget: int
    rows: list[int] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)
    count: Floats = field(default_factory=lambda: np.ones(1))
    total: float = 1.0

    def take(self, row: int, pool: Pool, spent: int, size: int, rng: np.random.Generator) -> bool:
        """Take a row in with as many choices as fit, unless that is one."""
        room = int(size / self.total)
        if room < 2:
            return False
        if pool.costs.size > room:
            pool = pool.drawn(room, rng)
        count = np.convolve(self.count, np.bincount(pool.costs).astype(float))
        total = float(count[: self.budget + spent + 1].sum())
        if total > size:
            return False
        self.total = total
        self.rows.append(row)
        self.pools.append(pool)
        self.count = count
        self.budget += spent
        return True

    def combinations(self) -> tuple[Floats, Indices]:
        """Return (sums, choices by row) of all combinations within the budget."""
        sums, left = np.zeros(1), np.full(1, self.budget, dtype=np.intp)
        chosen = np.empty((1, 0), dtype=np.intp)
        for pool in self.pools:
            labels, values = [], []
            for cost, at in pool.levels():
                able = np.flatnonzero(left >= cost)
                values.append(np.tile(np.arange(at.start, at.stop), able.size))
                labels.append(np.repeat(able, at.stop - at.start))
            label, value = np.concatenate(labels), np.concatenate(values)
            sums, left = sums[label] + pool.effects[value], left[label] - pool.costs[value]
            chosen = np.column_stack([chosen[label], pool.index[value]])
        return sums, chosen
