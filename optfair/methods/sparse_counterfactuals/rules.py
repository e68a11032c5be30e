"""Rules on the edits of single rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.composition import Rule
from optfair.errors import DeclarationError
from optfair.methods.fair_clustering.rules import finite_vector
from optfair.methods.sparse_counterfactuals.choice_problem import ChoiceProblem, exclusion
from optfair.numbers import check_names, checked

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["edited_together", "implies", "row_budget"]


# What rules on edits need of a problem.


def choice_target(problem: Problem, rule: Rule) -> ChoiceProblem:
    """Return the problem as one that chooses edits.

    Raises
    ------
    DeclarationError
        It chooses none.
    """
    if not isinstance(problem, ChoiceProblem):
        raise DeclarationError(
            f"{type(rule).__name__} is a rule on edits",
            f"this problem has the variables {', '.join(problem.variables)}",
            "use it with ActionPlan or MinimumEdits",
        )
    return problem


# The rule that some features are edited together or not at all.


@dataclass(frozen=True)
class EditedTogether(Rule):
    """Features that are edited together or not at all."""

    features: tuple[Any, ...]
    latex = r"S \cap G \in \{\emptyset, G\}"

    def __post_init__(self) -> None:
        if len(self.features) < 2:
            raise DeclarationError(
                "edited_together needs two features", remedy="name the columns of the group"
            )

    def bind(self, problem: Problem) -> Any:
        """Return the term that leaves out choices with a part of the edits."""
        p = choice_target(problem, self)
        group = p.feature_indices(self.features)
        c = p.choices
        count = c.edits[:, group].sum(axis=1)
        whole = c.editable[:, group].sum(axis=1)[c.row]
        return exclusion(p, np.asarray((count > 0) & (count < whole)))


@checked(features=check_names)
def edited_together(features: Sequence[Any]) -> EditedTogether:
    r"""Features that are edited together or not at all, such as the columns of one category.

    .. math:: S \cap G \in \{\emptyset,\; G \cap D_i\}

    with D_i the features that differ in row i. Half a change of a one-hot encoded category
    would leave a row with two categories or with none.

    Class: LP.

    Parameters
    ----------
    features : sequence of str or int
        The group G, by names or columns.

    Returns
    -------
    EditedTogether

    Raises
    ------
    DeclarationError
        Fewer than two features; when bound, a problem without edits.
    DataError
        When bound: an unknown feature, or one named twice.

    Examples
    --------
    >>> from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan
    >>> score = lambda rows: rows @ [0.2, 0.1, 0.5]
    >>> p = ActionPlan.from_model(
    ...     score, [[0.0, 1.0, 0.0]], [[1.0, 0.0, 1.0]], target=0.8, budget=2
    ... )
    >>> alone = p.solve()
    >>> p.refined(alone).tolist()
    [[1.0, 1.0, 1.0]]
    >>> q = p.with_constraints(category=edited_together([1, 2]))
    >>> q.refined(q.solve()).tolist()
    [[0.0, 0.0, 1.0]]
    """
    return EditedTogether((features,) if isinstance(features, str) else tuple(features))


# The rule that an edit of one feature asks for an edit of another.


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


# The rule that bounds the edits of single rows.


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
