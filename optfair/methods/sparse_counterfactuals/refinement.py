"""Rows along a growing budget: which cells are edited, which edits are taken back, what is reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair.methods.sparse_counterfactuals.fit_data import labelled
from optfair.methods.sparse_counterfactuals.metrics import (
    DIVERGENCES,
    effect_from,
    kernel_bandwidth,
    mmd_of_changes,
    path_divergences,
)
from optfair.numbers import Flags, Floats, Indices

# Rows along a growing budget: which cells are edited, and what the model says of the rows.

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
        values = outputs(codes)
        return cls(cells, values[:n], values[n:], (n, x.shape[1]))

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
        values = self.start.copy()
        # in order: a later edit of a row says what its output is
        values[self.cells[:budget, 0]] = self.after[:budget]
        return values

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


# Edits that turn out not to be needed are taken back.


def pruned(
    outputs: Callable[[Indices], Floats],
    x: Indices,
    q: Indices,
    edits: Flags,
    weights: Floats,
    reached: Callable[[Floats], bool],
) -> tuple[Flags, Floats]:
    """Return edits of which none can be taken back by itself, and the outputs with them.

    A heuristic: edits are tried in the order of rising weight, and taken back where what is
    required stays reached, until a round over all of them takes none back. What is left is
    minimal, not a minimum; `MinimumEdits` is the problem whose optimum is the minimum.

    Parameters
    ----------
    outputs : callable
        Coded rows to one number each.
    x, q : int arrays (n, d)
        Rows as they are, and the value of every cell.
    edits : bool array (n, d)
        Edits that reach what is required.
    weights : array (n, d)
        The order in which they are tried.
    reached : callable
        Outputs of all rows (n,) to whether they are good enough.

    Examples
    --------
    >>> import numpy as np
    >>> x, q = np.zeros((1, 3), dtype=int), np.ones((1, 3), dtype=int)
    >>> edits, after = pruned(
    ...     lambda rows: 1.0 * (rows @ [1, 2, 4] >= 4), x, q, np.ones((1, 3), dtype=bool),
    ...     np.array([[0.1, 0.2, 0.4]]), lambda u: bool(u.min() >= 1.0),
    ... )
    >>> edits.tolist()
    [[False, False, True]]
    """
    kept = edits.copy()
    current = outputs(np.where(kept, q, x))
    known, stale = np.zeros(edits.shape), kept.copy()
    while True:
        if stale.any():  # outputs of rows without one more edit, all in one batch
            i, k = np.nonzero(stale)
            without = kept[i].copy()
            without[np.arange(i.size), k] = False
            known[i, k] = outputs(np.where(without, q[i], x[i]))
        stale = np.zeros(edits.shape, dtype=bool)
        cells = _in_order(kept, weights)
        for row, column in cells:
            if stale[row].any():
                continue  # this row has changed: its outputs are asked for in the next round
            trial = current.copy()
            trial[row] = known[row, column]
            if reached(trial):
                kept[row, column], current = False, trial
                # a row without edits needs no further round
                stale[row] = kept[row]
        if not stale.any() and np.array_equal(cells, _in_order(kept, weights)):
            return kept, current


def _in_order(edits: Flags, weights: Floats) -> Indices:
    cells = np.argwhere(edits)
    return cells[np.argsort(weights[edits], kind="stable")]


# Refined counterfactuals, and what they change and reach.


@dataclass(frozen=True, eq=False)
class Refinement:
    r"""Rows with some cells changed.

    Attributes
    ----------
    rows : array or data frame (n, d)
        z, in the container and with the types of the factual rows.
    edits : bool array (n, d)
        Cells that differ from the factual rows.
    budget : int
        Edits allowed; fewer are made where fewer cells can change.
    effect : float
        Counterfactual effect 1 − D(f(z), y*) / D(f(x), y*).
    divergence : {"ot", "mmd", "mean", "median"}
        D.
    outputs, factual_outputs : arrays (n,)
        f(z) and f(x).
    target : array (m,)
        y*.
    edit_ratio : float
        Edits as a share of those of the original counterfactuals, the ratio that Table 3 of
        the paper prints.
    distance_ratio : float
        ‖z − x‖ / ‖r − x‖ with numbers standardised and categories as indicators.
    features : tuple of str
        Columns.
    factuals : array or data frame (n, d)
        x.

    Examples
    --------
    >>> import optfair as of
    >>> model = of.SparseCounterfactuals(lambda rows: rows @ [1.0, 2.0, 4.0])
    >>> found = model.fit([[0.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]]).refine(1)
    >>> found.rows.tolist(), found.edits.tolist(), found.outputs.tolist()
    ([[0.0, 0.0, 1.0]], [[False, False, True]], [4.0])
    """

    rows: Any
    edits: Flags
    budget: int
    effect: float
    divergence: str
    outputs: Floats
    factual_outputs: Floats
    target: Floats
    edit_ratio: float
    distance_ratio: float
    features: tuple[str, ...]
    factuals: Any

    @property
    def n_edits(self) -> int:
        """Number of cells changed."""
        return int(self.edits.sum())

    @property
    def edits_per_row(self) -> Indices:
        """Number of cells changed in each row (n,)."""
        return np.asarray(self.edits.sum(axis=1))

    def changes(self) -> list[dict[str, Any]]:
        """Return one entry per changed cell: row, feature, before, after."""
        before, after = _cells(self.factuals), _cells(self.rows)
        return [
            {
                "row": int(i),
                "feature": self.features[k],
                "before": before(i, k),
                "after": after(i, k),
            }
            for i, k in np.argwhere(self.edits)
        ]

    def divergences(self) -> dict[str, float]:
        """Return all divergences of the outputs from the target, by name.

        "mmd" has the bandwidth of the factual outputs and the target, whatever the edits.
        """
        h = kernel_bandwidth(np.concatenate([self.factual_outputs, self.target]))
        line = self.outputs[None, :]
        return {
            name: float(path_divergences(line, self.target, name, h)[0]) for name in DIVERGENCES
        }

    def __repr__(self) -> str:
        n = self.edits.shape[0]
        return (
            f"Refinement: {self.n_edits} edits in {n} rows, {self.edit_ratio:.1%} of the original"
            f" ones, effect {self.effect:.1%}"
        )


def refined(estimator: Any, edits: Flags, outputs: Floats, budget: int) -> Refinement:
    """Return what some edits make of the rows of a fitted `SparseCounterfactuals`."""
    tables, stack = estimator._coupled, estimator._stack
    x, q = estimator._codes
    z = np.where(edits, q, x)
    points = tables.encoding.points
    moved = float(np.linalg.norm(points(z, stack) - points(x, stack)))
    return Refinement(
        rows=labelled(estimator._factuals, stack.rows(z)),
        edits=edits,
        budget=budget,
        effect=effect_from(tables.factual_outputs, tables.target, estimator.divergence)(outputs),
        divergence=estimator.divergence,
        outputs=outputs,
        factual_outputs=tables.factual_outputs,
        target=tables.target,
        edit_ratio=_share(float(edits.sum()), tables.original_edits),
        distance_ratio=_share(moved, tables.original_distance),
        features=stack.names,
        factuals=estimator._factuals,
    )


def _share(part: float, whole: float) -> float:
    # nothing, where only features without weight differ
    return part / whole if whole else float("nan")


def _cells(rows: Any) -> Any:
    if hasattr(rows, "columns"):
        columns = [np.asarray(rows[c]) for c in rows.columns]
        return lambda i, k: _plain(columns[k][i])
    array = np.asarray(rows)
    return lambda i, k: _plain(array[i, k])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
