"""Explain a clustering by counterfactuals: rows, tables of rows, and the distances of clusters."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, Infeasible, nearest, shortened
from optfair.features.feature_problem import checked_names
from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import Batch
from optfair.methods.cluster_counterfactuals.explanation import (
    ClusterExplanations,
    ClusterSeparability,
    Explanation,
)
from optfair.methods.cluster_counterfactuals.nearest_points import PROVED, NearestPoints
from optfair.methods.cluster_counterfactuals.partition import Partition, read_clusters
from optfair.methods.cluster_counterfactuals.rules import check_cluster, check_factual
from optfair.numbers import (
    Floats,
    check_count,
    check_names,
    check_number,
    check_table,
    check_text,
    checked,
    real,
)
from optfair.rows.frames import checked_rows, column_names

# Counterfactuals of one row that change different features.

Features = frozenset[int]


def different_feature_sets(
    nearest: Callable[[Features], tuple[float, Features] | None], count: int
) -> list[Features]:
    r"""Return which features to leave alone for the nearest counterfactuals of different kinds.

    .. math::
        z_{m} = \arg\min \{ \|z - x\| : S(z) \not\supseteq S(z_1), \dots, S(z_{m-1}) \},
        \quad S(z) = \{ j : z_j \ne x_j \}

    Each next one must leave at least one feature of every earlier one alone: the no-good cut.
    A cut is a choice of one feature per earlier set to hold, and holding more features never
    brings the optimum nearer; so a best-first search over sets of held features is exact.

    Parameters
    ----------
    nearest : callable
        Set of columns that are held -> distance and columns that change at the nearest
        counterfactual, None where there is none.
    count : int
        How many to look for.

    Returns
    -------
    list of frozenset of int
        Held columns of each, the nearest first; fewer where there are no more.

    Examples
    --------
    The cost of a set is the sum of 1, 2, 3 over the features used; any two of three will do.

    >>> def nearest(held):
    ...     left = [j for j in range(3) if j not in held][:2]
    ...     return (sum(j + 1.0 for j in left), frozenset(left)) if len(left) == 2 else None
    >>> [sorted(set(range(3)) - held) for held in different_feature_sets(nearest, 5)]
    [[0, 1, 2], [0, 2], [1, 2]]
    """
    queue: list[tuple[float, int, Features, Features]] = []
    seen: set[Features] = set()
    kept: list[tuple[Features, Features]] = []  # held, changed

    def push(held: Features) -> None:
        if held not in seen:
            seen.add(held)
            tried = nearest(held)
            if tried is not None:
                heapq.heappush(queue, (tried[0], len(seen), held, tried[1]))

    push(frozenset())
    while queue and len(kept) < count:
        _, _, held, changed = heapq.heappop(queue)
        broken = next((s for _, s in kept if s <= changed), None)
        if broken is None:
            kept.append((held, changed))
            broken = changed
        # the next ones leave some feature of it alone
        for j in broken:
            push(held | {j})
    return [held for held, _ in kept]


# Explain a clustering by counterfactuals: rows, tables of rows, and the distances of clusters.

Labels = NDArray[np.intp]


DIVERSITY = ("targets", "feature sets")


class ClusterExplainer:
    r"""Nearest rows in other clusters, for a fitted clustering.

    .. math:: \min_z \; \|z - x\| \quad\text{s.t.}\quad z \text{ belongs to the target}

    `explain` answers for one row, with certificates; `explain_many` for a table, vectorised;
    `separability` says how far apart the clusters are in these distances. Every answer is the
    global optimum, or says how far from it it may be.

    Parameters
    ----------
    model : fitted estimator
        `KMeans`, `MiniBatchKMeans` or `GaussianMixture` of scikit-learn, `FairKMeans` (by
        nearest center, without the prices of groups), or anything with ``cluster_centers_``, or
        with ``means_`` and ``covariances_``.
    features : sequence of str, optional
        Names of the features; by default those of the fit, else ``x0``, ``x1`` ...
    against : {"all", "pair"}
        "all": no other cluster gets the counterfactual. "pair": the target gets it rather than
        the row's own cluster, which a third one may still do.
    plausibility : float
        ε: how far past the boundary, see `ClusterCounterfactual`; 0 is the boundary itself.
    time_limit : float
        Seconds for a row against all of several Gaussian clusters, where the optimum may need
        branch and bound; after it the best point is returned with its gap.
    **options
        Any option of `ClusterCounterfactual`: ``immutable`` or ``mask``, bounds, features that
        only grow or shrink, ``weights`` or ``metric``, ``distance`` and so on.

    Attributes
    ----------
    clusters : Partition
        The clusters as scores.
    features : tuple of str
        Names of the features.

    Raises
    ------
    DataError
        Not a fitted clustering, unknown features, covariances that are not positive definite.
    DeclarationError
        Options out of range.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> import optfair as of
    >>> X, _ = of.datasets.load("iris").numeric("species")
    >>> names = ["sepal length", "sepal width", "petal length", "petal width"]
    >>> model = KMeans(3, n_init=1, random_state=0).fit(X)
    >>> explainer = ClusterExplainer(model, features=names, immutable=["petal width"])
    >>> c = explainer.explain(X[0]).best
    >>> bool(c.source == model.predict(X[:1])[0]), bool(c.target == model.predict([c.point])[0])
    (True, True)
    >>> "petal width" in c.changes, c.certificate.verify()
    (False, verified)
    >>> bool(explainer.explain_many(X).valid.all())
    True

    References
    ----------
    Vardakas, Karra, Pitoura, Likas: Counterfactual Explanations for k-Means and Gaussian
    Clustering.
    """

    @checked(features=check_names, against=check_text, plausibility=check_number)
    def __init__(
        self,
        model: Any,
        *,
        features: Sequence[str] | None = None,
        against: str = "all",
        plausibility: float = 1e-5,
        time_limit: float = 10.0,
        **options: Any,
    ) -> None:
        clusters, names = read_clusters(model)
        self.model = model
        self.clusters: Partition = clusters
        self.features = checked_names(names if features is None else features, clusters.dimension)
        self.against, self.plausibility = against, plausibility
        self.options = dict(options)
        # bad options fail here, not at the first row
        self._points = NearestPoints(
            clusters, self.features, against, plausibility, self.options, _seconds(time_limit)
        )
        self.metric = self._points.metric

    # --- clusters ------------------------------------------------------------------------

    def predict(self, X: Any) -> Labels:
        """Return the cluster of each row (n,)."""
        return self.clusters.labels(self._rows(X))

    def margins(self, X: Any, target: Any) -> Floats:
        """Return how far inside a target rows lie, against each other cluster.

        Parameters
        ----------
        X : array-like or DataFrame (n, d)
            Rows.
        target : int or int array (n,)
            Their targets.

        Returns
        -------
        array (n, K)
            NaN at the target. For k-means the distance to the boundary, in the units of the
            features; for mixtures the difference of weighted log-densities.
        """
        rows = self._rows(X)
        return self._points.margins(rows, self._goals(target, len(rows)))

    # --- explaining ----------------------------------------------------------------------

    @checked(k=check_count, diverse=check_text)
    def explain(
        self, x: Any, target: int | None = None, *, k: int = 1, diverse: str | None = None
    ) -> Explanation:
        r"""Return the nearest counterfactuals of one row, with certificates.

        Parameters
        ----------
        x : array-like (d,), Series, or DataFrame of one row
            The row.
        target : int, optional
            Cluster to reach; by default the one that is nearest.
        k : int
            How many counterfactuals.
        diverse : {"targets", "feature sets"}, optional
            In what they differ. By default in the target, or, where one is given, in the
            features that change: each next one leaves some feature of every earlier one alone.

        Returns
        -------
        Explanation
            The nearest first; fewer than k where there are no more.

        Raises
        ------
        DataError
            NaN, a row that does not fit the clusters, k below 1.
        DeclarationError
            Not a cluster.
        Infeasible
            No cluster, or not the one asked for, can be reached.
        """
        kind = _diversity(target, k, diverse)
        row = np.asarray(self._ordered(x)) if hasattr(x, "columns") else x
        y = check_factual(row, len(self.features), self.features)
        if target is None:
            targets = self._ranked(y, k if kind == "targets" else 1)
        else:
            targets = [check_cluster(target, self.clusters.size, "target")]
        if kind == "targets" or k == 1:
            return Explanation(tuple(self._points.answer(y, t) for t in targets), kind)
        held = different_feature_sets(lambda h: self._points.tried(y, targets[0], h), k)
        if not held:  # nothing reaches it: let the problem say why
            return Explanation((self._points.answer(y, targets[0]),), kind)
        answers = [self._points.answer(y, targets[0], h) for h in held]
        return Explanation(tuple(sorted(answers, key=lambda c: c.distance)), kind)

    def _ranked(self, y: Floats, count: int) -> list[int]:
        """Return the nearest other clusters, the nearest first."""
        source = self.clusters.labels(y[None])
        objectives = self._points.objectives(y[None], source, exactly=count)[0][0]
        reached = np.flatnonzero(np.isfinite(objectives))
        if not reached.size:
            raise Infeasible(
                "no other cluster can be reached",
                f"from cluster {source[0]} under these options",
                "free more features, or loosen the bounds",
            )
        return [int(t) for t in reached[np.argsort(objectives[reached])][:count]]

    # --- tables --------------------------------------------------------------------------

    def explain_many(self, X: Any, target: Any = None) -> ClusterExplanations:
        """Return the nearest counterfactual of each row of a table.

        Vectorised for squared distances with immutable features, bounds and directions; a row
        that this does not settle is solved on its own. The bound of every row is recomputed.

        Parameters
        ----------
        X : array-like or DataFrame (n, d)
            Rows.
        target : int or int array (n,), optional
            Cluster to reach; by default the nearest one other than the row's own.

        Returns
        -------
        ClusterExplanations
            ``to_frame()`` keeps the index of a data frame.
        """
        Y = self._rows(X)
        source = self.clusters.labels(Y)
        if target is None:
            objectives, _, batch = self._points.objectives(Y, source, exactly=1)
            goals = np.where(
                np.isfinite(batch.objective), objectives.argmin(axis=1), source
            ).astype(np.intp)
        else:
            goals = self._goals(target, len(Y))
            batch = self._points.nearest(Y, source, goals)
        return self._tabled(X, Y, source, goals, batch)

    def _tabled(
        self, X: Any, Y: Floats, source: Labels, goals: Labels, batch: Batch
    ) -> ClusterExplanations:
        status = np.where(batch.gap <= PROVED, "optimal", "bounded").astype(object)
        status[(batch.objective == 0.0) & (source == goals)] = "already there"
        reached = np.isfinite(batch.objective)
        status[~reached] = np.where(np.isinf(batch.gap[~reached]), "open", "unreachable")
        margins = self._points.margins(np.where(reached[:, None], batch.points, Y), goals)
        margins[~reached] = np.nan
        index = getattr(X, "index", None)
        return ClusterExplanations(
            self.features,
            np.arange(len(Y)) if index is None or callable(index) else index,
            *(Y, batch.points, source, goals),
            np.where(reached, self._points.distance(batch.objective), np.inf),
            self.metric,
            margins,
            status.astype(str),
            batch.gap,
            self.clusters.sizes,
            self._points.margin,
        )

    def separability(self, X: Any) -> ClusterSeparability:
        """Return the distances of rows to every other cluster.

        Parameters
        ----------
        X : array-like or DataFrame (n, d)
            Rows; thousands of them take seconds where the vectorised algorithms settle them.

        Returns
        -------
        ClusterSeparability
        """
        Y = self._rows(X)
        source = self.clusters.labels(Y)
        objectives, gaps, _ = self._points.objectives(Y, source, exactly=self.clusters.size)
        distances = np.asarray(self._points.distance(objectives), dtype=float)
        distances[np.arange(len(Y)), source] = np.nan
        gaps[np.arange(len(Y)), source] = 0.0
        known = gaps[np.isfinite(gaps)]
        units = {"l2": "distance", "l1": "l1 distance", "changes": "changed features"}
        return ClusterSeparability(
            source, distances, float(known.max(initial=0.0)), units[self.metric]
        )

    # --- data ----------------------------------------------------------------------------

    def _rows(self, X: Any) -> Floats:
        return check_matrix_of(self._ordered(X), self.clusters.dimension)

    def _ordered(self, X: Any) -> Any:
        """Return a data frame with its columns in our order; anything else as it is."""
        names = column_names(X)
        if names is None:
            return X
        missing = [name for name in self.features if name not in names]
        if missing and len(names) == len(self.features) and not set(names) & set(self.features):
            return X  # the fit had no names
        if missing:
            raise DataError(
                f"X has no column {missing[0]!r}",
                f"its columns are {', '.join(names[:20])}",
                nearest(missing[0], names),
            )
        return X[[X.columns[names.index(name)] for name in self.features]]

    def _goals(self, target: Any, rows: int) -> Labels:
        K = self.clusters.size
        if np.ndim(target) == 0:
            return np.full(rows, check_cluster(target, K, "target"), dtype=np.intp)
        goals = np.asarray(target)
        if goals.shape != (rows,) or goals.dtype.kind not in "iu":
            raise DataError(
                "target does not fit the rows",
                f"shape {goals.shape}, type {goals.dtype}, for {rows} rows",
                f"give one cluster from 0 to {K - 1}, or one per row",
            )
        for goal in np.unique(goals):
            check_cluster(int(goal), K, "target")
        return goals.astype(np.intp)

    def __repr__(self) -> str:
        K, d = self.clusters.size, self.clusters.dimension
        kind = "k-means" if self.clusters.kind == "kmeans" else "Gaussian"
        rules = ", ".join(
            f"{k}={shortened(repr(v), 40)}" for k, v in self.options.items() if v is not None
        )
        beats = "every other cluster" if self.against == "all" else "the row's own cluster"
        free = int(self._points.table.options.free.sum())
        return "\n".join(
            [
                f"ClusterExplainer: {K} {kind} clusters of {d} features",
                f"  target beats  {beats}, plausibility {self.plausibility:g}",
                f"  distance      {self.metric}, {free} of {d} features may change",
                *([f"  options       {rules}"] if rules else []),
            ]
        )


def check_matrix_of(X: Any, columns: int) -> Floats:
    """Return rows as finite numbers with the columns of the clusters."""
    X = check_table(X, "X")
    width = X.shape[1] if X.ndim == 2 else None
    if width is not None and width != columns:
        raise DataError(
            f"X has {width} columns, the clusters have {columns}",
            remedy="give the columns of the fit",
        )
    return checked_rows(X)


def _diversity(target: Any, k: int, diverse: str | None) -> str:
    """Return in what several counterfactuals differ."""
    kind = diverse if diverse is not None else ("targets" if target is None else "feature sets")
    if kind not in DIVERSITY:
        raise DeclarationError(f"diverse={kind!r}", remedy=nearest(str(kind), DIVERSITY))
    if kind == "targets" and target is not None and k > 1:
        raise DeclarationError(
            "one target is given, and counterfactuals with different targets are asked for",
            remedy="leave target out, or diverse='feature sets'",
        )
    return kind


def _seconds(given: Any) -> float:
    seconds = real(given)
    if not seconds > 0.0:
        raise DeclarationError(
            f"time_limit {given!r} is not positive", remedy="give seconds for one row"
        )
    return seconds
