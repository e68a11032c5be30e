"""Rows along a growing budget: which cells are edited, and what the model says of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.methods.sparse_counterfactuals.metrics.line_divergences import (
    kernel_bandwidth,
    mmd_of_changes,
    path_divergences,
)

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

__all__ = ["EditPath"]

# Entries of a temporary array.
CHUNK = 4_000_000


@dataclass(frozen=True, eq=False)
class EditPath:
    """Cells in the order of their edits, and the outputs after each.

    An edit changes one row, so all outputs of the path are those of n + L rows, asked for at
    once.

    Attributes
    ----------
    cells : int array (L, 2)
        Row and column of each edit.
    start : array (n,)
        Outputs without edits.
    after : array (L,)
        Output of the row of each edit after it.
    shape : (int, int)
        n and d.

    Examples
    --------
    >>> import numpy as np
    >>> x, q = np.array([[0, 0]]), np.array([[1, 1]])
    >>> cells = np.array([[0, 1], [0, 0]])
    >>> path = EditPath.of(lambda rows: rows @ [10.0, 1.0], x, q, cells)
    >>> path.outputs(1).tolist(), path.outputs(2).tolist(), path.edits(1).tolist()
    ([1.0], [11.0], [[False, True]])
    """

    cells: Indices
    start: Floats
    after: Floats
    shape: tuple[int, int]

    @classmethod
    def of(
        cls, outputs: Callable[[Indices], Floats], x: Indices, q: Indices, cells: Indices
    ) -> EditPath:
        """Return the path of edits from coded rows x to values q.

        Parameters
        ----------
        outputs : callable
            Coded rows to one number each.
        x, q : int arrays (n, d)
            Rows as they are, and the value of every cell.
        cells : int array (L, 2)
            Edits, in order.
        """
        n, length = x.shape[0], cells.shape[0]
        rank = np.full(x.shape, length)
        rank[cells[:, 0], cells[:, 1]] = np.arange(length)
        rows = cells[:, 0]
        made = rank[rows] <= np.arange(length)[:, None]
        codes = np.concatenate([x, np.where(made, q[rows], x[rows])])
        found = outputs(codes)
        return cls(cells, found[:n], found[n:], (n, x.shape[1]))

    def arrived_last(self, goals: Floats) -> EditPath:
        """Return the path on which a row that has arrived is edited after all others.

        A row arrives when its output reaches its goal, or passes it. The order of the edits
        within a row stays, and so do the outputs after them.

        Parameters
        ----------
        goals : array (n,)
            Output that each row is to reach.
        """
        rows = self.cells[:, 0]
        side, goal = np.sign(goals - self.start)[rows], goals[rows]
        # a goal that is missed by rounding only is reached
        there = side * (self.after - goal) >= -1e-12 * (1.0 + np.abs(goal))
        # arrived before an edit: at the start, or after an earlier edit of the same row
        by_row = np.argsort(rows, kind="stable")
        reached: Indices = np.cumsum(there[by_row]) - there[by_row]
        first = np.searchsorted(rows[by_row], rows[by_row])
        late = np.empty(rows.size, dtype=bool)
        late[by_row] = reached - reached[first] > 0
        order = np.argsort(late | (side == 0.0), kind="stable")
        return EditPath(self.cells[order], self.start, self.after[order], self.shape)

    @property
    def length(self) -> int:
        """Number of edits L."""
        return int(self.cells.shape[0])

    def edits(self, budget: int) -> Flags:
        """Return which cells the first edits change (n, d)."""
        mask = np.zeros(self.shape, dtype=bool)
        rows, columns = self.cells[:budget].T
        mask[rows, columns] = True
        return mask

    def outputs(self, budget: int) -> Floats:
        """Return the outputs after the first edits (n,)."""
        found = self.start.copy()
        # in order: a later edit of a row says what its output is
        found[self.cells[:budget, 0]] = self.after[:budget]
        return found

    def divergences(self, target: Floats, divergence: str) -> Floats:
        """Return the divergence of the outputs from the target after 0, 1, ..., L edits.

        Parameters
        ----------
        target : array (m,)
            y*.
        divergence : {"ot", "mmd", "mean", "median"}
            Which; "mmd" has the bandwidth of the outputs without edits all along.
        """
        n = self.shape[0]
        both = np.concatenate([self.start, target])
        bandwidth = kernel_bandwidth(both) if divergence == "mmd" else None
        parts = [path_divergences(self.start[None, :], target, divergence, bandwidth)]
        step = max(1, CHUNK // n)
        for low in range(0, self.length, step):
            rows, after = self.cells[low : low + step, 0], self.after[low : low + step]
            count = rows.size
            # number of the latest edit of each row, 0 for none in this part
            latest = np.zeros((count, n), dtype=np.intp)
            latest[np.arange(count), rows] = np.arange(1, count + 1)
            latest = np.maximum.accumulate(latest, axis=0)
            before = self.outputs(low)
            lines = np.where(latest > 0, after[latest - 1], before)
            if bandwidth is not None:
                changed = np.concatenate([before[None, :], lines])
                parts.append(mmd_of_changes(changed, rows, target, bandwidth)[1:])
            else:
                parts.append(path_divergences(lines, target, divergence))
        return np.concatenate(parts)
