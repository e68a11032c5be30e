"""Quadratic programs, convex or not, to global optimality: stated with further variables; through gurobipy, or Pyomo."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.atoms.quad_over_lin import quad_over_lin
from cvxpy.constraints import SOC, Equality, Inequality, NonNeg, NonPos, Zero

from optfair.backends import cvxpy_backend
from optfair.backends.farkas import unbounded
from optfair.backends.registry import (
    claimed_infeasible,
    claimed_unbounded,
    environment,
    open_takers,
    refuse_size,
    size_limited,
)
from optfair.backends.request import (
    Outcome,
    ReportedBound,
    Request,
    SolverProfile,
    refused_options,
    stages,
    with_whole,
)
from optfair.compile.export import pyomo_values, to_pyomo
from optfair.compile.program import QuadraticForms, QuadraticTerm, program, quadratic_terms
from optfair.core.canonical import Draft
from optfair.core.coefficients import quadratic_map
from optfair.core.composition import evaluated_constraint, evaluated_objective
from optfair.core.expressions import Values, substitute
from optfair.core.labels import free_name
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import follows_rules
from optfair.core.quadratics import NotQuadratic, QuadraticMap
from optfair.core.term import ObjectiveTerm, Term, is_quadratic
from optfair.errors import OptfairError, SolverFailure, UnsupportedProblem
from optfair.numbers import Floats
from optfair.proofs.cones import largest_entry
from optfair.solution.conic_form import least_unit

# Between what the units of columns, and the largest coefficient of an objective, may be: beside those
# below 1 tolerances are large, those above 1 make what holds a row larger than its declared unit.
SMALL, LARGE = 1.0 / 16.0, 1e3
# Binary exponents of units from which on products leave the range of floats.
FLOATS = 250.0
# Steps of the least squares that finds units.
STEPS = 100
_PLAIN = (Equality, Inequality, Zero, NonNeg, NonPos)
# a term of the problem, and what it says or a part of it
Goal = tuple["ObjectiveTerm", Any]
Row = tuple["Term", Any]


def quadratic_form(problem: Problem, deadline: float = np.inf) -> QuadraticForms:
    r"""Return a problem as quadratics, its second-order cones written as quadratics.

    .. math:: \|u\|_2 \le t \iff \|u\|_2^2 \le t^2,\; t \ge 0

    A convex term that is not quadratic is reduced to cones by CVXPY. A sum of squares of
    combinations, :math:`\|Ax - b\|^2` or :math:`x^T P x` with P positive definite, gets a
    variable per square: the relaxations of a sum of separate squares are far tighter (a
    dense least-squares problem in 100 variables: optimal after 2 s, not a gap of 0.14 after 10).
    The variables that are added stand behind the problem's own.

    Raises
    ------
    UnsupportedProblem
        A term that this does not express; it is named.
    TimeoutError
        ``time.perf_counter()`` is beyond the deadline.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [cp.norm(x) <= 1]), ["ball"])
    >>> [term.name for term in quadratic_form(p).constraints]
    ['ball side 0', 'ball cone 0', 'ball 1']
    """
    objective: dict[str, Goal] = {}
    constraints: dict[str, Row] = {}
    offsets, at = {}, 0
    for v in problem.variables.values():
        offsets[v.id] = at
        at += v.size

    def add(parts: Mapping[str, Row]) -> None:
        for name, row in parts.items():  # none is lost to a term of its name
            constraints[free_name(name, {*problem.constraints, *constraints})] = row

    for term in problem.objective.values():
        built = term.build()
        if not _plain(built) and _follows(built, problem.sense):
            top = cp.Variable()
            side = built <= top if problem.sense == "minimize" else built >= top
            add(_conic_parts(term, side))
            objective[term.name] = term, top
            continue
        lifted, squares = _separate_squares(built, offsets, at)
        add({n: (term, c) for n, c in _named(term, squares)})
        objective[term.name] = term, lifted
    for constraint in problem.constraints.values():
        built = constraint.build()
        if not _plain(built) and follows_rules(built):
            add(_conic_parts(constraint, built))
            continue
        lifted, squares = _separate_squares(built, offsets, at)
        add({n: (constraint, c) for n, c in _named(constraint, squares)})
        constraints[constraint.name] = constraint, lifted
    return quadratic_terms(_Lifted(problem, objective, constraints), deadline=deadline)


def in_units(forms: QuadraticForms) -> tuple[QuadraticForms, Floats, Floats, float]:
    """Return forms in units of their own: of rows, columns and the objective, all powers of two.

    What holds a row, what ends a search and a size that is taken for unbounded are numbers of one
    unit. What counts between `SMALL` and `LARGE` stays as it is; integers do in any case. Beside the
    forms: the units of columns, the factors of rows, and the unit of the objective.
    """
    columns, rows = _exponents(forms)
    units = np.append(columns, -rows)  # of a row: what its terms add up to
    least, most = units.min(initial=0.0), units.max(initial=0.0)
    # of numbers near the ends of the floats no unit is known
    if max(-least, most) < FLOATS and (least < np.log2(SMALL) or most > np.log2(LARGE)):
        parts = np.split(rows, np.cumsum([t.size for t in forms.constraints])[:-1])
        constraints = tuple(map(_scaled, forms.constraints, parts, [columns] * len(parts)))
        objective = tuple(_scaled(t, np.zeros(t.size), columns) for t in forms.objective)
        forms = replace(forms, objective=objective, constraints=constraints)
    else:
        columns, rows = np.zeros(forms.size), np.zeros(rows.size)
    total = forms.total.map
    size = max(np.abs(part).max(initial=0.0) for part in (total.A.data, total.Q.data))
    if SMALL <= size <= LARGE or size == 0.0:
        return forms, np.exp2(columns), np.exp2(rows), 1.0
    unit = float(np.exp2(np.floor(np.log2(size))))
    objective = tuple(replace(t, map=(1.0 / unit) * t.map) for t in forms.objective)
    return replace(forms, objective=objective), np.exp2(columns), np.exp2(rows), unit


def unit_of(forms: QuadraticForms, own: QuadraticForms, unit: float, side: float) -> float:
    """Return the least size an objective is measured by, for right-hand sides of a size.

    As it stands, and in the unit of its form ``own``: what misfits are called by has units that say
    nothing.
    """
    total, near = forms.total.map, own.total.map
    stated = least_unit(max(largest_entry(total.A.data), largest_entry(total.Q.data) * side), side)
    size = max(largest_entry(near.A.data), largest_entry(near.Q.data))
    return min(stated, unit * least_unit(size, 1.0))


def _scaled(term: QuadraticTerm, rows: Floats, columns: Floats) -> QuadraticTerm:
    """Return a term whose rows and columns are multiplied by powers of two."""
    own, (i, j) = term.map, term.map.pairs
    Q, A = sp.csr_array(own.Q, copy=True), sp.csr_array(own.A, copy=True)
    for part, units in ((Q, columns[i] + columns[j]), (A, columns)):
        part.data *= np.exp2(units[part.indices] + rows.repeat(np.diff(part.indptr)))
    return replace(term, map=QuadraticMap(Q, own.pairs, A, np.exp2(rows) * own.b))


def _exponents(forms: QuadraticForms) -> tuple[Floats, Floats]:
    """Return whole exponents of columns and rows that bring coefficients and sides near 1.

    Least squares of their logarithms; the objective has one of its own, which is left out.
    """
    total = forms.total
    terms = [total, *forms.constraints]
    n, m = forms.size, sum(t.size for t in terms)
    starts = np.cumsum([n, *(t.size for t in terms)])[:-1]
    parts: list[tuple[Floats, list[Any]]] = []
    for start, term in zip(starts, terms, strict=True):
        A, Q = sp.coo_array(term.map.A), sp.coo_array(term.map.Q)
        parts.append((A.data, [start + A.row, A.col]))
        parts.append((Q.data, [start + Q.row, *(pair[Q.col] for pair in term.map.pairs)]))
        if term is not total:
            parts.append((term.map.b, [start + np.arange(term.size)]))
    sizes = np.concatenate([np.abs(size) for size, _ in parts])
    offsets = np.cumsum([0, *(size.size for size, _ in parts)])
    line = np.concatenate([start + np.arange(size.size) for start, (size, places) in
                           zip(offsets, parts, strict=False) for _ in places])  # fmt: skip
    column = np.concatenate([place for _, places in parts for place in places])
    free = np.append(~forms.integer, np.ones(m, dtype=bool))
    kept = (sizes[line] > 0.0) & free[column]
    M = sp.csr_array((np.ones(kept.sum()), (line[kept], column[kept])), shape=(sizes.size, n + m))
    logs = np.log2(np.where(sizes > 0.0, sizes, 1.0))
    units = np.round(spla.lsqr(M, -logs, damp=1e-3, iter_lim=STEPS)[0])
    return units[:n], units[n + terms[0].size :]


def entry_sizes(
    forms: QuadraticForms | None, name: str, values: Values, stated: Any = None
) -> Floats:
    r"""Return what the terms of each entry of a constraint add up to, 0 where a side tells it.

    As `Compiled.entry_sizes` does of cone programs: a column counts for its unit, but not for more
    than the largest entry of its variable.
    """
    term = next((t for t in (forms.constraints if forms else ()) if t.name == name), None)
    if forms is None or term is None:
        return np.zeros(())
    x = np.exp2(_exponents(forms)[0])
    for variable, at in forms.columns.items():
        if variable in values:
            x[at] = np.minimum(x[at], np.abs(np.asarray(values[variable])).max(initial=0.0))
    b, size = term.map.b, _terms(term.map, x)
    known = stated is not None and np.size(stated) == b.size
    has_side = np.ravel(stated, order="F") if known else b != 0.0
    return np.asarray(np.where(has_side, 0.0, size)).reshape(term.shape, order="F")


def worst_row(forms: QuadraticForms | None, values: Values) -> float:
    """Return the largest violation of an entry relative to the size of its terms.

    As `ConicForm.worst_row` does of cone programs: a column counts for its own size, at least for
    one number in it. What was not written as quadratics violates nothing here.
    """
    if forms is None:
        return 0.0
    x, worst = np.full(forms.size, np.nan), 0.0
    for name, at in forms.columns.items():
        if name in values:
            x[at] = np.ravel(np.asarray(values[name], dtype=float), order="F")
    units: Floats | None = None
    for term in forms.constraints:
        over = np.nan_to_num(term.map(x))
        outside = np.abs(over) if term.set == "zero" else np.maximum(over, 0.0)
        if outside.any():
            units = np.exp2(_exponents(forms)[0]) if units is None else units
            size = np.maximum(_terms(term.map, np.fmax(np.abs(x), units)), np.abs(term.map.b))
            worst = max(worst, float((outside / np.where(size > 0.0, size, 1.0)).max()))
    return worst


def _terms(own: QuadraticMap, x: Floats) -> Floats:
    """Return what the terms of each entry add up to at sizes of the columns."""
    i, j = own.pairs
    return np.asarray(abs(sp.csr_array(own.Q)) @ (x[i] * x[j]) + abs(sp.csr_array(own.A)) @ x)


def _named(term: Term, squares: list[Any]) -> Iterator[tuple[str, Any]]:
    for i, c in enumerate(squares):
        yield f"{term.name} squares {i}", c


def _separate_squares(built: Any, offsets: Mapping[int, int], size: int) -> tuple[Any, list[Any]]:
    """Return an expression or constraint whose sums of squares are of plain variables.

    Also returns the equalities that define these variables.
    """
    swaps: dict[int, Any] = {}
    equalities: list[Any] = []
    for node in _nodes(built):
        if id(node) in swaps:
            continue
        if isinstance(node, quad_over_lin) and node.args[1].is_constant():
            if _combines(node.args[0], offsets, size):
                part = cp.Variable(node.args[0].shape)
                more = {"axis": node.axis, "keepdims": node.keepdims}
                swaps[id(node)] = quad_over_lin(part, node.args[1], **more)
                equalities.append(part == node.args[0])
        elif isinstance(node, QuadForm) and node.args[1].is_constant():
            factor = _factor(node.args[1].value)
            if factor is not None and node.args[0].is_affine():
                part = cp.Variable(factor.shape[1])
                swaps[id(node)] = cp.sum_squares(part)
                equalities.append(part == factor.T @ cp.vec(node.args[0], order="F"))
    return (substitute(built, swaps), equalities) if swaps else (built, [])


def _nodes(e: Any) -> Iterator[Any]:
    yield e
    for a in e.args:
        yield from _nodes(a)


def _combines(expression: Any, offsets: Mapping[int, int], size: int) -> bool:
    """Whether an entry of an affine expression depends on more than one scalar."""
    if isinstance(expression, cp.Variable) or not expression.is_affine():
        return False
    try:
        A = quadratic_map(expression, offsets, size).A
    except NotQuadratic:
        return False
    return bool((np.diff(A.indptr) > 1).any())


def _factor(P: Any) -> Any:
    """Return L with P = L Lᵀ, None unless P is positive definite and not diagonal."""
    dense = np.asarray(P.toarray() if hasattr(P, "toarray") else P, dtype=float)
    if not np.count_nonzero(dense - np.diag(np.diag(dense))):
        return None
    try:
        return np.linalg.cholesky((dense + dense.T) / 2)
    except np.linalg.LinAlgError:
        return None


class _Lifted(Problem):
    """A problem with further variables behind its own."""

    def __init__(
        self, problem: Problem, objective: Mapping[str, Goal], constraints: Mapping[str, Row]
    ) -> None:
        variables = dict(problem.variables)
        names = dict(problem.names)
        for v in (
            v for _, e in (*objective.values(), *constraints.values()) for v in e.variables()
        ):
            if v.id not in names:
                name = f"added {len(variables)}"
                while name in variables:
                    name += " more"
                variables[name], names[v.id] = v, name
        goals = tuple(
            evaluated_objective(name, e, names, term.evidence)
            for name, (term, e) in objective.items()
        )
        rows = tuple(
            evaluated_constraint(name, c, names, term.evidence)
            for name, (term, c) in constraints.items()
        )
        super().__init__(
            {"declaration": Declaration(variables, problem.sense, goals, rows, problem.integers)}
        )

    def declare(self) -> Declaration:
        declared: Declaration = self.data["declaration"]
        return declared


def _plain(built: Any) -> bool:
    """Whether a built term is quadratic as it stands."""
    if isinstance(built, _PLAIN):
        return all(is_quadratic(arg) for arg in built.args)
    return not isinstance(built, cp.Constraint) and is_quadratic(built)


def _follows(expression: Any, sense: str) -> bool:
    return follows_rules(expression, "convex" if sense == "minimize" else "concave")


def _conic_parts(term: Term, constraint: Any) -> dict[str, Row]:
    """Reduce a convex constraint to linear and second-order cones, these to quadratics."""
    parts: dict[str, Any] = {}
    for i, part in enumerate(Draft(term.name, constraint).constraints):
        if isinstance(part, _PLAIN):
            parts[f"{term.name} {i}"] = part
        elif isinstance(part, SOC):
            side, inside = part.args
            axis = part.axis if inside.ndim > 1 else None
            parts[f"{term.name} side {i}"] = _factors(side, inside, axis) >= 0
            parts[f"{term.name} cone {i}"] = cp.sum_squares(inside, axis=axis) <= cp.square(side)
        else:
            raise UnsupportedProblem(
                f"{term.name!r} is not quadratic",
                f"it needs the cone {type(part).__name__}; quadratics express linear and"
                " second-order cones only",
                f"remove {term.name!r}, or choose a solver that has this cone",
            )
    return {name: (term, part) for name, part in parts.items()}


def _factors(side: Any, inside: Any, axis: int | None) -> Any:
    """Return what of a cone must not be negative: its side, or both factors where it is turned.

    Of z^2 <= x y, written with x + y and x - y, a search that does not know that x and y are
    nonnegative has no relaxation.
    """
    if inside.ndim == 0:
        return side
    first = inside[:, 0] if axis == 1 else inside[0]
    if not {v.id for v in first.variables()} & {v.id for v in side.variables()}:
        return side
    return cp.hstack([side + first, side - first])


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
            own, _, _, unit = in_units(forms)
            least = unit_of(forms, own, unit, problem.data_unit)
            proof = ReportedBound(problem, float(model.ObjBound), profile.name, least)
        values = {}
        if model.SolCount:
            values = with_whole(problem, forms.by_name(np.asarray(x.X, dtype=float)))
        seconds = stages(begin, compiled_at, solved_at)
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
    seconds = stages(begin, compiled_at, solved_at)
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
