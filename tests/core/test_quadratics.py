"""Squares in constraints are handed over in units in which their rows keep their digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
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
