"""Rows of squares below products as second-order cones, against points and exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.convexity.algebra import Algebra
from optfair.convexity.cone_rows import ConeRows, _root, cone_rows
from optfair.convexity.prove import domain_of
from optfair.convexity.reading import leaf_of, read_constraint
from optfair.convexity.writing import Atoms

N = 5


def variables() -> tuple[Any, ...]:
    vectors = [cp.Variable(N, name=name) for name in "xyz"]
    return (*vectors, cp.Variable(name="t"), cp.Variable(name="u"))


def cones(constraint: Any, *known: Any, variables: Any) -> ConeRows | None:
    domain = domain_of({f"k{i}": c for i, c in enumerate(known)}, convex=True)
    a = Algebra(domain)
    node = read_constraint("row", constraint, domain)[-1].node
    return cone_rows(node, a, Atoms({leaf_of(v): cp.vec(v, order="F") for v in variables}, a))


P = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.0], [0.1, 0.0, 3.0]])
FORMS: dict[str, Callable[..., tuple[Any, list[Any]]]] = {
    "hyperbola": lambda x, y, z, t, u: (cp.multiply(x, y) >= 1, [x >= 0, y >= 0]),
    "one sign": lambda x, y, z, t, u: (cp.multiply(0.7 * x + 1, y) >= 3, [x >= -1]),
    "both negative": lambda x, y, z, t, u: (cp.multiply(x, y) >= 0.3, [x <= 0]),
    "squares": lambda x, y, z, t, u: (
        3 * z**2 + (y - 1) ** 2 <= 0.7 * cp.multiply(x, y),
        [x >= 0, y >= 0],
    ),
    "ball": lambda x, y, z, t, u: (cp.sum_squares(z) + 1 <= t**2, [t >= 0]),
    "ball below": lambda x, y, z, t, u: (cp.sum_squares(z - 1) <= 3 * t**2, [t <= 0]),
    "rotated": lambda x, y, z, t, u: (cp.sum_squares(z[:2]) <= 3 * t * u, [t >= 0, u >= 0]),
    "form": lambda x, y, z, t, u: (cp.quad_form(z[:3], P) + 1 <= 5 * t * u, [t >= 0]),
    "form of one": lambda x, y, z, t, u: (
        cp.quad_form(z[:3] - 1, P) + y[0] ** 2 + 0.5 * z[0] + 1 <= t**2,
        [t >= 0],
    ),
    "form of low rank": lambda x, y, z, t, u: (
        cp.quad_form(z[:3], np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])) <= 5 * t * u,
        [t >= 0, u >= 0],
    ),
    "one right side": lambda x, y, z, t, u: (x**2 + 1 <= t * u, [t >= 0, u >= 0]),
}


@pytest.mark.parametrize("name", FORMS)
def test_cones_hold_where_the_rows_do(name: str) -> None:
    own = variables()
    row, known = FORMS[name](*own)
    made = cones(row, *known, variables=own)
    assert made is not None and made.written.is_convex()
    rng, held, broken = np.random.default_rng(0), 0, 0
    for _ in range(400):
        for v in own:
            values = np.round(rng.normal(scale=2.0, size=v.shape), 3)
            v.value = [np.abs(values), -np.abs(values), values][rng.integers(3)]
        if any(np.max(c.violation()) > 0.0 for c in known):
            continue
        gap = np.ravel(row.args[0].value - row.args[1].value)  # at most 0
        other = np.ravel(made.written.value)
        size = 1.0 + np.abs(gap)
        assert (other[gap < -1e-9 * size] <= 1e-9).all()
        assert (other[gap > 1e-9 * size] > -1e-9).all()
        held, broken = held + (gap < 0.0).sum(), broken + (gap > 0.0).sum()
    assert held > 3 and broken > 3


REFUSED: dict[str, Callable[..., tuple[Any, list[Any]]]] = {
    "no sign": lambda x, y, z, t, u: (cp.multiply(x, y) >= 1, []),
    # at x = 0 a y below 0 obeys
    "one sign": lambda x, y, z, t, u: (z**2 <= cp.multiply(x, y), [x >= 0]),
    # so does any z with z[0] = -z[1]
    "one sign and a form of low rank": lambda x, y, z, t, u: (
        cp.quad_form(z[:2], np.ones((2, 2))) <= t * u,
        [t >= 0],
    ),
    "signs that differ": lambda x, y, z, t, u: (cp.multiply(x, y) >= 1, [x >= 0, y <= 0]),
    "a product below": lambda x, y, z, t, u: (cp.multiply(x, y) <= 1, [x >= 0, y >= 0]),
    "two products": lambda x, y, z, t, u: (
        cp.multiply(x, y) + cp.multiply(x, z) >= 1,
        [x >= 0, y >= 0, z >= 0],
    ),
    "a number on the right": lambda x, y, z, t, u: (
        z**2 <= cp.multiply(x, y) + 1,
        [x >= 0, y >= 0],
    ),
    "an indefinite form": lambda x, y, z, t, u: (
        z[0] * z[1] + cp.sum_squares(z) / 4 <= t**2,
        [t >= 0],
    ),
    "a linear term": lambda x, y, z, t, u: (z**2 + z <= cp.multiply(x, y), [x >= 0, y >= 0]),
    "the ball outside": lambda x, y, z, t, u: (cp.sum_squares(z) >= t**2, [t >= 0]),
    "a form with a product in it": lambda x, y, z, t, u: (
        cp.quad_form(z[:3], P) <= t * z[0],
        [t >= 0, z >= 0],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_are_no_cones_are_left(name: str) -> None:
    own = variables()
    row, known = REFUSED[name](*own)
    assert cones(row, *known, variables=own) is None


@pytest.mark.parametrize("seed", range(4))
def test_roots_are_below_in_exact_arithmetic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    c = rng.exponential(size=30) * 10.0 ** rng.integers(-290, 290, 30)
    c[:5] = [0.0, 1.0, 4.0, 0.25, 9.0]
    roots = _root(c, 2.0)
    for value, r in zip(c.tolist(), roots.tolist(), strict=True):
        exact = 4 * Fraction(value)
        assert exact * (1 - Fraction(1, 2**48)) <= Fraction(r) ** 2 <= exact
    assert roots[:5].tolist() == [0.0, 2.0, 4.0, 1.0, 6.0]


@pytest.mark.parametrize("right", ["square", "product"])
def test_prices_of_rows_are_those_of_the_declared_ones(right: str) -> None:
    z, t, u = cp.Variable(3, name="z"), cp.Variable(name="t"), cp.Variable(name="u")
    product = 3 * t**2 if right == "square" else 3 * t * u
    rows = [cp.sum_squares(z - 1) + 2 <= product, t >= 0, u >= 0, cp.sum(z) == 6]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(t + u), rows)).solve(tolerance=1e-9)
    # least squares 3 + 2 = 5 = r: t = sqrt(r/3), or t + u = 2 sqrt(r/3)
    value = np.sqrt(5 / 3) * (1 if right == "square" else 2)
    assert s.objective == pytest.approx(value, rel=1e-7)
    assert s.multipliers["c0"] == pytest.approx(value / 10, rel=1e-4)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("signs", [1, 2])
def test_hyperbolas_are_proved_at_any_size_and_have_prices(signs: int, unit: float) -> None:
    n = 100
    rng = np.random.default_rng(0)
    c, d = rng.uniform(1.0, 2.0, (2, n))
    x, y = cp.Variable(n, name="x"), cp.Variable(n, name="y")
    rows = {"area": cp.multiply(x, y) >= unit**2, "x": x >= 0}
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(c @ x + d @ y), [*rows.values(), *[y >= 0] * (signs - 1)])
    )
    s = p.solve()
    assert s.grade.word == "proved" and s.gap <= 1e-7
    assert s.objective == pytest.approx(2 * unit * np.sqrt(c * d).sum(), rel=1e-6)
    # least cost 2 sqrt(c d r) of a row x y >= r
    np.testing.assert_allclose(s.multipliers["c0"], np.sqrt(c * d) / unit, rtol=1e-3)
    verdict = s.certificate.verify()
    assert verdict, verdict.reasons


def test_a_form_of_many_variables_below_a_square_is_proved() -> None:
    n = 60
    rng = np.random.default_rng(1)
    B = rng.normal(size=(n, n)) / np.sqrt(n)
    Q = B.T @ B + 0.1 * np.eye(n)
    x, t = cp.Variable(n, name="x"), cp.Variable(name="t")
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(t), [cp.quad_form(x, Q) <= t**2, t >= 0, cp.sum(x) == 1])
    )
    s = p.solve()
    assert s.grade.word == "proved"
    assert s.objective == pytest.approx(1 / np.sqrt(np.linalg.inv(Q).sum()), rel=1e-6)


def test_what_has_no_point_is_proved() -> None:
    x, y = cp.Variable(80, name="x"), cp.Variable(80, name="y")
    rows = [cp.multiply(x, y) >= 1, x >= 0, x <= 0.5, y <= 1.9]
    with pytest.raises(of.Infeasible) as caught:
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows)).solve()
    assert caught.value.certificate is not None and caught.value.certificate.verify()
