"""The fit of a fair mixture: its starts, batches, and the way on to all rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optfair.methods.fair_clustering.algorithms.entropic_projection import project
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.pricing import smallest_ratio
from optfair.methods.fair_mixtures.components import Components, Statistics
from optfair.methods.fair_mixtures.expectation import (
    MemoryPasses,
    Passes,
    Penalty,
    Sample,
    Summary,
    expectation,
    penalty_step,
    slopes,
)
from optfair.methods.fair_mixtures.fair_em import (
    EXACT,
    MixtureFit,
    State,
    dead_components,
    fair_em,
    penalised,
)
from optfair.methods.fair_mixtures.fitted_mixture import Intake, keep_components, keep_numbers
from optfair.methods.fair_mixtures.parameters import (
    check_start,
    empty_of,
    first_components,
    penalty_of,
    program_of,
    rows_of,
    start_scale,
)
from optfair.numbers import Floats
from optfair.rows.frames import start_seeds
from optfair.rows.restarts import Iteration, Restart, Step, run_restarts, step_progress

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
        self, batch: Sample, measured: Sample, program: MassProgram | None, penalty: Penalty | None
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
        penalty : Penalty or None
            Without a program only.
        """
        c, prices = self.components, self.prices
        if program is not None:
            projection = project(
                measured.log_joint(c),
                measured.index,
                measured.weights,
                program,
                prices=prices,
                tolerance=EXACT,
            )
            prices = projection.prices
        e = expectation(c, batch.rows, batch.index, batch.weights, prices)
        rate = 1.0 if self.statistics is None else (self.steps + OFFSET) ** -POWER
        s = e.statistics
        if self.statistics is not None:
            s = (1.0 - rate) * self.statistics + rate * s
        objective = e.objective(prices)
        if penalty is not None:
            moved, taken = _penalised(c, s, measured, penalty)
            objective -= taken
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
    c: Components, s: Statistics, measured: Sample, penalty: Penalty
) -> tuple[Components, float]:
    """Return (components after a step that does not lower Q less the penalty, penalty before)."""
    state = State.of(c, measured)
    before = penalty.value(state.fractions)
    slope = slopes(c, measured, state.psi)
    here = c.expected(s) - before
    stiffness = 1.0
    for _ in range(20):
        step, gain = penalty_step(
            c.gradient(s), stiffness * c.information(), state.fractions, slope, penalty
        )
        if not gain > 1e-15 * max(1.0, abs(here)):
            break
        new = c.moved(step)
        if new.expected(s) - penalty.value(State.of(new, measured).fractions) >= here:
            return new, before
        stiffness *= 4.0
    return c, before


def batch_fit(
    components: Components,
    sample: Sample,
    *,
    program: MassProgram | None,
    penalty: Penalty | None,
    batch: int,
    delta_rows: int | None,
    seed: int,
    tol: float,
    max_iter: int,
    deadline: float = np.inf,
    report: Callable[[int, float], None] | None = None,
) -> MixtureFit:
    """Learn from random batches until their average objective stops rising.

    One E-step over all rows ends the fit of a constraint.

    Parameters
    ----------
    components : Components
        Start.
    sample : Sample
        All rows.
    program : MassProgram or None
        Rules.
    penalty : Penalty or None
        Without a program only.
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
            state = state.step(sample.some(np.sort(taken)), measured, program, penalty)
            history.append(state.objective)
            if report is not None:
                report(state.steps, state.objective)
            if len(history) >= 2 * WINDOW:
                late, early = np.mean(history[-WINDOW:]), np.mean(history[-2 * WINDOW : -WINDOW])
                if late - early <= tol * components.columns:
                    status = "converged"
                    break
            if time.perf_counter() > deadline:
                status = "time_limit"
                break
    except KeyboardInterrupt:
        if not history:
            raise
        status = "interrupted"
    fit = MixtureFit(
        *(state.components, state.prices, history[-1], 0.0, tuple(history), status, state.reseeded)
    )
    return fit if program is None else obeying(fit, MemoryPasses(sample), program)


def obeying(fit: MixtureFit, passes: Passes, program: MassProgram) -> MixtureFit:
    """Return a fit of few rows with prices that make all rows obey the rules: one E-step."""
    groups = len(fit.prices)
    last = fair_em(passes, fit.components, program, groups=groups, prices=fit.prices, max_iter=1)
    return replace(
        fit,
        prices=last.prices,
        objective=last.objective,
        gap=last.gap,
        history=(*fit.history, last.objective),
        status=last.status if last.status == "inexact" else fit.status,
    )


# The fit of a mixture to rows wherever they are.


@dataclass(frozen=True, eq=False)
class FitRows:
    """The rows of a fit: those that it starts from, and passes over all of them.

    Attributes
    ----------
    first : Intake
        Rows in memory: all where they are few, else a sample.
    passes : callable
        Returns passes over all rows, for one start.
    count : int
        Number of all rows.
    threaded : bool
        Whether a pass has threads of its own; starts then run one after the other.
    """

    first: Intake
    passes: Callable[[], Passes]
    count: int
    threaded: bool = False


def fit_mixture(
    model: Any, rows: FitRows, init: Any, prices: Floats | None = None, *, begin: float
) -> Summary:
    """Fit a mixture, set the attributes that do not have the size of the rows, and describe it.

    Starts run in passes over all rows where these are few. Of many, they run on the sample and
    the best goes on with all rows. A penalty, batches and ``learn_rows`` learn from the sample
    alone; a constraint holds on all rows nevertheless.

    Parameters
    ----------
    model : FairMixture
        Its parameters; gets the attributes.
    rows : FitRows
        Rows.
    init : str, array or Components
        Start.
    prices : array (G, K), optional
        Prices to start from.
    begin : float
        ``time.perf_counter()`` when the fit began.
    """
    sample = learned = rows.first.sample
    init = check_start(init, model.n_components, sample.rows.numeric.shape[1])
    seeds = start_seeds(
        model.random_state,
        1 if model.n_init == "auto" else model.n_init,
        given=not isinstance(init, str),
    )
    wanted = rows_of(model.learn_rows, rows.count, "learn_rows")
    if wanted is not None:
        learned = sample.drawn(np.random.default_rng(seeds[0]), wanted)
    program = program_of(model, rows.first)
    whole = learned.count == rows.count
    batches = model.batch_size is not None
    alone = model.fairness == "penalty" or batches or wanted is not None
    shared = whole and not alone
    passes: Callable[[], Passes] = rows.passes if shared else lambda: MemoryPasses(learned)
    deadline = np.inf if model.time_limit is None else begin + model.time_limit
    left = None if model.time_limit is None else max(deadline - time.perf_counter(), 1e-3)
    empty = empty_of(model, learned, rows.first.columns)
    numbers: Summary
    records, (best, numbers) = run_restarts(
        starts(model, learned, passes, empty, init, program, prices),
        seeds,
        rank=lambda r: -r.objective,
        n_jobs=1 if shared and rows.threaded else model.n_jobs,
        time_limit=left,
        verbose=model.verbose,
    )
    if not whole:
        over = rows.passes()
        if not alone:
            # after Ctrl-C all rows get one E-step
            stopped = any(r.status == "interrupted" for r in records)
            with step_progress(model.verbose) as log:
                best = fair_em(
                    over,
                    best.components,
                    program,
                    groups=sample.shares.size,
                    prices=best.prices,
                    tol=model.tol,
                    max_iter=1 if stopped else model.max_iter,
                    deadline=deadline,
                    report=lambda i, objective: log(i, Iteration(objective)),
                )
            if stopped and best.status == "max_iter":
                best = replace(best, status="interrupted")
        elif program is not None:
            best = obeying(best, over, program)
        numbers = over.summary(best.components, best.prices)
    keep_components(model, best.components, rows.first)
    model.prices_ = model.label_prices_ = best.prices
    model.gap_, model.objective_ = best.gap, best.objective
    model.history_ = np.array(best.history)
    model.n_iter_, model.status_ = len(best.history), best.status
    model.converged_ = best.status == "converged"
    model.reseeded_, model.restarts_ = best.reseeded, records
    model.kept_iter_ = model.n_iter_ if best.kept is None else best.kept
    keep_numbers(model, numbers, sample.shares, numbers.fair_labels, numbers.cost, numbers.apart)
    return numbers


def starts(
    model: Any,
    sample: Sample,
    passes: Callable[[], Passes],
    empty: Components,
    init: Any,
    program: MassProgram | None,
    prices: Floats | None = None,
) -> Callable[[int, float | None, Step], tuple[Restart, tuple[MixtureFit, Summary]]]:
    """Return the function that runs one start: constraint, penalty or plain, or in batches.

    Parameters
    ----------
    model : FairMixture
        Its parameters.
    sample : Sample
        Rows in memory to start from, and to learn from under a penalty and in batches.
    passes : callable
        Returns passes over the rows to learn from.
    empty : Components
        Shape, floors and origin.
    init : str, array or Components
        As checked.
    program : MassProgram or None
        Rules of the constraint.
    prices : array (G, K), optional
        Prices to start from.
    """
    penalty = penalty_of(model, sample.shares.size)
    soft = model.start == "soft"
    batch = rows_of(model.batch_size, sample.count, "batch_size")

    def fit(
        seed: int, limit: float | None, report: Step
    ) -> tuple[Restart, tuple[MixtureFit, Summary]]:
        begin = time.perf_counter()
        first = first_components(
            sample, empty, init, scale=start_scale(model), seed=seed, soft=soft
        )
        over = passes()
        # while starts run, a bar over them has the terminal
        with step_progress(2 if model.verbose == 2 else 0) as log:

            def shown(iteration: int, objective: float) -> None:
                now = Iteration(objective)
                log(iteration, now)
                report(iteration, now)

            options: dict[str, Any] = {
                "tol": model.tol,
                "max_iter": model.max_iter,
                "deadline": np.inf if limit is None else begin + limit,
                "report": shown,
            }
            if batch is not None:
                options |= {
                    "program": program,
                    "batch": batch,
                    "delta_rows": rows_of(model.delta_rows, sample.count, "delta_rows"),
                    "seed": seed,
                }
                ended = batch_fit(first, sample, penalty=penalty, **options)
            elif model.fairness != "penalty":
                groups = sample.shares.size
                ended = fair_em(over, first, program, groups=groups, prices=prices, **options)
            else:
                options |= {"lam": model.lam, "size_penalty": model.size_penalty}
                options |= {"balanced": model.keep == "best balance"}
                steps = model.inner_steps if model.algorithm == "em" else None
                ended = penalised(first, sample, inner_steps=steps, **options)
        s = over.summary(ended.components, ended.prices)
        record = Restart(
            seed,
            ended.objective,
            s.cost,
            smallest_ratio(s.fair_labels),
            ended.gap,
            len(ended.history),
            ended.status,
            time.perf_counter() - begin,
        )
        return record, (ended, s)

    return fit
