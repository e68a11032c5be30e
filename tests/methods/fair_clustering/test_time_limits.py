"""Time limits of fair clusterings: kept by a clock of passes, with an incumbent and its gap."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

import optfair as of
from optfair.methods.fair_clustering.algorithms.costs import CostRows, SeparableCost
from optfair.methods.fair_clustering.algorithms.descent import HeldRows
from optfair.methods.fair_clustering.algorithms.price_search import PriceSearch
from optfair.methods.fair_clustering.algorithms.restricted_master import solve_master
from optfair.methods.fair_clustering.algorithms.soft_descent import SoftRows
from optfair.methods.fair_clustering.labels import hard_labels
from optfair.methods.fair_clustering.mass_rules import compile_rules

ROWS = 3_000
# Seconds of the clock that the last steps take, which are made whatever the limit.
OVER = 25.0


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, ROWS)
    return rng.normal(size=(ROWS, 3)) + 0.5 * groups[:, None], groups


class PassClock:
    """A clock that goes by a second for every pass over all rows, of plain k-means too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        columns, softly, plain = SeparableCost.columns, SoftRows.at, KMeans.fit

        def priced(cost: Any, rows: Any) -> Any:
            block = columns(cost, rows)
            self.now += block.shape[1] / ROWS
            return block

        def chosen(rows: Any, *args: Any) -> Any:
            self.now += 1.0
            return softly(rows, *args)

        def fitted(model: Any, *args: Any, **given: Any) -> Any:
            result = plain(model, *args, **given)
            self.now += result.n_iter_
            return result

        monkeypatch.setattr(SeparableCost, "columns", priced)
        monkeypatch.setattr(SoftRows, "at", chosen)
        monkeypatch.setattr(KMeans, "fit", fitted)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


@pytest.mark.filterwarnings("ignore:the best start ended by time_limit")
@pytest.mark.parametrize("rule", [of.perfect_fairness(), of.balance(0.5)], ids=str)
@pytest.mark.parametrize("limit", [1e-3, 40.0])
def test_a_limit_is_kept_with_what_is_at_hand(
    data: Any, rule: Any, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, groups = data
    model = of.FairKMeans(8, fairness=rule, n_init=1, random_state=0)
    least = model.fit(X, groups=groups).objective_
    clock = PassClock(monkeypatch)
    model.set_params(n_init=3, time_limit=limit).fit(X, groups=groups)
    assert model.status_ == "time_limit" and clock.now <= limit + OVER
    assert model.solution_.residuals().feasibility <= 1e-9
    assert 0.0 <= model.gap_ <= 0.7 and model.objective_ <= 2.0 * least
    assert model.solution_.bound <= model.objective_


def test_a_first_assignment_that_is_cut_short_has_no_rows(data: Any) -> None:
    X, groups = data
    p = of.FairAssignment(X, groups=groups, centers=X[:5])
    stated = compile_rules(p).program, p.cost, p.data["groups"], p.data["weights"]
    rows = HeldRows(*stated, 1.0, np.ones((3, 5)))
    first = rows.assign(X[:5], None, 0.0)
    assert first is not None and first.status == "time_limit"
    assert first.objective == first.gap == np.inf and not first.answer.rows.size
    assert np.array_equal(first.answer.prices, np.ones((3, 5)))
    whole = rows.assign(X[:5], None, np.inf)
    assert whole is not None and whole.status == "optimal" and whole.gap <= 1e-9
    assert rows.assign(X[1:6], whole, 0.0) is None


def test_a_solver_whose_clock_is_ahead_ends_the_search(
    data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, groups = data

    def late(*args: Any, **given: Any) -> Any:
        return replace(solve_master(*args, **given), status="time_limit")

    monkeypatch.setattr(f"{PriceSearch.__module__}.solve_master", late)
    p = of.FairAssignment(X, groups=groups, centers=X[:4])
    costs = CostRows(p.cost, p.data["groups"], p.data["weights"])
    search = PriceSearch(compile_rules(p).program, costs, 1e-9, time.perf_counter() + 600.0)
    assert search.run(None) == "time_limit"


def test_a_limit_is_of_all_starts(data: Any) -> None:
    X, groups = data[0][:300], data[1][:300]
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = of.FairKMeans(4, n_init=50, time_limit=1e-9, random_state=0).fit(X, groups=groups)
    assert len(model.restarts_) == 1 and model.gap_ <= 1.0
    plenty = of.FairKMeans(4, n_init=3, time_limit=600.0, random_state=0).fit(X, groups=groups)
    assert len(plenty.restarts_) == 3
    whole = of.FairKMeans(4, n_init=3, random_state=0).fit(X, groups=groups)
    assert np.allclose(plenty.cluster_centers_, whole.cluster_centers_, atol=1e-9)


@pytest.mark.filterwarnings("ignore:the best start ended by time_limit")
def test_branching_on_labels_takes_no_longer_than_starts(
    data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, groups = data
    given = []

    def timed(solution: Any, **limits: float) -> Any:
        given.append(limits["time_limit"])
        return hard_labels(solution, **limits)

    monkeypatch.setattr(f"{of.FairKMeans.__module__}.hard_labels", timed)
    rule, limit = of.max_gap(0.1), 1e-3
    model = of.FairKMeans(3, fairness=rule, labels="hard", time_limit=limit, random_state=0)
    model.fit(X[:300], groups=groups[:300])
    assert given == [limit]


@pytest.mark.filterwarnings("ignore:the best start ended by time_limit")
def test_linked_rows_have_a_first_point_whatever_the_limit(data: Any) -> None:
    X, groups = data[0][:200], data[1][:200]
    fc, pairs = of.fair_clustering, np.random.default_rng(0).permutation(200).reshape(-1, 2)
    rules = [of.max_gap(0.1), of.cluster_share(lower=0.2), fc.cannot_link(pairs[:60])]
    for more in ([], [fc.must_link(pairs[60:])]):
        model = of.FairKMeans(4, fairness=[*rules, *more], n_init=1, time_limit=1e-9)
        found = model.set_params(random_state=0).fit(X, groups=groups).solution_
        assert model.status_ == "time_limit" and found.residuals().feasibility <= 1e-9
        best = found.problem.solve()
        assert found.bound <= best.objective * (1 + 1e-9) <= found.objective * (1 + 2e-9)
