"""Reported bounds of integer programs are proved by branching; the tree is checked in fractions."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends import case_search, integer_programs
from optfair.backends.branching import BranchedBound, BranchingProof, excluded
from optfair.backends.case_search import Case, CaseSearch, Split, bound_of, cases, within
from optfair.backends.integer_programs import _points, integer_columns, of_box, with_the_rest_solved
from optfair.backends.registry import conic_interface
from optfair.backends.remainders import Remainder, remainder
from optfair.backends.request import Outcome, ReportedBound, Request
from optfair.compile.form import compile_problem
from optfair.diagnosis import infeasible
from optfair.proofs.bounds import LowerBound
from optfair.proofs.cones import Cone
from optfair.proofs.contradictions import infeasibility
from optfair.proofs.unpaid import Unpaid
from optfair.solution.conic_form import ConicForm
from optfair.transforms.relaxation import relaxed

REPORTED = [
    *(f"textbook/knapsack{k}" for k in ("", "_p02", "_p03", "_p04", "_p06")),
    "textbook/diet_whole",
    "textbook/integer_least_squares",
    "textbook/cardinality_portfolio",
    "textbook/robust_knapsack",
    "fair_clustering/german_hard_assignment",
    "cluster_counterfactual/iris_changes",
    "cluster_counterfactual/whole_rooms",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REPORTED)
def test_integer_instances_are_proved_on_request(name: str, tmp_path: Path) -> None:
    p = of.library.load(name).problem()
    s = p.solve("highs" if p.problem_class.name == "MILP" else "scip")
    assert s.grade.word == "reported" and not s.is_optimal(1e-6)
    found = s.certificate.prove()
    assert found.verify() and found.solution.grade.word == "proved"
    assert found.solution.is_optimal(1e-6)
    assert found.solution.objective == pytest.approx(s.objective, rel=1e-6)
    found.save(tmp_path / "proof.json")
    saved = of.load_proof(tmp_path / "proof.json")
    assert saved.verify() and str(saved).startswith("proved: objective")
    assert not saved.faults(s.problem)


def knapsack(capacity: float = 170.0) -> Any:
    x = cp.Variable(7, integer=True, name="x")
    values = np.array([442.0, 525, 511, 593, 546, 564, 617])
    weights = np.array([41.0, 50, 49, 59, 55, 57, 60])
    goal = cp.Maximize(values @ x)
    return of.from_cvxpy(cp.Problem(goal, [weights @ x <= capacity, x >= 0, x <= 1]))


def test_every_leaf_is_needed_and_looked_at() -> None:
    found = knapsack().solve().certificate.prove().solution
    proof = found.proof
    assert isinstance(proof, BranchedBound) and isinstance(proof.tree, Split)
    whole = proof.check(found.values, {}).bound
    assert whole == pytest.approx(1735.0, rel=1e-9) and proof.leaves > 3
    tree = proof.tree
    wrong: list[Any] = [
        replace(tree, limit=tree.limit + 1),  # leaves out an integer
        replace(tree, below=tree.above),
        replace(tree, below=Case(None, np.ones(1))),
        replace(tree, above=Case(np.zeros_like(proof.x), np.zeros(proof.compiled.form.b.size + 1))),
    ]
    for changed in wrong:
        bound = replace(proof, tree=changed).check(found.values, {}).bound
        assert bound > 1735.0 + 0.1, changed


def test_a_column_that_is_not_integer_is_not_branched_on() -> None:
    p = knapsack()
    found = p.solve().certificate.prove().solution
    continuous = of.from_cvxpy(cp.Problem(cp.Maximize(cp.Variable(name="y")), []))
    proof: Any = found.proof
    other = replace(proof, problem=continuous.with_integrality())
    assert not np.isfinite(other.check(found.values, {}).bound)


def test_a_better_point_that_is_met_is_kept() -> None:
    s = knapsack().solve()
    worse = np.zeros(7)
    poor = replace(s, values={"x": worse}, objective=0.0)
    assert poor.certificate.prove().solution.objective == pytest.approx(1735.0)


def test_time_and_kind_are_said() -> None:
    s = knapsack().solve()
    with pytest.raises(of.SolverFailure, match="not closed in time"):
        s.certificate.prove(time_limit=0.0)
    for wrong in (float("nan"), -1.0, "1", None, True):
        with pytest.raises(of.OptfairError, match="time_limit"):
            s.certificate.prove(time_limit=wrong)  # type: ignore[arg-type]
    x = cp.Variable(name="x")
    plain = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1])).solve()
    assert plain.certificate.prove().solution is plain
    assert sum(isinstance(n, Case) for _, n in cases(Case(None, np.zeros(0)))) == 1
    with pytest.raises(of.UnsupportedProblem):
        plain.problem.certificate.prove()


def test_limits_that_leave_out_an_integer_prove_nothing() -> None:
    found = knapsack().solve().certificate.prove().solution
    proof: Any = found.proof
    for limit in (proof.tree.limit + 0.5, 2**53, float("nan"), "0"):
        broken = replace(proof, tree=replace(proof.tree, limit=limit))
        assert not np.isfinite(broken.check(found.values, {}).bound), limit


def half_line(*sides: float) -> Any:
    """Return min x over sides[1] <= x <= sides[0]."""
    A, cones = sp.csc_array([[1.0], [-1.0]]), (Cone("nonneg", 0, 2),)
    b = np.array([sides[0], -sides[1]])
    return ConicForm(sp.csc_array((1, 1)), np.ones(1), 0.0, A, b, cones)


def test_only_integers_are_split_between_neighbours() -> None:
    form, leaf, whole = half_line(3.0, 0.0), Case(np.zeros(1), np.array([0.0, 1.0, 0.0])), [0]
    assert bound_of(form, np.array(whole), Split(0, 1, leaf, leaf)).value == pytest.approx(0.0)
    limits: list[Any] = [0.5, 1.0, 2**53, -(2**60)]
    for limit in limits:
        found = bound_of(form, np.array(whole), Split(0, limit, leaf, leaf))
        assert found.value == -np.inf and "values between limits" in found.fault
    real = bound_of(form, np.zeros(0, dtype=np.int64), Split(0, 1, leaf, leaf))
    assert real.value == -np.inf and "values between limits" in real.fault


def test_points_of_a_linear_form_are_exact_where_it_matters(monkeypatch: Any, capfd: Any) -> None:
    form, asked, real = half_line(9.0, 0.1), [], integer_programs.exact_optimum
    tolerance, deadline = 1e-7, time.perf_counter() + 9.0

    def counted(*given: Any) -> Any:
        asked.append(given)
        return real(*given)

    monkeypatch.setattr(integer_programs, "exact_optimum", counted)

    def points(form: Any, enough: float, entries: int) -> list[float]:
        return [float(x[0]) for x in _points(form, enough, entries, tolerance, deadline)]

    assert not points(form, 0.05, 99) and not asked  # nothing is so low
    assert points(form, 1.0, 1) == pytest.approx([0.1]) and not asked  # too large for fractions
    assert points(form, 1.0, 99)[1] == 0.1 and len(asked) == 1  # after the one in floats
    assert not points(half_line(0.0, 1.0), 1.0, 99)  # no point
    assert not capfd.readouterr().out


def mixed(sense: Any, *, integer: bool = True) -> Any:
    x, z = cp.Variable(name="x"), cp.Variable(name="z", integer=integer)
    rows = [x + z >= 1.5, z <= 3, z >= 0, x >= 0, x <= 2]
    sign = 1.0 if sense is cp.Minimize else -1.0
    return of.from_cvxpy(cp.Problem(sense(sign * (x + 0.1 * z)), rows))


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
def test_a_point_that_the_same_integers_leave_is_taken(sense: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(integer_programs, "balanced", lambda *_: True)
    p, request = mixed(sense), Request(time_limit=60.0)
    s, sign = p.solve(), 1.0 if sense is cp.Minimize else -1.0
    assert s.objective == pytest.approx(0.2 * sign)

    def near(of: Any, holds: bool) -> Any:
        outcome = Outcome("optimal", of.values, {}, of.proof, {})
        return with_the_rest_solved(outcome, of, request, 99, holds=holds)

    assert near(s, True) is None
    values = {"x": np.array(1.0), "z": np.array(2.0)}
    word = ReportedBound(s.problem, sign, "somebody")
    worse = replace(s, problem=mixed(sense), values=values, objective=1.2 * sign, proof=word)
    better = near(worse, True)
    assert better.values["z"] == 2.0 and better.values["x"] == pytest.approx(0.0)
    assert better.proof is word  # 1 is no bound, and whoever said so is wrong
    slight = replace(worse, proof=replace(word, bound=sign * (0.2 + 1e-9)))
    assert near(slight, True).proof.bound == pytest.approx(0.2 * sign, abs=1e-14)
    mended = near(replace(worse, values={"x": np.array(-1.0), "z": np.array(2.0)}), False)
    assert mended.values["x"] == pytest.approx(0.0)
    stopped = replace(worse, status=replace(worse.status, termination="time_limit"))
    proved = replace(worse, status=s.certificate.prove().solution.status)
    real = replace(worse, problem=mixed(sense, integer=False))
    for other in (stopped, proved, real):
        assert near(other, True) is None
    tree = Outcome("optimal", values, {}, s.certificate.prove().solution.proof, {})
    assert (
        with_the_rest_solved(tree, worse, request, 99, holds=True) is None
    )  # its proof knows its point


@pytest.mark.parametrize("integer", [True, False])
def test_a_tree_for_integers_names_every_row(integer: bool) -> None:
    x, z = cp.Variable(name="x"), cp.Variable(name="z", integer=integer)
    rows = [x + z >= 4, x + z <= 3, x >= 0]
    proof = excluded(of.from_cvxpy(cp.Problem(cp.Minimize(x), rows), [*"abc"]), 9.0, 9)
    assert proof is not None and proof.verify()
    assert isinstance(proof, BranchingProof) is integer
    assert proof.conflict == (("a", "b", "c") if integer else ("a", "b"))


def test_what_any_case_may_lose_the_bound_may_lose(monkeypatch: Any) -> None:
    form = half_line(3.0, 0.0)

    def bounded(own: ConicForm, x: Any, z: Any, *_: float) -> LowerBound:
        column = np.array([int(own.b[-1] > 0.0)])
        return LowerBound(z[0], Unpaid(column, z[1], 0.0, 1.0) if z[1] else None)

    monkeypatch.setattr(case_search, "lower_bound", bounded)
    for first, second in (((1.0, 1e-3), (2.0, 1e-9)), ((2.0, 1e-9), (1.0, 1e-3))):
        leaves = [Case(np.zeros(1), np.array([*z, 0.0])) for z in (first, second)]
        found = bound_of(form, np.array([0]), Split(0, 1, leaves[0], leaves[1]))
        assert found.value == 1.0 and found.unpaid is not None
        assert found.unpaid.slope == 1e-3 and found.unpaid.columns.tolist() == [0, 1]
    paid = Case(np.zeros(1), np.array([5.0, 0.0, 0.0]))
    assert bound_of(form, np.array([0]), Split(0, 1, leaves[0], paid)).unpaid is not None
    assert bound_of(form, np.array([0]), Split(0, 1, paid, paid)).unpaid is None


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("goal", ["norm", "square"])
def test_a_bound_is_proved_in_any_unit_of_the_objective(unit: float, goal: str) -> None:
    x = cp.Variable(2, name="x", integer=True)
    off = cp.norm(x - [0.3, 1.6]) if goal == "norm" else cp.sum_squares(x - [0.3, 1.6])
    rows = [x >= -2, x <= 3, x[0] + 2 * x[1] <= 3.5]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(unit * (off - 0.1 * x[0])), rows)).solve()
    proved = s.certificate.prove() if not s.grade.sound else s.certificate
    points = [(a, b) for a in range(-2, 4) for b in range(-2, 4) if a + 2 * b <= 3.5]
    sizes = {p: (p[0] - 0.3) ** 2 + (p[1] - 1.6) ** 2 for p in points}
    power = 0.5 if goal == "norm" else 1.0
    best = min(v**power - 0.1 * p[0] for p, v in sizes.items())
    assert proved.verify() and proved.solution.grade.word == "proved"
    assert proved.solution.bound <= unit * best * (1 + 1e-12)
    assert proved.solution.bound == pytest.approx(unit * best, rel=1e-6)


@pytest.mark.parametrize(
    ("goal", "row", "right", "best"),
    [
        ([-4e5], [-4e5], -2e-4, -4e5),  # 0 is an integer next to 5e-10, far outside the row
        ([1e-4, 6e6, -5e6], [2e4, -2e-2, 5e-2], 70.0, 0.0),  # below a tolerance of 5e6
    ],
)
def test_what_a_rounding_hides_is_seen_in_fractions(
    goal: list[float], row: list[float], right: float, best: float
) -> None:
    x = cp.Variable(len(goal), integer=True, name="x")
    low, high = ([0.0], [1.0]) if len(goal) == 1 else ([-1, -1, 0], [0, 0, 1])
    rows = [np.array(row) @ x <= right, x >= np.array(low), x <= np.array(high)]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(np.array(goal) @ x), rows)).solve()
    proof = s.certificate.prove()
    assert proof.verify() and proof.solution.objective == best


def test_a_column_next_to_an_integer_in_one_row_is_not_moved_out_of_another() -> None:
    x, y = cp.Variable(integer=True, name="x"), cp.Variable(name="y")
    rows = [-3e5 * x - y <= 7e-4, -1e5 * x + 4 * y <= 0, x >= 0, x <= 1, y >= -2, y <= 1]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(2 * y - 5e-4 * x), rows)).solve()
    assert s.certificate.prove().verify()


def test_where_multipliers_are_too_large_for_a_proof_more_integers_are_fixed(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.lp").write_text(
        "Minimize\n obj: - 3 y0 - 4 y1 + 2 b0 - 2 b1\nSubject To\n r0: 3 y1 + b0 + 5 b1 <= 0\n"
        " r1: 3 y0 - 2 y1 + 2 b0 - 2 b1 <= 6\n i0: b1 = 0 -> - 1 y0 + 3 y1 = 0\n"
        " i1: b1 = 1 -> - 1 y1 >= 5000\n i2: b0 = 0 -> - 2 y0 + 3 y1 <= 2\nBounds\n"
        " -1e6 <= y0 <= 1e9\n -1e6 <= y1 <= 10\nBinaries\n b0 b1\nSemi-Continuous\n y0\n"
        "SOS\n s1: S1:: y0:1 y1:2\nEnd\n"
    )
    proof = of.read(tmp_path / "m.lp").solve().certificate.prove()
    assert proof.verify() and proof.solution.objective == 0.0


@pytest.mark.parametrize("goal", ["linear", "square"])
def test_rows_without_an_integer_point_are_excluded_whatever_the_goal(goal: str) -> None:
    y = cp.Variable(integer=True, name="y")
    value = y if goal == "linear" else -cp.square(y)
    with pytest.raises(of.Infeasible) as none:
        of.from_cvxpy(cp.Problem(cp.Maximize(value), [y <= 1 - 1e-7, y >= 1e-7])).solve()
    assert none.value.certificate.verify()


@pytest.mark.parametrize("integer", [True, False])
@pytest.mark.parametrize("side", [3.0, -3.0, 1e-5])
def test_a_row_without_entries_excludes_every_point(side: float, integer: bool) -> None:
    b = cp.Variable(2, name="b", boolean=integer)
    rules = [np.zeros(2) @ b == side, b >= 0, b <= 1]
    for goal in (b[0], cp.sum_squares(b - 0.5)):
        with pytest.raises(of.Infeasible) as caught:
            of.from_cvxpy(cp.Problem(cp.Minimize(goal), rules)).solve()
        assert "c0" in caught.value.conflict and caught.value.certificate.verify()


@pytest.mark.parametrize("unit", [1e-6, 1e-4, 1.0, 1e4])
def test_bounds_of_integers_are_proved_in_the_unit_of_their_problem(unit: float) -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 3))
    b = A @ np.array([1.0, -2.0, 3.0]) + 0.3 * rng.normal(size=6)
    p = of.textbook.IntegerLeastSquares(A=unit * A, b=unit * b, lower=-5, upper=5)
    proved = p.solve().certificate.prove()
    assert proved.verify() and proved.solution.bound / unit**2 == pytest.approx(
        0.33354546, rel=1e-5
    )
    rows = np.random.default_rng(1).normal(size=(9, 2)) * unit
    facility = of.fair_clustering.FairFacilityLocation(
        rows,
        groups=np.arange(9) % 2,
        sites=rows[:4],
        n_centers=2,
        goal="center",
        fairness=of.max_gap(0.4),
    )
    proved = facility.solve().certificate.prove()
    assert proved.verify() and proved.solution.bound / unit**2 == pytest.approx(2.0984114, rel=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_what_rows_fix_is_no_constant_of_the_objective(unit: float) -> None:
    X = np.random.default_rng(0).normal(size=(9, 2)) * unit
    s = of.fair_clustering.FairFacilityLocation(
        X,
        groups=np.arange(9) % 2,
        sites=X[:4],
        n_centers=2,
        goal="bottleneck",
        fairness=of.max_gap(0.4),
    ).solve()
    proved = s.certificate.prove()
    assert proved.verify() and proved.solution.objective == pytest.approx(s.objective, rel=1e-9)


def test_measurements_that_are_small_beside_the_columns_set_no_unit() -> None:
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(6, 3)), 1e-8 * rng.normal(size=6)
    s = of.textbook.IntegerLeastSquares(A=A, b=b, lower=-5, upper=5).solve()
    assert not s["coefficients"].any() and s.certificate.prove().verify()


def test_tangents_of_integers_are_proved_by_their_linear_program() -> None:
    k = cp.Variable(integer=True, name="k")
    goal = cp.Minimize(cp.exp(k) - 2.2 * k)
    s = of.from_cvxpy(cp.Problem(goal, [k >= -2, k <= 2.5])).solve("tangents")
    assert s.grade.word == "reported"
    proved = s.certificate.prove()
    assert proved.verify() and proved.solution.grade.word == "proved"
    assert np.e - 2.2 - 1e-7 <= proved.solution.bound <= np.e - 2.2


def test_a_linear_case_that_floats_miss_is_solved_in_fractions(monkeypatch: Any) -> None:
    x, z = cp.Variable(name="x"), cp.Variable(name="z", integer=True)
    rows = [x + z >= 1.5, z <= 3, z >= 0, x >= 0, x <= 2]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x + 0.1 * z), rows))
    s = p.solve()
    real, asked = integer_programs._in_fractions, []

    def beside(form: Any, **_: Any) -> Any:
        return "optimal", np.full(form.q.size, -1e-3), np.zeros(form.b.size)

    def counted(form: Any, **given: Any) -> Any:
        asked.append(form)
        return real(form, **given)

    monkeypatch.setattr(integer_programs, "_in_floats", beside)
    monkeypatch.setattr(integer_programs, "_in_fractions", counted)
    proved = s.certificate.prove()
    assert asked and proved.verify() and proved.solution.objective == pytest.approx(s.objective)
    again: Any = proved.solution
    assert again.proof.check(again.values, {}).dual == 0.0


def test_rows_exclude_each_other_whatever_is_not_convex_beside_them() -> None:
    x, y = cp.Variable(integer=True, name="x"), cp.Variable(name="y")
    cases = [
        (2 * x + 2 * cp.multiply(x, x), [-3 * x == 5, cp.abs(x) <= 3], []),
        (cp.square(y) - y, [0 * y <= -1, cp.abs(y) <= 1], []),
        (y + x, [x + y >= 4, x + y <= 3, cp.abs(y) <= 9], [cp.multiply(x, y) >= 1]),
    ]
    for goal, rows, curved in cases:
        p = of.from_cvxpy(cp.Problem(cp.Maximize(goal), [*rows, *curved]))
        assert not p.problem_class.convex
        with pytest.raises(of.Infeasible) as error:
            p.solve(time_limit=30)
        assert error.value.certificate is not None and error.value.certificate.verify()


z = cp.Variable(2, integer=True, name="z")


@pytest.mark.parametrize(
    "rows",
    [
        [2 * z[0] + 4 * z[1] == 5],
        [4 * z[0] + 6 * z[1] == 1],
        [0.5 * z[0] + 0.25 * z[1] == 0.375],
        [2 * z[0] + 4 * z[1] == 5, z <= 100, z >= -100],
        [3 * z[0] + 6 * z[1] == 4, cp.sum(z) <= 7],
        [z[0] + z[1] == 3, z[0] - z[1] == 4],
    ],
    ids=str,
)
def test_equations_of_integers_leave_a_remainder(rows: Any, monkeypatch: Any) -> None:
    """Without bounds no tree of cases would end, nor the search of the least relaxation."""
    monkeypatch.setattr(infeasible, "ENDLESS", 0.5)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(z[0]), rows))
    with pytest.raises(of.Infeasible, match="whole on the left") as e:
        p.solve()
    certificate = e.value.certificate
    assert certificate.verify() and set(certificate.conflict) <= {"c0", "c1"}
    tree = certificate.tree
    weights = tuple(w / 7919 for w in tree.weights)
    assert not replace(certificate, tree=replace(tree, weights=weights)).verify()
    assert not replace(certificate, tree=replace(tree, rows=(), weights=())).verify()
    with pytest.raises(of.UnsupportedProblem, match="proof file"):
        certificate.save("proof.json")
    assert "whole on the left" in str(p.diagnose())


def test_equations_with_integers_or_with_a_continuous_variable_leave_none() -> None:
    free = cp.Variable(name="free")
    for rows in ([2 * z[0] + 4 * z[1] == 6], [2 * z[0] + 4 * z[1] + free == 5]):
        p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(z)), [*rows, z >= -9, z <= 9]))
        assert p.solve().status.termination == "optimal"


@pytest.mark.parametrize("seed", range(40))
def test_a_remainder_is_met_where_there_are_no_integers_and_only_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, 5)), int(rng.integers(2, 7))
    A, whole = rng.integers(-9, 10, (m, n)), np.arange(n)
    scale = 2.0 ** rng.integers(-40, 40, m)[:, None]

    def of_form(A: Any, b: Any) -> Any:
        zero, rows = np.zeros((n, n)), sp.csc_array(scale * A)
        cones = (Cone("zero", 0, m),)
        return ConicForm(sp.csc_array(zero), np.ones(n), 0.0, rows, (scale[:, 0] * b), cones)

    inside = A @ rng.integers(-50, 50, n)
    assert remainder(of_form(A, inside), whole) is None
    k = int(rng.integers(2, 6))
    b = k * inside + np.eye(m, dtype=int)[int(rng.integers(m))]  # k A x is a multiple of k
    odd = of_form(k * A, b)
    found = remainder(odd, whole)
    if np.linalg.matrix_rank(A) == m:
        assert found is not None
    assert found is None or found.excludes(odd, whole)
    assert found is None or not found.excludes(of_form(k * A, k * inside), whole)
    assert found is None or not found.excludes(odd, whole[:0])
    if found is not None:  # a row that is none of the form
        beyond = replace(found, rows=(*found.rows, m), weights=(*found.weights, found.weights[0]))
        assert not beyond.excludes(odd, whole)


def test_a_remainder_is_more_than_the_rounding_of_what_was_declared() -> None:
    """0.1 + 0.2 is not 0.3 in floats: nobody means that."""
    form = ConicForm(
        sp.csc_array((2, 2)),
        np.ones(2),
        0.0,
        sp.csc_array([[0.1, 0.2]]),
        np.array([0.3]),
        (Cone("zero", 0, 1),),
    )
    assert remainder(form, np.arange(2)) is None
    cents = of.from_cvxpy(cp.Problem(cp.Minimize(z[0]), [0.1 * z[0] + 0.2 * z[1] == 0.3, z >= 0]))
    assert cents.solve().values["z"].tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    "rows",
    [
        lambda k: [k[0] - k[1] >= 0.1, k[0] - k[1] <= 0.9],
        lambda k: [6 * k[0] - 9 * k[1] >= 1, 6 * k[0] - 9 * k[1] <= 2, cp.abs(k) <= 1e4],
        lambda k: [0.5 * k[0] + k[1] == 1.25, k[0] + 2 * k[1] <= 7],
        lambda k: [k[0] + k[1] >= 2.25, -8 * k[0] - 8 * k[1] >= -21, k <= 9, k[0] >= -1e6],
    ],
    ids=["a difference", "multiples of 3", "an equation", "other units"],
)
def test_rows_with_no_whole_number_between_them_have_no_integers(rows: Any) -> None:
    """The tree of cases would be as large as the box."""
    k = cp.Variable(2, integer=True, name="k")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(k[0]), rows(k)))
    with pytest.raises(of.Infeasible, match="no integer point satisfies") as e:
        p.solve()
    certificate = e.value.certificate
    assert isinstance(certificate, BranchingProof) and certificate.verify()
    assert {*certificate.conflict} & {"c0", "c1"} and not certificate.faults(p)
    assert "whole" in str(certificate) or certificate.by_multipliers
    free = of.from_cvxpy(cp.Problem(cp.Minimize(k[0]), rows(cp.Variable(2, name="free"))))
    assert certificate.faults(free)


@pytest.mark.parametrize("seed", range(40))
def test_no_whole_number_is_between_two_sums_of_rows_and_only_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, common = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    g, whole = rng.integers(1, 9, n) * rng.choice([-1, 1], n), np.arange(n)
    g[0] = 1  # every whole number is a value
    scales = 2.0 ** rng.integers(-30, 30, 2)
    low, high = sorted(rng.integers(-60, 60, 2) / 4.0)
    A = np.stack([-scales[0] * common * g, scales[1] * common * g])
    cones = (Cone("nonneg", 0, 2),)

    def of_form(low: float, high: float) -> Any:
        b = common * scales * np.array([-low, high])
        return ConicForm(sp.csc_array((n, n)), np.ones(n), 0.0, sp.csc_array(A), b, cones)

    form = of_form(low, high)
    found, empty = remainder(form, whole), np.floor(high) < np.ceil(low)
    assert (found is not None) == bool(empty)
    near = of_form(0.125, 0.875)
    odd = remainder(near, whole)
    assert odd is not None and odd.opposite and odd.excludes(near, whole)
    assert not odd.excludes(of_form(0.125, 1.0), whole) and not odd.excludes(near, whole[1:])
    (i, w), (j, v) = (odd.rows[0], odd.weights[0]), odd.opposite[0]
    for wrong in (
        replace(odd, opposite=()),
        replace(odd, weights=(-w,)),
        replace(odd, weights=(w / 3,), opposite=((j, v / 3),)),
        replace(odd, weights=(2 * w,)),
        replace(odd, weights=(-w,), opposite=((j, -v),)),
        replace(odd, opposite=((i, w),)),
        Remainder((), (), odd.opposite),
    ):
        assert not wrong.excludes(near, whole)


def test_cases_of_fixed_integers_are_bounded_by_the_rest() -> None:
    """Beside 1e8 the floats of a relaxation are far off; with the integers put in, its sides are 1."""
    x, z = cp.Variable(name="x", nonneg=True), cp.Variable(name="z", boolean=True)
    row = 1e8 * z - cp.log(x) <= 1e8 - 1
    s = of.from_cvxpy(cp.Problem(cp.Minimize(x - 100 * z), [row])).solve("cone-cases")
    assert s.grade.word == "proved" and s.objective == pytest.approx(np.e - 100.0)


def test_a_binary_that_is_nearly_0_is_a_case_of_its_own() -> None:
    x, z = cp.Variable(name="x"), cp.Variable(name="z", boolean=True)
    rows = [x <= 1e6 * z, -1e6 * z <= x, 0.78 * z - 0.97 * x == -0.03, x <= 5]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.power(cp.abs(x + 1.07), 1.5) + z), rows))
    s = p.solve("cone-cases")
    assert s["z"] == 1.0 and s["x"] == pytest.approx(0.81 / 0.97) and s.grade.word == "proved"
    bad = replace(s, values={**s.values, "z": np.array(np.nan)})
    assert p.solve("cone-cases", warm_start=bad).objective == pytest.approx(s.objective)


def test_a_case_is_bounded_anew_where_more_is_asked_of_it(monkeypatch: Any) -> None:
    form, asked = half_line(3.0, 0.0), list[float]()

    def bounded(own: ConicForm, x: Any, z: Any, upper: float, enough: float) -> LowerBound:
        asked.append(enough)
        return LowerBound(min(enough, 2.0))

    monkeypatch.setattr(case_search, "lower_bound", bounded)
    pair, other = (np.zeros(1), np.zeros(3)), (np.zeros(1), np.ones(3))
    limits = ((0, True, 1),)
    for enough, value in ((1.0, 1.0), (0.5, 1.0), (1.5, 1.5), (1.2, 1.5)):
        assert case_search.bound_of_case(form, limits, pair, np.inf, enough).value == value
    assert asked == [1.0, 1.5]
    assert case_search.bound_of_case(form, limits, other, np.inf, 0.1).value == 0.1  # another pair
    assert case_search.bound_of_case(form, ((0, True, 2),), pair, np.inf, 0.2).value == 0.2
    assert asked == [1.0, 1.5, 0.1, 0.2]


def test_better_points_are_kept_while_cases_are_closed() -> None:
    """The first point is poor: the tree is closed by those that it meets."""
    z, x = cp.Variable(3, name="z", boolean=True), cp.Variable(name="x")
    goal = cp.square(x - 2.2) + np.array([1.0, 0.6, 0.9]) @ z
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [x <= cp.sum(z), x >= 0]))
    truth = min((max(0.0, 2.2 - k)) ** 2 + c for k, c in ((0, 0.0), (1, 0.6), (2, 1.5), (3, 2.5)))
    compiled = compile_problem(relaxed(p), conic_interface())
    search = CaseSearch(p, compiled, 1e-7, time.perf_counter() + 60.0)
    search.keep(dict.fromkeys(integer_columns(p, compiled).tolist(), 0))
    assert search.upper == pytest.approx(2.2**2)
    tree = search.closed_below(())
    assert search.upper == pytest.approx(truth, rel=1e-6)
    bound = bound_of(compiled.form, search.integer, tree, search.upper).value
    assert bound <= truth * (1 + 1e-12) and bound == pytest.approx(truth, rel=1e-6)


def test_an_exclusion_counts_its_cases_and_says_what_excludes_them() -> None:
    y = cp.Variable(2, integer=True, name="y")
    rows = [2 * y[0] + 3 * y[1] >= 1.2, 2 * y[0] + 3 * y[1] <= 1.8, y >= 0, y <= 4]
    proof = excluded(of.from_cvxpy(cp.Problem(cp.Minimize(y[0]), rows)), 20.0, 99)
    assert isinstance(proof, BranchingProof) and proof.verify() and proof.by_multipliers
    leaves = [node for _, node in cases(proof.tree) if not isinstance(node, Split)]
    assert proof.leaves == len(leaves) > 1 and str(proof).startswith(f"{len(leaves)} cases")
    one = replace(proof, tree=leaves[0])
    assert str(one).startswith("1 case by") and one.leaves == 1


def test_a_case_whose_integers_are_fixed_is_closed_by_the_multipliers_of_the_rest() -> None:
    z, x = cp.Variable(2, name="z", integer=True), cp.Variable(2, name="x")
    goal = cp.sum_squares(x - 1e6 * z + 0.3) + np.array([2.0, -1.0]) @ z
    rows = [x <= 1e6 * z - 0.5, cp.norm(x) <= 1e7, z >= -5, z <= 5, cp.sum(x) >= -3e6]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows))
    compiled = compile_problem(relaxed(p), conic_interface())
    search = CaseSearch(p, compiled, 1e-7, time.perf_counter() + 60.0)
    first, second = search.integer.tolist()

    def held(a: int, b: int) -> tuple[Any, ...]:
        return tuple((j, above, v) for j, v in ((first, a), (second, b)) for above in (True, False))

    assert search._held(held(1, 0)[:3]) is None  # one of them may be larger
    assert search._held(held(1, 0)) is None and not np.isfinite(search.upper)  # nothing to reach
    for a, b in ((2, 0), (1, 0), (0, 3)):
        search.keep({first: a, second: b})
        truth = 2 * 0.2**2 + 2.0 * a - b
        case = search._held((*held(a, b), (first, True, a + 1), (second, False, b - 1)))
        if truth > search.upper + 1e-9:  # it is as good as the best at most
            continue
        assert case is not None and case.x is not None
        limits = (*held(a, b), (first, True, a + 1), (second, False, b - 1))
        bound = case_search.bound_of_case(
            compiled.form, limits, (case.x, case.z), search.upper, np.inf
        )
        assert bound.unpaid is None and bound.value == pytest.approx(truth, rel=1e-6)
        assert bound.value <= truth + 1e-9
    excluded_case = search._held(held(-2, -2))  # sum x is -4e6 - 1 at most
    assert excluded_case is not None and excluded_case.x is None
    assert infeasibility(within(compiled.form, held(-2, -2)), excluded_case.z).proved


def test_integers_a_rounding_beyond_a_limit_are_not_split_there() -> None:
    p = knapsack()
    compiled = compile_problem(relaxed(p), conic_interface())
    search = CaseSearch(p, compiled, 1e-7, time.perf_counter() + 60.0)
    x, tiny = np.zeros(compiled.form.q.size), 1e-9
    first, second, third = search.integer[:3].tolist()
    x[[first, second, third]] = 1.0 + tiny, 2.0 - tiny, 0.5
    off = search.fractions(((first, True, 1), (second, False, 2)), x)
    assert off[:3].tolist() == [0.0, 0.0, 0.5]
    inside = search.fractions(((first, False, 1), (second, True, 2)), x)
    assert inside[:2] == pytest.approx([tiny, tiny], rel=1e-3)
    x[[first, second]] = 1.0, 2.0
    assert not search.fractions(((first, True, 1), (second, False, 2)), x)[:2].any()


def test_nothing_is_proved_by_a_tree_with_a_case_that_is_not() -> None:
    """Whatever the others are, and whatever is wrong with it: x is 0 to 3, so no case is empty."""
    form, whole = half_line(3.0, 0.0), np.array([0])
    good = Case(np.zeros(1), np.array([0.0, 1.0, 0.0]))
    assert bound_of(form, whole, Split(0, 1, good, good)).value == pytest.approx(0.0)
    faults = {
        "rows of integers have some": Remainder((0,), (Fraction(1),)),
        "a case has multipliers of other rows": Case(np.zeros(1), np.array([0.0, 1.0])),
        "a case is not excluded": Case(None, np.array([1.0, 1.0, 0.0])),
    }
    for fault, node in faults.items():
        for tree in (Split(0, 1, node, good), Split(0, 1, good, node)):
            found = bound_of(form, whole, tree)
            assert found.value == -np.inf and found.fault == fault
    # above 3 there is none, so that excludes the case
    none = Case(None, np.array([1.0, 0.0, 1.0]))
    assert bound_of(form, whole, Split(0, 3, good, none)).value == pytest.approx(0.0)


def test_limits_are_in_the_units_of_their_columns() -> None:
    form = half_line(3.0, 0.0)
    rows, columns = np.array([2.0, 4.0]), np.array([8.0])
    form.__dict__["congruent"] = form.in_units(rows, columns), rows, columns
    own = within(form, ((0, True, 2), (0, False, 1)))
    assert own.congruent is not None
    there, units, lengths = own.congruent
    np.testing.assert_array_equal(own.b, [3.0, 0.0, 2.0, -1.0])
    made = own.in_units(units, lengths)
    assert (there.A != made.A).nnz == 0 and np.array_equal(there.b, made.b)
    assert np.array_equal(there.q, made.q) and there.congruent is None
    assert (np.abs(there.A.toarray()[2:]) == 1.0).all() and there.cones == own.cones


def test_limits_are_rows_below_the_others() -> None:
    x, z = cp.Variable(name="x"), cp.Variable(3, integer=True, name="z")
    rows = [cp.norm(z) <= 5, cp.sum(z) + 1e6 * x >= 1, x <= 3e6, z[0] <= 4, z[0] >= -4]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(x) + cp.sum_squares(z - 0.3)), rows))
    form = compile_problem(relaxed(p), conic_interface(), quadratic=True).form
    at = compile_problem(relaxed(p), conic_interface(), quadratic=True).places()["z"].tolist()
    limits = ((at[1], True, 2), (at[0], False, -1), (at[1], False, -3), (at[1], True, 1))
    own = within(form, limits)
    signs = sp.csr_array(
        ([1.0, -1.0, -1.0, 1.0], (range(4), [j for j, *_ in limits])), shape=(4, form.q.size)
    )
    assert (sp.vstack([form.A, signs]) != own.A).nnz == 0 and own.A.has_canonical_format
    np.testing.assert_array_equal(own.b, np.append(form.b, [2.0, 1.0, 3.0, 1.0]))
    assert own.curvature is form.curvature and own.bending is form.bending
    x0 = np.linspace(-1.0, 1.0, form.q.size)
    np.testing.assert_array_equal(own.slack(x0)[: form.b.size], form.slack(x0))


def test_a_search_gives_up_where_it_expects_more_cases_than_it_may_have() -> None:
    z = cp.Variable(24, boolean=True, name="z")
    rows = [2 * cp.sum(z) == 23]  # a tree of all binaries
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), rows))
    compiled = compile_problem(relaxed(p), conic_interface())
    search = CaseSearch(p, compiled, 1e-7, np.inf, most=1_000)
    with pytest.raises(of.SolverFailure, match="not closed"):
        search.closed_below(())
    assert search.closed < 300 and search.expected > 1_000
    # and not where the other sides close at once
    few = of.from_cvxpy(cp.Problem(cp.Minimize(0), [2 * cp.sum(z) == 1]))
    compiled = compile_problem(relaxed(few), conic_interface())
    search = CaseSearch(few, compiled, 1e-7, np.inf, most=60)
    assert isinstance(search.closed_below(()), Split) and search.closed == 25


@pytest.mark.parametrize(("seed", "optimum"), [(7002, 0.0598416624), (7062, 93.5238797)])
def test_points_of_cases_are_as_good_as_their_bounds(seed: int, optimum: float) -> None:
    """Costs of 1e2 beside sizes of 1e-2, and the other way round: floats leave points too dear."""
    r = np.random.default_rng(seed)
    n, k = r.integers(6, 14), r.integers(2, 6)
    size, price = 10.0 ** r.integers(-3, 4), 10.0 ** r.integers(-3, 4)
    x, z = cp.Variable(n, name="x"), cp.Variable(k, integer=True, name="z")
    c, d = price * r.uniform(0.1, 10, n), price * r.uniform(0.1, 10, k)
    A, B, b = r.normal(size=(2, n)), r.normal(size=(2, k)), size * r.uniform(0, 2, 2)
    cost = c @ cp.square(x - size * r.normal(size=n))
    cost += size**2 * (d @ cp.square(z - r.normal(size=k))) + price * size * (r.normal(size=n) @ x)
    rows = [A @ x + size * (B @ z) <= b, z >= -1, z <= 2]
    if r.random() < 0.5:
        ball = c @ cp.square(x) + size**2 * price * cp.sum_squares(z)
        rows.append(ball <= price * size**2 * float(r.uniform(2, 30)))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows)).solve("cone-cases")
    assert s.grade.word == "proved" and s.status.termination == "optimal"
    assert s.objective == pytest.approx(optimum, rel=1e-7)


@pytest.mark.parametrize("unit", [1.0, 1e5])
@pytest.mark.parametrize("far", [1e3, 1e5, 1e7])
def test_columns_of_other_sizes_are_solved_in_units_of_their_box(far: float, unit: float) -> None:
    """Of x[0], which is as large as `far`, a row says all but nothing of the others."""
    x, k = cp.Variable(2, name="x"), cp.Variable(integer=True, name="k")
    first, box = unit * x[0], [x[1] >= -6, x[1] <= 6, k >= 0, k <= 5]
    row = -3.0 * far * first + 1.4 * x[1] + 2.4 * k >= 1.65 * far**2 + 4.81
    off = cp.hstack([first / far - 0.3, x[1] + 0.2, k - 1])
    box += [first >= -6 * far, first <= 6 * far]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(off)), [row, *box])).solve()
    assert s.solver == "cone-cases" and s.grade.word == "proved"
    # the first is -0.55 far, but for what the others add to the row
    assert s.objective == pytest.approx(0.7225, abs=10.0 / far**2 + 1e-7) and s["k"] == 1


def test_where_rows_leave_a_column_open_there_is_no_box() -> None:
    x = cp.Variable(2, name="x")
    goal, box = cp.Minimize(cp.sum_squares(x)), [x <= 3e5, x >= -1]
    for rows in ([x[0] + x[1] >= 1, x[0] <= 3], [1e4 * x[0] + x[1] >= 1, *box]):
        p = of.from_cvxpy(cp.Problem(goal, rows))
        form = compile_problem(p, conic_interface()).form
        units = of_box(form)
        assert (units is None) == (len(rows) == 2)
    assert units is not None
    rows, columns = units
    assert (columns[form.columns["x"]] == 2.0**18).all()
    largest = abs(form.in_units(rows, columns).A).max(axis=1).toarray().ravel()
    assert (largest > 0.5).all() and (largest < 2.0).all()
    p = of.from_cvxpy(cp.Problem(goal, [*box, 1e-200 * x[0] + 2e-200 * x[1] >= 0]))
    assert of_box(compile_problem(p, conic_interface()).form) is None  # beyond all units


def test_a_case_proved_to_have_no_point_is_solved_in_one_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    z = cp.Variable(3, boolean=True, name="z")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(z - 0.3)), [cp.sum(z) == 2]))
    compiled = compile_problem(relaxed(p), conic_interface())
    search, calls = CaseSearch(p, compiled, 1e-7, np.inf), []
    floats, second, _ = search.ways

    def other(form: Any) -> Any:
        calls.append(form)
        return second(form)

    def lost(_: Any) -> Any:
        return "infeasible", None, np.zeros(compiled.form.b.size)

    monkeypatch.setattr(case_search, "ways_to_solve", lambda *_, **__: (floats, other))
    at = np.arange(compiled.form.q.size)[compiled.form.columns["z"]].tolist()
    limits = tuple((j, True, 0) for j in at[:2])
    assert search.solved(limits)[0] == "infeasible" and not calls
    # multipliers that prove nothing are no reason
    monkeypatch.setattr(case_search, "ways_to_solve", lambda *_, **__: (lost, other))
    assert search.solved(())[0] == "optimal" and len(calls) == 1


@pytest.mark.parametrize("low", [None, -5.0, -1e6])
@pytest.mark.parametrize("width", [None, 0.05])
def test_continuous_columns_are_taken_out_before_a_remainder_is_looked_for(
    low: float | None, width: float | None
) -> None:
    k, x = cp.Variable(2, integer=True, name="k"), cp.Variable(name="x")
    odd = -3 * k[0] + k[1] - 3 * x
    rows = [3 * k[0] - k[1] - 2 * x == 0.3]
    rows += [odd == 1] if width is None else [odd >= 1, odd <= 1 + width]
    named = {"odd", "c0", "c1", "c2"}
    rows += [] if low is None else [k >= low, k <= -low]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(k[0]), rows))
    with pytest.raises(of.Infeasible) as e:
        p.solve()
    proof = e.value.certificate
    assert isinstance(proof, BranchingProof) and proof.verify() and not proof.faults(p)
    if isinstance(proof.tree, Remainder):
        assert {*proof.conflict} <= named
    even = [3 * k[0] - k[1] - 2 * x == 0.5, -3 * k[0] + k[1] - 3 * x == -1.75]  # 3 k0 - k1 = 1
    some = of.from_cvxpy(cp.Problem(cp.Minimize(cp.abs(k[0])), even)).solve()
    assert some.status.termination == "optimal" and 3 * some["k"][0] - some["k"][1] == 1.0


@pytest.mark.parametrize("seed", range(60))
def test_a_remainder_beside_continuous_columns_is_one_of_what_they_leave(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, free = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    common = int(rng.integers(2, 6))
    A = common * rng.integers(-4, 5, (m, n))
    times = np.append(1, rng.integers(-3, 4, m - 1))  # of the first row take them out of the others
    B = np.outer(times, rng.integers(1, 4, free))
    both, whole = sp.csc_array(np.hstack([B, A]).astype(float)), free + np.arange(n)
    inside = A @ rng.integers(-9, 9, n) + B @ rng.integers(-9, 9, free)

    def of_form(b: Any) -> Any:
        zero = sp.csc_array((n + free, n + free))
        return ConicForm(zero, np.ones(n + free), 0.0, both, b.astype(float), (Cone("zero", 0, m),))

    assert remainder(of_form(inside), whole) is None
    odd = of_form(inside + np.eye(m, dtype=int)[1])
    found = remainder(odd, whole)
    if (A[1] - times[1] * A[0]).any():  # a row of zeros is for Farkas
        assert found is not None and found.excludes(odd, whole)
        assert not found.excludes(of_form(inside), whole)
        assert not found.excludes(odd, whole[:0])
        moved = tuple(w + Fraction(1, 2**60) for w in found.weights)
        assert not replace(found, weights=moved).excludes(odd, whole)


@pytest.mark.parametrize("costs", [(2.43, 0.95), (2.0, 2.8)])
def test_a_geometric_mean_beside_a_binary_at_0_is_asked_for_more(
    costs: tuple[float, float],
) -> None:
    """Its cases end on the edge of their cones, at a gap just above the tolerance."""
    z = cp.Variable(2, boolean=True, name="z")
    goal = cp.Minimize(np.array(costs) @ z - 2 * cp.geo_mean(cp.hstack([z[0], z[1] + 0.5])))
    s = of.from_cvxpy(cp.Problem(goal)).solve("cone-cases")
    assert s.grade.word == "proved" and s.gap <= 1e-7 and s.objective == pytest.approx(0.0)


def test_an_infinite_side_is_no_row_to_reason_with() -> None:
    """The logarithm of 0 below a number is one: no raw error comes of it."""
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [cp.log(0.0 * x) * 1e-5 <= 0.0, x >= 0.5]))
    excluded(p, 1.0, 10)
