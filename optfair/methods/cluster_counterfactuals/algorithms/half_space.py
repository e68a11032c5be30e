"""The nearest point of a half-space, and of a half-space within bounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optfair.methods.cluster_counterfactuals.algorithms.projections import Projections

Floats = NDArray[np.float64]

__all__ = ["nearest_in_bounded_half_space", "nearest_in_half_space"]


def nearest_in_half_space(
    Y: Floats, v: Floats, c: Floats | float, *, metric: Floats | None = None
) -> Projections:
    r"""Project rows on a half-space.

    .. math::
        \min_z (z - y)^T W (z - y) \;\text{ s.t. }\; v^T z \le c
        \quad\Longrightarrow\quad
        z = y - \max\Bigl(0, \frac{v^T y - c}{v^T W^{-1} v}\Bigr) W^{-1} v

    Parameters
    ----------
    Y : array (n, d)
        Rows.
    v : array (d,)
        Normal.
    c : float or array (n,)
        Right-hand side.
    metric : array (d,) or (d, d), optional
        Weights or matrix W, positive definite; the identity by default.

    Returns
    -------
    Projections
        With v = 0 a row is either inside or unreachable.

    Examples
    --------
    >>> import numpy as np
    >>> found = nearest_in_half_space(np.array([[2.0, 0.0], [0.0, 5.0]]), np.array([1.0, 0.0]), 1.0)
    >>> found.points.tolist(), found.multipliers.tolist()
    ([[1.0, 0.0], [0.0, 5.0]], [[2.0], [0.0]])
    """
    above = Y @ v - c
    direction = (
        v.copy() if metric is None else v / metric if metric.ndim == 1 else _solve(metric, v)
    )
    curvature = float(v @ direction)
    outside = above > 0.0
    reached = ~outside if curvature <= 0.0 else np.ones(Y.shape[0], dtype=bool)
    step = np.where(outside, above / curvature, 0.0) if curvature > 0.0 else np.zeros(Y.shape[0])
    points = Y - step[:, None] * direction
    points[~reached] = np.nan
    multipliers = np.where(reached, 2.0 * step, 1.0)[:, None]
    return Projections(points, multipliers, reached, np.where(reached, 0.0, above))


def _solve(metric: Floats, v: Floats) -> Floats:
    return np.asarray(np.linalg.solve(metric, v), dtype=float)


def nearest_in_bounded_half_space(
    Y: Floats,
    v: Floats,
    c: Floats | float,
    lower: Floats,
    upper: Floats,
    *,
    weights: Floats | None = None,
) -> Projections:
    r"""Project rows on a half-space within bounds.

    .. math::
        \min_z \sum_j w_j (z_j - y_j)^2 \;\text{ s.t. }\; v^T z \le c,\; l \le z \le u

    The minimiser for a multiplier 2t is :math:`z_j(t) = \mathrm{clip}(y_j - t v_j / w_j, l_j, u_j)`,
    and :math:`v^T z(t)` falls piecewise linearly in t, with at most 2d kinks. They are sorted, and
    the root is read off the segment that holds it: exact, without iteration.

    Parameters
    ----------
    Y : array (n, d)
        Rows, inside the bounds or not.
    v : array (d,)
        Normal.
    c : float or array (n,)
        Right-hand side.
    lower, upper : array (d,) or (n, d)
        Bounds, infinite where there is none.
    weights : array (d,), optional
        w > 0; 1 by default.

    Returns
    -------
    Projections
        ``shortfall`` is the least value of v'z - c over the bounds where it is positive.

    Examples
    --------
    >>> import numpy as np
    >>> Y = np.array([[2.0, 2.0]])
    >>> low, high = np.array([1.5, -np.inf]), np.array([np.inf, np.inf])
    >>> nearest_in_bounded_half_space(Y, np.array([1.0, 1.0]), 1.0, low, high).points.tolist()
    [[1.5, -0.5]]
    """
    n, d = Y.shape
    w = np.ones(d) if weights is None else weights
    low, high = np.broadcast_to(lower, (n, d)), np.broadcast_to(upper, (n, d))
    right = np.broadcast_to(np.asarray(c, dtype=float), (n,))
    speed = v / w
    start = np.clip(Y, low, high)
    above = start @ v - right
    inside = above <= 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        # z_j moves while t lies between the kinks where y_j - t speed_j meets the two bounds
        first = np.where(speed > 0.0, (Y - high) / speed, (Y - low) / speed)
        last = np.where(speed > 0.0, (Y - low) / speed, (Y - high) / speed)
    still = speed == 0.0
    first, last = np.where(still, np.inf, np.maximum(first, 0.0)), np.where(still, np.inf, last)
    last = np.maximum(last, first)
    fall = np.where(still, 0.0, v * speed)
    kinks = np.concatenate([first, last], axis=1)
    change = np.concatenate([np.broadcast_to(fall, (n, d)), np.broadcast_to(-fall, (n, d))], axis=1)
    order = np.argsort(kinks, axis=1, kind="stable")
    kinks = np.take_along_axis(kinks, order, axis=1)
    slopes = np.cumsum(np.take_along_axis(change, order, axis=1), axis=1)
    with np.errstate(invalid="ignore"):
        gaps = np.diff(kinks, axis=1, append=np.inf)
    # kinks at infinity come last, and nothing moves from there on
    gaps[~np.isfinite(kinks)] = 0.0
    scale = float(np.abs(fall).sum())
    slopes[slopes <= 1e-14 * scale] = 0.0
    with np.errstate(invalid="ignore"):
        drop = np.where(slopes > 0.0, slopes * gaps, 0.0)
    total = np.cumsum(drop, axis=1)
    reached = inside | (total[:, -1] >= above)
    segment = np.argmax(total >= above[:, None], axis=1)
    row = np.arange(n)
    before = np.where(segment > 0, total[row, np.maximum(segment - 1, 0)], 0.0)
    slope = slopes[row, segment]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = kinks[row, segment] + np.where(slope > 0.0, (above - before) / slope, 0.0)
    t = np.where(inside | ~reached, 0.0, t)
    points = np.clip(Y - t[:, None] * speed, low, high)
    with np.errstate(invalid="ignore"):
        ends = np.where(v > 0.0, low, high)
        least = np.where(v == 0.0, 0.0, v * ends).sum(axis=1) - right
    points[~reached] = np.nan
    multipliers = np.where(reached, 2.0 * t, 1.0)[:, None]
    return Projections(points, multipliers, reached, np.where(reached, 0.0, least))
