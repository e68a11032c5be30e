"""The semidefinite relaxation of a quadratic problem, and the way back to a point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.classify import constraint_term, objective_term
from optfair.core.problem import Declaration, Problem
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm
from optfair.transforms.exactness import Exactness
from optfair.transforms.lagrangian import LagrangianProof, QuadraticLagrangian, quadratic_lagrangian
from optfair.transforms.quadratic_point import best_point
from optfair.transforms.recovery import check_origin, recovered

__all__ = ["MomentRelaxation", "ShorRelaxation", "shor"]


class MomentRelaxation(Problem):
    """The semidefinite relaxation of a quadratic problem; made by `shor`."""

    def __init__(self, lagrangian: QuadraticLagrangian) -> None:
        original = lagrangian.problem
        self._set(title=f"Shor relaxation of {original.title or type(original).__name__}")
        super().__init__({"lagrangian": lagrangian})

    @property
    def moment(self) -> str:
        """Name of the moment matrix."""
        taken = self.data["lagrangian"].problem.variables
        number, name = 1, "moment"
        while name in taken:
            number += 1
            name = f"moment {number}"
        return name

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
        taken = set(original.constraints)
        for word, c in {
            "corner": M[0, 0] == 1,
            "mean": M[1:, 0] == x,
            "semidefinite": M >> 0,
        }.items():
            name = f"{moment} {word}"
            terms.append(constraint_term(name if name not in taken else f"{name} 2", c, names))
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
        found = Exactness(self.original, solution.values, solution.multipliers, tolerance)
        return found if found.verify() else None


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
