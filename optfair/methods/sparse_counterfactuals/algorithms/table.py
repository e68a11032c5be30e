"""The allowed choices of every row by integer cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from optfair.errors import UnsupportedProblem
from optfair.methods.sparse_counterfactuals.choice_problem import ChoiceProblem
from optfair.methods.sparse_counterfactuals.choices import common_unit

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

__all__ = ["Pool", "RowTable"]

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
    def of(cls, problem: ChoiceProblem, rules: Iterable[str] | None = None) -> RowTable:
        """Return the table of a problem, or of some of its rules alone.

        Raises
        ------
        UnsupportedProblem
            The structure is lost, or the costs are too fine for a table.
        """
        exclusions = problem.exclusions()
        unit = common_unit(problem.choices.cell_costs)
        if isinstance(exclusions, str) or unit is None:
            raise UnsupportedProblem(
                f"the dynamic program does not apply: {exclusions}",
                remedy="leave the choice of the solver to the library",
            )
        names = exclusions if rules is None else rules
        c = problem.choices
        allowed = np.ones(c.size, dtype=bool)
        for name in names:
            allowed &= ~exclusions[name]
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
