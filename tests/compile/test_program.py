"""Problems as rows: quadratic terms exactly, piecewise linear ones with the same optimum."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.linear_program import solve_linear_program
from optfair.compile.program import named_map, program


def optimum(p):
    r = program(p)
    sign = 1.0 if r.sense == "minimize" else -1.0
    found = solve_linear_program(sign * r.q, r.A, r.row_lower, r.row_upper, r.lower, r.upper)
    assert found.status == "optimal"
    return float(r.q @ found.x + r.offset), r.by_name(found.x)


X = cp.Variable(3, name="x")
C = np.array([1.0, -2.0, 0.5])
PIECEWISE = {
    "norm1": (cp.Minimize(cp.norm1(X - C) + 0.1 * cp.sum(X)), [X <= 4]),
    "max": (cp.Minimize(cp.max(X - C)), [cp.sum(X) == 1]),
    "maximise min": (cp.Maximize(cp.min(X + C) - 1), [cp.sum(X) <= 3]),
    "norm_inf below": (cp.Maximize(C @ X + 2), [cp.norm_inf(X) <= 2]),
    "abs in a row": (cp.Maximize(cp.sum(X)), [cp.abs(X - C) + cp.pos(X) <= 2]),
    "sum of largest": (cp.Minimize(cp.sum_largest(X, 2)), [X >= C, X <= 5]),
}


@pytest.mark.parametrize("case", PIECEWISE)
def test_piecewise_linear(case):
    goal, constraints = PIECEWISE[case]
    p = of.from_cvxpy(cp.Problem(goal, constraints))
    found, values = optimum(p)
    s = p.solve()
    assert s.is_optimal(1e-7)
    assert found == pytest.approx(s.objective, rel=1e-7, abs=1e-7)
    # the values are feasible and optimal on the declared problem
    assert p.objective_value(values) == pytest.approx(found, abs=1e-7)
    assert all(t.relative_violation(values) <= 1e-7 for t in p.constraints.values())
    assert set(p.constraints) <= {b.name for b in program(p).rows}


def test_cones_are_refused_by_name():
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(X)), [cp.norm(X) <= 1]), ["disk"])
    with pytest.raises(of.UnsupportedProblem, match="'disk'"):
        program(p)


def test_one_infinite_number_is_refused_by_name():
    for entry in (np.inf, -np.inf, np.nan):
        with pytest.raises(of.errors.UnsupportedProblem, match="'upper' has coefficients"):
            named_map("upper", X - np.array([1.0, entry, 1.0]), {X.id: 0}, 3)
    cube = cp.Variable((2, 2, 2), name="cube")
    assert named_map("cube", cube, {cube.id: 0}, 8).A.toarray().tolist() == np.eye(8).tolist()


def test_sides_of_rows():
    p = of.from_cvxpy(cp.Problem(cp.Minimize(X[0]), [X[1] == 3, X[2] <= -1]), ["equal", "upper"])
    r = program(p)
    assert r.row_lower.tolist() == [3.0, -np.inf] and r.row_upper.tolist() == [3.0, -1.0]
    assert [(b.name, b.shape) for b in r.rows] == [("equal", ()), ("upper", ())]


def test_symmetric_variables_stay_symmetric():
    M = cp.Variable((2, 2), symmetric=True, name="M")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(M[0, 1] + cp.trace(M)), [M >= 1]), ["lower"])
    found, values = optimum(p)
    assert found == pytest.approx(3.0) and values["M"][0, 1] == values["M"][1, 0]
    assert [b.name for b in program(p).rows] == ["lower", "M symmetric"]
