"""Polynomials in fractions: signs on intervals, inertia, and roots of matrices that are below them."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optfair.convexity.polynomials import derivative, nonnegative_on, plus, positive_inside, times
from optfair.convexity.quadratics import inertia, not_above

ONE = Fraction(1)
ROOTS = st.fractions(-3, 3, max_denominator=4)
ENDS = st.integers(-12, 12).map(lambda k: k / 4)


def value(p: list[Fraction], x: Fraction) -> Fraction:
    return sum((c * x**k for k, c in enumerate(p)), Fraction(0))


@given(
    st.lists(st.tuples(ROOTS, st.integers(1, 3)), max_size=3),
    st.lists(st.tuples(ROOTS, st.sampled_from([Fraction(1, 64), ONE])), max_size=1),
    st.sampled_from([-ONE, ONE, Fraction(3, 7)]),
    st.one_of(ENDS, st.just(-np.inf)),
    st.one_of(ENDS, st.just(np.inf)),
)
def test_a_polynomial_is_nonnegative_between_its_ends_where_its_roots_say_so(
    roots: list[tuple[Fraction, int]],
    pairs: list[tuple[Fraction, Fraction]],
    lead: Fraction,
    low: float,
    high: float,
) -> None:
    p = [lead]
    for root, power in roots:
        p = times(p, *[[-root, ONE]] * power)
    for middle, apart in pairs:  # two roots that are not real
        p = times(p, [middle * middle + apart, -2 * middle, ONE])
    low, high = min(low, high), max(low, high)
    a = Fraction(-100) if low == -np.inf else Fraction(low)
    b = Fraction(100) if high == np.inf else Fraction(high)
    cuts = sorted({a, b, *(r for r, _ in roots if a <= r <= b)})
    between = [(x + y) / 2 for x, y in pairwise(cuts)]
    assert nonnegative_on(p, low, high) == all(value(p, x) >= 0 for x in [*cuts, *between])
    if low < high:
        inner = [x for x in cuts if a < x < b] + between
        assert positive_inside(p, low, high) == all(value(p, x) > 0 for x in inner)


def test_a_dip_between_two_ends_is_seen() -> None:
    dip = [Fraction(-1, 4), Fraction(0), ONE]
    assert not nonnegative_on(dip, -1.0, 1.0) and nonnegative_on(dip, 0.5, 1.0)
    assert not nonnegative_on(dip, -1.0, 0.0) and not nonnegative_on([-ONE], 0.0, 1.0)
    assert nonnegative_on([], -np.inf, np.inf) and nonnegative_on(dip, 0.5, 0.5)
    assert not nonnegative_on(dip, 0.25, 0.25)


@given(st.integers(0, 10_000))
def test_the_inertia_is_that_of_the_signs_of_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    signs = rng.integers(-1, 2, n)
    T = np.tril(rng.integers(-2, 3, (n, n)), -1) + np.eye(n, dtype=int)
    T = T[rng.permutation(n)]
    M = (T * signs) @ T.T
    counted = tuple(int((signs == s).sum()) for s in (1, -1, 0))
    assert inertia([[Fraction(int(v)) for v in row] for row in M]) == counted
    assert inertia([[Fraction(0), ONE, ONE], [ONE, Fraction(0), ONE], [ONE, ONE, Fraction(0)]]) == (
        1,
        2,
        0,
    )


@pytest.mark.parametrize("near", [1.0 - 1e-9, 1.0, 1.0 + 1e-16, 1.0 + 1e-3])
def test_a_root_is_below_its_matrix_only_where_that_is_so(near: float) -> None:
    M = [[Fraction(2), ONE], [ONE, Fraction(1, 3)]]
    M[1][1] = Fraction(2, 3)
    F = near * np.linalg.cholesky(np.array(M, dtype=float)).T
    root, proved = not_above(M, F)
    exact = [[Fraction(v) for v in column] for column in root.T.tolist()]
    left = [[M[i][j] - sum(map(mul, exact[i], exact[j])) for j in (0, 1)] for i in (0, 1)]
    below = left[0][0] >= 0 and left[1][1] >= 0 and left[0][0] * left[1][1] >= left[0][1] ** 2
    assert proved == below == (near < 1.0 + 1e-4)


def test_sums_products_and_slopes() -> None:
    p, q = [ONE, Fraction(2)], [Fraction(3), -Fraction(2)]
    assert plus(p, q) == [Fraction(4)] and derivative(times(p, p)) == [Fraction(4), Fraction(8)]
    assert times(p, q) == [Fraction(3), Fraction(4), -Fraction(4)] and derivative([ONE]) == []
