"""Costs D[i, k] of a row in a cluster: a metric between rows and centers, or a given matrix."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.errors import DeclarationError, nearest

Floats = NDArray[np.float64]

__all__ = ["METRICS", "SeparableCost"]

METRICS = ("sqeuclidean", "l1", "lp", "precomputed")


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
    """

    metric: str
    points: Floats
    centers: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    p: float = 2.0

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

    def columns(self, rows: NDArray[np.intp] | slice) -> Floats:
        """Return the costs of some rows, clusters along the first axis (K x m)."""
        points = self.points[rows]
        if self.metric == "precomputed":
            return np.ascontiguousarray(points.T)
        if self.metric == "sqeuclidean":
            return np.asarray(cdist(self.centers, points, "sqeuclidean"))
        if self.metric == "l1":
            return np.asarray(cdist(self.centers, points, "cityblock"))
        return np.asarray(cdist(self.centers, points, "minkowski", p=self.p) ** self.p)

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
