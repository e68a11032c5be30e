"""Metrics of counterfactuals against brute force, and at their edges."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optfair as of
from optfair import metrics
from optfair.methods.group_counterfactuals import metrics as counterfactuals
from optfair.methods.group_counterfactuals.metrics import Target


def group(n: int = 30, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ rng.normal(size=(d, d)) + rng.normal(size=d) + 0.1 * rng.normal(size=(n, d))


def brute(X: np.ndarray, Z: np.ndarray) -> tuple[float, float]:
    ratios = [
        np.linalg.norm(Z[i] - Z[j]) / np.linalg.norm(X[i] - X[j])
        for i, j in combinations(range(len(X)), 2)
        if np.any(X[i] != X[j])
    ]
    return max(ratios), 1.0 / min(ratios)


@pytest.mark.parametrize("block", [1, 37, 10**7])
def test_constants_equal_those_of_all_pairs(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(counterfactuals, "BLOCK", block)
    X, Z = group()
    X[7], X[20] = X[3], X[11]  # duplicates are skipped, wherever the blocks fall
    found = metrics.lipschitz_constants(X, Z)
    upper, lower = brute(X, Z)
    assert found.upper == pytest.approx(upper, rel=1e-14)
    assert found.lower == pytest.approx(lower, rel=1e-14)
    for (i, j), ratio in ((found.upper_pair, upper), (found.lower_pair, 1 / lower)):
        measured = np.linalg.norm(Z[i] - Z[j]) / np.linalg.norm(X[i] - X[j])
        assert measured == pytest.approx(ratio, rel=1e-14)


def test_distortion_of_known_maps() -> None:
    X, _ = group()
    rng = np.random.default_rng(1)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    assert metrics.distortion(X, X + 5.0) == pytest.approx(0.0, abs=1e-12)
    assert metrics.distortion(X, X @ rotation) == pytest.approx(0.0, abs=1e-12)
    assert metrics.distortion(X, 4.0 * X) == pytest.approx(0.75)
    assert metrics.distortion(X, 0.25 * X) == pytest.approx(0.75)
    assert metrics.distortion(X, np.zeros_like(X)) == 1.0
    assert metrics.lipschitz_constants(X, np.zeros_like(X)).lower == np.inf


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 10.0))
def test_laws(seed: int, factor: float) -> None:
    X, Z = group(12, 3, seed)
    there, back = metrics.lipschitz_constants(X, Z), metrics.lipschitz_constants(Z, X)
    assert there.upper == pytest.approx(back.lower) and there.lower == pytest.approx(back.upper)
    assert max(there.upper, there.lower) >= 1.0
    scaled = metrics.lipschitz_constants(X, factor * Z)
    assert scaled.upper == pytest.approx(factor * there.upper)
    assert metrics.transport_cost(X, Z) == pytest.approx(metrics.transport_cost(Z, X))


def test_sample_constants_are_within_those_of_the_operator() -> None:
    X, _ = group(60, 3)
    A = np.diag([0.5, 1.0, 3.0])
    found = metrics.lipschitz_constants(X, X @ A)
    assert 1.0 < found.upper <= 3.0 and 1.0 < found.lower <= 2.0


def test_no_two_members_differ() -> None:
    X = np.ones((5, 2))
    found = metrics.lipschitz_constants(X, X + 1)
    assert np.isnan(found.upper) and np.isnan(found.lower) and found.upper_pair == (-1, -1)
    assert np.isnan(metrics.distortion(X[:1], X[:1]))


def test_weights_of_the_cost() -> None:
    assert metrics.transport_cost([[0.0], [0.0]], [[1.0], [2.0]], sample_weight=[3, 1]) == 7 / 4


def test_an_exact_projection_is_valid() -> None:
    # strict inequality calls a share of exact projections invalid, by their last digit
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(500, 10)), rng.normal(size=10)
    short = np.maximum(0, np.log(0.8 / 0.2) - (X @ w - 5.0))
    Z = X + np.outer(short / (w @ w), w)
    strict = np.mean(1 / (1 + np.exp(5.0 - Z @ w)) > 0.8)
    assert strict < 0.9
    assert metrics.validity(Z, (w, -5.0), probability=0.8) == 1.0
    assert metrics.validity(Z - 1e-6 * w, (w, -5.0), probability=0.8) < 0.5


def test_targets_of_all_kinds_agree() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    model = LogisticRegression().fit(X, np.where(X[:, 0] > 0.1, "yes", "no"))
    linear = of.features.LinearScore.of(model)
    for label in ("yes", "no"):
        a = Target(model, probability=0.7, target_class=label).margin(X)
        b = Target(linear, probability=0.7, target_class=label).margin(X)
        c = Target(model, threshold=np.log(0.7 / 0.3), target_class=label).margin(X)
        assert a == pytest.approx(b, abs=1e-12)
        assert ((a > 0) == (c > 0)).all()
    assert metrics.validity(X, model) + metrics.validity(X, model, target_class="no") == 1.0


def test_many_classes_need_a_name() -> None:
    from sklearn.naive_bayes import GaussianNB

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 2)), np.arange(90) % 3
    model = GaussianNB().fit(X, y)
    shares = [metrics.validity(X, model, target_class=c, probability=0.3) for c in range(3)]
    assert all(0 < s < 1 for s in shares)
    with pytest.raises(of.DeclarationError, match="give target_class"):
        metrics.validity(X, model)
    with pytest.raises(of.DeclarationError, match="no decision_function"):
        metrics.validity(X, model, target_class=1, threshold=0.0)
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(of.DeclarationError, match="not one number"):
        metrics.validity(X, LogisticRegression().fit(X, y), target_class=1, threshold=0.0)


def test_bad_input() -> None:
    X, Z = group()
    with pytest.raises(of.DataError, match="members and their counterfactuals"):
        metrics.transport_cost(X, Z[:-1])
    with pytest.raises(of.DataError, match="NaN"):
        metrics.distortion(X, np.full_like(X, np.nan))
    score = (np.ones(4), 0.0)
    with pytest.raises(of.DeclarationError, match=r"not inside \(0, 1\)"):
        metrics.validity(Z, score, probability=1.0)
    with pytest.raises(of.DeclarationError, match="not both"):
        metrics.validity(Z, score, probability=0.5, threshold=0.0)
    with pytest.raises(of.DeclarationError, match="no class 7"):
        metrics.validity(Z, score, target_class=7)
    with pytest.raises(of.DeclarationError, match="has no classes"):
        metrics.validity(Z, object())


def test_memory_does_not_grow_with_the_pairs() -> None:
    import tracemalloc

    X, Z = group(4000, 3)
    metrics.distortion(X[:10], Z[:10])  # load SciPy
    tracemalloc.start()
    metrics.distortion(X, Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 45e6  # the distances of all pairs would take 256 MB
