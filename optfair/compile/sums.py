"""What the coefficients of affine expressions add up: products of numbers, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise, starmap
from operator import add
from typing import Any, cast

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

from optfair.core.expressions import dense
from optfair.core.quadratics import LOST, atom_matrix
from optfair.core.term import adds, count_of, is_whole, shown
from optfair.numbers import Floats, Indices
from optfair.proofs import rounding
from optfair.proofs.rounding import enclosed_sums, exact_halves, exact_parts

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
        many = (M if W is None else W).shape[0] if place is None else place.size
        thin = many * M.shape[1] > PLACES and _thin(M)
        if W is not None:
            W, M = (sp.csr_array(W), sp.csr_array(M)) if thin else (W, M)
            return (abs(W) if sizes else W) @ M
        if place is not None:
            M = (sp.csr_array(M) if thin else M)[place]
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
        held = isinstance(S, np.ndarray)
        down = (np.count_nonzero(S, axis=0) if held else np.diff(sp.csc_array(S).indptr))[j]
        full = whole and held and 2 * down.sum() > i.size * len(S)
        along = down if whole else np.diff(W.indptr)[i]
        by_row = not whole and (held or along.sum() < down.sum())
        S = S if full or by_row else sp.csc_array(S)
        block = np.cumsum(along if by_row else down) // AT_ONCE
        ends = [*np.flatnonzero(np.diff(block, prepend=-1)), i.size]
        parts = list[Floats]()
        for at in starmap(slice, pairwise(ends)):
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
                _, k, of = rounding.entries_of(S, j)
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


def _thin(M: Any) -> bool:
    """Whether few columns of a matrix have entries, so that products with it are mostly zeros."""
    entries = np.count_nonzero(M) if isinstance(M, np.ndarray) else M.nnz
    return bool(16 * entries <= M.shape[1])
