"""Counterfactuals of a group whose distances neither grow nor shrink beyond given factors."""

from __future__ import annotations

from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import NonconvexityWitness
from optfair.core.evidence import Evidence
from optfair.core.problem_class import ProblemClass
from optfair.core.term import ConstraintTerm, Values
from optfair.errors import DeclarationError
from optfair.methods.group_counterfactuals.group_counterfactual import GroupCounterfactuals
from optfair.methods.group_counterfactuals.member_pairs import MemberPairs

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["BiLipschitzCounterfactuals", "check_factor"]

QCQP = ProblemClass(quadratic_constraint=True)


class BiLipschitzCounterfactuals(GroupCounterfactuals):
    r"""The cheapest counterfactuals that neither stretch nor shrink distances too much.

    .. math::
        \min_Z\; \tfrac1n \sum_i \|z_i - x_i\|^2 \quad\text{s.t.}\quad v^T z_i \ge t,\qquad
        \tfrac1{k^2} \|x_i - x_j\|^2 \le \|z_i - z_j\|^2 \le K^2 \|x_i - x_j\|^2
        \;\text{ for all } i < j

    Class: nonconvex QCQP. Z and its mirror image :math:`2c - Z` are both feasible for a
    center c far enough on the side of the target, and their midpoint puts every member on c. A
    local solver gives a value, `GramBound` a bound; `bi_lipschitz_baseline` puts both together.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `IndependentCounterfactuals`.
    K : float
        Largest factor by which a distance may grow, at least 1.
    k : float
        Largest factor by which a distance may shrink, at least 1.

    Attributes
    ----------
    variables : ``counterfactuals`` (n, d), in units of the features
    pairs : MemberPairs
        Pairs in the order of the rows of ``stretching`` and ``shrinking``.

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, weights or factors that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [-2.0, 0.0]]
    >>> p = of.BiLipschitzCounterfactuals(X, score=([1.0, 0.0], -1.0), K=1.0, k=1.0)
    >>> p.problem_class, p.certificate.verify()
    (nonconvex QCQP, verified)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, eq. (8) and
    Proposition A.2.
    """

    title = "BiLipschitzCounterfactuals"
    factors: ClassVar[tuple[str, ...]] = ("K", "k")

    def __init__(
        self,
        X: Any,
        *,
        score: Any,
        K: float,
        k: float,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
        feature_costs: Any = None,
    ) -> None:
        super().__init__(
            X,
            score=score,
            probability=probability,
            threshold=threshold,
            target_class=target_class,
            feature_costs=feature_costs,
            K=check_factor(K, "K"),
            k=check_factor(k, "k"),
        )

    @property
    def pairs(self) -> MemberPairs:
        """All pairs of members."""
        found: MemberPairs | None = self.__dict__.get("_pairs")
        if found is None:
            found = MemberPairs(self.points)
            self._set(_pairs=found)
        return found

    def pair_terms(self, Z: Any) -> tuple[ConstraintTerm, ...]:
        """Return the quadratics of the pairs, one row each."""
        if self.points.shape[0] < 2:
            return ()
        pairs, K, k = self.pairs, float(self.data["K"]), float(self.data["k"])
        squares = np.square(pairs.distances)

        def spread() -> Any:
            every = pairs.differences(np.arange(pairs.count))
            return cp.sum(cp.square(every @ Z), axis=1)

        def stretched(values: Values) -> Floats:
            return np.maximum(np.square(pairs.of(values["counterfactuals"])) - K**2 * squares, 0.0)

        def shrunk(values: Values) -> Floats:
            return np.maximum(squares / k**2 - np.square(pairs.of(values["counterfactuals"])), 0.0)

        def term(name: str, function: str, pc: ProblemClass, **rest: Any) -> ConstraintTerm:
            evidence = Evidence(name, function, "Nonpositive", pc)
            return ConstraintTerm(
                name, frozenset({"counterfactuals"}), evidence, shape=(pairs.count,), **rest
            )

        return (
            term(
                "stretching",
                "convex quadratic",
                QCQP,
                build=lambda: spread() <= K**2 * squares,
                latex=r"\|z_i - z_j\|^2 \le K^2 \|x_i - x_j\|^2",
                violation=stretched,
                scale=K**2 * float(squares.max()),
            ),
            term(
                "shrinking",
                "concave quadratic",
                QCQP.with_curvature("unverified"),
                build=lambda: spread() >= squares / k**2,
                latex=r"\|z_i - z_j\|^2 \ge k^{-2} \|x_i - x_j\|^2",
                violation=shrunk,
                scale=float(squares.max()) / k**2,
            ),
        )

    def feasible_point(self) -> dict[str, Floats]:
        """Return a point that satisfies the model's own constraints: all members moved alike."""
        return {"counterfactuals": self.shifted(self.points)}

    def find_witness(self) -> NonconvexityWitness | None:
        """Return the group moved to the target and a mirror image of it.

        First about a center beyond the target: the midpoint is one point for all members. Then
        about its own axis along v, which keeps every score: the midpoint keeps that direction
        only. None where further constraints exclude both: the class is then unverified.
        """
        if self.points.shape[0] < 2:
            return None
        first = self.shifted(self.points)
        inner = first - first.mean(axis=0)
        along = np.outer(inner @ self.normal, self.normal) / float(self.normal @ self.normal)
        for second in (self.shifted(-self.points), first - 2.0 * (inner - along)):
            found = NonconvexityWitness(
                self, "shrinking", {"counterfactuals": first}, {"counterfactuals": second}
            )
            if found.verify():
                return found
        return None


def check_factor(value: Any, name: str) -> float:
    """Return K or k as a finite number of at least 1.

    Raises
    ------
    DeclarationError
        Below 1: a factor that excludes moving all members alike.
    """
    try:
        factor = float(value)
    except (TypeError, ValueError):
        factor = np.nan
    if not (np.isfinite(factor) and factor >= 1.0):
        raise DeclarationError(
            f"{name}={value!r} is not a finite number of at least 1",
            "distances may grow by K and shrink by k; 1 keeps them",
            f"give {name} >= 1",
        )
    return factor
