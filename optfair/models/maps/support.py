"""Which features a map moves, as the binary variable of a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optfair.core.structure import Structure
from optfair.core.term import family

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["MOVED", "SUPPORT", "support_refusal"]

#: Part of the name of the binary variable that counts features.
MOVED = "moved"
#: A convex problem but for one binary variable that says which features move.
SUPPORT = Structure("feature-support", (), None, "")


def support_refusal(problem: Problem) -> str:
    """Return why a problem is not convex but for the features that move, else an empty string."""
    if len(problem.integers) != 1:
        return f"it has {len(problem.integers)} integer variables and not one"
    if problem.sense != "minimize":
        return "its objective is maximised"
    (name,) = problem.integers
    count = f"{family(name)}.count"
    if not name.endswith(f".{MOVED}") or count not in problem.constraints:
        return f"{name!r} does not count features"
    for term in problem.terms:
        if not term.evidence.problem_class.convex:
            return f"{term.name!r} is not known to be convex"
    return ""
