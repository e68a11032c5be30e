"""Metrics against numbers worked out by hand and against the problem's own terms."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair import metrics

GROUPS = np.array(["a", "a", "a", "b", "b", "c"])
LABELS = np.array([0, 0, 1, 0, 1, 1])
X = np.array([[0.0], [1.0], [5.0], [2.0], [6.0], [9.0]])
CENTERS = np.array([[1.0], [6.0]])


@pytest.fixture
def soft():
    A = np.random.default_rng(0).random((6, 2))
    return A / A.sum(axis=1, keepdims=True)


def test_cost_by_hand():
    assert metrics.cost(X, CENTERS, LABELS) == pytest.approx((1 + 0 + 1 + 1 + 0 + 9) / 6)
    assert metrics.cost(X, CENTERS, LABELS, metric="l1") == pytest.approx(
        (1 + 0 + 1 + 1 + 0 + 3) / 6
    )
    assert metrics.cost(X, CENTERS, LABELS, metric="lp", p=3) == pytest.approx(
        (1 + 0 + 1 + 1 + 0 + 27) / 6
    )
    w = [1, 2, 3, 4, 5, 6]
    assert metrics.cost(X, CENTERS, LABELS, sample_weight=w) == pytest.approx(
        (1 + 0 + 3 + 4 + 0 + 54) / 21
    )


def test_soft_cost_is_the_declared_objective():
    p = of.FairAssignment(X, groups=GROUPS, centers=CENTERS)
    s = p.solve()
    assert metrics.cost(X, CENTERS, s["assignment"], soft=True) == pytest.approx(s.objective)
    assert metrics.cost(X, CENTERS, s["assignment"]) == pytest.approx(
        metrics.cost(X, CENTERS, np.argmax(s["assignment"], axis=1))
    )


def test_composition_by_hand():
    expected = [[2 / 3, 1 / 3], [1 / 3, 1 / 3], [0, 1 / 3]]
    np.testing.assert_allclose(metrics.composition(GROUPS, LABELS), expected)


def test_empty_cluster_is_nan_and_does_not_count():
    labels = np.where(LABELS == 1, 2, 0)
    shares = metrics.composition(GROUPS, labels)
    assert np.isnan(shares[:, 1]).all()
    np.testing.assert_allclose(shares[:, [0, 2]], metrics.composition(GROUPS, LABELS))
    two = np.isin(GROUPS, ["a", "b"])
    assert metrics.balance(GROUPS[two], labels[two]) == pytest.approx(0.5)


def test_balance_by_hand():
    two = np.isin(GROUPS, ["a", "b"])
    assert metrics.balance(GROUPS[two], LABELS[two]) == pytest.approx(0.5)
    assert metrics.balance(GROUPS, LABELS) == 0.0  # c is not in cluster 0
    weights = [1.0, 1.0, 1.0, 2.0, 0.5]
    assert metrics.balance(GROUPS[two], LABELS[two], sample_weight=weights) == pytest.approx(0.5)
    weights = [1.0, 1.0, 1.0, 2.0, 1.0]
    assert metrics.balance(GROUPS[two], LABELS[two], sample_weight=weights) == pytest.approx(1.0)


def test_gaps_by_hand():
    # fractions: a (2/3, 1/3), b (1/2, 1/2), c (0, 1)
    assert metrics.max_gap(GROUPS, LABELS) == pytest.approx(2 / 3)
    assert metrics.additive_gap(GROUPS, LABELS) == pytest.approx(4 / 3)


def test_hard_takes_the_argmax(soft):
    labels = soft.argmax(axis=1)
    for metric in (metrics.balance, metrics.additive_gap, metrics.max_gap):
        assert metric(GROUPS, soft) == metric(GROUPS, labels)
        assert metric(GROUPS, np.eye(2)[labels], soft=True) == pytest.approx(metric(GROUPS, labels))
        assert metric(GROUPS, soft, soft=True) != pytest.approx(metric(GROUPS, labels))


def test_soft_numbers_are_of_the_masses(soft):
    M = np.stack([soft[np.flatnonzero(g == GROUPS)].sum(axis=0) / 6 for g in "abc"])
    np.testing.assert_allclose(metrics.composition(GROUPS, soft, soft=True), M / M.sum(axis=0))
    assert metrics.balance(GROUPS, soft, soft=True) == pytest.approx(
        (M.min(axis=0) / M.max(axis=0)).min()
    )
    part = M / M.sum(axis=1, keepdims=True)
    apart = np.abs(part[:, None] - part[None])
    assert metrics.max_gap(GROUPS, soft, soft=True) == pytest.approx(apart.max())
    assert metrics.additive_gap(GROUPS, soft, soft=True) == pytest.approx(apart.sum(axis=2).max())


@pytest.mark.parametrize(
    ("rule", "measure"),
    [(of.additive_gap(0.2), metrics.additive_gap), (of.max_gap(0.1), metrics.max_gap)],
)
def test_rules_bound_what_the_metrics_measure(rule, measure):
    rng = np.random.default_rng(1)
    groups = rng.choice(["a", "b", "c"], 90)
    points = rng.normal(size=(90, 2)) + (groups == "a")[:, None]
    s = of.FairAssignment(points, groups=groups, centers=points[:4], fairness=rule).solve()
    # both rules bind on these data: neither looser nor tighter than what is measured
    assert measure(groups, s["assignment"], soft=True) == pytest.approx(rule.eps, abs=1e-7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.balance(GROUPS, LABELS[:5]), "does not fit"),
        (lambda: metrics.balance(GROUPS, LABELS - 1), "labels from -1"),
        (lambda: metrics.balance(GROUPS, LABELS + 0.5), "neither labels nor fractions"),
        (lambda: metrics.balance(np.full(6, "a"), LABELS), "one group only"),
        (lambda: metrics.cost(X, CENTERS, LABELS + 1), "there are 2 clusters"),
        (lambda: metrics.cost(X, CENTERS, np.ones((6, 3))), "does not fit"),
        (lambda: metrics.cost(X, [[np.nan], [0]], LABELS), "NaN"),
        (lambda: metrics.cost(X, CENTERS, np.array([])), "neither labels nor fractions"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(of.DataError, match=message):
        call()
