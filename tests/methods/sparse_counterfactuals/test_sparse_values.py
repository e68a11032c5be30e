"""Values assigned to cells: the most probable counterfactual, or an average."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from optfair.errors import DeclarationError
from optfair.methods.sparse_counterfactuals.couplings import assigned_values
from optfair.methods.sparse_counterfactuals.tables import StackedRows

X = {"age": [30], "income": [1.0], "job": ["u"]}
R = {"age": [20, 21, 40], "income": [2.0, 4.0, 9.0], "job": ["v", "v", "w"]}
P = np.array([[0.3, 0.3, 0.4]])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_average_rounds_whole_numbers_and_takes_the_mode(frame: type) -> None:
    stack = StackedRows.of(frame(X), frame(R))
    known, codes = assigned_values(stack, stack.blocks[1], P, "avg")
    age, income, job = known.rows(codes).to_numpy()[0]
    assert age == 28  # 28.3 rounded
    assert income == pytest.approx(0.3 * 2 + 0.3 * 4 + 0.4 * 9)
    assert job == "v"  # 0.6 against 0.4, though "w" is in the most probable row
    assert known.rows(codes).to_numpy().shape == (1, 3)
    before = known.rows(known.blocks[0]).to_numpy().tolist()
    assert before == frame(X).to_numpy().tolist()


def test_max_takes_one_whole_row() -> None:
    stack = StackedRows.of(pd.DataFrame(X), pd.DataFrame(R))
    known, codes = assigned_values(stack, stack.blocks[1], P, "max")
    assert known is stack
    assert known.rows(codes).to_numpy().tolist() == [[40, 9.0, "w"]]


def test_average_of_a_permutation_is_the_permutation_to_the_last_digit() -> None:
    r = np.random.default_rng(0).normal(size=(4, 3))
    stack = StackedRows.of(np.zeros((4, 3)), r)
    order = [2, 0, 3, 1]
    known, codes = assigned_values(stack, stack.blocks[1], np.eye(4)[order] / 4, "avg")
    assert np.array_equal(known.rows(codes), r[order])


def test_average_of_equal_numbers_is_that_number() -> None:
    r = np.full((3, 1), 0.1)
    stack = StackedRows.of([[0.0]], r)
    known, codes = assigned_values(stack, stack.blocks[1], np.array([[0.1, 0.2, 0.7]]), "avg")
    assert known.rows(codes).item() == 0.1


def test_categories_in_numbers_are_never_averaged() -> None:
    stack = StackedRows.of([[0.0]], [[1.0], [4.0], [4.0]], categorical=[0])
    known, codes = assigned_values(stack, stack.blocks[1], np.array([[0.4, 0.3, 0.3]]), "avg")
    assert known.rows(codes).item() == 4.0


def test_a_tie_of_categories_goes_to_the_most_probable_row() -> None:
    stack = StackedRows.of([["x"]], [["a"], ["b"], ["a"]])
    _, codes = assigned_values(stack, stack.blocks[1], np.array([[0.2, 0.5, 0.3]]), "avg")
    assert stack.vocabulary(0)[codes.item()] == "b"


def test_unknown_values_are_refused() -> None:
    stack = StackedRows.of([[0.0]], [[1.0]])
    with pytest.raises(DeclarationError, match="did you mean 'max'"):
        assigned_values(stack, stack.blocks[1], np.ones((1, 1)), "mx")


def test_one_of_several_most_probable_rows_is_drawn() -> None:
    stack = StackedRows.of(np.zeros((300, 1)), [[1.0], [2.0], [3.0]])
    p = np.tile([0.4, 0.4, 0.2], (300, 1)) / 300
    rng = np.random.default_rng(0)
    known, codes = assigned_values(stack, stack.blocks[1], p, "max", rng)
    counts = {v: int((known.rows(codes) == v).sum()) for v in (1.0, 2.0, 3.0)}
    assert counts[3.0] == 0
    assert min(counts[1.0], counts[2.0]) > 120
    known, codes = assigned_values(stack, stack.blocks[1], p, "max")
    assert (known.rows(codes) == 1.0).all()
