"""What a fit starts from: tables, model, target and coupling, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.methods.sparse_counterfactuals.estimator.attribution import Attribution
from optfair.methods.sparse_counterfactuals.estimator.checks import (
    check_achieved,
    check_budget,
    common_target_class,
)
from optfair.methods.sparse_counterfactuals.estimator.couplings import (
    aligned_coupling,
    coupling_of,
    uniform_coupling,
)
from optfair.methods.sparse_counterfactuals.estimator.encoding import MixedEncoding
from optfair.methods.sparse_counterfactuals.estimator.predictor import Predictor
from optfair.methods.sparse_counterfactuals.estimator.shapley import attributed
from optfair.methods.sparse_counterfactuals.estimator.stacked_rows import (
    StackedRows,
    column_indices,
)

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Setting", "attribution_of", "labelled"]


@dataclass(frozen=True, eq=False)
class Setting:
    """Factual and counterfactual rows with their coupling, and what the model says of them.

    Attributes
    ----------
    stack : StackedRows
        Factuals, counterfactuals, background.
    encoding : MixedEncoding
        Distances between rows.
    predictor : Predictor
        Score of the target class.
    label : bool
        Whether outcomes are decisions in place of scores.
    coupling : array (n, m)
        p.
    factual_outputs, target : arrays (n,), (m,)
        f(x) and y*.
    goals : array (n,)
        What each row has to reach: the mean outcome of its counterfactuals, the mean of a
        given y*, or the decision for the target class.
    achieved : float
        Counterfactual effect of the counterfactuals themselves.
    original_edits, original_distance : float
        Edits from x to r and ‖r − x‖, expected under the alignment, or else the coupling.
    """

    stack: StackedRows
    encoding: MixedEncoding
    predictor: Predictor
    label: bool
    coupling: Floats
    factual_outputs: Floats
    target: Floats
    goals: Floats
    achieved: float
    original_edits: float
    original_distance: float

    @classmethod
    def of(
        cls,
        estimator: Any,
        factuals: Any,
        counterfactuals: Any,
        alignment: Any,
        rng: np.random.Generator,
    ) -> Setting:
        """Return the setting of an estimator with these rows; the model is asked for both tables.

        Raises
        ------
        DataError, DeclarationError
            Whatever does not fit, before anything is computed from it.
        """
        tables = [factuals, counterfactuals]
        tables += [] if estimator.background is None else [estimator.background]
        stack = StackedRows.of(*tables, categorical=estimator.categorical)
        x, r = stack.blocks[:2]
        n, m = x.shape[0], r.shape[0]
        check_budget(estimator.budget, n, x.shape[1])
        column_indices(stack.names, estimator.immutable)
        encoding = MixedEncoding.of(stack, estimator.feature_weights)
        # the model before the coupling: what it refuses is refused before any work
        predictor, outputs, target, achieved = _judged(estimator, stack.rows(x), stack.rows(r))
        cost = encoding.cost(x, r)
        coupling = coupling_of(
            estimator.coupling,
            n,
            m,
            cost=lambda: cost,
            rng=rng,
            alignment=alignment,
            regularization=estimator.regularization,
        )
        pairs = (coupling if alignment is None else aligned_coupling(n, m, alignment)) * n
        i, j = np.nonzero(pairs)
        label = estimator.outcome == "label"
        if estimator.target is not None:
            goals = np.full(n, target.mean())
        else:
            goals = np.ones(n) if label else coupling @ outputs[1] / coupling.sum(axis=1)
        return cls(
            stack,
            encoding,
            predictor,
            label,
            coupling,
            outputs[0],
            target,
            goals,
            achieved,
            float(pairs[i, j] @ (x[i] != r[j]).sum(axis=1)),
            float(np.sqrt((pairs * cost).sum())),
        )

    @property
    def x(self) -> Indices:
        """Codes of the factual rows."""
        return self.stack.blocks[0]

    @property
    def r(self) -> Indices:
        """Codes of the counterfactuals."""
        return self.stack.blocks[1]

    def outcome(self, rows: Any) -> Floats:
        """Return what the effect is measured on: scores, or decisions as 0 and 1."""
        return _outcome(self.predictor, rows, self.label)


def attribution_of(
    estimator: Any, setting: Setting, alignment: Any, rng: np.random.Generator
) -> Attribution:
    """Return the attribution that an estimator names, or the one it was given.

    Raises
    ------
    DataError, DeclarationError
        A given one that does not fit, "b-shap" without alignment.
    """
    x, other, coupling = setting.x, setting.r, setting.coupling
    n, m = x.shape[0], other.shape[0]
    kind = estimator.attribution
    if not isinstance(kind, str):
        given = np.asarray(kind, dtype=np.float64)
        if given.shape != x.shape or not np.isfinite(given).all():
            raise DataError(
                "attribution does not fit the rows",
                f"shape {given.shape} for {x.shape}, or entries that are not finite",
                "give one finite number per cell",
            )
        return Attribution(given, np.zeros(x.shape), "given", np.full(n, np.nan), 0)
    if kind == "rb-shap":
        other = setting.stack.blocks[2]
        coupling = uniform_coupling(n, other.shape[0])
    elif kind == "b-shap":
        coupling = aligned_coupling(n, m, alignment)
    return attributed(
        setting.predictor,
        setting.stack,
        x,
        other,
        coupling,
        exact_features=estimator.exact_features,
        samples=estimator.samples,
        random_state=rng,
    )


def labelled(given: Any, rows: Any) -> Any:
    """Return rows with the row labels of those they stand for, where there are any."""
    return rows.set_axis(given.index, axis=0) if hasattr(rows, "set_axis") else rows


def _judged(
    estimator: Any, before: Any, after: Any
) -> tuple[Predictor, tuple[Floats, Floats], Floats, float]:
    """Ask the model for both tables: what is to be reached, and whether it was."""
    wanted = estimator.target_class
    if wanted is None:
        wanted = common_target_class(estimator.model, after)
    predictor = Predictor(estimator.model, output=estimator.output, target_class=wanted)
    label = estimator.outcome == "label"
    outputs = _outcome(predictor, before, label), _outcome(predictor, after, label)
    decided = None
    if predictor.classes is not None:
        decided = predictor.decided(before), predictor.decided(after)
    target, achieved = check_achieved(estimator, predictor.target_class, outputs, decided)
    return predictor, outputs, target, achieved


def _outcome(predictor: Predictor, rows: Any, label: bool) -> Floats:
    return np.asarray(predictor.decided(rows), dtype=np.float64) if label else predictor(rows)
