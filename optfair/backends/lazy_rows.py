"""Route of the structure ``many-rows``: a few of them, generated, with the certificate of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from cvxpy.constraints import SOC, Equality, Inequality, NonNeg, NonPos, Zero

from optfair.backends.cone_program import solve_form
from optfair.backends.farkas import proved_infeasible
from optfair.backends.isolation import round_progress
from optfair.backends.registry import claimed_infeasible, conic_interface
from optfair.backends.request import Outcome, Request, SolverProfile, stages
from optfair.compile.conic_proof import form_check
from optfair.compile.form import Compiled, compile_problem
from optfair.core.canonical import built
from optfair.core.certificate import DualCheck, drift
from optfair.core.expressions import Values
from optfair.core.solution import LazyValues
from optfair.core.term import ConstraintTerm
from optfair.errors import Infeasible, OptfairError, UnsupportedProblem
from optfair.numbers import Floats, Indices
from optfair.solution.conic_form import ConicForm, scale_of

if TYPE_CHECKING:
    from optfair.core.problem import Problem


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of one term.

    Attributes
    ----------
    term : str
        Name of the term.
    rows : array (k,)
        Which of its rows.
    """

    term: str
    rows: Indices


@dataclass(frozen=True, eq=False)
class RowMultipliers:
    """Multipliers of a term of many rows, of which most are 0.

    Attributes
    ----------
    rows : array (k,)
        Rows that may have one.
    lines : array (k, width)
        A number per row for an inequality, the entries of the dual cone for a cone.
    """

    rows: Indices
    lines: Floats

    @property
    def size(self) -> Floats:
        """Size of the multiplier of each row."""
        return np.asarray(np.abs(self.lines).max(axis=1))

    def dense(self, count: int, shape: tuple[int, ...]) -> Floats:
        """Return the multipliers of all rows, in the shape of the term."""
        full = np.zeros((count, self.lines.shape[1]))
        full[self.rows] = self.lines
        return full.reshape(shape) if full.size == int(np.prod(shape)) else full.ravel()


@dataclass(frozen=True, eq=False)
class RelaxedPoint:
    """Where the solver of the relaxation ended; it does not change when rows are added later.

    Attributes
    ----------
    status : str
        Of the cone program.
    compiled : Compiled
        The cone program.
    blocks : dict
        Term of the relaxation -> the rows of a long term that it is.
    x, z : arrays
        Primal and dual point, or a Farkas vector z.
    """

    status: str
    compiled: Compiled
    blocks: Mapping[str, Block]
    x: Floats
    z: Floats

    @property
    def form(self) -> ConicForm:
        """The cone program in arrays."""
        return self.compiled.form

    @cached_property
    def values(self) -> dict[str, Floats]:
        """Values of the declared variables."""
        return self.compiled.values(self.x)

    @cached_property
    def _multipliers(self) -> dict[str, Floats]:
        return self.compiled.multipliers(self.z)

    @cached_property
    def short(self) -> dict[str, Floats]:
        """Multipliers of the terms that are there as a whole."""
        return {k: y for k, y in self._multipliers.items() if k not in self.blocks}

    @cached_property
    def long(self) -> dict[str, RowMultipliers]:
        """Multipliers of the rows at hand, by term."""
        names = dict.fromkeys(block.term for block in self.blocks.values())
        return {name: self._of(name) for name in names}

    def _of(self, term: str) -> RowMultipliers:
        own = {key: block for key, block in self.blocks.items() if block.term == term}
        lines = [self._multipliers[key].reshape(b.rows.size, -1) for key, b in own.items()]
        return RowMultipliers(np.concatenate([b.rows for b in own.values()]), np.concatenate(lines))


# Constraints whose multipliers CVXPY lists row after row.
ROW_BY_ROW = (Equality, Inequality, NonNeg, NonPos, SOC, Zero)


# How many times its unit the largest coefficient of an objective may be.
BESIDE = 10.0


class Relaxation:
    """The terms that are short, and some rows of those that are long.

    Rows are terms of their own, which are turned into matrices once, when they come.

    Parameters
    ----------
    problem : Problem
        Whose terms with ``rows`` are generated.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.long: dict[str, ConstraintTerm] = {
            name: t for name, t in problem.constraints.items() if t.rows is not None
        }
        self._short = {name: t for name, t in problem.constraints.items() if t.rows is None}
        zero = {name: np.zeros(v.shape) for name, v in problem.variables.items()}
        self.counts = {name: int(np.size(t.violation(zero))) for name, t in self.long.items()}
        self.blocks: dict[str, Block] = {}
        self._terms: dict[str, ConstraintTerm] = {}
        self._compiled: Compiled | None = None
        #: columns of the short terms: the freedom that rows can take away
        self.width = self.compiled.form.q.size

    def clear(self) -> None:
        """Take all rows of the long terms out."""
        self.blocks, self._terms, self._compiled = {}, {}, None

    def missing(self, term: str) -> Indices:
        """Return the rows of a term that are not here."""
        absent = np.ones(self.counts[term], dtype=bool)
        for block in self.blocks.values():
            if block.term == term:
                absent[block.rows] = False
        return np.flatnonzero(absent)

    @property
    def complete(self) -> bool:
        """Whether all rows are here."""
        return sum(block.rows.size for block in self.blocks.values()) == sum(self.counts.values())

    def add(self, term: str, rows: Indices) -> None:
        """Append rows of a term."""
        build = self.long[term].rows
        if build is None or not rows.size:
            return
        key = f"{term} rows {len(self.blocks)}"
        some = replace(self.long[term], name=key, build=lambda: build(rows), rows=None)
        if not isinstance(built(some), ROW_BY_ROW):
            raise UnsupportedProblem(
                f"{term!r} is a cone whose multipliers are not listed row by row",
                remedy="name a solver, it gets the whole problem",
            )
        self.blocks[key], self._terms[key] = Block(term, rows), some
        self._compiled = None

    @property
    def compiled(self) -> Compiled:
        """The program as it stands."""
        if self._compiled is None:
            terms = {**self._short, **self._terms}
            whole = self.problem.with_terms(self.problem.objective, terms)
            self._compiled = compile_problem(whole, conic_interface())
        return self._compiled

    @cached_property
    def _unit(self) -> float:
        """A power of two that brings the largest coefficient of the objective near 1.

        Where the objective itself is small beside it, as it is in small units, solvers would stop
        too early: then it brings its unit near 1.
        """
        sizes = np.abs(np.concatenate([self.compiled.form.q, self.compiled.form.P.data]))
        largest = min(float(sizes.max(initial=0.0)), BESIDE * self.problem.objective_unit)
        return scale_of(largest) if largest > 0.0 else 1.0

    def solve(self, tolerance: float, time_limit: float) -> RelaxedPoint:
        """Solve it as it stands."""
        form = self.compiled.form
        raw = solve_form(
            form,
            self._unit,
            tolerance=tolerance,
            time_limit=time_limit,
            scattered=all(cone.kind != "psd" for cone in form.cones),
        )
        return RelaxedPoint(raw.status, self.compiled, dict(self.blocks), raw.x, raw.z)


# Halvings of the segment, and what counts as feasible.
HALVINGS, FEASIBLE = 40, 1e-9


def repaired(problem: Problem, outside: Values | None = None) -> dict[str, Any] | None:
    """Return the last feasible point on the way from a feasible one to the point given.

    The feasible set is convex, so the way leaves it once. A model that knows a feasible point of
    its own terms has a method ``feasible_point``; None when there is none, or when further
    constraints exclude it. Without a point to go to it stays at the feasible one.
    """
    known = getattr(problem, "feasible_point", None)
    inside: Values | None = None if known is None else known()
    if inside is None or _violation(problem, inside) > FEASIBLE:
        return None
    if outside is None:
        return {k: np.array(v) for k, v in inside.items()}

    def at(share: float) -> dict[str, Any]:
        return {k: inside[k] + share * (np.asarray(outside[k]) - inside[k]) for k in outside}

    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if _violation(problem, at(middle)) <= FEASIBLE:
            low = middle
        else:
            high = middle
    return at(low)


def _violation(problem: Problem, values: Values) -> float:
    return max((t.relative_violation(values) for t in problem.constraints.values()), default=0.0)


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
        off = term.row_violations(point.values)
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
    for name, multipliers in point.long.items():
        relaxation.add(name, multipliers.rows[multipliers.size > INACTIVE * multipliers.size.max()])


def _shown(entry: RowRound) -> str:
    return f"{entry.rows} rows, bound {entry.bound:.10g}, worst violation {entry.violation:.1e}"


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
    if point is None:  # stopped before the first point: what the model knows is the incumbent
        seconds = stages(begin, compiled_at, solved_at)
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
    seconds = stages(begin, compiled_at, solved_at)
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
    less = after.unpaid is None or after.unpaid.near < before.unpaid.near
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
    owned: dict[str, list[Indices]] = {}
    for name in point.compiled.constraints:
        block = point.blocks.get(name)
        owned.setdefault(name if block is None else block.term, []).append(
            point.compiled.rows(name)
        )
    rows = {name: np.concatenate(own) for name, own in owned.items()}
    proof = proved_infeasible(point.form, point.z, rows)
    if proof is None:
        return claimed_infeasible(problem, profile.name)
    how = "a Farkas certificate over some of their rows, verified on the compiled data"
    return Infeasible.of(proof, proof.conflict, f"{how} {proof.limits}".strip())


@dataclass(frozen=True, eq=False)
class LazyRowsProof:
    """Bound from a relaxation with some of the rows: it holds for all of them.

    The multipliers of the rows that are not there are 0. That the values satisfy those rows is
    no matter of the bound; residuals of the declared terms, over all rows, show it.
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

    def _later(self, name: str, held: RowMultipliers | None) -> Any:
        shape = self.problem.constraints[name].shape

        def written() -> Floats:
            y = np.zeros(shape) if held is None else held.dense(self.counts[name], shape)
            y.flags.writeable = False
            return y

        return written

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound and the residuals of the relaxation, and compare the names."""
        point = self.point
        apart = drift(values, self.values)
        if multipliers is not self.own:  # those are read-only, and derived from z
            apart = max(apart, drift(multipliers, {**point.short, **self.multipliers()}))
        known = form_check(point.form, point.x, point.z, apart)
        worst = known.rows
        for term in (self.problem.constraints[n] for n in self.counts):
            if np.size(term.scale) > 1:  # rows in units of their own
                worst = max(worst, float(term.row_violations(values).max(initial=0.0)))
        return replace(known, rows=worst)
