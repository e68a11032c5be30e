"""Squares in constraints are handed over in units in which their rows keep their digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.core.coefficients import quadratic_map
from optfair.core.composition import rounding
from optfair.core.problem_class import parts_of
from optfair.core.quadratics import power_of_two, units_of_squares

x = cp.Variable(3, name="x")
P = np.diag([1.0, 2.0, 3.0]) + 0.5


def test_units_are_those_of_the_constants_over_the_factors() -> None:
    one, two, three = cp.sum_squares(x), cp.quad_form(x, P), cp.square(x[0])
    units = units_of_squares(1e12 - 2.0 * one - 3e6 >= 5.0 * two / 1e6 + three)
    assert units[id(one)] == power_of_two((1e12 / 2.0) ** 0.5)
    assert units[id(two)] == power_of_two((1e12 * 1e6 / 5.0) ** 0.5)
    assert units[id(three)] == power_of_two(1e6)
    assert units_of_squares(one <= cp.sum(x)) == {}
    assert units_of_squares(one <= cp.Parameter(value=1e9)) == {}
    assert units_of_squares(cp.exp(one) <= 1e9) == {}
    assert units_of_squares(one) == {}


ROWS: dict[str, Callable[[float], Any]] = {
    "squares": lambda u: cp.square(x[0]) + cp.sum_squares(x[1:]) <= 4 * u**2,
    "entries": lambda u: cp.square(x) <= 4 * u**2,
    "with a linear part": lambda u: 3 * cp.sum_squares(x) + x[0] * u / 3 <= 4 * u**2,
    "over a number": lambda u: cp.quad_over_lin(x, 2.5) <= 3 * u**2,
    "from a point": lambda u: cp.sum_squares(x - np.array([1.0, -2.0, 0.5]) * u) <= 4 * u**2,
    "a form": lambda u: cp.quad_form(x, P) <= 4 * u**2,
    "a singular form": lambda u: (
        cp.quad_form(x, cp.psd_wrap(np.ones((3, 3)))) + cp.sum_squares(x[:2]) <= 4 * u**2
    ),
    "columns": lambda u: cp.sum_squares(cp.vstack([x, x]), axis=1) <= 4 * u**2,
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_squares_are_proved_in_any_units(rows: Callable[[float], Any]) -> None:
    values = {}
    for unit in (1e-6, 1.0, 1e6):
        problem = of.from_cvxpy(cp.Problem(cp.Minimize(x @ [1.0, -2.0, 3.0]), [rows(unit)]))
        solution = problem.solve()
        assert solution.is_optimal() and str(solution.grade) == "proved"
        values[unit] = solution.objective / unit
    assert max(values.values()) - min(values.values()) <= 1e-6 * abs(values[1.0])


def test_products_of_vectors_and_of_many_dimensions_have_their_own_entries() -> None:
    rng = np.random.default_rng(0)
    v, X = cp.Variable(3, name="v"), cp.Variable((3, 2), name="X")
    Y = cp.Variable((2, 2, 2), name="Y")
    for expression in (v @ X, X.T @ v, cp.square(Y[:, 0, :]), cp.sum_squares(Y - 1.0)):
        offsets, n = {}, 0
        for u in expression.variables():
            offsets[u.id], n = n, n + u.size
            u.value = rng.standard_normal(u.shape)
        f = quadratic_map(expression, offsets, n)
        point = np.concatenate([np.ravel(u.value, order="F") for u in expression.variables()])
        i, j = f.pairs
        value = f.Q @ (point[i] * point[j]) + f.A @ point + f.b
        np.testing.assert_allclose(value, np.ravel(expression.value, order="F"), atol=1e-12)


def test_a_form_that_falls_needs_the_shift_of_its_negative() -> None:
    ones = np.ones((3, 3))
    up, down = (rounding(parts_of(cp.quad_form(x, cp.psd_wrap(M)) + x[0])) for M in (ones, -ones))
    assert 0.0 < up == down < 1e-12
    assert rounding(parts_of(cp.quad_form(x, np.diag([1.0, -1.0, 0.0])))) == 0.0


@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), sp.csc_array((3, 3))])
def test_a_form_of_zeros_is_convex_and_concave(matrix: Any) -> None:
    """A wrap says one of both, and CVXPY would not compile the other side."""
    x = cp.Variable(3, name="x")
    form, ball = cp.quad_form(x, matrix), cp.sum_squares(x) <= 4
    for goal, rows in (
        (cp.Maximize(form + cp.sum(x)), [ball]),
        (cp.Minimize(form - cp.sum(x)), [ball]),
        (cp.Maximize(cp.sum(x)), [ball, form >= -1, form <= 1]),
    ):
        p = of.from_cvxpy(cp.Problem(goal, rows))
        assert p.problem_class.convex
        s = p.solve()
        assert abs(s.objective) == pytest.approx(np.sqrt(12.0)) and s.grade.sound
