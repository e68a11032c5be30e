"""choose → compile → solve → recover → verify."""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from optfair import registry
from optfair.backends.policy import choose
from optfair.backends.profile import SolverProfile
from optfair.backends.request import Outcome, Request
from optfair.core.expressions import check_parameters
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


class Run(Protocol):
    """What every adapter has: it compiles, solves and recovers."""

    def __call__(self, problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
        """Return what came of it."""


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
    isolate: bool = False,
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
    isolate : bool
        Run solvers that CVXPY wraps in a process of their own: one that crashes or hangs is a
        failure of that solver, and the next is asked. A solver without a clock of its own gets
        such a process whenever there is a time limit.
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
        tolerance,
        time_limit,
        threads,
        seed,
        verbose,
        warm_start,
        dict(options or {}),
        begin,
        isolate=isolate,
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
    more: dict[str, Any] = {"claim": e.claim, "claimed_by": e.claimed_by, "solution": e.solution}
    return SolverFailure(said, found.evidence, found.remedy, **more)


def solve_as_asked(problem: Problem, solver: str | None, request: Request) -> Solution:
    """Do what `solve` does, and leave an infeasible problem unexplained.

    For routes that solve many problems, of which infeasible ones are expected.
    """
    begin = time.perf_counter()
    check_parameters(problem.terms)
    candidates = choose(problem, solver)
    search = _Search(problem, request, len(candidates), begin)
    search.spent["choose"] = time.perf_counter() - begin
    try:
        return _asked_in_turn(search, candidates)
    except KeyboardInterrupt:
        if search.unproved is None:
            raise
        return search.answer  # stopped while a proof was looked for


def _asked_in_turn(search: _Search, candidates: Sequence[SolverProfile]) -> Solution:
    """Ask one solver after the other, each for more where its result is rejected."""
    request, problem = search.request, search.problem
    for i, candidate in enumerate(candidates):
        left = len(candidates) - i - 1
        outcome = search.ask(candidate, request, left)
        if search.settled(outcome):
            return search.answer
        for retry in candidate.retry if outcome != "nothing" else ():
            if retry.classes and problem.problem_class.name not in retry.classes:
                continue
            if search.settled(search.ask(candidate, request.retried(retry), left)):
                return search.answer
    return search.give_up()


# Asks after an answer that nothing proves yet, in the hope of one with a proof.
HOPE = 2
# Share of the time that is left which a solver may take when others are to be asked after it.
PATIENCE = 0.6


class _Search:
    """Solvers asked one after the other, and the best of what they left.

    Parameters
    ----------
    problem, request
        What is to be solved, and how.
    candidates : int
        How many solvers there are.
    begin : float
        ``time.perf_counter()`` when they were looked for.
    """

    def __init__(self, problem: Problem, request: Request, candidates: int, begin: float) -> None:
        self.problem, self.request, self.candidates = problem, request, candidates
        self.spent: dict[str, float] = {}
        self.begin = begin
        self.attempts: list[str] = []
        self.claimed: SolverFailure | None = None
        self.failures: list[OptfairError] = []
        self.best: tuple[tuple[Any, ...], Solution] | None = None
        self.unproved: Solution | None = None
        self.hope, self.asked = HOPE, 0

    def settled(self, outcome: Solution | str) -> bool:
        """Whether there is an answer: proved, or after as many asks as a proof is worth."""
        convex = self.problem.problem_class.convex and not self.problem.integers
        if isinstance(outcome, Solution):
            provable = convex and outcome.status.termination == "optimal"
            if outcome.grade.sound or not provable or self.unproved is None:
                self.unproved = outcome
            if outcome.grade.sound or not provable:
                return True
        if self.unproved is None:
            return False
        self.hope -= 1
        return self.hope < 0

    @property
    def answer(self) -> Solution:
        """The answer, with all attempts on record."""
        if self.unproved is None:
            return self.give_up()
        return replace(self.unproved, attempts=tuple(self.attempts))

    def ask(self, profile: SolverProfile, request: Request, left: int) -> Solution | str:
        """Ask a solver; return what it solved, "rejected" for another result, else "nothing"."""
        tried = time.perf_counter()
        if self.asked:
            if tried > self.request.deadline:
                return "nothing"
            before = sum(v for k, v in self.spent.items() if k != "attempts")
            self.spent["attempts"] = tried - self.begin - before
        self.asked += 1
        split = left > 0 and profile.via != "structured"  # these know their problem best
        if split:
            request = request.until(tried + PATIENCE * (self.request.deadline - tried))
        run = _adapter(profile)
        self.spent["import"] = self.spent.get("import", 0.0) + time.perf_counter() - tried
        try:
            outcome = run(self.problem, profile, request)
        except (UnsupportedProblem, SolverFailure, SizeLimited) as e:
            if isinstance(e, SolverFailure) and e.claim:
                known = self.claimed is not None and self.claimed.claim == e.claim
                if self.claimed is not None and known and self.unproved is None:
                    raise self.claimed from None  # a third would say the same without proof
                self.claimed = self.claimed or e  # one solver's word: ask the next
            self.failures.append(e)
            self.attempts.append(f"{profile.name}: {e.cause}")
            return "nothing"
        solution, off, complaints = _verified(
            self.problem, profile, request, outcome, self.spent, self.attempts
        )
        early = outcome.termination == "time_limit" and not complaints
        if early and solution.status.termination != "optimal" and split:
            complaints = ("its share of the time was over",)
        if not complaints:
            return solution
        self._keep(solution, off)
        reason = f"{profile.name} ({outcome.termination}): {'; '.join(complaints)}"
        logger.info("result rejected, %s", reason)
        self.attempts.append(reason)
        if outcome.termination == "interrupted":
            raise KeyboardInterrupt(reason)  # stopped by hand without an incumbent
        return "rejected"

    def _keep(self, solution: Solution, off: Residuals) -> None:
        """Keep the best attempt: feasible, then with a bound that counts, then by its gap."""
        if not solution.values or not np.isfinite(solution.objective):
            return
        worst = max(off.feasibility, off.rows)
        feasible = worst <= self.request.tolerance
        gap = off.gap if np.isfinite(off.gap) else np.inf
        grade = off.grade(max(self.request.tolerance, 2.0 * gap))
        key = (not feasible, 0.0 if feasible else worst, not grade.sound, gap)
        if self.best is None or key < self.best[0]:
            self.best = (key, solution)

    def give_up(self) -> Solution:
        """Return what nothing proves, the best attempt where time was up, else raise."""
        if self.unproved is not None:
            return self.answer
        request, best = self.request, None if self.best is None else self.best[1]
        if self.claimed is not None:
            self.claimed.solution = best
            raise self.claimed
        late = time.perf_counter() > request.deadline
        if late and best is not None and self.best is not None and not self.best[0][0]:
            status = replace(best.status, termination="time_limit")
            return replace(best, status=status, attempts=tuple(self.attempts))
        refused = all(isinstance(e, (UnsupportedProblem, SizeLimited)) for e in self.failures)
        if len(self.failures) == self.candidates and (refused or len(self.failures) == 1):
            raise self.failures[0]  # nothing was solved: the default's reason says most
        if late:
            raise SolverFailure(
                f"the time limit of {request.time_limit:g} s came before a feasible point",
                " | ".join(self.attempts),
                "give more time, or soften constraints so that a first point is easy",
                solution=best,
            )
        raise SolverFailure(
            f"no result passed verification at tolerance {request.tolerance:g}",
            " | ".join(self.attempts),
            "ask for a larger tolerance, try another solver, or rescale the data; the best"
            " attempt is the solution of this error",
            solution=best,
        )


def _adapter(profile: SolverProfile) -> Run:
    """Import what runs the solver, and the solver's own library, which takes longer."""
    if profile.cvxpy_name and profile.module:
        with contextlib.suppress(ImportError):  # the probe says what is missing
            importlib.import_module(profile.module)
    if profile.via == "structured":
        return registry.route(profile.route)
    run: Run = importlib.import_module(f"optfair.backends.{profile.via}_backend").run
    return run


def _verified(
    problem: Problem,
    profile: SolverProfile,
    request: Request,
    outcome: Outcome,
    spent: dict[str, float],
    attempts: list[str],
) -> tuple[Solution, Residuals, tuple[str, ...]]:
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
    return solution, off, complaints


def _local_complaints(off: Residuals, tolerance: float, outcome: Outcome) -> tuple[str, ...]:
    if not outcome.values:
        return ("it left no point",)
    return tuple(
        f"{name!r} is violated by {v:.1e}" for name, v in off.primal.items() if not v <= tolerance
    )


def _asked(request: Request, profile: SolverProfile, outcome: Outcome) -> dict[str, Any]:
    """Return the options on record, and whether a warm start was used."""
    asked = {**request.to_dict(), **outcome.iterations}
    if outcome.kept:
        asked["kept"] = outcome.kept
    if request.warm_start is not None:
        cold = f"not used: {profile.name} starts anew"
        asked["warm_start"] = outcome.warm_start or ("used" if profile.warm_start else cold)
    return asked
