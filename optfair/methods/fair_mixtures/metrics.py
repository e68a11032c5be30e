r"""How likely rows are under a mixture, how groups differ in it, and what its clusters hold.

Notation and the two readings of an assignment, **hard** (the default) and **soft**, are those
of `optfair.methods.fair_clustering.metrics`, whose `balance` and `cost` serve mixtures too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, kind_of
from optfair.methods.fair_clustering.metrics import (
    cluster_fractions,
    column_shares,
    cost,
    fraction_gaps,
    gathered_masses,
)
from optfair.numbers import (
    Floats,
    check_flag,
    check_labels,
    check_table,
    check_text,
    check_weights,
    checked,
)
from optfair.rows.frames import in_one_order


@checked(soft=check_flag)
@in_one_order("groups", "assignment", "sample_weight")
def mean_gap(
    groups: Any, assignment: Any, *, soft: bool = False, sample_weight: Any = None
) -> float:
    r"""Return Δ: the mean difference of two groups' fractions, in the worst cluster.

    .. math:: \Delta = \max_k \frac{2}{G(G-1)} \sum_{g < h} |M_{gk} / \pi_g - M_{hk} / \pi_h|

    What the penalty of `FairMixture` weighs, where ``soft``. For two groups it is
    `optfair.metrics.max_gap`; for more it is at most that.

    Parameters
    ----------
    groups : array-like (n,)
        Group label of each row.
    assignment : array-like (n,) or (n, K)
        Labels 0 ... K-1, or responsibilities.
    soft : bool
        Take responsibilities as they are instead of each row's largest.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    float
        Between 0 (perfectly fair) and 1.

    Examples
    --------
    >>> mean_gap(["a", "a", "b", "c"], [0, 1, 1, 1])
    0.3333333333333333

    References
    ----------
    Park, Kim, Lee, Kim: Fair Model-based Clustering, AAAI 2026, eq. 6; eq. 14 over unordered
    pairs, so that both agree for two groups.
    """
    return float(fraction_gaps(groups, assignment, soft, sample_weight).mean(axis=0).max())


@in_one_order("X", "sample_weight")
def negative_log_likelihood(model: Any, X: Any, *, sample_weight: Any = None) -> float:
    r"""Return the mean negative log density of rows.

    .. math:: -\sum_i w_i \log \textstyle\sum_k \pi_k f_k(x_i)

    Parameters
    ----------
    model : FairMixture, or anything with ``score_samples``
        A fitted density.
    X : array-like or DataFrame (n, d)
        Rows.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    float
        In nats per row; smaller is better.

    Raises
    ------
    DataError
        Log densities that are not one per row.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neighbors import KernelDensity
    >>> X = np.array([[0.0], [1.0]])
    >>> round(negative_log_likelihood(KernelDensity().fit(X), X), 3)
    1.138
    """
    if not hasattr(model, "score_samples"):
        raise DataError(f"{kind_of(model)} gives no log densities", remedy="give a fitted density")
    logs = np.asarray(model.score_samples(X), dtype=float)
    if logs.shape != (len(X),):
        raise DataError(
            "the model does not give one log density per row",
            f"shape {logs.shape} for {len(X)} rows",
            "give a fitted density such as FairMixture",
        )
    return -float(check_weights(sample_weight, logs.size) @ logs)


@checked(soft=check_flag, metric=check_text)
def total_cost(
    X: Any,
    centers: Any,
    assignment: Any,
    *,
    soft: bool = False,
    sample_weight: Any = None,
    metric: str = "sqeuclidean",
) -> float:
    r"""Return the summed cost of rows in their clusters, as papers print it.

    .. math:: \sum_{i,k} w_i A_{ik}\, D(x_i, \mu_k)

    `optfair.metrics.cost` with weights as they are given: 1 for each row by default.

    Parameters
    ----------
    X, centers, assignment, soft, metric
        As of `optfair.metrics.cost`.
    sample_weight : array-like (n,), optional
        Weights, of any sum.

    Examples
    --------
    >>> total_cost([[0.0], [1.0], [4.0]], [[0.0], [4.0]], [0, 0, 1])
    1.0
    """
    mean = cost(X, centers, assignment, soft=soft, sample_weight=sample_weight, metric=metric)
    return mean * (len(X) if sample_weight is None else float(np.sum(sample_weight)))


@checked(soft=check_flag)
@in_one_order("values", "assignment", "sample_weight")
def category_profile(
    values: Any, assignment: Any, *, soft: bool = False, sample_weight: Any = None
) -> tuple[NDArray[Any], Floats]:
    r"""Return the categories of a column, and the share of each in each cluster.

    .. math:: \sum_{i : v_i = c} w_i A_{ik} \big/ \textstyle\sum_i w_i A_{ik}

    Parameters
    ----------
    values : array-like (n,)
        The column.
    assignment : array-like (n,) or (n, K)
        Labels 0 ... K-1, or responsibilities.
    soft : bool
        Take responsibilities as they are instead of each row's largest.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    categories : array (c,)
        Sorted.
    shares : array (K, c)
        Rows sum to 1; NaN for an empty cluster.

    Raises
    ------
    DataError
        A column that does not fit the rows.

    Examples
    --------
    >>> names, shares = category_profile(["own", "rent", "rent"], [0, 0, 1])
    >>> names.tolist(), shares.tolist()
    (['own', 'rent'], [[0.5, 0.5], [0.0, 1.0]])
    """
    given = check_labels(values, "values")
    rows = given.size if np.ndim(check_table(assignment, "assignment")) else 0
    if given.shape != (rows,):
        raise DataError(
            "values does not fit the assignment",
            f"shape {given.shape} for {rows} rows",
            "give one value per row",
        )
    fractions, weights = (
        cluster_fractions(assignment, rows, soft),
        check_weights(sample_weight, rows),
    )
    names, index = np.unique(given, return_inverse=True)
    return names, column_shares(gathered_masses(fractions, index, weights, names.size)).T
