"""Softening: exact above the multiplier, of the right class, refused where it has no meaning."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import optfair as of


def problem() -> of.Problem:
    x = cp.Variable(2, name="x")
    return of.from_cvxpy(
        cp.Problem(
            cp.Minimize(x[0] + 2 * x[1]),
            [cp.sum(x) >= 1, x[0] == 0.25, cp.norm(x) <= 3, x >= -1],
        ),
        ["sum", "first", "disk", "low"],
    )


@pytest.mark.parametrize("name", ["sum", "first", "disk"])
def test_penalty_is_exact_above_the_multiplier(name: str) -> None:
    p = problem()
    s = p.solve()
    price = float(np.abs(s.multipliers[name]).max())
    above = p.soften(name, price + 0.5)
    assert name not in above.constraints and f"soft {name}" in above.objective
    assert above.solve().objective == pytest.approx(s.objective, abs=1e-6)
    if price > 0.1:
        assert p.soften(name, price / 2).solve().objective < s.objective - 1e-6


def test_linear_stays_linear() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1, x[0] == x[1]]), ["low", "same"])
    assert str(p.soften("low", 3.0).soften("same", 1.0).problem_class) == "LP"


def test_maximisation_is_penalised_downwards() -> None:
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(x), [x <= 2, x <= 5]), ["cap", "far"])
    assert p.soften("cap", 3.0).solve().objective == pytest.approx(2.0, abs=1e-6)
    assert p.soften("cap", 0.5).solve().objective == pytest.approx(5 - 0.5 * 3, abs=1e-6)


def test_a_semidefinite_term_is_penalised_by_its_eigenvalue() -> None:
    X = cp.Variable((2, 2), name="X", symmetric=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [X >> np.eye(2), X <= 5]), ["psd", "up"])
    assert p.soften("psd", 4.0).solve().objective == pytest.approx(2.0, abs=1e-5)


def test_refusals() -> None:
    p = problem()
    with pytest.raises(of.DeclarationError, match="no constraint 'summ'"):
        p.soften("summ", 1.0)
    for weight in (0.0, -1.0, float("nan")):
        with pytest.raises(of.DataError, match=r"weight is|weight has|not a finite"):
            p.soften("sum", weight)
    q = p.with_constraints(cone=cp.SOC(p["x"][0] + 9, p["x"]))
    with pytest.raises(of.DeclarationError, match="no penalty"):
        q.soften("cone", 1.0)
