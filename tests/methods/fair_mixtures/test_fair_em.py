"""EM with the fair E-step: F never falls, the rules hold, dead components are reported."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

import optfair as of
from optfair.methods.fair_clustering.algorithms import entropic_projection
from optfair.methods.fair_mixtures import fair_em as module
from optfair.methods.fair_mixtures.components import Components
from optfair.methods.fair_mixtures.expectation import (
    MemoryPasses,
    Sample,
    expectation,
    log_sums,
    summary,
)
from optfair.methods.fair_mixtures.fair_em import fair_em, mass_program, named_rules
from optfair.methods.fair_mixtures.gaussians import SHAPES
from optfair.methods.fair_mixtures.parameters import (
    empty_components,
    first_components,
)
from optfair.rows.frames import MixedRows

K = 4


def sample(groups: int = 3, n: int = 400) -> Sample:
    rng = np.random.default_rng(0)
    index = np.concatenate([np.arange(groups), rng.integers(0, groups, n - groups)])
    numeric = rng.normal(size=(n, 2)) + 3.0 * rng.integers(0, 2, (n, 2))
    numeric[:, 0] += index
    codes = rng.integers(0, 3, (n, 1))
    w = rng.uniform(0.5, 1.5, n)
    w /= w.sum()
    return Sample(MixedRows(numeric, codes), index, w, np.bincount(index, w, groups))


def start(s: Sample, shape: str = "full") -> Components:
    empty = empty_components(s, K, shape, 1e-4, np.array([0, 3]), 1e-6)
    return first_components(s, empty, "k-means", scale=1.0, seed=0)


def masses(s: Sample, run) -> np.ndarray:
    return summary(run.components, s.rows, s.index, s.weights, run.prices).fair


def program(s: Sample, eps: float | None, rules=None):
    names = np.arange(s.shares.size)
    return mass_program(names, s.shares, K, named_rules(eps, rules))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_objective_never_falls_and_the_rules_hold(shape, eps):
    s = sample()
    run = fair_em(MemoryPasses(s), start(s, shape), program(s, eps), groups=3, max_iter=40)
    assert run.status in ("converged", "max_iter") and len(run.history) > 3
    assert min(np.diff(run.history)) >= -1e-10 and run.history[-1] - run.history[0] > 1e-3
    # recomputed from the rows: fractions of groups, and F = ℓ − KL
    psi = s.log_joint(run.components)
    R = psi - run.prices[s.index]
    total = log_sums(psi)
    log_sums(R)
    fractions = s.masses(R) / s.shares[:, None]
    assert np.ptp(fractions, axis=0).max() <= eps + 1e-8
    divergence = np.where(R > 0, R * (np.log(np.maximum(R, 1e-300) / np.maximum(psi, 1e-300))), 0)
    f = float(s.weights @ total) - float(s.weights @ divergence.sum(axis=1))
    assert run.objective == pytest.approx(f, abs=1e-9)
    assert abs(run.gap) < 1e-8


@pytest.mark.slow
def test_likelihood_alone_may_fall_and_plain_responsibilities_are_not_fair():
    s = sample()
    run = fair_em(MemoryPasses(s), start(s), program(s, 0.0), groups=3)
    plain = summary(run.components, s.rows, s.index, s.weights, run.prices).plain
    assert np.ptp(plain / s.shares[:, None], axis=0).max() > 0.01


def test_further_rules_on_masses_hold():
    s = sample()
    rules = {"size": of.cluster_share(lower=0.2)}
    run = fair_em(MemoryPasses(s), start(s), program(s, 0.02, rules), groups=3, max_iter=30)
    assert masses(s, run).sum(axis=0).min() >= 0.2 - 1e-8
    assert np.ptp(masses(s, run) / s.shares[:, None], axis=0).max() <= 0.02 + 1e-8
    assert min(np.diff(run.history)) >= -1e-10


def test_without_rules_it_is_plain_em():
    s = sample()
    rows = MixedRows.of(s.rows.numeric)
    even = Sample(rows, s.index, np.full(s.count, 1.0 / s.count), s.shares)
    empty = empty_components(even, K, "full", 1e-9, np.array([0]), 1e-6)
    first = first_components(even, empty, "k-means", scale=1.0, seed=0)
    theirs = GaussianMixture(
        K,
        reg_covar=0.0,
        tol=1e-10,
        max_iter=3000,
        weights_init=first.weights,
        means_init=first.means,
        precisions_init=np.linalg.inv(first.gaussians.matrices),
    ).fit(rows.numeric)
    run = fair_em(MemoryPasses(even), first, None, groups=3, tol=1e-13, max_iter=3000)
    assert run.objective == pytest.approx(theirs.score(rows.numeric), abs=1e-7)
    np.testing.assert_allclose(run.components.means, theirs.means_, atol=1e-3)


def test_expectation_of_chunks_adds_up():
    s = sample()
    c = start(s)
    prices = np.random.default_rng(0).normal(size=(3, K))
    whole = expectation(c, s.rows, s.index, s.weights, prices)
    cut = 150
    parts = expectation(c, s.rows[:cut], s.index[:cut], s.weights[:cut], prices) + expectation(
        c, s.rows[cut:], s.index[cut:], s.weights[cut:], prices
    )
    np.testing.assert_allclose(parts.masses, whole.masses, rtol=1e-12)
    assert parts.objective(prices) == pytest.approx(whole.objective(prices), rel=1e-12)
    np.testing.assert_array_equal(parts.farthest.rows.numeric, whole.farthest.rows.numeric)
    a = summary(c, s.rows, s.index, s.weights, prices)
    b = summary(c, s.rows[:cut], s.index[:cut], s.weights[:cut], prices) + summary(
        c, s.rows[cut:], s.index[cut:], s.weights[cut:], prices
    )
    np.testing.assert_allclose(a.fair_labels, b.fair_labels)
    assert a.cost == pytest.approx(b.cost) and a.count == b.count == s.count


@pytest.mark.parametrize("eps", [None, 0.0])
def test_a_dead_component_is_started_again_and_reported(eps):
    s = sample()
    c = start(s, "shared")
    far = c.means.copy()
    far[2] = 1e5
    c = Components(c.weights, c.gaussians.at(far), c.multinoullis)
    rules = None if eps is None else program(s, eps)
    run = fair_em(MemoryPasses(s), c, rules, groups=3)
    if eps is None:
        assert run.reseeded == ((1, 2),)
    assert masses(s, run).sum(axis=0).min() > 1e-4 and run.status == "converged"


def test_the_time_limit_keeps_the_last_complete_step():
    s = sample()
    run = fair_em(MemoryPasses(s), start(s), program(s, 0.0), groups=3, deadline=-np.inf)
    assert run.status == "time_limit" and len(run.history) == 1
    assert np.ptp(masses(s, run) / s.shares[:, None], axis=0).max() < 1e-8


def test_a_projection_that_misses_the_rules_is_not_called_converged(monkeypatch):
    s = sample()

    def poor(*a, **kw):
        return entropic_projection.project_masses(*a, **{**kw, "tolerance": 1e-3, "prices": None})

    monkeypatch.setattr(module, "project_masses", poor)
    run = fair_em(MemoryPasses(s), start(s), program(s, 0.0), groups=3)
    gap = np.ptp(masses(s, run) / s.shares[:, None], axis=0).max()
    assert gap > 1e-8 and run.status == "inexact"
