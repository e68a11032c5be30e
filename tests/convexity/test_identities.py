"""Rules that rewrite keep the function: shown symbolically."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import cvxpy as cp
import pytest
import sympy

import optfair as of
from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Call, Leaf, Node, Product, Sum, select
from optfair.convexity.hessians import bend_of_fraction, fraction_of_exponential
from optfair.convexity.proof import CurvatureProof, Step
from optfair.convexity.reading import read
from optfair.convexity.rules import RULES
from optfair.convexity.theorems import abstracted, perspective_of
from optfair.convexity.writing import parse, parse_bounds

# The node of the premise is the node itself in other words.
EQUAL = ("multiplied out", "logarithms collected", "logarithm as a sum")
# The premises of these add up to the node, but for affine terms.
ADDED = (
    "without affine terms",
    "quadratic part",
    "blocks without common variables",
    "terms of the same variables",
)


def example(name: str) -> tuple[Any, dict[str, Any]]:
    """Return the expression and the bounds of a rule's example."""
    text, bounds, shapes = (*RULES[name].example.split("|"), "", "")[:3]
    sizes = dict(part.strip().split("=") for part in shapes.split(",") if part.strip())
    variables = {v: cp.Variable(int(size), name=v) for v, size in sizes.items()}
    return parse(text, variables), parse_bounds(bounds, variables)


def symbolic(node: Node, i: int, domain: Domain) -> Any:
    """Return an entry of a node in SymPy, with the signs that the domain knows."""
    if isinstance(node, Leaf):
        box = domain.box(node)
        sign = {"positive": True} if box.low[i] >= 0.0 else {"real": True}
        return sympy.Symbol(f"{node.name}_{i}_{node.serial}", **sign)
    if isinstance(node, Sum):
        total = exact(node.constant[i])
        for M, n in node.parts:
            for k in range(M.indptr[i], M.indptr[i + 1]):
                total += exact(M.data[k]) * symbolic(n, int(M.indices[k]), domain)
        return total
    if isinstance(node, Product):
        powers = [symbolic(n, i, domain) ** rational(p) for n, p in node.factors]
        return sympy.Mul(*powers)
    assert isinstance(node, Call)
    name = {"abs": "Abs", "of all: maximum": "Max", "of all: minimum": "Min"}.get(node.function)
    if node.function.startswith("of all: "):
        inside = [symbolic(n, j, domain) for n in node.args for j in range(n.size)]
        return getattr(sympy, str(name))(*inside)
    x = symbolic(node.args[0], i, domain)
    return (
        x * sympy.log(x) if node.function == "xlogx" else getattr(sympy, name or node.function)(x)
    )


def exact(value: float) -> Any:
    return rational(Fraction(float(value)))


def rational(value: Fraction) -> Any:
    return sympy.Rational(value.numerator, value.denominator)


def same(a: Any, b: Any) -> bool:
    """Whether two functions are one: by simplification, logarithms and roots taken apart."""
    apart = sympy.expand_log(sympy.expand(sympy.powdenest(a - b, force=True)), force=True)
    return sympy.simplify(apart) == 0


def steps(step: Step, domain: Domain) -> Any:
    """Yield every step with the domain on which it is stated."""
    if step.goal.boxes:
        domain = domain.extended(boxes=dict(step.goal.boxes))
    yield step, domain
    for p in step.premises:
        yield from steps(p, domain)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RULES)
def test_what_is_rewritten_is_the_same_function(name: str) -> None:
    expression, bounds = example(name)
    proof = of.prove(expression, bounds)
    assert isinstance(proof, CurvatureProof)
    looked_at = 0
    for step, domain in (s for root in proof.steps for s in steps(root, proof.domain)):
        node = step.node
        if node.size != 1:
            continue
        whole = None if step.rule not in (*EQUAL, *ADDED, "perspective", "composition") else node
        if whole is None:
            continue
        own = symbolic(node, 0, domain)
        if step.rule in EQUAL:
            assert same(own, symbolic(step.premises[0].node, 0, domain)), step.rule
        elif step.rule in ADDED:
            rest = own - sum(symbolic(p.node, 0, domain) for p in step.premises)
            for x in rest.free_symbols:
                assert sympy.simplify(sympy.diff(rest, x, 2)) == 0
        elif step.rule == "perspective":
            found = perspective_of(node, step.data, Algebra(domain))
            assert found is not None
            h, leaves = found
            w = symbolic(step.data, 0, domain)
            inner = domain.extended(boxes=dict(step.premises[0].goal.boxes))
            ratios = {symbolic(t, 0, inner): symbolic(u, 0, domain) / w for t, u in leaves}
            assert same(own, w * symbolic(h, 0, inner).subs(ratios)), step.rule
        else:
            h, leaf, box = abstracted(node, step.data[0], Algebra(domain))
            inner = domain.extended(boxes={leaf: box})
            part = {symbolic(leaf, 0, inner): symbolic(step.data[0], 0, domain)}
            assert same(own, symbolic(h, 0, inner).subs(part)), step.rule
        looked_at += 1
    if name in (*EQUAL, *ADDED, "perspective", "composition"):
        assert looked_at
    assert select(proof.step.node, [0]).size == 1


@pytest.mark.parametrize(
    "text",
    [
        "(exp(x) - exp(-x))/(exp(x) + exp(-x))",
        "(1 - exp(-x))*(1 - exp(-x))",
        "3*exp(x)/(2 + exp(2*x)) + 5",
        "1/(1 + 1/(1 + exp(-x)))",
    ],
)
def test_a_fraction_of_an_exponential_is_the_function_and_bends_as_it_does(text: str) -> None:
    node = read(parse(text, {"x": cp.Variable(name="x")}), Domain()).node
    found = fraction_of_exponential(node)
    assert found is not None
    t, N, D, _ = found
    own, power = symbolic(node, 0, Domain()), symbolic(t, 0, Domain())
    (x,) = own.free_symbols

    def at(line: list[Fraction]) -> Any:
        return sum((rational(c) * power**k for k, c in enumerate(line)), sympy.Integer(0))

    assert sympy.simplify(own - at(N) / at(D)) == 0
    slope = sympy.diff(sympy.log(power), x)
    bend = slope**2 * at(bend_of_fraction(N, D)) / at(D) ** 3
    assert sympy.simplify(sympy.diff(own, x, 2) - bend) == 0
