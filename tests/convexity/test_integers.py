"""Convex programs with integers by outer approximation, against enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of

n, m = (cp.Variable(name=k, integer=True) for k in "nm")
x, y = cp.Variable(name="x"), cp.Variable(name="y")
lam = np.array([0.5, 1.2, 2.1, 0.7])
v = cp.Variable(4, integer=True, name="v")

K, J = np.meshgrid(np.arange(9.0), np.arange(9.0), indexing="ij")
FINE = np.linspace(0.0, 5.0, 50_001)


def _exponential() -> float:
    return min((np.exp(FINE - k) + k * k / 10 + (FINE - 2.3) ** 2).min() for k in range(7))


def _beyond() -> float:
    inside = FINE[FINE >= 0.4]
    return min((np.exp(k) - k * k / 2 - 3 * k + (inside - k) ** 2).min() for k in range(4))


def _row() -> float:
    t = FINE[FINE <= 4.0][:, None, None]
    held = np.exp(-t) + 1 / (1 + K) + t * t / (J + 1) <= 0.9
    return float(np.where(held, 2 * K + J + t, np.inf).min())


def _servers() -> float:
    points = np.array(list(itertools.product(range(1, 7), repeat=4)), dtype=float)
    points = points[(points.sum(axis=1) <= 10) & (points >= lam + 0.1).all(axis=1)]
    return float((lam / (points - lam)).sum(axis=1).min())


PROGRAMS: dict[str, tuple[Any, list[Any], Callable[[], float]]] = {
    "exponential": (
        cp.exp(x - n) + n * n / 10 + cp.square(x - 2.3),
        [n >= 0, n <= 6, x >= 0, x <= 5],
        _exponential,
    ),
    "beyond composition rules": (
        cp.exp(n) - n * n / 2 - 3 * n + cp.square(y - n),
        [n >= 0, n <= 3, y >= 0.4, y <= 5],
        _beyond,
    ),
    "curved row": (
        2 * n + m + x,
        [
            cp.exp(-x) + 1 / (1 + n) + x * x / (m + 1) <= 0.9,
            *(n >= 0, n <= 8, m >= 0, m <= 8, x >= 0, x <= 4),
        ],
        _row,
    ),
    "servers": (
        cp.sum(cp.multiply(lam, 1 / (v - lam))),
        [cp.sum(v) <= 10, v >= lam + 0.1, v <= 6],
        _servers,
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n == "curved row" else n for n in PROGRAMS],
)
def test_the_optimum_is_that_of_enumeration(name: str) -> None:
    goal, rows, enumerated = PROGRAMS[name]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows))
    assert p.problem_class.integer and p.problem_class.convex
    s = p.solve()
    assert s.solver == "tangents" and s.grade.word == "reported"
    truth = enumerated()
    assert s.objective == pytest.approx(truth, abs=3e-4) and s.objective <= truth + 1e-9
    assert all(np.array_equal(s.values[k], np.round(s.values[k])) for k in p.integers)
    closed = s.certificate.prove()
    assert closed.verify() and closed.solution.grade.word == "proved"
    assert closed.solution.bound <= truth + 1e-9


def test_integers_without_a_point_are_infeasible() -> None:
    rows = [cp.exp(n) + n * n <= 6, n >= 1.2, n <= 4]
    with pytest.raises((of.Infeasible, of.SolverFailure)):
        of.from_cvxpy(cp.Problem(cp.Minimize(n), rows)).solve()


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-7])
def test_exponentials_of_integers_are_cut_until_bound_and_value_meet(tolerance: float) -> None:
    x = cp.Variable(3, integer=True, name="x")
    grid = np.stack(np.meshgrid(*[np.arange(-5, 6)] * 3), axis=-1).reshape(-1, 3)
    grid = grid[grid.sum(axis=1) >= 2]
    truth = float((np.exp(grid).sum(axis=1) - 3.0 * grid.sum(axis=1) + grid[:, 0]).min())
    cost = cp.sum(cp.exp(x)) - 3.0 * cp.sum(x) + x[0]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cost), [x >= -5, x <= 5, cp.sum(x) >= 2])).solve(
        tolerance=tolerance
    )
    assert s.objective == pytest.approx(truth, rel=tolerance)
    assert s.bound <= truth * (1 + 1e-9) and s["x"].tolist() == [1.0, 1.0, 1.0]


def test_ranges_of_rows_that_are_convex_bound_integers_for_tangents() -> None:
    x, A = cp.Variable(2, integer=True, name="x"), np.random.default_rng(0).normal(size=(10, 2))
    grid = np.stack(np.meshgrid(*[np.arange(-3, 4)] * 2), axis=-1).reshape(-1, 2)
    truth = float(np.logaddexp(0.0, grid @ A.T - 1.0).sum(axis=1).min())
    cost = cp.sum(cp.logistic(A @ x - 1.0))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cost), [cp.abs(x) <= 3])).solve()
    assert s.objective == pytest.approx(truth, rel=1e-6) and s.bound <= truth * (1 + 1e-9)
