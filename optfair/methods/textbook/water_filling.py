"""Power over channels."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_number, check_vector

__all__ = ["WaterFilling"]


class WaterFilling(Problem):
    r"""Share power among noisy channels for the largest capacity.

    .. math::
        \max_x\; \sum_i \log(a_i + x_i) \quad\text{s.t.}\quad 1^T x = P,\; x \ge 0

    Class: CONIC(exp). The solution fills a vessel with floors a up to one level:
    :math:`x_i = \max(0, 1/\nu - a_i)`, ν the shadow price of ``power``.

    Parameters
    ----------
    noise : array-like (n,)
        Noise a of each channel, positive.
    power : float
        Power P to share, positive.

    Attributes
    ----------
    variables : ``powers`` (n,)

    Raises
    ------
    DataError
        Entries that are not finite and positive.

    Examples
    --------
    >>> s = WaterFilling(noise=[1.0, 2.0, 5.0], power=3.0).solve()
    >>> s["powers"].round(3) + 0.0, s.shadow_price["power"].round(4)
    (array([2., 1., 0.]), np.float64(0.3333))

    References
    ----------
    Boyd, Vandenberghe: Convex Optimization, Cambridge University Press (2004), example 5.2.
    """

    title = "WaterFilling"

    def __init__(self, *, noise: Any, power: float) -> None:
        floor = check_vector(noise, "noise")
        if (floor <= 0.0).any():
            raise DataError(
                "noise has entries that are not positive",
                f"the smallest is {floor.min():g}",
                "give positive numbers",
            )
        super().__init__({"noise": floor, "power": check_number(power, "power", positive=True)})

    def declare(self) -> Declaration:
        """Declare the powers, their capacity and sum."""
        a = self.data["noise"]
        x = cp.Variable(a.size, name="powers")
        return declaration(
            "maximize",
            {"capacity": cp.sum(cp.log(a + x))},
            {"power": cp.sum(x) == self.data["power"], "nonnegativity": x >= 0},
            latex={
                "capacity": r"\textstyle\sum_i \log(a_i + x_i)",
                "power": "1^T x = P",
                "nonnegativity": r"x \ge 0",
            },
        )
