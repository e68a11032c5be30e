"""Every instance of the library is re-verified by solvers that did not certify it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

import optfair as of
from optfair.backends.registry import profile, profiles
from optfair.library.certification import ENUMERATION, solved_with, tree_bound

NAMES = of.library.names()
INSTANCES = {name: of.library.load(name) for name in NAMES}
declared = cache(lambda name: INSTANCES[name].problem())  # problems do not change
OPTIMA = [n for n, i in INSTANCES.items() if i.optimum is not None]
SMALL = [n for n in OPTIMA if n.startswith("textbook/")] + ["fair_clustering/german_k3"]
CONFLICTS = [n for n, i in INSTANCES.items() if i.infeasible is not None]
NONCONVEX = [n for n, i in INSTANCES.items() if i.problem_class.startswith("nonconvex")]


def second_opinion(name):
    """A solver for the relaxations where the instance has integer variables."""
    optimum = INSTANCES[name].optimum
    return next(s for s in optimum.checked_by if s not in (optimum.certified_by, ENUMERATION))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n.endswith("_80") else n for n in NAMES],
)
@pytest.mark.sampled(4)
def test_certifies(name):
    outcome = of.library.certify(name)
    assert outcome.ok, repr(outcome)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n.endswith("_80") else n for n in OPTIMA],
)
def test_optimum_is_confirmed_by_a_second_solver(name):
    stated = INSTANCES[name].optimum.value
    problem, solver = declared(name), second_opinion(name)
    if problem.integers and not profile(solver).accepts(problem):
        found, _ = tree_bound(problem, stated, solver, 1e-6)
    else:
        s = solved_with(problem, solver, 1e-7)
        assert not s.residuals().above(1e-7)
        found = s.objective
    # an optimum of 0 has no relative error
    assert found == pytest.approx(stated, rel=1e-6, abs=0 if stated else 1e-6)


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflict_is_named_and_proved(name):
    known = INSTANCES[name].infeasible
    with pytest.raises(of.Infeasible) as e:
        declared(name).solve(known.certified_by)
    assert set(e.value.conflict) == set(known.conflict)
    assert e.value.certificate.verify()


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflict_is_necessary(name):
    """Dropping any term of the conflict leaves a problem that can be solved."""
    problem = declared(name)
    for term in INSTANCES[name].infeasible.conflict:
        assert problem.without(term).solve().is_optimal()


@pytest.mark.parametrize("name", NONCONVEX)
def test_nonconvex_has_a_witness_and_every_convex_solver_refuses(name):
    problem = declared(name)
    assert isinstance(problem.certificate, of.core.NonconvexityWitness)
    assert problem.certificate.verify()
    convex_only = [p for p in profiles().values() if not p.nonconvex]
    assert {p.name for p in convex_only} >= {"highs", "clarabel", "scs"}
    for p in convex_only:
        refusal = p.accepts(problem)
        assert not refusal and refusal.reasons, p.name
    with pytest.raises(of.UnsupportedProblem, match="nonconvex"):
        problem.solve("clarabel")


def test_a_nonconvex_optimum_is_proved_by_the_relaxation_only_where_it_meets_a_point():
    """Two members: the relaxation is exact. Three, with a gap of 0.6 percent: it proves nothing."""
    pair = INSTANCES["group_counterfactual/bi_lipschitz_turn"]
    p = pair.problem()
    s = solved_with(p, "clarabel", 1e-8)
    assert s.problem is p and not s.residuals().above(1e-8)
    data = {**pair.data, "X": [[0.0, 0.0], [-2.0, 0.0], [0.0, 1.0]], "k": 1.5}
    optimum = replace(pair.optimum, value=3.987654320987654)
    outcome = of.library.certify(replace(pair, data=data, optimum=optimum))
    assert {c.what: c.ok for c in outcome.checks} == {
        "class": True,
        "certificate": True,
        "refused": True,
        "certified by scip": True,
        "checked by clarabel": False,
    }
    local = replace(pair.optimum, certified_by="uno")
    assert not of.library.certify(replace(pair, optimum=local))


def test_the_library_covers_the_classes():
    classes = {i.problem_class for i in INSTANCES.values()}
    assert classes >= {
        *("LP", "QP", "QCQP", "SOCP", "SDP", "CONIC(exp)", "CONIC(pow)"),
        *("MILP", "MIQP", "MISOCP", "nonconvex QCQP"),
    }
    assert len(CONFLICTS) >= 3 and len(NAMES) >= 44


def test_every_integer_instance_without_a_solver_is_enumerated():
    """Bounds of a tree alone prove no optimum: somebody must hold a point that attains it."""
    for name in OPTIMA:
        problem, optimum = declared(name), INSTANCES[name].optimum
        if problem.integers and optimum.certified_by != ENUMERATION:
            assert profile(optimum.certified_by).accepts(problem), name


def test_coupling_and_factored_form_have_the_same_optimum():
    wide, factored = (
        INSTANCES[f"fair_clustering/{n}"] for n in ("german_coupling", "german_coupling_factored")
    )
    assert wide.optimum.value == pytest.approx(factored.optimum.value, rel=1e-12)


# below and above the optimum in turn: a model has neighbours of its own class
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "shift"),
    [(n, (-1e-4, 1e-4)[i % 2]) for i, n in enumerate(SMALL) if not n.endswith("_80")],
)
def test_a_wrong_optimum_is_found_out(name, shift):
    instance = INSTANCES[name]
    wrong = replace(instance.optimum, value=instance.optimum.value * (1 + shift))
    outcome = of.library.certify(replace(instance, optimum=wrong))
    assert not outcome
    assert sum(not check.ok for check in outcome.checks) >= 1


def test_wrong_class_and_wrong_conflict_are_found_out():
    diet = of.library.load("textbook/diet")
    assert not of.library.certify(replace(diet, problem_class="QP"))
    low = of.library.load("textbook/diet_low_salt")
    wrong = replace(low.infeasible, conflict=("minimum nutrition",))
    assert not of.library.certify(replace(low, infeasible=wrong))
    feasible = replace(diet, optimum=None, infeasible=low.infeasible)
    assert "solved with objective" in repr(of.library.certify(feasible))


def test_an_instance_without_a_second_solver_is_not_certified():
    diet = of.library.load("textbook/diet")
    alone = replace(diet.optimum, checked_by=("highs",))
    assert not of.library.certify(replace(diet, optimum=alone))
    unknown = replace(diet.optimum, checked_by=("higs",))
    assert "did you mean 'highs'" in repr(of.library.certify(replace(diet, optimum=unknown)))


def test_tree_bound_agrees_with_enumeration():
    rng = np.random.default_rng(4)
    from optfair.methods.textbook.allocation import Knapsack

    values, weights = rng.integers(5, 40, 7).astype(float), rng.integers(3, 20, 7).astype(float)
    p = Knapsack(values=values, weights=weights, capacity=35.0)
    best = max(values @ x for x in map(np.array, product((0, 1), repeat=7)) if weights @ x <= 35.0)
    bound, nodes = tree_bound(p, best, "clarabel", 1e-6)
    assert bound == pytest.approx(best, rel=1e-6) and nodes > 1
    # too low a claim is refuted: some node holds something better
    refuted, _ = tree_bound(p, best - 1, "clarabel", 1e-6)
    assert refuted > best - 0.5
