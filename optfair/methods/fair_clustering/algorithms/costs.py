"""Costs D[i, k] of a row in a cluster, whole or block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.errors import DeclarationError, nearest
from optfair.numbers import Floats
from optfair.proofs.rounding import gamma

# Costs D[i, k] of a row in a cluster: a metric between rows and centers, or a given matrix.


METRICS = ("sqeuclidean", "l1", "lp", "precomputed")


@dataclass(frozen=True, eq=False)
class Charge:
    """What rows are charged besides their cost, as prices of rules on costs and arcs.

    Parameters
    ----------
    factors : array (n,), optional
        What the cost of each row is multiplied by.
    limits : array (n,), optional
        Largest cost of each row: dearer arcs are barred.
    barred : array (n, K) of bool, optional
        Further barred arcs.
    penalty : float
        Price of a barred arc.
    """

    factors: Floats | None = None
    limits: Floats | None = None
    barred: NDArray[np.bool_] | None = None
    penalty: float = 0.0

    def outside(self, distances: Floats, rows: Any) -> Any:
        """Return which arcs of some rows, of the costs given (K x m), are barred."""
        off: Any = False if self.limits is None else distances > self.limits[rows]
        return off if self.barred is None else off | self.barred[rows].T

    def on(self, distances: Floats, rows: Any) -> Floats:
        """Return costs (K x m) of some rows with the charge."""
        extra = self.penalty * self.outside(distances, rows) if self.penalty else 0.0
        return np.asarray(
            (distances if self.factors is None else distances * self.factors[rows]) + extra
        )


@dataclass(frozen=True, eq=False)
class SeparableCost:
    """Cost of row i in cluster k, computed on demand for any set of rows.

    Parameters
    ----------
    metric : {"sqeuclidean", "l1", "lp", "precomputed"}
        Sum over columns of the squared, absolute or p-th power difference, or given numbers.
    points : array (n, d)
        Rows; the cost matrix (n, K) itself when the metric is precomputed.
    centers : array (K, d)
        Centers; empty when the metric is precomputed.
    p : float
        Power of metric ``lp``, at least 1 so that the cost stays convex in the center.
    charge : Charge, optional
        What is charged besides.
    """

    metric: str
    points: Floats
    centers: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    p: float = 2.0
    charge: Charge | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise DeclarationError(
                f"unknown metric {self.metric!r}", remedy=nearest(self.metric, METRICS)
            )
        if not self.p >= 1.0 or not np.isfinite(self.p):
            raise DeclarationError(
                f"metric power p={self.p} is not a number of at least 1",
                "below 1 the cost is not convex in the center",
                "give p >= 1",
            )

    @property
    def clusters(self) -> int:
        """Number of clusters K."""
        return int(self.points.shape[1] if self.metric == "precomputed" else self.centers.shape[0])

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return int(self.points.shape[0])

    @property
    def rounding(self) -> float:
        r"""Relative error of a distance.

        A column costs a few roundings; a power p counts the error of what it is taken of p times,
        which is done twice (of differences, and of the p-th root), and a rounded exponent 1/p
        counts :math:`|\ln D| < 750` times.
        """
        powers = 3.0 * self.p + 750.0 if self.metric == "lp" else 0.0
        return float(gamma(self.points.shape[1] + 8.0 + powers))

    def columns(self, rows: NDArray[np.intp] | slice) -> Floats:
        """Return the costs of some rows, clusters along the first axis (K x m)."""
        distances = self._distances(rows)
        return distances if self.charge is None else self.charge.on(distances, rows)

    def barred(self, rows: NDArray[np.intp] | slice = slice(None)) -> NDArray[np.bool_]:
        """Return which arcs of some rows are barred (K x m)."""
        distances = self._distances(rows)
        off = False if self.charge is None else self.charge.outside(distances, rows)
        return np.broadcast_to(off, distances.shape)

    def _distances(self, rows: NDArray[np.intp] | slice) -> Floats:
        points = self.points[rows]
        if self.metric == "precomputed":
            return np.ascontiguousarray(points.T)
        if self.metric == "sqeuclidean":
            return np.asarray(cdist(self.centers, points, "sqeuclidean"))
        if self.metric == "l1":
            return np.asarray(cdist(self.centers, points, "cityblock"))
        return np.asarray(cdist(self.centers, points, "minkowski", p=self.p) ** self.p)

    def paired(self, rows: NDArray[np.intp], clusters: NDArray[np.intp]) -> Floats:
        """Return the costs of arcs, by row and cluster."""
        costs = np.empty(rows.size)
        for start in range(0, rows.size, 65_536):
            part = slice(start, start + 65_536)
            block = self.columns(rows[part])
            costs[part] = block[clusters[part], np.arange(block.shape[1])]
        return costs

    def matrix(self) -> Floats:
        """Return the whole n x K matrix."""
        return np.ascontiguousarray(self.columns(slice(None)).T)

    def mean(self, weights: Floats, assignment: Floats, chunk: int = 65_536) -> float:
        """Return sum_ik w_i A_ik D_ik without forming D."""
        total = 0.0
        for start in range(0, self.rows, chunk):
            rows = slice(start, start + chunk)
            block = self.columns(rows)
            total += float(np.einsum("ki,ik,i->", block, assignment[rows], weights[rows]))
        return total


# The cost of putting each row into each cluster, produced block by block.

# Costs of up to this many arcs (128 MB) are kept; beyond it they are recomputed in each pass.
KEEP = 16_000_000
# Rows per block: what is done to one should stay in the cache of a core.
CHUNK = 8_192


class CostRows:
    """Costs with clusters along the first axis and rows ordered by group.

    Minima over clusters then run along contiguous memory, and adding one price vector per
    group is a broadcast instead of a gather.

    Parameters
    ----------
    cost : SeparableCost
        Costs of the declared problem, rows in the user's order.
    groups : array (n,) of int
        Group index of each row.
    weights : array (n,)
        Weights, total 1.
    rows : array of int, optional
        Use these rows only; ``weights`` then belong to them.
    """

    def __init__(
        self,
        cost: SeparableCost,
        groups: NDArray[np.intp],
        weights: Floats,
        rows: NDArray[np.intp] | None = None,
    ) -> None:
        rows = np.arange(groups.size) if rows is None else rows
        kinds = groups[rows].astype(np.min_scalar_type(int(groups.max())))  # sorted by counting
        order = np.argsort(kinds, kind="stable")
        self.rows = rows[order]
        self.groups = groups[self.rows]
        self.weights = weights[order] if weights.size == rows.size else weights[self.rows]
        self.size, self.clusters = self.rows.size, cost.clusters
        self.group_count = int(groups.max()) + 1
        bounds = np.searchsorted(self.groups, np.arange(self.group_count + 1))
        self._bounds = bounds
        self._pieces = [
            (g, start, min(start + CHUNK, int(bounds[g + 1])))
            for g in range(self.group_count)
            for start in range(int(bounds[g]), int(bounds[g + 1]), CHUNK)
        ]
        self.labels = groups
        # charges are of rows in the user's order
        few = self.size * self.clusters <= KEEP and cost.metric != "precomputed"
        self._points = cost.points[self.rows] if few and cost.charge is None else None
        self._take(cost)

    def _take(self, cost: SeparableCost) -> None:
        self.cost = cost
        #: costs of the blocks, from the first pass over them on
        self._kept: list[Floats] = []
        if self._points is not None:
            self._sorted = replace(cost, points=self._points)
        self._keeps = self.size * self.clusters <= KEEP

    def moved(self, centers: Floats) -> CostRows:
        """Return the costs of these rows at other centers."""
        other = copy(self)
        other._take(replace(self.cost, centers=centers))
        return other

    def _compute(self, start: int, stop: int) -> Floats:
        if self._points is not None:
            return self._sorted.columns(slice(start, stop))
        return self.cost.columns(self.rows[start:stop])

    def blocks(self) -> Iterator[tuple[int, int, int, Floats]]:
        """Yield (group, start, stop, costs K x m); the costs must not be written to."""
        if self._keeps and not self._kept:
            self._kept = [self._compute(start, stop) for _, start, stop in self._pieces]
        for index, (g, start, stop) in enumerate(self._pieces):
            yield g, start, stop, self._kept[index] if self._kept else self._compute(start, stop)

    def members(self, group: int) -> NDArray[np.intp]:
        """Return the positions of the rows of one group."""
        return np.arange(self._bounds[group], self._bounds[group + 1])

    def gather(self, positions: NDArray[np.intp]) -> Floats:
        """Return the costs (K x m) of rows given by their position in this ordering."""
        return self.cost.columns(self.rows[positions])


# Margins: by how much the second cluster of a row costs more than its first.

# Rows that margins are taken from, and of a group at least. Costs of a row that differ by this share of
# the largest tie.
LOOKED_AT, OF_GROUP, TIE = 4_096, 50, 1e-12


def least_margin(costs: CostRows) -> float:
    """Return the typical margin of the group that has the least one, of groups that have any."""
    own = (costs.members(g) for g in range(costs.group_count))
    few = max(LOOKED_AT // costs.group_count, OF_GROUP)
    margins = [_margin(costs, at[:: max(1, at.size // few)]) for at in own if at.size]
    return min((m for m in margins if m > 0.0), default=0.0)


def typical_margin(costs: CostRows) -> float:
    """Return by how much the second cluster of a row costs more than its first, on average.

    Ties do not count, and neither do clusters far from all rows.
    """
    return _margin(costs, np.arange(0, costs.size, max(1, costs.size // LOOKED_AT)))


def _margin(costs: CostRows, positions: NDArray[np.intp]) -> float:
    block = costs.gather(positions)
    regret = block - block.min(axis=0)
    regret[regret <= TIE * np.abs(block).max(axis=0)] = np.inf
    second = regret.min(axis=0)
    return float(second[np.isfinite(second)].mean()) if np.isfinite(second).any() else 0.0


# Best centers of given clusters, where they have a closed form.


def best_centers(metric: str, X: Floats, weights: Floats) -> Floats:
    r"""Return the centers of least cost.

    .. math:: \mu_k \in \arg\min_\mu \textstyle\sum_i v_{ik}\, D(x_i, \mu)

    Parameters
    ----------
    metric : {"sqeuclidean", "l1"}
        A key of ``CENTERS``: weighted means, or weighted medians of each column (the lower
        one where an interval is optimal).
    X : array (n, d)
        Rows.
    weights : array (n, K)
        Weight v of each row in each cluster; every column has a positive sum.

    Returns
    -------
    array (K, d)

    Examples
    --------
    >>> import numpy as np
    >>> X, v = np.array([[0.0], [1.0], [9.0]]), np.ones((3, 1))
    >>> best_centers("l1", X, v).item(), round(best_centers("sqeuclidean", X, v).item(), 3)
    (1.0, 3.333)
    """
    return CENTERS[metric](X, weights)


def _means(X: Floats, weights: Floats) -> Floats:
    return np.asarray((weights.T @ X) / weights.sum(axis=0)[:, None])


def _medians(X: Floats, weights: Floats) -> Floats:
    medians = np.empty((weights.shape[1], X.shape[1]))
    for j, column in enumerate(X.T):
        order = np.argsort(column, kind="stable")
        below = np.cumsum(weights[order], axis=0)
        medians[:, j] = column[order[(below < 0.5 * below[-1]).sum(axis=0)]]
    return medians


CENTERS: dict[str, Callable[[Floats, Floats], Floats]] = {"sqeuclidean": _means, "l1": _medians}


# Share of usual costs below which one is rounding.
ROUNDED = 1e-9


def price_unit(costs: Floats, quantile: float) -> float:
    """Return the cost that becomes 1.

    A low quantile for linear programs: arcs to outliers must not drown the near ones. The
    largest for cone programs: an interior-point method wants nothing large.
    """
    size = np.sort(np.abs(costs), axis=None)
    size = size[np.searchsorted(size, 0.0, "right") :]
    if not size.size:
        return 1.0
    # of costs that tie rounding is left
    used = size[np.searchsorted(size, ROUNDED * _ranked(size, 0.75), "right") :]
    return max(_ranked(used, quantile), 1e-12 * float(size[-1]))


def _ranked(ordered: Floats, quantile: float) -> float:
    """Return a quantile of ordered numbers, between two of them on the line."""
    at = quantile * (ordered.size - 1)
    low = int(at)
    high = min(low + 1, ordered.size - 1)
    return float(ordered[low] + (at - low) * (ordered[high] - ordered[low]))
