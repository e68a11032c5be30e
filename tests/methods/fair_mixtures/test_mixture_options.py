"""Options of the paper's code: size penalty, soft start, best-balanced iterate, both costs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import optfair as of
from optfair import metrics
from optfair.methods.fair_mixtures.fair_mixture import FairMixture
from optfair.methods.fair_mixtures.fitted_mixture import taken_in
from optfair.methods.fair_mixtures.parameters import empty_of, first_components


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Return rows in three heaps whose groups differ in place."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 150)
    X = rng.normal(size=(150, 2)) + 3.0 * rng.integers(0, 3, 150)[:, None]
    return X + 0.8 * groups[:, None], groups


def quiet(model: FairMixture, X: Any, groups: np.ndarray) -> FairMixture:
    """Fit without the warning that the iterations were few."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, groups=groups)


def paper(**settings: Any) -> FairMixture:
    """Return a mixture with the options of the paper's code."""
    given: dict[str, Any] = {
        "fairness": "penalty",
        "start": "soft",
        "keep": "best balance",
        "random_state": 0,
    }
    return FairMixture(3, **{"max_iter": 8, "tol": 0.0, **given, **settings})


def test_options_of_the_papers_code():
    X, groups = rows()
    for shape in ("shared", "full"):
        model = quiet(paper(size_penalty=0.1, covariance_type=shape), X, groups)
        assert 1 <= model.kept_iter_ <= model.n_iter_
        assert model.objective_ == model.history_[model.kept_iter_ - 1]
        last = quiet(paper(size_penalty=0.1, covariance_type=shape, keep="last"), X, groups)
        assert model.balance_ >= last.balance_ and last.kept_iter_ == last.n_iter_
    means = np.array([X[model.labels_ == k].mean(axis=0) for k in range(3)])
    assert model.label_cost_ == pytest.approx(metrics.cost(X, means, model.labels_))
    assert model.label_cost_ <= model.cost_


def test_a_soft_start_has_unit_variances_and_random_categories():
    X, groups = rows()
    frame = pd.DataFrame(X).assign(c=np.where(X[:, 0] > 0, "a", "b"))
    frame.columns = frame.columns.astype(str)
    model = paper()
    data = taken_in(model, frame, groups, None)
    empty = empty_of(model, data.sample, data.columns)
    soft = [
        first_components(data.sample, empty, "k-means", scale=1.0, seed=s, soft=True)
        for s in (0, 1)
    ]
    p = soft[0].multinoullis.probabilities
    odds = np.log(p[:, 0] / p[:, 1])  # the softmax of two uniform numbers
    assert float(soft[0].gaussians.scale) == 1.0 and (np.abs(odds) < 1.0).all()
    assert not np.allclose(p, soft[1].multinoullis.probabilities)
    assert np.allclose(soft[0].weights, 1 / 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"start": "warm"}, "start"),
        ({"keep": "best"}, "keep"),
        ({"size_penalty": -1.0}, "size_penalty"),
        ({"size_penalty": "big"}, "size_penalty"),
        ({"fairness": None, "keep": "last", "size_penalty": 0.1}, "needs the penalty"),
        ({"fairness": "constraint"}, "needs the penalty"),
        ({"batch_size": 10}, "exclude each other"),
    ],
)
def test_options_of_the_papers_code_are_checked(settings, words):
    X, groups = rows()
    with pytest.raises(of.DeclarationError, match=words):
        paper(**settings).fit(X, groups=groups)


def test_a_soft_start_takes_no_components_and_batches_keep_the_last():
    X, groups = rows()
    before = quiet(paper(), X, groups)
    with pytest.raises(of.DeclarationError, match="exclude each other"):
        paper(init=before.components_).fit(X, groups=groups)
    with pytest.raises(of.DeclarationError, match="partial_fit does not take keep"):
        paper().partial_fit(X, groups=groups)


@pytest.mark.parametrize(
    "rule",
    [
        of.fair_clustering.must_link([[0, 1]]),
        of.fair_clustering.cannot_link([[0, 50]]),
        of.fair_clustering.radius(1.0),
        of.fair_clustering.group_cost(1.0),
        of.fair_clustering.forbidden_arcs(np.zeros((60, 2), dtype=bool)),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_rules_on_rows_and_costs_are_refused(rule: Any) -> None:
    X, groups = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    with pytest.raises(of.DeclarationError, match="rules on the masses of groups only, not 'own'"):
        of.FairMixture(2, rules={"own": rule}, random_state=0).fit(X, groups=groups)
