"""The search asks what is cheap before what is dear, and takes parts out of one form only."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from optfair.convexity import search as search_module
from optfair.convexity import theorems
from optfair.convexity.algebra import Algebra
from optfair.convexity.derivatives import definite, hessian_on
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Exhausted, entries, limited
from optfair.convexity.intervals import Interval
from optfair.convexity.prove import domain_of, prove
from optfair.convexity.reading import read
from optfair.convexity.search import Search
from optfair.convexity.writing import parse, parse_bounds
from optfair.core.adopt import from_cvxpy
from optfair.errors import DataError, DeclarationError, OptfairError

APART = ("second derivatives over boxes", "sum of squares")


def rules_only(text: str, bounds: str) -> tuple[Any, Search]:
    """Return the node of a text and a search by rules alone."""
    variables = {"x": cp.Variable(name="x"), "y": cp.Variable(name="y")}
    found = read(parse(text, variables), domain_of(parse_bounds(bounds, variables)))
    search = Search(found.domain)
    search._order = [rule for rule in search._order if rule.name not in APART]
    return found.node, search


def test_parts_are_taken_out_only_where_they_are_curved_as_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = []
    own = theorems.abstracted
    monkeypatch.setattr(
        theorems, "abstracted", lambda node, u, a: (taken.append(u), own(node, u, a))[1]
    )
    node, search = rules_only("(exp(x) - exp(-0.7*x))/(exp(x) + exp(-0.7*x))", "x>=0.01, x<=3")
    assert search.prove(node, "concave") is None
    assert 0 < len(taken) <= 4  # two directions of every part of both forms would be 15


@pytest.mark.parametrize(
    ("text", "bounds"),
    [("abs(x) - log(1 + abs(x))", ""), ("exp(x)*exp(x) + exp(x)", ""), ("1/(3 - x)", "x<=2")],
)
def test_parts_that_are_curved_as_it_needs_are_found(text: str, bounds: str) -> None:
    node, search = rules_only(text, bounds)
    assert search.prove(node, "convex") is not None


@pytest.mark.parametrize("ends", [(-3.0, 2.0), (-1.0, -1.0)])
def test_steps_and_single_points_are_not_cut_into_boxes(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[float, float]
) -> None:
    rounds = []
    own = search_module.bends
    monkeypatch.setattr(
        search_module, "bends", lambda *asked: (rounds.append(asked), own(*asked))[1]
    )
    x = cp.Variable(name="x")
    found = read(-cp.ceil(x), domain_of({"low": x >= ends[0], "high": x <= ends[1]}))
    assert Search(found.domain).prove(found.node, "convex") is None
    claims = {asked[:2] for asked in rounds}  # of both, once: no box of one point gets smaller
    assert len(rounds) == len(claims) == (0 if ends[0] < ends[1] else 2)


def test_of_two_claims_the_smaller_is_asked_first() -> None:
    node, search = rules_only("exp(x) + exp(-x)*(1 + x*x + y*y)", "x>=0, x<=1")
    small, _ = rules_only("-exp(x)", "")
    goals = [theorems.Goal(node, "convex"), theorems.Goal(small, "convex")]
    assert search._all(goals, Domain(), (), 0) is None
    assert goals[0].key not in {key[: len(goals[0].key)] for key in search._known}


@pytest.mark.parametrize(
    ("text", "bounds", "kind"),
    [
        ("(exp(x) - exp(-x))/(exp(x) + exp(-x))", "x>=0.01, x<=3", "concave"),
        ("(1 - exp(-x))*(1 - exp(-x))", "x>=-1, x<=0.69", "convex"),
        ("1/(1 + exp(-x - y))", "x<=0, y<=0", "convex"),
    ],
)
def test_fractions_of_one_exponential_need_no_boxes(text: str, bounds: str, kind: Any) -> None:
    node, search = rules_only(text, bounds)
    step = search.prove(node, kind)
    assert step is not None
    assert step.rule == "rational function of an exponential"
    other = "convex" if kind == "concave" else "concave"
    assert search.prove(node, other) is None  # type: ignore[arg-type]


def test_chords_are_drawn_over_one_variable_or_each_on_a_scale_of_its_own() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    one = prove(x * x * x - 2 * x, [x <= 4, x >= -4])
    ax = one.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "f")
    money = cp.Variable(name="money_$a$")
    assert prove(cp.exp(money)).plot().get_xlabel() == r"money_\$a\$"
    assert ax.get_title(loc="left") == "Neither convex nor concave"
    graph = ax.get_lines()[0].get_xydata()
    assert np.allclose(graph[:, 1], graph[:, 0] ** 3 - 2 * graph[:, 0])
    for c, drawn in zip(one.chords, ax.get_lines()[2::2], strict=True):
        ends = [v.item() for end in (c.first, c.second) for v in end.values()]
        assert np.allclose(drawn.get_xdata()[[0, -1]], ends)
    assert len(ax.figure.axes) == 1 and "not convex" in ax.get_legend().get_texts()[1].get_text()
    pole = prove(1 / x).plot().get_lines()[0].get_ydata()
    assert np.isnan(pole).any() and np.nanmax(np.abs(pole)) < 1e6
    given = pyplot.figure().subplots()
    assert prove(x * x + y * y - 3 * x * y).plot(given) is given
    assert len(given.figure.axes) == 2 and "first point" in given.get_xlabel()
    single = prove(x * x * y * y, [x >= 1, y >= 1, x <= 2, y <= 2], curvature="convex")
    assert single.curvature == "not convex" and len(single.plot().figure.axes) == 1
    pyplot.close("all")


def test_a_proof_is_drawn_with_a_chord_on_its_side() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    x, v = cp.Variable(name="x"), cp.Variable(3, name="v")
    S = cp.Variable((2, 2), name="S", PSD=True)
    for f, where, sign in [
        (cp.log(cp.exp(x) + 1), [], 1.0),
        (cp.sqrt(1 + x * x), [], 1.0),
        (x * cp.log(x), [x >= 0], 1.0),
        (x**3, [], 1.0),  # which CVXPY defines for x >= 0 alone
        (cp.log(x), [], -1.0),
        (2 * x + 1, [], 0.0),
        (cp.norm(v), [], 1.0),
        (-cp.log_det(S), [], 1.0),
    ]:
        proof = prove(f, where)
        ax = proof.plot()
        assert ax.get_title(loc="left").lower().startswith(proof.curvature)
        chord = ax.get_lines()[-1].get_ydata()
        inside = ax.get_lines()[-2].get_ydata()[-1]
        assert np.sign(np.round(chord[1] - inside, 12)) == sign
        if f.variables()[0] is x:
            assert ax.get_xlabel() == "x"
            places, graph = ax.get_lines()[0].get_data()
            x.value = places[200]
            assert graph[200] == pytest.approx(float(f.value), rel=1e-9)
            assert sign == 0.0 or "on the other side" in ax.get_legend().get_texts()[1].get_text()
    assert prove(x**3).plot().get_lines()[0].get_xdata().min() >= 0.0
    given = pyplot.figure().subplots()
    assert prove(cp.exp(x)).plot(given) is given
    assert prove(cp.log(x - 1e9)).plot(given).get_lines()[-3].get_xdata().min() >= 1e9
    assert prove(cp.sum_squares(v), [v[0] == v[1]]).plot(given) is given  # which it does not need
    with pytest.raises(DataError, match="no chord of"):
        prove(cp.Constant(3)).plot()
    pyplot.close("all")


def test_what_is_log_concave_is_said_where_it_is_positive() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    said = "its logarithm is concave"
    assert prove(cp.exp(-x * x / 2)).hints[0] == said
    assert said in prove(1 / (1 + cp.exp(-x))).hints
    assert prove(x * y, [x >= 0, y >= 0]).hints[:2] == (said, "affine in y if x is fixed")
    # negative somewhere, or with a logarithm that is concave on both sides of 0 only
    for f in (x * y, x * x * x, x * x * x * x - x * x):
        assert said not in prove(f).hints
    assert said not in prove(1 / (1 + x * x)).hints  # nor Cauchy's density


def test_every_answer_has_hints() -> None:
    x = cp.Variable(name="x")
    assert prove(x * x).hints == () and prove(cp.square(x)).hints == ()
    assert prove(x * x * x).hints


def test_a_proof_by_composition_reads_as_it_may_have_been_written() -> None:
    x = cp.Variable(3, name="x")
    said = prove(cp.sum_squares(x - 1)).explain()
    assert "quad_over_lin(x + -1.0, 1.0): convex" in said
    said = prove(cp.sum(cp.power(x, 1.5)) + cp.norm(x, 3)).explain()
    assert "Approx" not in said and "power(x, 1.5)" in said and "None" not in said


def test_a_text_is_a_formula_with_bounds_as_texts() -> None:
    assert str(prove("x**2/y", "y >= 1")) == "convex on 'y >= 1': square over a positive function"
    assert prove("exp(x) - x**2/2", ["x >= 0", "x <= 3"]).curvature == "convex"
    assert prove("x*y").curvature == "neither"
    x = cp.Variable(name="x")
    with pytest.raises(DeclarationError, match="bounds that are texts"):
        prove("x*x", [x >= 1])
    with pytest.raises(DeclarationError, match="bounds that are texts"):
        prove("x*x", x >= 1)
    # one constraint needs no list
    assert str(prove(1 / x, x >= 1)) == "convex on 'where 0': reciprocal"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("|x|", r"write abs\(x\) for"),
        ("x'*P*x", "write x @ P @ x"),
        ("x**2 <= y", "write the function: left - right"),
        ("sqrt(x^2 + 1)", r"write \*\* for a power"),
        ("x +", "write e.g."),
    ],
)
def test_formulas_as_on_paper_are_told_how_to_be_written(text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        prove(text)


def test_boxes_are_cut_no_longer_than_the_whole_search_may_take() -> None:
    x = cp.Variable(name="x")
    found = read(x * cp.exp(x), domain_of({"low": x >= -1.9, "high": x <= 3}))
    assert Search(found.domain).subdivided(found.node, "convex", Algebra(found.domain)) is not None
    late = Search(found.domain, 0.0)
    assert late.subdivided(found.node, "convex", Algebra(found.domain)) is None


def test_enclosures_of_hessians_take_the_steps_that_they_cost() -> None:
    """Those of many entries, or over many boxes, once took as many steps as a single number."""
    v = cp.Variable(6, name="v")
    where = domain_of({"low": v >= 1, "high": v <= 2})
    node = read(cp.sum(cp.multiply(1 / v, v @ np.ones(6))), where).node
    places = tuple(entries(node))

    def over(count: int) -> Interval:
        return Interval.of(np.ones((6, count)), np.full((6, count), 2.0))

    with limited(500):
        one = hessian_on(node, places, over(1))
    with pytest.raises(Exhausted), limited(500):
        hessian_on(node, places, over(1000))
    assert one is not None
    with limited(20), pytest.raises(Exhausted):
        definite(one)


def test_what_is_divided_by_0_is_refused_by_name() -> None:
    x = cp.Variable(name="x")
    for below in (x - x, cp.kl_div(x, x)):
        with pytest.raises(DataError, match="divides by 0"):
            prove(cp.quad_over_lin(x, below), [x >= 1])


def test_an_exponential_of_0_and_a_sum_of_nothing_are_numbers() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    answer = prove(
        cp.sqrt(cp.log_sum_exp(cp.hstack([x, cp.maximum(y, 0)]))), [y >= -1, y <= 1], seconds=1.0
    )
    assert answer.curvature == "neither"
    nothing = cp.log(0.0 * x + 0.0 * y) / y
    p = from_cvxpy(cp.Problem(cp.Minimize(nothing), [x >= 0, x <= 3, y >= 1, y <= 2]))
    with pytest.raises(OptfairError):  # log(0) is no number
        p.solve(time_limit=2.0)
