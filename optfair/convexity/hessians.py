"""Rules that look at Hessians: their sign by polynomials, by intervals over boxes, by a sum of squares."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.convexity.algebra import Algebra
from optfair.convexity.derivatives import definite, hessian_on, second_derivative
from optfair.convexity.expression import (
    Call,
    Leaf,
    Node,
    Product,
    Sum,
    affine,
    linear,
    scalars,
    select,
    subnodes,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.polynomials import (
    Line,
    Polynomial,
    derivative,
    expanded,
    is_polynomial,
    nonnegative_on,
    plus,
    positive_inside,
    times,
    univariate,
)
from optfair.convexity.quadratics import inertia
from optfair.convexity.rules import Goal, Kind, rule
from optfair.core.coefficients import quadratic_map
from optfair.core.quadratics import Definiteness, NotQuadratic, QuadraticMap, curvature_of
from optfair.numbers import Floats

# Rules that look at second derivatives: their sign by polynomials, or by intervals over boxes.


#: Boxes of a proof.
BOXES = 4096


# --- one variable: the sign of a polynomial ---------------------------------------------------------


def _lines(node: Node, entry: Node) -> Line | None:
    terms = expanded(node)
    return None if terms is None else univariate(terms, entry)


@rule(
    "sign of a polynomial",
    "f of one variable, a product of powers of polynomials and of exp of one, or the log of a polynomial: f'' is a positive function times a polynomial, whose sign Sturm's theorem gives",
    "x/(1 + x*x) | x>=0, x<=1.7",
)
def _polynomial_sign(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if node.size != 1 or len(scalars(node)) != 1:
        return None
    ((leaf, j),) = scalars(node)
    entry, box = select(leaf, [j]), a.domain.box(leaf)
    low, high = float(box.low[j]), float(box.high[j])
    bend = _bend(node, entry, low, high)
    if bend is None:
        return None
    sign = Fraction(1 if kind == "convex" else -1)
    return [] if nonnegative_on(times([sign], bend), low, high) else None


def _bend(node: Node, entry: Node, low: float, high: float) -> Line | None:
    """Return a polynomial of the sign of f'' between two ends."""
    if isinstance(node, Call) and node.function == "log":
        inner = _lines(node.args[0], entry)
        if inner is None or not positive_inside(inner, low, high):
            return None
        first = derivative(inner)
        return plus(times(inner, derivative(first)), times([Fraction(-1)], first, first))
    whole = _lines(node, entry)
    if whole is not None:
        return derivative(derivative(whole))
    if not isinstance(node, Product):
        return None
    factors: list[tuple[Line, Fraction]] = []
    inside: Line = []
    for n, p in node.factors:
        if isinstance(n, Call) and n.function == "exp":
            g = _lines(n.args[0], entry)
            if g is None:
                return None
            inside = plus(inside, times([p], g))
            continue
        base = _lines(n, entry)
        if base is None:
            return None
        if (p.denominator != 1 or p < 0) and not _one_sign(base, p, low, high):
            return None
        factors.append((base, p))
    if sum(len(line) for line, _ in factors) > 24:
        return None
    # f'/f = A/P, so f'' = f (A^2 + A'P - AP')/P^2
    P = times(*(line for line, _ in factors))
    A = times(derivative(inside), P)
    for k, (line, p) in enumerate(factors):
        others = times(*(other for i, (other, _) in enumerate(factors) if i != k))
        A = plus(A, times([p], derivative(line), others))
    minus = [Fraction(-1)]
    bend = plus(times(A, A), times(derivative(A), P), times(minus, A, derivative(P)))
    # powers of odd exponent bring their own sign
    for line, p in factors:
        if p.denominator == 1 and int(p) % 2:
            bend = times(bend, line)
    return bend


def _one_sign(line: Line, p: Fraction, low: float, high: float) -> bool:
    """Whether a power is defined strictly between two ends."""
    if positive_inside(line, low, high):
        return True
    return p.denominator == 1 and positive_inside(times([Fraction(-1)], line), low, high)


# --- one exponential: the sign of a polynomial in it --------------------------------------------------

# The largest degree of numerator and denominator, the largest multiple of one exponent.
EXPONENTIALS = 12


@rule(
    "rational function of an exponential",
    "f = N(t)/D(t), t = e^u, u affine: f'' along u is (N2 D^2 - N D D2 - 2 N1 D D1 + 2 N D1^2)/D^3 with P1 = t P', P2 = t P1', whose sign Sturm's theorem gives",
    "(exp(x) - exp(-x))/(exp(x) + exp(-x)) | x>=0, x<=3",
)
def _rational_exponential(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if node.size != 1 or not isinstance(node, (Sum, Product)):
        return None
    fraction = fraction_of_exponential(node)
    if fraction is None:
        return None
    t, N, D, inverted = fraction
    r = a.domain.range(t)
    low, high = float(r.low[0]), float(r.high[0])
    if not all(_one_sign(line, Fraction(-1), low, high) for line in inverted):
        return None
    sign = Fraction(1 if (kind == "convex") == positive_inside(D, low, high) else -1)
    return [] if nonnegative_on(times([sign], bend_of_fraction(N, D)), low, high) else None


def bend_of_fraction(N: Line, D: Line) -> Line:
    """Return D^3 times the second derivative of N/D by u, both polynomials in e^u."""
    N1, D1 = _by_exponent(N), _by_exponent(D)
    return plus(
        times(_by_exponent(N1), D, D),
        times([Fraction(-1)], N, D, _by_exponent(D1)),
        times([Fraction(-2)], N1, D, D1),
        times([Fraction(2)], N, D1, D1),
    )


def _by_exponent(line: Line) -> Line:
    return times([Fraction(0), Fraction(1)], derivative(line))


def fraction_of_exponential(node: Node) -> tuple[Node, Line, Line, list[Line]] | None:
    """Return e^u, numerator, denominator, and what is inverted, of a fraction in one exponential."""
    powers: dict[Node, Polynomial] = {}
    for n in subnodes(node):
        if isinstance(n, Call):
            if n.function != "exp" or n.size != 1 or not affine(n.args[0]):
                return None
            if not (terms := expanded(n.args[0])):  # exp(0) is a number
                return None
            powers[n] = terms
    if not powers:
        return None
    least = min(powers, key=lambda n: min(map(abs, powers[n].values())))
    unit, exponents = powers[least], dict[Node, int]()
    for n, line in powers.items():
        first = next(iter(unit))
        ratio = line.get(first, Fraction(0)) / unit[first]
        same = line.keys() == unit.keys() and all(line[m] == ratio * c for m, c in unit.items())
        if not same or ratio.denominator != 1 or abs(ratio) > EXPONENTIALS:
            return None
        exponents[n] = int(ratio)
    inverted: list[Line] = []
    fraction = _fraction(node, exponents, inverted)
    return None if fraction is None else (least, *fraction, inverted)


def _fraction(
    node: Node, exponents: dict[Node, int], inverted: list[Line]
) -> tuple[Line, Line] | None:
    """Return numerator and denominator in t of a node, its exponentials being powers of t."""
    one = [Fraction(1)]
    if node in exponents:
        k = exponents[node]
        power = [Fraction(0)] * abs(k) + one
        return (power, one) if k > 0 else (one, power)
    above: Line = []
    below: Line = one
    if isinstance(node, Sum):
        if node.constant[0]:
            above = [Fraction(float(node.constant[0]))]
        for M, n in node.parts:
            if n.size != 1:
                return None
            part = _fraction(n, exponents, inverted)
            if part is None:
                return None
            N, D = times([Fraction(float(M.data[0]))], part[0]), part[1]
            above, below = plus(times(above, D), times(N, below)), times(below, D)
    elif isinstance(node, Product):
        above = one
        for n, p in node.factors:
            if p.denominator != 1 or abs(p) > EXPONENTIALS:
                return None
            part = _fraction(n, exponents, inverted)
            if part is None or not part[0]:
                return None
            N, D = part
            if p < 0:
                N, D = D, N
                inverted.append(D)
            for _ in range(abs(int(p))):
                above, below = times(above, N), times(below, D)
    else:
        return None
    return (above, below) if max(len(above), len(below)) <= EXPONENTIALS + 1 else None


# --- boxes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Boxes:
    """How a box was cut: a proof looks at the parts that were not cut further.

    Attributes
    ----------
    entries : tuple of (Leaf, int)
        Coordinates.
    low, high : array (d,)
        The box.
    cuts : tuple of array
        For every round, the coordinate along which each box is halved, or -1 to keep it.
    whole : tuple of int
        Coordinates of integers: no box has what lies between two of them.
    """

    entries: tuple[tuple[Leaf, int], ...]
    low: Floats
    high: Floats
    cuts: tuple[NDArray[np.int8], ...]
    whole: tuple[int, ...] = ()

    def __len__(self) -> int:
        return int(sum((c < 0).sum() for c in self.cuts))

    def rounds(self) -> Iterator[Interval]:
        """Yield the boxes (d, K) that are kept in every round."""
        low, high = self.low[:, None], self.high[:, None]
        for cut in self.cuts:
            if cut.size != low.shape[1]:
                raise ValueError("the cuts are not those of these boxes")
            kept = cut < 0
            yield Interval(low[:, kept], high[:, kept])
            low, high = halved(low[:, ~kept], high[:, ~kept], cut[~kept], self.whole)
        if low.shape[1]:
            raise ValueError("boxes are left over")


def halved(
    low: Floats, high: Floats, axis: NDArray[Any], whole: Sequence[int] = ()
) -> tuple[Floats, Floats]:
    """Return both halves of every box along its own axis; those of integers end at integers."""
    at = np.arange(axis.size)
    middle = Interval(low[axis, at], high[axis, at]).middle()
    first, second = high.copy(), low.copy()
    first[axis, at], second[axis, at] = middle, middle
    if len(whole):
        own = np.isin(axis, whole)
        k, at, below = axis[own], at[own], np.floor(middle[own])
        first[k, at] = np.maximum(below, low[k, at])
        second[k, at] = np.minimum(below + 1.0, high[k, at])
    return np.concatenate([low, second], axis=1), np.concatenate([first, high], axis=1)


def bends(node: Node, kind: Kind, entries: Sequence[tuple[Leaf, int]], boxes: Interval) -> Any:
    """Return on which boxes the second derivative, or the Hessian, has the sign that is asked for."""
    if len(entries) == 1:
        second = second_derivative(node, entries[0], boxes[0])
        if second is None:
            return None
        return second.low >= 0.0 if kind == "convex" else second.high <= 0.0
    h = hessian_on(node, entries, boxes)
    if h is None:
        return None
    return definite(h if kind == "convex" else -h)


@rule(
    "second derivatives over boxes",
    "f is convex where the interval enclosures of its Hessian contain only positive semidefinite matrices, on boxes that cover the domain",
    "log(1 + x*x + y*y) | x>=-0.7, x<=0.7, y>=-0.7, y<=0.7",
)
def _over_boxes(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(data, Boxes) or node.size != 1 or set(data.entries) != set(scalars(node)):
        return None
    if data.whole:  # what is between integers is not covered
        return None
    if len(data) > 2 * BOXES:
        return None
    for k, (leaf, j) in enumerate(data.entries):
        box = a.domain.box(leaf)[j]
        if not (data.low[k] <= box.low and box.high <= data.high[k]):
            return None
    try:
        for boxes in data.rounds():
            if boxes.shape[1]:
                good = bends(node, kind, data.entries, boxes)
                if good is None or not good.all():
                    return None
    except ValueError:
        return None
    return []


@rule(
    "without affine terms",
    "f + a'x + b is convex exactly when f is",
    "exp(x) - x*x/2 + y | x>=0, x<=3",
)
def _without_affine(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    """Drop affine terms, so that what is left is the same for all of them."""
    if not isinstance(node, Sum) or node.size != 1:
        return None
    kept = [(M, n) for M, n in node.parts if not isinstance(n, Leaf)]
    if not kept or (len(kept) == len(node.parts) and not node.constant.any()):
        return None
    return [Goal(linear(kept, np.zeros(1)), kind)]


# Polynomials whose Hessian is a sum of squares: a Gram matrix made rational, checked exactly.

Exponents = tuple[int, ...]
Form = dict[Exponents, Fraction]

# Variables of a polynomial, and its degree, whose Hessian is looked at.
VARIABLES, DEGREE = 4, 8


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


def hessian_form(node: Node, kind: Kind) -> Form | None:
    """Return y' H(x) y as exponents in (x, y), of -f for concave f.

    Of a polynomial in few variables, and of even degree above 2; None of anything else.
    """
    own = scalars(node)
    terms = expanded(node) if node.size == 1 and 1 < len(own) <= VARIABLES else None
    if terms is None or not is_polynomial(terms):
        return None
    degree = max((sum(int(p) for _, p in m) for m in terms), default=0)
    if not 2 < degree <= DEGREE or degree % 2:
        return None
    entries = sorted({e for m in terms for e, _ in m}, key=lambda e: e.serial)
    sign, n = 1 if kind == "convex" else -1, len(entries)
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
            total[tuple(key)] = total.get(tuple(key), Fraction(0)) + sign * factor * c
    return {k: c for k, c in total.items() if c}


@rule(
    "sum of squares",
    "a polynomial f is convex when y'H(x)y of its Hessian is a sum of squares (Ahmadi, Parrilo 2013)",
    "x**4 + 6*x**2*y**2 + y**4",
)
def _sum_of_squares(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(data, Gram) or data.form() != hessian_form(node, kind):
        return None
    if any(
        data.matrix[i][j] != data.matrix[j][i]
        for i, j in itertools.combinations(range(len(data.basis)), 2)
    ):
        return None
    return [] if inertia([list(row) for row in data.matrix])[1] == 0 else None


# The curvature of quadratics, proved from their coefficients whatever an expression asserts.

# Eigenvalues are told for so many scalars at most; they illustrate, the proof is another.
LISTED = 120


@dataclass(frozen=True, eq=False)
class QuadraticCurvature:
    """What is proved of the Hessian H of a quadratic, and of -H.

    Attributes
    ----------
    up, down : Definiteness
        Of H and of -H.
    note : str
        The finding in words.
    rows : QuadraticMap
        Its coefficients.
    """

    up: Definiteness
    down: Definiteness
    note: str
    rows: QuadraticMap

    @property
    def convex(self) -> bool:
        """Whether H is positive semidefinite, up to a shift that bounds are charged for."""
        return self.up.accepted

    @property
    def word(self) -> str:
        """What to call it."""
        if self.convex:
            return "convex quadratic"
        return "concave quadratic" if self.down.accepted else "indefinite quadratic"


def quadratic_curvature(expression: Any) -> QuadraticCurvature | None:
    """Return the curvature of a scalar quadratic from its exact coefficients, at any size.

    None when the expression is not multiplied out.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x = cp.Variable(2)
    >>> quadratic_curvature(x[0] * x[0] + 2 * x[0] * x[1] + x[1] * x[1]).word
    'convex quadratic'
    >>> quadratic_curvature(x[0] * x[0] - 1e-4 * x[1] * x[1]).word
    'indefinite quadratic'
    """
    if expression.size != 1:
        return None
    offsets, size = {}, 0
    for v in sorted(expression.variables(), key=lambda v: v.id):
        offsets[v.id] = size
        size += v.size
    try:
        rows = quadratic_map(expression, offsets, size)
    except NotQuadratic:
        return None
    i, j = rows.pairs
    Q = sp.csr_array(rows.Q)
    at = slice(Q.indptr[0], Q.indptr[1])
    k, value = Q.indices[at], Q.data[at]
    half = sp.csc_array((value, (i[k], j[k])), shape=(size, size))
    H = sp.csc_array(half + half.T)
    up, down = curvature_of(H), curvature_of(-H)
    if size <= LISTED:
        eigenvalues = np.linalg.eigvalsh(H.toarray())
        note = f"Hessian eigenvalues in [{eigenvalues[0]:.3g}, {eigenvalues[-1]:.3g}]"
    else:
        note = f"Hessian {up}"
    return QuadraticCurvature(up, down, note, rows)
