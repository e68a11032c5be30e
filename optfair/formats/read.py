"""Read a problem from a file."""

from __future__ import annotations

from pathlib import Path

from optfair.errors import DataError
from optfair.formats.arrays import read_mat
from optfair.formats.cbf_reader import read_cbf
from optfair.formats.file_problem import FileProblem
from optfair.formats.lp_reader import read_lp
from optfair.formats.mps_reader import Duplicates, read_mps
from optfair.formats.table import format_of

__all__ = ["from_cbf", "from_lp", "from_mat", "from_mps", "read"]


def read(path: str | Path, *, duplicates: Duplicates = "refuse") -> FileProblem:
    """Read a problem from an MPS, LP, CBF, SDPA or MAT file.

    All continuous columns are one vector and all integer ones another. Columns and rows named
    ``x[0]``, ``x[1]``, ... (or ``x1``, ``x2``, ...) are an array: ``p["x"]``, ``s["x"]``. Every
    column and row is found by its label too: ``p["COL1"]``, ``s["COL1"]``,
    ``s.shadow_price["ROW1"]``; see `FileProblem` for the names of terms.

    Parameters
    ----------
    path : str or Path
        ``.mps``, ``.qps``, ``.lp``, ``.cbf`` or ``.dat-s``, each also compressed with ``.gz`` or
        ``.bz2`` behind, or ``.mat``.
    duplicates : {"refuse", "sum"}
        What to do with two numbers for one place of a matrix, and with a quadratic section whose triangles
        differ.

    Returns
    -------
    FileProblem
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
    if duplicates not in ("refuse", "sum"):
        raise DataError(f"duplicates is {duplicates!r}", remedy='give "refuse" or "sum"')
    file = Path(path)
    found: FileProblem = format_of(file, "read").read(file, duplicates)
    return found


def from_mps(file: Path, duplicates: Duplicates) -> FileProblem:
    """Return the problem of an MPS file."""
    return FileProblem(read_mps(file, duplicates), file.name)


def from_lp(file: Path, duplicates: Duplicates) -> FileProblem:
    """Return the problem of an LP file; a column that stands twice in a sum counts twice anyway."""
    return FileProblem(read_lp(file), file.name)


def from_cbf(file: Path, duplicates: Duplicates) -> FileProblem:
    """Return the problem of a CBF file."""
    return read_cbf(file, duplicates)


def from_mat(file: Path, duplicates: Duplicates) -> FileProblem:
    """Return the problem of a MATLAB file, whose matrices have one number a place."""
    return read_mat(file)
