"""Rows without variables have no price."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

import optfair as of
from optfair.compile.conic_proof import unpriced
from optfair.compile.form import compile_problem


def test_only_inequalities_without_variables_that_hold_lose_their_multiplier() -> None:
    x = cp.Variable(2, name="x")
    zero = np.array([1.0, 0.0])
    rows = {
        "equal": cp.multiply(zero, x) == 0,
        "mixed": cp.multiply(zero, x) <= np.array([3.0, 4.0]),
        "false": 0 * x[0] <= -1,
        "cone": cp.norm(x) <= 5,
    }
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), list(rows.values())), list(rows))
    compiled = compile_problem(p, "CLARABEL")
    z = np.ones(compiled.form.b.size)
    found = compiled.by_name(np.zeros(compiled.form.q.size), unpriced(compiled.form, z))[1]
    before = compiled.by_name(np.zeros(compiled.form.q.size), z)[1]
    assert before["mixed"].tolist() == [1.0, 1.0] and found["mixed"].tolist() == [1.0, 0.0]
    for name in ("equal", "false", "cone"):
        np.testing.assert_array_equal(found[name], before[name])
    assert z.all()  # not changed in place
    short = np.ones(3)
    assert unpriced(compiled.form, short) is short


def test_a_problem_without_such_rows_keeps_its_multipliers() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1, x <= 3]))
    compiled = compile_problem(p, "CLARABEL")
    z = np.ones(compiled.form.b.size)
    assert unpriced(compiled.form, z) is z
