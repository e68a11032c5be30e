"""What rules on maps need of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.group_counterfactuals.maps.map_problem import MapProblem

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["map_target"]


def map_target(problem: Problem, rule: Rule) -> MapProblem:
    """Return the problem as one of a map.

    Raises
    ------
    DeclarationError
        Its unknown is no map.
    """
    if not isinstance(problem, MapProblem):
        raise DeclarationError(
            f"{type(rule).__name__} is a rule on maps",
            f"this problem has the variables {', '.join(problem.variables)}",
            "use it with AffineMap, PSDMap, GaussianMap or another problem of a map",
        )
    return problem
