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
from optfair.backends import conic_backend
from optfair.backends.linear_program import HeldRows, solve_linear_program
from optfair.backends.registry import profiles
from optfair.backends.request import Request
from optfair.compile.form import compile_problem
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm


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


@pytest.mark.usefixtures("others_with_two_threads")
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
