"""Rows with their groups and weights: what the algorithms for mixtures run on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_mixtures.estimator.components import Components, Statistics
from optfair.rows.mixed_rows import MixedRows

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

__all__ = ["BLOCK", "Sample", "log_sums", "slopes"]

# Rows per block: what a block makes stays in the cache.
BLOCK = 8_192


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
    index: Integers
    weights: Floats
    shares: Floats

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.index.size

    def some(self, taken: Integers) -> Sample:
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

    def hard_masses(self, labels: Integers, clusters: int) -> Floats:
        """Return the weight of each group in each cluster (G, K) under labels."""
        G = self.shares.size
        cells = self.index * clusters + labels
        found: Floats = np.bincount(cells, self.weights, G * clusters).astype(float)
        return found.reshape(G, clusters)

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
        total: Statistics | None = None
        for start in range(0, self.count, BLOCK):
            part = slice(start, start + BLOCK)
            R = fractions[part] * self.weights[part, None]
            own = components.statistics(self.rows[part], R)
            total = own if total is None else total + own
        if total is None:
            raise ValueError("no rows")
        return total


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
    found: list[list[Floats]] = []
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
        found.append([components.gradient(s) for s in sums if s is not None])
    return np.array(found)
