"""The smallest ball around points."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_matrix

__all__ = ["SmallestBall"]


class SmallestBall(Problem):
    r"""Enclose points in the smallest ball.

    .. math::
        \min_{c, r}\; r \quad\text{s.t.}\quad \|x_i - c\|_2 \le r \;\;\forall i

    Class: SOCP.

    The multipliers of ``inside`` sum to 1 and are positive only at points on the sphere; the
    center is the mean of the points with these weights.

    Parameters
    ----------
    points : array-like (n, d)
        What to enclose.

    Attributes
    ----------
    variables : ``center`` (d,), ``radius`` scalar

    Raises
    ------
    DataError
        Entries that are not finite numbers.

    Examples
    --------
    >>> s = SmallestBall(points=[[0.0, 0.0], [4.0, 0.0], [2.0, 3.0]]).solve()
    >>> s["center"].round(4), round(s.objective, 6)
    (array([2.    , 0.8333]), 2.166667)

    References
    ----------
    Sylvester: A Question in the Geometry of Situation, Quarterly Journal of Pure and Applied
    Mathematics 1 (1857).
    """

    title = "SmallestBall"

    def __init__(self, *, points: Any) -> None:
        super().__init__({"points": check_matrix(points, "points")})

    def declare(self) -> Declaration:
        """Declare center and radius, and that every point is inside."""
        points = self.data["points"]
        n, d = points.shape
        c, r = cp.Variable(d, name="center"), cp.Variable(name="radius")
        away = points - np.ones((n, 1)) @ cp.reshape(c, (1, d), order="C")
        return declaration(
            "minimize",
            {"radius": r},
            {"inside": cp.norm(away, 2, axis=1) <= r},
            latex={"radius": "r", "inside": r"\|x_i - c\|_2 \le r"},
        )
