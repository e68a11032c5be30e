"""Exact solutions of sparse linear equations whose numbers are floats."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[Any]

# Binary digits that a step of refinement must gain, the most it tries, and most of an answer.
LEAST, GAIN, DIGITS = 4, 44, 400_000
# Equations whose columns are chosen densely, and entries of their matrix.
EQUATIONS, ENTRIES = 3_000, 20_000_000


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
    k, p = M.shape
    if k > EQUATIONS or k * p > ENTRIES:
        return None
    dense = sp.csr_array(M).toarray()
    size = np.abs(dense).max(axis=1, initial=0.0)
    dense = dense / np.where(size > 0.0, size, 1.0)[:, None] * weight
    R, columns = scipy.linalg.qr(dense, mode="r", pivoting=True)
    own = np.abs(np.diag(R))
    rank = int((own > 1e-11 * own.max(initial=0.0)).sum())
    columns = np.sort(columns[:rank])
    if rank == k:
        return np.arange(k), columns
    _, rows = scipy.linalg.qr(dense[:, columns].T, mode="r", pivoting=True)
    return np.sort(rows[:rank]), columns


def _whole(values: Any) -> tuple[list[int], int]:
    """Return floats or fractions as integers over one denominator."""
    exact = [Fraction(v) for v in values]
    common = math.lcm(*{v.denominator for v in exact}) if exact else 1
    return [v.numerator * (common // v.denominator) for v in exact], common


def solve_exactly(
    B: Any, side: list[Fraction], seconds: float = 60.0, enough: int = DIGITS
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
    while digits < DIGITS and time.perf_counter() < end:
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


def balanced(B: Any) -> tuple[Floats, Floats]:
    """Return powers of two for rows and columns that bring the largest entries of each near 1."""
    row, column = np.ones(B.shape[0]), np.ones(B.shape[1])
    for _ in range(4):
        across = abs(sp.csr_array(sp.diags_array(row) @ B @ sp.diags_array(column)))
        up = np.asarray(across.max(axis=1).toarray()).ravel()
        row /= np.sqrt(np.where(up > 0.0, up, 1.0))
        down = np.asarray(across.max(axis=0).toarray()).ravel()
        column /= np.sqrt(np.where(down > 0.0, down, 1.0))
    return np.exp2(np.round(np.log2(row))), np.exp2(np.round(np.log2(column)))


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
    near = [Fraction(value).limit_denominator(SIMPLE) for value in values.tolist()]
    if max(abs(float(f) - value) for f, value in zip(near, values.tolist(), strict=True)) > CLOSE:
        return None
    common = math.lcm(*(f.denominator for f in near))
    return None if common > COMMON else np.array([float(f * common) for f in near])[place]
