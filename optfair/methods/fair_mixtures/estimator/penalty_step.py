r"""One step of the penalised likelihood: the gaps between groups linearised, the rest quadratic."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.cone_program import solve_cone_program
from optfair.proofs.cones import Cone

Floats = NDArray[np.float64]

__all__ = ["Gaps", "penalty_step"]


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

    @property
    def pairs(self) -> Floats:
        """Differences of groups (pairs, G)."""
        found = list(combinations(range(self.groups), 2))
        D = np.zeros((len(found), self.groups))
        for row, (g, h) in enumerate(found):
            D[row, g], D[row, h] = 1.0, -1.0
        return D

    def value(self, fractions: Floats) -> float:
        """Return Δ of fractions (G, K)."""
        apart = np.abs(self.pairs @ fractions)
        return float(apart.mean(axis=0).max())

    def subgradient(self, fractions: Floats) -> Floats:
        """Return a subgradient of Δ at fractions (G, K)."""
        D = self.pairs
        apart = D @ fractions
        worst = int(np.abs(apart).mean(axis=0).argmax())
        found = np.zeros_like(fractions)
        found[:, worst] = np.sign(apart[:, worst]) @ D / len(D)
        return found


def penalty_step(
    gradient: Floats,
    metric: Floats,
    fractions: Floats,
    slopes: Floats,
    lam: float,
    gaps: Gaps,
) -> tuple[Floats, float]:
    r"""Maximise the model of the penalised objective around the present components.

    .. math::
        \max_p\; g^\top p - \tfrac12 p^\top B p - \lambda\,\Delta(F + J p)

    Its dual has a variable per pair of groups and cluster, and is solved as a cone program;
    p follows from it. Where several clusters are nearly the worst one, a gradient of Δ is no
    direction of ascent, and this step is.

    Parameters
    ----------
    gradient, metric : arrays (P,)
        g and the diagonal of B.
    fractions : array (G, K)
        F.
    slopes : array (G, K, P)
        J.
    lam : float
        Penalty λ >= 0.
    gaps : Gaps
        Δ.

    Returns
    -------
    step : array (P,)
    gain : float
        What the model gains; zero at a stationary point of the objective.
    """
    base = -lam * gaps.value(fractions)
    free = gradient / metric
    if lam == 0.0:
        return free, 0.5 * float(gradient @ free)
    D = gaps.pairs
    pairs, K = len(D), fractions.shape[1]
    c = (D @ fractions).ravel()
    J = np.tensordot(D, slopes, axes=(1, 0)).reshape(pairs * K, -1)
    W = (J / metric) @ J.T
    size = pairs * K
    # multipliers y of the gaps and shares v of the clusters: |y| <= λ v / pairs, sum of v <= 1
    unit = lam / pairs
    spread = sp.csc_array(np.tile(np.eye(K), (pairs, 1)))
    eye = sp.eye_array(size)
    A = sp.vstack(
        [
            sp.hstack([eye, -spread]),
            sp.hstack([-eye, -spread]),
            sp.csc_array(np.concatenate([np.zeros(size), np.ones(K)])[None]),
        ]
    )
    b = np.concatenate([np.zeros(2 * size), [1.0]])
    P = sp.block_diag([sp.csc_array(unit**2 * W), sp.csc_array((K, K))], format="csc")
    q = np.concatenate([-unit * (c + J @ free), np.zeros(K)])
    scale = max(float(np.abs(q).max()), float(np.abs(P).max()), 1e-300)
    found = solve_cone_program(
        sp.csc_array(P / scale), q / scale, sp.csc_array(A), b, (Cone("nonneg", 0, b.size),)
    )
    y = unit * found.x[:size] if found.status == "optimal" else np.zeros(size)
    step = (gradient - J.T @ y) / metric
    after = gaps.value(fractions + slopes @ step)
    gain = float(gradient @ step) - 0.5 * float((metric * step) @ step) - lam * after - base
    return step, gain
