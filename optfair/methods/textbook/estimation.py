"""Estimates from data: coefficients, lattice points, probabilities, correlations, and the portfolios that rest on them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.adopt import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import (
    check_count,
    check_matrix,
    check_number,
    check_semidefinite,
    check_symmetric,
    check_vector,
)

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


# The portfolio of least risk for a wanted return.


class MinimumVariance(Problem):
    r"""Invest one unit of money with the least variance that still earns a wanted return.

    .. math::
        \min_x\; x^T \Sigma x \quad\text{s.t.}\quad 1^T x = 1,\; r^T x \ge t,\; x \ge 0

    Class: QP. `RiskBudget` asks the question the other way round and is an SOCP.

    The shadow price of ``wanted return`` is the slope of the efficient frontier.

    Parameters
    ----------
    returns : array-like (n,)
        Expected return of each asset.
    covariance : array-like (n, n)
        Covariance of the returns, positive semidefinite.
    wanted : float
        Return t to reach.

    Attributes
    ----------
    variables : ``portfolio`` (n,)

    Raises
    ------
    DataError
        Numbers that are not finite, a covariance with a negative eigenvalue.

    Examples
    --------
    >>> p = MinimumVariance(returns=[0.1, 0.1], covariance=[[1.0, 0.0], [0.0, 3.0]], wanted=0.0)
    >>> p.problem_class, p.solve()["portfolio"].round(6)
    (QP, array([0.75, 0.25]))

    References
    ----------
    Markowitz: Portfolio Selection, Journal of Finance 7 (1952).
    """

    movable = MappingProxyType({"wanted": "sides"})

    def __init__(self, *, returns: Any, covariance: Any, wanted: float) -> None:
        S = check_semidefinite(covariance, "covariance")
        super().__init__(
            {
                "covariance": S,
                "returns": check_vector(returns, "returns", S.shape[0]),
                "wanted": check_number(wanted, "wanted"),
            }
        )

    def declare(self) -> Declaration:
        """Declare the portfolio, its variance, budget and return."""
        r = self.data["returns"]
        x = cp.Variable(r.size, name="portfolio")
        return declaration(
            "minimize",
            {"variance": (cp.quad_form(x, cp.psd_wrap(self.data["covariance"])), r"x^T \Sigma x")},
            {
                "budget": (cp.sum(x) == 1, "1^T x = 1"),
                "wanted return": (r @ x >= self.data["wanted"], r"r^T x \ge t"),
                "no short sales": (x >= 0, r"x \ge 0"),
            },
        )


# The portfolio of least risk with few assets.


class CardinalityPortfolio(Problem):
    r"""Invest one unit of money in few assets with the least variance for a wanted return.

    .. math::
        \min_{x, z}\; x^T \Sigma x \quad\text{s.t.}\quad 1^T x = 1,\; r^T x \ge t,\;
        0 \le x \le z,\; 1^T z \le k,\; z \le 1,\; z \in \mathbb{Z}^n

    Class: MIQP. Without the count it is `MinimumVariance`, a QP.

    Parameters
    ----------
    returns : array-like (n,)
        Expected return of each asset.
    covariance : array-like (n, n)
        Covariance of the returns, positive semidefinite.
    wanted : float
        Return t to reach.
    most : int
        Number k of assets that may be held, at least 1.

    Attributes
    ----------
    variables : ``portfolio`` (n,), ``held`` (n,) integer

    Raises
    ------
    DataError
        Numbers that are not finite, a covariance with a negative eigenvalue, no asset allowed.

    Examples
    --------
    >>> p = CardinalityPortfolio(
    ...     returns=[0.1, 0.2], covariance=[[1.0, 0.0], [0.0, 3.0]], wanted=0.0, most=1
    ... )
    >>> p.problem_class
    MIQP

    References
    ----------
    Bienstock: Computational Study of a Family of Mixed-Integer Quadratic Programming
    Problems, Mathematical Programming 74 (1996).
    """

    movable = MappingProxyType({"wanted": "sides"})

    def __init__(self, *, returns: Any, covariance: Any, wanted: float, most: int) -> None:
        S = check_semidefinite(covariance, "covariance")
        super().__init__(
            {
                "covariance": S,
                "returns": check_vector(returns, "returns", S.shape[0]),
                "wanted": check_number(wanted, "wanted"),
                "most": check_count(most, "most"),
            }
        )

    def declare(self) -> Declaration:
        """Declare the portfolio and which assets it holds."""
        d = self.data
        x = cp.Variable(d["returns"].size, name="portfolio")
        z = cp.Variable(d["returns"].size, name="held")
        return declaration(
            "minimize",
            {"variance": (cp.quad_form(x, cp.psd_wrap(d["covariance"])), r"x^T \Sigma x")},
            {
                "budget": (cp.sum(x) == 1, "1^T x = 1"),
                "wanted return": (d["returns"] @ x >= d["wanted"], r"r^T x \ge t"),
                "no short sales": (x >= 0, r"x \ge 0"),
                "only what is held": (x <= z, r"x \le z"),
                "count": (cp.sum(z) <= d["most"], r"1^T z \le k"),
                "at least none": (z >= 0, r"z \ge 0"),
                "at most one": (z <= 1, r"z \le 1"),
            },
            integers=frozenset({"held"}),
        )


# The portfolio of largest return within a risk.


class RiskBudget(Problem):
    r"""Invest one unit of money for the largest return within a standard deviation.

    .. math::
        \max_x\; r^T x \quad\text{s.t.}\quad \|F^T x\|_2 \le \sigma,\; 1^T x = 1,\; x \ge 0,
        \qquad \Sigma = F F^T

    Class: SOCP. `MinimumVariance` asks the question the other way round and is a QP.

    Parameters
    ----------
    returns : array-like (n,)
        Expected return of each asset.
    covariance : array-like (n, n)
        Covariance Σ of the returns, positive semidefinite.
    risk : float
        Standard deviation σ to stay within.

    Attributes
    ----------
    variables : ``portfolio`` (n,)

    Raises
    ------
    DataError
        Numbers that are not finite, a risk that is not positive, a covariance with a
        negative eigenvalue.

    Examples
    --------
    >>> p = RiskBudget(returns=[0.1, 0.2], covariance=[[0.0, 0.0], [0.0, 4.0]], risk=1.0)
    >>> p.problem_class, round(p.solve().objective, 6)
    (SOCP, 0.15)

    References
    ----------
    Lobo, Vandenberghe, Boyd, Lebret: Applications of Second-Order Cone Programming, Linear
    Algebra and its Applications 284 (1998), section 3.3.
    """

    def __init__(self, *, returns: Any, covariance: Any, risk: float) -> None:
        S = check_semidefinite(covariance, "covariance")
        eigenvalues, vectors = np.linalg.eigh(S)
        super().__init__(
            {
                "covariance": S,
                "factor": vectors * np.sqrt(np.maximum(eigenvalues, 0.0)),
                "returns": check_vector(returns, "returns", S.shape[0]),
                "risk": check_number(risk, "risk", positive=True),
            }
        )

    def declare(self) -> Declaration:
        """Declare the portfolio, its return, risk and budget."""
        r = self.data["returns"]
        x = cp.Variable(r.size, name="portfolio")
        return declaration(
            "maximize",
            {"return": (r @ x, "r^T x")},
            {
                "risk": (
                    cp.norm(self.data["factor"].T @ x) <= self.data["risk"],
                    r"\|F^T x\|_2 \le \sigma",
                ),
                "budget": (cp.sum(x) == 1, "1^T x = 1"),
                "no short sales": (x >= 0, r"x \ge 0"),
            },
        )


class IntegerLeastSquares(Problem):
    r"""Fit observations by integer coefficients within bounds.

    .. math::
        \min_x\; \|A x - b\|_2^2 \quad\text{s.t.}\quad l \le x \le u,\; x \in \mathbb{Z}^n

    Class: MIQP. It is the closest-vector problem of the lattice with basis A, in a box;
    rounding the solution of the relaxation is a heuristic, not a solution.

    Parameters
    ----------
    A : array-like (m, n)
        One column per coefficient.
    b : array-like (m,)
        Observations.
    lower, upper : float
        Bounds of every coefficient.

    Attributes
    ----------
    variables : ``coefficients`` (n,) integer

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit, crossed bounds.

    Examples
    --------
    >>> p = IntegerLeastSquares(A=[[3.0]], b=[4.0], lower=-5, upper=5)
    >>> p.problem_class, p.objective_value({"coefficients": [1.0]})
    (MIQP, 1.0)

    References
    ----------
    Agrell, Eriksson, Vardy, Zeger: Closest Point Search in Lattices, IEEE Transactions on
    Information Theory 48 (2002).
    """

    def __init__(self, *, A: Any, b: Any, lower: float, upper: float) -> None:
        columns = check_matrix(A, "A")
        low, high = check_number(lower, "lower"), check_number(upper, "upper")
        if low > high:
            raise DataError(
                f"lower {low:g} is above upper {high:g}", remedy="exchange them, or widen the box"
            )
        seen = check_vector(b, "b", columns.shape[0])
        super().__init__({"A": columns, "b": seen, "lower": low, "upper": high})

    @property
    def objective_unit(self) -> float:
        """The largest square of a measurement, or of what an integer adds to it, at most 1."""
        sizes = (float(np.abs(self.data[name]).max(initial=0.0)) for name in ("A", "b"))
        return min(1.0, max(sizes) ** 2) or 1.0

    def declare(self) -> Declaration:
        """Declare the coefficients, their misfit and bounds."""
        d = self.data
        x = cp.Variable(d["A"].shape[1], name="coefficients")
        return declaration(
            "minimize",
            {"misfit": (cp.sum_squares(d["A"] @ x - d["b"]), r"\|A x - b\|_2^2")},
            {
                "lower bound": (x >= d["lower"], r"x \ge l"),
                "upper bound": (x <= d["upper"], r"x \le u"),
            },
            integers=frozenset({"coefficients"}),
        )
