"""Integer programs bounded or excluded by branching: every case by multipliers of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.farkas import InfeasibilityProof, proved_infeasible
from optfair.backends.integer_programs import (
    Solved,
    Way,
    excluded_by_rows,
    integer_columns,
    integers_of,
    left_by,
    put_in,
    ways_to_solve,
)
from optfair.backends.registry import conic_interface
from optfair.backends.remainders import Remainder, remainder
from optfair.compile.form import Compiled, compile_problem
from optfair.core.certificate import Certificate, DualCheck, Optimality, Verdict, drift, unvouched
from optfair.core.expressions import Values, check_parameters
from optfair.errors import Infeasible, OptfairError, SolverFailure, UnsupportedProblem, kind_of
from optfair.numbers import Floats
from optfair.proofs.bounds import LowerBound, lower_bound
from optfair.proofs.cones import Cone
from optfair.proofs.contradictions import infeasibility
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import violations
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

#: (column, whether from above, limit)
Limit = tuple[int, bool, int]
Limits = tuple[Limit, ...]

# How far from an integer a number counts as fractional, and cuts above one another.
FRACTION, DEPTH = 1e-6, 400
# Below this every integer is a float.
EXACT = 2**53


@dataclass(frozen=True, eq=False)
class Split:
    """An integer column is at most ``limit``, or at least ``limit + 1``."""

    column: int
    limit: int
    below: Tree
    above: Tree


@dataclass(frozen=True, eq=False)
class Case:
    """Multipliers of the rows, then of the limits, that bound the objective or exclude a case.

    Attributes
    ----------
    x : array (n,) or None
        Where curvature is measured; None where the multipliers are a Farkas vector.
    z : array (m + limits,)
        The multipliers.
    """

    x: Floats | None
    z: Floats


Tree = Split | Case | Remainder


def cases(node: Tree, limits: Limits = ()) -> Iterator[tuple[Limits, Tree]]:
    """Yield every node of a tree with the limits above it."""
    yield limits, node
    if isinstance(node, Split):
        yield from cases(node.below, (*limits, (node.column, True, node.limit)))
        yield from cases(node.above, (*limits, (node.column, False, node.limit + 1)))


def within(form: ConicForm, limits: Limits) -> ConicForm:
    """Return a form with limits on columns as further rows."""
    if not limits:
        return form
    k, m, columns = len(limits), form.b.size, np.array([j for j, _, _ in limits])
    sign = np.array([1.0 if above else -1.0 for _, above, _ in limits])
    ends = sign * [float(limit) for *_, limit in limits]
    cones = (*form.cones, Cone("nonneg", m, m + k))

    def longer(own: ConicForm, b: Floats) -> ConicForm:
        A = sp.csc_array(own.A)
        after, more = A.indptr[columns + 1], np.bincount(columns, minlength=own.q.size)
        A = sp.csc_array(
            (
                np.insert(A.data, after, sign),
                np.insert(A.indices, after, m + np.arange(k)),
                A.indptr + np.append(0, np.cumsum(more)),
            ),
            shape=(m + k, own.q.size),
        )
        made = replace(own, A=A, b=b, cones=cones)
        made.__dict__.update(curvature=own.curvature, bending=own.bending)  # costs are the same
        return made

    made = longer(form, np.append(form.b, ends))
    if form.congruent is not None:  # its units are found once: a limit is in that of its column
        there, units, lengths = form.congruent
        own = longer(there, np.append(there.b, ends / lengths[columns]))
        own.__dict__["congruent"] = None
        made.__dict__["congruent"] = own, np.append(units, 1.0 / lengths[columns]), lengths
    return made


def bound_of(
    form: ConicForm, whole: NDArray[np.int64], tree: Tree, upper: float = np.inf
) -> LowerBound:
    """Return what a tree of cases proves: the least of their bounds, infinite without a point.

    Parameters
    ----------
    form : ConicForm
        The relaxation.
    whole : array of int
        Its integer columns.
    tree : Split or Case
        The cases.
    upper : float
        A value of the objective, as in `lower_bound`.
    """
    worst, unpaid, integer = np.inf, None, set(whole.tolist())
    for limits, node in cases(tree):
        if isinstance(node, Split):
            exact = isinstance(node.limit, int) and abs(node.limit) < EXACT
            if node.column not in integer or not exact:
                return LowerBound(-np.inf, fault=f"column {node.column} has values between limits")
            continue
        if isinstance(node, Remainder):
            if not node.excludes(form, whole):
                return LowerBound(-np.inf, fault="rows of integers have some")
            continue
        if node.z.size != form.b.size + len(limits):
            return LowerBound(-np.inf, fault="a case has multipliers of other rows")
        if node.x is None:
            if not infeasibility(within(form, limits), node.z).proved:
                return LowerBound(-np.inf, fault="a case is not excluded")
            continue
        # what is above the least so far need not be improved
        proved = bound_of_case(form, limits, (node.x, node.z), upper, worst)
        worst = min(worst, proved.value)
        unpaid = proved.unpaid if unpaid is None else unpaid.joined(proved.unpaid)
    return LowerBound(worst, unpaid)


def bound_of_case(
    form: ConicForm, limits: Limits, pair: tuple[Floats, Floats], upper: float, enough: float
) -> LowerBound:
    """Return what a pair proves of a case, as `lower_bound`; what was proved of it before is known.

    A bound that is the least of itself and an upper value holds with any other.
    """
    known: dict[Any, LowerBound] = form.__dict__.setdefault("cases", {})
    key = (limits, *(v.tobytes() for v in pair))
    if key not in known or known[key].unpaid is not None or known[key].value < enough:
        known[key] = lower_bound(within(form, limits), *pair, upper, enough)
    return known[key]


@dataclass(frozen=True, eq=False)
class BranchedBound:
    """A tree that leaves out no integer, whose cases bound the objective or have no point.

    Attributes
    ----------
    problem : Problem
        With its integers.
    compiled : Compiled
        Its continuous relaxation.
    x : array (n,)
        The point it is compared with.
    tree : Split or Case
        The cases.
    """

    problem: Problem
    compiled: Compiled
    x: Floats
    tree: Split | Case
    source: str = "branching"

    @property
    def leaves(self) -> int:
        """Number of cases."""
        return sum(isinstance(n, Case) for _, n in cases(self.tree))

    def entry_sizes(self, name: str, values: Values, stated: Any = None) -> Floats:
        """Return the size of each entry of a constraint, 0 where its right-hand side tells it."""
        return self.compiled.entry_sizes(name, values, stated)

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Return the least bound of all cases, rounded outward; each pair is looked at once."""
        form, upper = self.compiled.form, self.compiled.form.objective(self.x)
        leaves = bound_of(form, integer_columns(self.problem, self.compiled), self.tree, upper)
        return DualCheck(
            bound=form.sign * min(leaves.value, upper),
            dual=0.0,
            consistency=max(drift(values, self.compiled.values(self.x)), unvouched(multipliers)),
            unpaid=leaves.unpaid,
            free=() if leaves.unpaid is None else form.column_names(leaves.unpaid.columns),
            unit=form.unit,
            rows=form.worst_row(self.x, form.slack(self.x)),
            apart=True,
        )


def proved(certificate: Optimality, time_limit: float) -> Optimality:
    """Return a certificate with a bound proved by branching, in more digits, or by boxes.

    Parameters
    ----------
    certificate : Optimality
        Of a solution whose bound a solver reports.
    time_limit : float
        Wall seconds for the tree.

    Raises
    ------
    UnsupportedProblem
        The relaxation is not convex and has many variables, or nothing is reported.
    SolverFailure
        The tree, or the cover by boxes, is not closed in time.
    """
    if not isinstance(certificate, Optimality):
        raise UnsupportedProblem(f"{kind_of(certificate)} is proved as it stands, or not")
    solution, tolerance = certificate.solution, certificate.tolerance
    check_parameters((problem := solution.problem).terms)
    if problem.problem_class.convex and not problem.integers:
        from optfair.backends.exact import everywhere

        return everywhere(certificate, time_limit)
    if solution.grade.sound:
        return certificate
    if not problem.problem_class.convex:
        from optfair.backends.boxes import enclosed

        return _graded(*enclosed(solution, tolerance, time_limit), tolerance)
    inner = getattr(solution.proof, "relaxed", None)
    if inner is not None:  # tangents: their linear program has the integers
        closed = proved(Optimality(inner, 0.1 * tolerance), time_limit).solution
        return _graded(solution, replace(solution.proof, relaxed=closed), tolerance)  # type: ignore[type-var]
    compiled = compile_problem(relaxed(problem), conic_interface())
    end = time.perf_counter() + time_limit
    search = CaseSearch(problem, compiled, tolerance, end, unit=solution.unit)
    tree, values = search.tree(solution), compiled.values(search.x)
    proof = BranchedBound(problem, compiled, search.x, tree)
    at = problem.objective_at(values)
    moved = replace(solution, values=values, objective=at, multipliers={})
    return _graded(moved, proof, tolerance)


def _graded(solution: Solution, proof: Any, tolerance: float) -> Optimality:
    """Return a solution with another proof, graded anew."""
    bound = proof.check(solution.values, solution.multipliers).bound
    moved = replace(solution, proof=proof, bound=bound)
    residuals = moved.residuals()
    reasons = residuals.above(tolerance)
    if reasons:
        raise SolverFailure("the tree is closed, but its point is not optimal", "; ".join(reasons))
    status = replace(moved.status, termination="optimal", grade=residuals.grade(tolerance))
    return Optimality(replace(moved, status=status), tolerance)


@dataclass(frozen=True, eq=False, repr=False)
class BranchingProof(Certificate):
    """A tree whose branches leave out no integer and whose leaves are infeasible.

    Parameters
    ----------
    problem : Problem
        With its integers.
    tree : Split, Case or Remainder
        A leaf certifies that the continuous constraints and the bounds above it in the tree
        exclude each other.
    names : tuple of str
        The constraints that it is about, all where none are named.
    """

    problem: Problem
    tree: Tree
    names: tuple[str, ...] = ()
    of_objective = False

    @property
    def conflict(self) -> tuple[str, ...]:
        """Names of the constraints."""
        return self.names or tuple(self.problem.constraints)

    def verify(self) -> Verdict:
        """Compile the constraints anew and check the certificate of every leaf."""
        compiled = compile_problem(relaxed(self.problem), conic_interface())
        leaves = bound_of(compiled.form, integer_columns(self.problem, compiled), self.tree)
        if leaves.value == np.inf:
            return Verdict(True)
        return Verdict(False, (leaves.fault or "a case has a bound, and may have a point",))

    @property
    def by_multipliers(self) -> bool:
        """Whether multipliers exclude every case, as a proof file holds them."""
        return not any(isinstance(n, Remainder) for _, n in cases(self.tree))

    @property
    def leaves(self) -> int:
        """Number of cases."""
        return sum(not isinstance(n, Split) for _, n in cases(self.tree))

    def __str__(self) -> str:
        cases = "1 case" if self.leaves == 1 else f"{self.leaves} cases"
        by = f"{cases} by branching, each with a Farkas certificate"
        return str(self.tree) if isinstance(self.tree, Remainder) else by

    __repr__ = __str__


def excluded(
    problem: Problem, seconds: float, most: int
) -> BranchingProof | InfeasibilityProof | None:
    """Return a proof that no point satisfies the convex constraints and the integers of a problem.

    None where no tree of so many cases is closed in time, or it does not compile to cones.

    Parameters
    ----------
    problem : Problem
        Its objective does not matter: one that is curved may be what a solver fails on.
    seconds : float
        Wall seconds for the tree.
    most : int
        Cases it may have.
    """
    try:
        rows = problem.with_terms({}, problem.constraints)
        compiled = compile_problem(relaxed(rows), conic_interface())
        tree: Tree | None = remainder(compiled.form, integer_columns(rows, compiled))
    except OptfairError:
        return None
    if not isinstance(tree, Remainder) or tree.opposite:  # a file holds a tree of cases
        search = CaseSearch(rows, compiled, 1e-7, time.perf_counter() + seconds, most)
        with suppress(OptfairError):
            tree = search.closed_below(())
    if isinstance(tree, Remainder):
        held = (n for n in rows.constraints if {*compiled.rows(n)} & tree.used)
        return BranchingProof(rows, tree, tuple(held))
    if tree is None or problem.integers or not isinstance(tree, Case):
        return None if tree is None else BranchingProof(rows, tree)
    owned = {name: compiled.rows(name) for name in compiled.constraints}
    return proved_infeasible(compiled.form, tree.z, owned)


def without_a_point(problem: Problem, seconds: float, most: int) -> Infeasible | None:
    """Return what to raise where it is proved that no point is feasible, as `excluded` does.

    Neither the objective matters nor constraints that are not convex, where the others suffice.
    """
    rows = {n: t for n, t in problem.constraints.items() if t.evidence.problem_class.convex}
    left = problem if problem.problem_class.convex else problem.with_terms({}, rows)
    proof = excluded(left, seconds, most) if rows else None
    if proof is None or not proof.verify():
        return None
    whole = "integer " if problem.integers else ""
    return Infeasible(
        f"no {whole}point satisfies {', '.join(map(repr, proof.conflict))}",
        f"{proof}, verified on the compiled data",
        "remove or soften one of them; diagnose() names fewer",
        certificate=proof,
        conflict=proof.conflict,
    )


class CaseSearch:
    """Branch and bound on the compiled relaxation, from a known point or for none at all."""

    def __init__(
        self,
        problem: Problem,
        compiled: Compiled,
        tolerance: float,
        deadline: float,
        most: float = np.inf,
        unit: float = np.inf,
    ) -> None:
        self.problem, self.compiled, self.form = problem, compiled, compiled.form
        self.unit = min(unit, self.form.unit)
        # columns that rows fix are a constant of the form, and none of the problem
        self.constant = self.form.sign * problem.objective_constant
        self.integer = integer_columns(problem, compiled)
        self.tolerance, self.deadline, self.most = tolerance, deadline, most
        self.x, self.upper, self.closed = np.zeros(0), np.inf, 0
        # how near the root everything is closed on one side, and how many cases were when it was
        self.level, self.before = DEPTH, np.inf

    @property
    def target(self) -> float:
        """What a case must reach."""
        size = max(self.unit, abs(self.upper - self.constant))
        return self.upper - 0.5 * self.tolerance * size

    @property
    def expected(self) -> float:
        """Cases at least, if the other sides are no smaller nearer to the root, as they seldom are."""
        return self.closed + self.level * (self.closed - self.before)

    def tree(self, solution: Solution) -> Split | Case:
        """Fix the integers where the solution has them, then close every case."""
        fixed = integers_of(self.problem, self.compiled, solution.values)
        status = self.keep(fixed, 1.0)
        if not self.x.size:
            raise SolverFailure("the integer values of the solution leave no point", status)
        return self.closed_below(())

    def keep(
        self, fixed: Mapping[int, int], share: float = 0.1, ways: Sequence[Way] | None = None
    ) -> str:
        """Keep the best point with these integers, if it is better; return how that ended.

        It may be violated by a share of the tolerance: what is as near as that to no point is none.
        The first way that has one is taken.
        """
        rest, (known, free) = left_by(self.form, fixed), put_in(self.form, fixed)
        ended = "violated where its integers are rounded"
        ways = self.ways if ways is None else ways
        for solved in ways if free.any() else (lambda _: ("optimal", np.zeros(0), None),):
            status, own, _ = solved(rest)
            if status != "optimal" or own is None:  # in floats a point may be lost that is there
                ended = status
                continue
            x = known.copy()
            x[free] = own
            if not self.form.objective(x) < self.upper or self._take(x, share):
                return status
        return ended

    def _take(self, x: Floats, share: float = 0.1) -> bool:
        """Whether a point is better than the known one and violated by a share of the tolerance."""
        if not (value := self.form.objective(x)) < self.upper:
            return False
        values, sizes = self.compiled.values(x), self.compiled.entry_sizes
        off = violations(self.problem, values, sizes)[0].values()
        if max(off, default=0.0) <= share * self.tolerance:
            self.x, self.upper = x, value
            return True
        return False

    @property
    def ways(self) -> tuple[Way, ...]:
        """How a case is solved: first in floats, then where these do not close it."""
        return ways_to_solve(self.form, self.tolerance, self.deadline)

    def solved(self, limits: Limits) -> Solved:
        """Return how the relaxation of a case ends, by the first way that has a point, else the first.

        What multipliers prove to have no point is solved in one way only.
        """
        own, answers = within(self.form, limits), list[Solved]()
        for way in self.ways:
            answers.append(way(own))
            status, _, z = answers[-1]
            if status == "optimal" or answers[0][0] != "infeasible":
                break
            z = z if status == "infeasible" else None
            if z is not None and proved_infeasible(own, z, {}, everywhere=True) is not None:
                break
        return next((a for a in answers if a[0] == "optimal"), answers[0])

    def _bounded(self, limits: Limits, x: Floats, z: Floats) -> bool:
        """Whether a case is as good as the known point at most."""
        if not (np.isfinite(self.upper) and self.form.objective(x) >= self.target):
            return False
        return (
            bound_of_case(self.form, limits, (x, z), self.upper, self.target).value >= self.target
        )

    def _split(self, limits: Limits, j: int, limit: int, value: float = -np.inf) -> Split:
        """Return a column at most a limit, and above it, with the tree below either, the nearer first."""
        sides = (*limits, (j, True, limit)), (*limits, (j, False, limit + 1))
        first = int(value > limit + 0.5)
        trees = {first: self.closed_below(sides[first])}
        if len(limits) < self.level:
            self.level, self.before = len(limits), self.closed
        trees[1 - first] = self.closed_below(sides[1 - first])
        return Split(j, limit, trees[0], trees[1])

    def fractions(self, limits: Limits, x: Floats) -> Floats:
        """Return how far integers are from one: what is a rounding beyond a limit is not split there."""
        off = np.abs(x[self.integer] - np.round(x[self.integer]))
        for j, above, limit in limits:
            at = int(np.searchsorted(self.integer, j))
            beyond = x[j] >= limit if above else x[j] <= limit
            off[at] = 0.0 if beyond else off[at]
        return off

    def closed_below(self, limits: Limits) -> Split | Case:
        """Return the tree below some limits, every case of it closed."""
        if (
            time.perf_counter() > self.deadline
            or len(limits) > DEPTH
            or self.closed + 0.5 * len(limits) >= self.most
            or self.expected > self.most
        ):
            raise SolverFailure(
                "the tree of cases is not closed in time",
                f"{self.closed} cases are closed, {len(limits)} limits deep",
                "give more time: prove(time_limit=...)",
            )
        own, whole = within(self.form, limits), None
        for solved in self.ways:
            status, x, z = solved(own)
            for farkas in (z, None) if status == "infeasible" else ():
                farkas = farkas if farkas is not None else excluded_by_rows(own, self.deadline)
                if farkas is not None and (
                    proof := proved_infeasible(own, farkas, {}, everywhere=True)
                ):
                    self.closed += 1
                    return Case(None, proof.z)
            if status != "optimal" or x is None or z is None:
                continue
            bounded = self._bounded(limits, x, z)
            off = self.fractions(limits, x)
            fraction = off.max(initial=0.0)
            if not bounded and fraction <= FRACTION and np.isfinite(self.upper):
                near = np.round(x[self.integer])
                fixed = dict(zip(self.integer.tolist(), near.astype(int).tolist(), strict=True))
                self.keep(fixed, ways=(solved,))  # in its digits: a worse point bounds nothing
                (beside := x.copy())[self.integer] = near
                self._take(beside)
                bounded = self._bounded(limits, x, z)
            if bounded:
                self.closed += 1
                return Case(x, z)
            whole = x
            if fraction > 0.0:  # a large number times what is nearly an integer may be far off
                j = int(self.integer[int(off.argmax())])
                return self._split(limits, j, int(np.floor(x[j])), x[j])
        if whole is not None and np.isfinite(self.upper):
            for j in self.integer.tolist():  # multipliers are smaller where more is fixed
                for above, limit in ((True, round(whole[j])), (False, round(whole[j]) - 1)):
                    if not any(k == j and side == above for k, side, _ in limits):
                        return self._split(limits, j, limit)
        if (case := self._held(limits)) is not None:
            self.closed += 1
            return case
        raise SolverFailure("a case is neither bounded nor excluded", f"the relaxation is {status}")

    def _held(self, limits: Limits) -> Case | None:
        """Return the multipliers of a case whose limits leave each integer one value.

        They are those of the rest, with the integers put in; what is left of the costs in integer
        columns is paid by the limits.
        """
        least = {j: v for j, above, v in sorted(limits) if not above}
        most = {j: v for j, above, v in sorted(limits, reverse=True) if above}
        fixed = {j: v for j, v in least.items() if most.get(j) == v}
        if len(fixed) < self.integer.size:
            return None
        if np.isfinite(self.upper):
            self.keep(fixed)
        own, rest = within(self.form, limits), left_by(self.form, fixed)
        x, free = put_in(self.form, fixed)
        for solved in self.ways:
            status, near, z = solved(rest)
            if z is None or not (
                status == "infeasible" or (status == "optimal" and near is not None)
            ):
                continue
            residual = self.form.A.T @ z
            if status == "optimal":
                x[free] = near
                residual = residual + self.form.P @ x + self.form.q
            pays = np.zeros(len(limits))
            for k, (j, above, limit) in enumerate(limits):
                if limit == fixed[j] and (residual[j] < 0.0) == above:
                    pays[k], residual[j] = abs(residual[j]), 0.0
            pair = x.copy(), np.append(z, pays)
            if status == "infeasible":
                proof = proved_infeasible(own, pair[1], {}, everywhere=True)
                if proof is not None:
                    return Case(None, proof.z)
            elif np.isfinite(self.upper):
                bound = bound_of_case(self.form, limits, pair, self.upper, self.target)
                if bound.value >= self.target:
                    return Case(*pair)
        return None
