"""Semidefinite programs on their blocks: our own interior-point method behind the generic route."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.backends.generic import run_generic
from optfair.backends.interior_point import interior_point
from optfair.backends.request import RawPoint
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import CLEAR

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["run"]


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form."""

    def short(form: ConicForm, x: Floats, z: Floats) -> float:
        """Return by what a pair falls short of half the tolerance; the rest is for named terms."""
        r, half = form.residuals(x, z), 0.5 * request.tolerance
        size = max(form.unit, abs(r.objective - form.offset))
        gap = abs(r.objective - r.bound) / size
        worst = max(gap, r.primal, r.rows)
        if worst > half or not np.isfinite(worst):
            return np.inf
        if r.unpaid is None:
            return 0.0
        far = CLEAR * max(1.0, r.unpaid.size, r.unpaid.natural)
        if r.unpaid.radius((half - gap) * size) >= far:
            return 0.0
        loose = r.complementarity > 0.05 * request.tolerance**0.5
        return worst + r.unpaid.here / size + (r.complementarity if loose else 0.0)

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        form = compiled.form
        left = options.pop("time_limit", np.inf)
        ended = interior_point(
            form.q,
            form.A,
            form.b,
            form.cones,
            deadline=time.perf_counter() + left,
            short=partial(short, form),
            log=print if log else None,
            **options,
        )
        return RawPoint(ended.status, ended.x, ended.z)

    return run_generic(problem, profile, request, call, quadratic=False)
