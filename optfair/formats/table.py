"""The formats of files: which endings are read and written, by whom, and what they carry."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from optfair.errors import DataError

__all__ = [
    "COMPRESSED",
    "FORMATS",
    "Format",
    "format_of",
    "is_problem_file",
    "plain_name",
    "readable",
    "table_lines",
    "writable",
]

#: endings of compressed files
COMPRESSED = (".gz", ".bz2")
_ROWS = "LP, QP, QCQP (convex or not), each also with integer variables"


@dataclass(frozen=True)
class Format:
    """One format.

    Parameters
    ----------
    endings : tuple of str
        Endings of file names.
    carries : str
        Classes of problems.
    reads, writes : str
        Functions of the reader and the writer, empty where there is none; they are imported when they are
        called, so that this table costs nothing.
    compressed : bool
        Whether ``.gz`` and ``.bz2`` may stand behind the ending.
    needs : str
        What must be installed to write it.
    """

    endings: tuple[str, ...]
    carries: str
    reads: str = ""
    writes: str = ""
    compressed: bool = True
    needs: str = ""

    def read(self, file: Path, duplicates: str) -> Any:
        """Return the problem in a file."""
        return _function(self.reads)(file, duplicates)

    def write(self, problem: Any, file: Path) -> None:
        """Write a problem to a file."""
        _function(self.writes)(problem, file)


FORMATS = (
    Format((".mps", ".qps"), _ROWS, "read.from_mps", "export.to_mps"),
    Format((".lp",), _ROWS, "read.from_lp", "export.to_lp"),
    Format(
        (".cbf",),
        "every convex problem: linear, second-order, semidefinite, exponential, power cones;"
        " integer variables",
        "read.from_cbf",
        "export.to_cbf",
    ),
    Format((".dat-s",), "LP, SDP", "sdpa.read_sdpa", "export.to_sdpa"),
    Format(
        (".mat",), "QP in arrays P, q, r, A, l, u, G, h, lb, ub", "read.from_mat", compressed=False
    ),
    Format((".nl",), _ROWS, writes="export.to_nl", compressed=False, needs="Pyomo"),
    Format((".cip",), _ROWS, writes="export.to_cip", compressed=False, needs="SCIP"),
)


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(".")
    found: Callable[..., Any] = getattr(
        importlib.import_module(f"optfair.formats.{module}"), function
    )
    return found


def plain_name(file: Path) -> Path:
    """Return the name without the ending of a compression.

    Examples
    --------
    >>> plain_name(Path("p.mps.gz")).name, plain_name(Path("p.mps")).name
    ('p.mps', 'p.mps')
    """
    return file.with_suffix("") if file.suffix.lower() in COMPRESSED else file


def readable() -> tuple[str, ...]:
    """Return the endings that `optfair.read` knows."""
    return tuple(e for f in FORMATS if f.reads for e in f.endings)


def is_problem_file(name: str | Path) -> bool:
    """Return whether a name ends like a file that `optfair.read` knows."""
    return plain_name(Path(name)).suffix.lower() in readable()


def writable() -> tuple[str, ...]:
    """Return the endings that `optfair.export` knows."""
    return tuple(e for f in FORMATS if f.writes for e in f.endings)


def format_of(file: Path, verb: Literal["read", "write"]) -> Format:
    """Return the format of a file name.

    Raises
    ------
    DataError
        The ending is not known, or not for this.
    """
    plain = plain_name(file)
    known = ", ".join(readable() if verb == "read" else writable())
    for f in FORMATS:
        if plain.suffix.lower() not in f.endings or (plain != file and not f.compressed):
            continue
        if f.reads if verb == "read" else f.writes:
            return f
        other = "written" if verb == "read" else "read"
        raise DataError(f"{f.endings[0]} files can be {other} only", remedy=f"known are {known}")
    packed = ", ".join(e for f in FORMATS if f.compressed for e in f.endings)
    raise DataError(
        f"the format of {file.name!r} is not known",
        "the ending of the name says which it is",
        f"known are {known}; {packed} also with {' or '.join(COMPRESSED)} behind",
    )


def table_lines() -> list[str]:
    """Return the table of formats as it stands in the documentation."""
    lines = ["| Ending | Writes | Reads | Carries |", "| --- | --- | --- | --- |"]
    for f in FORMATS:
        writes = f"through {f.needs}" if f.needs else "yes" if f.writes else "no"
        endings = ", ".join(f"`{e}`" for e in f.endings)
        lines.append(f"| {endings} | {writes} | {'yes' if f.reads else 'no'} | {f.carries} |")
    return lines
