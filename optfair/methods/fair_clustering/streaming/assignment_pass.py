"""One pass of fair k-means over a chunk: sums of the rows that are settled, and the few that are not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.methods.fair_clustering.algorithms.pricing import Box
from optfair.rows.row_source import Chunk
from optfair.rows.survey import Rows, Survey

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

__all__ = ["AssignmentPart", "AssignmentPass", "joined", "thinned"]

# A block r ranks from a boundary holds about r rows.
BLOCK = 2.0


@dataclass(frozen=True, eq=False)
class AssignmentPart:
    """What a pass over some chunks found at prices Λ; parts add up.

    Attributes
    ----------
    rows : int
        Rows read.
    value : float
        Σ w_i min_k (D_ik + Λ_gk), over all rows.
    masses : array (G, K)
        Weight of the settled rows: those whose cheapest cluster is the same in the whole box.
    sums : array (K, d)
        Σ w_i x_i of the settled rows of each cluster.
    cost : float
        Σ w_i D_ik of the settled rows.
    open : Rows
        The other rows, as they are; of a thinned pass, rows that stand for all.
    far : Rows
        The K settled rows that cost most, for clusters that need a new center.
    spent : array (K,)
        Their costs.
    """

    rows: int
    value: float
    masses: Floats
    sums: Floats
    cost: float
    open: Rows
    far: Rows
    spent: Floats


def joined(a: AssignmentPart, b: AssignmentPart) -> AssignmentPart:
    """Return the part of both."""
    spent = np.concatenate([a.spent, b.spent])
    most = np.argsort(-spent, kind="stable")[: len(a.sums)]
    far = _both(a.far, b.far)
    return AssignmentPart(
        a.rows + b.rows,
        a.value + b.value,
        a.masses + b.masses,
        a.sums + b.sums,
        a.cost + b.cost,
        _both(a.open, b.open),
        _taken(far, most),
        spent[most],
    )


@dataclass(frozen=True, eq=False)
class AssignmentPass:
    """The map of a pass; an object of numbers, so that it travels to workers.

    Parameters
    ----------
    survey : Survey
        Groups and columns; its sample is left behind by `Survey.header`.
    centers : array (K, d)
    prices : array (G, K)
        Λ.
    box : Box or None
        Rows whose cheapest cluster can change in it stay open; None: all rows.
    thin : bool
        Return rows that stand for all instead; see `thinned`.
    """

    survey: Survey
    centers: Floats
    prices: Floats
    box: Box | None
    thin: bool = False

    def __call__(self, chunk: Chunk) -> AssignmentPart:
        """Return the part of one chunk."""
        rows = self.survey.read(chunk)
        K, G = len(self.centers), len(self.prices)
        m = len(rows.X)
        far = np.asarray(cdist(self.centers, rows.X, "sqeuclidean"))
        # clusters along the first axis, also of the prices: three times as fast
        reduced = far + np.take(np.ascontiguousarray(self.prices.T), rows.groups, axis=1)
        here = np.arange(m)
        best = reduced.argmin(axis=0)
        low = reduced[best, here]
        value = float(rows.weights @ low)
        if self.thin:
            none = _taken(rows, here[:0])
            zeros = np.zeros((G, K)), np.zeros((K, rows.X.shape[1]))
            kept = _thinned_chunk(rows, reduced, best, low)
            return AssignmentPart(m, value, *zeros, 0.0, kept, none, np.zeros(0))
        free = self._free(rows, reduced, best, low)
        settled = np.flatnonzero(~free)
        w, k = rows.weights[settled], best[settled]
        gathering = sp.csr_array((w, (k, settled)), shape=(K, m))
        paid = far[k, settled] * (w > 0)
        most = np.argpartition(-paid, K)[:K] if paid.size > K else np.arange(paid.size)
        most = most[np.argsort(-paid[most], kind="stable")]
        masses = np.bincount(rows.groups[settled] * K + k, w, G * K).astype(float).reshape(G, K)
        return AssignmentPart(
            m,
            value,
            masses,
            np.asarray(gathering @ rows.X),
            float(w @ paid),
            _taken(rows, np.flatnonzero(free)),
            _taken(rows, settled[most]),
            paid[most],
        )

    def _free(self, rows: Rows, reduced: Floats, best: Integers, low: Floats) -> NDArray[np.bool_]:
        """Return whether another cluster can become cheapest in the box."""
        if self.box is None:
            return np.asarray(rows.weights > 0.0)
        # (D + Λ)_k - down_k <= low + up_best for some other k
        up = self.box.up[rows.groups, best]
        reduced = reduced - np.take(np.ascontiguousarray(self.box.down.T), rows.groups, axis=1)
        reduced[best, np.arange(best.size)] = np.inf
        return np.asarray((reduced.min(axis=0) <= low + up) & (rows.weights > 0.0))


def _thinned_chunk(rows: Rows, reduced: Floats, best: Integers, low: Floats) -> Rows:
    K = len(reduced)
    second, regret = best, np.zeros(best.size)
    if K > 1:
        here = np.arange(best.size)
        reduced[best, here] = np.inf
        second = reduced.argmin(axis=0)
        regret = reduced[second, here] - low
    stratum = (rows.groups * K + best) * K + second
    return thinned(rows, stratum, regret, None)


def thinned(rows: Rows, stratum: Integers, regret: Floats, unit: float | None) -> Rows:
    """Return few rows that stand for all of them.

    Rows of one stratum are lined up by regret and cut into blocks that double in size: next to
    a boundary every row stands for itself, far away one stands for many.

    Parameters
    ----------
    rows : Rows
        Rows, or rows that already stand for others.
    stratum : array (m,) of int
        Group and the two cheapest clusters.
    regret : array (m,)
        Difference of the two.
    unit : float, optional
        Weight of a single row, to rank rows that stand for others; None: each is one.
    """
    order = np.lexsort((regret, stratum))
    stratum, n = stratum[order], order.size
    new = np.diff(stratum, prepend=-1) != 0
    begin = np.flatnonzero(new)
    size = np.ones(n) if unit is None else rows.weights[order] / unit
    before = np.cumsum(size) - size
    rank = before - np.repeat(before[begin], np.diff(np.append(begin, n)))
    level = np.floor(np.log(np.maximum(rank, 0.0) + 1.0) / np.log(BLOCK))
    cut = np.flatnonzero(new | (np.diff(level, prepend=-1.0) != 0.0))
    middle = order[(cut + np.append(cut[1:], n)) // 2]
    weight = np.add.reduceat(rows.weights[order], cut)
    return Rows(rows.X[middle], rows.groups[middle], weight)


def _taken(rows: Rows, at: Integers) -> Rows:
    return Rows(rows.X[at], rows.groups[at], rows.weights[at])


def _both(a: Rows, b: Rows) -> Rows:
    return Rows(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.groups, b.groups]),
        np.concatenate([a.weights, b.weights]),
    )
