r"""Cost and fairness of a clustering, measured from rows, groups and an assignment.

Notation: weights :math:`w_i` of sum 1, fractions :math:`A_{ik}`, masses
:math:`M_{gk} = \sum_{i \in g} w_i A_{ik}` and group shares :math:`\pi_g = \sum_k M_{gk}`.

**Hard** (the default): A is 0/1, from labels or from the largest fraction of each row, the
first one on ties. **Soft** (``soft=True``): A as it is. Rules of a problem bound the soft
numbers; papers report the hard ones.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.errors import DataError, nearest
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.numbers import (
    Floats,
    check_count,
    check_flag,
    check_matrix,
    check_number,
    check_seed,
    check_table,
    check_text,
    check_weights,
    checked,
    encode_groups,
)
from optfair.rows.frames import in_one_order


@checked(soft=check_flag, metric=check_text, p=check_number)
@in_one_order("X", "assignment", "sample_weight")
def cost(
    X: Any,
    centers: Any,
    assignment: Any,
    *,
    soft: bool = False,
    sample_weight: Any = None,
    metric: str = "sqeuclidean",
    p: float = 2.0,
) -> float:
    r"""Return the mean cost of rows in their clusters.

    .. math:: \sum_{i,k} w_i A_{ik}\, D(x_i, \mu_k)

    Parameters
    ----------
    X : array-like (n, d)
        Rows.
    centers : array-like (K, d)
        Centers, in the units of the rows.
    assignment : array-like (n,) or (n, K)
        Labels 0 ... K-1, or fractions.
    soft : bool
        Take fractions as they are instead of each row's largest.
    sample_weight : array-like (n,), optional
        Weights; equal by default.
    metric : {"sqeuclidean", "l1", "lp"}
        As in `optfair.FairAssignment`.
    p : float
        Power of metric "lp".

    Returns
    -------
    float
        In units of the metric, e.g. squared units of the rows.

    Raises
    ------
    DataError
        Shapes that do not fit, labels out of range, non-finite entries.

    Examples
    --------
    >>> from optfair import metrics
    >>> metrics.cost([[0.0], [1.0], [4.0]], [[0.0], [4.0]], [0, 0, 1])
    0.3333333333333333
    """
    points = check_matrix(X, "X")
    measured = SeparableCost(
        metric, points, check_matrix(centers, "centers", columns=points.shape[1]), p
    )
    weights = check_weights(sample_weight, measured.rows)
    fractions = cluster_fractions(assignment, measured.rows, soft, measured.clusters)
    return measured.mean(weights, fractions)


@checked(soft=check_flag)
@in_one_order("groups", "assignment", "sample_weight")
def balance(
    groups: Any, assignment: Any, *, soft: bool = False, sample_weight: Any = None
) -> float:
    r"""Return the smallest ratio of two groups in a cluster.

    .. math:: \min_k \min_{g \ne h} M_{gk} / M_{hk}

    Empty clusters do not count. At best it is the balance of the population,
    :math:`\min \pi_g / \pi_h`; it is 0 when a cluster lacks a group.

    Parameters
    ----------
    groups : array-like (n,)
        Group label of each row.
    assignment : array-like (n,) or (n, K)
        Labels 0 ... K-1, or fractions.
    soft : bool
        Take fractions as they are instead of each row's largest.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> from optfair import metrics
    >>> metrics.balance(["a", "a", "b", "a", "b"], [0, 0, 0, 1, 1])
    0.5
    """
    masses, _ = _masses(groups, assignment, soft, sample_weight)
    filled = masses[:, masses.sum(axis=0) > 0]
    return float((filled.min(axis=0) / filled.max(axis=0)).min())


@checked(soft=check_flag)
@in_one_order("groups", "assignment", "sample_weight")
def composition(
    groups: Any, assignment: Any, *, soft: bool = False, sample_weight: Any = None
) -> Floats:
    r"""Return the share of each group in each cluster.

    .. math:: M_{gk} \big/ \textstyle\sum_h M_{hk}

    Parameters
    ----------
    groups : array-like (n,)
        Group label of each row.
    assignment : array-like (n,) or (n, K)
        Labels 0 ... K-1, or fractions.
    soft : bool
        Take fractions as they are instead of each row's largest.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    array (G, K)
        Groups sorted by label; columns sum to 1, NaN for an empty cluster.

    Examples
    --------
    >>> from optfair import metrics
    >>> metrics.composition(["a", "a", "b", "b"], [0, 1, 1, 1]).round(2)
    array([[1.  , 0.33],
           [0.  , 0.67]])
    """
    masses, _ = _masses(groups, assignment, soft, sample_weight)
    return column_shares(masses)


@checked(soft=check_flag)
@in_one_order("groups", "assignment", "sample_weight")
def additive_gap(
    groups: Any, assignment: Any, *, soft: bool = False, sample_weight: Any = None
) -> float:
    r"""Return the largest difference of two groups' fractions, summed over the clusters.

    .. math:: \max_{g,h} \textstyle\sum_k |M_{gk} / \pi_g - M_{hk} / \pi_h|

    What the rule `optfair.additive_gap` bounds, where ``soft``.

    Parameters
    ----------
    groups : array-like (n,)
        Group label of each row.
    assignment : array-like (n,) or (n, K)
        Labels 0 ... K-1, or fractions.
    soft : bool
        Take fractions as they are instead of each row's largest.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    float
        Between 0 (perfectly fair) and 2.

    Examples
    --------
    >>> from optfair import metrics
    >>> metrics.additive_gap(["a", "a", "b", "b"], [0, 1, 1, 1])
    1.0
    """
    return float(fraction_gaps(groups, assignment, soft, sample_weight).sum(axis=1).max())


@checked(soft=check_flag)
@in_one_order("groups", "assignment", "sample_weight")
def max_gap(
    groups: Any, assignment: Any, *, soft: bool = False, sample_weight: Any = None
) -> float:
    r"""Return the largest difference of two groups' fractions in a cluster.

    .. math:: \max_{g,h,k} |M_{gk} / \pi_g - M_{hk} / \pi_h|

    What the rule `optfair.max_gap` bounds, where ``soft``.

    Parameters
    ----------
    groups : array-like (n,)
        Group label of each row.
    assignment : array-like (n,) or (n, K)
        Labels 0 ... K-1, or fractions.
    soft : bool
        Take fractions as they are instead of each row's largest.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    float
        Between 0 (perfectly fair) and 1.

    Examples
    --------
    >>> from optfair import metrics
    >>> metrics.max_gap(["a", "a", "b", "b"], [0, 1, 1, 1])
    0.5
    """
    return float(fraction_gaps(groups, assignment, soft, sample_weight).max())


def fraction_gaps(groups: Any, assignment: Any, soft: bool, sample_weight: Any) -> Floats:
    """Return |difference of fractions| for every pair of groups (rows) and cluster."""
    masses, shares = _masses(groups, assignment, soft, sample_weight)
    parts = masses / shares[:, None]
    return np.stack([np.abs(parts[g] - parts[h]) for g, h in combinations(range(shares.size), 2)])


def _masses(groups: Any, assignment: Any, soft: bool, sample_weight: Any) -> tuple[Floats, Floats]:
    """Return (weight of each group in each cluster, weight share of each group)."""
    given = check_table(assignment, "assignment")
    rows = len(given) if given.ndim else 0
    fractions = cluster_fractions(assignment, rows, soft)
    weights = check_weights(sample_weight, rows)
    index, _, shares = encode_groups(groups, rows, weights)
    return gathered_masses(fractions, index, weights, shares.size), shares


def column_shares(masses: Floats) -> Floats:
    """Return masses over the sums of their columns, NaN where these are 0."""
    sizes = masses.sum(axis=0)
    shares = np.full_like(masses, np.nan)
    np.divide(masses, sizes, out=shares, where=sizes > 0)
    return shares


def gathered_masses(
    fractions: Floats, groups: NDArray[np.intp], weights: Floats, count: int
) -> Floats:
    r"""Return the masses of ``count`` groups (G x K).

    .. math:: M_{gk} = \sum_{i \in g} w_i R_{ik}
    """
    rows = sp.csc_array((weights, groups, np.arange(groups.size + 1)), shape=(count, groups.size))
    return np.asarray(rows @ fractions)


def cluster_fractions(
    assignment: Any, rows: int, soft: bool, clusters: int | None = None
) -> Floats:
    """Return fractions (n, K): of labels, of the largest fraction of each row, or as they are."""
    given = check_table(assignment, "assignment")
    if given.ndim == 2:
        fractions = check_matrix(assignment, "assignment")
        if fractions.shape != (rows, clusters or fractions.shape[1]):
            raise DataError(
                "assignment does not fit the rows and centers",
                f"shape {fractions.shape} for {rows} rows"
                + (f" and {clusters} centers" if clusters else ""),
                "give one row per row, one column per center",
            )
        if soft:
            return fractions
        given, clusters = fractions.argmax(axis=1), fractions.shape[1]
    if given.shape != (rows,) or rows == 0 or given.dtype.kind not in "iu":
        raise DataError(
            "assignment is neither labels nor fractions",
            f"shape {given.shape}, type {given.dtype}, for {rows} rows",
            "give one integer label per row, or an array of rows x clusters",
        )
    count = int(given.max()) + 1 if clusters is None else clusters
    if given.min() < 0 or given.max() >= count:
        raise DataError(
            f"assignment has labels from {given.min()} to {given.max()}",
            f"there are {count} clusters",
            "number the clusters from 0",
        )
    hard = np.zeros((rows, count))
    hard[np.arange(rows), given] = 1.0
    return hard


# How well rows sit in their clusters: the silhouette.

METRICS = ("euclidean", "sqeuclidean", "l1")


@checked(metric=check_text, sample_size=check_count, random_state=check_seed)
@in_one_order("X", "labels")
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
    rows, filled = clusters.size, np.unique(clusters).size
    where = "" if sample_size is None else " of the sample"
    if filled < 2:
        raise DataError(
            f"the rows{where} are in one cluster only",
            f"every label is {clusters[0]}",
            "a silhouette compares clusters: give at least two"
            + (", or a larger sample_size" if where else ""),
        )
    if filled >= rows:
        raise DataError(
            f"the {rows} rows{where} are in {filled} clusters",
            "every row is alone in its cluster, so there is no distance within",
            "ask for fewer clusters" + (", or a larger sample_size" if where else ""),
        )
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(points, clusters, metric=metric))


def _check_labels(labels: Any, rows: int) -> NDArray[Any]:
    given: NDArray[Any] = check_table(labels, "labels")
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
