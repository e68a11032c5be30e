"""Problems that are convex in other words: in logarithms of variables, or term by term."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import cvxpy as cp
import numpy as np
from cvxpy.constraints import Equality, Inequality, NonNeg, NonPos, Zero

from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import IMPLIED, Domain
from optfair.convexity.expression import (
    Call,
    Exhausted,
    Leaf,
    Node,
    Product,
    Sum,
    affine,
    constant,
    limited,
    raw_call,
    rebuilt,
    select,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.prove import domain_of
from optfair.convexity.reading import (
    Unread,
    demanded,
    known_parts,
    leaf_of,
    read,
    read_constraint,
)
from optfair.convexity.rules import Kind
from optfair.convexity.search import Search
from optfair.convexity.writing import Atoms
from optfair.core.canonical import built
from optfair.core.certificate import Certificate, Verdict
from optfair.core.identity import fingerprint
from optfair.core.labels import free_name
from optfair.errors import OptfairError

Way = Literal["itself", "logarithm", "level", "steps"]
Word = Literal["log-log convex", "quasiconvex"]
Term = tuple[float, Node]

# Scalars of a problem that is looked at, rows of a term, steps for one proof and for everything.
# A step is about 0.1 ms; they are counted, so that a problem is recast again whenever it was once.
SCALARS, ROWS, PROOF, TOGETHER = 200, 64, 500, 2000


@dataclass(frozen=True, eq=False)
class Piece:
    """One row of a declared term and what it became.

    Attributes
    ----------
    name : str
        The new constraint, empty where the row always holds.
    before, after : Node
        Both are at most 0 at the same points, up to constants that are rounded towards holding.
    """

    name: str
    before: Node
    after: Node


@dataclass(frozen=True, eq=False, repr=False)
class Recast(Certificate):
    r"""A convex problem with the same solutions.

    Log-log convex: with :math:`x = e^u` every term is a convex function of u after taking
    logarithms, on x > 0 (geometric programs among them). Quasiconvex: rows are multiplied by
    denominators, brought to logarithms or roots, and an objective that is not convex itself is
    minimised by its logarithm, or as p/q by its levels, :math:`\min_x p(x) - t\,q(x)`.

    Attributes
    ----------
    problem : Problem
        As declared.
    word : str
        "log-log convex" or "quasiconvex".
    inner : Problem
        What is solved; of levels that at t = 0.
    way : {"itself", "logarithm", "level", "steps"}
        What is minimised of the objective; of c ceil(f) + d that is f.
    rows : mapping
        Name of a term -> its pieces; terms without an entry stay.
    goal : (Node, Node)
        The objective, to be minimised, before and after; of levels p and q.
    """

    problem: Any
    word: Word
    inner: Any
    way: Way
    rows: Mapping[str, tuple[Piece, ...]]
    goal: tuple[Node, Node]
    atoms: Atoms
    level: float = 0.0
    names: Mapping[Leaf, str] = field(default_factory=dict)

    @property
    def in_logarithms(self) -> bool:
        """Whether its variables are logarithms of the declared ones."""
        return self.word == "log-log convex"

    def at(self, level: float) -> Recast:
        """Return the problem of another level t."""
        made = _made(self.problem, self.word, self.way, self.rows, self.goal, self.atoms, level)
        if made is None:
            raise OptfairError(f"the level {level:g} is not known to be convex")
        return made

    def bound(self, inner: float) -> float:
        """Return the bound on the declared optimum that one on the inner problem means.

        Of a level t it is t where the inner bound is above 0, and none otherwise.
        """
        sign = 1.0 if self.problem.sense == "minimize" else -1.0
        if self.way == "level":
            return sign * (self.level if inner > 0.0 else -np.inf)
        value = float(inner)
        if self.way == "steps":
            _, _, c, d = steps_of(self.goal[0]) or (None, None, 1.0, 0.0)
            step = Interval.exactly(np.array(inner)).call("ceil")
            value = float((step.scaled(np.array(c)) + Interval.exactly(np.array(d))).low)
        if self.way == "logarithm":
            value = float(Interval.exactly(np.array(inner)).call("exp").low) if sign > 0 else value
            if sign < 0:  # the logarithm of 1/f was minimised
                value = -float(Interval.exactly(np.array(-inner)).call("exp").high)
        return sign * value

    def verify(self) -> Verdict:
        """Make the problem anew from the declared one, and check the proof of every term."""
        again = recast(self.problem)
        if again is None or again.way != self.way:
            return Verdict(False, ("the declared problem does not lead to this one",))
        again = again if self.way != "level" else again.at(self.level)
        if fingerprint(again.inner) != fingerprint(self.inner):
            return Verdict(False, ("the terms are not those of the declared problem",))
        own: Verdict = again.inner.certificate.verify()
        return own

    def __str__(self) -> str:
        changed = ", ".join(map(repr, self.rows))
        how = {
            "itself": "",
            "logarithm": "; its logarithm is minimised",
            "level": "; by levels",
            "steps": "; what is rounded is minimised",
        }
        what = "with x = exp(u)" if self.in_logarithms else f"{changed or 'no row'} rewritten"
        return f"{self.word}: {what}{how[self.way]}"


def recast(problem: Any) -> Recast | None:
    """Return a convex problem with the same solutions, None where none is known.

    Parameters
    ----------
    problem : Problem
        Continuous, with a term that is not known to be convex.
    """
    sizes = sum(v.size for v in problem.variables.values())
    if problem.integers or sizes > SCALARS or any(t.parameters for t in problem.terms):
        return None
    convex = {n: t for n, t in problem.constraints.items() if t.evidence.problem_class.convex}
    try:
        with limited(TOGETHER):
            domain = domain_of({n: built(t) for n, t in convex.items()}, convex=True)
            return _in_logarithms(problem, domain) or _term_by_term(problem, domain, convex)
    except (OptfairError, Unread, Exhausted):
        return None  # a part is defined nowhere, not read, or too much: nothing is known


# --- what a row becomes ----------------------------------------------------------------------------


def _terms(node: Node) -> list[Term]:
    """Return an entry as coefficients and entries of nodes, a number with the node 1."""
    if not isinstance(node, Sum):
        return [(1.0, node)]
    out: list[Term] = [(float(c), _ONE) for c in node.constant if c]
    for M, n in node.parts:
        out += [
            (float(c), select(n, [j]))
            for c, j in zip(M.data.tolist(), M.indices.tolist(), strict=True)
        ]
    return out


_ONE: Node = constant([1.0])


def _added(terms: list[Term], a: Algebra) -> Node:
    return a.total([n for _, n in terms], [c for c, _ in terms]) if terms else constant([0.0])


def _times(terms: list[Term], q: Node, a: Algebra) -> Node:
    one = Fraction(1)
    return _added([(c, a.product([(n, one), (q, one)])) for c, n in terms], a)


def _cleared(terms: list[Term], q: Node, a: Algebra) -> Node:
    """Return terms times what some are divided by, as it is where they are defined: q is not 0 there."""
    below = {(n, -p) for n, p in _factors(q)}
    parts = []
    for c, n in terms:
        rest = [f for f in _factors(n) if f not in below]
        whole = len(rest) + len(below) == len(_factors(n))
        if whole:
            parts.append((c, a.product(rest) if rest else _ONE))
        else:
            parts.append((c, a.product([(n, Fraction(1)), (q, Fraction(1))])))
    return _added(parts, a)


def sides_of(node: Node, a: Algebra) -> tuple[list[Term], list[Term]] | None:
    """Return P and N, sums of what is not negative, with node = P - N."""
    sides: tuple[list[Term], list[Term]] = ([], [])
    for c, n in _terms(node):
        if (signed := a.signed(n)) is None:
            return None
        sign, part = signed
        sides[sign * c < 0.0].append((abs(c), part))
    return sides


def logarithm_of(terms: list[Term], a: Algebra, up: bool) -> Node:
    """Return log of a sum, of one product as a sum; that of a number is rounded up or down."""
    if len(terms) > 1:
        return a.call("log", [_added(terms, a)], 1)
    ((c, n),) = terms
    value = Interval.exactly(np.array([c])).call("log")
    shift = constant(value.high if up else value.low)
    if n is _ONE:
        return shift
    whole = all(a.nonnegative(b) and Fraction(float(p)) == p for b, p in _factors(n))
    if not whole:  # log(x y) and log(x^2) are defined where log x is not
        return a.total([shift, a.call("log", [n], 1)])
    parts = [(a.call("log", [b], 1), p) for b, p in _factors(n)]
    return a.total([shift, *(b for b, _ in parts)], [1.0, *(float(p) for _, p in parts)])


def _positive_somewhere(terms: list[Term], a: Algebra) -> bool:
    """Whether a sum of what is not negative is positive wherever it is defined."""
    return any(
        n is _ONE or all(a.positive(b) or (p < 0 and a.nonnegative(b)) for b, p in _factors(n))
        for _, n in terms
    )


def _root(terms: list[Term], r: Fraction, a: Algebra, up: bool) -> Node:
    ((c, n),) = terms
    value = Interval.exactly(np.array([c])).power(r)
    factor = value.high if up else value.low
    return constant(factor) if n is _ONE else a.scaled(factor, a.product([(n, r)]))


def _factors(n: Node) -> list[tuple[Node, Fraction]]:
    return list(n.factors) if isinstance(n, Product) else [(n, Fraction(1))]


def denominators(node: Node, a: Algebra) -> list[Node]:
    """Return what terms are divided by, as functions that are not negative."""
    positive: dict[Node, None] = {}
    for _, n in _terms(node):
        below = [(b, -p) for b, p in _factors(n) if p < 0 and b.leaves]
        for b, p in below:
            if (signed := a.signed(b)) is not None:
                positive[a.product([(signed[1], p)])] = None
    return list(positive)


def rewritten(node: Node, a: Algebra, depth: int = 2) -> Iterator[Node]:
    """Yield functions that are at most 0 wherever a function of one entry is, and nowhere else.

    Numbers are rounded so that no point is lost.
    """
    yield node
    if depth == 0:
        return
    for q in denominators(node, a):
        yield from rewritten(_times(_terms(node), q, a), a, depth - 1)
    sides = sides_of(node, a)
    if sides is None or not sides[0] or len(sides[1]) != 1:
        return
    P, N = sides
    if len(P) == 1:
        exponents = {p for _, n in (*P, *N) for _, p in _factors(n)}
        degree = sum((p for _, p in _factors(N[0][1])), Fraction(0))
        for r in dict.fromkeys([1 / degree] if degree > 1 and N[0][1] is not _ONE else []):
            yield a.total([_root(P, r, a, False), _root(N, r, a, True)], [1.0, -1.0])
        for r in sorted({1 / abs(p) for p in exponents if p} - {Fraction(1)}):
            root = a.total([_root(P, r, a, False), _root(N, r, a, True)], [1.0, -1.0])
            yield from rewritten(root, a, depth - 1)
    if _positive_somewhere(P, a):  # 0 <= 0 holds, and has no logarithms
        yield a.total([logarithm_of(P, a, False), logarithm_of(N, a, True)], [1.0, -1.0])


# --- term by term ------------------------------------------------------------------------------------


def _goal(problem: Any) -> Any:
    """Return the objective as one expression, 0 where there is none."""
    terms = [built(t) for t in problem.objective.values()]
    return sum(terms[1:], terms[0]) if terms else cp.Constant(0.0)


def _objective(problem: Any, domain: Domain) -> tuple[Node, Domain]:
    """Return what is minimised, the negative of what is maximised, and where it is defined."""
    reading = read(_goal(problem), domain)
    node = reading.node
    node = node if problem.sense == "minimize" else Algebra(reading.domain).scaled(-1.0, node)
    return node, reading.domain


def steps_of(node: Node) -> tuple[Node, Node, float, float] | None:
    """Return f, ceil(f), c > 0 and d of c ceil(f) + d, None of anything else."""
    terms = _terms(node)
    steps = [(c, n) for c, n in terms if isinstance(n, Call) and n.function == "ceil" and c > 0.0]
    rest = [c for c, n in terms if n is _ONE]
    if len(steps) != 1 or len(steps) + len(rest) != len(terms):
        return None
    ((c, n),) = steps
    return n.args[0], n, c, sum(rest)


def _rows(name: str, term: Any, domain: Domain) -> list[Node] | None:
    """Return the rows of an inequality, each at most 0."""
    facts = read_constraint(name, built(term), domain)
    if not facts or facts[-1].zero or facts[-1].node.size > ROWS:
        return None
    node = facts[-1].node
    return [select(node, [i]) for i in range(node.size)]


def _term_by_term(problem: Any, domain: Domain, convex: Mapping[str, Any]) -> Recast | None:
    a = Algebra(domain)
    rows: dict[str, tuple[Piece, ...]] = {}
    for name, t in problem.constraints.items():
        if name in convex:
            continue
        before = _rows(name, t, domain)
        after = [] if before is None else [_convex_row(n, a) for n in before]
        if before is None or any(n is None for n in after):
            return None
        label = [name] if len(before) == 1 else [f"{name} {i}" for i in range(len(before))]
        rows[name] = tuple(
            Piece(k, b, n) for k, b, n in zip(label, before, after, strict=True) if n is not None
        )
    goal, where = _objective(problem, domain)
    a = Algebra(where)
    choice: tuple[Way, tuple[Node, Node]] | None = None
    steps = steps_of(goal)
    inside = None if steps is None else steps[0]
    log = _log_of(goal, a, problem.sense)
    for way, g in (("itself", goal), ("logarithm", log), ("steps", inside)):
        if g is not None and _proved(g, a):
            choice = way, (goal, g)  # type: ignore[assignment]
            break
    else:
        levels = _ratio(goal, a)
        choice = None if levels is None else ("level", levels)
    if choice is None or (choice[0] == "itself" and not rows):
        return None
    changed = [t for n, t in problem.constraints.items() if n in rows]
    atoms = Atoms(_own(problem, [*changed, *problem.objective.values()], where), a)
    return _made(problem, "quasiconvex", choice[0], rows, choice[1], atoms, 0.0)


def _proved(node: Node, a: Algebra, kind: Kind = "convex") -> bool:
    if affine(node):
        return True
    try:
        with limited(PROOF):
            return Search(a.domain, np.inf).prove(node, kind) is not None
    except Exhausted:
        return False


def _convex(node: Node, atoms: Atoms) -> bool:
    """Whether a function is convex by composition rules as it is written, or by a search."""
    with contextlib.suppress(Unread):
        if atoms.write(node, True).is_convex():
            return True
    return _proved(node, atoms.algebra)


def _convex_row(node: Node, a: Algebra) -> Node | None:
    return next((g for g in dict.fromkeys(rewritten(node, a)) if _proved(g, a)), None)


def _log_of(
    goal: Node, a: Algebra, sense: str, moved: Any = list, b: Algebra | None = None
) -> Node | None:
    """Return log f of what is minimised, or -log f of what is maximised, where f > 0.

    Of the terms that ``moved`` makes of those of f, whose ranges b knows.
    """
    f = goal if sense == "minimize" else a.scaled(-1.0, goal)
    sides = sides_of(f, a)
    if sides is None or sides[1] or not sides[0]:
        return None
    sign, terms, b = 1.0 if sense == "minimize" else -1.0, moved(sides[0]), b or a
    if sign > 0.0 and not _positive_somewhere(terms, b):
        return None  # 0 is the least value, and has no logarithm
    return b.scaled(sign, logarithm_of(terms, b, sign < 0.0))


def _ratio(goal: Node, a: Algebra) -> tuple[Node, Node] | None:
    """Return p and q > 0 with f = p/q whose levels are convex: p - t q, for every level that f has."""
    for q in denominators(goal, a):
        p = _cleared(_terms(goal), q, a)
        if not _proved(p, a):
            continue
        above = a.nonnegative(p) and _proved(q, a, "concave")
        if affine(q) or above or (a.nonpositive(p) and _proved(q, a)):
            return p, q
    return None


# --- in logarithms -----------------------------------------------------------------------------------


def _positive(problem: Any, domain: Domain) -> bool:
    """Whether every variable is declared or known to be positive."""
    declared = {problem._aliases[v.id] for v in problem._alias_variables if v.attributes.get("pos")}
    return all(
        name in declared or bool((domain.box(leaf_of(v)).low > 0.0).all())
        for name, v in problem.variables.items()
    )


def _in_logarithms(problem: Any, domain: Domain) -> Recast | None:
    if not problem.variables or not _positive(problem, domain):
        return None
    a = Algebra(domain)
    known: dict[Node, Node] = {}
    boxes = {}
    flat: dict[Node, Any] = {}
    for name, v in problem.variables.items():
        leaf = leaf_of(v)
        u = Leaf(("logarithm", v.id), f"log {name}", leaf.size, leaf.shape)
        known[leaf], boxes[u] = raw_call("exp", [u], leaf.size), domain.box(leaf).call("log")
        flat[u] = cp.vec(cp.Variable(v.shape, name=f"log {name}"), order="F")
    b = Algebra(Domain(boxes=boxes))
    atoms = Atoms(flat, b)

    def moved(terms: list[Term]) -> list[Term]:
        return [(c, rebuilt(n, b, dict(known))) for c, n in terms]

    rows: dict[str, tuple[Piece, ...]] = {}
    for name, t in sorted(problem.constraints.items(), key=lambda item: np.prod(item[1].shape)):
        c = built(t)
        if not isinstance(c, (Equality, Zero, Inequality, NonPos, NonNeg)):
            return None
        facts = read_constraint(name, c, domain)
        if not facts or facts[-1].node.size > SCALARS:
            return None
        fact, pieces = facts[-1], list[Piece]()
        for i in range(fact.node.size):
            row = select(fact.node, [i])
            sides = sides_of(row, a)
            if sides is None:
                return None
            P, N = (moved(side) for side in sides)
            if not P and not fact.zero:
                continue  # it holds wherever the variables are positive
            if not P or not N or (fact.zero and len(P) + len(N) > 2):
                return None
            if not (_positive_somewhere(P, b) or (fact.zero and _positive_somewhere(N, b))):
                return None
            ways = ((P, N), (N, P)) if fact.zero else ((P, N),)
            for k, (less, more) in enumerate(ways):
                g = b.total(
                    [logarithm_of(less, b, False), logarithm_of(more, b, True)], [1.0, -1.0]
                )
                if not _convex(g, atoms):
                    return None
                pieces.append(Piece(f"{name} {i}" + (" above" if k else ""), row, g))
        rows[name] = tuple(pieces)
    goal, _ = _objective(problem, domain)
    log = _log_of(goal, a, problem.sense, moved, b)
    if log is None or not _convex(log, atoms):
        return None
    return _made(problem, "log-log convex", "logarithm", rows, (goal, log), atoms, 0.0)


def _own(problem: Any, terms: Iterable[Any], domain: Domain) -> dict[Node, Any]:
    """Return flat variables of the leaves, and what composition rules know of some terms as it is."""
    own = [e for t in terms for e in _expressions(built(t))]
    flat: dict[Node, Any] = {leaf_of(v): cp.vec(v, order="F") for v in problem.variables.values()}
    return {**known_parts(own, domain), **flat}


def _expressions(term: Any) -> list[Any]:
    return list(term.args) if isinstance(term, cp.Constraint) else [term]


# --- the problem that is solved ----------------------------------------------------------------------


def _made(
    problem: Any,
    word: Word,
    way: Way,
    rows: Mapping[str, tuple[Piece, ...]],
    goal: tuple[Node, Node],
    atoms: Atoms,
    level: float,
) -> Recast | None:
    """Return the recast problem, None where its terms are not proved convex among themselves."""
    from optfair.core.adopt import from_cvxpy

    names = {n: e.variables()[0].name() for n, e in atoms.known.items() if isinstance(n, Leaf)}
    constraints: dict[str, Any] = {}
    rows = dict(rows)
    for name, t in problem.constraints.items():
        if name not in rows:
            constraints[name] = built(t)
            continue
        taken = {*problem.constraints, *constraints}
        rows[name] = tuple(
            p if p.name in ("", name) else replace(p, name=free_name(p.name, taken))
            for p in rows[name]
        )
        for piece in rows[name]:
            constraints[piece.name] = atoms.write(piece.after, True) <= 0
    if way == "level":
        p, q = goal
        asked = demanded(_goal(problem), Domain())
        for k, node in enumerate(f.node for f in asked if affine(f.node)):
            constraints[free_name(f"{IMPLIED} {k}", constraints)] = atoms.write(node) <= 0
        total = atoms.write(p) - float(level) * atoms.write(q)
    else:
        total = atoms.write(goal[1], True)
    made = cp.Problem(cp.Minimize(cp.sum(total)), list(constraints.values()))
    inner = from_cvxpy(made, list(constraints))
    if not inner.problem_class.convex:
        return None
    return Recast(problem, word, inner, way, dict(rows), goal, atoms, level, names)
