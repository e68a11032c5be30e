"""From what users have to a source of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from optfair.errors import DataError
from optfair.rows.columns import without_groups
from optfair.rows.dask_rows import DaskRows, is_dask
from optfair.rows.frames import taken_apart
from optfair.rows.parquet_rows import ParquetRows
from optfair.rows.row_source import CHUNK, ChunkFactory, MatrixRows, RowSource

__all__ = ["row_source"]


def row_source(
    data: Any,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    chunk_rows: int = CHUNK,
    text: bool = False,
    grouped: bool = True,
) -> RowSource:
    """Return a source that reads rows in chunks, in as many passes as are asked for.

    Parameters
    ----------
    data : callable, path, array, memory map, DataFrame, Dask array or frame, or RowSource
        A function that returns a new iterator of chunks ``(X, groups)``,
        ``(X, groups, weights)`` or data frames for each pass; a parquet file or folder; rows.
    groups : array-like (n,), Dask array or series, or str
        Group label of each row, or the name of a column; chunks of a function may carry theirs.
    sample_weight : array-like (n,), Dask array or series, or str, optional
        Weights, as groups.
    chunk_rows : int
        Rows per chunk, of arrays and parquet.
    text : bool
        Whether columns may hold text; see `optfair.rows.coded_rows`.
    grouped : bool
        Whether groups are needed; where they are left out all labels are 0 otherwise.

    Returns
    -------
    RowSource

    Raises
    ------
    DataError
        An iterator, which can be read only once; groups missing where they are needed.

    Examples
    --------
    >>> import numpy as np
    >>> from optfair.rows.sources import row_source
    >>> X, groups = np.arange(8.0).reshape(4, 2), ["a", "b", "a", "b"]
    >>> source = row_source(X, groups, chunk_rows=3)
    >>> [len(chunk.X) for chunk in source.chunks()]
    [3, 1]
    >>> source = row_source(lambda: iter([(X[:2], groups[:2]), (X[2:], groups[2:])]))
    >>> [len(chunk.X) for chunk in source.chunks()]
    [2, 2]
    """
    if int(chunk_rows) != chunk_rows or chunk_rows < 1:
        raise DataError(
            f"chunk_rows={chunk_rows!r} is not a positive integer", remedy="give e.g. 65536"
        )
    if isinstance(data, RowSource):
        return data
    if hasattr(data, "__next__"):
        raise DataError(
            "an iterator can be read only once, and a fit makes several passes",
            f"data is a {type(data).__name__}",
            "give a function that returns a new iterator, e.g. fit_stream(read) for def read()",
        )
    if is_dask(data):
        _need(groups)
        return DaskRows(data, groups, sample_weight, text)
    if isinstance(data, (str, Path)):
        return ParquetRows(data, groups, sample_weight, chunk_rows, text, grouped)
    if callable(data):
        for name, given in (("groups", groups), ("sample_weight", sample_weight)):
            if given is not None and not isinstance(given, str):
                raise DataError(
                    f"{name} is a {type(given).__name__}, and the data are a function of chunks",
                    "nothing says which of its entries belong to which chunk",
                    "yield (X, groups) or (X, groups, weights), or name a column of the chunks",
                )
        return ChunkFactory(data, groups, sample_weight, text, grouped)
    if not hasattr(data, "columns"):
        data = _table(data)
    if groups is None and not grouped:
        groups = np.broadcast_to(np.intp(0), len(data))
    _need(groups)
    if hasattr(data, "columns"):
        weights = sample_weight
        if isinstance(weights, str):
            weights, data = data[weights], data[[c for c in data.columns if str(c) != weights]]
        if text:
            return _sliced(*without_groups(data, groups), weights, chunk_rows)
        rows, labels, _ = taken_apart(data, groups)
        return MatrixRows(rows, labels, weights, chunk_rows)
    labels = groups if isinstance(groups, np.ndarray) else np.asarray(groups)
    if text and data.dtype.kind not in "iufb":
        return _sliced(data, labels, sample_weight, chunk_rows)
    return MatrixRows(data, labels, sample_weight, chunk_rows)


def _table(data: Any) -> Any:
    try:
        X = data if isinstance(data, np.ndarray) else np.asarray(data)
    except ValueError:  # chunks of different sizes, say
        X = np.empty(())
    if X.ndim == 2:
        return X
    raise DataError(
        f"data is a {type(data).__name__} that is no table",
        f"shape {X.shape}" if X.shape else "its entries make no rows of the same length",
        "give rows x columns; a list of chunks as a function: fit_stream(lambda: iter(chunks))",
    )


def _sliced(rows: Any, labels: Any, weights: Any, chunk_rows: int) -> RowSource:
    """Return slices of a table with text, as they are."""
    named = np.asarray(labels)
    for what, given in (("groups", named), ("sample_weight", weights)):
        if given is not None and np.shape(given) != (len(rows),):
            raise DataError(
                f"{what} does not fit the rows",
                f"shape {np.shape(given)} for {len(rows)} rows",
                "give one per row",
            )
    w = None if weights is None else np.asarray(weights, dtype=float)

    def slices() -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(rows), chunk_rows):
            part = slice(start, start + chunk_rows)
            yield (rows[part], named[part], *(() if w is None else (w[part],)))

    return ChunkFactory(slices, text=True)


def _need(groups: Any) -> None:
    if groups is None:
        raise DataError(
            "groups are missing", remedy="give one label per row, or the name of a column"
        )
