"""Relaxations: a bound always, the optimum where integral; penalties exact above the multiplier."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.methods.textbook.allocation import Knapsack
from optfair.transforms.duality import dualize
from optfair.transforms.relaxation import relax_integrality


def knapsack(seed: int, n: int = 6) -> Any:
    rng = np.random.default_rng(seed)
    values, weights = rng.integers(5, 40, n), rng.integers(3, 20, n)
    return Knapsack(values=values, weights=weights, capacity=float(weights.sum() // 2))


def enumerated(p: Any) -> float:
    n = p.data["values"].size
    points = np.array(list(product((0, 1), repeat=n)))
    fits = points @ p.data["weights"] <= p.data["capacity"]
    return float((points[fits] @ p.data["values"]).max())


@given(st.integers(0, 10_000))
def test_bound_holds_and_an_integral_point_is_optimal(seed: int) -> None:
    p = knapsack(seed)
    relaxed = relax_integrality(p)
    assert str(p.problem_class) == "MILP" and str(relaxed.problem.problem_class) == "LP"
    s = relaxed.recover(relaxed.problem.solve())
    best = enumerated(p)
    assert s.problem is p and s.bound >= best - 1e-6
    assert s.is_optimal() == (s.status.primal == "feasible")
    if s.is_optimal():
        assert s.objective == pytest.approx(best)
    else:
        assert s.status.termination == "relaxed"
        off = [v for k, v in s.residuals().primal.items() if k.endswith(" integer")]
        assert off[0] > 1e-6


def test_integral_relaxation_proves_the_integer_optimum() -> None:
    C = np.array([[4.0, 1.0, 3.0], [2.0, 0.5, 5.0], [3.0, 2.0, 2.0]])
    x = cp.Variable((3, 3), name="x", boolean=True)
    goal = cp.Minimize(cp.sum(cp.multiply(C, x)))
    p = of.from_cvxpy(cp.Problem(goal, [cp.sum(x, 0) == 1, cp.sum(x, 1) == 1]), ["in", "out"])
    relaxed = relax_integrality(p, "x")
    s = relaxed.recover(relaxed.problem.solve())
    assert s.is_optimal(1e-9) and s.objective == 5.0
    assert s.residuals().source == "duality"  # unlike branch and bound, whose word we would take
    assert s.transforms == ("relax_integrality",)
    assert set(np.unique(s["x"])) == {0.0, 1.0}
    moved = {"x": s["x"] + 1e-4 * np.eye(3)}
    assert not replace(s, values=moved).is_optimal()
    assert not replace(s, bound=s.bound - 1e-4).is_optimal()
    forged = replace(s.proof, values=moved)
    assert not replace(s, values=moved, proof=forged).is_optimal()
    sloppy = replace(s.proof.relaxed, multipliers={**s.proof.relaxed.multipliers, "in": np.ones(3)})
    assert not replace(s, proof=replace(s.proof, relaxed=sloppy)).is_optimal()


def test_values_must_be_those_that_were_recovered() -> None:
    """Also where the objective does not see them."""
    x, idle = cp.Variable(name="x", integer=True), cp.Variable(name="idle")
    rows = [x >= 1, idle >= 0, idle <= 1]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), rows), ["a", "b", "c"])
    relaxed = relax_integrality(p)
    s = relaxed.recover(relaxed.problem.solve())
    assert s.is_optimal()
    moved = {**s.values, "idle": np.asarray(0.5 - 0.4 * s["idle"])}
    assert not replace(s, values=moved).is_optimal()


def test_without_a_proof_there_is_no_bound() -> None:
    relaxed = relax_integrality(knapsack(1))
    bare = replace(relaxed.problem.solve(), proof=None)
    s = relaxed.recover(bare)
    assert s.bound == np.inf and not s.is_optimal()


def test_some_names_only() -> None:
    x, y = cp.Variable(name="x", integer=True), cp.Variable(name="y", integer=True)
    goal = cp.Minimize(x + y)
    p = of.from_cvxpy(cp.Problem(goal, [x >= 0.5, y >= 0.5, x + y >= 1.7]), ["a", "b", "c"])
    relaxed = relax_integrality(p, "y")
    assert relaxed.problem.integers == {"x"} and relaxed.names == ("y",)
    s = relaxed.problem.solve()
    assert s.objective == pytest.approx(1.7)
    back = relaxed.recover(s)
    assert back.status.primal == "infeasible" and back.residuals().primal["y integer"] > 0.2
    assert "as reported" in back.residuals().source
    # constraints written on the original bind on the relaxation
    assert relaxed.problem.with_constraints(more=p["y"] >= 3).solve().objective == pytest.approx(4)


def test_the_way_back_is_recorded_through_two_transforms() -> None:
    relaxed = relax_integrality(knapsack(1))
    dual = dualize(relaxed.problem)
    s = relaxed.recover(dual.recover(dual.problem.solve()))
    assert s.transforms == ("dualize", "relax_integrality")
    assert s.bound >= enumerated(relaxed.original) - 1e-9
    assert s.bound == pytest.approx(relaxed.problem.solve().objective)


def test_refusals() -> None:
    p = knapsack(0)
    relaxed = relax_integrality(p)
    with pytest.raises(of.ClassError, match="no integer variable"):
        relax_integrality(relaxed.problem)
    with pytest.raises(of.DeclarationError, match="not an integer variable"):
        relax_integrality(p, "taek")
    other = relaxed.problem.with_constraints(more=p[next(iter(p.variables))] <= 0.5)
    with pytest.raises(of.DeclarationError, match="not a solution of the relaxation"):
        relaxed.recover(other.solve())


# softening: exact above the multiplier, of the right class, refused where it has no meaning


def softened() -> of.Problem:
    x = cp.Variable(2, name="x")
    return of.from_cvxpy(
        cp.Problem(
            cp.Minimize(x[0] + 2 * x[1]),
            [cp.sum(x) >= 1, x[0] == 0.25, cp.norm(x) <= 3, x >= -1],
        ),
        ["sum", "first", "disk", "low"],
    )


@pytest.mark.parametrize("name", ["sum", "first", "disk"])
def test_penalty_is_exact_above_the_multiplier(name: str) -> None:
    p = softened()
    s = p.solve()
    price = float(np.abs(s.multipliers[name]).max())
    above = p.soften(name, price + 0.5)
    assert name not in above.constraints and f"soft {name}" in above.objective
    assert above.solve().objective == pytest.approx(s.objective, abs=1e-6)
    if price > 0.1:
        assert p.soften(name, price / 2).solve().objective < s.objective - 1e-6


def test_linear_stays_linear() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1, x[0] == x[1]]), ["low", "same"])
    assert str(p.soften("low", 3.0).soften("same", 1.0).problem_class) == "LP"


def test_maximisation_is_penalised_downwards() -> None:
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(x), [x <= 2, x <= 5]), ["cap", "far"])
    assert p.soften("cap", 3.0).solve().objective == pytest.approx(2.0, abs=1e-6)
    assert p.soften("cap", 0.5).solve().objective == pytest.approx(5 - 0.5 * 3, abs=1e-6)


def test_a_semidefinite_term_is_penalised_by_its_eigenvalue() -> None:
    X = cp.Variable((2, 2), name="X", symmetric=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [X >> np.eye(2), X <= 5]), ["psd", "up"])
    assert p.soften("psd", 4.0).solve().objective == pytest.approx(2.0, abs=1e-5)


def test_softening_is_refused() -> None:
    p = softened()
    with pytest.raises(of.DeclarationError, match="no constraint 'summ'"):
        p.soften("summ", 1.0)
    for weight in (0.0, -1.0, float("nan")):
        with pytest.raises(of.DataError, match=r"weight is|weight has|not a finite"):
            p.soften("sum", weight)
    q = p.with_constraints(cone=cp.SOC(p["x"][0] + 9, p["x"]))
    with pytest.raises(of.DeclarationError, match="no penalty"):
        q.soften("cone", 1.0)


def test_a_transformed_problem_prints_as_one_and_says_the_way_back() -> None:
    p = knapsack(0)
    for made in (relax_integrality(p), dualize(relax_integrality(p).problem)):
        assert (
            repr(made).startswith(repr(made.problem)) and "Knapsack" in repr(made).splitlines()[-1]
        )
