"""Limits that no point attains end with a bound and a point, falls without end with a proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.unattained import EndlessFall, nearing

X, Y = cp.Variable(name="x"), cp.Variable(name="y")


@pytest.mark.parametrize(
    ("goal", "least"),
    [
        (lambda x, y: cp.quad_over_lin(x, y), 0.0),
        (lambda x, y: cp.quad_over_lin(x, y) + x, 1.0),
        (lambda x, y: cp.inv_pos(y) + cp.inv_pos(x), 0.0),
    ],
)
def test_a_limit_that_is_not_attained_is_proved(
    goal: Callable[[Any, Any], Any], least: float
) -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal(X, Y)), [X >= 1, Y >= 1]))
    s = p.solve()
    assert s.grade.word == "proved" and s.is_optimal(1e-7)
    assert s.bound == pytest.approx(least, abs=1e-9) and s.bound <= s.objective
    assert s.objective == pytest.approx(least, abs=1e-7)
    assert not s.attained and "by no point" in repr(s)


def test_points_are_moved_out_only_as_far_as_constraints_allow() -> None:
    goal = cp.Minimize(cp.quad_over_lin(X, Y))
    p = of.from_cvxpy(cp.Problem(goal, [X >= 1, Y >= 1, Y <= 10 * X]))
    assert nearing(p, {"x": 1.0, "y": 1.0}, 1e-7) is None
    s = p.solve()
    assert s.objective == pytest.approx(0.1, abs=1e-6) and s.attained


@pytest.mark.parametrize("goal", [cp.log(X), cp.sqrt(X) - Y], ids=["logarithm", "root"])
def test_a_rejected_point_far_out_is_no_answer(goal: Any) -> None:
    p = of.from_cvxpy(cp.Problem(cp.Maximize(goal), [Y >= 1]))
    with pytest.raises(of.SolverFailure, match="improves on, however far out") as e:
        p.solve()
    assert e.value.solution.residuals().above(1e-7)


@pytest.mark.parametrize(
    ("goal", "rows"),
    [
        (cp.Minimize((1 - X) / (Y + 1)), [X >= 0, Y >= 0, Y <= 3]),
        (cp.Maximize((X + 1) / (Y + 1)), [X >= 0, Y >= 0, Y <= 3]),
        (cp.Minimize(-X / (Y + 1)), [X >= Y, Y >= 0]),
        (cp.Minimize(-X * X / (Y + 1)), [X >= 0, Y >= 0, Y <= 1]),
    ],
    ids=["fraction", "maximised", "along a row", "nonconvex"],
)
def test_a_fall_without_end_is_proved(goal: Any, rows: list[Any]) -> None:
    p = of.from_cvxpy(cp.Problem(goal, rows))
    with pytest.raises(of.Unbounded, match="improves without limit") as e:
        p.solve()
    proof = e.value.certificate
    assert isinstance(proof, EndlessFall) and proof.verify()
    assert "'x' rises" in str(proof) and e.value.ray["x"] == 1.0 and e.value.ray["y"] == 0.0
    sign = 1.0 if p.sense == "minimize" else -1.0
    values = []
    for t in (0.0, 1.0, 1e3, 1e6):
        at = {n: np.asarray(v) + t * e.value.ray[n] for n, v in proof.values.items()}
        assert max(c.relative_violation(at) for c in p.constraints.values()) <= 1e-9
        values.append(sign * p.objective_at(at) + (1.0 - 1e-9) * t * proof.rate)
    assert max(values) <= values[0] + 1e-9
    other = EndlessFall(p, proof.values, 1, proof.way)
    assert not other.verify() and not EndlessFall(p, proof.values, 0, -1.0).verify()


@pytest.mark.parametrize(
    ("goal", "rows", "start"),
    [
        (cp.Minimize(-X), [1 / (X - 5) <= 0], 0.0),  # beyond the pole it is positive
        (cp.Minimize(-X), [X * X <= 4], 0.0),
        (cp.Minimize(-cp.sqrt(X)), [X >= 1], 1.0),  # falls, by less and less
        (cp.Minimize(-X), [X >= 1], 0.0),  # not a feasible point
        (cp.Minimize(cp.ceil(-X)), [X >= 1], 1.0),  # no slope is known
        (cp.Minimize(1 / X), [X >= 1], 1.0),
    ],
    ids=["a pole", "a square", "a root", "no point", "steps", "a limit"],
)
def test_no_fall_is_claimed_that_is_not_shown(goal: Any, rows: list[Any], start: float) -> None:
    p = of.from_cvxpy(cp.Problem(goal, rows))
    assert not EndlessFall(p, {"x": start}, 0, 1.0).verify()
