"""Couplings: the cost by expansion, the paper's weight, POT, and the factored form."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import ot
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import optfair as of


def points(seed: int, n0: int = 8, n1: int = 12, K: int = 3, d: int = 2) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n0, d)), rng.normal(size=(n1, d)) + 0.5, rng.normal(size=(K, d))


def distance(x: Any, mu: Any, metric: str, p: float) -> Any:
    apart = np.abs(x[:, None] - mu)
    power = {"sqeuclidean": 2.0, "l1": 1.0, "lp": p}[metric]
    return (apart**power).sum(-1)


def test_cost_is_the_aligned_points_form() -> None:
    x, y, mu = points(0)
    pi0, pi1 = 8 / 20, 12 / 20
    aligned = pi0 * x[:, None] + pi1 * y[None]
    to_center = ((aligned[:, :, None] - mu) ** 2).sum(-1).min(-1)
    apart = ((x[:, None] - y) ** 2).sum(-1)
    exact = of.KantorovichCoupling(x, y, centers=mu).cost
    paper = of.KantorovichCoupling(x, y, centers=mu, transport_weight="paper").cost
    assert np.allclose(exact, pi0 * pi1 * apart + to_center, rtol=1e-12)
    assert np.allclose(paper, 2 * pi0 * pi1 * apart + to_center, rtol=1e-12)


def test_the_papers_weight_is_another_objective() -> None:
    x, y, mu = points(3)
    exact = of.KantorovichCoupling(x, y, centers=mu)
    paper = of.KantorovichCoupling(x, y, centers=mu, transport_weight="paper")
    true_cost_of_papers_plan = float((exact.cost * paper.solve()["plan"]).sum())
    assert true_cost_of_papers_plan > exact.solve().objective * 1.0001


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))
def test_factored_equals_pot_and_glues_back(seed: int, n0: int, n1: int, K: int) -> None:
    K = min(K, n0 + n1)
    metric = ("sqeuclidean", "l1", "lp")[seed % 3]
    x, y, mu = points(seed, n0, n1, K)
    p = of.KantorovichCoupling(x, y, centers=mu, metric=metric, p=3.0)
    exact = ot.emd2(np.full(n0, 1 / n0), np.full(n1, 1 / n1), p.cost)
    factored = of.fair_clustering.factor_coupling(p)
    s = factored.problem.solve()
    assert s.objective == pytest.approx(exact, rel=1e-12, abs=1e-12)
    plan = factored.recover(s)
    assert sp.issparse(plan) and plan.nnz <= n0 + n1 + K
    assert plan.min() >= 0
    assert np.allclose(plan.sum(axis=1), 1 / n0, rtol=0, atol=1e-12)
    assert np.allclose(plan.sum(axis=0), 1 / n1, rtol=0, atol=1e-12)
    assert float((plan.toarray() * p.cost).sum()) == pytest.approx(exact, rel=1e-12, abs=1e-12)


@given(st.integers(0, 10_000))
def test_factored_equals_pot_with_given_marginals_and_shares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, mu = points(seed)
    a, b = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(12))
    p = of.KantorovichCoupling(x, y, centers=mu, a=a, b=b, shares=(0.3, 0.7))
    s = of.fair_clustering.factor_coupling(p).problem.solve()
    assert s.objective == pytest.approx(ot.emd2(a, b, p.cost), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("metric", ["sqeuclidean", "l1", "lp"])
def test_three_groups_equal_the_three_marginal_problem(seed: int, metric: str) -> None:
    rng = np.random.default_rng(seed)
    sizes, K = (4, 5, 6), 3
    blocks = [rng.normal(size=(m, 2)) for m in sizes]
    mu = rng.normal(size=(K, 2))
    shares = np.array(sizes) / sum(sizes)
    D = [distance(b, mu, metric, 3.0) for b in blocks]
    cost = np.array(
        [
            min(sum(shares[g] * D[g][i, k] for g, i in enumerate(index)) for k in range(K))
            for index in product(*map(range, sizes))
        ]
    )
    rows, right = [], []
    for g, m in enumerate(sizes):
        for i in range(m):
            rows.append([float(index[g] == i) for index in product(*map(range, sizes))])
            right.append(1 / m)
    explicit = linprog(cost, A_eq=np.array(rows), b_eq=right, method="highs")
    groups = np.repeat(np.arange(3), sizes)
    p = of.FairAssignment(np.vstack(blocks), groups=groups, centers=mu, metric=metric, p=3.0)
    s = p.solve()
    assert s.objective == pytest.approx(explicit.fun, rel=1e-9)
    # and each group's own transport to the common cluster sizes, by POT, costs as much
    sizes_of_clusters = s["masses"].sum(axis=0)
    by_pot = sum(
        shares[g] * ot.emd2(np.full(m, 1 / m), sizes_of_clusters / sizes_of_clusters.sum(), D[g])
        for g, m in enumerate(sizes)
    )
    assert s.objective == pytest.approx(by_pot, rel=1e-9)


def test_network_simplex_certificate_and_integer_masses() -> None:
    x, y, mu = points(5, 60, 90)
    s = of.KantorovichCoupling(x, y, centers=mu).solve()
    assert s.solver == "pot-network-simplex"
    assert s.is_optimal(1e-12)
    u, v = -s.multipliers["row marginal"], -s.multipliers["column marginal"]
    assert (u[:, None] + v <= s.problem.cost + 1e-15).all()  # dual feasible without tolerance
    integer = s["plan"] * 60 * 90 / np.gcd(60, 90)
    assert np.allclose(integer, np.round(integer), atol=1e-9)
    assert s.objective == pytest.approx(s.problem.solve("highs").objective, rel=1e-9)


def test_structure_is_lost_with_a_further_term() -> None:
    p = of.KantorovichCoupling(cost=np.random.default_rng(0).random((4, 5)))
    q = p.with_constraints(share=p["plan"][0, 0] <= 0.1)
    with pytest.raises(of.UnsupportedProblem) as refusal:
        q.solve("pot-network-simplex")
    assert str(refusal.value).startswith(
        "pot-network-simplex needs the structure 'coupling'; 'share' is not a marginal"
    )
    assert "highs" in refusal.value.remedy
    assert q.solve().solver == "highs"
    with pytest.raises(of.ClassError, match="further terms"):
        of.fair_clustering.factor_coupling(
            of.KantorovichCoupling(*points(0)[:2], centers=points(0)[2]).without("row marginal")
        )


def test_what_does_not_factor() -> None:
    x, y, mu = points(0)
    with pytest.raises(of.ClassError, match="free cost matrix"):
        of.fair_clustering.factor_coupling(of.KantorovichCoupling(cost=np.eye(3)))
    with pytest.raises(of.ClassError, match="2 π0 π1"):
        of.fair_clustering.factor_coupling(
            of.KantorovichCoupling(x, y, centers=mu, transport_weight="paper")
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cost": [[1.0, np.nan]]}, "cost has 1 entries"),
        ({"cost": np.eye(2), "a": [0.5, 0.6]}, "different sums"),
        ({"cost": np.eye(2), "a": [1.0, 0.0]}, "not positive"),
        ({"cost": np.eye(2), "b": [1.0]}, "marginal b does not fit"),
        ({"cost": np.eye(2), "first": np.eye(2)}, "not both"),
        ({"first": np.eye(2)}, "points are incomplete"),
        ({"first": np.eye(2), "second": np.eye(3), "centers": np.eye(2)}, "second has 3 columns"),
        ({"cost": np.eye(2), "transport_weight": "Paper"}, "did you mean 'paper'"),
        (
            {
                "first": np.eye(2),
                "second": np.eye(2),
                "centers": np.eye(2),
                "metric": "l1",
                "transport_weight": "paper",
            },
            "squared distances only",
        ),
    ],
)
def test_bad_input(arguments: Any, message: str) -> None:
    with pytest.raises((of.DataError, of.DeclarationError)) as failure:
        of.KantorovichCoupling(**arguments)
    assert message in str(failure.value)
