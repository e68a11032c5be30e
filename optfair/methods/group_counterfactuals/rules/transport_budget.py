"""Rule on how far a map moves a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.group_counterfactuals.rules.map_target import map_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["TransportBudget", "transport_budget"]


@dataclass(frozen=True)
class TransportBudget(Rule):
    """The group moves by at most w2, in the 2-Wasserstein distance of the map."""

    w2: float
    latex = r"\|\mu' - \mu\|^2 + \operatorname{tr}((A - I) \Sigma (A - I)^T) \le r^2"

    def __post_init__(self) -> None:
        try:
            fine = bool(np.isfinite(float(self.w2)) and float(self.w2) > 0)
        except (TypeError, ValueError):
            fine = False
        if not fine:
            raise DeclarationError(
                f"w2={self.w2!r} is not positive", remedy="give a distance in units of the features"
            )

    def bind(self, problem: Problem) -> Any:
        """Return the bound on the squared distance, without feature costs."""
        p = map_target(problem, self)
        eye = np.eye(p.normal.size)
        total = 0.0
        for piece in p.pieces:
            moved = cp.sum_squares(piece.mean - piece.moments.mean)
            turned = cp.sum_squares((piece.matrix - eye) @ piece.moments.root)
            total = total + piece.weight * (moved + turned)
        return total <= float(self.w2) ** 2


def transport_budget(w2: float) -> TransportBudget:
    r"""Bound the distance that the group moves by ``w2``.

    .. math:: \|\mu' - \mu\|^2 + \operatorname{tr}((A - I) \Sigma (A - I)^T) \le r^2

    Class: QCQP. Where the target cannot be reached within the budget, the error says how
    far one can get. With feature costs in the objective the budget still counts plain
    distances.

    Parameters
    ----------
    w2 : float
        r > 0, the root of the mean squared distance, in units of the features.

    Returns
    -------
    TransportBudget

    Raises
    ------
    DeclarationError
        Not a positive number.

    Examples
    --------
    >>> transport_budget(1.5)
    TransportBudget(w2=1.5)
    """
    return TransportBudget(w2)
