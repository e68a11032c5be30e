"""Fair k-means on rows that are read in passes: exact assignments, and centers from their sums."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from optfair.errors import DataError, SolverFailure
from optfair.methods.fair_clustering.adapters.mass_dual import CURVED, POLYHEDRAL
from optfair.methods.fair_clustering.algorithms.program import MassProgram
from optfair.methods.fair_clustering.alternation import EMPTY
from optfair.methods.fair_clustering.streaming.assignment_pass import (
    AssignmentPart,
    AssignmentPass,
    joined,
)
from optfair.methods.fair_clustering.streaming.price_search import (
    StreamedAssignment,
    StreamedSearch,
)
from optfair.rows.row_source import RowSource
from optfair.rows.survey import Survey

Floats = NDArray[np.float64]

__all__ = ["StreamedAlternation", "Streams", "stream_alternation"]

# Rise of the objective that two exact steps may show, relative.
SLACK = 2e-7


@dataclass(frozen=True, eq=False)
class Streams:
    """Rows to pass over, and what is known of them.

    Attributes
    ----------
    source : RowSource
    survey : Survey
    program : MassProgram
        The rules.
    unit : float
        Size of a cost, that gaps refer to.
    n_jobs : int
        Threads.
    """

    source: RowSource
    survey: Survey
    program: MassProgram
    unit: float
    n_jobs: int = 1


@dataclass(frozen=True, eq=False)
class StreamedAlternation:
    """Where the alternation stopped.

    Attributes
    ----------
    assignment : StreamedAssignment
        Last assignment, certified at ``centers``.
    centers : array (K, d)
    history, gaps : tuples of float
        Objective and relative gap per iteration.
    status : {"converged", "max_iter", "time_limit", "interrupted"}
    reseeded : tuple of (iteration, cluster)
    passes : int
        Passes over the rows.
    seconds : float
    """

    assignment: StreamedAssignment
    centers: Floats
    history: tuple[float, ...]
    gaps: tuple[float, ...]
    status: str
    reseeded: tuple[tuple[int, int], ...]
    passes: int
    seconds: float


def stream_alternation(
    streams: Streams,
    centers: Floats,
    prices: Floats | None,
    *,
    max_iter: int,
    tol: float,
    time_limit: float | None = None,
    report: Callable[[int, float, float], None] | None = None,
) -> StreamedAlternation:
    """Alternate exact fair assignments with the means of their clusters.

    Parameters
    ----------
    streams : Streams
        Rows and rules.
    centers : array (K, d)
        Start.
    prices : array (G, K), optional
        Prices near the optimum, e.g. of a sample.
    max_iter, tol, time_limit
        As of `alternate`.
    report : callable, optional
        Called with iteration, objective and gap.

    Raises
    ------
    DataError
        A pass gave other rows than the first one.
    SolverFailure
        No assignment was found, or the objective rose.
    """
    begin = time.perf_counter()
    deadline = np.inf if time_limit is None else begin + time_limit
    tolerance = POLYHEDRAL if streams.program.polyhedral else CURVED
    passes = 0
    best: tuple[StreamedAssignment, Floats] | None = None
    history: list[float] = []
    gaps: list[float] = []
    reseeded: list[tuple[int, int]] = []
    header, status, far = streams.survey.header, "", False
    while not status:
        here = centers

        def make(at: Floats, box: object, thin: bool, here: Floats = here) -> AssignmentPart:
            nonlocal passes
            passes += 1
            function = AssignmentPass(header, here, at, box, thin)  # type: ignore[arg-type]
            part = streams.source.map_reduce(function, joined, streams.n_jobs)
            _same_rows(part.rows, streams.survey)
            return part

        # the first assignment is made whatever the limit
        limit = deadline if best is not None else np.inf
        search = StreamedSearch(
            streams.program, streams.survey, centers, make, tolerance, limit, far
        )
        found = search.assign(prices if prices is not None else np.zeros(_shape(streams)))
        far = far or search.far
        if found is None or found.status in ("time_limit", "interrupted"):
            status = "interrupted" if found and found.status == "interrupted" else "time_limit"
            if best is None and found is None:
                raise SolverFailure(
                    "no assignment was found in the passes made",
                    f"{passes} passes",
                    "give other centers, or fit a sample in memory to see why",
                )
        if found is None:
            break
        if best is not None:
            if status and not np.isfinite(found.bound):  # cut short: the one before has a proof
                break
            fell = best[0].objective - found.objective
            if not status and fell < -SLACK * max(streams.unit, abs(best[0].objective)):
                raise SolverFailure(
                    "the objective rose although both steps are exact",
                    f"from {best[0].objective:.10g} to {found.objective:.10g}",
                    "check that the source returns the same rows in every pass",
                )
            if fell <= tol * abs(best[0].objective):
                status = status or "converged"
            if fell < 0:
                break
        best, prices = (found, centers), found.prices
        gap = max(0.0, found.objective - found.bound) / max(streams.unit, abs(found.objective))
        history.append(found.objective)
        gaps.append(gap)
        if report is not None:
            report(len(history), found.objective, gap)
        if len(history) == max_iter:
            status = status or "max_iter"
        if not status and time.perf_counter() > deadline:
            status = "time_limit"
        if not status:
            centers, empty = _means(found, centers)
            reseeded += [(len(history), k) for k in empty]
    if best is None:
        raise KeyboardInterrupt
    return StreamedAlternation(
        best[0],
        best[1],
        tuple(history),
        tuple(gaps),
        status,
        tuple(reseeded),
        passes,
        time.perf_counter() - begin,
    )


def _shape(streams: Streams) -> tuple[int, ...]:
    return streams.program.masses.shape


def _means(found: StreamedAssignment, centers: Floats) -> tuple[Floats, list[int]]:
    """Return the means of the clusters; an empty one gets a row that costs much."""
    weight = found.masses.sum(axis=0)
    moved = centers.copy()
    held = weight > 0.0
    moved[held] = found.sums[held] / weight[held, None]
    reseeded: list[int] = []
    rows = iter(found.far.X)
    for k in np.flatnonzero(weight <= EMPTY).tolist():
        for row in rows:
            if cdist(row[None], moved).min() > 0.0:
                moved[k] = row
                reseeded.append(k)
                break
    return moved, reseeded


def _same_rows(rows: int, survey: Survey) -> None:
    if rows != survey.rows:
        raise DataError(
            "the source does not give the same rows in every pass",
            f"{survey.rows} rows in the first pass, {rows} in a later one",
            "give a function that returns a new iterator over all rows each time",
        )
