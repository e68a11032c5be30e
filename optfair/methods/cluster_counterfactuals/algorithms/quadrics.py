"""The nearest point of one quadratic constraint, convex or not, to the last digits; of many rows at once, with bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import (
    Batch,
    Moves,
    Projections,
    batch_of,
    metric_matrix,
    weighted,
)
from optfair.methods.cluster_counterfactuals.partition import EPS, Boundary
from optfair.numbers import Floats, Indices

# The nearest point of one quadratic constraint, convex or not, through the secular equation.

# Steps of Newton's method; bisection of the bracket makes each row end within them.
STEPS = 200


@dataclass(frozen=True, eq=False)
class Pencil:
    r"""Curvature D and metric W, diagonal together.

    .. math:: u = T w,\qquad u^T W u = \|w\|^2,\qquad u^T D u = \bothj d_j w_j^2

    One eigendecomposition serves every row of a pair of clusters and a mask.

    Parameters
    ----------
    d : array (f,)
        Generalised eigenvalues, in ascending order.
    T : array (f, f)
        Eigenvectors.
    """

    d: Floats
    T: Floats

    @classmethod
    def of(cls, D: Floats, metric: Floats | None = None, *, noise: float = 0.0) -> Pencil:
        """Diagonalise.

        Parameters
        ----------
        D : array (f, f)
            Symmetric.
        metric : array (f,) or (f, f), optional
            Weights or matrix W, positive definite; the identity by default.
        noise : float
            Size of the rounding in the entries of D: eigenvalues that it explains are 0.
        """
        if metric is None:
            d, T = np.linalg.eigh(D)
            unit = 1.0
        else:
            d, T = scipy.linalg.eigh(D, metric_matrix(metric, len(D)))
            unit = float(np.abs(T).max()) ** 2
        small = 4.0 * D.shape[0] * (noise + EPS * float(np.abs(D).max(initial=0.0))) * unit
        return cls(np.where(np.abs(d) <= small, 0.0, d), np.ascontiguousarray(T))


def nearest_in_quadratic(
    Y: Floats, gradient: Floats, value: Floats, pencil: Pencil, *, noise: Floats | float = 0.0
) -> Projections:
    r"""Project rows on the set where a quadratic is at most 0.

    .. math::
        \min_u\; u^T W u \quad\text{s.t.}\quad
        g(y) + \nabla g(y)^T u + \tfrac12 u^T D u \le 0

    In the coordinates of the pencil, with :math:`\beta = -T^T\nabla g(y)` and
    :math:`\lambda` half the multiplier, a stationary point is
    :math:`w_j = \lambda\beta_j / (1 + \lambda d_j)`, and the constraint becomes the secular
    equation

    .. math::
        h(\lambda) = \bothj \beta_j^2 \frac{\lambda (2 + \lambda d_j)}{(1 + \lambda d_j)^2}
        = 2 g(y) .

    On the interval where :math:`1 + \lambda d_j > 0` for all j, h grows from 0, so the root is
    unique there, and there :math:`W + \lambda D \succ 0` makes it the global minimum. The
    cases by the signs of d:

    - d₁ < 0: h grows to infinity at :math:`\lambda = -1/d_1`, so there is a root, unless the
      slope along the first eigenvectors is 0 and h stays below 2g(y): the *hard case*, where
      λ is the end of the interval and a step along the first eigenvector closes the rest;
    - d₁ >= 0: h is bounded by :math:`\bothj \beta_j^2 / d_j` where the slope along flat
      directions is 0; if 2g(y) is not below that, the least value of g is not negative and
      there is no point, which ``shortfall`` says.

    Parameters
    ----------
    Y : array (n, f)
        Rows y.
    gradient : array (n, f)
        ∇g(y).
    value : array (n,)
        g(y); rows where it is at most 0 stay.
    pencil : Pencil
        D and W, diagonal together.
    noise : float or array (n,)
        Size of the rounding in the gradient: slopes along flat directions that it explains
        are 0.

    Returns
    -------
    Projections
        Multipliers μ of g in |u|² + μ g, so :math:`2W + \mu D \succeq 0`.

    Examples
    --------
    The nearest point outside the unit disk, from (0, 0.5) and from its center, the hard case:

    >>> import numpy as np
    >>> Y = np.array([[0.0, 0.5], [0.0, 0.0]])
    >>> found = nearest_in_quadratic(Y, -2 * Y, 1 - (Y**2).sum(1), Pencil.of(-2 * np.eye(2)))
    >>> np.abs(found.points).round(12).tolist(), found.multipliers.round(12).tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[0.5], [1.0]])

    References
    ----------
    Moré, Sorensen: Computing a Trust Region Step, SIAM Journal on Scientific and Statistical
    Computing 4 (1983).
    Pólik, Terlaky: A Survey of the S-Lemma, SIAM Review 49 (2007).
    """
    n, d = Y.shape[0], pencil.d
    beta = -gradient @ pencil.T
    rounding = np.broadcast_to(np.asarray(noise, dtype=float), (n,))[:, None]
    beta[(np.abs(beta) <= rounding * np.abs(pencil.T).sum(axis=0)) & (d == 0.0)] = 0.0
    w, multipliers = np.zeros_like(beta), np.zeros(n)
    reached, shortfall = np.ones(n, dtype=bool), np.zeros(n)
    rows = np.flatnonzero(value > 0.0)
    if rows.size and d.size and d[0] < 0.0:
        w[rows], multipliers[rows] = _curved_down(beta[rows], 2.0 * value[rows], d)
    elif rows.size:
        part = _curved_up(beta[rows], 2.0 * value[rows], d)
        w[rows], multipliers[rows], shortfall[rows] = part
        reached[rows] = shortfall[rows] == 0.0
        shortfall[rows] = np.where(reached[rows], 0.0, shortfall[rows] / 2.0)
        # touching the set in one point only leaves no multiplier: it counts as not reached
        shortfall[rows] = np.where(shortfall[rows] < 0.0, 0.0, shortfall[rows])
    points = Y + w @ pencil.T.T
    points[~reached] = np.nan
    scaled = np.where(reached, 2.0 * multipliers, 1.0)
    return Projections(points, scaled[:, None], reached, shortfall)


def _curved_down(beta: Floats, target: Floats, d: Floats) -> tuple[Floats, Floats]:
    r"""Solve where the least eigenvalue is negative.

    With s = λ|d₁| in [0, 1) and :math:`\delta_j = d_j / |d_1|`, the constraint is
    :math:`\bothj \beta_j^2 s (2 + s\delta_j) / (1 + s\delta_j)^2 = |d_1| \cdot 2g(y)`.
    Were all of β along the first eigenvectors, s would follow in closed form, which bounds the
    root from below. Roots up to ½ are found in s, the others in the distance t = 1 - s from
    the end of the interval: neither loses digits where it is small.
    """
    low = -float(d[0])
    delta = d / low
    room = (d + low) / low  # 1 + δ without cancellation: 0 at the first eigenvectors
    first = room == 0.0
    square = beta**2
    total, pole = square.sum(axis=1), square[:, first].sum(axis=1)
    goal = low * target

    def of_s(s: Floats, at: NDArray[Any]) -> tuple[Floats, Floats]:
        one = 1.0 + s[:, None] * delta
        part = square[at] / one**2
        h = s * (part * (1.0 + one)).sum(axis=1)
        return h / goal[at] - 1.0, 2.0 * (part / one).sum(axis=1) / goal[at]

    def of_t(t: Floats, at: NDArray[Any]) -> tuple[Floats, Floats]:
        one = room - t[:, None] * delta
        part = square[at] / one**2
        h = (1.0 - t) * (part * (1.0 + one)).sum(axis=1)
        slope = -2.0 * (part / one).sum(axis=1)
        # h grows like 1 / t² towards the end, so 1 / sqrt(goal + h) is nearly linear in t; the
        # difference goal - h is taken first, or stiff directions drown it
        both, aim = goal[at] + h, goal[at]
        ratio = np.sqrt(2.0 * aim / both)
        return (aim - h) / (both * (ratio + 1.0)), -0.5 * ratio * slope / both

    everything = np.arange(beta.shape[0])
    early = of_s(np.full(beta.shape[0], 0.5), everything)[0] >= 0.0
    at_end = np.where(first, 0.0, square / np.where(first, 1.0, room) ** 2 * (1.0 + room))
    rest_at_end = at_end.sum(axis=1)
    hard = ~early & (pole == 0.0) & (rest_at_end <= goal)
    s, t = np.ones(beta.shape[0]), np.zeros(beta.shape[0])
    rows = np.flatnonzero(early)
    if rows.size:
        x = goal[rows] / total[rows]
        root = np.sqrt(1.0 + x)
        least = np.minimum(x / (root * (root + 1.0)), 0.5)
        s[rows] = _root(of_s, least, np.full(rows.size, 0.5), rows, from_below=True)
        t[rows] = 1.0 - s[rows]
    rows = np.flatnonzero(~early & ~hard)
    if rows.size:
        least = np.sqrt(pole[rows] / (pole[rows] + goal[rows]))
        most = np.minimum(np.sqrt(total[rows] / (total[rows] + goal[rows])), 0.5)
        t[rows] = _root(of_t, np.minimum(least, most), most, rows, from_below=False)
        s[rows] = 1.0 - t[rows]
    one = np.where(early[:, None], 1.0 + s[:, None] * delta, room - t[:, None] * delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        w = np.where(beta == 0.0, 0.0, s[:, None] / low * beta / one)
    w[hard, 0] = np.sqrt((goal - rest_at_end)[hard]) / low
    return w, s / low


def _curved_up(beta: Floats, target: Floats, d: Floats) -> tuple[Floats, Floats, Floats]:
    """Solve where no eigenvalue is negative; the last array is 2 g at its least where it is > 0."""
    n = beta.shape[0]
    square = beta**2
    flat, bent = square[:, d == 0.0].sum(axis=1), square[:, d > 0.0]
    up = d[d > 0.0]
    most = (bent / up).sum(axis=1)
    none = (flat == 0.0) & (target >= most)
    short = np.where(none, np.maximum(target - most, np.finfo(float).tiny), 0.0)
    total = square.sum(axis=1)
    rows = np.flatnonzero(~none)
    lam = np.zeros(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = target / (2.0 * total)
        by_flat = target / (2.0 * flat)
        least = np.where(bent > 0.0, up, np.inf).min(axis=1, initial=np.inf)
        share = np.where(target < most, target / most, np.nan)
        left = np.sqrt(1.0 - share)
        # (1 / left - 1) / least, without cancellation where the share is small
        by_bent = share / (left * (1.0 + left)) / least * (1.0 + 8.0 * EPS)
        upper = np.fmin(by_flat, by_bent)
    upper = np.maximum(lower, upper)

    def below(lam: Floats, at: NDArray[Any]) -> tuple[Floats, Floats]:
        one = 1.0 + lam[:, None] * up
        part = bent[at] / one**2
        slope = 2.0 * (part / one).sum(axis=1) + 2.0 * flat[at]
        left = (part / up).sum(axis=1)
        # near its least upper bound, (most - h)^(-1/2) is nearly linear; elsewhere, h itself is
        h = (part * lam[:, None] * (1.0 + one)).sum(axis=1) + 2.0 * lam * flat[at]
        bend = (flat[at] == 0.0) & (2.0 * target[at] > most[at])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.sqrt(np.where(bend, (most[at] - target[at]) / left, 1.0))
        return (
            np.where(bend, ratio - 1.0, h / target[at] - 1.0),
            np.where(bend, 0.5 * ratio * slope / left, slope / target[at]),
        )

    lam[rows] = _root(below, lower[rows], upper[rows], rows, from_below=True)
    w = lam[:, None] * beta / (1.0 + lam[:, None] * d)
    return w, lam, short


def _root(
    relative: Any, lower: Floats, upper: Floats, rows: NDArray[Any], *, from_below: bool
) -> Floats:
    """Return roots of increasing functions in brackets: Newton's method, bisection where it fails.

    ``relative(x, rows)`` returns value and derivative, the value relative to its parts.
    Bisection is geometric, because brackets may span many orders of magnitude.
    """
    low, high = lower.copy(), upper.copy()
    x = low.copy() if from_below else high.copy()
    todo = np.arange(x.size)
    for _ in range(STEPS):
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            f, slope = relative(x[todo], rows[todo])
            step = x[todo] - f / slope
        low[todo] = np.where(f < 0.0, x[todo], low[todo])
        high[todo] = np.where(f < 0.0, high[todo], x[todo])
        left, right = low[todo], high[todo]
        middle = np.where(left > 0.0, np.sqrt(left) * np.sqrt(right), 0.5 * right)
        inside = (step >= left) & (step <= right)
        new = np.where(inside, step, middle)
        moved = np.abs(new - x[todo])
        x[todo] = new
        keep = (moved > 4.0 * EPS * np.abs(new)) & (np.abs(f) > 4.0 * EPS) & (right > left)
        todo = todo[keep]
        if not todo.size:
            break
    return x


# The nearest point behind one curved boundary, to the last digits.

# Newton's steps on every answer of the secular equation.
CURVED_STEPS = 2
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
    nearest = nearest_in_quadratic(
        y, boundary.gradient(Y)[:, free], boundary.value(Y), pencil, noise=boundary.slope_noise(Y)
    )
    mu = np.where(nearest.reached, nearest.multipliers[:, 0], 0.0)
    bent = 2.0 + mu[:, None] * pencil.d
    rows = np.flatnonzero((mu > 0.0) & (bent > CURVED).all(axis=1))
    if not rows.size:
        return nearest
    u = nearest.points[rows] - y[rows]
    u, sharp = _sharpened(Y[rows], u, mu[rows], boundary, free, metric, pencil)
    points, multipliers = nearest.points.copy(), nearest.multipliers.copy()
    points[rows], multipliers[rows, 0] = y[rows] + u, sharp
    return replace(nearest, points=points, multipliers=multipliers)


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
    for last in (*[False] * CURVED_STEPS, True):
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


def quadratic(Y: Floats, boundary: Boundary, moves: Moves, pencil: Pencil | None = None) -> Batch:
    r"""Return the nearest points on one side of a quadratic boundary, for rows without bounds.

    The multiplier μ bounds the optimum by the least value of
    :math:`\|z - y\|_W^2 + \mu g(z)`, which is recomputed: its value at the point less what its
    slope there still allows, and nothing where :math:`2W + \mu D \succeq 0` does not hold.

    Parameters
    ----------
    Y : array (n, d)
        Rows.
    boundary : Boundary
        At most 0 on the side wanted.
    moves : Moves
        What the rows may do, without bounds.
    pencil : Pencil, optional
        Its curvature and the metric on the free features, when it is at hand.
    """
    F, y, W = moves.free, Y[:, moves.free], moves.own_metric()
    if pencil is None:
        D, noise = boundary.curvature(np.flatnonzero(F))
        pencil = Pencil.of(D, W, noise=noise)
    nearest = nearest_behind(Y, boundary, np.flatnonzero(F), metric=W, pencil=pencil)
    u = np.where(nearest.reached[:, None], nearest.points - y, 0.0)
    mu = np.where(nearest.reached, nearest.multipliers[:, 0], 0.0)
    Wu = weighted(u, W)
    at = Y.copy()
    at[:, F] += u
    lagrangian = (u * Wu).sum(axis=1) + mu * boundary.value(at)
    slope = (2.0 * Wu + mu[:, None] * boundary.gradient(at)[:, F]) @ pencil.T
    # slopes that rounding explains are 0
    rounding = (mu * boundary.slope_noise(at))[:, None] * np.abs(pencil.T).sum(axis=0)
    slope[np.abs(slope) <= rounding] = 0.0
    bent = 2.0 + mu[:, None] * pencil.d
    flat = bent <= 1e-12 * np.abs(mu[:, None] * pencil.d)
    with np.errstate(divide="ignore"):
        loss = np.where(flat, np.where(slope == 0.0, 0.0, np.inf), 0.5 * slope**2 / bent)
    loss[bent < -1e-10] = np.inf
    return batch_of(Y, nearest, F, W, lagrangian - loss.sum(axis=1))
