"""What every solver of compiled cone programs shares: compile, call, read back, tell failures apart."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from optfair.backends.farkas import (
    InfeasibilityProof,
    claimed_infeasible,
    proved_infeasible,
    unbounded,
)
from optfair.backends.lifted import entry_sizes, quadratic_form
from optfair.backends.registry import compiled_size, open_takers, refuse_size
from optfair.backends.request import Outcome, RawPoint, Request, with_whole
from optfair.compile.conic_proof import ConicProof, unpriced
from optfair.compile.form import Compiled, compile_problem
from optfair.core.certificate import DualCheck
from optfair.core.expressions import Values
from optfair.core.solution import Solution
from optfair.errors import Infeasible, OptfairError, SolverFailure, UnsupportedProblem
from optfair.numbers import Floats
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

# (compiled problem, scale of the objective, options by the solver's names, whether to log)
Call = Callable[[Compiled, float, dict[str, Any], bool], RawPoint]
# (compiled problem, earlier solution) -> "used", or why not
Start = Callable[[Compiled, Solution], str]


@dataclass(frozen=True)
class ReportedBound:
    """A bound of branch and bound: taken from the solver, it cannot be recomputed here."""

    problem: Problem
    bound: float
    by: str

    @property
    def source(self) -> str:
        """Who reports it."""
        return f"branch and bound of {self.by}, as reported"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Return the reported bound."""
        return DualCheck(self.bound, 0.0, reported=self.by)

    def entry_sizes(self, name: str, values: Values) -> Floats:
        """Return the size of each entry of a constraint, 0 where its right-hand side tells it."""
        try:
            return entry_sizes(quadratic_form(self.problem), name, values)
        except UnsupportedProblem:  # no quadratics state it
            return np.zeros(())


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
    _refuse_magnitude(compiled)
    options = request.solver_options(profile)
    warm = ""
    if start is not None and request.warm_start is not None:
        warm = start(compiled, request.warm_start)
    compiled_at = time.perf_counter()
    raw = call(
        compiled, compiled.form.cost_scale(profile.objective_scale), options, request.verbose >= 2
    )
    solved_at = time.perf_counter()
    seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at}
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
            proof = ReportedBound(problem, compiled.form.sign * raw.bound, profile.name)
    elif z is not None:
        proof = ConicProof(problem, compiled, x, z)
    seconds["recover"] = time.perf_counter() - solved_at
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
        return s, float((off / size).max(initial=0.0))

    s, worst = short(x)
    linear = form.rows.nnz <= LARGEST and (form.equal | form.nonnegative).all()
    if not (linear and tolerance < worst < FAR):
        return x
    lower, upper = form.column_bounds
    room = np.maximum(np.minimum(np.minimum(x - lower, upper - x), 1.0 + np.abs(x)), 0.0)
    several = np.diff(form.rows.indptr) > 1
    tight = np.flatnonzero(several & (form.equal | (s <= TIGHT * (form.sizes @ np.abs(x) + b))))
    E = form.rows[tight] @ sp.diags_array(room)
    both = [[sp.eye_array(x.size), E.T], [E, -SLIGHT * sp.eye_array(tight.size)]]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            factor = spla.splu(sp.block_array(both, format="csc"))
        except RuntimeError:  # exactly singular
            return x
        near = x + room * factor.solve(np.concatenate([np.zeros(x.size), s[tight]]))[: x.size]
    return near if short(near)[1] <= tolerance else x


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
    return Infeasible(
        f"these constraints exclude each other: {', '.join(map(repr, names))}",
        f"a Farkas certificate from {profile.name}, verified on the compiled data",
        f"remove or soften one of them, e.g. soften({names[-1]!r}, weight=1.0)" if names else "",
        certificate=proof,
        conflict=names,
    )


def _unbounded(
    problem: Problem,
    profile: SolverProfile,
    request: Request,
    call: Call,
    quadratic: bool,
) -> OptfairError:
    """Tell unbounded from infeasible by dropping the objective, and look for a ray."""
    feasibility = problem.with_terms({}, problem.constraints)
    point: Mapping[str, Any] = {k: np.zeros(v.shape) for k, v in problem.variables.items()}
    if any(t.scope for t in feasibility.constraints.values()):
        # raises Infeasible when it is that
        point = run_generic(feasibility, profile, request, call, quadratic=quadratic).values
    seconds = None if request.time_limit is None else request.seconds_left
    return unbounded(problem, profile.name, point or None, seconds=seconds)
