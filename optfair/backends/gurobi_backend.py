"""The one file that talks to gurobipy: nonconvex quadratic programs to global optimality."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends import cvxpy_backend
from optfair.backends.farkas import claimed_infeasible, claimed_unbounded, unbounded
from optfair.backends.generic import ReportedBound
from optfair.backends.lifted import quadratic_form
from optfair.backends.registry import environment, open_takers, size_limited
from optfair.backends.request import Outcome, refused_options, with_whole
from optfair.errors import OptfairError, SolverFailure

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Request
    from optfair.compile.program import QuadraticForms
    from optfair.core.problem import Problem


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
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
    if scoped and not run(alone, profile, request).values:
        why = "it found no point of the constraints alone"
        return claimed_unbounded(problem, profile.name, why)
    return unbounded(problem, profile.name)
