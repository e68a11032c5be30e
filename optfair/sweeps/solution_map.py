r"""Derivatives of the optimum with respect to a parameter, where it has them.

On its active rows N an optimum solves :math:`P x + q + A_N^T z_N = 0,\; A_N x = b_N`. Where that
system is regular and complementarity is strict, x and z are differentiable functions of the data:

.. math::
    \begin{pmatrix} P & A_N^T \\ A_N & 0 \end{pmatrix} \begin{pmatrix} dx \\ dz_N \end{pmatrix}
    = \begin{pmatrix} -dq - dP\,x - dA_N^T z_N \\ db_N - dA_N\,x \end{pmatrix}.

Cones add the curvature of their boundary: `conic_optimum`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, onenormest

from optfair.backends.registry import conic_interface
from optfair.compile.conic_proof import ConicProof
from optfair.compile.form import Compiled, compile_problem
from optfair.core.parameters import Family, Parameter, chosen, parameters
from optfair.core.solution import check_solution
from optfair.errors import ClassError, DeclarationError, UnsupportedProblem
from optfair.numbers import Floats, checked
from optfair.sweeps.along import with_side
from optfair.sweeps.conic_optimum import ConicOptimum
from optfair.sweeps.ranges import Vertex, check_columns, linear_rows, optimal_vertex

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.solution.conic_form import ConicForm

# Step between two values of a parameter, of its size: what is affine has no other error than
# rounding.
STEP = 2.0**-10
# Condition of the system beyond which the optimum may not be unique, and its derivative no number.
WORST = 1e12
# The same where the system is of numbers that a solver left, not of data.
WORST_CONIC = 1e8


@dataclass(frozen=True, eq=False, repr=False)
class Derivatives:
    """How an optimum moves with a parameter.

    Attributes
    ----------
    parameter : str
        Its name.
    objective : float or array
        d(optimum)/d(parameter), of the shape of the parameter.
    values, multipliers : mapping
        By name, arrays of the shape of the variable (or constraint), then of the parameter.
    """

    parameter: str
    objective: Any
    values: Mapping[str, Floats]
    multipliers: Mapping[str, Floats]

    def __getitem__(self, name: str) -> Floats:
        if not isinstance(name, str) or name not in self.values:
            raise DeclarationError(
                f"no derivative of {name!r}", remedy=f"known are {', '.join(self.values)}"
            )
        return self.values[name]

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{name} {'x'.join(map(str, v.shape)) or 'scalar'}" for name, v in self.values.items()
        )
        return f"Derivatives with respect to {self.parameter}: {sizes}"


@checked(solution=check_solution)
def derivatives(solution: Solution, parameter: Any) -> Derivatives:
    """Return the derivatives of an optimum with respect to a parameter of its problem.

    Parameters
    ----------
    solution : Solution
        Of a continuous convex program: linear, quadratic, or conic by a solver of such programs.
    parameter : str or cvxpy.Parameter
        One of `Problem.parameters` that the terms are affine in, of any shape; or a linear row,
        such as "budget" or "demand[2]": then its right-hand side, of the problem solved again.

    Returns
    -------
    Derivatives

    Raises
    ------
    ClassError
        Integers, or not convex.
    DeclarationError
        An unknown parameter or row.
    UnsupportedProblem
        The optimum is not unique, or complementarity is not strict: there is no derivative, or
        one to each side (`sensitivity` has these of linear programs). Or the terms are not affine in
        the parameter.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) >= b]))
    >>> d = of.sweeps.derivatives(p.solve(), "b")
    >>> d["x"].round(6), round(d.objective, 6)
    (array([0.5, 0.5]), 1.0)
    >>> ball = of.from_cvxpy(cp.Problem(cp.Minimize(-cp.sum(x)), [cp.norm(x) <= b]), ["ball"])
    >>> of.sweeps.derivatives(ball.solve(), "b")["x"].round(4)
    array([0.7071, 0.7071])

    References
    ----------
    Fiacco, Introduction to Sensitivity and Stability Analysis in Nonlinear Programming, 1983;
    Amos, Kolter, OptNet, ICML 2017.
    """
    problem = solution.problem
    if isinstance(parameter, str) and (moving := with_side(problem, parameter)) is not problem:
        problem = moving
        solution = problem.solve(tolerance=solution.certificate.tolerance)
    own = chosen(parameters(problem), parameter)
    _check_affine(problem, own)
    compiled, vertex = _optimum(solution)
    form = compiled.form
    size = int(np.prod(own.shape, dtype=int))
    dx, dz, dv = np.zeros((form.q.size, size)), np.zeros((form.b.size, size)), np.zeros(size)
    for k in range(size):
        here, there, step = _two_forms(problem, own, k, compiled)
        if here.A.shape != form.A.shape or there.A.shape != form.A.shape:
            raise UnsupportedProblem("another value of the parameter compiles to other rows")
        P, A = (there.P - here.P) / step, (there.A - here.A) / step
        q, b = (there.q - here.q) / step, (there.b - here.b) / step
        x, z = vertex.x, vertex.z
        dx[:, k], dz[:, k] = vertex.moved(b - A @ x, q + P @ x + A.T @ z)
        dv[k] = q @ x + 0.5 * (x @ (P @ x)) + z @ (A @ x - b) + (there.offset - here.offset) / step
    values = _each(compiled.values, dx, own.shape)
    multipliers = _each(compiled.multipliers, dz, own.shape)
    rise = form.sign * dv.reshape(own.shape, order="F")
    return Derivatives(own.name, rise if own.shape else float(rise), values, multipliers)


def _optimum(solution: Solution) -> tuple[Compiled, Vertex | ConicOptimum]:
    """Return the compiled form and the optimum on it, which moves in one way."""
    problem, proof = solution.problem, solution.proof
    if problem.integers or not problem.problem_class.convex:
        raise ClassError(
            f"derivatives are of continuous convex programs, this one is {problem.problem_class}",
            remedy="solve again at other values: optfair.sweep",
        )
    if problem.problem_class.name not in ("LP", "QP"):
        if type(proof) is not ConicProof:
            raise UnsupportedProblem(
                "there is no primal-dual pair to start from",
                f"{solution.solver} left none",
                "solve with a solver of conic programs",
            )
        compiled = check_columns(proof.compiled, "derivatives")
        optimum: Vertex | ConicOptimum = ConicOptimum(compiled.form, proof.x, proof.z)
        unique = _condition(optimum) <= WORST_CONIC
    else:
        compiled = linear_rows(solution, "derivatives")
        optimum = vertex = optimal_vertex(compiled, solution)[1]
        unique = not vertex.degenerate and _condition(vertex) <= WORST
    if not unique:
        raise UnsupportedProblem(
            "the optimum has no derivative here",
            "another is as good, or a row is active with multiplier 0: sides differ",
            "optfair.sensitivity has both sides of a linear program; or optfair.sweep",
        )
    return compiled, optimum


def _check_affine(problem: Problem, own: Parameter) -> None:
    """Refuse a parameter that terms may depend on in another way than affinely."""
    if own.rule[0]:
        sides = own.rule[1] in problem.rules[own.rule[0]].sides
        curved = [] if sides else list(own.terms)
    elif own.leaf is None:
        curved = [] if problem.movable[own.name] else [type(problem).__name__]
    else:
        terms = [
            t for t in problem.terms if any(f.parameter.id == own.leaf.id for f in t.parameters)
        ]
        curved = [t.name for t in terms if t.written is None or Family.of(problem, t) is None]
    if curved:
        raise UnsupportedProblem(
            f"{curved[0]!r} is no affine function of {own.name!r}",
            "it is declared again at other values",
            "write the term with a parameter it is affine in",
        )


def _two_forms(
    problem: Problem, own: Parameter, k: int, compiled: Compiled
) -> tuple[ConicForm, ConicForm, float]:
    """Return the compiled forms at two values of an entry, and how far they are apart."""
    linear = all(c.kind in ("zero", "nonneg") for c in compiled.form.cones)
    interface = conic_interface() if linear else compiled.interface.name()
    value = own.value.toarray() if hasattr(own.value, "toarray") else own.value
    here = np.asarray(value, dtype=float)
    at = np.unravel_index(k, here.shape, order="F") if here.shape else ()
    step = STEP * max(1.0, abs(float(here[at])))
    moved = here.copy()
    for signed in (step, -step):
        moved[at] = here[at] + signed
        try:
            there = problem.at({own.name: moved if here.shape else float(moved)})
        except DeclarationError:  # outside of its range
            continue
        first, second = (
            compile_problem(p, interface, quadratic=compiled.quadratic).form
            for p in (problem, there)
        )
        return first, second, float(moved[at] - here[at])
    raise UnsupportedProblem(f"{own.name!r} cannot be moved from {value}")


def _condition(vertex: Vertex | ConicOptimum) -> float:
    """Return an estimate of the condition of the system, in the 1-norm."""
    factor, matrix = vertex.factor, vertex.matrix
    n = matrix.shape[0]
    inverse = LinearOperator(
        (n, n), matvec=factor.solve, rmatvec=lambda y: factor.solve(y, trans="T"), dtype=float
    )
    return float(onenormest(inverse) * abs(matrix).sum(axis=0).max()) if n else 1.0


def _each(by_name: Any, columns: Floats, shape: tuple[int, ...]) -> dict[str, Floats]:
    """Return arrays by name whose last axes are those of the parameter."""
    rows = [by_name(c) for c in columns.T]
    return {
        name: np.stack([np.asarray(r[name]) for r in rows], axis=-1).reshape(
            (*np.shape(rows[0][name]), *shape), order="F"
        )
        for name in rows[0]
    }
