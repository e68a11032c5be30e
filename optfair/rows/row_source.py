"""Rows that are read chunk by chunk, as often as an algorithm asks, and summed up on the way."""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from optfair.errors import DataError
from optfair.numbers import check_table, floats
from optfair.rows.frames import column_names, taken_apart, without_groups

T = TypeVar("T")


# Rows per chunk where the source does not say: 13 MB of 25 columns.
CHUNK = 65_536


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
    """

    X: Any
    labels: Any
    weights: Any
    index: int
    names: tuple[str, ...] | None = None


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
        Names of columns, where chunks are data frames.
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
    groups: str | None = None
    sample_weight: str | None = None
    text: bool = False
    grouped: bool = True

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, from the first one on."""
        made = self.make()
        if not hasattr(made, "__iter__"):
            raise DataError(
                "the function of chunks returns no iterator",
                f"it returned a {type(made).__name__}",
                "yield (X, groups) in it, or return an iterator over such pairs",
            )
        for index, given in enumerate(made):
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
        n = len(self.X)
        for name, given in (("groups", self.labels), ("sample_weight", self.weights)):
            if given is not None and check_table(given, name).shape != (n,):
                raise DataError(
                    f"{name} does not fit the rows",
                    f"shape {np.shape(given)} for {n} rows",
                    "give one per row",
                )

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, from the first one on."""
        labels = self.labels if isinstance(self.labels, np.ndarray) else np.asarray(self.labels)
        for index, start in enumerate(range(0, len(self.X), self.chunk_rows)):
            rows = slice(start, start + self.chunk_rows)
            weights = None if self.weights is None else floats(self.weights[rows], "sample_weight")
            X = floats(self.X[rows], "X")
            yield Chunk(X, np.asarray(labels[rows]), weights, index)


def chunk_of(
    given: Any,
    index: int,
    groups: str | None,
    sample_weight: str | None,
    text: bool = False,
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
        Names of columns of a data frame.
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
    elif not grouped and np.ndim(given) == 2:
        X, labels = given, None
    else:
        raise DataError(
            f"chunk {index} is a {type(given).__name__}",
            "it has no groups" if np.ndim(given) == 2 else "",
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
    labels = np.asarray(labels)
    if labels.shape != (len(rows),):
        raise DataError(
            f"chunk {index}: groups does not fit the rows",
            f"shape {labels.shape} for {len(rows)} rows",
            "give one label per row",
        )
    if weights is not None:
        weights = np.asarray(weights, dtype=float)
        if weights.shape != (len(rows),):
            raise DataError(
                f"chunk {index}: the weights do not fit the rows",
                f"shape {weights.shape} for {len(rows)} rows",
                "give one weight per row",
            )
    return Chunk(rows, labels, weights, index, names)
