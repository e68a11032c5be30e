"""p-SHAP: the axioms, special couplings, the closed form, and the estimator with its error."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from optfair.errors import DataError, DeclarationError, NotInstalled
from optfair.methods.sparse_counterfactuals.couplings import (
    aligned_coupling,
    random_coupling,
    uniform_coupling,
)
from optfair.methods.sparse_counterfactuals.shapley import coalition_values, members, p_shap

Floats = np.ndarray


def score(rows: Floats) -> Floats:
    """Interactions of all orders, and no symmetry."""
    d = rows.shape[1]
    return np.sin(rows @ np.arange(1.0, d + 1)) + rows[:, 0] * rows[:, -1] + rows.prod(axis=1)


def by_permutations(f: Callable[[Floats], Floats], x: Floats, r: Floats, share: Floats) -> Floats:
    """Shapley values of one row by their other definition: mean gain over all orders."""
    d = x.size
    phi = np.zeros(d)
    for order in itertools.permutations(range(d)):
        z = r.copy()
        before = share @ f(z)
        for k in order:
            z[:, k] = x[k]
            after = share @ f(z)
            phi[k] += after - before
            before = after
    return phi / math.factorial(d)


@st.composite
def settings_of(draw: Any, most: int = 4) -> tuple[Floats, Floats, Floats]:
    """Rows with many equal cells, counterfactuals and a coupling with zeros."""
    n, m, d = (draw(st.integers(1, top)) for top in (3, 3, most))
    grid = st.integers(-1, 1).map(float)
    x = np.array(draw(st.lists(grid, min_size=n * d, max_size=n * d))).reshape(n, d)
    r = np.array(draw(st.lists(grid, min_size=m * d, max_size=m * d))).reshape(m, d)
    mass = draw(st.lists(st.integers(0, 3), min_size=n * m, max_size=n * m))
    p = np.array(mass, dtype=float).reshape(n, m)
    p[:, 0] += p.sum(axis=1) == 0
    return x, r, p / p.sum()


@given(settings_of())
def test_values_are_mean_gains_over_all_orders(case: tuple[Floats, Floats, Floats]) -> None:
    x, r, p = case
    found = p_shap(score, x, r, p, method="exact").values
    for i in range(len(x)):
        expected = by_permutations(score, x[i], r, p[i] / p[i].sum())
        np.testing.assert_allclose(found[i], expected, atol=1e-12)


@given(settings_of(most=6))
def test_efficiency(case: tuple[Floats, Floats, Floats]) -> None:
    x, r, p = case
    found = p_shap(score, x, r, p)
    baseline = (p / p.sum(axis=1, keepdims=True)) @ score(r)
    np.testing.assert_allclose(found.baseline, baseline, atol=1e-12)
    np.testing.assert_allclose(found.values.sum(axis=1), score(x) - baseline, atol=1e-10)


@given(settings_of(), st.integers(0, 3))
def test_a_null_player_gets_nothing(case: tuple[Floats, Floats, Floats], column: int) -> None:
    x, r, p = case
    k = column % x.shape[1]
    blind = lambda rows: score(np.delete(rows, k, axis=1)) if rows.shape[1] > 1 else rows[:, 0] * 0
    assert np.abs(p_shap(blind, x, r, p).values[:, k]).max() <= 1e-12


@given(settings_of())
def test_a_feature_that_agrees_with_all_counterfactuals_gets_nothing(
    case: tuple[Floats, Floats, Floats],
) -> None:
    x, r, p = case
    r[:, 0] = x[0, 0]
    assert p_shap(score, x[:1], r, p[:1] / p[:1].sum()).values[0, 0] == 0.0


@given(settings_of(most=4), st.integers(0, 10**6))
def test_symmetric_features_get_the_same(case: tuple[Floats, Floats, Floats], seed: int) -> None:
    x, r, p = case
    d = x.shape[1]
    j, k = np.random.default_rng(seed).integers(d, size=2)
    x[:, j], r[:, j] = x[:, k], r[:, k]
    even = lambda rows: np.cos(rows.sum(axis=1)) + (rows**2).sum(axis=1)
    values = p_shap(even, x, r, p).values
    np.testing.assert_allclose(values[:, j], values[:, k], atol=1e-12)


@given(settings_of(), st.floats(-2, 2), st.floats(-2, 2))
def test_linear_in_the_model(case: tuple[Floats, Floats, Floats], a: float, b: float) -> None:
    x, r, p = case
    other = lambda rows: np.exp(-(rows**2).sum(axis=1))
    both = p_shap(lambda rows: a * score(rows) + b * other(rows), x, r, p).values
    apart = a * p_shap(score, x, r, p).values + b * p_shap(other, x, r, p).values
    np.testing.assert_allclose(both, apart, atol=1e-10)


def test_b_shap_is_the_alignment_and_rb_shap_the_uniform_coupling() -> None:
    rng = np.random.default_rng(0)
    x, r = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    aligned = p_shap(score, x, r, aligned_coupling(3, 3)).values
    uniform = p_shap(score, x, r, uniform_coupling(3, 3)).values
    for i in range(3):
        np.testing.assert_allclose(aligned[i], by_permutations(score, x[i], r[[i]], np.ones(1)))
        np.testing.assert_allclose(uniform[i], by_permutations(score, x[i], r, np.full(3, 1 / 3)))


def test_the_closed_form_of_a_linear_score_is_the_exact_value() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    model = LogisticRegression().fit(X, X[:, 0] + X[:, 1] > 0)
    p = rng.random((3, 4))
    for target in (True, False):
        options = {"output": "decision_function", "target_class": target}
        closed = p_shap(model, X[:3], X[3:7], p, **options)
        exact = p_shap(model, X[:3], X[3:7], p, method="exact", **options)
        assert (closed.method, exact.method) == ("linear", "exact")
        np.testing.assert_allclose(closed.values, exact.values, atol=1e-12)
    # the probability is not linear in the features
    assert p_shap(model, X[:3], X[3:7], p).method == "exact"
    with pytest.raises(DeclarationError, match="closed form needs a linear score"):
        p_shap(model, X[:3], X[3:7], p, method="linear")


def test_the_estimator_is_exact_where_it_sees_all_coalitions() -> None:
    rng = np.random.default_rng(0)
    x, r, p = rng.normal(size=(3, 5)), rng.normal(size=(4, 5)), rng.random((3, 4))
    exact, sampled = (p_shap(score, x, r, p, method=m) for m in ("exact", "sampled"))
    np.testing.assert_allclose(sampled.values, exact.values, atol=1e-9)
    np.testing.assert_allclose(sampled.baseline, exact.baseline, atol=1e-12)
    assert sampled.sampled
    assert sampled.standard_error.max() <= 1e-9


def test_the_estimator_honours_the_weights_of_the_coupling() -> None:
    rng = np.random.default_rng(0)
    x, r = rng.normal(size=(1, 4)), rng.normal(size=(2, 4))
    heavy = p_shap(score, x, r, [[0.9, 0.1]], method="sampled").values
    even = p_shap(score, x, r, [[0.5, 0.5]], method="sampled").values
    np.testing.assert_allclose(
        heavy[0], by_permutations(score, x[0], r, np.array([0.9, 0.1])), atol=1e-9
    )
    assert np.abs(heavy - even).max() > 0.05


def test_the_estimator_is_within_its_error() -> None:
    rng = np.random.default_rng(0)
    d = 13
    x, r, p = rng.normal(size=(4, d)), rng.normal(size=(2, d)), rng.random((4, 2))
    wave = lambda rows: (
        np.tanh(rows @ np.linspace(-1, 1, d)) * (1 + rows[:, 0]) + rows[:, 1:4].prod(1)
    )
    exact = p_shap(wave, x, r, p, exact_features=d)
    sampled = p_shap(wave, x, r, p, samples=1200, random_state=0)
    assert (exact.method, sampled.method) == ("exact", "sampled")
    away = np.abs(sampled.values - exact.values)
    rms = np.sqrt((sampled.standard_error**2).mean())
    assert 0 < rms < 0.1
    assert np.sqrt((away**2).mean()) <= 1.5 * rms
    assert np.sqrt((away**2).mean()) >= rms / 3
    # efficiency holds in every estimate
    np.testing.assert_allclose(sampled.values.sum(axis=1), exact.values.sum(axis=1), atol=1e-9)
    more = p_shap(wave, x, r, p, samples=4800, random_state=0)
    assert more.standard_error.mean() < 0.75 * sampled.standard_error.mean()


def test_the_estimator_keeps_small_values_of_many_features() -> None:
    # shap's default would select ten features and set the others to zero
    x, r = np.ones((1, 16)), np.zeros((1, 16))
    found = p_shap(lambda rows: rows.sum(axis=1), x, r, [[1.0]], samples=400).values
    np.testing.assert_allclose(found, 1.0, atol=1e-9)


def test_the_estimator_leaves_the_global_generator_alone() -> None:
    x, r = np.ones((1, 16)), np.zeros((1, 16))
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.rand()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    first = p_shap(score, x, r, [[1.0]], samples=300, random_state=5)
    assert np.random.rand() == expected  # noqa: NPY002
    again = p_shap(score, x, r, [[1.0]], samples=300, random_state=5)
    assert np.array_equal(first.values, again.values)


def test_too_many_features_name_the_estimator_and_its_error() -> None:
    x, r = np.zeros((1, 20)), np.ones((1, 20))
    with pytest.raises(DataError, match="differ in 20 features, more than 12") as e:
        p_shap(score, x, r, [[1.0]], method="exact")
    assert 'method="sampled"' in e.value.remedy
    assert "standard error" in e.value.remedy
    # what counts is how many differ
    x[0, 5:] = 1.0
    assert p_shap(score, x, r, [[1.0]]).method == "exact"


def test_only_rows_with_too_many_features_are_estimated() -> None:
    rng = np.random.default_rng(0)
    x, r = rng.normal(size=(3, 14)), rng.normal(size=(2, 14))
    x[1, 4:] = r[1, 4:]
    p = np.array([[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]])
    found = p_shap(score, x, r, p, random_state=0)
    assert found.method == "mixed"
    assert "standard error" in repr(found)
    assert (found.standard_error[1] == 0).all()
    assert (found.standard_error[[0, 2]].max(axis=1) > 0).all()
    exact = p_shap(score, x[[1]], r, p[[1]], method="exact")
    np.testing.assert_allclose(found.values[1], exact.values[0])
    np.testing.assert_allclose(
        found.values.sum(axis=1), score(x) - p @ score(r) / p.sum(axis=1), atol=1e-9
    )


def test_missing_shap_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shap.explainers._kernel", None)
    with pytest.raises(NotInstalled, match=r"optfair\[explain\]"):
        p_shap(score, [[0.0]], [[1.0]], [[1.0]], method="sampled")


@pytest.mark.parametrize("samples", [10, 0, 100.5, True])
def test_samples_must_feed_the_regressions(samples: object) -> None:
    with pytest.raises(DeclarationError, match="too few coalitions"):
        p_shap(score, np.zeros((1, 4)), np.ones((1, 4)), [[1.0]], method="sampled", samples=samples)


def test_batches_change_nothing() -> None:
    rng = np.random.default_rng(0)
    x, r = rng.integers(0, 3, size=(6, 5)), rng.integers(0, 3, size=(4, 5))
    share = np.full((6, 4), 0.25)
    f = lambda codes: score(codes.astype(float))
    whole = coalition_values(f, x, r, share)
    for memory in (1, 500, 20_000):
        np.testing.assert_allclose(coalition_values(f, x, r, share, memory=memory), whole)


def test_equal_rows_are_asked_once() -> None:
    x = np.zeros((1, 4))
    r = np.eye(4)[[0, 0, 1, 1, 2, 2, 3, 3]]
    asked = p_shap(score, x, r, uniform_coupling(1, 8)).evaluations
    assert asked == 8 + 5  # the counterfactuals, then the origin and four unit vectors


def test_categories_go_through_the_users_pipeline() -> None:
    x = pd.DataFrame({"age": [20.0], "job": ["none"]})
    r = pd.DataFrame({"age": [40.0], "job": ["full"]})
    seen = []

    def model(rows: pd.DataFrame) -> Floats:
        seen.append(set(rows["job"]))
        return rows["age"].to_numpy() * (1.0 + (rows["job"] == "full").to_numpy())

    found = p_shap(model, x, r, [[1.0]])
    assert found.values.tolist() == [[-30.0, -30.0]]
    assert set().union(*seen) == {"none", "full"}
    by_estimate = p_shap(model, x, r, [[1.0]], method="sampled")
    np.testing.assert_allclose(by_estimate.values, found.values, atol=1e-9)


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'exact'"):
        p_shap(score, [[0.0]], [[1.0]], [[1.0]], method="exat")


def test_a_forest_spends_its_time_on_predictions() -> None:
    """100 rows, 9 features, a permutation: at most 3 times the model's own time."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 9))
    y = X @ rng.normal(size=9) + X[:, 0] * X[:, 1] > 0
    model = RandomForestClassifier(random_state=0, n_jobs=1).fit(X, y)
    x, r = X[~y][:100], X[y][:100]
    p = random_coupling(100, 100, rng)
    inputs = np.where(members(9)[None], x[:, None, :], r[p.argmax(axis=1)][:, None, :])
    inputs = inputs.reshape(-1, 9)
    own, ours = [], []
    for _ in range(3):
        begin = time.process_time()
        model.predict_proba(inputs)
        middle = time.process_time()
        found = p_shap(model, x, r, p)
        own.append(middle - begin)
        ours.append(time.process_time() - middle)
    assert found.evaluations == len(inputs) + 100
    assert min(ours) <= 3.0 * min(own)
