"""What a solve leaves for the next one at other values: models, bases, iterates."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of


def transport(seed: int = 0) -> tuple[Any, Any]:
    r = np.random.default_rng(seed)
    A = r.random((40, 60))
    x, b = cp.Variable(60, name="x"), cp.Parameter(40, name="b", value=A.sum(axis=1))
    cost = cp.Parameter(60, name="cost", value=r.random(60) + 0.1)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cost @ x), [A @ x >= b, x >= 0, x <= 4]))
    return p, lambda k: A @ (1.0 + 0.01 * np.random.default_rng(k).standard_normal(60))


def regulator() -> Any:
    r = np.random.default_rng(1)
    A, B = np.eye(4) + 0.1 * r.standard_normal((4, 4)), 0.3 * r.standard_normal((4, 2))
    x, u = cp.Variable((4, 11), name="x"), cp.Variable((2, 10), name="u")
    start = cp.Parameter(4, name="start", value=np.ones(4))
    rows = [x[:, 0] == start, x[:, 1:] == A @ x[:, :-1] + B @ u, cp.abs(u) <= 1]
    goal = cp.sum_squares(x) + 0.1 * cp.sum_squares(u)
    return of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows))


def test_a_linear_program_keeps_its_model_and_says_so() -> None:
    p, side = transport()
    first = p.at(b=side(1)).solve()
    assert "kept" not in first.options and first.options["iterations"] > 0
    again = p.at(b=side(2)).solve()
    assert again.options["kept"] == "the model of the last solve"
    assert again.options["iterations"] < again.options["iterations_cold"]
    assert again.options["iterations_cold"] == first.options["iterations"]
    fresh = transport()[0].at(b=side(2)).solve()
    assert again.objective == pytest.approx(fresh.objective, rel=1e-9)
    assert again.is_optimal(1e-7)
    # costs move in the same model
    dear = p.at(b=side(2), cost=p.parameters["cost"].value * 3.0).solve()
    assert dear.options["kept"] == "the model of the last solve"
    assert dear.objective == pytest.approx(3.0 * fresh.objective, rel=1e-9)


def test_options_of_one_solve_are_not_those_of_the_next() -> None:
    p, side = transport()
    p.at(b=side(1)).solve(options={"simplex_iteration_limit": 100_000, "presolve": "off"})
    s = p.at(b=side(2)).solve()
    assert s.options["kept"] and "presolve" not in s.options
    with pytest.raises(of.UnsupportedProblem, match="refused"):
        p.at(b=side(3)).solve(options={"presolve": "sometimes"})
    assert p.at(b=side(3)).solve().is_optimal(1e-7)


def test_an_infeasible_value_leaves_the_next_one_right() -> None:
    p, side = transport()
    p.at(b=side(1)).solve()
    with pytest.raises(of.Infeasible) as e:
        p.at(b=1e3 * side(1)).solve()
    assert e.value.certificate is not None and e.value.certificate.verify()
    fresh = transport()[0].at(b=side(4)).solve()
    assert p.at(b=side(4)).solve().objective == pytest.approx(fresh.objective, rel=1e-9)


def test_rows_that_move_take_the_basis_along() -> None:
    r = np.random.default_rng(3)
    x, A = cp.Variable(30, name="x"), cp.Parameter((20, 30), name="A", value=r.random((20, 30)))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1, x >= 0]))
    moved = [p.parameters["A"].value + 1e-3 * k for k in (1, 2)]
    p.at(A=moved[0]).solve()
    s = p.at(A=moved[1]).solve()
    assert s.options["kept"] == "its basis" and s.is_optimal(1e-7)


def test_threads_do_not_share_a_model() -> None:
    p, side = transport()
    p.at(b=side(0)).solve()
    alone = [transport()[0].at(b=side(k)).solve().objective for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: p.at(b=side(k)).solve(), range(8)))
    assert [s.objective for s in found] == pytest.approx(alone, rel=1e-9)
    assert all(s.is_optimal(1e-7) for s in found)


@pytest.mark.parametrize("solver", ["clarabel", "osqp", "scs", "piqp"])
def test_quadratic_programs_start_from_the_last_values(solver: str) -> None:
    p = regulator()
    states = [np.ones(4) * (1.0 - 0.02 * k) for k in range(4)]
    cold = p.at(start=states[0]).solve(solver, tolerance=1e-4)
    assert "kept" not in cold.options
    for state in states[1:]:
        s = p.at(start=state).solve(solver, tolerance=1e-4)
        assert s.options["kept"] == "the solver of the last values"
        fresh = regulator().at(start=state).solve("clarabel")
        assert s.objective == pytest.approx(fresh.objective, rel=1e-3)
        assert s.is_optimal(1e-3) or not s.grade.sound
    if solver in ("osqp", "scs"):  # methods whose iterates carry over
        assert s.options["iterations"] <= s.options["iterations_cold"]


def test_a_start_that_is_given_wins() -> None:
    p = regulator()
    s = p.at(start=np.ones(4)).solve("scs", tolerance=1e-4)
    t = p.at(start=0.9 * np.ones(4)).solve("scs", tolerance=1e-4, warm_start=s)
    assert t.options["warm_start"] == "used" and "kept" not in t.options
