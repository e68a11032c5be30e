"""Quadratic expressions of CVXPY: multiplied out, and their curvature proved from the coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression
from cvxpy.atoms.affine.cumsum import cumsum
from cvxpy.atoms.elementwise.power import Power
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.atoms.quad_over_lin import quad_over_lin
from cvxpy.constraints import Inequality
from cvxpy.cvxcore.python import canonInterface
from cvxpy.lin_ops.lin_op import (
    CONSTANT_ID,
    DENSE_CONST,
    DIV,
    MUL_ELEM,
    NEG,
    SCALAR_CONST,
    SPARSE_CONST,
    LinOp,
)
from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS
from cvxpy.reductions.dcp2cone.canonicalizers.quad_over_lin_canon import quad_over_lin_canon
from cvxpy.settings import SCIPY_CANON_BACKEND as SCIPY
from numpy.typing import NDArray

from optfair.core.expressions import dense
from optfair.core.functions import largest_entries
from optfair.core.term import power_of, products_of
from optfair.errors import shortened
from optfair.numbers import Floats
from optfair.proofs.definiteness import Definiteness as Definiteness
from optfair.proofs.definiteness import curvature_of as curvature_of
from optfair.proofs.roots import lower_root as lower_root
from optfair.proofs.roots import root_excess
from optfair.proofs.rounding import distinct, halves, summed
from optfair.proofs.rounding import group_products as group_products

# Multiply out CVXPY expressions of degree two.

# Times that terms may be as large as their sum before it is made again.
LOST = 256.0
Indices = NDArray[np.int64]


def root_below(v: Floats) -> Floats:
    r"""Return the largest floats s with :math:`s^2 \le v` exactly, for numbers that are not negative.

    Examples
    --------
    >>> from fractions import Fraction
    >>> root_below(np.array([4.0, 0.0]))
    array([2., 0.])
    >>> [Fraction(float(r)) ** 2 < 2 for r in (np.sqrt(2.0), root_below(np.array([2.0]))[0])]
    [False, True]
    """
    power = np.frexp(v)[1] // 2
    near = np.ldexp(v, -2 * power)
    s = np.sqrt(near)
    p, e = halves(s, s)
    s = np.where((p - near) + e > 0.0, np.nextafter(s, 0.0), s)
    return np.asarray(np.ldexp(s, power))


class NotQuadratic(Exception):
    """An expression is no quadratic of floats; the texts say which part, and what is wrong."""

    def __init__(self, why: str, what: str = "", remedy: str = "write it as quadratics") -> None:
        super().__init__(why)
        self.what, self.remedy = what or "is not quadratic", remedy


@dataclass(frozen=True, eq=False)
class QuadraticMap:
    r"""A vector of quadratics of x, with the products it uses listed once.

    .. math:: f(x) = Q\,(x_{i_p} x_{j_p})_p + A x + b

    Parameters
    ----------
    Q : sparse csr (m, k)
        Coefficients of the products.
    pairs : array (2, k)
        Indices i <= j of each product.
    A : sparse csr (m, n)
        Linear coefficients.
    b : array (m,)
        Constants.
    """

    Q: Any
    pairs: Indices
    A: Any
    b: Floats

    @classmethod
    def affine(cls, A: Any, b: Floats) -> QuadraticMap:
        """Return an affine map."""
        return cls(sp.csr_array((b.size, 0)), np.zeros((2, 0), dtype=np.int64), A, b)

    @classmethod
    def constant(cls, b: Floats, n: int) -> QuadraticMap:
        """Return a constant map on n scalars."""
        return cls.affine(sp.csr_array((b.size, n)), b)

    @staticmethod
    def stacked(maps: Sequence[QuadraticMap]) -> QuadraticMap:
        """Return one map with the entries of all, their products listed once."""
        n = maps[0].A.shape[1]
        keys = np.concatenate([m.pairs[0] * n + m.pairs[1] for m in maps])
        union, at = np.unique(keys, return_inverse=True)
        Q = sp.csr_array(sp.block_diag([m.Q for m in maps]))
        move = (np.ones(keys.size), (np.arange(keys.size), at))
        Q = sp.csr_array(Q @ sp.csr_array(move, shape=(keys.size, union.size)))
        Q.sort_indices()
        return QuadraticMap(
            Q,
            np.stack([union // max(n, 1), union % max(n, 1)]),
            sp.csr_array(sp.vstack([m.A for m in maps])),
            np.concatenate([m.b for m in maps]),
        )

    def __call__(self, x: Floats) -> Floats:
        """Return f(x)."""
        products = x[self.pairs[0]] * x[self.pairs[1]]
        return np.asarray(self.Q @ products + self.A @ x + self.b, dtype=float)

    def __add__(self, other: QuadraticMap) -> QuadraticMap:
        both, m = self.stacked([self, other]), self.b.size
        parts = []
        for M in map(sp.coo_array, (both.Q, both.A)):
            row, column, data = distinct(M.row % m, M.col, M.data)
            parts.append(sp.csr_array((data, (row, column)), shape=(m, M.shape[1])))
        b = summed(both.b, np.tile(np.arange(m), 2), m)
        return QuadraticMap(parts[0], both.pairs, parts[1], b).tidy()

    def __rmul__(self, factor: float) -> QuadraticMap:
        return QuadraticMap(factor * self.Q, self.pairs, factor * self.A, factor * self.b)

    def after(self, D: Any, b: Floats) -> QuadraticMap:
        """Return D f(x) + b."""
        with np.errstate(over="ignore", invalid="ignore"):
            Q, A, b = sp.csr_array(D @ self.Q), sp.csr_array(D @ self.A), D @ self.b + b
        return QuadraticMap(Q, self.pairs, A, b).tidy()

    def lost(self, sizes: QuadraticMap, whole: NDArray[np.bool_]) -> tuple[Indices, Indices]:
        """Return the degree, by entry, of coefficients much less than what they add up, and where.

        Given the sizes of that, and which entries have whole numbers: small sums are exact then. A
        place is n times the entry, and one of the columns.
        """
        both, m = self.stacked([sizes, self]), self.b.size
        kept = np.where(whole, 2.0**53, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            far = (sizes.b > LOST * np.abs(self.b)) & (sizes.b >= kept)
        degree, places = np.where(far & np.isfinite(sizes.b), 1, 0), []
        n, squares = self.A.shape[1], both.pairs[0] == both.pairs[1]
        for M, d in ((both.A, 1), (both.Q, 2)):
            off = sp.coo_array(M[:m] - LOST * abs(M[m:]))
            row, column = (at[off.data > 0.0].astype(np.int64) for at in off.coords)
            size = np.ravel(dense(M[:m][row, column]))
            if d == 2 and row.size:  # beside squares that are large it is a rounding
                D = sp.coo_array(abs(both.Q[m:, squares]))
                place = (D.row, both.pairs[0][squares][D.col])
                diagonal = sp.csr_array((D.data, place), shape=(m, n))
                each = [np.ravel(dense(diagonal[row, k[column]])) for k in both.pairs]
                beside = np.prod(each, axis=0)
                size = np.where(size > 2.0 * LOST * np.sqrt(beside), size, 0.0)
            here = (size > 0.0) & (size >= kept[row])
            degree[row[here]] = d
            column = column if d == 1 else both.pairs[:, column]
            places.append(np.ravel((n * row + column)[..., here]))
        return degree, np.unique(np.concatenate(places))

    def replaced(
        self, rows: Mapping[int, Mapping[tuple[int, ...], Fraction]], degree: Indices, at: Indices
    ) -> QuadraticMap:
        """Return a map with other coefficients: in some entries and places, up to a degree."""
        (m, n), parts = self.A.shape, list[Any]()
        b, other = self.b.copy(), np.zeros(m, dtype=bool)
        other[list(rows)] = True
        b[other] = 0.0
        for M, d in ((self.A, 1), (self.Q, 2)):
            M = sp.coo_array(M)
            left = ~(other & (degree >= d))[M.row]
            for column in (M.col,) if d == 1 else self.pairs[:, M.col]:
                left |= ~np.isin(n * M.row.astype(np.int64) + column, at)
            where = (M.row[left], M.col[left])
            parts.append(sp.csr_array((M.data[left], where), shape=M.shape))
        made = [(k, m, held(number)) for k, e in rows.items() for m, number in e.items()]
        for d in range(3):
            some = [one for one in made if len(one[1]) == d <= max(1, degree[one[0]])]
            row, data = np.array([k for k, *_ in some], dtype=int), [one[2] for one in some]
            if not d:
                b[row] = data
                continue
            pairs = np.array([one[1] for one in some], dtype=np.int64).reshape(-1, d).T
            column, width = (pairs[0], n) if d == 1 else (np.arange(row.size), row.size)
            parts.append(sp.csr_array((data, (row, column)), shape=(m, width)))
        kept = QuadraticMap(parts[1], self.pairs, parts[0], b)
        return kept + QuadraticMap(parts[3], pairs, parts[2], np.zeros(m))

    def tidy(self) -> QuadraticMap:
        """Drop coefficients that cancelled, and products nobody uses."""
        Q, A = sp.csr_array(self.Q), sp.csr_array(self.A)
        for matrix in (Q, A):
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
        used = np.unique(Q.indices).astype(np.int64)
        if used.size < self.pairs.shape[1]:
            Q = sp.csr_array(sp.csc_array(Q)[:, used])
        else:
            used = np.arange(self.pairs.shape[1], dtype=np.int64)
        Q.sort_indices()
        return QuadraticMap(Q, self.pairs[:, used], A, np.asarray(self.b, dtype=float))


@dataclass(frozen=True)
class Substitution:
    """What coefficients are added up of, in place of the numbers of an expression.

    Parameters
    ----------
    of, over : callable
        What stands for an array of numbers, and for 1 over divisors; for 0 stands 0.
    degree : int
        That of the products that are counted: 1 leaves out those of two columns.
    signed : bool
        Whether minus signs count.
    reduced : callable, optional
        What stands for a map before it is multiplied.
    """

    of: Callable[[Floats], Floats]
    over: Callable[[Floats], Floats]
    degree: int = 2
    signed: bool = False
    reduced: Callable[[QuadraticMap], QuadraticMap] | None = None

    def numbers(self, value: Any, inverse: bool = False) -> Any:
        """Return what stands for numbers, or for their inverses, entry by entry of what is stored."""
        one = self.over if inverse else self.of
        if not sp.issparse(value):
            return one(np.asarray(value, dtype=float))[()]
        stored: Any = value
        data, out = stored.data, stored.copy()
        out.data = one(np.asarray(data, dtype=float))
        return out

    def in_tree(self, tree: Any, inverse: bool = False) -> Any:
        """Return a tree of linear operators with others in place of its numbers, or their inverses."""
        if tree.type == NEG and not self.signed:
            return self.in_tree(tree.args[0], inverse)
        data, kind = tree.data, tree.type
        if kind in (SCALAR_CONST, DENSE_CONST, SPARSE_CONST):
            data = self.numbers(data, inverse)
        elif isinstance(data, LinOp):
            data = self.in_tree(data, kind == DIV)
            kind = MUL_ELEM if kind == DIV else kind
        return LinOp(kind, tree.shape, [self.in_tree(arg, inverse) for arg in tree.args], data)


SIZES = Substitution(np.abs, lambda value: 1.0 / np.abs(value))
COUNTS = Substitution(lambda value: (value != 0.0) * 1.0, lambda value: (value != 0.0) * 1.0)


def in_floats(
    expression: Any,
    offsets: Mapping[int, int],
    size: int,
    number: Substitution | None = None,
) -> QuadraticMap:
    """Return coefficients as floats add them up, of the numbers or of others in their place."""
    if expression.is_constant():
        b = np.ravel(dense(expression.value), order="F")
        return QuadraticMap.constant(number.numbers(b) if number else b, size)
    if isinstance(expression, cp.Variable):
        m, at = int(expression.size), offsets[expression.id]
        own = (np.ones(m), np.arange(at, at + m), np.arange(m + 1))
        return QuadraticMap.affine(sp.csr_array(own, shape=(m, size)), np.zeros(m))
    curved = [a for a in expression.args if not a.is_affine()]
    if isinstance(expression, AddExpression) and expression.size == len(curved) == 1:
        plain = AddExpression([a for a in expression.args if a is not curved[0]])
        f, g = (in_floats(e, offsets, size, number) for e in (curved[0], plain))
        return QuadraticMap(f.Q, f.pairs, f.A + g.A, f.b + g.b).tidy()
    special: dict[int, tuple[Any, QuadraticMap]] = {}
    _collect(expression, offsets, size, special, number)
    if id(expression) in special:
        return special[id(expression)][1]
    stand_ins = {k: v for k, (v, _) in special.items()}
    ids, at = dict(offsets), size
    for v in stand_ins.values():
        ids[v.id] = at
        at += v.size
    head = _replaced(expression, stand_ins) if special else expression
    A, b = affine_of([head], ids, at, number)
    inner = [QuadraticMap.affine(sp.eye_array(size, format="csr"), np.zeros(size))]
    inner += [m for _, m in special.values()]
    return QuadraticMap.stacked(inner).after(A, b) if special else QuadraticMap.affine(A, b).tidy()


def _collect(
    e: Any,
    offsets: Mapping[int, int],
    size: int,
    special: dict[int, tuple[Any, QuadraticMap]],
    number: Substitution | None,
) -> None:
    """Find the outermost parts that are not affine atoms, each with its coefficients."""
    if id(e) in special or e.is_constant() or isinstance(e, cp.Variable):
        return
    product = isinstance(e, MulExpression) and not any(a.is_constant() for a in e.args)
    if isinstance(e, AffAtom) and not product and not isinstance(e, cumsum):
        for a in e.args:
            _collect(a, offsets, size, special, number)
        return
    stand_in = cp.Variable(e.shape)
    if (products := products_of(e)) is not None:
        args = [in_floats(a, offsets, size, number) for a in e.args[: 1 + product]]
        reduced = number.reduced if number else None
        args = [reduced(a) for a in args] if reduced else args
        if any(a.Q.nnz for a in args):
            raise NotQuadratic(f"{shortened(e)} multiplies what is quadratic already")
        entry, left, right, weight, divisor = products
        if number is None:
            weight = weight / divisor
        else:
            ones = not np.ndim(weight) and weight == 1.0
            weight = (1.0 if ones else number.numbers(weight)) * number.numbers(
                divisor, inverse=True
            )
        with np.errstate(over="ignore", invalid="ignore"):
            made = _products(e.size, entry, left, right, weight, args[0], args[-1], number)
        special[id(e)] = stand_in, reduced(made) if reduced else made
    elif (linear := atom_matrix(e)) is not None:
        inner = in_floats(linear[2][0], offsets, size, number)
        special[id(e)] = stand_in, inner.after(linear[0], linear[1])
    else:
        raise NotQuadratic(f"{shortened(e)} is not of degree 2 by any rule known here")


def atom_matrix(e: Any) -> tuple[Any, Floats, list[Any]] | None:
    """Return A, b and the arguments that vary, each once, of an atom that is A (arguments) + b.

    Every entry is one number of the data, or the sum of constants; None of any other atom.
    """
    parts = list({id(a): a for a in e.args if a.variables() or a.parameters()}.values())
    if isinstance(e, Power) and power_of(e) == 1.0:
        return sp.eye_array(e.size, format="csr"), np.zeros(e.size), parts
    if isinstance(e, cumsum):  # the one affine atom without a form for the affine backends
        (gradient,) = e._grad([np.zeros(e.args[0].shape)]) if e.shape else (np.ones((1, 1)),)
        return sp.csr_array(np.transpose(gradient)), np.zeros(e.size), parts
    if not isinstance(e, AffAtom):
        return None
    stand_ins = {id(a): cp.Variable(a.shape) for a in parts}
    starts = np.cumsum([0, *(a.size for a in parts)]).tolist()
    ids = {v.id: at for v, at in zip(stand_ins.values(), starts[:-1], strict=True)}
    head = e.copy(args=[stand_ins.get(id(a), a) for a in e.args])
    return (*affine_of([head], ids, starts[-1]), parts) if head.is_affine() else None


def _replaced(e: Any, stand_ins: Mapping[int, Any]) -> Any:
    """Return a copy with parts replaced; ``tree_copy`` passes over powers."""
    if id(e) in stand_ins:
        return stand_ins[id(e)]
    if not e.args or e.is_constant():
        return e
    return e.copy(args=[_replaced(a, stand_ins) for a in e.args])


def backend_of(parts: Sequence[Any]) -> Any:
    """Return what of CVXPY makes matrices: its compiled backend knows two axes, not every function."""
    return None if all(e._max_ndim() < 3 and e._all_support_cpp() for e in parts) else SCIPY


def affine_of(
    expressions: Sequence[Any],
    offsets: Mapping[int, int],
    size: int,
    number: Substitution | None = None,
) -> tuple[Any, Floats]:
    """Return (A, b) of affine expressions, one after the other, as CVXPY adds them up.

    With ``number`` they are of others in place of the numbers instead.
    """
    m = sum(int(e.size) for e in expressions)
    for e in expressions if number is None else ():
        if not e.is_affine():
            raise NotQuadratic(f"{shortened(e)} is not of degree 2 by any rule known here")
    trees = [e.canonical_form[0] for e in expressions]
    numbers = trees if number is None else [number.in_tree(tree) for tree in trees]
    backend = backend_of(expressions) if number is None else SCIPY
    one, first = {CONSTANT_ID: 1}, {CONSTANT_ID: 0}
    flat = sp.coo_array(
        canonInterface.get_problem_matrix(numbers, size, dict(offsets), one, first, m, backend)
    )
    row, column = flat.row % m, flat.row // m
    constant = column == size
    b = np.zeros(m)
    np.add.at(b, row[constant], flat.data[constant])
    where = (row[~constant], column[~constant])
    return sp.csr_array((flat.data[~constant], where), shape=(m, size)), b


def _products(
    m: int,
    entry: Any,
    left: Any,
    right: Any,
    weight: Any,
    L: QuadraticMap,
    R: QuadraticMap,
    number: Substitution | None,
) -> QuadraticMap:
    """Return f with m entries, f[entry[p]] the sum of weight[p] * L(x)[left[p]] * R(x)[right[p]]."""
    k, i, j = (np.ravel(np.asarray(v, dtype=np.int64)) for v in (entry, left, right))
    w = np.broadcast_to(np.asarray(weight, dtype=float), k.shape)
    n = L.A.shape[1]
    A1, A2, b1, b2 = sp.csr_array(L.A), sp.csr_array(R.A), L.b, R.b
    b: Floats = np.bincount(k, w * b1[i] * b2[j], minlength=m).astype(float)
    A = sp.csr_array((m, n))
    if b2.any():  # entry x row of L, entry x row of R
        A = A + sp.csr_array((w * b2[j], (k, i)), shape=(m, b1.size)) @ A1
    if b1.any():
        A = A + sp.csr_array((w * b1[i], (k, j)), shape=(m, b2.size)) @ A2
    if number and number.degree < 2:
        return QuadraticMap.affine(A, b).tidy()
    if m == 1:  # one entry: a product of sparse matrices, instead of every product by itself
        W = sp.csr_array((w, (i, j)), shape=(b1.size, b2.size))
        if number and number.signed and 10 * min(A1.nnz, A2.nnz) > A1.shape[0] * n:
            # whole numbers that floats add up exactly, in any order
            H = sp.coo_array(A1.toarray().T @ (W @ A2).toarray())
        else:
            H = sp.coo_array(A1.T @ W @ A2)
        row, value = np.zeros(H.nnz, dtype=np.int64), np.asarray(H.data, dtype=float)
        first, second = H.row.astype(np.int64), H.col.astype(np.int64)
    else:
        row, first, second, value = _expand(k, i, j, w, A1, A2)
    each = np.minimum(first, second) * n + np.maximum(first, second)
    keys, at = np.unique(each, return_inverse=True)
    Q = sp.csr_array((value, (row, at)), shape=(m, keys.size))
    return QuadraticMap(Q, np.stack([keys // n, keys % n]), A, b).tidy()


def _expand(
    k: Indices, i: Indices, j: Indices, w: Floats, A1: Any, A2: Any
) -> tuple[Indices, Indices, Indices, Floats]:
    """Return every product of a coefficient of row i of A1 with one of row j of A2."""
    c1, c2 = np.diff(A1.indptr)[i], np.diff(A2.indptr)[j]
    each = (c1 * c2).astype(np.int64)
    p = np.repeat(np.arange(k.size), each)
    within = np.arange(p.size) - np.repeat(np.cumsum(each) - each, each)
    s, t = A1.indptr[i][p] + within // c2[p], A2.indptr[j][p] + within % c2[p]
    return (
        k[p],
        A1.indices[s].astype(np.int64),
        A2.indices[t].astype(np.int64),
        w[p] * A1.data[s] * A2.data[t],
    )


def held(number: Fraction) -> float:
    """Return the float next to a number, if there is one that has its digits."""
    try:
        near = float(number)
    except OverflowError:
        near = math.inf
    small = abs(near) < np.finfo(float).tiny
    if near == math.inf or (small and Fraction(near) != number):
        size = "small" if small else "large"
        raise NotQuadratic(
            f"a sum or product of its constants is too {size} for floats",
            "has a number that no float is",
            "write it in other units",
        )
    return near


# Squares in rows of cones.


class Shortfall(cp.Variable):  # type: ignore[misc]
    r"""What a term may lack of what rows have for it; one of the rows says 0, proofs do not.

    That of w'Pw is at most :math:`\sum_j d_j w_j^2`, and 0 where :math:`F^T F \preceq P` is proved of
    the root F. Of a formula with rounded constants nothing is known.
    """

    known: ClassVar[WeakValueDictionary[int, Shortfall]] = WeakValueDictionary()

    def __init__(self, of: Any = None, matrix: Any = None, share: Any = np.inf) -> None:
        super().__init__()
        self.of = self if of is None else of
        self.matrix = sp.csr_array((1, 1)) if matrix is None else matrix
        self.share = np.full(self.matrix.shape[0], share) if np.isscalar(share) else share
        self.known[self.id] = self


def squares_of_form(
    e: Any, args: Sequence[Any], solver_context: Any = None, unit: float | None = None
) -> tuple[Any, Any]:
    """Return x'Px in rows of cones as a sum of squares that is at most it, but for a shortfall.

    CVXPY's own leaves out pivots below 2e-10 of the largest: columns in another unit are lost.
    """
    P = args[1].value
    sign = 1.0 if P.diagonal().sum() >= 0.0 else -1.0
    root, below = lower_root(sign * P)
    least, rows, w = cp.Constant(0.0), [], args[0]
    if not below or 0 < root.shape[0] < root.shape[1]:
        w = cp.Variable(root.shape[1])
        lacking = Shortfall(
            w, sp.csr_array(sign * P), 0.0 if below else root_excess(sign * P, root)
        )
        rows, least = [w == args[0], lacking == 0.0], -lacking
    if root.shape[0]:
        unit = power_of_two(abs(root).max()) if unit is None else unit
        squares = cp.sum_squares(cp.Constant(root / unit) @ w)
        total, more = quad_over_lin_canon(squares, squares.args, solver_context)
        least, rows = least + unit**2 * total, [*more, *rows]
    return sign * least, rows


def power_of_two(size: float) -> float:
    """Return the power of two next to a positive number."""
    return float(np.exp2(np.round(np.log2(size))))


def units_of_squares(written: Any) -> dict[int, float]:
    r"""Return the units of squares in an inequality, by id, where its constants tell them.

    Rows state :math:`|w|^2 \le t` as :math:`|(1 - t, 2 w)| \le 1 + t`, whose digits go when t is
    large, and whose t goes when it is small. In :math:`\alpha |w|^2 + \dots \le c` it is near 1 in units of
    :math:`\sqrt{c / \alpha}`.
    """
    squares, limit = [], 0.0
    stack = [(side, 1.0) for side in written.args] if isinstance(written, Inequality) else []
    while stack:
        e, factor = stack.pop()
        if e.is_constant():
            value = np.nan if e.parameters() else np.abs(dense(e.value)).max(initial=0.0)
            limit = np.fmax(limit, factor * value)
        elif isinstance(e, (MulExpression, DivExpression)):
            number, rest = (e.args[1], e.args[0]) if e.args[1].is_constant() else e.args
            if number.is_constant() and number.size == 1 and not number.parameters():
                share = abs(float(np.squeeze(dense(number.value))))
                share = 1.0 / share if isinstance(e, DivExpression) and share else share
                stack.append((rest, factor * share))
        elif isinstance(e, AffAtom):
            stack += [(part, factor) for part in e.args]
        elif isinstance(e, (QuadForm, quad_over_lin, Power)) and 0.0 < factor < np.inf:
            squares.append((e, factor))
    return {
        id(e): power_of_two(np.sqrt(limit / by)) for e, by in squares if 0.0 < limit / by < np.inf
    }


def cones_of(written: Any) -> dict[type, Any]:
    """Return how parts of a term become rows of cones, squares in units of their own."""
    units = units_of_squares(written)
    if not units:
        return CONES

    def form(e: Any, args: Sequence[Any], solver_context: Any = None) -> tuple[Any, Any]:
        return squares_of_form(e, args, solver_context, units.get(id(e)))

    def squares(e: Any, args: Sequence[Any], solver_context: Any = None) -> tuple[Any, Any]:
        power = None if len(args) > 1 else float(getattr(e.p, "value", e.p))
        square = args[1].is_constant() if power is None else power == 2.0
        unit = units.get(id(e), 1.0) if square else 1.0
        inside = args if unit == 1.0 else [args[0] / unit, *args[1:]]
        least, rows = CONES[type(e)](e, inside, solver_context=solver_context)
        return (least if unit == 1.0 else unit**2 * least), rows

    kinds = [kind for kind in CONES if issubclass(kind, (quad_over_lin, Power))]
    return CONES | dict.fromkeys(kinds, squares) | {QuadForm: form}


# What CVXPY reduces to rows of cones, and how.
CONES: dict[Any, Any] = CANON_METHODS | {
    QuadForm: squares_of_form,
    cp.sum_largest: largest_entries,
}
