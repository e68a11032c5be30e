"""Limits that no point attains, and points that come near to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.boxes import BoxProof, Program
from optfair.backends.request import SMALL, Outcome
from optfair.compile.conic_proof import ConicProof
from optfair.convexity.algebra import Algebra
from optfair.convexity.derivatives import slopes_along
from optfair.convexity.domain import Domain
from optfair.convexity.expression import (
    Call,
    Leaf,
    Node,
    Product,
    entries,
    subnodes,
)
from optfair.convexity.hessians import Boxes
from optfair.convexity.intervals import Interval
from optfair.convexity.prove import WRITTEN, domain_of
from optfair.convexity.reading import Unread, leaf_of, read
from optfair.core.canonical import built
from optfair.core.certificate import Certificate, DualCheck, Verdict, drift
from optfair.core.expressions import Values
from optfair.errors import DataError, OptfairError, UnsupportedProblem
from optfair.numbers import Floats, Indices
from optfair.proofs.reduction import Entries, Excluded, missed
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution


@dataclass(frozen=True, eq=False, repr=False)
class UnattainedOptimum(Certificate):
    """No point has an objective as good as a limit, and no multipliers exclude that limit.

    Parameters
    ----------
    form : ConicForm
        The compiled problem.
    limit : float
        Of the compiled objective, without its constant.
    proof : Excluded
        That no point is as good, and that no multipliers show more.
    """

    form: ConicForm
    limit: float
    proof: Excluded

    @property
    def value(self) -> float:
        """The limit of the declared objective."""
        return float(self.form.sign * (self.limit + self.form.offset))

    def _faults(self, problem: Problem) -> tuple[str, ...]:
        """Return why this is no proof about a problem, which is compiled anew."""
        from optfair.backends.recompilation import faults_anew

        return self.verify().reasons or faults_anew(problem, self.form, self._anew)

    def _anew(self, own: ConicForm, at: Indices) -> UnattainedOptimum | None:
        """Return the same chains on a program, whose rows and constants they count by."""
        constants = (own.sign, own.offset) == (self.form.sign, self.form.offset)
        same = constants and np.array_equal(at, np.arange(own.b.size))
        return replace(self, form=own) if same else None

    def verify(self) -> Verdict:
        """Recompute both chains in fractions."""
        fault = self.proof.fault(Entries.of(self.form).at_most(self.form.q, self.limit))
        if self.proof.others is None:
            fault = "that no multipliers exclude the limit is not shown"
        if self.form.P.nnz:
            fault = "the objective is not linear"
        return Verdict(not fault, (fault,) if fault else ())

    def __str__(self) -> str:
        return f"{self.value:.10g} is not attained: {self.proof}"

    __repr__ = __str__


def unattained(solution: Solution) -> UnattainedOptimum | None:
    """Return the proof that an optimum of a semidefinite program is not attained, None without one."""
    form = getattr(getattr(solution.proof, "compiled", None), "form", None)
    if form is None:
        return None
    chain = missed(form, form.sign * solution.objective - form.offset)
    return None if chain is None else UnattainedOptimum(form, *chain)


# What is said of a point that was moved.
FAR_OUT = "a point was moved far out, towards a limit that is not attained"
# How far along an axis points are looked at; beyond is no optimum.
DISTANCES = tuple(10.0**k for k in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14))
# Sides beyond which an answer on somebody's word may be on its way to a limit.
UNSURE = 1e3
# Points that are tried after a first answer, and where nobody has a better one.
TRIES = (1_000, 20_000)
# Parts of a cost that multipliers are rounded to, from the simplest on.
SIMPLE = (1, 2, 3, 4, 10, 100)
# Of the distances, where other entries are looked at too, and how often the way to their ends is halved.
FAR, HALVINGS = (1e4, 1e8, 1e11, 9e14), 60


@dataclass(frozen=True, eq=False)
class MovedPoint:
    """The bound that multipliers prove near one point, beside another that comes nearer to it.

    Attributes
    ----------
    problem : Problem
        Whose optimum it bounds.
    proof : ConicProof
        The pair that proves the bound.
    values : mapping
        The other point.
    """

    problem: Problem
    proof: ConicProof
    values: Values
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound from the pair; what holds near the origin only is none far out."""
        near, duals = self.proof.compiled.by_name(self.proof.x, self.proof.z)
        own, sign = self.proof.check(near, duals), self.proof.compiled.form.sign
        apart = max(drift(values, self.values), drift(multipliers, duals))
        bound = own.bound if own.unpaid is None else -sign * np.inf
        return DualCheck(bound, own.dual, consistency=apart, unit=own.unit, apart=True)


def bounded(answer: Solution | None) -> ConicProof | None:
    """Return a proof of a bound near an answer's by its multipliers, or by numbers near these.

    Far out they tend to their limit, on the boundary of a cone: (1, -1, 1e-5) to (1, -1, 0).
    """
    proof = getattr(answer, "proof", None)
    if not isinstance(proof, ConicProof):
        return None
    form, best, most = proof.compiled.form, None, -np.inf
    unit = float(np.abs(form.q).max(initial=0.0)) or 1.0
    for z in (proof.z, *(unit * np.round(proof.z / unit * k) / k for k in SIMPLE)):
        other = replace(proof, z=z)
        check = other.check(*other.compiled.by_name(other.x, z))
        if check.unpaid is None and most < form.sign * check.bound < np.inf:
            best, most = other, form.sign * check.bound
    return best


def extends(problem: Problem, values: Values, sides: float) -> bool:
    """Whether an entry of a point is larger than so many times the largest side of the constraints."""
    own = [t.largest_side for t in problem.constraints.values()]
    most = sides * max([problem.data_unit, *own])
    return any(np.abs(v).max(initial=0.0) > most for v in values.values())


def nearing(
    problem: Problem,
    values: Values,
    tolerance: float,
    answer: Solution | None = None,
    *,
    quick: bool = False,
) -> Outcome | None:
    """Return a point whose objective comes as near to its least enclosure as is asked, None without.

    From given values one entry after the other is moved out, as long as the objective improves. Where
    it does not of itself, entries that it falls with go as far down as constraints then allow: t of
    1/x <= t. The bound is that of the objective's range where these hold: x^2/y >= 0 for y > 0; where
    that has none, it is that of an answer's multipliers: ||(x, 1)|| - x >= 0.
    Far out a tolerance is no room, ||(x, 1)|| <= x + 1e-8: curved constraints are to hold as stated.
    Fewer points are tried where another answer may follow.
    """
    begin, tries = time.perf_counter(), TRIES[not quick]
    attains = problem.problem_class.name in ("LP", "QP")
    if attains or problem.integers or (program := read_small(problem)) is None:
        return None
    tree = Boxes(program.entries, program.low, program.high, (np.array([-1], dtype=np.int8),))
    bound, by = program.closed(tree), None
    sign, unit = 1.0 if problem.sense == "minimize" else -1.0, problem.data_unit
    size, least_size, share = problem.objective_unit, SMALL, 0.5
    if not np.isfinite(bound):
        if (by := bounded(answer)) is None:
            return None
        check = by.check(*by.compiled.by_name(by.x, by.z))
        bound, size = sign * check.bound, min(size, check.unit) if problem.unit_from_data else size
        # no farther out than is asked: there differences of large numbers get lost
        least_size, share = size, 0.9
    reach = bound + share * tolerance * max(least_size, abs(bound))
    point = np.clip(flat_point(problem, program, values), program.low, program.high)

    def value(x: Floats, share: float = 0.1) -> float:
        nonlocal tries
        tries -= 1
        if tries < 0:
            return np.inf
        own = named_values(problem, program, x)
        off = (t.violations(own, unit)[1] for t in problem.constraints.values())
        with np.errstate(all="ignore"):
            known = max(off, default=0.0) <= share * tolerance and program.inside(x)
            f = sign * problem.objective_at(own) if known else np.inf
            if by is not None and np.isfinite(f):  # a difference of large numbers: at most so much
                f = max(f, program.most(x))
        return f if np.isfinite(f) else np.inf

    least = value(point)
    if largest := float(np.abs(point).max(initial=0.0)):  # the way that an answer has gone already
        for distance in DISTANCES:
            further = point * (distance / largest)
            if least > reach and distance > largest and (f := value(further)) < least:
                point, least, largest = further, f, distance
    for k, way in endless_axes(program):
        for distance in DISTANCES:
            further = point.copy()
            further[k] = way * distance
            f = value(further)
            if least <= reach or (f >= least and distance > abs(point[k])):
                break
            if f < least:
                point, least = further, f
    for distance, (k, way) in product(FAR, endless_axes(program)):
        if least <= reach or tries <= 0:
            break
        further = point.copy()
        further[k] = way * distance
        f = _lowered(program, lambda x: value(x, 1e-5), further)
        if f < least:
            point, least = further, f
    if least > bound + share * tolerance * max(size, abs(bound)):
        return None
    at = named_values(problem, program, point)
    multipliers = {} if by is None else by.compiled.multipliers(by.z)
    proof = BoxProof(problem, tree, at) if by is None else MovedPoint(problem, by, at)
    return Outcome("optimal", at, multipliers, proof, {"solve": time.perf_counter() - begin})


def _lowered(program: Program, value: Callable[[Floats], float], x: Floats) -> float:
    """Move entries of a point, in place, towards ends of their ranges while it improves; return its value."""
    least = value(x)
    if not np.isfinite(least):
        return least
    for j, (leaf, _) in enumerate(program.entries):
        for end in (program.low[j], program.high[j]):
            near, far = x[j], end
            if leaf not in program.goal.leaves or not np.isfinite(far):
                continue
            for share in (1e-3, *[0.5] * HALVINGS):
                x[j] = near + share * (far - near)
                if (f := value(x)) < least:
                    near, least = x[j], f
                elif share < 0.5:
                    break
                else:
                    far = x[j]
            x[j] = near
    return least


def is_small(problem: Problem) -> bool:
    """Whether a problem has an objective, no parameters, and few variables."""
    sizes = sum(v.size for v in problem.variables.values())
    written = sizes <= WRITTEN and not any(t.parameters for t in problem.terms)
    return written and bool(problem.objective)


def read_small(problem: Problem) -> Program | None:
    """Return a small problem as it is read over boxes, None of others."""
    if not is_small(problem):
        return None
    try:
        return Program.of(problem)
    except UnsupportedProblem:
        return None


def endless_axes(program: Program) -> Iterator[tuple[int, float]]:
    """Yield which entries have no end, and which way."""
    for k in range(len(program.entries)):
        if np.isposinf(program.high[k]):
            yield k, 1.0
        if np.isneginf(program.low[k]):
            yield k, -1.0


def flat_point(problem: Problem, program: Program, values: Values) -> Floats:
    """Return values as entries of the program."""
    flat = {
        leaf_of(v): np.ravel(values.get(n, np.zeros(v.shape)), order="F")
        for n, v in problem.variables.items()
    }
    return np.array([float(flat[leaf][j]) for leaf, j in program.entries])


def named_values(problem: Problem, program: Program, x: Floats) -> dict[str, Any]:
    """Return entries of the program as values."""
    known = {entry: float(v) for entry, v in zip(program.entries, x, strict=True)}
    return {
        n: np.reshape([known[leaf_of(v), j] for j in range(v.size)], v.shape, order="F")
        for n, v in problem.variables.items()
    }


def attained(solution: Solution) -> bool:
    """Return False where an optimum is proved to be a limit that every point misses."""
    problem, kind = solution.problem, solution.problem.problem_class
    if kind.convex and not kind.cones and not kind.quadratic_constraint:
        return True  # a linear or quadratic program attains a finite value
    if all(t.evidence.function == "affine" for t in problem.objective.values()):
        form = getattr(getattr(solution.proof, "compiled", None), "form", None)
        # else what is looked for are limits of the objective, as of 1/x
        return form is None or missed(form, form.sign * solution.objective - form.offset) is None
    return not misses(problem, solution.objective, solution.values)


def misses(problem: Problem, value: float, values: Values | None = None) -> bool:
    """Return whether every point is proved to miss a limit that a value, of some point, comes near."""
    if not is_small(problem):
        return False
    sign = 1.0 if problem.sense == "minimize" else -1.0

    def rises(leaf: Leaf, j: int, way: float) -> bool:
        """Whether the objective is larger far out that way: then it does not fall from every point."""
        names = [n for n, v in problem.variables.items() if leaf_of(v) is leaf]
        if values is None or not names:
            return False
        moved = np.ravel(values[names[0]], order="F").astype(float)
        moved[j] += way * AHEAD * (1.0 + float(np.abs(moved).max()))
        further = np.reshape(moved, np.shape(values[names[0]]), order="F")
        with np.errstate(all="ignore"):
            there = sign * problem.objective_at({**values, names[0]: further})
        return bool(there > sign * value + 1e-6 * max(1.0, abs(value)))

    try:
        goal = sum(built(t) for t in problem.objective.values())
        if not _may_miss(read(goal, Domain()).node):
            return False
    except DataError:
        pass  # what is undefined somewhere may be defined where the constraints hold
    except (OptfairError, Unread):
        return False
    try:
        domain = domain_of({n: built(t) for n, t in problem.constraints.items()})
        reading = read(goal, domain)
        a = Algebra(reading.domain)
        node = a.scaled(sign, reading.node)
        if problem.problem_class.convex and falls(node, reading.domain, rises):
            return True
        low = float(reading.domain.range(node).low.min())
        near = sign * value - low <= 1e-8 * max(1.0, abs(low))
        return near and a.never_least(node)
    except (OptfairError, Unread):
        return False


def _may_miss(node: Node) -> bool:
    """Whether a function may miss its limit: where a part has 1/f, a root of f, exp f or log f."""
    return any(
        (isinstance(n, Product) and any(p < 0 or p % 1 for _, p in n.factors))
        or (isinstance(n, Call) and n.function in ("exp", "log"))
        for n in subnodes(node)
    )


# How far out points are of which it is said that none is optimal.
_RADIUS = 1e100
# Times the largest entry of a point at which it is looked whether a function rises.
AHEAD = 1e3


def falls(
    node: Node, domain: Domain, rises: Callable[[Leaf, int, float], bool] = lambda *_: False
) -> bool:
    """Whether a convex function falls strictly along an axis from every point, and no fact ends it.

    Then no point is optimal, whatever the limit: as of x^2/y, y without upper bound, x >= 1. Where
    a convex function has a negative slope far out, it has one everywhere before; so slopes are
    enclosed there alone, over all points whose other entries are at most `_RADIUS` in size.
    """
    if domain.beside or domain.unread:
        return False
    for leaf, j in entries(node):
        box = domain.box(leaf)
        for way, end in ((1.0, box.high[j]), (-1.0, box.low[j])):
            if np.isfinite(end) or rises(leaf, j, way):
                continue
            slope = _slopes(node, domain, leaf, j, way)
            if slope is None or not (slope.high < 0.0).all():
                continue
            facts = [f for f in domain.facts if leaf in f.node.leaves]
            along = [(f, _slopes(f.node, domain, leaf, j, way)) for f in facts]
            if all(
                s is not None and (s.high <= 0.0).all() and (not f.zero or (s.low >= 0.0).all())
                for f, s in along
            ):
                return True
    return False


def _slopes(node: Node, domain: Domain, leaf: Leaf, j: int, way: float) -> Interval | None:
    """Return enclosures of the slopes of all entries far out along an entry of a leaf, one way."""
    boxes = {}
    for other in node.leaves:
        box = domain.box(other)
        low, high = np.maximum(box.low, -_RADIUS), np.minimum(box.high, _RADIUS)
        if other is leaf:
            low[j] = high[j] = way * _RADIUS
        boxes[other] = Interval.of(low, high)
    steps = np.zeros(leaf.size)
    steps[j] = way
    enclosed = slopes_along(node, boxes, {leaf: steps})
    return None if enclosed is None else enclosed[1]
