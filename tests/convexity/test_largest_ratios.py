"""The largest of many ratios: by levels, whatever form they have, held against programs of each level."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import optfair as of

Matrix = np.ndarray[Any, Any]


def _least(A: Matrix, a: Any, B: Matrix, b: Any) -> float:
    """Return the least t with A x + a <= t (B x + b) for a point x of the simplex, to 1e-9."""
    low, high, n = -50.0, 50.0, A.shape[1]
    while high - low > 1e-9:
        t = 0.5 * (low + high)
        rows, sides = A - t * B, t * np.broadcast_to(b, len(A)) - a
        met = linprog(np.zeros(n), rows, sides, np.ones((1, n)), [1.0])
        low, high = (low, t) if met.status == 0 else (t, high)
    return high


def _data(k: int, n: int) -> tuple[Matrix, Matrix, cp.Variable]:
    rng = np.random.default_rng(k)
    A, B = rng.uniform(0.1, 1.0, (k, n)).round(2), rng.uniform(0.1, 1.0, (k, n)).round(2)
    return A, B, cp.Variable(n, nonneg=True, name="x")


@pytest.mark.parametrize(("k", "n"), [(4, 3), (30, 5)])
def test_a_vector_of_ratios_is_minimised_by_levels(k: int, n: int) -> None:
    """A search for a proof that each of them is convex, which it is not, took all steps there are."""
    A, B, x = _data(k, n)
    worst = cp.max((A @ x + 1) / (B @ x + 2))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(worst), [cp.sum(x) == 1]))
    assert str(p.problem_class).startswith("quasiconvex")
    s = p.solve()
    assert (s.solver, s.grade.word) == ("equivalent-convex", "proved")
    assert s.objective == pytest.approx(_least(A, 1.0, B, 2.0), abs=1e-6)


def test_numbers_beside_ratios_stay_with_their_own() -> None:
    A, B, x = _data(3, 3)
    c = np.array([0.3, -0.2, 0.1])
    worst = cp.max((A @ x + 1) / (B @ x + 2) + c)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(worst), [cp.sum(x) == 1])).solve()
    exact = _least(A + c[:, None] * B, 1.0 + 2.0 * c, B, 2.0)
    assert s.grade.word == "proved" and s.objective == pytest.approx(exact, abs=1e-6)


def test_a_smallest_ratio_is_maximised() -> None:
    """Of x / A x it is one over the Perron root of A; so it is with a number in front."""
    A, _, _ = _data(3, 3)
    root = float(np.abs(np.linalg.eigvals(A)).max())
    x = cp.Variable(3, pos=True, name="x")
    for c in (1.0, 2.5):
        least = c * cp.min(x / (A @ x))
        p = of.from_cvxpy(cp.Problem(cp.Maximize(least), [cp.sum(x) == 1]))
        assert str(p.problem_class).startswith("quasiconvex")
        s = p.solve()
        assert s.solver == "equivalent-convex" and s.grade.word == "proved"
        assert s.objective == pytest.approx(c / root, abs=1e-6)


def test_the_largest_of_a_smallest_ratio_is_not_taken_for_one() -> None:
    A, _, _ = _data(3, 3)
    x = cp.Variable(3, pos=True, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.min(x / (A @ x))), [cp.sum(x) == 1]))
    assert not str(p.problem_class).startswith("quasiconvex")
    assert not p.problem_class.convex


def test_ratios_stand_beside_convex_functions() -> None:
    x = cp.Variable(2, nonneg=True, name="x")
    parts = (x[0] + 1) / (x[1] + 2), cp.square(x[1] - 0.3), cp.norm(x) / (x[0] + 1)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.maximum(*parts)), [cp.sum(x) == 1])).solve()
    t = np.linspace(0.0, 1.0, 100_001)
    every = [(t + 1) / (3 - t), (0.7 - t) ** 2, np.hypot(t, 1 - t) / (t + 1)]
    assert s.solver == "equivalent-convex"
    assert s.objective == pytest.approx(np.max(every, axis=0).min(), abs=1e-5)
