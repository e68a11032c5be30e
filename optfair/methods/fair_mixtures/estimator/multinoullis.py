r"""Categorical parts of mixture components: one multinoulli per column and component."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

__all__ = ["Multinoullis"]


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
    offsets: Integers
    floor: float

    @property
    def free(self) -> int:
        """Number of free parameters, as BIC counts them."""
        K, L = self.probabilities.shape
        return int(K * (L - (self.offsets.size - 1)))

    def blocks(self, table: Floats) -> list[Floats]:
        """Return the part of a table (.., L) that belongs to each column."""
        return np.split(table, self.offsets[1:-1], axis=-1)

    def log_prob(self, codes: Integers) -> Floats:
        """Return log probabilities (n, K)."""
        table = np.log(self.probabilities).T
        total = np.zeros((len(codes), table.shape[1]))
        for j, start in enumerate(self.offsets[:-1]):
            own = codes[:, j]
            block = np.vstack([table[start : self.offsets[j + 1]], np.zeros(table.shape[1])])
            total += block[own]  # code -1 is the last row: zeros
        return total

    def counts(self, codes: Integers, R: Floats) -> Floats:
        """Return the weight of each category (K, L) under weights ``R`` (n, K)."""
        found = np.zeros(self.probabilities.shape)
        for j, (start, stop) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            own = codes[:, j] + 1  # unseen ones fall into bin 0
            for k in range(len(found)):
                found[k, start:stop] = np.bincount(own, R[:, k], stop - start + 1)[1:]
        return found

    def estimated(self, counts: Floats) -> Multinoullis:
        """Return the probabilities that maximise `expected`; a column without weight stays."""
        old = self.blocks(self.probabilities)
        new = [
            _floored(block, before, self.floor)
            for block, before in zip(self.blocks(counts), old, strict=True)
        ]
        return replace(self, probabilities=np.hstack(new))

    def restarted(self, dead: Integers) -> Multinoullis:
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

    def drawn(self, which: Integers, rng: np.random.Generator) -> Integers:
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
