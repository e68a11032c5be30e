"""Progress of row generation on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optfair.backends.rows.generation import RowRound

__all__ = ["row_progress"]


@contextmanager
def row_progress(verbose: int) -> Iterator[Callable[[RowRound], None] | None]:
    """Yield a callback that shows rounds as they end, or None when ``verbose`` is 0."""
    if not verbose:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("lazy rows: first rows") as status:
        count = 0

        def report(entry: RowRound) -> None:
            nonlocal count
            count += 1
            line = (
                f"lazy rows: round {count}, {entry.rows} rows, bound {entry.bound:.10g},"
                f" worst violation {entry.violation:.1e}"
            )
            status.update(line)
            if verbose >= 2:
                console.log(line)

        yield report
