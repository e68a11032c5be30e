"""The largest balance under a budget: both ends proved, and the same as a grid and one LP."""

from __future__ import annotations

import importlib
from dataclasses import replace
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.core.verbs import ProblemVerbs
from optfair.methods.fair_clustering.bounded_cost import (
    _slope,
    bounded_cost_kmeans,
    largest_balance,
)


def declared(groups=2, n=90, K=4, seed=0, **options):
    rng = np.random.default_rng(seed)
    labels = rng.choice(list("abc")[:groups], n, p=[[0.6, 0.4], [0.5, 0.3, 0.2]][groups - 2])
    X = rng.normal(size=(n, 2)) + 2.0 * (labels == "a")[:, None]
    return of.FairAssignment(X, groups=labels, centers=X[:K], fairness=None, **options)


def least(problem, b):
    return problem.with_constraints(b=of.balance(b)).solve().objective


def ends(problem):
    """Least cost without a rule and at the population's balance."""
    return problem.solve().objective, least(problem, problem.shares.min() / problem.shares.max())


def fractional_program(problem, budget):
    """The largest balance by Dinkelbach's scaled method, with the budget as a row of the LP."""
    with_budget = problem.with_constraints(
        budget=cp.sum(
            cp.multiply(
                problem.data["weights"][:, None] * problem.cost.matrix(), problem["assignment"]
            )
        )
        <= budget
    )
    G = len(problem.shares)
    b, scale = 0.0, np.ones((G, problem.cost.clusters))
    for _ in range(50):
        built, variables, _ = with_budget.built(fresh=True)
        M = variables["masses"]
        worst = [
            cp.multiply(M[g] - b * M[h], 1.0 / scale[h])
            for g in range(G)
            for h in range(G)
            if g != h
        ]
        inner = cp.Problem(cp.Maximize(cp.min(cp.hstack(worst))), built.constraints)
        inner.solve(solver=cp.HIGHS)
        values = M.value[:, M.value.sum(axis=0) > 1e-9]
        better = float((values.min(axis=0) / values.max(axis=0)).min())
        if better <= b + 1e-8:  # as far as the solver's feasibility of 1e-7 tells
            return b
        b, scale = better, np.maximum(M.value, 1e-3)  # by denominators: superlinear
    raise AssertionError("no convergence")


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("part", [0.05, 0.4, 0.9])
def test_agrees_with_a_fractional_program(groups, part):
    p = declared(groups)
    low, high = ends(p)
    budget = low + part * (high - low)
    found = largest_balance(p, budget, tol=1e-5)
    assert found.verify() and found.status == "converged"
    assert 0 < found.upper - found.balance <= 1e-5
    exact = fractional_program(p, budget)
    assert found.balance - 1e-6 <= exact <= found.upper + 1e-6


def test_both_ends_are_what_they_say():
    p = declared(3, sample_weight=np.random.default_rng(1).random(90) + 0.2)
    low, high = ends(p)
    budget = 0.5 * (low + high)
    found = largest_balance(p, budget)
    w = p.data["weights"]
    groups = p.group_names[p.data["groups"]]
    A = found.solution["assignment"]
    assert metrics.balance(groups, A, soft=True, sample_weight=w) >= found.balance - 1e-6
    assert metrics.cost(p.cost.points, p.cost.centers, A, soft=True, sample_weight=w) <= budget * (
        1 + 1e-7
    )
    assert least(p, found.upper) > budget >= least(p, found.balance) * (1 - 1e-7)
    assert found.refused.bound > budget
    np.testing.assert_array_equal(found.labels, A.argmax(axis=1))


def test_a_larger_budget_never_buys_less():
    p = declared()
    low, high = ends(p)
    found = [largest_balance(p, low + t * (high - low)).balance for t in (0, 0.2, 0.5, 0.8, 1.0)]
    assert all(b >= a - 1e-4 for a, b in pairwise(found))
    assert found[-1] > found[0] + 0.1


def test_fewer_problems_than_bisection():
    p = declared()
    low, high = ends(p)
    tol = 1e-6
    counts = [
        len(largest_balance(p, low + t * (high - low), tol=tol).steps) for t in (0.1, 0.5, 0.9)
    ]
    assert max(counts) < np.log2(p.shares.min() / p.shares.max() / tol)


def test_a_budget_for_everything_needs_two_problems():
    p = declared()
    found = largest_balance(p, 1e9)
    assert found.balance == found.upper == p.shares.min() / p.shares.max()
    assert found.refused is None and len(found.steps) == 2 and found.verify()
    assert "the population's" in repr(found)


def test_budget_of_the_plain_optimum_keeps_its_balance():
    p = declared()
    plain = p.solve()
    found = largest_balance(p, plain.objective)
    assert found.balance == pytest.approx(
        metrics.balance(p.data["groups"], plain["assignment"], soft=True), abs=1e-4
    )
    assert found.verify()


def test_too_small_a_budget_is_infeasible_with_the_optimum_as_evidence():
    p = declared()
    least_cost = p.solve().objective
    with pytest.raises(of.Infeasible, match="no assignment costs at most") as e:
        largest_balance(p, 0.9 * least_cost)
    assert f"{least_cost:.6g}"[:6] in e.value.evidence
    assert e.value.certificate.verify()
    fair = of.FairAssignment(p.cost.points, groups=p.data["groups"], centers=p.cost.centers)
    with pytest.raises(of.Infeasible, match=r"without\('fairness'\)"):
        largest_balance(fair, 1.0001 * least_cost)


def test_further_constraints_are_obeyed_and_cost_balance():
    p = declared()
    shared = p.with_constraints(share=of.cluster_share(lower=0.2))
    budget = 0.5 * sum(ends(shared))
    found = largest_balance(shared, budget)
    assert found.verify()
    assert np.asarray(found.solution["masses"]).sum(axis=0).min() >= 0.2 - 1e-7
    assert largest_balance(p, budget).balance > found.balance + 1e-3


def test_an_impossible_balance_is_refused_by_a_certificate():
    p = declared()
    M = p["masses"]
    lean = p.with_constraints(lean=M[1, 0] <= 0.2 * M[0, 0], used=M[0, 0] >= 0.05)
    found = largest_balance(lean, 1e9)
    assert found.balance == pytest.approx(0.2, abs=1e-4)
    assert isinstance(found.refused, of.core.Certificate) and found.verify()
    assert np.inf in [cost for _, cost in found.steps]


def test_slope_is_the_derivative_of_the_least_cost():
    for groups in (2, 3):
        p = declared(groups)
        b, h = 0.25 if groups == 2 else 0.15, 1e-5
        s = p.with_constraints(balance=of.balance(b)).solve()
        difference = (least(p, b + h) - least(p, b - h)) / (2 * h)
        assert difference > 0
        assert _slope(s) == pytest.approx(difference, rel=1e-4)


def test_tampered_results_do_not_verify():
    p = declared()
    low, high = ends(p)
    found = largest_balance(p, 0.5 * (low + high))
    assert found.verify()
    assert not replace(found, balance=found.balance + 1e-3).verify()
    assert not replace(found, balance=2.0).verify()
    assert not replace(found, upper=found.upper - 1e-3).verify()
    assert not replace(found, budget=found.budget - 1e-3).verify()
    assert not replace(found, budget=found.refused.bound + 1e-9).verify()
    assert not replace(found, refused=None).verify()
    A = np.array(found.solution["assignment"])
    A[0] = A[0][::-1]
    moved = replace(found.solution, values={**found.solution.values, "assignment": A})
    assert not replace(found, solution=moved).verify()
    prices = {k: np.array(v) for k, v in found.refused.multipliers.items()}
    prices["mass definition"][0, 0] += 1e-3
    assert not replace(found, refused=replace(found.refused, multipliers=prices)).verify()
    elsewhere = largest_balance(declared(seed=7), 0.5 * sum(ends(declared(seed=7))))
    assert "another problem" in str(replace(found, refused=elsewhere.refused).verify())


def test_each_problem_starts_from_the_one_before(monkeypatch):
    given, returned = [], []
    original = ProblemVerbs.solve

    def spy(self, *args, **options):
        given.append(options["warm_start"])
        returned.append(original(self, *args, **options))
        return returned[-1]

    p = declared()
    budget = 0.5 * sum(ends(p))
    monkeypatch.setattr(ProblemVerbs, "solve", spy)
    found = largest_balance(p, budget)
    assert len(given) == len(found.steps) > 3
    assert given[0] is None
    assert all(a is b for a, b in zip(given[1:], returned, strict=False))


def test_other_solvers_find_the_same():
    p = declared(n=40, K=3)
    budget = 0.5 * sum(ends(p))
    ours, highs = largest_balance(p, budget), largest_balance(p, budget, solver="highs")
    assert highs.solution.solver == "highs" and highs.verify()
    assert highs.balance == pytest.approx(ours.balance, abs=2e-4)


def test_time_limit_and_interrupt_keep_the_bracket(monkeypatch):
    p = declared()
    budget = 0.5 * sum(ends(p))
    with monkeypatch.context() as m:
        clock = iter(np.arange(0.0, 1e4, 1.0))  # seconds that every look at the clock takes
        m.setattr(
            "optfair.methods.fair_clustering.bounded_cost.time.perf_counter", lambda: next(clock)
        )
        late = largest_balance(p, budget, time_limit=60.0)
    assert late.status == "time_limit" and late.verify()
    original, calls = ProblemVerbs.solve, []

    def stop(self, *args, **options):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *args, **options)

    monkeypatch.setattr(ProblemVerbs, "solve", stop)
    found = largest_balance(p, budget)
    assert (found.status, len(found.steps)) == ("interrupted", 3)
    assert found.upper - found.balance > 1e-4 and found.verify()


def test_bad_input_says_what_to_do():
    p = declared()
    with pytest.raises(of.DeclarationError, match="works on a FairAssignment"):
        largest_balance(of.KantorovichCoupling(cost=[[0.0]]), 1.0)
    with pytest.raises(of.DeclarationError, match="outside"):
        largest_balance(p, 1.0, tol=0.0)
    with pytest.raises(of.DataError, match="finite number"):
        largest_balance(p, float("nan"))
    with pytest.raises(of.DeclarationError, match="already there"):
        largest_balance(p.with_constraints(balance=of.balance(0.1)), 1.0)


def test_comparator_opens_centers_by_kmeans_and_keeps_the_price():
    p = declared()
    X, groups = p.cost.points, p.group_names[p.data["groups"]]
    found = bounded_cost_kmeans(
        X, groups=groups, n_clusters=4, price_of_fairness=1.05, random_state=0
    )
    plain = found.problem.solve()
    assert found.budget == pytest.approx(1.05 * plain.objective, rel=1e-9)
    # k-means stops here: its centers are the means of its clusters
    means = [X[plain["assignment"].argmax(axis=1) == k].mean(axis=0) for k in range(4)]
    np.testing.assert_allclose(found.problem.cost.centers, means, atol=1e-6)
    assert found.verify() and found.solution.objective <= found.budget * (1 + 1e-7)
    again = bounded_cost_kmeans(
        X, groups=groups, n_clusters=4, price_of_fairness=1.05, random_state=0
    )
    assert again.balance == found.balance
    generous = bounded_cost_kmeans(
        X, groups=groups, n_clusters=4, price_of_fairness=5.0, random_state=0
    )
    assert generous.refused is None


def test_comparator_refuses_bad_input():
    p = declared()
    X, groups = p.cost.points, p.group_names[p.data["groups"]]
    with pytest.raises(of.DeclarationError, match="below 1"):
        bounded_cost_kmeans(X, groups=groups, n_clusters=4, price_of_fairness=0.9)
    with pytest.raises(of.DataError, match="number of clusters"):
        bounded_cost_kmeans(X, groups=groups, n_clusters=91)
    with pytest.raises(of.DataError, match="one group only"):
        bounded_cost_kmeans(X, groups=["a"] * 90, n_clusters=4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scale", [1e-2, 1e-3, 1e-4, 1e4])
def test_units_do_not_matter(scale):
    def in_units(s):
        p = declared()
        q = of.FairAssignment(
            s * p.cost.points, groups=p.data["groups"], centers=s * p.cost.centers, fairness=None
        )
        low, high = ends(q)
        return low, largest_balance(q, low + 0.3 * (high - low))

    (here_low, here), (low, there) = in_units(1.0), in_units(scale)
    assert there.status == "converged" and there.verify()
    assert there.balance == pytest.approx(here.balance, abs=2e-4)
    assert there.balance < 0.9 * there.problem.shares.min() / there.problem.shares.max()
    assert there.solution.objective / low == pytest.approx(
        here.solution.objective / here_low, rel=1e-4
    )
    assert there.solution.objective <= there.budget * (1 + 1e-7)
    with pytest.raises(of.Infeasible):
        largest_balance(there.problem, 0.9 * low)
    assert not replace(there, budget=0.99 * there.solution.objective).verify()
    X, groups = there.problem.cost.points, there.problem.data["groups"]
    found = bounded_cost_kmeans(
        X, groups=groups, n_clusters=4, price_of_fairness=1.05, random_state=0
    )
    one = bounded_cost_kmeans(
        X / scale, groups=groups, n_clusters=4, price_of_fairness=1.05, random_state=0
    )
    assert found.verify() and found.solution.objective <= found.budget * (1 + 1e-7)
    assert found.balance == pytest.approx(one.balance, abs=2e-4)


def test_budgets_small_beside_the_cost_of_a_row_are_kept():
    # tight clusters far apart: the optimum is 1e-9 of the mean distance to all centers
    rng = np.random.default_rng(0)
    centers = 1e3 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    X = centers[np.arange(90) % 3] + 0.05 * rng.normal(size=(90, 2))
    # two of the clusters share a place for the rows of both groups to be exchanged
    twin = np.concatenate([centers, centers[:1] + 0.05])
    labels = rng.choice(["a", "b"], 90, p=[0.6, 0.4])
    p = of.FairAssignment(X, groups=labels, centers=twin, fairness=None)
    low = p.solve(tolerance=1e-11).objective
    found = largest_balance(p, 1.0001 * low)
    assert found.solution.objective <= found.budget * (1 + 1e-7)
    assert found.status == "converged" and found.verify()


def test_clusters_of_equal_rows_need_no_budget():
    X = np.repeat([[0.1], [0.7], [1e3]], [6, 6, 6], axis=0)
    labels = np.array(["a", "b", "b"] * 6)
    found = bounded_cost_kmeans(X, groups=labels, n_clusters=3, random_state=0)
    assert found.balance == pytest.approx(0.5) and found.verify()


@pytest.mark.parametrize("n_init", [0, 2.5, "x", True])
def test_a_number_of_starts_that_is_none(n_init):
    p = declared()
    with pytest.raises(of.DeclarationError, match="n_init"):
        bounded_cost_kmeans(p.cost.points, groups=p.data["groups"], n_clusters=4, n_init=n_init)


def test_groups_may_be_a_column_of_a_frame():
    pd = importlib.import_module("pandas")
    p = declared()
    frame = pd.DataFrame(p.cost.points, columns=["x", "y"])
    frame["sex"] = p.group_names[p.data["groups"]]
    named = bounded_cost_kmeans(frame, groups="sex", n_clusters=4, random_state=0)
    given = bounded_cost_kmeans(p.cost.points, groups=frame["sex"], n_clusters=4, random_state=0)
    assert named.balance == given.balance and named.budget == given.budget
