"""Problems in other words: who solves the convex one."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import pytest

import optfair as of
from optfair.backends import solve as module
from optfair.errors import NotInstalled, UnsupportedProblem


def geometric(unit: float = 1.0) -> of.Problem:
    x, y, z = (cp.Variable(pos=True, name=name) for name in "xyz")
    rows = [4 * x * y * z + 2 * unit * x * z <= 10 * unit**3, x <= 2 * y, y <= 2 * x, z >= unit]
    return of.from_cvxpy(cp.Problem(cp.Maximize(x * y * z), rows))


def ratio() -> of.Problem:
    w = cp.Variable(3, nonneg=True, name="w")
    return of.from_cvxpy(cp.Problem(cp.Minimize((cp.sum(w) + 1) / (w[0] + 2 * w[1] + 1)), [w <= 1]))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, dict[str, Any]]]:
    """What convex problems were handed to whom, with which options."""
    seen: list[tuple[str | None, dict[str, Any]]] = []
    inner = module.solve_as_asked

    def kept(problem: of.Problem, solver: str | None, request: Any) -> of.Solution:
        if problem.problem_class.convex:
            seen.append((solver, dict(request.options)))
        return inner(problem, solver, request)

    monkeypatch.setattr(module, "solve_as_asked", kept)
    return seen


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("solver", [None, "clarabel", "scs"])
def test_a_named_solver_of_convex_problems_solves_the_one_in_logarithms(
    solver: str | None, unit: float, asked: list[Any]
) -> None:
    tolerance = 1e-5 if solver == "scs" else 1e-7
    s = geometric(unit).solve(solver=solver, tolerance=tolerance)
    assert s.solver == "equivalent-convex" and s.grade.word == "proved"
    assert s.objective == pytest.approx(2.0 * unit**3, rel=10 * tolerance)
    assert asked == [(solver, {})]


@pytest.mark.parametrize("solver", ["highs", "clarabel"])
def test_a_named_solver_solves_every_level_of_a_ratio(solver: str, asked: list[Any]) -> None:
    s = ratio().solve(solver=solver)
    assert s.objective == pytest.approx(2.0 / 3.0, rel=1e-7) and s.grade.word == "proved"
    assert len(asked) > 1 and {name for name, _ in asked} == {solver}


def test_options_are_for_the_solver_that_is_named(asked: list[Any]) -> None:
    p = geometric()
    p.solve(solver="clarabel", options={"max_iter": 77})
    p.solve(solver="equivalent-convex", options={"solver": "clarabel", "max_iter": 77})
    assert asked == [("clarabel", {"max_iter": 77})] * 2
    with pytest.raises(UnsupportedProblem, match="clarabel does not take"):
        p.solve(solver="clarabel", options={"max_itr": 77})
    with pytest.raises(UnsupportedProblem, match="name the solver they belong to"):
        p.solve(solver="equivalent-convex", options={"max_iter": 77})
    with pytest.raises(UnsupportedProblem, match="did you mean 'clarabel'"):
        p.solve(solver="equivalent-convex", options={"solver": "clarabell"})


def test_who_takes_neither_the_problem_nor_the_convex_one_refuses_the_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnsupportedProblem, match="highs needs a convex problem"):
        geometric().solve(solver="highs")  # logarithms of sums are no linear program
    x = cp.Variable(2, name="x")
    nonconvex = of.from_cvxpy(cp.Problem(cp.Minimize(-cp.norm(x)), [cp.abs(x) <= 1]))
    with pytest.raises(UnsupportedProblem, match="clarabel needs a convex problem"):
        nonconvex.solve(solver="clarabel")
    missing = property(lambda profile: profile.name != "scs")
    monkeypatch.setattr("optfair.backends.request.SolverProfile.installed", missing)
    with pytest.raises(NotInstalled, match="scs is not installed"):
        geometric().solve(solver="scs")
