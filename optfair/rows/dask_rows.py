"""Rows of Dask arrays and frames: a pass is one task per partition and a tree of sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from optfair.errors import DataError, SolverFailure
from optfair.rows.row_source import Chunk, RowSource, chunk_of

T = TypeVar("T")

__all__ = ["DaskRows", "is_dask"]

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
        if values.shape != (sum(sizes),):
            raise DataError(
                f"{what} does not fit the rows",
                f"shape {values.shape} for {sum(sizes)} rows",
                "give one per row",
            )
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
