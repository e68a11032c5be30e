"""Two corpora with a truth for every row: what is decided is right, and verifies."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.convexity.domain import Domain
from optfair.convexity.grammar import parse
from optfair.convexity.prove import domain_of
from optfair.convexity.reading import read
from optfair.convexity.witness import sample

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


def rewritten(text: str, names: list[str]) -> str:
    """Return a formula with (x + 1)/2 for every scalar x, three times, in another order."""
    import ast

    class Shift(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> Any:
            if node.id in names:
                return ast.parse(f"(({node.id} + 1)/2)", mode="eval").body
            return node

        def visit_BinOp(self, node: ast.BinOp) -> Any:
            self.generic_visit(node)
            if isinstance(node.op, (ast.Add, ast.Mult)):
                node.left, node.right = node.right, node.left
            return node

    return f"3*({ast.unparse(Shift().visit(ast.parse(text, mode='eval')))})"


SCALAR = [r for r in [*SEED, *OWN] if not any(isinstance(b, dict) for b in r["box"].values())]


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, marks=[pytest.mark.slow] * (i % 2)) for i, r in enumerate(SCALAR[::7])],
    ids=lambda r: r["name"],
)
def test_units_and_order_do_not_matter(row: dict[str, Any]) -> None:
    """x -> (x + 1)/2 with the box moved along, scaled by 3, operands exchanged: the same verdict."""
    text = rewritten(row["text"], list(row["box"]))
    box = {name: [2 * low - 1, 2 * high - 1] for name, (low, high) in row["box"].items()}
    expression, bounds = declared({"box": box, "text": text})
    found = of.prove(expression, bounds)
    # a midpoint of the moved box need not be a float: where that costs the proof, nothing is claimed
    assert found.curvature in (row["truth"], "undecided"), found
    if found.curvature != "undecided":
        assert found.verify()


def test_metamorphic_verdicts_are_rarely_lost() -> None:
    lost = 0
    for row in SCALAR[2::18]:
        text = rewritten(row["text"], list(row["box"]))
        box = {name: [2 * low - 1, 2 * high - 1] for name, (low, high) in row["box"].items()}
        expression, bounds = declared({"box": box, "text": text})
        lost += of.prove(expression, bounds).curvature != row["truth"]
    assert lost <= 0.1 * len(SCALAR[2::18])


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
