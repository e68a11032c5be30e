"""What somebody adds to a problem: rules, which are values until a problem binds them, and named terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import cvxpy as cp

from optfair.core.classify import constraint_term
from optfair.core.expressions import substitute
from optfair.core.term import ConstraintTerm, Term, family
from optfair.errors import DeclarationError, nearest

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Ready-made constraints that are values until a problem binds them.


class Parts(dict[str, Any]):
    """Constraints by part that come with variables of their own.

    Parameters
    ----------
    constraints : mapping
        Part -> CVXPY constraint or `ConstraintTerm`.
    variables : mapping
        Part -> CVXPY variable; bound under ``name.part``, and gone with ``without(name)``.
    integers : iterable of str
        Those of the variables that are integer.
    limits : mapping
        Part -> limit that the rule had to guess to write it; see `ConstraintTerm`.
    """

    def __init__(
        self,
        constraints: Mapping[str, Any],
        variables: Mapping[str, Any] | None = None,
        integers: Iterable[str] = (),
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(constraints)
        self.variables = dict(variables or {})
        self.integers = frozenset(integers)
        self.limits = dict(limits or {})

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> Parts:
        """Return constraints by part as they are, or as ones without variables of their own."""
        return parts if isinstance(parts, Parts) else cls(parts)


class Rule(ABC):
    """A constraint that knows how to write itself on a problem.

    Subclasses are frozen dataclasses; `bind` returns one CVXPY constraint, or several by
    part name. Bound with ``problem.with_constraints(name=rule)``.
    """

    #: what the rule says, for notebooks
    latex: str = ""
    #: fields that stand on right-hand sides alone, as they are
    sides: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def bind(self, problem: Problem) -> Any:
        """Return what the rule says on the problem's variables.

        Returns
        -------
        CVXPY constraint, ConstraintTerm, list, dict by part, or Parts
            A `ConstraintTerm` states its own evidence and is not analysed, for rules whose
            rows grow with the data; `Parts` bring variables of their own.

        Raises
        ------
        DeclarationError
            The rule does not fit the problem.
        """

    def unfit(self, problem: Problem, about: str, remedy: str) -> DeclarationError:
        """Return what to raise on a problem that has nothing of what the rule is about."""
        return DeclarationError(
            f"{type(self).__name__} is a rule on {about}",
            f"this problem has the variables {', '.join(problem.variables)}",
            remedy,
        )


# What somebody adds to a problem, as named terms and variables.

AnyTerm = TypeVar("AnyTerm", bound=Term)


class Terms(dict[str, AnyTerm]):
    """Terms by name, which say what is near to a name that is not there."""

    def __missing__(self, name: object) -> Any:
        raise DeclarationError(f"no term {name!r}", remedy=nearest(str(name), self))


def by_name(terms: Iterable[AnyTerm]) -> dict[str, AnyTerm]:
    """Return terms by name; of two with the same name, one would be lost."""
    named: dict[str, AnyTerm] = {}
    for term in terms:
        if term.name in named:
            raise DeclarationError(
                f"two terms are called {term.name!r}",
                f"{named[term.name]} and {term}",
                "give each a name of its own",
            )
        named[term.name] = term
    return named


def bound_parts(problem: Problem, name: str, item: Any) -> dict[str, Any]:
    """Return constraints by term name: those of a rule, a dict, a list, or the one given."""
    bound = item.bind(problem) if isinstance(item, Rule) else item
    if isinstance(bound, Mapping):
        parts = {f"{name}.{part}": c for part, c in bound.items()}
        if not isinstance(bound, Parts):
            return parts
        variables = {f"{name}.{part}": v for part, v in bound.variables.items()}
        return Parts(
            parts,
            variables,
            {f"{name}.{part}" for part in bound.integers},
            {f"{name}.{part}": limit for part, limit in bound.limits.items()},
        )
    if isinstance(bound, (list, tuple)):
        if not bound:
            raise DeclarationError(f"{name!r} is an empty list", remedy="give a constraint or rule")
        if len(bound) == 1:
            return problem.bound_parts(name, bound[0])
        # each through the problem, which may refuse some rules
        each = [problem.bound_parts(f"{name}.{i}", c) for i, c in enumerate(bound)]
        brought = [parts for parts in each if isinstance(parts, Parts)]
        return Parts(
            {part: c for parts in each for part, c in parts.items()},
            {part: v for parts in brought for part, v in parts.variables.items()},
            {part for parts in brought for part in parts.integers},
            {part: limit for parts in brought for part, limit in parts.limits.items()},
        )
    return {name: bound}


def stated(problem: Problem, item: Any, parts: Parts) -> dict[str, ConstraintTerm]:
    """Return the terms of what somebody added, from its constraints by term name."""
    terms = {}
    for part, constraint in parts.items():
        term = named_term(problem, part, constraint)
        latex = item.latex if isinstance(item, Rule) and item.latex else term.latex
        terms[part] = replace(term, latex=latex, limit=parts.limits.get(part, term.limit))
    return terms


def named_term(problem: Problem, name: str, constraint: Any) -> ConstraintTerm:
    """Return a constraint as a term that a user added.

    A `ConstraintTerm` keeps the evidence it states; anything else is analysed.
    """
    if not isinstance(constraint, ConstraintTerm):
        return constraint_term(name, owned(problem, constraint), problem.names)
    unknown = constraint.scope - set(problem.variables)
    if unknown:
        raise DeclarationError(
            f"constraint {name!r} uses variables of another problem: {', '.join(sorted(unknown))}",
            f"this problem has {', '.join(problem.variables)}",
            "declare the term on the variables of this problem",
        )
    evidence = replace(constraint.evidence, term=name)
    return replace(constraint, name=name, evidence=evidence, origin="user")


def owned(problem: Problem, constraint: Any) -> Any:
    """Rewrite a constraint or expression on an ancestor's variables onto this problem's."""
    if not problem._aliases or not isinstance(constraint, (cp.Constraint, cp.Expression)):
        return constraint
    swaps = {
        id(v): problem.variables[problem._aliases[v.id]]
        for v in constraint.variables()
        if v.id in problem._aliases
    }
    return substitute(constraint, swaps) if swaps else constraint


def checked_variables(problem: Problem, added: Mapping[str, Any]) -> dict[str, Any]:
    """Return further variables of a problem, or say why one of them cannot be.

    Raises
    ------
    DeclarationError
        Not a CVXPY variable, a name or variable already there, or signs, bounds or
        integrality as attributes.
    """
    for name, v in added.items():
        if not isinstance(v, cp.Variable):
            raise DeclarationError(
                f"variable {name!r} is a {type(v).__name__}",
                remedy="give a CVXPY variable: with_variables(z=cp.Variable(3))",
            )
        if name in problem.variables or v.id in problem.names:
            raise DeclarationError(
                f"a variable {name!r} is already there", remedy="choose another name"
            )
        stated = [k for k, on in v.attributes.items() if on not in (None, False)]
        extra = [k for k in stated if k != "symmetric"]
        if extra:
            raise DeclarationError(
                f"variable {name!r} has the attribute {extra[0]!r}",
                "signs, bounds and integrality have names of their own here",
                "give a plain variable, then with_constraints and with_integrality",
            )
    return dict(added)


def remaining_variables(
    problem: Problem, kept: Mapping[str, ConstraintTerm], gone: Iterable[str]
) -> dict[str, Any]:
    """Return the variables without those that came with a rule which is gone."""
    terms = (*problem.objective.values(), *kept.values())
    used = frozenset[str]().union(*(t.scope for t in terms))
    families = {family(name) for name in gone}
    return {
        name: v
        for name, v in problem.variables.items()
        if name in used or "." not in name or family(name) not in families
    }
