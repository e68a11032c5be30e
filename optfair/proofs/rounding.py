"""Enclosures of sums, products and lengths of floats, and numbers of twice their digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

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
# The factor of rows beside a diagonal, and how many floats away from a quotient by it a number may be.
ROOT, ULPS = 2.0**0.5, 3


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
    """Return row, column and value of every entry of a csr or csc matrix or an array, as they are stored.

    Examples
    --------
    >>> [v.tolist() for v in coordinates(sp.csc_array([[0.0, 2.0], [3.0, 0.0]]))]
    [[1, 0], [0, 1], [3.0, 2.0]]
    """
    if isinstance(M, np.ndarray):
        row, column = M.nonzero()
        return row, column, M[row, column]
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


def quadratic_value(P: Any, v: Floats) -> tuple[float, float]:
    """Return floats below and above the exact v'Pv."""
    P = sp.coo_array(P)
    # v_i P_ij is rounded once; the error is charged against the sum of the sizes
    left = v[P.row] * P.data
    center, radius = exact_dot(left, v[P.col])
    radius += float(UNIT * (np.abs(left) @ np.abs(v[P.col])) * (1.0 + 1e-6)) * 1.01 + 1e-300
    return center - radius * (1.0 + 1e-6), center + radius * (1.0 + 1e-6)


def exact_halves(a: Floats, b: Floats) -> tuple[Floats, ...]:
    """Return floats that add up to a b exactly; ArithmeticError where there are none."""
    p, e = two_product(a, b)
    if np.isnan(e).any():
        raise ArithmeticError
    return p, e


def exact_parts(rest: Floats, starts: NDArray[np.intp], digits: float = np.inf) -> list[Floats]:
    r"""Return the sum of each group of columns as one of a few floats, exactly.

    What numbers have above :math:`2^{-52} \sigma` adds up exactly in floats when
    :math:`\sigma` is a power of two above their number times the largest of them (Rump, Ogita,
    Oishi 2008); what they have below is summed in the same way, until nothing is left, or less
    than a sum by as many binary digits. ArithmeticError where groups have too many.

    Examples
    --------
    >>> sum(exact_parts(np.array([[1e16, 1.0, -1e16]]), np.array([0])))
    array([1.])
    """
    counts, parts = np.diff(starts, append=rest.shape[1]), list[Floats]()
    room = np.exp2(np.ceil(np.log2(len(rest) * counts + 2.0)))
    with np.errstate(over="ignore", invalid="ignore"):
        while (size := np.maximum.reduceat(np.abs(rest).max(axis=0), starts)).any():
            if len(parts) == PASSES:
                raise ArithmeticError
            sigma = np.repeat(room * np.exp2(np.frexp(size)[1]), counts)
            head = (sigma + rest) - sigma
            rest = rest - head
            parts.append(np.add.reduceat(head.sum(axis=0), starts))  # nothing is rounded
            left = room**2 * np.exp2(np.frexp(size)[1] - 52.0 + digits)
            if (left < np.abs(sum(parts))).all():
                break
    return parts


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
    return group_products(np.concatenate(left), np.concatenate(right), np.concatenate(group), count)


def group_products(a: Floats, b: Floats, of: NDArray[np.intp], count: int) -> tuple[Floats, Floats]:
    """Return center and radius of the sum of products by group, 0 and 0 where it is exactly 0."""
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


def length(v: Floats) -> float:
    """Return a float above the Euclidean length, for entries of any size."""
    return float(lengths_of(v, np.zeros(1, dtype=np.intp))[0]) if v.size else 0.0


def lengths_of(v: Floats, starts: NDArray[np.intp]) -> Floats:
    """Return floats above the Euclidean lengths of the parts that begin there."""
    largest = np.maximum.reduceat(np.abs(v), starts)
    sizes = np.diff(starts, append=v.size)
    known = (largest > 0.0) & np.isfinite(largest)
    units = 2.0 ** np.clip(np.ceil(np.log2(np.where(known, largest, 1.0))), -1000, 1000)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.add.reduceat(np.square(v / np.repeat(units, sizes)), starts)
        own = np.sqrt(squares) * (1.0 + gamma(sizes + 8.0)) + 1e-150
        return np.where(known, np.nextafter(own * units, np.inf), largest)


def unscaled(entries: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return floats of which these are the products with the root of 2, and which are sure to be it.

    Two neighbouring floats can have the same product.

    Examples
    --------
    >>> unscaled(np.array([1.25, 1.5]) * ROOT)[1]
    array([ True, False])
    """
    beside = [entries / ROOT] * 2
    for _ in range(ULPS):
        beside += [np.nextafter(beside[-2], -np.inf), np.nextafter(beside[-1], np.inf)]
    some = np.array(beside[1:])
    fits = some * ROOT == entries
    return np.take_along_axis(some, fits.argmax(axis=0)[None], axis=0)[0], fits.sum(axis=0) == 1


# Digits of the products of two matrices, in binary.
PRECISE = 110


class DoubleDouble:
    r"""Arrays of numbers :math:`h + l` with :math:`|l| \le 2^{-53} |h|`: about 32 digits, by the operations of floats.

    Sums and products are those of Dekker (1971); matrices are cut into slices whose products are exact
    in floats in whatever order they are added up (Ozaki, Ogita, Oishi, Rump 2012), so that what comes
    out does not depend on who multiplies them.

    Parameters
    ----------
    high, low : array
        Leading and trailing part.

    Examples
    --------
    >>> third = DoubleDouble(1.0) / DoubleDouble(3.0)
    >>> (third * DoubleDouble(3.0) - DoubleDouble(1.0)).high.item()
    0.0
    """

    __slots__ = ("high", "low")
    __array_ufunc__ = None

    def __init__(self, high: Any, low: Any = None) -> None:
        self.high: Floats = np.asarray(high, dtype=float)
        self.low: Floats = np.zeros_like(self.high) if low is None else np.asarray(low)

    @classmethod
    def joined(cls, parts: Sequence[DoubleDouble], axis: int = 0) -> DoubleDouble:
        """Return arrays one behind the other."""
        return cls(
            np.concatenate([p.high for p in parts], axis),
            np.concatenate([p.low for p in parts], axis),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.high.shape

    @property
    def T(self) -> DoubleDouble:
        """The last two axes exchanged."""
        return self.each(lambda part: np.swapaxes(part, -1, -2))

    def each(self, change: Callable[[Floats], Floats]) -> DoubleDouble:
        """Return both parts after a change of their places."""
        return DoubleDouble(change(self.high), change(self.low))

    def reshape(self, *shape: int) -> DoubleDouble:
        """Return the numbers in another shape."""
        return self.each(lambda part: part.reshape(shape))

    def __getitem__(self, at: Any) -> DoubleDouble:
        return DoubleDouble(self.high[at], self.low[at])

    def __setitem__(self, at: Any, value: DoubleDouble) -> None:
        self.high[at], self.low[at] = value.high, value.low

    def __neg__(self) -> DoubleDouble:
        return DoubleDouble(-self.high, -self.low)

    def __add__(self, other: DoubleDouble) -> DoubleDouble:
        high, error = _two_sum(self.high, other.high)
        low, least = _two_sum(self.low, other.low)
        high, error = _quick_sum(high, error + low)
        return DoubleDouble(*_quick_sum(high, error + least))

    def __sub__(self, other: DoubleDouble) -> DoubleDouble:
        return self + -other

    def __mul__(self, other: DoubleDouble | Floats | float) -> DoubleDouble:
        if not isinstance(other, DoubleDouble):
            other = DoubleDouble(other)
        p, error = halves(self.high, other.high)
        return DoubleDouble(*_quick_sum(p, error + (self.high * other.low + self.low * other.high)))

    def __truediv__(self, other: DoubleDouble) -> DoubleDouble:
        first = self.high / other.high
        rest = self - other * first
        second = rest.high / other.high
        third = (rest - other * second).high / other.high
        first, second = _quick_sum(first, second)
        return DoubleDouble(*_quick_sum(first, second + third))

    def root(self) -> DoubleDouble:
        """Return the square roots of positive numbers."""
        near = DoubleDouble(np.sqrt(self.high))
        return (near + self / near) * 0.5

    def sum(self, axis: int = 0) -> DoubleDouble:
        """Return sums along an axis."""
        rest = self.each(lambda part: np.moveaxis(part, axis, 0))
        while (count := len(rest.high)) > 1:
            half = count // 2
            rest = DoubleDouble.joined([rest[:half] + rest[half : 2 * half], rest[2 * half :]])
        return rest[0] if count else DoubleDouble(np.zeros(rest.shape[1:]))

    def __matmul__(self, other: DoubleDouble) -> DoubleDouble:
        if other.high.ndim == 1:
            return (self @ other.reshape(-1, 1)).each(lambda part: part[:, 0])
        inner = max(self.shape[1], 2)
        bits = (52 - (inner - 1).bit_length()) // 2 - 1
        left, right = self._slices(1, bits), other._slices(0, bits)
        total = DoubleDouble(np.zeros((self.shape[0], other.shape[1])))
        for level in reversed(range(PRECISE // bits + 2)):  # the small ones first
            for i in range(max(0, level + 1 - len(right)), min(level + 1, len(left))):
                total = total + DoubleDouble(left[i] @ right[level - i])
        return total

    def _slices(self, axis: int, bits: int) -> list[Floats]:
        """Return parts of so many binary digits, by lines along an axis, that add up to the numbers."""
        high, low, parts = self.high, self.low, list[Floats]()
        most = np.abs(high).max(axis=axis, keepdims=True, initial=0.0)
        sigma = np.ldexp(0.75, np.frexp(most)[1] + 54)
        while len(parts) <= PRECISE // bits + 1 and high.any():
            sigma = sigma * 0.5**bits
            parts.append((high + sigma) - sigma)
            high, low = _two_sum(high - parts[-1], low)
        return parts


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return s, e with s + e = a + b exactly (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _quick_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the same where b is not larger than a."""
    s = a + b
    return s, b - (s - a)
