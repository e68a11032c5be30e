"""Branch and bound over the features that move: against enumeration, and its proof."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.features.feature_problem import box, immutable
from optfair.methods.group_counterfactuals import adapters
from optfair.methods.group_counterfactuals.adapters import SupportProof
from optfair.methods.group_counterfactuals.affine_maps import AffineMap, PSDMap
from optfair.methods.group_counterfactuals.fixed_basis import DiagonalMap
from optfair.methods.group_counterfactuals.rules import at_most, chance

W = np.array([1.0, -0.5, 0.3, 0.4])


def problem(model: Any = PSDMap, **given: Any) -> Any:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 4)) @ rng.normal(size=(4, 4)) / 2 - 1.0
    return model(X, score=(W, 0.0), threshold=1.5, **{"K": 1.4, **given})


def best(p: Any, s: int) -> float:
    """Solve once for each set of features that may move."""
    costs = []
    for moving in combinations(range(4), s):
        rest = [j for j in range(4) if j not in moving]
        try:
            costs.append(p.with_constraints(stay=immutable(*rest)).solve().objective)
        except of.Infeasible:
            continue
    return min(costs)


@pytest.mark.parametrize("s", [1, 2, 3])
def test_optimum_of_the_semidefinite_map(s: int) -> None:
    p = problem(k=1.6)
    q = p.with_constraints(few=at_most(s))
    assert str(q.problem_class) == "MISDP"
    found = q.solve(tolerance=1e-7)
    assert found.solver == "support-search"
    assert found.certificate.verify()
    assert found.objective == pytest.approx(best(p, s), rel=1e-6)
    g = p.map(found)
    assert sum(g.moved(j) for j in range(4)) <= s == round(float(found["few.moved"].sum()))


@pytest.mark.slow
def test_other_classes() -> None:
    for p, name in (
        (problem(AffineMap, K=None), "MIQP"),
        (problem(AffineMap, K=None).with_constraints(most=chance(0.01)), "MISOCP"),
    ):
        q = p.with_constraints(few=at_most(2))
        assert str(q.problem_class) == name
        found = q.solve(tolerance=1e-6)
        assert found.solver == "support-search"
        assert found.objective == pytest.approx(best(p, 2), rel=1e-5)


def test_proof_needs_every_leaf() -> None:
    found = problem(k=1.6).with_constraints(few=at_most(2)).solve()
    proof = found.proof
    assert isinstance(proof, SupportProof) and proof.covers()
    for i in range(len(proof.leaves)):
        fewer = replace(proof, leaves=proof.leaves[:i] + proof.leaves[i + 1 :])
        assert not replace(found, proof=fewer).certificate.verify()
        twice = replace(proof, leaves=(*proof.leaves, proof.leaves[i]))
        assert not twice.covers()
    # a leaf with the answer of another choice, however good it is
    kept = [leaf for leaf in proof.leaves if not isinstance(leaf.proof, of.Infeasible)]
    best_of_all = max(kept, key=lambda leaf: leaf.proof.bound)
    for i, leaf in enumerate(proof.leaves):
        if leaf is not best_of_all:
            lent = replace(leaf, proof=best_of_all.proof)
            tampered = replace(proof, leaves=(*proof.leaves[:i], lent, *proof.leaves[i + 1 :]))
            assert tampered.check(found.values, {}).bound == -np.inf
    moved = {**found.values, "mean": np.asarray(found["mean"]) + 1e-4}
    assert not replace(found, values=moved).certificate.verify()


def test_no_choice_is_enough() -> None:
    p = problem(k=1.6).with_constraints(limits=box(dict.fromkeys((0, 2, 3), (-9.0, -1.0))))
    q = p.with_constraints(few=at_most(1))
    with pytest.raises(of.Infeasible) as caught:
        q.solve()
    proof = caught.value.certificate
    assert proof is not None and proof.faults(q) == ()
    assert proof.faults(problem(k=1.6).with_constraints(few=at_most(1))) != ()


def test_time_limit_leaves_an_incumbent_with_its_gap(
    monkeypatch: pytest.MonkeyPatch, later: Any
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 12)) @ rng.normal(size=(12, 12)) / 2
    p = PSDMap(X, score=(rng.normal(size=12), 0.0), threshold=4.0, K=1.4, k=1.6)
    solve, made = adapters.solve_as_asked, []

    def counted(child: Any, solver: Any, request: Any) -> Any:
        made.append(request.time_limit)
        found = solve(child, solver, request)
        if len(made) == 3:
            later(2000.0)
        return found

    monkeypatch.setattr(adapters, "solve_as_asked", counted)
    s = p.with_constraints(few=at_most(4)).solve(time_limit=1000.0)
    assert s.status.termination == "time_limit" and max(made) <= 1000.0
    assert s.proof is not None and s.proof.covers()
    assert np.isfinite(s.bound) and s.bound <= s.objective + 1e-6


def test_what_it_does_not_take() -> None:
    p = problem(k=1.6).with_constraints(few=at_most(2))
    assert not p.structure_refusal("feature-support")
    assert p.with_integrality("mean").structure_refusal("feature-support")
    assert p.without("few").structure_refusal("feature-support")
    diagonal = problem(DiagonalMap, k=1.6).with_constraints(few=at_most(2))
    assert not diagonal.structure_refusal("feature-support")
    rows = np.random.default_rng(0).normal(size=(20, 17))
    many = DiagonalMap(rows, score=(np.ones(17), 0.0), threshold=1.0)
    refusal = many.with_constraints(few=at_most(2)).structure_refusal("feature-support")
    assert "of more than 16 features the mixed-integer QP" in refusal
