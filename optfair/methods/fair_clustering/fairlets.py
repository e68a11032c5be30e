"""Fairlet decomposition: couple two groups once, then cluster the pairs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.assignment import cluster_count
from optfair.methods.fair_clustering.coupling import KantorovichCoupling
from optfair.methods.fair_clustering.metrics import balance, cost
from optfair.methods.fair_clustering.single_start import check_distinct
from optfair.numbers import (
    Floats,
    Indices,
    check_seed,
    check_weights,
    checked,
    encode_groups,
    whole,
)
from optfair.rows.frames import taken_apart

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
    >>> from optfair.methods.fair_clustering.fairlets import fairlet_clustering
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
