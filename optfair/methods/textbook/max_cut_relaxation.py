"""The semidefinite relaxation of the maximum cut."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_symmetric

__all__ = ["MaxCutRelaxation"]


class MaxCutRelaxation(Problem):
    r"""Bound the weight of the largest cut of a graph.

    .. math::
        \max_X\; \tfrac14 \langle L, X\rangle
        \quad\text{s.t.}\quad \operatorname{diag} X = 1,\; X \succeq 0

    Class: SDP. L is the Laplacian of the graph. A cut s ∈ {-1, 1}ⁿ gives the feasible
    :math:`X = s s^T`; dropping its rank of 1 leaves a convex problem, whose optimum is at
    most 1/0.878 times the largest cut.

    Parameters
    ----------
    weights : array-like (n, n)
        Symmetric edge weights, not negative, without loops.

    Attributes
    ----------
    variables : ``gram`` (n, n) symmetric

    Raises
    ------
    DataError
        Weights that are not symmetric, negative, or on the diagonal.

    Examples
    --------
    >>> p = MaxCutRelaxation(weights=[[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    >>> p.problem_class, round(p.solve().objective, 6)  # the largest cut of a triangle is 2
    (SDP, 2.25)

    References
    ----------
    Goemans, Williamson: Improved Approximation Algorithms for Maximum Cut and Satisfiability
    Problems Using Semidefinite Programming, Journal of the ACM 42 (1995).
    """

    title = "MaxCutRelaxation"

    def __init__(self, *, weights: Any) -> None:
        W = check_symmetric(weights, "weights")
        if (W < 0).any() or np.diag(W).any():
            raise DataError(
                "weights has negative entries or loops",
                remedy="give edge weights of at least 0, and 0 on the diagonal",
            )
        super().__init__({"weights": W})

    def declare(self) -> Declaration:
        """Declare the Gram matrix of the relaxation."""
        W = self.data["weights"]
        laplacian = np.diag(W.sum(axis=1)) - W
        X = cp.Variable(W.shape, name="gram", symmetric=True)
        return declaration(
            "maximize",
            {"cut": cp.sum(cp.multiply(laplacian / 4.0, X))},
            {"unit diagonal": cp.diag(X) == 1, "semidefinite": X >> 0},
            latex={
                "cut": r"\tfrac14 \langle L, X \rangle",
                "unit diagonal": r"\operatorname{diag} X = 1",
                "semidefinite": r"X \succeq 0",
            },
        )
