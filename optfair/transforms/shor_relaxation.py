"""The semidefinite relaxation of a quadratic problem, and the way back to a point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.optimize import minimize

from optfair.core.composition import constraint_term, objective_term
from optfair.core.labels import free_name
from optfair.core.problem import Declaration, Problem, check_problem
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm
from optfair.numbers import Floats, checked
from optfair.transforms.exactness import (
    Exactness,
    LagrangianProof,
    QuadraticLagrangian,
    largest_entry,
    quadratic_lagrangian,
)
from optfair.transforms.relaxation import check_origin, recovered

# From the moment matrix of a relaxation to a point of the quadratic problem.

FEASIBLE = 1e-8
CLOSE = 1e-10
ACTIVE = 1e-6
SAMPLES = 24
# Local searches: from the best points only, or with few variables from every point.
SEARCHES, SMALL = 5, 20
STEPS = 30
PATIENCE = 4


def best_point(
    lagrangian: QuadraticLagrangian, moments: Floats, multipliers: Floats
) -> tuple[Floats, Floats]:
    """Return the best point found, and the multipliers that prove the better bound.

    First the points that an exact relaxation holds, improved with its multipliers: the first
    whose objective meets the bound is returned. Else points are drawn from the moments, and
    the best of all start a local search. Seeded, so the same moments give the same point.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _best_point(lagrangian, moments, multipliers)


def _best_point(
    lagrangian: QuadraticLagrangian, moments: Floats, multipliers: Floats
) -> tuple[Floats, Floats]:
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


# The semidefinite relaxation of a quadratic problem, and the way back to a point.


class MomentRelaxation(Problem):
    """The semidefinite relaxation of a quadratic problem; made by `shor`."""

    def __init__(self, lagrangian: QuadraticLagrangian) -> None:
        original = lagrangian.problem
        self._set(title=f"Shor relaxation of {original.title or type(original).__name__}")
        super().__init__({"lagrangian": lagrangian})

    @property
    def moment(self) -> str:
        """Name of the moment matrix."""
        return free_name("moment", self.data["lagrangian"].problem.variables)

    def declare(self) -> Declaration:
        """Declare the variables, their moment matrix, and every term in both."""
        lagrangian: QuadraticLagrangian = self.data["lagrangian"]
        original, forms = lagrangian.problem, lagrangian.forms
        n, moment = forms.size, self.moment
        M = cp.Variable((n + 1, n + 1), name=moment, symmetric=True)
        variables = {**original.variables, moment: M}
        names = {v.id: name for name, v in variables.items()}
        x = cp.hstack([cp.vec(v, order="F") for v in original.variables.values()])

        def lifted(term: Any) -> Any:
            i, j = term.map.pairs
            f = term.map.A @ x + term.map.b
            if i.size:
                f = f + term.map.Q @ M[i + 1, j + 1]
            return cp.reshape(f, term.shape, order="F")

        goals = tuple(
            original.objective[t.name]
            if t.affine
            else replace(
                objective_term(t.name, lifted(t), names, original.sense),
                parameters=original.objective[t.name].parameters,
            )
            for t in forms.objective
        )
        terms: list[ConstraintTerm] = []
        for t in forms.constraints:
            if t.affine:
                terms.append(original.constraints[t.name])
                continue
            f = lifted(t)
            term = constraint_term(t.name, f == 0 if t.set == "zero" else f <= 0, names)
            terms.append(replace(term, parameters=original.constraints[t.name].parameters))
        for word, c in {
            "corner": M[0, 0] == 1,
            "mean": M[1:, 0] == x,
            "semidefinite": M >> 0,
        }.items():
            name = free_name(f"{moment} {word}", original.constraints)
            terms.append(constraint_term(name, c, names))
        aliases = {v: original._aliases[v.id] for v in original._alias_variables}
        return Declaration(variables, original.sense, goals, tuple(terms), frozenset(), aliases)


@dataclass(frozen=True, eq=False)
class ShorRelaxation:
    """The relaxation with the way back.

    Attributes
    ----------
    original : Problem
        The quadratic problem.
    problem : MomentRelaxation
        Its semidefinite relaxation.
    """

    original: Problem
    problem: MomentRelaxation

    def recover(self, solution: Solution) -> Solution:
        """Return a point of the original with the bound of the relaxation.

        Points come from the mean, the stationary point of the Lagrangian, and directions
        of the moment matrix; each is moved onto the constraints it breaks, and improved with
        the multipliers by Newton's method; where none meets the bound, a local search follows.
        The best is kept: a heuristic, whose result is measured. The bound is that of the Lagrangian, recomputed from the original's terms
        and the multipliers. Where they meet, the point is a global optimum and
        ``is_optimal()`` holds; else ``gap`` says how far they are apart, and
        ``status.termination`` is "relaxed".
        """
        check_origin(solution, self.problem, "relaxation")
        lagrangian: QuadraticLagrangian = self.problem.data["lagrangian"]
        moments = np.asarray(solution[self.problem.moment], dtype=float)
        x, y = best_point(lagrangian, moments, lagrangian.vector(solution.multipliers))
        return recovered(
            self.original,
            solution,
            lagrangian.forms.by_name(x),
            lagrangian.by_name(y),
            LagrangianProof(self.original),
            "shor",
        )

    def exactness(self, solution: Solution, tolerance: float = 1e-6) -> Exactness | None:
        """Return the certificate that the relaxation is exact, None where it is not.

        Parameters
        ----------
        solution : Solution
            What `recover` returned.
        tolerance : float
            Relative size of what counts as zero.
        """
        check_origin(solution, self.original, "original problem")
        exact = Exactness(self.original, solution.values, solution.multipliers, tolerance)
        return exact if exact.verify() else None


@checked(problem=check_problem)
def shor(problem: Problem) -> ShorRelaxation:
    r"""Return the semidefinite relaxation of a quadratic problem, convex or not.

    .. math::
        \min_x\; \tfrac12 x^T P_0 x + q_0^T x + r_0 \;\;\text{s.t.}\;\;
        \tfrac12 x^T P_i x + q_i^T x + r_i \le 0
        \;\longrightarrow\;
        \min_{x, X}\; \tfrac12 \langle P_0, X\rangle + q_0^T x + r_0 \;\;\text{s.t.}\;\;
        \tfrac12 \langle P_i, X\rangle + q_i^T x + r_i \le 0,\;
        \begin{pmatrix} 1 & x^T \\ x & X \end{pmatrix} \succeq 0

    Every product of two variables becomes an entry of the moment matrix; that X is
    :math:`x x^T`, of rank 1, is dropped. Preserves all names, variables and affine terms.
    The feasible set grows, so the optimum is a bound: that of the Lagrange dual. It is the
    optimum itself for one quadratic constraint with an interior point (S-lemma) and for
    convex problems; `ShorRelaxation.exactness` proves it case by case. Class: any QCQP becomes
    SDP.

    A direction that only linear constraints bound can leave the relaxation unbounded where
    the objective curves downwards: state such bounds as quadratics too,
    ``square(x) <= 1`` beside ``-1 <= x <= 1``.

    Parameters
    ----------
    problem : Problem
        Continuous, in terms of degree at most 2.

    Returns
    -------
    ShorRelaxation

    Raises
    ------
    ClassError
        Integer variables, or a matrix variable declared symmetric.
    UnsupportedProblem
        A term is not quadratic; it is named.

    Examples
    --------
    >>> from optfair.methods.textbook.geometry import TrustRegion
    >>> p = TrustRegion(H=[[-2.0, 0.0], [0.0, 1.0]], g=[1.0, 1.0], radius=1.0)
    >>> relaxation = shor(p)
    >>> p.problem_class, relaxation.problem.problem_class
    (nonconvex QCQP, SDP)
    >>> s = relaxation.recover(relaxation.problem.solve())
    >>> s.is_optimal(1e-8), relaxation.exactness(s).verify()
    (True, verified)

    References
    ----------
    Shor: Quadratic Optimization Problems, Soviet Journal of Computer and Systems Sciences 25
    (1987).
    Boyd, Vandenberghe: Convex Optimization, Cambridge University Press (2004), appendix B.
    """
    return ShorRelaxation(problem, MomentRelaxation(quadratic_lagrangian(problem)))
