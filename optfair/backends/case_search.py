"""The search for a tree of cases that bounds or excludes an integer program, and what such a tree proves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.farkas import proved_infeasible
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
from optfair.backends.remainders import Remainder
from optfair.compile.form import Compiled
from optfair.errors import SolverFailure
from optfair.numbers import Floats
from optfair.proofs.bounds import LowerBound, lower_bound
from optfair.proofs.cones import Cone
from optfair.proofs.contradictions import infeasibility
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import violations

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


def declared_value(problem: Problem, compiled: Compiled, x: Floats) -> float:
    """Return what is minimised as it was declared: at the edge of a domain a column may be off by more."""
    if compiled.form.polyhedral:
        return compiled.form.objective(x)
    return compiled.form.sign * problem.objective_at(compiled.values(x))


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
        # the best point, what it is worth as declared, and the least that points are worth as compiled
        self.x, self.upper, self.least, self.closed = np.zeros(0), np.inf, np.inf, 0
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
            if self._take(x, share) or not self.form.objective(x) < self.upper:
                return status
        return ended

    def _take(self, x: Floats, share: float = 0.1) -> bool:
        """Whether a point is better than the known one and violated by a share of the tolerance."""
        compiled = self.form.objective(x)
        if not compiled < self.upper:
            return False
        values, sizes = self.compiled.values(x), self.compiled.entry_sizes
        beyond = violations(self.problem, values, sizes)[0].values()
        if max(beyond, default=0.0) > share * self.tolerance:
            return False
        self.least = min(self.least, compiled)
        if (value := declared_value(self.problem, self.compiled, x)) >= self.upper:
            return False
        inside = self._within_bounds(x)
        if (inside != x).any():
            off = value - declared_value(self.problem, self.compiled, inside)
            if not abs(off) <= self.tolerance * max(self.unit, abs(compiled - self.constant)):
                return self._take(inside, share)  # a rounding is worth much, as in roots near 0
        if better := value < self.upper:
            self.x, self.upper = x, value
        return better

    def _within_bounds(self, x: Floats) -> Floats:
        """Return a point within the bounds that its integers leave, where it is beyond by a rounding."""
        if self.form.polyhedral:
            return x
        whole = x[self.integer].astype(int).tolist()
        fixed = dict(zip(self.integer.tolist(), whole, strict=True))
        inside, free = put_in(self.form, fixed)
        inside[free] = np.clip(x[free], *left_by(self.form, fixed).column_bounds)
        return inside

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
        own, whole, edge = within(self.form, limits), None, -np.inf
        left: Case | None = None  # at the edge of a domain
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
            if fraction <= FRACTION and self.least < self.upper:
                # a root has no slope at 0: multipliers leave what a compiled point is too good by
                proved = bound_of_case(self.form, limits, (x, z), self.upper, self.target).value
                if proved > edge:
                    edge, left = proved, Case(x, z)
                short = min(self.upper - self.least, self.upper - self.target)
                if proved >= self.target - short:
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
        # of what is left the gap says by how much it is short
        if (case := self._held(limits) or left) is not None:
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
