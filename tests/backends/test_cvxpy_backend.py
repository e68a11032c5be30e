"""What is degenerate in rows and columns, and points that are moved onto the rows they are short of."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.cvxpy_backend import onto_domain, onto_rows
from optfair.compile.form import compile_problem
from optfair.solution.conic_form import ConicForm


def rows(seed: int = 0) -> tuple[ConicForm, np.ndarray]:
    """Return equations and bounds, and a point with a column at its bound that satisfies them."""
    rng = np.random.default_rng(seed)
    A, inside = rng.standard_normal((3, 8)), rng.uniform(1.0, 2.0, 8)
    inside[0] = 0.0
    x = cp.Variable(8, name="x")
    problem = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum_squares(x)), [A @ x == A @ inside, x >= 0])
    )
    return compile_problem(problem, cp.CLARABEL, quadratic=True).form, inside


def violation(form: ConicForm, x: np.ndarray) -> float:
    s = form.slack(x)
    return float(np.where(form.equal, np.abs(s), np.maximum(-s, 0.0)).max())


@pytest.mark.parametrize("seed", range(5))
def test_a_point_short_of_its_rows_is_moved_onto_them_and_stays_within_its_bounds(
    seed: int,
) -> None:
    form, inside = rows(seed)
    near = inside + 1e-4 * np.random.default_rng(seed).standard_normal(8) * (inside > 0.0)
    assert violation(form, near) > 1e-5
    found = onto_rows(form, near, 1e-8)
    assert violation(form, found) <= 1e-8 and found[0] == 0.0
    assert np.abs(found - inside).max() <= 1e-2


def test_what_is_good_enough_or_beyond_help_is_left_alone() -> None:
    form, inside = rows()
    assert onto_rows(form, inside, 1e-8) is inside
    outside = inside - 3.0  # every column beyond its bound: none may move
    assert onto_rows(form, outside, 1e-8) is outside


N = 4
A = np.random.default_rng(3).normal(size=(6, N))
B = A @ np.full(N, 0.6) + 0.5
COST = -A.T @ np.linspace(0.2, 1.0, 6)
SPREAD = 10.0 ** np.array([6, -6, 3, -3])


def empty_rows(x: Any) -> list[Any]:
    return [np.zeros((2, N)) @ x <= np.array([1.0, 0.0]), np.zeros((1, N)) @ x == np.zeros(1)]


def duplicate_rows(x: Any) -> list[Any]:
    twice = cp.hstack([x[0] - x[1], 2.0 * (x[0] - x[1])])
    return [A[:2] @ x <= B[:2], 2.0 * (A[0] @ x) <= 2.0 * B[0], twice == np.array([0.1, 0.2])]


def infinite_sides(x: Any) -> list[Any]:
    ends = np.array([50.0, np.inf, 50.0, np.inf])
    return [A[:2] @ x <= np.full(2, np.inf), x >= -ends, x <= ends]


def fixed_entries(x: Any) -> list[Any]:
    return [x[0] >= 0.3, x[0] <= 0.3]


def singleton_columns(x: Any) -> list[Any]:
    y = cp.Variable(3, name="y")
    return [cp.sum(x) + y[0] - y[1] == 1.0, y >= 0, y <= 700]


def columns_without_rows(x: Any) -> list[Any]:
    return [0.0 * cp.Variable(name="unused") + x[0] <= 9.0]


def zero_diagonals(x: Any) -> list[Any]:
    Z = cp.Variable((3, 3), name="Z", symmetric=True)
    return [Z >> 0, Z[0, 0] == 0, Z[1, 1] + Z[2, 2] <= 2, Z[1, 2] == x[0] - 0.5]


def bad_units(x: Any) -> list[Any]:
    return [1e6 * (A[0] @ x) <= 1e6 * B[0], 1e-6 * (A[1] @ x) <= 1e-6 * B[1]]


DEGENERATE = [
    *(empty_rows, duplicate_rows, infinite_sides, fixed_entries, singleton_columns),
    *(columns_without_rows, zero_diagonals, bad_units),
]
SOLVERS = {
    "LP": (None, "highs", "clarabel", "scs", "piqp", "cvxopt"),
    "QP": (None, "highs", "clarabel", "scs", "piqp", "cvxopt"),
    "SOCP": (None, "clarabel", "scs", "cvxopt"),
    "SDP": (None, "clarabel"),
}


def stated(kind: str, x: Any) -> tuple[Any, list[Any]]:
    if kind == "LP":
        return COST @ x, [A @ x <= B]
    if kind == "QP":
        return cp.sum_squares(A @ x - 1.0) + COST @ x, [A @ x <= B, cp.abs(x) <= 50]
    if kind == "SOCP":
        return COST @ x, [cp.norm(A @ x - B) <= 4.0, cp.abs(x) <= 50]
    X = cp.Variable((3, 3), name="X", symmetric=True)
    linked = [X[0, 1] == x[0] - 2.0, X[1, 2] == x[1] + 1.0, X - 0.1 * np.eye(3) >> 0]
    return cp.trace(X) + 0.3 * cp.sum(x), [*linked, cp.norm_inf(x) <= 2.0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", SOLVERS)
@pytest.mark.parametrize("degenerate", DEGENERATE, ids=lambda f: f.__name__)
def test_what_is_degenerate_is_solved_and_proved(degenerate: Any, kind: str) -> None:
    """Every solver proves the same optimum, with a value for what no row sees."""
    found = []
    for solver in SOLVERS[kind] if degenerate is not zero_diagonals else (None, "clarabel"):
        x = cp.Variable(N, name="x")
        goal, rules = stated(kind, x)
        p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [*rules, *degenerate(x)]))
        tolerance = 1e-4 if solver == "scs" else 1e-5
        s = p.solve(solver, tolerance=tolerance)
        assert s.is_optimal(tolerance) and s.grade.sound, solver
        assert all(np.isfinite(v).all() for v in s.values.values())
        found.append(s.objective)
    assert np.ptp(found) <= 1e-4 * max(1.0, abs(found[0]))


@pytest.mark.parametrize("kind", SOLVERS)
def test_columns_in_any_units_are_solved_and_proved(kind: str) -> None:
    found = []
    for unit in (np.ones(N), SPREAD):
        goal, rules = stated(kind, cp.multiply(unit, cp.Variable(N, name="y")))
        s = of.from_cvxpy(cp.Problem(cp.Minimize(goal), rules)).solve(tolerance=1e-6)
        assert s.is_optimal(1e-6)
        found.append(s.objective)
    assert found[1] == pytest.approx(found[0], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("size", "cost", "goal"),
    [
        (2, 0.3, lambda v: cp.sum(cp.power(v, 1.25))),
        (3, 0.5, lambda v: cp.sum(cp.power(v, 1.5))),
        (3, 20.0, lambda v: -1e-5 * cp.geo_mean(cp.hstack([v, np.ones(1)]))),
    ],
)
def test_an_optimum_at_the_edge_of_a_domain(size: int, cost: float, goal: Any) -> None:
    """A method that ends 1e-13 beyond it has no objective there; the nearest point within has."""
    v = cp.Variable(size, name="v")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal(v) + cost * cp.sum(v))))
    s = p.solve()
    assert s.grade.sound and (s["v"] >= 0.0).all() and abs(s.objective) <= 1e-6


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_point_is_moved_onto_a_domain_that_is_near(unit: float) -> None:
    v = cp.Variable(2, name="v")
    goal = cp.sum(cp.power(v - 0.3 * unit, 1.5)) + cp.power(v[0] - v[1], 1.25)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal)))
    compiled = compile_problem(p, cp.CLARABEL)
    x = np.zeros(compiled.form.q.size)
    places = compiled.places()["v"]
    x[places] = [0.3 * unit - 1e-12 * unit, 0.3 * unit - 2e-12 * unit]
    assert np.isnan(p.objective_at(compiled.values(x)))
    near = onto_domain(p, compiled, x, 1e-7)
    assert np.isfinite(p.objective_at(compiled.values(near)))
    assert np.abs(near - x).max() <= 1e-11 * unit
    x[places] = [-unit, unit]  # this is no rounding
    assert onto_domain(p, compiled, x, 1e-7) is x


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("fixed", [False, True])
def test_an_optimum_at_singular_matrices_is_proved(unit: float, fixed: bool) -> None:
    """Beside X = aa'/|a| next to no change of X, or of x, is another value."""
    a = unit * np.array([1.0, 2.0, 2.0])
    X, x = cp.Variable((3, 3), PSD=True, name="X"), cp.Variable(3, name="x")
    if fixed:
        p = cp.Problem(cp.Minimize(cp.matrix_frac(a, X) + cp.trace(X)))
    else:
        p = cp.Problem(cp.Minimize(cp.matrix_frac(x, X)), [cp.trace(X) <= unit, x >= a])
    s = of.from_cvxpy(p).solve()
    assert s.grade.word == "proved"
    assert s.objective == pytest.approx((6.0 if fixed else 9.0) * unit, rel=1e-7)


def test_a_point_beside_the_edge_is_moved_inside_along_tight_rows() -> None:
    a = np.array([1.0, 2.0, 2.0])
    X = cp.Variable((3, 3), PSD=True, name="X")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.matrix_frac(a, X)), [cp.trace(X) == 1]))
    compiled = compile_problem(p, cp.CLARABEL)
    turned = a + 1e-8 * np.array([0.0, 1.0, -1.0])
    x = np.zeros(compiled.form.q.size)
    x[compiled.places()["X"]] = np.outer(turned, turned) / 9.0 + 1e-14 * np.eye(3)
    (epigraph,) = np.flatnonzero(compiled.form.q)
    x[epigraph] = 9.0 / compiled.form.q[epigraph]
    before = p.objective_at(compiled.values(x))
    assert abs(before - 9.0) > 1e-3
    near = onto_domain(p, compiled, x, 1e-7)
    values = compiled.values(near)
    assert abs(p.objective_at(values) - 9.0) <= 1e-6
    assert np.trace(values["X"]) == pytest.approx(1.0, abs=1e-9)
    assert np.abs(near - x).max() <= 1e-6


ROWS = {
    "divergence": lambda x: cp.kl_div(x[0], x[1]) <= 2 * x[1],
    "relative entropy": lambda x: cp.rel_entr(x[0], x[1]) <= x[1],
    "entropy": lambda x: cp.sum(cp.rel_entr(x, 1)) <= 2,
    "root": lambda x: cp.sqrt(x[0]) + x[1] >= 0.5,
}


@pytest.mark.parametrize("unit", [1.8e-6, 1e-5, 5.6e-5, 1.8e-2, 0.32, 1e4])
@pytest.mark.parametrize("row", ROWS)
def test_a_row_holds_at_the_edge_of_its_domain(row: str, unit: float) -> None:
    # solvers end a rounding beyond the edge, where the function is infinite
    y = cp.Variable(2, name="y")
    x = unit * (y + 0.0)
    rules = [x[0] - x[1] <= -0.5, ROWS[row](x), x <= 5]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + x[1]), rules)).solve()
    assert s.objective == pytest.approx(0.5, abs=1e-6)
    assert max(s.residuals().primal.values()) <= 1e-7


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("share", "optimum"), [(0.2, 0.105012877), (0.1, 0.302841653)])
def test_entries_beside_0_of_a_regularised_plan_are_proved(
    share: float, optimum: float, unit: float
) -> None:
    # of entries of 1e-10, which prices allow, the entropy asks for 1e6 by its exponential, not for 1e-8
    cost = unit * np.abs(np.arange(4)[:, None] - np.arange(5))
    T = cp.Variable((4, 5), nonneg=True, name="T")
    sums = [cp.sum(T, 1) == np.full(4, 0.25), cp.sum(T, 0) == [0.5, *[0.125] * 4]]
    goal = cp.sum(cp.multiply(cost, T)) - share * unit * cp.sum(cp.entr(T))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(goal), sums)).solve()
    assert s.grade.word == "proved" and s.objective == pytest.approx(optimum * unit, rel=1e-7)
    assert s.residuals().penalty <= 1e-8


@pytest.mark.parametrize("solver", [None, "clarabel", "piqp", "highs", "osqp"])
def test_a_quadratic_without_rows_is_proved_by_whom_is_asked_first(solver: str | None) -> None:
    s = of.from_arrays(P=[[2.0, 1.0], [1.0, 2.0]], q=[1.0, -1.0]).solve(solver)
    assert s.grade.word == "proved" and not s.attempts
    assert s.objective == pytest.approx(-1.0)


def test_constraints_that_only_the_objective_contradicts_are_not_said_to_exclude_each_other() -> (
    None
):
    x = cp.Variable(name="x")
    below = [x >= -3, x <= -1]
    for goal in (cp.Maximize(cp.log(x)), cp.Minimize(cp.power(x, -1))):
        with pytest.raises(of.Infeasible, match="where the objective is finite"):
            of.from_cvxpy(cp.Problem(goal, below)).solve()
    for rows in ([x >= 2, x <= 1], [*below, x >= 0]):
        with pytest.raises(of.Infeasible) as e:
            of.from_cvxpy(cp.Problem(cp.Maximize(cp.log(x)), rows)).solve()
        assert "objective" not in e.value.cause
