"""The dual: same optimum, the primal's names and signs, and a verified way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.backends.endless import without_multipliers
from optfair.transforms.duality import dualize

INSTANCES = {n: of.library.load(n) for n in of.library.names()}
CONTINUOUS = [
    n
    for n, i in INSTANCES.items()
    if i.optimum is not None and not i.problem_class.startswith(("MI", "nonconvex"))
]
# matrices of order 80, and programs of many rows but for one of each class
LARGE = [
    n
    for n in CONTINUOUS
    if n.endswith(("_80", "lovasz_40", "lipschitz_german", "lipschitz_german_costs"))
    or (
        n.startswith("fair_")
        and n not in ("fair_clustering/german_k3", "fair_mixture/german_soft_balance")
    )
]
CONTINUOUS = [n for n in CONTINUOUS if n not in LARGE]
LARGE = [pytest.param(n, marks=pytest.mark.slow) for n in LARGE]
SMALL = [n for n in CONTINUOUS if n.startswith("textbook/") or "bound" in n]
DUAL_CLASS = {"QCQP": "SOCP"}  # the others keep theirs


def signed(p: Any) -> float:
    return 1.0 if p.sense == "minimize" else -1.0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*CONTINUOUS, *LARGE])
def test_strong_duality_over_the_library(name: str) -> None:
    p = INSTANCES[name].problem()
    dual = dualize(p)
    known = str(p.problem_class)
    assert str(dual.problem.problem_class) == DUAL_CLASS.get(known, known)
    assert {dual.problem.sense, p.sense} == {"minimize", "maximize"}
    s = dual.problem.solve()
    optimum = INSTANCES[name].optimum.value
    assert s.objective == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    back = dual.recover(s)
    assert back.problem is p and back.is_optimal(1e-6) and back.transforms == ("dualize",)
    assert back.objective == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    for term in p.constraints:
        assert np.shape(back.multipliers[term]) == dual.problem[term].shape
        assert np.asarray(back.multipliers[term]) == pytest.approx(np.asarray(s[term]), abs=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_the_dual_of_the_dual_has_the_same_optimum(name: str) -> None:
    p = INSTANCES[name].problem()
    twice = dualize(dualize(p).problem)
    assert twice.problem.sense == p.sense
    s = twice.problem.solve()
    assert s.objective == pytest.approx(INSTANCES[name].optimum.value, rel=1e-6, abs=1e-6)
    assert not twice.recover(s).residuals().above(1e-6)


@given(st.integers(0, 10_000), st.sampled_from(["minimize", "maximize"]))
def test_every_feasible_pair_brackets_the_optimum(seed: int, sense: str) -> None:
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 5), rng.integers(1, 4)
    x = cp.Variable(n, name="x")
    A, inside = rng.normal(size=(m, n)), rng.normal(size=n)
    F = rng.normal(size=(n, rng.integers(0, n + 1)))
    cost = cp.sum_squares(F.T @ x) / 2 + rng.normal(size=n) @ x + rng.normal()
    goal = cp.Minimize(cost) if sense == "minimize" else cp.Maximize(-cost)
    rows = [A @ x <= A @ inside + rng.random(m), x <= 5, x >= -5, x[0] + 0 == inside[0]]
    if rng.random() < 0.5:
        rows.append(cp.norm(x - inside) <= 1 + rng.random())
    p = of.from_cvxpy(cp.Problem(goal, rows), ["rows", "high", "low", "fixed", "disk"][: len(rows)])
    dual = dualize(p)
    sign = signed(p)
    s = dual.problem.solve()
    assert s.objective == pytest.approx(p.solve().objective, rel=1e-6, abs=1e-6)
    # raising both bounds' multipliers alike stays feasible, and must worsen the bound
    worse = {k: np.array(v, dtype=float) for k, v in s.values.items()}
    push = rng.random(n)
    worse["high"] = worse["high"] + push
    worse["low"] = worse["low"] + push
    assert all(t.relative_violation(worse) <= 1e-6 for t in dual.problem.constraints.values())
    loss = sign * (s.objective - dual.problem.objective_value(worse))
    assert loss == pytest.approx(10 * push.sum(), rel=1e-6)  # the width of the box


def test_names_signs_and_shadow_prices_by_hand() -> None:
    # max 3a + 2b, a + b <= 4, a + 3b <= 6, a, b >= 0: a = 4, b = 0; y = (3, 0)
    x = cp.Variable(2, name="make")
    rows = [x[0] + x[1] <= 4, x[0] + 3 * x[1] <= 6, x >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(3 * x[0] + 2 * x[1]), rows), ["wood", "steel", "sign"])
    dual = dualize(p)
    assert list(dual.problem.variables) == ["wood", "steel", "sign"]
    assert dual.problem.sense == "minimize"
    s = dual.problem.solve()
    assert s.objective == pytest.approx(12.0)
    assert (float(s["wood"]), float(s["steel"])) == pytest.approx((3.0, 0.0))
    assert s["sign"] == pytest.approx([0.0, 1.0])
    assert s.shadow_price["make"] == pytest.approx([4.0, 0.0])  # the primal solution
    back = dual.recover(s)
    assert back["make"] == pytest.approx([4.0, 0.0])
    assert float(back.shadow_price["wood"]) == pytest.approx(3.0)  # d(profit)/d(wood)
    # a dual constraint may be added by the primal's names: a price of wood of at least 3.5
    assert dual.problem.with_constraints(floor=dual.problem["wood"] >= 3.5).solve().objective == (
        pytest.approx(14.0)
    )


x = cp.Variable(3, name="x")
X = cp.Variable((2, 2), name="X", symmetric=True)
Y = cp.Variable((2, 3), name="Y")
t = cp.Variable(name="t")
Q = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]])
FORMS: dict[str, tuple[Any, list[Any]]] = {
    "constant on the left": (cp.Minimize(cp.sum(x)), [cp.Constant(1) <= x, cp.Constant(4) == cp.sum(x)]),
    "offset": (cp.Maximize(5 - cp.quad_form(x, Q) + x[0]), [cp.sum(x) == 1, x >= -2]),
    "rank one": (cp.Minimize(cp.square(x[0] + x[1]) + x[2]), [x >= -2, x <= 3]),
    "matrix": (cp.Minimize(cp.sum(cp.multiply(np.arange(6).reshape(2, 3), Y)) + cp.sum(Y)), [cp.sum(Y, axis=0) == 1, Y >= 0]),
    "cone": (cp.Minimize(t + 0.5 * x[0]), [cp.SOC(t - 1, x - 2), x == [3, 4, 5]]),
    "cones by row": (cp.Minimize(cp.sum(Y) + Y[0, 0]), [cp.norm(Y, axis=1) <= 3]),
    "semidefinite": (cp.Minimize(cp.trace(X) + X[0, 1]), [X >> np.array([[1, 0.3], [0.3, 2]]), X[0, 0] <= 5]),
    "spectral norm": (cp.Minimize(cp.norm(Y, 2) + cp.sum(Y)), [Y >= -1]),
    "largest eigenvalue": (cp.Minimize(cp.lambda_max(X) + cp.square(X[1, 1])), [X[0, 1] == 1, X[0, 0] == 2]),
    "exponential": (cp.Minimize(cp.sum(cp.exp(x)) + x[0]), [cp.sum(x) >= 1]),
    "logarithm": (cp.Maximize(cp.sum(cp.log(x))), [cp.sum(x) <= 1]),
    "geometric mean": (cp.Maximize(cp.geo_mean(x)), [cp.sum(x) <= 1]),
    "power cone": (cp.Maximize(t), [cp.PowCone3D(x[0], x[1], t, 0.3), x[0] + x[1] <= 1, x[2] >= 1]),
    "two quadratics": (cp.Minimize(cp.sum(x)), [cp.sum_squares(x) <= 1, cp.quad_form(x, Q) <= 2]),
    "piecewise linear": (cp.Minimize(cp.norm1(x - 1) + cp.norm_inf(x)), [cp.sum(x) <= 1]),
    "feasibility": (cp.Minimize(0), [x >= 1, cp.sum(x) <= 4]),
    "huber": (cp.Minimize(cp.sum(cp.huber(x - 3)) + cp.sum_squares(x[:2])), [cp.sum(x) == 1]),
    "unconstrained": (cp.Minimize(cp.sum_squares(x - 1) + cp.sum_squares(x)), []),
    "cone objects": (cp.Minimize(cp.sum(x)), [cp.constraints.NonNeg(x - 1), cp.constraints.Zero(x[0] - 2)]),
    "a variable without a term": (cp.Minimize(cp.sum(x)), [x >= 1, 0 * t <= 1]),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    p = of.from_cvxpy(cp.Problem(*FORMS[form]))
    s = p.solve()
    dual = dualize(p)
    back = dual.recover(dual.problem.solve())
    assert back.is_optimal() and back.objective == pytest.approx(s.objective, abs=1e-6)
    assert set(back.values) == set(p.variables)
    for name in p.constraints:
        assert np.shape(back.multipliers[name]) == np.shape(s.multipliers[name])
    twice = dualize(dual.problem)
    assert twice.problem.solve().objective == pytest.approx(s.objective, abs=1e-6)


UNIQUE = ["constant on the left", "offset", "cone", "semidefinite", "power cone", "huber"]


@pytest.mark.parametrize("form", [*UNIQUE, "exponential", "logarithm"])
def test_multipliers_are_those_of_the_primal_route(form: str) -> None:
    p = of.from_cvxpy(cp.Problem(*FORMS[form]))
    s, dual = p.solve(tolerance=1e-9), dualize(p)
    found = dual.problem.solve(tolerance=1e-9)
    for name, expected in s.multipliers.items():
        if form == "constant on the left" and name == "c0":
            continue  # several are optimal
        assert np.asarray(found[name]) == pytest.approx(np.asarray(expected), abs=2e-4)


def test_exponential_cone_written_by_hand() -> None:
    a, b, c = (cp.Variable(2, name=k) for k in "abc")
    rows = [cp.ExpCone(a, b, c), a == [1, 2], b == [2, 1]]
    dual = dualize(of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(c)), rows), ["cone", "a", "b"]))
    assert str(dual.problem.problem_class) == "CONIC(exp)"
    s = dual.problem.solve()
    assert s.objective == pytest.approx(2 * np.exp(0.5) + np.exp(2.0), rel=1e-7)
    assert s["cone"][2::3] == pytest.approx(1.0)  # triples (a, b, c); the cost of c is 1
    outside = {**s.values, "cone": s["cone"] - 1e-3}
    off = dual.problem.constraints["cone in dual cone"].relative_violation(outside)
    assert off > 1e-4
    assert dual.problem.constraints["cone in dual cone"].relative_violation(s.values) < 1e-7


@pytest.mark.parametrize(
    "name", ["textbook/diet", "textbook/minimum_variance", "textbook/risk_budget"]
)
def test_tampering_is_rejected(name: str) -> None:
    p = INSTANCES[name].problem()
    dual = dualize(p)
    s = dual.problem.solve()
    back = dual.recover(s)
    assert back.is_optimal(1e-6)
    for kind in ("values", "multipliers"):
        for key, value in getattr(back, kind).items():
            moved = np.array(value, dtype=float)
            moved.flat[0] += 1e-4 * (1 + abs(moved.flat[0]))
            assert not replace(back, **{kind: {**getattr(back, kind), key: moved}}).is_optimal(1e-6)
    # numbers that prove something else are no proof either
    wrong = {k: np.asarray(v) * (1 + 1e-3) for k, v in s.values.items()}
    assert not dual.recover(replace(s, values=wrong)).is_optimal(1e-6)
    lost = replace(s, multipliers={})
    with pytest.raises(of.DeclarationError, match="no multiplier"):
        dual.recover(lost)


def test_refusals() -> None:
    v = cp.Variable(2, name="v")
    integer = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v)), [v >= 0.5])).with_integrality("v")
    with pytest.raises(of.ClassError, match="'v' is integer") as e:
        dualize(integer)
    assert "relax_integrality" in e.value.remedy
    region = of.library.load("textbook/trust_region").problem()
    with pytest.raises(of.ClassError, match="'model' is not known to be convex") as e:
        dualize(region)
    assert "shor" in e.value.remedy
    free = of.from_cvxpy(cp.Problem(cp.Minimize(v[0] + cp.square(v[1])), []))
    with pytest.raises(of.Unbounded, match="no constraint limits 'v'"):
        dualize(free)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v)), [v >= 1]), ["low"])
    with pytest.raises(of.DeclarationError, match="not a solution of the dual"):
        dualize(p).recover(p.solve())


def test_an_infeasible_primal_has_an_unbounded_dual() -> None:
    v = cp.Variable(2, name="v")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v)), [v >= 1, cp.sum(v) <= 1]), ["low", "cap"])
    with pytest.raises(of.Infeasible):
        p.solve()
    with pytest.raises(of.Unbounded):
        dualize(p).problem.solve()
    q = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v)), [v <= 1]), ["high"])
    with pytest.raises(of.Infeasible):
        dualize(q).problem.solve()


@pytest.mark.parametrize("names", [("constant", "low"), ("total", "constant")])
def test_a_term_of_any_name_counts_in_the_dual(names: tuple[str, str]) -> None:
    """The constant of the objective is called so too."""
    x = cp.Variable(2, name="x")
    rows = [x[0] + x[1] >= 4, x >= 1]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + 2 * x[1] + 7), rows), list(names))
    assert dualize(p).problem.solve().objective == pytest.approx(12.0)


def test_multipliers_that_an_epigraph_adds_have_names_of_their_own() -> None:
    x = cp.Variable(2, name="x")
    rows = [cp.norm1(x) <= 2, cp.norm(x - 1) + cp.norm(x) <= 4, x >= -5]
    for name in ("a inequalities", "b cone"):
        p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] - 2 * x[1]), rows), ["a", "b", name])
        dual = dualize(p)
        t = dual.recover(dual.problem.solve())
        assert t.is_optimal(1e-6) and t.objective == pytest.approx(-4.0, abs=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("solver", [None, "highs"])
@pytest.mark.parametrize("cost", [1e-6, 1e-10, 1e-14])
@pytest.mark.parametrize("curved", [False, True])
def test_the_dual_of_small_costs_is_in_their_unit(
    curved: bool, cost: float, solver: str | None
) -> None:
    """Its sides are the costs; those of a square are 0, and its curvature tells the unit."""
    x = cp.Variable(3, name="x")
    rows = [x[0] + 2 * x[1] >= 3, x[1] + x[2] >= 2, x[0] + x[2] <= 4, x >= 0]
    goal = cp.sum_squares(x) if curved else 4 * x[0] + 6 * x[1] + 3 * x[2]
    dual = dualize(of.from_cvxpy(cp.Problem(cp.Minimize(cost * goal), rows)))
    s = dual.problem.solve(solver)
    optimum = cost * (7.0 / 3.0 if curved else 10.5)
    assert s.is_optimal(1e-7) and s.objective == pytest.approx(optimum, rel=1e-6)
    assert dual.recover(s).objective == pytest.approx(optimum, rel=1e-6)


def test_the_price_of_a_cone_of_one_row_is_not_negative() -> None:
    """Of t/2 where t - 1 is at least the length of nothing it is 1/2."""
    t = cp.Variable(name="t")
    head = cp.SOC(t - 1, cp.Constant(np.zeros(0)))
    dual = dualize(of.from_cvxpy(cp.Problem(cp.Minimize(0.5 * t), [head]), ["head"]))
    s = dual.problem.solve()
    assert s.objective == pytest.approx(0.5) and s["head"] == pytest.approx(0.5)
    below = dualize(of.from_cvxpy(cp.Problem(cp.Maximize(0.5 * t), [head]), ["head"]))
    with pytest.raises(of.Infeasible):
        below.problem.solve()


def test_what_epigraphs_add_is_called_by_its_term_and_cone() -> None:
    x, Y = cp.Variable(3, name="x"), cp.Variable((2, 3), name="Y")
    goal = cp.Minimize(cp.norm(x) + cp.norm(Y, 2) + cp.norm(Y - 1, 2))
    dual = dualize(of.from_cvxpy(cp.Problem(goal, [cp.sum(x) >= 1]), ["row"])).problem
    added = {"objective cone", "objective matrix", "objective matrix 2"}
    assert {*dual.variables} == {"row"} | added


def test_the_unit_of_multipliers_is_that_of_costs() -> None:
    x = cp.Variable(2, name="x")

    def unit(cost: float) -> float:
        goal = cp.Minimize(cost * (3 * x[0] + 2 * x[1]))
        return float(dualize(of.from_cvxpy(cp.Problem(goal, [x >= 1]))).problem.data_unit)

    assert unit(1e-8) == pytest.approx(1e-6 * unit(1e-2), rel=1e-9) and unit(1e-2) < 1.0
    assert unit(1e9) == unit(0.0) == 1.0


def test_no_multipliers_say_nothing_of_integers() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(cp.log(x))), [x >= 0.5]))
    found = without_multipliers(p)
    assert found is not None and found.certificate is not None and found.certificate.verify()
    proof: Any = found.certificate
    assert not replace(proof, problem=p.with_integrality("x")).verify()
    assert not replace(proof, problem=p.with_constraints(top=x <= 2)).verify()


def test_a_dual_reads_as_in_a_textbook() -> None:
    x, A = cp.Variable(3, name="x"), np.arange(12.0).reshape(4, 3)
    rows = [A @ x >= 1, x[0] + x[1] == 2, x >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize([1, 2, 3] @ x), rows), ["cap", "fixed", "sign"])
    shown = dualize(p).problem._repr_latex_()
    assert r"\max\quad & \mathbf 1^\top\, y_{\mathrm{cap}} - 2\, y_{\mathrm{fixed}} &&" in shown
    stationary = r"A_{\mathrm{cap}}^\top\, y_{\mathrm{cap}} + (1, 1, 0)\, y_{\mathrm{fixed}} - y_{\mathrm{sign}} = (-1, -2, -3)"
    assert stationary in shown and r"y_{\mathrm{sign}} \ge 0" in shown and "+ -" not in shown
    X = cp.Variable((2, 2), PSD=True, name="X")
    goal = cp.Minimize(cp.trace(X) + cp.sum_squares(x) + cp.norm(x) + cp.exp(x[0]) + 5)
    q = of.from_cvxpy(cp.Problem(goal, [X[0, 1] >= 1 + x[0]]), ["off"])
    shown = dualize(q).problem._repr_latex_()
    assert r"- \tfrac12 \|u_{\mathrm{objective}}\|_2^2 + 5" in shown
    assert r"Y_{\mathrm{X\ psd}} \succeq 0" in shown and r"\in \mathcal K_{\mathrm{soc}}" in shown
    assert r"\in \mathcal K^*_{\mathrm{exp}}" in shown and "-1\\," not in shown
