"""The nonconvex baseline: a feasible point, a bound, the gap between them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import optfair as of
from optfair.backends.registry import profile
from optfair.core.solution import Solution, Status
from optfair.features.feature_problem import box, immutable
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.bi_lipschitz import (
    BiLipschitzCounterfactuals,
    bi_lipschitz_baseline,
)
from optfair.methods.group_counterfactuals.members import IndependentCounterfactuals

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 2))
V = RNG.normal(size=2)
KW = {"score": (V, 0.0), "threshold": 1.5 * float(np.linalg.norm(V))}


def problem(K=1.2):
    return BiLipschitzCounterfactuals(X, K=K, k=K, **KW)


def feasible(p, Z):
    return max(t.relative_violation({"counterfactuals": Z}) for t in p.constraints.values())


def test_value_and_bound_enclose_the_optimum():
    p = problem()
    found = bi_lipschitz_baseline(p, local=())
    assert feasible(p, found.counterfactuals) <= 1e-7
    assert found.value == pytest.approx(
        p.objective_value({"counterfactuals": found.counterfactuals})
    )
    maps = PSDMap(X, K=1.2, k=1.2, **KW).solve().objective
    assert found.value == pytest.approx(maps, rel=1e-6) and found.found_by == "PSDMap"
    independent = IndependentCounterfactuals(X, **KW).solve().objective
    assert independent < found.bound < found.value and found.bound_by == "GramBound"
    assert found.gap == pytest.approx((found.value - found.bound) / found.value)


@pytest.mark.parametrize("solver", ["dccp", "uno"])
def test_a_local_solver_improves_on_the_map(solver):
    p = problem()
    before = bi_lipschitz_baseline(p, local=())
    after = bi_lipschitz_baseline(p, local=[solver], seed=0)
    assert after.found_by == solver and not after.notes
    assert after.value < before.value * 0.95
    assert after.bound == before.bound <= after.value
    assert feasible(p, after.counterfactuals) <= 1e-7


def test_loose_factors_close_the_gap():
    """K = k = 5: nothing but the target binds much, and the bound is met."""
    found = bi_lipschitz_baseline(problem(K=5.0), seed=0)
    assert found.gap < 0.02


def test_a_group_that_is_there_has_no_gap():
    inside = X + 50 * V
    found = bi_lipschitz_baseline(BiLipschitzCounterfactuals(inside, K=1.0, k=1.0, **KW), local=())
    assert found.value == 0.0 and found.gap == 0.0
    assert np.array_equal(found.counterfactuals, inside)


@pytest.mark.slow
def test_branch_and_bound_agrees_with_the_bound():
    p = BiLipschitzCounterfactuals(X[:3], K=1.2, k=1.2, **KW)
    convex = bi_lipschitz_baseline(p, seed=0)
    found = bi_lipschitz_baseline(p, solver="scip", time_limit=600, seed=0)
    assert convex.bound <= found.bound * (1 + 1e-6)
    assert found.bound <= found.value <= convex.value * (1 + 1e-6)


def test_gurobi_is_reached_through_pyomo_with_the_parameters_of_the_paper():
    facts = profile("gurobi-pyomo")
    assert facts.fixed["NonConvex"] == 2 and facts.fixed["MIPFocus"] == 1
    p = BiLipschitzCounterfactuals(X[:3], K=1.5, k=1.5, **KW)
    s = p.solve("gurobi-pyomo", time_limit=300.0, options={"NoRelHeurTime": 0.5})
    assert s.residuals().feasibility <= 1e-7
    assert s.status.termination in ("optimal", "time_limit")
    independent = IndependentCounterfactuals(X[:3], **KW).solve().objective
    assert independent * (1 - 1e-3) <= s.bound <= s.objective * (1 + 1e-6)
    assert "as reported" in s.residuals().source
    found = bi_lipschitz_baseline(p, local=(), solver="gurobi-pyomo", time_limit=300.0)
    assert found.bound <= found.value * (1 + 1e-9) <= s.objective * 1.05


def test_a_licence_that_is_too_small_says_so(monkeypatch):
    limited = SimpleNamespace(word="size-limited")
    monkeypatch.setattr("optfair.backends.registry.licence_state", lambda _: limited)
    big = BiLipschitzCounterfactuals(
        RNG.normal(size=(40, 6)),
        K=1.5,
        k=1.5,
        score=(np.ones(6), 0.0),
        threshold=2.0,
    )
    with pytest.raises(of.SizeLimited, match="limited in size") as refused:
        big.solve("gurobi-pyomo")
    assert "240 variables with a quadratic term" in refused.value.evidence
    assert "scip" in refused.value.remedy


def test_rules_are_kept():
    p = problem().with_constraints(i=immutable(0))
    found = bi_lipschitz_baseline(p, local=["uno"])
    assert np.allclose(found.counterfactuals[:, 0], X[:, 0], atol=1e-6)
    assert found.bound <= found.value
    with pytest.raises(of.DataError, match="no feasible point"):
        bi_lipschitz_baseline(p.with_constraints(b=box({1: (-0.01, 0.01)})), local=())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"local": ["highs"]}, "no local solver"),
        ({"start": np.zeros((2, 2))}, "start has shape"),
        ({"start": np.zeros((7, 2))}, "not feasible"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(of.OptfairError, match=message):
        bi_lipschitz_baseline(problem(), **arguments)
    with pytest.raises(of.DeclarationError, match="no bi-Lipschitz problem"):
        bi_lipschitz_baseline(IndependentCounterfactuals(X, **KW))


# --- the convex-concave procedure --------------------------------------------------------------


def test_the_convex_concave_procedure_is_local_and_says_so():
    p = problem()
    s = p.solve("dccp")
    assert s.status.termination == "local" and not s.is_optimal(1e-3)
    assert s.residuals().feasibility <= 1e-7 and s.proof is None
    assert p["counterfactuals"].value is None  # the shared variables keep no value


def test_the_convex_concave_procedure_starts_where_it_is_told():
    p = problem()
    first = p.solve("dccp")
    known = Solution(
        p, "", "", Status("local", "feasible", "unknown"), first.objective, -np.inf,
        {"counterfactuals": first["counterfactuals"]}, {}, None, {}, {},
    )  # fmt: skip
    again = p.solve("dccp", warm_start=known)
    assert again.options["warm_start"] == "used"
    assert again.objective <= first.objective * (1 + 1e-5)


def test_the_convex_concave_procedure_refuses_what_it_cannot_take():
    with pytest.raises(of.UnsupportedProblem, match="integer"):
        problem().with_integrality("counterfactuals").solve("dccp")


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_groups_in_any_units(unit: float):
    X = np.random.default_rng(1).normal(size=(3, 2))

    def stated(unit: float):
        score = [0.9 / unit, -1.1 / unit], -1.0
        return of.group_counterfactuals.BiLipschitzCounterfactuals(
            X * unit, score=score, threshold=0.0, K=1.2, k=1.3
        )

    p, one = stated(unit), bi_lipschitz_baseline(stated(1.0), local=["uno"])
    assert "nonconvex" in str(p.problem_class)
    assert p.certificate.verify()
    far = bi_lipschitz_baseline(p, local=["uno"])
    assert far.found_by == one.found_by == "uno"
    assert far.value / unit**2 == pytest.approx(one.value, rel=1e-6)
    assert far.bound / unit**2 == pytest.approx(one.bound, rel=1e-5)
