"""FairKMeans: rules hold, costs are what they say, scikit-learn's conventions, bad input."""

from __future__ import annotations

import pickle
import threading
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import optfair as of
from optfair import metrics
from optfair.errors import DataError
from optfair.methods.fair_clustering import kmeans_fit
from optfair.methods.fair_clustering.algorithms import price_search
from optfair.methods.fair_clustering.algorithms.descent import HeldRows
from optfair.methods.fair_clustering.algorithms.soft_descent import SoftRows
from optfair.methods.fair_clustering.alternation import alternate
from optfair.rows.restarts import Restart, _Batch, run_restarts


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    groups = rng.choice(["a", "b", "c"], 300, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(300, 3)) + 1.5 * (groups == "a")[:, None]
    return X, groups


@pytest.fixture(scope="module")
def two(data):
    X, groups = data
    keep = groups != "c"
    return X[keep], groups[keep]


@pytest.fixture(scope="module")
def fitted(data):
    X, groups = data
    return of.FairKMeans(4, n_init=3, random_state=0).fit(X, groups=groups)


RULES = {
    "perfect": (of.perfect_fairness(), lambda g, A: metrics.max_gap(g, A, soft=True) <= 1e-7),
    "additive": (
        of.additive_gap(0.1),
        lambda g, A: metrics.additive_gap(g, A, soft=True) <= 0.1 + 1e-7,
    ),
    "max": (of.max_gap(0.05), lambda g, A: metrics.max_gap(g, A, soft=True) <= 0.05 + 1e-7),
    "balance": (of.balance(0.35), lambda g, A: metrics.balance(g, A, soft=True) >= 0.35 - 1e-7),
    "list": (
        [of.additive_gap(0.2), of.cluster_share(lower=0.2)],
        lambda g, A: (
            metrics.additive_gap(g, A, soft=True) <= 0.2 + 1e-7
            and A.mean(axis=0).min() >= 0.2 - 1e-7
        ),
    ),
    "named": (
        {"gap": of.additive_gap(0.2), "share": of.cluster_share(upper=0.3)},
        lambda g, A: A.mean(axis=0).max() <= 0.3 + 1e-7,
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("metric", ["sqeuclidean", "l1"])
def test_rules_hold_for_the_soft_assignment(data, name, metric):
    X, groups = data
    rule, holds = RULES[name]
    model = of.FairKMeans(4, fairness=rule, metric=metric, n_init=1, random_state=1)
    model.fit(X, groups=groups)
    assert holds(groups, model.soft_assignment_)
    assert model.solution_.is_optimal(1e-7) and model.gap_ <= 1e-7
    assert (np.diff(model.history_) <= 0).all()
    plain = of.FairKMeans(4, fairness=None, metric=metric, n_init=1, random_state=1)
    assert plain.fit(X, groups=groups).objective_ <= model.objective_ + 1e-9


def test_attributes_are_what_they_say(data, fitted):
    X, groups = data
    m = fitted
    A = m.soft_assignment_
    np.testing.assert_array_equal(m.labels_, A.argmax(axis=1))
    assert m.cost_ == pytest.approx(((X - m.cluster_centers_[m.labels_]) ** 2).sum(axis=1).mean())
    assert m.balance_ == metrics.balance(groups, m.labels_)
    far = ((X[:, None] - m.cluster_centers_) ** 2).sum(axis=2)
    assert m.objective_ == pytest.approx((far * A).sum() / len(X), rel=1e-12)
    assert m.objective_ == pytest.approx(m.history_[-1], rel=1e-9)
    assert m.groups_.tolist() == ["a", "b", "c"]
    for g, name in enumerate(m.groups_):
        np.testing.assert_allclose(m.masses_[g], A[groups == name].sum(axis=0) / len(X))
        assert m.shares_[g] == pytest.approx((groups == name).mean())
    assert m.masses_.sum() == pytest.approx(1.0)
    assert len(m.history_) == len(m.gaps_) == m.n_iter_
    assert m.status_ == "converged" and m.reseeded_ == ()
    assert m.solution_.certificate.verify()
    assert ((A > 1e-9).sum(axis=1) > 1).sum() <= 3 * 2  # (K-1)(G-1)


def test_the_best_start_is_kept(fitted):
    assert len(fitted.restarts_) == 3
    assert fitted.objective_ == min(r.objective for r in fitted.restarts_)
    assert len({r.seed for r in fitted.restarts_}) == 3
    best = min(fitted.restarts_, key=lambda r: r.objective)
    assert (best.cost, best.balance, best.n_iter) == (fitted.cost_, fitted.balance_, fitted.n_iter_)


def test_without_a_rule_it_is_kmeans(data):
    X, groups = data
    start = X[:4]
    ours = of.FairKMeans(4, fairness=None, init=start, tol=0.0).fit(X, groups=groups)
    lloyd = KMeans(4, init=start, n_init=1, tol=0.0).fit(X)
    assert ours.cost_ == pytest.approx(lloyd.inertia_ / len(X), rel=1e-8)
    np.testing.assert_array_equal(ours.labels_, lloyd.labels_)
    assert len(ours.restarts_) == 1


def test_predict_gives_the_labels_but_for_split_rows(data, fitted):
    X, groups = data
    split = (fitted.soft_assignment_ > 1e-9).sum(axis=1) > 1
    predicted = fitted.predict(X, groups=groups)
    np.testing.assert_array_equal(predicted[~split], fitted.labels_[~split])
    # the group matters: a row of another group may pay another price
    other = fitted.predict(
        X, groups=np.roll(fitted.groups_, 1)[np.searchsorted(fitted.groups_, groups)]
    )
    assert (other != predicted).any()


def test_unseen_rows_of_the_same_population_are_nearly_fair():
    rng = np.random.default_rng(1)

    def draw(n):
        g = rng.integers(0, 2, n)
        return rng.normal(size=(n, 2)) + 1.5 * g[:, None], g

    X, g = draw(4000)
    model = of.FairKMeans(3, n_init=1, random_state=0).fit(X, groups=g)
    Y, h = draw(4000)
    seen = metrics.additive_gap(h, model.predict(Y, groups=h))
    nearest = metrics.additive_gap(
        h, np.linalg.norm(Y[:, None] - model.cluster_centers_, axis=2).argmin(1)
    )
    assert seen < 0.12 < nearest


def test_frames_and_names(data):
    X, groups = data
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).assign(kind=groups)
    model = of.FairKMeans(3, n_init=1, random_state=0).fit(frame, groups="kind")
    assert model.feature_names_in_.tolist() == ["x", "y", "z"] and model.n_features_in_ == 3
    plain = of.FairKMeans(3, n_init=1, random_state=0).fit(X, groups=groups)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    np.testing.assert_array_equal(
        model.predict(frame, groups="kind"), plain.predict(X, groups=groups)
    )
    series = of.FairKMeans(3, n_init=1, random_state=0).fit(
        frame[["x", "y", "z"]], groups=frame["kind"]
    )
    np.testing.assert_array_equal(series.labels_, plain.labels_)
    with pytest.raises(of.DataError, match="other columns than the fit"):
        model.predict(frame[["y", "x", "z", "kind"]], groups="kind")
    with pytest.raises(of.DataError, match="columns that are not numbers: kind"):
        of.FairKMeans(3).fit(frame, groups=groups)
    with pytest.raises(of.DataError, match=r"no column 'sort'"):
        of.FairKMeans(3).fit(frame, groups="sort")
    with pytest.raises(of.DataError, match="no column names"):
        of.FairKMeans(3).fit(X, groups="kind")


def test_scikit_learn_conventions(data, fitted):
    X, groups = data
    model = of.FairKMeans(4, fairness=of.balance(0.3), n_init=3, random_state=0)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(n_clusters=3).n_clusters == 3
    with pytest.raises(NotFittedError):
        model.predict(X, groups=groups)
    with pytest.raises(NotFittedError):
        _ = model.coupling_
    np.testing.assert_array_equal(
        of.FairKMeans(4, n_init=3, random_state=0).fit_predict(X, groups=groups), fitted.labels_
    )
    far = fitted.transform(X)
    np.testing.assert_allclose(far, np.linalg.norm(X[:, None] - fitted.cluster_centers_, axis=2))
    same = of.FairKMeans(4, n_init=3, random_state=0).fit_transform(X, groups=groups)
    np.testing.assert_allclose(same, far)
    assert fitted.score(X, groups=groups) == pytest.approx(-fitted.cost_, rel=0.02)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict(X, groups=groups), fitted.predict(X, groups=groups))
    assert not hasattr(copy, "solution_") and fitted.solution_ is not None
    assert repr(of.FairKMeans(3, fairness=of.balance(0.3))) == (
        "FairKMeans(fairness=Balance(b=0.3), n_clusters=3)"
    )


def test_threads_change_nothing(data, fitted):
    X, groups = data
    model = of.FairKMeans(4, n_init=3, random_state=0, n_jobs=2).fit(X, groups=groups)
    np.testing.assert_array_equal(model.labels_, fitted.labels_)
    assert [r.objective for r in model.restarts_] == [r.objective for r in fitted.restarts_]


def test_weights_are_repetitions(data):
    X, groups = data
    times = np.random.default_rng(0).integers(1, 3, len(X))
    a = of.FairKMeans(4, init=X[:4], max_iter=300).fit(X, groups=groups, sample_weight=times)
    b = of.FairKMeans(4, init=X[:4], max_iter=300).fit(
        np.repeat(X, times, axis=0), groups=np.repeat(groups, times)
    )
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-4)
    np.testing.assert_allclose(a.shares_, b.shares_)


def test_constant_columns_change_nothing(data, fitted):
    X, groups = data
    wide = np.column_stack([X[:, :1], np.full(len(X), 7.0), X[:, 1:]])
    model = of.FairKMeans(4, init=wide[:4]).fit(wide, groups=groups)
    narrow = of.FairKMeans(4, init=X[:4]).fit(X, groups=groups)
    np.testing.assert_array_equal(model.labels_, narrow.labels_)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("init", ["k-means", "k-means++", "random"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "l1"])
def test_every_start(data, init, metric):
    X, groups = data
    models = [
        of.FairKMeans(4, init=init, metric=metric, n_init=1, random_state=seed).fit(
            X, groups=groups
        )
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(models[0].labels_, models[1].labels_)
    assert models[0].objective_ != models[2].objective_


def sampled_from(monkeypatch, large=2000, size=600):
    """Start fits of so many rows on a sample."""
    monkeypatch.setattr(kmeans_fit, "LARGE", large)
    survey = partial(kmeans_fit.surveyed, held=large, size=size)
    monkeypatch.setattr(kmeans_fit, "surveyed", survey)


@pytest.mark.slow
def test_a_sample_serves_the_early_iterations_of_many_rows(data, monkeypatch):
    rng = np.random.default_rng(0)
    g = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 2)) + g[:, None]
    w = rng.uniform(0.5, 1.5, 3000)
    whole = of.FairKMeans(4, n_init=2, random_state=0).fit(X, groups=g, sample_weight=w)
    sampled_from(monkeypatch)
    sampled = of.FairKMeans(4, n_init=2, random_state=0).fit(X, groups=g, sample_weight=w)
    assert len(sampled.restarts_) == 1  # the best start alone goes on with all rows
    assert sampled.objective_ <= 1.002 * whole.objective_
    assert metrics.max_gap(g, sampled.soft_assignment_, soft=True, sample_weight=w) <= 1e-7
    # a rule at the very limit of the population is feasible on the sample too
    best = metrics.balance(g, np.zeros(3000, dtype=int), sample_weight=w)
    tight = of.FairKMeans(4, fairness=of.balance(best), n_init=1, random_state=0)
    assert tight.fit(X, groups=g, sample_weight=w).gap_ <= 1e-9


@pytest.mark.parametrize(
    "labels", [["f", "m", "x"], pytest.param([1, 2, 3], marks=pytest.mark.slow)]
)
def test_the_sample_keeps_the_labels_that_rules_name(monkeypatch, labels):
    rng = np.random.default_rng(0)
    index = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 2)) + 2.0 * (index == 1)[:, None]
    g = np.array(labels)[index]
    share = float((index == 1).mean())
    rules = {
        "mid": of.fair_clustering.proportion(lower={labels[1]: 0.8 * share}),
        "limit": of.fair_clustering.proportion(lower={labels[0]: float((index == 0).mean())}),
    }
    sampled_from(monkeypatch)
    for rule in rules.values():
        model = of.FairKMeans(3, fairness=rule, n_init=1, random_state=0).fit(X, groups=g)
        assert model.gap_ <= 1e-9
    parts = model.masses_ / model.masses_.sum(axis=0)
    assert parts[0].min() >= model.shares_[0] - 1e-7


def test_rules_at_the_populations_own_value_hold_at_any_size():
    n = 300_000
    g = (np.arange(n) % 3 == 0).astype(int)
    X = np.random.default_rng(0).normal(size=(n, 1)) + g[:, None]
    for rule in (
        of.balance(0.5),
        of.fair_clustering.proportion(lower={1: 1 / 3}, upper={1: 1 / 3}),
    ):
        p = of.FairAssignment(X, groups=g, centers=[[0.0], [1.0]], fairness=rule)
        assert p.shares.tolist() == [2 / 3, 1 / 3]
        assert p.solve(tolerance=1e-9).solver == "mass-dual"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_gaps_mean_the_same_in_any_units(data, scale):
    X, groups = data
    p = of.FairAssignment(scale * X, groups=groups, centers=scale * X[:4])
    s = p.solve()
    cheaper = replace(s, objective=1.5 * s.objective)
    assert s.gap <= 1e-9 and cheaper.gap > 0.1
    assert not replace(s, bound=0.5 * s.bound).is_optimal(1e-3)
    fit = lambda c: of.FairKMeans(4, init=c * X[:4]).fit(c * X, groups=groups)
    np.testing.assert_array_equal(fit(scale).labels_, fit(1.0).labels_)


def test_light_far_rows_are_no_empty_cluster():
    rng = np.random.default_rng(0)
    g = rng.choice(["a", "b"], 300, p=[0.6, 0.4])
    X = rng.normal(size=(300, 2)) + 1.5 * (g == "a")[:, None]
    Y = np.vstack([X, [[1e6, 1e6], [1e6, 1e6 + 1]]])
    w = np.ones(302)
    w[-2:] = 1e-8
    model = of.FairKMeans(4, fairness=None, n_init=3, random_state=0)
    model.fit(Y, groups=np.append(g, ["a", "b"]), sample_weight=w)
    assert (np.diff(model.history_) <= 0).all()


def test_rows_without_weight_do_not_count_as_distinct(data):
    X, groups = data
    w = np.zeros(len(X))
    w[[np.flatnonzero(groups == name)[0] for name in ("a", "b", "c")]] = 1.0
    with pytest.raises(of.DataError, match="3 of them distinct"):
        of.FairKMeans(4, init="random").fit(X, groups=groups, sample_weight=w)


def test_more_of_scikit_learn(data, fitted):
    X, groups = data
    state = of.FairKMeans(3, n_init=2, random_state=np.random.RandomState(0)).fit(X, groups=groups)
    again = of.FairKMeans(3, n_init=2, random_state=np.random.RandomState(0)).fit(X, groups=groups)
    assert state.objective_ == again.objective_
    assert fitted.get_feature_names_out().tolist() == [f"fairkmeans{k}" for k in range(4)]
    framed = clone(fitted).set_output(transform="pandas").fit(X, groups=groups)
    assert framed.transform(X).columns.tolist() == [f"fairkmeans{k}" for k in range(4)]
    w = np.random.default_rng(0).uniform(0.1, 3.0, len(X))
    weighted = of.FairKMeans(3, n_init=1, random_state=0).fit(X, groups=groups, sample_weight=w)
    score = weighted.score(X, groups=groups, sample_weight=w)
    assert score == pytest.approx(-weighted.cost_, rel=0.02)
    with pytest.raises(of.DataError, match="beyond 1e"):
        fitted.transform(1e200 * X)
    numbered = pd.DataFrame(X).assign(**{"3": groups})
    numbered.columns = [0, 1, 2, 3]
    model = of.FairKMeans(3, n_init=1, random_state=0).fit(numbered, groups="3")
    assert model.n_features_in_ == 3


def test_split_rows_under_other_linear_rules():
    X = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [10.0], [10.1], [10.2], [10.3], [10.4]])
    model = of.FairKMeans(2, fairness=of.balance(0.5), n_init=3, random_state=0)
    A = model.fit(X, groups=list("aaaaabbbbb")).soft_assignment_
    assert 1 < ((A > 1e-9).sum(axis=1) > 1).sum() <= 2  # G (K - 1)


def test_coupling_of_two_groups(two, fitted):
    X, groups = two
    model = of.FairKMeans(3, n_init=1, random_state=0).fit(X, groups=groups)
    plan = model.coupling_
    n0, n1 = (groups == "a").sum(), (groups == "b").sum()
    assert plan.shape == (n0, n1)
    np.testing.assert_allclose(plan.sum(axis=1), 1 / n0, rtol=1e-9)
    np.testing.assert_allclose(plan.sum(axis=0), 1 / n1, rtol=1e-9)
    # the plan costs what the assignment costs: the factorisation, read backwards
    p = of.KantorovichCoupling(X[groups == "a"], X[groups == "b"], centers=model.cluster_centers_)
    assert plan.multiply(p.cost).sum() == pytest.approx(model.objective_, rel=1e-9)
    assert model.coupling_ is plan
    with pytest.raises(of.DeclarationError, match="3 groups"):
        _ = fitted.coupling_
    loose = of.FairKMeans(3, fairness=of.additive_gap(0.3), n_init=1, random_state=0)
    with pytest.raises(of.DeclarationError, match="perfect fairness"):
        _ = loose.fit(X, groups=groups).coupling_


def test_limits_leave_the_incumbent(data):
    X, groups = data
    with pytest.warns(ConvergenceWarning, match="max_iter after 2"):
        model = of.FairKMeans(4, init="random", n_init=1, max_iter=2, random_state=0).fit(
            X, groups=groups
        )
    assert model.status_ == "max_iter" and model.n_iter_ == 2 and model.gap_ <= 1e-9


def interrupting(monkeypatch, at):
    """Make the at-th assignment of the process raise KeyboardInterrupt; return their rows."""
    original, calls = HeldRows.assign, []

    def assign(self, *args):
        calls.append(self.costs.cost.rows)
        if len(calls) == at:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(HeldRows, "assign", assign)
    return calls


@pytest.mark.parametrize("metric", ["sqeuclidean", "l1"])
def test_an_interrupted_start_ends_the_run_with_what_it_has(data, monkeypatch, metric):
    X, groups = data
    calls = interrupting(monkeypatch, at=3)
    model = of.FairKMeans(4, init="random", n_init=5, metric=metric, random_state=0)
    with pytest.warns(ConvergenceWarning, match="ended by interrupted"):
        model.fit(X, groups=groups)
    assert len(model.restarts_) == 1 and len(calls) == 3
    assert model.status_ == "interrupted" and model.n_iter_ == 2 and model.gap_ <= 1e-9


def test_an_interrupt_before_any_assignment_is_passed_on(data, monkeypatch):
    X, groups = data
    calls = interrupting(monkeypatch, at=1)
    with pytest.raises(KeyboardInterrupt):
        of.FairKMeans(4, n_init=5, random_state=0).fit(X, groups=groups)
    assert len(calls) == 1


def test_an_interrupt_in_the_start_of_medians_is_passed_on(data, monkeypatch):
    X, groups = data
    interrupting(monkeypatch, at=3)
    with pytest.raises(KeyboardInterrupt):
        of.FairKMeans(4, metric="l1", n_init=2, random_state=0).fit(X, groups=groups)


def test_an_interrupt_on_the_sample_leaves_one_assignment_of_all_rows(monkeypatch):
    rng = np.random.default_rng(0)
    g = rng.integers(0, 2, 3000)
    X = rng.normal(size=(3000, 2)) + g[:, None]
    sampled_from(monkeypatch)
    calls = interrupting(monkeypatch, at=3)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = of.FairKMeans(4, n_init=3, random_state=0).fit(X, groups=g)
    assert len(calls) == 3 and len(model.restarts_) == 1
    assert (model.status_, model.n_iter_) == ("interrupted", 1)
    assert model.labels_.shape == (3000,) and model.gap_ <= 1e-9


@pytest.mark.parametrize("large", [2_000, 10_000])
def test_an_interrupt_of_soft_passes_leaves_one_exact_assignment(monkeypatch, large):
    rng = np.random.default_rng(0)
    g = rng.integers(0, 2, 3000)
    X = rng.normal(size=(3000, 2)) + g[:, None]
    sampled_from(monkeypatch, large)
    original, calls = SoftRows.at, []

    def at(self, *args):
        calls.append(self.weights.size)
        if calls.count(3000) == 6:  # of all rows
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(SoftRows, "at", at)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = of.FairKMeans(4, init=X[:4]).fit(X, groups=g)
    assert calls.count(3000) == 6
    assert (model.status_, model.n_iter_) == ("interrupted", 1) and model.gap_ <= 1e-9
    assert metrics.max_gap(g, model.soft_assignment_, soft=True) <= 1e-7
    first = of.FairAssignment(X, groups=g, centers=X[:4]).solve().objective
    assert model.objective_ < first  # where soft passes had led is kept


def test_threads_stop_after_the_iteration_at_hand(data):
    X, groups = data
    started = threading.Event()

    def run(seed, limit, report):
        problem = of.FairAssignment(X, groups=groups, centers=X[:4])

        def step(iteration, solution):
            started.set()
            report(iteration, solution)

        result = alternate(problem, tol=0.0, max_iter=500, callback=step)
        record = Restart(seed, result.history[-1], 0.0, 0.0, 0.0, result.n_iter, result.status, 0.0)
        return record, result

    batch = _Batch(run, None)
    stopper = threading.Thread(target=lambda: (started.wait(), batch.stop.set()))
    stopper.start()
    found = list(batch.threaded([0, 1, 2, 3], lambda i: lambda *_: None, 2))
    stopper.join()
    assert 1 <= len(found) <= 2  # two were running, two never began
    assert all(record.status == "interrupted" for _, (record, _) in found)


def test_starts_are_told_in_their_order_whichever_ends_first():
    done = threading.Event()

    def run(seed, left, report):
        if seed == 1:
            done.set()
        else:
            assert done.wait(60)  # the first start ends last
        return Restart(seed, 1.0, 0.0, 0.0, 0.0, 1, "converged", 0.0), seed

    records, best = run_restarts(run, [0, 1], rank=lambda r: r.objective, n_jobs=2)
    assert [r.seed for r in records] == [0, 1] and best == 0


def test_empty_clusters_are_told():
    X = np.repeat([[0.0], [1.0], [2.0]], 4, axis=0)
    g = np.tile([0, 0, 1, 1], 3)
    with pytest.warns(ConvergenceWarning, match="clusters 2 are empty"):
        model = of.FairKMeans(
            3, init=[[0.0], [1.5], [50.0]], fairness={"share": of.cluster_share(upper=[0.4, 1, 0])}
        ).fit(X, groups=g)
    assert model.masses_[:, 2].sum() == 0


def test_progress_is_drawn_when_asked_for(data, capsys):
    X, groups = data
    of.FairKMeans(3, n_init=2, random_state=0, verbose=1).fit(X, groups=groups)
    assert "starts" in capsys.readouterr().err
    of.FairKMeans(3, n_init=2, random_state=0).fit(X, groups=groups)
    assert capsys.readouterr().err == ""


def test_predict_refuses_what_it_cannot_know(data, fitted):
    X, groups = data
    with pytest.raises(of.DataError, match="labels the fit did not see: z"):
        fitted.predict(X[:2], groups=["a", "z"])
    with pytest.raises(of.DataError, match="does not fit the rows"):
        fitted.predict(X[:2], groups=["a"])
    with pytest.raises(of.DataError, match="2 columns, the fit had 3"):
        fitted.predict(X[:, :2], groups=groups)
    with pytest.raises(of.DataError, match="2 columns, the fit had 3"):
        fitted.transform(X[:, :2])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "not a positive integer"),
        ({"n_clusters": 2.5}, "not a positive integer"),
        ({"n_init": 0}, "n_init=0"),
        ({"algorithm": "exakt"}, "unknown algorithm 'exakt'"),
        ({"coupling": "simplex"}, "unknown coupling"),
        ({"metric": "cosine"}, "unknown metric"),
        ({"init": "kmeans"}, "unknown init 'kmeans'"),
        ({"init": np.zeros((3, 3))}, "3 centers for n_clusters=4"),
        ({"init": np.zeros((4, 2))}, "columns"),
        ({"fairness": 0.4}, "not a rule"),
        ({"fairness": [of.balance(0.1), "fair"]}, "not a rule"),
        ({"fairness": of.balance(0.99)}, "cannot be reached.*\\n.* of '.+' to '.+', and"),
        ({"tol": -1.0}, "tol"),
        ({"tol": None}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": "x"}, "max_iter"),
        ({"n_clusters": True}, "n_clusters"),
        ({"n_init": "ten"}, "n_init"),
        ({"n_init": 2.5}, "n_init"),
        ({"n_jobs": 1.5}, "n_jobs"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"time_limit": -1}, "time_limit"),
        ({"time_limit": "a"}, "time_limit"),
        ({"verbose": "a"}, "verbose"),
        ({"partition_size": 0}, "partition_size"),
        ({"regularization": 0.0}, "regularization"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": "a"}, "random_state"),
        ({"fairness": {1: of.balance(0.1)}}, "rule name 1"),
    ],
)
def test_bad_parameters(data, parameters, message):
    X, groups = data
    with pytest.raises((of.DeclarationError, of.DataError), match=message):
        of.FairKMeans(**{"n_clusters": 4, "n_init": 1, **parameters}).fit(X, groups=groups)


def test_bad_rows():
    X = np.repeat([[0.0], [1.0]], 4, axis=0)
    with pytest.raises(of.DataError, match="2 of them distinct"):
        of.FairKMeans(3).fit(X, groups=[0, 1] * 4)
    with pytest.raises(of.DataError, match="one group only"):
        of.FairKMeans(2).fit(X, groups=[0] * 8)
    with pytest.raises(of.DataError, match="NaN"):
        of.FairKMeans(2).fit([[np.nan], [1.0]], groups=[0, 1])
    with pytest.raises(of.DataError, match="beyond 1e"):
        of.FairKMeans(2).fit(X * 1e200, groups=[0, 1] * 4)
    with pytest.raises(of.Infeasible, match="exclude each other"):
        of.FairKMeans(
            2,
            fairness={
                "small": of.cluster_share(upper=[0.2, 1.0]),
                "big": of.cluster_share(lower=[0.5, 0.0]),
            },
            n_init=1,
        ).fit(np.arange(8.0)[:, None], groups=[0, 1] * 4)


def test_nothing_warns_when_all_is_well(data):
    X, groups = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of.FairKMeans(3, n_init=2, random_state=3).fit(X, groups=groups)


CONFIGURATIONS = {
    "two groups, perfect": (2, {}),
    "two groups, balance": (2, {"fairness": of.balance(0.3)}),
    "two groups, none": (2, {"fairness": None}),
    "three groups, perfect": (3, {}),
    "three groups, balance": (3, {"fairness": of.balance(0.3)}),
    "three groups, none, medians": (3, {"fairness": None, "metric": "l1"}),
    "as printed": (2, {"algorithm": "paper"}),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_model_renders_before_and_after_its_fit(name):
    count, parameters = CONFIGURATIONS[name]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) + 3.0 * (np.arange(60) < 30)[:, None]
    groups = np.array(list("abc"))[np.arange(60) * 7 // 2 % count]
    model = of.FairKMeans(3, n_init=1, random_state=0, **parameters)
    assert "FairKMeans" in model._repr_html_()
    model.set_output(transform="pandas").fit(X, groups=groups)
    assert "FairKMeans" in repr(model) and "FairKMeans" in model._repr_html_()
    # a notebook reads every public attribute: each is there, or hasattr says it is not
    there = {n for n in dir(model) if not n.startswith("_") and hasattr(model, n)}
    assert ("coupling_" in there) == (name in ("two groups, perfect", "as printed"))
    assert list(model.transform(X).columns) == ["fairkmeans0", "fairkmeans1", "fairkmeans2"]
    again = clone(model)
    assert str(again.get_params()) == str(model.get_params()) and not hasattr(again, "coupling_")
    assert "FairKMeans" in again.fit(X, groups=groups)._repr_html_()


def test_a_streamed_model_renders():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 2)), np.array(list("ab"))[np.arange(60) % 2]
    model = of.FairKMeans(3, n_init=1, random_state=0).fit(X, groups=groups)
    assert hasattr(model, "coupling_")
    model.fit_stream(lambda: iter([(X, groups)]))
    assert "FairKMeans" in model._repr_html_() and not hasattr(model, "coupling_")
    with pytest.raises(of.DeclarationError, match="no coupling after fit_stream"):
        _ = model.coupling_


@pytest.mark.parametrize(
    ("X", "groups", "weights", "options"),
    [
        # regrets that are rounding of ties
        ([[1.5], [-0.2], [-0.5], [0.6], [0.4]], [0, 1, 2, 0, 1], None, {"metric": "l1"}),
        # points of a master that are nearly the same
        (
            [[-0.24, -1.02], [-0.96, 0.16], [0.38, 0.87], [-0.52, -0.06], [1.05, 0.89]],
            [0, 1, 2, 2, 2],
            [0.28, 0.57, 0.91, 0.04, 0.82],
            {"goal": "group"},
        ),
    ],
)
def test_ties_do_not_end_a_search(X: Any, groups: Any, weights: Any, options: Any) -> None:
    model = of.FairKMeans(2, random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a cluster may end empty
        model.fit(X, groups=groups, sample_weight=weights)
    every = of.FairAssignment(
        np.array(X),
        groups=groups,
        centers=model.cluster_centers_,
        sample_weight=weights,
        **options,
    )
    assert model.objective_ <= every.solve("highs").objective * (1.0 + 1e-6)


@pytest.mark.parametrize("power", [-9, -5, 6])
def test_labels_do_not_depend_on_the_units(power: int) -> None:
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(40, 3)), rng.integers(2, size=40)
    settings = {"n_init": 2, "labels": "hard", "random_state": 0, "fairness": of.max_gap(0.1)}
    plain = of.FairKMeans(3, **settings).fit(X, groups=g)
    other = of.FairKMeans(3, **settings).fit(X * 10.0**power, groups=g)
    assert other.cost_ == pytest.approx(plain.cost_ * 100.0**power, rel=1e-9)
    assert other.hard_labels_.gap <= 1e-5


def test_rows_that_cost_more_than_an_optimum_may_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(10, 2)) * 1e8
    with pytest.raises(DataError, match="in larger units"):
        of.FairKMeans(2).fit(X, groups=np.arange(10) % 2)


def test_labels_of_another_type_are_told_apart() -> None:
    X, g = np.random.default_rng(0).normal(size=(10, 2)), np.arange(10) % 2
    model = of.FairKMeans(2, random_state=0).fit(X, groups=g)
    with pytest.raises(DataError, match="did not see: '0', '1'"):
        model.predict(X, groups=g.astype(str))


@pytest.mark.parametrize("unit", [1e-200, 1e-160, 1e-130, 1e-100])
def test_rows_whose_squares_are_no_floats_are_refused(unit: float) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 8.0])
    groups = np.arange(200) % 2
    if unit < 1e-140:
        with pytest.raises(of.DataError, match="state it in other units"):
            of.FairKMeans(2, random_state=0, n_init=2).fit(unit * X, groups=groups)
        return
    model = of.FairKMeans(2, random_state=0, n_init=2).fit(unit * X, groups=groups)
    assert sorted(np.bincount(model.labels_)) == [100, 100]


def test_the_last_assignment_is_proved_without_another_search(monkeypatch):
    def refuse(*a, **k):
        raise RuntimeError("a search was made for the proof")

    rng = np.random.default_rng(5)
    X, groups = rng.normal(size=(600, 2)), np.arange(600) % 2
    monkeypatch.setattr(price_search, "PriceSearch", refuse)
    for rule in (of.perfect_fairness(), of.max_gap(0.05), of.balance(0.8)):
        model = of.FairKMeans(4, fairness=rule, n_init=1, random_state=0).fit(X, groups=groups)
        assert model.solution_.is_optimal(1e-9)
        with pytest.raises(RuntimeError, match="a search was made"):
            model.solution_.problem.with_centers(model.cluster_centers_ + 0.1).solve("mass-dual")


def test_groups_that_are_missing_are_asked_for(data, fitted) -> None:
    X, groups = data
    model = of.FairKMeans(3)
    with pytest.raises(DataError, match="groups is missing") as e:
        model.fit(X, groups)
    assert e.value.evidence == "y is ignored" and "groups=" in e.value.remedy
    for call in (model.fit, model.fit_predict, model.fit_transform, fitted.predict, fitted.score):
        with pytest.raises(DataError, match="groups is missing"):
            call(X)
