"""Replace a constraint by a penalty on its violation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints import PSD, Equality, Inequality, Zero

from optfair.core.classify import objective_term
from optfair.core.problem import Problem, check_problem
from optfair.core.term import ConstraintTerm, ObjectiveTerm, family
from optfair.errors import DeclarationError, nearest
from optfair.numbers import check_positive, check_text, checked


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
    try:
        positive = np.ndim(weight) == 0 and bool(np.isfinite(float(weight)) and float(weight) > 0)
    except (TypeError, ValueError):
        positive = False
    if not positive:
        raise DeclarationError(f"weight {weight!r} is not positive", remedy="give a number above 0")
    hit = {k: t for k, t in problem.constraints.items() if k == name or family(k) == name}
    if not hit:
        raise DeclarationError(
            f"no constraint {name!r} to soften", remedy=nearest(name, problem.constraints)
        )
    added: dict[str, ObjectiveTerm] = {}
    sign = 1.0 if problem.sense == "minimize" else -1.0
    for term_name, term in hit.items():
        penalty = sign * weight * _penalty(term)
        label = _free_label(f"soft {term_name}", problem)
        goal = objective_term(label, penalty, problem.names, problem.sense)
        added[label] = replace(goal, parameters=term.parameters)
    kept = {k: t for k, t in problem.constraints.items() if k not in hit}
    return problem.with_terms({**problem.objective, **added}, kept)


def _free_label(label: str, problem: Problem) -> str:
    number, candidate = 1, label
    while candidate in problem.objective:
        number += 1
        candidate = f"{label} {number}"
    return candidate


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
