"""Solvers that CVXPY wraps; results never touch the shared variables."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
from cvxpy import settings as s
from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC
from cvxpy.reductions.solvers.solver_inverse_data import SolverInverseData

from optfair.backends.generic import columns_of, run_generic
from optfair.backends.isolation import Answer, in_thread, muted, reported, solve_apart
from optfair.backends.registry import environment
from optfair.backends.request import RawPoint, refused_options
from optfair.compile.conic_proof import ConicProof
from optfair.errors import OptfairError, SolverFailure
from optfair.numbers import Floats

if TYPE_CHECKING:
    from collections.abc import Callable

    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

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

# Times the seconds that are left after which the process of a solver with a clock is ended.
LATE = 1.2
# Entries up to which an interior-point method ends sooner than a thread that listens begins.
BRIEF = 300


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve through CVXPY's interface of the solver."""
    warm = _Start(problem, profile)

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        left = request.seconds_left if request.time_limit is not None else np.inf
        return _call(compiled, profile, scale, options, log, warm, request.apart(profile), left)

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
        self, data: dict[str, Any], scale: float, units: tuple[Floats, Floats] | None
    ) -> dict[str, Any]:
        """Return the further arguments of ``solve_via_data``."""
        if self._x is None:
            return {"warm_start": False}
        if self._z is None or self._s is None:
            data["init_value"] = self._x
            return {"warm_start": True}
        rows, columns = (1.0, 1.0) if units is None else units
        entry = {"x": self._x / columns, "y": self._z / rows * scale, "s": self._s * rows}
        return {"warm_start": True, "solver_cache": {self._profile.cvxpy_name: entry}}


def _call(
    compiled: Compiled,
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
    scaled = compiled.form.handed(compiled.integer)
    units = None
    if scaled is not None:
        form, units = scaled[0], scaled[1:]
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
    keeps = keeps and not (warm.given or units or seconds)
    if keeps:
        settled, cache = compiled.ended.pop(profile.name, (options, {}))
        cache = cache if settled == options else {}  # settings would stay
    kept = "the solver of the last values" if cache else ""
    held = environment(profile)
    if held is not None:
        options = {**options, "env": held}
    further = warm.arguments(data, scale, units)
    size = compiled.form.A.nnz + compiled.form.P.nnz
    late = 0 < profile.coarse < size and left < np.inf
    if seconds is None and ((late and not warm.given) or 0 < profile.deaf < size):
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
    if units is not None and z is not None:
        z = z * units[0]
    bound = None
    if "bound" in profile.reports:
        told = answer.reports.get(profile.reports["bound"])
        bound = None if told is None else float(told) / scale + compiled.form.offset
    ended = answer.reports.get(profile.reports.get("point", ""))
    if status == "interrupted" and ended is not None:
        x = np.array(ended, dtype=float)
    elif raw.status not in s.SOLUTION_PRESENT or not raw.primal_vars:
        return RawPoint(status, z=z, bound=bound, **work)
    else:
        x = np.ravel(np.asarray(next(iter(raw.primal_vars.values())), dtype=float), order="F")
    return RawPoint(status, x if units is None else x * units[1], z, bound, **work)


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
