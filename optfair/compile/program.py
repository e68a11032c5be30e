"""A problem as rows of linear and quadratic functions, each entry with a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.compile.quadratic import quadratic_terms
from optfair.core.quadratics import QuadraticMap
from optfair.errors import DeclarationError
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.core.problem import Problem


@dataclass(frozen=True)
class Block:
    """Consecutive columns or rows that share a name.

    Parameters
    ----------
    name : str
        Name of the variable or term.
    start : int
        First column or row.
    shape : tuple of int
        Shape; entries follow column by column.
    labels : sequence of str
        Names of the entries, where they have names of their own.
    """

    name: str
    start: int
    shape: tuple[int, ...]
    labels: Sequence[str] = ()

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape))

    @property
    def stop(self) -> int:
        """One past the last column or row."""
        return self.start + self.size

    def indices(self) -> list[tuple[int, ...]]:
        """Return the index of each entry, in order."""
        where = np.unravel_index(np.arange(self.size), self.shape, order="F")
        return list(zip(*(w.tolist() for w in where), strict=True)) if self.shape else [()]


@dataclass(frozen=True, eq=False)
class Program:
    r"""Rows of linear and quadratic functions between bounds.

    .. math::
        \min_x \text{ or } \max_x\; \tfrac12 x^T P x + q^T x + r
        \quad\text{s.t.}\quad
        l_k \le \tfrac12 x^T P_k x + a_k^T x \le u_k,\;
        l \le x \le u,\; x_j \in \mathbb{Z}\; (j \in J)

    Parameters
    ----------
    sense : str
        "minimize" or "maximize".
    columns, rows : tuple of Block
        What the columns and rows are called.
    P : sparse (n, n)
        Symmetric.
    q, offset
        Linear part (n,) and constant r.
    A : sparse csr (m, n)
        Linear part of the rows.
    products : QuadraticMap
        Quadratic part of the rows; its linear part is empty.
    row_lower, row_upper : array (m,)
        Infinite where there is none.
    lower, upper : array (n,)
        Bounds of the columns.
    integer : array (n,) of bool
        J.
    """

    sense: str
    columns: tuple[Block, ...]
    rows: tuple[Block, ...]
    P: Any
    q: Floats
    offset: float
    A: Any
    products: QuadraticMap
    row_lower: Floats
    row_upper: Floats
    lower: Floats
    upper: Floats
    integer: NDArray[np.bool_]

    @property
    def quadratic_rows(self) -> NDArray[np.int64]:
        """Rows that have a quadratic part."""
        return np.flatnonzero(np.diff(self.products.Q.indptr))

    def row_products(self, row: int) -> tuple[NDArray[Any], NDArray[Any], Floats]:
        """Return (i, j, coefficient of x_i x_j) of a row, each pair i <= j once."""
        Q, pairs = self.products.Q, self.products.pairs
        at = slice(Q.indptr[row], Q.indptr[row + 1])
        i, j = pairs[:, Q.indices[at]]
        return i, j, np.asarray(Q.data[at], dtype=float)

    def row_hessian(self, row: int) -> Any:
        """Return P_k of a row: sparse symmetric (n, n)."""
        i, j, value = self.row_products(row)
        half = sp.coo_array((value, (i, j)), shape=(self.q.size, self.q.size))
        return sp.csc_array(half + half.T)

    def by_name(self, x: Floats) -> dict[str, Floats]:
        """Return values by variable name."""
        return {
            b.name: np.asarray(x[b.start : b.stop]).reshape(b.shape, order="F")
            for b in self.columns
        }


def program(problem: Problem) -> Program:
    """Return a problem as rows: every term by its name, in its order.

    A term that is piecewise linear or a norm with linear description (``abs``, ``maximum``,
    ``norm1`` ...) becomes rows in further columns ``NAME auxiliary``, the way CVXPY reduces
    it; the row of the term itself keeps its name.

    Parameters
    ----------
    problem : Problem
        Terms of degree at most 2, convex or not, and piecewise linear ones.

    Raises
    ------
    UnsupportedProblem
        A term needs a cone that rows cannot state; it is named.
    DeclarationError
        The problem uses no variable.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm1(x)), [cp.sum(x) == 1]), ["budget"])
    >>> rows = program(p)
    >>> [b.name for b in rows.columns], [(b.name, b.shape) for b in rows.rows]
    (['x', 'objective auxiliary'], [('objective 1', (2,)), ('objective 2', (2,)), ('budget', ())])
    """
    if not any(v.size for v in problem.variables.values()):
        raise DeclarationError("no variable, there is nothing to write", remedy="add a variable")
    forms = quadratic_terms(problem, piecewise=True)
    labels = {name: problem.entry_labels(name) for name in problem.variables}
    labels |= {name: t.labels() for name, t in problem.constraints.items() if t.labels}
    n = forms.size
    columns = tuple(
        Block(
            name,
            at.start,
            forms.shapes[name],
            labels.get(name, ()) if name in problem.variables else (),
        )
        for name, at in forms.columns.items()
    )
    terms, total = forms.constraints, forms.total
    rows, at = [], 0
    for t in terms:
        rows.append(
            Block(
                t.name, at, t.shape, labels.get(t.name, ()) if t.name in problem.constraints else ()
            )
        )
        at += t.size
    signs = [-1.0 if t.above else 1.0 for t in terms]
    maps = [sign * t.map for sign, t in zip(signs, terms, strict=True)]
    stacked = QuadraticMap.stacked([QuadraticMap.constant(np.zeros(0), n), *maps])
    side = -stacked.b + 0.0  # no -0.0
    above = np.repeat(signs, [t.size for t in terms]) < 0.0
    equal = np.concatenate([np.zeros(0, bool), *(np.full(t.size, t.set == "zero") for t in terms)])
    free = np.full(n, np.inf)
    return Program(
        sense=forms.sense,
        columns=columns,
        rows=tuple(rows),
        P=total.P(),
        q=total.q(),
        offset=float(total.r[0]),
        A=stacked.A,
        products=replace(stacked, A=sp.csr_array((at, n)), b=np.zeros(at)),
        row_lower=np.where(equal | above, side, -np.inf),
        row_upper=np.where(above, np.inf, side),
        lower=-free,
        upper=free,
        integer=forms.integer,
    )
