"""The portfolio of largest return within a risk."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_number, check_semidefinite, check_vector

__all__ = ["RiskBudget"]


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
            {"return": r @ x},
            {
                "risk": cp.norm(self.data["factor"].T @ x) <= self.data["risk"],
                "budget": cp.sum(x) == 1,
                "no short sales": x >= 0,
            },
            latex={
                "return": "r^T x",
                "risk": r"\|F^T x\|_2 \le \sigma",
                "budget": "1^T x = 1",
                "no short sales": r"x \ge 0",
            },
        )
