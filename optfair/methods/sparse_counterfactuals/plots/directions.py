"""What an edit does to a cell: it lowers or raises a number, or exchanges a category."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.methods.sparse_counterfactuals.cells import Cells

Directions = NDArray[np.int8]

__all__ = ["LOWER", "OTHER", "RAISED", "UNCHANGED", "Directions", "edit_directions"]

UNCHANGED, LOWER, RAISED, OTHER = 0, 1, 2, 3


def edit_directions(factuals: Any, edited: Any) -> Directions:
    """Return what happens to each cell: 0 nothing, 1 lower, 2 higher, 3 another category.

    Parameters
    ----------
    factuals, edited : arrays or data frames (n, d)
        Rows before and after, aligned.

    Raises
    ------
    DataError
        Shapes or columns that do not fit, missing entries.

    Examples
    --------
    >>> edit_directions([[3.0, "own", 1.0]], [[2.0, "rent", 1.0]]).tolist()
    [[1, 3, 0]]
    """
    cells = Cells.of(factuals, edited)
    found = np.zeros_like(cells.differ, dtype=np.int8)
    for j in range(len(cells.names)):
        before, after = cells.column(j)
        changed = cells.differ[:, j]
        if _numeric(before) and _numeric(after):
            rises = after[changed].astype(float) > before[changed].astype(float)
            found[changed, j] = np.where(rises, RAISED, LOWER)
        else:
            found[changed, j] = OTHER
    return found


def _numeric(column: NDArray[Any]) -> bool:
    if column.dtype.kind == "O":
        return all(isinstance(v, Real) and not isinstance(v, bool) for v in column)
    return column.dtype.kind in "iuf"
