"""Rules on one point: how many features change, where data are, whole numbers and categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from optfair.core.composition import Parts, Rule
from optfair.errors import DeclarationError
from optfair.features.feature_problem import FeatureProblem, feature_target
from optfair.numbers import check_count, check_number, checked

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = [
    "AtMostChanges",
    "LeastDensity",
    "OneHot",
    "WholeNumbers",
    "at_most_changes",
    "least_density",
    "one_hot",
    "whole_numbers",
]


# Rules on how many features change.


@dataclass(frozen=True)
class AtMostChanges(Rule):
    """At most so many features change; None counts them and does not bound the number."""

    most: int | None = None
    latex = r"\textstyle\sum_j b_j \le s,\; (l_j - y_j) b_j \le z_j - y_j \le (u_j - y_j) b_j"

    def __post_init__(self) -> None:
        whole = isinstance(self.most, (int, np.integer)) and not isinstance(self.most, bool)
        if self.most is not None and not (whole and self.most >= 0):
            raise DeclarationError(
                f"{self.most!r} is not a number of features", remedy="give a whole number >= 0"
            )

    def bind(self, problem: Problem) -> Any:
        """Return the flags of changed features and what ties them to the point."""
        p: Any = feature_target(problem, self)
        if not hasattr(p, "limits"):
            raise DeclarationError(
                f"{type(self).__name__} needs a problem of one point",
                f"this is a {type(p).__name__}",
                "use it with a ClusterCounterfactual",
            )
        lower, upper = p.limits
        y, z = p.factual, p["point"]
        loose = [p.features[j] for j in np.flatnonzero(~(np.isfinite(lower) & np.isfinite(upper)))]
        if loose:
            raise DeclarationError(
                "changes cannot be counted without bounds on every feature that may change",
                f"there are none for {', '.join(map(repr, loose[:10]))}",
                "give lower= and upper=, e.g. the range of the data, before counting changes",
            )
        b = cp.Variable(y.size, name="changed")
        constraints = {
            "up": z - y <= cp.multiply(upper - y, b),
            "down": y - z <= cp.multiply(y - lower, b),
            "zero": b >= 0,
            "one": b <= 1,
        }
        if self.most is not None:
            constraints["count"] = cp.sum(b) <= float(self.most)
        return Parts(constraints, {"changed": b}, {"changed"})


@checked(most=check_count)
def at_most_changes(most: int) -> AtMostChanges:
    r"""At most so many features change.

    .. math::
        \sum_j b_j \le s,\quad (l_j - y_j)\, b_j \le z_j - y_j \le (u_j - y_j)\, b_j,
        \quad b \in \{0, 1\}^d

    Class: MILP. The bounds l, u on the features must be there before this rule: they say how
    far a feature moves when it changes.

    Parameters
    ----------
    most : int
        s.

    Returns
    -------
    AtMostChanges
        Its flags are the variable ``name.changed``.

    Raises
    ------
    DeclarationError
        No whole number, or a feature without bounds.

    Examples
    --------
    >>> at_most_changes(2)
    AtMostChanges(most=2)
    """
    return AtMostChanges(most)


# Rules that keep a point where data are.


@dataclass(frozen=True)
class LeastDensity(Rule):
    """The target cluster's density at the point is at least this."""

    density: float
    latex = r"p_t(z) \ge \delta"

    def bind(self, problem: Problem) -> Any:
        """Return the ellipsoid of the target."""
        p: Any = problem
        if not hasattr(p, "dense"):
            raise DeclarationError(
                "least_density is a rule on counterfactuals of Gaussian clusters",
                f"this problem has the variables {', '.join(problem.variables)}",
                "use it with ClusterCounterfactual.gaussian",
            )
        return p.dense(self.density)


@checked(density=check_number)
def least_density(density: float) -> LeastDensity:
    r"""Density of the target cluster at the counterfactual is at least δ.

    .. math::
        p_t(z) \ge \delta \iff
        \tfrac12 (z - m_t)^T \Sigma_t^{-1} (z - m_t) \le \log p_t(m_t) - \log\delta

    An ellipsoid. Class: convex QCQP.

    Parameters
    ----------
    density : float
        δ > 0, at most the density at the mean of the target.

    Returns
    -------
    LeastDensity

    Raises
    ------
    DeclarationError
        When bound: clusters that have no density, or a density that is nowhere reached.

    Examples
    --------
    >>> least_density(0.01)
    LeastDensity(density=0.01)
    """
    return LeastDensity(density)


# Rules on features that take whole numbers, or one of several categories.


def _point(problem: Problem, rule: Rule) -> tuple[FeatureProblem, Any]:
    p = feature_target(problem, rule)
    if "point" not in p.variables:
        raise DeclarationError(
            f"{type(rule).__name__} needs a problem of one point",
            f"this one has {', '.join(p.variables)}",
            "use it with a ClusterCounterfactual",
        )
    return p, p["point"]


@dataclass(frozen=True)
class WholeNumbers(Rule):
    """Features that take whole numbers."""

    features: tuple[Any, ...]
    latex = r"z_j \in \mathbb{Z}"

    def __post_init__(self) -> None:
        if not self.features:
            raise DeclarationError("whole_numbers names no feature", remedy="name at least one")

    def bind(self, problem: Problem) -> Any:
        """Return an integer copy of the features."""
        p, z = _point(problem, self)
        at = p.feature_indices(self.features)
        whole = cp.Variable(at.size, name="whole")
        return Parts({"copy": z[at] == whole}, {"whole": whole}, {"whole"})


@dataclass(frozen=True)
class OneHot(Rule):
    """Features of which exactly one is 1 and the others are 0."""

    features: tuple[Any, ...]
    latex = r"z_J \in \{0, 1\}^J,\; \textstyle\sum_{j \in J} z_j = 1"

    def __post_init__(self) -> None:
        if len(self.features) < 2:
            raise DeclarationError(
                f"one_hot has {len(self.features)} feature(s)", remedy="name at least two"
            )

    def bind(self, problem: Problem) -> Any:
        """Return a binary copy of the features that sums to 1."""
        p, z = _point(problem, self)
        at = p.feature_indices(self.features)
        choice = cp.Variable(at.size, name="choice")
        return Parts(
            {
                "copy": z[at] == choice,
                "one": cp.sum(choice) == 1,
                "lower": choice >= 0,
                "upper": choice <= 1,
            },
            {"choice": choice},
            {"choice"},
        )


def whole_numbers(*features: Any) -> WholeNumbers:
    r"""Features that take whole numbers.

    .. math:: z_j \in \mathbb{Z}

    Class: makes a QP a MIQP, an LP a MILP.

    Parameters
    ----------
    *features : str or int
        Names or columns, in whole units: scaled features are not whole.

    Returns
    -------
    WholeNumbers
        Its integers are the variable ``name.whole``.

    Examples
    --------
    >>> whole_numbers("children")
    WholeNumbers(features=('children',))
    """
    return WholeNumbers(features)


def one_hot(*features: Any) -> OneHot:
    r"""Features that encode one category: exactly one is 1, the others are 0.

    .. math:: z_J \in \{0, 1\}^J,\quad \sum_{j \in J} z_j = 1

    Class: makes a QP a MIQP, an LP a MILP.

    Parameters
    ----------
    *features : str or int
        Names or columns of one group; a rule per group.

    Returns
    -------
    OneHot
        Its flags are the variable ``name.choice``.

    Examples
    --------
    >>> one_hot("owns", "rents")
    OneHot(features=('owns', 'rents'))
    """
    return OneHot(features)
