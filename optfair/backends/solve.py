"""choose → compile → solve → recover → verify."""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from optfair.backends.policy import choose
from optfair.backends.profile import SolverProfile
from optfair.backends.request import Outcome, Request
from optfair.core.parameters import check_parameters
from optfair.core.solution import Solution, Status
from optfair.errors import (
    Infeasible,
    OptfairError,
    SizeLimited,
    SolverFailure,
    UnsupportedProblem,
)
from optfair.proofs.grade import reported
from optfair.solution.residuals import Residuals, measure

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["solve", "solve_as_asked"]

logger = logging.getLogger("optfair")

# Stops that leave an incumbent worth returning although it is not proved optimal.
EARLY = ("time_limit", "interrupted")


class Adapter(Protocol):
    """A module that runs solvers: ``run(problem, profile, request)``."""

    def run(self, problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
        """Compile, solve and recover."""


def solve(
    problem: Problem,
    solver: str | None = None,
    *,
    tolerance: float = 1e-7,
    time_limit: float | None = None,
    threads: int = 1,
    seed: int | None = None,
    verbose: int = 0,
    warm_start: Solution | None = None,
    options: Mapping[str, Any] | None = None,
    exact: bool = False,
) -> Solution:
    """Solve a declared problem and verify the result on it.

    Parameters
    ----------
    problem : Problem
        What to solve.
    solver : str, optional
        Name of a solver; by default the policy decides from the structure and the class of
        the problem, and falls back to the next open solver when verification fails.
    tolerance : float
        Relative residuals (feasibility, dual, gap) a result must meet to be returned.
    time_limit : float, optional
        Wall seconds over the whole call; the incumbent is returned with its gap.
    threads : int
        Threads the solver may use.
    seed : int, optional
        Seed of the solver.
    verbose : {0, 1, 2}
        Silent, progress, or the solver's log.
    warm_start : Solution, optional
        A solution of a problem like this one; ``solution.options`` says whether the solver
        could use it.
    options : dict, optional
        Further options by the solver's own names.
    exact : bool
        Of a linear program, solve an optimal basis in fractions: ``solution.exact`` has the
        objective and the values to the last digit, for the declared floats, and its `save`
        writes a proof without any gap.

    Returns
    -------
    Solution
        With verified residuals; ``status.termination`` says when it stopped early. A local
        solver, which must be named, leaves a feasible point that is "local", without a bound.

    Raises
    ------
    UnsupportedProblem, NotInstalled, NotLicensed, SizeLimited
        Before anything is solved.
    Infeasible, Unbounded
        With a certificate that verifies.
    SolverFailure
        No result passed verification, or nothing proves what a solver claims.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]))
    >>> s = of.solve(p)
    >>> s.solver, round(s.objective, 9)
    ('highs', 2.0)
    """
    begin = time.perf_counter()
    request = Request(
        tolerance, time_limit, threads, seed, verbose, warm_start, dict(options or {}), begin
    )

    def ask(stated: Problem, *, by_default: bool = False) -> Solution:
        if by_default:
            return solve_as_asked(stated, None, replace(request, options={}, warm_start=None))
        return solve_as_asked(stated, solver, request)

    try:
        found: Solution = problem.solved_by(ask)
    except Infeasible as e:
        raise problem.explained(e) from None
    except SolverFailure as e:
        raise _explained(problem, e) from None
    if exact:
        from optfair.backends.exact import exactly

        left = None if time_limit is None else max(1e-3, request.seconds_left)
        return exactly(found, left)
    return found


def _explained(problem: Problem, e: SolverFailure) -> OptfairError:
    """Return a claim of infeasibility with what the model knows: a proof where it has one."""
    if e.claim != "infeasible":
        return e
    found = problem.explained(Infeasible(e.cause, e.evidence, e.remedy))
    if found.certificate is not None:
        return found
    said = found.cause if found.cause == e.cause else f"{found.cause}; {e.cause}"
    more = {"claim": e.claim, "claimed_by": e.claimed_by}
    return SolverFailure(said, found.evidence, found.remedy, **more)


def solve_as_asked(problem: Problem, solver: str | None, request: Request) -> Solution:
    """Do what `solve` does, and leave an infeasible problem unexplained.

    For routes that solve many problems, of which infeasible ones are expected.
    """
    begin = time.perf_counter()
    check_parameters(problem.terms)
    candidates = choose(problem, solver)
    spent = {"choose": time.perf_counter() - begin}
    attempts: list[str] = []
    claimed: SolverFailure | None = None
    failures: list[OptfairError] = []
    for i, profile in enumerate(candidates):
        if i and time.perf_counter() > request.deadline:
            break
        tried = time.perf_counter()
        if i:
            spent["attempts"] = tried - begin - sum(v for k, v in spent.items() if k != "attempts")
        adapter = _adapter(profile)
        spent["import"] = spent.get("import", 0.0) + time.perf_counter() - tried
        try:
            outcome = adapter.run(problem, profile, request)
        except (UnsupportedProblem, SolverFailure, SizeLimited) as e:
            if isinstance(e, SolverFailure) and e.claim:
                if claimed is not None and claimed.claim == e.claim:
                    raise claimed from None  # a third would say the same without proof
                claimed = claimed or e  # one solver's word: ask the next
            failures.append(e)
            attempts.append(f"{profile.name}: {e.cause}")
            continue
        solution, complaints = _verified(problem, profile, request, outcome, spent, attempts)
        if not complaints:
            return solution
        reason = f"{profile.name} ({outcome.termination}): {'; '.join(complaints)}"
        logger.info("result rejected, %s", reason)
        attempts.append(reason)
        if outcome.termination == "interrupted":
            raise KeyboardInterrupt(reason)  # stopped by hand without an incumbent
    if claimed is not None:
        raise claimed
    refused = all(isinstance(e, (UnsupportedProblem, SizeLimited)) for e in failures)
    if len(failures) == len(candidates) and (refused or len(failures) == 1):
        raise failures[0]  # nothing was solved: the default's reason says most
    if time.perf_counter() > request.deadline:
        raise SolverFailure(
            f"the time limit of {request.time_limit:g} s came before a feasible point",
            " | ".join(attempts),
            "give more time, or soften constraints so that a first point is easy",
        )
    raise SolverFailure(
        f"no result passed verification at tolerance {request.tolerance:g}",
        " | ".join(attempts),
        "ask for a larger tolerance, try another solver, or rescale the data",
    )


def _adapter(profile: SolverProfile) -> Adapter:
    """Import what runs the solver, and the solver's own library, which takes longer."""
    if profile.cvxpy_name and profile.module:
        with contextlib.suppress(ImportError):  # the probe says what is missing
            importlib.import_module(profile.module)
    if profile.via == "structured":
        module = f"optfair.backends.structured.{profile.route}"
    else:
        module = f"optfair.backends.{profile.via}_backend"
    return cast(Adapter, importlib.import_module(module))


def _verified(
    problem: Problem,
    profile: SolverProfile,
    request: Request,
    outcome: Outcome,
    spent: dict[str, float],
    attempts: list[str],
) -> tuple[Solution, tuple[str, ...]]:
    """Build the solution, recompute its residuals, and say what is wrong with it."""
    begin = time.perf_counter()
    found = measure(problem, outcome.values, outcome.multipliers, outcome.proof)
    sign = 1.0 if problem.sense == "minimize" else -1.0
    objective = found.objective if outcome.values else np.nan
    bound = -sign * np.inf if found.check is None else found.check.bound
    off = found.against(objective, bound)
    above, grade = off.above(request.tolerance), off.grade(request.tolerance)
    if above and outcome.termination != "local":
        # what passes by the sizes that solvers measure by is an answer, on the solver's word
        loose = found.against(objective, bound, loose=True)
        if not loose.above(request.tolerance):
            off, grade, above = loose, reported(profile.name, "; ".join(above)), ()
    if grade.word == "reported" and grade.by in ("", "nobody"):
        grade = reported(profile.name, grade.because)
    feasible = off.feasibility <= request.tolerance
    termination = outcome.termination
    complaints: tuple[str, ...] = ()
    if termination == "local":
        # no bound was asked of it: what it left must hold, and is never called optimal
        complaints = _local_complaints(off, request.tolerance, outcome)
    elif not above:
        termination = "optimal"
    elif termination == "time_limit" and request.time_limit is None:
        above = above if outcome.values else ("it left no point",)
        complaints = ("it stopped at a limit of its own before it was done", *above)
    elif not (termination in EARLY and feasible):
        complaints = above if outcome.values else ("it left no point",)
    status = Status(
        termination,
        "feasible" if feasible else "infeasible",
        "feasible" if off.dual <= request.tolerance else "unknown",
        grade,
    )
    solution = Solution(
        problem=problem,
        solver=profile.name,
        version=profile.version,
        status=status,
        objective=objective,
        bound=bound,
        values=outcome.values,
        multipliers=outcome.multipliers,
        proof=outcome.proof,
        seconds={**spent, **outcome.seconds, "verify": time.perf_counter() - begin},
        options=_asked(request, profile, outcome),
        attempts=tuple(attempts),
        progress=outcome.progress,
        unit=found.unit,
    )
    return solution, complaints


def _local_complaints(off: Residuals, tolerance: float, outcome: Outcome) -> tuple[str, ...]:
    if not outcome.values:
        return ("it left no point",)
    return tuple(
        f"{name!r} is violated by {v:.1e}" for name, v in off.primal.items() if not v <= tolerance
    )


def _asked(request: Request, profile: SolverProfile, outcome: Outcome) -> dict[str, Any]:
    """Return the options on record, and whether a warm start was used."""
    asked = request.to_dict()
    if request.warm_start is not None:
        cold = f"not used: {profile.name} starts anew"
        asked["warm_start"] = outcome.warm_start or ("used" if profile.warm_start else cold)
    return asked
