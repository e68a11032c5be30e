"""One start of a fair mixture: constraint, penalty or plain, on all rows or in batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.program import MassProgram
from optfair.methods.fair_mixtures.estimator.batches import batch_fit
from optfair.methods.fair_mixtures.estimator.components import Components
from optfair.methods.fair_mixtures.estimator.expectation import MemoryPasses, summary
from optfair.methods.fair_mixtures.estimator.fair_em import fair_em
from optfair.methods.fair_mixtures.estimator.first_components import first_components
from optfair.methods.fair_mixtures.estimator.penalty import penalised_em, penalised_gradient
from optfair.methods.fair_mixtures.estimator.sample import Sample
from optfair.methods.fair_mixtures.estimator.settings import rows_of
from optfair.rows.progress import Step, Told, step_progress
from optfair.rows.restarts import Restart

Floats = NDArray[np.float64]

__all__ = ["MixtureFit", "smallest_ratio", "start_scale", "starts"]

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
                found = _penalised(model, sample, first, options)
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


def _penalised(
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
