"""Problems as rows: quadratic terms exactly, piecewise linear ones with the same optimum."""

from __future__ import annotations

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.linear_program import solve_linear_program
from optfair.compile.program import Enclosed, named_map, program


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


SQUARES = {
    "lasso": cp.sum_squares(X - C) / 3 + 0.5 * cp.norm1(X),
    "hinge": cp.sum_squares(X) / 2 + cp.sum(cp.pos(1 - cp.multiply(C, X))),
    "huber": cp.sum(cp.huber(X - 3 * C, 1)),
    "entries": cp.sum(cp.multiply([1.0, 2.0, 4.0], cp.square(X - C))) + cp.max(X),
    "form": cp.quad_form(X - C, np.eye(3) + 0.5) + cp.abs(X[1]),
    "rows": cp.sum_squares(cp.vstack([X, 2 * X - C]), axis=1) @ [1.0, 3.0] + cp.tv(X),
    "one": cp.square(X[0] - 2) + cp.norm_inf(X - C),
}


@pytest.mark.parametrize("case", SQUARES)
@pytest.mark.parametrize("ending", ["qps", "lp"])
def test_squares_beside_pieces_are_rows_and_squares(case, ending, tmp_path):
    """A QP is written to the files of QPs: what is piecewise gets columns, squares stay."""
    p = of.from_cvxpy(cp.Problem(cp.Minimize(SQUARES[case]), [cp.sum(X) >= 1]), ["least"])
    p.export(path := tmp_path / f"p.{ending}")
    again, s = of.read(path), p.solve()
    assert str(p.problem_class) == str(again.problem_class) == "QP" and s.objective > 0.1
    assert again.solve().objective == pytest.approx(s.objective, rel=1e-7)


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


def exactly(values):
    """Return an array of fractions."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(values, dtype=float))


@pytest.mark.parametrize("off", [0.0, 1e-9])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_what_is_said_of_a_quadratic_holds_in_fractions(unit, off):
    """Of any whose numbers are off by at most as much: the spectrum, and a value below its own."""
    rng = np.random.default_rng(0)
    M = rng.normal(size=(4, 4)) * unit
    H, g, r = (M + M.T) / 2, rng.normal(size=4) * unit, float(rng.normal()) * unit
    H_off, g_off = np.full((4, 4), off * unit), np.full(4, off * unit)
    f = Enclosed(H, H_off, g, g_off, r, off * unit)
    h, V, both = f.spectrum()
    W, eye = exactly(V), exactly(np.eye(4))
    assert np.abs(W.T @ W - eye).sum(axis=0).max() <= Fraction(both) <= Fraction(1e-13)
    assert np.allclose(h, np.linalg.eigvalsh(H), rtol=0.0, atol=(1e-13 + 20.0 * off) * unit)
    gap = W.T @ exactly(H) @ W - np.diag(exactly(h))
    for way in (-1, 1):
        shift = way * exactly(H_off)
        for w in (*np.eye(4), *rng.normal(size=(20, 4))):
            w = exactly(w)
            assert w @ gap @ w + w @ (W.T @ shift @ W) @ w >= 0
        x, less = rng.normal(size=4), 0.3 * unit
        low, y = Fraction(f.below(x, less)), exactly(x)
        value = y @ (exactly(H) + shift) @ y / 2 + y @ (exactly(g) + way * exactly(g_off))
        value += Fraction(r) + way * Fraction(off * unit) - Fraction(less)
        assert value - Fraction((1e-13 + 40.0 * off) * unit) <= low <= value
