"""Ridge regression: a QP whose solution can be written down."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_matrix, check_number, check_vector

__all__ = ["RidgeRegression"]


class RidgeRegression(Problem):
    r"""Fit a linear model with small coefficients.

    .. math::
        \min_x\; \|A x - b\|_2^2 + \lambda \|x\|_2^2,
        \qquad x^\star = (A^T A + \lambda I)^{-1} A^T b

    Class: QP without constraints. Composing shows what a closed form cannot do: add
    ``signs=p["coefficients"] >= 0`` and the class stays the same.

    Parameters
    ----------
    A : array-like (m, n)
        Features of each observation.
    b : array-like (m,)
        What to fit.
    penalty : float
        λ > 0.

    Attributes
    ----------
    variables : ``coefficients`` (n,)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit, λ that is not positive.

    Examples
    --------
    >>> p = RidgeRegression(A=[[1.0], [1.0]], b=[1.0, 2.0], penalty=1.0)
    >>> p.problem_class, p.solve()["coefficients"].round(6)
    (QP, array([1.]))

    References
    ----------
    Hoerl, Kennard: Ridge Regression, Technometrics 12 (1970).
    """

    title = "RidgeRegression"

    def __init__(self, *, A: Any, b: Any, penalty: float) -> None:
        features = check_matrix(A, "A")
        super().__init__(
            {
                "A": features,
                "b": check_vector(b, "b", features.shape[0]),
                "penalty": check_number(penalty, "penalty", positive=True),
            }
        )

    def declare(self) -> Declaration:
        """Declare the coefficients, the fit and the penalty."""
        A, b = self.data["A"], self.data["b"]
        x = cp.Variable(A.shape[1], name="coefficients")
        return declaration(
            "minimize",
            {
                "fit": cp.sum_squares(A @ x - b),
                "penalty": self.data["penalty"] * cp.sum_squares(x),
            },
            {},
            latex={"fit": r"\|A x - b\|_2^2", "penalty": r"\lambda \|x\|_2^2"},
        )
