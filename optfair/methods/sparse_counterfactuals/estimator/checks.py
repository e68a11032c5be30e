"""Parameters of SparseCounterfactuals, and counterfactuals that miss their target."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.sparse_counterfactuals.estimator.coalitions import check_enumerated
from optfair.methods.sparse_counterfactuals.estimator.couplings import COUPLINGS
from optfair.methods.sparse_counterfactuals.estimator.predictor import OUTPUTS
from optfair.methods.sparse_counterfactuals.estimator.selection import SELECTIONS
from optfair.methods.sparse_counterfactuals.estimator.value_assignment import VALUES
from optfair.methods.sparse_counterfactuals.metrics.line_divergences import DIVERGENCES
from optfair.methods.sparse_counterfactuals.metrics.sparse_counterfactuals import (
    effect_from,
    output_divergence,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

__all__ = [
    "check_achieved",
    "check_budget",
    "check_effect",
    "check_parameters",
    "common_target_class",
]

KNOWN = {
    "coupling": COUPLINGS,
    "attribution": ("p-shap", "cf-shap", "b-shap", "rb-shap"),
    "value": VALUES,
    "selection": SELECTIONS,
    "output": ("auto", *OUTPUTS),
    "outcome": ("score", "label"),
    "divergence": DIVERGENCES,
    "on_missed": ("raise", "keep"),
}
# These may be arrays too.
OPEN = ("coupling", "attribution")


def check_parameters(estimator: Any) -> None:
    """Raise on the first parameter that cannot be used.

    Raises
    ------
    DeclarationError
        Naming the parameter.
    """
    for name, known in KNOWN.items():
        value = getattr(estimator, name)
        if name in OPEN and not isinstance(value, str) and np.ndim(value) == 2:
            continue
        if not isinstance(value, str) or value not in known:
            raise DeclarationError(f"unknown {name} {value!r}", remedy=nearest(str(value), known))
    named = isinstance(estimator.attribution, str)
    if named and estimator.attribution == "rb-shap" and estimator.background is None:
        raise DeclarationError(
            '"rb-shap" compares with a background',
            remedy="give background=, rows of the training set, say",
        )
    check_enumerated(estimator.exact_features)


def check_budget(budget: Any, n: int, d: int) -> None:
    """Raise unless a budget is None or a number of cells.

    Raises
    ------
    DataError
    """
    if budget is None:
        return
    if not _whole(budget) or not 0 <= budget <= n * d:
        raise DataError(
            f"budget is {budget!r}",
            f"{n} rows of {d} features have {n * d} cells",
            f"give a whole number from 0 to {n * d}",
        )


def check_effect(effect: Any) -> None:
    """Raise unless an effect is a share of the divergence.

    Raises
    ------
    DataError
    """
    number = isinstance(effect, (int, float, np.integer, np.floating)) and not isinstance(
        effect, bool
    )
    if not number or not 0.0 < effect <= 1.0:
        raise DataError(f"effect is {effect!r}", remedy="give a share of the divergence, in (0, 1]")


def common_target_class(model: Any, rows: Any) -> Any:
    """Return the class that most counterfactuals are given, of a classifier of two classes.

    None for what has no two classes: then the caller has to name one, or there is none.
    """
    from optfair.methods.sparse_counterfactuals.estimator.predictor import Predictor

    classes = Predictor(model).classes if _two_classes(model) else None
    if classes is None:
        return None
    share = Predictor(model, target_class=classes[1]).decided(rows).mean()
    return classes[1] if share >= 0.5 else classes[0]


def check_achieved(
    estimator: Any,
    name: Any,
    outputs: tuple[Floats, Floats],
    decided: tuple[Flags, Flags] | None,
) -> tuple[Floats, float]:
    """Return (y*, effect of the counterfactuals themselves), or say what they miss.

    Parameters
    ----------
    estimator : SparseCounterfactuals
        Its target, divergence, outcome and on_missed.
    name : label or None
        The target class.
    outputs : pair of arrays (n,), (m,)
        Outcomes of the rows and of the counterfactuals.
    decided : pair of bool arrays (n,), (m,), or None
        Rows and counterfactuals that the model puts into the target class.

    Raises
    ------
    DataError
        Rows that are at the target already; counterfactuals outside the target class, or no
        nearer to a given target than the rows.
    """
    before, reached = outputs
    target = reached if estimator.target is None else _target(estimator.target)
    if decided is not None and not decided[1].all():
        share = [float(d.mean()) for d in decided]
        effect = 1.0 - (1.0 - share[1]) / (1.0 - share[0]) if share[0] < 1.0 else float("nan")
        missed = np.flatnonzero(~decided[1])
        if estimator.on_missed == "raise":
            raise DataError(
                f"{missed.size} of {decided[1].size} counterfactuals are not in class {name!r}",
                f"the first is row {int(missed[0])}; their counterfactual effect on the decisions"
                f" is {effect:.1%}",
                'drop them, name another target_class=, or set on_missed="keep"',
            )
        if estimator.target is None and estimator.outcome == "label":
            target = np.ones(1)  # what is wanted, not what was reached
    if not output_divergence(before, target, estimator.divergence) > 0.0:
        raise DataError(
            "the factual rows are at the target already",
            f"their {estimator.divergence} divergence from it is 0",
            "nothing has to be edited: leave such rows out",
        )
    achieved = effect_from(before, target, estimator.divergence)(reached)
    if achieved <= 0.0:
        raise DataError(
            "the counterfactuals are no nearer to the target than the factual rows",
            f"their counterfactual effect is {achieved:.1%}",
            "give counterfactuals that reach it, or another target",
        )
    return target, achieved


def _two_classes(model: Any) -> bool:
    from optfair.features.linear_score import LinearScore

    if isinstance(model, (tuple, list, LinearScore)):
        return True
    known = getattr(model, "classes_", None)
    return known is not None and len(known) == 2


def _target(given: Any) -> Floats:
    try:
        y = np.atleast_1d(np.asarray(given, dtype=np.float64))
    except (TypeError, ValueError):
        y = np.array([np.nan])
    if y.ndim != 1 or not y.size or not np.isfinite(y).all():
        raise DataError("target is no finite number or row of them", remedy="give y*")
    return y


def _whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
