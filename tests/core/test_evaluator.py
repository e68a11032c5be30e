"""Expressions are evaluated without a trace: again and again, from threads, at broken points."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.core.composition import constraint_term
from optfair.core.expressions import Evaluator, substitute


def counted(monkeypatch):
    made = []
    original = cp.Variable.__init__
    monkeypatch.setattr(
        cp.Variable, "__init__", lambda self, *a, **k: (made.append(1), original(self, *a, **k))[1]
    )
    return made


def test_expressions_are_read_without_copies(monkeypatch):
    x = cp.Variable(2, name="x")
    evaluator = Evaluator(cp.sum_squares(x) + x[0], {x.id: "x"})
    made = counted(monkeypatch)
    for point in ([1.0, 2.0], [3.0, -1.0], [np.nan, 0.0], [0.5, 0.5]):
        expected = np.square(point).sum() + point[0]
        np.testing.assert_allclose(evaluator.value({"x": point}), expected)
    assert not made and x.value is None


def test_one_copy_of_a_cone_serves_many_points_and_keeps_none(monkeypatch):
    x = cp.Variable(3, name="x")
    evaluator = Evaluator(cp.SOC(x[0], x[1:]), {x.id: "x"})
    made = counted(monkeypatch)
    assert evaluator.violation({"x": [5.0, 3.0, 4.0]}).max() == 0.0
    copied = len(made)
    assert evaluator.violation({"x": [-5.0, 3.0, 4.0]}).max() > 0.0
    assert copied == len(made) > 0 and x.value is None
    assert all(leaf.value is None for leaf in evaluator._leaves)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: cp.norm(x, 1) + cp.log_sum_exp(x) - cp.entr(x[0, 1]),
        lambda x: cp.bmat([[x, -x.T], [x @ x.T, x / 3.0]]),
        lambda x: cp.quad_form(x[0], np.array([[2.0, 1.0], [1.0, 3.0]])) + cp.max(x, axis=1),
        lambda x: cp.lambda_max(x + x.T) + cp.trace(x),
        lambda x: cp.log_det(x + x.T),
        lambda x: cp.sum_largest(x, 2) * cp.Constant(sp.csc_array(np.eye(2))),
        lambda x: cp.kron(np.eye(2), x) + cp.Constant(np.ones((4, 1))),
        lambda x: x[:, :0],
    ],
)
def test_values_are_those_of_cvxpy(make):
    x = cp.Variable((2, 2), name="x")
    e = make(x)
    evaluator = Evaluator(e, {x.id: "x"})
    for point in (np.array([[2.0, 0.5], [0.25, 3.0]]), np.eye(2)):
        found = evaluator.value({"x": point})
        x.value = point
        expected = e.value
        x.value = None
        expected = expected.toarray() if sp.issparse(expected) else expected
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == float


def test_a_missing_value_raises_and_leaves_nothing_behind():
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    evaluator = Evaluator(x + y, {x.id: "x", y.id: "y"})
    with pytest.raises(KeyError):
        evaluator.value({"x": 1.0})
    assert evaluator.value({"x": 1.0, "y": 2.0}) == 3.0


def test_threads_do_not_mix_their_points():
    x = cp.Variable(300, name="x")
    evaluator = Evaluator(cp.sum(cp.abs(x)), {x.id: "x"})
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: evaluator.value({"x": np.full(300, k)}), range(200)))
    np.testing.assert_allclose(found, 300.0 * np.arange(200))


@pytest.mark.parametrize(
    "make", [lambda x: x <= [1, 2], lambda x: x >= [1, 2], lambda x: x == [1, 2]]
)
def test_violation_is_that_of_cvxpy(make):
    x = cp.Variable(2, name="x")
    c = make(x)
    term = constraint_term("c", c, {x.id: "x"})
    for point in ([0.0, 5.0], [1.0, 2.0], [4.0, -3.0]):
        found = term.violation({"x": point})
        x.value = point
        np.testing.assert_allclose(found, np.abs(c.violation()))
        x.value = None
    assert term.relative_violation({"x": [np.nan, 0.0]}) == np.inf
    assert term.largest_side == 2.0


def test_sparse_and_broadcast_sides():
    x = cp.Variable((2, 2), name="x")
    limit = sp.csc_array([[1.0, 0.0], [0.0, 2.0]])
    for c in (x <= limit, x == limit, x >= np.array([[0.5], [1.0]]), cp.sum(x) <= x):
        term = constraint_term("c", c, {x.id: "x"})
        for point in (np.array([[1.0, -1.0], [0.25, 3.0]]), np.zeros((2, 2))):
            found = term.violation({"x": point})
            x.value = point
            np.testing.assert_allclose(found, np.abs(c.violation()))
            x.value = None
            assert found.shape == c.shape


def test_power_cones_are_measured_in_closed_form():
    x = cp.Variable(3, name="x")
    term = constraint_term("c", cp.PowCone3D(x[0], x[1], x[2], 0.25), {x.id: "x"})
    cases = {
        (16.0, 1.0, 2.0): 0.0,
        (16.0, 1.0, -2.5): 0.5,
        (0.0625, 16.0, 4.5): 0.5,
        (16.0, 0.0625, 0.25): 0.0,
        (-1.0, 4.0, 0.25): 1.0,
        (1.0, -0.5, 2.0): 2.0,
    }
    for point, off in cases.items():
        assert float(np.max(term.violation({"x": point}))) == pytest.approx(off, abs=1e-15)


def test_exponential_cones_are_measured_where_they_begin_as_well():
    x = cp.Variable(3, name="x")
    term = constraint_term("c", cp.ExpCone(x[0], x[1], x[2]), {x.id: "x"})
    cases = {
        (1.0, 1.0, 3.0): 0.0,
        (0.0, 2.0, 1.5): 0.5,
        (-4.0, 2.0, -3.0): 2.0 * np.exp(-2.0) + 3.0,
        # at the edge y = 0 is x <= 0 <= z
        (-1.0, 0.0, 0.0): 0.0,
        (0.0, 0.0, 2.0): 0.0,
        (3.0, 0.0, 2.0): 3.0,
        (-1.0, 0.0, -2.0): 2.0,
        (-1.0, -3.0, 1.0): 3.0,
        (-1.0, -3.0, -5.0): 5.0,
        (-9.0, -3.0, 5.0): 3.0,
    }
    for point, off in cases.items():
        assert float(np.max(term.violation({"x": point}))) == pytest.approx(off, abs=1e-15)


def test_a_side_without_a_finite_value_is_not_satisfied():
    x = cp.Variable(2, name="x")
    for c, point in (
        (cp.log(x) <= -5, [0.0, np.exp(-6.0)]),
        (cp.log(x) <= -5, [-1.0, np.exp(-6.0)]),
        (cp.exp(x) >= 0, [1e3, 1.0]),
    ):
        found = Evaluator(c, {x.id: "x"}).violation({"x": point})
        assert np.isnan(found[0]) and found[1] == 0.0
    whole = Evaluator(cp.log(cp.sum(x)) <= -np.ones(2), {x.id: "x"}).violation({"x": [0.0, 0.0]})
    assert np.isnan(whole).all()
    # a limit may be infinite
    assert (
        not Evaluator(x <= np.array([np.inf, 1.0]), {x.id: "x"}).violation({"x": [5.0, 1.0]}).any()
    )


def test_formula_is_written_only_when_it_is_printed(monkeypatch):
    x = cp.Variable(2, name="x")
    c = x <= np.arange(2)
    printed = []
    monkeypatch.setattr(
        "optfair.core.composition.as_latex", lambda written: printed.append(1) or "written"
    )
    term = constraint_term("c", c, {x.id: "x"})
    assert not printed
    assert term.formula == "written" and printed


@pytest.mark.parametrize(
    "given",
    [
        np.array([1j, 2.0]),
        ["1", "2"],
        np.array(["2020-01-01"] * 2, dtype="datetime64[D]"),
        np.ma.array([1.0, 2.0], mask=[False, True]),
        [None, 1.0],
        [10**400, 0],
    ],
)
def test_what_is_no_real_number_is_no_value(given):
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [x >= 0]))
    with pytest.raises(of.DataError, match=r"values\['x'\]"):
        p.objective_value({"x": given})
    assert p.objective_value({"x": [1, 2]}) == 5.0


@pytest.mark.parametrize("cone", [False, True])
def test_a_triangle_is_evaluated_in_the_shape_it_declares(cone: bool) -> None:
    X, V = cp.Variable((3, 3), name="X"), np.arange(9.0).reshape(3, 3)
    triangle, side = cp.upper_tri(X), np.array([[1.0], [2.0], [-3.0]])
    rows = [V == X] if not cone else [V == X, cp.SOC(np.array([6.0]), triangle + side, axis=0)]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(side, triangle))), rows)).solve()
    assert (round(s.objective, 9), bool(s.certificate.verify())) == (-10.0, True)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(triangle - side)), rows)).solve()
    assert (round(s.objective, 9), bool(s.certificate.verify())) == (64.0, True)


@pytest.mark.parametrize("deep", [False, True])
def test_functions_with_data_that_cvxpy_does_not_copy_are_written_in_other_variables(deep):
    x, y = (cp.Variable(2, name=name, pos=True) for name in "xy")
    M = cp.Parameter(nonneg=True)
    for f in (cp.huber(x, M), cp.gmatmul(np.array([[1.0, -1.0]]), x), cp.square(x)):
        e = substitute(2.0 * cp.sum(f) + 1.0 if deep else f, {id(x): y})
        assert {v.id for v in e.variables()} == {y.id}
        x.value = y.value = np.array([3.0, 0.5])
        for M.value in (1.0, 2.0):  # the parameter is the same one
            assert e.value == pytest.approx((2.0 * cp.sum(f) + 1.0 if deep else f).value)
