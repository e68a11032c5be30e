"""Rules of curvature: what has to hold for a node to be convex or concave on a domain.

Every rule is one function that both the search and the check call: it returns what remains to be
proved, and nothing where its own conditions do not hold on the ranges of the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from optfair.convexity.algebra import Algebra, is_written_positive
from optfair.convexity.derivatives import derivatives
from optfair.convexity.domain import times_its_logarithm
from optfair.convexity.expression import (
    Call,
    Leaf,
    Node,
    Opaque,
    Product,
    Sum,
    affine,
    constant_value,
    diagonal_only,
    linear,
    matrix,
    select,
)
from optfair.convexity.intervals import Interval
from optfair.core.problem_class import follows_rules
from optfair.numbers import Floats

Kind = Literal["convex", "concave"]
Needs = Callable[[Node, Kind, Algebra, Any], "Sequence[Goal] | None"]

#: A vector is taken apart into so many entries at most.
ENTRIES = 64
# Numbers of two sums up to which they are compared, as fractions.
MANY = 1_000


@dataclass(frozen=True, eq=False)
class Goal:
    """A claim: every entry of a node is convex, or concave, on a domain.

    Parameters
    ----------
    node : Node
        What it is about.
    kind : {"convex", "concave"}
        What is claimed.
    boxes : tuple of (Leaf, Interval)
        Leaves that stand for parts, and where they lie.
    """

    node: Node
    kind: Kind
    boxes: tuple[tuple[Leaf, Interval], ...] = ()

    @property
    def key(self) -> Any:
        """What tells goals apart."""
        boxes = tuple((leaf.serial, i.low.tobytes(), i.high.tobytes()) for leaf, i in self.boxes)
        return self.node, self.kind, boxes


@dataclass(frozen=True)
class Rule:
    """A rule and its condition.

    Attributes
    ----------
    name : str
        What proofs call it.
    states : str
        The theorem in a line.
    example : str
        An expression, bounds and vectors to which it applies, ``"text | bounds | v=4"``.
    needs : callable
        (node, kind, algebra, data) -> goals that imply the claim, None where it does not apply.
    """

    name: str
    states: str
    example: str
    needs: Needs = field(repr=False)


#: All rules by name, in the order in which they are tried.
RULES: dict[str, Rule] = {}


def rule(name: str, states: str, example: str = "") -> Callable[[Needs], Needs]:
    """Enter a function into the table of rules."""

    def enter(needs: Needs) -> Needs:
        RULES[name] = Rule(name, states, example, needs)
        return needs

    return enter


def arrange(modules: Sequence[str]) -> None:
    """Put the table in the order of its modules, whichever was imported first."""
    ordered = sorted(RULES.values(), key=lambda r: modules.index(r.needs.__module__))
    RULES.clear()
    RULES.update((r.name, r) for r in ordered)


def opposite(kind: Kind) -> Kind:
    """Return the other curvature."""
    return "concave" if kind == "convex" else "convex"


def along(kind: Kind, sign: float) -> Kind:
    """Return the curvature that a factor of this sign asks for."""
    return kind if sign > 0 else opposite(kind)


# --- leaves, sums --------------------------------------------------------------------------------


@rule("affine", "affine functions and numbers are convex and concave", "2*x - y + exp(x)*exp(x)")
def _affine(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    return [] if affine(node) or not node.leaves else None


@rule(
    "sum",
    "a sum is convex when the terms with positive coefficients are convex and those with negative ones concave",
    "exp(x)*exp(x) - log(y) | y>=1",
)
def _terms(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Sum) or affine(node):
        return None
    goals = []
    for M, n in node.parts:
        if affine(n) or not n.leaves:
            continue
        for sign in (1.0, -1.0):
            columns = np.unique(M.indices[sign * M.data > 0.0])
            if columns.size:
                goals.append(Goal(select(n, columns), along(kind, sign)))
    return goals


@rule(
    "composition rules of CVXPY",
    "an atom of CVXPY whose arguments obey its rules (Grant, Boyd, Ye 2006)",
    "exp(x) + y",
)
def _opaque(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Opaque):
        return None
    return [] if follows_rules(node.expression, kind) else None


@rule(
    "entries",
    "a vector is convex when every entry is",
    "sum(1/(1 + [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 2]*v*v)) | v>=-0.3, v<=0.3 | v=17",
)
def _entries(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not 1 < node.size <= ENTRIES or isinstance(node, Opaque) or affine(node):
        return None
    return [Goal(select(node, [i]), kind) for i in range(node.size)]


# --- products of powers --------------------------------------------------------------------------


def signed_factors(
    node: Node, kind: Kind, a: Algebra
) -> tuple[Kind, list[tuple[Node, Fraction]]] | None:
    """Return a product as powers of nodes that are not negative, and the curvature to show.

    Constants are dropped: they are positive factors. None where a base changes its sign.
    """
    if node not in a.factors:
        a.factors[node] = _signed(node, a)
    signed = a.factors[node]
    return None if signed is None else (along(kind, signed[0]), list(signed[1]))


def _signed(node: Node, a: Algebra) -> tuple[float, list[tuple[Node, Fraction]]] | None:
    if not isinstance(node, Product):
        return None
    sign, factors = 1.0, list[tuple[Node, Fraction]]()
    for n, p in node.factors:
        value = constant_value(n) if not n.leaves else None
        if value is not None and (value > 0.0).all():
            continue
        if a.nonnegative(n):
            factors.append((n, p))
        elif p.denominator == 1 and a.nonpositive(n):
            factors.append((a.scaled(-1.0, n), p))
            sign *= (-1.0) ** (int(p) % 2)
        elif p.denominator == 1 and p > 0 and int(p) % 2 == 0:
            factors.append((a.call("abs", [n], n.size), p))
        else:
            return None
    return (sign, factors) if factors else None


def grows(node: Node, leaves: set[Leaf]) -> bool:
    """Whether a positive function is known to grow with some leaves, or has none of them."""
    if not node.leaves & leaves or isinstance(node, Leaf):
        return True
    if isinstance(node, Sum):
        return all(
            not n.leaves & leaves or (bool((M.data >= 0.0).all()) and grows(n, leaves))
            for M, n in node.parts
        )
    if isinstance(node, Product):
        within = [(n, p) for n, p in node.factors if n.leaves & leaves]
        return all(map(is_written_positive, node.below)) and all(
            p > 0 and grows(n, leaves) for n, p in within
        )
    increasing = isinstance(node, Call) and (
        node.function in ("exp", "log") or node.function.startswith("of all: ")
    )
    return increasing and all(grows(n, leaves) for n in node.below)


def is_exponential(node: Node) -> bool:
    """Return whether a node is an exponential."""
    return isinstance(node, Call) and node.function == "exp"


# --- exponentials and logarithms -----------------------------------------------------------------


@rule("exponential", "exp f is convex for f convex", "exp(x*x)")
def _exp(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not (is_exponential(node) and isinstance(node, Call)) or kind == "concave":
        return None
    return [Goal(node.args[0], "convex")]


def _log_of(node: Node) -> Node | None:
    return node.args[0] if isinstance(node, Call) and node.function == "log" else None


@rule("logarithm", "log f is concave for f concave, f > 0", "log(1 - x*x) | x>=-0.9, x<=0.9")
def _log(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    f = _log_of(node)
    return None if f is None or kind == "convex" else [Goal(f, "concave")]


@rule(
    "logarithm of a product",
    "log(f^a g^b) = a log f + b log g for f, g > 0",
    "log(x*y) | x>=0.1, y>=0.1",
)
def _log_product(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    f = _log_of(node)
    if isinstance(f, Sum) and len(f.parts) == 1 and not f.constant.any():
        M, inner = f.parts[0]
        if (M.data > 0.0).all() and (np.diff(M.indptr) == 1).all():
            return [Goal(a.call("log", [select(inner, M.indices)], node.size), kind)]
        return None
    if not isinstance(f, Product):
        return None
    signed = signed_factors(f, "convex", a)
    if signed is None or signed[0] != "convex":
        return None
    if any(
        isinstance(n, Call) and n.function == "abs" and n not in [m for m, _ in f.factors]
        for n, _ in signed[1]
    ):
        return None
    if not all(a.positive(n) or affine(n) or is_exponential(n) for n, _ in signed[1]):
        return None
    return [Goal(a.call("log", [n], n.size), along(kind, float(p))) for n, p in signed[1]]


@rule(
    "logarithm as a sum",
    "log(f^a g^b) is the function a log f + b log g",
    "log(x/(1 - x)) | x>=0.5, x<=0.98",
)
def _log_as_sum(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    f = _log_of(node)
    goals = None if f is None else _log_product(node, kind, a, data)
    if goals is None or not isinstance(f, Product):
        return None
    signed = signed_factors(f, "convex", a)
    if signed is None or any(Fraction(float(p)) != p for _, p in signed[1]) or len(goals) < 2:
        return None
    total = a.total([g.node for g in goals], [float(p) for _, p in signed[1]])
    return [Goal(total, kind)]


@rule(
    "log-sum-exp",
    "log(c + sum of c_i f_i) is convex where every log f_i is, c_i > 0",
    "log(1 + exp(x) + exp(y))",
)
def _log_sum(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    f = _log_of(node)
    if not isinstance(f, Sum) or kind == "concave" or (f.constant < 0.0).any():
        return None
    goals = []
    for M, n in f.parts:
        if (M.data < 0.0).any():
            return None
        if not n.leaves:
            if not a.nonnegative(n):
                return None
            continue
        used = select(n, np.unique(M.indices))
        if not a.nonnegative(used) or not (
            a.positive(used) or is_exponential(used) or _concave_positive(used, a)
        ):
            return None
        goals.append(Goal(a.call("log", [used], used.size), "convex"))
    return goals


def _concave_positive(node: Node, a: Algebra) -> bool:
    """Whether a node is a product that is positive wherever it is defined."""
    if not isinstance(node, Product):
        return False
    return all(
        p < 0 or a.positive(n) or is_exponential(n) for n, p in node.factors
    ) and a.nonnegative(node)


@rule(
    "logarithm of a difference of exponentials",
    "log(c e^f - sum of c_i e^g_i) = f + log(c - sum of c_i e^(g_i - f)) for f affine",
    "log(exp(x) - exp(y)) | x>=1, x<=2, y<=0",
)
def _log_difference(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    f = _log_of(node)
    if not isinstance(f, Sum) or f.size != 1 or kind == "convex":
        return None
    lead = [(M, n) for M, n in f.parts if is_exponential(n) and n.size == 1 and M.data[0] > 0.0]
    others = [
        (M, n) for M, n in f.parts if not (is_exponential(n) and n.size == 1 and M.data[0] > 0.0)
    ]
    if len(lead) != 1 or (not others and not f.constant.any()):
        return None
    (M, n) = lead[0]
    if not isinstance(n, Call) or not affine(n.args[0]):
        return None
    inverse = a.call("exp", [a.scaled(-1.0, n.args[0])], 1)
    if any(m.size != 1 for _, m in others):
        return None
    parts = [(N, a.product([(m, Fraction(1)), (inverse, Fraction(1))])) for N, m in others]
    if f.constant.any():
        parts.append((matrix(sp.csr_array(f.constant[:, None])), inverse))
    return [Goal(a.call("log", [linear(parts, M.data)], 1), "concave")]


@rule("entropy", "f log(c f) is convex for f affine, f >= 0, c > 0", "x*log(x) | x>=0.1")
def _entropy(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if kind == "concave":
        return None
    if isinstance(node, Call) and node.function == "xlogx":
        return [] if affine(node.args[0]) else None
    if (
        not isinstance(node, Product)
        or len(node.factors) != 2
        or any(p != 1 for _, p in node.factors)
    ):
        return None
    for (n, _), (m, _) in (node.factors, node.factors[::-1]):
        inner = _log_of(m)
        if inner is None or not affine(n) or not a.nonnegative(n):
            continue
        if positive_multiple(inner, n) is not None:
            return []
    return None


def positive_multiple(node: Node, base: Node) -> Floats | None:
    """Return c > 0 with node = c base, entry by entry, None where it is no such multiple."""
    if node is base:
        return np.ones(node.size)
    if not isinstance(node, Sum):
        return None
    if len(node.parts) == 1 and not node.constant.any():
        M, inner = node.parts[0]
        if inner is base and diagonal_only(M) and (M.data > 0.0).all():
            return np.asarray(M.data, dtype=float)
    if not isinstance(base, Sum) or [n for _, n in node.parts] != [n for _, n in base.parts]:
        return None
    if node.size * (1 + sum(n.size for _, n in node.parts)) > MANY:
        return None
    pairs = [(node.constant[:, None], base.constant[:, None])]
    pairs += [
        (M.toarray(), N.toarray()) for (M, _), (N, _) in zip(node.parts, base.parts, strict=True)
    ]
    left, right = (np.hstack(side) for side in zip(*pairs, strict=True))
    if not right.any(axis=1).all():
        return None
    lead = np.abs(right).argmax(axis=1)
    for row, own, k in zip(left, right, lead, strict=True):
        c = Fraction(float(row[k])) / Fraction(float(own[k]))
        if c <= 0 or any(
            Fraction(float(u)) != c * Fraction(float(v)) for u, v in zip(row, own, strict=True)
        ):
            return None
    at = np.arange(node.size)
    return np.asarray(left[at, lead] / right[at, lead])


@rule(
    "entropy, nondecreasing", "f log f is convex for f convex, f >= 1/e", "(1 + x*x)*log(1 + x*x)"
)
def _entropy_above(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if kind == "concave":
        return None
    base = times_its_logarithm(node)
    if base is None or not (a.domain.range(base).low >= 0.36787944117144239).all():
        return None
    return [Goal(base, "convex")]


# --- functions of one argument -------------------------------------------------------------------


@rule("absolute value", "|f| is convex for f affine", "abs(x - y)*abs(x - y)*abs(x - y)")
def _abs(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Call) or node.function != "abs" or kind == "concave":
        return None
    return [] if affine(node.args[0]) else None


@rule(
    "maximum",
    "max f_i is convex for f_i convex, min f_i concave for f_i concave",
    "maximum(x*x, y)",
)
def _extreme(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Call) or not node.function.startswith("of all: "):
        return None
    if (node.function == "of all: maximum") != (kind == "convex"):
        return None
    return [Goal(n, kind) for n in node.args]


_SMOOTH = ("sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "atan")


def curvature_of(function: str, x: Interval) -> tuple[bool, bool]:
    """Return whether an elementary function is convex, and concave, on all given intervals."""
    if function in ("sinh", "tan"):  # tan'' has the sign of tan, also beyond the first branch
        value = x.call("tan") if function == "tan" else x
        return bool((value.low >= 0.0).all()), bool((value.high <= 0.0).all())
    if function in ("tanh", "asinh", "atan"):
        return bool((x.high <= 0.0).all()), bool((x.low >= 0.0).all())
    if function == "cosh":
        return True, False
    second = derivatives(function, x, 2)[2]
    return bool((second.low >= 0.0).all()), bool((second.high <= 0.0).all())


def slope_of(function: str, x: Interval) -> tuple[bool, bool]:
    """Return whether an elementary function is nondecreasing, and nonincreasing, on intervals."""
    if function in ("sinh", "tanh", "asinh", "atan", "tan"):
        return True, False
    first = derivatives(function, x, 1)[1]
    return bool((first.low >= 0.0).all()), bool((first.high <= 0.0).all())


@rule(
    "function of one argument",
    "phi(f) is convex for phi convex on the range of f and f affine, or phi nondecreasing and f convex, or phi nonincreasing and f concave",
    "tan(x) | x>=0, x<=1.4",
)
def _function(node: Node, kind: Kind, a: Algebra, data: Any) -> Sequence[Goal] | None:
    if not isinstance(node, Call) or node.function not in _SMOOTH:
        return None
    x = a.domain.range(node.args[0])
    if node.function == "tan" and not np.isfinite(x.call("tan").low).all():
        return None
    if not curvature_of(node.function, x)[kind == "concave"]:
        return None
    inner = node.args[0]
    if affine(inner):
        return []
    up, down = slope_of(node.function, x)
    if up:
        return [Goal(inner, kind)]
    return [Goal(inner, opposite(kind))] if down else None
