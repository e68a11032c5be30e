r"""The penalty of a fair mixture, and one step of the penalised likelihood.

The gaps between groups are linearised, the rest is quadratic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import scipy.sparse as sp

from optfair.backends.cone_program import solve_cone_program
from optfair.numbers import Floats
from optfair.proofs.cones import Cone

# Fraction of a group in a cluster below which the size penalty grows no more.
SMALLEST = 1e-12


@dataclass(frozen=True)
class Gaps:
    r"""The measure Δ of unfairness as a function of the fractions of groups in clusters.

    .. math::
        \Delta(F) = \max_k \frac{2}{G(G-1)} \sum_{g < h} |F_{gk} - F_{hk}|

    with :math:`F_{gk}` the mean responsibility of group g in cluster k. For two groups it is
    eq. (6) of the paper; for more, eq. (14) read over unordered pairs.

    Parameters
    ----------
    groups : int
        Number of groups G.
    """

    groups: int

    @cached_property
    def pairs(self) -> Floats:
        """Differences of groups (pairs, G)."""
        pairs = list(combinations(range(self.groups), 2))
        D = np.zeros((len(pairs), self.groups))
        for row, (g, h) in enumerate(pairs):
            D[row, g], D[row, h] = 1.0, -1.0
        return D

    def value(self, fractions: Floats) -> float:
        """Return Δ of fractions (G, K)."""
        apart = np.abs(self.pairs @ fractions)
        return float(apart.mean(axis=0).max())


@dataclass(frozen=True)
class Penalty:
    r"""What is taken from the mean log-likelihood, as a function of fractions F (G, K).

    .. math:: \lambda\, \Delta(F) + \rho\, \max_{g,k} \frac{1}{K F_{gk}}

    Both terms are convex in F. The second is 1 where all fractions are even, and has no bound
    where a cluster loses a group.

    Parameters
    ----------
    gaps : Gaps
        Δ.
    lam : float
        λ >= 0.
    size : float
        ρ >= 0.
    """

    gaps: Gaps
    lam: float
    size: float = 0.0

    def value(self, fractions: Floats) -> float:
        """Return the penalty of fractions (G, K)."""
        total = self.lam * self.gaps.value(fractions)
        if self.size:
            least = max(float(fractions.min()), SMALLEST)
            total += self.size / (fractions.shape[1] * least)
        return total

    def pieces(
        self, fractions: Floats, slopes: Floats
    ) -> tuple[Floats, Floats, sp.csc_array, Floats]:
        r"""Return the model of the penalty around fractions, as a maximum over multipliers y.

        .. math:: \max_{y, v}\; (c + R p)^\top y \quad\text{s.t.}\quad A (y, v) \le b

        Parameters
        ----------
        fractions : array (G, K)
            F.
        slopes : array (G, K, P)
            Derivatives of F.

        Returns
        -------
        values, rows : arrays (m,), (m, P)
            c and R.
        limits, bounds : sparse array (r, m + s), array (r,)
            A and b; v has s numbers.
        """
        G, K, P = slopes.shape
        D = self.gaps.pairs
        # multipliers of the gaps and shares v of the clusters: |y| <= v, sum of v <= 1
        gaps = len(D) * K if self.lam else 0
        # shares of the tangents of 1 / F, which lie below it: of total at most 1
        cells = G * K if self.size else 0
        unit, shares = (self.lam / len(D), K) if gaps else (0.0, 0)
        apart = np.tensordot(D, slopes, axes=(1, 0)).reshape(len(D) * K, P)[:gaps]
        F = np.maximum(fractions.ravel(), SMALLEST)[:cells]
        tangents = slopes.reshape(G * K, P)[:cells] / (K * F[:, None] ** 2)
        values = np.concatenate([unit * (D @ fractions).ravel()[:gaps], self.size / (K * F)])
        rows = np.vstack([unit * apart, -self.size * tangents])
        eye, even = sp.eye_array(gaps), sp.eye_array(cells)
        spread = sp.csc_array(np.tile(np.eye(K), (len(D), 1))[:gaps, :shares])
        limits = sp.block_array(
            [
                [eye, None, -spread],
                [-eye, None, -spread],
                [None, -even, None],
                [sp.csc_array((1, gaps)), None, sp.csc_array(np.ones((1, shares)))],
                [None, sp.csc_array(np.ones((1, cells))), None],
            ],
            format="csc",
        )
        bounds = np.concatenate([np.zeros(2 * gaps + cells), np.ones(2)])
        return values, rows, limits, bounds


def penalty_step(
    gradient: Floats, metric: Floats, fractions: Floats, slopes: Floats, penalty: Penalty
) -> tuple[Floats, float]:
    r"""Maximise the model of the penalised objective around the present components.

    .. math::
        \max_p\; g^\top p - \tfrac12 p^\top B p - \lambda\,\Delta(F + J p)
            - \rho \max_{g,k} \frac{1}{K} \Bigl(\frac{1}{F_{gk}} - \frac{(J p)_{gk}}{F_{gk}^2}\Bigr)_+

    Its dual has a variable per pair of groups and cluster, and one per fraction, and is solved as
    a cone program; p follows from it. Where several clusters are nearly the worst one, a gradient
    of Δ is no direction of ascent, and this step is.

    Parameters
    ----------
    gradient, metric : arrays (P,)
        g and the diagonal of B.
    fractions : array (G, K)
        F.
    slopes : array (G, K, P)
        J.
    penalty : Penalty
        λΔ and ρ times the term of the smallest fraction.

    Returns
    -------
    step : array (P,)
    gain : float
        What the model gains; zero at a stationary point of the objective.
    """
    free = gradient / metric
    if not (penalty.lam or penalty.size):
        return free, 0.5 * float(gradient @ free)
    values, rows, A, b = penalty.pieces(fractions, slopes)
    # min ½ y'Wy - (c + R free)'y over the multipliers
    further = sp.csc_array((A.shape[1] - values.size,) * 2)
    W = (rows / metric) @ rows.T
    P = sp.block_diag([sp.csc_array(W), further], format="csc")
    q = np.concatenate([-(values + rows @ free), np.zeros(further.shape[0])])
    scale = max(float(np.abs(q).max()), float(np.abs(W).max()), 1e-300)
    answer = solve_cone_program(
        sp.csc_array(P / scale), q / scale, A, b, (Cone("nonneg", 0, b.size),)
    )
    y = answer.x[: values.size] if answer.status == "optimal" else np.zeros(values.size)
    step = (gradient - rows.T @ y) / metric
    after = penalty.lam * penalty.gaps.value(fractions + slopes @ step)
    if penalty.size:
        after += max(0.0, float((values + rows @ step)[-fractions.size :].max()))
    gain = float(gradient @ step) - 0.5 * float((metric * step) @ step)
    gain += penalty.value(fractions) - after
    return step, gain
