"""Nonconvex quadratics by the commercial solver, within the licence its package carries."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.registry import licence_state, profile


def saddle(n: int = 3, **rows: Any) -> Any:
    x = cp.Variable(n, name="x")
    named = {"low": x >= -1, "up": x <= 1} | {k: row(x) for k, row in rows.items()}
    goal = cp.Minimize(x[0] * x[1] + x[2])
    return of.from_cvxpy(cp.Problem(goal, list(named.values())), list(named))


def test_the_global_optimum_with_its_bound() -> None:
    p = saddle(ball=lambda x: cp.norm(x) <= 1.5, out=lambda x: cp.sum_squares(x) >= 1)
    assert not p.problem_class.convex
    ours, theirs = p.solve("gurobi", seed=3, time_limit=20.0), p.solve("scip")
    assert not ours.residuals().above(1e-7) and ours.status.termination == "optimal"
    assert str(ours.grade) == "reported by gurobi" and not ours.is_optimal(1e-7)
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-6)
    assert ours.proof is not None and ours.proof.source.endswith("gurobi, as reported")


def test_integers_and_maximisation() -> None:
    x = cp.Variable(2, name="x")
    rows = [x >= -1.5, x <= 2.5]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum_squares(x) + 3), rows)).with_integrality("x")
    s = p.solve("gurobi")
    assert s.objective == s.bound == 11.0 and np.array_equal(s["x"], [2.0, 2.0])


def test_a_start_is_used_or_refused() -> None:
    p = saddle()
    s = p.solve("gurobi")
    assert p.solve("gurobi", warm_start=s).options["warm_start"] == "used"
    other = saddle(4).solve("gurobi", warm_start=s).options["warm_start"]
    assert other == "not used: it has no value of the shape of 'x'"


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(of.SolverFailure, match="gurobi says that no point"):
        saddle(out=lambda x: cp.sum_squares(x) >= 10).solve("gurobi")
    with pytest.raises(of.Unbounded) as fall:  # on a proof, not on its word
        saddle().without("low").without("up").solve("gurobi")
    assert fall.value.certificate.verify()
    with pytest.raises(of.UnsupportedProblem, match="gurobi does not take these options"):
        saddle().solve("gurobi", options={"Nope": 1})
    if licence_state(profile("gurobi")).word == "size-limited":
        with pytest.raises(of.SizeLimited, match="limited in size") as refusal:
            saddle(300).solve("gurobi")
        assert "scip" in refusal.value.remedy


QUADRICS: dict[str, Any] = {
    "a ball": lambda x, u: [cp.sum_squares(x) <= u**2],
    "a sphere": lambda x, u: [cp.sum_squares(x) == u**2],
    "a shell": lambda x, u: [cp.sum_squares(x) <= u**2, cp.sum_squares(x - 0.3 * u) >= 0.04 * u**2],
    "two balls": lambda x, u: [cp.sum_squares(x) <= u**2, cp.sum_squares(x - 0.3 * u) <= u**2],
}


@pytest.mark.parametrize("name", QUADRICS)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_few_quadratics_are_proved_by_their_relaxation(name: str, unit: float) -> None:
    rng = np.random.default_rng(5)
    Q, q = rng.normal(size=(4, 4)), rng.normal(size=4)
    x = cp.Variable(4, name="x")
    cost = cp.quad_form(x, Q + Q.T) / unit + q @ x
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(cost), QUADRICS[name](x, unit)))
    solution = problem.solve()
    assert solution.solver == "semidefinite-relaxation"
    assert str(solution.grade) == "proved" and solution.certificate.verify()
    there = problem.solve("scip")
    assert solution.objective == pytest.approx(there.objective, rel=1e-6)
    assert solution.bound <= there.objective + 1e-7 * abs(there.objective)


def test_a_relaxation_that_is_not_exact_leaves_it_to_the_next_solver() -> None:
    x = cp.Variable(3, name="x")
    rows = [cp.square(x) == 1.0]  # a triangle has no cut of all its edges
    cost = cp.Minimize(x[0] * x[1] + x[1] * x[2] + x[2] * x[0])
    solution = of.from_cvxpy(cp.Problem(cost, rows)).solve()
    assert solution.objective == pytest.approx(-1.0) and solution.solver == "scip"
    assert any("semidefinite-relaxation" in attempt for attempt in solution.attempts)


def test_linear_rows_and_many_quadratics_are_left_to_others() -> None:
    x = cp.Variable(3, name="x")
    cost = cp.Minimize(x[0] * x[1] - cp.sum_squares(x))
    for rows, why in (
        ([cp.sum_squares(x) <= 1, x >= 0], "is linear"),
        ([cp.square(x) <= 1, cp.sum_squares(x) <= 1], "it is larger"),
    ):
        problem = of.from_cvxpy(cp.Problem(cost, rows))
        with pytest.raises(of.UnsupportedProblem, match="needs the structure") as refused:
            problem.solve("semidefinite-relaxation")
        assert why in str(refused.value)
        assert problem.solve().solver == "scip"


def test_parts_that_fold_to_constants_have_no_leaves() -> None:
    w, y = cp.Variable(name="w", bounds=[0, 2]), cp.Variable(name="y", bounds=[1e-6, 100])
    zero = cp.power(-cp.minimum(w, 0), 0.1)  # w is not negative
    s = of.from_cvxpy(cp.Problem(cp.Maximize(w * y), [zero >= 0])).solve()
    assert s.objective == pytest.approx(200.0) and s.bound >= 200.0 * (1.0 - 1e-9)
