"""HiGHS called directly: beside others in the process, and on objectives as they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cvxpy as cp
import highspy
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends import conic_backend, linear_program
from optfair.backends.linear_program import HeldRows, solve_form, solve_linear_program
from optfair.backends.registry import profiles
from optfair.backends.request import Request
from optfair.compile.form import compile_problem
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm
from optfair.solution.singletons import Singletons


@pytest.fixture
def others_with_two_threads() -> Iterator[None]:
    """Leave what CVXPY's HiGHS leaves on a machine of several cores."""
    highspy.Highs.resetGlobalScheduler(True)
    model = highspy.Highs()
    model.silent()
    model.setOptionValue("threads", 2)
    model.addVar(0.0, 1.0)
    assert model.run() == highspy.HighsStatus.kOk
    ours = highspy.Highs()
    ours.silent()
    ours.setOptionValue("threads", 1)
    ours.addVar(0.0, 1.0)
    assert ours.run() == highspy.HighsStatus.kError  # what this is about
    yield
    highspy.Highs.resetGlobalScheduler(True)


@pytest.mark.usefixtures("others_with_two_threads")
def test_threads_that_others_left_behind_refuse_nothing() -> None:
    found = solve_linear_program(
        np.ones(2), sp.csc_array([[1.0, 2.0]]), np.ones(1), np.ones(1), np.zeros(2), np.ones(2)
    )
    assert found.status == "optimal" and found.x @ np.ones(2) == pytest.approx(0.5)


def test_columns_in_units_of_their_own_are_not_lost() -> None:
    """Entries of 1e-10 are dropped by the solver: in units of the columns there are none."""
    rows = sp.csc_array([[1e-10, 0.0, 1.0], [1.0, 1.0, 0.0]])
    side, none, most = np.array([1.0, 2e10]), np.zeros(3), np.full(3, np.inf)
    stated = np.array([1e-10, 3e-10, 4.0]), rows, side, side, none, most
    found = solve_linear_program(*stated, units=np.array([1e10, 1e10, 1.0]))
    assert found.status == "optimal"
    np.testing.assert_allclose(rows @ found.x, side, rtol=1e-12)
    np.testing.assert_allclose(found.x, [1e10, 1e10, 0.0], rtol=1e-12)
    np.testing.assert_allclose(found.prices, [-2.0, 3e-10], rtol=1e-9)
    assert solve_linear_program(*stated).status != "optimal"


@pytest.mark.usefixtures("others_with_two_threads")
def test_a_second_try_is_asked_as_the_first_was(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, of_solver, made = [], linear_program.LinearProgramResult.of, linear_program._simplex

    def simplex(tolerance: float, **more: Any) -> Any:
        asked.append((tolerance, more.get("presolve")))
        return made(tolerance, **more)

    def ended(solver: Any) -> Any:
        result = of_solver(solver)
        return replace(result, status="failed") if len(asked) == 1 else result

    monkeypatch.setattr(linear_program, "_simplex", simplex)
    monkeypatch.setattr(linear_program.LinearProgramResult, "of", ended)
    one = np.ones(1)
    result = solve_linear_program(
        one, sp.csc_array([[1.0]]), one, one, 0.0 * one, 2.0 * one, presolve=False
    )
    assert result.status == "optimal"
    assert asked == [(1e-10, "off"), (linear_program.LOOSER, "off")]


def test_rows_are_held_beside_threads_of_others() -> None:
    A, b = sp.csc_array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]), np.array([1.0, -1.0, -1.0])
    form = ConicForm(sp.csc_array((2, 2)), np.zeros(2), 0.0, A, b, (Cone("nonneg", 0, 3),))
    rows = HeldRows(form, 1e-9)
    assert rows.solve(np.array([True, True, False])).status == "optimal"
    assert rows.solve(np.ones(3, dtype=bool)).z is not None


@pytest.mark.usefixtures("others_with_two_threads")
def test_programs_are_solved_beside_threads_of_others() -> None:
    x = cp.Variable(3, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1, cp.sum(x) <= 9]))
    assert p.solve("highs").is_optimal(1e-9)
    whole = p.with_integrality("x")
    assert whole.solve("highs").objective == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("costs", "scale"),
    [([1e4, 1.0, 1.0], 1.0), ([1e-4], 1.0), ([1e-6, 3e-6], 2.0**19), ([1e7], 2.0**-23), ([], 1.0)],
)
def test_ordinary_costs_are_handed_to_the_simplex_method_as_they_stand(
    costs: list[float], scale: float
) -> None:
    x = cp.Variable(max(1, len(costs)), name="x")
    goal = np.array(costs) @ x if costs else 0
    form = compile_problem(of.from_cvxpy(cp.Problem(cp.Minimize(goal), [x >= 1])), "HIGHS").form
    assert form.cost_scale("typical") == scale
    if costs:
        assert form.cost_scale("largest") * max(costs) == pytest.approx(1.0, rel=0.5)


@pytest.mark.parametrize("decided", [True, False])
def test_a_large_program_is_asked_with_options_of_its_own_first(
    decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    highs = profiles()["highs"]
    assert highs.large["rows"] == 1000 and highs.large["entries"] == 30_000
    small = replace(highs, large=highs.large | {"rows": 3, "entries": 12})
    asked, solve_form = [], conic_backend.solve_form

    def counted(
        form: Any, integer: Any, scale: float, options: Any, *rest: Any, **more: Any
    ) -> Any:
        asked.append(options.get("solver", "choose"))
        raw, kept = solve_form(form, integer, scale, options, *rest, **more)
        undecided = not decided and options.get("solver") == "ipm"
        return (replace(raw, status="inaccurate"), None) if undecided else (raw, kept)

    monkeypatch.setattr(conic_backend, "solve_form", counted)
    x = cp.Variable(4, nonneg=True, name="x")
    A = np.arange(12.0).reshape(3, 4) % 5 + 1.0

    def answer(rows: int, integer: bool = False, **options: Any) -> float:
        y = cp.Variable(4, integer=True, name="y") if integer else x
        cost = cp.Problem(cp.Minimize(cp.sum(y)), [A[:rows] @ y >= 7.0, y >= 0])
        p = of.from_cvxpy(cost, ["rows", "sign"])
        outcome = conic_backend.run_highspy(p, small, Request(options=options))
        assert outcome.termination == "optimal"
        return float(np.sum(outcome.values["y" if integer else "x"]))

    least = answer(3)
    assert asked == (["ipm"] if decided else ["ipm", "choose"])
    asked.clear()
    assert answer(3, solver="simplex") == pytest.approx(least) and asked == ["simplex"]
    asked.clear()
    answer(2)  # few rows, or integers: as ever
    answer(3, integer=True)
    assert asked == ["choose", "choose"]


def random_program(seed: int) -> tuple[ConicForm, np.ndarray]:
    """Return a bounded program whose bounds are rows: some twice, some equalities, some steep."""
    rng = np.random.default_rng(seed)
    m, n = 6, 5
    E = rng.integers(-3, 4, (2, n)).astype(float)
    A = rng.integers(-3, 4, (m, n)).astype(float)
    x = rng.integers(-2, 3, n).astype(float)
    single = np.concatenate([np.eye(n), -np.eye(n), 2.0 * np.eye(n)[:2], 1e-5 * np.eye(n)[2:3]])
    sides = np.concatenate([x + 2.0, 2.0 - x, 2.0 * x[:2] + rng.integers(1, 5, 2), [1.0]])
    fixed = np.eye(n)[3:4]
    blocks = np.vstack([E, fixed, A, single])
    b = np.concatenate([E @ x, x[3:4], A @ x + rng.integers(0, 3, m), sides])
    cones = (Cone("zero", 0, 3), Cone("nonneg", 3, b.size))
    q = rng.integers(-5, 6, n).astype(float)
    return ConicForm(sp.csc_array((n, n)), q, 0.0, sp.csc_array(blocks), b, cones), x


@pytest.mark.parametrize("seed", range(20))
def test_bounds_get_the_multipliers_of_their_rows_back(seed: int) -> None:
    form, _ = random_program(seed)
    nothing = np.zeros(form.q.size, dtype=bool)
    raw, kept = solve_form(form, nothing, 1.0, {}, False)
    assert kept is not None and raw.x is not None and raw.z is not None
    assert kept.limits.of.rows.size == 13  # the steep one is a row
    slack = form.b - form.A @ raw.x
    assert (np.abs(slack[:3]) < 1e-9).all() and (slack[3:] > -1e-9).all()
    assert (raw.z[3:] >= -1e-12).all()
    assert np.abs(form.q + form.A.T @ raw.z).max() < 1e-9
    assert abs(form.q @ raw.x + form.b @ raw.z) < 1e-9
    # a basis of the form: as many rows as columns that are not at 0 by themselves, independent
    columns, rows = kept.nonbasic()
    inside = form.A.toarray()[np.ix_(rows, ~columns)]
    assert rows.sum() == (~columns).sum() == np.linalg.matrix_rank(inside)
    assert np.abs(form.b[rows] - form.A.toarray()[rows] @ raw.x).max() < 1e-9
    # with other sides and costs it goes on from where it was, and ends where a new one does
    other = replace(form, q=-form.q, b=form.b + np.r_[np.zeros(3), np.ones(form.b.size - 3)])
    warm, _ = solve_form(other, nothing, 1.0, {}, False, kept=kept)
    cold, _ = solve_form(other, nothing, 1.0, {}, False)
    assert warm.kept == "the model of the last solve" and warm.x is not None and cold.x is not None
    assert other.q @ warm.x == pytest.approx(other.q @ cold.x, abs=1e-9)
    assert np.abs(other.q + other.A.T @ np.asarray(warm.z)).max() < 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_programs_that_have_no_point_leave_a_vector_of_all_rows(seed: int) -> None:
    form, x = random_program(seed)
    nothing = np.zeros(form.q.size, dtype=bool)
    row = np.ones((1, x.size))
    cases = [(row, -2.0 * x.size - 1.0 + x.sum()), (np.eye(x.size)[:1], x[0] - 3.0)]
    for more, side in cases:  # below all bounds together; below one of them
        b = np.append(form.b, side)
        A = sp.csc_array(np.vstack([form.A.toarray(), more]))
        none = replace(form, A=A, b=b, cones=(form.cones[0], Cone("nonneg", 3, b.size)))
        raw, kept = solve_form(none, nothing, 1.0, {}, False)
        assert raw.status == "infeasible" and kept is None and raw.z is not None
        assert (raw.z[3:] >= 0.0).all() and b @ raw.z < 0.0
        assert np.abs(A.T @ raw.z).max() < 1e-9 * np.abs(raw.z).max()


def test_bounds_that_cross_within_the_tolerance_are_brought_together() -> None:
    A, b = sp.csc_array([[1.0], [-1.0]]), np.array([1.0, -1.0 - 1e-9])
    form = ConicForm(sp.csc_array((1, 1)), np.ones(1), 0.0, A, b, (Cone("nonneg", 0, 2),))
    raw, _ = solve_form(form, np.zeros(1, dtype=bool), 1.0, {}, False)
    assert raw.status == "optimal" and raw.x is not None and abs(raw.x[0] - 1.0) < 2e-9
    far = replace(form, b=np.array([1.0, -1.0 - 1e-6]))
    raw, _ = solve_form(far, np.zeros(1, dtype=bool), 1.0, {}, False)
    assert raw.status == "infeasible" and raw.z is not None and (raw.z == 1.0).all()


def test_integer_columns_have_rows_for_bounds_that_are_not_whole() -> None:
    """HiGHS 1.15 ends at 1.85 where 0.5 is a bound of the integer column."""
    x, y = cp.Variable(name="x", integer=True), cp.Variable(name="y")
    rows = [x >= 0.5, y >= 0.5, x <= 3, x + y >= 1.7]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x + y), rows))
    assert p.solve("highs").objective == pytest.approx(1.7)
    compiled = compile_problem(p, "HIGHS")
    form = compiled.form
    bounds = Singletons(form, compiled.integer)
    assert bounds.rows.size == 2 and Singletons(form).rows.size == 3


def test_limits_that_cross_by_rounding_meet_beside_columns_without_any() -> None:
    x = cp.Variable(2, name="x")
    middle = 0.3 + 1e-12
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + cp.abs(x[1])), [x[0] >= middle, x[0] <= 0.3]))
    s = p.solve(solver="highs")
    assert abs(s["x"][0] - 0.3) <= 1e-11 and s["x"][1] == 0.0


def circling(u: float) -> of.Problem:
    """Return a quadratic program whose active sets HiGHS 1.15 goes through for ever in small units."""
    x = cp.Variable(6, name="x")
    F = np.array([[-0.6, -0.6, -1.0, -1.9, -0.8, -1.4], [1.0, -3.0, 1.4, 0.3, -0.4, -1.4]])
    c, a = (
        np.array([-2.2, -1.0, 0.0, -0.2, -2.8, -0.6]),
        np.array([-1.5, 1.0, 0.5, 1.0, -1.0, -1.0]),
    )
    low, high = (
        np.array([-1.25, -0.3, 0.0, 0.3, -2.0, -0.1]),
        np.array([0.85, 0.75, 1.5, 1.8, -0.5, 2.15]),
    )
    rows = [a @ x <= 2.475, x >= low, x <= high]
    return of.from_cvxpy(cp.Problem(cp.Minimize(u * (cp.sum_squares(F @ x) + c @ x)), rows))


@pytest.mark.parametrize("u", [1e-6, 1e-4, 1.0, 1e6])
def test_active_sets_end_in_any_unit(u: float) -> None:
    s = circling(u).solve("highs", time_limit=20.0)
    assert s.is_optimal() and s.grade.sound
    assert s.objective == pytest.approx(-0.2631042735 * u)


def test_active_sets_that_go_round_in_circles_end(monkeypatch: pytest.MonkeyPatch) -> None:
    form = compile_problem(circling(1e-4), "HIGHS").form
    nothing = np.zeros(form.q.size, dtype=bool)
    monkeypatch.setattr(ConicForm, "cost_scale", lambda form, which: 1.0)
    raw, kept = solve_form(form, nothing, 1.0, {}, False)
    assert raw.status in ("optimal", "time_limit") and kept is None


@pytest.mark.parametrize("late", [True, False])
def test_a_solver_told_that_its_time_is_over_has_met_its_limit(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(100, 1000, (5, 60)).astype(float)
    x = cp.Variable(60, name="x", boolean=True)
    rows = [weight @ x <= weight.sum(axis=1) / 2]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(weight.sum(axis=0) @ x), rows))
    compiled = compile_problem(p, "HIGHS")

    def stopped(run: Any, stop: Any, seconds: float) -> Any:
        assert seconds > 1.5 * 60.0
        stop()  # Ctrl-C, or behind the limit
        return run()

    monkeypatch.setattr(linear_program, "in_thread", stopped)
    monkeypatch.setattr(linear_program, "LATE", -1.0 if late else linear_program.LATE)
    if late:
        monkeypatch.setattr(linear_program, "in_thread", lambda run, stop, seconds: (stop(), run()))
    raw, _ = solve_form(compiled.form, compiled.integer, 1.0, {"time_limit": 60.0}, False)
    assert raw.status == ("time_limit" if late else "interrupted")


def test_a_central_solution_is_in_the_middle_of_those_that_are_optimal() -> None:
    rows, one, two = np.ones((1, 2)), np.ones(1), np.ones(2)
    free: Any = np.zeros(2), np.full(2, np.inf)
    central: Any = {"central": True, "presolve": False, "tolerance": 1e-8}
    basic = solve_linear_program(two, rows, one, one, *free)
    middle = solve_linear_program(two, rows, one, one, *free, **central)
    assert sorted(basic.x.tolist()) == [0.0, 1.0]
    assert middle.status == "optimal" and middle.x == pytest.approx([0.5, 0.5], abs=1e-5)
    # x >= 1 and x + y >= 1 pay for x together, in any parts
    stated: Any = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [1.0, 1.0]]), two, np.inf * two
    prices = solve_linear_program(*stated, *free, **central).prices
    assert prices.sum() == pytest.approx(1.0) and prices.min() > 0.1
    assert solve_linear_program(*stated, *free).prices.min() == 0.0
    # what ends without an optimum is said by a basis
    crossed: Any = two, np.ones((2, 2)), np.array([1.0, -np.inf]), np.array([np.inf, 0.5])
    assert solve_linear_program(*crossed, *free, **central).status == "infeasible"
