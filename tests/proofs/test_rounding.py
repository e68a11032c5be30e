"""Enclosures contain the exact number, computed in fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from optfair.proofs.rounding import (
    DENSE,
    DoubleDouble,
    Products,
    dot,
    entries_of,
    exact_dot,
    exact_products,
    exact_sums,
    length,
    product,
    quadratic_value,
    reached,
)

numbers = st.floats(-1e12, 1e12, allow_nan=False, allow_infinity=False, allow_subnormal=False)


def exact(a: np.ndarray, b: np.ndarray) -> Fraction:
    return sum(
        (Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)),
        Fraction(0),
    )


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20))
def test_dots_are_enclosed(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    truth = exact(a, b)
    for center, radius in (dot(a, b), exact_dot(a, b)):
        assert abs(truth - Fraction(center)) <= Fraction(radius)
    if truth == 0:
        assert exact_dot(a, b)[0] == 0.0


@given(st.lists(st.floats(1e-60, 1e60) | st.floats(-1e60, -1e-60), min_size=1, max_size=8))
def test_what_cancels_is_exactly_zero(entries: list[float]) -> None:
    a = np.array(entries)
    pair = np.concatenate([a, -a]), np.concatenate([np.ones(a.size) * 0.3, np.ones(a.size) * 0.3])
    assert exact_dot(*pair) == (0.0, 0.0)


@pytest.mark.parametrize("width", [5, 5_000])
def test_products_of_matrices_that_are_held_dense_and_sparse_are_enclosed(width: int) -> None:
    rng = np.random.default_rng(width)
    A = sp.random_array((3, width), density=0.3, rng=rng, format="csr")
    A.data *= 10.0 ** rng.integers(-9, 9, A.nnz)
    x = rng.normal(size=width) * 10.0 ** rng.integers(-9, 9, width)
    products = Products(A)
    assert isinstance(products._rows, np.ndarray) == (A.shape[0] * width <= DENSE)
    center, radius = products(x)
    for i, row in enumerate(A.toarray()):
        truth = exact(row, x)
        assert abs(truth - Fraction(center[i])) <= Fraction(radius[i])
        assert abs(Fraction(center[i]) - truth) <= abs(Fraction(1e-9)) * sum(
            abs(Fraction(a) * Fraction(b)) for a, b in zip(row.tolist(), x.tolist(), strict=True)
        )


@given(st.integers(0, 10_000))
def test_products_are_enclosed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = sp.random_array((6, 5), density=0.6, rng=rng, format="csr") * 10.0 ** rng.integers(-9, 9)
    x = rng.normal(size=5) * 10.0 ** rng.integers(-9, 9, 5)
    center, radius = product(A, x)
    dense = A.toarray()
    for i in range(6):
        assert abs(exact(dense[i], x) - Fraction(center[i])) <= Fraction(radius[i])
    z = rng.normal(size=6)
    center, radius = exact_products(sp.csc_array(A), z, np.arange(5))
    for j in range(5):
        assert abs(exact(dense[:, j], z) - Fraction(center[j])) <= Fraction(radius[j])


@given(st.integers(0, 10_000), st.booleans(), st.integers(0, 300))
def test_sums_of_many_products_are_enclosed_and_cancel(seed: int, opposite: bool, far: int) -> None:
    """Also where digits are far apart, or a product leaves the usual range."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(12, 4)) * 10.0 ** rng.integers(-far // 3, far // 3 + 1, (12, 4))
    z, q = rng.normal(size=12) * 10.0 ** rng.integers(-8, 9, 12), rng.normal(size=4)
    A[rng.random(A.shape) < 0.2] = 0.0
    A[:, 3] *= 1e-250 if far > 250 else 1.0
    if opposite:
        A, z, q = np.vstack([A, A]), np.concatenate([z, -z]), 0.0 * q
    more = ((sp.csc_array(q[None, :]), np.ones(1)),)
    center, radius = exact_products(sp.csc_array(A), z, np.arange(4), more)
    for j in range(4):
        truth = exact(A[:, j], z) + Fraction(float(q[j]))
        assert abs(truth - Fraction(center[j])) <= Fraction(radius[j])
        assert truth != 0 or j == 3 or center[j] == radius[j] == 0.0
        assert radius[j] <= 1e-12 * abs(center[j]) or j == 3


def test_products_read_by_rows_are_those_read_by_columns() -> None:
    rng = np.random.default_rng(2)
    A = sp.random_array((40, 9), density=0.4, rng=rng, format="csc")
    z = np.where(rng.random(40) < 0.2, rng.normal(size=40), 0.0)
    q = -(A.T @ z)
    for at in (np.arange(9), np.array([1, 2, 4, 6, 8]), np.array([7])):
        plain = exact_products(A, z, at, ((q, np.ones(1)),))
        by_rows = exact_products(
            A, z, at, ((sp.csc_array(q[None, :]), np.ones(1)),), sp.csr_array(A)
        )
        for one, other in zip(plain, by_rows, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=0.0)


def test_rows_and_columns_are_read_in_any_order() -> None:
    M = sp.random_array((7, 5), density=0.5, rng=np.random.default_rng(1), format="csr")
    for at in (np.array([3, 0, 3, 6]), np.arange(7), np.zeros(0, dtype=int)):
        data, inner, which = entries_of(M, at)
        built = np.zeros((at.size, 5))
        np.add.at(built, (which, inner), data)
        np.testing.assert_array_equal(built, M.toarray()[at])


def test_products_that_underflow_are_not_taken_for_zero() -> None:
    one = np.nextafter(1e-160, 1.0)
    a, b = np.array([1e-160, -1e-160, 1.0, -1.0]), np.array([one, 1e-160, 1.0, 1.0])
    center, radius = exact_dot(a, b)
    assert radius > 0.0 and abs(exact(a, b) - Fraction(center)) <= Fraction(radius)
    # factors of 0 do not spoil what is exact
    assert exact_dot(np.array([0.0, 1.0, -1.0]), np.array([3.0, 1.0, 1.0])) == (0.0, 0.0)
    assert exact_dot(np.array([3.0, 1.0, -1.0]), np.array([0.0, 1.0, 1.0])) == (0.0, 0.0)


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False),
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(0, 2),
        ),
        max_size=12,
    )
)
def test_exact_sums_are_those_of_fractions(terms: list[tuple[float, float, int]]) -> None:
    expected = [Fraction(0)] * 3
    for a, b, k in terms:
        expected[k] += Fraction(a) * Fraction(b)
    a, b, group = (np.array([t[k] for t in terms]) for k in range(3))
    assert exact_sums(a.astype(float), b.astype(float), group.astype(np.intp), 3) == expected


def test_a_sum_that_is_a_float_has_no_radius() -> None:
    A = sp.csc_array(np.array([[1.0, 0.1], [3.0, 0.2], [-0.5, 0.3]]))
    center, radius = exact_products(A, np.array([2.0, 1.0, 4.0]), np.arange(2))
    assert (center[0], radius[0]) == (3.0, 0.0)
    truth = 2 * Fraction(0.1) + Fraction(0.2) + 4 * Fraction(0.3)
    assert radius[1] > 0.0 and abs(Fraction(center[1]) - truth) <= Fraction(radius[1])


def test_what_a_step_reaches_is_never_rounded_down() -> None:
    rng = np.random.default_rng(4)
    sizes = rng.random((40, 8)) * 10.0 ** rng.integers(-160, 3, (40, 8))
    sizes[rng.random(sizes.shape) < 0.5] = 0.0
    for scale in (1.0, 1e-160, 1e-300):
        step = rng.random(8) * (rng.random(8) < 0.5) * scale
        found = reached(sp.csr_array(sizes), step)
        for row, most in zip(sizes.tolist(), found.tolist(), strict=True):
            exact = sum(Fraction(a) * Fraction(v) for a, v in zip(row, step.tolist(), strict=True))
            assert most > exact or most == exact == 0
            assert most <= exact * (1 + Fraction(1, 10**8)) + Fraction(1e-299)


@pytest.mark.parametrize("unit", [1.0, 1e-150, 1e120])
def test_values_of_quadratic_forms_are_enclosed_by_little(unit: float) -> None:
    rng = np.random.default_rng(1)
    for apart in range(20):  # some nearly cancel
        w, v = rng.normal(size=(2, 5))
        v -= (apart < 10) * (v @ w) / (w @ w) * w
        P = unit * np.outer(w, w)
        terms = [
            Fraction(entry) * Fraction(a) * Fraction(b)
            for row, a in zip(P.tolist(), v.tolist(), strict=True)
            for entry, b in zip(row, v.tolist(), strict=True)
        ]
        low, high = quadratic_value(P if apart % 2 else sp.csr_array(P), v)
        assert Fraction(low) <= sum(terms) <= Fraction(high)
        assert Fraction(high) - Fraction(low) <= Fraction(2) ** -50 * sum(map(abs, terms))


@pytest.mark.parametrize("unit", [1.0, 1e-300, 1e-160, 1e200, 5e-324])
def test_lengths_of_entries_of_any_size_are_rounded_up(unit: float) -> None:
    assert length(np.zeros(0)) == 0.0
    for own in ([3.0, 4.0], [1.0] * 9, [0.1, 0.2, -0.7], [1.0, 1e-9], [0.0, -0.3], [0.0, 0.0]):
        v = np.array(own) * unit
        squares = sum(Fraction(w) ** 2 for w in v.tolist())
        most = Fraction(length(v))
        assert most**2 > squares or most == squares == 0
        shorter = max(most - Fraction(5e-324), Fraction(0))
        assert shorter**2 <= squares * (1 + Fraction(1, 10**13))


def number(v: DoubleDouble) -> Fraction:
    return Fraction(v.high.item()) + Fraction(v.low.item())


moderate = st.floats(1e-40, 1e40) | st.floats(-1e40, -1e-40)


@given(moderate, st.floats(-1.0, 1.0), moderate, st.floats(-1.0, 1.0))
def test_numbers_of_twice_the_digits_are_computed_with(
    a: float, p: float, b: float, q: float
) -> None:
    x, y = (DoubleDouble(v) + DoubleDouble(v * share * 2.0**-55) for v, share in ((a, p), (b, q)))
    u, v = number(x), number(y)
    near = Fraction(2) ** -100
    assert abs(number(x + y) - (u + v)) <= near * (abs(u) + abs(v))
    assert abs(number(x - y) - (u - v)) <= near * (abs(u) + abs(v))
    assert abs(number(x * y) - u * v) <= near * abs(u * v)
    assert abs(number(x / y) - u / v) <= near * abs(u / v)
    assert abs(number((x * x).root()) - abs(u)) <= near * abs(u)


@pytest.mark.parametrize("inner", [1, 7, 300])
def test_products_of_matrices_have_twice_the_digits(inner: int) -> None:
    rng = np.random.default_rng(inner)
    A, B = (
        DoubleDouble(M, M * 2.0**-54 * rng.random(M.shape))
        for M in (rng.normal(size=(3, inner)), rng.normal(size=(inner, 2)))
    )
    C, v = A @ B, A @ B[:, 0]
    for i, j in np.ndindex(3, 2):
        truth = sum((number(A[i, k]) * number(B[k, j]) for k in range(inner)), Fraction(0))
        size = inner * Fraction(np.abs(A.high[i]).max()) * Fraction(np.abs(B.high[:, j]).max())
        assert abs(number(C[i, j]) - truth) <= Fraction(2) ** -98 * size
        assert j or number(v[i]) == number(C[i, 0])
    assert np.abs((A.sum(1) - A @ DoubleDouble(np.ones(inner))).high).max() < 1e-28 * inner
    nothing = DoubleDouble(np.zeros((2, 0))) @ DoubleDouble(np.zeros((0, 3)))
    assert nothing.shape == (2, 3) and not nothing.high.any()
    assert DoubleDouble(np.zeros((0, 2))).sum().shape == (2,)
