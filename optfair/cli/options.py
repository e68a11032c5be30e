"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from optfair.formats.table import readable

__all__ = ["Json", "Name", "Problems", "Solvers"]


def _adds(kind: str) -> Callable[[Path | None], Path | None]:
    """Return a callback that adds a folder of facts for this process."""

    def add(folder: Path | None) -> Path | None:
        if folder is not None:
            variable = f"OPTFAIR_{kind.upper()}"
            known = os.environ.get(variable)
            os.environ[variable] = os.pathsep.join([known, str(folder)] if known else [str(folder)])
        return folder

    return add


Name = Annotated[
    str,
    typer.Argument(
        help="FAMILY/NAME, or NAME where one family only has it; or a file:"
        f" {', '.join(readable())}."
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")
]
Problems = Annotated[
    Path | None,
    typer.Option(
        "--problems",
        metavar="DIR",
        help="Folder with further instances.",
        exists=True,
        file_okay=False,
        callback=_adds("problems"),
    ),
]
Solvers = Annotated[
    Path | None,
    typer.Option(
        "--solvers",
        metavar="DIR",
        help="Folder with further solver profiles.",
        exists=True,
        file_okay=False,
        callback=_adds("solvers"),
    ),
]
