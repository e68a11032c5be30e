r"""Components of a mixture: log densities, and statistics that add up over chunks of rows.

With weights :math:`\pi_k` and densities :math:`f_k`, everything that estimation needs of the
rows is a sum over them:

.. math::
    \text{log joint } \log \pi_k f_k(x_i), \qquad
    S(R) = \sum_i R_{ik}\, T(x_i), \qquad
    \arg\max_\Theta \sum_{ik} R_{ik} \log \pi_k f_k(x_i) = \Theta(S)

so a pass over the rows is a map-reduce, and gradients of smooth functions of the
responsibilities are `Components.gradient` of statistics with other weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_mixtures.estimator.gaussians import Gaussians, Moments
from optfair.methods.fair_mixtures.estimator.multinoullis import Multinoullis
from optfair.rows.mixed_rows import MixedRows

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

__all__ = ["Components", "Statistics"]


@dataclass(frozen=True, eq=False)
class Statistics:
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

    def __add__(self, other: Statistics) -> Statistics:
        pair = self.moments, other.moments
        both = None if pair[0] is None or pair[1] is None else pair[0] + pair[1]
        tables = self.counts, other.counts
        sums = None if tables[0] is None or tables[1] is None else tables[0] + tables[1]
        return Statistics(self.mass + other.mass, both, sums)

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
    >>> from optfair.methods.fair_mixtures.estimator.gaussians import Gaussians
    >>> from optfair.rows.mixed_rows import MixedRows
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

    def restarted(self, dead: Integers, rows: MixedRows) -> Components:
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
            np.maximum(weights / weights.sum(), 1e-300),
            g,
            None if m is None else m.moved(rest),
        )

    def with_weights(self, weights: Floats) -> Components:
        """Return the same densities under other weights."""
        return replace(self, weights=weights)


def _empty(g: Gaussians) -> Moments:
    return Moments(
        np.zeros(len(g.centred)), np.zeros(g.centred.shape), np.zeros(np.shape(g.covariances))
    )
