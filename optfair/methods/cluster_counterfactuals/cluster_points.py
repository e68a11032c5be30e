"""Nearest points of rows in clusters: vectorised where that settles them, else one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.solution import Solution
from optfair.errors import DataError, DeclarationError, Infeasible, SolverFailure
from optfair.features.rules.features import immutable
from optfair.methods.cluster_counterfactuals.adapters.pairwise import best_known
from optfair.methods.cluster_counterfactuals.cluster_batches import Batch
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.cluster_explanation import (
    Counterfactual,
    changed_entries,
)
from optfair.methods.cluster_counterfactuals.cluster_table import Options, TargetTable
from optfair.methods.cluster_counterfactuals.form import SEVERAL_QUADRATICS
from optfair.methods.cluster_counterfactuals.options import check_mask
from optfair.methods.cluster_counterfactuals.partition import Partition
from optfair.methods.cluster_counterfactuals.sugar import option_rules

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

__all__ = ["PROVED", "NearestPoints"]

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
        told = {k: v for k, v in options.items() if k not in DECLARED}
        rules = option_rules(clusters.dimension, features, kept, told)
        self.table = TargetTable(
            clusters, Options.of(rules, probe), against, float(probe.data["plausibility"])
        )

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
        found = scores[rows, target][:, None] - scores
        if self.clusters.kind == "kmeans":
            away = self.clusters.means[target][:, None] - self.clusters.means
            lengths = np.linalg.norm(away, axis=2)
            found /= np.where(lengths > 0.0, lengths, 1.0)
        found[rows, target] = np.nan
        return np.asarray(found)

    def answer(self, y: Floats, target: int, held: Iterable[int] = ()) -> Counterfactual:
        """Solve one problem, to a certificate."""
        p = self.problem(y, target, held)
        source = int(self.clusters.labels(y))
        there = p.inside and source == target
        s = None if there else self._solution(p)
        point = y if s is None else np.asarray(s["point"], dtype=float)
        objective = 0.0 if s is None else s.objective
        return Counterfactual(
            self.features,
            y,
            point,
            source,
            target,
            self.distance(objective),
            self.metric,
            self.margins(point[None], np.array([target]))[0],
            "already there" if s is None else "optimal" if s.is_optimal(PROVED) else "bounded",
            s,
        )

    def _solution(self, p: ClusterCounterfactual) -> Solution:
        """Solve a problem; where no route proves a point of several quadratics, keep the best."""
        if not p.structure_refusal(SEVERAL_QUADRATICS):
            return best_known(p, time_limit=self.time_limit)
        return p.solve(time_limit=self.time_limit)

    def distance(self, objective: Any) -> Any:
        """Return distances: objectives of l2 are squared."""
        return np.sqrt(np.maximum(objective, 0.0)) if self.metric == "l2" else objective

    def tried(
        self, y: Floats, target: int, held: frozenset[int]
    ) -> tuple[float, frozenset[int]] | None:
        """Return objective and changed features with some features held; None out of reach."""
        if self.table.options.vectorised:
            source = self.clusters.labels(y[None])
            found, settled = self.table.held(held).nearest(y[None], source, target)
            if settled[0]:
                changed = np.flatnonzero(changed_entries(y, found.points[0]))
                reached = bool(np.isfinite(found.objective[0]))
                return (float(found.objective[0]), frozenset(changed)) if reached else None
        try:
            s = self._solution(self.problem(y, target, held))
        except (Infeasible, DataError, DeclarationError, SolverFailure):
            return None
        changed = np.flatnonzero(changed_entries(y, np.asarray(s["point"], dtype=float)))
        return s.objective, frozenset(changed)

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
                    found, done = self.table.nearest(Y[at], source[at], t)
                    objectives[at, t], gaps[at, t] = found.objective, found.gap
                    settled[at, t] = done
                    better = done & (found.objective < best.objective[at])
                    best.put(at[better], found.rows(better))
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

    def nearest(self, Y: Floats, source: Labels, goals: Labels) -> Batch:
        """Return the nearest points in given targets."""
        found = Batch.empty(*Y.shape)
        for t in np.unique(goals):
            at = np.flatnonzero(goals == t)
            settled = np.zeros(at.size, dtype=bool)
            if self.table.options.vectorised:
                part, settled = self.table.nearest(Y[at], source[at], int(t))
                found.put(at, part)
            for i in at[~settled]:
                found.put([i], self._solved(Y[i], int(t)))
        return found

    def _solved(self, y: Floats, target: int) -> Batch:
        """Solve one row on its own."""
        try:
            s = self._solution(self.problem(y, target))
        except (Infeasible, DataError):
            return Batch.empty(1, y.size)
        except SolverFailure:  # neither a point nor a proof that there is none
            return replace(Batch.empty(1, y.size), gap=np.array([np.inf]))
        point = np.asarray(s["point"], dtype=float)[None]
        return Batch(point, np.array([s.objective]), np.array([s.gap]))
