"""Prices at falling temperatures: near the optimal ones, whatever the rules."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair.methods.fair_clustering.algorithms import price_search
from optfair.methods.fair_clustering.algorithms.costs import CostRows, typical_margin
from optfair.methods.fair_clustering.algorithms.price_search import (
    LEAST_LOG,
    SmoothedRows,
    smoothed_prices,
    thinned,
)
from optfair.methods.fair_clustering.algorithms.pricing import _classes, _ranked, mass_pass, price
from optfair.methods.fair_clustering.mass_rules import compile_rules

RULES = {
    "perfect": of.perfect_fairness(),
    "max gap": of.max_gap(0.05),
    "balance": of.balance(0.5),
    "additive": of.additive_gap(0.1),
    "share": of.cluster_share(lower=0.1),
}


def case(n: int = 4_000, groups: int = 4, clusters: int = 9, **options: object):
    rng = np.random.default_rng(0)
    g = rng.integers(0, groups, n)
    X = rng.normal(size=(n, 3)) + 0.7 * rng.normal(size=(groups, 3))[g]
    return of.FairAssignment(X, groups=g, centers=X[:clusters], **options)


def start(p):
    program = compile_rules(p).program
    costs = CostRows(p.cost, p.data["groups"], p.data["weights"])
    zero = np.zeros(program.masses.shape)
    found = smoothed_prices(
        program, thinned(costs, 2_000), lambda tau: SmoothedRows(costs, tau), costs.size, zero
    )
    return costs, None if found is None else found[0]


def test_lines_without_regrets_open_every_arc():
    assert np.isinf(_ranked(np.zeros((2, 0)), np.array([1.0, 5.0]))).all()
    assert _ranked(np.array([[3.0, 1.0]]), np.array([0.5])).tolist() == [1.5]


def test_several_ranks_of_lines_are_those_of_sorted_ones() -> None:
    rng = np.random.default_rng(0)
    regrets, ranks = rng.exponential(size=(7, 40)), np.array([1.0, 0.3, 5.0, 39.0, 40.0, 12.7, 2.0])
    ordered = np.sort(regrets, axis=1)
    at = np.maximum(ranks, 1.0).astype(int)
    expected = [np.inf if j == 40 else ordered[i, j] for i, j in enumerate(at)]
    assert _ranked(regrets, ranks) == pytest.approx(np.minimum(ranks, 1.0) * expected)


def test_rows_are_of_one_class_where_all_their_regrets_are_equal() -> None:
    rng = np.random.default_rng(0)
    keys, groups = rng.integers(0, 3, (3, 300)).astype(float), np.sort(rng.integers(0, 2, 300))
    members, first = _classes(groups, keys)
    whole = np.vstack([groups, keys])
    assert np.unique(whole, axis=1).shape[1] == first.size < 300
    assert np.array_equal(whole[:, first[members]], whole)
    assert (np.diff(first) > 0).all()  # by group, as the rows


def test_no_fraction_is_too_small_for_fast_products() -> None:
    p = case()
    costs = CostRows(p.cost, p.data["groups"], p.data["weights"])
    tau = 0.01 * typical_margin(costs)
    rows, zero = SmoothedRows(costs, tau), np.zeros((4, 9))
    few = rows(zero)
    far = -p.cost.matrix() / tau
    assert (far - far.max(axis=1, keepdims=True)).min() < -300.0  # subnormal, or nothing at all
    assert min(S.min(initial=0.0) for _, S, _ in rows.near) == LEAST_LOG
    exact = mass_pass(far, p.data["groups"], p.data["weights"], zero)
    np.testing.assert_allclose(few.masses, exact.masses, atol=1e-6)
    assert few.value == pytest.approx(exact.value, rel=1e-7)


@pytest.mark.parametrize("name", RULES)
def test_prices_prove_nearly_the_optimum(name: str) -> None:
    p = case(fairness=RULES[name])
    s = p.solve("mass-dual")
    costs, prices = start(p)
    assert prices is not None
    # of the rows alone: with the optimal masses it is a bound for any prices
    bound = price(costs, prices).value - float((prices * s["masses"]).sum())
    assert s.objective - 2e-3 * s.objective <= bound <= s.objective * (1 + 1e-12)


def test_an_interrupt_of_smoothed_rows_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    p, calls, original = case(fairness=of.max_gap(0.05)), [], SmoothedRows.__call__

    def counted(self: SmoothedRows, *args: object) -> object:
        calls.append(self.costs.size)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(SmoothedRows, "__call__", counted)
    s = p.solve("mass-dual")
    assert len(calls) == 4 and s.status.termination == "interrupted"
    assert not s.is_optimal(1e-9)


def test_a_cold_search_takes_a_few_small_masters() -> None:
    p = case(20_000, groups=6, clusters=20)
    s = p.solve("mass-dual", tolerance=1e-9)
    assert s.is_optimal(1e-9) and len(s.progress) <= 4
    assert max(r.rows for r in s.progress) <= 6_000


def test_many_prices_take_large_masters_and_not_many() -> None:
    p = case(20_000, groups=40, clusters=20)
    s = p.solve("mass-dual", tolerance=1e-9)
    assert s.is_optimal(1e-9) and len(s.progress) <= 4
    assert price_search.LARGEST < max(r.rows for r in s.progress) <= 8_000


@pytest.mark.parametrize("name", ["perfect", "max gap", "balance"])
def test_groups_whose_costs_are_of_other_sizes_are_smoothed_to_their_own_margins(name: str) -> None:
    p = case(20_000, groups=2)
    factors = np.array([1.0, 1e-6])[p.data["groups"]]
    costs = factors[:, None] * p.cost.matrix()
    few = of.FairAssignment(costs=costs, groups=p.data["groups"], fairness=RULES[name])
    s = few.solve("mass-dual", tolerance=1e-9, time_limit=30)
    assert s.is_optimal(1e-9) and len(s.progress) <= 6


def test_a_warm_search_does_not_smooth(monkeypatch: pytest.MonkeyPatch) -> None:
    p = case()
    s = p.solve("mass-dual")

    def refuse(*a: object, **k: object) -> None:
        raise RuntimeError("a long step was taken")

    monkeypatch.setattr(price_search, "smoothed_prices", refuse)
    again = p.solve("mass-dual", warm_start=s)
    assert again.objective == pytest.approx(s.objective, rel=1e-12)
    with pytest.raises(RuntimeError, match="long step"):
        p.solve("mass-dual")


def test_thinned_rows_keep_the_shares_of_groups() -> None:
    p = case(sample_weight=np.random.default_rng(1).exponential(size=4_000))
    costs = CostRows(p.cost, p.data["groups"], p.data["weights"])
    few = thinned(costs, 500)
    shares = np.bincount(few.groups, few.weights)
    assert few.size < costs.size and np.abs(shares - p.shares).max() <= 1e-12
    assert thinned(few, 10**6) is few


def test_clusters_far_from_all_rows_and_ties_are_harmless() -> None:
    p = case(fairness=of.perfect_fairness())
    far = np.vstack([p.cost.centers[:4], p.cost.centers[:4], p.cost.centers[4:5] + 1e5])
    s = p.with_centers(far).solve("mass-dual", tolerance=1e-9)
    assert s.is_optimal(1e-9)
    one = p.with_centers(np.zeros_like(p.cost.centers))  # every row ties everywhere
    assert one.solve("mass-dual").is_optimal(1e-9)


@pytest.mark.parametrize("name", ["perfect", "max gap"])
def test_settled_rows_are_what_a_pass_over_all_of_them_finds(name: str) -> None:
    p = case(3_000, groups=3, clusters=7, fairness=RULES[name])
    costs = CostRows(p.cost, p.data["groups"], p.data["weights"])
    tau, rng = 0.02 * typical_margin(costs), np.random.default_rng(1)
    soft, prices = SmoothedRows(costs, tau), 10.0 * rng.normal(size=(3, 7))
    log_prob, (g, w) = -p.cost.matrix() / tau, (p.data["groups"], p.data["weights"])
    # as they are settled, with prices that moved a little, and a lot
    for moved in (0.0, 1.0, 40.0):
        at = prices + moved * rng.random((3, 7))
        found, whole = soft(at, True), mass_pass(log_prob, g, w, at)
        assert found.value == pytest.approx(whole.value, abs=1e-4 * abs(whole.value))
        assert np.abs(found.masses - whole.masses).max() <= 1e-4
        assert np.abs(found.curvature - whole.curvature).max() <= 1e-4
        # the cone program asks for a positive semidefinite one
        assert np.array_equal(found.curvature, found.curvature.transpose(0, 2, 1))
        assert np.linalg.eigvalsh(found.curvature).min() >= 0.0
    assert sum(len(w) for _, _, w in soft.near) < 1_500
    assert soft(at, False).curvature is None
