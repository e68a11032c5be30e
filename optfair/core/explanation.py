"""Text about the class of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optfair.core.parameters import check_parameters

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["Explanation", "explain", "explain_change"]


class Explanation(str):
    """Text that shows itself line by line when typed at a prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(problem: Problem) -> Explanation:
    """Return one row of evidence per term, and the class they join to."""
    check_parameters(problem.terms)
    rows = [str(row) for row in problem.evidence]
    rows.append(f"together: {problem.problem_class}")
    if problem.witness is not None:
        rows.append(f"witness: {problem.witness}")
    return Explanation("\n".join(rows))


def explain_change(new: Problem, old: Problem) -> Explanation:
    """Return which terms moved the class from the old problem to the new one."""
    check_parameters((*new.terms, *old.terms))
    before, after = old.problem_class, new.problem_class
    lost = [t.name for t in old.terms if t.name not in {u.name for u in new.terms}]
    if before == after:
        return Explanation(f"{before} stays {after}")
    reasons = []
    if after <= before:
        gone = [str(t.evidence) for t in old.terms if t.name in lost]
        gone += [f"{name!r} is integer" for name in sorted(old.integers - new.integers)]
        reasons = [f"these are gone: {'; '.join(gone)}"]
    else:
        old_terms = {id(t) for t in old.terms}
        for t in new.terms:
            if id(t) not in old_terms and not (t.evidence.problem_class <= before):
                reasons.append(f"{t.name!r} is {t.evidence.function} in {t.evidence.set}")
        reasons += [f"{name!r} is integer" for name in sorted(new.integers - old.integers)]
        if not reasons:
            reasons = ["a witness was found" if new.witness else "no witness stands any more"]
    return Explanation(f"{before} -> {after} because {' and '.join(reasons)}")
