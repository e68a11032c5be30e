"""Passes over rows in chunks: sums of the rows that are settled, and the few that are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.methods.fair_clustering.algorithms.pricing import (
    Box,
    MassPass,
    label_masses,
    mass_pass,
)
from optfair.methods.fair_clustering.algorithms.soft_descent import Scale, SoftRows, SoftSums
from optfair.rows.sources import Chunk
from optfair.rows.survey import Rows, Survey

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

# Rows per block of a pass; groups up to which their prices are a matrix product.
BLOCK, KINDS = 4_096, 16
# In single precision: no end of a box, and more than that.
ENDLESS, OUT = 1e34, 1e38


@dataclass(frozen=True, eq=False)
class AssignmentPart:
    """What a pass over some chunks found at prices Λ; parts add up.

    Attributes
    ----------
    rows : int
        Rows read.
    value : array (G,)
        Σ w_i min_k (D_ik + Λ_gk / f_g), over all rows of a group; f are the factors, 1 without them.
    masses : array (G, K)
        Weight of the settled rows: those whose cheapest cluster is the same in the whole box.
    sums : array (K, d), or (G K, d) where costs have factors
        Σ w_i x_i of the settled rows of each cluster, or of each group in each cluster.
    cost : array (G,)
        Σ w_i D_ik of the settled rows of a group.
    open : Rows
        The other rows, as they are.
    far : Rows
        The K settled rows that cost most, for clusters that need a new center.
    spent : array (K,)
        Their costs.
    """

    rows: int
    value: Floats
    masses: Floats
    sums: Floats
    cost: Floats
    open: Rows
    far: Rows
    spent: Floats


def joined(a: AssignmentPart, b: AssignmentPart) -> AssignmentPart:
    """Return the part of both."""
    spent = np.concatenate([a.spent, b.spent])
    most = np.argsort(-spent, kind="stable")[: a.masses.shape[1]]
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

    Rows whose choice single precision settles beyond its rounding are settled so; the others are
    looked at again in double precision. What is summed up is in double precision for all.

    Parameters
    ----------
    survey : Survey
        Groups and columns; its sample is left behind by `Survey.header`.
    centers : array (K, d)
    prices : array (G, K)
        Λ.
    box : Box or None
        Rows whose cheapest cluster can change in it stay open; None: all rows.
    factors : array (G,), optional
        What costs of each group are multiplied by, positive: prices and box are of such costs.
    """

    survey: Survey
    centers: Floats
    prices: Floats
    box: Box | None
    factors: Floats | None = None

    def __call__(self, chunk: Chunk) -> AssignmentPart:
        """Return the part of one chunk."""
        if self.factors is None:
            return self._part(chunk, grouped=False)
        # rows choose as at costs as they are, by prices in units of these
        f = self.factors[:, None]
        box = None if self.box is None else Box(self.box.down / f, self.box.up / f)
        return replace(self, prices=self.prices / f, box=box)._part(chunk, grouped=True)

    def _part(self, chunk: Chunk, grouped: bool) -> AssignmentPart:
        rows = self.survey.read(chunk)
        (K, d), G, m = self.centers.shape, len(self.prices), len(rows.X)
        best, free, paid = np.empty(m, dtype=np.intp), np.zeros(m, dtype=bool), np.empty(m)
        cells = G * K if grouped else K
        sums, value, rough = np.zeros((cells, d)), np.zeros(G), self._rough()
        numbers = np.arange(K)[:, None]
        for start in range(0, m, BLOCK):
            at = slice(start, start + BLOCK)
            X, groups, w = rows.X[at], rows.groups[at], rows.weights[at]
            k, near = rough(X, groups)
            again = np.flatnonzero(near & (w > 0.0))
            if again.size:
                k[again], opened, low = self._closely(X[again], groups[again])
                free[start + again[opened]] = True
                value += np.bincount(groups[again[opened]], w[again[opened]] * low[opened], G)
            apart = np.take(self.centers, k, axis=0)
            np.subtract(X, apart, out=apart)
            paid[at] = np.einsum("ij,ij->i", apart, apart)
            w = np.where(free[at], 0.0, w)
            if grouped:
                entries = w, (groups * K + k, np.arange(len(X)))
                sums += sp.csr_array(entries, shape=(cells, len(X))) @ X
            else:
                sums += ((k == numbers) * w) @ X
            best[at] = k
        w = np.where(free, 0.0, rows.weights)
        masses = label_masses(best, rows.groups, w, (G, K))
        cost = np.asarray(np.bincount(rows.groups, w * paid, G), dtype=float)
        paid *= w > 0.0
        most = np.argpartition(-paid, K)[:K] if m > K else np.arange(m)
        most = most[paid[most] > 0.0]
        most = most[np.argsort(-paid[most], kind="stable")]
        return AssignmentPart(
            m,
            value + cost + (masses * self.prices).sum(axis=1),
            masses,
            sums,
            cost,
            _taken(rows, np.flatnonzero(free)),
            _taken(rows, most),
            paid[most],
        )

    def _rough(self) -> Callable[[Floats, Integers], tuple[Integers, NDArray[np.bool_]]]:
        """Return the function (rows, groups) -> (cheapest clusters, whether others come near)."""
        middle, K = self.centers.mean(axis=0), len(self.centers)
        own = self.centers - middle
        across = (-2.0 * own).astype(np.float32)
        level = np.square(own).sum(axis=1)
        charge = np.stack([level + p for p in self.prices], axis=1)  # K x G
        reach, size = float(np.sqrt(level.max())), float(np.abs(charge).max())
        off = (own.shape[1] + 8.0) * float(np.finfo(np.float32).eps)
        none = np.full(self.prices.shape, np.inf)
        box = Box(none, none) if self.box is None else self.box
        # in a matrix product an infinite side would spoil the others
        down = np.minimum(box.down.T, ENDLESS).astype(np.float32)
        up = np.minimum(box.up, ENDLESS).astype(np.float32)
        codes = np.stack([np.arange(K), np.ones(K)]).astype(np.float32)
        kinds, flat = np.arange(len(self.prices))[:, None], charge.astype(np.float32)

        def rough(X: Floats, groups: Integers) -> tuple[Integers, NDArray[np.bool_]]:
            own = np.empty(X.T.shape, dtype=np.float32)
            np.subtract(X.T, middle[:, None], out=own, casting="same_kind")
            S = across @ own
            if len(kinds) <= KINDS:
                of = (groups == kinds).astype(np.float32)
                S += flat @ of
            else:
                S += np.take(flat, groups, axis=1)
            low = S.min(axis=0)
            first = (low == S).astype(np.float32)
            k, ties = codes @ first
            best = np.minimum(k, K - 1.0).astype(np.intp)
            S -= down @ of if len(kinds) <= KINDS else np.take(down, groups, axis=1)
            first *= OUT
            S += first
            rounding = off * (np.square(np.sqrt(np.einsum("ij,ij->j", own, own)) + reach) + size)
            top = low + np.take(up, groups * K + best)
            return best, (S.min(axis=0) <= top + rounding) | (ties > 1.0)

        return rough

    def _closely(self, X: Floats, groups: Integers) -> tuple[Integers, NDArray[np.bool_], Floats]:
        """Return cheapest clusters, whether others become cheapest in the box, reduced costs."""
        # clusters along the first axis, also of the prices: three times as fast
        reduced = np.asarray(cdist(self.centers, X, "sqeuclidean"))
        reduced += np.take(np.ascontiguousarray(self.prices.T), groups, axis=1)
        here = np.arange(len(X))
        best = reduced.argmin(axis=0)
        low = reduced[best, here]
        if self.box is None:
            return best, np.ones(len(X), dtype=bool), low
        # (D + Λ)_k - down_k <= low + up_best for some other k
        up = self.box.up[groups, best]
        reduced -= np.take(np.ascontiguousarray(self.box.down.T), groups, axis=1)
        reduced[best, here] = np.inf
        return best, np.asarray(reduced.min(axis=0) <= low + up), low


@dataclass(frozen=True, eq=False)
class SmoothedPass:
    """The map of a pass whose rows choose softly, at temperature tau; see `smoothed_prices`."""

    survey: Survey
    centers: Floats
    prices: Floats
    tau: float
    factors: Floats | None = None

    def __call__(self, chunk: Chunk) -> MassPass:
        """Return value, masses and curvature of one chunk."""
        rows = self.survey.read(chunk)
        far = cdist(rows.X, self.centers, "sqeuclidean") * (-1.0 / self.tau)
        if self.factors is not None:
            far *= self.factors[rows.groups, None]
        return mass_pass(far, rows.groups, rows.weights, self.prices)


@dataclass(frozen=True, eq=False)
class SoftPass:
    """The map of a pass of `soft_descent`; it may keep the rows of chunks by their indices."""

    survey: Survey
    scale: Scale
    centers: Floats
    prices: Floats
    tau: float
    curved: bool
    kept: dict[int, SoftRows] | None = None

    def __call__(self, chunk: Chunk) -> SoftSums:
        """Return the sums of one chunk."""
        soft = None if self.kept is None else self.kept.get(chunk.index)
        if soft is None:
            rows = self.survey.read(chunk)
            kinds = rows.groups.astype(np.min_scalar_type(len(self.prices)))
            own = _taken(rows, np.argsort(kinds, kind="stable"))
            soft = SoftRows(own.X, own.groups, own.weights, self.scale)
            if self.kept is not None:
                self.kept[chunk.index] = soft
        return soft.at(self.centers, self.prices, self.tau, self.curved)


def _taken(rows: Rows, at: Integers) -> Rows:
    return Rows(rows.X[at], rows.groups[at], rows.weights[at])


def _both(a: Rows, b: Rows) -> Rows:
    return Rows(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.groups, b.groups]),
        np.concatenate([a.weights, b.weights]),
    )
