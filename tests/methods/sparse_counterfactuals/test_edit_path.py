"""Order of edits, outputs along the budget, and edits taken back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optfair.errors import DeclarationError
from optfair.methods.sparse_counterfactuals.fit_data import ordered_cells
from optfair.methods.sparse_counterfactuals.metrics import (
    DIVERGENCES,
    output_divergence,
)
from optfair.methods.sparse_counterfactuals.refinement import EditPath, pruned

RNG = np.random.default_rng


def model(codes: np.ndarray) -> np.ndarray:
    return np.sin(3.0 * codes @ np.arange(1.0, codes.shape[1] + 1)) + codes.prod(axis=1)


def path(seed: int, n: int = 4, d: int = 3) -> tuple[EditPath, np.ndarray, np.ndarray]:
    rng = RNG(seed)
    x, q = rng.integers(0, 3, size=(n, d)), rng.integers(0, 3, size=(n, d))
    cells = ordered_cells(rng.random((n, d)), x != q, "top", rng)
    return EditPath.of(model, x, q, cells), x, q


@given(st.integers(0, 10**6))
def test_outputs_are_those_of_the_edited_rows(seed: int) -> None:
    found, x, q = path(seed)
    target = RNG(seed).normal(size=3)
    for budget in range(found.length + 1):
        mask = found.edits(budget)
        assert mask.sum() == budget
        np.testing.assert_allclose(found.outputs(budget), model(np.where(mask, q, x)))
        for name in ("ot", "mean", "median"):
            assert found.divergences(target, name)[budget] == pytest.approx(
                output_divergence(found.outputs(budget), target, name)
            )


@pytest.mark.parametrize("name", DIVERGENCES)
def test_parts_of_a_path_are_measured_as_the_whole(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _, _ = path(1, 5, 4)
    y = RNG(0).normal(size=4)
    whole = found.divergences(y, name)
    monkeypatch.setattr("optfair.methods.sparse_counterfactuals.refinement.CHUNK", 11)
    np.testing.assert_allclose(found.divergences(y, name), whole)


@given(st.integers(0, 10**6))
def test_rows_that_arrived_are_edited_last(seed: int) -> None:
    found, x, q = path(seed)
    goals = model(q) * 0.5 + found.start * 0.5
    other = found.arrived_last(goals)
    assert sorted(map(tuple, other.cells)) == sorted(map(tuple, found.cells))
    late = 0
    for budget, (row, _) in enumerate(other.cells):
        before = other.edits(budget)
        np.testing.assert_allclose(other.outputs(budget), model(np.where(before, q, x)))
        side = np.sign(goals - found.start)[row]
        history = [found.start[row]] + [
            a
            for (i, _), a in zip(other.cells[:budget], other.after[:budget], strict=True)
            if i == row
        ]
        arrived = any(side * (value - goals[row]) >= -1e-12 for value in history)
        assert arrived >= late  # once a needless edit came, no needed one follows
        late = max(late, int(arrived))
    for row in range(len(x)):  # the order within a row stays
        assert np.array_equal(
            other.cells[other.cells[:, 0] == row], found.cells[found.cells[:, 0] == row]
        )


def test_top_goes_by_weight_and_skips_cells_that_cannot_change() -> None:
    weights = np.array([[5.0, 1.0], [1.0, 3.0]])
    editable = np.array([[False, True], [True, True]])
    cells = ordered_cells(weights, editable, "top", RNG(0))
    assert cells.tolist() == [[1, 1], [0, 1], [1, 0]]


def test_samples_are_drawn_with_the_probabilities_of_the_weights() -> None:
    weights = np.array([[0.5, 0.3, 0.2, 0.0]])
    editable = np.ones((1, 4), dtype=bool)
    draws = [ordered_cells(weights, editable, "sample", RNG(s))[:, 1] for s in range(4000)]
    first = np.bincount([d[0] for d in draws], minlength=4) / 4000
    np.testing.assert_allclose(first, weights[0], atol=0.03)
    # the second one given the first: without replacement
    second = np.mean([d[1] == 1 for d in draws if d[0] == 0])
    assert second == pytest.approx(0.6, abs=0.04)
    assert all(d[3] == 3 for d in draws)


def test_cells_without_weight_are_in_random_order() -> None:
    orders = {
        tuple(ordered_cells(np.zeros((1, 3)), np.ones((1, 3), dtype=bool), "sample", RNG(s))[:, 1])
        for s in range(60)
    }
    assert len(orders) == 6


def test_unknown_selections_are_refused() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'sample'"):
        ordered_cells(np.ones((1, 1)), np.ones((1, 1), dtype=bool), "samples", RNG(0))


@given(st.integers(0, 10**6))
def test_pruned_edits_reach_and_none_can_be_taken_back(seed: int) -> None:
    rng = RNG(seed)
    x, q = rng.integers(0, 2, size=(3, 4)), rng.integers(0, 2, size=(3, 4))
    goal = model(q).mean() - 0.2
    reached = lambda u: bool(u.mean() >= goal)
    edits, outputs = pruned(model, x, q, x != q, rng.random((3, 4)), reached)
    np.testing.assert_allclose(outputs, model(np.where(edits, q, x)))
    assert reached(outputs)
    assert not (edits & (x == q)).any()
    for i, k in np.argwhere(edits):
        fewer = edits.copy()
        fewer[i, k] = False
        assert not reached(model(np.where(fewer, q, x)))


def test_pruning_asks_again_after_a_row_has_changed() -> None:
    # cell 0 can go only after cell 1 has gone: f = 1 for the sets {0, 1, 2}, {0, 2} and {2}
    good = {(1, 1, 1), (1, 0, 1), (0, 0, 1)}
    f = lambda codes: np.array([float(tuple(c) in good) for c in codes])
    x, q = np.zeros((1, 3), dtype=int), np.ones((1, 3), dtype=int)
    weights = np.array([[0.1, 0.2, 0.3]])
    edits, _ = pruned(f, x, q, np.ones((1, 3), dtype=bool), weights, lambda u: bool(u[0] == 1.0))
    assert edits.tolist() == [[False, False, True]]


def test_pruning_is_no_minimum() -> None:
    # taking the lightest cell back first leaves two edits, the minimum is one
    good = set(itertools.product((0, 1), repeat=3)) - {(0, 0, 0), (0, 1, 0), (0, 0, 1)}
    f = lambda codes: np.array([float(tuple(c) in good) for c in codes])
    x, q = np.zeros((1, 3), dtype=int), np.ones((1, 3), dtype=int)
    edits, _ = pruned(
        f, x, q, np.ones((1, 3), dtype=bool), np.array([[0.1, 0.2, 0.3]]), lambda u: bool(u[0])
    )
    assert edits.sum() == 2
