"""The plan whose sum of effects is nearest to 0 within a budget."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.methods.sparse_counterfactuals.algorithms.labels import merge_width, search_labels
from optfair.methods.sparse_counterfactuals.algorithms.meeting import meet
from optfair.methods.sparse_counterfactuals.algorithms.reach import Reach, reach
from optfair.methods.sparse_counterfactuals.algorithms.table import RowTable

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Closest", "closest", "end_bound", "window_bound"]

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


def end_bound(found: Reach, budget: int) -> float:
    """Return the least distance from 0 of any number between the ends of the range."""
    return max(float(found.lower[budget]), -float(found.upper[budget]), 0.0)


def window_bound(table: RowTable, capacity: int, window: float) -> float:
    """Return the distance that no plan beats, by looking at every plan inside the window.

    0 when some plan is inside, or the search was given up.
    """
    if window <= 0.0:
        return 0.0
    found = search_labels(table, capacity, window)
    if not found.complete or found.chosen is not None:
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
    found = reach(table, capacity)
    low, high = float(found.lower[capacity]), float(found.upper[capacity])
    if low >= 0.0 or high <= 0.0:
        chosen = found.least(capacity) if low >= 0.0 else found.largest(capacity)
        d = distance(table, chosen)
        return Closest(chosen, d, end_bound(found, capacity), 0.0, True, (("dynamic program", d),))
    walk = _Walk(table, capacity, aim, np.random.default_rng(seed or 0), deadline, _starts(found))
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


def _starts(found: Reach) -> list[Indices]:
    """Return the plans nearest to 0 among the ends of the ranges of all budgets."""
    above, below = np.abs(found.upper), np.abs(found.lower)
    ends = [(float(above.min()), found.largest, int(above.argmin()))]
    ends += [(float(below.min()), found.least, int(below.argmin()))]
    near = FAR * min(d for d, _, _ in ends)
    return [plan(budget) for d, plan, budget in ends if d <= near]
