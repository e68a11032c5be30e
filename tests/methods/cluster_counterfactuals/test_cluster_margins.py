"""An error says how far from the target its constraints keep a point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual

CENTERS = [[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]]


def kmeans(**options: Any) -> ClusterCounterfactual:
    return ClusterCounterfactual.kmeans(
        centers=CENTERS, factual=[0.0, 0.0], target=1, upper=1.0, **options
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"against": "all"},
        {"distance": "l1"},
        {"distance": "changes", "lower": -1.0},
        {"whole": ["x0"], "lower": -1.0},
    ],
)
def test_the_margin_of_half_spaces(options: Any) -> None:
    """At most x0 = 1: twice the scores differ by 4·1 - 8."""
    with pytest.raises(of.Infeasible, match="cluster 1") as failure:
        kmeans(**options).solve()
    assert "largest margin that can be attained is -4," in failure.value.evidence


def test_the_margin_of_a_convex_quadratic_and_its_certificate() -> None:
    p = ClusterCounterfactual.gaussian(
        means=CENTERS, covariances=[1.0, 0.5, 0.3], factual=[0, 0], target=1, upper=1.0, lower=-1.0
    )
    assert p.problem_class.convex
    with pytest.raises(of.Infeasible) as failure:
        p.solve()
    g = p.clusters.boundary(0, 1)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 201)] * 2), axis=-1).reshape(-1, 2)
    least = float(g.value(grid).min())
    assert f"attained is {-least:.6g}," in failure.value.evidence
    assert failure.value.certificate is not None and failure.value.certificate.verify()


def test_other_conflicts_are_left_as_they_are() -> None:
    p = kmeans().with_constraints({"more": of.features.box({"x1": (2.0, None)})})
    with pytest.raises(of.Infeasible) as failure:
        p.solve()
    assert "margin" not in failure.value.evidence and "x1" in str(failure.value)


def test_the_nearest_other_says_why_none_is_reached() -> None:
    with pytest.raises(of.Infeasible, match="no other cluster") as failure:
        ClusterCounterfactual.kmeans(
            centers=CENTERS, factual=[0.0, 0.0], target="nearest other", upper=0.5
        )
    assert failure.value.evidence.count("largest margin") == 2


def test_bounds_are_named_by_their_feature() -> None:
    with pytest.raises(of.DeclarationError, match="of 'x0' are no interval"):
        kmeans(lower=2.0)
    with pytest.raises(of.DataError, match="covariances has 1 entries") as failure:
        ClusterCounterfactual.gaussian(
            means=CENTERS, covariances=[1.0, np.nan, 1.0], factual=[0, 0], target=1
        )
    assert "entry 1" in failure.value.evidence
