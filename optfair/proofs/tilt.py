"""Multipliers tilted into the interior, so that what is left over has the sign that is paid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.residual import Residual

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]

# Entries of the program that is solved, and how far it may move, in sizes of what is left over.
ENTRIES, REACH = 300_000, 1e4
# Iterations, so that it ends after as many on every machine.
ITERATIONS = 5_000
# Every column gets so much more than it lacks, relative to the largest that is left over.
MARGIN = 1e-2
# Price of a column that is left.
ELASTIC = 10.0


def tilted(
    form: ConicForm, found: Residual, x: Floats, z: Floats, lower: Floats, upper: Floats
) -> Floats | None:
    r"""Return multipliers nearby whose residuals are paid for by the bounds there are.

    A column with a lower bound alone pays for :math:`r_j \ge 0` only. The move Δ solves

    .. math::
        \min_{\Delta, e \ge 0}\; s^T \Delta + M e \quad\text{subject to}\quad
        r_j + A_j^T \Delta + e_j \ge \epsilon \text{ (lower bound alone)},\;
        r_j + A_j^T \Delta - e_j \le -\epsilon \text{ (upper bound alone)},\;
        A_j^T \Delta = 0 \text{ (neither)},

    with the slacks s, so that rows move which are active: that costs nothing. A column in which
    the optimal points are unbounded cannot be tilted, and is left. What comes out is judged by
    its own residuals; nothing here needs to be exact.

    Parameters
    ----------
    form : ConicForm
        The compiled program.
    found : Residual
        What the multipliers leave over.
    x, z : array
        Primal point, multipliers in the dual cones.
    lower, upper : array (n,)
        Bounds that pay.

    Returns
    -------
    array (m,) or None
        None where the program is too large or has no solution.
    """
    low_only = np.isfinite(lower) & ~np.isfinite(upper)
    high_only = np.isfinite(upper) & ~np.isfinite(lower)
    neither = ~(np.isfinite(lower) | np.isfinite(upper))
    unpaid = found.unpaid(lower, upper)
    unit = float(found.size[unpaid].max(initial=0.0))
    if (
        form.A.nnz > ENTRIES
        or not (0.0 < unit < np.inf)
        or not (low_only | high_only)[unpaid].any()
    ):
        return None
    room, moving = np.zeros(z.size), np.zeros(z.size, dtype=bool)
    for c in form.cones:
        if c.kind in ("zero", "nonneg"):
            at = slice(c.start, c.stop)
            room[at] = np.inf if c.kind == "zero" else z[at]
            moving[at] = True
    rows = np.flatnonzero(moving)
    by_column: Any = sp.csr_array(sp.csr_array(form.A)[rows].T)
    slack = np.maximum(form.slack(x)[rows], 0.0)
    size = max(float(slack.max(initial=0.0)), 1.0)
    cost = np.concatenate([slack, -slack]) / size + 1e-6
    most = np.concatenate([np.full(rows.size, REACH), np.minimum(room[rows] / unit, REACH)])
    both = sp.hstack([by_column, -by_column], format="csr")
    # r + A'Δ + e >= margin for columns that are short of it; the others keep what they have
    A_ub, b_ub = [], []
    for one, sign, own in ((low_only, -1.0, found.low), (high_only, 1.0, -found.high)):
        columns = np.flatnonzero(one & (own < REACH * unit))
        spare = own[columns] / unit
        A_ub.append(sign * both[columns])
        b_ub.append(np.where(spare > 0.0, 0.99 * spare, spare - MARGIN))
    side = np.concatenate(b_ub)
    elastic = -sp.eye_array(side.size, format="csr")[:, np.flatnonzero(side < 0.0)]
    columns = np.flatnonzero(neither)
    if not all(np.isfinite(part).all() for part in (cost, side, most, both.data)):
        return None
    solve: Any = scipy.optimize.linprog
    answer = solve(
        np.concatenate([cost, np.full(elastic.shape[1], ELASTIC)]),
        A_ub=sp.hstack([sp.vstack(A_ub), elastic], format="csr"),
        b_ub=side,
        A_eq=sp.hstack(
            [both[columns], sp.csr_array((columns.size, elastic.shape[1]))], format="csr"
        ),
        b_eq=np.zeros(columns.size),
        bounds=np.column_stack(
            [
                np.zeros(most.size + elastic.shape[1]),
                np.append(most, np.full(elastic.shape[1], np.inf)),
            ]
        ),
        method="highs-ds",
        options={"maxiter": ITERATIONS},
    )
    if answer.status != 0:
        return None
    step = np.zeros(z.size)
    step[rows] = unit * (answer.x[: rows.size] - answer.x[rows.size : 2 * rows.size])
    return np.asarray(z + step)
