"""Least squares over fractions that sum to one."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_matrix, check_vector

__all__ = ["SimplexRegression"]


class SimplexRegression(Problem):
    r"""Explain an observation as a mixture of known parts.

    .. math::
        \min_x\; \|A x - b\|_2^2 \quad\text{s.t.}\quad 1^T x = 1,\; x \ge 0

    Class: QP. With A = I it is the projection on the simplex.

    Parameters
    ----------
    A : array-like (m, n)
        One part per column.
    b : array-like (m,)
        Observation.

    Attributes
    ----------
    variables : ``fractions`` (n,)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit.

    Examples
    --------
    >>> p = SimplexRegression(A=[[1.0, 0.0], [0.0, 1.0]], b=[1.0, 0.5])
    >>> p.solve()["fractions"].round(6)
    array([0.75, 0.25])

    References
    ----------
    Heinz, Chang: Fully Constrained Least Squares Linear Spectral Mixture Analysis, IEEE
    Transactions on Geoscience and Remote Sensing 39 (2001).
    """

    title = "SimplexRegression"

    def __init__(self, *, A: Any, b: Any) -> None:
        parts = check_matrix(A, "A")
        super().__init__({"A": parts, "b": check_vector(b, "b", parts.shape[0])})

    def declare(self) -> Declaration:
        """Declare the fractions and the fit."""
        A, b = self.data["A"], self.data["b"]
        x = cp.Variable(A.shape[1], name="fractions")
        return declaration(
            "minimize",
            {"fit": cp.sum_squares(A @ x - b)},
            {"sum": cp.sum(x) == 1, "nonnegativity": x >= 0},
            latex={
                "fit": r"\|A x - b\|_2^2",
                "sum": "1^T x = 1",
                "nonnegativity": r"x \ge 0",
            },
        )
