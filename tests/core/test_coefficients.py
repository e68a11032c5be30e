"""Coefficients of quadratics are those of fractions, however many products they add up."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.core import coefficients
from optfair.core.coefficients import largest_exponent, quadratic_map
from optfair.core.quadratics import NotQuadratic, QuadraticMap

RNG = np.random.default_rng(0)
A, b, w = RNG.normal(size=(6, 3)), RNG.normal(size=6), RNG.uniform(1.0, 2.0, size=6)
FAR = A * 10.0 ** RNG.integers(-8, 9, size=A.shape)
turned = RNG.permutation(6)
z = cp.Variable(3, name="z")

# what all but cancels in floats
LOST: dict[str, Any] = {
    "squares": cp.sum_squares(A @ z - b) - cp.sum_squares((A @ z - b)[turned]) + 1e-9 * z[0] ** 2,
    "a form": cp.quad_form(z, cp.psd_wrap(np.eye(3) + 0.1)) * 0.3
    - 0.3 * (cp.sum_squares(z) + 0.1 * cp.square(cp.sum(z))),
    "far apart": cp.sum_squares(FAR @ z) - cp.sum_squares(FAR[turned] @ z) + 1e-9 * z[0] ** 2,
    "entries": cp.square(A @ z + 1e8) - cp.square(A @ z) - 2e8 * (A @ z),
    "products": (w @ (A @ z)) * (b @ (A @ z)) - ((w @ A) @ z) * ((b @ A) @ z),
    "minus": 0.0 - (-cp.square(0.1 * z[0] - 1.0)) - cp.square(1.0 - 0.1 * z[0]) - 1e-9 * z[1],
    "a variance": cp.var(A @ z) - cp.sum_squares(A @ z) / 6.0 + cp.square(cp.sum(A @ z) / 6.0),
    "thirds": cp.sum_squares(A @ z / 3.0) - cp.sum_squares(A[turned] @ z) / 9.0,
    "over a number": cp.quad_over_lin(A @ z, 0.7) - cp.sum_squares(A @ z) / 0.7,
    "many divisors": cp.sum_squares((A @ z) / w) - cp.sum_squares(cp.multiply(1.0 / w, A @ z)),
}


def read(e: Any) -> QuadraticMap:
    return quadratic_map(e, {z.id: 0}, 3)


@pytest.mark.parametrize("name", LOST)
def test_remainders_say_what_fractions_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for few in (0, 10**9):
        monkeypatch.setattr(coefficients, "FEW", few)
        monkeypatch.setattr(coefficients, "FRACTIONS", few)
        made.append(read(LOST[name]))
    one, other = made
    np.testing.assert_array_equal(one.pairs, other.pairs)
    np.testing.assert_array_equal(one.Q.toarray(), other.Q.toarray())
    np.testing.assert_array_equal(one.A.toarray(), other.A.toarray())
    np.testing.assert_array_equal(one.b, other.b)


def test_few_divisors_have_a_common_multiple_and_many_an_inverse_of_many_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coefficients, "FEW", 0)
    assert read(LOST["thirds"]).Q.nnz == 0
    monkeypatch.setattr(coefficients, "_COMMON", 10)
    assert read(LOST["thirds"]).Q.nnz == 0  # one by one
    monkeypatch.setattr(coefficients, "FRACTIONS", 0)
    # what is exactly 0 is not known to be
    with pytest.raises(NotQuadratic, match="all but cancel"):
        read(LOST["thirds"])
    assert read(LOST["many divisors"]).Q.nnz


def test_numbers_without_a_remainder_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coefficients, "FEW", 0)
    monkeypatch.setattr(coefficients, "FRACTIONS", 0)
    apart = cp.square(1e-300 * z[0] + z[1]) - cp.square(1e-300 * z[0]) - cp.square(z[1])
    with pytest.raises(NotQuadratic, match="all but cancel") as refused:
        read(apart)
    assert refused.value.remedy


def test_factors_of_a_product_count_together() -> None:
    """Each is a float, what they multiply to is none."""
    for tiny in ((1e-170 * z[0]) * (1e-170 * z[1]), 1e200 * z[0] * (1e200 * z[1] + 1.0)):
        with pytest.raises(NotQuadratic, match="for floats"):
            read(tiny)
    f = read((1e-170 * z[0]) * (1e-160 * (1e160 * z[1])))
    assert f.Q.toarray().tolist() == [[pytest.approx(1e-170)]]


def test_no_bound_is_proved_on_what_floats_lose_of_many_products() -> None:
    """128,000 products that cancel but for 1e-9: rounded, the form falls by as much as 1e-6."""
    n = 40
    M = np.random.default_rng(0).normal(size=(n, n))
    x = cp.Variable(n, name="x")
    rest = 1e-9 * cp.sum_squares(x) - 1e-9 * cp.sum(x)
    cost = cp.sum_squares(M @ x) - cp.sum_squares(M[::-1] @ x) + rest
    f = quadratic_map(cost, {x.id: 0}, n)
    assert f.Q.nnz == n and set(f.Q.data.tolist()) == {1e-9}
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(cost), [x <= 1e4, x >= -1e4]))
    truth = -n * Fraction(1e-9) / 4
    for tolerance in (1e-4, 1e-6):
        solution = problem.solve(tolerance=tolerance)
        assert str(solution.grade) == "proved"
        assert Fraction(solution.bound) <= truth
        assert solution.objective >= float(truth)


@pytest.mark.parametrize("numbers", [[1e-30, 2.0], [2.0**90, 1.0, 0.0], [-(2.0**-200), 2.0**100]])
def test_the_largest_exponent_is_that_of_the_smallest_number_as_well(numbers: list[float]) -> None:
    x = cp.Variable(len(numbers))
    most = max(abs(np.log2(abs(v))) for v in numbers if v)
    for e in (np.array(numbers) @ x, cp.square(cp.multiply(numbers, x) + 1), x - numbers):
        assert largest_exponent(e) == pytest.approx(most)
    assert largest_exponent(x) == largest_exponent(cp.Constant([0.0, np.inf]) + x[:2]) == 0.0
