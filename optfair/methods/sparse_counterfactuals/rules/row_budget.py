"""The rule that bounds the edits of single rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.fair_clustering.rules.target import finite_vector
from optfair.methods.sparse_counterfactuals.exclusion import exclusion
from optfair.methods.sparse_counterfactuals.rules.choice_target import choice_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["RowBudget", "row_budget"]


@dataclass(frozen=True)
class RowBudget(Rule):
    """The edits of a row cost at most so much."""

    most: Any
    latex = r"\textstyle\sum_S c(S)\, a_{iS} \le b_i"

    def bind(self, problem: Problem) -> Any:
        """Return the term that leaves dearer choices out."""
        p = choice_target(problem, self)
        most = finite_vector(self.most, p.choices.rows, "row_budget")
        if (most < 0.0).any():
            raise DeclarationError(
                f"row_budget is {most.min():g} in some row",
                "no edits cost 0, and no choice costs less",
                "give numbers from 0 on",
            )
        # a cost that passes its budget by rounding is within it
        room = most[p.choices.row] * (1.0 + 1e-12)
        return exclusion(p, np.asarray(p.choices.costs > room))


def row_budget(most: Any) -> RowBudget:
    r"""Bound the cost of the edits of every row: their number by default.

    .. math:: \sum_S c(S)\, a_{iS} \le b_i

    Class: LP. On integer choices it leaves out the dearer ones, and that is how it is stated:
    its relaxation is tighter than the sum.

    Parameters
    ----------
    most : float or array-like (n,)
        b: one number, or one per row, in units of the costs.

    Returns
    -------
    RowBudget

    Raises
    ------
    DeclarationError
        When bound: numbers that do not fit or are negative, a problem without edits.

    Examples
    --------
    >>> from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan
    >>> edits = [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> effects = [[-0.5, -0.1, -0.4, 0.0], [-0.6, -0.5, -0.4, 0.0]]
    >>> p = ActionPlan(effects, edits, budget=3).with_constraints(each=row_budget(1))
    >>> s = p.solve()
    >>> s.solver, round(s.objective, 9), p.edits(s).sum(axis=1).tolist()
    ('action-dp', 0.5, [1, 1])
    """
    return RowBudget(most)
