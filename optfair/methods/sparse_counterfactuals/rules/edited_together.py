"""The rule that some features are edited together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.sparse_counterfactuals.exclusion import exclusion
from optfair.methods.sparse_counterfactuals.rules.choice_target import choice_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["EditedTogether", "edited_together"]


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
