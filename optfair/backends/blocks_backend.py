"""Semidefinite programs on their blocks: our own interior-point method behind the generic route."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.generic import run_generic
from optfair.backends.interior_point import interior_point
from optfair.backends.request import RawPoint

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem

__all__ = ["run"]


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        form = compiled.form
        left = options.pop("time_limit", np.inf)
        ended = interior_point(
            form.q,
            form.A,
            form.b,
            form.cones,
            deadline=time.perf_counter() + left,
            log=print if log else None,
            **options,
        )
        return RawPoint(ended.status, ended.x, ended.z)

    return run_generic(problem, profile, request, call, quadratic=False)
