"""A knapsack with uncertain weights."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_number, check_vector

__all__ = ["RobustKnapsack"]


class RobustKnapsack(Problem):
    r"""Pack the most valuable items whose uncertain weight stays within the capacity.

    .. math::
        \max_x\; v^T x \quad\text{s.t.}\quad w^T x + \Omega \|\operatorname{diag}(\sigma) x\|_2
        \le c,\; 0 \le x \le 1,\; x \in \mathbb{Z}^n

    Class: MISOCP. The constraint holds for every weight in the ellipsoid
    :math:`w + \{\operatorname{diag}(\sigma) u : \|u\|_2 \le \Omega\}`; with independent
    normal weights it is the chance constraint of level Φ(Ω).

    Parameters
    ----------
    values, weights, deviations : array-like (n,)
        Of each item: v, w and σ; weights and deviations are not negative.
    capacity : float
        Weight the knapsack carries, positive.
    size : float
        Size Ω > 0 of the ellipsoid.

    Attributes
    ----------
    variables : ``packed`` (n,) integer

    Raises
    ------
    DataError
        Entries that are not finite numbers, negative weights or deviations, a capacity or a
        size that is not positive.

    Examples
    --------
    >>> p = RobustKnapsack(
    ...     values=[6.0, 5.0], weights=[3.0, 2.0], deviations=[1.0, 0.5], capacity=5.0, size=1.0
    ... )
    >>> both = p.constraints["capacity"].violation({"packed": [1.0, 1.0]})
    >>> p.problem_class, round(float(both), 3)
    (MISOCP, 1.118)

    References
    ----------
    Ben-Tal, Nemirovski: Robust Solutions of Uncertain Linear Programs, Operations Research
    Letters 25 (1999).
    """

    title = "RobustKnapsack"

    def __init__(
        self, *, values: Any, weights: Any, deviations: Any, capacity: float, size: float
    ) -> None:
        worth = check_vector(values, "values")
        loads = {
            "weights": check_vector(weights, "weights", worth.size),
            "deviations": check_vector(deviations, "deviations", worth.size),
        }
        for name, load in loads.items():
            if (load < 0).any():
                raise DataError(
                    f"{name} has negative entries",
                    f"the first is item {int((load < 0).argmax())}",
                    f"give {name} of at least 0",
                )
        super().__init__(
            {
                "values": worth,
                **loads,
                "capacity": check_number(capacity, "capacity", positive=True),
                "size": check_number(size, "size", positive=True),
            }
        )

    def declare(self) -> Declaration:
        """Declare what is packed, its value and its largest weight."""
        d = self.data
        x = cp.Variable(d["values"].size, name="packed")
        spread = d["size"] * cp.norm(cp.multiply(d["deviations"], x))
        return declaration(
            "maximize",
            {"value": d["values"] @ x},
            {
                "capacity": d["weights"] @ x + spread <= d["capacity"],
                "at least none": x >= 0,
                "at most one": x <= 1,
            },
            latex={
                "value": "v^T x",
                "capacity": r"w^T x + \Omega \|\operatorname{diag}(\sigma) x\|_2 \le c",
                "at least none": r"x \ge 0",
                "at most one": r"x \le 1",
            },
            integers=frozenset({"packed"}),
        )
