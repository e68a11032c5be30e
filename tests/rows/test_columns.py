"""Which columns are categories, what rows become, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import optfair as of
from optfair.errors import DataError
from optfair.rows.frames import Columns, taken_apart, without_groups
from optfair.rows.sources import row_source


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "x": [1.0, 2.0, 3.0],
            "home": ["own", None, "rent"],
            "flag": [True, False, True],
            "kind": pd.Categorical(["a", "b", "a"]),
            "whole": pd.array([1, 2, 2], dtype="Int64"),
            "code": [7, 8, 7],
        }
    )


def test_auto_takes_what_is_no_number(frame):
    columns = Columns.of(frame, "auto")
    assert [columns.names[j] for j in columns.categorical] == ["home", "kind"]
    assert [c.tolist() for c in columns.categories] == [["own", "rent"], ["a", "b"]]
    assert columns.offsets.tolist() == [0, 2, 4]
    rows = columns.encoded(frame)
    np.testing.assert_allclose(rows.numeric, [[1, 1, 1, 7], [2, 0, 2, 8], [3, 1, 2, 7]])
    assert rows.codes.tolist() == [[0, 0], [-1, 1], [1, 0]]  # missing is -1


@pytest.mark.parametrize("kind", ["string", "boolean", "object"])
def test_missing_values_of_pandas_are_missing_categories(frame, kind):
    values = [True, pd.NA, False] if kind == "boolean" else ["own", pd.NA, "rent"]
    frame = frame[["x"]].assign(home=pd.array(values, dtype=kind))
    columns = Columns.of(frame, ["home"])
    own = [str(v) for v in sorted(v for v in values if v is not pd.NA)]
    assert columns.categories[0].tolist() == own
    coded = columns.encoded(frame).codes[:, 0].tolist()
    assert coded == [own.index(str(values[0])), -1, own.index(str(values[2]))]


def test_named_and_numbered_columns(frame):
    columns = Columns.of(frame, ["code", "kind", "home"])
    assert columns.categories[2].tolist() == [7.0, 8.0] and columns.numeric == (0, 2, 4)
    other = frame.assign(code=[8, 9, 7])
    assert columns.encoded(other).codes[:, 2].tolist() == [1, -1, 0]
    array = Columns.of(np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 5.0]]), [1])
    assert array.encoded(np.array([[9.0, 6.0], [9.0, 4.0]])).codes.ravel().tolist() == [1, -1]
    missing = array.encoded(np.array([[9.0, np.nan]]))  # a number may be missing as a category
    assert missing.codes.tolist() == [[-1]]


def test_texts_and_numbers_as_categories_do_not_mix_up():
    columns = Columns.of(np.array([["1", "x"], ["2", "y"]], dtype=object), [0, 1])
    assert columns.encoded(np.array([["2", "x"]], dtype=object)).codes.tolist() == [[1, 0]]
    # a category longer than all those known is not cut to one of them
    assert columns.encoded(np.array([["22", "xx"]], dtype=object)).codes.tolist() == [[-1, -1]]


def test_a_column_may_turn_from_numbers_to_text_and_back():
    numbers = Columns.of(np.array([[1.0], [2.0], [2.5]]), [0])
    text = np.array([["2"], ["2.5"], ["two"], [None]], dtype=object)
    assert numbers.encoded(text).codes.ravel().tolist() == [1, 2, -1, -1]
    texts = Columns.of(np.array([["1"], ["2.5"]], dtype=object), [0])
    assert texts.encoded(np.array([[2.5], [1.0], [np.nan]])).codes.ravel().tolist() == [1, 0, -1]


def test_groups_by_name(frame):
    X, labels = without_groups(frame, "home")
    assert "home" not in X.columns and labels.tolist()[0] == "own"
    with pytest.raises(DataError, match="no column names"):
        without_groups(frame.to_numpy(), "home")
    with pytest.raises(DataError, match="no column 'hom'"):
        without_groups(frame, "hom")


@pytest.mark.parametrize(
    ("categorical", "text"),
    [
        ("all", "neither 'auto'"),
        (["kid"], "no column 'kid'"),
        ([9], "the column 9"),
        ([True], "the column True"),
        ([1.5], "the column 1.5"),
    ],
)
def test_bad_names(frame, categorical, text):
    with pytest.raises(DataError, match=text):
        Columns.of(frame, categorical)


def test_bad_columns(frame):
    with pytest.raises(DataError, match="constant columns: x, code"):
        Columns.of(frame.assign(x=1.0, code=3), "auto")
    with pytest.raises(DataError, match="1200 categories"):
        Columns.of(pd.DataFrame({"id": [f"r{i}" for i in range(1200)]}), "auto")
    with pytest.raises(DataError, match="0 categories"):
        Columns.of(pd.DataFrame({"id": [None, None], "x": [1.0, 2.0]}), ["id"])
    with pytest.raises(DataError, match="no table"):
        Columns.of(np.arange(3.0), "auto")
    columns = Columns.of(frame, "auto")
    with pytest.raises(DataError, match="other columns"):
        columns.encoded(frame.rename(columns={"x": "y"}))
    with pytest.raises(DataError):
        columns.encoded(frame.assign(x=[1.0, np.inf, 2.0]))


def test_groups_in_another_order_than_the_rows_are_refused() -> None:
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=["x", "y", "z"])
    sex = pd.Series(["f", "m", "f"], index=["z", "x", "y"])
    with pytest.raises(DataError, match="index of X in another order") as error:
        taken_apart(X, sex)
    assert "groups.loc[X.index]" in error.value.remedy
    assert list(taken_apart(X, sex.loc[X.index])[1]) == ["m", "f", "f"]
    assert list(taken_apart(X, sex.reset_index(drop=True))[1]) == ["f", "m", "f"]
    assert list(taken_apart(X, sex.to_numpy())[1]) == ["f", "m", "f"]
    counted, turned = X.reset_index(drop=True), sex.reset_index(drop=True)[::-1]
    with pytest.raises(DataError, match="index of X in another order"):
        taken_apart(counted, turned)
    with pytest.raises(DataError, match="not numbers") as error:
        taken_apart(X.astype(object), sex.loc[X.index])
    assert "astype(float)" in error.value.remedy


def test_a_number_that_is_missing_is_named_as_the_frame_names_it() -> None:
    X = pd.DataFrame({"age": [1.0, 2.0, 3.0], "pay": [4.0, 5.0, 6.0]}, index=["r0", "r1", "r2"])
    X.loc["r1", "pay"] = np.nan
    groups = ["a", "b", "a"]
    with pytest.raises(DataError, match=r"nan in row 1 \(r1\), column 1 \(pay\)"):
        taken_apart(X, groups)
    with pytest.raises(DataError, match=r"row 1 \(r1\), column 1 \(pay\) is missing"):
        taken_apart(X.convert_dtypes(), groups)
    with pytest.raises(DataError, match=r"nan in row 1, column 1 \(pay\)"):
        taken_apart(X.reset_index(drop=True), groups)
    with pytest.raises(DataError, match=r"nan in row 1, column 1$|nan in row 1, column 1\n"):
        taken_apart(X.to_numpy(), groups)


ROWS_AND_LABELS = {
    "FairAssignment": lambda X, **rest: of.FairAssignment(X, centers=[[0.0, 0.0]], **rest),
    "costs": lambda X, **rest: of.FairAssignment(costs=X, **rest),
    "FairFacilityLocation": lambda X, **rest: of.fair_clustering.FairFacilityLocation(X, **rest),
    "sites at costs": lambda X, **rest: of.fair_clustering.FairFacilityLocation(costs=X, **rest),
    "FairKMeansBound": lambda X, **rest: of.fair_clustering.FairKMeansBound(
        X, n_clusters=2, **rest
    ),
    "certified_kmeans": lambda X, **rest: of.fair_clustering.certified_kmeans(
        X, n_clusters=2, **rest
    ),
    "FairKMeans": lambda X, **rest: of.FairKMeans(2, n_init=1).fit(X, **rest),
    "FairMixture": lambda X, **rest: of.FairMixture(2, n_init=1).fit(X, **rest),
    "FairMixtureLikelihood": lambda X, **rest: of.fair_mixtures.FairMixtureLikelihood(
        X, n_components=2, **rest
    ),
}


@pytest.mark.parametrize("made", ROWS_AND_LABELS)
def test_groups_and_weights_in_another_order_than_the_rows_are_refused(made: str) -> None:
    """They were taken by position without a word, by what is no estimator and as weights."""
    rng = np.random.default_rng(0)
    ids = [f"row {i}" for i in range(8)]
    X = pd.DataFrame(rng.random((8, 2)), index=ids)
    groups = pd.Series(list("abbaabab"), index=ids)
    weights = pd.Series(np.ones(8), index=ids)
    make = ROWS_AND_LABELS[made]
    wrong = {"groups": groups[::-1], "sample_weight": weights}
    for given in (wrong, {**wrong, "groups": {"sex": groups, "age": groups[::-1]}}):
        with pytest.raises(
            DataError, match=r"groups has the index of (X|costs|log_prob) in another order"
        ):
            make(X, **given)
    with pytest.raises(
        DataError, match=r"sample_weight has the index of (X|costs|log_prob) in another order"
    ):
        make(X, groups=groups, sample_weight=weights[::-1])
    make(X, groups=groups, sample_weight=weights)
    make(X, groups=groups.to_numpy()[::-1], sample_weight=weights)


@pytest.mark.parametrize("index", [[3.0, 2.0, 1.0, 0.0], ["d", "c", "b", "a"], [7, 7, 8, 8]])
def test_weights_of_chunks_are_taken_by_position(index) -> None:
    """A series of numbers as index was sliced by these."""
    X, weights = np.arange(8.0).reshape(4, 2), pd.Series([1.0, 2.0, 3.0, 4.0], index=index)
    source = row_source(X, list("abab"), weights, chunk_rows=2)
    assert [chunk.weights.tolist() for chunk in source.chunks()] == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    "labels", [[0.5, 1.5], np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")]
)
def test_labels_that_a_fit_takes_are_taken_in_chunks(labels) -> None:
    """Fractions were counted as labels of two rows, and dates were no text."""
    X, groups = np.random.default_rng(0).normal(size=(30, 2)), np.asarray(labels)[np.arange(30) % 2]
    held = of.FairKMeans(2, random_state=0).fit(X, groups=groups)
    for more in ({"groups": groups}, {"groups": pd.Series(groups)}):
        read = of.FairKMeans(2, random_state=0).fit_stream(X, **more)
        assert read.objective_ == pytest.approx(held.objective_, rel=1e-9)
        assert read.groups_.astype(str)[1][:4] == held.groups_.astype(str)[1][:4]
    with pytest.raises(DataError, match="30 different labels in 30 rows"):
        of.FairKMeans(2).fit_stream(X, groups=X[:, 0])
