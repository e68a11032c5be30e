"""Centers that a clustering starts from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.fair_clustering.alternation import alternate
from optfair.methods.fair_clustering.fair_assignment import FairAssignment
from optfair.numbers import check_matrix

Floats = NDArray[np.float64]

__all__ = ["INITS", "check_distinct", "check_init", "starting_centers"]

INITS = ("k-means", "k-means++", "random")


def check_init(init: Any, n_clusters: int, columns: int) -> str | Floats:
    """Return the name of a way to start, or the centers that were given.

    Raises
    ------
    DeclarationError, DataError
        An unknown name, centers of another shape.
    """
    if isinstance(init, str):
        if init not in INITS:
            raise DeclarationError(f"unknown init {init!r}", remedy=nearest(init, INITS))
        return init
    centers = check_matrix(init, "init", columns=columns)
    if centers.shape[0] != n_clusters:
        raise DataError(
            f"init has {centers.shape[0]} centers for n_clusters={n_clusters}",
            remedy="give one row per cluster",
        )
    return centers


def check_distinct(X: Floats, n_clusters: int) -> None:
    """Raise when there are fewer distinct rows than clusters.

    Raises
    ------
    DataError
        With the number of distinct rows.
    """
    if len(np.unique(X[: 20 * n_clusters], axis=0)) >= n_clusters:
        return  # a few rows settle it nearly always
    distinct = len(np.unique(X, axis=0))
    if distinct < n_clusters:
        raise DataError(
            f"n_clusters={n_clusters} is more than the rows can fill",
            f"{len(X)} rows, {distinct} of them distinct",
            f"give n_clusters <= {distinct}",
        )


def starting_centers(
    X: Floats, weights: Floats, n_clusters: int, *, init: str, metric: str, seed: int
) -> Floats:
    """Return centers to start from.

    Parameters
    ----------
    X : array (n, d)
        Rows.
    weights : array (n,)
        Weights of sum 1.
    n_clusters : int
        K.
    init : {"k-means", "k-means++", "random"}
        Centers of plain k-means (k-medians for metric "l1") run to convergence from one
        k-means++ start; that start itself; distinct rows drawn by weight.
    metric : {"sqeuclidean", "l1"}
        Cost that plain clustering minimises.
    seed : int
        Seed of the draw.

    Returns
    -------
    array (K, d)
    """
    if init == "random":
        return _drawn(X, weights, n_clusters, seed)
    from sklearn.cluster import KMeans, kmeans_plusplus

    if init == "k-means" and metric == "sqeuclidean":
        fitted = KMeans(n_clusters, n_init=1, random_state=seed)
        return np.asarray(fitted.fit(X, sample_weight=weights * len(X)).cluster_centers_)
    centers, _ = kmeans_plusplus(X, n_clusters, sample_weight=weights, random_state=seed)
    if init == "k-means":
        # groups play no part without a rule; any two will do
        halves = np.arange(len(X)) % 2
        plain = FairAssignment(
            X,
            groups=halves,
            centers=centers,
            metric=metric,
            sample_weight=np.maximum(weights, np.finfo(float).tiny),
            fairness=None,
        )
        run = alternate(plain, max_iter=100, tol=1e-4)
        if run.status == "interrupted":
            raise KeyboardInterrupt
        centers = run.centers
    return np.asarray(centers, dtype=float)


def _drawn(X: Floats, weights: Floats, n_clusters: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(X), len(X), replace=False) if np.ptp(weights) == 0 else None
    if rows is None:
        positive = np.flatnonzero(weights > 0)
        rows = rng.choice(positive, positive.size, replace=False, p=weights[positive])
    _, first = np.unique(X[rows], axis=0, return_index=True)
    return np.asarray(X[rows[np.sort(first)[:n_clusters]]])
