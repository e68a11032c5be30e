"""The limit that `at_most` guesses never decides: against one solve for every choice."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.backends.request import Request
from optfair.backends.solve import solve_as_asked
from optfair.methods.group_counterfactuals.limits import NoChoice, without_guesses
from optfair.methods.group_counterfactuals.map_problem import Piece

sys.path.insert(0, str(Path(__file__).parent))
from map_cases import MODELS, group, target

X = np.random.default_rng(1).normal(size=(20, 3))
SCORE = ([3.0, 0.7, 0.7], 0.0)


def problem(model: Any = of.group_counterfactuals.DiagonalMap, **given: Any) -> Any:
    return model(X, **{"score": SCORE, "threshold": 6.0, "K": 2.0, "k": 2.0, **given})


def best(p: Any, s: int, among: tuple[int, ...]) -> float:
    """Solve once for each choice of ``s`` features, the others held by equalities."""
    costs = []
    for moving in combinations(among, s):
        rest = [j for j in range(len(p.features)) if j not in moving]
        try:
            costs.append(p.with_constraints(held=of.immutable(*rest)).solve().objective)
        except of.Infeasible:
            continue
    return min(costs)


ORDERS: dict[str, Any] = {
    "before": lambda p, few: p.with_constraints(few=few).with_constraints(stay=of.immutable(0)),
    "after": lambda p, few: p.with_constraints(stay=of.immutable(0)).with_constraints(few=few),
    "together": lambda p, few: p.with_constraints(few=few, stay=of.immutable(0)),
    "in a list": lambda p, few: p.with_constraints(rules=[few, of.immutable(0)]),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("s", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_other_rules_make_the_guess_too_small(order: str, s: int) -> None:
    p = problem()
    q = ORDERS[order](p, of.group_counterfactuals.at_most(s))
    assert not q.structure_refusal("feature-support")
    with pytest.raises(
        (of.Infeasible, of.SolverFailure)
    ):  # with the rows as they are written first
        solve_as_asked(q, None, Request())
    found = q.solve()
    assert found.objective == pytest.approx(best(p, s, (1, 2)), rel=1e-6)
    assert s == 1 or found.objective == pytest.approx(226.4405381, rel=1e-6)
    assert not found.residuals().above(1e-7)
    assert any("touched: asked again with largest=" in line for line in found.attempts)
    assert not p.map(found).moved(0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MODELS)
def test_every_map(name: str) -> None:
    p = MODELS[name](group(n=20)[:, :3], K=2.0, k=2.0, score=SCORE, threshold=6.0)
    q = p.with_constraints(few=of.group_counterfactuals.at_most(1), stay=of.immutable(0))
    found = q.solve(tolerance=1e-6)
    assert found.objective == pytest.approx(best(p, 1, (1, 2)), rel=1e-5)


def test_a_dearer_choice_is_not_returned() -> None:
    # moving x0 a little and x1 far is cheaper than x1 and x2, and further than the guess
    w = np.array([3.0, 1.3, 0.6])
    behind = 6.0 - float((X @ w).min())
    p = of.group_counterfactuals.DiagonalMap(X, score=(w, 0.0), threshold=6.0, K=1.0, k=1.0)
    p = p.with_constraints(near=of.features.box({0: (None, float(X[:, 0].max()) + 0.04 * behind)}))
    q = p.with_constraints(few=of.group_counterfactuals.at_most(2))
    cut = solve_as_asked(q, None, Request())
    assert not cut.residuals().above(1e-7)
    found, true = q.solve(), best(p, 2, (0, 1, 2))
    assert cut.objective > 1.02 * true
    assert found.objective == pytest.approx(true, rel=1e-6)
    assert len(found.attempts) == 1 and "few" not in str(found.status)


def test_a_light_component_may_move_as_far_as_the_cost_allows() -> None:
    rng = np.random.default_rng(0)
    Y = np.vstack([rng.normal(size=(40, 3)), rng.normal(size=(4, 3)) - [4.0, 0.0, 0.0]])
    labels = np.repeat([0, 1], (40, 4))
    for bounds in ("local", "global"):
        p = of.group_counterfactuals.MixtureMap(
            Y,
            components=labels,
            score=([3.0, 0.9, 0.7], 0.0),
            threshold=-1.0,
            K=2.0,
            k=2.0,
            bounds=bounds,
        ).with_constraints(stay=of.immutable(0))
        q = p.with_constraints(few=of.group_counterfactuals.at_most(1))
        true = best(p.without("stay"), 1, (1, 2))
        reach = q.constraints["few.shift.1 up"].limit.reach
        assert true < reach**2  # so that the guess takes nothing away
        found = solve_as_asked(q, None, Request())
        assert found.objective == pytest.approx(true, rel=1e-5)


def test_a_bound_that_is_removed_later_bounds_nothing() -> None:
    p = problem(of.PSDMap, K=1.2, k=1.2)
    q = p.with_constraints(few=of.group_counterfactuals.at_most(1)).without(
        "loewner upper", "loewner lower"
    )
    loose = p.without("loewner upper", "loewner lower")
    found = q.solve()
    assert found.objective == pytest.approx(best(loose, 1, (0, 1, 2)), rel=1e-6)
    assert found.objective < best(p, 1, (0, 1, 2)) - 0.1
    flat = of.PSDMap(X[:2], score=SCORE, threshold=6.0, K=1.2, k=1.2)
    q = flat.with_constraints(few=of.group_counterfactuals.at_most(1)).without(
        "loewner upper", "loewner lower"
    )
    with pytest.raises(of.DeclarationError, match="nothing bounds the matrix"):
        q.solve()


def test_no_choice_is_enough_however_far_it_goes() -> None:
    p = problem().with_constraints(stay=of.immutable(0), few=of.group_counterfactuals.at_most(0))
    with pytest.raises(of.Infeasible, match="no choice of 0 features to move") as e:
        p.solve()
    proof = e.value.certificate
    assert isinstance(proof, NoChoice) and proof.verify()
    assert "few.count" in e.value.conflict and "classification" in e.value.conflict
    assert not any(".shift" in name or ".turn" in name for name in e.value.conflict)
    for i in range(len(proof.leaves)):
        fewer = proof.leaves[:i] + proof.leaves[i + 1 :]
        assert not replace(proof, leaves=fewer).verify()
    other = problem().with_constraints(
        stay=of.immutable(0), few=of.group_counterfactuals.at_most(1)
    )
    assert proof.most == 0 and not replace(proof, problem=other).verify()
    assert proof.faults(p) == () and proof.faults(other) != ()
    free = next(i for i, (_, error) in enumerate(proof.leaves) if error is not None)
    error = proof.leaves[free][1]
    assert error is not None
    # a vector that proves nothing about its problem proves nothing here
    forged = of.Infeasible("", certificate=replace(error.certificate, z=0 * error.certificate.z))
    leaves = (*proof.leaves[:free], (proof.leaves[free][0], forged), *proof.leaves[free + 1 :])
    assert not replace(proof, leaves=leaves).verify()


def test_a_target_out_of_reach_is_so_without_the_limit() -> None:
    p = problem().with_constraints(
        few=of.group_counterfactuals.at_most(2),
        low=of.features.box(dict.fromkeys(range(3), (-9, 4))),
    )
    with pytest.raises(of.Infeasible, match="largest attainable") as e:
        of.group_counterfactuals.DiagonalMap(X, score=SCORE, threshold=20.0).with_constraints(
            few=of.group_counterfactuals.at_most(2),
            low=of.features.box(dict.fromkeys(range(3), (-9, 4))),
        ).solve()
    # 4 (3 + 0.7 + 0.7) with all features: the count is not what keeps it down
    assert e.value.certificate.solution.objective == pytest.approx(17.6, rel=1e-6)
    assert not any(name.startswith("few") for name in e.value.conflict)
    s = p.solve()
    assert not s.residuals().above(s.certificate.tolerance)


def test_a_limit_that_was_given_is_a_constraint() -> None:
    p = problem().with_constraints(stay=of.immutable(0))
    with pytest.raises((of.Infeasible, of.SolverFailure)):
        p.with_constraints(few=of.group_counterfactuals.at_most(2, largest=5.0)).solve()
    wide = p.with_constraints(few=of.group_counterfactuals.at_most(2, largest=50.0)).solve()
    assert wide.objective == pytest.approx(226.4405381, rel=1e-6)
    assert not wide.attempts


def test_two_counts_and_constraints_on_what_counts() -> None:
    p = problem().with_constraints(stay=of.immutable(0))
    q = p.with_constraints(
        few=of.group_counterfactuals.at_most(2), fewer=of.group_counterfactuals.at_most(1)
    )
    assert q.solve().objective == pytest.approx(best(problem(), 1, (1, 2)), rel=1e-6)
    few = p.with_constraints(few=of.group_counterfactuals.at_most(2))
    linked = few.with_constraints(apart=few["few.moved"][1] + few["few.moved"][2] <= 1)
    assert linked.solve().objective == pytest.approx(best(problem(), 1, (1, 2)), rel=1e-6)
    # x0 takes one of the two places, though it may not move
    taken = few.with_constraints(taken=few["few.moved"][0] >= 1)
    assert taken.solve().objective == pytest.approx(best(problem(), 1, (1, 2)), rel=1e-6)
    neither = few.with_constraints(none=few["few.moved"][1] + few["few.moved"][2] <= 0)
    with pytest.raises(of.Infeasible, match="no choice of 2 features") as e:
        neither.solve()
    assert "none" in e.value.conflict and e.value.certificate.verify()


def test_what_cannot_be_decided_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    q = problem().with_constraints(stay=of.immutable(0), few=of.group_counterfactuals.at_most(2))
    monkeypatch.setattr("optfair.methods.group_counterfactuals.limits.MOST", 1)
    with pytest.raises(of.UnsupportedProblem, match="'few' lets a feature move") as e:
        q.solve()
    assert "largest=" in e.value.remedy and "10.3854" in e.value.evidence


def test_another_objective_says_nothing_about_the_limit() -> None:
    q = problem().with_constraints(few=of.group_counterfactuals.at_most(1))
    goal = q.objective["transport cost"]
    other = q.with_terms({"other": replace(goal, name="other")}, q.constraints)
    with pytest.raises(of.UnsupportedProblem, match="the objective is 'other'"):
        other.solve()
    feasible = q.with_terms({}, q.constraints)
    assert not feasible.solve().residuals().above(1e-7)


def test_without_guesses_nothing_counts() -> None:
    q = problem().with_constraints(
        few=of.group_counterfactuals.at_most(0),
        given=of.group_counterfactuals.at_most(1, largest=50.0),
    )
    relaxed = without_guesses(q)
    assert relaxed.integers == {"given.moved"}
    assert {n for n in q.constraints if n not in relaxed.constraints} == {
        f"few.{word} {side}" for word in ("shift", "turn") for side in ("up", "down")
    }
    assert without_guesses(relaxed) is relaxed


def edge(p: Any, piece: Piece, j: int, v: np.ndarray[Any, Any], reach: float) -> float:
    """Return the factor by which turning feature j along v costs reach²."""
    m = piece.moments
    return float(reach / np.sqrt(piece.weight * p.feature_costs[j] * (v @ m.covariance @ v)))


@pytest.mark.parametrize("name", ["affine", "mixture"])
@pytest.mark.parametrize("reach", [None, 3.0])
def test_rows_hold_just_as_far_as_the_cost_allows(name: str, reach: float | None) -> None:
    Y = group()
    p = MODELS[name](Y, **target(), feature_costs=[1.0, 4.0, 0.5, 2.0])
    q = p.with_constraints(few=of.group_counterfactuals.at_most(4, largest=reach))
    r = q.constraints[f"few.shift{q.pieces[0].part} up"].limit.reach
    if reach is None:  # twice the cheapest shift of one feature that sends everybody over
        w = p.normal
        rear = [p.level - float((x.centered @ w).min() + w @ x.moments.mean) for x in p.pieces]
        one = (np.sqrt(p.feature_costs[w != 0]) / np.abs(w[w != 0])).min()
        assert r == pytest.approx(2.0 * one * max(rear))
    else:
        assert r == reach
    still: dict[str, Any] = {"few.moved": np.ones(4)}
    for piece in q.pieces:
        still[piece.mean.name()], still[piece.matrix.name()] = piece.moments.mean, np.eye(4)
    for piece in q.pieces:
        inverse = np.linalg.inv(piece.moments.covariance)
        for j in range(4):
            for sign, side in ((1.0, "up"), (-1.0, "down")):
                for factor, inside in ((0.999, True), (1.001, False)):
                    far = sign * factor * r / np.sqrt(piece.weight * p.feature_costs[j])
                    mean = piece.moments.mean + far * np.eye(4)[j]
                    row = q.constraints[f"few.shift{piece.part} {side}"]
                    assert (
                        row.relative_violation({**still, piece.mean.name(): mean}) == 0
                    ) == inside
                    for m in range(4):
                        v = inverse[m]
                        A = np.eye(4)
                        A[j] += sign * factor * edge(p, piece, j, v, r) * v
                        row = q.constraints[f"few.turn{piece.part} {side}"]
                        point = {**still, piece.matrix.name(): A}
                        assert (row.relative_violation(point) == 0) == inside


def test_rows_hold_just_as_far_as_the_bounds_of_the_model_allow() -> None:
    p = of.group_counterfactuals.AffineMap(
        X[:3], score=SCORE, threshold=6.0, K=2.0
    )  # a flat group: its cost is no help
    q = p.with_constraints(few=of.group_counterfactuals.at_most(3))
    values = {"mean": p.moments.mean, "few.moved": np.ones(3)}
    for A, inside in ((-2.0, True), (-2.01, False)):
        point = {**values, "matrix": np.diag([A, 1.0, 1.0])}
        assert (q.constraints["few.turn down"].relative_violation(point) == 0) == inside
    for entry, inside in ((2.0, True), (2.01, False)):
        turned = np.eye(3)
        turned[0, 1] = entry
        point = {**values, "matrix": turned}
        assert (q.constraints["few.turn up"].relative_violation(point) == 0) == inside


def test_a_bound_on_the_mean_bounds_each_matrix_by_its_share() -> None:
    Y, labels = group(n=20), np.repeat([0, 1], (15, 5))
    given = {"components": labels, "K": 2.0, "k": 2.0, "bounds": "global", **target()}
    p = of.group_counterfactuals.MixtureMap(Y, **given)
    q = p.with_constraints(
        few=of.group_counterfactuals.at_most(4, largest=1e6)
    )  # so that the cost bounds nothing
    values: dict[str, Any] = {"few.moved": np.ones(4)}
    for piece in q.pieces:
        values[piece.mean.name()], values[piece.matrix.name()] = piece.moments.mean, np.eye(4)
    for piece, share in zip(q.pieces, (0.75, 0.25), strict=True):
        for factor, inside in ((0.999, True), (1.001, False)):
            turned = np.eye(4)
            turned[0, 1] = turned[1, 0] = factor * 2.0 / share
            row = q.constraints[f"few.turn{piece.part} up"]
            off = row.relative_violation({**values, piece.matrix.name(): turned})
            assert (off == 0) == inside


@pytest.mark.parametrize("unit", [1e-4, 1e4])
@pytest.mark.parametrize("model", ["AffineMap", "PSDMap", "DiagonalMap", "ScaledMap"])
@pytest.mark.parametrize("shift", [0.0, 15.0])
def test_choices_are_proved_in_any_unit(model: str, unit: float, shift: float) -> None:
    def solved(u: float) -> Any:
        rng = np.random.default_rng(0)
        rows, w = rng.normal(size=(20, 3)) + shift, np.abs(rng.normal(size=3))
        make = getattr(of.group_counterfactuals, model)
        p = make(u * rows, score=(w / u, 0.0), threshold=1.0, K=1.2)
        return p.with_constraints(few=of.group_counterfactuals.at_most(2)).solve()

    s, truth = solved(unit), solved(1.0)
    assert s.solver == "support-search" and s.grade.word == "proved"
    assert s.objective / unit**2 == pytest.approx(truth.objective, rel=1e-6, abs=1e-7)
    assert (truth.objective > 0.1) == (shift == 0.0)  # those far ahead stay where they are
