"""Ready-made constraints that are values until a problem binds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["Parts", "Rule"]


class Parts(dict[str, Any]):
    """Constraints by part that come with variables of their own.

    Parameters
    ----------
    constraints : mapping
        Part -> CVXPY constraint or `ConstraintTerm`.
    variables : mapping
        Part -> CVXPY variable; bound under ``name.part``, and gone with ``without(name)``.
    integers : iterable of str
        Those of the variables that are integer.
    limits : mapping
        Part -> limit that the rule had to guess to write it; see `ConstraintTerm`.
    """

    def __init__(
        self,
        constraints: Mapping[str, Any],
        variables: Mapping[str, Any] | None = None,
        integers: Iterable[str] = (),
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(constraints)
        self.variables = dict(variables or {})
        self.integers = frozenset(integers)
        self.limits = dict(limits or {})

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> Parts:
        """Return constraints by part as they are, or as ones without variables of their own."""
        return parts if isinstance(parts, Parts) else cls(parts)


class Rule(ABC):
    """A constraint that knows how to write itself on a problem.

    Subclasses are frozen dataclasses; `bind` returns one CVXPY constraint, or several by
    part name. Bound with ``problem.with_constraints(name=rule)``.
    """

    #: what the rule says, for notebooks
    latex: str = ""

    @abstractmethod
    def bind(self, problem: Problem) -> Any:
        """Return what the rule says on the problem's variables.

        Returns
        -------
        CVXPY constraint, ConstraintTerm, list, dict by part, or Parts
            A `ConstraintTerm` states its own evidence and is not analysed, for rules whose
            rows grow with the data; `Parts` bring variables of their own.

        Raises
        ------
        DeclarationError
            The rule does not fit the problem.
        """
