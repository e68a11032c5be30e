"""The projection through prices: equal to the cone program, exact, additive, guarded, honest."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp, softmax

import optfair as of
from optfair.methods.fair_clustering import adapters as entropic_mass
from optfair.methods.fair_clustering.algorithms import entropic_projection
from optfair.methods.fair_clustering.algorithms.entropic_projection import (
    project,
    project_masses,
)
from optfair.methods.fair_clustering.algorithms.pricing import (
    CHUNK,
    LogRows,
    MassPass,
    group_log_sums,
    group_softmax,
    mass_pass,
)
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_mixtures.problems import FairResponsibilities

Rows = tuple[Any, Any]


def rows(n: int, K: int = 3, G: int = 2, spread: float = 2.0, seed: int = 0) -> Rows:
    """Log densities and groups, with the first component more likely in the first group."""
    rng = np.random.default_rng(seed)
    log_prob = spread * rng.normal(size=(n, K))
    groups = rng.permutation(np.arange(n) % G)
    log_prob[groups == 0, 0] += 1.5
    return log_prob, groups


def ball(p: Any) -> Any:
    F = cp.multiply(1 / p.shares[:, None], p["masses"])
    return p.with_constraints(ball=cp.norm(F[0] - F[1]) <= 0.05)


RULES: dict[str, Any] = {
    "none": lambda L, g: FairResponsibilities(L, groups=g, fairness=None),
    "perfect": lambda L, g: FairResponsibilities(L, groups=g),
    "max gap": lambda L, g: FairResponsibilities(L, groups=g, fairness=of.max_gap(0.02)),
    "additive gap": lambda L, g: FairResponsibilities(L, groups=g, fairness=of.additive_gap(0.05)),
    "balance": lambda L, g: FairResponsibilities(L, groups=g, fairness=of.balance(0.9)),
    "proportion": lambda L, g: FairResponsibilities(
        L, groups=g, fairness=of.fair_clustering.proportion(lower=0.45, upper=0.55)
    ),
    "perfect and share": lambda L, g: FairResponsibilities(L, groups=g).with_constraints(
        share=of.cluster_share(lower=0.2, upper=0.4)
    ),
    "second-order": lambda L, g: ball(FairResponsibilities(L, groups=g, fairness=None)),
    "softened": lambda L, g: FairResponsibilities(L, groups=g).soften("fairness", 0.3),
}


@pytest.mark.parametrize("name", RULES)
def test_equals_the_cone_program(name: str) -> None:
    p = RULES[name](*rows(40))
    s = p.solve(tolerance=1e-9)
    assert s.solver == "entropic-mass" and s.is_optimal(1e-9)
    exact = p.solve("clarabel", tolerance=1e-7)
    assert s.objective == pytest.approx(exact.objective, abs=1e-7)
    # the objective is strongly convex, but the cone program's own gap is up to 1e-7
    np.testing.assert_allclose(s["responsibilities"], exact["responsibilities"], atol=1e-4)


@pytest.mark.parametrize("name", ["perfect", "max gap"])
def test_equals_the_cone_program_on_500_rows(name: str) -> None:
    p = RULES[name](*rows(500, K=4, spread=1.0, seed=5))
    s, exact = p.solve(tolerance=1e-9), p.solve("clarabel", tolerance=1e-7)
    assert s.objective == pytest.approx(exact.objective, abs=1e-7)
    np.testing.assert_allclose(s["masses"], exact["masses"], atol=1e-6)


def test_prices_equal_those_of_the_cone_program() -> None:
    """Inequality rules pin the prices down; equations leave a number per group free."""
    p = RULES["max gap"](*rows(40))
    s, exact = p.solve(tolerance=1e-9), p.solve("clarabel", tolerance=1e-8)
    for name in ("row sum", "mass definition", *(n for n in p.constraints if "fairness" in n)):
        np.testing.assert_allclose(s.multipliers[name], exact.multipliers[name], atol=1e-4)


@pytest.mark.parametrize("groups", [2, 3, 5])
@pytest.mark.parametrize("spread", [0.1, 3.0, 40.0])
def test_perfect_fairness_is_exact(groups: int, spread: float) -> None:
    L, g = rows(600, K=6, G=groups, spread=spread)
    p = FairResponsibilities(L, groups=g)
    s = p.solve("entropic-mass")
    fractions = s["masses"] / p.shares[:, None]
    assert np.ptp(fractions, axis=0).max() <= 1e-8
    assert s.is_optimal(1e-8)
    recomputed = np.stack([s["responsibilities"][g == a].sum(axis=0) / 600 for a in range(groups)])
    np.testing.assert_allclose(recomputed, s["masses"], atol=1e-14)


def test_two_rows_meet_in_the_geometric_mean() -> None:
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.6, 0.3])
    s = FairResponsibilities(np.log([p, q]), groups=["a", "b"]).solve()
    middle = np.sqrt(p * q)
    np.testing.assert_allclose(s["responsibilities"], [middle / middle.sum()] * 2, atol=1e-10)
    assert s.objective == pytest.approx(-np.log(middle.sum()), abs=1e-12)


def test_weights_count_as_repeated_rows() -> None:
    log_prob, groups = rows(30, seed=3)
    times = np.random.default_rng(1).integers(0, 4, 30)
    s = FairResponsibilities(log_prob, groups=groups, sample_weight=times).solve()
    repeated = FairResponsibilities(
        np.repeat(log_prob, times, axis=0), groups=np.repeat(groups, times)
    ).solve()
    assert s.objective == pytest.approx(repeated.objective, abs=1e-12)
    np.testing.assert_allclose(s["masses"], repeated["masses"], atol=1e-10)


HARD: dict[str, Any] = {
    "groups far apart": lambda L, g: (
        np.where((g == 0)[:, None], [0.0, -600.0, 0.0], [0.0, 0.0, -600.0]) + L,
        g,
    ),
    "all but hard rows": lambda L, g: (500.0 * L, g),
    "one row in a group": lambda L, g: (L, (np.arange(len(g)) == 3).astype(int)),
    "identical rows": lambda L, g: (np.repeat(L[:2], [100, 100], axis=0), np.arange(200) % 2),
    "one component": lambda L, g: (L[:, :1], g),
    "twin components": lambda L, g: (np.hstack([L, L]), g),
    "a dead component": lambda L, g: (L - [0.0, 0.0, 700.0], g),
}


@pytest.mark.parametrize("rule", [of.perfect_fairness(), of.max_gap(0.01)], ids=["perfect", "max"])
@pytest.mark.parametrize("name", HARD)
def test_awkward_rows(name: str, rule: Any) -> None:
    L, g = HARD[name](*rows(200))
    s = FairResponsibilities(L, groups=g, fairness=rule).solve("entropic-mass")
    assert s.is_optimal(1e-7)
    assert len(s.progress) <= 60


def test_a_mass_forced_to_zero_is_approached() -> None:
    L, g = rows(100)
    p = FairResponsibilities(L, groups=g).with_constraints(
        closed=of.cluster_share(upper=[0.0, 1.0, 1.0])
    )
    s = p.solve()
    assert s.is_optimal(1e-7) and s["masses"][:, 0].max() <= 1e-8


def test_rules_that_exclude_each_other_are_named() -> None:
    L, g = rows(30)
    p = FairResponsibilities(L, groups=g).with_constraints(
        low=of.cluster_share(lower=[0.6, 0.0, 0.0]), high=of.cluster_share(upper=[0.5, 1.0, 1.0])
    )
    with pytest.raises(of.Infeasible) as e:
        p.solve()
    assert set(e.value.conflict) == {"low.lower", "high.upper"}
    assert e.value.certificate is not None and e.value.certificate.verify()


@pytest.mark.parametrize("name", ["perfect", "max gap", "second-order"])
def test_every_number_is_guarded(name: str) -> None:
    s = RULES[name](*rows(7)).solve("entropic-mass", tolerance=1e-6)
    copied = replace(
        s,
        values={k: np.array(v) for k, v in s.values.items()},
        multipliers={k: np.array(v) for k, v in s.multipliers.items()},
    )
    assert s.certificate.verify() and copied.certificate.verify()
    missed = []
    for part in ("values", "multipliers"):
        for label, array in getattr(copied, part).items():
            for index in np.ndindex(np.shape(array)):
                for by in (1e-4, -1e-4):
                    forged = {k: np.array(v) for k, v in getattr(copied, part).items()}
                    forged[label][index] += by
                    if replace(copied, **{part: forged}).certificate.verify():
                        missed.append((part, label, index, by))
    assert missed == []
    proof: Any = s.proof
    for i in range(proof.z.size):
        moved = proof.z.copy()
        moved[i] += 1e-4
        assert not replace(s, proof=replace(proof, z=moved)).certificate.verify()


def test_the_bound_is_the_dual_value_of_the_prices() -> None:
    """Below the divergence of other points that obey the rule, and equal to the optimum's."""
    L, g = rows(60)
    p = FairResponsibilities(L, groups=g)
    s = p.solve()
    # perfect fairness: the bound is -F where the prices of both groups cancel
    sums = logsumexp(p.log_prob - s.multipliers["mass definition"][p.data["groups"]], axis=1)
    assert -p.data["weights"] @ sums == pytest.approx(s.bound, abs=1e-10)
    for each in softmax(np.random.default_rng(0).normal(size=(20, 3)), axis=1):
        assert p.objective_value({"responsibilities": np.tile(each, (60, 1))}) > s.bound


def test_passes_over_blocks_add_up() -> None:
    L, g = rows(2 * CHUNK + 17, K=4, G=3)
    w = np.random.default_rng(2).dirichlet(np.ones(g.size))
    prices = np.random.default_rng(3).normal(size=(3, 4))
    whole = mass_pass(L, g, w, prices)
    parts = [mass_pass(L[i], g[i], w[i], prices) for i in np.array_split(np.arange(g.size), 5)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert total.value == pytest.approx(whole.value, rel=1e-12)
    np.testing.assert_allclose(total.masses, whole.masses, atol=1e-14)
    assert total.curvature is not None and whole.curvature is not None
    np.testing.assert_allclose(total.curvature, whole.curvature, atol=1e-14)
    assert (mass_pass(L[:5], g[:5], w[:5], prices, curvature=False) + parts[0]).curvature is None
    R = softmax(L - prices[g], axis=1)
    np.testing.assert_allclose(group_softmax(L, g, prices), R, atol=1e-15)
    np.testing.assert_allclose(
        group_log_sums(L, g, prices), logsumexp(L - prices[g], axis=1), atol=1e-12
    )
    for k in range(3):
        np.testing.assert_allclose(whole.masses[k], w[g == k] @ R[g == k], atol=1e-14)


def test_masses_and_curvature_are_derivatives() -> None:
    L, g = rows(50, K=3)
    w = np.random.default_rng(2).dirichlet(np.ones(50))
    prices, step = np.random.default_rng(3).normal(size=(2, 3)), 1e-5
    here = mass_pass(L, g, w, prices)
    assert here.curvature is not None
    for a, k in np.ndindex(2, 3):
        up, down = prices.copy(), prices.copy()
        up[a, k] += step
        down[a, k] -= step
        above, below = (mass_pass(L, g, w, moved) for moved in (up, down))
        slope = (above.value - below.value) / (2 * step)
        assert -slope == pytest.approx(here.masses[a, k], abs=1e-9)
        bend = -(above.masses - below.masses) / (2 * step)
        np.testing.assert_allclose(bend[a], here.curvature[a, k], atol=1e-9)
        np.testing.assert_allclose(bend[1 - a], 0.0, atol=1e-12)


def test_an_oracle_of_chunks_finds_the_same_prices() -> None:
    L, g = rows(300, K=4)
    p = FairResponsibilities(L, groups=g, fairness=of.max_gap(0.01))
    program, w = compile_rules(p).program, p.data["weights"]
    chunks = np.array_split(np.arange(300), 7)
    asked = []

    def oracle(prices: Any, curvature: bool) -> MassPass:
        asked.append(curvature)
        parts = [mass_pass(L[i], g[i], w[i], prices, curvature=curvature) for i in chunks]
        return sum(parts[1:], parts[0])

    streamed = project_masses(oracle, program)
    held = project(L, g, w, program)
    assert streamed.status == held.status == "optimal"
    np.testing.assert_allclose(streamed.prices, held.prices, atol=1e-8)
    assert streamed.value == pytest.approx(held.value, abs=1e-12)
    assert len(asked) <= 15
    # shifting each row's log densities moves the bound, not the prices
    shift = np.random.default_rng(0).normal(size=(300, 1))
    moved = project(L + shift, g, w, program)
    np.testing.assert_allclose(moved.prices, held.prices, atol=1e-8)
    assert moved.value == pytest.approx(held.value - w @ shift[:, 0], abs=1e-12)


def test_prices_given_save_passes() -> None:
    L, g = rows(500, K=5)
    p = FairResponsibilities(L, groups=g, fairness=of.max_gap(0.01))
    s = p.solve()
    again = p.with_log_prob(L + 1e-4).solve(warm_start=s)
    assert len(again.progress) < len(s.progress)
    assert again.is_optimal(1e-9)
    with pytest.raises(of.DeclarationError, match="prices"):
        FairResponsibilities(L[:, :2], groups=g).solve(warm_start=s)
    with pytest.raises(of.DeclarationError, match="mass definition"):
        p.solve(warm_start=of.library.load("textbook/diet").problem().solve())


def test_newton_takes_few_passes_and_never_lowers_the_bound() -> None:
    for name in ("perfect", "max gap", "second-order"):
        s = RULES[name](*rows(2_000, K=6)).solve("entropic-mass")
        bounds = np.array([r.bound for r in s.progress])
        assert len(bounds) <= 15
        assert (np.diff(bounds) >= -1e-10).all()


def test_equations_need_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    from optfair.methods.fair_clustering.algorithms import entropic_projection as price_step

    def refuse(*a: Any, **k: Any) -> None:
        raise RuntimeError("a cone program was solved")

    monkeypatch.setattr(price_step, "solve_cone_program", refuse)
    L, g = rows(50)
    assert compile_rules(FairResponsibilities(L, groups=g)).program.only_equations
    assert FairResponsibilities(L, groups=g).solve().is_optimal(1e-9)
    gap = FairResponsibilities(L, groups=g, fairness=of.max_gap(0.1))
    assert not compile_rules(gap).program.only_equations


@pytest.mark.parametrize("groups", [2, 5])
def test_a_banded_factor_solves_what_a_dense_one_does(groups: int) -> None:
    L, g = rows(200, K=4, G=groups)
    program = compile_rules(FairResponsibilities(L, groups=g)).program
    point = mass_pass(L, g, np.full(200, 0.005), np.zeros((groups, 4)))
    B = sp.csc_array(program.form.A)[:, program.masses.ravel()]
    newton = sp.csr_array(B @ entropic_projection._blocks(point) @ B.T)
    band, right = entropic_projection._Damped(newton), np.arange(newton.shape[0]) - 1.5
    dense = newton.toarray() + 1e-3 * np.eye(right.size)
    assert np.allclose(band.solved(1e-3, right), np.linalg.solve(dense, right), rtol=1e-9)
    # nothing curves it: as much damping as it takes, or no step
    flat = entropic_projection._Damped(0.0 * newton)
    assert np.isfinite(flat.solved(1e-30, right)).all()
    assert not flat.solved(np.inf, right).any()


def test_few_equations_take_the_step_that_many_do(monkeypatch: pytest.MonkeyPatch) -> None:
    L, g = rows(200, K=4, G=3)
    program = compile_rules(FairResponsibilities(L, groups=g)).program
    point = mass_pass(L, g, np.full(200, 0.005), np.zeros((3, 4)))
    steps = []
    for full, kind in ((10**9, np.ndarray), (0, sp.csr_array)):
        given: list[Any] = []

        class Seen(entropic_projection._Damped):
            def __init__(self, matrix: Any, given: list[Any] = given) -> None:
                given.append(matrix)
                super().__init__(matrix)

        with monkeypatch.context() as patched:
            patched.setattr(entropic_projection, "FULL", full)
            patched.setattr(entropic_projection, "_Damped", Seen)
            step = entropic_projection.price_step(program, point, np.zeros((3, 4)), 1e9, None)
        assert step is not None and isinstance(given[0], kind)
        prices = program.prices(step.y, step.z)
        steps.append(prices - prices.mean(axis=1, keepdims=True))  # constants count for nothing
    assert np.abs(steps[0]).max() > 0.01
    assert np.allclose(steps[0], steps[1], rtol=1e-6, atol=1e-9)


def test_a_clock_stops_it_without_a_false_claim() -> None:
    L, g = rows(400, K=5, spread=30.0)
    program = compile_rules(FairResponsibilities(L, groups=g)).program
    w = np.full(400, 1 / 400)
    found = project(L, g, w, program, deadline=time.perf_counter())
    assert found.status == "time_limit" and len(found.history) == 1
    assert (found.history[0].rows, found.history[0].arcs) == (400, 2_000)
    best = project(L, g, w, program)
    assert best.status == "optimal" and found.value <= best.value and found.distance > 1e-6


def test_an_interrupt_keeps_the_best_point() -> None:
    L, g = rows(400, K=5, spread=30.0)
    p = FairResponsibilities(L, groups=g)
    held = LogRows(p.log_prob, p.data["groups"], p.data["weights"], 2)
    calls = []

    def oracle(prices: Any, curvature: bool) -> MassPass:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return held(prices, curvature)

    program = compile_rules(p).program
    found = project_masses(oracle, program)
    assert found.status == "interrupted" and len(found.history) == 1
    calls[:] = [1, 1]
    with pytest.raises(KeyboardInterrupt):  # nothing was found yet
        project_masses(oracle, program)


def test_a_model_that_cannot_be_solved_stalls_honestly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropic_projection, "price_step", lambda *a: None)
    p = RULES["max gap"](*rows(30))
    found = project(p.log_prob, p.data["groups"], p.data["weights"], compile_rules(p).program)
    assert found.status == "stalled" and found.value == -np.inf
    with pytest.raises(of.SolverFailure):
        p.solve("entropic-mass")


def test_a_wrong_price_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The route's answer is checked on the declared problem, whatever the engine says."""
    engine = project

    def wrong(*a: Any, **k: Any) -> Any:
        found = engine(*a, **k)
        return replace(found, z=found.z + 1e-3 * np.arange(found.z.size), status="optimal")

    monkeypatch.setattr(entropic_mass, "project", wrong)
    with pytest.raises(of.SolverFailure, match="violated"):
        RULES["perfect"](*rows(30)).solve("entropic-mass")


def test_it_refuses_what_it_does_not_take() -> None:
    L, g = rows(20)
    p = FairResponsibilities(L, groups=g)
    with_rows = p.with_constraints(first=p["responsibilities"][0, 0] <= 0.2)
    assert with_rows.solve(tolerance=1e-6).solver != "entropic-mass"
    with pytest.raises(of.OptfairError):
        with_rows.solve("entropic-mass")
    with pytest.raises(of.OptfairError):
        p.solve("entropic-mass", options={"newton": 3})


@pytest.mark.slow
def test_many_rows() -> None:
    """32,561 rows and 10 components, as many as Adult has."""
    L, g = rows(32_561, K=10, spread=8.0)
    for rule in (of.perfect_fairness(), of.max_gap(0.02)):
        s = FairResponsibilities(L, groups=g, fairness=rule).solve()
        assert s.is_optimal(1e-9)


def hard(seed: int) -> tuple[Any, Any, Any, Any]:
    """Return log densities of rows that are all but hard, groups, weights and the rule."""
    rng = np.random.default_rng(seed)
    heap = rng.integers(0, 3, 100)
    groups = (rng.random(100) < np.array([0.2, 0.5, 0.8])[heap]).astype(int)
    places = 100.0 * np.array([[0.0, 0], [1, 0], [0, 1]])
    X = rng.normal(size=(100, 2)) + places[heap]
    log_prob = -0.5 * ((X[:, None] - places) ** 2).sum(axis=2)
    p = FairResponsibilities(log_prob, groups=groups)
    return log_prob, groups, np.full(100, 0.01), compile_rules(p).program


@pytest.mark.parametrize("seed", [2, 4, 5, 7])
def test_hard_rows_are_cooled_down_from_softer_ones(seed: int, monkeypatch: Any) -> None:
    found = project(*hard(seed), tolerance=1e-10)
    assert found.status == "optimal" and found.distance <= 1e-10
    bound = found.value
    # from prices that are far off as well; where rows have no softer ones it says that it stalled
    far = project(*hard(seed), prices=1e3 * found.prices, tolerance=1e-10)
    assert far.status == "optimal" and far.value == pytest.approx(bound, rel=1e-9)
    monkeypatch.setattr(entropic_projection, "STEPS", 40)
    if seed == 2:  # so far that no processor's rounding leads back
        farther = project(*hard(seed), prices=1e6 * found.prices, tolerance=1e-10)
        assert farther.status == "optimal" and farther.value == pytest.approx(bound, rel=1e-9)
    monkeypatch.setattr(LogRows, "tempered", None)
    cold = project(*hard(seed), prices=1e6 * found.prices, tolerance=1e-10)
    assert cold.status == "stalled" and cold.distance > 0.5


def test_a_search_that_is_stopped_at_its_end_says_that_it_was() -> None:
    log_prob, groups = rows(200)
    p = FairResponsibilities(log_prob, groups=groups)
    given = log_prob, groups, np.full(200, 1 / 200), compile_rules(p).program

    def stop(entry: Any) -> None:
        if entry.slack <= 1e-9:
            raise KeyboardInterrupt

    found = project(*given, tolerance=1e-9, report=stop)
    assert found.status == "interrupted" and found.distance <= 1e-9
