"""Groups of similar rows, and their counterfactuals with one point per member."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from optfair import datasets
from optfair.core.composition import RELATIONS, model_goal, model_term, rows_term
from optfair.core.expressions import Values
from optfair.core.parameters import Datum
from optfair.core.problem import Declaration
from optfair.core.problem_class import LAZY_ROWS, Structure
from optfair.core.term import ConstraintTerm
from optfair.errors import DataError, DeclarationError, NotInstalled, nearest
from optfair.features.feature_problem import sides_moved, sides_within
from optfair.features.linear_score import LinearScore
from optfair.library.instance import dataset_rows
from optfair.methods.group_counterfactuals.group_problem import GroupProblem
from optfair.numbers import (
    Floats,
    Indices,
    check_count,
    check_labels,
    check_matrix,
    check_seed,
    checked,
)
from optfair.rows.frames import in_one_order

# The search keeps the distances of all pairs: 5,000 rows take 200 MB.
MOST_ROWS = 5_000


@dataclass(frozen=True, eq=False)
class MedoidGroup:
    """Rows around a medoid.

    Attributes
    ----------
    label : object
        Label that all members share; None without labels.
    medoid : int
        Row of the medoid.
    members : array (m,) of int
        Rows of the members, ascending.
    size : int
        Rows of the cluster, before it was cut or filled up.
    """

    label: Any
    medoid: int
    members: Indices
    size: int

    def __repr__(self) -> str:
        label = "" if self.label is None else f" of {self.label!r}"
        return f"MedoidGroup{label}: {self.members.size} members around row {self.medoid}"


@checked(n_groups=check_count, min_size=check_count, max_size=check_count, random_state=check_seed)
@in_one_order("X", "labels")
def medoid_groups(
    X: Any,
    *,
    labels: Any = None,
    n_groups: int = 10,
    min_size: int = 20,
    max_size: int | None = 200,
    random_state: Any = None,
) -> tuple[MedoidGroup, ...]:
    r"""Return clusters of each label around their medoids, of at least and at most some size.

    .. math:: \min_{M \subseteq X_c,\ |M| = k} \sum_{i \in X_c} \min_{m \in M} \|x_i - m\|

    A heuristic: FasterPAM ends where no exchange of a medoid for another row helps. Beyond
    5,000 rows of a label the medoids are those of 5,000 drawn ones, and every row goes to the
    nearest. A cluster that is too large is cut to rows drawn from it; one that is too small is
    filled up with the nearest other rows of its label, which then are in two groups.

    Parameters
    ----------
    X : array-like (n, d)
        Rows.
    labels : array-like (n,), optional
        Clusters never mix labels.
    n_groups : int
        Clusters per label; fewer come back where there are fewer different rows.
    min_size, max_size : int
        Members of a group; no upper limit if None.
    random_state : int or Generator, optional
        For the rows drawn.

    Returns
    -------
    tuple of MedoidGroup
        By label, then by medoid.

    Raises
    ------
    DataError
        Fewer rows of a label than groups or than the least size.
    NotInstalled
        The package kmedoids is missing.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    >>> [g.members.tolist() for g in medoid_groups(X, n_groups=2, min_size=1)]
    [[0, 1, 2], [3, 4, 5]]

    References
    ----------
    Schubert, Rousseeuw: Fast and eager k-medoids clustering, Information Systems 101, 2021.
    Valero-Leal et al., Optimal transport group counterfactual explanations, Section 4.1.
    """
    points = check_matrix(X, "X")
    n = points.shape[0]
    given = np.zeros(n, dtype=int) if labels is None else check_labels(labels, "labels", n)
    if max_size is not None and not 1 <= min_size <= max_size:
        raise DataError(
            f"min_size is {min_size}, max_size {max_size}", remedy="give 1 <= min_size <= max_size"
        )
    rng = np.random.default_rng(random_state)
    groups: list[MedoidGroup] = []
    for label in np.unique(given):
        rows = np.flatnonzero(given == label)
        if rows.size < max(n_groups, min_size) or n_groups < 1:
            raise DataError(
                f"{rows.size} rows {'of label ' + str(label) if labels is not None else ''}"
                f" for {n_groups} groups of at least {min_size}",
                remedy="ask for fewer or smaller groups",
            )
        name = None if labels is None else label.item()
        groups += _around(points, rows, name, n_groups, (min_size, max_size), rng)
    return tuple(groups)


def _around(
    points: NDArray[np.float64],
    rows: Indices,
    label: Any,
    n_groups: int,
    sizes: tuple[int, int | None],
    rng: np.random.Generator,
) -> list[MedoidGroup]:
    from scipy.spatial.distance import cdist

    drawn = rows
    if rows.size > MOST_ROWS:
        drawn = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
    medoids = drawn[_medoids(cdist(points[drawn], points[drawn]), n_groups)]
    far = cdist(points[rows], points[medoids])
    nearest = far.argmin(axis=1)
    # a medoid that equals another one keeps itself
    nearest[np.searchsorted(rows, medoids)] = np.arange(medoids.size)
    least, most = sizes
    groups = []
    for k, medoid in enumerate(medoids):
        own = rows[nearest == k]
        members = own
        if most is not None and own.size > most:
            members = rng.choice(own, most, replace=False)
            if medoid not in members:
                members[-1] = medoid
        elif own.size < least:
            others = np.flatnonzero(nearest != k)
            order = np.argsort(far[others, k], kind="stable")
            members = np.concatenate([own, rows[others[order[: least - own.size]]]])
        groups.append(MedoidGroup(label, int(medoid), np.sort(members), int(own.size)))
    return groups


def _medoids(distances: NDArray[np.float64], count: int) -> Indices:
    try:
        import kmedoids
    except ImportError as e:
        raise NotInstalled(
            "kmedoids is not installed", str(e), 'pip install "optfair[groups]"'
        ) from None
    # greedy start: the same medoids on every machine, without a seed
    medoids = kmedoids.fasterpam(distances, count, init="build", n_cpu=1)
    return np.sort(np.asarray(medoids.medoids, dtype=np.intp))


# All pairs of members of a group, numbered as SciPy's condensed distances are.


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


class GroupCounterfactuals(GroupProblem):
    """What the problems with one counterfactual per member share: cost, target, features."""

    instead: ClassVar[Mapping[str, str]] = {
        "K": "K bounds pairs of members: LipschitzCounterfactuals"
    }

    def located(self, X: Any, score: LinearScore) -> dict[str, Any]:
        """Return the members."""
        points = score.check_points(X)
        points.flags.writeable = False
        return {"points": points}

    points = Datum[Floats]("Members of the group (n, d).")

    @property
    def variances(self) -> Floats:
        """Variance of each feature in the group (d,)."""
        return np.asarray(self.points.var(axis=0))

    @property
    def means(self) -> Floats:
        """Mean of each feature in the group (d,)."""
        return np.asarray(self.points.mean(axis=0))

    @cached_property
    def pairs(self) -> MemberPairs:
        """All pairs of members."""
        return MemberPairs(self.points)

    def declare(self) -> Declaration:
        """Declare the counterfactuals, their cost and the target."""
        X, t = self.points, self.level
        Z = cp.Variable(X.shape, name="counterfactuals")
        moved = cp.multiply(np.sqrt(self.feature_costs)[None, :], Z - X)
        cost = cp.sum_squares(moved) / len(X)
        latex = r"\tfrac1n \textstyle\sum_i \|z_i - x_i\|^2"
        target = model_term("classification", Z @ self.normal >= t, r"v^T z_i \ge t")
        return Declaration(
            {"counterfactuals": Z},
            objective=(model_goal("transport cost", cost, latex),),
            constraints=(target, *self.pair_terms(Z)),
        )

    @abstractmethod
    def pair_terms(self, Z: Any) -> tuple[ConstraintTerm, ...]:
        """Return the constraints on pairs of members."""

    def scored_at_least(self, level: Any) -> dict[str, Any]:
        """Return the classification with an expression in place of the level, by term name."""
        return {"classification": self["counterfactuals"] @ self.normal >= level}

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
        Z = self["counterfactuals"]
        return {
            word: RELATIONS[relation](Z[:, at], np.broadcast_to(limit, (Z.shape[0], at.size)))
            for word, relation, at, limit in sides_within(indices, lower, upper)
        }

    def moves(self, indices: Indices, sign: Floats) -> Any:
        """Return the constraints that these features of every member only grow or only shrink."""
        Z, X = self["counterfactuals"], self.points
        return {
            word: RELATIONS[relation](Z[:, at], X[:, at])
            for word, relation, at in sides_moved(indices, sign)
        }


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
    >>> p = of.group_counterfactuals.IndependentCounterfactuals([[0.0, 0.0], [3.0, 1.0]], score=([1.0, 0.0], -1.0))
    >>> s = p.solve()
    >>> s.solver, s["counterfactuals"].tolist(), s.objective
    ('independent-rows', [[1.0, 0.0], [3.0, 1.0]], 0.5)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Table 1,
    "Independent".
    """

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

    takes: ClassVar[Mapping[str, float]] = {"K": 0.0}
    needs: ClassVar[tuple[str, ...]] = ("K",)
    instead: ClassVar[Mapping[str, str]] = {
        "K": "0 lets all members fall together, 1 stretches nothing",
        "k": "a bound on the contraction is not convex: BiLipschitzCounterfactuals",
    }

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

        # n²/2 pairs: evaluated by their distances, without the matrix of differences
        scale = K * float(pairs.distances.max())
        latex = r"\|z_i - z_j\| \le K \|x_i - x_j\|"
        stated = {"violation": violation, "scale": scale}
        return (rows_term("stretching", rows, pairs.count, latex, **stated),)

    def fixed(self, indices: Indices) -> Any:
        """Return the constraint that these features of every member stay as they are.

        With K = 1 members that differ in nothing else fall together in the other features. Said so,
        their pair is not left with a cone that no point is inside of, at which prices may have no end.
        """
        held, free = super().fixed(indices), np.delete(self.points, indices, axis=1)
        _, alike = np.unique(free, axis=0, return_inverse=True)
        order = np.argsort(alike, kind="stable")
        next_to = np.flatnonzero(np.diff(alike[order]) == 0)
        if float(self.data["K"]) != 1.0 or not next_to.size or not free.shape[1]:
            return held
        Z, other = self["counterfactuals"], np.delete(np.arange(self.points.shape[1]), indices)
        one, two = (Z[order[next_to + step]][:, other] for step in (0, 1))
        return {"held": held, "together": one == two}

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
