"""Rules on how many features change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from optfair.core.rule import Parts, Rule
from optfair.errors import DeclarationError
from optfair.features.rules.features import feature_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["AtMostChanges", "at_most_changes"]


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
