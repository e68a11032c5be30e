"""Multipliers of rows that no variable enters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

__all__ = ["unpriced"]


def unpriced(form: ConicForm, z: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return multipliers that are 0 on inequalities without variables that hold.

    .. math:: 0^T x \le b_i,\; b_i \ge 0

    Such a row changes no stationarity and adds :math:`-b_i z_i \le 0` to the bound: what an
    interior-point method leaves there is its distance from the optimum, not a price.
    """
    if z.size != form.b.size:
        return z
    idle = form.b >= 0.0
    idle[form.A.indices[form.A.data != 0.0]] = False  # of a matrix by columns
    nonneg = np.zeros(z.size, dtype=bool)
    for cone in form.cones:
        if cone.kind == "nonneg":
            nonneg[cone.start : cone.stop] = True
    idle &= nonneg
    return np.where(idle, 0.0, z) if idle.any() else z
