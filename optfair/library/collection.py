"""Public collections of problem files: a folder with a manifest that says what is known of each."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair.errors import DataError, nearest
from optfair.registry import check_keys
from optfair.storage import read_toml

if TYPE_CHECKING:
    from optfair.core.problem import Problem

#: environment variable that names the folder of the manifest
FOLDER = "OPTFAIR_COLLECTIONS"
MANIFEST = "MANIFEST.toml"
# Key -> type, for the tables of a manifest.
_SET: dict[str, type] = dict.fromkeys(("name", "title", "source", "licence", "optimum"), str)
_MEMBER: dict[str, Any] = {
    "set": str,
    "name": str,
    "file": str,
    "sha256": str,
    "optimum": (int, float, str),
}
_NEEDED = ("set", "name", "file", "sha256")
# Words of a manifest for a program without optimum, and the outcome they mean.
_OUTCOMES = {
    "primal infeasible": "infeasible",
    "infeasible": "infeasible",
    "dual infeasible": "unbounded",
    "unbounded": "unbounded",
    "nonconvex": "nonconvex",
}


@dataclass(frozen=True)
class Member:
    """One problem file of a collection.

    Attributes
    ----------
    name : str
        COLLECTION/NAME.
    path : Path
        The file.
    sha256 : str
        Its checksum.
    optimum : float or None
        What its collection says; None where nothing is known, or there is no optimum.
    digits : int
        Significant digits to which that is printed, 17 for a float.
    outcome : str
        optimal, infeasible, unbounded or nonconvex.
    source, licence : str
        Where it comes from, and on what terms.
    """

    name: str
    path: Path
    sha256: str
    optimum: float | None = None
    digits: int = 17
    outcome: str = "optimal"
    source: str = ""
    licence: str = ""

    def problem(self) -> Problem:
        """Read the problem, after a look at the checksum.

        Raises
        ------
        DataError
            The file is missing, is another one, or cannot be read.
        """
        from optfair.formats.files import read

        try:
            data = self.path.read_bytes()
        except OSError as e:
            why = e.strerror or str(e)
            remedy = "restore it from its source"
            raise DataError(f"{self.name} cannot be read: {self.path}", why, remedy) from None
        own = hashlib.sha256(data).hexdigest()
        if own != self.sha256:
            raise DataError(
                f"{self.path} is not the file that its manifest names",
                f"SHA-256 {own}, stated {self.sha256}",
                "restore the file, or correct the manifest",
            )
        return read(self.path)

    def agrees(self, objective: float, tolerance: float) -> bool | None:
        """Return whether an objective is the known optimum, to the digits that are printed.

        None where no optimum is known.
        """
        if self.optimum is None:
            return None
        size = max(1.0, abs(self.optimum))
        exponent = int(f"{abs(self.optimum):e}".partition("e")[2])
        printed = 10.0 ** (exponent - self.digits + 1) if self.digits < 17 else 0.0
        return abs(objective - self.optimum) <= tolerance * size + printed


def collection(name: str, folder: str | Path | None = None) -> tuple[Member, ...]:
    r"""Return the members of a public collection, with their known optima.

    Nothing but the manifest is read; ``member.problem()`` reads a file.

    Parameters
    ----------
    name : str
        What the manifest calls the collection: netlib, maros_meszaros, sdplib ...
    folder : path, optional
        Folder with ``MANIFEST.toml``: ``[[set]]`` tables (name, title, source, licence) and
        ``[[instance]]`` tables (set, name, file, sha256, optimum). By default that of the
        environment variable ``OPTFAIR_COLLECTIONS``.

    Raises
    ------
    DataError
        No folder, no manifest, an unknown collection, or a manifest that does not say what it
        must; a file outside the folder.

    Examples
    --------
    >>> import hashlib, pathlib, tempfile
    >>> import optfair as of
    >>> text = "* tiny\n1\n1\n2\n1.0\n0 1 1 2 1.0\n1 1 1 1 1.0\n1 1 2 2 1.0\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "tiny.dat-s")
    ...     _ = file.write_text(text)
    ...     mark = hashlib.sha256(file.read_bytes()).hexdigest()
    ...     _ = pathlib.Path(folder, "MANIFEST.toml").write_text(
    ...         '[[set]]\nname = "own"\n[[instance]]\nset = "own"\nname = "tiny"\n'
    ...         f'file = "tiny.dat-s"\nsha256 = "{mark}"\noptimum = 1.0\n')
    ...     member, = of.library.collection("own", folder)
    ...     objective = member.problem().solve().objective
    >>> member.name, round(objective, 6)
    ('own/tiny', 1.0)
    """
    place, facts = _manifest(folder)
    sets = {s["name"]: s for s in facts["set"]}
    if name not in sets:
        raise DataError(
            f"no collection {name!r} in {place / MANIFEST}",
            f"it has {', '.join(sets) or 'none'}",
            nearest(name, sets),
        )
    return tuple(_member(i, sets[name], place) for i in facts["instance"] if i["set"] == name)


def collections(folder: str | Path | None = None) -> tuple[str, ...]:
    """Return the names of the collections of a folder, none where no folder is known."""
    if folder is None and not os.environ.get(FOLDER):
        return ()
    return tuple(s["name"] for s in _manifest(folder)[1]["set"])


def _manifest(folder: str | Path | None) -> tuple[Path, dict[str, Any]]:
    named = folder if folder is not None else os.environ.get(FOLDER, "")
    if not str(named):
        raise DataError(
            "no folder of collections is known",
            remedy=f"give a folder with {MANIFEST}, or set {FOLDER}",
        )
    place = Path(named).resolve()
    file = place / MANIFEST
    if not file.is_file():
        remedy = "give the folder of a collection, with its manifest"
        raise DataError(f"{place} has no {MANIFEST}", remedy=remedy)
    facts = read_toml(file)
    for key in ("set", "instance"):
        tables = facts.setdefault(key, [])
        if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            raise DataError(
                f"{place / MANIFEST}: {key!r} is no list of tables", remedy=f"[[{key}]]"
            )
        for k, table in enumerate(tables, start=1):
            where = f"[[{key}]] {k} of {place / MANIFEST}"
            _check(table, _SET if key == "set" else _MEMBER, where)
            missing = [n for n in (("name",) if key == "set" else _NEEDED) if n not in table]
            if missing:
                raise DataError(f"{where} has no {missing[0]!r}", remedy="add it")
    return place, facts


def _check(table: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    check_keys(table, known, where)
    for key, value in table.items():
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise DataError(f"{key!r} in {where} is {value!r}", remedy="correct it")


def _member(table: Mapping[str, Any], group: Mapping[str, Any], place: Path) -> Member:
    name = f"{table['set']}/{table['name']}"
    path = (place / table["file"]).resolve()
    if not path.is_relative_to(place):
        raise DataError(f"the file of {name} lies outside {place}", str(path), "keep it inside")
    if not re.fullmatch("[0-9a-f]{64}", table["sha256"]):
        raise DataError(f"{table['sha256']!r} of {name} is no SHA-256", remedy="give 64 hex digits")
    known = table.get("optimum")
    value, digits, outcome = None, 17, "optimal"
    if isinstance(known, str) and known in _OUTCOMES:
        outcome = _OUTCOMES[known]
    elif known is not None:
        try:
            value = float(known)
        except ValueError:
            words = ", ".join(_OUTCOMES)
            raise DataError(
                f"the optimum of {name} is {known!r}", remedy=f"give a number, or one of {words}"
            ) from None
        if isinstance(known, str):  # as printed
            digits = len(re.sub(r"[eE].*|[^0-9]", "", known).lstrip("0")) or 1
    return Member(
        name,
        path,
        table["sha256"],
        value,
        digits,
        outcome,
        str(group.get("source", "")),
        str(group.get("licence", "")),
    )
