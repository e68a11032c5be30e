"""A declared optimization problem: named variables, named terms, a class with evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import cvxpy as cp

from optfair.core import composition
from optfair.core.canonical import uncollected
from optfair.core.certificate import Curvature, NonconvexityWitness, search_witness
from optfair.core.composition import Parts, Rule
from optfair.core.display import describe, formulation
from optfair.core.expressions import (
    Values,
    check_parameters,
    refuse_nonfinite,
    substitute,
)
from optfair.core.identity import Origin, packed
from optfair.core.labels import Labels
from optfair.core.problem_class import LAZY_ROWS, PROVED_TERMS, Evidence, ProblemClass, Structure
from optfair.core.term import ConstraintTerm, ObjectiveTerm, Term, by_part, of_family, within
from optfair.core.variables import check_plain, fresh_copy
from optfair.core.verbs import ProblemVerbs
from optfair.errors import DeclarationError, Infeasible, Known, NoSuchName, kind_of, nearest
from optfair.numbers import Taken, check_mapping, check_point, check_text, checked

if TYPE_CHECKING:
    from optfair.convexity.recast import Recast
    from optfair.core.parameters import Parameter

Sense = Literal["minimize", "maximize"]
#: Scalars of a problem that boxes may be halved for.
FEW = 6
#: Quadratic constraints, and scalars, of a problem whose semidefinite relaxation is solved first.
QUADRICS, ORDER = 3, 400
# What the entries of a mapping are called.
_ENTRIES = {"variables": "variable", "data": "data"} | dict.fromkeys(
    ("objective", "constraints"), "term"
)
# What is known of a problem with these terms only.
_CACHED = (
    *("_class", "_witness", "_recast", "_compiled", "_family"),
    *("objective_constant", "scalar_rows"),
)


@dataclass(frozen=True)
class Declaration:
    """What a model declares: variables, sense, objective and constraint terms.

    Parameters
    ----------
    variables : dict
        Name -> CVXPY variable without sign or bound attributes.
    sense : {"minimize", "maximize"}
        Direction of the objective.
    objective : tuple of ObjectiveTerm
        Summands; none means a feasibility problem.
    constraints : tuple of ConstraintTerm
        Named constraints.
    integers : frozenset of str
        Names of integer variables.
    aliases : dict
        CVXPY variables somebody else may still use -> name of the variable they stand for.
    """

    variables: Mapping[str, Any]
    sense: Sense = "minimize"
    objective: tuple[ObjectiveTerm, ...] = ()
    constraints: tuple[ConstraintTerm, ...] = ()
    integers: frozenset[str] = frozenset()
    aliases: Mapping[Any, str] = field(default_factory=dict)


def proved_terms(declared: Declaration) -> Declaration:
    """Return a declaration whose open terms are proved as far as its other terms allow."""
    terms = (*declared.objective, *declared.constraints)
    if not any("nonlinear" in t.evidence.problem_class.cones or t.evidence.proof for t in terms):
        return declared
    from optfair.convexity.prove import settled

    objective, constraints = settled(declared.objective, declared.constraints, declared.sense)
    return replace(declared, objective=objective, constraints=constraints)


class Problem(ProblemVerbs, Labels):
    """Base of all problems: immutable, named, classified.

    A model is a subclass with a ``declare`` method that returns a `Declaration`. Nothing
    mutates: `with_constraints`, `without`, `with_integrality` and `soften` return new
    problems that share variables and data with this one, so a constraint written on
    ``p["x"]`` may be given to any problem made from ``p``.

    Attributes
    ----------
    variables, objective, constraints : mapping
        By name.
    sense : str
        "minimize" or "maximize".
    integers : frozenset of str
        Names of integer variables.
    data : mapping
        What the model was declared from.
    names : mapping
        CVXPY variable id -> name.
    problem_class : ProblemClass
        Class of the formulation, the join over its terms.
    evidence : tuple of Evidence
        One row per term and per integer variable.
    witness : NonconvexityWitness or None
        Proof that it is not convex, where one was found.
    certificate : Curvature or NonconvexityWitness
        Evidence for the class that can be verified again.
    cvxpy : cvxpy.Problem
        A plain copy on new variables.
    """

    #: structures that special algorithms rely on, while they stand
    structures: ClassVar[tuple[Structure, ...]] = (LAZY_ROWS, PROVED_TERMS)
    #: data that `at` may give another value, and what they move: "sides", "costs" (affinely), or ""
    movable: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: whether nothing but its data says how large an objective is
    unit_from_data: ClassVar[bool] = False
    #: what rules on such problems are about, and where they can be used
    rules_on: ClassVar[tuple[str, str]] = ("problems", "use it with another problem")
    #: what the problem is called in prints: by the name of its class, where nothing else is said
    title: str = "Problem"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.title = cls.__dict__.get("title", cls.__name__)

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        before = dict(self.__dict__)  # what a model keeps beside its data
        self._set(data=MappingProxyType(dict(data or {})))
        with uncollected():
            self._adopt(self.declare(), before)

    def declare(self) -> Declaration:
        """Return variables and terms; every model implements this."""
        raise DeclarationError(
            f"{type(self).__name__} declares nothing",
            remedy="implement declare(), or use a model or optfair.from_cvxpy(problem)",
        )

    def _adopt(self, d: Declaration, before: Mapping[str, Any]) -> None:
        d = proved_terms(d)
        for name, v in d.variables.items():
            check_plain(name, v)
        self._set(
            variables=MappingProxyType(dict(d.variables)),
            sense=d.sense,
            objective=MappingProxyType(composition.by_name(d.objective)),
            constraints=MappingProxyType(composition.by_name(d.constraints)),
            integers=frozenset(d.integers),
            _names={v.id: name for name, v in d.variables.items()},
            _aliases={v.id: name for v, name in d.aliases.items()},
            _alias_variables=tuple(d.aliases),
        )
        self._set(_origin=Origin(self, before))

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            if name in _ENTRIES:
                value = MappingProxyType(Known(value, _ENTRIES[name]))
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise DeclarationError(
            f"cannot set {name!r}: problems are immutable",
            remedy="use with_constraints, without, with_integrality or soften",
        )

    def __copy__(self) -> Any:
        return self  # nothing changes it

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return packed(self)

    def _child(self, **fields: Any) -> Self:
        child: Self = object.__new__(type(self))
        child.__dict__.update(self.__dict__)
        for cached in _CACHED:
            child.__dict__.pop(cached, None)
        child._set(**fields)
        if "_witness" in self.__dict__:  # evidence against this set may not hold on the new one
            child._set(_inherited=self.__dict__["_witness"])
        return child

    # --- reading -------------------------------------------------------------------------

    variables: Mapping[str, Any]
    objective: Mapping[str, ObjectiveTerm]
    constraints: Mapping[str, ConstraintTerm]
    sense: Sense
    integers: frozenset[str]
    data: Mapping[str, Any]
    _names: dict[int, str]
    _aliases: dict[int, str]
    _alias_variables: tuple[Any, ...]

    def __getitem__(self, name: str) -> Any:
        try:
            return self.variables[name]
        except (KeyError, TypeError):
            near = nearest(str(name), self.variables)
            if isinstance(name, str) and name in self.constraints:
                near = f"it is a constraint: p.constraints[{name!r}]"
            raise NoSuchName(f"no variable {name!r} in {self.title}", remedy=near) from None

    @property
    def names(self) -> Mapping[int, str]:
        """Map from CVXPY variable ids to names."""
        return MappingProxyType(self._names)

    @property
    def terms(self) -> tuple[Term, ...]:
        """All terms, objective first."""
        return (*self.objective.values(), *self.constraints.values())

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """One row per term, and one per integer variable."""
        integer = ProblemClass(integer=True)
        rows = [t.evidence for t in self.terms]
        rows += [Evidence(name, "integer", "", integer) for name in sorted(self.integers)]
        return tuple(rows)

    @property
    def problem_class(self) -> ProblemClass:
        """Class of the formulation; nonconvex only with a verified witness."""
        cached: ProblemClass | None = self.__dict__.get("_class")
        if cached is None:
            cached = ProblemClass()
            for row in self.evidence:
                cached |= row.problem_class
            if not cached.convex and self.recast is not None and self.recast.everywhere:
                cached = cached.with_curvature(self.recast.word)
            elif not cached.convex and self.witness is not None:
                cached = cached.with_curvature("nonconvex")
            self._set(_class=cached)
        return cached

    @property
    def recast(self) -> Recast | None:
        """A convex problem with the same solutions, where one is known and this is none."""
        if "_recast" not in self.__dict__:
            other = None
            # a model that knows its witness is no other problem in disguise
            known = type(self).find_witness is not Problem.find_witness
            if not known and any(not t.evidence.problem_class.convex for t in self.terms):
                from optfair.convexity.recast import recast

                other = recast(self)
            self._set(_recast=other)
        return cast("Recast | None", self.__dict__["_recast"])

    @property
    def witness(self) -> NonconvexityWitness | None:
        """Two feasible points with an infeasible midpoint, or a direction of negative curvature."""
        if "_witness" not in self.__dict__:
            known = None
            if any(not t.evidence.problem_class.convex for t in self.terms):
                inherited: NonconvexityWitness | None = self.__dict__.get("_inherited")
                again = None if inherited is None else replace(inherited, problem=self)
                known = again if again is not None and again.verify() else self.find_witness()
            self._set(_witness=known)
        return cast("NonconvexityWitness | None", self.__dict__["_witness"])

    def find_witness(self) -> NonconvexityWitness | None:
        """Search for a witness; models that know one analytically override this."""
        return search_witness(self)

    @property
    def certificate(self) -> Curvature | NonconvexityWitness | Recast:
        """Evidence for the class that can be verified again."""
        other = self.recast  # None where all terms are convex
        return other if other and other.everywhere else self.witness or Curvature(self)

    def structure_refusal(self, name: str) -> str:
        """Return why a structure does not stand on this problem, empty if it does."""
        if name == "convex-in-other-words":
            if self.recast is not None:
                return ""
            return f"a {self.problem_class} leads to no convex problem that is solved instead"
        if name == "few-bounded-variables":
            scalars = sum(v.size for v in self.variables.values())
            pc = self.problem_class
            if pc.convex or not pc.cones & {"nonlinear", "exp", "pow"}:
                return f"a {pc} is better given to others"
            return "" if scalars <= FEW else f"it has {scalars} scalars"
        if name == "few-quadratics":
            pc, count = self.problem_class, sum(prod(t.shape) for t in self.constraints.values())
            if pc.convex or self.integers or pc.name not in ("QP", "QCQP"):
                return f"a {pc} is better given to others"
            rows = self.constraints.values()
            linear = [t.name for t in rows if t.evidence.problem_class.name == "LP"]
            few = 0 < count <= QUADRICS and sum(v.size for v in self.variables.values()) <= ORDER
            return f"{linear[0]!r} is linear" if linear else "" if few else "it is larger"
        for structure in self.structures:
            if structure.name == name:
                terms = self.objective.values(), self.constraints.values()
                return structure.refusal(*terms, sorted(self.integers))
        return f"a {self.title} does not have it"

    @property
    def objective_unit(self) -> float:
        """Least size an objective is measured by; models that know the size of their data say it."""
        return 1.0

    @property
    def data_unit(self) -> float:
        """Size of a number in the constraints: 1, or less where all right-hand sides are less."""
        largest = max((t.largest_side for t in self.constraints.values()), default=0.0)
        return min(1.0, largest) or 1.0

    @property
    def objective_constant(self) -> float:
        """Part of the objective that no variable changes; gaps are measured without it."""
        return 0.0

    def explained(self, error: Infeasible) -> Infeasible:
        """Return the error with what this model knows about why no point is feasible."""
        return error

    def solved_by(self, ask: Any) -> Any:
        """Return what ``ask`` finds; a model whose rules guess a limit asks again where it decides."""
        return ask(self)

    @checked(values=check_point)
    def objective_value(self, values: Values) -> float:
        """Return the declared objective at given values, evaluated in NumPy."""
        return self.objective_at(values)

    def objective_at(self, values: Values) -> float:
        """Return the objective at what a solver left: NaN or infinite where a value is."""
        for name in frozenset[str]().union(*(t.scope for t in self.objective.values())):
            if name not in values:
                raise DeclarationError(f"there is no value of {name!r}", remedy="give one")
        return float(sum(t.number(values) for t in self.objective.values()))

    # --- composing -----------------------------------------------------------------------

    def with_constraints(self, constraints: Mapping[str, Any] | None = None, **named: Any) -> Self:
        """Return this problem with further constraints.

        Parameters
        ----------
        constraints : dict, optional
            Name -> rule, CVXPY constraint, or list of them; for names that are not
            identifiers.
        **named
            The same as keywords.

        Examples
        --------
        >>> import cvxpy as cp, optfair as of
        >>> x = cp.Variable(2, name="x")
        >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0]))
        >>> p.with_constraints(disk=cp.norm(x) <= 1).problem_class
        SOCP
        """
        if constraints is not None and not isinstance(constraints, Mapping):
            raise DeclarationError(
                f"with_constraints got {kind_of(constraints)} without a name",
                remedy="name it: with_constraints(name=...), or give a dict by name",
            )
        child, added, bound = self, dict[str, ConstraintTerm](), dict[str, Rule]()
        items = {**(constraints or {}), **named}
        for name, item in items.items():
            check_text(name, "the name of a constraint")
            there = {*self.constraints, *self.rules, *added}
            if any(within(name, t) or within(t, name) for t in there):
                raise DeclarationError(
                    f"a constraint {name!r} is already there",
                    remedy=f"choose another name, or without({name!r}) first",
                )
            parts = Parts.of(child.bound_parts(name, item))
            child = child.with_variables(parts.variables).with_integrality(*parts.integers)
            rules = {part: r for part, r in by_part(name, item) if isinstance(r, Rule)}
            added |= composition.stated(child, rules, parts)
            bound |= rules
        made = child._child(
            constraints=MappingProxyType({**child.constraints, **added}),
            _bound={**self.rules, **bound},
        )
        return made._proved_anew()

    @property
    def rules(self) -> Mapping[str, Rule]:
        """The rules that are bound, by the names they were given; those of a list as NAME.0 ..."""
        bound: Mapping[str, Rule] = self.__dict__.get("_bound", {})
        own = {name: rule for name, rule in bound.items() if of_family(self.constraints, name)}
        return Known(own, "rule")

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """What `at` may give another value: CVXPY parameters, numbers in rules as NAME.FIELD, data."""
        from optfair.core.parameters import parameters

        return parameters(self)

    def moves_sides(self, rule: Rule, field: str) -> bool:
        """Whether a number in a rule moves right-hand sides alone."""
        return field in rule.sides

    @checked(values=check_mapping)
    def at(self, values: Mapping[Any, Any] | None = None, **named: Any) -> Self:
        """Return this problem at other values of its parameters; this one keeps its own.

        What was compiled for one value serves all where CVXPY's rules on parameters hold
        (terms affine in them): only the numbers move, and warm starts know where the last solve
        ended. Other terms are declared again.

        Parameters
        ----------
        values : dict, optional
            Name, or CVXPY parameter -> value; for names that are not identifiers.
        **named
            The same as keywords. A number in a rule is called by its field, or NAME.FIELD.

        Raises
        ------
        DeclarationError
            An unknown parameter, a value of another shape or sign, or outside its range.

        Examples
        --------
        >>> import cvxpy as cp, optfair as of
        >>> x, need = cp.Variable(2, name="x"), cp.Parameter(name="need", value=1.0)
        >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + 2 * x[1]), [cp.sum(x) >= need, x >= 0]))
        >>> p.at(need=3.0).solve().objective, p.solve().objective
        (3.0, 1.0)
        >>> float(need.value)
        1.0
        """
        from optfair.core.parameters import at

        moved: Self = at(self, {**(values or {}), **named})
        return moved

    def with_data(self, **changed: Any) -> Self:
        """Return this model at other data; `at` calls it. Models that keep more override it."""
        from optfair.core.parameters import declared_again

        again: Self = declared_again(self, changed)
        return again

    def with_arguments(self, changed: Mapping[str, Any]) -> Any:
        """Return a model of this kind alone, nothing added, at other data."""
        return type(self)(**{**self.data, **changed})

    def _proved_anew(self) -> Self:
        """Return this problem with proofs that stand on its own terms: more or fewer may hold."""
        declared = Declaration(
            self.variables,
            self.sense,
            tuple(self.objective.values()),
            tuple(self.constraints.values()),
        )
        again = proved_terms(declared)
        if again is declared:
            return self
        return self._child(
            objective=MappingProxyType(composition.by_name(again.objective)),
            constraints=MappingProxyType(composition.by_name(again.constraints)),
        )

    @checked(variables=check_mapping)
    def with_variables(self, variables: Mapping[str, Any] | None = None, **named: Any) -> Self:
        """Return this problem with further variables, which no term uses yet.

        Parameters
        ----------
        variables : dict, optional
            Name -> CVXPY variable. Its sign, bounds and integrality are stated as constraints.
        **named
            The same as keywords.

        Examples
        --------
        >>> import cvxpy as cp, optfair as of
        >>> x, z = cp.Variable(name="x"), cp.Variable(integer=True)
        >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 0.5]))
        >>> q = p.with_variables(z=z).with_constraints(step=x >= z, up=z >= 0.1)
        >>> q.problem_class, round(q.solve().objective, 6)
        (MILP, 1.0)
        """
        plain = composition.checked_variables(self, {**(variables or {}), **named})
        child = self._child(**plain.beside(self))
        return child.with_constraints(plain.rows) if plain.rows else child

    def bound_parts(self, name: str, item: Any) -> dict[str, Any]:
        """Return constraints by term name; models that cannot take a rule override this."""
        return composition.bound_parts(self, name, item)

    def without(self, *names: str) -> Self:
        """Return this problem without some constraints (a rule's name removes all its parts)."""
        gone: set[str] = set()
        for name in names:
            check_text(name, "the name of a constraint")
            hit = of_family(self.constraints, name)
            if not hit:
                raise DeclarationError(
                    f"no constraint {name!r} to remove", remedy=nearest(name, self.constraints)
                )
            gone.update(hit)
        kept = {k: t for k, t in self.constraints.items() if k not in gone}
        left = composition.remaining_variables(self, kept, gone)
        return self._child(
            constraints=MappingProxyType(kept),
            variables=MappingProxyType(left),
            integers=self.integers & set(left),
            _names={v.id: name for name, v in left.items()},
        )._proved_anew()

    def with_integrality(self, *names: str) -> Self:
        """Return this problem with some variables integer."""
        for name in names:
            self[name]
        return self._child(integers=self.integers | set(names))

    def with_terms(
        self, objective: Mapping[str, ObjectiveTerm], constraints: Mapping[str, ConstraintTerm]
    ) -> Self:
        """Return this problem with its terms replaced; transforms build on it."""
        return self._child(
            objective=MappingProxyType(dict(objective)),
            constraints=MappingProxyType(dict(constraints)),
        )

    # --- CVXPY ---------------------------------------------------------------------------

    def built(self, *, fresh: bool) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Return (CVXPY problem, variables by name, constraints by term name).

        Parameters
        ----------
        fresh : bool
            Copy onto new variables; integer variables always are.
        """
        copies = {
            name: fresh_copy(v, integer=name in self.integers)
            for name, v in self.variables.items()
            if fresh or name in self.integers
        }
        swaps = {id(self.variables[name]): v for name, v in copies.items()}
        check_parameters(self.terms)
        expressions = [_finite(t) for t in self.objective.values()]
        constraints = {name: _finite(t) for name, t in self.constraints.items()}
        if swaps:
            expressions = [substitute(e, swaps) for e in expressions]
            constraints = {name: substitute(c, swaps) for name, c in constraints.items()}
        total = sum(expressions) if expressions else cp.Constant(0.0)
        goal = cp.Minimize(total) if self.sense == "minimize" else cp.Maximize(total)
        problem = cp.Problem(goal, list(constraints.values()))
        return problem, {**self.variables, **copies}, constraints

    @property
    def cvxpy(self) -> Any:
        """A plain CVXPY problem on new variables, for whoever wants out."""
        return self.built(fresh=True)[0]

    def __repr__(self) -> str:
        return describe(self)

    def _repr_latex_(self) -> str:
        return formulation(self)


def check_problem(value: Any, what: str = "problem") -> Problem | Taken:
    """Return a declared problem; one of CVXPY is adopted, of all else is said what it is."""
    if isinstance(value, Problem):
        return value
    if isinstance(value, cp.Problem):
        from optfair.core.adopt import from_cvxpy

        return Taken(from_cvxpy(value))
    raise DeclarationError(
        f"{what} is of type {type(value).__name__}, not a declared problem",
        remedy="give a Problem, or a cvxpy.Problem; an instance is library.load(NAME).problem(), "
        "what another language declares comes in as a file: read('model.mps')",
    )


def _finite(term: Term) -> Any:
    """Build a term; data of a model that are not finite are met here first."""
    built = term.build()
    refuse_nonfinite(term.name, built)
    return built
