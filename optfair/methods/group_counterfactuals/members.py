"""Counterfactuals of a group, one point per member: independent, or with bounded stretching."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from optfair import datasets
from optfair.core.problem import Declaration
from optfair.core.problem_class import LP, Evidence, ProblemClass
from optfair.core.term import LAZY_ROWS, ConstraintTerm, ObjectiveTerm, Structure, Values
from optfair.errors import DataError, DeclarationError, Infeasible, nearest
from optfair.features.feature_problem import FeatureProblem, feature_names
from optfair.features.linear_score import LinearScore
from optfair.library.construction import dataset_rows
from optfair.methods.group_counterfactuals.attainable import with_attainable
from optfair.methods.group_counterfactuals.maps.moments import checked_costs
from optfair.numbers import LARGEST, real

__all__ = [
    "GroupCounterfactuals",
    "IndependentCounterfactuals",
    "LipschitzCounterfactuals",
    "MemberPairs",
    "group_arguments",
]


# All pairs of members of a group, numbered as SciPy's condensed distances are.

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


class MemberPairs:
    """Pairs i < j of n members, in the order (0, 1), (0, 2), ..., (1, 2), ...

    Parameters
    ----------
    points : array (n, d)
        The members.

    Examples
    --------
    >>> pairs = MemberPairs(np.array([[0.0], [1.0], [3.0]]))
    >>> pairs.distances.tolist(), [part.tolist() for part in pairs.ends(np.array([1, 2]))]
    ([1.0, 3.0, 2.0], [[0, 1], [2, 2]])
    """

    def __init__(self, points: Floats) -> None:
        self.points = points

    @property
    def count(self) -> int:
        """n(n - 1)/2."""
        n = len(self.points)
        return n * (n - 1) // 2

    @cached_property
    def distances(self) -> Floats:
        """Distances of the pairs."""
        return self.of(self.points)

    def of(self, points: Any) -> Floats:
        """Return the distances of the pairs of other points, in the same order."""
        return np.asarray(pdist(np.asarray(points, dtype=float)))

    @cached_property
    def _starts(self) -> Indices:
        n = self.points.shape[0]
        i = np.arange(n - 1)
        return np.asarray(i * (2 * n - i - 1) // 2, dtype=np.intp)

    def ends(self, index: Indices) -> tuple[Indices, Indices]:
        """Return the members i and j of some pairs."""
        i = np.searchsorted(self._starts, index, side="right") - 1
        return i, index - self._starts[i] + i + 1

    def differences(self, index: Indices) -> Any:
        """Return the sparse matrix that takes points to the differences of some pairs."""
        i, j = self.ends(np.asarray(index, dtype=np.intp))
        k = np.arange(i.size)
        ones = np.ones(i.size)
        entries = np.concatenate([ones, -ones]), (np.tile(k, 2), np.concatenate([i, j]))
        return sp.csr_array(entries, shape=(i.size, self.points.shape[0]))


# Counterfactuals of a group, one point per member: independent, or with bounded stretching.

QP = ProblemClass(quadratic_objective=True)
SOCP = ProblemClass(cones=frozenset({"soc"}))


class GroupCounterfactuals(FeatureProblem):
    """What the problems with one counterfactual per member share: cost, target, features."""

    #: names of the bounds on distances that a model declares besides what all of them take
    factors: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        X: Any,
        *,
        score: Any,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
        feature_costs: Any = None,
        **factors: Any,
    ) -> None:
        _refuse_unknown(type(self), factors)
        linear = LinearScore.of(score)
        v, t = linear.halfspace(target_class, probability=probability, threshold=threshold)
        points = linear.check_points(X)
        points.flags.writeable = False
        names = linear.names or feature_names(X, points.shape[1])
        super().__init__(
            {
                "points": points,
                "score": linear,
                "normal": v,
                "level": t,
                "features": names,
                "costs": checked_costs(feature_costs, names),
                **factors,
            }
        )

    @property
    def points(self) -> Floats:
        """Members of the group (n, d)."""
        return np.asarray(self.data["points"])

    @property
    def normal(self) -> Floats:
        """Vector v of the target v·z >= t."""
        return np.asarray(self.data["normal"])

    @property
    def level(self) -> float:
        """Number t of the target v·z >= t."""
        return float(self.data["level"])

    @property
    def feature_costs(self) -> Floats:
        """Weight of each feature in the cost (d,)."""
        return np.asarray(self.data["costs"])

    @property
    def objective_unit(self) -> float:
        """Weighted spread of the group, at most 1: gaps mean the same in any units."""
        spread = float(self.feature_costs @ self.points.var(axis=0))
        return min(1.0, spread) or 1.0

    def declare(self) -> Declaration:
        """Declare the counterfactuals, their cost and the target."""
        Z = cp.Variable(self.points.shape, name="counterfactuals")
        return Declaration(
            {"counterfactuals": Z},
            objective=(self._cost(Z),),
            constraints=(self._classification(Z), *self.pair_terms(Z)),
        )

    @abstractmethod
    def pair_terms(self, Z: Any) -> tuple[ConstraintTerm, ...]:
        """Return the constraints on pairs of members."""

    def _cost(self, Z: Any) -> ObjectiveTerm:
        X, costs = self.points, self.feature_costs
        n = X.shape[0]

        def value(values: Values) -> float:
            moved = np.asarray(values["counterfactuals"], dtype=float) - X
            return float(costs @ np.square(moved).sum(axis=0) / n)

        def build() -> Any:
            if np.all(costs == 1.0):
                return cp.sum_squares(Z - X) / n
            return cp.sum_squares(cp.multiply(np.sqrt(costs)[None, :], Z - X)) / n

        return ObjectiveTerm(
            "transport cost",
            frozenset({"counterfactuals"}),
            Evidence("transport cost", "convex quadratic", "minimize", QP),
            build=build,
            latex=r"\tfrac1n \textstyle\sum_i \|z_i - x_i\|^2",
            value=value,
        )

    def _classification(self, Z: Any) -> ConstraintTerm:
        v, t = self.normal, self.level

        def violation(values: Values) -> Floats:
            return np.maximum(t - np.asarray(values["counterfactuals"], dtype=float) @ v, 0.0)

        return ConstraintTerm(
            "classification",
            frozenset({"counterfactuals"}),
            Evidence("classification", "affine", "Nonpositive", LP),
            build=lambda: Z @ v >= t,
            latex=r"v^T z_i \ge t",
            violation=violation,
            shape=(self.points.shape[0],),
            scale=abs(t),
        )

    def scored_at_least(self, level: Any) -> dict[str, Any]:
        """Return the classification with an expression in place of the level, by term name."""
        return {"classification": self["counterfactuals"] @ self.normal >= level}

    def explained(self, error: Infeasible) -> Infeasible:
        """Return the error with the largest attainable target, where the target is out of reach."""
        return with_attainable(self, error)

    def projected(self) -> Floats:
        """Return the members each at least cost to the target, which is a half-space."""
        short = np.maximum(self.level - self.points @ self.normal, 0.0)
        along = self.normal / self.feature_costs
        return np.asarray(self.points + np.outer(short / (self.normal @ along), along))

    def shifted(self, points: Floats) -> Floats:
        """Return points moved together until all reach the target; distances stay."""
        short = max(0.0, float((self.level - points @ self.normal).max()))
        # a hair beyond, for what rounding takes back
        step = short * (1.0 + 1e-12) / float(self.normal @ self.normal)
        return np.asarray(points + step * self.normal)

    # --- hooks of the rules on features --------------------------------------------------

    def fixed(self, indices: Indices) -> Any:
        """Return the constraint that these features of every member stay as they are."""
        return self["counterfactuals"][:, indices] == self.points[:, indices]

    def within(self, indices: Indices, lower: Floats, upper: Floats) -> Any:
        """Return the constraints that these features of every counterfactual lie in bounds."""
        parts: dict[str, Any] = {}
        Z = self["counterfactuals"]
        for word, bound, sign in (("lower", lower, 1.0), ("upper", upper, -1.0)):
            known = np.isfinite(bound)
            if known.any():
                limit = np.broadcast_to(bound[known], (Z.shape[0], int(known.sum())))
                chosen = Z[:, indices[known]]
                parts[word] = chosen >= limit if sign > 0 else chosen <= limit
        return parts

    def moves(self, indices: Indices, sign: Floats) -> Any:
        """Return the constraints that these features of every member only grow or only shrink."""
        parts: dict[str, Any] = {}
        Z, X = self["counterfactuals"], self.points
        for word, here in (("up", indices[sign > 0]), ("down", indices[sign < 0])):
            if here.size:
                parts[word] = Z[:, here] >= X[:, here] if word == "up" else Z[:, here] <= X[:, here]
        return parts


def _refuse_unknown(model: type[GroupCounterfactuals], given: Iterable[str]) -> None:
    for name in given:
        if name not in model.factors:
            known = [*signature(GroupCounterfactuals.__init__).parameters][1:-1]
            raise DeclarationError(
                f"{model.__name__} takes no {name!r}",
                "K bounds pairs of members: LipschitzCounterfactuals" if name == "K" else "",
                nearest(name, known),
            )


class IndependentCounterfactuals(GroupCounterfactuals):
    r"""The nearest point that reaches the target, for each member by itself.

    .. math::
        \min_Z\; \tfrac1n \sum_i \|z_i - x_i\|^2 \quad\text{s.t.}\quad v^T z_i \ge t

    Class: QP. The target is a half-space, so the optimum is n projections in closed form:
    :math:`z_i = x_i + \max(t - v^T x_i, 0)\, v / \|v\|^2`. With further constraints it goes to a
    solver of quadratic programs.

    Parameters
    ----------
    X : array-like or DataFrame (n, d)
        Members of the group.
    score : LinearScore, (coef, intercept), or fitted linear classifier
        What is to be convinced; see `LinearScore`.
    probability : float, optional
        Least probability α of the target class, inside (0, 1); one half by default.
    threshold : float, optional
        Least score τ of the target class, in place of ``probability``.
    target_class : label, optional
        The second class of the score by default.
    feature_costs : array-like (d,) or dict, optional
        Positive weight of each feature in the cost, 1 by default.

    Attributes
    ----------
    variables : ``counterfactuals`` (n, d), in units of the features

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target or weights that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> p = of.IndependentCounterfactuals([[0.0, 0.0], [3.0, 1.0]], score=([1.0, 0.0], -1.0))
    >>> s = p.solve()
    >>> s.solver, s["counterfactuals"].tolist(), s.objective
    ('independent-rows', [[1.0, 0.0], [3.0, 1.0]], 0.5)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Table 1,
    "Independent".
    """

    title = "IndependentCounterfactuals"
    structures: ClassVar[tuple[Structure, ...]] = (
        Structure(
            "separable-target", ("transport cost", "classification"), frozenset(), "of the model"
        ),
        LAZY_ROWS,
    )

    def pair_terms(self, Z: Any) -> tuple[ConstraintTerm, ...]:
        """Return none: the members do not know of each other."""
        return ()

    def feasible_point(self) -> dict[str, Floats]:
        """Return a point that satisfies the model's own constraints."""
        return {"counterfactuals": self.projected()}


class LipschitzCounterfactuals(GroupCounterfactuals):
    r"""The cheapest counterfactuals that stretch no distance within the group by more than K.

    .. math::
        \min_Z\; \tfrac1n \sum_i \|z_i - x_i\|^2 \quad\text{s.t.}\quad
        v^T z_i \ge t,\qquad \|z_i - z_j\| \le K \|x_i - x_j\| \;\text{ for all } i < j

    Class: SOCP, with one cone for each of the n(n−1)/2 pairs. They are generated as they are
    violated. Projection on a half-space stretches nothing, so with K ≥ 1, equal feature costs
    and no further constraints none is ever active: this is then the independent problem. K < 1
    asks every pair to come closer.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `IndependentCounterfactuals`.
    K : float
        Largest factor on the distance of any pair, at least 0.

    Attributes
    ----------
    variables : ``counterfactuals`` (n, d), in units of the features
    pairs : MemberPairs
        Pairs in the order of the rows of ``stretching``.

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, weights or K that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> X, score = [[0.0, 0.0], [0.0, 2.0]], ([1.0, 0.0], -1.0)
    >>> s = of.group_counterfactuals.LipschitzCounterfactuals(X, score=score, K=0.5).solve()
    >>> s["counterfactuals"].round(6).tolist(), round(s.objective, 6)
    ([[1.0, 0.5], [1.0, 1.5]], 1.25)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, eq. (2) and
    Proposition A.1; the model is that of Carrizosa, Ramírez-Ayerbe, Romero Morales (2024).
    """

    title = "LipschitzCounterfactuals"
    factors: ClassVar[tuple[str, ...]] = ("K",)

    def __init__(
        self,
        X: Any,
        *,
        score: Any,
        K: float,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
        feature_costs: Any = None,
    ) -> None:
        factor = real(K)
        if not 0.0 <= factor <= LARGEST:
            raise DeclarationError(
                f"K={K!r} is not a factor on distances",
                "0 lets all members fall together, 1 stretches nothing",
                "give a finite K >= 0",
            )
        super().__init__(
            X,
            score=score,
            probability=probability,
            threshold=threshold,
            target_class=target_class,
            feature_costs=feature_costs,
            K=factor,
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
        """Return the cones of the pairs, one row each."""
        if self.points.shape[0] < 2:
            return ()
        pairs, K = self.pairs, float(self.data["K"])

        def rows(index: Indices) -> Any:
            apart = pairs.differences(index) @ Z
            return cp.norm(apart, 2, axis=1) <= K * pairs.distances[index]

        def violation(values: Values) -> Floats:
            return np.maximum(pairs.of(values["counterfactuals"]) - K * pairs.distances, 0.0)

        return (
            ConstraintTerm(
                "stretching",
                frozenset({"counterfactuals"}),
                Evidence("stretching", "convex", "Nonpositive", SOCP),
                build=lambda: rows(np.arange(pairs.count)),
                latex=r"\|z_i - z_j\| \le K \|x_i - x_j\|",
                violation=violation,
                shape=(pairs.count,),
                scale=K * float(pairs.distances.max()),
                rows=rows,
            ),
        )

    def feasible_point(self) -> dict[str, Floats]:
        """Return a point that satisfies the model's own constraints: shrunk, then shifted."""
        center = self.points.mean(axis=0)
        shrunk = center + min(1.0, float(self.data["K"])) * (self.points - center)
        return {"counterfactuals": self.shifted(shrunk)}


# Arguments of the models of a group and a linear score, from a [data] table.


def group_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the models of a group and a linear score.

    With ``dataset``, X are the rows whose column ``groups`` has the label ``group``, of the
    sample where there is one; the score is given by its coefficients, because a fitted one
    would differ in its last digits from machine to machine.
    """
    arguments = dict(data)
    if "dataset" not in data:
        return arguments
    X, labels, _ = dataset_rows(arguments, centers=False)
    if "group" not in arguments:
        raise DeclarationError("[data] names a dataset but no group", remedy="add group = a label")
    group = str(arguments.pop("group"))
    members = X[labels == group]
    if not len(members):
        raise DataError(
            f"no row has {data['groups']!r} = {group!r}", remedy=nearest(group, np.unique(labels))
        )
    return arguments | {"X": members, "score": _named_score(data)}


def _named_score(data: Mapping[str, Any]) -> Any:
    """Return the score of a table with the names of the data set's columns."""
    columns = data.get("columns") or datasets.load(data["dataset"]).numeric_columns
    given = data.get("score")
    if not isinstance(given, list) or len(given) != 2:
        raise DeclarationError(
            f"score in [data] is {given!r}", remedy="write score = [[coefficients], intercept]"
        )
    return LinearScore(given[0], given[1], names=columns)
