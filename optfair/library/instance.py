"""An instance: a model with data, and what is known about its optimum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.library.certification import Certification

__all__ = ["Infeasibility", "Instance", "Optimum"]


@dataclass(frozen=True)
class Optimum:
    """A certified optimum.

    Attributes
    ----------
    value : float
        The optimum.
    certified_by : str
        Solver that proves it, or "enumeration" of all integer points, for a few thousand.
    gap : float
        Relative gap of that proof.
    checked_by : tuple of str
        Solvers (or "enumeration") that must agree. One that takes no integer variables checks
        an integer optimum through the relaxations of a search tree; one that takes convex
        problems only, a nonconvex optimum through a convex form or the semidefinite relaxation.
    """

    value: float
    certified_by: str
    gap: float
    checked_by: tuple[str, ...]


@dataclass(frozen=True)
class Infeasibility:
    """A certified conflict.

    Attributes
    ----------
    conflict : tuple of str
        Names of the terms that exclude each other.
    certified_by : str
        Solver whose certificate names exactly these.
    checked_by : tuple of str
        Solvers that must find a verified certificate too.
    """

    conflict: tuple[str, ...]
    certified_by: str
    checked_by: tuple[str, ...]


@dataclass(frozen=True)
class Instance:
    """One file of the problem library.

    Attributes
    ----------
    name : str
        FAMILY/NAME, where the file lies.
    path : Path
        The file.
    model : str
        Name of the model.
    problem_class : str
        Class it must have.
    source : str
        Where model and data come from.
    data, rules : mapping
        What the model is declared from; rules added to it, by name.
    integrality : tuple of str
        Variables made integer.
    optimum : Optimum or None
        What is known, for a feasible instance.
    infeasible : Infeasibility or None
        What is known, for one without solutions.
    tags : tuple of str
        Words to search for.

    Examples
    --------
    >>> import optfair as of
    >>> diet = of.library.load("textbook/diet")
    >>> diet.problem().problem_class, diet.optimum.value
    (LP, 88.2)
    """

    name: str
    path: Path
    model: str
    problem_class: str
    source: str
    data: Mapping[str, Any]
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    integrality: tuple[str, ...] = ()
    optimum: Optimum | None = None
    infeasible: Infeasibility | None = None
    tags: tuple[str, ...] = ()

    def problem(self) -> Problem:
        """Declare the problem.

        Raises
        ------
        DeclarationError, DataError
            Unknown keys, a data set that is not there, numbers the model refuses.
        """
        from optfair.library.registry import construct, rule

        made: Any = construct(self.model, self.data, f"[data] of {self.path}")
        rules = {k: rule(t, f"[rules.{k}] of {self.path}") for k, t in self.rules.items()}
        if rules:
            made = made.with_constraints(rules)
        if self.integrality:
            made = made.with_integrality(*self.integrality)
        problem: Problem = made
        return problem

    def certify(self) -> Certification:
        """Check everything the file says; see `optfair.library.certify`."""
        from optfair.library.certification import certify

        return certify(self)

    def to_dict(self) -> dict[str, Any]:
        """Return what the file says, without the data."""
        known: dict[str, Any] = {}
        if self.optimum is not None:
            o = self.optimum
            known["optimum"] = {
                "value": o.value,
                "certified_by": o.certified_by,
                "gap": o.gap,
                "checked_by": list(o.checked_by),
            }
        if self.infeasible is not None:
            i = self.infeasible
            known["infeasible"] = {
                "conflict": list(i.conflict),
                "certified_by": i.certified_by,
                "checked_by": list(i.checked_by),
            }
        return {
            "name": self.name,
            "model": self.model,
            "class": self.problem_class,
            "source": self.source,
            "tags": list(self.tags),
            **known,
        }
