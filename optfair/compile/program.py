"""A problem as rows of linear and quadratic functions: exact sparse coefficients, each entry with a name."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp
from cvxpy.constraints import Equality, Inequality, NonNeg, NonPos, Zero
from numpy.typing import NDArray

from optfair.core.canonical import built, reduction
from optfair.core.coefficients import quadratic_map
from optfair.core.expressions import Values, check_parameters
from optfair.core.labels import entry_indices, free_name
from optfair.core.quadratics import NotQuadratic, QuadraticMap
from optfair.errors import DeclarationError, UnsupportedProblem
from optfair.numbers import Floats
from optfair.proofs.rounding import LOST, UNIT, exact_dot, exact_products, gamma, two_product

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.term import Term


# Exact coefficients of quadratic terms, convex or not, as sparse arrays.

Kind = Literal["objective", "zero", "nonpositive"]


@dataclass(frozen=True, eq=False)
class QuadraticTerm:
    r"""A named term whose entries are quadratics of all variables x.

    .. math:: f_k(x) = \tfrac12 x^T P_k x + q_k^T x + r_k,\qquad k = 0, \dots, m - 1

    Parameters
    ----------
    name : str
        Name of the term in the problem.
    set : {"objective", "zero", "nonpositive"}
        What f is: minimised or maximised, equal to 0, or at most 0.
    shape : tuple of int
        Shape of the term; entries are counted column by column, as CVXPY does.
    map : QuadraticMap
        The coefficients of all entries together.
    above : bool
        Whether it was written as at least a number: then -f + r is what it bounds by r.
    """

    name: str
    set: Kind
    shape: tuple[int, ...]
    map: QuadraticMap
    above: bool = False

    @property
    def size(self) -> int:
        """Number m of entries."""
        return int(self.map.b.size)

    @property
    def affine(self) -> bool:
        """Whether no entry has a quadratic part."""
        return bool(self.map.Q.nnz == 0)

    @property
    def A(self) -> Any:
        """Linear coefficients, one row per entry: sparse (m, n)."""
        return self.map.A

    @property
    def r(self) -> Floats:
        """Constants (m,)."""
        return self.map.b

    def P(self, entry: int = 0) -> Any:
        """Return the Hessian of an entry: sparse symmetric (n, n)."""
        i, j, value = self.products(entry)
        n = self.A.shape[1]
        half = sp.coo_array((value, (i, j)), shape=(n, n))
        return sp.csc_array(half + half.T)

    def q(self, entry: int = 0) -> Floats:
        """Return the linear part of an entry (n,)."""
        return np.asarray(self.A[[entry], :].toarray(), dtype=float).ravel()

    def products(self, entry: int = 0) -> tuple[NDArray[Any], NDArray[Any], Floats]:
        """Return (i, j, coefficient of x_i x_j) of an entry, each pair i <= j once."""
        Q = self.map.Q
        at = slice(Q.indptr[entry], Q.indptr[entry + 1])
        pair = self.map.pairs[:, Q.indices[at]]
        return pair[0], pair[1], np.asarray(Q.data[at], dtype=float)

    def value(self, x: Floats) -> Floats:
        """Return f(x), all entries."""
        return self.map(x)


@dataclass(frozen=True, eq=False)
class QuadraticForms:
    """All terms of a problem as quadratics of one vector x.

    Parameters
    ----------
    sense : str
        "minimize" or "maximize".
    objective, constraints : tuple of QuadraticTerm
        In the order of the problem. A symmetric, diagonal or sparse variable adds an
        equality ``NAME symmetric`` / ``NAME pattern`` that states it.
    columns : dict
        Variable name -> slice of x; entries column by column.
    shapes : dict
        Variable name -> shape.
    integer : array (n,) of bool
        Columns that are integer.
    """

    sense: str
    objective: tuple[QuadraticTerm, ...]
    constraints: tuple[QuadraticTerm, ...]
    columns: Mapping[str, slice]
    shapes: Mapping[str, tuple[int, ...]]
    integer: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """Number n of scalar variables."""
        return int(self.integer.size)

    @property
    def total(self) -> QuadraticTerm:
        """Sum of the objective terms."""
        total = QuadraticMap.constant(np.zeros(1), self.size)
        for term in self.objective:
            total = total + term.map
        return QuadraticTerm("objective", "objective", (), total)

    def vector(self, values: Values) -> Floats:
        """Return x from values by name."""
        x = np.zeros(self.size)
        for name, at in self.columns.items():
            x[at] = np.ravel(np.asarray(values[name], dtype=float), order="F")
        return x

    def by_name(self, x: Floats) -> dict[str, Floats]:
        """Return values by name from x."""
        return {
            name: np.asarray(x[at], dtype=float).reshape(self.shapes[name], order="F")
            for name, at in self.columns.items()
        }


def quadratic_terms(
    problem: Problem, *, piecewise: bool = False, deadline: float = math.inf
) -> QuadraticForms:
    r"""Return every term of a problem as exact quadratics, convex or not.

    .. math:: f_k(x) = \tfrac12 x^T P_k x + q_k^T x + r_k

    x stacks all variables. Coefficients are computed from the expressions, not fitted: the
    sums and products of the data that multiplying out gives. Affine atoms, ``quad_form``,
    ``sum_squares``, squares, ``quad_over_lin`` with a constant second argument, and products ``x @ y``, ``multiply(x, y)`` of affine expressions are known,
    also where the rules of disciplined convex programming refuse them.

    Parameters
    ----------
    problem : Problem
        Any problem; integer variables are marked, not relaxed.
    piecewise : bool
        Reduce terms that are piecewise linear or quadratic to rows ``NAME 1``, ``NAME 2`` ... in
        further columns ``NAME auxiliary``; a constraint's own row keeps its name.
    deadline : float
        ``time.perf_counter()`` value after which no further term is multiplied out.

    Returns
    -------
    QuadraticForms

    Raises
    ------
    UnsupportedProblem
        A term is not quadratic; it is named.
    TimeoutError
        The deadline is over.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] * x[1] + 3), [cp.sum_squares(x) <= 1]), ["disk"])
    >>> forms = quadratic_terms(p)
    >>> forms.total.P().toarray().tolist(), forms.total.r.tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [3.0])
    >>> disk = forms.constraints[0]
    >>> disk.name, disk.set, disk.P().toarray().tolist(), disk.r.tolist()
    ('disk', 'nonpositive', [[2.0, 0.0], [0.0, 2.0]], [-1.0])
    """
    check_parameters(problem.terms)
    layout = _Layout(problem)
    names = set(problem.constraints)
    sign = 1.0 if problem.sense == "minimize" else -1.0
    goals: list[tuple[str, Any]] = []
    rows: list[tuple[str, Any]] = []

    def numbered(name: str, parts: Sequence[Any]) -> None:
        for i, c in enumerate(parts, start=1):
            label = free_name(f"{name} {i}", names)
            names.add(label)
            rows.append((label, c))

    for name, t in problem.objective.items():
        if piecewise and _polyhedral(t):
            cost, parts = reduction(t, sign)
            layout.add(name, (cost, *parts))
            goals.append((name, sign * cost))
            numbered(name, parts)
        else:
            goals.append((name, built(t)))
    for name, c in problem.constraints.items():
        if piecewise and _polyhedral(c):
            *others, own = reduction(c, 0.0)[1]
            layout.add(name, (*others, own))
            numbered(name, others)
            rows.append((name, own))
        else:
            rows.append((name, built(c)))
    offsets, n = layout.offsets, layout.size
    objective = [_term(name, "objective", 1.0, e, offsets, n) for name, e in goals]
    constraints = []
    for name, c in rows:
        if time.perf_counter() > deadline:
            raise TimeoutError("the terms are not multiplied out yet")
        term = _term(name, *constraint_set(name, c), offsets, n)
        constraints.append(replace(term, above=_above(c)))
    columns = {
        name: slice(offsets[v.id], offsets[v.id] + v.size) for name, v in layout.variables.items()
    }
    constraints += [
        term
        for name, v in layout.variables.items()
        for term in attribute_terms(name, v, columns[name].start, n)
    ]
    integer = np.zeros(n, dtype=bool)
    for name in problem.integers:
        integer[columns[name]] = True
    shapes = {name: tuple(v.shape) for name, v in layout.variables.items()}
    return QuadraticForms(
        problem.sense, tuple(objective), tuple(constraints), columns, shapes, integer
    )


class _Layout:
    """Columns of the declared variables, then of those that reductions introduce."""

    def __init__(self, problem: Problem) -> None:
        self.variables: dict[str, Any] = {}
        self.offsets: dict[int, int] = {}
        self.size = 0
        for name, v in problem.variables.items():
            self._place(name, v)

    def _place(self, name: str, variable: Any) -> None:
        self.variables[name], self.offsets[variable.id] = variable, self.size
        self.size += variable.size

    def add(self, name: str, parts: Sequence[Any]) -> None:
        """Place what the parts of a term use and nobody has declared."""
        count = 0
        for v in (v for part in parts for v in part.variables()):
            if v.id not in self.offsets:
                count += 1
                label = f"{name} auxiliary" + (f" {count}" if count > 1 else "")
                self._place(free_name(label, self.variables), v)


def _polyhedral(term: Term) -> bool:
    """Whether a term is not quadratic but rows in more columns can state it."""
    return term.evidence.problem_class.convex and "piecewise" in term.evidence.function


def _above(constraint: Any) -> bool:
    """Whether it was written as >=, so that its right-hand side keeps its sign."""
    return isinstance(constraint, Inequality) and bool(constraint.args[0].is_constant())


def constraint_set(name: str, constraint: Any) -> tuple[Kind, float, Any]:
    """Return (set, sign, expression) such that sign * expression lies in the set."""
    if isinstance(constraint, Equality):
        return "zero", 1.0, constraint.expr
    if isinstance(constraint, Zero):
        return "zero", 1.0, constraint.args[0]
    if isinstance(constraint, Inequality):
        return "nonpositive", 1.0, constraint.expr
    if isinstance(constraint, NonPos):
        return "nonpositive", 1.0, constraint.args[0]
    if isinstance(constraint, NonNeg):
        return "nonpositive", -1.0, constraint.args[0]
    raise UnsupportedProblem(
        f"{name!r} is a constraint in the cone {type(constraint).__name__}, not a quadratic",
        "quadratics are ==, <=, >= of expressions of degree at most 2",
        f"write it as quadratics, or remove {name!r}",
    )


def _term(
    name: str, kind: Kind, sign: float, expression: Any, offsets: Mapping[int, int], size: int
) -> QuadraticTerm:
    return QuadraticTerm(
        name, kind, tuple(expression.shape), sign * named_map(name, expression, offsets, size)
    )


def named_map(name: str, expression: Any, offsets: Mapping[int, int], size: int) -> QuadraticMap:
    """Return the coefficients of a term's expression; errors name the term."""
    try:
        quadratic = quadratic_map(expression, offsets, size)
    except NotQuadratic as e:
        raise UnsupportedProblem(
            f"{name!r} {e.what}", str(e), f"{e.remedy}, or remove {name!r}"
        ) from e
    if not (
        np.isfinite(quadratic.b).all()
        and np.isfinite(quadratic.A.data).all()
        and np.isfinite(quadratic.Q.data).all()
    ):
        raise UnsupportedProblem(
            f"{name!r} has coefficients that are not finite",
            remedy="remove infinite bounds and NaN from its data",
        )
    return quadratic


def attribute_terms(name: str, variable: Any, start: int, size: int) -> list[QuadraticTerm]:
    """Return equalities that state the pattern of a matrix variable."""
    where = np.arange(variable.size).reshape(variable.shape, order="F")
    terms: list[QuadraticTerm] = []

    def equal(word: str, left: NDArray[Any], right: NDArray[Any] | None) -> None:
        m = left.size
        A = sp.csr_array((np.ones(m), (np.arange(m), start + left)), shape=(m, size))
        if right is not None:
            A = A - sp.csr_array((np.ones(m), (np.arange(m), start + right)), shape=(m, size))
        if m:
            affine = QuadraticMap.affine(sp.csr_array(A), np.zeros(m))
            terms.append(QuadraticTerm(f"{name} {word}", "zero", (m,), affine))

    if variable.attributes.get("symmetric") or variable.attributes.get("PSD"):
        i, j = np.tril_indices(variable.shape[-1], -1)
        equal("symmetric", where[..., i, j].ravel(), where[..., j, i].ravel())
    if variable.attributes.get("diag"):
        equal("pattern", where[..., ~np.eye(variable.shape[-1], dtype=bool)].ravel(), None)
    sparsity = variable.attributes.get("sparsity")
    if sparsity:
        kept = np.zeros(variable.shape, dtype=bool)
        kept[tuple(np.asarray(i, dtype=int) for i in sparsity)] = True
        equal("pattern", where[~kept], None)
    return terms


# A problem as rows of linear and quadratic functions, each entry with a name.


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
        return entry_indices(self.shape)


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
    named = {name: t.labels() for name, t in problem.constraints.items() if t.labels}
    n = forms.size
    columns = tuple(
        Block(
            name,
            at.start,
            forms.shapes[name],
            problem.entry_labels(name) if name in problem.variables else (),
        )
        for name, at in forms.columns.items()
    )
    terms, total = forms.constraints, forms.total
    rows, at = [], 0
    for t in terms:
        rows.append(Block(t.name, at, t.shape, named.get(t.name, ())))
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


# What a few sums and products of numbers that are not negative are off by, with room.
ROUNDED = 1e-12


@dataclass(frozen=True, eq=False)
class Enclosed:
    r"""A quadratic :math:`\tfrac12 x^T H x + g^T x + r`, and what its numbers are off by at most."""

    H: Floats
    H_off: Floats
    g: Floats
    g_off: Floats
    r: float
    r_off: float

    def spectrum(self) -> tuple[Floats, Floats, float]:
        r"""Return h, V and a number with :math:`w^T V^T H V w \ge \sum_i h_i w_i^2` for all w.

        The number is an upper bound on :math:`\|V^T V - I\|`. The residual is charged to h by the
        sums of its rows, so nothing is asked of who computed V.
        """
        h, V = np.linalg.eigh(self.H)
        W, share = np.abs(V), gamma(2.0 * h.size + 8.0) * (1.0 + ROUNDED)
        off = np.abs(V.T @ self.H @ V - np.diag(h))
        off += W.T @ (share * np.abs(self.H) + self.H_off) @ W
        skew = np.abs(V.T @ V - np.eye(h.size)) + share * (W.T @ W)
        both = float(skew.sum(axis=0).max(initial=0.0)) * (1.0 + ROUNDED)
        return h - off.sum(axis=1) * (1.0 + ROUNDED) - LOST, V, both

    def gradient(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the gradient at x and what its entries are off by."""
        H = sp.csc_array(self.H)
        near, off = exact_products(H, x, np.arange(x.size), ((self.g, np.ones(1)),))
        return near, off + (self.H_off @ np.abs(x) + self.g_off) * (1.0 + ROUNDED) + LOST

    def below(self, x: Floats, less: float) -> float:
        """Return a float that is not above the value at x less a number."""
        size, half = np.abs(x), 0.5 * x
        p, e = two_product(self.H, x)
        lost = float(np.where(np.isnan(e), UNIT * np.abs(p) + LOST, 0.0).sum(axis=1) @ size)
        left = [p.ravel(), np.nan_to_num(e).ravel(), self.g, np.array([self.r, -less])]
        right = [*2 * [np.repeat(half, x.size)], x, np.ones(2)]
        total, off = exact_dot(np.concatenate(left), np.concatenate(right))
        off += float(size @ (self.H_off @ size) + self.g_off @ size) + self.r_off + lost
        return float(np.nextafter(total - off * (1.0 + ROUNDED) - LOST, -np.inf))
