"""Entropic transport: an approximation of the Kantorovich problem, never a solution of it."""

from __future__ import annotations

import warnings

import numpy as np
import ot
from numpy.typing import NDArray

Floats = NDArray[np.float64]

__all__ = ["entropic_plan"]


def entropic_plan(cost: Floats, regularization: float, *, max_iter: int = 1_000) -> Floats:
    r"""Return the plan of entropic transport between uniform marginals.

    .. math:: \min_\Gamma\; \langle C, \Gamma\rangle + \lambda \textstyle\sum_{ij}
              \Gamma_{ij} (\log \Gamma_{ij} - 1)
              \quad\text{s.t.}\quad \Gamma 1 = 1/n_0,\; \Gamma^T 1 = 1/n_1

    An approximation of the problem with λ = 0: every pair gets some mass. The column
    marginal holds to 1e-6 or to what ``max_iter`` steps reach, the row marginal exactly.

    Parameters
    ----------
    cost : array (n0, n1)
        Cost matrix C.
    regularization : float
        λ > 0, in units of the cost.
    max_iter : int
        Largest number of Sinkhorn steps; potentials are absorbed in the logarithmic domain.

    Returns
    -------
    array (n0, n1)

    Examples
    --------
    >>> import numpy as np
    >>> entropic_plan(np.array([[0.0, 1.0], [1.0, 0.0]]), 0.1).round(3)
    array([[0.5, 0. ],
           [0. , 0.5]])

    References
    ----------
    Cuturi: Sinkhorn Distances, NIPS 2013.
    """
    n0, n1 = cost.shape
    a, b = np.full(n0, 1.0 / n0), np.full(n1, 1.0 / n1)
    # a shift of rows and columns changes no plan, and no row or column then underflows at once
    shifted = cost - cost.min(axis=1, keepdims=True)
    shifted = shifted - shifted.min(axis=0)
    settings = {"numItermax": max_iter, "stopThr": 1e-6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left of the error is taken from the rows below
        plan = ot.bregman.sinkhorn_stabilized(a, b, shifted, regularization, **settings)
        if not np.isfinite(plan).all():  # slower, and sure
            plan = ot.bregman.sinkhorn_log(a, b, shifted, regularization, **settings)
    plan = np.asarray(plan, dtype=float)
    return np.asarray(plan * (a / plan.sum(axis=1))[:, None])
