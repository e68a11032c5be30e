"""Compiled cone programs: what all solvers of them share, from compiling to telling failures apart, and those CVXPY wraps."""

from __future__ import annotations

import contextlib
import importlib
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from cvxpy import settings as s
from cvxpy.constraints import Inequality
from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC
from cvxpy.reductions.solvers.solver_inverse_data import SolverInverseData

from optfair.backends.farkas import InfeasibilityProof, proved_infeasible, unbounded
from optfair.backends.isolation import Answer, in_thread, muted, reported, solve_apart
from optfair.backends.registry import (
    claimed_infeasible,
    compiled_size,
    environment,
    open_takers,
    refuse_size,
)
from optfair.backends.request import (
    LATE,
    Outcome,
    RawPoint,
    ReportedBound,
    Request,
    SolverProfile,
    refused_options,
    stages,
    with_whole,
)
from optfair.compile.conic_proof import ConicProof, unpriced
from optfair.compile.form import Compiled, compile_problem, refuse_faint
from optfair.core.canonical import built
from optfair.core.coefficients import quadratic_map
from optfair.core.quadratics import NotQuadratic
from optfair.core.solution import Solution
from optfair.errors import Infeasible, OptfairError, SolverFailure, UnsupportedProblem
from optfair.numbers import Floats
from optfair.solution.conic_form import ConicForm
from optfair.solution.units import Handed

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# (compiled problem, scale of the objective, options by the solver's names, whether to log)
Call = Callable[[Compiled, float, dict[str, Any], bool], RawPoint]
# (compiled problem, earlier solution) -> "used", or why not
Start = Callable[[Compiled, Solution], str]


# Steps onto a domain, and how far beyond its edge, in sizes of what it is made of, they lead.
MOVES, LAST = 8, 4.0 * float(np.finfo(float).eps)
# Parts of the way to the middle of its cones that a point is moved.
INWARD = (1e-10, 1e-9, 1e-8, 1e-7)


# Slack of a row that is tight, as a share of its terms; what is added to equations that depend on
# each other.
TIGHT, SLIGHT = 1e-9, 1e-10
# Violations from which on a point is not nearly feasible: no step is worth its factorisation.
FAR = 1e-2
# Entries of rows up to which a point is moved onto them.
LARGEST = 300_000
# Beyond this size of a coefficient solvers crash, or compute with infinity.
HUGE = 1e21


def _refuse_magnitude(compiled: Compiled) -> None:
    """Refuse numbers that no solver can compute with, in the units in which they are handed over.

    Raises
    ------
    UnsupportedProblem
        A coefficient is beyond `HUGE`.
    """
    name, size = compiled.largest
    if size > HUGE:
        raise UnsupportedProblem(
            f"the numbers of {name!r} are beyond what solvers compute with",
            f"a coefficient of size {size:.1e} is left in the best units for rows and columns",
            "state it in other units, or leave out what is meant to be infinite",
        )


def run_generic(
    problem: Problem,
    profile: SolverProfile,
    request: Request,
    call: Call,
    *,
    start: Start | None = None,
    quadratic: bool = True,
    arranged: Problem | None = None,
) -> Outcome:
    """Compile through CVXPY's reductions, let ``call`` solve, and read the result by name.

    Parameters
    ----------
    problem : Problem
        What to solve.
    profile : SolverProfile
        Who solves it.
    request : Request
        What is asked.
    call : callable
        Solves the compiled form.
    start : callable, optional
        Prepares a warm start and says "used", or why not.
    quadratic : bool
        Whether a quadratic objective stays one.
    arranged : Problem, optional
        What is compiled in its place: the relaxation, where the interface whose arrangement of
        rows the solver takes has no integers.
    """
    begin = time.perf_counter()
    compiled = compile_problem(
        problem if arranged is None else arranged,
        profile.compile_as or profile.cvxpy_name,
        quadratic=quadratic,
    )
    refuse_size(profile, compiled_size(compiled.form), lambda: open_takers(problem))
    options = request.solver_options(profile)
    if request.late(compiled.form.A.nnz + compiled.form.P.nnz):  # what a hand-over takes as well
        return Outcome("time_limit", {}, {}, None, stages(begin, now := time.perf_counter(), now))
    refuse_faint(compiled)
    _refuse_magnitude(compiled)
    warm = ""
    if start is not None and request.warm_start is not None:
        warm = start(compiled, request.warm_start)
    compiled_at = time.perf_counter()
    raw = call(
        compiled, compiled.form.cost_scale(profile.objective_scale), options, request.verbose >= 2
    )
    solved_at = time.perf_counter()
    seconds = stages(begin, compiled_at, solved_at)
    # without an objective nothing is unbounded
    if raw.status == "infeasible" or (
        raw.status == "infeasible_or_unbounded" and not problem.objective
    ):
        raise infeasible(problem, profile, compiled, raw)
    if raw.status == "unbounded" and not problem.objective:
        raise SolverFailure(
            f"{profile.name} calls a problem without an objective unbounded",
            "every feasible point is optimal",
            "try another solver",
        )
    if raw.status in ("unbounded", "infeasible_or_unbounded"):
        raise _unbounded(problem, profile, request, call, quadratic)
    work = work_of(compiled, profile, raw)
    x = raw.x
    if x is None or x.size != compiled.form.q.size or not np.isfinite(x).all():
        return Outcome(raw.status, {}, {}, None, seconds, warm_start=warm, **work)
    if not problem.integers:
        x = onto_rows(compiled.form, _as_stated(compiled.form, x), request.tolerance)
        x = onto_domain(problem, compiled, x, request.tolerance)
    # an integer variable that no term uses leaves a continuous program
    mixed = any(name in compiled.form.columns for name in problem.integers)
    z = None if mixed else raw.z
    if z is not None and (z.shape != compiled.form.b.shape or not np.isfinite(z).all()):
        z = None  # as good as none
    z = None if z is None else unpriced(compiled.form, z)
    values, multipliers = compiled.by_name(x, z)
    proof: Any = None
    if mixed:
        values = with_whole(problem, values)
        if raw.bound is not None and np.isfinite(raw.bound):
            bound, least = compiled.form.sign * raw.bound, compiled.form.unit
            proof = ReportedBound(problem, bound, profile.name, least)
    elif z is not None:
        proof = ConicProof(problem, compiled, x, z, tolerance=request.tolerance)
    return Outcome(raw.status, values, multipliers, proof, seconds, warm_start=warm, **work)


def onto_rows(form: ConicForm, x: Floats, tolerance: float) -> Floats:
    r"""Return a point near x that violates its rows by less, of linear rows and no others.

    A method that sees rows in units of its own may leave one short in the units of its side. The
    step solves :math:`\min \|D^{-1} d\|` subject to :math:`A_T d = s_T` over equalities and rows
    that are tight, with D the distance to the bounds of each column: one that is at its bound
    stays there.
    """
    b = np.abs(form.b)
    size = np.maximum(b, min(1.0, float(b.max(initial=0.0))) or 1.0)

    def short(x: Floats) -> tuple[Floats, float]:
        s = form.slack(x)
        off = np.where(form.equal, np.abs(s), np.maximum(-s, 0.0))
        with np.errstate(over="ignore"):  # of a side at the end of the floats
            return s, float((off / size).max(initial=0.0))

    s, worst = short(x)
    linear = form.rows.nnz <= LARGEST and (form.equal | form.nonnegative).all()
    if not (linear and tolerance < worst < FAR):
        return x
    lower, upper = form.column_bounds
    room = np.maximum(np.minimum(np.minimum(x - lower, upper - x), 1.0 + np.abs(x)), 0.0)
    several = np.diff(form.rows.indptr) > 1
    tight = np.flatnonzero(several & (form.equal | (s <= TIGHT * (form.sizes @ np.abs(x) + b))))
    near = x + _shortest(form.rows[tight], room, s[tight], np.full(tight.size, SLIGHT))
    return near if short(near)[1] <= tolerance else x


def _shortest(rows: Any, room: Floats, sides: Floats, slight: Floats) -> Floats:
    """Return the step that rows need, shortest in units of its own room; rows may miss slightly."""
    E = rows @ sp.diags_array(room)
    both = [[sp.eye_array(room.size), E.T], [E, -sp.diags_array(slight)]]
    with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.suppress(RuntimeError):
        warnings.simplefilter("ignore")
        factor = spla.splu(sp.block_array(both, format="csc"))  # none if it is exactly singular
        return room * factor.solve(np.append(np.zeros(room.size), sides))[: room.size]
    return np.zeros(room.size)


def off_edges(problem: Problem, compiled: Compiled, x: Floats, value: float, off: float) -> Floats:
    """Return a point further inside its cones, where the objective at x is not what they say of it.

    Beside a singular matrix, or a divisor of 0, next to no change of them is another value. On
    the way to the middle of blocks and balls, along rows that are tight, the point is taken at
    which the objective is nearest to that of the cones, if that is off by more than was asked.
    """
    form, own = compiled.form, compiled.form.objective(x)
    near = abs(form.sign * value - own) <= off * max(form.unit, abs(own - form.offset))
    curved = [c for c in form.cones if c.kind not in ("zero", "nonneg")]
    if near or form.rows.nnz > LARGEST or not {c.kind for c in curved} <= {"psd", "soc"}:
        return x
    s, size = form.slack(x), form.sizes @ np.abs(x) + np.abs(form.b)
    middle, give = s.copy(), 1e-9 * size
    tight = form.equal | (form.nonnegative & (s <= TIGHT * size))
    for c in curved:
        at = slice(c.start, c.stop)
        on = c.diagonal if c.kind == "psd" else np.arange(c.stop - c.start) == 0
        tight[at], give[at] = True, 1e-3 * abs(s[at][on].mean())
        middle[at] = np.where(on, s[at][on].mean(), 0.0)
    room = np.abs(x) + 1e-3 * np.abs(x).max(initial=0.0)
    d = _shortest(form.rows[tight], room, (s - middle)[tight], np.square(give[tight]))

    linear = form.equal | form.nonnegative
    least = np.where(linear, np.minimum(s, 0.0) - TIGHT * size, -np.inf)

    def missed(y: Floats) -> float:
        out = not (form.slack(y) >= least).all()
        return np.inf if out else abs(form.sign * problem.objective_at(compiled.values(y)) - own)

    ways = [x, *(x + share * d for share in INWARD)]
    with np.errstate(all="ignore"):
        away = list(map(missed, ways))
    best = int(np.nanargmin(away))
    return ways[best] if away[best] <= 0.1 * away[0] else x


def onto_domain(problem: Problem, compiled: Compiled, x: Floats, tolerance: float) -> Floats:
    """Return a point near x where all terms have a value, x where they have one or none is near.

    An interior-point method that ends at the edge of a domain may end beyond it by a rounding,
    where the root of a number is none. What functions ask of affine arguments is met by the
    shortest steps, and by the roundings of evaluating it.
    """
    if compiled.form.polyhedral or problem.problem_class.name in ("LP", "QP"):
        return x
    values, straight = compiled.values(x), ("LP", "QP", "QCQP")
    rows = [
        t for t in problem.constraints.values() if t.evidence.problem_class.name not in straight
    ]
    edged = [t for t in rows if any(a.domain for a in built(t).args)]

    def defined(at: Mapping[str, Any]) -> bool:
        return all(np.isfinite(t.violations(at)[0]) for t in edged)

    with np.errstate(all="ignore"):
        if np.isfinite(value := problem.objective_at(values)) and defined(values):
            return off_edges(problem, compiled, x, value, tolerance)
    offsets, at = {}, 0
    for v in problem.variables.values():
        offsets[v.id], at = at, at + v.size
    sets = [built(t).domain for t in problem.objective.values()]
    sets += [a.domain for t in edged for a in built(t).args]
    asked = [c for own in sets for c in own]
    sides = [c.expr for c in asked if isinstance(c, Inequality) and c.expr.is_affine()]
    sides = [e for e in sides if e.variables()]
    try:
        maps = [quadratic_map(e, offsets, at) for e in sides]
    except NotQuadratic:
        return x
    if not maps:
        return x
    A, b = sp.csr_array(sp.vstack([f.A for f in maps])), np.concatenate([f.b for f in maps])
    y = np.concatenate([np.ravel(values[name], order="F") for name in problem.variables])
    for _ in range(MOVES):
        size = abs(A) @ np.abs(y) + np.abs(b)
        beyond = A @ y + b
        out = np.flatnonzero(beyond > 0.0)
        far = tolerance * np.maximum(1.0, size[out])
        if not out.size or (beyond[out] > far).any():
            break
        E = A[out]
        y = y - E.T @ ((beyond[out] + LAST * size[out]) / E.power(2).sum(axis=1))
    moved, at = x.copy(), 0
    for name, v in problem.variables.items():
        place = np.ravel(compiled.places()[name], order="F")
        moved[place[place >= 0]] = y[at : at + v.size][place >= 0]
        at += v.size
    values = compiled.values(moved)
    with np.errstate(all="ignore"):
        return moved if np.isfinite(problem.objective_at(values)) and defined(values) else x


def _as_stated(form: ConicForm, x: Floats) -> Floats:
    """Return the point with the columns that rows of one entry state, where units were changed.

    What is next to nothing beside the numbers of its block need not be so beside its own side.
    """
    if form.congruent is None:
        return x
    rows = np.flatnonzero(form.equal & (np.diff(form.rows.indptr) == 1))
    at, near = form.rows.indptr[rows], x.copy()
    near[form.rows.indices[at]] = form.b[rows] / form.rows.data[at]
    return near


def work_of(compiled: Compiled, profile: SolverProfile, raw: RawPoint) -> dict[str, Any]:
    """Return what a solve took, and what the first of the same shape took from nothing."""
    if raw.iterations is None:
        return {"kept": raw.kept}
    cold = compiled.ended.setdefault(f"{profile.name} cold", raw.iterations)
    more = {"iterations_cold": cold} if raw.kept else {}
    return {"kept": raw.kept, "iterations": {"iterations": raw.iterations, **more}}


def columns_of(compiled: Compiled, earlier: Solution) -> tuple[Floats | None, str]:
    """Return earlier values in the columns of a compiled problem, NaN where none is known."""
    x = np.full(compiled.form.q.size, np.nan)
    for name, place in compiled.places().items():
        value = earlier.values.get(name)
        if value is None or np.shape(value) != place.shape:
            return None, f"not used: it has no value of the shape of {name!r}"
        known = place >= 0
        x[place[known]] = np.asarray(value, dtype=float)[known]
    return x, "used"


def infeasible(
    problem: Problem, profile: SolverProfile, compiled: Compiled, raw: RawPoint
) -> OptfairError:
    """Return what to raise where a solver says that no point is feasible: a proof, or its word."""
    if raw.z is None or raw.z.size != compiled.form.b.size:
        return claimed_infeasible(problem, profile.name)
    owned = {name: compiled.rows(name) for name in problem.constraints}
    proof = proved_infeasible(compiled.form, raw.z, owned)
    if proof is None:
        reasons = InfeasibilityProof(compiled.form, raw.z).verify().reasons
        why = f"its Farkas vector does not prove it: {'; '.join(reasons)}"
        return claimed_infeasible(problem, profile.name, why)
    names = proof.conflict
    how = f"a Farkas certificate from {profile.name}, verified on the compiled data {proof.limits}"
    remedy = (
        f"remove or soften one of them, e.g. soften({names[-1]!r}, weight=1.0)" if names else ""
    )
    return Infeasible.of(proof, names, how.strip(), remedy, where=proof.where(owned))


def _unbounded(
    problem: Problem, profile: SolverProfile, request: Request, call: Call, quadratic: bool
) -> OptfairError:
    """Tell unbounded from infeasible by dropping the objective, and look for a ray."""
    feasibility = problem.with_terms({}, problem.constraints)
    point: Mapping[str, Any] = {k: np.zeros(v.shape) for k, v in problem.variables.items()}
    if any(t.scope for t in feasibility.constraints.values()):
        # raises Infeasible when it is that
        point = run_generic(feasibility, profile, request, call, quadratic=quadratic).values
    seconds = None if request.time_limit is None else request.seconds_left
    return unbounded(problem, profile.name, point or None, seconds=seconds)


_STATUS = {
    s.OPTIMAL: "optimal",
    s.OPTIMAL_INACCURATE: "inaccurate",
    s.USER_LIMIT: "time_limit",
    s.INFEASIBLE: "infeasible",
    s.INFEASIBLE_INACCURATE: "infeasible",
    s.UNBOUNDED: "unbounded",
    s.UNBOUNDED_INACCURATE: "unbounded",
    s.INFEASIBLE_OR_UNBOUNDED: "infeasible_or_unbounded",
}

# Entries up to which an interior-point method ends sooner than a thread that listens begins.
BRIEF = 300
# Order of blocks from which on a solver may ask for more memory than there is, and end its process.
HEAVY = 250


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve through CVXPY's interface of the solver."""
    warm = _Start(problem, profile)

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        left = request.seconds_left if request.time_limit is not None else np.inf
        # when asked again, cones are handed over as they stand, unless a retry says in which units
        turned, units = request.tighter == 1.0, (request.units, request.near)
        handed = compiled.form.handed(compiled.integer, turned=turned, units=units)
        if any(c.kind not in ("zero", "nonneg") for c in compiled.form.cones):
            options = {**profile.curved, **options}
        seconds = request.apart(profile, compiled.form.A.nnz + compiled.form.P.nnz)
        return _call(compiled, handed, profile, scale, options, log, warm, seconds, left)

    return run_generic(problem, profile, request, call, start=warm.prepare)


class _Start:
    """A start in the form CVXPY's interfaces read: a cache entry, or initial values.

    The cache is ours and thrown away, so nothing is shared between solves.
    """

    def __init__(self, problem: Problem, profile: SolverProfile) -> None:
        self._problem, self._profile = problem, profile
        self._x: Floats | None = None
        self._z: Floats | None = None
        self._s: Floats | None = None

    @property
    def given(self) -> bool:
        """Whether somebody said where to start."""
        return self._x is not None

    def prepare(self, compiled: Compiled, earlier: Solution) -> str:
        """Keep a start for this compiled problem; say "used", or why not."""
        name = self._profile.name
        if not self._profile.warm_start:
            return f"not used: {name} starts anew"
        if self._problem.integers:
            x, why = columns_of(compiled, earlier)
            self._x = x
            return why
        proof = earlier.proof
        if not isinstance(proof, ConicProof):
            return f"not used: {name} starts from a compiled primal-dual pair, this one has none"
        form = compiled.form
        if proof.compiled.form.A.shape != form.A.shape or proof.compiled.form.cones != form.cones:
            return "not used: the earlier problem compiles to another shape"
        self._x, self._z, self._s = proof.x, proof.z, form.slack(proof.x)
        return "used"

    def arguments(
        self, data: dict[str, Any], scale: float, handed: Handed | None
    ) -> dict[str, Any]:
        """Return the further arguments of ``solve_via_data``."""
        if self._x is None:
            return {"warm_start": False}
        if self._z is None or self._s is None:
            data["init_value"] = self._x
            return {"warm_start": True}
        x, z, slack = self._x, self._z, self._s
        if handed is not None:
            x, z, slack = x / handed.columns, handed.multipliers(z), handed.slack(slack)
        entry = {"x": x, "y": z * scale, "s": slack}
        return {"warm_start": True, "solver_cache": {self._profile.cvxpy_name: entry}}


def _call(
    compiled: Compiled,
    scaled: Handed | None,
    profile: SolverProfile,
    scale: float,
    options: dict[str, Any],
    log: bool,
    warm: _Start,
    seconds: float | None,
    left: float,
) -> RawPoint:
    """Solve here, or in a process of its own that is ended after so many seconds.

    One that looks at the clock between long steps only is not waited for much longer than is left.
    """
    interface = compiled.interface
    if profile.compile_as:  # the same rows, in the arrangement of the solver that gets them
        interface = SOLVER_MAP_CONIC[profile.cvxpy_name]
    if scaled is not None:
        form = scaled.form
        scale = form.cost_scale(profile.objective_scale)
        handed, inverse = interface.apply(compiled.program(interface, form))
    elif profile.compile_as:
        handed, inverse = interface.apply(compiled.program(interface))
    else:
        handed, inverse = compiled.handed
    data = dict(handed)
    for part in ("c", "q", "P"):
        if scale != 1.0 and data.get(part) is not None:
            data[part] = data[part] * scale
    options = _nested(options)
    # the solver that met other values of the parameters takes these in their place
    cache: dict[str, Any] | None = None
    keeps = profile.updates and compiled.plan is not None
    keeps = keeps and not (warm.given or scaled or seconds)
    if keeps:
        settled, cache = compiled.ended.pop(profile.name, (options, {}))
        cache = cache if settled == options else {}  # settings would stay
    kept = "the solver of the last values" if cache else ""
    held = environment(profile)
    if held is not None:
        options = {**options, "env": held}
    further = warm.arguments(data, scale, scaled)
    size = compiled.form.A.nnz + compiled.form.P.nnz
    heavy = any(c.order > HEAVY for c in compiled.form.cones)
    if seconds is None and (0 < profile.deaf < size or heavy):
        seconds, cache = LATE * left, None
    brief = bool(profile.stoppable) and size <= BRIEF and not keeps
    stop: Callable[[], object] = lambda: None
    if profile.stoppable and seconds is None and not (warm.given or brief):
        cache = {} if cache is None else cache
        kind = importlib.import_module(f"optfair.backends.{profile.stoppable}").Stoppable
        solver = kind(data["dims"], cache.get(profile.cvxpy_name))
        cache[profile.cvxpy_name], stop = solver, solver.stop
    if cache is not None:
        further = {"warm_start": True, "solver_cache": cache}
    given = dict(options)  # interfaces take options out as they read them
    try:
        if seconds is not None:
            paths = [profile.reports[k] for k in ("status", "bound") if k in profile.reports]
            answer = solve_apart(
                interface,
                data,
                inverse,
                options,
                name=profile.name,
                log=log,
                seconds=seconds,
                paths=paths,
                more=further,
            )
        else:

            def ask() -> Any:
                with muted() if profile.chatty and not log else contextlib.nullcontext():
                    return interface.solve_via_data(
                        data, verbose=log, solver_opts=options, **further
                    )

            result = ask() if brief else in_thread(ask, stop)
            paths = list(profile.reports.values())
            raw = interface.invert(result, SolverInverseData(inverse, interface, options))
            answer = Answer(raw, {path: reported(result, path) for path in paths})
    except Exception as e:  # each library has its own tree of errors
        raise _explained(e, profile, given) from e
    raw = answer.raw
    if raw is None:
        return RawPoint("time_limit")
    if cache is not None and keeps:
        compiled.ended[profile.name] = (given, cache)
    taken = (raw.attr or {}).get(s.NUM_ITERS)
    work: dict[str, Any] = {"kept": kept, "iterations": None if taken is None else int(taken)}
    status = _STATUS.get(raw.status, str(raw.status))
    if "interrupted" in profile.reports:
        word = answer.reports.get(profile.reports["status"])
        status = "interrupted" if str(word) == profile.reports["interrupted"] else status
    z = compiled.dual_vector(raw, interface)
    z = None if z is None else z / scale
    if scaled is not None and z is not None:
        z = scaled.multipliers_back(z)
    bound = None
    if "bound" in profile.reports:
        claimed = answer.reports.get(profile.reports["bound"])
        bound = None if claimed is None else float(claimed) / scale + compiled.form.offset
    ended = answer.reports.get(profile.reports.get("point", ""))
    if status == "interrupted" and ended is not None:
        x = np.array(ended, dtype=float)
    elif raw.status not in s.SOLUTION_PRESENT or not raw.primal_vars:
        return RawPoint(status, z=z, bound=bound, **work)
    else:
        x = np.ravel(np.asarray(next(iter(raw.primal_vars.values())), dtype=float), order="F")
    return RawPoint(status, x if scaled is None else x * scaled.columns, z, bound, **work)


def _nested(options: dict[str, Any]) -> dict[str, Any]:
    """Return options whose names have a dot as dictionaries within; what is given there wins."""
    nested = {k: v for k, v in options.items() if "." not in k}
    for name, value in options.items():
        outer, dot, inner = name.partition(".")
        if dot:
            nested[outer] = {inner: value} | dict(nested.get(outer, {}))
    return nested


def _explained(e: Exception, profile: SolverProfile, given: dict[str, Any]) -> OptfairError:
    """Return the error in our words: about an option where one is to blame."""
    if isinstance(e, OptfairError):
        return e
    said = " ".join(str(e).split()) or type(e).__name__
    blamed = [name for name in given if name in said]
    if blamed or isinstance(e, (TypeError, ValueError)):
        return refused_options(profile.name, said)
    return SolverFailure(f"{profile.name} failed", said, "try another solver")
