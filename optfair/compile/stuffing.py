"""Matrices of terms as CVXPY makes them, and the form as CVXPY's own program again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from inspect import getclosurevars
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression, multiply
from cvxpy.atoms.affine.broadcast_to import broadcast_to
from cvxpy.atoms.affine.diag import diag_mat, diag_vec
from cvxpy.atoms.affine.hstack import Hstack
from cvxpy.atoms.affine.index import index, special_index
from cvxpy.atoms.affine.promote import Promote
from cvxpy.atoms.affine.reshape import reshape
from cvxpy.atoms.affine.sum import Sum
from cvxpy.atoms.affine.transpose import transpose
from cvxpy.atoms.affine.unary_operators import NegExpression
from cvxpy.atoms.affine.upper_tri import upper_tri
from cvxpy.atoms.affine.vstack import Vstack
from cvxpy.atoms.quad_form import SymbolicQuadForm
from cvxpy.constraints import SOC, Equality, ExpCone, Inequality, NonNeg, PowCone3D, SvecPSD, Zero
from cvxpy.cvxcore.python.canonInterface import get_problem_matrix
from cvxpy.lin_ops.lin_op import CONSTANT_ID, DENSE_CONST, NEG, SCALAR_CONST, SPARSE_CONST, LinOp
from cvxpy.reductions.dcp2cone.cone_matrix_stuffing import ConeMatrixStuffing

from optfair.compile.assembly import Numbers, Part, Stuffing, row_places
from optfair.core.canonical import Canonical, height
from optfair.core.expressions import dense
from optfair.core.term import scalar_row
from optfair.numbers import Floats, Indices
from optfair.proofs.definiteness import is_symmetric
from optfair.proofs.rounding import CANCELS, cancelled, summed

if TYPE_CHECKING:
    pass

# Products of fractions that may be made of one expression.
FRACTIONS = 100_000
# The order in which every interface lists its cones.
_ORDER = (Zero, NonNeg, SOC, SvecPSD, ExpCone, PowCone3D)
_RANK = {kind: i for i, kind in enumerate(_ORDER)}


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
    fixed = [p for p in together if id(p) not in varying]
    read = [r for p in fixed if (r := _read(p)) is not None]
    if read:
        _join(read)
    rest = [p for p in together if p.matrices is None]
    if rest:
        _stuff_group(rest, first if first in rest else None)
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
    places = [row_places(c) for c in stuffed]
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
        within: dict[int, int] = dict(program.var_id_to_col)
        if m:
            rows = [arg for c in stuffed for arg in c.args]
            A, b = recovered(rows, within, sp.csc_array(A), np.asarray(b, dtype=float)[:m])
        if cost is not None and (affine := affine_part(cost.cost)) is not None:
            row, side_of = recovered([affine], within, sp.csc_array([q]), np.array([constant]))
            q, constant = row.toarray().ravel(), side_of[0]
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


# Sums of numbers are made again in fractions where they cancel.


def affine_part(e: Any) -> Any:
    """Return the affine terms of a sum, None where there are none."""
    if e.is_affine():
        return e
    parts = [affine_part(arg) for arg in e.args] if isinstance(e, AddExpression) else []
    parts = [p for p in parts if p is not None]
    return AddExpression(parts) if parts else None


def recovered(
    expressions: Sequence[Any], columns: Mapping[int, int], A: Any, b: Floats
) -> tuple[Any, Floats]:
    """Return the matrix and the constants of affine expressions, correctly rounded where they cancel.

    With the sizes of all numbers the same expressions have the sizes of what is added up: an entry
    that is much less is made again, if that takes few products, and is known to a few roundings then.

    Parameters
    ----------
    expressions : sequence of cvxpy.Expression
        Affine, without parameters; their entries are the rows, one after the other.
    columns : mapping
        First column of each variable by id.
    A : sparse csc (m, n)
        Matrix, as floats add it up.
    b : array (m,)
        Constants.
    """
    starts = np.cumsum([0, *(e.size for e in expressions)])
    some = [k for k, e in enumerate(expressions) if _adds(e, {})]
    if not some:
        return A, b
    n = A.shape[1]
    whole = sp.csr_array(sp.hstack([A, sp.csc_array(b[:, None])]))
    at = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in some])
    sizes = _sizes([expressions[k] for k in some], columns, at.size, n)
    lost = sp.csr_array(sizes - CANCELS * abs(whole[at]))
    lost.data[~(lost.data > 0.0)] = 0.0
    lost.eliminate_zeros()
    if not lost.nnz:
        return A, b
    changed: list[tuple[int, int, float]] = []
    done = 0
    for k in some:
        own = sp.coo_array(lost[done : done + expressions[k].size])
        done += expressions[k].size
        exact = _in_fractions(expressions[k], columns, own, n) if own.nnz else ()
        changed += [(int(starts[k]) + i, j, number) for i, j, number in exact]
    if not changed:
        return A, b
    row, column, number = map(np.array, zip(*changed, strict=True))
    entries = sp.coo_array(whole)
    width = np.int64(n + 1)
    kept = ~np.isin(entries.row * width + entries.col, row * width + column)
    data = np.append(entries.data[kept], number)
    where = (np.append(entries.row[kept], row), np.append(entries.col[kept], column))
    made = sp.csc_array((data, where), shape=whole.shape)
    return made[:, :n], made[:, [n]].toarray().ravel()


# Atoms that put every entry of their arguments into one place, with another factor maybe.
_PLACED: tuple[type, ...] = (
    *(AddExpression, NegExpression, index, special_index, reshape, multiply, DivExpression),
    *(Hstack, Vstack, transpose, diag_vec, diag_mat, upper_tri),
)


def _adds(e: Any, seen: dict[int, Any], *, inside: bool = False) -> bool:
    """Whether an entry of an affine expression may be a sum of several numbers of one column.

    It is where something is met twice, or what puts one number into several entries is inside what
    adds entries up.
    """
    if e.is_constant():
        value: Any = e.value
        some = bool((value != 0).sum())
        again = some and CONSTANT_ID in seen
        seen |= {CONSTANT_ID: True} if some else {}
        return again
    if (known := _seen(e)) is not None:
        x, at = known
        met = seen.setdefault(x, np.zeros(e.variables()[0].size, dtype=bool))
        again = bool(met[at].any())
        met[at] = True
        return again
    if inside and not (type(e) in _PLACED or type(e) is Sum):
        return True
    if _triangle(e) is not None:  # it adds up the halves of entries that are the same
        return _adds(e.args[1], seen)
    added = isinstance(e, AddExpression)
    moved = e.args if added else [arg for arg in e.args if not arg.is_constant()]
    inside = inside or type(e) not in (*_PLACED, Promote, broadcast_to)
    return any(_adds(arg, seen, inside=inside) for arg in moved)


def _triangle(e: Any) -> Any:
    """Return the matrix that takes a triangle as CVXPY does, half of each half; None of others."""
    if type(e) is not MulExpression or type(e.args[1]) is not reshape:
        return None
    M: Any = e.args[0].value if e.args[0].is_constant() else None
    n = e.args[1].args[0].shape[-1:]
    if getattr(M, "format", "") != "csc" or e.args[1].args[0].shape != 2 * n or not n:
        return None
    known = M.shape[0] == n[0] * (n[0] + 1) // 2 and (np.diff(M.indptr) == 1).all()
    return M if known and (M.data > 0.0).all() else None


def _sizes(expressions: Sequence[Any], columns: Mapping[int, int], m: int, n: int) -> Any:
    """Return the sum of the sizes of the numbers that every entry of matrix and constants adds up."""
    trees = [_unsigned(e.canonical_form[0]) for e in expressions]
    one, none = {CONSTANT_ID: 1}, {CONSTANT_ID: 0}
    entries = sp.coo_array(get_problem_matrix(trees, n, dict(columns), one, none, m, "SCIPY"))
    place = entries.coords[0].astype(np.int64)
    return sp.csr_array((entries.data, (place % m, place // m)), shape=(m, n + 1))


def _unsigned(tree: Any) -> Any:
    """Return a tree of linear operators with the sizes of its numbers."""
    if tree.type == NEG:
        return _unsigned(tree.args[0])
    data = tree.data
    if tree.type in (SCALAR_CONST, DENSE_CONST, SPARSE_CONST):
        data = abs(data)
    elif isinstance(data, LinOp):
        data = _unsigned(data)
    return LinOp(tree.type, tree.shape, [_unsigned(arg) for arg in tree.args], data)


def _in_fractions(
    e: Any, columns: Mapping[int, int], lost: Any, n: int
) -> Iterator[tuple[int, int, float]]:
    """Yield (row, column, number) of entries of an expression, n as the column of the constants."""
    asked = np.unique(lost.col[lost.col < n]).tolist()
    if (len(asked) + 1) * _work(e) > FRACTIONS:
        return
    starts = [(v, columns[v.id]) for v in e.variables()]
    owner = {j: (v, j - k) for v, k in starts for j in asked if k <= j < k + v.size}
    constants: dict[int, Any] = {}
    try:
        nothing = _exactly(e, None, constants)
        rows = {j: _exactly(e, owner[j], constants) - nothing for j in asked} | {n: nothing}
    except (TypeError, ValueError, AttributeError, OverflowError):  # of floats only, or infinite
        return
    for i, j in zip(lost.row.tolist(), lost.col.tolist(), strict=True):
        number = rows[j][i]
        if isinstance(number, (Fraction, int)):  # of an atom with factors of its own it is a float
            yield i, j, float(number)


def _work(e: Any) -> int:
    """Return how many products one evaluation takes, about."""
    return max([int(e.size), *(int(a.size) for a in e.args)]) + sum(_work(a) for a in e.args)


def _exactly(e: Any, unit: tuple[Any, int] | None, constants: dict[int, Any]) -> Any:
    """Return the entries of an affine expression at a unit vector, or at 0, column by column."""

    def at(e: Any) -> Any:
        if e.is_constant():
            if id(e) not in constants:
                constants[id(e)] = np.vectorize(Fraction, otypes=[object])(dense(e.value))
            return constants[id(e)]
        if isinstance(e, cp.Variable):
            x = np.full(e.size, Fraction(0), dtype=object)
            if unit is not None and unit[0].id == e.id:
                x[unit[1]] = Fraction(1)
            return x.reshape(e.shape, order="F")
        args = [at(arg) for arg in e.args]
        if isinstance(e, Promote):
            return np.full(e.shape, args[0])
        # what makes floats of arguments and of the result is around what computes it
        inner = getclosurevars(type(e).numeric).nonlocals.get("numeric_func", type(e).numeric)
        return inner(e, args)

    return np.ravel(np.asarray(at(e), dtype=object), order="F")


# Terms as they are usually written are read without CVXPY's matrices, which take ten times as long.

# (variable id, rows, positions in the variable, entries)
_Entries = list[tuple[int, Indices, Indices, Floats]]
# These and the constants that are added up
_Sum = tuple[_Entries, list[Floats]]
# (variable id, rows, columns, entries) of P, and the rest
_Cost = tuple[_Entries, _Sum]


@dataclass(eq=False)
class _Read:
    """What a term says: its cost, and b - A x of its constraints, arguments one after the other."""

    part: Canonical
    cost: _Cost | None
    rows: list[tuple[_Entries, Floats]]


def _read(part: Canonical) -> _Read | None:
    """Return the numbers of a term without parameters, None where it is written in another way.

    Read are sums of variables, their slices and totals, constants, products with constants and
    quadratic forms of variables: ``a @ x <= b``, ``x[2:] >= 0``, ``cp.norm(A @ x - b) <= t``,
    ``cp.sum(x) == 1``, ``X - C >> 0``. Every entry is one number of the data, so CVXPY's are the same.
    """
    rows = []
    for c in part.constraints:
        parts = _read_rows(c)
        if parts is None:
            return None
        rows.append(parts)
    if part.cost is None:
        return _Read(part, None, rows)
    cost: _Cost = ([], ([], [np.zeros(1)]))
    return _Read(part, cost, rows) if _add_cost(part.cost, 1.0, cost) else None


# What b - A x is, as a multiple of the difference of the sides.
_SIGNS: dict[type, float] = {Equality: 1.0, Zero: 1.0, Inequality: 1.0, NonNeg: -1.0}


def _read_rows(c: Any) -> tuple[_Entries, Floats] | None:
    if type(c) in (Equality, Inequality) and not c.shape and (read := scalar_row(c)):
        x, a, b = read
        at = np.flatnonzero(a)
        return [(x.id, np.zeros(at.size, dtype=np.intp), at, a[at])], np.array([-b])
    if type(c) is SvecPSD:
        return _read_triangle(c.args[0])
    if type(c) is SOC and c.axis == 0:
        groups = [[(arg, -1.0)] for arg in c.args]
    elif type(c) in _SIGNS:
        sides = c.args if isinstance(c, (Equality, Inequality)) else c.args[:1]
        signs = (_SIGNS[type(c)], -_SIGNS[type(c)])
        groups = [list(zip(sides, signs, strict=False))]
    else:
        return None
    sums: _Entries = []
    sides_of: list[Floats] = []
    for group in groups:
        if any(len(side.shape) > 2 for side, _ in group):
            return None
        shape = np.broadcast_shapes(*(side.shape for side, _ in group))
        one: _Sum = ([], [np.zeros(int(np.prod(shape)))])
        if not all(_add(side, sign, shape, one) for side, sign in group):
            return None
        start = sum(constants.size for constants in sides_of)
        sums += [(x, start + row, at, data) for x, row, at, data in one[0]]
        sides_of.append(_total(one[1]))
    return sums, np.concatenate(sides_of)


def _read_triangle(e: Any) -> tuple[_Entries, Floats] | None:
    """Return the triangle of a matrix: half of what CVXPY multiplies each of two entries by."""
    if (M := _triangle(e)) is None:
        return None
    whole: _Sum = ([], [np.zeros(e.args[1].size)])
    if not _add(e.args[1], -1.0, e.args[1].shape, whole):
        return None
    row, factor = M.indices.astype(np.intp), M.data
    entries = [
        (x, *_distinct(row[place], at, factor[place] * data)) for x, place, at, data in whole[0]
    ]
    sides = np.bincount(row, factor * _total(whole[1]), M.shape[0])
    return entries, np.asarray(sides, dtype=float)


def _add_cost(e: Any, factor: float, to: _Cost) -> bool:
    """Add a multiple of a scalar expression to a cost; whether it could be read."""
    if isinstance(e, AddExpression):
        return all(_add_cost(arg, factor, to) for arg in e.args)
    if isinstance(e, NegExpression):
        return _add_cost(e.args[0], -factor, to)
    if type(e) is reshape and e.size == 1:
        return _add_cost(e.args[0], factor, to)
    quadratic = isinstance(e, multiply) and isinstance(e.args[1], SymbolicQuadForm)
    if quadratic and e.args[0].is_constant() and e.args[0].size == 1:
        inner = e.args[1]
        if abs(factor) != 1.0:
            return False
        return _add_cost(inner, factor * float(np.squeeze(dense(e.args[0].value))), to)
    if isinstance(e, SymbolicQuadForm):
        seen = _seen(e.args[0])
        if seen is None or e.size != 1 or e.block_indices is not None or not e.P.is_constant():
            return False
        P = sp.coo_array(e.P.value)
        if not np.isrealobj(P.data) or not is_symmetric(P):
            return False
        here = P.data != 0.0
        row, column = seen[1][P.row[here]], seen[1][P.col[here]]
        to[0].append((seen[0], row, column, 2.0 * (factor * P.data[here])))
        return True
    return abs(factor) == 1.0 and len(e.shape) <= 2 and _add(e, factor, e.shape, to[1])


def _add(e: Any, sign: float, shape: tuple[int, ...], to: _Sum) -> bool:
    """Add a multiple of an expression to rows of that shape; whether it could be read."""
    if isinstance(e, AddExpression):
        return all(_add(arg, sign, shape, to) for arg in e.args)
    if isinstance(e, NegExpression):
        return _add(e.args[0], -sign, shape, to)
    if e.is_constant():
        value = dense(e.value)
        if value.shape != shape:
            value = np.broadcast_to(value, shape)
        to[1].append(sign * value.ravel(order="F"))
        return True
    if e.shape != shape:  # spread over the rows
        return False
    if type(e) is reshape and e.order == "F":
        return _add(e.args[0], sign, e.args[0].shape, to)
    if type(e) is multiply and e.args[0].is_constant() and e.size:
        each = dense(e.args[0].value)
        if abs(sign) != 1.0 or e.args[1].shape != shape or np.ptp(each) != 0.0:
            return False  # one product a number
        factor = sign * float(each.flat[0])
        return factor == 0.0 or _add(e.args[1], factor, shape, to)
    if type(e) is MulExpression and e.args[0].is_constant():
        seen, A = _seen(e.args[1]), e.args[0].value
        if seen is None or len(e.args[1].shape) not in (1, 2) or not np.ndim(A):
            return False
        across = e.args[1].shape[1:]
        if np.ndim(A) == 1 and isinstance(A, np.ndarray) and not across:
            row, at, data = np.zeros(A.size, dtype=np.intp), seen[1], A
        else:
            entries = sp.coo_array(A if np.ndim(A) == 2 else A.reshape((1, -1)))
            each = np.arange(*(across or (1,)))[:, None]  # column by column
            (down, along), (m, n) = entries.coords, entries.shape
            row = np.ravel(down.astype(np.intp) + m * each)
            at, data = seen[1][np.ravel(along + n * each)], np.tile(entries.data, each.size)
    elif type(e) is Sum and e.axis is None:
        seen = _seen(e.args[0])
        if seen is None:
            return False
        row, at = np.zeros(seen[1].size, dtype=np.intp), seen[1]
        data = np.ones(at.size)
    else:
        seen = _seen(e)
        if seen is None:
            return False
        row, at, data = np.arange(seen[1].size), seen[1], np.ones(seen[1].size)
    if not np.isrealobj(data):
        return False
    here = data != 0.0
    to[0].append((seen[0], row[here], at[here], sign * np.asarray(data[here], dtype=float)))
    return True


def _seen(e: Any) -> tuple[int, Indices] | None:
    """Return a variable and the positions in it that an expression shows, column by column."""
    if isinstance(e, cp.Variable):
        return e.id, np.arange(e.size)
    if type(e) in (index, special_index) and isinstance(e.args[0], cp.Variable):
        x = e.args[0]
        shown = np.ravel(e.numeric([np.arange(x.size).reshape(x.shape, order="F")]), order="F")
        repeated = type(e) is special_index and np.unique(shown).size < shown.size
        return None if repeated else (x.id, shown)
    return None


def _total(constants: list[Floats]) -> Floats:
    """Return the sum of vectors, correctly rounded where entries cancel."""
    total = np.asarray(sum(constants))
    if len(constants) <= 2:  # the first is 0
        return total
    with np.errstate(over="ignore"):
        lost = np.flatnonzero(cancelled(total, np.asarray(sum(map(np.abs, constants)))))
    if lost.size:
        terms = np.concatenate([c[lost] for c in constants])
        total[lost] = summed(terms, np.tile(np.arange(lost.size), len(constants)), lost.size)
    return total


def _distinct(row: Indices, at: Indices, data: Floats) -> tuple[Indices, Indices, Floats]:
    """Return entries with one number at each place."""
    width = int(at.max(initial=0)) + 1
    place, own = np.unique(row * width + at, return_inverse=True)
    if place.size == row.size:
        return row, at, data
    return place // width, place % width, summed(data, own, place.size)


def _merged(entries: _Entries) -> _Entries:
    """Return entries with one number at each place, correctly rounded where they cancel."""
    if len({variable for variable, *_ in entries}) == len(entries):
        return entries
    by_variable: dict[int, _Entries] = {}
    for piece in entries:
        by_variable.setdefault(piece[0], []).append(piece)
    out = []
    for variable, pieces in by_variable.items():
        row, at, data = (np.concatenate([p[k] for p in pieces]) for k in (1, 2, 3))
        if len(pieces) > 1:
            row, at, data = _distinct(row, at, data)
        out.append((variable, row, at, data))
    return out


def _join(read: Sequence[_Read]) -> None:
    """Make one stuffing of terms that were read."""
    variables: dict[int, int] = {}
    width = 0
    for r in read:
        for own, _, size in r.part.variables:
            if own not in variables:
                variables[own] = width
                width += size
    stated = [(c, rows) for r in read for c, rows in zip(r.part.constraints, r.rows, strict=True)]
    sizes = np.array([rows[1].size for _, rows in stated], dtype=np.intp)
    nothing = np.zeros(0, dtype=np.intp)
    row, column, entry = [nothing], [nothing], [np.zeros(0)]
    constraints = []
    for (c, (entries, _)), start in zip(stated, np.cumsum(sizes) - sizes, strict=True):
        for variable, i, at, data in _merged(entries):
            row.append(start + i)
            column.append(variables[variable] + at)
            entry.append(data)
        if type(c) in _SIGNS:  # its sides are in the matrix: what CVXPY reads of it is its size
            kind = Zero if type(c) in (Equality, Zero) else NonNeg
            c = kind(_blank(c.shape), constr_id=c.constr_id)
        constraints.append(c)
    stuffing = Stuffing(
        row=np.concatenate(row),
        column=np.concatenate(column),
        entry=np.concatenate(entry),
        b=np.concatenate([np.zeros(0), *(-rows[1] for _, rows in stated)]) + 0.0,
        sizes=sizes,
        place=np.concatenate([nothing, *(row_places(c) for c in constraints)]),
        ranks=[_RANK[type(c)] for c in constraints],
        constraints=constraints,
        variables=variables,
        width=width,
    )
    done = 0
    for r in read:
        blocks = tuple(range(done, done + len(r.rows)))
        done += len(r.rows)
        r.part.matrices = Part(stuffing, blocks, _stated(r.cost, stuffing))


def _stated(cost: _Cost | None, stuffing: Stuffing) -> tuple[Any, Floats, float] | None:
    """Return P, q and the constant of a cost in the columns of a stuffing."""
    if cost is None:
        return None
    squares, (parts, constants) = cost
    at = [stuffing.variables[variable] + at for variable, _, at, _ in parts]
    data = [np.zeros(0), *(data for *_, data in parts)]
    q = summed(
        np.concatenate(data), np.concatenate([np.zeros(0, dtype=np.intp), *at]), stuffing.width
    )
    P = None
    if squares:
        first = [stuffing.variables[variable] for variable, *_ in squares]
        row = np.concatenate([s[1] + k for s, k in zip(squares, first, strict=True)])
        column = np.concatenate([s[2] + k for s, k in zip(squares, first, strict=True)])
        numbers = np.concatenate([s[3] for s in squares])
        P = sp.coo_array((numbers, (row, column)), shape=(stuffing.width, stuffing.width))
    return P, q, float(_total(constants)[0])


@lru_cache(maxsize=64)
def _blank(shape: tuple[int, ...]) -> Any:
    return cp.Variable(shape)
