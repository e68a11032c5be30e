"""A problem at other values of its parameters: the same answers, the same forms, and refusals."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optfair as of
from optfair.compile.form import compile_problem

C = np.array([[1.0, 2.0, 0.0], [0.5, 0.0, -1.0], [3.0, 1.0, 1.0]])


def mixed() -> tuple[Any, dict[str, Any]]:
    """Return a problem with parameters in costs, matrices, bounds, cones, and these by name."""
    x, z = cp.Variable((3, 2), name="x"), cp.Variable(3, name="z")
    A, c = cp.Parameter((2, 3), name="A"), cp.Parameter(3, name="c")
    g, t = cp.Parameter(nonneg=True, name="g"), cp.Parameter(nonneg=True, name="t")
    goal = g * cp.sum_squares(x) + c @ z + cp.quad_form(z, np.eye(3)) + g * cp.norm(C @ z) + 3 * t
    rows = [
        A @ x <= 1,
        cp.norm(z - c) <= t + 5,
        cp.abs(z) <= g + c + 9,
        x >= -5,
        cp.log_sum_exp(z * t) <= 9,
        cp.sum(x, axis=1) == z,
    ]
    return cp.Problem(cp.Minimize(goal), rows), {"A": A, "c": c, "g": g, "t": t}


def drawn(seed: int) -> dict[str, Any]:
    r = np.random.default_rng(seed)
    return {
        "A": r.standard_normal((2, 3)),
        "c": r.standard_normal(3),
        "g": r.random() + 0.1,
        "t": r.random() + 0.1,
    }


def declared(values: dict[str, Any]) -> Any:
    problem, leaves = mixed()
    for name, value in values.items():
        leaves[name].value = value
    return of.from_cvxpy(problem)


def numbers(problem: Any, interface: str) -> list[Any]:
    form = compile_problem(problem, interface).form
    return [form.A.toarray(), form.b, form.P.toarray(), form.q, form.offset]


@given(st.integers(0, 10_000), st.sampled_from(["CLARABEL", "SCS"]))
@settings(max_examples=12, deadline=None)
def test_forms_at_other_values_are_those_declared_there(seed: int, interface: str) -> None:
    p = declared(drawn(seed))
    for k in (1, 2):
        values = drawn(seed + k)
        q = p.at(values)
        for ours, theirs in zip(
            numbers(q, interface), numbers(declared(values), interface), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-15, atol=1e-300)
    first, second = p.at(drawn(seed)), p.at(values)
    assert compile_problem(first, interface).ended is compile_problem(second, interface).ended


def test_solutions_prices_and_proofs_are_of_the_values_held() -> None:
    p = declared(drawn(0))
    values = drawn(5)
    s, fresh = p.at(values).solve(), declared(values).solve()
    assert s.objective == pytest.approx(fresh.objective, abs=1e-7)
    assert s.is_optimal(1e-6) and s.problem.problem_class == fresh.problem.problem_class
    for name, price in fresh.shadow_price.items():
        np.testing.assert_allclose(s.shadow_price[name], price, atol=1e-4)
    # of another value it proves nothing
    assert not of.Solution(
        **{**{f: getattr(s, f) for f in s.__dataclass_fields__}, "problem": p.at(drawn(6))}
    ).is_optimal(1e-6)


def test_nothing_changes_but_what_is_returned() -> None:
    problem, leaves = mixed()
    start = drawn(1)
    for name, value in start.items():
        leaves[name].value = value
    p = of.from_cvxpy(problem)
    before = p.solve().objective
    q = p.at(drawn(2))
    q.solve()
    assert p.solve().objective == pytest.approx(before, abs=1e-8)
    assert all(np.array_equal(leaves[k].value, v) for k, v in start.items())
    assert p.parameters["t"].value == start["t"] and q.parameters["t"].value == drawn(2)["t"]


def test_a_value_that_was_given_does_not_hear_of_changes_outside() -> None:
    problem, leaves = mixed()
    for name, value in drawn(1).items():
        leaves[name].value = value
    p = of.from_cvxpy(problem)
    q = p.at(t=0.5)
    leaves["t"].value = 4.0
    with pytest.raises(of.DeclarationError, match="parameter 't'"):
        p.solve()
    assert q.solve().is_optimal(1e-6)
    leaves["g"].value = 9.0  # this one q took from outside
    with pytest.raises(of.DeclarationError, match="parameter 'g'"):
        q.solve()


def test_terms_that_are_no_affine_functions_of_parameters_are_declared_again() -> None:
    x = cp.Variable(2, name="x")
    w = cp.Parameter(2, name="w", value=np.array([1.0, 2.0]))
    s = cp.Parameter(name="s", value=1.0)  # no sign: convex at 1, concave at -1
    p = of.from_cvxpy(
        cp.Problem(
            cp.Minimize(s * cp.sum_squares(x)), [cp.multiply(w, w) @ x == 1, x <= 9, x >= -9]
        )
    )
    q = p.at(w=[3.0, 1.0])
    assert q.solve().objective == pytest.approx(1.0 / 82.0)
    assert p.problem_class.convex and not p.at(s=-1.0).problem_class.convex
    assert p.at(s=0.0).at(s=2.0).solve().objective == pytest.approx(2.0 * p.solve().objective)
    top = cp.Parameter(2, name="top", value=np.array([1.0, np.inf]))
    r = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), [x <= top, cp.sum(x) <= 5]))
    assert r.at(top=[1.0, 2.0]).solve().objective == pytest.approx(3.0)


def test_one_parameter_after_another() -> None:
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    c = cp.Parameter(2, name="c", value=np.array([1.0, 2.0]))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(c @ x), [cp.sum(x) >= b, x >= 0]))
    assert p.at(b=2.0).solve().objective == pytest.approx(2.0)
    assert p.at(c=[3.0, 5.0]).solve().objective == pytest.approx(3.0)
    assert p.at(b=2.0).at(c=[3.0, 5.0]).solve().objective == pytest.approx(6.0)
    assert p.at(b=2.0, c=[5.0, 4.0]).solve().objective == pytest.approx(8.0)


def test_large_parameters_stay_numbers() -> None:
    x = cp.Variable((300, 10), name="x")
    W = cp.Parameter((300, 10), name="W", value=np.ones((300, 10)))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(W, x))), [x >= 1, x <= 2]))
    assert p.at(W=-np.ones((300, 10))).solve().objective == pytest.approx(-6000.0)


def test_compositions_of_a_moved_problem_are_right() -> None:
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + 2 * x[1]), [cp.sum(x) >= b, x >= 0]))
    q = p.at(b=4.0)
    assert q.solve().objective == pytest.approx(4.0)
    r = q.with_constraints(cap=p["x"][0] <= 1)
    assert r.solve().objective == pytest.approx(7.0)
    assert r.at(b=2.0).solve().objective == pytest.approx(3.0)
    assert r.at(b=2.0).without("cap").solve().objective == pytest.approx(2.0)
    assert q.with_integrality("x").at(b=2.5).solve().objective == pytest.approx(3.0)
    soft = q.soften("c0", 0.5)
    assert soft.solve().objective == pytest.approx(2.0)
    with pytest.raises(of.DeclarationError, match="made of a term at one value of 'b'"):
        soft.at(b=1.0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tt": 1.0}, "no parameter 'tt'"),
        ({"A": np.ones((3, 2))}, r"'A' has the shape \(2, 3\), not \(3, 2\)"),
        ({"A": 1.0}, "'A' has the shape"),
        ({"t": -1.0}, "'t' cannot be -1.0"),
        ({"t": np.nan}, "'t' cannot be nan"),
        ({"t": np.inf}, "'t' cannot be inf"),
        ({"t": "1"}, "'t' cannot be 1"),
        ({"t": 1 + 2j}, "'t' cannot be"),
        ({"t": True}, "'t' cannot be True"),
        ({"t": None}, "'t' cannot be None"),
        ({"t": [[1.0], [2.0, 3.0]]}, "'t' cannot be"),
    ],
)
def test_what_it_cannot_be_is_refused_by_name(values: dict[str, Any], words: str) -> None:
    with pytest.raises(of.DeclarationError, match=words):
        declared(drawn(0)).at(values)


def test_ranges_and_names_that_two_share() -> None:
    x = cp.Variable(name="x")
    share = cp.Parameter(name="share", bounds=[0.0, 1.0], value=0.5)
    a, b = cp.Parameter(name="same", value=1.0), cp.Parameter(name="same", value=2.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= share, x >= a, x >= b]))
    with pytest.raises(of.DeclarationError, match="'share' cannot be"):
        p.at(share=1.5)
    assert p.at({b: 7.0}).solve().objective == pytest.approx(7.0)
    assert set(p.parameters) == {"share", "same", "same 2"}
    with pytest.raises(of.DeclarationError, match="no parameter 'x'"):
        p.at(x=1.0)


def test_numbers_in_rules_are_parameters() -> None:
    r = np.random.default_rng(0)
    X, groups = r.standard_normal((60, 2)), r.integers(0, 2, 60)
    p = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=of.max_gap(0.05))
    p = p.with_constraints(share=of.cluster_share(lower=0.1))
    assert {"fairness.eps", "share.lower"} <= set(p.parameters)
    q = p.at(eps=0.2)
    direct = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=of.max_gap(0.2))
    direct = direct.with_constraints(share=of.cluster_share(lower=0.1))
    assert q.solve().objective == pytest.approx(direct.solve().objective, rel=1e-7)
    assert list(q.constraints) == list(p.constraints) and type(q) is type(p)
    assert p.parameters["fairness.eps"].value == 0.05
    with pytest.raises(of.DeclarationError, match="'fairness' cannot have eps=-1"):
        p.at(eps=-1.0)
    assert "fairness.eps" not in p.without("fairness").parameters


def test_the_constant_of_an_objective_moves_with_its_parameters_and_stays_without_them() -> None:
    x, c, b = cp.Variable(name="x"), cp.Parameter(name="c", value=2.0), cp.Parameter(name="b")
    b.value = 1.0
    moving = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(x) + 3 * c), [x >= b]))
    assert moving.objective_constant == 6.0
    assert moving.at(b=4.0).objective_constant == 6.0
    assert moving.at(c=5.0).objective_constant == 15.0
    assert moving.at(b=4.0, c=5.0).solve().objective == pytest.approx(31.0)


def test_what_is_known_of_matrices_is_that_of_the_form_at_these_values() -> None:
    problem, _ = mixed()
    for leaf in problem.parameters():
        leaf.value = np.ones(leaf.shape) if leaf.shape else 1.0
    p = of.from_cvxpy(problem)
    first = p.at(drawn(0)).solve()  # what is computed once is computed here
    assert first.grade.sound
    for seed in (1, 2):
        form = compile_problem(p.at(drawn(seed)), "CLARABEL").form
        anew = compile_problem(declared(drawn(seed)), "CLARABEL").form
        for fact in ("rows", "sizes", "columns_of_rows"):
            assert (getattr(form, fact) != getattr(anew, fact)).nnz == 0, fact
        y = np.arange(form.b.size, dtype=float)
        assert all(map(np.array_equal, form.across(y), anew.across(y)))
        w = np.arange(form.q.size, dtype=float)
        assert all(map(np.array_equal, form.bending(w), anew.bending(w)))
        assert np.array_equal(form.equal, anew.equal)


def test_parameters_beside_the_arguments_of_an_atom_move_too() -> None:
    """CVXPY copies huber(x, M) and power(x, p) with the M and p that they have."""
    x, b = cp.Variable(3, name="x"), cp.Parameter(name="b", nonneg=True, value=0.5)

    def stated(m: object) -> cp.Problem:
        goal = cp.sum(cp.huber(x - np.array([1.0, 2.0, 3.0]), m)) + cp.norm(x) * m
        return cp.Problem(cp.Minimize(goal), [x <= 1.5, cp.sum(cp.huber(x, 2 * m)) <= 9])

    p = of.from_cvxpy(stated(b))
    point = {"x": [-3.0, 1.5, 0.1]}
    for value in (0.2, 0.5, 3.0):
        moved, fresh = p.at(b=value), of.from_cvxpy(stated(value))
        assert moved.objective_at(point) == pytest.approx(fresh.objective_at(point))
        (name,) = (n for n in moved.constraints if "c1" in n)
        off = moved.constraints[name].violation(point)
        assert off == pytest.approx(fresh.constraints[name].violation(point))
        s = moved.solve()
        assert s.grade.sound and s.objective == pytest.approx(fresh.solve().objective, rel=1e-6)


def test_an_exponent_that_is_a_parameter_moves() -> None:
    x, q = cp.Variable(pos=True, name="x"), cp.Parameter(name="q", value=2.0, pos=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.power(x, q) + 1 / x)))
    assert p.objective_at({"x": 2.0}) == 4.5 and p.at(q=3.0).objective_at({"x": 2.0}) == 8.5
    assert p.at(q=3.0).solve().objective == pytest.approx(3.0**-0.75 + 3.0**0.25)


def test_parameters_of_terms_that_left_are_not_asked_for() -> None:
    """Terms are stuffed together: those that stay need no value of what went with another."""
    x = cp.Variable(name="x")
    b, c = cp.Parameter(name="b", value=2.0), cp.Parameter(name="c", value=-1.0)
    d = cp.Parameter(name="d", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(c * x), [x <= b, x >= -3]), ["r", "lo"])
    assert p.at(b=1.0).solve().objective == pytest.approx(-1.0)
    q = p.without("r").with_constraints(r=x <= d + 9)
    assert [q.at(d=v).solve().objective for v in (-1.0, 3.0)] == pytest.approx([-8.0, -12.0])
    swept = of.sweep(p, "r", [1.0, 5.0])
    assert [point.value for point in swept] == pytest.approx([-1.0, -5.0])
    assert p.at(b=1.0, c=3.0).solve().objective == pytest.approx(-9.0)
