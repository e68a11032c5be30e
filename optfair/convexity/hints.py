"""What would make an expression convex: a sign, a bound, a fixed variable, logarithms."""

from __future__ import annotations

import itertools
import time
from typing import Any

import cvxpy as cp

from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import Domain, Fact
from optfair.convexity.expression import Leaf, Node, Number, affine, raw_call, rebuilt
from optfair.convexity.proof import CurvatureProof
from optfair.convexity.prove import domain_of, proved_on
from optfair.convexity.reading import leaf_of, read, read_constraint
from optfair.convexity.recast import logarithm_of, sides_of
from optfair.convexity.rules import Kind
from optfair.convexity.search import Search
from optfair.errors import DataError

# Seconds of computing that all changes may take together, and one of them.
ALL, ONE = 5.0, 0.4


def hints_of(expression: Any, domain: Domain, kinds: tuple[Kind, ...]) -> tuple[str, ...]:
    """Return signs and bounds that would make an expression convex or concave."""
    variables = expression.variables()
    if sum(v.size for v in variables) > 6 or len(variables) > 4:
        return ()
    if any(v.is_complex() for v in variables):
        return ()
    signs: list[tuple[str, Any]] = []
    bounds: list[tuple[str, Any]] = []
    for v in variables:
        box = domain.box(leaf_of(v))
        if (box.low < 0.0).all() and (box.high > 0.0).all():
            signs += [(f"{v.name()} >= 0", v >= 0), (f"{v.name()} <= 0", v <= 0)]
        if (box.low < 1.0).all() and (box.high > 1.0).all():
            bounds += [(f"{v.name()} >= 1", v >= 1), (f"{v.name()} <= 1", v <= 1)]
        if (box.low < -1.0).all() and (box.high > 1.0).all():
            bounds.append((f"-1 <= {v.name()} <= 1", cp.abs(v) <= 1))
    pairs = [
        (f"{a} and {b}", (c, d))
        for (a, c), (b, d) in itertools.combinations(signs, 2)
        if c.variables()[0] is not d.variables()[0]
    ]
    hints: list[str] = []
    end = time.thread_time() + ALL
    for word, said in [*signs, *bounds][:10] + pairs[:12]:
        if len(hints) == 2 or (hints and isinstance(said, tuple)):
            break  # what one bound does is the nearer change
        if time.thread_time() > end:
            return tuple(hints)
        if any(word.replace("= 1", "= 0") == f.partition(" if ")[2] for f in hints):
            continue  # a weaker bound was enough
        rows = said if isinstance(said, tuple) else (said,)
        if word.count("<=") == 2:
            narrower = domain_of({"hint": said}).extended(domain.facts)
        else:
            facts = [f for c in rows for f in read_constraint("hint", c, domain)]
            narrower = domain.extended(facts)
        try:
            answer = proved_on(expression, narrower, None, ONE, refute=False)
        except DataError:
            continue
        if isinstance(answer, CurvatureProof) and answer.curvature in (*kinds, "affine"):
            hints.append(f"{answer.curvature} if {word}")
    return tuple(hints or _with_one_fixed(expression, domain))


def _with_one_fixed(expression: Any, domain: Domain) -> list[str]:
    """Return what holds when one variable is fixed, or of logarithms where all are positive."""
    node, said = read(expression, domain).node, []
    leaves = {leaf_of(v): v.name() for v in expression.variables()}
    for leaf, name in leaves.items() if len(leaves) > 1 else ():
        number = Number(("fixed", leaf.uid), name, leaf.size, leaf.shape)
        there = domain.extended(boxes={number: domain.box(leaf)})
        fixed = rebuilt(node, Algebra(there), {leaf: number})
        word = curvature_by(there, fixed)
        said += [
            f"{word} in {' and '.join(n for n in leaves.values() if n != name)} if {name} is fixed"
        ] * bool(word)
    return [*said, *_in_logarithms(expression, domain)]


def curvature_by(domain: Domain, node: Node) -> str:
    """Return "affine", "convex", "concave" as rules show quickly, "" where they show nothing."""
    search = Search(domain, 0.2)
    kinds: tuple[Kind, Kind] = ("convex", "concave")
    held = [k for k in kinds if affine(node) or search.prove(node, k) is not None]
    return "affine" if len(held) == 2 else "".join(held)


def _in_logarithms(expression: Any, domain: Domain) -> list[str]:
    """Return what the logarithm of an expression says where all its variables are positive."""
    leaves = [leaf_of(v) for v in expression.variables()]
    boxes = [domain.box(leaf) for leaf in leaves]
    if not leaves or any((box.high <= 0.0).any() for box in boxes):
        return []
    facts = [
        Fact("hint", Algebra(domain).scaled(-1.0, leaf))
        for leaf, box in zip(leaves, boxes, strict=True)
        if (box.low < 0.0).any()
    ]
    there = domain.extended(facts)
    node, a = read(expression, there).node, Algebra(there)
    sides = sides_of(node, a) if node.size == 1 else None
    if sides is None or sides[1] or not sides[0]:
        return []
    names, said = [leaf.name for leaf in leaves], []
    if curvature_by(there, logarithm_of(sides[0], a, False)) == "concave":
        said.append("quasiconcave if " + " and ".join(f"{n} >= 0" for n in names))
    known: dict[Node, Node] = {}
    logs = {
        leaf: Leaf(("logarithm", leaf.uid), leaf.name, leaf.size, leaf.shape) for leaf in leaves
    }
    b = Algebra(Domain(boxes={u: there.box(leaf).call("log") for leaf, u in logs.items()}))
    known |= {leaf: raw_call("exp", [u], leaf.size) for leaf, u in logs.items()}
    moved = [(c, rebuilt(n, b, known)) for c, n in sides[0]]
    if word := curvature_by(b.domain, logarithm_of(moved, b, False)):
        said.append(f"log-log {word} if " + " and ".join(f"{n} > 0" for n in names))
    return said
