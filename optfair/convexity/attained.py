"""Whether an optimum is attained: a limit that is missed everywhere, a fall that never ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optfair.convexity.algebra import Algebra
from optfair.convexity.derivatives import Taylor, evaluate
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Call, Leaf, Node, Product, entries, subnodes
from optfair.convexity.intervals import Interval
from optfair.convexity.prove import WRITTEN, domain_of
from optfair.convexity.reading import Unread, read
from optfair.core.canonical import built
from optfair.errors import DataError, OptfairError


def attained(problem: Any, value: float) -> bool:
    """Return False where every point is proved to miss a limit that a value comes near."""
    sizes = sum(v.size for v in problem.variables.values())
    if sizes > WRITTEN or not problem.objective or any(t.parameters for t in problem.terms):
        return True
    sign = 1.0 if problem.sense == "minimize" else -1.0
    try:
        goal = sum(built(t) for t in problem.objective.values())
        if not _may_miss(read(goal, Domain()).node):
            return True
    except DataError:
        pass  # what is undefined somewhere may be defined where the constraints hold
    except (OptfairError, Unread):
        return True
    try:
        domain = domain_of({n: built(t) for n, t in problem.constraints.items()})
        reading = read(goal, domain)
        a = Algebra(reading.domain)
        node = a.scaled(sign, reading.node)
        if problem.problem_class.convex and falls(node, reading.domain):
            return False
        low = float(reading.domain.range(node).low.min())
        near = sign * value - low <= 1e-8 * max(1.0, abs(low))
        return not (near and a.never_least(node))
    except (OptfairError, Unread):
        return True


def _may_miss(node: Node) -> bool:
    """Whether a function may miss its limit: where a part has 1/f, a root of f, exp f or log f."""
    return any(
        (isinstance(n, Product) and any(p < 0 or p % 1 for _, p in n.factors))
        or (isinstance(n, Call) and n.function in ("exp", "log"))
        for n in subnodes(node)
    )


# How far out points are of which it is said that none is optimal.
_RADIUS = 1e100


def falls(node: Node, domain: Domain) -> bool:
    """Whether a convex function falls strictly along an axis from every point, and no fact ends it.

    Then no point is optimal, whatever the limit: as of x^2/y, y without upper bound, x >= 1. Where
    a convex function has a negative slope far out, it has one everywhere before; so slopes are
    enclosed there alone, over all points whose other entries are at most `_RADIUS` in size.
    """
    if domain.beside or domain.unread:
        return False
    for leaf, j in entries(node):
        box = domain.box(leaf)
        for way, end in ((1.0, box.high[j]), (-1.0, box.low[j])):
            if np.isfinite(end):
                continue
            slope = _slopes(node, domain, leaf, j, way)
            if slope is None or not (slope.high < 0.0).all():
                continue
            facts = [f for f in domain.facts if leaf in f.node.leaves]
            along = [(f, _slopes(f.node, domain, leaf, j, way)) for f in facts]
            if all(
                s is not None and (s.high <= 0.0).all() and (not f.zero or (s.low >= 0.0).all())
                for f, s in along
            ):
                return True
    return False


def _slopes(node: Node, domain: Domain, leaf: Leaf, j: int, way: float) -> Interval | None:
    """Return enclosures of the slopes of all entries far out along an entry of a leaf, one way."""
    boxes = {}
    for other in node.leaves:
        box = domain.box(other)
        low, high = np.maximum(box.low, -_RADIUS), np.minimum(box.high, _RADIUS)
        if other is leaf:
            low[j] = high[j] = way * _RADIUS
        boxes[other] = Interval.of(low, high)
    enclosed = slopes_along(node, boxes, leaf, j, way)
    return None if enclosed is None else enclosed[1]


def slopes_along(
    node: Node, boxes: Mapping[Leaf, Interval], leaf: Leaf, j: int, way: float
) -> tuple[Interval, Interval] | None:
    """Return enclosures of a node's entries and of their slopes along an entry of a leaf, one way.

    Parameters
    ----------
    node : Node
        What is enclosed.
    boxes : mapping
        Where every leaf lies.
    leaf, j : Leaf, int
        Along which entry.
    way : float
        1 up, -1 down.
    """
    leaves = {}
    for other, box in boxes.items():
        unit = np.zeros((other.size, 1, 1))
        if other is leaf:
            unit[j] = way
        leaves[other] = Taylor(box[:, None], Interval.exactly(unit))
    evaluated = evaluate(node, leaves)
    return None if evaluated is None else (evaluated.v, evaluated.g)
