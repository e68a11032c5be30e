"""Several starts of one clustering, in turn or in threads; they share nothing but the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optfair.estimators.progress import Step, restart_progress

__all__ = ["Restart", "run_restarts"]


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


def run_restarts(
    run: Callable[[int, Step], tuple[Restart, Any]],
    seeds: Sequence[int],
    *,
    rank: Callable[[Restart], float],
    n_jobs: int | None = None,
    verbose: int = 0,
) -> tuple[list[Restart], Any]:
    """Return the records of all starts, and the result of the one with the least rank.

    Parameters
    ----------
    run : callable
        From seed and reporter to (record, result).
    seeds : sequence of int
        One per start.
    rank : callable
        What a record is judged by.
    n_jobs : int, optional
        Threads; 1 by default, -1 for one per core.
    verbose : int
        1 draws a bar.

    Notes
    -----
    An interrupted start ends the run; those that finished before count.
    """
    from joblib import Parallel, delayed

    records: list[Restart] = []
    best: tuple[float, Any] | None = None
    with restart_progress(verbose, len(seeds)) as (reporter, done):
        results = Parallel(n_jobs=n_jobs or 1, prefer="threads", return_as="generator")(
            delayed(run)(seed, reporter(i)) for i, seed in enumerate(seeds)
        )
        try:
            for record, result in results:
                records.append(record)
                done()
                if best is None or rank(record) < best[0]:
                    best = (rank(record), result)
                if record.status in ("interrupted", "time_limit"):
                    break
        except KeyboardInterrupt:
            if best is None:
                raise
        finally:
            results.close()
    if best is None:
        raise KeyboardInterrupt
    return records, best[1]
