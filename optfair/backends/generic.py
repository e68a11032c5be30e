"""What every solver of compiled cone programs shares: compile, call, read back, tell failures apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.backends.farkas import InfeasibilityProof, carriers
from optfair.backends.request import Outcome, Request
from optfair.compile.conic import Compiled, ConicProof, compile_problem
from optfair.core.certificate import DualCheck
from optfair.core.expressions import Values
from optfair.errors import Infeasible, Unbounded

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["RawPoint", "ReportedBound", "run_generic"]


@dataclass(frozen=True, eq=False)
class RawPoint:
    """What a solver leaves on the compiled cone program.

    Attributes
    ----------
    status : str
        optimal, inaccurate, time_limit, interrupted, infeasible, unbounded,
        infeasible_or_unbounded, or the solver's own word for a failure.
    x : array or None
        Primal point.
    z : array or None
        Multipliers, or a Farkas vector when infeasible.
    bound : float or None
        Bound of branch and bound on the compiled objective, offset included.
    """

    status: str
    x: Floats | None = None
    z: Floats | None = None
    bound: float | None = None


# (compiled problem, scale of the objective, options by the solver's names, whether to log)
Call = Callable[[Compiled, float, dict[str, Any], bool], RawPoint]


@dataclass(frozen=True)
class ReportedBound:
    """A bound of branch and bound: taken from the solver, it cannot be recomputed here."""

    problem: Problem
    bound: float
    source: str

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Return the reported bound."""
        return DualCheck(self.bound, 0.0)


def run_generic(problem: Problem, profile: SolverProfile, request: Request, call: Call) -> Outcome:
    """Compile through CVXPY's reductions, let ``call`` solve, and read the result by name."""
    begin = time.perf_counter()
    compiled = compile_problem(problem, profile.cvxpy_name, {})
    options = request.solver_options(profile)
    compiled_at = time.perf_counter()
    raw = call(
        compiled, _objective_scale(compiled, profile.objective_scale), options, request.verbose >= 2
    )
    solved_at = time.perf_counter()
    seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at}
    if raw.status == "infeasible":
        raise _infeasible(problem, profile, compiled, raw)
    if raw.status in ("unbounded", "infeasible_or_unbounded"):
        raise _unbounded(problem, profile, request, call)
    x = raw.x
    if x is None or x.size != compiled.form.q.size or not np.isfinite(x).all():
        return Outcome(raw.status, {}, {}, None, seconds)
    # an integer variable that no term uses leaves a continuous program
    mixed = any(name in compiled.form.columns for name in problem.integers)
    z = None if mixed else raw.z
    values, multipliers = compiled.by_name(x, z)
    proof: Any = None
    if mixed:
        # + 0.0 turns -0.0 into 0.0
        values = {k: np.round(v) + 0.0 if k in problem.integers else v for k, v in values.items()}
        if raw.bound is not None and np.isfinite(raw.bound):
            source = f"branch and bound of {profile.name}, as reported"
            proof = ReportedBound(problem, compiled.form.sign * raw.bound, source)
    elif z is not None and z.size == compiled.form.b.size:
        proof = ConicProof(problem, compiled, x, z)
    seconds["recover"] = time.perf_counter() - solved_at
    return Outcome(raw.status, values, multipliers, proof, seconds)


def _objective_scale(compiled: Compiled, which: str) -> float:
    """Return the power of two that brings the objective's largest or typical coefficient near 1.

    Solvers hold dual residuals to absolute tolerances: costs of 1e11 make them fail, costs
    of 1e-5 make them careless. A simplex method must not lose small costs under one large
    one, so its typical coefficient counts; an interior-point method wants nothing large. A
    power of two changes no digit.
    """
    form = compiled.form
    sizes = np.abs(np.concatenate([form.q, form.P.data]))
    sizes = sizes[sizes > 0.0]
    if not sizes.size:
        return 1.0
    size = np.median(sizes) if which == "typical" else sizes.max()
    return float(2.0 ** -np.round(np.log2(size)))


def _infeasible(
    problem: Problem, profile: SolverProfile, compiled: Compiled, raw: RawPoint
) -> Infeasible:
    proof = None
    if raw.z is not None and raw.z.size == compiled.form.b.size:
        multipliers = compiled.by_name(np.zeros(compiled.form.q.size), raw.z)[1]
        proof = InfeasibilityProof(compiled.form, raw.z, carriers(multipliers))
    if proof is None or not proof.verify():
        return Infeasible(
            "no point satisfies the constraints",
            f"reported by {profile.name}, without a certificate that could be verified",
            "remove or soften constraints: " + ", ".join(map(repr, problem.constraints)),
        )
    names = proof.conflict
    return Infeasible(
        f"these constraints exclude each other: {', '.join(map(repr, names))}",
        f"a Farkas certificate from {profile.name}, verified on the compiled data",
        f"remove or soften one of them, e.g. soften({names[-1]!r}, weight=1.0)" if names else "",
        certificate=proof,
        conflict=names,
    )


def _unbounded(problem: Problem, profile: SolverProfile, request: Request, call: Call) -> Unbounded:
    """Tell unbounded from infeasible by dropping the objective."""
    feasibility = problem.with_terms({}, problem.constraints)
    run_generic(feasibility, profile, request, call)  # raises Infeasible when it is that
    terms = ", ".join(map(repr, problem.objective))
    return Unbounded(
        f"the objective ({terms}) improves without limit",
        f"{profile.name} reports it unbounded, and the constraints alone have a solution",
        "bound the variables it depends on",
    )
