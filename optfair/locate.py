"""Where the folders of facts are: the checkout's, the wheel's, and the user's own."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from optfair.errors import DeclarationError, nearest
from optfair.storage import read_toml

_PACKAGE = Path(__file__).resolve().parent


@lru_cache(maxsize=1)
def _root() -> Path:
    """Return the checkout if this package lies in one, else the data shipped in the wheel."""
    parent = _PACKAGE.parent
    project = parent / "pyproject.toml"
    if project.is_file():
        with project.open("rb") as f:
            if tomllib.load(f).get("project", {}).get("name") == "optfair":
                return parent
    return _PACKAGE / "_library"


def folders(kind: str) -> tuple[Path, ...]:
    """Return the folders of "problems" or "solvers": ours, methods', the user's (``OPTFAIR_...``)."""
    extra = os.environ.get(f"OPTFAIR_{kind.upper()}", "")
    return (
        _root() / kind,
        *_brought(kind, tuple(method_folders().values())),
        *(Path(part) for part in extra.split(os.pathsep) if part),
    )


@lru_cache(maxsize=4)
def _brought(kind: str, packages: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the folders of that kind that packages bring."""
    return tuple(folder / kind for folder in packages if (folder / kind).is_dir())


@lru_cache(maxsize=1)
def method_folders() -> dict[str, Path]:
    """Return the folder of every package that has a ``method.toml``: ours, then installed ones.

    Raises
    ------
    DeclarationError
        An entry point ``optfair.methods`` names a package that is not there, or has no such file.
    """
    import importlib.metadata  # half of what importing optfair would take
    import importlib.util

    ours = sorted(path.parent for path in _PACKAGE.glob("methods/*/method.toml"))
    known = {f"optfair.methods.{folder.name}": folder for folder in ours}
    known["optfair.features"] = _PACKAGE / "features"
    for point in importlib.metadata.entry_points(group="optfair.methods"):
        spec = importlib.util.find_spec(point.value)
        places = [] if spec is None else [Path(p) for p in spec.submodule_search_locations or ()]
        there = [folder for folder in places if (folder / "method.toml").is_file()]
        if not there:
            raise DeclarationError(
                f"the method {point.name!r} has no method.toml",
                f"its entry point names the package {point.value!r}",
                "name the package whose folder holds the file, or uninstall it",
            )
        known[point.value] = there[0]
    return known


def fact_files(kind: str) -> dict[str, Path]:
    """Return TOML files by name relative to their folder, without the ending."""
    found: dict[str, Path] = {}
    for folder in folders(kind):
        try:
            found |= _listed(folder, _stamp(folder))
        except (FileNotFoundError, NotADirectoryError):
            raise DeclarationError(
                f"the folder of {kind} {str(folder)!r} does not exist",
                remedy=f"correct OPTFAIR_{kind.upper()}, or reinstall optfair",
            ) from None
    return found


def _stamp(folder: Path) -> tuple[tuple[str, int], ...]:
    """Return when a folder and the folders in it changed last."""
    with os.scandir(folder) as entries:
        inner = sorted((e.name, e.stat().st_mtime_ns) for e in entries if e.is_dir())
    return (("", folder.stat().st_mtime_ns), *inner)


@lru_cache(maxsize=8)  # every solve asks for the solvers; walking the folder takes longer
def _listed(folder: Path, stamp: tuple[tuple[str, int], ...]) -> dict[str, Path]:
    paths = sorted(folder.rglob("*.toml"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}


def load_facts(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file of facts."""
    facts = read_toml(path)
    if facts.get("schema") != 1:
        raise DeclarationError(
            f"{path} has schema {facts.get('schema')!r}", remedy="write schema = 1 at its top"
        )
    return facts


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise on a key that nobody reads.

    Raises
    ------
    DeclarationError
        With the nearest known key.
    """
    names = list(known)
    for key in table:
        if key not in names:
            raise DeclarationError(f"unknown key {key!r} in {where}", remedy=nearest(key, names))
