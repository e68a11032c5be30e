"""How well rows sit in their clusters: the silhouette."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, nearest
from optfair.numbers import check_matrix

__all__ = ["silhouette"]

METRICS = ("euclidean", "sqeuclidean", "l1")


def silhouette(
    X: Any,
    labels: Any,
    *,
    metric: str = "euclidean",
    sample_size: int | None = None,
    random_state: int | np.random.Generator | None = None,
) -> float:
    r"""Return the mean silhouette of rows in their clusters.

    .. math:: \frac1n \sum_i \frac{b_i - a_i}{\max(a_i, b_i)}

    where :math:`a_i` is the mean distance of row i to the other rows of its cluster, and
    :math:`b_i` the smallest mean distance to the rows of another cluster. A row that is alone
    in its cluster counts 0. It is of hard labels; centers play no part.

    Parameters
    ----------
    X : array-like (n, d)
        Rows.
    labels : array-like (n,)
        Cluster of each row, integers from 0. At least 2 clusters and at most n - 1 have rows.
    metric : {"euclidean", "sqeuclidean", "l1"}
        Distance of two rows; papers use the Euclidean one, which is not squared.
    sample_size : int, optional
        Take that many rows, drawn without replacement, instead of all: n rows take
        :math:`n^2` distances.
    random_state : int or numpy.random.Generator, optional
        Seed of the draw.

    Returns
    -------
    float
        Between -1 and 1; large where clusters are apart.

    Raises
    ------
    DataError
        Lengths that do not fit, one cluster only, as many clusters as rows, non-finite entries,
        an unknown metric, a sample larger than the data.

    Examples
    --------
    >>> from optfair import metrics
    >>> round(metrics.silhouette([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1]), 3)
    0.746

    References
    ----------
    Rousseeuw, P. J. (1987). Silhouettes: a graphical aid to the interpretation and validation
    of cluster analysis. Kim et al., *Fair Clustering via Alignment*, ICML 2025, Table 10.
    """
    if metric not in METRICS:
        raise DataError(f"unknown metric {metric!r}", remedy=nearest(str(metric), METRICS))
    points = check_matrix(X, "X")
    clusters = _check_labels(labels, points.shape[0])
    if sample_size is not None:
        chosen = _sample(sample_size, points.shape[0], random_state)
        points, clusters = points[chosen], clusters[chosen]
    rows, found = clusters.size, np.unique(clusters).size
    where = "" if sample_size is None else " of the sample"
    if found < 2:
        raise DataError(
            f"the rows{where} are in one cluster only",
            f"every label is {clusters[0]}",
            "a silhouette compares clusters: give at least two"
            + (", or a larger sample_size" if where else ""),
        )
    if found >= rows:
        raise DataError(
            f"the {rows} rows{where} are in {found} clusters",
            "every row is alone in its cluster, so there is no distance within",
            "ask for fewer clusters" + (", or a larger sample_size" if where else ""),
        )
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(points, clusters, metric=metric))


def _check_labels(labels: Any, rows: int) -> NDArray[Any]:
    given = np.asarray(labels)
    if given.shape != (rows,) or given.dtype.kind not in "iu":
        raise DataError(
            "labels does not fit the rows" if given.ndim == 1 else "labels are not one per row",
            f"shape {given.shape}, type {given.dtype}, for {rows} rows",
            "give one integer per row; of fractions (n, K), their argmax(axis=1)",
        )
    if given.min() < 0:
        raise DataError(
            f"labels has {int(given.min())}",
            f"the first is in row {int(np.flatnonzero(given < 0)[0])}",
            "number the clusters from 0, and drop rows that are in none",
        )
    return given


def _sample(size: Any, rows: int, random_state: Any) -> NDArray[np.intp]:
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 2 < size <= rows:
        raise DataError(
            f"sample_size is {size!r}",
            f"there are {rows} rows",
            f"give an integer from 3 to {rows}, or None for all rows",
        )
    return np.random.default_rng(random_state).choice(rows, int(size), replace=False)
