"""Weakly infeasible problems and optima that no point attains, from the declaration to the words."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import cvxpy as cp
import pytest

import optfair as of
from optfair.backends.facial import FacialContradiction, unattained

UNITS = (1e-6, 1.0, 1e6)


def cornered(unit: float) -> of.Problem:
    """[[x, u], [u, 0]] is never positive semidefinite, and nearly is far out."""
    x = cp.Variable(name="x")
    rows = [cp.bmat([[x, unit], [unit, 0]]) >> 0, x >= 0]
    return of.from_cvxpy(cp.Problem(cp.Minimize(x), rows), ["block", "sign"])


@pytest.mark.parametrize("unit", UNITS)
def test_weakly_infeasible_problems_are_refused_with_a_proof(unit: float) -> None:
    with pytest.raises(of.Infeasible, match="weakly infeasible") as told:
        cornered(unit).solve(time_limit=2.0)
    proof = told.value.certificate
    assert told.value.conflict == ("block",) and isinstance(proof, FacialContradiction)
    assert proof.weak and proof.verify() and "2 steps" in str(proof)
    last = {i: -v for i, v in proof.proof.links[-1].items()}
    wrong = replace(proof, proof=replace(proof.proof, links=(proof.proof.links[0], last)))
    assert not wrong.verify()


@pytest.mark.parametrize("unit", UNITS)
def test_the_diagnosis_names_them(unit: float) -> None:
    d = cornered(unit).with_constraints().diagnose(time_limit=5.0)
    assert d.verdict == "weakly infeasible" and d.conflict == ("block",)
    found = d["conflict"]
    assert "weakly infeasible: no strictly separating certificate exists" in found.lines
    assert found.numbers["proved"] and found.numbers["weak"] and found.verify()


def test_without_an_objective_a_point_far_out_is_no_answer() -> None:
    p = cornered(1.0)
    with pytest.raises(of.Infeasible, match="weakly"):
        p.with_terms({}, p.constraints).solve()


def test_the_proof_is_not_written_as_one_of_multipliers(tmp_path: Path) -> None:
    d = cornered(1.0).diagnose(time_limit=5.0)
    with pytest.raises(of.UnsupportedProblem, match="cannot be written"):
        d["conflict"].evidence.save(tmp_path / "proof.json")  # type: ignore[union-attr]


@pytest.mark.parametrize("unit", UNITS)
def test_an_optimum_that_no_point_attains_is_told(unit: float) -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    block = cp.bmat([[x, unit], [unit, y]]) >> 0
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x + 2 * unit), [block]), ["block"])
    s = p.solve()
    assert not s.attained and "by no point" in repr(s)
    d = p.diagnose()
    found = d["unattained"]
    assert found.numbers["limit"] == pytest.approx(2 * unit) and found.verify()
    proof = unattained(s)
    assert proof is not None and proof.verify()
    row = next(iter(proof.proof.links[0]))
    links = ({**proof.proof.links[0], row: Fraction(1, 3)}, *proof.proof.links[1:])
    assert not replace(proof, proof=replace(proof.proof, links=links)).verify()
    assert not replace(proof, limit=unit).verify()
    # with a bound on y there is an optimum
    near = p.with_constraints(cap=y <= 4 * unit).solve()
    assert near.attained and unattained(near) is None


def test_limits_from_above_too() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(3 - x), [cp.bmat([[x, 1], [1, y]]) >> 0]))
    found = p.diagnose()["unattained"]
    assert found.numbers["limit"] == pytest.approx(3.0) and "below" in found.lines[0]


def test_a_duality_gap_is_no_limit() -> None:
    """The optimum 1.000001 is attained, though no multipliers exclude 1 and no point attains 1."""
    y, x, w = cp.Variable(name="y"), cp.Variable(name="x"), cp.Variable(name="w")
    block = cp.bmat([[0.0, y - 1, 0.0], [y - 1, x, 0.0], [0.0, 0.0, y]])
    p = of.from_cvxpy(cp.Problem(cp.Minimize(1e-6 * y + w), [w >= 1, block >> 0]))
    s = p.solve()
    assert s.objective == pytest.approx(1.000001, abs=1e-9) and s.attained
    assert not any(f.kind == "unattained" for f in p.diagnose().findings)
