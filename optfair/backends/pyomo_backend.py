"""Solvers that are reached through Pyomo: quadratic programs, convex or not."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.farkas import claimed_infeasible, unbounded
from optfair.backends.generic import ReportedBound
from optfair.backends.registry import licence_state, open_takers
from optfair.backends.request import Outcome
from optfair.compile.program import Program, program
from optfair.compile.pyomo import pyomo_values, to_pyomo
from optfair.errors import SizeLimited, SolverFailure, UnsupportedProblem

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Request
    from optfair.core.problem import Problem

_STATUS = {
    "optimal": "optimal",
    "maxTimeLimit": "time_limit",
    "userInterrupt": "interrupted",
    "infeasible": "infeasible",
    "unbounded": "unbounded",
    "infeasibleOrUnbounded": "infeasible_or_unbounded",
}


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Hand a problem over to a solver that Pyomo knows; the bound is the solver's word.

    Parameters
    ----------
    problem : Problem
        Linear and quadratic terms, convex or not; integer variables.
    profile : SolverProfile
        Facts about the solver.
    request : Request
        Options that mean the same for every solver.

    Raises
    ------
    UnsupportedProblem
        A term that is not quadratic, or an option the solver does not have.
    SizeLimited
        The licence at hand does not allow the size.
    Infeasible, Unbounded
        On the solver's word, without a certificate.
    """
    begin = time.perf_counter()
    options = request.solver_options(profile)
    rows = program(problem)
    _refuse_size(problem, profile, rows)
    model = to_pyomo(problem)
    pyo = _environment()
    solver = pyo.SolverFactory(profile.pyomo_name)
    if not solver.available(exception_flag=False):
        raise SolverFailure(
            f"Pyomo cannot reach {profile.name}",
            f"it calls it {profile.pyomo_name}",
            profile.install,
        )
    compiled_at = time.perf_counter()
    try:
        with _quiet():
            found = solver.solve(
                model, options=options, load_solutions=False, tee=request.verbose >= 2
            )
    except Exception as e:  # each library has its own tree of errors
        text = " ".join(str(e).split())[:300]
        if any(name in text for name in options):
            raise UnsupportedProblem(
                f"{profile.name} does not take these options", text, "correct or remove the option"
            ) from e
        raise SolverFailure(f"{profile.name} failed", text, "try another solver") from e
    solved_at = time.perf_counter()
    said = str(found.solver.termination_condition)
    word = _STATUS.get(said, said)
    if word == "infeasible":
        raise claimed_infeasible(problem, profile.name)
    if word in ("unbounded", "infeasible_or_unbounded"):
        raise unbounded(problem, profile.name)
    seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at}
    values: dict[str, Any] = {}
    if len(found.solution) and word in ("optimal", "time_limit", "interrupted"):
        with _quiet():
            model.solutions.load_from(found)
        values = pyomo_values(problem, model)
        values = {
            name: np.round(x) + 0.0 if name in problem.integers else x for name, x in values.items()
        }
    low, high = found.problem.lower_bound, found.problem.upper_bound
    bound = low if problem.sense == "minimize" else high
    proof = None
    if bound is not None and np.isfinite(float(bound)):
        proof = ReportedBound(problem, float(bound), profile.name)
    seconds["recover"] = time.perf_counter() - solved_at
    return Outcome(word, values, {}, proof, seconds)


def _environment() -> Any:
    import pyomo.environ as pyo  # to_pyomo has said so by now where it is missing

    return pyo


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold Pyomo's warning back that a limit was reached: the status says it."""
    loggers = [logging.getLogger(name) for name in ("pyomo", "pyomo.core")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _refuse_size(problem: Problem, profile: SolverProfile, rows: Program) -> None:
    """Raise `SizeLimited` when the licence at hand does not allow a problem of this size."""
    if not profile.limits or licence_state(profile).word != "size-limited":
        return
    found = {"variables": len(rows.lower), "constraints": len(rows.row_lower)}
    if problem.problem_class.name not in ("LP", "MILP"):
        found["variables with a quadratic term"] = found["variables"]
    over = [
        f"{found[what]} {what}, it allows {limit}"
        for what, limit in profile.limits.items()
        if found.get(what, 0) > limit
    ]
    if over:
        raise SizeLimited(
            f"the licence at hand of {profile.name} is limited in size",
            "the problem has " + "; ".join(over),
            f"get a licence ({profile.licence}), or use an open solver:"
            f" {', '.join(open_takers(problem)) or 'none takes this'}",
        )
