"""The command ``optfair diagnose``: why an instance or a file has no solution, with evidence."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from optfair.cli.named import named
from optfair.cli.options import Json, Name, Problems, Solvers
from optfair.cli.output import FAILED, document, lines, reporting

__all__ = ["diagnose"]


def diagnose(
    name: Name,
    tolerance: Annotated[
        float, typer.Option(help="Relative violation below which a point counts as feasible.")
    ] = 1e-7,
    time_limit: Annotated[float | None, typer.Option(help="Wall seconds.")] = None,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Say why an instance or a file has no solution: conflict, ray, witness or scaling."""
    from optfair.diagnosis.diagnose import diagnose as examined

    with reporting(as_json):
        subject = named(name)
        found = examined(subject.problem, tolerance=tolerance, time_limit=time_limit)
        if as_json:
            document({"name": subject.name, **found.to_dict()})
        elif sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(found)
        else:
            lines(*str(found).splitlines())
        solved = "solution" in found and bool(found["solution"].verify())
        if found.verdict != "fine" and not solved:
            raise typer.Exit(FAILED)
