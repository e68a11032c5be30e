"""The penalty: slopes by differences, its model step against a declared one, monotone ascent."""

from __future__ import annotations

from functools import partial

import cvxpy as cp
import numpy as np
import pytest

from optfair.methods.fair_mixtures.components import Components
from optfair.methods.fair_mixtures.expectation import (
    Gaps,
    MemoryPasses,
    Penalty,
    Sample,
    log_sums,
    penalty_step,
    slopes,
)
from optfair.methods.fair_mixtures.fair_em import (
    State,
    fair_em,
    penalised,
)
from optfair.methods.fair_mixtures.gaussians import SHAPES
from optfair.methods.fair_mixtures.parameters import (
    empty_components,
    first_components,
)
from optfair.rows.frames import MixedRows

K = 3


def sample(groups: int = 2, n: int = 150, seed: int = 0) -> Sample:
    """Return mixed rows whose groups differ in place and in categories."""
    rng = np.random.default_rng(seed)
    index = np.concatenate([np.arange(groups), rng.integers(0, groups, n - groups)])
    numeric = rng.normal(size=(n, 2)) + 2.5 * rng.integers(0, 3, n)[:, None]
    numeric[:, 0] += 0.8 * index
    codes = np.stack([rng.integers(-1, 3, n), (rng.random(n) < 0.3 + 0.2 * index).astype(int)], 1)
    w = rng.uniform(0.5, 1.5, n)
    w /= w.sum()
    return Sample(MixedRows(numeric, codes), index, w, np.bincount(index, w, groups))


def start(s: Sample, shape: str = "shared", scale: float = 1.0) -> Components:
    empty = empty_components(s, K, shape, 1e-6, np.array([0, 3, 5]), 1e-6)
    return first_components(s, empty, "k-means", scale=scale, seed=0)


def q(c: Components, s: Sample, psi: np.ndarray) -> float:
    """Return Q from densities, not from statistics."""
    return float((s.weights[:, None] * psi * s.log_joint(c)).sum())


@pytest.mark.parametrize("shape", SHAPES)
def test_slopes_by_differences(shape):
    s = sample(groups=3)
    c = start(s, shape)
    found = slopes(c, s, State.of(c, s).psi)
    step, h = np.zeros(found.shape[2]), 1e-5
    for p in range(step.size):
        step[p] = h
        up, down = State.of(c.moved(step), s), State.of(c.moved(-step), s)
        step[p] = 0.0
        np.testing.assert_allclose(
            found[:, :, p], (up.fractions - down.fractions) / (2 * h), atol=1e-8
        )


def test_slope_of_a_mean_is_the_derived_formula():
    # dψ_ik'/dμ_k = ψ_ik' (δ_kk' − ψ_ik)(x_i − μ_k)/σ²: the printed (75) is 0 for k = k'
    s = sample()
    c = start(s)
    psi, sigma = State.of(c, s).psi, float(c.gaussians.scale)
    found = slopes(c, s, psi)
    for k in range(K):
        for other in range(K):
            d = psi[:, other] * ((k == other) - psi[:, k])
            for j in range(2):
                own = s.weights * d * (s.rows.numeric[:, j] - c.means[k, j]) / sigma**2
                per_unit = np.bincount(s.index, own) / s.shares
                column = K + 2 * k + j  # coordinates of means are in units of σ
                np.testing.assert_allclose(found[:, other, column], sigma * per_unit, atol=1e-12)


def test_measure_of_two_and_three_groups_by_hand():
    two = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    assert Gaps(2).value(two) == pytest.approx(0.3)  # eq. (6)
    three = np.array([[0.5, 0.5], [0.2, 0.8], [0.4, 0.6]])
    assert Gaps(3).value(three) == pytest.approx((0.3 + 0.1 + 0.2) / 3)  # (14), unordered pairs


@pytest.mark.parametrize("groups", [2, 3])
def test_step_is_the_maximiser_of_its_model(groups):
    rng = np.random.default_rng(groups)
    P, lam, gaps = 8, 3.0, Gaps(groups)
    g, B = rng.normal(size=P), rng.uniform(0.5, 2.0, P)
    F, J = rng.dirichlet(np.ones(K), groups), 0.3 * rng.normal(size=(groups, K, P))
    step, gain = penalty_step(g, B, F, J, Penalty(gaps, lam))
    p = cp.Variable(P)
    D, moved = gaps.pairs, [F[:, k] + J[:, k] @ p for k in range(K)]
    apart = cp.hstack([cp.norm1(D @ m) / len(D) for m in moved])
    value = g @ p - 0.5 * cp.sum(cp.multiply(B, p**2)) - lam * cp.max(apart)
    best = cp.Problem(cp.Maximize(value)).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(step, p.value, atol=1e-5)
    assert gain == pytest.approx(best + lam * gaps.value(F), abs=1e-8)


@pytest.mark.parametrize(
    "algorithm", [penalised, partial(penalised, inner_steps=None)], ids=["em", "gradient"]
)
@pytest.mark.parametrize("groups", [2, 3])
def test_objective_never_falls(algorithm, groups):
    s = sample(groups)
    gaps = Gaps(groups)
    for lam in (0.0, 0.5, 20.0):
        c = start(s, scale=2.0)
        first = State.of(c, s)
        run = algorithm(c, s, lam=lam, max_iter=60)
        history = [first.log_likelihood - lam * gaps.value(first.fractions), *run.history]
        assert min(np.diff(history)) >= -1e-12 and history[-1] > history[0] + 1e-3
        state = State.of(run.components, s)  # the objective is the one of the components
        again = state.log_likelihood - lam * gaps.value(state.fractions)
        assert run.objective == pytest.approx(again, abs=1e-12)


def test_every_step_of_em_raises_q():
    s, lam, gaps = sample(), 5.0, Gaps(2)
    c = start(s, scale=2.0)
    rises = []
    for _ in range(40):
        run = penalised(c, s, lam=lam, max_iter=1)
        psi = s.log_joint(c)
        log_sums(psi)
        before = q(c, s, psi) - lam * gaps.value(State.of(c, s).fractions)
        new = run.components
        after = q(new, s, psi) - lam * gaps.value(State.of(new, s).fractions)
        rises.append(after - before)
        c = new
    assert min(rises) >= -1e-12 and max(rises) > 1e-3


def test_a_large_penalty_makes_the_plain_responsibilities_fair():
    s = sample(n=400)
    free = State.of(penalised(start(s), s, lam=0.0, max_iter=300).components, s)
    fair = State.of(penalised(start(s, scale=4.0), s, lam=20.0, max_iter=300).components, s)
    gaps = Gaps(2)
    assert gaps.value(free.fractions) > 0.08
    assert gaps.value(fair.fractions) < 1e-5
    assert fair.log_likelihood < free.log_likelihood


def test_without_penalty_it_ends_where_em_ends():
    s = sample()
    em = fair_em(MemoryPasses(s), start(s), None, groups=2, tol=1e-11, max_iter=2000)
    run = penalised(start(s), s, lam=0.0, tol=1e-12, max_iter=2000)
    assert run.objective == pytest.approx(em.objective, abs=1e-6)


def test_where_several_clusters_are_the_worst_it_still_ascends():
    # with two clusters both gaps are equal always: the gradient of one is no ascent of neither
    s = sample(n=200)
    empty = empty_components(s, 2, "shared", 1e-6, np.array([0, 3, 5]), 1e-6)
    run = penalised(
        first_components(s, empty, "k-means", scale=2.0, seed=0), s, lam=30.0, max_iter=200
    )
    assert Gaps(2).value(State.of(run.components, s).fractions) < 1e-6


def test_a_dead_component_is_started_again_and_reported():
    s = sample()
    c = start(s)
    far = c.means.copy()
    far[1] = 1e4  # no row is near
    c = Components(c.weights, c.gaussians.at(far), c.multinoullis)
    run = penalised(c, s, lam=1.0, max_iter=30)
    assert (1, 1) in run.reseeded
    assert (s.shares @ State.of(run.components, s).fractions).min() > 1e-3


@pytest.mark.parametrize("lam", [0.0, 3.0])
@pytest.mark.parametrize("groups", [2, 3])
def test_step_with_sizes_is_the_maximiser_of_its_model(groups, lam):
    rng = np.random.default_rng(groups)
    P, size, gaps = 8, 0.4, Gaps(groups)
    g, B = rng.normal(size=P), rng.uniform(0.5, 2.0, P)
    F, J = rng.dirichlet(3.0 * np.ones(K), groups), 0.05 * rng.normal(size=(groups, K, P))
    penalty = Penalty(gaps, lam, size)
    step, gain = penalty_step(g, B, F, J, penalty)
    p = cp.Variable(P)
    D, moved = gaps.pairs, [F[:, k] + J[:, k] @ p for k in range(K)]
    apart = cp.hstack([cp.norm1(D @ m) / len(D) for m in moved])
    tangents = [
        (1 / F[h, k] - J[h, k] @ p / F[h, k] ** 2) / K for h in range(groups) for k in range(K)
    ]
    value = g @ p - 0.5 * cp.sum(cp.multiply(B, p**2)) - lam * cp.max(apart)
    value -= size * cp.pos(cp.max(cp.hstack(tangents)))
    best = cp.Problem(cp.Maximize(value)).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(step, p.value, atol=1e-5)
    assert gain == pytest.approx(best + penalty.value(F), abs=1e-8)


@pytest.mark.parametrize(
    "algorithm", [penalised, partial(penalised, inner_steps=None)], ids=["em", "gradient"]
)
def test_the_size_penalty_keeps_clusters_large_and_never_falls(algorithm):
    s = sample(n=300)
    least = []
    for size in (0.0, 0.3):
        c = start(s, scale=4.0)
        run = algorithm(c, s, lam=5.0, size_penalty=size, max_iter=80)
        penalty = Penalty(Gaps(2), 5.0, size)
        first, state = State.of(c, s), State.of(run.components, s)
        history = [first.log_likelihood - penalty.value(first.fractions), *run.history]
        assert min(np.diff(history)) >= -1e-12
        again = state.log_likelihood - penalty.value(state.fractions)
        assert run.objective == pytest.approx(again, abs=1e-12)
        least.append(state.fractions.min())
    assert least[1] > least[0] + 0.01


def test_the_best_balanced_iterate_is_the_best_of_all():
    s = sample(n=300)
    c = start(s, scale=4.0)
    kept = penalised(c, s, lam=20.0, balanced=True, tol=0.0, max_iter=5)
    ranks = []
    for most in range(1, len(kept.history) + 1):
        state = State.of(penalised(c, s, lam=20.0, tol=0.0, max_iter=most).components, s)
        labels = state.psi.argmax(axis=1)
        M = np.stack(
            [np.bincount(labels[s.index == g], s.weights[s.index == g], K) for g in (0, 1)]
        )
        filled = M[:, M.sum(axis=0) > 0]
        ranks.append((filled.shape[1], float((filled.min(axis=0) / filled.max(axis=0)).min())))
    assert kept.kept == 1 + ranks.index(max(ranks)) < len(ranks)
    assert kept.objective == kept.history[kept.kept - 1]
