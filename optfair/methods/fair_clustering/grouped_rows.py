"""Problems on rows that belong to groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.problem import Problem
from optfair.core.rule import Rule
from optfair.errors import DeclarationError

Floats = NDArray[np.float64]

__all__ = ["GroupedRows"]


class GroupedRows(Problem):
    """Problem whose data name a group for each row, declared with a rule of fairness.

    Models put ``groups``, ``group_names`` and ``shares`` into their data, as `encode_groups`
    returns them.
    """

    @property
    def group_names(self) -> NDArray[Any]:
        """Sorted group labels."""
        return np.asarray(self.data["group_names"])

    @property
    def shares(self) -> Floats:
        """Weight share of each group."""
        return np.asarray(self.data["shares"])

    def _add_fairness(self, fairness: Rule | None, example: str) -> None:
        """Bind the rule that was given with the declaration, if any."""
        if fairness is None:
            return
        if not isinstance(fairness, Rule):
            raise DeclarationError(
                f"fairness is a {type(fairness).__name__}, not a rule",
                remedy=f"give a rule such as optfair.{example}, or None and add constraints after",
            )
        self._set(constraints=self.with_constraints(fairness=fairness).constraints)
