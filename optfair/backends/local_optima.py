"""Local optima of smooth programs by SciPy, and where their functions are defined."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize

from optfair.convexity.derivatives import Jet, evaluate, gradient_at
from optfair.convexity.domain import Domain, Fact
from optfair.convexity.expression import Call, Leaf, Node, Product, subnodes
from optfair.convexity.intervals import Interval
from optfair.convexity.powers import line_of
from optfair.convexity.proof import values
from optfair.convexity.reading import Unread, demanded, read, read_constraint
from optfair.core.canonical import built
from optfair.core.term import ConstraintTerm
from optfair.errors import DataError
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.core.problem import Problem

Point = dict[Leaf, Floats]

# Steps of the search, and variables for which it is tried.
STEPS, LOCAL = 400, 400
# How much larger or smaller slopes are in another unit.
OTHER = 10.0


def inside(point: Point, domain: Domain) -> Point:
    """Return the nearest point within the boxes."""
    return {n: np.clip(x, domain.box(n).low, domain.box(n).high) for n, x in point.items()}


def finite_at(nodes: Iterable[Node], point: Point) -> bool:
    """Return whether functions have finite values at a point, as far as they are known."""
    for node in nodes:
        here = {leaf: Jet(Interval.exactly(point[leaf][:, None, None])) for leaf in node.leaves}
        known: dict[Node, Any] = {}
        with np.errstate(all="ignore"):
            evaluate(node, here, known)
        for v in (known[n].c for n in (node, *_kept_finite(node)) if known.get(n) is not None):
            if not (np.isfinite(v.low).all() and np.isfinite(v.high).all()):
                return False
    return True


def _kept_finite(node: Node) -> Iterator[Node]:
    """Yield what may be infinite where the whole is not: what is inverted, below what levels off."""
    for n in subnodes(node):
        if isinstance(n, Product):
            yield from (base for base, p in n.factors if p < 0 and base.leaves)
        elif isinstance(n, Call):
            yield from (inner for inner in n.args if inner.leaves)


def middle_of(leaves: Mapping[str, Leaf], domain: Domain) -> Point:
    """Return the middle of the boxes, and a point near an end where there is no other."""
    point = {}
    for leaf in leaves.values():
        box = domain.box(leaf)
        low = np.where(
            np.isfinite(box.low), box.low, np.where(np.isfinite(box.high), box.high - 1.0, -1.0)
        )
        high = np.where(np.isfinite(box.high), box.high, np.maximum(low, 0.0) + 1.0)
        point[leaf] = low + (high - low) / 2
    return point


def definition(problem: Problem) -> Callable[[Point, float], bool]:
    """Return what says whether all functions are defined and finite at a point, up to a tolerance."""
    asked: list[Fact] = []
    nodes: list[Node] = []
    for t in problem.terms:
        written = built(t)
        for part in getattr(written, "args", ()) if isinstance(t, ConstraintTerm) else [written]:
            with contextlib.suppress(DataError, Unread):
                asked += demanded(part, Domain())
                nodes.append(read(part, Domain()).node)

    def defined(point: Point, tolerance: float) -> bool:
        for fact in asked:
            v = values(
                fact.node, {n: Interval.exactly(point[n][:, None]) for n in fact.node.leaves}
            )
            if v is not None and not (v.low <= tolerance).all():
                return False
        return finite_at(nodes, point)

    return defined


def local_optimum(
    problem: Problem,
    leaves: Mapping[str, Leaf],
    domain: Domain,
    start: Point,
    deadline: float = np.inf,
) -> Point | None:
    """Return a local optimum by SciPy, None where a term cannot be read, it fails or is late."""
    order = list(leaves.values())
    n = sum(leaf.size for leaf in order)
    if n > LOCAL:
        return None
    sign = 1.0 if problem.sense == "minimize" else -1.0
    try:
        goals = [read(built(t), domain).node for t in problem.objective.values()]
        facts = [f for t in problem.constraints.values() for f in _facts(t, domain)]
    except (DataError, Unread):  # a part is defined nowhere on the bounds, or not read
        return None
    if domain.empty or any(f is None for f in facts):
        return None
    low = np.concatenate([domain.box(leaf).low for leaf in order])
    high = np.concatenate([domain.box(leaf).high for leaf in order])
    with np.errstate(invalid="ignore"):
        width = np.where(np.isfinite(high - low) & (high > low), high - low, 1.0)

    def unpack(y: Floats) -> Point:
        out, at, x = {}, 0, y * width
        for leaf in order:
            out[leaf] = x[at : at + leaf.size]
            at += leaf.size
        return out

    def both(node: Node, x: Floats) -> tuple[Floats, Floats]:
        with np.errstate(all="ignore"):
            enclosed = gradient_at(node, unpack(x))
            if enclosed is None or time.perf_counter() > deadline:
                raise Unread(node)
            value, slopes = enclosed
            g = np.concatenate(
                [(slopes[leaf].low + slopes[leaf].high) / 2 for leaf in order], axis=1
            )
            v = (value.low + value.high) / 2
            g = g * width
        v = np.nan_to_num(v, nan=1e10, posinf=1e10, neginf=-1e10)
        return v, np.nan_to_num(g, posinf=1e10, neginf=-1e10)

    def goal(x: Floats) -> tuple[float, Floats]:
        parts = [both(node, x) for node in goals]
        value = sign * float(sum(v[0] for v, _ in parts))
        return value / unit, sign * np.asarray(sum((g[0] for _, g in parts), np.zeros(n))) / unit

    unit = 1.0

    x0 = np.concatenate([start[leaf] for leaf in order]) / width
    rows = []
    for f in facts:
        if f is None or _is_bound(f):
            continue
        try:
            slopes = np.abs(both(f.node, x0)[1]).max(initial=0.0)
        except Unread:
            return None
        factor = (1.0 if f.zero else -1.0) / (slopes if 1e-300 < slopes < 1e9 else 1.0)
        rows.append(
            {
                "type": "eq" if f.zero else "ineq",
                "fun": lambda x, f=f, s=factor: s * both(f.node, x)[0],
                "jac": lambda x, f=f, s=factor: s * both(f.node, x)[1],
            }
        )
    bounds = np.stack([low / width, high / width], axis=1)
    try:
        for again in (False, True):  # in the unit of the slopes that were met, if it is another
            slope = float(np.abs(goal(x0)[1]).max(initial=0.0)) * unit
            if again and unit / OTHER < slope < OTHER * unit:
                break
            unit = slope if 1e-300 < slope < 1e9 else unit
            result: Any = scipy.optimize.minimize(  # type: ignore[call-overload]
                goal,
                x0,
                jac=True,
                method="SLSQP",
                bounds=bounds,
                constraints=rows,
                options={"maxiter": STEPS, "ftol": 1e-15},
            )
            reached = np.asarray(result.x)
            x0 = np.where(np.isfinite(reached), reached, x0)
    except Unread:
        return None
    if not np.isfinite(reached).all():
        return None
    return inside(unpack(reached), domain)


def _facts(term: ConstraintTerm, domain: Domain) -> list[Fact | None]:
    facts = read_constraint(term.name, built(term), domain)
    return list(facts) if facts else [None]


def _is_bound(fact: Fact) -> bool:
    """Whether each row of a fact has one variable: the box says it."""
    return not fact.zero and line_of(fact.node) is not None
