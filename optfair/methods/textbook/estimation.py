"""Estimation: regressions, the least informative distribution, the nearest correlation matrix."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.adopt import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_matrix, check_number, check_symmetric, check_vector

# Ridge regression: a QP whose solution can be written down.


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
                "fit": (cp.sum_squares(A @ x - b), r"\|A x - b\|_2^2"),
                "penalty": (self.data["penalty"] * cp.sum_squares(x), r"\lambda \|x\|_2^2"),
            },
            {},
        )


# Least squares over fractions that sum to one.


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
            {"fit": (cp.sum_squares(A @ x - b), r"\|A x - b\|_2^2")},
            {"sum": (cp.sum(x) == 1, "1^T x = 1"), "nonnegativity": (x >= 0, r"x \ge 0")},
        )


# The least informative distribution with given moments.


class MaximumEntropy(Problem):
    r"""Find the distribution of largest entropy with given expectations.

    .. math::
        \max_p\; -\sum_j p_j \log p_j \quad\text{s.t.}\quad 1^T p = 1,\; F p = m

    Class: CONIC(exp). The entropy is defined for p ≥ 0 only, so no sign is needed.

    The solution has the Gibbs form :math:`p_j \propto \exp(-\lambda^T F_j)`, where λ are the
    multipliers of ``moments``.

    Parameters
    ----------
    functions : array-like (m, n)
        Value of each function at each outcome.
    moments : array-like (m,)
        Expectation of each function.

    Attributes
    ----------
    variables : ``probabilities`` (n,)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit.

    Examples
    --------
    >>> p = MaximumEntropy(functions=[[1.0, 2.0, 3.0]], moments=[2.0])
    >>> p.problem_class, p.solve()["probabilities"].round(3)
    (CONIC(exp), array([0.333, 0.333, 0.333]))

    References
    ----------
    Jaynes: Information Theory and Statistical Mechanics, Physical Review 106 (1957).
    """

    title = "MaximumEntropy"

    def __init__(self, *, functions: Any, moments: Any) -> None:
        F = check_matrix(functions, "functions")
        super().__init__({"functions": F, "moments": check_vector(moments, "moments", F.shape[0])})

    def declare(self) -> Declaration:
        """Declare the probabilities, their entropy and moments."""
        F = self.data["functions"]
        p = cp.Variable(F.shape[1], name="probabilities")
        return declaration(
            "maximize",
            {"entropy": (cp.sum(cp.entr(p)), r"-\textstyle\sum_j p_j \log p_j")},
            {
                "sum": (cp.sum(p) == 1, "1^T p = 1"),
                "moments": (F @ p == self.data["moments"], "F p = m"),
            },
        )


# The correlation matrix nearest to a matrix.


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
            {"distance": (cp.sum_squares(X - A) / 2, r"\tfrac12 \|X - A\|_F^2")},
            {
                "unit diagonal": (cp.diag(X) == 1, r"\operatorname{diag} X = 1"),
                "semidefinite": (X >> 0, r"X \succeq 0"),
            },
        )
