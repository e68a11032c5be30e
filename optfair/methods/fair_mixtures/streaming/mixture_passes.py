"""The passes of a fair mixture over rows that are never held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.methods.fair_mixtures.algorithms.log_rows import MassOracle, MassPass, mass_pass
from optfair.methods.fair_mixtures.estimator.components import Components
from optfair.methods.fair_mixtures.estimator.expectation import (
    Expectation,
    Summary,
    expectation,
    summary,
)
from optfair.methods.fair_mixtures.estimator.sample import BLOCK
from optfair.rows.columns import Columns
from optfair.rows.row_source import Chunk, RowSource
from optfair.rows.survey import Survey

Floats = NDArray[np.float64]

__all__ = ["StreamPasses"]

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
