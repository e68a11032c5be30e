"""A structure is a promise about a problem's terms that a special algorithm relies on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from optfair.core.term import ConstraintTerm, ObjectiveTerm

__all__ = ["LAZY_ROWS", "PROVED_TERMS", "Structure"]


@dataclass(frozen=True)
class Structure:
    """Which terms a special algorithm needs and which it tolerates.

    Parameters
    ----------
    name : str
        Name that solver profiles refer to.
    needs : tuple of str
        Model terms that must be present.
    tolerates : frozenset of str or None
        Variables that further convex terms may use; none when empty, any for None.
    stranger : str
        How a term outside is described: "'share' is not a marginal".
    rows : bool
        Whether some term must be one that can be built row by row.
    proof : bool
        Whether some term must be one that is proved beyond composition rules.
    """

    name: str
    needs: tuple[str, ...]
    tolerates: frozenset[str] | None
    stranger: str
    rows: bool = False
    proof: bool = False

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
        if self.rows and not any(getattr(t, "rows", None) for t in terms):
            return "no term of it is built row by row"
        if self.proof and not any(t.evidence.proof is not None for t in terms):
            return "composition rules decide every term of it"
        for name in integers:
            return f"{name!r} is integer"
        for term in terms:
            if term.name in self.needs:
                continue
            if self.tolerates is not None and not term.scope <= self.tolerates:
                return f"{term.name!r} is not {self.stranger}"
            if not term.evidence.problem_class.convex:
                return f"{term.name!r} is not known to be convex"
        return ""


#: Terms proved convex beyond composition rules, beside any other convex terms.
PROVED_TERMS = Structure("proved-terms", (), None, "", proof=True)

#: Terms of many rows that are generated as they are needed, beside any other convex terms.
LAZY_ROWS = Structure("many-rows", (), None, "", rows=True)
