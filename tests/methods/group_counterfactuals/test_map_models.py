"""Models of maps: what they are, and that independent routes agree on their optimum."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.fixed_basis import (
    CommutativeGaussianMap,
    DiagonalMap,
    ScaledMap,
)
from optfair.methods.group_counterfactuals.gaussian_maps import GaussianMap
from optfair.sweeps import dependence

sys.path.insert(0, str(Path(__file__).parent))
from map_cases import CLASSES, MODELS, W0, W, group, plain, target

LEVEL = math.log(0.8 / 0.2)
PLAIN = [name for name in MODELS if not name.startswith(("gaussian", "mixture"))]


@pytest.mark.parametrize("name", MODELS)
def test_class_evidence_and_certificate(name: str) -> None:
    p = MODELS[name](group(), K=1.4, k=1.6, **target())
    assert str(p.problem_class) == CLASSES[name]
    assert p.certificate.verify()  # stated evidence is not below what CVXPY's analysis says
    large = MODELS[name](group(n=400), K=1.4, k=1.6, **target())
    assert [str(e) for e in large.evidence] == [str(e) for e in p.evidence]


@pytest.mark.parametrize("name", MODELS)
def test_optimum_is_certified_to_1e_8(name: str) -> None:
    p = MODELS[name](group(), K=1.4, k=1.6, **target())
    s = p.solve(tolerance=1e-8)
    assert not s.residuals().above(1e-8), s.residuals()
    found = s.residuals()
    assert found.feasibility <= 1e-8 and found.dual <= 1e-8 and found.gap <= 1e-8


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("costs", [None, np.array([1.0, 4.0, 0.5, 2.0])])
def test_moments_give_the_optimum_of_the_residuals(name: str, costs: Any) -> None:
    X = group()
    p = MODELS[name](X, K=1.4, k=1.6, **target(feature_costs=costs))
    expected = plain(name, X, 1.4, 1.6, LEVEL, costs)
    for solver in (None, "clarabel"):
        s = p.solve(solver, tolerance=1e-9)
        assert s.objective == pytest.approx(expected, rel=1e-7), solver
        moved = p.map(s).transform(X)
        weights = np.ones(4) if costs is None else costs
        assert np.mean(np.square(moved - X) @ weights) == pytest.approx(s.objective, rel=1e-9)
        assert (moved @ W + W0).min() >= LEVEL - 1e-7


@pytest.mark.parametrize("n", [40, 300])
def test_psd_is_gaussian_with_the_moments_of_the_sample(n: int) -> None:
    X = group(n=n)
    bounds = target(K=1.4, k=1.6)
    moments = {"mean": X.mean(axis=0), "covariance": np.cov(X.T, bias=True)}
    psd = PSDMap(X, **bounds).solve(tolerance=1e-9).objective
    reduced = GaussianMap(X, **moments, **bounds).solve(tolerance=1e-9).objective
    lmi = GaussianMap(X, **moments, form="lmi", **bounds)
    s = lmi.solve(tolerance=1e-8)
    assert reduced == pytest.approx(psd, rel=1e-8)
    assert s.objective == pytest.approx(psd, rel=1e-8)
    # S is the covariance of the image
    A = s["matrix"]
    assert np.allclose(s["covariance"], A @ moments["covariance"] @ A, atol=1e-5)


def test_the_cost_is_the_distance_of_two_gaussians() -> None:
    X = group()
    p = GaussianMap(X, **target(K=1.4, k=1.6))
    s = p.solve(tolerance=1e-9)
    sigma, A = np.cov(X.T, bias=True), s["matrix"]
    image = A @ sigma @ A
    values, vectors = np.linalg.eigh(sigma)
    root = (vectors * np.sqrt(values)) @ vectors.T
    middle = np.linalg.eigvalsh(root @ image @ root)
    bures = np.trace(sigma + image) - 2 * np.sqrt(middle).sum()
    shift = np.square(s["mean"] - X.mean(axis=0)).sum()
    assert s.objective == pytest.approx(shift + bures, rel=1e-8)


def test_printed_off_diagonal_block_is_another_problem() -> None:
    import cvxpy as cp

    X, d = group(), 4
    sigma, mu = np.cov(X.T, bias=True), X.mean(axis=0)

    def lmi(printed: bool) -> float:
        A, S = (cp.Variable((d, d), symmetric=True) for _ in range(2))
        m = cp.Variable(d)
        corner = A @ sigma if printed else sigma @ A
        rules = [
            cp.bmat([[sigma, corner], [corner.T, S]]) >> 0,
            A << 1.4 * np.eye(d),
            A >> np.eye(d) / 1.6,
            (X - mu) @ (A @ W) + W @ m + W0 >= LEVEL,
        ]
        goal = cp.sum_squares(m - mu) + cp.trace(S - 2 * A @ sigma + sigma)
        return float(cp.Problem(cp.Minimize(goal), rules).solve(solver="CLARABEL"))

    ours = GaussianMap(X, form="lmi", **target(K=1.4, k=1.6)).solve(tolerance=1e-9).objective
    assert lmi(printed=False) == pytest.approx(ours, rel=1e-6)
    assert abs(lmi(printed=True) - ours) > 1e-2


def test_order_of_the_models() -> None:
    """A larger set of maps costs no more."""
    X = group()
    cost = {name: MODELS[name](X, K=1.4, k=1.6, **target()).solve().objective for name in MODELS}
    rank = ["affine", "affine, bounded", "psd"]
    assert all(cost[a] <= cost[b] + 1e-6 for a, b in pairwise(rank))
    assert cost["psd"] <= min(cost["diagonal"], cost["commutative"]) + 1e-6
    assert max(cost["diagonal"], cost["commutative"]) <= cost["scaled"] + 1e-6
    assert cost["mixture, global"] <= cost["mixture"] + 1e-6


def test_commutative_is_commutative_and_its_distance_that_of_roots() -> None:
    X = group()
    p = CommutativeGaussianMap(X, **target(K=1.4, k=1.6))
    s = p.solve(tolerance=1e-9)
    sigma = np.cov(X.T, bias=True)
    A = p.map(s).matrix
    image = A @ sigma @ A
    assert np.allclose(image @ sigma, sigma @ image, atol=1e-10)
    roots = np.sqrt(np.diag(p.basis.T @ sigma @ p.basis))
    deviations = s["factors"] * roots
    cost = np.square(s["mean"] - X.mean(axis=0)).sum() + np.square(deviations - roots).sum()
    assert s.objective == pytest.approx(cost, rel=1e-10)


def test_commutative_with_a_diagonal_covariance_is_diagonal() -> None:
    signs = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    X = np.vstack([signs, -signs]) * np.array([1.0, 2.0, 3.0, 4.0])
    options = target(K=2.0, k=2.0)
    one = CommutativeGaussianMap(X, **options).solve(tolerance=1e-10)
    two = DiagonalMap(X, **options).solve(tolerance=1e-10)
    assert one.objective == pytest.approx(two.objective, rel=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_either_class_is_a_target(name: str) -> None:
    X = group() + 5.0 * W
    p = MODELS[name](X, K=2.0, k=2.0, **target(target_class=0))
    moved = p.map(p.solve()).transform(X)
    probability = 1 / (1 + np.exp(moved @ W + W0))  # of class 0
    assert probability.min() == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_threshold_and_probability_are_one_target(name: str) -> None:
    X = group()
    one = MODELS[name](X, K=1.4, k=1.6, **target()).solve(tolerance=1e-9)
    score = {"score": (W, W0), "threshold": LEVEL}
    two = MODELS[name](X, K=1.4, k=1.6, **score).solve(tolerance=1e-9)
    assert one.objective == pytest.approx(two.objective, rel=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_a_group_at_its_target_stays(name: str) -> None:
    X = group() + 20.0 * W
    p = MODELS[name](X, K=1.4, k=1.6, **target())
    s = p.solve()
    assert s.objective == pytest.approx(0.0, abs=1e-7)
    assert np.abs(p.map(s).transform(X) - X).max() <= 1e-3


@pytest.mark.parametrize("name", [n for n in MODELS if not n.startswith("affine")])
def test_no_distortion_leaves_a_shift(name: str) -> None:
    X = group()
    p = MODELS[name](X, K=1.0, k=1.0, **target())
    s = p.solve(tolerance=1e-8)
    behind = LEVEL - (X @ W + W0).min()
    if not name.startswith("mixture"):
        assert s.objective == pytest.approx(behind**2 / (W @ W), rel=1e-7)
    assert p.map(s).expansion == pytest.approx(1.0, abs=1e-6) or name == "mixture, global"


@pytest.mark.parametrize("name", [n for n in MODELS if not n.startswith("mixture")])
def test_a_group_without_spread_in_a_direction(name: str) -> None:
    """The cost is that of the members although the matrix is not unique."""
    X = group()
    X[:, 3] = X[:, 0] + X[:, 1]
    p = MODELS[name](X, K=1.4, k=1.6, **target())
    assert p.moments.singular
    s = p.solve(tolerance=1e-8)
    assert not s.residuals().above(s.certificate.tolerance)
    moved = p.map(s).transform(X)
    assert np.square(moved - X).sum(axis=1).mean() == pytest.approx(s.objective, rel=1e-6)
    if name in PLAIN:
        assert s.objective == pytest.approx(
            plain(name, X, 1.4, 1.6, LEVEL, tolerance=1e-9), rel=1e-6
        )


@pytest.mark.parametrize("name", MODELS)
def test_one_feature(name: str) -> None:
    X = group(d=1)
    p = MODELS[name](X, K=1.5, k=1.5, score=([1.0], 0.0), threshold=3.0)
    s = p.solve(tolerance=1e-8)
    assert not s.residuals().above(s.certificate.tolerance)
    assert p.map(s).transform(X).min() == pytest.approx(3.0, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_units_of_a_feature(name: str) -> None:
    """A hundred times the unit of everything is ten thousand times the cost."""
    X = group()
    one = MODELS[name](X, K=1.4, k=1.6, score=(W, W0), threshold=1.0).solve(tolerance=1e-7)
    two = MODELS[name](100 * X, K=1.4, k=1.6, score=(W / 100, W0), threshold=1.0)
    assert two.solve(tolerance=1e-7).objective == pytest.approx(1e4 * one.objective, rel=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_tampered_values_and_multipliers_are_found(name: str) -> None:
    p = MODELS[name](group(), K=1.4, k=1.6, **target())
    s = p.solve(tolerance=1e-8)
    for kind in ("values", "multipliers"):
        known = getattr(s, kind)
        for what in known:
            moved = np.array(known[what], dtype=float)
            moved.flat[0] += 1e-4 * (1.0 + np.abs(moved).max())
            forged = replace(s, **{kind: {**known, what: moved}})
            assert forged.residuals().above(s.certificate.tolerance), what


def test_scaled_never_grows() -> None:
    for seed in range(5):
        p = ScaledMap(group(seed=seed), **target(K=3.0, k=3.0))
        assert 1 / 3 - 1e-12 <= float(p.solve()["scale"]) <= 1.0


@pytest.mark.parametrize("model", [PSDMap, DiagonalMap, ScaledMap, CommutativeGaussianMap])
def test_bounds_on_distances_are_parameters(model: Any) -> None:
    """A model at another K is the model declared with it, with the rules that were added."""
    X = np.random.default_rng(0).normal(size=(30, 2)) * [3.0, 1.0] - 2.0
    p = model(X, score=([1.0, 1.0], 0.0), K=1.5, k=2.0)
    p = p.with_constraints(near=p["mean"] <= 3.0)
    fresh = model(X, score=([1.0, 1.0], 0.0), K=1.1, k=1.2)
    fresh = fresh.with_constraints(near=fresh["mean"] <= 3.0)
    moved = p.at(K=1.1, k=1.2)
    assert list(moved.constraints) == list(fresh.constraints) and p.data["K"] == 1.5
    assert moved.solve().objective == pytest.approx(fresh.solve().objective, rel=1e-7)
    with pytest.raises(of.DeclarationError, match="K"):
        p.at(K=0.5)
    assert dependence(p, "K", 1.0, 2.0).word == "convex" and not dependence(p, "k", 1.0, 2.0).word


def test_the_cost_of_a_map_is_known_between_bounds() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2)) * [3.0, 1.0] - 2.0
    p = of.PSDMap(X, score=([1.0, 1.0], 0.0), K=1.5, k=3.0)
    found = of.sweep(p, "K", (1.0, 1.5), width=2e-2)
    assert found.width <= 2e-2 and found.grade == "reported"
    low, high = found.band(1.07)
    assert low - 1e-9 <= p.at(K=1.07).solve().objective <= high + 1e-9
