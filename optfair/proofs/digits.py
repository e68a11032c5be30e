"""Beyond floats: sparse linear equations in fractions, and small semidefinite programs in sixty digits."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from fractions import Fraction
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

from optfair.proofs.cones import Cone, beside_diagonals
from optfair.proofs.rounding import (
    ROOT,
    UNIT,
    Floats,
    coordinates,
    equilibrated,
    unscaled,
)

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Ints = NDArray[Any]
Decimals = NDArray[Any]  # of Decimal

# Binary digits that a step of refinement must gain, the most it tries, and most of an answer.
LEAST, GAIN, LONGEST = 4, 44, 400_000
# Equations whose columns are chosen densely, and entries of their matrix; how large the entry of a
# column is that no other has, of the largest of its equation.
EQUATIONS, ENTRIES, OWN = 3_000, 20_000_000, 0.1


def chosen_columns(M: Any, weight: Floats) -> tuple[Ints, Ints] | None:
    """Return equations and as many columns of M that have an invertible matrix, in floats.

    Parameters
    ----------
    M : sparse (k, p)
        Equations by row.
    weight : array (p,)
        Columns that are preferred have more of it; none of it leaves a column out.

    Returns
    -------
    (rows, columns) or None
        Fewer rows than equations where some depend on others; None when it is too large.
    """
    row, own = _own_columns(sp.csr_array(M), weight)
    left = np.setdiff1d(np.arange(M.shape[0]), row)
    others = np.setdiff1d(np.arange(M.shape[1]), own)
    if (k := left.size) > EQUATIONS or k * others.size > ENTRIES:
        return None
    dense = sp.csr_array(M)[left][:, others].toarray()
    size = np.abs(dense).max(axis=1, initial=0.0)
    dense = dense / np.where(size > 0.0, size, 1.0)[:, None] * weight[others]
    R, columns = scipy.linalg.qr(dense, mode="r", pivoting=True)
    pivots = np.abs(np.diag(R))
    rank = int((pivots > 1e-11 * pivots.max(initial=0.0)).sum())
    columns = np.sort(columns[:rank])
    if rank < k:
        _, first = scipy.linalg.qr(dense[:, columns].T, mode="r", pivoting=True)
        left = left[np.sort(first[:rank])]
    return np.sort(np.append(row, left)), np.sort(np.append(own, others[columns]))


def _own_columns(M: Any, weight: Floats) -> tuple[Ints, Ints]:
    """Return equations, and a column of each with most weight that others have not, or only those before."""
    row, column, entry = coordinates(M)
    size = np.zeros(M.shape[0])
    np.maximum.at(size, row, np.abs(entry))
    large = (np.abs(entry) > OWN * size[row]) & (weight[column] == weight.max(initial=0.0))
    rows, columns = list[Ints](), list[Ints]()
    live = np.arange(row.size)
    while live.size:
        alone = live[large[live] & (np.bincount(column[live])[column[live]] == 1)]
        if not alone.size:
            break
        alone = alone[np.lexsort((-np.abs(entry[alone]), row[alone]))]
        alone = alone[np.unique(row[alone], return_index=True)[1]]
        rows.append(row[alone])
        columns.append(column[alone])
        live = live[~np.isin(row[live], row[alone])]
    none = np.zeros(0, dtype=int)
    return np.concatenate([none, *rows]), np.concatenate([none, *columns])


def _whole(values: Any) -> tuple[list[int], int]:
    """Return floats or fractions as integers over one denominator."""
    exact = [Fraction(v) for v in values]
    common = math.lcm(*{v.denominator for v in exact}) if exact else 1
    return [v.numerator * (common // v.denominator) for v in exact], common


def solve_exactly(
    B: Any, side: list[Fraction], seconds: float = 60.0, enough: int = LONGEST
) -> tuple[list[int], int] | None:
    r"""Return the exact solution of :math:`B y = c` as integers over one denominator.

    Steps of refinement with a factorisation in floats give y to any number of binary digits;
    the fraction of least denominator near it is the solution once it satisfies the equations,
    which is tested in integers (Wan 2006; Gleixner, Steffy, Wolter 2016).

    Parameters
    ----------
    B : sparse (k, k)
        Floats, taken as exact.
    side : list of Fraction
        c.
    seconds : float
        Time it may take.
    enough : int
        Binary digits after which the answer is good enough, although it is not exact.

    Returns
    -------
    (numerators, denominator) or None
        None when B is singular in floats, or the time is over.

    References
    ----------
    Wan: An algorithm to solve integer linear systems exactly using numerical methods, Journal
    of Symbolic Computation 41, 2006. Gleixner, Steffy, Wolter: Iterative refinement for linear
    programming, INFORMS Journal on Computing 28, 2016.

    Examples
    --------
    >>> B = sp.csr_array([[3.0, 1.0], [0.0, 0.5]])
    >>> solve_exactly(B, [Fraction(1), Fraction(1, 3)])
    ([1, 6], 9)
    """
    B = sp.csr_array(B)
    k = B.shape[0]
    if k == 0:
        return [], 1
    end = time.perf_counter() + seconds
    rows: list[tuple[list[int], list[int]]] = []
    right: list[Fraction] = []
    for i in range(k):
        own = slice(B.indptr[i], B.indptr[i + 1])
        values, common = _whole(B.data[own].tolist())
        rows.append((B.indices[own].tolist(), values))
        right.append(side[i] * common)
    c, under = _whole(right)
    if not any(c):
        return [0] * k, 1
    # what the floats see: rows and columns near 1 by powers of two
    row, column = balanced(B)
    scaled = sp.csc_array(sp.diags_array(row) @ B @ sp.diags_array(column))
    try:
        factor = spla.splu(scaled)
    except RuntimeError:  # exactly singular
        return None
    # what an integer is in the rows as the floats see them: powers of two
    powers = np.array([float(Fraction(row[i]) / _common(B, i)) for i in range(k)])
    logs = np.frexp(powers)[1].tolist()
    left, y, tail, digits, short, look = list(c), [0] * k, [0] * k, 0, 0, 64

    def size(residual: list[int]) -> int:  # a binary logarithm
        return int(max(v.bit_length() + e for v, e in zip(residual, logs, strict=True) if v))

    # what rounding a step to integers leaves at any rate
    least = size([sum(map(abs, data)) for _, data in rows]) + 1
    gain = GAIN
    while digits < LONGEST and time.perf_counter() < end:
        large = size(left)
        shown = max(0, max(v.bit_length() for v in left) - 900)
        guess = np.array([float(v >> shown) for v in left]) * powers
        if not np.isfinite(guess).all():
            return None
        step = factor.solve(guess) * column
        if not np.isfinite(step).all():
            return None
        while gain >= LEAST:
            unit = _unit(step, gain)
            moved = [int(v) for v in np.round(np.ldexp(step, unit)).tolist()]
            up = unit - shown
            if up < 0:  # the first steps bring a large side down
                moved, up = [v << -up for v in moved], 0
            rest = [
                (v << up) - sum(map(mul, data, map(moved.__getitem__, at)))
                for v, (at, data) in zip(left, rows, strict=True)
            ]
            if not any(rest):
                break
            ahead = size(rest)
            if ahead <= max(least, large + up - LEAST):
                break
            gain -= 4
        else:
            return None
        # long numbers are moved together, not at every step
        tail = [(v << up) + d for v, d in zip(tail, moved, strict=True)]
        digits, short, left = digits + up, short + up, rest
        done = not any(left)
        if done or digits >= min(look, enough) or short > 1024:
            y = [(v << short) + d for v, d in zip(y, tail, strict=True)]
            tail, short = [0] * k, 0
        if done or (digits >= enough and not short):
            return y, under << digits
        if digits >= look:
            numerators = _nearby(y, digits, under, rows, c)
            if numerators is not None:
                return numerators
            look = digits + max(64, digits // 3)
    return None


def _common(B: Any, i: int) -> int:
    return _whole(B.data[B.indptr[i] : B.indptr[i + 1]].tolist())[1]


def balanced(B: Any, block: NDArray[np.intp] | None = None) -> tuple[Floats, Floats]:
    """Return powers of two for rows and columns that bring the largest entries of each near 1.

    Rows with the same ``block`` have one factor, which stands at the number of that row.
    """
    row, column, size = coordinates(abs(B))
    own = row if block is None else block[row]
    rows, columns = equilibrated(own, column, size, B.shape, passes=4)
    return np.exp2(np.round(np.log2(rows))), np.exp2(np.round(np.log2(columns)))


def _unit(step: Floats, gain: int) -> int:
    """Return the power of two with which the largest entry has so many digits."""
    return gain - int(np.floor(np.log2(float(np.abs(step).max()) or 1.0)))


def _nearby(
    y: list[int], digits: int, under: int, rows: Any, c: list[int]
) -> tuple[list[int], int] | None:
    """Return the solution whose denominators are small, when it satisfies the equations."""
    whole, half = 1 << digits, digits // 2 - 8
    D = 1
    for v in y:
        t = v * D
        near = (t + (whole >> 1)) >> digits
        if abs(t - (near << digits)) >> half == 0:
            continue
        D *= _denominator(t, whole, 1 << max(half, 1))
        if D.bit_length() > half:
            return None
    numerators = [(v * D + (whole >> 1)) >> digits for v in y]
    for side, (at, data) in zip(c, rows, strict=True):
        if sum(map(mul, data, map(numerators.__getitem__, at))) != side * D:
            return None
    return numerators, D * under


def _denominator(p: int, q: int, most: int) -> int:
    """Return the denominator of the last convergent of p / q that is at most ``most``."""
    before, now = 1, 0
    while q:
        a = p // q
        p, q = q, p - a * q
        before, now = now, a * now + before
        if now > most:
            return max(before, 1)
    return max(now, 1)


# The same direction in small whole numbers, as constraints with simple numbers have it.

# Entries are taken for a fraction so near, of at most this denominator.
CLOSE, SIMPLE = 1e-6, 200
# Vectors with more different entries, and common denominators above this, are not simple.
DIFFERENT, COMMON = 2_000, 2**40


def whole_multiple(v: Floats) -> Floats | None:
    """Return whole numbers that are nearly a multiple of a vector, None where no small ones are.

    Examples
    --------
    >>> whole_multiple(np.array([1.0, -0.38461538, 0.92307692, 1e-12]))
    array([13., -5., 12.,  0.])
    >>> whole_multiple(np.array([1.0, 2.0**0.5])) is None
    True
    """
    largest = float(np.abs(v).max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return None
    values, place = np.unique(v / largest, return_inverse=True)
    if values.size > DIFFERENT:
        return None
    below = simple_denominators(values)
    if not below.all():
        return None
    above = np.rint(values * below).astype(int)
    near = [Fraction(f) / n for f, n in zip(above.tolist(), below.tolist(), strict=True)]
    common = math.lcm(*(f.denominator for f in near))
    return None if common > COMMON else np.array([float(f * common) for f in near])[place]


def simple_denominators(values: Floats) -> Ints:
    """Return those of the nearest simple fractions, 0 where none is near.

    Examples
    --------
    >>> simple_denominators(np.array([0.5, -1.0, 1.0 / 3.0, 0.70710678])).tolist()
    [2, 1, 3, 0]
    """
    below, tried = np.zeros(values.size, dtype=np.intp), np.arange(1, SIMPLE + 1)
    for start in range(0, values.size, DIFFERENT):
        times = values[start : start + DIFFERENT, None] * tried
        off = np.abs(times - np.rint(times)) / tried
        best = off.argmin(axis=1)
        near = off[np.arange(best.size), best] <= CLOSE
        below[start : start + DIFFERENT] = np.where(near, tried[best], 0)
    return below


# Digits of every number, and a share of the largest that is far above what they lose.
DIGITS, LOST = 60, Decimal("1e-45")
# Columns and order of a block up to which programs are small.
COLUMNS, ORDER = 30, 20
# Steps towards multipliers that solve their equations and stay inside.
STEPS = 12


def many_digits() -> Any:
    """Return a context in which numbers have many digits; what leaves their range raises."""
    return localcontext(Context(DIGITS, traps=[InvalidOperation, DivisionByZero, Overflow]))


def decimals(values: Any) -> Decimals:
    """Return floats as they are."""
    values = np.asarray(values, dtype=float)
    return np.array([Decimal(v) for v in values.ravel().tolist()], object).reshape(values.shape)


def root(M: Decimals) -> Decimals:
    """Return the lower Cholesky factor; LinAlgError where a pivot is not positive."""
    L = M.copy()
    for k in range(len(L)):
        if not L[k, k] > 0:
            raise np.linalg.LinAlgError("a pivot is not positive")
        L[k, k] = L[k, k].sqrt()
        L[k + 1 :, k] = L[k + 1 :, k] / L[k, k]
        L[k + 1 :, k + 1 :] = L[k + 1 :, k + 1 :] - np.outer(L[k + 1 :, k], L[k + 1 :, k])
        L[k, k + 1 :] = Decimal(0)
    return L


def inverse_root(M: Decimals) -> Decimals:
    """Return the inverse of the lower Cholesky factor."""
    L = root(M)
    X = decimals(np.eye(len(L)))
    for i in range(len(L)):
        X[i] = (X[i] - L[i, :i].dot(X[:i])) / L[i, i] if i else X[i] / L[i, i]
    return X


@dataclass(frozen=True, eq=False)
class SmallProgram:
    """A program of points, half-lines and small matrices in many digits.

    Parameters
    ----------
    q : array (n,)
    A, b : array (m, n), (m,)
        With entries of matrices off the diagonal times the root of 2.
    cones : tuple of Cone
    within : array (m, n + 1)
        By how much A and b may differ from what was declared, where that is not sure.
    """

    q: Decimals
    A: Decimals
    b: Decimals
    cones: tuple[Cone, ...]
    within: Decimals

    @classmethod
    def of(cls, form: ConicForm) -> SmallProgram | None:
        """Return a linear program over small matrices; None where it is none."""
        kinds, order = {c.kind for c in form.cones}, max((c.order for c in form.cones), default=0)
        large = max(form.q.size, form.b.size / ORDER) > COLUMNS
        if large or order > ORDER or form.P.nnz or not "psd" in kinds <= {"psd", "nonneg"}:
            return None
        numbers = np.column_stack([form.A.toarray(), form.b])
        beside = beside_diagonals(form.cones, form.b.size)
        declared, known = unscaled(numbers)
        known[beside_diagonals(form.cones, form.b.size, mixed=True)] = False
        if not known[beside].all() and (plain := form.plain):
            stated = np.column_stack([plain.A.toarray(), plain.b])
            fits = np.abs(ROOT * stated - numbers) <= 4.0 * UNIT * np.abs(numbers)
            declared, known = np.where(fits, stated, declared), known | fits
        known &= beside[:, None]
        exact, off = decimals(numbers), np.where(known | ~beside[:, None], 0.0, 4.0 * UNIT)
        with many_digits():
            exact[known] = decimals(declared[known]) * Decimal(2).sqrt()
            within = abs(exact) * decimals(off)
        return cls(decimals(form.q), exact[:, :-1], exact[:, -1], form.cones, within)

    @cached_property
    def columns(self) -> list[Decimals]:
        """Matrices of the columns (n, k, k), block by block; a half-line is one of order 1."""
        return self.matrices(self.A)

    def matrices(self, v: Decimals) -> list[Decimals]:
        """Return the matrices of rows, or of the columns of many rows."""
        blocks = []
        for c in self.cones:
            own = v[c.start : c.stop]
            if c.kind != "psd":
                blocks += [own[[k]].reshape(*v.shape[1:], 1, 1) for k in range(len(own))]
                continue
            i, j = c.places
            full = np.full((c.order, c.order, *v.shape[1:]), Decimal(0), dtype=object)
            full[i, j] = full[j, i] = (own.T / _units(c)).T
            blocks.append(np.moveaxis(full, (0, 1), (-2, -1)))
        return blocks

    def rows(self, matrices: list[Decimals]) -> Decimals:
        """Return the rows of matrices."""
        left, parts = iter(matrices), []
        for c in self.cones:
            if c.kind != "psd":
                parts += [next(left).reshape(1) for _ in range(c.stop - c.start)]
                continue
            i, j = c.places
            parts.append(next(left)[i, j] * _units(c))
        return np.concatenate(parts)

    def across(self, Z: list[Decimals]) -> Decimals:
        """Return the products of the columns with matrices."""
        pairs = zip(self.columns, Z, strict=True)
        return np.asarray(np.sum([(F * z).sum(axis=(1, 2)) for F, z in pairs], axis=0))

    def combined(self, y: Decimals) -> list[Decimals]:
        """Return the sums of the matrices of the columns, so many of each."""
        return [np.tensordot(y, F, axes=1) for F in self.columns]

    def gram(self, left: list[Decimals], right: list[Decimals]) -> Decimals:
        """Return the inverse Cholesky factor of the products of L F_i R with F_j."""
        M = np.full((self.q.size, self.q.size), Decimal(0))
        for F, a, b in zip(self.columns, left, right, strict=True):
            own = np.array([a.dot(f).dot(b) for f in F], dtype=object)
            M = M + own.reshape(len(F), -1).dot(F.reshape(len(F), -1).T)
        return inverse_root((M + M.T) / 2)


def _units(c: Cone) -> Decimals:
    """Return what the entries of a matrix are multiplied by in its rows."""
    return np.array([Decimal(1) if own else Decimal(2).sqrt() for own in c.diagonal], dtype=object)


def bound_nearby(form: ConicForm, z: Floats) -> tuple[float, float] | None:
    r"""Return a bound that multipliers with many digits prove near given ones.

    The matrices that solve :math:`A^T z = -q` next to Z, measured by Z itself, are
    :math:`Z + \sum_j y_j Z F_j Z`. Where the multipliers have no room around them in floats, these
    are often inside all the same. A Cholesky factorisation that completes proves it, in numbers
    whose rounding is far below what is taken off the diagonal (Rump 2006).

    Parameters
    ----------
    form : ConicForm
        The program.
    z : array (m,)
        Multipliers, in the cones but for rounding.

    Returns
    -------
    (value, slope) or None
        The bound where every column is at most R in size is ``value - slope R``.
    """
    program = SmallProgram.of(form)
    if program is None or not np.isfinite(z).all():
        return None
    try:
        with many_digits():
            return _bound_nearby(form, program, decimals(z))
    except (np.linalg.LinAlgError, ArithmeticError):
        return None


def _bound_nearby(form: ConicForm, program: SmallProgram, z: Decimals) -> tuple[float, float]:
    Z = [_raised(own) for own in program.matrices(z)]
    for _ in range(STEPS):
        root = program.gram(Z, Z)
        y = root.T.dot(root.dot(-program.q - program.across(Z)))
        moves = [own.dot(F).dot(own) for own, F in zip(Z, program.combined(y), strict=True)]
        length = Decimal(1)
        while not all(_inside(a + length * d) for a, d in zip(Z, moves, strict=True)):
            length /= 2
        Z = [a + length * (d + d.T) / 2 for a, d in zip(Z, moves, strict=True)]
        if length == 1:
            break
    z = program.rows(Z)
    for own in program.matrices(z):
        inverse_root(own - LOST * np.trace(own) * decimals(np.eye(len(own))))
    size = abs(program.A).T.dot(abs(z)) + abs(program.q)
    apart = program.within.T.dot(abs(z))
    slope = (abs(program.q + program.A.T.dot(z)) + LOST * size + apart[:-1]).sum()
    value = Decimal(form.offset) - program.b.dot(z) - apart[-1]
    value -= LOST * (abs(Decimal(form.offset)) + abs(program.b).dot(abs(z)))
    return math.nextafter(float(value), -math.inf), math.nextafter(float(slope), math.inf)


def _inside(M: Decimals) -> bool:
    try:
        root(M)
    except np.linalg.LinAlgError:
        return False
    return True


def _raised(M: Decimals) -> Decimals:
    """Return a matrix with as little on the diagonal as makes it one inside the cone."""
    unit: Decimals = np.trace(M) * decimals(np.eye(len(M)))
    shares = (Decimal(0), *(Decimal(10) ** k for k in range(-20, -5)))
    inner = (raised for share in shares if _inside(raised := M + share * unit))
    outcome: Decimals | None = next(inner, None)
    if outcome is None:
        raise np.linalg.LinAlgError("a matrix is not near the cone")
    return outcome
