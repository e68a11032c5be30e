"""German Credit, 9 features: the methods of Table 2 of the paper on the same 100 rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import optfair as of
from optfair.methods.sparse_counterfactuals.generators import nearest_unlike_neighbours
from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import (
    SparseCounterfactuals,
)

pytestmark = pytest.mark.data

NUMERIC = ["Age", "Credit amount", "Duration"]
# Table 2, but for the known alignment: nearest neighbours are coupled by transport alike
BASELINES = {
    "RB-pUni": {"attribution": "rb-shap", "coupling": "uniform"},
    "RB-pOT": {"attribution": "rb-shap"},
    "CF-pUni": {"coupling": "uniform"},
    "CF-pRnd": {"coupling": "random"},
}


@pytest.fixture(
    scope="module",
    params=["logistic regression", pytest.param("gradient boosting", marks=pytest.mark.slow)],
)
def case(request: pytest.FixtureRequest) -> tuple[Any, ...]:
    data = of.datasets.load("german_credit_cola9")
    table = pd.DataFrame({c: data[c] for c in data.column_names})
    X, y = table.drop(columns="Risk"), table["Risk"]
    train = np.random.default_rng(0).permutation(len(X))[:700]
    model = (
        LogisticRegression(max_iter=1000)
        if request.param == "logistic regression"
        else GradientBoostingClassifier(random_state=0)
    )
    encode = make_column_transformer(
        (StandardScaler(), NUMERIC), (OneHotEncoder(), [c for c in X if c not in NUMERIC])
    )
    pipe = make_pipeline(encode, model).fit(X.iloc[train], y.iloc[train])
    x = X[pipe.predict(X) == "bad"].iloc[:100]
    r = nearest_unlike_neighbours(pipe, x, X.iloc[train], target_class="good")
    return pipe, x, r, X.iloc[train[:15]]


def fitted(case: tuple[Any, ...], **options: Any) -> SparseCounterfactuals:
    pipe, x, r, background = case
    model = SparseCounterfactuals(
        pipe, outcome="label", random_state=0, background=background, **options
    )
    return model.fit(x, r.rows, alignment=r.alignment)


def test_p_shap_keeps_the_whole_effect_with_45_percent_of_the_edits(case: tuple[Any, ...]) -> None:
    pipe, x, r, _ = case
    model = fitted(case)
    assert model.attribution_method_ == "exact"
    assert model.original_edits_ == (x.to_numpy() != r.rows.to_numpy()).sum()
    found = model.minimum_actions(1.0)
    assert found.edits.shape == (100, 9)
    assert (pipe.predict(found.rows) == "good").all()
    assert found.edit_ratio <= 0.45
    baselines = {name: fitted(case, **options) for name, options in BASELINES.items()}
    for name, other in baselines.items():
        edits = other.minimum_actions(1.0).n_edits if other.effects().max() >= 1.0 else np.inf
        assert found.n_edits < edits, name


def test_the_optimum_is_below_and_near(case: tuple[Any, ...]) -> None:
    model = fitted(case)
    least = model.fewest(1.0)
    optimum = least.solve()
    assert optimum.is_optimal(1e-6)
    assert optimum.objective <= model.minimum_actions(1.0, prune=True).n_edits
    assert model.minimum_actions(1.0).n_edits <= 1.25 * optimum.objective
