"""Rules on masses: what they say, what they refuse, and that every route agrees on them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.errors import DeclarationError


def problem(n: int, G: int = 2, K: int = 5, seed: int = 0, scale: float = 1.0) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * scale
    groups = rng.choice(G, size=n, p=np.array([0.3, 0.7] if G == 2 else [0.25, 0.35, 0.4]))
    X[groups == 0] += 0.6 * scale
    centers = X[rng.choice(n, K, replace=False)]
    return of.FairAssignment(X, groups=groups, centers=centers, fairness=None)


RULES = {
    "perfect": lambda p: of.perfect_fairness(),
    "additive": lambda p: of.additive_gap(0.07),
    "max": lambda p: of.max_gap(0.03),
    "balance": lambda p: of.balance(0.8 * p.shares.min() / p.shares.max()),
    "proportion": lambda p: of.fair_clustering.proportion(
        lower={p.group_names[0]: 0.8 * p.shares[0]}, upper=1.15 * p.shares.max()
    ),
    "share": lambda p: of.cluster_share(lower=0.12, upper=0.3),
    "cvxpy": lambda p: cp.sum_squares(p["masses"][0]) <= 1.05 * p.shares[0] ** 2 / 5,
}


def holds(name: str, p: Any, M: Any, tol: float = 1e-7) -> bool:
    """Say it again in plain NumPy."""
    F = M / p.shares[:, None]
    size = M.sum(axis=0)
    pairs = [(g, h) for g, h in product(range(len(M)), repeat=2) if g != h]
    return bool(
        {
            "perfect": lambda: np.ptp(F, axis=0).max() <= tol,
            "additive": lambda: max(np.abs(F[g] - F[h]).sum() for g, h in pairs) <= 0.07 + tol,
            "max": lambda: max(np.abs(F[g] - F[h]).max() for g, h in pairs) <= 0.03 + tol,
            "balance": lambda: all(
                (M[g] >= 0.8 * p.shares.min() / p.shares.max() * M[h] - tol).all() for g, h in pairs
            ),
            "proportion": lambda: (
                (M[0] >= 0.8 * p.shares[0] * size - tol).all()
                and (1.15 * p.shares.max() * size + tol >= M).all()
            ),
            "share": lambda: (size >= 0.12 - tol).all() and (size <= 0.3 + tol).all(),
            "cvxpy": lambda: (M[0] ** 2).sum() <= 1.05 * p.shares[0] ** 2 / 5 + tol,
        }[name]()
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", list(combinations_with_replacement(RULES, 2)), ids="+".join)
@pytest.mark.parametrize("G", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_routes_agree_on_every_rule_and_two_at_a_time(names: tuple[str, str], G: int) -> None:
    p = problem(240, G=G)
    q = p.with_constraints({n: RULES[n](p) for n in dict.fromkeys(names)})
    curved = "cvxpy" in names
    fast = q.solve("mass-dual", tolerance=1e-7)
    assert fast.is_optimal(1e-7 if curved else 1e-9)
    for name in names:
        assert holds(name, p, fast["masses"]), name
    slow = q.solve("clarabel", tolerance=1e-7)
    assert fast.objective == pytest.approx(slow.objective, rel=1e-7)
    if not curved:
        assert fast.objective == pytest.approx(q.solve("highs").objective, rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("names", list(combinations_with_replacement(RULES, 2)), ids="+".join)
def test_routes_agree_at_three_thousand_rows(names: tuple[str, str]) -> None:
    p = problem(3_000, K=6)
    q = p.with_constraints({n: RULES[n](p) for n in dict.fromkeys(names)})
    fast = q.solve("mass-dual", tolerance=1e-7)
    assert fast.objective == pytest.approx(q.solve("clarabel").objective, rel=1e-7)
    if "cvxpy" not in names:
        assert fast.objective == pytest.approx(q.solve("highs").objective, rel=1e-7)


def test_three_thousand_rows_once() -> None:
    p = problem(3_000, K=6)
    q = p.with_constraints(gap=of.additive_gap(0.07), share=of.cluster_share(lower=0.12))
    fast = q.solve("mass-dual")
    assert fast.objective == pytest.approx(q.solve("highs").objective, rel=1e-7)
    assert fast.objective == pytest.approx(q.solve("clarabel").objective, rel=1e-7)


def test_class_of_each_rule() -> None:
    p = problem(20)
    for name, rule in RULES.items():
        expected = "QCQP" if name == "cvxpy" else "LP"
        assert str(p.with_constraints({name: rule(p)}).problem_class) == expected


def test_balance_at_its_best_is_perfect_fairness() -> None:
    p = problem(100)
    best = p.with_constraints(b=of.balance(p.shares.min() / p.shares.max())).solve()
    fair = p.with_constraints(f=of.perfect_fairness()).solve()
    assert best.objective == pytest.approx(fair.objective, rel=1e-9)


def test_gap_of_zero_is_perfect_and_gap_of_two_is_free() -> None:
    p = problem(100)
    fair = p.with_constraints(f=of.perfect_fairness()).solve().objective
    free = p.solve().objective
    for rule in (of.additive_gap, of.max_gap):
        assert p.with_constraints(r=rule(0.0)).solve().objective == pytest.approx(fair, rel=1e-9)
        assert p.with_constraints(r=rule(2.0)).solve().objective == pytest.approx(free, rel=1e-12)
    assert free < fair


def test_costs_fall_as_eps_grows() -> None:
    p = problem(150)
    costs = [
        p.with_constraints(r=of.additive_gap(e)).solve().objective for e in np.linspace(0, 1, 9)
    ]
    assert (np.diff(costs) <= 1e-12).all()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda: of.additive_gap(-0.1), "outside [0, 2]"),
        (lambda: of.additive_gap(2.1), "outside [0, 2]"),
        (lambda: of.max_gap(float("nan")), "outside [0, 2]"),
        (lambda: of.max_gap("wide"), "outside [0, 2]"),
        (lambda: of.balance(1.5), "outside [0, 1]"),
        (lambda: of.balance(0.99), "the population itself has balance"),
        (lambda: of.fair_clustering.proportion(lower=0.9), "cannot hold in every cluster"),
        (lambda: of.fair_clustering.proportion(lower={"nobody": 0.1}), "unknown group 'nobody'"),
        (lambda: of.fair_clustering.proportion(lower=0.5, upper=0.2), "no interval"),
        (lambda: of.fair_clustering.proportion(), "has no bound"),
        (lambda: of.cluster_share(lower=0.4), "cannot hold together"),
        (lambda: of.cluster_share(upper=0.1), "cannot hold together"),
        (lambda: of.cluster_share(lower=[0.1, 0.2]), "nor 5 of them"),
        (lambda: of.cluster_share(lower=-0.1), "no intervals in [0, 1]"),
        (lambda: of.cluster_share(), "has no bound"),
        (lambda: of.cluster_share(lower="x"), "neither a finite number"),
        (lambda: of.cluster_share(upper=float("nan")), "neither a finite number"),
        (lambda: of.fair_clustering.proportion(lower="a"), "neither a finite number"),
    ],
)
def test_rules_that_cannot_hold_are_refused_when_declared(rule: Any, message: str) -> None:
    p = problem(60)
    with pytest.raises(of.DeclarationError) as failure:
        p.with_constraints(r=rule())
    assert message in str(failure.value)
    assert failure.value.remedy


def test_rules_need_masses() -> None:
    x = cp.Variable(2)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0]))
    with pytest.raises(of.DeclarationError, match="rule on group masses"):
        p.with_constraints(r=of.balance(0.1))


def test_infeasible_rules_are_named_by_every_route() -> None:
    p = problem(60)
    q = p.with_constraints(
        fair=of.perfect_fairness(),
        first=p["masses"][0, 0] >= 0.9 * p.shares[0],
        second=p["masses"][1, 1] >= 0.9 * p.shares[1],
        harmless=of.cluster_share(lower=0.01),
    )
    with pytest.raises(of.Infeasible) as fast:
        q.solve()
    assert set(fast.value.conflict) == {"fair", "first", "second"}
    assert fast.value.certificate.verify()
    forged = replace(fast.value.certificate, z=np.abs(fast.value.certificate.z))
    assert not forged.verify()
    with pytest.raises(of.Infeasible) as slow:
        q.solve("highs")
    assert {"fair", "first", "second"} <= set(slow.value.conflict)
    assert slow.value.certificate.verify()


def test_rules_that_are_only_just_feasible() -> None:
    p = problem(60, K=5)
    exact = p.with_constraints(
        fair=of.perfect_fairness(), size=of.cluster_share(lower=0.2, upper=0.2)
    )
    s = exact.solve()
    assert s.is_optimal(1e-9)
    assert s["masses"] == pytest.approx(np.outer(p.shares, np.full(5, 0.2)), abs=1e-12)


def test_shares_of_each_cluster_are_values() -> None:
    rules = [of.cluster_share(lower=given) for given in ([0.1, 0.2], np.array([0.1, 0.2]))]
    assert rules[0] == rules[1] and hash(rules[0]) == hash(rules[1])
    assert rules[0] != of.cluster_share(lower=np.array([0.2, 0.1]))
    for given in ([[0.1], [0.1, 0.2]], np.full((2, 2), 0.1)):  # no share for each of four
        with pytest.raises(DeclarationError, match="cluster_share lower"):
            of.FairKMeans(4, fairness=of.cluster_share(given)).fit(
                np.arange(8.0)[:, None], groups=np.arange(8) % 2
            )
