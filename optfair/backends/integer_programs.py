"""Integer programs around their solver: the rest of fixed integers, pools of solutions, cuts at each point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.cone_program import solve_cone_program
from optfair.backends.exact import Contradictory, exact_optimum, exact_slack
from optfair.backends.linear_program import solve_form
from optfair.backends.registry import conic_interface
from optfair.backends.request import Outcome, ReportedBound, with_whole
from optfair.compile.form import Compiled, already_compiled, compile_problem
from optfair.core.certificate import Certificate
from optfair.core.labels import free_name
from optfair.core.solution import Solution
from optfair.core.term import family
from optfair.errors import ClassError, Infeasible, SolverFailure, Tabled, data_frame
from optfair.numbers import Floats
from optfair.proofs.bounds import lower_bound
from optfair.proofs.columns import declared_bounds, linear_rows, propagated
from optfair.proofs.cones import Cone
from optfair.proofs.rounding import coordinates
from optfair.solution.column_units import blocks_of
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import violations
from optfair.solution.units import balanced
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.backends.request import Request
    from optfair.core.problem import Problem

# Size from which on, and below whose inverse, a box says nothing of units.
RANGE = 1e100

#: (how it ended, its point, its multipliers)
Solved = tuple[str, Floats | None, Floats | None]
Way = Callable[[ConicForm], Solved]
Units = Callable[[ConicForm], tuple[Floats, Floats] | None]

# Seconds in which fixed integers may show a better point, and beyond the limit one that holds; the
# size of integers from which what a row takes off them may be far off.
SECONDS, GRACE, FAR = 10.0, 1.0, 1_000

# Stops that leave an incumbent, which may or may not obey the cuts.
EARLY = ("time_limit", "solver_limit", "interrupted")

Answer = Callable[[Any], Solution]


# The continuous program that integers leave.


def integer_columns(problem: Problem, compiled: Compiled) -> NDArray[np.int64]:
    """Return the columns of the integer variables."""
    places = compiled.places()
    entries = [np.ravel(places[v]) for v in sorted(problem.integers)]
    columns = np.unique(np.concatenate(entries)) if entries else np.zeros(0, dtype=np.int64)
    return columns[columns >= 0]


def integers_of(problem: Problem, compiled: Compiled, values: Mapping[str, Any]) -> dict[int, int]:
    """Return the integers that values stand for, by column."""
    places, at = compiled.places(), dict[int, int]()
    for name in problem.integers & compiled.variables.keys():
        own = zip(np.ravel(places[name]).tolist(), np.ravel(values[name]).tolist(), strict=True)
        at |= {j: round(v) for j, v in own if j >= 0}
    return at


def put_in(form: ConicForm, fixed: Mapping[int, int]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return a point with these integers and 0 elsewhere, and the columns that they leave."""
    at = np.fromiter(fixed, dtype=np.int64, count=len(fixed))
    x, free = np.zeros(form.q.size), np.ones(form.q.size, dtype=bool)
    x[at], free[at] = [float(v) for v in fixed.values()], False
    return x, free


def left_by(form: ConicForm, fixed: Mapping[int, int]) -> ConicForm:
    """Return the form without fixed columns, whose numbers are taken into sides and costs.

    Sides are rounded once: of a row that a large number times an integer switches, the side that
    is left is as it was declared.
    """
    x, free = put_in(form, fixed)
    used = np.flatnonzero(x)
    own = sp.csr_array(form.columns_of_rows[:, used])
    b = form.b - own @ x[used]
    single = np.ones(b.size) if (abs(x[used]) == 1.0).all() else np.zeros(b.size)
    sums = np.flatnonzero(np.diff(own.indptr) > single)
    added = replace(form, A=own[sums], b=form.b[sums])
    b[sums] = [float(v) for v in exact_slack(added, [Fraction(v) for v in x[used].tolist()])]
    P = sp.csc_array(form.P)
    return replace(
        form,
        P=sp.csc_array(P[free][:, free]),
        q=(form.q + P @ x)[free],
        offset=form.objective(x),
        A=form.columns_of_rows[:, free],
        b=b,
        columns={},
        rooted=(),
    )


def completed(form: ConicForm, fixed: Mapping[int, int]) -> Floats | None:
    """Return a point with these integers and room to the rows that they leave, whatever the costs."""
    rest, (x, free) = left_by(form, fixed), put_in(form, fixed)
    if n := rest.q.size:
        nothing, zeros = sp.csc_array((n, n)), np.zeros(n)
        room = solve_cone_program(nothing, zeros, rest.A, rest.b, rest.cones, tolerance=1e-9)
        if room.status != "optimal" or room.x is None:
            return None
        x[free] = room.x
    return x


def ways_to_solve(form: ConicForm, tolerance: float, deadline: float) -> tuple[Way, ...]:
    """Return how forms like this one are solved: in floats, then in fractions or in other units."""
    floats = partial(_in_floats, tolerance=tolerance, deadline=deadline)
    if form.polyhedral:
        return floats, partial(_in_fractions, deadline=deadline)
    known = partial(balanced, moderate=True), of_box  # a box may be far larger than points are
    ways = (partial(_in_units, units, tolerance=tolerance, deadline=deadline) for units in known)
    return floats, *ways


def _in_floats(form: ConicForm, *, tolerance: float, deadline: float) -> Solved:
    if not form.polyhedral:
        return _conic(form, tolerance, deadline)
    nothing = np.zeros(form.q.size, dtype=bool)
    raw, _ = solve_form(form, nothing, form.cost_scale("typical"), _until(deadline), False)
    return raw.status, raw.x, raw.z


def _conic(form: ConicForm, tolerance: float, deadline: float) -> Solved:
    if form.congruent is None:
        return _as_it_stands(form, tolerance, deadline)
    near, *units = form.congruent
    return _back(_as_it_stands(near, tolerance, deadline), *units)


def _back(solved: Solved, rows: Floats, columns: Floats) -> Solved:
    """Return what came of a form in units of rows and columns, in those it had before."""
    status, x, z = solved
    return status, None if x is None else x * columns, None if z is None else z * rows


def _as_it_stands(form: ConicForm, tolerance: float, deadline: float) -> Solved:
    scale, left = form.cost_scale("largest"), deadline - time.perf_counter()
    P, q = form.P * scale, form.q * scale
    result = solve_cone_program(
        P, q, form.A, form.b, form.cones, tolerance=0.01 * tolerance, time_limit=left
    )
    return result.status, result.x, None if result.z is None else result.z / scale


def _in_units(units_of: Units, form: ConicForm, *, tolerance: float, deadline: float) -> Solved:
    """Solve in units of rows and columns: in which numbers are near 1, or those of its box."""
    units = units_of(form)
    if units is None:
        return "not known in other units", None, None
    return _back(_as_it_stands(form.in_units(*units), tolerance, deadline), *units)


def of_box(form: ConicForm) -> tuple[Floats, Floats] | None:
    """Return powers of two for rows and columns that bring the box of all points near 1.

    What a column of another unit adds to a row is then seen for what it is: next to nothing, or not.
    None where rows do not bound all columns.
    """
    rows = linear_rows(form)

    def bounded(lower: Floats, upper: Floats) -> bool:
        return bool(np.isfinite(lower).all() and np.isfinite(upper).all())

    lower, upper = propagated(rows, *declared_bounds(rows), bounded)
    far = np.maximum(np.abs(lower), np.abs(upper))
    if not (bounded(lower, upper) and (far < RANGE).all()):
        return None
    columns = np.exp2(np.round(np.log2(np.where(far > 1.0 / RANGE, far, 1.0))))
    row, column, entry = coordinates(form.columns_of_rows)
    block, largest = blocks_of(form), np.zeros(form.b.size)
    np.maximum.at(largest, block[row], np.abs(entry) * columns[column])
    largest = np.where(largest > 0.0, largest, 1.0)[block]
    known = largest.min(initial=1.0) > 1.0 / RANGE and largest.max(initial=1.0) < RANGE
    return (np.exp2(-np.round(np.log2(largest))), columns) if known else None


def _in_fractions(form: ConicForm, *, deadline: float) -> Solved:
    """Solve a linear form by its exact basis."""
    try:
        x, z = exact_optimum(form, deadline - time.perf_counter())
    except Contradictory as e:
        farkas = np.zeros(form.b.size)
        farkas[list(e.link)] = [float(v) for v in e.link.values()]
        return "infeasible", None, farkas
    except SolverFailure as e:
        return str(e.evidence), None, None
    return "optimal", np.array(x, dtype=float), np.array(z, dtype=float)


def _until(deadline: float) -> dict[str, float]:
    return {"time_limit": max(deadline - time.perf_counter(), 0.0)}


def excluded_by_rows(form: ConicForm, deadline: float = np.inf) -> Floats | None:
    """Return multipliers of linear rows that may exclude each other, whatever the cones beside them."""
    at = np.flatnonzero(form.equal | form.nonnegative)
    if at.size in (0, form.b.size):
        return None
    straight = [c for c in form.cones if c.kind in ("zero", "nonneg")]
    ends = np.searchsorted(at, [(c.start, c.stop) for c in straight]).tolist()
    cones = tuple(Cone(c.kind, *own) for c, own in zip(straight, ends, strict=True))
    n = form.q.size
    linear = ConicForm(
        sp.csc_array((n, n)), np.zeros(n), 0.0, sp.csc_array(form.rows[at]), form.b[at], cones
    )
    raw, _ = solve_form(linear, np.zeros(n, dtype=bool), 1.0, _until(deadline), False)
    if raw.status != "infeasible" or raw.z is None:
        return None
    z = np.zeros(form.b.size)
    z[at] = raw.z
    return z


def with_the_rest_solved(
    outcome: Outcome, solution: Solution, request: Request, entries: int, *, holds: bool
) -> Outcome | None:
    """Return better values with the integers of an answer, or such as hold where its own do not.

    Beside numbers of other sizes a row is near nothing that its integers leave, and what is less
    than a tolerance of branch and bound may be much in other units: the rest is solved anew.

    Parameters
    ----------
    outcome : Outcome
        Whose bound a solver reports.
    solution : Solution
        What it was verified to be.
    request : Request
        What was asked for.
    entries : int
        Of a linear rest that is solved in fractions, at most.
    holds : bool
        Whether its values are feasible: then columns in units of their own are what is looked into.
    """
    p, now = solution.problem, time.perf_counter()
    # where nothing holds yet, a point is worth a little more time than was given
    deadline = max(min(request.deadline, now + SECONDS), now if holds else now + GRACE)
    proof: Any = outcome.proof
    word = proof is None or isinstance(proof, ReportedBound)
    stopped = solution.status.termination != "optimal" or solution.grade.sound
    able = p.integers and p.problem_class.convex and word and solution.values
    if not able or (holds and (stopped or now >= deadline)):
        return None
    compiled = already_compiled(p) or compile_problem(relaxed(p), conic_interface())
    form, fixed = compiled.form, integers_of(p, compiled, solution.values)
    x, free = put_in(form, fixed)
    near = max(map(abs, fixed.values()), default=0) <= FAR
    if holds and (not free.any() or (near and balanced(form, ~free) is None)):
        return None
    enough = np.inf
    if holds:
        size = min(abs(solution.objective - constant) for constant in (0.0, p.objective_constant))
        enough = form.sign * solution.objective - request.tolerance * max(form.unit, size)
    for rest in _points(left_by(form, fixed), enough, entries, request.tolerance, deadline):
        x[free] = rest
        values = with_whole(p, compiled.values(x))
        off = violations(p, values, compiled.entry_sizes)[0]
        value = form.sign * p.objective_at(values)
        if max(off.values(), default=0.0) <= request.tolerance and value < enough:
            if proof is not None:
                size = max(form.unit, abs(value - form.sign * p.objective_constant))
                beyond = form.sign * proof.bound - value
                if 0.0 < beyond <= request.tolerance * size:  # no bound is beyond a point
                    proof = replace(proof, bound=form.sign * value)
            return replace(outcome, values=values, proof=proof)
    return None


def _points(
    form: ConicForm, enough: float, entries: int, tolerance: float, deadline: float
) -> Iterator[Floats]:
    """Yield points of a form, the best that is known each time; none where no value is below enough."""
    if not form.q.size:
        yield np.zeros(0)
        return
    floats, *further = ways_to_solve(form, tolerance, deadline)
    status, x, z = floats(form)
    if status == "optimal" and x is not None and z is not None:
        bound = lower_bound(form, x, z, form.objective(x), enough)
        if bound.unpaid is None and bound.value >= enough:
            return
        yield x
    for way in further if not form.polyhedral or form.A.nnz <= entries else ():
        status, x, _ = way(form)
        if status == "optimal" and x is not None:
            yield x


# Rows that a user adds at each point.


def with_cuts(
    problem: Problem,
    cuts: Callable[[Mapping[str, Any]], Any],
    answer: Answer,
    tolerance: float,
    deadline: float = np.inf,
) -> Solution:
    """Solve a problem again with what its user adds, until nothing new cuts the point off.

    Every problem on the way has fewer rows than the user means, so its bound holds for the whole;
    the last point obeys all that was returned for it.

    Parameters
    ----------
    problem : Problem
        Without the rows.
    cuts : callable
        Values by name -> constraint, rule, list or dict of them, or None; on the problem's variables.
    answer : callable
        Solves a problem and verifies it.
    tolerance : float
        Relative violation from which a row cuts a point off.
    deadline : float
        ``time.perf_counter()`` at which to stop.

    Returns
    -------
    Solution
        Of the problem with the cuts that were needed, ``cut 1``, ``cut 2`` and so on.

    Raises
    ------
    SolverFailure
        It was stopped before a point obeyed all rows; the last, with its bound, is attached.
    """
    stated, count, rounds, spent = problem, 0, 0, dict[str, float]()
    solution: Solution | None = None
    while True:
        try:
            solution = answer(stated)
        except SolverFailure:
            if solution is None or time.perf_counter() < deadline:
                raise
            raise _stopped(solution, "time_limit") from None
        for word, seconds in solution.seconds.items():
            spent[word] = spent.get(word, 0.0) + seconds
        rounds += 1
        begin = time.perf_counter()
        try:
            given = _by_name(cuts(solution.values), count, {*map(family, stated.constraints)})
        except KeyboardInterrupt:
            raise _stopped(solution, "interrupted") from None
        count += len(given)
        grown = stated.with_constraints(given) if given else stated
        rows, unit, values = grown.constraints, grown.data_unit, solution.values
        broken = {
            family(label)
            for label in rows.keys() - stated.constraints.keys()
            if rows[label].violations(values, unit)[0] > tolerance
        }
        off = {name for name in given if family(name) in broken}
        spent["cuts"] = spent.get("cuts", 0.0) + time.perf_counter() - begin
        if not off:
            more = len(stated.constraints) - len(problem.constraints)
            options = {**solution.options, "cuts": more, "rounds": rounds}
            return replace(solution, options=options, seconds=spent)
        if solution.status.termination in EARLY:
            raise _stopped(solution, solution.status.termination)
        if time.perf_counter() > deadline:
            raise _stopped(solution, "time_limit")
        idle = [name for name in given if name not in off]
        stated = grown.without(*idle) if idle else grown


def _by_name(given: Any, count: int, taken: set[str]) -> dict[str, Any]:
    """Return the rows by names that no others have."""
    if given is None:
        return {}
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    numbered = {f"cut {count + i}": c for i, c in enumerate(several, 1)}
    named: dict[str, Any] = {}
    for name, c in (given if isinstance(given, Mapping) else numbered).items():
        named[free_name(str(name), taken | named.keys())] = c
    return named


def _stopped(last: Solution, word: str) -> SolverFailure:
    return SolverFailure(
        f"{word.replace('_', ' ')}: no point obeys all cuts yet",
        f"the last has the objective {last.objective:.8g} and proves the bound {last.bound:.8g}",
        "give more time, or return more cuts for a point; it is the solution of this error",
        solution=last,
    )


# Pools of solutions.


@dataclass(frozen=True, eq=False, repr=False)
class Pool(Tabled):
    """Solutions of an integer problem in the order of their objectives.

    Attributes
    ----------
    solutions : tuple of Solution
        Each is an optimum of the problem without those before it.
    ended : str
        exhausted, full (as many as were asked for), time_limit, interrupted, or why the next was not
        found.
    proof : Certificate or None
        That there are no more, where it is exhausted and that is proved.
    """

    solutions: tuple[Solution, ...]
    ended: str
    proof: Certificate | None = None

    def __len__(self) -> int:
        return len(self.solutions)

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.solutions)

    def __getitem__(self, i: int) -> Solution:
        return self.solutions[i]

    def frame(self) -> Any:
        """Return a pandas DataFrame, one row a solution.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        return data_frame(
            [
                {
                    "objective": s.objective,
                    "bound": s.bound,
                    "grade": s.grade.word,
                    "solver": s.solver,
                }
                for s in self.solutions
            ]
        )

    def __repr__(self) -> str:
        proved = "" if self.ended != "exhausted" else f", {self.proof or 'reported by the solver'}"
        values = ", ".join(f"{s.objective:.8g}" for s in self.solutions[:10])
        return f"Pool of {len(self)} solutions ({self.ended}{proved}): {values}"


def pooled(problem: Problem, many: int, answer: Answer) -> Solution:
    r"""Solve a binary problem again without the solutions that are known.

    After a solution :math:`\hat x` the row :math:`\sum_{\hat x_i = 0} x_i + \sum_{\hat x_i = 1} (1 -
    x_i) \ge 1` leaves out nothing but its binaries.

    Parameters
    ----------
    problem : Problem
        Its integers are between 0 and 1.
    many : int
        Solutions to look for.
    answer : callable
        Solves a problem and verifies it.

    Returns
    -------
    Solution
        The best, with the `Pool`.

    Raises
    ------
    ClassError
        No integers, or one that may have another value than 0 and 1.
    """
    _check_binary(problem)
    stated, known, ended, proof = problem, list[Solution](), "full", None
    while len(known) < many:
        try:
            solution = answer(stated)
        except (Infeasible, SolverFailure, KeyboardInterrupt) as e:
            if not known:
                raise
            if isinstance(e, Infeasible):
                ended, proof = "exhausted", e.certificate
            elif isinstance(e, SolverFailure):
                ended = "exhausted" if e.claim == "infeasible" else e.cause
            else:
                ended = "interrupted"
            break
        early = solution.status.termination in EARLY
        if early:
            ended = solution.status.termination
        if not early or not known:  # an incumbent may come out of order
            known.append(solution)
        if early:
            break
        at = {name: np.round(np.asarray(solution[name])) for name in sorted(problem.integers)}
        changed = sum(
            cp.sum(cp.multiply(1.0 - 2.0 * v, stated[name])) + float(v.sum())
            for name, v in at.items()
        )
        label = free_name(f"not solution {len(known)}", solution.problem.constraints)
        stated = solution.problem.with_constraints({label: changed >= 1.0})
    return replace(known[0], pool=Pool(tuple(known), ended, proof))


def _check_binary(problem: Problem) -> None:
    if not problem.integers:
        raise ClassError(
            f"a pool is of problems with binaries, this is {problem.problem_class}",
            remedy="ask for one solution; or with_integrality(NAME)",
        )
    compiled = compile_problem(relaxed(problem), conic_interface())
    lower, upper = compiled.form.column_bounds
    columns = integer_columns(problem, compiled)
    there = all((np.asarray(compiled.places()[name]) >= 0).all() for name in problem.integers)
    whole = np.ceil(lower[columns]), np.floor(upper[columns])
    if not there or (whole[0] < 0.0).any() or (whole[1] > 1.0).any():
        raise ClassError(
            "an integer variable may have another value than 0 and 1",
            "rows that leave out a solution are written on binaries",
            "bound it by 0 and 1, or write it by binaries",
        )
