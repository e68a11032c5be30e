"""Drop integrality: a bound on every integer optimum, and the optimum where it is integral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair.core.problem import Problem
from optfair.core.solution import Solution
from optfair.errors import ClassError, DeclarationError, nearest
from optfair.transforms.recovery import RelaxationBound, check_origin, recovered

__all__ = ["RelaxedIntegrality", "relax_integrality", "relaxed"]

#: values this close to integers are rounded to them when a solution is recovered
INTEGER = 1e-6


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
        if name not in problem.integers:
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
