"""Relaxations: integrality dropped, a constraint that becomes a penalty, products that become moments; and the way back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints import PSD, Equality, Inequality, Zero

from optfair.core.certificate import DualCheck, DualProof, drift
from optfair.core.composition import constraint_term, objective_term
from optfair.core.expressions import Values
from optfair.core.labels import free_name
from optfair.core.problem import Declaration, Problem, check_problem
from optfair.core.solution import Solution, Status
from optfair.core.term import ConstraintTerm, ObjectiveTerm, of_family
from optfair.errors import ClassError, DeclarationError, nearest
from optfair.numbers import check_positive, check_text, checked
from optfair.solution.residuals import measure
from optfair.transforms.exactness import (
    Exactness,
    LagrangianProof,
    QuadraticLagrangian,
    best_point,
    quadratic_lagrangian,
)

# From values on the original problem to a solution of it, measured on its own terms.


@dataclass(frozen=True, eq=False)
class RelaxationBound:
    """The bound of a relaxation, recomputed from the relaxation's own proof.

    The relaxation has the same objective and a larger feasible set, so what bounds its
    optimum bounds the original's. The values must be those that were recovered from it.
    """

    problem: Problem
    relaxed: Solution
    values: Values

    @property
    def source(self) -> str:
        """Who stands behind the relaxation's bound."""
        return "nobody" if self.relaxed.proof is None else self.relaxed.proof.source

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the relaxation's bound."""
        proof = self.relaxed.proof
        if proof is None or proof.problem is not self.relaxed.problem:
            sign = 1.0 if self.problem.sense == "minimize" else -1.0
            return DualCheck(-sign * np.inf, np.inf)
        inner = proof.check(self.relaxed.values, self.relaxed.multipliers)
        return replace(inner, consistency=max(inner.consistency, drift(values, self.values)))


def check_origin(solution: Solution, problem: Problem, called: str) -> None:
    """Refuse a solution of another problem: its numbers mean nothing for this one."""
    if solution.problem is not problem:
        raise DeclarationError(
            f"this is not a solution of the {called}",
            "recover() reads solutions of its own .problem only",
            "solve that problem and hand in what it returns",
        )


def recovered(
    problem: Problem,
    solution: Solution,
    values: Mapping[str, Any],
    multipliers: Mapping[str, Any],
    proof: DualProof,
    transform: str,
    *,
    otherwise: str = "relaxed",
) -> Solution:
    """Return the solution of ``problem`` that these values are, measured on its terms.

    Parameters
    ----------
    problem : Problem
        The original.
    solution : Solution
        Of the transformed problem.
    values, multipliers : dict
        By the names of the original.
    proof : DualProof
        Of a bound on the original's optimum.
    transform : str
        What is added to the record.
    otherwise : str
        Termination when the residuals do not say optimal.
    """
    begin = time.perf_counter()
    tolerance = float(solution.options.get("tolerance", 1e-6))
    measured = measure(problem, values, multipliers, proof)
    sign = 1.0 if problem.sense == "minimize" else -1.0
    bound = -sign * np.inf if measured.check is None else measured.check.bound
    off = measured.against(measured.objective, bound)
    optimal = not off.above(tolerance)
    grade = off.grade(tolerance).by_default(solution.solver)
    status = Status(
        "optimal" if optimal else otherwise,
        "feasible" if off.feasibility <= tolerance else "infeasible",
        "feasible" if off.dual <= tolerance else "unknown",
        grade,
    )
    spent = solution.seconds.get("recover", 0.0) + time.perf_counter() - begin
    return Solution(
        problem=problem,
        solver=solution.solver,
        version=solution.version,
        status=status,
        objective=measured.objective,
        bound=bound,
        values=values,
        multipliers=multipliers,
        proof=proof,
        seconds={**solution.seconds, "recover": spent},
        options=solution.options,
        transforms=(*solution.transforms, transform),
        attempts=solution.attempts,
        progress=solution.progress,
        unit=measured.unit,
    )


# Drop integrality: a bound on every integer optimum, and the optimum where it is integral.

#: values this close to integers are rounded to them when a solution is recovered
INTEGER = 1e-6


def with_way_back(problem: Problem, original: Problem) -> str:
    """Return how a transformed problem prints, and what its solutions are good for."""
    return f"{problem!r}\n  recover      of a solution of .problem, for {original.title}"


@dataclass(frozen=True, eq=False)
class RelaxedIntegrality:
    """The relaxation with the way back.

    Attributes
    ----------
    original : Problem
        What was relaxed.
    problem : Problem
        The same terms; the relaxed variables are continuous.
    names : tuple of str
        Which variables were integer.
    """

    original: Problem
    problem: Problem
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return with_way_back(self.problem, self.original)

    def recover(self, solution: Solution) -> Solution:
        """Return a solution of the integer problem from one of `problem`.

        Its bound is the relaxation's, recomputed. Values within 1e-6 of integers are
        rounded; then the point is feasible, and optimal when the bound agrees with its
        objective. Fractional values are kept: the point is infeasible, and
        ``residuals().primal["NAME integer"]`` says by how much.
        """
        check_origin(solution, self.problem, "relaxation")
        values = {name: np.asarray(solution[name], dtype=float) for name in self.problem.variables}
        for name in self.names:
            near = np.round(values[name])
            if float(np.abs(values[name] - near).max(initial=0.0)) <= INTEGER:
                values[name] = near + 0.0  # -0.0 becomes 0.0
        proof = RelaxationBound(self.original, solution, values)
        return recovered(self.original, solution, values, {}, proof, "relax_integrality")


@checked(problem=check_problem)
def relax_integrality(problem: Problem, *names: str) -> RelaxedIntegrality:
    r"""Return the problem with integer variables made continuous.

    .. math::
        \min\{f(x) : x \in C,\; x \in \mathbb Z^n\} \;\ge\; \min\{f(x) : x \in C\}

    Preserves the objective, every constraint and all names. The feasible set grows, so a
    bound on the relaxation bounds the integer optimum, and a relaxed optimum that happens to
    be integral is the integer optimum. Class: MILP becomes LP, MIQP becomes QP, and so on,
    once no integer variable is left.

    Parameters
    ----------
    problem : Problem
        With integer variables.
    *names : str
        Which to relax; all of them by default.

    Returns
    -------
    RelaxedIntegrality

    Raises
    ------
    ClassError
        The problem has no integer variable.
    DeclarationError
        A name is not that of an integer variable.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(2, name="x", boolean=True)
    >>> p = of.from_cvxpy(cp.Problem(cp.Maximize(3 * x[0] + 2 * x[1]), [x[0] + x[1] <= 1.5]))
    >>> relaxed = relax_integrality(p)
    >>> p.problem_class, relaxed.problem.problem_class
    (MILP, LP)
    >>> s = relaxed.recover(relaxed.problem.solve())
    >>> round(s.bound, 6), s.status.primal, round(p.solve().objective, 6)
    (4.0, 'infeasible', 3.0)

    References
    ----------
    Wolsey: Integer Programming, Wiley (1998), section 2.2.
    """
    if not problem.integers:
        raise ClassError(
            "there is no integer variable to relax",
            f"the class is {problem.problem_class}",
            "solve it as it is",
        )
    for name in names:
        if not isinstance(name, str) or name not in problem.integers:
            raise DeclarationError(
                f"{name!r} is not an integer variable", remedy=nearest(name, problem.integers)
            )
    chosen = frozenset(names or problem.integers)
    relaxed: Any = problem._child(integers=problem.integers - chosen)
    return RelaxedIntegrality(problem, relaxed, tuple(sorted(chosen)))


def relaxed(problem: Problem, integers: frozenset[str] = frozenset()) -> Problem:
    """Return the problem with only these of its integer variables integer."""
    dropped = problem.integers - integers
    return relax_integrality(problem, *sorted(dropped)).problem if dropped else problem


# Replace a constraint by a penalty on its violation.


@checked(problem=check_problem, name=check_text, weight=check_positive)
def soften(problem: Problem, name: str, weight: float) -> Any:
    r"""Return the problem with a constraint replaced by a penalty.

    .. math::
        f(x) \le 0 \;\to\; + \lambda \sum_i \max(f_i(x), 0), \qquad
        f(x) = 0 \;\to\; + \lambda \sum_i |f_i(x)|

    Preserves all variables, the other constraints and their names. The feasible set grows and
    feasible points keep their objective, so the softened optimum bounds the original's. The
    penalty is exact: with a weight above the constraint's largest multiplier, the softened
    problem has the same solutions. There is no way back to compute: values of the softened
    problem are values of the original, by the same names. Class: that of the problem with the
    penalty's epigraph; a linear constraint stays linear.

    Parameters
    ----------
    problem : Problem
        What to soften.
    name : str
        Constraint to replace; a rule's name replaces all its parts.
    weight : float
        λ > 0.

    Returns
    -------
    Problem
        Its new objective terms are called ``soft NAME``.

    Raises
    ------
    DeclarationError
        Unknown name, weight that is not positive, a cone without a penalty.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1]), ["floor"])
    >>> p.soften("floor", weight=10.0).solve().objective.__round__(6)
    1.0
    """
    hit = of_family(problem.constraints, name)
    if not hit:
        raise DeclarationError(
            f"no constraint {name!r} to soften", remedy=nearest(name, problem.constraints)
        )
    added: dict[str, ObjectiveTerm] = {}
    sign = 1.0 if problem.sense == "minimize" else -1.0
    for term_name in hit:
        term = problem.constraints[term_name]
        penalty = sign * weight * _penalty(term)
        label = free_name(f"soft {term_name}", problem.objective)
        goal = objective_term(label, penalty, problem.names, problem.sense)
        added[label] = replace(goal, parameters=term.parameters)
    kept = {k: t for k, t in problem.constraints.items() if k not in hit}
    return problem.with_terms({**problem.objective, **added}, kept)


def _penalty(term: ConstraintTerm) -> Any:
    constraint = term.build()
    if isinstance(constraint, (Equality, Zero)):
        return cp.sum(cp.abs(constraint.expr))
    if isinstance(constraint, Inequality):
        return cp.sum(cp.pos(constraint.expr))
    if isinstance(constraint, PSD):
        return cp.pos(cp.lambda_max(-constraint.args[0]))
    raise DeclarationError(
        f"{term.name!r} has no penalty: it is {term.evidence.function} in {term.evidence.set}",
        remedy="write it as an inequality, e.g. norm(x) <= t, and soften that",
    )


class MomentRelaxation(Problem):
    """The semidefinite relaxation of a quadratic problem; made by `shor`."""

    unit_from_data = True

    def __init__(self, lagrangian: QuadraticLagrangian) -> None:
        original = lagrangian.problem
        self._set(title=f"Shor relaxation of {original.title}")
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

    def __repr__(self) -> str:
        return with_way_back(self.problem, self.original)

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
