"""What a map is declared from: members, target, weights and bounds, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError
from optfair.features.feature_problem import feature_names
from optfair.features.linear_score import LinearScore
from optfair.methods.group_counterfactuals.maps.moments import Moments

Floats = NDArray[np.float64]

__all__ = ["checked_bound", "checked_costs", "map_data"]


def map_data(
    X: Any,
    score: Any,
    *,
    probability: float | None,
    threshold: float | None,
    target_class: Any,
    feature_costs: Any,
    moments: Moments | None = None,
) -> dict[str, Any]:
    """Return what every map is declared from: members, moments, target, weights.

    The moments are those of the members unless others are given.

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target or weights that do not fit.
    """
    linear = LinearScore.of(score)
    names = _names(X, linear)
    normal, level = linear.halfspace(target_class, probability=probability, threshold=threshold)
    d = linear.coef.size
    if X is None and moments is None:
        raise DeclarationError(
            "there is no group", "neither members X nor moments are given", "give X"
        )
    if moments is not None and moments.mean.size != d:
        raise DataError(
            f"the moments have {moments.mean.size} features, the score has {d}",
            remedy="give moments of the features of the score",
        )
    centered = np.zeros((0, d)) if X is None else linear.check_points(X)
    mean = centered.mean(axis=0) if moments is None else moments.mean
    centered -= mean  # a copy already: the only one of the members that is kept
    centered.flags.writeable = False
    return {
        "centered": centered,
        "moments": Moments.of_rows(centered, mean) if moments is None else moments,
        "plug in": moments is None,
        "normal": normal,
        "level": level,
        "score": linear,
        "target_class": target_class,
        "features": names,
        "costs": checked_costs(feature_costs, names),
    }


def _names(X: Any, score: LinearScore) -> tuple[str, ...]:
    named = hasattr(X, "columns")
    if not named:
        return score.names or feature_names(None, score.coef.size)
    names = feature_names(X, len(X.columns))
    if score.names is not None and names != score.names:
        raise DataError(
            "the columns of X are not those of the score",
            f"X has {', '.join(names)}; the score has {', '.join(score.names)}",
            "give the columns the score was fitted on, in its order",
        )
    return names


def checked_costs(costs: Any, names: tuple[str, ...]) -> Floats:
    """Return one positive weight per feature from a number, as many numbers, or a dict."""
    d = len(names)
    if costs is None:
        return np.ones(d)
    if isinstance(costs, Mapping):
        unknown = [str(f) for f in costs if str(f) not in names]
        if unknown:
            raise DataError(
                f"feature_costs names {unknown[0]!r}",
                f"the features are {', '.join(names)}",
                "give one of them",
            )
        costs = [costs.get(name, 1.0) for name in names]
    try:
        c = np.asarray(costs, dtype=float)
    except (TypeError, ValueError):
        c = np.full(1, np.nan)
    if c.shape not in ((), (d,)) or not np.isfinite(c).all() or (c <= 0).any():
        raise DeclarationError(
            f"feature_costs={costs!r} are not {d} positive numbers",
            "a feature that costs nothing could move without limit",
            "give one per feature, or a dict by name",
        )
    return np.broadcast_to(c, (d,)).copy()


def checked_bound(value: Any, name: str) -> float | None:
    """Return K or k as a number of at least 1, or None for no bound.

    Raises
    ------
    DeclarationError
        Below 1, or not a number: the identity would be excluded, and then nothing keeps the
        cost of a group that is already at its target at 0.
    """
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not number >= 1.0:
        raise DeclarationError(
            f"{name}={value!r} is not at least 1",
            "K bounds how much distances grow and k how much they shrink; 1 is an isometry",
            f"give {name} >= 1, or None for no bound",
        )
    return None if np.isinf(number) else number
