"""A named piece of a problem, and the promises about terms that special algorithms rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from optfair.core.problem_class import Evidence
from optfair.errors import DeclarationError
from optfair.numbers import Floats, check_mapping

if TYPE_CHECKING:
    from optfair.core.expressions import FrozenParameter, Written

# A named piece of a problem: an objective term or a constraint term.

Values = Mapping[str, Any]


# stands where a function must be given: fields behind those with a default need one
_UNSTATED: Any = None


@dataclass(frozen=True, eq=False)
class Term:
    """What objective and constraint terms share.

    Parameters
    ----------
    name : str
        Unique name within the problem.
    scope : frozenset of str
        Names of the variables it depends on.
    evidence : Evidence
        Its class and why.
    build : callable
        Returns the CVXPY expression or constraint; called only when something compiles.
    latex : str or callable
        The term as printed in notebooks, or a function that writes it: printing an expression
        takes longer than analysing it, and few are printed.
    origin : {"model", "user"}
        Whether the model declared it or somebody added it.
    parameters : tuple of FrozenParameter
        The CVXPY parameters it was written with, and their values at declaration.
    written : Written, optional
        What it was written as on these, for other values of them; none for a term that was
        made of such a one.
    """

    name: str
    scope: frozenset[str]
    evidence: Evidence
    build: Callable[[], Any]
    latex: str | Callable[[], str] = ""
    origin: Literal["model", "user"] = "model"
    parameters: tuple[FrozenParameter, ...] = ()
    written: Written | None = None

    # the field that evaluates the term, and what it looks like
    _evaluation: ClassVar[tuple[str, str]]

    def __post_init__(self) -> None:
        """Refuse a term that cannot be evaluated: it would hold, or cost nothing, everywhere."""
        word, shape = self._evaluation
        if not callable(getattr(self, word)):
            raise DeclarationError(
                f"{self.name!r} has no {word}: no point could be checked on it",
                f"a {type(self).__name__} is evaluated in NumPy by what stands in {word!r}",
                f"give {word}=lambda values: {shape}, or let it be derived:"
                " optfair.core.classify has constraint_term and objective_term",
            )

    @property
    def formula(self) -> str:
        """The term in LaTeX: as it was given, else its name."""
        written = self.latex if isinstance(self.latex, str) else self.latex()
        return written or rf"\text{{{self.name}}}"

    def __repr__(self) -> str:
        return str(self.evidence)


@dataclass(frozen=True, eq=False, repr=False)
class ObjectiveTerm(Term):
    """A summand of the objective; ``value(values)`` evaluates it in NumPy, and must be given."""

    _evaluation = "value", "float(...)"

    value: Callable[[Values], float] = _UNSTATED

    def number(self, values: Values) -> float:
        """Return the value as a float, whatever shape of one entry the model returns."""
        found = np.asarray(_evaluated(self.value, values), dtype=float)
        if found.size != 1:
            raise DeclarationError(
                f"value of {self.name!r} has the shape {found.shape}, not one number",
                remedy="add its entries up",
            )
        return float(found.item())


@dataclass(frozen=True, eq=False, repr=False)
class ConstraintTerm(Term):
    """A constraint; ``violation(values)`` evaluates it in NumPy.

    Parameters
    ----------
    violation : callable
        Returns how far values are outside, elementwise (0 when satisfied); must be given.
    shape : tuple of int
        Shape of the multiplier.
    scale : float or array
        Size of the right-hand side, of each entry where they differ.
    rows : callable, optional
        Builds the CVXPY constraint of some rows only, given by their indices, for a term of so
        many rows that few of them are ever active. ``violation`` then returns one number per
        row; a row is an entry of an equality or inequality, or a second-order cone.
    labels : callable, optional
        Returns the names of the entries, column by column, where they have names of their own.
    limit : object, optional
        A number that a rule had to guess to write the term, which must not decide the answer:
        the model that reads it asks again with a larger one (`Problem.solved_by`).
    """

    _evaluation = "violation", "numpy.maximum(..., 0.0)"

    violation: Callable[[Values], Floats] = _UNSTATED
    shape: tuple[int, ...] = ()
    scale: Any = 0.0
    rows: Callable[[NDArray[np.intp]], Any] | None = None
    labels: Callable[[], Sequence[str]] | None = None
    limit: Any = None

    @cached_property
    def largest_side(self) -> float:
        """Size of the largest finite right-hand side."""
        sizes = np.asarray(self.scale, dtype=float)
        return float(sizes[np.isfinite(sizes)].max(initial=0.0))

    def relative_violation(self, values: Values) -> float:
        """Return the largest violation relative to 1 + the size of the right-hand side."""
        return self.violations(values)[0]

    def violations(self, values: Values, unit: Any = 1.0) -> tuple[float, float]:
        """Return the largest violation, measured in two ways.

        Parameters
        ----------
        values : mapping
            Values by variable name.
        unit : float or array
            Size of a number in the data of the problem, at most 1; or of each entry.

        Returns
        -------
        tuple of float
            Relative to 1 + the largest right-hand side of the term; and each entry relative to
            the unit + its own right-hand side.
        """
        outside = np.asarray(_evaluated(self.violation, values), dtype=float)
        if not outside.size and 0 not in self.shape:
            raise DeclarationError(
                f"violation of {self.name!r} returned no number",
                f"the term has the shape {self.shape}: nothing says whether it holds",
                "return one number an entry, 0 where it holds",
            )
        worst = float(outside.max(initial=0.0))
        if not np.isfinite(worst):
            return np.inf, np.inf
        if worst == 0.0:
            return 0.0, 0.0
        own = np.asarray(self.scale, dtype=float)
        if own.ndim and own.shape != outside.shape:
            own = np.asarray(own.max(initial=0.0))
        unit = np.asarray(unit, dtype=float)
        if unit.ndim and unit.shape != outside.shape:
            unit = np.asarray(unit.max(initial=0.0))
        each = outside / (unit + own)
        return worst / (1.0 + self.largest_side), float(each.max())


def _evaluated(function: Callable[[Values], Any], values: Values) -> Any:
    """Return what a term says at values by name."""
    try:
        return function(check_mapping(values, "values"))
    except KeyError as e:
        raise DeclarationError(
            f"there is no value of {e.args[0]!r}", remedy="give one of every variable"
        ) from None


def family(name: str) -> str:
    """Return the name a user gave: a rule that makes several terms calls them ``name.part``."""
    return name.partition(".")[0]


# A structure is a promise about a problem's terms that a special algorithm relies on.


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
        Whether some term must be one that is proved beyond composition rules; with integers, one
        of exponential or power cones does as well.
    integers : bool
        Whether variables may be integer.
    """

    name: str
    needs: tuple[str, ...]
    tolerates: frozenset[str] | None
    stranger: str
    rows: bool = False
    proof: bool = False
    integers: bool = False

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
        whole = sorted(integers)
        if self.proof and not any(t.evidence.proof is not None for t in terms):
            cones = frozenset[str]().union(*(t.evidence.problem_class.cones for t in terms))
            if not (whole and self.integers and cones & {"exp", "pow"}):
                return "composition rules decide every term of it"
        if whole and not self.integers:
            return f"{whole[0]!r} is integer"
        for term in terms:
            if term.name in self.needs:
                continue
            if self.tolerates is not None and not term.scope <= self.tolerates:
                return f"{term.name!r} is not {self.stranger}"
            if not term.evidence.problem_class.convex:
                return f"{term.name!r} is not known to be convex"
        return ""


#: Terms proved convex beyond composition rules, beside any other convex terms.
PROVED_TERMS = Structure("proved-terms", (), None, "", proof=True, integers=True)

#: Terms of many rows that are generated as they are needed, beside any other convex terms.
LAZY_ROWS = Structure("many-rows", (), None, "", rows=True)
