"""Bounds on the matrix of a map, and maps in d + 1 numbers: the score of the mean, and what lies around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.classify import model_goal, model_term, rows_term
from optfair.core.problem import Declaration, Problem
from optfair.core.term import LAZY_ROWS, ConstraintTerm, Structure, Values

# Bounds on the matrix of a map: Loewner order, factors of single directions, spectral norm.

Floats = NDArray[np.float64]
Terms = dict[str, ConstraintTerm]


def loewner_bounds(matrix: Any, K: float | None, k: float | None) -> Terms:
    r"""Return :math:`A \preceq K I` and :math:`A \succeq I / k` of a symmetric matrix.

    With K = k = 1 the set is the identity alone and has no interior, which interior-point
    methods need: then it is an equality.

    Parameters
    ----------
    matrix : CVXPY expression (d, d)
        A, symmetric.
    K, k : float or None
        None for no bound.

    Returns
    -------
    dict
        By part: "upper", "lower" or "identity".
    """
    eye = np.eye(matrix.shape[0])
    if K == k == 1.0:
        return {"identity": model_term("identity", matrix == eye, "A = I")}
    parts = {}
    if K is not None:
        latex = rf"A \preceq {K:g} I"
        parts["upper"] = model_term("upper", K * eye - matrix >> 0, latex)
    if k is not None:
        latex = rf"A \succeq {1.0 / k:.4g} I"
        parts["lower"] = model_term("lower", matrix - eye / k >> 0, latex)
    return parts


def factor_bounds(factors: Any, K: float | None, k: float | None) -> Terms:
    r"""Return :math:`1/k \le a_j \le K` of the factors of single directions, as `loewner_bounds`."""
    if K == k == 1.0:
        return {"identity": model_term("identity", factors == 1.0, "a_j = 1")}
    parts = {}
    if K is not None:
        parts["upper"] = model_term("upper", factors <= K, rf"a_j \le {K:g}")
    if k is not None:
        parts["lower"] = model_term("lower", factors >= 1.0 / k, rf"a_j \ge {1.0 / k:.4g}")
    return parts


def spectral_bound(matrix: Any, K: float) -> Terms:
    r"""Return :math:`\sigma_{\max}(A) \le K` of a matrix that need not be symmetric."""
    latex = rf"\sigma_{{\max}}(A) \le {K:g}"
    return {"upper": model_term("upper", cp.sigma_max(matrix) <= K, latex)}


# Maps in d + 1 numbers: the score of the mean, and what the map does around it.


@dataclass(frozen=True, eq=False)
class Reduction:
    r"""How a map is written with its factors f and the score of the mean.

    The score of a member is :math:`s + (x_i - \mu)^T T f` and the cost of the matrix
    :math:`\|R (f - f_0)\|^2`; f_0 is the identity.

    Parameters
    ----------
    turn : array (d, m)
        T.
    root : array (r, m)
        R.
    center : array (m,)
        f_0.
    lift : callable
        Image of the mean and factors -> values of the problem, at least cost.
    factors : callable
        Values of the problem -> factors.
    bounds : tuple of str
        Names of the problem's bounds on the factors.
    """

    turn: Floats
    root: Floats
    center: Floats
    lift: Callable[[Floats, Floats], dict[str, Floats]]
    factors: Callable[[Values], Floats]
    bounds: tuple[str, ...] = ()


class ScoreLine(Problem):
    r"""The reduced problem of a map.

    .. math::
        \min_{f, s}\; \frac{(s - s_0)^2}{Q} + \|R (f - f_0)\|^2
        \quad\text{s.t.}\quad s + (x_i - \mu)^T T f \ge t,\; l \le f \le u

    with the score :math:`s_0 = w^T \mu` of the mean and :math:`Q = w^T C^{-1} w`. The image of the
    mean is :math:`\mu + C^{-1} w (s - s_0) / Q`, the cheapest point of its score.

    Class: QP.

    Parameters
    ----------
    problem : AffineMap, DiagonalMap or CommutativeGaussianMap
        What to reduce.

    Attributes
    ----------
    variables : ``factors`` (m,), ``score`` scalar
    """

    title = "ScoreLine"
    structures: ClassVar[tuple[Structure, ...]] = (LAZY_ROWS,)

    def __init__(self, problem: Any) -> None:
        super().__init__(
            {
                "reduction": problem.reduction(),
                "centered": problem.data["centered"],
                "level": problem.level,
                "start": float(problem.normal @ problem.moments.mean),
                "weight": float(problem.normal @ (problem.normal / problem.feature_costs)),
                "unit": problem.objective_unit,
                "K": problem.data["K"],
                "k": problem.data.get("k"),
            }
        )

    @property
    def objective_unit(self) -> float:
        """That of the problem it reduces."""
        return float(self.data["unit"])

    def declare(self) -> Declaration:
        """Declare cost, rows and bounds."""
        r: Reduction = self.data["reduction"]
        t, start, Q = self.data["level"], self.data["start"], self.data["weight"]
        f, s = cp.Variable(r.center.size, name="factors"), cp.Variable(name="score")
        centered: Floats = self.data["centered"]
        cost = cp.square((s - start) / np.sqrt(Q)) + cp.sum_squares(r.root @ (f - r.center))
        rows = lambda index: (centered[index] @ r.turn) @ f + s >= t
        bounds: Terms = {}
        if r.bounds:
            k = np.inf if self.data["k"] is None else self.data["k"]
            bounds = factor_bounds(f, self.data["K"], k)
        classification = rows_term("classification", rows, len(centered), scale=abs(t))
        return Declaration(
            variables={"factors": f, "score": s},
            objective=(model_goal("transport cost", cost),),
            constraints=(classification, *bounds.values()),
        )
