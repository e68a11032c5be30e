"""Prices from few rows that stand for all of them: the long steps of the search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.cost_rows import CostRows
from optfair.methods.fair_clustering.algorithms.master import solve_master
from optfair.methods.fair_clustering.algorithms.pricing import price, select_arcs
from optfair.methods.fair_clustering.algorithms.program import MassProgram

Floats = NDArray[np.float64]

__all__ = ["coarse_prices"]

# A block r ranks from a boundary holds about r rows.
BLOCK = 2.0


def coarse_prices(
    program: MassProgram, costs: CostRows, prices: Floats, time_limit: float = np.inf
) -> tuple[Floats, Floats] | None:
    """Return prices and masses that are optimal for a thinned set of rows, None if that fails.

    Rows of one group with the same two cheapest clusters are lined up by regret and cut into
    blocks that double in size: next to a boundary every row stands for itself, far away one
    stands for many. Prices that are r ranks off are put right to a fraction of r, whatever
    n, so a few calls replace thousands of short steps.
    """
    weight, rows = _representatives(costs, prices)
    few = CostRows(costs.cost, costs.labels, weight, rows)
    start = price(few, prices)
    free = select_arcs(few, start, None, program.shares)
    master = solve_master(program, free.arcs, prices, None, time_limit)
    if master.status != "optimal":
        return None
    return program.prices(master.y, master.z), master.y[program.masses]


def _representatives(costs: CostRows, prices: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Return weight and row (user's order) of one row per block."""
    n, K = costs.size, costs.clusters
    stratum, regret = np.empty(n, dtype=np.intp), np.zeros(n)
    for g, start, stop, block in costs.blocks():
        reduced = block + prices[g][:, None]
        here = np.arange(stop - start)
        best = reduced.argmin(axis=0)
        lowest = reduced[best, here]
        second = best
        if K > 1:
            reduced[best, here] = np.inf
            second = reduced.argmin(axis=0)
            regret[start:stop] = reduced[second, here] - lowest
        stratum[start:stop] = (g * K + best) * K + second
    order = np.lexsort((regret, stratum))
    stratum = stratum[order]
    new_stratum = np.diff(stratum, prepend=-1) != 0
    begin = np.flatnonzero(new_stratum)
    rank = np.arange(n) - np.repeat(begin, np.diff(np.append(begin, n)))
    level = np.floor(np.log(rank + 1.0) / np.log(BLOCK))
    cut = np.flatnonzero(new_stratum | (np.diff(level, prepend=-1.0) != 0.0))
    middle = (cut + np.append(cut[1:], n)) // 2
    return np.add.reduceat(costs.weights[order], cut), costs.rows[order[middle]]
