"""Falls that never end: a feasible ray of enclosed slopes, or no multipliers and a point with room."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.boxes import Program
from optfair.backends.cone_program import solve_cone_program
from optfair.backends.farkas import stated_by_roots
from optfair.backends.registry import conic_interface
from optfair.backends.request import Request
from optfair.backends.unattained import endless_axes, flat_point, named_values, read_small
from optfair.compile.form import compile_problem
from optfair.convexity.derivatives import slopes_along
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Leaf, Node, affine
from optfair.convexity.intervals import Interval
from optfair.convexity.proof import values as values_at
from optfair.convexity.reading import Unread, exponent, read
from optfair.core.canonical import built
from optfair.core.certificate import Certificate, Verdict
from optfair.core.expressions import Values
from optfair.core.problem import FEW
from optfair.core.problem_class import parts_of
from optfair.errors import DataError, OptfairError, Unbounded
from optfair.numbers import Floats
from optfair.proofs.reduction import ENTRIES, Link, steps, unlimited, unlimited_fault

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.solution.conic_form import ConicForm

# Where on its ray a fall may begin, and two points of it where it has to be a fall in numbers.
BEGINNINGS = (0.0, 1.0, 1e3)
OUTSIDE = (1e4, 1e5)
# Axes that a direction of a fall may have, of a problem with few scalars, and rays that are tried.
TOGETHER, RATES = 3, 300
# Floats beyond have no digits after the point.
WHOLE = 2.0**53


@dataclass(frozen=True, eq=False, repr=False)
class EndlessFall(Certificate):
    """A feasible point and a direction along which constraints stay satisfied and the objective falls.

    All slopes are enclosed over the whole ray: those of constraints are never positive, that of
    the objective (of its negative where it is maximised) never above some negative number.

    Attributes
    ----------
    problem : Problem
        What is unbounded.
    values : mapping
        The point.
    steps : tuple of float
        By how much each scalar moves per unit of the way, counted through all variables in order.
    """

    problem: Problem
    values: Values
    steps: tuple[float, ...]

    @property
    def rate(self) -> float:
        """By how much the objective improves at least per unit, 0 where that is not known."""
        program = read_small(self.problem)
        way = np.array(self.steps, dtype=float)
        if program is None or way.shape != program.low.shape or not np.isfinite(way).all():
            return 0.0
        divisors = _divisors(self.problem)
        return _rate(program, divisors, flat_point(self.problem, program, self.values), way)

    @property
    def direction(self) -> dict[str, Any]:
        """The direction by variable name."""
        sizes = [v.size for v in self.problem.variables.values()]
        parts = np.split(np.array(self.steps, dtype=float), np.cumsum(sizes)[:-1])
        return {
            name: np.reshape(part, v.shape, order="F")
            for (name, v), part in zip(self.problem.variables.items(), parts, strict=True)
        }

    def verify(self) -> Verdict:
        """Read the problem anew and enclose the slopes again."""
        good = not self.problem.integers and self.rate > 0.0
        return Verdict(good, () if good else ("some slope along the ray may have the other sign",))

    def __str__(self) -> str:
        moved = [
            f"{name!r}{list(at) or ''} {'rises' if step > 0 else 'falls'}"
            for name, d in self.direction.items()
            for at, step in np.ndenumerate(d)
            if step
        ]
        return (
            f"as {' and '.join(moved)}, the objective improves by at least {self.rate:.3g} per unit"
        )

    __repr__ = __str__


def endless(problem: Problem, points: Iterator[Values]) -> Unbounded | None:
    """Return that the objective improves without limit, None where that is not shown.

    Parameters
    ----------
    problem : Problem
        Of few scalars.
    points : iterator of mapping
        Where the fall might begin, asked for one after the other; a convex problem needs none.
    """
    if problem.problem_class.convex:
        return without_multipliers(problem)
    program = read_small(problem)
    if program is None or problem.integers or not np.isinf(program.high - program.low).any():
        return None
    ways, divisors, left = _endless_ways(program), _divisors(problem), RATES
    for values in points:
        at = np.clip(flat_point(problem, program, values), program.low, program.high)
        near = [np.clip(x, program.low, program.high) for x in _near(at)]
        starts = [at, *[x for x in near if _holds(program, x)][:2]]
        far = np.round(at / max(1.0, float(np.abs(at).max()))) + 0.0
        tried = list(product([*ways, far], starts, BEGINNINGS))
        rays = [(x + distance * way, way) for way, x, distance in tried]
        for begin, way in (
            ray for ray, able in zip(rays, _able(program, rays), strict=True) if able
        ):
            left -= 1
            if left < 0:
                return None
            if _rate(program, divisors, begin, way) <= 0.0:
                continue
            proof = EndlessFall(problem, named_values(problem, program, begin), tuple(way.tolist()))
            return Unbounded(
                f"the objective ({', '.join(map(repr, problem.objective))}) improves without limit",
                f"{proof}, from a feasible point: slopes enclosed along the whole ray",
                "bound the variables it depends on",
                ray=proof.direction,
                certificate=proof,
            )
    return None


def _able(program: Program, rays: Sequence[tuple[Floats, Floats]]) -> Sequence[bool]:
    """Return along which rays the goal falls, and rows hold but for rounding, at two points far out.

    That proves nothing, and all are looked at together: of few others slopes are enclosed.
    """
    sizes = np.array([max(1.0, float(np.abs(x).max())) for x, _ in rays])
    with np.errstate(all="ignore"):
        ahead = [x + d * r * way for d in OUTSIDE for (x, way), r in zip(rays, sizes, strict=True)]
        far = np.stack(ahead, axis=1)
        boxes = _boxes(program, far, far)
        able, goal = np.ones(len(rays), dtype=bool), values_at(program.goal, boxes)
        if goal is not None:
            near, beyond = np.split(goal.low[0], 2), np.split(goal.high[0], 2)
            able &= ~(beyond[1] >= near[0])
        for fact in program.facts:
            if (off := values_at(fact.node, boxes)) is not None:
                able &= ~(off.low > np.tile(sizes, 2)).any(axis=0).reshape(2, -1).any(axis=0)
    out: list[bool] = able.tolist()
    return out


def _near(point: Floats) -> Iterator[Floats]:
    """Yield a point, rounded: a row may be off by the last digit of a solver's."""
    for k in (0, 1, 3):
        near, digits = point.copy(), np.abs(point) < WHOLE
        near[digits] = np.round(point[digits], k)
        yield near
    yield from (np.ceil(point), np.floor(point))


def _endless_ways(program: Program) -> list[Floats]:
    """Return the axes along which nothing ends, and sums of two and three of few, that linear rows allow."""
    axes = list(endless_axes(program))
    every = (np.full(program.low.shape, -np.inf), np.full(program.low.shape, np.inf))
    rows = [fact for fact in program.facts if affine(fact.node)]
    out = []
    for count in range(1, TOGETHER + 1 if len(program.entries) <= FEW else 2):
        for chosen in combinations(axes, count):
            if len({k for k, _ in chosen}) < count:
                continue
            way = np.zeros(len(program.entries))
            for k, step in chosen:
                way[k] = step
            slopes = [(_slopes_from(program, f.node, every, way), f.zero) for f in rows]
            if all(s is not None and _never_up(s[1], zero) for s, zero in slopes):
                out.append(way)
    return out


def beginnings(problem: Problem, best: Solution | None, request: Request) -> Iterator[Values]:
    """Yield where a fall may begin: in the middle of the box, at the best point, at a feasible one."""
    from optfair.backends.solve import solve_as_asked

    program = read_small(problem)
    if program is None or program.domain.empty:
        return
    yield named_values(problem, program, Interval(program.low, program.high).middle())
    if best is not None:
        yield best.values
    # rows that are convex only in other words are no problem of their own without an objective
    if problem.constraints and all(
        t.evidence.problem_class.convex for t in problem.constraints.values()
    ):
        with contextlib.suppress(OptfairError):
            yield solve_as_asked(problem.with_terms({}, problem.constraints), None, request).values


def _slopes_from(
    program: Program, node: Node, box: tuple[Floats, Floats], way: Floats
) -> tuple[Interval, Interval] | None:
    """Return enclosures of a node, and of its slopes along a direction, over a box of all entries."""
    ways = {leaf: way[own] for leaf, own in _places(program).items()}
    return slopes_along(node, _boxes(program, *box), ways)


def _boxes(program: Program, low: Floats, high: Floats) -> dict[Leaf, Interval]:
    """Return the boxes of all leaves."""
    return {leaf: Interval.of(low[own], high[own]) for leaf, own in _places(program).items()}


def _places(program: Program) -> dict[Leaf, list[int]]:
    """Return which entries are of each leaf."""
    out: dict[Leaf, list[int]] = {}
    for i, (leaf, _) in enumerate(program.entries):
        out.setdefault(leaf, []).append(i)
    return out


def _never_up(slope: Interval, zero: bool) -> bool:
    """Whether slopes are never positive, and 0 where a row is to stay 0."""
    falls = bool((slope.high <= 0.0).all())
    return falls and (not zero or bool((slope.low >= 0.0).all()))


def _holds(program: Program, x: Floats) -> bool:
    """Whether all constraints hold at a point, enclosed."""
    with np.errstate(all="ignore"):
        at = ((_slopes_from(program, f.node, (x, x), 0.0 * x), f.zero) for f in program.facts)
        return all(start is not None and _never_up(start[0], zero) for start, zero in at)


def _divisors(problem: Problem) -> tuple[Node, ...] | None:
    """Return what may not be 0 where terms are defined, None where it is not read.

    As they are declared: of x/x normal forms do not show it.
    """
    every = (e for t in problem.terms for e in parts_of(built(t)))
    asked = [base for e in every for base in _never_zero(e) if not base.is_constant()]
    try:
        return tuple(dict.fromkeys(read(base, Domain()).node for base in asked))
    except (DataError, Unread):
        return None


def _never_zero(e: Any) -> list[Any]:
    """Return which arguments of an expression may not be 0."""
    name = type(e).__name__.removesuffix("Approx")
    if name == "log1p":
        return [1.0 + e.args[0]]
    negative = name in ("Power", "Pnorm") and exponent(e.p) < 0
    if negative or name in ("log", "DivExpression", "quad_over_lin", "rel_entr", "kl_div"):
        return [e.args[-1]]
    return []


def _apart_from_0(enclosed: tuple[Interval, Interval] | None) -> bool:
    """Whether no value is 0."""
    return enclosed is not None and bool(((enclosed[0].low > 0.0) | (enclosed[0].high < 0.0)).all())


def _rate(program: Program, divisors: tuple[Node, ...] | None, x: Floats, way: Floats) -> float:
    """Return by how much the goal falls at least per unit from a point on, 0 where it may not."""
    low, high = np.where(way < 0.0, -np.inf, x), np.where(way > 0.0, np.inf, x)
    if divisors is None or not (np.isfinite(x).all() and _holds(program, x)):
        return 0.0
    with np.errstate(all="ignore"):
        if not all(_apart_from_0(_slopes_from(program, d, (low, high), way)) for d in divisors):
            return 0.0
        for fact in program.facts:
            enclosed = _slopes_from(program, fact.node, (low, high), way)
            if enclosed is None:
                return 0.0
            over, slope = enclosed
            if not (
                _never_up(slope, fact.zero) and (_continuous(slope) or (over.high <= 0.0).all())
            ):
                return 0.0
        goal = _slopes_from(program, program.goal, (low, high), way)
    if goal is None or not (_continuous(goal[1]) or (goal[0].high < np.inf).all()):
        return 0.0
    rate = -float(goal[1].high.max())
    return rate if 0.0 < rate < np.inf else 0.0


def _continuous(slope: Interval) -> bool:
    """Whether slopes are bounded, so that nothing jumps, as 1/x does at 0 from low to high."""
    return bool(np.isfinite(slope.low).all() and np.isfinite(slope.high).all())


# A dual without a point: the primal has no limit, if a point of its own has room.


@dataclass(frozen=True, eq=False, repr=False)
class NoMultipliers(Certificate):
    """No multipliers put a bound under an objective, and a point has room in all curved cones.

    Then it improves without limit (strong duality), though perhaps along curves alone: of
    max log x no ray is one of the compiled program.

    Attributes
    ----------
    problem : Problem
        What is unbounded.
    x : array (n,)
        The point, in the columns of the compiled program.
    links : tuple of dict
        A chain that shows what multipliers there would be to be none.
    """

    problem: Problem
    x: Floats
    links: tuple[Link, ...]

    def anew(self) -> ConicForm:
        """Compile what the chain and the point are proved on."""
        return compile_problem(self.problem, conic_interface()).form

    def verify(self) -> Verdict:
        """Compile anew, and recompute the chain in fractions and the room of the point."""
        if self.problem.integers or stated_by_roots(self.problem):
            return Verdict(False, ("its rows do not state the problem exactly",))
        fault = unlimited_fault(self.anew(), self.x, self.links)
        return Verdict(not fault, (fault,) if fault else ())

    def __str__(self) -> str:
        return f"no multipliers bound it, by {steps(self.links)}, and a point has room in every curved cone"

    __repr__ = __str__


def without_multipliers(problem: Problem, first: NoMultipliers | None = None) -> Unbounded | None:
    """Return that a convex objective improves without limit, None where that is not shown.

    Parameters
    ----------
    problem : Problem
        What may be unbounded.
    first : NoMultipliers, optional
        One that says on which program it is to be proved.
    """
    first = first or NoMultipliers(problem, np.zeros(0), ())
    if problem.integers or not problem.objective or stated_by_roots(problem):
        return None
    try:
        form = first.anew()
    except OptfairError:  # it cannot be compiled as a cone program
        return None
    n = form.q.size
    if not form.q.any() or form.P.nnz or form.polyhedral or form.A.nnz > ENTRIES:
        return None  # of points and half-lines there is a ray
    nothing = sp.csc_array((n, n))
    room = solve_cone_program(nothing, np.zeros(n), form.A, form.b, form.cones, tolerance=1e-9)
    links = None if room.x is None else unlimited(form, room.x)
    if room.x is None or links is None:
        return None
    proof = replace(first, x=room.x, links=links)
    return Unbounded(
        f"the objective ({', '.join(map(repr, problem.objective))}) improves without limit",
        f"{proof}: a finite limit would have multipliers",
        "bound the variables it depends on",
        certificate=proof,
    )
