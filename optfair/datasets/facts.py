"""Facts about data sets: ours, and those of the manifest in the user's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from optfair.errors import DataError
from optfair.locate import load_facts
from optfair.storage import read_toml

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
