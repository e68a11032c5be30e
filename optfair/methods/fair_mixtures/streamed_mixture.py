"""A fair mixture of rows that are never held: batch by batch, in passes, and the methods of `FairMixture`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.algorithms.integer_masses import SettledRows, settled
from optfair.methods.fair_clustering.algorithms.pricing import Box, MassOracle, MassPass, mass_pass
from optfair.methods.fair_mixtures.components import Components
from optfair.methods.fair_mixtures.expectation import (
    Expectation,
    Sample,
    Summary,
    expectation,
    over_blocks,
    summary,
)
from optfair.methods.fair_mixtures.fitted_mixture import (
    Intake,
    check_rows,
    check_whole_labels,
    keep_components,
    keep_fair_labels,
    keep_numbers,
    keep_passed_labels,
    priced_labels,
    taken_in,
    warn_unfinished,
)
from optfair.methods.fair_mixtures.mixture_fit import Batches, FitRows, fit_mixture
from optfair.methods.fair_mixtures.parameters import (
    check_settings,
    check_start,
    empty_of,
    first_components,
    penalty_of,
    program_of,
    rules_of,
    start_scale,
)
from optfair.numbers import Floats, Indices
from optfair.rows.frames import Columns, MixedRows, refuse_constant, start_seeds
from optfair.rows.sources import (
    Chunk,
    RowSource,
    Summed,
    as_fitted,
    code_columns,
    row_source,
    with_codes,
)
from optfair.rows.survey import Survey, surveyed

# The passes of a fair mixture over rows that are never held.

# Newton's steps move masses by at most this share of a group shortly before they end; the sums
# of an E-step double the work of a pass, another pass for them costs more still.
NEAR = 1e-3


@dataclass(frozen=True, eq=False)
class _Map:
    """The map of a pass, with a count of its rows; an object, so that it travels to workers."""

    survey: Survey
    columns: Columns
    sums: Callable[[MixedRows, Indices, Floats], Any]

    def __call__(self, chunk: Chunk) -> tuple[int, Any]:
        own = self.survey.read(chunk)
        rows = self.columns.encoded(own.X)
        return rows.count, self.sums(rows, own.groups, own.weights)


@dataclass(frozen=True, eq=False)
class _Both(Summed):
    """What one reading of rows gives to the projection and, where wanted, to the M-step."""

    passed: MassPass
    step: Expectation | None


def _both(
    components: Components,
    prices: Floats,
    curvature: bool,
    temperature: float,
    statistics: bool,
    rows: MixedRows,
    index: Indices,
    weights: Floats,
) -> _Both:
    """Return value, masses and curvature of rows, and the sums of their E-step where wanted."""

    def sums(part: slice) -> _Both:
        few, g, w = rows[part], index[part], weights[part]
        joint = components.log_prob(few)
        softer = joint if temperature == 1.0 else joint / temperature
        passed = mass_pass(softer, g, w, prices, curvature=curvature)
        if not statistics:
            return _Both(passed, None)
        return _Both(passed, expectation(components, few, g, w, prices, joint=joint))

    return over_blocks(rows.count, sums)


@dataclass(eq=False)
class _Look:
    """Passes of the projection at some components; those near its end are the M-step's as well."""

    passes: StreamPasses
    components: Components
    temperature: float = 1.0
    before: Floats | None = None
    near: bool = False

    def __call__(self, prices: Floats, curvature: bool = True) -> MassPass:
        """Return value, masses and curvature at given prices."""
        near = self.near and self.temperature == 1.0
        passed = self.passes.both(self.components, prices, curvature, self.temperature, near)
        if self.before is not None:
            moved = np.abs(passed.masses - self.before) / self.passes.survey.shares[:, None]
            self.near = bool(moved.max() < NEAR)
        self.before = passed.masses
        return passed

    def tempered(self, temperature: float) -> _Look:
        """Return the same with log densities divided by a temperature."""
        return _Look(self.passes, self.components, temperature)


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
        return _Look(self, components)

    def both(
        self,
        components: Components,
        prices: Floats,
        curvature: bool,
        temperature: float,
        near: bool,
    ) -> MassPass:
        """Make a pass for the projection, and where its prices are near for the M-step as well."""
        both: _Both = self._pass(partial(_both, components, prices, curvature, temperature, near))
        if both.step is not None:
            self._known = (components, prices, both.step)
        return both.passed

    def expectation(self, components: Components, prices: Floats) -> Expectation:
        """Return the sums of the E-step."""
        if self._known is not None and self._known[0] is components:
            _, known, step = self._known
            if known is prices or np.array_equal(known, prices):
                return step
        total: Expectation = self._pass(partial(expectation, components, prices=prices))
        return total

    def summary(self, components: Components, prices: Floats) -> Summary:
        """Return what describes the mixture on all rows."""
        total: Summary = self._pass(partial(summary, components, prices=prices))
        return total

    def settled(self, components: Components, prices: Floats, box: Box) -> SettledRows:
        """Return rows settled at prices in a box; see `settled`."""
        rows: SettledRows = self._pass(partial(_settled, components, prices, box))
        return rows

    def _pass(self, sums: Callable[[MixedRows, Indices, Floats], Any]) -> Any:
        """Make a pass over all rows."""
        self.count += 1
        function = _Map(self._header, self.columns, sums)
        rows, total = self.source.map_reduce(function, _pairs, self.n_jobs)
        if rows != self.survey.rows:
            raise DataError(
                "the source does not give the same rows in every pass",
                f"{self.survey.rows} rows in the first pass, {rows} in a later one",
                "give a function that returns a new iterator over all rows each time",
            )
        return total


def _settled(
    components: Components,
    prices: Floats,
    box: Box,
    rows: MixedRows,
    index: Indices,
    weights: Floats,
) -> SettledRows:
    """Return rows settled at prices of their labels, whose costs are what they are less likely."""

    def settle(part: slice) -> SettledRows:
        few = rows[part]
        costs = SeparableCost("precomputed", -components.log_prob(few))
        stated = costs.columns(slice(None)), index[part], weights[part], prices, box
        return settled(*stated, costs.rounding, (few.numeric, components.means))

    return over_blocks(rows.count, settle)


def _pairs(a: tuple[int, Any], b: tuple[int, Any]) -> tuple[int, Any]:
    return a[0] + b[0], a[1] + b[1]


# What `FairMixture` can do with rows that are never held.

# What a fit in memory leaves behind and a streamed one cannot have.
HELD = ("labels_", "hard_labels_", "_online")


def fit_stream(model: Any, data: Any, groups: Any, sample_weight: Any) -> None:
    """Fit a `FairMixture` to a source of rows; see `StreamedMixture.fit_stream`."""
    begin = time.perf_counter()
    check_settings(model)
    jobs = (os.cpu_count() or 1) if model.n_jobs == -1 else (model.n_jobs or 1)
    grouped = model.fairness is not None
    source = row_source(data, groups, sample_weight, text=True, grouped=grouped)
    source, columns = with_codes(source, model.categorical, jobs)
    survey = surveyed(source, n_jobs=jobs, grouped=grouped)
    check_rows(model, survey.rows)
    before = 1 + (columns is not None)
    if columns is None:
        columns = Columns(survey.names, survey.columns, (), ())
    _check_constant(columns, survey)
    coded = code_columns(columns)
    few, names = survey.sample, survey.group_names
    sample = Sample(coded.encoded(few.X), few.groups, few.weights, survey.shares)
    passes = StreamPasses(source, survey, coded, jobs)
    first = Intake(sample, columns, names, names.size > 1)
    if model.label_rule == "hard" and first.grouped:
        check_whole_labels(first, rules_of(model), model.n_components, survey)
    rows = FitRows(first, lambda: passes, survey.rows, threaded=True)
    numbers = fit_mixture(model, rows, model.init, begin=begin)
    for name in HELD:
        vars(model).pop(name, None)
    if model.label_rule != "argmax" and first.grouped:
        if survey.complete:
            keep_fair_labels(model, first, rules_of(model), numbers)
        else:
            sweep = partial(passes.settled, model.components_)
            keep_passed_labels(model, first, rules_of(model), numbers, survey.rows, sweep)
    model.n_rows_, model.n_passes_ = survey.rows, before + passes.count
    warn_unfinished(model, stacklevel=4)


def _check_constant(columns: Columns, survey: Survey) -> None:
    """Raise on numeric columns that do not vary in any row."""
    if survey.rows < 2:
        return
    names = [str(j) for j in range(columns.width)] if columns.names is None else columns.names
    same = survey.lowest == survey.highest
    refuse_constant([names[j] for j in columns.numeric if same[j]])


class StreamedMixture:
    """Methods of `FairMixture` for rows that do not fit into memory."""

    def fit_stream(self, data: Any, *, groups: Any = None, sample_weight: Any = None) -> Any:
        """Estimate the mixture from rows that are read chunk by chunk and never held.

        The fit is the one of `fit`: its projections are made by passes that return value,
        masses and curvature, and the last of them the sums of the M-step. Results are equal to
        rounding; of more than 200,000 rows where chunks are those of arrays, as the sample that
        starts run on is drawn by chunks. A penalty, batches and ``learn_rows`` learn from the
        sample alone; all rows are then described in a pass, and a constraint holds on all of them.
        For labels that obey the rules themselves (``label_rule``) rows near a boundary are held.

        Sets the attributes of `fit` but ``labels_``; see `predict_stream` for labels, and
        ``hard_labels_.labels``, a byte for each row.
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
        fit_stream(self, data, groups, sample_weight)
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
        source = row_source(read, groups, text=text, grouped=needed)
        for chunk in as_fitted(source.chunks(), model.columns_.names):
            yield model.predict(chunk.X, groups=chunk.labels)


class OnlineMixture:
    """The method of `FairMixture` that learns from one batch at a time."""

    def partial_fit(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> Any:
        """Learn from one batch; rules and Δ are measured on the first ``delta_rows`` rows seen.

        Parameters are those of `fit`. The first batch fixes columns, categories, groups, their
        shares and what variances and probabilities are at least, so it must have every group;
        rules and penalties may change between batches. After `fit`, the next batch is a first one.
        What describes the rows (labels, Δ, cost) is that of the batch, where a constraint holds
        as far as the measured rows stand for it.

        Returns
        -------
        FairMixture
            Itself.

        Raises
        ------
        DeclarationError
            label_rule "fair", whose assignment couples all rows; components of another number or
            shape than those of the first batch.
        DataError
            As `fit`; a group or columns that the first batch did not have.
        """
        model: Any = self
        check_settings(model)
        if model.label_rule != "argmax":
            raise DeclarationError(
                f"partial_fit does not take label_rule={model.label_rule!r}",
                "labels that obey the rules themselves need all rows at once",
                'use label_rule="argmax", or fit',
            )
        if model.keep != "last":
            raise DeclarationError(
                f"partial_fit does not take keep={model.keep!r}",
                "the labels of an iterate are those of all rows, and a batch has a few",
                'use keep="last", or fit',
            )
        online = getattr(model, "_online", None)
        if online is not None:
            _check_same(model, online[1].components)
        data = taken_in(model, X, groups, sample_weight, fitted=online)
        kept, state = _first(model, data) if online is None else online
        kept = kept.with_rows(data, model.delta_rows)
        program = program_of(model, kept)
        if program is None:  # prices are those of rules
            state = replace(state, prices=np.zeros_like(state.prices))
        penalty = penalty_of(model, data.sample.shares.size)
        state = state.step(data.sample, kept.sample, program, penalty)
        _keep(model, state, kept, data)
        model._online = (kept, state)
        return model


def _check_same(model: Any, begun: Components) -> None:
    """Raise where a batch is to go on with components of another number or shape."""
    gaussians = begun.gaussians
    shape = model.covariance_type if gaussians is None else gaussians.shape
    if (model.n_components, model.covariance_type) != (begun.clusters, shape):
        raise DeclarationError(
            f"partial_fit cannot go on with n_components={model.n_components},"
            f" covariance_type={model.covariance_type!r}",
            f"the batches before made {begun.clusters} components, {shape!r}",
            "set these as they were, or begin again: sklearn.base.clone(model)",
        )


def _first(model: Any, data: Intake) -> tuple[Intake, Batches]:
    s = data.sample
    init = check_start(model.init, model.n_components, s.rows.numeric.shape[1])
    seed = start_seeds(model.random_state, 1, given=True)[0]
    empty = empty_of(model, s, data.columns)
    first = first_components(
        s, empty, init, scale=start_scale(model), seed=seed, soft=model.start == "soft"
    )
    zero = np.zeros((s.shares.size, model.n_components))
    return data, Batches(first, zero)


def _keep(model: Any, state: Batches, kept: Intake, data: Intake) -> None:
    s = data.sample
    keep_components(model, state.components, kept)
    model.prices_ = model.label_prices_ = state.prices
    model.reseeded_, model.n_iter_ = state.reseeded, state.steps
    model.kept_iter_ = state.steps
    model.status_, model.converged_ = "partial", False
    model.objective_, model.gap_ = state.objective, float("nan")
    model.labels_ = priced_labels(state.components, s, state.prices)
    numbers = summary(state.components, s.rows, s.index, s.weights, state.prices)
    keep_numbers(model, numbers, s.shares, numbers.fair_labels, numbers.cost, numbers.apart)
