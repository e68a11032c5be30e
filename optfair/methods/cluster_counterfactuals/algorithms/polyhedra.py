"""The nearest points of half-spaces and polyhedra, for many rows at once, with a recomputed bound for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.methods.cluster_counterfactuals.partition import Boundary
from optfair.numbers import Flags, Floats

# What every projection returns: nearest points of many rows, with multipliers.


@dataclass(frozen=True, eq=False)
class Projections:
    r"""Nearest points, one row each.

    Attributes
    ----------
    points : array (n, d)
        NaN in rows without a nearest point.
    multipliers : array (n, m)
        Multiplier of each constraint g <= 0 in min \|z - y\|² + λ g; 0 where it is not met
        with equality. In rows without a nearest point, a proof that there is none: weights
        of the constraints whose weighted sum is positive everywhere; all 0 where it is not.
    reached : array (n,) of bool
        Whether there is a point that satisfies the constraints.
    shortfall : array (n,)
        Least value of the constraint where it cannot be brought to 0 or below, NaN where it
        was not computed; 0 in rows that were reached.
    """

    points: Floats
    multipliers: Floats
    reached: Flags
    shortfall: Floats


def metric_matrix(metric: Floats | None, size: int) -> Floats:
    """Return the matrix W of a metric: the identity, weights on the diagonal, or itself."""
    return np.eye(size) if metric is None else np.diag(metric) if metric.ndim == 1 else metric


def inverse_metric(metric: Floats | None, size: int) -> Floats:
    """Return the inverse of a metric given as weights (d,) or a matrix (d, d); None is Euclidean."""
    if metric is None:
        return np.eye(size)
    if metric.ndim == 1:
        return np.diag(1.0 / metric)
    inverse = np.linalg.inv(metric)
    return np.asarray((inverse + inverse.T) / 2.0)


# Squared distance that gaps are relative to at least, for features of size 1.
LEAST = 1e-9


# The nearest point of a half-space, and of a half-space within bounds.


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


# The nearest point of a polyhedron: a dual active-set method over many rows at once.

# A violation below this share of the numbers it is the difference of is rounding.
ROUNDING = 1e-14
# A normal whose part outside the span of the others is below this is dependent on them.
DEPENDENT = 1e-10
# Rounds per constraint after which a row counts as not solved; each ends in at most a few.
ROUNDS = 40
CHUNK = 4_096
# A sum of normals that is below this share of its terms is 0.
CANCELLED = 1e-13


def nearest_in_polyhedron(
    Y: Floats, A: Floats, b: Floats, *, metric: Floats | None = None
) -> Projections:
    r"""Project rows on a polyhedron.

    .. math:: \min_z (z - y)^T W (z - y) \;\text{ s.t. }\; A z \le b

    The method of Goldfarb and Idnani: from the unconstrained minimiser y the most violated
    constraint enters, and those whose multipliers would become negative leave. The normals in
    the active set stay linearly independent, every full step raises the dual objective, so it
    ends after finitely many steps, in a proof of infeasibility where there is no point. All
    rows take their steps together: only the products of normals :math:`A W^{-1} A^T` are
    needed, not the dimension.

    Parameters
    ----------
    Y : array (n, d)
        Rows.
    A : array (m, d)
        Normals, shared by all rows.
    b : array (m,) or (n, m)
        Right-hand sides; infinite ones do not count.
    metric : array (d,) or (d, d), optional
        Weights or matrix W, positive definite; the identity by default.

    Returns
    -------
    Projections
        Unreached rows carry a Farkas vector: multipliers λ >= 0 with A'λ = 0 and b'λ < 0; where
        rounding leaves none, λ = 0.

    Examples
    --------
    >>> import numpy as np
    >>> A, b = np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2)
    >>> found = nearest_in_polyhedron(np.array([[1.0, 2.0], [1.0, -2.0]]), A, b)
    >>> found.points.tolist(), found.multipliers.tolist()
    ([[0.0, 0.0], [0.0, -2.0]], [[2.0, 4.0], [2.0, 0.0]])

    References
    ----------
    Goldfarb, Idnani: A Numerically Stable Dual Method for Solving Strictly Convex Quadratic
    Programs, Mathematical Programming 27 (1983).
    """
    n, m = Y.shape[0], A.shape[0]
    inverse = inverse_metric(metric, Y.shape[1])
    lengths = np.sqrt(np.einsum("ij,jk,ik->i", A, inverse, A))
    usable = lengths > 0.0
    # unit normals: violations are distances in the metric, and comparable
    unit = A / np.where(usable, lengths, 1.0)[:, None]
    right = np.broadcast_to(b, (n, m)) / np.where(usable, lengths, 1.0)
    pull = unit @ inverse
    G = pull @ unit.T
    lengths_of_parts = np.abs(unit).max(initial=0.0)
    points, multipliers = np.empty_like(Y), np.zeros((n, m))
    reached = np.ones(n, dtype=bool)
    for begin in range(0, n, CHUNK):
        part = slice(begin, min(begin + CHUNK, n))
        y, r = Y[part], right[part]
        start = y @ unit.T - r
        size = np.where(np.isfinite(r), np.abs(r), 0.0)
        size += np.abs(y).sum(axis=1, keepdims=True) * lengths_of_parts
        slack = ROUNDING * (1.0 + size)
        # a normal of length 0 says only whether its right-hand side is negative
        void = (start > slack) & ~usable
        multipliers[part], reached[part] = _active_sets(start, G, slack, usable)
        if void.any():
            hit = void.any(axis=1)
            multipliers[part][hit] = np.where(void[hit], 1.0, 0.0)
            reached[part][hit] = False
        points[part] = y - multipliers[part] @ pull
    points[~reached] = np.nan
    shortfall = np.where(reached, 0.0, np.nan)
    scaled = multipliers / np.where(usable, lengths, 1.0)
    if (lost := np.flatnonzero(~reached)).size:
        excluded = _excludes(scaled[lost], A, np.broadcast_to(b, (n, m))[lost])
        scaled[lost[~excluded]] = 0.0
    return Projections(points, np.where(reached[:, None], 2.0, 1.0) * scaled, reached, shortfall)


def _excludes(weights: Floats, A: Floats, b: Floats) -> Flags:
    """Return whether the weighted sum of constraints is positive everywhere, up to rounding alone."""
    used = weights > 0.0
    worth = np.where(used, weights * np.where(used, b, 0.0), 0.0)
    flat = np.abs(weights @ A) <= CANCELLED * (weights @ np.abs(A))
    return np.asarray(
        flat.all(axis=1) & (worth.sum(axis=1) < -ROUNDING * np.abs(worth).sum(axis=1))
    )


def _active_sets(start: Floats, G: Floats, slack: Floats, usable: Flags) -> tuple[Floats, Flags]:
    """Return multipliers of ½‖z - y‖² (n, m), and whether each row was reached."""
    n, m = start.shape
    rank = int(np.linalg.matrix_rank(G, tol=DEPENDENT, hermitian=True))
    y = np.zeros((n, m))
    reached = np.ones(n, dtype=bool)
    entering = np.full(n, -1)
    active = np.zeros((n, m), dtype=bool)
    todo = np.arange(n)
    for _ in range(ROUNDS * (m + 1)):
        above = start[todo] - y[todo] @ G
        fresh = entering[todo] < 0
        excess = np.where(active[todo] | ~usable, -np.inf, above - slack[todo])
        worst = np.argmax(excess, axis=1)
        done = fresh & (excess[np.arange(todo.size), worst] <= 0.0)
        entering[todo] = np.where(fresh, worst, entering[todo])
        todo, above = todo[~done], above[~done]
        if not todo.size:
            return _sharpened(start, G, y, active, reached), reached
        step, dead = _step(G, rank, y, active, entering, todo, above)
        reached[todo[dead]] = False
        if dead.any():
            y[todo[dead]] = step[dead]
            todo = todo[~dead]
            if not todo.size:
                return _sharpened(start, G, y, active, reached), reached
    reached[todo], y[todo] = False, 0.0  # not solved, and nothing is proved
    return _sharpened(start, G, y, active, reached), reached


def _step(
    G: Floats,
    rank: int,
    y: Floats,
    active: Flags,
    entering: NDArray[Any],
    todo: NDArray[Any],
    above: Floats,
) -> tuple[Floats, Flags]:
    """Take one step in every row; return Farkas vectors and which rows have one."""
    rows = np.arange(todo.size)
    k = entering[todo]
    among = active[todo]
    rho = _active_part(G, among, G[k])
    room = G[k, k] - (G[k] * rho).sum(axis=1)
    # as many independent normals as there are span the space, whatever rounding says
    free = (room > DEPENDENT) & (among.sum(axis=1) < rank)
    with np.errstate(divide="ignore", invalid="ignore"):
        full = np.where(free, above[rows, k] / np.where(free, room, 1.0), np.inf)
        falling = among & (rho > 1e-14)
        ratios = np.where(falling, y[todo] / np.where(falling, rho, 1.0), np.inf)
    leaving = np.argmin(ratios, axis=1)
    partial = ratios[rows, leaving]
    dead = np.isinf(full) & np.isinf(partial)
    length = np.where(dead, 0.0, np.minimum(full, partial))
    farkas = np.where(among, np.maximum(-rho, 0.0), 0.0)
    farkas[rows, k] = 1.0
    y[todo] = np.where(among, np.maximum(y[todo] - length[:, None] * rho, 0.0), y[todo])
    y[todo, k] += length
    drops = ~dead & (partial < full)
    y[todo[drops], leaving[drops]] = 0.0
    active[todo[drops], leaving[drops]] = False
    enters = ~dead & ~drops
    active[todo[enters], k[enters]] = True
    entering[todo[enters]] = -1
    return farkas, dead


def _active_part(G: Floats, among: Flags, right: Floats) -> Floats:
    """Return x (n, m) with G x = right in the active entries of each row, 0 in the others."""
    x = np.zeros(among.shape)
    most = int(among.sum(axis=1).max(initial=0))
    if most == 0:
        return x
    slots = np.argsort(~among, axis=1, kind="stable")[:, :most]
    held = np.take_along_axis(among, slots, axis=1)
    both = held[:, :, None] & held[:, None, :]
    system = np.where(both, G[slots[:, :, None], slots[:, None, :]], np.eye(most))
    own = np.where(held, np.take_along_axis(right, slots, axis=1), 0.0)
    solved = np.linalg.solve(system, own[:, :, None])[:, :, 0]
    np.put_along_axis(x, slots, np.where(held, solved, 0.0), axis=1)
    return x


def _sharpened(start: Floats, G: Floats, y: Floats, active: Flags, reached: Flags) -> Floats:
    """Solve for the multipliers of the final active sets once more: rounding of steps goes."""
    rows = np.flatnonzero(reached & active.any(axis=1))
    if rows.size:
        y[rows] = np.maximum(_active_part(G, active[rows], start[rows]), 0.0)
    return y


# Any number of half-spaces, within bounds or not.


def bounded_columns(lower: Floats, upper: Floats) -> tuple[Flags, Flags]:
    """Return which features have a lower and an upper bound in some row."""
    low, high = (np.asarray(np.isfinite(bound).any(axis=0)) for bound in (lower, upper))
    return low, high


def nearest_in_linear(
    Y: Floats,
    A: Floats,
    b: Floats,
    *,
    metric: Floats | None = None,
    lower: Floats | None = None,
    upper: Floats | None = None,
) -> Projections:
    r"""Project rows on half-spaces :math:`A z \le b`, within bounds where there are some.

    One half-space is projected on in closed form, without bounds or with weights; else all
    constraints are one polyhedron, and the multipliers of the bounds come last.

    Parameters
    ----------
    Y : array (n, d)
        Rows.
    A, b : arrays (m, d), (n, m) or (m,)
        The half-spaces.
    metric : array (d,) or (d, d), optional
        Weights or matrix; Euclidean by default.
    lower, upper : arrays (n, d), optional
        Both or none.
    """
    right = np.broadcast_to(b, (len(Y), len(A)))
    if lower is None or upper is None:
        if len(A) == 1:
            return nearest_in_half_space(Y, A[0], right[:, 0], metric=metric)
        return nearest_in_polyhedron(Y, A, right, metric=metric)
    if len(A) == 1 and (metric is None or metric.ndim == 1):
        return nearest_in_bounded_half_space(Y, A[0], right[:, 0], lower, upper, weights=metric)
    one, (low, high) = np.eye(A.shape[1]), bounded_columns(lower, upper)
    normals = np.vstack([A, -one[low], one[high]])
    ends = np.hstack([right, -lower[:, low], upper[:, high]])
    nearest = nearest_in_polyhedron(Y, normals, ends, metric=metric)
    # a bound with a multiplier is met to the last digit, and none is passed by a rounding
    points = np.clip(nearest.points, lower, upper)
    held = nearest.multipliers[:, len(A) :] > 0.0
    count = int(low.sum())
    points[:, low] = np.where(held[:, :count], lower[:, low], points[:, low])
    points[:, high] = np.where(held[:, count:], upper[:, high], points[:, high])
    points[~nearest.reached] = np.nan
    return replace(nearest, points=points)


def weighted(u: Floats, W: Floats | None) -> Floats:
    """Return rows u W."""
    return u if W is None else u * W if W.ndim == 1 else u @ W


@dataclass(frozen=True, eq=False)
class Moves:
    """What rows may do.

    Attributes
    ----------
    free : bool array (d,)
        Features that may change.
    metric : array (d,), (d, d) or None
        Weights or matrix W of the squared distance.
    lower, upper : arrays (n, d) or None
        Bounds of each row.
    """

    free: Flags
    metric: Floats | None = None
    lower: Floats | None = None
    upper: Floats | None = None

    @property
    def bounded(self) -> bool:
        """Whether any free feature has a bound."""
        return self.lower is not None

    def rows(self, at: Any) -> Moves:
        """Return the moves of some rows."""
        if self.lower is None or self.upper is None:
            return self
        return Moves(self.free, self.metric, self.lower[at], self.upper[at])

    def own_bounds(self) -> tuple[Floats | None, Floats | None]:
        """Return the bounds of the free features."""
        if self.lower is None or self.upper is None:
            return None, None
        return self.lower[:, self.free], self.upper[:, self.free]

    def own_metric(self) -> Floats | None:
        """Return the metric of the free features."""
        if self.metric is None or self.metric.ndim == 1:
            return None if self.metric is None else self.metric[self.free]
        return np.ascontiguousarray(self.metric[np.ix_(self.free, self.free)])


@dataclass(frozen=True, eq=False)
class Batch:
    """Nearest points of rows.

    Attributes
    ----------
    points : array (n, d)
        NaN where there is none.
    objective : array (n,)
        Squared distances in the metric, infinite where there is none.
    gap : array (n,)
        Relative gap to the bound that the multipliers prove, recomputed; NaN where there is
        no point, infinite where that is not proved either.
    """

    points: Floats
    objective: Floats
    gap: Floats

    @property
    def decided(self) -> Flags:
        """Whether there is a point, or a proof that there is none."""
        return ~np.isinf(self.gap)

    @classmethod
    def empty(cls, n: int, d: int) -> Batch:
        """Return a batch without points."""
        return cls(np.full((n, d), np.nan), np.full(n, np.inf), np.full(n, np.nan))

    @classmethod
    def of(cls, point: Any, objective: float, gap: float) -> Batch:
        """Return the batch of one row."""
        return cls(np.array(point, dtype=float)[None], np.array([objective]), np.array([gap]))

    def rows(self, at: Any) -> Batch:
        """Return some rows."""
        return Batch(self.points[at], self.objective[at], self.gap[at])

    def put(self, at: Any, other: Batch) -> None:
        """Write other points into some rows."""
        self.points[at] = other.points
        self.objective[at] = other.objective
        self.gap[at] = other.gap


def linear(Y: Floats, boundaries: Sequence[Boundary], moves: Moves) -> Batch:
    r"""Return the nearest points on one side of linear boundaries.

    The bound of multipliers :math:`\mu \ge 0` is the least value of
    :math:`\|z - y\|_W^2 + \sum_k \mu_k g_k(z)` over the bounds of the features.

    Parameters
    ----------
    Y : array (n, d)
        Rows.
    boundaries : sequence of Boundary
        At most 0 on the side wanted, all linear.
    moves : Moves
        What the rows may do.
    """
    F, y, W = moves.free, Y[:, moves.free], moves.own_metric()
    low, high = moves.own_bounds()
    A = np.stack([b.gradient(Y[0])[F] for b in boundaries])
    value = np.stack([b.value(Y) for b in boundaries], axis=1)
    right = y @ A.T - value
    nearest = nearest_in_linear(y, A, right, metric=W, lower=low, upper=high)
    u = np.where(nearest.reached[:, None], nearest.points - y, 0.0)
    if nearest.multipliers.shape[1] == len(A) and low is not None:
        # the point minimises the Lagrangian over the bounds by its form: its value is the bound
        bound = (u * weighted(u, W)).sum(axis=1) + nearest.multipliers[:, 0] * (
            value[:, 0] + u @ A[0]
        )
        return batch_of(Y, nearest, F, W, bound)
    if low is not None and high is not None:
        one, some = np.eye(A.shape[1]), bounded_columns(low, high)
        A = np.vstack([A, -one[some[0]], one[some[1]]])
        value = np.hstack([value, (low - y)[:, some[0]], (y - high)[:, some[1]]])
    mu = np.where(nearest.reached[:, None], nearest.multipliers, 0.0)
    # over all of space the least value is at y - W^-1 A' mu / 2
    pull = mu @ A
    bound = np.where(mu > 0.0, mu * np.where(mu > 0.0, value, 0.0), 0.0).sum(axis=1)
    bound -= 0.25 * ((pull @ inverse_metric(W, y.shape[1])) * pull).sum(axis=1)
    return batch_of(Y, nearest, F, W, bound)


def batch_of(Y: Floats, nearest: Projections, F: Flags, W: Floats | None, bound: Floats) -> Batch:
    """Return nearest points as a batch; bound is what their multipliers prove."""
    reached = nearest.reached
    points = Y.copy()
    points[:, F] = nearest.points
    points[~reached] = np.nan
    u = np.where(reached[:, None], nearest.points - Y[:, F], 0.0)
    objective = (u * weighted(u, W)).sum(axis=1)
    gap = np.abs(objective - np.where(reached, bound, 0.0)) / np.maximum(LEAST, objective)
    without = np.where((nearest.multipliers > 0.0).any(axis=1), np.nan, np.inf)
    return Batch(points, np.where(reached, objective, np.inf), np.where(reached, gap, without))
