"""The mass-dual algorithm: exact fair assignment at the cost of a few passes over the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.cost_rows import CostRows
from optfair.methods.fair_clustering.algorithms.entries import repaired, spread
from optfair.methods.fair_clustering.algorithms.pricing import price
from optfair.methods.fair_clustering.algorithms.program import MassProgram
from optfair.methods.fair_clustering.algorithms.search import PriceSearch, Round
from optfair.methods.fair_clustering.separable_cost import SeparableCost

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

__all__ = ["MassResult", "solve_mass_dual"]


@dataclass(frozen=True, eq=False)
class MassResult:
    """Assignment and prices found, rows in the user's order.

    Attributes
    ----------
    rows, clusters, fractions : arrays
        Entries of the assignment; a row that is not split has one entry.
    y, z : arrays
        Masses and auxiliaries at the best bound, and the multipliers of the rules;
        the prices are ``program.prices(y, z)``.
    status : str
        optimal, stalled, time_limit or interrupted.
    history : list of Round
    """

    rows: Integers
    clusters: Integers
    fractions: Floats
    y: Floats
    z: Floats
    status: str
    history: list[Round] = field(default_factory=list)


def solve_mass_dual(
    program: MassProgram,
    cost: SeparableCost,
    groups: Integers,
    weights: Floats,
    *,
    feasible: Floats,
    prices: Floats | None = None,
    tolerance: float = 1e-9,
    deadline: float = np.inf,
    report: Callable[[Round], None] | None = None,
) -> MassResult:
    r"""Minimise :math:`\sum_{ik} w_i A_{ik} D_{ik} + h(M(A))` subject to the rules on M.

    Parameters
    ----------
    program : MassProgram
        Rules and mass objective.
    cost : SeparableCost
        Costs of rows in clusters.
    groups, weights : arrays (n,)
        Group index and weight (total 1) of each row.
    feasible : array
        A feasible y: the incumbent's masses when time runs out before a master is solved.
    prices : array (G, K), optional
        Prices to start from.
    tolerance : float
        Relative gap at which the search ends.
    deadline : float
        ``time.perf_counter()`` value after which the incumbent is returned.
    report : callable, optional
        Called after each round.
    """
    search = PriceSearch(program, CostRows(cost, groups, weights), tolerance, deadline, report)
    try:
        status = search.run(prices)
    except KeyboardInterrupt:
        status = "interrupted"
    costs = search.costs
    if search.candidate is not None:
        c = search.candidate
        rows, clusters, fractions = spread(costs, c.pricing, c.free, c.flow)
    else:
        pricing = search.pricing or price(costs, np.zeros(program.masses.shape))
        masses = feasible[program.masses] if search.masses is None else search.masses
        rows, clusters, fractions = repaired(costs, pricing, masses)
    return MassResult(
        costs.rows[rows], clusters, fractions, search.y, search.z, status, search.history
    )
