"""Swaps never end higher than where they started, and stay within their budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import optfair as of
from optfair.errors import DeclarationError
from optfair.methods.fair_clustering import alternation, single_start
from optfair.methods.fair_clustering.algorithms import soft_descent
from optfair.methods.fair_clustering.algorithms.descent import HeldRows


def data(n: int = 160, blobs: int = 8) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    at = rng.uniform(-10, 10, size=(blobs, 2))
    X = at[rng.integers(0, blobs, n)] + 0.4 * rng.normal(size=(n, 2))
    return X, rng.integers(0, 2, n)


def fitted(X: Any, groups: Any, **options: Any) -> Any:
    stated = {"init": "random", "random_state": 0, "fairness": of.max_gap(0.2)} | options
    return of.FairKMeans(8, **stated).fit(X, groups=groups)


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_swaps_lower_the_objective_of_one_start(
    unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, groups = data()
    made = []
    run = single_start.descent

    def counted(*a: Any, **k: Any) -> Any:
        found = run(*a, **k)
        made.append(len(found.history))
        return found

    monkeypatch.setattr(single_start, "descent", counted)
    one = fitted(X * unit, groups, n_init=1)
    made.clear()
    swap = fitted(X * unit, groups, n_init=4, search="swap")
    first = made[0]
    # a swap that is tried may end in the middle of its trial, and the best is polished
    assert sum(made[1:]) <= 3 * first + alternation.TRIAL + max(made)
    assert len(made) > 3 and len(swap.restarts_) == 1
    assert swap.objective_ < 0.99 * one.objective_  # blobs without a center get one
    assert (np.diff(swap.history_) <= 0).all() and swap.gap_ <= 1e-9
    again = fitted(X * unit, groups, n_init=4, search="swap")
    assert np.array_equal(again.labels_, swap.labels_)


@pytest.mark.parametrize("n", [160, pytest.param(2_000, marks=pytest.mark.slow)])
def test_an_interrupt_ends_a_search_wherever_it_comes(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, groups = data(n)
    assign, calls = HeldRows.assign, []
    fitted(X, groups, n_init=4, search="swap")

    def counted(self: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return assign(self, *args)

    monkeypatch.setattr(HeldRows, "assign", counted)
    at = 0
    whole = fitted(X, groups, n_init=4, search="swap")
    for at in np.unique(np.linspace(2, len(calls), 4).astype(int)):
        calls.clear()
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            model = fitted(X, groups, n_init=4, search="swap")
        assert len(calls) <= at + 1  # the one that proves what was reached
        assert model.status_ == "interrupted" and model.gap_ <= 1e-9
        assert model.objective_ >= whole.objective_ * (1.0 - 1e-9)


def test_without_a_budget_a_swap_search_is_a_start() -> None:
    X, groups = data()
    one, swap = (fitted(X, groups, n_init=1, search=s) for s in ("restarts", "swap"))
    assert np.array_equal(one.cluster_centers_, swap.cluster_centers_)


@pytest.mark.parametrize("n", [160, 600])
def test_starts_of_a_search_are_those_of_restarts_and_in_its_budget(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, groups = data(n)
    monkeypatch.setattr(soft_descent, "FEWEST", 500)
    begun, values, ends, taken = [], [], [], []
    softly, descent = single_start.softly, single_start.descent

    def soft(*a: Any, **k: Any) -> Any:
        begun.append(a[1])
        made = softly(*a, **k)
        values.extend([] if made is None else [made.value])
        return made

    def run(*a: Any, **k: Any) -> Any:
        ends.append(descent(*a, **k))
        return ends[-1]

    def without(problem: Any, best: Any, tried: Any, *, budget: float, **k: Any) -> float:
        taken.append((budget, best, len(ends)))
        return 0.0

    for name, spy in (("softly", soft), ("descent", run)):
        monkeypatch.setattr(single_start, name, spy)
    least = fitted(X, groups, n_init=4).objective_
    starts = begun.copy()
    begun.clear(), ends.clear(), values.clear()
    monkeypatch.setattr(single_start, "swapped", without)
    swap = fitted(X, groups, n_init=4, search="swap")
    ((budget, best, made),) = taken
    assert len(begun) == 4
    np.testing.assert_array_equal(begun, starts)
    assert bool(values) == best.soft == (n > 500)
    assert best.value == min(values or [e.best.objective for e in ends[:made]])
    assert swap.objective_ <= least * (1.0 + 1e-3)  # those of all starts are run to their ends
    if not values:  # what starts took
        own = [len(e.history) for e in ends[:made]]
        assert budget == 3 * (own[0] + single_start.PROOF) - sum(own[1:])
    else:  # near the objective of the one that is run to its end
        assert best.value == pytest.approx(swap.objective_, rel=1e-2)


@pytest.mark.parametrize("clusters", [3, 24])
def test_starts_go_on_from_where_swaps_fail(clusters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups = data()
    drawn, begun = [], []
    start_of = single_start.start_of

    def counted(problem: Any, init: Any, seed: int, limit: float | None) -> Any:
        drawn.append(seed)
        return start_of(problem, init, seed, limit)

    def failing(problem: Any, at: Any, tried: Any, *, budget: float, **k: Any) -> float:
        begun.append((at.value, k["patience"], len(drawn)))
        return budget

    monkeypatch.setattr(single_start, "start_of", counted)
    monkeypatch.setattr(single_start, "swapped", failing)
    monkeypatch.setattr(single_start, "ALL_STARTS", 8)
    seed = 2 if clusters < 8 else 0  # of few clusters, one whose starts leave much of the budget
    of.FairKMeans(clusters, init="random", random_state=seed, n_init=5, search="swap").fit(
        X, groups=groups
    )
    assert len(drawn) == len(set(drawn)) >= 5  # and further ones, where there is room
    # few clusters: all that were asked for first; else one at a time
    assert begun[0][2] == (5 if clusters < 8 else 2)
    assert (np.diff([made for *_, made in begun]) == 1).all()
    assert len({value for value, *_ in begun}) > 1 and min(p for _, p, _ in begun) > 0.0


def test_given_centers_have_swaps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups = data()
    patiences = []
    swapped = single_start.swapped

    def kept(*a: Any, **k: Any) -> float:
        patiences.append(k["patience"])
        return swapped(*a, **k)

    monkeypatch.setattr(single_start, "swapped", kept)
    one, swap = (fitted(X, groups, init=X[:8], n_init=n, search="swap") for n in (1, 6))
    assert patiences and set(patiences) == {np.inf}
    assert swap.objective_ <= one.objective_ * (1.0 + 1e-12)


@pytest.mark.parametrize("metric", ["sqeuclidean", "l1"])
@pytest.mark.parametrize("looked_at", [20_000, 50])
def test_swaps_are_worth_what_the_bound_at_their_centers_says(
    metric: str, looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alternation, "LOOKED_AT", looked_at)
    X, groups = data()
    centers = X[:6]
    p = of.FairAssignment(X, groups=groups, centers=centers, metric=metric)
    prices = 0.1 * np.random.default_rng(1).normal(size=(2, 6))
    cost, w, g = p.cost, p.data["weights"], p.data["groups"]

    def bound(at: Any, priced: Any) -> float:
        costs = replace(cost, centers=at).columns(slice(None)) + priced[g].T
        return float(costs.min(axis=0) @ w)

    swaps = alternation._swaps(p, centers, prices, np.random.default_rng(0), 3)
    assert len(swaps) > alternation.SINGLE
    for worth, moved, priced in swaps:
        assert (moved != centers).any() and moved.shape == centers.shape
        if looked_at > len(X):
            apart = bound(moved, priced) - bound(centers, prices)
            assert worth == pytest.approx(apart, rel=1e-9, abs=1e-9)
    changed = [(priced != prices).any(axis=0).sum() for _, _, priced in swaps]
    assert max(changed[: alternation.SINGLE]) <= 1 and max(changed) <= 3


def test_several_swaps_at_a_time_are_fewer_after_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups = data()
    p = of.FairAssignment(X, groups=groups, centers=X[:6])
    asked, values = [], [9.0, 11.0, 10.99999, 8.0, 8.0 * (1.0 - 1e-6), 12.0]

    def swaps(*a: Any) -> Any:
        asked.append(a[-1])
        return [(-1.0, X[:6], None)]

    def tried(at: Any, prices: Any) -> Any:
        return alternation.Tried(values[len(asked) - 1], at, prices, 1.0, False)

    monkeypatch.setattr(alternation, "_swaps", swaps)
    start = alternation.Tried(10.0, X[:6], None, 1.0, False)
    each = 1.0 + alternation.LOOK

    def left() -> float:
        rng = np.random.default_rng(0)
        limits = {"budget": 100.0, "patience": 2 * each, "deadline": np.inf}
        return alternation.swapped(p, start, tried, rng=rng, **limits)

    # a fall that counts gives patience anew; the third failure in a row would be one too many
    assert left() == 100.0 - 3 * each and asked == [4, 4, 2]
    values[2:4] = [8.0, 11.0]
    asked.clear()
    left()
    assert asked == [4, 4, 2, 4, 2]


@pytest.mark.filterwarnings("ignore:the best start ended by time_limit")
def test_a_time_limit_ends_the_search() -> None:
    X, groups = data()
    swap = fitted(X, groups, n_init=10_000, search="swap", time_limit=0.5)
    assert swap.restarts_[0].seconds < 20.0 and swap.gap_ <= 1e-9


def test_few_rows_get_many_starts_by_default() -> None:
    X, groups = data(40)
    model = of.FairKMeans(2, random_state=0, max_iter=3, tol=0.5)
    assert len(model.fit(X, groups=groups).restarts_) == 50
    X, groups = data(60)
    assert len(model.fit(X, groups=groups).restarts_) == 10


def test_what_swaps_do_not_go_with_is_refused() -> None:
    X, groups = data()
    with pytest.raises(DeclarationError, match="paper"):
        fitted(X, groups, search="swap", algorithm="paper", fairness=of.perfect_fairness())
    with pytest.raises(DeclarationError, match="unknown search"):
        fitted(X, groups, search="tabu")
