"""Cones of quadratics: norms of maps, sheets of Lorentz cones, ratios, and 2 by 2 matrices."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import cvxpy as cp
import numpy as np

from optfair.convexity.expression import Call, Node
from optfair.convexity.intervals import Interval
from optfair.convexity.polynomials import expand
from optfair.convexity.powers import line_of, ratio
from optfair.convexity.proof import Step
from optfair.convexity.quadratics import (
    Quadratic,
    coefficients,
    quadratic,
    quadratic_in_floats,
    quadratic_of,
)
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.convexity.cones import Writer

T = TypeVar("T")


class NoCones(Exception):
    """No cones are known for what a step proves."""


def one_entry(e: Any) -> Any:
    """Return a number as a vector of one entry."""
    return cp.reshape(e, (1,), order="F")


def known(proof: T | None, what: str) -> T:
    """Return what a step was proved by, where it is still met."""
    if proof is None:
        raise NoCones(what)
    return proof


def norm_of_map(writer: Writer, step: Step) -> Any:
    """Write (x'Px + 2b'x + c)^p as a power of a norm."""
    base, p = step.node.factors[0]  # type: ignore[attr-defined]
    if (read := quadratic_in_floats(base)) is not None:
        (F, below), x = read.root, writer.lines(read)
        writer.rounded |= not below
    else:
        q = known(quadratic(base), "norm")
        F, x = writer.root(q.matrix), writer.entries(q)
    out = cp.norm(F @ cp.hstack([x, 1.0]), 2)
    return one_entry(out if p == Fraction(1, 2) else cp.power(out, float(2 * p), approx=False))


def sheet(writer: Writer, step: Step) -> Any:
    """Write sqrt(l m - |Bw|^2) as geo_mean(l, m - |Bw|^2/l), its logarithm as two."""
    is_log = isinstance(step.node, Call)
    q = known(quadratic(step.node.below[0]), "sheet")
    m, w, B = divided(writer, q, step.data, -1.0)
    den = writer.affine(step.data)
    other = m - one_entry(cp.quad_over_lin(B @ w, den))
    if is_log:
        return cp.log(den) + cp.log(other)
    p = step.node.factors[0][1]  # type: ignore[attr-defined]
    out = cp.geo_mean(cp.hstack([den, other]))
    return one_entry(out if p == Fraction(1, 2) else cp.power(out, float(2 * p), approx=False))


def divided(writer: Writer, q: Quadratic, line: Node, sign: float) -> tuple[Any, Any, Floats]:
    """Return m, w, B with q = l m + sign |Bw|^2 for an affine l."""
    normal = known(coefficients(line, q.entries), "ratio")
    k = next(i for i, c in enumerate(normal) if c)
    rest = [i for i in range(len(normal)) if i != k]
    R = q.on_hyperplane(normal)
    D = [list(row) for row in q.matrix]
    for a, i in enumerate(rest):
        for b, j in enumerate(rest):
            D[i][j] -= R[a][b]
    own = D[k][k] / normal[k]
    m = [own if i == k else (2 * D[k][i] - own * normal[i]) / normal[k] for i in range(len(normal))]
    z = cp.hstack([writer.entries(q), 1.0])
    B = writer.root([[Fraction(sign) * c for c in row] for row in R])
    ranges = [writer.algebra.domain.range(n) for n in q.entries]
    up = [None if r.low[0] < 0.0 < r.high[0] else bool(r.low[0] >= 0.0) for r in ranges]
    sides = [None if side is None else side == (sign > 0.0) for side in (*up, True)]
    each = [writer.one(Interval.near(c), side) for c, side in zip(m, sides, strict=True)]
    return one_entry(np.hstack(each) @ z), z[rest], B


def over_affine(writer: Writer, step: Step) -> Any:
    """Write q/l as affine terms plus |Bw|^2/l."""
    sign, terms, den = known(ratio(step.node, writer.algebra), "ratio")
    q = known(quadratic_of(terms, [n for m in expand(den) for n, _ in m]), "ratio")
    bend = sign * (1.0 if step.kind == "convex" else -1.0)
    m, w, B = divided(writer, q, den, bend)
    form = one_entry(cp.quad_over_lin(B @ w, writer.affine(den)))
    return sign * (m + bend * form)


def line_ratio(writer: Writer, step: Step) -> Any:
    """Write (p x + b)/(c x + d) as a number plus k/(c x + d)."""
    by = {e: n for n, e in step.node.factors}  # type: ignore[attr-defined]
    num, den = by[Fraction(1)], by[Fraction(-1)]
    (_, _, p, b), (_, _, c, d) = (known(line_of(n), "ratio") for n in (num, den))
    if (c == 0.0).any():
        raise NoCones("ratio")
    positive = writer.algebra.domain.range(den).low >= 0.0
    sign = np.where(positive, 1.0, -1.0)
    p, b, c, d = (np.array([Fraction(v) for v in part.tolist()]) for part in (p, b, c, d))
    less = step.kind == "convex"
    lead = np.hstack([writer.one(Interval.near(v), less) for v in p / c])
    k = sign * np.hstack([writer.one(Interval.near(v), v > 0) for v in b - p * d / c])
    inverse = cp.power(cp.multiply(sign, writer.affine(den)), -1.0, approx=False)
    return lead + cp.multiply(k, inverse)


def matrix_fraction(writer: Writer, step: Step) -> Any:
    """Write v' inv(X) v."""
    p, q, x, z, y = (cp.sum(writer.affine(n)) for n in step.data[:5])
    X = cp.bmat([[x, z], [z, y]])
    number = writer.one(Interval.near(Fraction(step.data[5])))
    return number * one_entry(cp.matrix_frac(cp.hstack([p, q]), X))


def trace_inverse(writer: Writer, step: Step) -> Any:
    """Write tr(W inv(X)) as a matrix fraction for each column of a root of W."""
    x, z, y = (cp.sum(writer.affine(n)) for n in step.data[:3])
    sign = 1 if step.kind == "convex" else -1
    u, v, w = (sign * Fraction(c) for c in step.data[3:])
    B = writer.root([[u, v], [v, w]])
    X = cp.bmat([[x, z], [z, y]])
    return one_entry(sign * sum(cp.matrix_frac(row, X) for row in B))
