"""A feasible point from one that satisfies some of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.expressions import Values

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["repaired"]

# Halvings of the segment, and what counts as feasible.
HALVINGS, FEASIBLE = 40, 1e-9


def repaired(problem: Problem, outside: Values | None = None) -> dict[str, Any] | None:
    """Return the last feasible point on the way from a feasible one to the point given.

    The feasible set is convex, so the way leaves it once. A model that knows a feasible point of
    its own terms has a method ``feasible_point``; None when there is none, or when further
    constraints exclude it. Without a point to go to it stays at the feasible one.
    """
    known = getattr(problem, "feasible_point", None)
    inside: Values | None = None if known is None else known()
    if inside is None or _violation(problem, inside) > FEASIBLE:
        return None
    if outside is None:
        return {k: np.array(v) for k, v in inside.items()}

    def at(share: float) -> dict[str, Any]:
        return {k: inside[k] + share * (np.asarray(outside[k]) - inside[k]) for k in outside}

    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if _violation(problem, at(middle)) <= FEASIBLE:
            low = middle
        else:
            high = middle
    return at(low)


def _violation(problem: Problem, values: Values) -> float:
    return max((t.relative_violation(values) for t in problem.constraints.values()), default=0.0)
