"""Bounds on the matrix of a map, and maps in d + 1 numbers: the score of the mean, and what lies around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import LP, Evidence, ProblemClass
from optfair.core.term import LAZY_ROWS, ConstraintTerm, ObjectiveTerm, Structure, Values

__all__ = [
    "Reduction",
    "ScoreLine",
    "factor_bounds",
    "loewner_bounds",
    "spectral_bound",
]


# Bounds on the matrix of a map: Loewner order, factors of single directions, spectral norm.

Floats = NDArray[np.float64]
Read = Callable[[Values], Floats]


SDP = ProblemClass(cones=frozenset({"psd"}))


def loewner_bounds(
    matrix: Any, scope: frozenset[str], read: Read, K: float | None, k: float | None
) -> dict[str, ConstraintTerm]:
    r"""Return :math:`A \preceq K I` and :math:`A \succeq I / k` of a symmetric matrix.

    With K = k = 1 the set is the identity alone and has no interior, which interior-point
    methods need: then it is an equality.

    Parameters
    ----------
    matrix : CVXPY expression (d, d)
        A, symmetric.
    scope : frozenset of str
        Names of its variables.
    read : callable
        Values by name -> A as an array.
    K, k : float or None
        None for no bound.

    Returns
    -------
    dict
        By part: "upper", "lower" or "identity".
    """
    d = matrix.shape[0]
    eye = np.eye(d)
    if K == 1.0 and k == 1.0:
        return {
            "identity": ConstraintTerm(
                "identity",
                scope,
                Evidence("identity", "affine", "Zero", LP),
                build=lambda: matrix == eye,
                latex="A = I",
                violation=lambda v: np.asarray(np.abs(read(v) - eye)),
                shape=(d, d),
                scale=1.0,
            )
        }
    parts = {}
    for word, sign, bound in (("upper", -1.0, K), ("lower", 1.0, None if k is None else 1.0 / k)):
        if bound is not None:
            parts[word] = _semidefinite(word, matrix, scope, read, sign, bound)
    return parts


def _semidefinite(
    word: str, matrix: Any, scope: frozenset[str], read: Read, sign: float, bound: float
) -> ConstraintTerm:
    """Return sign (A - bound I) in the cone of semidefinite matrices."""
    d = matrix.shape[0]
    eye = bound * np.eye(d)

    def outside(values: Values) -> Floats:
        A = read(values)
        if not np.isfinite(A).all():
            return np.array(np.inf)
        least = np.linalg.eigvalsh(sign * ((A + A.T) / 2 - eye))[0]
        return np.asarray(np.maximum(-least, 0.0))

    latex = rf"A \preceq {bound:g} I" if sign < 0 else rf"A \succeq {bound:.4g} I"
    return ConstraintTerm(
        word,
        scope,
        Evidence(word, "affine", "PSD", SDP),
        build=lambda: sign * (matrix - eye) >> 0,
        latex=latex,
        violation=outside,
        shape=(d, d),
        scale=bound,
    )


def factor_bounds(
    factors: Any, scope: frozenset[str], read: Read, K: float | None, k: float | None
) -> dict[str, ConstraintTerm]:
    r"""Return :math:`1/k \le a_j \le K` of the factors of single directions.

    Parameters
    ----------
    factors : CVXPY expression (d,) or scalar
        a.
    scope, read, K, k
        As in `loewner_bounds`; ``read`` gives the factors.

    Returns
    -------
    dict
        By part: "upper", "lower" or "identity".
    """
    shape = tuple(factors.shape)

    def term(word: str, where: str, latex: str, scale: float, **rest: Any) -> ConstraintTerm:
        return ConstraintTerm(
            word,
            scope,
            Evidence(word, "affine", where, LP),
            latex=latex,
            shape=shape,
            scale=scale,
            **rest,
        )

    if K == 1.0 and k == 1.0:
        return {
            "identity": term(
                "identity",
                "Zero",
                "a_j = 1",
                1.0,
                build=lambda: factors == np.ones(shape),
                violation=lambda v: np.asarray(np.abs(read(v) - 1.0)),
            )
        }
    parts = {}
    if K is not None:
        parts["upper"] = term(
            "upper",
            "Nonpositive",
            rf"a_j \le {K:g}",
            K,
            build=lambda: factors <= K,
            violation=lambda v: np.maximum(read(v) - K, 0.0),
        )
    if k is not None:
        low = 1.0 / k
        parts["lower"] = term(
            "lower",
            "Nonpositive",
            rf"a_j \ge {low:.4g}",
            low,
            build=lambda: factors >= low,
            violation=lambda v: np.maximum(low - read(v), 0.0),
        )
    return parts


def spectral_bound(
    matrix: Any, scope: frozenset[str], read: Read, K: float
) -> dict[str, ConstraintTerm]:
    r"""Return :math:`\sigma_{\max}(A) \le K` of a matrix that need not be symmetric."""

    def outside(values: Values) -> Floats:
        A = read(values)
        if not np.isfinite(A).all():
            return np.array(np.inf)
        return np.asarray(np.maximum(np.linalg.norm(A, 2) - K, 0.0))

    return {
        "upper": ConstraintTerm(
            "upper",
            scope,
            Evidence("upper", "convex", "Nonpositive", SDP),
            build=lambda: cp.sigma_max(matrix) <= K,
            latex=rf"\sigma_{{\max}}(A) \le {K:g}",
            violation=outside,
            shape=(),
            scale=K,
        )
    }


# Maps in d + 1 numbers: the score of the mean, and what the map does around it.

QP = ProblemClass(quadratic_objective=True)


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
        both = frozenset({"factors", "score"})
        centered: Floats = self.data["centered"]

        def read(v: Values) -> tuple[Floats, float]:
            return np.asarray(v["factors"], dtype=float), float(np.asarray(v["score"]))

        def value(v: Values) -> float:
            factors, score = read(v)
            return float((score - start) ** 2 / Q + np.square(r.root @ (factors - r.center)).sum())

        def below(v: Values) -> Floats:
            factors, score = read(v)
            return np.asarray(np.maximum(t - (centered @ (r.turn @ factors) + score), 0.0))

        def rows(part: Floats) -> Any:
            return (part @ r.turn) @ f + s >= t

        cost = ObjectiveTerm(
            "transport cost",
            both,
            Evidence("transport cost", "convex quadratic", "minimize", QP),
            build=lambda: (
                cp.square((s - start) / np.sqrt(Q)) + cp.sum_squares(r.root @ (f - r.center))
            ),
            value=value,
        )
        classification = ConstraintTerm(
            "classification",
            both,
            Evidence("classification", "affine", "Nonpositive", LP),
            build=lambda: rows(centered),
            violation=below,
            shape=(centered.shape[0],),
            scale=abs(t),
            rows=lambda index: rows(centered[index]),
        )
        bounds: dict[str, ConstraintTerm] = {}
        if r.bounds:
            k = np.inf if self.data["k"] is None else self.data["k"]
            scope = frozenset({"factors"})
            bounds = factor_bounds(f, scope, lambda v: read(v)[0], self.data["K"], k)
        return Declaration(
            variables={"factors": f, "score": s},
            objective=(cost,),
            constraints=(classification, *bounds.values()),
        )
