"""The nearest point behind a curved boundary keeps its digits when precisions are wide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import weighted
from optfair.methods.cluster_counterfactuals.algorithms.quadrics import (
    Pencil,
    nearest_behind,
    nearest_in_quadratic,
)
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.partition import Partition

METRICS = {
    "plain": None,
    "weights": np.array([1.0, 30.0, 0.2, 2.0]),
    "matrix": np.diag([2.0, 1.0, 5.0, 1.0]) + 0.3,
}


def wide(seed: int, least: float) -> Partition:
    """A round cluster, and a target that is flat in an oblique direction."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    S = Q * np.array([least, 1.0, 1.0, 1.0]) @ Q.T
    means = [[0.0] * 4, 3.0 * rng.normal(size=4)]
    return Partition.gaussian(means, [np.eye(4), (S + S.T) / 2.0])


def losses(Y: Any, u: Any, mu: Any, boundary: Any, metric: Any) -> Any:
    """Return complementarity over objective and the slope of the Lagrangian, row by row."""
    at = Y + u
    objective = (u * weighted(u, metric)).sum(axis=1)
    slope = 2.0 * weighted(u, metric) + mu[:, None] * boundary.gradient(at)
    lost = np.abs(mu * boundary.value(at)) / np.maximum(1.0, objective)
    return lost, np.abs(slope).max(axis=1)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_newton_steps_bring_back_the_digits(metric: Any) -> None:
    rng, free = np.random.default_rng(0), np.arange(4)
    lost: tuple[list[Any], list[Any]] = [], []
    for seed in range(10):
        boundary = wide(seed, 1e-6).boundary(0, 1)
        Y = 3.0 * rng.normal(size=(100, 4))
        Y = Y[boundary.value(Y) > 0.0]
        D, noise = boundary.curvature(free)
        pencil = Pencil.of(D, metric, noise=noise)
        raw = nearest_in_quadratic(
            Y, boundary.gradient(Y), boundary.value(Y), pencil, noise=boundary.slope_noise(Y)
        )
        found = nearest_behind(Y, boundary, free, metric=metric)
        assert found.reached.all()
        before, _ = losses(Y, raw.points - Y, raw.multipliers[:, 0], boundary, metric)
        after, slope = losses(Y, found.points - Y, found.multipliers[:, 0], boundary, metric)
        assert (2.0 + found.multipliers * pencil.d > 0.0).all()
        assert slope.max() <= 1e-6
        lost[0].extend(before)
        lost[1].extend(after)
    # g is a difference of terms near 1e8 there: about 1e-9 of it is rounding
    assert max(lost[1]) <= 1e-9 and np.mean(lost[1]) <= 0.2 * np.mean(lost[0])


def test_one_precise_direction() -> None:
    """A precision of 1e7 along an axis beside one of 1: nothing but rounding is left."""
    clusters = Partition.gaussian(
        [[0.0, 0.0, 0.0], [1.0, 2.0, 1.0]],
        [[[1.0, 0.2, 0], [0.2, 1, 0], [0, 0, 1]], [[1e-7, 0, 0], [0, 1, 0.3], [0, 0.3, 2.0]]],
    )
    boundary = clusters.boundary(0, 1)
    Y = np.random.default_rng(4).normal(size=(50, 3)) * 3.0
    Y = Y[clusters.labels(Y) == 0]
    found = nearest_behind(Y, boundary, np.arange(3))
    lost, _ = losses(Y, found.points - Y, found.multipliers[:, 0], boundary, None)
    assert lost.max() <= 1e-12


def test_held_features_are_left_alone() -> None:
    boundary = wide(3, 1e-4).boundary(0, 1)
    Y = np.zeros((1, 4))
    free = np.array([0, 2, 3])
    found = nearest_behind(Y, boundary, free)
    at = Y.copy()
    at[:, free] = found.points
    assert found.points.shape == (1, 3) and abs(float(boundary.value(at)[0])) <= 1e-8


def test_the_default_route_takes_wide_precisions() -> None:
    """Without the steps the answer is refused, and branch and bound runs for minutes."""
    rng = np.random.default_rng(0)
    clusters = wide(0, 1e-7)
    for y in 3.0 * rng.normal(size=(25, 4)):
        p = ClusterCounterfactual(clusters, factual=y, target=1, source=0)
        if p.inside:
            continue
        s = p.solve("secular-equation")
        assert s.is_optimal(1e-7) and s.certificate.verify()
        section = p.sides[0].section
        assert section.value(s["point"]) <= 1e-9 * (1.0 + section.level)
