"""Clusterings with a guarantee that solve no program in all rows: fairlets, and greedy capture for proportionality."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.fair_clustering.assignment import cluster_count
from optfair.methods.fair_clustering.coupling import KantorovichCoupling
from optfair.methods.fair_clustering.metrics import METRICS, balance, cluster_fractions, cost
from optfair.methods.fair_clustering.single_start import check_distinct
from optfair.numbers import (
    Floats,
    Indices,
    check_matrix,
    check_seed,
    check_text,
    check_weights,
    checked,
    encode_groups,
    whole,
)
from optfair.rows.frames import in_one_order, taken_apart

# Entries of the largest cost matrix that is built: with the plan and its certificate the
# network simplex takes about 60 bytes per entry.
LARGEST_COUPLING = 25_000_000


@dataclass(frozen=True, eq=False, repr=False)
class FairletClustering:
    """Clusters of fairlets: perfectly fair, because each fairlet is.

    Attributes
    ----------
    labels : array (n,) of int
        Cluster with the largest fraction of each row (hard).
    soft_assignment : array (n, K)
        Fraction of each row in each cluster; perfectly fair.
    centers : array (K, d)
        Centers of k-means on the fairlets' means.
    objective : float
        Mean cost of the soft assignment: the cost of the decomposition plus that of the
        k-means on the fairlets' means.
    decomposition_cost : float
        Mean cost inside the fairlets, which no choice of clusters can reduce.
    cost, balance : float
        Mean cost and balance of the hard labels, as papers report them.
    plan : scipy.sparse array (n0, n1)
        Mass of each fairlet, total 1; rows of each group in the order given.
    group_names : array (2,)
        Sorted labels.
    seconds : float
        Wall time.
    """

    labels: Indices
    soft_assignment: Floats
    centers: Floats
    objective: float
    decomposition_cost: float
    cost: float
    balance: float
    plan: sp.csr_array
    group_names: NDArray[Any]
    seconds: float

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"FairletClustering: {self.plan.nnz} fairlets in {len(self.centers)} clusters,"
                f" {self.seconds:.2f} s",
                f"  objective  {self.objective:.10g} (soft), of it"
                f" {self.decomposition_cost:.10g} inside the fairlets",
                f"  hard       cost {self.cost:.10g}, balance {self.balance:.6g}",
            ]
        )


@checked(random_state=check_seed)
def fairlet_clustering(
    X: Any,
    *,
    groups: Any,
    n_clusters: int,
    partition_size: int | None = None,
    n_init: int = 10,
    random_state: Any = None,
) -> FairletClustering:
    r"""Couple two groups at least cost, and cluster the means of the pairs.

    .. math::
        \Gamma \in \arg\min_\Gamma \textstyle\sum_{ij} \Gamma_{ij}\, \pi_0 \pi_1 \|x_i - x_j\|^2
        \;\text{ s.t. }\; \Gamma 1 = 1/n_0,\; \Gamma^T 1 = 1/n_1,
        \qquad
        \mu \in \arg\min_\mu \textstyle\sum_{ij} \Gamma_{ij} \min_k
        \|\pi_0 x_i + \pi_1 x_j - \mu_k\|^2

    A heuristic in two steps: the first is an LP and solved with a certificate, but does not
    know the clusters; the second is k-means. The two terms add up to the cost of the soft
    assignment in which both rows of a pair follow it,
    :math:`A_{ik} = n_0 \sum_{j: (i, j) \in k} \Gamma_{ij}`. Alternating both, as `alternate`
    and `FairKMeans` do, starts where this ends or lower.

    With groups of equal size a pair is a fairlet of Chierichetti et al.; with others rows
    are split between pairs, as the coupling of the alignment paper does.

    Parameters
    ----------
    X : array-like or DataFrame (n, d)
        Rows; the cost is the squared distance.
    groups : array-like (n,) or str
        Group label of each row, or the column of the frame that holds it; two groups.
    n_clusters : int
        Number of clusters K.
    partition_size : int, optional
        Rows per block, both groups together. The groups are split at random into equally
        heavy blocks that are coupled one by one; a row on a boundary is split. One block by
        default.
    n_init : int
        Starts of k-means.
    random_state : int, Generator or None
        Seeds blocks and k-means.

    Returns
    -------
    FairletClustering

    Raises
    ------
    DataError
        Other than two groups, entries or lengths that do not fit, more clusters than
        fairlets, a cost matrix that is too large to build.
    DeclarationError
        A number of starts that is none.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.approximations import fairlet_clustering
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> found = fairlet_clustering(X, groups=sex, n_clusters=5, random_state=0)
    >>> of.metrics.max_gap(sex, found.soft_assignment, soft=True) <= 1e-12
    True
    >>> p = of.FairAssignment(X, groups=sex, centers=found.centers)
    >>> p.solve().objective < found.objective  # other pairs fit these centers better
    True

    References
    ----------
    Chierichetti, Kumar, Lattanzi, Vassilvitskii: Fair Clustering Through Fairlets, NeurIPS
    2017. Kim, Lee, Park, Kim: Fair Clustering via Alignment, ICML 2025, §4.3 (blocks), §A.1.
    """
    begin = time.perf_counter()
    check_starts(n_init)
    rows, given, _ = taken_apart(X, groups)
    weights = check_weights(None, len(rows))
    index, names, _ = encode_groups(given, len(rows), weights)
    if names.size != 2:
        raise DataError(
            f"fairlets pair two groups, there are {names.size}",
            ", ".join(map(str, names)),
            "merge groups, or use FairKMeans, which takes any number",
        )
    sides = (np.flatnonzero(index == 0), np.flatnonzero(index == 1))
    cluster_count(n_clusters, len(rows), "n_clusters", "rows")
    rng = np.random.default_rng(random_state)
    blocks = _blocks(sides, partition_size, rng)
    plan, inside = _coupled(rows, sides, blocks)
    first, second = plan.coords
    pi0 = sides[0].size / len(rows)
    means = pi0 * rows[sides[0]][first] + (1.0 - pi0) * rows[sides[1]][second]
    centers, clusters = weighted_kmeans(
        means, plan.data, n_clusters, n_init=n_init, random_state=rng
    )
    A = np.zeros((len(rows), n_clusters))
    for side, place in zip(sides, (first, second), strict=True):
        np.add.at(A, (side[place], clusters), plan.data * side.size)
    spread = float(plan.data @ ((means - centers[clusters]) ** 2).sum(axis=1))
    labels = A.argmax(axis=1)
    return FairletClustering(
        labels=labels,
        soft_assignment=A,
        centers=centers,
        objective=inside + spread,
        decomposition_cost=inside,
        cost=cost(rows, centers, labels),
        balance=balance(index, labels),
        plan=sp.csr_array(plan),
        group_names=names,
        seconds=time.perf_counter() - begin,
    )


def check_starts(n_init: Any) -> None:
    """Raise when a number of starts is none.

    Raises
    ------
    DeclarationError
        Not an integer of at least 1.
    """
    if not whole(n_init) or n_init < 1:
        raise DeclarationError(
            f"n_init={n_init!r} is not a positive integer", remedy="give e.g. 10"
        )


def weighted_kmeans(
    points: Floats, weights: Floats, n_clusters: int, *, n_init: int, random_state: Any
) -> tuple[Floats, Indices]:
    """Return centers and labels of plain k-means.

    Parameters
    ----------
    points : array (m, d)
        Rows.
    weights : array (m,)
        Weights, of any sum.
    n_clusters, n_init : int
        Number of clusters, and of starts.
    random_state : int, Generator or None
        Seeds the starts.

    Returns
    -------
    centers : array (K, d)
    labels : array (m,) of int

    Raises
    ------
    DataError
        More clusters than distinct points.
    """
    from sklearn.cluster import KMeans

    check_distinct(points, n_clusters)
    seed = int(np.random.default_rng(random_state).integers(2**31 - 1))
    fitted = KMeans(n_clusters, n_init=n_init, random_state=seed)
    # weights of mean 1 keep k-means' tolerances where they are for equal ones
    fitted.fit(points, sample_weight=weights / weights.mean())
    return np.asarray(fitted.cluster_centers_), np.asarray(fitted.labels_, dtype=np.intp)


# Rows of both groups and their masses, in units of 1 / (n0 n1 blocks).
_Block = tuple[Indices, Floats, Indices, Floats]


def _blocks(
    sides: tuple[Indices, Indices], partition_size: int | None, rng: np.random.Generator
) -> list[_Block]:
    """Cut both groups at random into parts of equal mass; rows on a cut belong to two parts."""
    n0, n1 = (int(side.size) for side in sides)
    count = 1
    if partition_size is not None:
        if not whole(partition_size) or partition_size < 2:
            raise DataError(
                f"partition_size={partition_size!r} is not a number of rows per block",
                remedy="give an integer of at least 2, e.g. 1024",
            )
        count = min(max(1, round((n0 + n1) / partition_size)), n0, n1)
    largest = -(-n0 // count) * -(-n1 // count)
    if largest > LARGEST_COUPLING:
        raise DataError(
            f"a cost matrix of {largest:.3g} entries is too large to build",
            f"{n0} x {n1} rows in {count} block(s); the limit is {LARGEST_COUPLING:.3g} entries",
            "give partition_size=1024, or less than now",
        )
    # a row of group 0 weighs n1 * count units, one of group 1 n0 * count, a block n0 * n1:
    # integers, so that masses are exact
    first, second = (
        _parts(rng.permutation(side) if count > 1 else side, unit * count, n0 * n1)
        for side, unit in zip(sides, (n1, n0), strict=True)
    )
    return [(*a, *b) for a, b in zip(first, second, strict=True)]


def _parts(rows: Indices, mass: int, size: int) -> list[tuple[Indices, Floats]]:
    """Cut rows of equal mass, laid end to end, into parts of a given size."""
    parts = []
    for start in range(0, rows.size * mass, size):
        stop = start + size
        place = np.arange(start // mass, -(-stop // mass))
        inside = np.minimum((place + 1) * mass, stop) - np.maximum(place * mass, start)
        parts.append((rows[place], inside.astype(float)))
    return parts


def _coupled(
    X: Floats, sides: tuple[Indices, Indices], blocks: list[_Block]
) -> tuple[sp.coo_array, float]:
    """Return the plan (n0 x n1), and what it costs."""
    n0, n1 = (side.size for side in sides)
    place = np.empty(len(X), dtype=np.intp)
    for side in sides:
        place[side] = np.arange(side.size)
    weight, unit = n0 * n1 / len(X) ** 2, 1.0 / (n0 * n1 * len(blocks))
    total, entries = 0.0, []
    for i, a, j, b in blocks:
        C = weight * cdist(X[i], X[j], "sqeuclidean")
        plan = np.asarray(KantorovichCoupling(cost=C, a=a, b=b).solve()["plan"])
        at = np.nonzero(plan)
        entries.append((place[i[at[0]]], place[j[at[1]]], plan[at]))
        total += float(plan[at] @ C[at])
    rows, columns, mass = (np.concatenate(part) for part in zip(*entries, strict=True))
    joined = sp.coo_array((mass * unit, (rows, columns)), shape=(n0, n1))
    joined.sum_duplicates()  # a pair may meet in two blocks
    return joined, total * unit


# Proportional fairness: whether many rows together are better off with a center of their own.

# Entries of a block of distances; relative rounding of summed weights.
BLOCK, ROUNDING = 4_000_000, 1e-12


@checked(metric=check_text)
@in_one_order("X", "assignment", "sample_weight")
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
    for _, some in _places(places, len(points)):
        d = _distances(points, some, metric)
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.divide(now[:, None], d, out=np.zeros_like(d), where=now[:, None] > 0)
        order = np.argsort(-ratio, axis=0)
        last = (np.cumsum(weights[order], axis=0) >= entitled).argmax(axis=0)
        at = np.arange(last.size)
        best = max(best, float(ratio[order[last, at], at].max()))
    return best


@checked(metric=check_text)
@in_one_order("X", "sample_weight")
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
    while len(chosen) < K and left.any():
        when, where = np.inf, -1
        for start, some in _places(places, len(points)):
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
                for _, some in _places(places, len(points))
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


def _places(places: Floats, rows: int) -> list[tuple[int, Floats]]:
    size = max(1, BLOCK // rows)
    return [(start, places[start : start + size]) for start in range(0, len(places), size)]


def _distances(X: Floats, Z: Floats, metric: str) -> Floats:
    name: Any = "cityblock" if metric == "l1" else metric
    return np.asarray(cdist(X, Z, name))
