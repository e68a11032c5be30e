"""Named data of a problem, and the problem at other values of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.expressions.constants.callback_param import CallbackParam
from cvxpy.lin_ops.lin_op import CONSTANT_ID

from optfair.core.canonical import Draft
from optfair.core.composition import (
    constraint_evidence,
    constraint_term,
    evaluated_constraint,
    evaluated_objective,
    objective_evidence,
    objective_term,
    right_hand_side,
)
from optfair.core.display import latex as as_latex
from optfair.core.display import listed
from optfair.core.expressions import Evaluator, Written, substitute
from optfair.core.functions import exact_functions, proved_assertions
from optfair.core.labels import free_name
from optfair.core.term import (
    ConstraintTerm,
    Term,
    family,
    of_family,
)
from optfair.errors import DataError, DeclarationError, Known, OptfairError, nearest, shortened
from optfair.numbers import Floats, Indices, check_text
from optfair.proofs.rounding import CANCELS, exact_sums

if TYPE_CHECKING:
    from optfair.core.problem import Problem

T = TypeVar("T")


def parameter_values(terms: Iterable[Term]) -> dict[int, Any]:
    """Return the values that terms hold of their parameters, by id."""
    return {f.parameter.id: f.value for term in terms for f in term.parameters}


class Datum(Generic[T]):
    """An attribute that reads one of a problem's data, called as it is or by another name."""

    def __init__(self, doc: str, name: str = "") -> None:
        self.__doc__, self.name = doc, name

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def __get__(self, problem: Any, owner: type | None = None) -> T:
        return cast("T", self if problem is None else problem.data[self.name])


# Entries of parameters in a term beyond which numbers are cheaper: CVXPY multiplies its matrices
# by every entry, and a product of 30,000 with a variable takes 17 s.
ENTRIES = 2_000
# Attributes that make CVXPY put another parameter in the place of one.
_REDUCED = ("symmetric", "diag", "PSD", "NSD", "sparsity", "hermitian", "complex", "imag")


@dataclass(frozen=True, eq=False)
class Parameter:
    """A named number or array in the data of a problem, with the value the problem holds.

    Attributes
    ----------
    name : str
        What `Problem.at` calls it.
    value : float or array
        What the problem holds.
    terms : tuple of str
        Terms it stands in.
    leaf : cvxpy.Parameter or None
        What the terms were written with; none for a number in a rule.
    rule : tuple of str
        Name and field of the rule it stands in; empty for data of the model.
    """

    name: str
    value: Any
    terms: tuple[str, ...]
    leaf: Any = None
    rule: tuple[str, str] = ("", "")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return tuple(np.shape(self.value))

    def __repr__(self) -> str:
        size = "" if not self.shape else f" of shape {'x'.join(map(str, self.shape))}"
        shown = f" = {self.value}" if not self.shape else ""
        where = ", ".join(map(repr, self.terms)) or "the data"
        return f"{self.name}{size}{shown} in {where}"

    def checked(self, value: Any) -> Any:
        """Return a value that it may have.

        Raises
        ------
        DeclarationError
            Not finite real numbers of its shape, sign and range.
        """

        def refused(why: str, remedy: str) -> DeclarationError:
            cause = f"parameter {self.name!r} cannot be {shortened(value, 60)}"
            return DeclarationError(cause, why, remedy)

        try:
            given = value if hasattr(value, "toarray") else np.asarray(value)
            if np.iscomplexobj(given) or given.dtype.kind not in "fiu":
                raise ValueError(f"{type(value).__name__} is no real number")
            given = given.astype(float)
        except (ValueError, TypeError, OverflowError) as e:
            raise refused(str(e), "give real numbers") from None
        if given.shape != self.shape:
            raise DeclarationError(
                f"parameter {self.name!r} has the shape {self.shape}, not {given.shape}",
                remedy="give a value of that shape",
            )
        if not np.isfinite(given.data if hasattr(given, "toarray") else given).all():
            raise refused("it holds NaN or infinity", "give finite numbers")
        if self.leaf is None:
            return float(given) if not given.shape else given
        try:
            self.leaf._validate_value(given, hasattr(given, "toarray"))
        except ValueError as e:
            raise refused(
                str(e), "give a value of the sign and range it was declared with"
            ) from None
        return given


def parameters(problem: Problem) -> Mapping[str, Parameter]:
    """Return the parameters of a problem by name.

    CVXPY parameters in its terms have their own names; every number in a rule that was bound is
    called ``NAME.FIELD``; data of a model that may move (`Problem.movable`) are called as there.
    """
    named: dict[str, Parameter] = {}
    where: dict[int, list[str]] = {}
    leaves: dict[int, Any] = {}
    for term in problem.terms:
        for frozen in term.parameters:
            where.setdefault(frozen.parameter.id, []).append(term.name)
            leaves[frozen.parameter.id] = frozen
    for i, frozen in leaves.items():
        name = free_name(frozen.parameter.name(), named)
        named[name] = Parameter(name, frozen.value, tuple(where[i]), frozen.parameter)
    for label, rule in problem.rules.items():
        terms = of_family(problem.constraints, label)
        stated: Any = fields(rule) if is_dataclass(rule) else ()
        for f in stated:
            value = getattr(rule, f.name)
            if isinstance(value, (int, float, np.ndarray)) and not isinstance(value, bool):
                name = f"{label}.{f.name}"
                named[name] = Parameter(name, value, terms, rule=(label, f.name))
    for name in problem.movable:
        held = problem.data.get(name, getattr(problem, name, None))
        if held is not None and name not in named:
            named[name] = Parameter(name, held, ())
    return MappingProxyType(Known(named, "parameter"))


def chosen(known: Mapping[str, Parameter], name: Any) -> Parameter:
    """Return the parameter that a name, a CVXPY parameter or the field of one rule means."""
    if isinstance(name, cp.Parameter):
        own = [p for p in known.values() if p.leaf is not None and p.leaf.id == name.id]
        name = name.name()
    else:
        check_text(name, "parameter")
        own = [known[name]] if name in known else []
        own = own or [p for p in known.values() if p.rule[1] == name]
    if len(own) == 1:
        return own[0]
    if own:
        raise DeclarationError(
            f"{len(own)} parameters are called {name!r}",
            remedy=f"say which: {', '.join(repr(p.name) for p in own)}",
        )
    if not known:
        raise DeclarationError(
            f"no parameter {name!r}: this problem has none",
            remedy="write a term with cvxpy.Parameter(name=...), or bind a rule",
        )
    raise DeclarationError(f"no parameter {name!r}", remedy=nearest(str(name), known))


def _in_parts(
    values: Mapping[Any, Any], known: Mapping[str, Parameter]
) -> Iterator[tuple[Any, Any]]:
    """Yield names and values, those of a complex parameter as its real and imaginary parts."""
    for given, value in values.items():
        name = given.name() if isinstance(given, cp.Parameter) else given
        parts = {word: known.get(f"{name}_{word}") for word in ("real", "imag")}
        parts = {k: p for k, p in parts.items() if p and isinstance(p.leaf, CallbackParam)}
        if name in known or not parts:
            yield given, value
            continue
        try:
            whole = np.asarray(value, dtype=complex)
        except (ValueError, TypeError) as e:
            raise DeclarationError(
                f"parameter {name!r} cannot be {shortened(value, 60)}", str(e), "give numbers"
            ) from None
        hermitian = whole.ndim == 2 and np.allclose(whole, whole.conj().T)
        for word in ("real", "imag"):
            own, part = getattr(whole, word), parts.get(word)
            if part is None and own.any():
                raise DeclarationError(
                    f"parameter {name!r} has no {word} part", remedy="give one of its kind"
                )
            if part is None:
                continue
            if hermitian and part.shape != own.shape:  # it is held above the diagonal
                own = own[np.triu_indices(len(own), k=1)]
            yield part.name, own


def check_order(given: Any, axes: Iterable[Any], what: str) -> None:
    """Refuse a frame or series with the labels of an axis in another order: entries are taken by position.

    Parameters
    ----------
    given : Any
        What has no index and columns is in the right order.
    axes : iterable of sequences
        Labels of each axis that is known.
    what : str
        What it is called.

    Raises
    ------
    DataError
        Some axis has its labels, and none has them in its order.

    Examples
    --------
    >>> check_order([1.0, 2.0], [("b", "a")], "cost")
    """
    known = [tuple(map(str, labels)) for labels in axes]
    for labels in (getattr(given, "index", None), getattr(given, "columns", None)):
        if not hasattr(given, "iloc") or labels is None or hasattr(labels, "step"):
            continue  # a range counts
        own = tuple(map(str, labels))
        same = [axis for axis in known if sorted(axis) == sorted(own)]
        if same and own not in same:
            raise DataError(
                f"{what} has the labels of an axis in another order: {listed(own)}",
                "entries are taken by position, not by label",
                f"reindex it to the order of the axis: {listed(same[0])}",
            )


def at(problem: Problem, values: Mapping[Any, Any]) -> Any:
    """Return a problem at other values of its parameters; see `Problem.at`."""
    known = parameters(problem)
    held: dict[int, Any] = {}
    rules: dict[str, dict[str, Any]] = {}
    data: dict[str, Any] = {}
    for name, value in _in_parts(values, known):
        one = chosen(known, name)
        if hasattr(value, "iloc"):
            own = (problem.axes(n) for n in (*problem.variables, *problem.constraints))
            check_order(value, (a.labels for axes in own for a in axes if a), repr(one.name))
        checked = one.checked(value)
        if one.leaf is not None:
            held[one.leaf.id] = checked
        elif not one.rule[0]:
            data[one.name] = checked
        else:
            rules.setdefault(one.rule[0], {})[one.rule[1]] = checked
    made = problem.with_data(**data) if data else problem
    made = _moved(made, held) if held else made
    for label, changed in rules.items():
        made = _bound_again(made, label, changed)
    return made


def declared_again(problem: Problem, changed: Mapping[str, Any]) -> Any:
    """Return a model declared from other data, with what was added to it.

    Its variables are new; constraints written on those of the problem bind on it all the same.

    Raises
    ------
    DeclarationError
        A term of the objective was added or replaced.
    """
    kind: Any = type(problem)
    made = problem.with_arguments(changed)
    if set(made.objective) != set(problem.objective):
        raise DeclarationError(
            f"the objective of this {kind.__name__} is not that of its data any more",
            f"it has {', '.join(map(repr, problem.objective))}",
            "give the data before the problem is transformed: p.at(...).soften(...)",
        )
    before = {v: name for name, v in problem.variables.items() if name in made.variables}
    older = {v: problem._aliases[v.id] for v in problem._alias_variables}
    gone = {family(name) for name in made.constraints} - {family(n) for n in problem.constraints}
    made = made.without(*gone) if gone else made
    made = made.with_variables(
        {n: v for n, v in problem.variables.items() if n not in made.variables and "." not in n}
    )
    known = {v: name for v, name in {**older, **before}.items() if name in made.variables}
    made._set(_aliases={v.id: name for v, name in known.items()}, _alias_variables=tuple(known))
    for label, rule in problem.rules.items():
        if label not in made.rules:
            made = made.with_constraints({label: rule})
    # with other data a rule may have other parts
    bound = {name for label in problem.rules for name in of_family(problem.constraints, label)}
    for name, term in problem.constraints.items():
        if name not in made.constraints and name not in bound:
            made = made.with_constraints({name: term.build()})
    return made.with_integrality(*problem.integers)


def _bound_again(problem: Problem, label: str, changed: Mapping[str, Any]) -> Any:
    """Return the problem with a rule bound with other numbers, its terms where they were."""
    try:
        rule = replace(cast("Any", problem.rules[label]), **changed)
    except OptfairError as e:
        raise DeclarationError(
            f"{label!r} cannot have {', '.join(f'{k}={v}' for k, v in changed.items())}",
            str(e),
            "give a value in the range of the rule",
        ) from e
    before = list(problem.constraints)
    made = problem.without(label).with_constraints({label: rule})
    if set(made.constraints) != set(before):
        return made
    order = {name: made.constraints[name] for name in before}
    return made._child(constraints=MappingProxyType(order))


def _moved(problem: Problem, held: Mapping[int, Any]) -> Any:
    """Return the problem with terms at other values of CVXPY parameters."""
    fast = True

    def one(term: Any) -> Any:
        nonlocal fast
        if not any(f.parameter.id in held for f in term.parameters):
            return term
        again, same = _restated(problem, term, held)
        fast &= same
        return again

    objective = {name: one(t) for name, t in problem.objective.items()}
    constraints = {name: one(t) for name, t in problem.constraints.items()}
    forms = problem.__dict__.get("_family")
    if forms is None:
        for term in problem.terms:  # what is compiled for one value of one serves all of all
            if term.written is not None:
                Family.of(problem, term)
        forms = {}
        problem._set(_family=forms)
    made = problem._child(
        objective=MappingProxyType(objective), constraints=MappingProxyType(constraints)
    )
    constant = problem.objective_constant
    worked_out = "objective_constant" in problem.__dict__
    if worked_out and all(objective[name] is t for name, t in problem.objective.items()):
        made._set(objective_constant=constant)
    if fast:
        made._set(_family=forms)
        return made
    return made._proved_anew()


def _restated(problem: Problem, term: Any, held: Mapping[int, Any]) -> tuple[Any, bool]:
    """Return a term at other values, and whether nothing but numbers in it changes."""
    if term.written is None:
        names = sorted({f.parameter.name() for f in term.parameters})
        raise DeclarationError(
            f"{term.name!r} was made of a term at one value of {', '.join(map(repr, names))}",
            "a transformation wrote it anew, with numbers",
            "give the value before the problem is transformed: p.at(...).soften(...)",
        )
    values = {f.parameter.id: held.get(f.parameter.id, f.value) for f in term.parameters}
    frozen = tuple(
        replace(f, value=held[f.parameter.id], given=True) if f.parameter.id in held else f
        for f in term.parameters
    )
    shared = Family.of(problem, term)
    if shared is not None:
        return shared.at(term, values, frozen), True
    again: Any
    if isinstance(term, ConstraintTerm):
        again = constraint_term(term.name, term.written.expression, problem.names, values)
        again = replace(again, labels=term.labels, limit=term.limit)
    else:
        sense = problem.sense
        again = objective_term(term.name, term.written.expression, problem.names, sense, values)
    return replace(again, origin=term.origin, parameters=frozen, written=term.written), False


@dataclass(frozen=True, eq=False)
class Family:
    """What a term is at all values of its parameters: only numbers of its matrices change.

    Attributes
    ----------
    term : Term
        It builds the expression on CVXPY parameters.
    evaluator : Evaluator
        Of that.
    scaled : bool
        Whether the size of its right-hand side is read at the origin.
    """

    term: Term
    evaluator: Evaluator
    names: Mapping[int, str]

    @classmethod
    def of(cls, problem: Problem, term: Any) -> Family | None:
        """Return the family of a term, None where other values may be of another class."""
        written: Written = term.written
        if not written.asked:
            written.family = cls._of(problem, term, written)
            written.asked = True
        return written.family  # type: ignore[no-any-return]

    @classmethod
    def _of(cls, problem: Problem, term: Any, written: Written) -> Family | None:
        e = written.expression
        own = e.parameters()
        if (
            not written.finite
            or term.evidence.proof is not None
            or sum(p.size for p in own) > ENTRIES
            or any(p.attributes[k] for p in own for k in _REDUCED)
            or not (e.is_dcp(dpp=True) if isinstance(e, cp.Constraint) else e.is_dpp())
        ):
            return None
        e = proved_assertions(term.name, exact_functions(e))
        names = dict(problem.names)
        made: Term
        if isinstance(term, ConstraintTerm):
            evidence = constraint_evidence(term.name, e, names, Draft(term.name, e))
            made = evaluated_constraint(term.name, e, names, evidence)
        else:
            e = cp.sum(e) if e.shape else e
            sign = 1.0 if problem.sense == "minimize" else -1.0
            draft = Draft(term.name, e, sign)
            evidence = objective_evidence(term.name, e, names, problem.sense, draft)
            made = evaluated_objective(term.name, e, names, evidence)
        same = evidence.problem_class == term.evidence.problem_class
        if not (same and evidence.problem_class.convex):  # other values may be, where this is not
            return None
        return cls(made, Evaluator(e, names), names)

    def at(self, term: Any, values: Mapping[int, Any], frozen: Iterable[Any]) -> Any:
        """Return the term at values by parameter id."""
        expression = term.written.expression
        leaves = {f.parameter.id: f.parameter for f in term.parameters}

        built: list[Any] = []

        def there(e: Any) -> Any:
            return substitute(e, {id(leaves[i]): cp.Constant(v) for i, v in values.items()})

        def build() -> Any:
            if not built:
                built.append(there(self.term.build()))
            return built[0]

        latex = lambda: as_latex(there(expression))
        held = self.evaluator.holding(values)
        common: dict[str, Any] = {"build": build, "latex": latex, "parameters": tuple(frozen)}
        if not isinstance(term, ConstraintTerm):
            return replace(term, value=lambda point: float(held.value(point)), **common)
        zeros = {self.names[v.id]: np.zeros(v.shape) for v in expression.variables()}
        scale = right_hand_side(held, zeros)
        return replace(term, violation=held.violation, scale=scale, **common)


# Numbers of a program as functions of its parameters.


@dataclass(eq=False)
class Numbers:
    """The numbers of a stuffing as affine functions of its parameters, by CVXPY's tensors.

    Every matrix has one row a number and one column an entry of the parameters, with one for 1.
    """

    places: Mapping[int, int]  # parameter id -> first column
    size: int
    entry: Any
    b: Any
    linear: Any
    constant: Any
    square: Any  # None without a quadratic part
    pattern: tuple[Indices, Indices]  # rows and columns of the quadratic part
    shape: tuple[int, int]

    @classmethod
    def of(cls, program: Any, side: Floats) -> tuple[Numbers, Indices, Indices]:
        """Return the numbers of a program of CVXPY, and the rows and columns of its entries."""
        n, m = int(program.x.size), side.size
        theta = int(program.total_param_size) + 1
        costs = sp.csr_array(program.q)
        if m:
            entry, row, column = _split(program.A, m)
        else:
            entry, row, column = sp.csr_array((0, theta)), *np.zeros((2, 0), dtype=np.intp)
        within = column < n
        b = sp.csr_array((m, theta))
        if m:
            i = np.flatnonzero(~within)
            up = sp.csr_array((np.ones(i.size), (row[i], i)), shape=(m, row.size))
            b = sp.csr_array(sp.diags_array(-side) @ (up @ entry))
        square, pattern = None, (np.zeros(0, np.intp), np.zeros(0, np.intp))
        if program.P is not None:
            square, *pair = _split(program.P, n)
            pattern = (pair[0], pair[1])
        signs = sp.diags_array(side[row[within]])
        places = {i: int(at) for i, at in program.param_id_to_col.items() if i != CONSTANT_ID}
        own = cls(
            places,
            theta,
            sp.csr_array(signs @ entry[np.flatnonzero(within)]),
            b,
            costs[:n],
            costs[n:],
            square,
            pattern,
            (n, n),
        )
        return own, row[within], column[within]

    def vector(self, values: Mapping[int, Any]) -> Floats:
        """Return the parameters one after the other, and 1, from their values by id.

        Those of terms that left are not among the values, and move nothing that stayed.
        """
        scales = np.ones(self.size)
        for i in self.places.keys() & values.keys():
            own, at = np.ravel(values[i], order="F"), self.places[i]
            scales[at : at + own.size] = own
        return scales

    def cost(self, theta: Floats) -> tuple[Any, Floats, float]:
        """Return P, q and the constant of the objective."""
        P = None
        if self.square is not None:
            P = sp.coo_array((self.sums("square", theta), self.pattern), shape=self.shape)
        return P, self.sums("linear", theta), float(self.sums("constant", theta)[0])

    @cached_property
    def _several(self) -> dict[str, tuple[Indices, Any, Any]]:
        """Which numbers add up several products, these rows, and their sizes."""
        several = {}
        for name in ("entry", "b", "linear", "constant", "square"):
            M = getattr(self, name)
            at = np.zeros(0, dtype=np.intp) if M is None else np.flatnonzero(np.diff(M.indptr) > 1)
            if at.size:
                several[name] = (at, rows := sp.csr_array(M[at]), abs(rows))
        return several

    def sums(self, name: str, theta: Floats) -> Floats:
        """Return numbers at a vector, correctly rounded where products of parameters cancel."""
        total = np.asarray(getattr(self, name) @ theta)
        if name in self._several:
            at, rows, sizes = self._several[name]
            size = sizes @ np.abs(theta)
            lost = np.flatnonzero((size > CANCELS * np.abs(total[at])) & (size < np.inf))
            if lost.size:
                some = sp.csr_array(rows[lost])
                group = np.repeat(np.arange(lost.size), np.diff(some.indptr))
                exact = exact_sums(some.data, theta[some.indices], group, lost.size)
                total[at[lost]] = [float(v) for v in exact]
        return total


def _split(tensor: Any, height: int) -> tuple[Any, Indices, Indices]:
    """Return the rows of a tensor that are not 0, and the row and column of the matrix of each."""
    entries = sp.coo_array(tensor)
    kept = entries.data != 0.0
    at, own = np.unique(entries.coords[0][kept].astype(np.int64), return_inverse=True)
    where = (own, entries.coords[1][kept])
    rows = sp.csr_array((entries.data[kept], where), shape=(at.size, entries.shape[1]))
    return rows, (at % height).astype(np.intp), (at // height).astype(np.intp)
