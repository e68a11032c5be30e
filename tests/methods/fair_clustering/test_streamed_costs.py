"""Costs of groups in passes: budgets and the largest mean cost of a group are those of rows in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import optfair as of
from optfair.errors import DeclarationError, Infeasible, SolverFailure
from optfair.methods.fair_clustering import kmeans_fit
from optfair.methods.fair_clustering.algorithms import (
    charged_passes,
    passed_rows,
    price_search,
    row_passes,
)
from optfair.methods.fair_clustering.algorithms.charged_rows import Demands, GroupMoments
from optfair.methods.fair_clustering.algorithms.descent import Assigned
from optfair.methods.fair_clustering.algorithms.pricing import Box
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.rows.sources import MatrixRows
from optfair.rows.survey import surveyed


def rows(n: int = 2000, groups: int = 3, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) + 2.0 * rng.integers(0, 4, n)[:, None]
    g = np.floor(groups * rng.random(n) ** (1 + 0.2 * X[:, 0].clip(-2, 5))).astype(int)
    return X, g, rng.integers(1, 4, n).astype(float)


def chunked(X: Any, g: Any, w: Any, size: int = 777) -> Any:
    def read() -> Any:
        for i in range(0, len(X), size):
            yield X[i : i + size], g[i : i + size], w[i : i + size]

    return read


def budgets(X: Any, g: Any, w: Any, unit: float, rule: Any) -> Any:
    """A budget that binds the dearest group, and one that leaves room."""
    fit = of.FairKMeans(4, fairness=rule, n_init=1, random_state=0).fit(
        X, groups=g, sample_weight=w
    )
    p = fit.solution_.problem
    paid = fit.soft_assignment_ * p.cost.matrix()
    mean = np.bincount(g, w * paid.sum(axis=1)) / np.bincount(g, w)
    names = p.data["group_names"][np.argsort(mean)].tolist()
    most = {names[-1]: 0.97 * mean.max(), names[-2]: 1.2 * np.sort(mean)[-2]}
    return [rule, of.fair_clustering.group_cost(most)]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("asked", ["worst", "worst of any", "budgets", "budgets and worst"])
def test_equal_to_the_fit_in_memory(
    asked: str, unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, g, w = rows()
    X *= unit
    rule: Any = None if asked == "worst of any" else of.max_gap(0.05)
    if "budgets" in asked:
        rule = budgets(X, g, w, unit, rule)
    goal = "group" if "worst" in asked else "mean"
    monkeypatch.setattr(kmeans_fit, "LARGE", 1000)
    model = of.FairKMeans(4, fairness=rule, goal=goal, n_init=1, random_state=0)
    a = of.FairKMeans(**model.get_params()).fit(X, groups=g, sample_weight=w)
    b = model.fit_stream(chunked(X, g, w))
    assert np.abs(a.cluster_centers_ - b.cluster_centers_).max() <= 1e-7 * unit
    # each within its gap of the same optimum
    assert b.objective_ == pytest.approx(a.objective_, rel=1e-6)
    assert 0.0 <= b.gap_ <= 2e-8 and b.n_passes_ > 3
    np.testing.assert_allclose(b.masses_, a.masses_, atol=1e-4)
    # prices are not unique where an optimum is a vertex; labels by them are of the same cost
    labels = np.concatenate(list(b.predict_stream(chunked(X, g, w))))
    assert (labels == a.predict(X, groups=g)).mean() >= 0.99
    assert b.cost_ == pytest.approx(a.cost_, rel=1e-2)


def test_few_rows_are_held() -> None:
    X, g, w = rows(500)
    model = of.FairKMeans(3, fairness=None, goal="group", n_init=1, random_state=0)
    a = of.FairKMeans(**model.get_params()).fit(X, groups=g, sample_weight=w)
    b = model.fit_stream(chunked(X, g, w))
    assert b.objective_ == pytest.approx(a.objective_, rel=1e-9)
    assert b.n_passes_ == 1 and not hasattr(b, "labels_")


@pytest.mark.parametrize("far", [0.0, 1e6])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_pass_with_factors_is_the_one_in_double(unit: float, far: float) -> None:
    X, g, w = rows(6000)
    X[:3000] = np.round(X[:3000])
    X = (X + far) * unit
    shape, centers, rng = (3, 5), X[::1200], np.random.default_rng(2)
    prices = np.round(rng.normal(size=shape), 1) * unit**2
    up = np.where(rng.random(shape) < 0.1, np.inf, 0.01)
    box = Box(0.3 * rng.random(shape) * unit**2, up * unit**2)
    f = np.array([0.25, 1.5, 8.0])
    source = MatrixRows(X, g, w)
    passed = row_passes.AssignmentPass(surveyed(source).header, centers, prices, box, f)
    part = source.map_reduce(passed, row_passes.joined)
    cost = ((X[:, None] - centers) ** 2).sum(axis=2)
    reduced, at = f[g, None] * cost + prices[g], np.arange(6000)
    best, low = reduced.argmin(axis=1), reduced.min(axis=1)
    regret = reduced - box.down[g]
    regret[at, best] = np.inf
    free = regret.min(axis=1) <= low + box.up[g, best]
    assert len(part.open.X) == free.sum() > 0
    u = w / w.sum()
    size = np.bincount(g, u * np.abs(reduced).max(axis=1)).max()
    assert f * part.value == pytest.approx(np.bincount(g, u * low), rel=1e-12, abs=1e-12 * size)
    settled = u * ~free
    assert part.cost == pytest.approx(np.bincount(g, settled * cost[at, best]), rel=1e-12)
    cell = (settled[:, None] * ((g * 5 + best)[:, None] == np.arange(15))).T
    np.testing.assert_allclose(part.masses.ravel(), cell.sum(axis=1), atol=1e-14)
    np.testing.assert_allclose(part.sums, cell @ X, rtol=1e-11, atol=1e-12 * unit)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_what_groups_cost_at_other_centers_follows_from_sums(unit: float) -> None:
    X, g, w = rows(400)
    X, w, rng = X * unit, w / w.sum(), np.random.default_rng(0)
    A = rng.dirichlet(np.ones(4), 400)
    cell = np.zeros((3, 4, 400))
    cell[g, :, np.arange(400)] = w[:, None] * A
    shares = np.bincount(g, w)

    def costs(centers: Any) -> Any:
        far = ((X[:, None] - centers) ** 2).sum(axis=2)
        return np.bincount(g, w * (A * far).sum(axis=1)) / shares

    masses, sums = cell.sum(axis=2), cell @ X
    moments = GroupMoments(masses, sums, costs(X[:4]), X[:4], shares)
    assert moments.costs_at(X[4:8]) == pytest.approx(costs(X[4:8]), rel=1e-12)
    # one group that counts: its own means are best
    upper, duals = np.full(3, np.inf), np.zeros((2, 3))
    duals[0] = shares
    best = moments.best_centers(Demands(upper=upper), 0.0, duals, 1e3)
    assert best == pytest.approx(sums.sum(axis=0) / masses.sum(axis=0)[:, None], rel=1e-9)


def test_budgets_that_no_assignment_keeps_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    X, g, w = rows()
    least = of.fair_clustering.group_cost({2: 1e-3})
    model = of.FairKMeans(3, fairness=least, n_init=1, random_state=0)
    with pytest.raises(Infeasible, match="cannot hold"):
        of.FairKMeans(**model.get_params()).fit(X, groups=g)
    monkeypatch.setattr(kmeans_fit, "LARGE", 1000)
    with pytest.raises(SolverFailure, match=r"budgets of 2\n.*more than its budget"):
        model.fit_stream(chunked(X, g, w))


def test_rules_on_single_rows_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    X, g, w = rows(300)
    own = {"near": of.fair_clustering.radius(1e3), "paid": of.fair_clustering.group_cost(1e3)}
    with pytest.raises(DeclarationError, match=r"costs of groups, not near\n"):
        of.FairKMeans(2, fairness=own).fit_stream(chunked(X, g, w))
    for more in ({"goal": "group"}, {"fairness": of.fair_clustering.group_cost(1e3)}):
        with pytest.raises(DeclarationError, match="counts of rows"):
            of.FairKMeans(2, labels="hard", **more).fit_stream(chunked(X, g, w))


def passes(X: Any, g: Any, w: Any) -> charged_passes.ChargedPasses:
    p = of.FairAssignment(X, groups=g, centers=X[:4], sample_weight=w, goal="group")
    source = MatrixRows(X, g, w)
    stated = compile_rules(p).program, source, surveyed(source), 1.0
    return charged_passes.ChargedPasses(*stated, demands=p.demands)


def test_an_assignment_without_time_for_one_search_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, g, w = rows()
    made = passes(X, g, w)
    first = made.assign(X[:4], None, 0.0)  # whatever the limit
    assert isinstance(first, Assigned) and first.status == "optimal" and first.gap <= 1e-6
    moved, empty = made.move(first)
    assert empty == []
    monkeypatch.setattr(passed_rows.PassedSearch, "assign", lambda self, prices: None)
    assert made.assign(moved, first, 1.0) is None
    with pytest.raises(SolverFailure, match="passes made"):
        made.assign(moved, None, 1.0)


@pytest.mark.parametrize("goal", ["mean", "group"])
@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_keeps_the_assignment_before(
    again: bool, goal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in the second assignment, and again while the last bound is made
    X, g, w = rows()
    monkeypatch.setattr(kmeans_fit, "LARGE", 1000)
    kind = charged_passes.ChargedPasses if goal == "group" else passed_rows.PassedRows
    assign, made, left = kind.assign, [], [2 if again else 1]

    def counted(self: Any, *given: Any, **more: Any) -> Any:
        made.append(1)
        return assign(self, *given, **more)

    price = passed_rows.PassedSearch._price

    def stopped(self: Any, *given: Any) -> Any:
        if len(made) > 3 - left[0] and left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        return price(self, *given)

    monkeypatch.setattr(kind, "assign", counted)
    monkeypatch.setattr(passed_rows.PassedSearch, "_price", stopped)
    model = of.FairKMeans(4, goal=goal, init=X[:4], tol=0.0)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit_stream(chunked(X, g, w))
    assert not left[0] and model.status_ == "interrupted" and model.n_iter_ >= 1
    assert model.gap_ <= 1e-6


def test_faint_groups_need_no_smoothed_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors are orders apart: prices are searched for by boxes alone, from wherever they start."""
    X, g, w = rows(8000)
    monkeypatch.setattr(price_search, "FAR", 0)

    def unwanted(*given: Any) -> Any:
        raise AssertionError("a smoothed pass")

    of_rows = passes(X, g, w)
    monkeypatch.setattr(passed_rows, "SmoothedPass", unwanted)
    for factors in (np.array([1e-5, 1.0, 2.0]), np.array([1.0, 1e-3, 2.0])):
        search = passed_rows.PassedSearch(of_rows, X[:4], factors=factors)
        ended = search.assign(np.zeros((3, 4)))
        assert ended is not None and ended.status == "optimal"
        assert ended.bound == pytest.approx(ended.objective, rel=1e-8)
    plain = passed_rows.PassedSearch(of_rows, X[:4])
    with pytest.raises(AssertionError, match="smoothed"):
        plain.assign(np.zeros((3, 4)))
