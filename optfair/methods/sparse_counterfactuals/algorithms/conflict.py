"""No plan satisfies the rules: which of them, as a certificate that can be verified again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from optfair.core.certificate import Certificate, Verdict
from optfair.errors import Infeasible
from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan
from optfair.methods.sparse_counterfactuals.algorithms.table import RowTable
from optfair.methods.sparse_counterfactuals.choice_problem import ChoiceProblem
from optfair.methods.sparse_counterfactuals.minimum_edits import MinimumEdits

__all__ = ["ChoiceConflict", "reached", "refuse_conflict"]

# Rounding of a sum of effects that still counts as reaching a level.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class ChoiceConflict(Certificate):
    """Terms that exclude each other, by counting.

    Attributes
    ----------
    problem : ChoiceProblem
        Whose terms they are.
    conflict : tuple of str
        Their names.
    """

    problem: ChoiceProblem
    conflict: tuple[str, ...]

    def verify(self) -> Verdict:
        """Look for a plan under these terms alone."""
        missing = [name for name in self.conflict if name not in self.problem.constraints]
        if missing:
            return Verdict(False, (f"{missing[0]!r} is not a term any more",))
        why = _impossible(self.problem, self.conflict)
        return Verdict(bool(why), () if why else ("these terms leave a plan",))

    def __str__(self) -> str:
        return _impossible(self.problem, self.conflict)

    __repr__ = __str__


def reached(level: float, left: float) -> bool:
    """Whether a sum of effects, counted in the wanted direction, is near enough to the target."""
    return level >= -left - ROUNDING * (1.0 + left)


def refuse_conflict(problem: ChoiceProblem, table: RowTable) -> None:
    """Raise when no plan satisfies the rules.

    Raises
    ------
    Infeasible
        With terms none of which could be left out.
    """
    exclusions = problem.exclusions()
    names = [*exclusions] if not isinstance(exclusions, str) else []
    names += [n for n in ("budget", "effect") if n in problem.constraints]
    if not _impossible(problem, names, table):
        return
    for name in list(names):
        fewer = [n for n in names if n != name]
        if _impossible(problem, fewer):
            names = fewer
    certificate = ChoiceConflict(problem, ("one choice", *names))
    raise Infeasible(
        f"these constraints exclude each other: {', '.join(map(repr, certificate.conflict))}",
        str(certificate),
        f"remove or loosen one of {', '.join(map(repr, names))}",
        certificate=certificate,
        conflict=certificate.conflict,
    )


def _impossible(problem: ChoiceProblem, names: Iterable[str], table: RowTable | None = None) -> str:
    """Return why no plan satisfies these terms, empty when one may."""
    active = set(names)
    exclusions = problem.exclusions()
    if isinstance(exclusions, str):
        return ""
    if table is None:
        table = RowTable.of(problem, [n for n in exclusions if n in active])
    bare = np.flatnonzero(np.isinf(table.lower).all(axis=1))
    if bare.size:
        return f"row {int(bare[0])} is left without a choice"
    least = float(table.cheapest.sum()) * table.unit
    if isinstance(problem, ActionPlan) and "budget" in active:
        budget = problem.budget
        if least > budget * (1.0 + 1e-9):
            return f"the cheapest plan costs {least:g}, the budget is {budget:g}"
    if isinstance(problem, MinimumEdits) and "effect" in active:
        ends = table.upper.max(axis=1) if problem.direction > 0 else -table.lower.min(axis=1)
        total = float(ends.sum())
        if not reached(total, problem.missing):
            share = 1.0 + min(total, 0.0) / abs(problem.choices.unedited)
            return f"the choices that are left reach an effect of {share:.4g}"
    return ""
