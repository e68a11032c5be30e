"""A proved function as a picture: with one chord, which it keeps to one side of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.convexity.domain import IMPLIED, Domain, Fact
from optfair.convexity.expression import Leaf, text
from optfair.convexity.intervals import Interval
from optfair.convexity.proof import CurvatureProof, values
from optfair.convexity.reading import demanded, leaf_of
from optfair.core.expressions import Evaluator
from optfair.errors import DataError
from optfair.numbers import Floats
from optfair.plots import draw_chords, new_axes, plain, tidy

# Chords that are tried, places at which a function is drawn, and how far free variables go.
TRIED, PLACES, REACH = 300, 161, 3.0


def draw_proved(proof: CurvatureProof, ax: Any = None) -> Any:
    """Draw a proved function with one chord; over its variable where that is one number."""
    node, expression = proof.step.node, proof.expression
    domain = proof.domain.extended(demanded(expression, Domain()))
    variables = {leaf_of(v): v for v in expression.variables()}
    evaluator = Evaluator(expression, {v.id: str(v.id) for v in variables.values()})

    def along(points: Mapping[Leaf, Floats]) -> Floats:
        """Return the first entry at points (size, K), NaN where it is not defined."""
        each = {
            str(v.id): points[leaf].reshape((*v.shape, -1), order="F")
            for leaf, v in variables.items()
        }
        count = next(iter(each.values())).shape[-1]
        at = [evaluator.value({i: x[..., k] for i, x in each.items()}) for k in range(count)]
        first = np.array([f.ravel(order="F")[0] for f in at], dtype=float)
        return np.where(np.isfinite(first), first, np.nan)

    needed = (*proof.rests_on, IMPLIED)  # without the other facts it is what it is as well
    facts = [f for f in (*domain.facts, *domain.beside) if f.name in needed]
    chord = _typical(variables, domain, facts, proof.curvature, along)
    if chord is None:
        raise DataError(
            f"no chord of {text(node, 60)!r} is met where it is defined",
            remedy="state bounds, such as x >= 1, within which it is to be drawn",
        )
    ax, said = new_axes(ax, 6.4, 4.8), str(proof)
    tidy(ax, plain(said[0].upper() + said[1:], 60), f"f = {plain(text(node, 90), 75)}")
    t, leaf, graph = np.linspace(0.0, 1.0, PLACES), next(iter(chord)), None
    points = {n: a[:, None] * (1 - t) + b[:, None] * t for n, (a, b) in chord.items()}
    f, place = along(points), t
    if len(chord) == 1 and leaf.size == 1:
        place, inside = points[leaf][0], domain.range(leaf)
        low, high = np.sort(place[[0, -1]])
        room = (high - low) / 3
        low, high = max(low - room, inside.low.min()), min(high + room, inside.high.max())
        x = np.linspace(low, high, 3 * PLACES)
        graph = (x, along({leaf: x[None]}), leaf.name)
    gap = abs((f[0] + f[-1]) / 2 - f[PLACES // 2])
    side = {"convex": "below", "concave": "above"}.get(proof.curvature)
    words = f"f is {gap:.3g} {side} the middle of this chord; it is never on the other side"
    draw_chords(ax, [(place, f, words if side else "f is this chord")], graph)
    return ax


def _typical(
    variables: Mapping[Leaf, Any],
    domain: Domain,
    facts: Sequence[Fact],
    curvature: str,
    along: Callable[[Mapping[Leaf, Floats]], Floats],
) -> dict[Leaf, tuple[Floats, Floats]] | None:
    """Return the ends of a long chord that shows a curvature well, None where none is met."""
    if not variables:
        return None
    rng = np.random.default_rng(0)
    a, b = ({n: _drawn(n, v, domain, rng) for n, v in variables.items()} for _ in range(2))
    keep = _within(a, facts) & _within(b, facts)
    if not keep.any():
        return None
    a, b = ({n: x[:, keep] for n, x in side.items()} for side in (a, b))
    fa, fb, fm = along(a), along(b), along({n: (a[n] + b[n]) / 2 for n in a})
    size = np.abs([fa, fb, fm]).max(axis=0) + 1e-12
    sign = {"convex": 1.0, "concave": -1.0}.get(curvature, 0.0)
    bend = sign * ((fa + fb) / 2 - fm) / size
    bend = np.where(np.isfinite(bend), bend, -np.inf)
    if not np.isfinite(bend.max()):
        return None
    length = np.max([np.abs(a[n] - b[n]).max(axis=0) for n in a], axis=0)
    k = int(np.where(bend >= bend.max() / 2, length, -1.0).argmax())
    return {n: (a[n][:, k], b[n][:, k]) for n in a}


def _drawn(leaf: Leaf, variable: Any, domain: Domain, rng: np.random.Generator) -> Floats:
    """Return points (size, K) in the box of a leaf: symmetric, semidefinite, as its variable is."""
    box = domain.box(leaf)
    low, high = box.low[:, None], box.high[:, None]
    least = np.where(np.isfinite(low), low, np.minimum(-REACH, high - REACH))
    most = np.where(np.isfinite(high), high, np.maximum(REACH, low + REACH))
    x = least + rng.random((leaf.size, TRIED)) * (most - least)
    each = (variable.project(c.reshape(variable.shape, order="F")) for c in x.T)
    return np.array([np.asarray(one).ravel(order="F") for one in each], dtype=float).T


def _within(points: Mapping[Leaf, Floats], facts: Sequence[Fact]) -> NDArray[np.bool_]:
    """Return which points obey the facts that are about them."""
    keep = np.ones(TRIED, dtype=bool)
    for fact in facts:
        if fact.node.leaves <= points.keys():
            at = values(fact.node, {n: Interval.exactly(points[n]) for n in fact.node.leaves})
            if at is not None:
                keep &= ((at.low <= 0.0) & ((at.high >= 0.0) | (not fact.zero))).all(axis=0)
    return keep
