"""Scaling: the range of the numbers a solver sees, by named term and variable, and what it could be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.registry import conic_interface
from optfair.compile.form import Compiled, already_compiled, compile_problem
from optfair.core.certificate import Certificate, Verdict
from optfair.diagnosis.report import Clock
from optfair.errors import OptfairError
from optfair.numbers import Floats
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Coefficients of compiled constraints: ranges by variable, entry and row, and repeated rows.

# Range within one row that is shown, and how many rows and entries are.
WIDE_ROW, EXTREMES = 1e4, 3
# Coefficients above which rows are not compared.
MOST_ENTRIES = 100_000
# Rounds of geometric scaling.
ROUNDS = 20


@dataclass(frozen=True)
class Range:
    """Smallest and largest size of nonzero numbers.

    Examples
    --------
    >>> Range.of([0.0, -4.0, 0.5]).ratio
    8.0
    """

    smallest: float
    largest: float

    @classmethod
    def of(cls, numbers: Any) -> Range:
        """Return the range of numbers, (0, 0) when all are zero."""
        sizes = np.abs(np.asarray(numbers, dtype=float)).ravel()
        sizes = sizes[sizes > 0.0]
        return cls(float(sizes.min()), float(sizes.max())) if sizes.size else cls(0.0, 0.0)

    @property
    def ratio(self) -> float:
        """Largest over smallest, 1 without numbers."""
        return self.largest / self.smallest if self.smallest > 0.0 else 1.0

    def __str__(self) -> str:
        return f"{self.smallest:.1e} .. {self.largest:.1e}" if self.largest > 0.0 else "none"


def term_ranges(compiled: Compiled) -> dict[str, tuple[Range, Range]]:
    """Return the ranges of the coefficients and of the right-hand sides of each constraint."""
    owner, names = _owners(compiled)
    A = sp.coo_array(compiled.form.A)
    coefficients = _by_owner(np.abs(A.data), owner[A.row], len(names))
    sides = _by_owner(np.abs(compiled.form.b), owner, len(names))
    return dict(zip(names, zip(coefficients, sides, strict=True), strict=True))


def _owners(compiled: Compiled) -> tuple[NDArray[np.intp], list[str]]:
    """Return the constraint of each row, -1 for a row of the objective, and their names."""
    names = list(compiled.constraints)
    number = {name: k for k, name in enumerate(names)}
    owner = np.full(compiled.form.b.size, -1, dtype=np.intp)
    for o in compiled.owners:
        if o.bound:
            owner[o.start : o.stop] = number[o.term]
    return owner, names


def _by_owner(sizes: Any, owner: NDArray[np.intp], count: int) -> list[Range]:
    """Return the range of positive sizes of each owner."""
    here = (sizes > 0.0) & (owner >= 0)
    low, high = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(low, owner[here], sizes[here])
    np.maximum.at(high, owner[here], sizes[here])
    low = np.where(high > 0.0, low, 0.0)
    return [Range(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def column_ranges(compiled: Compiled) -> dict[str, Range]:
    """Return the range of the coefficients of each variable."""
    A = sp.csc_array(compiled.form.A)
    return {
        name: Range.of(A.data[A.indptr[at.start] : A.indptr[at.stop]])
        for name, at in compiled.form.columns.items()
    }


def extreme_entries(compiled: Compiled) -> tuple[tuple[str, Range], ...]:
    """Return the entries of variables with the largest and the smallest coefficients."""
    largest = np.asarray(abs(sp.csc_array(compiled.form.A)).max(axis=0).toarray()).ravel()
    declared = np.zeros(largest.size, dtype=bool)
    for at in compiled.form.columns.values():
        declared[at] = True
    columns = np.flatnonzero(declared & (largest > 0.0))
    ranked = columns[np.argsort(-largest[columns], kind="stable")]
    if ranked.size > 2 * EXTREMES:
        ranked = np.concatenate([ranked[:EXTREMES], ranked[-EXTREMES:]])
    places, named = compiled.places(), []
    for j in ranked:
        name = next(n for n, at in compiled.form.columns.items() if at.start <= j < at.stop)
        # of a symmetric variable the first of the two entries that share the column
        where = np.argwhere(places[name] == j)[0]
        label = f"{name}[{', '.join(str(int(i)) for i in where)}]" if where.size else name
        named.append((label, Range(float(largest[j]), float(largest[j]))))
    return tuple(named)


def widest_rows(compiled: Compiled) -> tuple[tuple[str, int, Range], ...]:
    """Return the rows with the widest range: term, row within its compiled form, range."""
    A = sp.csr_array(compiled.form.A)
    A.eliminate_zeros()
    owner, names = _owners(compiled)
    filled = np.flatnonzero((np.diff(A.indptr) > 0) & (owner >= 0))
    if not filled.size:
        return ()
    sizes = np.append(np.abs(A.data), 1.0)
    ends = np.column_stack([A.indptr[filled], A.indptr[filled + 1]]).ravel()
    low = np.minimum.reduceat(sizes, ends)[::2]
    high = np.maximum.reduceat(sizes, ends)[::2]
    wide = np.flatnonzero(high > WIDE_ROW * low)
    worst = wide[np.argsort(-(high[wide] / low[wide]), kind="stable")][:EXTREMES]
    widest = []
    for k in worst:
        name = names[owner[filled[k]]]
        row = int(np.searchsorted(compiled.rows(name), filled[k]))
        widest.append((name, row, Range(float(low[k]), float(high[k]))))
    return tuple(widest)


def balanced_range(A: Any) -> float:
    """Return the range of coefficients after geometric scaling of rows and columns."""
    M = sp.coo_array(A)
    keep = M.data != 0.0
    if not keep.any():
        return 1.0
    logs, row, col = np.log(np.abs(M.data[keep])), M.row[keep], M.col[keep]
    in_row = np.maximum(np.bincount(row, minlength=M.shape[0]), 1)
    in_col = np.maximum(np.bincount(col, minlength=M.shape[1]), 1)
    for _ in range(ROUNDS):
        logs = logs - (np.bincount(row, logs, M.shape[0]) / in_row)[row]
        logs = logs - (np.bincount(col, logs, M.shape[1]) / in_col)[col]
    return float(np.exp(min(logs.max() - logs.min(), 700.0)))


def repeated_rows(compiled: Compiled) -> tuple[tuple[str, str], ...]:
    """Return pairs of terms of which one repeats a linear row of the other, up to a factor."""
    A = sp.csr_array(compiled.form.A)
    A.eliminate_zeros()
    if A.nnz > MOST_ENTRIES:
        return ()
    A.sort_indices()
    owner, names = _owners(compiled)
    auxiliary = np.zeros(A.shape[1], dtype=bool)
    for _, start, stop in compiled.auxiliary:
        auxiliary[start:stop] = True
    count = np.diff(A.indptr)
    lead = np.append(A.data, 1.0)[A.indptr[:-1]]
    seen: dict[tuple[Any, ...], int] = {}
    pairs: dict[tuple[str, str], None] = {}
    for cone in compiled.form.cones:
        if cone.kind not in ("zero", "nonneg"):
            continue
        # an inequality keeps its direction, an equality has none
        factor = lead if cone.kind == "zero" else np.abs(lead)
        data = _digits(A.data / np.repeat(factor, count))
        sides = _digits(compiled.form.b / factor)
        for i in range(cone.start, cone.stop):
            at = slice(A.indptr[i], A.indptr[i + 1])
            if owner[i] < 0 or not count[i] or auxiliary[A.indices[at]].any():
                continue
            key = (cone.kind, A.indices[at].tobytes(), data[at].tobytes(), float(sides[i]))
            if key in seen:
                pairs[(names[seen[key]], names[owner[i]])] = None
            seen.setdefault(key, int(owner[i]))
    place = {name: k for k, name in enumerate(names)}
    return tuple(sorted(pairs, key=lambda pair: (place[pair[1]], place[pair[0]])))


def _digits(numbers: Any) -> Any:
    """Round to forty binary digits, -0.0 to 0.0: rows that are scaled differ in the last ones."""
    mantissa, exponent = np.frexp(numbers)
    return np.ldexp(np.round(np.ldexp(mantissa, 40)), exponent - 40) + 0.0


# Scaling: the range of the numbers a solver sees, by named term and variable.

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
    def out_of_proportion(self) -> tuple[str, ...]:
        """What is out of proportion, worst first within each kind."""
        faults = []
        if self.matrix.ratio > WIDE:
            faults.append(f"the coefficients range over {self.matrix}")
        if self.objective.ratio > WIDE:
            faults.append(f"the coefficients of the objective range over {self.objective}")
        rhs = Range.of([v for r in self.sides.values() for v in (r.smallest, r.largest)])
        if rhs.ratio > WIDE:
            faults.append(f"the right-hand sides range over {rhs}")
        extremes = {"coefficient": self.matrix, "right-hand side": rhs, "cost": self.objective}
        faults += [
            f"the largest {what} is {r.largest:.1e}"
            for what, r in extremes.items()
            if r.largest > WIDE
        ]
        faults += [
            f"the largest {what} is {r.largest:.1e}: less than solvers resolve"
            for what, r in extremes.items()
            if 0.0 < r.largest < 1.0 / WIDE
        ]
        return tuple(faults)

    @property
    def worst_terms(self) -> tuple[str, ...]:
        """Constraint names, the widest range first."""
        return tuple(sorted(self.terms, key=lambda k: -self.terms[k].ratio))

    @property
    def suggestions(self) -> tuple[str, ...]:
        """Units in which the numbers would be near 1."""
        advice = []
        for name, r in self.columns.items():
            power = _power(r)
            if abs(power) >= 3:
                advice.append(f"measure {name!r} in units of 1e{-power:+d}".replace("+", ""))
        for name, r in self.terms.items():
            power = _power(r)
            if abs(power) >= 3 and r.ratio <= WIDE:
                advice.append(f"divide {name!r} by 1e{power:+d}".replace("+", ""))
        power = _power(self.objective)
        if abs(power) >= 4:
            advice.append(f"divide the objective by 1e{power:+d}".replace("+", ""))
        if self.matrix.ratio > WIDE:
            kind = "units explain the range" if self.balanced <= 1e4 else "units alone do not help"
            advice.append(
                f"{kind}: after scaling rows and columns {self.balanced:.1e} is left of it"
            )
        return tuple(advice)

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
    known = already_compiled(problem)
    if known is not None and known.form.polyhedral and known.form.A.nnz and not known.auxiliary:
        return known, np.concatenate([known.form.q, known.form.P.data])
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
