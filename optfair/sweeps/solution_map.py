r"""Derivatives of the optimum with respect to a parameter, where it has them.

On its active rows N an optimum solves :math:`P x + q + A_N^T z_N = 0,\; A_N x = b_N`. Where that
system is regular and complementarity is strict, x and z are differentiable functions of the data:

.. math::
    \begin{pmatrix} P & A_N^T \\ A_N & 0 \end{pmatrix} \begin{pmatrix} dx \\ dz_N \end{pmatrix}
    = \begin{pmatrix} -dq - dP\,x - dA_N^T z_N \\ db_N - dA_N\,x \end{pmatrix}.

Cones add the curvature of their boundary, `ConicOptimum`.

Of :math:`\min \tfrac12 x^T P x + q^T x` subject to :math:`s = b - A x \in K` let x, s and the
multipliers z be optimal and strictly complementary: of each pair that excludes each other (a slack
and its multiplier, an eigenvalue of s and that of z along the same vector) one is positive. Then
near s the cone is a smooth set, :math:`R\,ds = 0` on its tangent, and :math:`dz = R^T d\nu - H\,ds`
with the curvature H of its boundary times the multiplier:

======================  ==================================  =====================================
s                       rows of R                           H
======================  ==================================  =====================================
inside, z = 0           none                                0
0, z inside             all                                 0
on a smooth boundary    :math:`\nabla h(s)`                 :math:`-\mu \nabla^2 h(s)`, :math:`z = \mu \nabla h`
psd, of some rank       :math:`u_i u_j^T` of its kernel     :math:`\zeta_j / \lambda_i` at :math:`u_i u_j^T`
======================  ==================================  =====================================

with h the concave, homogeneous function whose sign is that of the cone. With the data moving,

.. math::
    \begin{pmatrix} P + A^T H A & A^T R^T \\ R A & 0 \end{pmatrix}
    \begin{pmatrix} dx \\ d\nu \end{pmatrix}
    = \begin{pmatrix} A^T H c - dq - dP\,x - dA^T z \\ R c \end{pmatrix},\quad c = db - dA\,x,

which has one solution where the optimum and its multipliers are unique.

References
----------
Bonnans, Shapiro, Perturbation Analysis of Optimization Problems, 2000, sections 4.4 and 5.3;
Agrawal, Barratt, Boyd, Busseti, Moursi, Differentiating through a Cone Program, 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from optfair.backends.registry import conic_interface
from optfair.compile.conic_proof import ConicProof
from optfair.compile.form import Compiled, compile_problem
from optfair.core.expressions import dense
from optfair.core.parameters import Parameter, chosen, parameters
from optfair.core.solution import Solution, check_solution
from optfair.errors import (
    ClassError,
    DeclarationError,
    NoSuchName,
    UnsupportedProblem,
    nearest,
    say_names,
)
from optfair.numbers import Flags, Floats, Indices, checked
from optfair.sweeps.along import with_side
from optfair.sweeps.ranges import (
    WORST,
    Units,
    Vertex,
    check_columns,
    condition,
    linear_rows,
    optimal_vertex,
)
from optfair.sweeps.sweep_result import curved_terms

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.proofs.cones import Cone
    from optfair.solution.conic_form import ConicForm


# Step between two values of a parameter, of its size: what is affine has no other error than
# rounding.
STEP = 2.0**-10
# What is off by this share of its size is rounding.
ROUNDED = 1e-12
# Condition beyond which a system of numbers that a solver left, not of data, may be singular.
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

    def __post_init__(self) -> None:
        say_names(self, values="derivative of", multipliers="derivative of the multiplier")

    def __getitem__(self, name: str) -> Floats:
        if not isinstance(name, str) or name not in self.values:
            raise NoSuchName(f"no derivative of {name!r}", remedy=nearest(name, self.values))
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
    compiled, optimum, units = _optimum(solution)
    start = problem.at({own.name: own.value})
    again = _form(start, compiled)
    if again.A.shape != compiled.form.A.shape or again.cones != compiled.form.cones:
        raise UnsupportedProblem("another value of the parameter compiles to other rows")
    if not _same(compiled.form, again):  # it is in other units than at other values
        problem, solution = start, start.solve(tolerance=solution.certificate.tolerance)
        compiled, optimum, units = _optimum(solution)
    form, (x, z) = compiled.form, units.back(optimum.x, optimum.z)
    size = int(np.prod(own.shape, dtype=int))
    dx, dz, dv = np.zeros((form.q.size, size)), np.zeros((form.b.size, size)), np.zeros(size)
    for k in range(size):
        here, there, step = _two_forms(problem, own, k, compiled)
        P, A = (there.P - here.P) / step, (there.A - here.A) / step
        q, b = (there.q - here.q) / step, (there.b - here.b) / step
        dx[:, k], dz[:, k] = units.moved(optimum, b - A @ x, q + P @ x + A.T @ z)
        dv[k] = q @ x + 0.5 * (x @ (P @ x)) + z @ (A @ x - b) + (there.offset - here.offset) / step
    values = _each(compiled.values, dx, own.shape)
    multipliers = _each(compiled.multipliers, dz, own.shape)
    rise = form.sign * dv.reshape(own.shape, order="F")
    return Derivatives(own.name, rise if own.shape else float(rise), values, multipliers)


def _optimum(solution: Solution) -> tuple[Compiled, Vertex | ConicOptimum, Units]:
    """Return the compiled form, and the optimum in some units of it, which moves in one way."""
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
        units = Units.of(compiled.form)
        optimum: Vertex | ConicOptimum = ConicOptimum(units.form, *units.taken(proof.x, proof.z))
        unique = condition(optimum) <= WORST_CONIC
    else:
        compiled = linear_rows(solution, "derivatives")
        units = Units.of(compiled.form)
        optimum = vertex = optimal_vertex(compiled, solution, units)[1]
        unique = not vertex.degenerate and condition(vertex) <= WORST
    if not unique:
        raise UnsupportedProblem(
            "the optimum has no derivative here",
            "another is as good, or a row is active with multiplier 0: sides differ",
            "optfair.sensitivity has both sides of a linear program; or optfair.sweep",
        )
    return compiled, optimum, units


def _check_affine(problem: Problem, own: Parameter) -> None:
    """Refuse a parameter that terms may depend on in another way than affinely."""
    if own.rule[0]:
        sides = problem.moves_sides(problem.rules[own.rule[0]], own.rule[1])
        curved = [] if sides else list(own.terms)
    elif own.leaf is None:
        curved = [] if problem.movable[own.name] else [type(problem).__name__]
    else:
        curved = curved_terms(problem, own)
    if curved:
        raise UnsupportedProblem(
            f"{curved[0]!r} is no affine function of {own.name!r}",
            "it is declared again at other values",
            "write the term with a parameter it is affine in",
        )


def _form(problem: Problem, compiled: Compiled) -> ConicForm:
    """Return the form of a problem as another value of it was compiled."""
    linear = all(c.kind in ("zero", "nonneg") for c in compiled.form.cones)
    interface = conic_interface() if linear else compiled.interface.name()
    return compile_problem(problem, interface, quadratic=compiled.quadratic).form


def _same(form: ConicForm, *ends: ConicForm) -> bool:
    """Whether a form is another one, or the mean of two, up to rounding."""
    for name in ("A", "b", "q", "P"):
        numbers: list[Any] = [getattr(f, name) for f in (form, *ends)]
        shaped: list[Any] = [v[None, :] if v.ndim == 1 else v for v in numbers]
        own, *others = map(sp.csr_array, shaped)
        if any(other.shape != own.shape for other in others):
            return False
        mean: Any = sum(others[1:], others[0]) / len(others)
        sizes: Any = sum((abs(other) for other in others), abs(own))
        if (abs(own - mean) - ROUNDED * sizes).max() > 0.0:
            return False
    return True


def _two_forms(
    problem: Problem, own: Parameter, k: int, compiled: Compiled
) -> tuple[ConicForm, ConicForm, float]:
    """Return the compiled forms at two values of an entry, and how far they are apart.

    Raises
    ------
    UnsupportedProblem
        The form is not affine in between, or there is no other value.
    """
    here = dense(own.value)
    at = np.unravel_index(k, here.shape, order="F") if here.shape else ()
    step = STEP * max(1.0, abs(float(here[at])))
    for signed in (step, -step):
        values = [here.copy(), here.copy()]
        for moved, part in zip(values, (signed, 0.5 * signed), strict=True):
            moved[at] = here[at] + part
        try:
            ends = [problem.at({own.name: v if here.shape else float(v)}) for v in values]
        except DeclarationError:  # outside of its range
            continue
        first = _form(problem, compiled)
        second, middle = (_form(p, compiled) for p in ends)
        if not _same(middle, first, second) or not _same(compiled.form, first):
            raise UnsupportedProblem("another value of the parameter compiles to other rows")
        return first, second, float(values[0][at] - here[at])
    raise UnsupportedProblem(f"{own.name!r} cannot be moved from {here}")


def _each(by_name: Any, columns: Floats, shape: tuple[int, ...]) -> dict[str, Floats]:
    """Return arrays by name whose last axes are those of the parameter."""
    rows = [by_name(c) for c in columns.T]
    return {
        name: np.stack([np.asarray(r[name]) for r in rows], axis=-1).reshape(
            (*np.shape(rows[0][name]), *shape), order="F"
        )
        for name in rows[0]
    }


# Of two numbers that exclude each other the smaller is at most this share of the larger; a solver
# that stops at a gap of 1e-9 leaves both at 3e-5 where complementarity is not strict.
CLEAR = 1e-3
# And the larger is at least this share of the largest of its kind.
SEEN = 1e-5
# A coordinate of a cone below this share of the others: its boundary is not smooth there.
EDGE = 1e-9


class ConicOptimum:
    """An optimum, the smooth set around it, and how both move.

    Parameters
    ----------
    form : ConicForm
        The program.
    x, z : array
        An optimal pair.

    Raises
    ------
    UnsupportedProblem
        Complementarity is not strict, s lies where the cone is not smooth, or rows and curvature
        do not determine the optimum.
    """

    def __init__(self, form: ConicForm, x: Floats, z: Floats) -> None:
        self.form, self.x, self.z = form, x, z
        s = form.slack(x)
        # where the goal is flat at x, its slopes a step away say what a multiplier is
        sizes = (s, form.b), (z, form.q, form.P.data * np.abs(x).max(initial=0.0))
        self._units = tuple(max(np.abs(v).max(initial=0.0) for v in vs) or 1.0 for vs in sizes)
        self._tangent: list[tuple[Indices, Indices, Floats]] = []
        self._curved: list[tuple[Indices, Indices, Floats]] = []
        self._count = 0
        rows = np.flatnonzero(form.nonnegative)
        active = rows[~self._first(s[rows], z[rows])]
        self._hold(np.concatenate([np.flatnonzero(form.equal), active]))
        curved = sorted((c for c in form.cones if c.kind in SMOOTH), key=_alike)
        for (kind, size), alike in groupby(curved, _alike):
            self._smooth(kind, size, list(alike), s)
        for cone in form.cones:
            if cone.kind == "psd":
                self._semidefinite(cone, s)
        m, n = form.b.size, form.q.size
        self._R, self._H = _matrix(self._tangent, (self._count, m)), _matrix(self._curved, (m, m))
        A = form.rows
        bent, rows_held = form.P + A.T @ self._H @ A, self._R @ A
        # columns that a term introduces and nothing active touches are of no concern
        loose = abs(bent).sum(axis=0) + abs(rows_held).sum(axis=0) == 0.0
        for columns in form.columns.values():
            loose[columns] = False
        k = self._count
        self.matrix: Any = sp.csc_array(
            sp.block_array(
                [
                    [bent + sp.diags_array(loose.astype(float)), rows_held.T],
                    [rows_held, sp.csc_array((k, k))],
                ]
            )
        )
        try:
            self.factor: Any = splu(self.matrix)
        except RuntimeError as e:
            raise _none(f"rows and curvature do not determine it ({e})") from None
        self._n = n

    def moved(self, side: Floats, cost: Floats) -> tuple[Floats, Floats]:
        """Return how x and z move when the sides and the costs do."""
        A = self.form.rows
        solved = self.factor.solve(np.concatenate([A.T @ (self._H @ side) - cost, self._R @ side]))
        dx, dv = solved[: self._n], solved[self._n :]
        return dx, np.asarray(self._R.T @ dv - self._H @ (side - A @ dx))

    # --- what is around s ----------------------------------------------------------------

    def _first(self, a: Floats, b: Floats) -> Flags:
        """Return where a slack is positive, elsewhere its multiplier is; one of them must be."""
        a, b = a / self._units[0], b / self._units[1]
        low, high = np.minimum(a, b), np.maximum(a, b)
        if not ((low <= CLEAR * high) & (high >= SEEN)).all():
            raise _none("a constraint is active with multiplier 0, or nearly so")
        return np.asarray(a > b)

    def _hold(self, rows: Indices) -> None:
        """Keep these entries of s where they are."""
        self._tangent.append((self._count + np.arange(rows.size), rows, np.ones(rows.size)))
        self._count += rows.size

    def _smooth(self, kind: str, size: int, cones: Sequence[Cone], s: Floats) -> None:
        """Add cones of one size whose boundary is smooth apart from the origin."""
        at = np.array([c.start for c in cones])[:, None] + np.arange(size)
        S, Z = s[at], self.z[at]
        with np.errstate(all="ignore"):
            inner, length, depth, around = SMOOTH[kind](S, Z, np.array([c.power for c in cones]))
        inside = self._first(inner, np.linalg.norm(Z, axis=1))
        tip = ~inside
        tip[tip] = ~self._first(length[tip], depth[tip])
        self._hold(at[tip].ravel())
        edge = ~inside & ~tip
        with np.errstate(all="ignore"):
            gradient, bent = around(edge)
        if not (np.isfinite(gradient).all() and np.isfinite(bent).all()):
            raise _none("it lies where a cone is not smooth")
        where, many = at[edge], int(edge.sum())
        row = np.repeat(self._count + np.arange(many), size)
        self._tangent.append((row, where.ravel(), gradient.ravel()))
        self._count += many
        first, second = np.broadcast_arrays(where[:, :, None], where[:, None, :])
        self._curved.append((first.ravel(), second.ravel(), bent.ravel()))

    def _semidefinite(self, cone: Cone, s: Floats) -> None:
        """Add a block of semidefinite matrices: s and z have the same eigenvectors."""
        block = slice(cone.start, cone.stop)
        S, Z = cone.matrix(s[block]), cone.matrix(self.z[block])
        U = np.linalg.eigh(S / self._units[0] - Z / self._units[1])[1]
        own, price = (np.einsum("ik,ij,jk->k", U, M, U) for M in (S, Z))
        positive = self._first(own, price)
        i, j = np.triu_indices(cone.order)
        rows, cols = cone.places
        # the scaled triangle of the symmetric part of u_i u_j^T, of length 1
        pairs = U[rows][:, i] * U[cols][:, j] + U[cols][:, i] * U[rows][:, j]
        scale = np.where(rows == cols, 1.0, cone.root)[:, None] * np.where(i == j, 0.5, 0.5**0.5)
        basis = (pairs * scale).T
        flat = np.flatnonzero(~positive[i] & ~positive[j])
        entries = np.arange(cone.start, cone.stop)
        row = np.repeat(self._count + np.arange(flat.size), entries.size)
        self._tangent.append((row, np.tile(entries, flat.size), basis[flat].ravel()))
        self._count += flat.size
        mixed = np.flatnonzero(positive[i] != positive[j])
        a, b = i[mixed], j[mixed]
        up, down = np.where(positive[a], a, b), np.where(positive[a], b, a)
        H = (basis[mixed].T * (price[down] / own[up])) @ basis[mixed]
        first, second = np.broadcast_arrays(entries[:, None], entries[None, :])
        self._curved.append((first.ravel(), second.ravel(), H.ravel()))


def _none(because: str) -> UnsupportedProblem:
    return UnsupportedProblem(
        "the optimum has no derivative here, or the solution is not accurate enough to tell",
        because,
        "solve at a smaller tolerance, or solve again at other values: optfair.sweep",
    )


def _alike(cone: Cone) -> tuple[str, int]:
    return cone.kind, cone.stop - cone.start


def _matrix(parts: Sequence[tuple[Indices, Indices, Floats]], shape: tuple[int, int]) -> Any:
    rows, columns, data = (
        (np.concatenate(a) for a in zip(*parts, strict=True)) if parts else [[]] * 3
    )
    entries: Any = (data, (rows, columns))
    return sp.csr_array(entries, shape=shape)


# Cones by kind: of blocks S and Z (c, m) the slack of h and the size of s, how deep z is inside
# the dual cone, and a function of some blocks that returns gradients of h, and -mu times Hessians.


def _second_order(S: Floats, Z: Floats, _: Floats) -> tuple[Floats, Floats, Floats, Any]:
    length, price = np.linalg.norm(S[:, 1:], axis=1), np.linalg.norm(Z[:, 1:], axis=1)

    def around(edge: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        u = S[edge, 1:] / length[edge, None]
        bent = np.zeros((u.shape[0], S.shape[1], S.shape[1]))
        bent[:, 1:, 1:] = np.eye(u.shape[1]) - u[:, :, None] * u[:, None, :]
        gradient = np.concatenate([np.ones((u.shape[0], 1)), -u], axis=1)
        return gradient, bent * (Z[edge, 0] / length[edge])[:, None, None]

    return S[:, 0] - length, S[:, 0] + length, Z[:, 0] - price, around


def _exponential(S: Floats, Z: Floats, _: Floats) -> tuple[Floats, Floats, Floats, Any]:
    x, y, t = S.T
    u, v, w = Z.T
    inner = np.where((y > 0.0) & (t > 0.0), y * np.log(t / y) - x, -np.inf)
    depth = np.where(u < 0.0, w + u * np.exp(v / u - 1.0), np.minimum(v, w))

    def around(edge: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        x, y, t = S[edge].T
        smooth = np.where(np.minimum(y, t) > EDGE * np.abs(S[edge]).max(axis=1), 1.0, np.nan)
        gradient = np.stack([-smooth, np.log(t / y) - 1.0, y / t], axis=1)
        bent = np.zeros((x.size, 3, 3))
        bent[:, 1, 1], bent[:, 2, 2] = 1.0 / y, y / t**2
        bent[:, 1, 2] = bent[:, 2, 1] = -1.0 / t
        return gradient, bent * -Z[edge, 0][:, None, None]

    return inner, np.linalg.norm(S, axis=1), depth, around


def _power(S: Floats, Z: Floats, power: Floats) -> tuple[Floats, Floats, Floats, Any]:
    def base(x: Floats, y: Floats, a: Floats) -> Floats:
        return np.asarray(np.maximum(x, 0.0) ** a * np.maximum(y, 0.0) ** (1.0 - a))

    def around(edge: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        (x, y, t), a = S[edge].T, power[edge]
        smooth = np.abs(S[edge]).min(axis=1) > EDGE * np.abs(S[edge]).max(axis=1)
        f = np.where(smooth, base(x, y, a), np.nan)
        gradient = np.stack([a * f / x, (1.0 - a) * f / y, -np.sign(t)], axis=1)
        bent = np.zeros((x.size, 3, 3))
        bent[:, 0, 0], bent[:, 1, 1] = 1.0 / x**2, 1.0 / y**2
        bent[:, 0, 1] = bent[:, 1, 0] = -1.0 / (x * y)
        return gradient, bent * (np.abs(Z[edge, 2]) * a * (1.0 - a) * f)[:, None, None]

    inner = base(S[:, 0], S[:, 1], power) - np.abs(S[:, 2])
    depth = base(Z[:, 0] / power, Z[:, 1] / (1.0 - power), power) - np.abs(Z[:, 2])
    return inner, np.linalg.norm(S, axis=1), depth, around


SMOOTH = {"soc": _second_order, "exp": _exponential, "pow": _power}
