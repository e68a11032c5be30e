"""A structure is a promise about a problem's terms that a special algorithm relies on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from optfair.core.term import ConstraintTerm, ObjectiveTerm

__all__ = ["Structure"]


@dataclass(frozen=True)
class Structure:
    """Which terms a special algorithm needs and which it tolerates.

    Parameters
    ----------
    name : str
        Name that solver profiles refer to.
    needs : tuple of str
        Model terms that must be present.
    tolerates : frozenset of str
        Variables that further convex terms may use; none when empty.
    stranger : str
        How a term outside is described: "'share' is not a marginal".
    """

    name: str
    needs: tuple[str, ...]
    tolerates: frozenset[str]
    stranger: str

    def refusal(
        self,
        objective: Iterable[ObjectiveTerm],
        constraints: Iterable[ConstraintTerm],
        integers: Iterable[str],
    ) -> str:
        """Return why the structure is lost, or an empty string while it stands."""
        terms = [*objective, *constraints]
        present = {t.name for t in terms if t.origin == "model"}
        missing = [name for name in self.needs if name not in present]
        if missing:
            return f"{missing[0]!r} was removed"
        for name in integers:
            return f"{name!r} is integer"
        for term in terms:
            if term.name in self.needs:
                continue
            if not term.scope <= self.tolerates:
                return f"{term.name!r} is not {self.stranger}"
            if not term.evidence.problem_class.convex:
                return f"{term.name!r} is not known to be convex"
        return ""
