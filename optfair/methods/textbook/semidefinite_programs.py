"""Semidefinite programs: the Lovász number, the maximum cut relaxed, the nearest correlation matrix."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.adopt import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import check_symmetric

# The Lovász number of a graph.


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


# The semidefinite relaxation of the maximum cut.


class MaxCutRelaxation(Problem):
    r"""Bound the weight of the largest cut of a graph.

    .. math::
        \max_X\; \tfrac14 \langle L, X\rangle
        \quad\text{s.t.}\quad \operatorname{diag} X = 1,\; X \succeq 0

    Class: SDP. L is the Laplacian of the graph. A cut s ∈ {-1, 1}ⁿ gives the feasible
    :math:`X = s s^T`; dropping its rank of 1 leaves a convex problem, whose optimum is at
    most 1/0.878 times the largest cut.

    Parameters
    ----------
    weights : array-like (n, n)
        Symmetric edge weights, not negative, without loops.

    Attributes
    ----------
    variables : ``gram`` (n, n) symmetric

    Raises
    ------
    DataError
        Weights that are not symmetric, negative, or on the diagonal.

    Examples
    --------
    >>> p = MaxCutRelaxation(weights=[[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    >>> p.problem_class, round(p.solve().objective, 6)  # the largest cut of a triangle is 2
    (SDP, 2.25)

    References
    ----------
    Goemans, Williamson: Improved Approximation Algorithms for Maximum Cut and Satisfiability
    Problems Using Semidefinite Programming, Journal of the ACM 42 (1995).
    """

    title = "MaxCutRelaxation"

    def __init__(self, *, weights: Any) -> None:
        W = check_symmetric(weights, "weights")
        if (W < 0).any() or np.diag(W).any():
            raise DataError(
                "weights has negative entries or loops",
                remedy="give edge weights of at least 0, and 0 on the diagonal",
            )
        super().__init__({"weights": W})

    def declare(self) -> Declaration:
        """Declare the Gram matrix of the relaxation."""
        W = self.data["weights"]
        laplacian = np.diag(W.sum(axis=1)) - W
        X = cp.Variable(W.shape, name="gram", symmetric=True)
        return declaration(
            "maximize",
            {"cut": cp.sum(cp.multiply(laplacian / 4.0, X))},
            {"unit diagonal": cp.diag(X) == 1, "semidefinite": X >> 0},
            latex={
                "cut": r"\tfrac14 \langle L, X \rangle",
                "unit diagonal": r"\operatorname{diag} X = 1",
                "semidefinite": r"X \succeq 0",
            },
        )


# The correlation matrix nearest to a matrix.


class NearestCorrelation(Problem):
    r"""Mend a matrix of estimated correlations that is not positive semidefinite.

    .. math::
        \min_X\; \tfrac12 \|X - A\|_F^2
        \quad\text{s.t.}\quad \operatorname{diag} X = 1,\; X \succeq 0

    Class: SDP, with a quadratic objective.

    Parameters
    ----------
    estimate : array-like (n, n)
        Symmetric matrix A.

    Attributes
    ----------
    variables : ``correlation`` (n, n) symmetric

    Raises
    ------
    DataError
        A matrix that is not symmetric or not finite.

    Examples
    --------
    >>> p = NearestCorrelation(estimate=[[1.0, 1.5], [1.5, 1.0]])
    >>> p.problem_class, p.solve()["correlation"].round(5)
    (SDP, array([[1., 1.], [1., 1.]]))

    References
    ----------
    Higham: Computing the Nearest Correlation Matrix, IMA Journal of Numerical Analysis 22
    (2002).
    """

    title = "NearestCorrelation"

    def __init__(self, *, estimate: Any) -> None:
        super().__init__({"estimate": check_symmetric(estimate, "estimate")})

    def declare(self) -> Declaration:
        """Declare the correlation matrix and its distance."""
        A = self.data["estimate"]
        X = cp.Variable(A.shape, name="correlation", symmetric=True)
        return declaration(
            "minimize",
            {"distance": cp.sum_squares(X - A) / 2},
            {"unit diagonal": cp.diag(X) == 1, "semidefinite": X >> 0},
            latex={
                "distance": r"\tfrac12 \|X - A\|_F^2",
                "unit diagonal": r"\operatorname{diag} X = 1",
                "semidefinite": r"X \succeq 0",
            },
        )
