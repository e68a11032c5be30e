"""Rows generated as they are needed: the same optimum, and a certificate for all of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import cone_program
from optfair.backends import lazy_rows as generation
from optfair.backends.lazy_rows import Relaxation
from optfair.compile.form import compile_problem
from optfair.core.composition import rows_term
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import LAZY_ROWS, LP, Evidence, ProblemClass
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.features.feature_problem import box, immutable, monotone
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.bi_lipschitz import BiLipschitzCounterfactuals, GramBound
from optfair.methods.group_counterfactuals.members import LipschitzCounterfactuals

RNG = np.random.default_rng(3)
X = RNG.normal(size=(30, 4))
V = RNG.normal(size=4)
TARGET = {"score": (V, 0.0), "threshold": 1.5 * float(np.linalg.norm(V))}


class LowestRoof(Problem):
    """The lowest point of the roof max_i (a_i x + b_i): without its rows it is unbounded."""

    structures: ClassVar = (LAZY_ROWS,)

    def __init__(self, a, b):
        super().__init__({"a": np.asarray(a), "b": np.asarray(b)})

    def declare(self):
        a, b = self.data["a"], self.data["b"]
        x, t = cp.Variable(a.shape[1], name="x"), cp.Variable(name="t")
        roof = ConstraintTerm(
            "roof",
            frozenset({"x", "t"}),
            Evidence("roof", "affine", "Nonpositive", LP),
            build=lambda: a @ x + b <= t,
            violation=lambda v: np.maximum(a @ v["x"] + b - v["t"], 0.0),
            shape=(b.size,),
            rows=lambda index: a[index] @ x + b[index] <= t,
        )
        height = ObjectiveTerm(
            "height",
            frozenset({"t"}),
            Evidence("height", "affine", "minimize", LP),
            build=lambda: t,
            value=lambda v: float(v["t"]),
        )
        return Declaration({"x": x, "t": t}, objective=(height,), constraints=(roof,))


class SmallestBall(Problem):
    """The smallest ball around points, a cone of two parts for each."""

    def __init__(self, points):
        super().__init__({"points": np.asarray(points)})

    def declare(self):
        points = self.data["points"]
        n, d = points.shape
        center, radius = cp.Variable(d, name="center"), cp.Variable(name="radius")

        def rows(index):
            apart = points[index] - cp.reshape(center, (1, d), order="C")
            return cp.SOC(radius * np.ones(index.size), apart, axis=1)

        inside = ConstraintTerm(
            "inside",
            frozenset({"center", "radius"}),
            Evidence("inside", "affine", "SecondOrder", ProblemClass(cones=frozenset({"soc"}))),
            build=lambda: rows(np.arange(n)),
            violation=lambda v: np.maximum(
                np.linalg.norm(points - v["center"], axis=1) - v["radius"], 0.0
            ),
            shape=(n * (d + 1),),
            rows=rows,
        )
        size = ObjectiveTerm(
            "size",
            frozenset({"radius"}),
            Evidence("size", "affine", "minimize", LP),
            build=lambda: radius,
            value=lambda v: float(v["radius"]),
        )
        return Declaration(
            {"center": center, "radius": radius}, objective=(size,), constraints=(inside,)
        )


def expanding(**further) -> LipschitzCounterfactuals:
    """A group whose cheapest counterfactuals stretch some pairs: its costs are unequal."""
    return LipschitzCounterfactuals(
        X, K=1.02, score=(V, 0.0), threshold=0.0, feature_costs=[0.2, 1.0, 2.0, 5.0], **further
    )


CASES = {
    "lipschitz, unequal costs": expanding,
    "lipschitz, contracting": lambda: LipschitzCounterfactuals(X, K=0.9, **TARGET),
    "lipschitz, monotone": lambda: LipschitzCounterfactuals(X, K=1.0, **TARGET).with_constraints(
        m=monotone(increasing=[0], decreasing=[1]), i=immutable(2)
    ),
    "psd map": lambda: PSDMap(X, K=1.2, k=1.5, **TARGET),
    "psd map in a box": lambda: PSDMap(X, K=2.0, k=2.0, **TARGET).with_constraints(
        b=box({0: (-4.0, 4.0)})
    ),
    "gram bound": lambda: GramBound(
        BiLipschitzCounterfactuals(X[:10], K=1.2, k=1.2, feature_costs=[1, 2, 1, 1], **TARGET)
    ),
    "ball": lambda: SmallestBall(np.random.default_rng(0).normal(size=(300, 3))),
    "roof": lambda: LowestRoof(
        np.vstack([np.eye(3), -np.eye(3), RNG.normal(size=(300, 3))]), RNG.normal(size=306)
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_optimum_as_with_all_rows(case):
    p = CASES[case]()
    s, whole = p.solve(), p.solve(solver="clarabel")
    assert s.solver == "lazy-rows"
    assert s.objective == pytest.approx(whole.objective, rel=1e-7)
    assert s.is_optimal(1e-8) and s.certificate.verify()
    assert s.residuals().feasibility <= 1e-8
    for name in p.constraints:
        assert np.shape(s.multipliers[name]) == np.shape(whole.multipliers[name]), name


@pytest.mark.parametrize("case", ["ball", "roof", "lipschitz, monotone", "psd map"])
def test_multipliers_stand_where_the_plain_form_has_them(case):
    p = CASES[case]()
    s, whole = p.solve(), p.solve(solver="clarabel", tolerance=1e-8)
    for name in p.constraints:
        assert np.allclose(s.multipliers[name], whole.multipliers[name], atol=1e-4), name


@pytest.mark.parametrize("case", CASES)
def test_a_changed_entry_does_not_verify(case):
    s = CASES[case]().solve()
    assert s.certificate.verify()
    rng = np.random.default_rng(0)
    for name, value in s.values.items():
        moved = np.array(value, dtype=float)
        if name in ("matrix", "gram"):
            moved[0, 0] += 1e-4
        else:
            moved.flat[rng.integers(moved.size)] += 1e-4
        assert not replace(s, values={**s.values, name: moved}).certificate.verify(), name
    for name in s.multipliers:
        y = np.array(s.multipliers[name], dtype=float)
        y.flat[rng.integers(y.size)] += 1e-4
        tampered = replace(s, multipliers={**dict(s.multipliers), name: y})
        assert not tampered.certificate.verify(), name
    assert not replace(s, bound=s.bound + 1e-4).certificate.verify()


def test_a_row_that_was_never_generated_is_checked_all_the_same():
    """The values satisfy the rows at hand; one of the others is broken: no certificate."""
    a = np.vstack([np.eye(2), -np.eye(2), RNG.normal(size=(200, 2))])
    p = LowestRoof(a, np.r_[np.zeros(4), np.full(200, -50.0)])
    s = p.solve()
    untouched = np.flatnonzero(np.asarray(s.multipliers["roof"]) == 0.0)[-1]
    b = np.array(p.data["b"])
    b[untouched] = 1.0
    stricter = LowestRoof(a, b)
    moved = replace(s, problem=stricter, proof=replace(s.proof, problem=stricter))
    assert "'roof' is violated" in str(moved.certificate.verify())


def test_cones_most_of_which_are_violated_at_first_are_not_all_taken():
    """Unequal costs stretch nearly every pair at first, and few of them are active in the end."""
    rng = np.random.default_rng(0)
    w, mixed = rng.normal(size=10), rng.normal(size=(10, 10)) / np.sqrt(10)
    X = rng.normal(size=(100, 10)) @ mixed - w / np.linalg.norm(w)
    p = LipschitzCounterfactuals(
        X, score=(w, 0.0), probability=0.8, K=1.01, feature_costs=np.geomspace(0.1, 10.0, 10)
    )
    s = p.solve()
    assert s.is_optimal(1e-8)
    assert max(r.rows for r in s.progress) < 0.2 * p.pairs.count
    off = p.constraints["stretching"].violation({"counterfactuals": p.projected()})
    assert np.count_nonzero(off > 1e-9) > 0.5 * p.pairs.count


def test_few_rows_of_many_are_used():
    n = 20_000
    points = np.random.default_rng(0).normal(size=(n, 4))
    p = PSDMap(points, K=1.5, k=1.5, **TARGET)
    s = p.solve()
    assert s.is_optimal(1e-8)
    assert max(r.rows for r in s.progress) < 1_000
    y = np.asarray(s.multipliers["classification"])
    assert y.shape == (n,) and 0 < np.count_nonzero(y) < 1_000


@pytest.mark.slow
def test_two_thousand_rows_agree_with_the_plain_form():
    points = np.random.default_rng(0).normal(size=(2_000, 10))
    v = np.random.default_rng(1).normal(size=10)
    p = PSDMap(points, K=2.0, k=2.0, score=(v, 0.0), threshold=1.0)
    assert p.solve().objective == pytest.approx(p.solve(solver="clarabel").objective, rel=1e-7)


def test_multipliers_are_those_of_the_plain_form():
    """Shadow prices say how the optimum moves with the distance of a pair."""
    p = expanding()
    s = p.solve()
    y = np.asarray(s.multipliers["stretching"])
    assert y.shape == (p.pairs.count,) and y.min() >= -1e-9
    pair = int(np.argmax(y))
    step = 1e-4
    distances = p.pairs.distances.copy()

    def moved(by: float) -> float:
        i, j = p.pairs.ends(np.array([pair]))
        Z = p["counterfactuals"]
        rest = np.setdiff1d(np.arange(p.pairs.count), [pair])
        q = p.without("stretching").with_constraints(
            rest=cp.norm(p.pairs.differences(rest) @ Z, 2, axis=1) <= 1.02 * distances[rest],
            pair=cp.norm(Z[int(i[0])] - Z[int(j[0])]) <= 1.02 * distances[pair] + by,
        )
        return float(q.solve().objective)

    slope = (moved(step) - moved(-step)) / (2 * step)
    assert s.shadow_price["stretching"][pair] == pytest.approx(slope, rel=1e-2)


def test_a_warm_start_brings_its_active_rows():
    p = expanding()
    cold = p.solve()
    warm = p.solve(warm_start=cold)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
    assert len(warm.progress) < len(cold.progress)
    assert warm.options["warm_start"] == "used"


def test_conflicting_rows_are_named_with_a_certificate():
    p = LipschitzCounterfactuals(X, K=1.0, **TARGET).with_constraints(
        low=box(dict.fromkeys(range(4), (-0.1, 0.1)))
    )
    with pytest.raises(of.Infeasible) as found:
        p.solve(solver="lazy-rows")
    assert found.value.certificate.verify()
    assert "classification" in found.value.conflict
    assert any(name.startswith("low") for name in found.value.conflict)


def test_a_problem_of_short_terms_has_not_the_structure():
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [x >= 1]))
    with pytest.raises(of.UnsupportedProblem, match="row by row"):
        p.solve(solver="lazy-rows")
    assert p.solve().solver == "clarabel"
    with pytest.raises(of.UnsupportedProblem, match="integer"):
        expanding().with_integrality("counterfactuals").solve(solver="lazy-rows")


def interrupted_after(rounds, monkeypatch, what):
    count = 0
    original = Relaxation.solve

    def solve(self, tolerance, time_limit):
        nonlocal count
        count += 1
        if count > rounds:
            what()
        return original(self, tolerance, time_limit)

    monkeypatch.setattr(Relaxation, "solve", solve)


def stop():
    raise KeyboardInterrupt


def test_ctrl_c_returns_a_feasible_point_with_its_gap(monkeypatch):
    p = expanding()
    best = p.solve().objective
    interrupted_after(2, monkeypatch, stop)
    s = p.solve()
    assert s.status.termination == "interrupted"
    assert s.residuals().feasibility <= 1e-8
    assert s.bound <= best * (1 + 1e-7) <= s.objective * (1 + 2e-7)
    assert s.gap > 1e-4 and not s.is_optimal(1e-7)


def test_stopped_before_the_first_point_the_known_one_is_returned(monkeypatch):
    p = expanding()
    interrupted_after(0, monkeypatch, stop)
    s = p.solve()
    assert s.status.termination == "interrupted" and s.bound == -np.inf
    assert s.objective == p.objective_value(p.feasible_point())


def test_the_time_limit_returns_a_feasible_point_with_its_gap(monkeypatch, later):
    p = expanding()
    interrupted_after(1, monkeypatch, lambda: later(2000.0))
    s = p.solve(time_limit=1000.0)
    assert s.status.termination == "time_limit"
    assert s.residuals().feasibility <= 1e-8 and s.gap > 1e-4


def test_a_point_of_the_rows_at_hand_is_never_passed_off_as_feasible(monkeypatch):
    """Where the model's feasible point is excluded there is nothing to repair with."""
    p = expanding().with_constraints(low=box({3: (-3.0, 3.0)}), i=immutable(0))
    interrupted_after(2, monkeypatch, stop)
    with pytest.raises(KeyboardInterrupt, match="violated"):
        p.solve()


def test_rounds_end_although_rows_are_taken_out(monkeypatch):
    """Without the rule that the bound must rise, and with a round for a row, it still ends."""
    monkeypatch.setattr(generation, "FEW", 1)
    monkeypatch.setattr(generation, "SHARE", 0.0)
    monkeypatch.setattr(generation, "GROWTH", 0.0)
    p = LipschitzCounterfactuals(X[:8], K=1.0, **TARGET).with_constraints(i=immutable(2))
    s = p.solve()
    assert s.status.termination in ("optimal", "stalled")
    assert s.objective == pytest.approx(p.solve(solver="clarabel").objective, rel=1e-6)


def test_verbose_writes_to_the_error_stream_only(capsys):
    expanding().solve(verbose=2)
    caught = capsys.readouterr()
    assert caught.out == "" and "rows" in caught.err


def test_a_row_that_is_left_out_counts_in_its_own_unit():
    """Of 1e-8 x <= 1e-8 a step of 9 shows as 9e-8, as good as nothing beside 1e7."""
    unit = np.array([1e6, 1e-8])
    x = cp.Variable(name="x")
    base = of.from_cvxpy(cp.Problem(cp.Minimize(-x), [x <= 10, x >= -10]))
    x = base["x"]
    side = unit * np.array([10.0, 1.0])
    many = rows_term("many", lambda i: unit[i] * x <= side[i], 2, scale=side)
    p = base.with_terms(base.objective, {**base.constraints, "many": many})
    s = p.solve("lazy-rows")
    assert s.objective == pytest.approx(-1.0, rel=1e-6) and s.is_optimal(1e-6)
    # a point that was stopped before: the row is not at hand, and is seen
    relaxation = Relaxation(p)
    relaxation.add("many", np.array([0]))
    point = relaxation.solve(1e-10, 10.0)
    proof = generation.LazyRowsProof(p, point, point.values, relaxation.counts)
    assert proof.check(point.values, proof.multipliers()).rows == pytest.approx(9.0, rel=1e-4)


def test_an_incumbent_is_the_last_feasible_point_on_the_way(monkeypatch):
    problem = SimpleNamespace(feasible_point=lambda: {"x": np.array([-1.0, 0.0])})
    monkeypatch.setattr(generation, "_violation", lambda _, v: max(0.0, float(v["x"][0]) - 0.25))
    values = generation.repaired(problem, {"x": np.array([1.0, 8.0])})
    assert values is not None and values["x"] == pytest.approx([0.25, 5.0], rel=1e-8)
    assert generation._violation(problem, values) <= generation.FEASIBLE
    whole = generation.repaired(problem, {"x": np.array([0.2, 8.0])})
    assert whole is not None and whole["x"] == pytest.approx([0.2, 8.0], rel=1e-9)
    begun = generation.repaired(problem)
    assert begun is not None and begun["x"].tolist() == [-1.0, 0.0]
    monkeypatch.setattr(generation, "_violation", lambda *_: 1.0)
    assert generation.repaired(problem) is None
    assert generation.repaired(SimpleNamespace()) is None


def test_a_claim_stands_where_other_units_say_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(x)), [1e-5 * x[0] >= 1e5, x[0] <= 1e5]))
    form = compile_problem(p, "CLARABEL").form
    first = cone_program.solve_form(form, 1.0, tolerance=1e-8, time_limit=np.inf)
    assert first.status == "infeasible"
    by, asked = cone_program.solve_cone_program, []

    def solve(*given: Any, **options: Any) -> Any:
        asked.append(given)
        raw = by(*given, **options)
        return (
            raw if len(asked) == 1 else replace(raw, status="failed", z=np.full(raw.z.size, np.nan))
        )

    monkeypatch.setattr(cone_program, "solve_cone_program", solve)
    again = cone_program.solve_form(form, 1.0, tolerance=1e-8, time_limit=np.inf)
    assert len(asked) == 3 and again.status == "infeasible"
    np.testing.assert_array_equal(again.z, first.z)
