"""Findings on terms that are not convex, or not known to be: the witness with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.diagnosis.entries import listed, plain
from optfair.diagnosis.finding import Finding

if TYPE_CHECKING:
    from optfair.core.certificate import NonconvexityWitness
    from optfair.core.problem import Problem

__all__ = ["nonconvex_finding"]


def nonconvex_finding(problem: Problem) -> Finding:
    """Return which terms keep the problem from being convex, with the witness if there is one."""
    suspects = [t for t in problem.terms if not t.evidence.problem_class.convex]
    lines = [str(t.evidence) for t in suspects]
    names = [t.name for t in suspects]
    witness = problem.witness
    remedy = (
        "write these terms in a convex form by the rules of disciplined convex programming,"
        " relax them, or ask for a local solution by name of a solver"
    )
    if witness is None:
        title = f"no proof of convexity and none against it: {', '.join(map(repr, names))}"
        return Finding(
            "nonconvexity",
            title,
            tuple(lines),
            remedies=(remedy,),
            numbers={"terms": names, "witness": None},
        )
    numbers = _numbers(problem, witness)
    if witness.term in problem.constraints:
        lines.append("two feasible points, and their midpoint breaks the constraint:")
        rows = [
            (k, f"violated by {numbers[k]:.6g}" if numbers[k] > witness.tolerance else "satisfied")
            for k in ("first", "second", "midpoint")
        ]
        head = ("point", repr(witness.term), "entries")
    else:
        lines.append(
            "two feasible points, and the objective between them is worse than their mean:"
        )
        rows = [(k, f"{numbers[k]:.6g}") for k in ("first", "second", "midpoint")]
        head = ("point", "objective", "entries")
    points = _points(witness)
    return Finding(
        "nonconvexity",
        f"the problem is not convex: {witness.term!r}",
        tuple(lines),
        head,
        tuple((*row, listed(points[row[0]])) for row in rows),
        (remedy,),
        witness,
        {
            "terms": names,
            "witness": {"term": witness.term, **numbers},
            "points": {k: plain(v) for k, v in points.items()},
        },
    )


def _points(witness: NonconvexityWitness) -> dict[str, dict[str, Any]]:
    first = {k: np.asarray(v, dtype=float) for k, v in witness.first.items()}
    second = {k: np.asarray(v, dtype=float) for k, v in witness.second.items()}
    middle = {k: (v + second[k]) / 2 for k, v in first.items()}
    return {"first": first, "second": second, "midpoint": middle}


def _numbers(problem: Problem, witness: NonconvexityWitness) -> dict[str, float]:
    """Return violations of the constraint, or objective values, at the three points."""
    points = _points(witness)
    if witness.term in problem.constraints:
        term = problem.constraints[witness.term]
        return {k: float(np.max(term.violation(v), initial=0.0)) for k, v in points.items()}
    return {k: problem.objective_value(v) for k, v in points.items()}
