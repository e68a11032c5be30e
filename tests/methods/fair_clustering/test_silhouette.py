"""The silhouette against hand computations, its own definition, and samples."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair import metrics

X = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0], [0.0, 10.0], [30.0, 40.0]])
LABELS = np.array([0, 0, 1, 1, 2])


def by_definition(points, labels, distance):
    """The mean of (b - a) / max(a, b), row by row."""
    D = distance(points[:, None] - points[None])
    silhouettes = []
    for i, own in enumerate(labels):
        mates = (labels == own) & (np.arange(labels.size) != i)
        if not mates.any():
            silhouettes.append(0.0)
            continue
        a = D[i, mates].mean()
        b = min(D[i, labels == k].mean() for k in set(labels.tolist()) - {own})
        silhouettes.append((b - a) / max(a, b))
    return float(np.mean(silhouettes))


EUCLIDEAN = lambda d: np.sqrt((d**2).sum(axis=-1))


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 3000)
    return rng.normal(size=(3000, 3)) + 1.5 * np.eye(4, 3)[labels] * 2, labels


def test_by_hand():
    # distances: rows 0 and 1 are 5 apart, 2 and 3 sqrt(40); row 4 is alone and counts 0
    a = [5, 5, np.sqrt(40), np.sqrt(40)]
    b = [10, (5 + np.sqrt(45)) / 2, 7.5, (10 + np.sqrt(45)) / 2]
    expected = sum((u - v) / max(u, v) for u, v in zip(b, a, strict=True)) / 5
    assert metrics.silhouette(X, LABELS) == pytest.approx(expected, abs=1e-12)


def test_distances_are_not_squared():
    # on a line: a = 1, b = 3 and 4 (of squares 1, 9 and 16), for both rows of cluster 0
    points, labels = [[0.0], [1.0], [4.0]], [0, 0, 1]
    assert metrics.silhouette(points, labels) == pytest.approx((3 / 4 + 2 / 3) / 3)
    squared = metrics.silhouette(points, labels, metric="sqeuclidean")
    assert squared == pytest.approx((15 / 16 + 8 / 9) / 3)


@pytest.mark.parametrize(
    ("metric", "distance"),
    [
        ("euclidean", EUCLIDEAN),
        ("sqeuclidean", lambda d: (d**2).sum(axis=-1)),
        ("l1", lambda d: np.abs(d).sum(axis=-1)),
    ],
)
def test_definition(blobs, metric, distance):
    points, labels = blobs[0][:200], blobs[1][:200]
    expected = by_definition(points, labels, distance)
    assert metrics.silhouette(points, labels, metric=metric) == pytest.approx(expected, abs=1e-10)


def test_labels_may_leave_numbers_out(blobs):
    points, labels = blobs[0][:200], blobs[1][:200]
    assert metrics.silhouette(points, 3 * labels + 1) == metrics.silhouette(points, labels)


def test_samples_are_seeded_and_near_the_whole(blobs):
    points, labels = blobs
    whole = metrics.silhouette(points, labels)
    one = metrics.silhouette(points, labels, sample_size=1000, random_state=1)
    assert one == metrics.silhouette(points, labels, sample_size=1000, random_state=1)
    generator = np.random.default_rng(1)
    assert one == metrics.silhouette(points, labels, sample_size=1000, random_state=generator)
    others = [
        metrics.silhouette(points, labels, sample_size=1000, random_state=s) for s in range(8)
    ]
    assert len(set(others)) == 8
    # silhouettes lie in [-1, 1]: the standard error of 1000 rows is at most 0.032
    assert max(abs(s - whole) for s in others) <= 0.05
    assert metrics.silhouette(points, labels, sample_size=3000, random_state=0) == pytest.approx(
        whole, abs=1e-12
    )


def test_a_fair_clustering_is_less_separated():
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True, l2=True)
    centers = X[[0, 1, 2, 3]]
    fair = of.FairAssignment(X, groups=sex, centers=centers).solve()["assignment"].argmax(axis=1)
    nearest = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    assert -1 <= metrics.silhouette(X, fair) < metrics.silhouette(X, nearest) <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.silhouette(X, LABELS[:4]), "labels does not fit the rows"),
        (lambda: metrics.silhouette(X, np.eye(5)), r"not one per row(.|\n)*argmax\(axis=1\)"),
        (lambda: metrics.silhouette(X, LABELS + 0.5), "type float64"),
        (lambda: metrics.silhouette(X, LABELS.astype(str)), "one integer per row"),
        (lambda: metrics.silhouette(X, LABELS - 1), "labels has -1(.|\n)*row 0"),
        (lambda: metrics.silhouette(X, np.zeros(5, int)), "rows are in one cluster only"),
        (lambda: metrics.silhouette(X, np.arange(5)), "5 rows are in 5 clusters"),
        (lambda: metrics.silhouette(X[:1], [0]), "one cluster only"),
        (lambda: metrics.silhouette(X[:0], []), "empty"),
        (lambda: metrics.silhouette(X * np.nan, LABELS), "NaN"),
        (lambda: metrics.silhouette(X, LABELS, metric="euclid"), "did you mean 'euclidean'"),
        (lambda: metrics.silhouette(X, LABELS, sample_size=6), "sample_size is 6(.|\n)*5 rows"),
        (lambda: metrics.silhouette(X, LABELS, sample_size=2), "from 3 to 5"),
        (lambda: metrics.silhouette(X, LABELS, sample_size=0.5), "sample_size is 0.5"),
        (lambda: metrics.silhouette(X, LABELS, sample_size=True), "sample_size is True"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(of.DataError, match=message):
        call()


def test_a_sample_may_lose_clusters():
    labels = np.zeros(1000, int)
    labels[0] = 1
    points = np.arange(1000.0)[:, None]
    assert metrics.silhouette(points, labels) < 1
    with pytest.raises(of.DataError, match=r"of the sample are in one cluster(.|\n)*sample_size"):
        metrics.silhouette(points, labels, sample_size=5, random_state=0)
    with pytest.raises(of.DataError, match="3 rows of the sample are in 3 clusters"):
        metrics.silhouette(points, np.arange(1000) // 2, sample_size=3, random_state=0)
