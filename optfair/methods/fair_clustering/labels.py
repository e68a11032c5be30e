"""Labels that obey the rules of a fair assignment, at given centers and at the best, with what is proved."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import PROVED, Grade, reported
from optfair.core.solution import Solution, check_solution
from optfair.errors import DataError, DeclarationError, kind_of
from optfair.methods.fair_clustering.algorithms.costs import CostRows
from optfair.methods.fair_clustering.algorithms.count_tree import IntegerSearch, Labelling
from optfair.methods.fair_clustering.algorithms.integer_masses import (
    CountedRows,
    SettledRows,
    settled,
    whole_rows,
    wide_box,
)
from optfair.methods.fair_clustering.algorithms.price_search import solve_mass_dual
from optfair.methods.fair_clustering.algorithms.pricing import Box, label_masses
from optfair.methods.fair_clustering.algorithms.set_search import SetSearch
from optfair.methods.fair_clustering.assignment import FairAssignment, cluster_count, each_rule
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.rules import PerfectFairness, is_on_each_cluster
from optfair.methods.fair_clustering.whole_rules import check_labelled, unreachable
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
from optfair.proofs.rounding import loss
from optfair.rows.frames import check_row_order, generator

# Relative violation of a rule that is rounding.
ROUNDING = 1e-9
# Fraction from which on a row is in one cluster.
WHOLE = 1.0 - 1e-9
# Relative gap that labels are sought with, and wall seconds of branching on them, at most.
GAP, HARD_SECONDS = 1e-5, 10.0


@dataclass(frozen=True, eq=False)
class HardLabels:
    """Labels of whole rows.

    Attributes
    ----------
    labels : array (n,) of int
        Cluster of each row.
    objective : float
        Their mean cost.
    bound : float
        No labels that obey the rules cost less at these centers.
    gap : float
        Relative difference of the two.
    soft_gap : float
        Relative difference to the bound of the soft assignment, recomputed from the rows.
    grade : Grade
        What the bound rests on: the cases of the branching, each proved, or the soft assignment.
    cases : int
        Cases that prove the bound; 0 where it is that of the soft assignment.
    violation : float
        Largest relative violation of a rule by the masses of the labels; 0 where rows of a group
        weigh the same, else at most about the largest weight in a group over the group's.
    exact : bool
        Whether the rules hold.
    masses : array (G, K)
        Weight share of each group under each label.
    """

    labels: NDArray[np.intp] = field(repr=False)
    objective: float
    bound: float
    gap: float
    soft_gap: float
    grade: Grade
    cases: int
    violation: float
    exact: bool
    masses: Floats = field(repr=False)


def hard_labels(
    solution: Solution, *, gap: float = GAP, time_limit: float = HARD_SECONDS
) -> HardLabels:
    r"""Return labels that obey the rules which a soft assignment obeys, and their gap.

    .. math::
        \min_{N \in \mathbb{Z}^{G \times K}}\; \sum_g w_g T_g(N_g)
        \quad\text{s.t.}\quad M_{gk} = w_g N_{gk} \text{ obeys the rules},\;
        N_g 1 = n_g

    where :math:`T_g` is the cost of transporting the rows of a group to clusters of given sizes.
    Class: MILP in G·K integers, where rows of a group weigh the same: vertices of a
    transportation problem assign whole rows. The soft assignment is its relaxation. Counts are
    branched on, and every case is bounded by prices in exact arithmetic; a dive into the branches
    finds the first labels. The bound is of labels that miss no rule by more than rounding, as
    ``exact`` says it.

    Where weights differ within a group the largest fraction of each split row is taken, of which
    there are at most K-1 in a group; split rows are then moved one by one as long as that brings the
    masses nearer to the rules, and ``violation`` says by how much a rule is missed.

    Parameters
    ----------
    solution : Solution
        Of a `FairAssignment` with linear rules on the masses.
    gap : float
        Relative gap at which branching ends.
    time_limit : float
        Wall seconds of branching; labels are made whatever it is.

    Returns
    -------
    HardLabels

    Raises
    ------
    DeclarationError
        Another problem; rules that are not linear.
    DataError
        No labels of whole rows obey the rules, with the groups whose number of rows forbids it.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.labels import hard_labels
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> p = of.FairAssignment(X, groups=sex, centers=X[:5], fairness=of.max_gap(0.05))
    >>> whole = hard_labels(p.solve())
    >>> whole.exact, whole.gap <= 1e-3
    (True, True)

    References
    ----------
    Bera et al.: Fair Algorithms for Clustering, NeurIPS 2019 (rounding).
    """
    begin = time.perf_counter()
    p = check_solution(solution).problem
    if not isinstance(p, FairAssignment) or "mass definition" not in solution.multipliers:
        raise DeclarationError(
            f"labels are made of a solved FairAssignment, this is {kind_of(p)}",
            remedy="solve a FairAssignment with rules on the masses",
        )
    gap = check_number(gap, "gap", least=0.0)
    limit = check_number(time_limit, "time_limit", least=0.0)
    check_labelled(p)
    w, groups, G = p.data["weights"], p.data["groups"], p.shares.size
    if whole_rows(groups, w, G) is None:
        A = np.asarray(solution["assignment"])
        split = np.flatnonzero(A.max(axis=1) < WHOLE)
        rows = SplitRows(split, p.cost.columns(split), groups[split], w[split])
        largest = np.asarray(A.argmax(axis=1), dtype=np.intp)
        masses = label_masses(largest, groups, w, (G, p.cost.clusters))
        labels = rows.moved(p, largest, masses, begin + limit)
        masses = label_masses(labels, groups, w, (G, p.cost.clusters))
        soft = solution.bound, solution.grade
        objective = p.cost.mean(w, np.eye(p.cost.clusters)[labels])
        made = Labelling(labels, objective, solution.bound, masses)
        return _described(p, made, masses, soft)
    prices = np.asarray(solution.multipliers["mass definition"], dtype=float)
    costs = CostRows(p.cost, groups, w)
    nothing = np.zeros((costs.size, 0)), np.zeros((costs.clusters, 0))

    def within(box: Box) -> SoftLabels:
        every = [
            settled(
                block,
                costs.groups[start:stop],
                costs.weights[start:stop],
                prices,
                box,
                p.cost.rounding,
                (nothing[0][start:stop], nothing[1]),
            )
            for _, start, stop, block in costs.blocks()
        ]
        counted = CountedRows(reduce(operator.add, every), prices, box, p.shares, p.cost.rounding)
        return SoftLabels(counted, prices, solution["masses"], solution.bound, solution.grade)

    def left() -> float:
        return max(limit - (time.perf_counter() - begin), 0.0)

    whole = within(wide_box(costs, prices, costs.size)).sought(p, gap, left())
    if whole is None:  # the counts that obey are far from the masses of fractions: any row may move
        everywhere = np.full(prices.shape, np.inf)
        whole = within(Box(everywhere, everywhere)).whole(p, gap, left())
    labels = np.empty(costs.size, dtype=np.intp)
    labels[costs.rows] = whole.labels
    return replace(whole, labels=labels)


@dataclass(frozen=True, eq=False)
class SplitRows:
    """Rows of which several clusters have fractions.

    Attributes
    ----------
    at : array (s,) of int
        Their numbers.
    costs : array (K, s)
    groups, weights : arrays (s,)
    """

    at: Indices
    costs: Floats
    groups: Indices
    weights: Floats

    def moved(self, p: FairAssignment, labels: Indices, masses: Floats, deadline: float) -> Indices:
        """Return labels with some of these rows moved while the rules are missed by less then.

        Of moves that bring masses as near, the cheapest is made.
        """
        labels, missed = labels.copy(), _missed(p, masses)
        while missed > 0.0 and time.perf_counter() < deadline:
            best, move = (missed, -np.inf), None
            for k, s in np.ndindex(self.costs.shape):
                own, g, w = labels[self.at[s]], self.groups[s], self.weights[s]
                if k == own:
                    continue
                other = masses.copy()
                other[g, [own, k]] += (-w, w)
                key = _missed(p, other), float(w * (self.costs[k, s] - self.costs[own, s]))
                if key < best:
                    best, move = key, (self.at[s], k, other)
            if move is None:
                break
            labels[move[0]], masses, missed = move[1], move[2], best[0]
        return labels


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """A soft assignment of counted rows: what labels are made of.

    Attributes
    ----------
    rows : CountedRows
    prices, masses : arrays (G, K)
        Its prices and masses.
    bound, grade : float, Grade
        What is proved of it.
    labels : array of int
        Largest fractions of the counted rows; none where they were not looked for.
    split : SplitRows, optional
        The open ones that are split.
    """

    rows: CountedRows
    prices: Floats
    masses: Floats
    bound: float
    grade: Grade
    labels: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    split: SplitRows | None = None

    def whole(self, p: FairAssignment, gap: float, time_limit: float) -> HardLabels:
        """Return labels of all rows that obey the rules of a problem; see `hard_labels`."""
        labels = self.sought(p, gap, time_limit)
        if labels is None:
            raise unreachable(p, self._search(p))
        return labels

    def sought(self, p: FairAssignment, gap: float, time_limit: float) -> HardLabels | None:
        """Return such labels, None where none are found."""
        if not self.rows.equal:
            return self._repaired(p, time.perf_counter() + time_limit)
        masses = np.asarray(self.masses, dtype=float)
        best = self._search(p).best(masses, gap, time_limit)
        return None if best is None else self._all(p, best)

    def _search(self, p: FairAssignment) -> IntegerSearch:
        return IntegerSearch(compile_rules(p).program, self.rows, self.prices, self.bound)

    def largest(self, p: FairAssignment) -> HardLabels:
        """Return the labels of the largest fractions."""
        cost = self.rows.cost(self.labels)
        return self._all(p, Labelling(self.labels, cost, self.bound, self.prices))

    def _repaired(self, p: FairAssignment, deadline: float) -> HardLabels:
        labels = self.labels
        if self.split is not None:
            labels = self.split.moved(p, labels, self._weighed(labels), deadline)
        cost = self.rows.cost(labels)
        return self._all(p, Labelling(labels, cost, self.bound, self.prices))

    def _weighed(self, labels: Indices) -> Floats:
        costs = self.rows.costs
        return label_masses(labels, costs.groups, costs.weights, self.masses.shape)

    def _all(self, p: FairAssignment, labelling: Labelling) -> HardLabels:
        masses = self._weighed(labelling.labels)
        soft = self.bound, self.grade
        every = replace(labelling, labels=self.rows.whole(labelling.labels))
        return _described(p, every, masses, soft)


# Passes over all rows in which prices of labels are sought.
PASSES = 8


def passed_labels(
    p: FairAssignment, sweep: Callable[[Floats, Box], SettledRows], prices: Floats, rows: int
) -> SoftLabels:
    """Return the soft assignment of rows that are read in passes, with its largest fractions.

    Parameters
    ----------
    p : FairAssignment
        Rules, and costs of a sample.
    sweep : callable
        (prices, box) -> all rows, settled by them.
    prices : array (G, K)
        Prices near the optimum.
    rows : int
        Number of all rows.
    """
    rules = compile_rules(p)
    program, rounding = rules.program, p.cost.rounding
    few = CostRows(p.cost, p.data["groups"], p.data["weights"])
    for _ in range(PASSES):
        box = wide_box(few, prices, rows)
        counted = CountedRows(sweep(prices, box), prices, box, p.shares, rounding)
        optimum = solve_mass_dual(program, *counted.stated, feasible=rules.feasible, prices=prices)
        prices = program.prices(optimum.y, optimum.z)
        D = counted.stated[0].points
        stayed = D[optimum.rows, optimum.clusters] == 0.0
        if stayed[optimum.rows >= counted.rows.at.size].all():
            break
    rest = program.proved_bound(optimum.y, optimum.z, prices)
    paid, size = counted.proved(prices)
    bound = paid + rest.value - loss(rows, size + abs(paid) + abs(rest.value))
    A = np.zeros(D.shape)
    A[optimum.rows, optimum.clusters] = optimum.fractions
    grade = PROVED if rest.unpaid is None else reported("mass-dual")
    labels = counted.kept(A.argmax(axis=1)[counted.costs.rows])
    masses, at = optimum.y[program.masses], counted.costs.rows
    split = np.flatnonzero((A.max(axis=1)[at] < WHOLE) & (at < counted.rows.at.size))
    own, w = at[split], counted.costs.weights[split]
    rows_split = SplitRows(split, D[own].T, counted.costs.groups[split], w)
    return SoftLabels(counted, prices, masses, bound, grade, np.asarray(labels), rows_split)


def _missed(p: FairAssignment, masses: Floats) -> float:
    """Return by how much masses miss the rules, relative to their sides, 0 up to rounding."""
    rules = [t for t in p.constraints.values() if t.scope <= {"masses"}]
    violation = max((t.relative_violation({"masses": masses}) for t in rules), default=0.0)
    return 0.0 if violation <= ROUNDING else float(violation)


def _described(
    p: FairAssignment, labelling: Labelling, masses: Floats, soft: tuple[float, Grade]
) -> HardLabels:
    violation = _missed(p, masses)
    unit = abs(labelling.objective) or 1.0
    return HardLabels(
        labelling.labels,
        labelling.objective,
        labelling.bound,
        max(0.0, labelling.objective - labelling.bound) / unit,
        max(0.0, labelling.objective - soft[0]) / unit,
        PROVED if labelling.cases else soft[1],
        labelling.cases,
        violation,
        violation == 0.0,
        masses,
    )


# The best labels of a few dozen rows, and a proved bound on every other labelling.

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
        Clusters that the bound was made of.
    nodes : int
        Sets of clusters that were excluded or split.
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
    r"""Cluster a few dozen rows at the least cost there is, and prove how near the labels are.

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

    The program is nearly always integral, or nearly so; where it is not, two rows are put together
    or apart and both cases solved. 40 rows in 4 clusters take seconds to minutes, fewer clusters and
    more columns of X longer.

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
