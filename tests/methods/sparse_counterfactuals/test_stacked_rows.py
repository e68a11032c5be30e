"""Coded tables: containers and types come back, unequal tables are refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from optfair.errors import DataError
from optfair.methods.sparse_counterfactuals.tables import StackedRows

COLUMNS = {
    "age": [20, 31, 20],
    "income": [1.5, 2.5, 3.5],
    "job": ["a", "b", "a"],
    "own": [True, False, True],
}


def test_pandas_rows_come_back_with_their_types() -> None:
    x = pd.DataFrame(COLUMNS).astype({"job": "category"})
    stack = StackedRows.of(x, x.iloc[::-1])
    pd.testing.assert_frame_equal(stack.rows(stack.blocks[0]), x)
    reversed_ = x.iloc[::-1].reset_index(drop=True)
    pd.testing.assert_frame_equal(stack.rows(stack.blocks[1]), reversed_)
    assert stack.numeric.tolist() == [True, True, False, False]
    assert stack.whole.tolist() == [True, False, False, False]


def test_polars_rows_come_back_with_their_types() -> None:
    x = pl.DataFrame(COLUMNS).with_columns(pl.col("job").cast(pl.Categorical))
    stack = StackedRows.of(x, x)
    assert stack.rows(stack.blocks[0]).equals(x)
    assert stack.rows(stack.blocks[0]).schema == x.schema


def test_rows_can_be_put_together_from_both_tables() -> None:
    x, r = pl.DataFrame({"a": [1], "b": ["u"]}), pl.DataFrame({"a": [5], "b": ["v"]})
    stack = StackedRows.of(x, r)
    mixed = np.where([[True, False]], stack.blocks[0], stack.blocks[1])
    assert stack.rows(mixed).to_dicts() == [{"a": 1, "b": "v"}]


def test_whole_numbers_and_fractions_meet_as_fractions() -> None:
    x, r = pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1.5]})
    stack = StackedRows.of(x, r)
    assert stack.rows(stack.blocks[1])["a"].tolist() == [1.5]
    assert StackedRows.of([[1]], [[1.5]]).rows(np.array([[1]])).tolist() == [[1.5]]


def test_whole_numbers_stay_whole_where_a_generator_gives_them_as_fractions() -> None:
    for frame in (pd.DataFrame, pl.DataFrame):
        x, r = frame({"a": [1, 2]}), frame({"a": [3.0, 1.0]})
        stack = StackedRows.of(x, r)
        assert list(stack.rows(stack.blocks[1]).dtypes) == list(x.dtypes)
        assert stack.blocks[1][1, 0] == stack.blocks[0][0, 0]
        assert stack.whole.all()
    small = pd.DataFrame({"a": [1]}, dtype="int8")
    stack = StackedRows.of(small, pd.DataFrame({"a": [300.0]}))  # more than eight bits hold
    assert stack.rows(stack.blocks[1])["a"].tolist() == [300.0]


def test_columns_without_names_keep_their_labels() -> None:
    x = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], columns=[7, 3])
    stack = StackedRows.of(x, x)
    assert stack.names == ("7", "3")
    pd.testing.assert_frame_equal(stack.rows(stack.blocks[0]), x)


def test_categories_of_both_tables_are_kept() -> None:
    x = pd.DataFrame({"job": pd.Categorical(["b", "c"])})
    r = pd.DataFrame({"job": pd.Categorical(["a", "b"])})
    stack = StackedRows.of(x, r)
    rows = stack.rows(stack.blocks[1])["job"]
    assert rows.tolist() == ["a", "b"]
    assert rows.cat.categories.tolist() == ["b", "c", "a"]
    assert stack.blocks[1][1, 0] == stack.blocks[0][0, 0]
    numbers = pd.DataFrame({"job": pd.Categorical([1, 2])})
    with pytest.raises(DataError, match="'job' has different categories"):
        StackedRows.of(x, numbers)
    ordered = pd.DataFrame({"job": pd.Categorical(["a", "b"], ordered=True)})
    with pytest.raises(DataError, match="'job' has different types"):
        StackedRows.of(x, ordered)


def test_numbers_among_objects_are_numbers() -> None:
    x = np.array([["u", 1.5], ["v", 2]], dtype=object)
    stack = StackedRows.of(x, x)
    assert stack.numeric.tolist() == [False, True]
    assert stack.numbers(stack.blocks[0], 1).tolist() == [1.5, 2.0]
    known, codes = stack.with_numbers(np.array([[0.0, 1.75]]), stack.blocks[0][:1])
    assert known.rows(codes).tolist() == [["u", 1.75]]
    frame = pd.DataFrame({"a": [1.5, 2.0]}, dtype=object)
    stack = StackedRows.of(frame, frame)
    known, codes = stack.with_numbers(np.array([[1.75]]), stack.blocks[0][:1])
    assert known.rows(codes)["a"].tolist() == [1.75]


@pytest.mark.parametrize("kind", ["string", "boolean", "category"])
def test_missing_entries_of_all_kinds_are_one_value(kind: str) -> None:
    cells = [True, None, None] if kind == "boolean" else ["u", None, None]
    x = pd.DataFrame({"a": pd.Series(cells, dtype=kind)})
    assert StackedRows.of(x, x[:1]).blocks[0].tolist() == [[0], [1], [1]]


def test_missing_whole_numbers_are_named() -> None:
    x = pd.DataFrame({"a": pd.Series([1, None], dtype="Int64")})
    with pytest.raises(DataError, match="column 'a' has 2 missing"):
        StackedRows.of(x, x)


def test_arrays_of_text_and_numbers_keep_both() -> None:
    stack = StackedRows.of([[1.0, "u"]], [[2.0, "u"]])
    assert stack.blocks[1].tolist() == [[1, 0]]
    assert stack.rows(stack.blocks[1]).tolist() == [[2.0, "u"]]


def test_missing_categories_are_one_value() -> None:
    x = pd.DataFrame({"a": ["u", None, np.nan]}, dtype=object)
    stack = StackedRows.of(x, x)
    assert stack.blocks[0].tolist() == [[0], [1], [1]]


def test_numbers_of_their_own_can_be_added() -> None:
    for frame in (pd.DataFrame, pl.DataFrame):
        x = frame({"a": [1.0, 2.0], "b": ["u", "v"]})
        stack = StackedRows.of(x, x)
        more, codes = stack.with_numbers(np.array([[1.25, np.nan]]), np.array([[0, 1]]))
        assert [list(c) for c in zip(*more.rows(codes).to_numpy(), strict=True)] == [[1.25], ["v"]]
        assert more.rows(more.blocks[0]).to_numpy().tolist() == x.to_numpy().tolist()


@pytest.mark.parametrize(
    ("first", "second", "match"),
    [
        (pd.DataFrame({"a": [1]}), np.zeros((1, 1)), "mixed"),
        (pd.DataFrame({"a": [1]}), pl.DataFrame({"a": [1]}), "different kinds"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), pd.DataFrame({"a": [1]}), "different column"),
        (np.zeros((1, 2)), np.zeros((1, 3)), "3 columns, the factuals have 2"),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]}), "other columns"),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": ["u"]}), "different types"),
        (np.zeros((0, 2)), np.zeros((1, 2)), "no table with rows"),
        (np.zeros(2), np.zeros((1, 2)), "no table with rows"),
        ([[1.0], [1.0, 2.0]], [[1.0]], "different lengths"),
        ([[np.nan]], [[1.0]], "missing or infinite"),
        ([[1.0]], [[np.inf]], "missing or infinite"),
    ],
)
def test_tables_that_do_not_fit_are_refused(first: object, second: object, match: str) -> None:
    with pytest.raises(DataError, match=match):
        StackedRows.of(first, second)


def test_categories_in_numbers_are_named() -> None:
    stack = StackedRows.of([[0.0, np.nan]], [[1.0, 2.0]], categorical=["x1"])
    assert stack.numeric.tolist() == [True, False]
    with pytest.raises(DataError, match="no column 'x7'"):
        StackedRows.of([[0.0]], [[1.0]], categorical=["x7"])
    with pytest.raises(DataError, match="no column 3"):
        StackedRows.of([[0.0]], [[1.0]], categorical=[3])
