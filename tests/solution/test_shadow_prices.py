"""Shadow prices are derivatives: every route, by perturbing the right-hand side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of

STEP = 1e-4
Forms = dict[str, Callable[[Any, float], Any]]

SCALAR: Forms = {
    "x == b": lambda x, b: x == b,
    "b == x": lambda x, b: cp.Constant(b) == x,
    "x <= b": lambda x, b: x <= b,
    "b >= x": lambda x, b: cp.Constant(b) >= x,
    "x >= b": lambda x, b: x >= b,
    "b <= x": lambda x, b: cp.Constant(b) <= x,
}


@pytest.mark.parametrize("solver", ["highs", "clarabel", "scs"])
@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("form", SCALAR)
def test_scalar_forms(form: str, sense: Any, solver: str) -> None:
    x = cp.Variable(name="x")

    def solved(b: float) -> of.Solution:
        problem = cp.Problem(sense(2 * x), [SCALAR[form](x, b), x <= 90, x >= -90])
        return of.from_cvxpy(problem, ["c", "u", "l"]).solve(solver, tolerance=1e-6)

    change = (solved(3.0 + STEP).objective - solved(3.0 - STEP).objective) / (2 * STEP)
    price = float(solved(3.0).shadow_price["c"])
    assert price == pytest.approx(change, abs=2e-2 if solver == "scs" else 1e-4)


def test_matrix_and_cone_forms() -> None:
    X = cp.Variable((2, 2), name="X", symmetric=True)
    B = np.array([[1.0, 0.3], [0.3, 2.0]])

    def psd(shift: Any) -> of.Solution:
        problem = cp.Problem(cp.Minimize(cp.trace(X) + X[0, 1]), [X - (B + shift) >> 0])
        return of.from_cvxpy(problem, ["psd"]).solve(tolerance=1e-8)

    base = psd(0.0)
    for i, j in ((0, 0), (0, 1), (1, 1)):
        E = np.zeros((2, 2))
        E[i, j] = E[j, i] = STEP
        change = (psd(E).objective - psd(-E).objective) / (2 * STEP)
        price = base.shadow_price["psd"]
        assert float((price * (E != 0)).sum()) == pytest.approx(change, abs=1e-4)

    y, t = cp.Variable(2, name="y"), cp.Variable(name="t")

    def cone(d: float, e: Any) -> of.Solution:
        problem = cp.Problem(cp.Minimize(t + 0.5 * y[0]), [cp.SOC(t - d, y - e), y == [3, 4]])
        return of.from_cvxpy(problem, ["cone", "point"]).solve(tolerance=1e-8)

    price = cone(0.0, np.zeros(2)).shadow_price["cone"]
    moves = [(STEP, np.zeros(2)), (0.0, np.array([STEP, 0])), (0.0, np.array([0, STEP]))]
    for i, (d, e) in enumerate(moves):
        change = (cone(d, e).objective - cone(-d, -e).objective) / (2 * STEP)
        assert price[i] == pytest.approx(change, abs=1e-4)


def masses_problem(eps: float = 0.12, low: float = 0.15, rows: int = 60) -> Any:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(rows, 2))
    groups = rng.integers(0, 2, rows)
    X[groups == 1] += 0.7
    p = of.FairAssignment(X, groups=groups, centers=X[:4], fairness=None)
    return p.with_constraints(gap=of.additive_gap(eps), share=of.cluster_share(lower=low))


@pytest.mark.parametrize("solver", ["mass-dual", "highs", "clarabel"])
def test_rules_on_masses(solver: str) -> None:
    s = masses_problem().solve(solver)
    h = 1e-5
    up, down = (
        masses_problem(eps=0.12 + h).solve(solver),
        masses_problem(eps=0.12 - h).solve(solver),
    )
    assert float(s.shadow_price["gap"].sum()) == pytest.approx(
        (up.objective - down.objective) / (2 * h), abs=1e-3
    )
    assert float(s.shadow_price["gap"].sum()) < 0  # a larger gap is cheaper
    up, down = (
        masses_problem(low=0.15 + h).solve(solver),
        masses_problem(low=0.15 - h).solve(solver),
    )
    assert float(s.shadow_price["share.lower"].sum()) == pytest.approx(
        (up.objective - down.objective) / (2 * h), abs=1e-3
    )


def test_marginals_of_a_coupling() -> None:
    rng = np.random.default_rng(0)
    C = rng.random((4, 5))
    a = np.full(4, 0.25)

    def optimum(shift: np.ndarray[Any, Any]) -> of.Solution:
        b = np.full(5, 0.2) + shift
        return of.KantorovichCoupling(cost=C, a=a, b=b).solve()

    shift = np.array([STEP, -STEP, 0, 0, 0])
    change = (optimum(shift).objective - optimum(-shift).objective) / (2 * STEP)
    s = optimum(np.zeros(5))
    assert s.solver == "pot-network-simplex"
    price = s.shadow_price["column marginal"]
    assert price[0] - price[1] == pytest.approx(change, abs=1e-9)


@pytest.mark.parametrize("square", [cp.sum_squares, lambda x: cp.quad_form(x, np.eye(2))])
def test_the_price_of_one_row_has_the_shape_of_the_row(square: Any) -> None:
    x = cp.Variable(2, name="x")
    s = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), [square(x) <= 2]), ["c"]).solve()
    assert s.multipliers["c"].shape == s.shadow_price["c"].shape == ()
    assert s.frame("c").to_numpy().item() == pytest.approx(0.5)


def test_a_wrong_name_is_no_lack_of_multipliers() -> None:
    x, k = cp.Variable(name="x"), cp.Variable(name="k", integer=True)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1, x <= 3]), ["floor", "roof"]).solve()
    with pytest.raises(of.DeclarationError, match="did you mean 'floor'") as caught:
        s.shadow_price["flor"]
    assert "multipliers" not in str(caught.value)  # the solver left those of every constraint
    one = replace(s, multipliers={"roof": s.multipliers["roof"]})
    with pytest.raises(of.DeclarationError, match="highs leaves no multipliers"):
        one.shadow_price["floor"]
    whole = of.from_cvxpy(cp.Problem(cp.Minimize(k), [k >= 0.5]), ["floor"]).solve()
    with pytest.raises(of.DeclarationError, match="prices are of convex programs"):
        whole.shadow_price["flor"]
