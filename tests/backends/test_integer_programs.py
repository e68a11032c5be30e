"""Cuts written at a point, pools, and what integers leave: against enumeration, and stopped early."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import conic_backend, integer_programs
from optfair.backends.conic_backend import run_cases
from optfair.backends.integer_programs import (
    excluded_by_rows,
    integers_of,
    left_by,
    ways_to_solve,
    with_cuts,
)
from optfair.backends.registry import _policy, choose, conic_interface
from optfair.backends.request import Outcome, ReportedBound, Request
from optfair.compile.form import compile_problem
from optfair.proofs.contradictions import infeasibility
from optfair.registry import fact_files, load_facts
from optfair.solution.residuals import violations
from optfair.transforms.relaxation import relaxed

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
        assert round(s.objective, 6) == apart[0]
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


# A row says of the other variables what its integers leave of it.


@pytest.mark.parametrize("far", [0, 10**6])
def test_a_row_that_a_binary_closes_is_measured_by_what_is_left(far: int) -> None:
    """x <= 1e6 (z - far) is x <= 0 at z = far, however large the numbers that cancel are."""
    x, y, z = cp.Variable(name="x"), cp.Variable(name="y"), cp.Variable(name="z", integer=True)
    rows = [x - y <= 1e6 * z - 1e6 * far, cp.norm(cp.hstack([x, y])) <= 2.0 + 1e6 * (z - far)]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(x), [*rows, z <= far + 1, z >= far, x <= 5]))
    off, loose = violations(p, {"x": np.array(0.1), "y": np.array(0.0), "z": np.array(1.0 * far)})
    assert off["c0"] == pytest.approx(0.1) == loose["c0"] and off["c1"] == 0.0
    off, loose = violations(p, {"x": np.array(0.0), "y": np.array(3.0), "z": np.array(1.0 * far)})
    assert off["c1"] == pytest.approx(1.0 / 3.0) == loose["c1"]
    off, _ = violations(p, {"x": np.array(1e6), "y": np.array(-1.0), "z": np.array(far + 1.0)})
    assert off["c0"] == pytest.approx(1.0 / (1.0 + 1e6))
    # terms that are left without a side count for their own size, those of integers do not
    sizes = compile_problem(relaxed(p), conic_interface()).entry_sizes
    at = {"x": np.array(200.0), "y": np.array(199.0), "z": np.array(1.0 * far)}
    near, far_off = violations(p, at, sizes)[0]["c0"], violations(p, at)[0]["c0"]
    assert 1e-3 < near <= far_off == pytest.approx(1.0)


@pytest.mark.parametrize("whole", [True, False])
def test_a_row_of_a_vector_is_not_measured_by_what_another_is_left(whole: bool) -> None:
    """x <= 1e9 z holds for both entries, or for none; integers alone break it by what they are over."""
    x, z = cp.Variable(2, name="x", integer=whole), cp.Variable(2, name="z", boolean=True)
    rows = [x <= 1e9 * z, x + 1e9 * z <= 1e9 + 5]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), rows))
    at = {"x": np.array([6.0, 2.0]), "z": np.array([0.0, 1.0])}
    sizes = compile_problem(relaxed(p), conic_interface()).entry_sizes
    for known in (None, sizes):
        off, loose = violations(p, at, known)
        assert off["c0"] >= 6.0 / 7.0 and loose["c0"] >= 6.0 / 7.0 and off["c1"] == 0.0
        off, loose = violations(p, {**at, "z": np.ones(2)}, known)
        assert off["c0"] == 0.0 and min(off["c1"], loose["c1"]) >= 1.0 / 7.0


@pytest.mark.parametrize("curved", [False, True])
def test_a_row_in_small_units_beside_counts_is_held_to_its_own_terms(curved: bool) -> None:
    """1e-6 x >= 4e-12 says x >= 4e-6; at x = 0 it is missed by all there is, by 4e-12 of 1."""
    x, z = cp.Variable(name="x"), cp.Variable(2, name="z", boolean=True)
    rows = [1e-6 * x >= 4e-12, x <= 1e-5 * z[0], cp.sum(z) <= 2]
    ball = [cp.norm(cp.hstack([x, 1e-5 * z[1]])) <= 3e-5] if curved else []
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(z)), [*rows, *ball]))
    bare = {"x": np.array(0.0), "z": np.zeros(2)}
    assert max(violations(p, bare)[0].values()) <= 1e-11
    check = ReportedBound(p, 0.0, "somebody").check(bare, {})
    assert 0.3 <= check.rows <= 1.0 and check.reported == "somebody"
    inside = {"x": np.array(5e-6), "z": np.array([1.0, 0.0])}
    assert ReportedBound(p, 1.0, "somebody").check(inside, {}).rows == 0.0
    s = p.solve()
    assert s.objective == 1.0 and s["x"] >= 4e-6 * (1.0 - 1e-6)


def test_integers_alone_may_be_off_by_rounding() -> None:
    z = cp.Variable(2, name="z", integer=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(z[0]), [0.1 * z[0] == z[1], z[1] >= 1e9]))
    off, _ = violations(p, {"z": np.array([3e9 + 10.0, 3e8 + 1.0])})
    assert off["c0"] <= 1e-7
    assert violations(p, {"z": np.array([3e9, 3e8 + 1.0])})[0]["c0"] == pytest.approx(0.5)


def test_what_integers_leave_of_a_function_without_a_value_at_0() -> None:
    """log x >= 1 where z is 1: what is left of 1e8 is 1."""
    x, z = cp.Variable(name="x"), cp.Variable(name="z", boolean=True)
    for row in (1e8 * z - cp.log(x) <= 1e8 - 1, cp.log(x) - 1e8 * z >= 1 - 1e8):
        p = of.from_cvxpy(cp.Problem(cp.Minimize(x - 100 * z), [row]))
        off, loose = violations(p, {"x": np.array(1.0), "z": np.array(1.0)})
        assert off["c0"] >= 1e-2 and loose["c0"] >= 1e-2


def test_a_large_number_beside_integers_alone_is_no_excuse() -> None:
    x, z, y = (
        cp.Variable(name="x", integer=True),
        cp.Variable(name="z", boolean=True),
        cp.Variable(),
    )
    rows = [x + 1e9 * z <= 1e9 + 1, cp.square(x - 5) <= y]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(1000 * z - y), rows)).solve()
    assert s["x"] == 1.0 and s.objective == pytest.approx(984.0)


def test_a_binary_that_is_nearly_0_in_a_file_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "charge.lp"
    file.write_text(
        "Maximize\n obj: x - 1000 z\nSubject To\n open: x - 1000000 z <= 0\n"
        " cap: x <= 500\nBounds\n 0 <= z <= 1\nGenerals\n z\nEnd\n"
    )
    p = of.read(file)
    point = {n: np.full(v.shape, 0.05 * (n not in p.integers)) for n, v in p.variables.items()}
    assert max(violations(p, point)[0].values()) == pytest.approx(0.05)
    s = p.solve()
    assert s.objective == pytest.approx(0.0, abs=1e-7)
    assert all((abs(v) <= 1e-7).all() for v in s.values.values())


def test_integers_leave_their_best_point_where_rows_take_off_large_numbers() -> None:
    """The optimum is that of the program with the integers put in."""
    far = 10**6
    z, x = cp.Variable(2, integer=True, name="z"), cp.Variable(2, name="x")
    d = z - far
    e = np.array([[1.15, 0.74], [1.45, 0.0]]) @ d + x
    goal = np.array([-0.1, 0.5]) @ d + np.array([0.4, -0.6]) @ x + cp.norm(e - 1)
    rows = [z >= far - 0.3, z <= far + 4.4, x <= 2, x >= -2, cp.norm(e - 0.5) <= 0.6]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(1e-3 * goal), rows)).solve()
    assert s.objective == pytest.approx(-1.026487888602e-4, rel=1e-6)
    assert s.bound <= s.objective * (1.0 - 1e-9)


@pytest.mark.parametrize("solver", [None, "cone-cases"])
def test_a_large_number_times_an_integer_hides_no_violation(solver: str | None) -> None:
    far = 1000
    z, x = cp.Variable(2, integer=True, name="z"), cp.Variable(2, name="x")
    d = z - far
    e = np.array([[0.75, 0.94], [-1.95, -1.3]]) @ d + x
    goal = -0.3 * d[0] + np.array([-0.9, 0.9]) @ x + cp.norm(e - 1)
    ball = cp.norm(x) <= 0.01 + 1e4 * d[1]
    rows = [
        z >= far - 0.3,
        z <= far + 4.4,
        x <= 2,
        x >= -2,
        cp.exp(x[0]) <= 1e-2 + 1e5 * d[0],
        ball,
    ]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(1e3 * goal), rows)).solve(solver)
    z.value, x.value = s["z"], s["x"]
    assert s.objective == pytest.approx(2650.69906645, rel=1e-7)
    assert ball.violation() <= 1e-8 and s.grade.word == "proved"


# Cases of cones before branch and bound with cuts, as long as they are few.


def few(n: int = 12, *, sense: Any = cp.Minimize, unit: float = 1.0) -> tuple[Any, Any]:
    """Return least squares on two of some features, and its optimum by enumeration."""
    r = np.random.default_rng(3)
    X = r.normal(size=(2 * n, n))
    y = unit * (X[:, 0] - 2.0 * X[:, 3] + 0.3 * r.normal(size=2 * n))
    b, z = cp.Variable(n, name="b"), cp.Variable(n, boolean=True, name="z")
    goal = cp.sum_squares(X @ b - y) if sense is cp.Minimize else -cp.sum_squares(X @ b - y)
    p = of.from_cvxpy(cp.Problem(sense(goal), [cp.abs(b) <= 9 * unit * z, cp.sum(z) <= 2]))
    left = [np.linalg.lstsq(X[:, list(at)], y)[1][0] for at in combinations(range(n), 2)]
    return p, min(left) * (1.0 if sense is cp.Minimize else -1.0)


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_integers_beside_squares_are_proved_at_once(sense: Any, unit: float) -> None:
    p, truth = few(sense=sense, unit=unit)
    s = p.solve()
    assert s.solver == "cone-cases" and s.grade.word == "proved" and not s.attempts
    assert s.objective == pytest.approx(truth, rel=1e-6) and s.is_optimal(1e-6)
    assert (s.bound <= truth * (1 + 1e-12)) if sense is cp.Minimize else (s.bound >= truth)


def test_a_little_of_cases_comes_first_and_all_of_them_last() -> None:
    entries = load_facts(fact_files("solvers")["_policy"])["integers"]["entries"]
    p, _ = few()
    first, *others = choose(p, None)
    assert first.name == "cone-cases" and first.fixed["entries"] == entries
    assert [o.name for o in others] == ["scip", "cone-cases"]
    assert not any("entries" in o.fixed for o in others)
    assert "entries" not in choose(p, "cone-cases")[0].fixed
    X, z = cp.Variable((2, 2), PSD=True, name="X"), cp.Variable(boolean=True, name="z")
    for row in (X >> z * np.eye(2), cp.exp(z) <= X[0, 0]):
        alone = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [row, z >= 0.5]))
        whole = choose(alone, None)[0]  # nobody else branches with cuts there
        assert whole.name == "cone-cases" and "entries" not in whole.fixed


def test_too_many_cases_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    p, truth = few()
    form = compile_problem(relaxed(p), conic_interface()).form
    budget = {"entries": 4 * (form.A.nnz + form.P.nnz)}
    outcome = run_cases(p, replace(choose(p, "cone-cases")[0], fixed=budget), Request())
    assert outcome.termination == "inaccurate" and outcome.proof is not None
    value = p.objective_at(outcome.values)  # the dive has a point, and the relaxation a bound
    assert outcome.proof.check(outcome.values, {}).bound < 0.9 * truth < truth <= value + 1e-9
    none = run_cases(p, replace(choose(p, "cone-cases")[0], fixed={"entries": 1}), Request())
    assert none.termination == "inaccurate" and not none.values  # the dive costs as much as cases
    monkeypatch.setitem(_policy(fact_files("solvers")["_policy"])["integers"], "entries", 1)
    s = p.solve()
    assert s.solver == "scip" and s.attempts[0].startswith("cone-cases (inaccurate)")
    assert s.objective == pytest.approx(truth, rel=1e-6)


def test_cases_have_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, real = [], conic_backend.run_cases

    def timed(p: Any, profile: Any, request: Any) -> Any:
        limits.append(request.time_limit)
        return real(p, profile, request)

    monkeypatch.setattr(conic_backend, "run_cases", timed)
    few()[0].solve(time_limit=100.0)
    few()[0].solve("cone-cases", time_limit=100.0)
    assert limits[0] == pytest.approx(25.0, abs=2.0) and limits[1] == 100.0


def test_cases_start_from_the_integers_of_a_warm_start() -> None:
    p, truth = few()
    s = p.solve()
    again = p.solve("cone-cases", warm_start=s)
    assert again.options["warm_start"] == "used" and again.is_optimal(1e-6)
    none = replace(s, values={**s.values, "z": np.ones(12)})
    other = p.solve("cone-cases", warm_start=none)
    assert "leave no point" in other.options["warm_start"]
    assert other.objective == pytest.approx(truth, rel=1e-6)


def test_linear_programs_of_a_tree_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x = cp.Variable(2, name="x")
    rows = [x >= 1, x[0] + x[1] <= 1]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), rows))
    form = compile_problem(p.with_terms({}, p.constraints), conic_interface()).form
    right, limits = integer_programs.solve_form, list[float]()

    def timed(*args: Any) -> Any:
        limits.append(args[3]["time_limit"])
        return right(*args)

    monkeypatch.setattr(integer_programs, "solve_form", timed)
    left = time.perf_counter() + 5.0
    assert ways_to_solve(form, 1e-7, left)[0](form)[0] == "infeasible"
    assert excluded_by_rows(form, left) is None  # nothing is beside them
    ways_to_solve(form, 1e-7, 0.0)[0](form)
    curved = [cp.norm(x) <= 9, *rows]
    own = of.from_cvxpy(cp.Problem(cp.Minimize(0), curved))
    mixed = compile_problem(own, conic_interface()).form
    assert excluded_by_rows(mixed, left) is not None
    excluded_by_rows(mixed, 0.0)
    assert [0.0 < limit <= 5.0 for limit in limits[::2]] == [True, True]
    assert limits[1::2] == [0.0, 0.0]


def test_rows_that_exclude_each_other_are_told_beside_cones(capfd: Any) -> None:
    x, z = cp.Variable(2, name="x"), cp.Variable(integer=True, name="z")
    rows = [cp.norm(x) <= 3, x[0] + z >= 2, x[0] + z <= 1, cp.exp(x[1]) <= 2]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(z), rows))
    form = compile_problem(relaxed(p), conic_interface()).form
    z_rows = excluded_by_rows(form)
    assert z_rows is not None and infeasibility(form, z_rows).proved
    assert not z_rows[~(form.equal | form.nonnegative)].any()
    equal = [x[0] + z == 2, x[0] + z == 1, cp.norm(x) <= 3]
    q = of.from_cvxpy(cp.Problem(cp.Minimize(z), equal))
    form = compile_problem(relaxed(q), conic_interface()).form
    z_rows = excluded_by_rows(form)
    assert z_rows is not None and infeasibility(form, z_rows).proved
    near = compile_problem(relaxed(p.without("c2")), conic_interface()).form
    assert excluded_by_rows(near) is None
    linear = [x[0] + z >= 2, x[0] + z <= 1]  # where all rows are linear they were asked before
    q = of.from_cvxpy(cp.Problem(cp.Minimize(z), linear))
    assert excluded_by_rows(compile_problem(relaxed(q), conic_interface()).form) is None
    assert not capfd.readouterr().out


def test_the_rest_of_fixed_integers_has_their_costs_and_curvature() -> None:
    x, z = cp.Variable(2, name="x"), cp.Variable(2, integer=True, name="z")
    square = cp.sum_squares(x - 2 * z + 1) + 3 * z[0] - x[1]
    rows = [x + 1e9 * z <= 1e9 + 0.3, cp.norm(x) <= 4 + 1e6 * z[0], z >= -3, z <= 3]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(square), rows))
    compiled = compile_problem(relaxed(p), conic_interface(), quadratic=True)
    values = {"x": np.array([0.25, -0.5]), "z": np.array([1.0, -2.0])}
    fixed = integers_of(p, compiled, values)
    rest = left_by(compiled.form, fixed)
    whole = np.zeros(compiled.form.q.size, dtype=bool)
    whole[[*fixed]] = True
    full = np.zeros(whole.size)
    for name, at in compiled.places().items():
        full[at] = values[name]
    own = full[~whole]
    assert sorted(fixed.values()) == [-2, 1] and rest.q.size == own.size
    assert rest.objective(own) == pytest.approx(compiled.form.objective(full), rel=1e-12)
    assert rest.slack(own) == pytest.approx(compiled.form.slack(full), abs=1e-6)
    side = float(Fraction(1e9 + 0.3) - 10**9)  # of the first row at z = 1, rounded once
    assert (rest.b == side).any()


@pytest.mark.parametrize(
    ("row", "sides", "z"),
    [([1e16, 1.0, -1e16], 0.25, [1, 1, 1]), ([0.1, 0.0, 0.0], 0.3, [3, 0, 0])],
)
def test_what_integers_leave_of_a_side_is_rounded_once(
    row: list[float], sides: float, z: list[int]
) -> None:
    x, n = cp.Variable(name="x"), cp.Variable(3, integer=True, name="n")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x + np.array(row) @ n <= sides, x >= -5]))
    compiled = compile_problem(relaxed(p), conic_interface())
    rest = left_by(compiled.form, integers_of(p, compiled, {"x": 0.0, "n": np.array(z)}))
    exact = Fraction(sides) - sum(Fraction(a) * v for a, v in zip(row, z, strict=True))
    assert float(exact) in rest.b.tolist() and float(exact) != sides - float(np.dot(row, z))


@pytest.mark.parametrize("off", [1e-5, 0.0])
def test_an_incumbent_that_breaks_a_row_slightly_when_time_is_over_is_put_right(
    monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    from optfair.backends import search as module

    x, z = cp.Variable(name="x"), cp.Variable(name="z", integer=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(x) + z), [x + z >= 2.5, z >= 0]))

    def late(problem: Any, asked: Any, request: Request) -> Outcome:
        time.sleep(max(0.0, request.seconds_left))
        values = {"x": np.array(1.5 - off), "z": np.array(1.0)}
        return Outcome("time_limit", values, {}, ReportedBound(problem, 0.0, asked.name), {})

    monkeypatch.setattr(module, "adapter_of", lambda asked: late)
    s = p.solve("scip", time_limit=0.2)
    assert s.status.termination == "time_limit" and s["z"] == 1.0
    assert s["x"] == pytest.approx(1.5, abs=1e-9) and s.bound == 0.0
    assert s.residuals().feasibility <= 1e-7
