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


def ball() -> Any:
    x = cp.Variable(3, name="x")
    b, r = cp.Parameter(2, name="b", value=[1.0, 0.3]), cp.Parameter(name="r", value=1.5)
    rng = np.random.default_rng(3)
    A, c = rng.normal(size=(2, 3)), rng.normal(size=3)
    # the last term is idle: the columns that it introduces have no values of their own
    rows = [A @ x >= b, cp.norm(x) <= r, cp.norm1(x) <= 50]
    return cp.Problem(cp.Minimize(c @ x + 0.3 * cp.norm(x - 1)), rows)


def squares() -> Any:
    x, b = cp.Variable(3, name="x"), cp.Parameter(name="b", value=1.0)
    goal = np.array([1.0, 2.0, -3.0]) @ x + 0.1 * cp.sum_squares(x)
    return cp.Problem(cp.Minimize(goal), [cp.sum_squares(x - 1) <= b, x[0] >= 0.9])


def entropy() -> Any:
    x, b = cp.Variable(3, name="x"), cp.Parameter(name="b", value=1.0)
    c = cp.Parameter(2, name="c", value=[1.0, 3.0])
    rows = [cp.sum(x) == b, x[0] <= 0.4, cp.exp(x[1]) <= 1.3]
    return cp.Problem(cp.Maximize(cp.sum(cp.entr(x)) - c @ x[1:]), rows)


def power() -> Any:
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=2.0)
    rows = [cp.sum(x) <= b, cp.PowCone3D(x[0], x[1], 0.2 + 0.6 * x[0], 0.3)]
    return cp.Problem(cp.Minimize(x[0] - 2 * x[1]), rows)


def matrices() -> Any:
    X = cp.Variable((3, 3), symmetric=True, name="x")
    b, t = cp.Parameter(2, name="b", value=[1.0, 0.3]), cp.Parameter(name="t", value=0.5)
    rng = np.random.default_rng(1)
    C, A = rng.normal(size=(3, 3)), rng.normal(size=(2, 3, 3))
    C, A = C @ C.T + np.eye(3), A + A.transpose(0, 2, 1)
    rows = [X >> 0, cp.trace((A[0] + 3 * np.eye(3)) @ X) == b[0], cp.trace(A[1] @ X) >= b[1]]
    return cp.Problem(cp.Minimize(cp.trace(C @ X) + t * X[0, 1]), rows)


@pytest.mark.parametrize("make", [ball, squares, entropy, power, matrices])
def test_those_of_cones_are_what_solving_again_gives(make: Any) -> None:
    p, step = of.from_cvxpy(make()), 2e-3
    s = p.solve(tolerance=1e-9)
    for name, own in p.parameters.items():
        d, value = derivatives(s, name), np.asarray(own.value, dtype=float)
        for at in np.ndindex(value.shape):
            move = np.zeros(value.shape)
            move[at] = step
            after, before = (
                p.at({name: v}).solve(tolerance=1e-9) for v in (value + move, value - move)
            )
            slope = (after.objective - before.objective) / (2.0 * step)
            assert np.asarray(d.objective)[at] == pytest.approx(slope, abs=1e-5, rel=1e-5)
            change = (after["x"] - before["x"]) / (2.0 * step)
            np.testing.assert_allclose(d["x"][(..., *at)], change, atol=2e-4, rtol=2e-3)
            for term, y in d.multipliers.items():
                change = (after.multipliers[term] - before.multipliers[term]) / (2.0 * step)
                np.testing.assert_allclose(y[(..., *at)], change, atol=5e-3, rtol=5e-3)


def test_a_right_hand_side_by_its_name() -> None:
    s = of.from_cvxpy(squares(), ["ball", "low"]).solve(tolerance=1e-9)
    d = derivatives(s, "low")
    assert d.objective == pytest.approx(float(s.shadow_price["low"]), abs=1e-6)
    assert d["x"][0] == pytest.approx(1.0, abs=1e-6)
    s = linear().solve()
    assert derivatives(s, "c0").objective == pytest.approx(float(s.shadow_price["c0"]), abs=1e-9)


x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=0.0)
SIDED = {
    "the point of a norm": (cp.norm(x - 1), [cp.sum(x) == 2 + b]),
    "a ball with multiplier 0": (cp.sum_squares(x - 1), [cp.norm(x) <= np.sqrt(2) + b]),
    "a free direction": (cp.norm(cp.sum(x) - 1 + b), [cp.norm(x) <= 3]),
    "a free column": (cp.norm(cp.hstack([x[0], 1])), [x[1] >= 0, x[1] <= 1, x[0] >= 1 + b]),
    "equal eigenvalues": (
        cp.lambda_max(cp.bmat([[1 + x[0], b], [b, 1 - x[0]]])),
        [cp.abs(x) <= 3],
    ),
}


@pytest.mark.parametrize("name", SIDED)
def test_ties_of_cones_are_refused(name: str) -> None:
    goal, rows = SIDED[name]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows)).solve(tolerance=1e-9)
    with pytest.raises(of.UnsupportedProblem, match="no derivative here"):
        derivatives(s, "b")


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
    whole = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(x)), [x >= b])).with_integrality("x")
    with pytest.raises(of.ClassError, match="continuous convex programs"):
        derivatives(whole.solve(), "b")
    fine = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [x >= b])).solve()
    with pytest.raises(of.DeclarationError, match="no parameter"):
        derivatives(fine, "c")
    with pytest.raises(of.DeclarationError, match="no derivative of 'y'"):
        derivatives(fine, "b")["y"]


@pytest.mark.parametrize("cost", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e3])
def test_derivatives_are_those_of_the_same_program_in_other_units(unit: float, cost: float) -> None:
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=unit)
    half, root = [0.5, 0.5], [0.5**0.5, 0.5**0.5]
    for goal, row, slope in (
        (cp.Minimize(cost * cp.sum_squares(x)), cp.sum(x) >= b, half),
        (cp.Maximize(cost * cp.sum(x)), cp.norm(x) <= b, root),
        (cp.Maximize(cost * cp.sum(cp.log(x / unit))), cp.sum(x) <= b, half),
    ):
        s = of.from_cvxpy(cp.Problem(goal, [row])).solve()
        assert derivatives(s, "b")["x"] == pytest.approx(slope, abs=1e-3)


@pytest.mark.parametrize("side", [0.1, 2.0, 5.0, 300.0])
def test_the_sides_of_squares_are_moved_in_the_units_of_the_optimum(side: float) -> None:
    x, t = cp.Variable(2, name="x"), cp.Parameter(name="t", value=1.0)
    rows = [cp.sum_squares(x) <= side * t, x <= 40, x >= -40]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), rows), ["ball", "most", "least"]).solve()
    d = derivatives(s, "t")
    assert d.objective == pytest.approx(-(side**0.5) / 2, rel=1e-4)
    assert d["x"] == pytest.approx([-(side**0.5) / 2, 0.0], rel=1e-4, abs=1e-3)
    assert derivatives(s, "ball").objective == pytest.approx(-0.5 / side**0.5, rel=1e-4)
