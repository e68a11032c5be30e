"""The one compiled form: every row and column knows the term and the variable it belongs to."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.constraints import SOC, ExpCone, NonNeg, PowCone3D, SvecPSD, Zero
from cvxpy.reductions.cvx_attr2constr import recover_value_for_leaf
from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC, SOLVER_MAP_QP
from cvxpy.reductions.solvers.qp_solvers.qp_solver import QpSolver
from numpy.typing import NDArray

from optfair.compile.assembly import (
    Moving,
    Plan,
    blocks_of,
    columns_of,
    entries_of,
    moved,
    objective_of,
)
from optfair.compile.stuffing import cvxpy_program, stuff, turn
from optfair.core.canonical import Canonical, Target, built, canonical, height, shaped, uncollected
from optfair.core.expressions import check_parameters, dense
from optfair.core.parameters import parameter_values
from optfair.core.quadratics import Shortfall
from optfair.core.term import ConstraintTerm, Term
from optfair.errors import DeclarationError, UnsupportedProblem
from optfair.numbers import Floats, Indices
from optfair.proofs.cones import Cone
from optfair.proofs.roots import Rooted
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Terms keep what they were turned into, and problems in other threads share them.
_LOCK = threading.RLock()


@dataclass(frozen=True)
class Owner:
    """Rows that a term compiles to, side by side in one cone or several of a kind.

    Attributes
    ----------
    term : str
        Name of the constraint term; of an objective term for rows that define its epigraph.
    start, stop : int
        First row, and one past the last.
    main : bool
        Whether the multiplier of the term is read from them; the others define epigraphs.
    bound : bool
        Whether the term is a constraint, not a part of the objective.
    """

    term: str
    start: int
    stop: int
    main: bool
    bound: bool = True


_NONE = np.zeros(0, dtype=np.intp)
Key = TypeVar("Key")


@dataclass(frozen=True, eq=False)
class Compiled:
    """A problem in the form one solver interface of CVXPY reads, with the way back.

    Attributes
    ----------
    form : ConicForm
        The cone program, before the solver sees it.
    interface : object
        CVXPY's interface of the solver.
    variables, constraints : dict
        Name -> declared CVXPY variable; name -> constraint term.
    owners : tuple of Owner
        Blocks of rows, in order.
    auxiliary : tuple of (str, int, int)
        Term, first column, one past the last, of the columns that terms introduce.
    integer : array (n,) of bool
        Columns that are integer.
    quadratic : bool
        Whether the interface takes a quadratic objective.
    curvature : dict
        Objective term -> its part of P, where it has one.
    plan : Plan or None
        Where numbers go, if parameters move some.
    first : Compiled or None
        The same at other values of the parameters, compiled before.
    ended : dict
        Solver -> where its last solve ended, for the next one to start from; one for all values
        of the parameters.
    """

    form: ConicForm
    interface: Any
    variables: Mapping[str, Any]
    constraints: Mapping[str, Any]
    owners: tuple[Owner, ...]
    auxiliary: tuple[tuple[str, int, int], ...]
    integer: NDArray[np.bool_]
    quadratic: bool
    curvature: Mapping[str, Any]
    _canonical: Sequence[Any]  # the constraints in the order of their rows
    _terms: Mapping[str, tuple[Canonical, tuple[int, ...]]]  # first rows of their constraints
    plan: Plan | None = None
    first: Compiled | None = None
    ended: dict[str, Any] = field(default_factory=dict)
    _problem: Problem | None = None

    def __reduce__(self) -> Any:
        """Send the problem, which is compiled again where it arrives."""
        return _compiled_again, (self._problem, self.interface.name(), self.quadratic)

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        return self  # like the problem, which nothing changes

    @cached_property
    def handed(self) -> tuple[Any, Any]:
        """What CVXPY's interface makes of the form to call the solver, and to read its result."""
        if self.first is not None:
            from optfair.compile.export import arranged  # it imports this file

            data, inverse = self.first.handed
            again = arranged(self.first.form, data, self.form, turn(self.interface, self.form))
            if again is not None:
                return again, inverse
        applied: tuple[Any, Any] = self.interface.apply(self.program(self.interface))
        return applied

    @cached_property
    def largest(self) -> tuple[str, float]:
        """The largest number in the units in which rows are handed over, and whose it is."""
        scaled = None if self.integer.any() else self.form.near_one
        handed = self.form if scaled is None else scaled[0]
        sides = np.where(np.isfinite(handed.b), np.abs(handed.b), 0.0)
        entries = np.abs(handed.columns_of_rows.data)
        costs = np.abs(np.concatenate([handed.q, handed.P.data])).max(initial=0.0)
        side, entry = (float(v.max(initial=0.0)) for v in (sides, entries))
        if costs >= max(side, entry):
            return "objective", float(costs)
        own = handed.columns_of_rows.indices
        at = int(own[entries.argmax()] if entry > side else sides.argmax())
        return next(o.term for o in self.owners if o.start <= at < o.stop), max(side, entry)

    def program(self, instance: Any, form: ConicForm | None = None) -> Any:
        """Return the form, or the same one in other units, as CVXPY's own for an interface."""
        stated = form or self.form
        return cvxpy_program(instance, stated, self._canonical, self.integer, self.quadratic)

    def rows(self, term: str, *, bound: bool = True) -> Indices:
        """Return all rows of a constraint term, or those of an objective term."""
        return self._rows.get((term, bound, False), _NONE)

    @cached_property
    def _rows(self) -> dict[tuple[str, bool, bool], Indices]:
        """Rows by term, whether it is a constraint, and whether only the main ones are meant."""
        return _gathered(
            ((o.term, o.bound, main), o) for o in self.owners for main in {False, o.main}
        )

    def plain_rows(self, term: str) -> slice | None:
        """Return the rows of a constraint term that stand as they are written, entry by entry."""
        part, starts = self._terms[term]
        return None if part.plain is None else slice(starts[0], starts[0] + part.plain[0])

    def entry_sizes(self, term: str, values: Mapping[str, Any], stated: Any = None) -> Floats:
        r"""Return what the terms of each entry of a constraint add up to, 0 where a side tells it.

        An entry without a right-hand side, :math:`a_i^T x \le 0`, names no unit. A column counts for
        its unit in the equilibrated rows, but not for more than the largest entry of its
        variable: :math:`\sum_j |a_{ij}| \min(1/d_j, \|x_{v(j)}\|_\infty)`. A cone has one size; so have
        the rows of a term that are not its entries, the least of theirs.
        """
        at = self.plain_rows(term)
        own = self._rows.get((term, True, True), _NONE) if at is None else np.r_[at]
        known = None if stated is None or np.size(stated) != own.size else stated
        stated = self.form.b[own] != 0.0 if known is None else np.ravel(known, order="F")
        single = (self.form.equal | self.form.nonnegative)[own].all()
        if not own.size or stated.all() or (stated.any() and not single):
            return np.zeros(())
        x = np.zeros(self.form.q.size)
        for name, columns in self.form.columns.items():
            x[columns] = np.abs(np.asarray(values[name], dtype=float)).max(initial=0.0)
        size = np.asarray(self.form.sizes[own] @ np.minimum(self.form.column_units, x))
        size[stated] = 0.0
        shape = self.constraints[term].shape
        if at is not None and own.size == np.prod(shape, dtype=int):
            return size.reshape(shape, order="F")
        return np.asarray(size.min() if single else size.max())

    def dual_vector(self, raw: Any, instance: Any) -> Floats | None:
        """Return z in row order from a solution at the level of a solver interface."""
        known = raw.dual_vars or {}  # without rows, none are all of them
        blocks = [np.ravel(known[c.id], order="F") for c in self._canonical if c.id in known]
        z = np.asarray(np.concatenate(blocks) if blocks else np.zeros(0), dtype=float)
        if z.size != self.form.b.size:
            return None
        turned = turn(instance, self.form)
        if turned is not None:
            z[turned] = z.copy()
        return z

    def places(self) -> dict[str, NDArray[np.int64]]:
        """Return the column each entry of a variable is read from, -1 where there is none.

        Both triangles of a symmetric variable are read from the same columns; an entry
        outside the pattern of a sparse one, or of a variable no term uses, has no column.
        """
        tags = self.values(np.arange(1.0, self.form.q.size + 1.0))
        return {name: np.rint(tag).astype(np.int64) - 1 for name, tag in tags.items()}

    def values(self, x: Floats) -> dict[str, Floats]:
        """Return the values of the declared variables at a point of the cone program."""
        values = {}
        for name, v in self.variables.items():
            at = self.form.columns.get(name)
            if at is None:  # a variable that no term uses
                values[name] = np.zeros(v.shape)
            elif any(v.attributes[k] for k in ("symmetric", "diag", "sparsity")):
                reduced = x[at].reshape((-1, 1) if v.attributes["symmetric"] else (-1,))
                values[name] = dense(recover_value_for_leaf(v, reduced)).reshape(v.shape, order="F")
            else:
                values[name] = x[at].reshape(v.shape, order="F")
        return values

    def multipliers(self, z: Floats) -> dict[str, Floats]:
        """Return the multipliers of the constraint terms at a dual point."""
        multipliers = {}
        for name, read in self._prices.items():
            if isinstance(read, tuple):
                own, shape = read
                multipliers[name] = z[own].reshape(shape, order="F")
                continue
            part, starts = self._terms[name]
            blocks = {
                c.id: shaped(c, z[at : at + height(c)])
                for c, at in zip(part.constraints, starts, strict=True)
            }
            value = part.multiplier(blocks)
            if value is not None:
                multipliers[name] = _stacked(value)
        return multipliers

    @cached_property
    def _prices(self) -> dict[str, tuple[slice, tuple[int, ...]] | None]:
        """Rows and shape of each term's multiplier, None where these tell it with others only."""
        places: dict[str, tuple[slice, tuple[int, ...]] | None] = {}
        for name, (part, starts) in self._terms.items():
            places[name] = None
            if part.carrier is not None:
                which, rows, shape = part.carrier
                if rows == 1 and not self.constraints[name].shape:
                    shape = ()  # CVXPY's row of a quadratic has an axis more
                places[name] = slice(starts[which], starts[which] + rows), shape
        return places

    def by_name(self, x: Floats, z: Floats | None) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return values and multipliers by name from a point of the cone program."""
        return self.values(x), {} if z is None else self.multipliers(z)


def _gathered(owned: Iterable[tuple[Key, Owner]]) -> dict[Key, Indices]:
    """Return the rows of each key, from its blocks one after the other."""
    rows: dict[Key, list[Indices]] = {}
    for key, o in owned:
        rows.setdefault(key, []).append(np.arange(o.start, o.stop))
    return {key: np.concatenate(own) for key, own in rows.items()}


def _stacked(value: Any) -> Floats:
    """Return one array; the parts of a cone constraint one after the other."""
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(np.asarray(v, dtype=float)) for v in value])
    return np.asarray(value, dtype=float)


def compile_problem(problem: Problem, interface: str, *, quadratic: bool = True) -> Compiled:
    """Return the cone program of a problem as CVXPY's named solver interface gets it.

    Every term is reduced to cones by itself, once; terms whose matrices are not known yet are
    turned into matrices together; the blocks of a problem are put under each other. The result
    is kept for as long as the problem is.

    Parameters
    ----------
    problem : Problem
        What to compile; it is not changed.
    interface : str
        CVXPY's name of the solver.
    quadratic : bool
        Keep a quadratic objective for an interface that takes one; else it becomes a cone.

    Raises
    ------
    UnsupportedProblem
        A term breaks the rules of disciplined convex programming, or needs a cone that the
        interface does not have.
    DeclarationError
        No term uses a variable.
    """
    check_parameters(problem.terms)
    # kept on the problem: what is compiled refers to its terms, and these to it
    known: dict[tuple[str, bool], Compiled] = problem.__dict__.setdefault("_compiled", {})
    key = (interface, quadratic)
    twin = known.get((interface, not quadratic))
    if key not in known and twin and interface.upper() not in SOLVER_MAP_QP:
        # without a square to be kept, a cone program is the same
        known |= {} if _squared(problem) else {key: twin}
    if key not in known:
        with _LOCK, uncollected(), _quiet(problem.variables):
            if key not in known:  # nobody else was faster
                known[key] = _of_family(problem, key) or _compiled(problem, interface, quadratic)
                object.__setattr__(known[key], "_problem", problem)
                if not interface.startswith(PLAIN):
                    object.__setattr__(known[key].form, "_plain", partial(_plain, problem, key))
    return known[key]


def refuse_faint(compiled: Compiled) -> None:
    """Refuse a cone with a row all of whose numbers are at the lower end of the floats."""
    if (row := compiled.form.faint) is None:
        return
    name = next(o.term for o in compiled.owners if o.start <= row < o.stop)
    raise UnsupportedProblem(
        f"the numbers of {name!r} are beyond what solvers compute with",
        "all those of one row are at the lower end of the floats",
        "state it in other units, or leave out what is meant to be 0",
    )


def _plain(problem: Problem, key: tuple[str, bool]) -> ConicForm:
    return compile_problem(problem, PLAIN + key[0], quadratic=key[1]).form


def already_compiled(problem: Problem) -> Compiled | None:
    """Return what a problem was compiled to for whichever interface asked first, if any did."""
    return next(iter(problem.__dict__.get("_compiled", {}).values()), None)


def _compiled_again(problem: Problem, interface: str, quadratic: bool) -> Compiled:
    return compile_problem(problem, interface, quadratic=quadratic)


def _of_family(problem: Problem, key: tuple[str, bool]) -> Compiled | None:
    """Return what was compiled for other values of the parameters, with the numbers for these."""
    forms: dict[Any, Moving] | None = problem.__dict__.get("_family")
    if forms is None:
        return None
    if key not in forms:
        first = _compiled(problem, *key)
        forms[key] = Moving(first)
        return first
    return forms[key].at(parameter_values(problem.terms))


def _quiet(variables: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Silence what CVXPY says to itself while it reads sparse variables."""
    if any(v.attributes.get("sparsity") for v in variables.values()):
        return warnings.catch_warnings(action="ignore", category=RuntimeWarning)
    return nullcontext()


def _squared(problem: Problem) -> bool:
    """Whether the objective has squares that an interface may keep."""
    return any(
        t.evidence.problem_class.quadratic_objective or built(t).has_quadratic_term()
        for t in problem.objective.values()
    )


def _compiled(problem: Problem, name: str, wanted: bool) -> Compiled:
    if not any(t.scope for t in problem.terms):
        raise DeclarationError(
            "no term uses a variable, there is nothing to solve",
            remedy="add an objective or a constraint",
        )
    sign = 1.0 if problem.sense == "minimize" else -1.0
    quadratic = _squared(problem)
    missing: list[str] = []
    for instance in _instances(name, quadratic):
        why = _unfit(problem, instance)
        if why:
            missing.append(why)
            continue
        squares = quadratic or isinstance(instance, QpSolver)
        quad = wanted and instance.supports_quad_obj() and squares
        target = Target.of(instance, integer=bool(problem.integers), quadratic=quad)
        varying = "_family" in problem.__dict__
        costs = _canonical(problem.objective.values(), target, sign, varying)
        rows = _canonical(problem.constraints.values(), target, 0.0, varying)
        unknown = {
            k.__name__ for p in (*costs, *rows) for k in p.kinds if k not in target.supported
        }
        if unknown:
            missing.append(f"{name} has no {', '.join(sorted(unknown))}")
            continue
        return _assembled(problem, instance, sign, costs, rows, quad)
    raise UnsupportedProblem(
        f"CVXPY cannot compile this problem for {name}",
        "; ".join(dict.fromkeys(missing)) or f"The solver {name} is not installed.",
        "name another solver; optfair.solvers() lists what each can take",
    )


def _canonical(
    terms: Iterable[Term], target: Target, sign: float, varying: bool
) -> list[Canonical]:
    """Reduce terms to cones; one that stands there twice has its rows twice."""
    unique: dict[int, Canonical] = {}
    for t in terms:
        if varying and t.written is not None and t.written.family is not None:
            t = t.written.family.term
        part = _of_numbers(t) or canonical(t, target, sign)
        if id(part) in unique:
            part = _of_numbers(t, anew=True) or canonical(t, target, sign, anew=True)
        unique[id(part)] = part
    return list(unique.values())


# Terms whose rows are known as numbers; they die with the terms.
_STATED: WeakKeyDictionary[Term, Canonical] = WeakKeyDictionary()


def _of_numbers(term: Term, *, anew: bool = False) -> Canonical | None:
    """Return a linear term that states its numbers, without CVXPY; None of any other."""
    if not isinstance(term, ConstraintTerm) or term.numbers is None:
        return None
    if anew or (part := _STATED.get(term)) is None:
        equal, entries, b = term.numbers()
        c = (Zero if equal else NonNeg)(cp.Variable(term.shape))
        own = [(v.id, *more) for v, *more in entries]
        variables = tuple((v.id, v.id, int(v.size)) for v, *_ in entries)
        kinds = frozenset([type(c)])
        part = Canonical(None, (c,), c.id, kinds, variables, numbers=(own, -b))
        _STATED[term] = part
    return part


# Before an interface's name: the same one, but semidefinite rows are entries of the matrix as they are.
PLAIN = "PLAIN "


def _instances(name: str, quadratic: bool) -> list[Any]:
    """Return CVXPY's interfaces of that name, in the order in which it would ask them."""
    if name.startswith(PLAIN):
        plain = copy(SOLVER_MAP_CONIC[name.removeprefix(PLAIN).upper()])
        plain.PSD_SQRT2_SCALING = False
        return [plain]
    program, conic = SOLVER_MAP_QP.get(name.upper()), SOLVER_MAP_CONIC.get(name.upper())
    order = [program, conic] if quadratic else [conic, program]
    return [i for i in order if i is not None and i.is_installed()]


def _unfit(problem: Problem, instance: Any) -> str:
    if problem.integers and not instance.MIP_CAPABLE:
        return f"{instance.name()} takes no integers"
    rows = problem.constraints or not all(built(t).is_affine() for t in problem.objective.values())
    if instance.REQUIRES_CONSTR and not rows:
        return f"{instance.name()} takes no problem without constraints"
    return ""


def _assembled(
    problem: Problem,
    instance: Any,
    sign: float,
    costs: list[Canonical],
    rows: list[Canonical],
    quad: bool,
) -> Compiled:
    terms = [*costs, *rows]
    names = [*problem.objective, *problem.constraints]
    fresh = list(dict.fromkeys(p for p in terms if p.matrices is None))
    if fresh:
        try:
            stuff(fresh)
        except NotImplementedError:  # a square times zero is affine to CVXPY, and has no matrix
            raise UnsupportedProblem(
                "CVXPY has no matrix for a term",
                "a function that is not affine is multiplied by zero",
                "leave it out",
            ) from None
    columns, auxiliary, n = columns_of(problem, names, terms)
    blocks = blocks_of(terms)
    plan = Plan(tuple(names), terms, columns, blocks, n)
    terms = moved(terms, parameter_values(problem.terms))[0]
    A, b = entries_of(terms, columns, blocks, n)
    squares, q, offset = objective_of(names, terms, columns, n)
    stuffed = [
        (terms[t].matrices.stuffing, c) for t, c in zip(blocks.term, blocks.own, strict=True)
    ]
    constraints = [s.constraints[c] for s, c in stuffed]
    owners, starts = [], {}
    for t, k, start, size in zip(blocks.term, blocks.which, blocks.start, blocks.size, strict=True):
        starts[t, k] = start
        main = terms[t].main == terms[t].constraints[k].id
        owners.append(Owner(names[t], start, start + size, main, t >= len(costs)))
    form = ConicForm(
        P=sp.csc_array(sum(squares.values()) if squares else (n, n)),
        q=q,
        offset=offset,
        A=A,
        b=b,
        cones=_cones(constraints, blocks.size, [s.mixed[c] for s, c in stuffed], instance),
        columns={
            name: slice(columns[v.id][0], sum(columns[v.id]))
            for name, v in problem.variables.items()
            if v.id in columns
        },
        sign=sign,
        rooted=_rooted(columns),
    )
    integer = np.zeros(n, dtype=bool)
    for name in problem.integers & set(form.columns):
        integer[form.columns[name]] = True
    return Compiled(
        form,
        instance,
        problem.variables,
        MappingProxyType(dict(problem.constraints)),
        tuple(owners),
        auxiliary,
        integer,
        quad,
        squares,
        constraints,
        {
            name: (p, tuple(starts[t, k] for k in range(len(p.constraints))))
            for t, (name, p) in enumerate(zip(names, terms, strict=True))
            if t >= len(costs)
        },
        plan if any(p.matrices.stuffing.numbers is not None for p in terms) else None,
    )


def _rooted(columns: Mapping[int, tuple[int, int]]) -> tuple[Rooted, ...]:
    """Return the forms that rows have rounded roots of."""
    lacking = {at: Shortfall.known.get(own) for own, (at, _) in columns.items()}
    return tuple(
        Rooted(at, slice(columns[s.of.id][0], sum(columns[s.of.id])), s.share, s.matrix)
        for at, s in lacking.items()
        if s is not None
    )


def _cones(
    constraints: Sequence[Any], sizes: Sequence[int], mixed: Sequence[bool], instance: Any
) -> tuple[Cone, ...]:
    cones: list[Cone] = []
    at = 0

    def add(kind: Any, size: int, **more: Any) -> None:
        nonlocal at
        if size:
            cones.append(Cone(kind, at, at + size, **more))
            at += size

    upper = getattr(instance.PSD_TRIANGLE_KIND, "name", "UPPER") == "UPPER"
    root = 1.0 if instance.PSD_SQRT2_SCALING is False else 2.0**0.5
    for kind, word in ((Zero, "zero"), (NonNeg, "nonneg")):
        add(word, sum(n for c, n in zip(constraints, sizes, strict=True) if type(c) is kind))
    for c, some in zip(constraints, mixed, strict=True):
        if type(c) in (Zero, NonNeg):
            continue
        if type(c) is SOC:
            for size in c.cone_sizes():
                add("soc", size)
        elif type(c) is SvecPSD:
            for _ in range(c.num_cones()):
                size, more = c._n * (c._n + 1) // 2, {"root": root, "mixed": some}
                add("psd", size, order=c._n, upper=upper, **more)
        elif type(c) is ExpCone:
            for _ in range(c.num_cones()):
                add("exp", 3)
        elif type(c) is PowCone3D:
            for power in np.ravel(c.alpha.value):
                add("pow", 3, power=float(power))
        else:
            unknown = f"nothing measures a point on rows in the cone {type(c).__name__}"
            raise UnsupportedProblem(unknown, remedy="name another solver")
    return tuple(cones)
