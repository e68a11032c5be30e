"""scikit-learn's own checks, on estimators whose groups come from the rows: nothing else hands groups over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

import optfair as of

# What is said in our words, by errors with cause, reason and remedy.
WORDS = {
    "check_n_features_in_after_fitting": "X has 1 columns, the fit had 4",
    "check_complex_data": "the entries are complex128",
    "check_dtype_object": "a dict is no number: a DataError, which is a ValueError",
    "check_estimators_empty_data_messages": "X is empty",
    "check_fit2d_predict1d": "X is no table",
}
# What estimators that compare groups cannot do, and starts that are drawn.
EXPECTED = {
    **WORDS,
    "check_sample_weight_equivalence_on_dense_data": "starts are drawn from other rows, as in KMeans",
    "check_fit2d_1sample": "one row is one group, and nothing is compared",
    "check_parameters_default_constructible": "the default rule is a frozen value",
}


def groups_of(X: Any) -> Any:
    """Return two groups that are properties of the rows."""
    rows = np.asarray(X)
    try:
        x = np.nan_to_num(rows.astype(float), posinf=0.0, neginf=0.0).reshape(len(rows), -1)
    except (TypeError, ValueError):
        x = np.zeros((rows.shape[0] if rows.ndim else 2, 1))
    groups = (np.floor(x).sum(axis=1) + np.floor(64.0 * x).sum(axis=1)) % 2
    return np.arange(len(x)) % 2 if np.ptp(groups) == 0.0 else groups


class _OwnGroups:
    def fit(self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None) -> Any:
        own = groups_of(X) if groups is None else groups
        return super().fit(X, y, groups=own, sample_weight=sample_weight)  # type: ignore[misc]

    def predict(self, X: Any, *, groups: Any = None) -> Any:
        return super().predict(X, groups=groups_of(X) if groups is None else groups)  # type: ignore[misc]

    def fit_predict(self, X: Any, y: Any = None, **given: Any) -> Any:
        return self.fit(X, y, **given).labels_


class OwnKMeans(_OwnGroups, of.FairKMeans):
    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> float:
        return super().score(X, y, groups=groups_of(X), sample_weight=sample_weight)

    def fit_transform(self, X: Any, y: Any = None, **given: Any) -> Any:
        return self.fit(X, y, **given).transform(X)


class OwnMixture(_OwnGroups, of.FairMixture):
    def partial_fit(self, X: Any, y: Any = None) -> Any:
        return super().partial_fit(X, y, groups=groups_of(X))

    def predict_proba(self, X: Any, *, groups: Any = None) -> Any:
        return super().predict_proba(X, groups=groups_of(X) if groups is None else groups)


CASES = {
    "kmeans": (OwnKMeans(2, random_state=0, n_init=1), EXPECTED),
    "mixture": (OwnMixture(2, random_state=0, n_init=1), EXPECTED),
    "plain mixture": (of.FairMixture(2, fairness=None, random_state=0, n_init=1), EXPECTED),
}


@pytest.mark.filterwarnings("ignore")  # fits of four rows say what they think of them
@pytest.mark.parametrize("case", CASES)
def test_estimators_pass_the_checks_of_scikit_learn(case: str) -> None:
    estimator, expected = CASES[case]
    results = check_estimator(
        estimator, expected_failed_checks=expected, on_fail=None, on_skip=None
    )
    failed = {r["check_name"]: str(r["exception"]) for r in results if r["status"] == "failed"}
    assert failed == {}
    assert sum(r["status"] == "passed" for r in results) >= 42
    words = {r["check_name"]: r["exception"] for r in results if r["check_name"] in WORDS}
    assert words.keys() == WORDS.keys()
