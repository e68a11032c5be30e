"""Every rule applies to its example, and holds: its conditions are attacked by chords."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.atoms.elementwise.hyperbolic import asinh, sinh, tanh
from cvxpy.atoms.elementwise.trig import cos, sin, tan

import optfair as of
from optfair.convexity.domain import Domain
from optfair.convexity.expression import select
from optfair.convexity.proof import TABLES, CurvatureProof, CurvatureWitness, Step, faults
from optfair.convexity.prove import domain_of, proved_on
from optfair.convexity.reading import exponent, read
from optfair.convexity.rules import RULES, Goal
from optfair.convexity.witness import chord
from optfair.convexity.writing import parse, parse_bounds
from optfair.core.expressions import substitute
from optfair.errors import OptfairError

assert TABLES  # the table of rules is filled by these modules


def example(name: str) -> tuple[Any, dict[str, Any]]:
    """Return the expression and the bounds of a rule's example."""
    text, bounds, shapes = (*RULES[name].example.split("|"), "", "")[:3]
    variables: dict[str, Any] = {}
    for part in filter(None, (s.strip() for s in shapes.split(","))):
        v, size = part.split("=")
        variables[v] = cp.Variable(int(size), name=v)
    return parse(text, variables), parse_bounds(bounds, variables)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_applies_to_its_example(name: str) -> None:
    expression, bounds = example(name)
    found = of.prove(expression, bounds)
    assert isinstance(found, CurvatureProof), found
    assert name in {row[3] for row in found.tree()}
    assert found.verify()


def test_there_are_as_many_rules_as_promised() -> None:
    assert len(RULES) >= 45
    told = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    assert f"\n  {len(RULES)} rules, exact quadratics" in told
    assert all(r.states and r.example for r in RULES.values())


REJECTED = [
    ("log(square(x) + square(y))", "x>=0.5, y>=0.5"),
    ("log(1 + x/y)", "x>=0.1, y>=0.1, x<=4, y<=4"),
    ("x*x/(y*z)", "x>=0.1, y>=0.1, z>=0.1"),
    ("log(y) + x*x/y", "y>=0.2, y<=3, x>=-2, x<=2"),
    ("-log(1 + x/(1 + y))", "x>=0, y>=0, x<=4, y<=4"),
    ("(x + y)/sqrt(x*x + y*y)", "x>=0.1, y>=0.1, x<=2, y<=2"),
    ("x*x*y*y", "x>=0.1, y>=0.1, x<=2, y<=2"),
    ("square(x*x - 1)/y", "y>=0.5, y<=2, x>=-1.5, x<=1.5"),
    ("x*x/(1 + y*y)", "x>=-2, x<=2, y>=-2, y<=2"),
    ("x*abs(x)", ""),
    ("1/x + x", "x<=-0.1"),
    ("sqrt(x*y)", "x<=4, y<=4"),
    ("(1 - exp(-x))*(1 - exp(-x))", "x>=-1, x<=0.7"),
    ("1/(1 + 1/(exp(x) - 1))", "x>=-1, x<=1"),
    ("-exp(2*x)/(1 + exp(x))", "x<=0"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("text", "bounds"), REJECTED, ids=[r[0] for r in REJECTED])
def test_what_must_stay_rejected(text: str, bounds: str) -> None:
    variables: dict[str, Any] = {}
    expression = parse(text, variables)
    where = parse_bounds(bounds, variables)
    assert not of.prove(expression, where, curvature="convex")


def test_a_sign_that_is_not_stated_is_not_used() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    assert of.prove(x * x * x).curvature == "neither"
    assert of.prove(x * x * x, [x >= 0]).curvature == "convex"
    assert of.prove(x * x * x, [x <= 0]).curvature == "concave"
    assert of.prove(x**3).curvature == "convex"  # the power has the domain x >= 0
    assert of.prove(x * x / y, [y >= 0]).curvature == "convex"
    assert of.prove(x * x / y, [y <= 0]).curvature == "concave"
    with pytest.raises(of.DataError, match="crosses 0"):
        of.prove(1 / y, [y >= -1, y <= 1])
    with pytest.raises(of.DataError, match="defined nowhere"):
        of.prove(cp.log(x) * cp.log(x), [x <= -1])


def test_a_chord_obeys_the_rows_as_well_as_the_bounds() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    rows = {"row": x + y >= 3, "x": x <= 2, "y": y <= 2}
    found = of.prove(x * x * x - y * y * 9, rows)
    assert isinstance(found, CurvatureWitness) and found.curvature == "neither" and found.verify()
    for chord_ends in found.points():
        for end in (chord_ends["first"], chord_ends["second"]):
            assert end["x"][0] + end["y"][0] >= 3.0
    # on the row alone the product is concave along x + y = 2, and no chord leaves it
    line = of.prove(x * y, {"line": x + y == 2})
    assert line.curvature in ("undecided", "not convex", "concave")


def test_cancelling_does_not_lose_where_it_is_undefined() -> None:
    x = cp.Variable(name="x")
    # x*x/x is x where x is not 0: that set is not convex
    assert not of.prove(x * x / x + 0 * cp.exp(x) * cp.exp(x))
    assert of.prove((x * x / x) * x, [x >= 0.5])


def test_an_assertion_is_no_proof() -> None:
    v = cp.Variable(2, name="v")
    wrong = cp.quad_form(v, cp.psd_wrap(np.diag([1.0, -1.0])))
    assert wrong.is_convex()  # CVXPY believes
    assert of.prove(wrong).curvature == "neither"
    assert not of.prove(cp.exp(cp.quad_form(v, np.diag([1.0, -1.0]), assume_PSD=True)))


def test_an_exponent_is_the_fraction_that_is_meant() -> None:
    assert exponent(1 / 3) == Fraction(1, 3) and exponent(0.3) == Fraction(3, 10)
    assert exponent(0.123456789) == Fraction(0.123456789)


def test_a_changed_step_is_refused() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    proof = of.prove(x * x / y + cp.exp(x) * cp.exp(y), [y >= 1])
    assert isinstance(proof, CurvatureProof) and proof.verify()
    step = proof.step
    assert faults(Step(step.goal, "affine", (), None), proof.domain)
    assert faults(Step(step.goal, "no such rule", (), None), proof.domain)
    assert faults(Step(step.goal, step.rule, step.premises[:1], step.data), proof.domain)
    other = Goal(step.node, "concave")
    assert faults(Step(other, step.rule, step.premises, step.data), proof.domain)
    # on a domain without the sign of y nothing of it holds
    assert faults(step, proof.domain.without(proof.rests_on[0]))


def test_boxes_that_do_not_cover_are_refused() -> None:
    from dataclasses import replace

    x = cp.Variable(name="x")
    proof = of.prove(cp.exp(x) - x * x / 2, [x >= 0, x <= 3])
    assert isinstance(proof, CurvatureProof)
    step = proof.step
    boxes = step.data
    for data in (
        replace(boxes, high=boxes.high - 1.0),
        replace(boxes, cuts=boxes.cuts[:-1]),
        replace(boxes, low=boxes.low - 2.0),
        None,
    ):
        assert faults(Step(step.goal, step.rule, step.premises, data), proof.domain)


def test_a_wrong_gram_matrix_is_refused() -> None:
    from dataclasses import replace

    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    expression = x * x * x * x + 6 * x * x * y * y + y * y * y * y
    proof = of.prove(expression)
    assert isinstance(proof, CurvatureProof) and proof.rule == "sum of squares"
    step = next(s for s in (proof.step, *proof.step.premises) if s.rule == "sum of squares")
    n = len(step.data.basis)
    zero = tuple(tuple(Fraction(0) for _ in range(n)) for _ in range(n))
    bad = replace(step.data, matrix=zero)
    assert faults(Step(step.goal, step.rule, (), bad), proof.domain)


# --- random compositions --------------------------------------------------------------------------

BOXES = [(-2, 2), (0.1, 3), (-3, -0.2), (0, 2), (0.5, np.inf), (-np.inf, np.inf), (-1, 0.5)]


def composed(rng: np.random.Generator, variables: list[Any], depth: int) -> Any:
    """Return a random expression: most are neither convex nor concave."""
    if depth == 0:
        if rng.random() < 0.6:
            return variables[rng.integers(3)]
        a, b = rng.choice([1.0, 2.0, -1.0, 0.5, -3.0], 2)
        i, j = rng.choice(3, 2, replace=False)
        return a * variables[i] + b * variables[j] + float(rng.choice([0.0, 1.0, -1.0, 0.3]))

    def inner() -> Any:
        return composed(rng, variables, depth - 1)

    kind = rng.integers(12)
    if kind < 2:
        return inner() * inner()
    if kind < 4:
        return inner() + float(rng.choice([1.0, -1.0, 0.5])) * inner()
    if kind < 6:
        return inner() / inner()
    one = [cp.exp, cp.log, cp.sqrt, cp.square, cp.abs, cp.entr, sin, cos, tan, sinh, tanh, asinh]
    if kind < 9:
        return one[rng.integers(len(one))](inner())
    if kind == 9:
        return cp.power(inner(), float(rng.choice([1.5, -0.5, 3.0, -1.0, -2.0])))
    if kind == 10:
        return cp.log(1 + cp.exp(inner()))
    return cp.maximum(inner(), inner())


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(k, marks=pytest.mark.slow) for k in range(3, 8))]
)
def test_nothing_that_is_proved_is_refuted_by_chords(seed: int) -> None:
    """The expression is read without any bound, so that no simplification is shared."""
    rng = np.random.default_rng(seed)
    variables = [cp.Variable(name=n) for n in "xyz"]
    proved = 0
    for _ in range(30):
        expression = composed(rng, variables, int(rng.integers(1, 4)))
        bounds = {}
        for v in variables:
            low, high = BOXES[rng.integers(len(BOXES))]
            if np.isfinite(low):
                bounds[f"{v.name()} low"] = v >= low
            if np.isfinite(high):
                bounds[f"{v.name()} high"] = v <= high
        if not expression.variables() or expression.is_dcp():
            continue
        domain = domain_of(bounds)
        try:
            found = proved_on(expression, domain, None, 0.5, refute=False)
        except OptfairError:
            continue
        if not isinstance(found, CurvatureProof):
            continue
        proved += 1
        assert found.verify(), expression
        plain = read(expression, Domain())
        within = plain.domain.extended(domain.facts)
        for step in found.steps:
            against = chord(plain.node, within, step.kind, 2000)
            assert against is None, (str(expression), bounds, found.explain())
    assert proved >= 1


def convex(rng: np.random.Generator, v: Any, depth: int) -> Any:
    """Return a function that is convex by construction, written against the rules."""
    a = rng.normal(size=3).round(1)
    line = a[0] * v[0] + a[1] * v[1] + a[2] * v[2] + round(float(rng.normal()), 1)
    if depth == 0:
        return [line * line, cp.exp(line) * cp.exp(line), cp.log(1 + cp.exp(line)), line][
            rng.integers(4)
        ]
    inner = convex(rng, v, depth - 1)
    return [
        cp.exp(inner),
        cp.log(cp.exp(inner) + cp.exp(line)),
        inner + convex(rng, v, depth - 1),
        cp.square(1 + cp.exp(inner)),
        3.0 * inner - line,
        -cp.log(4 - line * line) + inner if rng.random() < 0.3 else inner + line,
    ][rng.integers(6)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(12))
def test_what_is_convex_by_construction_is_never_refuted(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    v = [cp.Variable(name=n) for n in "xyz"]
    bounds = {f"{e.name()} {w}": c for e in v for w, c in (("low", e >= -0.5), ("high", e <= 0.5))}
    for _ in range(4):
        expression = convex(rng, v, int(rng.integers(1, 3)))
        try:
            found = of.prove(expression, bounds, curvature="convex", seconds=1.0)
        except of.DataError:
            continue
        assert found.curvature != "not convex", (str(expression), found)
        if found:
            assert found.verify()


def test_entries_of_a_vector_are_nodes_of_their_own() -> None:
    v = cp.Variable(3, name="v")
    node = read(cp.exp(v) + v, Domain()).node
    assert select(node, [0, 1, 2]) is node and select(node, [1]).size == 1


def test_parameters_count_by_their_declared_signs() -> None:
    x, y, v = cp.Variable(name="x"), cp.Variable(name="y"), cp.Variable(3, name="v")
    up, down = cp.Parameter(nonneg=True, name="up"), cp.Parameter(nonpos=True, name="down")
    free, w = cp.Parameter(name="free"), cp.Parameter(3, pos=True, name="w")
    stated = [
        (up * x * x, "convex"),
        (down * x * x, "concave"),
        (up * x * x + free * x + cp.exp(free) * cp.exp(x) * cp.exp(y), "convex"),
        (w @ cp.multiply(v, v) - free, "convex"),
        (x * x / up, "convex"),
        (cp.sqrt(up + x * x), "convex"),
        (free * free * cp.square(x - free), "convex"),
    ]
    rng = np.random.default_rng(0)
    for expression, truth in stated:
        found = of.prove(expression)
        assert found.curvature == truth and found.verify(), expression
        for _ in range(3):  # at values of these signs no chord speaks against it
            size = rng.uniform(0.1, 3.0)
            up.value, down.value, w.value = size, -size, rng.uniform(0.1, 3.0, 3)
            free.value = rng.normal()
            values = {id(p): cp.Constant(p.value) for p in (up, down, free, w)}
            node = read(substitute(expression, values), Domain()).node
            assert chord(node, Domain(), truth, 400) is None  # type: ignore[arg-type]
    assert not of.prove(free * x * x) and not of.prove(up * x * y)
    assert of.prove(free * x * x).curvature == "undecided"


BROKEN = [
    "x*x*x",
    "x*x/y",
    "1/x",
    "x*exp(x)",
    "log(1 + x*x)",
    "tanh(x)",
    "abs(x)*x",
    "exp(y)/x",
    "1/(x*y)",
    "x*x*x/y",
    "sqrt(x*y)",
    "exp(x*x*x)",
    "x*log(1 + exp(x))",
    "asinh(x) + y*y",
]


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_said_to_be_missing_is_enough(text: str) -> None:
    variables: dict[str, Any] = {}
    expression = parse(text, variables)
    answer = of.prove(expression)
    assert answer.curvature == "neither" and answer.hints
    for hint in answer.hints:
        word, _, condition = hint.partition(" if ")
        bounds = parse_bounds(condition.replace(" and ", ", "), variables)
        found = of.prove(expression, bounds)
        assert found.curvature == word and found.verify(), hint


@pytest.mark.parametrize("size", [30, 300])
def test_one_entry_stands_for_all_where_entries_are_alike(size: int) -> None:
    v = cp.Variable(size, name="v")
    bounds = [v >= 0.1, v <= 0.9]
    for inner in (v, 0.5 * (v - v[::-1])):  # of any affine vector: it lies between -0.4 and 0.4
        p = of.prove(cp.sum(cp.log(1 + cp.square(inner))), bounds)
        assert p.curvature == "convex" and p.verify()
        assert "one function of each entry" in str(p)
    beyond = of.prove(cp.sum(cp.log(1 + cp.square(v))), [v >= 0.1, v <= 1.1])
    assert beyond.curvature != "convex"
    wide = np.where(np.arange(size) == size - 1, 1.1, 0.9)
    assert of.prove(cp.sum(cp.log(1 + cp.square(v))), [v >= 0.1, v <= wide]).curvature != "convex"


def test_a_long_vector_of_one_function_is_solved() -> None:
    v = cp.Variable(100, name="v")
    goal = cp.Minimize(cp.sum(cp.log(1 + cp.square(v))) - 0.3 * cp.sum(v))
    s = of.from_cvxpy(cp.Problem(goal, [v >= 0.1, v <= 0.9])).solve()
    least = (1.0 - np.sqrt(1.0 - 0.09)) / 0.3  # where 2 v/(1 + v**2) is 0.3
    assert s.objective == pytest.approx(100 * (np.log1p(least**2) - 0.3 * least), abs=1e-6)
    assert s.is_optimal(1e-6)


def test_a_long_vector_of_one_function_is_written_entry_by_entry() -> None:
    v = cp.Variable(100, name="v")
    goal = cp.Minimize(cp.sum((cp.square(v) - v + 1) / (v + 2)))
    p = of.from_cvxpy(cp.Problem(goal, [v >= 0, v <= 3]))
    assert p.problem_class.name in ("SOCP", "CONIC")
    s = p.solve()
    assert s.solver == "clarabel" and s.is_optimal(1e-6)
    assert s.objective == pytest.approx(100 * (2 * np.sqrt(7.0) - 5.0), abs=1e-5)


def test_products_of_long_vectors_with_a_sum_are_multiplied_out_as_vectors() -> None:
    v, c = cp.Variable(300, name="v"), np.linspace(-1.0, 1.0, 300)
    p = of.prove(cp.sum(cp.multiply(v, cp.log(v) - c)), [v >= 0.1, v <= 9])
    assert p.curvature == "convex" and p.verify()
    steps = [p.steps[0]]
    while steps[-1].premises:
        steps.append(steps[-1].premises[0])
    assert [s.rule for s in steps] == ["sum", "multiplied out", "sum", "entropy"]
    assert steps[-1].node.size == 300
    s = of.from_cvxpy(cp.Problem(cp.Minimize(p.expression), [cp.sum(v) == 1, v >= 0])).solve()
    assert s.is_optimal(1e-6)
    assert s.objective == pytest.approx(-np.log(np.exp(c).sum()), abs=1e-6)
