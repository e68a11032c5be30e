"""Several starts of one fit, fits along a ladder of values, and what is told while they run."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from optfair.errors import DeclarationError, Infeasible

# What estimators tell while they run: log records, and a status line or bar on the terminal.

logger = logging.getLogger("optfair")


class Shown(Protocol):
    """What a line shows of an iteration: a `Solution`, or what was `Iteration`."""

    @property
    def objective(self) -> float:
        """Value."""

    @property
    def gap(self) -> float | None:
        """Certified gap, where there is one."""


class Iteration(NamedTuple):
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
    with progress_bar("starts", restarts) as (bar, task):

        def reporter(restart: int) -> Step:
            return lambda iteration, s: bar.update(
                task, description=f"start {restart + 1}, {_line(iteration, s)}"
            )

        yield reporter, lambda: bar.advance(task)


@contextmanager
def progress_bar(word: str, total: int) -> Iterator[tuple[Any, Any]]:
    """Yield a bar on the terminal and its task."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    task = TextColumn("{task.description}", markup=False)
    columns = TextColumn(word), BarColumn(), MofNCompleteColumn(), task
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield bar, bar.add_task("", total=total)


# Several starts of one clustering, in turn or in threads; they share nothing but the data.

# What to do about a start that did not converge, by status.
ADVICE = {
    "interrupted": "what was found by then is kept",
    "inexact": "its last E-step misses the rules by more than 1e-8; loosen or rescale them",
    "stalled": "no step from its start improves the objective; give another init or seed",
}


@dataclass(frozen=True)
class Restart:
    """What became of one start.

    Attributes
    ----------
    seed : int
        Seed of the start.
    objective : float
        Cost of the soft assignment.
    cost, balance : float
        Cost and balance of the hard labels.
    gap : float
        Certified relative gap of the last assignment at its centers.
    n_iter : int
        Iterations.
    status : str
        Why it stopped.
    seconds : float
        Wall time, start included.
    """

    seed: int
    objective: float
    cost: float
    balance: float
    gap: float
    n_iter: int
    status: str
    seconds: float


def unfinished(status: str, n_iter: int) -> str:
    """Return the warning that the best start was cut off."""
    advice = ADVICE.get(status, f"give {status} or tol more room")
    return f"the best start ended by {status} after {n_iter} iterations; {advice}"


# Digits in which the objective of a start counts: those behind them are rounding.
DIGITS = 12

# From seed, seconds left (None: no limit) and reporter to (record, result).
Run = Callable[[int, "float | None", Step], tuple[Restart, Any]]


def run_restarts(
    run: Run,
    seeds: Sequence[int],
    *,
    rank: Callable[[Restart], float],
    n_jobs: int | None,
    time_limit: float | None = None,
    verbose: int = 0,
) -> tuple[list[Restart], Any]:
    """Return the records of all starts, and the result of the one with the least rank.

    Parameters
    ----------
    run : callable
        One start; a KeyboardInterrupt out of the reporter must end it with what it has.
    seeds : sequence of int
        One per start.
    rank : callable
        What a record is judged by; of starts that differ by rounding the first is the best.
    n_jobs : int, optional
        Threads; 1 by default, -1 for one per core.
    time_limit : float, optional
        Wall seconds over all starts; the first start is made whatever the limit.
    verbose : int
        1 draws a bar.

    Raises
    ------
    KeyboardInterrupt
        Stopped before any start had an assignment.
    """
    jobs = (os.cpu_count() or 1) if n_jobs == -1 else min(n_jobs or 1, len(seeds))
    batch = _Batch(run, time_limit)
    best: tuple[tuple[float, int], Any] | None = None
    records: dict[int, Restart] = {}  # in the order of the seeds, whichever start ends first
    with restart_progress(verbose, len(seeds)) as (reporter, done):
        results = (
            batch.in_turn(seeds, reporter) if jobs == 1 else batch.threaded(seeds, reporter, jobs)
        )
        for i, (record, result) in results:
            records[i] = record
            done()
            judged = float(f"{rank(record):.{DIGITS}g}"), i
            if best is None or judged < best[0]:
                best = judged, result
    if best is None:
        raise KeyboardInterrupt if batch.refused is None else batch.refused
    return [records[i] for i in sorted(records)], best[1]


class _Batch:
    """Runs starts until the time is up or somebody interrupts."""

    def __init__(self, run: Run, time_limit: float | None) -> None:
        self.run = run
        self.deadline = None if time_limit is None else time.perf_counter() + time_limit
        self.stop = threading.Event()
        self.refused: Infeasible | None = None  # the last start whose centers leave no assignment

    def _one(self, first: bool, seed: int, report: Step) -> tuple[Restart, Any] | bool:
        """Return what a start found, True where another may find more, False at the end."""
        left = None if self.deadline is None else self.deadline - time.perf_counter()
        if self.stop.is_set() or (left is not None and left <= 0 and not first):
            return False

        def watched(iteration: int, step: Shown) -> None:
            report(iteration, step)
            if self.stop.is_set():
                raise KeyboardInterrupt

        try:
            return self.run(seed, None if left is None else max(left, 1e-3), watched)
        except KeyboardInterrupt:  # before it had an assignment
            self.stop.set()
            return False
        except Infeasible as e:  # from other centers there may be one
            logger.info("the start from seed %d is left out: %s", seed, e.cause)
            self.refused = e
            return True

    def in_turn(
        self, seeds: Sequence[int], reporter: Callable[[int], Step]
    ) -> Iterator[tuple[int, tuple[Restart, Any]]]:
        """Yield the number of each start and what it found, one after the other."""
        for i, seed in enumerate(seeds):
            result = self._one(i == 0, seed, reporter(i))
            if result is False:
                return
            if result is True:
                continue
            yield i, result
            if result[0].status == "interrupted":
                return

    def threaded(
        self, seeds: Sequence[int], reporter: Callable[[int], Step], jobs: int
    ) -> Iterator[tuple[int, tuple[Restart, Any]]]:
        """Yield the same as they end; Ctrl-C ends them after the iteration at hand."""
        following: Iterator[tuple[int, int]] = iter(enumerate(seeds))
        with ThreadPoolExecutor(jobs) as pool:
            futures: dict[Any, int] = {}
            try:
                while True:
                    try:
                        # a few wait for a thread: so many as were asked for may never get one
                        for i, seed in islice(following, 2 * jobs - len(futures)):
                            futures[pool.submit(self._one, i == 0, seed, reporter(i))] = i
                        if not futures:
                            break
                        for future in wait(futures, return_when=FIRST_COMPLETED).done:
                            i, result = futures.pop(future), future.result()
                            if result is False:
                                following = iter(())
                            elif result is not True:
                                yield i, result
                    except KeyboardInterrupt:
                        self.stop.set()
            finally:  # an error in one start ends the others too
                self.stop.set()


# Fits at a ladder of values, from tight to loose: what obeys one obeys those after it too.


class Ladder:
    """The best fit found at each value: of its own starts, and of where its neighbours ended.

    Each starts from its tighter neighbour too, and then, backwards, from its looser one; what that
    improves is handed on. So the fits never get worse from tight to loose, where a fit does not
    end worse than it starts.

    Parameters
    ----------
    values : sequence of float
        From tight to loose.
    fit : callable
        Fits a value, by its place, from its own starts (None) or from another fit.
    rank : callable
        What a fit is to have little of.

    Attributes
    ----------
    fits : list
        At the first values, at all of them where ``complete``.
    complete : bool
        Whether every value was fitted: Ctrl-C keeps those that were.
    """

    def __init__(
        self, values: Sequence[float], fit: Callable[[int, Any], Any], rank: Callable[[Any], float]
    ) -> None:
        self.values, self._fit, self.rank = values, fit, rank
        self.fits: list[Any] = []
        self.complete = True

    def run(self, verbose: int, parameter: str) -> None:
        """Fit all of them; told on a bar where ``verbose`` is 1.

        Raises
        ------
        KeyboardInterrupt
            Before the first fit has ended.
        """
        last = len(self.values) - 1
        with _counted_each(verbose, 2 * last + 1) as step:
            try:
                for i, value in enumerate(self.values):
                    self._better(i, None)
                    if i:
                        self._better(i, i - 1)
                    step(f"{parameter} = {value:.4g}, {self.rank(self.fits[i]):.6g}")
                for i in range(last - 1, -1, -1):
                    self._better(i, i + 1)
                    self._hand_on(i)
                    again = f"{parameter} = {self.values[i]:.4g} again"
                    step(f"{again}, {self.rank(self.fits[i]):.6g}")
            except KeyboardInterrupt:
                if not self.fits:
                    raise
                self.complete = False
                logger.warning("interrupted; what was fitted is kept")

    def _better(self, i: int, start: int | None) -> None:
        fit = self._fit(i, None if start is None else self.fits[start])
        if i == len(self.fits):
            self.fits.append(fit)
        elif self.rank(fit) < self.rank(self.fits[i]):
            self.fits[i] = fit
        if fit.status_ == "interrupted":
            raise KeyboardInterrupt

    def _hand_on(self, i: int) -> None:
        """Hand an improvement on to the looser ones that are worse now."""
        for j in range(i + 1, len(self.fits)):
            if self.rank(self.fits[j]) <= self.rank(self.fits[j - 1]):
                return
            self._better(j, j - 1)


@contextmanager
def _counted_each(verbose: int, total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that tells of each fit, on a bar where ``verbose`` is 1."""
    if verbose != 1:
        yield lambda text: logger.info("front: %s", text)
        return
    with progress_bar("front", total) as (bar, task):
        yield lambda text: bar.update(task, advance=1, description=text)


def same_starts(model: Any) -> None:
    """Refuse a generator, which gives every fit other starts.

    Raises
    ------
    DeclarationError
        ``random_state`` is one.
    """
    if isinstance(model.random_state, np.random.Generator):
        raise DeclarationError(
            "random_state is a Generator",
            "every fit must get the same starts",
            "give the model an integer",
        )
