"""Quasiconvex functions: convex rows that are theirs, and what is minimised in their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Literal

import numpy as np

from optfair.convexity.algebra import (
    ONE,
    Algebra,
    Term,
    added,
    factors_of,
    logarithm_of,
    positive_somewhere,
    root_of,
    sides_of,
    terms_of,
)
from optfair.convexity.expression import (
    Call,
    Exhausted,
    Node,
    Product,
    Sum,
    affine,
    constant,
    limited,
    opaque,
    raw_call,
    select,
    stacked,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.rules import Kind
from optfair.convexity.search import Search
from optfair.convexity.writing import sublevel_of

Way = Literal["itself", "logarithm", "level"]

# Increasing functions, and of those that have one their inverses, in exact arithmetic.
INVERSES = {"exp": "log", "log": "exp", "sinh": "asinh", "asinh": "sinh"}
INCREASING = {*INVERSES, "ceil", "tanh", "atan"}
# Increasing functions of one another that are taken off an objective.
DEPTH = 3
# Largest denominator of exponents of a product that logarithms add up.
SIMPLE = 64
# Steps for one proof.
PROOF = 500


# --- increasing functions ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Increasing:
    r"""An increasing function :math:`c\,\varphi(v) + d`, or :math:`-c\,\varphi(-v) + d` where it is turned.

    Attributes
    ----------
    function : str
        :math:`\varphi`: by name, "power" of what is not negative, or "" for v itself.
    exponent : Fraction
        Of a power, above 0.
    turned : bool
        Whether it is turned: so a decreasing function of v grows with -v.
    c, d : float
        The former above 0.
    """

    function: str = ""
    exponent: Fraction = Fraction(1)
    turned: bool = False
    c: float = 1.0
    d: float = 0.0

    def of(self, v: Interval) -> Interval:
        """Return its values on an interval."""
        inner = -v if self.turned else v
        if self.function == "power":
            inner = Interval(np.maximum(inner.low, 0.0), np.maximum(inner.high, 0.0))
            inner = inner.power(self.exponent)
        elif self.function:
            inner = inner.call(self.function)
        inner = (-inner if self.turned else inner).scaled(np.array(self.c))
        return inner + Interval.exactly(np.array(self.d))

    def inverse(self, value: Interval) -> Interval | None:
        """Return where it has these values, None where they are none of its values, or it has no inverse."""
        inner = (value - Interval.exactly(np.array(self.d))) / Interval.exactly(np.array(self.c))
        inner = -inner if self.turned else inner
        if self.function == "power" and inner.low >= 0.0:
            inner = inner.power(1 / self.exponent)
        elif self.function in INVERSES and (self.function != "exp" or inner.low > 0.0):
            inner = inner.call(INVERSES[self.function])
        elif self.function:
            return None
        return -inner if self.turned else inner

    def most(self) -> float | None:
        """Return how large v is at most where its value is at most 0, rounded up; None where it is not known."""
        at = self.inverse(Interval.exactly(np.array(0.0)))
        return None if at is None or not np.isfinite(at.high) else float(at.high)


def increasing(node: Node, a: Algebra) -> Iterator[tuple[Increasing, Node]]:
    """Yield an increasing function and a node, such that a function of one entry is that of the node.

    Nothing is lost of where it is defined: what may not be negative is not, wherever a is.
    """
    terms = terms_of(node)
    numbers, own = [c for c, n in terms if n is ONE], [t for t in terms if t[1] is not ONE]
    if not own or len(numbers) > 1 or node.size != 1:
        return
    (c, n), d = own[0], sum(numbers)
    if len(own) > 1:
        logs = [
            (n.args[0], Fraction(c)) for c, n in own if isinstance(n, Call) and n.function == "log"
        ]
        simple = all(p.denominator <= SIMPLE and a.nonnegative(f) for f, p in logs)
        if len(logs) == len(own) and simple:
            yield Increasing("log", d=d), a.product(logs)
        return
    for function, p, inner in _outermost(n, a):
        turned = c < 0.0
        yield Increasing(function, p, turned, abs(c), d), a.scaled(-1.0, inner) if turned else inner


def _outermost(n: Node, a: Algebra) -> Iterator[tuple[str, Fraction, Node]]:
    one = Fraction(1)
    if isinstance(n, Call) and n.function in INCREASING:
        if n.function != "log" or a.nonnegative(n.args[0]):
            yield n.function, one, n.args[0]
    elif isinstance(n, Call) and n.function.startswith("of all: "):
        inner = [m for m in n.args if isinstance(m, Call)]
        names = {m.function for m in inner}
        if len(inner) == len(n.args) and len(names) == 1 and names <= INCREASING:
            args = [m.args[0] for m in inner]  # the order of several is kept
            if names != {"log"} or all(map(a.nonnegative, args)):
                yield names.pop(), one, raw_call(n.function, args, 1)
    elif isinstance(n, Product) and all(a.nonnegative(b) for b, _ in n.factors):
        roots = [abs(p) for _, p in n.factors]
        if len(n.factors) == 1:  # a norm before the sum of squares that it is the root of
            inside = (p for _, m in terms_of(n.factors[0][0]) for _, p in factors_of(m) if p > 1)
            roots = [*(roots[0] * p for p in sorted(set(inside), reverse=True)), *roots]
        for p in roots:
            if p != 1:
                yield "power", p, a.product([(b, q / p) for b, q in n.factors])


def within(goal: Node, a: Algebra, depth: int = DEPTH) -> Iterator[tuple[Outer, Node]]:
    """Yield what is minimised where an increasing function of it is to be, the outermost first."""
    for core, d in without_number(goal, a):
        yield (Increasing(d=d),) if d else (), core
    for outer, inner in increasing(goal, a) if depth else ():
        for others, core in within(inner, a, depth - 1):
            yield (outer, *others), core


Outer = tuple[Increasing, ...]


def outward(outer: Outer, value: Interval) -> Interval:
    """Return the values of increasing functions of one another, the last one first."""
    for each in reversed(outer):
        value = each.of(value)
    return value


def inward(outer: Outer, value: float) -> float | None:
    """Return where increasing functions of one another have a value, rounded; None where they have no inverse."""
    at: Interval | None = Interval.exactly(np.array(value))
    for each in outer:
        at = None if at is None else each.inverse(at)
    return None if at is None else float(at.low)


def invertible(outer: Outer) -> bool:
    """Whether each of them has an inverse."""
    return all(each.function in {"", "power", *INVERSES} for each in outer)


# --- objectives --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """How an objective is minimised.

    Attributes
    ----------
    way : {"itself", "logarithm", "level"}
        What is minimised of the core: it, its logarithm, or by levels.
    goal : (Node, Node)
        The objective before and after; of levels p and q.
    sense : {"minimize", "maximize"}
        Whether the core f > 0 is minimised or maximised where the logarithm is taken of it, or of 1/f.
    outer : tuple of Increasing
        What the objective is of the core.
    most : float
        Below which levels are convex.
    """

    way: Way
    goal: tuple[Node, Node]
    sense: str
    outer: Outer = ()
    most: float = np.inf


# To minimise -f is to maximise f: the declared sense first.
SENSES = {"minimize": ("minimize", "maximize"), "maximize": ("maximize", "minimize")}


def minimised(goal: Node, stated: Algebra, a: Algebra, declared: str) -> Choice | None:
    """Return how an objective is minimised that is not convex itself, None where no way is known.

    Parameters
    ----------
    goal : Node
        The objective, of one entry.
    stated, a : Algebra
        On what is stated, where signs hold whatever is left out, and with what functions demand.
    declared : {"minimize", "maximize"}
        The sense as declared.
    """
    for outer, core in within(goal, stated):
        if any(f.function for f in outer) and proved(core, a):
            return Choice("itself", (goal, core), declared, outer)
        for sense in SENSES[declared]:
            log = log_of_objective(core, a, sense)
            if log is not None and proved(log, a):
                return Choice("logarithm", (goal, log), sense, outer)
        levels = ratio(core, a) if sublevel_of(core, 0.0) is None else (core, core)
        if levels is not None and invertible(outer):
            return Choice("level", levels, declared, outer)
    for outer, core in within(goal, stated):
        levels = ratio(core, a, negative=True) if invertible(outer) else None
        if levels is not None:
            return Choice("level", levels, declared, outer, 0.0)
    return None


def proved(node: Node, a: Algebra, kind: Kind = "convex") -> bool:
    """Whether a node is known to be convex, or concave, after a few steps."""
    if affine(node):
        return True
    try:
        with limited(PROOF):
            return Search(a.domain, np.inf).prove(node, kind) is not None
    except Exhausted:
        return False


def without_number(goal: Node, a: Algebra) -> list[tuple[Node, float]]:
    """Return the objective without the number that is added to it, and that; and as it is."""
    terms = terms_of(goal)
    numbers = [c for c, n in terms if n is ONE]
    rest = [(c, n) for c, n in terms if n is not ONE]
    whole = [(goal, 0.0)]
    return [(added(rest, a), numbers[0]), *whole] if len(numbers) == 1 and rest else whole


def log_of_objective(goal: Node, a: Algebra, sense: str) -> Node | None:
    """Return log f of what is minimised, or -log f of what is maximised, where f > 0."""
    sign = 1.0 if sense == "minimize" else -1.0
    sides = sides_of(goal if sign > 0.0 else a.scaled(-1.0, goal), a)
    if sides is None or sides[1] or not sides[0]:
        return None
    if sign > 0.0 and not positive_somewhere(sides[0], a):
        return None  # 0 is the least value, and has no logarithm
    return a.scaled(sign, logarithm_of(sides[0], a, sign < 0.0))


def _largest(goal: Node, a: Algebra) -> list[Node]:
    """Return the functions whose largest entry it is: c max(f, d), and -c min(f, d) with c > 0."""
    (c, n), *others = terms_of(goal) or [(0.0, ONE)]
    word = "of all: maximum" if c > 0.0 else "of all: minimum"
    if others or goal.size != 1 or not (isinstance(n, Call) and n.function == word):
        return []
    return [a.scaled(c, f) for f in n.args]


def ratio(goal: Node, a: Algebra, *, negative: bool = False) -> tuple[Node, Node] | None:
    """Return p and q > 0 with f = p/q whose levels are convex: p - t q, for every level that f has.

    Or for every one below 0, if no more is asked for.
    """
    if each := _largest(goal, a):
        known = list[tuple[Node, Node]]()
        for n in each:  # ratios of one form are one; a search for what is not there takes long
            whole = None if isinstance(n, Sum) and n.size > 1 else ratio(n, a)  # sums mix entries
            for f in [] if whole else [select(n, [i]) for i in range(n.size)]:
                pair = ratio(f, a) or ((f, ONE) if proved(f, a) else None)
                if pair is None:
                    return None
                known.append(pair)
            known += [whole] if whole else []
        return stacked([p for p, _ in known]), stacked([q for _, q in known])
    for q in denominators(goal, a):
        p = cleared(terms_of(goal), q, a)
        if not proved(p, a):
            continue
        above = a.nonnegative(p) and proved(q, a, "concave")
        if affine(q) or above or ((negative or a.nonpositive(p)) and proved(q, a)):
            return p, q
    return None


# --- rows --------------------------------------------------------------------------------------------


def each_of_largest(node: Node, a: Algebra) -> list[Node]:
    """Return functions that are all at most 0 where a function of one entry is: of a largest entry, all of them."""
    terms = terms_of(node)
    for k, (c, n) in enumerate(terms):
        word = "of all: maximum" if c > 0.0 else "of all: minimum"
        if isinstance(n, Call) and n.function == word:
            rest = [t for i, t in enumerate(terms) if i != k]
            own = [select(f, [i]) for f in n.args for i in range(f.size)]
            every = (added([*rest, (c, f)], a) for f in own)
            return list(chain.from_iterable(each_of_largest(f, a) for f in every))
    return [node]


def denominators(node: Node, a: Algebra) -> list[Node]:
    """Return what terms are divided by, as functions that are not negative."""
    positive: dict[Node, None] = {}
    for _, n in terms_of(node):
        below = [(b, -p) for b, p in factors_of(n) if p < 0 and b.leaves]
        for b, p in below:
            if (signed := a.signed(b)) is not None:
                positive[a.product([(signed[1], p)])] = None
    return list(positive)


def _times(terms: list[Term], q: Node, a: Algebra) -> Node:
    one = Fraction(1)
    return added([(c, a.product([(n, one), (q, one)])) for c, n in terms], a)


def cleared(terms: list[Term], q: Node, a: Algebra) -> Node:
    """Return terms times what some are divided by, as it is where they are defined: q is not 0 there."""
    below = {(n, -p) for n, p in factors_of(q)}
    parts = []
    for c, n in terms:
        rest = [f for f in factors_of(n) if f not in below]
        whole = len(rest) + len(below) == len(factors_of(n))
        if whole:
            parts.append((c, a.product(rest) if rest else ONE))
        else:
            parts.append((c, a.product([(n, Fraction(1)), (q, Fraction(1))])))
    return added(parts, a)


def rewritten(node: Node, a: Algebra, depth: int = 2) -> Iterator[Node]:
    """Yield functions that are at most 0 wherever a function of one entry is, and nowhere else.

    But where what it is divided by is 0. Numbers are rounded so that no point is lost.
    """
    yield node
    if depth == 0:
        return
    for outer, inner in increasing(node, a):
        if (most := outer.most()) is not None:
            yield from rewritten(a.total([inner, constant(most)], [1.0, -1.0]), a, depth - 1)
    for q in denominators(node, a):
        ways = _times(terms_of(node), q, a), cleared(terms_of(node), q, a)
        for way in dict.fromkeys(ways):
            yield from rewritten(way, a, depth - 1)
    sides = sides_of(node, a)
    if sides is None or not sides[0] or len(sides[1]) != 1:
        return
    P, N = sides
    degree = sum((p for _, p in factors_of(N[0][1])), Fraction(0))
    if (r := 1 / max(degree, Fraction(1))) < 1 and N[0][1] is not ONE:
        yield a.total([root_of(P, r, a, False), root_of(N, r, a, True)], [1.0, -1.0])
    if len(P) == 1:
        exponents = {p for _, n in (*P, *N) for _, p in factors_of(n)}
        for r in sorted({1 / abs(p) for p in exponents if p} - {Fraction(1)}):
            root = a.total([root_of(P, r, a, False), root_of(N, r, a, True)], [1.0, -1.0])
            yield from rewritten(root, a, depth - 1)
    if positive_somewhere(P, a):  # 0 <= 0 holds, and has no logarithms
        yield a.total([logarithm_of(P, a, False), logarithm_of(N, a, True)], [1.0, -1.0])


def convex_rows(rows: Sequence[Node], a: Algebra) -> list[Node] | None:
    """Return convex functions that are at most 0 where each row is: the way of the last one first."""
    after, last = list[Node](), 0
    for node in rows:
        below = sublevel_of(node, 0.0)
        ways = rewritten(node, a) if below is None else [opaque(below, node.leaves)]
        every = list(dict.fromkeys(ways))
        order = sorted(range(len(every)), key=lambda k: (k != last, k))
        k = next((k for k in order if proved(every[k], a)), None)
        if k is None:
            return None
        after.append(every[k])
        last = k
    return after
