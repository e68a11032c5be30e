"""Rows before and after, cell by cell: where they differ, and rows with some cells exchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, NotInstalled
from optfair.features.feature_problem import feature_names

Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

__all__ = ["Cells"]


@dataclass(frozen=True, eq=False)
class Cells:
    """Factual rows and the value each cell may take instead.

    Parameters
    ----------
    factuals, values : arrays (n, d) or data frames with the same columns
        Rows as they are, and the value assigned to every cell. Entries may be categories.

    Examples
    --------
    >>> import numpy as np
    >>> cells = Cells.of([[1.0, 2.0], [3.0, 4.0]], [[1.0, 5.0], [6.0, 7.0]])
    >>> cells.differ.tolist()
    [[False, True], [True, True]]
    >>> cells.rows(np.array([1]), np.array([[True, False]])).tolist()
    [[6.0, 4.0]]
    """

    factuals: Any
    values: Any
    names: tuple[str, ...]
    differ: Flags

    @classmethod
    def of(cls, factuals: Any, values: Any) -> Cells:
        """Return cells from rows; frames keep their type and the types of their columns.

        Raises
        ------
        DataError
            Shapes or columns that do not fit, missing entries.
        """
        framed = [hasattr(x, "columns") for x in (factuals, values)]
        if framed[0] != framed[1]:
            raise DataError(
                "one of factuals and values is a data frame, the other is not",
                remedy="give both as frames, or both as arrays",
            )
        before: Any
        after: Any
        before, after = (x if framed[0] else _array(x) for x in (factuals, values))
        if before.shape != after.shape or len(before.shape) != 2 or 0 in before.shape:
            raise DataError(
                "values does not fit the factuals",
                f"shapes {after.shape} and {before.shape}",
                "give the value of every cell of every factual row, aligned row by row",
            )
        names = feature_names(before, before.shape[1])
        if framed[0] and list(after.columns) != list(before.columns):
            raise DataError(
                "values has other columns than the factuals",
                f"{', '.join(map(str, after.columns))}; {', '.join(names)}",
                "give the same columns in the same order",
            )
        columns = [
            (_column(before, j), _column(after, j), names[j]) for j in range(before.shape[1])
        ]
        for x, q, name in columns:
            for where, column in (("factuals", x), ("values", q)):
                missing = _missing(column)
                if missing.any():
                    row = int(np.flatnonzero(missing)[0])
                    raise DataError(
                        f"{where} has missing entries in {name!r}",
                        f"the first is in row {row}",
                        "drop or impute them: it cannot be told whether such a cell changes",
                    )
        differ = np.stack([np.asarray(x != q, dtype=bool) for x, q, _ in columns], axis=1)
        return cls(before, after, names, differ)

    def column(self, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (factuals, values) of one feature."""
        return _column(self.factuals, index), _column(self.values, index)

    def rows(self, index: Indices, edits: Flags) -> Any:
        """Return some of the rows with the edited cells exchanged, in the container given.

        Parameters
        ----------
        index : int array (m,)
            Rows, with repetition.
        edits : bool array (m, d)
            Cells that take the new value.
        """
        if not hasattr(self.factuals, "columns"):
            return np.where(edits, self.values[index], self.factuals[index])
        try:
            import narwhals as nw
        except ImportError:
            raise NotInstalled(
                "rows in data frames need narwhals",
                "the module 'narwhals' was not found",
                "pip install optfair[frames], or give arrays",
            ) from None

        both = nw.concat([nw.from_native(self.factuals), nw.from_native(self.values)])
        n = self.factuals.shape[0]
        place = index[:, None] + n * edits
        # column by column, so that each keeps its type
        native = [both[name][place[:, j]].to_native() for j, name in enumerate(both.columns)]
        if hasattr(native[0], "reset_index"):  # pandas would align columns by their old labels
            native = [series.reset_index(drop=True) for series in native]
        return type(self.factuals)(dict(zip(both.columns, native, strict=True)))


def _array(rows: Any) -> NDArray[Any]:
    try:
        array = np.array(rows)
    except ValueError as e:
        raise DataError("rows have different lengths", str(e), "give rows x columns") from None
    if array.dtype.kind in "US":  # numbers and text together would all become text
        array = np.array(rows, dtype=object)
    return array


def _column(rows: Any, index: int) -> NDArray[Any]:
    if hasattr(rows, "columns"):
        return np.asarray(rows[rows.columns[index]])
    return np.asarray(rows[:, index])


def _missing(column: NDArray[Any]) -> Flags:
    if column.dtype == object:
        return np.array([v is None or v is not v or v != v for v in column], dtype=bool)
    return np.asarray(column != column)
