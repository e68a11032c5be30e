"""Reading a table: bytes with the right checksum, CSV, large tables of integers, typed columns."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from optfair.datasets.facts import DatasetFacts
from optfair.errors import DataError

__all__ = [
    "check_file",
    "column_of",
    "derived",
    "open_text",
    "parsed",
    "read_integers",
    "typed",
    "without_dropped",
]


# Reading a table: bytes with the right checksum, CSV, typed columns, dropped and derived ones.

Columns = dict[str, NDArray[Any]]


def check_file(path: Path, facts: DatasetFacts) -> None:
    """Raise unless the file is there and its checksum is the declared one."""
    if not path.is_file():
        raise DataError(
            f"the file {path.name} is missing", f"looked for {path}", "put it there, see the source"
        )
    if not facts.sha256 and not facts.sha256_needed:
        return  # columns, rows and counts say whether it is the right one
    with path.open("rb") as f:
        found = hashlib.file_digest(f, "sha256").hexdigest()
    if found != facts.sha256:
        raise DataError(
            f"{path} is not the declared file",
            f"its sha256 is {found}, declared is {facts.sha256 or 'none'}",
            "fetch the file again, or correct sha256 in the manifest if you changed it on purpose",
        )


def open_text(path: Path) -> TextIO:
    """Return a text file, ``.gz`` or plain, open for reading."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def check_header(header: Sequence[str], facts: DatasetFacts) -> None:
    """Raise unless the first line of a file has the declared names, where there are any."""
    if facts.columns and tuple(header) != facts.columns:
        raise DataError(
            f"{facts.file} does not have the declared columns",
            f"its first line is {','.join(header)[:200]}",
            "write the declared names in its first line",
        )


def parsed(text: Iterable[str], facts: DatasetFacts) -> Columns:
    """Return typed columns of the lines of a CSV file with a header."""
    lines = csv.reader(text)
    header = [name.strip() for name in next(lines, [])]
    check_header(header, facts)
    rows = [row for row in lines if row]
    ragged = next((i for i, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if ragged is not None or not rows:
        raise DataError(
            f"{facts.file} is not a table",
            f"row {ragged} does not have {len(header)} entries" if ragged else "it has no rows",
            "write one entry per column in every row",
        )
    return {
        name: typed(values) for name, values in zip(header, zip(*rows, strict=True), strict=True)
    }


def typed(values: Any) -> NDArray[Any]:
    """Return integers where all entries are, else floats, else stripped strings."""
    words = np.array(values)
    for kind in (np.int64, np.float64):
        try:
            return words.astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array([value.strip() for value in values])


def without_dropped(columns: Columns, drop: Mapping[str, Any]) -> Columns:
    """Return the columns without the rows that have a dropped value."""
    for column, value in drop.items():
        keep = column_of(columns, column) != value
        columns = {name: values[keep] for name, values in columns.items()}
    return columns


def column_of(columns: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """Return the column that the facts speak of."""
    if name not in columns:
        raise DataError(
            f"the facts use a column {name!r} that is not there",
            f"the columns are {', '.join(columns)}",
            "correct drop, derived, counts or numeric in the manifest",
        )
    return columns[name]


def derived(columns: Columns, rule: Mapping[str, Any], name: str) -> NDArray[Any]:
    """Return a column made from another by codes or by intervals.

    Parameters
    ----------
    columns : dict
        What is there.
    rule : mapping
        ``from``, and ``values`` with optional ``other``, or ``upper`` bounds with ``labels``
        (one more than bounds; a value equal to a bound lies below it).
    name : str
        What the new column is called.
    """
    source = column_of(columns, rule["from"])
    if "upper" in rule:
        return np.array(rule["labels"])[np.searchsorted(rule["upper"], source, side="left")]
    codes, index = np.unique(source, return_inverse=True)
    labels = [rule["values"].get(str(code), rule.get("other")) for code in codes]
    if None in labels:
        raise DataError(
            f"column {name!r} has no label for the code {codes[labels.index(None)]!s}",
            f"it is derived from {rule['from']!r}",
            "add the code to the facts, or `other` for all the rest",
        )
    return np.array(labels)[index]


# Reading large tables of integers, a block of rows at a time.

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
