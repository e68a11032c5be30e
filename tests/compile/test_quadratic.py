"""Coefficients of quadratics: against evaluation, over every way to write one."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.compile.program import quadratic_terms

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 3))
B = RNG.normal(size=(3, 3))
S = B + B.T
c = RNG.normal(size=3)


def vectors(x, y, X, t):
    """Expressions with one known value each; all quadratic, most of them not convex."""
    return {
        "affine": A @ x - 2.0,
        "constant part": x[0] + 7.0,
        "indefinite form": cp.quad_form(x, S) + c @ x - 1.0,
        "form of an affine map": cp.quad_form(B @ x + c, S),
        "assumed psd": cp.quad_form(x, S, assume_PSD=True),
        "sparse form": cp.quad_form(x, sp.csc_array(np.diag([1.0, 0.0, -2.0]))),
        "sum of squares": 3 * cp.sum_squares(A @ x + 1) - 5,
        "bilinear": x @ y,
        "bilinear of affine": (A @ x + 1) @ (2 - A @ y),
        "form in two variables": x @ B @ y,
        "elementwise": cp.multiply(x + 1, y),
        "scalar times vector": t * x,
        "broadcast": cp.multiply(t, X),
        "matrix product": X.T @ X,
        "matrix times vector": X @ cp.reshape(y[:2], (2,), order="F"),
        "vector times matrix": x @ X,
        "trace": cp.trace(X.T @ X) / 2,
        "squares": cp.square(A @ x) - 1,
        "power": (x - y) ** 2,
        "negative": -cp.square(x),
        "over a number": cp.quad_over_lin(A @ x, 4.0),
        "over rows": cp.quad_over_lin(X, 1.0, axis=1),
        "over columns": cp.quad_over_lin(X, 2.0, axis=0, keepdims=True),
        "weighted squares": np.abs(A) @ cp.square(x) + A @ y,
        "index of a product": (X @ X.T)[1:, 0],
        "stacked": cp.hstack([cp.square(x), y, x @ y]),
        "cancels": cp.square(x) - cp.multiply(x, x) + x,
        "same part twice": 2 * cp.sum_squares(x) - cp.sum_squares(x),
        "cumulated": cp.cumsum(cp.square(x)),
        "cumulated rows": cp.cumsum(X, axis=1),
        "cumulated flat": cp.cumsum(X, axis=None),
        "times zero": 0.0 * cp.square(x) + x,
        "outer": cp.reshape(x, (3, 1), order="F") @ cp.reshape(y, (1, 3), order="F"),
        "transposed": (cp.multiply(X, X)).T,
        "variance": cp.var(x),
    }


def variables():
    return (
        cp.Variable(3, name="x"),
        cp.Variable(3, name="y"),
        cp.Variable((3, 2), name="X"),
        cp.Variable(name="t"),
    )


@pytest.mark.parametrize("case", vectors(*variables()))
def test_coefficients_give_the_value_of_the_expression(case):
    unknown = variables()
    expression = vectors(*unknown)[case]
    goal = sum(cp.sum(v) for v in unknown)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [expression <= 0]), ["row"])
    forms = quadratic_terms(p)
    (term,) = forms.constraints
    assert (term.name, term.set, term.size) == ("row", "nonpositive", expression.size)
    for _ in range(3):
        values = {v.name(): RNG.normal(size=v.shape) for v in unknown}
        x = forms.vector(values)
        for v in unknown:
            v.value = values[v.name()]
        expected = np.ravel(expression.value, order="F")
        assert term.value(x) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        by_entry = [0.5 * x @ (term.P(k) @ x) + term.q(k) @ x + term.r[k] for k in range(term.size)]
        assert by_entry == pytest.approx(expected, rel=1e-12, abs=1e-12)
        named = forms.by_name(x)
        assert all(np.array_equal(named[k], values[k]) for k in values)
    P = term.P(0)
    assert abs(P - P.T).nnz == 0


@given(st.integers(0, 10_000))
def test_hessians_are_those_of_the_data(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    H = rng.integers(-4, 5, size=(n, n)).astype(float)
    H, g = H + H.T, rng.integers(-4, 5, size=n).astype(float)
    x = cp.Variable(n, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.quad_form(x, H / 2) + g @ x + 2), [x <= 1]))
    forms = quadratic_terms(p)
    assert forms.sense == "maximize"
    total = forms.total
    assert np.array_equal(total.P().toarray(), H)  # small integers: exactly
    assert np.array_equal(total.q(), g) and total.r.tolist() == [2.0]


def test_directions_of_constraints():
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(0 * x[0]), [x >= 1, x[0] == 3, cp.NonNeg(x - 2)]),
        ["lower", "fixed", "nonneg"],
    )
    found = {
        t.name: (t.set, t.A.toarray()[0].tolist(), t.r[0]) for t in quadratic_terms(p).constraints
    }
    assert found == {
        "lower": ("nonpositive", [-1.0, 0.0], 1.0),
        "fixed": ("zero", [1.0, 0.0], -3.0),
        "nonneg": ("nonpositive", [-1.0, 0.0], 2.0),
    }


def test_structure_of_matrix_variables_is_stated():
    X = cp.Variable((3, 3), symmetric=True, name="X")
    D = cp.Variable((2, 2), diag=True, name="D")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X) + cp.sum(D)), [cp.sum_squares(X) <= 1]))
    terms = {t.name: t for t in quadratic_terms(p).constraints}
    forms = quadratic_terms(p)
    M = np.arange(9.0).reshape(3, 3)
    skew = forms.vector({"X": M, "D": np.ones((2, 2))})
    good = forms.vector({"X": M + M.T, "D": np.eye(2)})
    assert terms["X symmetric"].size == 3 and terms["D pattern"].size == 2
    assert np.abs(terms["X symmetric"].value(skew)).min() > 0
    assert terms["D pattern"].value(skew).tolist() == [1.0, 1.0]
    assert not terms["X symmetric"].value(good).any() and not terms["D pattern"].value(good).any()


@pytest.mark.parametrize(
    "constraint",
    [
        lambda x: cp.exp(x) <= 1,
        lambda x: cp.sum_squares(x) ** 2 <= 1,
        lambda x: cp.multiply(x, cp.square(x)) <= 1,
        lambda x: x[0] / x[1] <= 1,
        lambda x: cp.norm(x) <= 1,
        lambda x: cp.quad_over_lin(x, x[0]) <= 1,
        lambda x: cp.SOC(x[0], x),
        lambda x: cp.maximum(x, 0) <= 1,
    ],
)
def test_what_is_not_quadratic_is_named(constraint):
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [constraint(x)]), ["culprit"])
    with pytest.raises(of.UnsupportedProblem, match="'culprit'"):
        quadratic_terms(p)


def test_wide_problems_stay_sparse():
    n = 100_000
    x = cp.Variable(n, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - 1)), [x >= 0, cp.square(x) <= 4]))
    forms = quadratic_terms(p)
    assert forms.total.map.Q.nnz == n and forms.constraints[1].map.Q.nnz == n
    assert forms.total.r.tolist() == [float(n)]
