"""What once was claimed and is not so: signs on other branches, structure, domains, numbers."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.atoms.elementwise.trig import tan

import optfair as of
from optfair.backends.tangents import Curved
from optfair.convexity.algebra import Algebra
from optfair.convexity.derivatives import second_derivative
from optfair.convexity.domain import Domain
from optfair.convexity.expression import raw_product
from optfair.convexity.intervals import Interval
from optfair.convexity.polynomials import expand
from optfair.convexity.powers import ratio
from optfair.convexity.proof import Chord, CurvatureWitness
from optfair.convexity.prove import domain_of, proved_on
from optfair.convexity.reading import leaf_of, read, read_constraint
from optfair.convexity.rules import RULES
from optfair.convexity.witness import hints_of, sample
from optfair.convexity.writing import parse, parse_bounds

x, y, z = (cp.Variable(name=n) for n in "xyz")


@pytest.mark.parametrize(
    ("low", "high", "truth"), [(2, 3, "concave"), (-3, -2, "convex"), (3.2, 4, "convex")]
)
def test_a_tangent_bends_by_its_own_sign(low: float, high: float, truth: Any) -> None:
    """tan is negative, and so concave, between pi/2 and pi."""
    domain = domain_of({"low": x >= low, "high": x <= high})
    other = "concave" if truth == "convex" else "convex"
    assert proved_on(tan(x), domain, truth, refute=False)
    assert not proved_on(tan(x), domain, other, refute=False)


def test_attributes_of_a_matrix_are_part_of_its_expression() -> None:
    S = cp.Variable((2, 2), symmetric=True, name="S")
    D = cp.Variable((2, 2), diag=True, name="D")
    K = cp.Variable((2, 2), sparsity=([0, 1], [1, 1]), name="K")
    P = cp.Variable((2, 2), PSD=True, name="P")
    assert of.prove(S[0, 1] * S[1, 0]).curvature == "convex"
    assert of.prove(D[0, 1] * D[1, 1] + D[0, 0] * D[0, 0]).curvature == "convex"
    assert of.prove(K[0, 0] * K[0, 1] + K[1, 1] * K[1, 1]).curvature == "convex"
    assert of.prove(cp.sqrt(P[0, 0] * P[1, 1] - P[0, 1] * P[1, 0])).curvature == "concave"
    # chords of positive semidefinite matrices are not searched: nothing is refuted
    assert of.prove(P[0, 1] * P[0, 0]).curvature == "undecided"


def test_a_chord_stays_within_what_is_stated() -> None:
    where = {"cone": cp.SOC(x + y, cp.hstack([x - y, 1])), "curve": x * y * x <= 50}
    found = of.prove(x * y, where)
    assert found.curvature == "neither"
    for c in found.points():
        for end in (c["first"], c["second"]):
            a, b = end["x"][0], end["y"][0]
            assert a + b >= np.hypot(a - b, 1) and a * b * a <= 50
    matrix = cp.bmat([[x, y], [y, 1]])
    answer = of.prove(x * y, {"psd": matrix >> 0})
    assert answer.curvature == "undecided" and "psd" in str(answer)


@pytest.mark.parametrize(
    "expression",
    [
        0 * cp.log(x * x - 1) + x * x,
        cp.log(x * y) - cp.log(x * y) + x * x,
        cp.square(cp.sqrt(x * x - 1)),
    ],
    ids=str,
)
def test_where_it_is_defined_does_not_get_lost(expression: Any) -> None:
    with pytest.raises(of.DataError, match="cancels out"):
        of.prove(expression)


def test_what_is_kept_or_defined_everywhere_is_not_refused() -> None:
    v, w = cp.Variable(3, name="v"), cp.Variable(3, name="w")
    where = [v >= 1, w >= 1]
    assert of.prove(cp.sum(cp.log(cp.multiply(v, w))), where).curvature == "concave"
    assert of.prove(cp.log(x * x + 1) - cp.log(x * x + 1) + x * x).curvature == "convex"
    assert of.prove(cp.log(x) - cp.log(x) + x * x).curvature == "convex"


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_none(number: float) -> None:
    with pytest.raises(of.DataError, match="not finite"):
        of.prove(number * x * x + y * y)


def test_numbers_beyond_floats() -> None:
    assert of.prove((1e200 * x) * (1e200 * x)).curvature == "convex"
    assert of.prove(x * x * 1e-310 - x * x * 1.1e-310).curvature == "concave"
    A = np.array([[1e-310, 1.0], [0.0, 1.0]])
    v = cp.Variable(2, name="v")
    node = read(A @ (np.array([[0.3, 0.0], [0.0, 1.0]]) @ v), Domain()).node
    assert node is not None and not np.any(node.parts[0][0].data == 1e-310 * 0.3)  # type: ignore[attr-defined]


def test_entries_of_what_is_not_taken_apart() -> None:
    w = cp.Variable(3, name="w")
    column = cp.reshape(w, (3, 1), order="F")
    found = of.prove(cp.sum(cp.max(cp.multiply(column, column), axis=1)))
    assert found.curvature in ("convex", "undecided")


def test_arrays_of_other_shapes_are_read() -> None:
    v, row = cp.Variable(3, name="v"), cp.Variable((1, 3), name="row")
    table = cp.reshape(v, (3, 1), order="F") + row
    assert of.prove(cp.sum(cp.multiply(table, table))).curvature == "convex"
    assert of.prove(cp.sum(cp.multiply(cp.cumsum(v), cp.cumsum(v)))).curvature == "convex"
    s = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum(cp.multiply(table, table))), [v >= 1, row >= -0.5])
    ).solve()
    assert s.objective == pytest.approx(9 * 0.25, abs=1e-6)


def test_a_quadratic_says_what_rounding_it_rests_on() -> None:
    d = np.ones(50)
    v = cp.Variable(50, name="v")
    assert of.prove(v @ (np.diag(d) @ v)).shift == 0.0
    d[-1] = -1e-15
    for expression in (v @ (np.diag(d) @ v), cp.quad_form(v, cp.psd_wrap(np.diag(d)))):
        found = of.prove(expression)
        assert found.curvature == "convex" and found.shift >= 1e-15 and "up to" in str(found)
    d[-1] = -1e-13  # as in another unit of its variable
    for expression in (v @ (np.diag(d) @ v), cp.quad_form(v, cp.psd_wrap(np.diag(d)))):
        assert of.prove(expression).curvature == "undecided"


def test_no_pole_is_passed_by_an_expansion_about_an_end() -> None:
    """tan has a pole between 1 and 2: its derivatives are bounded below on both sides, not across."""
    node = read(x * x + tan(x), Domain()).node
    with np.errstate(all="ignore"):
        second = second_derivative(node, (leaf_of(x), 0), Interval.of([1.0], [2.0]))
    assert second is not None and second.low[0] == -np.inf


def test_a_tangent_touches_where_the_proof_holds() -> None:
    """(x - y)^3 is convex for x - y >= z >= 0, which its own variables do not say."""
    goal = cp.Minimize((x - y) * (x - y) * (x - y) - 4 * x)
    rows = [x - y - z >= 0, z >= 0, z <= 1, x >= -5, x <= 1, y >= -5, y <= 5]
    p = of.from_cvxpy(cp.Problem(goal, rows))
    (term,) = p.objective.values()
    curved = Curved.of(term, p.sense)

    def tangent(a: float, b: float, c: float) -> Any:
        point = {"x": a, "y": b, "z": c}
        named = {leaf_of(p[name]): np.array([value]) for name, value in point.items()}
        return curved.tangent(named, curved.domain)

    assert tangent(1.0, 0.0, 0.5) is not None
    assert tangent(0.0, 1.0, 0.5) is None


@pytest.mark.parametrize(
    ("goal", "rows", "truth"),
    [
        (cp.power(x, 3) - 3 * x * x, [x >= -2, x <= 2], -4.0),
        (x, [cp.power(x, 3) <= 5 * x * x + 1, x >= -2, x <= 2], 0.0),
        (x * x * x - 3 * x * x, [x >= -2, x <= 2], -20.0),
    ],
    ids=["power", "power in a row", "product"],
)
def test_a_power_has_the_domain_that_cvxpy_gives_it(goal: Any, rows: Any, truth: float) -> None:
    s = of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows)).solve(tolerance=1e-5)
    assert s.objective == pytest.approx(truth, abs=1e-4) and s.is_optimal(1e-5)


def test_a_quotient_that_is_a_number_is_solved() -> None:
    s = of.from_cvxpy(cp.Problem(cp.Maximize(y / cp.abs(y)), [y >= 1, y <= 2])).solve()
    assert s.objective == pytest.approx(1.0)


@pytest.mark.parametrize(
    "text",
    [
        *("10**400", "0**-1", "x**1e400", "x**100000", "1e400*x", "(-1)**0.5*x", "log(-1)*x"),
        *("log(0)", "exp(1000)*x", "x/0", "x/(1-1)", "-" * 2400 + "x", "x+" * 2400 + "x"),
    ],
)
def test_a_formula_with_a_part_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(of.DataError, match=r"grammar|no formula|not finite"):
        of.prove(parse(text))


@pytest.mark.parametrize("text", ["x>=1) + (1", "[x,y]>=[1,2,3]", "x>=1e400", "x"])
def test_bounds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(of.DataError, match="grammar"):
        parse_bounds(text, {})


def test_what_is_defined_nowhere_is_an_error_under_composition_rules_too() -> None:
    for nowhere, where in ((cp.log(x), [x <= -1]), (cp.log(x) + cp.log(-x - 1), [x <= 5])):
        with pytest.raises(of.DataError, match="defined nowhere"):
            of.prove(nowhere, where)
    assert of.prove(cp.log(x), [x >= -1]).curvature == "concave"
    with pytest.raises(of.DataError, match="not finite"):
        of.prove(x / 0)
    assert of.prove(x / (y * y), [x >= 0, y >= 1]) is not None


c = cp.Variable(complex=True, name="c")


@pytest.mark.parametrize(
    "expression",
    [cp.real((1j * x) * (1j * x)), cp.imag(c * c), cp.real(c * cp.conj(c)), 1j * x * x, c * c],
    ids=str,
)
def test_complex_parts_are_refused_by_name(expression: Any) -> None:
    with pytest.raises(of.DataError, match="complex parts"):
        of.prove(expression)


def test_complex_parts_that_composition_rules_know_stay_usable() -> None:
    assert of.prove(cp.abs(c)).curvature == "convex" and of.prove(cp.abs(c)).verify()
    assert of.prove(x * x * x, [cp.real(c) <= 3, x >= 0]).curvature == "convex"
    assert of.prove(cp.real(cp.Constant(1j) * cp.Constant(1j) * x * x)).curvature == "concave"
    assert of.prove(cp.abs(c) * cp.abs(c)).curvature == "undecided"
    assert of.prove(cp.sum(cp.cummax(cp.Variable(2))) ** 3).curvature == "undecided"
    with pytest.raises(of.DataError, match="exponent q has no value"):
        of.prove(cp.power(x, cp.Parameter(name="q")))


def test_answers_do_not_change_and_a_copy_is_itself() -> None:
    for found in (
        of.prove(x * x + x * y + y * y),
        of.prove(1 / (3 - x), [x <= 2]),
        of.prove(x * y),
    ):
        for again in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
            assert again.verify() and str(again) == str(found)


def test_powers_say_where_they_are_defined() -> None:
    """x**3 of CVXPY is infinite below 0; products of x have no such end."""
    assert "defined where x >= 0" in of.prove(cp.power(x, 3)).explain()
    assert "defined" not in of.prove(x**4).explain() + of.prove(x * x + y * y).explain()
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [cp.power(x, 3) <= 8, x >= -1]))
    assert "c0: defined where x >= 0" in str(p.explain())


@pytest.mark.parametrize(
    ("row", "low", "high"),
    [
        (cp.sqrt(x) >= 2, 4.0, np.inf),
        (x * x * x <= 8, -np.inf, 2.0),
        (x * x * x >= -8, -2.0, np.inf),
        (1 / x >= 1, 0.0, 1.0),
        (1 / x <= -2, -0.5, 0.0),
        (cp.power(x, -0.5) >= 2, 0.0, 0.25),
        (cp.sqrt(1 + x**2) <= 1, 0.0, 0.0),
        (1 / x <= 1, -np.inf, np.inf),
        (x * x >= 4, -np.inf, np.inf),
    ],
    ids=str,
)
def test_ranges_learn_from_powers(row: Any, low: float, high: float) -> None:
    box = Domain(read_constraint("row", row, Domain())).box(leaf_of(x))
    assert low - 1e-12 <= float(box.low[0]) <= low and high <= float(box.high[0]) <= high + 1e-12


@pytest.mark.parametrize(
    ("expression", "truth"),
    [
        (1 / cp.maximum(2 * x + 1, 2 * x), "convex"),
        (cp.log(cp.maximum(y + 1, 4 + x)), "concave"),
        (cp.minimum(x + 9, cp.exp(x), x + 12), "convex"),
        (cp.maximum(x, y), "convex"),
        (cp.abs(cp.sqrt((2 * x + 1) * 0.3)), "concave"),
    ],
    ids=str,
)
def test_what_is_never_the_extreme_is_left_out(expression: Any, truth: str) -> None:
    found = of.prove(expression, [x >= 0, x <= 1, y >= -1, y <= 2])
    assert found.curvature == truth and found.verify()


def test_ranges_of_roots_support_proofs() -> None:
    found = of.prove(1 / (x - 3), {"root": cp.sqrt(x) >= 2})
    assert found.curvature == "convex" and found.rests_on == ("root",) and found.verify()
    assert not of.prove(1 / (x - 3), curvature="convex")


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        (x * y, "affine in y if x is fixed"),
        (x * y, "quasiconcave if x >= 0 and y >= 0"),
        (x * y, "log-log affine if x > 0 and y > 0"),
        (x * y - cp.log(x), "convex in x if y is fixed"),
        (x * y + 1 / x, "log-log convex if x > 0 and y > 0"),
        (x * x / (1 + y * y), "log-log concave if x > 0 and y > 0"),
    ],
    ids=str,
)
def test_the_nearest_statement_that_holds(expression: Any, hint: str) -> None:
    found = of.prove(expression)
    assert found.curvature == "neither" and hint in str(found).splitlines()


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y, log: x * y - x * y * y,
        lambda x, y, log: x * x * y - y,
        lambda x, y, log: log(1 + x / y),
        lambda x, y, log: x * x / (1 + y * y) + 1,
    ],
)
def test_no_hint_that_points_refute(f: Any) -> None:
    """Neither quasiconcave nor convex in logarithms on positive numbers, by sampled points."""
    said = str(of.prove(f(x, y, cp.log), [x >= 0.1, y >= 0.1]))
    a, b = np.random.default_rng(0).uniform(0.1, 4.0, (2, 2, 4000))
    with np.errstate(invalid="ignore"):
        least = np.minimum(f(*a, np.log), f(*b, np.log)) - f(*((a + b) / 2), np.log)
        ends = np.log(f(*a, np.log)) + np.log(f(*b, np.log))
        bent = np.log(f(*np.sqrt(a * b), np.log)) - ends / 2
    assert "quasiconcave" not in said or not (least > 1e-9).any()
    assert "log-log convex" not in said or not (bent > 1e-9).any()
    assert "log-log concave" not in said or not (bent < -1e-9).any()


@pytest.mark.parametrize("kind", ["second order", "exponential", "power", "semidefinite"])
def test_what_lies_in_a_cone_is_affine(kind: str) -> None:
    x, t = cp.Variable(3, name="x"), cp.Variable(name="t")
    X = cp.Variable((2, 2), symmetric=True, name="X")
    row = {
        "second order": lambda: cp.SOC(t, x),
        "exponential": lambda: cp.ExpCone(x[0], x[1], x[2]),
        "power": lambda: cp.PowCone3D(x[0], x[1], t, 0.3),
        "semidefinite": lambda: X >> 0,
    }[kind]()
    p = of.from_cvxpy(cp.Problem(cp.Minimize(t), [row]), ["row"])
    found = of.convexity.prove_terms(p)["row"]
    assert found.curvature == "affine"
    assert found.verify()


def test_what_composition_rules_gave_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = cp.Variable(3, name="x")
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.norm(x)), [cp.log(x[0]) >= 0, x >= 0, cp.exp(x) <= 9])
    )
    asked = of.convexity.prove_terms(p)
    assert {n: a.curvature for n, a in asked.items()} == {
        "objective": "convex",
        "c0": "convex",
        "c1": "affine",
        "c2": "convex",
    }
    assert all(a.verify() for a in asked.values())
    refused = of.prove(p.terms[0], p, curvature="concave")
    assert not refused
    again = lambda *args: pytest.fail("asked again")
    monkeypatch.setattr("optfair.convexity.prove.by_composition", again)
    assert of.convexity.prove_terms(p)["objective"].curvature == "convex"


@pytest.mark.parametrize("low", [0.0, -0.1])
def test_a_rounded_constant_of_a_formula_excludes_nothing(low: float) -> None:
    term = (x * x + 1) / (5 * x + 1) - 0.2 * x + 0.05  # 1/5 < 0.2: at 1e15 it is below -0.001
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(y), [term <= 0, x >= low, y >= 0]))
    with pytest.raises(of.OptfairError) as caught:
        problem.solve(solver="clarabel")
    assert not isinstance(caught.value, of.Infeasible)


@pytest.mark.parametrize(
    "objective",
    [
        (x * x + 1) / (3 * x + 1),
        1 / (3 * x),
        x * cp.log(2 * x),
        cp.log(cp.exp(x) + 3 * cp.exp(y)),
        cp.sqrt(0.3 * x * x + 0.1 * y * y + 0.7),
        0.7 * x * x / (y + 2),
    ],
)
def test_constants_are_rounded_to_the_side_that_says_less(objective: Any) -> None:
    box = [x >= 0.1, x <= 3, y >= -1, y <= 2]
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(objective), [*box, x + y >= 1]))
    assert str(problem.solve(solver="clarabel").grade) == "proved"
    if "log" not in str(objective):
        assert problem.solve(solver="clarabel").bound <= problem.solve().objective


@pytest.mark.parametrize("p", [3, 1.5, 6])
def test_a_power_of_what_may_be_negative_does_not_rise(p: float) -> None:
    """f**3 asks for f >= 0, of a convex f no convex set; f**6 falls where f is negative."""
    above = domain_of({"above": x >= 1})
    for e in (cp.power(cp.square(x) - 1, p), cp.power(x * x - 1, p)):
        for whole in (e, e + 3 * x * x * x * x):
            found = proved_on(whole, Domain(), "convex", refute=False)
            assert not found or (p == 6 and whole is not e)
        assert proved_on(e, above, "convex", refute=False)


@pytest.mark.parametrize(("p", "truth"), [(3, 0.81), (6, 0.0)])
def test_a_power_in_a_row_excludes_where_it_is_not_defined(p: float, truth: float) -> None:
    rows = [cp.power(cp.square(x) - 1, p) <= 8, x <= 3, x >= -3]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(x - 0.1)), rows)).solve(tolerance=1e-5)
    assert s.objective == pytest.approx(truth, abs=1e-4)


def test_a_chord_stays_where_a_power_is_defined() -> None:
    e = cp.power(x * y, -2) * x
    domain = domain_of({"x": cp.abs(x) <= 2, "y": cp.abs(y) <= 2})
    reading = read(e, domain)
    drawn = sample(reading.node, reading.domain, 200)
    assert drawn is not None
    for ends in (drawn.first, drawn.second):
        assert (ends[leaf_of(x)] * ends[leaf_of(y)] >= 0.0).all()


def test_chords_beyond_short_floats_are_drawn_as_they_are() -> None:
    domain = domain_of({"x": x >= 1e60})
    reading = read(cp.square(x), domain)
    drawn = sample(reading.node, domain, 20)
    assert drawn is not None and drawn.worst("convex") is None
    assert (drawn.first[leaf_of(x)] >= 1e60).all() and np.isfinite(drawn.first[leaf_of(x)]).all()


def test_an_even_power_is_that_of_negative_numbers_too() -> None:
    """CVXPY compiles x**6 as the power of max(x, 0), and then no x <= -1 is left."""
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.power(x, 6) - x), [x <= -1])).solve()
    assert s.objective == pytest.approx(2.0) and s.is_optimal(1e-7)


def test_attributes_bind_the_entries_that_they_name() -> None:
    v = cp.Variable(3, name="v", boolean=[(0,), (2,)])
    p = cp.Parameter(2, name="p", boolean=[(0,)])
    assert not of.prove(v[1] * v[1] * v[1], curvature="convex")
    assert of.prove(v[0] * v[0] * v[0]).curvature == "convex"
    assert not of.prove(p[1] * x * x)


def test_variables_and_rows_of_one_name_keep_what_each_says() -> None:
    a, b = (cp.Variable(name="a", nonneg=True) for _ in range(2))
    assert of.prove(a * a * a + b * b * b).curvature == "convex"
    assert of.prove(a * a * a, {"a nonnegative": a <= 5}).curvature == "convex"


def test_a_chord_does_not_leave_bounds_that_are_parameters() -> None:
    q = cp.Parameter(name="q", value=2.0, nonneg=True)
    u = cp.Variable(name="u", bounds=[0 * q, q])
    assert of.prove(u * u * u).curvature == "undecided"


def test_a_power_of_0_is_1_in_every_entry() -> None:
    v, w = cp.Variable(2, name="v"), cp.Variable(50, name="w")
    ones = cp.sum(cp.power(v, 0))
    assert of.prove((ones - 1.5) * cp.square(x)).curvature == "convex"
    assert of.prove((cp.sum(cp.power(w, 0)) - 1.5) * cp.sum_squares(w)).curvature == "convex"
    assert of.prove(x * x * x, [ones * x >= 0, ones - 1.5 <= -x]).curvature == "undecided"
    s = of.from_cvxpy(cp.Problem(cp.Minimize(x - ones), [x >= 0, ones >= 1.5, v == 0])).solve()
    assert (round(s.objective, 9), bool(s.certificate.verify())) == (-2.0, True)
    p = cp.Parameter(name="p", value=2.0)
    q = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.power(v, p)) + v[0]), [v >= 1, v <= 2]))
    assert round(q.at(p=0.0).solve().objective, 9) == 3.0


def test_entries_of_weight_0_take_no_part_in_a_geometric_mean() -> None:
    second, first = (cp.geo_mean(cp.hstack([x, y]), w) for w in ([0, 1], [1, 0]))
    box = [x >= -1, x <= 1, y >= -1, y <= 1]
    assert of.prove(second * second - x * x, box).curvature == "neither"
    assert of.prove(y * y * y - first).curvature == "neither"
    assert of.prove(x * x * x - first).curvature == "convex"
    for cost, truth in ((cp.power(second, 4) - x * x, -1.0), (y * y * y - first, -2.0)):
        s = of.from_cvxpy(cp.Problem(cp.Minimize(cost), box)).solve()
        assert (round(s.objective, 6), bool(s.certificate.verify())) == (truth, True)
    X = cp.Variable((2, 2), name="X")
    corner = cp.geo_mean(cp.vec(X, order="F"), [0, 1, 0, 0])
    s = of.from_cvxpy(cp.Problem(cp.Maximize(corner - X[0, 1]), [cp.abs(X) <= 1])).solve()
    assert round(s.objective, 6) == 2.0


def test_tangents_touch_where_a_function_is_defined() -> None:
    w, k = cp.Variable(name="w"), cp.Variable(name="k", integer=True)
    cube, box = cp.power(x, 3, approx=False), [x >= -3, x <= 2, k <= 5, k >= -5]
    goal = cube + cp.square(k - 0.4)
    for cost, rows, truth in ((goal, box, 0.16), (x + k, [cube <= k + 0.5, *box], 0.0)):
        certificate = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows)).solve().certificate
        proved = certificate.prove(time_limit=20)
        assert round(proved.solution.objective, 6) == truth and proved.verify()
    rows = [cp.xexp(x) <= w + 0.5, x >= -3, x <= 2, w <= 5, w >= -5]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(x + w), rows)).solve()
    assert (round(s.objective, 6), bool(s.certificate.verify())) == (-0.5, True)


def test_a_point_at_which_a_function_has_no_value_is_not_feasible() -> None:
    box = {"low": y >= 1, "high": y <= 2}
    for row in (
        cp.maximum(y, 1.25 * y) + cp.log(1 - y) <= 0.25,  # log 0 at the only point
        y * y * y - 1 / (y - 1) + 8 * cp.pos(y - 1) <= 0.25,  # 1 / 0 there
    ):
        p = of.from_cvxpy(cp.Problem(cp.Minimize(y), [*box.values(), row, y <= 1]))
        term = p.constraints[list(p.constraints)[2]]
        assert term.violations({"y": np.array(1.0)}) == (np.inf, np.inf)
        with pytest.raises((of.Infeasible, of.SolverFailure)):
            p.solve(time_limit=5)
    endless = of.from_cvxpy(cp.Problem(cp.Minimize(y), [y >= 1, y - 3 <= np.inf]))
    assert round(endless.solve().objective, 9) == 1.0


def test_hints_take_no_more_than_they_are_given() -> None:
    expression = x * y * y
    assert hints_of(expression, Domain(), ("convex", "concave"))
    assert hints_of(expression, Domain(), ("convex", "concave"), -1.0) == ()


def test_chords_end_where_functions_are_defined() -> None:
    root = cp.sqrt(1 - x * x)
    ends = {leaf_of(x): np.array([2.0])}, {leaf_of(x): np.array([0.0])}
    chord = Chord("concave", *ends, 0, (0.0, 0.0), (0.0, 0.0))
    assert not CurvatureWitness(root, (chord,), of.prove(root).domain).verify()


def test_chords_keep_to_where_functions_are_defined() -> None:
    x, y, z = (cp.Variable(name=c) for c in "xyz")
    beside = of.prove(
        cp.maximum(x * z, -cp.sqrt(y)), [x >= 1, x <= 3, y >= 1, y <= 3, z >= 1, z <= 2]
    )
    assert beside.curvature == "neither" and beside.verify()  # y has no end, and any does
    edge = of.prove(cp.power((x + 0.1 * y - 1) / (y / x), 0.5), [x >= 0, x <= 1e4, y >= 2, y <= 4])
    assert edge.curvature == "neither" and edge.verify()  # y / x has no value at 0
    assert all(
        (point[end]["x"] > 0).all() for point in edge.points() for end in ("first", "second")
    )


def test_what_stands_above_and_below_is_not_dropped() -> None:
    v, A, b = cp.Variable(2, nonneg=True, name="v"), np.array([[1.0, 2.0], [3.0, 4.0]]), [0.0, 1.0]
    rows = [(A @ v + b) / (2 * A @ v + b) <= 1]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v)), rows)).solve()
    assert abs(s.objective) <= 1e-6 and s.bound <= 1e-6  # it was 1, where the sum is 0.002
    domain = domain_of({"x": x >= 1, "y": y >= 1})
    a = Algebra(domain)
    affine, square, own = (read(e, domain).node for e in (x + y, x * x + y * y, x))
    one, below = Fraction(1), Fraction(-1)
    once = raw_product([(affine, one), (affine, below)])
    assert ratio(once, a) == (1.0, expand(affine), affine)
    product = raw_product([(square, one), (square, below), (own, one)])
    assert RULES["fraction turned over"].needs(product, "concave", a, None) is None


def test_two_entries_in_one_row_and_none_in_the_other_are_no_identity() -> None:
    v = cp.Variable(2, name="v")
    both = np.array([[1.0, 1.0], [0.0, 0.0]]) @ v
    assert read(both, Domain()).node is not read(v, Domain()).node
    near = {"low": v >= 0.45, "high": v <= 0.9}  # log(1 + t**2) bends the other way beyond 1
    assert of.prove(cp.log(1 + cp.square(v[0])), list(near.values())).curvature == "convex"
    p = of.prove(cp.sum(cp.log(1 + cp.square(both))), list(near.values()))
    assert p.curvature != "convex"
