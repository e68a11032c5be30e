"""Counterfactuals to refine: nearest unlike neighbours, projections, maps, results of DiCE."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from optfair.errors import DataError, DeclarationError
from optfair.features.linear_score import LinearScore
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.sparse_counterfactuals.couplings import MixedEncoding
from optfair.methods.sparse_counterfactuals.generators import (
    dice_counterfactuals,
    given_counterfactuals,
    mapped_counterfactuals,
    nearest_unlike_neighbours,
    projected_counterfactuals,
)
from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import (
    SparseCounterfactuals,
)
from optfair.methods.sparse_counterfactuals.tables import StackedRows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X[:, 0] + X[:, 1] > 0.3
MODEL = LogisticRegression().fit(X, Y)
LOW = X[~MODEL.predict(X)][:7]


def test_neighbours_are_the_nearest_in_the_target_class() -> None:
    tree = DecisionTreeClassifier(random_state=0).fit(X, Y)
    low = X[~tree.predict(X)][:7]
    found = nearest_unlike_neighbours(tree, low, X, n_neighbors=2)
    assert found.alignment.tolist() == np.repeat(np.arange(7), 2).tolist()
    scale = np.concatenate([low, X]).std(axis=0)
    pool = X[tree.predict(X)]
    for i, row in enumerate(low):
        order = np.argsort((((pool - row) / scale) ** 2).sum(axis=1))[:2]
        np.testing.assert_array_equal(found.rows[2 * i : 2 * i + 2], pool[order])


def test_neighbours_in_parts_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [nearest_unlike_neighbours(MODEL, LOW, X, n_neighbors=k).rows for k in (1, 3)]
    assert np.array_equal(whole[0], whole[1][::3])
    monkeypatch.setattr("optfair.methods.sparse_counterfactuals.generators.ENTRIES", 60)
    for k, expected in zip((1, 3), whole, strict=True):
        found = nearest_unlike_neighbours(MODEL, LOW, X, n_neighbors=k)
        assert np.array_equal(found.rows, expected)


def test_neighbours_of_the_other_class() -> None:
    high = X[MODEL.predict(X)][:5]
    found = nearest_unlike_neighbours(MODEL, high, X, target_class=False)
    assert not MODEL.predict(found.rows).any()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_neighbours_share_immutable_features(frame: type) -> None:
    rng = np.random.default_rng(1)
    rows = {"a": rng.normal(size=50), "sex": rng.choice(["f", "m"], size=50)}
    model = lambda z: np.asarray(z["a"])
    classifier = SimpleNamespace(
        classes_=[False, True], predict=lambda z: np.asarray(z["a"]) > 0.0, predict_proba=model
    )
    x = frame({"a": [-1.0, -1.0], "sex": ["f", "m"]})
    found = nearest_unlike_neighbours(classifier, x, frame(rows), immutable=["sex"])
    assert list(found.rows["sex"]) == ["f", "m"]
    assert type(found.rows) is frame
    rows["sex"] = np.full(50, "f")
    with pytest.raises(DataError, match="1 rows have fewer than 1 candidates") as e:
        nearest_unlike_neighbours(classifier, x, frame(rows), immutable=["sex"])
    assert "row 1" in e.value.evidence


def test_too_few_candidates_are_refused() -> None:
    with pytest.raises(DataError, match="0 candidates are in class True"):
        nearest_unlike_neighbours(MODEL, LOW, LOW)
    for bad in (0, 1.5, True):
        with pytest.raises(DeclarationError, match="n_neighbors"):
            nearest_unlike_neighbours(MODEL, LOW, X, n_neighbors=bad)


@pytest.mark.parametrize("target", [True, False])
@pytest.mark.parametrize("options", [{}, {"probability": 0.8}, {"threshold": 0.7}])
def test_projections_are_the_nearest_points_beyond_the_boundary(
    target: bool, options: dict[str, float]
) -> None:
    found = projected_counterfactuals(MODEL, X, target_class=target, **options).rows
    sign = 1.0 if target else -1.0
    w, w0 = sign * MODEL.coef_[0], sign * MODEL.intercept_[0]
    level = options.get("threshold", np.log(4.0) if "probability" in options else 0.0)
    expected = X + np.outer(np.maximum(level - X @ w - w0, 0.0) / (w @ w), w)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (found @ w + w0 >= level).all()  # not a digit short of it
    if not options:
        assert (MODEL.predict(found) == target).all()


def test_projections_and_maps_keep_the_frame() -> None:
    frame = pd.DataFrame(LOW, columns=list("abc"), index=range(10, 17))
    score = LinearScore(MODEL.coef_[0], MODEL.intercept_[0], names=list("abc"))
    found = projected_counterfactuals(score, frame).rows
    assert list(found.columns) == list("abc")
    assert found.index.equals(frame.index)
    problem = PSDMap(frame, score=score, K=1.5, k=1.5)
    moved = mapped_counterfactuals(problem.map(problem.solve()), frame)
    assert moved.alignment.tolist() == list(range(7))
    assert (MODEL.decision_function(np.asarray(moved.rows)) >= -1e-6).all()
    with pytest.raises(DeclarationError, match="no transform"):
        mapped_counterfactuals(problem, frame)
    wrong = SimpleNamespace(transform=lambda rows: rows[:, :1])
    with pytest.raises(DataError, match="one counterfactual per row"):
        mapped_counterfactuals(wrong, LOW)


def test_every_generator_feeds_the_refinement() -> None:
    problem = PSDMap(LOW, score=MODEL, probability=0.6, K=1.5, k=1.5)
    for found in (
        nearest_unlike_neighbours(MODEL, LOW, X, n_neighbors=2),
        projected_counterfactuals(MODEL, LOW),
        mapped_counterfactuals(problem.map(problem.solve()), LOW),
        given_counterfactuals(X[MODEL.predict(X)][:7]),
    ):
        model = SparseCounterfactuals(MODEL, outcome="label", random_state=0)
        refined = model.fit(LOW, found).minimum_actions(1.0)
        apart = (LOW[found.alignment] != found.rows).sum(axis=1)
        assert model.original_edits_ == pytest.approx(apart.mean() * len(LOW))
        assert MODEL.predict(refined.rows).all()
        assert refined.edit_ratio <= 1.0


def test_given_rows_may_have_any_alignment() -> None:
    assert given_counterfactuals(X[:2]).alignment.tolist() == [0, 1]
    assert given_counterfactuals(X[:2], alignment=None).alignment is None
    assert given_counterfactuals(X[:2], alignment=[1, 1]).alignment.tolist() == [1, 1]
    with pytest.raises(DataError, match="alignment does not fit"):
        given_counterfactuals(X[:2], alignment=[0])
    with pytest.raises(DataError, match="no table"):
        given_counterfactuals(X[0])


QUERY = pd.DataFrame({"age": [30, 40], "job": ["a", "b"], "income": [1.5, 2.5]}, index=[7, 9])


def dice(*frames: Any) -> Any:
    """The public shape of what ``generate_counterfactuals`` of dice-ml returns."""
    entries = [
        SimpleNamespace(test_instance_df=None, final_cfs_df=frame, desired_class=1)
        for frame in frames
    ]
    return SimpleNamespace(cf_examples_list=entries)


FIRST = pd.DataFrame(
    {"age": ["35.0", "30"], "job": ["a", "c"], "income": ["1.5", "9"], "risk": [1, 1]}
)
SECOND = pd.DataFrame({"age": ["40"], "job": ["a"], "income": ["2.5"], "risk": [1]}, index=[3])


def test_results_of_dice_take_the_types_of_the_query() -> None:
    found = dice_counterfactuals(dice(FIRST, SECOND), QUERY)
    assert found.alignment.tolist() == [0, 0, 1]
    assert found.rows.dtypes.to_dict() == QUERY.dtypes.to_dict()
    assert found.rows.to_dict("list") == {
        "age": [35, 30, 40],
        "job": ["a", "c", "a"],
        "income": [1.5, 9.0, 2.5],
    }
    # rows that did not change are equal cell by cell, so they cost no edit
    stack = StackedRows.of(QUERY, found.rows)
    assert (stack.blocks[0][[0, 0, 1]] != stack.blocks[1]).sum() == 4
    assert MixedEncoding.of(stack).cost(*stack.blocks).shape == (2, 3)


def test_one_entry_of_dice_and_its_frames_are_taken_too() -> None:
    one = dice_counterfactuals(dice(FIRST).cf_examples_list[0], QUERY[:1])
    assert one.alignment.tolist() == [0, 0]
    assert len(dice_counterfactuals([FIRST, SECOND], QUERY)) == 3


def test_rows_for_which_dice_found_nothing_are_named_or_skipped() -> None:
    with pytest.raises(DataError, match="found no counterfactual for 1 rows") as e:
        dice_counterfactuals(dice(None, SECOND), QUERY)
    assert "row 0" in e.value.evidence
    skipped = dice_counterfactuals(dice(None, SECOND), QUERY, on_missing="skip")
    assert skipped.alignment.tolist() == [1]
    with pytest.raises(DataError, match="for 2 rows"):
        dice_counterfactuals(dice(None, SECOND[:0]), QUERY, on_missing="skip")
    with pytest.raises(DeclarationError, match="on_missing"):
        dice_counterfactuals(dice(FIRST, SECOND), QUERY, on_missing="drop")


@pytest.mark.parametrize(
    ("result", "match"),
    [
        (dice(FIRST), "1 entries for 2 factual rows"),
        (dice(FIRST, SECOND.drop(columns="job")), "row 1 have no column 'job'"),
        (dice(FIRST, SECOND.assign(age="old")), "do not fit their column"),
        (dice(FIRST, SECOND.assign(age="40.5")), "do not fit their column"),
        (3, "no result of DiCE"),
        ([1, 2], "no result of DiCE"),
    ],
)
def test_other_results_are_refused(result: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        dice_counterfactuals(result, QUERY)
