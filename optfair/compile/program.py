"""A problem as rows of linear and quadratic functions, each entry with a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from cvxpy.constraints import Inequality
from numpy.typing import NDArray

from optfair.compile.quadratic import (
    Kind,
    QuadraticTerm,
    attribute_terms,
    constraint_set,
    named_map,
)
from optfair.core.canonical import built, reduction
from optfair.core.parameters import check_parameters
from optfair.core.quadratic_map import QuadraticMap
from optfair.errors import DeclarationError

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.term import Term

Floats = NDArray[np.float64]

__all__ = ["Block", "Program", "program"]


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
    check_parameters(problem.terms)
    pieces = _Pieces(problem)
    for name, t in problem.objective.items():
        pieces.add_objective(name, t)
    for name, c in problem.constraints.items():
        pieces.add_constraint(name, c)
    return pieces.assembled()


class _Pieces:
    """Terms split into rows, before the number of columns is known."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.variables: dict[str, Any] = dict(problem.variables)
        self.offsets: dict[int, int] = {}
        self.size = 0
        for v in self.variables.values():
            self._place(v)
        self.objective: list[tuple[str, Any]] = []
        self.rows: list[tuple[str, Kind, float, Any]] = []
        self.turned: set[str] = set()
        self.names: set[str] = set(problem.constraints)

    def _place(self, variable: Any) -> None:
        self.offsets[variable.id] = self.size
        self.size += variable.size

    def add_objective(self, name: str, term: Term) -> None:
        """Take an objective term, reduced if it is not quadratic."""
        if not _polyhedral(term.evidence):
            self.objective.append((name, built(term)))
            return
        sign = 1.0 if self.problem.sense == "minimize" else -1.0
        cost, parts = self._reduced(name, term, sign)
        self.objective.append((name, sign * cost))
        self._add_parts(name, parts)

    def add_constraint(self, name: str, term: Term) -> None:
        """Take a constraint, reduced if it is not quadratic."""
        if not _polyhedral(term.evidence):
            self._add_row(name, built(term))
            return
        *parts, own = self._reduced(name, term, 0.0)[1]
        self._add_parts(name, parts)
        self._add_row(name, own)

    def _add_row(self, name: str, constraint: Any) -> None:
        self.rows.append((name, *constraint_set(name, constraint)))
        if isinstance(constraint, Inequality) and constraint.args[0].is_constant():
            self.turned.add(name)  # written as >=, so that its right-hand side keeps its sign

    def _add_parts(self, name: str, constraints: Iterable[Any]) -> None:
        for i, c in enumerate(constraints, start=1):
            self.rows.append((_unique(f"{name} {i}", self.names), *constraint_set(name, c)))

    def _reduced(self, name: str, term: Term, sign: float) -> tuple[Any, tuple[Any, ...]]:
        """Reduce a term; its new variables become columns."""
        cost, parts = reduction(term, sign)
        count = 0
        for part in (*(() if cost is None else (cost,)), *parts):
            for v in part.variables():
                if v.id not in self.offsets:
                    count += 1
                    label = f"{name} auxiliary" + (f" {count}" if count > 1 else "")
                    self.variables[_unique(label, set(self.variables))] = v
                    self._place(v)
        return cost, parts

    def assembled(self) -> Program:
        """Return the program, once every column is known."""
        n = self.size
        total = QuadraticMap.constant(np.zeros(1), n)
        for name, e in self.objective:
            total = total + named_map(name, e, self.offsets, n)
        terms = [
            QuadraticTerm(name, kind, tuple(e.shape), sign * named_map(name, e, self.offsets, n))
            for name, kind, sign, e in self.rows
        ]
        columns = tuple(
            Block(
                name,
                self.offsets[v.id],
                tuple(v.shape),
                () if name not in self.problem.variables else self.problem.entry_labels(name),
            )
            for name, v in self.variables.items()
        )
        for b in columns:
            terms += attribute_terms(b.name, self.variables[b.name], b.start, n)
        integer = np.zeros(n, dtype=bool)
        for b in columns:
            if b.name in self.problem.integers:
                integer[b.start : b.stop] = True
        found = _program(self.problem.sense, columns, total, terms, self.turned, integer)
        labels = {n: t.labels() for n, t in self.problem.constraints.items() if t.labels}
        rows = tuple(replace(b, labels=labels.get(b.name, ())) for b in found.rows)
        return replace(found, rows=rows)


def _program(
    sense: str,
    columns: tuple[Block, ...],
    total: QuadraticMap,
    terms: list[QuadraticTerm],
    turned: set[str],
    integer: NDArray[np.bool_],
) -> Program:
    n = integer.size
    goal = QuadraticTerm("objective", "objective", (), total)
    blocks, at = [], 0
    for t in terms:
        blocks.append(Block(t.name, at, t.shape))
        at += t.size
    signs = [-1.0 if t.name in turned else 1.0 for t in terms]
    maps = [sign * t.map for sign, t in zip(signs, terms, strict=True)]
    rows = QuadraticMap.stacked([QuadraticMap.constant(np.zeros(0), n), *maps])
    side = -rows.b + 0.0  # no -0.0
    above = np.repeat(signs, [t.size for t in terms]) < 0.0
    equal = np.concatenate([np.zeros(0, bool), *(np.full(t.size, t.set == "zero") for t in terms)])
    free = np.full(n, np.inf)
    return Program(
        sense=sense,
        columns=columns,
        rows=tuple(blocks),
        P=goal.P(),
        q=goal.q(),
        offset=float(goal.r[0]),
        A=rows.A,
        products=replace(rows, A=sp.csr_array((at, n)), b=np.zeros(at)),
        row_lower=np.where(equal | above, side, -np.inf),
        row_upper=np.where(above, np.inf, side),
        lower=-free,
        upper=free,
        integer=integer,
    )


def _polyhedral(evidence: Any) -> bool:
    """Whether a term is not quadratic but rows in more columns can state it."""
    return evidence.problem_class.convex and "piecewise" in evidence.function


def _unique(name: str, taken: set[str]) -> str:
    candidate, i = name, 1
    while candidate in taken:
        i += 1
        candidate = f"{name} {i}"
    taken.add(candidate)
    return candidate
