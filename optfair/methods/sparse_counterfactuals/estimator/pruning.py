"""Edits that turn out not to be needed are taken back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

__all__ = ["pruned"]


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
