"""choose → compile → solve → recover → verify."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from optfair.backends.exact import exactly
from optfair.backends.integer_programs import pooled, with_cuts
from optfair.backends.isolation import one_thread, watched
from optfair.backends.registry import choose, explained, profiles
from optfair.backends.repeat import again, remember
from optfair.backends.request import Request
from optfair.backends.search import Search
from optfair.core.adopt import AdoptedProblem
from optfair.core.expressions import check_parameters
from optfair.core.problem import Problem, check_problem
from optfair.core.solution import Solution
from optfair.errors import DataError, DeclarationError, Infeasible, SolverFailure, shown
from optfair.numbers import (
    check_callable,
    check_count,
    check_flag,
    check_mapping,
    check_text,
    checked,
)


def _named(value: Any, what: str) -> Mapping[str, Any]:
    """Return a mapping from names."""
    for name in check_mapping(value, what):
        if not isinstance(name, str):
            raise DataError(f"{what} has the name {shown(name)}", remedy="give a text for each")
    return dict(value)


@checked(
    problem=check_problem,
    solver=check_text,
    options=_named,
    isolate=check_flag,
    exact=check_flag,
    write_back=check_flag,
    cuts=check_callable,
    solutions=check_count,
)
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
    write_back: bool = False,
    cuts: Callable[[Mapping[str, Any]], Any] | None = None,
    solutions: int | None = None,
) -> Solution:
    """Solve a declared problem and verify the result on it.

    Parameters
    ----------
    problem : Problem or cvxpy.Problem
        What to solve; one of CVXPY is adopted.
    solver : str, optional
        Name of a solver; by default the policy decides from the structure and the class of
        the problem, and falls back to the next open solver when verification fails. A solver of
        convex problems takes log-log convex and quasiconvex ones as well, in other words.
    tolerance : float
        Relative residuals (feasibility, dual, gap) a result must meet to be returned.
    time_limit : float, optional
        Wall seconds over the whole call; the incumbent is returned with its gap.
    threads : int
        Threads the solver may use.
    seed : int, optional
        Seed of the solver.
    verbose : {0, 1, 2} or bool
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
    write_back : bool
        Of an adopted problem, also set ``value``, ``dual_value`` and ``status`` of CVXPY's own
        variables, constraints and problem.
    cuts : callable, optional
        Rows that are too many to write: values by name -> constraints on the problem's variables
        which the point breaks (one, a list or a dict; None where it breaks none). The problem is
        solved again with them until nothing is returned that cuts its point off; without them it
        must be bounded. ``solution.problem`` has those that were needed.
    solutions : int, optional
        Of a problem whose integers are binary, up to so many solutions with different binaries,
        best first: ``solution.pool``. It says whether there are no more, with a proof.

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
    changed = warm_start is not None or options or isolate or verbose or exact or write_back
    plain = solver is None and cuts is None and solutions is None and not changed
    if plain and (near := again(problem, request)) is not None:
        return near

    def ask(stated: Problem, *, by_default: bool = False) -> Solution:
        if by_default:
            return solve_as_asked(stated, None, replace(request, options={}, warm_start=None))
        return solve_as_asked(stated, solver, request)

    def answer(stated: Problem) -> Solution:
        try:
            solution: Solution = stated.solved_by(ask)
        except Infeasible as e:
            raise stated.explained(e) from None
        except SolverFailure as e:
            raise explained(stated, e) from None
        return solution

    def complete(stated: Problem) -> Solution:
        if cuts is None:
            return answer(stated)
        return with_cuts(stated, cuts, answer, tolerance, request.deadline)

    solution = complete(problem) if solutions is None else pooled(problem, solutions, complete)
    if exact:
        left = None if time_limit is None else max(1e-3, request.seconds_left)
        solution = exactly(solution, left)
    if write_back:
        if not isinstance(problem, AdoptedProblem):
            raise DeclarationError(
                f"there is nothing to write back to: this {type(problem).__name__} was declared here",
                remedy="leave out write_back, and read solution[NAME]",
            )
        problem.write_back(solution)
    if plain:
        remember(problem, solution)
    rest = time.perf_counter() - begin - sum(solution.seconds.values())
    return replace(solution, seconds={**solution.seconds, "other": max(0.0, rest)})


def solve_as_asked(problem: Problem, solver: str | None, request: Request) -> Solution:
    """Do what `solve` does, and leave an infeasible problem unexplained, as routes expect some."""
    begin = time.perf_counter()
    check_parameters(problem.terms)
    if solver is not None and solves_recast(problem, solver):
        request = replace(request, options={"solver": solver, **request.options})
        solver = next(p.name for p in profiles().values() if p.route == "recast")
    search = Search(problem, request, choose(problem, solver), begin, named=solver is not None)
    calm = one_thread() if search.general else contextlib.nullcontext()
    with calm, watched(request.verbose) as show:
        return show(search.run())


def solves_recast(problem: Problem, solver: str) -> bool:
    """Whether a named solver refuses a problem, but takes the convex one with the same solutions."""
    named = profiles().get(solver)
    if not named or named.structure or named.accepts(problem) or problem.recast is None:
        return False
    return bool(named.accepts(problem.recast.inner))
