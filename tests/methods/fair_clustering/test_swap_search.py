"""Swaps never end higher than where they started, and stay within their budget."""

from __future__ import annotations

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

    def soft(*a: Any) -> Any:
        begun.append(a[1])
        made = softly(*a)
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


@pytest.mark.slow
def test_where_swaps_fail_starts_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups = data()
    drawn, failed = [], []
    start_of = single_start.start_of

    def counted(problem: Any, init: Any, seed: int, limit: float | None) -> Any:
        drawn.append(seed)
        return start_of(problem, init, seed, limit)

    def failing(problem: Any, best: Any, tried: Any, *, budget: float, **k: Any) -> float:
        failed.append((k["most"], best.value))
        return budget

    monkeypatch.setattr(single_start, "start_of", counted)
    monkeypatch.setattr(single_start, "swapped", failing)
    monkeypatch.setattr(single_start, "LOOKS", 1.0)
    fitted(X, groups, n_init=30, search="swap")
    assert len(drawn) == len(set(drawn)) > len(failed) > 1  # looked at, and later those of failures
    assert {most for most, _ in failed[:-1]} == {single_start.FAILED}
    assert (np.diff([objective for _, objective in failed]) <= 0.0).all()


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
