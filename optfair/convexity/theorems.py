"""Rules that look at a whole expression: quadratics, ratios, perspectives, exact rewritings."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from optfair.convexity.algebra import Algebra
from optfair.convexity.derivatives import Taylor, evaluate, jet_on
from optfair.convexity.expression import (
    Call,
    Leaf,
    Node,
    Opaque,
    Product,
    Sum,
    affine,
    constant,
    diagonal,
    diagonal_only,
    linear,
    raw_call,
    raw_product,
    rebuilt,
    scalars,
    select,
    subnodes,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.polynomials import Polynomial, expand, expanded, from_monomials, multiplied
from optfair.convexity.powers import definite_matrix
from optfair.convexity.rules import Goal, Kind, along, rule, signed_factors

# --- sums taken apart ------------------------------------------------------------------------------


def grouped(node: Node, *, joined: bool) -> list[Node]:
    """Return the terms of a sum by the variables they have, without the affine ones.

    Parameters
    ----------
    node : Node
        One of several entries, or that is no sum, has no such terms.
    joined : bool
        Whether terms that share a variable belong together, or only those of the same variables.
    """
    groups: list[tuple[set[Any], list[Any]]] = []
    for M, n in node.parts if isinstance(node, Sum) and node.size == 1 else ():
        if affine(n) or not n.leaves:
            continue
        own = set(scalars(select(n, np.unique(M.indices))))
        if joined:
            same = [g for g in groups if g[0] & own]
            merged = (
                set().union(own, *(g[0] for g in same)),
                [p for g in same for p in g[1]] + [(M, n)],
            )
            groups = [g for g in groups if g not in same] + [merged]
        else:
            place = next((g for g in groups if g[0] == own), None)
            if place is None:
                groups.append((own, [(M, n)]))
            else:
                place[1].append((M, n))
    return [linear(parts, np.zeros(1)) for _, parts in groups]


@rule(
    "blocks without common variables",
    "a sum of convex functions of different variables",
    "exp(x) - x*x/2 + y*y | x>=0, x<=3",
)
def _blocks(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    parts = grouped(node, joined=True)
    return [Goal(n, kind) for n in parts] if parts and parts[0] is not node else None


@rule(
    "terms of the same variables",
    "a sum of convex functions, each of all terms with the same variables",
    "exp(x) - x*x/2 + square(x + y) | x>=0, x<=3",
)
def _same_variables(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    parts = grouped(node, joined=False)
    if len(parts) <= 1 or len(parts) == sum(not affine(n) for n in node.below):
        return None
    return [Goal(n, kind) for n in parts]


def of_entries(node: Node, stand_ins: dict[Node, Leaf]) -> Node | None:
    """Return f where every entry of a vector is f of that entry of the affine vectors it is made of.

    None where entries differ, by coefficients or in form.

    Parameters
    ----------
    node : Node
        The vector.
    stand_ins : dict
        Affine vectors -> what stands for an entry of them in f; added to.
    """
    if affine(node) and node.leaves:
        return stand_ins.setdefault(node, Leaf(("entry of", node), f"[{node!r}]"[:40], 1))
    if isinstance(node, Product):
        factors = [(of_entries(n, stand_ins), p) for n, p in node.factors]
        return None if any(n is None for n, _ in factors) else raw_product(factors)  # type: ignore[arg-type]
    if isinstance(node, Call) and len(node.args) == 1 and node.args[0].size == node.size:
        inner = of_entries(node.args[0], stand_ins)
        grouped = node.function.startswith("of all: ")
        return None if inner is None or grouped else raw_call(node.function, [inner], 1)
    if not isinstance(node, Sum) or (node.constant != node.constant[0]).any():
        return None
    parts = list[tuple[Any, Node]]()
    for M, n in node.parts:
        alike = diagonal_only(M) and (M.data == M.data[0]).all()
        if (inner := of_entries(n, stand_ins) if alike else None) is None:
            return None
        parts.append((M.data[:1, None], inner))
    return linear(parts, node.constant[:1])


@rule(
    "one function of each entry",
    "a vector of f(a_i'x + b_i) is convex when f is, wherever these lie",
    "sum(log(1 + v*v)) | v>=-0.9, v<=0.9 | v=20",
)
def _each_entry(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if node.size == 1 or affine(node):
        return None
    stand_ins = dict[Node, Leaf]()
    f, boxes = of_entries(node, stand_ins), list[tuple[Leaf, Interval]]()
    for u, leaf in stand_ins.items():
        r = a.domain.range(u)
        boxes.append((leaf, Interval(r.low.min(keepdims=True), r.high.max(keepdims=True))))
    return [Goal(f, kind, tuple(boxes))] if f is not None and f.leaves else None


@rule(
    "multiplied out",
    "products of sums, written term by term",
    "square(sqrt(x) - sqrt(y)) | x>=0.1, y>=0.1",
)
def _expanded(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if node.size != 1 and isinstance(node, Product):
        out = _distributed(node, a)
        return None if out is None or out is node else [Goal(out, kind)]
    if node.size != 1 or not isinstance(node, (Sum, Product)):
        return None
    terms = expanded(node, lambda n: a.nonnegative(n) and a.cancels(n))
    out = None if terms is None else from_monomials(terms, a)
    return None if out is None or out is node else [Goal(out, kind)]


def _distributed(node: Product, a: Algebra) -> Node | None:
    """Return a product with a sum, entry by entry, as the sum of the products."""
    sums = [n for n, p in node.factors if p == 1 and isinstance(n, Sum) and not affine(n)]
    others = [(n, p) for n, p in node.factors if n not in sums]
    if len(sums) != 1 or not others or not all(diagonal_only(M) for M, _ in sums[0].parts):
        return None
    parts = [(M, a.product([(n, Fraction(1)), *others])) for M, n in sums[0].parts]
    offset = (diagonal(sums[0].constant), a.product(others))
    return linear([*parts, offset], np.zeros(node.size))


@rule(
    "fraction turned over",
    "f/(sum of g_i) = 1/(sum of g_i/f) for f > 0",
    "x*y*z/(x*y + y*z + x*z) | x>=0.5, y>=0.5, z>=0.5",
)
def _turned_over(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Product) or node.size != 1:
        return None
    below = [n for n, p in node.factors if p == -1 and isinstance(n, Sum) and not affine(n)]
    above = [(n, -p) for n, p in node.factors if p != -1 or n not in below]
    if len(below) != 1 or not above or not all(affine(n) and a.positive(n) for n, _ in above):
        return None
    total = below[0]
    parts: list[Any] = [
        (np.array([[c]]), a.product([(select(n, [j]), Fraction(1)), *above]))
        for M, n in total.parts
        for j, c in zip(M.indices.tolist(), M.data.tolist(), strict=True)
    ]
    if total.constant.any():
        parts.append((total.constant[None], a.product(above)))
    return [Goal(a.product([(linear(parts, np.zeros(1)), Fraction(-1))]), kind)]


@rule(
    "logarithms collected",
    "f log g - f log h = f log(g/h) for g, h > 0",
    "x*log(x) - x*log(y) | x>=0.1, y>=0.1",
)
def _collected(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Sum) or node.size != 1:
        return None
    kept: list[Any] = []
    by_front: dict[tuple[Node, float], list[tuple[Node, Any]]] = {}
    for M, n in node.parts:
        pairs = n.factors if isinstance(n, Product) and n.size == 1 else ()
        logarithms = [m for m, p in pairs if isinstance(m, Call) and m.function == "log" and p == 1]
        inner = logarithms[0].args[0] if len(logarithms) == 1 else None
        if inner is not None and (a.positive(inner) or affine(inner)):
            front = raw_product([f for f in pairs if not (f[1] == 1 and f[0] is logarithms[0])])
            c = float(M.data[0])
            by_front.setdefault((front, abs(c)), []).append((inner, np.sign(c)))
        else:
            kept.append((M, n))
    if not any(len(logs) > 1 for logs in by_front.values()):
        return None
    for (front, c), logs in by_front.items():
        inside = a.product([(m, Fraction(int(s))) for m, s in logs])
        term = a.product([(front, Fraction(1)), (a.call("log", [inside], 1), Fraction(1))])
        kept.append((np.array([[c]]), term))
    return [Goal(linear(kept, node.constant), kind)]


# --- perspectives and substitutions ----------------------------------------------------------------


def perspective_of(node: Node, w: Node, a: Algebra) -> tuple[Node, list[tuple[Leaf, Node]]] | None:
    """Return h and what its leaves stand for, with node = w h(u_1/w, ...); None where it is not that."""
    if not isinstance(node, Product) or not affine(w) or not w.leaves:
        return None
    own = [p for n, p in node.factors if n is w]
    if own != [Fraction(1)]:
        return None
    leaves: dict[Node, Leaf] = {}

    @functools.cache
    def ratios(n: Node) -> Node | None:
        if not n.leaves:
            return n
        if isinstance(n, (Leaf, Opaque)):
            return None
        if isinstance(n, Sum):
            parts = [(M, ratios(m)) for M, m in n.parts]
            if any(m is None for _, m in parts):
                return None
            return linear([(M, m) for M, m in parts if m is not None], n.constant)
        if isinstance(n, Call):
            args = [ratios(m) for m in n.args]
            if any(m is None for m in args):
                return None
            return a.call(n.function, [m for m in args if m is not None], n.size)
        if not isinstance(n, Product):
            return None
        factors: list[tuple[Node, Fraction]] = []
        at = next((k for k, (m, _) in enumerate(n.factors) if m is w), None)
        if at is not None:
            e = n.factors[at][1]
            partners = [
                k for k, (m, p) in enumerate(n.factors) if k != at and p == -e and affine(m)
            ]
            # rather one that varies than a number, and 1 where there is none
            varying = (k for k in partners if n.factors[k][0].leaves)
            partner = next(varying, partners[0] if partners else at)
            u = n.factors[partner][0] if partners else constant(np.ones(w.size))
            if u not in leaves:
                leaves[u] = Leaf(("ratio", u, w), f"t{len(leaves)}", u.size)
            # (u/w)^a = u^a w^-a where the powers are defined: w > 0, and u^a stands already
            factors.append((leaves[u], -e))
            others = [f for k, f in enumerate(n.factors) if k not in (at, partner)]
        else:
            others = list(n.factors)
        for m, p in others:
            new = ratios(m)
            if new is None:
                return None
            factors.append((new, p))
        return raw_product(factors) if len({f[0] for f in factors}) == len(factors) else None

    rest = [(n, p) for n, p in node.factors if n is not w]
    h = ratios(raw_product(rest)) if rest else None
    if h is None or not leaves:
        return None
    pairs = [(leaf, u) for u, leaf in leaves.items()]
    # simplified where the ratios lie
    domain = a.domain.extended(boxes=_quotients(pairs, w, a))
    return rebuilt(h, Algebra(domain), {}), pairs


def _quotients(pairs: Sequence[tuple[Leaf, Node]], w: Node, a: Algebra) -> dict[Leaf, Interval]:
    """Return where the u/w lie that leaves stand for."""
    one = Fraction(1)
    return {leaf: a.domain.range(raw_product([(u, one), (w, -one)])) for leaf, u in pairs}


@rule(
    "perspective",
    "w h(u/w) is convex for u, w affine, w > 0, h convex",
    "x*log(x/y) | x>=0.1, y>=0.1",
)
def _perspective(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(data, Node) or not a.nonnegative(data):
        return None
    parts = perspective_of(node, data, a)
    if parts is None:
        return None
    h, leaves = parts
    return [Goal(h, kind, tuple(_quotients(leaves, data, a).items()))]


def abstracted(node: Node, u: Node, a: Algebra) -> tuple[Node, Leaf, Interval]:
    """Return node with a leaf in place of the part u, and where that leaf lies."""
    leaf = Leaf(("part", u), f"[{u!r}]"[:40], u.size)
    box = a.domain.range(u)
    algebra = Algebra(a.domain.extended(boxes={leaf: box}))
    known: dict[Node, Node] = {u: leaf}
    if isinstance(u, Call) and u.function == "abs":
        # even powers of x are powers of |x|
        for n in list(subnodes(node)):
            pairs = n.factors if isinstance(n, Product) else ()
            even = [m is u.args[0] and p.denominator == 1 and p % 2 == 0 for m, p in pairs]
            if any(even):
                swapped = [
                    (leaf if own else rebuilt(m, algebra, dict(known)), p)
                    for (m, p), own in zip(pairs, even, strict=True)
                ]
                known[n] = algebra.product(swapped)
    return rebuilt(node, algebra, known), leaf, box


@rule(
    "composition",
    "h(u, x) is convex for h convex, and nondecreasing in u for u convex, nonincreasing for u concave, whichever for u affine",
    "abs(x) - log(1 + abs(x))",
)
def _composition(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(data, tuple) or len(data) != 2 or data[0].size != 1 or node.size != 1:
        return None
    u, way = data
    if u is node:
        return None
    h, leaf, box = abstracted(node, u, a)
    if leaf not in h.leaves:
        return None
    first = Goal(h, kind, ((leaf, box),))
    if way == "affine":
        return [first] if affine(u) else None
    if way not in ("up", "down"):
        return None
    # a convex h rises from its left end on if it rises there, and falls up to its right end
    at_low = (way == "up") == (kind == "convex")
    end = box.low if at_low else box.high
    fixed = Interval.exactly(end) if np.isfinite(end).all() else box
    slope = _slope(h, leaf, fixed, a)
    if slope is None:
        return None
    if not ((slope.low >= 0.0).all() if way == "up" else (slope.high <= 0.0).all()):
        return None
    return [first, Goal(u, along(kind, 1.0 if way == "up" else -1.0))]


@rule(
    "shifted variables",
    "h(x + c) is convex for h convex",
    "(x - y)*log((x + 1)/(y + 1)) | x>=0, x<=4, y>=0, y<=4",
)
def _shifted(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if node.size != 1 or not isinstance(data, tuple) or not data:
        return None
    known: dict[Node, Node] = {}
    boxes: list[tuple[Leaf, Interval]] = []
    for leaf, shift in data:
        c = np.array(shift, dtype=float)
        if leaf not in node.leaves or c.shape != (leaf.size,) or not np.isfinite(c).all():
            return None
        moved = Leaf(("shifted", leaf, shift), f"[{leaf.name} + c]", leaf.size, leaf.shape)
        known[leaf] = linear([(diagonal(np.ones(leaf.size)), moved)], -c)
        boxes.append((moved, a.domain.range(shifted(leaf, shift))))
    h = rebuilt(node, Algebra(a.domain.extended(boxes=dict(boxes))), known)
    return [Goal(h, kind, tuple(boxes))]


def shifted(leaf: Leaf, shift: Sequence[float]) -> Node:
    """Return a leaf with a number added to each of its entries."""
    return linear([(diagonal(np.ones(leaf.size)), leaf)], np.array(shift, dtype=float))


def _slope(h: Node, leaf: Leaf, box: Interval, a: Algebra) -> Interval | None:
    """Return enclosures of the derivative with respect to a leaf of one entry."""
    leaves = {}
    for other in h.leaves:
        inside = box if other is leaf else a.domain.box(other)
        g = np.full((other.size, 1, 1), 1.0 if other is leaf else 0.0)
        leaves[other] = Taylor(inside[:, None], Interval.exactly(g))
    evaluated = evaluate(h, leaves)
    return None if evaluated is None else evaluated.g[0]


@rule(
    "product of monotone functions",
    "f g is convex for f, g of one variable, convex, >= 0, both nondecreasing or both nonincreasing",
    "x*sinh(x) | x>=0, x<=20",
)
def _monotone_product(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Product) or node.size != 1 or len(scalars(node)) != 1:
        return None
    signed = signed_factors(node, kind, a)
    if signed is None or signed[0] != "convex" or len(signed[1]) < 2:
        return None
    ((leaf, j),) = scalars(node)
    parts = [raw_product([f]) for f in signed[1]]
    box = a.domain.box(leaf)[j : j + 1]
    for up in (True, False):
        end = box.low if up else box.high
        if not np.isfinite(end).all():
            continue
        slopes = [_entry_slope(n, (leaf, j), end) for n in parts]
        if all(s is not None and (s.low >= 0.0 if up else s.high <= 0.0).all() for s in slopes):
            return [Goal(n, "convex") for n in parts]
    return None


def _entry_slope(node: Node, entry: tuple[Leaf, int], at: Any) -> Interval | None:
    jet = jet_on(node, entry, Interval.exactly(at), 1)
    return None if jet is None else jet[1]


@rule(
    "inverse of a 2 by 2 matrix",
    "(c p^2 - 2 b p q + a q^2)/(a c - b^2) = [p q] inv([[a, b], [b, c]]) [p q]' for a > 0 and a positive determinant, all affine",
    "(y*u*u - 2*z*u*w + x*w*w)/(x*y - z*z) | x>=1, y>=1, z<=0.5, z>=-0.5",
)
def _matrix_fraction(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if node.size != 1 or not isinstance(data, tuple) or len(data) != 6:
        return None
    c, data = data[5], data[:5]
    if not all(map(affine, data)) or not isinstance(c, Fraction) or (c > 0) != (kind == "convex"):
        return None
    p, q, x, z, y = (expand(n) for n in data)
    adj = _combined([(c, [y, p, p]), (-2 * c, [z, p, q]), (c, [x, q, q])])
    return [] if _over_determinant(node, data[2:], adj, a) else None


def _over_determinant(node: Node, matrix: tuple[Node, ...], above: Polynomial, a: Algebra) -> bool:
    """Whether a node is a polynomial over x y - z^2 of a matrix [[x, z], [z, y]] that is positive."""
    if not isinstance(node, Product):
        return False
    below = [n for n, p in node.factors if p == -1]
    rest = [(n, p) for n, p in node.factors if p != -1]
    if len(below) != 1 or any(p < 0 for _, p in rest):
        return False
    x, z, y = map(expand, matrix)
    if expand(below[0]) != _combined([(1, [x, y]), (-1, [z, z])]):
        return False
    if (expand(raw_product(rest)) if rest else {(): Fraction(1)}) != above:
        return False
    return a.positive(matrix[0]) and a.nonnegative(below[0])


@rule(
    "weighted trace of a 2 by 2 inverse",
    "(u c - 2 v b + w a)/(a c - b^2) = tr(W inv([[a, b], [b, c]])) for W = [[u, v], [v, w]] positive semidefinite, a > 0 and a positive determinant",
    "(x + y)/(x*y - z*z) | x>=1, y>=1, z<=0.5, z>=-0.5",
)
def _trace_inverse(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if node.size != 1 or not isinstance(data, tuple) or len(data) != 6 or isinstance(data[3], Node):
        return None
    (u, v, w), matrix = data[3:], data[:3]
    if not all(map(affine, matrix)) or not definite_matrix([[u, v], [v, w]], kind):
        return None
    x, z, y = map(expand, matrix)
    above = _combined([(u, [y]), (-2 * v, [z]), (w, [x])])
    return [] if _over_determinant(node, matrix, above, a) else None


def _combined(terms: Sequence[tuple[Fraction | int, list[Polynomial]]]) -> Polynomial:
    total: Polynomial = {}
    for c, factors in terms:
        product: Polynomial = {(): Fraction(c)}
        for f in factors:
            product = multiplied(product, f)
        for m, k in product.items():
            total[m] = total.get(m, Fraction(0)) + k
    return {m: k for m, k in total.items() if k}
