"""Every way to come nearer to 0 than a given distance, or the proof that there is none."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.methods.sparse_counterfactuals.algorithms.reach import layers
from optfair.methods.sparse_counterfactuals.algorithms.table import Pool, RowTable

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Parents = NDArray[np.int32]

__all__ = ["LabelSearch", "merge_width", "search_labels"]

# Labels of one side after which the search cannot look at all of them.
MOST = 1_500_000
# Labels of one side that are drawn instead.
DRAWN = 2**17


@dataclass(frozen=True, eq=False)
class LabelSearch:
    """What was found inside the window.

    Attributes
    ----------
    complete : bool
        Whether every plan inside the window was looked at.
    chosen : int array (n,) or None
        Choices of the sum nearest to 0 inside the window, if the window is not empty.
    """

    complete: bool
    chosen: Indices | None


def merge_width(table: RowTable) -> float:
    """Return the distance below which two sums are taken for the same.

    It is far above the rounding of a sum and far below any tolerance; merging over n rows
    moves a sum by at most n times this much.
    """
    largest = np.maximum(np.abs(table.lower), np.abs(table.upper))
    return 1e-14 * float(np.where(np.isfinite(largest), largest, 0.0).max(axis=1).sum())


def search_labels(
    table: RowTable,
    capacity: int,
    window: float,
    *,
    rng: np.random.Generator | None = None,
    deadline: float = np.inf,
) -> LabelSearch:
    r"""Look at every plan with \|sum\| < window, from both ends of the list of rows.

    A label is a budget left and a sum so far, over some first rows or some last ones. It is
    dropped when no completion within the budget lands in the window, by the dynamic program
    over the other rows; of labels with the same sum, the one with most budget left is kept.
    When the two sides meet, each label finds its nearest partner by bisection. The window is
    narrow where the budget has just passed the crossing of 0, or where scores take few values.

    Parameters
    ----------
    table : RowTable
        Choices by row.
    capacity : int
        Budget in units.
    window : float
        Distance to beat.
    rng : numpy.random.Generator, optional
        Draws some of the labels when they become too many; without it the search is given up.
    deadline : float
        ``time.perf_counter()`` value after which to stop.
    """
    # rows that move the sum most are taken first: what is left then moves it little
    spread = table.upper.max(axis=1) - table.lower.min(axis=1)
    order = np.argsort(-spread, kind="stable")
    order = np.concatenate([order[::2], order[1::2][::-1]])
    sides = (
        _Side(table, order, capacity, window, rng),
        _Side(table, order[::-1], capacity, window, rng),
    )
    while len(sides[0].history) + len(sides[1].history) < table.rows:
        side = min(sides, key=lambda x: x.sums.size)
        if not side.extend() or time.perf_counter() > deadline:
            return LabelSearch(False, None)
        if not side.sums.size:
            return LabelSearch(side.complete, None)
    complete = sides[0].complete and sides[1].complete
    found = _pair(*sides, capacity, window)
    if found is None:
        return LabelSearch(complete, None)
    chosen = np.empty(table.rows, dtype=np.intp)
    for side, at in zip(sides, found, strict=True):
        side.write(chosen, at)
    return LabelSearch(complete, chosen)


class _Side:
    """Labels over the first rows of an order."""

    def __init__(
        self,
        table: RowTable,
        order: Indices,
        capacity: int,
        window: float,
        rng: np.random.Generator | None,
    ) -> None:
        self.table, self.order, self.window, self.rng = table, order, window, rng
        self.below = layers(table.lower[order], capacity)
        self.above = -layers(-table.upper[order], capacity)
        self.width = merge_width(table)
        self.sums, self.left = np.zeros(1), np.full(1, capacity, dtype=np.intp)
        self.history: list[tuple[Parents, Parents]] = []
        self.complete = True

    def extend(self) -> bool:
        """Take in the next row; False when the labels are too many and none may be drawn."""
        i = len(self.history)
        pool = self.table.pool(int(self.order[i]))
        label, first, count = self._completable(pool, self.below[i + 1], self.above[i + 1])
        ends = np.cumsum(count)
        total = int(ends[-1]) if ends.size else 0
        if total <= (MOST if self.complete else DRAWN):
            which = np.repeat(np.arange(count.size), count)
            value = first[which] + np.arange(total) - (ends - count)[which]
        elif self.rng is None:
            return False
        else:
            self.complete = False
            drawn = np.unique(self.rng.integers(0, total, DRAWN))
            which = np.searchsorted(ends, drawn, side="right")
            value = first[which] + drawn - (ends - count)[which]
        parent = label[which]
        sums = self.sums[parent] + pool.effects[value]
        left = self.left[parent] - pool.costs[value]
        kept = _merged(sums, left, self.width)
        self.sums, self.left = sums[kept], left[kept]
        self.history.append(
            (parent[kept].astype(np.int32), pool.index[value[kept]].astype(np.int32))
        )
        return True

    def _completable(
        self, pool: Pool, below: Floats, above: Floats
    ) -> tuple[Indices, Indices, Indices]:
        """Return (label, first choice, number of choices) that may still reach the window."""
        parts = []
        for cost, at in pool.levels():
            able = np.flatnonzero(self.left >= cost)
            rest, sums = self.left[able] - cost, self.sums[able]
            values = pool.effects[at]
            # sum + value + completion must be able to pass -window and to stay below window
            low = np.searchsorted(values, -self.window - sums - above[rest], side="right")
            high = np.searchsorted(values, self.window - sums - below[rest], side="left")
            some = high > low
            parts.append((able[some], at.start + low[some], (high - low)[some]))
        label, first, count = (np.concatenate(column) for column in zip(*parts, strict=True))
        return label, first, count

    def write(self, chosen: Indices, at: int) -> None:
        """Write the choices of a label."""
        taken = self.order[: len(self.history)]
        for row, (parent, choice) in zip(taken[::-1], self.history[::-1], strict=True):
            chosen[row], at = choice[at], int(parent[at])


def _pair(first: _Side, second: _Side, capacity: int, window: float) -> tuple[int, int] | None:
    """Return the labels whose sums come nearest to 0 together within the budget, if inside."""
    order = np.argsort(second.sums, kind="stable")
    sums, left = second.sums[order], second.left[order]
    best, found = window, None
    for budget in np.unique(first.left):
        mine = np.flatnonzero(first.left == budget)
        partners = np.flatnonzero(left >= capacity - budget)
        if not partners.size:
            continue
        wanted, offered = -first.sums[mine], sums[partners]
        after = np.searchsorted(offered, wanted)
        for place in (np.minimum(after, offered.size - 1), np.maximum(after - 1, 0)):
            off = np.abs(offered[place] - wanted)
            i = int(off.argmin())
            if off[i] < best:
                best = float(off[i])
                found = int(mine[i]), int(order[partners[place[i]]])
    return found


def _merged(sums: Floats, left: Indices, width: float) -> Indices:
    """Return one label of each sum: the one with most budget left."""
    key = np.rint(sums / width) if width > 0 else sums
    order = np.lexsort((-left, key))
    first = np.ones(order.size, dtype=bool)
    first[1:] = key[order][1:] != key[order][:-1]
    return order[first]
