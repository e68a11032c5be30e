"""Route of the structure ``one-quadratic``: the secular equation, with its S-lemma certificate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import numpy as np

from optfair.backends.structured.projection.refusal import unreachable
from optfair.backends.structured.projection.secular import Pencil, nearest_in_quadratic
from optfair.backends.structured.projection.setting import Setting, outcome
from optfair.models.cluster_counterfactual import ClusterCounterfactual

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.core.problem import Problem

__all__ = ["run"]


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the secular equation on the interval where the Lagrangian is convex."""
    request.refuse_options(profile)
    begin = time.perf_counter()
    p = cast(ClusterCounterfactual, problem)
    s = Setting.of(p)
    section = s.sections[0]
    pencil = Pencil.of(section.D, s.metric, noise=section.noise)
    clock = begin, time.perf_counter()
    found = nearest_in_quadratic(
        np.zeros((1, s.free.size)),
        section.slope[None],
        np.array([section.level]),
        pencil,
        noise=section.slope_noise,
    )
    if not found.reached[0]:
        raise unreachable(p, np.ones(1))
    return outcome(p, s, found.points[0], found.multipliers[0], clock)
