"""Proofs by a pair of the compiled form: what they tell, in units too; rows without a price."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.compile.conic_proof import (
    ConicProof,
    ExactOptimum,
    RescaledProof,
    conic_proof,
    form_check,
    shortfall,
    unpriced,
)
from optfair.compile.form import compile_problem
from optfair.core.certificate import DualCheck
from optfair.proofs.unpaid import Unpaid
from optfair.solution.conic_form import ConicForm, ConicResiduals


def test_only_inequalities_without_variables_that_hold_lose_their_multiplier() -> None:
    x = cp.Variable(2, name="x")
    zero = np.array([1.0, 0.0])
    rows = {
        "equal": cp.multiply(zero, x) == 0,
        "mixed": cp.multiply(zero, x) <= np.array([3.0, 4.0]),
        "false": 0 * x[0] <= -1,
        "cone": cp.norm(x) <= 5,
    }
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), list(rows.values())), list(rows))
    compiled = compile_problem(p, "CLARABEL")
    z = np.ones(compiled.form.b.size)
    found = compiled.by_name(np.zeros(compiled.form.q.size), unpriced(compiled.form, z))[1]
    before = compiled.by_name(np.zeros(compiled.form.q.size), z)[1]
    assert before["mixed"].tolist() == [1.0, 1.0] and found["mixed"].tolist() == [1.0, 0.0]
    for name in ("equal", "false", "cone"):
        np.testing.assert_array_equal(found[name], before[name])
    assert z.all()  # not changed in place
    short = np.ones(3)
    assert unpriced(compiled.form, short) is short


def test_a_problem_without_such_rows_keeps_its_multipliers() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1, x <= 3]))
    compiled = compile_problem(p, "CLARABEL")
    z = np.ones(compiled.form.b.size)
    assert unpriced(compiled.form, z) is z


def test_a_pair_is_as_far_off_as_its_worse_half() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1, x <= 3]))
    form = compile_problem(p, "CLARABEL").form
    z = np.where(form.b < 0.0, 1.0, 0.0)
    right = form_check(form, np.ones(2), z, 0.0)
    assert right.dual == 0.0 and right.bound == pytest.approx(2.0) and right.apart
    outside = form_check(form, np.array([0.0, 1.0]), z, 0.0)
    assert outside.dual == pytest.approx(0.25)  # by 1 in 1 + 3
    loose = form_check(form, np.ones(2), z * np.array([1.5, 1.0, 1.0, 1.0]), 0.25)
    assert loose.dual == pytest.approx(0.25) and loose.consistency == 0.25


@pytest.mark.parametrize(("sense", "sign"), [(cp.Minimize, 1), (cp.Maximize, -1)])
def test_an_optimum_in_fractions_is_what_it_says_or_nothing(sense: Any, sign: int) -> None:
    x = cp.Variable(2, name="x")
    goal = sense(sign * (0.1 * x[0] + 0.7 * x[1]) + 3)
    p = of.from_cvxpy(cp.Problem(goal, [x >= 1, x <= 2]))
    form = compile_problem(p, "CLARABEL").form
    z = np.where(form.b < 0.0, np.concatenate([form.q, form.q])[: form.b.size], 0.0)
    fractions = {"point": ["1", "1"], "prices": [str(Fraction(float(v))) for v in z]}
    facts = {"interface": "CLARABEL", "fractions": fractions}
    exact = conic_proof(p, facts, np.ones(2), z)
    assert isinstance(exact, ExactOptimum) and exact.verify()
    assert exact.objective == 3 + sign * (Fraction(0.1) + Fraction(0.7))
    named = exact.compiled.by_name(exact.x, exact.z)
    assert exact.check(*named).bound == exact.bound
    assert sign * (Fraction(exact.bound) - exact.objective) <= 0
    wrong = replace(exact, prices=tuple(2 * v for v in exact.prices))
    assert not wrong.verify() and wrong.check(*named).bound == -sign * np.inf


def test_a_line_under_the_value_between_two_sides() -> None:
    """The least of x + 2y with x + y >= t is t."""

    def at(t: float) -> of.Problem:
        v = cp.Variable(2, name="v")
        return of.from_cvxpy(cp.Problem(cp.Minimize(v[0] + 2 * v[1]), [cp.sum(v) >= t, v >= 0]))

    ends = at(1.0), at(3.0)
    compiled = compile_problem(ends[0], "CLARABEL")
    z = np.where(compiled.form.b < 0.0, 1.0, 0.0)
    z += np.where(np.diff(compiled.form.rows.indptr) == 1, compiled.form.rows @ [0.0, -1.0], 0.0)
    line = ConicProof(ends[0], compiled, np.array([1.0, 0.0]), z).line(ends, 1.0, 3.0)
    assert line is not None and line.sound
    for t in (1.0, 2.0, 3.0):
        assert t - 1e-9 < line(t) <= t


@pytest.mark.parametrize("told", [2.0, None])
def test_a_proof_in_other_units_tells_all_that_has_a_unit(told: float | None) -> None:
    met: list[Any] = []

    class Divided:
        source = "stub"

        def check(self, values: Any, multipliers: Any) -> DualCheck:
            met.append((values, multipliers))
            unpaid = Unpaid(np.array([0]), 3.0, 5.0, 7.0, 11.0, 1.0)
            return DualCheck(13.0, 0.5, 0.25, 0.125, unpaid, ("x",), "", 17.0, told, 0.0625, True)

        def stored(self) -> None:
            return None

    proof = RescaledProof(None, Divided(), 1e3)  # type: ignore[arg-type]
    found = proof.check({"x": 1.0}, {"row": np.array([2e3, 4e3])})
    values, multipliers = met[0]
    assert values == {"x": 1.0} and multipliers["row"].tolist() == [2.0, 4.0]
    assert (found.bound, found.unit) == (13e3, 17e3)
    assert found.estimate == (None if told is None else 2e3)
    assert found.unpaid is not None and (found.unpaid.slope, found.unpaid.curve) == (3e3, 5e3)
    assert (found.dual, found.complementarity, found.consistency) == (0.5, 0.25, 0.125)
    assert proof.source == "stub" and proof.stored() is None


def test_only_rows_that_hold_are_without_a_price() -> None:
    x = cp.Variable(2, name="x")
    rows = [0 * x[0] <= 0, 0 * x[0] <= -1e-300, x[0] >= 1]
    compiled = compile_problem(of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), rows)), "CLARABEL")
    z = np.ones(3)
    priced = dict(zip(("holds", "false", "row"), unpriced(compiled.form, z).tolist(), strict=True))
    assert priced == {"holds": 0.0, "false": 1.0, "row": 1.0}


@pytest.mark.parametrize("constant", [0.0, 100.0])
def test_a_pair_is_proved_within_its_share_of_the_tolerance(
    constant: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x) + constant), [x >= 1, x <= 3]))
    form = compile_problem(p, "CLARABEL").form
    best = ConicResiduals(0.0, 0.0, 0.0, 0.0, 0.0, 2.0 + constant, 2.0 + constant)

    def missed(share: float = 0.5, below: float = 0.0, **changes: Any) -> float:
        found = replace(best, bound=best.bound - below, **changes)
        monkeypatch.setattr(ConicForm, "residuals", lambda *_: found)
        return shortfall(p, form, np.ones(2), np.zeros(4), 1e-6, share)

    def left(slope: float, **more: float) -> Unpaid:
        return Unpaid(np.array([0]), **{"slope": slope, "curve": 0.0, "size": 1.0} | more)

    # half of 1e-6 of the 2 that the objective is without its constant
    assert missed() == missed(below=0.9e-6) == missed(primal=4e-7) == missed(rows=4e-7) == 0.0
    for wrong in (1.1e-6, -1.1e-6, np.inf, np.nan):
        assert missed(below=wrong) == np.inf
    assert missed(primal=6e-7) == missed(rows=6e-7) == missed(0.4, below=0.9e-6) == np.inf
    # the bound holds wherever columns are below 1e3 times what they are, or may well be
    assert missed(unpaid=left(8e-10, here=1e-9)) == 0.0
    assert missed(unpaid=left(2e-9, here=1e-9)) == pytest.approx(5e-10)
    assert missed(unpaid=left(2e-10, here=1e-9, size=10.0)) == pytest.approx(5e-10)
    assert missed(unpaid=left(2e-10, here=1e-9, natural=10.0)) == pytest.approx(5e-10)
    assert missed(unpaid=left(2e-9, here=1e-9, size=0.1, natural=0.1)) == pytest.approx(5e-10)
    assert missed(unpaid=left(2e-10, here=1e-9), below=0.9e-6) == pytest.approx(4.5e-7, rel=0.01)
    # products on curved cones count where they are more than the root of the tolerance suggests
    assert missed(unpaid=left(2e-9, here=1e-9), relative=4e-5) == pytest.approx(5e-10)
    assert missed(unpaid=left(2e-9, here=1e-9), relative=6e-5) == pytest.approx(6e-5, rel=1e-4)
