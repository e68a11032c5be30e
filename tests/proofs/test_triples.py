"""Depths of multipliers in cones of three entries, and proofs that need them."""

from __future__ import annotations

import itertools

import cvxpy as cp
import mpmath
import numpy as np
import pytest

import optfair as of
from optfair.proofs.triples import (
    exp_depths,
    exp_moves,
    power_depth,
    power_dual_point,
    power_normal,
)


def test_the_last_entry_of_an_exponential_multiplier_may_be_less_by_its_depth() -> None:
    rng = np.random.default_rng(0)
    u = -np.exp2(rng.uniform(-30.0, 30.0, size=200))
    v = u * rng.uniform(-20.0, 20.0, size=200)
    edge = -u * np.exp(v / u - 1.0)
    w = edge * (1.0 + np.exp2(rng.uniform(-50.0, 3.0, size=200)) * rng.choice([-1.0, 1.0], 200))
    depths = exp_depths(np.column_stack([u, v, w]).ravel())
    with mpmath.workdps(60):
        for one in zip(u, v, w, depths, strict=True):
            a, b, c, depth = map(mpmath.mpf, one)
            least = -a * mpmath.exp(b / a - 1)
            assert depth == 0 or c - depth >= least
            assert c - least <= 1e-11 * abs(c) or depth >= 0.99 * (c - least)
    assert (exp_depths(np.array([0.0, 1.0, 1.0, 2.0, 1.0, 1.0])) == 0.0).all()


@pytest.mark.parametrize("power", [1e-3, 0.1, 0.4, 0.5, 0.93])
def test_each_entry_of_a_multiplier_of_a_power_cone_may_move_by_its_depth(power: float) -> None:
    rng = np.random.default_rng(0)
    for size in np.exp2(rng.uniform(-40.0, 40.0, size=60)):
        u, v = size * rng.uniform(0.1, 2.0, size=2)
        edge = (u / power) ** power * (v / (1.0 - power)) ** (1.0 - power)
        w = rng.choice([-1.0, 1.0]) * edge * (1.0 - np.exp2(rng.uniform(-50.0, 0.0)))
        z = np.array([u, v, w])
        depth, (normal, deep) = power_depth(z, power), power_normal(z, power)
        assert deep == pytest.approx(edge - abs(w), abs=1e-12 * edge)
        # entries of which the depth grows steeply leave less
        assert depth > 0.1 * min(deep / max(1.0, np.abs(normal).sum()), u, v) or deep < 1e-11 * edge
        with mpmath.workdps(60):
            a = mpmath.mpf(power)
            for signs in itertools.product((-1, 0, 1), repeat=3):
                x, y, t = (
                    mpmath.mpf(e) + s * mpmath.mpf(depth) for e, s in zip(z, signs, strict=True)
                )
                assert x >= 0 and y >= 0 and abs(t) <= (x / a) ** a * (y / (1 - a)) ** (1 - a)


def test_no_depth_is_known_outside_a_power_cone_and_on_its_edges() -> None:
    triples = [
        [0.0, 1.0, 0.0],
        [1.0, -1.0, 0.0],
        [1.0, 1.0, 2.1],
        [1.0, np.nan, 0.0],
        [1e-300, 1, 0],
    ]
    for z in map(np.array, triples):
        assert power_depth(z, 0.5) == 0.0
    on = power_dual_point(np.array([1.0, 1.0, 3.0]), 0.5)
    assert on[:2].tolist() == [1.0, 1.0] and 2.0 * (1.0 - 1e-12) < on[2] <= 2.0
    normal, depth = power_normal(np.array([0.0, 1.0, 0.0]), 0.5)
    assert depth == 0.0 and not normal.any()


@pytest.mark.parametrize("seed", range(4))
def test_columns_without_bounds_are_closed_by_multipliers_inside_power_cones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, z = (cp.Variable(3, name=name) for name in "xyz")
    power = rng.uniform(0.1, 0.9, 3)
    c = rng.uniform(0.1, 0.9, 3) * power**-power * (1.0 - power) ** (power - 1.0)
    goal = cp.Minimize(cp.sum(x + y) - (c * rng.choice([-1.0, 1.0], 3)) @ z)
    s = of.from_cvxpy(cp.Problem(goal, [cp.PowCone3D(x, y, z, power)])).solve()
    assert s.grade.word == "proved" and s.bound <= 0.0
    assert s.certificate.verify()


def test_multipliers_of_exponential_cones_move_along_the_shorter_way() -> None:
    # -u exp(v/u - 1) <= w at u = -1: v >= -1 - log(w), or w >= exp(-v - 1)
    beside = exp_moves(np.array([-1.0, -15.0, 1e6]), dual=True)
    np.testing.assert_allclose(beside, [0.0, 14.0 - np.log(1e6), 0.0], rtol=1e-12)
    above = exp_moves(np.array([-1.0, 12.0, 1e-6]), dual=True)
    np.testing.assert_allclose(above, [0.0, 0.0, np.exp(-13.0) - 1e-6], rtol=1e-9)
