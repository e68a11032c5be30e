"""Findings on an unbounded problem: the ray, and which variables move along it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optfair.backends.rays import find_ray
from optfair.diagnosis.clock import Clock
from optfair.diagnosis.entries import listed, plain
from optfair.diagnosis.finding import Finding
from optfair.diagnosis.system import FeasiblePoint

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["unbounded_finding"]


def unbounded_finding(
    problem: Problem, point: FeasiblePoint | None, clock: Clock
) -> Finding | None:
    """Return the ray of an unbounded problem as a finding, None when there is none."""
    values = None if point is None else point.values
    ray = clock.run(lambda: find_ray(problem, values, clock.left))
    if ray is None:
        return None
    direction = ray.direction
    moving = {k: v for k, v in direction.items() if np.abs(v).max(initial=0.0) > 0.0}
    terms = ", ".join(map(repr, problem.objective))
    word = "falls" if problem.sense == "minimize" else "grows"
    lines = [f"along {listed(moving, nonzero=True)} it {word} by {abs(ray.rate):.6g} per step"]
    if point is None:
        lines.append("no feasible point is known: the problem is unbounded or infeasible")
    else:
        lines.append("the ray starts at a feasible point and never leaves the constraints")
    if problem.integers and ray.period:
        lines.append(f"integer variables are integer again after every {ray.period} steps of it")
    elif problem.integers:
        lines.append("integer variables were taken as continuous: they are not integer along it")
    names = ", ".join(map(repr, moving))
    whose = "the objective" if ray.period else "without integrality the objective"
    return Finding(
        "ray",
        f"{whose} ({terms}) improves without limit",
        tuple(lines),
        remedies=(f"bound {names}, or add a constraint on which they move together",),
        evidence=ray,
        numbers={
            "direction": plain(moving),
            "moving": list(moving),
            "rate": ray.rate,
            "point": None if point is None else plain(point.values),
        },
    )
