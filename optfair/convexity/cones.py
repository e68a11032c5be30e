"""From a proof to cones: the expression written by the rules of disciplined convex programming."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Call, Leaf, Node, Opaque, Product, Sum, affine
from optfair.convexity.intervals import Interval
from optfair.convexity.powers import line_of, multiple_of_inverse, quadratic_form
from optfair.convexity.proof import CurvatureProof, Step
from optfair.convexity.quadratic_cones import (
    NoCones,
    known,
    line_ratio,
    matrix_fraction,
    norm_of_map,
    one_entry,
    over_affine,
    sheet,
    trace_inverse,
)
from optfair.convexity.quadratics import (
    Matrix,
    Quadratic,
    QuadraticInFloats,
    few,
    not_above,
    quadratic,
    quadratic_in_floats,
)
from optfair.convexity.reading import leaf_of
from optfair.convexity.rules import positive_multiple, signed_factors
from optfair.convexity.theorems import perspective_of, shifted
from optfair.core.quadratics import Shortfall, lower_root
from optfair.numbers import Floats

# Entries of a vector that are written one by one, those of one function; what a multiple may be rounded by.
ENTRIES, MOST, ROUNDED = 64, 512, 1e-15


def disciplined(proof: CurvatureProof, kind: str) -> tuple[Any, list[Any]] | None:
    """Return (expression, constraints) by CVXPY's rules that a proved function equals.

    The least value of the expression under the constraints is the function where its domain
    holds; None where no cones are known.

    Parameters
    ----------
    proof : CurvatureProof
        Of the expression.
    kind : {"convex", "concave"}
        Which of its curvatures is used.
    """
    step = next((s for s in proof.steps if s.kind == kind), None)
    if step is None:
        return None
    variables = {
        leaf_of(v): cp.vec(v, order="F") if v.shape else one_entry(v)
        for v in proof.expression.variables()
    }
    writer = Writer(variables, proof.domain)
    try:
        flat = writer.write(step)
    except NoCones:
        return None
    if writer.rounded:
        lacking = Shortfall()
        writer.sides.append(lacking == 0.0)
        flat = flat - lacking if kind == "convex" else flat + lacking
    for fact in proof.domain.facts:
        if fact.name == "where it is defined" and fact.node.leaves <= set(variables):
            writer.sides.append(writer.affine(fact.node) <= 0)
    shape = proof.expression.shape
    out = cp.reshape(flat, shape, order="F") if flat.shape != shape else flat
    good = out.is_convex() if kind == "convex" else out.is_concave()
    if not good or not all(c.is_dcp() for c in writer.sides):
        return None
    return out, writer.sides


class Writer:
    """Writes steps as CVXPY expressions on given variables.

    Attributes
    ----------
    sides : list of cvxpy.Constraint
        What the variables that were brought in must obey.
    rounded : bool
        Whether a constant was rounded to a side that is not known.
    """

    def __init__(self, variables: Mapping[Leaf, Any], domain: Domain) -> None:
        self.variables = dict(variables)
        self.algebra = Algebra(domain)
        self.sides: list[Any] = []
        self.rounded = False

    def write(self, step: Step) -> Any:
        """Return the expression of a step, a vector."""
        return known(_WRITERS.get(step.rule), step.rule)(self, step)

    # --- what everything uses --------------------------------------------------------------------

    def one(self, r: Interval, below: bool | None = None) -> Floats:
        """Return the least float of ranges where what is below says less, the largest, or any."""
        if below is None:
            self.rounded |= bool((r.low != r.high).any())
        return np.asarray(r.high if below is False else r.low)

    def log(self, c: Any, below: bool, rounded: float = 0.0) -> Floats:
        """Return the logarithms of positive numbers, which may be rounded unless they are 1."""
        c = np.where(np.equal(c, 1.0), c, np.multiply(c, 1.0 - rounded if below else 1.0 + rounded))
        return self.one(Interval.exactly(c).call("log"), below)

    def root(self, M: Matrix) -> Floats:
        """Return F with F'F not above a semidefinite matrix, and next to it."""
        F, below = not_above(M, lower_root(np.array(M, dtype=float))[0])
        self.rounded |= not below
        return F

    def affine(self, node: Node) -> Any:
        """Return an affine node, or one without variables."""
        if isinstance(node, Leaf):
            if node not in self.variables:
                raise NoCones("a part stands where a variable is needed")
            return self.variables[node]
        if not node.leaves:
            return cp.Constant(self.one(self.algebra.domain.range(node)))
        if not isinstance(node, Sum):
            raise NoCones("not affine")
        total: Any = cp.Constant(node.constant)
        for M, n in node.parts:
            total = total + M @ self.affine(n)
        return total

    def rest(self, node: Node) -> Any:
        """Return the affine part of a sum."""
        if not isinstance(node, Sum):
            return 0.0
        total: Any = cp.Constant(node.constant)
        for M, n in node.parts:
            if affine(n) or not n.leaves:
                total = total + M @ self.affine(n)
        return total

    def above(self, step: Step) -> Any:
        """Return something affine that is at least a convex function which is not negative."""
        if affine(step.node):
            return self.affine(step.node)
        t = cp.Variable(step.node.size, nonneg=True)
        self.sides.append(self.write(step) <= t)
        return t

    def below(self, step: Step) -> Any:
        """Return something affine that is at most a concave function."""
        if affine(step.node):
            return self.affine(step.node)
        s = cp.Variable(step.node.size)
        self.sides.append(s <= self.write(step))
        return s

    def number(self, node: Node, below: bool | None = None) -> Any:
        """Return the positive numbers among the factors of a product."""
        out = Interval.exactly(1.0)
        for n, p in node.factors if isinstance(node, Product) else ():
            out = out if n.leaves else out * self.algebra.domain.range(n).power(p)
        return self.one(out, below)

    def factors(self, step: Step) -> tuple[float, list[tuple[Node, Fraction]]]:
        """Return the sign of a product and its factors, as its rule saw them."""
        kind, factors = known(signed_factors(step.node, step.kind, self.algebra), step.rule)
        return (1.0 if kind == step.kind else -1.0), factors

    # --- rules -----------------------------------------------------------------------------------

    def sum(self, step: Step) -> Any:
        """Add terms up, each with the curvature it was proved with."""
        node = step.node
        if not isinstance(node, Sum):
            raise NoCones("sum")
        total, premises = self.rest(node), list(step.premises)
        for M, n in node.parts:
            if affine(n) or not n.leaves:
                continue
            for sign in (1.0, -1.0):
                columns = np.unique(M.indices[sign * M.data > 0.0])
                if columns.size:
                    part = M[:, columns]
                    part = part.multiply(part * sign > 0).tocsr()
                    total = total + part @ self.write(premises.pop(0))
        return total

    def parts(self, step: Step) -> Any:
        """Add the affine part and what was proved apart."""
        total = self.rest(step.node)
        for p in step.premises:
            total = total + self.write(p)
        return total

    def quadratic(self, step: Step) -> Any:
        """Write a quadratic with its matrix."""
        q = quadratic(step.node) if few(step.node) else None
        if q is not None and not q.entries:
            return cp.Constant([float(q.matrix[-1][-1])])
        sign = 1.0 if step.kind == "convex" else -1.0
        if q is not None:
            x, M = self.entries(q), np.array(q.matrix, dtype=float)
        else:
            read = known(quadratic_in_floats(step.node), "quadratic")
            x, M = self.lines(read), read.matrix
        P, b, c = M[:-1, :-1], 2.0 * M[:-1, -1], M[-1, -1]
        form = cp.quad_form(x, cp.psd_wrap(sign * P))
        return one_entry(sign * form + b @ x + c)

    def entries(self, q: Quadratic) -> Any:
        """Return the variables of a quadratic."""
        return cp.hstack([self.affine(n) for n in q.entries]) if q.entries else cp.Constant([])

    def lines(self, q: QuadraticInFloats) -> Any:
        """Return the entries of a quadratic; what is no entry of a leaf is a variable of its own."""
        out = []
        for node, lines in q.lines:
            base, at = self.affine(node), lines[:, 0].astype(int)
            own = base[at]
            if not isinstance(node, Leaf) or (lines[:, 1:] != (1.0, 0.0)).any():
                own = cp.Variable(at.size)
                self.sides.append(own == cp.multiply(lines[:, 1], base[at]) + lines[:, 2])
            out.append(own)
        return cp.hstack(out)

    def large_quadratic(self, step: Step) -> Any:
        """Write a quadratic of many variables."""
        form = quadratic_form(step.node.expression) if isinstance(step.node, Opaque) else None
        return one_entry(known(form, "quadratic"))

    def power(self, step: Step) -> Any:
        """Write f^p."""
        sign, ((n, p),) = self.factors(step)
        inner = step.premises[0]
        if p < 1:
            base = self.write(inner)
        elif p % 2 == 0 and isinstance(n, Call) and n.function == "abs" and affine(n.args[0]):
            base = self.affine(n.args[0])
        else:
            base = self.above(inner)
        power = cp.power(base, float(p), approx=False)
        return sign * cp.multiply(self.number(step.node, _less(step, sign)), power)

    def square_over(self, step: Step) -> Any:
        """Write f^2/g with a rotated second-order cone for each entry."""
        sign, factors = self.factors(step)
        by = {p: s for (_, p), s in zip(factors, step.premises, strict=True)}
        n = next(n for n, p in factors if p == 2)
        if isinstance(n, Call) and n.function == "abs" and affine(n.args[0]):
            f = self.affine(n.args[0])
        else:
            f = self.above(by[Fraction(2)])
        return self.quotient(step, sign, f, by[Fraction(-1)])

    def quotient(self, step: Step, sign: float, f: Any, below: Step) -> Any:
        """Return a multiple of a variable that is at least f^2/g."""
        g, t = self.below(below), cp.Variable(step.node.size)
        self.sides.append(cp.SOC(g + t, cp.vstack([2.0 * f, g - t]), axis=0))
        return sign * cp.multiply(self.number(step.node, _less(step, sign)), t)

    def squares_over(self, step: Step) -> Any:
        """Write n/g with the root of n."""
        sign, _ = self.factors(step)
        root, g = step.premises
        return self.quotient(step, sign, self.above(root), g)

    def powers(self, step: Step) -> Any:
        """Write a monomial with geometric means."""
        sign, factors = self.factors(step)
        m = step.node.size
        number = self.number(step.node, _less(step, sign))
        if all(p > 0 for _, p in factors):
            inner = [self.write(s) for s in step.premises]
            out = self.means(inner, [p for _, p in factors])
            return sign * cp.multiply(number, out)
        t = cp.Variable(m, nonneg=True)
        top = [(s, p) for (_, p), s in zip(factors, step.premises, strict=True) if p > 0]
        low = [
            (self.below(s), -p) for (_, p), s in zip(factors, step.premises, strict=True) if p < 0
        ]
        if top:
            # f <= t^(1/a) g^(b/a) ...
            f, a = self.above(top[0][0]), top[0][1]
            weights = [1 / a, *(b / a for _, b in low)]
        else:
            f, weights = None, [Fraction(1), *(b for _, b in low)]
            total = sum(weights)
            weights = [w / total for w in weights]
        mean = self.means([t, *(g for g, _ in low)], weights)
        self.sides.append(mean >= (np.ones(m) if f is None else f))
        return sign * cp.multiply(number, t)

    def means(self, terms: list[Any], weights: list[Fraction]) -> Any:
        """Return products of powers whose exponents add up to at most 1, entry by entry."""
        m, total = terms[0].size, sum(weights, Fraction(0))
        if total < 1:
            terms, weights = [*terms, cp.Constant(np.ones(m))], [*weights, 1 - total]
        if m <= ENTRIES:
            each = [float(w) for w in weights]
            rows = (cp.hstack([one_entry(t[i]) for t in terms]) for i in range(m))
            return cp.hstack([cp.geo_mean(row, each, approx=False) for row in rows])
        mean, of = terms[0], weights[0]
        for t, w in zip(terms[1:], weights[1:], strict=True):
            below, of = cp.Variable(m), of + w
            share = float((of - w) / of)
            if Fraction(share) * of != of - w:
                raise NoCones("a long vector of means with rounded exponents")
            self.sides.append(cp.PowCone3D(mean, t, below, np.full(m, share)))
            mean = below
        return mean

    def log_convex(self, step: Step) -> Any:
        """Write exp of a sum of logarithms."""
        sign, factors = self.factors(step)
        total: Any = 0.0
        for (_, p), s in zip(factors, step.premises, strict=True):
            total = total + float(p) * self.write(s)
        return sign * cp.multiply(self.number(step.node, _less(step, sign)), cp.exp(total))

    def log_product(self, step: Step) -> Any:
        """Write the logarithm of a product as a sum."""
        f = _argument(step)
        if isinstance(f, Sum):
            M, _ = f.parts[0]
            return self.write(step.premises[0]) + self.log(M.data, _less(step))
        _, factors = known(signed_factors(f, "convex", self.algebra), "logarithm")
        total: Any = self.log(self.number(f, _less(step)), _less(step))
        if step.rule == "logarithm as a sum":
            return total + self.write(step.premises[0])
        for (_, p), s in zip(factors, step.premises, strict=True):
            total = total + float(p) * self.write(s)
        return total

    def log_sum(self, step: Step) -> Any:
        """Write log_sum_exp of logarithms, entry by entry."""
        f = _argument(step)
        if not isinstance(f, Sum):
            raise NoCones("log_sum_exp")
        premises, constant = list(step.premises), np.array(f.constant)
        terms: list[tuple[Any, Any]] = []
        for M, n in f.parts:
            if not n.leaves:
                constant = constant + (M @ self.affine(n)).value
                continue
            logs, used = self.write(premises.pop(0)), np.unique(M.indices)
            scale = self.log(M.data, True)
            terms.append((logs[np.searchsorted(used, M.indices)] + scale, M.indptr))
        positive = constant > 0.0
        if positive.any():
            logs = cp.Constant(self.log(constant[positive], True))
            terms.append((logs, np.cumsum([0, *positive])))
        if f.size > 1 and all((np.diff(ends) == 1).all() for _, ends in terms):
            return cp.log_sum_exp(cp.vstack([e for e, _ in terms]), axis=0)
        if f.size > ENTRIES:
            raise NoCones("a long vector of log_sum_exp")
        rows = [
            [e[a:b] for e, ends in terms if (a := ends[i]) < (b := ends[i + 1])]
            for i in range(f.size)
        ]
        if not all(rows):
            raise NoCones("the logarithm of 0")
        return cp.hstack([cp.log_sum_exp(cp.hstack(row)) for row in rows])

    def log_difference(self, step: Step) -> Any:
        """Write g + log(1 - ...)."""
        f = _argument(step)
        if not isinstance(f, Sum):
            raise NoCones("logarithm")
        lead = next(
            n for M, n in f.parts if isinstance(n, Call) and n.function == "exp" and M.data[0] > 0.0
        )
        return self.affine(lead.args[0]) + self.write(step.premises[0])

    def entropy(self, step: Step) -> Any:
        """Write x log(c x)."""
        node = step.node
        if isinstance(node, Call):
            return -cp.entr(self.affine(node.args[0]))
        if not isinstance(node, Product):
            raise NoCones("entropy")
        for (n, _), (m, _) in (node.factors, node.factors[::-1]):
            if not (isinstance(m, Call) and m.function == "log" and affine(n)):
                continue
            if (c := positive_multiple(m.args[0], n)) is not None:
                x = self.affine(n)
                return -cp.entr(x) + cp.multiply(self.log(c, True, ROUNDED), x)
        raise NoCones("entropy")

    def norm(self, step: Step) -> Any:
        """Write a p-norm, or a concave mean, of what was proved."""
        node = step.node
        base, q = next((n, q) for n, q in node.factors if n.leaves)  # type: ignore[attr-defined]
        p, premises, terms = 1.0 / float(q), list(step.premises), []
        constant = np.array(base.constant)
        for M, n in base.parts:
            if not n.leaves:
                constant = constant + (M @ self.affine(n)).value
                continue
            inner = premises.pop(0)
            part = self.above(inner) if step.kind == "convex" else self.below(inner)
            if base.size > 1:
                if not (np.diff(M.indptr) == 1).all():
                    raise NoCones("norms of vectors of several lengths")
                part = part[np.searchsorted(np.unique(M.indices), M.indices)]
            order = slice(None) if base.size > 1 else np.argsort(M.indices)
            weights = Interval.exactly(M.data[order]).power(q)
            terms.append(cp.multiply(self.one(weights, _less(step)), part))
        if (constant > 0.0).any():
            terms.append(cp.Constant(self.one(Interval.exactly(constant).power(q), _less(step))))
        if base.size > 1 and p != 2.0:
            raise NoCones("a vector of norms of another power")
        if base.size > 1:
            return cp.multiply(self.number(node, _less(step)), cp.norm(cp.vstack(terms), 2, 0))
        every = cp.hstack(terms)
        out = cp.norm(every, 2) if p == 2.0 else cp.pnorm(every, p, approx=False)
        return one_entry(cp.multiply(self.number(node, _less(step)), out))

    def perspective(self, step: Step) -> Any:
        """Write w h(u/w)."""
        h, leaves = known(perspective_of(step.node, step.data, self.algebra), "perspective")
        if len(leaves) != 1:
            raise NoCones("a perspective of several ratios")
        ((leaf, u),) = leaves
        w, top = self.affine(step.data), self.affine(u)
        if isinstance(h, Call) and h.function in ("log", "exp"):
            inner = h.args[0]
            if h.function == "log" and (c := multiple_of_inverse(inner, leaf)) is not None:
                number = self.log(c, _less(step), ROUNDED)
                return cp.rel_entr(w, top) + cp.multiply(number, w)
            line = line_of(inner)
            if line is not None and line[0] is leaf:
                moved = cp.multiply(line[2], top) + cp.multiply(line[3], w)
                if h.function == "log":
                    return -cp.rel_entr(w, moved)
                t = cp.Variable(step.node.size)
                self.sides.append(cp.ExpCone(moved, w, t))
                return t
        first = step.premises[0]
        if (
            first.rule == "norm of an affine map"
            and isinstance(h, Product)
            and h.factors[0][1] == Fraction(1, 2)
            and step.node.size == 1
        ):
            q = quadratic(h.factors[0][0])
            if q is not None and len(q.entries) == 1:
                return one_entry(cp.norm(self.root(q.matrix) @ cp.hstack([top, w]), 2))
        raise NoCones("a perspective of another function")

    def composition(self, step: Step) -> Any:
        """Write h(t) with a variable t for the part."""
        u, way = step.data
        first = step.premises[0]
        ((leaf, box),) = first.goal.boxes
        t = cp.Variable(1)
        if way == "affine":
            self.sides.append(t == self.affine(u))
        else:
            part = self.write(step.premises[1])
            self.sides.append(part <= t if step.premises[1].kind == "convex" else t <= part)
            for end, sign in ((float(box.low[0]), 1.0), (float(box.high[0]), -1.0)):
                if np.isfinite(end):
                    self.sides.append(sign * t >= sign * end)
        return self.within(first, {leaf: t})

    def within(self, step: Step, variables: Mapping[Leaf, Any]) -> Any:
        """Return the expression of a step whose leaves stand for these."""
        domain = self.algebra.domain.extended(boxes=dict(step.goal.boxes))
        inner = Writer({**self.variables, **variables}, domain)
        out = inner.write(step)
        self.sides += inner.sides
        self.rounded |= inner.rounded
        return out

    def each_entry(self, step: Step) -> Any:
        """Write f(t) on every entry of what t stands for."""
        (first,) = step.premises
        if step.node.size > MOST:
            raise NoCones("too many entries to write one by one")
        parts = {leaf: self.affine(leaf.uid[1]) for leaf, _ in first.goal.boxes}
        count = range(step.node.size)
        return cp.hstack([self.within(first, {t: u[[i]] for t, u in parts.items()}) for i in count])

    def shifted(self, step: Step) -> Any:
        """Write h(x + c) on the sums themselves."""
        first = step.premises[0]
        moved = {
            leaf: self.affine(shifted(old, shift))
            for (old, shift), (leaf, _) in zip(step.data, first.goal.boxes, strict=True)
        }
        return self.within(first, moved)


def _less(step: Step, sign: float = 1.0) -> bool:
    """Whether what is below a number, times a sign, says less than what was proved."""
    return (sign > 0.0) == (step.kind == "convex")


def _argument(step: Step) -> Node:
    """Return what a function is of."""
    return step.node.args[0] if isinstance(step.node, Call) else step.node


_POWERS = (
    "even power of an affine function",
    "power at least 1",
    "power between 0 and 1",
    "reciprocal",
    "negative power",
)
_WRITERS: Mapping[str, Callable[[Writer, Step], Any]] = {
    "affine": lambda w, s: w.affine(s.node),
    "sum": Writer.sum,
    "composition rules of CVXPY": lambda w, s: cp.vec(s.node.expression, order="F"),  # type: ignore[attr-defined]
    "one function of each entry": Writer.each_entry,
    "entries": lambda w, s: cp.hstack([w.write(p) for p in s.premises]),
    "quadratic": Writer.quadratic,
    "quadratic of many variables": Writer.large_quadratic,
    "square over a positive function": Writer.square_over,
    "square of a norm over a positive function": Writer.squares_over,
    "power over powers": Writer.powers,
    "reciprocal of powers": Writer.powers,
    "geometric mean": Writer.powers,
    "log-convex": Writer.log_convex,
    "exponential": lambda w, s: cp.exp(w.write(s.premises[0])),
    "logarithm": lambda w, s: cp.log(w.write(s.premises[0])),
    "logarithm of a product": Writer.log_product,
    "logarithm as a sum": Writer.log_product,
    "log-sum-exp": Writer.log_sum,
    "logarithm of a difference of exponentials": Writer.log_difference,
    "entropy": Writer.entropy,
    "entropy, nondecreasing": lambda w, s: -cp.entr(w.above(s.premises[0])),
    "absolute value": lambda w, s: cp.abs(w.affine(s.node.args[0])),  # type: ignore[attr-defined]
    "maximum": lambda w, s: one_entry(
        (cp.max if s.kind == "convex" else cp.min)(cp.hstack([w.write(p) for p in s.premises]))
    ),
    "norm of convex functions": Writer.norm,
    "concave mean": Writer.norm,
    "harmonic mean": Writer.norm,
    "positive factor": lambda w, s: cp.multiply(w.number(s.node), w.write(s.premises[0])),
    "norm of an affine map": norm_of_map,
    "one positive eigenvalue": sheet,
    "quadratic over affine": over_affine,
    "ratios of one variable": line_ratio,
    "quadratic part": Writer.parts,
    "blocks without common variables": Writer.parts,
    "terms of the same variables": Writer.parts,
    "without affine terms": Writer.parts,
    "multiplied out": lambda w, s: w.write(s.premises[0]),
    "logarithms collected": lambda w, s: w.write(s.premises[0]),
    "perspective": Writer.perspective,
    "composition": Writer.composition,
    "shifted variables": Writer.shifted,
    "inverse of a 2 by 2 matrix": matrix_fraction,
    "weighted trace of a 2 by 2 inverse": trace_inverse,
    **dict.fromkeys(_POWERS, Writer.power),
}
