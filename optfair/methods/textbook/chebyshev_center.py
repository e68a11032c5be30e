"""The largest ball inside a polyhedron."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_matrix, check_vector

__all__ = ["ChebyshevCenter"]


class ChebyshevCenter(Problem):
    r"""Place the largest ball inside a polyhedron.

    .. math::
        \max_{c, r}\; r \quad\text{s.t.}\quad a_i^T c + r \|a_i\|_2 \le b_i \;\;\forall i,\;
        r \ge 0

    Class: LP: the norms are numbers. `SmallestBall` asks for a ball *around*, an SOCP.

    Parameters
    ----------
    A : array-like (m, n)
        One outward normal per face.
    b : array-like (m,)
        Offset of each face.

    Attributes
    ----------
    variables : ``center`` (n,), ``radius`` scalar

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit.

    Examples
    --------
    >>> p = ChebyshevCenter(A=[[1, 0], [-1, 0], [0, 1], [0, -1]], b=[2, 0, 4, 0])
    >>> p.problem_class, round(p.solve().objective, 6)
    (LP, 1.0)

    References
    ----------
    Boyd, Vandenberghe: Convex Optimization, Cambridge University Press (2004), section 4.3.1.
    """

    title = "ChebyshevCenter"

    def __init__(self, *, A: Any, b: Any) -> None:
        faces = check_matrix(A, "A")
        super().__init__({"A": faces, "b": check_vector(b, "b", faces.shape[0])})

    def declare(self) -> Declaration:
        """Declare center and radius, and that the ball is behind every face."""
        A, b = self.data["A"], self.data["b"]
        c, r = cp.Variable(A.shape[1], name="center"), cp.Variable(name="radius")
        return declaration(
            "maximize",
            {"radius": r},
            {"inside": A @ c + np.linalg.norm(A, axis=1) * r <= b, "nonnegativity": r >= 0},
            latex={
                "radius": "r",
                "inside": r"a_i^T c + r \|a_i\|_2 \le b_i",
                "nonnegativity": r"r \ge 0",
            },
        )
