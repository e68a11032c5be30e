"""Labels of whole rows under rules on costs and links, against all labellings."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair import fair_clustering as fc
from optfair.methods.fair_clustering.algorithms.charged_rows import Demands
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.algorithms.open_rows import PricedRows, UnitArcs
from optfair.methods.fair_clustering.cost_rules import CostTerm

N, K = 7, 3
EVERY = np.array(list(product(range(K), repeat=N)))
MASSES = {
    "gap": of.max_gap(0.3),
    "balance": of.balance(0.3),
    "sum": of.additive_gap(0.6),
    "share": of.cluster_share(lower=0.15),
    "same": of.perfect_fairness(),
    "none": None,
}
BESIDE = ("budget", "radius", "arcs", "must", "cannot")


def drawn(seed: int, unit: float = 1.0) -> of.FairAssignment:
    """Return a small problem with a rule on masses and one or two others."""
    rng = np.random.default_rng(seed)
    g = np.arange(N) % 2
    w = None if seed % 2 else rng.exponential(size=N) + 0.05
    D = rng.exponential(size=(N, K)) * unit
    rule = MASSES[sorted(MASSES)[seed % len(MASSES)]]
    rules: dict[str, Any] = {} if rule is None else {"masses": rule}
    for kind in rng.choice(BESIDE, rng.integers(1, 3), replace=False):
        pairs = np.array([rng.choice(N, 2, replace=False) for _ in range(2)])
        arcs = rng.random((N, K)) < 0.2
        arcs[np.arange(N), rng.integers(0, K, N)] = False
        rules[str(kind)] = {
            "budget": fc.group_cost({0: float(D.min(axis=1).mean() * rng.uniform(1.0, 3.0))}),
            "radius": fc.radius(np.sort(D, axis=1)[:, 1]),
            "arcs": fc.forbidden_arcs(arcs),
            "must": fc.must_link(pairs),
            "cannot": fc.cannot_link(pairs),
        }[str(kind)]
    goal = "group" if seed % 3 == 0 else "mean"
    return of.FairAssignment(costs=D, groups=g, sample_weight=w, fairness=rules, goal=goal)


def missed(p: of.FairAssignment, labels: Any) -> float:
    A = np.eye(K)[labels]
    w, g = p.data["weights"], p.data["groups"]
    M = np.stack([np.bincount(g, w * a, p.shares.size) for a in A.T], axis=1)
    values = {"assignment": A, "masses": M}
    units = [p.objective_unit if isinstance(t, CostTerm) else 1.0 for t in p.constraints.values()]
    each = zip(p.constraints.values(), units, strict=True)
    return max(t.violations(values, unit)[0] for t, unit in each)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(60))
def test_no_labelling_that_obeys_is_better(seed: int) -> None:
    try:
        p = drawn(seed)
        soft = p.solve()
    except (of.Infeasible, of.DeclarationError):  # fractions cannot obey, or links exclude others
        return
    try:
        labelled = fc.hard_labels(soft, gap=0.0)
    except of.DataError:  # proved: whole numbers of rows do not obey the rules on masses
        labelled = None
    order = np.argsort(
        [p.objective["cost"].value({"assignment": np.eye(K)[labels]}) for labels in EVERY]
    )
    best = next((EVERY[i] for i in order if missed(p, EVERY[i]) <= 1e-9), None)
    if best is None:
        assert labelled is None or (not labelled.exact and labelled.missed in p.constraints)
        return
    assert labelled is not None and labelled.exact and labelled.missed == ""
    assert missed(p, labelled.labels) <= 1e-9
    least = p.objective["cost"].value({"assignment": np.eye(K)[best]})
    assert labelled.objective == pytest.approx(least, rel=1e-8)
    assert labelled.bound <= least * (1 + 1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize("seed", [2, 7, 9, 12])
def test_units_of_costs_do_not_matter(seed: int, unit: float) -> None:
    one, other = (fc.hard_labels(drawn(seed, u).solve(), gap=0.0) for u in (1.0, unit))
    assert np.array_equal(one.labels, other.labels)
    assert other.objective == pytest.approx(unit * one.objective, rel=1e-9)
    assert other.violation == pytest.approx(one.violation, abs=1e-9)


def rows(n: int, groups: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    order = np.argsort(np.argsort(X[:, 0] + 0.7 * rng.normal(size=n)))
    return X, order * groups // n


RULES = {
    "budget": lambda n: {"budget": fc.group_cost({0: 2.2})},
    "links": lambda n: {
        "apart": fc.cannot_link(np.random.default_rng(1).permutation(n)[: n // 2].reshape(-1, 2)),
        "together": fc.must_link([[0, 1], [1, 2], [7, 9]]),
    },
    "arcs": lambda n: {"arcs": fc.forbidden_arcs(np.arange(5) == np.arange(n)[:, None] % 7)},
}


@pytest.mark.parametrize("rule", RULES)
def test_many_rows_are_near_the_bound_of_fractions(rule: str) -> None:
    X, g = rows(2_000, 2)
    rules = {"masses": of.balance(0.83), **RULES[rule](2_000)}
    p = of.FairAssignment(X, groups=g, centers=X[:5], fairness=rules)
    soft = p.solve()
    free = of.FairAssignment(X, groups=g, centers=X[:5], fairness=rules["masses"]).solve()
    assert soft.objective > free.objective * (1 + 1e-6)  # the rule binds
    labelled = fc.hard_labels(soft, gap=2e-4)
    assert labelled.exact and labelled.gap <= 1e-3 and labelled.grade.sound
    assert fc.hard_labels(soft, time_limit=0.0).violation > 0.0  # rounding alone misses
    if rule == "links":
        own = labelled.labels
        assert own[0] == own[1] == own[2] and own[7] == own[9]
        pairs = np.random.default_rng(1).permutation(2_000)[:1_000].reshape(-1, 2)
        assert (own[pairs[:, 0]] != own[pairs[:, 1]]).all()
    if rule == "arcs":
        assert (labelled.labels != np.arange(2_000) % 7).all()


def test_a_fit_under_rules_on_costs_and_links_has_labels_that_obey() -> None:
    X, g = rows(300, 2)
    links = {"together": fc.must_link([[0, 5], [7, 9]]), "apart": fc.cannot_link([[0, 7]])}
    rules = {"balance": of.balance(0.8), **links}
    limits = {"labels": "hard", "n_init": 1, "random_state": 0, "time_limit": 2.0}
    model = of.FairKMeans(4, fairness=rules, **limits).fit(X, groups=g)
    own = model.labels_
    assert own[0] == own[5] and own[7] == own[9] and own[0] != own[7]
    assert model.hard_labels_.exact and model.balance_ >= 0.8 - 1e-9
    fair = of.FairKMeans(4, fairness=of.balance(0.8), goal="group", **limits).fit(X, groups=g)
    paid = np.square(fair.transform(X))[np.arange(300), fair.labels_]
    groups = [paid[g == k].mean() for k in (0, 1)]
    assert fair.hard_labels_.objective == pytest.approx(max(groups), rel=1e-9)
    assert fair.cost_ == pytest.approx(paid.mean(), rel=1e-9)
    assert fair.hard_labels_.objective <= fair.objective_ * 1.01


def test_what_no_labels_obey_is_missed_by_little_and_named() -> None:
    X, g = rows(40, 2)
    apart = fc.cannot_link([[0, 1], [1, 2], [0, 2]])  # three rows in two clusters; fractions obey
    rules = {"gap": of.max_gap(0.3), "apart": apart}
    with pytest.warns(UserWarning, match=r"labels miss 'apart' by 0\.5 of it"):
        model = of.FairKMeans(2, fairness=rules, labels="hard", n_init=1, random_state=0).fit(
            X, groups=g
        )
    labels = model.labels_[:3]
    assert model.hard_labels_.missed == "apart" and np.unique(labels).size == 2
    assert of.metrics.max_gap(g, np.eye(2)[model.labels_]) <= 0.3 + 1e-9  # the other holds


def test_many_rows_that_are_kept_apart_leave_each_other_before_the_program() -> None:
    rng = np.random.default_rng(0)
    n, clusters = 3_000, 4
    circle = np.stack([np.arange(n), np.roll(np.arange(n), 1)], axis=1)
    D = rng.random((n, clusters))
    labels = np.zeros(n, dtype=np.intp)
    priced = PricedRows(
        np.full((n, clusters), 1.0 / clusters),
        SeparableCost("precomputed", D),
        np.arange(n) % 2,
        np.full(n, 1.0 / n),
        np.zeros((2, clusters)),
        Demands(),
        np.arange(n),
        circle,
    )
    first = priced.opened(labels)._first(labels)
    assert (first[circle[:, 0]] != first[circle[:, 1]]).all()
    assert D[np.arange(n), first].mean() < 0.5  # and not anywhere


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_arcs_pay_what_the_rows_of_their_units_do(unit: float) -> None:
    rng = np.random.default_rng(3)
    n, clusters = 60, 4
    D, units, w = unit * rng.random((n, clusters)), np.arange(n) // 2, rng.dirichlet(np.ones(n))
    priced = PricedRows(
        np.full((n, clusters), 1.0 / clusters),
        SeparableCost("precomputed", D),
        np.arange(n) % 3,
        w,
        np.zeros((3, clusters)),
        Demands(),
        units,
        np.zeros((0, 2), dtype=np.intp),
    )
    open_rows = priced.opened(np.zeros(n, dtype=np.intp))
    allowed = open_rows.free & (rng.random(open_rows.free.shape) < 0.6)
    allowed[:, 1] = True
    arcs = UnitArcs.of(open_rows, allowed)
    assert arcs.reach_all and arcs.size == allowed.sum()
    paid = np.add.reduceat(w[:, None] * D, np.arange(0, n, 2))
    entries = np.bincount(arcs.arc, arcs.paid, arcs.size)
    assert entries == pytest.approx(paid[arcs.unit, arcs.cluster], rel=1e-12)
    assert arcs.typical == pytest.approx(paid[allowed].sum() / len(paid), rel=1e-12)
    chosen = np.array([rng.choice(np.flatnonzero(row)) for row in allowed])
    assert np.array_equal(arcs.chosen(chosen[arcs.unit] == arcs.cluster), chosen)
    allowed[7] = False
    assert not UnitArcs.of(open_rows, allowed).reach_all
