"""Every error optfair raises: what is wrong, the evidence, and what to do about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from optfair.core.certificate import Certificate


class OptfairError(Exception):
    """Base of all optfair errors.

    Parameters
    ----------
    cause : str
        What is wrong, in the names the user typed.
    evidence : str
        What was seen that shows it.
    remedy : str
        What to do next.
    """

    def __init__(self, cause: str, evidence: str = "", remedy: str = "") -> None:
        super().__init__(cause, evidence, remedy)
        self.cause = cause
        self.evidence = evidence
        self.remedy = remedy

    def __str__(self) -> str:
        lines = [self.cause]
        if self.evidence:
            lines.append(f"  why: {self.evidence}")
        if self.remedy:
            lines.append(f"  do:  {self.remedy}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, str]:
        """Return the three parts and the kind, for JSON output."""
        return {
            "error": type(self).__name__,
            "cause": self.cause,
            "evidence": self.evidence,
            "remedy": self.remedy,
        }


class DeclarationError(OptfairError, ValueError):
    """A problem, term or rule that cannot be declared as written."""


class NoSuchResult(DeclarationError, AttributeError):
    """A fitted attribute that this fit does not have: to ``hasattr`` it is not there."""


class NoSuchName(DeclarationError, KeyError):
    """A name that a mapping does not have: to whoever expects a ``KeyError`` it is one."""


class ClassError(OptfairError):
    """The class of the problem is not what the operation needs."""


class UnsupportedProblem(OptfairError):
    """No solver, or not the one asked for, takes this problem."""


class NotInstalled(OptfairError, ImportError):
    """The solver or optional package is not installed."""


class NotLicensed(OptfairError):
    """The solver is installed but has no licence to solve."""


class SizeLimited(OptfairError):
    """The licence at hand does not allow a problem of this size."""


class Infeasible(OptfairError):
    """No point satisfies the constraints: that is proved.

    Attributes
    ----------
    certificate : Certificate or None
        Evidence that can be verified again.
    conflict : tuple of str
        Names of the terms that cannot hold together.
    """

    def __init__(
        self,
        cause: str,
        evidence: str = "",
        remedy: str = "",
        *,
        certificate: Certificate | None = None,
        conflict: Iterable[str] = (),
    ) -> None:
        super().__init__(cause, evidence, remedy)
        self.certificate = certificate
        self.conflict = tuple(conflict)

    @classmethod
    def of(
        cls,
        certificate: Certificate | None,
        names: Sequence[str],
        evidence: str = "",
        remedy: str = "remove or soften one of them",
        *,
        where: str = "",
    ) -> Infeasible:
        """Return what says that terms exclude each other, there alone if so, as a certificate proves."""
        cause, there = "the domain of the objective is empty", f" {where}" if where else ""
        if len(names) == 1:
            cause = f"no point{there} satisfies {names[0]!r}"
        elif names:
            cause = f"these constraints exclude each other{there}: {', '.join(map(repr, names))}"
        conflict, evidence = tuple(names), evidence or str(certificate)
        remedy = remedy if conflict else ""
        return cls(cause, evidence, remedy, certificate=certificate, conflict=conflict)


class Unbounded(OptfairError):
    """The objective improves without limit: that is proved.

    Attributes
    ----------
    ray : dict or None
        Direction of improvement by variable name, None where it may be a curve.
    certificate : Certificate or None
        Evidence that can be verified again: a ray with a feasible point, or a feasible point and
        that no multipliers bound the objective.
    """

    def __init__(
        self,
        cause: str,
        evidence: str = "",
        remedy: str = "",
        *,
        ray: Any = None,
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__(cause, evidence, remedy)
        self.ray = ray
        self.certificate = certificate


class SolverFailure(OptfairError):
    """No result passed verification, or what a solver claims is not proved.

    Attributes
    ----------
    claim : str
        "infeasible" or "unbounded", when a solver says so without a proof that holds here.
    claimed_by : str
        Which solver.
    solution : Solution or None
        The best of what solvers left, by its residuals; nothing proves it to the tolerance.
    """

    def __init__(
        self,
        cause: str,
        evidence: str = "",
        remedy: str = "",
        *,
        claim: str = "",
        claimed_by: str = "",
        solution: Any = None,
    ) -> None:
        super().__init__(cause, evidence, remedy)
        self.claim = claim
        self.claimed_by = claimed_by
        self.solution = solution


class DataError(OptfairError, ValueError):
    """The data handed in cannot be used."""


class OutOfMemory(OptfairError, MemoryError):
    """The process may not have as much memory as this takes."""


# more of them are no help
MOST_NAMES = 20
# comparing longer ones takes seconds
MOST_LETTERS = 200
# What begins with the sound of a vowel, also letter by letter: SVC.
SOUNDS = re.compile("[AEIOaeio]|[Uu]n(?!i)|[FHLMNRSX][A-Z]")


def shortened(value: object, limit: int = 80) -> str:
    """Return a value in one line of a length that can be read."""
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shown(value: Any) -> str:
    """Return a value as Python writes it, in a length that can be read."""
    try:
        text = repr(value)
    except Exception:  # an int of more digits than Python writes, or anybody's __repr__
        text = kind_of(value)
    return shortened(text, 60)


def kind_of(value: object) -> str:
    """Return the type of a value with its article: ``an int``, ``a str``, ``an SVC``."""
    word = type(value).__name__
    return f"{'an' if SOUNDS.match(word) else 'a'} {word}"


def no_number(*values: object) -> str:
    """Return why a text is no number, empty where none of the values is one."""
    texts = [value for value in values if isinstance(value, str)]
    return f"{shown(texts[0])} is a text, not a number" if texts else ""


def nearest(name: Any, known: Iterable[str]) -> str:
    """Return a sentence that suggests the nearest known names; what is no name has none near."""
    names = sorted({str(one) for one in known})
    if not names:
        return "there are none"
    name = name[:MOST_LETTERS] if isinstance(name, str) else ""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return "known names: " + ", ".join(names[:MOST_NAMES]) + rest


Entry = TypeVar("Entry")


class Known(dict[str, Entry]):
    """Entries by name, which say what is near to a name that is not there.

    Parameters
    ----------
    entries : mapping
        What there is, by name.
    what : str
        What an entry is called.

    Examples
    --------
    >>> Known({"servings": 1.0}, "variable")["serving"]
    Traceback (most recent call last):
    optfair.errors.NoSuchName: no variable 'serving'
      do:  did you mean 'servings'?
    """

    def __init__(self, entries: Mapping[str, Entry], what: str = "entry") -> None:
        super().__init__(entries)
        self.what = what

    def __missing__(self, name: object) -> Entry:
        raise NoSuchName(f"no {self.what} {shown(name)}", remedy=nearest(str(name), self))


def say_names(thing: Any, **what: str) -> None:
    """Make plain mappings among the attributes of a new object say what is near to a wrong name.

    Others, which compute their entries, stay as they are.
    """
    for attribute, word in what.items():
        own = getattr(thing, attribute)
        if type(own) is dict:
            object.__setattr__(thing, attribute, Known(own, word))
        elif type(own) is MappingProxyType:
            object.__setattr__(thing, attribute, MappingProxyType(Known(own, word)))


def needed(module: str, install: str) -> Any:
    """Return an optional package's module.

    Parameters
    ----------
    module : str
        Its name, as ``matplotlib.pyplot``.
    install : str
        What to do where it is missing.

    Raises
    ------
    NotInstalled
        It is missing.
    """
    try:
        return import_module(module)
    except ImportError as e:
        package = module.partition(".")[0]
        raise NotInstalled(f"{package} is not installed", str(e), install) from None


class Tabled:
    """What has its table by one name, and says so where it is asked for by the other.

    Some call it ``frame``, as solutions do, others ``to_frame``, as comparisons do.
    """

    if not TYPE_CHECKING:  # what is not there stays an error to type checkers

        def __getattr__(self, name: str) -> Any:
            other = {"frame": "to_frame", "to_frame": "frame"}.get(name, "")
            if other and hasattr(type(self), other):
                lacking = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(f"{lacking}; its table is {other}()")
            return object.__getattribute__(self, name)  # the error that it is


def data_frame(columns: Any, **options: Any) -> Any:
    """Return a pandas DataFrame of columns or rows.

    Raises
    ------
    NotInstalled
        pandas is missing.
    """
    made = needed("pandas", "pip install pandas, or use the attributes").DataFrame
    return made(columns, **options)
