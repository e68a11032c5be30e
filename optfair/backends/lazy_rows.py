"""Route of the structure ``many-rows``: a few of them, generated, with the certificate of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.farkas import carriers, claimed_infeasible, proved_infeasible
from optfair.backends.request import Outcome, Request
from optfair.backends.row_relaxation import Relaxation, RelaxedPoint, RowMultipliers, repaired
from optfair.backends.terminal import round_progress
from optfair.compile.conic_proof import form_check
from optfair.core.certificate import DualCheck, drift
from optfair.core.expressions import Values
from optfair.core.solution import LazyValues
from optfair.errors import Infeasible, OptfairError
from optfair.numbers import Floats, Indices

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

# Generate rows: solve with those at hand, add the most violated, until none is violated.

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


def _shown(entry: RowRound) -> str:
    return f"{entry.rows} rows, bound {entry.bound:.10g}, worst violation {entry.violation:.1e}"


# Route of the structure ``many-rows``: a few of them, generated, with the certificate of all.

# How tightly the last cone programs are solved; our residuals decide what came of it.
TIGHT, TIGHTEST = 1e-10, 1e-12
# A multiplier below this share of the largest counts as zero.
RESTING = 1e-6
# Rows outside by less than this, relative to the size of their right-hand sides, are let pass.
OUTSIDE = 1e-9


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Generate the rows that matter, and check the others."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    relaxation = Relaxation(problem)
    counts = relaxation.counts
    compiled_at = time.perf_counter()
    with round_progress(request.verbose, "lazy rows", "first rows", _shown) as report:
        result = generate_rows(
            relaxation,
            start={name: _first(name, count, request) for name, count in counts.items()},
            feasibility=min(OUTSIDE, 0.1 * request.tolerance),
            tolerance=max(TIGHTEST, min(TIGHT, 0.01 * request.tolerance)),
            deadline=request.deadline,
            report=report,
        )
    solved_at = time.perf_counter()
    point = result.point
    if point is not None and result.status == "optimal":
        point = _settled(relaxation, point, request.deadline)
        solved_at = time.perf_counter()
    seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at}
    if point is None:  # stopped before the first point: what the model knows is the incumbent
        return Outcome(result.status, repaired(problem) or {}, {}, None, seconds)
    if result.status == "infeasible":
        raise _infeasible(problem, profile, point)
    values: Values = point.values
    if result.status != "optimal":  # it satisfies the rows at hand only
        values = repaired(problem, values) or values
    for array in values.values():
        array.flags.writeable = False
    proof = LazyRowsProof(problem, point, values, counts)
    multipliers = proof.multipliers()
    object.__setattr__(proof, "own", multipliers)
    seconds["recover"] = time.perf_counter() - solved_at
    return Outcome(result.status, values, multipliers, proof, seconds, tuple(result.history))


def _settled(relaxation: Relaxation, point: RelaxedPoint, deadline: float) -> RelaxedPoint:
    """Solve the last relaxation as tightly as can be where columns are left unpaid.

    How far such a proof reaches is what is left over in these columns; the point that leaves
    less is kept, as long as it is feasible as well.
    """
    left = deadline - time.perf_counter()
    before = point.form.residuals(point.x, point.z)
    if before.unpaid is None or left <= 0.0:
        return point
    try:
        again = relaxation.solve(TIGHTEST, left)
    except KeyboardInterrupt:
        return point
    if again.status != "optimal":
        return point
    after = again.form.residuals(again.x, again.z)
    worse = after.primal > max(OUTSIDE, before.primal) or after.gap > max(OUTSIDE, before.gap)
    less = after.unpaid is None or after.unpaid.slope < before.unpaid.slope
    return again if less and not worse else point


def _first(name: str, count: int, request: Request) -> Indices:
    """Return the rows to begin with: those active in an earlier solution."""
    none = np.zeros(0, dtype=np.intp)
    earlier = request.warm_start
    if earlier is None or not isinstance(earlier.proof, LazyRowsProof):
        return none
    known = earlier.proof.point.long.get(name)
    if known is None or earlier.proof.counts.get(name) != count:
        return none
    return np.sort(known.rows[known.size > RESTING * known.size.max()])


def _infeasible(problem: Problem, profile: SolverProfile, point: RelaxedPoint) -> OptfairError:
    def conflict(z: Floats) -> tuple[str, ...]:
        there = replace(point, z=z)
        return carriers({**there.short, **{name: m.size for name, m in there.long.items()}})

    proof = proved_infeasible(point.form, point.z, conflict)
    if proof is None:
        return claimed_infeasible(problem, profile.name)
    names = proof.conflict
    return Infeasible(
        f"these constraints exclude each other: {', '.join(map(repr, names))}",
        "a Farkas certificate over some of their rows, verified on the compiled data",
        "remove or soften one of them" if names else "",
        certificate=proof,
        conflict=names,
    )


@dataclass(frozen=True, eq=False)
class LazyRowsProof:
    """Bound from a relaxation with some of the rows: it holds for all of them.

    The multipliers of the rows that are not there are 0. That the values satisfy those rows is
    no matter of the bound; the residuals of the declared terms, over all rows, show it.
    """

    problem: Problem
    point: RelaxedPoint
    values: Values
    counts: Mapping[str, int]
    own: Any = None
    source: str = "duality"

    def multipliers(self) -> LazyValues:
        """Return the multipliers by name, those of long terms written out when first read."""
        entries: dict[str, Any] = dict(self.point.short)
        for name in self.counts:
            entries[name] = self._later(name, self.point.long.get(name))
        return LazyValues(entries)

    def _later(self, name: str, found: RowMultipliers | None) -> Any:
        shape = self.problem.constraints[name].shape

        def written() -> Floats:
            y = np.zeros(shape) if found is None else found.dense(self.counts[name], shape)
            y.flags.writeable = False
            return y

        return written

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound and the residuals of the relaxation, and compare the names."""
        point = self.point
        apart = drift(values, self.values)
        if multipliers is not self.own:  # those are read-only, and derived from z
            apart = max(apart, drift(multipliers, {**point.short, **self.multipliers()}))
        return form_check(point.form, point.x, point.z, apart)
