"""Write a problem to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from optfair.compile.cone_program import cone_program
from optfair.compile.program import Program, program
from optfair.compile.pyomo import to_pyomo
from optfair.core.parameters import check_parameters
from optfair.errors import DataError, UnsupportedProblem
from optfair.formats.cbf_writer import cbf_lines
from optfair.formats.entry_names import file_name
from optfair.formats.lp_writer import lp_lines
from optfair.formats.mps_writer import mps_lines
from optfair.formats.sdpa import sdpa_lines
from optfair.formats.table import format_of
from optfair.formats.text import replace_file, write_lines

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["export", "to_cbf", "to_cip", "to_lp", "to_mps", "to_nl", "to_sdpa"]


def export(problem: Problem, path: str | Path) -> None:
    """Write a problem to a file; the ending of its name says the format.

    ===========================  =============================================================
    ``.mps``, ``.qps``, ``.lp``  LP, QP, QCQP (convex or not), and with integer variables
    ``.cbf``                     every convex problem: LP, SOCP, SDP, exponential and power
                                 cones, integer variables; quadratics become second-order cones
    ``.dat-s``                   LP and SDP in the sparse format of SDPA
    ``.nl``                      as ``.mps``, through Pyomo
    ``.cip``                     QCQP (convex or not), as SCIP writes it
    ===========================  =============================================================

    The first five endings are also written compressed with ``.gz`` or ``.bz2`` behind. Every named
    constraint is written as rows of that name, bounds included.

    Parameters
    ----------
    problem : Problem
        What to write.
    path : str or Path
        File; an existing one is replaced, at the end and as a whole.

    Raises
    ------
    UnsupportedProblem
        The format cannot carry the problem; the term is named.
    DataError
        The ending is not known, or the folder is missing.
    NotInstalled
        What writes the format is missing.

    Examples
    --------
    >>> import cvxpy as cp, tempfile
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= 1]), ["disk"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(p, folder + "/p.cbf")
    ...     export(p, folder + "/p.mps")
    Traceback (most recent call last):
    ...
    optfair.errors.UnsupportedProblem: 'disk' is not quadratic
      why: ...
      do:  write it as quadratics, or remove 'disk', or export to .cbf, which has cones
    """
    check_parameters(problem.terms)
    file = Path(path)
    if not file.parent.is_dir():
        raise DataError(f"there is no folder {file.parent}", remedy="make it, or check the path")
    format_of(file, "write").write(problem, file)


def _title(problem: Problem) -> str:
    return file_name(problem.title or type(problem).__name__)


def _rows(problem: Problem) -> Program:
    try:
        return program(problem)
    except UnsupportedProblem as e:
        if not problem.problem_class.convex:  # cones would not take it either
            raise
        raise UnsupportedProblem(
            e.cause, e.evidence, f"{e.remedy}, or export to .cbf, which has cones"
        ) from e


def to_mps(problem: Problem, file: Path) -> None:
    """Write rows as MPS."""
    write_lines(file, mps_lines(_rows(problem), _title(problem)))


def to_lp(problem: Problem, file: Path) -> None:
    """Write rows as LP."""
    write_lines(file, lp_lines(_rows(problem), _title(problem)))


def to_cbf(problem: Problem, file: Path) -> None:
    """Write cones as CBF."""
    write_lines(file, cbf_lines(cone_program(problem, quadratic=False), _title(problem)))


def to_sdpa(problem: Problem, file: Path) -> None:
    """Write linear rows and matrix inequalities as SDPA."""
    for term in problem.terms:
        if str(term.evidence.problem_class) not in ("LP", "SDP"):
            raise UnsupportedProblem(
                f"{term.name!r} is neither linear nor a matrix inequality",
                str(term.evidence),
                f"remove {term.name!r}, or export to .cbf, which has all cones",
            )
    write_lines(file, sdpa_lines(cone_program(problem, quadratic=False), _title(problem)))


def to_cip(problem: Problem, file: Path) -> None:
    """Let SCIP write the problem."""
    from optfair.backends.scip_backend import export_scip

    export_scip(problem, file)


def to_nl(problem: Problem, file: Path) -> None:
    """Let Pyomo write the problem."""
    model = to_pyomo(problem)
    replace_file(file, lambda name: model.write(str(name), format="nl"))
