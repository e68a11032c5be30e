"""What must never be called optimal, proved or infeasible when it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends import conic_backend
from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.registry import claimed_infeasible
from optfair.compile.form import compile_problem
from optfair.core.problem_class import vanishing
from optfair.proofs.cones import Cone
from optfair.proofs.unpaid import Unpaid
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import Residuals


def forbidden_arcs(big: float) -> Any:
    D = np.random.default_rng(0).random((40, 4))
    D[:, 3] = big
    return of.FairAssignment(costs=D, groups=np.arange(40) % 2)


@pytest.mark.parametrize("big", [1.0, 1e6, 1e9, 1e12])
def test_one_large_cost_does_not_excuse_the_others(big: float) -> None:
    p = forbidden_arcs(big)
    truth = forbidden_arcs(1.0).solve().objective
    assert p.solve().objective == pytest.approx(truth, rel=1e-9)
    assert p.with_integrality("assignment").solve().objective == pytest.approx(truth, rel=1e-9)
    for solver in ("highs", "clarabel"):
        try:
            assert p.solve(solver).objective == pytest.approx(truth, rel=1e-6)
        except of.SolverFailure:
            assert solver == "clarabel"  # it may fail, it may not lie


@pytest.mark.parametrize("weight", [1e3, 1e9, 1e12])
def test_a_huge_penalty_does_not_hide_a_wrong_point(weight: float) -> None:
    x = cp.Variable(2, name="x")
    goal = cp.Minimize(x[0] - x[1])
    p = of.from_cvxpy(cp.Problem(goal, [x >= 0, x[1] <= 1e3, cp.sum(x) <= 5]), ["lo", "up", "b"])
    assert p.soften("b", weight).solve().objective == pytest.approx(-5.0, rel=1e-7)


def test_small_dual_errors_of_many_columns_add_up() -> None:
    # every column off by just under the tolerance: the bound must pay for the sum
    n = 3_000
    x = cp.Variable(n, name="x")
    c = 1.0 + np.random.default_rng(0).random(n)
    rows = [x >= 0.0, x <= 1e3, cp.sum(x) >= n]
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum(x) + 1e-9 * (c @ x)), rows), ["lo", "up", "all"]
    )
    s = p.solve("highs")
    proof: Any = s.proof
    form = proof.compiled.form
    price = np.flatnonzero(form.b == -n)
    shifted = proof.z.copy()
    shifted[price] += 0.9e-7  # each column is short by that, and may go up to a thousand
    found = form.residuals(proof.x, shifted)
    assert found.dual <= 1e-7  # each column passes
    assert found.gap >= 3e-5  # the bound does not
    assert found.bound <= found.objective


def test_numbers_that_are_none_do_not_verify() -> None:
    x = cp.Variable(name="x")
    adopted = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1]), ["lo"])
    fair = forbidden_arcs(2.0)
    for s, name in ((adopted.solve(), "lo"), (fair.solve(), "row sum")):
        plain = {k: np.array(v) for k, v in s.multipliers.items()}
        nothing = {**plain, name: plain[name] * np.nan}
        assert not replace(s, multipliers=nothing).certificate.verify()
        without = {k: v for k, v in plain.items() if k != name}
        assert not replace(s, multipliers=without).certificate.verify()


def test_a_proof_belongs_to_its_problem() -> None:
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 0, x >= 1]), ["sign", "need"])
    s = p.solve()
    assert s.is_optimal()
    assert not replace(s, problem=p.without("need")).is_optimal()


def test_a_parameter_that_changed_is_not_overlooked() -> None:
    cap = cp.Parameter(value=0.34, name="cap")
    p = forbidden_arcs(2.0)
    q = p.with_constraints(cap=cp.sum(p["masses"], axis=0) <= cap)
    before = q.solve().objective
    assert q.solve("highs").objective == pytest.approx(before, rel=1e-9)
    cap.value = 0.9
    with pytest.raises(of.DeclarationError, match=r"'cap' was 0.34 when .* declared, and is 0.9"):
        q.solve()
    again = p.with_constraints(cap=cp.sum(p["masses"], axis=0) <= cap)
    assert again.solve().objective < before - 1e-3
    cap.value = 0.34
    assert q.solve().objective == before
    with pytest.raises(of.DeclarationError, match="parameter 'free' in 'r' has no value"):
        p.with_constraints(r=p["masses"][0, 0] <= cp.Parameter(name="free"))


def test_data_are_copied() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    p = of.FairAssignment(X, groups=np.arange(20) % 2, centers=X[:2])
    s = p.solve()
    X *= 3.0
    assert s.is_optimal(1e-9) and p.solve().objective == s.objective


def test_infeasible_on_one_solvers_word_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def claims(problem: Any, profile: Any, request: Any) -> Any:
        raise claimed_infeasible(problem, profile.name)

    monkeypatch.setattr(conic_backend, "run_highspy", claims)
    t = cp.Variable(name="t")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(t), [5e-10 * t >= 1e-3, t <= 1e7]), ["need", "cap"])
    s = p.solve()
    assert s.objective == pytest.approx(2e6, rel=1e-6)
    assert s.attempts and "not proved" in s.attempts[0]


def test_a_false_farkas_vector_fails() -> None:
    t = cp.Variable(name="t")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(t), [1e-7 * t >= 1]), ["need"])  # t = 1e7
    form = compile_problem(p, "HIGHS").form
    assert not InfeasibilityProof(form, np.ones(form.b.size)).verify()


def test_undefined_values_are_no_witness() -> None:
    x = cp.Variable(name="x")
    # f'' = 1/x - s(x)(1 - s(x))/10 > 0 where x > 0, which no rule sees
    goal = cp.multiply(x, cp.log(x)) - 0.1 * cp.logistic(x)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal)))
    assert p.problem_class.curvature == "unverified"


def test_partly_integer_variables_keep_what_they_are() -> None:
    z = cp.Variable(2, boolean=[(0,)], name="z")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(z)), [z <= 2.5]))
    assert p.problem_class.name == "MILP"
    assert p.solve()["z"].tolist() == pytest.approx([1.0, 2.5])


def test_nothing_is_lost_when_names_meet() -> None:
    t = cp.Variable(name="t")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(t), [t >= 1]), ["lo"])
    twice = p.soften("lo", 10).with_constraints(lo=t >= -5).soften("lo", 10)
    assert list(twice.objective) == ["objective", "soft lo", "soft lo 2"]
    with pytest.raises(of.DeclarationError, match="already there"):
        p.with_constraints({"a": [t >= 0, t >= 2], "a.0": t >= 3})
    listed = p.with_constraints(a=[t >= 0, t >= 2])
    assert listed.without("a.1").with_constraints({"a.1": t >= 3}).solve().objective >= 3.0 - 1e-6
    for taken in ("a", "a.0", "a.1.left"):
        with pytest.raises(of.DeclarationError, match="already there"):
            listed.with_constraints({taken: t >= 3})
    with pytest.raises(of.DeclarationError, match="without a name"):
        p.with_constraints([t >= 0])


def test_a_limit_nobody_set_is_a_failure() -> None:
    p = forbidden_arcs(2.0)
    with pytest.raises(of.SolverFailure, match="limit of its own"):
        p.solve("clarabel", options={"max_iter": 3})


def test_an_unused_integer_variable_leaves_a_linear_program() -> None:
    p = forbidden_arcs(2.0).without("fairness").without("mass definition")
    s = p.with_integrality("masses").solve()
    assert s.is_optimal() and s.solver == "highs"


def test_policy_passes_over_solvers_without_an_option() -> None:
    coupling = of.KantorovichCoupling(cost=np.eye(3))
    s = coupling.solve(time_limit=10.0)
    assert s.solver == "highs" and "no option for time_limit" in s.attempts[0]


def test_diagonal_variables_come_back_dense() -> None:
    d = cp.Variable((2, 2), diag=True, name="d")
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(d)), [cp.diag(d) >= 1])).solve()
    assert np.allclose(s["d"], np.eye(2))


def test_a_gap_is_relative_to_what_varies_or_to_the_unit() -> None:
    x = cp.Variable(2, name="x")
    goal = cp.Minimize(x[0] + 2 * x[1] + 1000)
    s = of.from_cvxpy(cp.Problem(goal, [cp.sum(x) >= 3, x >= 0])).solve()
    assert s.objective == pytest.approx(1003.0)
    for off in (0.3, 3.0):
        assert replace(s, bound=s.objective - off).gap == pytest.approx(off / 3.0)
    small = replace(s, objective=1000.0 + 1e-6, bound=1000.0, unit=1e-3)
    assert small.gap == pytest.approx(1e-3) and replace(small, bound=1001.0).gap == 0.0
    told = replace(s, proof=None)
    assert "proved" in repr(s) and f"reported by {s.solver}" in repr(told)
    assert told.certificate.verify().grade.by == s.solver


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("solver", [None, "highs", "clarabel"])
def test_costs_that_cancel_are_measured_by_what_they_add_up(solver: Any, unit: float) -> None:
    x, y = cp.Variable(name="x"), cp.Variable(3, name="y")
    first, second = np.array([0.1, 0.7, 0.2]), np.array([0.2, 0.1, 0.4])
    goals = [
        unit * (0.1 * x + 0.2 * x - 0.3 * x),
        unit * (first @ y + second @ y) - unit * (first + second) @ y,
    ]
    for goal in goals:
        p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [x <= 4, x >= -3, y <= 4, y >= -3]))
        s = p.solve(solver)
        assert s.is_optimal() and abs(s.objective) <= 1e-14 * unit
    # quotients are not taken apart: their sizes are not known
    p = of.from_cvxpy(cp.Problem(cp.Minimize(1e-10 * unit * (x / 7)), [x <= 4, x >= -3]))
    assert p.solve(solver).objective == pytest.approx(-3e-10 * unit / 7, rel=1e-6)
    # a cost that is small on its own is no rounding
    s = of.from_cvxpy(cp.Problem(cp.Minimize(1e-12 * unit * x), [x <= 4, x >= -3])).solve(solver)
    assert s.objective == pytest.approx(-3e-12 * unit, rel=1e-6)


EDGES: dict[str, tuple[Any, Any, float]] = {
    "power": (lambda x: cp.power(x, 20) <= 0, 1.0, 0.0),
    "logarithm": (lambda x: x - cp.log(x) <= 1, 1.0, 1.0),
    "square": (lambda x: cp.square(x) <= 0, 1.0, 0.0),
    "exponential": (lambda x: cp.exp(x) <= 0, 1.0, -np.inf),
    "square in small units": (lambda x: cp.square(1e3 * x) <= 0, 1.0, 0.0),
}


@pytest.mark.parametrize("tolerance", [1e-5, 1e-7])
@pytest.mark.parametrize("name", EDGES)
def test_a_set_without_an_interior_is_not_searched_beside_it(name: str, tolerance: float) -> None:
    # points within the tolerance of such a row are far from every feasible one
    rule, factor, truth = EDGES[name]
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(factor * x), [rule(x)]))
    try:
        s = p.solve(tolerance=tolerance)
    except (of.SolverFailure, of.Infeasible):
        return
    assert not s.grade.sound or abs(s.objective - truth) <= 10 * tolerance * max(1.0, abs(truth))


def test_violations_are_held_against_the_objective_at_their_multipliers() -> None:
    # many rows off by little each, in an objective and a bound that agree with each other
    rng = np.random.default_rng(3)
    x, n = cp.Variable(30, name="x"), 30
    for factor in (1.0, 1e6, 1e-6):
        goal = cp.Minimize(factor * cp.sum_squares(x - rng.normal(size=n)))
        s = of.from_cvxpy(cp.Problem(goal, [cp.diff(x) >= 0.1])).solve()
        proof: Any = s.proof
        while hasattr(proof, "divided"):
            proof = proof.divided
        form = proof.compiled.form
        r = form.residuals(proof.x, proof.z)
        moved = form.moved({"b": form.b - 1e-8 * form.nonnegative})  # each row asks for more
        more = moved.residuals(proof.x, proof.z)
        assert more.penalty - r.penalty == pytest.approx(
            1e-8 * proof.z[form.nonnegative].sum(), 1e-2
        )
        off = s.residuals()
        assert off.penalty <= 1e-9 and not off.above(1e-7)
        assert any("worth" in why for why in replace(off, penalty=1e-6).above(1e-7))


def test_what_rounding_leaves_of_a_slack_is_no_violation() -> None:
    # |(2 w, u - v)| <= u + v in floats at 1e6, where u v = w**2 exactly: the slack is that of rounding
    A = np.array([[-1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, -2.0]])
    form = ConicForm(
        sp.csc_array((3, 3)), np.zeros(3), 0.0, sp.csc_array(A), np.zeros(3), (Cone("soc", 0, 3),)
    )
    for v in (1519006.4135, 3e6 / 7, 2.0**20):
        x = np.array([1.0 / v, v, 1.0])
        z = 1e12 * np.array([1.0, 1.0 - 2.0 / v**2, -2.0 / v])
        assert form.residuals(x, z).penalty == 0.0
        assert form.residuals(x * np.array([1.0, 1.0, 2.0]), z).penalty > 0.0


def test_a_wide_box_does_not_excuse_a_row_without_a_right_hand_side() -> None:
    for box in (2.0, 1e9):
        for row in (1.0, 1e6):
            x, y = cp.Variable(name="x"), cp.Variable(name="y")
            rules = [row * (x - y) <= 0, x <= box, y <= 0.5]
            s = of.from_cvxpy(cp.Problem(cp.Maximize(x - 0.5 * y), rules)).solve("highs")
            assert s.is_optimal(1e-6)
            off = replace(s, values={"x": 0.5 + 1e-3, "y": 0.5})
            assert off.residuals().primal["c0"] >= 5e-4
            assert not off.is_optimal(1e-4)


def test_a_bound_that_is_not_known_is_no_proof() -> None:
    off = Residuals({}, 0.0, 0.0, np.inf, 0.0, 0.0, "boxes")
    assert not off.grade(1e-6).sound and "no bound" in off.grade(1e-6).because


@pytest.mark.parametrize(
    ("unit", "extent", "sound"), [(1.0, 1.0, True), (1e-3, 1.0, False), (1e3, 2e4, False)]
)
def test_a_radius_is_clear_in_units_of_columns_and_of_the_declaration(
    unit: float, extent: float, sound: bool
) -> None:
    left = Unpaid(np.array([0]), slope=1e-11, curve=0.0, size=1.0, unit=unit)  # R = 1e4 in them
    off = Residuals({}, 0.0, 0.0, 0.0, 0.0, 0.0, "duality", unpaid=left, extent=extent)
    grade = off.grade(1e-7)
    assert grade.sound is sound
    if sound:
        assert grade.radius == pytest.approx(1e4 * unit)
    else:  # how far it is a proof, and why that is not far enough
        assert grade.because.endswith(
            f"proved for |x| ≤ {9.9e3 * unit:.1e} where |x| is {extent:.1e}"
        )
    wide = replace(off, extent=5.0 * unit)
    assert wide.grade(1e-7).sound is (unit >= 1.0)


def test_a_bound_on_a_solvers_word_is_the_one_that_was_accepted() -> None:
    """Columns that nothing bounds: what multipliers prove near the origin is above the objective."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    cost = cp.Minimize(cp.quad_over_lin(x, y))  # tends to 0
    solution = of.from_cvxpy(cp.Problem(cost, [x >= 1, y >= 1])).solve("clarabel", tolerance=1e-6)
    assert str(solution.grade).startswith("reported")
    assert solution.objective - 1e-6 <= solution.bound <= solution.objective + 1e-6


ROOT = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]])
# the product of a root in floats with itself: its least eigenvalue is -1e-16, so that it may fall
LEANING = np.diag([1.0, 1.0, -(2.0**-53)])
VANISHING: dict[str, tuple[Any, Any, float]] = {
    "square": (lambda x: x[0], lambda x: [cp.square(x[0]) <= 0], 0.0),
    "power": (lambda x: x[0], lambda x: [cp.power(x[0], 20) <= 0], 0.0),
    "squares": (
        lambda x: cp.sum(x),
        lambda x: [cp.sum_squares(ROOT @ x - [1, 3]) <= 0, x <= 4],
        79 / 13,
    ),
    "form": (
        lambda x: cp.sum(x),
        lambda x: [cp.quad_form(x, ROOT.T @ ROOT) <= 0, cp.abs(x[2]) <= 2],
        17.0,
    ),
    "sum": (
        lambda x: x[1],
        lambda x: [2 * cp.square(x[0]) + cp.sum(cp.square(x - x[0])) / 3 <= 0],
        0.0,
    ),
    "quotient": (lambda x: x[0], lambda x: [cp.quad_over_lin(x[0], x[1]) <= 0, x[1] <= 5], 0.0),
    "concave side": (lambda x: x[0], lambda x: [-cp.square(x[0]) >= 0], 0.0),
    "each entry": (lambda x: cp.sum(x), lambda x: [cp.square(x - [1, 2, 3]) <= 0], 6.0),
}


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("name", VANISHING)
def test_squares_without_room_are_0(name: str, unit: float) -> None:
    goal, rows, truth = VANISHING[name]
    x = cp.Variable(3, name="x")
    y = x if name in ("quotient", "form", "each entry") else x / unit
    factor = 1.0 if y is x else unit
    p = of.from_cvxpy(cp.Problem(cp.Maximize(factor * goal(y)), [*rows(y), cp.abs(y) <= 100]))
    s = p.solve()
    assert s.grade.sound and s.objective == pytest.approx(
        truth * factor, rel=1e-6, abs=1e-6 * factor
    )
    assert set(s.multipliers) == set(p.constraints) and s.certificate.verify()


def test_only_squares_that_add_up_to_nothing_vanish() -> None:
    x = cp.Variable(3, name="x")
    for row in (
        cp.sum_squares(x) <= 1e-12,
        cp.sum_squares(x) - x[0] <= 0,
        cp.sum_squares(x) - cp.sqrt(x[1]) <= 0,
        cp.square(x[0]) + cp.exp(x[1]) <= 0,
        x[0] <= 0,
        2 / cp.square(x[0]) <= 0,
        cp.sum_squares(x) + cp.power(x[0], 0) <= 0,
        cp.multiply([1, 0, 1], cp.square(x)) <= 0,
        cp.quad_form(x, cp.psd_wrap(LEANING)) <= 0,
    ):
        assert vanishing(row) == (row, [])
    none = of.from_cvxpy(
        cp.Problem(cp.Minimize(x[0]), [cp.sum_squares(x) + cp.sum_squares(x - 1) <= 0])
    )
    with pytest.raises(of.Infeasible) as error:
        none.solve()
    assert error.value.certificate is not None and error.value.certificate.verify()
