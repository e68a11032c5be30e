"""Route of the structure ``many-rows``: a few of them, generated, with the certificate of all."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.backends.farkas import carriers, claimed_infeasible, proved_infeasible
from optfair.backends.request import Outcome, Request
from optfair.backends.structured.rows.generation import generate_rows
from optfair.backends.structured.rows.incumbent import repaired
from optfair.backends.structured.rows.point import RelaxedPoint, RowMultipliers
from optfair.backends.structured.rows.progress import row_progress
from optfair.backends.structured.rows.relaxation import Relaxation
from optfair.compile.conic_proof import form_check
from optfair.core.certificate import DualCheck, drift
from optfair.core.expressions import Values
from optfair.core.solution import LazyValues
from optfair.errors import Infeasible, OptfairError

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["LazyRowsProof", "run"]

# How tightly the last cone programs are solved; our residuals decide what came of it.
TIGHT, TIGHTEST = 1e-10, 1e-12
# A multiplier below this share of the largest counts as zero.
INACTIVE = 1e-6
# Rows outside by less than this, relative to the size of their right-hand sides, are let pass.
OUTSIDE = 1e-9


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Generate the rows that matter, and check the others."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    relaxation = Relaxation(problem)
    counts = relaxation.counts
    compiled_at = time.perf_counter()
    with row_progress(request.verbose) as report:
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
    return np.sort(known.rows[known.size > INACTIVE * known.size.max()])


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
