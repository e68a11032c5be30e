"""The fit of a mixture to rows that are never held: first passes, starts, and passes to the end."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.algorithms.program import MassProgram
from optfair.methods.fair_mixtures.estimator.components import Components
from optfair.methods.fair_mixtures.estimator.fair_em import fair_em
from optfair.methods.fair_mixtures.estimator.first_components import check_start, first_components
from optfair.methods.fair_mixtures.estimator.fitted import (
    keep_components,
    keep_numbers,
    warn_unfinished,
)
from optfair.methods.fair_mixtures.estimator.intake import Intake
from optfair.methods.fair_mixtures.estimator.one_fit import MixtureFit, smallest_ratio, starts
from optfair.methods.fair_mixtures.estimator.sample import Sample
from optfair.methods.fair_mixtures.estimator.settings import check_settings, rows_of
from optfair.methods.fair_mixtures.estimator.setup import empty_of, program_of
from optfair.methods.fair_mixtures.streaming.mixture_passes import StreamPasses
from optfair.rows.coded_rows import code_columns, with_codes
from optfair.rows.columns import Columns
from optfair.rows.parameters import start_seeds
from optfair.rows.progress import Step, Told, step_progress
from optfair.rows.restarts import Restart, run_restarts
from optfair.rows.row_source import RowSource
from optfair.rows.sources import row_source
from optfair.rows.survey import Survey, surveyed

Floats = NDArray[np.float64]

__all__ = ["MixtureStream"]

# What a fit in memory leaves behind and a streamed one cannot have.
HELD = ("labels_", "_online", "feature_names_in_")


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
