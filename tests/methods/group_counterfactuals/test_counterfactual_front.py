"""Fronts of cost and distortion: the sweep against theory, the search against the sweep."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.methods.group_counterfactuals import map_search
from optfair.methods.group_counterfactuals import map_search as reach
from optfair.methods.group_counterfactuals.front import counterfactual_front
from optfair.methods.group_counterfactuals.map_search import (
    FAMILIES,
    Group,
    evolve,
    family_of,
    hypervolume,
    valid_translations,
)
from optfair.methods.group_counterfactuals.metrics import Target


def group(n: int = 40, d: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) - 1.0


SCORE = (np.array([1.0, 2.0, -0.5]), 0.3)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "members"])
def test_families_stay_within_their_bounds(family: str) -> None:
    rng = np.random.default_rng(0)
    X, K = group(), 3.0
    made = family_of(family, Group.of(X, rng), np.full(3, 4.0), K)
    x = rng.uniform(made.lower, made.upper, size=(50, made.lower.size))
    A, b = made.maps(x)
    assert pytest.approx(np.swapaxes(A, 1, 2), abs=1e-12) == A
    values = np.linalg.eigvalsh(A)
    assert values.min() >= 1 / K - 1e-12 and values.max() <= K + 1e-12
    images, cost, (high, low) = made.images(x), made.cost(x), made.ratios(x)
    for p in range(len(x)):
        Z = X @ A[p].T + b[p]
        assert images[p] == pytest.approx(Z)
        assert cost[p] == pytest.approx(metrics.transport_cost(X, Z))
        constants = metrics.lipschitz_constants(X, Z)
        assert high[p] == pytest.approx(constants.upper)
        assert 1 / low[p] == pytest.approx(constants.lower)


def test_members_move_by_themselves() -> None:
    rng = np.random.default_rng(0)
    X = group(12)
    made = family_of("members", Group.of(X, rng), np.full(3, 4.0), 5.0)
    x = rng.uniform(made.lower, made.upper, size=(5, made.lower.size))
    high, low = made.ratios(x)
    for p, Z in enumerate(made.images(x)):
        constants = metrics.lipschitz_constants(X, Z)
        assert (high[p], 1 / low[p]) == pytest.approx((constants.upper, constants.lower))
        assert made.cost(x)[p] == pytest.approx(metrics.transport_cost(X, Z))


def test_sampled_pairs_are_pairs_of_different_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_search, "MOST_PAIRS", 100)
    X = np.repeat(group(10), 3, axis=0)
    found = Group.of(X, np.random.default_rng(0))
    assert 50 < found.lengths.size <= 100
    assert (found.firsts != found.seconds).all() and (found.lengths > 0).all()


@pytest.mark.parametrize("family", ["psd", "diagonal", "commutative", "scaled"])
def test_a_sweep_is_exact_for_the_operator(family: str) -> None:
    front = counterfactual_front(group(), SCORE, family=family, K=[3.0, 1.05, 1.5])
    assert front.method == "sweep" and front.K.tolist() == [1.05, 1.5, 3.0]
    assert (np.diff(front.transport_cost) < 0).all()
    assert (front.gap <= 1e-7).all()
    # a bound that binds is met, and the members cannot be bent more than the operator
    assert front.operator_distortion == pytest.approx(1 - 1 / front.K, abs=1e-6)
    assert (front.distortion <= front.operator_distortion + 1e-9).all()
    for m, Z in zip(front.maps, front.counterfactuals, strict=True):
        assert m.transform(group()) == pytest.approx(Z)
        assert metrics.validity(Z, SCORE) == 1.0


def test_wider_families_cost_less() -> None:
    costs = {
        f: counterfactual_front(group(), SCORE, family=f, K=[1.5]).transport_cost[0]
        for f in ("psd", "diagonal", "commutative", "scaled")
    }
    assert costs["psd"] <= min(costs.values()) + 1e-8
    assert max(costs["diagonal"], costs["commutative"]) <= costs["scaled"] + 1e-8


def test_search_and_sweep_agree_where_the_search_is_easy() -> None:
    # in the scaled family the distortion of the members is that of the operator
    X = group()
    exact = counterfactual_front(X, SCORE, family="scaled", K=np.linspace(1.01, 5, 25))
    found = counterfactual_front(
        X, SCORE, family="scaled", method="nsga2", population=60, generations=80
    )
    assert found.method == "nsga2" and np.isnan(found.gap).all()
    best = np.interp(found.distortion, exact.distortion, exact.transport_cost)
    inside = found.distortion >= exact.distortion[0]
    # linear interpolation of a convex curve is above it by little
    assert (found.transport_cost[inside] >= best[inside] * (1 - 5e-3)).all()
    reference = (1.01 * found.transport_cost.max(), 0.9)
    assert found.hypervolume(reference) >= 0.9 * exact.hypervolume(reference)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_search_finds_is_valid_and_nondominated(family: str) -> None:
    X = group(25)
    front = counterfactual_front(
        X, SCORE, probability=0.7, family=family, method="nsga2", population=40, generations=15
    )
    assert (np.diff(front.transport_cost) >= 0).all()
    assert (np.diff(front.distortion) <= 0).all()
    for cost, bent, Z in zip(
        front.transport_cost, front.distortion, front.counterfactuals, strict=True
    ):
        assert metrics.validity(Z, SCORE, probability=0.7) == 1.0
        assert metrics.transport_cost(X, Z) == pytest.approx(cost)
        assert metrics.distortion(X, Z) == pytest.approx(bent, abs=1e-12)
    assert len(front.maps) == (0 if family == "members" else len(front))
    for m, Z in zip(front.maps, front.counterfactuals, strict=False):
        assert m.transform(X) == pytest.approx(Z)


def test_the_same_seed_finds_the_same_front() -> None:
    given = {"method": "nsga2", "population": 20, "generations": 5, "random_state": 3}
    a, b = (counterfactual_front(group(), SCORE, **given) for _ in range(2))
    assert (a.transport_cost == b.transport_cost).all()


def test_a_forest_is_searched() -> None:
    from sklearn.ensemble import RandomForestClassifier

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 2))
    labels = (np.square(rows).sum(axis=1) < 1.5).astype(int)  # the target is a disc
    forest = RandomForestClassifier(20, random_state=0).fit(rows, labels)
    X = rng.normal([2.0, 0.5], 0.2, size=(15, 2))
    front = counterfactual_front(
        X, forest, background=rows, probability=0.6, population=24, generations=8
    )
    assert front.method == "nsga2" and len(front) >= 1
    for Z in front.counterfactuals:
        assert (forest.predict_proba(Z)[:, 1] >= 0.6 - 1e-9).all()


def test_no_way_is_said_so() -> None:
    class Never:
        classes_ = (0, 1)

        def predict_proba(self, rows: np.ndarray) -> np.ndarray:
            return np.tile([0.9, 0.1], (len(rows), 1))

    with pytest.raises(of.Infeasible, match="no translation"):
        counterfactual_front(group(), Never())


def test_translations_are_nearest_first_and_nearly_the_best() -> None:
    X = group()
    rng = np.random.default_rng(0)
    shifts = valid_translations(Target(SCORE), Group.of(X, rng), None, rng)
    lengths = np.linalg.norm(shifts, axis=1)
    assert (np.diff(lengths) >= 0).all()
    w, w0 = SCORE
    least = -(X @ w + w0).min() / np.linalg.norm(w)  # along w, as far as the worst member needs
    assert least <= lengths[0] <= 1.05 * least


def test_what_sampled_pairs_found_is_measured_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_search, "MOST_PAIRS", 5)
    X = group(40)
    front = counterfactual_front(X, SCORE, method="nsga2", population=40, generations=10)
    for bent, Z in zip(front.distortion, front.counterfactuals, strict=True):
        assert metrics.distortion(X, Z) == pytest.approx(bent, abs=1e-12)
    # some of what five pairs did not tell apart is beaten on all pairs
    assert (np.diff(front.transport_cost) >= 0).all() and (np.diff(front.distortion) < 0).all()


def test_translations_are_valid_for_members_that_were_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reach, "MOST", 3)
    X, rng = group(60), np.random.default_rng(0)
    target = Target(SCORE, probability=0.8)
    for shift in valid_translations(target, Group.of(X, rng), X + 9.0, rng):
        assert (target.margin(X + shift) >= 0).all()


@pytest.mark.parametrize("method", ["sweep", "nsga2"])
def test_a_group_at_its_target_stays(method: str) -> None:
    X = group() + [5.0, 5.0, -5.0]  # noqa: RUF005
    given = {"K": [1.5]} if method == "sweep" else {"population": 20, "generations": 3}
    front = counterfactual_front(X, SCORE, method=method, **given)
    assert len(front) == 1
    assert front.transport_cost[0] == pytest.approx(0.0, abs=1e-9)
    assert front.distortion[0] == pytest.approx(0.0, abs=1e-5)


def test_an_interrupted_search_keeps_its_points() -> None:
    calls = []

    def evaluate(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append(len(x))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return np.column_stack([x[:, 0], 1 - x[:, 0]]), 0.2 - x[:, 0]

    start = np.random.default_rng(0).uniform(size=(20, 1))
    bounds = np.zeros(1), np.ones(1)
    found = evolve(evaluate, *bounds, start, generations=50, seed=0)
    assert not found.complete and found.generations == 3
    assert (found.parameters[:, 0] >= 0.2).all() and len(found.parameters) > 1


def test_time_limit_keeps_what_there_is() -> None:
    front = counterfactual_front(
        group(), SCORE, method="nsga2", generations=10**6, time_limit=0.3, population=20
    )
    assert not front.complete and "interrupted" in repr(front)
    swept = counterfactual_front(group(), SCORE, K=np.linspace(1.1, 5, 50), time_limit=1e-9)
    assert not swept.complete and len(swept) == 1


def test_hypervolume_of_rectangles() -> None:
    points = np.array([[1.0, 0.5], [2.0, 0.25], [9.0, 0.0]])
    assert hypervolume(points, (3.0, 1.0)) == pytest.approx(1 * 0.5 + 1 * 0.75)
    assert hypervolume(points, (0.5, 1.0)) == 0.0


def test_front_as_a_table() -> None:
    front = counterfactual_front(group(), SCORE, K=[1.5, 2.0], label="mine")
    assert front.to_frame().shape == (2, 5)
    assert "mine" in repr(front) and "optimal for its K" in repr(front)


def test_bad_input() -> None:
    X = group()
    with pytest.raises(of.DeclarationError, match="did you mean 'diagonal'"):
        counterfactual_front(X, SCORE, family="diagnal")
    with pytest.raises(of.DeclarationError, match="unknown method"):
        counterfactual_front(X, SCORE, method="exact")
    with pytest.raises(of.DeclarationError, match="no bound to sweep"):
        counterfactual_front(X, SCORE, family="members", method="sweep")
    with pytest.raises(of.DeclarationError, match="at least 1"):
        counterfactual_front(X, SCORE, K=[0.5])
    with pytest.raises(of.DeclarationError, match="one largest K"):
        counterfactual_front(X, SCORE, K=[2.0, 3.0], method="nsga2")
    with pytest.raises(of.DeclarationError, match="at least 2"):
        counterfactual_front(X, SCORE, method="nsga2", generations=1)
