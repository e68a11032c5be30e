"""Best centers of given clusters, where they have a closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

__all__ = ["CENTERS", "best_centers"]


def best_centers(metric: str, X: Floats, weights: Floats) -> Floats:
    r"""Return the centers of least cost.

    .. math:: \mu_k \in \arg\min_\mu \textstyle\sum_i v_{ik}\, D(x_i, \mu)

    Parameters
    ----------
    metric : {"sqeuclidean", "l1"}
        A key of ``CENTERS``: weighted means, or weighted medians of each column (the lower
        one where an interval is optimal).
    X : array (n, d)
        Rows.
    weights : array (n, K)
        Weight v of each row in each cluster; every column has a positive sum.

    Returns
    -------
    array (K, d)

    Examples
    --------
    >>> import numpy as np
    >>> X, v = np.array([[0.0], [1.0], [9.0]]), np.ones((3, 1))
    >>> best_centers("l1", X, v).item(), round(best_centers("sqeuclidean", X, v).item(), 3)
    (1.0, 3.333)
    """
    return CENTERS[metric](X, weights)


def _means(X: Floats, weights: Floats) -> Floats:
    return np.asarray((weights.T @ X) / weights.sum(axis=0)[:, None])


def _medians(X: Floats, weights: Floats) -> Floats:
    medians = np.empty((weights.shape[1], X.shape[1]))
    for j, column in enumerate(X.T):
        order = np.argsort(column, kind="stable")
        below = np.cumsum(weights[order], axis=0)
        medians[:, j] = column[order[(below < 0.5 * below[-1]).sum(axis=0)]]
    return medians


CENTERS: dict[str, Callable[[Floats, Floats], Floats]] = {"sqeuclidean": _means, "l1": _medians}
