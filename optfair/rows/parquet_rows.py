"""Rows of a parquet dataset, read in batches of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optfair.errors import DataError, NotInstalled, nearest
from optfair.rows.row_source import CHUNK, Chunk, RowSource

__all__ = ["ColumnTable", "ParquetRows"]


@dataclass(frozen=True, eq=False)
class ParquetRows(RowSource):
    """Rows of a parquet file, or of a folder of them, all with the same columns.

    Parameters
    ----------
    path : path
        File or folder.
    groups : str or None
        Column of group labels.
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
    groups: str | None
    sample_weight: str | None = None
    chunk_rows: int = CHUNK
    text: bool = False
    grouped: bool = True

    def __post_init__(self) -> None:
        names = self._dataset().schema.names
        for what, asked in (("groups", self.groups), ("sample_weight", self.sample_weight)):
            if asked is None and (what == "sample_weight" or not self.grouped):
                continue
            if not isinstance(asked, str):
                raise DataError(
                    f"{what} must name a column of the parquet dataset",
                    f"it is {asked!r}" if asked is None else f"it is a {type(asked).__name__}",
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
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the rows."""
        taken = {self.groups, self.sample_weight}
        return tuple(n for n in self._dataset().schema.names if n not in taken)

    def _dataset(self) -> Any:
        try:
            from pyarrow import dataset
        except ImportError:
            raise NotInstalled(
                "reading parquet needs pyarrow", remedy='pip install "optfair[tables]"'
            ) from None
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
        asked = [*names, *(c for c in (self.groups, self.sample_weight) if c is not None)]
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
                found = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
                X = ColumnTable(names, tuple(found))
            else:
                X = np.empty((batch.num_rows, len(names)))
                for j, name in enumerate(names):
                    X[:, j] = batch.column(name).to_numpy(zero_copy_only=False)
            labels = np.zeros(batch.num_rows, dtype=np.intp)
            if self.groups is not None:
                labels = batch.column(self.groups).to_numpy(zero_copy_only=False)
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
