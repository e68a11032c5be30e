"""The nearest point behind several quadratic boundaries: proved by their Lagrangian, or approached."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import (
    LEAST,
    metric_matrix,
    weighted,
)
from optfair.methods.cluster_counterfactuals.partition import Boundary
from optfair.numbers import Floats, Indices

# The nearest point behind several quadratic boundaries, where their Lagrangian proves it.

Proved = tuple[Floats, float, float, Floats]


STEPS = 60
# A boundary that is passed by less than this share of its value at the row is met.
MET = 1e-11
# Relative gaps: of what is proved, and of what Newton's method cannot improve.
PROVED, ROUNDING = 1e-9, 1e-13
# Share of the expected rise that a step must bring, and how often it is halved.
RISE, HALVINGS = 1e-4, 20
# Relative rise of the dual below which it counts as stuck at the edge of its domain.
STUCK = 1e-12
# Multipliers that grow beyond this are those of a problem without a feasible point.
LARGEST = 1e60


class Quadratic(Protocol):
    """What is asked of a boundary."""

    def value(self, Z: Floats) -> Floats:
        """Return g at a point (d,)."""

    def gradient(self, Z: Floats) -> Floats:
        """Return its gradient there."""

    def curvature(self, free: Indices) -> tuple[Floats, float]:
        """Return its second derivative in some features, and the rounding in it."""


class Several:
    r"""Lagrange dual of the nearest point behind several boundaries and within bounds.

    .. math::
        \max_{\lambda \ge 0}\; \min_u\; u^T W u + \sum_k \lambda_k g_k(y + u)
        \quad\text{where}\quad 2W + \sum_k \lambda_k D_k \succ 0

    The dual is concave in a few multipliers, one per boundary and finite bound; Newton's
    method on those that are positive or called for maximises it. Where it ends inside the
    domain, the minimiser u satisfies every boundary, and meets those with a multiplier: then
    it is the global optimum, although the problem is not convex. Where it does not, the dual
    has a gap or degenerates, and nothing is claimed.

    Parameters
    ----------
    boundaries : sequence of Quadratic
        At most 0 on the side wanted.
    free : bool array (d,)
        Features that may change.
    metric : array (f,), (f, f) or None
        W on the free features.
    least : float
        Squared distance that gaps are relative to at least.

    References
    ----------
    Bertsekas: Projected Newton Methods for Optimization Problems with Simple Constraints, SIAM
    Journal on Control and Optimization 20 (1982).
    """

    def __init__(
        self,
        boundaries: Sequence[Quadratic],
        free: NDArray[np.bool_],
        metric: Floats | None,
        least: float = LEAST,
    ) -> None:
        self.boundaries, self.free, self.least = tuple(boundaries), free, least
        at = np.flatnonzero(free)
        self.W = metric_matrix(metric, at.size)
        self.D = np.stack([b.curvature(at)[0] for b in boundaries])

    def nearest(
        self,
        y: Floats,
        lower: Floats | None = None,
        upper: Floats | None = None,
        *,
        deadline: float = np.inf,
        met: float = MET,
    ) -> Proved | None:
        """Return point, objective, relative gap and multipliers of the boundaries.

        None where the dual does not prove a point.

        Parameters
        ----------
        y : array (d,)
            The row.
        lower, upper : arrays (d,), optional
            Bounds.
        deadline : float
            ``time.perf_counter()`` value after which to stop.
        met : float
            Share of its value at the row by which a boundary may be passed.
        """
        return self.maximised(y, lower, upper, deadline, met)[0]

    def maximised(
        self,
        y: Floats,
        lower: Floats | None,
        upper: Floats | None,
        deadline: float = np.inf,
        met: float = MET,
    ) -> tuple[Proved | None, Floats]:
        """Return what `nearest` does, and multipliers at the last dual value, proved or not.

        The Lagrangian is convex there, so they bound the optimum in any case.
        """
        F, count = self.free, len(self.boundaries)
        one = np.eye(int(F.sum()))
        normals, limits, ends = [np.empty((0, one.shape[0]))], [np.empty(0)], [np.empty(0)]
        for bound, sign in ((lower, -1.0), (upper, 1.0)):
            if bound is not None:
                finite = np.isfinite(bound[F])
                normals.append(sign * one[finite])
                limits.append(sign * (bound[F] - y[F])[finite])
                ends.append(bound[F][finite])
        A, r, end = np.vstack(normals), np.concatenate(limits), np.concatenate(ends)
        slopes = np.vstack([np.stack([b.gradient(y)[F] for b in self.boundaries]), A])
        z = y.copy()

        def at(u: Floats) -> tuple[Floats, Floats]:
            """Return all constraints and their gradients."""
            z[F] = y[F] + u
            values = np.array([float(b.value(z)) for b in self.boundaries])
            gradients = np.stack([b.gradient(z)[F] for b in self.boundaries])
            return np.concatenate([values, A @ u - r]), np.vstack([gradients, A])

        def minimised(lam: Floats) -> tuple[float, Floats, Floats, Floats, Floats] | None:
            """Return (dual value, minimiser, constraints, gradients, Cholesky factor)."""
            if not (lam <= LARGEST).all():
                return None
            H = 2.0 * self.W + np.tensordot(lam[:count], self.D, 1)
            try:
                L: Floats = np.asarray(np.linalg.cholesky(H), dtype=float)
            except np.linalg.LinAlgError:
                return None
            u: Floats = -np.asarray(scipy.linalg.cho_solve((L, True), slopes.T @ lam))
            g, J = at(u)
            return float(u @ self.W @ u + lam @ g), u, g, J, L

        lam = np.zeros(count + r.size)
        now = minimised(lam)
        unit = 1.0 + np.abs(at(np.zeros(one.shape[0]))[0])
        kept: Proved | None = None
        sure = lam
        for _ in range(STEPS):
            if now is None or time.perf_counter() > deadline:
                return kept, sure[:count]
            sure = lam
            value, u, g, J, L = now
            objective = float(u @ self.W @ u)
            gap = abs(objective - value) / max(self.least, objective)
            if (g <= met * unit).all() and gap <= PROVED:
                if kept is None or gap < kept[2]:
                    point = y.copy()
                    point[F] += u
                    # a bound that is met is met to the last digit, and none is passed by a rounding
                    for i in np.flatnonzero(g[count:] >= -met * unit[count:]):
                        point[np.flatnonzero(F)[np.flatnonzero(A[i])[0]]] = end[i]
                    improved = kept is None or gap < 0.5 * kept[2]
                    kept = point, objective, gap, lam[:count].copy()
                else:
                    improved = False
                if gap <= ROUNDING or not improved:
                    return kept, sure[:count]
            act = (lam > 0.0) | (g > 0.0)
            half = scipy.linalg.solve_triangular(L, J.T, lower=True)
            now = None
            for step in _steps(half, g, lam, act):
                for halving in range(HALVINGS):
                    new = np.maximum(lam + 0.5**halving * step, 0.0)
                    tried = minimised(new)
                    rise = g @ (new - lam)
                    if tried is not None and tried[0] >= value + RISE * rise - 1e-14 * abs(value):
                        size = max(self.least, abs(value))
                        stuck = tried[0] - value <= STUCK * size and halving > 0
                        now = None if stuck else tried
                        break
                if now is not None:
                    lam = new
                    break
        return kept, sure[:count]


def _steps(half: Floats, g: Floats, lam: Floats, act: NDArray[np.bool_]) -> Iterator[Floats]:
    """Yield Newton's step where no multiplier at 0 falls, then the one of all that count."""
    whole = _newton(half, g, act)
    step, some = whole, act
    while (back := some & (lam == 0.0) & (step < 0.0)).any():
        # cut off at 0 it would spoil the step of the others
        some = some & ~back
        step = _newton(half, g, some)
    yield step
    if step is not whole:
        yield whole


def _newton(half: Floats, g: Floats, act: NDArray[np.bool_]) -> Floats:
    """Return Newton's step of some multipliers, 0 for the others."""
    K = half[:, act].T @ half[:, act]
    K[np.diag_indices_from(K)] *= 1.0 + 1e-12
    K[np.diag_indices_from(K)] += 1e-300
    step = np.zeros_like(g)
    step[act] = np.linalg.lstsq(K, g[act], rcond=1e-14)[0]
    return step


# A near point behind several curved boundaries, by convex inner approximations.

# Points of a segment that are tried, and approximations that are solved.
TRIED, INNER_STEPS = 65, 100
# Share of the way to the start from which points are tried: it may be far out.
NEAREST = 1e-12
# Relative fall of the objective below which a point has settled.
SETTLED = 1e-9
# Share of its value at the row by which a boundary may be passed on the way.
INNER_MET = 1e-9
# Steps on the way to a feasible start.
DESCENTS = 200

# its stub does not know what options are for
_minimize: Any = scipy.optimize.minimize


@dataclass(frozen=True, eq=False)
class Inner:
    r"""A boundary with its concave part replaced by its tangent.

    .. math::
        \tfrac12 (z - a)^T P (z - a) - \tfrac12 (c - b)^T Q (c - b) - (c - b)^T Q (z - c) + r
        \;\ge\; g(z)

    with equality at c. It is convex, and where it is at most 0 so is g.

    Parameters
    ----------
    boundary : Boundary
        g.
    c : array (d,)
        Where the tangent touches.
    """

    boundary: Boundary
    c: Floats

    def _slope(self) -> Floats:
        far = self.c - self.boundary.b
        return np.zeros_like(far) if self.boundary.Q is None else self.boundary.Q @ far

    def value(self, Z: Floats) -> Floats:
        """Return its value at a point (d,)."""
        near, q = Z - self.boundary.a, self._slope()
        constant = self.boundary.r - 0.5 * float(q @ (self.c - self.boundary.b))
        return np.asarray(0.5 * near @ self.boundary.P @ near - q @ (Z - self.c) + constant)

    def gradient(self, Z: Floats) -> Floats:
        """Return its gradient at a point (d,)."""
        return np.asarray((Z - self.boundary.a) @ self.boundary.P - self._slope())

    def curvature(self, free: Indices) -> tuple[Floats, float]:
        """Return P in some features, and the rounding in it."""
        P = self.boundary.P[np.ix_(free, free)]
        return P, float(np.finfo(float).eps * np.abs(P).max(initial=0.0))


def near_point(
    y: Floats,
    boundaries: Sequence[Boundary],
    free: NDArray[np.bool_],
    metric: Floats | None,
    limits: tuple[Floats, Floats],
    *,
    deadline: float = np.inf,
) -> Floats | None:
    """Return a point behind all boundaries that no convex approximation of them improves.

    A local answer: nothing is said about how near the nearest point is. It starts on the segment
    from the row to where the target is densest, or further on to where it beats the others;
    every step solves a convex problem whose points are all feasible, so the distance only falls.

    Parameters
    ----------
    y : array (d,)
        The row.
    boundaries : sequence of Boundary
        Of one target, at most 0 on its side.
    free : bool array (d,)
        Features that may change.
    metric : array (f,) or (f, f) or None
        W on the free features.
    limits : (array (d,), array (d,))
        Bounds.
    deadline : float
        ``time.perf_counter()`` value after which to stop.

    Returns
    -------
    array (d,) or None
        None where no start was feasible.

    References
    ----------
    Lipp, Boyd: Variations and Extension of the Convex-Concave Procedure, Optimization and
    Engineering 17 (2016).

    Examples
    --------
    >>> import numpy as np
    >>> from optfair.methods.cluster_counterfactuals.partition import Partition
    >>> clusters = Partition.gaussian([[0.0, 0.0], [3.0, 0.0], [3.0, 2.0]], [1.0, 0.5, 0.3])
    >>> sides = [clusters.boundary(k, 1) for k in (0, 2)]
    >>> y, everywhere = np.array([0.0, 1.0]), (np.full(2, -np.inf), np.full(2, np.inf))
    >>> z = near_point(y, sides, np.array([True, True]), None, everywhere)
    >>> int(clusters.labels(z + 1e-9 * (clusters.means[1] - z)))
    1
    """
    lower, upper = limits
    start = _start(y, boundaries, free, limits)
    begin = np.where(free, np.clip(y, lower, upper), y)
    shares = np.concatenate([np.geomspace(NEAREST, 1.0, TRIED), np.linspace(0.0, 1.0, TRIED)])
    segment = begin + np.sort(shares)[:, None] * (start - begin)
    inside = np.stack([b.value(segment) for b in boundaries]).max(axis=0) <= 0.0
    if not inside.any():
        return None
    z: Floats = segment[np.flatnonzero(inside)[0]]

    def objective(z: Floats) -> float:
        u = (z - y)[free]
        return float(u @ weighted(u, metric))

    now = objective(z)
    for _ in range(INNER_STEPS):
        if time.perf_counter() > deadline:
            break
        around = [b if b.linear or b.Q is None else Inner(b, z) for b in boundaries]
        nearest = Several(around, free, metric).nearest(
            y, lower, upper, deadline=deadline, met=INNER_MET
        )
        if nearest is None:
            break
        new = objective(nearest[0])
        # rounding of the boundaries allows for a little more
        if new > now * (1.0 + 1e-9):
            break
        z, fell, now = nearest[0], now - new, new
        if fell <= SETTLED * max(now, 1e-300):
            break
    return z


def _start(
    y: Floats,
    boundaries: Sequence[Boundary],
    free: NDArray[np.bool_],
    limits: tuple[Floats, Floats],
) -> Floats:
    """Return where the target is densest, or if others are denser there, a point beyond."""
    mean, P = boundaries[0].a, boundaries[0].P
    own = P[np.ix_(free, free)]
    z = y.copy()
    z[free] = mean[free] - np.linalg.solve(own, P[np.ix_(free, ~free)] @ (y - mean)[~free])
    low, high = (limit[free] for limit in limits)
    z[free] = np.clip(z[free], low, high)
    scale = 1.0 / np.sqrt(np.diag(own))

    def values(w: Floats) -> Floats:
        z[free] = scale * w
        return np.array([float(b.value(z)) for b in boundaries])

    def soft(w: Any) -> Any:
        """Return a smooth maximum of the boundaries, and its gradient."""
        g = values(w)
        slopes = np.stack([b.gradient(z)[free] for b in boundaries])
        return float(logsumexp(g)), scale * (softmax(g) @ slopes)

    def enough(w: Any) -> None:
        if values(w).max() <= 0.0:
            raise StopIteration

    w: Any = z[free] / scale
    if values(w).max() > 0.0:
        box = scipy.optimize.Bounds(low / scale, high / scale)
        most = {"maxiter": DESCENTS}
        w = _minimize(soft, w, jac=True, bounds=box, callback=enough, options=most).x
    z[free] = np.clip(scale * w, low, high)
    return z
