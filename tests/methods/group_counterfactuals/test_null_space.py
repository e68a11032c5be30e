"""Directions in which a group has no extent: the map leaves new members alone there."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.features.feature_problem import immutable
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.fixed_basis import (
    CommutativeGaussianMap,
    DiagonalMap,
)
from optfair.methods.group_counterfactuals.gaussian_maps import GaussianMap
from optfair.methods.group_counterfactuals.group_problem import nearest_to_identity
from optfair.methods.group_counterfactuals.rules import loewner

D = 6


def few(seed: int = 0, n: int = 4) -> tuple[np.ndarray, dict[str, Any]]:
    """Return fewer members than features, and a target they miss."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), {"score": (rng.normal(size=D), -3.0), "probability": 0.8}


def bases(p: Any) -> tuple[np.ndarray, np.ndarray]:
    r = p.moments.root.shape[1]
    U = np.linalg.svd(p.moments.root, full_matrices=True)[0]
    return U[:, :r], U[:, r:]


def least_distance(A: np.ndarray, R: np.ndarray, K: float, k: float | None) -> float:
    """Return how near to I a matrix can be that agrees with A on R, by a solver."""
    free = cp.Variable((D, D), symmetric=True)
    bounds = [
        free << (K + 1e-8) * np.eye(D),
        free >> ((0 if k is None else 1 / k) - 1e-8) * np.eye(D),
    ]
    problem = cp.Problem(
        cp.Minimize(cp.norm(free - np.eye(D), "fro")), [free @ R == A @ R, *bounds]
    )
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", [PSDMap, GaussianMap])
@pytest.mark.parametrize(("K", "k"), [(5.0, 5.0), (1.1, 1.1), (1.01, 3.0), (2.0, None)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_matrix_is_nearest_to_the_identity(model: Any, K: float, k: Any, seed: int) -> None:
    X, aim = few(seed)
    p = model(X, K=K, k=k, **aim)
    s = p.solve(tolerance=1e-9)
    A, (R, N) = p.map(s).matrix, bases(p)
    assert np.allclose(A @ R, s["matrix"] @ R, atol=1e-12)
    values = np.linalg.eigvalsh(A)
    assert values[0] >= (0.0 if k is None else 1 / k) - 1e-7 and values[-1] <= K + 1e-7
    nearest = least_distance(s["matrix"], R, K, k)
    assert np.linalg.norm(A - np.eye(D)) == pytest.approx(nearest, rel=1e-3, abs=1e-4)
    # members go where the solution sends them, at its cost, and new ones at less
    moved = X - p.moments.mean
    assert np.allclose(moved @ A, moved @ s["matrix"], atol=1e-9)
    turned = s["matrix"] - np.eye(D)
    less = 0.9 if K == 5.0 else 1.0  # between tight bounds there is little to gain
    assert np.linalg.norm((A - np.eye(D)) @ N) <= less * np.linalg.norm(turned @ N)


def test_rules_hold_for_the_matrix_of_the_map() -> None:
    X, aim = few()
    p = PSDMap(X, K=5.0, k=5.0, **aim)
    q = p.with_constraints(tight=loewner(K=2.0, k=4.0), stay=immutable(2))
    s = q.solve(tolerance=1e-9)
    found = q.map(s)
    values = np.linalg.eigvalsh(found.matrix)
    assert values[0] >= 0.25 - 1e-7 and values[-1] <= 2.0 + 1e-7
    assert np.allclose(found.matrix[2], np.eye(D)[2], atol=1e-7)
    _, N = bases(q)
    apart = [np.linalg.norm((M - np.eye(D)) @ N) for M in (found.matrix, s["matrix"])]
    assert apart[0] < apart[1]


@pytest.mark.parametrize("model", [DiagonalMap, CommutativeGaussianMap])
def test_factors_of_flat_directions_are_one(model: Any) -> None:
    X, aim = few(n=30)
    X[:, 4] = 2.0
    p = model(X, K=5.0, k=5.0, **aim)
    A = p.map(p.solve()).matrix
    assert np.allclose(A[4], np.eye(D)[4], atol=1e-9)
    assert np.allclose(np.delete(A[:, 4], 4), 0.0, atol=1e-9)


def test_a_group_with_extent_keeps_the_matrix_of_the_solution() -> None:
    X, aim = few(n=30)
    p = PSDMap(X, K=5.0, k=5.0, **aim)
    s = p.solve()
    assert np.array_equal(p.map(s).matrix, s["matrix"])


def test_what_is_free_and_unbounded_is_the_identity() -> None:
    root = np.eye(3)[:, :1]
    A = np.diag([1.5, 7.0, 0.2])
    assert np.allclose(nearest_to_identity(A, root, None, None), np.diag([1.5, 1.0, 1.0]))
    A[0, 1] = A[1, 0] = 1.0  # semidefinite needs 1 / 1.5 at least: the identity will do
    found = nearest_to_identity(A, root, None, 2.0)  # at least 1/2 + 1 / (1.5 - 1/2)
    assert np.allclose(found, [[1.5, 1.0, 0.0], [1.0, 1.5, 0.0], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize("constant", [0.7, 30.3, 0.1, -1e5 / 3])
@pytest.mark.parametrize("make", [of.PSDMap, of.group_counterfactuals.AffineMap])
def test_the_mean_of_equal_numbers_leaves_nothing_to_be_stretched(
    make: Any, constant: float
) -> None:
    # a mean that is off by an ulp left 1e-16, and a matrix of 1e17 bought score at no cost
    rng = np.random.default_rng(0)
    w, spread = np.array([-0.5, -1.5]), rng.normal(size=10)
    X = np.column_stack([np.full(10, constant), spread])
    p = make(X, score=(w, 0.0), threshold=float((X @ w).max() - 1.0))
    assert not p.data["centered"][:, 0].any() and p.moments.mean[0] == constant
    bare = of.group_counterfactuals.AffineMap(
        spread[:, None], score=(w[1:], 0.0), threshold=float((spread * w[1]).max() - 1.0)
    ).solve()
    s = p.solve()
    # moving the constant as well is cheaper: by its share of the score's slope
    assert 0.0 < s.objective < bare.objective and s.grade.sound
    assert s.objective == pytest.approx(0.9148619636654, rel=1e-6)
    assert np.abs(s["matrix"]).max() < 1e6
    p.map(s)
