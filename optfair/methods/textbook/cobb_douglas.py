"""The consumer with a Cobb-Douglas utility."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_number, check_vector

__all__ = ["CobbDouglas"]


class CobbDouglas(Problem):
    r"""Spend a budget on two goods for the largest Cobb-Douglas utility.

    .. math::
        \max_{x, u}\; u \quad\text{s.t.}\quad |u| \le x_1^{\alpha} x_2^{1 - \alpha},\;
        x \ge 0,\; p^T x \le B

    Class: CONIC(pow). The first good gets the share α of the budget:
    :math:`x_1 = \alpha B / p_1`, :math:`x_2 = (1 - \alpha) B / p_2`.

    Parameters
    ----------
    prices : array-like (2,)
        Price of each good, positive.
    budget : float
        Money to spend, positive.
    share : float
        Exponent α of the first good, between 0 and 1.

    Attributes
    ----------
    variables : ``goods`` (2,), ``utility`` scalar

    Raises
    ------
    DataError
        Numbers that are not finite or not in these ranges.

    Examples
    --------
    >>> p = CobbDouglas(prices=[1.0, 2.0], budget=8.0, share=0.25)
    >>> p.problem_class, p.solve()["goods"].round(4)
    (CONIC(pow), array([2., 3.]))

    References
    ----------
    Varian: Intermediate Microeconomics, chapter 5, appendix.
    """

    title = "CobbDouglas"

    def __init__(self, *, prices: Any, budget: float, share: float) -> None:
        p = check_vector(prices, "prices", 2)
        if (p <= 0.0).any():
            raise DataError(f"a price is {p.min():g}", remedy="give positive prices")
        part = check_number(share, "share", positive=True)
        if part >= 1.0:
            raise DataError(f"share {part:g} is not below 1", remedy="give a number in (0, 1)")
        super().__init__(
            {"prices": p, "budget": check_number(budget, "budget", positive=True), "share": part}
        )

    def declare(self) -> Declaration:
        """Declare the goods, their utility and cost."""
        d = self.data
        x, u = cp.Variable(2, name="goods"), cp.Variable(name="utility")
        return declaration(
            "maximize",
            {"utility": u},
            {
                "taste": cp.PowCone3D(x[0], x[1], u, d["share"]),
                "budget": d["prices"] @ x <= d["budget"],
            },
            latex={
                "utility": "u",
                "taste": r"|u| \le x_1^{\alpha} x_2^{1 - \alpha},\; x \ge 0",
                "budget": r"p^T x \le B",
            },
        )
