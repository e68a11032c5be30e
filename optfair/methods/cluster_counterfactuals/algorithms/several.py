"""The nearest point behind several quadratic boundaries, where their Lagrangian proves it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Proved = tuple[Floats, float, float, Floats]

__all__ = ["Quadratic", "Several"]

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

    References
    ----------
    Bertsekas: Projected Newton Methods for Optimization Problems with Simple Constraints, SIAM
    Journal on Control and Optimization 20 (1982).
    """

    def __init__(
        self, boundaries: Sequence[Quadratic], free: NDArray[np.bool_], metric: Floats | None
    ) -> None:
        self.boundaries, self.free = tuple(boundaries), free
        at = np.flatnonzero(free)
        one = np.eye(at.size)
        self.W = one if metric is None else np.diag(metric) if metric.ndim == 1 else metric
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
        return self._maximised(y, lower, upper, deadline, met)[0]

    def multipliers(
        self,
        y: Floats,
        lower: Floats | None = None,
        upper: Floats | None = None,
        *,
        deadline: float = np.inf,
    ) -> Floats:
        """Return multipliers of the boundaries at the last dual value, proved or not.

        The Lagrangian is convex there, so they bound the optimum in any case.
        """
        return self._maximised(y, lower, upper, deadline, MET)[1]

    def _maximised(
        self, y: Floats, lower: Floats | None, upper: Floats | None, deadline: float, met: float
    ) -> tuple[Proved | None, Floats]:
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
            gap = abs(objective - value) / max(1.0, objective)
            if (g <= met * unit).all() and gap <= PROVED:
                if kept is None or gap < kept[2]:
                    point = y.copy()
                    point[F] += u
                    for i in np.flatnonzero(lam[count:] > 0.0):
                        # a bound with a multiplier is met, and to the last digit
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
                        stuck = tried[0] - value <= STUCK * max(1.0, abs(value)) and halving > 0
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
