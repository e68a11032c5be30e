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


def _cones() -> dict[str, tuple[cp.Problem, float, dict[str, Any]]]:
    """Return problems with cones, their optima and their unique multipliers, from CVXPY and MOSEK's manual."""
    x, y, s = cp.Variable(3, name="x"), cp.Variable(name="y"), cp.Variable(3, name="s")
    X, Y = (cp.Variable((n, n), symmetric=True, name=m) for n, m in [(2, "X"), (4, "Y")])
    linear = 3 * x[0] + 2 * x[1] + x[2]
    root, one = np.sqrt(2.0), np.ones(3)
    turned = np.array([[1.0, 1.0], [-0.5, 0.5]])
    lengths = cp.vstack([turned @ x[:2], x[:2], np.diag([0.2, 1.8]) @ x[:2]])
    sigma = np.array([[1.83, 1.79, 3.22], [1.79, 2.18, 3.18], [3.22, 3.18, 8.69]])
    risk = cp.norm(np.linalg.cholesky(sigma).T @ x)
    means = cp.hstack([x[0], x[2]]), cp.hstack([x[1], 1.0])
    A = np.array([[0, 1, 0, 0], [1, -1, 0, 0], [0, 0, 0, 0], [0, 0, 0, -3]])
    C = np.array([[1, -3, 0, 0], [-3, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    assert np.allclose(turned, np.diag([root, 1 / root]) @ (np.array([[1, 1], [-1, 1]]) / root))
    return {
        "one second-order cone": (
            cp.Problem(cp.Minimize(linear), [cp.SOC(y, x), x[0] + x[1] + 3 * x[2] >= 1, y <= 5]),
            -13.548638904,
            {"c0": [2.865603, 2.220626, 1.220626, -1.338123], "c1": 0.779397, "c2": 2.865603},
        ),
        "three second-order cones": (
            cp.Problem(cp.Minimize(2 * x[1] - x[0]), [cp.SOC(one, lengths, axis=1)]),
            -1.932105,
            {"c0": [0, 0, 0, 1.164545, -0.974312, 0.637872, 0.767560, -0.128441, 0.756738]},
        ),
        "an exponential cone": (
            cp.Problem(
                cp.Minimize(linear),
                [cp.sum(x) <= 1, cp.sum(x) >= 0.1, x >= 0, cp.ExpCone(x[2], x[1], x[0])],
            ),
            0.235348206,
            {"c0": 0, "c1": 2.353482, "c2": [0, 0, 0], "c3": [-1.353482, -0.353482, 0.646518]},
        ),
        "three exponential cones": (
            cp.Problem(
                cp.Minimize(y - 0.75 * cp.sum(s)), [risk <= y, cp.ExpCone(s, cp.Constant(one), x)]
            ),
            4.0751197,
            {
                "c0": 1.0,
                "c1": [-0.75, -1.16363, 1.3019, -0.75, -1.20777, 1.38082, -0.75, -1.70371, 2.67496],
            },
        ),
        "two power cones": (
            cp.Problem(
                cp.Minimize(x[0] - s[0] - s[1]),
                [x[0] + x[1] + 0.5 * x[2] == 2, cp.PowCone3D(*means, s[:2], [0.2, 0.4])],
            ),
            -1.807340679,
            {"c0": 0.484664, "c1": [[1.484664, 0.242332], [0.484664, 0.838013], [-1, -1]]},
        ),
        "two semidefinite matrices": (
            cp.Problem(
                cp.Minimize(X[0, 0] + 6 * X[1, 1] + cp.trace(C @ Y)),
                [
                    cp.trace(np.array([[1, 1], [1, 2]]) @ X) + cp.trace(A @ Y) == 23,
                    Y[0, 1] <= -3,
                    X >> 0,
                    Y >> 0,
                ],
            ),
            52.40127214,
            {
                "c0": -0.837722,
                "c1": 11.044553,
                "c2": [[0.162278, -0.837722], [-0.837722, 4.324555]],
                "c3": [
                    [1, 1.684554, 0, 0],
                    [1.684554, 2.837722, 0, 0],
                    [0, 0, 1, 0],
                    [0, 0, 0, 2.513167],
                ],
            },
        ),
    }


@pytest.mark.parametrize("name", _cones())
def test_cones_of_each_kind_one_or_several_in_a_constraint(name: str) -> None:
    problem, optimum, prices = _cones()[name]
    solution = of.from_cvxpy(problem).solve()
    assert solution.grade.word == "proved"
    assert solution.objective == pytest.approx(optimum, abs=1e-5)
    for row, price in prices.items():
        assert np.shape(solution.multipliers[row]) == np.shape(price)
        np.testing.assert_allclose(solution.multipliers[row], price, atol=1e-3)
