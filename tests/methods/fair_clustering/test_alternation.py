"""Alternation: monotone, Lloyd without fairness, fair at the end, warm-started."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from sklearn.cluster import KMeans

import optfair as of
from optfair import metrics
from optfair.core.verbs import ProblemVerbs
from optfair.methods.fair_clustering.algorithms.costs import best_centers
from optfair.methods.fair_clustering.alternation import alternate


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    groups = rng.choice(["a", "b", "c"], 240, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(240, 3)) + 1.5 * (groups == "a")[:, None]
    return X, groups, X[:4].copy()


@pytest.fixture(scope="module")
def fair(data):
    X, groups, centers = data
    return alternate(of.FairAssignment(X, groups=groups, centers=centers))


def test_without_fairness_it_is_lloyd(data):
    X, groups, centers = data
    plain = of.FairAssignment(X, groups=groups, centers=centers, fairness=None)
    ours = alternate(plain, tol=0.0, max_iter=200)
    lloyd = KMeans(4, init=centers, n_init=1, tol=0.0, max_iter=200).fit(X)
    assert ours.status == "converged" and ours.n_iter > 3
    assert ours.history[-1] == pytest.approx(lloyd.inertia_ / len(X), rel=1e-8)
    np.testing.assert_allclose(ours.centers, lloyd.cluster_centers_, atol=1e-8)
    np.testing.assert_array_equal(ours.labels, lloyd.labels_)


@pytest.mark.parametrize("metric", ["sqeuclidean", "l1"])
def test_monotone_fair_and_certified(data, metric):
    X, groups, centers = data
    result = alternate(of.FairAssignment(X, groups=groups, centers=centers, metric=metric))
    assert result.status == "converged" and result.n_iter > 2
    assert (np.diff(result.history) <= 0).all()
    assert result.history[-1] < result.history[0]
    assert result.history[-1] == result.solution.objective
    assert result.solution.is_optimal(1e-7)
    assert metrics.max_gap(groups, result.solution["assignment"], soft=True) <= 1e-7
    np.testing.assert_array_equal(result.problem.cost.centers, result.centers)


def test_stops_where_neither_step_improves(data):
    X, groups, centers = data
    end = alternate(of.FairAssignment(X, groups=groups, centers=centers), tol=0.0, max_iter=200)
    A = np.asarray(end.solution["assignment"])
    np.testing.assert_allclose(best_centers("sqeuclidean", X, A), end.centers, atol=1e-7)


def test_further_rules_hold_at_the_end(data):
    X, groups, centers = data
    p = of.FairAssignment(X, groups=groups, centers=centers, fairness=of.additive_gap(0.1))
    result = alternate(p.with_constraints(share=of.cluster_share(lower=0.2)))
    A = result.solution["assignment"]
    assert metrics.additive_gap(groups, A, soft=True) <= 0.1 + 1e-7
    assert np.asarray(A).mean(axis=0).min() >= 0.2 - 1e-7
    assert "share.lower" in result.problem.constraints


def test_each_step_starts_from_the_previous_one(data, monkeypatch):
    X, groups, centers = data
    given, returned = [], []
    original = ProblemVerbs.solve

    def spy(self, *args, **options):
        given.append(options["warm_start"])
        returned.append(original(self, *args, **options))
        return returned[-1]

    monkeypatch.setattr(ProblemVerbs, "solve", spy)
    alternate(of.FairAssignment(X, groups=groups, centers=centers), max_iter=5)
    assert given[0] is None
    assert len(given) >= 3
    assert all(start is s for start, s in zip(given[1:], returned, strict=False))


def test_weighted_rows_are_as_repeated_rows(data):
    X, groups, centers = data
    times = np.random.default_rng(0).integers(1, 4, len(X))
    one = of.FairAssignment(X, groups=groups, centers=centers, sample_weight=times)
    many = of.FairAssignment(
        np.repeat(X, times, 0), groups=np.repeat(groups, times), centers=centers
    )
    a, b = (alternate(p, tol=0.0, max_iter=6) for p in (one, many))
    np.testing.assert_allclose(a.history, b.history, rtol=1e-7)
    np.testing.assert_allclose(a.centers, b.centers, atol=1e-4)


def test_an_empty_cluster_gets_the_row_that_costs_most_and_is_reported(data):
    X, groups, centers = data
    far = np.vstack([centers[:3], [[1e3, 1e3, 1e3]]])
    plain = of.FairAssignment(X, groups=groups, centers=far, fairness=None)
    first = alternate(plain, max_iter=1)
    assert first.empty == (3,) and first.reseeded == ()
    assert "clusters 3" in repr(first)
    result = alternate(plain, max_iter=2)
    assert result.reseeded == ((1, 3),) and result.empty == ()
    spent = ((X - far[first.labels]) ** 2).sum(axis=1)
    np.testing.assert_array_equal(result.centers[3], X[spent.argmax()])
    assert "reseeded" in repr(result)
    fair = alternate(of.FairAssignment(X, groups=groups, centers=far))
    assert fair.reseeded and (np.diff(fair.history) <= 0).all()


def test_clusters_beyond_the_distinct_rows_stay_empty():
    X = np.repeat([[0.0], [1.0]], 6, axis=0)
    p = of.FairAssignment(X, groups=[0, 1] * 6, centers=[[0.0], [1.0], [5.0]])
    result = alternate(p)
    assert result.history[-1] == pytest.approx(0.0, abs=1e-12)
    assert result.empty == (2,) and result.reseeded == ()


def test_gaps_and_callback_follow_the_history(data):
    X, groups, centers = data
    seen = []
    result = alternate(
        of.FairAssignment(X, groups=groups, centers=centers),
        max_iter=3,
        callback=lambda i, s: seen.append((i, s.objective, s.gap)),
    )
    assert seen == list(zip((1, 2, 3), result.history, result.gaps, strict=True))
    assert max(result.gaps) <= 1e-9


def test_first_assignment_starts_from_the_given_solution(data, monkeypatch):
    X, groups, centers = data
    p = of.FairAssignment(X, groups=groups, centers=centers)
    few = of.FairAssignment(X[::2], groups=groups[::2], centers=centers).solve()
    given = []
    original = ProblemVerbs.solve

    def spy(self, *args, **options):
        given.append(options["warm_start"])
        return original(self, *args, **options)

    monkeypatch.setattr(ProblemVerbs, "solve", spy)
    alternate(p, max_iter=2, warm_start=few)
    assert given[0] is few and given[1] is not few


def test_no_cluster_is_empty_usually(fair):
    assert fair.empty == ()
    assert "empty" not in repr(fair)


def test_weighted_median_is_a_best_center():
    rng = np.random.default_rng(5)
    X, v = rng.normal(size=(15, 2)), rng.random((15, 3))
    found = best_centers("l1", X, v)
    for k in range(3):
        for j in range(2):
            costs = np.abs(X[:, j][:, None] - X[:, j]).T @ v[:, k]
            assert found[k, j] == X[costs.argmin(), j]


def test_max_iter_and_logging(data, caplog):
    X, groups, centers = data
    with caplog.at_level(logging.INFO, logger="optfair"):
        result = alternate(of.FairAssignment(X, groups=groups, centers=centers), max_iter=2)
    assert (result.status, result.n_iter) == ("max_iter", 2)
    assert sum("alternation" in line for line in caplog.messages) == 2


def test_silent_by_default_and_talks_when_asked(data, capsys):
    X, groups, centers = data
    p = of.FairAssignment(X, groups=groups, centers=centers)
    alternate(p, max_iter=2)
    assert capsys.readouterr() == ("", "")
    alternate(p, max_iter=2, verbose=2)
    out, err = capsys.readouterr()
    assert out == "" and "alternation 2: objective" in err


def test_time_limit_returns_what_there_is(data, monkeypatch):
    X, groups, centers = data
    clock = iter([0.0, *np.arange(0.0, 1e4, 1.0)])
    monkeypatch.setattr(
        "optfair.methods.fair_clustering.alternation.time.perf_counter", lambda: next(clock)
    )
    p = of.FairAssignment(X, groups=groups, centers=centers)
    result = alternate(p, time_limit=30.0, tol=0.0)
    assert result.status == "time_limit"
    assert result.n_iter >= 1


def test_interrupt_returns_what_there_is(data, monkeypatch):
    X, groups, centers = data
    original, calls = ProblemVerbs.solve, []

    def interrupted(self, *args, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *args, **options)

    monkeypatch.setattr(ProblemVerbs, "solve", interrupted)
    result = alternate(of.FairAssignment(X, groups=groups, centers=centers))
    assert (result.status, result.n_iter) == ("interrupted", 2)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda X, g, c: of.FairAssignment(X, groups=g, centers=c, metric="lp", p=3), {}, "'lp'"),
        (lambda X, g, c: of.FairAssignment(costs=np.ones((240, 2)), groups=g), {}, "precomputed"),
        (lambda X, g, c: "k-means", {}, "no FairAssignment"),
        (lambda X, g, c: of.FairAssignment(X, groups=g, centers=c), {"max_iter": 0}, "max_iter"),
        (lambda X, g, c: of.FairAssignment(X, groups=g, centers=c), {"tol": -1.0}, "tol"),
    ],
)
def test_what_cannot_be_alternated(data, make, options, message):
    with pytest.raises(of.OptfairError, match=message):
        alternate(make(*data), **options)
