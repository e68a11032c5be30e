"""Vectorised nearest points: the same optima as the declared problems, with honest gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

import optfair as of
from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import Batch, Moves, linear
from optfair.methods.cluster_counterfactuals.algorithms.quadrics import quadratic
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.explainer import different_feature_sets
from optfair.methods.cluster_counterfactuals.nearest_points import joined
from optfair.methods.cluster_counterfactuals.partition import Partition

D = 4


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(25, D)) * 2.0


@pytest.fixture(scope="module")
def centers():
    return Partition.kmeans(np.random.default_rng(1).normal(size=(4, D)) * 3.0)


@pytest.fixture(scope="module")
def gaussians():
    rng = np.random.default_rng(2)
    B = rng.normal(size=(3, D, D))
    return Partition.gaussian(
        rng.normal(size=(3, D)) * 2.0, B @ B.transpose(0, 2, 1) + 0.2 * np.eye(D), [0.5, 0.3, 0.2]
    )


def declared(clusters, y, target, **options):
    """Return the optimum of the declared problem, None where it is infeasible."""
    p = ClusterCounterfactual(clusters, factual=y, target=target, **options)
    if p.inside:
        return 0.0
    try:
        return p.solve().objective
    except of.Infeasible:
        return None


def agree(found, clusters, rows, target, options, atol=1e-7):
    for i, y in enumerate(rows):
        expected = declared(clusters, y, target, **options)
        if expected is None:
            assert np.isinf(found.objective[i]) and np.isnan(found.points[i]).all()
        else:
            assert found.objective[i] == pytest.approx(expected, rel=1e-7, abs=atol)
            assert found.gap[i] <= 1e-9


METRIC = np.array([1.0, 4.0, 0.25, 2.0])
MATRIX = np.diag(METRIC) + 0.1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("metric", [None, METRIC, MATRIX], ids=["plain", "weights", "matrix"])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("against", ["pair", "all"])
def test_half_spaces_are_those_of_the_declared_problem(rows, centers, metric, bounded, against):
    target, free = 1, np.array([True, True, False, True])
    name = "metric" if metric is not None and metric.ndim == 2 else "weights"
    options = {"mask": free, "against": against, name: metric, "plausibility": 0.1}
    limits = (None, None)
    if bounded:
        options |= {"upper": 2.5, "increasing": ["x0"]}
        rows = rows[(rows <= 2.5).all(axis=1)]
        limits = np.where(np.arange(D) == 0, rows, -np.inf), np.full(rows.shape, 2.5)
    own = centers.labels(rows)
    for s in range(4):
        at = np.flatnonzero(own == s)
        if s == target or not at.size:
            continue
        rivals = [s] if against == "pair" else [k for k in range(4) if k != target]
        moves = Moves(free, metric, *(x if x is None else x[at] for x in limits))
        found = linear(rows[at], [centers.boundary(k, target, 0.1) for k in rivals], moves)
        agree(found, centers, rows[at], target, options)


@pytest.mark.parametrize("metric", [None, METRIC, MATRIX], ids=["plain", "weights", "matrix"])
def test_quadratics_are_those_of_the_declared_problem(rows, gaussians, metric):
    free = np.array([True, False, True, True])
    name = "metric" if metric is not None and metric.ndim == 2 else "weights"
    own = gaussians.labels(rows)
    for s, t in ((0, 1), (1, 2), (2, 0)):
        at = np.flatnonzero(own == s)
        found = quadratic(rows[at], gaussians.boundary(s, t, 0.5), Moves(free, metric))
        options = {"mask": free, name: metric, "plausibility": 0.5}
        agree(found, gaussians, rows[at], t, options)


def test_a_moved_boundary_shows_in_the_gap(rows, centers, monkeypatch):
    """The bound is recomputed: a projection that goes too far has a gap."""
    from optfair.methods.cluster_counterfactuals.algorithms import polyhedra as module

    true = module.nearest_in_half_space

    def too_far(Y, v, c, *, metric=None):
        found = true(Y, v, c, metric=metric)
        moved = found.points - 1e-3 * v
        return type(found)(moved, found.multipliers, found.reached, found.shortfall)

    monkeypatch.setattr(module, "nearest_in_half_space", too_far)
    boundary = centers.boundary(0, 1)
    outside = rows[boundary.value(rows) > 0.1]
    found = linear(outside, [boundary], Moves(np.ones(D, dtype=bool)))
    assert (found.gap > 1e-5).all()


def test_joined_picks_rows():
    first, second = Batch.empty(3, 2), Batch(np.ones((3, 2)), np.ones(3), np.zeros(3))
    found = joined([first, second], np.array([0, 1, 0]))
    assert np.isinf(found.objective[[0, 2]]).all() and found.objective[1] == 1.0


def test_search_leaves_some_feature_of_every_earlier_set_alone():
    costs = np.array([1.0, 1.5, 2.0, 4.0])

    def nearest(held):
        """The two cheapest features that are left."""
        left = [j for j in range(4) if j not in held][:2]
        return (float(costs[left].sum()), frozenset(left)) if len(left) == 2 else None

    found = [nearest(h) for h in different_feature_sets(nearest, 10)]
    assert [sorted(s) for _, s in found] == [[0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3]]
    assert [v for v, _ in found] == sorted(v for v, _ in found)
    assert different_feature_sets(lambda _: None, 3) == []


@pytest.mark.parametrize("metric", ["l2", "l1"])
@pytest.mark.parametrize("kind", ["whole", "one_hot"])
def test_integers_are_proved_or_not_called_optimal(
    kind: str, metric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = 2.0 * rng.normal(size=(80, 5))
    X[:, 2:] = np.round(X[:, 2:]) if kind == "whole" else np.eye(3)[rng.integers(0, 3, 80)]
    given: Any = {"whole": [2, 3, 4]} if kind == "whole" else {"one_hot": [[2, 3, 4]]}
    model = KMeans(3, n_init=1, random_state=0).fit(X)
    explainer = of.ClusterExplainer(model, distance=metric, **given)
    many = explainer.explain_many(X[:4])
    assert set(many.status) == {"optimal"} and (many.gap <= 1e-6).all()
    for i in range(4):
        assert explainer.explain(X[i]).best.distance == pytest.approx(many.distance[i], abs=1e-6)

    def open_tree(*given: Any, time_limit: float) -> Any:
        assert 0.0 < time_limit < 10.0  # what solving has left of the limit for one row
        raise of.SolverFailure("the tree of cases is not closed in time")

    # on a solver's word alone no point is the nearest; cases over cones are a proof at once
    monkeypatch.setattr("optfair.core.verbs.CertificateVerbs.prove", open_tree)
    said = {"optimal"} if metric == "l2" else {"bounded"}
    assert set(explainer.explain_many(X[:2]).status) == said
