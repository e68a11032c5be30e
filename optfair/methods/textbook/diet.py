"""The diet problem: the cheapest food that feeds."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_matrix, check_vector

__all__ = ["Diet"]


class Diet(Problem):
    r"""Buy the cheapest food that contains enough, and not too much, of every nutrient.

    .. math::
        \min_x\; c^T x \quad\text{s.t.}\quad l \le N x \le u,\; f \le x \le m

    Class: LP.

    The shadow price of ``minimum nutrition`` is what one more unit of a nutrient costs: the
    price a maker of pills could ask for.

    Parameters
    ----------
    cost : array-like (n,)
        Price of a serving of each food.
    nutrition : array-like (m, n)
        Amount of each nutrient in a serving of each food.
    minimum : array-like (m,)
        Amounts that are needed.
    maximum : array-like (m,), optional
        Amounts that are too much.
    fewest, most : array-like (n,), optional
        Servings of each food that must, and may, be bought; 0 and no limit by default.

    Attributes
    ----------
    variables : ``servings`` (n,)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit.

    Examples
    --------
    >>> p = Diet(cost=[2.0, 3.0], nutrition=[[1.0, 2.0], [2.0, 1.0]], minimum=[4.0, 5.0])
    >>> s = p.solve()
    >>> s["servings"].round(6), s.shadow_price["minimum nutrition"].round(6)
    (array([2., 1.]), array([1.333333, 0.333333]))

    References
    ----------
    Stigler: The Cost of Subsistence, Journal of Farm Economics 27 (1945).
    Dantzig: The Diet Problem, Interfaces 20 (1990).
    """

    title = "Diet"

    def __init__(
        self,
        *,
        cost: Any,
        nutrition: Any,
        minimum: Any,
        maximum: Any = None,
        fewest: Any = None,
        most: Any = None,
    ) -> None:
        prices = check_vector(cost, "cost")
        amounts = check_matrix(nutrition, "nutrition")
        check_vector(amounts[0], "each row of nutrition", prices.size)
        limits = {"maximum": (maximum, amounts.shape[0])}
        limits |= {"fewest": (fewest, prices.size), "most": (most, prices.size)}
        super().__init__(
            {
                "cost": prices,
                "nutrition": amounts,
                "minimum": check_vector(minimum, "minimum", amounts.shape[0]),
            }
            | {k: check_vector(v, k, size) for k, (v, size) in limits.items() if v is not None}
        )

    def declare(self) -> Declaration:
        """Declare servings, their cost and what they contain."""
        d = self.data
        x = cp.Variable(d["cost"].size, name="servings")
        constraints = {"minimum nutrition": d["nutrition"] @ x >= d["minimum"]}
        if "maximum" in d:
            constraints["maximum nutrition"] = d["nutrition"] @ x <= d["maximum"]
        fewest = d.get("fewest", np.zeros(x.size))
        constraints["fewest servings"] = x >= fewest
        if "most" in d:
            constraints["most servings"] = x <= d["most"]
        return declaration(
            "minimize",
            {"cost": d["cost"] @ x},
            constraints,
            latex={
                "cost": "c^T x",
                "minimum nutrition": r"N x \ge l",
                "maximum nutrition": r"N x \le u",
                "fewest servings": r"x \ge f",
                "most servings": r"x \le m",
            },
        )
