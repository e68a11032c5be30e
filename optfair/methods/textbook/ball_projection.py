"""The nearest point in an intersection of balls."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_matrix, check_vector

__all__ = ["BallProjection"]


class BallProjection(Problem):
    r"""Project a point on an intersection of balls.

    .. math::
        \min_x\; \|x - p\|_2^2 \quad\text{s.t.}\quad \|x - c_i\|_2^2 \le r_i^2 \;\;\forall i

    Class: QCQP, convex. Turn one inequality round (stay *outside* a ball) and it is not.

    Parameters
    ----------
    point : array-like (d,)
        What to project.
    centers : array-like (m, d)
        Center of each ball.
    radii : array-like (m,)
        Radius of each ball, positive.

    Attributes
    ----------
    variables : ``projection`` (d,)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit, a radius that is not
        positive.

    Examples
    --------
    >>> p = BallProjection(point=[3.0, 4.0], centers=[[0.0, 0.0]], radii=[1.0])
    >>> p.problem_class, p.solve()["projection"].round(6)
    (QCQP, array([0.6, 0.8]))

    References
    ----------
    Boyd, Vandenberghe: Convex Optimization, Cambridge University Press (2004), section 8.1.
    """

    title = "BallProjection"

    def __init__(self, *, point: Any, centers: Any, radii: Any) -> None:
        start = check_vector(point, "point")
        middle = check_matrix(centers, "centers")
        check_vector(middle[0], "each center", start.size)
        sizes = check_vector(radii, "radii", middle.shape[0])
        if (sizes <= 0).any():
            raise DataError(
                "radii has entries that are not positive",
                f"the smallest is {sizes.min():g}",
                "give positive numbers",
            )
        super().__init__({"point": start, "centers": middle, "radii": sizes})

    def declare(self) -> Declaration:
        """Declare the projection, its distance, and one constraint per ball."""
        p = self.data["point"]
        x = cp.Variable(p.size, name="projection")
        balls = zip(self.data["centers"], self.data["radii"], strict=True)
        inside = {f"ball.{i}": cp.sum_squares(x - c) <= r**2 for i, (c, r) in enumerate(balls)}
        return declaration(
            "minimize",
            {"distance": cp.sum_squares(x - p)},
            inside,
            latex={
                "distance": r"\|x - p\|_2^2",
                **dict.fromkeys(inside, r"\|x - c_i\|_2^2 \le r_i^2"),
            },
        )
