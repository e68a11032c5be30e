"""FCA and FCA-C as printed: blocks, the set W, and how far from the exact assignment it ends."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.backends.structured.entropic import entropic_plan
from optfair.estimators.alignment import _assignment, _blocks, _coupled, _moved, printed_alignment


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(2)
    groups = (rng.random(260) < 0.65).astype(int)
    X = rng.normal(size=(260, 3)) + 1.2 * groups[:, None]
    return X, groups


def one_step(X, groups, centers, free_share, weight="paper"):
    sides = [np.flatnonzero(groups == g) for g in (0, 1)]
    blocks = _blocks(sides, len(X), np.random.default_rng(0))
    pi0 = sides[0].size / len(X)
    pairs = _coupled(
        X, blocks, centers, pi0, free_share, "network-simplex", 0.01, np.inf, first_iteration=True
    )
    return pairs, pi0


def test_blocks_hold_every_row_once_and_both_groups():
    sides = [np.arange(7), np.arange(7, 30)]
    blocks = _blocks(sides, 8, np.random.default_rng(0))
    assert len(blocks) == 4
    for k in (0, 1):
        assert sorted(np.concatenate([b[k] for b in blocks]).tolist()) == sides[k].tolist()
    assert max(len(b[1]) for b in blocks) - min(len(b[1]) for b in blocks) <= 1
    assert len(_blocks(sides, 2, np.random.default_rng(0))) == 7  # not more than the smaller group


def test_one_block_is_the_kantorovich_problem_with_the_printed_weight(data):
    X, groups = data
    centers = X[:4]
    pairs, pi0 = one_step(X, groups, centers, 0.0)
    p = of.KantorovichCoupling(
        X[groups == 0], X[groups == 1], centers=centers, transport_weight="paper"
    )
    x, y = X[pairs.first], X[pairs.second]
    aligned = pi0 * x + (1 - pi0) * y
    cost = 2 * pi0 * (1 - pi0) * ((x - y) ** 2).sum(axis=1) + (
        (aligned[:, None] - centers) ** 2
    ).sum(axis=2).min(axis=1)
    assert pairs.mass @ cost == pytest.approx(p.solve().objective, rel=1e-9)
    A = _assignment(X, pairs, centers, pi0)
    np.testing.assert_allclose(A.sum(axis=1), 1.0)
    assert metrics.max_gap(groups, A, soft=True) <= 1e-9


def test_w_is_the_given_share_of_the_most_expensive_pairs(data):
    X, groups = data
    centers = X[:4]
    none, _ = one_step(X, groups, centers, 0.0)
    some, pi0 = one_step(X, groups, centers, 0.3)
    everything, _ = one_step(X, groups, centers, 1.0)
    assert not none.free.any() and some.free.any() and not some.free.all()
    p = of.KantorovichCoupling(
        X[groups == 0], X[groups == 1], centers=centers, transport_weight="paper"
    )
    bar = np.quantile(p.cost, 0.7)
    place = np.cumsum(groups == 0) - 1, np.cumsum(groups == 1) - 1
    eta = p.cost[place[0][some.first], place[1][some.second]]
    np.testing.assert_array_equal(some.free, eta > bar)
    # nothing in the printed step holds the mass in W to the share: the plan moves there
    assert some.mass[some.free].sum() > 2 * 0.3
    # with all pairs in W (but the cheapest, which is not above the quantile) it is k-means
    assert everything.free.mean() > 0.95
    A = _assignment(X, everything, centers, pi0)
    nearest = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    assert (A.argmax(axis=1) == nearest).mean() > 0.97


def test_the_center_step_does_not_raise_the_printed_objective(data):
    X, groups = data
    centers = X[:4]
    for share in (0.0, 0.4):
        pairs, pi0 = one_step(X, groups, centers, share)

        def objective(mu, pairs=pairs, pi0=pi0):
            x, y = X[pairs.first], X[pairs.second]
            near = lambda z: ((z[:, None] - mu) ** 2).sum(axis=2).min(axis=1)
            together = near(pi0 * x + (1 - pi0) * y)
            apart = pi0 * near(x) + (1 - pi0) * near(y)
            return pairs.mass @ np.where(pairs.free, apart, together)

        moved = _moved(X, pairs, centers, pi0)
        assert objective(moved) < objective(centers)
        np.testing.assert_allclose(_moved(X, pairs, moved, pi0), moved, atol=1e-6)


def test_paper_against_exact_through_the_estimator(data):
    X, groups = data
    paper = of.FairKMeans(4, algorithm="paper", partition_size=100, init=X[:4], random_state=0).fit(
        X, groups=groups
    )
    exact = of.FairKMeans(4, init=X[:4]).fit(X, groups=groups)
    assert paper.status_ == "converged"
    assert paper.gap_ >= 0 and exact.gap_ <= 1e-9
    # blocks of unequal sizes and random splits leave a small soft gap; none with one block
    whole = of.FairKMeans(4, algorithm="paper", partition_size=260, init=X[:4]).fit(
        X, groups=groups
    )
    assert metrics.max_gap(groups, whole.soft_assignment_, soft=True) <= 1e-9
    assert whole.gap_ > 0  # the printed weight solves another transport problem
    assert paper.cost_ == pytest.approx(min(paper.history_))
    plan = whole.coupling_
    n0, n1 = (groups == 0).sum(), (groups == 1).sum()
    np.testing.assert_allclose(plan.sum(axis=1), 1 / n0)
    np.testing.assert_allclose(plan.sum(axis=0), 1 / n1)
    # unseen rows go where the exact assignment at the same centers would put them
    exact_there = np.asarray(whole.solution_["assignment"])
    whole_rows = exact_there.max(axis=1) > 1 - 1e-9
    predicted = whole.predict(X, groups=groups)
    np.testing.assert_array_equal(predicted[whole_rows], exact_there.argmax(axis=1)[whole_rows])


def test_control_of_the_gap(data):
    X, groups = data
    gaps = []
    for eps in (0.0, 0.02, 0.1):
        model = of.FairKMeans(
            4,
            algorithm="paper",
            fairness=of.additive_gap(2 * eps),
            partition_size=260,
            init=X[:4],
        ).fit(X, groups=groups)
        gaps.append(metrics.additive_gap(groups, model.soft_assignment_, soft=True))
        exact = of.FairKMeans(4, fairness=of.additive_gap(2 * eps), init=X[:4]).fit(
            X, groups=groups
        )
        assert metrics.additive_gap(groups, exact.soft_assignment_, soft=True) <= 2 * eps + 1e-7
    assert gaps[0] <= 1e-9 < gaps[1] < gaps[2]


def test_sinkhorn_is_an_approximation(data):
    X, groups = data
    rng = np.random.default_rng(0)
    C = rng.random((20, 30))
    exact = of.KantorovichCoupling(cost=C).solve().objective
    costs = []
    for regularization in (0.5, 0.05, 0.01):
        plan = entropic_plan(C, regularization)
        np.testing.assert_allclose(plan.sum(axis=1), 1 / 20, rtol=1e-12)
        np.testing.assert_allclose(plan.sum(axis=0), 1 / 30, rtol=2e-2)
        assert (plan > 0).all()
        costs.append((plan * C).sum())
    assert costs[0] > costs[1] > costs[2] > exact * (1 - 1e-3)
    assert costs[2] < 1.1 * exact
    runs = {
        coupling: printed_alignment(
            X,
            groups,
            X[:4],
            coupling=coupling,
            partition_size=260,
            rng=np.random.default_rng(0),
            max_iter=3,
        )
        for coupling in ("network-simplex", "sinkhorn")
    }
    assert runs["sinkhorn"].plan.nnz > 2 * runs["network-simplex"].plan.nnz
    assert runs["sinkhorn"].history[0] == pytest.approx(
        runs["network-simplex"].history[0], rel=0.05
    )


def test_a_time_limit_keeps_one_iteration(data):
    X, groups = data
    run = printed_alignment(
        X, groups, X[:4], partition_size=100, time_limit=0.0, rng=np.random.default_rng(0)
    )
    assert run.status == "time_limit" and len(run.history) == 1


@pytest.mark.parametrize(
    ("parameters", "fit", "message"),
    [
        ({"metric": "l1"}, {}, "metric is 'l1'"),
        ({"fairness": of.balance(0.2)}, {}, "fairness is Balance"),
        ({}, {"sample_weight": np.arange(1.0, 261.0)}, "different weights"),
        ({}, {"groups": np.arange(260) % 3}, "3 groups"),
    ],
)
def test_what_the_printed_algorithm_cannot_do(data, parameters, fit, message):
    X, groups = data
    model = of.FairKMeans(4, algorithm="paper", n_init=1, **parameters)
    with pytest.raises(of.DeclarationError, match=message):
        model.fit(X, **{"groups": groups, **fit})
