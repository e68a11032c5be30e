"""Reading large tables of integers, a block of rows at a time."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.datasets.facts import DatasetFacts
from optfair.datasets.table import Columns, check_header, open_text
from optfair.errors import DataError

__all__ = ["read_integers"]

BLOCK = 50_000  # rows that exist as text at the same time


def read_integers(path: Path, facts: DatasetFacts) -> Columns:
    """Return the columns of a CSV file (``.gz`` or plain) with a header and integers only.

    Columns are int16 where every entry fits, else int32: census codes take a quarter of the
    memory of int64.
    """
    with open_text(path) as f:
        header = [name.strip() for name in f.readline().split(",")]
        check_header(header, facts)
        blocks: list[list[NDArray[Any]]] = [[] for _ in header]
        start = 2  # line numbers of the file count from 1, with the header
        while lines := list(islice(f, BLOCK)):
            entries = _block(lines, len(header), start, facts)
            for column, values in zip(blocks, entries.T, strict=True):
                column.append(_narrow(values))
            start += len(lines)
    if not any(part.size for part in blocks[0]):
        raise DataError(f"{facts.file} is not a table", "it has no rows", "fetch it again")
    # one column at a time, so that the table is never in memory twice
    return {name: np.concatenate(blocks.pop(0)) for name in header}


def _block(lines: list[str], width: int, start: int, facts: DatasetFacts) -> NDArray[np.int32]:
    filled = [line for line in lines if not line.isspace()]
    if not filled:
        return np.empty((0, width), np.int32)
    try:
        values = np.loadtxt(filled, dtype=np.int32, delimiter=",", comments=None, ndmin=2)
    except ValueError as e:
        raise DataError(
            f"{facts.file} is not a table of integers",
            f"{e}, counted from line {start}",
            f"fetch it again from {facts.source or 'its source'}",
        ) from None
    if values.shape[1] != width:
        raise DataError(
            f"{facts.file} is not a table",
            f"{values.shape[1]} entries in a row, the header has {width} names",
            "write one entry per column in every row",
        )
    return values


def _narrow(values: NDArray[np.int32]) -> NDArray[Any]:
    limits = np.iinfo(np.int16)
    fits = bool((values >= limits.min).all() and (values <= limits.max).all())
    return values.astype(np.int16 if fits else np.int32)
