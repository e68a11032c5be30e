"""From flows to assignments: hand a flow out to rows, or repair an assignment to given masses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.cost_rows import CostRows
from optfair.methods.fair_clustering.algorithms.pricing import FreeRows, Pricing

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

__all__ = ["Entries", "repaired", "spread"]

Entries = tuple[Integers, Integers, Floats]  # positions, clusters, fractions

SLIVER = 1e-9  # fractions of a row below this are rounding


def spread(costs: CostRows, pricing: Pricing, free: FreeRows, flow: Floats) -> Entries:
    """Hand each class's flow out to its rows one after the other, so that few are split.

    All classes are laid end to end on one line, once cut into rows and once into arcs; each
    piece between neighbouring cuts belongs to one row and one arc.
    """
    fixed = np.ones(costs.size, dtype=bool)
    fixed[free.positions] = False
    rest = np.flatnonzero(fixed)
    rows, clusters, fractions = rest, pricing.best[rest], np.ones(rest.size)
    if free.positions.size:
        r, k, f = _pieces(costs, free, flow)
        rows, clusters = np.concatenate([rows, r]), np.concatenate([clusters, k])
        fractions = np.concatenate([fractions, f])
    return rows, clusters, fractions


def _pieces(costs: CostRows, free: FreeRows, flow: Floats) -> Entries:
    rows = free.positions[np.argsort(free.members, kind="stable")]
    weight = costs.weights[rows]
    used = np.flatnonzero(flow > 0.0)
    row_end, arc_end = np.cumsum(weight), np.cumsum(flow[used])
    ends = np.union1d(row_end, arc_end)
    length = np.diff(ends, prepend=0.0)
    middle = ends - length / 2.0
    owner = np.minimum(np.searchsorted(row_end, middle), rows.size - 1)
    arc = np.minimum(np.searchsorted(arc_end, middle), used.size - 1)
    share = length / weight[owner]
    keep = share > SLIVER
    # rounding may cut a row twice within one cluster: add such pieces up
    key = rows[owner[keep]] * costs.clusters + free.arcs.cluster[used[arc[keep]]]
    entry, inverse = np.unique(key, return_inverse=True)
    r, k = np.divmod(entry, costs.clusters)
    f = np.bincount(inverse, share[keep])
    return r, k, f / np.bincount(r, f, costs.size)[r]


def repaired(costs: CostRows, pricing: Pricing, masses: Floats) -> Entries:
    """Return an assignment with the given masses, close to every row's cheapest cluster.

    Used when time runs out before a master is solved: from clusters with too much mass the
    rows that lose least move to those with too little.
    """
    n, K = costs.size, costs.clusters
    assignment = np.zeros((n, K))
    assignment[np.arange(n), pricing.best] = 1.0
    for g in range(masses.shape[0]):
        rows = costs.members(g)
        weights = costs.weights[rows]
        reduced = costs.gather(rows) + pricing.prices[g][:, None]
        surplus = np.bincount(pricing.best[rows], weights, K) - masses[g]
        for _ in range(2 * K):
            k, j = int(surplus.argmax()), int(surplus.argmin())
            amount = min(surplus[k], -surplus[j])
            if amount <= 0.0:
                break
            here = np.flatnonzero((assignment[rows, k] > 0.0) & (weights > 0.0))
            here = here[np.argsort(reduced[j, here] - reduced[k, here], kind="stable")]
            have = assignment[rows[here], k] * weights[here]
            moved = np.clip(amount - (np.cumsum(have) - have), 0.0, have) / weights[here]
            assignment[rows[here], k] -= moved
            assignment[rows[here], j] += moved
            surplus[k] -= amount
            surplus[j] += amount
    assignment[assignment < SLIVER] = 0.0
    assignment /= assignment.sum(axis=1, keepdims=True)
    rows, clusters = np.nonzero(assignment)
    return rows, clusters, assignment[rows, clusters]
