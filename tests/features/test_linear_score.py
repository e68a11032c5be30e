"""Linear scores: what is folded in, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import optfair as of
from optfair.features.linear_score import LinearScore

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)) * [1.0, 10.0, 1e-3, 1e4] + [0.0, 5.0, 1.0, -1e5]
Y = (X[:, 0] + X[:, 1] / 10 + RNG.normal(size=60) * 0.3 > 0.5).astype(int)


@pytest.mark.parametrize(
    ("model", "link"),
    [
        (LogisticRegression(), "logistic"),
        (SGDClassifier(loss="log_loss", random_state=0), "logistic"),
        (SGDClassifier(loss="modified_huber", random_state=0), None),
        (RidgeClassifier(), None),
        (LinearSVC(), None),
        (Perceptron(), None),
        (SVC(kernel="linear"), None),
    ],
)
@pytest.mark.parametrize(
    "scalers",
    [
        [StandardScaler()],
        [StandardScaler(with_mean=False)],
        [MinMaxScaler()],
        [RobustScaler()],
        [MaxAbsScaler()],
        [StandardScaler(), PCA(3, whiten=True)],
        [make_pipeline(RobustScaler(), StandardScaler())],
    ],
    ids=lambda s: "+".join(type(t).__name__ for t in s),
)
def test_scaling_is_folded_into_the_coefficients(model, link, scalers):
    fitted = make_pipeline(*scalers, model).fit(X, Y)
    score = LinearScore.of(fitted)
    assert score.link == link
    assert np.allclose(score.decision_function(X), fitted.decision_function(X), rtol=1e-7)
    if link:
        assert np.allclose(score.predict_proba(X), fitted.predict_proba(X), atol=1e-9)


def test_a_pipeline_fitted_on_a_frame_keeps_its_names():
    frame = pd.DataFrame(X, columns=list("abcd"))
    score = LinearScore.of(make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, Y))
    assert score.names == ("a", "b", "c", "d")


@pytest.mark.parametrize("alpha", [0.01, 0.5, 0.8, 0.999])
@pytest.mark.parametrize("target", [0, 1])
def test_the_border_of_the_half_space_has_the_probability(alpha, target):
    score = LinearScore([1.0, -2.0], 0.3)
    v, t = score.halfspace(target, probability=alpha)
    border = t * v / (v @ v)
    assert score.predict_proba([border])[0, target] == pytest.approx(alpha, rel=1e-12)
    inside = border + 0.1 * v
    assert score.predict_proba([inside])[0, target] > alpha


def test_a_threshold_is_the_score_of_the_target_class():
    score = LinearScore([2.0], 1.0, link=None, classes=("no", "yes"))
    v, t = score.halfspace("yes", threshold=3.0)
    assert score.decision_function([[t / v[0]]])[0] == pytest.approx(3.0)
    v, t = score.halfspace("no", threshold=3.0)
    assert score.decision_function([[t / v[0]]])[0] == pytest.approx(-3.0)
    assert np.array_equal(score.halfspace()[0], score.halfspace("yes", threshold=0.0)[0])


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1.5, float("nan"), "high"])
def test_a_probability_outside_its_interval_is_refused(alpha):
    with pytest.raises(of.DeclarationError, match="probability"):
        LinearScore([1.0]).halfspace(probability=alpha)


def test_a_probability_of_a_model_without_one_is_refused():
    score = LinearScore.of(LinearSVC().fit(X / np.abs(X).max(axis=0), Y))
    with pytest.raises(of.DeclarationError, match="no probability") as refused:
        score.halfspace(probability=0.8)
    assert "threshold=" in refused.value.remedy
    with pytest.raises(of.DeclarationError, match="no probability"):
        score.predict_proba(X)


@pytest.mark.parametrize(
    "model",
    [
        SVC(kernel="rbf"),
        DecisionTreeClassifier(),
        make_pipeline(PolynomialFeatures(2), LogisticRegression(max_iter=5000)),
        make_pipeline(Normalizer(), LogisticRegression()),
        make_pipeline(StandardScaler(), DecisionTreeClassifier()),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_model_that_is_not_linear_is_sent_to_the_black_box_route(model):
    scaled = X / np.abs(X).max(axis=0)
    with pytest.raises(of.DeclarationError, match="not a linear score") as refused:
        LinearScore.of(model.fit(scaled, Y))
    assert "counterfactual_front" in refused.value.remedy


def test_three_classes_are_refused_with_the_way_out():
    model = LogisticRegression().fit(X / np.abs(X).max(axis=0), np.arange(60) % 3)
    with pytest.raises(of.DeclarationError, match="3 classes") as refused:
        LinearScore.of(model)
    assert "counterfactual_front" in refused.value.remedy


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearScore([0.0, 0.0]), "zero"),
        (lambda: LinearScore([1.0, np.nan]), "NaN"),
        (lambda: LinearScore([[1.0], [2.0]]), "shape"),
        (lambda: LinearScore([1.0], [1.0, 2.0]), "intercept"),
        (lambda: LinearScore([1.0], link="probit"), "link"),
        (lambda: LinearScore([1.0], names=["a", "b"]), "names"),
        (lambda: LinearScore([1.0], classes=(1, 1)), "different"),
        (lambda: LinearScore([1.0], classes=2), "classes is 2, no list of names"),
        (lambda: LinearScore.of(LogisticRegression()), "not fitted"),
        (lambda: LinearScore.of(lambda x: x), "not a linear score"),
        (lambda: LinearScore([1.0]).halfspace(2), "no class 2"),
        (lambda: LinearScore([1.0]).halfspace(probability=0.5, threshold=0.0), "not both"),
        (lambda: LinearScore([1.0]).halfspace(threshold=np.inf), "threshold"),
        (lambda: LinearScore([1.0]).decision_function([[1.0, 2.0]]), "2 columns"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(of.OptfairError, match=message):
        make()


def test_a_score_does_not_change_with_the_callers_array():
    w = np.array([1.0, 2.0])
    score = LinearScore(w)
    w[0] = 9.0
    assert score.coef[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        score.coef[0] = 3.0
