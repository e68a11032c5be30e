"""Generate rows: solve with those at hand, add the most violated, until none is violated."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from optfair.backends.rows.point import RelaxedPoint
from optfair.backends.rows.relaxation import Relaxation

Indices = NDArray[np.intp]

__all__ = ["Generated", "RowRound", "generate_rows"]

# The least that a round may add to a term, and the share of the columns it may add.
FEW, SHARE = 64, 0.05
# The rows at hand may grow by this factor in a round.
GROWTH = 1.0
# How tightly a round is solved as long as rows are violated by more than LOOSE_ROWS.
LOOSE, LOOSE_ROWS = 1e-7, 1e-6
# A curved term gets all its rows at once when this share of them is violated to begin with, and
# they are at most so many for each column of the short terms.
MOST, DENSE = 0.5, 2.0
ROUNDS = 100
# Between loose rounds, rows with a multiplier below this share of the largest are taken out, as
# long as the bound rises by this share of it.
INACTIVE, RISE = 1e-4, 1e-6


@dataclass(frozen=True)
class RowRound:
    """One round.

    Attributes
    ----------
    rows : int
        Rows at hand, of all long terms.
    added : int
        Violated rows that were added after it.
    bound : float
        Optimum of the relaxation.
    violation : float
        Largest relative violation over all rows.
    """

    rows: int
    added: int
    bound: float
    violation: float


@dataclass(eq=False)
class Generated:
    """What the rounds left.

    Attributes
    ----------
    status : str
        "optimal" when no row is violated, else why it ended before.
    point : RelaxedPoint or None
        The last point, a Farkas vector when the rows at hand exclude each other.
    history : list of RowRound
    """

    status: str
    point: RelaxedPoint | None = None
    history: list[RowRound] = field(default_factory=list)


def generate_rows(
    relaxation: Relaxation,
    *,
    start: Mapping[str, Indices],
    feasibility: float,
    tolerance: float,
    deadline: float,
    report: Callable[[RowRound], None] | None = None,
) -> Generated:
    """Solve the relaxation with more and more rows until the others hold.

    Rounds are solved loosely until nothing is violated by much, the last ones tightly. Rows that
    are not active are taken out while the bound rises, and never after, so it ends: at worst
    with all of them. A curved term most of whose rows are violated at first gets all of them at
    once where they are not many more than the columns: then most of them matter, and rounds
    would only cost time.

    Parameters
    ----------
    relaxation : Relaxation
        It grows.
    start : mapping
        Rows to begin with, by term.
    feasibility : float
        Largest relative violation of a row that is let pass.
    tolerance : float
        Of the last cone programs.
    deadline : float
        ``time.perf_counter()`` after which to stop.
    report : callable, optional
        Gets every round as it ends.

    Returns
    -------
    Generated
        "infeasible" with a Farkas vector when the rows at hand already exclude each other.
    """
    for name, rows in start.items():
        relaxation.add(name, rows)
    done = Generated("stalled")
    loose, highest = True, -float(np.finfo(float).max)
    try:
        for _ in range(ROUNDS):
            left = deadline - time.perf_counter()
            if left <= 0.0:
                done.status = "time_limit"
                break
            point = relaxation.solve(max(LOOSE, tolerance) if loose else tolerance, left)
            if point.status == "unbounded" and _spread(relaxation):
                continue
            if point.status == "infeasible" and loose:
                loose = False
                continue
            if point.status != "optimal":
                late = time.perf_counter() >= deadline
                done.status = "time_limit" if late else point.status
                done.point = point if point.status == "infeasible" else done.point
                break
            done.point = point
            limit = max(LOOSE_ROWS, feasibility) if loose else feasibility
            bound = point.form.dual_objective(point.x, point.z)
            rise = RISE * max(abs(highest), relaxation.problem.objective_unit)
            if loose and not relaxation.complete and bound > highest + rise:
                highest = bound
                _purge(relaxation, point)
            worst, added = _add_violated(relaxation, point, limit)
            here = sum(block.rows.size for block in point.blocks.values())
            done.history.append(RowRound(here, added, point.form.sign * bound, worst))
            if report is not None:
                report(done.history[-1])
            if not added and not loose:
                done.status = "optimal"
                break
            loose = loose and added > 0 and not relaxation.complete
    except KeyboardInterrupt:  # a point does not change when rows are added, so the last stands
        done.status = "interrupted"
    return done


def _add_violated(
    relaxation: Relaxation, point: RelaxedPoint, feasibility: float
) -> tuple[float, int]:
    """Add the most violated rows; return the largest violation and how many rows were added."""
    worst, added = 0.0, 0
    chosen: dict[str, Indices] = {}
    for name, term in relaxation.long.items():
        off = np.ravel(np.asarray(term.violation(point.values), dtype=float)) / (
            1.0 + term.largest_side
        )
        worst = max(worst, float(off.max(initial=0.0)))
        lacking = relaxation.missing(name)
        violated = lacking[off[lacking] > feasibility]
        if not violated.size:
            continue
        crowded = (
            term.evidence.problem_class.cones  # linear rows cost next to nothing to leave out
            and violated.size > MOST * off.size
            and off.size <= DENSE * relaxation.width
        )
        room = max(FEW, int(SHARE * relaxation.width), int(GROWTH * (off.size - lacking.size)))
        if crowded:
            chosen[name] = lacking
        elif violated.size > room:
            top = np.argpartition(off[violated], -room)[-room:]
            chosen[name] = np.sort(violated[top])
        else:
            chosen[name] = violated
    for name, rows in chosen.items():
        relaxation.add(name, rows)
        added += rows.size
    return worst, added


def _spread(relaxation: Relaxation) -> bool:
    """Add as many rows again, evenly spread; whether there were any."""
    grown = False
    for name, count in relaxation.counts.items():
        lacking = relaxation.missing(name)
        if lacking.size:
            some = min(lacking.size, max(FEW, count - lacking.size))
            at = np.linspace(0, lacking.size - 1, some).astype(np.intp)
            relaxation.add(name, lacking[np.unique(at)])
            grown = True
    return grown


def _purge(relaxation: Relaxation, point: RelaxedPoint) -> None:
    """Take the rows out that are not active."""
    relaxation.clear()
    for name, found in point.long.items():
        relaxation.add(name, found.rows[found.size > INACTIVE * found.size.max()])
