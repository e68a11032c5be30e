"""Sweeps: points warm, bounds between them, files, and what is refused."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.compile.form import compile_problem
from optfair.sweeps import dependence, derivatives, sweep
from optfair.sweeps.sweep_result import Point, _band

RNG = np.random.default_rng(0)
A = RNG.random((12, 8))


def sides(sense: str, quadratic: bool = False) -> Any:
    """Return a problem whose right-hand sides move with t."""
    x, t = cp.Variable(8, name="x"), cp.Parameter(name="t", value=1.0)
    c = RNG.random(8) + 0.2
    need = A @ np.ones(8)
    rows = (
        [A @ x >= t * need + 0.1, x >= 0, x <= 6]
        if sense == "min"
        else [
            A @ x <= t * need + 0.1,
            x >= 0,
            x <= 6,
        ]
    )
    goal = c @ x + (cp.sum_squares(x) if quadratic else 0.0)
    made = cp.Minimize(goal) if sense == "min" else cp.Maximize(c @ x)
    return of.from_cvxpy(cp.Problem(made, rows)), (0.2, 2.0)


def cone() -> Any:
    x, t = cp.Variable(4, name="x"), cp.Parameter(name="t", nonneg=True, value=1.0)
    rows = [cp.norm(A[:4, :4] @ x - 1) <= t, cp.sum(x) == 1 + 0.5 * t]
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm1(x) + 0.3 * t), rows)), (2.0, 5.0)


def costs(sense: str, integer: bool) -> Any:
    x, t = cp.Variable(6, name="x", integer=integer), cp.Parameter(name="t", value=1.0)
    c, d = RNG.random(6) + 0.5, RNG.standard_normal(6)
    box = [A[:5, :6] @ x >= 2.3, x >= 0, x <= 9]
    goal = (c + t * d) @ x
    made = cp.Minimize(goal) if sense == "min" else cp.Maximize(-goal)
    return of.from_cvxpy(cp.Problem(made, box)), (-0.4, 0.9)


def capacity() -> Any:
    x, t = cp.Variable(5, name="x", integer=True), cp.Parameter(name="t", value=6.0)
    weights, worth = np.array([2.0, 3.0, 4.0, 5.0, 6.0]), np.array([3.0, 4.0, 6.0, 7.0, 9.0])
    rows = [weights @ x <= t, x >= 0, x <= 2]
    return of.from_cvxpy(cp.Problem(cp.Maximize(worth @ x), rows)), (1.0, 20.0)


def coefficient() -> Any:
    x, t = cp.Variable(3, name="x"), cp.Parameter(name="t", nonneg=True, value=1.0)
    rows = [t * x[0] + x[1] + x[2] >= 2, x >= 0, x <= 3]
    return of.from_cvxpy(cp.Problem(cp.Minimize(np.array([1.0, 2.0, 3.0]) @ x), rows)), (0.1, 2.0)


CASES = {
    "rhs of an LP": (lambda: sides("min"), "convex"),
    "rhs of an LP, maximised": (lambda: sides("max"), "concave"),
    "rhs of a QP": (lambda: sides("min", quadratic=True), "convex"),
    "cones and a constant": (cone, "convex"),
    "costs of an LP": (lambda: costs("min", False), "concave"),
    "costs of an LP, maximised": (lambda: costs("max", False), "convex"),
    "costs of a MILP": (lambda: costs("min", True), "concave"),
    "capacity of a MILP": (capacity, "nondecreasing"),
    "a coefficient": (coefficient, "nonincreasing"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_the_band_holds_between_the_points(case: str) -> None:
    make, word = CASES[case]
    p, ends = make()
    found = sweep(p, "t", np.linspace(*ends, 6))
    assert found.dependence.word == word and len(found) == 6
    for t in np.random.default_rng(1).uniform(*ends, 12):
        low, high = found.band(float(t))
        value = p.at(t=t).solve().objective
        slack = 1e-6 * (1.0 + abs(value))
        assert low - slack <= value <= high + slack
        assert np.isfinite([low, high]).all() and low <= high + 1e-9 * abs(high)
    if word in ("convex", "concave"):
        finer = sweep(p, "t", ends, width=0.02)
        assert finer.width <= 0.02
        fresh = [p.at(t=float(t)).solve().objective for t in np.linspace(*ends, 7)]
        spread = max(fresh) - min(fresh)
        for t, value in zip(np.linspace(*ends, 7), fresh, strict=True):
            low, high = finer.band(float(t))
            assert high - low <= 0.021 * spread + 1e-5
            assert low - 1e-6 <= value <= high + 1e-6


def test_lines_are_proved_for_the_declared_floats() -> None:
    """Against optima in fractions: no rounding of ours may lift a line above the optimum."""
    p, ends = sides("min")
    found = sweep(p, "t", np.linspace(*ends, 4))
    assert found.grade == "proved"
    for t in np.random.default_rng(2).uniform(*ends, 15):
        exact = p.at(t=float(t)).solve(exact=True).exact.objective
        for point in found.points:
            assert point.line is not None and point.line.sound
            assert point.line(float(t)) <= exact


def test_a_bound_that_moves_is_no_bound_elsewhere() -> None:
    """min -u, 0 <= u <= t: multipliers of nothing prove -1 at t = 1, and nothing at 2."""
    u, t = cp.Variable(name="u"), cp.Parameter(name="t", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(-u), [u <= t, u >= 0]))
    s = p.at(t=1.0).solve()
    low, high = (p.at(t=v) for v in (1.0, 2.0))
    proof = s.proof
    line = replace(proof, z=np.zeros_like(proof.z)).line((low, high), 1.0, 2.0)
    assert line is not None and line(2.0) <= -2.0
    honest = proof.line((low, high), 1.0, 2.0)
    assert honest is not None and honest(2.0) == pytest.approx(-2.0) and honest(1.5) <= -1.5 + 1e-9


def test_infeasible_points_stay_with_their_conflict() -> None:
    x, t = cp.Variable(2, name="x"), cp.Parameter(name="t", value=1.0)
    rows = [cp.sum(x) >= t, x <= 1, x >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + 2 * x[1]), rows), ["need", "cap", "sign"])
    found = sweep(p, "t", [0.5, 1.5, 3.0])
    assert [point.status for point in found.points] == ["optimal", "optimal", "infeasible"]
    assert list(found) == [found[i] for i in range(len(found))] == list(found.points)
    assert set(found.points[2].conflict) <= {"need", "cap", "sign"} and found.points[2].conflict
    finer = sweep(p, "t", (0.0, 4.0), width=0.01)
    edge = max(point.at[0] for point in finer.points if point.solved)
    assert 2.0 - 0.05 <= edge <= 2.0
    low, high = finer.band(1.7)
    assert low <= 2.4 + 1e-7 and high >= 2.4 - 1e-7 and high - low < 0.05
    low, high = finer.band(3.9)
    assert (low, high) == (-np.inf, np.inf)


def test_functions_prices_and_the_frame() -> None:
    p, ends = sides("min")
    found = sweep(p, "t", np.linspace(*ends, 5), functions={"first": lambda s: float(s["x"][0])})
    frame = found.frame()
    assert list(frame["t"]) == pytest.approx(np.linspace(*ends, 5))
    assert frame["first"].notna().all() and (frame["status"] == "optimal").all()
    t = float(frame["t"][2])
    step = 1e-4
    change = p.at(t=t + step).solve().objective - p.at(t=t - step).solve().objective
    assert frame["price"][2] == pytest.approx(change / (2 * step), rel=1e-3)
    assert (frame["lower"] <= frame["value"] + 1e-9).all()
    assert found.solves == 5 and "convex" in repr(found)
    assert any(point.iterations is not None for point in found.points)


def test_a_sweep_goes_on_where_its_file_ends(tmp_path: Path) -> None:
    p, ends = sides("min")
    file = tmp_path / "sweep.json"
    first = sweep(p, "t", np.linspace(*ends, 4), save=file)
    again = sweep(p, "t", np.linspace(*ends, 7), save=file)
    assert first.solves == 4 and again.solves == 3 and len(again) == 7
    for t in np.linspace(*ends, 9):
        low, high = again.band(float(t))
        assert low <= p.at(t=float(t)).solve().objective + 1e-7 <= high + 2e-7
    with pytest.raises(of.DeclarationError, match="holds another sweep"):
        sweep(p.without("c2"), "t", [1.0], save=file)
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told)[:-40])
    with pytest.raises(of.DataError, match="is no sweep"):
        sweep(p, "t", [1.0], save=file)


@pytest.mark.parametrize(("first", "then"), [((0.0, 1.0), (0.0, 4.0)), ((2.0, 3.0), (0.0, 4.0))])
def test_a_file_of_another_segment_says_nothing_beyond_it(
    first: Any, then: Any, tmp_path: Path
) -> None:
    """The objective of a point at both ends is that of the segment it was solved for."""
    x, t = cp.Variable(2, name="x"), cp.Parameter(name="t", value=1.0)
    problem = cp.Problem(cp.Minimize(t * x[0] + x[1]), [x >= 0, cp.sum(x) >= 1])
    p, file = of.from_cvxpy(problem), tmp_path / "sweep.json"
    sweep(p, "t", first, save=file)
    made = sweep(p, "t", then, save=file)
    assert made.dependence.word == "concave" and made.solves > 0
    for at in np.linspace(*then, 9):
        low, high = made.band(float(at))
        assert low <= min(at, 1.0) + 1e-9 and high >= min(at, 1.0) - 1e-9
    rows = [r for r in made.frame().to_dict("records") if r["t"] != 1.0]
    assert [r["price"] for r in rows] == pytest.approx([float(r["t"] < 1.0) for r in rows])


def test_lines_hold_where_they_were_proved(tmp_path: Path) -> None:
    p, (low, high) = sides("min", quadratic=True)
    file, middle = tmp_path / "sweep.json", 0.5 * (low + high)
    sweep(p, "t", (low, middle), save=file)
    made = sweep(p, "t", (low, high), save=file)
    reach = {point.at[0]: (point.line is not None, point.reaches(high)) for point in made}
    assert reach == {low: (True, False), middle: (True, False), high: (True, True)}
    assert made.grade == "reported" and sweep(p, "t", (low, high)).grade == "proved"


def test_two_parameters() -> None:
    x = cp.Variable(2, name="x")
    a, b = cp.Parameter(name="a", value=1.0), cp.Parameter(name="b", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x[0] >= a, x[1] >= b]))
    found = sweep(p, ("a", "b"), ([0.0, 1.0], [2.0, 3.0, 4.0]))
    assert [point.value for point in found.points] == pytest.approx([2, 3, 4, 3, 4, 5])
    assert list(found.frame().columns[:3]) == ["a", "b", "value"]
    with pytest.raises(of.DeclarationError, match="two parameters"):
        found.band(0.5)


def test_fairness_is_swept_with_its_band() -> None:
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    p = of.FairAssignment(X, groups=sex, centers=X[:5], fairness=of.max_gap(0.05))
    found = of.sweep(p, "eps", (0.0005, 0.4), width=0.01)
    assert found.solves <= 13 and found.grade == "proved" and found.width <= 0.01
    for t in np.random.default_rng(3).uniform(0.0005, 0.4, 8):
        low, high = found.band(float(t))
        value = p.at(eps=float(t)).solve(tolerance=1e-9).objective
        assert low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9)


@pytest.mark.parametrize(
    "rule", [of.max_gap(0.1), of.additive_gap(0.2), of.cluster_share(0.1, 0.9)]
)
def test_what_a_rule_calls_a_side_is_one(rule: of.Rule) -> None:
    r = np.random.default_rng(0)
    X, groups = r.standard_normal((30, 2)), r.integers(0, 2, 30)
    p = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=rule)
    for name in sorted(rule.sides):
        start = getattr(rule, name)
        forms = [
            compile_problem(p.at({f"fairness.{name}": start + 0.02 * k}), "CLARABEL").form
            for k in range(3)
        ]
        for f in forms[1:]:
            assert abs(f.A - forms[0].A).max() == 0.0 and np.array_equal(f.q, forms[0].q)
        np.testing.assert_allclose(forms[2].b - forms[1].b, forms[1].b - forms[0].b, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: sweep(p, "tt", [1.0]), "no parameter or row 'tt'"),
        (lambda p: sweep(p, "t", ["a"]), "entries that are not numbers"),
        (lambda p: sweep(p, "t", []), "no value of 't'"),
        (lambda p: sweep(p, "t", [1.0, np.nan]), "NaN or infinite"),
        (lambda p: sweep(p, "t", [1.0, 2.0], width=0.0), "not a positive number"),
        (lambda p: sweep(p, "t", [1.0, 2.0, 3.0], width=0.1), "two values"),
        (lambda p: sweep(p, ("t",) * 3, ([1.0],) * 3), "3 parameters"),
    ],
)
def test_what_is_refused(call: Any, words: str) -> None:
    with pytest.raises(of.OptfairError, match=words):
        call(sides("min")[0])


def test_nothing_is_promised_where_nothing_is_proved() -> None:
    x, t = cp.Variable(2, name="x"), cp.Parameter(name="t", value=1.0)
    both = of.from_cvxpy(cp.Problem(cp.Minimize(t * x[0] + x[1]), [cp.sum(x) >= t, x >= 0]))
    assert dependence(both, "t", 0.5, 2.0).word == ""
    with pytest.raises(of.DeclarationError, match="nothing is proved between"):
        sweep(both, "t", (0.5, 2.0), width=0.1)
    found = sweep(both, "t", [0.5, 2.0])
    assert [p.value for p in found.points] == pytest.approx([0.25, 2.0])
    with pytest.raises(of.DeclarationError, match="no bounds between"):
        found.band(1.0)
    vector = cp.Parameter(2, name="v", value=np.ones(2))
    q = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= vector]))
    with pytest.raises(of.DeclarationError, match="is an array"):
        sweep(q, "v", [1.0])


def test_the_picture_has_points_and_a_band() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    p, ends = sides("min")
    ax = sweep(p, "t", np.linspace(*ends, 4)).plot()
    assert len(ax.collections) == 1 and len(ax.lines[0].get_xdata()) == 4
    x = cp.Variable(name="x")
    rows = {"low": x >= 1, "cap": x <= 3}
    q = of.from_cvxpy(cp.Problem(cp.Minimize(x), list(rows.values())), list(rows))
    ax = sweep(q, "cap", [-1.0, 0.0, 2.0, 3.0]).plot()
    said = [t.get_text() for t in ax.get_legend().get_texts()]
    assert said == ["band", "solved", "infeasible"]
    assert ax.get_title(loc="left") == "Optimum along cap"
    plt.close("all")


def test_names_are_drawn_as_they_stand_and_points_without_solution_too() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    x = cp.Variable(name="x")
    a, b = cp.Parameter(name="a_$1$", value=1.0), cp.Parameter(name="b", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(1e9 * cp.square(x)), [x >= a, x <= b]))
    ax = sweep(p, ["a_$1$", "b"], [[0.0, 2.0], [1.0, 3.0]]).plot()
    assert ax.get_xlabel() == r"a_\$1\$"
    solved, without = ax.collections
    assert solved.get_offsets().tolist() == [[0.0, 1.0], [0.0, 3.0], [2.0, 3.0]]
    assert without.get_offsets().tolist() == [[2.0, 1.0]]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["solved", "infeasible"]
    # no common factor, which would stand in the note below the title
    ax = sweep(p.at(b=3.0), "a_$1$", [1.0, 2.0]).plot()
    assert ax.get_xlabel() == r"a_\$1\$"
    ax.figure.canvas.draw()
    assert ax.yaxis.get_offset_text().get_text() == ""
    assert {"1e+09", "2e+09"} <= {t.get_text() for t in ax.get_yticklabels()}
    ax.set_ylim(13_999_960_000, 13_999_995_000)
    ax.figure.canvas.draw()
    assert "13,999,980,000" in {t.get_text() for t in ax.get_yticklabels()}
    plt.close("all")


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_pieces_in_processes_are_the_same_points(tmp_path: Path, backend: str) -> None:
    import joblib

    p, (low, high) = sides("min")
    given = np.linspace(low, 4.0 * high, 12)
    alone = sweep(p, "t", given, functions={"largest": lambda s: s["x"].max()})
    with joblib.parallel_config(backend=backend):
        file = tmp_path / "points.json"
        many = sweep(
            p, "t", given, functions={"largest": lambda s: s["x"].max()}, n_jobs=2, save=file
        )
        wide = sweep(p, "t", (low, high), width=1e-2, n_jobs=2)
    assert [q.status for q in many.points] == [q.status for q in alone.points]
    assert any(q.conflict for q in many.points)
    solved = [(a, b) for a, b in zip(many.points, alone.points, strict=True) if a.solved]
    for a, b in solved:
        assert a.value == pytest.approx(b.value, abs=1e-7) and "largest" in a.more
    assert wide.width <= 1e-2 and wide.grade == "proved"
    assert (
        sweep(p, "t", given, save=file, functions={"largest": lambda s: s["x"].max()}).solves == 0
    )
    with pytest.raises(of.DataError, match="n_jobs is 0"):
        sweep(p, "t", given, n_jobs=0)


class Deadly:
    """A function of a solution that kills its process at a value, once or whenever it is asked."""

    def __init__(self, mark: Path, once: bool) -> None:
        self.mark, self.once = mark, once

    def __call__(self, solution: of.Solution) -> float:
        largest = float(solution["x"].max())
        if largest > 1.9 and not (self.once and self.mark.exists()):
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return largest


@pytest.mark.slow
@pytest.mark.parametrize("once", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_process_that_is_killed_takes_no_other_point_with_it(tmp_path: Path, once: bool) -> None:
    x, t = cp.Variable(2, name="x"), cp.Parameter(name="t", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) >= t]))
    deadly = Deadly(tmp_path / "killed", once)
    found = sweep(p, "t", [1.0, 2.0, 3.0, 4.0], functions={"largest": deadly}, n_jobs=2)
    assert deadly.mark.exists() and len(found.points) == 4
    for point in found.points[: 4 if once else 3]:
        assert point.more["largest"] == pytest.approx(point.at[0] / 2, abs=1e-6)
    if not once:
        assert found.points[3].status == "SolverFailure: the process that solved here was killed"


@pytest.mark.parametrize(
    "make", [lambda e: e <= 3, lambda e: cp.Constant(3) >= e, lambda e: e - 3 <= 0]
)
def test_the_right_hand_side_of_a_row_moves(make: Any) -> None:
    x = cp.Variable(2, name="x")
    row = make(x[0] + 2 * x[1])
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), [row, x >= 0]), ["cap", "sign"])
    moved = 0.0 if row.args[0].is_constant() or row.args[1].value == 3 else 3.0
    s = of.sweep(p, "cap", [1.0, 2.0, 4.0])
    values = [point.value + moved for point in s.points]
    np.testing.assert_allclose(values, [q + 2 * moved for q in (1.0, 2.0, 4.0)], rtol=1e-7)
    assert s.dependence.word == "concave"


def test_one_entry_of_many_right_hand_sides_moves_and_no_other() -> None:
    x = cp.Variable((2, 2), name="x")
    rows = [x >= np.array([[1.0, 2.0], [3.0, 4.0]])]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows), ["least"])
    s = of.sweep(p, "least[1,0]", [0.0, 3.0, 10.0])
    assert [q.value for q in s.points] == pytest.approx([7.0, 10.0, 17.0], rel=1e-7)
    assert [q.line.slope for q in s.points if q.line] == pytest.approx([1.0] * 3)
    named = p.with_labels(least=(["a", "b"], ["c", "d"]))
    again = of.sweep(named, "least[b,c]", [0.0, 3.0, 10.0])
    assert [q.value for q in again.points] == [q.value for q in s.points]
    cone = p.with_constraints(ball=cp.SOC(p["x"][0, 0], p["x"][1]))
    with pytest.raises(of.DeclarationError, match=r"ball.*right-hand side"):
        of.sweep(cone, "ball[0]", [0.0, 1.0])
    with pytest.raises(of.DeclarationError, match="not a declared problem"):
        of.sweep(of.library.load("diet"), "x", [0.0, 1.0])


def test_an_index_is_read_without_the_names_of_all_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    x = cp.Variable((3, 4), name="x")
    need = np.arange(12.0).reshape(3, 4)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= need]), ["need"])

    def never(*told: object) -> list[str]:
        raise AssertionError(told)

    labels = {"need": (["a", "b", "c"], ["0", "1", "2", "9"])}
    named = of.sweep(p.with_labels(labels), "need[b,9]", [7.0, 8.0])
    assert [q.value for q in named.points] == pytest.approx([66.0, 67.0])
    monkeypatch.setattr("optfair.sweeps.along.entry_names", never)
    s = of.sweep(p, "need[1,3]", [7.0, 8.0])
    assert [q.value for q in s.points] == pytest.approx([66.0, 67.0])
    for name in ("need[3,0]", "need[1]", "need[1,3,0]", "need[-1,0]", "need[1,]"):
        with pytest.raises(of.errors.DeclarationError, match="no parameter or row"):
            of.sweep(p, name, [1.0, 2.0])


def test_a_smooth_piece_is_cut_into_as_many_parts_as_it_takes() -> None:
    """The band of a parabola between two of its points is k² times as narrow on k parts."""
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) == b]))
    for parts in (2, 3, 4, 5):
        s = of.sweep(p, "b", (0.0, 4.0), width=0.5 / parts**2 * 1.05)
        assert s.solves == parts + 1 and s.width <= 0.5 / parts**2 * 1.05


def test_options_that_no_point_can_be_solved_with_are_refused() -> None:
    x, b = cp.Variable(name="x"), cp.Parameter(name="b", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= b]))
    for options in ({"solver": "hihgs"}, {"tolerance": 2.0}, {"time_limit": -1.0}):
        with pytest.raises(of.OptfairError):
            of.sweep(p, "b", [1.0, 2.0], **options)


def test_a_file_that_holds_no_sweep_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    x, b = cp.Variable(name="x"), cp.Parameter(name="b", value=1.0)
    p, file = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= b])), tmp_path / "s.json"
    of.sweep(p, "b", [1.0], save=file)
    whole = file.read_text()
    odd = [whole.replace('"value": 1.0', f'"value": {v}') for v in ('"a"', "[1, [2]]", "{}")]
    odd += [whole.replace('"line_given": null', '"line_given": {"start": []}')]
    odd += [whole.replace('"at": [1.0]', '"at": [[1.0], 2]')]
    assert whole not in odd
    for text in (*odd, "", "[]", "[" * 100_000, '{"schema": 1}', "\x00"):
        file.write_text(text)
        with pytest.raises(of.DataError):
            of.sweep(p, "b", [1.0, 2.0], save=file)
        assert file.read_text() == text
    with pytest.raises(of.DataError):
        of.sweep(p, "b", [1.0], save=tmp_path)
    with pytest.raises(of.DataError, match="no folder"):
        of.sweep(p, "b", [1.0], save=tmp_path / "none" / "s.json")
    assert [f.name for f in tmp_path.iterdir()] == ["s.json"]


def test_a_band_needs_no_multipliers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of a convex value are the chords of the next piece, prolonged, where there are none."""
    monkeypatch.setattr("optfair.sweeps.sweep_result.Point.line", None)
    p, ends = sides("min", quadratic=True)
    found = sweep(p, "t", ends, width=2e-2)
    assert found.width <= 2e-2 and len(found) < 40
    assert found.grade == "reported"  # such chords rest on points that are feasible to rounding
    for t in RNG.uniform(*ends, size=12):
        low, high = found.band(float(t))
        value = p.at(t=float(t)).solve().objective
        assert low - 1e-7 <= value <= high + 1e-7


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_value_that_does_not_move_ends_the_search(unit: float) -> None:
    x, t = cp.Variable(2, name="x"), cp.Parameter(name="t", value=1.0)
    goal = cp.Minimize(unit * cp.sum_squares(x - 3.3))
    p = of.from_cvxpy(cp.Problem(goal, [cp.sum(x) >= t, cp.sum(x) == 1.0, x >= -9]))
    found = sweep(p, "t", (-1.0, 0.5), width=1e-3)
    assert len(found) <= 5 and found.width <= 1e-3


def test_a_chord_of_bounds_is_rounded_down() -> None:
    rng = np.random.default_rng(3)
    for a, b, low, high, share in rng.normal(size=(40, 5)):
        low, high = sorted((low, high))
        points = [Point((t,), "optimal", 9.0, v) for t, v in ((low, a), (high, b))]
        t = float(low + (high - low) * abs(np.tanh(share)))
        lower = _band(points, "concave", t, 1.0)[0]
        t0, t1, v0, v1 = map(Fraction, (low, high, a, b))
        exact = v0 + (v1 - v0) * (Fraction(t) - t0) / (t1 - t0)
        assert lower <= exact and exact - Fraction(lower) <= Fraction(1e-13) * (abs(v0) + abs(v1))


def capped() -> Any:
    """Return max x + y, where one of two caps is infinite."""
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=5.0)
    rows = [x >= -1, x <= np.array([np.inf, 3.0]), cp.sum(x) <= b]
    return of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), rows), ["low", "cap", "total"])


def test_an_infinite_side_is_none_that_moves() -> None:
    p = capped()
    for ask in (lambda: sweep(p, "cap[0]", [-0.5, 1.0]), lambda: derivatives(p.solve(), "cap[0]")):
        with pytest.raises(of.DeclarationError, match=r"'cap\[0\]' has no right-hand side"):
            ask()
    assert [q.value for q in sweep(p, "cap[1]", [-0.5, 1.0])] == pytest.approx([5.0, 5.0])
    assert [r.entry for r in of.sensitivity(p.solve())["cap"]] == [(1,)]


def test_what_stands_in_one_row_is_not_swept_as_two() -> None:
    p = capped()
    for pair in (("low[0]", "low[1]"), ("b", "total")):
        with pytest.raises(of.DeclarationError, match="stand in one row"):
            sweep(p, pair, ([0.0, 1.0], [0.0, 1.0]))
    with pytest.raises(of.DeclarationError, match="2 parameters of one name"):
        sweep(p, ("b", "b"), ([0.0, 1.0], [0.0, 1.0]))
    two = sweep(p, ("low[0]", "total"), ([0.0, 1.0], [2.0, 3.0]))
    assert [q.value for q in two] == pytest.approx([2.0, 3.0, 2.0, 3.0])


def test_functions_that_a_file_does_not_know_are_asked_again(tmp_path: Path) -> None:
    p, file = capped(), tmp_path / "b.json"
    sweep(p, "b", [0.0, 1.0], save=file)
    made = sweep(p, "b", [0.0, 1.0], save=file, functions={"x": lambda s: s["x"]})
    assert made.solves == 2 and [q.more["x"].sum() for q in made] == pytest.approx([0.0, 1.0])
    again = sweep(p, "b", [0.0, 1.0], save=file, functions={"x": lambda s: s["x"]})
    assert again.solves == 0 and [sum(q.more["x"]) for q in again] == pytest.approx([0.0, 1.0])
    with pytest.raises(of.DeclarationError, match="no file of points holds"):
        sweep(p, "b", [2.0], save=file, functions={"x": lambda s: 1j, "y": str})


def test_a_function_does_not_take_the_place_of_a_column() -> None:
    price = cp.Parameter(name="price", value=1.0)
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 2 * price]))
    frame = sweep(p, "price", [1.0, 2.0], functions={"value": lambda s: 7.0}).frame()
    assert frame["price 2"].tolist() == [1.0, 2.0] and frame["value 2"].tolist() == [7.0, 7.0]
    assert frame["price"].to_numpy() == pytest.approx([2.0, 2.0])
    assert frame["value"].to_numpy() == pytest.approx([2.0, 4.0])


def test_a_label_that_is_a_number_is_no_index() -> None:
    x = cp.Variable(3, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= [1, 2, 3]]), ["need"])
    sides = {name: sweep(p, name, [4.0])[0].value for name in ("need[0]", "need[2]")}
    assert sides == pytest.approx({"need[0]": 9.0, "need[2]": 7.0})
    labelled = p.with_labels(need=[2, 0, 1])
    assert "need[2]: 1 in" in repr(of.sensitivity(labelled.solve()))
    assert sweep(labelled, "need[2]", [4.0])[0].value == pytest.approx(9.0)


@pytest.mark.parametrize("by_the_solver", [False, True])
def test_ctrl_c_leaves_the_points_until_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by_the_solver: bool
) -> None:
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) >= b]))
    solve, calls = type(p).solve, []

    def third(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(self)
        if len(calls) == 3 and not by_the_solver:
            raise KeyboardInterrupt
        s = solve(self, *args, **options)
        if len(calls) == 3:  # solvers that are interrupted return what they have
            s = replace(s, status=replace(s.status, termination="interrupted"))
        return s

    monkeypatch.setattr(type(p), "solve", third)
    file = tmp_path / "sweep.json"
    some = sweep(p, "b", np.arange(6.0), save=file)
    assert len(calls) == 3 and len(some) == 2 + by_the_solver
    assert [point.status for point in some][:2] == ["optimal", "optimal"]
    # the rest is solved where it goes on, with what was interrupted
    assert len(sweep(p, "b", np.arange(6.0), save=file)) == 6 and len(calls) == 7
    # of those that are chosen; where there is none, there is nothing to return
    calls.clear()
    assert len(sweep(p, "b", (0.0, 4.0), width=1e-4)) == 2 + by_the_solver

    def at_once(self: Any, *args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(p), "solve", at_once)
    with pytest.raises(KeyboardInterrupt):
        sweep(p, "b", [1.0, 2.0])
