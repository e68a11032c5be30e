"""Route of the structure ``one-quadratic``: the secular equation, with its S-lemma certificate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import numpy as np

from optfair.methods.cluster_counterfactuals.algorithms.curved import nearest_behind
from optfair.methods.cluster_counterfactuals.algorithms.refusal import unreachable
from optfair.methods.cluster_counterfactuals.algorithms.setting import Setting, outcome
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual

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
    boundary = s.sections[0].boundary
    clock = begin, time.perf_counter()
    found = nearest_behind(s.start[None], boundary, s.free, metric=s.metric)
    if not found.reached[0]:
        raise unreachable(p, np.ones(1))
    return outcome(p, s.at(found.points[0] - s.start[s.free]), found.multipliers[0], clock)
