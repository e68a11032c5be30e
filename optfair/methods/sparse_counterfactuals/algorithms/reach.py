"""The least and the largest sum of effects for every budget, by a forward dynamic program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.methods.sparse_counterfactuals.algorithms.table import RowTable

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Reach", "layers", "reach"]


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
