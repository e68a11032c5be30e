"""The rule that an edit of one feature asks for an edit of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.sparse_counterfactuals.exclusion import exclusion
from optfair.methods.sparse_counterfactuals.rules.choice_target import choice_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["Implies", "implies"]


@dataclass(frozen=True)
class Implies(Rule):
    """Whoever edits the first feature edits the second."""

    first: Any
    second: Any
    latex = r"j \in S \Rightarrow k \in S"

    def bind(self, problem: Problem) -> Any:
        """Return the term that leaves out choices with the first edit alone."""
        p = choice_target(problem, self)
        j, k = p.feature_index(self.first), p.feature_index(self.second)
        if j == k:
            raise DeclarationError(f"{p.features[j]!r} implies itself", remedy="name two features")
        c = p.choices
        able = c.editable[c.row, k]
        return exclusion(p, c.edits[:, j] & able & ~c.edits[:, k])


def implies(first: Any, second: Any) -> Implies:
    r"""Whoever edits ``first`` edits ``second`` too.

    .. math:: j \in S \Rightarrow k \in S

    Class: LP. In a row where ``second`` has its new value already there is nothing to edit,
    and the rule holds.

    Parameters
    ----------
    first, second : str or int
        Features, by name or column.

    Returns
    -------
    Implies

    Raises
    ------
    DeclarationError
        When bound: one feature twice, a problem without edits.
    DataError
        When bound: an unknown feature.

    Examples
    --------
    >>> from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan
    >>> edits = [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> effects = [[-0.5, -0.1, -0.4, 0.0], [-0.6, -0.5, -0.4, 0.0]]
    >>> p = ActionPlan(effects, edits, budget=3, features=["loan", "duration"])
    >>> s = p.with_constraints(both=implies("loan", "duration")).solve()
    >>> s.solver, round(s.objective, 9), p.edits(s).astype(int).tolist()
    ('action-dp', 0.4, [[1, 1], [0, 1]])
    """
    return Implies(first, second)
