"""Couplings of factual and counterfactual rows, and distances of mixed features."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import optfair as of
from optfair.errors import DataError, DeclarationError
from optfair.methods.sparse_counterfactuals.couplings import (
    COUPLINGS,
    MixedEncoding,
    aligned_coupling,
    checked_coupling,
    coupling_of,
    nearest_coupling,
    optimal_transport_coupling,
    random_coupling,
)
from optfair.methods.sparse_counterfactuals.tables import StackedRows


def cost(n: int, m: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, m))


def test_transport_of_equal_sizes_is_the_best_permutation() -> None:
    C = cost(5, 5)
    best = min(C[range(5), list(p)].sum() for p in itertools.permutations(range(5))) / 5
    plan = optimal_transport_coupling(C)
    assert (C * plan).sum() == pytest.approx(best, abs=1e-12)
    assert np.count_nonzero(plan) == 5


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4), (4, 1)])
def test_transport_has_uniform_marginals(shape: tuple[int, int]) -> None:
    plan = optimal_transport_coupling(cost(*shape))
    np.testing.assert_allclose(plan.sum(axis=1), 1 / shape[0], atol=1e-12)
    np.testing.assert_allclose(plan.sum(axis=0), 1 / shape[1], atol=1e-12)


def test_entropic_plan_nears_the_exact_one_and_spreads_with_the_regularization() -> None:
    C = cost(6, 6)
    exact = (C * optimal_transport_coupling(C)).sum()
    near = optimal_transport_coupling(C, regularization=0.005)
    far = optimal_transport_coupling(C, regularization=10.0)
    assert exact - 1e-9 <= (C * near).sum() <= exact + 0.01
    np.testing.assert_allclose(far, 1 / 36, atol=2e-3)
    with pytest.raises(DeclarationError, match="regularization"):
        optimal_transport_coupling(C, regularization=0.0)


def test_random_coupling_repeats_a_counterfactual_only_when_they_run_out() -> None:
    p = random_coupling(5, 3, np.random.default_rng(1))
    assert (p.sum(axis=1) == 0.2).all()
    assert sorted(np.count_nonzero(p, axis=0)) == [1, 2, 2]


def test_nearest_takes_the_first_at_ties() -> None:
    assert nearest_coupling([[1.0, 0.5, 0.5]]).tolist() == [[0.0, 1.0, 0.0]]


def test_alignment_needs_as_many_rows_or_their_owners() -> None:
    assert aligned_coupling(2, 2).tolist() == [[0.5, 0.0], [0.0, 0.5]]
    with pytest.raises(DataError, match="3 counterfactuals for 2 factual rows") as e:
        aligned_coupling(2, 3)
    assert "alignment=" in e.value.remedy
    for bad, match in (
        ([0, 0, 0], "1 factual rows have no counterfactual"),
        ([0, 1, 2], "rows that are not there"),
        ([0, -1, 1], "rows that are not there"),
        ([0, 1], "does not fit"),
        ([0.0, 1.0, 1.0], "does not fit"),
    ):
        with pytest.raises(DataError, match=match):
            aligned_coupling(2, 3, bad)


def test_a_given_coupling_is_checked_and_rescaled() -> None:
    assert checked_coupling([[2.0, 0.0], [0.0, 2.0]], 2, 2).sum() == 1.0
    for bad, match in (
        (np.ones((2, 3)), "does not fit"),
        ([[1.0, -1.0], [0.0, 1.0]], "negative"),
        ([[1.0, np.nan], [0.0, 1.0]], "NaN"),
        ([[1.0, 1.0], [0.0, 0.0]], "1 rows no counterfactual"),
    ):
        with pytest.raises(DataError, match=match):
            checked_coupling(bad, 2, 2)


@pytest.mark.parametrize("kind", COUPLINGS)
def test_every_kind_is_a_joint_distribution(kind: str) -> None:
    p = coupling_of(kind, 4, 4, cost=lambda: cost(4, 4), rng=np.random.default_rng(0))
    assert p.shape == (4, 4)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(p.sum(axis=1), 0.25)


def test_unknown_kinds_are_refused_with_the_nearest() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'uniform'"):
        coupling_of("unifrom", 1, 1, cost=lambda: cost(1, 1), rng=np.random.default_rng(0))


def test_distance_counts_numbers_in_deviations_and_categories_as_mismatches() -> None:
    x = pd.DataFrame({"a": [0.0, 2.0], "b": ["u", "v"], "c": [7, 7]})
    r = pd.DataFrame({"a": [4.0], "b": ["v"], "c": [7]})
    stack = StackedRows.of(x, r)
    scale = np.array([0.0, 2.0, 4.0]).std()
    C = MixedEncoding.of(stack, {"b": 9.0}).cost(*stack.blocks)
    np.testing.assert_allclose(C, [[16 / scale**2 + 9.0], [4 / scale**2]])


@pytest.mark.parametrize(
    "weights", [[1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, np.inf, 1.0], ["a", "b", "c"]]
)
def test_weights_must_fit(weights: list[float]) -> None:
    stack = StackedRows.of(np.zeros((1, 3)), np.ones((1, 3)))
    with pytest.raises(DataError, match="feature_weights"):
        MixedEncoding.of(stack, weights)


@pytest.mark.parametrize("size", [1e200, 1e308])
def test_columns_whose_squares_are_no_floats_are_refused(size: float) -> None:
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (6, 2))
    for rows, others in ((size * X, X), (X, size * X)):
        with pytest.raises(of.DataError, match="entries beyond"):
            of.SparseCounterfactuals(([1.0, 1.0], 0.0), on_missed="keep").fit(rows, others)
