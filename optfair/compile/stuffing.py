"""Matrices of terms as CVXPY makes them, and the form as CVXPY's own program again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.constraints import (
    SOC,
    Equality,
    ExpCone,
    Inequality,
    NonNeg,
    PowCone3D,
    SvecPSD,
    Zero,
)
from cvxpy.lin_ops.lin_op import CONSTANT_ID
from cvxpy.reductions.dcp2cone.cone_matrix_stuffing import ConeMatrixStuffing, ParamConeProg
from cvxpy.reductions.solvers.qp_solvers.qp_solver import QpSolver
from numpy.typing import NDArray

from optfair.core.canonical import Canonical

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = [
    "Numbers",
    "Part",
    "Stuffing",
    "arranged",
    "cvxpy_program",
    "height",
    "moved",
    "stuff",
    "turn",
]

# The order in which every interface lists its cones.
_ORDER = (Zero, NonNeg, SOC, SvecPSD, ExpCone, PowCone3D)
_RANK = {kind: i for i, kind in enumerate(_ORDER)}


@dataclass(eq=False)
class Stuffing:
    """Terms whose matrices were built together: one call of CVXPY's stuffing.

    Rows stand in the convention ``b - A x in K``, cones in the order (t, x), (x, y, z).
    """

    row: Indices
    column: Indices
    entry: Floats
    b: Floats
    sizes: Indices  # rows of each constraint
    place: Indices  # of each row within its constraint
    ranks: list[int]
    constraints: list[Any]
    variables: Mapping[int, int]  # id -> first column
    width: int
    numbers: Numbers | None = None  # where its entries move with parameters


@dataclass(eq=False)
class Part:
    """Where the matrices of a canonical term are."""

    stuffing: Stuffing
    blocks: tuple[int, ...]  # its constraints in the stuffing
    cost: tuple[Any, Floats, float] | None  # P, q, constant of an objective term


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
        """Return the parameters one after the other, and 1, from their values by id."""
        found = np.ones(self.size)
        for i, at in self.places.items():
            own = np.ravel(values[i], order="F")
            found[at : at + own.size] = own
        return found

    def cost(self, theta: Floats) -> tuple[Any, Floats, float]:
        """Return P, q and the constant of the objective."""
        P = None
        if self.square is not None:
            P = sp.coo_array((self.square @ theta, self.pattern), shape=self.shape)
        return P, self.linear @ theta, float((self.constant @ theta)[0])


def _split(tensor: Any, height: int) -> tuple[Any, Indices, Indices]:
    """Return the rows of a tensor that are not 0, and the row and column of the matrix of each."""
    entries = sp.coo_array(tensor)
    kept = entries.data != 0.0
    at, own = np.unique(entries.coords[0][kept].astype(np.int64), return_inverse=True)
    where = (own, entries.coords[1][kept])
    found = sp.csr_array((entries.data[kept], where), shape=(at.size, entries.shape[1]))
    return found, (at % height).astype(np.intp), (at // height).astype(np.intp)


def moved(
    terms: Sequence[Canonical], values: Mapping[int, Any]
) -> tuple[list[Canonical], dict[int, Stuffing]]:
    """Return terms with their numbers at values by parameter id, and the new stuffings."""
    stuffings: dict[int, Stuffing] = {}
    vectors: dict[int, Floats] = {}
    out = []
    for term in terms:
        part: Part = term.matrices
        numbers = part.stuffing.numbers
        if numbers is None:
            out.append(term)
            continue
        key = id(part.stuffing)
        if key not in stuffings:
            theta = vectors[key] = numbers.vector(values)
            stuffings[key] = replace(
                part.stuffing, entry=numbers.entry @ theta, b=numbers.b @ theta
            )
        cost = None if part.cost is None else numbers.cost(vectors[key])
        out.append(replace(term, matrices=Part(stuffings[key], part.blocks, cost)))
    return out, stuffings


def height(constraint: Any) -> int:
    """Return how many rows a canonical constraint has."""
    if isinstance(constraint, (Equality, Inequality)):  # two sides of the same rows
        return int(constraint.size)
    return int(sum(arg.size for arg in constraint.args))


def stuff(parts: Sequence[Canonical]) -> None:
    """Turn terms into matrices, together; further objective terms one by one."""
    varying = {id(p) for p in parts if _parametric(p)}
    if varying and len(varying) < len(parts):  # numbers that stay are made once, as numbers
        stuff([p for p in parts if id(p) in varying])
        stuff([p for p in parts if id(p) not in varying])
        return
    first = next((p for p in parts if p.cost is not None), None)
    together: list[Canonical] = []
    alone: list[Canonical] = []
    seen: set[int] = set()
    for p in parts:
        own = {c.id for c in p.constraints}
        # the same constraint may have two names
        (alone if (p.cost is not None and p is not first) or own & seen else together).append(p)
        seen |= own
    _stuff_group(together, first)
    for p in alone:
        _stuff_group([p], None if p.cost is None else p)


def _parametric(part: Canonical) -> bool:
    some = part.constraints if part.cost is None else (part.cost, *part.constraints)
    return any(e.parameters() for e in some)


def _stuff_group(parts: Sequence[Canonical], cost: Canonical | None) -> None:
    constraints = [c for p in parts for c in p.constraints]
    goal = cp.Minimize(cp.Constant(0.0) if cost is None else cost.cost)
    quad = not goal.expr.is_affine()
    program, _ = ConeMatrixStuffing(quad_obj=quad).apply(cp.Problem(goal, constraints))
    stuffed = program.constraints
    sizes = np.array([height(c) for c in stuffed], dtype=np.intp)
    m = int(sizes.sum())
    places = [_places(c) for c in stuffed]
    place = np.concatenate(places) if places else np.zeros(0, dtype=np.intp)
    zero = np.repeat(np.array([type(c) is Zero for c in stuffed], dtype=bool), sizes)
    # CVXPY: A x + b = 0 or in K; here: b - A x in K
    side = np.where(zero, 1.0, -1.0)
    numbers = None
    own: tuple[Any, Floats, float]
    if program.parameters:
        numbers, row, column = Numbers.of(program, side)
        entry, b = np.zeros(row.size), np.zeros(m)  # nothing is read before they have values
        own = (None, np.zeros(program.x.size), 0.0)
    else:
        if quad:
            P, q, constant, A, b = program.apply_parameters(quad_obj=True)
        else:
            q, constant, A, b = program.apply_parameters()
            P = None
        entries = sp.coo_array(A) if m else sp.coo_array((0, program.x.size))
        row, column = entries.row.astype(np.intp), entries.col.astype(np.intp)
        entry, b = entries.data * side[row], -side * np.asarray(b, dtype=float)[:m]
        own = (None if P is None else sp.coo_array(P), np.asarray(q, dtype=float), float(constant))
    stuffing = Stuffing(
        row=row,
        column=column,
        entry=entry,
        b=b,
        sizes=sizes,
        place=place,
        ranks=[_RANK[type(c)] for c in stuffed],
        constraints=list(stuffed),
        variables=dict(program.var_id_to_col),
        width=int(program.x.size),
        numbers=numbers,
    )
    at = {c.id: i for i, c in enumerate(stuffed)}
    for p in parts:
        blocks = tuple(at[c.id] for c in p.constraints)
        p.matrices = Part(stuffing, blocks, own if p is cost else None)


def _places(constraint: Any) -> Indices:
    """Return where each row of a constraint, argument by argument, stands in its cones."""
    args = constraint.args
    if type(constraint) is SOC:
        count, depth = args[0].size, args[1].shape[0] if args[1].shape else 1
        heads = np.arange(count) * (depth + 1)
        return np.concatenate([heads, (heads[:, None] + 1 + np.arange(depth)).ravel()])
    if type(constraint) in (ExpCone, PowCone3D):
        count = args[0].size
        return np.concatenate([3 * np.arange(count) + i for i in range(3)])
    return np.arange(height(constraint))


def turn(instance: Any, form: ConicForm) -> Indices | None:
    """Return the row of the form at each row of the interface, None where they are the same."""
    order = getattr(instance, "EXP_CONE_ORDER", None) or [0, 1, 2]
    if list(order) == [0, 1, 2] or all(c.kind != "exp" for c in form.cones):
        return None
    turned = np.arange(form.b.size)
    for c in form.cones:
        if c.kind == "exp":
            turned[c.start + np.array(order)] = np.arange(c.start, c.stop)
    return turned


def cvxpy_program(
    instance: Any,
    form: ConicForm,
    constraints: Sequence[Any],
    integer: NDArray[np.bool_],
    quad: bool,
) -> Any:
    """Return the form as a program of CVXPY, in tensors with one column for the constant."""
    m, n = form.A.shape
    A, b, turned = form.A, form.b, turn(instance, form)
    if turned is not None:
        A, b = sp.csc_array(sp.csr_array(A)[turned]), b[turned]
    bare = isinstance(instance, QpSolver)  # they read equalities before a sign is given to them
    zeros = sum(c.stop - c.start for c in form.cones if c.kind == "zero")
    side = np.where(bare & (np.arange(m) < zeros), 1.0, -1.0)
    value = np.where(bare & (np.arange(m) < zeros), -b, b)
    entries = sp.coo_array(A)
    given = np.flatnonzero(value)
    at = np.concatenate([entries.col.astype(np.int64) * m + entries.row, np.int64(n) * m + given])
    data = np.concatenate([entries.data * side[entries.row], value[given]])
    costs = np.append(form.q, form.offset)
    where = np.flatnonzero(costs)
    squares = None
    if quad:
        P = sp.coo_array(form.P)
        squares = _tensor(P.data, P.col.astype(np.int64) * n + P.row, n * n)
    whole = [(int(j),) for j in np.flatnonzero(integer)]
    x = cp.Variable(n, integer=whole) if whole else cp.Variable(n)
    return ParamConeProg(
        _tensor(costs[where], where, n + 1),
        x,
        _tensor(data, at, m * (n + 1)),
        [x],
        {x.id: 0},
        list(constraints),
        [],
        {CONSTANT_ID: 0},
        P=squares,
        formatted=not bare,
    )


def arranged(
    first: ConicForm, data: Mapping[str, Any], form: ConicForm, turned: Indices | None
) -> dict[str, Any] | None:
    """Return what an interface was handed of one form with the numbers of another.

    None where it arranges them in a way of its own.
    """
    before, now = ({**_arrays(f, data, turned)} for f in (first, form))
    if any(not _same(data[k], v) for k, v in before.items()):
        return None
    unmoved = {"A": first.A is form.A, "F": first.A is form.A, "P": first.P is form.P}
    return {**data, **{k: data[k] if unmoved.get(k) else v for k, v in now.items()}}


def _arrays(form: ConicForm, data: Mapping[str, Any], turned: Indices | None) -> dict[str, Any]:
    """Return the arrays of a form by the names that interfaces of CVXPY give them."""
    A, b = form.A, form.b
    if turned is not None:
        A, b = sp.csc_array(sp.csr_array(A)[turned]), b[turned]
    costs = {"P": form.P} if data.get("P") is not None else {}
    if "F" not in data:
        return {"A": A, "b": b, "c": form.q, **costs}
    zeros = sum(c.stop - c.start for c in form.cones if c.kind == "zero")
    rows = sp.csr_array(A)
    upper, lower = sp.csc_array(rows[:zeros]), sp.csc_array(rows[zeros:])
    return {"A": upper, "b": b[:zeros], "F": lower, "G": b[zeros:], "q": form.q, **costs}


def _same(one: Any, other: Any) -> bool:
    if np.shape(one) != np.shape(other):
        return False
    if not hasattr(other, "toarray"):
        return np.array_equal(one, other)
    ours, theirs = sp.csc_array(one), sp.csc_array(other)
    return all(
        np.array_equal(getattr(ours, k), getattr(theirs, k)) for k in ("indptr", "indices", "data")
    )


def _tensor(data: Floats, at: Any, size: int) -> Any:
    zeros = np.zeros(at.size, dtype=np.int64)
    return sp.csc_array(sp.coo_array((data, (at, zeros)), shape=(size, 1)))
