"""The best labels of up to some hundred rows, and a proved bound on every other labelling."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.algorithms.set_search import SetSearch
from optfair.methods.fair_clustering.assignment import FairAssignment, cluster_count, each_rule
from optfair.methods.fair_clustering.labels import ROUNDING
from optfair.methods.fair_clustering.rules import PerfectFairness, is_on_each_cluster
from optfair.numbers import (
    Floats,
    Indices,
    check_matrix,
    check_number,
    check_seed,
    check_weights,
    checked,
    encode_groups,
)
from optfair.rows.frames import check_row_order, generator

# Counts of groups in a cluster that are looked through at most.
MOST_COUNTS = 20_000
# Relative gap below which rounding is looked at.
LEAST_GAP = 1e-9


@dataclass(frozen=True, eq=False)
class CertifiedLabels:
    """Labels of whole rows, and a bound on the cost of all labels that obey the rule.

    Attributes
    ----------
    labels : array (n,) of int
        Cluster of each row.
    centers : array (K, d)
        Means of the clusters that have rows; NaN of the others.
    objective : float
        Mean squared distance to the centers.
    bound : float
        Proved: no labels that obey the rule cost less, whatever the centers.
    gap : float
        Relative difference of the two.
    columns : int
        Clusters that were generated.
    nodes : int
        Sets of clusters that were excluded or split; 0 where the relaxation was enough.
    seconds : float
        Wall time.
    """

    labels: Indices = field(repr=False)
    centers: Floats = field(repr=False)
    objective: float
    bound: float
    gap: float
    columns: int
    nodes: int
    seconds: float


@checked(random_state=check_seed)
def certified_kmeans(
    X: Any,
    *,
    groups: Any,
    n_clusters: int,
    fairness: Any = PerfectFairness(),  # noqa: B008 - a frozen value
    sample_weight: Any = None,
    gap: float = 1e-6,
    time_limit: float = 300.0,
    random_state: Any = 0,
) -> CertifiedLabels:
    r"""Cluster up to some hundred rows at the least cost there is, and prove how near the labels are.

    .. math::
        \min_{\lambda \ge 0}\; \sum_{S} c(S)\, \lambda_S
        \quad\text{s.t.}\quad \sum_{S \ni i} \lambda_S = 1 \;\forall i,\;
        \sum_S \lambda_S \le K,
        \qquad c(S) = \frac{1}{n |S|} \sum_{i < j \in S} \|x_i - x_j\|^2

    over the sets S of rows that obey the rule: c is the cost of a cluster at its mean. Class: LP
    with a column for every such set, the relaxation of a set partitioning problem. For any prices
    u of the rows,

    .. math:: \sum_i u_i + K \min\bigl(0,\; \min_S\, c(S) - \textstyle\sum_{i \in S} u_i\bigr)

    is a bound on the cost of all labels. Sets are generated where they lower the program; the
    inner minimum is then proved by branching on the rows of a cluster: with rows I in it, a row f
    that joins a cluster of m rows costs at least 1/(nm) times its squared distances to I and half
    of those to the :math:`m - |I| - 1` nearest free rows, and the cheapest rows that give each
    group one of its allowed counts are taken. The bound is charged for rounding. It holds for
    labels of whole rows; fractions may cost less, see `FairKMeansBound` for these, and for more rows.

    Large clusters are many: their cheapest set is hard to prove, and the semidefinite relaxation,
    which needs none, is near instead. So each case has the larger of two bounds, the other being that
    of `FairKMeansBound` with ``labels="hard"``, from a splitting method. Where neither is enough,
    two rows are put together or apart and both cases solved. 60 rows take seconds to minutes, 200
    rows of clear clusters half a minute; `benchmarks/fair_steps.py --only certified` prints both.

    Parameters
    ----------
    X : array-like or DataFrame (n, d)
        Rows of equal weight; the cost is the squared distance.
    groups : array-like (n,), or DataFrame or dict with a column for each attribute
        As in `FairAssignment`.
    n_clusters : int
        Largest number of clusters K.
    fairness : Rule
        Rules on the masses of each cluster, the same for all: not `additive_gap`, which adds
        clusters up, and no `cluster_share` with bounds for each.
    sample_weight : array-like (n,), optional
        Equal for all rows: what proves a bound counts the rows of a cluster.
    gap : float
        Relative gap at which the search ends.
    time_limit : float
        Wall seconds; then the best labels are returned with the bound reached.
    random_state : int, Generator, RandomState or None
        Seed of the searches for sets; what is proved does not depend on it.

    Returns
    -------
    CertifiedLabels

    Raises
    ------
    DataError
        NaN or infinite entries, lengths that do not fit, K > n; rows whose numbers in the groups
        do not divide as the rule asks; too many counts to look through.
    DeclarationError
        A rule that is not on each cluster; weights that differ.

    Examples
    --------
    >>> import optfair as of
    >>> X, groups = [[0.0], [1.0], [10.0], [11.0]], ["a", "a", "b", "b"]
    >>> best = of.fair_clustering.certified_kmeans(X, groups=groups, n_clusters=2)
    >>> best.labels.tolist(), best.objective, best.gap <= 1e-6
    ([0, 1, 0, 1], 25.0, True)

    References
    ----------
    Aloise, Hansen, Liberti: An improved column generation algorithm for minimum sum-of-squares
    clustering, Mathematical Programming 131 (2012).
    Ryan, Foster: An integer programming approach to scheduling, 1981 (branching on pairs).
    Piccialli, Sudoso, Wiegele: SOS-SDP: an exact solver for minimum sum-of-squares clustering,
    INFORMS Journal on Computing 34 (2022).
    """
    check_row_order(X=X, groups=groups, sample_weight=sample_weight)
    X, gap = check_matrix(X, "X"), check_number(gap, "gap", least=0.0)
    time_limit = check_number(time_limit, "time_limit", least=0.0)
    n = X.shape[0]
    K = cluster_count(n_clusters, n, "n_clusters", "rows")
    weights = check_weights(sample_weight, n)
    if np.ptp(weights) > 1e-12 * weights.max():
        raise DeclarationError(
            "rows of unequal weight are not certified",
            f"sets of rows are told apart by their numbers in each group, weights go from"
            f" {weights.min() * n:.3g} to {weights.max() * n:.3g} times the mean",
            "leave sample_weight out, repeat rows whose weight is a whole number, or take the bound"
            " of fractions: FairKMeansBound",
        )
    index, _, shares = encode_groups(groups, n, np.full(n, 1.0 / n))
    begin = time.perf_counter()
    counts, filled = allowed_counts(groups, index, K, fairness)
    search = SetSearch(X, index, counts, K, filled, generator(random_state))
    if not (len(counts) and search.start()):
        raise DataError(
            "no labels of whole rows obey the rule",
            f"the groups have {', '.join(f'{c:.0f}' for c in shares * n)} rows, which do not"
            f" divide into {'' if filled else 'at most '}{K} clusters as it asks",
            "allow more (a larger eps, a smaller balance), or take fractions: FairKMeans",
        )
    search.run(max(float(gap), LEAST_GAP), begin + time_limit)
    labels = np.argmax(search.best, axis=0).astype(np.intp)
    first = np.unique(labels, return_index=True)[1]
    labels = np.argsort(np.argsort(first))[np.unique(labels, return_inverse=True)[1]]
    centers = np.full((K, X.shape[1]), np.nan)
    for k in range(labels.max() + 1):
        rows = X[labels == k]
        centers[k] = rows[0] + (rows - rows[0]).mean(axis=0)  # that of equal rows is the row
    objective = float(np.square(X - centers[labels]).sum() / n)
    bound = float(max(0.0, min(search.bound * search.unit, objective)))
    return CertifiedLabels(
        labels,
        centers,
        objective,
        bound,
        (objective - bound) / objective if objective > 0.0 else 0.0,
        len(search.sets),
        search.nodes,
        time.perf_counter() - begin,
    )


def allowed_counts(
    groups: Any, index: Indices, K: int, fairness: Any
) -> tuple[NDArray[np.int64], bool]:
    """Return the counts of groups that a cluster may have, and whether all must have rows."""
    costs = np.zeros((index.size, K))  # only the masses are asked about
    plain = FairAssignment(costs=costs, groups=groups, fairness=None)
    p = FairAssignment(costs=costs, groups=groups, fairness=fairness)
    for _, rule in () if fairness is None else each_rule(fairness):
        if not is_on_each_cluster(rule, K):
            raise DeclarationError(
                f"{rule!r} is no rule on the masses of each cluster alone",
                "sets of rows are looked at one by one, each as any of the clusters; additive_gap"
                " adds up what clusters miss",
                "give balance, max_gap, perfect_fairness, proportion, or cluster_share with the"
                " same bounds for all clusters",
            )
    rules = [t for name, t in p.constraints.items() if name not in plain.constraints]
    size = np.bincount(index)
    if np.prod(size + 1.0) > MOST_COUNTS:
        raise DataError(
            "too many counts of groups in a cluster to look through",
            f"{np.prod(size + 1.0):.3g} of them",
            "take fewer rows or groups, or FairKMeansBound",
        )
    every = np.array(list(product(*(range(s + 1) for s in size))), dtype=np.int64)
    held = np.array(
        [
            all(
                t.relative_violation({"masses": np.repeat(c[:, None], K, axis=1)}) <= ROUNDING
                for t in rules
            )
            for c in every / index.size
        ]
    )
    return every[1:][held[1:]], not held[0]
