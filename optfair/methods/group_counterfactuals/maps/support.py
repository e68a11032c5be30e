"""Which features a map moves, as the binary variable of a rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from optfair.core.structure import Structure
from optfair.core.term import family

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["FREE", "MOVED", "SUPPORT", "covers", "support_refusal"]

#: Part of the name of the binary variable that counts features.
MOVED = "moved"
#: A feature that may still move or not, where 1 says that it may and 0 that it may not.
FREE = -1
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


def covers(choices: Sequence[tuple[int, ...]]) -> bool:
    """Whether no two parts of the choices overlap and their shares of all choices add up to 1."""
    fixed = np.array(choices)
    if not fixed.size:
        return False
    share = float(np.sum(0.5 ** (fixed != FREE).sum(axis=1)))
    apart = np.array(
        [((fixed != row) & (fixed != FREE) & (row != FREE)).any(axis=1) for row in fixed]
    )
    np.fill_diagonal(apart, True)
    return bool(apart.all() and abs(share - 1.0) <= 1e-12)
