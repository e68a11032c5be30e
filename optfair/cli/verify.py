"""The command ``optfair verify``: whether a proof file proves what it says, and about which problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optfair.cli.console import (
    FAILED,
    Json,
    Problems,
    Solvers,
    document,
    lines,
    named,
    reporting,
)

__all__ = ["verify"]


def verify(
    proof: Annotated[Path, typer.Argument(help="Proof file, written by save() of a certificate.")],
    model: Annotated[
        str | None,
        typer.Argument(help="Instance or file that it has to be about, number by number."),
    ] = None,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Check a proof file in exact arithmetic, and that it is about a model."""
    from optfair.formats.proof_file import load_proof

    with reporting(as_json):
        saved = load_proof(proof)
        about = None if model is None else named(model)
        verdict = saved.verify()
        reasons = verdict.reasons if about is None else saved.faults(about.problem)
        if as_json:
            document(
                {
                    "proof": str(proof),
                    "model": None if about is None else about.name,
                    "proved": not reasons,
                    "says": "" if reasons else str(saved),
                    "reasons": reasons,
                    **verdict.grade.to_dict(),
                }
            )
        else:
            lines(*([f"NOT proved: {reason}" for reason in reasons] or [str(saved)]))
            if about is not None and not reasons:
                lines(f"its numbers are those of {about.name}")
        if reasons:
            raise typer.Exit(FAILED)
