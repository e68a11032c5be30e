"""Solvers of the compiled form that are called through their own libraries, each told apart by its ``run_NAME``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.branching import BranchedBound
from optfair.backends.case_search import FRACTION, Case, CaseSearch, Limits
from optfair.backends.cone_program import central_pair, has_few_numbers
from optfair.backends.cvxpy_backend import columns_of, run_generic
from optfair.backends.farkas import unbounded
from optfair.backends.integer_programs import integers_of
from optfair.backends.isolation import one_thread, solve_apart
from optfair.backends.linear_program import solve_form
from optfair.backends.registry import claimed_infeasible, conic_interface
from optfair.backends.request import (
    Outcome,
    RawPoint,
    Request,
    SolverProfile,
    refused_options,
    stages,
    with_whole,
)
from optfair.compile.conic_proof import shortfall
from optfair.compile.form import compile_problem
from optfair.errors import SolverFailure, UnsupportedProblem
from optfair.numbers import Floats
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.proofs.cones import Cone
    from optfair.solution.conic_form import ConicForm

# OR-Tools in a process of its own: see there.
WORKER = "optfair.backends.ortools_worker"


# Pairs that are proved within a radius, after which the first of them is taken.
ROUNDS = 3
# Cases that are looked at until one has a point, and of all that there may be.
CASES, SHARE = 1_000, 0.4
# What a solver that was asked with options for large programs is not asked again without them for.
DECISIVE = ("optimal", "infeasible", "unbounded", "time_limit", "interrupted")


def large_options(compiled: Compiled, profile: SolverProfile) -> dict[str, Any]:
    """Return the options a solver is asked with first when a linear program is large."""
    form, options = compiled.form, dict(profile.large)
    rows, entries = options.pop("rows", 0), options.pop("entries", 0)
    if not options or compiled.integer.any() or form.P.nnz or form.A.nnz < entries:
        return {}
    lengths = np.diff(form.rows.indptr)
    wide = lengths > 1
    return options if wide.sum() >= rows and lengths[wide].sum() >= entries else {}


def run_highspy(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form; Ctrl-C returns the incumbent."""
    begin: list[Floats | None] = [None]

    def start(compiled: Compiled, earlier: Solution) -> str:
        if not any(name in compiled.form.columns for name in problem.integers):
            return f"not used: {profile.name} starts integer problems only from a point"
        begin[0], why = columns_of(compiled, earlier)
        return why

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        # where the last solve of the same rows ended, unless somebody says where to start
        # taken out, so that no other thread changes the model meanwhile
        kept = compiled.ended.pop(profile.name, None) if begin[0] is None else None
        more = {} if kept or request.options else large_options(compiled, profile)
        for first in [more, {}] if more else [{}]:
            raw, ended = solve_form(
                compiled.form,
                compiled.integer,
                scale,
                first | options,
                log,
                begin[0],
                kept=kept,
                solver_name=profile.name,
                # asked again, it sees what is near as it stands, though columns reach far
                in_units=request.tighter == 1.0 or not compiled.integer.any(),
            )
            if raw.status in DECISIVE:
                break
        if ended is not None:
            compiled.ended[profile.name] = ended
        return raw

    return run_generic(problem, profile, request, call, start=start)


def run_ortools(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form; Ctrl-C ends the process, which leaves no point."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        with tempfile.TemporaryDirectory(prefix="optfair-") as folder:
            if profile.route == "integer":
                bounds = _whole(problem, compiled, profile.name)
                return _in_process(Path(folder), compiled, profile, 1.0, options, log, bounds)
            return _in_process(Path(folder), compiled, profile, scale, options, log, {})

    return run_generic(problem, profile, request, call)


def _in_process(
    folder: Path,
    compiled: Compiled,
    profile: SolverProfile,
    scale: float,
    options: dict[str, Any],
    log: bool,
    bounds: dict[str, Floats],
) -> RawPoint:
    form = compiled.form
    matrix = sp.csr_array(form.A)
    arrays: dict[str, Any] = {
        "q": form.q * scale,
        "lower": np.where(form.equal, form.b, -np.inf),
        "upper": form.b,
        "data": matrix.data,
        "indices": matrix.indices,
        "indptr": matrix.indptr,
        "shape": np.array(matrix.shape),
    }
    np.savez(folder / "problem.npz", allow_pickle=False, **(arrays | bounds))
    asked = {"route": profile.route, "options": options, "log": log}
    (folder / "options.json").write_text(json.dumps(asked), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", WORKER, str(folder)],
        stdout=None if log else subprocess.DEVNULL,
        stderr=None if log else subprocess.PIPE,
        text=True,
    )
    try:
        _, said = process.communicate()
    except KeyboardInterrupt:
        process.kill()
        process.communicate()
        return RawPoint("interrupted")
    result = folder / "result.npz"
    if not result.is_file():
        last = (said or "").strip().splitlines()[-1:]
        raise SolverFailure(
            f"{profile.name} failed",
            f"its process ended with code {process.returncode}: {''.join(last)}",
            "try another solver",
        )
    with np.load(result) as file:
        reply = dict(file)
    status = str(reply["status"])
    if status == "refused":
        raise refused_options(profile.name, str(reply["message"]))
    x, y = reply.get("x"), reply.get("y")
    if status == "infeasible":
        return RawPoint(status, z=None if y is None else -y)
    if status == "unbounded":
        return RawPoint(status)
    bound = float(reply["bound"]) / scale + form.offset if "bound" in reply else None
    return RawPoint(status, x, None if y is None else -y / scale, bound)


def _whole(problem: Problem, compiled: Compiled, name: str) -> dict[str, Floats]:
    """Return the bounds of an integer program in whole numbers, and refuse any other.

    Elsewhere the solver rounds data and cuts variables off, and bounds another problem.
    """
    form = compiled.form
    lower, upper = form.column_bounds
    lower, upper = np.ceil(lower - 1e-9), np.floor(upper + 1e-9)
    owner = np.full(form.q.size, "auxiliary", dtype=object)
    for variable, at in form.columns.items():
        owner[at] = variable
    integer = np.array([who in problem.integers for who in owner])
    endless = integer & ~(np.isfinite(lower) & np.isfinite(upper))
    numbers = np.concatenate([form.q, form.A.data, form.b[form.equal]])
    fractional = numbers[numbers != np.round(numbers)]
    if not integer.all():
        why = f"it computes in whole numbers, and {owner[~integer][0]!r} is continuous"
    elif endless.any():
        why = f"{owner[endless][0]!r} has entries without lower and upper bounds"
    elif fractional.size:
        why = f"it computes in whole numbers, and the data hold {fractional[0]:.6g}"
    else:
        # whole numbers are at most b when they are at most its whole part
        return {"lower_x": lower, "upper_x": upper, "upper": np.floor(form.b + 1e-9)}
    raise UnsupportedProblem(
        f"{name} does not take this {problem.problem_class}",
        why,
        "write it with bounded integer variables and whole numbers, or choose another solver",
    )


def run_cases(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Branch and bound over cone programs: the tree that closes every case proves the bound.

    Raises
    ------
    SolverFailure
        The relaxation has no optimum, or no case that was looked at has a point.
    """
    begin = time.perf_counter()
    request.refuse_options(profile)
    compiled = compile_problem(relaxed(problem), conic_interface())
    options, size = request.solver_options(profile), compiled.form.A.nnz + compiled.form.P.nnz
    most = float(options.get("entries", np.inf)) / max(1, size)
    search = CaseSearch(problem, compiled, float(options["tolerance"]), request.deadline, most)
    start, warm = request.start(problem)
    if start is not None:
        known = all(np.isfinite(start[name]).all() for name in problem.integers)
        status = search.keep(integers_of(problem, compiled, start)) if known else "not finite"
        warm = warm if search.x.size else f"not used: its integers leave no point: {status}"
    compiled_at = time.perf_counter()
    status, x, z = search.solved(())
    if status == "infeasible":
        raise claimed_infeasible(problem, profile.name, "its relaxation has none, as it reports")
    if status == "unbounded":
        # raises what says infeasible when it is that
        alone = run_cases(problem.with_terms({}, problem.constraints), profile, request)
        left = None if request.time_limit is None else request.seconds_left
        why = "its relaxation has no limit, as it reports"
        raise unbounded(problem, profile.name, alone.values or None, why, left)
    tree: Any = None if x is None or z is None else Case(x, z)
    try:
        if not _first_point(search):
            raise claimed_infeasible(problem, profile.name, "every case is excluded in floats")
        tree, status = search.closed_below(()), "optimal"
    except SolverFailure as e:
        if e.claim:
            raise
        status = "time_limit" if time.perf_counter() > request.deadline else "inaccurate"
    except KeyboardInterrupt:
        status = "interrupted"
    seconds = stages(begin, compiled_at, time.perf_counter())
    if not search.x.size:
        return Outcome(status, {}, {}, None, seconds, warm_start=warm)
    values = with_whole(problem, compiled.values(search.x))
    proof = None if tree is None else BranchedBound(problem, compiled, search.x, tree)
    return Outcome(status, values, {}, proof, seconds, warm_start=warm)


def _first_point(search: CaseSearch) -> bool:
    """Dive for a point: what is nearest above a fraction is fixed there, or else below it.

    The integers nearest to each case are tried as well, and the best of all is kept.

    Returns
    -------
    bool
        Whether there is one: False where no case is left.

    Raises
    ------
    SolverFailure
        Time is over, or many cases were looked at.
    """
    left, lost = list[Limits]([()]), False
    most = int(min(CASES, SHARE * search.most))
    for _ in range(most):
        if not (left or lost):
            return bool(search.x.size)
        if not left:
            break
        limits = left.pop()
        if time.perf_counter() > search.deadline:
            break
        status, x, _ = search.solved(limits)
        if status != "optimal" or x is None:
            continue
        own = x[search.integer]
        near, off = np.round(own).astype(int), search.fractions(limits, x)
        ways = search.ways[: 1 if off.max(initial=0.0) > FRACTION else None]
        search.keep(dict(zip(search.integer.tolist(), near.tolist(), strict=True)), ways=ways)
        least = FRACTION if search.x.size else 0.0  # a large number may multiply what is nearly 0
        if off.max(initial=0.0) <= least:
            if search.x.size:
                return True
            lost = True  # its integers leave a point that is violated in floats
            continue
        part = np.where(off > least, own - np.floor(own), 0.0)
        at = int(part.argmax())
        j, limit = int(search.integer[at]), int(np.floor(own[at]))
        left = [] if search.x.size else left  # no way back where there is a point
        left += [(*limits, (j, True, limit)), (*limits, (j, False, limit + 1))]
    if search.x.size:
        return True
    raise SolverFailure("no case that was looked at has a point", f"at most {most} were")


def run_mosek(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form; a quadratic objective becomes a second-order cone."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        return _optimized(compiled, profile.name, scale, options, log)

    # it takes quadratic objectives with linear constraints only
    arranged = relaxed(problem)
    return run_generic(problem, profile, request, call, quadratic=False, arranged=arranged)


def build_task(form: ConicForm, integer: NDArray[np.bool_], scale: float = 1.0) -> Any:
    """Return a task that minimises q'x subject to b - Ax in the cones.

    Parameters
    ----------
    form : ConicForm
        Linear objective, any cones.
    integer : array (n,) of bool
        Columns that are integer.
    scale : float
        Factor on the objective.

    Returns
    -------
    mosek.Task
        One affine conic constraint per cone, in the order of the form. Building and writing
        it needs no licence.
    """
    import mosek

    n, m = form.q.size, form.b.size
    task = mosek.Task()
    task.appendvars(n)
    free = np.zeros(n)
    task.putvarboundlist(np.arange(n, dtype=np.int32), [mosek.boundkey.fr] * n, free, free)
    task.putclist(np.arange(n, dtype=np.int32), form.q * scale)
    task.putcfix(form.offset * scale)
    task.putobjsense(mosek.objsense.minimize)
    whole = np.flatnonzero(integer).astype(np.int32)
    task.putvartypelist(whole, [mosek.variabletype.type_int] * whole.size)
    task.appendafes(m)
    entries = sp.coo_array(form.A)
    task.putafefentrylist(entries.row.astype(np.int64), entries.col.astype(np.int32), -entries.data)
    task.putafeglist(np.arange(m, dtype=np.int64), form.b)
    for cone in form.cones:
        task.appendacc(_domain(task, cone), cone.start + _order(cone), None)
    return task


def _domain(task: Any, cone: Cone) -> int:
    size = cone.stop - cone.start
    if cone.kind == "exp":
        return int(task.appendprimalexpconedomain())
    if cone.kind == "pow":
        return int(task.appendprimalpowerconedomain(3, [cone.power, 1.0 - cone.power]))
    append = {
        "zero": task.appendrzerodomain,
        "nonneg": task.appendrplusdomain,
        "soc": task.appendquadraticconedomain,
        "psd": task.appendsvecpsdconedomain,
    }[cone.kind]
    return int(append(size))


def _order(cone: Cone) -> NDArray[np.int64]:
    """Return our rows of a block in the order of its domain.

    The exponential cone is written the other way round; a triangle goes column by column
    over the lower part.
    """
    rows = np.arange(cone.stop - cone.start, dtype=np.int64)
    if cone.kind == "exp":
        return rows[::-1].copy()
    if cone.kind == "psd" and cone.upper:
        place = np.zeros((cone.order, cone.order), dtype=np.int64)
        place[np.tril_indices(cone.order)] = rows  # upper by column = lower by row
        lower_by_column = np.triu_indices(cone.order)
        return np.asarray(place.T[lower_by_column], dtype=np.int64)
    return rows


def _optimized(
    compiled: Compiled, name: str, scale: float, options: dict[str, Any], log: bool
) -> RawPoint:
    import mosek

    with build_task(compiled.form, compiled.integer, scale) as task:
        if log:
            from optfair.backends.isolation import show_line

            task.set_Stream(mosek.streamtype.log, show_line)
        for option, value in options.items():
            try:
                task.putparam(option, repr(value) if isinstance(value, float) else str(value))
            except mosek.Error as e:
                why = f"{option} = {value!r} was refused: {e.msg or e.errno}"
                raise refused_options(name, why) from e
        try:
            stop = task.optimize()
        except mosek.Error as e:
            raise SolverFailure(
                f"{name} failed", f"{e.errno} {e.msg}".strip(), "try another solver"
            ) from e
        return _task_point(task, compiled.form, bool(compiled.integer.any()), scale, stop)


def _task_point(task: Any, form: ConicForm, mixed: bool, scale: float, stop: Any) -> RawPoint:
    import mosek

    words = {
        mosek.solsta.optimal: "optimal",
        mosek.solsta.integer_optimal: "optimal",
        mosek.solsta.prim_infeas_cer: "infeasible",
        mosek.solsta.dual_infeas_cer: "unbounded",
    }
    kind = mosek.soltype.itg if mixed else mosek.soltype.itr
    bound = task.getdouinf(mosek.dinfitem.mio_obj_bound) / scale if mixed else None
    if not task.solutiondef(kind):
        early = stop == mosek.rescode.trm_max_time
        return RawPoint("time_limit" if early else str(stop), bound=bound)
    status = words.get(task.getsolsta(kind), "inaccurate")
    if stop == mosek.rescode.trm_max_time and status == "inaccurate":
        status = "time_limit"
    x = np.asarray(task.getxx(kind), dtype=float)
    if mixed:
        return RawPoint(status, x, bound=bound)
    z = np.zeros(form.b.size)
    for i, cone in enumerate(form.cones):
        z[cone.start + _order(cone)] = task.getaccdoty(kind, i)
    if status == "infeasible":
        return RawPoint(status, z=z)
    if status == "unbounded":
        return RawPoint(status)
    return RawPoint(status, x, z / scale)


def run_extended(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form by our own method of 32 digits, until a pair is proved."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        form, tolerance = compiled.form, options.pop("tolerance", request.tolerance)
        end = time.perf_counter() + options.pop("time_limit", np.inf)
        if not has_few_numbers(form):
            raise UnsupportedProblem(
                f"{profile.name} does not take a program of {form.q.size} columns and {form.b.size} rows",
                "each number of its dense matrices is computed in 32 digits",
                "choose another solver",
            )

        good: list[tuple[Floats, Floats]] = []

        def enough(x: Floats, z: Floats) -> bool:
            if shortfall(problem, form, x, z, request.tolerance) > 0.0:
                return len(good) > 0
            if form.residuals(x, z).unpaid is None:
                good.insert(0, (x, z))
                return True
            good.append((x, z))  # of a smaller gap there may be a proof without a radius
            return len(good) == ROUNDS

        pair = central_pair(form, tolerance, end, enough, print if log else None)
        if pair is None:
            return RawPoint("time_limit" if time.perf_counter() > end else "no central path")
        return RawPoint("optimal", *good[0]) if good else RawPoint("inaccurate", *pair)

    with one_thread():
        return run_generic(problem, profile, request, call)


# What SDPA says of the program as we state it (measured on infp1 and infd1 of SDPLIB).
_PHASES = {
    "pdOPT": "optimal",
    "pINF_dFEAS": "infeasible",
    "dUNBD": "infeasible",
    "pFEAS_dINF": "unbounded",
    "pUNBD": "unbounded",
    "pdINF": "infeasible_or_unbounded",
}


def run_sdpa(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form in a process of its own: it has no clock, and may end with it."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        form = compiled.form
        program = SedumiProgram(form.cones)
        full = program.full @ sp.csr_array(form.A)
        data = {"A": full, "b": program.full @ form.b, "q": form.q * scale}
        seconds = options.pop("time_limit", np.inf)
        try:
            answer = solve_apart(
                program, data, {}, options, name=profile.name, log=log, seconds=seconds
            )
        except (TypeError, ValueError, KeyError) as e:
            raise SolverFailure(f"{profile.name} failed", str(e), "try another solver") from e
        raw = answer.raw
        if raw is None:
            return RawPoint("time_limit")
        z = np.asarray(program.full.T @ raw.z)  # off the diagonal twice 1/root(2) of an entry
        return RawPoint(_PHASES.get(raw.status, "inaccurate"), raw.x, z / scale)

    return run_generic(problem, profile, request, call, quadratic=False)


@dataclass(frozen=True)
class SedumiProgram:
    r"""Rows in the order it takes, and whole matrices instead of triangles.

    With the entries z of multipliers, it is handed
    :math:`\min b^T z` subject to :math:`A^T z = -q,\; z \in K^*`; the prices of these equations
    are x.

    Parameters
    ----------
    cones : tuple of Cone
        zero, nonneg and psd.
    """

    cones: tuple[Cone, ...]

    @property
    def full(self) -> Any:
        """The matrix (N, m) that turns our rows into its own."""
        rows = self.cones[-1].stop if self.cones else 0
        parts = [sp.csr_array((0, rows))]
        for c in self._ordered:
            own = np.arange(c.start, c.stop)
            if c.kind != "psd":
                parts.append(sp.eye_array(rows, format="csr")[own])
                continue
            (i, j), n = c.places, c.order
            off = i != j
            at = np.r_[i * n + j, (j * n + i)[off]], np.r_[own, own[off]]
            weight = np.where(off, 0.5**0.5, 1.0)
            entries = np.r_[weight, weight[off]]
            parts.append(sp.csr_array((entries, at), shape=(n * n, rows)))
        return sp.csr_array(sp.vstack(parts))

    @property
    def _ordered(self) -> list[Cone]:
        order = ("zero", "nonneg", "psd")
        return sorted(self.cones, key=lambda c: order.index(c.kind))

    def solve_via_data(
        self, data: dict[str, Any], verbose: bool, solver_opts: dict[str, Any]
    ) -> Any:
        """Solve there; what `solve_apart` calls."""
        import sdpap

        size = {"zero": 0, "nonneg": 0}
        for c in self.cones:
            size[c.kind] = size.get(c.kind, 0) + c.stop - c.start
        blocks = tuple(c.order for c in self._ordered if c.kind == "psd")
        K = sdpap.SymCone(f=size["zero"], l=size["nonneg"], s=blocks)
        A, side, cost = (sp.csc_matrix(v) for v in (data["A"].T, -data["q"], data["b"]))
        options = {"print": "display" if verbose else "no", **solver_opts}
        with contextlib.nullcontext() if verbose else _silent():
            z, x, stated, _, _ = sdpap.solve(
                A, side.T, cost.T, K, sdpap.SymCone(f=data["q"].size), options
            )
        return SimpleNamespace(
            x=x.toarray().ravel(), z=z.toarray().ravel(), status=stated["phasevalue"]
        )

    def invert(self, result: Any, inverse: Any) -> Any:
        """Return the result as it is."""
        return result


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hold back what it prints by itself; the process has nobody else who prints."""
    kept = [os.dup(n) for n in (1, 2)]
    try:
        with Path(os.devnull).open("w") as nothing:
            for n in (1, 2):
                os.dup2(nothing.fileno(), n)
            yield
    finally:
        for n, old in zip((1, 2), kept, strict=True):
            os.dup2(old, n)
            os.close(old)
