"""Matrices of terms as CVXPY makes them, and the form as CVXPY's own program again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.binary_operators import MulExpression, multiply
from cvxpy.atoms.affine.reshape import reshape
from cvxpy.atoms.affine.sum import Sum
from cvxpy.atoms.affine.unary_operators import NegExpression
from cvxpy.atoms.quad_form import SymbolicQuadForm
from cvxpy.constraints import SOC, Equality, ExpCone, Inequality, NonNeg, PowCone3D, SvecPSD, Zero
from cvxpy.lin_ops.lin_op import CONSTANT_ID
from cvxpy.reductions.dcp2cone.cone_matrix_stuffing import ConeMatrixStuffing, ParamConeProg
from cvxpy.reductions.solvers.qp_solvers.qp_solver import QpSolver
from numpy.typing import NDArray

from optfair.compile.assembly import Part, Stuffing, row_places
from optfair.compile.sums import Sums, replaced
from optfair.core.canonical import Canonical, height
from optfair.core.coefficients import beyond, corrected, means
from optfair.core.expressions import dense
from optfair.core.labels import scalar_row
from optfair.core.parameters import Numbers
from optfair.core.problem_class import known_symmetric
from optfair.core.quadratics import NotQuadratic, QuadraticMap, backend_of
from optfair.core.term import adds, shown, triangle
from optfair.errors import UnsupportedProblem, shortened
from optfair.numbers import Floats, Indices
from optfair.proofs.definiteness import is_symmetric
from optfair.proofs.rounding import cancelled, distinct, summed

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

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
    halved = {c.id: _halved(c) for c in constraints if type(c) is SvecPSD}
    constraints = [halved.get(c.id, (c,))[0] for c in constraints]
    goal = cp.Minimize(cp.Constant(0.0) if cost is None else cost.cost)
    quad = not goal.expr.is_affine()
    stuffing = ConeMatrixStuffing(quad_obj=quad, canon_backend=backend_of([goal, *constraints]))
    program, _ = stuffing.apply(cp.Problem(goal, constraints))
    stuffed = program.constraints
    sizes = np.array([height(c) for c in stuffed], dtype=np.intp)
    m = int(sizes.sum())
    places = [row_places(c) for c in stuffed]
    place = np.concatenate(places) if places else np.zeros(0, dtype=np.intp)
    zero = np.repeat(np.array([type(c) is Zero for c in stuffed], dtype=bool), sizes)
    # CVXPY: A x + b = 0 or in K; here: b - A x in K
    scales = [halved[c.id][1] if c.id in halved else np.ones(height(c)) for c in stuffed]
    side = np.where(zero, 1.0, -1.0) * np.concatenate([np.zeros(0), *scales])
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
        mixed=[c.id in halved and halved[c.id][2] for c in stuffed],
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
    """Return the matrix and the constants of affine expressions as `corrected` does.

    Raises
    ------
    UnsupportedProblem
        A coefficient is too large or too small for floats.
    """
    f = QuadraticMap.affine(A, b)
    try:
        made = corrected(expressions, columns, f)
    except NotQuadratic as e:
        which = expressions[0] if len(expressions) == 1 else "a row"
        raise UnsupportedProblem(f"{shortened(which)} {e.what}", str(e), e.remedy) from e
    return (A, b) if made is f else (sp.csc_array(made.A), made.b)


def added_exactly(
    expressions: Sequence[Any], columns: Mapping[int, int], A: Any, b: Floats
) -> tuple[Any, Floats]:
    """Return them with the coefficients that floats lose as `Sums` has them.

    Raises
    ------
    ArithmeticError
        A number is not known.
    """
    rows, start = sp.csr_array(A), 0
    where, numbers = [np.zeros((2, 0), dtype=np.intp)], [np.zeros(0)]
    for e in expressions:
        if adds(e, {}):
            sums, at = Sums(e), slice(start, start + e.size)
            across = np.concatenate([columns[v.id] + np.arange(v.size) for v in e.variables()])
            own = sp.hstack([rows[at][:, across], sp.csr_array(b[at, None])], format="csr")
            i, j, exact = sums.lost(own)
            where.append(np.array([start + i, np.append(across, A.shape[1])[j]]))
            numbers.append(exact)
        start += e.size
    row, column = np.concatenate(where, axis=1)
    if not row.size:
        return A, b
    data, moving, b = np.concatenate(numbers), column < A.shape[1], b.copy()
    b[row[~moving]] = data[~moving]
    return replaced(rows, row[moving], column[moving], data[moving]), b


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
    rows: list[tuple[_Entries, Floats, bool]]


def _read(part: Canonical) -> _Read | None:
    """Return the numbers of a term without parameters, None where it is written in another way.

    Read are sums of variables, their slices and totals, constants, products with constants and
    quadratic forms of variables: ``a @ x <= b``, ``x[2:] >= 0``, ``cp.norm(A @ x - b) <= t``,
    ``cp.sum(x) == 1``, ``X - C >> 0``. Every entry is one number of the data, so CVXPY's are the same.
    """
    if part.numbers is not None:
        return _Read(part, None, [(*part.numbers, False)])
    rows = []
    for c in part.constraints:
        parts = _read_rows(c)
        if parts is None:
            return None
        rows.append(parts)
    if part.cost is None:
        return _Read(part, None, rows)
    cost: _Cost = ([], ([], [np.zeros(1)]))
    if not _add_cost(part.cost, 1.0, cost):
        own = _sum_of([(part.cost, 1.0)]) if part.cost.is_affine() else None
        if own is None:
            return None
        cost = ([], own)
    return _Read(part, cost, rows)


# What b - A x is, as a multiple of the difference of the sides.
_SIGNS: dict[type, float] = {Equality: 1.0, Zero: 1.0, Inequality: 1.0, NonNeg: -1.0}


def _read_rows(c: Any) -> tuple[_Entries, Floats, bool] | None:
    if type(c) in (Equality, Inequality) and not c.shape and (read := scalar_row(c)):
        x, a, b = read
        at = np.flatnonzero(a)
        return [(x.id, np.zeros(at.size, dtype=np.intp), at, a[at])], np.array([-b]), False
    if type(c) is SvecPSD:
        return _read_triangle(c.args[0])
    if type(c) in (ExpCone, PowCone3D) or (type(c) is SOC and c.axis == 0):
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
            if (own := _sum_of(group)) is None:
                return None
            one = own
        start = sum(constants.size for constants in sides_of)
        sums += [(x, start + row, at, data) for x, row, at, data in one[0]]
        sides_of.append(_total(one[1]))
    return sums, np.concatenate(sides_of), False


def _scales(M: Any) -> Floats:
    """Return what the rows of a triangle are multiplied by: the root of 2 beside the diagonal, or 1."""
    beside = np.bincount(M.indices, minlength=M.shape[0]) > 1
    scales = np.ones(beside.size)
    scales[M.indices] = 2.0 * M.data
    return np.where(beside, scales, 1.0)


def _halved(c: Any) -> tuple[Any, Floats, bool]:
    """Return a triangle whose rows are not scaled yet, what scales them, and whether two entries may differ."""
    if (M := triangle(c.args[0])) is None:
        return c, np.ones(height(c)), True
    scales, own = _scales(M), M.copy()
    own.data /= scales[M.indices]
    whole = c.args[0].args[1]
    made = SvecPSD(own @ whole, n=c._n, constr_id=c.id)
    return made, scales, not known_symmetric(whole.args[0])


def _read_triangle(e: Any) -> tuple[_Entries, Floats, bool] | None:
    """Return the triangle of a matrix, and whether means of two of its entries were rounded."""
    if (M := triangle(e)) is None:
        return None
    read: _Sum = ([], [np.zeros(e.args[1].size)])
    known = _add(e.args[1], -1.0, e.args[1].shape, read)
    whole = read if known else _sum_of([(e.args[1], -1.0)])
    if whole is None:
        return None
    row, scales, constant = M.indices, _scales(M), _total(whole[1])
    beside = np.bincount(row, minlength=scales.size) > 1
    entries, mixed, there = list[Any](), False, np.flatnonzero(constant)
    for x, place, at, data in [*_merged(whole[0]), (0, there, 0 * there, constant[there])]:
        down, along, mean, exact = means(row[place].astype(np.intp), at, data, beside)
        entries.append((x, down, along, scales[down] * mean))
        mixed |= not exact
    sides = np.zeros(scales.size)
    sides[entries[-1][1]] = entries[-1][3]
    return entries[:-1], sides, mixed


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
        seen = shown(e.args[0])
        if seen is None or e.size != 1 or e.block_indices is not None or not e.P.is_constant():
            return False
        P = sp.coo_array(e.P.value)
        if not np.isrealobj(P.data) or not is_symmetric(P):
            return False
        here = P.data != 0.0
        row, column = seen[1][P.row[here]], seen[1][P.col[here]]
        entries = _times(2.0 * factor, P.data[here])
        if entries is None:
            return False
        to[0].append((seen[0], row, column, entries))
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
        some = _times(sign, value.ravel(order="F"))
        if some is not None:
            to[1].append(some)
        return some is not None
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
        seen, A = shown(e.args[1]), e.args[0].value
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
        seen = shown(e.args[0])
        if seen is None:
            return False
        row, at = np.zeros(seen[1].size, dtype=np.intp), seen[1]
        data = np.ones(at.size)
    else:
        seen = shown(e)
        if seen is None:
            return False
        row, at, data = np.arange(seen[1].size), seen[1], np.ones(seen[1].size)
    if not np.isrealobj(data):
        return False
    here = data != 0.0
    numbers = _times(sign, np.asarray(data[here], dtype=float))
    if numbers is None:
        return False
    to[0].append((seen[0], row[here], at[here], numbers))
    return True


def _sum_of(group: Sequence[tuple[Any, float]]) -> _Sum | None:
    """Return the numbers of an affine expression, or of a difference; None of what is not known."""
    e, sign = group[0]
    e = e if len(group) == 1 else e - group[1][0]
    sums = Sums(e)
    try:
        if beyond(e):
            return None
        M = sums.read()
    except (ArithmeticError, TypeError, ValueError):
        return None
    constants = sign * dense(M[:, [sums.n]]).ravel()
    made = sp.coo_array(M)
    order = np.flatnonzero(made.data)
    order = order[np.argsort(made.col[order], kind="stable")]
    row, column = made.row[order].astype(np.intp), made.col[order].astype(np.intp)
    data = sign * made.data[order]
    ends = np.searchsorted(column, [*sums.first.values(), sums.n])
    entries = [
        (x, row[i:k], column[i:k] - start, data[i:k])
        for (x, start), i, k in zip(sums.first.items(), ends, ends[1:], strict=False)
    ]
    return entries, [constants]


def _times(factor: float, data: Floats) -> Floats | None:
    """Return a multiple of numbers, None where it leaves the range of floats."""
    if abs(factor) in (0.0, 1.0):
        return factor * data
    with np.errstate(all="ignore"):
        out = factor * data
    size = np.abs(out)
    kept = (size >= np.finfo(float).tiny) & (size < np.inf)
    return out if (kept | (data == 0.0) | ~np.isfinite(data)).all() else None


def _total(constants: list[Floats]) -> Floats:
    """Return the sum of vectors, correctly rounded where entries cancel."""
    total: Floats = reduce(np.add, constants)
    if len(constants) <= 2:  # the first is 0
        return total
    with np.errstate(over="ignore"):
        lost = np.flatnonzero(cancelled(total, np.asarray(sum(map(np.abs, constants)))))
    if lost.size:
        terms = np.concatenate([c[lost] for c in constants])
        total[lost] = summed(terms, np.tile(np.arange(lost.size), len(constants)), lost.size)
    return total


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
            row, at, data = distinct(row, at, data)
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
    for (c, (entries, *_)), start in zip(stated, np.cumsum(sizes) - sizes, strict=True):
        for variable, i, at, data in _merged(entries):
            row.append(start + i)
            column.append(variables[variable] + at)
            entry.append(data)
        own = type(c) in (NonNeg, Zero) and type(c.args[0]) is cp.Variable
        if type(c) in _SIGNS and not own:
            # its sides are in the matrix: what CVXPY reads of it is its size
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
        mixed=[rows[2] for _, rows in stated],
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


# The form as CVXPY's own program again.


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
    """Return the form as a program of CVXPY."""
    m, n = form.A.shape
    A, b, turned = form.A, form.b, turn(instance, form)
    if turned is not None:
        A, b = sp.csc_array(sp.csr_array(A)[turned]), b[turned]
    bare = isinstance(instance, QpSolver)  # they read equalities before a sign is given to them
    zeros = sum(c.stop - c.start for c in form.cones if c.kind == "zero")
    side = np.where(bare & (np.arange(m) < zeros), 1.0, -1.0)
    value = np.where(bare & (np.arange(m) < zeros), -b, b)
    whole = [(int(j),) for j in np.flatnonzero(integer)]
    x = cp.Variable(n, integer=whole) if whole else cp.Variable(n)
    P = form.P if quad else None
    stated = ParamConeProg(
        None,
        x,
        None,
        [x],
        {x.id: 0},
        list(constraints),
        [],
        {CONSTANT_ID: 0},
        P=P,
        formatted=not bare,
    )
    A = sp.csc_array(A)
    A = sp.csc_array((A.data * side[A.indices], A.indices, A.indptr), shape=A.shape)
    # without parameters nothing is multiplied out of tensors: the matrices stand
    stated.apply_parameters = partial(_applied, P, form.q, form.offset, A, value)
    return stated


def _applied(P: Any, q: Floats, d: float, A: Any, b: Floats, *_: Any, **more: Any) -> Any:
    return (P, q, d, A, b) if more.get("quad_obj") else (q, d, A, b)
