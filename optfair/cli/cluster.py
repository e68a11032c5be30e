"""The command ``optfair cluster``: a CSV file in, labels and a report out."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from optfair.cli.console import (
    FAILED,
    Force,
    Json,
    SafeCells,
    check_outputs,
    document,
    lines,
    reporting,
    table,
    typed,
    write_files,
)
from optfair.errors import DataError
from optfair.pages import PAGES, check_page

LABELS = "cluster"


class Metric(StrEnum):
    """Distances with a closed form for the best center."""

    sqeuclidean = "sqeuclidean"
    l1 = "l1"


class Labels(StrEnum):
    """What obeys the rule: the fractions of rows, or the labels."""

    soft = "soft"
    hard = "hard"


def cluster(
    ctx: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="CSV file with a header, in UTF-8; .csv.gz and .parquet too.")
    ],
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
    labels: Annotated[
        Labels,
        typer.Option(
            help="hard: labels that obey the rule; soft: largest fractions, which nearly do."
        ),
    ] = Labels.soft,
    n_init: Annotated[int | None, typer.Option(min=1, help="Starts; 10 by default.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the starts.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the rows with a column 'cluster' here.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    force: Force = False,
    safe_cells: SafeCells = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Progress; twice: every iteration.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Cluster the rows of a CSV file fairly, with a certificate."""
    if verbose and as_json:
        raise typer.BadParameter("--verbose and --json exclude each other")
    from optfair.cli.question import Question, read_table, split_names
    from optfair.cli.report import clustered

    with reporting(as_json):
        check_outputs({"--out": out, "--report": report}, force, read={"the file to read": file})
        check_outputs({"--report": report}, force, endings=PAGES)
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
        clustering = clustered(question, shown, labels.value)
        texts: dict[Path, str] = {}
        if out is not None:
            texts[out] = read.with_column(LABELS, clustering.labels.tolist(), safe=safe_cells)
        if report is not None:
            from optfair.cli.report import rendered

            texts[report] = rendered(clustering, typed(ctx, "cluster"))
        write_files(texts)
        written = [str(path) for path in texts]
        if as_json:
            document(_numbers(clustering) | {"written": written})
        else:
            _print(clustering, written)
        if clustering.fair.status_ in ("interrupted", "time_limit"):
            raise typer.Exit(FAILED)


def _numbers(clustering: Any) -> dict[str, Any]:
    q, fair = clustering.question, clustering.fair
    names = [str(g) for g in fair.groups_]
    shares, costs, centers = clustering.shares, clustering.costs, clustering.centers
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
        "soft_balance": clustering.soft_balance,
        "population_balance": clustering.best_balance,
        "cost": fair.cost_,
        "objective": fair.objective_,
        "gap": fair.gap_,
        "grade": str(fair.solution_.grade),
        "split_rows": clustering.split_rows,
        "asked": dict(zip(("measure", "soft", "labels"), clustering.achieved, strict=True)),
        "labels": {
            "kind": fair.labels,
            "gap": None if fair.hard_labels_ is None else fair.hard_labels_.gap,
        },
        "seconds": clustering.seconds,
        "without_rule": {
            "cost": clustering.plain.cost_,
            "balance": clustering.plain.balance_,
            "seconds": clustering.plain_seconds,
        },
        "clusters": [
            {
                "cluster": k,
                "size": int(size),
                "shares": dict(zip(names, shares[:, k].tolist(), strict=True)),
                "cost": float(costs[k]),
                "center": dict(zip(q.columns, centers[k].tolist(), strict=True)),
            }
            for k, size in enumerate(clustering.sizes)
        ],
        "notices": list(clustering.notices),
    }


def _print(clustering: Any, written: list[str]) -> None:
    q, fair = clustering.question, clustering.fair
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
    shares, costs = clustering.shares, clustering.costs
    rows = [
        [str(k), f"{size:,}", *(_percent(s) for s in shares[:, k]), f"{costs[k]:.6g}"]
        for k, size in enumerate(clustering.sizes)
    ]
    rows.append(["all", f"{n:,}", *(_percent(s) for s in fair.shares_), f"{fair.cost_:.6g}"])
    table(("cluster", "rows", *(str(g) for g in fair.groups_), "cost"), rows, listing=False)
    more = (
        "" if clustering.price != clustering.price else f"; the rule costs {clustering.price:+.1%}"
    )
    lines(
        "",
        f"  asked      {clustering.achieved[0]}: {clustering.achieved[2]:.4f} of the labels,"
        f" {clustering.achieved[1]:.4f} soft{_proved(fair)}",
        f"  balance    {fair.balance_:.4f} of the labels, {clustering.soft_balance:.4f} soft;"
        f" the population has {clustering.best_balance:.4f}",
        f"  cost       {fair.cost_:.6g} of the labels, {fair.objective_:.6g} soft; {q.units}",
        f"  {q.plain_name:<9}  balance {clustering.plain.balance_:.4f}, cost {clustering.plain.cost_:.6g},"
        f" without a rule{more}",
        f"  certified  gap {fair.gap_:.1e} of the assignment to these centers"
        f" ({fair.solution_.grade}); the centers are the best of {len(fair.restarts_)} starts, a heuristic",
        f"  ended      {fair.status_} after {fair.n_iter_} iterations, {clustering.seconds:.1f} s"
        f" and {clustering.plain_seconds:.1f} s for {q.plain_name}",
        *(f"  notice     {text}" for text in clustering.notices),
        *(f"  wrote      {path}" for path in written),
    )


def _proved(fair: Any) -> str:
    """Say what is known of labels that obey."""
    hard = fair.hard_labels_
    if hard is None:
        return "; --labels hard obeys with whole rows"
    return f"; labels within {hard.gap:.1e} of the best that obey, {hard.grade}"


def _percent(share: float) -> str:
    return "-" if share != share else f"{share:.1%}"
