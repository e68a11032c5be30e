"""Fair maximum likelihood: a nonconvex problem that says so, and local optima that check out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import optfair as of
from optfair.methods.fair_mixtures.problems import FairMixtureLikelihood, FairResponsibilities


def rows(n: int = 16, seed: int = 0) -> tuple[Any, Any]:
    """Two clouds, with most rows of the first group in the first of them."""
    rng = np.random.default_rng(seed)
    far = np.repeat([-6.0, 6.0], n // 2)
    X = 3.0 * rng.normal(size=(n, 2)) + far[:, None] + [40.0, -7.0]
    groups = np.where(rng.random(n) < np.where(far < 0, 0.7, 0.4), "a", "b")
    return X, groups


def densities(X: Any, means: Any, weights: Any, precision: float) -> Any:
    columns = [
        a * multivariate_normal(m, np.eye(X.shape[1]) / precision).pdf(X)
        for m, a in zip(means, weights, strict=True)
    ]
    return np.stack(columns, axis=1)


MIXTURE = ([[30.0, -10.0], [45.0, 0.0], [41.0, -8.0]], [0.2, 0.5, 0.3], 0.05)


def test_a_point_has_the_likelihood_and_responsibilities_of_its_mixture() -> None:
    X, g = rows()
    w = np.random.default_rng(1).random(16)
    p = FairMixtureLikelihood(X, n_components=3, groups=g, sample_weight=w, fairness=None)
    v = p.point(*MIXTURE)
    joint = densities(X, *MIXTURE)
    w = w / w.sum()
    assert p.objective_value(v) == pytest.approx(w @ np.log(joint.sum(axis=1)), rel=1e-12)
    psi = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(p.responsibilities(v), psi, atol=1e-12)
    masses = np.stack([w[g == name] @ psi[g == name] for name in ("a", "b")])
    np.testing.assert_allclose(v["masses"], masses, atol=1e-12)
    assert max(t.relative_violation(v) for t in p.constraints.values()) <= 1e-12
    found = p.mixture(v)
    np.testing.assert_allclose(found.means, MIXTURE[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.weights, MIXTURE[1], rtol=1e-10)
    assert found.precision == pytest.approx(MIXTURE[2], rel=1e-12)


def test_terms_are_what_they_say() -> None:
    X, g = rows()
    p = FairMixtureLikelihood(X, n_components=3, groups=g, fairness=of.max_gap(0.1))
    rng = np.random.default_rng(2)
    values = {name: 0.5 * rng.normal(size=v.shape) for name, v in p.variables.items()}
    built, variables, constraints = p.built(fresh=True)
    for name, v in variables.items():
        v.value = values[name]
    for name, t in p.constraints.items():
        assert np.allclose(t.violation(values), np.abs(constraints[name].violation())), name
    assert p.objective_value(values) == pytest.approx(float(built.objective.value), rel=1e-12)


@pytest.mark.parametrize("K", [1, 2, 4])
@pytest.mark.parametrize("rule", [None, of.perfect_fairness(), of.max_gap(0.1)])
def test_it_is_nonconvex_and_proves_it(K: int, rule: Any) -> None:
    X, g = rows()
    p = FairMixtureLikelihood(X, n_components=K, groups=g, fairness=rule)
    assert str(p.problem_class) == "nonconvex NLP"
    assert isinstance(p.certificate, of.core.NonconvexityWitness) and p.certificate.verify()
    for solver in ("clarabel", "scs", "highs"):
        with pytest.raises(of.UnsupportedProblem):
            p.solve(solver)


def test_the_witness_obeys_rules_that_equal_components_break() -> None:
    X, g = rows()
    p = FairMixtureLikelihood(X, n_components=3, groups=g, fairness=of.max_gap(0.1))
    q = p.with_constraints(size=of.cluster_share(lower=[0.5, 0.0, 0.0], upper=[1.0, 0.3, 0.4]))
    assert str(q.problem_class) == "nonconvex NLP" and q.certificate.verify()


def test_one_component_is_the_gaussian_of_the_rows() -> None:
    X, g = rows()
    p = FairMixtureLikelihood(X, n_components=1, groups=g)
    s = p.solve("uno", time_limit=600)
    found = p.mixture(s)
    np.testing.assert_allclose(found.means[0], X.mean(axis=0), atol=1e-4)
    assert 1.0 / found.precision == pytest.approx(X.var(axis=0).mean(), rel=1e-5)


@pytest.mark.parametrize("eps", [None, 0.1, 0.0])
def test_local_optima_are_feasible_and_stationary(eps: float | None) -> None:
    X, g = rows()
    rule = None if eps is None else of.max_gap(eps) if eps else of.perfect_fairness()
    p = FairMixtureLikelihood(X, n_components=2, groups=g, fairness=rule)
    s = p.solve("uno", time_limit=600)
    assert s.status.termination == "local" and s.gap == np.inf and s.proof is None
    found = p.mixture(s)
    joint = densities(X, *found)
    assert s.objective == pytest.approx(np.log(joint.sum(axis=1)).mean(), abs=1e-9)
    psi = joint / joint.sum(axis=1, keepdims=True)
    gap = np.abs(psi[g == "a"].mean(axis=0) - psi[g == "b"].mean(axis=0)).max()
    if eps is None:  # a fixed point of EM
        np.testing.assert_allclose(psi.mean(axis=0), found.weights, atol=1e-5)
        np.testing.assert_allclose(
            psi.T @ X / psi.sum(axis=0)[:, None], found.means, rtol=1e-5, atol=1e-4
        )
    else:
        assert gap <= eps + 1e-6


def test_fairness_costs_likelihood() -> None:
    X, g = rows()
    values = []
    for rule in (None, of.max_gap(0.05)):
        p = FairMixtureLikelihood(X, n_components=2, groups=g, fairness=rule)
        values.append(p.solve("uno", time_limit=600).objective)
    assert values[0] > values[1]


def test_projected_responsibilities_obey_what_the_mixture_itself_does_not() -> None:
    """The rule holds of R by projection; here it holds of ψ."""
    X, g = rows()
    free = FairMixtureLikelihood(X, n_components=2, groups=g, fairness=None)
    s = free.solve("uno", time_limit=600)
    psi = free.responsibilities(s)
    own = np.abs(psi[g == "a"].mean(axis=0) - psi[g == "b"].mean(axis=0)).max()
    projection = FairResponsibilities(np.log(psi), groups=g, fairness=of.max_gap(0.01))
    masses = projection.solve()["masses"]
    fair = np.abs(np.diff(masses / projection.shares[:, None], axis=0)).max()
    assert own > 0.05 and fair <= 0.01 + 1e-8


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"n_components": 0}, of.DataError, "whole number of at least 1|not a finite number"),
        ({"n_components": 1.5}, of.DataError, "whole number of at least 1|not a finite number"),
        ({"n_components": True}, of.DataError, "whole number of at least 1|not a finite number"),
        ({"n_components": 16}, of.DataError, "different rows"),
        ({"groups": ["a"] * 16}, of.DataError, "one group"),
        ({"fairness": 0.1}, of.DeclarationError, "not a rule"),
    ],
)
def test_bad_input_is_refused(changes: Any, error: Any, words: str) -> None:
    X, g = rows()
    with pytest.raises(error, match=words):
        FairMixtureLikelihood(X, **{"n_components": 2, "groups": g, **changes})


def test_rows_that_are_all_the_same_are_refused() -> None:
    with pytest.raises(of.DataError, match="1 different rows"):
        FairMixtureLikelihood(np.ones((6, 2)), n_components=1, groups=list("aabbab"))
