"""The closed form of the scaled map against generic solvers, and its proof against tampering."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import optfair as of
from optfair.features.feature_problem import immutable
from optfair.methods.group_counterfactuals.fixed_basis import ScaledMap
from optfair.methods.group_counterfactuals.rules import loewner

W = np.array([1.0, -2.0, 0.5])


def problem(seed: int = 0, **given: Any) -> ScaledMap:
    X = np.random.default_rng(seed).normal(size=(25, 3)) * [1.0, 0.5, 2.0] + 0.3
    options = {"score": (W, 0.2), "threshold": 1.0, **given}
    return ScaledMap(X, **options)


CASES = {
    "free": {},
    "bounds": {"K": 1.5, "k": 1.2},
    "tight": {"K": 1.01, "k": 1.01},
    "isometry": {"K": 1.0, "k": 1.0},
    "far": {"threshold": 40.0, "k": 3.0},
    "far and free": {"threshold": 40.0},
    "reached": {"threshold": -40.0},
    "costs": {"feature_costs": [1.0, 3.0, 0.2], "k": 2.0},
}


@pytest.mark.parametrize("case", CASES)
def test_closed_form_is_the_generic_optimum(case: str) -> None:
    p = problem(**CASES[case])
    s = p.solve(tolerance=1e-11)
    assert s.solver == "scaled-map"
    assert s.certificate.verify()
    other = p.solve("clarabel", tolerance=1e-9)
    assert s.objective == pytest.approx(other.objective, rel=1e-8, abs=1e-9)
    if s.objective > 1e-6:
        assert float(s["scale"]) == pytest.approx(float(other["scale"]), abs=1e-5)


@given(
    seed=st.integers(0, 10_000),
    threshold=st.floats(-5, 30),
    k=st.one_of(st.none(), st.floats(1.0, 6.0)),
)
def test_closed_form_against_a_search_in_the_scale(
    seed: int, threshold: float, k: float | None
) -> None:
    p = problem(seed, threshold=threshold, k=k, K=2.0)
    X = p.points
    mean, spread = X.mean(axis=0), np.square(X - X.mean(axis=0)).sum(axis=1).mean()

    def cost(a: float) -> float:
        lowest = (mean + a * (X - mean)) @ W
        shift = max(0.0, threshold - 0.2 - lowest.min())
        return float(shift**2 / (W @ W) + (a - 1) ** 2 * spread)

    low = 0.0 if k is None else 1 / k
    best = min(minimize_scalar(cost, bounds=(low, 2.0), method="bounded").fun, cost(low), cost(1.0))
    s = p.solve(tolerance=1e-10)
    assert s.objective == pytest.approx(best, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("case", ["bounds", "tight", "isometry", "free"])
def test_tampering_is_found(case: str) -> None:
    s = problem(**CASES[case]).solve(tolerance=1e-9)
    for kind in ("values", "multipliers"):
        known = getattr(s, kind)
        for name in known:
            moved = np.array(known[name], dtype=float)
            moved.flat[-1] += 1e-4 * (1.0 + np.abs(moved).max())
            assert not replace(s, **{kind: {**known, name: moved}}).certificate.verify(), name


def test_shadow_price_of_the_target() -> None:
    step = 1e-5
    low, mid, high = (problem(threshold=1.0 + e, k=1.2).solve() for e in (-step, 0.0, step))
    slope = (high.objective - low.objective) / (2 * step)
    assert mid.shadow_price["classification"].sum() == pytest.approx(slope, rel=1e-6)


def test_further_constraints_leave_the_closed_form() -> None:
    p = problem(k=2.0)
    for q in (
        p.with_constraints(stay=immutable(0)),
        p.with_constraints(b=loewner(k=1.5)),
        p.without("factor lower"),
        p.without("classification"),
    ):
        assert q.structure_refusal("uniform-scale")
        with pytest.raises(of.UnsupportedProblem):
            q.solve("scaled-map")
        assert q.solve().certificate.verify()


def test_equal_members_have_any_scale() -> None:
    s = ScaledMap(np.ones((4, 3)), score=(W, 0.0), threshold=3.0).solve()
    assert s.objective == pytest.approx((3.0 + 0.5) ** 2 / (W @ W))
    assert s.certificate.verify()


def test_linear_in_the_members() -> None:
    """A hundred thousand rows cost a pass over them."""
    import time

    X = np.random.default_rng(0).normal(size=(100_000, 10))
    p = ScaledMap(X, score=(np.ones(10), 0.0), threshold=3.0, K=2.0, k=2.0)
    begin = time.process_time()
    assert p.solve().certificate.verify()
    assert time.process_time() - begin < 1.0
