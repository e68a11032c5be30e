"""Search for proofs: which rule to try on what, within a limit of time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.convexity.algebra import Algebra
from optfair.convexity.derivatives import hessian_on
from optfair.convexity.domain import Domain
from optfair.convexity.expression import (
    Call,
    Leaf,
    Node,
    Opaque,
    Product,
    Sum,
    affine,
    entries,
    linear,
    raw_product,
    scalars,
    spend,
    subnodes,
)
from optfair.convexity.hessians import (
    BOXES,
    Boxes,
    Exponents,
    Form,
    Gram,
    bends,
    halved,
    hessian_form,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.polynomials import expanded
from optfair.convexity.proof import Step
from optfair.convexity.quadratics import few, inertia, quadratic
from optfair.convexity.rules import RULES, Goal, Kind, along
from optfair.convexity.witness import Sample, sample
from optfair.numbers import Floats

# How deep rules are applied to what rules ask for, and parts taken for variables within such.
DEPTH, NESTED = 14, 1
# Seconds that the search for boxes may take, scalars with and without cutting.
SECONDS, CUT, WHOLE = 0.5, 3, 6
# Cuts before a second look, by the number of variables.
_AT_ONCE = (4, 6, 6, 0, 0, 0)
# Rules that are tried after all others.
_LAST = (
    "log-convex",
    "sign of a polynomial",
    "one function of each entry",
    "entries",
    "shifted variables",
    "multiplied out",
    "second derivatives over boxes",
    "sum of squares",
    "fraction turned over",
    "composition",
)
# Rules that write the same function in other words: its parts are taken out of one form only.
_TWINS = ("multiplied out", "fraction turned over")


class Search:
    """Proves claims on one domain.

    Parameters
    ----------
    domain : Domain
        Where.
    seconds : float
        For everything together.

    Attributes
    ----------
    stuck : dict
        Claims that no rule decided, and what is not known of them.
    """

    def __init__(self, domain: Domain, seconds: float = 3.0) -> None:
        self.domain = domain
        self.deadline = time.thread_time() + seconds
        self.stuck: dict[Any, Goal] = {}
        self._known: dict[Any, Step | None] = {}
        self._twins: set[Any] = set()
        self._samples: dict[Any, Sample | None] = {}
        self._algebras: dict[Any, Algebra] = {(): Algebra(domain)}
        first = [name for name in RULES if name not in _LAST]
        self._order = [RULES[name] for name in (*first, *_LAST)]

    def prove(self, node: Node, kind: Kind) -> Step | None:
        """Return a proof that every entry of a node is convex, or concave."""
        if self.domain.empty:
            return None
        return self._prove(Goal(node, kind), self.domain, (), 0)

    def _prove(self, goal: Goal, domain: Domain, context: Any, depth: int) -> Step | None:
        if goal.boxes:
            domain = domain.extended(boxes=dict(goal.boxes))
            context = (*context, goal.key[2])
        key = (*goal.key, context)
        if key in self._known:
            return self._known[key]
        if depth > DEPTH or time.thread_time() > self.deadline:
            return None
        self._known[key] = None  # what rests on itself is no proof
        algebra = self._algebras.setdefault(context, Algebra(domain))
        asked = False
        for own in self._order:
            if own.name == _LAST[0] and self._broken(goal, domain, context):
                break
            if own.name == "composition" and (len(context) >= NESTED or key in self._twins):
                continue
            if own.name == "shifted variables" and depth:  # of the whole, or of nothing
                continue
            for data in self._proposals(own.name, goal, algebra):
                spend(0.2)
                if own.name == "composition" and not self._bent(goal, data, domain, context, depth):
                    continue
                goals = own.needs(goal.node, goal.kind, algebra, data)
                if goals is None:
                    continue
                asked = asked or bool(goals)
                if own.name in _TWINS:
                    self._twins |= {(*g.key, context) for g in goals if not g.boxes}
                premises = self._all(goals, domain, context, depth + 1)
                if premises is not None:
                    step = Step(goal, own.name, premises, data)
                    self._known[key] = step
                    return step
        if not asked:
            self.stuck[key] = goal
        return None

    def _broken(self, goal: Goal, domain: Domain, context: Any) -> bool:
        """Whether some chord speaks against a claim, in floats: then no time is spent on it."""
        sample = self.sampled(goal.node, domain, context)
        return sample is not None and sample.worst(goal.kind) is not None

    def sampled(self, node: Node, domain: Domain, context: Any = ()) -> Sample | None:
        """Return a few chords of a node, the same whenever they are asked for."""
        key = (node, context)
        if key not in self._samples:
            self._samples[key] = sample(node, domain, 200)
        return self._samples[key]

    def _bent(
        self, goal: Goal, data: tuple[Node, str], domain: Domain, context: Any, depth: int
    ) -> bool:
        """Whether a part is curved as a composition needs it: asked before the part is taken out."""
        part, way = data
        if way == "affine":
            return True
        own = Goal(part, along(goal.kind, 1.0 if way == "up" else -1.0))
        return self._prove(own, domain, context, depth + 1) is not None

    def _all(
        self, goals: Sequence[Goal], domain: Domain, context: Any, depth: int
    ) -> tuple[Step, ...] | None:
        premises: dict[int, Step] = {}
        small_first = sorted(range(len(goals)), key=lambda k: len(subnodes(goals[k].node)))
        for k in small_first if len(goals) > 1 else range(len(goals)):  # what fails, fails soon
            step = self._prove(goals[k], domain, context, depth)
            if step is None:
                return None
            premises[k] = step
        return tuple(premises[k] for k in range(len(goals)))

    def _proposals(self, name: str, goal: Goal, a: Algebra) -> Iterable[Any]:
        """Return what a rule might need to be told, None alone where it needs nothing."""
        parts: Any
        if name == "second derivatives over boxes":
            parts = self.subdivided(goal.node, goal.kind, a)
        elif name == "sum of squares":
            parts = gram(goal.node, goal.kind, self.deadline)
        else:
            return _PROPOSALS[name](goal.node, goal.kind, a) if name in _PROPOSALS else (None,)
        return () if parts is None else (parts,)

    def subdivided(self, node: Node, kind: Kind, a: Algebra) -> Boxes | None:
        """Search for boxes on each of which the curvature is proved; None when it takes too many."""
        places = tuple(entries(node))
        if node.size != 1 or not 1 <= len(places) <= WHOLE or _steps(node, a.domain):
            return None
        low = np.array([float(a.domain.box(leaf).low[j]) for leaf, j in places])
        high = np.array([float(a.domain.box(leaf).high[j]) for leaf, j in places])
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            return None
        cuts: list[NDArray[np.int8]] = []
        lows, highs, total = low[:, None], high[:, None], 1
        width = np.maximum(high - low, 1e-300)
        end = min(self.deadline, time.thread_time() + SECONDS)
        for level in range(40):
            if 0 < level <= _AT_ONCE[len(places) - 1]:  # a few large arrays instead of many small
                axis = np.argmax((highs - lows) / width[:, None], axis=0).astype(np.int8)
                cuts.append(axis)
                lows, highs = halved(lows, highs, axis.astype(int))
                total += axis.size
                continue
            good = bends(node, kind, places, Interval(lows, highs))
            if good is None:
                return None
            if good.all():
                cuts.append(np.full(good.size, -1, dtype=np.int8))
                return Boxes(places, low, high, tuple(cuts))
            total += int((~good).sum())
            if len(places) > CUT or total > BOXES or time.thread_time() > end:
                return None
            if level and _refuted(node, kind, places, lows[:, ~good], highs[:, ~good]):
                return None
            if not (highs > lows)[:, ~good].any():  # one point is not cut
                return None
            axis = np.argmax((highs - lows) / width[:, None], axis=0).astype(np.int8)
            cuts.append(np.where(good, -1, axis).astype(np.int8))
            bad = ~good
            lows, highs = halved(lows[:, bad], highs[:, bad], axis[bad].astype(int))
        return None


def _steps(node: Node, domain: Domain) -> bool:
    """Whether a function jumps within its domain: second derivatives say nothing there."""
    rounded = (n for n in subnodes(node) if isinstance(n, Call) and n.function == "ceil")
    ranges = (domain.range(n) for n in rounded if affine(n.args[0]))
    return any(bool((r.low < r.high).any()) for r in ranges)


def _refuted(
    node: Node, kind: Kind, entries: Sequence[tuple[Leaf, int]], low: Floats, high: Floats
) -> bool:
    """Whether the curvature has the other sign at the middle of a box: cutting on is no use."""
    middle = low + (high - low) / 2
    h = hessian_on(node, entries, Interval.exactly(middle))
    if h is None:
        return False
    d = np.arange(len(entries))
    ends = h.high[d, d] if kind == "convex" else -h.low[d, d]
    return bool((ends < 0.0).any())


def _sheets(node: Node, kind: Kind, a: Algebra) -> Iterator[Node]:
    """Yield affine functions of one sign that may cut a Lorentz cone."""
    is_log = isinstance(node, Call) and node.function == "log"
    is_root = isinstance(node, Product) and len(node.factors) == 1 and node.factors[0][1] < 1
    if kind == "convex" or not (is_log or is_root):
        return
    base = node.below[0]
    q = quadratic(base) if few(base) else None
    if q is None:
        return
    candidates = [
        *q.entries,
        *(n for n in subnodes(base) if affine(n) and n.leaves and n.size == 1),
    ]
    signed = [s[1] for n in dict.fromkeys(candidates) if (s := a.signed(n)) is not None]
    yield from signed
    if len(signed) > 1:
        yield a.total(signed)
    # where q has one positive eigenvalue, the polar of any point with q > 0 cuts the cone so
    middles = [float(a.domain.range(n).middle()[0]) for n in q.entries]
    at = [Fraction(v) for v in (*middles, 1.0)]
    polar = [float(sum(m * v for m, v in zip(row, at, strict=True))) for row in q.matrix]
    if np.isfinite(polar).all():
        parts = [(sp.csr_array([[c]]), n) for c, n in zip(polar, q.entries, strict=False)]
        yield linear(parts, np.array(polar[-1:]))


def _parts(node: Node, a: Algebra) -> Iterator[tuple[Node, str]]:
    """Yield parts that may be taken for a variable, and how the whole might depend on them."""
    if node.size != 1 or isinstance(node, (Leaf, Opaque)):
        return
    used = subnodes(node)
    lines = [n for n in used if affine(n) and n.leaves and not _entry(n)]
    if lines:
        wide = [n for n in lines if isinstance(n, Sum) and n.size == 1]
        # beside a function of the same variable a part is no variable of its own
        if len(wide) == 1 and not (len(scalars(wide[0])) == 1 and _beside(used, wide[0])):
            yield wide[0], "affine"
    seen = [
        n
        for n, count in used.items()
        if n is not node
        and n.size == 1
        and not affine(n)
        and n.leaves
        and (count > 1 or (isinstance(n, Call) and n.function == "abs"))
    ]
    for n in sorted(seen, key=lambda n: n.serial)[:4]:
        yield n, "up"
        yield n, "down"


def _shifts(node: Node) -> Iterator[tuple[tuple[Leaf, tuple[float, ...]], ...]]:
    """Yield what is added to most entries of leaves wherever these stand alone beside a number."""
    seen: dict[tuple[Leaf, int], dict[float, int]] = {}
    for n in subnodes(node):
        if not (isinstance(n, Sum) and len(n.parts) == 1 and n.constant.any()):
            continue
        ((M, leaf),) = n.parts
        if not isinstance(leaf, Leaf) or not leaf.leaves:
            continue
        for row in np.flatnonzero((np.diff(M.indptr) == 1) & (n.constant != 0.0)):
            at = M.indptr[row]
            shift = Fraction(float(n.constant[row])) / Fraction(float(M.data[at]))
            if Fraction(float(shift)) == shift:
                own = seen.setdefault((leaf, int(M.indices[at])), {})
                own[float(shift)] = own.get(float(shift), 0) + 1
    leaves = sorted({leaf for leaf, _ in seen}, key=lambda leaf: leaf.serial)
    if leaves:
        most = {entry: max(own, key=lambda c: own[c]) for entry, own in seen.items()}
        yield tuple(
            (leaf, tuple(most.get((leaf, j), 0.0) for j in range(leaf.size))) for leaf in leaves
        )


def _beside(used: Mapping[Node, int], part: Node) -> bool:
    """Whether the variables of a part stand in a node without it too."""
    within = subnodes(part)
    inside = sum(within[leaf] for leaf in part.leaves)
    return sum(used[leaf] for leaf in part.leaves) > inside


def _entry(node: Node) -> bool:
    """Whether an affine node is an entry of a leaf as it stands."""
    if isinstance(node, Leaf):
        return True
    return (
        isinstance(node, Sum)
        and len(node.parts) == 1
        and isinstance(node.parts[0][1], Leaf)
        and not node.constant.any()
        and bool((np.diff(node.parts[0][0].indptr) == 1).all())
        and bool((node.parts[0][0].data == 1.0).all())
    )


def _fronts(node: Node) -> Iterator[Node]:
    """Yield affine factors that may be the w of w h(u/w)."""
    if isinstance(node, Product):
        yield from (n for n, p in node.factors if p == 1 and affine(n) and n.leaves)


def _two_by_two(node: Node, *, weighted: bool) -> Iterator[tuple[Any, ...]]:
    """Yield p, q, a, b, c of a quotient that may be [p q] inv([[a, b], [b, c]]) [p q]'."""
    if not isinstance(node, Product) or node.size != 1:
        return
    below = [n for n, p in node.factors if p == -1 and not affine(n)]
    if len(below) != 1:
        return
    above = [(n, p) for n, p in node.factors if p != -1 or affine(n)]
    det, numerator = expanded(below[0]), expanded(raw_product(above)) if above else {}
    if det is None or numerator is None:
        return
    crossed = [m for m, c in det.items() if c > 0 and len(m) == 2]
    squared = [m for m, c in det.items() if c < 0 and len(m) == 1 and m[0][1] == 2]
    if len(det) != 2 or not crossed or not squared:
        return
    (x, _), (y, _) = crossed[0]
    z = squared[0][0][0]
    if weighted:
        u, v, w = (numerator.get(((n, Fraction(1)),), Fraction(0)) for n in (y, z, x))
        yield x, z, y, u, -v / 2, w
        return
    square = {
        n: (next((k for k, p in m if p == 2), None), c)
        for m, c in numerator.items()
        for n, e in m
        if n in (x, y) and e == 1 and len(m) == 2
    }
    p, q = square.get(y, (None, 0))[0], square.get(x, (None, 0))[0]
    if p is not None and q is not None:
        yield p, q, x, z, y, square[y][1]


# What rules might need to be told, by their names.
_PROPOSALS: Mapping[str, Callable[[Node, Kind, Algebra], Iterable[Any]]] = {
    "one positive eigenvalue": _sheets,
    "perspective": lambda node, kind, a: _fronts(node),
    "shifted variables": lambda node, kind, a: _shifts(node),
    "composition": lambda node, kind, a: _parts(node, a),
    "inverse of a 2 by 2 matrix": lambda node, kind, a: _two_by_two(node, weighted=False),
    "weighted trace of a 2 by 2 inverse": lambda node, kind, a: _two_by_two(node, weighted=True),
}

# --- sums of squares ------------------------------------------------------------------------------

# Monomials of a Gram matrix that is looked for.
BASIS = 40
# Least eigenvalues that are tried, in units of the largest coefficient, and steps towards them.
MARGINS, STEPS = (1e-2, 0.0), 1500
# Denominators that entries of a singular Gram matrix are rounded to.
DENOMINATORS = (1, 2, 3, 4, 6, 12, 60, 2**20)


def gram(node: Node, kind: Kind, deadline: float) -> Gram | None:
    """Search for a Gram matrix of the Hessian of a polynomial."""
    target = hessian_form(node, kind)
    if target is None:
        return None
    basis = _basis(target)
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


def _basis(target: Form) -> list[Exponents]:
    """Return y_i times monomials in x, within half the exponents of the form."""
    n = len(next(iter(target))) // 2
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
        sums = {
            tuple(x + y for x, y in zip(a, b, strict=True))
            for a, b in itertools.combinations(out, 2)
        }
        kept = [b for b in out if (double := tuple(2 * a for a in b)) in target or double in sums]
        if len(kept) == len(out):
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
