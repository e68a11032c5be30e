r"""Rows with groups and weights, the E-step as passes over them, and the step that a penalty on unfairness takes instead."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from typing import Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from optfair.backends.cone_program import solve_cone_program
from optfair.methods.fair_clustering.algorithms.pricing import (
    LogRows,
    MassOracle,
    group_softmax,
    label_masses,
    label_sums,
)
from optfair.methods.fair_mixtures.components import Components, Statistics
from optfair.numbers import Floats, Indices
from optfair.proofs.cones import Cone
from optfair.rows.frames import MixedRows
from optfair.rows.sources import Summed

T = TypeVar("T")

# Rows per block: what a block makes stays in the cache.
BLOCK = 8_192
# Fraction of a group in a cluster below which the size penalty grows no more.
SMALLEST = 1e-12


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows, the group index of each, and weights of sum 1.

    Parameters
    ----------
    rows : MixedRows
        n rows.
    index : array (n,) of int
        Group index.
    weights : array (n,)
        Weights.
    shares : array (G,)
        Weight share of each group.
    """

    rows: MixedRows
    index: Indices
    weights: Floats
    shares: Floats

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.index.size

    def some(self, taken: Indices) -> Sample:
        """Return some of the rows, weighted so that every group keeps its share."""
        index, w = self.index[taken], self.weights[taken]
        totals = np.bincount(index, w, self.shares.size)
        factor = np.divide(self.shares, totals, out=np.zeros_like(totals), where=totals > 0)
        return Sample(self.rows[taken], index, w * factor[index], self.shares)

    def drawn(self, rng: np.random.Generator, count: int) -> Sample:
        """Return about ``count`` random rows, of every group its share and one at least."""
        if count >= self.count:
            return self
        taken = []
        for g in range(self.shares.size):
            own = np.flatnonzero((self.index == g) & (self.weights > 0.0))
            some = min(own.size, max(1, round(count * own.size / self.count)))
            taken.append(rng.choice(own, some, replace=False))
        return self.some(np.sort(np.concatenate(taken)))

    def masses(self, fractions: Floats) -> Floats:
        """Return the weight of each group in each cluster (G, K) under fractions (n, K)."""
        G = self.shares.size
        w = self.weights
        return np.stack([np.bincount(self.index, w * a, G) for a in fractions.T], axis=1)

    def log_joint(self, components: Components, out: Floats | None = None) -> Floats:
        """Return log joint densities (n, K), block by block into ``out``."""
        if out is None:
            out = np.empty((self.count, components.clusters))
        for start in range(0, self.count, BLOCK):
            part = slice(start, start + BLOCK)
            out[part] = components.log_prob(self.rows[part])
        return out

    def statistics(self, components: Components, fractions: Floats) -> Statistics:
        """Return the statistics of all rows under fractions (n, K)."""

        def sums(part: slice) -> Statistics:
            R = fractions[part] * self.weights[part, None]
            return components.statistics(self.rows[part], R)

        return over_blocks(self.count, sums)


def over_blocks(count: int, sums: Callable[[slice], T]) -> T:
    """Return the total of what each block of rows gives."""
    parts = (sums(slice(start, start + BLOCK)) for start in range(0, count, BLOCK))
    return reduce(operator.add, parts)


def log_sums(joint: Floats) -> Floats:
    """Turn log joint densities into responsibilities in place; return their log sums (n,)."""
    sums = np.empty(len(joint))
    for start in range(0, len(joint), BLOCK):
        part = joint[start : start + BLOCK]
        top = part.max(axis=1, keepdims=True)
        part -= top
        np.exp(part, out=part)
        total = part.sum(axis=1, keepdims=True)
        part /= total
        sums[start : start + BLOCK] = (top + np.log(total))[:, 0]
    return sums


def slopes(components: Components, sample: Sample, psi: Floats) -> Floats:
    r"""Return the derivative of group fractions in the local coordinates (G, K, P).

    .. math::
        \partial F_{gk} = \frac1{\pi_g} \sum_{i \in g} w_i \psi_{ik}
        \sum_l (\delta_{kl} - \psi_{il})\, \partial \log \pi_l f_l(x_i)

    which is the gradient of statistics with weights :math:`w_i \psi_{ik}(\delta_{kl} - \psi_{il})`.

    Parameters
    ----------
    components : Components
        Where the derivative is taken.
    sample : Sample
        Rows.
    psi : array (n, K)
        Responsibilities of the rows at these components.
    """
    G, K = sample.shares.size, components.clusters
    slopes: list[list[Floats]] = []
    for g in range(G):
        own = np.flatnonzero(sample.index == g)
        sums: list[Statistics | None] = [None] * K
        for start in range(0, own.size, BLOCK):
            taken = own[start : start + BLOCK]
            rows, p = sample.rows[taken], psi[taken]
            w = sample.weights[taken] / sample.shares[g]
            for k in range(K):
                scaled = w * p[:, k]
                R = -scaled[:, None] * p
                R[:, k] += scaled
                part, before = components.statistics(rows, R), sums[k]
                sums[k] = part if before is None else before + part
        slopes.append([components.gradient(s) for s in sums if s is not None])
    return np.array(slopes)


# The E-step as passes over rows: what each returns adds up over chunks.


@dataclass(frozen=True, eq=False)
class Farthest:
    """The row that the mixture explains least: where a dead component starts again.

    Attributes
    ----------
    log_density : float
        Of the row; infinite when there is none yet.
    rows : MixedRows
        The row alone.
    """

    log_density: float
    rows: MixedRows

    def __add__(self, other: Farthest) -> Farthest:
        return self if self.log_density <= other.log_density else other


@dataclass(frozen=True, eq=False)
class Expectation(Summed):
    r"""Sums of an E-step with prices Λ; ``a + b`` are those of both chunks.

    .. math::
        R_{ik} \propto \pi_k f_k(x_i)\, e^{-\Lambda_{g_i k}}, \qquad
        F = \sum_i w_i \log \sum_k \pi_k f_k(x_i)\, e^{-\Lambda_{g_i k}} + \langle\Lambda, M\rangle

    F is the log-likelihood less :math:`\mathrm{KL}(R \| \psi)`: what fair EM never lowers.

    Attributes
    ----------
    value : float
        The sum in F without its last term.
    masses : array (G, K)
        M: weight of each group in each component.
    statistics : Statistics
        For the M-step.
    farthest : Farthest
    """

    value: float
    masses: Floats
    statistics: Statistics
    farthest: Farthest

    def objective(self, prices: Floats) -> float:
        """Return F; the weights of all rows must have total 1."""
        return self.value + float((prices * self.masses).sum())


@dataclass(frozen=True, eq=False)
class Summary(Summed):
    """Sums that describe a fitted mixture on rows; ``a + b`` are those of both chunks.

    Attributes
    ----------
    log_likelihood : float
        Sum of weighted log densities.
    fair, plain : arrays (G, K)
        Masses of the projected responsibilities R and of the plain ones ψ.
    fair_labels, plain_labels : arrays (G, K)
        Masses of the labels argmax R and argmax ψ.
    cost : float
        Weighted squared distance of the numeric columns to the mean of the label argmax R.
    apart : array (K, d)
        Weighted sum of the numeric columns less that mean, of the rows with each label.
    count : int
        Rows.
    """

    log_likelihood: float
    fair: Floats
    plain: Floats
    fair_labels: Floats
    plain_labels: Floats
    cost: float
    apart: Floats
    count: int


class Passes(Protocol):
    """Passes over rows wherever they are: in memory, in chunks, on a cluster."""

    def oracle(self, components: Components) -> MassOracle:
        """Return the passes that the projection makes at these components."""

    def expectation(self, components: Components, prices: Floats) -> Expectation:
        """Return the sums of the E-step."""

    def summary(self, components: Components, prices: Floats) -> Summary:
        """Return what describes the mixture on all rows."""


def expectation(
    components: Components,
    rows: MixedRows,
    index: Indices,
    weights: Floats,
    prices: Floats,
    *,
    joint: Floats | None = None,
) -> Expectation:
    """Return the `Expectation` of some rows: the map of a map-reduce, whose reduce is ``+``.

    Parameters
    ----------
    components : Components
        The mixture.
    rows : MixedRows
        m rows.
    index, weights : arrays (m,)
        Group index and weight of each row; weights of all rows have total 1.
    prices : array (G, K)
        Λ.
    joint : array (m, K), optional
        Log joint densities, where they are known.
    """

    def sums(part: slice) -> Expectation:
        own, g, w = rows[part], index[part], weights[part]
        logs = components.log_prob(own) if joint is None else joint[part]
        R, logs_of = _projected(logs, g, prices)
        least = int(logs_of.argmin())
        far = Farthest(float(logs_of[least]), own[np.array([least])])
        R *= w[:, None]
        masses = _gathered(R, g, len(prices))
        return Expectation(float(w @ logs_of), masses, components.statistics(own, R), far)

    return over_blocks(rows.count, sums)


def summary(
    components: Components,
    rows: MixedRows,
    index: Indices,
    weights: Floats,
    prices: Floats,
    *,
    joint: Floats | None = None,
) -> Summary:
    """Return the `Summary` of some rows; parameters are those of `expectation`."""
    G, K = prices.shape

    def sums(part: slice) -> Summary:
        own, g, w = rows[part], index[part], weights[part]
        logs = components.log_prob(own) if joint is None else joint[part]
        psi, log_densities = _projected(logs, g, np.zeros_like(prices))
        R, _ = _projected(logs, g, prices)
        hard, plain = R.argmax(axis=1), psi.argmax(axis=1)
        apart = own.numeric - components.means[hard]
        return Summary(
            float(w @ log_densities),
            _gathered(R * w[:, None], g, G),
            _gathered(psi * w[:, None], g, G),
            label_masses(hard, g, w, (G, K)),
            label_masses(plain, g, w, (G, K)),
            float(w @ np.einsum("ij,ij->i", apart, apart)),
            label_sums(apart, hard, w, K),
            own.count,
        )

    return over_blocks(rows.count, sums)


class MemoryPasses:
    """Passes over rows in memory, which keep the log joint densities of the last components.

    Parameters
    ----------
    sample : Sample
        The rows.
    """

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self._joint: Floats | None = None
        self._of: Components | None = None

    def joint(self, components: Components) -> Floats:
        """Return log joint densities (n, K), computed once per components."""
        if self._of is not components:
            self._joint = self.sample.log_joint(components, self._joint)
            self._of = components
        return np.asarray(self._joint)

    def oracle(self, components: Components) -> MassOracle:
        """Return passes over the kept densities."""
        s = self.sample
        return LogRows(self.joint(components), s.index, s.weights, s.shares.size)

    def expectation(self, components: Components, prices: Floats) -> Expectation:
        """Return the sums of the E-step."""
        s = self.sample
        joint = self.joint(components)
        return expectation(components, s.rows, s.index, s.weights, prices, joint=joint)

    def summary(self, components: Components, prices: Floats) -> Summary:
        """Return what describes the mixture on all rows."""
        s = self.sample
        joint = self._joint if self._of is components else None
        return summary(components, s.rows, s.index, s.weights, prices, joint=joint)

    def responsibilities(self, components: Components, prices: Floats) -> Floats:
        """Return the projected responsibilities (n, K)."""
        return group_softmax(self.joint(components), self.sample.index, prices)


def _projected(logs: Floats, index: Indices, prices: Floats) -> tuple[Floats, Floats]:
    """Return (responsibilities, log sums) at prices."""
    R = logs - prices[index]
    return R, log_sums(R)


def _gathered(weighted: Floats, index: Indices, groups: int) -> Floats:
    own = (index == np.arange(groups)[:, None]).astype(float)
    return np.asarray(own @ weighted)


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
