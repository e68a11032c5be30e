"""Routes of the structures ``half-space``, ``one-quadratic`` and ``cell``: one exact projection each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import numpy as np

from optfair.errors import SolverFailure
from optfair.methods.cluster_counterfactuals.adapters.evidence import Setting, outcome, unreachable
from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import (
    nearest_in_bounded_half_space,
    nearest_in_half_space,
    nearest_in_polyhedron,
)
from optfair.methods.cluster_counterfactuals.algorithms.quadrics import nearest_behind
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.core.problem import Problem

__all__ = [
    "run_half_space",
    "run_secular",
    "run_voronoi",
]


# Route of the structure ``half-space``: the nearest point of one half-space, in closed form.


def run_half_space(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
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


# Route of the structure ``one-quadratic``: the secular equation, with its S-lemma certificate.


def run_secular(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
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


# Route of the structure ``cell``: the nearest point of a Voronoi cell, by active sets.


def run_voronoi(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Project the row on the half-spaces of all boundaries and on the bounds."""
    request.refuse_options(profile)
    begin = time.perf_counter()
    p = cast(ClusterCounterfactual, problem)
    s = Setting.of(p)
    m, f = len(s.sections), s.free.size
    normals = np.array([s.normal(k) for k in range(m)]).reshape(m, f)
    right = -np.array([section.level for section in s.sections])
    low, high = np.isfinite(s.lower), np.isfinite(s.upper)
    A = np.vstack([normals, -np.eye(f)[low], np.eye(f)[high]])
    b = np.concatenate([right, -s.lower[low], s.upper[high]])
    clock = begin, time.perf_counter()
    found = nearest_in_polyhedron(np.zeros((1, f)), A, b, metric=s.metric)
    weights = found.multipliers[0, :m]
    if not found.reached[0]:
        if not found.multipliers.any():
            raise SolverFailure("the active set did not settle", remedy="name another solver")
        raise unreachable(p, weights)
    u, held = found.points[0], found.multipliers[0, m:] > 0.0
    # a bound with a multiplier is met to the last digit
    u[low] = np.where(held[: low.sum()], s.lower[low], u[low])
    u[high] = np.where(held[low.sum() :], s.upper[high], u[high])
    return outcome(p, s.at(u), weights, clock)
