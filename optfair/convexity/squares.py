"""Polynomials whose Hessian is a sum of squares: a Gram matrix made rational, checked exactly."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.convexity.algebra import Algebra
from optfair.convexity.expression import Node, scalars
from optfair.convexity.polynomials import Polynomial, TooLarge, expand, inertia, is_polynomial
from optfair.convexity.rules import Goal, Kind, rule

Exponents = tuple[int, ...]
Form = dict[Exponents, Fraction]

# Variables and monomials of a Gram matrix that is looked for.
VARIABLES, BASIS, DEGREE = 4, 40, 8
# Least eigenvalues that are tried, in units of the largest coefficient, and steps towards them.
MARGINS, STEPS = (1e-2, 0.0), 1500
# Denominators that entries of a singular Gram matrix are rounded to.
DENOMINATORS = (1, 2, 3, 4, 6, 12, 60, 2**20)


@dataclass(frozen=True, eq=False)
class Gram:
    """A positive semidefinite rational matrix G with y' H(x) y = z' G z.

    Attributes
    ----------
    basis : tuple of tuple of int
        Exponents of the monomials z in (x, y).
    matrix : tuple of tuple of Fraction
        G.
    """

    basis: tuple[Exponents, ...]
    matrix: tuple[tuple[Fraction, ...], ...]

    def form(self) -> Form:
        """Return z' G z, multiplied out."""
        total: Form = {}
        for i, j in itertools.product(range(len(self.basis)), repeat=2):
            key = tuple(a + b for a, b in zip(self.basis[i], self.basis[j], strict=True))
            total[key] = total.get(key, Fraction(0)) + self.matrix[i][j]
        return {k: c for k, c in total.items() if c}


def hessian_form(terms: Polynomial, entries: Sequence[Node]) -> Form:
    """Return y' H(x) y of a polynomial as exponents in (x, y)."""
    n = len(entries)
    at = {e: k for k, e in enumerate(entries)}
    total: Form = {}
    for monomial, c in terms.items():
        power = [0] * n
        for e, p in monomial:
            power[at[e]] += int(p)
        for i, j in itertools.product(range(n), repeat=2):
            factor = power[i] * (power[j] - (i == j))
            if not factor:
                continue
            key = list(power) + [0] * n
            key[i] -= 1
            key[j] -= 1
            key[n + i] += 1
            key[n + j] += 1
            total[tuple(key)] = total.get(tuple(key), Fraction(0)) + factor * c
    return {k: c for k, c in total.items() if c}


def _polynomial(node: Node) -> tuple[Polynomial, list[Node]] | None:
    own = scalars(node)
    if node.size != 1 or not 1 < len(own) <= VARIABLES:
        return None
    try:
        terms = expand(node)
    except TooLarge:
        return None
    if not is_polynomial(terms):
        return None
    degree = max((sum(int(p) for _, p in m) for m in terms), default=0)
    entries = sorted({e for m in terms for e, _ in m}, key=lambda e: e.serial)
    return (terms, entries) if 2 < degree <= DEGREE and degree % 2 == 0 else None


def gram(node: Node, kind: Kind, deadline: float) -> Gram | None:
    """Search for a Gram matrix of the Hessian of a polynomial."""
    found = _polynomial(node)
    if found is None:
        return None
    terms, entries = found
    if kind == "concave":
        terms = {m: -c for m, c in terms.items()}
    target = hessian_form(terms, entries)
    basis = _basis(target, len(entries))
    if not 0 < len(basis) <= BASIS:
        return None
    pairs: dict[Exponents, list[tuple[int, int]]] = {}
    for i, j in itertools.product(range(len(basis)), repeat=2):
        key = tuple(a + b for a, b in zip(basis[i], basis[j], strict=True))
        pairs.setdefault(key, []).append((i, j))
    if any(key not in pairs for key in target):
        return None
    for margin in MARGINS:
        if time.thread_time() > deadline:
            return None
        G = _numerical(len(basis), pairs, target, margin)
        if G is None:
            continue
        for rational in _rounded(G, pairs, target):
            if inertia(rational)[1] == 0:
                return Gram(tuple(basis), tuple(map(tuple, rational)))
    return None


def _basis(target: Form, n: int) -> list[Exponents]:
    """Return y_i times monomials in x, within half the exponents of the form."""
    degrees = [sum(k[:n]) for k in target]
    low, high = -(-min(degrees) // 2), max(degrees) // 2
    most = [max(k[i] for k in target) // 2 + 1 for i in range(n)]
    out = []
    for power in itertools.product(*(range(m + 1) for m in most)):
        if low <= sum(power) <= high:
            for i in range(n):
                unit = [0] * n
                unit[i] = 1
                out.append((*power, *unit))
    # a square that no term of the form can cancel has a coefficient of 0
    while True:
        doubled = {tuple(2 * a for a in b) for b in out}
        sums = {
            tuple(x + y for x, y in zip(a, b, strict=True))
            for a, b in itertools.combinations(out, 2)
        }
        kept = [
            b for b in out if tuple(2 * a for a in b) in target or tuple(2 * a for a in b) in sums
        ]
        if len(kept) == len(out) or not doubled:
            return kept
        out = kept


def _numerical(
    n: int, pairs: dict[Exponents, list[tuple[int, int]]], target: Form, margin: float
) -> NDArray[np.float64] | None:
    """Return a matrix near both G >= margin and the identity, by Douglas-Rachford steps."""
    size = max(abs(float(c)) for c in target.values())
    label = np.zeros((n, n), dtype=int)
    goal = np.zeros(len(pairs))
    for k, (key, places) in enumerate(pairs.items()):
        goal[k] = float(target.get(key, 0)) / size
        for i, j in places:
            label[i, j] = k
    count = np.bincount(label.ravel(), minlength=len(pairs))

    def on_identity(G: NDArray[np.float64]) -> NDArray[np.float64]:
        off = (goal - np.bincount(label.ravel(), G.ravel(), minlength=len(pairs))) / count
        return np.asarray(G + off[label])

    x = on_identity(np.zeros((n, n)))
    for _ in range(STEPS):
        y = on_identity(x)
        values, vectors = np.linalg.eigh(2.0 * y - x)
        z = (vectors * np.maximum(values, margin)) @ vectors.T
        if np.abs(z - y).max() < 1e-9:
            break
        x = x + z - y
    y = on_identity(x)
    low = float(np.linalg.eigvalsh(y)[0])
    return y * size if low > -1e-4 else None


def _rounded(
    G: NDArray[np.float64], pairs: dict[Exponents, list[tuple[int, int]]], target: Form
) -> Iterator[list[list[Fraction]]]:
    """Yield rational matrices near G that obey the identity exactly."""
    n = len(G)
    for most in DENOMINATORS:
        out = [
            [Fraction(float(G[i, j])).limit_denominator(most) for j in range(n)] for i in range(n)
        ]
        for i, j in itertools.combinations(range(n), 2):
            out[j][i] = out[i][j]
        for key, places in pairs.items():
            off = target.get(key, Fraction(0)) - sum(out[i][j] for i, j in places)
            for i, j in places:
                out[i][j] += off / len(places)
        yield out


@rule(
    "sum of squares",
    "a polynomial f is convex when y'H(x)y of its Hessian is a sum of squares (Ahmadi, Parrilo 2013)",
    "x**4 + 6*x**2*y**2 + y**4",
)
def _sum_of_squares(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    found = _polynomial(node)
    if found is None or not isinstance(data, Gram):
        return None
    terms, entries = found
    if kind == "concave":
        terms = {m: -c for m, c in terms.items()}
    if data.form() != hessian_form(terms, entries):
        return None
    if any(
        data.matrix[i][j] != data.matrix[j][i]
        for i, j in itertools.combinations(range(len(data.basis)), 2)
    ):
        return None
    return [] if inertia([list(row) for row in data.matrix])[1] == 0 else None
