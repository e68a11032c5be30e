"""Cuts written at a point, and pools: against enumeration, and stopped early."""

from __future__ import annotations

import pickle
import time
from itertools import permutations
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.added_rows import with_cuts

RNG = np.random.default_rng(5)


def tour(n: int) -> tuple[Any, Any, Any]:
    """Return an assignment problem, the cuts that make it a tour, and distances."""
    points = RNG.random((n, 2))
    D = np.linalg.norm(points[:, None] - points, axis=2)
    x = cp.Variable((n, n), name="next", boolean=True)
    rows = [cp.sum(x, axis=0) == 1, cp.sum(x, axis=1) == 1, cp.diag(x) == 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(D, x))), rows))

    def cuts(values: Any) -> list[Any]:
        after, left, found = np.asarray(values["next"]).argmax(axis=1), set(range(n)), []
        while left:
            cycle, at = [], min(left)
            while at in left:
                left.discard(at)
                cycle.append(at)
                at = int(after[at])
            if len(cycle) < n:
                found.append(cp.sum(p["next"][np.ix_(cycle, cycle)]) <= len(cycle) - 1)
        return found

    return p, cuts, D


def test_a_tour_is_the_shortest_of_all() -> None:
    p, cuts, D = tour(7)
    s = p.solve(cuts=cuts)
    every = (np.array([0, *rest, 0]) for rest in permutations(range(1, 7)))
    assert s.objective == pytest.approx(min(D[t[:-1], t[1:]].sum() for t in every), abs=1e-7)
    assert s.options["cuts"] == len(s.problem.constraints) - len(p.constraints) > 0
    assert not list(cuts(s.values)) and s.options["rounds"] > 1
    assert p.solve().objective < s.objective
    # tours in order: each is a tour, and none comes twice
    pool = p.solve(cuts=cuts, solutions=3).pool
    lengths = sorted(
        D[t[:-1], t[1:]].sum() for t in (np.array([0, *r, 0]) for r in permutations(range(1, 7)))
    )
    np.testing.assert_allclose([t.objective for t in pool], lengths[:3], atol=1e-7)


def test_cuts_of_a_convex_set_end_at_its_optimum_with_a_proof() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), [x <= 2, x >= -2]))

    names = (f"tangent {i}" for i in range(1000))

    def disk(values: Any) -> Any:
        v = np.asarray(values["x"])
        return {next(names): p["x"] @ (v / np.linalg.norm(v)) <= 1.0}

    s = p.solve(cuts=disk, tolerance=1e-8)
    assert s.objective == pytest.approx(np.sqrt(2.0), abs=1e-7)
    assert s.grade.word == "proved" and s.is_optimal(1e-6)
    # a rule and rows that hold already change nothing
    assert p.solve(cuts=lambda values: [p["x"] <= 3, p["x"] >= -3]).options["cuts"] == 0
    assert p.solve(cuts=lambda values: None).options["rounds"] == 1
    quadratic = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - 2)), [x >= -2]))
    s = quadratic.solve(cuts=lambda v: quadratic["x"][0] <= 1.0)
    np.testing.assert_allclose(s["x"], [1.0, 2.0], atol=1e-6)


def test_what_stops_early_keeps_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    p, cuts, _ = tour(6)

    def stopped(values: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(of.SolverFailure, match="no point obeys all cuts yet") as e:
        p.solve(cuts=stopped)
    assert e.value.solution.bound <= p.solve(cuts=cuts).objective + 1e-9
    with pytest.raises(of.DeclarationError):
        p.solve(cuts=lambda values: 3.0)
    with pytest.raises(of.Infeasible, match="cut 1"):
        p.solve(cuts=lambda values: cp.sum(p["next"]) <= 5)


def knapsack() -> tuple[Any, Any]:
    weights, worth = RNG.integers(2, 9, 6), RNG.integers(1, 30, 6).astype(float)
    x = cp.Variable(6, name="x", boolean=True)
    p = of.from_cvxpy(cp.Problem(cp.Maximize(worth @ x), [weights @ x <= 12]))
    every = np.array(np.meshgrid(*[[0, 1]] * 6)).reshape(6, -1).T
    return p, np.sort(every[every @ weights <= 12] @ worth)[::-1]


def test_a_pool_is_all_solutions_in_order_and_says_so() -> None:
    p, values = knapsack()
    s = p.solve(solutions=5)
    np.testing.assert_allclose([t.objective for t in s.pool], values[:5], atol=1e-6)
    assert s.pool.ended == "full" and s.pool.proof is None
    assert s.objective == s.pool[0].objective
    chosen = {tuple(np.round(t["x"]).tolist()) for t in s.pool}
    assert len(chosen) == 5
    # a solution is feasible for the problem without the rows that leave out others
    for t in s.pool:
        assert all(c.relative_violation(t.values) <= 1e-7 for c in p.constraints.values())
    few = p.with_constraints(many=cp.sum(p["x"]) <= 1).solve(solutions=100)
    assert few.pool.ended == "exhausted" and len(few.pool) == 7
    assert few.pool.proof is not None and few.pool.proof.verify()
    assert "exhausted" in repr(few.pool)
    assert len(pickle.loads(pickle.dumps(s)).pool) == 5


def test_pools_that_cannot_be_are_refused() -> None:
    x = cp.Variable(2, name="x", integer=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0, x <= 2]))
    with pytest.raises(of.ClassError, match="another value than 0 and 1"):
        p.solve(solutions=2)
    assert p.with_constraints(b=p["x"] <= 1).solve(solutions=9).pool.ended == "exhausted"
    y = cp.Variable(2, name="y")
    with pytest.raises(of.ClassError, match="binaries"):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(y)), [y >= 0])).solve(solutions=2)
    with pytest.raises(of.OptfairError):
        p.solve(solutions=0)


def test_integer_constraints_that_exclude_each_other_are_proved_to() -> None:
    x = cp.Variable(4, name="x", boolean=True)
    pairs = [x[i] + x[j] <= 1 for i in range(4) for j in range(i)]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [cp.sum(x) == 2, *pairs]))
    with pytest.raises(of.Infeasible) as e:
        p.solve()
    assert e.value.certificate is not None and e.value.certificate.verify()
    assert set(e.value.conflict) == set(p.constraints)


@pytest.mark.parametrize("unit", [1e-8, 1e-6, 1.0, 1e6])
def test_cuts_are_measured_in_the_unit_of_the_data(unit: float) -> None:
    y = cp.Variable(3, name="y")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), [cp.abs(y) <= unit]), ["box"])

    def ball(values: Any) -> Any:
        v = np.asarray(values["y"])
        return v / np.linalg.norm(v) @ p["y"] <= unit

    s = p.solve(cuts=ball)
    assert s.objective == pytest.approx(unit * np.sqrt(3.0), rel=1e-6) and s.grade.sound


def test_rows_get_names_that_are_free() -> None:
    x = cp.Variable(4, name="x", boolean=True)
    goal = cp.Maximize(np.array([4.0, 3, 2, 1]) @ x)
    p = of.from_cvxpy(cp.Problem(goal, [cp.sum(x) <= 3, x[0] <= 1]), ["k", "cut 1"])

    def neighbours(values: Any) -> Any:
        v = np.round(values["x"])
        pairs = [i for i in range(3) if v[i] + v[i + 1] > 1.5]
        return {"pair": p["x"][pairs[-1]] + p["x"][pairs[-1] + 1] <= 1} if pairs else {}

    def unnamed(values: Any) -> Any:
        return list(neighbours(values).values())

    apart = [6.0, 5, 4, 4, 3, 2, 1, 0]  # of sets without neighbours
    for cuts in (neighbours, unnamed):
        s = p.solve(cuts=cuts, solutions=10)
        assert [round(t.objective, 6) for t in s.pool] == apart and s.pool.ended == "exhausted"
    assert "cut 2" in p.solve(cuts=unnamed).problem.constraints
    last = p.solve(solutions=2).pool[1]
    assert len(last.problem.solve(solutions=2).pool) == 2  # a pool of what a pool has left out


def test_a_time_limit_is_that_of_all_rounds() -> None:
    x = cp.Variable(3, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), [cp.abs(x) <= 1]), ["box"])
    rounds = []

    def slow(values: Any) -> Any:
        rounds.append(1)
        time.sleep(0.05)
        v = np.asarray(values["x"])
        return v / np.linalg.norm(v) @ p["x"] <= 1.0

    with pytest.raises(of.SolverFailure, match="no point obeys all cuts yet") as stopped:
        p.solve(cuts=slow, time_limit=0.2, tolerance=1e-12)
    last: Any = stopped.value.solution
    assert len(rounds) <= 5 and np.sqrt(3.0) - 1e-9 <= last.bound <= 3.0
    # a solve that is late has the last point as well
    calls = []

    def answer(problem: Any) -> Any:
        calls.append(problem)
        if len(calls) > 1:
            raise of.SolverFailure("late", "", "")
        return problem.solve()

    with pytest.raises(of.SolverFailure, match="no point obeys all cuts yet"):
        with_cuts(p, slow, answer, 1e-7, deadline=0.0)
    calls.clear()
    with pytest.raises(of.SolverFailure, match="late"):
        with_cuts(p, slow, answer, 1e-7)
