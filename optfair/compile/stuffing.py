"""Matrices of terms as CVXPY makes them, and the form as CVXPY's own program again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

__all__ = ["Part", "Stuffing", "cvxpy_program", "height", "stuff", "turn"]

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


@dataclass(eq=False)
class Part:
    """Where the matrices of a canonical term are."""

    stuffing: Stuffing
    blocks: tuple[int, ...]  # its constraints in the stuffing
    cost: tuple[Any, Floats, float] | None  # P, q, constant of an objective term


def height(constraint: Any) -> int:
    """Return how many rows a canonical constraint has."""
    if isinstance(constraint, (Equality, Inequality)):  # two sides of the same rows
        return int(constraint.size)
    return int(sum(arg.size for arg in constraint.args))


def stuff(parts: Sequence[Canonical]) -> None:
    """Turn terms into matrices, together; further objective terms one by one."""
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


def _stuff_group(parts: Sequence[Canonical], cost: Canonical | None) -> None:
    constraints = [c for p in parts for c in p.constraints]
    goal = cp.Minimize(cp.Constant(0.0) if cost is None else cost.cost)
    quad = not goal.expr.is_affine()
    program, _ = ConeMatrixStuffing(quad_obj=quad).apply(cp.Problem(goal, constraints))
    if quad:
        P, q, constant, A, b = program.apply_parameters(quad_obj=True)
    else:
        q, constant, A, b = program.apply_parameters()
        P = None
    stuffed = program.constraints
    sizes = np.array([height(c) for c in stuffed], dtype=np.intp)
    m = int(sizes.sum())
    places = [_places(c) for c in stuffed]
    place = np.concatenate(places) if places else np.zeros(0, dtype=np.intp)
    zero = np.repeat(np.array([type(c) is Zero for c in stuffed], dtype=bool), sizes)
    # CVXPY: A x + b = 0 or in K; here: b - A x in K
    side = np.where(zero, 1.0, -1.0)
    entries = sp.coo_array(A) if m else sp.coo_array((0, program.x.size))
    stuffing = Stuffing(
        row=entries.row.astype(np.intp),
        column=entries.col.astype(np.intp),
        entry=entries.data * side[entries.row],
        b=-side * np.asarray(b, dtype=float)[:m],
        sizes=sizes,
        place=place,
        ranks=[_RANK[type(c)] for c in stuffed],
        constraints=list(stuffed),
        variables=dict(program.var_id_to_col),
        width=int(program.x.size),
    )
    at = {c.id: i for i, c in enumerate(stuffed)}
    for p in parts:
        own = (None if P is None else sp.coo_array(P), np.asarray(q, dtype=float), float(constant))
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


def _tensor(data: Floats, at: Any, size: int) -> Any:
    zeros = np.zeros(at.size, dtype=np.int64)
    return sp.csc_array(sp.coo_array((data, (at, zeros)), shape=(size, 1)))
