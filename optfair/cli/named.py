"""What a command is about: an instance of the library, or a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.library.instance import Instance

__all__ = ["Named", "named"]


@dataclass(frozen=True, eq=False)
class Named:
    """A problem and what it is called.

    Attributes
    ----------
    name : str
        Of the instance, or of the file.
    problem : Problem
    instance : Instance or None
        None for a file, of which nothing is known but the problem.
    """

    name: str
    problem: Problem
    instance: Instance | None = None


def named(name: str) -> Named:
    """Return the instance of a name, or what a file holds whose ending is known.

    Raises
    ------
    DataError
        No instance has this name; the file is missing or corrupt.
    """
    from optfair.formats.read import read
    from optfair.formats.table import is_problem_file
    from optfair.library import load

    if is_problem_file(name):
        return Named(name, read(name))
    instance = load(name)
    return Named(instance.name, instance.problem(), instance)
