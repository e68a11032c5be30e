"""Reading a table: bytes with the right checksum, CSV, typed columns, dropped and derived ones."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.datasets.facts import DatasetFacts
from optfair.errors import DataError

Columns = dict[str, NDArray[Any]]

__all__ = ["derived", "parsed", "read_verified", "without_dropped"]


def read_verified(path: Path, sha256: str) -> str:
    """Return the text of a file (``.gz`` or plain) whose checksum is the declared one."""
    if not path.is_file():
        raise DataError(
            f"the file {path.name} is missing", f"looked for {path}", "put it there, see the source"
        )
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DataError(
            f"{path} is not the declared file",
            f"its sha256 is {found}, declared is {sha256 or 'none'}",
            "fetch the file again, or correct sha256 in the manifest if you changed it on purpose",
        )
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return content.decode("utf-8")


def parsed(text: str, facts: DatasetFacts) -> Columns:
    """Return typed columns of a CSV text with a header."""
    lines = csv.reader(io.StringIO(text))
    header = [name.strip() for name in next(lines, [])]
    if facts.columns and tuple(header) != facts.columns:
        raise DataError(
            f"{facts.file} does not have the declared columns",
            f"its first line is {','.join(header)[:200]}",
            "write the declared names in its first line",
        )
    rows = [row for row in lines if row]
    ragged = next((i for i, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if ragged is not None or not rows:
        raise DataError(
            f"{facts.file} is not a table",
            f"row {ragged} does not have {len(header)} entries" if ragged else "it has no rows",
            "write one entry per column in every row",
        )
    return {
        name: _typed(values) for name, values in zip(header, zip(*rows, strict=True), strict=True)
    }


def _typed(values: tuple[str, ...]) -> NDArray[Any]:
    """Return integers where all entries are, else floats, else stripped strings."""
    words = np.array(values)
    for kind in (np.int64, np.float64):
        try:
            return words.astype(kind)
        except ValueError:
            continue
    return np.array([value.strip() for value in values])


def without_dropped(columns: Columns, drop: Mapping[str, Any]) -> Columns:
    """Return the columns without the rows that have a dropped value."""
    for column, value in drop.items():
        keep = _source(columns, column) != value
        columns = {name: values[keep] for name, values in columns.items()}
    return columns


def _source(columns: Columns, name: str) -> NDArray[Any]:
    if name not in columns:
        raise DataError(
            f"the facts use a column {name!r} that is not there",
            f"the columns are {', '.join(columns)}",
            "correct drop or derived in the manifest",
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
    source = _source(columns, rule["from"])
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
