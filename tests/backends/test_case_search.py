"""Cases at the edge of a domain, where a compiled point may be better than what was declared."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.case_search import CaseSearch, declared_value
from optfair.backends.integer_programs import integer_columns
from optfair.backends.registry import conic_interface
from optfair.compile.form import compile_problem
from optfair.transforms.relaxation import relaxed


def roots(W: Any, cap: float, costs: Any) -> of.Problem:
    z, y = cp.Variable(2, integer=True, name="z"), cp.Variable(2, name="y")
    goal = cp.sum(cp.sqrt(y)) + cp.sum(cp.sqrt(z)) + np.array(costs) @ z - cp.sum(y)
    stated = [z >= 0, z <= 3, y >= 0, y + np.array(W) @ z <= cap]
    return of.from_cvxpy(cp.Problem(cp.Maximize(goal), stated))


def best(W: Any, cap: float, costs: Any) -> float:
    """Return the optimum: each y is 1/4 where there is room for it."""
    values = []
    for z in product(range(4), repeat=2):
        y = np.minimum(0.25, cap - np.array(W) @ z)
        if y.min() >= 0.0:
            values.append(float(np.sum(np.sqrt(y) - y) + np.sqrt(z).sum() + np.dot(costs, z)))
    return max(values)


CASES = [([[2, 0], [0, 0]], 4.0, [0.0, 2.0]), ([[2, 1], [1, 2]], 3.0, [2.0, -1.0])]


@pytest.mark.parametrize(("W", "cap", "costs"), CASES)
def test_roots_of_integers_at_0_are_proved(W: Any, cap: float, costs: Any, tmp_path: Path) -> None:
    s = roots(W, cap, costs).solve("cone-cases")
    assert s.grade.word == "proved" and abs(s.gap) <= 1e-7
    assert s.objective == pytest.approx(best(W, cap, costs), abs=1e-7) and s.bound >= s.objective
    s.certificate.save(tmp_path / "proof.json")
    assert of.load_proof(tmp_path / "proof.json").verify()


def test_a_power_near_0_is_not_worth_what_rounding_makes_of_it() -> None:
    # y[0] is 0, and 1e-12 to the power of 0.3 is 3e-4
    z, y = cp.Variable(2, integer=True, name="z"), cp.Variable(2, name="y")
    goal = cp.power(y[0], 0.3) - cp.power(y[1], 1.5) + np.array([-2.0, 3.0]) @ z - 2 * cp.sum(y)
    stated = [z >= 0, z <= 3, y >= 0, y + np.array([[2.0, 2.0], [0.0, 0.0]]) @ z <= 0]
    try:
        s = of.from_cvxpy(cp.Problem(cp.Maximize(goal), stated)).solve("cone-cases")
    except of.SolverFailure as e:
        assert e.solution is not None
        s = e.solution
    assert s.objective == pytest.approx(0.0, abs=1e-7) and s.bound >= 0.0


def test_points_are_worth_what_was_declared_of_them() -> None:
    problem = roots([[2, 0], [0, 0]], 4.0, [0.0, 2.0])
    compiled = compile_problem(relaxed(problem), conic_interface())
    search = CaseSearch(problem, compiled, 1e-7, np.inf)
    assert np.array_equal(search.integer, integer_columns(problem, compiled))
    search.keep(dict.fromkeys(search.integer.tolist(), 0))
    assert search.upper == declared_value(problem, compiled, search.x)
    assert search.upper == -problem.objective_at(compiled.values(search.x))
    assert search.least == compiled.form.objective(search.x)
