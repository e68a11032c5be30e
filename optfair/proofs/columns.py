"""Bounds on the columns of a cone program that every feasible point obeys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.rounding import UNIT, gamma

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]

__all__ = ["Rows", "declared_bounds", "linear_rows", "propagated"]

# A bound of this size says nothing.
NONE = 1e15
# Passes over the rows, and the least relative gain that is worth another one.
ROUNDS, GAIN = 30, 1e-3


class Rows:
    """Linear rows ``low <= A x <= high`` that follow from a cone program.

    Parameters
    ----------
    A : sparse csr (m, n)
        Exact floats.
    low, high : array (m,)
        Infinite where there is none.
    """

    def __init__(self, A: Any, low: Floats, high: Floats) -> None:
        self.A, self.low, self.high = sp.csr_array(A), low, high


def linear_rows(form: ConicForm) -> Rows:
    """Return the rows of the zero and nonnegative cones, and the heads of the others.

    The first entry of a second-order cone, the diagonal of a positive semidefinite block, and
    the last two of an exponential cone are nonnegative.
    """
    m = form.b.size
    low, high = np.full(m, -np.inf), np.full(m, np.inf)
    for c in form.cones:
        at = slice(c.start, c.stop)
        if c.kind in ("zero", "nonneg"):
            high[at] = form.b[at]
            if c.kind == "zero":
                low[at] = form.b[at]
            continue
        where = np.arange(c.start, c.stop)
        if c.kind == "soc":
            where = where[:1]
        elif c.kind == "psd":
            where = where[c.diagonal]
        elif c.kind == "exp":
            where = where.reshape(-1, 3)[:, 1:].ravel()
        else:
            where = where[:2]
        high[where] = form.b[where]
    return Rows(form.A, low, high)


def declared_bounds(rows: Rows) -> tuple[Floats, Floats]:
    """Return the bounds that rows of one entry state, rounded outward."""
    n = rows.A.shape[1]
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    count = np.diff(rows.A.indptr)
    single = np.flatnonzero(count == 1)
    at = rows.A.indptr[single]
    column, entry = rows.A.indices[at], rows.A.data[at]
    keep = entry != 0.0
    _tighten(
        lower, upper, column[keep], entry[keep], rows.low[single][keep], rows.high[single][keep]
    )
    return lower, upper


def _tighten(
    lower: Floats, upper: Floats, column: Any, entry: Floats, low: Floats, high: Floats
) -> None:
    """Apply ``low <= entry x[column] <= high`` to the bounds, rounded outward."""
    positive = entry > 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        above = np.where(positive, high, low) / entry
        below = np.where(positive, low, high) / entry
    exact = np.abs(entry) == 1.0
    above = np.where(exact, above, np.nextafter(above, np.inf))
    below = np.where(exact, below, np.nextafter(below, -np.inf))
    np.minimum.at(upper, column, np.where(np.isnan(above), np.inf, above))
    np.maximum.at(lower, column, np.where(np.isnan(below), -np.inf, below))


def propagated(
    rows: Rows, lower: Floats, upper: Floats, wanted: Any, rounds: int = ROUNDS
) -> tuple[Floats, Floats]:
    r"""Return bounds that rows imply, by the activities of their other columns.

    .. math::
        a_j x_j \le u - \min_{x \in [l, u]} \sum_{k \ne j} a_k x_k

    Every step is rounded outward. It ends when every wanted column has its bound.

    Parameters
    ----------
    rows : Rows
        What holds.
    lower, upper : array (n,)
        Bounds known so far; they are not changed.
    wanted : callable
        Bounds -> whether they suffice.
    rounds : int
        Most passes.
    """
    lower, upper = lower.copy(), upper.copy()
    A = rows.A
    if not A.nnz:
        return lower, upper
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    column, entry = A.indices, A.data
    used = entry != 0.0
    row, column, entry = row[used], column[used], entry[used]
    count = np.bincount(row, minlength=A.shape[0]).astype(float)
    positive = entry > 0.0
    for _ in range(rounds):
        if wanted(lower, upper):
            break
        before = lower.copy(), upper.copy()
        for sign in (1.0, -1.0):
            side = rows.high if sign > 0 else -rows.low
            live = np.isfinite(side)[row]
            if not live.any():
                continue
            r, c, a = row[live], column[live], sign * entry[live]
            up = positive[live] if sign > 0 else ~positive[live]
            with np.errstate(invalid="ignore", over="ignore"):
                least = a * np.where(up, lower[c], upper[c])
            free = ~np.isfinite(least)
            part = np.where(free, 0.0, least)
            m = side.size
            total = np.bincount(r, part, m)
            size = np.bincount(r, np.abs(part), m) + np.where(np.isfinite(side), np.abs(side), 0.0)
            open_ones = np.bincount(r, free, m)
            # the activity of the others: nothing open but the column itself
            others_open = open_ones[r] - free
            ok = others_open == 0
            slack = (side[r] - (total[r] - part))[ok]
            slack += (gamma(2.0 * count[r][ok] + 8.0) * size[r][ok]) * (1.0 + 8.0 * UNIT) + 1e-300
            aj, cj = a[ok], c[ok]
            _tighten(lower, upper, cj, aj, np.full(aj.size, -np.inf), slack)
            upper[upper >= NONE], lower[lower <= -NONE] = np.inf, -np.inf
        if not _gained(before, (lower, upper)):
            break
    return lower, upper


def _gained(before: tuple[Floats, Floats], now: tuple[Floats, Floats]) -> bool:
    """Whether a pass gave a new bound, or moved one by a share worth another pass."""
    for old, new in zip(before, now, strict=True):
        if (np.isfinite(new) & ~np.isfinite(old)).any():
            return True
        both = np.isfinite(new) & np.isfinite(old)
        if (np.abs(new[both] - old[both]) > GAIN * (1.0 + np.abs(old[both]))).any():
            return True
    return False
