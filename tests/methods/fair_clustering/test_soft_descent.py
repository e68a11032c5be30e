"""Centers near a fair clustering from rows that choose softly, and centers beyond their means."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.methods.fair_clustering.algorithms import soft_descent
from optfair.methods.fair_clustering.algorithms.costs import CostRows
from optfair.methods.fair_clustering.algorithms.descent import (
    HeldRows,
    Mixing,
    descend,
)
from optfair.methods.fair_clustering.algorithms.entropic_projection import price_step
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.pricing import (
    MassPass,
    followed_prices,
    price,
    smallest_ratio,
)
from optfair.methods.fair_clustering.algorithms.soft_descent import Scale, smoothed_start
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.mass_rules import compile_rules

RULES = {
    "perfect": of.perfect_fairness(),
    "gap": of.max_gap(0.05),
    "sum": of.additive_gap(0.05),
}


def problem(rule, n=2_400, K=6, weighted=False):
    rng = np.random.default_rng(3)
    groups = (rng.random(n) < 0.3).astype(int)
    X = 4.0 * rng.normal(size=(K, 3))[rng.integers(0, K, n)] + rng.normal(size=(n, 3))
    X[:, 0] += 2.0 * groups
    weights = rng.uniform(0.5, 2.0, n) if weighted else None
    return FairAssignment(X, groups=groups, centers=X[:K], fairness=rule, sample_weight=weights)


def rows_of(p):
    return CostRows(p.cost, p.data["groups"], p.data["weights"])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_centers_and_prices_are_near_an_exact_alternation(name, weighted):
    p = problem(RULES[name], weighted=weighted)
    begun = smoothed_start(compile_rules(p).program, rows_of(p), tol=1e-6, max_iter=300)
    there = p.with_centers(begun.centers)
    exact = there.solve("mass-dual")
    # what the prices prove of the assignment at these centers, beside the exact optimum
    value = price(rows_of(there), begun.prices).value
    own = price(rows_of(there), exact.multipliers["mass definition"]).value
    assert abs(value - own) <= 0.02 * exact.objective
    model = of.FairKMeans(6, fairness=RULES[name], init=p.cost.points[:6], tol=1e-6)
    model.fit(p.cost.points, groups=p.data["groups"], sample_weight=p.data["weights"])
    assert exact.objective <= 1.02 * model.objective_
    assert model.gap_ <= 1e-6
    assert (np.diff(model.history_) <= 0.0).all()
    # plain exact iterations from there find next to nothing
    held = HeldRows(compile_rules(p).program, p.cost, p.data["groups"], p.data["weights"], 1.0)
    on = descend(model.cluster_centers_, held.assign, held.move, max_iter=5, tol=1e-5, rise=1e-6)
    assert model.objective_ <= on.best.objective * (1.0 + 1e-4)


@pytest.mark.parametrize("case", ["few rows", "no rules", "one iteration"])
def test_what_it_does_not_pay_for_is_left_to_exact_iterations(case):
    p = problem(
        None if case == "no rules" else RULES["perfect"], n=300 if case == "few rows" else 2_400
    )
    most = 1 if case == "one iteration" else 300
    assert smoothed_start(compile_rules(p).program, rows_of(p), tol=1e-6, max_iter=most) is None


def test_units_and_origin_do_not_matter():
    p = problem(RULES["perfect"])
    q = FairAssignment(
        1e6 * p.cost.points + 3e7, groups=p.data["groups"], centers=1e6 * p.cost.centers + 3e7
    )
    small = FairAssignment(
        1e-4 * p.cost.points, groups=p.data["groups"], centers=1e-4 * p.cost.centers
    )
    a, b, e = (
        smoothed_start(compile_rules(r).program, rows_of(r), tol=1e-6, max_iter=300)
        for r in (p, q, small)
    )
    assert np.allclose(e.centers, 1e-4 * a.centers, rtol=0.0, atol=2e-6)
    assert np.allclose(b.centers, 1e6 * a.centers + 3e7, rtol=0.0, atol=2e4)
    # a constant for all clusters of a group moves no row
    c, d = (r.prices - r.prices.mean(axis=1, keepdims=True) for r in (a, b))
    assert np.allclose(d, 1e12 * c, rtol=0.0, atol=2e10 * np.abs(c).max())


def test_centers_beyond_their_means_never_raise_the_objective():
    p = problem(RULES["perfect"])
    held = HeldRows(compile_rules(p).program, p.cost, p.data["groups"], p.data["weights"], 1.0)
    plain, far = (
        descend(
            p.cost.centers, held.assign, held.move, max_iter=200, tol=1e-7, rise=1e-9, mixed=mixed
        )
        for mixed in (False, True)
    )
    assert (np.diff(far.history) <= 0.0).all() and far.status == "converged"
    assert far.best.objective <= 1.01 * plain.best.objective
    # the last step is plain: the means of the last assignment gain next to nothing
    means, _ = held.move(far.best)
    on = held.assign(means, far.best, np.inf)
    assert on.objective >= far.best.objective * (1.0 - 1e-7)


def test_mixed_centers_solve_a_slow_iteration_in_few_steps():
    end = np.random.default_rng(0).normal(size=(3, 2))
    slow = np.array([[0.95, 0.8], [0.8, 0.95], [0.95, 0.8]])
    at, mixing = np.zeros((3, 2)), Mixing()
    beyond = []
    for _ in range(5):
        at, far = mixing.ahead(at, end + slow * (at - end))
        beyond.append(far)
    assert np.allclose(at, end, atol=1e-6)  # 270 plain steps
    assert beyond == [False] + 4 * [True]


def test_prices_follow_centers_but_not_where_they_drown_costs():
    p = problem(RULES["perfect"])
    far = np.vstack([p.cost.centers, [[1e6, 0.0, 0.0]]])  # holds nothing: it gets another row
    X, groups = p.cost.points, p.data["groups"]
    q = FairAssignment(X, groups=groups, centers=far)
    stated = compile_rules(q).program, q.cost, q.data["groups"], q.data["weights"], 1.0
    held = HeldRows(*stated)
    first = held.assign(far, None, np.inf)
    moved, reseeded = held.move(first)
    assert reseeded == [6]
    at = first.answer.boundary
    prices = followed_prices(first.answer.prices, q.cost, at, far, moved, first.objective)
    assert np.array_equal(prices[:, 6], first.answer.prices[:, 6])
    # what rows at the boundary of the others pay stays what it was
    shift = (np.square(at - far) - np.square(at - moved)).sum(axis=2)[:, :6]
    some = np.isfinite(shift)
    changed = (prices - first.answer.prices)[:, :6]
    assert some.any() and np.abs(changed[some]).max() > 0.1
    assert np.allclose(changed[some], shift[some]) and not changed[~some].any()
    # multipliers have those that the search begins with, but for a constant a group: the nearest
    begun, rules = held._followed(first, moved), held.program
    A = rules.form.A.toarray()[:, rules.masses.ravel()].T
    span = np.hstack([A, np.kron(np.eye(len(prices)), np.ones((7, 1)))])
    nearest = span @ np.linalg.lstsq(span, prices.ravel(), rcond=None)[0]
    apart = begun - nearest.reshape(prices.shape)
    assert np.allclose(apart, apart.mean(axis=1, keepdims=True), atol=1e-8)
    assert np.allclose(A @ np.linalg.lstsq(A, begun.ravel(), rcond=None)[0], begun.ravel())
    assert np.abs(begun - prices).max() > 0.1
    loose = compile_rules(problem(of.max_gap(0.05))).program  # not equations: as they are
    assert np.array_equal(loose.possible(prices[:, :6]), prices[:, :6])
    run = descend(far, held.assign, held.move, max_iter=300, tol=1e-7, rise=1e-9, mixed=True)
    fresh = HeldRows(*stated).assign(run.best.centers, None, np.inf)
    assert run.best.objective == pytest.approx(fresh.objective, rel=1e-9)
    assert (np.diff(run.history) <= 0.0).all()


@pytest.mark.parametrize(("name", "only"), [("perfect", True), ("gap", False), ("sum", False)])
def test_rules_of_equations_are_told_from_others(name, only):
    program = compile_rules(problem(RULES[name], n=60)).program
    assert isinstance(program, MassProgram) and program.only_equations == only
    form = program.form.moved({"P": sp.eye_array(program.form.q.size, format="csc")})
    assert not replace(program, form=form).only_equations
    assert not replace(program, masses=program.masses[:, :-1]).only_equations


@pytest.mark.parametrize("name", ["gap", "sum"])
def test_damped_prices_are_those_of_the_whole_model(name):
    p = problem(RULES[name])
    program, (G, K) = compile_rules(p).program, (2, 6)
    rng = np.random.default_rng(1)
    masses = rng.dirichlet(np.ones(K), G) * program.shares[:, None]
    root = rng.normal(size=(G, K, K))
    curved = root @ root.transpose(0, 2, 1) / K + 0.1 * np.eye(K)
    prices = rng.normal(size=(G, K))
    nothing = [np.zeros(3)] * 2  # the middle of the rows, and the centers
    scale = soft_descent.Scale(nothing[0], 1.0)
    search = soft_descent._Search(program, None, scale, nothing[1], prices, 1, 1.0, np.inf)
    y, z = search._solved(program, masses, curved, 1.0)
    model = price_step(program, MassPass(0.0, masses, curved), prices, 1e3, None)
    assert np.allclose(y[program.masses], model.y[program.masses], atol=1e-6)
    # a constant in all prices of a group changes nothing
    a, b = (program.prices(*found) for found in ((y, z), (model.y, model.z)))
    assert np.allclose(*(v - v.mean(axis=1, keepdims=True) for v in (a, b)), atol=1e-5)
    assert np.abs(a - prices).max() > 0.1


def test_prices_of_equations_take_newtons_step():
    rng, K, G = np.random.default_rng(4), 4, 3
    X, groups = rng.normal(size=(60, 2)), np.repeat([0, 1, 2], [30, 20, 10])
    program = compile_rules(FairAssignment(X, groups=groups, centers=X[:K])).program
    masses = rng.dirichlet(np.ones(K), G) * program.shares[:, None]
    root = rng.normal(size=(G, K, K))
    curved = root @ root.transpose(0, 2, 1) / K + 0.1 * np.eye(K)
    nothing = np.zeros(2)  # the middle of the rows, and the centers
    given = program, None, Scale(nothing, 1.0), nothing, np.zeros((G, K)), 1, 1.0, np.inf
    search = soft_descent._Search(*given)
    search.curvature, z = curved, rng.normal(size=program.form.b.size)
    point = MassPass(0.0, masses, curved)
    y, moved, distance = search._step(program, point, z, 1.0, 0.0)
    newton = price_step(program, point, np.zeros((G, K)), 1e9, z)
    assert np.allclose(y[program.masses], masses)
    assert distance == pytest.approx(np.abs(program.form.A @ y - program.form.b).max())
    a, b = (program.prices(y, own) for own in (moved, newton.z))
    assert np.abs(a - program.prices(y, z)).max() > 0.1
    # a constant in all prices of a group changes nothing
    assert np.allclose(*(v - v.mean(axis=1, keepdims=True) for v in (a, b)), atol=1e-6)


@pytest.mark.parametrize("tile", [1, 3, 15])
@pytest.mark.parametrize("curved", [False, True])
def test_sums_of_rows_are_those_of_their_fractions(tile, curved, monkeypatch):
    monkeypatch.setattr(soft_descent, "TILE", tile)
    rng = np.random.default_rng(2)
    groups, X = np.repeat([0, 1], [5_000, 1_200]), rng.normal(size=(6_200, 3))
    w, centers = rng.uniform(0.5, 1.5, 6_200) / 6_200, rng.normal(size=(4, 3))
    prices, tau, scale = 0.1 * rng.normal(size=(2, 4)), 0.3, Scale(np.zeros(3), 1.0)
    soft = soft_descent.SoftRows(X, groups, w, scale).at(centers, prices, tau, curved)
    S = -(((X[:, None] - centers) ** 2).sum(axis=2) + prices[groups]) / tau
    R = np.exp(S - S.max(axis=1, keepdims=True))
    R /= R.sum(axis=1, keepdims=True)
    assert np.allclose(soft.sums, (w[:, None] * R).T @ X, atol=1e-5)
    assert (soft.mass.curvature is None) != curved
    for g in range(2):
        own = groups == g
        held = w[own, None] * R[own]
        assert np.allclose(soft.mass.masses[g], held.sum(axis=0), atol=1e-5)
        if curved:
            H = np.diag(held.sum(axis=0)) - held.T @ R[own]
            assert np.allclose(soft.mass.curvature[g], H, atol=1e-5)


def test_centers_that_swing_about_their_means_go_to_these(monkeypatch):
    """In half as many moves; where they end differs by CPU, by no more than starts do."""
    monkeypatch.setattr(soft_descent, "FEWEST", 500)
    moves, costs = np.zeros(2), np.zeros(2)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, groups = rng.normal(size=(600, 2)) ** 3, (rng.random(600) < 0.3).astype(int)
        p = FairAssignment(X, groups=groups, centers=X[:20])
        for k, swings in enumerate((8, 10**9)):
            monkeypatch.setattr(soft_descent, "SWINGS", swings)
            begun = smoothed_start(compile_rules(p).program, rows_of(p), tol=1e-6, max_iter=300)
            moves[k] += begun.moves
            costs[k] += p.with_centers(begun.centers).solve("mass-dual").objective
    assert moves[0] < 0.7 * moves[1] and costs[0] < 1.3 * costs[1]


def test_the_balance_is_the_smallest_ratio_of_any_cluster():
    assert smallest_ratio(np.array([[3.0, 1.0, 0.0], [2.0, 4.0, 0.0]])) == 0.25
    assert smallest_ratio(np.array([[3.0, 1.0], [3.0, 1.0]])) == 1.0


def test_the_unit_of_rows_is_the_root_of_their_spread():
    X, weights = np.array([[0.0, 0.0], [30.0, 40.0]]), np.array([3.0, 1.0])
    scale = Scale.of(X, weights)
    assert scale.middle.tolist() == [7.5, 10.0] and scale.unit == pytest.approx(12.5 * np.sqrt(3))
    assert Scale.of(np.full((3, 2), 5.0), np.ones(3)).unit == 1.0
