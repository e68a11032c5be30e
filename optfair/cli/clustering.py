"""What `optfair cluster` makes of a question: two clusterings, with the rule and without."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair import metrics, registry
from optfair.cli.question import Question

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Clustering:
    """What was found.

    Attributes
    ----------
    question : Question
    fair, plain : FairKMeans
        Fitted with the rule, and without any.
    seconds, plain_seconds : float
        Wall time of each.
    notices : tuple of str
        What the fit warned of.
    """

    question: Question
    fair: Any
    plain: Any
    seconds: float
    plain_seconds: float
    notices: tuple[str, ...] = ()

    @property
    def labels(self) -> NDArray[np.intp]:
        """Cluster of each row (hard)."""
        return np.asarray(self.fair.labels_)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows in each cluster."""
        return np.bincount(self.labels, minlength=self.question.clusters)

    @property
    def shares(self) -> Floats:
        """Share of each group in each cluster (G, K); NaN for an empty cluster."""
        hard = np.eye(self.question.clusters)[self.labels]
        return np.asarray(metrics.composition(self.question.groups, hard))

    @property
    def best_balance(self) -> float:
        """Balance of the population."""
        return float(self.fair.shares_.min() / self.fair.shares_.max())

    @property
    def soft_balance(self) -> float:
        """Balance of the soft assignment, which the rule is about."""
        masses = self.fair.masses_[:, self.fair.masses_.sum(axis=0) > 1e-9]
        return float((masses.min(axis=0) / masses.max(axis=0)).min())

    @property
    def achieved(self) -> tuple[str, float, float]:
        """What the rule is about: its name, its value soft, and its value of the labels."""
        hard = np.eye(self.question.clusters)[self.labels]
        if hasattr(self.question.rule, "b"):
            return "balance", self.soft_balance, float(self.fair.balance_)
        soft, own = self.fair.soft_assignment_, self.question.groups
        gap = metrics.additive_gap
        return "additive gap", gap(own, soft, soft=True), gap(own, hard)

    @property
    def split_rows(self) -> int:
        """Rows that the soft assignment divides between clusters."""
        return int(((self.fair.soft_assignment_ > 1e-9).sum(axis=1) > 1).sum())

    @property
    def costs(self) -> Floats:
        """Mean cost of the rows of each cluster; NaN for an empty one."""
        q = self.question
        far = self.fair.transform(q.X)
        if q.metric == "sqeuclidean":  # distances there, their squares here
            far = far**2
        own = np.bincount(self.labels, far[np.arange(len(q.X)), self.labels], q.clusters)
        mean = np.full(q.clusters, np.nan)
        np.divide(own, self.sizes, out=mean, where=self.sizes > 0)
        return mean

    @property
    def centers(self) -> Floats:
        """Centers in the units of the file."""
        q = self.question
        centers = self.fair.cluster_centers_ * q.scale + q.center
        # standardising and back leaves rounding where 0 was
        return np.asarray(np.where(np.abs(centers) < 1e-9 * q.scale, 0.0, centers))

    @property
    def plain_labels(self) -> NDArray[np.intp]:
        """Labels without a rule, numbered by the rows they share with those under it."""
        from scipy.optimize import linear_sum_assignment

        K = self.question.clusters
        shared = np.bincount(self.plain.labels_ * K + self.labels, minlength=K * K)
        _, number = linear_sum_assignment(-shared.reshape(K, K))
        return np.asarray(number[self.plain.labels_])

    @property
    def price(self) -> float:
        """Relative difference of cost to clustering without a rule; NaN when that costs nothing."""
        if self.plain.cost_ <= 0:
            return float("nan")
        return float(self.fair.cost_ / self.plain.cost_ - 1.0)


def clustered(question: Question, verbose: int = 0, labels: str = "soft") -> Clustering:
    """Cluster under the rule, and without it for comparison."""
    FairKMeans = registry.load("estimators", "FairKMeans")
    starts: Any = "auto" if question.n_init is None else question.n_init
    common: dict[str, Any] = {"metric": question.metric, "random_state": question.seed}
    common |= {"verbose": verbose, "n_clusters": question.clusters}
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fair = FairKMeans(fairness=question.rule, n_init=starts, labels=labels, **common)
        fair.fit(question.X, groups=question.groups)
    middle = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = FairKMeans(fairness=None, n_init=starts, **common)
        plain.fit(question.X, groups=question.groups)
        if plain.objective_ > fair.objective_:
            # the fair assignment is one of those without a rule: start where it ended
            common |= {"init": fair.cluster_centers_, "n_init": 1}
            plain = FairKMeans(fairness=None, **common).fit(question.X, groups=question.groups)
    notes = tuple(dict.fromkeys(str(w.message) for w in caught))
    end = time.perf_counter()
    return Clustering(question, fair, plain, middle - begin, end - middle, notes)
