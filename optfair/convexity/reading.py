"""From CVXPY's trees to the normal form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression, multiply
from cvxpy.atoms.affine.wraps import Wrap
from cvxpy.constraints import PSD, SOC, Equality, Inequality, NonNeg, NonPos, Zero

from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import IMPLIED, Domain, Fact, inverse_of, number_of
from optfair.convexity.expression import (
    SPLIT,
    Call,
    Leaf,
    Node,
    Product,
    affine,
    constant,
    constant_value,
    diagonal,
    linear,
    opaque,
    raw_call,
    select,
    stacked,
    subnodes,
    text,
)
from optfair.core.expressions import dense
from optfair.core.quadratics import atom_matrix
from optfair.core.term import count_of, matrix_product
from optfair.errors import DataError, shortened

# Arguments of a maximum that are compared with each other.
UNDER = 8
# Products of two matrices of variables are written out up to so many scalar products.
LARGEST = 200_000
# Entries of the matrix of a quadratic form.
FORM = 1_000_000


def leaf_of(variable: Any) -> Leaf:
    """Return the leaf of a CVXPY variable."""
    uid, size, shape = ("variable", variable.id), int(variable.size), tuple(variable.shape)
    return Leaf(uid, variable.name(), size, shape)


def exponent(p: Any) -> Fraction:
    """Return the exponent that a number means: the simplest fraction that rounds to it.

    Examples
    --------
    >>> exponent(1 / 3), exponent(1.5), exponent(0.123456789).denominator > 1024
    (Fraction(1, 3), Fraction(3, 2), True)
    """
    value = getattr(p, "value", p)
    if value is None:
        raise DataError(f"the exponent {p} has no value", remedy="give the parameter a value")
    value = float(value)
    simple = Fraction(value).limit_denominator(1024)
    return simple if float(simple) == value else Fraction(value)


class Reading:
    """An expression in normal form, and where it was looked at.

    Attributes
    ----------
    node : Node
        The expression.
    domain : Domain
        With what the expression's own functions demand of affine arguments.
    curved : tuple of Node
        What else must not be negative and does not show it in the node: of x**3 on no convex set.
    """

    def __init__(self, node: Node, domain: Domain, curved: tuple[Node, ...] = ()) -> None:
        self.node, self.curved = node, curved
        beside = [Fact(IMPLIED, Algebra(domain).scaled(-1.0, g)) for g in self.curved]
        self.domain = domain.extended(beside=beside)


def read(expression: Any, domain: Domain) -> Reading:
    """Return an expression in normal form on a domain.

    Raises
    ------
    DataError
        A part is defined nowhere on the stated bounds, or a denominator of known sign changes
        it between them.
    """
    for _ in range(3):
        reader = Reader(domain)
        node = reader.node(expression)
        new = [f for f in reader.implied if not any(f.node is g.node for g in domain.facts)]
        if not new:
            break
        domain = domain.extended(new)
    reader.refuse_lost(node)
    limited = limits(subnodes(node)).items()
    shown = {base for (part, zero), base in limited if isinstance(part, Call) or not zero}
    curved = [g for g in reader.hidden if not affine(g) and g not in shown]
    return Reading(node, domain, tuple(dict.fromkeys(curved)))


def demanded(expression: Any, domain: Domain) -> list[Fact]:
    """Return that no argument is negative where a function asks for it, convex or not: x**3 does."""
    reader = Reader(domain)
    reader.node(expression)
    return [Fact(IMPLIED, reader.algebra.scaled(-1.0, node)) for node in reader.demands]


def read_constraint(name: str, constraint: Any, domain: Domain) -> list[Fact]:
    """Return what an equality or inequality says, without asking whether it is convex.

    First that no affine argument is negative where a function asks for it: of sqrt(x) >= 2 that x is not.
    """
    reader, facts = Reader(domain), list[Fact]()
    equal = isinstance(constraint, (Equality, Zero))
    if equal or isinstance(constraint, (Inequality, NonPos)):
        facts = [Fact(name, reader.node(constraint.expr), zero=equal)]
    elif isinstance(constraint, NonNeg):
        facts = [Fact(name, reader.node(-constraint.args[0]))]
    elif isinstance(constraint, SOC) and constraint.args[0].size == 1:
        t, x = constraint.args
        facts = [Fact(name, reader.node(cp.norm(cp.vec(x, order="F"), 2) - t))]
    for fact in facts:
        reader.refuse_lost(fact.node)
    return [Fact(name, f.node) for f in reader.implied] + facts if facts else []


def diagonal_facts(name: str, constraint: Any) -> list[Fact]:
    """Return that no entry on the diagonal of an affine matrix is negative, which a cone says beside others."""
    matrix = constraint.args[0] if isinstance(constraint, PSD) else None
    if matrix is None or matrix.ndim != 2 or not matrix.is_affine():
        return []
    return [Fact(name, Reader(Domain()).node(-cp.diag(matrix)))]


class Reader:
    """Reads expressions on one domain.

    Attributes
    ----------
    implied : list of Fact
        What functions that were read demand of affine arguments.
    demands : list of Node
        Arguments that must not be negative.
    hidden : list of Node
        Those of functions whose normal form is defined beyond: x**3 is x x x there.
    """

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.demands: list[Node] = []
        self.hidden: list[Node] = []
        self.algebra = Algebra(domain)
        self.implied: list[Fact] = []
        self._known: dict[int, tuple[Any, Node]] = {}
        self._parts: dict[Node, int] = {}

    def node(self, e: Any) -> Node:
        """Return an expression as a vector of its entries, column by column."""
        known = self._known.get(id(e))
        if known is None:
            known = self._known[id(e)] = e, self._read(e)
            subnodes(known[1], self._parts)
        return known[1]

    @property
    def known_parts(self) -> dict[Node, Any]:
        """What was read that composition rules know to be convex or concave, flat, by its node."""
        return {
            node: cp.vec(e, order="F")
            for e, node in self._known.values()
            if node.leaves and (e.is_convex() or e.is_concave()) and not e.is_complex()
        }

    def refuse_lost(self, node: Node) -> None:
        """Refuse an expression whose value does not show any more where it is defined.

        Raises
        ------
        DataError
            As of log(x*x - 1) - log(x*x - 1): the set where it is defined is not convex.
        """
        kept = limits(subnodes(node))
        for part, base in limits(self._parts).items():
            if part not in kept and not self._everywhere(part, base):
                entries = {(s, z) for k, z in kept for s in _each(k)}
                if base.size > 1 and all((s, part[1]) in entries for s in _each(part[0])):
                    continue
                raise DataError(
                    f"{text(part[0])} cancels out, and with it where the expression is defined",
                    f"only where {text(base)} {'is not 0' if part[1] else 'is not negative'}",
                    "write the expression without it, or state the sign of that part",
                )

    def _everywhere(self, part: tuple[Node, bool], base: Node) -> bool:
        """Whether the set where a part is defined is convex as far as signs tell."""
        call = isinstance(part[0], Call)
        if affine(base) and (call or not part[1]):
            return True  # a half-space, which is a fact
        if part[1] and not call:
            return self.algebra.cancels(base)
        return self.algebra.positive(base) if call else self.algebra.nonnegative(base)

    def _read(self, e: Any) -> Node:
        if _known(e) and not e.is_complex():
            return constant(np.ravel(np.real(dense(e.value, None)), order="F"))
        if e.is_complex() or any(a.is_complex() for a in e.args):
            if not e.is_complex() and (e.is_convex() or e.is_concave()):
                return self._opaque(e)
            raise DataError(
                f"{shortened(e)} has complex parts, of which only composition rules are known",
                remedy="write it with real variables for the real and the imaginary parts",
            )
        if isinstance(e, cp.Variable):
            return _structured(e)
        if isinstance(e, cp.Parameter):
            return number_of(e)
        name = type(e).__name__.replace("Approx", "")
        if name in _OF_ONE and e.size != 1:
            return self._opaque(e)
        if name in _READERS:
            return _READERS[name](self, e)
        if isinstance(e, DivExpression):
            return self._quotient(e)
        if isinstance(e, multiply):
            return self._times(e)
        if isinstance(e, MulExpression):
            return self._matmul(e)
        if isinstance(e, AffAtom):
            return self._affine_atom(e)
        return self._opaque(e)

    def _opaque(self, e: Any) -> Node:
        return opaque(e, [leaf_of(v) for v in e.variables()])

    # --- what CVXPY combines -------------------------------------------------------------------

    def _affine_atom(self, e: Any) -> Node:
        """Return an affine function of what is below it, as CVXPY itself computes it."""
        name = type(e).__name__
        if name == "AddExpression" and all(a.shape in (e.shape, ()) for a in e.args):
            nodes = [self._promoted(self.node(a), e.size) for a in e.args]
            return self.algebra.total(nodes)
        if name == "NegExpression":
            return self.algebra.scaled(-1.0, self.node(e.args[0]))
        if name == "Sum" and e.size == 1:
            return _summed(self.node(e.args[0]))
        if name == "Promote":
            return self._promoted(self.node(e.args[0]), e.size)
        if name == "index":
            at = e.numeric([count_of(e.args[0].shape)])
            return select(self.node(e.args[0]), np.ravel(at, order="F"))
        if isinstance(e, Wrap) or name in ("real", "conj"):
            return self.node(e.args[0])
        if name == "imag":
            return constant(np.zeros(e.size))
        made = atom_matrix(e)
        if made is None:
            return self._opaque(e)
        A, starts = sp.csc_array(made[0]), np.cumsum([0, *(a.size for a in made[2])])
        parts = zip(starts[:-1].tolist(), made[2], strict=True)
        return linear([(A[:, s : s + a.size], self.node(a)) for s, a in parts], made[1])

    def _promoted(self, node: Node, size: int) -> Node:
        if node.size == size:
            return node
        return linear([(sp.csr_array(np.ones((size, 1))), node)], np.zeros(size))

    def _broadcast(self, a: Any, e: Any) -> Node:
        """Return an argument with the shape of the expression."""
        node = self.node(a)
        if a.shape == e.shape or a.size == e.size:
            return node
        if a.size == 1:
            return self._promoted(node, e.size)
        at = np.ravel(np.broadcast_to(count_of(a.shape), e.shape), order="F")
        return select(node, at)

    def _times(self, e: Any) -> Node:
        nodes = self._factors(e, e)
        numbers = [constant_value(n) for n in nodes]
        rest = [(n, Fraction(1)) for n, c in zip(nodes, numbers, strict=True) if c is None]
        out = self.algebra.product(rest) if rest else constant(np.ones(e.size))
        for c in numbers:
            out = out if c is None else self.algebra.scaled(c, out)
        return out

    def _factors(self, a: Any, e: Any) -> list[Node]:
        """Return what is multiplied entry by entry, of a chain of products all at once."""
        if isinstance(a, multiply) and a.shape == e.shape and not (_known(a) or a.is_complex()):
            return [f for b in a.args for f in self._factors(b, e)]
        return [self._broadcast(a, e)]

    def _quotient(self, e: Any) -> Node:
        left, right = (self._broadcast(a, e) for a in e.args)
        value = constant_value(right)
        inverse = None if value is None else inverse_of(value, e)
        if inverse is not None and (e.args[1].is_constant() or constant_value(left) is None):
            return self.algebra.scaled(inverse, left)  # as CVXPY itself computes it
        r = self.domain.range(right)
        if affine(right) and bool(
            ((r.low < 0.0) & (r.high > 0.0) & np.isfinite(r.low) & np.isfinite(r.high)).any()
        ):
            raise DataError(
                f"the denominator {text(right)} crosses 0",
                f"it lies between {float(r.low.min()):.4g} and {float(r.high.max()):.4g} on the stated bounds",
                "state bounds that keep its sign",
            )
        return self.algebra.product([(left, Fraction(1)), (right, Fraction(-1))])

    def _matmul(self, e: Any) -> Node:
        left, right = e.args
        if _known(left) or _known(right):
            return self._affine_atom(e)
        out, i, j = (
            np.ravel(v)
            for v in np.broadcast_arrays(
                *matrix_product(count_of(e.shape), count_of(left.shape), count_of(right.shape))
            )
        )
        if out.size > LARGEST:
            return self._opaque(e)
        products = self.algebra.product(
            [(select(self.node(left), i), Fraction(1)), (select(self.node(right), j), Fraction(1))]
        )
        M = sp.csr_array((np.ones(out.size), (out, np.arange(out.size))), shape=(e.size, out.size))
        return linear([(M, products)], np.zeros(e.size))

    # --- atoms ---------------------------------------------------------------------------------

    def demand(self, node: Node, what: str, *, fractional: bool = False) -> None:
        """Note that an argument must not be negative: of an affine one this is a half-space."""
        if constant_value(node) is not None:
            return
        r = self.domain.range(node)
        if (r.high < 0.0).any() or (what == "log" and (r.high <= 0.0).any()):
            raise DataError(
                f"{what}({text(node)}) is defined nowhere on the stated bounds",
                f"its argument is at most {float(r.high.min()):.4g}",
                "change the bounds or the expression",
            )
        if not (r.low >= 0.0).all():
            self.demands.append(node)
            if what != "log" and not fractional:
                self.hidden.append(node)
        if affine(node) and not (r.low >= 0.0).all():
            self.implied.append(Fact(IMPLIED, self.algebra.scaled(-1.0, node)))

    def _power(self, e: Any) -> Node:
        p, inner = exponent(e.p), self.node(e.args[0])
        if p == 0:
            return constant(np.ones(e.size))
        if p != 1 and not (p.denominator == 1 and p > 0 and int(p) % 2 == 0):
            self.demand(inner, "power", fractional=p.denominator > 1)
        return self.algebra.product([(inner, p)])

    def _function(self, e: Any) -> Node:
        return self.algebra.call(type(e).__name__, [self.node(e.args[0])], e.size)

    def _ceiling_below(self, e: Any) -> Node:
        """Return ceil(-x): floor(x) is its negative."""
        return self.algebra.call("ceil", [self.algebra.scaled(-1.0, self.node(e.args[0]))], e.size)

    def _logarithm(self, e: Any) -> Node:
        inner = self.node(e.args[0])
        if type(e).__name__ == "log1p":
            inner = linear([(diagonal(np.ones(inner.size)), inner)], np.ones(inner.size))
        self.demand(inner, "log")
        return self.algebra.call("log", [inner], e.size)

    def _one_minus(self, e: Any) -> Node:
        inner = self.node(e.args[0])
        left = self.algebra.total([constant(np.ones(e.size)), inner], [1.0, -1.0])
        self.demand(inner, "one_minus_pos")
        self.demand(left, "one_minus_pos")
        return left

    def _logistic(self, e: Any) -> Node:
        a = self.algebra
        inner = a.call("exp", [self.node(e.args[0])], e.size)
        return a.call("log", [a.total([inner, constant(np.ones(e.size))])], e.size)

    def _entropy(self, e: Any) -> Node:
        inner = self.node(e.args[0])
        self.demand(inner, "entr", fractional=True)
        return self.algebra.scaled(-1.0, raw_call("xlogx", [inner], e.size))

    def _relative_entropy(self, e: Any) -> Node:
        a = self.algebra
        x, y = (self._broadcast(arg, e) for arg in e.args)
        for node in (x, y):
            self.demand(node, type(e).__name__)
        log = a.call("log", [a.product([(x, Fraction(1)), (y, Fraction(-1))])], e.size)
        out = a.product([(x, Fraction(1)), (log, Fraction(1))])
        return out if type(e).__name__ == "rel_entr" else a.total([out, x, y], [1.0, -1.0, 1.0])

    def _quad_over_lin(self, e: Any) -> Node:
        a = self.algebra
        total = _summed(a.product([(self.node(e.args[0]), Fraction(2))]))
        below = self.node(e.args[1])
        value = constant_value(below)
        if value is not None:
            return a.scaled(inverse_of(value, e), total)
        self.demand(below, "quad_over_lin")
        return a.product([(total, Fraction(1)), (below, Fraction(-1))])

    def _quadratic_form(self, e: Any) -> Node:
        if not _known(e.args[1]):
            return self._opaque(e)
        P: Any = sp.csr_array(e.args[1].value)
        inner, a = self.node(e.args[0]), self.algebra
        if P.nnz > FORM:
            return self._opaque(e)
        if (P != P.T).nnz == 0 and abs(P).max() < 2.0**1000:  # each pair once
            P = sp.triu(P) + sp.triu(P, 1)
        form = sp.coo_array(P)
        low, high = np.minimum(form.row, form.col), np.maximum(form.row, form.col)
        pairs = a.product([(select(inner, low), Fraction(1)), (select(inner, high), Fraction(1))])
        return linear([(form.data[None, :], pairs)], np.zeros(1))

    def _log_sum_exp(self, e: Any) -> Node:
        terms = self.algebra.call("exp", [self.node(e.args[0])], e.args[0].size)
        return self.algebra.call("log", [_summed(terms)], 1)

    def _geometric_mean(self, e: Any) -> Node:
        if getattr(e, "axis", None) is not None:
            return self._opaque(e)
        # entries of weight 0 take no part: CVXPY asks nothing of them
        kept = np.flatnonzero(e._keep).tolist()
        inner = select(self.node(e.args[0]), kept)
        self.demand(inner, "geo_mean", fractional=True)
        return self.algebra.product([(select(inner, [i]), Fraction(w)) for i, w in enumerate(e.w)])

    def _p_norm(self, e: Any) -> Node:
        p = exponent(e.p) if math.isfinite(float(e.p)) else None
        if p is None or p == 0:
            return self._opaque(e)
        a, inner = self.algebra, self.node(e.args[0])
        if p < 1:
            self.demand(inner, "pnorm", fractional=p.denominator > 1)
        elif p.denominator > 1 or int(p) % 2:
            inner = a.call("abs", [inner], inner.size)
        return a.product([(_summed(a.product([(inner, p)])), 1 / p)])

    def _norm1(self, e: Any) -> Node:
        return _summed(self.algebra.call("abs", [self.node(e.args[0])], e.args[0].size))

    def _extreme(self, e: Any) -> Node:
        """Return max, min, norm_inf of all entries."""
        kind, inner = type(e).__name__, self.node(e.args[0])
        if kind == "norm_inf":
            inner = self.algebra.call("abs", [inner], inner.size)
        word = "of all: minimum" if kind == "min" else "of all: maximum"
        return inner if inner.size == 1 else raw_call(word, [inner], 1)

    def _pairwise(self, e: Any) -> Node:
        """Return maximum and minimum entry by entry."""
        args = [self._broadcast(a, e) for a in e.args]
        if e.size > SPLIT * SPLIT:
            return self._opaque(e)
        word = "of all: minimum" if type(e).__name__ == "minimum" else "of all: maximum"
        out = []
        for i in range(e.size):
            own = args if e.size == 1 else [select(a, [i]) for a in args]
            own = self._undominated(list(dict.fromkeys(own)), word.endswith("maximum"))
            out.append(own[0] if len(own) == 1 else raw_call(word, own, 1))
        return out[0] if e.size == 1 else stacked(out)

    def _undominated(self, args: list[Node], largest: bool) -> list[Node]:
        """Return what can be the extreme: of two whose difference has a sign, one is left out."""
        kept: list[Node] = []
        sign = 1.0 if largest else -1.0
        for n in args[:UNDER]:
            ahead = [self.domain.range(self.algebra.total([m, n], [sign, -sign])) for m in kept]
            if any((r.low >= 0.0).all() for r in ahead):
                continue
            kept = [m for m, r in zip(kept, ahead, strict=True) if not (r.high <= 0.0).all()] + [n]
        return kept + args[UNDER:]

    def _x_exp(self, e: Any) -> Node:
        inner = self.node(e.args[0])
        self.demand(inner, "xexp")
        exp = self.algebra.call("exp", [inner], e.size)
        return self.algebra.product([(inner, Fraction(1)), (exp, Fraction(1))])

    def _products_so_far(self, e: Any) -> Node:
        """Return the products of the first entries along an axis."""
        inner, axis = self.node(e.args[0]), e.axis if e.axis is not None else 0
        at = count_of(e.shape)
        if e.size > SPLIT * SPLIT:
            return self._opaque(e)
        lines = np.moveaxis(at, axis, -1).reshape(-1, e.shape[axis])
        products = {
            place: self.algebra.product((select(inner, [i]), Fraction(1)) for i in line[: k + 1])
            for line in lines.tolist()
            for k, place in enumerate(line)
        }
        return stacked([products[k] for k in range(e.size)])

    def _product_of_all(self, e: Any) -> Node:
        inner = self.node(e.args[0])
        return self.algebra.product([(select(inner, [i]), Fraction(1)) for i in range(inner.size)])


def _summed(node: Node) -> Node:
    """Return the sum of all entries of a node."""
    return linear([(np.ones((1, node.size)), node)], np.zeros(1))


def _known(e: Any) -> bool:
    """Whether an expression is a number, and not one of a parameter."""
    return bool(e.is_constant() and not e.parameters())


def _structured(variable: Any) -> Node:
    """Return a variable as what its attributes leave of its entries."""
    leaf, shape, a = leaf_of(variable), variable.shape, variable.attributes
    at = count_of(shape)
    if a.get("symmetric") or a.get("PSD") or a.get("NSD"):
        return select(leaf, np.ravel(np.minimum(at, at.swapaxes(-1, -2)), order="F"))
    if a.get("diag"):
        used = np.ravel(at[..., np.arange(shape[-1]), np.arange(shape[-1])])
    elif a.get("sparsity"):
        used = np.ravel(at[tuple(np.asarray(i) for i in variable.sparse_idx)])
    else:
        return leaf
    kept = sp.csr_array((np.ones(used.size), (used, used)), shape=(leaf.size, leaf.size))
    return linear([(kept, leaf)], np.zeros(leaf.size))


def limits(parts: Iterable[Node]) -> dict[tuple[Node, bool], Node]:
    """Return (part, whether it may not be 0) -> what limits where it is defined.

    A part is a logarithm, or the base of a power that is negative or no whole number.
    """
    out: dict[tuple[Node, bool], Node] = {}
    for n in parts:
        if isinstance(n, Call) and n.function == "log":
            out[n, True] = n.args[0]
        elif isinstance(n, Product):
            for base, p in n.factors:
                if base.leaves and p < 0:
                    out[base, True] = base
                if base.leaves and p.denominator > 1:
                    out[base, False] = base
    return out


def _each(node: Node) -> list[Node]:
    return [select(node, [i]) for i in range(node.size)]


class Unread(Exception):
    """A part of an expression is not known here: a parameter, or a function without derivatives."""


# Functions that have the same name here.
_SAME = ("exp", "abs", "sin", "cos", "tan", "sinh", "tanh", "asinh", "ceil")
_READERS: Mapping[str, Callable[[Reader, Any], Node]] = {
    **dict.fromkeys(_SAME, Reader._function),
    "Power": Reader._power,
    "floor": lambda reader, e: reader.algebra.scaled(-1.0, reader._ceiling_below(e)),
    **dict.fromkeys(("log", "log1p"), Reader._logarithm),
    "one_minus_pos": Reader._one_minus,
    "logistic": Reader._logistic,
    "entr": Reader._entropy,
    "rel_entr": Reader._relative_entropy,
    "kl_div": Reader._relative_entropy,
    "quad_over_lin": Reader._quad_over_lin,
    "QuadForm": Reader._quadratic_form,
    "log_sum_exp": Reader._log_sum_exp,
    "GeoMean": Reader._geometric_mean,
    "Pnorm": Reader._p_norm,
    "norm1": Reader._norm1,
    "norm_inf": Reader._extreme,
    "max": Reader._extreme,
    "min": Reader._extreme,
    "maximum": Reader._pairwise,
    "minimum": Reader._pairwise,
    "xexp": Reader._x_exp,
    "Prod": Reader._product_of_all,
    "cumprod": Reader._products_so_far,
}
# What is read of one entry only: along an axis these are vectors of functions.
_OF_ONE = {"quad_over_lin", "log_sum_exp", "GeoMean", "Pnorm", "norm1", "norm_inf", "Prod"}
_OF_ONE |= {"max", "min"}
