"""Assignments and centers of rows that are read in passes, where costs of groups have prices."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optfair.errors import SolverFailure
from optfair.methods.fair_clustering.algorithms.charged_rows import (
    HARD_OVERDRAFT,
    OVERDRAFT,
    ChargedAnswer,
    Demands,
    GroupMoments,
    Point,
    factors_of,
    weighed,
)
from optfair.methods.fair_clustering.algorithms.descent import Assigned
from optfair.methods.fair_clustering.algorithms.mass_program import PriceTrail
from optfair.methods.fair_clustering.algorithms.passed_rows import (
    PassedAssignment,
    PassedRows,
    PassedSearch,
)
from optfair.methods.fair_clustering.algorithms.soft_descent import SmoothedStart
from optfair.numbers import Floats

# Relative gap of prices of groups in the last assignment, in that of those before.
LAST = 1e-2


@dataclass(frozen=True, eq=False)
class ChargedSums(PassedAssignment):
    """Sums over a convex combination of assignments; prices are those of the best bound.

    Its hard labels are those of the assignment found at these prices.

    Attributes
    ----------
    duals : array (2, G)
        See `ChargedAnswer`.
    factors : array (G,)
        What costs of groups were multiplied by at the prices.
    missed : float
        Largest mean cost of a group beyond its budget.
    parts : list of Point
        What it is a mixture of.
    """

    duals: Floats
    factors: Floats
    missed: float
    parts: list[Point]


class ChargedPasses(PassedRows):
    """Assignments and centers of rows that are read in passes, under rules on costs of groups.

    The steps are those of `ChargedRows`: prices of groups multiply costs, a search by passes finds the
    assignment of least charged cost, and the sums of those found, never their rows, are mixed.

    Parameters
    ----------
    demands : Demands
        What is asked of costs of groups; no arcs are barred.
    duals : array (2, G), optional
        Prices of groups to start from; see `ChargedAnswer`.
    gap : float
        Relative gap of prices of groups.
    *stated, **more
        As of `PassedRows`.
    """

    def __init__(
        self,
        *stated: Any,
        demands: Demands,
        duals: Floats | None = None,
        gap: float = 1e-6,
        **more: Any,
    ) -> None:
        super().__init__(*stated, **more)
        self.demands, self.duals, self.gap = demands, duals, gap
        self.tolerance = min(self.tolerance, 0.4 * gap)
        self.kept, self.trail = None, PriceTrail(self.program)

    def begun(
        self, centers: Floats, tol: float, max_iter: int, left: float = np.inf
    ) -> SmoothedStart | None:
        """Return None: no soft passes lead anywhere where costs of groups have prices."""
        return None

    def assign(
        self,
        centers: Floats,
        before: Assigned[Any] | None,
        left: float,
        *,
        brief: bool = True,
    ) -> Assigned[Any] | None:
        """Return the optimal assignment at given centers, from the prices and sums before."""
        # the first assignment is made whatever the limit
        deadline = np.inf if before is None else time.perf_counter() + left
        known: ChargedSums | None = None if before is None else before.answer
        prices = self.prices if known is None else known.prices
        shares, status = self.program.shares, "optimal"

        def assigned(factors: Floats) -> tuple[float, Point]:
            nonlocal prices, status
            search = PassedSearch(self, centers, deadline, brief=brief, factors=factors)
            near = self.trail.at(factors)
            ended = search.assign(prices if near is None else near)
            if ended is None:
                raise _Unfinished
            if ended.status == "interrupted" and before is not None:
                raise KeyboardInterrupt
            prices = ended.prices
            self.trail.add(factors, prices)
            if ended.status in ("time_limit", "interrupted"):
                status = ended.status
            return ended.bound, Point(ended.paid / shares, ended.rest, ended)

        start = []
        if known is not None and before is not None:
            # all that the mixture before was made of, at what it costs now
            for p in known.parts:
                costs = self._moments(p.held, before.centers).costs_at(centers)
                start.append(Point(costs, p.rest, replace(p.held, paid=shares * costs)))
        try:
            mixture = weighed(
                assigned,
                start,
                shares,
                self.demands,
                self.duals if known is None else known.duals,
                # the last bound is that of a problem whose budgets hold
                overdraft=OVERDRAFT if brief else HARD_OVERDRAFT,
                tolerance=self.gap if brief else max(LAST * self.gap, 4.0 * self.tolerance),
                deadline=deadline,
                above=before.objective if brief and before is not None else -np.inf,
            )
        except _Unfinished:
            if before is not None:
                return None
            raise SolverFailure(
                "no assignment was found in the passes made",
                f"{self.passes} passes",
                "give other centers, or fit a sample in memory to see why",
            ) from None
        gap = max(0.0, mixture.value - mixture.bound) / max(self.unit, abs(mixture.value))
        return Assigned(mixture.value, gap, status, centers, self._mixed(mixture))

    def _mixed(self, mixture: ChargedAnswer) -> ChargedSums:
        shares, worst = self.program.shares, self.demands.worst

        def mixed(of: Any) -> Any:
            return sum(v * of(p) for v, p in mixture.parts)

        paid, rest = shares * mixed(lambda p: p.costs), float(mixed(lambda p: p.rest))
        own = {
            "masses": mixed(lambda p: p.held.masses),
            "sums": mixed(lambda p: p.held.sums),
            "paid": paid,
            "rest": rest,
            "objective": float((paid / shares).max() if worst else paid.sum()) + rest,
            "bound": mixture.bound,
        }
        factors = factors_of(mixture.duals, shares, worst)
        return ChargedSums(
            **{**_fields(mixture.held), **own},
            duals=mixture.duals,
            factors=factors,
            missed=mixture.missed,
            parts=[p for _, p in mixture.parts],
        )

    def _moments(self, sums: PassedAssignment, centers: Floats) -> GroupMoments:
        """Return the sums as what groups cost at any centers; they were made at those given."""
        (G, K), shares = sums.masses.shape, self.program.shares
        by_group = sums.sums.reshape(G, K, -1)
        return GroupMoments(sums.masses, by_group, sums.paid / shares, centers, shares)

    def move(self, step: Assigned[Any]) -> tuple[Floats, list[int]]:
        """Return the centers of least objective for an assignment; no cluster gets a new one."""
        known: ChargedSums = step.answer
        moments = self._moments(known, step.centers)
        return moments.best_centers(self.demands, known.rest, known.duals, OVERDRAFT), []


class _Unfinished(Exception):
    """Time was up before a search had an assignment."""


def _fields(sums: PassedAssignment) -> dict[str, Any]:
    """Return the fields of sums."""
    return {name: getattr(sums, name) for name in PassedAssignment.__dataclass_fields__}
