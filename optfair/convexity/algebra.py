"""Simplification that keeps the value: products, powers and functions in the normal form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from optfair.convexity.domain import Domain
from optfair.convexity.expression import (
    Call,
    Factor,
    Leaf,
    Node,
    Product,
    Sum,
    affine,
    constant,
    constant_value,
    diagonal,
    diagonal_only,
    linear,
    matrix,
    raw_call,
    raw_product,
    select,
)
from optfair.convexity.intervals import Interval, exact_product


class Algebra:
    """Builds nodes that equal what they are built from wherever that is defined.

    A step that needs a sign takes it from the domain: x^a x^b is x^(a+b), and sqrt(x^2) is x,
    where the range of x allows it and nowhere else.

    Parameters
    ----------
    domain : Domain
        Where nodes are looked at.

    Attributes
    ----------
    factors : dict
        Products -> their sign and their factors without signs, as `rules.signed_factors` remembers.
    """

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.factors: dict[Node, tuple[float, list[Factor]] | None] = {}

    def nonnegative(self, node: Node) -> bool:
        """Whether no entry can be negative."""
        return bool((self.domain.range(node).low >= 0.0).all())

    def nonpositive(self, node: Node) -> bool:
        """Whether no entry can be positive."""
        return bool((self.domain.range(node).high <= 0.0).all())

    def positive(self, node: Node) -> bool:
        """Whether every entry is positive, by its range or as it is written."""
        return bool((self.domain.range(node).low > 0.0).all()) or is_written_positive(node)

    def never_least(self, node: Node) -> bool:
        """Whether a scalar is nowhere as low as its range, which ends where something is infinite.

        As 1/f and exp f, which are positive however large f is or however far below 0.
        """
        low = float(self.domain.range(node).low.min())
        if not np.isfinite(low) or node.size != 1:
            return False
        if isinstance(node, Sum):
            return any(
                c > 0.0 and part is not node and self.never_least(part)
                for M, n in node.parts
                for j, c in zip(M.indices.tolist(), M.data.tolist(), strict=True)
                for part in [select(n, [j])]
            )
        if isinstance(node, Product):
            signed = all(
                self.nonnegative(n) and (p < 0 or self.positive(n)) for n, p in node.factors
            )
            return low == 0.0 and signed
        if isinstance(node, Call) and node.function in ("exp", "log"):
            return (node.function == "exp" and low == 0.0) or self.never_least(node.args[0])
        return False

    def signed(self, node: Node) -> tuple[float, Node] | None:
        """Return 1 and a node, or -1 and its negative, whichever is not negative; None of neither."""
        if self.nonnegative(node):
            return 1.0, node
        return (-1.0, self.scaled(-1.0, node)) if self.nonpositive(node) else None

    def cancels(self, node: Node) -> bool:
        """Whether the set where a node is not 0 is convex, so that a cancelled 1/node is no loss."""
        r = self.domain.range(node)
        if bool((r.low > 0.0).all()) or bool((r.high < 0.0).all()):
            return True
        return affine(node) and (self.nonnegative(node) or self.nonpositive(node))

    # --- sums ----------------------------------------------------------------------------------

    def scaled(self, factor: Any, node: Node) -> Node:
        """Return a number, or one for each entry, times a node."""
        c = np.broadcast_to(np.asarray(factor, dtype=float), node.size)
        return linear([(diagonal(c), node)], np.zeros(node.size))

    def total(self, nodes: Iterable[Node], signs: Iterable[float] | None = None) -> Node:
        """Return the sum of nodes of one size."""
        given = list(nodes)
        factors = [1.0] * len(given) if signs is None else list(signs)
        n = given[0].size
        return linear(
            [(diagonal(np.full(n, c)), g) for c, g in zip(factors, given, strict=True)], np.zeros(n)
        )

    # --- products ------------------------------------------------------------------------------

    def product(self, factors: Iterable[Factor]) -> Node:
        """Return the entrywise product of powers of nodes of one size."""
        queue = [(n, Fraction(a)) for n, a in factors if a != 0]
        if not queue:
            raise ValueError("a product of nothing has no size")
        size = queue[0][0].size
        coefficient = np.ones(size)
        kept: list[Factor] = []
        exponents: list[Node] = []
        normal: set[Node] = set()
        while queue:
            node, a = queue.pop(0)
            if a == 0:
                continue
            split = None if node in normal else self._split(node, a)
            if split is None:
                if isinstance(node, Call) and node.function == "exp" and _is_float(a):
                    exponents.append(self.scaled(float(a), node.args[0]))
                else:
                    self._merge(kept, node, a)
                continue
            number, rest = split
            if number is not None:
                p, e = exact_product(coefficient, number)
                if (e != 0.0).any():
                    self._merge(kept, constant(number), Fraction(1))
                else:
                    coefficient = np.asarray(p)
            if isinstance(node, Sum):  # what a sum was normalised to stays
                normal |= {
                    n for n, _ in rest if isinstance(n, Sum) and len(n.parts) == len(node.parts)
                }
            queue = [*rest, *queue]
        if exponents:
            together = self.total(exponents)
            value = constant_value(together)
            if value is None or value.any():
                kept.append((raw_call("exp", [together], size), Fraction(1)))
        kept = _with_sizes([(n, a) for n, a in kept if a])
        if not kept:
            return constant(coefficient)
        node = raw_product(kept)
        return node if (coefficient == 1.0).all() else self.scaled(coefficient, node)

    def _merge(self, kept: list[Factor], node: Node, a: Fraction) -> None:
        for k, (other, b) in enumerate(kept):
            if other is node and self._mergeable(node, a, b):
                kept[k] = (node, a + b)
                return
        kept.append((node, a))

    def _mergeable(self, node: Node, a: Fraction, b: Fraction) -> bool:
        whole = a.denominator == b.denominator == 1
        same = (a > 0) == (b > 0)
        if same and (whole or self.nonnegative(node)):
            return True
        # x^a x^-b: where x^-b is defined must stay convex, and fractional powers need x >= 0
        return self.cancels(node) and (whole or self.nonnegative(node))

    def _split(self, node: Node, a: Fraction) -> tuple[Any, list[Factor]] | None:
        """Return (numbers, factors) that node**a equals, None when it stays as it is."""
        whole = a.denominator == 1
        value = constant_value(node)
        if value is not None:
            if a == 1:
                return value, []
            if whole and (value != 0.0).all():
                power = _exact_power(value, int(a))
                if power is not None:
                    return power, []
            return None
        if isinstance(node, Product):
            return self._split_product(node, a)
        if isinstance(node, Call) and node.function == "abs" and whole and int(a) % 2 == 0:
            return None, [(node.args[0], a)]
        if isinstance(node, Sum):
            return self._split_sum(node, a)
        return None

    def _split_product(self, node: Product, a: Fraction) -> tuple[Any, list[Factor]] | None:
        whole = a.denominator == 1
        if a < 0 and any(b < 0 and not self.cancels(n) for n, b in node.factors):
            return None
        if whole or all(self.nonnegative(n) for n, _ in node.factors):
            return None, [(n, b * a) for n, b in node.factors]
        if len(node.factors) == 1:
            n, b = node.factors[0]
            if b.denominator == 1 and int(b) % 2 == 0 and b > 0:
                return None, [(self.call("abs", [n], n.size), b * a)]
            return None
        outside = [(n, b * a) for n, b in node.factors if self.positive(n)]
        inside = [(n, b) for n, b in node.factors if not self.positive(n)]
        if not outside or not inside:
            return None
        return None, [*outside, (raw_product(inside), a)]

    def _split_sum(self, node: Sum, a: Fraction) -> tuple[Any, list[Factor]] | None:
        whole = a.denominator == 1
        if len(node.parts) == 1 and not node.constant.any():
            M, inner = node.parts[0]
            if M.nnz == M.shape[0] and (np.diff(M.indptr) == 1).all():
                c = M.data
                if not (whole or (c > 0.0).all()):
                    return None
                if (c == 1.0).all() and isinstance(inner, Leaf):
                    return None
                rest = _picked(M, inner)
                if rest is node:
                    return None
                if a == 1:
                    return c, [(rest, a)]
                power = _exact_power(c, int(a)) if whole else None
                if power is None and (c == 1.0).all():
                    power = c
                if power is not None:
                    return power, [(rest, a)]
                if (c > 0.0).all():
                    return None, [(constant(c), a), (rest, a)]
                if whole:
                    sign = np.where(c < 0.0, (-1.0) ** (int(a) % 2), 1.0)
                    return sign, [(constant(np.abs(c)), a), (rest, a)]
                return None
        if whole and node.parts:
            lead = _lead(node)
            flip = self.nonpositive(node) or (lead < 0.0 and not self.nonnegative(node))
            size = float(np.exp2(np.floor(np.log2(abs(lead)))))
            factor = (-1.0 if flip else 1.0) / size
            if factor == 1.0 or not 1e-30 < size < 1e30:
                return None
            power = _exact_power(np.full(node.size, 1.0 / factor), int(a))
            if power is None:
                return None
            return power, [(self.scaled(factor, node), a)]
        return None

    # --- functions -----------------------------------------------------------------------------

    def call(self, name: str, args: Sequence[Node], size: int) -> Node:
        """Return a function of nodes, simplified."""
        if name == "abs":
            return self._absolute(args[0])
        if name == "exp":
            return self._exponential(args[0])
        if name == "log":
            inner = args[0]
            if isinstance(inner, Call) and inner.function == "exp":
                return inner.args[0]
            extreme = isinstance(inner, Call) and inner.function.startswith("of all: ")
            if extreme and isinstance(inner, Call) and all(map(self.positive, inner.args)):
                logs = [self.call("log", [n], n.size) for n in inner.args]
                return raw_call(inner.function, logs, size)
            value = constant_value(inner)
            if value is not None and (value == 1.0).all():
                return constant(np.zeros(size))
        if name in ("sin", "tan", "sinh", "tanh", "asinh", "atan", "cos", "cosh"):
            inner, sign = self._without_sign(args[0])
            if sign < 0.0:
                flipped = raw_call(name, [inner], size)
                return flipped if name in ("cos", "cosh") else self.scaled(-1.0, flipped)
        return raw_call(name, args, size)

    def _without_sign(self, node: Node) -> tuple[Node, float]:
        """Return a node or its negative, whichever begins with a positive coefficient."""
        if isinstance(node, Sum) and node.parts and _lead(node) < 0.0:
            return self.scaled(-1.0, node), -1.0
        return node, 1.0

    def _absolute(self, node: Node) -> Node:
        if (signed := self.signed(node)) is not None:
            return signed[1]
        if isinstance(node, Sum) and len(node.parts) == 1 and not node.constant.any():
            M, inner = node.parts[0]
            if (np.diff(M.indptr) == 1).all() and not (M.data == 1.0).all():
                c = np.abs(M.data)
                rest = _picked(M, inner)
                return self.scaled(c, self._absolute(rest))
        if isinstance(node, Sum) and node.parts:  # in the unit that powers of sums have
            unit = float(np.exp2(np.floor(np.log2(abs(_lead(node))))))
            if unit != 1.0 and 1e-30 < unit < 1e30:
                return self.scaled(unit, self._absolute(self.scaled(1.0 / unit, node)))
        inner, _ = self._without_sign(node)
        if isinstance(inner, Product):
            # |x y| = |x| |y|; a power of even exponent has no sign
            outside = [(n, a) for n, a in inner.factors if self.nonnegative(raw_product([(n, a)]))]
            inside = [(n, a) for n, a in inner.factors if (n, a) not in outside]
            if all(a.denominator == 1 for _, a in inside) and (
                outside or len(inside) > 1 or inside[0][1] != 1
            ):
                return self.product([*outside, *((self._absolute(n), a) for n, a in inside)])
        return raw_call("abs", [inner], node.size)

    def _exponential(self, node: Node) -> Node:
        value = constant_value(node)
        if value is not None and not value.any():
            return constant(np.ones(node.size))
        if isinstance(node, Call) and node.function == "log" and self._defined(node.args[0]):
            return node.args[0]
        if isinstance(node, Sum):
            factors: list[Factor] = []
            rest = []
            for M, inner in node.parts:
                if (
                    diagonal_only(M)
                    and (M.data == M.data[0]).all()
                    and isinstance(inner, Call)
                    and inner.function == "log"
                    and self._defined(inner.args[0])
                ):
                    factors.append((inner.args[0], Fraction(float(M.data[0]))))
                else:
                    rest.append((M, inner))
            if factors:
                left = linear(rest, node.constant)
                return self.product([*factors, (self._exponential(left), Fraction(1))])
        return raw_call("exp", [node], node.size)

    def _defined(self, node: Node) -> bool:
        """Whether exp(log f) may be written f: f > 0 where this matters stays convex."""
        return self.positive(node) or (affine(node) and self.nonnegative(node))


def _with_sizes(factors: list[Factor]) -> list[Factor]:
    """Return factors in which x^2k |x|^a is |x|^(2k + a)."""
    out = list(factors)
    for n, a in factors:
        if isinstance(n, Call) and n.function == "abs" and a > 0:
            even = next(
                (
                    (m, b)
                    for m, b in out
                    if m is n.args[0] and b > 0 and b.denominator == 1 and b % 2 == 0
                ),
                None,
            )
            if even is not None:
                out = [f for f in out if f not in ((n, a), even)] + [(n, a + even[1])]
    return out


def _lead(node: Sum) -> float:
    """Return the first of the largest coefficients, by which a sum is normalised."""
    every = np.concatenate([M.data for M, _ in node.parts])
    return float(every[int(np.abs(every).argmax())])


def _is_float(a: Fraction) -> bool:
    return Fraction(float(a)) == a


def is_written_positive(node: Node) -> bool:
    """Whether a node is positive as it is written: exponentials, added up and multiplied."""
    if isinstance(node, Call):
        extreme = node.function.startswith("of all: ") and all(map(is_written_positive, node.args))
        return node.function == "exp" or extreme
    if isinstance(node, Sum):
        signs = all((M.data > 0.0).all() and is_written_positive(n) for M, n in node.parts)
        rows = sum((np.diff(M.indptr) for M, _ in node.parts), node.constant > 0.0)
        return signs and bool((node.constant >= 0.0).all() and np.all(rows))
    return isinstance(node, Product) and all(is_written_positive(n) for n, _ in node.factors)


def _exact_power(value: Any, n: int) -> Any:
    """Return value**n where floats hold it exactly, else None."""
    if abs(n) > 64:
        return None
    power = np.ones(value.shape)
    for _ in range(abs(n)):
        power, e = exact_product(power, value)
        if (e != 0.0).any():
            return None
    if n >= 0:
        return power
    inverse = 1.0 / power
    p, e = exact_product(inverse, power)
    return inverse if (p == 1.0).all() and (e == 0.0).all() else None


def _picked(M: Any, inner: Node) -> Node:
    """Return the entries of an expression that a matrix with one number a row picks."""
    ones = sp.csr_array((np.ones(M.nnz), M.indices, M.indptr), M.shape)
    return linear([(matrix(ones), inner)], np.zeros(M.nnz))


# --- entries as terms ------------------------------------------------------------------------------

Term = tuple[float, Node]


def terms_of(node: Node) -> list[Term]:
    """Return an entry as coefficients and entries of nodes, a number with the node 1."""
    if not isinstance(node, Sum):
        return [(1.0, node)]
    out: list[Term] = [(float(c), ONE) for c in node.constant if c]
    for M, n in node.parts:
        out += [
            (float(c), select(n, [j]))
            for c, j in zip(M.data.tolist(), M.indices.tolist(), strict=True)
        ]
    return out


ONE: Node = constant([1.0])


def added(terms: list[Term], a: Algebra) -> Node:
    """Return the sum of terms."""
    return a.total([n for _, n in terms], [c for c, _ in terms]) if terms else constant([0.0])


def sides_of(
    node: Node, a: Algebra, *, positive: bool = False
) -> tuple[list[Term], list[Term]] | None:
    """Return P and N, sums of what is not negative, with node = P - N.

    Of positive variables, products of sums of no known sign are multiplied out, and one function of
    no known sign is taken for N where there is a P: P <= N asks for that sign.
    """
    sides, unknown = (list[Term](), list[Term]()), list[Term]()
    for c, n in _multiplied(terms_of(node), a) if positive else terms_of(node):
        sign, part = a.signed(n) or (0.0, n)
        (sides[sign * c < 0.0] if sign else unknown).append((abs(c) if sign else -c, part))
    if not unknown:
        return sides
    alone = positive and sides[0] and not sides[1] and len(unknown) == 1 and unknown[0][0] > 0.0
    return (sides[0], unknown) if alone else None


def _multiplied(terms: list[Term], a: Algebra, depth: int = 3) -> list[Term]:
    """Return terms with products of a sum multiplied out where no sign is known and nothing is rounded."""
    out: list[Term] = []
    for c, n in terms:
        factors = factors_of(n) if depth and a.signed(n) is None else []
        sums = (k for k, (b, p) in enumerate(factors) if p == 1 and len(terms_of(b)) > 1)
        at = next(sums, -1)
        within = terms_of(factors[at][0]) if at >= 0 and len(factors) > 1 else []
        rest = [f for k, f in enumerate(factors) if k != at]
        numbers = [Fraction(c) * Fraction(d) for d, _ in within]
        if within and all(abs(v) < 1e300 and float(v) == v for v in numbers):
            parts = [(c * d, a.product([*rest, (m, Fraction(1))])) for d, m in within]
            out += _multiplied(parts, a, depth - 1)
        else:
            out.append((c, n))
    return out


def logarithm_of(terms: list[Term], a: Algebra, up: bool) -> Node:
    """Return log of a sum, of one product as a sum; that of a number is rounded up or down."""
    if len(terms) > 1:
        return a.call("log", [added(terms, a)], 1)
    ((c, n),) = terms
    value = Interval.exactly(np.array([c])).call("log")
    shift = constant(value.high if up else value.low)
    if n is ONE:
        return shift
    signed = ((b, p, p % 2 == 0 and a.nonpositive(b)) for b, p in factors_of(n))
    factors = [(a.scaled(-1.0, b) if turned else b, p) for b, p, turned in signed]
    whole = all(a.nonnegative(b) and Fraction(float(p)) == p for b, p in factors)
    if not whole:  # log(x y) and log(x^2) are defined where log x is not
        return a.total([shift, a.call("log", [n], 1)])
    parts = [(a.call("log", [b], 1), p) for b, p in factors]
    return a.total([shift, *(b for b, _ in parts)], [1.0, *(float(p) for _, p in parts)])


def positive_somewhere(terms: list[Term], a: Algebra) -> bool:
    """Whether a sum of what is not negative is positive wherever it is defined."""
    return any(
        n is ONE or all(a.positive(b) or (p < 0 and a.nonnegative(b)) for b, p in factors_of(n))
        for _, n in terms
    )


def factors_of(n: Node) -> list[Factor]:
    """Return the factors of a product, of anything else itself."""
    return list(n.factors) if isinstance(n, Product) else [(n, Fraction(1))]


def root_of(terms: list[Term], r: Fraction, a: Algebra, up: bool) -> Node:
    """Return a root of a sum, or of one product; that of its number is rounded up or down."""
    c, n = terms[0] if len(terms) == 1 else (1.0, added(terms, a))
    value = Interval.exactly(np.array([c])).power(r)
    factor = value.high if up else value.low
    return constant(factor) if n is ONE else a.scaled(factor, a.product([(n, r)]))
