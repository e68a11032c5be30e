"""Tangents of proved functions: below them everywhere, and of no other problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import local_optima, tangents
from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.registry import conic_interface, profile
from optfair.backends.request import Request
from optfair.backends.tangents import Curved, _bounded, _curved, _domain, _without_curves
from optfair.compile.form import compile_problem
from optfair.convexity.domain import Domain
from optfair.convexity.reading import leaf_of, read_constraint

x, y = cp.Variable(name="x"), cp.Variable(name="y")


def bent(t: Any) -> Any:
    """exp(t) - t^2/2, which no rule of composition knows to be convex where t >= 0."""
    return cp.exp(t) - cp.square(t) / 2


def separable() -> Any:
    rows = [bent(x) <= 2, bent(y) <= 3, x >= 0, y >= 0, x <= 3, y <= 3]
    names = ["one", "two", "a", "b", "c", "d"]
    return of.from_cvxpy(cp.Problem(cp.Minimize(-x - 2 * y), rows), names)


def test_multipliers_belong_to_their_own_rows() -> None:
    s = separable().solve("tangents")
    one, two = (float(np.exp(s[n]) - s[n]) for n in "xy")  # slopes there
    assert s.multipliers["one"] == pytest.approx(1.0 / one, abs=1e-4)
    assert s.multipliers["two"] == pytest.approx(2.0 / two, abs=1e-4)


def test_bounds_that_curves_imply_are_rows_of_the_relaxation() -> None:
    p = separable()
    curved = [Curved.of(t, p.sense) for t in _curved(p)]
    rows = _without_curves(p, curved, _domain(p, curved)).constraints
    implied = {n for n in rows if "as curves imply" in n}
    assert implied == {"x high as curves imply", "y high as curves imply"}
    for k, end in ((0, 0.83), (1, 1.36)):  # points that the curves allow
        at = {n: np.array(end if i == k else 0.5) for i, n in enumerate("xy")}
        assert all(np.max(rows[n].violation(at)) == 0.0 for n in rows)


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_a_gap_is_closed_by_tangents_alone(monkeypatch: pytest.MonkeyPatch, sense: str) -> None:
    """No local search finds a point: exp(x) - x^2/2 - 2x is least where exp(x) = x + 2."""
    monkeypatch.setattr(tangents, "local_optimum", lambda *_: None)
    f, sign = bent(x) - 2 * x, 1.0 if sense == "minimize" else -1.0
    goal = cp.Minimize(f) if sense == "minimize" else cp.Maximize(-f)
    p = of.from_cvxpy(cp.Problem(goal, [x >= 0, x <= 3]))
    outcome = tangents.run(p, profile("tangents"), Request(tolerance=1e-6))
    assert outcome.termination == "optimal"
    least = 1.1461932206205825
    truth = np.exp(least) - least**2 / 2 - 2 * least
    assert sign * p.objective_at(outcome.values) == pytest.approx(truth, abs=1e-6)
    bound = sign * outcome.proof.check(outcome.values, outcome.multipliers).bound
    assert truth - 2e-6 <= bound <= truth + 1e-12


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
@pytest.mark.parametrize("ends", [(0.0, 3.0), (1.0, 1e3), (0.5, 1.5)])
def test_a_tangent_is_below_its_function(sense: str, ends: tuple[float, float]) -> None:
    low, high = ends
    f = bent(x) + y * y / (1 + y)
    goal = cp.Minimize(f) if sense == "minimize" else cp.Maximize(-f)
    p = of.from_cvxpy(cp.Problem(goal, [x >= low, x <= high, y >= low, y <= high]))
    (curved,) = [Curved.of(t, p.sense) for t in _curved(p)]
    assert curved.sign == (1.0 if sense == "minimize" else -1.0)
    leaves = [leaf_of(p.variables[n]) for n in "xy"]
    for at in ((1.25, 1.0), (1.0, 1.5)):
        point = {leaf: np.array([v]) for leaf, v in zip(leaves, at, strict=True)}
        cut = curved.tangent(point, _domain(p, [curved]))
        assert cut is not None
        offset, slopes = cut
        a, b = (float(slopes[leaf].ravel()[0]) for leaf in leaves)
        grid, other = np.meshgrid(np.linspace(low, min(high, 20.0), 31), [at[1], low, high])
        value = np.exp(grid) - grid**2 / 2 + other**2 / (1 + other)
        line = float(offset[0]) + a * grid + b * other
        assert (line <= value * (1 + 1e-13) + 1e-13).all()
        touched = np.exp(at[0]) - at[0] ** 2 / 2 + at[1] ** 2 / (1 + at[1])
        assert float(offset[0]) + a * at[0] + b * at[1] == pytest.approx(touched, abs=1e-9)


def test_a_slope_without_end_is_no_tangent() -> None:
    v = cp.Variable(2, name="v")
    goal = cp.sum(cp.xexp(v)) - cp.sum(cp.sqrt(v))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [v >= 0, v <= 2]))
    (curved,) = [Curved.of(t, p.sense) for t in _curved(p)]
    leaf = leaf_of(p.variables["v"])
    for at, known in (([0.5, 1.0], True), ([0.0, 1.0], False), ([1.0, 0.0], False)):
        cut = curved.tangent({leaf: np.array(at)}, _domain(p, [curved]))
        assert (cut is not None) == known


def test_all_entries_of_a_bounded_variable_have_two_ends() -> None:
    v = cp.Variable(2, name="v")
    for rows, both in (([v >= 0, v <= 1], True), ([v >= 0, v[0] <= 1], False), ([v <= 1], False)):
        facts = [f for k, row in enumerate(rows) for f in read_constraint(f"{k}", row, Domain())]
        assert _bounded(leaf_of(v), Domain(facts)) == both


def test_beside_integers_cones_of_exponentials_are_curves_and_rows_are_not() -> None:
    n = cp.Variable(integer=True, name="n")
    rows = [cp.exp(n) <= 9, x >= -1, n + x == 1, n >= -5, n <= 5]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(n - cp.exp(x)), rows), ["row", "low", "sum", "a", "b"])
    assert [t.name for t in _curved(p)] == ["objective", "row"]
    assert [Curved.of(t, p.sense).sign for t in _curved(p)] == [-1.0, 1.0]
    s = p.solve("tangents")
    assert s["n"] == 2.0 and s.objective == pytest.approx(2.0 - np.exp(-1.0), abs=1e-7)


def steep(limit: float) -> Any:
    rows = [bent(x) + y * y <= limit, x >= 0, x <= 3, x + y >= 0.8]
    return of.from_cvxpy(cp.Problem(cp.Minimize(y - x), rows), ["well", "low", "high", "near"])


def test_what_tangents_exclude_names_all_that_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where x < 0 the curve falls again: without that bound there are points."""
    monkeypatch.setattr(
        local_optima, "STEPS", 5
    )  # no local search finds a point where there is none
    with pytest.raises(of.Infeasible) as met:
        tangents.run(steep(1.5), profile("tangents"), Request())
    assert {"well", "low", "near"} <= {*met.value.conflict}
    proof: Any = met.value.certificate
    assert proof.verify() and not replace(proof, problem=steep(2.5)).verify()
    assert not replace(proof, z=np.zeros_like(proof.z)).verify()
    # a vector that proves another program to have no point says nothing of this one
    ball = of.from_cvxpy(cp.Problem(cp.Minimize(x), [cp.norm(cp.hstack([x, y])) <= -1.0]))
    form = compile_problem(ball, conic_interface()).form
    z = np.zeros(form.b.size)
    z[[c.start for c in form.cones]] = 1.0
    assert InfeasibilityProof(form, z).verify()
    assert not replace(proof, form=form, z=z).verify()


def test_what_tangents_rest_on_is_part_of_what_they_exclude(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """exp(x) - x^2/2 - x is at least 1 where x >= 0; a tangent says it within 0 <= x <= 3."""
    monkeypatch.setattr(local_optima, "STEPS", 5)
    rows = [bent(x) - x + y * y <= 0.9, x >= 0, x <= 3]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(y), rows), ["well", "low", "high"])
    with pytest.raises(of.Infeasible) as met:
        tangents.run(p, profile("tangents"), Request())
    assert met.value.certificate.verify() and met.value.conflict == ("well", "low", "high")


def test_a_maximum_without_a_box_has_a_limit() -> None:
    v = cp.Variable(3, nonneg=True, name="v")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(3 * cp.sum(v) - cp.sum(cp.xexp(v)))))
    outcome = tangents.run(p, profile("tangents"), Request(tolerance=1e-6))
    most = 3 * 0.7074781194243491  # (1 + x) exp x = 3
    assert p.objective_at(outcome.values) == pytest.approx(most, rel=1e-6)
    bound = outcome.proof.check(outcome.values, outcome.multipliers).bound
    assert most <= bound * (1 + 1e-12) and bound == pytest.approx(most, rel=1e-5)
