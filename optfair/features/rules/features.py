"""Rules on what may happen to single features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.features.feature_problem import FeatureProblem

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["Box", "Immutable", "Monotone", "box", "feature_target", "immutable", "monotone"]


def feature_target(problem: Problem, rule: Rule) -> FeatureProblem:
    """Return the problem as one that moves features.

    Raises
    ------
    DeclarationError
        It moves none.
    """
    if not isinstance(problem, FeatureProblem):
        raise DeclarationError(
            f"{type(rule).__name__} is a rule on features",
            f"this problem has the variables {', '.join(problem.variables)}",
            "use it with a problem of counterfactuals or of a map",
        )
    return problem


@dataclass(frozen=True)
class Immutable(Rule):
    """Features that stay as they are."""

    features: tuple[Any, ...]
    latex = r"g(x)_j = x_j"

    def __post_init__(self) -> None:
        if not self.features:
            raise DeclarationError("immutable names no feature", remedy="name at least one")

    def bind(self, problem: Problem) -> Any:
        """Return what keeps the features."""
        p = feature_target(problem, self)
        return p.fixed(p.feature_indices(self.features))


@dataclass(frozen=True)
class Box(Rule):
    """Features that end between bounds."""

    bounds: tuple[tuple[Any, float, float], ...]
    latex = r"l_j \le g(x)_j \le u_j"

    def bind(self, problem: Problem) -> Any:
        """Return the bounds of the features."""
        p = feature_target(problem, self)
        indices = p.feature_indices(f for f, _, _ in self.bounds)
        _, lower, upper = zip(*self.bounds, strict=True)
        return p.within(indices, np.array(lower, dtype=float), np.array(upper, dtype=float))


@dataclass(frozen=True)
class Monotone(Rule):
    """Features that only grow, or only shrink."""

    increasing: tuple[Any, ...] = ()
    decreasing: tuple[Any, ...] = ()
    latex = r"\pm (g(x)_j - x_j) \ge 0"

    def __post_init__(self) -> None:
        if not self.increasing and not self.decreasing:
            raise DeclarationError("monotone names no feature", remedy="name at least one")

    def bind(self, problem: Problem) -> Any:
        """Return the directions of the features."""
        p = feature_target(problem, self)
        indices = p.feature_indices((*self.increasing, *self.decreasing))
        ups, downs = len(self.increasing), len(self.decreasing)
        return p.moves(indices, np.repeat([1.0, -1.0], [ups, downs]))


def immutable(*features: Any) -> Immutable:
    r"""Features that stay as they are.

    .. math:: g(x)_j = x_j

    Class: LP. Of a map, it holds for every point and not for the members alone.

    Parameters
    ----------
    *features : str or int
        Names or columns.

    Returns
    -------
    Immutable
        A rule for ``with_constraints``.

    Raises
    ------
    DeclarationError
        No feature named.
    DataError
        When bound: an unknown feature, or one named twice.

    Examples
    --------
    >>> immutable("age", "sex")
    Immutable(features=('age', 'sex'))
    """
    return Immutable(features)


def box(bounds: Mapping[Any, tuple[float | None, float | None]]) -> Box:
    r"""Features that end between bounds.

    .. math:: l_j \le g(x)_j \le u_j

    Class: LP. Of a map, it holds for the members; an affine map that is not constant in a
    feature leaves every box somewhere.

    Parameters
    ----------
    bounds : dict
        Feature, by name or column -> (lower, upper) in its units; None where there is no bound.

    Returns
    -------
    Box
        Its terms are called ``name.feature lower`` and ``name.feature upper``.

    Raises
    ------
    DeclarationError
        A bound that is no number, lower above upper, nothing bounded.

    Examples
    --------
    >>> box({"income": (0, None), "hours": (0, 60)})
    Box(bounds=(('income', 0.0, inf), ('hours', 0.0, 60.0)))
    """
    if not isinstance(bounds, Mapping) or not bounds:
        raise DeclarationError(
            "box names no feature", remedy="give a dict: box({'hours': (0, 60)})"
        )
    rows = []
    for feature, pair in bounds.items():
        try:
            low, high = pair
            lower = -np.inf if low is None else float(low)
            upper = np.inf if high is None else float(high)
        except (TypeError, ValueError):
            raise DeclarationError(
                f"the bounds of {feature!r} are {pair!r}",
                remedy="give (lower, upper), with None where there is no bound",
            ) from None
        if not lower <= upper or lower == np.inf or upper == -np.inf:
            raise DeclarationError(
                f"the bounds [{lower:g}, {upper:g}] of {feature!r} are no interval",
                remedy="give lower <= upper",
            )
        if np.isinf(lower) and np.isinf(upper):
            raise DeclarationError(
                f"the box of {feature!r} has no bound", remedy="give one, or leave the feature out"
            )
        rows.append((feature, lower, upper))
    return Box(tuple(rows))


def monotone(increasing: Any = (), decreasing: Any = ()) -> Monotone:
    r"""Features that only grow, or only shrink.

    .. math:: g(x)_j \ge x_j \quad\text{or}\quad g(x)_j \le x_j

    Class: LP. Of a map, it holds for the members.

    Parameters
    ----------
    increasing, decreasing : feature or sequence of features
        Names or columns.

    Returns
    -------
    Monotone

    Raises
    ------
    DeclarationError
        No feature named.
    DataError
        When bound: an unknown feature, or one named twice.

    Examples
    --------
    >>> monotone(increasing=("education",), decreasing="debt")
    Monotone(increasing=('education',), decreasing=('debt',))
    """
    return Monotone(_several(increasing), _several(decreasing))


def _several(features: Any) -> tuple[Any, ...]:
    one = isinstance(features, (str, int, np.integer))
    return (features,) if one else tuple(features)
