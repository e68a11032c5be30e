"""The knapsack problem."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_number, check_vector

__all__ = ["Knapsack"]


class Knapsack(Problem):
    r"""Pack the most valuable items a knapsack can carry.

    .. math::
        \max_x\; v^T x \quad\text{s.t.}\quad w^T x \le c,\; 0 \le x \le 1,\; x \in \mathbb{Z}^n

    Class: MILP.

    Parameters
    ----------
    values, weights : array-like (n,)
        Of each item; weights are not negative.
    capacity : float
        Weight the knapsack carries, positive.

    Attributes
    ----------
    variables : ``packed`` (n,) integer

    Raises
    ------
    DataError
        Entries that are not finite numbers, negative weights, a capacity that is not positive.

    Examples
    --------
    >>> p = Knapsack(values=[6.0, 5.0, 5.0], weights=[3.0, 2.0, 2.0], capacity=4.0)
    >>> p.problem_class, p.solve().objective
    (MILP, 10.0)

    References
    ----------
    Martello, Toth: Knapsack Problems, Wiley (1990).
    """

    title = "Knapsack"

    def __init__(self, *, values: Any, weights: Any, capacity: float) -> None:
        worth = check_vector(values, "values")
        load = check_vector(weights, "weights", worth.size)
        if (load < 0).any():
            raise DataError(
                "weights has negative entries",
                f"the first is item {int((load < 0).argmax())}",
                "give weights of at least 0",
            )
        limit = check_number(capacity, "capacity", positive=True)
        super().__init__({"values": worth, "weights": load, "capacity": limit})

    def declare(self) -> Declaration:
        """Declare what is packed, its value and weight."""
        v, w = self.data["values"], self.data["weights"]
        x = cp.Variable(v.size, name="packed")
        return declaration(
            "maximize",
            {"value": v @ x},
            {
                "capacity": w @ x <= self.data["capacity"],
                "at least none": x >= 0,
                "at most one": x <= 1,
            },
            latex={
                "value": "v^T x",
                "capacity": r"w^T x \le c",
                "at least none": r"x \ge 0",
                "at most one": r"x \le 1",
            },
            integers=frozenset({"packed"}),
        )
