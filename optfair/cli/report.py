"""What `optfair cluster` answers: two clusterings, with the rule and without, and one HTML file about them."""

from __future__ import annotations

import math
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair import metrics, registry
from optfair.cli.question import Question
from optfair.numbers import Floats
from optfair.pages import Picture, count, page, picture
from optfair.plots import COLOURS, plot_composition, plot_convergence, plot_projection

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# What `optfair cluster` makes of a question: two clusterings, with the rule and without.


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


def clustered(question: Question, verbose: int, labels: str) -> Clustering:
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


# The pictures of a report about a clustering.

# Rows drawn in the projection: each is an element of the page.
POINTS = 1500


def compositions(clustering: Clustering) -> list[Picture]:
    """Return who is in each cluster, with and without the rule; nothing for too many groups."""
    q = clustering.question
    if len(clustering.fair.groups_) > len(COLOURS):
        return []
    height = 1.9 + 0.36 * q.clusters

    def of(labels: Any) -> Callable[[Axes], object]:
        hard = np.eye(q.clusters)[labels]  # a cluster without rows has its bar too
        return lambda ax: plot_composition(q.groups, hard, title="", ax=ax)

    return [
        picture(
            of(clustering.labels),
            "fair",
            "Under the rule",
            f"Share of each group in each cluster; balance {clustering.fair.balance_:.3f}.",
            height,
        ),
        picture(
            of(clustering.plain_labels),
            "plain",
            f"For comparison: {q.plain_name}, without a rule",
            f"The same, balance {clustering.plain.balance_:.3f}. Clusters are numbered by the rows they"
            " share with those under the rule.",
            height,
        ),
    ]


def pictures(clustering: Clustering) -> list[Picture]:
    """Return where the clusters are, unless there are too many groups, and how they were found."""
    q, fair = clustering.question, clustering.fair
    drawn = [
        picture(
            lambda ax: plot_convergence(fair, title="", ax=ax),
            "convergence",
            "How it converged",
            "Above: the cost after each step of the best start. Below: the certified gap of each"
            " step's assignment.",
            4.3,
        )
    ]
    if len(fair.groups_) <= len(COLOURS):
        seen = "" if len(q.columns) < 3 else " Clusters that overlap here may be apart elsewhere."
        projected = picture(
            lambda ax: plot_projection(
                q.X,
                fair.labels_,
                q.groups,
                centers=fair.cluster_centers_,
                columns=q.columns,
                max_points=POINTS,
                random_state=q.seed,
                title="",
                ax=ax,
            ),
            "projection",
            "Where they are",
            f"Each point is a row, in the columns as they were clustered.{seen}",
            5.0,
        )
        drawn.insert(0, projected)
    return drawn


# One HTML file about a clustering: what was asked, what was found, how to read it, how to redo it.

TEMPLATE = "report.html.j2"


def rendered(clustering: Clustering, command: str) -> str:
    """Return the page.

    Parameters
    ----------
    clustering : Clustering
        What it is about.
    command : str
        What was typed.
    """
    from optfair import __version__

    q = clustering.question
    *lines, total = _lines(clustering)
    return page(
        TEMPLATE,
        version=__version__,
        title=f"{q.table.path.name}: {count(q.clusters, 'cluster')}, fair by {q.group_column}",
        lead=_lead(clustering),
        tiles=_tiles(clustering),
        notices=[*clustering.notices, *_stopped(clustering)],
        asked=_asked(q),
        compositions=compositions(clustering),
        groups=[str(g) for g in clustering.fair.groups_],
        group_column=q.group_column,
        centers=_centers(clustering),
        rows=lines,
        total=total,
        pictures=pictures(clustering),
        reading=_reading(clustering),
        command=command,
        code=_code(q),
        provenance=_provenance(clustering, __version__),
    )


def _figure(value: float) -> str:
    """Return a number to four digits, without exponents where they can be avoided."""
    if not math.isfinite(value):
        return "–"
    if value == 0 or 1e-4 <= abs(value) < 1e3:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.3e}"


def _gap(value: float) -> str:
    return f"{value:.1e}" if value > 0 else "0"


def _lead(clustering: Clustering) -> str:
    q, groups = clustering.question, clustering.fair.groups_
    sizes = ", ".join(
        f"{share:.0%} {name}" for name, share in zip(groups, clustering.fair.shares_, strict=True)
    )
    if len(groups) > 6:
        sizes = count(len(groups), "group")
    return (
        f"{count(len(q.X), 'row')} in {count(len(q.columns), 'column')}, by {q.group_column}:"
        f" {sizes}. Asked for: {q.rule_words}."
    )


def _tiles(clustering: Clustering) -> list[dict[str, str]]:
    q, fair, plain = clustering.question, clustering.fair, clustering.plain
    more = "–" if math.isnan(clustering.price) else f"{clustering.price:+.1%}"
    return [
        {
            "value": f"{fair.balance_:.3f}",
            "name": "balance of the labels",
            "text": f"The smallest ratio of two groups in a cluster. The population has"
            f" {clustering.best_balance:.3f}, and no clustering has more.",
        },
        {
            "value": _figure(fair.cost_),
            "name": "cost of the labels",
            "text": f"The {q.units}, from a row to the center of its cluster.",
        },
        {
            "value": more,
            "name": f"cost compared with {q.plain_name}",
            "text": f"Without a rule the cost is {_figure(plain.cost_)}, at balance"
            f" {plain.balance_:.3f}.",
        },
        {
            "value": _gap(fair.gap_),
            "name": "certified gap",
            "text": "By which share another fair assignment to these centers could be cheaper, at"
            f" most ({fair.solution_.grade}). The centers are the best found, not proven best.",
        },
    ]


def _stopped(clustering: Clustering) -> list[str]:
    if clustering.fair.status_ in ("interrupted", "time_limit"):
        return ["The run was stopped early; this is the best it had found."]
    return []


def _asked(q: Question) -> list[tuple[str, str]]:
    columns = ", ".join(q.columns)
    asked = [
        ("file", str(q.table.path)),
        ("rows", f"{len(q.X):,}"),
        ("clustered on", columns + (" (standardised)" if q.standardize else " (as they are)")),
    ]
    if q.left_out:
        asked.append(("left out", "; ".join(q.left_out)))
    names, counts = np.unique(q.groups, return_counts=True)
    asked += [
        (
            "groups",
            f"{q.group_column}: "
            + ", ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True)),
        ),
        ("clusters", str(q.clusters)),
        ("rule", q.rule_words),
        ("distance", f"{q.metric} ({q.plain_name})"),
    ]
    return asked


def _lines(clustering: Clustering) -> list[dict[str, Any]]:
    """Return the lines of the table of clusters, the last for all of them."""
    n, sizes = len(clustering.question.X), [*clustering.sizes, len(clustering.question.X)]
    shares = np.column_stack([clustering.shares, clustering.fair.shares_])
    costs = [*clustering.costs, clustering.fair.cost_]
    return [
        {
            "name": str(k) if k < len(sizes) - 1 else "all",
            "size": f"{size:,}",
            "share": f"{size / n:.1%}",
            "groups": ["–" if math.isnan(v) else f"{v:.1%}" for v in shares[:, k]],
            "cost": _figure(float(costs[k])),
        }
        for k, size in enumerate(sizes)
    ]


def _centers(clustering: Clustering) -> list[tuple[str, list[str]]]:
    """Return each column with its value at every center and on average."""
    q = clustering.question
    average = (q.X * q.scale + q.center).mean(axis=0)
    table = np.vstack([clustering.centers, average]).T
    return [
        (name, [_figure(float(v)) for v in row]) for name, row in zip(q.columns, table, strict=True)
    ]


def _reading(clustering: Clustering) -> list[tuple[str, str]]:
    q, fair = clustering.question, clustering.fair
    divided = (
        f"; here {clustering.split_rows:,} of {len(q.X):,} rows" if clustering.split_rows else ""
    )
    return [
        (
            "soft and hard",
            "The rule holds exactly for the soft assignment, which may divide rows between"
            f" clusters{divided}. Labels (hard)"
            " put each row where most of it is. Balance"
            f" {clustering.soft_balance:.4f} soft, {fair.balance_:.4f} hard; cost"
            f" {fair.objective_:.6g} soft, {fair.cost_:.6g} hard.",
        ),
        (
            "certified gap",
            f"At the centers of this clustering the soft assignment is proven to cost at most"
            f" {_gap(fair.gap_)} (relative) more than the best one that obeys the rule. The proof is"
            f" recomputed from the data, not taken from a solver; its grade is"
            f" “{fair.solution_.grade}”.",
        ),
        (
            "not proven",
            "Finding the centers is not a convex problem. They are the best of"
            f" {count(len(fair.restarts_), 'start')} of a heuristic that ends where neither a"
            " better assignment nor better centers alone help; another clustering may cost less.",
        ),
        (
            "balance",
            "1 if all groups had as many rows in every cluster, 0 if a cluster lacks a group. It"
            " can be at most the population's.",
        ),
    ]


def _code(q: Question) -> str:
    separator = "" if q.table.delimiter == "," else f", sep={q.table.delimiter!r}"
    starts = "" if q.n_init is None else f", n_init={q.n_init}"
    metric = "" if q.metric == "sqeuclidean" else f", metric={q.metric!r}"
    scale = "X = (X - X.mean(axis=0)) / X.std(axis=0)\n" if q.standardize else ""
    return (
        "import optfair as of\n"
        "import pandas as pd\n\n"
        f"frame = pd.read_csv({str(q.table.path)!r}{separator}, dtype={{{q.group_column!r}: str}})\n"
        f"X = frame[{_listed(q.columns)}].to_numpy(float)\n"
        f"{scale}"
        f"model = of.FairKMeans({q.clusters}, fairness={q.rule_code}{metric}{starts},"
        f" random_state={q.seed})\n"
        f"labels = model.fit_predict(X, groups=frame[{q.group_column!r}])\n"
    )


def _listed(names: Sequence[str]) -> str:
    """Return a list as Python code, a line per name where one line is too short."""
    line = repr(list(names))
    return line if len(line) <= 70 else "[\n" + "".join(f"    {n!r},\n" for n in names) + "]"


def _provenance(clustering: Clustering, version: str) -> list[tuple[str, str]]:
    import scipy
    import sklearn

    q, fair = clustering.question, clustering.fair
    return [
        ("seed", str(q.seed)),
        ("starts", f"{len(fair.restarts_)}, the best after {count(fair.n_iter_, 'iteration')}"),
        ("ended", fair.status_),
        (
            "seconds",
            f"{clustering.seconds:.1f}, and {clustering.plain_seconds:.1f} for {q.plain_name}",
        ),
        ("solver", str(fair.solution_.solver)),
        (
            "versions",
            f"optfair {version}, numpy {np.__version__}, scipy {scipy.__version__},"
            f" scikit-learn {sklearn.__version__}, Python {platform.python_version()}",
        ),
        ("SHA-256 of the file", q.table.sha256),
    ]
