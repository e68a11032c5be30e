"""The lattice point that fits best."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_matrix, check_number, check_vector

__all__ = ["IntegerLeastSquares"]


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

    title = "IntegerLeastSquares"

    def __init__(self, *, A: Any, b: Any, lower: float, upper: float) -> None:
        columns = check_matrix(A, "A")
        low, high = check_number(lower, "lower"), check_number(upper, "upper")
        if low > high:
            raise DataError(
                f"lower {low:g} is above upper {high:g}", remedy="exchange them, or widen the box"
            )
        seen = check_vector(b, "b", columns.shape[0])
        super().__init__({"A": columns, "b": seen, "lower": low, "upper": high})

    def declare(self) -> Declaration:
        """Declare the coefficients, their misfit and bounds."""
        d = self.data
        x = cp.Variable(d["A"].shape[1], name="coefficients")
        return declaration(
            "minimize",
            {"misfit": cp.sum_squares(d["A"] @ x - d["b"])},
            {"lower bound": x >= d["lower"], "upper bound": x <= d["upper"]},
            latex={
                "misfit": r"\|A x - b\|_2^2",
                "lower bound": r"x \ge l",
                "upper bound": r"x \le u",
            },
            integers=frozenset({"coefficients"}),
        )
