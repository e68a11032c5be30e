"""Any model as one score per row, and what it says when it is not one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC

from optfair.errors import DataError, DeclarationError
from optfair.features.linear_score import LinearScore
from optfair.features.predictor import Predictor
from optfair.methods.sparse_counterfactuals.shapley import p_shap

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.where(X[:, 0] > 0.3, "yes", "no")
THREE = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]


def test_the_first_output_a_model_has_is_taken() -> None:
    logistic, svm = LogisticRegression().fit(X, Y), LinearSVC().fit(X, Y)
    regression = LinearRegression().fit(X, X[:, 0])
    assert [Predictor(m).output for m in (logistic, svm, regression)] == [
        "predict_proba",
        "decision_function",
        "predict",
    ]
    np.testing.assert_array_equal(Predictor(logistic)(X), logistic.predict_proba(X)[:, 1])
    np.testing.assert_array_equal(Predictor(svm)(X), svm.decision_function(X))
    np.testing.assert_array_equal(Predictor(regression)(X), regression.predict(X))


def test_the_target_class_turns_every_output() -> None:
    model = LogisticRegression().fit(X, Y)
    for output in ("predict_proba", "decision_function", "predict"):
        yes, no = (Predictor(model, output=output, target_class=c)(X) for c in ("yes", "no"))
        assert np.corrcoef(yes, no)[0, 1] == pytest.approx(-1.0)
        assert yes[X[:, 0].argmax()] > yes[X[:, 0].argmin()]
    decided = Predictor(model, target_class="no").decided(X)
    assert np.array_equal(decided, model.predict(X) == "no")


def test_more_classes_need_a_target() -> None:
    model = LogisticRegression().fit(X, THREE)
    with pytest.raises(DeclarationError, match="3 classes"):
        Predictor(model)
    with pytest.raises(DeclarationError, match="no class 'd'"):
        Predictor(model, target_class="d")
    for output in ("predict_proba", "decision_function"):
        found = Predictor(model, output=output, target_class="c")(X)
        assert np.array_equal(found, getattr(model, output)(X)[:, 2])


def test_linear_decision_functions_have_coefficients() -> None:
    model = LogisticRegression().fit(X, Y)
    assert Predictor(model).coef is None
    found = Predictor(model, output="decision_function", target_class="no").coef
    np.testing.assert_allclose(found, -model.coef_[0])
    assert Predictor(LinearScore([1.0, 2.0], 0.0)).coef.tolist() == [1.0, 2.0]
    assert Predictor(([1.0, 2.0], 0.0)).decided(np.array([[1.0, -1.0], [1.0, 1.0]])).tolist() == [
        False,
        True,
    ]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_named_scores_find_their_features(frame: type) -> None:
    score = LinearScore([1.0, -5.0], 0.0, names=["a", "b"])
    rows = frame({"b": [1.0, 2.0], "a": [7.0, 8.0]})
    predictor = Predictor(score)
    assert predictor(rows).tolist() == [2.0, -2.0]
    assert predictor.coefficients(["b", "a"]).tolist() == [-5.0, 1.0]
    assert predictor.coefficients(["x0", "x1"]).tolist() == [1.0, -5.0]
    closed, exact = (
        p_shap(score, rows, rows[::-1], np.eye(2), method=m) for m in ("auto", "exact")
    )
    assert closed.method == "linear"
    np.testing.assert_allclose(closed.values, exact.values)
    with pytest.raises(DataError, match="other features than the score"):
        predictor(frame({"a": [1.0], "c": [2.0]}))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_and_raw_categories_go_through_a_pipeline(frame: type) -> None:
    rows = frame({"age": [20.0, 30.0, 40.0, 50.0], "job": ["a", "b", "a", "b"]})
    encode = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    model = make_pipeline(encode, LogisticRegression()).fit(rows, [0, 0, 1, 1])
    predictor = Predictor(model)
    assert predictor(rows).shape == (4,)
    unseen = frame({"age": [20.0], "job": ["c"]})
    with pytest.raises(DataError, match="the model refuses the rows") as e:
        predictor(unseen)
    assert "unknown categories" in e.value.evidence
    assert "categories" in e.value.remedy


def test_the_container_of_the_fit_is_used() -> None:
    frame = pd.DataFrame(X, columns=list("abc"))
    on_arrays, on_frames = LogisticRegression().fit(X, Y), LogisticRegression().fit(frame, Y)
    # scikit-learn warns of the other container, and warnings are errors here
    np.testing.assert_array_equal(Predictor(on_arrays)(frame), Predictor(on_frames)(X))
    with pytest.raises(DataError, match="2 columns for a model of 3"):
        Predictor(on_frames)(X[:, :2])


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        (lambda n: np.full(n, np.nan), "NaN or infinite"),
        (lambda n: np.zeros(n + 1), "returned shape"),
        (lambda n: np.zeros((n, 2)), "returned shape"),
        (lambda n: np.array(["x"] * n), "does not return numbers"),
    ],
)
def test_functions_must_return_one_finite_number_per_row(returned: object, match: str) -> None:
    with pytest.raises(DataError, match=match):
        Predictor(lambda rows: returned(len(rows)))(X)


def test_probabilities_must_have_a_column_per_class() -> None:
    class Broken:
        classes_ = np.array([0, 1])

        def predict_proba(self, rows: np.ndarray) -> np.ndarray:
            return np.ones(len(rows))

    with pytest.raises(DataError, match="one column per class"):
        Predictor(Broken())(X)


def test_what_is_no_model_is_refused() -> None:
    for bad in (None, LogisticRegression, 3.0):
        with pytest.raises(DeclarationError):
            Predictor(bad)
    with pytest.raises(DeclarationError, match="has no predict_proba"):
        Predictor(LinearSVC().fit(X, Y), output="predict_proba")
    with pytest.raises(DeclarationError, match="did you mean 'predict_proba'"):
        Predictor(LinearSVC().fit(X, Y), output="predict_probs")
    with pytest.raises(DeclarationError, match="has no classes"):
        Predictor(len, target_class=1)
    with pytest.raises(DeclarationError, match="decides for no class"):
        Predictor(lambda rows: rows[:, 0]).decided(X)


def test_large_tables_are_asked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optfair.features.predictor.BATCH", 7)
    for rows in (X, pl.DataFrame(X), pd.DataFrame(X)):
        predictor = Predictor(lambda part: np.asarray(part)[:, 0])
        assert np.array_equal(predictor(rows), X[:, 0])
        assert (predictor.calls, predictor.rows_asked) == (9, 60)
