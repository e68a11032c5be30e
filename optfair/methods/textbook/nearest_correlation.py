"""The correlation matrix nearest to a matrix."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_symmetric

__all__ = ["NearestCorrelation"]


class NearestCorrelation(Problem):
    r"""Mend a matrix of estimated correlations that is not positive semidefinite.

    .. math::
        \min_X\; \tfrac12 \|X - A\|_F^2
        \quad\text{s.t.}\quad \operatorname{diag} X = 1,\; X \succeq 0

    Class: SDP, with a quadratic objective.

    Parameters
    ----------
    estimate : array-like (n, n)
        Symmetric matrix A.

    Attributes
    ----------
    variables : ``correlation`` (n, n) symmetric

    Raises
    ------
    DataError
        A matrix that is not symmetric or not finite.

    Examples
    --------
    >>> p = NearestCorrelation(estimate=[[1.0, 1.5], [1.5, 1.0]])
    >>> p.problem_class, p.solve()["correlation"].round(5)
    (SDP, array([[1., 1.], [1., 1.]]))

    References
    ----------
    Higham: Computing the Nearest Correlation Matrix, IMA Journal of Numerical Analysis 22
    (2002).
    """

    title = "NearestCorrelation"

    def __init__(self, *, estimate: Any) -> None:
        super().__init__({"estimate": check_symmetric(estimate, "estimate")})

    def declare(self) -> Declaration:
        """Declare the correlation matrix and its distance."""
        A = self.data["estimate"]
        X = cp.Variable(A.shape, name="correlation", symmetric=True)
        return declaration(
            "minimize",
            {"distance": cp.sum_squares(X - A) / 2},
            {"unit diagonal": cp.diag(X) == 1, "semidefinite": X >> 0},
            latex={
                "distance": r"\tfrac12 \|X - A\|_F^2",
                "unit diagonal": r"\operatorname{diag} X = 1",
                "semidefinite": r"X \succeq 0",
            },
        )
