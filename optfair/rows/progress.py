"""What estimators tell while they run: log records, and a status line or bar on the terminal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

__all__ = ["Shown", "Step", "Told", "restart_progress", "step_progress"]

logger = logging.getLogger("optfair")


class Shown(Protocol):
    """What a line shows of an iteration: a `Solution`, or what was `Told`."""

    @property
    def objective(self) -> float:
        """Value."""

    @property
    def gap(self) -> float | None:
        """Certified gap, where there is one."""


class Told(NamedTuple):
    """An iteration that has no `Solution`."""

    objective: float
    gap: float | None = None


Step = Callable[[int, Shown], None]


def _line(iteration: int, s: Shown) -> str:
    gap = "" if s.gap is None else f", gap {s.gap:.1e}"
    return f"alternation {iteration}: objective {s.objective:.10g}{gap}"


@contextmanager
def step_progress(verbose: int) -> Iterator[Step]:
    """Yield a function that tells of each iteration of one alternation."""
    if not verbose:
        yield lambda iteration, s: logger.info(_line(iteration, s))
        return
    from rich.console import Console

    console = Console(stderr=True)
    if verbose >= 2:  # the solver has the status line
        yield lambda iteration, s: console.log(_line(iteration, s))
        return
    with console.status("alternation: first assignment") as status:
        yield lambda iteration, s: status.update(_line(iteration, s))


@contextmanager
def restart_progress(
    verbose: int, restarts: int
) -> Iterator[tuple[Callable[[int], Step], Callable[[], None]]]:
    """Yield (function that returns the reporter of one restart, function that ends one)."""
    if verbose != 1:
        yield lambda restart: lambda iteration, s: None, lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("starts"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=restarts)

        def reporter(restart: int) -> Step:
            return lambda iteration, s: bar.update(
                task, description=f"start {restart + 1}, {_line(iteration, s)}"
            )

        yield reporter, lambda: bar.advance(task)
