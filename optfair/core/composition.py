"""Terms made of CVXPY's and classified by evidence; rules, which are values until a problem binds them; named terms."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import cvxpy as cp
import numpy as np
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.constraints import PSD, SOC, Equality, ExpCone, Inequality, PowCone3D, Zero

from optfair.core.canonical import Draft
from optfair.core.display import latex as as_latex
from optfair.core.expressions import (
    Evaluator,
    Values,
    Written,
    bounded_rows,
    dense,
    freeze_parameters,
    refuse_nonfinite,
    substitute,
)
from optfair.core.functions import exact_functions, proved_assertions
from optfair.core.problem_class import Evidence, ProblemClass, follows_rules
from optfair.core.term import (
    ConstraintTerm,
    ObjectiveTerm,
    Term,
    by_part,
    family,
    is_quadratic,
    within,
)
from optfair.core.variables import Plain
from optfair.errors import DeclarationError, kind_of
from optfair.numbers import Floats
from optfair.proofs.definiteness import curvature_of, symmetric

if TYPE_CHECKING:
    from optfair.core.problem import Problem

_CONES = {"SOC": "soc", "PSD": "psd", "ExpCone": "exp", "PowCone3D": "pow", "PowConeND": "pow"}
_KNOWN = {*_CONES, "PowCone3DApprox", "NonNeg", "NonPos"}
# Right-hand sides of curved functions from which on none is looked at for being a rounding.
ROUNDED = 1e-9
NONLINEAR = ProblemClass(cones=frozenset({"nonlinear"}), curvature="unverified")


def constraint_term(
    name: str, constraint: Any, names: Mapping[int, str], given: Mapping[int, Any] | None = None
) -> ConstraintTerm:
    """Return the term of a CVXPY constraint, analysed.

    Parameters
    ----------
    name : str
        Name of the term.
    constraint : cvxpy.Constraint
        What somebody wrote.
    names : mapping
        CVXPY variable id -> name in the problem.
    given : dict, optional
        Values of CVXPY parameters by id, in place of those they hold.
    """
    if isinstance(constraint, (bool, np.bool_)):
        raise DeclarationError(
            f"constraint {name!r} is the value {bool(constraint)}, not a constraint",
            "both sides were numbers, so Python compared them at once",
            "write it on the problem's variables, as in p['masses'] >= 0.1",
        )
    if not isinstance(constraint, cp.Constraint):
        raise DeclarationError(
            f"constraint {name!r} is {kind_of(constraint)}, not a constraint",
            remedy="give a CVXPY constraint or a rule such as optfair.cluster_share(lower=0.1)",
        )
    stated = constraint
    constraint, parameters = freeze_parameters(constraint, name, given)
    constraint = exact_functions(constraint)
    _, unknown = variable_names(constraint, names)
    if unknown:
        raise DeclarationError(
            f"constraint {name!r} uses variables of another problem: {', '.join(unknown)}",
            f"this problem has {', '.join(sorted(set(names.values())))}",
            "write it on p[...] of this problem or of one it was made from; "
            "a new variable comes in by p.with_variables(NAME=...)",
        )
    finite = bounded_rows(name, constraint, names)
    bounded = proved_assertions(name, finite)
    draft = Draft(name, bounded)
    evidence = constraint_evidence(name, bounded, names, draft)
    zeros = {names[v.id]: np.zeros(v.shape) for v in constraint.variables()}
    evaluator = Evaluator(constraint, names)
    term = replace(
        evaluated_constraint(name, bounded, names, evidence, evaluator),
        latex=lambda: as_latex(constraint),
        origin="user",
        parameters=parameters,
        written=Written(stated, finite is constraint) if parameters else None,
        scale=right_hand_side(evaluator, zeros),
    )
    draft.kept_for(term)
    return term


def evaluated_constraint(
    name: str,
    constraint: Any,
    names: Mapping[int, str],
    evidence: Evidence,
    evaluator: Evaluator | None = None,
) -> ConstraintTerm:
    """Return the term of a constraint whose evidence is known: it is evaluated as it is built."""
    evaluator = evaluator or Evaluator(constraint, names)
    return ConstraintTerm(
        name,
        variable_names(constraint, names)[0],
        evidence,
        build=lambda: constraint,
        violation=evaluator.violation,
        shape=tuple(getattr(constraint, "shape", ())),
    )


def objective_term(
    name: str,
    expression: Any,
    names: Mapping[int, str],
    sense: str,
    given: Mapping[int, Any] | None = None,
) -> ObjectiveTerm:
    """Return the objective term of a CVXPY expression, analysed."""
    written, parameters = freeze_parameters(expression, name, given)
    if written.size != 1:
        raise DeclarationError(
            f"objective {name!r} has the shape {written.shape}, not one number",
            remedy="add its entries up, as in cvxpy.sum(...), or choose one",
        )
    written = exact_functions(written)
    refuse_nonfinite(name, written)
    # c.T @ x of columns is a matrix of one entry
    scalar = proved_assertions(name, cp.sum(written) if written.shape else written)
    draft = Draft(name, scalar, 1.0 if sense == "minimize" else -1.0)
    evidence = objective_evidence(name, scalar, names, sense, draft)
    term = replace(
        evaluated_objective(name, scalar, names, evidence),
        latex=lambda: as_latex(written),
        origin="user",
        parameters=parameters,
        written=Written(expression, True) if parameters else None,
    )
    draft.kept_for(term)
    return term


def evaluated_objective(
    name: str, expression: Any, names: Mapping[int, str], evidence: Evidence
) -> ObjectiveTerm:
    """Return the term of a scalar whose evidence is known: it is evaluated as it is built."""
    evaluator = Evaluator(expression, names)
    return ObjectiveTerm(
        name,
        variable_names(expression, names)[0],
        evidence,
        build=lambda: expression,
        value=lambda values: float(evaluator.value(values).reshape(())),
    )


#: the relations of a term, by how they are written
RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
}


def model_term(name: str, constraint: Any, latex: str = "", **stated: Any) -> ConstraintTerm:
    """Return a model's term: a named constraint on variables that go by their own names.

    Everything is derived from the constraint; what is ``stated`` takes the place of what would be.
    """
    names = {v.id: v.name() for v in constraint.variables()}
    stated = {"latex": latex, "origin": "model", **stated}
    return replace(constraint_term(name, constraint, names), **stated)


def model_goal(
    name: str,
    expression: Any,
    latex: str = "",
    sense: str = "minimize",
    names: Mapping[int, str] | None = None,
) -> ObjectiveTerm:
    """Return a model's summand of the objective, derived from its expression; as `model_term`."""
    names = names or {v.id: v.name() for v in expression.variables()}
    return replace(objective_term(name, expression, names, sense), latex=latex, origin="model")


def rows_term(
    name: str, rows: Callable[[Any], Any], count: int, latex: str = "", **stated: Any
) -> ConstraintTerm:
    """Return a model's term of many like rows: analysed on the first, built where it is asked for.

    Parameters
    ----------
    name, latex
        As in `model_term`.
    rows : callable
        Numbers of rows -> their constraint.
    count : int
        How many rows there are, at least one.
    **stated
        Fields in place of the derived ones: ``scale`` where right-hand sides differ by row.
    """
    whole: list[Any] = []

    def violation(values: Values) -> Floats:
        if not whole:
            constraint = rows(np.arange(count))
            whole.append(Evaluator(constraint, {v.id: v.name() for v in constraint.variables()}))
        return np.asarray(whole[0].violation(values))

    first = model_term(name, rows(np.arange(1)), latex)
    largest = {"scale": first.largest_side, "violation": violation, **stated}
    build = lambda: rows(np.arange(count))
    return replace(first, build=build, rows=rows, shape=(count,), **largest)


def variable_names(
    constraint: Any, names: Mapping[int, str]
) -> tuple[frozenset[str], Sequence[str]]:
    """Return (names of the known variables, descriptions of the unknown ones)."""
    variables = constraint.variables()
    known = frozenset(names[v.id] for v in variables if v.id in names)
    return known, [f"{v.name()} {v.shape}" for v in variables if v.id not in names]


def right_hand_side(evaluator: Any, zeros: Values) -> Any:
    """Return the size of the right-hand side: of each entry, or of all arguments of a cone.

    What evaluates is an `Evaluator`, or states linear rows and has both sides of them.
    """
    sides = evaluator.sides(zeros)
    if sides is None:
        return evaluator.read(zeros, _largest_argument)
    with np.errstate(invalid="ignore"):
        size = np.abs(sides[1] - sides[0])
    if np.isfinite(size).any():
        size = np.where(np.isfinite(size), size, 0.0)
        rounding = _rounding(evaluator.stated, size) if isinstance(evaluator, Evaluator) else 0.0
        return np.where(size <= rounding, 0.0, size)
    return float(max(np.abs(s).max(initial=0.0, where=np.isfinite(s)) for s in sides))


def _rounding(constraint: Any, size: Any) -> float:
    """Return what a curved function may be at the origin by rounding: log(1/2 + 1/2) is no side."""
    small = ((size > 0.0) & (size < ROUNDED)).any()
    if not small or all(side.is_affine() for side in constraint.args):
        return 0.0
    numbers = [dense(c.value) for side in constraint.args for c in side.constants()]
    largest = max((float(np.abs(n).max(initial=0.0)) for n in numbers), default=0.0)
    return 8.0 * float(np.finfo(float).eps) * largest


def _largest_argument(constraint: Any) -> float:
    sizes = []
    for arg in constraint.args:
        try:
            size = np.abs(np.asarray(arg.value, dtype=float))
            sizes.append(size.max(initial=0.0, where=size < np.inf))
        except (ValueError, ArithmeticError):  # not defined at the origin
            continue
    return float(max(sizes, default=0.0))


def cones_of(draft: Draft) -> frozenset[str]:
    """Return the cones beyond the linear ones that CVXPY's own reduction introduces."""
    kinds = {kind.__name__ for kind in draft.kinds}
    return frozenset(_CONES[k] for k in kinds if k in _CONES)


def _function(expression: Any) -> str:
    if expression.is_affine():
        return "affine"
    word = "convex" if expression.is_convex() else "concave"
    if is_quadratic(expression):
        return f"{word} quadratic"
    return f"{word} piecewise linear" if expression.is_pwl() else word


def constraint_evidence(
    name: str, constraint: Any, names: Mapping[int, str], draft: Draft
) -> Evidence:
    """Return the class of a constraint, and why."""
    if not isinstance(constraint, (Equality, Zero, Inequality)):
        return _cone_evidence(name, constraint, draft)
    expression = constraint.expr
    where = "Nonpositive" if isinstance(constraint, Inequality) else "Zero"
    if follows_rules(constraint):
        if expression.is_affine():
            return Evidence(name, "affine", where, ProblemClass())
        if is_quadratic(expression):
            return Evidence(name, "convex quadratic", where, ProblemClass(False, True))
        return Evidence(name, _function(expression), where, ProblemClass(cones=cones_of(draft)))
    return _unproved(name, expression, where, draft, equality=where == "Zero")


def _cone_evidence(name: str, constraint: Any, draft: Draft) -> Evidence:
    if type(constraint).__name__ not in _KNOWN:
        raise DeclarationError(
            f"constraint {name!r} is {kind_of(constraint)}, which is not known here",
            f"known are ==, <=, >=, >> and {', '.join(sorted(_KNOWN))}",
            "write it with those, or with an integer variable",
        )
    if not constraint.is_dcp():
        return Evidence(name, "not affine", type(constraint).__name__, NONLINEAR)
    words = {SOC: "SecondOrder", PSD: "PSD", ExpCone: "Exponential", PowCone3D: "Power"}
    where = next((w for t, w in words.items() if isinstance(constraint, t)), "")
    where = where or type(constraint).__name__
    linear = {"NonNeg": "Nonnegative", "NonPos": "Nonpositive", "NonPosCone": "Nonpositive"}
    return Evidence(name, "affine", linear.get(where, where), ProblemClass(cones=cones_of(draft)))


def _unproved(name: str, expression: Any, where: str, draft: Draft, *, equality: bool) -> Evidence:
    """Return evidence for a constraint that the composition rules do not accept."""
    if is_quadratic(expression):
        from optfair.convexity.hessians import quadratic_curvature

        plain = ProblemClass(False, True)
        curvature = draft.quadratic = quadratic_curvature(expression)
        if curvature is None:
            unknown = plain.with_curvature("unverified")
            return Evidence(name, "quadratic", where, unknown, "not expanded")
        if not (curvature.convex and not equality):
            plain = plain.with_curvature("unverified")
        return Evidence(name, curvature.word, where, plain, curvature.note)
    return Evidence(name, "no DCP proof", where, NONLINEAR)


def objective_evidence(
    name: str, expression: Any, names: Mapping[int, str], sense: str, draft: Draft
) -> Evidence:
    """Return the class of an objective term, and why."""
    good = follows_rules(expression, "convex" if sense == "minimize" else "concave")
    if expression.is_affine():
        return Evidence(name, "affine", sense, ProblemClass())
    if is_quadratic(expression):
        plain = ProblemClass(True)
        if good:
            return Evidence(name, _function(expression), sense, plain)
        from optfair.convexity.hessians import quadratic_curvature

        curvature = draft.quadratic = quadratic_curvature(
            expression if sense == "minimize" else -expression
        )
        if curvature is None:
            unknown = plain.with_curvature("unverified")
            return Evidence(name, "quadratic", sense, unknown, "not expanded")
        if curvature.convex:
            word = "convex quadratic" if sense == "minimize" else "concave quadratic"
            return Evidence(name, word, sense, plain, curvature.note)
        return Evidence(
            name, curvature.word, sense, plain.with_curvature("unverified"), curvature.note
        )
    if good and expression.is_qpwa() and not expression.is_pwl():  # rows and squares say it
        word = "convex" if sense == "minimize" else "concave"
        return Evidence(name, f"{word} piecewise quadratic", sense, ProblemClass(True))
    if good:
        return Evidence(name, _function(expression), sense, ProblemClass(cones=cones_of(draft)))
    return Evidence(name, "no DCP proof", sense, NONLINEAR)


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

    Examples
    --------
    >>> import optfair as of
    >>> isinstance(of.balance(0.4), Rule)
    True
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

    def fitting(self, problem: Problem, kind: type[Any]) -> Any:
        """Return the problem, which must be of the kind that the rule is about.

        Raises
        ------
        DeclarationError
            It is not; the kind's ``rules_on`` says what it lacks, and what to do.
        """
        if isinstance(problem, kind):
            return problem
        about, remedy = kind.rules_on
        raise DeclarationError(
            f"{type(self).__name__} is a rule on {about}",
            f"this problem has the variables {', '.join(problem.variables)}",
            remedy,
        )


# What somebody adds to a problem, as named terms and variables.

AnyTerm = TypeVar("AnyTerm", bound=Term)


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
        # each through the problem, which may refuse some rules
        each = [problem.bound_parts(label, c) for label, c in by_part(name, bound)]
        brought = [parts for parts in each if isinstance(parts, Parts)]
        return Parts(
            {part: c for parts in each for part, c in parts.items()},
            {part: v for parts in brought for part, v in parts.variables.items()},
            {part for parts in brought for part in parts.integers},
            {part: limit for parts in brought for part, limit in parts.limits.items()},
        )
    return {name: bound}


def stated(problem: Problem, rules: Mapping[str, Rule], parts: Parts) -> dict[str, ConstraintTerm]:
    """Return the terms of what somebody added, from its rules and constraints by term name."""
    terms = {}
    for part, constraint in parts.items():
        term = named_term(problem, part, constraint)
        said = (rule.latex for label, rule in rules.items() if within(part, label))
        latex = next(said, "") or term.latex
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


def checked_variables(problem: Problem, added: Mapping[str, Any]) -> Plain:
    """Return further variables of a problem, without signs, bounds and integrality as attributes.

    Raises
    ------
    DeclarationError
        Not a real CVXPY variable, or a name or variable already there.
    """
    plain, known = Plain(reserved={*problem.variables, *added}), {*problem.names, *problem._aliases}
    for name, v in added.items():
        if not isinstance(v, cp.Variable) or v.is_complex():
            what = "complex" if isinstance(v, cp.Variable) else kind_of(v)
            raise DeclarationError(
                f"variable {name!r} is {what}",
                remedy="give a real CVXPY variable: with_variables(z=cp.Variable(3))",
            )
        if name in problem.variables or v.id in known:
            raise DeclarationError(
                f"a variable {name!r} is already there", remedy="choose another name"
            )
        known.add(v.id)
        plain.take(name, v)
    return plain


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


def rounding(parts: Sequence[Any]) -> float:
    """Return the largest shift with which a quadratic form among parts counts as definite."""
    matrices = [n.args[1] for n in parts if QuadForm in type(n).__mro__]
    forms = [P.value for P in matrices if P.is_constant() and not P.parameters()]
    curvatures = [curvature_of(sign * symmetric(P)) for P in forms for sign in (1.0, -1.0)]
    return max((d.shift for d in curvatures if d.accepted), default=0.0)
