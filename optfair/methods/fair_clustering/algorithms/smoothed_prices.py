"""Prices near the optimum from rows whose choice is smoothed: the long step of the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.costs import CostRows
from optfair.methods.fair_clustering.algorithms.entropic_projection import project_masses
from optfair.methods.fair_clustering.algorithms.log_rows import (
    MassOracle,
    MassPass,
    pass_over,
)
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram

Floats = NDArray[np.float64]

# Temperatures, in typical margins: the first and the last, and the factor from one to the next.
WARMEST, COLDEST, FACTOR = 40.0, 0.01, 0.4
# Distance of the masses from the rules, in fractions of groups, at which a temperature is left;
# at the last one so many rows of a typical group, if that is less.
NEAR, NEAR_ROWS = 3e-3, 10.0
# Rows that the temperatures but the last look at, and that the size of costs is taken from.
FEW, PROBE = 20_000, 4_096
# Costs of a row that differ by this share of the largest tie.
TIE = 1e-12


def smoothed_prices(
    program: MassProgram,
    few: CostRows,
    whole: Callable[[float], MassOracle],
    size: int,
    prices: Floats,
    *,
    warmest: float = WARMEST,
    deadline: float = np.inf,
) -> Floats | None:
    r"""Return prices near the optimal ones; None if that fails.

    .. math::
        \max_\Lambda\; -\tau \sum_i w_i \log \sum_k e^{-(D_{ik} + \Lambda_{g_i k})/\tau}
        + \min_M \{h(M) - \langle\Lambda, M\rangle : \text{rules}\}

    for falling temperatures τ, each from the prices of the one before. That is the projection of
    responsibilities :math:`e^{-D/\tau}` on the rules, whose Newton steps are few whatever the
    number of clusters and groups; the prices err by about τ.

    Parameters
    ----------
    program : MassProgram
        The rules.
    few : CostRows
        Rows of which every temperature but the last is content; see `thinned`.
    whole : callable
        Returns the oracle of all rows at a temperature, such as `SmoothedRows`.
    size : int
        Number of all rows.
    prices : array (G, K)
        Where to start.
    warmest : float
        First temperature, in typical margins between a row's two cheapest clusters: low where
        the prices are nearly right.
    deadline : float
        ``time.perf_counter()`` value after which no new pass starts.
    """
    unit = typical_margin(few)
    if not unit > 0.0:
        return None
    best, rows = None, NEAR_ROWS * few.group_count / size
    share = max(warmest, COLDEST)
    while share >= COLDEST:
        last = share * FACTOR < COLDEST
        tau = unit * share
        form = program.form
        hot = replace(program, form=replace(form, P=form.P / tau, q=form.q / tau))
        oracle = whole(tau) if last else SmoothedRows(few, tau)
        found = project_masses(
            oracle,
            hot,
            prices=prices / tau,
            tolerance=min(NEAR, rows) if last else NEAR,
            deadline=deadline,
            rough=True,
        )
        if not np.isfinite(found.value):
            break
        prices = best = found.prices * tau
        share *= FACTOR
    return best


class SmoothedRows:
    """The oracle of rows in memory whose log densities are -D/τ."""

    def __init__(self, costs: CostRows, tau: float) -> None:
        self.costs, self.tau = costs, tau

    def __call__(self, prices: Floats, curvature: bool = True) -> MassPass:
        """Return the pass at given prices."""
        return pass_over(self._blocks(), prices, curvature=curvature)

    def _blocks(self) -> Iterator[tuple[int, Floats, Floats]]:
        for g, start, stop, block in self.costs.blocks():
            yield g, block * (-1.0 / self.tau), self.costs.weights[start:stop]


def thinned(costs: CostRows, size: int = FEW) -> CostRows:
    """Return about ``size`` rows, every group with its share; all rows where they are few."""
    if costs.size <= size:
        return costs
    rng = np.random.default_rng(0)
    rows, weights = [], []
    for g in range(costs.group_count):
        own = costs.members(g)
        count = min(own.size, max(1_000, round(size * own.size / costs.size)))
        own = np.sort(rng.choice(own, count, replace=False))
        part = costs.weights[own]
        rows.append(costs.rows[own])
        weights.append(part * (costs.weights[costs.members(g)].sum() / part.sum()))
    return CostRows(costs.cost, costs.labels, np.concatenate(weights), np.concatenate(rows))


def typical_margin(costs: CostRows) -> float:
    """Return by how much the second cluster of a row costs more than its first, on average.

    Ties do not count, and neither do clusters far from all rows.
    """
    step = max(1, costs.size // PROBE)
    block = costs.gather(np.arange(0, costs.size, step))
    regret = block - block.min(axis=0)
    regret[regret <= TIE * np.abs(block).max(axis=0)] = np.inf
    second = regret.min(axis=0)
    return float(second[np.isfinite(second)].mean()) if np.isfinite(second).any() else 0.0
