"""A term reduced to cones by itself: its epigraphs belong to it and leave with it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.index import special_index
from cvxpy.constraints import PSD, SOC, Equality, ExpCone, Inequality, NonNeg, SvecPSD, Zero
from cvxpy.reductions.cone2cone.approx import ApproxCone2Cone
from cvxpy.reductions.cone2cone.exact import ExactCone2Cone, PSDToSvecPSD
from cvxpy.reductions.cone2cone.soc_dim3 import SOCDim3
from cvxpy.reductions.cvx_attr2constr import CONVEX_ATTRIBUTES, CvxAttr2Constr
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from cvxpy.reductions.eliminate_zero_sized import EliminateZeroSized
from cvxpy.reductions.solution import Solution as RawSolution
from cvxpy.reductions.solvers.solver import expand_cones
from cvxpy.settings import OPTIMAL
from cvxpy.utilities.solver_context import SolverInfo

from optfair.core.expressions import refuse_nonfinite
from optfair.core.functions import exact_functions
from optfair.core.problem_class import vanishing
from optfair.core.quadratics import CONES, cones_of
from optfair.core.term import Term, is_quadratic
from optfair.errors import UnsupportedProblem, shortened
from optfair.numbers import Floats
from optfair.proofs.cones import Cone


@dataclass(frozen=True)
class Target:
    """What of a solver interface changes how a term is reduced.

    Attributes
    ----------
    supported : frozenset of type
        Cones it takes.
    quadratic : bool
        Whether quadratic objectives stay quadratic.
    dim3 : bool
        Whether second-order cones have three entries.
    triangle : tuple
        Which triangle stands for a matrix, and whether off-diagonal entries are scaled.
    context : SolverInfo
        The same in CVXPY's words.
    """

    supported: frozenset[type]
    quadratic: bool
    dim3: bool
    triangle: tuple[Any, Any]
    context: Any = field(compare=False)

    @cached_property
    def _number(self) -> int:
        return hash((self.supported, self.quadratic, self.dim3, self.triangle))

    def __hash__(self) -> int:  # every term is asked for by its target
        return self._number

    @classmethod
    def of(cls, instance: Any, *, integer: bool, quadratic: bool) -> Target:
        """Return the target of one of CVXPY's interfaces."""
        kinds = instance.SUPPORTED_CONSTRAINTS
        if integer:
            kinds = getattr(instance, "MI_SUPPORTED_CONSTRAINTS", kinds)
        # a triangle stands for a matrix, and cones of three entries for longer power cones
        kinds = [k for k in kinds if k not in (PSD, cp.constraints.PowConeND)]
        context = SolverInfo(
            solver=instance.name(),
            supported_constraints=frozenset(kinds),
            psd_triangle_kind=instance.PSD_TRIANGLE_KIND,
            psd_sqrt2_scaling=instance.PSD_SQRT2_SCALING,
        )
        triangle = (instance.PSD_TRIANGLE_KIND, instance.PSD_SQRT2_SCALING)
        return cls(frozenset(kinds), quadratic, bool(instance.SOC_DIM3_ONLY), triangle, context)


@dataclass(eq=False)
class Canonical:
    """A term as affine functions in cones.

    Attributes
    ----------
    cost : cvxpy.Expression or None
        Affine or quadratic; of an objective term, to be minimised.
    constraints : tuple of cvxpy.Constraint
        With affine arguments.
    main : int or None
        Which of them, by id, carries the multiplier of the term.
    kinds : frozenset of type
        Cones, equalities and inequalities as what they become.
    variables : tuple of (int, int, int)
        For each variable its id here, the id it has in the problem, its size.
    numbers : tuple, optional
        (entries of A by variable id, -b) of its rows b - A x, where they are known as numbers.
    matrices : object
        Where its matrices are, once somebody has made them.
    """

    cost: Any
    constraints: tuple[Any, ...]
    main: int | None
    kinds: frozenset[type]
    variables: tuple[tuple[int, int, int], ...]
    _chain: tuple[tuple[Any, Any], ...] = ()
    _first: int | None = None
    numbers: Any = None
    matrices: Any = None

    @cached_property
    def plain(self) -> tuple[int, tuple[int, ...]] | None:
        """Size and shape of the multiplier where it is that of one equality or inequality."""
        if self._chain or len(self.constraints) != 1 or type(self.constraints[0]) not in _ROWS:
            return None
        return int(self.constraints[0].size), tuple(self.constraints[0].shape)

    @cached_property
    def carrier(self) -> tuple[int, int, tuple[int, ...]] | None:
        """Which constraint's multiplier is the term's own, its rows and its shape.

        None where more than that is needed.
        """
        if self.plain is not None:
            return (0, *self.plain)
        ids = [] if self._chain else [c.id for c in self.constraints]
        if self.main not in ids:
            return None
        c = self.constraints[ids.index(self.main)]
        return ids.index(self.main), height(c), np.shape(shaped(c, np.zeros(height(c))))

    def multiplier(self, blocks: Mapping[int, Any]) -> Any:
        """Return the term's multiplier from those of its constraints, None where it has none."""
        if not self._chain:
            return blocks.get(self.main)  # type: ignore[arg-type]
        solution = RawSolution(OPTIMAL, 0.0, {}, dict(blocks), {})
        for step, inverse in reversed(self._chain):
            solution = step.invert(solution, inverse)
        return solution.dual_vars.get(self._first)


def height(constraint: Any) -> int:
    """Return how many rows a canonical constraint has."""
    if isinstance(constraint, (Equality, Inequality)):  # two sides of the same rows
        return int(constraint.size)
    return int(sum(arg.size for arg in constraint.args))


def shaped(constraint: Any, block: Floats) -> Any:
    """Return the multiplier of a canonical constraint in the shape CVXPY gives it."""
    if block.size == 1 and constraint.shape == ():
        return float(block[0])
    if isinstance(constraint, (ExpCone, SOC)) or constraint.shape == ():
        return block
    return block.reshape(constraint.shape, order="F")


class _Asked(frozenset):  # type: ignore[type-arg]
    """The cones of an interface, which remembers what it was asked for."""

    answers: dict[Any, bool]

    def __contains__(self, kind: object) -> bool:
        self.answers[kind] = answer = super().__contains__(kind)
        return answer


@dataclass(eq=False)
class _Reduced:
    """A term after CVXPY's first reduction, and what it asked the interface on the way."""

    sign: float
    quadratic: bool
    answers: dict[Any, bool]
    cost: Any
    constraints: list[Any]
    main: int | None
    lowered: dict[tuple[Any, ...], Canonical] = field(default_factory=dict)

    def fits(self, sign: float, target: Target) -> bool:
        """Whether reducing for that target gives the same."""
        return (
            self.sign == sign
            and self.quadratic == (target.quadratic and sign != 0.0)
            and all((kind in target.supported) is was for kind, was in self.answers.items())
        )


@dataclass(eq=False)
class _Known:
    """What is known of a term: as it is built, reduced, and by interface."""

    built: Any
    proof: Any = None
    quadratic: Any = None
    reduced: list[_Reduced] = field(default_factory=list)
    lowered: dict[tuple[Target, float], Canonical] = field(default_factory=dict)


# By what builds a term, which terms that differ in name or origin share; it dies with them.
_KNOWN: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()


def _key(term: Term) -> Any:
    return term.build if isinstance(term.build, FunctionType) else term


def built(term: Term) -> Any:
    """Return the CVXPY expression or constraint of a term, built once.

    Raises
    ------
    DeclarationError
        Data of a model that are not finite: they are met here first.
    """
    return _known(term).built


def _known(term: Term) -> _Known:
    known = _KNOWN.get(_key(term))
    if known is None:
        expression = term.build()
        refuse_nonfinite(term.name, expression)
        known = _KNOWN[_key(term)] = _Known(expression, term.evidence.proof)
    return known


@contextmanager
def uncollected() -> Iterator[None]:
    """Let the collector of cycles wait while terms are made: each pass looks through all there are."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Draft:
    """An expression that becomes a term: what its class needs of the reduction is kept for it.

    Parameters
    ----------
    name : str
        Name of the term.
    written : cvxpy.Expression or cvxpy.Constraint
        What it builds, by the rules of disciplined convex programming, or proved.
    sign : float
        1 for an objective to be minimised, -1 to be maximised, 0 for a constraint.
    proof : CurvatureProof, optional
        What proves its curvature, where these rules do not.

    Attributes
    ----------
    quadratic : QuadraticCurvature or None
        Of a quadratic that was multiplied out: of its negative where it is maximised.
    """

    def __init__(self, name: str, written: Any, sign: float = 0.0, proof: Any = None) -> None:
        self.name, self.written, self.sign, self.proof = name, written, sign, proof
        self.quadratic: Any = None
        self._reduced: _Reduced | None = None

    @property
    def constraints(self) -> tuple[Any, ...]:
        """What it is reduced to where no interface prefers other cones; its own comes last."""
        if self._reduced is None:
            own = self.name, self.written, _plainest(False), self.sign, self.proof
            self._reduced = _reduced(*own)
        return tuple(self._reduced.constraints)

    @property
    def kinds(self) -> frozenset[type]:
        """The cones of these."""
        return frozenset(_kind(c) for c in self.constraints)

    def kept_for(self, term: Term) -> None:
        """Let the term, which builds what was written, use the reduction."""
        reduced = [] if self._reduced is None else [self._reduced]
        _KNOWN[_key(term)] = _Known(self.written, self.proof, self.quadratic, reduced)


def _plainest(quadratic: bool) -> Target:
    context = SolverInfo(supported_constraints=frozenset())
    return Target(frozenset(), quadratic, False, (None, None), context)


def reduction(term: Term, sign: float) -> tuple[Any, tuple[Any, ...]]:
    """Return (cost, constraints) of a term on the declared variables, squares kept.

    Parameters
    ----------
    term : Term
        An objective or constraint term.
    sign : float
        As in `canonical`. The cost is that of the minimisation, None for a constraint, whose own
        constraint comes last.
    """
    reduced = _reduced_once(_known(term), term.name, _plainest(True), sign)
    return reduced.cost, tuple(reduced.constraints)


def _reduced_once(known: _Known, name: str, target: Target, sign: float) -> _Reduced:
    reduced = next((r for r in known.reduced if r.fits(sign, target)), None)
    if reduced is None:
        reduced = _reduced(name, known.built, target, sign, known.proof, known.quadratic)
        known.reduced.append(reduced)
    return reduced


def canonical(term: Term, target: Target, sign: float, *, anew: bool = False) -> Canonical:
    """Return a term reduced to cones that an interface takes, if they can be reduced to these.

    Parameters
    ----------
    term : Term
        An objective or constraint term.
    target : Target
        Whom for.
    sign : float
        1 for an objective to be minimised, -1 to be maximised, 0 for a constraint.
    anew : bool
        Reduce it again, with epigraphs of its own: for a problem that has it twice.

    Raises
    ------
    UnsupportedProblem
        It breaks the rules of disciplined convex programming.
    """
    known = _known(term)
    if anew:
        again = _reduced(term.name, known.built, target, sign, known.proof, known.quadratic)
        return _lowered(again, target)
    lowered = known.lowered.get((target, sign))
    if lowered is None:
        if cp.quantum_rel_entr in known.built.atoms():
            raise UnsupportedProblem(
                f"no cones are known for the quantum relative entropy in {term.name!r}",
                "CVXPY has a quadrature, and a bound on that is none on the problem",
                "solve problem.cvxpy by CVXPY, which proves nothing",
            )
        reduced = _reduced_once(known, term.name, target, sign)
        lowered = known.lowered[target, sign] = _lowered(reduced, target)
    return lowered


def _reduced(
    name: str, written: Any, target: Target, sign: float, proof: Any = None, curvature: Any = None
) -> _Reduced:
    asked = _Asked(target.supported)
    asked.answers = {}
    context = SolverInfo(
        solver=target.context.solver_name,
        supported_constraints=asked,
        psd_triangle_kind=target.context.psd_triangle_kind,
        psd_sqrt2_scaling=target.context.psd_sqrt2_scaling,
    )
    quadratic = target.quadratic and sign != 0.0
    written, sides = (written, []) if sign else vanishing(written)
    written = exact_functions(written)
    rows = not sign and not sides and type(written) in _ROWS
    if rows and all(side.is_affine() for side in written.args) and _plain(written):
        return _Reduced(sign, quadratic, asked.answers, None, [written], written.id)
    conic = Dcp2Cone(quad_obj=quadratic, solver_context=context)
    if not written.is_dcp() or proof is not None:
        written, sides = _disciplined(name, written, sign, proof, curvature)
    if sign:
        written = cp.Minimize(written if sign > 0 else -written)
    if not written.is_dcp():
        raise _undisciplined(name, written)
    try:
        conic.cone_canon_methods = cones_of(written)
        with warnings.catch_warnings(action="ignore"):  # of approximations, where powers are exact
            main, others = conic.canonicalize_tree(written, bool(sign))
            for side in sides:
                own, more = conic.canonicalize_tree(side, False)
                others = [*others, *more, own]
    except (ValueError, TypeError, NotImplementedError, cp.error.SolverError) as e:
        raise UnsupportedProblem(
            f"CVXPY cannot compile {name!r}",
            f"{shortened(written, 120)}: {shortened(e, 200) or type(e).__name__}",
            "write it with other functions, or name a solver that takes it as it is",
        ) from e
    cost, rest, own_id = (main.expr, others, None) if sign else (None, [*others, main], main.id)
    return _Reduced(sign, quadratic, asked.answers, cost, list(rest), own_id)


# Constraints that are rows as they stand when both sides are affine.
_ROWS = (Equality, Inequality, NonNeg, Zero)


def _plain(written: Any) -> bool:
    """Whether an affine expression has no part with a form in cones of its own; entries have none."""
    kind = type(written)
    known = kind is special_index or kind not in CONES
    return known and all(_plain(arg) for arg in written.args)


def _disciplined(
    name: str, written: Any, sign: float, proof: Any, quadratic: Any
) -> tuple[Any, list[Any]]:
    """Return what a proof, or its matrix, says in CVXPY's rules, and what goes with it.

    Raises
    ------
    UnsupportedProblem
        Nothing proves a curvature, or no cones are known for what is proved.
    """
    from optfair.convexity.cones import disciplined
    from optfair.convexity.powers import quadratic_form

    of_constraint = not sign and isinstance(written, (Inequality, cp.constraints.NonPos))
    if not sign and not of_constraint:
        raise _undisciplined(name, written)
    expression = written.expr if of_constraint else written
    cones = None
    if proof is not None:
        cones = disciplined(proof, "concave" if sign < 0 else "convex")
        if cones is None:
            raise UnsupportedProblem(
                f"{name!r} is proved {proof.curvature}, and no cones are known for it",
                proof.explain(),
                "name a solver of smooth problems, or solve by tangents",
            )
    elif is_quadratic(expression):
        if quadratic is None:
            from optfair.convexity.hessians import quadratic_curvature

            quadratic = quadratic_curvature(expression if sign >= 0 else -expression)
        if quadratic is not None and quadratic.convex:
            coefficients = quadratic.rows if sign >= 0 else -1.0 * quadratic.rows
            form = quadratic_form(expression, rows=of_constraint, coefficients=coefficients)
            cones = None if form is None else (cp.reshape(form, expression.shape, order="F"), [])
    if cones is None:
        raise _undisciplined(name, written)
    out, sides = cones
    return (out <= 0 if of_constraint else out), sides


def _undisciplined(name: str, written: Any) -> UnsupportedProblem:
    """Return the error about the innermost expression that breaks the rules."""
    return UnsupportedProblem(
        f"CVXPY cannot compile {name!r}: it breaks the rules of disciplined convex programming",
        f"these rules do not know the curvature of {shortened(_innermost(written), 120)}",
        "write it by them, e.g. a convex quadratic as quad_form(x, Q) or sum_squares(A @ x)",
    )


def _innermost(written: Any) -> Any:
    """Return the deepest expression without known curvature, else what was written."""
    for arg in getattr(written, "args", ()):
        if isinstance(arg, cp.Expression) and not arg.is_dcp():
            return _innermost(arg)
    return written


def _lowered(reduced: _Reduced, target: Target) -> Canonical:
    """Take attributes off the variables, and cones that the interface does not have away."""
    kinds = frozenset(_kind(c) for c in reduced.constraints)
    exact, approximate = _expanded(kinds, target.supported)
    dim3 = target.dim3 and SOC in kinds
    triangle = target.triangle if PSD in kinds or SOC in exact else ()
    key = (exact, approximate, dim3, triangle)
    if key not in reduced.lowered:
        reduced.lowered[key] = _conversions(reduced, exact, approximate, dim3, target.context)
    return reduced.lowered[key]


@lru_cache(maxsize=256)  # thousands of terms are in the same few cones
def _expanded(
    kinds: frozenset[type], supported: frozenset[type]
) -> tuple[frozenset[type], frozenset[type]]:
    """Return the cones that are written with others, exactly and approximately."""
    _, exact, approximate = expand_cones(set(kinds), supported)
    return frozenset(exact), frozenset(approximate)


def _kind(constraint: Any) -> type:
    """Return the cone that a constraint becomes a row of."""
    becomes: dict[type, type] = {Equality: Zero, Inequality: NonNeg}
    return becomes.get(type(constraint), type(constraint))


def _conversions(
    reduced: _Reduced,
    exact: frozenset[type],
    approximate: frozenset[type],
    dim3: bool,
    context: Any,
) -> Canonical:
    constraints, cost = reduced.constraints, reduced.cost
    variables = _variables(cost, constraints)
    steps: list[Any] = []
    if any(v.attributes[k] for v in variables.values() for k in CONVEX_ATTRIBUTES):
        steps.append(CvxAttr2Constr(reduce_bounds=True))
    if exact:
        steps.append(ExactCone2Cone(target_cones=set(exact), solver_context=context))
        steps[-1].canon_methods |= {k: _triangle for k in exact if k is PSD}
        steps[-1]._dual_recovery |= {k: _whole for k in exact if k is PSD}
    if approximate:
        steps.append(ApproxCone2Cone(target_cones=set(approximate)))
    if any(_empty(part) for part in (*constraints, *(() if cost is None else (cost,)))):
        steps.append(EliminateZeroSized())
    if dim3:
        steps.append(SOCDim3())
    known = {i: i for i in variables}
    chain, main = [], reduced.main
    if steps:
        problem = cp.Problem(cp.Minimize(cp.Constant(0.0) if cost is None else cost), constraints)
        for step in steps:
            problem, inverse = step.apply(problem)
            if isinstance(step, CvxAttr2Constr) and inverse:
                problem, inverse = _shared(problem, inverse)
                known |= {new.id: old for old, new in inverse[0].items()}
            chain.append((step, inverse))
        constraints = problem.constraints
        cost = None if cost is None else problem.objective.expr
        variables = _variables(cost, constraints)
        main = _followed(main, chain)
    return Canonical(
        cost,
        tuple(constraints),
        main,
        frozenset(_kind(c) for c in constraints),
        tuple((i, known.get(i, i), v.size) for i, v in variables.items()),
        tuple(chain),
        reduced.main,
    )


def _triangle(c: Any, args: Any, solver_context: Any) -> Any:
    """Return the triangle of a matrix as CVXPY does, which multiplies large matrices for it."""
    n, kind = args[0].shape[-1], solver_context.psd_triangle_kind
    if args[0].ndim > 2:
        return PSDToSvecPSD.canonicalize(c, args, solver_context)
    rows = Cone("psd", 0, 0, order=n, upper=kind.name == "UPPER")
    whole = rows.reading(scaled=solver_context.psd_sqrt2_scaling)
    return SvecPSD(whole @ cp.vec(args[0], order="F"), n=n), []


def _whole(c: Any, triangle: Any, inverse: Any, others: Any) -> Any:
    """Return the matrix of such a triangle as CVXPY does, which needs several copies."""
    if c.args[0].ndim > 2:
        return PSDToSvecPSD.recover_dual(c, triangle, inverse, others)
    stated = inverse._solver_context
    upper, root = stated.psd_triangle_kind.name == "UPPER", 2.0**0.5
    rows = Cone("psd", 0, 0, c.args[0].shape[-1], upper, root=root)
    return (rows if stated.psd_sqrt2_scaling else replace(rows, root=1.0)).matrix(triangle)


# What stands for a symmetric, diagonal or sparse variable: the same in all terms.
_STAND_INS: WeakValueDictionary[int, Any] = WeakValueDictionary()


def _shared(problem: Any, inverse: Any) -> tuple[Any, Any]:
    """Replace variables that stand for declared ones by those of the other terms."""
    new, old, ids = inverse
    swaps, shared = {}, {}
    for i, v in new.items():
        shared[i] = v if v is old[i] else _STAND_INS.setdefault(i, v)
        if shared[i] is not v:
            swaps[id(v)] = shared[i]
    if not swaps:
        return problem, inverse
    copies = {c.id: c.tree_copy(id_objects=dict(swaps)) for c in problem.constraints}
    goal = problem.objective.tree_copy(id_objects=dict(swaps))
    after = {first: copies[last].id for first, last in ids.items()}
    return cp.Problem(goal, list(copies.values())), (shared, old, after)


def _empty(expression: Any) -> bool:
    """Whether a part of an expression has no entries: CVXPY's matrices must not see it."""
    return expression.size == 0 or any(_empty(arg) for arg in expression.args)


def _followed(main: int | None, chain: list[tuple[Any, Any]]) -> int | None:
    """Return the id that a constraint has after the conversions."""
    for step, inverse in chain:
        ids = inverse[2] if isinstance(step, CvxAttr2Constr) and inverse else None
        main = (ids or getattr(step, "_cons_id_map", None) or {}).get(main, main)
    return main


def _variables(cost: Any, constraints: list[Any]) -> dict[int, Any]:
    unique: dict[int, Any] = {}
    for part in (*(() if cost is None else (cost,)), *constraints):
        for v in part.variables():
            unique.setdefault(v.id, v)
    return unique
