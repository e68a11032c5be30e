"""Rules of powers: monomials, ratios, norms and means; quadratics by exact matrices and Lorentz cones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.constraints import Equality, Inequality

from optfair.convexity.algebra import Algebra
from optfair.convexity.expression import (
    Call,
    Leaf,
    Node,
    Opaque,
    Product,
    Sum,
    affine,
    linear,
    raw_product,
    select,
)
from optfair.convexity.hessians import quadratic_curvature
from optfair.convexity.intervals import Interval
from optfair.convexity.polynomials import Polynomial, expand, expanded, is_polynomial
from optfair.convexity.quadratics import (
    Quadratic,
    coefficients,
    few,
    inertia,
    quadratic,
    quadratic_in_floats,
    quadratic_of,
    squared_norm,
)
from optfair.convexity.rules import (
    Goal,
    Kind,
    along,
    is_exponential,
    opposite,
    rule,
    signed_factors,
)
from optfair.core.coefficients import corrected, factors, largest_exponent, quadratic_map
from optfair.core.expressions import APART
from optfair.core.quadratics import NotQuadratic, QuadraticMap, in_floats, root_below
from optfair.core.term import adds, is_quadratic

# Rules of powers: monomials, ratios of powers, norms and means.


def _monomial(node: Node, kind: Kind, a: Algebra) -> tuple[list[Goal], list[Fraction], Kind] | None:
    signed = signed_factors(node, kind, a)
    if signed is None:
        return None
    kind, factors = signed
    exponents = [p for _, p in factors]
    above = [p for p in exponents if p > 0]
    if kind == "convex":
        if above and not (len(above) == 1 and sum(exponents) >= 1):
            return None
    elif min(exponents) < 0 or sum(exponents) > 1:
        return None
    goals = [Goal(n, "convex" if kind == "convex" and p > 0 else "concave") for n, p in factors]
    return goals, exponents, kind


def _monomial_rule(
    name: str, states: str, example: str, accepts: Callable[[list[Fraction], Kind], bool]
) -> None:
    def needs(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
        monomial = _monomial(node, kind, a)
        if monomial is None:
            return None
        goals, exponents, own = monomial
        return goals if accepts(exponents, own) else None

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
    "square of a norm over a positive function",
    "n/g is convex for n >= 0 with a convex root, and g concave, g > 0",
    "(x*x + y*y)/z | z>=0.1",
)
def _squares_over(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    signed = signed_factors(node, kind, a)
    if signed is None or signed[0] == "concave" or sorted(p for _, p in signed[1]) != [-1, 1]:
        return None
    (n, _), (g, _) = sorted(signed[1], key=lambda factor: -factor[1])
    if not isinstance(n, Sum) or affine(n):
        return None
    return [Goal(a.product([(n, Fraction(1, 2))]), "convex"), Goal(g, "concave")]


@rule(
    "log-convex",
    "a function that is not negative is convex where its logarithm is",
    "exp(y)/x | x>=0.1",
)
def _log_convex(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    signed = signed_factors(node, kind, a)
    if signed is None or signed[0] != "convex":
        return None
    if any(isinstance(n, Call) and n.function == "abs" for n, _ in signed[1]):
        return None
    if not all(a.positive(n) or p < 0 or affine(n) or is_exponential(n) for n, p in signed[1]):
        return None
    return [
        Goal(a.call("log", [n], n.size), "convex" if p > 0 else "concave") for n, p in signed[1]
    ]


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
    inner, number = raw_product(rest), raw_product(numbers)
    if affine(inner) or a.nonnegative(number):
        return [Goal(inner, kind)]
    return [Goal(inner, opposite(kind))] if a.nonpositive(number) else None


# Rules of quadratics: exact matrices, Lorentz cones, ratios to affine functions.


def definite_matrix(matrix: list[list[Fraction]], kind: Kind) -> bool:
    """Return whether a rational matrix is semidefinite with the sign of a curvature."""
    positive, negative, _ = inertia(matrix)
    return negative == 0 if kind == "convex" else positive == 0


# --- quadratics ----------------------------------------------------------------------------------


@rule(
    "quadratic",
    "a quadratic is convex exactly when its matrix is positive semidefinite",
    "x*x + 3*x*y + 4*y*y",
)
def _quadratic(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if node.size != 1 or not isinstance(node, (Sum, Product)):
        return None
    if few(node) and (q := quadratic(node)) is not None:
        return [] if definite_matrix(q.form, kind) else None
    read = quadratic_in_floats(node)
    if read is None:
        return None
    return [] if (read.convex if kind == "convex" else read.concave) else None


@rule(
    "quadratic of many variables",
    "its matrix P has P + d I positive semidefinite, d rounding, proved by a factorisation (Rump 2006)",
    "v @ v + 2*(v[0]*v[1]) | | v=50",
)
def large_quadratic(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    """Ask the factorisation of the library."""
    if not isinstance(node, Opaque) or node.size != 1 or not is_quadratic(node.expression):
        return None
    curvature = quadratic_curvature(node.expression)
    if curvature is None:
        return None
    return [] if (curvature.up if kind == "convex" else curvature.down).accepted else None


@rule("quadratic part", "a quadratic that is convex, plus the rest", "x*x - x*y + y*y + exp(x)")
def _quadratic_part(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Sum) or node.size != 1:
        return None
    two: list[Any] = []
    rest: list[Any] = []
    for M, n in node.parts:
        if affine(n) or not n.leaves:
            continue
        one = linear([(M, n)], np.zeros(1))
        q = (few(one) and quadratic(one)) or quadratic_in_floats(one)
        (two if q else rest).append((M, n))
    if sum(n.size for _, n in two) < 2 or not rest:
        return None
    return [Goal(linear(part, np.zeros(1)), kind) for part in (two, rest)]


@rule(
    "norm of an affine map",
    "q^p is convex for p >= 1/2 when [P b; b' c] of q = x'Px + 2b'x + c is positive semidefinite: q is a squared norm",
    "sqrt(x*x - 2*x*y + 2*y*y + 1)",
)
def _root_of_quadratic(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if kind == "concave" or not isinstance(node, Product) or len(node.factors) != 1:
        return None
    base, p = node.factors[0]
    return [] if node.size == 1 and p >= Fraction(1, 2) and squared_norm(base) else None


def _lorentzian(q: Quadratic, sheet: Node, a: Algebra, strictly: bool) -> bool:
    """Whether q is negative wherever the affine sheet is 0, so that q > 0 lies on one side of it."""
    normal = coefficients(sheet, q.entries)
    if normal is None or not any(normal[:-1]):
        return False
    r = a.domain.range(sheet)
    if not (r.low >= 0.0).all():
        return False
    positive, negative, zero = inertia(q.on_hyperplane(normal))
    if positive:
        return False
    if not strictly or bool((r.low > 0.0).all()):
        return True
    # with sheet = 0 allowed, q must be negative there but for the apex
    if q.homogeneous and not normal[-1]:
        return negative == len(q.entries) - 1
    return zero == 0


@rule(
    "one positive eigenvalue",
    "q^p, 0 < p <= 1/2, and log q are concave where q > 0 and l > 0, when q is negative semidefinite on l = 0 (Lorentz cone)",
    "log(x*y - z*z) | x>=1, y>=1, z<=0.5, z>=-0.5",
)
def _sheet(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if kind == "convex" or not few(node) or not isinstance(data, Node):
        return None
    strictly = False
    if isinstance(node, Call) and node.function == "log":
        base = node.args[0]
    elif isinstance(node, Product) and len(node.factors) == 1:
        base, p = node.factors[0]
        if not 0 < p <= Fraction(1, 2):
            return None
        strictly = True
    else:
        return None
    q = quadratic(base)
    if q is None:
        return None
    return [] if _lorentzian(q, data, a, strictly) else None


def ratio(node: Node, a: Algebra) -> tuple[float, Polynomial, Node] | None:
    """Return (sign, numerator, denominator) of a product over one affine denominator of one sign."""
    if not isinstance(node, Product) or node.size != 1:
        return None
    below = [n for n, p in node.factors if p == -1 and affine(n)]
    # what stands below may stand above as well: N / N has both factors
    rest = [(n, p) for n, p in node.factors if not (p == -1 and affine(n))]
    if len(below) != 1 or any(p < 0 for _, p in rest):
        return None
    signed = a.signed(below[0])
    terms: Polynomial | None = expanded(raw_product(rest)) if rest else {(): Fraction(1)}
    return None if signed is None or terms is None else (signed[0], terms, signed[1])


def remainder(terms: Polynomial, den: Node) -> list[list[Fraction]] | None:
    """Return the matrix of what is left of a quadratic after division by an affine function."""
    q = quadratic_of(terms, [n for m in expand(den) for n, _ in m])
    if q is None:
        return None
    normal = coefficients(den, q.entries)
    return None if normal is None or not any(normal[:-1]) else q.on_hyperplane(normal)


@rule(
    "quadratic over affine",
    "q/l with l > 0 is l times a convex function of x/l, plus affine terms, exactly when q is positive semidefinite on l = 0",
    "(x*x + 2*x*y)/(x + 3*y) | x>=0.1, y>=0.1",
)
def _over_affine(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not few(node):
        return None
    parts = ratio(node, a)
    if parts is None:
        return None
    sign, terms, den = parts
    if not is_polynomial(terms):
        return None
    left = remainder(terms, den)
    return [] if left is not None and definite_matrix(left, along(kind, sign)) else None


@rule(
    "ratios of one variable",
    "(a x + b)/(c x + d) is convex where c (b c - a d)/(c x + d) >= 0, entry by entry",
    "sum(v/(5 - v)) | v<=4 | v=30",
)
def _linear_fractional(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Product) or len(node.factors) != 2:
        return None
    exponents = {p: n for n, p in node.factors}
    if set(exponents) != {Fraction(1), Fraction(-1)}:
        return None
    num, den = exponents[Fraction(1)], exponents[Fraction(-1)]
    first, second = line_of(num), line_of(den)
    if first is None or second is None:
        return None
    (leaf, i, p, b), (other, j, c, d) = first, second
    if leaf is not other or not (i == j).all():
        return None
    r = a.domain.range(den)
    if not ((r.low >= 0.0) | (r.high <= 0.0)).all():
        return None
    exact = Interval.exactly
    bend = exact(c) * (exact(b) * exact(c) - exact(p) * exact(d))
    sign = np.where(r.low >= 0.0, 1.0, -1.0) * (1.0 if kind == "convex" else -1.0)
    bend = bend * exact(sign)
    return [] if (bend.low >= 0.0).all() else None


def multiple_of_inverse(node: Node, leaf: Leaf) -> float | None:
    """Return c > 0 where a node is c / leaf, None where it is not; c is rounded."""
    c = 1.0
    if isinstance(node, Sum) and len(node.parts) == 1 and not node.constant.any():
        M, node = node.parts[0]
        if M.shape != (1, 1) or not M.nnz:
            return None
        c = float(M.data[0])
    if not isinstance(node, Product) or node.size != 1:
        return None
    for n, p in node.factors:
        if isinstance(n, Sum) and not n.leaves and n.constant[0] > 0.0:
            c *= float(n.constant[0]) ** float(p)
        elif (n, p) != (leaf, Fraction(-1)):
            return None
    return c if c > 0.0 and leaf in node.leaves else None


def line_of(node: Node) -> tuple[Leaf, Any, Any, Any] | None:
    """Return (leaf, places, slopes, constants) of a node each entry of which has one variable."""
    if isinstance(node, Leaf):
        return node, np.arange(node.size), np.ones(node.size), np.zeros(node.size)
    if isinstance(node, Sum) and len(node.parts) == 1 and isinstance(node.parts[0][1], Leaf):
        M, leaf = node.parts[0]
        if isinstance(leaf, Leaf) and (np.diff(M.indptr) == 1).all():
            return leaf, M.indices, M.data, node.constant
    return None


def quadratic_form(
    expression: Any, *, rows: bool = False, coefficients: QuadraticMap | None = None
) -> Any:
    """Return a quadratic as x'Px + b'x + c with P believed to be proved; None where it is none.

    Parameters
    ----------
    expression : cvxpy.Expression
        Scalar, of degree two, of a curvature that was proved.
    rows : bool
        Whether it becomes rows of cones: then a diagonal matrix is written as squares, which need
        no factorisation. An objective keeps its matrix, on the variables themselves.
    coefficients : QuadraticMap, optional
        Its coefficients, where they are known.
    """
    variables = sorted(expression.variables(), key=lambda v: v.id)
    offsets, size = {}, 0
    for v in variables:
        offsets[v.id] = size
        size += v.size
    try:
        coefficients = (
            quadratic_map(expression, offsets, size) if coefficients is None else coefficients
        )
    except NotQuadratic:
        return None
    i, j = coefficients.pairs
    Q = sp.csr_array(coefficients.Q)
    half = sp.csc_array((Q.data, (i[Q.indices], j[Q.indices])), shape=(size, size))
    P = sp.csc_array((half + half.T) * 0.5)
    flat = [v if len(v.shape) == 1 else cp.reshape(v, (v.size,), order="F") for v in variables]
    A = sp.csr_array(coefficients.A)
    total: Any = float(coefficients.b[0])
    for v, x in zip(variables, flat, strict=True):
        own = A[:, offsets[v.id] : offsets[v.id] + v.size]
        if own.nnz:
            total = total + (own.toarray()[0] @ x if 2 * own.nnz > v.size else cp.sum(own @ x))
    if not P.nnz:
        return total if isinstance(total, cp.Expression) else cp.Constant(total)
    diagonal = P.diagonal()
    sign = 1.0 if diagonal.sum() >= 0.0 else -1.0
    is_diagonal = P.nnz == np.count_nonzero(diagonal)
    if rows and is_diagonal and (sign * diagonal >= 0.0).all():
        x = cp.hstack(flat)
        used = np.flatnonzero(diagonal)
        squares = cp.sum_squares(cp.multiply(root_below(np.abs(diagonal[used])), x[used]))
        return total + sign * squares
    blocks = [slice(offsets[v.id], offsets[v.id] + v.size) for v in variables]
    inside = sum(P[b, b].nnz for b in blocks)
    if inside < P.nnz:  # products of different variables
        x = cp.hstack(flat)
        used = np.flatnonzero(np.diff(P.indptr))
        core = sp.csc_array(P[used][:, used])
        return total + sign * cp.quad_form(x[used], cp.psd_wrap(sign * core))
    for b, x in zip(blocks, flat, strict=True):
        part: Any = sp.csc_array(P[b, b])
        own = part.diagonal()
        if part.nnz == own.size == np.count_nonzero(own == own[0]):
            total = total + float(own[0]) * cp.sum_squares(x)
        elif part.nnz:
            total = total + sign * cp.quad_form(x, cp.psd_wrap(sign * part))
    return total


def exact_sums(written: Any) -> Any:
    """Return an expression or constraint in which no sum loses numbers in floats.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x = cp.Variable(value=1.5)
    >>> print((1e16 * x + x - 1e16 * x).value, exact_sums(1e16 * x + x - 1e16 * x).value)
    2.0 1.5
    """
    if isinstance(written, (Equality, Inequality)):
        made = _summed(written.expr)
        if made is not None:
            zero = cp.Constant(np.zeros(made.shape))
            return written if made is written.expr else type(written)(made, zero)
    elif isinstance(written, cp.Expression):
        made = _summed(written)
        if made is not None or not written.args or written.is_constant():
            return written if made is None else made
    args = [exact_sums(arg) for arg in written.args]
    if isinstance(written, AddExpression) and not written.is_affine():
        affine_terms = [arg for arg in args if arg.is_affine()]
        total = _summed(AddExpression(affine_terms)) if len(affine_terms) > 1 else None
        if total is not None:
            args = [total, *(arg for arg in args if not arg.is_affine())]
    same = len(args) == len(written.args) and all(map(operator.is_, args, written.args))
    return written if same else written.copy(args)


def _summed(e: Any) -> Any:
    """Return an expression by its coefficients, or as it is where floats add up the same.

    None of what is looked at part by part: convex squares would lose more, multiplied out.
    """
    known = not e.is_constant() and not e.parameters() and not e.is_complex()
    if not known or (not e.is_affine() and (e.is_dcp() or e.size > 1 or not is_quadratic(e))):
        return None
    if (e.is_affine() and not adds(e, {})) or factors(e) * largest_exponent(e) <= APART:
        return e
    variables = sorted(e.variables(), key=lambda v: v.id)
    starts = np.cumsum([0, *(v.size for v in variables)]).tolist()
    offsets = {v.id: at for v, at in zip(variables, starts[:-1], strict=True)}
    try:
        plain = in_floats(e, offsets, starts[-1])
        f = corrected([e], offsets, plain)
    except (NotQuadratic, TypeError, ValueError):
        return None
    if f is plain:
        return e
    if f.Q.nnz:
        return cp.reshape(quadratic_form(e, coefficients=f), e.shape, order="F")
    x = cp.hstack([cp.vec(v, order="F") for v in variables])
    return cp.reshape(sp.csr_array(f.A) @ x + f.b, e.shape, order="F")
