"""A named piece of a problem: an objective term or a constraint term."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from optfair.core.evidence import Evidence

Floats = NDArray[np.float64]
Values = Mapping[str, Any]

__all__ = ["ConstraintTerm", "ObjectiveTerm", "Term", "family"]


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
    """

    name: str
    scope: frozenset[str]
    evidence: Evidence
    build: Callable[[], Any]
    latex: str | Callable[[], str] = ""
    origin: Literal["model", "user"] = "model"

    @property
    def formula(self) -> str:
        """The term in LaTeX: as it was given, else its name."""
        written = self.latex if isinstance(self.latex, str) else self.latex()
        return written or rf"\text{{{self.name}}}"

    def __repr__(self) -> str:
        return str(self.evidence)


@dataclass(frozen=True, eq=False, repr=False)
class ObjectiveTerm(Term):
    """A summand of the objective; ``value(values)`` evaluates it in NumPy."""

    value: Callable[[Values], float] = lambda values: 0.0


@dataclass(frozen=True, eq=False, repr=False)
class ConstraintTerm(Term):
    """A constraint; ``violation(values)`` evaluates it in NumPy.

    Parameters
    ----------
    violation : callable
        Returns how far values are outside, elementwise (0 when satisfied).
    shape : tuple of int
        Shape of the multiplier.
    scale : float
        Size of the right-hand side; violations are reported relative to 1 + scale.
    rows : callable, optional
        Builds the CVXPY constraint of some rows only, given by their indices, for a term of so
        many rows that few of them are ever active. ``violation`` then returns one number per
        row; a row is an entry of an equality or inequality, or a second-order cone.
    labels : callable, optional
        Returns the names of the entries, column by column, where they have names of their own.
    """

    violation: Callable[[Values], Floats] = lambda values: np.zeros(0)
    shape: tuple[int, ...] = ()
    scale: float = 0.0
    rows: Callable[[NDArray[np.intp]], Any] | None = None
    labels: Callable[[], Sequence[str]] | None = None

    def relative_violation(self, values: Values) -> float:
        """Return the largest violation relative to 1 + the size of the right-hand side."""
        found = np.asarray(self.violation(values), dtype=float)
        worst = float(found.max(initial=0.0))
        return worst / (1.0 + self.scale) if np.isfinite(worst) else np.inf


def family(name: str) -> str:
    """Return the name a user gave: a rule that makes several terms calls them ``name.part``."""
    return name.partition(".")[0]
