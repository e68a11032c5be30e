"""Which special algorithm fits a counterfactual: read off its terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.methods.cluster_counterfactuals.terms import BoundTerm, SideTerm

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["CELL", "HALF_SPACE", "ONE_QUADRATIC", "SEVERAL_QUADRATICS", "structure_loss"]

HALF_SPACE = "half-space"
CELL = "cell"
ONE_QUADRATIC = "one-quadratic"
SEVERAL_QUADRATICS = "several-quadratics"


def structure_loss(problem: Problem, name: str) -> str:
    """Return why a structure does not stand, empty if it does.

    - ``half-space``: one linear boundary, and bounds if the metric is diagonal;
    - ``cell``: any linear boundaries and bounds;
    - ``one-quadratic``: one boundary with curvature, and no bounds but fixed features;
    - ``several-quadratics``: boundaries of which one has curvature, and any bounds.
    """
    p: Any = problem
    if name not in (HALF_SPACE, CELL, ONE_QUADRATIC, SEVERAL_QUADRATICS):
        return f"a {p.title} does not have it"
    if p.data["distance"] != "l2":
        return f"its distance is {p.data['distance']!r}, not a squared distance"
    for integer in sorted(p.integers):
        return f"{integer!r} is integer"
    if set(p.objective) != {"distance"}:
        extra = sorted(set(p.objective) - {"distance"})
        return f"{extra[0]!r} is in the objective" if extra else "the distance was removed"
    if set(p.variables) != {"point"}:
        extra = sorted(set(p.variables) - {"point"})
        return f"{extra[0]!r} is a further variable"
    for t in p.constraints.values():
        if not isinstance(t, (SideTerm, BoundTerm)):
            return f"{t.name!r} is not a bound on a feature"
    return _shape_loss(p, name)


def _shape_loss(p: Any, name: str) -> str:
    sides = p.sides
    if not sides:
        return "no boundary is left"
    curved = [t for t in sides if not t.section.linear]
    lower, upper = p.limits
    bounded = bool((np.isfinite(lower) | np.isfinite(upper))[p.free].any())
    if name in (HALF_SPACE, CELL):
        if curved:
            return f"{curved[0].name!r} is curved"
        if name == CELL:
            return ""
        if len(sides) > 1:
            return f"there are {len(sides)} boundaries"
        matrix = p.metric is not None and p.metric.ndim == 2
        return "bounds and a metric matrix do not go together" if bounded and matrix else ""
    if name == ONE_QUADRATIC:
        if len(sides) > 1:
            return f"there are {len(sides)} boundaries"
        if bounded:
            return "a free feature is bounded"
        return "" if curved else f"{sides[0].name!r} is linear"
    if not curved:
        return "every boundary is linear"
    return "" if len(sides) > 1 or bounded else "there is one boundary only"
