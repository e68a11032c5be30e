"""Formulas as expressions, and normal forms as atoms: the values of both, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from optfair.convexity import writing
from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Node, opaque, raw_call, raw_product
from optfair.convexity.prove import domain_of
from optfair.convexity.reading import Unread, leaf_of, read
from optfair.convexity.writing import Atoms, parse, parse_bounds
from optfair.errors import DataError


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("x**1", -3.0),
        ("x**-1", -1 / 3),
        ("x**-2", 1 / 9),
        ("x**3 - 2", -29.0),
        ("x**-3", -1 / 27),
        ("power(x + 4, 0.5)", 1.0),
        ("2*[1, 2]", [2.0, 4.0]),
        ("[1, 2]*[3, 4]*x", [-9.0, -24.0]),
        ("sum([[1, 2]*2, [3, 4]])", 13.0),
        ("[1, 2] @ [3, 4] + x", 8.0),
        ("[x, 5][1]", 5.0),
        ("--x", -3.0),
        ("max(x, 2*x, -7)", -3.0),
        ("min(x, 2*x)", -6.0),
        ("max([x, 2*x])", -3.0),
        ("max([1, 2], [2, x])", [2.0, 2.0]),
        ("sum(x, 5, x)", -1.0),
        ("log_sum_exp(x, x)", -3.0 + float(np.log(2.0))),
        ("geo_mean(x + 5, 8)", 4.0),
        ("geo_mean([x + 5, 16], [2, 1])", 4.0),
        ("norm([x, 4], 1)", 7.0),
    ],
)
def test_a_formula_has_its_value(text: str, truth: Any) -> None:
    variables: dict[str, Any] = {"x": cp.Variable(name="x", value=-3.0)}
    assert parse(text, variables).value == pytest.approx(np.array(truth))


def test_a_power_is_said_to_have_two_stars_and_reasons_are_one_line() -> None:
    with pytest.raises(DataError) as refused:
        parse("x^2")
    assert "write ** for a power" in str(refused.value)
    with pytest.raises(DataError) as refused:
        parse("[1, 2] + [1, 2, 3]*x")
    assert len(str(refused.value).splitlines()) <= 3


@pytest.mark.parametrize("text", ["x**1", "x**-1", "x**-2", "x**3"])
def test_whole_powers_are_products_for_any_sign(text: str) -> None:
    assert parse(text).domain == []


@pytest.mark.parametrize(
    "text",
    [
        *("1e999", "[1, 2]/[1, 0]", "exp(x, y=1)", "max(*[1, 2])", "max([x, 1], axis=0)"),
        *(
            "x**y",
            "x < 1",
            "exp",
            "x.value",
            "max(1, *[1, 2])",
            "[[1, 2], [3, 4]][0, 0.5]",
            "f(x)",
            "[1, 2][0.5]",
            "1 // x",
            "x^2",
            "sum([1, 2], x)",
            "log_sum_exp([x, 1], [x, 2])",
            "'x'",
            "x[5]",
        ),
    ],
)
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(DataError):
        parse(text)


class Coarse:
    """Logarithms that are rounded by 0.1, which shows the way; that of 1 is known."""

    def __init__(self, value: Any) -> None:
        self.value = value

    exactly = classmethod(lambda cls, value: cls(value))

    def call(self, name: str) -> Any:
        assert name == "log"
        value, off = np.log(self.value), 0.1 * (self.value != 1.0)
        return SimpleNamespace(low=value - off, high=value + off)


def declared(text: str) -> tuple[Node, Algebra, Mapping[str, Any]]:
    """Return a function of u, v and x >= 0.2 in normal form, and its variables."""
    variables: dict[str, Any] = {n: cp.Variable(name=n) for n in "uvx"}
    e = parse(text, variables)
    reading = read(e, domain_of(parse_bounds("x >= 0.2, x <= 9", variables)))
    return reading.node, Algebra(reading.domain), variables


def flat(variables: Mapping[str, Any]) -> dict[Node, Any]:
    return {leaf_of(v): cp.vec(v, order="F") for v in variables.values()}


@pytest.mark.parametrize(
    "text",
    [
        *("log(3*exp(u) + 2)", "log(3*exp(u) + exp(v))", "-log(3*exp(u) + exp(v) + 1)"),
        *("0.5*log(3*exp(u) + 2) - 0.5*log(exp(v) + 5)", "abs(log(3*exp(u) + exp(v)) - 1)"),
        *("maximum(log(3*exp(u) + 1), v)", "minimum(log(3*exp(u) + 1), v) - u"),
        *("log(x*exp(u))", "log(exp(u)/(2 + 3*exp(v)))", "log(x**2*exp(u)/(2 + 3*exp(v)))"),
        *("log(exp(u) + exp(v))", "log(exp(u) - 0.5*exp(v) + 9)", "log(exp(u) + v + 3)"),
        *("sqrt(x)*u", "u*u*u*v", "u**4/x", "x**2.5*exp(u)", "exp(u)*x/(1 + exp(v))", "x*log(x)"),
        *("log(exp(u)*x + 2*exp(v)/x)", "exp(abs(u))*exp(v) + 2", "3", "log(5*exp(u)) + log(x)"),
    ],
)
def test_atoms_have_the_values_of_a_normal_form(text: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(writing, "Interval", Coarse)
    node, algebra, variables = declared(text)
    atoms, rng = Atoms(flat(variables), algebra), np.random.default_rng(0)
    written = {low: atoms.write(node, low) for low in (True, False, None)}
    for _ in range(9):
        for v in variables.values():
            v.value = rng.uniform(0.2 if v.name() == "x" else -2.0, 2.0)
        truth = float(parse(text, dict(variables)).value)
        assert np.shape(written[None].value) == (1,)
        assert float(written[None].value[0]) == pytest.approx(truth)
        assert float(written[True].value[0]) <= truth + 1e-9
        assert float(written[False].value[0]) >= truth - 1e-9


@pytest.mark.parametrize(
    ("text", "low", "curvature"),
    [
        ("log(3*exp(u) + 0.5*exp(v))", True, "convex"),
        ("log(exp(u) + exp(v))", None, "convex"),
        ("0.5*log(3*exp(u) + 2)", True, "convex"),
        ("-0.5*log(3*exp(u) + 2)", False, "concave"),
        ("maximum(log(3*exp(u) + 1), v)", True, "convex"),
        ("log(exp(u)/(2 + 3*exp(v)))", True, "concave"),
        ("log(exp(u)/x)", None, "convex"),
        ("log(x*exp(u))", None, "concave"),
        ("exp(u)/x", None, "unknown"),
        ("u*u*u", None, "unknown"),  # of any sign
    ],
)
def test_atoms_have_the_curvature_of_a_normal_form(
    text: str, low: bool | None, curvature: str
) -> None:
    node, algebra, variables = declared(text)
    assert Atoms(flat(variables), algebra).write(node, low).curvature.lower() == curvature


def test_the_logarithm_of_a_product_needs_no_sign_of_its_factors() -> None:
    node, algebra, variables = declared("log(u*v*x)")
    e = Atoms(flat(variables), algebra).write(node)
    for v, value in zip(variables.values(), (-1.0, -2.0, 3.0), strict=True):
        v.value = value
    assert e.value == pytest.approx(np.log([6.0]))


def test_vectors_are_written_entry_by_entry() -> None:
    w = cp.Variable(2, name="w", value=[1.0, -2.0])
    known = {leaf_of(w): w}
    for e in (cp.exp(w), cp.maximum(w, -w), cp.minimum(cp.exp(w), 1.0), cp.abs(w) + cp.max(w)):
        reading = read(e, Domain())
        made = Atoms(known, Algebra(reading.domain)).write(reading.node)
        assert made.value == pytest.approx(e.value)


def test_a_power_that_no_float_holds_is_no_exponential() -> None:
    node, algebra, variables = declared("exp(u)")
    third = Atoms(flat(variables), algebra).write(raw_product([(node, Fraction(1, 3))]))
    whole = Atoms(flat(variables), algebra).write(raw_product([(node, Fraction(2))]))
    powers = [
        [a.__name__ for a in e.atoms() if "power" in a.__name__.lower()] for e in (third, whole)
    ]
    assert powers[0] and not powers[1]


def test_known_parts_may_be_scalars() -> None:
    node, algebra, variables = declared("3*u - v")
    e = Atoms({leaf_of(v): v for v in variables.values()}, algebra).write(node)
    variables["u"].value, variables["v"].value = 2.0, 1.0
    assert e.value.tolist() == [5.0]


def test_what_has_other_variables_or_no_atom_is_not_written() -> None:
    node, algebra, variables = declared("u")
    w = cp.Variable(name="w")
    atoms = Atoms(flat(variables), algebra)
    inside = opaque(cp.norm1(variables["u"]), [leaf_of(variables["u"])])
    assert atoms.write(inside).is_convex()
    for unknown in (
        opaque(cp.norm1(w), [leaf_of(w)]),
        leaf_of(w),
        raw_call("tanh", [node], 1),
        raw_call("of no name", [node], 1),
    ):
        with pytest.raises(Unread):
            atoms.write(unknown)
