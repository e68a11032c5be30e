"""Linear programs to the last digit: optima in fractions, proved without any tolerance."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import search
from optfair.backends.exact import (
    Falling,
    NotOptimal,
    contradicts,
    direction_nearby,
    exact_optimum,
    exactly,
    falls,
    in_fractions,
)
from optfair.backends.pivots import Settled
from optfair.backends.registry import conic_interface, profile
from optfair.compile.form import compile_problem
from optfair.core.problem import Problem
from optfair.numbers import Floats
from optfair.proofs import check_proof
from optfair.proofs.reduction import Excluded
from optfair.proofs.unpaid import Unpaid
from optfair.solution.residuals import measure


def exact(value: float) -> Fraction:
    return Fraction(value)


def adopted(goal: Any, rows: list[Any]) -> Any:
    return of.from_cvxpy(cp.Problem(goal, rows))


def form_of(goal: Any, rows: list[Any]) -> Any:
    return compile_problem(adopted(goal, rows), conic_interface()).form


def diet() -> Any:
    x = cp.Variable(2, name="x")
    rows = [0.1 * x[0] + 0.3 * x[1] >= 0.7, 0.2 * x[0] + 0.1 * x[1] >= 0.4, x >= 0]
    return of.from_cvxpy(cp.Problem(cp.Minimize(0.6 * x[0] + 0.7 * x[1]), rows), ["a", "b", "sign"])


def test_the_optimum_of_the_declared_floats(tmp_path: Path) -> None:
    s = diet().solve(exact=True)
    a, b, c, d = (exact(v) for v in (0.1, 0.3, 0.2, 0.1))
    # Cramer's rule for the two rows that hold with equality
    det = a * d - b * c
    x = ((exact(0.7) * d - b * exact(0.4)) / det, (a * exact(0.4) - c * exact(0.7)) / det)
    assert tuple(s.exact.values["x"]) == x
    assert s.exact.objective == exact(0.6) * x[0] + exact(0.7) * x[1]
    assert float(s.exact.objective) == pytest.approx(s.objective, rel=1e-9)
    assert s.exact.verify() and str(s.exact.verify().grade) == "proved"
    assert s.seconds["recover"] > 0.0 and "bits" in str(s.exact)
    # the file has no tolerance, and no gap
    s.exact.save(tmp_path / "proof.json")
    command = [sys.executable, "-I", "-S", check_proof.__file__, str(tmp_path / "proof.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "gap 0.0e+00, violation 0.0e+00" in done.stdout
    saved = of.load_proof(tmp_path / "proof.json")
    claim = saved.document["proof"]["claim"]
    assert claim["tolerance"] == claim["violation"] == 0 and claim["bound"] == claim["objective"]
    assert saved.faults(diet()) == ()
    assert saved.faults(diet().without("b")) != ()


def test_the_answer_is_the_rounded_optimum_and_travels(tmp_path: Path) -> None:
    p = diet()
    s = p.solve(exact=True)
    assert s.proof is s.exact and s.grade.word == "proved" and s.is_optimal(1e-12)
    assert s.bound <= s.exact.objective and s.exact.objective - Fraction(s.bound) <= 1e-15
    assert s["x"].tolist() == [float(v) for v in s.exact.values["x"]]
    s.save(tmp_path / "answer")
    again = of.load_solution(tmp_path / "answer", p)
    assert again.exact.point == s.exact.point and again.grade.word == "proved"
    facts, arrays = s.exact.stored()
    assert facts["fractions"]["point"]
    for wrong in ({"point": ["1"], "prices": ["0"]}, {"point": ["1/0"], "prices": []}, {}):
        with pytest.raises(of.UnsupportedProblem, match="fractions"):
            p.conic_proof({**facts, "fractions": wrong}, arrays["x"], arrays["z"])
    # rounded numbers that are not those of the fractions are told apart
    moved = replace(s, proof=replace(s.exact, x=s.exact.x + 1e-3))
    assert not moved.is_optimal(1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("side", [5e-324, 1.5e-323, 1e-310, 1e-300, 1e-160])
@pytest.mark.parametrize("large", [3.0, 1024.0])  # powers of two that lose digits of such sides
def test_sides_at_the_end_of_the_floats_are_taken_as_they_are(side: float, large: float) -> None:
    x = cp.Variable(2, name="x")
    row = large * x[0] + (large - 1) * x[1]
    most = adopted(cp.Maximize(x[0]), [row <= side, x >= 0]).solve(exact=True)
    assert tuple(most.exact.values["x"]) == (exact(side) / exact(large), 0)
    least = adopted(cp.Minimize(3 * x[0] + 4 * x[1]), [row >= side, x >= 0]).solve(exact=True)
    equal = adopted(cp.Minimize(3 * x[0] + 4 * x[1]), [row == side, x >= 0]).solve(exact=True)
    for s in (most, least, equal):
        assert s.exact.verify() and s.grade.word == "proved"
        assert s.exact.objective == exact(side) / exact(large) * (1 if s is most else 3)
    with pytest.raises(of.Infeasible) as e:
        adopted(cp.Minimize(x[0]), [row == side, x[0] == 0, x[1] == 0]).solve(exact=True)
    assert e.value.certificate.verify()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [2, 5])
def test_nearly_parallel_equations_have_the_basis_of_their_combinations(seed: int, n: int) -> None:
    """A simplex method takes them for dependent, and their sides for a contradiction."""
    rng = np.random.default_rng(seed)
    a, off, c = rng.normal(size=n), rng.normal(size=n), rng.uniform(0.1, 1.0, n)
    A = np.array([a, a + 1e-10 * off])
    b = A @ rng.uniform(0.5, 2.0, n) + [0.0, 1e-8]
    x = cp.Variable(n, name="x")
    p = adopted(cp.Minimize(c @ x), [A @ x == b, x >= -1e4])
    s = p.solve(tolerance=1e-7)
    assert s.is_optimal(1e-7) and s.grade.word == "proved"
    optimum = exactly(s).exact
    point = optimum.values["x"]
    for row, side in zip(A.tolist(), b.tolist(), strict=True):
        assert sum(exact(v) * at for v, at in zip(row, point, strict=True)) == exact(side)
    # within the tolerance there may be far better points, below which the bound stays
    assert optimum.verify() and s.bound <= optimum.objective


def test_without_it_nothing_is_exact() -> None:
    assert diet().solve().exact is None


@pytest.mark.parametrize("entry", [0, 1])
def test_nothing_may_be_moved_by_any_amount(entry: int) -> None:
    optimum = diet().solve(exact=True).exact
    tiny = Fraction(1, 10**300)
    for part in ("point", "prices"):
        for by in (tiny, -tiny):
            numbers = list(getattr(optimum, part))
            numbers[entry] += by
            assert not replace(optimum, **{part: tuple(numbers)}).verify()
    assert optimum.verify()


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
def test_a_pair_that_is_no_optimum_has_no_bound(sense: Any) -> None:
    x, sign = cp.Variable(2, name="x"), 1.0 if sense is cp.Minimize else -1.0
    rows = [0.1 * x[0] + 0.3 * x[1] >= 0.7, 0.2 * x[0] + 0.1 * x[1] >= 0.4, x >= 0]
    s = of.from_cvxpy(cp.Problem(sense(sign * (0.6 * x[0] + 0.7 * x[1])), rows)).solve(exact=True)
    right = s.exact.check(s.values, s.multipliers)
    assert sign * Fraction(right.bound) <= sign * s.exact.objective
    assert right.bound == pytest.approx(s.objective, rel=1e-15)
    moved = (s.exact.point[0] + Fraction(1, 10**300), *s.exact.point[1:])
    wrong = replace(s.exact, point=moved).check(s.values, s.multipliers)
    assert wrong.bound == wrong.estimate == -sign * np.inf


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_in_any_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 9)), int(rng.integers(2, 9))
    A = rng.integers(-4, 5, (m, n)) / 8.0
    x0 = np.where(rng.random(n) < 0.6, rng.integers(1, 6, n), 0)
    y0 = np.where(rng.random(m) < 0.6, rng.integers(1, 6, m), 0)
    b = A @ x0 + np.where(y0 > 0, 0, rng.integers(0, 4, m))
    c = -A.T @ y0 + np.where(x0 > 0, 0, rng.integers(0, 4, n))
    # powers of two change no digit, so x0 and y0 stay optimal, and many vertices degenerate
    rows, columns = 2.0 ** rng.integers(-20, 21, m), 2.0 ** rng.integers(-20, 21, n)
    z = cp.Variable(n, name="z")
    sense, sign = (cp.Minimize, 1.0) if seed % 2 else (cp.Maximize, -1.0)
    goal = sense(sign * (c * columns) @ z + 0.5 * seed)
    p = of.from_cvxpy(cp.Problem(goal, [(rows[:, None] * A * columns) @ z <= rows * b, z >= 0]))
    s = p.solve(exact=True)
    assert s.exact.verify()
    assert s.exact.objective == Fraction(float(sign * (c @ x0) + 0.5 * seed))


def extreme(seed: int) -> tuple[Any, float]:
    """Return a program in units from 1e-12 to 1e12, and its optimum but for the rounding."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 7)), int(rng.integers(2, 7))
    A = rng.integers(-4, 5, (m, n)).astype(float)
    x = np.where(rng.random(n) < 0.6, rng.integers(1, 6, n), 0).astype(float)
    y = np.where(rng.random(m) < 0.6, rng.integers(1, 6, m), 0).astype(float)
    b = A @ x + np.where(y > 0, 0, rng.integers(0, 4, m))
    c = -A.T @ y + np.where(x > 0, 0, rng.integers(0, 4, n))
    rows = 10.0 ** rng.integers(-12, 13, m) if seed % 2 else np.ones(m)
    columns = 10.0 ** rng.integers(-12, 13, n)
    z = cp.Variable(n, name="z")
    A, b, c, optimum = rows[:, None] * A * columns, rows * b, c * columns, float(c @ x)
    bounds = [z >= 0] if seed % 3 else [z >= 0, z <= 10 / columns]
    return of.from_cvxpy(cp.Problem(cp.Minimize(c @ z), [A @ z <= b, *bounds])), optimum


@pytest.mark.parametrize("seed", [17, 55, 83, 110, 151])
def test_what_no_multipliers_prove_is_proved_by_its_basis(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, optimum = extreme(seed)
    s = p.solve()
    assert s.grade.word == "proved" and s.is_optimal(1e-7)
    assert s.objective == pytest.approx(optimum, rel=1e-5)
    monkeypatch.setattr(search, "BASIS", 0)
    if seed == 151:  # multipliers that move in turn prove as much, and no more
        assert p.solve().bound <= p.solve(exact=True).exact.objective
        return
    with contextlib.suppress(of.SolverFailure):
        assert p.solve("highs").grade.word != "proved"  # its basis is what proves it


def staircase(periods: int, size: int, seed: int) -> tuple[Problem, Floats]:
    """Return a program in which optimal points go on without end, and one of them: all numbers are short."""
    rng = np.random.default_rng(seed)
    units = 2.0 ** rng.integers(-9, 10, (periods, 2 * size))

    def block(share: float, digits: int) -> Floats:
        entries = rng.normal(size=(size, 2 * size)) * (rng.random((size, 2 * size)) < share)
        return np.round(digits * entries) / digits

    A = np.zeros((periods * size, 2 * periods * size))
    for t in range(periods):
        rows, own = slice(t * size, (t + 1) * size), slice(2 * t * size, 2 * (t + 1) * size)
        A[rows, own] = block(0.1, 64) * units[t]
        if t:
            A[rows, own.start - 2 * size : own.start] = block(0.03, 8)
    largest = np.abs(A).max(axis=0)
    unit = 2.0 ** np.round(np.log2(np.where(largest > 0.0, largest, 1.0)))
    x, s = (np.round(64 * rng.random(A.shape[1])) / 64 for _ in range(2))
    x *= (rng.random(x.size) < 0.5) / unit
    c = A.T @ (np.round(8 * rng.normal(size=len(A))) / 8) + s * (x == 0.0) * unit
    z = cp.Variable(x.size, name="z", nonneg=True)
    return of.from_cvxpy(cp.Problem(cp.Minimize(c @ z), [A @ z == A @ x])), c @ x


@pytest.mark.parametrize("seed", [5, 7, 9])
def test_programs_of_some_thousand_entries_have_their_basis_solved(seed: int) -> None:
    p, optimum = staircase(16, 25, seed)
    s = p.solve(tolerance=1e-7)
    assert s.grade.word == "proved" and s.objective == pytest.approx(optimum, rel=1e-12)
    assert "highs: a basis was solved in fractions" in s.attempts


def test_a_solver_that_is_named_gets_no_help() -> None:
    p, _ = extreme(17)
    assert p.solve().exact is not None and p.solve("highs").exact is None


@pytest.mark.parametrize(
    ("seed", "x", "z"),
    [  # over 11; a cost of 6e-10 has its multipliers off by half of it
        (61, [48e-9, 0, 0, 80e-6], [0, 12e-12, 3e6, 0, 0, 3e5, 0]),
        # no basis is optimal in fractions, and one is better
        (224, [0.0082, 52e4, 960, 0, 27e4, 0], [1, 25.4, 24.2, 3, 0, 0, 0, 5.82e-9, 0, 0]),
    ],
)
def test_the_word_of_a_named_solver_does_not_stand_against_a_basis_in_fractions(
    seed: int, x: list[float], z: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    (p, optimum), right = extreme(seed), search.adapter_of
    pair = np.array(x) / 11.0, np.array(z) / 11.0

    def lying(*asked: Any) -> Any:
        outcome = right(profile("highs"))(*asked)
        proof: Any = replace(outcome.proof, x=pair[0], z=pair[1])
        values, multipliers = proof.compiled.by_name(*pair)
        return replace(outcome, values=values, multipliers=multipliers, proof=proof)

    monkeypatch.setattr(search, "adapter_of", lambda solver: lying)
    with pytest.raises(of.SolverFailure, match=f"not {optimum:.6g} of a basis in fractions"):
        p.solve("highs")


def test_a_degenerate_vertex_is_told_apart_in_the_last_digit() -> None:
    # three rows through (1, 1) but for 2^-50: the optimum is at the inner pair
    x = cp.Variable(2, name="x")
    inner = 1.0 - 2.0**-50
    rows = [x[0] + x[1] <= 2, x[0] <= 1, x[1] <= inner, 3 * x[0] + 2 * x[1] <= 5]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(x[0] + 2 * x[1]), rows))
    s = p.solve(exact=True)
    assert tuple(s.exact.values["x"]) == (1, exact(inner))
    assert s.exact.objective == 3 - Fraction(2, 2**50)


def test_files_and_equalities() -> None:
    p = of.from_arrays(
        q=[0.1, 0.2, 0.3], A=[[1.0, 1.0, 1.0], [1.0, -0.3, 0.0]], l=[1.0, 0.1], u=[1.0, 5.0], lb=0.0
    )
    s = p.solve(exact=True)
    x = s.exact.point
    assert sum(x) == 1 and s.exact.verify()
    assert float(s.exact.objective) == pytest.approx(s.objective, rel=1e-12)


def test_what_has_no_exact_optimum_is_refused() -> None:
    x = cp.Variable(2, name="x")
    quadratic = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - 0.1)), [cp.sum(x) == 1]))
    with pytest.raises(of.ClassError, match="exact=True is for linear programs; this one is QP"):
        quadratic.solve(exact=True)
    whole = diet().with_integrality("x")
    with pytest.raises(of.ClassError, match="MILP"):
        whole.solve(exact=True)
    X = np.arange(12.0).reshape(6, 2)
    special = of.FairAssignment(X, groups=[0, 1, 0, 1, 0, 1], centers=X[:2])
    with pytest.raises(of.ClassError, match="mass-dual"):
        special.solve(exact=True)
    assert special.solve("highs", exact=True).exact.verify()
    none = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [x >= 1, x <= 0]))
    with pytest.raises(of.Infeasible):
        none.solve(exact=True)
    with pytest.raises(of.SolverFailure, match="no basis was found"):
        exactly(diet().solve(), seconds=-1.0)


def test_floats_that_contradict_each_other_in_the_last_digit(tmp_path: Path) -> None:
    x = cp.Variable(3, name="x")
    rows = [0.1 * x[0] + x[1] == 0.1, 0.2 * x[0] + x[2] == 0.2, 0.3 * (x[0] + x[1]) == 0.3]
    same = [0.1 * x[0] + x[1] == 0.1 + 2.0**-56, x >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + x[1]), rows + same), [*"abcd", "sign"])
    near = p.solve()  # within the tolerance there is an optimum, and it is proved
    assert near.grade.word == "proved" and near.objective == pytest.approx(1.0)
    with pytest.raises(of.Infeasible, match="to the last digit") as e:
        p.solve(exact=True)
    proof = e.value.certificate
    assert e.value.conflict == ("a", "d") and proof.verify()
    assert str(proof) == "a Farkas vector in fractions over 'a', 'd'"
    proof.save(tmp_path / "proof.json")
    command = [sys.executable, "-I", "-S", check_proof.__file__, str(tmp_path / "proof.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.endswith("proved: no point satisfies the constraints\n")
    # one digit more or less in the weights proves nothing
    (link,), none = proof.proof.links, Fraction(1, 10**300)
    for i in link:
        moved = Excluded(({**link, i: link[i] + none},), None)
        assert not replace(proof, proof=moved).verify()


@pytest.mark.parametrize("apart", [1e-9, 1e-10, 1e-13])
def test_sides_that_cross_within_the_tolerance_are_excluded_in_fractions(apart: float) -> None:
    x = cp.Variable(2, name="x")
    rows = [x[0] + x[1] >= 1 + apart, x[0] + x[1] <= 1, x >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), rows), ["more", "less", "sign"])
    assert p.solve().objective == pytest.approx(0.0, abs=1e-7)  # to the tolerance there is a point
    with pytest.raises(of.Infeasible, match="to the last digit") as caught:
        p.solve(exact=True)
    assert caught.value.conflict == ("more", "less") and caught.value.certificate.verify()


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("constant", [0.0, 5.0])
def test_a_basis_contradicts_an_answer_in_the_unit_of_the_objective(
    unit: float, constant: float, sense: Any
) -> None:
    x, sign = cp.Variable(2, name="x"), 1.0 if sense is cp.Minimize else -1.0
    rows = [x[0] + 2 * x[1] >= 3 * unit, x >= 0]
    goal = sense(sign * (x[0] + x[1] + constant * unit))
    s = of.from_cvxpy(cp.Problem(goal, rows)).solve()
    basis = exactly(s)
    worse, better = (replace(s, objective=s.objective + k * sign * 1e-6 * unit) for k in (1, -1))
    assert not contradicts(basis, s, 1e-7)
    assert contradicts(basis, worse, 1e-7) and contradicts(basis, better, 1e-7)
    # a basis that is not optimal in fractions says nothing against what is better
    last = replace(basis, proof=s.proof)
    assert contradicts(last, worse, 1e-7) and not contradicts(last, better, 1e-7)


def test_a_small_cost_that_units_hide_beside_a_large_one_is_seen() -> None:
    x = cp.Variable(2, name="x")
    rows = [3e6 * x[0] + 3e-5 * x[1] <= -0.1, -2e6 * x[0] - x[1] <= 2, x >= [-0.3, 0]]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(-4e-7 * x[0] + 0.4 * x[1]), [*rows, x <= [1.4, 0.7]]))
    s = p.solve(exact=True)
    assert s.exact is not None and s.grade.word == "proved"


@pytest.mark.parametrize("seed", [10, 23, 57])
def test_a_basis_that_hides_in_the_declared_units_is_found_in_others(seed: int) -> None:
    p, optimum = extreme(seed)
    form = compile_problem(p, conic_interface()).form
    point, _ = exact_optimum(form)
    assert form.objective(np.array(point, dtype=float)) == pytest.approx(optimum, rel=1e-5)


def test_sides_that_units_would_lose_are_kept() -> None:
    x = cp.Variable(2, name="x")
    form = form_of(cp.Maximize(x[0]), [3 * x[0] + 2 * x[1] <= 5e-324, x >= 0])
    point, _ = exact_optimum(form)
    assert point == [exact(5e-324) / 3, 0]


def test_the_best_basis_is_the_solution_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    s: Any = diet().solve()
    basis = exact_optimum(s.proof.compiled.form)

    def short(*_: Any) -> Any:
        raise NotOptimal("one digit is missing", basis)

    monkeypatch.setattr("optfair.backends.exact.exact_optimum", short)
    with pytest.raises(of.SolverFailure) as failure:
        exactly(s)
    best: Any = failure.value.solution
    assert best["x"] == pytest.approx(s["x"]) and best.objective == pytest.approx(s.objective)
    assert best.is_optimal(1e-9) and best.exact is None


def test_a_basis_that_proves_nothing_is_still_on_the_word_of_its_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s: Any = diet().solve("highs")
    proof, measured = s.proof, measure(s.problem, s.values, s.multipliers, s.proof)
    vague = replace(
        measured, check=replace(measured.check, unpaid=Unpaid(np.arange(2), 1.0, 0.0, 1.0))
    )
    monkeypatch.setattr("optfair.backends.exact.measure", lambda *_: vague)
    monkeypatch.setattr(
        "optfair.backends.exact.exact_optimum", lambda *_: (list(proof.x), list(proof.z))
    )
    assert str(exactly(s).grade) == "reported by highs"


def test_a_basis_beyond_the_range_of_floats_is_none() -> None:
    x = cp.Variable(2, name="x")
    rows = [5e-324 * x[1] == 0, x[0] == -2, x[1] >= -1]  # the price of the first is 2e323
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[1] - 3 * x[0]), rows))
    with pytest.raises(of.SolverFailure, match="no basis"):
        p.solve("highs", exact=True)


def test_an_objective_without_limit_has_no_basis() -> None:
    x = cp.Variable(2, name="x")
    with pytest.raises(of.SolverFailure, match="no basis was found"):
        exact_optimum(form_of(cp.Minimize(x[0] - x[1]), [x >= 0]))


def test_what_floats_lose_is_settled_by_pivots() -> None:
    """Rows that follow from others but for their last digits: a basis is far off, or there is none."""
    x = cp.Variable(3, name="x")
    near = [-x[0] - 3 * x[2] <= -0.3, -0.1 * x[0] - 0.30000000000000004 * x[2] >= -0.03]
    rows = [*near, 2 * x[0] + 3 * x[1] - x[2] <= 3, -x[0] - x[1] - 3 * x[2] <= 3]
    rows += [x[0] <= 0.3, x[1] <= 0.7]
    with pytest.raises(of.Infeasible) as none:
        adopted(cp.Maximize(3 * x[0] + x[1] - 2 * x[2]), [*rows, x[2] >= -1]).solve(exact=True)
    assert none.value.certificate.verify()
    with pytest.raises(Falling):
        exact_optimum(form_of(cp.Minimize(x[0] - x[1]), [x >= 0]))


def test_what_falls_without_limit_in_the_last_digit_is_unbounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = cp.Variable(2, name="x")
    s = adopted(cp.Minimize(x[0] + x[1]), [x >= 0.1]).solve()

    def fall(*_: Any) -> Any:
        raise Falling([exact(1.0), exact(1.0)], way)

    monkeypatch.setattr("optfair.backends.exact.exact_optimum", fall)
    way = [Fraction(-1), Fraction(1)]
    with pytest.raises(Falling, match="without limit"):  # no ray of this problem
        exactly(s)
    way = [Fraction(10**400), Fraction(1)]
    with pytest.raises(NotOptimal):
        exactly(s)
    free = adopted(cp.Minimize(x[0] + x[1]), [x[0] - x[1] == 0, x <= 2])
    way = [Fraction(-3), Fraction(-3)]
    with pytest.raises(of.Unbounded) as proved:
        in_fractions(free, 5.0)
    ray: Any = proved.value.certificate
    assert ray.verify() and ray.d.tolist() == [-1.0, -1.0]
    wrong = Settled(
        [exact(1.0), exact(1.0)], None, [exact(-1.0), exact(-2.0)]
    )  # it leaves the rows
    monkeypatch.setattr("optfair.backends.exact.settled", lambda *_: wrong)
    with pytest.raises(Falling):
        in_fractions(free, 5.0)
    none = Settled(None, [exact(1.0)] * 3)  # no contradiction
    monkeypatch.setattr("optfair.backends.exact.settled", lambda *_: none)
    assert in_fractions(free, 5.0) is None


def test_the_rate_of_a_fall_is_the_sum_over_columns() -> None:
    x = cp.Variable(2, name="x")
    form = form_of(cp.Minimize(x[0] - x[1]), [x >= 0])
    half = Fraction(1, 2)
    assert falls(form, [half, Fraction(1)]) and not falls(form, [Fraction(1), half])
    curved = form_of(cp.Minimize(cp.square(x[0]) - x[0] - x[1]), [x >= 0])
    second = [Fraction(0)] * curved.q.size
    second[curved.columns["x"].start + 1] = Fraction(1)
    assert falls(curved, second)
    assert not falls(curved, [Fraction(1)] * curved.q.size)  # one column alone is squared


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_a_direction_is_made_exact_in_any_unit(unit: float) -> None:
    x = cp.Variable(3, name="x")
    form = form_of(cp.Minimize(-cp.sum(x)), [0.1 * x[0] == 0.3 * x[1], x >= 0])
    near = np.array([3.0, 1.0, 1e-12])
    d = direction_nearby(form, unit * near)
    assert d is not None and falls(form, d)
    assert exact(0.1) * d[0] == exact(0.3) * d[1] and d[2] == 0
    assert direction_nearby(form, 0.0 * near) is None
