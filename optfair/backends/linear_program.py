"""The one file that talks to highspy: programs from arrays, without a modelling layer."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.isolation import ask_for_room, in_thread
from optfair.backends.request import RawPoint, refused_options
from optfair.numbers import Floats, Indices
from optfair.proofs.rounding import coordinates
from optfair.solution.conic_form import ConicForm
from optfair.solution.singletons import STEEPEST, Limits, Singletons


@dataclass(frozen=True)
class LinearProgramResult:
    """Outcome of one linear program.

    Attributes
    ----------
    status : str
        optimal, infeasible, unbounded or failed.
    x : array (n,)
        Primal values.
    prices : array (m,)
        d(objective)/d(row bound).
    bound : float
        Of a program with integers: what no point is below, as the solver says.
    """

    status: str
    x: Floats
    prices: Floats
    bound: float = -np.inf

    @classmethod
    def of(cls, solver: Any) -> LinearProgramResult:
        """Return what a solver ended with."""
        solution = solver.getSolution()
        x, prices = (np.asarray(v, dtype=float) for v in (solution.col_value, solution.row_dual))
        return cls(_STATUS.get(solver.getModelStatus(), "failed"), x, prices)


class _Highs(highspy.Highs):  # type: ignore[misc]
    """HiGHS, silent until it is asked to speak: from 1.16 on it greets whoever makes one."""

    def enableCallbacks(self) -> None:
        """Start what its constructor starts."""
        self.silent()
        super().enableCallbacks()

    def run(self) -> Any:
        """Run where there is memory to run in, and where others ran with another number of threads.

        Threads are kept for the whole process: a program that CVXPY solved by all of them would
        leave every later one here refused.
        """
        ask_for_room()
        status = super().run()
        if status == highspy.HighsStatus.kError and self.getModelStatus() == _Status.kNotset:
            highspy.Highs.resetGlobalScheduler(True)
            status = super().run()
        return status


_Status = highspy.HighsModelStatus
_STATUS = {
    _Status.kOptimal: "optimal",
    _Status.kInfeasible: "infeasible",
    _Status.kUnbounded: "unbounded",
    _Status.kUnboundedOrInfeasible: "infeasible_or_unbounded",
    _Status.kTimeLimit: "time_limit",
    _Status.kIterationLimit: "time_limit",
    _Status.kSolutionLimit: "time_limit",
    _Status.kInterrupt: "interrupted",
}


def _simplex(tolerance: float, **more: Any) -> _Highs:
    """Return a solver that is silent, in one thread, by the simplex method unless told otherwise."""
    held = {f"{side}_feasibility_tolerance": tolerance for side in ("primal", "dual")}
    model = _Highs()
    for name, value in {"solver": "simplex", "threads": 1, **held, **more}.items():
        model.setOptionValue(name, value)
    return model


def _passed(
    solver: Any,
    cost: Floats,
    rows: Any,
    row_lower: Floats,
    row_upper: Floats,
    lower: Floats,
    upper: Floats,
    *,
    hessian: Any = None,
    integer: NDArray[np.bool_] | None = None,
) -> None:
    """Hand a program over as arrays: the attributes of a model are lists, filled entry by entry."""
    (m, n), columns = rows.shape, _columns(rows)
    none = np.zeros(0, dtype=np.int32)
    square = (np.zeros(n + 1, dtype=np.int32), none, np.zeros(0)) if hessian is None else hessian
    kinds = np.zeros(n, dtype=np.int32) if integer is None else integer.astype(np.int32)
    solver.passModel(
        n,
        m,
        columns[2].size,
        square[2].size,
        int(highspy.MatrixFormat.kColwise),
        int(highspy.HessianFormat.kTriangular),
        int(highspy.ObjSense.kMinimize),
        0.0,
        *(np.asarray(v, dtype=float) for v in (cost, lower, upper, row_lower, row_upper)),
        *columns,
        *square,
        kinds,
    )


def _columns(matrix: Any) -> tuple[Any, Any, Floats]:
    """Return where columns start, and rows and values of their entries."""
    by_column = matrix if getattr(matrix, "format", "") == "csc" else sp.csc_array(matrix)
    start, index = by_column.indptr.astype(np.int32), by_column.indices.astype(np.int32)
    return start, index, np.asarray(by_column.data, dtype=float)


def _lower_triangle(P: Any, scale: float) -> tuple[Any, Any, Floats]:
    """Return the columns of the lower triangle of a symmetric matrix, given by rows."""
    column, row, entry = coordinates(P)  # by columns it is the same
    low = row >= column
    start = np.append(0, np.cumsum(np.bincount(column[low], minlength=P.shape[0])))
    return start.astype(np.int32), row[low].astype(np.int32), entry[low] * scale


def row_scale(matrix: Any) -> Floats:
    """Return the factors that bring the largest entry of every row to 1."""
    if matrix.shape[0] == 0:
        return np.ones(0)
    largest = np.asarray(abs(sp.csr_array(matrix)).max(axis=1).todense()).ravel()
    return np.asarray(1.0 / np.where(largest > 0.0, largest, 1.0))


# Feasibility tolerance of a second try where the simplex method has lost its way among ties.
LOOSER = 1e-9


def solve_linear_program(
    cost: Floats,
    rows: Any,
    row_lower: Floats,
    row_upper: Floats,
    lower: Floats,
    upper: Floats,
    *,
    tolerance: float = 1e-10,
    time_limit: float = np.inf,
    integer: NDArray[np.bool_] | None = None,
    gap: float = 0.0,
    start: Floats | None = None,
    presolve: bool = True,
    units: Floats | None = None,
    central: bool = False,
) -> LinearProgramResult:
    """Minimise ``cost @ x`` subject to row and column bounds, by the dual simplex method.

    A basic solution is returned (simplex), which the callers rely on for sparsity. Where some
    columns are integer it branches until incumbent and bound differ by ``gap``, from the point
    ``start`` (NaN where nothing is known); at the time limit the incumbent is returned, if there is one.
    What fails at a smaller tolerance is tried once more at `LOOSER`. With ``units`` columns are in
    these and rows have a largest entry of 1 in the solver's program, which tolerances refer to.
    A ``central`` solution is none of a basis: where many are optimal it is in their middle, as are
    the prices.
    """
    more: dict[str, Any] = {"time_limit": time_limit, "presolve": presolve}
    if units is not None:
        rows = sp.csr_array(rows @ sp.diags_array(units))
        scale = row_scale(rows)
        within: Any = row_lower * scale, row_upper * scale, lower / units, upper / units
        more |= {"tolerance": tolerance, "integer": integer, "gap": gap, "central": central}
        more["start"] = None if start is None else start / units
        result = solve_linear_program(cost * units, sp.diags_array(scale) @ rows, *within, **more)
        known = result.prices * scale if result.prices.size else result.prices
        return replace(result, x=result.x * units if result.x.size else result.x, prices=known)
    limit: dict[str, Any] = {"time_limit": max(time_limit, 1e-3)} if np.isfinite(time_limit) else {}
    if not presolve:
        limit["presolve"] = "off"
    if integer is not None:
        limit |= {"mip_rel_gap": 0.0, "mip_abs_gap": gap, "mip_feasibility_tolerance": 1e-9}
    if central:
        limit |= {"solver": "ipm", "run_crossover": "off"}
    elif integer is not None:
        limit["solver"] = "choose"
    solver = _simplex(tolerance, **limit)
    _passed(solver, cost, rows, row_lower, row_upper, lower, upper, integer=integer)
    if start is not None:
        known = np.flatnonzero(~np.isnan(start)).astype(np.int32)
        solver.setSolution(known.size, known, start[known])
    solver.run()
    if integer is None:
        result = LinearProgramResult.of(solver)
        if result.status != "failed" or (tolerance >= LOOSER and not central):
            return result
        stated: Any = cost, rows, row_lower, row_upper, lower, upper
        return solve_linear_program(*stated, tolerance=LOOSER, **more)
    solution = solver.getSolution()
    held = np.asarray(solution.col_value if solution.value_valid else [], dtype=float)
    bound = float(solver.getInfo().mip_dual_bound)
    return replace(LinearProgramResult.of(solver), x=held, prices=np.zeros(0), bound=bound)


class HeldProgram:
    """A linear program whose columns' limits change: solved again from where it ended.

    Parameters
    ----------
    cost, rows, row_lower, row_upper, lower, upper
        As in `solve_linear_program`.
    tolerance : float
        Feasibility tolerance.

    Examples
    --------
    >>> one, two = np.ones(1), np.ones(2)
    >>> rows = sp.csc_array([[1.0, 1.0]])
    >>> held = HeldProgram(np.array([1.0, 2.0]), rows, one, one, 0.0 * two, two, tolerance=1e-9)
    >>> held.solve(np.array([0]), 0.0 * one, 0.25 * one).x.tolist()
    [0.25, 0.75]
    """

    def __init__(
        self,
        cost: Floats,
        rows: Any,
        row_lower: Floats,
        row_upper: Floats,
        lower: Floats,
        upper: Floats,
        *,
        tolerance: float,
    ) -> None:
        self._model = _simplex(tolerance)
        _passed(self._model, cost, rows, row_lower, row_upper, lower, upper)

    def solve(
        self, columns: NDArray[np.intp], lower: Floats, upper: Floats, time_limit: float = np.inf
    ) -> LinearProgramResult:
        """Solve with limits on some columns, the others as they were last."""
        model = self._model
        model.changeColsBounds(columns.size, columns.astype(np.int32), lower, upper)
        if np.isfinite(time_limit):
            model.setOptionValue("time_limit", model.getRunTime() + max(time_limit, 1e-3))
        model.run()
        return LinearProgramResult.of(model)

    def add_rows(self, rows: Any, lower: Floats, upper: Floats) -> None:
        """Add rows between sides."""
        A = sp.csr_array(rows)
        start, index = A.indptr[:-1].astype(np.int32), A.indices.astype(np.int32)
        self._model.addRows(lower.size, lower, upper, A.nnz, start, index, A.data)

    def set_costs(self, columns: Indices, cost: Floats) -> None:
        """Give some columns other costs."""
        self._model.changeColsCost(columns.size, columns.astype(np.int32), cost)


@dataclass(frozen=True, eq=False)
class Kept:
    """A solver that has solved a linear form, the rows of the form, and its bounds."""

    solver: Any
    rows: Any
    limits: Limits

    @property
    def basis(self) -> Any:
        """The basis it ended with."""
        return self.solver.getBasis()

    def nonbasic(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the columns and the rows of the form that are at a side in its basis.

        A column at a bound is one that the row of its bound holds.
        """
        states, basis, limits = highspy.HighsBasisStatus, self.basis, self.limits
        column, row = (np.array([int(s) for s in v]) for v in (basis.col_status, basis.row_status))
        rows = np.zeros(limits.of.size[0], dtype=bool)
        rows[limits.of.others] = row != int(states.kBasic)
        columns = column != int(states.kBasic)
        owner = np.where(limits.least >= 0, limits.least, limits.most)
        owner = np.where((column == int(states.kUpper)) & (limits.most >= 0), limits.most, owner)
        at = np.flatnonzero(columns & (owner >= 0))
        rows[limits.of.rows[owner[at]]] = True
        columns[at] = False
        return columns, rows


# Entries up to which a linear program ends sooner than a thread that listens is worth.
BRIEF = 5_000
# Times its limit, and seconds more, after which the solver is left to itself.
LATE, SLOW = 1.5, 5.0
# Steps of an active-set method for each row and column, far more than one that ends takes.
CIRCLES = 50


def solve_form(
    form: ConicForm,
    integer: NDArray[np.bool_],
    scale: float,
    options: dict[str, Any],
    log: bool,
    start: Floats | None = None,
    *,
    kept: Kept | None = None,
    solver_name: str = "the solver",
    in_units: bool = True,
) -> tuple[RawPoint, Kept | None]:
    """Solve a polyhedral form with a linear or convex quadratic objective.

    Parameters
    ----------
    form : ConicForm
        Zero and nonnegative cones only.
    integer : array (n,) of bool
        Columns that are integer.
    scale : float
        Factor on the objective while it is solved.
    options : dict
        Options by the solver's own names.
    log : bool
        Show the solver's log.
    start : array (n,), optional
        Point to start from, NaN where none is known.
    kept : Kept, optional
        Where an earlier solve of a linear form of this shape ended. Nobody else may use it while
        this one does.
    solver_name : str
        What errors call it.
    in_units : bool
        Whether it may be handed over in units in which its numbers are near 1.

    Returns
    -------
    RawPoint, Kept or None
        What it found, and where a linear form that was solved ended.

    Raises
    ------
    UnsupportedProblem
        An option the solver does not have.
    """
    # it drops coefficients below 1e-9 and holds rows to absolute tolerances
    declared = form, scale
    scaled = form.handed(integer) if in_units else None
    if scaled is not None:
        form, rows, columns = scaled.form, scaled.rows, scaled.columns
        scale = form.cost_scale("typical")
    if form.P.nnz:  # an active-set method goes round in circles where its numbers are small
        scale = max(form.cost_scale("largest"), form.cost_scale("typical"))
    held = kept is not None and kept.rows is form.A and not form.P.nnz and not integer.any()
    solver = kept.solver if kept is not None and held else _Highs()
    if held:
        solver.resetOptions()
    solver.setOptionValue("output_flag", log)
    if form.P.nnz:
        solver.setOptionValue("qp_iteration_limit", CIRCLES * (100 + sum(form.A.shape)))
    for name, value in options.items():
        try:
            fine = solver.setOptionValue(name, value) != highspy.HighsStatus.kError
        except TypeError:
            fine = False
        if not fine:
            raise refused_options(solver_name, f"{name} = {value!r} was refused")
    if kept is not None and held:
        singles = kept.limits.of
    else:  # of a quadratic program all are rows: its active-set method is more accurate so
        singles = Singletons(form, integer, 0.0 if form.P.nnz else STEEPEST)
    tolerance = solver.getOptionValue("primal_feasibility_tolerance")[1]
    limits, farkas = singles.limits(form.b).crossed(tolerance)
    whole = integer if integer.any() else None
    if farkas is not None:
        raw = RawPoint("infeasible", z=farkas)
    else:
        if held and kept is not None:
            _changed(solver, form, scale, limits)
        else:
            lower = _lower_triangle(form.bending.rows, scale) if form.P.nnz else None
            sides = *_row_sides(singles, form), limits.lower, limits.upper
            _passed(solver, form.q * scale, singles.A, *sides, hessian=lower, integer=whole)
            if kept is not None:
                solver.setBasis(kept.basis)
        if start is not None:
            known = np.flatnonzero(~np.isnan(start)).astype(np.int32)
            units = 1.0 if scaled is None else columns[known]
            solver.setSolution(known.size, known, start[known] / units)
        try:
            late = _run(solver, brief=form.A.nnz <= BRIEF and not form.P.nnz and whole is None)
        except TimeoutError:
            return RawPoint("time_limit"), None
        raw = _raw(solver, limits, scale, form.offset)
        raw = replace(raw, status="time_limit") if late and raw.status == "interrupted" else raw
    if scaled is not None and raw.status == "kSolveError":  # its presolve fails on some of these
        form, scale = declared
        again: dict[str, Any] = {"solver_name": solver_name, "in_units": False}
        return solve_form(form, integer, scale, options, log, start, **again)
    if raw.status == "infeasible" and raw.z is None and not integer.any():
        left = float(options.get("time_limit", np.inf)) - solver.getRunTime()
        rows_held = HeldRows(form, min(1e-9, tolerance))
        raw = replace(raw, z=rows_held.solve(np.ones(form.b.size, bool), left).z)
    if scaled is not None:
        raw = replace(
            raw,
            x=None if raw.x is None else raw.x * columns,
            z=None if raw.z is None else raw.z * rows,
        )
    if kept is not None:
        raw = replace(raw, kept="the model of the last solve" if held else "its basis")
    linear = raw.status == "optimal" and not integer.any() and not form.P.nnz
    return raw, Kept(solver, form.A, limits) if linear else None


def _row_sides(singles: Singletons, form: ConicForm) -> tuple[Floats, Floats]:
    """Return the lower and the upper sides of the rows of more than one entry."""
    high = form.b[singles.others]
    return np.where(form.equal[singles.others], high, -np.inf), high


def _changed(solver: Any, form: ConicForm, scale: float, limits: Limits) -> None:
    """Give a model that is held other costs and sides."""
    low, high = _row_sides(limits.of, form)
    rows, columns = (np.arange(v.size, dtype=np.int32) for v in (high, form.q))
    solver.changeColsCost(columns.size, columns, form.q * scale)
    solver.changeRowsBounds(rows.size, rows, low, high)
    solver.changeColsBounds(columns.size, columns, limits.lower, limits.upper)


def _run(solver: Any, *, brief: bool) -> bool:
    """Solve; at Ctrl-C the solver ends where it is, unless it ends soon by itself.

    Returned is whether it had to be told that its time was over. Where bounds of integers are far
    out it may tighten them for ever, by 1 each, and hear nothing: `TimeoutError` is raised then,
    and nobody may use the solver again.
    """
    limit, begin = LATE * float(solver.getOptionValue("time_limit")[1]) + SLOW, time.monotonic()
    elsewhere = threading.current_thread() is not threading.main_thread()
    if brief or (elsewhere and limit == np.inf):
        solver.run()  # to other threads Ctrl-C never comes
        return False
    stopped: list[float] = []

    def ask(event: Any) -> None:
        if stopped:
            event.interrupt()

    def run() -> None:
        solver.run()
        # the threads it keeps belong to the one that made them
        highspy.Highs.resetGlobalScheduler(False)

    listening = (solver.cbSimplexInterrupt, solver.cbIpmInterrupt, solver.cbMipInterrupt)
    for callback in listening:
        callback.subscribe(ask)
    try:
        in_thread(run, lambda: stopped.append(time.monotonic() - begin), limit)
    finally:
        for callback in listening:
            callback.unsubscribe(ask)
    return bool(stopped) and stopped[0] >= limit


class HeldRows:
    r"""Linear rows of which some hold: one model, solved again from where it ended.

    .. math:: A_S x + s = b_S, \; s \in K_S

    without an objective, for one set S of rows after the other. Rows of one entry become bounds
    of their columns, and get their multipliers back from what the others leave there.

    Parameters
    ----------
    form : ConicForm
        Zero and nonnegative cones only; its objective is left aside.
    tolerance : float
        By how much rows may be violated.

    Examples
    --------
    >>> from optfair.proofs.cones import Cone
    >>> A, b = sp.csc_array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]), np.array([1.0, -1.0, -1.0])
    >>> form = ConicForm(sp.csc_array((2, 2)), np.zeros(2), 0.0, A, b, (Cone("nonneg", 0, 3),))
    >>> rows = HeldRows(form, 1e-9)
    >>> rows.solve(np.array([True, True, False])).status
    'optimal'
    >>> found = rows.solve(np.ones(3, dtype=bool))
    >>> found.status, bool((A.T @ found.z == 0.0).all() and b @ found.z < 0.0)
    ('infeasible', True)
    """

    def __init__(self, form: ConicForm, tolerance: float) -> None:
        self._stated = form, tolerance
        scaled = form.near_one
        self._units = None if scaled is None else scaled[1:]
        self._form = form = form if scaled is None else scaled[0]
        self._tolerance, self._singles = tolerance, Singletons(form)
        # rows that presolve finds to exclude each other it solves again for a ray
        self._model = _simplex(tolerance, presolve="off")
        free, none = (np.full(k, np.inf) for k in self._singles.A.shape)
        _passed(self._model, 0.0 * form.q, self._singles.A, -free, free, -none, none)

    def __reduce__(self) -> Any:
        return HeldRows, self._stated

    def solve(self, held: NDArray[np.bool_], time_limit: float = np.inf) -> RawPoint:
        """Return a point that satisfies some rows, or a Farkas vector on them.

        Parameters
        ----------
        held : array (m,) of bool
            Which rows hold.
        time_limit : float
            Wall seconds.
        """
        form, model, singles = self._form, self._model, self._singles
        on = held[singles.others]
        low, high = (
            np.where(on, v, sign * np.inf)
            for v, sign in zip(_row_sides(singles, form), (-1.0, 1.0), strict=True)
        )
        limits, farkas = singles.limits(form.b, held).crossed(self._tolerance)
        if farkas is not None:
            return self._answered("infeasible", z=farkas)
        rows, columns = (np.arange(v.size, dtype=np.int32) for v in (high, form.q))
        model.changeRowsBounds(rows.size, rows, low, high)
        model.changeColsBounds(columns.size, columns, limits.lower, limits.upper)
        model.setOptionValue("time_limit", model.getRunTime() + max(time_limit, 1e-3))
        model.run()
        status = _STATUS.get(model.getModelStatus(), "failed")
        if status == "infeasible":
            ray = _ray(model, limits, on)
            return self._answered(status, z=_alone(form, held) if ray is None else ray)
        point = np.asarray(model.getSolution().col_value, dtype=float)
        return self._answered(status, x=point if status == "optimal" else None)

    def _answered(self, status: str, x: Floats | None = None, z: Floats | None = None) -> RawPoint:
        """Return what was found in the units of the form that was given."""
        if self._units is not None:
            rows, columns = self._units
            x, z = None if x is None else x * columns, None if z is None else z * rows
        return RawPoint(status, x, z)


def _ray(solver: Any, limits: Limits, on: NDArray[np.bool_] | None = None) -> Floats | None:
    """Return the Farkas vector of the form that a solver ended with, if it did."""
    ray = solver.getDualRay()
    if not ray[1]:
        return None
    others = -np.asarray(ray[2], dtype=float) * (1.0 if on is None else on)
    return limits.multipliers(others, limits.of.A.T @ others)


def _alone(form: ConicForm, held: NDArray[np.bool_]) -> Floats | None:
    """Return the Farkas vector of a row without entries that nothing satisfies, None without one."""
    empty = held & (np.diff(form.rows.indptr) == 0)
    wrong = empty & ((form.equal & (form.b != 0.0)) | (form.nonnegative & (form.b < 0.0)))
    if not wrong.any():
        return None
    z = np.zeros(form.b.size)
    at = int(np.where(wrong, np.abs(form.b), 0.0).argmax())
    z[at] = -np.sign(form.b[at])
    return z


def _raw(solver: Any, limits: Limits, scale: float, offset: float) -> RawPoint:
    model_status = solver.getModelStatus()
    status = _STATUS.get(model_status, model_status.name)
    if status == "infeasible":
        # asked for a ray that presolve left out, it solves again, with bounds as rows
        return RawPoint(status, z=_ray(solver, limits) if solver.getDualRayExist()[1] else None)
    if status in ("unbounded", "infeasible_or_unbounded"):
        return RawPoint(status)
    solution, info = solver.getSolution(), solver.getInfo()
    x = np.asarray(solution.col_value, dtype=float) if solution.value_valid else None
    z = None
    if solution.dual_valid:
        prices, left = (np.asarray(v, dtype=float) for v in (solution.row_dual, solution.col_dual))
        z = limits.multipliers(-prices / scale, left / scale)
    bound = float(info.mip_dual_bound) / scale + offset
    steps = (info.simplex_iteration_count, info.ipm_iteration_count, info.qp_iteration_count)
    return RawPoint(status, x, z, bound, sum(max(0, int(k)) for k in steps))
