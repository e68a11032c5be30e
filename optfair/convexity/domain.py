"""Where an expression is looked at: bounds, rows that were proved, and ranges that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from optfair.convexity.expression import (
    Call,
    Leaf,
    Node,
    Number,
    Opaque,
    Product,
    Sum,
    affine,
    constant_value,
    spend,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.quadratics import squared_norm
from optfair.core.labels import free_name
from optfair.core.variables import entries_at, sign_constraints
from optfair.errors import DataError, shortened

#: What facts are called that say where the expression itself is defined.
IMPLIED = "where it is defined"
# Rounds of bound propagation; entries of one fact that are propagated one by one.
ROUNDS, ENTRIES = 4, 400
# Rows that are subtracted from an affine function to bound it, its own entries, and numbers that
# multiples of rows have in all.
ROWS, COLUMNS, MULTIPLES = 64, 4096, 2**20
# Share of numbers by which their difference is rounding.
SAME = 1e-9
# CVXPY atoms without negative values.
_NONNEGATIVE = {"normNuc", "sigma_max", "MatrixFrac", "matrix_frac", "quad_over_lin", "tr_inv"} | {
    *("abs", "Pnorm", "PnormApprox", "norm1", "norm_inf", "pf_eigenvalue", "eye_minus_inv")
}


@dataclass(frozen=True, eq=False)
class Fact:
    """A convex constraint that holds: node <= 0, or node = 0 of an affine one.

    Parameters
    ----------
    name : str
        The term it comes from.
    node : Node
        A function proved convex, by itself or from facts before it.
    zero : bool
        Whether it is an equation.
    """

    name: str
    node: Node
    zero: bool = False


class _Stated:
    """The affine rows of facts, one under the other, on the entries of leaves that they have.

    Attributes
    ----------
    rows : list of dict
        Coefficients of each.
    offsets, zero : array
        What is added, and whether the row is an equation.
    """

    def __init__(self, known: Sequence[tuple[Any, float, bool, int]]) -> None:
        self.rows = [row for row, *_ in known]
        self.offsets = np.array([offset for _, offset, *_ in known])
        self.zero = np.array([zero for *_, zero, _ in known], dtype=bool)
        self._least = np.array([least for *_, least in known], dtype=int)
        self._keys = list(dict.fromkeys(key for row in self.rows for key in row))
        self._place = {key: k for k, key in enumerate(self._keys)}
        self._entries = np.zeros((len(self.rows), len(self._keys)))
        for r, row in enumerate(self.rows):
            self._entries[r, [self._place[key] for key in row]] = list(row.values())
        self._box: Interval | None = None

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> _Stated:
        """Return the rows of those facts that are affine, and not too many."""
        known = []
        for fact in facts:
            if not affine(fact.node) or fact.node.size > ROWS:
                continue
            # of one variable the box says it, up to rounding: what must be >= 0 is so exactly
            least, offset = 1 if fact.name == IMPLIED else 2, _constant(fact.node)
            rows = (_row(fact.node, r) for r in range(fact.node.size))
            known += [
                (row, float(offset[r]), fact.zero, least)
                for r, row in enumerate(rows)
                if row is not None and len(row) >= least
            ]
        return cls(known)

    def ends(self, own: Any, constant: float, low: float, high: float, box: Any) -> Any:
        """Return better ends of an affine function than those that are known.

        It is a multiple of a row and a rest.
        """
        if self._box is None:
            self._box = _boxes(self._keys, box)
        outside, others = Interval.exactly(constant), [key for key in own if key not in self._place]
        if others:
            values = Interval.exactly([own[key] for key in others])
            outside = outside + (values * _boxes(others, box)).sum()
        a = np.zeros(len(self._keys))
        for key in own.keys() - others:
            a[self._place[key]] = own[key]
        r, ratio = self.useful(a, len(own), outside, low, high)
        # the function = ratio * (row + offset) + rest, with row + offset <= 0 or = 0
        multiple, rows = Interval.exactly(ratio), Interval.exactly(self._entries[r])
        rest = Interval.exactly(a) - multiple[:, None] * rows
        ends = (rest * self._box).sum() + outside
        ends = ends - multiple * Interval.exactly(self.offsets[r])
        above, below = ((sign * ratio > 0.0) | self.zero[r] for sign in (-1.0, 1.0))
        return ends.low[above].max(initial=low), ends.high[below].min(initial=high)

    def useful(self, a: Any, count: int, outside: Interval, low: float, high: float) -> Any:
        """Return rows and multiples of them that may bound an affine function within what is known.

        In floats, so that few of all multiples that take a variable out are looked at in intervals.
        """
        box, none = cast("Interval", self._box), (np.zeros(0, dtype=np.intp), np.zeros(0))
        with np.errstate(all="ignore"):
            r, k = np.nonzero((self._entries != 0.0) & (a != 0.0))
            ratio = a[k] / self._entries[r, k]
            fits = np.isfinite(ratio) & (ratio != 0.0) & (self._least[r] <= count)
            if not fits.any():
                return none
            r, ratio = _often(r[fits], ratio[fits], MULTIPLES // a.size)
            spend(1e-4 * r.size * a.size)
            lost = ratio[:, None] * self._entries[r]
            left = np.where(np.abs(a - lost) <= SAME * (np.abs(a) + np.abs(lost)), 0.0, a - lost)
            near, far = (np.where(left == 0.0, 0.0, left * end) for end in (box.low, box.high))
            offset = ratio * self.offsets[r]
            least = np.minimum(near, far).sum(axis=1) + float(outside.low) - offset
            most = np.maximum(near, far).sum(axis=1) + float(outside.high) - offset
            # sums of as large terms are known to their rounding only: what is near is looked at
            terms = np.abs(np.where(np.isfinite(near), near, 0.0)).sum(axis=1)
            terms += np.abs(np.where(np.isfinite(far), far, 0.0)).sum(axis=1)
            ends = (e for e in (outside.low, outside.high) if np.isfinite(e))
            room = SAME * (terms + np.abs(offset) + max(map(abs, ends), default=0.0)) + 1e-300
            below = (most <= high + room) & np.isfinite(most) & ((ratio > 0.0) | self.zero[r])
            above = (least >= low - room) & np.isfinite(least) & ((ratio < 0.0) | self.zero[r])
        return r[below | above], ratio[below | above]


def _often(r: Any, ratio: Any, most: int) -> tuple[Any, Any]:
    """Return pairs of a row and a multiple once each: those that take most variables out."""
    pairs, counts = np.unique(np.stack([r, ratio]), axis=1, return_counts=True)
    pairs = pairs[:, np.argsort(-counts, kind="stable")[:most]]
    return pairs[0].astype(np.intp), pairs[1]


def _boxes(keys: Sequence[tuple[Leaf, int]], box: Any) -> Interval:
    """Return the ranges of entries of leaves."""
    each = [box(leaf)[j] for leaf, j in keys]
    return Interval(np.array([e.low for e in each]), np.array([e.high for e in each]))


class Domain:
    """A convex set of points and enclosures of what expressions can be there.

    Parameters
    ----------
    facts : iterable of Fact
        What holds. Each later one may rest on those before.

    Attributes
    ----------
    beside : tuple of Fact
        What was stated and is not known to be convex: points of a chord obey it, no proof uses it.
    unread : tuple of str
        Constraints that were stated and are not read: no chord is known to obey them.
    empty : bool
        Whether the facts exclude each other as far as ranges tell: then nothing is proved.
    """

    def __init__(
        self,
        facts: Iterable[Fact] = (),
        boxes: Any = None,
        beside: Iterable[Fact] = (),
        unread: Iterable[str] = (),
    ) -> None:
        self.facts, self.beside, self.unread = tuple(facts), tuple(beside), tuple(unread)
        self._own: dict[Leaf, Interval] = dict(boxes or {})
        self._boxes: dict[Leaf, Interval] = dict(self._own)
        self._ranges: dict[Node, Interval] = {}
        self.empty = False
        for _ in range(ROUNDS):
            if not self._propagated() or self.empty:
                break
        self._ranges.clear()
        self._stated = _Stated.of(self.facts)

    def without(self, *names: str) -> Domain:
        """Return the domain without the facts of some terms."""
        facts = [f for f in self.facts if f.name not in names]
        return Domain(facts, self._own, self.beside, self.unread)

    def extended(
        self,
        facts: Sequence[Fact] = (),
        boxes: Any = None,
        beside: Sequence[Fact] = (),
        unread: Sequence[str] = (),
    ) -> Domain:
        """Return the domain with further facts, or further leaves within boxes."""
        if not (facts or boxes or beside or unread):
            return self
        touched = any(leaf in f.node.leaves for leaf in boxes or () for f in self.facts)
        if not (facts or beside or unread or touched):
            return self._beside(boxes)
        return Domain(
            [*self.facts, *facts],
            {**self._own, **(boxes or {})},
            [*self.beside, *beside],
            [*self.unread, *unread],
        )

    def _beside(self, boxes: Any) -> Domain:
        """Return the domain with boxes of leaves that no fact knows: nothing else changes."""
        other = object.__new__(Domain)
        other.__dict__.update(self.__dict__)
        other._own, other._boxes = {**self._own, **boxes}, {**self._boxes, **boxes}
        other._ranges = {n: r for n, r in self._ranges.items() if not n.leaves & boxes.keys()}
        return other

    @property
    def names(self) -> tuple[str, ...]:
        """The terms its facts come from."""
        return tuple(dict.fromkeys(f.name for f in self.facts if f.name != IMPLIED))

    def box(self, leaf: Leaf) -> Interval:
        """Return the ranges of a leaf."""
        known = self._boxes.get(leaf)
        if known is None:
            known = Interval.of(np.full(leaf.size, -np.inf), np.full(leaf.size, np.inf))
            self._boxes[leaf] = known
        return known

    def range(self, node: Node) -> Interval:
        """Return an enclosure of each entry where the node is defined."""
        known = self._ranges.get(node)
        if known is None:
            known = self._ranges[node] = self._range(node)
        return known

    def _range(self, node: Node) -> Interval:
        if isinstance(node, Leaf):
            return self.box(node)
        if isinstance(node, Sum):
            total = Interval.exactly(node.constant)
            for M, n in node.parts:
                total = total + self.range(n).linear(M)
            return self._by_rows(node, total) if affine(node) else _by_squares(node, total)
        if isinstance(node, Product):
            out = None
            for n, a in node.factors:
                power = self.range(n).power(a)
                out = power if out is None else out * power
            if out is None:
                return Interval.exactly(np.ones(node.size))
            base = times_its_logarithm(node)
            return out if base is None else out.meet(self.range(base).call("xlogx"))
        if isinstance(node, Call):
            return self._call_range(node)
        lowest = 0.0 if type(_opaque(node)).__name__ in _NONNEGATIVE else -np.inf
        return Interval.of(np.full(node.size, lowest), np.full(node.size, np.inf))

    def _call_range(self, node: Call) -> Interval:
        args = [self.range(n) for n in node.args]
        if node.function in ("of all: maximum", "of all: minimum"):
            low = np.concatenate([np.broadcast_to(a.low, a.shape) for a in args])
            high = np.concatenate([a.high for a in args])
            best = np.max if node.function.endswith("maximum") else np.min
            return Interval.of(best(low, keepdims=True), best(high, keepdims=True))
        return args[0].call(node.function)

    def _by_rows(self, node: Sum, enclosure: Interval) -> Interval:
        """Return tighter ranges of an affine function: bounds of it minus multiples of rows."""
        stated = getattr(self, "_stated", None)  # not while they are propagated
        if stated is None or not stated.rows or node.size > ROWS:
            return enclosure
        low, high = enclosure.low.copy(), enclosure.high.copy()
        for i in range(node.size):
            own = _row(node, i)
            if own is None or len(own) > COLUMNS:
                continue
            low[i], high[i] = stated.ends(own, node.constant[i], low[i], high[i], self.box)
        return Interval(low, high)

    # --- propagation -------------------------------------------------------------------------

    def _propagated(self) -> bool:
        """Take what facts say into the boxes; return whether a bound moved much."""
        moved = False
        for fact in self.facts:
            if not np.all(self.range(fact.node).low <= 0.0):
                self.empty = True
                return False
            low = np.full(fact.node.size, 0.0 if fact.zero else -np.inf)
            moved |= self._backward(fact.node, Interval.of(low, np.zeros(fact.node.size)), 8)
        return moved

    def _backward(self, node: Node, target: Interval, depth: int) -> bool:
        if isinstance(node, Leaf):
            old = self.box(node)
            new = old.meet(target)
            if not np.all(new.low <= new.high):
                self.empty = True
                return False
            changed = (new.low != old.low) | (new.high != old.high)
            if not changed.any():
                return False
            self._boxes[node] = new
            self._ranges.clear()
            far = np.isinf(old.low) & ~np.isinf(new.low) | np.isinf(old.high) & ~np.isinf(new.high)
            width = 1e-3 * (1.0 + np.abs(new.high - new.low))
            with np.errstate(invalid="ignore"):
                far |= (new.low - old.low > width) | (old.high - new.high > width)
            return bool(far.any())
        if depth == 0 or isinstance(node, Opaque):
            return False
        if isinstance(node, Sum):
            return self._backward_sum(node, target, depth)
        if isinstance(node, Product):
            return self._backward_product(node, target, depth)
        if isinstance(node, Call) and len(node.args) == 1:
            if node.function == "exp":
                return self._backward(node.args[0], target.call("log"), depth - 1)
            if node.function == "log":
                inside = target.call("exp")
                return self._backward(node.args[0], inside, depth - 1)
            if node.function == "abs":
                most = target.high.clip(min=0.0)
                return self._backward(node.args[0], Interval(-most, most), depth - 1)
        return False

    def _backward_sum(self, node: Sum, target: Interval, depth: int) -> bool:
        total = sum(M.nnz for M, _ in node.parts)
        if not node.parts:
            return False
        stacked = sp.csr_array(sp.hstack([M for M, _ in node.parts]))
        counts = np.diff(stacked.indptr)
        inside = [self.range(n) for _, n in node.parts]
        low = np.concatenate([r.low for r in inside])
        high = np.concatenate([r.high for r in inside])
        new_low, new_high = low.copy(), high.copy()
        single = np.flatnonzero(counts == 1)
        shifted = target - Interval.exactly(node.constant)
        if single.size:
            at = stacked.indptr[single]
            own = shifted[single] / Interval.exactly(stacked.data[at])
            np.maximum.at(new_low, stacked.indices[at], own.low)
            np.minimum.at(new_high, stacked.indices[at], own.high)
        several = np.flatnonzero(counts > 1)
        if several.size and total <= ENTRIES:
            # rows of one length: a shorter one is filled with terms that are 0
            place = np.arange(int(counts.max()))
            there = place < counts[several][:, None]
            at = np.where(there, stacked.indptr[several][:, None] + place, 0)
            columns, factors = stacked.indices[at], np.where(there, stacked.data[at], 0.0)
            terms = Interval.exactly(factors) * Interval(low[columns], high[columns])
            # where two others have no end, nothing is known of a term
            telling = np.isneginf(terms.low).sum(axis=1) < 2
            telling |= np.isposinf(terms.high).sum(axis=1) < 2
            there, columns, factors = there[telling], columns[telling], factors[telling]
            own = _others(terms[telling], shifted[several[telling]])[there]
            own = own / Interval.exactly(factors[there])
            np.maximum.at(new_low, columns[there], own.low)
            np.minimum.at(new_high, columns[there], own.high)
        moved, start = False, 0
        for _, n in node.parts:
            stop = start + n.size
            if (new_low[start:stop] > low[start:stop]).any() or (
                new_high[start:stop] < high[start:stop]
            ).any():
                part = Interval(new_low[start:stop], new_high[start:stop])
                moved |= self._backward(n, part, depth - 1)
                if self.empty:
                    return False
            start = stop
        return moved

    def _backward_product(self, node: Product, target: Interval, depth: int) -> bool:
        powers = [self.range(n).power(a) for n, a in node.factors]
        moved = False
        for k, (n, a) in enumerate(node.factors):
            own = target
            for other, power in enumerate(powers):
                if other != k:
                    if not (power.low > 0.0).all():
                        break
                    own = own / power
            else:
                inverse = self._root(self.range(n), own, a)
                if inverse is not None:
                    moved |= self._backward(n, inverse, depth - 1)
        return moved

    def _root(self, base: Interval, target: Interval, a: Fraction) -> Interval | None:
        """Return where n can be when n**a is in the target; of no whole number n is not negative."""
        positive = bool((base.low >= 0.0).all()) or a.denominator > 1
        if a < 0:
            if positive and (target.high > 0.0).all():
                return self._root(
                    base, Interval(target.low.clip(min=0.0), target.high).reciprocal(), -a
                )
            if ((target.low > 0.0) | (target.high < 0.0)).all():
                return self._root(base, target.reciprocal(), -a)
            return None
        above = Interval(target.low.clip(min=0.0), target.high.clip(min=0.0)).power(1 / a)
        if positive:
            return above
        if int(a) % 2 == 0:
            return Interval(-above.high, above.high)
        below = Interval((-target.high).clip(min=0.0), (-target.low).clip(min=0.0)).power(1 / a)
        low = np.where(target.low < 0.0, -below.high, above.low)
        return Interval(low, np.where(target.high > 0.0, above.high, -below.low))


def number_of(parameter: Any) -> Number:
    """Return the node of a CVXPY parameter."""
    uid, shape = ("parameter", parameter.id), tuple(parameter.shape)
    return Number(uid, parameter.name(), int(parameter.size), shape)


def inverse_of(below: Any, e: Any) -> Any:
    """Return one over the numbers that an expression divides by, as CVXPY itself computes it."""
    if (below == 0.0).any():
        raise DataError(f"{shortened(e)} divides by 0", remedy="take that entry out")
    return 1.0 / below


def signs_of(parameters: Iterable[Any]) -> dict[Leaf, Interval]:
    """Return where parameters lie by what was declared of them, whatever their values."""
    boxes: dict[Leaf, Interval] = {}
    for p in parameters:
        a, tiny = p.attributes, 5e-324
        boolean = a.get("boolean") is True  # of all entries
        low = tiny if a.get("pos") else 0.0 if a.get("nonneg") or boolean else -np.inf
        high = -tiny if a.get("neg") else 0.0 if a.get("nonpos") else 1.0 if boolean else np.inf
        boxes[number_of(p)] = Interval.of(np.full(p.size, low), np.full(p.size, high))
    return boxes


def times_its_logarithm(node: Node) -> Node | None:
    """Return x of x log x, None of anything else."""
    if isinstance(node, Call) and node.function == "xlogx":
        return node.args[0]
    if not isinstance(node, Product) or [a for _, a in node.factors] != [1, 1]:
        return None
    for (x, _), (log, _) in (node.factors, node.factors[::-1]):
        if isinstance(log, Call) and log.function == "log" and log.args[0] is x:
            return x
    return None


def _by_squares(node: Sum, enclosure: Interval) -> Interval:
    """Return ranges of a sum that is a squared norm, which no signs of its terms may show."""
    if node.size > 1 or enclosure.low[0] >= 0.0 or not squared_norm(node):
        return enclosure
    return Interval(np.maximum(enclosure.low, 0.0), enclosure.high)


def _others(terms: Interval, total: Interval) -> Interval:
    """Return what every term of each row is when all add up to a total: that less the others."""
    width = terms.shape[1]
    flipped = terms[:, ::-1]
    # from the left the total less terms, from the right the sum of terms: both in one array
    steps = Interval(np.stack([-terms.high, flipped.low]), np.stack([-terms.low, flipped.high]))
    zero = np.zeros(terms.shape[0])
    sums = [Interval(np.stack([total.low, zero]), np.stack([total.high, zero]))]
    for k in range(width - 1):
        sums.append(sums[-1] + steps[:, :, k])
    low, high = np.stack([s.low for s in sums], -1), np.stack([s.high for s in sums], -1)
    return Interval(low[0], high[0]) - Interval(low[1, :, ::-1], high[1, :, ::-1])


def _opaque(node: Node) -> Any:
    return node.expression if isinstance(node, Opaque) else None


def _constant(node: Node) -> Any:
    return node.constant if isinstance(node, Sum) else np.zeros(node.size)


def _row(node: Node, i: int) -> dict[tuple[Leaf, int], float] | None:
    """Return the coefficients of one entry of an affine node on entries of leaves."""
    if isinstance(node, Leaf):
        return {(node, i): 1.0}
    if not isinstance(node, Sum) or constant_value(node) is not None:
        return None
    row: dict[tuple[Leaf, int], float] = {}
    for M, n in node.parts:
        if not isinstance(n, Leaf):
            return None
        for p in range(M.indptr[i], M.indptr[i + 1]):
            key = (n, int(M.indices[p]))
            if key in row:
                return None
            row[key] = float(M.data[p])
    return row


def attribute_constraints(expression: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return constraints, and what the attributes of the variables of an expression say."""
    said = dict(named)
    for v in expression.variables():
        name, a = v.name(), v.attributes
        own = sign_constraints(name, v, v)
        if a["boolean"] is not True and len(v.boolean_idx):
            part = entries_at(v, v.boolean_idx)
            own |= {f"{name} boolean lower": part >= 0, f"{name} boolean upper": part <= 1}
        for word, sign in (("PSD", 1.0), ("NSD", -1.0)):
            if a[word]:
                own[f"{name} diagonal"] = sign * cp.diag(v) >= 0
        for label, c in own.items():
            said[free_name(label, said)] = c
    return said
