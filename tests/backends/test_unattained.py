"""Optima that no point attains, and falls without end, from the declaration to the words."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from typer.testing import CliRunner

import optfair as of
from optfair.backends.endless import EndlessFall, NoMultipliers, endless, without_multipliers
from optfair.backends.unattained import (
    MovedPoint,
    attained,
    bounded,
    falls,
    misses,
    nearing,
    unattained,
)
from optfair.cli.app import app
from optfair.convexity.domain import Domain
from optfair.convexity.prove import domain_of
from optfair.convexity.reading import read as reading_of
from optfair.convexity.writing import parse, parse_bounds
from optfair.formats.proof_file import SavedProof
from optfair.proofs import check_proof

UNITS = (1e-6, 1.0, 1e6)


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


def falling(unit: float = 1.0) -> Any:
    """Return a program whose optimum 3, from below, no point attains."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    block = cp.bmat([[x, unit], [unit, y]]) >> 0
    return of.from_cvxpy(cp.Problem(cp.Maximize(3 - x), [block]), ["block"])


def test_an_optimum_that_no_point_attains_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    falling().diagnose()["unattained"].evidence.save(file)
    saved = of.load_proof(file)
    assert saved.verify() and str(saved.verify().grade) == "proved"
    assert "no point attains 3, by" in str(saved) and "no multipliers exclude it" in str(saved)
    assert saved.faults(falling()) == ()
    (why,) = saved.faults(falling(2.0))
    assert "a proof of another problem" in why
    told = CliRunner().invoke(app, ["verify", str(file)])
    assert told.exit_code == 0 and "no point attains 3" in told.output
    with pytest.raises(check_proof.Rejected, match="kind 'unattained optimum' is not decided"):
        check_proof.check(saved.document)

    def fault(change: Callable[[Any], object]) -> str:
        document = copy.deepcopy(saved.document)
        change(document)
        del document["digest"]
        return " ".join(
            SavedProof(document | {"digest": check_proof.digest(document)}).verify().reasons
        )

    assert not fault(lambda d: None)
    # a limit that points reach, one that multipliers exclude, and what is no number
    assert fault(lambda d: d["proof"].update(limit=1))
    assert fault(lambda d: d["proof"].update(limit=-1))
    assert "no float" in fault(lambda d: d["proof"].update(limit="0x1/0x3"))
    assert "malformed" in fault(lambda d: d["proof"].pop("limit"))
    assert "is not shown" in fault(lambda d: d["proof"].update(others=None))
    assert "not linear" in fault(lambda d: d["form"].update(P=[[0], [0], [1]]))
    # the row of the limit is none of the program
    assert "no combination" in fault(lambda d: d.update(kind="facial reduction"))


def test_limits_from_above_too() -> None:
    p = falling()
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


X, Y = cp.Variable(name="x"), cp.Variable(name="y")
THREE = cp.Variable(3, name="v")
H = cp.Variable((2, 2), name="H", symmetric=True)


@pytest.mark.parametrize(
    ("goal", "least"),
    [
        (lambda x, y: cp.quad_over_lin(x, y), 0.0),
        (lambda x, y: cp.quad_over_lin(x, y) + x, 1.0),
        (lambda x, y: cp.inv_pos(y) + cp.inv_pos(x), 0.0),
    ],
)
def test_a_limit_that_is_not_attained_is_proved(
    goal: Callable[[Any, Any], Any], least: float
) -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal(X, Y)), [X >= 1, Y >= 1]))
    s = p.solve()
    assert s.grade.word == "proved" and s.is_optimal(1e-7)
    assert s.bound == pytest.approx(least, abs=1e-9) and s.bound <= s.objective
    assert s.objective == pytest.approx(least, abs=1e-7)
    assert not s.attained and "by no point" in repr(s)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(
    ("goal", "row"),
    [
        (Y, lambda u: u * u * cp.inv_pos(X) <= Y),
        (X, lambda u: cp.geo_mean(cp.hstack([X, Y])) >= u),
        (Y + 3, lambda u: cp.quad_over_lin(u, X) <= Y),
    ],
    ids=["inverse", "mean", "quotient"],
)
def test_a_limit_of_an_epigraph_is_proved_as_that_of_its_function(
    goal: Any, row: Callable[[float], Any], unit: float
) -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [row(unit)]))
    start = {n: np.full(v.shape, unit) for n, v in p.variables.items()}
    outcome = nearing(p, start, 1e-7)
    assert outcome is not None
    least = 0.0 if isinstance(goal, cp.Variable) else 3.0
    value = p.objective_at(outcome.values)
    assert least <= value <= least + 1e-7 * max(1.0, least)
    assert all(t.violations(outcome.values, unit)[1] <= 1e-8 for t in p.constraints.values())
    check = outcome.proof.check(outcome.values, {})
    assert check.bound == pytest.approx(least, abs=1e-12)
    assert nearing(p.with_constraints(cap=1e2 * unit >= X + Y), start, 1e-7) is None


def test_a_solve_finds_the_limit_of_an_epigraph() -> None:
    s = of.from_cvxpy(cp.Problem(cp.Minimize(Y), [cp.inv_pos(X) <= Y])).solve()
    assert s.grade.word == "proved" and s.bound == 0.0 and 0.0 <= s.objective <= 1e-7
    assert s["x"] >= 1e6


def test_points_are_moved_out_only_as_far_as_constraints_allow() -> None:
    goal = cp.Minimize(cp.quad_over_lin(X, Y))
    p = of.from_cvxpy(cp.Problem(goal, [X >= 1, Y >= 1, Y <= 10 * X]))
    assert nearing(p, {"x": 1.0, "y": 1.0}, 1e-7) is None
    s = p.solve()
    assert s.objective == pytest.approx(0.1, abs=1e-6) and s.attained


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(
    ("goal", "rows"),
    [
        (lambda u: cp.log(X / u), lambda u: []),
        (lambda u: cp.sqrt(u * X) - Y, lambda u: [u <= Y]),
        (lambda u: -X, lambda u: [u * cp.log(Y / u) >= -X]),
        (lambda u: u * cp.log(X / u) + Y, lambda u: [u * cp.exp(Y / u) <= X]),
        (lambda u: H[0, 1], lambda u: [H >> 0, H[0, 0] <= u]),
        (lambda u: X, lambda u: [cp.sum_squares(cp.hstack([X, Y])) <= u * H[0, 0]]),
        (lambda u: X, lambda u: [cp.PowCone3D(H[0, 0], u, X, 0.3)]),
    ],
    ids=["logarithm", "root", "log row", "exp row", "matrix", "squares", "power"],
)
def test_an_objective_that_no_multipliers_bound_is_unbounded(
    goal: Callable[[float], Any], rows: Callable[[float], list[Any]], unit: float
) -> None:
    """It improves along curves alone: no ray is one of the compiled program."""
    p = of.from_cvxpy(cp.Problem(cp.Maximize(goal(unit)), rows(unit)))
    told = without_multipliers(p)
    assert told is not None and told.ray is None and told.certificate.verify()
    proof = told.certificate
    assert "no multipliers" in str(proof) and isinstance(proof, NoMultipliers)
    first = next(iter(proof.links[-1]))
    assert not replace(proof, links=({first: Fraction(1)},)).verify()
    assert not replace(proof, x=np.full(proof.x.size, -1e3)).verify()
    entries = [cp.vec(v, order="F") for v in p.variables.values()]
    capped = p.with_constraints(box=cp.norm_inf(cp.hstack(entries)) <= 1e2 * unit)
    assert without_multipliers(capped) is None and not replace(proof, problem=capped).verify()


def test_a_solve_and_a_diagnosis_say_so() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(X), [cp.log(Y) >= -X]))
    with pytest.raises(of.Unbounded, match="improves without limit") as e:
        p.solve()
    assert isinstance(e.value.certificate, NoMultipliers)
    d = p.diagnose()
    assert d.verdict == "unbounded" and d["unbounded"].verify()
    assert "curves alone" in d["unbounded"].lines[1]
    k = cp.Variable(integer=True, name="k")
    assert without_multipliers(of.from_cvxpy(cp.Problem(cp.Maximize(cp.log(k))))) is None
    nowhere = [cp.log(Y) >= -X, Y <= -1]
    assert without_multipliers(of.from_cvxpy(cp.Problem(cp.Minimize(X), nowhere))) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("goal", "rows"),
    [
        (cp.Minimize((1 - X) / (Y + 1)), [X >= 0, Y >= 0, Y <= 3]),
        (cp.Maximize((X + 1) / (Y + 1)), [X >= 0, Y >= 0, Y <= 3]),
        (cp.Minimize(-X / (Y + 1)), [X >= Y, Y >= 0]),
        (cp.Minimize(-X * X / (Y + 1)), [X >= 0, Y >= 0, Y <= 1]),
    ],
    ids=["fraction", "maximised", "along a row", "nonconvex"],
)
def test_a_fall_without_end_is_proved(goal: Any, rows: list[Any]) -> None:
    p = of.from_cvxpy(cp.Problem(goal, rows))
    with pytest.raises(of.Unbounded, match="improves without limit") as e:
        p.solve()
    proof = e.value.certificate
    assert isinstance(proof, EndlessFall) and proof.verify()
    assert "'x' rises" in str(proof) and e.value.ray["x"] == 1.0 and e.value.ray["y"] == 0.0
    sign = 1.0 if p.sense == "minimize" else -1.0
    values = []
    for t in (0.0, 1.0, 1e3, 1e6):
        at = {n: np.asarray(v) + t * e.value.ray[n] for n, v in proof.values.items()}
        assert max(c.relative_violation(at) for c in p.constraints.values()) <= 1e-9
        values.append(sign * p.objective_at(at) + (1.0 - 1e-9) * t * proof.rate)
    assert max(values) <= values[0] + 1e-9
    for steps in ((0.0, 1.0), (-1.0, 0.0), (0.0, 0.0), (1.0,), (np.inf, 0.0), (np.nan, 0.0)):
        assert not EndlessFall(p, proof.values, steps).verify(), steps


@pytest.mark.parametrize(
    ("goal", "rows", "start"),
    [
        (cp.Minimize(-X), [1 / (X - 5) <= 0], 0.0),  # beyond the pole it is positive
        (cp.Minimize(-X), [X * X <= 4], 0.0),
        (cp.Minimize(-cp.sqrt(X)), [X >= 1], 1.0),  # falls, by less and less
        (cp.Minimize(-X), [X >= 1], 0.0),  # not a feasible point
        (cp.Minimize(cp.ceil(-X)), [X >= 1], 1.0),  # no slope is known
        (cp.Minimize(1 / X), [X >= 1], 1.0),
    ],
    ids=["a pole", "a square", "a root", "no point", "steps", "a limit"],
)
def test_no_fall_is_claimed_that_is_not_shown(goal: Any, rows: list[Any], start: float) -> None:
    p = of.from_cvxpy(cp.Problem(goal, rows))
    assert not EndlessFall(p, {"x": start}, (1.0,)).verify()


M = cp.maximum(X, 0)
UNDEFINED: dict[str, tuple[Any, list[Any]]] = {
    "a fraction": (X / X, [X == 0]),
    "a power": (X * cp.inv_pos(X), [X <= 0]),
    "a logarithm": (X * cp.log(1 + X), [X <= -1]),
    "of 1 and x": (X * cp.log1p(X), [X <= -1]),
    "a square over it": (cp.quad_over_lin(X, X), [X == 0]),
    "a row": (0.0, [X * cp.log(X) <= 1, X <= 0]),
    "an entropy": (cp.kl_div(X, X), [X == 0]),
    "a harmonic mean": (cp.pnorm(cp.hstack([X, 1]), -1) * X, [X <= 0]),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_no_fall_is_claimed_where_a_term_is_not_defined(name: str) -> None:
    """x/x is 1, but not at 0."""
    goal, rows = UNDEFINED[name]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal - cp.square(Y)), [*rows, Y >= 0]))
    assert set(p.variables) == {"x", "y"}
    steps = tuple(float(n == "y") for n in p.variables)
    for x, y in itertools.product((0.0, -1.0), (0.0, 1.0)):
        assert not EndlessFall(p, {"x": x, "y": y}, steps).verify()
    assert endless(p, iter([{"x": 0.0, "y": 1.0}])) is None


@pytest.mark.parametrize("term", [M / M, M * cp.power(M, -1)], ids=["fraction", "power"])
@pytest.mark.parametrize(
    ("goal", "rows"),
    [(M, []), (0.0, [M]), (-cp.square(X), [M, X <= 1])],
    ids=["goal", "row", "both"],
)
def test_no_fall_leaves_where_a_term_is_defined(term: Any, goal: Any, rows: list[Any]) -> None:
    """Of max(x, 0) over itself nothing is defined below 0."""
    rows = [term <= 1 if row is M else row for row in rows]
    goal = term if goal is M else goal
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal + X), rows))
    for x in (1.0, 0.0, -1.0):
        assert not EndlessFall(p, {"x": x}, (-1.0,)).verify()
    assert endless(p, iter([{"x": 0.0}])) is None


def test_a_fall_is_shown_apart_from_where_a_term_is_not_defined() -> None:
    goal = X / X - X + cp.quad_over_lin(Y, X)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [X >= 0, Y == 0]))
    steps = tuple(float(n == "x") for n in p.variables)
    assert EndlessFall(p, {"x": 1.0, "y": 0.0}, steps).verify()
    assert not EndlessFall(p, {"x": 0.0, "y": 0.0}, steps).verify()


@pytest.mark.parametrize(
    ("rows", "holds"),
    [
        ([Y == 1, X >= 0], True),
        ([Y == X], False),  # it holds at the beginning alone
        ([cp.sqrt(X) <= X], True),  # whose enclosure over the ray is no help, but its slope is
    ],
    ids=str,
)
def test_rows_along_a_fall_stay_satisfied(rows: list[Any], holds: bool) -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(-X - 0 * Y), rows))
    assert bool(EndlessFall(p, {"x": 1.0, "y": 1.0}, (1.0, 0.0)).verify()) is holds


@pytest.mark.parametrize(
    ("goal", "rows"),
    [
        (X * Y, [X + Y >= 1]),
        (X * Y, [X + Y == 1]),
        (X * Y, []),
        (X * Y, [X + Y >= 1.3, X - 2 * Y <= 5]),
        (THREE[0] * THREE[1], [cp.sum(THREE) == 1, THREE[2] >= 2]),
        (X * Y + cp.sum(THREE), [X + Y >= 1, THREE >= -1]),
    ],
    ids=["a side", "a line", "all", "two sides", "a vector", "others stay"],
)
def test_a_fall_may_go_along_several_axes(goal: Any, rows: list[Any]) -> None:
    """Along no axis alone xy falls where x + y >= 1; along (1, -1) it does, and rows stay satisfied."""
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows))
    with pytest.raises(of.Unbounded, match="improves without limit") as e:
        p.solve()
    proof = e.value.certificate
    assert isinstance(proof, EndlessFall) and proof.verify() and " and " in str(proof)
    values = []
    for t in (0.0, 1.0, 1e3, 1e6):
        at = {n: np.asarray(v) + t * e.value.ray[n] for n, v in proof.values.items()}
        assert max((c.relative_violation(at) for c in p.constraints.values()), default=0.0) <= 1e-9
        values.append(p.objective_at(at) + (1.0 - 1e-9) * t * proof.rate)
    assert max(values) <= values[0] + 1e-9


def test_several_axes_are_tried_and_none_of_them_both_ways() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(X * Y), [X + Y == 1]))
    found = endless(p, iter([{"x": np.array(1.0), "y": np.array(0.0)}]))
    assert found is not None and found.ray == {"x": 1.0, "y": -1.0}


def test_a_fall_along_several_axes_that_was_changed_is_refused() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(X * Y), [X + Y == 1]))
    proof = EndlessFall(p, {"x": 1.0, "y": 0.0}, (1.0, -1.0))
    assert proof.verify() and proof.rate == 1.0
    for steps in ((1.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 1.0), (1.0, -1.0 - 1e-9)):
        assert not EndlessFall(p, proof.values, steps).verify(), steps
    for x, y in ((1.0 + 1e-9, 0.0), (0.0, 1.0), (0.5, 0.5)):  # no point, and no fall from the start
        assert not EndlessFall(p, {"x": x, "y": y}, proof.steps).verify()
    assert not EndlessFall(p.with_constraints(end=X <= 1e6), proof.values, proof.steps).verify()
    assert not EndlessFall(p.with_integrality("x"), proof.values, proof.steps).verify()
    assert endless(p.with_constraints(end=X <= 1e6, low=X >= 0), iter([proof.values])) is None


def test_a_fall_begins_at_numbers_however_far_out() -> None:
    z = cp.Variable(name="z")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(z + X * Y), [X + Y >= 1, X >= Y]))
    assert list(p.variables) == ["z", "x", "y"]
    start = {"x": np.array(1e308), "y": np.array(0.5), "z": np.array(0.5)}
    assert endless(p, iter([start])) is None  # as sums round z off; looked at without a warning
    down = EndlessFall(p, start, (-1.0, 0.0, 0.0))
    assert down.verify() and not replace(down, values={**start, "x": np.inf}).verify()


def test_a_fall_may_go_down_and_needs_an_objective() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(X / (Y + 1)), [X <= 0, Y >= 0, Y <= 3]))
    start = {"x": np.array(-1.0), "y": np.array(0.0)}
    found = endless(p, iter([start]))
    assert found is not None and found.ray["x"] == -1.0 and found.certificate.verify()
    assert endless(p.with_terms({}, p.constraints), iter([start])) is None
    assert endless(p.with_constraints(low=X >= -9), iter([start])) is None
    assert not misses(p.with_terms({}, p.constraints), 0.0)


def read(text: str, bounds: str) -> tuple[Any, Domain]:
    variables = {n: cp.Variable(name=n) for n in "xy"}
    reading = reading_of(parse(text, variables), domain_of(parse_bounds(bounds, variables)))
    return reading.node, reading.domain


@pytest.mark.parametrize(
    ("text", "bounds", "holds"),
    [
        ("1/y", "y >= 1", True),
        ("-1/y", "y <= -1", True),  # downward
        ("(2 - x)/y", "y >= 1, x >= 0, x <= 1", True),
        ("(2 - x)/y", "y >= 1, x >= 0, x <= 3", False),
        ("(2 - x)/y", "y >= 1, x >= 0", True),  # along x
        ("1/y", "y >= 1, y <= 9", False),
        ("1/y", "y >= 1, x <= y", True),
        ("1/y + x", "y >= 1, x >= y", False),
        ("0.5*y", "y >= 1", False),
        ("exp(y)", "y >= 1", False),
    ],
)
def test_a_function_falls_from_every_point(text: str, bounds: str, holds: bool) -> None:
    assert falls(*read(text, bounds)) is holds


def test_integers_are_not_moved_out() -> None:
    k = cp.Variable(integer=True, name="k")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.inv_pos(k)), [k >= 1]))
    assert nearing(p, {"k": np.array(1.0)}, 1e-7) is None
    real = of.from_cvxpy(cp.Problem(cp.Minimize(cp.inv_pos(X)), [X >= 1]))
    assert nearing(real, {"x": np.array(1.0)}, 1e-7) is not None


def test_a_limit_of_several_terms_is_missed_where_one_of_them_falls() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(Y), [X >= 1, Y >= 1]))
    inverse = of.from_cvxpy(cp.Problem(cp.Minimize(cp.inv_pos(X)), [X >= 1]))
    terms = {**p.objective, "inverse": next(iter(inverse.objective.values()))}
    s = p.solve()
    assert attained(s) and not attained(replace(s, problem=p.with_terms(terms, p.constraints)))


side, far = cp.Variable(name="side"), cp.Variable(name="far")


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_a_ball_that_is_missed_by_a_tolerance_far_out_holds_no_limit(unit: float) -> None:
    """Only points with far = 0 satisfy it; with far = 1 it is violated by 1/(2 side)."""
    length, start = cp.norm(cp.hstack([side, far])), {"side": np.array(1.0), "far": np.array(0.0)}
    for ball in (side == length, length <= side):
        p = of.from_cvxpy(cp.Problem(cp.Minimize(-far), [ball, far <= unit]))
        assert nearing(p, start, 1e-7) is None
    s = p.solve()  # on the face
    assert s.is_optimal() and s.grade.sound and abs(s.objective) <= 1e-7 >= abs(s["far"])


def test_what_no_point_satisfies_is_no_optimum_far_out() -> None:
    block = cp.bmat([[side, 1], [1, far]]) >> 0
    with pytest.raises(of.Infeasible) as empty:
        of.from_cvxpy(cp.Problem(cp.Minimize(side), [block, side <= 0])).solve()
    assert empty.value.certificate.verify()
    # the same block attains its optimum where far is bounded
    s = of.from_cvxpy(cp.Problem(cp.Minimize(side), [block, far <= 4])).solve()
    assert s.is_optimal(1e-7) and s.residuals().face == 0.0


def test_logistic_losses_of_separable_rows_are_proved_next_to_nothing() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 3))
    x = cp.Variable(3, name="x")
    loss = cp.sum(cp.logistic(-cp.multiply(np.sign(A[:, 0]), A @ x)))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(loss)))
    s = p.solve()
    assert s.grade.word == "proved" and 0.0 == s.bound <= s.objective <= 1e-7
    assert s.solver == "interval-boxes" and not any("no better" in a for a in s.attempts)


def test_ranges_are_not_asked_for_a_limit_that_is_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is not proved, far from 0: what its ranges are costs more than it tells."""

    def never(*_: Any) -> Any:
        raise AssertionError("the ranges were read")

    monkeypatch.setattr("optfair.backends.search.nearing", never)
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - 1) + 1e12), [cp.sum(x) <= 1]))
    p = p.with_constraints(ball=cp.norm(x) <= 5)
    assert p.solve().objective == pytest.approx(1e12)


@pytest.mark.parametrize(
    "parts",
    [
        lambda x, y: (x / y, x * y >= 4),
        lambda x, y: (x / y + 1 / y, x >= 4),
        lambda x, y: (x * y, x / y >= 4),
        lambda x, y: (1 / (x * y), x / y <= 4),
    ],
    ids=["ratio", "sum", "product", "inverse"],
)
def test_a_posynomial_without_a_least_value_is_proved_next_to_nothing(
    parts: Callable[[Any, Any], Any],
) -> None:
    goal, row = parts(cp.Variable(pos=True, name="x"), cp.Variable(pos=True, name="y"))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [row])).solve()
    assert s.grade.word == "proved" and s.bound == 0.0 and 0.0 <= s.objective <= 1e-7
    assert s.residuals().feasibility <= 1e-9 and s.certificate.verify()


NORM = {"x": cp.Variable(name="x"), "y": cp.Variable(name="y")}


def _norm(*parts: Any) -> Any:
    return cp.norm(cp.hstack(parts))


# objective, constraints, and the limit that no point attains
LIMITS = {
    "branch": (lambda x, y: (_norm(x, 1) - x, []), 0.0),
    "constant": (lambda x, y: (_norm(x, 1) - x + 5, []), 5.0),
    "row": (lambda x, y: (_norm(x, y) - x, [y >= 1]), 0.0),
    "equation": (lambda x, y: (_norm(x, y) - x, [y == 1]), 0.0),
    "another": (lambda x, y: (_norm(3 * x, 1) - 3 * x + cp.abs(y - 2), []), 0.0),
    "two": (lambda x, y: (_norm(x, 1) + _norm(x, 2) - 2 * x, []), 0.0),
    "exponential": (lambda x, y: (cp.exp(-x) + _norm(x, 1) - x, []), 0.0),
    "small": (lambda x, y: (1e-6 * (_norm(x, 1) - x), []), 0.0),
}


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", LIMITS)
def test_multipliers_of_the_limit_bound_what_falls_for_ever(name: str, sign: float) -> None:
    made, limit = LIMITS[name]
    goal, rows = made(NORM["x"], NORM["y"])
    sense = cp.Minimize(goal) if sign > 0 else cp.Maximize(-goal)
    s = of.from_cvxpy(cp.Problem(sense, rows)).solve()
    unit = 1e-6 if name == "small" else 1.0
    assert s.grade.word == "proved" and isinstance(s.proof, MovedPoint)
    # the point is feasible, and not below the limit in exact arithmetic either
    assert -1e-15 <= sign * s.objective - limit <= 1e-7 * unit * max(1.0, limit)
    assert sign * s.bound <= limit and s.certificate.verify()


def test_a_moved_point_rests_on_a_bound_that_holds_everywhere() -> None:
    x = NORM["x"]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(_norm(x, 1) - x)))
    s = p.solve()
    proof = s.proof
    assert isinstance(proof, MovedPoint)
    assert proof.check(s.values, s.multipliers).bound == s.bound
    assert proof.check({"x": s["x"] * 2.0}, s.multipliers).consistency > 0.5
    loose = replace(proof.proof, z=proof.proof.z * 1.001)  # they no longer cancel in t
    assert replace(proof, proof=loose).check(s.values, s.multipliers).bound == -np.inf
    # without limit, and where the limit is another, nothing is moved
    assert bounded(None) is None
    with pytest.raises(of.Unbounded):
        of.from_cvxpy(cp.Problem(cp.Minimize(_norm(x, 1) - 1.001 * x))).solve()
    inner = of.from_cvxpy(cp.Problem(cp.Minimize(_norm(x, 1) - 0.6 * x))).solve()
    assert inner.objective == pytest.approx(0.8) and not isinstance(inner.proof, MovedPoint)
