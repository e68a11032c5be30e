"""Near points behind several boundaries, and what is known where nothing is proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optfair.errors import Infeasible, SolverFailure, Unbounded
from optfair.methods.cluster_counterfactuals import adapters as pairwise
from optfair.methods.cluster_counterfactuals.algorithms.several_quadrics import (
    Inner,
    Several,
    near_point,
)
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.partition import Partition

D = 4
NOWHERE = np.full(D, -np.inf), np.full(D, np.inf)


def clusters(seed: int, K: int = 4) -> Partition:
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(K, D, D))
    return Partition.gaussian(rng.normal(size=(K, D)), B @ B.transpose(0, 2, 1) + 0.1 * np.eye(D))


def test_the_approximation_touches_and_lies_above() -> None:
    rng = np.random.default_rng(0)
    g = clusters(0).boundary(0, 1, 0.1)
    c = rng.normal(size=D)
    inner = Inner(g, c)
    assert inner.value(c) == pytest.approx(float(g.value(c)))
    np.testing.assert_allclose(inner.gradient(c), g.gradient(c))
    for z in rng.normal(size=(100, D)) * 5.0:
        assert inner.value(z) >= g.value(z) - 1e-9
        step, h = rng.normal(size=D), 1e-4
        slope = (inner.value(z + h * step) - inner.value(z - h * step)) / (2 * h)
        assert slope == pytest.approx(float(inner.gradient(z) @ step), rel=1e-6, abs=1e-6)
    P, _ = inner.curvature(np.arange(D))
    assert (np.linalg.eigvalsh(P) > 0).all()


@pytest.mark.parametrize("metric", [None, np.array([1.0, 4.0, 0.5, 2.0]), np.eye(D) + 0.3])
def test_near_points_are_feasible_and_often_the_optimum(metric: Any) -> None:
    rng = np.random.default_rng(1)
    everywhere = np.ones(D, dtype=bool)
    ratios = []
    for seed in range(15):
        parts = clusters(seed)
        sides = [parts.boundary(k, 1, 0.01) for k in (0, 2, 3)]
        y = rng.normal(size=D) * 2.0
        z = near_point(y, sides, everywhere, metric, NOWHERE)
        proved = Several(sides, everywhere, metric).nearest(y)
        if z is None:
            assert proved is None
            continue
        assert max(float(b.value(z)) / (1.0 + abs(float(b.value(y)))) for b in sides) <= 1e-10
        if proved is not None:
            u = z - y
            W = np.eye(D) if metric is None else np.diag(metric) if metric.ndim == 1 else metric
            ratios.append(float(u @ W @ u) / proved[1])
    assert len(ratios) >= 8 and min(ratios) >= 1.0 - 1e-8
    assert np.median(ratios) <= 1.0 + 1e-6


def test_bounds_and_held_features_are_kept() -> None:
    free = np.array([True, True, False, True])
    seen = 0
    for seed in range(10):
        parts = clusters(seed)
        sides = [parts.boundary(k, 1) for k in (0, 2, 3)]
        y = np.random.default_rng(seed).normal(size=D)
        limits = y - 1.5, y + 1.5
        z = near_point(y, sides, free, None, limits)
        if z is None:
            continue
        seen += 1
        assert z[2] == y[2] and (np.abs(z - y) <= 1.5).all()
        assert max(float(b.value(z)) for b in sides) <= 1e-9
    assert seen >= 3


def test_a_dual_without_end_is_left_alone() -> None:
    """Where the target is nowhere likeliest the multipliers grow without limit."""
    narrow = Partition.gaussian(np.zeros((3, 2)), [1.0, 0.5, 2.0])
    # the middle cluster loses to the narrow one inside and to the wide one outside
    sides = [narrow.boundary(k, 0, 30.0) for k in (1, 2)]
    several = Several(sides, np.ones(2, dtype=bool), None)
    assert several.nearest(np.array([0.3, 0.1])) is None
    assert (
        near_point(
            np.array([0.3, 0.1]),
            sides,
            np.ones(2, dtype=bool),
            None,
            (np.full(2, -np.inf), np.full(2, np.inf)),
        )
        is None
    )


def gapped() -> ClusterCounterfactual:
    """Return a problem whose dual has a gap."""
    for seed in range(60):
        parts = clusters(seed, 6)
        y = np.random.default_rng(seed).normal(size=D) * 2.0
        if parts.labels(y) == 1:
            continue
        p = ClusterCounterfactual(parts, factual=y, target=1, against="all", plausibility=0.1)
        free = np.ones(D, dtype=bool)
        sides = [t.section.boundary for t in p.sides]
        near = near_point(y, sides, free, None, NOWHERE)
        if near is not None and Several(sides, free, None).nearest(y) is None:
            return p
    raise AssertionError("no such problem among the seeds")


@pytest.mark.parametrize(
    "said",
    [*(pytest.param(e, marks=pytest.mark.slow) for e in (Unbounded, SolverFailure)), Infeasible],
)
def test_a_relaxation_that_fails_leaves_point_and_bound(
    monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    """Solvers fail on relaxations of wide precisions, and some then call them unbounded."""
    p = gapped()
    truth = p.solve("scip", tolerance=1e-6, time_limit=600.0).objective

    def fails(*_: Any, **__: Any) -> Any:
        raise said("numbers too wide", "", "")

    monkeypatch.setattr(pairwise, "solve", fails)
    monkeypatch.setattr(pairwise, "out_of_reach", lambda *_, **__: None)
    s = pairwise.best_known(p, time_limit=5.0)
    assert s.status.primal == "feasible" and s.status.termination == "relaxed"
    assert s.bound <= truth * (1.0 + 1e-4) and s.objective >= truth * (1.0 - 1e-4)
    assert s.bound > 0.0 and not s.is_optimal(1e-7) and not s.certificate.verify()
    # the bound is recomputed from the multipliers
    assert s.proof is not None
    assert s.proof.check(s.values, s.multipliers).bound == pytest.approx(s.bound)
