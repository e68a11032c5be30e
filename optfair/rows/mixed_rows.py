"""Rows with numeric and categorical columns, as arrays that components read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

__all__ = ["MixedRows"]


@dataclass(frozen=True, eq=False)
class MixedRows:
    """Rows, numeric columns apart from categorical ones.

    Parameters
    ----------
    numeric : array (n, d)
        Numbers; d may be 0.
    codes : array (n, c) of int
        Positions in each column's list of categories, -1 for one that is not in it; c may be 0.
    """

    numeric: Floats
    codes: Integers

    @classmethod
    def of(cls, X: Floats) -> MixedRows:
        """Return rows without categorical columns."""
        return cls(X, np.zeros((len(X), 0), dtype=np.intp))

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.numeric)

    def __getitem__(self, rows: slice | Integers) -> MixedRows:
        """Return some rows; a slice copies nothing."""
        return MixedRows(self.numeric[rows], self.codes[rows])
