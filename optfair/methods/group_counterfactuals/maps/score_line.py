"""Maps in d + 1 numbers: the score of the mean, and what the map does around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.evidence import Evidence
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import LP, ProblemClass
from optfair.core.structure import LAZY_ROWS, Structure
from optfair.core.term import ConstraintTerm, ObjectiveTerm, Values
from optfair.methods.group_counterfactuals.maps.spectrum import factor_bounds

Floats = NDArray[np.float64]

__all__ = ["Reduction", "ScoreLine"]

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
