"""Restricted masters: written with few rows, they are the linear programs they stand for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import optfair as of
from optfair.methods.fair_clustering.algorithms import restricted_master
from optfair.methods.fair_clustering.algorithms.costs import price_unit
from optfair.methods.fair_clustering.algorithms.linked_rows import _Master
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram, stacked
from optfair.methods.fair_clustering.algorithms.price_search import PriceSearch
from optfair.methods.fair_clustering.algorithms.restricted_master import Arcs, RestrictedMaster
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.proofs.cones import Cone

K = 3
CELLS = [(g, k) for g in range(2) for k in range(K)]


def program() -> MassProgram:
    """Return the rules of perfect fairness of two groups of 12 and 8 rows."""
    groups = np.repeat([0, 1], [12, 8])
    X = np.arange(40.0).reshape(20, 2)
    problem = of.FairAssignment(X, groups=groups, centers=X[:K])
    return compile_rules(problem).program


def arcs_of(rng: Any, shares: Any) -> Arcs:
    """Return rows with one, two or three arcs, and masses of others."""
    sizes = rng.integers(1, K + 1, 9)
    row = np.repeat(np.arange(9), sizes)
    cluster = np.concatenate([np.sort(rng.permutation(K)[:size]) for size in sizes])
    regret = rng.integers(0, 5, row.size) * 0.25
    regret -= np.minimum.reduceat(regret, np.flatnonzero(np.diff(row, prepend=-1)))[row]
    group = np.r_[np.zeros(5, int), np.ones(4, int)]
    weight = rng.integers(1, 4, 9) / 100.0
    own = np.array([weight[group == g].sum() for g in range(2)])
    spread = rng.dirichlet(np.ones(K), 2)
    return Arcs(row, cluster, regret, group, weight, spread * (shares - own)[:, None])


def as_it_stands(model: RestrictedMaster) -> float:
    """Return the least cost of all columns under all rows, by another solver's front."""
    rows = stacked((*model.equations(), model.rules), model.size)
    even = np.ones(rows.shape[0], dtype=bool)
    for c in model.cones:
        even[model.equal.size :][c.start : c.stop] = c.kind == "zero"
    sides = np.concatenate([model.equal, model.right])
    lower = np.zeros(model.size)
    lower[: model.ny] = -np.inf
    lower[model.program.masses] = -model.arcs.fixed / model.unit
    answer = scipy.optimize.linprog(
        model.cost,
        A_ub=rows[~even] if (~even).any() else None,
        b_ub=sides[~even] if (~even).any() else None,
        A_eq=rows[even],
        b_eq=sides[even],
        bounds=np.stack([lower, np.full(model.size, np.inf)], axis=1),
    )
    assert answer.status == 0
    return float(answer.fun)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["rules", "masses", "pairs"]), st.booleans())
def test_masters_cost_what_their_whole_program_does(seed: int, kind: str, presolve: bool) -> None:
    rng, rules = np.random.default_rng(seed), program()
    arcs = arcs_of(rng, rules.shares)
    prices = rng.normal(size=(2, K))
    box = (rng.uniform(0.5, 3.0, (2, K)), rng.uniform(0.5, 3.0, (2, K)))
    if kind == "pairs":
        ends = np.array([[i, j] for i in range(5) for j in range(i)])
        both = ends[rng.permutation(len(ends))[:2]]
        pairs = np.array(
            [
                [np.flatnonzero((arcs.row == r) & (arcs.cluster == k))[0] for r in pair]
                for pair in both
                for k in range(K)
                if all(((arcs.row == r) & (arcs.cluster == k)).any() for r in pair)
            ],
            dtype=np.intp,
        ).reshape(-1, 2)
        # rows that have no other arc may not exclude each other
        single = np.bincount(arcs.row)[arcs.row] == 1
        pairs = pairs[~single[pairs].all(axis=1)]
        model: RestrictedMaster = _Master(rules, arcs, prices, box, pairs)
    else:
        masses = None
        if kind == "masses":
            total = arcs.fixed.copy()
            np.add.at(total, (arcs.group, rng.integers(0, K, 9)), arcs.weight)
            masses = total
        model = RestrictedMaster(rules, arcs, prices, box, masses)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(restricted_master, "PRESOLVED", 0 if presolve else 10**9)
        result = model.solve_linear(np.inf, 1e-10)
    assert result.status == "optimal"
    G, size = 2, arcs.weight[arcs.row]
    np.testing.assert_allclose(np.bincount(arcs.row, result.flow), arcs.weight, atol=1e-10)
    assert (result.flow >= -1e-12).all()
    moved = np.zeros((G, K))
    np.add.at(moved, (arcs.group[arcs.row], arcs.cluster), result.flow)
    missed = result.y[rules.masses] - arcs.fixed - moved
    np.testing.assert_allclose(np.abs(missed), result.slack, atol=1e-9)
    if kind == "pairs":
        part = result.flow / size
        assert (part[pairs].sum(axis=1) <= 1.0 + 1e-9).all()
    sides = missed.ravel() / model.unit  # η - Σ flow = s+ - s-
    parts = (result.y - model.origin) / model.unit, result.flow / size
    v = np.concatenate([*parts, np.maximum(sides, 0.0), np.maximum(-sides, 0.0)])
    assert model.cost @ v == pytest.approx(as_it_stands(model), abs=1e-7)


def test_the_cost_that_becomes_1_is_that_of_usual_arcs() -> None:
    assert price_unit(np.array([0.0, -0.25, 0.5, 0.75]), 1.0) == 0.75
    assert price_unit(np.array([0.0, -0.25, 0.5, 0.75]), 0.5) == 0.5
    assert price_unit(np.zeros(3), 0.5) == 1.0
    assert price_unit(np.array([1e-12, 2.0, 2.0, 2.0]), 0.0) == 2.0  # a tie but for rounding
    assert price_unit(np.array([*np.full(9, 1e-20), 1.0]), 0.1) == pytest.approx(1e-12)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("quantile", [0.0, 0.25, 0.6, 1.0])
def test_the_cost_that_becomes_1_is_a_quantile_of_a_vector_or_a_table(
    quantile: float, unit: float
) -> None:
    costs = unit * np.random.default_rng(0).normal(size=(7, 11))
    expected = np.quantile(np.abs(costs), quantile)
    assert price_unit(costs, quantile) == pytest.approx(expected, rel=1e-15)
    assert price_unit(costs.ravel(), quantile) == price_unit(costs, quantile)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("cell", CELLS)
def test_feasible_masses_satisfy_rows_in_any_unit(unit: float, cell: tuple[int, int]) -> None:
    rules = program()
    form, m = rules.form, rules.form.b.size
    cap = np.zeros((1, form.q.size))
    cap[0, rules.masses[cell]] = unit
    A = sp.csc_array(sp.vstack([form.A, sp.csc_array(cap)]))
    cones = (*form.cones, Cone("nonneg", m, m + 1))
    capped = replace(rules, form=replace(form, A=A, b=np.append(form.b, 0.1 * unit), cones=cones))
    wish = np.zeros((2, K))
    wish[cell] = -1.0
    y = capped.feasible(wish)
    assert y is not None and y[rules.masses[cell]] == pytest.approx(0.1)
    masses = y[rules.masses]
    assert masses.sum(axis=1) == pytest.approx(rules.shares)
    assert masses / masses.sum(axis=1)[:, None] == pytest.approx(
        np.tile(masses.sum(axis=0), (2, 1))
    )  # the two groups are alike in every cluster


@pytest.mark.parametrize("rule", ["perfect", "max_gap"])
def test_a_heated_program_is_the_program_of_a_heated_objective(rule: str) -> None:
    groups = np.repeat([0, 1], [12, 8])
    X = np.arange(40.0).reshape(20, 2)
    asked = [of.max_gap(0.1)] if rule == "max_gap" else None
    p = of.FairAssignment(X, groups=groups, centers=X[:K], fairness=asked)
    cold = compile_rules(p).program
    hot, form = cold.heated(0.25), cold.form
    plain = MassProgram(replace(form, P=form.P / 0.25, q=form.q / 0.25), cold.masses, cold.shares)
    rng = np.random.default_rng(0)
    y, z = rng.normal(size=form.q.size), rng.normal(size=form.b.size)
    np.testing.assert_array_equal(hot.prices(y, z), plain.prices(y, z))
    assert hot.rule_bound(y, z) == plain.rule_bound(y, z)
    np.testing.assert_array_equal(hot.columns.toarray(), plain.columns.toarray())
    if cold.only_equations:
        nearest = [v.multipliers(hot.prices(y, z)) for v in (hot, plain)]
        np.testing.assert_array_equal(*nearest)
        given = hot.prices(y, z) + rng.normal(size=(2, 1))  # a constant counts for nothing
        moved = hot.multipliers(given) @ hot.own_rows - z @ hot.own_rows
        apart = moved.reshape(2, -1)
        np.testing.assert_allclose(apart, np.tile(apart[:, :1], K), atol=1e-9)


@pytest.mark.parametrize("least", [1e-9, 1e-10, 1e-12])
def test_rules_hold_for_a_group_of_next_to_no_weight(least):
    """Masses are looked for in shares of their group: rules that always hold are no conflict."""
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(40, 2)), np.arange(40) % 2
    w = np.where(sex == 0, least, 1.0)
    p = of.FairAssignment(X, groups=sex, centers=X[:3], sample_weight=w)
    rules = compile_rules(p)
    masses = rules.feasible[rules.program.masses] / p.shares[:, None]
    np.testing.assert_allclose(masses[0], masses[1], atol=1e-8)


@pytest.mark.parametrize(("seed", "clusters"), [(0, 2), (1, 4), (2, 6), (3, 6)])
def test_a_group_of_next_to_no_weight_is_assigned_by_the_rule(seed, clusters):
    """A master counts its masses in row weights of its own, not in those of the other group."""
    rng = np.random.default_rng(seed)
    n = 43 if seed == 0 else 260
    X, sex = rng.normal(size=(n, 3)), rng.integers(0, 2, n)
    w = np.where(sex == 0, 1.0, 1e9)
    model = of.FairKMeans(clusters, n_init=1, random_state=0).fit(X, groups=sex, sample_weight=w)
    assert model.gap_ <= 1e-9
    p = of.FairAssignment(X, groups=sex, centers=model.cluster_centers_, sample_weight=w)
    s = p.solve("mass-dual")
    masses = s["masses"] / p.shares[:, None]
    np.testing.assert_allclose(masses[0], masses[1], atol=1e-8)
    assert s.is_optimal(1e-9)
    assert s.objective == pytest.approx(model.objective_, rel=1e-9)


def test_weights_beyond_the_digits_are_named(monkeypatch):
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(40, 2)), np.arange(40) % 2
    monkeypatch.setattr(PriceSearch, "run", lambda *given: "stalled")
    for heavy, named in ((1.0, False), (1e12, True)):
        w = np.where(np.arange(40) < 2, heavy, 1.0)
        with pytest.raises(of.SolverFailure, match="the search stalled") as e:
            of.FairKMeans(3, init=X[:3]).fit(X, groups=sex, sample_weight=w)
        assert ("rows weigh up to 1.0e+12 times" in str(e.value)) == named
        assert ("leave out rows" in str(e.value)) == named
