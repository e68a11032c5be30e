"""Portfolios: of least risk for a return, with few assets, of largest return within a risk."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.adopt import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_number, check_semidefinite, check_vector

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

    title = "MinimumVariance"
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

    title = "CardinalityPortfolio"
    movable = MappingProxyType({"wanted": "sides"})

    def __init__(self, *, returns: Any, covariance: Any, wanted: float, most: int) -> None:
        S = check_semidefinite(covariance, "covariance")
        count = check_number(most, "most")
        if count < 1 or count % 1:
            raise DataError(f"most is {most!r}", remedy="give a whole number of at least 1")
        super().__init__(
            {
                "covariance": S,
                "returns": check_vector(returns, "returns", S.shape[0]),
                "wanted": check_number(wanted, "wanted"),
                "most": count,
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

    title = "RiskBudget"

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
