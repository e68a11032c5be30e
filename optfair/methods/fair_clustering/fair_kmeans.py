"""Fair k-means and k-medians with scikit-learn's conventions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from optfair.errors import DataError, DeclarationError, NoSuchResult
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.coupling import glue
from optfair.methods.fair_clustering.kmeans_fit import StreamedKMeans, fit_held, number_of_starts
from optfair.methods.fair_clustering.labels import HARD_SECONDS, hard_labels
from optfair.methods.fair_clustering.mass_rules import check_room
from optfair.methods.fair_clustering.metrics import balance, gathered_masses
from optfair.methods.fair_clustering.rules import PerfectFairness
from optfair.methods.fair_clustering.single_start import Fit, check_distinct, check_init
from optfair.methods.fair_clustering.whole_rules import check_whole, warn_labelled
from optfair.numbers import Floats, check_weights
from optfair.rows.frames import (
    check_parameters,
    check_row_order,
    checked_rows,
    group_index,
    same_columns,
    taken_apart,
    without_groups,
)
from optfair.rows.restarts import unfinished


class FairKMeans(
    StreamedKMeans,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    r"""K-means, or k-medians, whose clusters obey rules on the groups in them.

    .. math::
        \min_{\mu, A, M}\; \sum_{i,k} w_i A_{ik}\, D(x_i, \mu_k)
        \quad\text{s.t.}\quad A \ge 0,\; A 1 = 1,\;
        M_{gk} = \sum_{i \in g} w_i A_{ik},\; \text{rules on } M

    Class: the assignment for fixed centers is an LP, or whatever class the rules have, and
    is solved to a certificate. The problem in A and μ together is not convex: alternating
    the two is a heuristic, so several starts are tried and the best is kept.

    Parameters
    ----------
    n_clusters : int
        Number of clusters K.
    fairness : Rule, list of rules, dict of rules by name, or None
        Perfect fairness by default: every cluster has the composition of the population.
        None is plain clustering.
    goal : {"mean", "group"}
        Least mean cost, or least largest mean cost of a group (socially fair k-means; centers
        are means weighted by group).
    metric : {"sqeuclidean", "l1"}
        Squared distances with means (k-means), or absolute ones with medians (k-medians).
    init : {"k-means", "k-means++", "random"} or array (K, d)
        Start: the centers of plain clustering run to convergence, its k-means++ start,
        distinct rows, or given centers.
    n_init : int or "auto"
        Starts; by default 10, 50 for up to 50 rows, as many of 50 as ``time_limit`` leaves room
        for, and 1 for given centers.
    search : {"restarts", "swap"}
        "swap": one start, then brief looks at where others lead, in turns with swaps: clusters that
        are missed least are closed and opened again at rows drawn by cost, one or some at a time; of
        many such swaps those of least bound are tried. They go on from the best of all while that
        falls, else from the start that was looked at last. With fewer than 24 clusters all starts
        are looked at first, as far as they would lead. In all about the work of ``n_init`` starts.
        It pays from about 30 clusters on.
    max_iter : int
        Largest number of assignments per start; from 200,000 rows on also of the sample that
        the first ones run on. ``n_iter_`` and ``history_`` leave these out, and what from 2,000
        rows on leads there: passes in which rows choose softly and prices and centers move
        together.
    tol : float
        A start ends when the objective falls by at most this share of itself.
    algorithm : {"exact", "paper"}
        "paper" is FCA (with `perfect_fairness`) or FCA-C (with ``additive_gap(2 * eps)`` for
        its ε) as printed, with the printed transport weight, for comparison; two groups,
        metric "sqeuclidean", equal weights.
    partition_size : int
        Rows per block of "paper".
    coupling : {"network-simplex", "sinkhorn"}
        Transport inside the blocks of "paper": exact, or an entropic approximation.
    regularization : float
        λ of "sinkhorn".
    labels : {"soft", "hard"}
        "soft": the rules hold for ``soft_assignment_``, and ``labels_`` are its largest
        fractions. "hard": the best start is labelled by `hard_labels`, whole rows that obey the
        rules, and ``cost_``, ``balance_`` are theirs; linear rules, also on costs and links, exact
        algorithm.
    random_state : int, Generator, RandomState or None
        Seeds the starts.
    n_jobs : int, optional
        Starts in parallel threads; -1 for one per core.
    time_limit : float, optional
        Wall seconds over all starts; what was found by then counts, and where that is no
        assignment, rows moved to obey the rules, with their gap. From 200,000 rows on, and where
        arcs are barred, a first assignment is made whatever the limit.
    verbose : {0, 1, 2}
        Silent; a bar over the starts; the log of each start.

    Attributes
    ----------
    labels_ : array (n,) of int
        Cluster with the largest fraction of each row; with labels="hard" labels that obey the
        rules.
    hard_labels_ : HardLabels or None
        What is proved of the labels with labels="hard": gap, bound, violation.
    soft_assignment_ : array (n, K)
        Fractions A; under linear rules at most G(K-1) rows are split, (G-1)(K-1) under
        perfect fairness.
    cluster_centers_ : array (K, d)
        Centers for which the assignment is certified.
    masses_ : array (G, K)
        Weight share of each group in each cluster (soft), total 1.
    groups_, shares_ : arrays (G,)
        Sorted group labels and their weight shares.
    prices_ : array (G, K)
        Dual prices: what a cluster charges a row of a group on top of the distance.
    objective_ : float
        Mean cost of the soft assignment; with goal="group" the largest of a group.
    cost_, balance_ : float
        Mean cost and balance of the hard labels, as papers report them.
    gap_ : float
        Certified relative gap of the assignment at ``cluster_centers_``; not a gap of the
        clustering, for which see `FairKMeansBound` and, for labels, `certified_kmeans`. With "paper" it is nan where the printed
        assignment breaks the rule.
    history_, gaps_ : arrays (n_iter,)
        Objective and certified gap of each iteration of the best start. The objective never
        rises; with "paper" it is the hard cost, which may, and gaps are nan but the last.
    n_iter_ : int
        Iterations of the best start.
    status_ : {"converged", "max_iter", "time_limit", "interrupted"}
        Why the best start ended.
    reseeded_ : tuple of (int, int)
        Iteration and cluster wherever an empty cluster got a new center.
    restarts_ : tuple of Restart
        Cost, balance, gap, iterations and seconds of every start; from 200,000 rows on of the
        best, which alone goes on with all rows.
    solution_ : Solution
        Last assignment with its certificate; left out when the model is pickled or copied.
    coupling_ : scipy.sparse array (n0, n1)
        Plan between two groups, made when read; perfect fairness only.
    n_features_in_, feature_names_in_
        Columns of the fit; names when X is a data frame.

    Raises
    ------
    DataError
        Fewer distinct rows than clusters, one group, missing values, text columns.
    DeclarationError
        Parameters out of range, rules that do not fit the groups.
    Infeasible
        Rules that exclude each other.

    Examples
    --------
    >>> import optfair as of
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> model = of.FairKMeans(n_clusters=5, fairness=of.balance(0.4), random_state=0)
    >>> labels = model.fit_predict(X, groups=sex)
    >>> labels.shape, model.groups_.tolist(), model.gap_ <= 1e-9
    ((1000,), ['female', 'male'], True)
    >>> of.metrics.balance(sex, model.soft_assignment_, soft=True) >= 0.4 - 1e-9
    True
    >>> model.predict(X[:3], groups=sex[:3]).tolist() == labels[:3].tolist()
    True

    References
    ----------
    Kim, Lee, Park, Kim: Fair Clustering via Alignment, ICML 2025.
    Ghadiri, Samadi, Vempala: Socially Fair k-Means Clustering, FAccT 2021.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        fairness: Any = PerfectFairness(),  # noqa: B008  (frozen, without state)
        goal: str = "mean",
        metric: str = "sqeuclidean",
        init: Any = "k-means",
        n_init: Any = "auto",
        search: str = "restarts",
        max_iter: int = 300,
        tol: float = 1e-6,
        algorithm: str = "exact",
        partition_size: int = 1024,
        coupling: str = "network-simplex",
        regularization: float = 0.01,
        labels: str = "soft",
        random_state: Any = None,
        n_jobs: int | None = None,
        time_limit: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.fairness = fairness
        self.goal = goal
        self.metric = metric
        self.init = init
        self.n_init = n_init
        self.search = search
        self.max_iter = max_iter
        self.tol = tol
        self.algorithm = algorithm
        self.partition_size = partition_size
        self.coupling = coupling
        self.regularization = regularization
        self.labels = labels
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.time_limit = time_limit
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> FairKMeans:
        """Cluster the rows.

        Parameters
        ----------
        X : array-like or DataFrame (n, d)
            Rows; numbers only, but for the column that ``groups`` names.
        y : ignored
            For pipelines.
        groups : array-like (n,), DataFrame or dict of columns, str or list of str
            Group label of each row, or a column for each attribute; or names of columns of X.
        sample_weight : array-like (n,), optional
            Weights; equal by default.

        Returns
        -------
        FairKMeans
            Itself.
        """
        _check_given(groups, "y is ignored" if y is not None else "fairness compares groups")
        check_row_order(X=X, groups=groups, sample_weight=sample_weight)
        rows, labels, names = taken_apart(X, groups)
        check_parameters(self)
        K = self.n_clusters
        init = check_init(self.init, K, rows.shape[1])
        weights = check_weights(sample_weight, len(rows))
        check_distinct(rows[weights > 0], K)
        problem = FairAssignment(
            rows,
            groups=labels,
            centers=rows[:K],
            fairness=self.fairness,
            goal=self.goal,
            metric=self.metric,
            sample_weight=weights,
        )
        if self.labels == "hard" and self.algorithm == "paper":
            raise DeclarationError(
                'labels="hard" does not go with algorithm="paper"',
                "the printed algorithm proves no prices",
                'use algorithm="exact", or labels="soft"',
            )
        if self.search == "swap" and self.algorithm == "paper":
            raise DeclarationError(
                'search="swap" does not go with algorithm="paper"', remedy='use "exact"'
            )
        if self.labels == "hard":
            check_whole(problem)
        check_room(problem)
        starts = number_of_starts(self, len(rows), init)
        given = None if sample_weight is None else np.asarray(sample_weight)
        self.restarts_, best, _ = fit_held(self, problem, init, starts, given)
        self._keep(best, names)
        return self

    def _keep(self, best: Fit, names: tuple[str, ...] | None, *, stacklevel: int = 3) -> None:
        """Set the fitted attributes."""
        problem, A = best.solution.problem, best.assignment
        w, index = problem.data["weights"], problem.data["groups"]
        G = problem.data["shares"].size
        self.n_features_in_ = int(best.centers.shape[1])
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.groups_ = np.asarray(problem.data["group_names"])
        self.shares_ = np.asarray(problem.data["shares"])
        self.cluster_centers_ = best.centers
        self.soft_assignment_ = A
        self.labels_ = A.argmax(axis=1)
        self.masses_ = gathered_masses(A, index, w, G)
        # where costs of groups have prices, in units of the costs themselves
        factors = getattr(best.solution.proof, "factors", np.ones(1))
        self.prices_ = np.asarray(best.solution.multipliers["mass definition"]) / factors[:, None]
        mean = float(problem.data["cost"].mean(w, A))
        self.objective_ = mean if self.goal == "mean" else float(best.record.objective)
        self.cost_, self.balance_ = best.record.cost, best.record.balance
        self.gap_ = best.record.gap
        self.history_, self.gaps_ = np.array(best.history), np.array(best.gaps)
        self.n_iter_ = best.record.n_iter
        self.status_ = best.record.status
        self.reseeded_ = best.reseeded
        self.solution_ = best.solution
        self.hard_labels_ = None
        if self.labels == "hard":
            limit = HARD_SECONDS if self.time_limit is None else min(HARD_SECONDS, self.time_limit)
            labelling = hard_labels(best.solution, time_limit=limit)
            self.hard_labels_, self.labels_ = labelling, labelling.labels
            hard = np.eye(A.shape[1])[labelling.labels]
            mean = self.goal == "mean"
            self.cost_ = labelling.objective if mean else problem.data["cost"].mean(w, hard)
            self.balance_ = balance(index, hard, sample_weight=w)
            warn_labelled(labelling, self.masses_, stacklevel=stacklevel)
        self._plan = best.plan
        self._index, self._weights = index, w
        if self.status_ != "converged":
            text = unfinished(self.status_, self.n_iter_)
            warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel)
        empty = np.flatnonzero(self.masses_.sum(axis=0) <= 1e-15)
        if empty.size and self.status_ == "converged":
            warnings.warn(
                f"clusters {', '.join(map(str, empty))} are empty: the rules hold without them;"
                " fewer clusters, or cluster_share(lower=...), would say what is wanted",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )

    def predict(self, X: Any, *, groups: Any = None) -> NDArray[np.intp]:
        r"""Return the cluster of each row, seen or not, by distance plus its group's price.

        .. math:: k(x, g) = \arg\min_k D(x, \mu_k) + \Lambda_{gk}

        On the rows of the fit these are the labels, but for split rows and ties. On other
        rows the rules hold as far as these resemble the ones of the fit.

        Parameters
        ----------
        X : array-like or DataFrame (m, d)
            Rows in the columns of the fit.
        groups : array-like (m,), DataFrame or dict of columns, str or list of str
            Group label of each row, among ``groups_``, or names of columns of X; as in `fit`.

        Returns
        -------
        array (m,) of int
        """
        check_is_fitted(self, "prices_")
        _check_given(groups, "which cluster is nearest depends on the prices of a row's group")
        rows, labels, _ = self._intake(X, groups)
        index = group_index(self.groups_, labels, len(rows))
        prices = self.prices_[index].T
        return np.asarray((self._cost(rows).columns(slice(None)) + prices).argmin(axis=0))

    def fit_predict(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> NDArray[np.intp]:
        """Cluster the rows and return their labels; see `fit`."""
        labels = self.fit(X, y, groups=groups, sample_weight=sample_weight).labels_
        return np.asarray(labels)

    def fit_transform(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> Floats:
        """Cluster the rows and return their distances to the centers; see `transform`."""
        self.fit(X, y, groups=groups, sample_weight=sample_weight)
        return self.transform(taken_apart(X, groups)[0])

    def transform(self, X: Any) -> Floats:
        """Return the distance of each row to each center (m, K): Euclidean, or of metric l1."""
        check_is_fitted(self, "cluster_centers_")
        same_columns(X, self._names(), self.n_features_in_)
        far = self._cost(checked_rows(X)).matrix()
        return np.sqrt(far) if self.metric == "sqeuclidean" else far

    def score(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> float:
        """Return minus the mean cost of rows in the clusters that `predict` gives them."""
        check_row_order(X=X, groups=groups, sample_weight=sample_weight)
        labels = self.predict(X, groups=groups)
        weights = check_weights(sample_weight, labels.size)
        far = self._cost(taken_apart(X, groups)[0]).columns(slice(None))
        return -float(weights @ far[labels, np.arange(labels.size)])

    @property
    def _n_features_out(self) -> int:
        """Number of columns of `transform`."""
        return int(self.cluster_centers_.shape[0])

    @property
    def coupling_(self) -> Any:
        """Plan between the rows of two groups, in the order of the rows; sparse."""
        check_is_fitted(self, "prices_")
        if not hasattr(self, "soft_assignment_"):
            raise NoSuchResult(
                "there is no coupling after fit_stream",
                "it pairs rows, and these were not kept",
                "fit in memory, by fit(X, groups=...)",
            )
        if self._plan is None:
            fractions = self.masses_ / self.shares_[:, None]
            if len(self.groups_) != 2 or np.abs(np.diff(fractions, axis=0)).max() > 1e-7:
                raise NoSuchResult(
                    "this clustering is no coupling of its groups",
                    f"{len(self.groups_)} groups whose fractions per cluster differ by up to"
                    f" {np.ptp(fractions, axis=0).max():.2g}",
                    "a coupling belongs to two groups and perfect fairness",
                )
            mass = self._weights[:, None] * self.soft_assignment_ / self.shares_[self._index, None]
            self._plan = glue(mass[self._index == 0], mass[self._index == 1])
        return self._plan

    def _intake(self, X: Any, groups: Any) -> tuple[Floats, Any, Any]:
        same_columns(without_groups(X, groups)[0], self._names(), self.n_features_in_)
        return taken_apart(X, groups)

    def _names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(names)

    def _cost(self, rows: Floats) -> SeparableCost:
        return SeparableCost(self.metric, rows, self.cluster_centers_)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the certificate out: it holds the data and functions, which do not pickle."""
        state: dict[str, Any] = super().__getstate__()
        return {k: v for k, v in state.items() if k != "solution_"}


def _check_given(groups: Any, why: str) -> None:
    if groups is None:
        raise DataError(
            "groups is missing",
            why,
            "give groups=, one label per row or the name of a column of X; fairkmeans__groups= in a pipeline",
        )
