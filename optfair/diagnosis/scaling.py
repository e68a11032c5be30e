"""Scaling: the range of the numbers a solver sees, by named term and variable."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.backends.policy import conic_interface
from optfair.compile.form import compile_problem
from optfair.core.certificate import Certificate, Verdict
from optfair.diagnosis.clock import Clock
from optfair.diagnosis.coefficients import (
    Range,
    balanced_range,
    column_ranges,
    extreme_entries,
    repeated_rows,
    term_ranges,
    widest_rows,
)
from optfair.errors import OptfairError
from optfair.transforms.relax_integrality import relaxed

if TYPE_CHECKING:
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["Scaling", "measure_scaling"]

# Double precision carries 16 digits and solvers ask for 7 to 9 of them: what is left for scale.
WIDE = 1e8
# Scalars above which nothing is compiled for the report.
LARGEST = 500_000


@dataclass(frozen=True, eq=False, repr=False)
class Scaling(Certificate):
    """Coefficients, right-hand sides and costs as they reach a solver.

    Attributes
    ----------
    problem : Problem
        What was measured.
    terms, sides : dict
        Range of the coefficients and of the right-hand side of each constraint.
    columns : dict
        Range of the coefficients of each variable over all constraints.
    objective : Range
        Linear and quadratic coefficients of the objective.
    matrix : Range
        All coefficients.
    rows : tuple of (str, int, Range)
        Rows with the widest range: constraint, row of its compiled form, range.
    entries : tuple of (str, Range)
        Entries of variables with the largest and the smallest coefficients.
    balanced : float
        Largest over smallest coefficient that is left after the best scaling of rows and
        columns found: what a change of units cannot remove.
    copies : tuple of (str, str)
        Linear rows that repeat another one, up to a factor.
    unused, free : tuple of str
        Variables in no term; variables in the objective alone.
    """

    problem: Problem
    terms: dict[str, Range]
    sides: dict[str, Range]
    columns: dict[str, Range]
    objective: Range
    matrix: Range
    rows: tuple[tuple[str, int, Range], ...]
    entries: tuple[tuple[str, Range], ...]
    balanced: float
    copies: tuple[tuple[str, str], ...]
    unused: tuple[str, ...]
    free: tuple[str, ...]

    def verify(self) -> Verdict:
        """Measure again and compare."""
        again = measure_scaling(self.problem, Clock())
        if again is None:
            return Verdict(False, ("the problem cannot be compiled any more",))
        mine, theirs = self.to_dict(), again.to_dict()
        reasons = [f"{k} is not as stated" for k in theirs if mine[k] != theirs[k]]
        return Verdict(not reasons, tuple(reasons))

    @cached_property
    def faults(self) -> tuple[str, ...]:
        """What is out of proportion, worst first within each kind."""
        found = []
        if self.matrix.ratio > WIDE:
            found.append(f"the coefficients range over {self.matrix}")
        if self.objective.ratio > WIDE:
            found.append(f"the coefficients of the objective range over {self.objective}")
        rhs = Range.of([v for r in self.sides.values() for v in (r.smallest, r.largest)])
        if rhs.ratio > WIDE:
            found.append(f"the right-hand sides range over {rhs}")
        extremes = {"coefficient": self.matrix, "right-hand side": rhs, "cost": self.objective}
        found += [
            f"the largest {what} is {r.largest:.1e}"
            for what, r in extremes.items()
            if r.largest > WIDE
        ]
        found += [
            f"the largest {what} is {r.largest:.1e}: less than solvers resolve"
            for what, r in extremes.items()
            if 0.0 < r.largest < 1.0 / WIDE
        ]
        return tuple(found)

    @property
    def worst_terms(self) -> tuple[str, ...]:
        """Constraint names, the widest range first."""
        return tuple(sorted(self.terms, key=lambda k: -self.terms[k].ratio))

    @property
    def suggestions(self) -> tuple[str, ...]:
        """Units in which the numbers would be near 1."""
        found = []
        for name, r in self.columns.items():
            power = _power(r)
            if abs(power) >= 3:
                found.append(f"measure {name!r} in units of 1e{-power:+d}".replace("+", ""))
        for name, r in self.terms.items():
            power = _power(r)
            if abs(power) >= 3 and r.ratio <= WIDE:
                found.append(f"divide {name!r} by 1e{power:+d}".replace("+", ""))
        power = _power(self.objective)
        if abs(power) >= 4:
            found.append(f"divide the objective by 1e{power:+d}".replace("+", ""))
        if self.matrix.ratio > WIDE:
            kind = "units explain the range" if self.balanced <= 1e4 else "units alone do not help"
            found.append(
                f"{kind}: after scaling rows and columns {self.balanced:.1e} is left of it"
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, ready for JSON."""

        def plain(ranges: dict[str, Range]) -> dict[str, list[float]]:
            return {k: [r.smallest, r.largest] for k, r in ranges.items()}

        return {
            "coefficients": [self.matrix.smallest, self.matrix.largest],
            "objective": [self.objective.smallest, self.objective.largest],
            "terms": plain(self.terms),
            "right_hand_sides": plain(self.sides),
            "variables": plain(self.columns),
            "rows": [[name, i, r.smallest, r.largest] for name, i, r in self.rows],
            "entries": {name: r.largest for name, r in self.entries},
            "balanced": self.balanced,
            "copies": [list(pair) for pair in self.copies],
            "unused": list(self.unused),
            "free": list(self.free),
        }

    def __str__(self) -> str:
        return f"coefficients {self.matrix}, objective {self.objective}"

    __repr__ = __str__


def measure_scaling(problem: Problem, clock: Clock) -> Scaling | None:
    """Return the scaling of a problem, None when it is too large or cannot be compiled.

    Auxiliary rows of a constraint count as its own.
    """
    if sum(v.size for v in problem.variables.values()) > LARGEST or clock.stopped:
        return None
    used = {name for t in problem.terms for name in t.scope}
    bound = {name for t in problem.constraints.values() for name in t.scope}
    compiled, costs = _compiled(relaxed(problem))
    ranges = {} if compiled is None else term_ranges(compiled)
    return Scaling(
        problem,
        {name: coefficients for name, (coefficients, _) in ranges.items()},
        {name: sides for name, (_, sides) in ranges.items()},
        {} if compiled is None else column_ranges(compiled),
        Range.of(costs),
        Range.of([v for r, _ in ranges.values() for v in (r.smallest, r.largest)]),
        () if compiled is None else widest_rows(compiled),
        () if compiled is None else extreme_entries(compiled),
        1.0 if compiled is None else balanced_range(compiled.form.A),
        () if compiled is None else repeated_rows(compiled),
        tuple(name for name in problem.variables if name not in used),
        tuple(name for name in problem.variables if name in used and name not in bound),
    )


def _compiled(problem: Problem) -> tuple[Compiled | None, Floats]:
    """Return the constraints that can be compiled, together, and the coefficients of the cost."""
    interface = conic_interface()
    costs = np.zeros(0)
    if all(t.evidence.problem_class.convex for t in problem.objective.values()):
        try:
            form = compile_problem(problem.with_terms(problem.objective, {}), interface).form
            costs = np.concatenate([form.q, form.P.data])
        except OptfairError:
            pass
    convex = {
        name: t
        for name, t in problem.constraints.items()
        if t.scope and t.evidence.problem_class.convex
    }
    try:
        return compile_problem(problem.with_terms({}, convex), interface), costs
    except OptfairError:
        able = {name: t for name, t in convex.items() if _compiles(problem, name, interface)}
        if not able:
            return None, costs
        return compile_problem(problem.with_terms({}, able), interface), costs


def _compiles(problem: Problem, name: str, interface: str) -> bool:
    try:
        compile_problem(problem.with_terms({}, {name: problem.constraints[name]}), interface)
    except OptfairError:
        return False
    return True


def _power(r: Range) -> int:
    """Return the power of ten of the middle of a range."""
    return int(np.round(np.log10(np.sqrt(r.smallest * r.largest)))) if r.largest > 0.0 else 0
