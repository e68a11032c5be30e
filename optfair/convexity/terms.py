"""Proofs for the terms of a problem: each rests on terms proved before it, never on itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cvxpy.constraints import Inequality, NonPos

from optfair.convexity.cones import disciplined
from optfair.convexity.domain import Domain
from optfair.convexity.proof import CurvatureProof
from optfair.convexity.prove import Answer, by_composition, domain_of, proved_on, proved_where
from optfair.convexity.reading import read_constraint
from optfair.core.canonical import Draft, built
from optfair.core.classify import cones_of
from optfair.core.problem_class import Evidence, ProblemClass
from optfair.core.quadratic_map import is_quadratic
from optfair.core.term import ConstraintTerm, ObjectiveTerm, Term
from optfair.errors import DeclarationError, OptfairError

#: Variables of a term for which a proof is searched, and seconds for each.
VARIABLES, SECONDS = 20_000, 2.0


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
            found = _proved(term, domain, "convex", rows)
            if found is None:
                continue
            rows[rows.index(term)] = found
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


def _proved(term: Any, domain: Domain, kind: str, rows: Sequence[Term]) -> Any:
    """Return a term with its proof on a domain, None where none is found."""
    written = built(term)
    is_row = isinstance(term, ConstraintTerm)
    if is_row and not isinstance(written, (Inequality, NonPos)):
        return None
    expression = written.expr if is_row else written
    if sum(v.size for v in expression.variables()) > VARIABLES:
        return None
    try:
        answer = proved_on(expression, domain, kind, SECONDS, refute=False)
    except OptfairError:
        return None  # undefined somewhere on the bounds: the term stays open
    if not isinstance(answer, CurvatureProof):
        return None
    note = answer.rule + (f"; on {', '.join(answer.rests_on)}" if answer.rests_on else "")
    support = tuple(t.build for t in rows if t.name in answer.rests_on)
    own = _class(term.name, written, answer, kind, is_row)
    evidence = Evidence(term.name, kind, term.evidence.set, own, note, answer, support)
    return _with_evidence(term, evidence)


def _class(name: str, written: Any, proof: CurvatureProof, kind: str, is_row: bool) -> ProblemClass:
    """Return the class that a proved term compiles to; without cones it is a convex NLP."""
    found = disciplined(proof, kind)
    if found is None:
        return ProblemClass(cones=frozenset({"nonlinear"}))
    out, sides = found
    if not sides and is_quadratic(out):
        return ProblemClass(not is_row and not out.is_affine(), is_row and not out.is_affine())
    sign = 0.0 if is_row else 1.0 if kind == "convex" else -1.0
    return ProblemClass(cones=cones_of(Draft(name, written, sign, proof)))


def prove_declared(item: Any, where: Any, curvature: Any, seconds: float) -> Any:
    """Return what is known of a term or of every term of a problem; see `optfair.prove`."""
    from optfair.core.adopt import from_cvxpy
    from optfair.core.problem import Problem

    if type(item).__name__ == "Problem" and not isinstance(item, Problem):
        item = from_cvxpy(item)
    if isinstance(item, Problem):
        return {
            t.name: _known(t, curvature) or _answer(t, item, curvature, seconds) for t in item.terms
        }
    if isinstance(item, Term):
        expression = _function(item)
        constraints = where.constraints if isinstance(where, Problem) else {}
        named = {n: built(t) for n, t in constraints.items() if n != item.name}
        if not isinstance(where, Problem):
            named = (
                dict(where)
                if hasattr(where, "keys")
                else {f"where {i}": c for i, c in enumerate(where)}
            )
        return proved_where(expression, named, curvature, seconds)
    raise DeclarationError(
        f"prove got a {type(item).__name__}",
        remedy="give a CVXPY expression, a term or a problem",
    )


def _function(term: Term) -> Any:
    written = built(term)
    return written.expr if hasattr(written, "expr") else written


def _known(term: Term, curvature: Any) -> CurvatureProof | None:
    proof = term.evidence.proof
    if proof is not None and curvature in (None, proof.curvature):
        return proof
    return by_composition(_function(term), curvature)


def _answer(term: Term, problem: Any, curvature: Any, seconds: float) -> Answer:
    convex = {
        n: built(t)
        for n, t in problem.constraints.items()
        if n != term.name and t.evidence.problem_class.convex
    }
    return proved_where(_function(term), convex, curvature, seconds)
