"""Is it convex, concave, both, neither, or not known: an expression, and the terms of a problem, each on terms proved before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.binary_operators import DivExpression
from cvxpy.constraints import Equality, Inequality, NonNeg, NonPos, Zero

from optfair.convexity.cones import disciplined
from optfair.convexity.domain import Domain, Fact, attribute_constraints, signs_of
from optfair.convexity.expression import Exhausted, Opaque, affine, limited, opaque, text
from optfair.convexity.hessians import quadratic_curvature
from optfair.convexity.proof import (
    Chord,
    CurvatureProof,
    CurvatureWitness,
    Step,
    Undecided,
    faults,
    read_again,
)
from optfair.convexity.reading import (
    Reading,
    Unread,
    demanded,
    diagonal_facts,
    leaf_of,
    read,
    read_constraint,
)
from optfair.convexity.rules import Goal, Kind
from optfair.convexity.search import Search
from optfair.convexity.witness import chord, hints_of, shown
from optfair.convexity.writing import formula
from optfair.core.canonical import Draft, built
from optfair.core.composition import cones_of, rounding
from optfair.core.expressions import substitute
from optfair.core.functions import exact_functions, proved_assertions
from optfair.core.problem import Problem, check_problem
from optfair.core.problem_class import Evidence, ProblemClass, follows_rules, parts_of
from optfair.core.term import (
    ConstraintTerm,
    ObjectiveTerm,
    Term,
    is_quadratic,
)
from optfair.errors import DataError, DeclarationError, OptfairError, kind_of
from optfair.numbers import check_choice, check_seconds, check_text, checked

# Is it convex, concave, both, neither, or not known: `optfair.prove`.

Answer = CurvatureProof | CurvatureWitness | Undecided
Item: TypeAlias = "cp.Expression | Term | str"
Where = Iterable[Any] | Mapping[str, Any]
Asked = Literal["convex", "concave"] | None

#: Entries of an expression that is read into the normal form.
LARGEST = 20_000
# Scalars of an expression that is read although composition rules decide it.
WRITTEN = 40
# Constraints whose arguments are all affine in a polyhedron.
_LINEAR = (Equality, Inequality, NonNeg, NonPos, Zero)


def domain_of(
    constraints: Mapping[str, Any], *, seconds: float = 1.0, convex: bool = False
) -> Domain:
    """Return where constraints hold that are convex: bounds first, then what rests on them.

    A constraint is used when it is affine, or proved convex on those that were used before it; so
    no proof rests on itself.

    Parameters
    ----------
    constraints : mapping
        Name -> CVXPY constraint.
    seconds : float
        For each that is not affine.
    convex : bool
        Whether all are known to be convex already.
    """
    domain, later = Domain(), []
    facts, unread = list[Fact](), list[str]()
    for name, c in constraints.items():
        args = getattr(c, "args", ())
        if not args or c.parameters() or any(a.size > LARGEST or a.is_complex() for a in args):
            unread.append(name)
        elif all(a.is_affine() for a in c.args) and isinstance(c, _LINEAR):
            facts += read_constraint(name, c, domain)
        elif known := diagonal_facts(name, c):  # not all that it says
            facts, unread = facts + known, [*unread, name]
        else:
            later.append((name, c))
    domain = domain.extended(facts, unread=unread)
    waiting = True
    while waiting and later:
        waiting, pending = False, list[Fact]()
        for name, c in list(later):
            new = _usable(name, c, domain, seconds, convex)
            if not new and pending:  # it may rest on those that were found just now
                domain, pending = domain.extended(pending), []
                new = _usable(name, c, domain, seconds, convex)
            if new:
                pending += new
                waiting = True
                later.remove((name, c))
        domain = domain.extended(pending)
    beside = [(name, _facts(name, c, domain)) for name, c in later]
    return domain.extended(
        beside=[f for _, parts in beside for f in parts],
        unread=[name for name, parts in beside if not parts],
    )


def _facts(name: str, constraint: Any, domain: Domain) -> list[Fact]:
    """Return what a constraint says, nothing where it cannot be read."""
    try:
        return read_constraint(name, constraint, domain)
    except (DataError, Unread):
        return []


def _usable(name: str, constraint: Any, domain: Domain, seconds: float, convex: bool) -> list[Fact]:
    """Return what a constraint says that is known, or proved, to be convex on a domain."""
    facts = _facts(name, constraint, domain)
    return facts if convex else _convex_facts(facts, domain, seconds)


def _convex_facts(facts: list[Fact], domain: Domain, seconds: float) -> list[Fact]:
    """Return facts that are affine, or proved convex on those before them."""
    for fact in facts:
        if fact.zero or not (
            affine(fact.node) or Search(domain, seconds).prove(fact.node, "convex") is not None
        ):
            return []
        domain = domain.extended([fact]) if len(facts) > 1 else domain
    return facts


@checked(curvature=check_text, seconds=check_seconds)
def prove(
    item: Item, where: Where = (), *, curvature: Asked = None, seconds: float = 3.0
) -> Answer:
    r"""Prove that an expression is convex or concave, refute both, or say where it stops.

    .. math:: f((x+y)/2) \le (f(x) + f(y))/2 \quad \text{for all } x, y \in D

    where D is what the bounds and constraints say that are convex themselves. The rules go beyond
    CVXPY's: exact quadratics, ratios, perspectives, logarithms of sums, signs of second
    derivatives. Everything rests on ranges that are rounded outward.

    Parameters
    ----------
    item : cvxpy.Expression, Term or str
        What to look at: of a term its function, of a text its formula. Of all terms: `prove_terms`.
    where : iterable or mapping of cvxpy.Constraint
        Bounds and constraints, with names if it is a mapping; of a text, texts; for a term, the
        problem it is of, too. Those that are not convex by themselves or on the others are not used.
    curvature : {"convex", "concave"}, optional
        What is asked for; by default whichever holds.
    seconds : float
        Processor seconds for a proof; where there is none, hints take twice as many at most.

    Returns
    -------
    CurvatureProof, CurvatureWitness or Undecided
        A proof is true, others are false; all have ``verify()``, ``explain()`` and ``hints``.

    Raises
    ------
    DataError
        A part is defined nowhere on the bounds, or a denominator crosses 0.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x, y = cp.Variable(name="x"), cp.Variable(name="y")
    >>> of.prove(x * x + 3 * x * y + 4 * y * y)
    convex: quadratic
    >>> of.prove(1 / (3 - x), {"limit": x <= 2})
    convex on 'limit': reciprocal
    >>> of.prove("x*x/y", "y >= 1")
    convex on 'y >= 1': square over a positive function
    """
    item, where = formula(item, where) if isinstance(item, str) else (item, where)
    if isinstance(item, cp.Constraint):
        remedy = "give its function: prove(constraint.args[0] - constraint.args[1])"
        raise DeclarationError("prove got a constraint", remedy=remedy)
    if isinstance(item, Term):
        return _proved_term(item, where, curvature, seconds)
    if isinstance(item, (Problem, cp.Problem)):  # type checkers know `prove_terms`
        return cast("Answer", prove_terms(item, curvature=curvature, seconds=seconds))
    if not isinstance(item, cp.Expression):
        remedy = "give a CVXPY expression, a text, or a problem for all of its terms"
        raise DeclarationError(f"prove got {kind_of(item)}", remedy=remedy)
    item = exact_functions(item)
    _refuse_infinite(item)
    if not item.parameters():  # what is asserted of matrices is tested first
        item = proved_assertions("the expression", item)
    if curvature is not None:
        check_choice(curvature, "curvature", ("convex", "concave"))
    named = _named(where)
    said = attribute_constraints(item, named)
    if named and item.is_dcp() and sum(v.size for v in item.variables()) <= WRITTEN:
        with contextlib.suppress(Unread):
            read(item, domain_of(said))  # a part that is defined nowhere is an error
    return proved_where(item, said, curvature, seconds)


def _named(where: Any) -> dict[str, Any]:
    """Return constraints by name; "where 0", ... where they have none."""
    where = [where] if isinstance(where, cp.Constraint) else where
    if not isinstance(where, Iterable) or isinstance(where, str):
        remedy = "give a list of constraints, or a dict by name"
        raise DeclarationError(f"where is {kind_of(where)}", remedy=remedy)
    each = where if isinstance(where, Mapping) else {f"where {i}": c for i, c in enumerate(where)}
    for name, c in each.items():
        if not isinstance(c, cp.Constraint):
            given = f"{name!r} is {kind_of(c)}"
            raise DeclarationError(given, remedy="give CVXPY constraints")
    return {name: exact_functions(constraint) for name, constraint in each.items()}


def proved_where(
    expression: Any, constraints: Mapping[str, Any], curvature: str | None, seconds: float
) -> Answer:
    """Return what is known of an expression under constraints, which are read if they are needed."""
    known = by_composition(expression, curvature)
    return known or proved_on(expression, domain_of(constraints), curvature, seconds)


_EVERYWHERE = Domain()


def by_composition(expression: Any, curvature: str | None) -> CurvatureProof | None:
    """Return a proof that needs no constraint: composition rules, or a quadratic of many variables."""
    return _by_cvxpy(expression, _kinds(curvature), _EVERYWHERE)


def _kinds(curvature: str | None) -> tuple[Kind, ...]:
    return ("convex", "concave") if curvature is None else (curvature,)  # type: ignore[return-value]


def _refuse_infinite(expression: Any) -> None:
    for c in _constant_parts(expression):
        with np.errstate(all="ignore"):
            value = c.value
        if not np.isfinite(getattr(value, "data", value)).all():
            raise DataError(
                "the expression has a number that is not finite",
                " ".join(str(c).split())[:80],
                "take that entry out",
            )


def _constant_parts(expression: Any) -> Iterator[Any]:
    """Yield what has no variables and no parameters, as large as it comes; inverted as it is used."""
    left = [expression]
    while left:
        part = left.pop()
        if part.is_constant() and not part.parameters():
            yield part
        elif isinstance(part, DivExpression) and part.args[1].is_constant():
            left += [
                part.args[0],
                1.0 / part.args[1] if not part.args[1].parameters() else part.args[1],
            ]
        else:
            left += part.args


def proved_on(
    expression: Any,
    domain: Domain,
    curvature: str | None,
    seconds: float = 3.0,
    *,
    refute: bool = True,
) -> Answer:
    """Return what is known of an expression on a domain."""
    kinds = _kinds(curvature)
    by_rules = _by_cvxpy(expression, kinds, domain)
    if by_rules is not None:
        return by_rules
    if expression.size > LARGEST or sum(v.size for v in expression.variables()) > LARGEST:
        return Undecided(expression, reason=f"it has more than {LARGEST} entries", domain=domain)
    if expression.parameters():  # numbers of their declared signs: a chord is one of some values
        domain, refute = domain.extended(boxes=signs_of(expression.parameters())), False
    reading = read(expression, domain)
    if reading.domain.empty:
        return Undecided(expression, reason="the bounds exclude each other", domain=domain)
    search = Search(reading.domain, seconds)
    unread = reading.domain.unread
    few = search.sampled(reading.node, reading.domain) if refute and not unread else None
    left = [k for k in kinds if few is None or not shown(reading.node, reading.domain, k, few)]
    left = [] if reading.curved else left
    steps = [s for s in (search.prove(reading.node, k) for k in left) if s is not None]
    if steps:
        return _proof(expression, tuple(steps), reading)
    chords: list[Chord] = []
    sought = refute and not unread
    defined = reading.domain.extended(beside=demanded(expression, Domain()) if sought else ())
    for kind in kinds if sought else ():
        against = chord(reading.node, defined, kind, few=few)
        if against is not None:
            chords.append(against)
    hints = () if not refute else hints_of(expression, domain, kinds, 2.0 * seconds)
    if len(chords) == len(kinds):
        return CurvatureWitness(expression, tuple(chords), reading.domain, hints)
    stuck = tuple(
        dict.fromkeys(f"that {text(g.node, 80)} is {g.kind}" for g in search.stuck.values())
    )
    reason = "" if not unread or not refute else f"chords may leave {', '.join(map(repr, unread))}"
    if reading.curved:
        reason = f"only where {text(reading.curved[0], 80)} is not negative it is defined"
    return Undecided(expression, stuck[:4], hints, reason, reading.domain)


def _proof(expression: Any, steps: tuple[Step, ...], reading: Reading) -> CurvatureProof:
    kinds = {s.kind for s in steps}
    word = "affine" if len(kinds) == 2 else next(iter(kinds))
    proof = CurvatureProof(expression, word, steps, reading.domain)
    domain = _needed(proof)
    return CurvatureProof(expression, word, steps, domain, domain.names)


def _needed(proof: CurvatureProof) -> Domain:
    """Return the domain of the facts a proof needs, by leaving out many terms at once, then fewer."""

    def holds(smaller: Domain) -> bool:
        again = read_again(proof.expression, smaller)
        return again is proof.step.node and not any(faults(s, smaller) for s in proof.steps)

    def reduced(domain: Domain, names: Sequence[str]) -> Domain:
        smaller = domain.without(*names)
        if holds(smaller):
            return smaller
        half = len(names) // 2
        return reduced(reduced(domain, names[:half]), names[half:]) if half else domain

    domain, own = proof.domain, proof.step.node.leaves
    rows = [f for f in domain.facts if len(f.node.leaves) > 1 or not affine(f.node)]
    beside = [f for f in domain.facts if not f.node.leaves & own]
    # bounds of its own variables are often all it needs, and facts of others next to never
    for left_out in ([*rows, *beside], beside):
        names = {f.name for f in left_out} & {*domain.names}
        if names and holds(smaller := domain.without(*names)):
            domain = smaller
            break
    return reduced(domain, domain.names) if domain.names else domain


def _by_cvxpy(expression: Any, kinds: tuple[Kind, ...], domain: Domain) -> CurvatureProof | None:
    """Return a proof by CVXPY's own rules, or of a quadratic too large to write out."""
    held = [k for k in kinds if follows_rules(expression, k)]
    if held:
        return _composed(expression, held, domain)
    variables = expression.variables()
    large = sum(v.size for v in variables) > WRITTEN
    if not (large and expression.size == 1 and not expression.parameters()):
        return None
    from optfair.convexity.powers import large_quadratic

    node: Opaque = opaque(expression, [leaf_of(v) for v in variables])
    held = [k for k in kinds if large_quadratic(node, k, None, None) is not None]  # type: ignore[arg-type]
    if not held:
        return None
    curvature = quadratic_curvature(expression)
    shift = (
        0.0
        if curvature is None
        else max(d.shift for d in (curvature.up, curvature.down) if d.accepted)
    )
    return _of_whole(expression, node, held, "quadratic of many variables", domain, shift)


def _composed(expression: Any, held: Sequence[Kind], domain: Domain) -> CurvatureProof:
    """Return the proof of what CVXPY's rules hold."""
    parts = list(parts_of(expression))
    variables = [n for n in parts if cp.Variable in type(n).__mro__] or expression.variables()
    node: Opaque = opaque(expression, [leaf_of(v) for v in variables])
    return _of_whole(expression, node, held, "composition rules of CVXPY", domain, rounding(parts))


def _of_whole(
    expression: Any, node: Opaque, held: Sequence[Kind], name: str, domain: Domain, shift: float
) -> CurvatureProof:
    steps = tuple(Step(Goal(node, k), name) for k in held)
    word = "affine" if len(steps) == 2 else held[0]
    return CurvatureProof(expression, word, steps, domain, shift=shift)


# Proofs for the terms of a problem: each rests on terms proved before it, never on itself.

#: Variables of a term for which a proof is searched, and seconds for each; steps, about 0.1 ms each, for
#: one that is convex in logarithms in any case: counted, so that its class is the same on any machine.
VARIABLES, SECONDS, BRIEF = 20_000, 2.0, 1_000


def settled(
    objective: Sequence[ObjectiveTerm], constraints: Sequence[ConstraintTerm], sense: str
) -> tuple[tuple[ObjectiveTerm, ...], tuple[ConstraintTerm, ...]]:
    """Return terms with the proofs that hold among them.

    A term that CVXPY's rules leave open is proved on what the other convex terms say. A proof
    whose support has gone is taken back and searched anew.

    Parameters
    ----------
    objective, constraints : sequence of Term
        All terms of a problem.
    sense : str
        "minimize" or "maximize".
    """
    goals, rows = list(objective), list(constraints)
    open_rows = [t for t in rows if _open(t, rows)]
    open_goals = [t for t in goals if _open(t, rows)]
    if not open_rows and not open_goals:
        return tuple(objective), tuple(constraints)
    closed = {
        t.name: built(t) for t in rows if t not in open_rows and t.evidence.problem_class.convex
    }
    domain = domain_of(closed, convex=True)
    moved = True
    while moved and open_rows:
        moved = False
        for term in list(open_rows):
            proof = _proved(term, domain, "convex", rows)
            if proof is None:
                continue
            rows[rows.index(term)] = proof
            open_rows.remove(term)
            moved = True
            domain = domain.extended(read_constraint(term.name, built(term), domain))
    for term in open_rows:
        rows[rows.index(term)] = _without_proof(term)
    for goal in open_goals:
        kind = "convex" if sense == "minimize" else "concave"
        proved = _proved(goal, domain, kind, rows)
        goals[goals.index(goal)] = _without_proof(goal) if proved is None else proved
    return tuple(goals), tuple(rows)


def _open(term: Term, rows: Sequence[Term]) -> bool:
    """Whether a term has no proof that stands on the given ones."""
    evidence = term.evidence
    if evidence.proof is None:
        return evidence.function == "no DCP proof"
    builds = {id(t.build) for t in rows}
    return any(id(b) not in builds for b in evidence.support)


def _without_proof(term: Any) -> Any:
    """Return a term as it is when nothing is proved of it."""
    e = term.evidence
    if e.proof is None:
        return term
    unknown = ProblemClass(cones=frozenset({"nonlinear"}), curvature="unverified")
    return _with_evidence(term, Evidence(e.term, "no DCP proof", e.set, unknown))


def _with_evidence(term: Any, evidence: Evidence) -> Any:
    """Return a term with other evidence, which compiles by that and not as before."""
    written = built(term)
    return replace(term, evidence=evidence, build=lambda: written)


def looks_geometric(terms: Iterable[Any], domain: Domain) -> bool:
    """Whether CVXPY's rules for positive variables take all terms: where to look, and no proof."""
    for written in terms:
        known, variables = False, written.variables()
        if any((domain.box(leaf_of(v)).low < 0.0).any() or v.is_complex() for v in variables):
            return False
        twin = substitute(written, {id(v): cp.Variable(v.shape, pos=True) for v in variables})
        with contextlib.suppress(ValueError):  # they do not compare sparse matrices with 0
            if not isinstance(twin, cp.Constraint):
                known = twin.is_log_log_convex() or twin.is_log_log_concave()
            elif not (known := twin.is_dgp()) and isinstance(twin, Inequality):
                below = twin.args[0].value if twin.args[0].is_constant() else None
                known = below is not None and bool((below <= 0.0).all())
        if not known:
            return False
    return True


def _proved(term: Any, domain: Domain, kind: str, rows: Sequence[Term]) -> Any:
    """Return a term with its proof on a domain, None where none is found."""
    written = built(term)
    is_row = isinstance(term, ConstraintTerm)
    if is_row and not isinstance(written, (Inequality, NonPos)):
        return None
    expression = written.expr if is_row else written
    if sum(v.size for v in expression.variables()) > VARIABLES:
        return None
    brief = looks_geometric([written], domain)
    try:
        with limited(BRIEF) if brief else contextlib.nullcontext():
            seconds = np.inf if brief else SECONDS
            answer = proved_on(expression, domain, kind, seconds, refute=False)
    except (OptfairError, Exhausted):
        return None  # undefined somewhere on the bounds, or too long: the term stays open
    if not isinstance(answer, CurvatureProof):
        return None
    note = answer.rule + (f"; on {', '.join(answer.rests_on)}" if answer.rests_on else "")
    support = tuple(t.build for t in rows if t.name in answer.rests_on)
    own = _class(term.name, written, answer, kind, is_row)
    evidence = Evidence(term.name, kind, term.evidence.set, own, note, answer, support)
    return _with_evidence(term, evidence)


def _class(name: str, written: Any, proof: CurvatureProof, kind: str, is_row: bool) -> ProblemClass:
    """Return the class that a proved term compiles to; without cones it is a convex NLP."""
    cones = disciplined(proof, kind)
    if cones is None:
        return ProblemClass(cones=frozenset({"nonlinear"}))
    out, sides = cones
    if not sides and is_quadratic(out):
        return ProblemClass(not is_row and not out.is_affine(), is_row and not out.is_affine())
    sign = 0.0 if is_row else 1.0 if kind == "convex" else -1.0
    return ProblemClass(cones=cones_of(Draft(name, written, sign, proof)))


@checked(problem=check_problem, curvature=check_text, seconds=check_seconds)
def prove_terms(
    problem: Problem, *, curvature: Asked = None, seconds: float = 3.0
) -> dict[str, Answer]:
    """Return what `optfair.prove` finds of each term of a problem, on its other terms.

    Parameters
    ----------
    problem : Problem or cvxpy.Problem
        What to look at.
    curvature, seconds
        As in `optfair.prove`, for each term.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(1 / x), [x >= 1]), ["least"])
    >>> {name: answer.curvature for name, answer in prove_terms(p).items()}
    {'objective': 'convex', 'least': 'affine'}
    """
    p = problem
    return {t.name: _known(t, curvature) or _answer(t, p, curvature, seconds) for t in p.terms}


def _proved_term(term: Term, where: Any, curvature: Any, seconds: float) -> Answer:
    """Return what is known of the function of a term, on constraints or on a problem's others."""
    if isinstance(where, Problem):
        named = {n: built(t) for n, t in where.constraints.items() if n != term.name}
    else:
        named = _named(where)
    return proved_where(_function(term), named, curvature, seconds)


def _function(term: Term) -> Any:
    """Return what a term says something about: what lies in a cone is taken together."""
    written = built(term)
    if isinstance(written, cp.Expression):
        return written
    if len(written.args) == 1 or isinstance(written, (Equality, Inequality)):
        return written.expr
    return cp.hstack([cp.vec(a, order="F") for a in written.args])


def _known(term: Term, curvature: Any) -> CurvatureProof | None:
    proof = term.evidence.proof
    if proof is not None and curvature in (None, proof.curvature):
        return proof
    function, kinds = _function(term), _kinds(curvature)
    if isinstance(function, cp.Expression) and not term.evidence.note:
        word = term.evidence.function.split()[0]  # what was asked of CVXPY is not asked again
        if word in _HELD:
            held = [k for k in kinds if k in _HELD[word]]
            return _composed(function, held, _EVERYWHERE) if held else None
    return by_composition(function, curvature)


# What a word of evidence says that CVXPY's rules gave.
_HELD: dict[str, tuple[Kind, ...]] = {
    "affine": ("convex", "concave"),
    "convex": ("convex",),
    "concave": ("concave",),
}


def _answer(term: Term, problem: Any, curvature: Any, seconds: float) -> Answer:
    convex = {
        n: built(t)
        for n, t in problem.constraints.items()
        if n != term.name and t.evidence.problem_class.convex
    }
    return proved_where(_function(term), convex, curvature, seconds)
