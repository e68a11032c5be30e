"""Prove an integer optimum from the bounds of its relaxations."""

from __future__ import annotations

from typing import Any

import numpy as np

from optfair.core.problem import Problem
from optfair.errors import Infeasible, SolverFailure
from optfair.transforms.relax_integrality import relax_integrality

__all__ = ["tree_bound"]

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
