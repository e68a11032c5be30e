"""Quadratic expressions of CVXPY: multiplied out, and their curvature proved from the coefficients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine import wraps
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression, multiply
from cvxpy.atoms.affine.broadcast_to import broadcast_to
from cvxpy.atoms.affine.cumsum import cumsum
from cvxpy.atoms.elementwise.power import Power
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.atoms.quad_over_lin import quad_over_lin
from cvxpy.constraints import Inequality
from cvxpy.cvxcore.python import canonInterface
from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS
from cvxpy.reductions.dcp2cone.canonicalizers.quad_over_lin_canon import quad_over_lin_canon
from cvxpy.settings import SCIPY_CANON_BACKEND
from numpy.typing import NDArray

from optfair.core.expressions import dense, substitute
from optfair.errors import DeclarationError, shortened
from optfair.numbers import Floats
from optfair.proofs.definiteness import Definiteness, curvature_of, symmetric
from optfair.proofs.definiteness import lower_root as lower_root
from optfair.proofs.rounding import root_below as root_below
from optfair.proofs.rounding import root_excess

# Multiply out CVXPY expressions of degree two.

Indices = NDArray[np.int64]


class NotQuadratic(Exception):
    """An expression is no quadratic; the text says which part."""


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
        both = self.stacked([self, other])
        m = self.b.size
        eye = sp.eye_array(m, format="csr")
        return both.after(sp.csr_array(sp.hstack([eye, eye])), np.zeros(m))

    def __rmul__(self, factor: float) -> QuadraticMap:
        return QuadraticMap(factor * self.Q, self.pairs, factor * self.A, factor * self.b)

    def after(self, D: Any, b: Floats) -> QuadraticMap:
        """Return D f(x) + b."""
        return QuadraticMap(
            sp.csr_array(D @ self.Q), self.pairs, sp.csr_array(D @ self.A), D @ self.b + b
        ).tidy()

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


def quadratic_map(expression: Any, offsets: Mapping[int, int], size: int) -> QuadraticMap:
    """Return the coefficients of an expression of numbers and variables.

    Parameters
    ----------
    expression : cvxpy.Expression
        Real, of degree at most 2.
    offsets : dict
        CVXPY variable id -> position of its first entry in x; entries follow column by column.
    size : int
        Length n of x.

    Raises
    ------
    NotQuadratic
        Some part is not known to be quadratic.
    """
    if expression.parameters():  # CVXPY's compiled backend dies of them
        raise NotQuadratic(f"{shortened(expression)} has coefficients that are not numbers yet")
    if expression.is_constant():
        b = np.ravel(dense(expression.value), order="F")
        return QuadraticMap.constant(np.asarray(b, dtype=float), size)
    if isinstance(expression, cp.Variable):
        m, at = int(expression.size), offsets[expression.id]
        own = (np.ones(m), np.arange(at, at + m), np.arange(m + 1))
        return QuadraticMap.affine(sp.csr_array(own, shape=(m, size)), np.zeros(m))
    special: dict[int, tuple[Any, QuadraticMap]] = {}
    _collect(expression, offsets, size, special)
    if id(expression) in special:
        return special[id(expression)][1]
    head = expression
    ids = dict(offsets)
    at = size
    for stand_in, _ in special.values():
        ids[stand_in.id] = at
        at += stand_in.size
    if special:
        head = _replaced(expression, {k: v for k, (v, _) in special.items()})
    A, b = _affine(head, ids, at)
    inner = [QuadraticMap.affine(sp.eye_array(size, format="csr"), np.zeros(size))]
    inner += [m for _, m in special.values()]
    return QuadraticMap.stacked(inner).after(A, b) if special else QuadraticMap.affine(A, b).tidy()


def _collect(
    e: Any, offsets: Mapping[int, int], size: int, special: dict[int, tuple[Any, QuadraticMap]]
) -> None:
    """Find the outermost parts that are not affine atoms, each with its coefficients."""
    if id(e) in special or e.is_constant() or isinstance(e, cp.Variable):
        return
    product = isinstance(e, MulExpression) and not any(a.is_constant() for a in e.args)
    if isinstance(e, AffAtom) and not product and not isinstance(e, cumsum):
        for a in e.args:
            _collect(a, offsets, size, special)
    else:
        special[id(e)] = (cp.Variable(e.shape), _special(e, offsets, size))


def _special(e: Any, offsets: Mapping[int, int], size: int) -> QuadraticMap:
    """Return the coefficients of a product, a power or a quadratic form."""

    def arg(i: int) -> QuadraticMap:
        inner = quadratic_map(e.args[i], offsets, size)
        if inner.Q.nnz:
            raise NotQuadratic(f"{shortened(e)} multiplies what is quadratic already")
        return inner

    def entries(i: int) -> Indices:
        return _count(e.args[i].shape)

    out = _count(e.shape)
    if isinstance(e, multiply):
        left, right = (np.broadcast_to(entries(i), e.shape) for i in (0, 1))
        return _products(e.size, out, left, right, 1.0, arg(0), arg(1))
    if isinstance(e, MulExpression):
        return _products(e.size, *_matrix_product(out, entries(0), entries(1)), 1.0, arg(0), arg(1))
    if isinstance(e, cumsum):  # the one affine atom without a form for the affine backends
        (gradient,) = e._grad([np.zeros(e.args[0].shape)])
        summed = quadratic_map(e.args[0], offsets, size)
        return summed.after(sp.csr_array(gradient.T), np.zeros(e.size))
    if isinstance(e, Power):
        exponent = float(getattr(e.p, "value", e.p))
        if exponent == 1.0:
            return quadratic_map(e.args[0], offsets, size)
        if exponent == 2.0:
            return _products(e.size, out, out, out, 1.0, arg(0), arg(0))
    elif isinstance(e, quad_over_lin) and e.args[1].is_constant():
        inside = entries(0)
        total = out if e.axis is None or e.keepdims else np.expand_dims(out, e.axis)
        scale = 1.0 / float(np.squeeze(dense(e.args[1].value)))
        return _products(
            e.size, np.broadcast_to(total, inside.shape), inside, inside, scale, arg(0), arg(0)
        )
    elif isinstance(e, QuadForm) and e.args[1].is_constant():
        form = sp.coo_array(e.args[1].value)
        zero = np.zeros(form.nnz, dtype=np.int64)
        return _products(e.size, zero, form.row, form.col, form.data, arg(0), arg(0))
    raise NotQuadratic(f"{shortened(e)} is not of degree 2 by any rule known here")


def _replaced(e: Any, stand_ins: Mapping[int, Any]) -> Any:
    """Return a copy with parts replaced; ``tree_copy`` passes over powers."""
    if id(e) in stand_ins:
        return stand_ins[id(e)]
    if not e.args or e.is_constant():
        return e
    return e.copy(args=[_replaced(a, stand_ins) for a in e.args])


def _count(shape: tuple[int, ...]) -> Indices:
    """Return the position of each entry, column by column."""
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape, order="F")


def _affine(expression: Any, offsets: Mapping[int, int], size: int) -> tuple[Any, Floats]:
    """Return (A, b) of an affine expression, by CVXPY's own canonicalisation."""
    if not expression.is_affine():
        raise NotQuadratic(f"{shortened(expression)} is not of degree 2 by any rule known here")
    m = int(expression.size)
    # the compiled backend of CVXPY knows two dimensions only
    deep = any(len(n.shape) > 2 or isinstance(n, broadcast_to) for n in parts_of(expression))
    tensor = canonInterface.get_problem_matrix(
        [expression.canonical_form[0]],
        size,
        dict(offsets),
        {-1: 1},
        {-1: 0},
        m,
        SCIPY_CANON_BACKEND if deep else None,
    )
    flat = sp.coo_array(tensor)
    row, column = flat.row % m, flat.row // m
    constant = column == size
    b = np.zeros(m)
    np.add.at(b, row[constant], flat.data[constant])
    part = ~constant
    A = sp.csr_array((flat.data[part], (row[part], column[part])), shape=(m, size))
    return A, b


def _matrix_product(
    out: Indices, left: Indices, right: Indices
) -> tuple[Indices, Indices, Indices]:
    """Return for every scalar product in left @ right (entry of the result, left, right)."""
    a = left[None, :] if left.ndim == 1 else left
    b = right[:, None] if right.ndim == 1 else right
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], a.shape[-1], b.shape[-1])
    # out has the axes of the result only: put back those a vector does not have
    full = out.reshape((*batch, a.shape[-2], 1, b.shape[-1])) if out.ndim != 2 else out[:, None, :]
    return (
        np.broadcast_to(full, shape),
        np.broadcast_to(a[..., None], shape),
        np.broadcast_to(b[..., None, :, :], shape),
    )


def _products(
    m: int, entry: Any, left: Any, right: Any, weight: Any, L: QuadraticMap, R: QuadraticMap
) -> QuadraticMap:
    """Return f with m entries, f[entry[p]] the sum of weight[p] * L(x)[left[p]] * R(x)[right[p]]."""
    k, i, j = (np.ravel(np.asarray(v, dtype=np.int64)) for v in (entry, left, right))
    w = np.broadcast_to(np.asarray(weight, dtype=float), k.shape)
    n = L.A.shape[1]
    A1, A2, b1, b2 = sp.csr_array(L.A), sp.csr_array(R.A), L.b, R.b
    b: Floats = np.bincount(k, w * b1[i] * b2[j], minlength=m).astype(float)
    A = sp.csr_array((m, n))
    # coefficients of the linear parts: entry x row of L, entry x row of R
    if b2.any():
        A = A + sp.csr_array((w * b2[j], (k, i)), shape=(m, b1.size)) @ A1
    if b1.any():
        A = A + sp.csr_array((w * b1[i], (k, j)), shape=(m, b2.size)) @ A2
    if m == 1:  # one entry: a product of sparse matrices, instead of every product by itself
        W = sp.csr_array((w, (i, j)), shape=(b1.size, b2.size))
        H = sp.coo_array(A1.T @ W @ A2)
        row, value = np.zeros(H.nnz, dtype=np.int64), np.asarray(H.data, dtype=float)
        first, second = H.row.astype(np.int64), H.col.astype(np.int64)
    else:
        row, first, second, value = _expand(k, i, j, w, A1, A2)
    low, high = np.minimum(first, second), np.maximum(first, second)
    keys, at = np.unique(low * n + high, return_inverse=True)
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


# The curvature of quadratics, proved from their coefficients whatever an expression asserts.

# Eigenvalues are told for so many scalars at most; they illustrate, the proof is another.
LISTED = 120


@dataclass(frozen=True, eq=False)
class QuadraticCurvature:
    """What is proved of the Hessian H of a quadratic, and of -H.

    Attributes
    ----------
    up, down : Definiteness
        Of H and of -H.
    note : str
        The finding in words.
    rows : QuadraticMap
        Its coefficients.
    """

    up: Definiteness
    down: Definiteness
    note: str
    rows: QuadraticMap

    @property
    def convex(self) -> bool:
        """Whether H is positive semidefinite, up to a shift that bounds are charged for."""
        return self.up.accepted

    @property
    def word(self) -> str:
        """What to call it."""
        if self.convex:
            return "convex quadratic"
        return "concave quadratic" if self.down.accepted else "indefinite quadratic"


def quadratic_curvature(expression: Any) -> QuadraticCurvature | None:
    """Return the curvature of a scalar quadratic from its exact coefficients, at any size.

    None when the expression is not multiplied out.

    Examples
    --------
    >>> x = cp.Variable(2)
    >>> quadratic_curvature(x[0] * x[0] + 2 * x[0] * x[1] + x[1] * x[1]).word
    'convex quadratic'
    >>> quadratic_curvature(x[0] * x[0] - 1e-4 * x[1] * x[1]).word
    'indefinite quadratic'
    """
    if expression.size != 1:
        return None
    offsets, size = {}, 0
    for v in sorted(expression.variables(), key=lambda v: v.id):
        offsets[v.id] = size
        size += v.size
    try:
        rows = quadratic_map(expression, offsets, size)
    except NotQuadratic:
        return None
    i, j = rows.pairs
    Q = sp.csr_array(rows.Q)
    at = slice(Q.indptr[0], Q.indptr[1])
    k, value = Q.indices[at], Q.data[at]
    half = sp.csc_array((value, (i[k], j[k])), shape=(size, size))
    H = sp.csc_array(half + half.T)
    up, down = curvature_of(H), curvature_of(-H)
    if size <= LISTED:
        eigenvalues = np.linalg.eigvalsh(H.toarray())
        note = f"Hessian eigenvalues in [{eigenvalues[0]:.3g}, {eigenvalues[-1]:.3g}]"
    else:
        note = f"Hessian {up}"
    return QuadraticCurvature(up, down, note, rows)


def rounding(parts: Iterable[Any]) -> float:
    """Return the largest shift with which a quadratic form among parts counts as definite."""
    quadratic_atoms = [n.args[1] for n in parts if QuadForm in type(n).__mro__]
    forms = [P.value for P in quadratic_atoms if P.is_constant() and not P.parameters()]
    curvatures = [curvature_of(sign * symmetric(P)) for P in forms for sign in (1.0, -1.0)]
    return max((d.shift for d in curvatures if d.accepted), default=0.0)


def proved_assertions(name: str, expression: Any) -> Any:
    """Return an expression or constraint in which nothing is asserted that is not proved.

    ``psd_wrap`` and ``assume_PSD`` make CVXPY believe; so the matrix of every quadratic form is
    tested here, and handed on as proved or as neither. Assertions about what varies are dropped.

    Parameters
    ----------
    name : str
        What errors call the term.
    expression : cvxpy.Expression or cvxpy.Constraint
        What somebody wrote, without parameters.
    """
    swaps: dict[int, Any] = {}
    for node in parts_of(expression):
        if isinstance(node, QuadForm) and node.args[1].is_constant():
            swaps[id(node.args[1])] = _tested(name, node.args[1])
        elif isinstance(node, wraps.Wrap) and id(node) not in swaps and not _holds(node):
            swaps[id(node)] = node.args[0]
    return substitute(expression, swaps) if swaps else expression


def parts_of(e: Any) -> Iterator[Any]:
    """Yield every node once; a matrix before what it is made of."""
    seen: set[int] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack += [a for a in node.args if hasattr(a, "args")]


def _tested(name: str, matrix: Any) -> Any:
    """Return the matrix of a quadratic form with what is proved about it."""
    value = matrix.value
    if np.iscomplexobj(getattr(value, "data", value)):
        raise DeclarationError(
            f"{name!r} has a quadratic form with a complex matrix",
            remedy="write it with real variables and matrices",
        )
    P = symmetric(value)
    stored: Any = P if sp.issparse(value) else P.toarray()
    constant = cp.Constant(stored)
    if curvature_of(P).accepted:
        return wraps.psd_wrap(constant)
    if curvature_of(-P).accepted:
        return wraps.nsd_wrap(constant)
    # a sum of one of each kind is neither to CVXPY, which would test any other constant itself
    return wraps.psd_wrap(constant) + wraps.nsd_wrap(cp.Constant(sp.csc_array(P.shape)))


def _holds(wrap: Any) -> bool:
    """Whether what a wrap asserts is true of a constant; of anything else nobody knows."""
    if isinstance(wrap, (wraps.symmetric_wrap, wraps.hermitian_wrap)):
        return True  # no curvature rests on it
    if not wrap.is_constant():
        return False
    value = wrap.args[0].value
    entries = dense(value, None)
    if isinstance(wrap, wraps.nonneg_wrap):
        return bool((entries >= 0.0).all())
    if isinstance(wrap, wraps.nonpos_wrap):
        return bool((entries <= 0.0).all())
    if isinstance(wrap, wraps.psd_wrap):
        return curvature_of(symmetric(value)).accepted
    if isinstance(wrap, wraps.nsd_wrap):
        return curvature_of(symmetric(-value)).accepted
    return bool(np.array_equal(entries, -entries.T))


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
CONES: dict[Any, Any] = CANON_METHODS | {QuadForm: squares_of_form}
