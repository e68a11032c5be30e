"""Labels of several attributes name them, whatever is written in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.attributes import attributes_of, crossed

# one row at least, and no character that NumPy's texts do not keep at their end
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)


@given(st.data(), st.lists(TEXT.filter(bool), min_size=2, max_size=3, unique=True))
def test_labels_are_read_back(data: st.DataObject, names: list[str]) -> None:
    rows = data.draw(st.integers(1, 6))
    column = st.lists(TEXT, min_size=rows, max_size=rows)
    columns = {name: data.draw(column) for name in names}
    labels = crossed(columns, "groups")
    assert {k: v.tolist() for k, v in attributes_of(labels).items()} == columns
    assert len(set(labels.tolist())) == len(set(zip(*columns.values(), strict=True)))


def test_labels_without_attributes_have_none() -> None:
    for labels in (["f", "m"], ["a=1, b=2", "a=1"], ["a=1, b=2", "b=2, a=1,"], ["a=1,b=2"], [1, 2]):
        assert attributes_of(np.array(labels)) == {}


def test_one_column_is_its_own_labels() -> None:
    assert crossed({"age": np.array([30, 40])}, "groups").tolist() == [30, 40]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "no frame of labels"),
        ({"a": ["x", "y"], "b": ["x"]}, "shapes (1,), (2,)"),
        ({"a": ["x", None], "b": ["x", "y"]}, "missing labels in 'a'"),
        ({"a": [1.0, np.nan], "b": ["x", "y"]}, "missing labels in 'a'"),
    ],
)
def test_what_is_no_frame_of_labels_is_refused(
    columns: dict[str, list[object]], words: str
) -> None:
    with pytest.raises(of.DataError) as e:
        crossed({k: np.array(v, dtype=object) for k, v in columns.items()}, "groups")
    assert words in str(e.value)


MISSING = {
    "None": np.array(["x", None], dtype=object),
    "NaN": np.array([1.0, np.nan]),
    "infinity": np.array([1.0, np.inf]),
    "no date": np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
    "masked": np.ma.masked_array([1, 2], mask=[False, True]),
    "text or NA": pd.array(["x", None], dtype="string"),
    "flag or NA": pd.array([True, None], dtype="boolean"),
    "number or NA": pd.array([1, None], dtype="Int64"),
    "category or NaN": pd.Categorical(["x", None]),
    "date or NaT": pd.Series(pd.to_datetime(["2020-01-01", None])),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_label_that_is_missing_is_no_group(kind: str) -> None:
    """Alone, beside others, and in a chunk: it is neither a group of its own nor another error."""
    labels = np.ma.concatenate([MISSING[kind]] * 3) if kind == "masked" else None
    labels = pd.concat([pd.Series(MISSING[kind])] * 3) if labels is None else labels
    X, other = np.arange(6.0)[:, None], list("uvuvvu")
    frame: Any = {"own": labels, "other": other}
    if kind != "masked":
        frame = pd.DataFrame({name: np.asarray(column) for name, column in frame.items()})
        frame["own"] = labels.array
    for groups, named in ((labels, ""), (frame, " in 'own'")):
        with pytest.raises(of.DataError, match=f"groups has missing labels{named}"):
            of.FairAssignment(X, groups=groups, centers=X[:2])
        parts = [{k: v[:4] for k, v in frame.items()} if named else labels[:4]]
        for model in (of.FairKMeans(2), of.FairMixture(2)):
            with pytest.raises(of.DataError, match=f"chunk 0: groups has missing labels{named}"):
                model.fit_stream(lambda parts=parts: iter([(X[:4], parts[0])]))


def test_rows_without_a_label_are_named() -> None:
    X, labels = np.arange(9.0)[:, None], ["a", None, "b", "a", None, "b", "a", "b", "a"]
    named = pd.Series(labels, index=[f"p{i}" for i in range(9)])
    frame = pd.DataFrame({"own": named, "other": list("uvuvuvuvu")})
    masked = np.ma.array(["a", "b"] * 4 + ["a"], mask=np.arange(9) < 7)
    years = np.array([1.0, np.nan] * 4 + [1.0])
    for groups, rows in (
        (labels, "in rows 1, 4"),
        (named, "in rows p1, p4"),
        (frame, "in rows p1, p4"),
        (masked, "in rows 0, 1, 2, 3, 4 and 2 more"),
        (years, "in rows 1, 3, 5, 7"),
        (["a", "b", None, *"ababab"], "in row 2"),
    ):
        with pytest.raises(of.DataError, match="missing labels") as failure:
            of.FairAssignment(X, groups=groups, centers=X[:2])
        assert failure.value.evidence == rows
    with pytest.raises(of.DataError, match="chunk 0: groups has") as failure:
        of.FairKMeans(2).fit_stream(lambda: iter([(X, np.array(labels, dtype=object))]))
    assert failure.value.evidence == "in rows 1, 4"
