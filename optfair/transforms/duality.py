"""The Lagrange dual of a convex problem, with the names of the primal, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.registry import conic_interface
from optfair.compile.conic_proof import ConicProof
from optfair.compile.form import Compiled, compile_problem
from optfair.core import display
from optfair.core.composition import constraint_term, objective_term
from optfair.core.expressions import Values
from optfair.core.labels import free_name
from optfair.core.problem import Declaration, Problem, Sense, check_problem
from optfair.core.solution import Solution
from optfair.errors import ClassError, DeclarationError, Known, Unbounded
from optfair.numbers import Floats, Indices, checked
from optfair.proofs.cones import Cone
from optfair.transforms.relaxation import check_origin, recovered, with_way_back

# The dual as a declared problem: one variable per constraint, one constraint per variable.

_WORDS = {
    "zero": "equations",
    "nonneg": "inequalities",
    "soc": "cone",
    "psd": "matrix",
    "exp": "exponential",
    "pow": "power",
}


@dataclass(frozen=True, eq=False)
class Multiplier:
    """A variable of the dual and the rows of the cone program it stands for.

    Attributes
    ----------
    name, shape
        Of the variable.
    term : str
        Name of the term it belongs to.
    map : sparse (rows of the program, size)
        Its contribution to z; entries of the variable column by column.
    cone : Cone
        Kind, order and power of its blocks.
    block : int
        Length of each block of rows in that cone.
    """

    name: str
    shape: tuple[int, ...]
    term: str
    map: Any
    cone: Cone
    block: int

    def violation(self, values: Values) -> Floats:
        """Return how far each block of y is outside the dual cone, in closed form."""
        z = self.map @ np.ravel(np.asarray(values[self.name], dtype=float), order="F")
        blocks = z[np.flatnonzero(np.diff(self.map.indptr))].reshape(-1, self.block)
        return np.array([self.cone.distance(block, dual=True) for block in blocks])

    @property
    def symbol(self) -> str:
        """The variable in LaTeX."""
        return _below("Y" if len(self.shape) == 2 else "y", self.name)

    @property
    def vector(self) -> str:
        """The variable in LaTeX, its entries in a row."""
        return rf"\operatorname{{vec}}({self.symbol})" if len(self.shape) == 2 else self.symbol

    @property
    def inside(self) -> str:
        """That it lies in the dual cone, in LaTeX."""
        kind, y = self.cone.kind, self.symbol
        if kind == "nonneg" or (kind == "soc" and self.block == 1):
            return rf"{y} \ge 0"
        dual = "" if kind == "soc" else "^*"  # that one is its own dual
        cone = rf"\mathcal K{dual}_{{\mathrm{{{kind}}}}}"
        return rf"{y} \succeq 0" if kind == "psd" else rf"{y} \in {cone}"

    def membership(self, y: Any) -> Any | None:
        """Return the constraint that y lies in the dual cone; None where that is everything."""
        kind = self.cone.kind
        if kind == "zero":
            return None
        if kind == "nonneg":
            return y >= 0
        if kind == "psd":
            return y >> 0
        used = np.flatnonzero(np.diff(self.map.indptr))  # the rows it stands for, in order
        z = self.map[used, :] @ cp.vec(y, order="F")
        if kind == "soc":
            if self.block == 1:
                return y >= 0
            blocks = cp.reshape(z, (self.block, used.size // self.block), order="F")
            return cp.SOC(blocks[0, :], blocks[1:, :], axis=0)
        u, v, w = z[0::3], z[1::3], z[2::3]
        if kind == "exp":  # K* = {(u, v, w): -u exp(v / u - 1) <= w, u < 0} and its closure
            return cp.ExpCone(u - v, -u, w)
        power = self.cone.power
        return cp.PowCone3D(u / power, v / (1.0 - power), w, power)


def multipliers_of(problem: Problem, compiled: Compiled) -> tuple[Multiplier, ...]:
    """Return the variables of the dual, in the order of the terms.

    Raises
    ------
    ClassError
        A constraint uses no variable, or has no row that carries its multiplier.
    """
    m = compiled.form.b.size
    marked = compiled.multipliers(np.arange(1.0, m + 1.0))
    multipliers: list[Multiplier] = []
    for bound, terms in ((False, problem.objective), (True, problem.constraints)):
        for name, term in terms.items():
            if bound and not term.scope:
                raise ClassError(
                    f"{name!r} uses no variable, so it has no multiplier",
                    remedy=f"remove it: problem.without({name!r})",
                )
            free = np.zeros(m, dtype=bool)
            free[compiled.rows(name, bound=bound)] = True
            if bound:
                multipliers.append(_own(name, marked[name], compiled, free))
            taken = {*problem.constraints, *(y.name for y in multipliers)}
            added = _added(name, compiled, free)
            multipliers += [replace(y, name=free_name(y.name, taken)) for y in added]
    return tuple(multipliers)


def _own(name: str, marked: Floats, compiled: Compiled, free: NDArray[np.bool_]) -> Multiplier:
    """Return the variable for the rows that carry the multiplier, and take these from the free."""
    form = compiled.form
    marks = np.arange(1.0, form.b.size + 1.0)
    cones = [c for c in form.cones if free[c.start : c.stop].any()]
    for cone in cones:
        square = cone.kind == "psd" and np.shape(marked) == (cone.order, cone.order)
        if square and np.allclose(cone.matrix(marks[cone.start : cone.stop]), marked):
            free[cone.start : cone.stop] = False
            return _matrix(name, name, form.b.size, cone)
    rows = np.abs(marked) - 1.0
    own = np.ravel(np.round(rows), order="F").astype(np.intp)
    if not np.array_equal(np.ravel(rows, order="F"), own) or np.unique(own).size != own.size:
        raise ClassError(
            f"the multiplier of {name!r} is not a row of its cone program",
            f"it compiles to {', '.join(c.kind for c in cones)}",
            "write it as ==, <=, >= or >>",
        )
    free[own] = False
    entries = np.ravel(np.sign(marked), order="F"), (own, np.arange(own.size))
    cone = next(c for c in cones if c.start <= own.min() < c.stop)
    picked = sp.csr_array(entries, shape=(form.b.size, own.size))
    # half-lines and points are blocks of one row, whatever stands beside them
    block = 1 if cone.kind in ("zero", "nonneg") else cone.stop - cone.start
    return Multiplier(name, np.shape(marked), name, picked, cone, block)


def _added(name: str, compiled: Compiled, free: NDArray[np.bool_]) -> Iterator[Multiplier]:
    """Yield the variables for rows that a term's epigraph adds, one per kind of cone."""
    height = free.size

    def kind(cone: Cone) -> tuple[Any, ...]:
        # half-lines and points stack row by row; matrices stay apart
        size = 1 if cone.kind in ("zero", "nonneg") else cone.stop - cone.start
        return cone.kind, size, cone.power, cone.start if cone.kind == "psd" else 0

    cones = [c for c in compiled.form.cones if free[c.start : c.stop].any()]
    taken: dict[str, int] = {}
    for (word, block, *_), group in groupby(sorted(cones, key=kind), key=kind):
        blocks = list(group)
        label = f"{name} {_WORDS[word]}"
        taken[label] = taken.get(label, 0) + 1
        label += "" if taken[label] == 1 else f" {taken[label]}"
        if word == "psd":
            yield _matrix(label, name, height, blocks[0])
            continue
        rows = np.concatenate([np.arange(c.start, c.stop) for c in blocks])
        rows = rows[free[rows]]
        picked = sp.csr_array(
            (np.ones(rows.size), (rows, np.arange(rows.size))), shape=(height, rows.size)
        )
        yield Multiplier(label, (rows.size,), name, picked, blocks[0], block)


def _matrix(name: str, term: str, height: int, cone: Cone) -> Multiplier:
    """Return a symmetric variable for the scaled triangle of a psd block."""
    n = cone.order
    i, j = np.tril_indices(n) if cone.upper else np.triu_indices(n)
    rows = np.arange(cone.start, cone.stop)
    half = np.where(i == j, 0.5, np.sqrt(0.5))  # both halves of the matrix carry the entry
    entries = np.concatenate([half, half])
    at = np.concatenate([rows, rows]), np.concatenate([i + n * j, j + n * i])
    return Multiplier(name, (n, n), term, sp.csr_array((entries, at), (height, n * n)), cone, 0)


class DualProblem(Problem):
    """The Lagrange dual of a convex problem; made by `dualize`."""

    unit_from_data = True

    def __init__(self, primal: Problem) -> None:
        compiled = compile_problem(primal, conic_interface())
        self._set(title=f"Dual of {primal.title}")
        super().__init__(
            {
                "primal": primal,
                "compiled": compiled,
                "multipliers": multipliers_of(primal, compiled),
                "factors": {name: _factor(P) for name, P in compiled.curvature.items()},
            }
        )

    @property
    def objective_unit(self) -> float:
        """That of the primal: its optimum is the same, and nothing here need tell its size."""
        primal: Problem = self.data["primal"]
        compiled: Compiled = self.data["compiled"]
        return min(primal.objective_unit, compiled.form.unit)

    @property
    def data_unit(self) -> float:
        """Size of a multiplier of the primal, which its costs and its curvature tell."""
        compiled: Compiled = self.data["compiled"]
        return min(1.0, compiled.form.price) or 1.0

    @property
    def columns(self) -> Mapping[str, Indices]:
        """Columns of each variable of the primal, and of what its terms introduce."""
        compiled: Compiled = self.data["compiled"]
        columns = {
            name: np.arange(at.start, at.stop)
            for name in self.data["primal"].variables
            if (at := compiled.form.columns.get(name)) is not None
        }
        for term, start, stop in compiled.auxiliary:
            label = f"{term} auxiliary"
            columns[label] = np.append(columns.get(label, np.zeros(0, int)), np.arange(start, stop))
        return Known(columns, "variable")

    @property
    def equations(self) -> Mapping[str, str]:
        """Columns of the primal program -> name of the constraint they are the multiplier of."""
        names: dict[str, str] = {}
        for name in self.columns:
            names[name] = free_name(name, names.values())
        return Known(names, "variable")

    def declare(self) -> Declaration:
        """Declare the multipliers, the bound they give, and stationarity per variable."""
        form, sign = self.data["compiled"].form, self.data["compiled"].form.sign
        variables: dict[str, Any] = {}
        memberships: list[tuple[Multiplier, Any]] = []
        bound: dict[str, Any] = {}
        said: dict[str, list[str]] = {}
        # rows over all columns of the primal, a variable, and what both are called in LaTeX
        gradient: list[Any] = []
        for m in self.data["multipliers"]:
            y = cp.Variable(m.shape, name=m.name, symmetric=m.cone.kind == "psd")
            variables[m.name] = y
            inside = m.membership(y)
            if inside is not None:
                memberships.append((m, inside))
            A, b = m.map.T @ form.A, m.map.T @ form.b
            gradient.append((A.T, cp.vec(y, order="F"), "A", m.name, m.vector))
            if b.any():
                bound[m.term] = bound.get(m.term, 0.0) - sign * (b @ cp.vec(y, order="F"))
                row = _product(-sign * b[None, :], _below("b", m.name) + r"^\top", m.vector, -sign)
                said[m.term] = [*said.get(m.term, ()), row]
        for name, F in self.data["factors"].items():
            label = free_name(f"{name} curvature", variables)
            u = variables[label] = cp.Variable(F.shape[1], name=label)
            gradient.append((F, u, "F", name, _below("u", name)))
            bound[label] = -sign * cp.sum_squares(u) / 2.0
            square = rf"\tfrac12 \|{_below('u', name)}\|_2^2"
            said[label] = [f"-{square}" if sign > 0 else square]
        if form.offset:
            label = free_name("constant", bound)
            bound[label] = cp.Constant(sign * form.offset)
            said[label] = [display.latex(bound[label])]
        sense: Sense = "maximize" if sign > 0 else "minimize"
        names = {v.id: name for name, v in variables.items()}
        goals = [
            replace(objective_term(k, e, names, sense), latex=" + ".join(said[k]))
            for k, e in bound.items()
        ]
        equations = self._stationarity(gradient)
        terms = [
            replace(constraint_term(k, c, names), latex=text) for k, (c, text) in equations.items()
        ]
        for m, inside in memberships:
            term = constraint_term(free_name(f"{m.name} in dual cone", equations), inside, names)
            term = replace(term, latex=m.inside)
            if m.cone.kind in ("exp", "pow"):  # CVXPY would project by calling a solver
                term = replace(term, violation=m.violation)
            terms.append(term)
        # the data of the primal stand in every term of the dual
        frozen = tuple(f for t in self.data["primal"].terms for f in t.parameters)
        objective = tuple(replace(t, parameters=frozen) for t in goals)
        rows = tuple(replace(t, parameters=frozen) for t in terms)
        return Declaration(variables, sense, objective, rows)

    def _stationarity(self, gradient: list[Any]) -> dict[str, tuple[Any, str]]:
        """Return one equation per variable of the primal, and its LaTeX; its shadow price is that variable."""
        form, columns = self.data["compiled"].form, self.columns
        sign = form.sign
        equations: dict[str, tuple[Any, str]] = {}
        for name, label in self.equations.items():
            at = columns[name]
            rows = [(sp.csr_array(G)[at, :], y) for G, y, *_ in gradient]
            left = [R @ y for R, y in rows if R.nnz]
            right = sign * form.q[at]
            entries = sum((np.diff(R.indptr) for R, _ in rows), np.zeros(right.size))
            if right[entries == 0].any():
                raise Unbounded(
                    f"no constraint limits {name!r}, and the objective is linear in it",
                    "its dual equation 0 = c cannot hold",
                    f"add a constraint on {name!r}",
                )
            if not left:
                continue
            variable = self.data["primal"].variables.get(name)
            shape = (at.size,) if variable is None else tuple(variable.shape)
            if int(np.prod(shape)) != at.size:
                shape = (at.size,)  # the triangle of a symmetric variable
            total = cp.reshape(-sign * sum(left), shape, order="F")
            own = f", {name}" * (len(self.equations) > 1)
            texts = [
                _product(R, _below(letter, of + own) + r"^\top" * (letter == "A"), y)
                for (R, _), (*_, letter, of, y) in zip(rows, gradient, strict=True)
                if R.nnz
            ]
            cost = _product(-sign * right[:, None], _below("c", name), "", -sign)
            equation = total == right.reshape(shape, order="F")
            equations[label] = (
                equation,
                f"{' + '.join(texts).replace('+ -', '- ')} = {cost if right.any() else '0'}",
            )
        return equations

    def point(self, values: Values) -> Floats:
        """Return z, the multipliers of the primal cone program, from values of the dual."""
        z = np.zeros(self.data["compiled"].form.b.size)
        for m in self.data["multipliers"]:
            z += m.map @ np.ravel(np.asarray(values[m.name], dtype=float), order="F")
        return z


# The dual in LaTeX: few numbers are written out, others by the name of their constraint or variable.


def _below(letter: str, name: str) -> str:
    return f"{letter}_{{{display.latex(cp.Variable(name=name))}}}"


def _product(matrix: Any, symbol: str, factor: str, sign: float = 1.0) -> str:
    """Return a matrix times a vector: a few numbers as they are, else a sign and the symbol."""
    rows, columns = matrix.shape
    full = sp.coo_array(matrix)
    unit = full.data[0] if full.nnz == rows == columns and (full.row == full.col).all() else 0.0
    if factor and abs(unit) == 1.0 and (full.data == unit).all():
        return "-" * bool(unit < 0.0) + factor
    if min(rows, columns) == 1 and max(rows, columns) <= display.WRITTEN:
        numbers = [display.latex(cp.Constant(v)) for v in full.toarray().ravel()]
        symbol, sign, number = f"({', '.join(numbers)})", 1.0, numbers[0]
        if len(numbers) == 1:
            symbol = number
        elif len(set(numbers)) == 1:
            ones = r"\mathbf 1"
            symbol = number[:-1] + ones if number in ("1", "-1") else rf"{number}\, {ones}"
        symbol += r"^\top" * (columns > 1)
    return "-" * bool(sign < 0.0) + symbol + (rf"\, {factor}" if factor else "")


def _factor(P: Any) -> Any:
    """Return F with P = F Fᵀ."""
    full = sp.coo_array(P)
    if (full.row == full.col).all():
        diagonal = P.diagonal()
        kept = np.flatnonzero(diagonal > 0.0)
        entries = np.sqrt(diagonal[kept]), (kept, np.arange(kept.size))
        return sp.csc_array(entries, shape=(P.shape[0], kept.size))
    support = np.unique(full.row)
    block = P[support, :][:, support].toarray()
    eigenvalues, vectors = np.linalg.eigh((block + block.T) / 2.0)
    kept = np.flatnonzero(eigenvalues > 1e-13 * eigenvalues[-1])
    F = sp.lil_array((P.shape[0], kept.size))
    F[support, :] = vectors[:, kept] * np.sqrt(eigenvalues[kept])
    return sp.csc_array(F)


# The Lagrange dual of a convex problem, with the names of the primal, and the way back.


@dataclass(frozen=True, eq=False)
class Dualized:
    """The dual with the way back.

    Attributes
    ----------
    original : Problem
        The primal.
    problem : DualProblem
        The dual.
    """

    original: Problem
    problem: DualProblem

    def __repr__(self) -> str:
        return with_way_back(self.problem, self.original)

    def recover(self, solution: Solution) -> Solution:
        """Return the primal solution that the dual's multipliers are.

        The value of a variable is the shadow price of the dual constraint of its name; the
        multiplier of a constraint is the dual variable of its name. The result is measured
        on the primal's terms, so a sloppy dual solution does not pass as optimal.
        """
        dual = self.problem
        check_origin(solution, dual, "dual")
        compiled, columns = dual.data["compiled"], dual.columns
        x = np.zeros(compiled.form.q.size)
        prices = solution.shadow_price
        for name, label in dual.equations.items():
            if label not in dual.constraints:  # a variable that no term uses
                continue
            if label not in prices:
                raise DeclarationError(
                    f"the solution by {solution.solver} has no multiplier of {label!r}",
                    "the primal values are the dual's multipliers",
                    "solve the dual with a solver that returns them",
                )
            x[columns[name]] = np.ravel(prices[label], order="F")
        proof = ConicProof(self.original, compiled, x, dual.point(solution.values))
        values, multipliers = compiled.by_name(proof.x, proof.z)
        return recovered(
            self.original, solution, values, multipliers, proof, "dualize", otherwise="inaccurate"
        )


@checked(problem=check_problem)
def dualize(problem: Problem) -> Dualized:
    r"""Return the Lagrange dual as a declared problem.

    Written term by term as a cone program, the primal and its dual are

    .. math::
        \min_x\; \tfrac12 x^T P x + q^T x \;\;\text{s.t.}\;\; b_i - A_i x \in K_i
        \qquad
        \max_{y, u}\; -\textstyle\sum_i b_i^T y_i - \tfrac12 \|u\|^2 \;\;\text{s.t.}\;\;
        q + \sum_i A_i^T y_i + F u = 0,\; y_i \in K_i^*

    with :math:`P = F F^T`. Preserves the optimal value (strong duality: always for an LP or
    QP with an optimum; else it takes a strictly feasible point), and every dual feasible
    point bounds the primal. The feasible set is another one, and ``sense`` turns round.
    Class: an LP stays LP, a QP stays QP, a QCQP becomes SOCP, the cones of SOCP, SDP and
    CONIC stay.

    Names: the dual variable of the constraint ``budget`` is ``budget``, with the shape and
    the sign of its multiplier in `Solution.multipliers`; what an epigraph adds is called
    ``budget cone``, ``budget matrix`` and so on, and the curvature of the objective term
    ``fit`` is ``fit curvature``. The dual constraint of the variable ``plan`` is ``plan``;
    its shadow price is the optimal plan.

    Parameters
    ----------
    problem : Problem
        Convex and continuous.

    Returns
    -------
    Dualized

    Raises
    ------
    ClassError
        The problem has integer variables or is not known to be convex.
    Unbounded
        A variable is linear in the objective and in no constraint.
    UnsupportedProblem
        CVXPY cannot compile a term.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> budget, low = x[0] + x[1] >= 4, x >= 0
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + 3 * x[1]), [budget, low]), ["budget", "low"])
    >>> dual = dualize(p)
    >>> print(dual.problem.explain())
    budget: maximize affine -> LP
    x: affine in Zero -> LP
    budget in dual cone: affine in Nonpositive -> LP
    low in dual cone: affine in Nonpositive -> LP
    together: LP
    >>> s = dual.problem.solve()
    >>> float(s.objective), float(s["budget"]), float(s["low"][1])
    (4.0, 1.0, 2.0)
    >>> t = dual.recover(s)
    >>> t["x"].tolist(), t.is_optimal(), t.transforms
    ([4.0, 0.0], True, ('dualize',))

    References
    ----------
    Boyd, Vandenberghe: Convex Optimization, Cambridge University Press (2004), chapter 5.
    """
    own = problem.problem_class
    if own.integer:
        raise ClassError(
            f"{', '.join(map(repr, sorted(problem.integers)))} is integer: there is no strong dual",
            f"the class is {own}",
            "relax_integrality(problem) first; the dual of the relaxation bounds the problem",
        )
    if not own.convex:
        blocking = [t.name for t in problem.terms if not t.evidence.problem_class.convex]
        raise ClassError(
            f"{', '.join(map(repr, blocking))} is not known to be convex: its dual may have a gap",
            f"the class is {own}",
            "shor(problem) gives the bound of the Lagrange dual of a nonconvex QCQP",
        )
    return Dualized(problem, DualProblem(problem))
