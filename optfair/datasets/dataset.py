"""A data set: named columns with their licence and citation, read from a table."""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, Tabled, data_frame, nearest, say_names
from optfair.numbers import Floats, check_mapping, check_matrix, check_names
from optfair.registry import load_facts
from optfair.storage import read_toml

# A data set: named columns with their licence and citation.

# more different numbers than this are no groups; the limits of groups given as arrays are alike
MOST_CODES = 50
MOST_FRACTIONS = 10


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Tabled):
    """Columns of equal length, and what must be said about where they come from.

    Attributes
    ----------
    name : str
        What `optfair.datasets.load` calls it.
    columns : mapping of str to array (n,)
        Integers, floats or strings; read-only.
    numeric_columns : tuple of str
        Columns `numeric` takes unless told otherwise.
    group_columns : tuple of str
        Columns that make sensible groups.
    licence, citation, source, note : str
        Under which terms, whom to cite, where it comes from, what was done to it.

    Examples
    --------
    >>> import optfair as of
    >>> data = of.datasets.load("german_credit")
    >>> data.rows, data["sex"][:3].tolist()
    (1000, ['male', 'female', 'male'])
    >>> X, sex = data.numeric("sex", standardize=True)
    >>> X.shape
    (1000, 7)
    """

    name: str
    columns: Mapping[str, NDArray[Any]]
    numeric_columns: tuple[str, ...] = ()
    group_columns: tuple[str, ...] = ()
    licence: str = ""
    citation: str = ""
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        check_mapping(self.columns, "columns")
        for name, column in self.columns.items():
            if not isinstance(column, np.ndarray) or column.ndim != 1:
                raise DataError(f"column {name!r} is no array (n,)", remedy="give one")
        say_names(self, columns="column")

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return int(next(iter(self.columns.values())).size)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of all columns, in the order of the file, derived ones last."""
        return tuple(self.columns)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, column: str) -> NDArray[Any]:
        try:
            return self.columns[column]
        except KeyError:
            raise DataError(
                f"no column {column!r} in {self.name}", remedy=nearest(column, self.columns)
            ) from None

    def numeric(
        self,
        groups: str,
        *,
        columns: Sequence[str] | None = None,
        standardize: bool = False,
        l2: bool = False,
    ) -> tuple[Floats, NDArray[Any]]:
        r"""Return numeric rows and the group label of each.

        .. math::
            z_{ij} = (x_{ij} - \bar x_j) / s_j, \qquad
            s_j^2 = \tfrac1n \textstyle\sum_i (x_{ij} - \bar x_j)^2

        Parameters
        ----------
        groups : str
            Column of the labels, at most 50 if it holds numbers (10 unless they are whole); its
            values are returned as strings.
        columns : sequence of str, optional
            Numeric columns to take; by default those in ``numeric_columns``.
        standardize : bool
            Shift and scale each column to mean 0 and population standard deviation 1. A
            constant column becomes 0.
        l2 : bool
            Scale each row to Euclidean norm 1, after standardising; a row of zeros stays.

        Returns
        -------
        X : array (n, d)
            float64, in the data's units unless standardised.
        labels : array (n,) of str

        Raises
        ------
        DataError
            Unknown or non-numeric column, missing values, no default columns, groups that are
            measurements.
        """
        labels = self._labels(groups)
        chosen = self._chosen(columns)
        X = check_matrix(np.column_stack([self[c] for c in chosen]), self.name)
        if standardize:
            # the mean of a constant is rounded: what is left would be scaled to 1, not 0
            constant = X.min(axis=0) == X.max(axis=0)
            scale = X.std(axis=0)
            X -= X.mean(axis=0)  # in place: 2.4 million rows of 66 columns are 1.3 GB
            X /= np.where(scale > 0, scale, 1.0)
            X[:, constant] = 0.0
        if l2:
            norms = np.linalg.norm(X, axis=1, keepdims=True)
            X /= np.where(norms > 0, norms, 1.0)
        return X, labels

    def _labels(self, groups: str) -> NDArray[Any]:
        """Return a column as strings, unless its numbers measure something."""
        column = self[groups]
        if column.dtype.kind not in "iuf":
            return column.astype(str)
        if np.isnan(column).any():
            raise DataError(
                f"column {groups!r} of {self.name} has {int(np.isnan(column).sum())} missing labels",
                remedy="choose a column without missing values",
            )
        values = np.unique(column)
        whole = bool((values == np.round(values)).all())
        if values.size > (MOST_CODES if whole else MOST_FRACTIONS):
            others = [c for c in self.group_columns if c != groups]
            raise DataError(
                f"column {groups!r} of {self.name} has {values.size} different numbers",
                f"from {values[0]} to {values[-1]}: it measures something, it is not a group",
                (f"choose {' or '.join(map(repr, others))}, or " if others else "")
                + f"bin it: numpy.digitize(data[{groups!r}], [{np.median(column):g}])",
            )
        return column.astype(str)

    def _chosen(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        if isinstance(columns, str):
            raise DataError(
                f"columns={columns!r} is one string", remedy=f"give a list: columns=[{columns!r}]"
            )
        chosen = self.numeric_columns if columns is None else check_names(columns, "columns")
        numeric = [c for c, values in self.columns.items() if values.dtype.kind in "iuf"]
        if not chosen:
            raise DataError(
                f"{self.name} has no default numeric columns"
                if columns is None
                else "columns is empty",
                remedy=f"give columns=[...] out of {', '.join(numeric) or 'none: no column is numeric'}",
            )
        for column in chosen:
            if self[column].dtype.kind not in "iuf":
                raise DataError(
                    f"column {column!r} of {self.name} is not numeric",
                    f"its first entry is {self[column][0]!s}",
                    f"choose among {', '.join(numeric)}",
                )
        return chosen

    def frame(self) -> Any:
        """Return the columns as a pandas DataFrame.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        return data_frame({c: values.copy() for c, values in self.columns.items()})

    def __repr__(self) -> str:
        lines = [
            f"Dataset {self.name}: {self.rows} rows, {len(self.columns)} columns",
            f"  columns   {', '.join(self.columns)}",
        ]
        if self.numeric_columns:
            lines.append(f"  numeric   {', '.join(self.numeric_columns)}")
        for column in self.group_columns:
            values, counts = np.unique(self[column], return_counts=True)
            sizes = ", ".join(f"{v} {c}" for v, c in zip(values, counts, strict=True))
            lines.append(f"  groups    {column}: {sizes}")
        for word in ("licence", "citation", "source", "note"):
            text = getattr(self, word)
            if text:
                lines.append(f"  {word:<9} {text}")
        return "\n".join(lines)


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
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    if digest != facts.sha256:
        raise DataError(
            f"{path} is not the declared file",
            f"its sha256 is {digest}, declared is {facts.sha256 or 'none'}",
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


VARIABLE = "OPTFAIR_DATA"
MANIFEST = "MANIFEST.toml"
OURS = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True)
class DatasetFacts:
    """One table of ``data/datasets.toml``, which explains the keys, or of a manifest.

    Attributes
    ----------
    path : Path or None
        The file; None while nobody provides it.
    sha256_needed : bool
        False where our own facts fix the columns and the number of rows of a file that users
        take from its source.
    """

    name: str
    origin: str
    path: Path | None = None
    sha256_needed: bool = True
    file: str = ""
    sha256: str = ""
    rows: int = 0
    columns: tuple[str, ...] = ()
    integers: bool = False
    loader: str = ""
    target: str = ""
    licence: str = ""
    citation: str = ""
    source: str = ""
    note: str = ""
    drop: Mapping[str, Any] = field(default_factory=dict)
    derived: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    openml: Mapping[str, Any] = field(default_factory=dict)
    numeric: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    groups: tuple[str, ...] = ()


KEYS = frozenset(f.name for f in fields(DatasetFacts)) - {"name", "path", "sha256_needed"}
TABLES = ("drop", "derived", "counts", "openml")
PARTS = {"openml": {"data_id", "columns", "first", "last"}, "numeric": {"except"}}


def data_folder() -> Path | None:
    """Return the folder named by the environment variable, None when it is not set."""
    value = os.environ.get(VARIABLE, "")
    return Path(value) if value else None


def known_facts() -> dict[str, DatasetFacts]:
    """Return the facts of every data set, ours and the folder's, by name.

    Raises
    ------
    DataError
        A manifest that is missing or not TOML, or a table that says what cannot be read.
    """
    ours = load_facts(OURS / "datasets.toml")
    del ours["schema"]
    folder = data_folder()
    theirs = {} if folder is None else _manifest(folder, ours)
    known = {}
    for name in sorted({*ours, *theirs}):
        table = ours.get(name, {"origin": "folder"})
        unknown = sorted(set(table) - KEYS)
        if unknown:
            raise DataError(f"facts of {name} have unknown keys {unknown}", remedy="mend the file")
        path: Path | None = OURS / table.get("file", "")
        checked = {"file", "columns", "rows"} <= set(table)
        if table["origin"] == "folder":
            # manifests may say more than we use, such as who needs the set
            extra = {k: v for k, v in theirs.get(name, {}).items() if k in KEYS}
            files = {k: extra[k] for k in ("file", "sha256") if k in extra}
            table = {**extra, **table, **files}
            path = _place(folder, table.get("file", ""), named="file" in files)
        _check_tables(name, table)
        known[name] = DatasetFacts(
            name=name, path=path, sha256_needed=not checked, **_tuples(table)
        )
    return known


def _place(folder: Path | None, file: str, *, named: bool) -> Path | None:
    """Return where a file lies in the folder, also as ``.gz`` unless a manifest names it."""
    if folder is None or not file:
        return None
    if named:
        path = folder / file  # what a manifest names must be there
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{folder / MANIFEST} names a file outside its folder",
                file,
                "move the file into it",
            )
        return path
    return next((p for p in (folder / file, folder / f"{file}.gz") if p.is_file()), None)


def _check_tables(name: str, table: Mapping[str, Any]) -> None:
    for key in TABLES:
        if not isinstance(table.get(key, {}), dict):
            raise DataError(
                f"{key} of {name} is not a table",
                f"it is {table[key]!r}",
                f"write {key} = {{ ... }}, see the comments in {OURS / 'datasets.toml'}",
            )
    numbers = [v for k, v in table.get("openml", {}).items() if k != "columns"]
    if not all(isinstance(v, int) and v > 0 for v in numbers) or (
        table.get("openml") and "data_id" not in table["openml"]
    ):
        raise DataError(
            f"openml of {name} is {table['openml']!r}",
            remedy="give data_id, and first or last where a part of the rows is meant, all positive",
        )
    for key, parts in PARTS.items():
        value = table.get(key, {})
        unknown = sorted(set(value) - parts) if isinstance(value, dict) else []
        if unknown:
            raise DataError(
                f"{key} of {name} has unknown keys {unknown}", remedy=f"use {sorted(parts)}"
            )


def _tuples(value: Any) -> Any:
    """Return the value with tuples for lists, at any depth."""
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _manifest(folder: Path, ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a manifest; none where a file we know by its name is enough."""
    path = folder / MANIFEST
    if not path.is_file():
        known = [t.get("file", "") for t in ours.values() if t["origin"] == "folder"]
        if any(_place(folder, file, named=False) for file in known):
            return {}
        raise DataError(
            f"{VARIABLE} has no {MANIFEST}",
            f"looked for {path}",
            "point the variable to the folder with the data sets, or unset it",
        )
    tables = read_toml(path)
    return {name: table for name, table in tables.items() if isinstance(table, dict)}
