"""The Lovász number of a graph."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_symmetric

__all__ = ["LovaszTheta"]


class LovaszTheta(Problem):
    r"""Bound the size of the largest set of nodes without an edge between them.

    .. math::
        \max_X\; \langle 1 1^T, X\rangle \quad\text{s.t.}\quad \operatorname{tr} X = 1,\;
        X_{ij} = 0 \;\;\forall\, ij \in E,\; X \succeq 0

    Class: SDP. The optimum lies between the independence number of the graph and the
    chromatic number of its complement, both of which are hard to compute.

    Parameters
    ----------
    adjacency : array-like (n, n)
        Symmetric, 1 where two nodes are joined and 0 elsewhere, with at least one edge.

    Attributes
    ----------
    variables : ``gram`` (n, n) symmetric

    Raises
    ------
    DataError
        Entries that are not 0 or 1, loops, no edge.

    Examples
    --------
    >>> p = LovaszTheta(adjacency=[[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> p.problem_class, round(p.solve().objective, 6)  # the two ends of a path
    (SDP, 2.0)

    References
    ----------
    Lovász: On the Shannon Capacity of a Graph, IEEE Transactions on Information Theory 25
    (1979).
    """

    title = "LovaszTheta"

    def __init__(self, *, adjacency: Any) -> None:
        E = check_symmetric(adjacency, "adjacency")
        if not np.isin(E, (0.0, 1.0)).all() or np.diag(E).any() or not E.any():
            raise DataError(
                "adjacency is not that of a graph with edges",
                remedy="give 0 and 1, 0 on the diagonal, and at least one edge",
            )
        super().__init__({"adjacency": E})

    def declare(self) -> Declaration:
        """Declare the Gram matrix of an orthonormal representation."""
        E = self.data["adjacency"]
        X = cp.Variable(E.shape, name="gram", symmetric=True)
        joined = np.nonzero(np.triu(E))
        return declaration(
            "maximize",
            {"size": cp.sum(X)},
            {"trace": cp.trace(X) == 1, "edges": X[joined] == 0, "semidefinite": X >> 0},
            latex={
                "size": r"\langle 1 1^T, X \rangle",
                "trace": r"\operatorname{tr} X = 1",
                "edges": r"X_{ij} = 0",
                "semidefinite": r"X \succeq 0",
            },
        )
