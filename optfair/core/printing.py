"""How a problem shows itself: as text, in LaTeX, with names of entries, and why it has its class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optfair.core import html
from optfair.core.expressions import check_parameters
from optfair.core.term import family
from optfair.errors import DeclarationError, nearest

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


# Entries of variables and constraints that have names of their own.


class Labels:
    """Labels of a problem's entries: none, unless a problem says otherwise."""

    def entry_labels(self, variable: str) -> Sequence[str]:
        """Return the names of a variable's entries, column by column, where they have any."""
        return ()

    def labelled(self, numbers: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """Return numbers by name, found by label too where there are labels.

        Parameters
        ----------
        numbers : mapping
            By variable or constraint.
        what : {"values", "multipliers", "prices"}
            What they are.
        """
        return numbers

    def separated(self, time_limit: float | None = None) -> tuple[Any, tuple[str, ...] | None]:
        """Return this problem with rows that exclude each other as terms, and where to look.

        The second part is None where every term has a name that somebody gave.
        """
        return self, None


class Labelled(Mapping[str, Any]):
    """Numbers by name, which also answer to labels of entries.

    Parameters
    ----------
    entries : mapping
        Numbers by variable or constraint; these are listed.
    find : callable
        Returns what another name stands for among the entries, or None.

    Examples
    --------
    >>> numbers = Labelled({"x": [1.0, 2.0]}, lambda entries, name: {"b": entries["x"][1]}.get(name))
    >>> list(numbers), numbers["b"], numbers.get("c", 0.0)
    (['x'], 2.0, 0.0)
    """

    def __init__(
        self, entries: Mapping[str, Any], find: Callable[[Mapping[str, Any], str], Any]
    ) -> None:
        self._entries, self._find = entries, find

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise DeclarationError(f"no value {name!r}", remedy=nearest(str(name), self._entries))
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return what a name stands for, or the default."""
        found = self._entries[name] if name in self._entries else self._find(self._entries, name)
        return default if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self._entries or (isinstance(name, str) and self.get(name) is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(self._entries)
