"""How a problem shows itself: as text, and in LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optfair.core.term import family

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["describe", "formulation"]


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
