"""Every profile meets every class: what it claims it solves, all else it refuses with reasons."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import optfair as of
from optfair.backends.registry import choose, licence_state, profile, profiles
from optfair.backends.request import Refusal

sys.path.insert(0, str(Path(__file__).parent))
from instances import CASES, INFEASIBLE, PRECISE, UNBOUNDED

EVERY = [p.name for p in profiles().values() if not p.structure]
GENERIC = [name for name in EVERY if licence_state(profile(name)).usable]
STRUCTURED = [p.name for p in profiles().values() if p.structure]
# what each is held to where the usual 1e-7 is out of its reach
TOLERANCE = dict.fromkeys(GENERIC, 1e-7) | {"scs": 1e-5, "uno": 1e-6, "ipopt": 1e-6, "sdpa": 1e-6}
LOCAL = [name for name in EVERY if profile(name).nonconvex == "local"]


def declared(case: str) -> of.Problem:
    spec = CASES[case]
    problem, names = spec.build()
    p = of.from_cvxpy(problem, names)
    return p.with_integrality(*spec.integers) if spec.integers else p


def claims(solver: str, p: of.Problem) -> bool:
    facts = profile(solver)
    return p.problem_class.name in facts.classes and bool(p.problem_class.convex or facts.nonconvex)


def test_the_solvers_of_the_core_are_tried() -> None:
    assert set(GENERIC) >= {"highs", "clarabel", "scs"}


@pytest.mark.parametrize("case", CASES)
def test_class_is_recognised(case: str) -> None:
    expected = CASES[case].kind
    assert declared(case).problem_class.name == expected
    assert declared(case).problem_class.convex != case.startswith("nonconvex")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("solver", EVERY)
def test_the_profile_answers_before_anything_runs(solver: str, case: str) -> None:
    """Installed or not: claimed classes are accepted, all others refused with a remedy."""
    p = declared(case)
    verdict = profile(solver).accepts(p)
    assert bool(verdict) == claims(solver, p)
    if isinstance(verdict, Refusal):
        assert verdict.reasons and all(solver in r for r in verdict.reasons)
        with pytest.raises(of.UnsupportedProblem) as refusal:
            p.solve(solver)
        said = refusal.value.remedy
        assert said.startswith(("remove", "solve without", "write", "Solvers that can"))
        assert "Solvers that can" in said
        # without all of its terms there is no problem
        first = said.partition("; ")[0]
        assert not (first.startswith("remove") and all(repr(t.name) in first for t in p.terms))


@pytest.mark.parametrize("solver", sorted(set(GENERIC) - set(LOCAL)))
@pytest.mark.parametrize("case", CASES)
def test_solves_what_it_claims(solver: str, case: str) -> None:
    p, spec = declared(case), CASES[case]
    if not claims(solver, p):
        return
    tolerance = TOLERANCE[solver]
    s = p.solve(solver, tolerance=tolerance)
    assert not s.residuals().above(tolerance)
    assert s.status.termination == "optimal"
    assert s.objective == pytest.approx(spec.value, rel=30 * tolerance, abs=30 * tolerance)
    # a value accurate to ε pins curved optima down to √ε only
    close = 30 * tolerance**0.5 if spec.kind not in ("LP", "MILP") else 100 * tolerance
    for name, expected in spec.primal.items():
        assert np.allclose(s[name], expected, atol=close)
    returns = profile(solver).returns
    assert "primal" in returns
    if "dual" in returns and not spec.integers and p.problem_class.convex:
        assert set(s.multipliers) == set(p.constraints)
        for name, price in spec.prices.items():
            assert np.allclose(s.shadow_price[name], price, atol=close)
    if "bound" in returns and (
        spec.integers or "dual" not in returns or not p.problem_class.convex
    ):
        assert s.proof is not None
        if solver == "cone-cases":  # its bound is a tree of proofs, not its word
            assert s.proof.source == "branching" and s.grade.word == "proved"
        else:
            assert solver in s.proof.source
        assert s.gap <= tolerance


@pytest.mark.parametrize("solver", sorted(set(GENERIC) & set(LOCAL)))
@pytest.mark.parametrize("case", CASES)
def test_local_solvers_never_say_optimal(solver: str, case: str) -> None:
    p, spec = declared(case), CASES[case]
    if not claims(solver, p):
        return
    tolerance = TOLERANCE[solver]
    s = p.solve(solver, tolerance=tolerance)
    assert s.status.termination == "local"
    assert s.residuals().feasibility <= tolerance
    assert s.proof is None and not np.isfinite(s.bound) and not s.is_optimal(1.0)
    sign = 1.0 if p.sense == "minimize" else -1.0
    assert sign * (s.objective - spec.value) >= -30 * tolerance
    if p.problem_class.convex:  # then local is global, though not proved
        assert s.objective == pytest.approx(spec.value, rel=1e-4, abs=1e-4)


# Solvers whose Farkas vectors are exact enough to prove every one of these infeasible.
PROVES = ("highs", "clarabel")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("solver", GENERIC)
@pytest.mark.parametrize("kind", INFEASIBLE)
def test_infeasible_comes_with_a_certificate(solver: str, kind: str) -> None:
    problem, names = INFEASIBLE[kind]()
    p = of.from_cvxpy(problem, names)
    assert p.problem_class.family == kind
    facts = profile(solver)
    if not facts.accepts(p):
        return
    if "infeasible" in facts.misses or facts.nonconvex == "local":
        # never a silently wrong answer
        with pytest.raises((of.SolverFailure, of.Infeasible)) as missed:
            p.solve(solver, tolerance=TOLERANCE[solver])
        assert getattr(missed.value, "certificate", None) is None
        return
    if "farkas" not in facts.returns:
        with pytest.raises(of.SolverFailure, match="which is not proved here") as said:
            p.solve(solver, tolerance=TOLERANCE[solver])
        assert (said.value.claim, said.value.claimed_by) == ("infeasible", solver)
        assert "certificate" in said.value.evidence
        return
    with pytest.raises((of.Infeasible, of.SolverFailure)) as found:
        p.solve(solver, tolerance=TOLERANCE[solver])
    if isinstance(found.value, of.SolverFailure):
        assert solver not in PROVES
        assert found.value.claim == "infeasible"  # a vector too rough for a proof
        return
    assert found.value.certificate.verify()
    assert set(found.value.conflict) == {"far", "near"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("solver", GENERIC)
@pytest.mark.parametrize("kind", UNBOUNDED)
def test_unbounded_is_told_from_infeasible(solver: str, kind: str) -> None:
    problem, names = UNBOUNDED[kind]()
    p = of.from_cvxpy(problem, names)
    facts = profile(solver)
    if not facts.accepts(p):
        return
    if {"unbounded", f"unbounded {kind}"} & set(facts.misses) or facts.nonconvex == "local":
        # never a silently wrong answer: either it is told, or the "optimum" is rejected
        with pytest.raises((of.Unbounded, of.SolverFailure)):
            p.solve(solver, tolerance=TOLERANCE[solver])
        return
    with pytest.raises(of.Unbounded) as found:
        p.solve(solver, tolerance=TOLERANCE[solver])
    if "ray" in facts.returns:
        ray = found.value.ray
        assert ray["t"] > 0 and np.allclose(ray["x"], 0.0, atol=1e-5 * ray["t"])


# what is known not to meet 1e-8: must be refused as unproved, never returned as optimal
FAST = ["LP", "QP", "badly scaled LP", "random LP 0", "random QP 0"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("solver", sorted(set(GENERIC) - set(LOCAL)))
def test_equal_tolerances_are_met_or_reported(solver: str) -> None:
    for case in FAST:
        met_or_reported(solver, case, 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [1e-5, 1e-7, 1e-8, 1e-9])
@pytest.mark.parametrize("case", PRECISE)
@pytest.mark.parametrize("solver", sorted(set(GENERIC) - set(LOCAL)))
def test_every_tolerance_is_met_or_reported(solver: str, case: str, tolerance: float) -> None:
    met_or_reported(solver, case, tolerance)


def met_or_reported(solver: str, case: str, tolerance: float) -> None:
    problem, names, value = PRECISE[case]()
    p = of.from_cvxpy(problem, names)
    if not profile(solver).accepts(p):
        return
    try:
        s = p.solve(solver, tolerance=tolerance)
    except of.SolverFailure as failure:
        assert f"tolerance {tolerance:g}" in failure.cause
        assert solver in failure.evidence and "e-" in failure.evidence  # the residuals
        return
    assert not s.residuals().above(tolerance)
    assert s.objective == pytest.approx(value, rel=20 * tolerance, abs=20 * tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [1e-5, 1e-6, 1e-8])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("solver", sorted(set(GENERIC) - set(LOCAL)))
def test_the_full_product_is_honest(solver: str, case: str, tolerance: float) -> None:
    p, spec = declared(case), CASES[case]
    if not claims(solver, p):
        return
    try:
        s = p.solve(solver, tolerance=tolerance)
    except of.SolverFailure as failure:
        assert solver in failure.evidence
        return
    assert not s.residuals().above(tolerance)
    assert s.objective == pytest.approx(spec.value, rel=30 * tolerance, abs=30 * tolerance)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("solver", STRUCTURED)
@pytest.mark.parametrize("case", CASES)
def test_structured_routes_refuse_problems_without_their_structure(solver: str, case: str) -> None:
    verdict = profile(solver).accepts(declared(case))
    assert isinstance(verdict, Refusal)
    assert f"needs the structure {profile(solver).structure!r}" in verdict.reasons[0]


DEFAULTS = {
    "LP": "highs",
    "QP": "clarabel",
    "QCQP": "clarabel",
    "SOCP": "clarabel",
    "SDP": "clarabel",
    "CONIC": "clarabel",
    "MILP": "highs",
    "MIQP": "cone-cases",
    "MIQCQP": "cone-cases",
    "MISOCP": "cone-cases",
}


@pytest.mark.parametrize("case", CASES)
def test_default_is_open_and_depends_on_the_declaration_alone(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = declared(case)
    few = not p.structure_refusal("few-quadratics")  # their relaxation is asked first
    bounding = "semidefinite-relaxation" if few else "scip"
    expected = DEFAULTS[CASES[case].kind] if p.problem_class.convex else bounding
    # as if everything, or nothing, were installed
    monkeypatch.setattr("optfair.backends.request.SolverProfile.installed", True)
    chosen = choose(p, None)
    assert chosen[0].name == expected
    assert all(c.kind == "open" and c.accepts(p) and c.nonconvex != "local" for c in chosen)
    monkeypatch.setattr("optfair.backends.request.SolverProfile.installed", False)
    with pytest.raises(of.NotInstalled, match=f"{expected} is not installed") as missing:
        choose(p, None)
    assert missing.value.remedy == profile(expected).install
