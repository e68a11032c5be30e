"""A problem holds the parameters of its declaration, and says so when they change."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.core.expressions import freeze_parameters
from optfair.transforms.duality import dualize
from optfair.transforms.relaxation import shor


def declared() -> tuple[Any, Any, Any]:
    """Return max x_0 + x_1 with 0 <= x <= cap, and the parameters of both terms."""
    cap = cp.Parameter(2, name="cap", value=np.array([1.0, 2.0]))
    price = cp.Parameter(name="price", value=1.0)
    x = cp.Variable(2, name="x")
    problem = cp.Problem(cp.Maximize(price * cp.sum(x)), [x <= cap, x >= 0])
    return of.from_cvxpy(problem, ["roof", "sign"]), cap, price


VERBS: dict[str, Callable[[Any, Path], Any]] = {
    "solve": lambda p, _: p.solve(),
    "solve by name": lambda p, _: of.solve(p, "clarabel"),
    "explain": lambda p, _: p.explain(),
    "explain_change": lambda p, _: p.explain_change(p.without("sign")),
    "diagnose": lambda p, _: p.diagnose(),
    "certificate": lambda p, _: p.certificate.verify(),
    "cvxpy": lambda p, _: p.cvxpy,
    "built": lambda p, _: p.built(fresh=False),
    "mps": lambda p, folder: p.export(folder / "p.mps"),
    "lp": lambda p, folder: p.export(folder / "p.lp"),
    "cbf": lambda p, folder: p.export(folder / "p.cbf"),
    "to_pyomo": lambda p, _: p.to_pyomo(),
    "dualize": lambda p, _: dualize(p),
    "shor": lambda p, _: shor(p),
    "child": lambda p, _: p.with_constraints(more=cp.sum(p["x"]) <= 9).solve(),
    "without": lambda p, _: p.without("sign").solve(),
    "whole": lambda p, _: p.with_integrality("x").solve(),
    "softened": lambda p, _: p.soften("roof", 10.0).solve(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_refuses_a_changed_parameter(verb: str, tmp_path: Path) -> None:
    p, cap, price = declared()
    VERBS[verb](p, tmp_path)
    cap.value = np.array([1.0, 5.0])
    with pytest.raises(of.DeclarationError) as e:
        VERBS[verb](p, tmp_path)
    assert "parameter 'cap'" in e.value.cause and "roof" in e.value.cause
    assert "was [1. 2.]" in e.value.cause and "is [1. 5.] now" in e.value.cause
    assert "optfair.from_cvxpy" in e.value.remedy
    cap.value = np.array([1.0, 2.0])
    VERBS[verb](p, tmp_path)
    price.value = 2.0
    with pytest.raises(of.DeclarationError, match=r"'price' in 'objective' was 1.0 .* is 2.0 now"):
        VERBS[verb](p, tmp_path)


def test_a_solution_is_not_verified_with_other_parameters() -> None:
    p, cap, _ = declared()
    s = p.solve()
    assert s.is_optimal(1e-7)
    cap.value = np.array([1.0, 5.0])
    for check in (s.residuals, s.is_optimal, s.certificate.verify):
        with pytest.raises(of.DeclarationError, match="parameter 'cap'"):
            check()
    # declared again, it has the new answer
    again = of.from_cvxpy(p.data["problem"])
    assert again.solve().objective == pytest.approx(6.0)


def test_a_witness_is_not_verified_with_other_parameters() -> None:
    weight = cp.Parameter(name="weight", value=1.0)
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(weight * x[0] * x[1]), [cp.abs(x) <= 1]))
    assert p.witness is not None and p.witness.verify()
    weight.value = 0.0
    with pytest.raises(of.DeclarationError, match="parameter 'weight'"):
        p.witness.verify()


def test_transformed_problems_remember() -> None:
    p, cap, price = declared()
    soft, dual = p.soften("roof", 10.0), dualize(p).problem
    relaxed = shor(p.with_constraints(disk=cp.sum_squares(p["x"]) <= cap[0])).problem
    for made in (soft, dual, relaxed):
        made.solve()
    cap.value = None
    for made in (soft, dual, relaxed):
        with pytest.raises(of.DeclarationError, match=r"'cap' .* and is nothing now"):
            made.solve()
    cap.value, price.value = np.array([1.0, 2.0]), 3.0
    for made in (soft, dual, relaxed):
        with pytest.raises(of.DeclarationError, match="'price'"):
            made.solve()


def test_parameters_of_terms_that_are_gone_are_forgotten() -> None:
    p, cap, _ = declared()
    limit = cp.Parameter(name="limit", value=1.5)
    q = p.with_constraints(total=cp.sum(p["x"]) <= limit)
    limit.value = 0.5
    with pytest.raises(of.DeclarationError, match="parameter 'limit' in 'total'"):
        q.solve()
    assert p.solve().objective == pytest.approx(3.0)
    assert q.without("total").solve().objective == pytest.approx(3.0)
    cap.value = cap.value + 1.0
    with pytest.raises(of.DeclarationError, match="parameter 'cap'"):
        q.without("total").solve()
    assert p.without("roof").with_constraints(roof=p["x"] <= cap).solve().objective == 5.0


def test_an_array_filled_with_other_numbers_is_a_change() -> None:
    p, cap, _ = declared()
    cap.value[1] = 7.0  # CVXPY keeps the array it was given
    with pytest.raises(of.DeclarationError, match="parameter 'cap'"):
        p.solve()
    cap.value[1] = 2.0
    assert p.solve().objective == pytest.approx(3.0)


def test_setting_the_same_value_is_no_change() -> None:
    p, cap, price = declared()
    cap.value, price.value = np.array([1, 2]), 1
    assert p.solve().objective == pytest.approx(3.0)


def test_large_parameters_are_told_by_the_entry_that_changed() -> None:
    x = cp.Variable(40, name="x")
    M = cp.Parameter((3, 40), name="M", value=np.ones((3, 40)))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [M @ x == 1, x >= 0]))
    changed = np.ones((3, 40))
    changed[1, 7] = 4.0
    M.value = changed
    with pytest.raises(of.DeclarationError, match=r"'M' in 'c0' was 1.0 at \[1, 7\] .* is 4.0 at"):
        p.solve()


def test_sparse_parameters() -> None:
    x = cp.Variable((2, 2), name="x")
    M = cp.Parameter((2, 2), name="M", sparsity=([0, 1], [0, 1]))
    M.value_sparse = sp.coo_array(np.diag([1.0, 2.0]))
    _, (frozen,) = freeze_parameters(x <= M, "c")
    assert not frozen.changed
    M.value_sparse = sp.coo_array(np.diag([1.0, 3.0]))
    assert frozen.changed and "2." in frozen.difference()[0] and "3." in frozen.difference()[1]


def test_parameters_in_bounds_of_variables() -> None:
    top = cp.Parameter(2, name="top", value=np.array([1.0, 2.0]))
    x = cp.Variable(2, name="x", bounds=[0, top])
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x))))
    assert p.solve().objective == pytest.approx(3.0)
    top.value = np.array([1.0, 4.0])
    with pytest.raises(of.DeclarationError, match="parameter 'top' in 'x upper'"):
        p.solve()


def test_a_parameter_without_a_value_is_refused() -> None:
    x = cp.Variable(name="x")
    with pytest.raises(of.DeclarationError, match="parameter 'free' in 'c0' has no value"):
        of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= cp.Parameter(name="free")]))


@cache
def _one_of_each() -> dict[str, str]:
    """Return the smallest instance of every model by model."""
    found: dict[str, str] = {}
    for path in sorted(Path(of.library.__file__).parents[2].glob("problems/*/*.toml")):
        text = path.read_text(encoding="utf-8")
        kind = re.search(r'^model = "(\w+)"', text, re.M)
        if kind and "dataset" not in text:
            found.setdefault(kind[1], f"{path.parent.name}/{path.stem}")
    return found


def test_data_of_a_model_is_given_by_name() -> None:
    p = of.library.load("textbook/minimum_variance").problem()
    assert "wanted" in p.parameters
    wanted = float(p.data["wanted"])
    q = p.with_constraints(floor=p["portfolio"] >= 0.02, most=p["portfolio"] <= 0.9)
    moved = q.at(wanted=0.9 * wanted)
    assert type(moved) is type(p) and set(moved.constraints) == set(q.constraints)
    plain = type(p)(**{**p.data, "wanted": 0.9 * wanted})
    again = plain.with_constraints(floor=plain["portfolio"] >= 0.02, most=plain["portfolio"] <= 0.9)
    assert moved.solve().objective == pytest.approx(again.solve().objective, rel=1e-7)
    assert float(q.data["wanted"]) == wanted
    # what was written on a variable of before binds, and what is gone stays gone
    bound = moved.with_constraints(late=p["portfolio"][0] >= 0.3).without("floor")
    assert bound.solve()["portfolio"][0] >= 0.3 - 1e-6
    assert "floor" not in bound.at(wanted=wanted).constraints
    with pytest.raises(of.DeclarationError, match="shape"):
        q.at(wanted=[1.0, 2.0])
    with pytest.raises(of.DeclarationError, match="transformed"):
        q.soften("floor", 3.0).at(wanted=wanted)
    d = of.sweeps.derivatives(p.solve(tolerance=1e-9), "wanted")
    assert d.objective == pytest.approx(float(p.solve().shadow_price["wanted return"]), rel=1e-5)


def test_budgets_capacities_and_centers_are_data() -> None:
    knapsack = of.library.load("textbook/knapsack").problem()
    steps = of.sweep(
        knapsack, "capacity", np.linspace(1.0, 0.5 * knapsack.data["weights"].sum(), 4)
    )
    assert steps.dependence.word == "nondecreasing"
    assert (np.diff([t.value for t in steps.points]) >= 0).all()
    diet = of.library.load("textbook/diet").problem()
    cheaper = diet.at(cost=0.5 * diet.data["cost"]).solve()
    assert cheaper.objective == pytest.approx(0.5 * diet.solve().objective, rel=1e-6)
    assert next(iter(cheaper.frame("servings").index)) == "beef"
    name = next(n for n in of.library.names() if n.startswith("action_plan/"))
    plan = of.library.load(name).problem()
    assert plan.at(budget=plan.budget + 1.0).budget == plan.budget + 1.0
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    fair = of.FairAssignment(X[:60], groups=sex[:60], centers=X[:3], fairness=of.max_gap(0.1))
    moved = fair.at(centers=X[3:6], eps=0.2)
    plain = of.FairAssignment(X[:60], groups=sex[:60], centers=X[3:6], fairness=of.max_gap(0.2))
    assert moved.solve().objective == pytest.approx(plain.solve().objective, rel=1e-7)


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
def test_a_parameter_beside_a_quadratic_of_the_wrong_curvature(sense: Any) -> None:
    """The term is analysed again at every value, and never with a parameter in it."""
    x, t = cp.Variable(2, name="x"), cp.Parameter(name="t", nonneg=True, value=1.0)
    sign = -1.0 if sense is cp.Minimize else 1.0
    p = of.from_cvxpy(
        cp.Problem(sense(sign * t * cp.sum_squares(x) + cp.sum(x)), [x >= -1, x <= 1])
    )
    assert not p.problem_class.convex and not p.at(t=2.0).problem_class.convex
    assert p.at(t=0.0).problem_class.convex
    s = p.at(t=2.0).solve()
    assert -sign * s.objective == pytest.approx(-6.0, abs=1e-5)


@pytest.mark.parametrize("model", sorted(_one_of_each()))
def test_every_model_says_its_parameters_and_axes(model: str) -> None:
    p = of.library.load(_one_of_each()[model]).problem()
    for name, own in p.parameters.items():
        assert own.name == name
        if name in p.movable:  # at its own value it is itself
            again = p.at({name: own.value})
            assert again.problem_class == p.problem_class and set(again.variables) == set(
                p.variables
            )
    for name in (*p.variables, *p.constraints):
        assert len(p.axes(name)) in (0, len({**p.variables, **p.constraints}[name].shape))
