"""The command ``optfair cluster``: a CSV file in, labels and a report out."""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from optfair import metrics, registry
from optfair.cli.console import (
    FAILED,
    Json,
    check_output,
    document,
    lines,
    reporting,
    table,
    write_files,
)
from optfair.cli.page import check_page
from optfair.cli.question import Question
from optfair.errors import DataError

__all__ = [
    "Clustering",
    "cluster",
    "clustered",
]


# The command ``optfair cluster``: a CSV file in, labels and a report out.

LABELS = "cluster"


class Metric(StrEnum):
    """Distances with a closed form for the best center."""

    sqeuclidean = "sqeuclidean"
    l1 = "l1"


def cluster(
    file: Annotated[Path, typer.Argument(help="CSV file with a header, in UTF-8.")],
    groups: Annotated[str, typer.Option("--groups", "-g", help="Column with the groups.")],
    k: Annotated[int, typer.Option("-k", "--clusters", min=1, help="Number of clusters.")],
    balance: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Smallest ratio of two groups in a cluster to guarantee."
        ),
    ] = None,
    gap: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=2.0,
            help="Largest difference of two groups' fractions, summed over clusters."
            " Without --balance and --gap: perfect fairness.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Columns to cluster on; by default all numeric ones."),
    ] = None,
    standardize: Annotated[
        bool, typer.Option(help="Scale columns to mean 0 and standard deviation 1.")
    ] = True,
    metric: Annotated[
        Metric, typer.Option(help="Squared distances (k-means) or absolute ones (k-medians).")
    ] = Metric.sqeuclidean,
    n_init: Annotated[int | None, typer.Option(min=1, help="Starts; 10 by default.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the starts.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the rows with a column 'cluster' here.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Progress; twice: every iteration.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Cluster the rows of a CSV file fairly, and certify the assignment."""
    if verbose and as_json:
        raise typer.BadParameter("--verbose and --json exclude each other")
    from optfair.cli.question import Question, read_table, split_names

    with reporting(as_json):
        _check_outputs(file, out, report, force)
        if report is not None:
            check_page()
        read = read_table(file)
        if out is not None and LABELS in read.header:
            raise DataError(
                f"{file} has a column {LABELS!r} already",
                "the labels would be written under that name",
                "rename it, or leave out --out",
            )
        question = Question.asked(
            read,
            groups,
            k,
            columns=None if columns is None else split_names(columns),
            least_balance=balance,
            largest_gap=gap,
            standardize=standardize,
            metric=metric.value,
            n_init=n_init,
            seed=seed,
        )
        shown = 0 if as_json else min(2, max(verbose, int(sys.stderr.isatty())))
        found = clustered(question, shown)
        texts: dict[Path, str] = {}
        if out is not None:
            texts[out] = read.with_column(LABELS, found.labels.tolist())
        if report is not None:
            from optfair.cli.report import rendered

            texts[report] = rendered(found, _command(question, balance, gap, columns, out, report))
        write_files(texts)
        written = [str(path) for path in texts]
        if as_json:
            document(_numbers(found) | {"written": written})
        else:
            _print(found, written)
        if found.fair.status_ in ("interrupted", "time_limit"):
            raise typer.Exit(FAILED)


def _check_outputs(file: Path, out: Path | None, report: Path | None, force: bool) -> None:
    """Raise unless both files can be written, before anything is solved."""
    given = [("--out", out), ("--report", report)]
    paths = [(option, path) for option, path in given if path is not None]
    for option, path in paths:
        if path.resolve() == file.resolve():
            raise DataError(
                f"{option} {path} is the file to read", remedy="give another name, rows are kept"
            )
        check_output(option, path, force)
    if len(paths) == 2 and paths[0][1].resolve() == paths[1][1].resolve():
        raise DataError(f"--out and --report are both {out}", remedy="give each a file of its own")


def _command(
    q: Any,
    balance: float | None,
    gap: float | None,
    columns: str | None,
    out: Path | None,
    report: Path,
) -> str:
    """Return what was typed, with the options that matter."""
    words = ["optfair", "cluster", str(q.table.path), "--groups", q.group_column]
    words += ["-k", str(q.clusters)]
    for option, value in (("--balance", balance), ("--gap", gap), ("--columns", columns)):
        words += [] if value is None else [option, str(value)]
    words += [] if q.standardize else ["--no-standardize"]
    words += [] if q.metric == Metric.sqeuclidean else ["--metric", q.metric]
    words += [] if q.n_init is None else ["--n-init", str(q.n_init)]
    words += ["--seed", str(q.seed)]
    words += [] if out is None else ["--out", str(out)]
    return shlex.join([*words, "--report", str(report)])


def _numbers(found: Any) -> dict[str, Any]:
    q, fair = found.question, found.fair
    names = [str(g) for g in fair.groups_]
    shares, costs, centers = found.shares, found.costs, found.centers
    return {
        "file": str(q.table.path),
        "rows": len(q.X),
        "columns": list(q.columns),
        "left_out": list(q.left_out),
        "standardize": q.standardize,
        "groups": {
            "column": q.group_column,
            "shares": dict(zip(names, fair.shares_.tolist(), strict=True)),
        },
        "rule": repr(q.rule),
        "metric": q.metric,
        "seed": q.seed,
        "status": fair.status_,
        "n_iter": fair.n_iter_,
        "starts": len(fair.restarts_),
        "balance": fair.balance_,
        "soft_balance": found.soft_balance,
        "population_balance": found.best_balance,
        "cost": fair.cost_,
        "objective": fair.objective_,
        "gap": fair.gap_,
        "grade": str(fair.solution_.grade),
        "split_rows": found.split_rows,
        "seconds": found.seconds,
        "without_rule": {
            "cost": found.plain.cost_,
            "balance": found.plain.balance_,
            "seconds": found.plain_seconds,
        },
        "clusters": [
            {
                "cluster": k,
                "size": int(size),
                "shares": dict(zip(names, shares[:, k].tolist(), strict=True)),
                "cost": float(costs[k]),
                "center": dict(zip(q.columns, centers[k].tolist(), strict=True)),
            }
            for k, size in enumerate(found.sizes)
        ],
        "notices": list(found.notices),
    }


def _print(found: Any, written: list[str]) -> None:
    q, fair = found.question, found.fair
    n = len(q.X)
    scaled = "standardised" if q.standardize else "as they are"
    lines(
        f"{q.table.path}: {n:,} rows",
        f"  columns    {', '.join(q.columns)} ({scaled})",
        *(f"  left out   {reason}" for reason in q.left_out),
        f"  groups     {q.group_column}, {len(fair.groups_)} groups",
        f"  rule       {q.rule_words}",
        "",
    )
    shares, costs = found.shares, found.costs
    rows = [
        [str(k), f"{size:,}", *(_percent(s) for s in shares[:, k]), f"{costs[k]:.6g}"]
        for k, size in enumerate(found.sizes)
    ]
    rows.append(["all", f"{n:,}", *(_percent(s) for s in fair.shares_), f"{fair.cost_:.6g}"])
    table(("cluster", "rows", *(str(g) for g in fair.groups_), "cost"), rows)
    more = "" if found.price != found.price else f"; the rule costs {found.price:+.1%}"
    lines(
        "",
        f"  balance    {fair.balance_:.4f} of the labels, {found.soft_balance:.4f} soft;"
        f" the population has {found.best_balance:.4f}",
        f"  cost       {fair.cost_:.6g} of the labels, {fair.objective_:.6g} soft; {q.units}",
        f"  {q.plain_name:<9}  balance {found.plain.balance_:.4f}, cost {found.plain.cost_:.6g},"
        f" without a rule{more}",
        f"  certified  gap {fair.gap_:.1e} of the assignment to these centers"
        f" ({fair.solution_.grade}); the centers are the best of {len(fair.restarts_)} starts, a heuristic",
        f"  ended      {fair.status_} after {fair.n_iter_} iterations, {found.seconds:.1f} s"
        f" and {found.plain_seconds:.1f} s for {q.plain_name}",
        *(f"  notice     {text}" for text in found.notices),
        *(f"  wrote      {path}" for path in written),
    )


def _percent(share: float) -> str:
    return "-" if share != share else f"{share:.1%}"


# What `optfair cluster` found.

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


def clustered(question: Question, verbose: int = 0) -> Clustering:
    """Cluster under the rule, and without it for comparison."""
    FairKMeans = registry.load("estimators", "FairKMeans")
    starts: Any = "auto" if question.n_init is None else question.n_init
    common: dict[str, Any] = {"metric": question.metric, "random_state": question.seed}
    common |= {"verbose": verbose, "n_clusters": question.clusters}
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fair = FairKMeans(fairness=question.rule, n_init=starts, **common)
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
