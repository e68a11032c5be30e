"""What is to be solved: instances by name or pattern, and problems in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair.core.problem import Problem
from optfair.errors import DataError, nearest
from optfair.formats.read import read
from optfair.formats.table import is_problem_file
from optfair.library import Instance, load, names

if TYPE_CHECKING:
    from optfair.backends.profile import Accept, Refusal, SolverProfile

__all__ = ["Subject", "subjects"]


@dataclass(frozen=True)
class Subject:
    """One problem of a comparison.

    Attributes
    ----------
    name : str
        What it is called in results.
    problem : Problem
        As declared here.
    instance : str
        Name in the problem library, under which another process finds it; else empty.
    stated : float or None
        Its certified optimum.
    """

    name: str
    problem: Problem
    instance: str = ""
    stated: float | None = None

    @property
    def problem_class(self) -> str:
        """Class as it is printed."""
        return str(self.problem.problem_class)

    def answer(self, profile: SolverProfile) -> Accept | Refusal:
        """Return whether a solver takes it."""
        return profile.accepts(self.problem)


def subjects(problems: Any) -> list[Subject]:
    """Return what is meant, each under a name of its own.

    Parameters
    ----------
    problems : str, Problem, Instance, iterable of these, or dict of name to one of these
        A text is the name of an instance, a pattern of names and tags, or a file that
        `optfair.read` knows.

    Raises
    ------
    DataError
        Nothing matches, or it is something else.
    """
    found: dict[str, Subject] = {}
    for name, item in _named(problems):
        for subject in _meant(item, name):
            same = found.get(subject.name)
            if same is not None and subject.instance and same.instance == subject.instance:
                continue  # two patterns may meet
            unique = _free(subject.name, found)
            found[unique] = Subject(unique, subject.problem, subject.instance, subject.stated)
    if not found:
        raise DataError("there is no problem to compare on", remedy="give at least one")
    return list(found.values())


def _named(problems: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(problems, Mapping):
        return [(str(name), item) for name, item in problems.items()]
    if isinstance(problems, (str, Path, Problem, Instance)):
        return [("", problems)]
    if isinstance(problems, Iterable):
        return [("", item) for item in problems]
    return [("", problems)]


def _meant(item: Any, name: str) -> list[Subject]:
    if isinstance(item, Problem):
        return [Subject(name or item.title or type(item).__name__, item)]
    if isinstance(item, Instance):
        # read again elsewhere by its name only if that is the file it came from
        listed = item.name in names() and load(item.name) == item
        known = None if item.optimum is None else item.optimum.value
        return [Subject(name or item.name, item.problem(), item.name if listed else "", known)]
    if isinstance(item, Path) or (isinstance(item, str) and is_problem_file(item)):
        return [Subject(name or Path(item).name, read(item))]
    if isinstance(item, str):
        instances = _matching(item)
        if name and len(instances) > 1:
            raise DataError(
                f"{name!r} stands for {len(instances)} instances",
                f"{item!r} matches " + ", ".join(i.name for i in instances),
                "give patterns in a list, without a name",
            )
        return [subject for i in instances for subject in _meant(i, name)]
    raise DataError(
        f"a {type(item).__name__} is not a problem",
        remedy="give names of instances, or problems; wrap CVXPY's with optfair.from_cvxpy",
    )


def _matching(pattern: str) -> list[Instance]:
    """Return the instances that a name or a pattern of names and tags stands for."""
    known = names()
    if not any(c in pattern for c in "*?["):
        return [load(pattern)]
    instances = [load(name) for name in known]
    found = [i for i in instances if any(fnmatch(word, pattern) for word in (i.name, *i.tags))]
    if not found:
        raise DataError(f"no instance matches {pattern!r}", remedy=nearest(pattern, known))
    return found


def _free(name: str, taken: Mapping[str, Any]) -> str:
    candidate, i = name, 1
    while candidate in taken:
        i += 1
        candidate = f"{name} {i}"
    return candidate
