"""Nearest points of rows in clusters: vectorised where that settles them, else one by one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from optfair.core.composition import Rule
from optfair.core.solution import Solution
from optfair.errors import (
    DataError,
    DeclarationError,
    Infeasible,
    SolverFailure,
    UnsupportedProblem,
)
from optfair.features.feature_problem import FeatureProblem, immutable
from optfair.methods.cluster_counterfactuals.adapters import best_known
from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import Batch, Moves, linear
from optfair.methods.cluster_counterfactuals.algorithms.quadrics import Pencil, quadratic
from optfair.methods.cluster_counterfactuals.algorithms.several_quadrics import Several
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.explanation import Counterfactual, changed_entries
from optfair.methods.cluster_counterfactuals.partition import Boundary, Partition
from optfair.methods.cluster_counterfactuals.point_problem import SEVERAL_QUADRATICS
from optfair.methods.cluster_counterfactuals.rules import check_mask, option_rules
from optfair.numbers import Flags, Floats

# Nearest points of many rows in one target cluster, and which of them are settled.

Labels = NDArray[np.intp]


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

    def in_sizes(self, sizes: Floats) -> Options:
        """Return the same for features that are divided by their sizes, powers of two."""
        share = float(sizes.max()) / sizes
        W = np.ones_like(share) if self.metric is None else self.metric
        W = W / share**2 if W.ndim == 1 else W / (share[:, None] * share)
        same = self.metric is None and bool((share == 1.0).all())
        lower, upper = self.lower / sizes, self.upper / sizes
        return replace(self, metric=None if same else W, lower=lower, upper=upper)

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
        others = [k for k in range(self.clusters.size) if k != target]
        if self.against == "all":
            return self._beating(Y, others, target)
        batch, settled = Batch.empty(*Y.shape), np.ones(len(Y), dtype=bool)
        for s in np.unique(source):
            at = np.flatnonzero(source == s)
            rivals = others if s == target else [int(s)]
            part, settled[at] = self._beating(Y[at], rivals, target)
            batch.put(at, part)
        return batch, settled

    def _beating(self, Y: Floats, rivals: list[int], target: int) -> tuple[Batch, Flags]:
        moves = self.options.moves(Y)
        sides = [self.clusters.boundary(k, target, self.plausibility) for k in rivals]
        if not moves.free.any():
            return _unmoved(Y, sides)
        straight = [b.straight(moves.free) for b in sides]
        if all(straight):
            batch = linear(Y, sides, moves)
            return batch, batch.decided
        loose = Moves(moves.free, moves.metric)
        each = [
            linear(Y, [b], moves)
            if flat
            else quadratic(Y, b, loose, self._pencil(k, target, b, loose))
            for k, b, flat in zip(rivals, sides, straight, strict=True)
        ]
        # every single boundary is a relaxation: the farthest of their points bounds the whole
        farthest = np.stack([b.objective for b in each]).argmax(axis=0)
        best = joined(each, farthest)
        settled = satisfied(Y, best, sides, moves, farthest)
        if not settled.all():
            several = Several(sides, moves.free, moves.own_metric())
            for i in np.flatnonzero(~settled):
                own = moves.rows(i)
                nearest = several.nearest(Y[i], own.lower, own.upper)
                if nearest is not None:
                    best.points[i], best.objective[i], best.gap[i], _ = nearest
                    settled[i] = True
        return best, settled

    def _pencil(self, rival: int, target: int, boundary: Boundary, moves: Moves) -> Pencil:
        known = self._pencils.get((rival, target))
        if known is None:
            D, noise = boundary.curvature(np.flatnonzero(moves.free))
            known = self._pencils[rival, target] = Pencil.of(D, moves.own_metric(), noise=noise)
        return known


def joined(batches: list[Batch], pick: NDArray[np.intp]) -> Batch:
    """Return row i of batch pick[i], for every i."""
    rows = np.arange(pick.size)
    return Batch(
        np.stack([b.points for b in batches])[pick, rows],
        np.stack([b.objective for b in batches])[pick, rows],
        np.stack([b.gap for b in batches])[pick, rows],
    )


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


# Nearest points of rows in clusters: vectorised where that settles them, else one by one.

# Options that are no rules on features.
DECLARED = ("mask", "distance", "weights", "metric")
# A gap up to which an answer is called optimal.
PROVED = 1e-6


class NearestPoints:
    """Nearest points in clusters, under options that are checked once.

    Parameters
    ----------
    clusters : Partition
        The clusters.
    features : tuple of str
        Names of the features.
    against : {"pair", "all"}
        What the target must beat.
    plausibility : float
        ε.
    options : mapping
        Other options of `ClusterCounterfactual`.
    time_limit : float
        Seconds for one row whose optimum is not found at once.
    """

    def __init__(
        self,
        clusters: Partition,
        features: tuple[str, ...],
        against: str,
        plausibility: float,
        options: Mapping[str, Any],
        time_limit: float,
    ) -> None:
        self.clusters, self.features = clusters, features
        self.time_limit = time_limit
        self.against, self.plausibility, self.options = against, plausibility, dict(options)
        probe = self._probe()
        self.metric = str(probe.data["distance"])
        kept = check_mask(options.get("mask"), clusters.dimension)
        given = {k: v for k, v in options.items() if k not in DECLARED}
        rules = option_rules(clusters.dimension, features, kept, given)
        # vectorised algorithms work in features of size 1: what they allow for is a share of that
        self.table = TargetTable(
            clusters.in_sizes(),
            Options.of(rules, probe).in_sizes(clusters.sizes),
            against,
            float(probe.data["plausibility"]),
        )
        self.margin = float(clusters.sizes.max()) if clusters.kind == "kmeans" else 1.0

    def _probe(self) -> ClusterCounterfactual:
        """Declare the problem of a center in its own cluster: bad options fail here."""
        for center in self.clusters.means:
            try:
                return self.problem(center, int(self.clusters.labels(center)))
            except DataError as e:
                refused = e  # bounds may exclude this center
        raise refused

    def problem(self, y: Floats, target: int, held: Iterable[int] = ()) -> ClusterCounterfactual:
        """Declare the problem of one row, with further columns held."""
        p = ClusterCounterfactual(
            self.clusters,
            factual=y,
            target=target,
            features=self.features,
            against=self.against,
            plausibility=self.plausibility,
            **self.options,
        )
        names = tuple(self.features[j] for j in sorted(held) if j in p.free)
        return p.with_constraints({"left alone": immutable(*names)}) if names else p

    def margins(self, Z: Floats, target: Labels) -> Floats:
        """Return how far inside their targets points lie, against each cluster (n, K)."""
        rows = np.arange(len(Z))
        scores = self.clusters.scores(Z)
        margins = scores[rows, target][:, None] - scores
        if self.clusters.kind == "kmeans":
            away = self.clusters.means[target][:, None] - self.clusters.means
            lengths = np.linalg.norm(away, axis=2)
            margins /= np.where(lengths > 0.0, lengths, 1.0)
        margins[rows, target] = np.nan
        return np.asarray(margins)

    def answer(self, y: Floats, target: int, held: Iterable[int] = ()) -> Counterfactual:
        """Return the nearest point of one row: vectorised where that settles it, else solved."""
        held = frozenset(held)
        source = int(self.clusters.labels(y))
        batch, settled = self._at_once(y[None], np.array([source]), target, held)
        if settled[0] and np.isfinite(batch.objective[0]):
            there = source == target and batch.objective[0] == 0.0
            ask = None if there else lambda: self._solution(self.problem(y, target, held))
            proved = bool(batch.gap[0] <= PROVED)
        else:  # the problem says, too, why nothing is reached
            p = self.problem(y, target, held)
            there = p.inside and source == target
            s = None if there else self._solution(p)
            ask = None if s is None else lambda: s
            proved = s is None or s.is_optimal(PROVED)
            batch = Batch.of(y, 0.0, 0.0) if s is None else _one(s)
        status = "optimal" if proved else "bounded"
        return Counterfactual(
            self.features,
            y,
            batch.points[0],
            source,
            target,
            float(self.distance(batch.objective[0])),
            self.metric,
            self.margins(batch.points, np.array([target]))[0],
            "already there" if there else status,
            float(batch.gap[0]),
            ask,
            self.clusters.sizes,
            self.margin,
        )

    def _at_once(
        self, Y: Floats, source: Labels, target: int, held: frozenset[int] = frozenset()
    ) -> tuple[Batch, Flags]:
        """Return what the vectorised algorithms say of rows, and which they settle."""
        if not self.table.options.vectorised:
            return Batch.empty(*Y.shape), np.zeros(len(Y), dtype=bool)
        table = self.table.held(held) if held else self.table
        sizes = self.clusters.sizes
        batch, settled = table.nearest(Y / sizes, source, target)
        objective = batch.objective * float(sizes.max()) ** 2
        return Batch(batch.points * sizes, objective, batch.gap), settled

    def _solution(self, p: ClusterCounterfactual) -> Solution:
        """Solve a problem and prove it; where no route proves several quadratics, keep the best."""
        if not p.structure_refusal(SEVERAL_QUADRATICS):
            return best_known(p, time_limit=self.time_limit)
        begin = time.perf_counter()
        s = p.solve(time_limit=self.time_limit)
        left = begin + self.time_limit - time.perf_counter()
        # of few integers a tree of their cases is soon closed
        if p.integers and not s.grade.sound and left > 0.0:
            with contextlib.suppress(SolverFailure, UnsupportedProblem):
                s = s.certificate.prove(time_limit=left).solution
        return s

    def distance(self, objective: Any) -> Any:
        """Return distances: objectives of l2 are squared."""
        return np.sqrt(np.maximum(objective, 0.0)) if self.metric == "l2" else objective

    def tried(
        self, y: Floats, target: int, held: frozenset[int]
    ) -> tuple[float, frozenset[int]] | None:
        """Return objective and changed features with some features held; None out of reach."""
        batch = self.nearest(y[None], self.clusters.labels(y[None]), np.array([target]), held)
        if not np.isfinite(batch.objective[0]):
            return None
        changed = np.flatnonzero(changed_entries(y, batch.points[0], self.clusters.sizes))
        return float(batch.objective[0]), frozenset(changed)

    def objectives(self, Y: Floats, source: Labels, exactly: int) -> tuple[Floats, Floats, Batch]:
        """Return objectives and gaps of every row and target (n, K), and the nearest points.

        Own clusters have infinite objectives. Only the ``exactly`` nearest targets of a row are
        solved where the vectorised algorithms leave a lower bound; the others keep it.
        """
        n, K = len(Y), self.clusters.size
        objectives, gaps = np.full((n, K), np.inf), np.full((n, K), np.nan)
        settled = np.zeros((n, K), dtype=bool)
        settled[np.arange(n), source] = True
        best = Batch.empty(*Y.shape)
        if self.table.options.vectorised:
            for t in range(K):
                at = np.flatnonzero(source != t)
                if at.size:
                    batch, done = self._at_once(Y[at], source[at], t)
                    objectives[at, t], gaps[at, t] = batch.objective, batch.gap
                    settled[at, t] = done
                    better = done & (batch.objective < best.objective[at])
                    best.put(at[better], batch.rows(better))
        else:
            objectives[~settled] = 0.0
        for i in np.flatnonzero(~settled.all(axis=1)):
            # the target with the least bound is solved until enough of the least are exact
            while True:
                order = np.argsort(objectives[i], kind="stable")[:exactly]
                left = order[~settled[i, order]]
                if not left.size:
                    break
                t = int(left[0])
                one = self._solved(Y[i], t)
                objectives[i, t], gaps[i, t] = one.objective[0], one.gap[0]
                settled[i, t] = True
                if one.objective[0] < best.objective[i]:
                    best.put([i], one)
        return objectives, gaps, best

    def nearest(
        self, Y: Floats, source: Labels, goals: Labels, held: frozenset[int] = frozenset()
    ) -> Batch:
        """Return the nearest points in given targets, with further columns held."""
        batch = Batch.empty(*Y.shape)
        for t in np.unique(goals):
            at = np.flatnonzero(goals == t)
            part, settled = self._at_once(Y[at], source[at], int(t), held)
            batch.put(at, part)
            for i in at[~settled]:
                batch.put([i], self._solved(Y[i], int(t), held))
        return batch

    def _solved(self, y: Floats, target: int, held: frozenset[int] = frozenset()) -> Batch:
        """Solve one row on its own."""
        try:
            s = self._solution(self.problem(y, target, held))
        except (Infeasible, DataError, DeclarationError):
            return Batch.empty(1, y.size)
        except SolverFailure:  # neither a point nor a proof that there is none
            return replace(Batch.empty(1, y.size), gap=np.array([np.inf]))
        return _one(s)


def _one(s: Solution) -> Batch:
    """Return a solution as a batch; a bound on somebody's word proves nothing beyond 0.

    What a solver leaves beyond bounds, and of features that are held, is its rounding.
    """
    limits = cast("ClusterCounterfactual", s.problem).limits
    point = np.clip(s["point"], *limits)
    return Batch.of(point, s.objective, s.gap if s.grade.sound else max(s.gap, 1.0))


def satisfied(
    Y: Floats, best: Batch, sides: Sequence[Boundary], moves: Moves, own: NDArray[np.intp]
) -> Flags:
    """Return whether points satisfy everything; a row that is proved to have none is settled too."""
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
    return np.asarray(np.where(reached, holds, best.decided))
