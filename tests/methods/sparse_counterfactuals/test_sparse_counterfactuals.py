"""SparseCounterfactuals: nested edits, containers, effects, bad input, and the optimum below."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from optfair.errors import DataError, DeclarationError, OptfairError
from optfair.methods.sparse_counterfactuals.generators import nearest_unlike_neighbours
from optfair.methods.sparse_counterfactuals.metrics import (
    DIVERGENCES,
    edit_mask,
    mean_difference,
)
from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import (
    SparseCounterfactuals,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 5))
Y = X[:, 0] + 0.5 * X[:, 1] * X[:, 2] > 0.2
MODEL = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(X, Y)
LOW, HIGH = X[~MODEL.predict(X)][:8], X[MODEL.predict(X)][:8]


def cola(**options: Any) -> SparseCounterfactuals:
    return SparseCounterfactuals(MODEL, random_state=0, **options).fit(LOW, HIGH)


def table(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "age": rng.integers(20, 60, size=n),
        "job": rng.choice(["none", "part", "full"], size=n),
        "income": rng.normal(size=n).round(2),
    }


def pipeline(frame: type) -> tuple[Any, Any]:
    rows = frame(table(80, 1))
    y = (np.asarray(rows["job"]) == "full") | (np.asarray(rows["age"]) > 45)
    encode = make_column_transformer(
        (StandardScaler(), ["age", "income"]), (OneHotEncoder(), ["job"])
    )
    return make_pipeline(encode, LogisticRegression()).fit(rows, y), rows


@pytest.mark.parametrize("arrived_last", [True, False])
def test_edits_are_nested_and_never_spent_on_nothing(arrived_last: bool) -> None:
    model = cola(arrived_last=arrived_last)
    before = np.zeros(LOW.shape, dtype=bool)
    for budget in (0, 1, 2, 7, 20, 40):
        found = model.refine(budget)
        assert (found.edits >= before).all()
        assert found.n_edits == min(budget, len(model.order_))
        assert np.array_equal(found.edits, edit_mask(LOW, found.rows))
        np.testing.assert_allclose(found.outputs, MODEL.predict_proba(found.rows)[:, 1])
        before = found.edits
    assert np.array_equal(model.refine(0).rows, LOW)
    assert np.array_equal(model.refine().rows, model.values_)


def test_budget_of_the_constructor_is_the_default() -> None:
    assert cola(budget=3).refine().n_edits == 3
    assert cola(budget=3).refine(5).n_edits == 5


def test_without_arrivals_the_largest_values_come_first() -> None:
    model = cola(arrived_last=False)
    weights = np.abs(model.attribution_)[tuple(model.order_.T)]
    assert (np.diff(weights) <= 0).all()


def test_attributions_add_up_to_the_distance_of_the_scores() -> None:
    model = cola()
    partner = MODEL.predict_proba(HIGH[model.coupling_.argmax(axis=1)])[:, 1]
    np.testing.assert_allclose(
        model.attribution_.sum(axis=1), MODEL.predict_proba(LOW)[:, 1] - partner
    )


def test_effects_are_those_of_the_refined_rows() -> None:
    for name in DIVERGENCES:
        model = cola(divergence=name)
        effects = model.effects()
        assert effects[0] == 0.0
        for budget in (1, 5, 17, len(effects) - 1):
            found = model.refine(budget)
            assert found.effect == pytest.approx(effects[budget], abs=1e-9)
            assert found.divergences()[name] == pytest.approx(model.divergences()[budget], abs=1e-9)
        assert effects[-1] == pytest.approx(1.0)
        assert model.achieved_ == 1.0


def test_minimum_actions_is_the_first_budget_that_reaches() -> None:
    model = cola()
    for effect in (0.5, 0.8, 1.0):
        found = model.minimum_actions(effect)
        effects = model.effects()
        assert effects[found.budget] >= effect - 1e-9
        assert (effects[: found.budget] < effect - 1e-9).all()
        fewer = model.minimum_actions(effect, prune=True)
        assert fewer.n_edits <= found.n_edits
        assert fewer.effect >= effect - 1e-9
        assert (fewer.edits <= found.edits).all()


def test_labels_need_fewer_edits_than_scores() -> None:
    labels = cola(outcome="label").minimum_actions(1.0)
    assert MODEL.predict(labels.rows).all()
    assert labels.effect == 1.0
    assert labels.n_edits < cola().minimum_actions(1.0).n_edits
    assert labels.edit_ratio == labels.n_edits / (LOW != HIGH).sum()


def test_the_declared_problems_bound_the_heuristic() -> None:
    model = cola(outcome="label", divergence="mean")
    for budget in (2, 5, 9):
        plan = model.plan(budget)
        optimum = plan.solve()
        assert optimum.is_optimal(1e-6)
        ours = mean_difference(model.refine(budget).outputs, model.target_)
        assert plan.mean_difference(optimum) <= ours + 1e-9
    fewest = model.fewest(1.0)
    least = fewest.solve()
    pruned = model.minimum_actions(1.0, prune=True)
    assert least.objective <= pruned.n_edits <= model.minimum_actions(1.0).n_edits
    assert MODEL.predict(np.asarray(fewest.refined(least))).all()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_with_raw_categories_come_back_as_they_were(frame: type) -> None:
    pipe, rows = pipeline(frame)
    low = rows.to_pandas() if frame is pl.DataFrame else rows
    low = low[~pipe.predict(rows)][:6]
    if frame is pl.DataFrame:
        low = pl.from_pandas(low)
    found = nearest_unlike_neighbours(pipe, low, rows)
    for value in ("max", "avg"):
        model = SparseCounterfactuals(pipe, coupling="uniform", value=value, on_missed="keep")
        refined = model.fit(low, found.rows).refine(7)
        assert type(refined.rows) is type(low)
        assert list(refined.rows.dtypes) == list(low.dtypes)
        assert refined.n_edits == 7
        assert np.array_equal(edit_mask(low, refined.rows), refined.edits)
        assert set(refined.rows["job"]) <= {"none", "part", "full"}
        if frame is pd.DataFrame:
            assert refined.rows.index.equals(low.index)
        assert len(refined.changes()) == 7
        assert set(refined.changes()[0]) == {"row", "feature", "before", "after"}
        assert refined.edits_per_row.sum() == 7


def test_immutable_features_are_never_edited() -> None:
    model = cola(immutable=["x0", 3])
    final = model.refine().rows
    assert np.array_equal(final[:, [0, 3]], LOW[:, [0, 3]])
    assert np.array_equal(model.values_[:, [0, 3]], LOW[:, [0, 3]])
    assert not model.plan(3).choices.edits[:, [0, 3]].any()


def test_features_without_weight_are_no_distance() -> None:
    model = SparseCounterfactuals(([1.0, 0.0], 0.0), feature_weights=[0.0, 1.0])
    found = model.fit([[-1.0, 5.0]], [[1.0, 5.0]]).refine(1)
    assert np.isnan(found.distance_ratio)
    assert found.edit_ratio == 1.0


def test_features_that_agree_cost_no_budget() -> None:
    r = HIGH.copy()
    r[:, 1] = LOW[:, 1]
    model = SparseCounterfactuals(MODEL, coupling="aligned", on_missed="keep").fit(LOW, r)
    assert not (model.order_[:, 1] == 1).any()
    assert model.refine(32).n_edits == 32
    assert model.original_edits_ == 32


def test_attributions_by_name_and_given() -> None:
    background = X[:20]
    p, cf = cola(), cola(attribution="cf-shap")
    assert np.array_equal(p.attribution_, cf.attribution_)
    b = cola(attribution="b-shap", coupling="uniform")
    assert np.array_equal(b.attribution_, cola(coupling="aligned").attribution_)
    rb = cola(attribution="rb-shap", background=background)
    mean = MODEL.predict_proba(background)[:, 1].mean()
    np.testing.assert_allclose(
        rb.attribution_.sum(axis=1), MODEL.predict_proba(LOW)[:, 1] - mean, atol=1e-12
    )
    given = cola(attribution=np.arange(40.0).reshape(8, 5), arrived_last=False)
    assert given.order_[0].tolist() == [7, 4]
    assert given.attribution_method_ == "given"
    with pytest.raises(DataError, match="attribution does not fit"):
        cola(attribution=np.ones((2, 2)))
    with pytest.raises(DeclarationError, match="background="):
        cola(attribution="rb-shap")


def test_samples_are_seeded_and_can_be_drawn_again() -> None:
    first = cola(selection="sample")
    assert np.array_equal(first.order_, cola(selection="sample").order_)
    other = first.reordered("sample", random_state=7)
    assert not np.array_equal(first.order_, other.order_)
    assert sorted(map(tuple, first.order_)) == sorted(map(tuple, other.order_))
    top = other.reordered("top")
    assert np.array_equal(top.order_, cola().order_)
    found = other.refine(6)
    np.testing.assert_allclose(found.outputs, MODEL.predict_proba(found.rows)[:, 1])


def test_more_counterfactuals_than_rows() -> None:
    owner = np.repeat(np.arange(4), 2)
    options = {"coupling": "aligned", "random_state": 0}
    model = SparseCounterfactuals(MODEL, **options).fit(LOW[:4], HIGH, alignment=owner)
    assert model.original_edits_ == pytest.approx((LOW[owner[: len(HIGH)]] != HIGH).sum() / 2)
    with pytest.raises(DataError, match="8 counterfactuals for 4 factual rows have no alignment"):
        SparseCounterfactuals(MODEL, **options).fit(LOW[:4], HIGH)
    with pytest.raises(DataError, match="have no alignment"):
        SparseCounterfactuals(MODEL, attribution="b-shap").fit(LOW[:4], HIGH)


def test_any_model_will_do() -> None:
    svm = LinearSVC().fit(X, Y)
    low, high = X[~svm.predict(X)][:5], X[svm.predict(X)][:5]
    assert SparseCounterfactuals(svm).fit(low, high).attribution_method_ == "linear"
    regression = LinearRegression().fit(X, X[:, 0])
    model = SparseCounterfactuals(regression, divergence="mean").fit(X[:4] - 1.0, X[4:8] + 1.0)
    assert model.target_class_ is None
    assert model.minimum_actions(1.0).n_edits <= 20
    linear = SparseCounterfactuals(([1.0, 0.0], 0.0)).fit([[-1.0, 5.0]], [[1.0, 6.0]])
    assert linear.minimum_actions(1.0).edits.tolist() == [[True, False]]


def test_the_class_of_most_counterfactuals_is_the_target() -> None:
    down = SparseCounterfactuals(MODEL).fit(HIGH, LOW)
    assert down.target_class_ is False
    assert cola().target_class_ is True
    np.testing.assert_allclose(down.factual_outputs_, MODEL.predict_proba(HIGH)[:, 0])


def test_counterfactuals_that_miss_say_their_effect() -> None:
    r = HIGH.copy()
    r[[2, 5]] = LOW[[2, 5]] + 1e-3
    with pytest.raises(DataError, match="2 of 8 counterfactuals are not in class True") as e:
        SparseCounterfactuals(MODEL).fit(LOW, r)
    assert "row 2" in e.value.evidence
    assert "75.0%" in e.value.evidence
    kept = SparseCounterfactuals(MODEL, on_missed="keep", outcome="label").fit(LOW, r)
    assert kept.achieved_ == pytest.approx(0.75)
    with pytest.raises(DataError, match="no budget reaches an effect of 1") as e:
        kept.minimum_actions(1.0)
    assert "0.75" in e.value.evidence
    # what it is measured on already is no remedy, and another set of edits may do
    assert "outcome" not in e.value.remedy and 'divergence="mean"' in e.value.remedy
    assert "fewest(effect)" in e.value.remedy
    assert kept.minimum_actions(0.7).effect == 0.75


def test_a_given_target_is_what_the_effect_is_measured_from() -> None:
    with pytest.raises(DataError, match="no nearer to the target"):
        SparseCounterfactuals(MODEL, target=0.0).fit(LOW, HIGH)
    model = SparseCounterfactuals(MODEL, target=0.95).fit(LOW, HIGH)
    y = MODEL.predict_proba(HIGH)[:, 1]
    x = MODEL.predict_proba(LOW)[:, 1]
    assert model.achieved_ == pytest.approx(1 - np.abs(y - 0.95).mean() / np.abs(x - 0.95).mean())
    for bad in (np.nan, "high", [[1.0]]):
        with pytest.raises(DataError, match="target"):
            SparseCounterfactuals(MODEL, target=bad).fit(LOW, HIGH)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_what_was_achieved_is_the_effect_of_all_edits(name: str) -> None:
    options = {"target": 0.95, "divergence": name, "coupling": "aligned"}
    model = SparseCounterfactuals(MODEL, **options).fit(LOW, HIGH)
    assert 0.0 < model.achieved_ < 1.0
    assert model.achieved_ == pytest.approx(model.refine().effect)


def test_rows_at_the_target_have_nothing_to_edit() -> None:
    with pytest.raises(DataError, match="at the target already"):
        SparseCounterfactuals(MODEL).fit(HIGH, HIGH)


@pytest.mark.parametrize("budget", [-1, 41, 2.5, True, "all"])
def test_budgets_must_be_numbers_of_cells(budget: Any) -> None:
    with pytest.raises(DataError, match="budget is") as e:
        cola().refine(budget)
    assert "0 to 40" in e.value.remedy
    with pytest.raises(DataError, match="budget is"):
        cola(budget=budget)


@pytest.mark.parametrize("effect", [0.0, 1.5, -1, "all", None, True])
def test_effects_must_be_shares(effect: Any) -> None:
    with pytest.raises(DataError, match="effect is"):
        cola().minimum_actions(effect)


@pytest.mark.parametrize(
    "options",
    [
        {"coupling": "otp"},
        {"coupling": np.ones(3)},
        {"attribution": "shap"},
        {"value": "mean"},
        {"selection": "all"},
        {"output": "proba"},
        {"outcome": "class"},
        {"divergence": "kl"},
        {"on_missed": "warn"},
        {"exact_features": 40},
        {"exact_features": 2.0},
    ],
)
def test_parameters_out_of_range_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=next(iter(options))):
        cola(**options)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (lambda rows: np.full(len(rows), np.nan), "NaN or infinite"),
        (lambda rows: rows, "returned shape"),
    ],
)
def test_models_that_return_no_scores_are_refused(model: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        SparseCounterfactuals(model).fit(LOW, HIGH)


def test_unseen_categories_are_refused_before_any_work() -> None:
    pipe, rows = pipeline(pd.DataFrame)
    r = rows[:4].assign(job="retired")
    with pytest.raises(DataError, match="the model refuses the rows") as e:
        SparseCounterfactuals(pipe).fit(rows[:4], r)
    assert "retired" in e.value.evidence


def test_many_features_are_estimated_with_an_error() -> None:
    rng = np.random.default_rng(0)
    x, r = rng.normal(size=(2, 14)) - 1, rng.normal(size=(2, 14)) + 1
    f = lambda rows: 1 / (1 + np.exp(-rows.sum(axis=1) - rows[:, :3].prod(axis=1)))
    model = SparseCounterfactuals(f, samples=600, random_state=0).fit(x, r)
    assert model.attribution_method_ == "sampled"
    assert model.attribution_error_.shape == (2, 14)
    assert 0 < model.attribution_error_.max() < 0.1


def test_it_is_an_estimator_of_scikit_learn() -> None:
    model = SparseCounterfactuals(len, coupling="uniform", immutable=("a",))
    assert clone(model).get_params() == model.get_params()
    assert "uniform" in repr(model)


def test_a_clone_keeps_the_fitted_model_and_forgets_the_fit() -> None:
    model, _ = pipeline(pd.DataFrame)
    rows = pd.DataFrame(table(40, 7))
    refused = rows[model.predict(rows) != model.classes_[1]]
    wanted = rows[model.predict(rows) == model.classes_[1]]
    fitted = SparseCounterfactuals(model, target_class=model.classes_[1], immutable=["age"])
    fitted.fit(refused, wanted)
    copy = clone(fitted)
    assert copy.model is model
    with pytest.raises(NotFittedError):
        copy.refine(1)
    again = copy.set_params(immutable=()).fit(refused, wanted)
    assert again.minimum_actions(0.5).n_edits > 0
    none = clone(fitted).set_params(immutable=None).fit(refused, wanted)
    assert none.minimum_actions(0.5).n_edits == again.minimum_actions(0.5).n_edits
    assert fitted.immutable == ["age"]


def test_models_that_are_not_fitted_are_named() -> None:
    unfitted = clone(pipeline(pd.DataFrame)[0])
    rows = pd.DataFrame(table(6, 1))
    with pytest.raises(DataError, match="the model is not fitted"):
        SparseCounterfactuals(unfitted).fit(rows[:3], rows[3:])
    with pytest.raises(DeclarationError, match=r"not fitted(.|\n)*fit it first"):
        SparseCounterfactuals(unfitted, target_class=1).fit(rows[:3], rows[3:])


def test_seeds_of_every_kind() -> None:
    def seeded(random_state: Any) -> SparseCounterfactuals:
        model = SparseCounterfactuals(MODEL, coupling="random", random_state=random_state)
        return model.fit(LOW, HIGH)

    first, second = (seeded(np.random.RandomState(3)).coupling_ for _ in range(2))
    np.testing.assert_array_equal(first, second)
    for bad in ("a", -1, 0.5):
        with pytest.raises(OptfairError, match=r"random_state|seeds nothing"):
            seeded(bad)
