"""The one file that talks to mosek: the compiled form as affine conic constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.generic import run_generic
from optfair.backends.request import RawPoint, refused_options
from optfair.errors import SolverFailure
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem
    from optfair.proofs.cones import Cone
    from optfair.solution.conic_form import ConicForm


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form; a quadratic objective becomes a second-order cone."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        form = compiled.form
        integer = np.zeros(form.q.size, dtype=bool)
        for name in problem.integers:
            if name in form.columns:
                integer[form.columns[name]] = True
        return _call(form, integer, profile.name, scale, options, log)

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


def _call(
    form: ConicForm,
    integer: NDArray[np.bool_],
    name: str,
    scale: float,
    options: dict[str, Any],
    log: bool,
) -> RawPoint:
    import mosek

    mixed = bool(integer.any())
    with build_task(form, integer, scale) as task:
        if log:
            from optfair.backends.terminal import show_line

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
        return _read(task, form, mixed, scale, stop)


def _read(task: Any, form: ConicForm, mixed: bool, scale: float, stop: Any) -> RawPoint:
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
