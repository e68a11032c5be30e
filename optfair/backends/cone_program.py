"""The one file that talks to clarabel: cone programs from arrays, and solvers that can be stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import clarabel
import numpy as np
import scipy.sparse as sp

from optfair.numbers import Floats
from optfair.proofs.cones import Cone
from optfair.solution.units import equilibrium

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


@dataclass(frozen=True)
class ConeProgramResult:
    """Outcome of one cone program: status, primal x and multipliers z."""

    status: str
    x: Floats
    z: Floats
    iterations: int


_STATUS = {
    "Solved": "optimal",
    "AlmostSolved": "optimal",
    "InsufficientProgress": "optimal",
    "PrimalInfeasible": "infeasible",
    "AlmostPrimalInfeasible": "infeasible",
    "DualInfeasible": "unbounded",
    "AlmostDualInfeasible": "unbounded",
}


def solve_cone_program(
    P: Any,
    q: Floats,
    A: Any,
    b: Floats,
    cones: tuple[Cone, ...],
    *,
    tolerance: float = 1e-11,
    time_limit: float = np.inf,
    scattered: bool = False,
) -> ConeProgramResult:
    """Minimise ½xᵀPx + qᵀx subject to b - Ax in the cones.

    The tolerance is asked for, not promised: callers verify what comes back, so a stop for
    lack of progress is handed on as a candidate rather than thrown away. Rows that are
    ``scattered``, each on a few variables with no pattern, are factored entry by entry: the
    default looks for dense blocks, and takes up to four times as long where there are none.
    """
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    if scattered:
        settings.direct_solve_method = "qdldl"
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    if np.isfinite(time_limit):
        settings.time_limit = max(time_limit, 1e-3)
    blocks = [_cone(c) for c in cones]
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(sp.triu(sp.csc_matrix(P))), q, sp.csc_matrix(A), b, blocks, settings
    )
    result = solver.solve()
    status = _STATUS.get(str(result.status), "failed")
    return ConeProgramResult(status, np.array(result.x), np.array(result.z), int(result.iterations))


def _cone(cone: Cone) -> Any:
    size = cone.stop - cone.start
    if cone.kind == "zero":
        return clarabel.ZeroConeT(size)
    if cone.kind == "nonneg":
        return clarabel.NonnegativeConeT(size)
    if cone.kind == "soc":
        return clarabel.SecondOrderConeT(size)
    if cone.kind == "psd":
        return clarabel.PSDTriangleConeT(cone.order)
    if cone.kind == "exp":
        return clarabel.ExponentialConeT()
    return clarabel.PowerConeT(cone.power)


def solve_form(
    form: ConicForm, unit: float, *, tolerance: float, time_limit: float, scattered: bool = False
) -> ConeProgramResult:
    """Solve a compiled program with its costs times a unit.

    Where that ends with a claim that there is no optimum it is solved again, in units in which the
    largest entries of rows and columns are near 1: absolute residuals mislead a solver there.
    """
    begin = time.perf_counter()

    def solved(near: ConicForm, unit: float, left: float) -> ConeProgramResult:
        raw = solve_cone_program(
            near.P * unit,
            near.q * unit,
            near.A,
            near.b,
            near.cones,
            tolerance=tolerance,
            time_limit=left,
            scattered=scattered,
        )
        return replace(raw, z=raw.z / unit)

    raw = solved(form, unit, time_limit)
    left = time_limit - (time.perf_counter() - begin)
    if raw.status not in ("infeasible", "unbounded") or left <= 0.0:
        return raw
    rows, columns = equilibrium(form)
    near = form.in_units(rows, columns)
    again = solved(near, near.cost_scale("largest"), left)
    if again.status != "optimal":
        return raw  # the claim stands
    return replace(again, x=again.x * columns, z=again.z * rows)


class Stoppable:
    """A solver for CVXPY's interface that is asked at every iteration whether it should go on.

    It has the methods that CVXPY's interface calls on a solver it finds in its cache: the one place
    where the object can be reached before it solves.

    Parameters
    ----------
    cones : object
        CVXPY's sizes of the cones.
    before : Stoppable, optional
        What solved other numbers of the same pattern: its memory is taken over.
    """

    def __init__(self, cones: Any, before: Stoppable | None = None) -> None:
        from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import dims_to_solver_cones

        self._cones = dims_to_solver_cones(cones)
        self._solver: Any = None if before is None else before._solver
        self._stopped = False

    def stop(self) -> None:
        """End at the next iteration."""
        self._stopped = True

    def is_data_update_allowed(self) -> bool:
        """Whether `update` may be called."""
        return True

    def get_settings(self) -> Any:
        """Return the settings of the last solve, or those of no solve."""
        return clarabel.DefaultSettings() if self._solver is None else self._solver.get_settings()

    def update(self, *, P: Any, q: Any, A: Any, b: Any, settings: Any) -> None:
        """Take numbers: in the place of the last ones where the pattern is the same."""
        if self._solver is not None and self._solver.is_data_update_allowed():
            try:
                self._solver.update(P=P, q=q, A=A, b=b, settings=settings)
                return
            except Exception:  # another pattern; its errors have no tree
                self._solver = None
        self._solver = clarabel.DefaultSolver(P, q, A, b, self._cones, settings)

    def solve(self) -> Any:
        """Return the solver's own result, of the last iterate where it was stopped."""
        self._solver.set_termination_callback(lambda info: self._stopped)
        try:
            return self._solver.solve()
        finally:
            self._solver.unset_termination_callback()
