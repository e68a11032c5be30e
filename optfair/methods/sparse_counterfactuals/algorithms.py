"""The plan whose sum of effects is nearest to 0 within a budget, or the proof that none is nearer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from optfair.methods.sparse_counterfactuals.choices import Pool, Reach, RowTable, layers, reach
from optfair.numbers import Floats, Indices

# Every way to come nearer to 0 than a given distance, or the proof that there is none.

Parents = NDArray[np.int32]


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
    return 1e-14 * _largest_sum(table)


def _largest_sum(table: RowTable) -> float:
    """Return what the sizes of effects, the largest of each row, add up to."""
    largest = np.maximum(np.abs(table.lower), np.abs(table.upper))
    return float(np.where(np.isfinite(largest), largest, 0.0).max(axis=1).sum())


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
    pair = _pair(*sides, capacity, window)
    if pair is None:
        return LabelSearch(complete, None)
    chosen = np.empty(table.rows, dtype=np.intp)
    for side, at in zip(sides, pair, strict=True):
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
    best, pair = window, None
    for budget in np.unique(first.left):
        mine = np.flatnonzero(first.left == budget)
        partners = np.flatnonzero(left >= capacity - budget)
        if not partners.size:
            continue
        off, i, j = _nearest_two(-first.sums[mine], sums[partners])
        if off < best:
            best, pair = off, (int(mine[i]), int(order[partners[j]]))
    return pair


def _nearest_two(wanted: Floats, offered: Floats) -> tuple[float, int, int]:
    """Return how near one of the sorted numbers comes to one that is wanted, and their places."""
    after = np.searchsorted(offered, wanted)
    best: tuple[float, int, int] = (np.inf, 0, 0)
    for place in (np.minimum(after, offered.size - 1), np.maximum(after - 1, 0)):
        off = np.abs(offered[place] - wanted)
        i = int(off.argmin())
        if off[i] < best[0]:
            best = float(off[i]), i, int(place[i])
    return best


def _merged(sums: Floats, left: Indices, width: float) -> Indices:
    """Return one label of each sum: the one with most budget left."""
    key = np.rint(sums / width) if width > 0 else sums
    order = np.lexsort((-left, key))
    first = np.ones(order.size, dtype=bool)
    first[1:] = key[order][1:] != key[order][:-1]
    return order[first]


# Come close to 0 from both sides: exchange the choices of some rows, half of them at a time.


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
    _, i, j = _nearest_two(-rest - a[by_a], b[by_b])
    chosen = base.copy()
    chosen[halves[0].rows] = first[by_a[i]]
    chosen[halves[1].rows] = second[by_b[j]]
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


# The plan whose sum of effects is nearest to 0 within a budget.

# Combinations of a half, round by round, before all plans are looked for and after.
FEW, MANY = (2**13, 2**16, 2**18), (2**19,) * 4
# Looks at plans that have to be drawn because they are too many.
DRAWS = 3
# A plan this near to 0, relative to the largest effect, has many others near it.
DENSE = 1e-6
# A plan so many times farther from 0 than another is no start.
FAR = 10.0


@dataclass(frozen=True, eq=False)
class Closest:
    r"""A plan near 0, and how near any plan can come.

    Attributes
    ----------
    chosen : int array (n,)
        Choices.
    distance : float
        \|sum\| of the plan.
    bound : float
        Least distance by the dynamic program.
    window : float
        Distance that no plan was shown to beat by looking at all; 0 when that was not done.
    done : bool
        Whether the plan is proved best, or as near as was asked for.
    rounds : tuple
        (what was done, distance after it).
    """

    chosen: Indices
    distance: float
    bound: float
    window: float
    done: bool
    rounds: tuple[tuple[str, float], ...]


def end_bound(table: RowTable, reached: Reach, budget: int) -> float:
    """Return a float below the distance from 0 of any sum within a budget.

    It is that of the ends of the range, less twice what the additions of rows may be rounded by.
    """
    near = max(float(reached.lower[budget]), -float(reached.upper[budget]))
    return max(near - (table.rows - 1) * 2.0**-52 * _largest_sum(table), 0.0)


def window_bound(table: RowTable, capacity: int, window: float) -> float:
    """Return the distance that no plan beats, by looking at every plan inside the window.

    0 when some plan is inside, or the search was given up.
    """
    if window <= 0.0:
        return 0.0
    search = search_labels(table, capacity, window)
    if not search.complete or search.chosen is not None:
        return 0.0
    # merged labels stand for sums that differ by a rounding
    return max(0.0, window - table.rows * merge_width(table))


def closest(
    table: RowTable,
    capacity: int,
    aim: float,
    *,
    enough: float = 0.0,
    seed: int | None = None,
    deadline: float = np.inf,
) -> Closest:
    """Return the plan whose sum is nearest to 0.

    The dynamic program gives both ends of the range of the sum. When 0 is outside, the end
    next to it is the optimum. Otherwise plans near 0 are improved by exchanging choices from
    both sides until they are as near as ``aim``. Where that fails, every plan that is nearer
    is looked for.

    Parameters
    ----------
    table : RowTable
        Choices by row.
    capacity : int
        Budget in units.
    aim : float
        Distance that is as good as 0.
    enough : float
        Distance at which nothing more than exchanges is tried.
    seed : int, optional
        Of the order in which rows are exchanged.
    deadline : float
        ``time.perf_counter()`` value after which to stop.
    """
    reached = reach(table, capacity)
    low, high = float(reached.lower[capacity]), float(reached.upper[capacity])
    if low >= 0.0 or high <= 0.0:
        chosen = reached.least(capacity) if low >= 0.0 else reached.largest(capacity)
        d = distance(table, chosen)
        return Closest(
            chosen, d, end_bound(table, reached, capacity), 0.0, True, (("dynamic program", d),)
        )
    walk = _Walk(table, capacity, aim, np.random.default_rng(seed or 0), deadline, _starts(reached))
    walk.exchange(FEW)
    largest = float(np.abs(table.effects).max())
    # so near already, scores are dense: more exchanges bring more than a look at all plans
    window = 0.0 if walk.ended or walk.distance <= DENSE * largest else walk.look()
    if not window:
        walk.exchange(MANY)
    for _ in range(DRAWS):
        if window or walk.distance <= max(aim, enough) or walk.ended:
            break
        window = walk.look()
    done = window > 0.0 or walk.distance <= max(aim, enough)
    return Closest(walk.best, walk.distance, 0.0, window, done, tuple(walk.rounds))


class _Walk:
    """The best plan so far, and what is tried to improve it."""

    def __init__(
        self,
        table: RowTable,
        capacity: int,
        aim: float,
        rng: np.random.Generator,
        deadline: float,
        starts: list[Indices],
    ) -> None:
        self.table, self.capacity, self.aim = table, capacity, aim
        self.rng, self.deadline, self.starts = rng, deadline, starts
        self.best = min(starts, key=lambda chosen: distance(table, chosen))
        self.distance = distance(table, self.best)
        self.rounds = [("dynamic program", self.distance)]

    @property
    def ended(self) -> bool:
        """Whether the plan is near enough, or time is over."""
        return self.distance <= self.aim or time.perf_counter() > self.deadline

    def take(self, chosen: Indices, what: str) -> None:
        """Keep a plan that is nearer."""
        if distance(self.table, chosen) < self.distance:
            self.best, self.distance = chosen, distance(self.table, chosen)
        self.rounds.append((what, self.distance))

    def exchange(self, sizes: tuple[int, ...]) -> None:
        """Exchange choices from both sides, of more and more plans."""
        for number, size in enumerate(sizes):
            if self.ended:
                return
            # the best plan is one to start from too: its neighbours are other plans
            base = [*self.starts, self.best][number % (len(self.starts) + 1)]
            chosen = meet(self.table, base, self.capacity, size, self.rng)
            self.take(chosen, "exchange from both sides")

    def look(self) -> float:
        """Look at all plans that are nearer; return the distance no plan beats, or 0."""
        search = search_labels(
            self.table, self.capacity, self.distance, rng=self.rng, deadline=self.deadline
        )
        what = "all plans nearer to 0" if search.complete else "a draw of plans nearer to 0"
        self.take(self.best if search.chosen is None else search.chosen, what)
        # a plan at this distance is known: nearer ones were looked at
        return max(0.0, self.distance - merge_width(self.table)) if search.complete else 0.0


def distance(table: RowTable, chosen: Indices) -> float:
    """Return how far the sum of a plan is from 0."""
    return abs(float(table.effects[chosen].sum()))


def _starts(reached: Reach) -> list[Indices]:
    """Return the plans nearest to 0 among the ends of the ranges of all budgets."""
    above, below = np.abs(reached.upper), np.abs(reached.lower)
    ends = [(float(above.min()), reached.largest, int(above.argmin()))]
    ends += [(float(below.min()), reached.least, int(below.argmin()))]
    near = FAR * min(d for d, _, _ in ends)
    return [plan(budget) for d, plan, budget in ends if d <= near]
