"""Fair k-means on rows that are never held: the alternation in passes, and the methods of `FairKMeans`."""

from __future__ import annotations

import operator
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from optfair.errors import DataError, DeclarationError, SolverFailure
from optfair.methods.fair_clustering.algorithms.descent import (
    REACH,
    Assigned,
    Descent,
    descend,
    reseed,
)
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import CURVED, POLYHEDRAL
from optfair.methods.fair_clustering.algorithms.pricing import Box, MassPass
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.single_start import (
    LARGE,
    check_distinct,
    check_init,
    held_descent,
    smoothed_start,
    start_of,
)
from optfair.methods.fair_clustering.streamed_prices import (
    AssignmentPart,
    AssignmentPass,
    SmoothedPass,
    StreamedAssignment,
    StreamedSearch,
    joined,
)
from optfair.rows.frames import check_parameters, start_seeds
from optfair.rows.restarts import (
    Restart,
    Shown,
    Step,
    Told,
    run_restarts,
    step_progress,
    unfinished,
)
from optfair.rows.sources import RowSource, row_source
from optfair.rows.survey import Survey, surveyed

# Fair k-means on rows that are read in passes: exact assignments, and centers from their sums.

Floats = NDArray[np.float64]


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


def stream_alternation(
    streams: Streams,
    centers: Floats,
    prices: Floats | None,
    *,
    max_iter: int,
    tol: float,
    reach: float = 1.0,
    time_limit: float | None = None,
    report: Step | None = None,
) -> tuple[Descent[StreamedAssignment], int]:
    """Alternate exact fair assignments with the means of their clusters.

    Parameters
    ----------
    streams : Streams
        Rows and rules.
    centers : array (K, d)
        Start.
    prices : array (G, K), optional
        Prices near the optimum, e.g. of a sample.
    max_iter, tol, reach, time_limit
        As of `descend`.
    report : callable, optional
        Called with the iteration and what is `Told` of it.

    Returns
    -------
    Descent, int
        Where it stopped, and the number of passes.

    Raises
    ------
    DataError
        A pass gave other rows than the first one.
    SolverFailure
        No assignment was found, or the objective rose.
    """
    tolerance = POLYHEDRAL if streams.program.polyhedral else CURVED
    passes, header = 0, streams.survey.header

    def assign(
        centers: Floats, before: Assigned[StreamedAssignment] | None, left: float
    ) -> Assigned[StreamedAssignment] | None:
        def make(at: Floats, box: Box | None) -> AssignmentPart:
            nonlocal passes
            passes += 1
            function = AssignmentPass(header, centers, at, box)
            part = streams.source.map_reduce(function, joined, streams.n_jobs)
            _same_rows(part.rows, streams.survey)
            return part

        def soften(at: Floats, tau: float) -> MassPass:
            nonlocal passes
            passes += 1
            function = SmoothedPass(header, centers, at, tau)
            part: MassPass = streams.source.map_reduce(function, operator.add, streams.n_jobs)
            return part

        # the first assignment is made whatever the limit
        deadline = np.inf if before is None else time.perf_counter() + left
        search = StreamedSearch(
            streams.program, streams.survey, centers, make, soften, tolerance, deadline
        )
        found = search.assign(prices if before is None else before.found.prices)
        if found is None:
            if before is not None:
                return None
            raise SolverFailure(
                "no assignment was found in the passes made",
                f"{passes} passes",
                "give other centers, or fit a sample in memory to see why",
            )
        gap = max(0.0, found.objective - found.bound) / max(streams.unit, abs(found.objective))
        return Assigned(found.objective, gap, found.status, centers, found)

    def told(iteration: int, step: Assigned[StreamedAssignment]) -> None:
        if report is not None:
            report(iteration, Told(step.objective, step.gap))

    run = descend(
        centers,
        assign,
        _means,
        max_iter=max_iter,
        tol=tol,
        rise=SLACK,
        unit=streams.unit,
        reach=reach,
        time_limit=time_limit,
        report=told,
    )
    return run, passes


def _means(step: Assigned[StreamedAssignment]) -> tuple[Floats, list[int]]:
    """Return the means of the clusters; an empty one gets a row that costs much."""
    found, moved = step.found, step.centers.copy()
    weight = found.masses.sum(axis=0)
    held = weight > 0.0
    moved[held] = found.sums[held] / weight[held, None]
    return moved, reseed(moved, weight, found.far.X)


def _same_rows(rows: int, survey: Survey) -> None:
    if rows != survey.rows:
        raise DataError(
            "the source does not give the same rows in every pass",
            f"{survey.rows} rows in the first pass, {rows} in a later one",
            "give a function that returns a new iterator over all rows each time",
        )


# What `FairKMeans` can do with rows that are never held: the methods, and the fit behind them.

# What a fit in memory leaves behind and a streamed one cannot have.
HELD = ("labels_", "hard_labels_", "soft_assignment_", "solution_", "_plan", "_index", "_weights")


class StreamedKMeans:
    """Methods of `FairKMeans` for rows that do not fit into memory."""

    def fit_stream(self, data: Any, *, groups: Any = None, sample_weight: Any = None) -> Any:
        """Cluster rows that are read chunk by chunk, in several passes, and never held.

        The assignments are the exact ones of `fit`: each is certified by a bound recomputed in a
        pass over all rows. A pass keeps sums per cluster and group, and the rows that are near a
        boundary. From 200,000 rows on, all starts run on a sample and the best goes on with all
        rows; below, centers and prices are those of `fit` to rounding.

        Sets the attributes of `fit` but those of the size of the rows (``labels_``,
        ``soft_assignment_``, ``solution_``); see `predict_stream` for labels. ``n_passes_`` is
        the number of passes over all rows, ``n_rows_`` their number.

        Parameters
        ----------
        data : callable, path, array, memory map, Dask array or frame, or RowSource
            A function that returns a new iterator of chunks ``(X, groups)`` or
            ``(X, groups, weights)`` for each pass; a parquet file or folder; anything else that
            can be read in slices. Dask data stay with the workers.
        groups : array-like (n,), Dask array or series, or str
            Group label of each row, or the name of a column; not where chunks carry theirs.
        sample_weight : array-like (n,), Dask array or series, or str, optional
            Weights.

        Returns
        -------
        FairKMeans
            Itself.

        Raises
        ------
        DataError
            An iterator that can be read once only, chunks with different columns, rows that
            change between passes, and what `fit` refuses.
        DeclarationError
            metric "l1", whose medians do not add up over chunks; algorithm "paper".
        SolverFailure
            A cluster that lost its workers for good.

        Examples
        --------
        >>> import numpy as np
        >>> import optfair as of
        >>> rng = np.random.default_rng(0)
        >>> X, groups = rng.normal(size=(600, 2)), np.arange(600) % 2
        >>> def read():
        ...     for i in range(0, 600, 200):
        ...         yield X[i : i + 200], groups[i : i + 200]
        >>> model = of.FairKMeans(3, n_init=1, random_state=0).fit_stream(read)
        >>> whole = of.FairKMeans(3, n_init=1, random_state=0).fit(X, groups=groups)
        >>> bool(np.allclose(model.cluster_centers_, whole.cluster_centers_, atol=1e-9))
        True
        """
        fit_stream(self, data, groups, sample_weight)
        return self

    def predict_stream(self, data: Any, *, groups: Any = None) -> Iterator[NDArray[np.intp]]:
        """Yield the labels of each chunk, as `predict` gives them.

        Parameters
        ----------
        data, groups
            As of `fit_stream`, or an iterator of chunks, as there is one pass.
        """
        check_is_fitted(self, "prices_")
        read = (lambda: data) if hasattr(data, "__next__") else data
        for chunk in row_source(read, groups).chunks():
            yield self.predict(chunk.X, groups=chunk.labels)  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class _Start:
    """Where a start stands before the passes over all rows."""

    seed: int
    centers: Floats
    prices: Floats | None
    reach: float
    seconds: float


def fit_stream(model: Any, data: Any, groups: Any, sample_weight: Any) -> None:
    """Fit a `FairKMeans` to a source of rows; see `StreamedKMeans.fit_stream`."""
    begin = time.perf_counter()
    check_parameters(model)
    _check_additive(model)
    jobs = (os.cpu_count() or 1) if model.n_jobs == -1 else (model.n_jobs or 1)
    source = row_source(data, groups, sample_weight)
    survey = surveyed(source, n_jobs=jobs)
    K, few = model.n_clusters, survey.sample
    init = check_init(model.init, K, survey.columns)
    check_distinct(few.X[few.weights > 0], K)
    problem = FairAssignment(
        few.X,
        groups=survey.group_names[few.groups],
        centers=few.X[:K],
        fairness=model.fairness,
        sample_weight=few.weights,
    )
    _check_rules(problem)
    rules = compile_rules(problem)
    streams = Streams(source, survey, rules.program, problem.objective_unit, jobs)
    seeds = start_seeds(model.random_state, model.n_init, given=not isinstance(init, str))
    passes = 1

    def went_on(
        start: _Start, left: float | None, report: Step | None, *, stopped: bool = False
    ) -> Descent[StreamedAssignment]:
        nonlocal passes
        # while starts run, a bar over them has the terminal
        shown = 0 if model.verbose == 1 and report is not None else model.verbose
        with step_progress(shown) as log:

            def told(iteration: int, now: Shown) -> None:
                log(iteration, now)
                if report is not None:
                    report(iteration, now)

            run, more = stream_alternation(
                streams,
                start.centers,
                start.prices,
                max_iter=1 if stopped else model.max_iter,
                tol=model.tol,
                reach=start.reach,
                time_limit=left,
                report=told,
            )
        passes += more
        return replace(run, status="interrupted") if stopped else run

    def fit(
        seed: int, limit: float | None, report: Step
    ) -> tuple[Restart, Descent[StreamedAssignment] | _Start]:
        begin = time.perf_counter()
        centers, prices, reach = start_of(problem, init, seed), None, 1.0
        left = None if limit is None else _left(begin + limit)
        begun = smoothed_start(problem, centers, model, left)
        if begun is not None:
            centers, prices, reach = begun.centers, begun.prices, REACH
        if survey.rows >= LARGE:
            left = None if limit is None else _left(begin + limit)
            rough = max(model.tol, 1e-5)
            run = held_descent(
                problem, centers, prices, model, left, report, tol=rough, reach=reach
            )
            taken = time.perf_counter() - begin
            start = _Start(seed, run.best.centers, run.best.found.prices, reach, taken)
            # of the sample: what it ranks by, and whether it was interrupted
            numbers = run.history[-1], np.nan, np.nan, run.gaps[-1], len(run.history), run.status
            return Restart(seed, *numbers, start.seconds), start
        start = _Start(seed, centers, prices, reach, time.perf_counter() - begin)
        streamed = went_on(start, None if limit is None else _left(begin + limit), report)
        return _record(start, streamed), streamed

    limit = None if model.time_limit is None else _left(begin + model.time_limit)
    records, best = run_restarts(
        fit, seeds, rank=lambda r: r.objective, time_limit=limit, verbose=model.verbose
    )
    if isinstance(best, _Start):  # the best on the sample goes on with all rows
        left = None if model.time_limit is None else _left(begin + model.time_limit)
        stopped = any(r.status == "interrupted" for r in records)
        start, best = best, went_on(best, left, None, stopped=stopped)
        records = [_record(start, best)]
    _keep(model, best, survey, records, passes)


def _left(deadline: float) -> float:
    return max(deadline - time.perf_counter(), 1e-3)


def _check_additive(model: Any) -> None:
    if model.metric != "sqeuclidean":
        raise DeclarationError(
            f"fit_stream does not take metric={model.metric!r}",
            "medians do not add up over chunks",
            'use metric="sqeuclidean", or fit in memory',
        )
    if model.goal != "mean":
        raise DeclarationError(
            f"fit_stream does not take goal={model.goal!r}",
            "prices of groups need all rows at once",
            'use goal="mean", or fit in memory',
        )
    if model.search != "restarts":
        raise DeclarationError(
            f"fit_stream does not take search={model.search!r}",
            "swaps look at all rows",
            'use search="restarts", or fit in memory',
        )
    if model.labels != "soft":
        raise DeclarationError(
            f"fit_stream does not take labels={model.labels!r}",
            "labels that obey need all rows at once",
            'use labels="soft", or fit in memory',
        )
    if model.algorithm != "exact":
        raise DeclarationError(
            f"fit_stream does not take algorithm={model.algorithm!r}",
            "the printed algorithm couples rows in memory",
            'use algorithm="exact"',
        )


def _check_rules(problem: FairAssignment) -> None:
    own = ("cost", "row sum", "nonnegativity", "mass definition")
    terms = {**problem.objective, **problem.constraints}
    wide = [n for n, t in terms.items() if n not in own and not t.scope <= {"masses"}]
    if wide:
        raise DeclarationError(
            f"fit_stream takes rules on the masses only, not {', '.join(wide)}",
            "rules on single rows need all rows at once",
            "use balance, cluster_share, additive_gap ..., or fit in memory",
        )


def _record(start: _Start, run: Descent[StreamedAssignment]) -> Restart:
    found = run.best.found
    numbers = run.history[-1], found.hard_cost, _balance(found.hard_masses), run.gaps[-1]
    taken = start.seconds + run.seconds
    return Restart(start.seed, *numbers, len(run.history), run.status, taken)


def _balance(masses: Floats) -> float:
    filled = masses[:, masses.sum(axis=0) > 0]
    return float((filled.min(axis=0) / filled.max(axis=0)).min())


def _keep(
    model: Any,
    best: Descent[StreamedAssignment],
    survey: Survey,
    records: list[Restart],
    passes: int,
) -> None:
    """Set the fitted attributes."""
    found = best.best.found
    for name in (*HELD, "feature_names_in_"):
        if hasattr(model, name):
            delattr(model, name)
    if survey.names is not None:
        model.feature_names_in_ = np.array(survey.names, dtype=object)
    model.n_features_in_ = survey.columns
    model.n_rows_, model.n_passes_ = survey.rows, passes
    model.groups_, model.shares_ = survey.group_names, survey.shares
    model.cluster_centers_ = best.best.centers
    model.masses_, model.prices_ = found.masses, found.prices
    model.objective_ = found.objective
    model.cost_, model.balance_ = found.hard_cost, _balance(found.hard_masses)
    model.gap_ = best.gaps[-1]
    model.history_, model.gaps_ = np.array(best.history), np.array(best.gaps)
    model.n_iter_, model.status_ = len(best.history), best.status
    model.reseeded_ = best.reseeded
    model.restarts_ = records
    if model.status_ != "converged":
        text = unfinished(model.status_, model.n_iter_)
        warnings.warn(text, ConvergenceWarning, stacklevel=4)
    if not np.isfinite(found.objective):
        raise DataError("the objective is not finite", remedy="rescale the columns")
