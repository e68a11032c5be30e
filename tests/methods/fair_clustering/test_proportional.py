"""Core violations against all coalitions, and greedy capture against the paper's loop and its bound."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import optfair as of

greedy_capture, core_violation = of.fair_clustering.greedy_capture, of.metrics.core_violation


def drawn(seed: int, n: int, m: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) + 6.0 * rng.integers(0, 3, (n, 1)), 6.0 * rng.random((m, 2))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_it_is_the_worst_of_all_coalitions(seed: int, unit: float) -> None:
    X, sites = drawn(seed, 9, 4)
    w = np.random.default_rng(seed).integers(1, 4, 9).astype(float)
    centers, labels = X[:3] + 0.5, np.arange(9) % 3
    d, own = cdist(X, sites), cdist(X, centers)
    for now, asked in ((own.min(axis=1), None), (own[np.arange(9), labels], labels)):
        worst = max(
            (now[list(s)] / d[list(s), y]).min()
            for size in range(1, 10)
            for s in combinations(range(9), size)
            if 3 * w[list(s)].sum() >= w.sum()
            for y in range(4)
        )
        found = core_violation(
            unit * X, unit * centers, candidates=unit * sites, assignment=asked, sample_weight=w
        )
        assert found == pytest.approx(worst, rel=1e-12)
        squared = core_violation(
            X, centers, candidates=sites, assignment=asked, sample_weight=w, metric="sqeuclidean"
        )
        assert squared == pytest.approx(worst**2, rel=1e-9)


def test_the_edges_of_coalitions() -> None:
    X = [[0.0], [0.0], [5.0], [5.0], [9.0], [9.0]]
    assert core_violation(X, [[0.0], [5.0], [9.0]]) == 0.0
    assert core_violation(X, [[0.0], [5.0], [8.0]]) == np.inf  # exactly a third, at 9
    assert core_violation(X, [[0.0], [5.0]]) == pytest.approx(0.0)  # a third of them is too few
    heavy = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    assert core_violation(X, [[0.0], [5.0]], sample_weight=heavy) == np.inf
    assert core_violation(X, [[0.0], [5.0]], sample_weight=np.array(heavy) / 7.0) == np.inf


def looped(X: Any, sites: Any, K: int) -> list[int]:
    """Run the paper's loop over all distances, one after the other."""
    d, left, chosen = cdist(X, sites), set(range(len(X))), list[int]()
    for i, y in zip(*np.unravel_index(np.argsort(d, axis=None), d.shape), strict=True):
        if y in chosen:
            left.discard(int(i))
        elif K * len(ball := {j for j in left if d[j, y] <= d[i, y]}) >= len(X):
            chosen.append(int(y))
            left -= ball
    return chosen


@pytest.mark.parametrize("seed", range(6))
def test_capture_is_that_of_the_paper_and_keeps_its_bound(seed: int) -> None:
    X, sites = drawn(seed, 40, 15)
    for K in (2, 3, 5):
        first = looped(X, sites, K)
        found = greedy_capture(X, K, candidates=sites)
        assert found[: len(first)].tolist() == first and np.unique(found).size == K
        for unit in (1e-6, 1e6):
            other = greedy_capture(unit * X, K, candidates=unit * sites)
            assert other.tolist() == found.tolist()
        worst = core_violation(X, sites[found], candidates=sites)
        assert worst <= 1.0 + np.sqrt(2.0)
        assert core_violation(X, sites[first], candidates=sites) >= worst or len(first) < K
        w = np.random.default_rng(seed).random(40) + 0.1
        weighted = greedy_capture(X, K, candidates=sites, sample_weight=w, metric="l1")
        assert core_violation(
            X, sites[weighted], candidates=sites, sample_weight=w, metric="l1"
        ) <= 1.0 + np.sqrt(2.0)
        doubled = greedy_capture(np.concatenate([X, X]), K, candidates=sites)
        assert doubled.tolist() == found.tolist()


def test_a_start_serves_those_whom_plain_centers_leave_out() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([100.0 * np.eye(2)[[0, 1]], 0.1 * rng.normal(size=(99, 2))])
    X[2:51] += 1.0
    plain, fair = X[[0, 1, 5]], X[greedy_capture(X, 3)]
    assert core_violation(X, plain) > 5.0 >= 1.0 + 2**0.5 >= core_violation(X, fair)
    model = of.FairKMeans(3, init=fair, fairness=None).fit(X, groups=np.arange(101) % 2)
    assert model.cluster_centers_.shape == (3, 2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"metric": "l3"}, "unknown metric 'l3'"),
        ({"candidates": [[1.0]]}, "candidates"),
        ({"sample_weight": [-1.0] * 9}, "sample_weight"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    X, _ = drawn(0, 9, 4)
    with pytest.raises(of.OptfairError) as e:
        core_violation(X, X[:3], **wrong)
    assert words in str(e.value)
    with pytest.raises(of.OptfairError) as e:
        greedy_capture(X, 3, **wrong)
    assert words in str(e.value)
    with pytest.raises(of.errors.DataError, match="labels"):
        core_violation(X, X[:3], assignment=[0, 1, 2] * 2 + [0, 1, 3])
    with pytest.raises(of.errors.DataError, match="n_clusters=10"):
        greedy_capture(X, 10)


@pytest.mark.parametrize(("n", "K"), [(4, 3), (5, 4), (7, 4)])
def test_balls_that_hold_everybody_leave_centers_for_those_they_serve_best(n: int, K: int) -> None:
    for seed in range(20):
        X = np.random.default_rng(seed).normal(size=(n, 2))
        chosen = of.fair_clustering.greedy_capture(X, K)
        assert np.unique(chosen).size == K and chosen.max() < n
