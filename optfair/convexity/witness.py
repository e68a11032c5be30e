"""Where there is no proof: chords that refute curvature, shown by enclosures, and changes that would make it hold."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.special
from numpy.typing import NDArray

from optfair.convexity.algebra import Algebra, logarithm_of, sides_of
from optfair.convexity.derivatives import evaluate, hessian_on
from optfair.convexity.domain import Domain, Fact
from optfair.convexity.expression import (
    Leaf,
    Node,
    Number,
    affine,
    entries,
    raw_call,
    rebuilt,
    scalars,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.proof import Chord, CurvatureProof, exact_chord
from optfair.convexity.reading import leaf_of, read, read_constraint
from optfair.convexity.rules import Kind
from optfair.errors import DataError, OptfairError
from optfair.numbers import Floats

# Variables beyond which no chord is searched, and entries of a vector that are looked at.
SCALARS, ENTRIES = 60, 12
# Seconds of computing that all changes that would make it hold may take together, and one of them.
ALL, ONE = 5.0, 0.4


@dataclass(frozen=True, eq=False)
class Sample:
    """Chords within a domain and what an entry does on them.

    Attributes
    ----------
    first, second : dict
        Ends by leaf (size, K).
    bend : array (m, K)
        (f(a) + f(b))/2 - f((a + b)/2), NaN where it is not defined.
    size : array (m, K)
        What it is compared with.
    """

    first: dict[Leaf, Floats]
    second: dict[Leaf, Floats]
    bend: Floats
    size: Floats

    def worst(self, kind: Kind) -> tuple[int, int] | None:
        """Return (entry, chord) that speaks most against a curvature, None if none does clearly."""
        signed = self.bend if kind == "convex" else -self.bend
        share = signed / self.size
        share = np.where(np.isfinite(share), share, np.inf)
        if not share.size or not share.min() < -1e-11:
            return None
        i, k = np.unravel_index(int(share.argmin()), share.shape)
        return int(i), int(k)


def sample(node: Node, domain: Domain, count: int, seed: int = 0) -> Sample | None:
    """Return random chords of three lengths, some along one variable or at corners.

    None for more variables than are looked at, or parts that only CVXPY evaluates.
    """
    own = scalars(node)
    if not own or len(own) > SCALARS or node.size > ENTRIES:
        return None
    rng = np.random.default_rng(seed)
    leaves = _together(node, domain)
    if sum(n.size for n in leaves) > 4 * SCALARS:
        return None
    a: dict[Leaf, Floats] = {}
    b: dict[Leaf, Floats] = {}
    length = 10.0 ** rng.uniform(-2.5, 0.0, size=count)
    single = rng.random(count) < 0.4
    only = rng.integers(sum(n.size for n in leaves), size=count)
    reach = 10.0 ** rng.uniform(-1.0, 1.5, size=count)
    at = 0
    for leaf in leaves:
        box = domain.box(leaf)
        low, high = box.low[:, None], box.high[:, None]
        shape = (leaf.size, count)
        free = np.isinf(low) & np.isinf(high)
        with np.errstate(invalid="ignore"):
            low_, high_ = (
                np.where(free, -reach, np.where(np.isinf(low), high - reach, low)),
                np.where(free, reach, np.where(np.isinf(high), low + reach, high)),
            )
        u = rng.random(shape)
        u = np.where(rng.random(shape) < 0.15, np.round(u), u)
        x = low_ + u * (high_ - low_)
        v = low_ + rng.random(shape) * (high_ - low_)
        step = (v - x) * length
        here = (only >= at) & (only < at + leaf.size)
        chosen = np.arange(leaf.size)[:, None] == (only - at)[None]
        step = np.where(single[None] & ~(here[None] & chosen), 0.0, step)
        a[leaf], b[leaf] = _rounded(x, low, high), _rounded(x + step, low, high)
        at += leaf.size
    return _bends(node, domain, a, b)


def _together(node: Node, domain: Domain) -> list[Leaf]:
    """Return the leaves of a node, and those that facts tie to them."""
    tied, before = set(node.leaves), 0
    while len(tied) > before:
        before = len(tied)
        for fact in (*domain.facts, *domain.beside):
            if fact.node.leaves & tied:
                tied |= fact.node.leaves
    return sorted(tied, key=lambda n: n.serial)


@dataclass(frozen=True, eq=False)
class _Plain:
    """Values (m, K) in floats, which only guide a search."""

    x: Floats

    def constants(self, size: int) -> _Plain:
        return _Plain(np.zeros((size, self.x.shape[1])))

    def linear(self, M: Any) -> _Plain:
        return _Plain(np.asarray(M @ self.x))

    def __add__(self, other: _Plain) -> _Plain:
        return _Plain(self.x + other.x)

    def __mul__(self, other: _Plain) -> _Plain:
        return _Plain(self.x * other.x)

    def extreme(self, args: Sequence[_Plain], largest: bool) -> _Plain:
        every = np.concatenate([a.x for a in args])
        return _Plain((np.max if largest else np.min)(every, axis=0, keepdims=True))

    def shifted(self, constant: Floats) -> _Plain:
        return _Plain(self.x + constant[:, None])

    def apply(self, function: str | Fraction) -> _Plain:
        if isinstance(function, Fraction):
            return _Plain(np.float_power(self.x, float(function)))
        if function == "xlogx":
            return _Plain(np.asarray(scipy.special.xlogy(self.x, self.x), dtype=float))
        named = {"asinh": "arcsinh", "atan": "arctan"}.get(function, function)
        return _Plain(getattr(np, named)(self.x))


def _bends(
    node: Node, domain: Domain, a: dict[Leaf, Floats], b: dict[Leaf, Floats]
) -> Sample | None:
    """Return what an entry does on those of the chords whose ends obey all facts."""
    keep = _feasible(a, domain) & _feasible(b, domain)
    if not keep.any():
        return None
    a, b = ({n: v[:, keep] for n, v in side.items()} for side in (a, b))
    middle = {n: a[n] / 2 + b[n] / 2 for n in a}
    with np.errstate(all="ignore"):
        at_three: list[Any] = [
            evaluate(node, {n: _Plain(v) for n, v in p.items() if n in node.leaves})
            for p in (a, b, middle)
        ]
        if any(f is None for f in at_three):
            return None
        fa, fb, fm = (f.x for f in at_three)
        bend = (fa + fb) / 2 - fm
        size = 1e-12 + np.maximum(np.maximum(np.abs(fa), np.abs(fb)), np.abs(fm))
        sure = np.isfinite(bend)
    return Sample(a, b, np.where(sure, bend, np.nan), size)


def _rounded(x: Floats, low: Floats, high: Floats) -> Floats:
    """Return points with few digits, so that midpoints are exact, within the box."""
    with np.errstate(over="ignore"):  # beyond short floats they stay as they are
        short = x.astype(np.float32).astype(float)
    short = np.where((short < low) | (short > high) | np.isinf(short), x, short)
    return np.asarray(np.clip(short, low, high), dtype=float)


def _feasible(point: dict[Leaf, Floats], domain: Domain) -> NDArray[np.bool_]:
    """Return which points obey all facts in floats; of bounds the box is enough."""
    keep = np.ones(next(iter(point.values())).shape[1], dtype=bool)
    for fact in (*domain.facts, *domain.beside):
        if len(scalars(fact.node)) <= 1 and affine(fact.node):
            continue
        if not fact.node.leaves <= point.keys():
            continue
        with np.errstate(all="ignore"):
            evaluated = evaluate(fact.node, {n: _Plain(point[n]) for n in fact.node.leaves})
        if evaluated is None:
            continue
        keep &= (evaluated.x <= 0.0).all(axis=0)
        if fact.zero:
            keep &= (evaluated.x >= 0.0).all(axis=0)
    return keep


def chord(
    node: Node, domain: Domain, kind: Kind, count: int = 2000, few: Sample | None = None
) -> Chord | None:
    """Search for a chord that refutes a curvature, beside those at hand, and show it exactly."""
    rounds = [few, *(sample(node, domain, count, seed) for seed in (1, 2))]
    rounds.append(_downhill(node, domain, kind))
    chords = [shown(node, domain, kind, drawn) for drawn in rounds if drawn is not None]
    return max((c for c in chords if c is not None), key=lambda c: c.gap, default=None)


def shown(node: Node, domain: Domain, kind: Kind, sample: Sample) -> Chord | None:
    """Return the chord of a sample that speaks most against a curvature, if it does exactly."""
    place = sample.worst(kind)
    if place is None:
        return None
    i, k = place
    first = {leaf: x[:, k] for leaf, x in sample.first.items()}
    return exact_chord(node, domain, kind, i, first, {n: x[:, k] for n, x in sample.second.items()})


def _downhill(node: Node, domain: Domain, kind: Kind) -> Sample | None:
    """Return chords along the directions in which the Hessian bends the wrong way."""
    places = entries(node)
    if node.size != 1 or not 1 <= len(places) <= 12:
        return None
    start = sample(node, domain, 400, 3)
    if start is None or not start.first.keys() <= node.leaves:
        return None
    at = np.array([start.first[leaf][j] for leaf, j in places])
    with np.errstate(all="ignore"):
        h = hessian_on(node, places, Interval.exactly(at))
        if h is None:
            return None
        H = np.moveaxis((h.low + h.high) / 2, 2, 0)
    good = np.isfinite(H).all(axis=(1, 2))
    if not good.any():
        return None
    size = np.abs(H[good]).max(axis=(1, 2)) + 1e-300
    sign = 1.0 if kind == "convex" else -1.0
    eigenvalues, vectors = np.linalg.eigh(sign * H[good] / size[:, None, None])
    order = np.argsort(eigenvalues[:, 0])[:20]
    if not eigenvalues[order[0], 0] < -1e-12:
        return None
    centers, directions = at[:, good][:, order], vectors[order, :, 0].T
    a: dict[Leaf, list[Floats]] = {leaf: [] for leaf, _ in places}
    b: dict[Leaf, list[Floats]] = {leaf: [] for leaf in a}
    base = {leaf: start.first[leaf][:, good][:, order] for leaf in a}
    for scale in (1e-3, 1e-2, 0.1, 1.0):
        for side, sides in ((1.0, a), (-1.0, b)):
            moved = {leaf: v.copy() for leaf, v in base.items()}
            for k, (leaf, j) in enumerate(places):
                moved[leaf][j] = centers[k] + side * scale * directions[k]
            for leaf, v in moved.items():
                box = domain.box(leaf)
                sides[leaf].append(_rounded(v, box.low[:, None], box.high[:, None]))
    first, second = ({n: np.concatenate(v, axis=1) for n, v in side.items()} for side in (a, b))
    return _bends(node, domain, first, second)


def hints_of(
    expression: Any, domain: Domain, kinds: tuple[Kind, ...], seconds: float = ALL
) -> tuple[str, ...]:
    """Return signs and bounds that would make an expression convex or concave."""
    from optfair.convexity.prove import domain_of, proved_on

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
    end = time.thread_time() + min(ALL, seconds)
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
            answer = proved_on(expression, narrower, None, min(ONE, seconds), refute=False)
        except DataError:
            continue
        if isinstance(answer, CurvatureProof) and answer.curvature in (*kinds, "affine"):
            hints.append(f"{answer.curvature} if {word}")
    late = time.thread_time() > end
    said = hints or ([] if late else _with_one_fixed(expression, domain))
    known = ["its logarithm is concave"] if not late and _log_concave(expression, domain) else []
    return (*known, *said)


def _log_concave(expression: Any, domain: Domain) -> bool:
    """Whether one number is nowhere below 0, and its logarithm is proved concave."""
    from optfair.convexity.prove import proved_on

    if expression.size != 1 or expression.is_complex() or expression.is_affine():
        return False
    try:
        if not float(domain.range(read(expression, domain).node).low.min()) >= 0.0:
            return False
        answer = proved_on(cp.log(expression), domain, None, ONE, refute=False)
    except OptfairError:
        return False
    return isinstance(answer, CurvatureProof) and answer.curvature == "concave"


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
    from optfair.convexity.search import Search

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
