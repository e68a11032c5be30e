"""Chords that refute curvature, and points within a domain: shown by enclosures, nothing is searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.convexity.derivatives import Jet, evaluate
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Leaf, Node, select
from optfair.convexity.intervals import Interval
from optfair.convexity.rules import Kind
from optfair.numbers import Floats


@dataclass(frozen=True, eq=False)
class Chord:
    """Two points whose midpoint refutes convexity, or concavity, of one entry.

    Attributes
    ----------
    kind : {"convex", "concave"}
        What is refuted.
    first, second : dict
        Values of whole leaves at both ends; the midpoint is exact.
    entry : int
        The entry it is about.
    ends, middle : tuple of float
        Enclosures of the mean of both values and of the value between.
    """

    kind: Kind
    first: dict[Leaf, Floats]
    second: dict[Leaf, Floats]
    entry: int
    ends: tuple[float, float]
    middle: tuple[float, float]

    @property
    def gap(self) -> float:
        """By how much at least the value in the middle is on the wrong side."""
        if self.kind == "convex":
            return self.middle[0] - self.ends[1]
        return self.ends[0] - self.middle[1]

    def recomputed(self, node: Node, domain: Domain) -> Chord | None:
        """Return the chord with values computed anew, None where an end is not within."""
        return exact_chord(node, domain, self.kind, self.entry, self.first, self.second)


def values(node: Node, leaves: dict[Leaf, Interval]) -> Interval | None:
    """Return enclosures (m, K) of a node from those of its leaves (size, K)."""
    jets = {leaf: Jet(x[:, None]) for leaf, x in leaves.items()}
    if not jets:
        return None
    with np.errstate(all="ignore"):
        found = evaluate(node, jets)
    return None if found is None else found.c[:, 0]


def obeyed(
    point: Mapping[Leaf, Any], domain: Domain, count: int, *, beside: bool = True
) -> NDArray[np.bool_]:
    """Return which points (size, K) obey all facts, as enclosures show."""
    keep = np.ones(count, dtype=bool)
    for fact in (*domain.facts, *(domain.beside if beside else ())):
        if not fact.node.leaves <= point.keys():
            continue
        found = values(fact.node, {n: Interval.exactly(point[n]) for n in fact.node.leaves})
        if found is None:
            return np.zeros(count, dtype=bool)
        keep &= (found.high <= 0.0).all(axis=0)
        if fact.zero:
            keep &= (found.low >= 0.0).all(axis=0)
    return keep


def within(point: dict[Leaf, Floats], domain: Domain) -> bool:
    """Return whether a point of some leaves obeys, exactly, all facts about these alone."""
    for leaf, x in point.items():
        box = domain.box(leaf)
        if not ((box.low <= x) & (x <= box.high)).all():
            return False
    shaped = {n: x[:, None] for n, x in point.items()}
    return bool(obeyed(shaped, domain, 1, beside=False).all())


def exact_chord(
    node: Node,
    domain: Domain,
    kind: Kind,
    entry: int,
    first: dict[Leaf, Floats],
    second: dict[Leaf, Floats],
) -> Chord | None:
    """Return a chord whose gap is proved, by enclosures at three exact points."""
    three = {}  # both ends and the middle, as columns
    for leaf, a in first.items():
        b, box = second[leaf], domain.box(leaf)
        if not (
            ((box.low <= a) & (a <= box.high)).all() and ((box.low <= b) & (b <= box.high)).all()
        ):
            return None
        both = Interval.exactly(a / 2) + Interval.exactly(b / 2)
        # where the midpoint is no float, an enclosure of it
        three[leaf] = Interval(np.stack([a, b, both.low], 1), np.stack([a, b, both.high], 1))
    ends_only = {leaf: x.low[:, :2] for leaf, x in three.items()}
    if not obeyed(ends_only, domain, 2).all():
        return None
    scalar = select(node, [entry])
    found = values(scalar, {leaf: x for leaf, x in three.items() if leaf in scalar.leaves})
    if found is None:
        return None
    fa, fb, fm = (found[0][k] for k in range(3))
    mean = (fa + fb) * Interval.exactly(0.5)
    ends = (float(mean.low.item()), float(mean.high.item()))
    inside = (float(fm.low.item()), float(fm.high.item()))
    out = Chord(kind, first, second, entry, ends, inside)
    return out if np.isfinite(ends).all() and np.isfinite(inside).all() and out.gap > 0.0 else None
