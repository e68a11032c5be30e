"""The formats of files: which ending is read and written, and what it carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair.compile.cone_program import cone_program
from optfair.compile.program import program
from optfair.compile.pyomo import to_pyomo
from optfair.errors import DataError, UnsupportedProblem
from optfair.formats.arrays import read_mat
from optfair.formats.cbf_reader import read_cbf
from optfair.formats.cbf_writer import cbf_lines
from optfair.formats.entry_names import file_name
from optfair.formats.file_problem import FileProblem
from optfair.formats.lp_reader import read_lp
from optfair.formats.lp_writer import lp_lines
from optfair.formats.mps_reader import Duplicates, read_mps
from optfair.formats.mps_writer import mps_lines
from optfair.formats.sdpa import read_sdpa, sdpa_lines
from optfair.formats.text import COMPRESSED, plain_name, replace_file, write_lines

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["FORMATS", "Format", "format_of", "readable", "table_lines", "writable"]

_ROWS = "LP, QP, QCQP (convex or not), each also with integer variables"


@dataclass(frozen=True)
class Format:
    """One format.

    Parameters
    ----------
    endings : tuple of str
        Endings of file names; the first is the one that is advised.
    carries : str
        Classes of problems.
    read : callable, optional
        Returns the problem in a file, from its path and what to do with duplicates.
    write : callable, optional
        Writes a problem to a path.
    compressed : bool
        Whether ``.gz`` and ``.bz2`` may stand behind the ending.
    needs : str
        What must be installed to write it.
    """

    endings: tuple[str, ...]
    carries: str
    read: Callable[[Path, Duplicates], FileProblem] | None = None
    write: Callable[[Problem, Path], None] | None = None
    compressed: bool = True
    needs: str = ""


def _title(problem: Problem) -> str:
    return file_name(problem.title or type(problem).__name__)


def _writes_rows(lines: Callable[[Any, str], Any]) -> Callable[[Problem, Path], None]:
    def write(problem: Problem, file: Path) -> None:
        try:
            rows = program(problem)
        except UnsupportedProblem as e:
            if not problem.problem_class.convex:  # cones would not take it either
                raise
            raise UnsupportedProblem(
                e.cause, e.evidence, f"{e.remedy}, or export to .cbf, which has cones"
            ) from e
        write_lines(file, lines(rows, _title(problem)))

    return write


def _write_cbf(problem: Problem, file: Path) -> None:
    write_lines(file, cbf_lines(cone_program(problem, quadratic=False), _title(problem)))


def _write_sdpa(problem: Problem, file: Path) -> None:
    write_lines(file, sdpa_lines(cone_program(problem, quadratic=False), _title(problem)))


def _write_cip(problem: Problem, file: Path) -> None:
    from optfair.backends.scip_backend import export_scip

    export_scip(problem, file)


def _write_nl(problem: Problem, file: Path) -> None:
    model = to_pyomo(problem)
    replace_file(file, lambda name: model.write(str(name), format="nl") and None)


FORMATS = (
    Format(
        (".mps", ".qps"),
        _ROWS,
        lambda file, duplicates: FileProblem(read_mps(file, duplicates), file.name),
        _writes_rows(mps_lines),
    ),
    Format(
        (".lp",),
        _ROWS,
        lambda file, duplicates: FileProblem(read_lp(file), file.name),
        _writes_rows(lp_lines),
    ),
    Format(
        (".cbf",),
        "every convex problem: linear, second-order, semidefinite, exponential, power cones;"
        " integer variables",
        lambda file, duplicates: read_cbf(file),
        _write_cbf,
    ),
    Format(
        (".dat-s",),
        "LP and SDP",
        lambda file, duplicates: read_sdpa(file, duplicates),
        _write_sdpa,
    ),
    Format(
        (".mat",),
        "QP in arrays P, q, r, A, l, u, lb, ub",
        lambda file, duplicates: read_mat(file),
        compressed=False,
    ),
    Format((".nl",), _ROWS, write=_write_nl, compressed=False, needs="Pyomo"),
    Format((".cip",), _ROWS, write=_write_cip, compressed=False, needs="SCIP"),
)


def readable() -> tuple[str, ...]:
    """Return the endings that `optfair.read` knows."""
    return tuple(e for f in FORMATS if f.read for e in f.endings)


def writable() -> tuple[str, ...]:
    """Return the endings that `optfair.export` knows."""
    return tuple(e for f in FORMATS if f.write for e in f.endings)


def format_of(file: Path, verb: str) -> Format:
    """Return the format of a file name, to "read" or to "write".

    Raises
    ------
    DataError
        The ending is not known, or not for this.
    """
    plain = plain_name(file)
    for f in FORMATS:
        if plain.suffix.lower() not in f.endings or (plain != file and not f.compressed):
            continue
        if (f.read if verb == "read" else f.write) is not None:
            return f
        other = "written" if verb == "read" else "read"
        raise DataError(
            f"{f.endings[0]} files can be {other} only",
            remedy="known are " + ", ".join(readable() if verb == "read" else writable()),
        )
    packed = ", ".join(e for f in FORMATS if f.compressed for e in f.endings)
    known = readable() if verb == "read" else writable()
    raise DataError(
        f"the format of {file.name!r} is not known",
        "the ending of the name says which it is",
        f"known are {', '.join(known)}; {packed} also with {' or '.join(COMPRESSED)} behind",
    )


def table_lines() -> list[str]:
    """Return the table of formats as it stands in the documentation."""
    lines = ["| Ending | Writes | Reads | Carries |", "| --- | --- | --- | --- |"]
    for f in FORMATS:
        writes = "no" if f.write is None else f"through {f.needs}" if f.needs else "yes"
        reads = "yes" if f.read else "no"
        lines.append(
            f"| {', '.join(f'`{e}`' for e in f.endings)} | {writes} | {reads} | {f.carries} |"
        )
    return lines
