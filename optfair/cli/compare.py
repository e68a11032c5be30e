"""The command ``optfair compare``: solvers side by side on instances, and one HTML file about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from optfair.cli.console import (
    FAILED,
    Force,
    Json,
    Problems,
    SafeCells,
    check_output,
    document,
    lines,
    reporting,
    table,
    typed,
)
from optfair.errors import DataError
from optfair.formats.text import readable
from optfair.pages import check_page

# The command ``optfair compare``: solvers side by side on instances of the problem library.


def compare(
    ctx: typer.Context,
    pattern: Annotated[
        list[str],
        typer.Argument(
            help="Names of instances, patterns such as 'textbook/*', collections of the folder"
            " OPTFAIR_COLLECTIONS such as netlib or 'sdplib/t*', or files:"
            f" {', '.join(readable())}."
        ),
    ],
    names: Annotated[
        str | None,
        typer.Option(
            "--solvers",
            metavar="A,B,C",
            help="Names of solvers; by default every open one that is installed."
            " (Folders with further profiles: OPTFAIR_SOLVERS.)",
        ),
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Relative residuals to meet.")] = 1e-8,
    time_limit: Annotated[float, typer.Option(help="Wall seconds of one run.")] = 60.0,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each pair.")] = 1,
    jobs: Annotated[int, typer.Option(help="Runs at the same time; -1: one per core.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder that keeps every run; finished ones are not redone.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    force: Force = False,
    safe_cells: SafeCells = False,
    as_json: Json = False,
    problems: Problems = None,
) -> None:
    """Compare solvers at equal tolerance, by recomputed residuals."""
    from optfair.comparison import compare_solvers

    with reporting(as_json):
        check_output("--report", report, force)
        if report is not None:
            check_page()
        asked = None if names is None else _split(names)
        comparison = compare_solvers(
            pattern,
            asked,
            tolerance=tolerance,
            time_limit=time_limit,
            repeats=repeats,
            n_jobs=jobs,
            out=out,
            verbose=int(not as_json and sys.stderr.isatty()),
        )
        written = [] if out is None else [str(out)]
        if out is not None and safe_cells:
            comparison.save(out / "comparison.csv", safe_cells=True)
        if report is not None:
            comparison.to_html(report, command=typed(ctx, "compare"))
            written.append(str(report))
        if as_json:
            document(_content(comparison) | {"written": written})
        else:
            _print(comparison, written)
        if comparison.conflicts():
            raise typer.Exit(FAILED)


def _split(names: str) -> list[str]:
    found = [name.strip() for name in names.split(",") if name.strip()]
    if not found:
        raise DataError("--solvers names nobody", remedy="give names, separated by commas")
    return found


def _content(comparison: Any) -> dict[str, Any]:
    def brief(runs: Any) -> list[dict[str, str]]:
        kept = ("problem", "solver", "outcome", "reason")
        return [{name: getattr(run, name) for name in kept} for run in runs]

    content: dict[str, Any] = comparison.to_dict()
    return content | {
        "failures": brief(comparison.failures()),
        "refusals": brief(comparison.refusals()),
    }


def _print(comparison: Any, written: list[str]) -> None:
    from optfair.comparison.page import OUTCOME_WORDS

    lines(*repr(comparison).splitlines())
    failures = comparison.failures()
    if failures:
        lines("", "without an answer")
        head = ("problem", "solver", "outcome", "why")
        table(
            head,
            [(r.problem, r.solver, OUTCOME_WORDS[r.outcome], r.reason) for r in failures],
            listing=False,
        )
    refused = comparison.refusals()
    lines(
        "",
        f"  refused    {len(refused)} pairs where the solver does not take the problem",
        *(f"  wrote      {path}" for path in written),
    )
