"""Small nonconvex programs: boxes cover every point, and each is bounded or empty."""

from __future__ import annotations

import itertools
import pickle
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.atoms.elementwise.trig import sin

import optfair as of
from optfair.backends import boxes
from optfair.backends.boxes import Program
from optfair.backends.registry import profile
from optfair.backends.request import Request
from optfair.convexity.intervals import Interval

x, y, z = (cp.Variable(name=k) for k in "xyz")
X, Y = np.meshgrid(np.linspace(-3, 3, 1201), np.linspace(-2, 2, 801))
PROGRAMS: dict[str, tuple[Any, list[Any], float]] = {
    # both branches of 1/z <= 1 are feasible: the optimum is -5, not 1
    "a denominator of two signs": (cp.Minimize(z), [1 / z <= 1, z >= -5, z <= 10], -5.0),
    "no upper bound": (cp.Minimize(z), [1 / z <= 1, z >= -5], -5.0),
    "maximised from the other side": (cp.Maximize(-z), [1 / z <= 1, z >= -5], 5.0),
    "bounds that a quotient implies": (cp.Maximize(z), [1 / z >= 1], 1.0),
    "steps in a row": (cp.Minimize(x), [cp.ceil(x) >= 2, x >= -3, x <= 8], 1.00005),
    "wave": (cp.Minimize(sin(3 * x) + x * x / 5), [x >= -5, x <= 5], -0.9475029522),
    "camel": (
        cp.Minimize(
            (4 - 2.1 * x * x + x * x * x * x / 3) * x * x + x * y + 4 * (y * y - 1) * y * y
        ),
        [x >= -3, x <= 3, y >= -2, y <= 2],
        -1.0316284535,
    ),
    "a logarithm that reaches 0": (
        cp.Minimize(-cp.log(x) - x * x + x * y / 2),
        [x >= 0, x <= 2, y >= 0, y <= 2],
        -4.0 - float(np.log(2.0)),
    ),
    "an entropy that reaches 0": (
        cp.Minimize(-cp.entr(x) - 2 * x * y),
        [x >= 0, x <= 2, y >= 0, y <= 2],
        2.0 * float(np.log(2.0)) - 8.0,
    ),
    "maximum": (
        cp.Maximize(x * sin(y)),
        [x >= 0, x <= 2, y >= -3, y <= 3, x + y <= 4],
        2.0,
    ),
}


SLOW = ("camel", "steps in a row")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in SLOW else []) for n in PROGRAMS],
)
def test_the_global_optimum_is_proved(name: str) -> None:
    goal, rows, truth = PROGRAMS[name]
    p = of.from_cvxpy(cp.Problem(goal, rows))
    assert not p.problem_class.convex
    s = p.solve(tolerance=1e-6)
    assert s.solver == "interval-boxes" and s.is_optimal(1e-6) and s.grade.word == "proved"
    assert s.objective == pytest.approx(truth, abs=2e-6)
    sign = 1.0 if p.sense == "minimize" else -1.0
    assert sign * s.bound <= sign * truth + 1e-9


def test_boxes_that_leave_something_out_prove_nothing() -> None:
    goal, rows, truth = PROGRAMS["wave"]
    s = of.from_cvxpy(cp.Problem(goal, rows)).solve(tolerance=1e-6)
    proof: Any = pickle.loads(pickle.dumps(s.proof))
    assert proof.check(s.values, {}).bound >= truth - 1e-5
    tree = proof.tree
    for wrong in (
        replace(tree, low=tree.low + 3.0),
        replace(tree, cuts=tree.cuts[:-1]),
        replace(tree, cuts=(np.array([-1], dtype=np.int8),)),
    ):
        bound = replace(proof, tree=wrong).check(s.values, {}).bound
        assert bound < truth - 1e-3, wrong
    assert not replace(s, values={"x": s.values["x"] + 1e-3}).is_optimal(1e-6)


def cut_short(monkeypatch: pytest.MonkeyPatch, sense: str = "minimize") -> Any:
    """A program whose gap is not closed by the boxes that are allowed."""
    monkeypatch.setattr("optfair.backends.boxes.BOXES", 300)
    goal, rows, _ = PROGRAMS["camel"]
    return of.from_cvxpy(
        cp.Problem(goal if sense == "minimize" else cp.Maximize(-goal.args[0]), rows)
    )


@pytest.mark.parametrize("sense", ["minimize", pytest.param("maximize", marks=pytest.mark.slow)])
def test_a_limit_returns_the_incumbent_with_what_the_boxes_left_prove(
    monkeypatch: pytest.MonkeyPatch, sense: str
) -> None:
    p = cut_short(monkeypatch, sense)
    s = p.solve("interval-boxes", time_limit=60.0)
    sign = 1.0 if sense == "minimize" else -1.0
    truth = PROGRAMS["camel"][2]
    assert s.status.termination == "solver_limit" and not s.is_optimal(1e-6)
    assert sign * s.bound < truth <= sign * s.objective + 1e-9 < truth + 1e-3
    assert s.grade.word == "proved" and np.isfinite(s.bound)
    assert not s.certificate.verify()  # it is no optimum, and says so
    again = s.proof.check(s.values, {})
    assert again.bound == s.bound


def test_a_budget_of_its_own_fails_with_the_incumbent_and_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(of.SolverFailure, match="limit of its own") as failure:
        cut_short(monkeypatch).solve("interval-boxes")
    best = failure.value.solution
    assert best is not None and best.bound < PROGRAMS["camel"][2] <= best.objective + 1e-9
    assert np.isfinite(best.bound)


def test_ctrl_c_returns_the_incumbent_with_its_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, judged = [], Program.judged

    def pressed(self: Program, boxes: Interval) -> Any:
        if boxes.shape[1] > 1 and (boxes.low < boxes.high).any():
            rounds.append(boxes.shape[1])
        if len(rounds) == 6:
            rounds.append(0)
            raise KeyboardInterrupt
        return judged(self, boxes)

    monkeypatch.setattr(Program, "judged", pressed)
    goal, rows, truth = PROGRAMS["camel"]
    s = of.from_cvxpy(cp.Problem(goal, rows)).solve("interval-boxes")
    assert s.status.termination == "interrupted"
    assert s.bound < truth <= s.objective + 1e-9 and np.isfinite(s.bound)


def test_constraints_that_nothing_meets() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [sin(x) + sin(x + 1.5) >= 1.5, x >= -5, x <= 5]))
    with pytest.raises(of.Infeasible) as e:
        p.solve()
    assert e.value.certificate.verify() and "boxes" in str(e.value)


def test_what_has_no_limit_is_not_proved() -> None:
    """x sin x swings below every number; of -x^3 a slope is known far out, and proves it."""
    with pytest.raises(of.SolverFailure, match="no limit"):
        of.from_cvxpy(cp.Problem(cp.Minimize(sin(x) * x), [x >= 0])).solve()
    with pytest.raises(of.Unbounded) as e:
        of.from_cvxpy(cp.Problem(cp.Minimize(-x * x * x), [x >= 0])).solve()
    assert e.value.certificate.verify()


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_product_beside_an_exponential_cone(unit: float) -> None:
    """Which solvers of quadratics do not take, nor those of cones."""
    rows = [z >= 1, z <= 2, x >= 0, cp.exp(x) <= 5]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(-unit * x * z), rows)).solve()
    assert s.objective == pytest.approx(-2.0 * unit * np.log(5.0)) and str(s.grade) == "proved"


@pytest.mark.parametrize("row", [x * cp.log(x) <= -0.36787944118, cp.sqrt(1 + x * x) <= 0.999])
@pytest.mark.parametrize("solver", [None, "tangents"])
def test_what_ranges_exclude_has_no_point(row: Any, solver: str | None) -> None:
    """By 1e-11 in the first: no bound is proved beside a point that tolerance lets through."""
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [row, x >= 0.01, x <= 1]))
    with pytest.raises(of.Infeasible) as e:
        p.solve(solver, time_limit=8)
    for told in (e.value.certificate, pickle.loads(pickle.dumps(e.value.certificate))):
        assert told.verify()
    if solver is None:
        return
    assert "exclude each other" in str(e.value)
    open_again = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x * cp.log(x) <= -0.3678, x >= 0.01]))
    assert not replace(e.value.certificate, problem=open_again).verify()


def test_a_pole_is_no_point() -> None:
    """1/z <= -1 holds on [-1, 0): 0 is the limit of its points, and none of them."""
    s = of.from_cvxpy(cp.Problem(cp.Maximize(z), [1 / z <= -1])).solve(tolerance=1e-6)
    assert -1e-6 <= s.values["z"] < 0.0 <= s.bound <= 1e-9


def test_ceil_is_what_cvxpy_evaluates() -> None:
    """It rounds to four decimals first, so that 1.00004 counts as 1."""
    points = np.array([-0.5, 0.3, 1.0, 1.00004, 1.00006, 2.0, 1e17])
    x.value = None
    values = [cp.ceil(cp.Constant(v)).value for v in points]
    found = Interval.exactly(points).call("ceil")
    assert (found.low == values).all() and (found.high == values).all()
    wide = Interval.of([-np.inf, 0.3], [0.3, np.inf]).call("ceil")
    assert wide.low.tolist() == [-np.inf, 1.0] and wide.high.tolist() == [1.0, np.inf]


def test_ends_far_out_are_cut_where_floats_reach() -> None:
    ends = Interval.of([0.0, -np.inf, -np.inf, 1e300, 2.0], [np.inf, np.inf, -3.0, np.inf, 5.0])
    middle = ends.middle()
    assert np.isfinite(middle).all() and ends.contains(middle)
    assert middle[1] == 0.0 and middle[4] == 3.5


@pytest.mark.parametrize("atom", [cp.length, lambda x: cp.dist_ratio(x, np.zeros(2), np.ones(2))])
def test_a_function_of_which_no_range_is_known_is_refused_at_once(atom: Any) -> None:
    x = cp.Variable(2, name="x")
    with pytest.raises(of.UnsupportedProblem, match="ranges are known") as e:
        of.solve(cp.Problem(cp.Maximize(atom(x)), [x >= 0.1, x <= 0.9]))
    assert "(x" in e.value.evidence
    with pytest.raises(of.Infeasible) as none:  # whatever its range is
        of.solve(cp.Problem(cp.Minimize(atom(x)), [x == -1, cp.ceil(x) >= 1]))
    assert none.value.certificate is not None and none.value.certificate.verify()


def test_a_time_limit_is_for_the_search_and_the_proof_of_what_it_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A box takes 1 ms of this clock, whoever looks at it."""
    request = Request(time_limit=0.5)
    clock, own = [request.started], Program._judged

    def slow(program: Program, part: Interval) -> Any:
        clock[0] += 1e-3 * part.shape[1]
        return own(program, part)

    monkeypatch.setattr(Program, "_judged", slow)
    monkeypatch.setattr(boxes, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    goal = cp.Minimize(cp.square(x * y - 1) - sin(3 * x) * y)
    p = of.from_cvxpy(cp.Problem(goal, [x >= -5, x <= 5, y >= -5, y <= 5]))
    outcome = boxes.run(p, profile("interval-boxes"), request)
    assert outcome.termination == "time_limit" and len(outcome.proof.tree) > 50
    outcome.proof.check(outcome.values, {})
    assert clock[0] < request.deadline


UNITS = [1e-3, 1.0, 1e3]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("above", [20.0, None])
def test_a_least_step_of_several_is_bounded_by_natural_ranges(
    unit: float, above: float | None
) -> None:
    w = cp.Variable(2, nonneg=True, name="w")
    rows = [w[0] >= 11.9 * unit, w[0] <= 15.8 * unit, w[1] >= 17.4 * unit]
    rows += [] if above is None else [w[1] <= above * unit]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(cp.min(cp.ceil(w / unit))), rows)).solve()
    assert s.objective == s.bound == 16.0 and s.grade.word == "proved"


def test_products_under_a_minimum_are_bounded() -> None:
    w = cp.Variable(2, nonneg=True, name="w")
    least = cp.min(cp.hstack([w[0] * w[1], 3 - w[0]]))
    s = of.from_cvxpy(cp.Problem(cp.Maximize(least), [w <= 2])).solve()
    assert s.grade.word == "proved" and s.objective == pytest.approx(2.0, rel=1e-7)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("most", "best"), [(2.0, 1.0), (0.0, -1.0), (-2.0, -1.0)])
def test_signs_have_ranges(most: float, best: float, unit: float) -> None:
    x, y = cp.Variable(name="x"), cp.Variable(nonneg=True, name="y")
    goal = 3.0 + unit * cp.sign((x - y) / unit)
    s = of.from_cvxpy(cp.Problem(cp.Maximize(goal), [x <= most * unit])).solve()
    assert s.grade.word == "proved" and s.objective == pytest.approx(3.0 + best * unit, rel=1e-12)


def test_the_sign_of_what_is_not_read_is_refused() -> None:
    X = cp.Variable((2, 2), symmetric=True, name="X")
    goal = cp.Maximize(cp.sign(cp.lambda_min(X)))
    with pytest.raises(of.UnsupportedProblem):
        of.from_cvxpy(cp.Problem(goal, [cp.trace(X) <= 1])).solve("interval-boxes")


def read_program(goal: Any, rows: list[Any]) -> Program:
    return Program.of(of.from_cvxpy(cp.Problem(goal, rows)))


def test_a_box_that_a_row_touches_is_not_left_out() -> None:
    """At x = 0 of [0, 1] the row x <= 0 holds, and x y^2 = 0 at an edge of three boxes."""
    rows = [x <= 0, x >= -1, x * y * y == 0, y >= -1, y <= 1]
    own = read_program(cp.Minimize(x * y), rows)
    low = np.array([[0.0, -1.0, -1.0, -1.0, 0.5], [0.0, 0.5, 0.5, 0.0, 0.0]])
    high = np.array([[1.0, 0.0, -0.5, -0.5, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    assert own.least(Interval.of(low, high)).tolist() == [0.0, -1.0, np.inf, -1.0, np.inf]


def test_what_functions_ask_for_is_a_row_of_the_program() -> None:
    """Of log(x), x >= 0 and of the root, y <= 1: in the objective as in rows."""
    rows = [cp.sqrt(1 - y) * x >= -5, y >= -1, x <= 3]
    own = read_program(cp.Minimize(cp.log(x) * y), rows)
    points = {(-1.0, 0.0): 1.0, (-1.0, 3.0): 2.0, (2.0, 3.0): 2.0, (-4.0, 2.0): 4.0}
    assert {at: own.outside(np.array(at)) for at in points} == points
    assert own.outside(np.array([2.0, 0.5])) <= 0.0
    v = cp.Variable(2, name="v")
    of_entries = read_program(cp.Minimize(cp.sum(cp.log(v))), [v <= 3])
    assert of_entries.outside(np.array([-1.0, 3.0])) == 1.0
    assert of_entries.outside(np.array([2.0, -2.0])) == 2.0


def test_a_tree_that_is_not_of_the_program_bounds_nothing() -> None:
    own = read_program(cp.Minimize(x * y), [x >= -1, x <= 2, y >= 0, y <= 1])
    keep, half = np.array([-1], dtype=np.int8), np.array([0], dtype=np.int8)
    whole = boxes.Boxes(own.entries, own.low, own.high, (keep,))
    assert own.closed(whole) == -1.0
    both = np.array([-1, -1], dtype=np.int8)
    assert own.closed(replace(whole, cuts=(half, both))) == -1.0
    wrong = (
        {"entries": own.entries[:1], "low": own.low[:1], "high": own.high[:1]},
        {"low": own.low + np.array([0.0, 0.5])},
        {"high": own.high - np.array([0.0, 0.5])},
        {"cuts": (half,)},
        {"cuts": (half, keep)},
    )
    for part in wrong:
        assert own.closed(replace(whole, **part)) == -np.inf, part


@pytest.mark.parametrize("local", [True, False])
def test_a_start_that_rows_exclude_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    """The middle of [0, 3] has a lesser objective than any point with x (y - 1) >= 2."""
    if not local:
        monkeypatch.setattr(boxes, "local_optimum", lambda *_: None)
    rows = [x * y - x >= 2, x >= 0, x <= 3, y >= 0, y <= 2]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), rows))
    begun = time.perf_counter()
    outcome = boxes.run(p, profile("interval-boxes"), Request(tolerance=1e-2))
    assert 0.0 <= outcome.seconds["solve"] <= time.perf_counter() - begun
    assert 1.99 <= float(outcome.values["x"]) <= 2.05
    assert 1.95 <= outcome.proof.check(outcome.values, {}).bound <= 2.0


def test_quasiconvex_programs_are_bounded_over_boxes_with_ends_alone() -> None:
    """Without ends they are for levels, which need none."""

    def steps(rows: list[Any]) -> Any:
        p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.ceil(x)), [x >= 0.5, *rows]))
        assert p.problem_class.curvature == "quasiconvex"
        return p

    p = steps([x <= 3])
    outcome = boxes.run(p, profile("interval-boxes"), Request(tolerance=1e-2))
    assert p.objective_at(outcome.values) == pytest.approx(1.0, abs=2e-2)
    assert 0.98 <= outcome.proof.check(outcome.values, {}).bound <= 1.0
    with pytest.raises(of.UnsupportedProblem, match="without ends"):
        boxes.run(steps([]), profile("interval-boxes"), Request())


def enumerated(goal: Any, rows: list[Any], whole: Any, ends: tuple[int, int]) -> float:
    """Return the most of an objective over integers, by trying all."""
    best = -np.inf
    for point in itertools.product(range(ends[0], ends[1] + 1), repeat=whole.size):
        whole.value = np.reshape(np.array(point, dtype=float), whole.shape)
        if all(np.max(row.violation()) <= 1e-9 for row in rows):
            best = max(best, float(goal.value))
    return best


Z, AWAY = cp.Variable(3, integer=True, name="z"), np.array([0.5, -1.0, 2.0])
SIDE = np.array([1.0, -2.0, 0.3])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(
    ("goal", "rows"),
    [
        (cp.norm1(Z - AWAY) + SIDE @ Z, []),
        (cp.norm1(Z - AWAY) + SIDE @ Z, [cp.sum(Z) == 1]),
        (cp.abs(Z[0] - 0.5) + cp.max(Z), [Z[0] + 2 * Z[2] <= 1]),
        (cp.norm(Z - AWAY) + SIDE @ Z, [Z[1] >= Z[2]]),
        (-cp.abs(Z[0] * Z[1] - 7) - cp.abs(Z[2]), []),
        (cp.exp(Z[0] / 3) - Z[1] * Z[2], [cp.norm(Z) <= 3]),
    ],
    ids=str,
)
def test_integers_beside_kinks_and_products(goal: Any, rows: list[Any], unit: float) -> None:
    p = of.from_cvxpy(cp.Problem(cp.Maximize(unit * goal), [*rows, Z >= -2, Z <= 3]))
    best = unit * enumerated(goal, rows, Z, (-2, 3))
    s = p.solve()
    assert s.grade.word == "proved" and s.solver == "interval-boxes"
    assert s.objective == pytest.approx(best, rel=1e-7, abs=1e-7 * unit)
    assert (s["z"] == np.round(s["z"])).all()
    # what lies between integers is covered only where they are integers
    tree = s.proof.tree
    assert tree.whole == (0, 1, 2) and np.isfinite(Program.of(p).closed(tree))
    assert replace(Program.of(p), whole=()).closed(tree) == -np.inf


def test_integers_beside_other_variables() -> None:
    n, t = cp.Variable(integer=True, name="n"), cp.Variable(name="t")
    rows = [n >= 0, n <= 4, t >= -3, t <= 3]
    goal = cp.abs(t * t - n) + n * t
    s = of.from_cvxpy(cp.Problem(cp.Maximize(goal), rows)).solve()
    ts = np.linspace(-3.0, 3.0, 6001)
    best = max(float(np.max(np.abs(ts * ts - k) + k * ts)) for k in range(5))
    assert s.grade.word == "proved" and s.objective == pytest.approx(best, abs=1e-5)
    assert float(s["n"]) in range(5)


def test_integers_without_ends_and_between_which_none_is() -> None:
    n = cp.Variable(integer=True, name="n")
    goal = cp.Maximize(cp.abs(n - 0.3) - n)
    with pytest.raises(of.UnsupportedProblem, match="bounds"):
        boxes.run(of.from_cvxpy(cp.Problem(goal, [n >= 0])), profile("interval-boxes"), Request())
    with pytest.raises(of.Infeasible) as e:
        p = of.from_cvxpy(cp.Problem(goal, [n >= 0.2, n <= 0.8]))
        boxes.run(p, profile("interval-boxes"), Request())
    assert e.value.certificate is not None and e.value.certificate.verify()


a, b = cp.Variable(2, name="a"), cp.Variable(2, integer=True, name="b")
QUADRATICS: dict[str, tuple[Any, list[Any], float]] = {
    "a product without ends": (cp.Minimize(x * y), [x >= 0, y >= 0], 0.0),
    "one point": (cp.Minimize(a[1] ** 2 - a[0] ** 2), [a == [1.0, 2.0]], 3.0),
    "a corner": (cp.Maximize(a[0] * a[1] + cp.sum_squares(a)), [a >= -1, a <= 2], 12.0),
    "integers": (cp.Maximize(b[0] * b[1]), [b >= -3, b <= 4, cp.sum(b) <= 3.5], 9.0),
    "a row": (cp.Maximize(x), [x * y <= 1, y >= 0.5, y <= 3, x >= -1, x <= 5], 2.0),
}


@pytest.mark.parametrize("name", QUADRATICS)
def test_what_a_solver_reports_of_a_small_nonconvex_program_is_proved_on_request(name: str) -> None:
    goal, rows, truth = QUADRATICS[name]
    s = of.from_cvxpy(cp.Problem(goal, rows)).solve()
    assert s.grade.word == "reported"
    proved = s.certificate.prove(time_limit=20.0)
    assert proved.solution.grade.word == "proved" and proved.verify()
    assert proved.solution.objective == pytest.approx(truth, abs=1e-6)


def test_a_cover_that_is_not_closed_and_many_variables_prove_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = cp.Variable(8, name="many")
    rows = [many >= -3, many <= 4]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum_squares(many)), rows)).solve()
    with pytest.raises(of.UnsupportedProblem, match="of 8 scalars"):
        s.certificate.prove()
    goal = cp.Minimize(x * x - 0.6 * x - y * y)
    s = of.from_cvxpy(cp.Problem(goal, [x >= -1, x <= 1, y >= -1, y <= 1])).solve()
    monkeypatch.setattr(boxes, "ROUNDS", 4)
    with pytest.raises(of.SolverFailure, match="boxes are left") as failure:
        s.certificate.prove()
    assert failure.value.solution is s


@pytest.mark.parametrize("whole", [False, True])
def test_what_branch_and_bound_excludes_without_a_certificate_is_covered_by_boxes(
    whole: bool,
) -> None:
    z = cp.Variable(2, name="z", integer=whole)
    far = [cp.square(z[0] - z[1]) + 3 - z[0] * z[1] <= 0, z >= -1, z <= 1.5]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(z[0]), far))
    assert "QCQP" in p.problem_class.name
    with pytest.raises(of.Infeasible) as known:
        p.solve()
    assert isinstance(known.value.certificate, boxes.NoPoint)
    assert known.value.certificate.verify()
    with pytest.raises(of.SolverFailure, match="not proved here"):
        p.solve("scip")
    near = of.from_cvxpy(cp.Problem(cp.Minimize(z[0]), [z[0] * z[1] >= 1, *far[1:]]))
    assert boxes.excluded_by_boxes(near, 1.0) is None
    longer = p.with_variables(y=cp.Variable(6)).with_constraints(own=p["z"][0] <= 1)
    assert boxes.excluded_by_boxes(longer, 1.0) is None


def test_huber_functions_have_ranges_in_objectives_and_rows() -> None:
    def huber(t: Any, limit: float) -> Any:
        size = np.abs(t)
        return np.where(size <= limit, size**2, limit * (2.0 * size - limit))

    u, v = cp.Variable(name="u"), cp.Variable(name="v")
    goal = cp.exp(-cp.huber(0.3 - u, 0.5)) * cp.huber(cp.huber(v, 2.0) - u * v)
    rows = [u >= -1, u <= 2, v >= -3, v <= 3, cp.huber(u * v) >= 1.5]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(goal), rows)).solve()
    a, b = np.meshgrid(np.linspace(-1, 2, 601), np.linspace(-3, 3, 1201))
    value = np.exp(-huber(0.3 - a, 0.5)) * huber(huber(b, 2.0) - a * b, 1.0)
    best = value[huber(a * b, 1.0) >= 1.5].max()
    assert s.grade.word == "proved" and s.status.termination == "optimal"
    assert best <= s.bound <= best * (1 + 1e-2)
    assert huber(s["u"] * s["v"], 1.0) >= 1.5 - 1e-6
    none = of.from_cvxpy(cp.Problem(cp.Minimize(u), [*rows[:-1], cp.huber(u * v) >= 11.1]))
    with pytest.raises(of.Infeasible) as proved:
        none.solve()
    assert proved.value.certificate.verify()


def test_integers_at_the_edge_of_a_domain() -> None:
    """Entropy is 0 at 0, which is a value; one over the logarithm of 0 is none."""
    n = cp.Variable(name="n", integer=True)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(n), [cp.entr(n) <= 0, n >= 0, n <= 3])).solve()
    assert (s.grade.word, s.objective, s.status.termination) == ("proved", 0.0, "optimal")
    pole = cp.maximum(n, 0) / cp.log1p(n) <= 0.5
    p = of.from_cvxpy(cp.Problem(cp.Minimize(n), [pole, n >= -1, n <= 4]))
    with pytest.raises(of.SolverFailure, match=r"(?s)no feasible point.*2 are left after 7"):
        p.solve(solver="interval-boxes")


@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1.0, 1e6])
def test_gaps_are_measured_by_the_range_of_the_objective_where_it_is_small(unit: float) -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    goal = cp.Maximize(unit * cp.huber(cp.maximum(y, y)))
    s = of.from_cvxpy(cp.Problem(goal, [x >= 0, x <= 1, y >= 0, y <= 1])).solve("interval-boxes")
    assert s.grade.word == "proved" and s.certificate.verify()
    assert s.objective == pytest.approx(unit, rel=1e-7) and s.bound >= unit
    assert s.residuals().size == pytest.approx(unit, rel=1e-6)


def test_coordinates_that_only_have_bounds_are_not_halved() -> None:
    x, n = cp.Variable(4, name="x"), cp.Variable(name="n", integer=True)
    rows = [x >= [0, 0, 0, -1], x <= [9, 1, 1e9, 1], n >= 2, n <= 5, x[0] + x[3] <= 9.5]
    goal = cp.Maximize(cp.huber(cp.maximum(x[1], x[1])) + x[3] ** 2 * x[1])
    p = of.from_cvxpy(cp.Problem(goal, rows))
    program = Program.of(p)
    ends = np.array([program.low, program.high])
    for most, needed in (
        (9.0, (0, 1, 3)),
        (8.0, (1, 3)),
    ):  # where the last row holds whatever x[0] is
        ends[1][program.entries.index((program.entries[0][0], 0))] = most
        floors, own = program.judged(Interval(ends[0][:, None], ends[1][:, None]))
        assert {program.entries[k] for k in np.flatnonzero(own[:, 0])} == {
            (leaf, j) for leaf, j in program.entries if leaf.name == "x" and j in needed
        }
        assert floors[0] <= -2.0
    s = p.solve("interval-boxes")
    assert s.objective == pytest.approx(2.0, rel=1e-7) and s.grade.word == "proved"
    assert s["n"] in (2.0, 3.0, 4.0, 5.0)
    # one without an end keeps a value
    free = cp.Variable(name="free")
    p = of.from_cvxpy(
        cp.Problem(cp.Maximize(cp.huber(cp.maximum(x[1], x[1]))), [x >= 0, x <= 1, free >= 3])
    )
    s = p.solve("interval-boxes")
    assert s.objective == pytest.approx(1.0, rel=1e-7) and s["free"] >= 3.0
