"""Tables of the same columns, one below the other, with equal cells recognised, and made tables again."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.attributes import is_missing
from optfair.errors import DataError, needed
from optfair.features.feature_problem import column_index, feature_names
from optfair.numbers import Flags, Floats, Indices

# Columns of several tables, one below the other, and tables made of them again.


@dataclass(frozen=True, eq=False)
class JoinedColumns:
    """Columns of several tables, one below the other.

    Attributes
    ----------
    names : tuple of str
        Names of the columns.
    sizes : tuple of int
        Rows of each table.
    columns : tuple of arrays or narwhals.Series
        Cells of all tables, in the types of the first where all of them fit.
    labels : tuple
        Columns as a data frame calls them.
    container : type or numpy.dtype
        Type of a data frame, or of the entries of an array.

    Examples
    --------
    >>> joined = JoinedColumns.of([[[1, 2]], [[3, 4.5]]], ("factuals", "counterfactuals"))
    >>> [column.tolist() for column in joined.columns], joined.names
    ([[1.0, 3.0], [2.0, 4.5]], ('x0', 'x1'))
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    columns: tuple[Any, ...]
    labels: tuple[Any, ...]
    container: Any

    @classmethod
    def of(cls, tables: Sequence[Any], called: Sequence[str]) -> JoinedColumns:
        """Return the columns of tables.

        Parameters
        ----------
        tables : sequence of arrays or data frames (n, d)
            All arrays, or all frames of one kind with the same columns.
        called : sequence of str
            What to call them in messages.

        Raises
        ------
        DataError
            Kinds of tables, shapes, columns or types that do not fit, empty tables.
        """
        kinds = [type(t).__module__.split(".")[0] if hasattr(t, "columns") else "" for t in tables]
        if len(set(kinds)) > 1:
            said = ", ".join(
                f"{name} is a data frame of {kind}" if kind else f"{name} is no data frame"
                for name, kind in zip(called, kinds, strict=False)
            )
            raise DataError(
                "data frames and arrays, or data frames of different kinds, are mixed",
                said,
                "give all as frames of one kind, or all as arrays",
            )
        return _from_frames(tables, called) if kinds[0] else _from_arrays(tables, called)

    def table(self, columns: Sequence[Any]) -> Any:
        """Return columns in the container of the tables."""
        if isinstance(self.container, np.dtype):
            array = np.empty((columns[0].shape[0], len(columns)), dtype=self.container)
            for j, column in enumerate(columns):
                array[:, j] = column
            return array
        native = [column.to_native() for column in columns]
        if hasattr(native[0], "reset_index"):
            # pandas would align the columns by their old labels
            native = [series.reset_index(drop=True) for series in native]
        return self.container(dict(zip(self.labels, native, strict=True)))


def cell_values(column: Any) -> NDArray[Any]:
    """Return the cells of a column as an array: of numbers where all of them are numbers."""
    values: NDArray[Any] = column if isinstance(column, np.ndarray) else column.to_numpy()
    if values.dtype.kind != "O":
        return values
    if all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in values):
        return np.asarray(values.tolist())
    if not isinstance(column, np.ndarray):
        missing = column.is_null().to_numpy()
        if missing.any():  # pandas has several marks, some without a truth value
            values = values.copy()
            values[missing] = None
    return values


def lengthened(column: Any, values: Floats) -> Any:
    """Return a column with numbers below it, of its own type."""
    if isinstance(column, np.ndarray):
        return np.concatenate([column, values.astype(column.dtype)])
    import narwhals as nw

    space = nw.get_native_namespace(column)
    new = nw.new_series(column.name, values.tolist(), nw.Float64, backend=space)
    frames = [column.to_frame(), new.cast(column.dtype).to_frame()]
    return nw.concat(frames)[column.name]


def _from_arrays(tables: Sequence[Any], called: Sequence[str]) -> JoinedColumns:
    arrays = []
    for table, name in zip(tables, called, strict=False):
        try:
            array = np.asarray(table)
            if array.dtype.kind in "US":  # numbers and text together would all become text
                array = np.asarray(table, dtype=object)
        except ValueError as e:
            raise DataError(
                f"{name} has rows of different lengths", str(e), "give every row the same columns"
            ) from None
        _check_shape(array.shape, name)
        arrays.append(array)
    width = arrays[0].shape[1]
    for array, name in zip(arrays, called, strict=False):
        if array.shape[1] != width:
            raise DataError(
                f"{name} has {array.shape[1]} columns, the {called[0]} have {width}",
                remedy="give the same features in the same order",
            )
    kind = np.result_type(*arrays) if all(a.dtype.kind in "iufb" for a in arrays) else object
    together = np.concatenate([array.astype(kind) for array in arrays])
    names = feature_names(None, width)
    sizes = tuple(array.shape[0] for array in arrays)
    return JoinedColumns(names, sizes, tuple(together.T), names, together.dtype)


def _from_frames(tables: Sequence[Any], called: Sequence[str]) -> JoinedColumns:
    nw = needed("narwhals", 'pip install "optfair[frames]"')
    names = feature_names(tables[0], tables[0].shape[1])
    for table, name in zip(tables, called, strict=False):
        _check_shape(table.shape, name)
        if [str(c) for c in table.columns] != list(names):
            own = [str(c) for c in table.columns]
            less, more = [c for c in names if c not in own], [c for c in own if c not in names]
            evidence = [f"there is no {', '.join(less)}"] if less else []
            evidence += [f"there is {', '.join(more)}"] if more else []
            raise DataError(
                f"{name} has other columns than the {called[0]}",
                ", and ".join(evidence) or f"in the order {', '.join(own)}",
                f"give {', '.join(names)}, in this order",
            )
    frames = [nw.from_native(table, eager_only=True) for table in tables]
    columns = [_joined([frame[:, j] for frame in frames], name) for j, name in enumerate(names)]
    sizes = tuple(frame.shape[0] for frame in frames)
    return JoinedColumns(names, sizes, tuple(columns), tuple(tables[0].columns), type(tables[0]))


def _joined(parts: Sequence[Any], name: str) -> Any:
    """Return the column of all tables, of the type it has in the first where all cells fit it."""
    import narwhals as nw

    types = [part.dtype for part in parts]
    if len(set(types)) > 1:
        if not all(t.is_numeric() for t in types):
            raise DataError(
                f"column {name!r} has different types",
                ", ".join(sorted({str(t) for t in types})),
                "give it the type it has in the factuals",
            )
        # generators give whole numbers as 3.0
        fitting = types[0] if all(_fits(part, types[0]) for part in parts) else nw.Float64
        parts = [part.cast(fitting) for part in parts]
    together = nw.concat([part.alias("x").to_frame() for part in parts])["x"]
    if together.dtype != parts[0].dtype:  # pandas drops categories that are not the same
        together = _united([part.to_native() for part in parts], name)
    return together.alias(name)


def _fits(part: Any, whole: Any) -> bool:
    """Return whether all numbers of a column can have a type of whole numbers."""
    if not whole.is_integer():
        return False
    values = part.to_numpy().astype(np.float64)
    limits = np.iinfo(str(whole).lower())
    fits = (values == np.rint(values)) & (values >= limits.min) & (values <= limits.max)
    return bool(fits.all())


def _united(parts: Sequence[Any], name: str) -> Any:
    import narwhals as nw
    import pandas as pd

    try:
        united = pd.api.types.union_categoricals(list(parts))
    except TypeError as e:
        raise DataError(
            f"column {name!r} has different categories",
            str(e),
            "give it the categories it has in the factuals",
        ) from None
    return nw.from_native(pd.Series(united), series_only=True)


def _check_shape(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2 or 0 in shape:
        raise DataError(
            f"{name} is no table with rows", f"shape {shape}", "give rows x columns, at least one"
        )


# Tables of the same columns, one below the other, with equal cells recognised.


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
        blocks, changed_codes = [b.copy() for b in self.blocks], codes.copy()
        for j in np.flatnonzero(self.numeric):
            longer = lengthened(columns[j], numbers[:, j])
            code, first = _coded(cell_values(longer))
            own = code[firsts[j]]  # new code of each old code
            for block in blocks:
                block[:, j] = own[block[:, j]]
            changed_codes[:, j] = code[code.size - numbers.shape[0] :]
            columns[j], firsts[j] = longer, first
        joined = replace(self._joined, columns=tuple(columns))
        changed = replace(self, blocks=tuple(blocks), _firsts=tuple(firsts), _joined=joined)
        return changed, changed_codes


def column_indices(names: Sequence[str], columns: Iterable[Any] | None) -> Indices:
    """Return the places of columns given by name or number; None is none.

    Raises
    ------
    DataError
        No such column.
    """
    each = (columns,) if isinstance(columns, str) else () if columns is None else columns
    return np.array([column_index(names, column, "column") for column in each], dtype=np.intp)


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


# Rows before and after, cell by cell: where they differ, and rows with some cells exchanged.


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

    joined: JoinedColumns
    differ: Flags

    @classmethod
    def of(cls, factuals: Any, values: Any) -> Cells:
        """Return cells from rows; frames keep their type and the types of their columns.

        Raises
        ------
        DataError
            Shapes or columns that do not fit, missing entries.
        """
        joined = JoinedColumns.of((factuals, values), ("factuals", "values"))
        n, m = joined.sizes
        if n != m:
            raise DataError(
                "values does not fit the factuals",
                f"{m} rows for {n}",
                "give the value of every cell of every factual row, aligned row by row",
            )
        columns = [cell_values(column) for column in joined.columns]
        for name, column in zip(joined.names, columns, strict=True):
            missing = np.flatnonzero(_missing(column))
            if missing.size:
                where = "factuals" if missing[0] < n else "values"
                raise DataError(
                    f"{where} has missing entries in {name!r}",
                    f"the first is in row {int(missing[0]) % n}",
                    "drop or impute them: it cannot be told whether such a cell changes",
                )
        differ = np.stack([np.asarray(x[:n] != x[n:], dtype=bool) for x in columns], axis=1)
        return cls(joined, differ)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.joined.names

    def column(self, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (factuals, values) of one feature."""
        before, after = np.split(cell_values(self.joined.columns[index]), 2)
        return before, after

    def rows(self, index: Indices, edits: Flags) -> Any:
        """Return some of the rows with the edited cells exchanged, in the container given.

        Parameters
        ----------
        index : int array (m,)
            Rows, with repetition.
        edits : bool array (m, d)
            Cells that take the new value.
        """
        # column by column, so that each keeps its type
        place = index[:, None] + self.differ.shape[0] * edits
        return self.joined.table([c[place[:, j]] for j, c in enumerate(self.joined.columns)])


def _missing(column: NDArray[Any]) -> Flags:
    if column.dtype == object:
        return np.array([is_missing(v) for v in column], dtype=bool)
    return np.asarray(column != column)
