"""Learning a fair mixture from batches that come one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from optfair.errors import DeclarationError
from optfair.methods.fair_mixtures.estimator.batches import Batches
from optfair.methods.fair_mixtures.estimator.expectation import summary
from optfair.methods.fair_mixtures.estimator.first_components import check_start, first_components
from optfair.methods.fair_mixtures.estimator.fitted import (
    keep_components,
    keep_summary,
    priced_labels,
)
from optfair.methods.fair_mixtures.estimator.intake import Intake, taken_in
from optfair.methods.fair_mixtures.estimator.one_fit import start_scale
from optfair.methods.fair_mixtures.estimator.settings import check_settings
from optfair.methods.fair_mixtures.estimator.setup import empty_of, program_of
from optfair.rows.parameters import start_seeds

__all__ = ["OnlineMixture"]


class OnlineMixture:
    """The method of `FairMixture` that learns from one batch at a time."""

    def partial_fit(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> Any:
        """Learn from one batch; rules and Δ are measured on the first ``delta_rows`` rows seen.

        Parameters are those of `fit`. The first batch fixes columns, categories, groups and
        their shares, so it must have every group; after `fit`, the next batch is a first one.
        What describes the rows (labels, Δ, cost) is that of the batch, where a constraint holds
        as far as the measured rows stand for it.

        Returns
        -------
        FairMixture
            Itself.

        Raises
        ------
        DeclarationError
            label_rule "fair", whose assignment couples all rows.
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
        online = getattr(model, "_online", None)
        data = taken_in(model, X, groups, sample_weight, fitted=online)
        kept, state, program = _first(model, data) if online is None else online
        kept = kept.with_rows(data, model.delta_rows)
        lam = float(model.lam) if model.fairness == "penalty" else 0.0
        state = state.step(data.sample, kept.sample, program, lam)
        _keep(model, state, kept, data)
        model._online = (kept, state, program)
        return model


def _first(model: Any, data: Intake) -> tuple[Intake, Batches, Any]:
    s = data.sample
    init = check_start(model.init, model.n_components, s.rows.numeric.shape[1])
    seed = start_seeds(model.random_state, 1, given=True)[0]
    empty = empty_of(model, s, data.columns)
    first = first_components(s, empty, init, scale=start_scale(model), seed=seed)
    zero = np.zeros((s.shares.size, model.n_components))
    return data, Batches(first, zero), program_of(model, data)


def _keep(model: Any, state: Batches, kept: Intake, data: Intake) -> None:
    s = data.sample
    keep_components(model, state.components, kept)
    model.prices_ = model.label_prices_ = state.prices
    model.reseeded_, model.n_iter_ = state.reseeded, state.steps
    model.status_, model.converged_ = "partial", False
    model.objective_, model.gap_ = state.objective, float("nan")
    model.labels_ = priced_labels(state.components, s, state.prices)
    found = summary(state.components, s.rows, s.index, s.weights, state.prices)
    keep_summary(model, found, s, model.labels_)
