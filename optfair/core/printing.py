"""How a problem shows itself: as text, in LaTeX, with names of entries, and why it has its class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optfair.core import html
from optfair.core.expressions import check_parameters
from optfair.core.term import family

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# How a problem shows itself: as text, and in LaTeX.


def describe(problem: Problem) -> str:
    """Return class, sizes, objective and constraint names, one line each."""
    called = problem.title or type(problem).__name__
    sizes = ", ".join(
        f"{name} {'x'.join(map(str, v.shape)) or 'scalar'}" for name, v in problem.variables.items()
    )
    rows = ", ".join(repr(name) for name in problem.constraints) or "none"
    goal = " + ".join(problem.objective) or "0"
    return (
        f"{called}: {problem.problem_class}\n"
        f"  variables    {sizes}\n"
        f"  {problem.sense:<12} {goal}\n"
        f"  constraints  {rows}"
    )


def formulation(problem: Problem) -> str:
    """Return the problem in LaTeX, as notebooks show it."""
    word = r"\min" if problem.sense == "minimize" else r"\max"
    goal = " + ".join(t.formula for t in problem.objective.values()) or "0"
    lines = [rf"{word}\quad & {goal} &&"]
    seen: set[str] = set()
    for i, t in enumerate(problem.constraints.values()):
        latex = t.formula
        if latex in seen:
            continue
        seen.add(latex)
        lead = r"\text{s.t.}\quad & " if i == 0 else "& "
        lines.append(rf"{lead}{latex} && \text{{({family(t.name)})}}")
    body = " \\\\\n".join(lines)
    return f"$$\\begin{{aligned}}\n{body}\n\\end{{aligned}}$$"


# Text about the class of a problem.


class Explanation(str):
    """Text that shows itself line by line when typed at a prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = (line.partition(": ") for line in str(self).splitlines())
        return html.table(("term", "what it is"), ((name, said) for name, _, said in rows))


def explain(problem: Problem) -> Explanation:
    """Return one row of evidence per term, and the class they join to."""
    check_parameters(problem.terms)
    rows = [str(row) for row in problem.evidence]
    rows.append(f"together: {problem.problem_class}")
    if problem.recast is not None:
        rows.append(str(problem.recast))
    elif problem.witness is not None:
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
