"""Closed-form answers and bad input of the textbook problems beyond the first ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

import optfair as of
from optfair.methods.textbook.allocation import CobbDouglas, RobustKnapsack, Transport, WaterFilling
from optfair.methods.textbook.estimation import CardinalityPortfolio, IntegerLeastSquares
from optfair.methods.textbook.geometry import ChebyshevCenter, LovaszTheta, MaxCutRelaxation


def instance(name):
    return of.library.load(f"textbook/{name}")


@pytest.mark.parametrize(("prices", "budget", "share"), [([1.0, 4.0], 12.0, 0.5), ([3, 7], 5, 0.9)])
def test_shares_of_the_budget_are_the_exponents(prices, budget, share):
    s = CobbDouglas(prices=prices, budget=budget, share=share).solve(tolerance=1e-8)
    goods = np.array([share, 1 - share]) * budget / np.array(prices)
    np.testing.assert_allclose(s["goods"], goods, rtol=1e-4)
    best = goods[0] ** share * goods[1] ** (1 - share)
    assert s.objective == pytest.approx(best, rel=1e-8)
    # utility grows in proportion to the budget
    assert float(s.shadow_price["budget"]) == pytest.approx(best / budget, rel=1e-5)


def test_water_stands_at_one_level():
    noise = np.array([0.5, 3.0, 1.0, 9.0, 2.0])
    p = WaterFilling(noise=noise, power=4.0)
    levels = np.linspace(0.5, 10.0, 200_001)
    level = levels[np.argmin(np.abs(np.maximum(0, levels[:, None] - noise).sum(axis=1) - 4.0))]
    s = p.solve(tolerance=1e-8)
    np.testing.assert_allclose(s["powers"], np.maximum(0.0, level - noise), atol=1e-3)
    assert float(s.shadow_price["power"]) == pytest.approx(1.0 / level, abs=1e-4)
    assert instance("water_filling").optimum.value == pytest.approx(np.log(45.0), rel=1e-12)


def test_transport_matches_another_code():
    p = instance("transport").problem()
    C, s, d = (p.data[k] for k in ("cost", "supply", "demand"))
    m, n = C.shape
    ships, arrives = np.kron(np.eye(m), np.ones(n)), np.kron(np.ones(m), np.eye(n))
    peer = linprog(C.ravel(), np.vstack([ships, -arrives]), np.concatenate([s, -d]))
    assert peer.fun == pytest.approx(153.675, rel=1e-12) == p.solve().objective


def test_theta_lies_between_the_independent_sets_and_the_cliques():
    assert instance("lovasz_pentagon").optimum.value == pytest.approx(np.sqrt(5.0), rel=1e-14)
    square = [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]
    # the square is perfect: two opposite corners
    assert LovaszTheta(adjacency=square).solve().objective == pytest.approx(2.0, abs=1e-6)
    petersen = (np.array(instance("max_cut_petersen").data["weights"]) != 0).astype(float)
    assert LovaszTheta(adjacency=petersen).solve().objective == pytest.approx(4.0, abs=1e-6)


def test_cut_of_the_petersen_graph_by_eigenvalue_and_enumeration():
    p = instance("max_cut_petersen").problem()
    W = p.data["weights"]
    assert (W.sum(axis=0) == 3).all()
    assert np.linalg.eigvalsh(np.diag(W.sum(axis=0)) - W)[-1] * 10 / 4 == pytest.approx(12.5)
    cuts = (
        (W * (1 - np.outer(s, s))).sum() / 4
        for s in map(np.array, product((-1, 1), repeat=9))
        for s in [np.append(s, 1)]
    )
    assert max(cuts) == 12 <= MaxCutRelaxation(weights=W).solve().objective


def test_inscribed_circle():
    s = instance("chebyshev_triangle").problem().solve()
    np.testing.assert_allclose(s["center"], [1.0, 1.0], atol=1e-9)
    # area over half the circumference
    assert s.objective == pytest.approx(6.0 / 6.0, abs=1e-9)


def test_robust_choice_by_enumeration():
    p = instance("robust_knapsack").problem()
    d = p.data
    best = max(
        float(d["values"] @ x)
        for x in map(np.array, product((0, 1), repeat=10))
        if d["weights"] @ x + d["size"] * np.linalg.norm(d["deviations"] * x) <= d["capacity"]
    )
    assert best == instance("robust_knapsack").optimum.value
    # certainty is worth something here: the same items without deviations
    assert best < of.library.load("textbook/knapsack").optimum.value


def test_rounding_the_relaxation_misses_the_lattice_point():
    p = instance("integer_least_squares").problem()
    A, b = p.data["A"], p.data["b"]
    rounded = np.round(np.linalg.lstsq(A, b, rcond=None)[0])
    assert np.sum((A @ rounded - b) ** 2) == 55.0
    grid = np.array(list(product(range(-3, 4), repeat=4)))
    assert ((grid @ A.T - b) ** 2).sum(axis=1).min() == 45.0
    assert instance("integer_least_squares").optimum.value == 45.0


def test_few_assets_cost_variance():
    few = instance("cardinality_portfolio").optimum.value
    free = of.library.load("textbook/minimum_variance").optimum.value
    assert few > free
    d = dict(instance("cardinality_portfolio").data) | {"most": 5}
    from optfair.library.certification import enumerated

    assert enumerated(CardinalityPortfolio(**d), 1e-8).objective == pytest.approx(free, rel=1e-7)


def test_published_optima():
    """Numbers that others printed."""
    published = {
        "knapsack_p02": 51,
        "knapsack_p03": 150,
        "knapsack_p04": 107,
        "knapsack_p06": 1735,
        "transport": 153.675,
        "diet_whole": 119.30,
    }
    for name, value in published.items():
        assert instance(name).optimum.value == value


eye = np.eye(2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CobbDouglas(prices=[1, 0], budget=1, share=0.5), "a price is 0"),
        (lambda: CobbDouglas(prices=[1, 1], budget=1, share=1.0), "share 1 is not below 1"),
        (lambda: CobbDouglas(prices=[1, 1, 1], budget=1, share=0.5), "prices has shape"),
        (lambda: WaterFilling(noise=[1, 0], power=1), "noise has entries that are not positive"),
        (lambda: WaterFilling(noise=[1, 1], power=-1), "power is -1, not a positive"),
        (lambda: Transport(cost=eye, supply=[1, 1], demand=[2, 1]), "demand exceeds supply"),
        (lambda: Transport(cost=eye, supply=[1], demand=[1, 1]), "supply has shape"),
        (lambda: LovaszTheta(adjacency=[[0, 2], [2, 0]]), "not that of a graph"),
        (lambda: LovaszTheta(adjacency=[[0, 0], [0, 0]]), "not that of a graph"),
        (lambda: ChebyshevCenter(A=eye, b=[1]), "b has shape"),
        (
            lambda: RobustKnapsack(values=[1], weights=[1], deviations=[-1], capacity=1, size=1),
            "deviations has negative",
        ),
        (
            lambda: RobustKnapsack(values=[1], weights=[1], deviations=[1], capacity=1, size=0),
            "size is 0, not a positive",
        ),
        (lambda: IntegerLeastSquares(A=eye, b=[1, 1], lower=1, upper=0), "lower 1 is above"),
        (
            lambda: CardinalityPortfolio(returns=[1, 1], covariance=eye, wanted=0, most=0),
            "most is 0",
        ),
        (
            lambda: CardinalityPortfolio(returns=[1, 1], covariance=eye, wanted=0, most=1.5),
            "most is 1.5",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(of.DataError, match=message):
        make()


@pytest.mark.parametrize("unit", [1e-7, 1e-5, 1e-3, 1e5])
def test_whole_coefficients_are_the_best_in_any_units(unit: float) -> None:
    rng = np.random.default_rng(3)
    A = rng.normal(size=(4, 4)) * unit
    b = A @ np.array([1, -2, 0, 3]) + rng.normal(size=4) * 0.01 * unit
    s = of.textbook.IntegerLeastSquares(A=A, b=b, lower=-3, upper=3).solve()
    every = np.array(list(product(range(-3, 4), repeat=4)))
    least = np.square(every @ A.T - b).sum(axis=1)
    assert np.round(s["coefficients"]).tolist() == every[least.argmin()].tolist()
    assert s.objective == pytest.approx(least.min(), rel=1e-6)
    assert abs(s.objective - s.bound) <= 1e-5 * unit**2
