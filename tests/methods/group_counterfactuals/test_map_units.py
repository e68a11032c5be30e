"""Features in units far apart, constant columns, repeated rows: the map does what was solved."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair import group_counterfactuals as maps
from optfair.methods.group_counterfactuals.fixed_basis import (
    CommutativeGaussianMap,
    DiagonalMap,
    ScaledMap,
)
from optfair.methods.group_counterfactuals.group_problem import Moments
from optfair.methods.group_counterfactuals.rules import chance

sys.path.insert(0, str(Path(__file__).parent))
from map_cases import MODELS, group, target

FAR = {
    "one large": [1e7, 1.0, 1.0],
    "one small": [1.0, 1.0, 1e-6],
    "from 1e-6 to 1e6": [1e6, 1.0, 1e-6],
    "turnover beside a ratio": [1e6, 1.0, 1e-2],
}
Z = np.random.default_rng(0).normal(size=(30, 3)) + np.array([2.0, -1.0, 0.5])


def far(name: str, **given: Any) -> tuple[Any, np.ndarray, dict[str, Any]]:
    """Return rows and a score that would be ``Z`` and its sum in other units."""
    units = np.array(FAR[name])
    return Z * units, 1.0 / units, {"threshold": 6.0, "K": 3.0, "k": 3.0, **given}


def short(p: Any, g: Any, X: Any, tolerance: float = 1e-7) -> float:
    """Return by how much members miss the target, of what their scores are made of."""
    moved = g.transform(X)
    size = np.abs(moved) @ np.abs(p.normal) + abs(p.level)
    return float(((p.level - moved @ p.normal) / size).max()) - tolerance


@pytest.mark.sampled(2)
@pytest.mark.parametrize("units", FAR)
@pytest.mark.parametrize("model", [DiagonalMap, CommutativeGaussianMap, ScaledMap])
def test_members_reach_the_target_in_any_units(model: Any, units: str) -> None:
    X, w, given = far(units, feature_costs=1.0 / np.square(FAR[units]))
    p = model(X, score=(w, 0.0), **given)
    s = p.solve()
    g = p.map(s)
    assert short(p, g, X) <= 0.0
    name = "scale" if model is ScaledMap else "factors"
    if model is not ScaledMap:  # every feature has extent: there is nothing to settle
        assert np.array_equal(p.settled(s.values)[name], s[name])
    # the cost is the mean over the members, none of which is too small to count
    moved = (g.transform(X) - X) / np.array(FAR[units])
    assert s.objective == pytest.approx(float(np.square(moved).sum(axis=1).mean()), rel=1e-6)
    if model is not CommutativeGaussianMap:  # whose axes are others in other units
        plain = model(Z, score=(np.ones(3), 0.0), threshold=6.0, K=3.0, k=3.0)
        assert s.objective == pytest.approx(plain.solve().objective, rel=1e-6)


@pytest.mark.parametrize("name", ["psd", "gaussian", "diagonal", "commutative", "scaled"])
def test_members_reach_the_target_where_costs_are_in_units_too(name: str) -> None:
    units = np.array(FAR["turnover beside a ratio"])
    X = np.random.default_rng(0).normal(size=(30, 3)) * units
    p = MODELS[name](X, score=(1.0 / units, 0.0), threshold=2.0, K=3.0, k=3.0)
    assert short(p, p.map(p.solve()), X) <= 0.0


@pytest.mark.parametrize("seed", [0, 4, 33])
def test_symmetric_maps_are_proved_where_features_are_twelve_orders_apart(seed: int) -> None:
    # an entry of the map between far features has coefficients of 1e12: what its multiplier leaves
    # over is only rounding, but the bounds are as far out as for all others
    rng = np.random.default_rng(seed)
    units = np.array([1e-6, 1e2, 1e6])
    X, w = rng.standard_normal((12, 3)), rng.standard_normal(3)
    p = MODELS["psd"](
        X * units,
        score=(w / units, 0.0),
        threshold=float(np.quantile(X @ w, 0.8)) + 0.5,
        feature_costs=1.0 / units**2,
        K=2.0,
        k=2.0,
    )
    s = p.solve("lazy-rows", tolerance=1e-6)
    assert s.is_optimal(1e-6) and str(s.grade) == "proved"
    assert s.objective - s.bound <= 1e-6 * s.objective


def test_a_chance_counts_features_in_small_units() -> None:
    X, w, given = far("one small", feature_costs=1.0 / np.square(FAR["one small"]))
    X[:, 2] *= 1e-3  # nine orders apart
    w, costs = w * [1.0, 1.0, 1e3], given.pop("feature_costs") * [1.0, 1.0, 1e6]
    p = DiagonalMap(X, score=(w, 0.0), feature_costs=costs, **given)
    plain = DiagonalMap(Z, score=(np.ones(3), 0.0), **given)
    found, true = (q.with_constraints(most=chance(0.01)).solve() for q in (p, plain))
    assert found.objective == pytest.approx(true.objective, rel=1e-5)


def test_moments_have_a_root_in_any_units() -> None:
    units = np.array([1e9, 1.0, 1e-9])
    m = Moments.of_rows((Z - Z.mean(axis=0)) * units, Z.mean(axis=0) * units)
    assert not m.singular
    again = (m.root @ m.root.T) / np.outer(units, units)
    assert np.allclose(again, np.cov(Z.T, bias=True), rtol=1e-12, atol=1e-12)
    constant = np.hstack([Z, np.full((30, 1), 0.1)])
    flat = Moments.of_rows(constant - constant.mean(axis=0), constant.mean(axis=0))
    assert flat.root.shape == (4, 3) and not flat.covariance[3].any() and not flat.root[3].any()
    # rounding of large features in a covariance somebody gave is no direction
    sigma = np.array([[1.0, 1e-12], [1e-12, 1e-30]])
    assert Moments.given(np.zeros(2), sigma).root.shape == (2, 1)


def constant_column() -> np.ndarray:
    X = group()
    X[:, 3] = 0.1  # its mean is not 0.1 in floating point
    return X


ROWS: dict[str, Any] = {
    "constant column": constant_column,
    "constant column that is scored": lambda: np.roll(constant_column(), 1, axis=1),
    "repeated rows": lambda: np.repeat(group(n=8), 5, axis=0),
    "two rows, repeated": lambda: np.repeat(group(n=2), 3, axis=0),
    "one row, repeated": lambda: np.repeat(group(n=1), 4, axis=0),
}
#: what is refused with a reason: every component of a mixture needs extent in all directions
NEEDS_EXTENT = ("mixture", "mixture, global")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", MODELS)
def test_groups_without_extent_somewhere(name: str, rows: str) -> None:
    X = ROWS[rows]()
    if name in NEEDS_EXTENT:
        with pytest.raises(of.DataError):
            MODELS[name](X, K=1.5, k=1.5, **target())
        return
    p = MODELS[name](X, K=1.5, k=1.5, **target())
    s = p.solve(tolerance=1e-6)
    g = p.map(s)
    assert short(p, g, X, 1e-6) <= 0.0
    moved = g.transform(X) - X
    cost = float(np.square(moved).sum(axis=1).mean())
    assert s.objective == pytest.approx(cost, rel=1e-5, abs=1e-6)
    if rows == "one row, repeated" and not name.startswith("affine"):
        # nothing is known but where one point goes: new members are moved alike
        assert np.allclose(g.matrix, np.eye(4), atol=1e-6)


def test_one_scale_settles_only_where_nobody_is_moved_by_it() -> None:
    p = ScaledMap(constant_column(), K=1.5, k=1.5, **target())
    s = p.solve()
    assert float(s["scale"]) < 1.0
    assert np.allclose(p.map(s).matrix, float(s["scale"]) * np.eye(4))
    point = ScaledMap(np.full((3, 2), 0.3), score=([1.0, 1.0], 0.0), threshold=1.0, k=2.0)
    values = {"mean": np.array([0.5, 0.5]), "scale": np.array(0.7)}
    assert float(point.settled(values)["scale"]) == 1.0


def test_what_moves_members_is_not_settled() -> None:
    # a direction is called flat although the group has extent in it
    X, w, given = far("turnover beside a ratio")
    p = DiagonalMap(X, score=(w, 0.0), **given)
    s = p.solve()

    class Wrong(DiagonalMap):
        flat = np.array([False, False, True])

    q = Wrong(X, score=(w, 0.0), **given)
    assert np.array_equal(q.map(s).matrix, np.diag(s["factors"]))


def test_a_map_that_misses_the_target_is_refused() -> None:
    p = DiagonalMap(Z, score=(np.ones(3), 0.0), threshold=6.0, K=3.0, k=3.0)
    s = p.solve(tolerance=1e-9)

    class Wrong(DiagonalMap):
        def transport(self, piece: Any, values: Any) -> Any:
            found = super().transport(piece, values)
            short = found.offset - 1e-6
            return type(found)(found.matrix, short, features=found.features)

    q = Wrong(Z, score=(np.ones(3), 0.0), threshold=6.0, K=3.0, k=3.0)
    with pytest.raises(of.SolverFailure, match="does not send the group") as e:
        q.map(s)
    assert "standardise" in e.value.remedy
    # what a solution with a larger tolerance misses is its own
    assert q.map(p.solve(tolerance=1e-4)) is not None

    class SettledWrong(DiagonalMap):
        def settled(self, values: Any) -> Any:
            return {**values, "factors": np.asarray(values["factors"]) * 3.0}

    half = SettledWrong(Z, score=(np.ones(3), 0.0), threshold=6.0, K=3.0, k=3.0)
    assert np.array_equal(half.map(s).matrix, p.map(s).matrix)
    # a target that is no constraint any more is not asked for
    low = {**s.values, "mean": np.asarray(s["mean"]) - 5.0}
    rest = q.without("classification")
    assert rest.map(replace(s, values=low, problem=rest)) is not None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", [ScaledMap, DiagonalMap, of.PSDMap])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("unit", [1e-6, 1e-3])
def test_one_member_or_equal_ones_have_the_unit_of_their_move(
    model: Any, rows: int, unit: float
) -> None:
    """They have no spread, and a gap of 1e-7 is all of a cost of 1e-12."""
    X = np.tile([0.1, -0.7, 0.3], (rows, 1)) * unit
    p = model(X, score=(np.array([1.0, -2.0, 0.5]), 0.0), threshold=3.0 * unit, K=2.0)
    truth = (3.0 - 1.65) ** 2 / 5.25 * unit**2  # the squared distance to the target
    assert p.objective_unit == pytest.approx(truth, rel=1e-9, abs=0.0)
    own = p.solve()
    assert own.is_optimal(1e-6) and own.objective == pytest.approx(truth, rel=1e-6, abs=0.0)
    with contextlib.suppress(of.SolverFailure):
        other = p.solve(solver="clarabel")
        assert other.objective == pytest.approx(truth, rel=1e-5, abs=0.0)


@pytest.mark.parametrize("unit", [1e4, 1e5])
def test_groups_in_large_units_are_moved_as_in_others(unit: float) -> None:
    for seed in range(4):
        X = np.random.default_rng(seed).normal(size=(10, 2))
        score = np.array([1.0, 0.5]), -2.0
        options = {"probability": 0.8, "K": 3, "k": 1.2}
        plain = of.group_counterfactuals.PSDMap(X, score=score, **options).solve()
        far = of.group_counterfactuals.PSDMap(
            X * unit, score=(score[0] / unit, score[1]), **options
        ).solve()
        assert far.grade.word == "proved"
        assert far.objective == pytest.approx(plain.objective * unit**2, rel=1e-6)


@pytest.mark.parametrize("unit", [1e-2, 1e-3, 3e-4, 1e-4, 1e3])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_on_both_sides_are_proved_in_any_unit(seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(60, 4)), rng.normal(size=4)
    s = of.PSDMap(unit * X, score=(w / unit, 0.0), threshold=1.0, K=3.0, k=3.0).solve()
    truth = of.PSDMap(X, score=(w, 0.0), threshold=1.0, K=3.0, k=3.0).solve()
    assert s.solver == "lazy-rows" and s.grade.word == "proved"
    assert s.objective / unit**2 == pytest.approx(truth.objective, rel=1e-6)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize(
    ("model", "seed", "limits"),
    [(maps.ScaledMap, 75, {"K": 5.0, "k": 1.0}), (maps.AffineMap, 131, {"K": 5.0})],
)
def test_directions_are_kept_in_the_unit_of_the_feature(
    model: Any, seed: int, limits: dict[str, float], unit: float
) -> None:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(3, 11)), int(rng.integers(1, 3))
    X, w, costs = rng.normal(size=(n, d)), rng.normal(size=d), rng.uniform(0.5, 2.0, d)
    score = of.features.LinearScore(w / unit, 0.0, names=["x0", "x1"][:d])
    threshold = float(rng.normal() + 1.0)
    p = model(X * unit, score=score, threshold=threshold, feature_costs=costs, **limits)
    p = p.with_constraints(up=of.features.monotone(increasing=["x0"]))
    s = p.solve()
    moved = (p.map(s).transform(X * unit) - X * unit)[:, 0] / unit
    assert moved.min() >= -2e-7 * np.abs(X[:, 0]).max() and s.grade.sound


@pytest.mark.parametrize("seed", range(4))
def test_fewer_members_than_features_are_proved_as_far_as_anybody_asks(seed: int) -> None:
    """With a singular covariance nothing but 0 is proved everywhere: a map may be 1e17."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(2, 3)), rng.normal(size=3)
    p = maps.AffineMap(X, score=(w, 0.0), threshold=1.5).with_constraints(fix=of.immutable(0))
    s = p.solve()
    assert s.objective > 0.5 and s.grade.sound and s.certificate.verify()
    assert s.grade.radius > 1e6


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_single_member_is_moved_in_any_unit(unit: float) -> None:
    """No matrix costs anything there; the mean alone has to go, far from 0."""
    row, score = np.array([[-3.136, -6.272]]) * unit, (np.array([1.0, 0.0]) / unit, 0.0)
    s = of.PSDMap(row, score=score, threshold=-2.637, K=3.0, k=1.5).solve()
    assert s.is_optimal(1e-6)
    assert s.objective / unit**2 == pytest.approx(0.499**2, rel=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1e-5, 1e6])
@pytest.mark.parametrize("again", [0, 2])
@pytest.mark.parametrize("seed", [1, 7])
def test_gram_bounds_are_proved_in_any_unit(unit: float, again: int, seed: int) -> None:
    """Proofs are charged in units in which the points are near 1, as their Gram matrix is."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(6, 2))
    rows = np.vstack([rows, rows[:again]])
    w = rng.normal(size=2)
    objectives = []
    for u in (1.0, unit):
        stated = {"score": (w, 0.0), "threshold": 1.5 * u * float((rows @ w).max())}
        p = maps.BiLipschitzCounterfactuals(rows * u, K=1.1, k=1.1, **stated)
        s = maps.GramBound(p).solve()
        assert str(s.grade) == "proved"
        objectives.append(s.objective / u**2)
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e3, 1e6])
def test_gram_bounds_of_groups_at_their_target_are_zero_in_any_unit(unit: float) -> None:
    """Costs of the entries cancel there: a gap is relative to them."""
    rng = np.random.default_rng(0)
    rows, w = rng.normal(size=(9, 4)) * unit, rng.normal(size=4)
    stated = {"score": (w, 0.0), "threshold": float((rows @ w).min())}
    s = maps.GramBound(maps.BiLipschitzCounterfactuals(rows, K=1.5, k=1.5, **stated)).solve()
    assert s.grade.word == "proved" and abs(s.objective) <= 1e-6 * unit**2
