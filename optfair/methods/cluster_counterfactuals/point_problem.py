"""A problem of one point that is to lie in a cluster."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import NonconvexityWitness
from optfair.errors import DeclarationError, Infeasible
from optfair.features.feature_problem import FeatureProblem
from optfair.methods.cluster_counterfactuals.form import structure_loss
from optfair.methods.cluster_counterfactuals.partition import Partition
from optfair.methods.cluster_counterfactuals.shortfall import with_margin
from optfair.methods.cluster_counterfactuals.terms import (
    FLAGS,
    BoundTerm,
    SideTerm,
    bound_term,
    distance_term,
    side_term,
)
from optfair.methods.cluster_counterfactuals.witness import opposite_points

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["PointProblem"]


class PointProblem(FeatureProblem):
    """A point near a row, on one side of boundaries between clusters.

    It reads its own terms: which features are free, between which bounds, and which boundaries
    the point must respect. Features that are held fixed are substituted into the boundaries and
    into the distance whenever its terms change.

    Attributes
    ----------
    free : array (f,)
        Columns of the features that may change.
    anchor : array (d,)
        The row, with what fixed features are held at.
    """

    free: Indices
    anchor: Floats

    @property
    def clusters(self) -> Partition:
        """The clusters."""
        clusters: Partition = self.data["clusters"]
        return clusters

    @property
    def factual(self) -> Floats:
        """The row (d,)."""
        return np.asarray(self.data["factual"])

    @property
    def source(self) -> int:
        """Cluster to leave."""
        return int(self.data["source"])

    @property
    def target(self) -> int:
        """Cluster to reach."""
        return int(self.data["target"])

    @property
    def metric(self) -> Floats | None:
        """Weights (d,), matrix (d, d), or None."""
        metric: Floats | None = self.data["metric"]
        return metric

    @property
    def sides(self) -> tuple[SideTerm, ...]:
        """The terms that say on which side of a boundary the point lies."""
        return tuple(t for t in self.constraints.values() if isinstance(t, SideTerm))

    @property
    def bounds(self) -> tuple[BoundTerm, ...]:
        """The terms that bound single features."""
        return tuple(t for t in self.constraints.values() if isinstance(t, BoundTerm))

    @property
    def limits(self) -> tuple[Floats, Floats]:
        """Lower and upper bound of every feature (d,), infinite where there is none."""
        lower, upper = np.full(self.factual.size, -np.inf), np.full(self.factual.size, np.inf)
        for t in self.bounds:
            if t.relation != "<=":
                np.maximum.at(lower, t.indices, t.limits)
            if t.relation != ">=":
                np.minimum.at(upper, t.indices, t.limits)
        return lower, upper

    @property
    def inside(self) -> bool:
        """Whether the row satisfies every constraint as it is: then its distance is 0."""
        if set(self.variables) - {"point", FLAGS}:
            return False  # whole features: the row may not be whole
        lower, upper = self.limits
        y = self.factual
        bounded = bool(((lower <= y) & (y <= upper)).all())
        return bounded and all(t.section.boundary.value(y) <= 0.0 for t in self.sides)

    @property
    def objective_unit(self) -> float:
        """Mean squared distance between the clusters' centers, at most 1."""
        return self.clusters.unit if self.data["distance"] == "l2" else 1.0

    def _side(self, k: int) -> SideTerm:
        boundary = self.clusters.boundary(k, self.target, self.data["plausibility"])
        section = boundary.section(self.anchor, self.free)
        return side_term(f"target.{k}", self["point"], boundary, k, section)

    def _distance(self, variables: Any) -> Any:
        d = self.data
        return distance_term(
            d["distance"], variables, self.factual, d["metric"], self.free, self.anchor
        )

    def _child(self, **fields: Any) -> Any:
        child = super()._child(**fields)
        return child._substituted() if "constraints" in fields else child

    def _substituted(self) -> PointProblem:
        """Return this problem with the features that are now held fixed substituted."""
        lower, upper = self.limits
        held = lower == upper
        anchor = np.where(held, lower, self.factual)
        free = np.flatnonzero(~held)
        counted = FLAGS in self.variables and self.data["distance"] == "changes"
        counted = counted and "changes" not in self.objective
        same = np.array_equal(free, self.free) and np.array_equal(anchor, self.anchor)
        if same and not counted:
            return self
        self._set(free=free, anchor=anchor)
        terms = {n: self._resected(t) for n, t in self.constraints.items()}
        objective = dict(self.objective)
        if counted or "distance" in objective:
            again = self._distance(self.variables)
            objective[again.name] = again
        self._set(constraints=MappingProxyType(terms), objective=MappingProxyType(objective))
        return self

    def _resected(self, t: Any) -> Any:
        if not isinstance(t, SideTerm):
            return t
        section = t.boundary.section(self.anchor, self.free)
        again = side_term(t.name, self["point"], t.boundary, t.against, section)
        object.__setattr__(again, "origin", t.origin)
        return again

    def structure_refusal(self, name: str) -> str:
        """Return why a special algorithm does not apply, empty if it does."""
        return structure_loss(self, name)

    def find_witness(self) -> NonconvexityWitness | None:
        """Return opposite points beyond a boundary that curves away, else search."""
        return opposite_points(self) or super().find_witness()

    def explained(self, error: Infeasible) -> Infeasible:
        """Return the error with the largest margin to the target, where that is out of reach."""
        return with_margin(self, error)

    # --- what rules ask for --------------------------------------------------------------

    def fixed(self, indices: Indices) -> BoundTerm:
        """Return the term that these features stay."""
        return bound_term(self["point"], indices, "==", self.factual[indices])

    def within(self, indices: Indices, lower: Floats, upper: Floats) -> dict[str, BoundTerm]:
        """Return the bounds of these features."""
        parts = {}
        for word, relation, limit in (("lower", ">=", lower), ("upper", "<=", upper)):
            at = np.isfinite(limit)
            if at.any():
                parts[word] = bound_term(self["point"], indices[at], relation, limit[at])
        return parts

    def moves(self, indices: Indices, sign: Floats) -> dict[str, BoundTerm]:
        """Return the directions of these features as bounds at the row."""
        parts = {}
        for word, relation, at in (("up", ">=", sign > 0), ("down", "<=", sign < 0)):
            if at.any():
                held = self.factual[indices[at]]
                parts[word] = bound_term(self["point"], indices[at], relation, held)
        return parts

    def dense(self, density: float) -> SideTerm:
        """Return the ellipsoid where the target's density is at least this."""
        if self.clusters.kind != "gaussian":
            raise DeclarationError(
                "clusters of k-means have no density",
                remedy="use plausibility=, or ClusterCounterfactual.gaussian",
            )
        boundary = self.clusters.ellipsoid(self.target, density)
        section = boundary.section(self.anchor, self.free)
        return side_term("density", self["point"], boundary, -1, section)
