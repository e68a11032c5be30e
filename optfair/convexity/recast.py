"""Problems that are convex in other words: in logarithms of variables, or term by term."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import Any, Literal

import cvxpy as cp
import numpy as np
from cvxpy.constraints import Equality, Inequality, NonNeg, NonPos, Zero

from optfair.convexity.algebra import (
    ONE,
    Algebra,
    Term,
    added,
    logarithm_of,
    positive_somewhere,
    sides_of,
)
from optfair.convexity.cone_rows import cone_rows
from optfair.convexity.domain import IMPLIED, Domain, Fact
from optfair.convexity.expression import (
    Exhausted,
    Leaf,
    Node,
    Opaque,
    affine,
    limited,
    raw_call,
    rebuilt,
    select,
    subnodes,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.prove import domain_of, looks_geometric
from optfair.convexity.quasiconvex import (
    SENSES,
    Choice,
    Way,
    convex_rows,
    denominators,
    each_of_largest,
    invertible,
    minimised,
    outward,
    proved,
    within,
)
from optfair.convexity.reading import Reader, Unread, demanded, leaf_of, read, read_constraint
from optfair.convexity.rules import grows
from optfair.convexity.writing import Atoms, InFloats, asked, domains, sublevel_of
from optfair.core.canonical import built
from optfair.core.certificate import Certificate, Verdict
from optfair.core.identity import fingerprint
from optfair.core.labels import free_name
from optfair.errors import OptfairError, SolverFailure

Word = Literal["log-log convex", "quasiconvex"]

# Scalars of a problem that is looked at, rows of a term, steps for all, for each row and for an objective that
# is a ratio in some way, times as many where CVXPY's rules take it for a geometric program. A step is about
# 0.1 ms; they are counted, not timed.
SCALARS, ROWS, TOGETHER, EACH, GOAL, GEOMETRIC = 2000, 64, 2000, 60, 4000, 25


@dataclass(frozen=True, eq=False)
class Piece:
    """One row of a declared term, or all of its rows, and what they became.

    Attributes
    ----------
    name : str
        The new constraint, empty where the row always holds.
    before, after : Node
        Both are at most 0 at the same points where the former is defined, up to constants that are
        rounded towards holding.
    cones : cvxpy.Expression, optional
        What stands for the latter where it is known.
    """

    name: str
    before: Node
    after: Node
    cones: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class Recast(Certificate):
    r"""A convex problem with the same solutions.

    Log-log convex: with :math:`x = e^u` every term is a convex function of u after taking
    logarithms, on x > 0 (geometric programs among them). Quasiconvex: rows are multiplied by
    denominators, brought to logarithms or roots, and freed of increasing functions. An objective
    that is an increasing function of a convex one is minimised by that; others by a logarithm, or
    as p/q by levels, :math:`\min_x p(x) - t\,q(x)`.

    Attributes
    ----------
    problem : Problem
        As declared.
    word : str
        "log-log convex" or "quasiconvex".
    inner : Problem
        What is solved; of levels that at t = 0.
    rows : mapping
        Name of a term -> its pieces; terms without an entry stay.
    choice : Choice
        What is minimised of the objective, as it is minimised.
    level, size : float
        t, and a power of 2 by which p - t q is divided, as only its sign counts.
    """

    problem: Any
    word: Word
    inner: Any
    rows: Mapping[str, tuple[Piece, ...]]
    choice: Choice
    atoms: Atoms
    level: float = 0.0
    size: float = 1.0
    names: Mapping[Leaf, str] = field(default_factory=dict)

    @property
    def way(self) -> Way:
        """What is minimised of the objective, as its choice says."""
        return self.choice.way

    @property
    def everywhere(self) -> bool:
        """Whether the objective has the curvature of its word everywhere, not only below some level."""
        return self.choice.most == np.inf

    @property
    def in_logarithms(self) -> bool:
        """Whether its variables are logarithms of the declared ones."""
        return self.word == "log-log convex"

    def at(self, level: float, size: float = 1.0) -> Recast:
        """Return the problem of another level t."""
        made = _made(self.problem, self.word, self.rows, self.choice, self.atoms, level, size)
        if made is None:
            raise SolverFailure(f"the level {level:g} is not known to be convex")
        return made

    def bound(self, inner: float) -> float:
        """Return the bound on the declared optimum that one on the inner problem means.

        Of a level t it is t where the inner bound is above 0, and none otherwise.
        """
        sign = 1.0 if self.problem.sense == "minimize" else -1.0
        value = float(inner)
        if self.way == "level":
            value = self.level if inner > 0.0 else -np.inf
        if self.way == "logarithm" and self.choice.sense == "minimize":
            value = float(Interval.exactly(np.array(inner)).call("exp").low)
        elif self.way == "logarithm":  # the logarithm of 1/f was minimised
            value = -float(Interval.exactly(np.array(-inner)).call("exp").high)
        above = Interval.of(np.array(value), np.array(np.inf))
        return sign * float(outward(self.choice.outer, above).low)

    def verify(self) -> Verdict:
        """Make the problem anew from the declared one, and check the proof of every term."""
        again = recast(self.problem)
        if again is None or again.way != self.way:
            return Verdict(False, ("the declared problem does not lead to this one",))
        again = again if self.way != "level" else again.at(self.level, self.size)
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
        }
        grows = any(f.function for f in self.choice.outer)
        inside = "; what the objective grows with is minimised" if grows else ""
        what = "with x = exp(u)" if self.in_logarithms else f"{changed or 'no row'} rewritten"
        where = "" if self.everywhere else f" where its core is below {self.choice.most:g}"
        return f"{self.word}{where}: {what}{inside}{how[self.way]}"


def recast(problem: Any) -> Recast | None:
    """Return a convex problem with the same solutions, None where none is known.

    Parameters
    ----------
    problem : Problem
        With a term that is not known to be convex; logarithms of integers are none.
    """
    if sum(v.size for v in problem.variables.values()) > SCALARS:
        return None
    convex = {n: t for n, t in problem.constraints.items() if t.evidence.problem_class.convex}
    try:
        with limited(TOGETHER):
            domain = domain_of({n: built(t) for n, t in convex.items()}, convex=True)
        steps = TOGETHER * (GEOMETRIC if looks_geometric(map(built, problem.terms), domain) else 1)
        with contextlib.suppress(Exhausted), limited(steps):
            if (way := _in_logarithms(problem, domain)) is not None:
                return way
        rows = sum(math.prod(t.shape) for n, t in problem.constraints.items() if n not in convex)
        with limited(TOGETHER + GOAL + EACH * rows):
            return _term_by_term(problem, domain, convex)
    except (OptfairError, Unread, Exhausted):
        return None  # a part is defined nowhere, not read, or too much: nothing is known


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


def _pieces(name: str, term: Any, a: Algebra, atoms: Atoms) -> tuple[Piece, ...] | None:
    """Return what the rows of an inequality become, None where it is not known."""
    facts = read_constraint(name, built(term), a.domain)
    if not facts or facts[-1].zero:
        return None
    node = facts[-1].node
    if (cones := cone_rows(node, a, atoms)) is not None:
        return (Piece(name, node, cones.after, cones.written),)
    if node.size > ROWS:
        return None
    rows = [each_of_largest(select(node, [i]), a) for i in range(node.size)]
    before = [f for each in rows for f in each]
    if len(before) > ROWS or (after := convex_rows(before, a)) is None:
        return None
    label = [
        f"{name} {i}" + f" {k}" * (len(each) > 1)
        for i, each in enumerate(rows)
        for k in range(len(each))
    ]
    label = [name] if len(label) == 1 else label
    return tuple(map(Piece, label, before, after))


def _term_by_term(problem: Any, domain: Domain, convex: Mapping[str, Any]) -> Recast | None:
    a = Algebra(domain)
    flat = Atoms({leaf_of(v): cp.vec(v, order="F") for v in problem.variables.values()}, a)
    rows: dict[str, tuple[Piece, ...]] = {}
    for name, t in problem.constraints.items():
        if name in convex:
            continue
        pieces = _pieces(name, t, a, flat)
        if pieces is None:
            return None
        rows[name] = pieces
    goal, where = _objective(problem, domain)
    stated, a = a, Algebra(where)
    choice = Choice("itself", (goal, goal), problem.sense) if rows else None
    if not proved(goal, a):
        ratios = any(denominators(core, a) for _, core in within(goal, stated))
        with limited(GOAL if ratios else TOGETHER):
            choice = minimised(goal, stated, a, problem.sense)
    if choice is None:
        return None
    changed = [t for n, t in problem.constraints.items() if n in rows]
    atoms = Atoms(_own(problem, [*changed, *problem.objective.values()], where), a)
    return _made(problem, "quasiconvex", rows, choice, atoms)


def _convex(node: Node, atoms: Atoms) -> bool:
    """Whether a function is convex by composition rules as it is written, or by a search."""
    with contextlib.suppress(Unread):
        if atoms.write(node, True).is_convex():
            return True
    return proved(node, atoms.algebra)


# --- in logarithms -----------------------------------------------------------------------------------


def _positive(problem: Any, domain: Domain) -> bool:
    """Whether every variable is declared or known to be positive."""
    declared = {problem._aliases[v.id] for v in problem._alias_variables if v.attributes.get("pos")}
    return all(
        name in declared or bool((domain.box(leaf_of(v)).low > 0.0).all())
        for name, v in problem.variables.items()
    )


def _in_logarithms(problem: Any, domain: Domain) -> Recast | None:
    if problem.integers or not problem.variables or not _positive(problem, domain):
        return None
    logs = _Logarithms(problem, domain)
    rows: dict[str, tuple[Piece, ...]] = {}
    demands: dict[str, Node] = {}  # as far as they are convex: they have no value elsewhere
    for k, node in enumerate(asked(map(built, problem.terms), domain)):
        pieces = logs.rows(f"{IMPLIED} {k}", node, False) if node.size <= SCALARS else None
        demands |= {p.name: p.after for p in pieces or ()}
    logs.b = InFloats(logs.b.domain.extended([Fact(IMPLIED, n) for n in demands.values()]))
    logs.atoms = Atoms(logs.flat, logs.b)
    for name, t in sorted(problem.constraints.items(), key=lambda item: np.prod(item[1].shape)):
        c = built(t)
        if not isinstance(c, (Equality, Zero, Inequality, NonPos, NonNeg)):
            return None
        facts = read_constraint(name, c, domain)
        if not facts or facts[-1].node.size > SCALARS:
            return None
        if (pieces := logs.rows(name, facts[-1].node, facts[-1].zero)) is None:
            return None
        rows[name] = tuple(pieces)
    goal, _ = _objective(problem, domain)
    word: Word = "log-log convex"
    for (outer, core), sense in product(within(goal, logs.a), SENSES[problem.sense]):
        sign, b = 1.0 if sense == "minimize" else -1.0, logs.b
        if not invertible(outer):
            continue  # a step needs its last digit, which a logarithm rounds
        if (terms := logs.moved(logs.a.scaled(sign, core))) is None or terms[1] or not terms[0]:
            continue
        f = terms[0]
        held = logs.grow(f) if sign > 0.0 else logs.plain(f)
        if not held or (sign > 0.0 and not positive_somewhere(f, b)):
            continue  # the least value 0 has no logarithm
        log, beside = b.scaled(sign, logarithm_of(f, b, sign < 0.0)), logs.graphs()
        if beside is None or not _convex(log, logs.atoms):
            continue
        made, atoms = (added(f, b), log), logs.atoms
        own = {**beside, **demands}
        choice = Choice("logarithm", made, sense, outer)
        return _made(problem, word, rows, choice, atoms, beside=own)
    return None


class _Logarithms:
    r"""What terms of positive variables are in logarithms of these, and of functions with a graph.

    The eigenvalue of Perron and Frobenius is the least :math:`\lambda` with
    :math:`X v \le \lambda v` for some v > 0, and :math:`(I - X)^{-1}` the least U > 0 with
    :math:`X U + I \le U`: further variables, with posynomial rows. All entries of X are positive,
    and what is minimised or at most something grows with them: else nothing held them down.
    """

    def __init__(self, problem: Any, domain: Domain) -> None:
        self.a, self.flat = Algebra(domain), dict[Node, Any]()
        self.known: dict[Node, Node] = {}
        boxes, self.open, self.added = {}, list[Opaque](), set[Leaf]()
        for name, v in problem.variables.items():
            leaf = leaf_of(v)
            u = self._leaf(("logarithm", v.id), name, v.shape)
            self.known[leaf], boxes[u] = raw_call("exp", [u], u.size), domain.box(leaf).call("log")
        self.b = InFloats(Domain(boxes=boxes))
        self.atoms = Atoms(self.flat, self.b)

    def _leaf(self, uid: Any, name: str, shape: tuple[int, ...]) -> Leaf:
        own = cp.Variable(shape, name=f"log {name}")
        u = Leaf(uid, own.name(), own.size, shape)
        self.flat[u] = cp.vec(own, order="F")
        return u

    def moved(self, node: Node) -> tuple[list[Term], list[Term]] | None:
        """Return P and N, sums of what is positive, with a function of one entry = P - N."""
        for n in subnodes(node):
            if (
                isinstance(n, Opaque)
                and n not in self.known
                and type(n.expression).__name__ in _GRAPHS
            ):
                name = f"{type(n.expression).__name__} {len(self.open)}"
                own = self._leaf(("graph", name), name, n.expression.shape)
                self.known[n] = raw_call("exp", [own], n.size)
                self.added.add(own)
                self.open.append(n)
        sides = sides_of(node, self.a, positive=True)
        if sides is None:
            return None
        P, N = ([(c, rebuilt(n, self.b, self.known)) for c, n in side] for side in sides)
        return P, N

    def plain(self, terms: list[Term]) -> bool:
        """Whether terms have no variable of a graph."""
        return not any(n.leaves & self.added for _, n in terms)

    def grow(self, terms: list[Term]) -> bool:
        """Whether terms with positive coefficients grow with the variables of graphs."""
        return all(grows(n, self.added) for _, n in terms)

    def rows(self, name: str, node: Node, zero: bool) -> list[Piece] | None:
        """Return the pieces of rows that are at most 0, or 0; None where one is not convex."""
        pieces, b = list[Piece](), self.b
        for i in range(node.size):
            sides = self.moved(select(node, [i]))
            if sides is None:
                return None
            P, N = sides
            if not P and not zero:
                continue  # it holds wherever the variables are positive
            if not P or not N or (zero and len(P) + len(N) > 2):
                return None
            if not (positive_somewhere(P, b) or (zero and positive_somewhere(N, b))):
                return None
            if not (self.plain(N) and (self.plain(P) if zero else self.grow(P))):
                return None
            ways = ((P, N), (N, P)) if zero else ((P, N),)
            for k, (less, more) in enumerate(ways):
                g = b.total(
                    [logarithm_of(less, b, False), logarithm_of(more, b, True)], [1.0, -1.0]
                )
                if not _convex(g, self.atoms):
                    return None
                f = b.total([added(less, b), added(more, b)], [1.0, -1.0])
                pieces.append(Piece(f"{name} {i}" + (" above" if k else ""), f, g))
        return pieces

    def graphs(self) -> dict[str, Node] | None:
        """Return the rows of what has a graph, by name; None where one is not convex."""
        rows: dict[str, Node] = {}
        for count, n in enumerate(self.open):  # grows while graphs of arguments are met
            X, size = n.expression.args[0], n.expression.args[0].shape[0]
            entries = read(X, self.a.domain).node
            sides = [self.moved(select(entries, [k])) for k in range(size * size)]
            if any(s is None or s[1] or not positive_somewhere(s[0], self.b) for s in sides):
                return None
            parts = [s[0] for s in sides if s is not None]
            if not all(map(self.grow, parts)):
                return None
            name, own = f"{type(n.expression).__name__} {count}", self.known[n].below[0]
            if type(n.expression).__name__ == "eye_minus_inv":
                U, eye = [select(own, [k]) for k in range(n.size)], [(1.0, ONE)]
                tops = [
                    (
                        _dot(parts[i::size], U[j * size : (j + 1) * size], self.b) + eye * (i == j),
                        [u],
                    )
                    for (j, i), u in zip(np.ndindex(size, size), U, strict=True)
                ]
            else:
                v = self._leaf(("graph", name, "vector"), f"{name} vector", (size,))
                V = [select(v, [k]) for k in range(size)]
                tops = [(_dot(parts[i::size], V, self.b), [V[i], own]) for i in range(size)]
            for k, (top, under) in enumerate(tops):
                signs = [1.0] + [-1.0] * len(under)
                g = self.b.total([logarithm_of(top, self.b, False), *under], signs)
                if not _convex(g, self.atoms):
                    return None
                rows[f"{name} {k}"] = g
        return rows


_GRAPHS = {"pf_eigenvalue", "eye_minus_inv"}


def _dot(row: list[list[Term]], logs: list[Node], b: Algebra) -> list[Term]:
    """Return a row of sums times a vector that is given by logarithms."""
    return [
        (c, b.product([(n, Fraction(1)), (raw_call("exp", [u], 1), Fraction(1))]))
        if n is not ONE
        else (c, raw_call("exp", [u], 1))
        for terms, u in zip(row, logs, strict=True)
        for c, n in terms
    ]


def _own(problem: Any, terms: Iterable[Any], domain: Domain) -> dict[Node, Any]:
    """Return flat variables of the leaves, and what composition rules know of some terms as it is."""
    reader = Reader(domain)
    for t in map(built, terms):
        for e in t.args if isinstance(t, cp.Constraint) else [t]:
            reader.node(e)
    flat: dict[Node, Any] = {leaf_of(v): cp.vec(v, order="F") for v in problem.variables.values()}
    return {**reader.known_parts, **flat}


# --- the problem that is solved ----------------------------------------------------------------------


def _made(
    problem: Any,
    word: Word,
    rows: Mapping[str, tuple[Piece, ...]],
    choice: Choice,
    atoms: Atoms,
    level: float = 0.0,
    size: float = 1.0,
    beside: Mapping[str, Node] | None = None,
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
            cones = atoms.write(piece.after, True) if piece.cones is None else piece.cones
            constraints[piece.name] = cones <= 0
    for name, node in (beside or {}).items():
        taken = {*problem.constraints, *constraints}
        constraints[free_name(name, taken)] = atoms.write(node, True) <= 0
    if choice.way == "level":
        p, q = choice.goal
        asked = demanded(_goal(problem), Domain())
        for k, node in enumerate(f.node for f in asked if affine(f.node)):
            constraints[free_name(f"{IMPLIED} {k}", constraints)] = atoms.write(node) <= 0
        total = sublevel_of(p, float(level))
        if total is None:
            total = atoms.write(p) - float(level) * atoms.write(q)
            total = total if total.size == 1 and total.is_quadratic() else cp.max(total)
        total = total if size == 1.0 else total / size
    else:
        total = atoms.write(choice.goal[1], True)
    for row in domains(built(t) for t in problem.terms):
        constraints[free_name(IMPLIED, constraints)] = row
    made = cp.Problem(cp.Minimize(cp.sum(total)), list(constraints.values()))
    inner = from_cvxpy(made, list(constraints)).with_integrality(*problem.integers)
    if not inner.problem_class.convex:
        return None
    return Recast(problem, word, inner, dict(rows), choice, atoms, level, size, names)
