"""Read a problem from a file."""

from __future__ import annotations

from pathlib import Path

from optfair.core.adopt import AdoptedProblem
from optfair.errors import DataError
from optfair.formats.cbf_reader import read_cbf
from optfair.formats.file_program import problem_of
from optfair.formats.lp_reader import read_lp
from optfair.formats.mps_reader import read_mps

__all__ = ["is_problem_file", "read"]

ENDINGS = (".mps", ".lp", ".cbf")


def is_problem_file(name: str | Path) -> bool:
    """Return whether a name ends like a file that `read` knows."""
    return _ending(Path(name)) in ENDINGS


def _ending(file: Path) -> str:
    endings = [s.lower() for s in file.suffixes if s.lower() != ".gz"]
    return endings[-1] if endings else ""


def read(path: str | Path) -> AdoptedProblem:
    """Read a problem from an MPS, LP or CBF file.

    Columns and rows named ``x[0]``, ``x[1]``, ... become one variable or constraint ``x``;
    the bounds of its columns become constraints ``x lower``, ``x upper`` and ``x fixed``. A
    row with two sides becomes ``row lower`` and ``row upper``.

    Parameters
    ----------
    path : str or Path
        ``.mps``, ``.lp`` or ``.cbf``, each also compressed with ``.gz`` behind.

    Returns
    -------
    AdoptedProblem
        Classified, and ready to be composed, solved and verified as any other.

    Raises
    ------
    DataError
        The file is missing, corrupt, or uses what is not known here; with the line.

    Examples
    --------
    >>> import cvxpy as cp, tempfile
    >>> from optfair.formats.export import export
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Maximize(x[0]), [cp.sum(x) <= 1, x >= 0]), ["budget", "sign"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(p, folder + "/p.mps")
    ...     q = read(folder + "/p.mps")
    >>> q.problem_class, list(q.variables), list(q.constraints), q.solve().objective
    (LP, ['x'], ['budget', 'sign'], 1.0)
    """
    file = Path(path)
    kind = _ending(file)
    if kind == ".mps":
        return problem_of(read_mps(file), file.name)
    if kind == ".lp":
        return problem_of(read_lp(file), file.name)
    if kind == ".cbf":
        return read_cbf(file)
    raise DataError(
        f"the format of {file.name!r} is not known",
        "the ending of the name says which it is",
        f"known are {', '.join(ENDINGS)}, each also with .gz behind",
    )
