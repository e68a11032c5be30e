"""Small nonconvex programs: boxes cover every point, and each is bounded or empty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.atoms.elementwise.trig import sin

import optfair as of

x, y, z = (cp.Variable(name=k) for k in "xyz")
X, Y = np.meshgrid(np.linspace(-3, 3, 1201), np.linspace(-2, 2, 801))
PROGRAMS: dict[str, tuple[Any, list[Any], float]] = {
    # both branches of 1/z <= 1 are feasible: the optimum is -5, not 1
    "a denominator of two signs": (cp.Minimize(z), [1 / z <= 1, z >= -5, z <= 10], -5.0),
    "wave": (cp.Minimize(sin(3 * x) + x * x / 5), [x >= -5, x <= 5], -0.9475029522),
    "camel": (
        cp.Minimize(
            (4 - 2.1 * x * x + x * x * x * x / 3) * x * x + x * y + 4 * (y * y - 1) * y * y
        ),
        [x >= -3, x <= 3, y >= -2, y <= 2],
        -1.0316284535,
    ),
    "maximum": (
        cp.Maximize(x * sin(y)),
        [x >= 0, x <= 2, y >= -3, y <= 3, x + y <= 4],
        2.0,
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n == "camel" else n for n in PROGRAMS],
)
def test_the_global_optimum_is_proved(name: str) -> None:
    goal, rows, truth = PROGRAMS[name]
    p = of.from_cvxpy(cp.Problem(goal, rows))
    assert not p.problem_class.convex
    s = p.solve(tolerance=1e-6)
    assert s.solver == "interval-boxes" and s.is_optimal(1e-6) and s.grade.word == "proved"
    assert s.objective == pytest.approx(truth, abs=2e-6)
    sign = 1.0 if p.sense == "minimize" else -1.0
    assert sign * s.bound <= sign * truth + 1e-9


def test_boxes_that_leave_something_out_prove_nothing() -> None:
    goal, rows, truth = PROGRAMS["wave"]
    s = of.from_cvxpy(cp.Problem(goal, rows)).solve(tolerance=1e-6)
    proof: Any = s.proof
    tree = proof.tree
    for wrong in (
        replace(tree, low=tree.low + 3.0),
        replace(tree, cuts=tree.cuts[:-1]),
        replace(tree, cuts=(np.array([-1], dtype=np.int8),)),
    ):
        bound = replace(proof, tree=wrong).check(s.values, {}).bound
        assert bound < truth - 1e-3, wrong
    assert not replace(s, values={"x": s.values["x"] + 1e-3}).is_optimal(1e-6)


def test_constraints_that_nothing_meets() -> None:
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(x), [sin(x) * y >= 1.1, y <= 1, y >= -1, x >= -5, x <= 5])
    )
    with pytest.raises(of.Infeasible) as e:
        p.solve()
    assert e.value.certificate.verify() and "boxes" in str(e.value)


def test_what_has_no_bounds_is_refused() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(sin(x) * x), [x >= 0]))
    with pytest.raises(of.UnsupportedProblem, match="bounds on every variable"):
        p.solve()
