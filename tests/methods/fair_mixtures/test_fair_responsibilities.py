"""The declared projection: what it says of itself is so, and bad input is refused in words."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.special import rel_entr, softmax

import optfair as of
from optfair.methods.fair_mixtures.problems import FairResponsibilities


def rows(n: int = 12, K: int = 3, scale: float = 2.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return scale * rng.normal(size=(n, K)), np.array(["b", "a"] * (n // 2))


@pytest.mark.parametrize("scale", [1.0, 30.0], ids=["soft", "beyond the floor"])
def test_terms_are_what_they_say(scale: float) -> None:
    """Violations and objective in NumPy are CVXPY's, also where ψ leaves the cone."""
    L, g = rows(scale=scale)
    w = np.random.default_rng(1).random(12)
    p = FairResponsibilities(L, groups=g, sample_weight=w, fairness=of.max_gap(0.1))
    assert (p.log_prob.min() < -30.0) == (scale > 10.0)
    assert str(p.problem_class) == "CONIC(exp)" and p.certificate.verify()
    rng = np.random.default_rng(2)
    values = {"responsibilities": rng.random((12, 3)), "masses": rng.normal(size=(2, 3))}
    built, variables, constraints = p.built(fresh=True)
    assert built.is_dcp()
    for name, v in variables.items():
        v.value = values[name]
    for name, t in p.constraints.items():
        assert t.shape == constraints[name].shape
        assert np.allclose(t.violation(values), np.abs(constraints[name].violation())), name
    assert p.objective_value(values) == pytest.approx(float(built.objective.value), rel=1e-10)


def test_objective_is_the_mean_divergence_from_the_given_responsibilities() -> None:
    L, g = rows()
    w = np.random.default_rng(1).random(12)
    p = FairResponsibilities(L, groups=g, sample_weight=w)
    R = softmax(np.random.default_rng(2).normal(size=(12, 3)), axis=1)
    R[0] = [0.0, 1.0, 0.0]  # 0 log 0 is 0
    expected = (w / w.sum()) @ rel_entr(R, softmax(L, axis=1)).sum(axis=1)
    assert p.objective_value({"responsibilities": R}) == pytest.approx(expected, rel=1e-12)


def test_given_numbers_are_left_alone_and_rows_may_be_shifted() -> None:
    L, g = rows()
    before = L.copy()
    p = FairResponsibilities(L, groups=g)
    assert (before == L).all()
    np.testing.assert_allclose(np.exp(p.log_prob), softmax(L, axis=1), atol=1e-15)
    shifted = FairResponsibilities(L + np.arange(12.0)[:, None] * 1e3, groups=g)
    np.testing.assert_allclose(shifted.log_prob, p.log_prob, atol=1e-9)
    assert p.group_names.tolist() == ["a", "b"]


def test_without_rules_nothing_moves() -> None:
    L, g = rows()
    s = FairResponsibilities(L, groups=g, fairness=None).solve()
    assert s.objective == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(s["responsibilities"], softmax(L, axis=1), atol=1e-14)


@pytest.mark.parametrize("solver", ["entropic-mass", "clarabel"])
def test_a_rule_looser_than_the_data_costs_nothing(solver: str) -> None:
    L, g = rows()
    free = FairResponsibilities(L, groups=g, fairness=None).solve()
    gap = np.abs(np.diff(free["masses"] / 0.5, axis=0)).max()
    loose = FairResponsibilities(L, groups=g, fairness=of.max_gap(1.01 * gap)).solve(solver)
    tight = FairResponsibilities(L, groups=g, fairness=of.max_gap(0.5 * gap)).solve(solver)
    assert loose.objective == pytest.approx(0.0, abs=1e-7) and tight.objective > 1e-3
    found = np.abs(np.diff(tight["masses"] / 0.5, axis=0)).max()
    assert found == pytest.approx(0.5 * gap, abs=1e-6)


def test_rules_compose_as_on_the_assignment() -> None:
    L, g = rows()
    p = FairResponsibilities(L, groups=g).with_constraints(size=of.cluster_share(lower=0.3))
    q = p.with_constraints(own=p["masses"][0, 0] == p["masses"][0, 1])
    s = q.solve()
    assert s.solver == "entropic-mass" and s["masses"].sum(axis=0).min() >= 0.3 - 1e-8
    assert s["masses"][0, 0] == pytest.approx(s["masses"][0, 1], abs=1e-8)
    assert s.objective >= p.solve().objective - 1e-9
    F = cp.multiply(1 / p.shares[:, None], p["masses"])
    near = p.without("fairness").with_constraints(near=cp.sum_squares(F[0] - F[1]) <= 1e-3)
    assert near.solve().solver == "entropic-mass"
    assert near.solve().is_optimal(1e-7)


def test_other_densities_under_the_same_rules() -> None:
    L, g = rows()
    p = FairResponsibilities(L, groups=g).with_constraints(size=of.cluster_share(lower=0.3))
    q = p.with_log_prob(2.0 * L)
    fresh = FairResponsibilities(2.0 * L, groups=g).with_constraints(
        size=of.cluster_share(lower=0.3)
    )
    assert q.solve().objective == pytest.approx(fresh.solve().objective, abs=1e-10)
    np.testing.assert_allclose(np.exp(p.log_prob), softmax(L, axis=1), atol=1e-15)
    with pytest.raises(of.DataError, match="before it was"):
        p.with_log_prob(L[:, :2])


def test_the_multiplier_of_the_gap_is_its_price() -> None:
    """The optimum's derivative in ε, by solving beside it."""
    L, g = rows(40)

    def solved(eps: float) -> Any:
        return FairResponsibilities(L, groups=g, fairness=of.max_gap(eps)).solve(tolerance=1e-9)

    s, step = solved(0.05), 1e-4
    slope = (solved(0.05 + step).objective - solved(0.05 - step).objective) / (2 * step)
    total = sum(float(np.sum(v)) for n, v in s.multipliers.items() if n.startswith("fairness"))
    assert slope < -1e-3 and total == pytest.approx(-slope, rel=1e-4)


BAD: dict[str, Any] = {
    "nan": ((lambda L, g: (np.where(L[0, 0] == L, np.nan, L), g)), of.DataError, "NaN"),
    "impossible": (
        (lambda L, g: (np.where(L[0, 0] == L, -np.inf, L), g)),
        of.DataError,
        "minus infinity",
    ),
    "one group": ((lambda L, g: (L, np.zeros(12))), of.DataError, "one group"),
    "lengths": ((lambda L, g: (L, g[:-1])), of.DataError, "groups"),
    "flat": ((lambda L, g: (L[:, 0], g)), of.DataError, "log_prob"),
    "text": ((lambda L, g: ([["a", "b"]] * 12, g)), of.DataError, "log_prob"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_refused(name: str) -> None:
    change, error, words = BAD[name]
    L, g = change(*rows())
    with pytest.raises(error, match=words) as e:
        FairResponsibilities(L, groups=g)
    assert e.value.remedy


def test_bad_rules_are_refused() -> None:
    L, g = rows()
    with pytest.raises(of.DeclarationError, match="float, not a rule"):
        FairResponsibilities(L, groups=g, fairness=0.1)  # type: ignore[arg-type]
    with pytest.raises(of.DeclarationError, match="balance"):
        FairResponsibilities(L, groups=["a"] * 9 + ["b"] * 3, fairness=of.balance(0.9))
    with pytest.raises(of.DataError, match="weight"):
        FairResponsibilities(L, groups=g, sample_weight=-np.ones(12))
