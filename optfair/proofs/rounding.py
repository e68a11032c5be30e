"""Enclosures of sums and products of floats, and of solutions of linear equations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

Floats = NDArray[np.float64]

#: Unit roundoff of float64.
UNIT = 2.0**-53
# Times that terms may be as large as their sum before it has lost digits.
CANCELS = 16.0
# What a product that underflows may lose, with room for a few of them.
LOST = 1e-320
# Places of a matrix up to which products are made by all of them, zeros too.
DENSE = 4_096
# Beyond this size a factor cannot be split into two halves.
LARGEST = 1e150
# Below this size a product loses digits that its second half would hold.
SMALLEST = 1e-270
# Times that digits of a sum of products are split off.
PASSES = 6
# Equations that are solved densely, and entries of their matrix.
EQUATIONS, FEW, ENTRIES = 1_500, 400, 4_000_000
# Equations that are solved by their products with each other.
SQUARED = 2_500
# Entries of a matrix from which on normal equations are tried first.
QUICK = 200_000
# Sparse factors are made where entries are one in so many, of a matrix and of its square.
THIN = 16


def gamma(k: Any) -> Any:
    r"""Return :math:`\gamma_k = k u / (1 - k u)`, the relative error of k roundings.

    Examples
    --------
    >>> gamma(1) > UNIT
    True
    """
    return k * UNIT / (1.0 - k * UNIT)


def loss(count: float, size: float) -> float:
    """Return a bound on what ``count`` roundings change in a sum of terms of this total size.

    Examples
    --------
    >>> 0.0 < loss(10, 3.0) < 1e-13
    True
    """
    return float(gamma(2.0 * count + 32.0)) * abs(size) * (1.0 + 1e-6) + 1e-300


def product(A: Any, x: Floats) -> tuple[Floats, Floats]:
    r"""Return a center and a radius that enclose the exact :math:`A x`.

    .. math:: |\mathrm{fl}(a^T x) - a^T x| \le \gamma_k |a|^T |x|

    for a row of k entries, in whatever order it is summed; the right-hand side is itself
    computed, so the radius has room for that, and for products that underflow.

    Parameters
    ----------
    A : sparse (m, n)
        Exact floats.
    x : array (n,)
        Exact floats.

    Examples
    --------
    >>> center, radius = product(sp.csr_array([[0.1, 0.2]]), np.array([3.0, -1.5]))
    >>> bool(radius[0] > 0.0), bool(abs(center[0]) <= radius[0])
    (True, True)
    """
    return Products(A)(x)


class Products:
    """What `product` does, for one matrix and many vectors.

    Parameters
    ----------
    A : sparse (m, n)
        Exact floats.

    Attributes
    ----------
    rows : sparse csr (m, n)
        The matrix.
    """

    def __init__(self, A: Any) -> None:
        self.rows: Any = A if A.format == "csr" else sp.csr_array(A)
        count = np.diff(self.rows.indptr)
        each = np.arange(count.max(initial=0) + 1.0)  # most rows are as long as others
        self._share, self._lost = gamma(2.0 * each + 4.0)[count], (each * LOST)[count]
        m, n = self.rows.shape
        # a sparse product takes longer to begin than a small one to compute; zeros round nothing
        small = m * n <= DENSE
        self._rows: Any = self.rows.toarray() if small else self.rows
        self._sizes: Any = abs(self._rows) if small else self.sizes

    @cached_property
    def sizes(self) -> Any:
        """The entries in size: sparse csr (m, n)."""
        return abs(self.rows)

    def __call__(self, x: Floats) -> tuple[Floats, Floats]:
        """Return a center and a radius that enclose the exact product."""
        return self.times(x), self._share * self.terms(np.abs(x)) + self._lost

    def times(self, x: Floats) -> Floats:
        """Return the product, as floats have it."""
        with np.errstate(over="ignore", invalid="ignore"):  # as sparse products are
            return np.asarray(self._rows @ x)

    def terms(self, size: Floats) -> Floats:
        """Return the sum of the sizes of the terms of every row, of a vector of such sizes."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self._sizes @ size)


def reached(sizes: Any, step: Floats) -> Floats:
    """Return floats above the product of nonnegative entries and steps, above 0 wherever it is.

    Examples
    --------
    >>> reached(sp.csr_array([[1e-30, 0.0], [0.0, 1.0]]), np.array([1e-300, 0.0])) > 0.0
    array([ True, False])
    """
    most = np.asarray(sizes @ step) * (1.0 + 1e-9)
    met = sizes @ np.asarray(step > 0.0, dtype=float) > 0.0
    return np.where(met, most + 1e-300, most)


def coordinates(M: Any) -> tuple[NDArray[Any], NDArray[Any], Floats]:
    """Return row, column and value of every entry of a csr or csc matrix, as they are stored.

    Examples
    --------
    >>> [v.tolist() for v in coordinates(sp.csc_array([[0.0, 2.0], [3.0, 0.0]]))]
    [[1, 0], [0, 1], [3.0, 2.0]]
    """
    which = np.repeat(np.arange(M.indptr.size - 1), np.diff(M.indptr))
    return (*((which, M.indices) if M.format == "csr" else (M.indices, which)), M.data)


def equilibrated(
    row: NDArray[Any], column: NDArray[Any], sizes: Floats, shape: tuple[int, int], passes: int = 8
) -> tuple[Floats, Floats]:
    """Return factors of rows and columns that bring the largest entry of each near 1."""
    down, along = np.ones(shape[0]), np.ones(shape[1])
    for _ in range(passes):
        scaled = down[row] * sizes * along[column]
        for at, units in ((row, down), (column, along)):
            largest = np.zeros(units.size)
            np.maximum.at(largest, at, scaled)
            units /= np.sqrt(np.where(largest > 0.0, largest, 1.0))
    return down, along


def entries_of(M: Any, at: NDArray[Any]) -> tuple[Floats, NDArray[Any], NDArray[np.intp]]:
    """Return values, inner indices and positions in ``at`` of some rows (csr) or columns (csc)."""
    first, count = M.indptr[at], M.indptr[np.asarray(at) + 1] - M.indptr[at]
    which = np.repeat(np.arange(len(at)), count)
    ends = np.cumsum(count)
    total = int(ends[-1]) if ends.size else 0
    if total == M.indices.size and at.size == M.indptr.size - 1 and (np.diff(at) == 1).all():
        return M.data, M.indices, which
    place = np.arange(total) + np.repeat(first - (ends - count), count)
    return M.data[place], M.indices[place], which


def dot(a: Floats, b: Floats) -> tuple[float, float]:
    """Return a center and a radius that enclose the exact inner product of two vectors."""
    size = float(np.abs(a) @ np.abs(b))
    return float(a @ b), float(gamma(2.0 * a.size + 4.0)) * size + a.size * LOST


def halves(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return p, e with p + e = a b exactly (Dekker, Veltkamp), for factors of usual size."""
    p = a * b
    factor = 2.0**27 + 1.0
    ca, cb = factor * a, factor * b
    ah, bh = ca - (ca - a), cb - (cb - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@np.errstate(all="ignore")
def two_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return p, e with p + e = a b exactly; NaN in e where that is not known."""
    p, e = halves(a, b)
    known = (np.maximum(np.abs(a), np.abs(b)) <= LARGEST) & (np.abs(p) >= SMALLEST)
    return p, np.where((a == 0.0) | (b == 0.0), 0.0, np.where(known, e, np.nan))


def exact_dot(a: Floats, b: Floats) -> tuple[float, float]:
    """Return the correctly rounded inner product and a radius; 0 and 0 when it is exactly 0.

    Examples
    --------
    >>> exact_dot(np.array([0.1, -0.3]), np.array([3.0, 1.0]))[0]  # 0.1 * 3.0 == 0.3 is false
    2.7755575615628914e-17
    >>> exact_dot(np.array([0.5, -0.25]), np.array([3.0, 6.0]))
    (0.0, 0.0)
    """
    used = (a != 0.0) & (b != 0.0)
    a, b = a[used], b[used]
    head, tail = two_product(a, b)
    if np.isnan(tail).any():
        return dot(a, b)
    total = math.fsum([*head.tolist(), *tail.tolist()])
    return total, 0.0 if total == 0.0 else float(np.spacing(abs(total)))


def exact_products(
    A: Any, z: Floats, at: NDArray[Any], more: tuple[tuple[Any, Floats], ...] = (), rows: Any = None
) -> tuple[Floats, Floats]:
    """Return center and radius of some columns' products, 0 and 0 where they are exactly 0.

    Parameters
    ----------
    A : sparse csc (m, n)
        Matrix of the products :math:`A_j^T z`.
    z : array (m,)
        Vector.
    at : array of int
        Columns j.
    more : tuple of (sparse csc (k, n) or array (n,), array (k,))
        Further products that are added; an array is a matrix of one row.
    rows : sparse csr (m, n), optional
        A by rows, read where most entries of z are 0.
    """
    count = len(at)
    left, right, group = [], [], []
    used = np.flatnonzero(z)
    sparse = rows is not None and 2 * used.size < z.size and 2 * count > A.shape[1]
    if sparse:
        data, column, row = entries_of(rows, used)
        place = np.full(A.shape[1], -1, dtype=np.intp)
        place[at] = np.arange(count)
        asked = place[column] >= 0
        left, right, group = [data[asked]], [z[used][row[asked]]], [place[column[asked]]]
    for M, v in more if sparse else ((A, z), *more):
        if isinstance(M, np.ndarray):
            data, inner, own = M[at], np.zeros(count, dtype=np.intp), np.arange(count)
        else:
            data, inner, own = entries_of(M if M.format == "csc" else sp.csc_array(M), at)
        left.append(data)
        right.append(v[inner])
        group.append(own)
    a, b, of = np.concatenate(left), np.concatenate(right), np.concatenate(group)
    with np.errstate(over="ignore", invalid="ignore"):
        center, radius, known = enclosed_sums(a, b, of, count)
    if not known.all():  # out of the usual range, or of more digits than most
        order = np.argsort(of, kind="stable")
        ends = np.searchsorted(of[order], np.arange(count + 1))
        for k in np.flatnonzero(~known):
            own = order[ends[k] : ends[k + 1]]
            center[k], radius[k] = exact_dot(a[own], b[own])
    return center, radius


def enclosed_sums(
    a: Floats, b: Floats, group: NDArray[np.intp], count: int
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    r"""Return center and radius of :math:`\sum a_i b_i` by group, and where these are known.

    The radius is 0 where the sum is a float.

    What the products have above :math:`2^{-52} \sigma` adds up exactly in floats when
    :math:`\sigma` is a power of two above their number times the largest of them (Rump, Ogita,
    Oishi 2008); what they have below is summed in the same way, until nothing is left.
    """
    used = (a != 0.0) & (b != 0.0)
    a, b, group = a[used], b[used], group[used]
    p = np.abs(a * b)
    known = np.ones(count, dtype=bool)
    known[group[~(np.maximum(np.abs(a), np.abs(b)) <= LARGEST) | ~(p >= SMALLEST)]] = False
    usual = known[group]
    a, b, group = a[usual], b[usual], group[usual]
    rest = np.concatenate(halves(a, b))
    group = np.concatenate([group, group])
    terms = np.bincount(group, minlength=count)
    room = np.exp2(np.ceil(np.log2(terms + 2.0)))
    total, error, size = np.zeros(count), np.zeros(count), np.zeros(count)
    for _ in range(PASSES):
        largest = np.zeros(count)
        np.maximum.at(largest, group, np.abs(rest))
        if not largest.any():
            break
        sigma = (room * np.exp2(np.frexp(largest)[1]))[group]
        head = (sigma + rest) - sigma
        rest = rest - head
        part = np.bincount(group, head, count)  # no sum of them is rounded
        whole = total + part
        before = whole - part
        off = (total - before) + (part - (whole - before))  # Knuth: total + part = whole + off
        total, error, size = whole, error + off, size + np.abs(off)
    else:
        left = np.zeros(count, dtype=bool)
        left[group[rest != 0.0]] = True
        known &= ~left
    center = total + error
    radius = np.abs(np.spacing(center)) + gamma(2.0 * PASSES) * size
    radius[size == 0.0] = 0.0  # nothing was rounded
    known &= (radius == 0.0) | (np.abs(center) > 2.0 * radius)  # else it may be exactly 0
    return center, radius, known


def exact_sums(a: Floats, b: Floats, group: NDArray[np.intp], count: int) -> list[Fraction]:
    r"""Return the exact :math:`\sum a_i b_i` of each group, in whole multiples of a power of two.

    Examples
    --------
    >>> exact_sums(np.array([0.5, 3.0, 0.1]), np.array([0.25, 2.0, 0.0]), np.array([1, 1, 0]), 2)
    [Fraction(0, 1), Fraction(49, 8)]
    """
    order = np.argsort(group, kind="stable")
    order = order[(a[order] != 0.0) & (b[order] != 0.0)]
    (a, up), (b, more) = np.frexp(a[order]), np.frexp(b[order])
    group, power = group[order], up.astype(np.int64) + more - 106
    least = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(least, group, power)
    whole = [np.ldexp(v, 53).astype(np.int64).astype(object) for v in (a, b)]
    terms = np.left_shift(whole[0] * whole[1], (power - least[group]).astype(object))
    sums = [Fraction(0)] * count
    if terms.size:
        first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        for k, total in zip(group[first].tolist(), np.add.reduceat(terms, first), strict=True):
            sums[k] = Fraction(total) * Fraction(2) ** int(least[k])
    return sums


def cancelled(total: Floats, size: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which sums are so much less than their terms that they have lost digits."""
    with np.errstate(over="ignore"):
        return np.asarray((size > CANCELS * np.abs(total)) & np.isfinite(size))


def summed(values: Floats, group: NDArray[np.intp], count: int) -> Floats:
    """Return the sum of each group, correctly rounded where terms cancel.

    Examples
    --------
    >>> summed(np.array([1e16, 1.0, -1e16, 0.1, 0.2]), np.array([0, 0, 0, 1, 1]), 2)
    array([1. , 0.3])
    """
    total = np.bincount(group, values, count).astype(float)
    size = np.bincount(group, np.abs(values), count)
    if (lost := cancelled(total, size)).any():
        here = lost[group]
        exact = exact_sums(values[here], np.ones(here.sum()), group[here], count)
        total[lost] = [float(exact[k]) for k in np.flatnonzero(lost)]
    return total


def distinct(
    row: NDArray[Any], at: NDArray[Any], data: Floats
) -> tuple[NDArray[Any], NDArray[Any], Floats]:
    """Return entries with one number at each place, correctly rounded where they cancel."""
    width = int(at.max(initial=0)) + 1
    place, own = np.unique(row.astype(np.int64) * width + at, return_inverse=True)
    if place.size == row.size:
        return row, at, data
    return place // width, place % width, summed(data, own, place.size)


def _too_large(k: int, m: int) -> bool:
    """Whether a dense factorisation of k rows of m entries takes too long; few rows may be longer."""
    return k > EQUATIONS or k * m > ENTRIES * (2 if k <= FEW else 1)


def _square(M: Any, weight: Floats) -> Floats | None:
    """Return M W Mᵀ, W diagonal, in floats; None where that is too large."""
    (k, m), count = M.shape, np.bincount(M.indices, minlength=M.shape[1]).astype(float)
    if k > SQUARED:
        return None
    if float(count @ count) <= ENTRIES:
        return np.asarray((M @ sp.diags_array(weight) @ M.T).toarray())
    if k * m > 4 * ENTRIES:
        return None
    dense = M.toarray()
    return np.asarray((dense * weight) @ dense.T)


def correcting_step(M: Any, residual: Floats, room: Floats) -> Floats | None:
    r"""Return a small vector with :math:`M \Delta \approx -r`, in floats; None when it is too large to try.

    Parameters
    ----------
    M : sparse (k, m)
        Rows.
    residual : array (k,)
        r.
    room : array (m,)
        Entries with more room are moved more; those with none are left.
    """
    rows = sp.csr_array(M)
    k, m = rows.shape
    used = np.flatnonzero((room > 0.0) & (np.bincount(rows.indices, minlength=m) > 0))
    large = _too_large(k, used.size)
    if not used.size or (large and k > SQUARED) or not np.isfinite(residual).all():
        return None
    weight = np.minimum(room[used], 1.0)
    own: Any = rows[:, used]
    size = abs(own).max(axis=1).toarray().ravel()
    size[size == 0.0] = 1.0
    own.data = own.data / size[coordinates(own)[0]] * weight[own.indices]
    side = -residual / size
    own = own if large or _thin(own) else own.toarray()
    try:
        step = None
        if used.size == k and isinstance(own, np.ndarray):
            with contextlib.suppress(np.linalg.LinAlgError):
                step = np.linalg.solve(own, side)
        elif k * used.size > QUICK:
            step = _shortest(own, side)
        if step is None or not np.abs(own @ step - side).max() <= 1e-6 * np.abs(side).max():
            if large:
                return None
            own = own if isinstance(own, np.ndarray) else own.toarray()
            step = scipy.linalg.lstsq(own, side, cond=1e-9, lapack_driver="gelsy")[0]
    except (np.linalg.LinAlgError, ValueError):
        return None
    moved = np.zeros(rows.shape[1])
    moved[used] = step * weight
    return moved if np.isfinite(moved).all() else None


def _shortest(M: Any, side: Floats) -> Floats | None:
    """Return the shortest solution by normal equations, where their condition allows for these."""
    with contextlib.suppress(np.linalg.LinAlgError, ValueError, RuntimeError):
        solve: Callable[[Floats], Floats]
        square: Any
        if not isinstance(M, np.ndarray) and _thin(M):
            square, how = sp.csc_array(M @ M.T), {"SymmetricMode": True}
            factor = splu(square, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=how)
            own, solve = np.sqrt(np.abs(factor.U.diagonal())), factor.solve
        else:
            dense = isinstance(M, np.ndarray)
            square = M @ M.T if dense else _square(M, np.ones(M.shape[1]))
            if square is None:
                return None
            root = scipy.linalg.cho_factor(square)
            own, solve = np.diag(root[0]), partial(scipy.linalg.cho_solve, root)
        if own.min() > 1e-4 * own.max():
            return np.asarray(M.T @ solve(side))
    return None


def _thin(M: Any) -> bool:
    """Whether a matrix is not small, and most entries are 0, of it and of its square."""
    k, m = M.shape
    return bool(k * m > QUICK and THIN * M.nnz <= k * m and THIN * (M @ M.T).nnz <= k * k)


def _right_inverse(M: Any) -> Floats | None:
    """Return R with M R near the identity, in floats; None where M has no full row rank."""
    k, m = M.shape
    if _thin(M):
        if m > k:
            R = _shortest(M, np.eye(k))
        else:
            R = None
            with contextlib.suppress(RuntimeError):
                R = splu(sp.csc_array(M)).solve(np.eye(k))
        if R is not None and np.isfinite(R).all():
            return np.asarray(R)
    dense = M.toarray()
    if m == k:
        return np.linalg.inv(dense)
    R = _shortest(dense, np.eye(k)) if dense.size > QUICK else None
    if R is None:
        Q, T, order = scipy.linalg.qr(dense.T, mode="economic", pivoting=True)
        if abs(T[-1, -1]) <= 1e-13 * abs(T[0, 0]):
            return None
        R = np.empty((m, k))
        R[:, order] = Q @ scipy.linalg.solve_triangular(T, np.eye(k), trans="T")
    return R


def _by_right_inverse(M: Any, weight: Floats) -> tuple[Floats, Floats] | None:
    """Return the sums of the lines of |I - M R| and of |R|, from above, for a right inverse R nearly."""
    k, m = M.shape
    R = _right_inverse(M @ sp.diags_array(weight))
    if R is None or not np.isfinite(R).all():
        return None
    unscaled = R * weight[:, None]
    if not _thin(M):
        M = M.toarray()
    off = np.abs(np.eye(k) - M @ unscaled)
    off += gamma(2.0 * m + 8.0) * (abs(M) @ np.abs(unscaled) + 1.0)
    return off.sum(axis=1), np.abs(unscaled).sum(axis=1) * (1.0 + float(gamma(2.0 * k + 8.0)))


def _by_squares(M: Any, weight: Floats) -> tuple[Floats, Floats] | None:
    r"""Return the same for :math:`R = W M^T H`, H near the inverse of :math:`M W M^T`: no line of R is made."""
    (k, m), sizes = M.shape, abs(M)
    square = _square(M, weight)
    if square is None:
        return None
    H = scipy.linalg.cho_solve(scipy.linalg.cho_factor(square), np.eye(k))
    most = np.abs(H).sum(axis=1)
    width = weight * (sizes.T @ most)
    off = np.abs(np.eye(k) - square @ H).sum(axis=1)
    off += float(gamma(2.0 * k + 8.0)) * (np.abs(square) @ most + k)
    off += float(gamma(2.0 * m + 16.0)) * (sizes @ width) + m * LOST * float(most.sum())
    return off * (1.0 + 1e-9), width * (1.0 + 1e-9)


def correction(M: Any, residual: Floats, room: Floats) -> Floats | None:
    r"""Return how large a vector must be that solves :math:`M \Delta = -r` exactly.

    With an approximate right inverse R and :math:`\|I - M R\|_\infty \le e < 1` the matrix
    :math:`M R` is invertible, so :math:`\Delta = -R (M R)^{-1} r` is an exact solution, and

    .. math:: |\Delta_i| \le \frac{\|r\|_\infty}{1 - e} \sum_j |R_{ij}| .

    Nothing is solved exactly; that a solution of this size exists is all a proof needs.

    Parameters
    ----------
    M : sparse (k, m)
        Exact floats.
    residual : array (k,)
        Bound on each entry of r in size.
    room : array (m,)
        Entries with more room are moved more; those with none are left.

    Returns
    -------
    array (m,) or None
        Bound on each entry of the solution; None when no solution is proved to exist.

    Examples
    --------
    >>> correction(sp.csr_array([[2.0, 0.0]]), np.array([1e-9]), np.ones(2)) <= [5.1e-10, 0.0]
    array([ True,  True])
    >>> correction(sp.csr_array([[0.0, 0.0]]), np.array([1e-9]), np.ones(2)) is None
    True
    """
    k, m = M.shape
    moved = np.zeros(m)
    if k == 0:
        return moved
    rows = sp.csr_array(M)
    if not rows.has_canonical_format:
        single = rows.copy()
        single.sum_duplicates()
        if single.nnz != rows.nnz:
            return None  # entries that stand twice are added up with a rounding
    used = np.flatnonzero((room > 0.0) & (np.bincount(rows.indices, minlength=m) > 0))
    if used.size < k:
        return None
    own: Any = rows[:, used]
    size = abs(own).max(axis=1).toarray().ravel()
    if not (size > 0.0).all() or not np.isfinite(size).all():
        return None
    # rows in units of their own size, so that one large row does not spoil the others
    size = np.exp2(np.ceil(np.log2(size)))  # a power of two: dividing by it is exact
    before, each = own.data, size[coordinates(own)[0]]
    own.data = before / each
    if not (own.data * each == before).all():
        return None  # beside a large entry a small one underflows
    weight = np.minimum(room[used], 1.0)
    inverse = _by_squares if _too_large(k, used.size) else _by_right_inverse
    try:
        known = inverse(own, weight)
    except (np.linalg.LinAlgError, ValueError):
        return None
    if known is None:
        return None
    off, width = known
    e = float(off.max()) * (1.0 + gamma(2.0 * k + 8.0))
    if not e < 0.5:
        return None
    most = float((residual / size).max()) * (1.0 + 8.0 * UNIT) / (1.0 - e)
    if residual.any():
        most += 1e-300
    moved[used] = width * most
    moved[used] += 1e-300 if residual.any() else 0.0
    return moved if np.isfinite(moved).all() else None
