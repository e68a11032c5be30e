"""What rules on edits need of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.sparse_counterfactuals.choice_problem import ChoiceProblem

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["choice_target"]


def choice_target(problem: Problem, rule: Rule) -> ChoiceProblem:
    """Return the problem as one that chooses edits.

    Raises
    ------
    DeclarationError
        It chooses none.
    """
    if not isinstance(problem, ChoiceProblem):
        raise DeclarationError(
            f"{type(rule).__name__} is a rule on edits",
            f"this problem has the variables {', '.join(problem.variables)}",
            "use it with ActionPlan or MinimumEdits",
        )
    return problem
