"""Ready-made constraints that are values until a problem binds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["Rule"]


class Rule(ABC):
    """A constraint that knows how to write itself on a problem.

    Subclasses are frozen dataclasses; `bind` returns one CVXPY constraint, or several by
    part name. Bound with ``problem.with_constraints(name=rule)``.
    """

    #: what the rule says, for notebooks
    latex: str = ""

    @abstractmethod
    def bind(self, problem: Problem) -> Any:
        """Return a CVXPY constraint on the problem's variables, or a dict of them by part.

        Raises
        ------
        DeclarationError
            The rule does not fit the problem.
        """
