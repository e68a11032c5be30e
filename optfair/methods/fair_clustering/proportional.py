"""Proportional fairness: whether many rows together are better off with a center of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, nearest
from optfair.methods.fair_clustering.assignment import cluster_count
from optfair.methods.fair_clustering.metrics import METRICS, cluster_fractions
from optfair.numbers import Floats, check_matrix, check_text, check_weights, checked

# Entries of a block of distances; relative rounding of summed weights.
BLOCK, ROUNDING = 4_000_000, 1e-12


@checked(metric=check_text)
def core_violation(
    X: Any,
    centers: Any,
    *,
    candidates: Any = None,
    assignment: Any = None,
    metric: str = "euclidean",
    sample_weight: Any = None,
) -> float:
    r"""Return by what factor a K-th of the rows could all come nearer to one further center.

    .. math::
        \rho = \max_{y} \max_{S : w(S) \ge w / K} \min_{i \in S}
        \frac{d(x_i, \mu_{k(i)})}{d(x_i, y)}

    over the candidates y. It is exact: for each y the best coalition S is a prefix of the rows
    sorted by the ratio. Centers are ρ-proportional, and in the core where ρ ≤ 1: no coalition that
    is entitled to a center by its size improves. A row at its center never improves; a coalition
    of rows that all are at a candidate, but not at a center, makes ρ infinite.

    Parameters
    ----------
    X : array-like (n, d)
        Rows.
    centers : array-like (K, d)
        Centers, in the units of the rows.
    candidates : array-like (m, d), optional
        Where further centers may stand; the rows by default.
    assignment : array-like (n,) of int, optional
        Labels 0 ... K-1; the nearest centers by default.
    metric : {"euclidean", "sqeuclidean", "l1"}
        Distance d; squared ones give the square of ρ.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    float
        From 0 on, without a unit. `greedy_capture` reaches at most 1 + √2 for distances that obey
        the triangle inequality; for some rows no centers are below 2.

    Raises
    ------
    DataError
        Shapes that do not fit, labels out of range, non-finite entries, an unknown metric.

    Examples
    --------
    >>> from optfair import metrics
    >>> X = [[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]]
    >>> metrics.core_violation(X, [[1.0], [11.0]])  # no three rows want to leave
    0.125
    >>> metrics.core_violation(X, [[6.0], [20.0]])  # rows 10, 11, 12: 4, 5, 6 against 1, 0, 1
    4.0

    References
    ----------
    Chen, Fain, Lyu, Munagala: Proportionally Fair Clustering, ICML 2019.
    """
    points, places, weights = _given(X, candidates, metric, sample_weight)
    mu = check_matrix(centers, "centers", columns=points.shape[1])
    own = _distances(points, mu, metric)
    if assignment is None:
        now = own.min(axis=1)
    else:
        now = own[cluster_fractions(assignment, len(points), False, len(mu)) > 0]
    entitled = _entitled(weights, len(mu))
    best = 0.0
    for _, some in _blocks(places, len(points)):
        d = _distances(points, some, metric)
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.divide(now[:, None], d, out=np.zeros_like(d), where=now[:, None] > 0)
        order = np.argsort(-ratio, axis=0)
        last = (np.cumsum(weights[order], axis=0) >= entitled).argmax(axis=0)
        at = np.arange(last.size)
        best = max(best, float(ratio[order[last, at], at].max()))
    return best


@checked(metric=check_text)
def greedy_capture(
    X: Any,
    n_clusters: int,
    *,
    candidates: Any = None,
    metric: str = "euclidean",
    sample_weight: Any = None,
) -> NDArray[np.intp]:
    r"""Choose centers among candidates that are (1 + √2)-proportional.

    Balls around all candidates grow together. One that holds a K-th of the rows, of those not
    captured, becomes a center and captures them; centers capture what their balls reach later. So
    a coalition of a K-th of the rows that wants a candidate y had a member captured before all of
    it were in the ball of y; the triangle inequality bounds what another member gains. Where fewer
    than K centers result, candidates that save most are added: further centers never harm.

    A start for k-means: ``FairKMeans(K, init=X[greedy_capture(X, K)])``. Each center costs a
    sort of n·m distances.

    Parameters
    ----------
    X : array-like (n, d)
        Rows.
    n_clusters : int
        Number of centers K.
    candidates : array-like (m, d), optional
        Where centers may stand; the rows by default.
    metric : {"euclidean", "sqeuclidean", "l1"}
        Distance; squares choose as "euclidean" does until centers are added.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    array (K,) of int
        Candidates that are centers, in the order they were opened.

    Raises
    ------
    DataError
        Shapes that do not fit, more clusters than candidates, an unknown metric.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]]
    >>> of.fair_clustering.greedy_capture(X, 2).tolist()
    [1, 4]

    References
    ----------
    Chen, Fain, Lyu, Munagala: Proportionally Fair Clustering, ICML 2019 (Algorithm 1, Theorem 1).
    """
    points, places, weights = _given(X, candidates, metric, sample_weight)
    K = cluster_count(n_clusters, len(places), "n_clusters", "candidates")
    entitled = _entitled(weights, K)
    chosen: list[int] = []
    left = weights > 0  # rows not captured
    reached = np.full(len(points), np.inf)  # when a center's ball reaches a row
    while len(chosen) < K:
        when, where = np.inf, -1
        for start, some in _blocks(places, len(points)):
            first = _filled(
                _distances(points[left], some, metric), reached[left], weights[left], entitled
            )
            j = int(np.argmin(first))
            if first[j] < when:
                when, where = float(first[j]), start + j
        if where < 0:
            break
        chosen.append(where)
        d = _distances(points, places[where : where + 1], metric)[:, 0]
        left &= (reached > when) & (d > when)
        reached = np.minimum(reached, d)
    while len(chosen) < K:
        saved = np.concatenate(
            [
                weights @ np.maximum(reached[:, None] - _distances(points, some, metric), 0.0)
                for _, some in _blocks(places, len(points))
            ]
        )
        saved[chosen] = -1.0
        chosen.append(int(np.argmax(saved)))
        at = places[chosen[-1] : chosen[-1] + 1]
        reached = np.minimum(reached, _distances(points, at, metric)[:, 0])
    return np.array(chosen, dtype=np.intp)


def _filled(d: Floats, reached: Floats, weights: Floats, entitled: float) -> Floats:
    """Return the radius at which the ball of each column first holds the weight, else infinity.

    Row i counts in it from ``d[i]`` on until a center's ball reaches it.
    """
    counts = d < reached[:, None]
    times = np.concatenate(
        [np.where(counts, d, np.inf), np.where(counts, reached[:, None], np.inf)]
    )
    change = np.concatenate([weights, -weights])
    order = np.argsort(times, axis=0, kind="stable")
    times = np.take_along_axis(times, order, axis=0)
    full = (np.cumsum(change[order], axis=0) >= entitled) & np.isfinite(times)
    # of rows that come and go at one radius those that go count not: look where it ends
    full[:-1] &= times[:-1] < times[1:]
    at = full.argmax(axis=0)
    columns = np.arange(at.size)
    return np.where(full[at, columns], times[at, columns], np.inf)


def _given(
    X: Any, candidates: Any, metric: str, sample_weight: Any
) -> tuple[Floats, Floats, Floats]:
    if metric not in METRICS:
        raise DataError(f"unknown metric {metric!r}", remedy=nearest(metric, METRICS))
    points = check_matrix(X, "X")
    places = points
    if candidates is not None:
        places = check_matrix(candidates, "candidates", columns=points.shape[1])
    weights = check_weights(sample_weight, len(points))
    if sample_weight is None:  # counts are exact
        weights = np.ones(len(points))
    return points, places, weights


def _entitled(weights: Floats, clusters: int) -> float:
    """Return the weight that has a right to a center; rounding of its sum is left out."""
    return float(weights.sum() / clusters * (1.0 - ROUNDING))


def _blocks(places: Floats, rows: int) -> list[tuple[int, Floats]]:
    size = max(1, BLOCK // rows)
    return [(start, places[start : start + size]) for start in range(0, len(places), size)]


def _distances(X: Floats, Z: Floats, metric: str) -> Floats:
    from scipy.spatial.distance import cdist

    name: Any = "cityblock" if metric == "l1" else metric
    return np.asarray(cdist(X, Z, name))
