"""Route of the structure ``half-space``: the nearest point of one half-space, in closed form."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import numpy as np

from optfair.methods.cluster_counterfactuals.algorithms.half_space import (
    nearest_in_bounded_half_space,
    nearest_in_half_space,
)
from optfair.methods.cluster_counterfactuals.algorithms.refusal import unreachable
from optfair.methods.cluster_counterfactuals.algorithms.setting import Setting, outcome
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.core.problem import Problem

__all__ = ["run"]


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Project the row; between bounds, by the root of a piecewise linear function."""
    request.refuse_options(profile)
    begin = time.perf_counter()
    p = cast(ClusterCounterfactual, problem)
    s = Setting.of(p)
    row, v, right = np.zeros((1, s.free.size)), s.normal(0), -s.sections[0].level
    clock = begin, time.perf_counter()
    if s.bounded:
        found = nearest_in_bounded_half_space(row, v, right, s.lower, s.upper, weights=s.metric)
    else:
        found = nearest_in_half_space(row, v, right, metric=s.metric)
    if not found.reached[0]:
        raise unreachable(p, np.ones(1))
    return outcome(p, s.at(found.points[0]), found.multipliers[0], clock)
