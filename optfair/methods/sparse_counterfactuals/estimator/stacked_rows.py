"""Tables of the same columns, one below the other, with equal cells recognised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, nearest
from optfair.methods.sparse_counterfactuals.estimator.joined_columns import (
    JoinedColumns,
    cell_values,
    lengthened,
)

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

__all__ = ["StackedRows", "column_indices"]


@dataclass(frozen=True, eq=False)
class StackedRows:
    """Several tables with a code for each different value of a column.

    Codes make cells of any type comparable, and rows put together from several tables cheap;
    `rows` gives them back in the container and with the types of the first table.

    Attributes
    ----------
    blocks : tuple of int arrays (n, d)
        Codes of each table.
    numeric, whole : bool arrays (d,)
        Columns of numbers; those of whole numbers among them.

    Examples
    --------
    >>> import numpy as np
    >>> stack = StackedRows.of([[0.5, 2.0]], [[0.5, 3.0], [0.7, 2.0]])
    >>> [block.tolist() for block in stack.blocks]
    [[[0, 0]], [[0, 1], [1, 0]]]
    >>> stack.rows(np.array([[1, 1]])).tolist()
    [[0.7, 3.0]]
    """

    blocks: tuple[Indices, ...]
    numeric: Flags
    whole: Flags
    _firsts: tuple[Indices, ...]
    _joined: JoinedColumns

    @classmethod
    def of(
        cls,
        *tables: Any,
        called: Sequence[str] = ("factuals", "counterfactuals", "background"),
        categorical: Iterable[Any] = (),
    ) -> StackedRows:
        """Return tables stacked.

        Parameters
        ----------
        tables : arrays or data frames (n, d)
            All arrays, or all frames of one kind with the same columns.
        called : sequence of str
            What to call them in messages.
        categorical : iterable of str or int
            Columns of numbers that are codes of categories.

        Raises
        ------
        DataError
            Shapes, columns or types that do not fit, empty tables, numbers that are missing or
            infinite.
        """
        joined = JoinedColumns.of(tables, called)
        values = [cell_values(column) for column in joined.columns]
        coded = [_coded(v) for v in values]
        codes = np.stack([c for c, _ in coded], axis=1)
        numeric = np.array([v.dtype.kind in "iuf" for v in values])
        whole = np.array([v.dtype.kind in "iu" for v in values])
        numeric[column_indices(joined.names, categorical)] = False
        for j in np.flatnonzero(numeric):
            bad = ~np.isfinite(values[j].astype(np.float64))
            if bad.any():
                raise DataError(
                    f"column {joined.names[j]!r} has {int(bad.sum())} missing or infinite numbers",
                    "distances between rows and averages are not defined with them",
                    "impute them before, or name the column in categorical=",
                )
        ends = np.cumsum(joined.sizes)[:-1]
        return cls(
            tuple(np.split(codes, ends)),
            numeric,
            whole & numeric,
            tuple(first for _, first in coded),
            joined,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self._joined.names

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of different values of each column."""
        return tuple(first.size for first in self._firsts)

    def vocabulary(self, column: int) -> NDArray[Any]:
        """Return the different values of a column, by code."""
        return cell_values(self._joined.columns[column])[self._firsts[column]]

    def numbers(self, codes: Indices, column: int) -> Floats:
        """Return a numeric column of coded rows as numbers."""
        return np.asarray(self.vocabulary(column).astype(np.float64)[codes[:, column]])

    def rows(self, codes: Indices) -> Any:
        """Return coded rows in the container of the first table.

        Parameters
        ----------
        codes : int array (m, d)
            Rows.
        """
        columns = zip(self._joined.columns, self._firsts, strict=True)
        return self._joined.table([c[first[codes[:, j]]] for j, (c, first) in enumerate(columns)])

    def with_numbers(self, numbers: Floats, codes: Indices) -> tuple[StackedRows, Indices]:
        """Return the stack that knows further numbers, and the codes of these rows in it.

        Parameters
        ----------
        numbers : array (m, d)
            Values of the numeric columns; other columns of it are not read.
        codes : int array (m, d)
            Codes of the rows in the other columns.
        """
        columns, firsts = list(self._joined.columns), list(self._firsts)
        blocks, found = [b.copy() for b in self.blocks], codes.copy()
        for j in np.flatnonzero(self.numeric):
            longer = lengthened(columns[j], numbers[:, j])
            code, first = _coded(cell_values(longer))
            own = code[firsts[j]]  # new code of each old code
            for block in blocks:
                block[:, j] = own[block[:, j]]
            found[:, j] = code[code.size - numbers.shape[0] :]
            columns[j], firsts[j] = longer, first
        joined = replace(self._joined, columns=tuple(columns))
        changed = replace(self, blocks=tuple(blocks), _firsts=tuple(firsts), _joined=joined)
        return changed, found


def column_indices(names: Sequence[str], columns: Iterable[Any]) -> Indices:
    """Return the places of columns given by name or number.

    Raises
    ------
    DataError
        No such column.
    """
    found = []
    for column in (columns,) if isinstance(columns, str) else columns:
        if isinstance(column, (int, np.integer)) and not isinstance(column, bool):
            if not 0 <= column < len(names):
                raise DataError(
                    f"no column {int(column)}", f"there are {len(names)}", "count them from 0"
                )
            found.append(int(column))
        elif str(column) in names:
            found.append(list(names).index(str(column)))
        else:
            raise DataError(f"no column {column!r}", remedy=nearest(str(column), names))
    return np.array(found, dtype=np.intp)


def _coded(values: NDArray[Any]) -> tuple[Indices, Indices]:
    """Return the code of every value, and where each code comes first."""
    if values.dtype.kind in "iufb":
        _, first, codes = np.unique(values, return_index=True, return_inverse=True)
        return codes.astype(np.intp), first.astype(np.intp)
    seen: dict[Any, int] = {}
    codes = np.empty(values.size, dtype=np.intp)
    first_list: list[int] = []
    for i, value in enumerate(values.tolist()):
        # a missing value is not equal to itself, but one cell without a value is like another
        key = None if value is None or value != value else value
        if key not in seen:
            seen[key] = len(first_list)
            first_list.append(i)
        codes[i] = seen[key]
    return codes, np.array(first_list, dtype=np.intp)
