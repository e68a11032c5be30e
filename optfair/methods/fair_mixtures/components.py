r"""Components of a mixture: log densities, and statistics that add up over chunks of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optfair.methods.fair_mixtures.gaussians import Gaussians, Moments
from optfair.numbers import Floats, Indices
from optfair.rows.frames import MixedRows
from optfair.rows.sources import Summed

# Categorical parts of mixture components: one multinoulli per column and component.


@dataclass(frozen=True, eq=False)
class Multinoullis:
    r"""Probabilities of the categories of every column in every component.

    .. math:: \log f_k(x) = \sum_j \log p_{k j x_j}

    A category that the fit did not see has code -1 and counts as missing: its column says
    nothing about that row.

    Parameters
    ----------
    probabilities : array (K, L)
        Columns side by side; each column's block sums to 1.
    offsets : array (c + 1,)
        Where the block of each column starts, and L.
    floor : float
        Least probability. Estimates maximise the likelihood among those that respect it.
    """

    probabilities: Floats
    offsets: Indices
    floor: float

    @property
    def free(self) -> int:
        """Number of free parameters, as BIC counts them."""
        K, L = self.probabilities.shape
        return int(K * (L - (self.offsets.size - 1)))

    def blocks(self, table: Floats) -> list[Floats]:
        """Return the part of a table (.., L) that belongs to each column."""
        return np.split(table, self.offsets[1:-1], axis=-1)

    def log_prob(self, codes: Indices) -> Floats:
        """Return log probabilities (n, K)."""
        table = np.log(self.probabilities).T
        total = np.zeros((len(codes), table.shape[1]))
        for j, start in enumerate(self.offsets[:-1]):
            own = codes[:, j]
            block = np.vstack([table[start : self.offsets[j + 1]], np.zeros(table.shape[1])])
            total += block[own]  # code -1 is the last row: zeros
        return total

    def counts(self, codes: Indices, R: Floats) -> Floats:
        """Return the weight of each category (K, L) under weights ``R`` (n, K)."""
        counts = np.zeros(self.probabilities.shape)
        for j, (start, stop) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            own = codes[:, j] + 1  # unseen ones fall into bin 0
            for k in range(len(counts)):
                counts[k, start:stop] = np.bincount(own, R[:, k], stop - start + 1)[1:]
        return counts

    def estimated(self, counts: Floats) -> Multinoullis:
        """Return the probabilities that maximise `expected`; a column without weight stays."""
        old = self.blocks(self.probabilities)
        new = [
            _floored(block, before, self.floor)
            for block, before in zip(self.blocks(counts), old, strict=True)
        ]
        return replace(self, probabilities=np.hstack(new))

    def restarted(self, dead: Indices) -> Multinoullis:
        """Return the parts with dead components at the average of the others."""
        p = self.probabilities.copy()
        living = np.setdiff1d(np.arange(len(p)), dead)
        p[dead] = p[living].mean(axis=0)
        return replace(self, probabilities=p)

    def expected(self, counts: Floats) -> float:
        r"""Return :math:`\sum_{ik} R_{ik} \log f_k(x_i)` from the counts alone."""
        return float((counts * np.log(self.probabilities)).sum())

    def gradient(self, counts: Floats) -> Floats:
        """Return the derivative of `expected` in the logits, which `moved` moves."""
        own = [
            block - block.sum(axis=1, keepdims=True) * p
            for block, p in zip(self.blocks(counts), self.blocks(self.probabilities), strict=True)
        ]
        return np.hstack(own).ravel()

    def information(self, mass: Floats) -> Floats:
        """Return a bound on the diagonal of the complete-data information in the logits."""
        return np.asarray((mass[:, None] * (self.probabilities + 0.01)).ravel())

    def moved(self, step: Floats) -> Multinoullis:
        """Return the probabilities whose logits are ``step`` away."""
        logits = np.log(self.probabilities) + step.reshape(self.probabilities.shape)
        new = []
        for block in self.blocks(logits):
            e = np.exp(block - block.max(axis=1, keepdims=True))
            new.append(_floored(e, e, self.floor))
        return replace(self, probabilities=np.hstack(new))

    def drawn(self, which: Indices, rng: np.random.Generator) -> Indices:
        """Return one row of codes of each of the components named (m, c)."""
        columns = []
        for block in self.blocks(self.probabilities):
            heaps = np.cumsum(block, axis=1)[which]
            u = rng.random((which.size, 1)) * heaps[:, -1:]
            columns.append((u > heaps).sum(axis=1))
        return np.stack(columns, axis=1).astype(np.intp)


def _floored(counts: Floats, before: Floats, floor: float) -> Floats:
    r"""Return probabilities in proportion to counts, none below the floor (K, l).

    Maximises :math:`\sum_c n_c \log p_c` over :math:`p \ge` floor, :math:`\sum p = 1`:
    categories that fall below are put on the floor, the others share the rest.
    """
    counts = np.maximum(counts, 0.0)
    total = counts.sum(axis=1, keepdims=True)
    counts = np.where(total > 0.0, counts, before)
    low = np.zeros(counts.shape, dtype=bool)
    while True:
        rest = np.where(low, 0.0, counts)
        left = 1.0 - floor * low.sum(axis=1, keepdims=True)
        p = np.where(low, floor, rest / rest.sum(axis=1, keepdims=True) * left)
        now = low | (p < floor)
        if (now == low).all():
            return np.asarray(p)
        low = now


# Components of a mixture: log densities, and statistics that add up over chunks of rows.
#
# With weights :math:`\pi_k` and densities :math:`f_k`, everything that estimation needs of the
# rows is a sum over them:
#
# .. math::
#     \text{log joint } \log \pi_k f_k(x_i), \qquad
#     S(R) = \sum_i R_{ik}\, T(x_i), \qquad
#     \arg\max_\Theta \sum_{ik} R_{ik} \log \pi_k f_k(x_i) = \Theta(S)
#
# so a pass over the rows is a map-reduce, and gradients of smooth functions of the
# responsibilities are `Components.gradient` of statistics with other weights.


@dataclass(frozen=True, eq=False)
class Statistics(Summed):
    """Sums over rows; ``s + t`` are those of both chunks, ``a * s`` those of weighted rows.

    Parameters
    ----------
    mass : array (K,)
        Weight of each component.
    moments : Moments or None
        Of the numeric columns.
    counts : array (K, L) or None
        Weight of each category.
    """

    mass: Floats
    moments: Moments | None
    counts: Floats | None

    def __rmul__(self, factor: float) -> Statistics:
        return Statistics(
            factor * self.mass,
            None if self.moments is None else self.moments * factor,
            None if self.counts is None else factor * self.counts,
        )


@dataclass(frozen=True, eq=False)
class Components:
    """Weights and densities of a mixture; immutable.

    Parameters
    ----------
    weights : array (K,)
        Positive, of sum 1.
    gaussians : Gaussians or None
        Densities of the numeric columns.
    multinoullis : Multinoullis or None
        Densities of the categorical columns, independent of the numeric ones in a component.

    Examples
    --------
    >>> import numpy as np
    >>> from optfair.methods.fair_mixtures.gaussians import Gaussians
    >>> from optfair.rows.frames import MixedRows
    >>> start = Gaussians("diag", np.array([[0.0], [4.0]]), np.ones((2, 1)), np.zeros(1), 1e-6)
    >>> mixture = Components(np.array([0.5, 0.5]), start, None)
    >>> rows = MixedRows.of(np.array([[0.0], [1.0], [4.0]]))
    >>> joint = mixture.log_prob(rows)
    >>> R = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)) / 3
    >>> whole = mixture.statistics(rows, R)
    >>> parts = mixture.statistics(rows[:2], R[:2]) + mixture.statistics(rows[2:], R[2:])
    >>> np.allclose(mixture.estimated(whole).means, mixture.estimated(parts).means)
    True
    """

    weights: Floats
    gaussians: Gaussians | None
    multinoullis: Multinoullis | None

    @property
    def clusters(self) -> int:
        """Number of components K."""
        return self.weights.size

    @property
    def means(self) -> Floats:
        """Means of the numeric columns (K, d); d may be 0."""
        return np.zeros((self.clusters, 0)) if self.gaussians is None else self.gaussians.means

    @property
    def columns(self) -> int:
        """Number of numeric and categorical columns: log-likelihoods of a row are as large.

        Units of numeric columns shift these, so that their own size says nothing.
        """
        coded = 0 if self.multinoullis is None else self.multinoullis.offsets.size - 1
        return int(self.means.shape[1] + coded)

    @property
    def free(self) -> int:
        """Number of free parameters, as BIC counts them."""
        parts = (self.gaussians, self.multinoullis)
        return self.clusters - 1 + sum(p.free for p in parts if p is not None)

    def log_prob(self, rows: MixedRows) -> Floats:
        r"""Return the log joint :math:`\log \pi_k f_k(x_i)` (n, K)."""
        if self.gaussians is None:
            joint = np.zeros((rows.count, self.clusters))
        else:
            joint = self.gaussians.log_prob(rows.numeric)
        if self.multinoullis is not None:
            joint += self.multinoullis.log_prob(rows.codes)
        joint += np.log(self.weights)
        return joint

    def statistics(self, rows: MixedRows, R: Floats) -> Statistics:
        """Return the sums over rows with weights ``R`` (n, K): row weight times fraction."""
        g, m = self.gaussians, self.multinoullis
        moments = None if g is None else g.moments(rows.numeric, R)
        return Statistics(
            R.sum(axis=0) if moments is None else moments.mass,
            moments,
            None if m is None else m.counts(rows.codes, R),
        )

    def estimated(self, s: Statistics) -> Components:
        """Return the mixture that maximises `expected` of ``s`` (the M-step).

        The weights of the rows may have any total.
        """
        g, m = self.gaussians, self.multinoullis
        return Components(
            np.maximum(s.mass / s.mass.sum(), 1e-300),
            None if g is None or s.moments is None else g.estimated(s.moments),
            None if m is None or s.counts is None else m.estimated(s.counts),
        )

    def restarted(self, dead: Indices, rows: MixedRows) -> Components:
        """Return the mixture with dead components started again.

        The first one is put on a row, further ones half a deviation from the means of the
        largest living ones; each gets a tenth of an even weight.

        Parameters
        ----------
        dead : array of int
            Components.
        rows : MixedRows
            One row, which the mixture explains least.
        """
        K = self.clusters
        weights, g, m = self.weights.copy(), self.gaussians, self.multinoullis
        weights[dead] = 0.1 / K
        if g is not None:
            living = np.setdiff1d(np.argsort(-self.weights), dead, assume_unique=True)
            donors = living[np.arange(dead.size) % living.size]
            points = g.beside(donors)
            points[0] = rows.numeric[0]
            g = g.restarted(dead, points)
        return Components(weights / weights.sum(), g, None if m is None else m.restarted(dead))

    def expected(self, s: Statistics) -> float:
        r"""Return :math:`\sum_{ik} R_{ik} \log \pi_k f_k(x_i)` from the statistics alone."""
        total = float(s.mass @ np.log(self.weights))
        if self.gaussians is not None and s.moments is not None:
            total += self.gaussians.expected(s.moments)
        if self.multinoullis is not None and s.counts is not None:
            total += self.multinoullis.expected(s.counts)
        return total

    def gradient(self, s: Statistics) -> Floats:
        """Return the derivative of `expected` in the local coordinates of `moved`, at 0.

        It is linear in the statistics, whose weights may be negative.
        """
        parts = [s.mass - s.mass.sum() * self.weights]
        if self.gaussians is not None and s.moments is not None:
            parts.append(self.gaussians.gradient(s.moments))
        if self.multinoullis is not None and s.counts is not None:
            parts.append(self.multinoullis.gradient(s.counts))
        return np.concatenate(parts)

    def information(self) -> Floats:
        """Return the diagonal of the complete-data information per unit of row weight."""
        mass = np.maximum(self.weights, 1e-6)
        parts = (p for p in (self.gaussians, self.multinoullis) if p is not None)
        return np.concatenate([mass, *(p.information(mass) for p in parts)])

    def moved(self, step: Floats) -> Components:
        """Return the mixture at ``step``: logits of the weights, then the parts' coordinates."""
        K = self.clusters
        logits = np.log(self.weights) + step[:K]
        weights = np.exp(logits - logits.max())
        rest = step[K:]
        g, m = self.gaussians, self.multinoullis
        if g is not None:
            size = g.gradient(_empty(g)).size
            g, rest = g.moved(rest[:size]), rest[size:]
        return Components(
            np.maximum(weights / weights.sum(), 1e-300), g, None if m is None else m.moved(rest)
        )

    def with_weights(self, weights: Floats) -> Components:
        """Return the same densities under other weights."""
        return replace(self, weights=weights)


def _empty(g: Gaussians) -> Moments:
    return Moments(
        np.zeros(len(g.centred)), np.zeros(g.centred.shape), np.zeros(np.shape(g.covariances))
    )
