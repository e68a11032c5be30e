"""Write a problem to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from optfair.errors import DataError
from optfair.formats.table import format_of

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["export"]


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

    The first five are also written compressed with ``.gz`` or ``.bz2`` behind. Every named
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
    file = Path(path)
    if not file.parent.is_dir():
        raise DataError(f"there is no folder {file.parent}", remedy="make it, or check the path")
    write = format_of(file, "write").write
    if write is not None:
        write(problem, file)
