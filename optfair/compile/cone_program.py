"""A problem as a cone program in arrays, with names of rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.compile.form import Compiled, compile_problem
from optfair.core.canonical import built
from optfair.core.problem import check_problem
from optfair.numbers import Floats, check_flag, check_path, check_vector, checked
from optfair.proofs.cones import Cone
from optfair.storage import write_archive

if TYPE_CHECKING:
    from optfair.core.problem import Problem

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class ConeProgram:
    r"""A cone program in arrays.

    .. math::
        \min_x\; \tfrac12 x^T P x + q^T x + r
        \quad\text{s.t.}\quad A x + s = b,\; s \in \mathcal{K}_1 \times \dots \times \mathcal{K}_p

    A maximisation is written as the minimisation of the negative objective.

    Attributes
    ----------
    P, q, offset, A, b
        Data; P and A are sparse.
    cones : tuple of Cone
        Blocks of rows: zero, nonneg, soc (t, x), psd (triangle column by column, off-diagonal
        entries times √2), exp (x, y, z with y exp(x/y) <= z), pow.
    columns, rows : tuple of str
        Name of each column and row, ``x[0]`` and ``budget`` as in the problem; ``auxiliary[k]``
        and ``cone k[i]`` for what the reduction to cones added.
    maximize : bool
        Whether the declared objective is minus the compiled one.
    integer : array (n,) of bool
        Columns that are integer.
    """

    P: Any
    q: Floats
    offset: float
    A: Any
    b: Floats
    cones: tuple[Cone, ...]
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    maximize: bool
    integer: NDArray[np.bool_]
    owners: tuple[tuple[str, int, int], ...]
    compiled: Compiled

    def by_name(
        self, x: Floats, z: Floats | None = None
    ) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return values by variable and multipliers by constraint from a point (x, z).

        z are the multipliers of A x + s = b with z in the dual cones.
        """
        return self.compiled.by_name(
            check_vector(x, "x", self.q.size),
            None if z is None else check_vector(z, "z", self.b.size),
        )

    @checked(path=check_path)
    def save(self, path: str | Path) -> None:
        """Write ``path.npz``: the arrays, and cones, names and sense in its ``record.json``.

        Raises
        ------
        DataError
            A file of that name exists, or it cannot be written.
        """
        arrays: dict[str, Any] = {"q": self.q, "b": self.b, "integer": self.integer}
        for letter, matrix in (("P", self.P), ("A", self.A)):
            m = sp.csc_array(matrix)
            arrays |= {
                f"{letter}_data": m.data,
                f"{letter}_indices": m.indices,
                f"{letter}_indptr": m.indptr,
                f"{letter}_shape": np.array(m.shape),
            }
        record = {
            "schema": SCHEMA,
            "maximize": self.maximize,
            "offset": self.offset,
            "columns": list(self.columns),
            "rows": list(self.rows),
            "cones": [
                {"kind": c.kind, "start": c.start, "stop": c.stop}
                | ({"order": c.order, "upper": c.upper} if c.kind == "psd" else {})
                | ({"power": c.power} if c.kind == "pow" else {})
                for c in self.cones
            ],
        }
        write_archive(path, record, arrays)


@checked(problem=check_problem, quadratic=check_flag)
def cone_program(problem: Problem, *, quadratic: bool = True) -> ConeProgram:
    """Return the cone program of a convex problem, with the way back to its names.

    Parameters
    ----------
    problem : Problem
        Convex; integer variables are marked, not relaxed.
    quadratic : bool
        Keep a quadratic objective in P; otherwise it becomes a second-order cone.

    Raises
    ------
    UnsupportedProblem
        The problem is not known to be convex.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Maximize(x[0]), [cp.sum(x) == 1, x >= 0]), ["budget", "sign"])
    >>> c = cone_program(p)
    >>> c.columns, c.rows, c.maximize
    (('x[0]', 'x[1]'), ('budget', 'sign[0]', 'sign[1]'), True)
    >>> c.by_name([1.0, 0.0])[0]["x"].tolist()
    [1.0, 0.0]
    """
    # CVXPY's reductions know cones or integers, rarely both: reduce the relaxation, mark columns
    relaxed = problem._child(integers=frozenset())
    compiled = compile_problem(relaxed, cp.CLARABEL, quadratic=quadratic)
    form = compiled.form
    n = form.q.size
    integer = np.zeros(n, dtype=bool)
    columns = [""] * n
    for name, place in compiled.places().items():
        labels = problem.entry_labels(name) or _entries(name, place.shape, place.size)
        for column, label in zip(np.ravel(place, order="F"), labels, strict=True):
            if column >= 0 and not columns[column]:
                columns[column], integer[column] = label, name in problem.integers
    extra = [j for j, c in enumerate(columns) if not c]
    for k, j in enumerate(extra):
        columns[j] = f"auxiliary[{k}]"
    owners = _owners(compiled)
    rows = [""] * form.b.size
    for name, start, stop in owners:
        shape = built(compiled.constraints[name]).shape if name in compiled.constraints else ()
        term = problem.constraints.get(name)
        own = term.labels() if term is not None and term.labels is not None else ()
        plain = len(own) != stop - start
        rows[start:stop] = _entries(name, tuple(shape), stop - start) if plain else own
    return ConeProgram(
        P=form.P,
        q=form.q,
        offset=form.offset,
        A=form.A,
        b=form.b,
        cones=form.cones,
        columns=tuple(columns),
        rows=tuple(rows),
        maximize=form.sign < 0,
        integer=integer,
        owners=owners,
        compiled=compiled,
    )


def _entries(name: str, shape: tuple[int, ...], size: int) -> list[str]:
    """Return ``name`` or ``name[i,j]`` column by column; a plain count if the shape is another."""
    if int(np.prod(shape)) != size:  # the scaled triangle of a matrix, the parts of a cone
        shape = (size,)
    if not shape:
        return [name]
    where = np.unravel_index(np.arange(size), shape, order="F")
    return [
        f"{name}[{','.join(map(str, i))}]" for i in zip(*(w.tolist() for w in where), strict=True)
    ]


def _owners(compiled: Compiled) -> tuple[tuple[str, int, int], ...]:
    """Return (name of the term, first row, one past the last) for each block of rows.

    Rows that define epigraphs are named for themselves: they carry no multiplier of a term.
    """
    count = 0
    named = []
    for o in compiled.owners:
        count += not o.main
        named.append((o.term if o.main else f"cone {count}", o.start, o.stop))
    return tuple(named)
