"""Bounds on columns, held against points that satisfy the rows in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from optfair.proofs.columns import Rows, mutual_bounds, propagated

LARGEST = float(np.finfo(float).max)


def above(value: Fraction) -> float:
    """Return a float that is not below a fraction."""
    if abs(value) > Fraction(LARGEST):
        return np.inf if value > 0 else -LARGEST
    near = float(value)
    return near if Fraction(near) >= value else float(np.nextafter(near, np.inf))


def numbers(rng: Any, count: int, digits: float) -> np.ndarray:
    """Return whole numbers, and others of so many digits before the point or after it."""
    wide = rng.normal(size=count) * 10.0 ** np.minimum(rng.uniform(-digits, digits, count), 306.0)
    return np.where(rng.random(count) < 0.3, rng.integers(-3, 4, count), wide)


def bounds_of(rows: Rows, lower: np.ndarray, upper: np.ndarray) -> Any:
    """Yield what rows imply, of what they bound by each other and of what is known."""
    mutual = mutual_bounds(rows, lower, upper)
    yield mutual
    for known in (mutual, (lower, upper)):
        yield propagated(rows, *known, lambda *_: False)


@given(st.integers(0, 1_000_000), st.sampled_from([0, 2, 16, 150, 307, 323]))
def test_no_point_that_satisfies_the_rows_is_cut_off(seed: int, digits: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = (int(v) for v in rng.integers(1, 7, 2))
    x, entries, columns, high, low = numbers(rng, n, digits), [], [], [], []
    for _ in range(m):
        at = rng.integers(0, n, rng.integers(0, n + 2))  # some twice
        own = numbers(rng, at.size, digits)
        value = sum(
            (Fraction(a) * Fraction(v) for a, v in zip(own, x[at], strict=True)), Fraction()
        )
        spare = abs(Fraction(numbers(rng, 1, digits)[0])) * int(rng.integers(0, 2))
        high.append(above(value + spare) if rng.random() < 0.8 else np.inf)
        low.append(-above(spare - value) if rng.random() < 0.5 else -np.inf)
        columns.append(at)
        entries.append(own)
    starts = np.cumsum([0, *(at.size for at in columns)])
    A = sp.csr_array((np.concatenate(entries), np.concatenate(columns), starts), shape=(m, n))
    sides = np.array(low), np.array(high)
    rows = Rows(A, *sides, np.zeros(m), np.zeros((3, 0), dtype=int), np.zeros((2, 0)))
    lower, upper = (np.where(rng.random(n) < 0.4, x, s * np.inf) for s in (-1.0, 1.0))
    for least, most in bounds_of(rows, lower, upper):
        assert (least <= x).all() and (x <= most).all()


@pytest.mark.parametrize("row", [[1e-8, -1.0], [1e-310, -1.0], [1.0, 1e308]])
def test_bounds_beyond_the_range_of_floats_are_none(row: list[float]) -> None:
    # twice a bound, a quotient, or a side with what is taken off it
    A, high = sp.csr_array([row]), np.array([1e300 if row[1] < 0.0 else 1.7e308])
    rows = Rows(A, -np.inf * high, high, high, np.zeros((3, 0), dtype=int), np.zeros((2, 0)))
    for _, upper in bounds_of(rows, np.array([-np.inf, -1.0]), np.array([np.inf, 1.0])):
        assert np.isposinf(upper[0])
