"""Text about the class of a problem: a row for each term, the tree of one, and what moved it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import cvxpy as cp

from optfair.core.canonical import built
from optfair.core.display import READ, html_lines, html_table
from optfair.core.expressions import check_parameters
from optfair.core.problem_class import follows_rules
from optfair.core.term import ConstraintTerm, Term
from optfair.errors import DeclarationError, nearest, shortened

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Parts of a term that a tree shows, and characters of each.
PARTS, LETTERS = 60, 90


class Explanation(str):
    """Text that shows itself line by line when typed at a prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        lines = str(self).splitlines()
        if any(line.startswith(" ") for line in lines):  # the tree of a row
            return html_lines(str(self))
        rows = (line.partition(": ") for line in lines)
        return html_table(("term", "what it is"), ((name, said) for name, _, said in rows))


def explain(problem: Problem) -> Explanation:
    """Return one row of evidence per term, and the class they join to."""
    check_parameters(problem.terms)
    rows = [str(row) for row in problem.evidence]
    rows += [f"{t.name}: defined where {said}" for t in problem.terms for said in _implied(t)]
    rows.append(f"together: {problem.problem_class}")
    if problem.recast is not None:
        rows.append(str(problem.recast))
    if not (problem.recast and problem.recast.everywhere) and problem.witness is not None:
        rows.append(f"witness: {problem.witness}")
    return Explanation("\n".join(rows))


def explain_row(problem: Problem, name: str) -> Explanation:
    """Return the evidence of one term, and below it why: part by part, or where a proof stops.

    "objective" names all terms of the objective where none is called so.
    """
    named: dict[str, Term] = {**problem.objective, **problem.constraints}
    terms = [named[name]] if name in named else []
    if not terms and name == "objective":
        terms = list(problem.objective.values())
        if not terms:
            return Explanation(f"{name}: none, any feasible point will do")
    if not terms:
        raise DeclarationError(
            f"no constraint or objective {name!r} in {problem.title}",
            "explain(name) says why one row of explain() is what it is",
            nearest(name, [*named, "objective"]),
        )
    check_parameters(terms)
    return Explanation(
        "\n".join(line for t in terms for line in (str(t.evidence), *_why(t, problem)))
    )


def _why(term: Term, problem: Problem) -> list[str]:
    """Return the tree of a term: of its proof, of CVXPY's rules, or of what refutes or stops one."""
    from cvxpy.constraints import Equality, Inequality

    from optfair.convexity.prove import prove

    proof, written = term.evidence.proof, built(term)
    if proof is None and follows_rules(written):
        sides = [written] if isinstance(written, cp.Expression) else written.args
        if isinstance(written, (Equality, Inequality)):
            sides = [written.expr]
        lines = list(islice((line for e in sides for line in _composition(e, 1)), PARTS + 1))
        lines = lines[:PARTS] + ["  and further parts"] * (len(lines) > PARTS)
        return [*lines, *(f"  defined where {said}" for said in _implied(term))]
    answer = prove(term, problem) if proof is None else proof  # type: ignore[arg-type]
    return [f"  {line}" for line in answer.explain().splitlines()]


def _composition(expression: Any, depth: int) -> Iterator[str]:
    """Yield an expression and its parts, each with its curvature, its sign and the rule."""
    from optfair.convexity.expression import cvxpy_text

    word, sign = expression.curvature.lower(), expression.sign.lower()
    known = word if sign == "unknown" else f"{word}, {sign}"
    lead = f"{'  ' * depth}{shortened(cvxpy_text(expression), LETTERS)}: {known}"
    if expression.is_affine():
        yield lead
        return
    yield f"{lead} [{_rule(expression)}]"
    for part in expression.args:
        if not part.is_constant():
            yield from _composition(part, depth + 1)


def _rule(atom: Any) -> str:
    """Return why an atom of such arguments is convex, or concave."""
    both = atom.is_atom_convex() and atom.is_atom_concave()
    own = "affine" if both else "convex" if atom.is_atom_convex() else "concave"
    ways = [
        f"{'increasing' if atom.is_incr(i) else 'decreasing'} in a {part.curvature.lower()} function"
        for i, part in enumerate(atom.args)
        if not part.is_affine()
    ]
    return " and ".join([own, *dict.fromkeys(ways)]) if ways else f"{own}, of affine functions"


def _implied(term: Term) -> list[str]:
    """Return what powers of a term demand of their arguments, and do not show."""
    from optfair.convexity.proof import implied_text

    sides = [e for e in getattr(built(term), "args", ()) if e.size <= READ]
    if not isinstance(term, ConstraintTerm):
        sides = [built(term)]
    powers = [e for e in sides if any(a.__name__ in ("Power", "PowerApprox") for a in e.atoms())]
    return list(dict.fromkeys(said for e in powers for said in implied_text(e)))


def explain_change(new: Problem, old: Problem) -> Explanation:
    """Return which terms moved the class from the old problem to the new one."""
    check_parameters((*new.terms, *old.terms))
    before, after = old.problem_class, new.problem_class
    lost = [t.name for t in old.terms if t.name not in {u.name for u in new.terms}]
    if before == after:
        return Explanation(f"{before} stays {after}")
    reasons = []
    if after <= before:
        gone = [str(t.evidence) for t in old.terms if t.name in lost]
        gone += [f"{name!r} is integer" for name in sorted(old.integers - new.integers)]
        reasons = [f"these are gone: {'; '.join(gone)}"]
    else:
        old_terms = {id(t) for t in old.terms}
        for t in new.terms:
            if id(t) not in old_terms and not (t.evidence.problem_class <= before):
                reasons.append(f"{t.name!r} is {t.evidence.function} in {t.evidence.set}")
        reasons += [f"{name!r} is integer" for name in sorted(new.integers - old.integers)]
        if not reasons:
            reasons = ["a witness was found" if new.witness else "no witness stands any more"]
    return Explanation(f"{before} -> {after} because {' and '.join(reasons)}")
