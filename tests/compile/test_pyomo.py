"""Pyomo models: the same problem, solved by Pyomo's solvers, values mapped back."""

from __future__ import annotations

import importlib

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.compile.export import pyomo_values, to_pyomo

pyo = importlib.import_module("pyomo.environ")


def solver(name, module):
    importlib.import_module(module)
    found = pyo.SolverFactory(name)
    assert found.available(exception_flag=False)
    return found


HIGHS = ("highs", "highspy")
SCIP = ("scip_direct", "pyscipopt")
GUROBI = ("gurobi_direct", "gurobipy")
CASES = [
    ("textbook/diet_salt", HIGHS),
    ("textbook/diet_salt", SCIP),
    ("textbook/diet_salt", GUROBI),
    ("textbook/knapsack", HIGHS),
    ("textbook/knapsack", SCIP),
    ("textbook/knapsack", GUROBI),
    ("textbook/minimum_variance", HIGHS),
    ("textbook/minimum_variance", GUROBI),
    ("textbook/simplex_regression", HIGHS),
    ("textbook/ball_projection", SCIP),
    ("textbook/ball_projection", GUROBI),
    ("fair_clustering/german_hard_assignment", HIGHS),
]


@pytest.mark.parametrize(("name", "route"), CASES)
def test_optimum_by_pyomos_solvers(name, route):
    instance = of.library.load(name)
    p = instance.problem()
    model = to_pyomo(p)
    solver(*route).solve(model)
    values = pyomo_values(p, model)
    assert p.objective_value(values) == pytest.approx(instance.optimum.value, rel=1e-6)
    assert pyo.value(model.component("objective")) == pytest.approx(
        instance.optimum.value, rel=1e-6
    )
    for term in p.constraints.values():
        assert term.relative_violation(values) <= 1e-5
    assert {k: v.shape for k, v in values.items()} == {k: v.shape for k, v in p.variables.items()}


def bilinear():
    """Largest x*y on a disk cut by a hyperbola: known by symmetry."""
    x = cp.Variable(2, name="x")
    return of.from_cvxpy(
        cp.Problem(
            cp.Maximize(x[0] * x[1]), [cp.sum_squares(x) <= 2, x[0] >= 0, x[0] * x[1] >= -1]
        ),
        ["disk", "side", "hyperbola"],
    )


@pytest.mark.parametrize("route", [SCIP, GUROBI])
def test_nonconvex(route):
    p = bilinear()
    model = to_pyomo(p)
    s = solver(*route)
    if route is GUROBI:
        s.options["NonConvex"] = 2
    s.solve(model)
    values = pyomo_values(p, model)
    assert p.objective_value(values) == pytest.approx(1.0, abs=1e-4)
    assert values["x"] == pytest.approx([1.0, 1.0], abs=1e-2)


def test_names_are_kept_and_made_unique():
    x, M = cp.Variable(name="cost"), cp.Variable((2, 3), name="ship ments", integer=True)
    p = of.from_cvxpy(
        cp.Problem(
            cp.Minimize(x + cp.sum(M)), [x >= cp.sum(M[0]), M >= 1, cp.abs(x) <= 30, M[0, 0] == 2]
        ),
        ["cost", "at least one", "width", "objective"],
    )
    model = to_pyomo(p)
    assert model.component("cost constraint") is not None
    assert model.component("ship ments")[1, 2].is_integer()
    assert model.component("at least one")[1, 2].expr is not None
    assert isinstance(model.component("objective"), pyo.Objective)
    assert isinstance(model.component("objective constraint"), pyo.Constraint)
    solver(*HIGHS).solve(model)
    values = pyomo_values(p, model)
    assert values["ship ments"].tolist() == [[2.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    assert values["cost"] == pytest.approx(4.0)


def test_every_entry_is_the_same_function():
    """Pyomo's value of every row and of the objective is ours, at random points."""
    p = bilinear()
    model = to_pyomo(p)
    rng = np.random.default_rng(0)
    for _ in range(5):
        at = rng.normal(size=2)
        for i, v in enumerate(at):
            model.component("x")[i] = v
        assert pyo.value(model.component("objective")) == pytest.approx(at[0] * at[1])
        assert pyo.value(model.component("disk").body) == pytest.approx(at @ at)
        outside = max(0.0, at @ at - pyo.value(model.component("disk").upper))
        assert p.constraints["disk"].violation({"x": at}) == pytest.approx(outside)


def test_a_constant_false_row_stays_false():
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0, 0 * x[0] >= 1]), ["sign", "never"]
    )
    model = to_pyomo(p)
    result = solver(*HIGHS).solve(model, load_solutions=False)
    assert "feasible" in str(result.solver.termination_condition).lower()
    assert str(result.solver.termination_condition) != "optimal"


def test_errors():
    x = cp.Variable(2, name="x")
    cone = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= 1]), ["disk"])
    with pytest.raises(of.UnsupportedProblem, match="'disk'"):
        to_pyomo(cone)
    p = bilinear()
    with pytest.raises(of.DataError, match="no value"):
        pyomo_values(p, to_pyomo(p))
    with pytest.raises(of.DataError, match="no variable 'x'"):
        pyomo_values(p, pyo.ConcreteModel())
