"""Squares below a product or a square: second-order cones, all rows of a term at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.convexity.algebra import Algebra
from optfair.convexity.expression import (
    Leaf,
    Node,
    Product,
    Sum,
    affine,
    constant,
    exact_matrix_product,
    linear,
    scalars,
)
from optfair.convexity.writing import Atoms
from optfair.core.quadratics import group_products, lower_root
from optfair.numbers import Floats, Indices

HALF = Fraction(1, 2)
# Numbers in all norms together.
MOST = 1_000_000
# By how much a root that is no float is less than what is next to it.
LESS = 2.0**-50


@dataclass(frozen=True, eq=False)
class ConeRows:
    r"""Rows :math:`\sum_j c_j w_j^2 + c \le \kappa\, l\, m` as cones.

    .. math::
        \Big\| \Big(2 \sqrt{c_j}\, w_j,\; 2 \sqrt{c},\; \kappa l - m\Big) \Big\|_2
        \le \kappa l + m, \qquad
        \Big\| \Big(\sqrt{c_j}\, w_j,\; \sqrt{c}\Big) \Big\|_2 \le l
        \text{ where } \kappa l = m,

    with l and m not negative. Where the left side is positive it is enough that one of them is not:
    then neither is 0. Roots that are no floats are less, so that no point is lost.

    Attributes
    ----------
    after : Node
        Norms less κl + m, for their slopes.
    written : cvxpy.Expression
        The same, a vector that is at most 0.
    """

    after: Node
    written: Any


@dataclass(frozen=True, eq=False)
class Part:
    """Numbers times products of two affine functions, in rows.

    Attributes
    ----------
    first, second : Node
        The factors.
    rows, columns : arrays of int
        Where entries of the products go.
    numbers : array
    """

    first: Node
    second: Node
    rows: Indices
    columns: Indices
    numbers: Floats

    def only(self, which: NDArray[np.bool_]) -> Part:
        """Return some of the entries."""
        return replace(self, **{k: getattr(self, k)[which] for k in ("rows", "columns", "numbers")})


def cone_rows(node: Node, a: Algebra, atoms: Atoms) -> ConeRows | None:
    """Return the cones of a vector that is at most 0; None where a row has another form.

    Parameters
    ----------
    node : Node
    a : Algebra
        Knows what is not negative.
    atoms : Atoms
        Writes affine functions.
    """
    if not isinstance(node, Sum):
        return None
    n, c, parts = node.size, node.constant, list[Part]()
    for M, product in node.parts:
        pair = _affine_factors(product)
        if pair is None:
            return None
        C = sp.coo_array(M)
        rows, columns = (np.asarray(e, dtype=np.intp) for e in (C.row, C.col))
        parts.append(Part(*pair, rows, columns, C.data))
    squares = [q for part in parts if (q := part.only(part.numbers > 0.0)).rows.size]
    below = [q for part in parts if (q := part.only(part.numbers < 0.0)).rows.size]
    plain = all(q.first is q.second for q in squares) and (c >= 0.0).all()
    if form := n == 1 and not (plain and len(below) == 1):
        below = _apart(parts)
        squares = [q for q in parts if q not in below]
    taken = np.concatenate([np.zeros(0, dtype=np.intp), *(q.rows for q in below)])
    if not np.array_equal(np.sort(taken), np.arange(n)):
        return None  # each row has one product on the right
    if not (form or plain):
        return None
    kappa = np.empty(n)
    for q in below:
        kappa[q.rows] = -q.numbers
    left, right = (
        linear(
            [(_placed(q, end.size, n), end) for q in below for end in [getattr(q, side)]],
            np.zeros(n),
        )
        for side in ("first", "second")
    )
    signs = _sign(left, a), _sign(right, a)
    known = np.where(signs[0] == 0.0, signs[1], signs[0])
    if (known == 0.0).any():
        return None
    sides = a.scaled(kappa * known, left), a.scaled(known, right)
    factor = 1.0 if sides[0] is sides[1] else 2.0
    made = (_form_root if form else _square_roots)(squares, c, factor, atoms)
    if made is None:
        return None
    norm, positive = made
    # of a product that is positive both factors have the sign of one
    lone = positive & (signs[0] * signs[1] == 0.0)
    if ((signs[0] != signs[1]) & ~lone).any():
        return None
    return _made(norm, squares, c, sides, atoms, a)


def _apart(parts: list[Part]) -> list[Part]:
    """Return the one negative product whose variables no other part of one row has."""
    used = [scalars(q.first) | scalars(q.second) for q in parts]
    often = Counter(v for own in used for v in own)
    return [
        q
        for q, own in zip(parts, used, strict=True)
        if q.numbers.size == 1 and q.numbers[0] < 0.0 and own and all(often[v] == 1 for v in own)
    ][:2]


def _affine_factors(part: Node) -> tuple[Node, Node] | None:
    """Return two affine functions whose product a part is; one of them is 1 where it is affine."""
    if affine(part):
        return part, constant(np.ones(part.size))
    if not isinstance(part, Product):
        return None
    factors = [n for n, p in part.factors for _ in range(int(p)) if p in (1, 2)]
    if len(factors) != 2 or sum(p for _, p in part.factors) != 2 or not all(map(affine, factors)):
        return None
    return factors[0], factors[1]


def _placed(q: Part, size: int, rows: int) -> Any:
    """Return the matrix that puts entries of a vector into rows."""
    return sp.csr_array((np.ones(q.rows.size), (q.rows, q.columns)), shape=(rows, size))


def _sign(node: Node, a: Algebra) -> Floats:
    """Return 1 or -1 where entries are known to have no other sign, 0 elsewhere."""
    known = a.domain.range(node)
    up = (known.low >= 0.0) | a.nonnegative(node)
    down = (known.high <= 0.0) | a.nonpositive(node)
    return np.asarray(np.where(up, 1.0, np.where(down, -1.0, 0.0)), dtype=float)


def _root(values: Floats, factor: float) -> Floats:
    """Return factor * sqrt(c), or a little less where that is no float."""
    near = np.sqrt(values)
    pairs, at = np.unique(np.stack([values, near]), axis=1, return_inverse=True)
    exact = [Fraction(r) ** 2 == Fraction(c) for c, r in pairs.T.tolist()]
    whole = np.asarray(exact, dtype=bool)[at.ravel()]
    return np.asarray(factor * np.where(whole, near, near * (1.0 - LESS)), dtype=float)


Norm = tuple[list[Any], int]


def _square_roots(
    squares: list[Part], c: Floats, factor: float, atoms: Atoms
) -> tuple[Norm, Any] | None:
    """Return what norms are of, one column a row, in parts that are added up, with its height.

    And where it is positive.
    """
    n, none = c.size, np.zeros(0, dtype=np.intp)
    starts = np.cumsum([0, *(q.first.size for q in squares)])
    rows = np.concatenate([none, *(q.rows for q in squares)])
    columns = np.concatenate(
        [none, *(q.columns + k for q, k in zip(squares, starts, strict=False))]
    )
    order = np.argsort(rows, kind="stable")
    numbers = np.concatenate([np.zeros(0), *(q.numbers for q in squares)])[order]
    rows, columns, count = rows[order], columns[order], np.bincount(rows, minlength=n)
    place = np.arange(rows.size) - np.repeat(np.cumsum(count) - count, count)
    height = int(count.max(initial=0)) + 2
    if height * n > MOST:
        return None
    constants = np.zeros((height, n))
    constants[count, np.arange(n)] = _root(c, factor)
    parts = [constants.ravel(order="F")]
    if rows.size:
        entries = _root(numbers, factor), (rows * height + place, columns)
        matrix = sp.csr_array(entries, shape=(height * n, int(starts[-1])))
        parts.append(matrix @ cp.hstack([atoms.write(q.first) for q in squares]))
    return (parts, height), c > 0.0


def _form_root(
    terms: list[Part], c: Floats, factor: float, atoms: Atoms
) -> tuple[Norm, Any] | None:
    """Return a root of a quadratic function in one row, and its vector; None where it has none.

    It is a form in the variables and 1, positive where the root of all of these is regular.
    """
    leaves = list(dict.fromkeys(v for q in terms for v in (q.first.leaves | q.second.leaves)))
    starts = dict(zip(leaves, np.cumsum([0, *(v.size for v in leaves)]).tolist(), strict=False))
    total = sum(v.size for v in leaves) + 1
    left, right = [np.array([1.0])], [c / 2.0]
    at = [np.array([total * total - 1])]
    for q in terms:
        maps = [_map(end, starts, total) for end in (q.first, q.second)]
        if maps[0] is None or maps[1] is None:
            return None
        first, second = (m[q.columns] for m in maps)
        scaled = exact_matrix_product(sp.diags_array(q.numbers / 2.0).tocsr(), second)
        if scaled is None:
            return None
        i, j = _pairs(first, scaled)
        left.append(first.data[i])
        right.append(scaled.data[j])
        at.append(first.indices[i].astype(np.intp) * total + scaled.indices[j])
    a, b, place = (np.concatenate(v) for v in (left, right, at))
    other = place % total * total + place // total
    twice = np.concatenate([a, a]), np.concatenate([b, b]), np.concatenate([place, other])
    Q, radius = (v.reshape(total, total) for v in group_products(*twice, total**2))
    off = radius.sum(axis=1)  # where sums are no floats, what they may be less is taken off
    lowered = np.nextafter(Q.diagonal() - (1.0 + 1e-9) * off, -np.inf)
    Q[np.diag_indices(total)] = np.where(off > 0.0, lowered, Q.diagonal())
    root, below = lower_root(Q)
    if not below:
        return None
    used = np.flatnonzero(root.any(axis=0))
    own = root[:, used]
    regular = own.shape[0] == own.shape[1] and not np.tril(own, -1).any() and own.diagonal().all()
    z = cp.hstack([*(atoms.write(v) for v in leaves), 1.0])
    matrix = np.vstack([factor * root, np.zeros((1, total))])
    return ([matrix @ z], len(matrix)), bool(regular and root[:, -1].any())


def _pairs(A: Any, B: Any) -> tuple[Indices, Indices]:
    """Return the entries of two sparse matrices that stand in the same row, all pairs of them."""
    each = np.repeat(np.diff(B.indptr), np.diff(A.indptr))
    start = np.repeat(B.indptr[:-1], np.diff(A.indptr)) - np.cumsum(each) + each
    return np.repeat(np.arange(A.nnz), each), np.repeat(start, each) + np.arange(int(each.sum()))


def _map(node: Node, starts: dict[Leaf, int], total: int) -> Any:
    """Return the matrix of an affine node in the entries of leaves and 1, None where it is rounded."""
    if isinstance(node, Leaf):
        at = starts[node] + np.arange(node.size)
        entries = np.ones(node.size), (np.arange(node.size), at)
        return sp.csr_array(entries, shape=(node.size, total))
    if not isinstance(node, Sum) or not all(isinstance(inner, Leaf) for _, inner in node.parts):
        return None
    last = (node.constant, (np.arange(node.size), np.full(node.size, total - 1)))
    out = sp.csr_array(last, shape=(node.size, total))
    for M, leaf in node.parts:
        out = out + sp.csr_array(M) @ _map(leaf, starts, total)
    return sp.csr_array(out)


def _made(
    norm: Norm,
    squares: list[Part],
    c: Floats,
    sides: tuple[Node, Node],
    atoms: Atoms,
    a: Algebra,
) -> ConeRows:
    (parts, height), (left, right), n = norm, sides, c.size
    factor = 1.0 if left is right else 2.0
    first, second = (cp.reshape(atoms.write(e), (n,), order="F") for e in sides)
    if factor > 1.0:
        last = np.arange(n) * height + height - 1
        put = sp.csr_array((np.ones(n), (last, np.arange(n))), shape=(height * n, n))
        parts = [*parts, put @ (first - second)]
    norms = cp.norm(cp.reshape(sum(parts[1:], parts[0]), (height, n), order="F"), 2, axis=0)
    inside = []
    for q in squares:
        entries = factor**2 * q.numbers, (q.rows, q.columns)
        gathered = sp.csr_array(entries, shape=(n, q.first.size))
        inside.append((gathered, a.product([(q.first, Fraction(1)), (q.second, Fraction(1))])))
    below = linear(inside, factor**2 * c)
    if left is right:
        after = a.total([a.product([(below, HALF)]), left], [1.0, -1.0])
        return ConeRows(after, norms - first)
    apart = a.product([(a.total([left, right], [1.0, -1.0]), Fraction(2))])
    root = a.product([(a.total([below, apart]), HALF)])
    return ConeRows(a.total([root, left, right], [1.0, -1.0, -1.0]), norms - (first + second))
