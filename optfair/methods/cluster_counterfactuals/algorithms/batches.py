"""Nearest points of many rows at once behind linear or quadratic boundaries, with a recomputed bound for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import (
    Projections,
    bounded_columns,
    inverse_metric,
    nearest_in_linear,
)
from optfair.methods.cluster_counterfactuals.algorithms.quadrics import (
    Pencil,
    nearest_behind,
    weighted,
)
from optfair.methods.cluster_counterfactuals.partition import Boundary
from optfair.numbers import Flags, Floats


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
        no point.
    """

    points: Floats
    objective: Floats
    gap: Floats

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
        return _batch(Y, nearest, F, W, bound)
    if low is not None and high is not None:
        one, some = np.eye(A.shape[1]), bounded_columns(low, high)
        A = np.vstack([A, -one[some[0]], one[some[1]]])
        value = np.hstack([value, (low - y)[:, some[0]], (y - high)[:, some[1]]])
    mu = np.where(nearest.reached[:, None], nearest.multipliers, 0.0)
    # over all of space the least value is at y - W^-1 A' mu / 2
    pull = mu @ A
    bound = np.where(mu > 0.0, mu * np.where(mu > 0.0, value, 0.0), 0.0).sum(axis=1)
    bound -= 0.25 * ((pull @ inverse_metric(W, y.shape[1])) * pull).sum(axis=1)
    return _batch(Y, nearest, F, W, bound)


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
    return _batch(Y, nearest, F, W, lagrangian - loss.sum(axis=1))


def _batch(Y: Floats, nearest: Projections, F: Flags, W: Floats | None, bound: Floats) -> Batch:
    reached = nearest.reached
    points = Y.copy()
    points[:, F] = nearest.points
    points[~reached] = np.nan
    u = np.where(reached[:, None], nearest.points - Y[:, F], 0.0)
    objective = (u * weighted(u, W)).sum(axis=1)
    gap = np.abs(objective - np.where(reached, bound, 0.0)) / np.maximum(1.0, objective)
    return Batch(points, np.where(reached, objective, np.inf), np.where(reached, gap, np.nan))


def join(batches: list[Batch], pick: NDArray[np.intp]) -> Batch:
    """Return row i of batch pick[i], for every i."""
    rows = np.arange(pick.size)
    return Batch(
        np.stack([b.points for b in batches])[pick, rows],
        np.stack([b.objective for b in batches])[pick, rows],
        np.stack([b.gap for b in batches])[pick, rows],
    )


# A constraint broken by less than this share of its terms holds.
HOLDS = 1e-9


def satisfied(
    Y: Floats, best: Batch, sides: Sequence[Boundary], moves: Moves, own: NDArray[np.intp]
) -> Flags:
    """Return whether points satisfy everything; a row without a point is settled too."""
    reached = np.isfinite(best.objective)
    Z = np.where(reached[:, None], best.points, Y)
    # the boundary that a point was made for is met by construction, up to rounding
    above = np.stack([b.value(Z) / (1.0 + np.abs(b.value(Y))) for b in sides])
    above[own, np.arange(len(Y))] = 0.0
    holds = (above <= HOLDS).all(axis=0)
    if moves.lower is not None and moves.upper is not None:
        slack = HOLDS * (1.0 + np.abs(Z))
        inside = (moves.lower - slack <= Z) & (moves.upper + slack >= Z)
        holds &= inside[:, moves.free].all(axis=1)
    return np.asarray(holds | ~reached)
