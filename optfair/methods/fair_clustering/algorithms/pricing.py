"""One pass over the rows at given prices, and the choice of the arcs that stay open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.cost_rows import CostRows
from optfair.methods.fair_clustering.algorithms.master import Arcs

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

__all__ = ["Box", "FreeRows", "Pricing", "box_for", "price", "select_arcs"]

# Rows looked at to choose the size of a box; any size is valid, so a sample will do.
PROBE = 8_192
# Numbers looked at to see how large costs typically are.
TYPICAL = 1_024


@dataclass(frozen=True, eq=False)
class Pricing:
    """Every row's cheapest cluster at prices Λ.

    Attributes
    ----------
    prices : array (G, K)
        Λ, added to the costs of each group.
    value : float
        Σ w_i min_k (D_ik + Λ_gk).
    best : array (n,)
        Cheapest cluster.
    low : array (n,)
        Its reduced cost D + Λ.
    """

    prices: Floats
    value: float
    best: Integers
    low: Floats


@dataclass(frozen=True, eq=False)
class Box:
    """How far each price may fall and rise in one master.

    Attributes
    ----------
    down, up : arrays (G, K)
        Largest decrease and increase of Λ_gk; infinite where every arc concerned is open.
    """

    down: Floats
    up: Floats


@dataclass(frozen=True, eq=False)
class FreeRows:
    """The rows left to the master and how they were merged into classes.

    Attributes
    ----------
    arcs : Arcs
        What the master sees.
    positions : array (r,)
        Free rows (positions in the ordering of the costs).
    members : array (r,)
        Class of each free row.
    """

    arcs: Arcs
    positions: Integers
    members: Integers


def price(costs: CostRows, prices: Floats) -> Pricing:
    """Price every arc: the only work proportional to n K, done in blocks."""
    n = costs.size
    best, low = np.empty(n, dtype=np.intp), np.empty(n)
    value = 0.0
    for g, start, stop, block in costs.blocks():
        reduced = block + prices[g][:, None]
        index = reduced.argmin(axis=0)
        lowest = reduced[index, np.arange(stop - start)]
        value += float(costs.weights[start:stop] @ lowest)
        best[start:stop], low[start:stop] = index, lowest
    return Pricing(prices, value, best, low)


def box_for(costs: CostRows, pricing: Pricing, ranks: Floats) -> Box:
    """Return the box in which about ``ranks[g, k]`` rows can enter or leave cluster k.

    A price that falls by the r-th smallest regret of a cluster attracts r rows, whatever the
    units: a far cluster gets a wide box and a crowded boundary a narrow one.
    """
    shape = pricing.prices.shape
    down, up = np.zeros(shape), np.zeros(shape)
    step = max(1, costs.size // PROBE)
    for g in range(shape[0]):
        rows = costs.members(g)[::step]
        regret = costs.gather(rows) + pricing.prices[g][:, None] - pricing.low[rows]
        best = pricing.best[rows]
        here = np.arange(rows.size)
        grain = _grain(pricing.low[rows], regret)
        regret[best, here] = np.inf
        # arcs that tie are open in any box: ranks count the others
        regret[regret <= grain] = np.inf
        leave = regret.min(axis=0)
        for k in range(shape[1]):
            down[g, k] = _ranked(regret[k][best != k], ranks[g, k] / step)
            up[g, k] = _ranked(leave[best == k], ranks[g, k] / step)
    return Box(down, up)


def _grain(low: Floats, regrets: Floats) -> float:
    """Return the size below which a regret is rounding; outliers do not count."""
    if regrets.size == 0:
        return 0.0
    thin = (v[:: max(1, v.size // TYPICAL)] for v in (low, regrets.ravel()))
    return 1e-13 * sum(float(np.median(np.abs(part))) for part in thin)


def _ranked(regrets: Floats, rank: float) -> float:
    """Return the rank-th smallest regret, or infinity when that opens every arc.

    Below rank 1 it is that part of the first one: of a thinned sample, or of a gap that is
    empty of rows, which would otherwise open everything on both its sides.
    """
    r = max(1, int(rank))
    return float(np.partition(regrets, r)[r]) * min(rank, 1.0) if r < regrets.size else np.inf


def select_arcs(costs: CostRows, pricing: Pricing, box: Box | None, shares: Floats) -> FreeRows:
    """Keep every arc that can become cheapest in the box (all arcs without one).

    Rows of weight 0 move no mass: they stay in their cheapest cluster.
    """
    K = costs.clusters
    chosen: list[Integers] = []
    for g, start, stop, block in costs.blocks():
        best = pricing.best[start:stop]
        regret = block + (pricing.prices[g][:, None] - pricing.low[start:stop])
        if box is not None:
            regret -= box.up[g][best]
            regret -= box.down[g][:, None]
            regret[best, np.arange(stop - start)] = np.inf
            free = (regret <= 0.0).any(axis=0)
        else:
            free = np.ones(stop - start, dtype=bool)
        rows = np.flatnonzero(free & (costs.weights[start:stop] > 0.0))
        chosen.append(rows + start)
    positions = np.concatenate(chosen)
    groups = costs.groups[positions]
    fixed_weight = costs.weights.copy()
    fixed_weight[positions] = 0.0
    fixed = np.bincount(
        costs.groups * K + pricing.best, fixed_weight, minlength=costs.group_count * K
    ).reshape(costs.group_count, K)
    regrets = costs.gather(positions) + pricing.prices[groups].T - pricing.low[positions]
    regrets = np.maximum(regrets, 0.0)
    here, best = np.arange(positions.size), pricing.best[positions]
    if box is None:
        keep = np.ones(regrets.shape, dtype=bool)
    else:
        keep = regrets <= box.down[groups].T + box.up[groups, best]
        keep[best, here] = True
    # rows whose regrets differ by rounding only are one class
    grain = _grain(pricing.low, regrets)
    regrets[regrets <= grain] = 0.0
    members, first = _classes(groups, np.where(keep, np.round(regrets / (grain or 1.0)), -1.0))
    weight = np.bincount(members, costs.weights[positions], minlength=first.size)
    regrets, keep, kinds = regrets[:, first].T, keep[:, first].T, groups[first]
    held, total = _exact_totals(
        np.asarray(fixed, dtype=float), np.asarray(weight, dtype=float), kinds, shares
    )
    row, cluster = np.nonzero(keep)
    arcs = Arcs(row, cluster, regrets[row, cluster], kinds, total, held)
    return FreeRows(arcs, positions, members)


def _exact_totals(
    fixed: Floats, weight: Floats, kinds: Integers, shares: Floats
) -> tuple[Floats, Floats]:
    """Scale masses so that each group's total is its share to the last digit.

    A million weights added up in two orders differ by 1e-11; the equalities of a master
    would turn that into slack that no prices can remove.
    """
    free = np.asarray(np.bincount(kinds, weight, shares.size), dtype=float)
    held = fixed.sum(axis=1)
    for g, share in enumerate(shares):
        if held[g] > 0.0:
            fixed[g] *= (share - free[g]) / held[g]
        elif free[g] > 0.0:
            weight = np.where(kinds == g, weight * (share / free[g]), weight)
    return np.maximum(fixed, 0.0), weight


def _classes(groups: Integers, keys: Floats) -> tuple[Integers, Integers]:
    """Merge rows of one group with the same open arcs and regrets.

    Returns (class of each row, a row of each class). This is what keeps ties small: all the
    rows that two equal centers tie for are one class.
    """
    n = groups.size
    # a cheap test first: without equal sums there are no equal rows
    if n == 0 or np.unique(keys.sum(axis=0)).size > 0.98 * n:
        return np.arange(n), np.arange(n)
    keys = np.vstack([groups.astype(float), keys])
    _, first, members = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return np.asarray(members.ravel()), np.asarray(first)
