"""Passes over the rows at given prices, hard and soft, and the assignment that their flows leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.costs import CostRows, SeparableCost
from optfair.methods.fair_clustering.algorithms.restricted_master import Arcs
from optfair.numbers import Floats, Indices
from optfair.rows.sources import Summed

# One pass over the rows at given prices, and the choice of the arcs that stay open.


# Rows looked at to choose the size of a box, in all and in a group at least; any size is valid,
# so a sample will do.
PROBE, EACH = 2_048, 512
# Numbers looked at to see how large costs typically are.
TYPICAL = 1_024
# How many costs of a row prices may move at once to follow a center.
FARTHEST = 1e5


@dataclass(frozen=True)
class Round:
    """One round of the search.

    Attributes
    ----------
    rows, arcs : int
        Free rows (identical ones once) and arcs in the master.
    bound : float
        Best lower bound on the optimum so far.
    slack : float
        Weight by which the master missed the mass definition; 0 when its box was not active.
    gap : float
        Relative gap of the candidate, infinite before there is one.
    """

    rows: int
    arcs: int
    bound: float
    slack: float
    gap: float


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
    best: Indices
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
    positions: Indices
    members: Indices


def price(costs: CostRows, prices: Floats) -> Pricing:
    """Price every arc: the only work proportional to n K, done in blocks."""
    n, K = costs.size, costs.clusters
    best, low = np.empty(n, dtype=np.intp), np.empty(n)
    value, codes = 0.0, np.stack([np.arange(K), np.ones(K)]).astype(np.float32)
    for g, start, stop, block in costs.blocks():
        reduced = block + prices[g][:, None]
        lowest = reduced.min(axis=0)
        least = reduced == lowest
        # a product is six times as fast as argmin, but for ties
        index, ties = codes @ least.astype(np.float32)
        index[ties > 1.0] = least[:, ties > 1.0].argmax(axis=0)
        value += float(costs.weights[start:stop] @ lowest)
        best[start:stop], low[start:stop] = index, lowest
    return Pricing(prices, value, best, low)


def lowered(low: Floats, weights: Floats, rounding: float, largest: Any) -> tuple[float, float]:
    """Return the weight of least reduced costs that rounding cannot have raised, and their size.

    Lowered by the rounding of a distance and of the largest price, the least stays the least.
    """
    low = low - (rounding * np.abs(low) + rounding * 2.0 * largest)
    return float(weights @ low), float(weights @ np.abs(low))


def box_for(costs: CostRows, pricing: Pricing, ranks: Floats) -> Box:
    """Return the box in which about ``ranks[g, k]`` rows can enter or leave cluster k.

    A price that falls by the r-th smallest regret of a cluster attracts r rows, whatever the
    units: a far cluster gets a wide box and a crowded boundary a narrow one.
    """
    shape = pricing.prices.shape
    down, up = np.zeros(shape), np.zeros(shape)
    for g in range(shape[0]):
        own = costs.members(g)
        step = max(1, min(costs.size // PROBE, own.size // EACH))
        rows = own[::step]
        regret = costs.gather(rows) + pricing.prices[g][:, None] - pricing.low[rows]
        best = pricing.best[rows]
        here = np.arange(rows.size)
        grain = _grain(pricing.low[rows], regret)
        regret[best, here] = np.inf
        # arcs that tie are open in any box: ranks count the others
        regret[regret <= grain] = np.inf
        leave = regret.min(axis=0)
        down[g] = _ranked(regret, ranks[g] / step)
        of_cluster = np.full(regret.shape, np.inf)
        of_cluster[best, here] = leave
        up[g] = _ranked(of_cluster, ranks[g] / step)
    return Box(down, up)


def _grain(low: Floats, regrets: Floats) -> float:
    """Return the size below which a regret is rounding; outliers do not count."""
    if regrets.size == 0:
        return 0.0
    thin = (v[:: max(1, v.size // TYPICAL)] for v in (low, regrets.ravel()))
    return 1e-13 * sum(float(np.partition(np.abs(v), v.size // 2)[v.size // 2]) for v in thin)


def _ranked(regrets: Floats, ranks: Floats) -> Floats:
    """Return of each line the regret of its rank, or infinity when that opens every arc.

    Below rank 1 it is that part of the first one: of a thinned sample, or of a gap that is
    empty of rows, which would otherwise open everything on both its sides.
    """
    size = regrets.shape[1]
    at = np.maximum(ranks, 1.0).astype(np.intp)
    inside = at < size
    at = np.where(inside, at, 0)
    if size == 0:
        return np.full(len(at), np.inf)
    # several ranks at once would take ten times as long
    most = int(at.max())
    ordered = np.sort(np.partition(regrets, most, axis=1)[:, : most + 1], axis=1)
    part = ordered[np.arange(len(at)), at] * np.minimum(ranks, 1.0)
    return np.where(inside, part, np.inf)


def select_arcs(costs: CostRows, pricing: Pricing, box: Box | None, shares: Floats) -> FreeRows:
    """Keep every arc that can become cheapest in the box (all arcs without one).

    Rows of weight 0 move no mass: they stay in their cheapest cluster.
    """
    K = costs.clusters
    chosen: list[Indices] = []
    for g, start, stop, block in costs.blocks():
        best, low = pricing.best[start:stop], pricing.low[start:stop]
        if box is not None:
            lowest = block + (pricing.prices[g] - box.down[g])[:, None]
            near = lowest <= low + box.up[g][best]  # the cheapest is one of them
            free = near.view(np.uint8).sum(axis=0, dtype=np.uint32) > 1
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
    charged = np.take(np.ascontiguousarray(pricing.prices.T), groups, axis=1)
    regrets = np.maximum(costs.gather(positions) + charged - pricing.low[positions], 0.0)
    here, best = np.arange(positions.size), pricing.best[positions]
    if box is None:
        keep = np.ones(regrets.shape, dtype=bool)
    else:
        down = np.take(np.ascontiguousarray(box.down.T), groups, axis=1)
        keep = regrets <= down + box.up[groups, best]
        keep[best, here] = True
    # rows whose regrets differ by rounding only are one class
    grain = _grain(pricing.low, regrets)
    regrets[regrets <= grain] = 0.0
    alike = np.round(regrets / grain) if grain > 0.0 else regrets
    members, first = _classes(groups, np.where(keep, alike, -1.0))
    weight = np.bincount(members, costs.weights[positions], minlength=first.size)
    regrets, keep, kinds = regrets[:, first].T, keep[:, first].T, groups[first]
    held, total = exact_totals(
        np.asarray(fixed, dtype=float), np.asarray(weight, dtype=float), kinds, shares
    )
    row, cluster = np.nonzero(keep)
    arcs = Arcs(row, cluster, regrets[row, cluster], kinds, total, held)
    return FreeRows(arcs, positions, members)


def value_within(pricing: Pricing, free: FreeRows, box: Box | None, prices: Floats) -> float:
    r"""Return at most Σ w_i min_k (D_ik + Λ_gk), for prices Λ in the box that rows were freed for.

    Rows that are not free keep their clusters in the box, and the others have the arcs that can
    become cheapest there. Prices outside by rounding are charged for it.
    """
    arcs, moved = free.arcs, prices - pricing.prices
    beyond = 0.0
    if box is not None:
        beyond = max(0.0, float((moved - box.up).max()), float((-box.down - moved).max()))
    regret = arcs.regret + moved[arcs.group[arcs.row], arcs.cluster]
    value = pricing.value + float((arcs.fixed * moved).sum()) - 2.0 * beyond
    if regret.size:
        first = np.flatnonzero(np.diff(arcs.row, prepend=-1))
        value += float(arcs.weight @ np.minimum.reduceat(regret, first))
    return value


def boundary_means(free: FreeRows, X: Floats, weights: Floats, shape: tuple[int, int]) -> Floats:
    """Return the mean of the free rows that may be in each cluster, of each group (G, K, d).

    NaN where there are none. ``X`` and ``weights`` are of the free rows.
    """
    arcs, (G, K) = free.arcs, shape
    cell = arcs.group[arcs.row] * K + arcs.cluster
    size = (arcs.weight.size, free.members.size)
    merged = sp.csr_array((weights, (free.members, np.arange(size[1]))), shape=size)
    own = sp.csr_array((np.ones(cell.size), (cell, arcs.row)), shape=(G * K, size[0]))
    total = np.asarray(own @ merged.sum(axis=1)).reshape(-1, 1)
    sums = np.asarray(own @ (merged @ X))
    return np.where(total > 0.0, sums / np.where(total > 0.0, total, 1.0), np.nan).reshape(G, K, -1)


def followed_prices(
    prices: Floats,
    cost: SeparableCost,
    boundary: Floats,
    before: Floats,
    centers: Floats,
    size: float,
) -> Floats:
    """Return prices for centers that moved: what the boundary of each cluster paid, it still pays.

    To first order the same rows are then undecided, however far from all centers they are. A
    cluster whose prices would drown costs of that size in their rounding keeps those it has.
    """
    G, K = prices.shape
    some = replace(cost, points=np.nan_to_num(boundary).reshape(G * K, -1), charge=None)
    here = np.tile(np.arange(K), G), np.arange(G * K)
    was, now = (
        replace(some, centers=at).columns(slice(None))[here].reshape(G, K)
        for at in (before, centers)
    )
    change = np.where(np.isnan(boundary[:, :, 0]), 0.0, was - now)
    return np.asarray(prices + change * (np.abs(change) <= FARTHEST * size).all(axis=0))


def exact_totals(
    fixed: Floats, weight: Floats, kinds: Indices, shares: Floats
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


def _classes(groups: Indices, keys: Floats) -> tuple[Indices, Indices]:
    """Merge rows of one group with the same open arcs and regrets.

    Returns (class of each row, a row of each class). This is what keeps ties small: all the
    rows that two equal centers tie for are one class.
    """
    n, keys = groups.size, np.vstack([groups.astype(float), keys])
    # equal rows have equal sums, whatever the factors; to sort the rows takes ten times as long
    sums = (np.random.default_rng(0).random((len(keys), 1)) * keys).sum(axis=0)
    if np.count_nonzero(np.diff(np.sort(sums))) + 1 > 0.98 * n:  # few are alike
        return np.arange(n), np.arange(n)
    _, first, members = np.unique(sums, return_index=True, return_inverse=True)
    if (keys[:, first[members]] != keys).any():  # others by chance
        return np.arange(n), np.arange(n)
    order = np.argsort(first)  # as the rows, by group
    return np.argsort(order)[members], np.asarray(first[order])


# Sums over labels.


def label_masses(
    labels: Indices, groups: Indices, weights: Floats, shape: tuple[int, ...]
) -> Floats:
    """Return the weight of each group in each cluster (G, K) under labels."""
    cells = np.bincount(groups * shape[1] + labels, weights, shape[0] * shape[1])
    return cells.astype(float).reshape(shape)


def label_sums(rows: Floats, labels: Indices, weights: Floats, clusters: int) -> Floats:
    """Return the weighted sum of the rows (n, d) with each label (K, d)."""
    columns = [np.bincount(labels, weights * c, clusters) for c in rows.T]
    return np.stack(columns, axis=1) if columns else np.zeros((clusters, 0))


def smallest_ratio(masses: Floats) -> float:
    """Return the balance of masses (G, K): the smallest ratio of two groups in a cluster."""
    filled = masses[:, masses.sum(axis=0) > 0.0]
    return float((filled.min(axis=0) / filled.max(axis=0)).min())


# From flows to assignments: hand a flow out to rows, or repair an assignment to given masses.

Entries = tuple[Indices, Indices, Floats]  # positions, clusters, fractions

SLIVER = 1e-9  # fractions of a row below this are rounding


def spread(costs: CostRows, pricing: Pricing, free: FreeRows, flow: Floats) -> Entries:
    """Hand each class's flow out to its rows one after the other, so that few are split.

    All classes of a group are laid end to end on one line, once cut into rows and once into arcs;
    each piece between neighbouring cuts belongs to one row and one arc. Rows whose weight is
    rounding there go where they cost least.
    """
    order = free.positions[np.argsort(free.members, kind="stable")]
    of_arc, used = free.arcs.group[free.arcs.row], flow > 0.0
    pieces = [
        _pieces(costs, free, flow, order[costs.groups[order] == g], np.flatnonzero(used & own))
        for g in np.unique(of_arc)
        if (used & (own := of_arc == g)).any()
    ]
    left = np.ones(costs.size, dtype=bool)
    for piece in pieces:
        left[piece[0]] = False
    rest = np.flatnonzero(left)
    pieces.append((rest, pricing.best[rest], np.ones(rest.size)))
    rows, clusters, fractions = zip(*reversed(pieces), strict=True)
    return np.concatenate(rows), np.concatenate(clusters), np.concatenate(fractions)


def _pieces(costs: CostRows, free: FreeRows, flow: Floats, rows: Indices, used: Indices) -> Entries:
    weight = costs.weights[rows]
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


# Rows that choose softly: a few numbers that add up over blocks of rows.

# Rows per block: a block of 20 clusters stays in the cache.
CHUNK = 8_192


@dataclass(frozen=True, eq=False)
class MassPass(Summed):
    r"""Value, masses and curvature of a pass at prices Λ; passes over blocks of rows add up.

    .. math::
        F = \sum_i w_i \log\sum_k e^{\ell_{ik} - \Lambda_{g_i k}}, \qquad
        M_{gk} = \sum_{i \in g} w_i R_{ik} = -\partial F / \partial\Lambda_{gk}, \qquad
        H_g = \mathrm{diag}(M_g) - \sum_{i \in g} w_i R_i R_i^T

    Attributes
    ----------
    value : float
        F.
    masses : array (G, K)
        M.
    curvature : array (G, K, K) or None
        Blocks of the Hessian of F; None when it was not asked for.
    """

    value: float
    masses: Floats
    curvature: Floats | None = None


#: (prices (G, K), whether the curvature is wanted) -> the pass over all rows
MassOracle = Callable[[Floats, bool], MassPass]


class LogRows:
    """Log densities of rows in memory; calling it makes a pass over them.

    Parameters
    ----------
    log_prob : array (n, K)
        Log joint densities or log responsibilities; a number per row may be added.
    labels : array (n,) of int
        Group index of each row.
    weights : array (n,)
        Weights, total 1.
    groups : int
        Number of groups G.
    """

    def __init__(self, log_prob: Floats, labels: Indices, weights: Floats, groups: int) -> None:
        self.log_prob, self.labels, self.weights, self.groups = log_prob, labels, weights, groups

    def __call__(self, prices: Floats, curvature: bool = True) -> MassPass:
        """Return value, masses and curvature at given prices."""
        return mass_pass(self.log_prob, self.labels, self.weights, prices, curvature=curvature)

    def tempered(self, temperature: float) -> LogRows:
        """Return the rows with their log densities divided by a temperature."""
        return LogRows(self.log_prob / temperature, self.labels, self.weights, self.groups)


def mass_pass(
    log_prob: Floats, labels: Indices, weights: Floats, prices: Floats, *, curvature: bool = True
) -> MassPass:
    """Return the `MassPass` of some rows: the map of a map-reduce, whose reduce is ``+``.

    Parameters
    ----------
    log_prob : array (m, K)
        Log densities of the rows.
    labels, weights : arrays (m,)
        Group index and weight of each row; weights of all rows of all blocks have total 1.
    prices : array (G, K)
        Prices Λ of the masses.
    curvature : bool
        Whether the blocks of the Hessian are wanted.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.log([[0.5, 0.5], [0.2, 0.8]])
    >>> found = mass_pass(rows, np.array([0, 1]), np.array([0.5, 0.5]), np.zeros((2, 2)))
    >>> found.masses.round(12).tolist()
    [[0.25, 0.25], [0.1, 0.4]]
    """
    blocks = ((g, S, weights[rows]) for g, rows, S in _columns(log_prob, labels, len(prices)))
    return pass_over(blocks, prices, curvature=curvature)


def pass_over(
    blocks: Iterable[tuple[int, NDArray[np.floating[Any]], Floats]],
    prices: Floats,
    *,
    curvature: bool = True,
) -> MassPass:
    """Return the `MassPass` of blocks (group, log densities (K, m), weights); they are used up.

    Sums over clusters run along contiguous memory.
    """
    G, K = prices.shape
    value, masses = 0.0, np.zeros((G, K))
    curved = np.zeros((G, K, K)) if curvature else None
    for g, S, w in blocks:
        total = _softened(S, prices[g])
        value += float(w @ total)
        scaled = S * w.astype(S.dtype, copy=False)
        masses[g] += scaled.sum(axis=1)
        if curved is not None:
            curved[g] -= scaled @ S.T
    if curved is not None:
        diagonal = np.arange(K)
        curved[:, diagonal, diagonal] += masses
    return MassPass(value, masses, curved)


def group_softmax(log_prob: Floats, labels: Indices, prices: Floats) -> Floats:
    r"""Return the responsibilities at given prices (m x K).

    .. math:: R_{ik} \propto \exp(\ell_{ik} - \Lambda_{g_i k})

    Parameters
    ----------
    log_prob : array (m, K)
        Log densities of any rows, also of rows the prices were not made from.
    labels : array (m,)
        Group index of each row.
    prices : array (G, K)
        Prices Λ of the masses.
    """
    out = np.empty(log_prob.shape)
    for g, rows, S in _columns(log_prob, labels, len(prices)):
        _softened(S, prices[g])
        out[rows] = S.T
    return out


def group_log_sums(log_prob: Floats, labels: Indices, prices: Floats) -> Floats:
    r"""Return the logarithm of each row's sum at given prices (m,).

    .. math:: \log\textstyle\sum_k \exp(\ell_{ik} - \Lambda_{g_i k})
    """
    out = np.empty(labels.size)
    for g, rows, S in _columns(log_prob, labels, len(prices)):
        out[rows] = _softened(S, prices[g])
    return out


def _columns(
    log_prob: Floats, labels: Indices, groups: int
) -> Iterator[tuple[int, Indices, Floats]]:
    """Yield (group, rows, log densities (K, m)), clusters along the first axis."""
    for start in range(0, labels.size, CHUNK):
        here = labels[start : start + CHUNK]
        for g in range(groups):
            rows = np.flatnonzero(here == g) + start
            if rows.size:
                yield g, rows, np.ascontiguousarray(log_prob[rows].T)


def _softened(S: NDArray[np.floating[Any]], prices: Floats) -> Floats:
    """Turn log densities (K, m) into responsibilities in place and return their log sums (m,)."""
    S -= prices[:, None]
    top = S.max(axis=0)
    S -= top
    np.exp(S, out=S)
    total = S.sum(axis=0)
    S /= total
    return np.asarray(top + np.log(total))
