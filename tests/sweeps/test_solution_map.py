"""Derivatives of optima: against solving again, and refused where there are none."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.sweeps import derivatives

RNG = np.random.default_rng(7)


def quadratic() -> Any:
    """Return a program with parameters in its costs, sides, matrix and curvature."""
    x = cp.Variable(4, name="x")
    half = RNG.random((4, 4))
    c = cp.Parameter(4, name="c", value=RNG.standard_normal(4))
    weight = cp.Parameter(name="weight", nonneg=True, value=1.5)
    A = cp.Parameter((2, 4), name="A", value=RNG.random((2, 4)) + 0.2)
    b = cp.Parameter(2, name="b", value=[1.0, 1.3])
    goal = weight * cp.sum_squares(half @ x) + 0.1 * cp.sum_squares(x) + c @ x
    return of.from_cvxpy(cp.Problem(cp.Minimize(goal), [A @ x == b, x >= -0.4, cp.sum(x) <= 3]))


def linear() -> Any:
    x = cp.Variable(3, name="x")
    c = cp.Parameter(3, name="c", value=[3.0, 5.0, 3.5])
    b = cp.Parameter(2, name="b", value=[4.0, 6.0])
    t = cp.Parameter(name="t", value=1.0)
    rows = [x[0] + t * x[1] + x[2] <= b[0], x[0] + 3 * x[1] + 2 * x[2] <= b[1] + t, x >= 0]
    return of.from_cvxpy(cp.Problem(cp.Maximize(c @ x + 2 * t), rows))


@pytest.mark.parametrize("make", [quadratic, linear])
def test_they_are_what_solving_again_gives(make: Any) -> None:
    p = make()
    s = p.solve(tolerance=1e-9)
    for name, own in p.parameters.items():
        d = derivatives(s, name)
        value, step = np.asarray(own.value, dtype=float), 1e-4
        assert d["x"].shape == (*s["x"].shape, *value.shape)
        for at in np.ndindex(value.shape):
            sides = []
            for sign in (1.0, -1.0):
                moved = value.copy()
                moved[at] += sign * step
                sides.append(p.at({name: moved}).solve(tolerance=1e-9))
            slope = (sides[0].objective - sides[1].objective) / (2.0 * step)
            assert np.asarray(d.objective)[at] == pytest.approx(slope, abs=2e-5)
            change = (sides[0]["x"] - sides[1]["x"]) / (2.0 * step)
            np.testing.assert_allclose(d["x"][(..., *at)], change, atol=3e-4)
            for term, y in d.multipliers.items():
                moved_y = sides[0].multipliers[term] - sides[1].multipliers[term]
                np.testing.assert_allclose(y[(..., *at)], moved_y / (2.0 * step), atol=3e-3)


def test_where_there_is_none_it_is_refused() -> None:
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    tied = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.sum(x) >= b, x >= 0]))
    with pytest.raises(of.UnsupportedProblem, match=r"no derivative|not strict"):
        derivatives(tied.solve(), "b")
    # the side is where the unconstrained optimum is: the row is active with multiplier 0
    weak = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - 0.5)), [cp.sum(x) >= b]))
    with pytest.raises(of.UnsupportedProblem, match=r"no derivative|not strict"):
        derivatives(weak.solve(tolerance=1e-9), "b")
    bent = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1, x[0] + cp.exp(b) * x[1] >= 2]))
    with pytest.raises(of.UnsupportedProblem, match="no affine function of 'b'"):
        derivatives(bent.solve(), "b")
    curved = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= cp.square(b)]))
    with pytest.raises(of.UnsupportedProblem, match=r"affine|other rows"):
        derivatives(curved.solve(), "b")
    cone = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(x)), [x >= b]))
    with pytest.raises(of.ClassError, match="linear and quadratic"):
        derivatives(cone.solve(), "b")
    fine = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [x >= b])).solve()
    with pytest.raises(of.DeclarationError, match="no parameter"):
        derivatives(fine, "c")
    with pytest.raises(of.DeclarationError, match="no derivative of 'y'"):
        derivatives(fine, "b")["y"]
