"""The transportation problem."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_matrix, check_vector

__all__ = ["Transport"]


class Transport(Problem):
    r"""Ship goods from plants to markets at the least cost.

    .. math::
        \min_{X}\; \langle C, X\rangle \quad\text{s.t.}\quad X 1 \le s,\; X^T 1 \ge d,\; X \ge 0

    Class: LP. The shadow price of ``demand`` is what one more unit at a market costs.

    Parameters
    ----------
    cost : array-like (m, n)
        Cost of a unit from each plant to each market.
    supply : array-like (m,)
        What each plant can ship.
    demand : array-like (n,)
        What each market needs; in sum not more than the supply.

    Attributes
    ----------
    variables : ``shipments`` (m, n)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit, more demand than supply.

    Examples
    --------
    >>> p = Transport(cost=[[1.0, 2.0], [3.0, 1.0]], supply=[5.0, 5.0], demand=[6.0, 2.0])
    >>> p.problem_class, round(p.solve().objective, 6)
    (LP, 10.0)

    References
    ----------
    Hitchcock: The Distribution of a Product from Several Sources to Numerous Localities,
    Journal of Mathematics and Physics 20 (1941).
    """

    title = "Transport"

    def __init__(self, *, cost: Any, supply: Any, demand: Any) -> None:
        C = check_matrix(cost, "cost")
        s, d = (
            check_vector(supply, "supply", C.shape[0]),
            check_vector(demand, "demand", C.shape[1]),
        )
        if d.sum() > s.sum() * (1.0 + 1e-12):
            raise DataError(
                "demand exceeds supply",
                f"{d.sum():g} are needed and {s.sum():g} are there",
                "lower the demand or add supply",
            )
        super().__init__({"cost": C, "supply": s, "demand": d})

    def declare(self) -> Declaration:
        """Declare the shipments, their cost, supply and demand."""
        C = self.data["cost"]
        X = cp.Variable(C.shape, name="shipments")
        return declaration(
            "minimize",
            {"cost": cp.sum(cp.multiply(C, X))},
            {
                "supply": cp.sum(X, axis=1) <= self.data["supply"],
                "demand": cp.sum(X, axis=0) >= self.data["demand"],
                "nonnegativity": X >= 0,
            },
            latex={
                "cost": r"\langle C, X \rangle",
                "supply": r"X 1 \le s",
                "demand": r"X^T 1 \ge d",
                "nonnegativity": r"X \ge 0",
            },
        )
