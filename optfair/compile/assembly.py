"""Blocks of terms put under each other, their numbers when parameters move, and what these are sums of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, pairwise
from operator import add
from typing import TYPE_CHECKING, Any, cast

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression, multiply
from cvxpy.atoms.affine.broadcast_to import broadcast_to
from cvxpy.atoms.affine.diag import diag_mat
from cvxpy.atoms.affine.hstack import Hstack
from cvxpy.atoms.affine.index import index, special_index
from cvxpy.atoms.affine.promote import Promote
from cvxpy.atoms.affine.reshape import reshape
from cvxpy.atoms.affine.sum import Sum
from cvxpy.atoms.affine.transpose import transpose
from cvxpy.atoms.affine.unary_operators import NegExpression
from cvxpy.atoms.affine.upper_tri import upper_tri
from cvxpy.atoms.affine.vstack import Vstack
from cvxpy.constraints import SOC, ExpCone, PowCone3D

from optfair.core.canonical import Canonical, height
from optfair.core.expressions import dense
from optfair.core.parameters import Numbers
from optfair.core.quadratics import LOST, atom_matrix
from optfair.core.term import adds, count_of, is_whole, shown
from optfair.numbers import Floats, Indices
from optfair.proofs import rounding
from optfair.proofs.rounding import enclosed_sums, exact_halves, exact_parts, summed

if TYPE_CHECKING:
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem


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
    mixed: list[bool]  # whether its matrices may have rounded means for entries
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
            entry, b = numbers.sums("entry", theta), numbers.sums("b", theta)
            stuffings[key] = replace(part.stuffing, entry=entry, b=b)
        cost = None if part.cost is None else numbers.cost(vectors[key])
        out.append(replace(term, matrices=Part(stuffings[key], part.blocks, cost)))
    return out, stuffings


def row_places(constraint: Any) -> Indices:
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


def columns_of(
    problem: Problem, names: Sequence[str], terms: Sequence[Canonical]
) -> tuple[dict[int, tuple[int, int]], tuple[tuple[str, int, int], ...], int]:
    """Return (first column, size) of each variable by id, what terms introduce, the width."""
    declared = {v.id for v in problem.variables.values()}
    columns: dict[int, tuple[int, int]] = {}
    auxiliary, width = [], 0
    for name, term in zip(names, terms, strict=True):
        for _, known, size in term.variables:
            if known not in columns:
                columns[known] = (width, size)
                if known not in declared:
                    auxiliary.append((name, width, width + size))
                width += size
    return columns, tuple(auxiliary), width


@dataclass(frozen=True)
class Blocks:
    """Canonical constraints in the order of their rows: whose, which of its, where."""

    term: list[int]
    which: list[int]  # among the constraints of the term
    own: list[int]  # among those of its stuffing
    start: list[int]
    size: list[int]


def blocks_of(terms: Sequence[Canonical]) -> Blocks:
    """Return the canonical constraints of terms in the order of their rows."""
    blocks = [
        (t.matrices.stuffing.ranks[c], i, k, c, t.matrices.stuffing.sizes[c])
        for i, t in enumerate(terms)
        for k, c in enumerate(t.matrices.blocks)
    ]
    blocks.sort(key=lambda block: block[:3])
    sizes = [int(block[4]) for block in blocks]
    return Blocks(
        [block[1] for block in blocks],
        [block[2] for block in blocks],
        [block[3] for block in blocks],
        [0, *accumulate(sizes)][: len(sizes)],
        sizes,
    )


def _maps(
    terms: Sequence[Canonical], columns: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[Stuffing, Indices]]:
    """Return, for each stuffing, the column of the form at each of its columns, -1 for none."""
    maps: dict[int, tuple[Stuffing, Indices]] = {}
    done: set[tuple[int, int]] = set()
    for term in terms:
        s = term.matrices.stuffing
        if id(s) not in maps:
            maps[id(s)] = (s, np.full(s.width, -1, dtype=np.intp))
        across = maps[id(s)][1]
        for own, known, size in term.variables:
            if (id(s), own) not in done:
                done.add((id(s), own))
                here, there = s.variables[own], columns[known][0]
                across[here : here + size] = np.arange(there, there + size)
    return maps


def entries_of(
    terms: Sequence[Canonical], columns: Mapping[int, tuple[int, int]], blocks: Blocks, n: int
) -> tuple[Any, Floats]:
    """Stack the blocks: A and b in ``b - A x in K``."""
    m = blocks.start[-1] + blocks.size[-1] if blocks.size else 0
    firsts: dict[int, Indices] = {}
    for t, c, start in zip(blocks.term, blocks.own, blocks.start, strict=True):
        s = terms[t].matrices.stuffing
        if id(s) not in firsts:
            firsts[id(s)] = np.full(s.sizes.size, -1, dtype=np.intp)
        firsts[id(s)][c] = start
    b = np.zeros(m)
    entry, row, column = [np.zeros(0)], [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for i, (s, across) in _maps(terms, columns).items():
        if i not in firsts:
            continue
        first = np.repeat(firsts[i], s.sizes)
        down = np.where(first >= 0, first + s.place, -1)
        here = down >= 0
        b[down[here]] = s.b[here]
        keep = slice(None) if here.all() else here[s.row]
        entry.append(s.entry[keep])
        row.append(down[s.row[keep]])
        column.append(across[s.column[keep]])
    where = (np.concatenate(row), np.concatenate(column))
    return sp.csc_array((np.concatenate(entry), where), shape=(m, n)), b


def objective_of(
    names: Sequence[str], terms: Sequence[Canonical], columns: Mapping[int, tuple[int, int]], n: int
) -> tuple[dict[str, Any], Floats, float]:
    """Return the quadratic parts of the objective terms, and the sum of the rest."""
    # the last column is the constant
    column, entry = [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
    squares: dict[str, Any] = {}
    costs = [(k, t) for k, t in zip(names, terms, strict=True) if t.matrices.cost is not None]
    maps = _maps([t for _, t in costs], columns)
    for name, term in costs:
        P, linear, constant = term.matrices.cost
        # columns of other terms of the stuffing have no cost here
        across = maps[id(term.matrices.stuffing)][1]
        here = across >= 0
        column.append(np.append(across[here], n))
        entry.append(np.append(linear[here], constant))
        if P is not None and P.nnz:
            at = across[P.row], across[P.col]
            squares[name] = sp.csc_array((P.data, at), shape=(n, n))
            squares[name].eliminate_zeros()  # a square whose weight is 0
    total = summed(np.concatenate(entry), np.concatenate(column), n + 1)
    return squares, total[:n], float(total[n])


@dataclass(frozen=True, eq=False)
class Plan:
    """Where the numbers of terms go in a form."""

    names: tuple[str, ...]
    terms: Sequence[Canonical]
    columns: Mapping[int, tuple[int, int]]
    blocks: Blocks
    n: int


class Moving:
    """A compiled problem whose parameters move: only numbers change, and warm starts stay.

    Parameters
    ----------
    first : Compiled
        At some values of the parameters.
    """

    def __init__(self, first: Compiled) -> None:
        self.first = first
        plan = first.plan
        if plan is None:
            return
        tags: dict[int, Stuffing] = {}
        at, self._spans = 1, dict[int, tuple[slice, slice]]()
        for term in plan.terms:
            s = term.matrices.stuffing
            if id(s) in tags:
                continue
            entry, b = at + np.arange(s.entry.size), at + s.entry.size + np.arange(s.b.size)
            at += s.entry.size + s.b.size
            if s.numbers is not None:
                self._spans[id(s)] = (
                    slice(int(entry[0]), int(entry[-1]) + 1) if entry.size else slice(0, 0),
                    slice(int(b[0]), int(b[-1]) + 1) if b.size else slice(0, 0),
                )
            tags[id(s)] = replace(s, entry=entry.astype(float), b=b.astype(float))
        tagged = [
            replace(t, matrices=replace(t.matrices, stuffing=tags[id(t.matrices.stuffing)]))
            for t in plan.terms
        ]
        A, b = entries_of(tagged, plan.columns, plan.blocks, plan.n)
        place = np.full((2, at), -1, dtype=np.intp)
        place[0, np.rint(A.data).astype(np.intp)] = np.arange(A.data.size)
        place[1, np.rint(b).astype(np.intp)] = np.arange(b.size)
        place[1, 0] = -1
        self._place = place

    def at(self, values: Mapping[int, Any]) -> Compiled:
        """Return the compiled problem at values by parameter id."""
        plan, form = self.first.plan, self.first.form
        if plan is None:
            return self.first
        terms, stuffings = moved(plan.terms, values)
        A, b = None, form.b.copy()
        for i, s in stuffings.items():
            entry, side = self._spans[i]
            where = self._place[1, side]
            b[where[where >= 0]] = s.b[where >= 0]
            where = self._place[0, entry]
            if (form.A.data[where[where >= 0]] != s.entry[where >= 0]).any():
                A = sp.csc_array(form.A, copy=True) if A is None else A
                A.data[where[where >= 0]] = s.entry[where >= 0]
        changes: dict[str, Any] = {"b": b} if A is None else {"b": b, "A": A}
        squares = self.first.curvature
        if any(t.matrices.stuffing.numbers is not None and t.matrices.cost for t in plan.terms):
            squares, q, offset = objective_of(plan.names, terms, plan.columns, plan.n)
            P = sp.csc_array(sum(squares.values(), sp.csc_array((plan.n, plan.n))))
            changes |= {"q": q, "offset": offset}
            same = P.nnz == form.P.nnz and np.array_equal(P.data, form.P.data)
            changes |= {} if same else {"P": P}
        return replace(self.first, form=form.moved(changes), curvature=squares, first=self.first)


# What an affine atom adds up.

# Places of a matrix that has its zeros, also where most are, and numbers added up at once (measured).
PLACES, SMALL, AT_ONCE = 2**20, 2**13, 2**14

# (arguments one below the other, their entries, weights of these, or else a matrix)
Move = tuple[Sequence[Any], Any, Any, Any]
# Atoms with an entry of their arguments in every place.
_MOVED = (
    *(Promote, broadcast_to, index, special_index, reshape),
    *(transpose, diag_mat, upper_tri, Hstack, Vstack),
)


def numbers_of(e: Any) -> Floats:
    """Return the entries of a constant, column by column; TypeError where they are complex."""
    value = np.ravel(dense(e.value, None), order="F")
    if not np.isrealobj(value):
        raise TypeError
    return value.astype(float)


def moves_of(e: Any) -> list[Move]:
    """Return the parts that an affine atom adds up, by entries of its arguments or a matrix.

    Every weight and every entry of a matrix is one number of the data; TypeError of other atoms.
    """
    kind, args, out = type(e), e.args, count_of(e.shape)

    def spread(a: Any) -> Any:
        place = count_of(a.shape)
        return None if a.shape == e.shape else np.ravel(np.broadcast_to(place, e.shape), order="F")

    if kind is AddExpression:
        return [((a,), spread(a), None, None) for a in args]
    if kind is NegExpression:
        return [(args, None, np.full(e.size, -1.0), None)]
    if kind in _MOVED:
        starts = np.cumsum([0, *(a.size for a in args)]).tolist()
        each = [start + count_of(a.shape) for start, a in zip(starts, args, strict=False)]
        return [(args, np.ravel(e.numeric(each), order="F").astype(np.intp), None, None)]
    if kind is Sum:
        into = out if e.axis is None or e.keepdims else np.expand_dims(out, e.axis)
        inside = count_of(args[0].shape)
        where = [np.ravel(v, order="F") for v in (np.broadcast_to(into, inside.shape), inside)]
        ones = np.ones(args[0].size)
        return [(args, None, None, sp.csr_array((ones, where), shape=(e.size, args[0].size)))]
    constant = [a.is_constant() for a in args]
    if kind is multiply and sum(constant) == 1:
        number, x = args if constant[0] else args[::-1]
        value = np.broadcast_to(numbers_of(number).reshape(number.shape, order="F"), e.shape)
        return [((x,), spread(x), np.ravel(value, order="F"), None)]
    if kind is MulExpression and sum(constant) == 1 and max(a.ndim for a in args) < 3:
        left = constant[0]
        M, x = (args[0].value, args[1]) if left else (args[1].value.T, args[0])
        if not np.isrealobj(getattr(M, "data", M)):
            raise TypeError
        M = M.reshape(1, -1) if M.ndim == 1 else M
        if (count := x.size // M.shape[1]) > 1:
            few = isinstance(M, np.ndarray) and e.size * x.size <= SMALL
            eye, kron = cast("Any", (np.eye, np.kron) if few else (sp.eye_array, sp.kron))
            M = kron(eye(count), M) if left else kron(M, eye(count))
        M = M.astype(float)
        return [((x,), None, None, M if isinstance(M, np.ndarray) else sp.csr_array(M))]
    made = None if kind is DivExpression else atom_matrix(e)  # an inverse is no number of the data
    if made is None:
        raise TypeError
    A, b, inner = made
    plain: Move = ([cp.Constant(b)], None, None, None)
    return [(inner, None, None, sp.csr_array(A)), *([plain] if b.any() else [])]


# Binary digits to which a coefficient is known that is no sum of so few floats.
DIGITS = 60.0


class Sums:
    """The sums of products of numbers that an affine expression has for coefficients.

    Parameters
    ----------
    e : cvxpy.Expression
        Affine, without parameters.

    Attributes
    ----------
    first : dict
        Variable id -> its first column.
    n : int
        Number of columns; one more is that of constants.
    """

    def __init__(self, e: Any) -> None:
        self.e, variables = e, {v.id: v for v in e.variables()}
        ends = np.cumsum([0, *(v.size for v in variables.values())]).tolist()
        self.first, self.n = dict(zip(variables, ends, strict=False)), ends[-1]
        self._made: dict[tuple[int, bool], Any] = {}
        self._moves: dict[int, list[Move]] = {}

    def read(self) -> Any:
        """Return the coefficients, with the constants behind the columns; ArithmeticError of others."""
        M = self.made(self.e)
        if adds(self.e, {}):
            M = replaced(M, *self.lost(M))
        if not np.isfinite(M if isinstance(M, np.ndarray) else M.data).all():
            raise ArithmeticError
        return M

    def lost(self, own: Any) -> tuple[Indices, Indices, Floats]:
        """Return the places of coefficients much less than what they add up, and the exact ones.

        ArithmeticError where a number is not known.
        """
        S, least = self.made(self.e, sizes=True), 2.0**53 if is_whole(self.e) else 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(S, np.ndarray):
                far = LOST * np.abs(dense(own)) < S
                i, j = np.nonzero(far & (least <= S) & np.isfinite(S))
            else:
                off = sp.coo_array(S - LOST * abs(sp.csr_array(own)))
                i, j = (at[off.data > 0.0].astype(np.intp) for at in off.coords)
                size = dense(S[i, j])
                i, j = (at[(least <= size) & np.isfinite(size)] for at in (i, j))
        order = np.argsort(j, kind="stable")  # what columns share is made once for some rows
        i, j, numbers = i[order], j[order], np.zeros(order.size)
        for at in (slice(k, k + 64 * AT_ONCE) for k in range(0, i.size, 64 * AT_ONCE)):
            parts = self.exact(self.e, i[at], j[at], DIGITS)
            group = np.tile(np.arange(parts[0].size), len(parts))
            flat, ones = np.concatenate(parts), np.ones(group.size)
            numbers[at], _, known = enclosed_sums(flat, ones, group, parts[0].size)
            if not known.all():
                raise ArithmeticError
        return i, j, numbers

    def made(self, e: Any, *, sizes: bool = False) -> Any:
        """Return the coefficients as floats have them, or what they add up to in size."""
        place, key = None, (id(e), sizes)
        if key not in self._made:
            if e.is_constant():
                place, data = np.full(e.size, self.n), numbers_of(e)
                data = np.abs(data) if sizes else data
            elif (some := shown(e)) is not None:
                place, data = self.first[some[0]] + some[1], np.ones(e.size)
            if place is None:
                with np.errstate(over="ignore", invalid="ignore"):
                    M = reduce(add, (self._of(move, sizes) for move in self.moves(e)))
                M = dense(M) if M.shape[0] * M.shape[1] <= min(PLACES, 16 * M.size) else M
            elif e.size * (self.n + 1) <= SMALL:
                M = np.zeros((e.size, self.n + 1))
                M[np.arange(e.size), place] = data
            else:
                M = sp.csr_array((data, place, np.arange(e.size + 1)), (e.size, self.n + 1))
            self._made[key] = M
        return self._made[key]

    def _of(self, move: Move, sizes: bool) -> Any:
        args, place, weights, W = move
        M = self._below(args, sizes)
        if W is not None:
            return (abs(W) if sizes else W) @ M
        M = M if place is None else M[place]
        if weights is None:
            return M
        weights = np.abs(weights) if sizes else weights
        if isinstance(M, np.ndarray):
            return weights[:, None] * M
        data = M.data * np.repeat(weights, np.diff(M.indptr))
        return sp.csr_array((data, M.indices, M.indptr), shape=M.shape)

    def _below(self, args: Sequence[Any], sizes: bool) -> Any:
        parts = [self.made(a, sizes=sizes) for a in args]
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(S, np.ndarray) for S in parts):
            return np.concatenate(parts)
        return sp.vstack([sp.csr_array(M) for M in parts], format="csr")

    def moves(self, e: Any) -> list[Move]:
        """Return what `moves_of` does, once."""
        if id(e) not in self._moves:
            self._moves[id(e)] = moves_of(e)
        return self._moves[id(e)]

    def exact(self, e: Any, i: Indices, j: Indices, digits: float = np.inf) -> list[Floats]:
        """Return the coefficients in some places, each as the sum of a few floats.

        Exactly, or to as many binary digits where nothing else is added to them.
        """
        if e.is_constant():
            return [np.where(j == self.n, numbers_of(e)[i], 0.0)]
        if (some := shown(e)) is not None:
            return [np.where(j == self.first[some[0]] + some[1][i], 1.0, 0.0)]
        parts, moves = [], self.moves(e)
        digits = digits if len(moves) == 1 else np.inf
        for args, place, weights, M in moves:
            if M is not None:
                parts += self._added(args, M, i, j, digits)
                continue
            inner = self._stacked(args, i if place is None else place[i], j, digits)
            if weights is None:
                parts += inner
            else:
                parts += [half for part in inner for half in exact_halves(weights[i], part)]
        return [part for part in parts if part.any()] or [np.zeros(i.size)]

    def _stacked(
        self, args: Sequence[Any], k: Indices, j: Indices, digits: float = np.inf
    ) -> list[Floats]:
        """Return those of arguments that stand one below the other."""
        if len(args) == 1:
            return self.exact(args[0], k, j, digits)
        parts, start = list[Floats](), 0
        for a in args:
            own = (start <= k) & (k < start + a.size)
            for part in self.exact(a, k[own] - start, j[own], digits) if own.any() else ():
                parts.append(np.zeros(k.size))
                parts[-1][own] = part
            start += a.size
        return parts

    def _added(
        self, args: Sequence[Any], W: Any, i: Indices, j: Indices, digits: float
    ) -> list[Floats]:
        """Return those of a matrix times arguments."""
        S, whole = self._below(args, sizes=True), isinstance(W, np.ndarray)
        full = whole and isinstance(S, np.ndarray)
        down = np.full(i.size, len(S)) if full else np.diff(sp.csc_array(S).indptr)[j]
        along = down if whole else np.diff(W.indptr)[i]
        by_row = not whole and (isinstance(S, np.ndarray) or along.sum() < down.sum())
        block = np.cumsum(along if by_row else down) // AT_ONCE
        ends = [*np.flatnonzero(np.diff(block, prepend=-1)), i.size]
        parts = list[Floats]()
        for first, end in pairwise(ends):
            at = slice(first, end)
            some = self._sums(args, W, S, i[at], j[at], full, by_row, digits)
            parts += [np.zeros(i.size) for _ in some[len(parts) :]]
            for part, own in zip(parts, some, strict=False):
                part[at] = own
        return parts

    def _sums(
        self,
        args: Sequence[Any],
        W: Any,
        S: Any,
        i: Indices,
        j: Indices,
        full: bool,
        by_row: bool,
        digits: float,
    ) -> list[Floats]:
        """Return those of a few places, from whole columns, the rows of W or the columns of S."""
        if full:
            each, which = np.unique(j, return_inverse=True)
            rows = np.arange(len(S))
            weight, of = np.ravel(W[i]), np.repeat(np.arange(i.size), rows.size)
            own = np.tile(rows, i.size) + rows.size * which[of]
            inner = self._stacked(args, np.tile(rows, each.size), np.repeat(each, rows.size))
        else:
            if by_row:
                weight, k, of = rounding.entries_of(W, i)
                here = dense(S[k, j[of]]) != 0.0
            else:
                _, k, of = rounding.entries_of(sp.csc_array(S), j)
                weight = dense(W[i[of], k])
                here = weight != 0.0
            weight, k, of = weight[here], k[here].astype(np.int64), of[here]
            place, own = np.unique(k + S.shape[0] * j[of], return_inverse=True)
            inner = self._stacked(args, place % S.shape[0], place // S.shape[0])
        if not of.size:
            return []
        first = np.flatnonzero(np.diff(of, prepend=-1))
        if first.size == of.size and len(inner) == 1 and (inner[0] == 1.0).all():
            sums = [weight]
        else:
            halves = [half for part in inner for half in exact_halves(weight, part[own])]
            sums = exact_parts(np.array(halves), first, digits)
        parts = [np.zeros(i.size) for _ in sums]
        for part, own in zip(parts, sums, strict=True):
            part[of[first]] = own
        return parts


def replaced(M: Any, row: Indices, column: Indices, data: Floats) -> Any:
    """Return a matrix with other numbers in some places; a sparse one by rows."""
    if isinstance(M, np.ndarray):
        M = M.copy()
        M[row, column] = data
        return M
    place = sp.csr_array((np.arange(1, M.nnz + 1), M.indices, M.indptr), shape=M.shape)
    at = dense(place[row, column], int) - 1
    numbers, new = M.data.copy(), at < 0
    numbers[at[~new]] = data[~new]
    out = sp.csr_array((numbers, M.indices, M.indptr), shape=M.shape)
    if data[new].any():
        out = out + sp.csr_array((data[new], (row[new], column[new])), shape=M.shape)
    out.eliminate_zeros()
    return out
