"""Learning from batches, from a sub-sample, and from rows that come one batch after the other."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import optfair as of
from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_mixtures.fair_mixture import FairMixture
from optfair.methods.fair_mixtures.metrics import mean_gap


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    n = 4000
    groups = rng.choice(["a", "b"], n, p=[0.3, 0.7])
    which = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 2)) * 0.7 + np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])[which]
    X[:, 0] += 0.6 * (groups == "a")
    return X, groups


@pytest.fixture(scope="module")
def whole(data):
    X, groups = data
    return FairMixture(3, random_state=0).fit(X, groups=groups)


@pytest.mark.parametrize("kind", [{"batch_size": 500}, {"batch_size": 0.1}, {"learn_rows": 800}])
def test_fewer_rows_come_near_and_the_rules_hold_on_all(data, whole, kind):
    X, groups = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = FairMixture(3, random_state=0, max_iter=60, **kind).fit(X, groups=groups)
    assert model.delta_ <= 1e-8  # the last E-step sees all rows
    assert whole.objective_ - 0.02 <= model.objective_ <= whole.objective_ + 1e-6
    order = [int(((model.means_ - m) ** 2).sum(axis=1).argmin()) for m in whole.means_]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(model.means_[order], whole.means_, atol=0.15)


@pytest.mark.parametrize("kind", [{"batch_size": 500, "delta_rows": 1000}, {"learn_rows": 1000}])
def test_penalty_from_fewer_rows(data, kind):
    X, groups = data
    full = FairMixture(3, fairness="penalty", lam=0.0, random_state=0).fit(X, groups=groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = FairMixture(3, fairness="penalty", lam=10.0, random_state=0, max_iter=80, **kind)
        model.fit(X, groups=groups)
    # Δ is small on the rows it was measured on, and about that on all
    assert model.delta_ < 0.05 and model.delta_ == model.delta_plain_
    assert model.log_likelihood_ < full.log_likelihood_


def test_batches_one_after_the_other(data, whole):
    X, groups = data
    model = FairMixture(3, random_state=0, delta_rows=1500)
    for start in range(0, 4000, 250):
        model.partial_fit(X[start : start + 250], groups=groups[start : start + 250])
    assert model.n_iter_ == 16 and model.status_ == "partial"
    order = [int(((model.means_ - m) ** 2).sum(axis=1).argmin()) for m in whole.means_]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(model.means_[order], whole.means_, atol=0.2)
    R = model.predict_proba(X, groups=groups)
    gap = np.abs(R[groups == "a"].mean(axis=0) - R[groups == "b"].mean(axis=0)).max()
    assert gap < 0.03  # the rules hold on the rows that they are measured on


def test_penalty_in_batches_one_after_the_other(data):
    X, groups = data
    kw = {"fairness": "penalty", "random_state": 0, "delta_rows": 1000}
    models = [FairMixture(3, lam=lam, **kw) for lam in (0.0, 20.0)]
    for model in models:
        for start in range(0, 4000, 250):
            model.partial_fit(X[start : start + 250], groups=groups[start : start + 250])
    gaps = [mean_gap(groups, model.responsibilities(X), soft=True) for model in models]
    assert gaps[1] < 0.5 * gaps[0]


def test_batches_repeat_with_a_seed_and_fit_starts_anew(data):
    X, groups = data
    a, b = FairMixture(3, random_state=1), FairMixture(3, random_state=1)
    for model in (a, b):
        model.partial_fit(X[:500], groups=groups[:500])
        model.partial_fit(X[500:900], groups=groups[500:900])
    np.testing.assert_array_equal(a.means_, b.means_)
    a.fit(X[:500], groups=groups[:500])
    c = FairMixture(3, random_state=1).fit(X[:500], groups=groups[:500])
    np.testing.assert_allclose(a.means_, c.means_)


def test_rows_are_kept_with_their_weights(data):
    X, groups = data
    model = FairMixture(2, random_state=0, delta_rows=600)
    w = np.random.default_rng(0).uniform(0.5, 2.0, 400)
    model.partial_fit(X[:400], groups=groups[:400], sample_weight=w)
    model.partial_fit(X[400:800], groups=groups[400:800], sample_weight=w)
    kept = model._online[0].sample
    assert kept.count == 600
    np.testing.assert_allclose(np.bincount(kept.index, kept.weights), kept.shares, rtol=1e-12)
    own = kept.index[:400] == 0  # within a batch and a group, in proportion to the weights given
    ratio = kept.weights[:400][own] / w[own]
    np.testing.assert_allclose(ratio, ratio[0])


def test_bad_batches(data):
    X, groups = data
    model = FairMixture(2, random_state=0).partial_fit(X[:100], groups=groups[:100])
    with pytest.raises(DataError, match="did not see: c"):
        model.partial_fit(X[:3], groups=["a", "b", "c"])
    with pytest.raises(DataError, match="columns"):
        model.partial_fit(X[:3, :1], groups=groups[:3])
    with pytest.raises(DataError, match="groups is missing"):
        model.partial_fit(X[:3])
    with pytest.raises(DeclarationError, match="label_rule"):
        FairMixture(2, label_rule="fair").partial_fit(X[:100], groups=groups[:100])


def test_rules_alone_in_batches(data):
    X, groups = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = FairMixture(
            3, eps=None, rules=of.cluster_share(lower=0.3), batch_size=400, max_iter=30
        ).fit(X, groups=groups)
    assert model.masses_.sum(axis=0).min() >= 0.3 - 1e-8


@pytest.mark.parametrize("changed", [{"n_components": 3}, {"covariance_type": "full"}])
def test_a_batch_goes_on_with_the_components_of_the_first(data, changed):
    X, groups = data[0][:200], data[1][:200]
    model = FairMixture(2, random_state=0).partial_fit(X[:100], groups=groups[:100])
    model.set_params(**changed)
    with pytest.raises(DeclarationError, match="made 2 components, 'shared'"):
        model.partial_fit(X[100:], groups=groups[100:])
    assert model.fit(X, groups=groups).means_.shape[0] == model.n_components


def test_batches_obey_the_rules_of_their_time(data):
    X, groups = data
    first, second = slice(0, 1000), slice(1000, 2000)
    model = FairMixture(2, eps=0.0, random_state=0).partial_fit(X[first], groups=groups[first])
    assert np.abs(model.prices_).max() > 0.1
    model.set_params(eps=0.9).partial_fit(X[second], groups=groups[second])
    assert np.abs(model.prices_).max() < 1e-9  # plain responsibilities obey that
    model.set_params(eps=0.0).partial_fit(X[first], groups=groups[first])
    assert np.abs(model.prices_).max() > 0.1
    model.set_params(fairness=None).partial_fit(X[second], groups=groups[second])
    assert not model.prices_.any()
