"""A fair mixture of rows that are never held: passes, starts, and the methods of `FairMixture`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.algorithms.log_rows import MassOracle, MassPass, mass_pass
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_mixtures.components import Components
from optfair.methods.fair_mixtures.expectation import (
    BLOCK,
    Expectation,
    Sample,
    Summary,
    expectation,
    summary,
)
from optfair.methods.fair_mixtures.fair_em import fair_em
from optfair.methods.fair_mixtures.fitted_mixture import (
    Intake,
    keep_components,
    keep_numbers,
    warn_unfinished,
)
from optfair.methods.fair_mixtures.mixture_fit import MixtureFit, smallest_ratio, starts
from optfair.methods.fair_mixtures.parameters import (
    check_settings,
    check_start,
    empty_of,
    first_components,
    program_of,
    rows_of,
)
from optfair.numbers import Floats
from optfair.rows.frames import Columns, start_seeds
from optfair.rows.restarts import Restart, Step, Told, run_restarts, step_progress
from optfair.rows.row_source import Chunk, RowSource
from optfair.rows.sources import code_columns, row_source, with_codes
from optfair.rows.survey import Survey, surveyed

# The passes of a fair mixture over rows that are never held.

# Newton's steps move masses by at most this share of a group shortly before they end; the sums
# of an E-step double the work of a pass, another pass for them costs more still.
NEAR = 1e-3


@dataclass(frozen=True, eq=False)
class _Mapped:
    """The map of a pass; an object of numbers, so that it travels to workers."""

    survey: Survey
    columns: Columns
    components: Components
    prices: Floats


@dataclass(frozen=True, eq=False)
class _Oracle(_Mapped):
    """Value, masses and curvature of a chunk, and the sums of its E-step where wanted."""

    curvature: bool
    statistics: bool

    def __call__(self, chunk: Chunk) -> _Both:
        own = self.survey.read(chunk)
        rows = self.columns.encoded(own.X)
        total: _Both | None = None
        for start in range(0, rows.count, BLOCK):
            part = slice(start, start + BLOCK)
            few, g, w = rows[part], own.groups[part], own.weights[part]
            joint = self.components.log_prob(few)
            passed = mass_pass(joint, g, w, self.prices, curvature=self.curvature)
            step = None
            if self.statistics:
                step = expectation(self.components, few, g, w, self.prices, joint=joint)
            found = _Both(few.count, passed, step)
            total = found if total is None else total + found
        if total is None:
            raise DataError(f"chunk {chunk.index} is empty", remedy="leave empty chunks out")
        return total


@dataclass(frozen=True, eq=False)
class _Both:
    """What one reading of rows gives to the projection and to the M-step."""

    rows: int
    passed: MassPass
    step: Expectation | None

    def __add__(self, other: _Both) -> _Both:
        steps = self.step, other.step
        both = None if steps[0] is None or steps[1] is None else steps[0] + steps[1]
        return _Both(self.rows + other.rows, self.passed + other.passed, both)


@dataclass(frozen=True, eq=False)
class _Step(_Mapped):
    """The sums of the E-step of a chunk."""

    def __call__(self, chunk: Chunk) -> tuple[int, Expectation]:
        own = self.survey.read(chunk)
        rows = self.columns.encoded(own.X)
        found = expectation(self.components, rows, own.groups, own.weights, self.prices)
        return rows.count, found


@dataclass(frozen=True, eq=False)
class _Summed(_Mapped):
    """The summary of a chunk."""

    def __call__(self, chunk: Chunk) -> Summary:
        own = self.survey.read(chunk)
        rows = self.columns.encoded(own.X)
        return summary(self.components, rows, own.groups, own.weights, self.prices)


class StreamPasses:
    """`Passes` over a source of rows.

    Passes of the projection near its end also gather the sums of the E-step, so that the last
    one need not be made again for the M-step.

    Parameters
    ----------
    source : RowSource
    survey : Survey
    columns : Columns
        Which columns are categories.
    n_jobs : int
        Threads.

    Attributes
    ----------
    count : int
        Passes made.
    """

    def __init__(
        self, source: RowSource, survey: Survey, columns: Columns, n_jobs: int = 1
    ) -> None:
        self.source, self.survey, self.columns, self.n_jobs = source, survey, columns, n_jobs
        self.count = 0
        self._header = survey.header
        self._known: tuple[Components, Floats, Expectation] | None = None

    def oracle(self, components: Components) -> MassOracle:
        """Return the passes that the projection makes at these components."""
        before: Floats | None = None
        near = False

        def look(prices: Floats, curvature: bool = True) -> MassPass:
            nonlocal before, near
            function = _Oracle(self._header, self.columns, components, prices, curvature, near)
            self.count += 1
            both: _Both = self.source.map_reduce(function, _plus, self.n_jobs)
            self._same_rows(both.rows)
            if both.step is not None:
                self._known = (components, prices, both.step)
            masses = both.passed.masses
            if before is not None:
                moved = np.abs(masses - before) / self.survey.shares[:, None]
                near = bool(moved.max() < NEAR)
            before = masses
            return both.passed

        return look

    def expectation(self, components: Components, prices: Floats) -> Expectation:
        """Return the sums of the E-step."""
        if self._known is not None and self._known[0] is components:
            _, known, step = self._known
            if known is prices or np.array_equal(known, prices):
                return step
        function = _Step(self._header, self.columns, components, prices)
        self.count += 1
        rows, step = self.source.map_reduce(function, _pairs, self.n_jobs)
        self._same_rows(rows)
        return step

    def summary(self, components: Components, prices: Floats) -> Summary:
        """Return what describes the mixture on all rows."""
        function = _Summed(self._header, self.columns, components, prices)
        self.count += 1
        found: Summary = self.source.map_reduce(function, _plus, self.n_jobs)
        return found

    def _same_rows(self, rows: int) -> None:
        if rows != self.survey.rows:
            raise DataError(
                "the source does not give the same rows in every pass",
                f"{self.survey.rows} rows in the first pass, {rows} in a later one",
                "give a function that returns a new iterator over all rows each time",
            )


def _plus(a: Any, b: Any) -> Any:
    return a + b


def _pairs(a: tuple[int, Expectation], b: tuple[int, Expectation]) -> tuple[int, Expectation]:
    return a[0] + b[0], a[1] + b[1]


# The fit of a mixture to rows that are never held: first passes, starts, and passes to the end.

# What a fit in memory leaves behind and a streamed one cannot have.
HELD = ("labels_", "hard_labels_", "_online", "feature_names_in_")


@dataclass(frozen=True, eq=False)
class _Known:
    """What is known of the rows before the first E-step."""

    source: RowSource
    survey: Survey
    coded: Columns
    intake: Intake
    program: MassProgram | None
    passes: int


class MixtureStream:
    """One fit of a `FairMixture` to a source of rows.

    Parameters
    ----------
    model : FairMixture
        Its parameters; gets the fitted attributes.
    data, groups, sample_weight
        As of `FairMixture.fit_stream`.
    """

    def __init__(self, model: Any, data: Any, groups: Any, sample_weight: Any) -> None:
        self.begin = time.perf_counter()
        check_settings(model)
        if model.label_rule != "argmax":
            raise DeclarationError(
                f"fit_stream does not take label_rule={model.label_rule!r}",
                "labels that obey the rules themselves need all rows at once",
                'use label_rule="argmax", or fit in memory',
            )
        self.model = model
        self.jobs = (os.cpu_count() or 1) if model.n_jobs == -1 else (model.n_jobs or 1)
        self.grouped = model.fairness is not None
        self.source = row_source(data, groups, sample_weight, text=True, grouped=self.grouped)

    def run(self) -> None:
        """Fit, and set the attributes."""
        model, known = self.model, self._known()
        deadline = np.inf if model.time_limit is None else self.begin + model.time_limit
        passes = StreamPasses(known.source, known.survey, known.coded, self.jobs)
        once = known.survey.complete and not self._learned
        records, best = self._starts(known, passes if once else None)
        if self._learned and known.program is not None:  # the rules hold on all rows
            last = self._went_on(known, passes, best.components, best.prices, deadline, most=1)
            history = (*best.history, last.objective)
            best = replace(best, prices=last.prices, objective=last.objective, gap=last.gap)
            best = replace(best, history=history)
        elif not self._learned and not once:
            # after Ctrl-C all rows get one E-step
            stopped = any(r.status == "interrupted" for r in records)
            most = 1 if stopped else None
            best = self._went_on(known, passes, best.components, best.prices, deadline, most=most)
            if stopped and best.status == "max_iter":
                best = replace(best, status="interrupted")
        found = passes.summary(best.components, best.prices)
        self._keep(known, best, records, known.passes + passes.count)
        keep_numbers(model, found, known.survey.shares, found.fair_labels, found.cost)
        warn_unfinished(model, stacklevel=4)

    @property
    def _learned(self) -> bool:
        """Whether the components come from the sample alone."""
        model = self.model
        few = model.batch_size is not None or model.learn_rows is not None
        return few or model.fairness == "penalty"

    def _known(self) -> _Known:
        """Make the first passes: categories, then groups, columns and the sample."""
        model = self.model
        source, columns = with_codes(self.source, model.categorical, self.jobs)
        survey = surveyed(source, n_jobs=self.jobs, grouped=self.grouped)
        if survey.rows < model.n_components:
            raise DataError(
                f"n_components={model.n_components} for {survey.rows} rows",
                "every component starts at a row of its own",
                f"give n_components <= {survey.rows}",
            )
        passes = 1 + (columns is not None)
        if columns is None:
            columns = Columns(survey.names, survey.columns, (), ())
        _check_constant(columns, survey)
        coded = code_columns(columns)
        few = survey.sample
        sample = Sample(coded.encoded(few.X), few.groups, few.weights, survey.shares)
        intake = Intake(sample, columns, survey.group_names, survey.group_names.size > 1)
        return _Known(source, survey, coded, intake, program_of(model, intake), passes)

    def _starts(
        self, known: _Known, passes: StreamPasses | None
    ) -> tuple[list[Restart], MixtureFit]:
        """Run all starts: on the sample, or in passes over the rows when it has them all."""
        model, sample = self.model, known.intake.sample
        init = check_start(model.init, model.n_components, sample.rows.numeric.shape[1])
        seeds = start_seeds(
            model.random_state,
            1 if model.n_init == "auto" else model.n_init,
            given=not isinstance(init, str),
        )
        learned = sample
        count = rows_of(model.learn_rows, known.survey.rows, "learn_rows")
        if count is not None:
            learned = sample.drawn(np.random.default_rng(seeds[0]), count)
        empty = empty_of(model, learned, known.intake.columns)
        left = None
        if model.time_limit is not None:
            left = max(model.time_limit - (time.perf_counter() - self.begin), 1e-3)
        run = starts(model, learned, empty, init, known.program)
        if passes is not None:
            run = partial(self._from_passes, known, passes, empty, init)
        records, best = run_restarts(
            run,
            seeds,
            rank=lambda r: -r.objective,
            n_jobs=model.n_jobs if passes is None else 1,  # passes have threads of their own
            time_limit=left,
            verbose=model.verbose,
        )
        return records, best

    def _from_passes(
        self,
        known: _Known,
        passes: StreamPasses,
        empty: Components,
        init: Any,
        seed: int,
        limit: float | None,
        report: Step,
    ) -> tuple[Restart, MixtureFit]:
        """Run one start in passes, from components that all rows give."""
        begin = time.perf_counter()
        first = first_components(known.intake.sample, empty, init, scale=1.0, seed=seed)
        deadline = np.inf if limit is None else begin + limit
        found = self._went_on(known, passes, first, None, deadline, report=report)
        s = passes.summary(found.components, found.prices)
        record = Restart(
            seed,
            found.objective,
            s.cost,
            smallest_ratio(s.fair_labels),
            found.gap,
            len(found.history),
            found.status,
            time.perf_counter() - begin,
        )
        return record, found

    def _went_on(
        self,
        known: _Known,
        passes: StreamPasses,
        components: Components,
        prices: Floats | None,
        deadline: float,
        *,
        most: int | None = None,
        report: Step | None = None,
    ) -> MixtureFit:
        """Run fair EM in passes."""
        model = self.model
        # while starts run, a bar over them has the terminal
        with step_progress(
            0 if model.verbose == 1 and report is not None else model.verbose
        ) as log:

            def told(iteration: int, objective: float) -> None:
                now = Told(objective)
                log(iteration, now)
                if report is not None:
                    report(iteration, now)

            run = fair_em(
                passes,
                components,
                known.program,
                groups=known.survey.shares.size,
                prices=prices,
                tol=model.tol,
                max_iter=most or model.max_iter,
                deadline=deadline,
                report=told,
            )
        return MixtureFit(
            run.components,
            run.prices,
            run.objective,
            run.gap,
            run.history,
            run.status,
            run.reseeded,
        )

    def _keep(self, known: _Known, best: MixtureFit, records: list[Restart], passes: int) -> None:
        """Set the fitted attributes that are no sums over rows."""
        model = self.model
        for name in HELD:
            if hasattr(model, name):
                delattr(model, name)
        keep_components(model, best.components, known.intake)
        model.prices_ = model.label_prices_ = best.prices
        model.gap_, model.objective_ = best.gap, best.objective
        model.history_ = np.array(best.history)
        model.n_iter_, model.status_ = len(best.history), best.status
        model.converged_ = best.status == "converged"
        model.reseeded_, model.restarts_ = best.reseeded, records
        model.n_rows_, model.n_passes_ = known.survey.rows, passes


def _check_constant(columns: Columns, survey: Survey) -> None:
    """Raise on numeric columns that do not vary in any row."""
    if survey.rows < 2:
        return
    names = [str(j) for j in range(columns.width)] if columns.names is None else columns.names
    same = survey.lowest == survey.highest
    constant = [names[j] for j in columns.numeric if same[j]]
    if constant:
        raise DataError(
            f"X has constant columns: {', '.join(constant)}",
            "they tell no cluster from another, and their variance is zero",
            "leave them out",
        )


# What `FairMixture` can do with rows that are never held.


class StreamedMixture:
    """Methods of `FairMixture` for rows that do not fit into memory."""

    def fit_stream(self, data: Any, *, groups: Any = None, sample_weight: Any = None) -> Any:
        """Estimate the mixture from rows that are read chunk by chunk and never held.

        Each E-step is the one of `fit`: its projection is made by passes that return value,
        masses and curvature, and the last of them the sums of the M-step. Up to 200,000 rows,
        starts and results are those of `fit` to rounding. Of more rows, all starts run on a
        sample of 50,000 and the best goes on with all rows. A penalty, batches and
        ``learn_rows`` learn from the sample alone; all rows are then described in a pass, and
        a constraint holds on all of them.

        Sets the attributes of `fit` but ``labels_``; see `predict_stream` for labels.
        ``n_passes_`` is the number of passes over all rows, ``n_rows_`` their number.

        Parameters
        ----------
        data : callable, path, array, memory map, Dask array or frame, or RowSource
            A function that returns a new iterator of chunks ``(X, groups)`` or
            ``(X, groups, weights)`` for each pass; a parquet file or folder; anything else that
            can be read in slices. Dask data stay with the workers. Categories are collected in
            a pass of their own.
        groups : array-like (n,), Dask array or series, or str
            Group label of each row, or the name of a column; not where chunks carry theirs. A
            plain mixture needs none, and chunks may then be rows alone; Dask data need them.
        sample_weight : array-like (n,), Dask array or series, or str, optional
            Weights.

        Returns
        -------
        FairMixture
            Itself.

        Raises
        ------
        DataError
            An iterator that can be read once only, chunks with different columns, rows that
            change between passes, and what `fit` refuses.
        DeclarationError
            label_rule "fair", whose assignment couples all rows.
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
        >>> model = of.FairMixture(3, random_state=0).fit_stream(read)
        >>> whole = of.FairMixture(3, random_state=0).fit(X, groups=groups)
        >>> bool(np.allclose(model.means_, whole.means_, atol=1e-7))
        True
        """
        MixtureStream(self, data, groups, sample_weight).run()
        return self

    def predict_stream(self, data: Any, *, groups: Any = None) -> Iterator[NDArray[np.intp]]:
        """Yield the labels of each chunk, as `predict` gives them.

        Parameters
        ----------
        data, groups
            As of `fit_stream`, or an iterator of chunks, as there is one pass. Where `predict`
            needs no groups, chunks may be rows alone.
        """
        model: Any = self
        check_is_fitted(model, "components_")
        needed = bool(model.label_prices_.any())
        read = (lambda: data) if hasattr(data, "__next__") else data
        text = bool(model.columns_.categorical)
        for chunk in row_source(read, groups, text=text, grouped=needed).chunks():
            yield model.predict(chunk.X, groups=chunk.labels)
