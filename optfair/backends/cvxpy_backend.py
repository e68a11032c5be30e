"""Solvers that CVXPY wraps; results never touch the shared variables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from cvxpy import settings as s
from cvxpy.reductions.solvers.solver_inverse_data import SolverInverseData
from numpy.typing import NDArray

from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.request import Outcome, Request
from optfair.compile.conic import Compiled, ConicProof, compile_problem
from optfair.core.certificate import DualCheck
from optfair.core.expressions import Values
from optfair.errors import Infeasible, SolverFailure, Unbounded, UnsupportedProblem

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

__all__ = ["ReportedBound", "run"]

_TERMINATION = {
    s.OPTIMAL: "optimal",
    s.OPTIMAL_INACCURATE: "inaccurate",
    s.USER_LIMIT: "time_limit",
}


@dataclass(frozen=True)
class ReportedBound:
    """A bound of branch and bound: taken from the solver, it cannot be recomputed here."""

    bound: float
    source: str

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Return the reported bound."""
        return DualCheck(self.bound, 0.0)


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Compile through CVXPY's reductions, solve the data, and read the result by name."""
    begin = time.perf_counter()
    compiled = _compile(problem, profile)
    options = request.solver_options(profile)
    compiled_at = time.perf_counter()
    raw = _call(compiled, profile, options, request.verbose >= 2)
    solved_at = time.perf_counter()
    if raw.status in (s.INFEASIBLE, s.INFEASIBLE_INACCURATE):
        raise _infeasible(problem, profile, compiled, raw)
    if raw.status in (s.UNBOUNDED, s.UNBOUNDED_INACCURATE, s.INFEASIBLE_OR_UNBOUNDED):
        raise _unbounded(problem, profile, request)
    if raw.status not in s.SOLUTION_PRESENT or not raw.primal_vars:
        seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at}
        return Outcome(str(raw.status), {}, {}, None, seconds)
    x = np.asarray(next(iter(raw.primal_vars.values())), dtype=float)
    if x.size != compiled.form.q.size or not np.isfinite(x).all():
        seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at}
        return Outcome("no point", {}, {}, None, seconds)
    z = None if problem.integers else compiled.dual_vector(raw)
    values, multipliers = compiled.by_name(x, z)
    proof: Any = None
    if problem.integers:
        values = {k: np.round(v) if k in problem.integers else v for k, v in values.items()}
        proof = _reported(compiled, profile, raw)
    elif z is not None:
        proof = ConicProof(compiled, x, z)
    return Outcome(
        _TERMINATION.get(raw.status, str(raw.status)),
        values,
        multipliers,
        proof,
        {
            "compile": compiled_at - begin,
            "solve": solved_at - compiled_at,
            "recover": time.perf_counter() - solved_at,
        },
    )


def _compile(problem: Problem, profile: SolverProfile) -> Compiled:
    try:
        return compile_problem(problem, profile.cvxpy_name, {})
    except (cp.error.DCPError, cp.error.SolverError) as e:
        raise UnsupportedProblem(
            f"CVXPY cannot compile this problem for {profile.name}",
            str(e).strip().splitlines()[0],
            "see explain() for the class of each term",
        ) from e


def _call(compiled: Compiled, profile: SolverProfile, options: dict[str, Any], log: bool) -> Any:
    interface = compiled.chain.reductions[-1]
    scale = _objective_scale(compiled)
    data = dict(compiled.data)
    for part in ("c", "q", "P"):
        if data.get(part) is not None:
            data[part] = data[part] * scale
    try:
        result = compiled.chain.solve_via_data(
            compiled.cvxpy_problem,
            data,
            warm_start=False,
            verbose=log,
            solver_opts=options,
        )
    except (TypeError, ValueError) as e:
        raise UnsupportedProblem(
            f"{profile.name} does not take these options", str(e), "correct or remove the option"
        ) from e
    except cp.error.SolverError as e:
        raise SolverFailure(f"{profile.name} failed", str(e), "try another solver") from e
    raw = interface.invert(result, SolverInverseData(compiled.inverse[-1], interface, options))
    if raw.dual_vars:
        raw.dual_vars = {k: np.asarray(v) / scale for k, v in raw.dual_vars.items()}
    return raw


def _objective_scale(compiled: Compiled) -> float:
    """Return the power of two that brings the objective's largest coefficient near 1.

    Solvers hold dual residuals to absolute tolerances: costs of 1e11 make them fail, costs
    of 1e-5 make them careless. A power of two changes no digit.
    """
    form = compiled.form
    largest = max(np.abs(form.q).max(initial=0.0), np.abs(form.P.data).max(initial=0.0))
    return float(2.0 ** -np.round(np.log2(largest))) if largest > 0.0 else 1.0


def _reported(compiled: Compiled, profile: SolverProfile, raw: Any) -> ReportedBound | None:
    info = raw.attr.get(s.EXTRA_STATS)
    bound = getattr(info, profile.bound_attribute, None) if profile.bound_attribute else None
    if bound is None or not np.isfinite(bound):
        return None
    value = compiled.form.sign * (float(bound) / _objective_scale(compiled) + compiled.form.offset)
    return ReportedBound(value, f"branch and bound of {profile.name}, as reported")


def _infeasible(
    problem: Problem, profile: SolverProfile, compiled: Compiled, raw: Any
) -> Infeasible:
    z: NDArray[Any] | None = compiled.dual_vector(raw)
    proof = None if z is None else InfeasibilityProof(compiled, z)
    if proof is None or not proof.verify():
        return Infeasible(
            "no point satisfies the constraints",
            f"reported by {profile.name}, without a certificate that could be verified",
            "remove or soften constraints: " + ", ".join(map(repr, problem.constraints)),
        )
    names = proof.conflict()
    return Infeasible(
        f"these constraints exclude each other: {', '.join(map(repr, names))}",
        f"a Farkas certificate from {profile.name}, verified on the compiled data",
        f"remove or soften one of them, e.g. soften({names[-1]!r}, weight=1.0)" if names else "",
        certificate=proof,
        conflict=names,
    )


def _unbounded(problem: Problem, profile: SolverProfile, request: Request) -> Exception:
    """Tell unbounded from infeasible by dropping the objective."""
    feasibility = problem.with_terms({}, problem.constraints)
    run(feasibility, profile, request)  # raises Infeasible when that is what it is
    terms = ", ".join(map(repr, problem.objective))
    return Unbounded(
        f"the objective ({terms}) improves without limit",
        f"{profile.name} reports it unbounded, and the constraints alone have a solution",
        "bound the variables it depends on",
    )
