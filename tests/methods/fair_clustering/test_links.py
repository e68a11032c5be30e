"""Links between rows: what is proved with rules that have auxiliaries, and units of uneven weights."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.errors import SolverFailure

fc = of.fair_clustering


@pytest.mark.parametrize("rule", [of.max_gap(0.05), of.additive_gap(0.2)], ids=["max", "additive"])
def test_rows_kept_apart_are_proved_with_the_auxiliaries_of_their_own_masses(rule: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(6):
        X, pairs = rng.normal(size=(30, 2)), rng.permutation(30)[:8].reshape(4, 2)
        groups = np.concatenate([np.arange(4), rng.integers(0, 4, 26)])
        rules = [rule, fc.cannot_link(pairs)]
        p = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=rules)
        solution = p.solve("mass-dual")
        assert bool(solution.certificate.verify())
        assert solution.objective == pytest.approx(p.solve("highs").objective, rel=1e-7)


def test_units_whose_shares_of_groups_are_no_short_fractions_obey() -> None:
    X = np.array([[-0.2, 0.6], [-0.8, -0.9], [0.6, 0.6], [-0.4, 1.5], [0.0, 1.7], [0.1, 1.7]])
    p = of.FairAssignment(
        X,
        groups=[0, 2, 0, 1, 2, 2],
        centers=X[3:],
        sample_weight=[4.0, 3.0, 4.0, 3.0, 1.0, 5.0],
        fairness=[of.perfect_fairness(), fc.must_link([[0, 2], [2, 3]])],
    )
    solution = p.solve("mass-dual")
    assert bool(solution.certificate.verify())
    assert solution.objective == pytest.approx(p.solve("highs").objective, rel=1e-9)


def weightless(seed: int, unit: float, budget: bool) -> Any:
    """Rows with links, of which a third weighs nothing: linked to each other, to others, or to none."""
    rng = np.random.default_rng(seed)
    n = 24
    D, g = unit * rng.exponential(size=(n, 4)), np.arange(n) % 2
    w = np.where(rng.random(n) < 1 / 3, 0.0, rng.integers(1, 4, n).astype(float))
    w[:2] = 1.0  # no group weighs nothing
    pairs = rng.permutation(n)[:16].reshape(-1, 2)
    rules: dict[str, Any] = {
        "gap": of.max_gap(0.1),
        "together": fc.must_link(pairs[:4]),
        "apart": fc.cannot_link(pairs[4:]),
    }
    if budget:
        rules["budget"] = fc.group_cost(3.0 * unit)
    return of.FairAssignment(costs=D, groups=g, sample_weight=w, fairness=rules)


@pytest.mark.parametrize("budget", [False, True])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("seed", range(4))
def test_rows_without_weight_obey_links(seed: int, unit: float, budget: bool) -> None:
    p = weightless(seed, unit, budget)
    s = p.solve("mass-dual")
    exact = p.solve("highs")
    assert s.objective == pytest.approx(exact.objective, rel=1e-7)
    assert s.is_optimal(1e-7) and s.grade.sound
    values = {"assignment": s["assignment"], "masses": s["masses"]}
    for term in p.links.values():
        assert term.violations(values)[0] <= 1e-9
    again = pickle.loads(pickle.dumps(s))
    assert again.is_optimal(1e-7) and again.residuals().consistency <= 1e-12


def test_rows_without_weight_that_no_room_is_left_for_go_to_another_solver() -> None:
    # rows 1 to 3 are best in clusters of their own, and row 0 may be with none of them
    D = np.ones((6, 3))
    D[[1, 2, 3], [0, 1, 2]] = 0.0
    w = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    apart = fc.cannot_link([[0, 1], [0, 2], [0, 3]])
    p = of.FairAssignment(costs=D, groups=list("ababab"), sample_weight=w, fairness=apart)
    with pytest.raises(SolverFailure, match="leave them no room"):
        p.solve("mass-dual")
    s = p.solve()
    assert s.solver != "mass-dual" and s.is_optimal(1e-7)
    assert p.links[next(iter(p.links))].violations({"assignment": s["assignment"]})[0] <= 1e-9


def test_fits_take_rows_without_weight_beside_links_and_budgets() -> None:
    rng = np.random.default_rng(0)
    X, g, w = rng.normal(size=(60, 2)), np.arange(60) % 2, np.ones(60)
    w[[0, 4, 5]] = 0.0
    links = {
        "together": fc.must_link([[4, 5], [6, 7]]),
        "apart": fc.cannot_link([[0, 1], [2, 3]]),
        "budget": fc.group_cost(1e3),
    }
    model = of.FairKMeans(3, fairness=[of.max_gap(0.05), *links.values()], n_init=1, random_state=0)
    A = model.fit(X, groups=g, sample_weight=w).soft_assignment_
    assert np.abs(A[4] - A[5]).max() <= 1e-9 and (A[0] + A[1]).max() <= 1 + 1e-9
    assert model.gap_ <= 1e-7
