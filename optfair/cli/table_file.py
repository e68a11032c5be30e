"""A CSV file: what it holds, where its entries are wrong, and how to write it with one more column."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, nearest

Floats = NDArray[np.float64]

__all__ = ["Column", "TableFile", "read_table"]

DELIMITERS = (",", ";", "\t")
# What stands for a missing entry, in any case.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


@dataclass(frozen=True, eq=False)
class Column:
    """One column, understood.

    Attributes
    ----------
    name : str
        As in the header.
    words : tuple of str
        Entries, stripped.
    missing : tuple of int
        Rows whose entry is missing.
    numbers : array (n,) or None
        Entries as numbers, NaN where missing; None for a column with text.
    """

    name: str
    words: tuple[str, ...]
    missing: tuple[int, ...]
    numbers: Floats | None

    @property
    def constant(self) -> bool:
        """Whether all entries that are there are equal, or none is."""
        return len({w for w in self.words if w.lower() not in MISSING}) <= 1 or (
            self.numbers is not None and len(set(self.numbers[~np.isnan(self.numbers)])) <= 1
        )

    @property
    def first_text(self) -> int | None:
        """Row of the first entry that is no number."""
        return next(
            (
                i
                for i, w in enumerate(self.words)
                if w.lower() not in MISSING and _number(w) is None
            ),
            None,
        )


@dataclass(frozen=True, eq=False)
class TableFile:
    """A CSV file with a header.

    Attributes
    ----------
    path : Path
        As the user typed it.
    header : tuple of str
        Names of the columns, stripped; a column may have no name.
    rows : tuple of sequences of str
        Entries as they stand in the file.
    lines : tuple of int
        Line of the file in which each row begins.
    delimiter : str
        What separates entries.
    sha256 : str
        Of the bytes of the file.
    """

    path: Path
    header: tuple[str, ...]
    rows: tuple[Sequence[str], ...]
    lines: tuple[int, ...]
    delimiter: str
    sha256: str
    _columns: dict[str, Column] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that have one."""
        return tuple(name for name in self.header if name)

    def column(self, name: str) -> Column:
        """Return a column by name, or say which names are near."""
        if not name or name not in self.header:
            raise DataError(
                f"{self.path} has no column {name!r}",
                f"it has {len(self.header)} columns",
                nearest(name, self.names),
            )
        if name not in self._columns:
            place = self.header.index(name)
            self._columns[name] = _understood(name, tuple(row[place].strip() for row in self.rows))
        return self._columns[name]

    def check_complete(self, names: Sequence[str], remedy: str) -> None:
        """Raise unless the columns have an entry in every row, naming the first line without."""
        holes = {name: self.column(name).missing for name in names}
        holes = {name: rows for name, rows in holes.items() if rows}
        if not holes:
            return
        what, verb = ("column", "has") if len(holes) == 1 else ("columns", "have")
        raise DataError(
            f"{what} {', '.join(map(repr, holes))} of {self.path} {verb} missing values",
            "; ".join(
                f"{name!r} has {len(rows)}, the first in line {self.lines[rows[0]]}"
                for name, rows in holes.items()
            ),
            remedy,
        )

    def with_column(self, name: str, values: Sequence[Any]) -> str:
        """Return the text of the file with one more column at the end."""
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self.delimiter, lineterminator="\n")
        writer.writerow([*self.header, name])
        writer.writerows([*row, value] for row, value in zip(self.rows, values, strict=True))
        return text.getvalue()


def read_table(path: Path) -> TableFile:
    """Read a CSV file in UTF-8, separated by commas, semicolons or tabs.

    Raises
    ------
    DataError
        No such file, no text, no header, no rows, rows of another length, with the line.
    """
    content = _content(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise DataError(
            f"{path} is not a CSV file in UTF-8",
            f"byte {e.start + 1} of {len(content)} is no character",
            "save it as CSV with the encoding UTF-8",
        ) from None
    if "\0" in text:
        raise DataError(f"{path} is not a CSV file", "it holds binary data", "export it as CSV")
    if not text.strip():
        raise DataError(f"{path} is empty", remedy="give a CSV file with a header and rows")
    first = next(line for line in text.splitlines() if line.strip())
    delimiter = max(DELIMITERS, key=lambda d: len(next(csv.reader([first], delimiter=d), [])))
    header, rows, lines = _records(path, text, delimiter)
    _check_header(path, header, first)
    if not rows:
        raise DataError(f"{path} has a header but no rows", remedy="give at least one row")
    return TableFile(
        path, header, tuple(rows), tuple(lines), delimiter, hashlib.sha256(content).hexdigest()
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*") if p.is_file()][:500]
        hint = nearest(path.name, near) if near else ""
        raise DataError(
            f"there is no file {path}",
            f"looked in {path.parent.resolve()}",
            hint if hint.startswith("did you mean") else "give the path of a CSV file",
        ) from None
    except OSError as e:
        raise DataError(
            f"{path} cannot be read", e.strerror or str(e), "give the path of a CSV file"
        ) from None


def _records(
    path: Path, text: str, delimiter: str
) -> tuple[tuple[str, ...], list[Sequence[str]], list[int]]:
    header: tuple[str, ...] | None = None
    rows: list[Sequence[str]] = []
    lines: list[int] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    before = 0
    try:
        for row in reader:
            begin, before = before + 1, reader.line_num
            if not row:
                continue
            if header is None:
                header = tuple(name.strip() for name in row)
                continue
            if len(row) != len(header):
                raise DataError(
                    f"line {begin} of {path} has {len(row)}"
                    f" {'entry' if len(row) == 1 else 'entries'}, the header has {len(header)}",
                    f"it begins with {delimiter.join(row)[:60]!r}",
                    "write one entry per column in every row, in quotes where it holds a separator",
                )
            rows.append(row)
            lines.append(begin)
    except csv.Error as e:
        raise DataError(
            f"line {reader.line_num} of {path} is not CSV", str(e), "check the quotes there"
        ) from None
    return header or (), rows, lines


def _check_header(path: Path, header: tuple[str, ...], first: str) -> None:
    if len(header) < 2:
        raise DataError(
            f"{path} does not look like a CSV file with several columns",
            f"its first line is {first[:60]!r}",
            "separate entries by commas, semicolons or tabs",
        )
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise DataError(
            f"{path} has several columns called {', '.join(map(repr, twice))}",
            remedy="give every column its own name",
        )
    if all(_number(name) is not None for name in header):
        raise DataError(
            f"the first line of {path} has numbers instead of names",
            f"it is {first[:60]!r}",
            "write the names of the columns in the first line",
        )


def _understood(name: str, words: tuple[str, ...]) -> Column:
    missing = tuple(i for i, w in enumerate(words) if w.lower() in MISSING)
    holes = frozenset(missing)
    numbers = np.full(len(words), np.nan)
    for i, w in enumerate(words):
        if i in holes:
            continue
        value = _number(w)
        if value is None:
            return Column(name, words, missing, None)
        numbers[i] = value
    return Column(name, words, missing, None if len(holes) == len(words) else numbers)


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    # Python would read 1_000 as a thousand; NaN stands for missing
    return None if "_" in word or math.isnan(value) else value
