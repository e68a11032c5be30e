"""Prove an integer optimum: by looking at every integer point, or from the bounds of relaxations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from optfair.backends.policy import conic_interface
from optfair.compile.form import compile_problem
from optfair.core.problem import Problem
from optfair.errors import DataError, Infeasible, SolverFailure
from optfair.numbers import Floats
from optfair.transforms.integrality import relax_integrality

# Prove an integer optimum by looking at every integer point.

#: how files of facts call this route, in the place of a solver
ENUMERATION = "enumeration"
LARGEST_BOX = 20_000


@dataclass(frozen=True)
class Enumerated:
    """The best of all integer points.

    Attributes
    ----------
    objective, bound : float
        Declared objective of the best point, and what no point beats.
    feasible, points : int
        How many points satisfy the constraints, of how many.
    """

    objective: float
    bound: float
    feasible: int
    points: int

    @property
    def gap(self) -> float:
        """Relative gap; 0 where every variable is integer."""
        return abs(self.objective - self.bound) / max(1.0, abs(self.objective))


def enumerated(problem: Problem, tolerance: float) -> Enumerated:
    r"""Return the optimum over all integer points of the box that the constraints state.

    Where every variable is integer, a point is judged by the declared terms alone, without a
    solver. Otherwise what remains after fixing the integers is solved and verified, or proved
    infeasible.

    Parameters
    ----------
    problem : Problem
        With integer variables that have lower and upper bounds.
    tolerance : float
        Relative residuals asked of the solutions of what remains.

    Raises
    ------
    DataError
        No integer variables, a variable without bounds, a box with too many points.
    Infeasible
        No point satisfies the constraints.

    Examples
    --------
    >>> from optfair.methods.textbook.integer_programs import Knapsack
    >>> p = Knapsack(values=[6.0, 5.0, 5.0], weights=[3.0, 2.0, 2.0], capacity=4.0)
    >>> enumerated(p, 1e-8)
    Enumerated(objective=10.0, bound=10.0, feasible=5, points=8)
    """
    names = sorted(problem.integers)
    box = _box(problem, names)
    count = int(np.prod([float(len(r)) for r in box]))
    pure = problem.integers == frozenset(problem.variables)
    judge = _judged if pure else _completed
    sign = 1.0 if problem.sense == "minimize" else -1.0
    best = bound = np.inf
    feasible = 0
    for point in _points(problem, names, box):
        found = judge(problem, point, tolerance)
        if found is not None:
            feasible += 1
            best, bound = min(best, sign * found[0]), min(bound, sign * found[1])
    if not feasible:
        raise Infeasible(
            "no integer point satisfies the constraints", f"{count} points were tried", ""
        )
    return Enumerated(sign * best, sign * bound, feasible, count)


def _box(problem: Problem, names: list[str]) -> list[range]:
    """Return the integers between the bounds of every entry, from rows with one column."""
    if not names:
        raise DataError(
            "there are no integer variables to enumerate", remedy="name a solver instead"
        )
    form = compile_problem(relax_integrality(problem).problem, conic_interface()).form
    lower, upper = form.column_bounds
    ranges: list[range] = []
    for name in names:
        # a variable that no term uses has no columns
        at = form.columns.get(name, slice(0, 0))
        low, high = np.ceil(lower[at] - 1e-9), np.floor(upper[at] + 1e-9)
        if low.size != problem[name].size or not np.isfinite([low, high]).all():
            raise DataError(
                f"{name!r} has entries without lower and upper bounds",
                remedy="add bounds, as in p.with_constraints(least=p[name] >= 0)",
            )
        ranges += [range(int(a), int(b) + 1) for a, b in zip(low, high, strict=True)]
    size = float(np.prod([float(len(r)) for r in ranges]))
    if size > LARGEST_BOX:
        raise DataError(
            f"the box has {size:.3g} integer points, more than {LARGEST_BOX}",
            remedy="check this instance with a solver that takes integer variables",
        )
    return ranges


def _points(problem: Problem, names: list[str], box: list[range]) -> Iterator[dict[str, Floats]]:
    ends = np.cumsum([problem[name].size for name in names])[:-1]
    for entries in product(*box):
        parts = np.split(np.array(entries, dtype=float), ends)
        # columns of the compiled form stack matrices column by column
        yield {
            name: part.reshape(problem[name].shape, order="F")
            for name, part in zip(names, parts, strict=True)
        }


def _judged(
    problem: Problem, point: dict[str, Floats], tolerance: float
) -> tuple[float, float] | None:
    """Return the objective twice, or None for a point outside a constraint."""
    for term in problem.constraints.values():
        if not term.relative_violation(point) <= tolerance:
            return None
    objective = problem.objective_value(point)
    return objective, objective


def _completed(
    problem: Problem, point: dict[str, Floats], tolerance: float
) -> tuple[float, float] | None:
    """Return objective and bound of the best completion, or None where there is none."""
    fixed: dict[str, Any] = {f"fixed {k}": problem[k] == v for k, v in point.items()}
    rest = relax_integrality(problem.with_constraints(fixed)).problem
    try:
        s = rest.solve(tolerance=tolerance)
    except Infeasible as e:
        certificate = e.certificate
        if certificate is None or not certificate.verify():
            raise
        return None
    return s.objective, s.bound


# Prove an integer optimum from the bounds of its relaxations.

LARGEST_TREE = 2_000
INTEGER = 1e-6


def tree_bound(problem: Problem, value: float, solver: str, tolerance: float) -> tuple[float, int]:
    r"""Return a bound that no integer point can beat, and the number of nodes it took.

    The tree is cut where a relaxation is infeasible or its verified bound is not better than
    ``value`` by more than ``tolerance``; so a bound near ``value`` proves that ``value`` is
    optimal, and a better one shows the point that refutes it. The solver needs no integer
    variables of its own: this is a second opinion on branch and bound, for small problems.

    Parameters
    ----------
    problem : Problem
        With integer variables.
    value : float
        Claimed optimum.
    solver : str
        Who solves the relaxations.
    tolerance : float
        Relative to max(1, \|value\|).

    Raises
    ------
    SolverFailure
        The tree grows too large.
    """
    sign = 1.0 if problem.sense == "minimize" else -1.0
    slack = tolerance * max(1.0, abs(value))
    worst, nodes = np.inf, 0
    open_nodes: list[dict[str, Any]] = [{}]
    while open_nodes:
        branches = open_nodes.pop()
        nodes += 1
        if nodes > LARGEST_TREE:
            raise SolverFailure(
                f"the search tree has more than {LARGEST_TREE} nodes",
                f"relaxations solved by {solver}",
                "check this instance with a solver that takes integer variables",
            )
        node = relax_integrality(problem.with_constraints(branches)).problem
        try:
            relaxed = node.solve(solver)
        except Infeasible:
            continue
        bound = sign * relaxed.bound
        split = _fractional(problem, relaxed.values)
        if bound >= sign * value - slack or split is None:
            worst = min(worst, bound)
            continue
        name, index, low = split
        entry = problem[name][index]
        label = f"branch {nodes}"
        open_nodes += [{**branches, label: entry <= low}, {**branches, label: entry >= low + 1.0}]
    return sign * worst, nodes


def _fractional(problem: Problem, values: Any) -> tuple[str, tuple[Any, ...], float] | None:
    """Return (name, index, floor) of the integer entry farthest from integers, if any is."""
    found, farthest = None, INTEGER
    for name in sorted(problem.integers):
        x = np.asarray(values[name], dtype=float)
        away = np.abs(x - np.round(x))
        index = np.unravel_index(int(away.argmax()), away.shape)
        if away[index] > farthest:
            found, farthest = (name, tuple(map(int, index)), float(np.floor(x[index]))), away[index]
    return found
