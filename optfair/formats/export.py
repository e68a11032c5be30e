"""Write a problem to a file."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from optfair.compile.cone_program import cone_program
from optfair.compile.program import program
from optfair.core.parameters import check_parameters
from optfair.errors import DataError, UnsupportedProblem
from optfair.formats.cbf import cbf_lines
from optfair.formats.entry_names import file_name
from optfair.formats.lp import lp_lines
from optfair.formats.mps import mps_lines

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["export"]


def export(problem: Problem, path: str | Path) -> None:
    """Write a problem to a file; the ending of its name says the format.

    ==================  =====================================================================
    ``.mps``, ``.lp``   LP, QP, QCQP (convex or not), and the same with integer variables
    ``.cbf``            every convex problem: LP, SOCP, SDP, exponential and power cones,
                        integer variables; quadratics become second-order cones
    ``.cip``            QCQP (convex or not), as SCIP writes it
    ==================  =====================================================================

    The first three are also written compressed with ``.gz`` behind. Every named constraint
    is written as rows of that name, bounds included.

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
    packed = file.suffix.lower() == ".gz"
    kind = (file.with_suffix("") if packed else file).suffix.lower()
    if not file.parent.is_dir():
        raise DataError(f"there is no folder {file.parent}", remedy="make it, or check the path")
    title = file_name(problem.title or type(problem).__name__)
    if kind in (".mps", ".lp"):
        try:
            rows = program(problem)
        except UnsupportedProblem as e:
            if not problem.problem_class.convex:  # cones would not take it either
                raise
            raise UnsupportedProblem(
                e.cause, e.evidence, f"{e.remedy}, or export to .cbf, which has cones"
            ) from e
        _write(file, mps_lines(rows, title) if kind == ".mps" else lp_lines(rows, title), packed)
    elif kind == ".cbf":
        _write(file, cbf_lines(cone_program(problem, quadratic=False), title), packed)
    elif kind == ".cip" and not packed:
        from optfair.backends.scip_backend import export_scip

        export_scip(problem, file)
    else:
        raise DataError(
            f"the format of {file.name!r} is not known",
            "the ending of the name says which it is",
            "known are .mps, .lp, .cbf (each also with .gz behind) and .cip",
        )


def _write(file: Path, lines: Iterable[str], packed: bool) -> None:
    data = ("\n".join(lines) + "\n").encode("ascii" if packed else "utf-8", "backslashreplace")
    if packed:
        data = gzip.compress(data, mtime=0)  # the same problem gives the same bytes
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
