"""Rows of one number each are measured together as they are one by one."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.core.labels import SEVERAL


def problem(seed: int = 0, count: int = 2 * SEVERAL) -> Any:
    """Rows of every kind on two variables, some written so that they are no plain row."""
    rng = np.random.default_rng(seed)
    x, y = cp.Variable(3, name="x"), cp.Variable(3, name="y")
    A, b = rng.normal(size=(count, 3)), rng.normal(size=count)
    rows: list[Any] = []
    for k, v in enumerate((x, y)):
        rows += [A[i] @ v <= b[i] for i in range(count)]
        rows += [A[i] @ v >= 1e6 * b[i] for i in range(count)]
        rows += [b[i] == A[i] @ v for i in range(count)]
        rows += [A[k] @ v + v[0] <= 1.0, cp.sum(v) <= 2.0, v >= -5.0, cp.norm(v) <= 4.0]
    return of.from_cvxpy(cp.Problem(cp.Minimize(0), rows))


@pytest.mark.parametrize("unit", [1.0, 1e-6])
@pytest.mark.parametrize("broken", [None, np.nan, np.inf])
def test_together_as_one_by_one(unit: float, broken: float | None) -> None:
    p = problem()
    rng = np.random.default_rng(1)
    values = {name: rng.normal(size=3) * 10.0**power for name, power in (("x", 0), ("y", 3))}
    if broken is not None:
        values["y"][1] = broken
    together = p.scalar_rows.violations(values, unit)
    assert len(together) == 12 * SEVERAL < len(p.constraints)
    for name, found in together.items():
        assert found == pytest.approx(p.constraints[name].violations(values, unit), rel=1e-12)
    alone = {name: t.relative_violation(values) for name, t in p.constraints.items()}
    assert p.relative_violations(tuple(alone), values) == pytest.approx(alone, rel=1e-12)
    assert max(alone.values()) > 0.0 and min(alone.values()) == 0.0


def test_a_missing_or_misshapen_value_is_told_as_ever() -> None:
    p = problem()
    with pytest.raises(of.DeclarationError, match="no value of 'y'"):
        p.relative_violations(tuple(p.constraints), {"x": np.zeros(3)})
    with pytest.raises(of.DataError, match="does not fit"):
        p.relative_violations(tuple(p.constraints), {"x": np.zeros(3), "y": np.zeros(4)})


def test_terms_that_were_left_out_are_not_measured() -> None:
    p = problem()
    p.scalar_rows.violations({"x": np.zeros(3), "y": np.zeros(3)})
    first = next(iter(p.constraints))
    assert first in p.scalar_rows.violations({"x": np.zeros(3), "y": np.zeros(3)})
    q = p.without(first)
    assert first not in q.scalar_rows.violations({"x": np.zeros(3), "y": np.zeros(3)})


def test_a_wrong_point_of_many_rows_is_no_solution() -> None:
    rng = np.random.default_rng(3)
    x = cp.Variable(4, name="x")
    A = rng.normal(size=(50, 4))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [a @ x >= 1.0 for a in A[:6]]))
    s = p.solve()
    assert s.is_optimal(1e-6)
    q = p.with_constraints({f"more {i}": a @ p["x"] >= -10.0 for i, a in enumerate(A)})
    assert q.solve().is_optimal(1e-6)
    assert max(q.relative_violations(tuple(q.constraints), {"x": s["x"]}).values()) < 1e-6
    assert max(q.relative_violations(tuple(q.constraints), {"x": 0.0 * s["x"]}).values()) > 0.1
