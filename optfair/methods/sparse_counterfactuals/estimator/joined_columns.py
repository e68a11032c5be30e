"""Columns of several tables, one below the other, and tables made of them again."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, NotInstalled
from optfair.features.feature_problem import feature_names

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

__all__ = ["JoinedColumns", "cell_values", "lengthened"]


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
            found = np.empty((columns[0].shape[0], len(columns)), dtype=self.container)
            for j, column in enumerate(columns):
                found[:, j] = column
            return found
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
    try:
        import narwhals as nw
    except ImportError as e:
        raise NotInstalled(
            "narwhals is not installed", str(e), 'pip install "optfair[frames]"'
        ) from None
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
