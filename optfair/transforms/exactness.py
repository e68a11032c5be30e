"""The Lagrangian of a quadratic problem, the bound it proves, the best point near its moments, and when a relaxation is exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize

from optfair.compile.program import ROUNDED, Enclosed, QuadraticForms, quadratic_terms
from optfair.core.certificate import Certificate, DualCheck, Verdict
from optfair.core.expressions import Values
from optfair.core.problem import Problem, check_problem
from optfair.core.quadratics import QuadraticMap
from optfair.errors import ClassError, DataError
from optfair.numbers import Floats, check_mapping, check_positive, floats
from optfair.proofs.cones import largest_entry
from optfair.proofs.rounding import exact_dot, exact_products, gamma
from optfair.proofs.unpaid import Unpaid
from optfair.solution.residuals import measure

# The Lagrangian of a quadratic problem, and the bound it proves.


@dataclass(frozen=True)
class LagrangianCheck:
    """What multipliers prove about a quadratic problem, seen from a point.

    Attributes
    ----------
    bound : float
        Least value of the Lagrangian of the minimisation.
    curvature : float
        Size of the most negative eigenvalue of its Hessian / (1 + largest).
    signs : float
        Size of the most negative multiplier of an inequality / (1 + largest).
    flat : float
        Slope along directions without curvature / (1 + size of the gradient's parts).
    stationarity : float
        Largest entry of the gradient at the point / (1 + size of its parts).
    complementarity : float
        Largest product of a multiplier and its constraint / max(1, abs(objective)).
    unpaid : Unpaid or None
        Directions that the Lagrangian leaves flat and no constraint bounds.
    unit : float
        Least size that its value is measured by: 1, or that of its terms at the point.
    """

    bound: float
    curvature: float
    signs: float
    flat: float
    stationarity: float
    complementarity: float
    unpaid: Unpaid | None = None
    unit: float = 1.0

    @property
    def dual(self) -> float:
        """Largest of what must vanish for the bound to hold."""
        return max(self.curvature, self.signs, self.flat)


@dataclass(frozen=True, eq=False)
class QuadraticLagrangian:
    r"""Lagrangian of min f₀ s.t. f_i <= 0 or f_i = 0, all quadratic.

    .. math::
        L(x, \lambda) = f_0(x) + \sum_i \lambda_i f_i(x)
        = \tfrac12 x^T H(\lambda) x + g(\lambda)^T x + r(\lambda)

    Attributes
    ----------
    problem : Problem
        What it is of; maximisation is that of -f₀.
    forms : QuadraticForms
        Its coefficients.
    goal, rows : QuadraticMap
        f₀ with the sign of a minimisation, and all f_i.
    inequality : array (m,) of bool
        Which rows are inequalities.
    """

    problem: Problem
    forms: QuadraticForms
    goal: QuadraticMap
    rows: QuadraticMap
    inequality: NDArray[np.bool_]

    @property
    def sign(self) -> float:
        """-1 when the problem maximises."""
        return 1.0 if self.problem.sense == "minimize" else -1.0

    def misfit(self, values: Values, multipliers: Mapping[str, Any]) -> str:
        """Return what is missing, of another size or not finite; empty when nothing is."""
        wanted = [("value", k, values, int(np.prod(v))) for k, v in self.forms.shapes.items()]
        wanted += [("multiplier", t.name, multipliers, t.size) for t in self.forms.constraints]
        for kind, name, given, size in wanted:
            if name not in given:
                return f"there is no {kind} of {name!r}"
            try:
                entries = floats(given[name], f"the {kind} of {name!r}")
            except DataError as e:
                return e.cause
            if entries.size != size:
                return f"the {kind} of {name!r} has {entries.size} entries, not {size}"
        return ""

    def vector(self, multipliers: Mapping[str, Any]) -> Floats:
        """Return λ in row order from multipliers by name."""
        given = [np.asarray(multipliers[t.name], dtype=float) for t in self.forms.constraints]
        return np.concatenate([np.zeros(0), *(np.ravel(y, order="F") for y in given)])

    def by_name(self, y: Floats) -> dict[str, Floats]:
        """Return multipliers by name from λ in row order."""
        named, at = {}, 0
        for term in self.forms.constraints:
            named[term.name] = y[at : at + term.size].reshape(term.shape, order="F")
            at += term.size
        return named

    def at(self, y: Floats) -> tuple[Floats, Floats, float]:
        """Return H(λ), g(λ), r(λ)."""
        total = self._enclosed(np.append(1.0, y))
        return total.H, total.g, total.r

    def jacobian(self, x: Floats, at: NDArray[Any]) -> Floats:
        """Return the gradients of some rows at x, one per row of the result."""
        i, j = self.rows.pairs
        k = np.arange(i.size)
        # d(x_i x_j) = x_j dx_i + x_i dx_j, also where i = j
        entries = np.concatenate([x[j], x[i]]), (np.tile(k, 2), np.concatenate([i, j]))
        products = sp.csr_array(entries, shape=(i.size, x.size))
        gradients = sp.csr_array(self.rows.Q @ products + self.rows.A)
        return np.asarray(gradients.toarray()[at], dtype=float)

    @cached_property
    def _every(self) -> tuple[QuadraticMap, Any, Any]:
        """f₀ and all f_i in one map, and its coefficients by columns."""
        both = QuadraticMap.stacked([self.goal, self.rows])
        return both, sp.csc_array(both.Q), sp.csc_array(both.A)

    def _enclosed(self, weights: Floats) -> Enclosed:
        """Return a sum of f₀ and all f_i, weighted, and what its numbers are off by."""
        both, Q, A = self._every
        n = A.shape[1]
        parts: list[Any] = []
        for coefficients in exact_products(Q, weights, np.arange(Q.shape[1])):
            half = np.zeros((n, n))
            half[both.pairs[0], both.pairs[1]] = coefficients
            parts.append(half + half.T)
        parts += [*exact_products(A, weights, np.arange(n)), *exact_dot(both.b, weights)]
        return Enclosed(*parts)

    def _size(self, x: Floats, weights: Floats) -> float:
        """Return the size of all terms of a sum of f₀ and all f_i, weighted, at x."""
        both = self._every[0]
        products = np.abs(x[both.pairs[0]] * x[both.pairs[1]])
        parts = abs(both.Q) @ products + abs(both.A) @ np.abs(x) + np.abs(both.b)
        return float(parts @ np.abs(weights))

    @cached_property
    def radius(self) -> float:
        """Length that no feasible point exceeds, by the rows that curve upwards; else infinite.

        Their sum ½xᵀPx + qᵀx + r is at most 0, so with the least eigenvalue μ > 0 of P,
        ½μ|x|² - |q||x| + r is too.
        """
        i, j = self.rows.pairs
        if not (i == j).any():
            return float(np.inf)
        diagonal = sp.csc_array(self.rows.Q)[:, np.flatnonzero(i == j)].toarray()
        largest = np.maximum(abs(self.rows.Q).max(axis=1).toarray().ravel(), 1e-300)
        up = (diagonal >= 0.0).all(axis=1) & (diagonal > 0.0).any(axis=1)
        down = ~self.inequality & (diagonal <= 0.0).all(axis=1) & (diagonal < 0.0).any(axis=1)
        total = self._enclosed(np.append(0.0, (up * 1.0 - down * 1.0) / largest))
        h, _, skew = total.spectrum()
        most = largest_entry(h)
        least = float(h.min(initial=np.inf)) / (1.0 + skew)
        if not least > 1e-9 * max(most, 1e-300):
            return float(np.inf)
        slope, r = float(np.linalg.norm(np.abs(total.g) + total.g_off)), total.r - total.r_off
        root = np.sqrt(max(0.0, slope**2 - 2.0 * least * r))
        return float((slope + root) / least * (1.0 + ROUNDED))

    def check(self, x: Floats, y: Floats) -> LagrangianCheck:
        """Return what λ proves, seen from x.

        Along a column of V with curvature h and slope s at x, the Lagrangian falls by at
        most s²/2h. Where h is 0 up to rounding, the slope and a negative h cost what they can
        over the feasible set; where no constraint bounds it, over a length of 2 (1 + |x|).
        """
        values = self.rows(x)
        sure = np.where(self.inequality, np.maximum(y, 0.0), y)
        weights = np.append(1.0, sure)
        total = self._enclosed(weights)
        h, V, skew = total.spectrum()
        near, off = total.gradient(x)
        slope = V.T @ near
        fall = (
            np.abs(slope) + np.abs(V.T) @ off + gamma(x.size + 2.0) * (np.abs(V.T) @ np.abs(near))
        )
        size = float(np.linalg.norm(x))
        far = (self.radius + size) * (1.0 + ROUNDED) / max(1.0 - skew, 0.0) ** 0.5
        reach = far if np.isfinite(far) else 2.0 * (1.0 + size)
        limited = fall * reach + np.maximum(-h, 0.0) * reach**2 / 2.0
        with np.errstate(divide="ignore", over="ignore"):
            curved = np.where(h > 0.0, fall**2 / (2.0 * np.maximum(h, 1e-300)), np.inf)
        flat = curved > limited
        parts = 1.0 + max(largest_entry(total.g), largest_entry(total.H @ x))
        value = float(self.goal(x)[0])
        spent = np.minimum(curved, limited)
        unpaid = None
        if not np.isfinite(far) and flat.any():  # nothing bounds how far these directions go
            unpaid = Unpaid(
                np.flatnonzero(flat),
                float(np.sqrt(x.size) * fall[flat].sum()),
                float(x.size * np.maximum(-h[flat], 0.0).max(initial=0.0)),
                size,
                float(spent[flat].sum()),
            )
            spent = np.where(flat, np.sqrt(x.size) * fall * size, spent)
        return LagrangianCheck(
            bound=total.below(x, float(spent.sum()) * (1.0 + ROUNDED)),
            curvature=max(0.0, -float(h.min())) / (1.0 + largest_entry(h)) if h.size else 0.0,
            signs=largest_entry(sure - y) / (1.0 + largest_entry(y)),
            flat=largest_entry(slope[flat]) / parts,
            stationarity=largest_entry(near) / parts,
            complementarity=largest_entry((y * values)[self.inequality]) / max(1.0, abs(value)),
            unpaid=unpaid,
            unit=min(1.0, self._size(x, weights)) or 1.0,
        )


def quadratic_lagrangian(problem: Problem) -> QuadraticLagrangian:
    """Return the Lagrangian of a continuous problem in quadratics.

    Raises
    ------
    ClassError
        Integer variables, or matrix variables with a pattern.
    UnsupportedProblem
        A term is not quadratic.
    """
    if problem.integers:
        raise ClassError(
            f"{', '.join(map(repr, sorted(problem.integers)))} is integer",
            f"the class is {problem.problem_class}",
            "write a variable in {0, 1} as x**2 == x, or relax_integrality(problem) first",
        )
    for name, v in problem.variables.items():
        pattern = [k for k in ("symmetric", "diag", "sparsity") if v.attributes.get(k)]
        if pattern:
            raise ClassError(
                f"the matrix variable {name!r} is declared {pattern[0]}",
                "its equations have no names, so their multipliers have none",
                "declare a plain matrix and the equations as a constraint, e.g. X == X.T",
            )
    forms = quadratic_terms(problem)
    sign = 1.0 if problem.sense == "minimize" else -1.0
    maps = [t.map for t in forms.constraints]
    rows = QuadraticMap.stacked(maps) if maps else QuadraticMap.constant(np.zeros(0), forms.size)
    inequality = [np.full(t.size, t.set == "nonpositive") for t in forms.constraints]
    return QuadraticLagrangian(
        problem,
        forms,
        sign * forms.total.map,
        rows,
        np.concatenate(inequality) if inequality else np.zeros(0, dtype=bool),
    )


@dataclass(frozen=True, eq=False)
class LagrangianProof:
    """The Lagrange bound of a quadratic problem, recomputed from its terms and multipliers."""

    problem: Problem
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound from the declared terms."""
        lagrangian = quadratic_lagrangian(self.problem)
        if lagrangian.misfit(values, multipliers):
            return DualCheck(-lagrangian.sign * np.inf, np.inf)
        dual = lagrangian.check(lagrangian.forms.vector(values), lagrangian.vector(multipliers))
        return DualCheck(
            lagrangian.sign * dual.bound,
            dual.dual,
            dual.complementarity,
            unpaid=dual.unpaid,
            unit=dual.unit,
            free=() if dual.unpaid is None else tuple(lagrangian.forms.columns),
        )


# Certificate that a relaxation is exact: multipliers that prove a point globally optimal.


@dataclass(frozen=True, eq=False, repr=False)
class Exactness(Certificate):
    r"""A feasible point and multipliers λ that together prove a global optimum.

    .. math::
        H(\lambda) \succeq 0,\quad \nabla_x L(x, \lambda) = 0,\quad \lambda_i f_i(x) = 0,
        \quad \lambda_i \ge 0 \text{ for inequalities}

    Then x minimises :math:`L(\cdot, \lambda)` over all of space, so
    :math:`f_0(x) = L(x, \lambda) \le f_0` on the feasible set: the Lagrange (and semidefinite)
    relaxation is exact, also where the problem is not convex. For one quadratic constraint
    with an interior point such λ exist whenever there is an optimum (the S-lemma).

    Parameters
    ----------
    problem : Problem
        Quadratic, convex or not.
    values : mapping
        The point, by variable name.
    multipliers : mapping
        λ, by constraint name.
    tolerance : float
        Relative size of what counts as zero.

    Examples
    --------
    The largest x² on [-1, 1] is at its ends; λ = 1 proves it.

    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Maximize(x**2), [x**2 <= 1]), ["interval"])
    >>> Exactness(p, {"x": 1.0}, {"interval": 1.0}).verify()
    verified
    >>> Exactness(p, {"x": 0.5}, {"interval": 1.0}).verify()
    NOT verified: a multiplier times its constraint is 7.5e-01; value 0.25 and bound 1 differ

    References
    ----------
    Pólik, Terlaky: A Survey of the S-Lemma, SIAM Review 49 (2007).
    """

    problem: Problem
    values: Values
    multipliers: Values
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_problem(self.problem)
        check_mapping(self.values, "values")
        check_mapping(self.multipliers, "multipliers")
        check_positive(self.tolerance, "tolerance")

    @property
    def value(self) -> float:
        """Declared objective at the point."""
        return self.problem.objective_at(self.values)

    @property
    def bound(self) -> float:
        """Bound on the optimum that the multipliers prove, recomputed."""
        lagrangian = quadratic_lagrangian(self.problem)
        return lagrangian.sign * self._check(lagrangian).bound

    def _check(self, lagrangian: QuadraticLagrangian) -> LagrangianCheck:
        x, y = lagrangian.forms.vector(self.values), lagrangian.vector(self.multipliers)
        return lagrangian.check(x, y)

    def verify(self) -> Verdict:
        """Recompute feasibility, curvature, stationarity and complementarity from the terms."""
        lagrangian = quadratic_lagrangian(self.problem)
        misfit = lagrangian.misfit(self.values, self.multipliers)
        if misfit:
            return Verdict(False, (misfit,))
        check, proof = self._check(lagrangian), LagrangianProof(self.problem)
        values = lagrangian.forms.by_name(lagrangian.forms.vector(self.values))
        multipliers = lagrangian.by_name(lagrangian.vector(self.multipliers))
        value, bound = self.value, lagrangian.sign * check.bound
        off = measure(self.problem, values, multipliers, proof).against(value, bound)
        grade = off.grade(self.tolerance)
        reasons = [
            f"{name!r} is violated by {v:.1e}"
            for name, v in off.primal.items()
            if not v <= self.tolerance
        ]
        checks = {
            "the Hessian of the Lagrangian has a negative eigenvalue": check.curvature,
            "a multiplier of an inequality is negative": check.signs,
            "the Lagrangian falls along a direction without curvature": check.flat,
            "the gradient of the Lagrangian is not zero": check.stationarity,
            "a multiplier times its constraint is": check.complementarity,
        }
        reasons += [f"{k} {v:.1e}" for k, v in checks.items() if not v <= self.tolerance]
        if not off.gap <= self.tolerance:
            reasons.append(f"value {value:.6g} and bound {bound:.6g} differ")
        if not reasons and not grade.sound:
            reasons.append(f"the bound is not proved here: {grade.because}")
        return Verdict(not reasons, tuple(reasons), grade)

    def __str__(self) -> str:
        return f"exact relaxation: value {self.value:.10g}, bound {self.bound:.10g}"


# Up to which a point is feasible, its value is the bound, and a multiplier is none.
FEASIBLE, CLOSE, ACTIVE = 1e-8, 1e-10, 1e-6
# Points drawn from the moments.
SAMPLES = 24
# Local searches: from the best points only, or with few variables from every point.
SEARCHES, SMALL = 5, 20
# Steps of Newton's method, and how many of them may lead away.
STEPS, PATIENCE = 30, 4


@np.errstate(over="ignore", invalid="ignore")
def best_point(
    lagrangian: QuadraticLagrangian, moments: Floats, multipliers: Floats
) -> tuple[Floats, Floats]:
    """Return the best point found, and the multipliers that prove the better bound.

    First the points that an exact relaxation holds, improved with its multipliers: the first
    whose objective meets the bound is returned. Else points are drawn from the moments, and
    the best of all start a local search. Seeded, so the same moments give the same point.
    """
    y0 = np.where(lagrangian.inequality, np.maximum(multipliers, 0.0), multipliers)
    points: list[Floats] = []
    for start in _held(lagrangian, moments, y0):
        x = _feasible(lagrangian, start)
        points.append(x)
        for point, y in (_improved(lagrangian, x, y0), (x, y0)):
            infeasible, value = _rank(lagrangian, point)
            check = lagrangian.check(point, y)
            near = abs(value - check.bound) <= CLOSE * max(1.0, abs(value))
            if near and not infeasible and check.dual <= FEASIBLE:
                return point, y
    points += [_feasible(lagrangian, start) for start in _drawn(moments)]
    points.sort(key=lambda x: _rank(lagrangian, x))
    tried = points if y0.size <= SMALL and points[0].size <= SMALL else points[:SEARCHES]
    points += [_feasible(lagrangian, _local(lagrangian, x)) for x in tried]
    best = min(points, key=lambda x: _rank(lagrangian, x))
    # where the relaxation is exact up to its solver's accuracy, Newton's method closes the rest
    point, y = _improved(lagrangian, best, y0)
    check, plain = lagrangian.check(point, y), lagrangian.check(best, y0)
    better = check.dual <= FEASIBLE and check.bound >= plain.bound
    if better and _rank(lagrangian, point) <= _rank(lagrangian, best):
        return point, y
    return best, y0


def _rank(lagrangian: QuadraticLagrangian, x: Floats) -> tuple[bool, float]:
    """Order points: feasible ones by objective, before the others by violation."""
    f = lagrangian.rows(x)
    broken = np.where(lagrangian.inequality, np.maximum(f, 0.0), np.abs(f))
    off = float((broken / (1.0 + np.abs(lagrangian.rows.b))).max(initial=0.0))
    if not np.isfinite(off):  # a Newton step went astray
        return True, np.inf
    return (True, off) if off > FEASIBLE else (False, float(lagrangian.goal(x)[0]))


def _held(lagrangian: QuadraticLagrangian, moments: Floats, y: Floats) -> Iterator[Floats]:
    """Yield the points that the moments of an exact relaxation are made of."""
    mean = moments[1:, 0]
    spread = moments[1:, 1:] - np.outer(mean, mean)
    H, g, _ = lagrangian.at(y)
    h, V = np.linalg.eigh(H)
    curved = h > ACTIVE * max(1.0, float(np.abs(h).max(initial=0.0)))
    # multipliers are accurate where eigenvectors of the moments are not: solve H x = -g,
    # and along the flat directions keep the mean
    stationary = mean - V[:, curved] @ (V[:, curved].T @ (H @ mean + g) / h[curved])
    yield stationary
    flat = V[:, ~curved]
    if flat.shape[1]:  # the hard case: all the spread lies there, and its length is known
        inside = flat.T @ spread @ flat
        length = np.sqrt(max(float(np.trace(inside)), 0.0))
        _, axes = np.linalg.eigh((inside + inside.T) / 2.0)
        for axis in (flat @ axes[:, -1], flat @ axes[:, 0]):
            yield stationary + length * axis
            yield stationary - length * axis
    yield mean


def _drawn(moments: Floats) -> Iterator[Floats]:
    """Yield normal points with these moments."""
    mean = moments[1:, 0]
    spread = moments[1:, 1:] - np.outer(mean, mean)
    sizes, axes = np.linalg.eigh((spread + spread.T) / 2.0)
    root = axes * np.sqrt(np.maximum(sizes, 0.0))
    rng = np.random.default_rng(0)
    for _ in range(SAMPLES):
        yield mean + root @ rng.normal(size=mean.size)


def _local(lagrangian: QuadraticLagrangian, x: Floats) -> Floats:
    """Return a local minimum near x by sequential quadratic programming."""
    free = np.zeros(lagrangian.rows.b.size)
    constraints: list[Any] = []
    for kind, mask in (("eq", ~lagrangian.inequality), ("ineq", lagrangian.inequality)):
        at, sign = np.flatnonzero(mask), 1.0 if kind == "eq" else -1.0
        if at.size:
            constraints.append(
                {
                    "type": kind,
                    "fun": lambda v, at=at, sign=sign: sign * lagrangian.rows(v)[at],
                    "jac": lambda v, at=at, sign=sign: sign * lagrangian.jacobian(v, at),
                }
            )
    H, g, _ = lagrangian.at(free)
    search: Any = minimize  # its stubs know constraints only where they are literals
    result = search(
        lambda v: float(lagrangian.goal(v)[0]),
        x,
        jac=lambda v: H @ v + g,
        method="SLSQP",
        constraints=constraints,
        options={"ftol": 1e-12, "maxiter": 200},
    )
    return np.asarray(result.x, dtype=float) if np.isfinite(result.x).all() else x


def _feasible(lagrangian: QuadraticLagrangian, x: Floats) -> Floats:
    """Move x onto the constraints it breaks, by the shortest Newton steps."""
    for _ in range(STEPS):
        f = lagrangian.rows(x)
        broken = np.flatnonzero(np.where(lagrangian.inequality, f > 0.0, f != 0.0))
        if not broken.size or not np.isfinite(f).all():
            break
        step = np.linalg.lstsq(lagrangian.jacobian(x, broken), -f[broken], rcond=None)[0]
        if not np.isfinite(step).all():
            break
        x = x + step
    return x


def _improved(lagrangian: QuadraticLagrangian, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Solve the optimality conditions near (x, λ) by Newton's method; keep what is better."""
    large = ACTIVE * (1.0 + float(np.abs(y).max(initial=0.0)))
    active = np.flatnonzero(~lagrangian.inequality | (y > large))
    n = x.size
    start = np.where(lagrangian.inequality & (y <= large), 0.0, y)
    best, least, since = (x, y), np.inf, 0
    x, y = x.copy(), start
    scale = 1.0 + np.abs(lagrangian.rows.b[active])
    for _ in range(STEPS):
        H, g, _ = lagrangian.at(y)
        J, f = lagrangian.jacobian(x, active), lagrangian.rows(x)[active]
        slope = H @ x + g
        unit = max(1.0, abs(float(lagrangian.goal(x)[0])))
        # a large multiplier makes a small violation dear
        costs = np.abs(f) * np.maximum(1.0 / scale, np.abs(y[active]) / unit)
        size = max(largest_entry(slope) / (1.0 + largest_entry(g)), largest_entry(costs))
        if not np.isfinite(size):
            break
        since += 1  # the first steps may lead away before they converge
        if size < least:
            best, least, since = (x.copy(), y.copy()), size, 0
        if since == PATIENCE or least < np.finfo(float).eps:
            break
        # rows of one size, so that small gradients are not taken for dependent ones
        rows = (largest_entry(H) or 1.0) / np.maximum(np.abs(J).max(axis=1, initial=0.0), 1e-300)
        J = rows[:, None] * J
        system = np.block([[H, J.T], [J, np.zeros((active.size, active.size))]])
        step = np.linalg.lstsq(system, -np.concatenate([slope, rows * f]), rcond=1e-12)[0]
        x = x + step[:n]
        y = y.copy()
        y[active] += rows * step[n:]
    return best
