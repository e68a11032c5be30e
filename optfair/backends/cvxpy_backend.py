"""Solvers that CVXPY wraps; results never touch the shared variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from cvxpy import settings as s
from cvxpy.reductions.solvers.solver_inverse_data import SolverInverseData

from optfair.backends.generic import RawPoint, run_generic
from optfair.errors import SolverFailure, UnsupportedProblem

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.conic import Compiled
    from optfair.core.problem import Problem

__all__ = ["run"]

_STATUS = {
    s.OPTIMAL: "optimal",
    s.OPTIMAL_INACCURATE: "inaccurate",
    s.USER_LIMIT: "time_limit",
    s.INFEASIBLE: "infeasible",
    s.INFEASIBLE_INACCURATE: "infeasible",
    s.UNBOUNDED: "unbounded",
    s.UNBOUNDED_INACCURATE: "unbounded",
    s.INFEASIBLE_OR_UNBOUNDED: "infeasible_or_unbounded",
}


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve through CVXPY's interface of the solver."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        return _call(compiled, profile, scale, options, log)

    return run_generic(problem, profile, request, call)


def _call(
    compiled: Compiled, profile: SolverProfile, scale: float, options: dict[str, Any], log: bool
) -> RawPoint:
    interface = compiled.chain.reductions[-1]
    data = dict(compiled.data)
    for part in ("c", "q", "P"):
        if data.get(part) is not None:
            data[part] = data[part] * scale
    try:
        result = compiled.chain.solve_via_data(
            compiled.cvxpy_problem, data, warm_start=False, verbose=log, solver_opts=options
        )
    except (TypeError, ValueError) as e:
        raise UnsupportedProblem(
            f"{profile.name} does not take these options", str(e), "correct or remove the option"
        ) from e
    except cp.error.SolverError as e:
        raise SolverFailure(f"{profile.name} failed", str(e), "try another solver") from e
    raw = interface.invert(result, SolverInverseData(compiled.inverse[-1], interface, options))
    status = _STATUS.get(raw.status, str(raw.status))
    z = compiled.dual_vector(raw)
    z = None if z is None else z / scale
    if raw.status not in s.SOLUTION_PRESENT or not raw.primal_vars:
        return RawPoint(status, z=z)
    return RawPoint(status, np.asarray(next(iter(raw.primal_vars.values())), dtype=float), z)
