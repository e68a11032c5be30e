"""Any CVXPY problem becomes a declared one."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import optfair as of


def test_attributes_become_terms() -> None:
    a = cp.Variable(2, name="a", nonneg=True)
    b = cp.Variable(2, name="b", bounds=[np.array([0.0, -np.inf]), 3.0])
    c = cp.Variable(name="c", boolean=True)
    S = cp.Variable((2, 2), name="S", PSD=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(a) + cp.trace(S) - c - cp.sum(b))))
    assert sorted(p.constraints) == [
        "S psd",
        "a nonnegative",
        "b lower",
        "b upper",
        "c lower",
        "c upper",
    ]
    assert p.integers == {"c"}
    assert str(p.problem_class) == "MISDP"
    for v in p.variables.values():
        assert not any(v.attributes[k] for k in ("nonneg", "boolean", "PSD", "bounds"))


@pytest.mark.parametrize("seed", range(4))
def test_same_optimum_as_cvxpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(8, 4)), rng.normal(size=8)
    x = cp.Variable(4, name="x", nonneg=True)
    t = cp.Variable(4, name="x", bounds=[-1, 1])  # the same name twice
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(A @ (x - t) - b) + cp.norm1(t)),
        [cp.sum(x) <= 2, cp.norm(t) <= 1],
    )
    p = of.from_cvxpy(problem)
    assert set(p.variables) == {"x", "x 2"}
    problem.solve(solver="CLARABEL")
    s = p.solve()
    assert s.objective == pytest.approx(problem.value, rel=1e-6)
    assert s.certificate.verify()


def test_bad_input() -> None:
    x = cp.Variable(2)
    with pytest.raises(of.DeclarationError, match="give a cvxpy"):
        of.from_cvxpy(x)
    with pytest.raises(of.DeclarationError, match="1 names for 2 constraints"):
        of.from_cvxpy(cp.Problem(cp.Minimize(0), [x >= 0, x <= 1]), ["one"])
    z = cp.Variable(2, complex=True, name="z")
    with pytest.raises(of.DeclarationError, match="'z' is complex"):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(z))))
