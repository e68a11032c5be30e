"""What `optfair cluster` was asked: a CSV file and its columns, checked before any work."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair import registry
from optfair.errors import DataError, DeclarationError, NotInstalled, nearest
from optfair.numbers import Floats, check_weights, encode_groups
from optfair.storage import csv_text, read_bytes

# A CSV file: what it holds, where its entries are wrong, and how to write it with one more column.

if TYPE_CHECKING:
    from optfair.core.composition import Rule


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
    first_text : int or None
        Row of the first entry that is no number.
    """

    name: str
    words: tuple[str, ...]
    missing: tuple[int, ...]
    numbers: Floats | None
    first_text: int | None = None

    @property
    def constant(self) -> bool:
        """Whether all entries that are there are equal, or none is."""
        return len({w for w in self.words if w.lower() not in MISSING}) <= 1 or (
            self.numbers is not None and len(set(self.numbers[~np.isnan(self.numbers)])) <= 1
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

    def with_column(self, name: str, values: Sequence[Any], *, safe: bool) -> str:
        """Return the text of the file with one more column; ``safe`` quotes formulas."""
        rows = zip((self.header, *self.rows), (name, *values), strict=True)
        return csv_text(((*row, value) for row, value in rows), self.delimiter, safe=safe)


def read_table(path: Path) -> TableFile:
    """Read a CSV file in UTF-8, separated by commas, semicolons or tabs; packed, or as parquet.

    Raises
    ------
    DataError
        No such file, no text, no header, no rows, rows of another length, with the line.
    """
    packed = _content(path)
    content = _unpacked(path, packed)
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
        path, header, tuple(rows), tuple(lines), delimiter, hashlib.sha256(packed).hexdigest()
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


def _unpacked(path: Path, content: bytes) -> bytes:
    """Return the bytes of a CSV file that is packed, or that a parquet file would be."""
    kind = path.suffix.lower()
    if kind in (".gz", ".bz2"):
        return read_bytes(path)
    if kind not in (".parquet", ".pq"):
        return content
    try:
        import pandas as pd

        return bytes(pd.read_parquet(io.BytesIO(content)).to_csv(index=False).encode())
    except ImportError as e:
        raise NotInstalled(
            f"{path} is a parquet file, which needs pandas and pyarrow",
            str(e),
            "pip install pandas pyarrow, or save it as CSV",
        ) from None
    except Exception as e:  # whatever bad bytes make of pyarrow
        raise DataError(
            f"{path} is no parquet file", str(e)[:200], "give a file of columns, or CSV"
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
            return Column(name, words, missing, None, i)
        numbers[i] = value
    return Column(name, words, missing, None if len(holes) == len(words) else numbers)


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    # Python would read 1_000 as a thousand; NaN stands for missing
    return None if "_" in word or math.isnan(value) else value


# What `optfair cluster` was asked, checked before any work.

# A column of numbers with more distinct ones than this measures something.
CODES = 10
# Squares and sums of such numbers are finite.
LARGEST = 1e100
UNITS = {"sqeuclidean": "mean squared distance", "l1": "mean absolute distance"}
PLAIN = {"sqeuclidean": "k-means", "l1": "k-medians"}


@dataclass(frozen=True, eq=False)
class Question:
    """A clustering that can be asked for: all names are known, all entries are there.

    Attributes
    ----------
    table : TableFile
        The rows.
    group_column : str
    columns : tuple of str
        Numeric columns that are clustered.
    left_out : tuple of str
        Why other columns are not, a line per reason.
    X : array (n, d)
        What is clustered: standardised where asked for.
    center, scale : array (d,)
        Units of the file are ``X * scale + center``.
    groups : array (n,) of str
    rule : Rule
    clusters, metric, n_init, seed, standardize
        As typed.
    """

    table: TableFile
    group_column: str
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    X: Floats
    center: Floats
    scale: Floats
    groups: NDArray[Any]
    rule: Rule
    clusters: int
    metric: str
    n_init: int | None
    seed: int
    standardize: bool

    @classmethod
    def asked(
        cls,
        table: TableFile,
        group_column: str,
        clusters: int,
        *,
        columns: Sequence[str] | None = None,
        least_balance: float | None = None,
        largest_gap: float | None = None,
        standardize: bool = True,
        metric: str = "sqeuclidean",
        n_init: int | None = None,
        seed: int = 0,
    ) -> Question:
        """Check everything that can be checked without solving.

        Raises
        ------
        DataError, DeclarationError
            In the words of the command line.
        """
        groups = _groups(table, group_column)
        if columns is None:
            chosen, left_out = _default_columns(table, group_column)
        else:
            chosen, left_out = _named_columns(table, group_column, columns), ()
        table.check_complete(chosen, "fill them in, drop those rows, or choose other --columns")
        rows = np.column_stack([_finite(table, name) for name in chosen])
        center, scale = np.zeros(len(chosen)), np.ones(len(chosen))
        if standardize:
            center, scale = _moments(rows, chosen)
        distinct = _distinct(rows, clusters)
        if distinct < clusters:
            raise DataError(
                f"{clusters} clusters are more than the rows can fill",
                f"{len(rows)} rows, {distinct} of them distinct in {', '.join(chosen)}",
                f"give -k {distinct} or less",
            )
        return cls(
            table,
            group_column,
            chosen,
            left_out,
            (rows - center) / scale,
            center,
            scale,
            groups,
            _rule(groups, least_balance, largest_gap),
            clusters,
            metric,
            n_init,
            seed,
            standardize,
        )

    @property
    def units(self) -> str:
        """Units of the cost, for people."""
        return UNITS[self.metric] + (", standardised" if self.standardize else "")

    @property
    def plain_name(self) -> str:
        """What clustering without a rule is called."""
        return PLAIN[self.metric]

    @property
    def rule_words(self) -> str:
        """Return the rule for people."""
        if hasattr(self.rule, "b"):
            return f"balance of at least {self.rule.b:g} in every cluster"
        if hasattr(self.rule, "eps"):
            return f"additive gap of at most {self.rule.eps:g} (fractions of two groups, over all clusters)"
        return "perfect fairness (every cluster has the population's mix)"

    @property
    def rule_code(self) -> str:
        """Return the rule as Python code."""
        if hasattr(self.rule, "b"):
            return f"of.balance({self.rule.b!r})"
        if hasattr(self.rule, "eps"):
            return f"of.additive_gap({self.rule.eps!r})"
        return "of.perfect_fairness()"


def split_names(text: str) -> list[str]:
    """Return names that are separated by commas; one that holds a comma stands in quotes."""
    try:
        names = next(csv.reader(io.StringIO(text), strict=True, skipinitialspace=True), [])
    except csv.Error as e:
        raise DataError(
            f"--columns {text} cannot be read", str(e), "separate names by commas"
        ) from None
    return [name.strip() for name in names if name.strip()]


def _groups(table: TableFile, name: str) -> NDArray[Any]:
    column = table.column(name)
    table.check_complete([name], "drop those rows, or give them a group of their own")
    labels = np.array(column.words)
    distinct = sorted(set(column.words))
    if column.numbers is not None and len(distinct) > CODES:
        raise DataError(
            f"the group column {name!r} has {len(distinct)} different numbers",
            f"for example {', '.join(distinct[:3])}",
            "it looks like a measurement: make ranges of it in the file, or name another column",
        )
    encode_groups(labels, len(labels), check_weights(None, len(labels)))
    return labels


def _default_columns(table: TableFile, groups: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (numeric columns worth clustering, why others were left out)."""
    kept: list[str] = []
    why: dict[str, list[str]] = {"text": [], "constant or empty": [], "without a name": []}
    for place, name in enumerate(table.header):
        if not name:
            why["without a name"].append(f"column {place + 1}")
        elif name != groups:
            column = table.column(name)
            if column.constant:
                why["constant or empty"].append(name)
            else:
                (why["text"] if column.numbers is None else kept).append(name)
    reasons = tuple(f"{kind}: {', '.join(names)}" for kind, names in why.items() if names)
    if not kept:
        raise DataError(
            f"{table.path} has no numeric column to cluster",
            "; ".join(reasons) or f"its only column is {groups!r}",
            "encode columns as numbers first",
        )
    return tuple(kept), reasons


def _named_columns(table: TableFile, groups: str, names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        raise DataError("--columns names no column", remedy="give names separated by commas")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"--columns names {', '.join(map(repr, twice))} twice", remedy="name it once"
        )
    for name in names:
        column = table.column(name)
        text = column.first_text
        if name == groups:
            raise DataError(
                f"column {name!r} is the group column",
                "clustering on the groups works against the rule",
                "leave it out of --columns",
            )
        if text is not None:
            raise DataError(
                f"column {name!r} is text",
                f"line {table.lines[text]} has {column.words[text][:40]!r}",
                "leave it out of --columns, or encode it as numbers",
            )
    constant = [name for name in names if table.column(name).constant]
    if constant:
        raise DataError(
            f"--columns has constant columns: {', '.join(map(repr, constant))}",
            "a constant does not tell rows apart",
            "leave them out",
        )
    return tuple(names)


def _finite(table: TableFile, name: str) -> Floats:
    numbers = table.column(name).numbers
    if numbers is None:  # text was refused before
        raise DataError(f"column {name!r} is text", remedy="leave it out")
    endless = np.flatnonzero(np.abs(numbers) > LARGEST)
    if endless.size:
        raise DataError(
            f"column {name!r} has values that are infinite or too large to square",
            f"{endless.size}, the first in line {table.lines[endless[0]]}:"
            f" {table.column(name).words[endless[0]]}",
            "correct them, write the column in other units, or choose other --columns",
        )
    return numbers


def _moments(rows: Floats, names: Sequence[str]) -> tuple[Floats, Floats]:
    # column by column, as pandas holds them: means of rows differ in the last digits
    rows = np.asfortranarray(rows)
    center, scale = rows.mean(axis=0), rows.std(axis=0)
    bad = np.flatnonzero(scale <= 0)
    if bad.size:
        raise DataError(
            f"column {names[bad[0]]!r} cannot be standardised",
            "its numbers are too close to each other for double precision",
            "write it in other units",
        )
    return center, scale


def _distinct(rows: Floats, enough: int) -> int:
    """Return the number of distinct rows, or any number that is enough."""
    few = len(np.unique(rows[: 20 * enough], axis=0))
    return few if few >= enough else len(np.unique(rows, axis=0))


def _rule(groups: NDArray[Any], least: float | None, largest: float | None) -> Rule:
    if least is not None and largest is not None:
        raise DeclarationError(
            "--balance and --gap exclude each other",
            "each sets how fair the clusters must be",
            "give one of them, or none for perfect fairness",
        )
    if largest is not None:
        return _named("additive_gap", largest)
    if least is None:
        return _named("perfect_fairness")
    names, counts = np.unique(groups, return_counts=True)
    best = float(counts.min() / counts.max())
    if least > best:
        few, most = (str(names[at]) for at in (counts.argmin(), counts.argmax()))
        raise DeclarationError(
            f"--balance {least:g} cannot be reached",
            f"the population itself has balance {best:.6g}, of {few!r} to {most!r}, and clusters"
            " average to it",
            f"give --balance {np.floor(best * 1e4) / 1e4:g} or less",
        )
    return _named("balance", least)


def _named(rule: str, *arguments: float) -> Rule:
    made: Rule = registry.load("rules", rule)(*arguments)
    return made
