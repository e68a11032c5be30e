"""The allowed choices of every row by integer cost, and the sums of effects that each budget reaches."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from optfair.errors import UnsupportedProblem
from optfair.methods.sparse_counterfactuals.choices import Choices

# The allowed choices of every row by integer cost.

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]


# Entries of the tables of the dynamic program: beyond this the costs are too fine for it.
LARGEST_TABLE = 20_000_000


@dataclass(frozen=True, eq=False)
class Pool:
    """Choices of one row that matter when only the sum of effects and the cost count.

    Sorted by cost, then by effect; of choices with the same effect the cheapest is kept.
    """

    effects: Floats
    costs: Indices
    index: Indices

    def drawn(self, size: int, rng: np.random.Generator) -> Pool:
        """Return some of the choices, the cheapest among them."""
        others = 1 + rng.choice(self.costs.size - 1, size - 1, replace=False)
        kept = np.concatenate([[0], np.sort(others)])
        return Pool(self.effects[kept], self.costs[kept], self.index[kept])

    def levels(self) -> list[tuple[int, slice]]:
        """Return (cost, its choices) for every cost that occurs."""
        ends = np.flatnonzero(np.diff(self.costs)) + 1
        bounds = [0, *ends.tolist(), self.costs.size]
        return [(int(self.costs[a]), slice(a, b)) for a, b in pairwise(bounds)]


@dataclass(frozen=True, eq=False)
class RowTable:
    """Least and largest effect by row and cost, in units that make every cost an integer.

    Attributes
    ----------
    rows : int
        Number n of rows.
    effects, costs, starts : arrays
        Of all choices; costs in units.
    allowed : bool array (N,)
        Choices that no rule leaves out.
    unit : float
        Cost of one unit.
    lower, upper : arrays (n, K + 1)
        Least and largest effect of a row at each cost; ±infinite where there is no choice.
    """

    rows: int
    effects: Floats
    costs: Indices
    starts: Indices
    allowed: Flags
    unit: float
    lower: Floats
    upper: Floats

    @classmethod
    def of(cls, choices: Choices, allowed: Flags, unit: float) -> RowTable:
        """Return the table of choices whose costs are multiples of a unit.

        Raises
        ------
        UnsupportedProblem
            The costs are too fine for a table.
        """
        c = choices
        costs = np.rint(c.costs / unit).astype(np.intp)
        n, K = c.rows, int(costs.max(initial=0))
        if n * (K + 1) > LARGEST_TABLE:
            raise UnsupportedProblem(
                f"costs in steps of {unit:g} make a table of {n} x {K + 1} entries",
                f"at most {LARGEST_TABLE:,} are held",
                "round the costs",
            )
        key = c.row * (K + 1) + costs
        lower, upper = np.full(n * (K + 1), np.inf), np.full(n * (K + 1), -np.inf)
        np.minimum.at(lower, key[allowed], c.effects[allowed])
        np.maximum.at(upper, key[allowed], c.effects[allowed])
        shape = (n, K + 1)
        return cls(
            n, c.effects, costs, c.starts, allowed, unit, lower.reshape(shape), upper.reshape(shape)
        )

    @property
    def cheapest(self) -> Indices:
        """Least cost of each row (n,); K + 1 where no choice is left."""
        there = np.isfinite(self.lower)
        found = np.where(there.any(axis=1), there.argmax(axis=1), self.lower.shape[1])
        return np.asarray(found, dtype=np.intp)

    @property
    def dearest(self) -> int:
        """Cost of the dearest choices of all rows."""
        there = np.isfinite(self.lower)
        last = self.lower.shape[1] - 1 - there[:, ::-1].argmax(axis=1)
        return int(last.sum())

    def capacity(self, budget: float) -> int:
        """Return how many units a budget buys, no more than can be spent."""
        # a budget that misses a whole number of units by rounding buys it
        bought = np.floor(min(budget / self.unit, float(self.dearest)) + 1e-9)
        return int(bought)

    def pool(self, row: int) -> Pool:
        """Return the allowed choices of a row."""
        at = np.arange(self.starts[row], self.starts[row + 1])
        at = at[self.allowed[at]]
        order = np.lexsort((self.costs[at], self.effects[at]))
        at = at[order]
        first = np.ones(at.size, dtype=bool)
        first[1:] = self.effects[at][1:] != self.effects[at][:-1]
        at = at[first]
        at = at[np.lexsort((self.effects[at], self.costs[at]))]
        return Pool(self.effects[at], self.costs[at], at)

    def choice(self, row: int, cost: int, effect: float) -> int:
        """Return a choice of a row with this cost and effect."""
        at = np.arange(self.starts[row], self.starts[row + 1])
        same = self.allowed[at] & (self.costs[at] == cost) & (self.effects[at] == effect)
        return int(at[same.argmax()])


# The least and the largest sum of effects for every budget, by a forward dynamic program.


@dataclass(frozen=True, eq=False)
class Reach:
    """Range of the sum of effects by budget.

    Attributes
    ----------
    lower, upper : arrays (C + 1,)
        Least and largest sum with at most so many units; ±infinite where none is possible.
    """

    table: RowTable
    lower: Floats
    upper: Floats
    _least: Indices
    _largest: Indices

    def least(self, budget: int) -> Indices:
        """Return the choices (n,) of the least sum with at most so many units."""
        return self._back(self._least, self.table.lower, budget)

    def largest(self, budget: int) -> Indices:
        """Return the choices (n,) of the largest sum with at most so many units."""
        return self._back(self._largest, self.table.upper, budget)

    def _back(self, picks: Indices, best: Floats, budget: int) -> Indices:
        chosen = np.empty(self.table.rows, dtype=np.intp)
        for i in range(self.table.rows - 1, -1, -1):
            k = int(picks[i, budget])
            chosen[i] = self.table.choice(i, k, float(best[i, k]))
            budget -= k
        return chosen


def reach(table: RowTable, capacity: int) -> Reach:
    r"""Return the range of the sum for budgets 0, ..., C.

    .. math:: L_i(c) = \min_{k \le c} L_{i-1}(c - k) + l_{ik},\qquad L_0 = 0

    with l_ik the least effect of row i at cost k; the largest sum in the same way.
    """
    # both ends step by step together: least sums of the effects and of their negatives
    best = np.stack([table.lower, -table.upper])
    value = np.zeros((2, capacity + 1))
    picks = np.empty((2, table.rows, capacity + 1), dtype=np.intp)
    for i in range(table.rows):
        value, picks[:, i] = _step(value, best[:, i])
    return Reach(table, value[0], -value[1], picks[0], picks[1])


def layers(best: Floats, capacity: int) -> Floats:
    """Return the least sum of rows i, ..., n − 1 for every budget, i = 0, ..., n."""
    n = best.shape[0]
    found = np.zeros((n + 1, capacity + 1))
    for i in range(n - 1, -1, -1):
        found[i] = _step(found[None, i + 1], best[None, i])[0][0]
    return found


def _step(value: Floats, row: Floats) -> tuple[Floats, Indices]:
    """Return the least sums with one row more, and the cost of that row's choice.

    Parameters
    ----------
    value : array (m, C + 1)
        Least sums so far, for m programs at once.
    row : array (m, K + 1)
        Least effect of the row at each cost.
    """
    # a choice that costs more and is no better is never needed
    useful = row[:, 1:] < np.minimum.accumulate(row[:, :-1], axis=1)
    costs = np.concatenate([[0], 1 + np.flatnonzero(useful.any(axis=0))])
    top, width = int(costs[-1]), value.shape[1]
    padded = np.full((value.shape[0], top + width), np.inf)
    padded[:, top:] = value
    candidates = padded[:, np.arange(top, top + width)[:, None] - costs]
    candidates += row[:, None, costs]
    at = candidates.argmin(axis=2)
    return np.take_along_axis(candidates, at[:, :, None], axis=2)[:, :, 0], costs[at]
