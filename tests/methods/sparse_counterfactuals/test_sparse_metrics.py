"""Divergences between outputs, effects, and what was edited."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from optfair.errors import DataError, DeclarationError
from optfair.methods.sparse_counterfactuals.metrics import (
    DIVERGENCES,
    counterfactual_effect,
    distance_ratio,
    edit_mask,
    mean_difference,
    median_difference,
    mmd_of_changes,
    mmd_of_lines,
    output_divergence,
    output_mmd,
    output_transport,
    path_divergences,
)

NUMBERS = st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=8)


@given(NUMBERS, NUMBERS)
def test_transport_agrees_with_scipy(u: list[float], y: list[float]) -> None:
    assert output_transport(u, y) == pytest.approx(wasserstein_distance(u, y), abs=1e-9)


@given(NUMBERS, NUMBERS, st.sampled_from(DIVERGENCES))
def test_divergences_are_symmetric_and_zero_for_equal_samples(
    u: list[float], y: list[float], name: str
) -> None:
    assert output_divergence(u, y, name) == pytest.approx(output_divergence(y, u, name), abs=1e-7)
    assert output_divergence(u, u[::-1], name) == pytest.approx(0.0, abs=1e-9)


def test_mmd_is_its_definition() -> None:
    u, y, h = np.array([0.0, 1.0]), np.array([2.0]), 0.7
    k = lambda a, b: np.exp(-(np.subtract.outer(a, b) ** 2) / (2 * h**2)).mean()
    expected = np.sqrt(k(u, u) - 2 * k(u, y) + k(y, y))
    assert output_mmd(u, y, bandwidth=h) == pytest.approx(expected)
    # the default is the median of the distances 1, 2 and 1
    assert output_mmd(u, y) == pytest.approx(output_mmd(u, y, bandwidth=1.0))
    with pytest.raises(DeclarationError, match="bandwidth"):
        output_mmd(u, y, bandwidth=0.0)


def test_mean_and_median_differ_where_they_should() -> None:
    assert mean_difference([0.0, 0.0, 3.0], [0.0]) == 1.0
    assert median_difference([0.0, 0.0, 3.0], [0.0]) == 0.0


@pytest.mark.parametrize("name", DIVERGENCES)
def test_lines_are_measured_one_by_one(name: str) -> None:
    rng = np.random.default_rng(0)
    lines, y = rng.normal(size=(5, 4)), rng.normal(size=3)
    together = path_divergences(lines, y, name, bandwidth=0.8)
    for line, found in zip(lines, together, strict=True):
        alone = (
            output_mmd(line, y, bandwidth=0.8)
            if name == "mmd"
            else output_divergence(line, y, name)
        )
        assert found == pytest.approx(alone)


@given(st.integers(0, 10**6))
def test_sums_that_follow_the_changes_are_those_of_the_lines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, c = rng.integers(1, 6, size=2)
    lines = np.tile(rng.normal(size=n), (c + 1, 1))
    places = rng.integers(n, size=c)
    for t, i in enumerate(places):
        lines[t + 1 :, i] = rng.normal()
    y = rng.permutation(lines[-1]) if seed % 2 else rng.normal(size=3)
    found = mmd_of_changes(lines, places, y, 0.6)
    np.testing.assert_allclose(found, mmd_of_lines(lines, y, 0.6), atol=1e-9)
    if seed % 2:
        assert found[-1] <= 1e-9  # at the target, whatever the sums before


@pytest.mark.parametrize("name", DIVERGENCES)
def test_effect_is_one_at_the_target_and_zero_without_edits(name: str) -> None:
    x, y = [0.1, 0.2, 0.4], [0.9, 0.7, 0.8]
    assert counterfactual_effect(y, x, y, divergence=name) == pytest.approx(1.0)
    assert counterfactual_effect(x, x, y, divergence=name) == pytest.approx(0.0)
    assert counterfactual_effect([0.0, 0.0, 0.0], x, y, divergence=name) < 0


def test_effect_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="at the target"):
        counterfactual_effect([1.0], [1.0], [1.0])


def test_outputs_must_be_finite_numbers() -> None:
    with pytest.raises(DataError, match="finite"):
        output_transport([np.nan], [1.0])
    with pytest.raises(DataError, match="not numbers"):
        output_transport(["a"], [1.0])
    with pytest.raises(DeclarationError, match="did you mean 'median'"):
        output_divergence([0.0], [1.0], "meadian")


def test_edits_are_counted_over_categories_too() -> None:
    x = pd.DataFrame({"a": [1, 2], "b": ["u", "v"]})
    z = pd.DataFrame({"a": [1, 3], "b": ["w", "v"]})
    assert edit_mask(x, z).tolist() == [[False, True], [True, False]]


def test_distance_ratio_is_a_share_of_the_way() -> None:
    x, r = np.zeros((2, 2)), np.array([[3.0, 0.0], [0.0, 4.0]])
    assert distance_ratio(x, r, r) == 1.0
    assert distance_ratio(x, np.array([[3.0, 0.0], [0.0, 0.0]]), r) == pytest.approx(0.6)
    with pytest.raises(DataError, match="aligned row by row"):
        distance_ratio(x, r, r[:1])
    with pytest.raises(DataError, match="are the factuals"):
        distance_ratio(x, r, x)
