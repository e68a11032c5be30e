"""The mass-dual algorithm: exact on awkward data, few rounds, few arcs, honest when stopped."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.backends.registry import profile
from optfair.core.composition import objective_term
from optfair.methods.fair_clustering.algorithms import price_search as search
from optfair.methods.fair_clustering.algorithms.costs import Charge, CostRows, SeparableCost
from optfair.methods.fair_clustering.algorithms.pricing import price, select_arcs, value_within
from optfair.methods.fair_clustering.mass_rules import compile_rules


def gaussian(n: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    groups = (rng.random(n) < 0.35).astype(int)
    X[groups == 1] += 0.7
    return X, groups, X[:6]


def awkward(kind: str) -> tuple[Any, Any, Any, Any]:
    """(X, groups, centers, weights) of data that break careless implementations."""
    X, groups, centers = gaussian(1_500)
    rng = np.random.default_rng(9)
    weights = None
    if kind == "ties":
        X, centers = np.round(X), np.round(centers)
    elif kind == "duplicates":
        X = X[rng.integers(0, 40, 1_500)]
    elif kind == "identical rows":
        X = np.repeat(X[:2], 750, axis=0)
    elif kind == "twin centers":
        centers = np.vstack([centers[:4], centers[:2]])
    elif kind == "outliers":
        X[:5] *= 1e6
        centers = X[3:9]
    elif kind == "unscaled columns":
        X = X * np.array([1e-3, 1.0, 1e6])
        centers = X[:6]
    elif kind == "empty clusters":
        centers = np.vstack([centers[:3], centers[:3] + 1e4])
    elif kind == "one cluster":
        centers = centers[:1]
    elif kind == "a group of one row":
        groups = np.zeros(1_500, dtype=int)
        groups[17] = 1
    elif kind == "four groups":
        groups = rng.integers(0, 4, 1_500)
    elif kind == "weights":
        weights = rng.exponential(size=1_500)
        weights[::3] = 0.0
    elif kind == "rows on centers":
        X = centers[rng.integers(0, 6, 1_500)]
    return X, groups, centers, weights


def test_no_multiplier_can_be_given_out_for_another() -> None:
    X, groups, centers = gaussian(200)
    p = of.FairAssignment(X, groups=groups, centers=centers, fairness=of.max_gap(0.05))
    s = p.solve("mass-dual")
    assert s.proof.check(s.values, s.multipliers).consistency <= 1e-12
    for name in ("mass definition", "row sum", "nonnegativity"):
        forged = {**s.multipliers, name: 1.01 * np.asarray(s.multipliers[name]) + 1e-3}
        assert s.proof.check(s.values, forged).consistency > 1e-4, name


KINDS = [
    "ties",
    "duplicates",
    "identical rows",
    "twin centers",
    "outliers",
    "unscaled columns",
    "empty clusters",
    "one cluster",
    "a group of one row",
    "four groups",
    "weights",
    "rows on centers",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        pytest.param(kind, rule, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, kind in enumerate(KINDS)
        for j, rule in enumerate(["perfect", "gap and share"])
    ],
)
def test_awkward_data(kind: str, rule: str) -> None:
    X, groups, centers, weights = awkward(kind)
    p = of.FairAssignment(X, groups=groups, centers=centers, sample_weight=weights)
    if rule != "perfect":
        K = len(centers)
        p = p.without("fairness").with_constraints(
            gap=of.additive_gap(0.05), share=of.cluster_share(upper=min(1.0, 1.4 / K))
        )
    s = p.solve("mass-dual", tolerance=1e-9)
    assert s.is_optimal(1e-9)
    check_progress(s, X.shape[0], len(centers))
    # an independent route; its own feasibility error is relative to the largest number
    exact = p.solve("highs", tolerance=1e-6).objective
    assert s.objective == pytest.approx(exact, rel=1e-7, abs=1e-9)


def check_progress(s: of.Solution, n: int, K: int) -> None:
    """Few rounds; each but the last raises the bound or halves the gap; arcs are capped."""
    rounds = s.progress
    assert 1 <= len(rounds) <= 40
    assert all(r.arcs <= max(2 * n, 20_000, min(n, search.SMALL) * K) for r in rounds)
    for before, after in pairwise(rounds):
        assert after.bound > before.bound or after.gap <= before.gap / 2 or after.arcs > before.arcs
    assert rounds[-1].gap <= 1e-9


@given(
    n=st.integers(8, 900),
    K=st.integers(1, 6),
    G=st.integers(2, 4),
    seed=st.integers(0, 10_000),
    digits=st.sampled_from([0, 1, 8]),
    scale=st.sampled_from([1e-4, 1.0, 1e5]),
)
def test_equals_highs_on_random_instances(
    n: int, K: int, G: int, seed: int, digits: int, scale: float
) -> None:
    n = max(n, 2 * G, K)
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 2)), digits) * scale
    groups = rng.permutation(np.arange(n) % G)
    p = of.FairAssignment(X, groups=groups, centers=X[:K], fairness=of.max_gap(0.02))
    s = p.solve("mass-dual", tolerance=1e-9)
    exact = p.solve("highs", tolerance=1e-6).objective
    assert s.objective == pytest.approx(exact, rel=1e-7, abs=1e-9)
    check_progress(s, n, K)


def test_splits_few_rows_even_with_curved_rules() -> None:
    X, groups, centers = gaussian(2_000)
    p = of.FairAssignment(X, groups=groups, centers=centers, fairness=None)
    F = cp.multiply(1 / p.shares[:, None], p["masses"])
    q = p.with_constraints(ball=cp.norm(F[0] - F[1]) <= 0.05)
    s = q.solve()
    assert s.solver == "mass-dual" and s.is_optimal(1e-7)
    assert (s["assignment"].max(axis=1) < 1 - 1e-9).sum() <= 2 * (6 - 1)
    assert s.objective == pytest.approx(q.solve("clarabel").objective, rel=1e-7)


def test_few_rows_have_all_their_arcs_in_one_master() -> None:
    X, groups, centers = gaussian(60)
    p = of.FairAssignment(X, groups=groups, centers=centers, fairness=None)
    F = cp.multiply(1 / p.shares[:, None], p["masses"])
    s = p.with_constraints(ball=cp.norm(F[0] - F[1]) <= 0.05).solve("mass-dual")
    assert s.is_optimal(1e-7) and (s["assignment"].max(axis=1) < 1 - 1e-9).sum() <= 2 * (6 - 1)
    # the value at other prices is that of all rows, to the last digits
    costs, rng = CostRows(p.cost, p.data["groups"], p.data["weights"]), np.random.default_rng(0)
    pricing = price(costs, np.zeros((2, 6)))
    free = select_arcs(costs, pricing, None, p.shares)
    other = rng.normal(size=(2, 6))
    value = value_within(pricing, free, None, other)
    assert value == pytest.approx(price(costs, other).value, rel=1e-12)


def largest_eigenvalue(F: Any) -> Any:
    a, b, c = (cp.reshape(v, (1, 1), order="C") for v in (F[0, 0], F[1, 1], F[0, 2]))
    return cp.lambda_max(cp.bmat([[a, b], [b, c]]))


CURVED = {
    "eigenvalue": lambda M, F: largest_eigenvalue(F) <= 0.3,
    "norm": lambda M, F: cp.norm(F[0] - F[1]) <= 0.08,
    "squares": lambda M, F: cp.sum_squares(F[0] - F[1]) <= 0.01,
    "entropy": lambda M, F: cp.sum(cp.entr(cp.sum(M, axis=0))) >= 0.9 * np.log(6),
    "power": lambda M, F: cp.sum(cp.power(cp.sum(M, axis=0), 3)) <= 0.04,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("soft", [False, True])
def test_any_convex_rule(name: str, soft: bool) -> None:
    X, groups, centers = gaussian(700)
    p = of.FairAssignment(X, groups=groups, centers=centers, fairness=None)
    M = p["masses"]
    rule = CURVED[name](M, cp.multiply(1 / p.shares[:, None], M))
    q = p.with_constraints({name: rule})
    if soft:
        q = q.soften(name, 0.7)
    fast, slow = q.solve("mass-dual"), q.solve("clarabel", tolerance=1e-6)
    assert fast.is_optimal(1e-7)
    assert fast.objective == pytest.approx(slow.objective, rel=2e-6)
    if not soft:
        assert fast.objective > p.solve().objective  # the rule binds


def test_every_class_it_claims_occurs_in_these_tests() -> None:
    X, groups, centers = gaussian(50)
    p = of.FairAssignment(X, groups=groups, centers=centers, fairness=None)
    M = p["masses"]
    F = cp.multiply(1 / p.shares[:, None], M)
    seen = {p.with_constraints(r=rule(M, F)).problem_class.name for rule in CURVED.values()}
    assert set(profile("mass-dual").classes) == seen | {"LP", "QP"}


def test_a_quadratic_objective_in_the_masses() -> None:
    X, groups, centers = gaussian(700)
    p = of.FairAssignment(X, groups=groups, centers=centers, fairness=None)
    F = cp.multiply(1 / p.shares[:, None], p["masses"])
    spread = objective_term("spread", 3 * cp.sum_squares(F[0] - F[1]), p.names, "minimize")
    q = p.with_terms({**p.objective, "spread": spread}, p.constraints)
    assert str(q.problem_class) == "QP"
    fast = q.solve()
    assert fast.solver == "mass-dual" and fast.is_optimal(1e-7)
    assert fast.objective == pytest.approx(q.solve("clarabel").objective, rel=1e-7)
    assert fast.objective > p.solve().objective


def test_a_penalty_in_the_masses_keeps_the_structure() -> None:
    X, groups, centers = gaussian(800)
    p = of.FairAssignment(X, groups=groups, centers=centers)
    hard = p.solve().objective
    soft = p.soften("fairness", 50.0).solve()
    assert soft.solver == "mass-dual"
    assert soft.objective == pytest.approx(hard, rel=1e-9)  # the penalty is exact
    weak = p.soften("fairness", 1e-3).solve()
    assert weak.objective < hard


def test_terms_on_rows_lose_the_structure() -> None:
    X, groups, centers = gaussian(30)
    p = of.FairAssignment(X, groups=groups, centers=centers)
    q = p.with_constraints(friends=p["assignment"][0] == p["assignment"][1])
    with pytest.raises(of.UnsupportedProblem) as refusal:
        q.solve("mass-dual")
    assert "needs the structure 'mass-assignment'; 'friends' is not a rule on the masses" in str(
        refusal.value
    )
    assert q.solve().solver == "highs"
    with pytest.raises(of.UnsupportedProblem, match="'row sum' was removed"):
        p.without("row sum").solve("mass-dual")


def test_warm_start_takes_one_master() -> None:
    X, groups, centers = gaussian(20_000)
    p = of.FairAssignment(X, groups=groups, centers=centers)
    first = p.solve()
    again = p.solve(warm_start=first)
    assert len(again.progress) == 1
    assert again.objective == pytest.approx(first.objective, rel=1e-12)
    moved = p.with_centers(centers + 0.01)
    warm, cold = moved.solve(warm_start=first), moved.solve()
    assert warm.objective == pytest.approx(cold.objective, rel=1e-12)
    assert len(warm.progress) <= 3
    other = of.FairAssignment(X, groups=groups, centers=centers[:3])
    with pytest.raises(of.DeclarationError, match="as many groups and clusters"):
        other.solve(warm_start=first)


def test_a_known_end_of_a_search_is_weighed_and_only_searched_on_where_it_is_none() -> None:
    X, groups, centers = gaussian(3_000)
    for rule in (of.perfect_fairness(), of.max_gap(0.05), of.additive_gap(0.1)):
        p = of.FairAssignment(X, groups=groups, centers=centers, fairness=rule)
        rules, data = compile_rules(p), p.data
        stated = rules.program, p.cost, data["groups"], data["weights"]
        ended = search.solve_mass_dual(*stated, feasible=rules.feasible)
        shifted = replace(ended, clusters=np.roll(ended.clusters, 1))
        strange = replace(ended, z=np.r_[ended.z, 0.0])
        for known in (ended, shifted, replace(ended, z=0.0 * ended.z), strange):
            claimed = replace(known, objective=0.0, bound=0.0)
            again = search.solve_mass_dual(*stated, feasible=rules.feasible, known=claimed)
            assert (again.history[-1].rows == 0) == (known is ended)
            assert again.objective == pytest.approx(ended.objective, rel=1e-9)
            assert 0.0 <= again.objective - again.bound + 1e-12 <= 1e-8 * again.objective
    # multipliers that no rule of this kind has prove nothing
    upper = of.FairAssignment(X, groups=groups, centers=centers, fairness=of.max_gap(0.05))
    rules = compile_rules(upper)
    stated = rules.program, upper.cost, upper.data["groups"], upper.data["weights"]
    ended = search.solve_mass_dual(*stated, feasible=rules.feasible)
    again = search.solve_mass_dual(
        *stated, feasible=rules.feasible, known=replace(ended, z=ended.z - 1e-6)
    )
    assert again.history[-1].rows > 0
    assert again.bound <= ended.objective * (1.0 + 1e-12)


def test_rows_ordered_by_groups_cost_what_they_do_in_any_order() -> None:
    X, groups, centers = gaussian(1_000)
    index = np.unique(groups, return_inverse=True)[1]
    cost = SeparableCost("sqeuclidean", X, centers)
    costs = CostRows(cost, index, np.full(1_000, 1e-3))
    other = costs.moved(centers + 0.5)
    assert other._points is costs._points  # ordered once, for all centers
    for own, at in ((costs, centers), (other, centers + 0.5)):
        D = ((X[None] - at[:, None]) ** 2).sum(axis=2)
        for g, start, stop, block in own.blocks():
            assert np.allclose(block, D[:, own.rows[start:stop]], rtol=1e-12)
            assert (index[own.rows[start:stop]] == g).all()


def test_charges_are_of_rows_in_the_order_they_were_given_in() -> None:
    X, groups, centers = gaussian(200)
    index = np.unique(groups, return_inverse=True)[1]
    factors = np.random.default_rng(0).uniform(1.0, 2.0, 200)
    cost = SeparableCost("sqeuclidean", X, centers, charge=Charge(factors))
    own, D = CostRows(cost, index, np.full(200, 5e-3)), cost.columns(slice(None))
    assert (np.diff(index) != 0).any()  # rows change places
    for _, start, stop, block in own.blocks():
        assert np.allclose(block, D[:, own.rows[start:stop]], rtol=1e-12)


def test_blocks_give_the_same_answer_as_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups, centers = gaussian(9_000)
    p = of.FairAssignment(X, groups=groups, centers=centers)
    whole = p.solve().objective
    from optfair.methods.fair_clustering.algorithms import costs as cost_rows
    from optfair.methods.fair_clustering.algorithms import pricing

    monkeypatch.setattr(cost_rows, "KEEP", 0)  # costs recomputed in each pass
    monkeypatch.setattr(cost_rows, "CHUNK", 700)
    monkeypatch.setattr(pricing, "PROBE", 1_000)  # boxes sized on a sample of the rows
    s = p.solve()
    assert s.is_optimal(1e-9)
    assert s.objective == pytest.approx(whole, rel=1e-12)


def test_nothing_of_size_n0_n1_is_built() -> None:
    import tracemalloc

    X, groups, centers = gaussian(60_000)
    p = of.FairAssignment(X, groups=groups, centers=centers)
    tracemalloc.start()
    p.solve()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * X.shape[0] * len(centers) * 8  # n0 * n1 would be 5,000 times n K


def test_time_limit_returns_the_incumbent_with_its_gap() -> None:
    X, groups, centers = gaussian(5_000)
    p = of.FairAssignment(X, groups=groups, centers=centers)
    s = p.solve("mass-dual", time_limit=1e-9)
    assert s.status.termination == "time_limit"
    assert s.residuals().feasibility <= 1e-9
    best = p.solve().objective
    assert best <= s.objective and s.gap > 0
    assert s.bound <= best * (1 + 1e-12)
    assert not s.is_optimal()


def test_interrupt_returns_the_incumbent_with_its_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups, centers = gaussian(4_000)
    p = of.FairAssignment(X, groups=groups, centers=centers)
    calls = 0
    real = search.solve_master

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        result = real(*args, **kwargs)
        result.slack[0, 0] = 1.0  # pretend the first box was too small
        return result

    monkeypatch.setattr(search, "solve_master", interrupted)
    monkeypatch.setattr(search, "FAR", np.inf)
    s = p.solve("mass-dual", tolerance=1e-10)
    assert calls == 3  # the last opens no row: it says which masses to make
    assert s.status.termination == "interrupted"
    assert s.residuals().feasibility <= 1e-9
    assert np.isfinite(s.gap)


def test_a_failing_master_is_reported_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups, centers = gaussian(1_000)
    p = of.FairAssignment(X, groups=groups, centers=centers)
    failed = search.MasterResult("failed", *(np.zeros(0) for _ in range(4)))
    monkeypatch.setattr(search, "solve_master", lambda *a, **k: failed)
    with pytest.raises(of.SolverFailure, match="mass-dual"):
        p.solve("mass-dual")
    s = p.solve()  # the next open solver takes over, and the record says so
    assert s.solver == "highs" and s.is_optimal(1e-7)
    assert "mass-dual (stalled)" in s.attempts[0]


def test_ties_of_every_row_stay_small() -> None:
    X, groups, centers = gaussian(20_000)
    twins = np.vstack([centers[:3], centers[:3]])  # every row ties between two clusters
    p = of.FairAssignment(X, groups=groups, centers=twins, fairness=of.max_gap(0.01))
    s = p.solve("mass-dual", tolerance=1e-9)
    assert s.is_optimal(1e-9)
    assert max(r.rows for r in s.progress) < 6_000
    # two equal centers are worth as much as one: the rule of the merged problem is no looser
    merged = of.FairAssignment(X, groups=groups, centers=centers[:3], fairness=of.max_gap(0.02))
    assert s.objective == pytest.approx(merged.solve().objective, rel=1e-9)


def test_costs_are_never_changed_by_pricing() -> None:
    rng = np.random.default_rng(0)
    cost = SeparableCost("precomputed", rng.random((50, 4)))
    before = cost.points.copy()
    rows = CostRows(cost, np.arange(50) % 2, np.full(50, 0.02))
    for _, start, stop, block in rows.blocks():
        assert block.shape == (4, stop - start)
    of.FairAssignment(costs=cost.points, groups=np.arange(50) % 2).solve()
    assert np.array_equal(cost.points, before)


def test_costs_are_made_by_the_first_pass_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups, centers = gaussian(1_500)
    columns, made = SeparableCost.columns, []

    def counted(cost: SeparableCost, rows: Any) -> Any:
        made.append(rows)
        return columns(cost, rows)

    monkeypatch.setattr(SeparableCost, "columns", counted)
    costs = CostRows(SeparableCost("sqeuclidean", X, centers), groups, np.full(1_500, 1 / 1_500))
    moved = costs.moved(centers + 1.0)
    assert not made
    for _ in range(2):
        price(moved, np.zeros((2, 6)))
    assert len(made) == len(list(moved.blocks()))


@pytest.mark.data
def test_adult_at_full_size() -> None:
    X, sex = of.datasets.load("adult").numeric("sex", standardize=True)
    rng = np.random.default_rng(0)
    centers = X[rng.choice(len(X), 10, replace=False)]
    p = of.FairAssignment(X, groups=sex, centers=centers)
    s = p.solve(tolerance=1e-9)
    assert s.solver == "mass-dual" and s.gap <= 1e-9
    assert (s["assignment"].max(axis=1) < 1 - 1e-9).sum() <= 9
    raw = of.datasets.load("adult").numeric("sex", standardize=False)[0]
    t = of.FairAssignment(raw, groups=sex, centers=raw[:10]).solve(tolerance=1e-9)
    assert t.is_optimal(1e-9)
    begin = time.perf_counter()
    again = p.solve(warm_start=s)
    assert again.objective == pytest.approx(s.objective, rel=1e-12)
    assert sum(again.seconds.values()) <= time.perf_counter() - begin + 1e-3


def test_three_hundred_thousand_rows() -> None:
    # weights added up in two orders differ by 1e-11 here: that must not look like slack
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300_000, 2))
    groups = rng.integers(0, 2, 300_000)
    X[groups == 0] += 0.4
    s = of.FairAssignment(X, groups=groups, centers=X[:8]).solve("mass-dual", time_limit=600.0)
    assert s.is_optimal(1e-9)
    assert len(s.progress) <= 5


@pytest.mark.parametrize(
    ("metric", "power"), [("sqeuclidean", 2), ("l1", 1), ("lp", 1.5), ("lp", 7)]
)
@pytest.mark.parametrize(("unit", "away"), [(1.0, 0.0), (1e-6, 1e3), (1e20, 0.0), (1e-30, 0.0)])
def test_distances_are_rounded_as_little_as_they_say(
    metric: str, power: float, unit: float, away: float
) -> None:
    rng = np.random.default_rng(0)
    X, centers = (rng.normal(size=(k, 2)) * unit + away for k in (20, 2))
    cost = SeparableCost(metric, X, centers, p=power)
    with localcontext(prec=60):
        rows, places = (np.vectorize(Decimal, otypes=[object])(v) for v in (X, centers))
        exact = (abs(rows[:, None] - places) ** Decimal(power)).sum(axis=2)
        off = abs(np.vectorize(Decimal, otypes=[object])(cost.matrix()) - exact) / exact
    assert off.max() <= cost.rounding < 1e-12


def test_masses_that_are_not_found_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights eight decades apart: the small program ended without a point, and was believed."""
    X, groups, centers = gaussian(60)
    rules = {"eps": float(np.pi / 31)}  # compiled for no other test
    p = of.FairAssignment(X, groups=groups, centers=centers, fairness=of.max_gap(**rules))
    program = "optfair.methods.fair_clustering.algorithms.mass_program.MassProgram"
    monkeypatch.setattr(f"{program}.feasible", lambda self: None)
    monkeypatch.setattr(f"{program}.farkas_vector", lambda self: None)
    with pytest.raises(of.SolverFailure, match="which is not proved here") as failure:
        p.solve("mass-dual")
    assert failure.value.claim == "infeasible"
    s = p.solve()  # the others do not take its word
    assert s.is_optimal(1e-7) and s.grade.sound and s.solver != "mass-dual"


def test_rules_on_groups_of_little_weight_are_as_strict_as_others() -> None:
    """What a rule misses is measured by the shares it is about, be they a billionth of all."""
    weights = np.array([1.0, 0.1, 1e-6, 1.0, 1e-9, 1e-9, 1e-5, 1e-6])
    costs = [[1, 2, 3], [1, 0, 2], [3, 1, 1], [1, 2, 3], [1, 1, 3], [0, 3, 2], [1, 3, 3], [3, 0, 0]]
    plain = {"costs": np.array(costs, dtype=float), "groups": list("aabbccab")}
    p = of.FairAssignment(**plain, sample_weight=weights, fairness=None)
    b = 0.5 * float(p.shares.min() / p.shares.max())
    s = p.with_constraints(fair=of.balance(b)).solve()
    masses = np.asarray(s["masses"])
    assert (masses[2] >= b * masses - 1e-9 * p.shares[2]).all()
    assert s.is_optimal(1e-6)


@pytest.mark.parametrize("rule", [of.perfect_fairness(), of.max_gap(0.2)])
def test_rows_whose_weight_is_rounding_beside_others_are_assigned(rule: Any) -> None:
    """They were left out of the flow that is handed out to rows, and the answer was lost."""
    rng = np.random.default_rng(0)
    n = 400
    groups = np.arange(n) % 2
    X = rng.normal(size=(n, 2)) + groups[:, None]
    w = np.logspace(-12, 6, n)[rng.permutation(n)]
    p = of.FairAssignment(
        X, groups=groups, centers=rng.normal(size=(3, 2)), sample_weight=w, fairness=rule
    )
    s = p.solve("mass-dual")
    A = np.asarray(s["assignment"])
    assert s.grade.sound and np.allclose(A.sum(axis=1), 1.0, atol=1e-9)
    first, second = (w[groups == g] @ A[groups == g] / w[groups == g].sum() for g in range(2))
    assert np.abs(first - second).max() <= (0.2 if rule == of.max_gap(0.2) else 0.0) + 1e-9


def test_sites_are_located_where_weights_are_decades_apart() -> None:
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(15, 3)), np.arange(15) % 2
    p = of.fair_clustering.FairFacilityLocation(
        X,
        groups=groups,
        n_centers=2,
        fairness=of.max_gap(0.3),
        sample_weight=np.logspace(-12, 6, 15),
    )
    found = of.fair_clustering.located_sites(p, gap=1e-6)
    assert found.gap <= 1e-6 and found.verify()
