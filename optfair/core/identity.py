"""What a problem is apart from this process: declared again in another, on variables with ids of their own, and its hash."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.lin_ops.lin_utils import get_id

from optfair.core.composition import constraint_term, objective_term
from optfair.core.expressions import check_parameters, substitute
from optfair.core.term import ConstraintTerm, ObjectiveTerm, Term, of_family
from optfair.errors import DataError, kind_of

if TYPE_CHECKING:
    from optfair.core.problem import Problem


# Problems in another process: declared again there, on variables with ids of their own.
#
# CVXPY keeps the ids of variables when they are pickled, and a variable that travelled would stand
# for a stranger of the same id. Here every variable and parameter gets a new id where it arrives;
# what is pickled together still shares them.


class _Traveller:
    """A variable or parameter that gets a new id when it arrives, once a journey."""

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf

    def __reduce__(self) -> Any:
        return _arrived, (self.leaf,)


def _arrived(leaf: Any) -> _Traveller:
    leaf.id = get_id()
    for known in [k for k in leaf.__dict__ if k.startswith("_lazy") or k.endswith("__cache__")]:
        del leaf.__dict__[known]  # what CVXPY has computed with the old id
    return _travelling(leaf)


def _written_anew(value: Any) -> Any:
    """Return what CVXPY knows without what it has computed."""
    if isinstance(value, cp.Problem):
        goal = substitute(value.objective, {})
        return cp.Problem(goal, [substitute(c, {}) for c in value.constraints])
    return substitute(value, {}) if isinstance(value, (cp.Expression, cp.Constraint)) else value


def _unsolved(value: Any) -> Any:
    """Return a problem of CVXPY without the solver that it keeps, which cannot travel."""
    whole = isinstance(value, cp.Problem)
    return cp.Problem(value.objective, value.constraints) if whole else value


# By the id of the leaf in memory, which its traveller keeps alive.
_TRAVELLERS: WeakValueDictionary[int, _Traveller] = WeakValueDictionary()


def _travelling(leaf: Any) -> _Traveller:
    """Return the one traveller of a leaf: what is pickled together refers to it."""
    return _TRAVELLERS.setdefault(id(leaf), _Traveller(leaf))


class Origin:
    """What a problem was declared from, shared by all problems made of it.

    Parameters
    ----------
    problem : Problem
        As its model declares it, without anything added.
    before : dict
        What the model kept before it declared.
    """

    def __init__(self, problem: Problem, before: Mapping[str, Any]) -> None:
        self.kind, self.data = type(problem), problem.data
        self.variables = dict(problem.variables)
        self.terms = {id(t.build): t for t in problem.terms}
        self.written = {id(t.written) for t in problem.terms if t.written is not None}
        self.fields = {
            k: problem.__dict__[k]
            for k in ("variables", "sense", "objective", "constraints", "integers", "_names")
        }
        self.aliases = problem._aliases, problem._alias_variables
        self.before = dict(before)

    def __reduce__(self) -> Any:
        leaves: dict[int, Any] = {}
        for value in self.data.values():
            if isinstance(value, (cp.Problem, cp.Expression, cp.Constraint)):
                leaves |= {id(v): v for v in (*value.variables(), *value.parameters())}
        travellers = [_travelling(v) for v in leaves.values()]
        data = {name: _unsolved(value) for name, value in self.data.items()}
        return _declared, (self.kind, data, self.before, travellers)

    def has(self, term: Term) -> bool:
        """Whether declaring again gives the term, at some values of its parameters."""
        return id(term.build) in self.terms or id(term.written) in self.written

    def problem(self) -> Any:
        """Return the problem as it is declared."""
        made = object.__new__(self.kind)
        made._set(**self.before)
        made._set(data=self.data, **self.fields, _origin=self)
        made._set(_aliases=self.aliases[0], _alias_variables=self.aliases[1])
        return made


def _public(problem: Problem) -> dict[str, Any]:
    """Return what a model keeps beside its data."""
    worked_out = {
        k for k in problem.__dict__ if isinstance(getattr(type(problem), k, 0), cached_property)
    }
    fields = problem.__dict__.items()
    return {k: v for k, v in fields if not k.startswith("_") and k not in {*_FIELDS, *worked_out}}


def _declared(
    kind: Any, data: dict[str, Any], before: dict[str, Any], leaves: list[_Traveller]
) -> Origin:
    """Declare again, where the leaves have their new ids."""
    from optfair.core.problem import Problem

    made = object.__new__(kind)
    made._set(**before)
    Problem.__init__(made, {name: _written_anew(value) for name, value in data.items()})
    origin: Origin = made._origin
    return origin


@dataclass(frozen=True)
class _Stated:
    """A term that is declared again from its expression."""

    name: str
    expression: Any
    goal: bool
    origin: str
    labels: tuple[str, ...] | None


def packed(problem: Problem) -> Any:
    """Return what makes the problem again elsewhere; pickling calls it.

    Raises
    ------
    DeclarationError
        A CVXPY parameter has another value than the problem: it would arrive with that.
    DataError
        A term is no CVXPY expression that can be sent.
    """
    check_parameters(problem.terms)
    origin: Origin = problem.__dict__["_origin"]
    rules = dict(problem.rules)
    of_rule = {t for k in rules for t in of_family(problem.constraints, k)}
    terms: list[Any] = []
    for t in problem.terms:
        by_name = t.name in of_rule and isinstance(t, ConstraintTerm)
        # a kind of term of its own is made by the model, from what is bound
        if by_name or origin.has(t) or type(t) not in (ConstraintTerm, ObjectiveTerm):
            terms.append(t.name)
        else:
            if getattr(t, "rows", None) is not None:
                raise DataError(
                    f"{t.name!r} cannot travel: it is built row by row",
                    remedy="bind it as a rule, which travels by its numbers",
                )
            labels = getattr(t, "labels", None)
            expression = t.written.expression if t.written is not None else t.build()
            goal = not isinstance(t, ConstraintTerm)
            labelled = None if labels is None else tuple(labels())
            terms.append(_Stated(t.name, expression, goal, t.origin, labelled))
    own = {v.id for v in origin.variables.values()}
    brought = {f"{k}." for k in rules}
    extra = {
        name: _travelling(v)
        for name, v in problem.variables.items()
        if v.id not in own and not any(name.startswith(k) for k in brought)
    }
    given = {
        f.parameter.id: (_travelling(f.parameter), f.value)
        for t in problem.terms
        for f in t.parameters
        if f.given
    }
    stated = [t.expression for t in terms if isinstance(t, _Stated)]
    leaves = {p.id: _travelling(p) for e in stated for p in e.parameters()}
    names = {name: v for name, v in problem.variables.items() if name not in extra}
    return _unpacked, (
        origin,
        terms,
        rules,
        extra,
        names,
        sorted(problem.integers),
        list(given.values()),
        list(leaves.values()),
        _public(problem),
    )


_FIELDS = ("variables", "sense", "objective", "constraints", "integers", "data")


def _unpacked(
    origin: Origin,
    terms: list[Any],
    rules: Mapping[str, Any],
    extra: Mapping[str, _Traveller],
    names: Mapping[str, Any],
    integers: list[str],
    given: list[tuple[_Traveller, Any]],
    leaves: list[_Traveller],
    public: Mapping[str, Any],
) -> Any:
    """Return the problem, declared again with what was added to it."""
    made = origin.problem()
    # what was kept when it was declared moves with its terms, as they are put in
    made._set(**{name: value for name, value in public.items() if name not in origin.before})
    declared = {**made.objective, **made.constraints}
    fresh = {name: t.leaf for name, t in extra.items()}
    variables = {**{k: v for k, v in made.variables.items() if k in names}, **fresh}
    made = made._child(
        variables=MappingProxyType(variables), _names={v.id: k for k, v in variables.items()}
    )
    for label, rule in rules.items():
        made = made.with_constraints({label: rule})
    known = {**declared, **made.objective, **made.constraints}
    # what was written on the variables that travelled is written on those declared here
    swaps = {id(old): made.variables[name] for name, old in names.items()}
    objective: dict[str, Any] = {}
    constraints: dict[str, Any] = {}
    for t in terms:
        if not isinstance(t, _Stated):
            term = known[t]
        elif t.goal:
            term = objective_term(t.name, substitute(t.expression, swaps), made.names, made.sense)
        else:
            term = constraint_term(t.name, substitute(t.expression, swaps), made.names)
        if isinstance(t, _Stated):
            term = replace(term, origin=t.origin)
            if t.labels is not None:
                labelled = t.labels
                term = replace(term, labels=lambda labelled=labelled: labelled)
        (constraints if isinstance(term, ConstraintTerm) else objective)[term.name] = term
    made = made._child(
        objective=MappingProxyType(objective),
        constraints=MappingProxyType(constraints),
        integers=frozenset(integers),
    )._proved_anew()
    made._set(**public)
    return made.at({t.leaf: value for t, value in given}) if given else made


# A hash of a problem as it was declared.


def fingerprint(problem: Problem) -> str:
    """Return a hash of variables, terms and all numbers in them.

    Two problems with the same hash are the same program under the same names. Every term is
    built, so this takes time and memory where a special algorithm would not.

    Parameters
    ----------
    problem : Problem
        What to hash.

    Raises
    ------
    DataError
        A term holds something whose value cannot be read.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.core.identity import fingerprint
    >>> p = of.library.load("textbook/diet").problem()
    >>> fingerprint(p) == fingerprint(of.library.load("textbook/diet").problem())
    True
    """
    writer = _Writer(dict(problem.names))
    writer.frame(problem)
    for term in problem.terms:
        writer.term(term)
    return writer.digest()


def same_program(first: Problem, second: Problem) -> bool:
    """Whether two problems are the same program under the same names, with the same numbers.

    Terms that both share are not built.

    Parameters
    ----------
    first, second : Problem
        What is compared.
    """
    if first is second:
        return True
    frames = [_Writer(dict(p.names)) for p in (first, second)]
    for writer, p in zip(frames, (first, second), strict=True):
        writer.frame(p)
    if frames[0].digest() != frames[1].digest() or len(first.terms) != len(second.terms):
        return False
    return all(_same_terms(first, second, zip(first.terms, second.terms, strict=True)))


def is_part(part: Problem, whole: Problem) -> bool:
    """Whether all variables and constraints of a problem are another's, whatever the objectives.

    What no point of the part satisfies, none of the whole does.

    Parameters
    ----------
    part, whole : Problem
        What is compared, by name.
    """
    if part is whole:
        return True
    for name, variable in part.variables.items():
        other = whole.variables.get(name)
        if other is None or other.shape != variable.shape or _held(other) != _held(variable):
            return False
    if (
        not part.integers <= whole.integers
        or not part.constraints.keys() <= whole.constraints.keys()
    ):
        return False
    pairs = ((term, whole.constraints[name]) for name, term in part.constraints.items())
    return all(_same_terms(part, whole, pairs))


def _same_terms(
    first: Problem, second: Problem, pairs: Iterable[tuple[Term, Term]]
) -> Iterator[bool]:
    """Yield whether terms of two problems say the same, those they share without a look."""
    shared = first.names.items() <= second.names.items()
    for pair in pairs:
        if shared and pair[0] is pair[1]:
            continue
        writers = [_Writer(dict(p.names)) for p in (first, second)]
        for writer, term in zip(writers, pair, strict=True):
            writer.term(term)
        yield writers[0].digest() == writers[1].digest()


def _held(variable: Any) -> list[str]:
    """Return the attributes that a variable has."""
    return sorted(k for k, v in variable.attributes.items() if v is not None and v is not False)


class _Writer:
    def __init__(self, names: Mapping[int, str]) -> None:
        self._hash = hashlib.sha256()
        self._names = names

    def digest(self) -> str:
        return self._hash.hexdigest()[:32]

    def say(self, *things: Any) -> None:
        self._hash.update(repr(things).encode())

    def frame(self, problem: Problem) -> None:
        """Hash what a problem is without its terms."""
        self.say(problem.sense, type(problem).__qualname__)
        for name, variable in problem.variables.items():
            self.say(name, variable.shape, name in problem.integers)
            self.say(_held(variable))

    def term(self, term: Term) -> None:
        """Hash a term."""
        self.say(term.name, str(term.evidence))
        self.tree(term.build())

    def tree(self, node: Any) -> None:
        """Hash an expression or constraint from its leaves."""
        if isinstance(node, cp.Variable):
            self.say("variable", self._names.get(node.id, node.name()))
            return
        if isinstance(node, (cp.Constant, cp.Parameter)):
            self.say(type(node).__name__)
            self._number(node.value)
            return
        parts = node.args
        self.say(type(node).__name__, len(parts))
        # constraints count their own number among their data; it differs from run to run
        own = getattr(node, "id", None) if isinstance(node, cp.Constraint) else None
        for item in node.get_data() or ():
            if own is None or not (isinstance(item, int) and item == own):
                self._item(item)
        for part in parts:
            self.tree(part)

    def _item(self, item: Any) -> None:
        """Hash what an atom holds beside its arguments."""
        if isinstance(item, (list, tuple)):
            self.say(type(item).__name__, len(item))
            for part in item:
                self._item(part)
        elif item is None or isinstance(item, (bool, int, float, str, slice)):
            self.say(item)
        elif isinstance(item, (cp.Expression, cp.Constraint)):
            self.tree(item)
        else:
            self._number(item)

    def _number(self, value: Any) -> None:
        if sp.issparse(value):
            matrix: Any = sp.csc_array(value)  # type: ignore[call-overload]
            matrix.sum_duplicates()
            self.say("sparse", matrix.shape)
            for part in (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)):
                self._hash.update(part.tobytes())
            value = matrix.data
        try:
            array = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            raise DataError(
                f"{kind_of(value)} in this problem cannot be hashed",
                "runs are kept by a hash of the problem",
                "leave out=None, or write the term with numbers only",
            ) from None
        self.say("array", array.shape, math.prod(array.shape))
        # + 0.0 makes -0.0 and 0.0 the same
        self._hash.update(np.ascontiguousarray(array + 0.0).tobytes())
