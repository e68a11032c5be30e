r"""One start of a fair mixture: constraint, penalty or plain, on all rows or in batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optfair.methods.fair_clustering.algorithms.entropic_projection import project
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_mixtures.components import Components, Statistics
from optfair.methods.fair_mixtures.expectation import (
    MemoryPasses,
    Sample,
    expectation,
    slopes,
    summary,
)
from optfair.methods.fair_mixtures.fair_em import EXACT, dead_components, fair_em
from optfair.methods.fair_mixtures.parameters import first_components, rows_of
from optfair.methods.fair_mixtures.penalty import (
    Gaps,
    State,
    penalised_em,
    penalised_gradient,
    penalty_step,
)
from optfair.numbers import Floats
from optfair.rows.restarts import Restart, Step, Told, step_progress

# Learning from batches: running statistics, and a fixed sub-sample that Δ is measured on.

# Weight of step t in the running statistics: (t + OFFSET) ** -POWER, Robbins and Monro.
OFFSET, POWER = 2.0, 0.6
# Batches whose average objective is compared with that of as many before.
WINDOW = 10


@dataclass(frozen=True, eq=False)
class Batches:
    r"""State of learning from batches: each `step` uses one batch and returns the next state.

    .. math:: S_{t+1} = (1 - \rho_t) S_t + \rho_t S(\text{batch}), \qquad
        \rho_t = (t + 2)^{-0.6}

    With a constraint, batch rows get responsibilities at prices Λ that make the sub-sample
    obey the rules. With a penalty, components take a step on
    :math:`Q(\Theta | S_{t+1}) - \lambda\Delta(\Theta; \text{sub-sample})`.

    Attributes
    ----------
    components : Components
    prices : array (G, K)
    statistics : Statistics or None
        Running; None before the first batch.
    steps : int
        Batches seen.
    objective : float
        Mean over the batch of the fair log density, or of the log density less λΔ.
    reseeded : tuple of (int, int)
    """

    components: Components
    prices: Floats
    statistics: Statistics | None = None
    steps: int = 0
    objective: float = -np.inf
    reseeded: tuple[tuple[int, int], ...] = ()

    def step(
        self, batch: Sample, measured: Sample, program: MassProgram | None, lam: float
    ) -> Batches:
        """Return the state after one batch.

        Parameters
        ----------
        batch : Sample
            Rows to learn from.
        measured : Sample
            Rows on which rules or Δ are measured.
        program : MassProgram or None
            Rules.
        lam : float
            Penalty; without a program only.
        """
        c, prices = self.components, self.prices
        if program is not None:
            found = project(
                measured.log_joint(c),
                measured.index,
                measured.weights,
                program,
                prices=prices,
                tolerance=EXACT,
            )
            prices = found.prices
        e = expectation(c, batch.rows, batch.index, batch.weights, prices)
        rate = 1.0 if self.statistics is None else (self.steps + OFFSET) ** -POWER
        s = e.statistics
        if self.statistics is not None:
            s = (1.0 - rate) * self.statistics + rate * s
        objective = e.objective(prices)
        if lam > 0.0:
            moved, delta = _penalised(c, s, measured, lam)
            objective -= lam * delta
        else:
            moved = c.estimated(s)
        dead = dead_components(s)
        reseeded = self.reseeded
        if dead.size and self.steps:
            moved = moved.restarted(dead, e.farthest.rows)
            prices = prices.copy()
            prices[:, dead] = 0.0
            reseeded += tuple((self.steps + 1, int(k)) for k in dead)
        return replace(
            self,
            components=moved,
            prices=prices,
            statistics=s,
            steps=self.steps + 1,
            objective=objective,
            reseeded=reseeded,
        )


def _penalised(
    c: Components, s: Statistics, measured: Sample, lam: float
) -> tuple[Components, float]:
    """Return (components after a step that does not lower Q - λΔ, Δ before)."""
    state = State.of(c, measured)
    gaps = Gaps(measured.shares.size)
    before = gaps.value(state.fractions)
    slope = slopes(c, measured, state.psi)
    here = c.expected(s) - lam * before
    stiffness = 1.0
    for _ in range(20):
        step, gain = penalty_step(
            c.gradient(s), stiffness * c.information(), state.fractions, slope, lam, gaps
        )
        if not gain > 1e-15 * max(1.0, abs(here)):
            break
        new = c.moved(step)
        after = gaps.value(State.of(new, measured).fractions)
        if new.expected(s) - lam * after >= here:
            return new, before
        stiffness *= 4.0
    return c, before


@dataclass(frozen=True, eq=False)
class BatchRun:
    """What learning from batches found; see `Batches`."""

    components: Components
    prices: Floats
    history: tuple[float, ...]
    status: str
    reseeded: tuple[tuple[int, int], ...]


def batch_fit(
    components: Components,
    sample: Sample,
    *,
    program: MassProgram | None,
    lam: float,
    batch: int,
    delta_rows: int | None,
    seed: int,
    tol: float,
    max_iter: int,
    deadline: float = np.inf,
    report: Callable[[int, float], None] | None = None,
) -> BatchRun:
    """Learn from random batches until their average objective stops rising.

    Parameters
    ----------
    components : Components
        Start.
    sample : Sample
        All rows.
    program : MassProgram or None
        Rules.
    lam : float
        Penalty.
    batch : int
        Rows per batch.
    delta_rows : int or None
        Rows of the sub-sample; as many as in a batch by default.
    seed : int
        Seeds sub-sample and batches.
    tol, max_iter, deadline, report
        As in `fair_em`; an iteration is a batch.
    """
    rng = np.random.default_rng(seed)
    measured = sample.drawn(rng, delta_rows or batch)
    state = Batches(components, np.zeros((sample.shares.size, components.clusters)))
    history: list[float] = []
    status = "max_iter"
    order = np.zeros(0, dtype=np.intp)
    try:
        for _ in range(max_iter):
            if order.size < batch:
                order = rng.permutation(sample.count)
            taken, order = order[:batch], order[batch:]
            state = state.step(sample.some(np.sort(taken)), measured, program, lam)
            history.append(state.objective)
            if report is not None:
                report(state.steps, state.objective)
            if len(history) >= 2 * WINDOW:
                late, early = np.mean(history[-WINDOW:]), np.mean(history[-2 * WINDOW : -WINDOW])
                if late - early <= tol * max(1.0, abs(float(late))):
                    status = "converged"
                    break
            if time.perf_counter() > deadline:
                status = "time_limit"
                break
    except KeyboardInterrupt:
        if not history:
            raise
        status = "interrupted"
    return BatchRun(state.components, state.prices, tuple(history), status, state.reseeded)


# One start of a fair mixture: constraint, penalty or plain, on all rows or in batches.

# Factor on the deviations that a penalised fit starts from: tight components die under λ.
SOFTER = 4.0


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """What one start found.

    Attributes
    ----------
    components : Components
    prices : array (G, K)
        Λ of the fair E-step; zero without a constraint.
    objective : float
        F, ℓ - λΔ or ℓ.
    gap : float
        Duality gap of the last projection.
    history : tuple of float
    status : str
    reseeded : tuple of (int, int)
    """

    components: Components
    prices: Floats
    objective: float
    gap: float
    history: tuple[float, ...]
    status: str
    reseeded: tuple[tuple[int, int], ...]


def starts(
    model: Any,
    sample: Sample,
    empty: Components,
    init: Any,
    program: MassProgram | None,
    prices: Floats | None = None,
) -> Callable[[int, float | None, Step], tuple[Restart, MixtureFit]]:
    """Return the function that runs one start.

    Parameters
    ----------
    model : FairMixture
        Its parameters.
    sample : Sample
        Rows to learn from.
    empty : Components
        Shape, floors and origin.
    init : str, array or Components
        As checked.
    program : MassProgram or None
        Rules of the constraint.
    prices : array (G, K), optional
        Prices to start from.
    """
    penalty = model.fairness == "penalty"

    def fit(seed: int, limit: float | None, report: Step) -> tuple[Restart, MixtureFit]:
        begin = time.perf_counter()
        deadline = np.inf if limit is None else begin + limit
        first = first_components(sample, empty, init, scale=start_scale(model), seed=seed)

        with step_progress(2 if model.verbose == 2 else 0) as log:

            def told(iteration: int, objective: float) -> None:
                now = Told(objective)
                log(iteration, now)
                report(iteration, now)

            options = {
                "tol": model.tol,
                "max_iter": model.max_iter,
                "deadline": deadline,
                "report": told,
            }
            if rows_of(model.batch_size, sample.count, "batch_size") is not None:
                found = _from_batches(model, sample, first, program, seed, options)
            elif penalty:
                found = _under_penalty(model, sample, first, options)
            else:
                found = _plain_or_fair(sample, first, program, prices, options)
        s = summary(found.components, sample.rows, sample.index, sample.weights, found.prices)
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

    return fit


def _plain_or_fair(
    sample: Sample,
    first: Components,
    program: MassProgram | None,
    prices: Floats | None,
    options: dict[str, Any],
) -> MixtureFit:
    run = fair_em(
        MemoryPasses(sample), first, program, groups=sample.shares.size, prices=prices, **options
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


def _under_penalty(
    model: Any, sample: Sample, first: Components, options: dict[str, Any]
) -> MixtureFit:
    if model.algorithm == "em":
        run = penalised_em(first, sample, lam=model.lam, inner_steps=model.inner_steps, **options)
    else:
        run = penalised_gradient(first, sample, lam=model.lam, **options)
    zero = np.zeros((sample.shares.size, first.clusters))
    return MixtureFit(
        run.state.components, zero, run.objective, 0.0, run.history, run.status, run.reseeded
    )


def _from_batches(
    model: Any,
    sample: Sample,
    first: Components,
    program: MassProgram | None,
    seed: int,
    options: dict[str, Any],
) -> MixtureFit:
    """Learn from batches; one E-step over all rows ends the fit of a constraint."""
    run = batch_fit(
        first,
        sample,
        program=program,
        lam=model.lam if model.fairness == "penalty" else 0.0,
        batch=rows_of(model.batch_size, sample.count, "batch_size") or sample.count,
        delta_rows=rows_of(model.delta_rows, sample.count, "delta_rows"),
        seed=seed,
        **options,
    )
    if program is None:
        zero = np.zeros((sample.shares.size, first.clusters))
        return MixtureFit(
            run.components, zero, run.history[-1], 0.0, run.history, run.status, run.reseeded
        )
    last = fair_em(
        MemoryPasses(sample),
        run.components,
        program,
        groups=sample.shares.size,
        prices=run.prices,
        max_iter=1,
    )
    return MixtureFit(
        last.components,
        last.prices,
        last.objective,
        last.gap,
        (*run.history, last.objective),
        last.status if last.status == "inexact" else run.status,
        run.reseeded,
    )


def start_scale(model: Any) -> float:
    """Return the factor on the standard deviations that a fit starts from."""
    return SOFTER if model.fairness == "penalty" and model.lam > 0.0 else 1.0


def smallest_ratio(masses: Floats) -> float:
    """Return the balance of masses (G, K): the smallest ratio of two groups in a cluster."""
    filled = masses[:, masses.sum(axis=0) > 0.0]
    return float((filled.min(axis=0) / filled.max(axis=0)).min())
