"""Symmetric maps by operator splitting: as the generic routes, in any units, and proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.methods.group_counterfactuals.loewner_map import LoewnerProof, split_map

ROUTE = "loewner-map"


def group(d: int = 12, n: int = 60, seed: int = 0, unit: Any = 1.0, **given: Any) -> of.PSDMap:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ (np.eye(d) + 0.5 * rng.standard_normal((d, d)) / d**0.5)
    w = rng.standard_normal(d)
    level = float(np.quantile(X @ w, 0.9))
    return of.PSDMap(X * unit, score=(w / unit, 0.0), threshold=level, **given)


@pytest.mark.parametrize("K", [None, 1.0, 1.5])
@pytest.mark.parametrize("k", [None, 1.0, 3.0])
def test_it_agrees_with_the_generic_route(K: float | None, k: float | None) -> None:
    p = group(K=K, k=k)
    if K == k == 1.0:
        with pytest.raises(of.UnsupportedProblem, match="one matrix"):
            p.solve(ROUTE)
        return
    s, generic = p.solve(ROUTE), p.solve("lazy-rows")
    assert str(s.grade) == "proved" and s.is_optimal(1e-7)
    assert s.objective == pytest.approx(generic.objective, rel=1e-6)
    assert s.bound <= generic.objective + 1e-12 and generic.bound <= s.objective + 1e-12
    scores = p.map(s).transform(p.points) @ p.normal
    assert scores.min() >= p.level - 1e-7 * abs(p.level)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_change_nothing(unit: float) -> None:
    first, second = group(K=2.0, k=2.0), group(K=2.0, k=2.0, unit=unit)
    s, t = first.solve(ROUTE), second.solve(ROUTE)
    assert str(t.grade) == "proved" and t.is_optimal(1e-7)
    assert t.objective == pytest.approx(s.objective * unit**2, rel=1e-6)
    # features of mixed size
    mixed = np.logspace(-1, 1, 12) * unit
    assert group(K=2.0, k=2.0, unit=mixed).solve().is_optimal(1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_any_prices_bound_from_below(seed: int) -> None:
    p = group(K=2.0, k=None if seed % 2 else 4.0)
    s = p.solve(ROUTE)
    rng = np.random.default_rng(seed)
    step = 10.0 ** -rng.integers(0, 5)
    wrong = {}
    for name, value in s.multipliers.items():
        noise = rng.standard_normal(value.shape) * step * (1.0 + np.abs(value).max())
        wrong[name] = value + (noise if noise.ndim == 1 else noise @ noise.T)
    found = LoewnerProof(p, dict(s.values), wrong).check(s.values, wrong)
    assert np.isfinite(found.bound) and found.bound <= s.objective * (1.0 + 1e-12)
    assert found.bound < s.bound
    # others than those of the proof are noticed
    proof = LoewnerProof(p, dict(s.values), dict(s.multipliers))
    assert proof.check(s.values, s.multipliers).consistency == 0.0
    assert proof.check(s.values, wrong).consistency > 1e-8


def test_who_is_refused() -> None:
    whole = group()
    for problem, why in (
        (group(d=5), "fewer than"),
        (group(feature_costs=np.linspace(1.0, 2.0, 12)), "different costs"),
        (group(n=8), "no extent"),
        (whole.with_constraints({"ahead": whole["mean"][0] >= 0.0}), "own terms"),
    ):
        with pytest.raises(of.UnsupportedProblem, match=why):
            problem.solve(ROUTE)


def test_a_group_that_is_there_already_stays_and_one_without_time_has_a_map() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 12)) + 9.0
    p = of.PSDMap(X, score=(np.ones(12), 0.0), threshold=1.0, K=2.0, k=2.0)
    s = p.solve(ROUTE)
    assert s.objective == pytest.approx(0.0, abs=1e-12) and s.is_optimal(1e-9)
    covariance = np.cov(X.T, bias=True)
    w = np.ones(12) / 12**0.5
    own = X - X.mean(axis=0)
    late = split_map(covariance, own, w, 1.0, 0.5, 2.0, enough=1e-9, deadline=0.0)
    assert late.steps == 1 and late.gap > 0.0
    assert (late.shift + own @ late.matrix @ w).min() >= 1.0 - 1e-12
    sizes = np.linalg.eigvalsh(late.matrix)
    assert sizes[0] >= 0.5 - 1e-12 and sizes[-1] <= 2.0 + 1e-12
