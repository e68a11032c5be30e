"""Paths: one mixture per value, monotone, at least as good as plain fits."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.errors import DataError, DeclarationError, OptfairError
from optfair.methods.fair_mixtures.fair_mixture import FairMixture, eps_path, lambda_path

MODEL = FairMixture(3, random_state=0, tol=1e-5)


@pytest.fixture(scope="module")
def data():
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    return X[:400], sex[:400]


@pytest.fixture(scope="module")
def loosened(data):
    X, sex = data
    return eps_path(MODEL, X, groups=sex, eps=[0.1, 0.0, 0.03])


def test_objective_rises_and_the_gap_is_kept(loosened, data):
    X, sex = data
    assert loosened.values.tolist() == [0.0, 0.03, 0.1] and loosened.parameter == "eps"
    assert (np.diff(loosened.objective) >= -1e-9).all()
    assert (loosened.delta <= loosened.values + 1e-8).all()
    for i in range(3):
        assert loosened.balance[i] == pytest.approx(metrics.balance(sex, loosened.labels[i]))
        means = loosened.models[i].means_
        assert loosened.cost[i] == pytest.approx(metrics.cost(X, means, loosened.labels[i]))
        alone = FairMixture(3, eps=loosened.values[i], random_state=0, tol=1e-5)
        assert loosened.objective[i] >= alone.fit(X, groups=sex).objective_ - 1e-9


def test_penalties(data):
    X, sex = data
    path = lambda_path(MODEL, X, groups=sex, lams=[0.0, 1.0, 20.0])
    assert path.values.tolist() == [20.0, 1.0, 0.0] and path.parameter == "lam"
    assert (np.diff(path.objective) >= -1e-9).all()
    assert path.delta[0] < 1e-4 < path.delta[2]
    np.testing.assert_allclose(path.objective, path.log_likelihood - path.values * path.delta)


def test_frame_and_text(loosened):
    frame = loosened.to_frame()
    assert list(frame.columns)[:3] == ["eps", "objective", "log_likelihood"] and len(frame) == 3
    text = repr(loosened)
    assert "3 mixtures; best found, local optima" in text and "of labels" in text


def test_interrupted_paths_keep_what_was_fitted(data, monkeypatch):
    X, sex = data
    fit, calls = FairMixture._fitted, []

    def stopped(self, *given):
        calls.append(1)
        if len(calls) == 4:  # the third value is the fourth fit
            raise KeyboardInterrupt
        return fit(self, *given)

    monkeypatch.setattr(FairMixture, "_fitted", stopped)
    path = eps_path(MODEL, X[:100], groups=sex[:100], eps=[0.0, 0.1, 0.2])
    assert not path.complete and len(path) == 2 and "interrupted" in repr(path)


@pytest.mark.parametrize("values", [[], [0.1, 0.1], "text", [np.nan], 3.0])
def test_bad_values(data, values):
    X, sex = data
    with pytest.raises(OptfairError, match="lams"):
        lambda_path(MODEL, X, groups=sex, lams=values)
    with pytest.raises(OptfairError, match="eps"):
        eps_path(MODEL, X, groups=sex, eps=values)


def test_bad_models_and_data(data):
    X, sex = data
    with pytest.raises(DeclarationError, match="lam=-1"):
        lambda_path(MODEL, X, groups=sex, lams=[-1.0])
    with pytest.raises(DataError, match="groups is missing"):
        eps_path(MODEL, X, groups=None, eps=[0.0])
    moving = FairMixture(3, random_state=np.random.default_rng(0))
    with pytest.raises(DeclarationError, match="Generator"):
        eps_path(moving, X, groups=sex, eps=[0.0])


def test_a_fit_ends_at_the_same_iteration_in_any_units() -> None:
    """Log-likelihoods shift with the logarithm of the unit: gains are not measured by them."""
    rng = np.random.default_rng(187)
    n, d = int(rng.integers(16, 50)), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d)) + rng.normal(size=(3, d))[rng.integers(0, 3, n)]
    groups, fits = rng.integers(0, 2, n), []
    for unit in (1.0, 1024.0, 2.0**-20):  # nothing is rounded
        model = of.FairMixture(
            2, eps=0.1, n_init=1, random_state=0, covariance_type="diag", max_iter=2000
        )
        fits.append(model.fit(X * unit, groups=groups))
        fits[-1].shift = d * np.log(unit)
    assert len({f.n_iter_ for f in fits}) == 1
    for other in fits[1:]:
        assert other.history_[-1] + other.shift == pytest.approx(fits[0].history_[-1], abs=1e-9)
        assert (other.labels_ == fits[0].labels_).all()
