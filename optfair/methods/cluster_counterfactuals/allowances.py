"""What a counterfactual may change, how distance is measured, and the rules that options stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.composition import Rule
from optfair.errors import DataError, DeclarationError, nearest
from optfair.features.feature_problem import Box, Immutable, Monotone, box
from optfair.methods.cluster_counterfactuals.rules import (
    AtMostChanges,
    LeastDensity,
    OneHot,
    WholeNumbers,
)
from optfair.numbers import LARGEST, check_number, floats, real, whole

__all__ = [
    "check_cluster",
    "check_factual",
    "check_mask",
    "check_metric",
    "check_plausibility",
    "column_names",
    "option_rules",
]


# Checks of what a counterfactual may change and how distance is measured.

Floats = NDArray[np.float64]


DISTANCES = ("l2", "l1", "changes")


def check_factual(factual: Any, d: int, names: tuple[str, ...]) -> Floats:
    """Return the factual as a finite vector."""
    if hasattr(factual, "reindex") and hasattr(factual, "index"):  # a row of a data frame
        labels = [str(c) for c in factual.index]
        missing = [n for n in names if n not in labels]
        if not missing and len(labels) == d:
            factual = [factual.iloc[labels.index(n)] for n in names]
    y = floats(factual, "factual")
    if y.shape == (1, d):
        y = y[0]
    if y.shape != (d,):
        raise DataError(
            "factual does not fit the clusters",
            f"shape {y.shape} for {d} features",
            f"give one row of {d} numbers",
        )
    bad = np.flatnonzero(~np.isfinite(y))
    if bad.size:
        raise DataError(
            "factual has entries that are NaN or infinite",
            f"the first is {names[bad[0]]!r}",
            "impute it first",
        )
    y.flags.writeable = False
    return y


def column_names(given: Any, d: int) -> tuple[str, ...]:
    """Return the names of the features; ``x0`` ... by default."""
    if given is None:
        return tuple(f"x{j}" for j in range(d))
    names = tuple(str(n) for n in given)
    if len(names) != d or len(set(names)) != d:
        raise DataError(
            f"{len(set(names))} different names for {d} features",
            f"they are {', '.join(names[:20])}",
            "give every feature one name of its own",
        )
    return names


def check_cluster(given: Any, K: int, what: str) -> int:
    """Return a cluster number."""
    if not whole(given) or not 0 <= given < K:
        raise DeclarationError(
            f"{what} {given!r} is not a cluster",
            f"there are {K}",
            f"give a number from 0 to {K - 1}"
            + (", or 'nearest other'" if what == "target" else ""),
        )
    return int(given)


def check_mask(mask: Any, d: int) -> NDArray[np.intp]:
    """Return the columns that a mask holds fixed; true is free, as in the paper."""
    if mask is None:
        return np.zeros(0, dtype=np.intp)
    m = floats(mask, "mask")
    if m.shape != (d,) or not np.isin(m, (0.0, 1.0)).all():
        raise DeclarationError(
            "mask is not a flag per feature",
            f"shape {np.shape(mask)} for {d} features",
            "give 1 for a feature that may change and 0 for one that may not,"
            " or name those that may not: immutable=[...]",
        )
    if not m.any():
        raise DeclarationError(
            "the mask frees no feature", remedy="free at least one: nothing could change"
        )
    return np.flatnonzero(m == 0.0)


def check_metric(weights: Any, metric: Any, distance: str, d: int) -> Floats | None:
    """Return weights (d,), a matrix (d, d), or None for equal weights."""
    if distance not in DISTANCES:
        raise DeclarationError(
            f"unknown distance {distance!r}", remedy=nearest(str(distance), DISTANCES)
        )
    if weights is not None and metric is not None:
        raise DeclarationError(
            "give weights or a metric, not both", remedy="weights are the diagonal of the metric"
        )
    given, what = (weights, "weights") if metric is None else (metric, "metric")
    if given is None:
        return None
    W = floats(given, what)
    if W.shape != ((d,) if metric is None else (d, d)):
        raise DataError(
            f"{what} does not fit the features",
            f"shape {W.shape} for {d} features",
            "give one positive number per feature"
            if metric is None
            else f"give a symmetric matrix ({d}, {d})",
        )
    if metric is None:
        if (W <= 0.0).any():
            raise DataError(
                "weights are not all positive",
                f"the least is {W.min():g}",
                "a feature that must not change is immutable; one that is free of charge is not"
                " bounded by the distance",
            )
        return W
    if distance != "l2":
        raise DeclarationError(
            f"distance {distance!r} has no metric matrix", remedy="give weights, or distance='l2'"
        )
    symmetric = np.abs(W - W.T).max() <= 1e-10 * np.abs(W).max()
    least = float(np.linalg.eigvalsh((W + W.T) / 2.0)[0]) if symmetric else np.nan
    if not symmetric or least <= 0.0:
        raise DataError(
            "metric is not positive definite",
            f"its least eigenvalue is {least:.3g}" if symmetric else "it is not symmetric",
            "for a Mahalanobis distance give the inverse of a covariance",
        )
    return np.asarray((W + W.T) / 2.0)


def check_plausibility(plausibility: Any, kind: str) -> float:
    """Return ε >= 0; for k-means it must leave the center of the target inside."""
    eps = real(plausibility)
    if not 0.0 <= eps <= LARGEST:
        raise DeclarationError(
            f"plausibility {plausibility!r} is not a number >= 0",
            remedy="0 is the boundary, larger lies deeper in the target",
        )
    return eps


def listed(features: Any) -> tuple[Any, ...]:
    """Return features given alone or in a sequence as a tuple."""
    if features is None:
        return ()
    if isinstance(features, (str, int, np.integer)):
        return (features,)
    if isinstance(features, Mapping) or not isinstance(features, Iterable):
        raise DeclarationError(
            f"features given as a {type(features).__name__}", remedy="give a list of names"
        )
    return tuple(features)


# Options of a counterfactual as the rules they stand for.

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
    return check_number(value, what, infinite=True)


def _groups(given: Any) -> list[tuple[Any, ...]]:
    if given is None:
        return []
    groups = [listed(g) for g in listed(given)]
    if groups and all(len(g) == 1 for g in groups):
        return [tuple(f for g in groups for f in g)]  # one group, not wrapped in a list
    return groups
