"""Maps in d + 1 numbers against the whole problem, and their proof against tampering."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.features.feature_problem import box, immutable
from optfair.methods.group_counterfactuals.affine_maps import AffineMap
from optfair.methods.group_counterfactuals.fixed_basis import (
    CommutativeGaussianMap,
    DiagonalMap,
)

W = np.array([1.0, -0.5, 0.3, 0.0])
COSTS = np.array([1.0, 4.0, 0.5, 2.0])


def group(n: int = 40, d: int = 4, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / 2 - 1.0


CASES: dict[str, Any] = {
    "affine": lambda X: AffineMap(X, score=(W, 0.4), threshold=1.5),
    "affine, costs": lambda X: AffineMap(X, score=(W, 0.4), threshold=1.5, feature_costs=COSTS),
    "affine, slack bound": lambda X: AffineMap(X, score=(W, 0.4), threshold=1.5, K=4.0),
    "diagonal": lambda X: DiagonalMap(X, score=(W, 0.4), threshold=1.5),
    "diagonal, bounds": lambda X: DiagonalMap(X, score=(W, 0.4), threshold=1.5, K=1.1, k=1.1),
    "diagonal, costs": lambda X: DiagonalMap(
        X, score=(W, 0.4), threshold=1.5, k=3.0, feature_costs=COSTS
    ),
    "diagonal, isometry": lambda X: DiagonalMap(X, score=(W, 0.4), threshold=1.5, K=1.0, k=1.0),
    "commutative": lambda X: CommutativeGaussianMap(X, score=(W, 0.4), threshold=1.5, K=1.3, k=1.3),
    "commutative, costs": lambda X: CommutativeGaussianMap(
        X, score=(W, 0.4), threshold=1.5, K=1.3, k=1.3, feature_costs=COSTS
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("flat", [False, True])
def test_reduced_is_the_whole(case: str, flat: bool) -> None:
    X = group()
    if flat:
        X[:, 3] = X[:, 0] - X[:, 1]
    p = CASES[case](X)
    s = p.solve(tolerance=1e-9)
    assert s.solver == "score-map" and not s.attempts
    assert s.certificate.verify()
    for other in ("lazy-rows", "clarabel"):
        assert s.objective == pytest.approx(p.solve(other, tolerance=1e-8).objective, rel=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_tampering_is_found(case: str) -> None:
    s = CASES[case](group()).solve(tolerance=1e-8)
    for kind in ("values", "multipliers"):
        known = getattr(s, kind)
        for name in known:
            for at in (0, -1):
                moved = np.array(known[name], dtype=float)
                moved.flat[at] += 1e-4 * (1.0 + np.abs(moved).max())
                changed = replace(s, **{kind: {**known, name: moved}})
                assert not changed.certificate.verify(), (kind, name, at)


def test_shadow_price_of_the_target() -> None:
    def cost(threshold: float) -> Any:
        return DiagonalMap(group(), score=(W, 0.4), threshold=threshold, K=1.2, k=1.2)

    low, mid, high = (cost(1.5 + e).solve(tolerance=1e-10) for e in (-1e-4, 0.0, 1e-4))
    slope = (high.objective - low.objective) / 2e-4
    assert mid.shadow_price["classification"].sum() == pytest.approx(slope, rel=1e-5)


def test_an_active_bound_on_the_norm_is_left_to_the_next_solver() -> None:
    rng = np.random.default_rng(2)
    # members lie on a line across the score: the cheapest map turns it into the decision line
    along, noise = rng.normal(size=60), 0.1 * rng.normal(size=60)
    X = np.stack([along + noise, -along + noise], axis=1)
    score = ([0.0, 1.0], 0.0)
    free = AffineMap(X, score=score, threshold=-1.0).solve()
    assert np.linalg.norm(free["matrix"], 2) > 1.05
    s = AffineMap(X, score=score, threshold=-1.0, K=1.01).solve()
    assert s.solver == "lazy-rows"
    assert s.attempts == ("score-map: 'spectral upper' is active",)
    assert s.certificate.verify()
    assert s.objective > free.objective + 1e-5
    assert np.linalg.norm(s["matrix"], 2) == pytest.approx(1.01, abs=1e-6)


def test_further_constraints_leave_the_structure() -> None:
    p = CASES["diagonal, bounds"](group())
    for q in (
        p.with_constraints(stay=immutable(0)),
        p.with_constraints(limit=box({0: (None, 3.0)})),
        p.without("factor lower"),
        p.without("classification"),
        p.with_integrality("factors"),
    ):
        assert q.structure_refusal("score-factors")
        with pytest.raises(of.UnsupportedProblem):
            q.solve("score-map")


def test_options_it_does_not_have() -> None:
    with pytest.raises(of.UnsupportedProblem, match="does not take the options 'max_iter'"):
        CASES["affine"](group()).solve("score-map", options={"max_iter": 3})


def test_wide_groups_are_fast() -> None:
    """The whole problem has d (d + 1) unknowns, the reduced one d + 1."""
    X = np.random.default_rng(0).normal(size=(5_000, 40))
    p = AffineMap(X, score=(np.ones(40), 0.0), threshold=3.0)
    begin = time.process_time()
    assert p.solve().certificate.verify()
    assert time.process_time() - begin < 3.0


@pytest.mark.parametrize("unit", [1e-5, 1e5])
def test_units_and_constant_features_change_nothing(unit: float) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 4))
    X[:, 2] = 0.3
    w = np.array([1.0, -0.5, 0.8, 0.3])
    for model, given in ((AffineMap, {}), (DiagonalMap, {"K": 3.0, "k": 3.0})):
        plain = model(X, score=(w, 0.0), threshold=2.0, **given)
        scaled = model(X * unit, score=(w / unit, 0.0), threshold=2.0, **given)
        s, t = plain.solve(tolerance=1e-8), scaled.solve(tolerance=1e-8)
        assert t.solver == s.solver and t.is_optimal(1e-8)
        assert t.objective == pytest.approx(s.objective * unit**2, rel=1e-7)
        if model is AffineMap:  # where nothing varies the map is the identity
            assert np.array_equal(t["matrix"][:, 2], np.eye(4)[:, 2])


def test_multipliers_of_another_shape_prove_nothing() -> None:
    p = of.group_counterfactuals.IndependentCounterfactuals(group(5), score=(W, 0.4), threshold=1.5)
    s = p.solve()
    assert s.proof is not None and np.isfinite(s.proof.check(s.values, s.multipliers).bound)
    for values, y in ((s.values, np.ones(4)), ({"counterfactuals": np.ones((5, 3))}, np.ones(5))):
        found = s.proof.check(values, {"classification": y})
        assert found.bound == -np.inf and found.dual == np.inf
