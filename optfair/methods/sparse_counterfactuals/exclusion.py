"""Constraints that leave single choices out: what every rule on a row comes down to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.compile.quadratic import constraint_set, named_map
from optfair.core.evidence import Evidence
from optfair.core.problem_class import LP
from optfair.core.term import ConstraintTerm, Values
from optfair.errors import UnsupportedProblem

if TYPE_CHECKING:
    from optfair.methods.sparse_counterfactuals.choice_problem import ChoiceProblem

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

__all__ = ["ExclusionTerm", "excluded_by", "exclusion"]

# Rounding that a constraint's value at a choice may have, relative to its constant.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class ExclusionTerm(ConstraintTerm):
    """Choices that must not be made.

    Parameters
    ----------
    excluded : bool array (N,)
        Whether the choice is left out.
    """

    excluded: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))


def exclusion(problem: ChoiceProblem, excluded: Flags, latex: str = "") -> ExclusionTerm:
    r"""Return the term :math:`\sum_{j \text{ excluded}} a_j \le 0`.

    With non-negative choices, a single row says the same as one equality for each.
    """
    a = problem["choice"]
    weights = excluded.astype(float)
    weights.flags.writeable = False

    def violation(values: Values) -> Floats:
        return np.asarray(np.maximum(weights @ np.asarray(values["choice"], dtype=float), 0.0))

    return ExclusionTerm(
        name="",
        scope=frozenset({"choice"}),
        evidence=Evidence("", "affine", "Nonpositive", LP),
        build=lambda: weights @ a <= 0,
        violation=violation,
        latex=latex,
        excluded=excluded,
    )


def excluded_by(problem: ChoiceProblem, term: ConstraintTerm) -> Flags | str:
    """Return the choices that a constraint leaves out, or why it does more than that.

    A linear constraint each of whose rows has coefficients in one data row only says which
    choices of that row may be made, because exactly one of them is.

    Parameters
    ----------
    problem : ChoiceProblem
        Whose constraint it is.
    term : ConstraintTerm
        The constraint.

    Returns
    -------
    bool array (N,) or str
    """
    if isinstance(term, ExclusionTerm):
        return term.excluded
    if not term.scope <= {"choice"}:
        return f"{term.name!r} is not a rule on single rows"
    if term.evidence.problem_class != LP:
        return f"{term.name!r} is not linear"
    choices, a = problem.choices, problem["choice"]
    try:
        kind, sign, expression = constraint_set(term.name, term.build())
        found = named_map(term.name, expression, {a.id: 0}, a.size)
    except UnsupportedProblem:
        return f"{term.name!r} is not linear"
    if found.Q.nnz:
        return f"{term.name!r} is not linear"
    A, b = found.A.tocsr(), sign * found.b
    width = np.diff(A.indptr)
    of = np.repeat(np.arange(b.size), width)
    rows = choices.row[A.indices]
    some = np.flatnonzero(width)
    if some.size:
        starts = A.indptr[some]
        apart = np.maximum.reduceat(rows, starts) != np.minimum.reduceat(rows, starts)
        if apart.any():
            return f"{term.name!r} ties rows together: it is not a rule on single rows"
    allowed = ROUNDING * (1.0 + np.abs(b))

    def off(value: Floats, i: Any) -> Flags:
        size = np.abs(value) if kind == "zero" else value
        return np.asarray(size > allowed[i], dtype=bool)

    if off(b[width == 0], width == 0).any():
        return f"{term.name!r} cannot hold"
    excluded = np.zeros(choices.size, dtype=bool)
    excluded[A.indices[off(sign * A.data + b[of], of)]] = True
    # where the constant alone is outside, the choices without a coefficient are left out too
    for i in np.flatnonzero(off(b, np.arange(b.size)) & (width > 0)):
        mine = A.indices[A.indptr[i] : A.indptr[i + 1]]
        first, last = choices.starts[choices.row[mine[0]] : choices.row[mine[0]] + 2]
        excluded[np.setdiff1d(np.arange(first, last), mine)] = True
    return excluded
