"""The fit of fair k-means: starts on rows in memory, the best on with all rows, held or read in passes."""

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
from optfair.methods.fair_clustering.algorithms.charged_passes import ChargedPasses
from optfair.methods.fair_clustering.algorithms.descent import Descent
from optfair.methods.fair_clustering.algorithms.integer_masses import SettledRows, SettlingPass
from optfair.methods.fair_clustering.algorithms.passed_rows import PassedRows
from optfair.methods.fair_clustering.algorithms.pricing import Box, smallest_ratio
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.cost_rules import EXCESS
from optfair.methods.fair_clustering.labels import GAP, HARD_SECONDS, passed_labels
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.single_start import (
    RISE,
    Fit,
    certified,
    check_distinct,
    check_init,
    descent,
    exact_fit,
    first_descent,
    general,
    printed_fit,
    rows_of,
)
from optfair.methods.fair_clustering.whole_rules import (
    check_surveyed,
    warn_labelled,
)
from optfair.numbers import Floats
from optfair.rows.frames import STARTS, check_parameters, start_seeds
from optfair.rows.restarts import Restart, Step, run_restarts, unfinished
from optfair.rows.sources import MatrixRows, RowSource, as_fitted, row_source
from optfair.rows.survey import Survey, surveyed

# From this many rows on, starts run on the sample of a survey, and the best goes on with all rows.
LARGE = 200_000
# Starts of n_init="auto" for few rows, or where a time limit says when to stop; and what is few.
MANY_STARTS, FEW_ROWS = 50, 50
# Relative fall of the objective at which such starts end.
ROUGH = 1e-5


@dataclass(frozen=True, eq=False)
class OnwardRun:
    """The best start on a sample, gone on with all rows."""

    seed: int
    run: Descent[Any]
    survey: Survey
    passes: int
    begin: float


def fit_held(
    model: Any, problem: FairAssignment, init: Any, starts: Any, weights: Any = None
) -> tuple[list[Restart], Fit, int]:
    """Fit a `FairKMeans` to rows in memory; return records, the best, and passes over all rows.

    Many rows are the cached blocks of a source, with ``weights`` as they were given.
    """
    begin = time.perf_counter()
    given = not isinstance(init, str)
    seeds, further = _seeds(model, starts, given)
    if model.algorithm == "paper":
        fit = printed_fit(model, problem, init)
    else:
        fit = exact_fit(model, problem, init, starts, further)
    demands, data = problem.demands, problem.data
    few = problem.cost.rows < LARGE or demands.bars or problem.links or general(problem)
    if few or model.algorithm == "paper":
        records, best = run_restarts(
            fit,
            seeds,
            rank=lambda r: r.cost if model.algorithm == "paper" else r.objective,
            n_jobs=model.n_jobs,
            time_limit=model.time_limit,
            verbose=model.verbose,
        )
        return records, best, 1
    source = MatrixRows(problem.cost.points, data["groups"], weights)
    names = np.asarray(data["group_names"])
    additive = problem.cost.metric == "sqeuclidean" and not demands.by_group
    far = fit_passed(
        model,
        source,
        surveyed(source, n_jobs=_threads(model)),
        init,
        starts,
        begin,
        names=names,
        held=None if additive else problem,
    )
    record, best = certified(problem, far.run, far.seed, begin)
    return [record], best, far.passes


def fit_passed(
    model: Any,
    source: RowSource,
    survey: Survey,
    init: Any,
    starts: Any,
    begin: float,
    *,
    names: NDArray[Any] | None = None,
    held: FairAssignment | None = None,
) -> OnwardRun:
    """Run all starts on the sample of a survey, and the best on with all rows of its source.

    Parameters
    ----------
    names : array, optional
        Group labels that rules name; those of the survey by default.
    held : FairAssignment, optional
        All rows, where the way on needs them in memory.
    """
    few = survey.sample
    labels = survey.group_names if names is None else names
    problem = FairAssignment(
        few.X,
        groups=labels[few.groups],
        centers=few.X[: model.n_clusters],
        fairness=model.fairness,
        goal=model.goal,
        metric=model.metric,
        sample_weight=few.weights,
    )
    given = not isinstance(init, str)
    seeds, further = _seeds(model, starts, given)

    def fit(seed: int, limit: float | None, report: Step) -> tuple[Restart, Any]:
        begin = time.perf_counter()
        rough, own = max(model.tol, ROUGH), [seed, *further]
        run = first_descent(model, problem, init, own, starts, limit, report, tol=rough)
        if not np.isfinite(run.best.objective):  # all rows start from an assignment of the sample
            at, near = run.best.centers, rows_of(problem, run.best.answer.prices)
            run = descent(model, problem, near, at, None, report, tol=rough, max_iter=1)
            run = replace(run, status="time_limit")
        # of the sample: what it ranks by, and whether it was interrupted
        numbers = run.history[-1], np.nan, np.nan, run.gaps[-1], len(run.history), run.status
        return Restart(seed, *numbers, time.perf_counter() - begin), (seed, run)

    limit = None if model.time_limit is None else _left(begin + model.time_limit)
    records, (seed, run) = run_restarts(
        fit,
        seeds,
        rank=lambda r: r.objective,
        n_jobs=model.n_jobs,
        time_limit=limit,
        verbose=model.verbose,
    )
    assigned, program = run.best.answer, compile_rules(problem).program
    # by Ctrl-C in a start, or in one that had no assignment yet
    begun, early = None, limit is None or time.perf_counter() < begin + model.time_limit
    stopped = any(r.status == "interrupted" for r in records) or (
        early and len(records) < len(seeds)
    )
    rows: Any
    centers = run.best.centers
    left = np.inf if model.time_limit is None else _left(begin + model.time_limit)
    if held is None:
        stated = program, source, survey, problem.objective_unit, assigned.prices, _threads(model)
        if problem.demands.by_group:
            rows = ChargedPasses(*stated, demands=problem.demands, duals=assigned.duals)
        else:
            rows = PassedRows(*stated)
        if not stopped:
            begun = rows.begun(centers, model.tol, model.max_iter, left=0.5 * left)
        if begun is not None:
            centers, stopped = begun.centers, begun.interrupted
    else:
        rows = rows_of(held, assigned.prices, getattr(assigned, "duals", None))
    onward = descent(
        model,
        problem,
        rows,
        centers,
        None if model.time_limit is None else _left(begin + model.time_limit),
        None,
        tol=model.tol,
        max_iter=1 if stopped else None,
        mixed=True,
    )
    if stopped:
        onward = replace(onward, status="interrupted")
    elif held is None and onward.status != "time_limit":  # the last bound, from all rows
        proved = None
        try:
            proved = rows.assign(onward.best.centers, onward.best, np.inf, brief=False)
        except KeyboardInterrupt:
            onward = replace(onward, status="interrupted")
        # what budgets that are missed cost while centers move says nothing of the last assignment
        missed = getattr(onward.best.answer, "missed", 0.0) > 0.0
        before = onward.best.objective
        rise = RISE * max(problem.objective_unit, abs(before))
        if proved is not None and (missed or proved.objective <= before + rise):
            onward = replace(onward, best=proved, gaps=(*onward.gaps[:-1], proved.gap))
    if held is None and problem.demands.upper is not None:
        _check_budgets(problem, onward.best.answer)
    return OnwardRun(seed, onward, survey, 1 + getattr(rows, "passes", 0), begin)


def _check_budgets(problem: FairAssignment, assigned: Any) -> None:
    """Raise where the assignment found misses budgets: no rows are at hand to prove that all do."""
    upper = problem.demands.upper
    if upper is None or assigned.missed <= EXCESS * upper.min():
        return
    over = assigned.paid / problem.shares - upper
    names = np.asarray(problem.data["group_names"])[over > 0.0].tolist()
    raise SolverFailure(
        f"no assignment was found that keeps the budgets of {', '.join(map(str, names))}",
        f"at the last centers a group costs {assigned.missed:.3g} more than its budget",
        "allow more, or fit a sample in memory for a proof that none does",
    )


def _seeds(model: Any, starts: Any, given: bool) -> tuple[list[int], list[int]]:
    """Return seeds of the starts, and those of further ones that a search by swaps looks at."""
    seeds = start_seeds(model.random_state, starts, given=given)
    return (seeds[:1], seeds[1:]) if model.search == "swap" else (seeds, [])


def _threads(model: Any) -> int:
    return (os.cpu_count() or 1) if model.n_jobs == -1 else (model.n_jobs or 1)


def _left(deadline: float) -> float:
    return max(deadline - time.perf_counter(), 1e-3)


# What `FairKMeans` can do with rows that are never held: the methods, and the fit behind them.

# What a fit in memory leaves behind and a streamed one cannot have.
HELD = ("labels_", "soft_assignment_", "solution_", "_plan", "_index", "_weights")


class StreamedKMeans:
    """Methods of `FairKMeans` for rows that do not fit into memory."""

    def fit_stream(self, data: Any, *, groups: Any = None, sample_weight: Any = None) -> Any:
        """Cluster rows that are read chunk by chunk, in several passes, and never held.

        The fit is that of `fit`. Fewer than 200,000 rows are read once and held; of more, a pass
        keeps sums per cluster and group, and the rows that are near a boundary: all starts run on
        a sample, and the best goes on with all rows. Samples are the same where chunks have
        65,536 rows, as those of arrays.

        Sets the attributes of `fit` but those of the size of the rows (``labels_``,
        ``soft_assignment_``, ``solution_``); see `predict_stream` for labels, and with labels="hard"
        ``hard_labels_.labels``, a byte for each row. ``n_passes_`` is the number of passes over all
        rows, ``n_rows_`` their number. With `group_cost` or goal="group", whose assignments are
        mixtures, ``cost_`` and ``balance_`` are those of the part that was found at ``prices_``.

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
            metric "l1", whose medians do not add up over chunks; algorithm "paper"; rules on single
            rows: radii, forbidden arcs, links; labels="hard" where costs of groups have prices.
        SolverFailure
            A cluster that lost its workers for good; budgets that the last assignment misses.

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
        model: Any = self
        for chunk in as_fitted(row_source(read, groups).chunks(), model._names()):
            yield model.predict(chunk.X, groups=chunk.labels)


def _check_additive(model: Any) -> None:
    if model.metric != "sqeuclidean":
        raise DeclarationError(
            f"fit_stream does not take metric={model.metric!r}",
            "medians do not add up over chunks",
            'use metric="sqeuclidean", or fit in memory',
        )
    if model.algorithm != "exact":
        raise DeclarationError(
            f"fit_stream does not take algorithm={model.algorithm!r}",
            "the printed algorithm couples rows in memory",
            'use algorithm="exact"',
        )


def _check_rules(model: Any, problem: FairAssignment) -> None:
    own = ("cost", "row sum", "nonnegativity", "mass definition")
    terms = {**problem.objective, **problem.constraints}
    wide = [
        n
        for n, t in terms.items()
        if n not in own and not t.scope <= {"masses"} and getattr(t, "upper", None) is None
    ]
    if wide:
        raise DeclarationError(
            f"fit_stream takes rules on masses and on costs of groups, not {', '.join(wide)}",
            "rules on single rows need all rows at once",
            "use balance, cluster_share, group_cost ..., or fit in memory",
        )
    if model.labels == "hard" and problem.demands.by_group:
        raise DeclarationError(
            'fit_stream does not take labels="hard" where costs of groups have prices',
            "counts of rows do not say what these cost",
            'use labels="soft", or fit in memory',
        )


def fit_stream(model: Any, data: Any, groups: Any, sample_weight: Any) -> None:
    """Fit a `FairKMeans` to a source of rows; see `StreamedKMeans.fit_stream`."""
    begin = time.perf_counter()
    check_parameters(model)
    _check_additive(model)
    source = row_source(data, groups, sample_weight)
    survey = surveyed(source, n_jobs=_threads(model))
    few, K = survey.sample, model.n_clusters
    init = check_init(model.init, K, survey.columns)
    check_distinct(few.X[few.weights > 0], K)
    problem = FairAssignment(
        few.X,
        groups=survey.group_names[few.groups],
        centers=few.X[:K],
        fairness=model.fairness,
        goal=model.goal,
        sample_weight=few.weights,
    )
    _check_rules(model, problem)
    if model.labels == "hard":
        check_surveyed(problem, survey)
    starts = number_of_starts(model, survey.rows, init)
    if survey.complete and survey.rows < LARGE:
        model.restarts_, best, passes = fit_held(model, problem, init, starts)
        model._keep(best, survey.names, stacklevel=4)
        for name in HELD:
            vars(model).pop(name, None)
    else:
        onward = fit_passed(model, source, survey, init, starts, begin)
        _keep_passed(model, onward)
        passes = onward.passes
        if model.labels == "hard":
            passes += _keep_labels(model, source, survey, problem)
    model.n_rows_, model.n_passes_ = survey.rows, passes


def _keep_labels(model: Any, source: RowSource, survey: Survey, problem: FairAssignment) -> int:
    """Set labels that obey the rules, and what is said of them; return the passes they took."""
    few, passes, jobs = problem.with_centers(model.cluster_centers_), 0, _threads(model)

    def sweep(prices: Floats, box: Box) -> SettledRows:
        nonlocal passes
        passes += 1
        made = SettlingPass(survey.header, model.cluster_centers_, prices, box)
        rows: SettledRows = source.map_reduce(made, operator.add, jobs)
        return rows

    limit = HARD_SECONDS if model.time_limit is None else min(HARD_SECONDS, model.time_limit)
    hard = passed_labels(few, sweep, model.prices_, survey.rows).whole(few, GAP, limit)
    model.hard_labels_ = hard
    model.cost_, model.balance_ = hard.objective, smallest_ratio(hard.masses)
    warn_labelled(hard, model.masses_, stacklevel=4)
    return passes


def number_of_starts(model: Any, rows: int, init: Any) -> Any:
    """Return the starts that are asked for, by size and time."""
    if model.n_init != "auto" or model.algorithm != "exact":
        return model.n_init
    timed = model.time_limit is not None and isinstance(init, str)
    return MANY_STARTS if rows <= FEW_ROWS or timed else STARTS


def _keep_passed(model: Any, onward: OnwardRun) -> None:
    """Set the fitted attributes."""
    best, survey = onward.run, onward.survey
    assigned = best.best.answer
    for name in (*HELD, "feature_names_in_"):
        vars(model).pop(name, None)
    if survey.names is not None:
        model.feature_names_in_ = np.array(survey.names, dtype=object)
    model.n_features_in_ = survey.columns
    model.groups_, model.shares_ = survey.group_names, survey.shares
    model.cluster_centers_ = best.best.centers
    model.masses_, factors = assigned.masses, getattr(assigned, "factors", np.ones(1))
    model.prices_ = assigned.prices / factors[:, None]  # in units of the costs themselves
    model.objective_ = assigned.objective
    model.cost_, model.balance_ = assigned.hard_cost, smallest_ratio(assigned.hard_masses)
    model.hard_labels_ = None
    model.gap_ = best.gaps[-1]
    model.history_, model.gaps_ = np.array(best.history), np.array(best.gaps)
    model.n_iter_, model.status_ = len(best.history), best.status
    model.reseeded_ = best.reseeded
    numbers = (
        assigned.objective,
        model.cost_,
        model.balance_,
        model.gap_,
        model.n_iter_,
        best.status,
    )
    model.restarts_ = [Restart(onward.seed, *numbers, time.perf_counter() - onward.begin)]
    if model.status_ != "converged":
        text = unfinished(model.status_, model.n_iter_)
        warnings.warn(text, ConvergenceWarning, stacklevel=4)
    if not np.isfinite(assigned.objective):
        raise DataError("the objective is not finite", remedy="rescale the columns")
