"""Rows with categories, as numbers: each category by its position among those of all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.rows.columns import (
    MANY,
    Columns,
    column_of,
    column_position,
    is_text,
    known_values,
)
from optfair.rows.dask_rows import DaskRows
from optfair.rows.frames import column_names
from optfair.rows.parquet_rows import ParquetRows
from optfair.rows.row_source import Chunk, ChunkFactory, RowSource

T = TypeVar("T")
Tables = tuple[NDArray[Any], ...]

__all__ = ["CodedRows", "code_columns", "with_codes"]


@dataclass(frozen=True, eq=False)
class CodedRows(RowSource):
    """A source whose categories became positions in the lists of ``columns``, or -1.

    Parameters
    ----------
    inner : RowSource
        Rows as given.
    columns : Columns
        Which columns are categories, and all that there are.
    """

    inner: RowSource
    columns: Columns

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, from the first one on."""
        return map(_Coder(self.columns), self.inner.chunks())

    def map_reduce(
        self, function: Callable[[Chunk], T], combine: Callable[[T, T], T], n_jobs: int = 1
    ) -> T:
        """Return the results of one pass; rows are coded where they are."""
        coded: Callable[[Chunk], T] = _Then(_Coder(self.columns), function)
        return self.inner.map_reduce(coded, combine, n_jobs)


def with_codes(
    source: RowSource, categorical: Any, n_jobs: int = 1
) -> tuple[RowSource, Columns | None]:
    """Return a source of numbers, and its columns where some are categories.

    Which columns hold text is read off the first chunk; a pass over all rows then collects their
    categories. Without such columns there is no pass.

    Parameters
    ----------
    source : RowSource
        Rows as given.
    categorical : "auto", or sequence of names or positions
        As of `FairMixture`.
    n_jobs : int
        Threads.

    Raises
    ------
    DataError
        Columns that are not there, too many categories, a column without any.
    """
    first = next(iter(source.chunks()), None)
    if first is None:
        return source, None
    names, width = column_names(first.X) or first.names, int(np.shape(first.X)[1])
    if isinstance(categorical, str):
        if categorical != "auto":
            raise DataError(
                f"categorical={categorical!r} is neither 'auto' nor a list of columns",
                remedy="give names or positions in a list",
            )
        chosen = (
            [] if names is None else [j for j in range(width) if is_text(column_of(first.X, j))]
        )
    else:
        chosen = sorted({column_position(c, names, width) for c in categorical})
    if not chosen:
        if isinstance(source, (ChunkFactory, DaskRows, ParquetRows)):
            return replace(source, text=False), None
        return source, None
    empty = Columns(names, width, tuple(chosen), tuple(np.array([]) for _ in chosen))
    tables = source.map_reduce(_Collector(empty), _united, n_jobs)
    for j, found in zip(chosen, tables, strict=True):
        if not 0 < found.size < MANY:
            raise DataError(
                f"column {j if names is None else names[j]} has {found.size} categories",
                remedy="leave it out, or bin it first",
            )
    columns = replace(empty, categories=tables)
    return CodedRows(source, columns), columns


def code_columns(columns: Columns) -> Columns:
    """Return the columns of coded rows: positions are their categories, and -1 is none."""
    positions = tuple(np.arange(c.size, dtype=float) for c in columns.categories)
    return Columns(None, columns.width, columns.categorical, positions)


@dataclass(frozen=True, eq=False)
class _Coder:
    """The map from a chunk to numbers; an object, so that it travels to workers."""

    columns: Columns

    def __call__(self, chunk: Chunk) -> Chunk:
        c = self.columns
        try:
            rows = c.encoded(chunk.X)
        except DataError as e:
            raise DataError(f"chunk {chunk.index}: {e.cause}", e.evidence, e.remedy) from None
        X = rows.numeric
        if c.categorical:
            X = np.empty((rows.count, c.width))
            X[:, list(c.numeric)] = rows.numeric
            X[:, list(c.categorical)] = rows.codes
        return Chunk(X, chunk.labels, chunk.weights, chunk.index, c.names)


@dataclass(frozen=True, eq=False)
class _Collector:
    """The map of the pass over categories."""

    columns: Columns

    def __call__(self, chunk: Chunk) -> Tables:
        own, c = column_names(chunk.X), self.columns
        if int(np.shape(chunk.X)[1]) != c.width or (own is not None and own != c.names):
            got = f"{np.shape(chunk.X)[1]} columns" if own is None else ", ".join(own)
            first = f"{c.width} columns" if c.names is None else ", ".join(c.names)
            raise DataError(
                f"chunk {chunk.index} has other columns than the first",
                f"got {got}; the first has {first}",
                "give every chunk the same columns in the same order",
            )
        tables = []
        for j in c.categorical:
            values, missing = known_values(column_of(chunk.X, j))
            tables.append(np.unique(values[~missing]))
        return tuple(tables)


def _united(a: Tables, b: Tables) -> Tables:
    # a chunk where all are missing knows no type
    return tuple(
        np.union1d(s, t) if s.size and t.size else (s if s.size else t)
        for s, t in zip(a, b, strict=True)
    )


@dataclass(frozen=True, eq=False)
class _Then:
    """One map after another."""

    first: Callable[[Chunk], Chunk]
    second: Callable[[Chunk], Any]

    def __call__(self, chunk: Chunk) -> Any:
        return self.second(self.first(chunk))
