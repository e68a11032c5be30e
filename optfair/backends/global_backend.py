"""Quadratic programs, convex or not, to global optimality: through gurobipy, or through Pyomo."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends import cvxpy_backend
from optfair.backends.farkas import claimed_infeasible, claimed_unbounded, unbounded
from optfair.backends.generic import ReportedBound
from optfair.backends.lifted import quadratic_form
from optfair.backends.registry import environment, open_takers, refuse_size, size_limited
from optfair.backends.request import Outcome, refused_options, with_whole
from optfair.compile.export import pyomo_values, to_pyomo
from optfair.compile.program import program
from optfair.errors import OptfairError, SolverFailure

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Request
    from optfair.compile.program import QuadraticForms
    from optfair.core.problem import Problem


def run_gurobi(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve a convex problem through CVXPY, any other by branch and bound on its quadratics.

    Raises
    ------
    UnsupportedProblem
        A term that quadratics cannot express, or an option the solver does not have.
    SizeLimited
        The licence does not allow a problem of this size.
    Infeasible, Unbounded
        On the solver's word, without a certificate.
    """
    if problem.problem_class.convex:
        return cvxpy_backend.run(problem, profile, request)
    import gurobipy

    begin = time.perf_counter()
    forms = quadratic_form(problem)
    options = {k: v for k, v in request.solver_options(profile).items() if k not in profile.fixed}
    model = gurobipy.Model(env=environment(profile))
    try:
        x = _build(model, forms)
        _set(model, options, request, profile)
        start, warm = request.start(problem)
        for name, value in (start or {}).items():  # the solver completes what is not known
            x[forms.columns[name]].Start = np.ravel(value, order="F")
        compiled_at = time.perf_counter()
        model.optimize()
        solved_at = time.perf_counter()
        seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at}
        status = int(model.Status)
        words = gurobipy.GRB.Status
        if status == words.INFEASIBLE:
            why = "its branch and bound excluded every region and leaves no certificate"
            raise claimed_infeasible(problem, profile.name, why)
        if status in (words.UNBOUNDED, words.INF_OR_UNBD):
            raise _unbounded(problem, profile, request)
        known = {
            words.OPTIMAL: "optimal",
            words.TIME_LIMIT: "time_limit",
            words.INTERRUPTED: "interrupted",
            words.SUBOPTIMAL: "inaccurate",
        }
        proof = None
        if np.isfinite(model.ObjBound) and abs(model.ObjBound) < gurobipy.GRB.INFINITY:
            proof = ReportedBound(problem, float(model.ObjBound), profile.name)
        values = {}
        if model.SolCount:
            values = with_whole(problem, forms.by_name(np.asarray(x.X, dtype=float)))
        seconds["recover"] = time.perf_counter() - solved_at
        word = known.get(status, f"status {status}")
        return Outcome(word, values, {}, proof, seconds, warm_start=warm)
    except gurobipy.GurobiError as e:
        if e.errno == gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED:
            said = f"{forms.size} variables, some of them in quadratic terms"
            raise size_limited(profile, said, open_takers(problem)) from e
        raise SolverFailure(f"{profile.name} failed", str(e), "try another solver") from e
    finally:
        model.dispose()


def _build(model: Any, forms: QuadraticForms) -> Any:
    """Add variables, objective and rows; return the variables in the order of the forms."""
    kinds = np.where(forms.integer, "I", "C")
    x = model.addMVar(forms.size, lb=-np.inf, vtype=kinds)
    total = forms.total
    goal = x @ sp.csr_array(total.P() / 2.0) @ x + total.q() @ x + float(total.r[0])
    model.setObjective(goal, 1 if forms.sense == "minimize" else -1)
    for term in forms.constraints:
        sense = "=" if term.set == "zero" else "<"
        curved = np.diff(term.map.Q.indptr) > 0
        plain = np.flatnonzero(~curved)
        if plain.size:
            model.addMConstr(sp.csr_array(term.A[plain, :]), x, sense, -term.r[plain])
        for k in np.flatnonzero(curved):
            i, j, value = term.products(int(k))
            Q = sp.coo_array((value, (i, j)), shape=(forms.size, forms.size))
            model.addMQConstr(Q, term.q(int(k)), sense, -float(term.r[k]), x, x, x)
    return x


def _set(model: Any, options: dict[str, Any], request: Request, profile: SolverProfile) -> None:
    import gurobipy

    for name, value in options.items():
        try:
            model.setParam(name, value)
        except (gurobipy.GurobiError, TypeError, AttributeError) as e:
            raise refused_options(profile.name, f"{name} = {value!r} was refused: {e}") from e
    model.setParam("OutputFlag", int(request.verbose >= 2))


def _unbounded(problem: Problem, profile: SolverProfile, request: Request) -> OptfairError:
    """Tell unbounded from infeasible by dropping the objective."""
    alone = problem.with_terms({}, problem.constraints)
    scoped = any(t.scope for t in alone.constraints.values())
    if scoped and not run_gurobi(alone, profile, request).values:
        why = "it found no point of the constraints alone"
        return claimed_unbounded(problem, profile.name, why)
    return unbounded(problem, profile.name)


_STATUS = {
    "optimal": "optimal",
    "maxTimeLimit": "time_limit",
    "userInterrupt": "interrupted",
    "infeasible": "infeasible",
    "unbounded": "unbounded",
    "infeasibleOrUnbounded": "infeasible_or_unbounded",
}


def run_pyomo(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
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
