"""Swap moves between clusterings: a cluster that is missed least is opened again elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.descent import Descent
from optfair.methods.fair_clustering.assignment import FairAssignment

Floats = NDArray[np.float64]

# Assignments after a swap before it is judged; clusters among which the one to close is drawn.
TRIAL, CLOSED = 8, 3
# Rows that regrets are estimated from, and places to open are drawn from.
LOOKED_AT = 20_000


def swapped(
    problem: FairAssignment,
    first: Descent[Any],
    onwards: Callable[[Floats, Floats, int | None], Descent[Any]],
    *,
    seed: int,
    budget: int,
    deadline: float,
) -> Descent[Any]:
    """Improve a clustering by swaps until a budget of assignments, or time, is spent.

    Parameters
    ----------
    problem : FairAssignment
        Rows, groups and weights.
    first : Descent
        Where the search starts.
    onwards : callable
        (centers, prices, largest number of assignments or None) -> descent from there.
    seed : int
    budget : int
        Assignments.
    deadline : float
        ``time.perf_counter()`` value.

    Returns
    -------
    Descent
        The best found, run until its own tolerance; never worse than ``first``.
    """
    rng = np.random.default_rng(seed)
    w, groups = problem.data["weights"], problem.data["groups"]
    step = max(1, problem.cost.rows // LOOKED_AT)
    best, polished = first, True
    K = problem.cost.clusters
    while K > 1 and budget > 0 and time.perf_counter() < deadline:
        centers, prices = best.best.centers, best.best.found.prices
        rows = np.arange(int(rng.integers(step)), problem.cost.rows, step)
        far = replace(problem.cost, centers=centers).columns(rows)
        reduced = far + prices[groups[rows]].T
        nearest, at = reduced.argmin(axis=0), np.arange(rows.size)
        paid, low = far[nearest, at], reduced[nearest, at]
        reduced[nearest, at] = np.inf
        regret = np.bincount(nearest, w[rows] * (reduced.min(axis=0) - low), K)
        closed = int(rng.choice(np.argsort(regret)[:CLOSED]))
        chance = w[rows] * paid
        if not chance.sum() > 0.0:
            break
        moved, own = centers.copy(), prices.copy()
        moved[closed] = problem.cost.points[rng.choice(rows, p=chance / chance.sum())]
        own[:, closed] = np.delete(prices, closed, axis=1).mean(axis=1)
        trial = onwards(moved, own, TRIAL)
        budget -= len(trial.history)
        if trial.status == "interrupted":
            break
        if trial.best.objective < best.best.objective:
            best, polished = trial, trial.status == "converged"
    if not polished:
        last = onwards(best.best.centers, best.best.found.prices, None)
        best = last if last.best.objective <= best.best.objective else best
    if best is first:
        return first
    # the search goes on from where the first start ended: its history stays in front
    history = (*first.history, best.best.objective)
    gaps = (*first.gaps, best.best.gap)
    return replace(best, history=history, gaps=gaps, reseeded=first.reseeded)
