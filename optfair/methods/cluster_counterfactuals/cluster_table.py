"""Nearest points of many rows in one target cluster, and which of them are settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.rule import Rule
from optfair.features.feature_problem import FeatureProblem
from optfair.methods.cluster_counterfactuals.algorithms.secular import Pencil
from optfair.methods.cluster_counterfactuals.algorithms.several import Several
from optfair.methods.cluster_counterfactuals.boundary import Boundary
from optfair.methods.cluster_counterfactuals.cluster_batches import (
    Batch,
    Moves,
    join,
    linear,
    quadratic,
)
from optfair.methods.cluster_counterfactuals.partition import Partition

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Labels = NDArray[np.intp]

__all__ = ["Options", "TargetTable"]

# What vectorised algorithms know of; anything else is solved row by row.
KNOWN = {"immutable", "bounds", "direction"}
# A constraint broken by less than this share of its terms holds.
HOLDS = 1e-9


@dataclass(frozen=True, eq=False)
class Options:
    """What rows may do, read off the rules of a counterfactual.

    Attributes
    ----------
    free : bool array (d,)
        Features that may change.
    metric : array (d,), (d, d) or None
        Of the squared distance.
    lower, upper : arrays (d,)
        Bounds, infinite where there is none.
    up, down : bool arrays (d,)
        Features that only grow, or only shrink.
    vectorised : bool
        Whether this is all there is.
    """

    free: Flags
    metric: Floats | None
    lower: Floats
    upper: Floats
    up: Flags
    down: Flags
    vectorised: bool

    @classmethod
    def of(cls, rules: Mapping[str, Rule], problem: FeatureProblem) -> Options:
        """Read rules, by the names a counterfactual gives them."""
        d = len(problem.features)
        free, up, down = np.ones(d, dtype=bool), np.zeros(d, dtype=bool), np.zeros(d, dtype=bool)
        lower, upper = np.full(d, -np.inf), np.full(d, np.inf)
        held: Any = rules.get("immutable")
        if held is not None:
            free[problem.feature_indices(held.features)] = False
        bounds: Any = rules.get("bounds")
        for feature, low, high in () if bounds is None else bounds.bounds:
            j = problem.feature_index(feature)
            lower[j], upper[j] = low, high
        direction: Any = rules.get("direction")
        if direction is not None:
            up[problem.feature_indices(direction.increasing)] = True
            down[problem.feature_indices(direction.decreasing)] = True
        plain = set(rules) <= KNOWN and problem.data["distance"] == "l2"
        return cls(free, problem.data["metric"], lower, upper, up, down, plain)

    def held(self, features: Any) -> Options:
        """Return the same with further features held, by column."""
        free = self.free.copy()
        free[list(features)] = False
        return replace(self, free=free)

    def moves(self, Y: Floats) -> Moves:
        """Return what these rows may do."""
        limits = np.isfinite(self.lower) | np.isfinite(self.upper) | self.up | self.down
        if not limits[self.free].any():
            return Moves(self.free, self.metric)
        lower = np.where(self.up, np.maximum(Y, self.lower), self.lower)
        upper = np.where(self.down, np.minimum(Y, self.upper), self.upper)
        return Moves(self.free, self.metric, *np.broadcast_arrays(lower, upper, Y)[:2])


class TargetTable:
    """Nearest points in a target, for many rows at once.

    Parameters
    ----------
    clusters : Partition
        The clusters.
    options : Options
        What rows may do.
    against : {"pair", "all"}
        What the target must beat.
    plausibility : float
        ε.
    """

    def __init__(
        self, clusters: Partition, options: Options, against: str, plausibility: float
    ) -> None:
        self.clusters, self.options = clusters, options
        self.against, self.plausibility = against, plausibility
        self._pencils: dict[tuple[int, int], Pencil] = {}

    def held(self, features: Any) -> TargetTable:
        """Return the table with further features held, by column."""
        options = self.options.held(features)
        return TargetTable(self.clusters, options, self.against, self.plausibility)

    def nearest(self, Y: Floats, source: Labels, target: int) -> tuple[Batch, Flags]:
        """Return nearest points, and which of them satisfy everything.

        First every boundary alone, vectorised: the farthest of their points is the optimum where
        it satisfies everything. For other rows the Lagrangian of all boundaries is tried, row by
        row. Where that does not prove a point either, the objective is a lower bound.

        Parameters
        ----------
        Y : array (n, d)
            Rows.
        source : int array (n,)
            Their clusters.
        target : int
            The cluster to reach.
        """
        n, d = Y.shape
        found, settled = Batch.empty(n, d), np.ones(n, dtype=bool)
        if self.against == "pair":
            for s in np.unique(source):
                at = np.flatnonzero(source == s)
                others = [k for k in range(self.clusters.size) if k != target]
                rivals = others if s == target else [int(s)]
                part, settled[at] = self._beating(Y[at], rivals, target)
                found.put(at, part)
        else:
            rivals = [k for k in range(self.clusters.size) if k != target]
            part, settled = self._beating(Y, rivals, target)
            found.put(slice(None), part)
        return found, settled

    def _beating(self, Y: Floats, rivals: list[int], target: int) -> tuple[Batch, Flags]:
        moves = self.options.moves(Y)
        sides = [self.clusters.boundary(k, target, self.plausibility) for k in rivals]
        if not self.options.free.any():
            return _unmoved(Y, sides)
        if all(self._straight(b) for b in sides):
            return linear(Y, sides, moves), np.ones(len(Y), dtype=bool)
        loose = Moves(moves.free, moves.metric)
        each = [
            linear(Y, [b], moves)
            if self._straight(b)
            else quadratic(Y, b, loose, self._pencil(k, target, b, loose))
            for k, b in zip(rivals, sides, strict=True)
        ]
        # every single boundary is a relaxation: the farthest of their points bounds the whole
        farthest = np.stack([b.objective for b in each]).argmax(axis=0)
        best = join(each, farthest)
        settled = self._holds(Y, best, sides, moves, farthest)
        if not settled.all():
            several = Several(sides, moves.free, moves.own_metric())
            for i in np.flatnonzero(~settled):
                own = moves.rows(i)
                found = several.nearest(Y[i], own.lower, own.upper)
                if found is not None:
                    best.points[i], best.objective[i], best.gap[i], _ = found
                    settled[i] = True
        return best, settled

    def _straight(self, boundary: Boundary) -> bool:
        return boundary.linear or not boundary.curvature(np.flatnonzero(self.options.free))[0].any()

    def _pencil(self, rival: int, target: int, boundary: Boundary, moves: Moves) -> Pencil:
        known = self._pencils.get((rival, target))
        if known is None:
            D, noise = boundary.curvature(np.flatnonzero(moves.free))
            known = self._pencils[rival, target] = Pencil.of(D, moves.own_metric(), noise=noise)
        return known

    def _holds(
        self, Y: Floats, best: Batch, sides: list[Boundary], moves: Moves, own: Labels
    ) -> Flags:
        """Return whether points satisfy everything; a row without a point is settled too."""
        reached = np.isfinite(best.objective)
        Z = np.where(reached[:, None], best.points, Y)
        # the boundary that a point was made for is met by construction, up to rounding
        above = np.stack([b.value(Z) / (1.0 + np.abs(b.value(Y))) for b in sides])
        above[own, np.arange(len(Y))] = 0.0
        holds = (above <= HOLDS).all(axis=0)
        if moves.lower is not None and moves.upper is not None:
            slack = HOLDS * (1.0 + np.abs(Z))
            inside = (moves.lower - slack <= Z) & (moves.upper + slack >= Z)
            holds &= inside[:, moves.free].all(axis=1)
        return np.asarray(holds | ~reached)


def _unmoved(Y: Floats, sides: list[Boundary]) -> tuple[Batch, Flags]:
    """Return rows that may not change: inside already, or never."""
    inside = np.stack([b.value(Y) for b in sides]).max(axis=0) <= 0.0
    return (
        Batch(
            np.where(inside[:, None], Y, np.nan),
            np.where(inside, 0.0, np.inf),
            np.where(inside, 0.0, np.nan),
        ),
        np.ones(len(Y), dtype=bool),
    )
