"""Combinatorial problems: knapsacks, sure and robust, the nearest lattice point, graphs."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.adopt import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import Floats, check_matrix, check_number, check_symmetric, check_vector

# The knapsack problem.


def _loads(items: int, **given: Any) -> dict[str, Floats]:
    """Return what every item takes, at least 0."""
    loads = {name: check_vector(load, name, items) for name, load in given.items()}
    for name, load in loads.items():
        if (load < 0).any():
            raise DataError(
                f"{name} has negative entries",
                f"the first is item {int((load < 0).argmax())}",
                f"give {name} of at least 0",
            )
    return loads


class Knapsack(Problem):
    r"""Pack the most valuable items a knapsack can carry.

    .. math::
        \max_x\; v^T x \quad\text{s.t.}\quad w^T x \le c,\; 0 \le x \le 1,\; x \in \mathbb{Z}^n

    Class: MILP.

    Parameters
    ----------
    values, weights : array-like (n,)
        Of each item; weights are not negative.
    capacity : float
        Weight the knapsack carries, positive.

    Attributes
    ----------
    variables : ``packed`` (n,) integer

    Raises
    ------
    DataError
        Entries that are not finite numbers, negative weights, a capacity that is not positive.

    Examples
    --------
    >>> p = Knapsack(values=[6.0, 5.0, 5.0], weights=[3.0, 2.0, 2.0], capacity=4.0)
    >>> p.problem_class, p.solve().objective
    (MILP, 10.0)

    References
    ----------
    Martello, Toth: Knapsack Problems, Wiley (1990).
    """

    title = "Knapsack"
    movable = MappingProxyType({"values": "costs", "capacity": "sides"})

    def __init__(self, *, values: Any, weights: Any, capacity: float) -> None:
        worth = check_vector(values, "values")
        limit = check_number(capacity, "capacity", positive=True)
        super().__init__(
            {"values": worth, **_loads(worth.size, weights=weights), "capacity": limit}
        )

    def declare(self) -> Declaration:
        """Declare what is packed, its value and weight."""
        v, w = self.data["values"], self.data["weights"]
        x = cp.Variable(v.size, name="packed")
        return declaration(
            "maximize",
            {"value": (v @ x, "v^T x")},
            {
                "capacity": (w @ x <= self.data["capacity"], r"w^T x \le c"),
                "at least none": (x >= 0, r"x \ge 0"),
                "at most one": (x <= 1, r"x \le 1"),
            },
            integers=frozenset({"packed"}),
        )


# A knapsack with uncertain weights.


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
    movable = MappingProxyType({"values": "costs", "capacity": "sides"})

    def __init__(
        self, *, values: Any, weights: Any, deviations: Any, capacity: float, size: float
    ) -> None:
        worth = check_vector(values, "values")
        super().__init__(
            {
                "values": worth,
                **_loads(worth.size, weights=weights, deviations=deviations),
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
            {"value": (d["values"] @ x, "v^T x")},
            {
                "capacity": (
                    d["weights"] @ x + spread <= d["capacity"],
                    r"w^T x + \Omega \|\operatorname{diag}(\sigma) x\|_2 \le c",
                ),
                "at least none": (x >= 0, r"x \ge 0"),
                "at most one": (x <= 1, r"x \le 1"),
            },
            integers=frozenset({"packed"}),
        )


# The lattice point that fits best.


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
            {"misfit": (cp.sum_squares(d["A"] @ x - d["b"]), r"\|A x - b\|_2^2")},
            {
                "lower bound": (x >= d["lower"], r"x \ge l"),
                "upper bound": (x <= d["upper"], r"x \le u"),
            },
            integers=frozenset({"coefficients"}),
        )


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
            {"size": (cp.sum(X), r"\langle 1 1^T, X \rangle")},
            {
                "trace": (cp.trace(X) == 1, r"\operatorname{tr} X = 1"),
                "edges": (X[joined] == 0, r"X_{ij} = 0"),
                "semidefinite": (X >> 0, r"X \succeq 0"),
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
            {"cut": (cp.sum(cp.multiply(laplacian / 4.0, X)), r"\tfrac14 \langle L, X \rangle")},
            {
                "unit diagonal": (cp.diag(X) == 1, r"\operatorname{diag} X = 1"),
                "semidefinite": (X >> 0, r"X \succeq 0"),
            },
        )
