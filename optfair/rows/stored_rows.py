"""Rows that lie in parquet files, Dask arrays or frames, read a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from optfair.errors import DataError, SolverFailure, kind_of, nearest, needed
from optfair.numbers import check_fit, check_labels
from optfair.rows.sources import CHUNK, Chunk, RowSource, chunk_of

# Rows of a parquet dataset, read in batches of columns.


@dataclass(frozen=True, eq=False)
class ParquetRows(RowSource):
    """Rows of a parquet file, or of a folder of them, all with the same columns.

    Parameters
    ----------
    path : path
        File or folder.
    groups : str, list of str or None
        Column of group labels, or one for each attribute.
    sample_weight : str, optional
        Column of weights.
    chunk_rows : int
        Largest number of rows per chunk.
    text : bool
        Whether columns may hold text; the rows of chunks are then `ColumnTable`.
    grouped : bool
        Whether groups are needed; without a column of them all labels are 0 otherwise.

    Raises
    ------
    NotInstalled
        Without pyarrow.
    DataError
        Columns that are not there or are no numbers.
    """

    path: str | Path
    groups: str | list[str] | None
    sample_weight: str | None = None
    chunk_rows: int = CHUNK
    text: bool = False
    grouped: bool = True

    def __post_init__(self) -> None:
        names = self._dataset().schema.names
        named = [("groups", g) for g in self.attributes] or [("groups", self.groups)]
        for what, asked in (*named, ("sample_weight", self.sample_weight)):
            if asked is None and (what == "sample_weight" or not self.grouped):
                continue
            if not isinstance(asked, str):
                raise DataError(
                    f"{what} must name a column of the parquet dataset",
                    f"it is {asked!r}" if asked is None else f"it is {kind_of(asked)}",
                    f"columns: {', '.join(names[:20])}",
                )
            if asked not in names:
                raise DataError(
                    f"the parquet dataset has no column {asked!r}", remedy=nearest(asked, names)
                )
        text = [name for name in self.columns if not _numeric(self._dataset().schema.field(name))]
        if text and not self.text:
            raise DataError(
                f"the parquet dataset has columns that are not numbers: {', '.join(text)}",
                remedy="leave them out, encode them, or name one of them in groups=",
            )

    @property
    def attributes(self) -> tuple[Any, ...]:
        """Names of the columns of groups."""
        given = self.groups
        return tuple(given) if isinstance(given, list) else () if given is None else (given,)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the rows."""
        taken = {*self.attributes, self.sample_weight}
        return tuple(n for n in self._dataset().schema.names if n not in taken)

    def _dataset(self) -> Any:
        dataset = needed("pyarrow.dataset", 'pip install "optfair[tables]"')
        if not Path(self.path).exists():
            raise DataError(f"there is no parquet dataset {self.path}", remedy="check the path")
        try:
            # by default the whole file would be held in buffers while it is read
            options = dataset.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
            layout = dataset.ParquetFileFormat(default_fragment_scan_options=options)
            return dataset.dataset(str(self.path), format=layout)
        except (ValueError, OSError) as e:
            raise DataError(
                f"{self.path} is no parquet dataset",
                str(e).splitlines()[0],
                'give a parquet file or a folder of them; np.load(path, mmap_mode="r") opens .npy,'
                " and a function of chunks can read anything else, as"
                " pandas.read_csv(path, chunksize=100_000)",
            ) from None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, in the order of the files and of the rows in them."""
        names = self.columns
        asked = [*names, *self.attributes, *([self.sample_weight] if self.sample_weight else [])]
        # reading ahead by more than a batch would hold the rows after all
        batches = self._dataset().to_batches(
            columns=asked,
            batch_size=self.chunk_rows,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        )
        index = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            X: Any
            if self.text:
                columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
                X = ColumnTable(names, tuple(columns))
            else:
                X = np.empty((batch.num_rows, len(names)))
                for j, name in enumerate(names):
                    X[:, j] = batch.column(name).to_numpy(zero_copy_only=False)
            labels = np.zeros(batch.num_rows, dtype=np.intp)
            if self.attributes:
                own = {g: batch.column(g).to_numpy(zero_copy_only=False) for g in self.attributes}
                labels = check_labels(own, f"chunk {index}: groups")
            weights = None
            if self.sample_weight:
                given = batch.column(self.sample_weight).to_numpy(zero_copy_only=False)
                weights = np.asarray(given, dtype=float)
            yield Chunk(X, labels, weights, index, names)
            index += 1


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """Columns of any types: the little that encoders need of a data frame.

    Parameters
    ----------
    columns : tuple of str
        Names.
    arrays : tuple of arrays (m,)
        Columns.
    """

    columns: tuple[str, ...]
    arrays: tuple[Any, ...]
    ndim: int = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), len(self.columns)

    def __len__(self) -> int:
        return len(self.arrays[0]) if self.arrays else 0

    def __getitem__(self, name: str) -> Any:
        return self.arrays[self.columns.index(name)]


def _numeric(field: Any) -> bool:
    from pyarrow import types

    kind = field.type
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


# Rows of Dask arrays and frames: a pass is one task per partition and a tree of sums.

T = TypeVar("T")


# Results that one task adds up.
FAN_IN = 8


def is_dask(data: Any) -> bool:
    """Whether data is a Dask array or frame; Dask is not imported for the answer."""
    return type(data).__module__.split(".")[0] in ("dask", "dask_expr")


@dataclass(frozen=True, eq=False)
class DaskRows(RowSource):
    """Rows of a Dask array or frame, left where they are.

    A pass sends K·d statistics, G·K masses and a few rows back, never the rows. Workers that
    are lost are no trouble: Dask makes their partitions again from the graph. Sums are taken in
    the order of the partitions whatever finishes first, so results do not depend on the workers.

    Parameters
    ----------
    X : dask array (n, d) or dask DataFrame
        Rows, with as many partitions as tasks are wanted.
    labels : dask array or series (n,), array-like (n,), or str
        Group label of each row, in partitions of the same sizes, or a column of the frame.
    weights : dask array or series (n,), array-like (n,), or str, optional
        Weights.
    text : bool
        Whether columns may hold text.

    Raises
    ------
    DataError
        Partitions that do not fit.
    """

    X: Any
    labels: Any
    weights: Any = None
    text: bool = False
    parts: list[Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from dask import delayed

        X = self.X
        if hasattr(X, "columns"):
            blocks = list(X.to_delayed())
        else:
            if X.ndim != 2:
                raise DataError(f"X has {X.ndim} dimension(s)", remedy="give rows x columns")
            X = X.rechunk({1: -1})
            blocks = [row[0] for row in X.to_delayed()]
        sizes = None if hasattr(X, "columns") else X.chunks[0]
        labels = _partitions(self.labels, len(blocks), sizes, "groups")
        weights = _partitions(self.weights, len(blocks), sizes, "sample_weight")
        groups = self.labels if isinstance(self.labels, str) else None
        column = self.weights if isinstance(self.weights, str) else None
        make = delayed(_chunk, pure=False)
        made = [
            make(
                block,
                None if labels is None else labels[i],
                groups,
                column,
                i,
                self.text,
                *(() if weights is None else (weights[i],)),
            )
            for i, block in enumerate(blocks)
        ]
        object.__setattr__(self, "parts", made)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks one after the other, each computed by the cluster and fetched."""
        for made in self.parts:
            chunk = made.compute()
            if chunk is not None:
                yield chunk

    def map_reduce(
        self, function: Callable[[Chunk], T], combine: Callable[[T, T], T], n_jobs: int = 1
    ) -> T:
        """Return the results of one pass, combined in the order of the partitions.

        Parameters
        ----------
        function, combine, n_jobs
            As of `RowSource.map_reduce`; the scheduler decides on threads and workers.

        Raises
        ------
        SolverFailure
            Workers were lost more often than the scheduler allows.
        """
        from dask import delayed

        mapped, reduced = delayed(_mapped, pure=False), delayed(_folded, pure=False)
        level: list[Any] = [mapped(function, made) for made in self.parts]
        if not level:
            raise DataError("the source gives no rows", "it has no partitions", "give some")
        while len(level) > 1:
            level = [reduced(combine, level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
        try:
            result: T | None = level[0].compute()
        except Exception as e:  # the classes of lost workers are told by name, all else goes on
            if type(e).__name__ in ("KilledWorker", "CommClosedError", "CancelledError"):
                raise SolverFailure(
                    "the cluster lost its workers",
                    f"{type(e).__name__}: {e}",
                    "give workers more memory, or allow more failures"
                    " (distributed.scheduler.allowed-failures)",
                ) from None
            raise
        if result is None:
            raise DataError("the source gives no rows", "all partitions are empty", "give some")
        return result


def _chunk(
    block: Any,
    labels: Any,
    groups: str | None,
    column: str | None,
    index: int,
    text: bool,
    weights: Any = None,
) -> Chunk | None:
    """Return one partition as a chunk, on the worker; None when it is empty."""
    if len(block) == 0:
        return None
    given: Any = block
    if groups is None:
        own = (np.asarray(labels),)
        given = (block, *own) if weights is None else (block, *own, np.asarray(weights))
        return chunk_of(given, index, None, column, text)
    chunk = chunk_of(given, index, groups, column, text)
    if weights is None:
        return chunk
    return chunk_of((chunk.X, chunk.labels, np.asarray(weights)), index, None, None, text)


def _mapped(function: Callable[[Chunk], T], chunk: Chunk | None) -> T | None:
    return None if chunk is None else function(chunk)


def _folded(combine: Callable[[T, T], T], parts: list[T | None]) -> T | None:
    total: T | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else combine(total, part)
    return total


def _partitions(given: Any, count: int, sizes: Any, what: str) -> list[Any] | None:
    """Return the parts of labels or weights that go with the partitions, None for a column."""
    if given is None or isinstance(given, str):
        return None
    if not is_dask(given):
        if sizes is None or any(s != s for s in sizes):
            raise DataError(
                f"{what} are in memory but the partitions of X have unknown sizes",
                remedy=f"give {what} as a column of the frame, or as a Dask series of the same"
                " partitions",
            )
        values = np.asarray(given)
        check_fit(values, what, sum(sizes))
        return np.split(values, np.cumsum(sizes)[:-1])
    if hasattr(given, "chunks") and sizes is not None and given.chunks[0] != sizes:
        given = given.rechunk((sizes,))
    parts = list(np.ravel(given.to_delayed()))
    if len(parts) != count:
        raise DataError(
            f"{what} has {len(parts)} partitions, X has {count}",
            remedy="give both the same partitions",
        )
    return parts
