"""What commands print: text for people, one JSON document for programs, errors either way."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from optfair.errors import Infeasible, OptfairError, SolverFailure, Unbounded

__all__ = ["FAILED", "MISUSED", "document", "lines", "reporting", "table"]

# Exit codes: the result is not what was hoped for; the question could not be asked.
FAILED, MISUSED = 1, 2


def _console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    # a pipe has no width, so nothing is cut or folded there
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 240)


def document(content: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return what JSON can say; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [_plain(v) for v in value]
    return str(value)


def lines(*rows: str) -> None:
    """Print lines of text as they stand."""
    console = _console()
    for row in rows:
        console.print(escape(row), soft_wrap=True)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without lines."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        grid.add_column(name, overflow="fold")
    for row in rows:
        grid.add_row(*(escape(cell) for cell in row))
    _console().print(grid)


@contextmanager
def reporting(as_json: bool) -> Iterator[None]:
    """Print an error of ours as cause, why and do, and leave with its exit code."""
    try:
        yield
    except OptfairError as e:
        if as_json:
            document(e.to_dict())
        else:
            _console(stderr=True).print(escape(str(e)), soft_wrap=True)
        failed = isinstance(e, (Infeasible, Unbounded, SolverFailure))
        raise typer.Exit(FAILED if failed else MISUSED) from None
