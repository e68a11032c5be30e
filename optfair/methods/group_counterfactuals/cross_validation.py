"""Metrics of counterfactual maps on members they were not fitted on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, NotInstalled
from optfair.methods.group_counterfactuals.metrics import (
    lipschitz_constants,
    transport_cost,
    validity,
)
from optfair.numbers import check_callable, check_count, check_matrix, check_seed, checked

Floats = NDArray[np.float64]

__all__ = ["MapValidation", "cross_validate_map"]

NUMBERS = ("transport_cost", "upper", "lower", "distortion", "validity", "seconds")


@dataclass(frozen=True, eq=False, repr=False)
class MapValidation:
    """Metrics of a map on the members left out, one number per fold.

    Attributes
    ----------
    transport_cost : array (folds,)
        Mean squared distance, in squared units of the features.
    upper, lower : array (folds,)
        Empirical constants; NaN for a fold whose members are all equal.
    distortion : array (folds,)
        1 − 1/max(upper, lower) of each fold.
    validity : array (folds,)
        Share that reaches the target.
    seconds : array (folds,)
        Wall time to declare, solve and read off the map.
    """

    transport_cost: Floats
    upper: Floats
    lower: Floats
    distortion: Floats
    validity: Floats
    seconds: Floats

    def __len__(self) -> int:
        return int(self.validity.size)

    def mean(self) -> dict[str, float]:
        """Return the mean over the folds of each metric, over those where it is a number."""
        found = {}
        for name in NUMBERS:
            values = getattr(self, name)
            kept = values[~np.isnan(values)]
            found[name] = float(kept.mean()) if kept.size else float("nan")
        return found

    def to_frame(self) -> Any:
        """Return the numbers as a pandas DataFrame, one row per fold.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        try:
            import pandas as pd
        except ImportError as e:
            raise NotInstalled(
                "pandas is not installed", str(e), "pip install pandas, or use the arrays"
            ) from None
        return pd.DataFrame({name: getattr(self, name) for name in NUMBERS})

    def __repr__(self) -> str:
        means = self.mean()
        return "\n".join(
            [f"MapValidation: {len(self)} folds, means on the members left out"]
            + [f"  {name:<15} {means[name]:.6g}" for name in NUMBERS]
        )


@checked(model=check_callable, n_splits=check_count, random_state=check_seed)
def cross_validate_map(
    model: Callable[..., Any],
    X: Any,
    *,
    score: Any,
    probability: float | None = None,
    threshold: float | None = None,
    target_class: Any = None,
    n_splits: int = 10,
    random_state: Any = None,
    **parameters: Any,
) -> MapValidation:
    """Fit a map on all folds but one, and measure it on the members of that one.

    Parameters
    ----------
    model : class of problems with a map, or callable
        `PSDMap` and the like, called with the rows and the target; or any function of the rows
        that returns an object with ``transform``.
    X : array-like (n, d)
        Members of the group.
    score, probability, threshold, target_class
        The target, as for the models.
    n_splits : int
        Folds.
    random_state : int or Generator, optional
        Shuffles the members first; in their order without.
    **parameters
        Further arguments of the model, such as ``K``.

    Returns
    -------
    MapValidation

    Raises
    ------
    DataError
        Fewer than two members per fold: there is no distance to measure.
    DeclarationError
        A model without a map: counterfactuals of members say nothing of other members.

    Examples
    --------
    >>> import numpy as np
    >>> from optfair.methods.group_counterfactuals.cross_validation import cross_validate_map
    >>> class Shift:
    ...     def transform(self, X):
    ...         return X + np.array([2.0, 0.0])
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> found = cross_validate_map(lambda rows: Shift(), X, score=([1.0, 0.0], 0.0), n_splits=5)
    >>> mean = found.mean()
    >>> round(mean["transport_cost"], 9), round(mean["distortion"], 9) + 0.0
    (4.0, 0.0)

    References
    ----------
    Valero-Leal et al., Optimal transport group counterfactual explanations, Section C.3.
    """
    points = check_matrix(X, "X")
    rows = points.shape[0]
    if not 2 <= n_splits <= rows // 2:
        raise DataError(
            f"{n_splits} folds of {rows} members",
            "a fold needs two members to measure a distance, and there are at least two folds",
            f"give n_splits between 2 and {rows // 2}",
        )
    aim = {"probability": probability, "threshold": threshold, "target_class": target_class}
    order = np.arange(rows)
    if random_state is not None:
        order = np.random.default_rng(random_state).permutation(rows)
    found: dict[str, list[float]] = {name: [] for name in NUMBERS}
    for held in np.array_split(order, n_splits):
        begin = time.perf_counter()
        kept = np.setdiff1d(order, held)
        fitted = _fitted(model, points[kept], {"score": score, **aim, **parameters})
        found["seconds"].append(time.perf_counter() - begin)
        members = points[held]
        images = np.asarray(fitted.transform(members))
        constants = lipschitz_constants(members, images)
        larger = np.maximum(constants.upper, constants.lower)
        found["transport_cost"].append(transport_cost(members, images))
        found["upper"].append(constants.upper)
        found["lower"].append(constants.lower)
        found["distortion"].append(float(1.0 - 1.0 / larger))
        found["validity"].append(validity(images, score, **aim))
    return MapValidation(**{name: np.array(values) for name, values in found.items()})


def _fitted(model: Callable[..., Any], rows: Floats, arguments: dict[str, Any]) -> Any:
    """Return an object with ``transform``."""
    if isinstance(model, type):
        if not hasattr(model, "map"):
            raise DeclarationError(
                f"{model.__name__} has no map",
                "it finds counterfactuals of its own members only",
                "measure it on the whole group, as the paper does, or give a model of maps",
            )
        problem = model(rows, **arguments)
        return problem.map(problem.solve())
    extra = set(arguments) - {"score", "probability", "threshold", "target_class"}
    if extra:
        raise DeclarationError(
            f"a function of the rows does not take {', '.join(sorted(extra))}",
            remedy="put them into the function, or give a class of problems",
        )
    fitted = model(rows)
    if not hasattr(fitted, "transform"):
        raise DeclarationError(
            f"the model returned a {type(fitted).__name__} without transform",
            remedy="return an object whose transform(X) gives counterfactuals",
        )
    return fitted
