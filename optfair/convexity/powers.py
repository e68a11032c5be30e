"""Rules of powers: monomials, ratios of powers, norms and means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from optfair.convexity.algebra import Algebra
from optfair.convexity.expression import Call, Node, Product, Sum, affine, raw_product, select
from optfair.convexity.rules import Goal, Kind, is_exponential, opposite, rule, signed_factors


def _monomial(node: Node, kind: Kind, a: Algebra) -> tuple[list[Goal], list[Fraction]] | None:
    found = signed_factors(node, kind, a)
    if found is None:
        return None
    kind, factors = found
    exponents = [p for _, p in factors]
    above = [p for p in exponents if p > 0]
    if kind == "convex":
        if above and not (len(above) == 1 and sum(exponents) >= 1):
            return None
    elif min(exponents) < 0 or sum(exponents) > 1:
        return None
    goals = [Goal(n, "convex" if kind == "convex" and p > 0 else "concave") for n, p in factors]
    return goals, exponents


def _monomial_rule(
    name: str, states: str, example: str, accepts: Callable[[list[Fraction], Kind], bool]
) -> None:
    def needs(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
        found = _monomial(node, kind, a)
        if found is None:
            return None
        signed = signed_factors(node, kind, a)
        return found[0] if signed is not None and accepts(found[1], signed[0]) else None

    rule(name, states, example)(needs)


_monomial_rule(
    "even power of an affine function",
    "(a'x + b)^2k is convex",
    "square(x - y) + x*x",
    lambda p, k: (
        len(p) == 1 and k == "convex" and p[0].denominator == 1 and p[0] % 2 == 0 and p[0] > 0
    ),
)
_monomial_rule(
    "power at least 1",
    "f^p is convex for f convex, f >= 0, p >= 1",
    "x*x*x | x>=0",
    lambda p, k: len(p) == 1 and p[0] >= 1,
)
_monomial_rule(
    "power between 0 and 1",
    "f^p is concave for f concave, f >= 0, 0 < p <= 1",
    "sqrt(1 - x*x) | x>=-1, x<=1",
    lambda p, k: len(p) == 1 and 0 < p[0] < 1,
)
_monomial_rule(
    "reciprocal",
    "1/f is convex for f concave, f > 0, and concave for f convex, f < 0",
    "1/log(x) | x>=1.1",
    lambda p, k: len(p) == 1 and p[0] == -1,
)
_monomial_rule(
    "negative power",
    "f^-p is convex for f concave, f > 0, p > 0",
    "1/square(log(x)) | x>=1.1",
    lambda p, k: len(p) == 1 and p[0] < 0,
)
_monomial_rule(
    "square over a positive function",
    "f^2/g is convex for f affine, or convex and >= 0, and g concave, g > 0",
    "x*x/y | y>=0.1",
    lambda p, k: k == "convex" and sorted(p) == [-1, 2],
)
_monomial_rule(
    "power over powers",
    "f^a/(g^b ...) is convex for f convex, f >= 0, g concave, g > 0, a >= 1 + b + ...",
    "x*x*x/(y*y) | x>=0.1, y>=0.1",
    lambda p, k: k == "convex" and any(q > 0 for q in p),
)
_monomial_rule(
    "reciprocal of powers",
    "1/(f^a g^b ...) is convex for f, g concave and > 0",
    "1/(x*y) | x>=0.1, y>=0.1",
    lambda p, k: k == "convex" and all(q < 0 for q in p),
)
_monomial_rule(
    "geometric mean",
    "f^a g^b ... is concave for f, g concave and >= 0, a + b + ... <= 1",
    "sqrt(x*y) | x>=0, y>=0",
    lambda p, k: k == "concave",
)


@rule(
    "log-convex",
    "a function that is not negative is convex where its logarithm is",
    "exp(y)/x | x>=0.1",
)
def _log_convex(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Product):
        return None
    found = signed_factors(node, kind, a)
    if found is None or found[0] != "convex" or len(found[1]) == 0:
        return None
    if any(isinstance(n, Call) and n.function == "abs" for n, _ in found[1]):
        return None
    if not all(a.positive(n) or p < 0 or affine(n) or is_exponential(n) for n, p in found[1]):
        return None
    return [Goal(a.call("log", [n], n.size), "convex" if p > 0 else "concave") for n, p in found[1]]


# --- sums of powers ------------------------------------------------------------------------------


@rule(
    "norm of convex functions",
    "(c + sum of c_i f_i^p)^(1/p) is convex for f_i convex, f_i >= 0, c_i > 0, p >= 1",
    "sqrt(1 + x*x*x*x)",
)
def _norm(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    return _generalised(node, kind, a, lambda q, k: k == "convex" and 0 < q <= 1)


@rule(
    "concave mean",
    "(c + sum of c_i f_i^p)^(1/p) is concave for f_i concave, f_i >= 0, c_i > 0, 0 < p <= 1",
    "square(sqrt(x) + sqrt(y)) | x>=0.1, y>=0.1",
)
def _mean(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    return _generalised(node, kind, a, lambda q, k: k == "concave" and q >= 1)


@rule(
    "harmonic mean",
    "(c + sum of c_i/f_i^p)^(-1/p) is concave for f_i concave, f_i > 0, p > 0",
    "1/(1/x + 1/y) | x>=0.1, y>=0.1",
)
def _harmonic(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    return _generalised(node, kind, a, lambda q, k: k == "concave" and q < 0)


def _generalised(
    node: Node, kind: Kind, a: Algebra, accepts: Callable[[Fraction, Kind], bool]
) -> Sequence[Goal] | None:
    """Return that every f_i = g_i^q is convex (concave) for (c + sum of c_i g_i)^q."""
    if not isinstance(node, Product):
        return None
    factors = [(n, q) for n, q in node.factors if n.leaves or not a.positive(n)]
    if len(factors) != 1 or not isinstance(factors[0][0], Sum):
        return None
    base, q = factors[0]
    if not isinstance(base, Sum) or not accepts(q, kind) or (base.constant < 0.0).any():
        return None
    goals = []
    for M, n in base.parts:
        if (M.data < 0.0).any():
            return None
        g = select(n, np.unique(M.indices))
        if not a.nonnegative(g):
            return None
        if g.leaves:
            power = a.product([(g, q)])
            if power is g and q != 1:
                return None
            goals.append(Goal(power, kind))
    return goals


@rule(
    "positive factor",
    "c f with a number c that is not negative, or -c f; a parameter is a number of its declared sign",
    "power(2*sqrt(t*t - x*x), 0.5) | t>=2, x>=-1, x<=1",
)
def _positive_number(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Product):
        return None
    numbers = [(n, p) for n, p in node.factors if not n.leaves]
    rest = [(n, p) for n, p in node.factors if n.leaves]
    if not numbers or not rest:
        return None
    inner, r = raw_product(rest), a.domain.range(raw_product(numbers))
    if affine(inner) or (r.low >= 0.0).all():
        return [Goal(inner, kind)]
    return [Goal(inner, opposite(kind))] if (r.high <= 0.0).all() else None
