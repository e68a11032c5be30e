"""Options of a counterfactual as the rules they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.rule import Rule
from optfair.errors import DeclarationError, nearest
from optfair.features.rules.features import Box, Immutable, Monotone, box
from optfair.methods.cluster_counterfactuals.options import listed
from optfair.methods.cluster_counterfactuals.rules.changes import AtMostChanges
from optfair.methods.cluster_counterfactuals.rules.plausibility import LeastDensity
from optfair.methods.cluster_counterfactuals.rules.whole_features import OneHot, WholeNumbers

__all__ = ["option_rules"]

OPTIONS = (
    "immutable",
    "lower",
    "upper",
    "increasing",
    "decreasing",
    "whole",
    "one_hot",
    "max_changes",
    "density",
)


def option_rules(
    d: int, names: tuple[str, ...], kept: NDArray[np.intp], options: Mapping[str, Any]
) -> dict[str, Rule]:
    """Return the rules that options stand for, by the names their terms get.

    Parameters
    ----------
    d : int
        Number of features.
    names : tuple of str
        Their names.
    kept : array
        Columns that a mask holds fixed.
    options : mapping
        As somebody typed them.
    """
    for name in options:
        if name not in OPTIONS:
            raise DeclarationError(f"unknown option {name!r}", remedy=nearest(name, OPTIONS))
    rules: dict[str, Rule] = {}
    held = list(listed(options.get("immutable")))
    if kept.size and held:
        raise DeclarationError(
            "give a mask or immutable features, not both", remedy="they say the same"
        )
    held += kept.tolist()
    if held:
        rules["immutable"] = Immutable(tuple(held))
    bounds = _bounds(d, names, options.get("lower"), options.get("upper"))
    if bounds is not None:
        rules["bounds"] = bounds
    up, down = listed(options.get("increasing")), listed(options.get("decreasing"))
    if up or down:
        rules["direction"] = Monotone(up, down)
    if listed(options.get("whole")):
        rules["whole"] = WholeNumbers(listed(options["whole"]))
    for i, group in enumerate(_groups(options.get("one_hot"))):
        rules[f"one-hot {i}"] = OneHot(group)
    if options.get("density") is not None:
        rules["density"] = LeastDensity(options["density"])
    if options.get("max_changes") is not None:
        rules["changes"] = AtMostChanges(options["max_changes"])
    return rules


def _bounds(d: int, names: tuple[str, ...], lower: Any, upper: Any) -> Box | None:
    if lower is None and upper is None:
        return None
    low, low_keys = _side(d, names, lower, -np.inf, "lower")
    high, high_keys = _side(d, names, upper, np.inf, "upper")
    given: dict[Any, tuple[float, float]] = {}
    for j in range(d):
        if np.isfinite(low[j]) or np.isfinite(high[j]):
            given[names[j]] = (low[j], high[j])
    # names that are not features fail when the rule is bound, with a suggestion
    for key in (*low_keys, *high_keys):
        given[key] = (-1.0, 1.0)
    return box(given) if given else None


def _side(
    d: int, names: tuple[str, ...], given: Any, otherwise: float, what: str
) -> tuple[NDArray[np.float64], list[Any]]:
    found = np.full(d, otherwise)
    if given is None:
        return found, []
    if isinstance(given, Mapping):
        unknown = []
        for key, value in given.items():
            column = key if not isinstance(key, str) else names.index(key) if key in names else None
            if column is None or not 0 <= column < d:
                unknown.append(key)
            else:
                found[column] = otherwise if value is None else _number(value, what)
        return found, unknown
    try:
        rows = np.asarray(
            [otherwise if v is None else v for v in given] if np.ndim(given) else given,
            dtype=float,
        )
        return np.array(np.broadcast_to(np.where(np.isnan(rows), otherwise, rows), (d,))), []
    except (TypeError, ValueError):
        raise DeclarationError(
            f"{what} does not fit the features",
            f"shape {np.shape(given)} for {d} features",
            "give a number, one per feature, or a dict by name",
        ) from None


def _number(value: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DeclarationError(
            f"{what} {value!r} is not a number", remedy="give a number"
        ) from None


def _groups(given: Any) -> list[tuple[Any, ...]]:
    if given is None:
        return []
    groups = [listed(g) for g in listed(given)]
    if groups and all(len(g) == 1 for g in groups):
        return [tuple(f for g in groups for f in g)]  # one group, not wrapped in a list
    return groups
