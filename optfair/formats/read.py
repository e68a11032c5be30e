"""Read a problem from a file."""

from __future__ import annotations

from pathlib import Path

from optfair.errors import DataError
from optfair.formats.file_problem import FileProblem
from optfair.formats.mps_reader import Duplicates
from optfair.formats.table import format_of, readable
from optfair.formats.text import plain_name

__all__ = ["is_problem_file", "read"]


def is_problem_file(name: str | Path) -> bool:
    """Return whether a name ends like a file that `read` knows."""
    return plain_name(Path(name)).suffix.lower() in readable()


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
    found = format_of(file, "read").read
    if found is None:  # format_of has looked
        raise DataError(f"{file.name} cannot be read")
    return found(file, duplicates)
