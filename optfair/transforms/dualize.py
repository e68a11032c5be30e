"""The Lagrange dual of a convex problem, with the names of the primal, and the way back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optfair.compile.conic_proof import ConicProof
from optfair.core.problem import Problem
from optfair.core.solution import Solution
from optfair.errors import ClassError, DeclarationError
from optfair.transforms.dual_problem import DualProblem
from optfair.transforms.recovery import check_origin, recovered

__all__ = ["Dualized", "dualize"]


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
    found = problem.problem_class
    if found.integer:
        raise ClassError(
            f"{', '.join(map(repr, sorted(problem.integers)))} is integer: there is no strong dual",
            f"the class is {found}",
            "relax_integrality(problem) first; the dual of the relaxation bounds the problem",
        )
    if not found.convex:
        blocking = [t.name for t in problem.terms if not t.evidence.problem_class.convex]
        raise ClassError(
            f"{', '.join(map(repr, blocking))} is not known to be convex: its dual may have a gap",
            f"the class is {found}",
            "shor(problem) gives the bound of the Lagrange dual of a nonconvex QCQP",
        )
    return Dualized(problem, DualProblem(problem))
