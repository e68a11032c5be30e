"""How far a clustering may be from the best one, by a bound over all centers."""

from __future__ import annotations

from typing import Any

import numpy as np

from optfair.core.problem import Problem
from optfair.core.solution import Solution
from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.fair_kmeans_bound import FairKMeansBound
from optfair.numbers import check_number

__all__ = ["optimality_gap"]


def optimality_gap(clustering: Any, bound: Solution, *, tolerance: float = 1e-6) -> float:
    r"""Return how far a clustering may be from the best one, as a share of its cost.

    .. math:: (\text{cost} - \text{bound}) / \text{cost}

    Proved: no clustering that obeys the rules of the bound, hard or soft, with any centers,
    costs less than the bound. Part of the gap may be the relaxation's own.

    Parameters
    ----------
    clustering : array-like (n,) of int, or (n, K), FairKMeans, or float
        Labels, fractions or a fitted estimator: the assignment is checked against the rules
        and costed at its best centers. Or the cost alone, the weighted mean of squared
        distances; nothing can be checked then. Where only the soft assignment obeys the
        rules, it is that one's cost.
    bound : Solution
        Solution of a `FairKMeansBound`; only its dual side is used.
    tolerance : float
        Relative violation that counts as rounding, and how far below the bound a cost may be,
        relative to the bound or the rows' mean squared distance from their mean.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    DeclarationError
        A solution of another problem, or one that does not prove its bound.
    DataError
        A clustering that breaks a constraint of the bound, or a cost below it.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.fair_kmeans_bound import FairKMeansBound
    >>> from optfair.methods.fair_clustering.optimality_gap import optimality_gap
    >>> X, groups = [[0.0], [1.0], [10.0], [11.0]], ["a", "a", "b", "b"]
    >>> bound = FairKMeansBound(X, groups=groups, n_clusters=2).solve()
    >>> round(optimality_gap([0, 1, 1, 0], bound), 3), round(optimality_gap(50.0, bound), 3)
    (0.01, 0.5)
    """
    lowest = _proved(bound, tolerance)
    cost = _cost(getattr(clustering, "soft_assignment_", clustering), bound.problem, tolerance)
    if cost < lowest - tolerance * max(bound.problem.objective_unit, lowest):
        raise DataError(
            f"cost {cost:.10g} is below the bound",
            f"no clustering that obeys the rules costs less than {lowest:.10g}",
            "take both from the same rows, weights, number of clusters, squared distances and"
            " rules; hard labels may break a rule that the soft assignment obeys",
        )
    return max(0.0, cost - lowest) / cost if cost > 0 else 0.0


def _proved(bound: Solution, tolerance: float) -> float:
    """Return the bound that a solution proves; costs are never negative."""
    if not isinstance(bound, Solution) or not isinstance(bound.problem, FairKMeansBound):
        given = bound.problem if isinstance(bound, Solution) else bound
        raise DeclarationError(
            f"the bound is a {type(given).__name__}, not a solution of a FairKMeansBound",
            remedy="give FairKMeansBound(X, groups=, n_clusters=).solve()",
        )
    found = bound.residuals()
    # a stop before the optimum leaves a weaker bound, but a bound
    if not found.dual <= tolerance or not found.consistency <= 1e-12:
        raise DeclarationError(
            "this solution does not prove its bound",
            f"dual residual {found.dual:.1e}" if bound.proof else "it has no proof, as when loaded",
            "solve the problem again",
        )
    return max(0.0, bound.bound)


def _cost(clustering: Any, problem: Problem, tolerance: float) -> float:
    """Return the cost that was given, or that of a clustering which the bound covers."""
    if np.ndim(clustering) == 0:
        return check_number(clustering, "cost")
    if not isinstance(problem, FairKMeansBound):
        raise DeclarationError("the bound is not of a FairKMeansBound")
    point = problem.lift(clustering)
    off = {name: t.relative_violation(point) for name, t in problem.constraints.items()}
    worst = max(off, key=lambda name: off[name])
    if not off[worst] <= tolerance:
        raise DataError(
            f"the clustering breaks {worst!r} by {off[worst]:.1e}",
            "the bound is for clusterings that obey every constraint of its problem",
            "give the soft assignment, or a bound declared with the rule that it obeys",
        )
    return problem.objective_value(point)
