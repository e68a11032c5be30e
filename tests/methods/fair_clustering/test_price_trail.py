"""Prices at factors of costs: those found forecast others, and so few assignments are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.methods.fair_clustering.algorithms import charged_rows
from optfair.methods.fair_clustering.algorithms.charged_rows import Demands, Point, weighed
from optfair.methods.fair_clustering.algorithms.mass_program import PriceTrail
from optfair.methods.fair_clustering.mass_rules import compile_rules

RULE = of.max_gap(0.1)


def program(rule: Any = RULE, groups: int = 3, clusters: int = 4) -> Any:
    X = np.arange(24.0)[:, None]
    p = of.FairAssignment(X, groups=np.arange(24) % groups, centers=X[:clusters], fairness=rule)
    return compile_rules(p).program


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_quotients_that_are_linear_in_the_factors_are_forecast(unit: float, factor: float) -> None:
    trail, rng = PriceTrail(program()), np.random.default_rng(0)
    at, slope = rng.normal(size=(3, 4)), rng.normal(size=(3, 4, 3))
    assert trail.at(np.ones(3) * factor) is None

    def prices(f: Any) -> Any:
        return unit * f[:, None] * (at + slope @ (f / factor))

    found = factor * (np.ones(3) + 0.1 * np.eye(3)[[0, 1, 2, 2]] * [[1], [1], [1], [-1]])
    for f in found:
        trail.add(f, prices(f))
    for share in rng.dirichlet(np.ones(4), 5):
        f = share @ found
        np.testing.assert_allclose(trail.at(f), prices(f), rtol=1e-9, atol=1e-9 * unit * factor)


def test_a_forecast_goes_a_little_beyond_what_was_found_and_obeys_equations() -> None:
    trail = PriceTrail(program(of.perfect_fairness()))
    for f, k in ((1.0, 0.0), (1.01, 1.0)):
        trail.add(np.array([f, 1.0, 1.0]), k * np.ones((3, 4)))
    far = trail.at(np.array([9.0, 1.0, 1.0]))
    assert far is not None and np.abs(far).max() <= 9.0 * 3.0
    weighed = np.full(3, 1.0 / 3.0) @ far  # prices that perfect fairness has
    np.testing.assert_allclose(weighed, 0.0, atol=1e-12)


def test_prices_that_say_nothing_are_not_kept() -> None:
    trail = PriceTrail(program())
    trail.add(np.array([1e-7, 1.0, 1.0]), np.zeros((3, 4)))
    trail.add(np.ones(3), np.full((3, 4), np.nan))
    assert trail.at(np.ones(3)) is None
    for k in range(9):
        trail.add(np.ones(3), np.full((3, 4), float(k)))
    np.testing.assert_array_equal(trail.at(np.ones(3)), np.full((3, 4), 8.0))
    assert len(trail.known) == 4


def test_a_gap_of_part_of_what_was_gained_is_enough() -> None:
    def least(factors: Any) -> tuple[float, Point]:
        prices = 0.5 * factors
        slope = np.sqrt(prices[1] / prices[0])
        costs = 6.0 + np.array([slope, 1.0 / slope])
        return float(prices @ costs), Point(costs, 0.0, None)

    stated: Any = np.array([0.5, 0.5]), Demands(worst=True), np.array([[0.2, 0.8], [0.0, 0.0]])
    ended = [
        weighed(
            least,
            [least(np.array([0.4, 1.6]))[1]],
            *stated,
            overdraft=1e3,
            tolerance=1e-9,
            deadline=np.inf,
            above=above,
        )
        for above in (-np.inf, 8.0)
    ]
    assert ended[0].value - ended[0].bound <= 1e-8
    rest = ended[1].value - ended[1].bound
    assert 0.0 <= rest <= charged_rows.GAINED * (8.0 - ended[1].value)
    assert len(ended[1].parts) < len(ended[0].parts) or rest > 1e-8


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_few_assignments_are_asked_for_while_centers_move(
    unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    g = rng.integers(0, 4, 4000)
    X = (rng.normal(size=(4000, 8)) + 0.5 * rng.normal(size=(4, 8))[g]) * unit
    made, solve = [0], charged_rows.solve_mass_dual

    def counted(*given: Any, **more: Any) -> Any:
        made[0] += 1
        return solve(*given, **more)

    monkeypatch.setattr(charged_rows, "solve_mass_dual", counted)
    model = of.FairKMeans(5, fairness=of.max_gap(0.1), goal="group", init=X[:5], tol=1e-4).fit(
        X, groups=g
    )
    assert made[0] <= 5 * model.n_iter_
    assert model.gap_ <= 1e-7 and (np.diff(model.history_) <= 0.0).all()
