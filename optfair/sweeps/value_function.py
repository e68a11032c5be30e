"""What is known of the optimal value as a function of one parameter, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.policy import conic_interface
from optfair.compile.form import compile_problem
from optfair.compile.value_line import same_rows
from optfair.core.parameters import Family, parameters
from optfair.errors import UnsupportedProblem

if TYPE_CHECKING:
    from optfair.core.parameters import Parameter
    from optfair.core.problem import Problem
    from optfair.solution.conic_form import ConicForm


@dataclass(frozen=True)
class Dependence:
    """How an optimal value depends on a parameter.

    Attributes
    ----------
    word : str
        convex, concave, nonincreasing, nondecreasing, or "" where nothing is proved; of the
        declared objective.
    because : str
        Why, or why nothing is.
    """

    word: str
    because: str

    def __str__(self) -> str:
        return f"{self.word or 'not known'}: {self.because}"


def dependence(problem: Problem, name: str, low: float, high: float) -> Dependence:
    """Return what is proved of the optimal value as a function of a scalar parameter.

    Parameters
    ----------
    problem : Problem
        At any value of the parameter.
    name : str
        A scalar parameter of it.
    low, high : float
        Between which values.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> from optfair.sweeps import dependence
    >>> x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) == b]))
    >>> print(dependence(p, "b", 0.0, 2.0))
    convex: 'b' moves right-hand sides of convex constraints
    """
    own = parameters(problem)[name]
    if own.rule[0]:
        return _of_rule(problem, own)
    if own.leaf is None and not problem.movable[name]:
        return Dependence("", f"{name!r} moves more than right-hand sides or costs")
    ends = tuple(problem.at({name: t}) for t in (low, high))
    for term in ends[0].terms if own.leaf is not None else ():
        if any(f.parameter.id == own.leaf.id for f in term.parameters) and not (
            term.written is not None and Family.of(problem, term) is not None
        ):
            return Dependence("", f"{term.name!r} is no affine function of {name!r}")
    try:
        relaxed = [p._child(integers=frozenset()) for p in ends] if problem.integers else ends
        first, last = (compile_problem(p, conic_interface()).form for p in relaxed)
    except UnsupportedProblem as e:
        return Dependence("", e.cause)
    minimised = problem.sense == "minimize"
    convex = problem.problem_class.convex and not problem.integers
    if same_rows(first, last) and convex:
        said = f"{name!r} moves right-hand sides of convex constraints"
        return Dependence("convex" if minimised else "concave", said)
    if _same_set(first, last):
        said = f"{name!r} moves costs alone: the best of linear functions"
        return Dependence("concave" if minimised else "convex", said)
    grows = _grows(first, last)
    if grows:
        word = "nonincreasing" if (grows > 0) == minimised else "nondecreasing"
        set_word = "widens" if grows > 0 else "narrows"
        return Dependence(word, f"the feasible set {set_word} as {name!r} grows")
    return Dependence("", f"{name!r} moves both sides, or costs and sides together")


def _of_rule(problem: Problem, own: Parameter) -> Dependence:
    rule, field = problem.rules[own.rule[0]], own.rule[1]
    if field not in rule.sides:
        return Dependence("", f"{field!r} of {type(rule).__name__} is more than a right-hand side")
    if problem.integers or not problem.problem_class.convex:
        return Dependence("", "the problem is not convex")
    word = "convex" if problem.sense == "minimize" else "concave"
    return Dependence(word, f"{field!r} of {type(rule).__name__} moves right-hand sides alone")


def _same_set(first: ConicForm, last: ConicForm) -> bool:
    rows = first.A is last.A or (
        first.A.shape == last.A.shape and abs(first.A - last.A).max() == 0.0
    )
    return bool(rows) and np.array_equal(first.b, last.b) and first.cones == last.cones


def _grows(first: ConicForm, last: ConicForm) -> int:
    """Return 1 where the feasible set widens, -1 where it narrows, 0 where nothing is proved."""
    if first.A.shape != last.A.shape or first.cones != last.cones:
        return 0
    if not (np.array_equal(first.q, last.q) and abs(first.P - last.P).max() == 0.0):
        return 0
    if first.offset != last.offset:
        return 0
    change = sp.csr_array(last.A - first.A)
    change.eliminate_zeros()
    sides = last.b - first.b
    moved = np.flatnonzero((np.diff(change.indptr) > 0) | (sides != 0.0))
    linear = np.zeros(sides.size, dtype=bool)
    for c in first.cones:
        linear[c.start : c.stop] = c.kind == "nonneg"
    if not linear[moved].all():
        return 0
    # slack gained: the sides, less what the rows change by where the columns may be
    lower, upper = _lasting_bounds(first, moved)
    part: Any = sp.coo_array(change)
    least, most = sides.copy(), sides.copy()
    with np.errstate(invalid="ignore"):
        ends = np.array([part.data * lower[part.col], part.data * upper[part.col]])
    np.subtract.at(least, part.row, ends.max(axis=0))
    np.subtract.at(most, part.row, ends.min(axis=0))
    if (least[moved] >= 0.0).all():
        return 1
    return -1 if (most[moved] <= 0.0).all() else 0


def _lasting_bounds(form: ConicForm, moved: Any) -> tuple[Any, Any]:
    """Return the bounds of columns that rows state which do not move."""
    b = form.b.copy()
    b[moved] = np.inf
    lower, upper = form.moved({"b": b}).column_bounds
    return lower, upper
