"""Rows that are read chunk by chunk, as often as an algorithm asks, from whatever users have."""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from optfair.attributes import attribute_names
from optfair.errors import DataError, kind_of
from optfair.numbers import check_fit, check_labels, check_table, floats
from optfair.rows.frames import (
    Columns,
    categories_of,
    check_row_order,
    chosen_columns,
    column_names,
    same_names,
    taken_apart,
    without_groups,
)

# Rows that are read chunk by chunk, as often as an algorithm asks, and summed up on the way.

T = TypeVar("T")


# Rows per chunk where the source does not say: 13 MB of 25 columns.
CHUNK = 65_536


class Summed:
    """A dataclass of sums over rows: ``a + b`` adds field by field, None where either has none."""

    def __add__(self, other: Self) -> Self:
        names = [f.name for f in fields(cast(Any, self))]
        pairs = [(getattr(self, name), getattr(other, name)) for name in names]
        return type(self)(*(None if a is None or b is None else a + b for a, b in pairs))


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some consecutive rows.

    Attributes
    ----------
    X : array (m, d)
        Rows.
    labels : array (m,)
        Group label of each row.
    weights : array (m,) or None
        Weight of each row as given; None for 1.
    index : int
        Number of the chunk, from 0.
    names : tuple of str or None
        Names of the columns.
    attributes : tuple of str
        What labels name, where groups had several columns.
    """

    X: Any = field(repr=False)
    labels: Any = field(repr=False)
    weights: Any = field(repr=False)
    index: int
    names: tuple[str, ...] | None = None
    attributes: tuple[str, ...] = ()


class RowSource(abc.ABC):
    """Rows that can be read any number of times, always the same and in the same order.

    One method makes a source: `chunks`. Whoever can do better than to loop over them, such as
    a cluster, overrides `map_reduce` too. Results do not depend on how many threads or
    workers read: partial results are always added up in the order of the chunks.

    Examples
    --------
    >>> import numpy as np
    >>> source = MatrixRows(np.arange(6.0)[:, None], list("ababab"), chunk_rows=4)
    >>> source.map_reduce(lambda chunk: float(chunk.X.sum()), lambda a, b: a + b)
    15.0
    """

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory anyhow, the same in every pass."""
        return False

    @abc.abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, from the first one on."""

    def map_reduce(
        self, function: Callable[[Chunk], T], combine: Callable[[T, T], T], n_jobs: int = 1
    ) -> T:
        """Return the results of one pass over all chunks, combined from left to right.

        Parameters
        ----------
        function : callable
            From a chunk to a result much smaller than the chunk.
        combine : callable
            Adds two results up; associative.
        n_jobs : int
            Threads.

        Raises
        ------
        DataError
            There are no rows.
        """
        total: list[T] = []

        def add(result: T) -> None:
            total[:] = [combine(total[0], result)] if total else [result]

        if n_jobs == 1:
            for chunk in self.chunks():
                add(function(chunk))
        else:
            with ThreadPoolExecutor(n_jobs) as pool:
                waiting: deque[Future[T]] = deque()
                for chunk in self.chunks():
                    waiting.append(pool.submit(function, chunk))
                    del chunk  # a chunk waits once, not twice
                    if len(waiting) > n_jobs:
                        add(waiting.popleft().result())
                while waiting:
                    add(waiting.popleft().result())
        if not total:
            raise DataError(
                "the source gives no rows",
                "it ended before the first chunk",
                "an iterator is read once: give a function that returns a new one for each pass",
            )
        return total[0]


@dataclass(frozen=True, eq=False)
class ChunkFactory(RowSource):
    """Chunks of a function that returns a new iterator for every pass.

    Parameters
    ----------
    make : callable
        Takes nothing and returns an iterator of ``(X, groups)``, ``(X, groups, weights)``, or of
        data frames whose columns ``groups`` and ``sample_weight`` name.
    groups, sample_weight : str, optional
        Names of columns, where chunks are data frames; groups may be several.
    text : bool
        Whether columns may hold text; chunks then have the rows as given.
    grouped : bool
        Whether chunks must have groups; labels that are left out are 0 otherwise.

    Raises
    ------
    DataError
        A function that returns nothing to go through.
    """

    make: Callable[[], Any]
    groups: str | list[str] | None = None
    sample_weight: str | None = None
    text: bool = False
    grouped: bool = True

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, from the first one on."""
        made = self.make()
        if not hasattr(made, "__iter__"):
            raise DataError(
                "the function of chunks returns no iterator",
                f"it returned {kind_of(made)}",
                "yield (X, groups) in it, or return an iterator over such pairs",
            )
        for index, given in enumerate(made):
            X = given[0] if isinstance(given, tuple) and given else given
            if _is_table(X) and len(X) == 0:  # a filter left none of its rows
                continue
            yield chunk_of(given, index, self.groups, self.sample_weight, self.text, self.grouped)


@dataclass(frozen=True, eq=False)
class MatrixRows(RowSource):
    """Rows of an array or a memory map, of which only one chunk at a time is copied.

    Parameters
    ----------
    X : array or numpy.memmap (n, d)
        Rows, of any kind of numbers.
    labels : array-like (n,)
        Group label of each row; a memory map is read in chunks too.
    weights : array-like (n,), optional
        Weights.
    chunk_rows : int
        Rows per chunk.
    """

    X: Any
    labels: Any
    weights: Any = None
    chunk_rows: int = CHUNK

    def __post_init__(self) -> None:
        for name, given in (("groups", self.labels), ("sample_weight", self.weights)):
            if given is not None:
                dates = np.asanyarray(given).dtype.kind == "M"  # no weights: these are read later
                check_fit(given if dates else check_table(given, name), name, len(self.X))

    @property
    def in_memory(self) -> bool:
        """Whether the rows are an array, not a memory map."""
        return type(self.X) is np.ndarray

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, from the first one on."""
        labels = np.asanyarray(self.labels)
        weights = None if self.weights is None else np.asanyarray(self.weights)
        for index, start in enumerate(range(0, len(self.X), self.chunk_rows)):
            rows = slice(start, start + self.chunk_rows)
            w = None if weights is None else floats(weights[rows], "sample_weight")
            yield Chunk(floats(self.X[rows], "X"), np.asarray(labels[rows]), w, index)


def chunk_of(
    given: Any,
    index: int,
    groups: str | list[str] | None,
    sample_weight: str | None,
    text: bool,
    grouped: bool = True,
) -> Chunk:
    """Return what a source gave as a chunk, of finite numbers unless text is allowed.

    Parameters
    ----------
    given : (X, groups), (X, groups, weights) or DataFrame
        One chunk as users write it.
    index : int
        Its number.
    groups, sample_weight : str, optional
        Names of columns of a data frame; groups may be several.
    text : bool
        Whether columns may hold text; the rows then stay as they are.
    grouped : bool
        Whether there must be groups; labels that are left out are 0 otherwise.

    Raises
    ------
    DataError
        Something else, columns that are not there, entries that are no finite numbers.
    """
    weights = None
    if isinstance(given, tuple) and len(given) in (2, 3):
        X, labels = given[:2]
        weights = given[2] if len(given) == 3 else None
    elif hasattr(given, "columns") and groups is not None:
        X, labels = given, groups
    elif not grouped and _is_table(given):
        X, labels = given, None
    else:
        parts = f"it has {len(given)} parts" if isinstance(given, tuple) else ""
        raise DataError(
            f"chunk {index} is {kind_of(given)}",
            "it has no groups" if _is_table(given) else parts,
            remedy="yield (X, groups), (X, groups, weights), or data frames with groups= naming"
            " a column",
        )
    if sample_weight is not None:
        names = column_names(X)
        if names is None or sample_weight not in names:
            raise DataError(
                f"chunk {index} has no column {sample_weight!r}",
                remedy="give sample_weight= as the name of a column of every chunk",
            )
        own = X.columns[names.index(sample_weight)]
        weights = X[own]
        X = X[[c for c in X.columns if str(c) != sample_weight]]
    try:
        if text:
            rows, labels = without_groups(X, labels)
            names = column_names(rows)
            rows = np.asarray(rows) if names is None else rows
        else:
            rows, labels, names = taken_apart(X, labels)
    except DataError as e:
        raise DataError(f"chunk {index}: {e.cause}", e.evidence, e.remedy) from None
    if labels is None and not grouped:
        labels = np.zeros(len(rows), dtype=np.intp)
    several = attribute_names(labels)
    labels = _one_each(labels, f"chunk {index}: groups")
    check_fit(labels, f"chunk {index}: groups", len(rows))
    if weights is not None:
        weights = np.asarray(weights, dtype=float)
        check_fit(weights, f"chunk {index}: sample_weight", len(rows))
    return Chunk(rows, labels, weights, index, names, several)


# From what users have to a source of rows.


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
        Group label of each row, a column of them for each attribute, or names of columns; chunks of
        a function may carry theirs.
    sample_weight : array-like (n,), Dask array or series, or str, optional
        Weights, as groups.
    chunk_rows : int
        Rows per chunk, of arrays and parquet.
    text : bool
        Whether columns may hold text; see `optfair.rows.sources`.
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
    from optfair.rows.stored_rows import DaskRows, ParquetRows, is_dask

    if int(chunk_rows) != chunk_rows or chunk_rows < 1:
        raise DataError(
            f"chunk_rows={chunk_rows!r} is not a positive integer", remedy="give e.g. 65536"
        )
    if isinstance(data, RowSource):
        return data
    if hasattr(data, "__next__"):
        raise DataError(
            "an iterator can be read only once, and a fit makes several passes",
            f"data is {kind_of(data)}",
            "give a function that returns a new iterator, e.g. fit_stream(read) for def read()",
        )
    if is_dask(data):
        _need(groups)
        return DaskRows(data, groups, sample_weight, text)
    if isinstance(data, (str, Path)):
        return ParquetRows(data, groups, sample_weight, chunk_rows, text, grouped)
    if callable(data):
        for name, given in (("groups", groups), ("sample_weight", sample_weight)):
            named = name == "groups" and isinstance(given, list)
            named = named and all(isinstance(g, str) for g in given)
            if given is not None and not isinstance(given, str) and not named:
                raise DataError(
                    f"{name} is {kind_of(given)}, and the data are a function of chunks",
                    "nothing says which of its entries belong to which chunk",
                    "yield (X, groups) or (X, groups, weights), or name a column of the chunks",
                )
        return ChunkFactory(data, groups, sample_weight, text, grouped)
    if not hasattr(data, "columns"):
        data = _table(data)
    if groups is None and not grouped:
        groups = np.broadcast_to(np.intp(0), len(data))
    _need(groups)
    check_row_order(data=data, groups=groups, sample_weight=sample_weight)
    if hasattr(data, "columns"):
        weights = sample_weight
        if isinstance(weights, str):
            weights, data = data[weights], data[[c for c in data.columns if str(c) != weights]]
        if text:
            return _sliced(*without_groups(data, groups), weights, chunk_rows)
        rows, labels, _ = taken_apart(data, groups)
        return MatrixRows(rows, _one_each(labels, "groups"), weights, chunk_rows)
    labels = check_labels(groups, "groups")
    text = text and data.dtype.kind not in "iufb"
    return (_sliced if text else MatrixRows)(data, labels, sample_weight, chunk_rows)


def _is_table(given: Any) -> bool:
    try:
        return not isinstance(given, tuple) and np.ndim(given) == 2
    except ValueError:  # lists of several lengths
        return False


def _one_each(labels: Any, what: str) -> NDArray[Any]:
    """Return one label per row: several columns make one that names its attributes."""
    several = hasattr(labels, "columns") or isinstance(labels, Mapping)
    return check_labels(labels, what) if several else np.asanyarray(labels)


def _table(data: Any) -> Any:
    try:
        X = data if isinstance(data, np.ndarray) else np.asarray(data)
    except ValueError:  # chunks of different sizes, say
        X = np.empty(())
    if X.ndim == 2:
        return X
    raise DataError(
        f"data is {kind_of(data)} that is no table",
        f"shape {X.shape}" if X.shape else "its entries make no rows of the same length",
        "give rows x columns; a list of chunks as a function: fit_stream(lambda: iter(chunks))",
    )


def _sliced(rows: Any, labels: Any, weights: Any, chunk_rows: int) -> RowSource:
    """Return slices of a table with text, as they are."""
    named = _one_each(labels, "groups")
    for what, given in (("groups", named), ("sample_weight", weights)):
        if given is not None:
            check_fit(given, what, len(rows))
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


# Rows with categories, as numbers: each category by its position among those of all rows.

Tables = tuple[NDArray[Any], ...]


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
    chosen = chosen_columns(first.X, names, categorical)
    if not chosen:
        from optfair.rows.stored_rows import DaskRows, ParquetRows

        if isinstance(source, (ChunkFactory, DaskRows, ParquetRows)):
            return replace(source, text=False), None
        return source, None
    empty = Columns(names, width, chosen, tuple(np.array([]) for _ in chosen))
    columns = replace(empty, categories=source.map_reduce(_Collector(empty), _united, n_jobs))
    columns.check_categories()
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
        return Chunk(X, chunk.labels, chunk.weights, chunk.index, c.names, chunk.attributes)


def other_columns(index: int, *sides: tuple[tuple[str, ...] | None, int]) -> DataError:
    """Return what is said of a chunk: of its columns and the first's, by names and number."""
    got, first = (f"{size} columns" if names is None else ", ".join(names) for names, size in sides)
    return DataError(
        f"chunk {index} has other columns than the first",
        f"got {got}; the first has {first}",
        "give every chunk the same columns in the same order",
    )


def as_fitted(chunks: Iterable[Chunk], fitted: tuple[str, ...] | None) -> Iterator[Chunk]:
    """Yield chunks whose columns are those of a fit, by their names where both have some."""
    for chunk in chunks:
        same_names(f"chunk {chunk.index}", chunk.names, fitted)
        yield chunk


@dataclass(frozen=True, eq=False)
class _Collector:
    """The map of the pass over categories."""

    columns: Columns

    def __call__(self, chunk: Chunk) -> Tables:
        own, c = column_names(chunk.X), self.columns
        if int(np.shape(chunk.X)[1]) != c.width or (own is not None and own != c.names):
            raise other_columns(chunk.index, (own, np.shape(chunk.X)[1]), (c.names, c.width))
        return tuple(categories_of(chunk.X, j) for j in c.categorical)


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
