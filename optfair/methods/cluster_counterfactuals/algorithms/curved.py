"""The nearest point behind one curved boundary, to the last digits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optfair.methods.cluster_counterfactuals.algorithms.projections import Projections
from optfair.methods.cluster_counterfactuals.algorithms.secular import Pencil, nearest_in_quadratic
from optfair.methods.cluster_counterfactuals.boundary import Boundary

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

__all__ = ["nearest_behind", "weighted"]

# Newton's steps on every answer of the secular equation.
STEPS = 2
# Curvature of the Lagrangian below which a point is too near the hard case for a step.
CURVED = 1e-8


def nearest_behind(
    Y: Floats,
    boundary: Boundary,
    free: Indices,
    *,
    metric: Floats | None = None,
    pencil: Pencil | None = None,
) -> Projections:
    r"""Project rows on the side of a curved boundary, some features held.

    .. math::
        \min_u u^T W u \;\text{ s.t. }\; g(y + u) \le 0
        \qquad\Longrightarrow\qquad
        2 W u + \mu \nabla g(y + u) = 0,\quad g(y + u) = 0

    The secular equation is solved in the coordinates of the pencil and in the expansion of g
    about y. Where precisions span many orders of magnitude, that costs digits: its answer is off
    by more than g itself is rounded. Newton's steps on the optimality conditions, with g
    evaluated from the centers of the clusters, bring them back; one that does not lower the
    residual is not taken.

    Parameters
    ----------
    Y : array (n, d)
        Rows y.
    boundary : Boundary
        g, at most 0 on the side wanted.
    free : array (f,)
        Columns that may change.
    metric : array (f,) or (f, f), optional
        Weights or matrix W; the identity by default.
    pencil : Pencil, optional
        The curvature of g and W, when it is at hand.

    Returns
    -------
    Projections
        Points (n, f) in the free features, and multipliers μ.

    Examples
    --------
    >>> import numpy as np
    >>> from optfair.methods.cluster_counterfactuals.partition import Partition
    >>> clusters = Partition.gaussian([[0.0, 0.0], [2.0, 0.0]], [1e-6, 1.0])
    >>> boundary, y = clusters.boundary(0, 1), np.zeros((1, 2))
    >>> found = nearest_behind(y, boundary, np.arange(2))
    >>> bool(abs(boundary.value(found.points)[0]) <= 1e-12)
    True
    """
    if pencil is None:
        D, noise = boundary.curvature(free)
        pencil = Pencil.of(D, metric, noise=noise)
    y = Y[:, free]
    found = nearest_in_quadratic(
        y,
        boundary.gradient(Y)[:, free],
        boundary.value(Y),
        pencil,
        noise=boundary.slope_noise(Y),
    )
    mu = np.where(found.reached, found.multipliers[:, 0], 0.0)
    bent = 2.0 + mu[:, None] * pencil.d
    rows = np.flatnonzero((mu > 0.0) & (bent > CURVED).all(axis=1))
    if not rows.size:
        return found
    u = found.points[rows] - y[rows]
    u, sharp = _sharpened(Y[rows], u, mu[rows], boundary, free, metric, pencil)
    points, multipliers = found.points.copy(), found.multipliers.copy()
    points[rows], multipliers[rows, 0] = y[rows] + u, sharp
    return replace(found, points=points, multipliers=multipliers)


def _sharpened(
    Y: Floats,
    u: Floats,
    mu: Floats,
    boundary: Boundary,
    free: Indices,
    metric: Floats | None,
    pencil: Pencil,
) -> tuple[Floats, Floats]:
    """Take Newton's steps on stationarity and boundary; return steps u and multipliers."""
    T = pencil.T
    back = T if metric is None else weighted(T.T, metric).T  # w = T' W u
    best = np.full(mu.size, np.inf)
    kept_u, kept_mu = u, mu
    for last in (*[False] * STEPS, True):
        at = Y.copy()
        at[:, free] += u
        bent = 2.0 + mu[:, None] * pencil.d
        value, along = boundary.value(at), boundary.gradient(at)[:, free] @ T
        # in the coordinates w of the pencil, u'Wu = |w|²
        slope = 2.0 * (u @ back) + mu[:, None] * along
        # what the Lagrange bound would lose here
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = mu * np.abs(value) + 0.5 * (slope**2 / bent).sum(axis=1)
        better = (loss < best) & (bent > 0.0).all(axis=1) & (mu > 0.0)
        best = np.where(better, loss, best)
        kept_u = np.where(better[:, None], u, kept_u)
        kept_mu = np.where(better, mu, kept_mu)
        if last or not better.any():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            step = along / bent
            change = (value - (step * slope).sum(axis=1)) / (along * step).sum(axis=1)
            w = slope / bent + change[:, None] * step
        usable = better & np.isfinite(change) & np.isfinite(w).all(axis=1)
        u = np.where(usable[:, None], u - w @ T.T, kept_u)
        mu = np.where(usable, mu + change, kept_mu)
    return kept_u, kept_mu


def weighted(u: Floats, W: Floats | None) -> Floats:
    """Return rows u W."""
    return u if W is None else u * W if W.ndim == 1 else u @ W
