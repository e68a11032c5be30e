"""Facts about data sets: ours, and those of the manifest in the user's folder."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from optfair.errors import DataError
from optfair.locate import load_facts

__all__ = ["MANIFEST", "VARIABLE", "DatasetFacts", "data_folder", "known_facts"]

VARIABLE = "OPTFAIR_DATA"
MANIFEST = "MANIFEST.toml"
OURS = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True)
class DatasetFacts:
    """One table of ``data/datasets.toml``, which explains the keys, or of a manifest.

    Attributes
    ----------
    folder : Path or None
        Where ``file`` lies; None while nobody said.
    """

    name: str
    origin: str
    folder: Path | None = None
    file: str = ""
    sha256: str = ""
    rows: int = 0
    columns: tuple[str, ...] = ()
    loader: str = ""
    target: str = ""
    licence: str = ""
    citation: str = ""
    source: str = ""
    note: str = ""
    drop: Mapping[str, Any] = field(default_factory=dict)
    derived: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    numeric: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


KEYS = frozenset(f.name for f in fields(DatasetFacts)) - {"name", "folder"}


def data_folder() -> Path | None:
    """Return the folder named by the environment variable, None when it is not set."""
    value = os.environ.get(VARIABLE, "")
    return Path(value) if value else None


def known_facts() -> dict[str, DatasetFacts]:
    """Return the facts of every data set, ours and the folder's, by name.

    Raises
    ------
    DataError
        A manifest that is missing or not TOML.
    """
    ours = load_facts(OURS / "datasets.toml")
    del ours["schema"]
    folder = data_folder()
    theirs = {} if folder is None else _manifest(folder)
    known = {}
    for name in sorted({*ours, *theirs}):
        table = dict(ours.get(name, {"origin": "folder"}))
        unknown = sorted(set(table) - KEYS)
        if unknown:
            raise DataError(f"facts of {name} have unknown keys {unknown}", remedy="mend the file")
        place: Path | None = OURS
        if table["origin"] == "folder":
            extra = theirs.get(name)
            # manifests may say more than we use, such as who needs the set
            table = {**{k: v for k, v in (extra or {}).items() if k in KEYS}, **table}
            place = folder if extra is not None else None
        known[name] = DatasetFacts(name=name, folder=place, **_tuples(table))
    return known


def _tuples(table: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{VARIABLE} has no {MANIFEST}",
            f"looked for {path}",
            "point the variable to the folder with the data sets, or unset it",
        )
    try:
        with path.open("rb") as f:
            tables = tomllib.load(f)
    except tomllib.TOMLDecodeError as e:
        raise DataError(f"{path} is not valid TOML", str(e), "mend the file") from None
    return {name: table for name, table in tables.items() if isinstance(table, dict)}
