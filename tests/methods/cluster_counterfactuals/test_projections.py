"""Projections of many rows: optimality conditions, every sign pattern, proofs of infeasibility."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import (
    Moves,
    linear,
    nearest_in_bounded_half_space,
    nearest_in_half_space,
    nearest_in_polyhedron,
)
from optfair.methods.cluster_counterfactuals.algorithms.quadrics import Pencil, nearest_in_quadratic


def random_metric(rng: Any, d: int) -> Any:
    R = rng.normal(size=(d, d))
    return R @ R.T + 0.3 * np.eye(d)


@given(st.integers(0, 10_000))
def test_polyhedron_meets_the_optimality_conditions_or_proves_infeasibility(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, m, n = int(rng.integers(1, 6)), int(rng.integers(1, 10)), 4
    A, b = rng.normal(size=(m, d)), rng.normal(size=m) + rng.choice([-0.3, 0.3])
    if m > 1 and seed % 3 == 0:
        A[1] = A[0]  # parallel constraints
    if seed % 5 == 0:
        A[0] = 0.0  # a constraint without variables
    Y, W = 2.0 * rng.normal(size=(n, d)), random_metric(rng, d)
    found = nearest_in_polyhedron(Y, A, b, metric=W)
    for y, z, lam, reached in zip(Y, found.points, found.multipliers, found.reached, strict=True):
        assert (lam >= 0.0).all()
        size = 1.0 + float(np.abs(lam).max())
        if not reached:
            assert np.abs(A.T @ lam).max() <= 1e-8 * size
            assert float(b @ lam) < 0.0
            continue
        assert (A @ z - b).max() <= 1e-9 * (1.0 + np.abs(z).max())
        assert np.abs(2.0 * W @ (z - y) + A.T @ lam).max() <= 1e-8 * size
        assert np.abs(lam * (A @ z - b)).max() <= 1e-8 * size


def test_polyhedron_against_a_solver_of_quadratic_programs() -> None:
    rng = np.random.default_rng(0)
    statuses = set()
    for trial in range(25):
        d, m = int(rng.integers(1, 5)), int(rng.integers(1, 8))
        A, b, y = rng.normal(size=(m, d)), rng.normal(size=m) - 0.2, rng.normal(size=(1, d))
        found = nearest_in_polyhedron(y, A, b)
        z = cp.Variable(d)
        problem = cp.Problem(cp.Minimize(cp.sum_squares(z - y[0])), [A @ z <= b])
        problem.solve(solver=cp.CLARABEL, tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)
        solved = problem.status in ("optimal", "optimal_inaccurate")
        statuses.add(solved)
        assert solved == bool(found.reached[0]), trial
        if solved:
            assert np.abs(found.points[0] - z.value).max() <= 1e-6
    assert statuses == {True, False}


@given(st.integers(0, 10_000))
def test_half_spaces_are_polyhedra(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(1, 7)), 4
    Y, c, w = 2.0 * rng.normal(size=(n, d)), float(rng.normal()) - 1.0, rng.random(d) + 0.2
    v = rng.normal(size=d) * (rng.random(d) < 0.8)
    low = np.where(rng.random(d) < 0.6, rng.normal(size=d) - 1.0, -np.inf)
    high = np.where(rng.random(d) < 0.6, np.maximum(low, -2.0) + 2.0 * rng.random(d), np.inf)
    A, b = np.vstack([v, np.eye(d), -np.eye(d)]), np.concatenate([[c], high, -low])
    for one, many in (
        (
            nearest_in_half_space(Y, v, c, metric=w),
            nearest_in_polyhedron(Y, A[:1], b[:1], metric=w),
        ),
        (
            nearest_in_bounded_half_space(Y, v, c, low, high, weights=w),
            nearest_in_polyhedron(Y, A, b, metric=w),
        ),
    ):
        assert (one.reached == many.reached).all()
        size = 1.0 + np.nanmax(np.abs(many.points), initial=0.0)
        assert np.nanmax(np.abs(one.points - many.points), initial=0.0) <= 1e-7 * size
    full = nearest_in_half_space(Y, v, c, metric=np.diag(w))
    diagonal = nearest_in_half_space(Y, v, c, metric=w)
    assert np.allclose(full.points, diagonal.points, equal_nan=True, atol=1e-9)


def test_shortfall_is_the_least_value_over_the_bounds() -> None:
    Y, v = np.zeros((1, 2)), np.array([1.0, -2.0])
    low, high = np.array([-1.0, -1.0]), np.array([1.0, 0.5])
    found = nearest_in_bounded_half_space(Y, v, -5.0, low, high)
    assert not found.reached[0] and found.shortfall[0] == 3.0  # -1 - 2 * 0.5 + 5
    assert np.isnan(found.points).all()


def plane(*a: float) -> Any:
    """a'x <= 1."""
    return SimpleNamespace(gradient=lambda y: np.array(a), value=lambda Y: Y @ np.array(a) - 1.0)


@pytest.mark.parametrize("boundaries", [1, 2])
def test_points_between_bounds_are_proved_nearest(boundaries: int) -> None:
    """x + y <= 1, x - y <= 1, x in [-1, 0.8], y in [-1, 0.9]."""
    Y, both = np.array([[3.0, 1.0], [2.5, -2.0], [0.5, -3.0]]), np.array([True, True])
    moves = Moves(both, None, np.full((3, 2), -1.0), np.tile([0.8, 0.9], (3, 1)))
    found = linear(Y, [plane(1.0, 1.0), plane(1.0, -1.0)][:boundaries], moves)
    others = [[0.75, -0.25], [0.0, -1.0]] if boundaries == 2 else [[0.8, -1.0], [0.5, -1.0]]
    np.testing.assert_allclose(found.points, [[0.8, 0.2], *others], atol=1e-12)
    np.testing.assert_allclose(found.objective, ((found.points - Y) ** 2).sum(axis=1))
    assert (np.abs(found.gap) <= 1e-12).all()


def conditions(Y: Any, D: Any, G: Any, g: Any, W: Any) -> list[bool]:
    """Check global optimality of every row: feasible, stationary, convex Lagrangian."""
    metric = np.eye(D.shape[0]) if W is None else W
    found = nearest_in_quadratic(Y, G, g, Pencil.of(D, W))
    for i in range(Y.shape[0]):
        if not found.reached[i]:
            continue
        assert found.shortfall[i] == 0.0
        u, mu = found.points[i] - Y[i], float(found.multipliers[i, 0])
        value = g[i] + G[i] @ u + 0.5 * u @ D @ u
        parts = abs(g[i]) + np.abs(G[i]) @ np.abs(u) + np.abs(u) @ np.abs(D) @ np.abs(u)
        if g[i] <= 0.0:
            assert mu == 0.0 and not u.any()
            continue
        assert abs(value) <= 1e-10 * (1.0 + parts)
        slope = 2.0 * metric @ u + mu * (G[i] + D @ u)
        large = np.abs(2.0 * metric @ u).max() + mu * np.abs(G[i]).max()
        assert np.abs(slope).max() <= 1e-9 * (1.0 + large + mu * np.abs(D).max() * np.abs(u).max())
        h = np.linalg.eigvalsh(2.0 * metric + mu * D)
        assert mu >= 0.0 and h[0] >= -1e-9 * (1.0 + np.abs(h).max())
    return found.reached.tolist()


SIGNS = {
    "indefinite": lambda rng, f: rng.normal(size=f),
    "positive definite": lambda rng, f: rng.random(f) + 0.01,
    "negative definite": lambda rng, f: -rng.random(f) - 0.01,
    "positive semidefinite": lambda rng, f: np.where(rng.random(f) < 0.5, 0.0, rng.random(f)),
    "negative semidefinite": lambda rng, f: np.where(rng.random(f) < 0.5, 0.0, -rng.random(f)),
    "with zeros": lambda rng, f: np.where(rng.random(f) < 0.5, 0.0, rng.normal(size=f)),
    "zero": lambda rng, f: np.zeros(f),
    "repeated": lambda rng, f: np.full(f, float(rng.choice([-1.0, 1.0]))),
}


@pytest.mark.parametrize("signs", SIGNS)
def test_quadratics_of_every_sign_pattern(signs: str) -> None:
    rng = np.random.default_rng(sum(map(ord, signs)))
    for trial in range(120):
        f, n = int(rng.integers(1, 7)), 4
        Q = np.linalg.qr(rng.normal(size=(f, f)))[0]
        D = Q * SIGNS[signs](rng, f) @ Q.T * 10.0 ** rng.integers(-5, 6)
        D = (D + D.T) / 2.0
        scales = 10.0 ** rng.integers(-4, 4, size=(2, n))
        G, g = rng.normal(size=(n, f)) * scales[0][:, None], rng.normal(size=n) * scales[1]
        if trial % 4 == 0:  # no slope along the first eigenvector: the hard case
            G = G - np.outer(G @ Q[:, 0], Q[:, 0])
        if trial % 9 == 0:
            G = 0.0 * G
        W = None if trial % 2 else random_metric(rng, f)
        reached = conditions(rng.normal(size=(n, f)), D, G, g, W)
        if signs.startswith("negative definite"):
            assert all(reached)  # far enough it is below 0


def test_unreachable_quadratics_say_their_least_value() -> None:
    # 1 + u1 + u1² + 0 u2 >= 3/4, with and without slope along the flat direction
    D, Y = np.diag([2.0, 0.0]), np.zeros((2, 2))
    G, g = np.array([[1.0, 0.0], [1.0, 0.5]]), np.ones(2)
    found = nearest_in_quadratic(Y, G, g, Pencil.of(D))
    assert found.reached.tolist() == [False, True]
    assert found.shortfall[0] == pytest.approx(0.75, rel=1e-14)
    # rounding in D and in the slope does not open a way out to infinity
    noisy = Pencil.of(D + np.diag([0.0, -1e-17]), noise=1e-16)
    again = nearest_in_quadratic(Y[:1], np.array([[1.0, 1e-18]]), g[:1], noisy, noise=1e-16)
    assert not again.reached[0]


def test_hard_case_moves_along_the_first_eigenvector() -> None:
    # at the center of the disk every direction out is as good
    found = nearest_in_quadratic(
        np.zeros((1, 3)), np.zeros((1, 3)), np.array([2.0]), Pencil.of(-4.0 * np.eye(3))
    )
    assert np.linalg.norm(found.points[0]) == pytest.approx(1.0, rel=1e-14)
    assert found.multipliers[0, 0] == pytest.approx(0.5, rel=1e-14)
    # nearly hard: a tiny slope picks the side and changes nothing else
    near = nearest_in_quadratic(
        np.zeros((1, 3)), np.array([[1e-13, 0, 0]]), np.array([2.0]), Pencil.of(-4.0 * np.eye(3))
    )
    assert near.points[0] == pytest.approx([-1.0, 0.0, 0.0], abs=1e-12)


def test_stiff_directions_do_not_drown_the_root() -> None:
    # a feature of variance 1e-6 beside one that curves away: g falls from 1e8 to 0
    D, G = np.diag([-2.4, -0.1, 1e6]), np.array([[0.9, 0.6, 16e6]])
    g = np.array([1.28e8 + 30.0])
    found = nearest_in_quadratic(np.zeros((1, 3)), G, g, Pencil.of(D, noise=2e-10))
    u = found.points[0]
    assert abs(float(g[0] + G[0] @ u + 0.5 * u @ D @ u)) <= 1e-6


def test_the_root_is_the_global_optimum_on_a_fine_grid() -> None:
    rng = np.random.default_rng(3)
    grid = np.stack(np.meshgrid(*[np.linspace(-6, 6, 1201)] * 2), -1).reshape(-1, 2)
    for _ in range(6):
        D = np.linalg.qr(rng.normal(size=(2, 2)))[0]
        D = D * np.array([rng.random() + 0.2, -rng.random() - 0.2]) @ D.T
        G, g = rng.normal(size=2), 0.5 + rng.random()
        found = nearest_in_quadratic(
            np.zeros((1, 2)), G[None], np.array([g]), Pencil.of((D + D.T) / 2.0)
        )
        value = g + grid @ G + 0.5 * ((grid @ D) * grid).sum(1)
        best = float((grid[value <= 0.0] ** 2).sum(1).min())
        got = float((found.points[0] ** 2).sum())
        assert best * 0.97 <= got <= best + 1e-12


def test_no_row_of_a_batch_is_taken_alone() -> None:
    rng = np.random.default_rng(0)
    n, d, K = 10_000, 16, 10
    Y, C = 2.0 * rng.normal(size=(n, d)), rng.normal(size=(K, d))
    V, c = C[1:] - C[0], ((C[1:] ** 2).sum(1) - (C[0] ** 2).sum()) / 2.0
    G, g, D = rng.normal(size=(n, d)), 3.0 * rng.random(n), np.diag(rng.normal(size=d))

    def calls(of: Any, rows: int) -> int:
        """Return how many functions of Python a batch calls."""
        count = 0

        def seen(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(seen)
        try:
            of(slice(rows))
        finally:
            sys.setprofile(None)
        return count

    pencil = Pencil.of(D)
    for batch in (
        lambda at: nearest_in_half_space(Y[at], V[0], c[0]),
        lambda at: nearest_in_polyhedron(Y[at], V, c),
        lambda at: nearest_in_quadratic(Y[at], G[at], g[at], pencil),
    ):
        # rounds and blocks grow slowly; a loop over rows would call a hundred times as much
        assert 0 < calls(batch, n) <= 10 * calls(batch, n // 100)
