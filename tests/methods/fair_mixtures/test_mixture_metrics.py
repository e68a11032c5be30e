"""Metrics of mixtures against numbers worked out by hand and against the fit's own."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.errors import DataError
from optfair.methods.fair_mixtures.fair_mixture import FairMixture
from optfair.methods.fair_mixtures.metrics import (
    category_profile,
    mean_gap,
    negative_log_likelihood,
    total_cost,
)

GROUPS = np.array(["a", "a", "a", "b", "b", "c"])
SOFT = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.2, 0.8], [0.6, 0.4], [0.9, 0.1]])


def test_gap_of_three_groups_by_hand():
    # fractions of cluster 0: a 0.5, b 0.4, c 0.9
    assert mean_gap(GROUPS, SOFT, soft=True) == pytest.approx((0.1 + 0.4 + 0.5) / 3)
    assert metrics.max_gap(GROUPS, SOFT, soft=True) == pytest.approx(0.5)
    # hard: a 2/3 (the tie goes to the first), b 1/2, c 1
    assert mean_gap(GROUPS, SOFT) == pytest.approx((1 / 6 + 1 / 3 + 1 / 2) / 3)


def test_gap_of_two_groups_is_the_largest():
    two = np.where(GROUPS == "c", "b", GROUPS)
    w = [1, 2, 3, 4, 5, 6]
    for soft in (True, False):
        assert mean_gap(two, SOFT, soft=soft, sample_weight=w) == pytest.approx(
            metrics.max_gap(two, SOFT, soft=soft, sample_weight=w)
        )


@pytest.mark.parametrize("fairness", ["penalty", "constraint"])
def test_numbers_are_those_of_the_fit(fairness):
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    groups = np.array([f"{s}{i % 2}" for i, s in enumerate(sex)])
    model = FairMixture(3, fairness=fairness, eps=0.02, lam=0.3, random_state=0)
    model.fit(X, groups=groups)
    R = model.predict_proba(X, groups=groups)
    assert mean_gap(groups, R, soft=True) == pytest.approx(model.delta_, abs=1e-12)
    psi = model.responsibilities(X)
    assert mean_gap(groups, psi, soft=True) == pytest.approx(model.delta_plain_)
    assert mean_gap(groups, model.labels_) == pytest.approx(model.delta_labels_)
    assert negative_log_likelihood(model, X) == pytest.approx(-model.log_likelihood_)
    total = total_cost(X, model.means_, model.labels_)
    assert total == pytest.approx(len(X) * model.cost_)


def test_summed_cost_takes_weights_as_they_are():
    X, centers = [[0.0], [1.0], [4.0]], [[0.0], [4.0]]
    assert total_cost(X, centers, [0, 0, 0]) == pytest.approx(17.0)
    assert total_cost(X, centers, [0, 0, 0], sample_weight=[1, 2, 3]) == pytest.approx(50.0)
    assert total_cost(X, centers, [0, 0, 0], metric="l1") == pytest.approx(5.0)


def test_weighted_likelihood():
    class Density:
        def score_samples(self, X):
            return np.array([-1.0, -3.0])

    assert negative_log_likelihood(Density(), [[0], [1]]) == pytest.approx(2.0)
    weighted = negative_log_likelihood(Density(), [[0], [1]], sample_weight=[3, 1])
    assert weighted == pytest.approx(1.5)
    with pytest.raises(DataError, match="one log density per row"):
        negative_log_likelihood(Density(), [[0]])


def test_profiles_by_hand():
    values = ["x", "y", "x", "x", "z", "y"]
    names, shares = category_profile(values, SOFT, soft=True)
    assert names.tolist() == ["x", "y", "z"]
    np.testing.assert_allclose(shares[0] * 3.2, [1.2, 1.4, 0.6])
    np.testing.assert_allclose(shares[1] * 2.8, [1.8, 0.6, 0.4])
    _, hard = category_profile(values, [0, 0, 0, 2, 2, 2], sample_weight=[1, 1, 2, 1, 1, 2])
    np.testing.assert_allclose(hard[[0, 2]], [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25]])
    assert np.isnan(hard[1]).all()
    with pytest.raises(DataError, match="does not fit the rows"):
        category_profile(values[:5], SOFT)
