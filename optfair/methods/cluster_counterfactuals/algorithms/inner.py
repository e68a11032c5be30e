"""A near point behind several curved boundaries, by convex inner approximations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from optfair.methods.cluster_counterfactuals.algorithms.several import Several
from optfair.methods.cluster_counterfactuals.boundary import Boundary

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Inner", "near_point"]

# Points of a segment that are tried, and approximations that are solved.
TRIED, STEPS = 65, 100
# Share of the way to the start from which points are tried: it may be far out.
NEAREST = 1e-12
# Relative fall of the objective below which a point has settled.
SETTLED = 1e-9
# Share of its value at the row by which a boundary may be passed on the way.
MET = 1e-9
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
        return float(
            u @ u if metric is None else u @ (metric * u if metric.ndim == 1 else metric @ u)
        )

    now = objective(z)
    for _ in range(STEPS):
        if time.perf_counter() > deadline:
            break
        around = [b if b.linear or b.Q is None else Inner(b, z) for b in boundaries]
        found = Several(around, free, metric).nearest(y, lower, upper, deadline=deadline, met=MET)
        if found is None:
            break
        new = objective(found[0])
        # rounding of the boundaries allows for a little more
        if new > now * (1.0 + 1e-9):
            break
        z, fell, now = found[0], now - new, new
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
