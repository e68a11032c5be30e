"""Polynomials with rational coefficients: expansion, definiteness and signs, all exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from optfair.convexity.expression import (
    Leaf,
    Node,
    Product,
    Sum,
    affine,
    linear,
    select,
)

Monomial = tuple[tuple[Node, Fraction], ...]
Polynomial = dict[Monomial, Fraction]

# Terms and degree that are multiplied out.
TERMS, DEGREE = 600, 12
ONE = Fraction(1)
_NOTHING: Polynomial = {(): ONE}


class TooLarge(Exception):
    """An expansion has too many terms."""


def expand(node: Node, merges: Callable[[Node], bool] | None = None) -> Polynomial:
    """Return an entry as a sum of monomials in what is not a sum or a product.

    Parameters
    ----------
    node : Node
        Of one entry.
    merges : callable, optional
        Whether powers of a base that are no whole numbers, or of which one is negative, may be
        multiplied: x * 1/x loses that x is not 0. By default never.

    Raises
    ------
    TooLarge
        It has too many terms.
    """
    if node.size != 1:
        raise TooLarge
    if isinstance(node, Sum) and not _single(node):
        total: Polynomial = {}
        if node.constant[0]:
            total[()] = Fraction(float(node.constant[0]))
        for M, n in node.parts:
            if M.nnz > TERMS:
                raise TooLarge
            for c, j in zip(M.data.tolist(), M.indices.tolist(), strict=True):
                for monomial, k in expand(select(n, [j]), merges).items():
                    total[monomial] = total.get(monomial, Fraction(0)) + Fraction(c) * k
            if len(total) > TERMS:
                raise TooLarge
        return {m: c for m, c in total.items() if c}
    if isinstance(node, Product):
        out: Polynomial = {(): ONE}
        for n, a in node.factors:
            if a.denominator == 1 and 0 < a <= DEGREE:
                inner = expand(n, merges)
                for _ in range(int(a)):
                    out = multiplied(out, inner, merges)
            else:
                out = multiplied(out, {((n, a),): ONE}, merges)
        return out
    return {((node, ONE),): ONE}


def expanded(node: Node, merges: Callable[[Node], bool] | None = None) -> Polynomial | None:
    """Return what `expand` does, None where that has too many terms."""
    try:
        return expand(node, merges)
    except TooLarge:
        return None


def _single(node: Sum) -> bool:
    """Whether a sum is one entry of a vector that is not taken apart: it stays what it is."""
    if len(node.parts) != 1 or node.constant.any():
        return False
    M, inner = node.parts[0]
    if M.nnz != 1 or M.data[0] != 1.0:
        return False
    return isinstance(inner, Leaf) or select(inner, M.indices) is node


def multiplied(
    a: Polynomial, b: Polynomial, merges: Callable[[Node], bool] | None = None
) -> Polynomial:
    """Return a product of polynomials; ``merges`` is that of `expand`."""
    if len(a) * len(b) > 8 * TERMS:
        raise TooLarge
    if a == _NOTHING:
        return dict(b)
    out: Polynomial = {}
    for m, c in a.items():
        for n, d in b.items():
            exponents = dict(m)
            for base, power in n:
                old = exponents.get(base, ONE)
                plain = power.denominator == old.denominator == 1 and power > 0 and old > 0
                if base in exponents and not plain and not (merges and merges(base)):
                    raise TooLarge
                exponents[base] = exponents.get(base, Fraction(0)) + power
            key = tuple(sorted(((k, p) for k, p in exponents.items()), key=lambda f: f[0].serial))
            out[key] = out.get(key, Fraction(0)) + c * d
    return {m: c for m, c in out.items() if c}


def from_monomials(terms: Mapping[Monomial, Fraction], algebra: Any) -> Node | None:
    """Return the node of a sum of monomials, None where a coefficient is no float."""
    parts = []
    offset = 0.0
    for monomial, c in terms.items():
        try:
            value = float(c)
        except OverflowError:
            return None
        if Fraction(value) != c:
            return None
        factors = [(n, p) for n, p in monomial if p]
        if not factors:
            offset += value
            if Fraction(offset) != sum(
                (k for m, k in terms.items() if not [p for _, p in m if p]), Fraction(0)
            ):
                return None
            continue
        parts.append((sp.csr_array([[value]]), algebra.product(factors)))
    return linear(parts, np.array([offset]))


def is_polynomial(terms: Polynomial) -> bool:
    """Whether every factor is a whole power of an entry of a leaf."""
    return all(
        affine(n) and p.denominator == 1 and p >= 0 for monomial in terms for n, p in monomial
    )


# --- one variable --------------------------------------------------------------------------------

Line = list[Fraction]  # coefficients, constant first


def univariate(terms: Polynomial, entry: Node) -> Line | None:
    """Return a polynomial in one entry as coefficients, None when it has other factors."""
    out: Line = []
    for monomial, c in terms.items():
        if len(monomial) > 1 or any(n is not entry for n, _ in monomial):
            return None
        p = monomial[0][1] if monomial else Fraction(0)
        if p.denominator != 1 or p < 0 or p > 40:
            return None
        out += [Fraction(0)] * (int(p) + 1 - len(out))
        out[int(p)] += c
    return _trimmed(out)


def _trimmed(p: Line) -> Line:
    p = list(p)
    while p and not p[-1]:
        p.pop()
    return p


def derivative(p: Line) -> Line:
    """Return the derivative."""
    return _trimmed([k * c for k, c in enumerate(p)][1:])


def plus(*lines: Line) -> Line:
    """Return a sum."""
    size = max(map(len, lines), default=0)
    return _trimmed([sum((p[k] for p in lines if k < len(p)), Fraction(0)) for k in range(size)])


def times(*lines: Line) -> Line:
    """Return a product."""
    out = [ONE]
    for p in lines:
        new = [Fraction(0)] * max(len(out) + len(p) - 1, 0)
        for i, a in enumerate(out):
            for j, b in enumerate(p):
                new[i + j] += a * b
        out = new
    return _trimmed(out)


def _divided(a: Line, b: Line) -> tuple[Line, Line]:
    """Return quotient and remainder."""
    a, out = list(a), [Fraction(0)] * max(len(a) - len(b) + 1, 0)
    while len(a) >= len(b):
        factor = a[-1] / b[-1]
        shift = len(a) - len(b)
        out[shift] = factor
        for k, c in enumerate(b):
            a[shift + k] -= factor * c
        a.pop()
    return _trimmed(out), _trimmed(a)


def _common(a: Line, b: Line) -> Line:
    while b:
        a, b = b, _divided(a, b)[1]
        b = [c / abs(b[-1]) for c in b] if b else b
    return [c / a[-1] for c in a] if a else a


def _sign_at(p: Line, x: Fraction | None, side: int) -> int:
    """Return the sign at a point, or towards infinity on one side."""
    if not p:
        return 0
    if x is None:
        lead = p[-1] if side > 0 or len(p) % 2 else -p[-1]
        return (lead > 0) - (lead < 0)
    value = Fraction(0)
    for c in reversed(p):
        value = value * x + c
    return (value > 0) - (value < 0)


def _roots_between(p: Line, low: Fraction | None, high: Fraction | None) -> int:
    """Return how many distinct roots lie in (low, high], by Sturm's theorem."""
    chain = [p, derivative(p)]
    while chain[-1]:
        rest = _divided(chain[-2], chain[-1])[1]
        chain.append([-c / abs(rest[-1]) for c in rest] if rest else [])
    chain.pop()

    def changes(x: Fraction | None, side: int) -> int:
        signs = [s for s in (_sign_at(q, x, side) for q in chain) if s]
        return sum(a != b for a, b in pairwise(signs))

    return changes(low, -1) - changes(high, 1)


def nonnegative_on(p: Line, low: float, high: float) -> bool:
    """Return whether a polynomial is nowhere negative between two ends, exactly.

    Examples
    --------
    >>> square = times([Fraction(-2), ONE, ONE], [Fraction(-2), ONE, ONE])
    >>> nonnegative_on(square, -np.inf, np.inf), nonnegative_on([Fraction(-1), ONE], 0.0, 2.0)
    (True, False)
    >>> nonnegative_on([Fraction(-1), ONE], 1.0, np.inf)
    True
    """
    p = _trimmed(p)
    if not p:
        return True
    a, b = _ends(low, high)
    if a is not None and b is not None and a >= b:
        return _sign_at(p, a, -1) >= 0 and _sign_at(p, b, 1) >= 0
    # the part of odd multiplicity decides where the sign changes
    odd, rest = [ONE], p
    repeated = []
    while len(rest) > 1:
        common = _common(rest, derivative(rest))
        repeated.append(_divided(rest, common)[0])  # each root once
        rest = common
    for k, q in enumerate(repeated):
        simple = _divided(q, repeated[k + 1])[0] if k + 1 < len(repeated) else q
        if k % 2 == 0:
            odd = times(odd, simple)
    odd = _without_ends(odd, a, b)
    if len(odd) > 1 and _roots_between(odd, a, b):
        return False
    left = a if a is not None else Fraction(-1) if b is None else b - 2
    inside = (left + (left + 2 if b is None else b)) / 2
    step = Fraction(1, 2)
    while not (sign := _sign_at(p, inside, 0)):  # a double root: look beside it
        inside = inside + step if b is None else inside + (b - inside) * step
        step /= 3
    return sign > 0


def _ends(low: float, high: float) -> tuple[Fraction | None, Fraction | None]:
    """Return both ends, None where there is none."""
    return (
        None if np.isneginf(low) else Fraction(float(low)),
        None if np.isposinf(high) else Fraction(float(high)),
    )


def _without_ends(p: Line, *ends: Fraction | None) -> Line:
    """Return a polynomial of simple roots without those on the ends, which do not matter."""
    for end in ends:
        if end is not None and len(p) > 1 and not _sign_at(p, end, 0):
            p = _divided(p, [-end, ONE])[0]
    return p


def positive_inside(p: Line, low: float, high: float) -> bool:
    """Return whether a polynomial is positive strictly between two ends, exactly.

    Examples
    --------
    >>> positive_inside([Fraction(0), ONE], 0.0, 1.0)
    True
    >>> positive_inside(times([Fraction(-1), ONE], [Fraction(-1), ONE]), 0.0, 2.0)
    False
    """
    if not nonnegative_on(p, low, high):
        return False
    # what is left to exclude are zeros inside, which its square-free part shows
    simple = _divided(p, _common(p, derivative(p)))[0] if len(p) > 1 else p
    a, b = _ends(low, high)
    simple = _without_ends(simple, a, b)
    return bool(simple) and (len(simple) == 1 or _roots_between(simple, a, b) == 0)
