"""Which rows of a gathered term carry a conflict: those that an elastic program has to bend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.backends.solve import solve
from optfair.core.classify import objective_term
from optfair.errors import OptfairError
from optfair.formats.file_terms import BlockTerm
from optfair.transforms.relax_integrality import relax_integrality

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["carrying_entries"]

# Multipliers of at least this share of the largest carry the conflict.
_SHARE = 1e-7


def carrying_entries(
    problem: Problem, time_limit: float | None = None
) -> dict[str, NDArray[np.int64]]:
    r"""Return the entries of gathered terms that exclude each other, by term.

    Every gathered row :math:`a^T x \le b` may be bent:

    .. math:: \min_{x,\, s \ge 0}\; \sum_k s_k \quad\text{s.t.}\quad a_k^T x - s_k \le b_k

    The rows with multipliers are those whose combination has no solution. Integers are
    relaxed. Nothing is returned where the rows can hold together, or no answer was found.

    Parameters
    ----------
    problem : Problem
        Convex; its gathered terms are looked at.
    time_limit : float, optional
        Wall seconds this is worth.
    """
    gathered = {
        name: t.block
        for name, t in problem.constraints.items()
        if isinstance(t, BlockTerm) and t.block is not None and t.block.gathered
    }
    if not gathered:
        return {}
    bent: Any = (
        relax_integrality(problem, *problem.integers).problem if problem.integers else problem
    )
    bent = bent.with_terms({}, {k: t for k, t in problem.constraints.items() if k not in gathered})
    slacks, elastic, bounds = {}, {}, {}
    for name, block in gathered.items():
        s = cp.Variable((2 if block.side == "==" else 1, block.members.size), name=f"bend {name}")
        slacks[f"bend {name}"] = s
        body, limit = block.body(), block.limits
        moved = body - s[0] + s[1] if block.side == "==" else body - s[0]
        moved = body + s[0] if block.side == ">=" else moved
        elastic[name] = (
            moved == limit
            if block.side == "=="
            else moved >= limit
            if block.side == ">="
            else moved <= limit
        )
        bounds[f"bend {name} nonnegative"] = s >= 0
    bent = bent.with_variables(slacks).with_constraints({**elastic, **bounds})
    sign = 1.0 if bent.sense == "minimize" else -1.0
    total = sign * sum(cp.sum(s) for s in slacks.values())
    goal = objective_term("bend", total, bent.names, bent.sense)
    bent = bent.with_terms({"bend": goal}, bent.constraints)
    try:
        solution = solve(bent, time_limit=time_limit)
    except OptfairError:
        return {}
    sizes = {
        k: np.abs(np.ravel(np.asarray(solution.multipliers[k], dtype=float))) for k in gathered
    }
    largest = max((float(v.max(initial=0.0)) for v in sizes.values()), default=0.0)
    if abs(solution.objective) <= 0.0 or not largest:
        return {}
    return {k: np.flatnonzero(v > _SHARE * largest) for k, v in sizes.items()}
