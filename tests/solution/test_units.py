"""Cones are handed to solvers in units in which their numbers are near 1, and results come back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.compile.form import compile_problem
from optfair.proofs.cones import Cone
from optfair.solution import units
from optfair.solution.conic_form import ConicForm
from optfair.solution.units import Handed, equilibrium, units_at

x, y = cp.Variable(3, name="x"), cp.Variable(name="y")
ONES = np.array([1.0, 2.0, 3.0])


def form_of(objective: Any, constraints: list[Any]) -> ConicForm:
    problem = of.from_cvxpy(cp.Problem(objective, constraints))
    return compile_problem(problem, "CLARABEL").form


def handed(form: ConicForm) -> Handed:
    near = form.handed(np.zeros(form.q.size, dtype=bool))
    assert near is not None
    return near


FORMS: dict[str, Callable[[float], ConicForm]] = {
    "exponential": lambda u: form_of(cp.Maximize(cp.sum(cp.log(x))), [x @ ONES <= 6 * u]),
    "power": lambda u: form_of(
        cp.Minimize(ONES @ x), [cp.sum(cp.power(cp.abs(x), 2.3, approx=False)) <= u**2.3]
    ),
    "second order": lambda u: form_of(cp.Minimize(cp.sum(cp.inv_pos(x))), [x @ ONES <= 6 * u]),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("unit", [1e-6, 1e5])
def test_every_cone_is_mapped_to_itself_and_products_stay(name: str, unit: float) -> None:
    form = FORMS[name](unit)
    near, rng = handed(form), np.random.default_rng(0)
    s, z = rng.normal(size=(2, form.b.size))
    for c in form.cones:  # a point well inside each cone
        at = slice(c.start, c.stop)
        if c.kind == "soc":
            s[c.start] = 2.0 * np.linalg.norm(s[at])
        elif c.kind == "exp":
            s[at] = [0.3, 1.0, 2.0]
        elif c.kind == "pow":
            s[at] = [1.0, 2.0, 0.5]
    there = near.slack(s)
    for c in form.cones:
        if c.kind in ("soc", "exp", "pow"):
            assert c.distance(there[c.start : c.stop]) == 0.0
    assert near.multipliers(z) @ there == pytest.approx(z @ s, rel=1e-6)
    np.testing.assert_allclose(near.multipliers_back(near.multipliers(z)), z, atol=1e-5)
    point = rng.normal(size=form.q.size)
    np.testing.assert_allclose(
        near.form.slack(point / near.columns),
        near.slack(form.slack(point)),
        rtol=1e-9,
        atol=1e-9 * np.abs(near.form.b).max(),
    )
    entries = np.abs(near.form.A.data[near.form.A.data != 0.0])
    assert entries.max() / entries.min() < 256.0
    assert (form.same is not None) == (name == "second order")


def test_digits_that_one_multiplier_lost_beside_another_come_back() -> None:
    near = handed(FORMS["second order"](1e-6))
    assert near.pairs is not None
    heads = near.pairs[0]
    assert heads.size == 3
    there = np.zeros(near.form.b.size)  # on the boundary of the cones
    there[heads], there[heads + 1], there[heads + 2] = 5.0, [4.0, -4.0, 4.0], [3.0, 3.0, -3.0]
    there *= np.pi
    lost = near.multipliers_back(there)
    restored = near.restored(lost)
    assert restored is not None
    left = np.abs(restored - there).max()
    assert left <= 1e-14 and np.abs(near.multipliers(lost) - there).max() > 100.0 * left
    assert handed(FORMS["power"](1e-6)).restored(there) is None


def test_a_radius_in_units_of_the_open_columns_is_told_in_those_of_the_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optfair.proofs.moves.tilted", lambda *_, **__: ())  # columns stay open
    monkeypatch.setattr("optfair.proofs.bounds.mutual_bounds", lambda rows, *ends: ends)
    problem = of.from_cvxpy(cp.Problem(*PROBLEMS["cubes"](1e3)[:2]))
    solution = problem.solve()
    proof: Any = solution.proof
    form = proof.compiled.form
    left = form.lower_bound(proof.x, proof.z).unpaid
    assert left is not None and form.same is not None
    same, _ = form.same
    assert left.unit == same.columns[left.columns].min() > 1.0
    assert solution.grade.radius == pytest.approx(
        left.unit * left.radius((1e-7 - solution.residuals().gap) * solution.residuals().size)
    )


def test_numbers_near_one_stay_as_they_are() -> None:
    for build in FORMS.values():
        form = build(1.0)
        assert form.turned is None and form.handed(np.zeros(form.q.size, dtype=bool)) is None
        assert form.same is None


def test_sides_as_small_as_floats_get_tell_no_unit() -> None:
    x = cp.Variable(2, name="x")
    rows = [2e6 * x[0] <= 5e-324, cp.norm1(x) <= 1, 1e9 * x[0] + x[1] >= -3]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(x[1]), rows)).solve()
    assert s.objective == pytest.approx(-1.0) and s.grade.sound


def test_cones_that_were_turned_are_handed_over_as_they_stand_the_second_time() -> None:
    form = FORMS["exponential"](1e5)
    nothing = np.zeros(form.q.size, dtype=bool)
    assert form.handed(nothing) is form.turned is not None
    again = form.handed(nothing, turned=False)
    assert again is not form.turned


PROBLEMS: dict[str, Callable[[float], tuple[Any, list[Any], Callable[[float], float]]]] = {
    "logarithms": lambda u: (
        cp.Maximize(cp.sum(cp.log(x))),
        [x @ ONES <= 6 * u],
        lambda v: v - 3 * np.log(u),
    ),
    "entropy": lambda u: (
        cp.Minimize(cp.sum(cp.rel_entr(x, ONES * u))),
        [cp.sum(x) == 2 * u],
        lambda v: v / u,
    ),
    "means": lambda u: (
        cp.Maximize(cp.geo_mean(x)),
        [x @ ONES <= 6 * u, x >= 0],
        lambda v: v / u,
    ),
    "roots": lambda u: (
        cp.Maximize(cp.sum(cp.sqrt(x))),
        [x @ ONES <= 6 * u],
        lambda v: v / u**0.5,
    ),
    "inverses": lambda u: (
        cp.Minimize(cp.sum(cp.inv_pos(x))),
        [np.array([1.92, 0.55, 1.91]) @ x <= 3 * u],
        lambda v: v * u,
    ),
    "inverse roots": lambda u: (  # only costs tell in which unit its points are
        cp.Minimize(cp.sum(cp.power(x, -0.5)) * u**0.5 + cp.sum(x) / u),
        [],
        lambda v: v,
    ),
    "exponentials": lambda u: (
        cp.Minimize(cp.sum(cp.exp(x / u)) - cp.sum(x) / u),
        [],
        lambda v: v,
    ),
    "cubes": lambda u: (
        cp.Minimize(-ONES @ x),
        [cp.sum(cp.power(cp.abs(x), 3)) <= u**3],
        lambda v: v / u,
    ),
    "a quotient": lambda u: (
        cp.Minimize(ONES @ x + y),
        [cp.quad_over_lin(x, y) <= 3 * u, y >= 0],
        lambda v: v / u,
    ),
    "a quadratic program": lambda u: (
        cp.Minimize(cp.sum_squares(x - ONES * u) + u * cp.sum(x)),
        [x >= 0, cp.sum(x) <= 4 * u],
        lambda v: v / u**2,
    ),
    "least squares with norms": lambda u: (
        cp.Minimize(cp.sum_squares(x - ONES * u) + u * cp.norm(x) + cp.sum(cp.huber(x, u))),
        [],
        lambda v: v / u**2,
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_are_proved_at_once_in_any_units(name: str) -> None:
    values = []
    for unit in (1e-6, 1e-2, 1.0, 1e3, 1e5):
        objective, constraints, of_unit = PROBLEMS[name](unit)
        solution = of.from_cvxpy(cp.Problem(objective, constraints)).solve()
        assert solution.is_optimal() and solution.grade.sound
        values.append(of_unit(solution.objective))
    assert max(values) - min(values) <= 2e-6 * max(1.0, abs(values[1]))


@pytest.mark.parametrize("name", ["a quotient", "exponentials", "powers"])
@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_columns_that_nothing_bounds_are_closed_by_multipliers_inside_the_cones(
    name: str, unit: float, tmp_path: Path
) -> None:
    """Multipliers on the boundary of their cones have no room for what closes the columns."""
    if name in PROBLEMS:
        objective, constraints, _ = PROBLEMS[name](unit)
    else:
        left, constraints = np.arange(12.0).reshape(4, 3) % 5 @ x - unit * np.arange(4.0), []
        objective = cp.Minimize(cp.sum(cp.power(cp.abs(left), 1.5)))
    solution = of.from_cvxpy(cp.Problem(objective, constraints)).solve(tolerance=1e-7)
    assert str(solution.grade) == "proved" and solution.is_optimal(1e-7)
    if name == "a quotient":  # what is proved is replayed in integers
        solution.certificate.save(tmp_path / "proof.json")
        assert str(of.load_proof(tmp_path / "proof.json").verify()) == "verified"


@pytest.mark.parametrize(("power", "taken"), [(8.0, True), (40.0, False)])
def test_units_in_which_curvature_is_beyond_what_solvers_compute_with_are_not_taken(
    power: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = form_of(cp.Minimize(cp.sum_squares(x)), [x @ ONES == 1e6])
    units = np.full(form.b.size, 2.0**-power), np.full(form.q.size, 2.0**power)
    monkeypatch.setattr("optfair.solution.conic_form.congruence", lambda form: units)
    assert (form.congruent is not None) == taken


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("solver", ["highs", "clarabel", "piqp", "scs", "scip"])
@pytest.mark.parametrize("unit", [1e-14, 1e-10, 1e-8])
def test_sides_of_any_size_are_no_licence_to_be_wrong(
    unit: float, solver: str, curved: bool
) -> None:
    """Beside sides of 1e-10 a violation of 1e-7 is everything."""
    x = cp.Variable(3, name="x")
    rows = [x[0] + 2 * x[1] >= 3 * unit, x[1] + x[2] >= 2 * unit, x[0] + x[2] <= 4 * unit, x >= 0]
    cost = cp.sum_squares(x) if curved else 4 * x[0] + 6 * x[1] + 3 * x[2]
    optimum = 7.0 / 3.0 * unit**2 if curved else 10.5 * unit
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows))
    if solver == "scip":  # its tolerances are no smaller: refused, or right
        with contextlib.suppress(of.SolverFailure):
            assert p.solve(solver).objective == pytest.approx(optimum, rel=1e-6)
        return
    s = p.solve(solver)
    assert s.grade.word == "proved" and s.objective == pytest.approx(optimum, rel=1e-6)


def test_rows_of_a_cone_have_one_unit_at_equilibrium() -> None:
    A = sp.csc_array(np.diag([1e6, 1e-3, 1e3, 1.0, 1e-6]))
    cones = Cone("soc", 0, 3), Cone("nonneg", 3, 5)
    form = ConicForm(sp.csc_array((5, 5)), np.ones(5), 0.0, A, np.ones(5), cones)
    rows, columns = equilibrium(form)
    assert rows[0] == rows[1] == rows[2]
    # the columns know that: all numbers are near 1
    numbers = rows * A.diagonal() * columns
    assert 0.25 <= numbers.min() <= numbers.max() <= 2
    assert all((np.frexp(v)[0] == 0.5).all() for v in (rows, columns))


@pytest.mark.parametrize("length", [1e-4, 1.0, 1e3, 1e4, 1e5, 1e6])
@pytest.mark.parametrize("cost", [1e-6, 1.0, 1e6])
def test_a_misfit_has_another_unit_than_the_box_of_its_columns(length: float, cost: float) -> None:
    x, far = cp.Variable(name="x"), cp.Variable(3, name="far")
    y = cp.multiply([1.0 / length, 0.03 / length, 30.0 / length], far)
    goals = {
        "square": (
            0.3 * (x / length) + cp.square(x / length - 1),
            [x <= 5 * length, x >= -5 * length],
        ),
        "form": (
            cp.sum(y) + cp.quad_form(y, np.array([[3.0, 1, 0], [1, 2, 1], [0, 1, 4]])),
            [y <= 5, y >= -5, far <= 200 * length, far >= -200 * length],
        ),
    }
    truth = {
        "square": 0.2775,
        "form": -0.25 * np.linalg.inv([[3.0, 1, 0], [1, 2, 1], [0, 1, 4]]).sum(),
    }
    for name, (goal, rows) in goals.items():
        s = of.from_cvxpy(cp.Problem(cp.Minimize(cost * goal), rows)).solve()
        assert s.objective == pytest.approx(cost * truth[name], rel=1e-6) and s.grade.sound


@pytest.mark.parametrize("cost", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
def test_sides_have_a_say_where_coefficients_alone_mislead(length: float, cost: float) -> None:
    x = cp.Variable(2, name="x")
    u = x / length
    rows = [
        np.array([1.0, -1.0]) @ u * cost <= -3 * cost,
        cp.norm(u - np.array([2.0, -3.0])) * cost <= 3 * cost,
        u <= 5,
        u >= -5,
    ]
    goal = cp.Minimize(np.array([2.0, -1.0]) @ u * cost)
    p = of.from_cvxpy(cp.Problem(goal, rows), ["row", "ball", "up", "lo"])
    s = p.soften("ball", 50.0).solve()
    assert s.objective == pytest.approx(127.814427 * cost, rel=1e-6) and s.grade.sound


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_of_a_point_bring_its_slacks_near_one_and_map_cones_to_themselves(
    unit: float,
) -> None:
    w = cp.Variable(4, name="w")
    V = np.random.default_rng(4).normal(size=(4, 2))
    rows = [w >= 0, cp.sum(w) == 1, cp.norm(w) <= 3]
    goal = cp.Maximize(cp.log_det(V.T @ cp.diag(w) @ V * unit))
    s = of.from_cvxpy(cp.Problem(goal, rows)).solve()
    form, x, z = s.proof.compiled.form, s.proof.x, s.proof.z
    near = units_at(form, x)
    slack = near.slack(form.slack(x))
    assert np.allclose(slack, near.form.slack(x / near.columns), atol=1e-9)
    for c in form.cones:
        own = slack[c.start : c.stop]
        # in the same cones as before, and none is much larger than 1
        assert c.distance(own) <= 1e-6 and np.abs(own).max() <= 4.0
        if c.kind == "psd":
            assert np.diag(c.matrix(own)).min() >= 0.25
    assert near.multipliers(z) @ slack == pytest.approx(z @ form.slack(x), abs=1e-6)
    assert np.allclose(near.multipliers_back(near.multipliers(z)), z, rtol=1e-12)
    assert np.abs(np.frexp(near.columns)[0] - 0.5).max() == 0.0


@pytest.mark.parametrize("unit", [1.0, 1e3, 1e6])
def test_what_coefficients_mislead_about_is_asked_again_in_the_units_of_the_answer(
    unit: float,
) -> None:
    rng = np.random.default_rng(0)
    A, w = rng.normal(size=(20, 5)), cp.Variable(20, name="w")
    goal = cp.Minimize(cp.sum(w) - cp.log_det(A.T @ cp.diag(w) @ A * unit))
    s = of.from_cvxpy(cp.Problem(goal, [w >= 0])).solve("clarabel")
    shift = 5.0 * np.log(unit)
    assert s.grade.word == "proved" and s.objective + shift == pytest.approx(-3.1946404, abs=1e-5)


def test_a_point_tells_units_of_one_row_and_none_without_rows() -> None:
    one = form_of(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) == 3e6])
    near = units_at(one, np.full(3, 1e6))
    assert np.abs(near.form.b).tolist() <= [2.0] and (near.columns >= 2.0**19).all()
    free = form_of(cp.Minimize(cp.sum_squares(x) - ONES @ x), [])
    assert free.b.size == 0
    free.handed(np.zeros(free.q.size, dtype=bool), units=("point", ONES))
    w = cp.Variable(2, name="w")
    row = np.array([2.0**-20, -(2.0**20)])
    goal = cp.quad_form(w, np.outer(row, row), assume_PSD=True) - 10 * (row @ w)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(goal))).solve()
    assert s.objective == pytest.approx(-25.0, rel=1e-6) and s.bound <= -25.0 + 1e-6


def test_a_block_that_a_point_is_outside_of_on_all_its_diagonal_tells_no_unit() -> None:
    S = cp.Variable((2, 2), symmetric=True, name="S")
    form = form_of(cp.Minimize(S[1, 1]), [S >> 0])
    near = units_at(form, -np.ones(form.q.size))
    assert np.isfinite(near.form.rows.data).all() and np.isfinite(near.columns).all()


def test_balancing_ends_where_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense matrix with one small entry settles in a few rounds, not in all that are allowed."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 100))
    A[3, 4] = 1e-7
    form = form_of(cp.Minimize(rng.normal(size=100) @ (v := cp.Variable(100))), [A @ v <= 1.0])
    rounds: list[int] = []
    count = np.bincount

    def counted(places: Any, *more: Any, **named: Any) -> Any:
        rounds.append(len(places))
        return count(places, *more, **named)

    monkeypatch.setattr(np, "bincount", counted)
    few = units.balanced(form)
    settled = len(rounds)
    monkeypatch.setattr(units, "SETTLED", -1.0)
    every = units.balanced(form)
    assert few is not None and every is not None
    assert all(np.array_equal(a, b) for a, b in zip(few, every, strict=True))
    assert settled < 40 < len(rounds) - settled
