"""Sites that are branched on, against the enumeration of the open sites with a linear program for each."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import optfair as of
from optfair.methods.fair_clustering import site_prices
from optfair.methods.fair_clustering.algorithms.site_tree import (
    SiteSplit,
    SiteTree,
    bound_of_cases,
    site_cases,
)
from optfair.methods.fair_clustering.location_bound import Lagrangian, SitePrices
from optfair.methods.fair_clustering.site_prices import located_sites
from optfair.sweeps import dependence
from optfair.transforms.relaxation import relaxed

FairFacilityLocation = of.fair_clustering.FairFacilityLocation
proportion = of.fair_clustering.proportion

# name -> rule, and its rows a^T M <= b of K sites
RULES: dict[str, tuple[Any, Any]] = {
    "none": (None, lambda pi, K: []),
    "max_gap": (of.max_gap(0.15), lambda pi, K: [(r, 0.15) for r in differences(pi, K)]),
    "balance": (of.balance(0.2), lambda pi, K: [(r, 0.0) for r in ratios(pi, K, 0.2)]),
    "additive_gap": (
        of.additive_gap(0.2),
        lambda pi, K: [
            (sum(s * r for s, r in zip(signs, differences(pi, K)[:K], strict=True)), 0.2)
            for signs in product([1.0, -1.0], repeat=K)
        ],
    ),
    "cluster_share": (
        of.cluster_share(upper=0.6),
        lambda pi, K: [(at(k, K, np.ones(2)), 0.6) for k in range(K)],
    ),
    "proportion": (
        proportion(lower=0.15),
        lambda pi, K: [(at(k, K, 0.15 - np.eye(2)[g]), 0.0) for k in range(K) for g in range(2)],
    ),
    "perfect_fairness": (
        of.perfect_fairness(),
        lambda pi, K: [(r, 0.0) for r in differences(pi, K)],
    ),
}


def at(k: int, K: int, column: Any) -> Any:
    row = np.zeros((2, K))
    row[:, k] = column
    return row


def differences(pi: Any, K: int) -> list[Any]:
    own = [at(k, K, [1.0 / pi[0], -1.0 / pi[1]]) for k in range(K)]
    return own + [-r for r in own]


def ratios(pi: Any, K: int, b: float) -> list[Any]:
    return [at(k, K, c) for k in range(K) for c in ([b, -1.0], [-1.0, b])]


def assignment_cost(D: Any, w: Any, groups: Any, rows: Any) -> float:
    """Return the least cost of an assignment, by one linear program; infinite without any."""
    n, K = D.shape
    cost, unit = (w[:, None] * D).ravel(), (w @ D).max()
    A = [(w[:, None] * r[groups]).ravel() for r, _ in rows]
    sizes = [np.abs(a).max() for a in A]
    A = [a / s for a, s in zip(A, sizes, strict=True)]
    b = [b / s for (_, b), s in zip(rows, sizes, strict=True)]
    sums = np.kron(np.eye(n), np.ones((1, K)))
    found = linprog(cost / unit, A or None, b or None, sums, np.ones(n))
    return float(found.fun * unit) if found.status == 0 else np.inf


def enumerated(
    D: Any,
    w: Any,
    groups: Any,
    opening: Any,
    most: int,
    rule: str,
    opened: Any = (),
    closed: Any = (),
) -> float:
    """Return the least cost over all sets of sites of which some are open and some closed."""
    pi, best = np.bincount(groups, w), np.inf
    for size in range(1, most + 1):
        for some in combinations(range(D.shape[1]), size):
            if {*opened} <= {*some} and not {*closed} & {*some}:
                rows = RULES[rule][1](pi, size)
                value = assignment_cost(D[:, some], w, groups, rows)
                best = min(best, value + float(opening[list(some)].sum()))
    return best


def drawn(seed: int, unit: float, light: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    n, m = 8, 4
    groups = np.append([0, 1], rng.integers(0, 2, n - 2))
    D = unit * np.square(rng.normal(size=(n, 1, 2)) - rng.normal(size=(1, m, 2))).sum(axis=2)
    w = (rng.random(n) + 0.5) * np.where(groups == 0, light, 1.0)
    opening = unit * rng.random(m) * (0.2 if seed % 2 else 0.0)
    return {"D": D, "groups": groups, "w": w / w.sum(), "opening": opening, "most": 2 + seed % 2}


def declared(case: dict[str, Any], rule: Any, **more: Any) -> Any:
    return FairFacilityLocation(
        costs=case["D"],
        groups=case["groups"],
        sample_weight=case["w"],
        opening_costs=case["opening"],
        n_centers=case["most"],
        fairness=rule,
        **more,
    )


@pytest.mark.sampled(7)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("unit", "light"), [(1.0, 1.0), (1e6, 1.0), (1e-6, 1e-6)])
def test_sites_end_proved_at_any_gap(rule: str, unit: float, light: float) -> None:
    """Bounds of the relaxation are up to 20 % away; a light group may have no balance."""
    if light < 1.0 and rule in ("balance", "proportion"):
        light = 1.0
    case = drawn(len(rule) + (unit == 1.0), unit, light)
    found = located_sites(declared(case, RULES[rule][0]), gap=1e-6)
    best = enumerated(rule=rule, **case)
    assert found.objective == pytest.approx(best, rel=2e-6)
    assert found.bound <= best * (1.0 + 1e-9)
    assert found.gap <= 1e-6 and found.status == "optimal" and found.verify()


@pytest.mark.parametrize("rule", RULES)
def test_prices_bound_every_case_whatever_they_are(rule: str) -> None:
    rng = np.random.default_rng(3)
    case = drawn(1, 1.0)
    own = Lagrangian(declared(case, RULES[rule][0]))
    r, nearest = own.program.form.b.size, case["D"].min(axis=1)
    for opened, closed in [((), ()), ((0,), (1,)), ((2, 3), ()), ((), (0, 3))]:
        best = enumerated(rule=rule, opened=opened, closed=closed, **case)
        sets = np.array(opened, dtype=int), np.array(closed, dtype=int)
        for size in (0.0, 0.1, 1.0):
            prices = SitePrices(
                nearest + size * rng.normal(size=nearest.size),
                size * rng.normal(size=own.program.masses.shape),
                size * rng.normal(size=r),
                size * rng.normal(size=2),
            )
            worths = own.worths(prices)
            assert worths is None or worths.least(*sets) <= best * (1 + 1e-12)


def branched() -> Any:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 40)
    X, sites = rng.normal(size=(40, 2)) + groups[:, None], rng.normal(size=(10, 2)) + 0.5
    return FairFacilityLocation(
        X, groups=groups, sites=sites, n_centers=3, fairness=of.balance(0.65)
    )


def test_a_changed_tree_is_not_verified() -> None:
    found = located_sites(branched(), gap=1e-6)
    tree = found.cases
    assert isinstance(tree, SiteSplit) and found.verify()
    assert found.bound > Lagrangian(found.problem).proved(found.row_prices, found.mass_prices)
    prices, *_ = next(site_cases(tree))
    wrong = replace(prices, rows=prices.rows * 0.9)
    for changed in (
        replace(found, bound=found.bound * (1 + 1e-6)),
        replace(found, cases=None),
        replace(found, cases=replace(tree, opened=wrong)),
        replace(found, cases=replace(tree, closed=wrong)),
        replace(found, cases=replace(tree, site=(tree.site + 1) % 10)),
        replace(found, cases=SiteSplit(tree.site, tree, tree)),
        replace(found, cases=SiteSplit(99, tree, tree)),
    ):
        assert not changed.verify()


@pytest.mark.parametrize("ends", ["interrupted", "time_limit"])
def test_branching_that_is_cut_short_has_sites_and_a_bound(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, looked = SiteTree._processed, []

    def processed(self: SiteTree, node: Any, program: Any) -> Any:
        looked.append(node)
        if len(looked) == 2 and ends == "interrupted":
            raise KeyboardInterrupt
        if ends == "time_limit":
            self.deadline = -np.inf
        return whole(self, node, program)

    monkeypatch.setattr(SiteTree, "_processed", processed)
    p = branched()
    found = located_sites(p, gap=1e-6)
    assert looked and found.status == ends and found.verify()
    assert found.bound <= p.solve("highs").objective <= found.objective * (1 + 1e-9)


def test_ctrl_c_ends_the_steps_of_prices_with_the_best_sites(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, steps = Lagrangian.step, []

    def stepped(self: Lagrangian, u: Any, lam: Any) -> Any:
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return step(self, u, lam)

    monkeypatch.setattr(Lagrangian, "step", stepped)
    found = located_sites(branched(), gap=1e-6)
    assert found.status == "interrupted" and found.verify() and found.bound > 0.0


def test_many_rows_and_sites_are_not_branched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_prices, "CELLS", 10)
    found = located_sites(branched(), gap=1e-6)
    assert found.status == "stalled" and found.gap > 1e-6 and found.verify()


def test_a_rule_that_links_all_sites_is_no_rule_on_one() -> None:
    p = branched().without("fairness")
    M, pi = p["masses"], p.shares
    linked = p.with_constraints(linked=cp.max(cp.abs(M[0] / pi[0] - M[1] / pi[1])) <= 0.1)
    assert not Lagrangian(linked).room.nnz
    own = p.with_constraints(fairness=of.max_gap(0.1))
    room = Lagrangian(own).room.toarray()
    assert (room.sum(axis=0) == 0.1).all() and not Lagrangian(own).sides.any()
    # half of a site has half the room: the relaxation is worth more
    assert relaxed(own).solve().objective > 1.001 * relaxed(linked).solve().objective
    assert own.solve("highs").objective == pytest.approx(linked.solve("highs").objective, rel=1e-6)
    found = located_sites(linked, gap=1e-6)
    truth = linked.solve("highs").objective
    assert found.verify() and found.gap <= 1e-6
    assert found.bound <= truth * (1 + 1e-9)
    assert found.objective == pytest.approx(truth, rel=1e-6)


def test_sites_without_an_assignment_are_excluded() -> None:
    """Costs are nowhere near what the rules need of closed sites."""
    groups = np.arange(8) % 2
    D = np.random.default_rng(5).random((8, 4))
    p = FairFacilityLocation(
        costs=D, groups=groups, n_centers=3, fairness=of.cluster_share(upper=[0.3, 0.3, 0.6, 0.5])
    )
    found = located_sites(p, gap=1e-6)
    truth = p.solve("highs").objective
    assert found.objective == pytest.approx(truth, rel=1e-6) and found.gap <= 1e-6
    assert found.bound <= truth * (1 + 1e-9) and found.verify()
    own = Lagrangian(p)
    assert bound_of_cases(own, own.completed(found.row_prices, found.mass_prices)) <= truth


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_penalties_of_softened_rules_and_capacities_are_located(rule: str, unit: float) -> None:
    """Multipliers of a softened rule are at most its weight, in the bound and in the assignments."""
    case = drawn(4 + (unit == 1.0), unit)
    p = declared(case, RULES[rule][0])
    held = declared(case, RULES[rule][0], capacities=np.array([0.5, 0.7, 0.6, 0.6]))
    asked = [held]
    for weight in () if rule == "none" else (0.01 * unit, 0.3 * unit, 100.0 * unit):
        asked += [p.soften("fairness", weight), held.soften("fairness", weight)]
    for q in asked:
        found, truth = located_sites(q, gap=1e-6), q.solve("highs")
        assert found.objective == pytest.approx(truth.objective, rel=1e-6)
        assert found.bound <= truth.objective * (1 + 1e-9) and found.gap <= 1e-6 and found.verify()


def test_a_limit_of_sites_is_a_factor_of_what_is_open() -> None:
    """The optimum is no convex function of it, also where sites may be half open."""
    p = branched().without("fairness").with_constraints(gap=of.max_gap(0.2))
    assert not dependence(relaxed(p), "gap.eps", 0.1, 0.3).word
    assert p.at(eps=0.1).solve().objective >= p.solve().objective - 1e-9


@pytest.mark.parametrize("soft", [False, True])
def test_rules_of_masses_and_open_sites_bound_every_choice(soft: bool) -> None:
    rng = np.random.default_rng(7)
    X, groups = rng.normal(size=(9, 2)), np.arange(9) % 2
    p = FairFacilityLocation(X, groups=groups, sites=X[:4], n_centers=3, fairness=of.max_gap(0.2))
    M, y = p["masses"], p["open"]
    first = cp.sum(M[:, 0])
    for row in (
        first <= 0.4 * y[1],
        cp.sum(M[:, 3]) <= 1 - y[1],
        cp.sum(M[:, 2]) >= 0.3 * y[2],
        first + M[1, 1] <= 0.5 * y[0] + 0.1,
    ):
        q = p.with_constraints(mine=row)
        q = q.soften("mine", 0.5) if soft else q
        found, truth = located_sites(q, gap=1e-6), q.solve("highs").objective
        assert found.verify() and found.bound <= truth * (1 + 1e-9)
        assert found.objective >= truth * (1 - 1e-6)
    with pytest.raises(of.UnsupportedProblem, match="where a site is open"):
        located_sites(p.with_constraints(mine=first == 0.3 * y[0]))
