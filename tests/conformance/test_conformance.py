"""Every profile meets every class: what it claims it solves, all else it refuses with reasons."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import optfair as of
from optfair.backends.policy import choose
from optfair.backends.profile import Refusal
from optfair.backends.registry import profile, profiles

sys.path.insert(0, str(Path(__file__).parent))
from instances import CASES, INFEASIBLE, UNBOUNDED

GENERIC = [p.name for p in profiles().values() if not p.structure and p.installed]
STRUCTURED = [p.name for p in profiles().values() if p.structure]
# what a first-order method is held to
TOLERANCE = dict.fromkeys(GENERIC, 1e-07) | {"scs": 1e-5}


def declared(case: str) -> of.Problem:
    spec = CASES[case]
    problem, names = spec.build()
    p = of.from_cvxpy(problem, names)
    return p.with_integrality(*spec.integers) if spec.integers else p


def test_some_solver_is_tried_on_every_class() -> None:
    assert set(GENERIC) >= {"highs", "clarabel", "scs"}


@pytest.mark.parametrize("case", CASES)
def test_class_is_recognised(case: str) -> None:
    expected = CASES[case].kind
    assert declared(case).problem_class.name == expected


@pytest.mark.parametrize("solver", GENERIC)
@pytest.mark.parametrize("case", CASES)
def test_solves_what_it_claims_and_refuses_the_rest(solver: str, case: str) -> None:
    p, spec = declared(case), CASES[case]
    verdict = profile(solver).accepts(p)
    claimed = spec.kind in profile(solver).classes and p.problem_class.convex
    assert bool(verdict) == claimed
    if isinstance(verdict, Refusal):
        assert verdict.reasons and all(solver in r for r in verdict.reasons)
        with pytest.raises(of.UnsupportedProblem) as refusal:
            p.solve(solver)
        assert refusal.value.remedy.startswith(("remove", "solve without", "write"))
        assert "Solvers that can" in refusal.value.remedy
        return
    tolerance = TOLERANCE[solver]
    s = p.solve(solver, tolerance=tolerance)
    assert s.is_optimal(tolerance)
    assert s.status.termination == "optimal"
    assert s.objective == pytest.approx(spec.value, rel=30 * tolerance, abs=30 * tolerance)
    # a value accurate to ε pins curved optima down to √ε only
    close = 30 * tolerance**0.5 if spec.kind not in ("LP", "MILP") else 100 * tolerance
    for name, expected in spec.primal.items():
        assert np.allclose(s[name], expected, atol=close)
    returns = profile(solver).returns
    if "dual" in returns and not spec.integers:
        assert set(s.multipliers) == set(p.constraints)
        for name, price in spec.prices.items():
            assert np.allclose(s.shadow_price[name], price, atol=close)
    if "bound" in returns and spec.integers:
        assert s.proof is not None and solver in s.proof.source
        assert s.gap <= tolerance


@pytest.mark.parametrize("solver", GENERIC)
@pytest.mark.parametrize("kind", INFEASIBLE)
def test_infeasible_comes_with_a_certificate(solver: str, kind: str) -> None:
    problem, names = INFEASIBLE[kind]()
    p = of.from_cvxpy(problem, names)
    assert p.problem_class.family == kind
    if not profile(solver).accepts(p):
        return
    with pytest.raises(of.Infeasible) as found:
        p.solve(solver, tolerance=TOLERANCE[solver])
    assert "reported" in found.value.evidence or set(found.value.conflict) == {"far", "near"}
    if "farkas" in profile(solver).returns and kind != "QP":
        assert found.value.certificate is not None
        assert found.value.certificate.verify()


@pytest.mark.parametrize("solver", GENERIC)
@pytest.mark.parametrize("kind", UNBOUNDED)
def test_unbounded_is_told_from_infeasible(solver: str, kind: str) -> None:
    problem, names = UNBOUNDED[kind]()
    p = of.from_cvxpy(problem, names)
    if not profile(solver).accepts(p):
        return
    known = profile(solver).quirks
    if kind == "QP" and "unbounded_qp" in known:
        # never a silently wrong answer: either it is told, or the "optimum" is rejected
        with pytest.raises((of.Unbounded, of.SolverFailure)):
            p.solve(solver, tolerance=TOLERANCE[solver])
        return
    with pytest.raises(of.Unbounded, match="improves without limit"):
        p.solve(solver, tolerance=TOLERANCE[solver])


@pytest.mark.parametrize("solver", STRUCTURED)
@pytest.mark.parametrize("case", CASES)
def test_structured_routes_refuse_problems_without_their_structure(solver: str, case: str) -> None:
    verdict = profile(solver).accepts(declared(case))
    assert isinstance(verdict, Refusal)
    assert f"needs the structure {profile(solver).structure!r}" in verdict.reasons[0]


@pytest.mark.parametrize("case", CASES)
def test_default_is_open_and_independent_of_what_is_installed(case: str) -> None:
    p = declared(case)
    able = [n for n in GENERIC if profile(n).accepts(p)]
    if not able:
        with pytest.raises(of.UnsupportedProblem, match="no open solver takes this"):
            choose(p, None)
        return
    chosen = choose(p, None)
    assert all(c.kind == "open" for c in chosen)
    assert {c.name for c in chosen} == set(able)
