"""Enclosures of derivatives over boxes: along a line up to order four, gradients, Hessians."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from optfair.convexity.expression import Call, Leaf, Node, Opaque, Product, Sum, spend
from optfair.convexity.intervals import Interval
from optfair.numbers import Floats

ORDER = 4
# Steps of an operation on enclosures of Hessians, and of each of their entries.
OPERATION, ENTRY = 6.0, 3e-3


def _number(value: Fraction | float) -> Interval:
    return Interval.fraction(Fraction(value))


def _unknown(shape: tuple[int, ...]) -> Interval:
    return Interval.of(np.full(shape, -np.inf), np.full(shape, np.inf))


def _where(good: Any, value: Interval) -> Interval:
    """Return a value where the function is smooth, and nothing where it may not be."""
    return Interval(np.where(good, value.low, -np.inf), np.where(good, value.high, np.inf))


def derivatives(function: str | Fraction, u: Interval, order: int) -> list[Interval]:
    r"""Return enclosures of :math:`\varphi^{(k)}(u)`, k = 0, ..., order (at most 4).

    Parameters
    ----------
    function : str or Fraction
        Name of an elementary function, or the exponent of a power.
    u : Interval
        Where.
    """
    one = Interval.exactly(np.ones(u.shape))
    n = _number
    if isinstance(function, Fraction):
        smooth = np.ones(u.shape, dtype=bool)
        if function.denominator != 1:
            smooth = u.low > 0.0
        elif function < 0:
            smooth = (u.low > 0.0) | (u.high < 0.0)
        out, factor = [], Fraction(1)
        for k in range(order + 1):
            term = n(factor) * u.power(function - k) if factor else one * n(0)
            out.append(term if k == 0 else _where(smooth, term))
            factor *= function - k
        return out
    if function == "exp":
        return [u.call("exp")] * (order + 1)
    if function in ("log", "xlogx"):
        r, log = u.reciprocal(), u.call("log")
        cube = r.power(Fraction(3))
        if function == "log":
            value, out = log, [r, -r.square(), n(2) * cube, n(-6) * r.power(Fraction(4))]
            defined = u.high > 0.0
        else:
            value, out = u.call("xlogx"), [log + one, r, -r.square(), n(2) * cube]
            defined = u.high >= 0.0
        # values have ranges where the function is defined, derivatives only within
        value = _where(defined, value)
        return [value, *(_where(u.low > 0.0, t) for t in out[:order])]
    if function in ("sin", "cos"):
        s, c = u.call("sin"), u.call("cos")
        return ([s, c, -s, -c, s] if function == "sin" else [c, -s, -c, s, c])[: order + 1]
    if function in ("sinh", "cosh"):
        s, c = u.call("sinh"), u.call("cosh")
        return ([s, c, s, c, s] if function == "sinh" else [c, s, c, s, c])[: order + 1]
    if function in ("tan", "tanh"):
        t = u.call(function)
        q = t.square()
        if function == "tan":
            first = one + q
            out = [n(2) * t * first, first * (n(2) + n(6) * q), t * first * (n(16) + n(24) * q)]
            smooth = np.isfinite(t.low) & np.isfinite(t.high)  # no pole is met
            return [t, *(_where(smooth, d) for d in (first, *out))][: order + 1]
        first = one - q
        out = [n(-2) * t * first, first * (n(6) * q - n(2)), t * first * (n(16) - n(24) * q)]
        return [t, first, *out][: order + 1]
    if function == "asinh":
        w, half = one + u.square(), Fraction(1, 2)
        d3 = (n(2) * u.square() - one) * w.power(-5 * half)
        d4 = u * (n(9) - n(6) * u.square()) * w.power(-7 * half)
        return [u.call("asinh"), w.power(-half), -(u * w.power(-3 * half)), d3, d4][: order + 1]
    if function == "atan":
        w, q = (one + u.square()).reciprocal(), u.square()
        d3 = (n(6) * q - n(2)) * w.power(Fraction(3))
        d4 = n(24) * u * (one - q) * w.power(Fraction(4))
        return [u.call("atan"), w, n(-2) * u * w.square(), d3, d4][: order + 1]
    if function in ("ceil", "sign"):
        return [u.call(function), *(_unknown(u.shape) for _ in range(order))]
    if function == "abs":
        smooth = (u.low > 0.0) | (u.high < 0.0)
        sign = Interval(np.where(u.low >= 0.0, 1.0, -1.0), np.where(u.high <= 0.0, -1.0, 1.0))
        zero = Interval.exactly(np.zeros(u.shape))
        return [u.absolute(), sign, *(_where(smooth, zero) for _ in range(3))][: order + 1]
    return [_unknown(u.shape) for _ in range(order + 1)]


@dataclass(frozen=True, eq=False)
class Jet:
    """Derivatives along a line, order by order: an interval array (m, order + 1, boxes)."""

    c: Interval

    def constants(self, size: int) -> Jet:
        """Return a vector of zeros, of the same order over the same boxes."""
        return Jet(_zeros(self.c, size))

    def extreme(self, args: Sequence[Jet], largest: bool) -> Jet | None:
        """Return the maximum, or minimum, of all entries of vectors; of values alone."""
        if self.c.shape[1] > 1:
            return None
        every, best = _joined([a.c for a in args], 0), np.max if largest else np.min
        return Jet(Interval(*(best(e, axis=0, keepdims=True) for e in (every.low, every.high))))

    def linear(self, M: Any) -> Jet:
        """Return M times a vector of jets."""
        return Jet(self.c.linear(M))

    def __add__(self, other: Jet) -> Jet:
        return Jet(self.c + other.c)

    def shifted(self, constant: Floats) -> Jet:
        """Return the jets plus numbers."""
        first = self.c[:, :1] + Interval.exactly(constant[:, None, None])
        return Jet(_joined([first, self.c[:, 1:]], 1))

    def __mul__(self, other: Jet) -> Jet:
        out = []
        for k in range(self.c.shape[1]):
            total = None
            for i in range(k + 1):
                term = _number(math.comb(k, i)) * self.c[:, i] * other.c[:, k - i]
                total = term if total is None else total + term
            out.append(total)
        return Jet(_stacked(out))

    def apply(self, function: str | Fraction) -> Jet:
        """Return a function of the jets: the chain rule up to order four (Faa di Bruno)."""
        order = self.c.shape[1] - 1
        phi = derivatives(function, self.c[:, 0], order)
        u = [self.c[:, k] for k in range(order + 1)]
        out, n = [phi[0]], _number
        if order >= 1:
            out.append(phi[1] * u[1])
        if order >= 2:
            out.append(phi[2] * u[1].square() + phi[1] * u[2])
        if order >= 3:
            cube = u[1].power(Fraction(3))
            out.append(phi[3] * cube + n(3) * phi[2] * u[1] * u[2] + phi[1] * u[3])
        if order >= 4:
            mixed = n(3) * u[2].square() + n(4) * u[1] * u[3]
            fourth = phi[4] * u[1].power(Fraction(4)) + n(6) * phi[3] * u[1].square() * u[2]
            out.append(fourth + phi[2] * mixed + phi[1] * u[4])
        return Jet(_stacked(out))


@dataclass(frozen=True, eq=False)
class Taylor:
    """Values (m, K), gradients (m, d, K) and, of second order, Hessians (m, d, d, K) over K boxes.

    Of first order a gradient holds all slopes where a function has a kink.
    """

    v: Interval
    g: Interval
    h: Interval | None = None

    def constants(self, size: int) -> Taylor:
        """Return a vector of zeros, of the same order over the same boxes."""
        return Taylor(*(_zeros(x, size) for x in (self.v, self.g, self.h) if x is not None))

    def extreme(self, args: Sequence[Taylor], largest: bool) -> Taylor | None:
        """Return the maximum, or minimum, of all entries, with the slopes of those that may be it."""
        if self.h is not None or self.v.shape[1] > 1:
            return None
        v, g = _joined([a.v for a in args], 0), _joined([a.g for a in args], 0)
        best = np.max if largest else np.min
        low, high = best(v.low, axis=0, keepdims=True), best(v.high, axis=0, keepdims=True)
        able = ((v.high >= low) if largest else (v.low <= high))[:, 0]
        slopes = Interval(
            g.low[able].min(axis=0, keepdims=True), g.high[able].max(axis=0, keepdims=True)
        )
        return Taylor(Interval.of(low, high), slopes)

    def linear(self, M: Any) -> Taylor:
        """Return M times a vector."""
        h = None if self.h is None else self.h.linear(M)
        return Taylor(self.v.linear(M), self.g.linear(M), h)

    def __add__(self, other: Taylor) -> Taylor:
        h = None if self.h is None or other.h is None else self.h + other.h
        return Taylor(self.v + other.v, self.g + other.g, h)

    def shifted(self, constant: Floats) -> Taylor:
        """Return the vector plus numbers."""
        return Taylor(self.v + Interval.exactly(constant[:, None]), self.g, self.h)

    def __mul__(self, other: Taylor) -> Taylor:
        a, b = self.v[:, None], other.v[:, None]
        v, g = self.v * other.v, a * other.g + b * self.g
        if self.h is None or other.h is None:
            return Taylor(v, g)
        spend(OPERATION + ENTRY * self.h.low.size)
        cross = self.g[:, :, None] * other.g[:, None] + other.g[:, :, None] * self.g[:, None]
        return Taylor(v, g, a[:, :, None] * other.h + b[:, :, None] * self.h + cross)

    def apply(self, function: str | Fraction) -> Taylor:
        """Return a function of the vector."""
        phi = derivatives(function, self.v, 1 if self.h is None else 2)
        g = phi[1][:, None] * self.g
        if self.h is None:
            return Taylor(phi[0], g)
        spend(OPERATION + ENTRY * self.h.low.size)
        outer = self.g[:, :, None] * self.g[:, None]
        square = self.g.square()
        low, high = outer.low.copy(), outer.high.copy()
        d = np.arange(self.g.shape[1])
        low[:, d, d], high[:, d, d] = square.low, square.high
        h = phi[1][:, None, None] * self.h + phi[2][:, None, None] * Interval(low, high)
        return Taylor(phi[0], g, h)


def gradient_at(
    node: Node, point: Mapping[Leaf, Floats]
) -> tuple[Interval, dict[Leaf, Interval]] | None:
    """Return enclosures of a vector (m,) and of its derivatives (m, size) by each leaf at a point."""
    total = sum(leaf.size for leaf in point)
    leaves, start = {}, 0
    for leaf, x in (point or {Leaf("nothing", "nothing", 0): np.zeros(0)}).items():
        g = np.zeros((leaf.size, total, 1))
        g[np.arange(leaf.size), start + np.arange(leaf.size), 0] = 1.0
        leaves[leaf] = Taylor(Interval.exactly(x[:, None]), Interval.exactly(g))
        start += leaf.size
    evaluated = evaluate(node, leaves)
    if evaluated is None:
        return None
    out, start = {}, 0
    for leaf in point:
        out[leaf] = evaluated.g[:, start : start + leaf.size, 0]
        start += leaf.size
    return evaluated.v[:, 0], out


def _stacked(parts: Sequence[Any]) -> Interval:
    shape = np.broadcast_shapes(*(p.shape for p in parts))
    return Interval(
        np.stack([np.broadcast_to(p.low, shape) for p in parts], axis=1),
        np.stack([np.broadcast_to(p.high, shape) for p in parts], axis=1),
    )


def _joined(parts: Sequence[Interval], axis: int) -> Interval:
    return Interval(
        *(np.concatenate([getattr(p, e) for p in parts], axis) for e in ("low", "high"))
    )


def _zeros(template: Interval, size: int) -> Interval:
    return Interval.exactly(np.zeros((size, *template.shape[1:])))


def evaluate(node: Node, leaves: Mapping[Leaf, Any], known: dict[Node, Any] | None = None) -> Any:
    """Return a node in jets or Hessians, from those of its leaves; None for opaque parts."""
    known = {} if known is None else known
    if node in known:
        return known[node]
    spend(2.0 if isinstance(node, Call | Product) else 0.5)
    out: Any = None
    if isinstance(node, Leaf):
        out = leaves.get(node)
    elif isinstance(node, Sum):
        for M, n in node.parts:
            inner = evaluate(n, leaves, known)
            if inner is None:
                return None
            part = inner.linear(M)
            out = part if out is None else out + part
        if out is None:
            some = next(iter(leaves.values()), None)
            if some is None:
                return None
            out = some.constants(node.size)
        if node.constant.any():
            out = out.shifted(node.constant)
    elif isinstance(node, Product):
        for n, a in node.factors:
            inner = evaluate(n, leaves, known)
            if inner is None:
                return None
            power = inner if a == 1 else inner.apply(a)
            out = power if out is None else out * power
    elif isinstance(node, Call) and node.function.startswith("of all: "):
        args = [evaluate(n, leaves, known) for n in node.args]
        if all(a is not None for a in args):
            out = args[0].extreme(args, node.function.endswith("maximum"))
    elif isinstance(node, Call):
        inner = evaluate(node.args[0], leaves, known)
        out = None if inner is None else inner.apply(node.function)
    elif isinstance(node, Opaque):
        return None
    known[node] = out
    return out


def jet_on(node: Node, entry: tuple[Leaf, int], x: Interval, order: int = ORDER) -> Interval | None:
    """Return derivatives (order + 1, K) of a scalar in one entry over K intervals."""
    leaf, j = entry
    low = np.zeros((leaf.size, order + 1, x.low.size))
    high = low.copy()
    low[j, 0], high[j, 0] = x.low, x.high
    low[j, 1] = high[j, 1] = 1.0
    evaluated = evaluate(node, {leaf: Jet(Interval(low, high))})
    out: Interval | None = None if evaluated is None else evaluated.c[0]
    return out


def second_derivative(node: Node, entry: tuple[Leaf, int], x: Interval) -> Interval | None:
    """Return enclosures of the second derivative of a scalar in one entry.

    The natural enclosure, met with Taylor expansions about both ends and a point between.
    """
    with np.errstate(invalid="ignore"):
        middle = np.where((x.low < 0.0) & (x.high > 0.0), 0.0, x.low + (x.high - x.low) / 2)
    centers = (x.low, x.high, np.clip(middle, x.low, x.high))
    together = Interval(np.concatenate([x.low, *centers]), np.concatenate([x.high, *centers]))
    jets = jet_on(node, entry, together)
    if jets is None:
        return None
    k = x.low.size
    over = jets[:, :k]
    bend = over[2]
    for i, center in enumerate(centers):
        at = jets[:, (i + 1) * k : (i + 2) * k]
        step = x - Interval.exactly(center)
        short = at[2] + over[3] * step
        long = at[2] + at[3] * step + _number(0.5) * over[4] * step.square()
        bend = bend.meet(long).meet(short)
    return bend


def values_over(
    node: Node, entries: Sequence[tuple[Leaf, int]], boxes: Interval
) -> Interval | None:
    r"""Return enclosures (m, K) of a node over K boxes (d, K): natural, and about the middle c.

    .. math:: f(c) + f'(X)(X - c), \qquad f(c) + f'(c)(X - c) + \tfrac12 (X - c)^T f''(X) (X - c)
    """
    middle = boxes.middle()
    count = boxes.shape[1]
    both = Interval(np.hstack([boxes.low, middle]), np.hstack([boxes.high, middle]))
    evaluated = evaluate(node, _leaves_over(entries, both))
    if evaluated is None:
        return None
    over, at = evaluated.v[:, :count], evaluated.v[:, count:]
    step = boxes - Interval.exactly(middle)
    slope, there = evaluated.g[..., :count] * step[None], evaluated.g[..., count:] * step[None]
    total, second = at, at
    for i in range(len(entries)):
        total, second = total + slope[:, i], second + there[:, i]
        for j in range(i, len(entries)):
            square = step[i].square() if i == j else step[i] * step[j]
            own = evaluated.h[:, i, j, :count] * square[None]
            second = second + (own * _number(0.5) if i == j else own)
    met: Interval = over.meet(total).meet(second)
    return met


def hessian_on(node: Node, entries: Sequence[tuple[Leaf, int]], boxes: Interval) -> Interval | None:
    """Return Hessians (d, d, K) of a scalar over K boxes (d, K) of some entries."""
    evaluated = evaluate(node, _leaves_over(entries, boxes))
    if evaluated is None:
        return None
    h: Interval = evaluated.h[0]
    # both triangles enclose the same numbers
    return h.meet(Interval(np.swapaxes(h.low, 0, 1), np.swapaxes(h.high, 0, 1)))


def _leaves_over(entries: Sequence[tuple[Leaf, int]], boxes: Interval) -> dict[Leaf, Taylor]:
    """Return leaves as functions of some of their entries, over boxes of these."""
    d, count = boxes.shape
    leaves: dict[Leaf, Taylor] = {}
    for leaf in dict.fromkeys(leaf for leaf, _ in entries):
        low, high = np.zeros((leaf.size, count)), np.zeros((leaf.size, count))
        slope = np.zeros((leaf.size, d, count))
        for k, (other, j) in enumerate(entries):
            if other is leaf:
                low[j], high[j], slope[j, k] = boxes.low[k], boxes.high[k], 1.0
        zero = Interval.exactly(np.zeros((leaf.size, d, d, count)))
        leaves[leaf] = Taylor(Interval(low, high), Interval.exactly(slope), zero)
    return leaves


def definite(h: Interval) -> Any:
    """Return where all symmetric matrices within (d, d, K) are positive semidefinite: elimination."""
    d = h.shape[0]
    low, high = h.low.copy(), h.high.copy()
    good = np.ones(h.shape[2:], dtype=bool)
    for k in range(d):
        pivot = Interval(low[k, k], high[k, k])
        row = Interval(low[k, k + 1 :], high[k, k + 1 :])
        empty = (row.low == 0.0).all(axis=0) & (row.high == 0.0).all(axis=0)
        good &= (pivot.low > 0.0) | ((pivot.low >= 0.0) & empty)
        if k + 1 == d:
            break
        safe = Interval(
            np.where(good & ~empty, pivot.low, 1.0), np.where(good & ~empty, pivot.high, 1.0)
        )
        ratio = row * safe.reciprocal()[None]
        for i in range(d - k - 1):
            spend((d - k - 1 - i) * (1.0 + ENTRY * ratio.low.shape[-1]))
            for j in range(i, d - k - 1):
                product = row[i].square() * safe.reciprocal() if i == j else ratio[i] * row[j]
                at = (k + 1 + i, k + 1 + j)
                own = Interval(low[at], high[at]) - product
                low[at], high[at] = own.low, own.high
                low[at[::-1]], high[at[::-1]] = own.low, own.high
    return good & np.isfinite(low).all(axis=(0, 1))


def slopes_along(
    node: Node, boxes: Mapping[Leaf, Interval], ways: Mapping[Leaf, Floats]
) -> tuple[Interval, Interval] | None:
    """Return enclosures of a node's entries and of their slopes along a direction.

    Parameters
    ----------
    node : Node
        What is enclosed.
    boxes : mapping
        Where every leaf lies.
    ways : mapping
        Steps of the entries of leaves; leaves that are not named stay.
    """
    leaves = {}
    for other, box in boxes.items():
        steps = np.reshape(ways.get(other, np.zeros(other.size)), (other.size, 1, 1))
        leaves[other] = Taylor(box[:, None], Interval.exactly(steps))
    evaluated = evaluate(node, leaves)
    return None if evaluated is None else (evaluated.v, evaluated.g)
