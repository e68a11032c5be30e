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
from optfair.backends.registry import open_takers, refuse_size
from optfair.backends.request import Outcome, refused_options, with_whole
from optfair.compile.export import pyomo_values, to_pyomo
from optfair.compile.program import program
from optfair.errors import SolverFailure

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
    size = {"variables": len(rows.lower), "constraints": len(rows.row_lower)}
    if problem.problem_class.name not in ("LP", "MILP"):
        size["variables with a quadratic term"] = size["variables"]
    refuse_size(profile, size, lambda: open_takers(problem))
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
            results = solver.solve(
                model, options=options, load_solutions=False, tee=request.verbose >= 2
            )
    except Exception as e:  # each library has its own tree of errors
        text = " ".join(str(e).split())[:300]
        if any(name in text for name in options):
            raise refused_options(profile.name, text) from e
        raise SolverFailure(f"{profile.name} failed", text, "try another solver") from e
    solved_at = time.perf_counter()
    said = str(results.solver.termination_condition)
    word = _STATUS.get(said, said)
    if word == "infeasible":
        raise claimed_infeasible(problem, profile.name)
    if word in ("unbounded", "infeasible_or_unbounded"):
        raise unbounded(problem, profile.name)
    seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at}
    values: dict[str, Any] = {}
    if len(results.solution) and word in ("optimal", "time_limit", "interrupted"):
        with _quiet():
            model.solutions.load_from(results)
        values = with_whole(problem, pyomo_values(problem, model))
    low, high = results.problem.lower_bound, results.problem.upper_bound
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
