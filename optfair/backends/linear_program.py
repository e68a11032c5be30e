"""The one file that talks to highspy: linear programs from arrays, without a modelling layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

__all__ = ["LinearProgramResult", "solve_linear_program"]


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
    """

    status: str
    x: Floats
    prices: Floats
    iterations: int


_STATUS = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kUnbounded: "unbounded",
    highspy.HighsModelStatus.kUnboundedOrInfeasible: "infeasible",
}


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
    presolve: bool = True,
) -> LinearProgramResult:
    """Minimise ``cost @ x`` subject to row and column bounds, by the dual simplex method.

    A basic solution is returned (simplex), which the callers rely on for sparsity.
    """
    matrix = sp.csc_array(rows)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = matrix.shape[1], matrix.shape[0]
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, lower, upper
    lp.row_lower_, lp.row_upper_ = row_lower, row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = matrix.indptr
    lp.a_matrix_.index_ = matrix.indices
    lp.a_matrix_.value_ = matrix.data
    solver = highspy.Highs()
    solver.silent()
    options = {
        "solver": "simplex",
        "threads": 1,
        "presolve": "on" if presolve else "off",
        "primal_feasibility_tolerance": tolerance,
        "dual_feasibility_tolerance": tolerance,
    }
    if np.isfinite(time_limit):
        options["time_limit"] = max(time_limit, 1e-3)
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(lp)
    solver.run()
    status = _STATUS.get(solver.getModelStatus(), "failed")
    solution = solver.getSolution()
    return LinearProgramResult(
        status=status,
        x=np.asarray(solution.col_value, dtype=float),
        prices=np.asarray(solution.row_dual, dtype=float),
        iterations=int(solver.getInfo().simplex_iteration_count),
    )
