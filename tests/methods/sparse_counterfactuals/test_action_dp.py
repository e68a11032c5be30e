"""The dynamic program over the budget: exact, proved, honest when it is stopped."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.backends.request import Request
from optfair.methods.sparse_counterfactuals import adapters as action_dp
from optfair.methods.sparse_counterfactuals import algorithms as labels
from optfair.methods.sparse_counterfactuals import algorithms as nearby
from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan, MinimumEdits
from optfair.methods.sparse_counterfactuals.adapters import row_table
from optfair.methods.sparse_counterfactuals.algorithms import (
    closest,
    merge_width,
    search_labels,
    window_bound,
)
from optfair.methods.sparse_counterfactuals.choice_problem import row_budget
from optfair.methods.sparse_counterfactuals.choices import reach


def group(n: int, d: int, seed: int = 0, digits: int | None = None) -> tuple[Any, Any, Any]:
    """(score, factuals, counterfactuals): a logistic score, rejected rows moved to be accepted."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    X = rng.normal(size=(n, d))
    X -= np.outer(np.abs(X @ w) / (w @ w) + 0.3, w) * 0.8
    q = X + np.outer(rng.uniform(0.3, 2.0, n), w) * 0.9 + rng.normal(size=(n, d)) * 0.2

    def score(rows: Any) -> Any:
        p = 1.0 / (1.0 + np.exp(0.3 - rows @ w))
        return p if digits is None else np.round(p, digits)

    return score, X, q


def plan(
    n: int, d: int, budget: float, share: float = 1.0, seed: int = 0, digits: int | None = None
) -> Any:
    score, X, q = group(n, d, seed, digits)
    return ActionPlan.from_model(score, X, q, target=share * score(q).mean(), budget=budget)


def every_plan(c: Any) -> tuple[Any, Any]:
    """(sums, costs) of all plans."""
    sums, costs = np.zeros(1), np.zeros(1)
    for a, b in zip(c.starts[:-1], c.starts[1:], strict=True):
        sums = (sums[:, None] + c.effects[a:b]).ravel()
        costs = (costs[:, None] + c.costs[a:b]).ravel()
    return sums, costs


CASES = st.fixed_dictionaries(
    {
        "n": st.integers(1, 5),
        "d": st.integers(1, 3),
        "seed": st.integers(0, 10_000),
        "digits": st.sampled_from([None, 1, 2]),
        "share": st.sampled_from([0.6, 0.85, 1.0, 1.2]),
        "costs": st.sampled_from([None, (1.0, 2.0, 0.5), (0.0, 1.0, 1.0), (0.3, 0.7, 1.1)]),
    }
)


@given(CASES, st.integers(0, 15))
def test_plans_are_the_best_of_all(case: dict[str, Any], budget: int) -> None:
    score, X, q = group(case["n"], case["d"], case["seed"], case["digits"])
    costs = None if case["costs"] is None else case["costs"][: case["d"]]
    total = case["n"] * (case["d"] if costs is None else sum(costs))
    target = case["share"] * score(q).mean()
    p = ActionPlan.from_model(score, X, q, target=target, budget=min(budget, total), costs=costs)
    sums, spent = every_plan(p.choices)
    best = np.abs(sums[spent <= p.budget + 1e-9]).min()
    s = p.solve("action-dp", tolerance=1e-9)
    assert s.objective == pytest.approx(best, abs=1e-9)
    assert s.bound == pytest.approx(best, abs=2e-9) and s.certificate.verify()
    assert p.cost(s) <= p.budget + 1e-9


def test_edits_without_a_band_are_optimal_by_the_first_budget_that_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(action_dp, "_handed_over", None)  # nobody else is asked
    score, X, q = group(6, 3)
    choices = ActionPlan.from_model(score, X, q, target=0.8 * score(q).mean(), budget=0).choices
    s = MinimumEdits(choices, effect=0.5).solve("action-dp")
    assert s.status.termination == "optimal" and s.bound == pytest.approx(s.objective)


@given(CASES, st.sampled_from([0.3, 0.6, 0.9]), st.booleans())
def test_edits_are_the_fewest_of_all(case: dict[str, Any], effect: float, overshoot: bool) -> None:
    score, X, q = group(case["n"], case["d"], case["seed"], case["digits"])
    costs = None if case["costs"] is None else case["costs"][: case["d"]]
    target = case["share"] * score(q).mean()
    c = ActionPlan.from_model(score, X, q, target=target, budget=0, costs=costs).choices
    try:
        p = MinimumEdits(c, effect=effect, overshoot=overshoot)
    except of.DataError as e:
        assert "no edits reach" in str(e) or "at the target" in str(e)
        return
    sums, spent = every_plan(c)
    toward, left = -np.sign(c.unedited) * sums, (1 - effect) * abs(c.unedited)
    inside = (toward >= -left - 1e-12) & (overshoot | (toward <= left + 1e-12))
    if not inside.any():
        with pytest.raises(of.OptfairError):
            p.solve()
        return
    s = p.solve("action-dp", tolerance=1e-9)
    assert s.objective == pytest.approx(spent[inside].min(), abs=1e-9)
    assert s.bound == pytest.approx(s.objective, abs=1e-9) and s.certificate.verify()
    assert p.counterfactual_effect(s) >= effect - 1e-9 or overshoot


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("budget", [0, 7, 20])
def test_equals_the_general_route(budget: int, sign: float) -> None:
    score, X, q = group(12, 5)
    p = ActionPlan.from_model(
        lambda rows: sign * score(rows), X, q, target=sign * score(q), budget=budget
    )
    s, h = p.solve(), p.solve("highs")
    assert (s.solver, s.status.termination) == ("action-dp", "optimal")
    assert s.objective == pytest.approx(h.objective, abs=1e-9)
    assert s.residuals().source == "duality" and s.is_optimal(1e-10)
    m = MinimumEdits(p.choices, effect=0.6)
    assert m.direction == sign
    assert m.solve().objective == m.solve("highs").objective


@pytest.mark.slow
@pytest.mark.parametrize("budget", [25, 50])
def test_a_hundred_times_faster_than_branch_and_bound(budget: int) -> None:
    p = plan(50, 9, budget)
    assert p.choices.size == 50 * 512
    p.solve()
    begin = time.process_time()
    s = p.solve()
    ours = time.process_time() - begin
    begin = time.process_time()
    h = p.solve("highs", time_limit=60)
    theirs = time.process_time() - begin
    assert s.solver == "action-dp" and s.is_optimal(1e-12)
    assert s.objective <= h.objective + 1e-9
    if h.status.termination == "optimal":
        assert s.objective == pytest.approx(h.objective, abs=1e-9)
    assert theirs >= 100 * ours


def test_zero_inside_the_range_is_reached() -> None:
    p = plan(50, 9, 200, share=0.9)
    s = p.solve()
    assert s.solver == "action-dp" and s.status.termination == "optimal"
    assert 0.0 <= s.objective <= 1e-9 and s.bound == 0.0
    assert s.residuals().source == "duality" and s.is_optimal(1e-8)
    assert p.cost(s) <= 200
    # the seed decides among plans that are all as good; none means one of them
    again = p.solve()
    np.testing.assert_array_equal(s["choice"], again["choice"])
    other = p.solve(seed=5)
    assert other.objective <= 1e-9


def test_just_past_the_crossing() -> None:
    at = [float(reach(row_table(plan(14, 6, 60, 0.93)), 60).upper[c]) for c in range(61)]
    crossing = int(np.argmax(np.array(at) > 0))
    assert 0 < crossing < 60
    for budget in (crossing - 1, crossing, crossing + 1):
        s = plan(14, 6, budget, 0.93).solve(tolerance=1e-8)
        assert s.solver == "action-dp" and s.is_optimal(1e-8)
    p = plan(14, 6, crossing - 1, 0.93)
    assert p.solve().objective == pytest.approx(-at[crossing - 1], abs=1e-12)


def test_scores_of_few_values_are_proved_by_looking_at_all_plans() -> None:
    # sums are multiples of 0.01 beside the target, so that 0 is inside the range and missed
    p = plan(20, 6, 60, share=0.9, digits=2)
    s = p.solve()
    assert s.objective > 1e-4 and s.progress[-1][0] == "all plans nearer to 0"
    assert s.gap <= 1e-9 and s.is_optimal(1e-9)
    proof: Any = s.proof
    table = row_table(p)
    assert proof.window == pytest.approx(s.objective, abs=1e-9)
    # a window that holds a plan proves nothing, and the bound that was claimed falls
    for wider in (1.01, 2.0):
        forged = replace(s, proof=replace(proof, window=wider * s.objective))
        assert not forged.certificate.verify()
        assert window_bound(table, 60, wider * s.objective) == 0.0
    assert not replace(s, proof=replace(proof, window=0.0)).certificate.verify()
    # shifted by whole steps, the lattice of sums says which distances there are
    step = 0.01
    apart = (s.objective / step) % 1.0
    rest = (table.effects[: table.starts[1]] / step) % 1.0
    offset = (p.choices.rows * rest[0]) % 1.0
    assert min(abs(apart - offset), abs(apart - (1 - offset))) < 1e-6
    assert s.objective < step


@given(st.integers(2, 7), st.integers(0, 1000), st.floats(0.0, 0.4), st.integers(1, 14))
def test_the_search_finds_what_is_inside_the_window(
    n: int, seed: int, window: float, budget: int
) -> None:
    p = plan(n, 2, min(budget, 2 * n), share=0.8, seed=seed, digits=2)
    table = row_table(p)
    found = search_labels(table, int(p.budget), window)
    sums, spent = every_plan(p.choices)
    near = np.abs(sums[spent <= p.budget])
    assert found.complete
    inside = near[near < window - 1e-12]
    if found.chosen is None:
        assert not inside.size
    else:
        assert abs(table.effects[found.chosen].sum()) == pytest.approx(near.min(), abs=1e-11)
        assert table.costs[found.chosen].sum() <= p.budget
    # the margin for merged sums is far below any tolerance
    assert 0 < merge_width(table) < 1e-12


@pytest.mark.parametrize("tenths", [(1, 1, 1), (1, 1, 6), (1, 2, 3), (3, 6, 9)])
def test_the_bound_is_not_above_the_exact_sum_by_rounding(tenths: tuple[int, ...]) -> None:
    effects = np.array([[t / 10, t / 10] for t in tenths])
    s = ActionPlan(effects, [[0], [1]], budget=0).solve()
    exact = sum((Fraction(v) for v in effects[:, 0].tolist()), Fraction(0))
    assert Fraction(s.bound) <= exact
    assert s.is_optimal(1e-12)


def test_a_draw_of_plans_is_never_called_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST", 50)
    monkeypatch.setattr(labels, "DRAWN", 50)
    table = row_table(plan(12, 5, 40, share=0.9))
    assert not search_labels(table, 40, 0.05).complete
    drawn = search_labels(table, 40, 0.05, rng=np.random.default_rng(0))
    assert not drawn.complete
    if drawn.chosen is not None:
        assert abs(table.effects[drawn.chosen].sum()) < 0.05
        assert table.costs[drawn.chosen].sum() <= 40
    assert window_bound(table, 40, 1e-12) == 0.0


def crippled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the route nothing but its dynamic program."""
    monkeypatch.setattr(nearby, "FEW", ())
    monkeypatch.setattr(nearby, "MANY", ())
    monkeypatch.setattr(labels, "MOST", 1)
    monkeypatch.setattr(labels, "DRAWN", 1)


def test_what_is_left_open_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    p = plan(8, 4, 20, share=0.9, digits=2)
    best = p.solve().objective
    assert best > 1e-4
    crippled(monkeypatch)
    s = p.solve()
    assert s.solver == "action-dp" and not s.residuals().above(1e-7)
    assert s.objective == pytest.approx(best, abs=1e-7)
    assert "branch and bound" in s.residuals().source and s.grade.word == "reported"
    assert "branch and bound" in s.progress[-1][0]
    m = MinimumEdits(p.choices, effect=0.95, overshoot=False)
    assert m.solve("action-dp").objective == m.solve("highs").objective


def test_stopped_early_it_returns_plan_bound_and_gap(
    monkeypatch: pytest.MonkeyPatch, later: Any
) -> None:
    def slow(*given: Any, **options: Any) -> Any:
        found = closest(*given, **options)
        later(999.0)  # a second is left for branch and bound
        return found

    crippled(monkeypatch)
    monkeypatch.setattr(action_dp, "closest", slow)
    p = plan(40, 8, 120, share=0.93)
    s = p.solve(tolerance=1e-12, time_limit=1000.0)
    assert s.status.termination == "time_limit"
    assert s.status.primal == "feasible" and p.cost(s) <= 120
    assert 0.0 <= s.bound <= s.objective and np.isfinite(s.gap)
    first = closest(row_table(p), 120, 0.0)
    assert s.objective <= first.distance + 1e-12


def test_every_entry_is_guarded() -> None:
    score, X, q = group(6, 3)
    problems = [
        ActionPlan.from_model(score, X, q, target=score(q), budget=6),
        MinimumEdits.from_model(score, X, q, target=score(q), effect=0.7),
        plan(6, 3, 18, share=0.8),
        plan(6, 3, 18, share=0.8, digits=1),
    ]
    for p in problems:
        s = p.solve("action-dp", tolerance=1e-6)
        copied = replace(s, values={k: np.array(v) for k, v in s.values.items()})
        assert copied.certificate.verify()
        for name, array in copied.values.items():
            for index in np.ndindex(np.shape(array)):
                for by in (1e-4, -1e-4):
                    moved = {k: np.array(v) for k, v in copied.values.items()}
                    moved[name][index] += by
                    assert not replace(copied, values=moved).certificate.verify(), (name, index)
        assert not replace(s, objective=s.objective + 1e-4).certificate.verify()
        assert not replace(s, bound=s.bound - 1e-4).certificate.verify()
        assert not replace(s, bound=s.bound + 1e-4).certificate.verify()


def test_another_plan_is_not_optimal() -> None:
    p = plan(8, 4, 6)
    s = p.solve()
    table = row_table(p)
    # the best plan of one edit less satisfies every constraint, and is found out by the bound
    worse = reach(table, 5).largest(5)
    a = np.zeros(p.choices.size)
    a[worse] = 1.0
    values = {"choice": a, "deviation": abs(p.choices.effects @ a)}
    forged = replace(s, values=values, objective=float(values["deviation"]))
    assert not forged.certificate.verify()
    assert max(forged.residuals().primal.values()) <= 1e-12


def test_a_proof_speaks_of_its_own_problem() -> None:
    p = plan(8, 4, 6)
    s = p.solve()
    q = p.with_budget(5)
    assert not replace(q.solve(), proof=s.proof).is_optimal(1.0)
    m = MinimumEdits(p.choices, effect=0.7)
    t = m.solve()
    forged = replace(t, proof=replace(t.proof, floor=int(t.objective) + 3))  # type: ignore[type-var]
    assert forged.residuals().gap == 0.0  # a floor is not believed: it is recomputed
    band = MinimumEdits(p.choices, effect=0.7, overshoot=False)
    u = band.solve()
    forged = replace(u, proof=replace(u.proof, floor=int(u.objective) + 1))  # type: ignore[type-var]
    assert forged.residuals().gap <= 1e-9


def band(n: int = 2) -> Any:
    """Return rows that jump over the target one at a time: only all edits together end in the band.

    Without edits they are 1.1 below. One edit passes it by 0.5 or more, both cancel it.
    """
    edits = [[0, 0], [1, 0], [0, 1], [1, 1]]
    effects = [[-0.5, 1.5, 1.4, 0.05], [-0.6, 1.6, 1.5, -0.05]][:n]
    return MinimumEdits(effects, edits, effect=0.9, overshoot=False)


def test_a_floor_is_what_was_looked_through() -> None:
    p = band()
    s = p.solve("action-dp", tolerance=1e-9)
    sums, spent = every_plan(p.choices)
    best = spent[np.abs(sums) <= p.missing].min()
    assert best == 4 and s.objective == s.bound == 4.0
    proof: Any = s.proof
    table = row_table(p)
    first = round(float(spent[sums >= -p.missing].min()))
    assert first == 1  # one edit is enough where it may pass the target
    assert proof.floor == 4
    # a floor is a bound where no plan of one unit less is in the band, and says nothing elsewhere
    bounds = [replace(proof, floor=f).check({}, {}).bound / table.unit for f in range(1, 7)]
    assert bounds == [1.0, 2.0, 3.0, 4.0, 1.0, 1.0]


def test_a_search_that_was_cut_short_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    p = band()
    table = row_table(p)
    looked: list[int] = []

    def cut(table: Any, units: int, wide: float, **options: Any) -> Any:
        looked.append(units)
        found = closest(table, units, wide, **options)
        # of 2 units not all plans were looked at
        return replace(found, done=found.done and units != 2)

    monkeypatch.setattr(action_dp, "closest", cut)
    request = Request()
    found = action_dp._fewest(p, table, request)
    assert looked == [1, 2, 3, 4]
    assert not found.done  # the plan may be the best, but nothing shows it
    assert found.bound == 2.0 and found.proof.floor == 2
    assert p.solve("action-dp").objective == 4.0  # by the general solver

    monkeypatch.setattr(action_dp, "closest", closest)
    whole = action_dp._fewest(p, table, request)
    assert whole.done and whole.bound == 4.0


def test_rules_that_leave_nothing_are_named() -> None:
    p = plan(6, 3, 4)
    a, c = p["choice"], p.choices
    first = c.starts[1]
    bare = p.with_constraints(
        edited=c.edits[:first].any(axis=1) @ a[:first] >= 1, each=row_budget(0), other=row_budget(3)
    )
    with pytest.raises(of.Infeasible, match="row 0 is left without a choice") as e:
        bare.solve()
    assert e.value.conflict == ("one choice", "edited", "each")
    assert e.value.certificate.verify()
    for name in ("edited", "each"):
        assert bare.without(name).solve().is_optimal()
    dear = p.with_constraints(
        all=[
            c.edits[i:j].sum(axis=1) @ a[i:j] >= 2
            for i, j in zip(c.starts[:-1], c.starts[1:], strict=True)
        ]
    )
    with pytest.raises(of.Infeasible, match="the budget is 4") as e:
        dear.solve()
    conflict = e.value.conflict
    assert conflict[0] == "one choice" and conflict[-1] == "budget" and len(conflict) == 5
    assert e.value.certificate.verify()
    assert not replace(e.value.certificate, conflict=("one choice", "budget")).verify()
    assert not replace(e.value.certificate, conflict=("one choice", "nothing")).verify()
    m = MinimumEdits(c, effect=0.5).with_constraints(each=row_budget(0))
    with pytest.raises(of.Infeasible, match="reach an effect of") as e:
        m.solve()
    assert set(e.value.conflict) == {"one choice", "effect", "each"}


def test_costs_decide_whether_the_table_fits() -> None:
    score, X, q = group(6, 3)

    def priced(costs: Any, budget: float = 3.0) -> Any:
        return ActionPlan.from_model(score, X, q, target=score(q), budget=budget, costs=costs)

    for costs in ([1.0, 0.5, 0.25], [0.0, 1.0, 2.0], [0.1, 0.2, 0.3], [0.0, 0.0, 0.0]):
        p = priced(costs, budget=min(3.0, 6 * sum(costs)))
        s = p.solve()
        assert s.solver == "action-dp"
        assert s.objective == pytest.approx(p.solve("highs").objective, abs=1e-9)
    # 0.1 + 0.2 is more than 0.3 in floating point, and still within a budget of 0.3
    edge = priced([0.1, 0.2, 0.3], budget=0.3)
    assert edge.cost(edge.solve()) == pytest.approx(0.3)
    odd = priced([1.0, 2**0.5, np.pi])
    assert "common unit" in odd.structure_refusal("row-choices")
    assert odd.solve().solver == "highs"
    huge = priced([1.0, 1e9, 0.001], budget=1e9)
    s = huge.solve()
    assert s.solver == "highs" and "table" in s.attempts[0]


def test_options_it_does_not_have_are_refused() -> None:
    p = plan(4, 2, 3)
    with pytest.raises(of.UnsupportedProblem, match="presolve"):
        p.solve("action-dp", options={"presolve": "off"})
    assert p.solve("action-dp", seed=3, threads=2, time_limit=5.0).is_optimal()


def test_saved_solutions_name_the_route(tmp_path: Any) -> None:
    p = plan(4, 2, 3)
    s = p.solve()
    s.save(tmp_path / "plan")
    record = s.to_dict()
    assert record["bound_by"] == "duality" and record["solver"] == "action-dp"


def test_all_plans_are_enumerated_right() -> None:
    c = plan(3, 2, 3).choices
    sums, costs = every_plan(c)
    parts = [range(a, b) for a, b in zip(c.starts[:-1], c.starts[1:], strict=True)]
    every = [list(t) for t in product(*parts)]
    np.testing.assert_allclose(sums, [c.effects[t].sum() for t in every])
    np.testing.assert_allclose(costs, [c.costs[t].sum() for t in every])


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e-7, 1e6])
@pytest.mark.parametrize("solver", [None, "highs"])
def test_an_effect_is_a_share_in_any_units(unit: float, solver: str | None) -> None:
    effects = np.array([[-0.5, -0.1, -0.4, 0.0], [-0.6, -0.5, -0.4, 0.0]]) * unit
    edits = [[0, 0], [1, 0], [0, 1], [1, 1]]
    p = of.sparse_counterfactuals.MinimumEdits(effects, edits, effect=0.9)
    s = p.solve(solver)
    assert s.objective == pytest.approx(3.0) and p.counterfactual_effect(s) >= 0.9 - 1e-9


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("forbidden", [False, True])
def test_a_band_that_all_plans_jump_over_is_a_conflict(seed: int, forbidden: bool) -> None:
    """No sum of scores is the target to the last digit: all of them are looked through at once."""
    rng = np.random.default_rng(seed)
    edits = np.array([*product([0, 1], repeat=2)])
    p = MinimumEdits(rng.normal(size=(5, 4)), edits, effect=1.0, overshoot=False)
    if forbidden:
        p = p.with_constraints(budget=row_budget(1))
    begin = time.perf_counter()
    with pytest.raises(of.Infeasible) as e:
        p.solve()
    assert time.perf_counter() - begin < 5.0
    proof: Any = e.value.certificate
    assert proof.verify() and "of the target" in str(proof)
    assert proof.conflict == ("one choice", "effect", "overshoot")
    sums, _ = every_plan(p.choices)
    nearest = float(np.abs(sums).min())
    assert nearest > p.missing
    # with a band up to the nearest plan there is one, and the same terms are no conflict
    wide = MinimumEdits(
        p.choices, effect=1.0 - nearest * 1.01 / abs(p.choices.unedited), overshoot=False
    )
    assert not replace(proof, problem=wide).verify()
    assert abs(float(p.choices.effects @ wide.solve()["choice"])) == pytest.approx(nearest)
