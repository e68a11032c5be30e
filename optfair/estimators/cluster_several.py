"""The nearest point behind several quadratic boundaries, where their Lagrangian proves it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from optfair.models.clusters.boundary import Boundary

Floats = NDArray[np.float64]

__all__ = ["Several"]

STEPS = 60
# A boundary that is passed by less than this share of its value at the row is met.
MET = 1e-11
# Relative gaps: of what is proved, and of what Newton's method cannot improve.
PROVED, ROUNDING = 1e-9, 1e-13
# Share of the expected rise that a step must bring, and how often it is halved.
RISE, HALVINGS = 1e-4, 20
# Relative rise of the dual below which it counts as stuck at the edge of its domain.
STUCK = 1e-12


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
    boundaries : sequence of Boundary
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
        self, boundaries: Sequence[Boundary], free: NDArray[np.bool_], metric: Floats | None
    ) -> None:
        self.boundaries, self.free = tuple(boundaries), free
        at = np.flatnonzero(free)
        one = np.eye(at.size)
        self.W = one if metric is None else np.diag(metric) if metric.ndim == 1 else metric
        self.D = np.stack([b.curvature(at)[0] for b in boundaries])

    def nearest(
        self, y: Floats, lower: Floats | None = None, upper: Floats | None = None
    ) -> tuple[Floats, float, float, Floats] | None:
        """Return point, objective, relative gap and multipliers of the boundaries.

        None where the dual does not prove a point.

        Parameters
        ----------
        y : array (d,)
            The row.
        lower, upper : arrays (d,), optional
            Bounds.
        """
        F, count = self.free, len(self.boundaries)
        one = np.eye(int(F.sum()))
        normals, limits = [np.empty((0, one.shape[0]))], [np.empty(0)]
        for bound, sign in ((lower, -1.0), (upper, 1.0)):
            if bound is not None:
                finite = np.isfinite(bound[F])
                normals.append(sign * one[finite])
                limits.append(sign * (bound[F] - y[F])[finite])
        A, r = np.vstack(normals), np.concatenate(limits)
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
        kept: tuple[Floats, float, float, Floats] | None = None
        for _ in range(STEPS):
            if now is None:
                return kept
            value, u, g, J, L = now
            objective = float(u @ self.W @ u)
            gap = abs(objective - value) / max(1.0, objective)
            if (g <= MET * unit).all() and gap <= PROVED:
                if kept is None or gap < kept[2]:
                    point = y.copy()
                    point[F] += u
                    for i in np.flatnonzero(lam[count:] > 0.0):
                        # a bound with a multiplier is met, and to the last digit
                        j = np.flatnonzero(F)[np.flatnonzero(A[i])[0]]
                        point[j] = y[j] + A[i].sum() * r[i]
                    improved = kept is None or gap < 0.5 * kept[2]
                    kept = point, objective, gap, lam[:count].copy()
                else:
                    improved = False
                if gap <= ROUNDING or not improved:
                    return kept
            act = (lam > 0.0) | (g > 0.0)
            half = scipy.linalg.solve_triangular(L, J[act].T, lower=True)
            K = half.T @ half
            K[np.diag_indices_from(K)] *= 1.0 + 1e-12
            K[np.diag_indices_from(K)] += 1e-300
            step = np.zeros_like(lam)
            step[act] = np.linalg.lstsq(K, g[act], rcond=1e-14)[0]
            now = None
            for halving in range(HALVINGS):
                new = np.maximum(lam + 0.5**halving * step, 0.0)
                tried = minimised(new)
                rise = g @ (new - lam)
                if tried is not None and tried[0] >= value + RISE * rise - 1e-14 * abs(value):
                    stuck = tried[0] - value <= STUCK * max(1.0, abs(value)) and halving > 0
                    lam, now = new, None if stuck else tried
                    break
        return kept
