"""Two corpora with a truth for every row: what is decided is right, and verifies."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.convexity.domain import Domain
from optfair.convexity.prove import domain_of
from optfair.convexity.reading import read
from optfair.convexity.witness import sample
from optfair.convexity.writing import parse

HERE = Path(__file__).parent
SEED = tomllib.loads((HERE / "convexity_seed.toml").read_text())["expression"]
OWN = tomllib.loads((HERE / "convexity_own.toml").read_text())["expression"]
# no rule reaches these; they may become decided, never wrong
OPEN: set[str] = set()


def declared(row: dict[str, Any], text: str | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the expression of a row and its bounds by name."""
    variables: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for name, box in row["box"].items():
        if isinstance(box, dict):
            v = cp.Variable(tuple(box["shape"]), name=name)
            low, high = box["low"], box["high"]
        else:
            v, (low, high) = cp.Variable(name=name), box
        variables[name] = v
        bounds[f"{name} low"], bounds[f"{name} high"] = v >= low, v <= high
    return parse(text or row["text"], variables), bounds


@pytest.mark.sampled(4)
@pytest.mark.parametrize("row", [*SEED, *OWN], ids=lambda r: r["name"])
def test_what_is_decided_is_true(row: dict[str, Any]) -> None:
    expression, bounds = declared(row)
    found = of.prove(expression, bounds)
    if row["name"] in OPEN and found.curvature == "undecided":
        return
    assert found.curvature == row["truth"], found
    assert found.verify()
    assert bool(found) == (row["truth"] != "neither")


def test_the_corpora_are_what_they_should_be() -> None:
    assert len(SEED) == 60 and len(OWN) >= 140
    truths = Counter(row["truth"] for row in OWN)
    assert truths["neither"] >= 0.25 * len(OWN)
    assert len({r["text"] for r in OWN if r["truth"] == "neither"}) >= 0.25 * len(OWN)
    # three variables or more: by name, all scalar, so by entries as well
    scalars = [sum(not isinstance(b, dict) for b in r["box"].values()) for r in OWN]
    assert sum(n >= 3 for n in scalars) >= 0.25 * len(OWN)
    assert all({*r["box"]} <= {*re.findall(r"[a-z]+", r["text"])} for r in OWN)
    assert all(row["why"] for row in OWN)
    assert len({row["name"] for row in OWN}) == len(OWN)
    assert len(OPEN) <= 0.08 * len(OWN)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("row", OWN, ids=lambda r: r["name"])
def test_the_truth_is_that_of_chords(row: dict[str, Any]) -> None:
    """Sampled chords, evaluated without any sign from a domain, speak for the stated truth."""
    expression, bounds = declared(row)
    node = read(expression, Domain()).node
    domain = domain_of(bounds)
    against = {"convex": False, "concave": False}
    for seed in range(3):
        found = sample(node, domain, 2500, seed)
        assert found is not None
        for kind in against:
            against[kind] |= found.worst(kind) is not None  # type: ignore[arg-type]
    truth = [kind for kind, broken in against.items() if not broken]
    assert truth == ([] if row["truth"] == "neither" else [row["truth"]])


# --- the same function in other words ----------------------------------------------------------------

Row = dict[str, Any]


def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


class _Exchanged(ast.NodeTransformer):
    """Operands of sums, differences and products change places."""

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        if isinstance(node.op, (ast.Add, ast.Mult)):
            node.left, node.right = node.right, node.left
        elif isinstance(node.op, ast.Sub):
            node.op, minus = ast.Add(), ast.UnaryOp(ast.USub(), node.right)
            node.left, node.right = minus, node.left
        return node


class _Split(ast.NodeTransformer):
    """A coefficient becomes a sum: 3 x is 0.75 x + 2.25 x."""

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Mult) or not isinstance(node.left, ast.Constant):
            return node
        c = float(node.left.value)  # type: ignore[arg-type]
        part = c / 4 if Fraction(c) == Fraction(c / 4) + Fraction(c - c / 4) else c / 2
        parts = [ast.BinOp(ast.Constant(k), ast.Mult(), node.right) for k in (part, c - part)]
        return ast.BinOp(parts[0], ast.Add(), parts[1])


class _Named(ast.NodeTransformer):
    """Names become formulas."""

    def __init__(self, instead: dict[str, str]) -> None:
        self.instead = instead

    def visit_Name(self, node: ast.Name) -> Any:
        return _tree(self.instead[node.id]) if node.id in self.instead else node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        node.value = self.visit(node.value)  # an index is no variable
        return node


def _text(change: ast.NodeTransformer, text: str) -> str:
    return ast.unparse(ast.fix_missing_locations(change.visit(_tree(text))))


def another_order(row: Row) -> Row:
    """Operands change places."""
    return {"text": _text(_Exchanged(), row["text"]), "box": row["box"]}


def three_times(row: Row) -> Row:
    """It is scaled by 3."""
    return {"text": f"3*({row['text']})", "box": row["box"]}


def moved(row: Row) -> Row:
    """With (x + 1)/2 for x, on the points whose images lie in the box."""

    def into(value: float, away: float) -> float:
        exact = 2 * Fraction(value) - 1
        end = float(exact)
        inside = end >= exact if away > 0 else end <= exact
        return end if inside else float(np.nextafter(end, away))

    def box(given: Any) -> Any:
        if isinstance(given, dict):
            low, high = into(given["low"], np.inf), into(given["high"], -np.inf)
            return {"shape": given["shape"], "low": low, "high": high}
        return [into(given[0], np.inf), into(given[1], -np.inf)]

    text = _text(_Named({name: f"(({name} + 1)/2)" for name in row["box"]}), row["text"])
    return {"text": text, "box": {name: box(given) for name, given in row["box"].items()}}


def split(row: Row) -> Row:
    """Coefficients are split, that of the whole too: 1 = 1/4 + 3/4."""
    text = _text(_Split(), row["text"])
    return {"text": f"0.25*({text}) + 0.75*({text})", "box": row["box"]}


def vector_for_scalars(row: Row) -> Row:
    """Scalars become the entries of one vector, and vectors lists of scalars."""
    box: dict[str, Any] = {}
    instead = {}
    scalars = [name for name, given in row["box"].items() if not isinstance(given, dict)]
    if scalars:
        low, high = (np.array([row["box"][name][k] for name in scalars]) for k in (0, 1))
        box["all"] = {"shape": [len(scalars)], "low": low, "high": high}
        instead = {name: f"all[{j}]" for j, name in enumerate(scalars)}
    for name, given in row["box"].items():
        if isinstance(given, dict):
            ((n,),) = (given["shape"],)
            names = [f"{name}{j}" for j in range(n)]
            instead[name] = f"[{', '.join(names)}]"
            box |= {own: [given["low"], given["high"]] for own in names}
    return {"text": _text(_Named(instead), row["text"]), "box": box}


CHANGES = (another_order, three_times, moved, split, vector_for_scalars)
# Each row is changed in every way; in a quick run one of the rows in twelve, each way in turn.
CHANGED = [
    pytest.param(row, change, id=f"{change.__name__}: {row['name']}", marks=marks)
    for i, row in enumerate([*SEED, *OWN])
    for k, change in enumerate(CHANGES)
    for marks in [[] if i % 12 == 0 and (i // 12) % len(CHANGES) == k else [pytest.mark.slow]]
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("row", "change"), CHANGED)
def test_other_words_do_not_matter(row: Row, change: Callable[[Row], Row]) -> None:
    """The same verdict on the same function, written in another way."""
    expression, bounds = declared(change(row))
    found = of.prove(expression, bounds)
    assert found.curvature == row["truth"], found
    assert found.verify()


@pytest.mark.parametrize("change", CHANGES)
def test_other_words_mean_the_same(change: Callable[[Row], Row]) -> None:
    """Each change of words keeps the values: at the middle of the box, times a constant."""
    for row in [*SEED, *OWN][::3]:
        values = []
        for own in (row, change(row)):
            expression, _ = declared(own)
            for v in expression.variables():
                given = own["box"][v.name()]
                low, high = given if not isinstance(given, dict) else (given["low"], given["high"])
                v.value = np.broadcast_to(low + (np.asarray(high) - low) * 0.375, v.shape)
            values.append(float(expression.value))
        assert values[1] == pytest.approx(values[0] * (3 if change is three_times else 1))


def test_entries_of_products_are_read_again_in_the_same_order() -> None:
    # of two vectors the one that is bounded is remembered, the other is made anew
    v = cp.Variable(5, name="v")
    found = of.prove(cp.sum((v + 1) / 2 / (5 - (v + 1) / 2)), [v >= -1, v <= 7])
    assert found.curvature == "convex" and found.verify()


def test_a_vector_is_as_its_entries() -> None:
    v = cp.Variable(3, name="v")
    x = [cp.Variable(name=f"x{i}") for i in range(3)]
    vector = cp.sum(cp.multiply(v, cp.log(v / cp.sum(v))))
    scalars = sum(e * cp.log(e / (x[0] + x[1] + x[2])) for e in x)
    for expression, bounds in ((vector, [v >= 0.1]), (scalars, [e >= 0.1 for e in x])):
        found = of.prove(expression, bounds)
        assert found.curvature == "convex" and found.verify()
    values = np.array([0.2, 0.7, 1.5])
    v.value = values
    for e, value in zip(x, values, strict=True):
        e.value = value
    assert vector.value == pytest.approx(scalars.value)
