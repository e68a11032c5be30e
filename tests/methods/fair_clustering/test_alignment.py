"""FCA and FCA-C as printed: blocks, the set W, and how far from the exact assignment it ends."""

from __future__ import annotations

import threading
import time
import warnings

import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.methods.fair_clustering import alignment, coupling
from optfair.methods.fair_clustering.alignment import (
    _assignment,
    _blocks,
    _coupled,
    _moved,
    column_error,
    entropic_plan,
    printed_alignment,
)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(2)
    groups = (rng.random(260) < 0.65).astype(int)
    X = rng.normal(size=(260, 3)) + 1.2 * groups[:, None]
    return X, groups


def one_step(X, groups, centers, free_share):
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


def eta(X, i, j, centers, pi0):
    """The printed cost of pairs, line 6 of Algorithm 2."""
    x, y = X[i], X[j]
    aligned = pi0 * x + (1 - pi0) * y
    return 2 * pi0 * (1 - pi0) * ((x - y) ** 2).sum(axis=-1) + (
        (aligned[..., None, :] - centers) ** 2
    ).sum(axis=-1).min(axis=-1)


@pytest.mark.parametrize("partition_size", [260, 90])
def test_w_follows_the_moved_centers_before_rows_are_assigned(data, partition_size, monkeypatch):
    X, groups = data
    share, seen = 0.2, []
    monkeypatch.setattr(
        "optfair.methods.fair_clustering.alignment._assignment",
        lambda X, pairs, centers, pi0: (
            seen.append((pairs, centers)) or _assignment(X, pairs, centers, pi0)
        ),
    )
    printed_alignment(
        X,
        groups,
        X[:4],
        free_share=share,
        partition_size=partition_size,
        max_iter=2,
        rng=np.random.default_rng(0),
    )
    sides = [np.flatnonzero(groups == g) for g in (0, 1)]
    blocks = _blocks(sides, partition_size, np.random.default_rng(0))
    pi0 = sides[0].size / len(X)
    assert len(seen) == 2 and len(blocks) == round(260 / partition_size)
    changed = False
    for (pairs, centers), old in zip(seen, (X[:4], seen[0][1]), strict=True):
        for i, j in blocks:
            own = np.isin(pairs.first, i)
            bar, before = (
                np.quantile(eta(X, i[:, None], j[None, :], mu, pi0), 1 - share)
                for mu in (centers, old)
            )
            at = pairs.first[own], pairs.second[own]
            np.testing.assert_array_equal(pairs.free[own], eta(X, *at, centers, pi0) > bar)
            changed |= bool(((eta(X, *at, old, pi0) > before) != pairs.free[own]).any())
    assert changed  # the centers before they moved give another W


def test_threads_leave_warnings_alone(data):
    X, groups = data
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before, show = list(warnings.filters), warnings.showwarning
        for coupling in ("network-simplex", "sinkhorn"):
            of.FairKMeans(
                4,
                algorithm="paper",
                coupling=coupling,
                partition_size=60,
                n_init=3,
                n_jobs=3,
                tol=1e-1,
                random_state=0,
            ).fit(X, groups=groups)
        assert warnings.filters == before and warnings.showwarning is show
    with pytest.warns(UserWarning, match="still heard"):
        warnings.warn("still heard", stacklevel=1)


@pytest.mark.parametrize("route", ["network simplex", "sinkhorn"])
def test_another_thread_is_heard_meanwhile(route):
    """Whatever the transport runs, the filters of the process never change."""
    rng = np.random.default_rng(0)
    C = rng.random((300, 300))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before, show = list(warnings.filters), warnings.showwarning
        changed, stop = [], threading.Event()

        def watch():
            while not stop.is_set():
                if warnings.filters != before or warnings.showwarning is not show:
                    changed.append(True)
                time.sleep(0)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for _ in range(5):
                if route == "sinkhorn":
                    entropic_plan(1e3 * C, 0.01)
                else:
                    of.KantorovichCoupling(cost=C).solve()
        finally:
            stop.set()
            watcher.join()
    assert not changed


def test_a_network_simplex_that_is_stopped_is_not_optimal(monkeypatch):
    monkeypatch.setattr(coupling, "ITERATIONS", 3)
    C = np.random.default_rng(0).random((40, 40))
    with (
        pytest.warns(UserWarning, match="numItermax"),
        pytest.raises(of.SolverFailure, match="no result passed"),
    ):
        of.KantorovichCoupling(cost=C).solve("pot-network-simplex")


@pytest.mark.parametrize("scale", [1.0, pytest.param(10.0, marks=pytest.mark.slow), 100.0])
def test_sinkhorn_couples_the_groups_or_says_that_it_does_not(data, scale):
    X, groups = data
    model = of.FairKMeans(
        4, algorithm="paper", coupling="sinkhorn", partition_size=260, init=scale * X[:4]
    )
    try:
        model.fit(scale * X, groups=groups)
    except of.SolverFailure as e:
        assert scale == 100.0 and "did not converge" in str(e)  # λ is 1e-7 of the mean cost
    else:
        assert metrics.max_gap(groups, model.soft_assignment_, soft=True) <= 1e-2


def test_a_plan_that_does_not_couple_is_refused(monkeypatch):
    C = np.random.default_rng(0).random((30, 40))
    assert column_error(entropic_plan(C, 1e-4)) <= 1e-2
    with monkeypatch.context() as m:
        m.setattr(alignment, "STEPS", 1)
        m.setattr(alignment, "MORE", 1)
        with pytest.raises(
            of.SolverFailure, match=r"did not converge at regularization=0\.0001"
        ) as e:
            entropic_plan(C, 1e-4, max_iter=1)
    assert "of the mass is in the wrong columns" in e.value.evidence
    assert "larger regularization" in e.value.remedy and "network-simplex" in e.value.remedy
    for bad in (0.0, -1.0, np.nan, np.inf, "a", None):
        with pytest.raises(of.DeclarationError, match="is not a positive number"):
            entropic_plan(C, bad)
    with pytest.raises(of.DataError, match="not finite"):
        entropic_plan(np.full((2, 2), np.inf), 0.1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("partition_size", v) for v in (0, 1, -5, "a", 2.5, True, None)),
        *(("max_iter", v) for v in (0, 2.5, "a", None)),
        *(("tol", v) for v in (-1, np.nan, np.inf, "a")),
        *(("regularization", v) for v in (0.0, -1.0, np.nan, "a")),
        ("coupling", "simplex"),
    ],
)
def test_options_out_of_range_are_refused_before_any_work(data, name, value):
    X, groups = data
    model = of.FairKMeans(4, algorithm="paper", n_init=1, **{name: value})
    with pytest.raises(of.DeclarationError, match=f"{name}"):
        model.fit(X, groups=groups)


def test_callback_gets_every_hard_cost(data):
    X, groups = data
    told = []
    run = printed_alignment(
        X, groups, X[:4], rng=np.random.default_rng(0), callback=lambda *a: told.append(a)
    )
    assert told == list(enumerate(run.history, 1))


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
