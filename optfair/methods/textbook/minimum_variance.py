"""The portfolio of least risk for a wanted return."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_number, check_semidefinite, check_vector

__all__ = ["MinimumVariance"]


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
            {"variance": cp.quad_form(x, cp.psd_wrap(self.data["covariance"]))},
            {
                "budget": cp.sum(x) == 1,
                "wanted return": r @ x >= self.data["wanted"],
                "no short sales": x >= 0,
            },
            latex={
                "variance": r"x^T \Sigma x",
                "budget": "1^T x = 1",
                "wanted return": r"r^T x \ge t",
                "no short sales": r"x \ge 0",
            },
        )
