"""Rules on features that take whole numbers, or one of several categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp

from optfair.core.rule import Parts, Rule
from optfair.errors import DeclarationError
from optfair.features.feature_problem import FeatureProblem
from optfair.features.rules.features import feature_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["OneHot", "WholeNumbers", "one_hot", "whole_numbers"]


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
