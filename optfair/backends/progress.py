"""Progress of long work: a status line on the terminal, nothing when silent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def round_progress(verbose: int, what: str) -> Iterator[Callable[[Any], None] | None]:
    """Yield a callback that shows rounds as they end, or None when ``verbose`` is 0."""
    if not verbose:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"{what}: first prices") as status:
        count = 0

        def report(entry: Any) -> None:
            nonlocal count
            count += 1
            line = (
                f"{what}: round {count}, {entry.rows} free rows, {entry.arcs} arcs,"
                f" bound {entry.bound:.10g}, gap {entry.gap:.1e}"
            )
            status.update(line)
            if verbose >= 2:
                console.log(line)

        yield report


def show_line(text: str) -> None:
    """Write a piece of a solver's log to the terminal's error stream."""
    sys.stderr.write(text)
