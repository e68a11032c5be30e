"""Nonconvex programs to the global optimum: enclosures over boxes that cover it, and a relaxation that is exact."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.backends.global_backend import in_units
from optfair.backends.local_optima import finite_at, local_optimum
from optfair.backends.request import LEAST, SMALL, Outcome, Request, SolverProfile, stages
from optfair.convexity.algebra import Algebra
from optfair.convexity.derivatives import values_over
from optfair.convexity.domain import IMPLIED, Domain, Fact
from optfair.convexity.expression import (
    Leaf,
    Node,
    Opaque,
    affine,
    linear,
    raw_call,
    rebuilt,
    scalars,
    select,
    subnodes,
)
from optfair.convexity.hessians import Boxes, halved
from optfair.convexity.intervals import FARTHEST, Interval
from optfair.convexity.proof import values
from optfair.convexity.reading import Unread, demanded, leaf_of, read, read_constraint
from optfair.core.adopt import from_cvxpy
from optfair.core.canonical import built
from optfair.core.certificate import Certificate, DualCheck, Verdict, drift, unvouched
from optfair.core.expressions import Values
from optfair.errors import (
    ClassError,
    DataError,
    Infeasible,
    SolverFailure,
    Unbounded,
    UnsupportedProblem,
)
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.compile.program import QuadraticForms
    from optfair.core.problem import Problem
    from optfair.core.quadratics import QuadraticMap
    from optfair.core.solution import Solution

# Scalars, boxes and rounds of a search; starts of local searches; boxes looked at together; rows of a
# linear constraint that are looked at one by one.
SCALARS, BOXES, ROUNDS, STARTS, TOGETHER, ROWS = 6, 400_000, 120, 3, 4096, 32


@dataclass(frozen=True, eq=False)
class Program:
    """What is minimised and what must be at most 0, or 0, over a box.

    Attributes
    ----------
    goal : Node
        The objective, negated when it is maximised.
    facts : tuple of Fact
        Every constraint, and what functions ask of their arguments.
    entries : tuple of (Leaf, int)
        Coordinates of the box.
    low, high : array (d,)
        The box, which every feasible point is in; infinite where nothing bounds a variable.
    domain : Domain
        What all constraints say of ranges. Where it is empty no point is feasible.
    whole : tuple of int
        Coordinates that are integers; the box ends at integers there.
    """

    goal: Node
    facts: tuple[Fact, ...]
    entries: tuple[tuple[Leaf, int], ...]
    low: Floats
    high: Floats
    domain: Domain
    whole: tuple[int, ...] = ()

    @classmethod
    def of(cls, problem: Problem) -> Program:
        """Read a problem.

        Raises
        ------
        UnsupportedProblem
            A term is not read, or there are too many variables.
        """
        leaves = [leaf_of(v) for v in problem.variables.values()]
        facts: list[Fact] = []
        try:
            for name, t in problem.constraints.items():
                own = read_constraint(name, built(t), Domain())
                if not own:
                    raise UnsupportedProblem(f"{name!r} is no equality or inequality that is read")
                facts += own
                for side in built(t).args:
                    facts += demanded(side, Domain())
            domain = Domain([f for f in facts if affine(f.node)])
            total = sum(built(t) for t in problem.objective.values())
            node = read(total, domain).node if problem.objective else linear([], np.zeros(1))
            facts += demanded(total, domain) if problem.objective else []
            domain = Domain(facts)
        except (DataError, Unread) as e:
            raise UnsupportedProblem("a term is not read over boxes", str(e)) from None
        goal = node if problem.sense == "minimize" else Algebra(domain).scaled(-1.0, node)
        goal = _with_ranges(goal, domain)
        facts = [replace(f, node=_with_ranges(f.node, domain)) for f in facts]
        unknown = [n for n in subnodes(goal) if isinstance(n, Opaque)]
        if unknown and not (domain.empty or np.isfinite(domain.range(goal).low).all()):
            raise UnsupportedProblem(
                "boxes bound functions whose ranges are known",
                f"that of {' '.join(str(unknown[0].expression).split())[:80]} is not",
                "write the objective with other functions",
            )
        entries = tuple((leaf, j) for leaf in leaves for j in range(leaf.size))
        ends = [domain.box(leaf)[j] for leaf, j in entries]
        low, high = (np.array([float(getattr(e, s)) for e in ends]) for s in ("low", "high"))
        integers = {leaf_of(problem.variables[name]) for name in problem.integers}
        whole = tuple(k for k, (leaf, _) in enumerate(entries) if leaf in integers)
        for k in whole:
            low[k], high[k] = np.ceil(low[k]), np.floor(high[k])
        return cls(goal, tuple(facts), entries, low, high, domain, whole)

    @cached_property
    def scopes(self) -> tuple[NDArray[np.bool_], list[NDArray[np.bool_]]]:
        """Coordinates of the objective, and of each fact: none where it only has bounds."""
        place = {entry: k for k, entry in enumerate(self.entries)}

        def scope(entries: Iterable[tuple[Leaf, int]]) -> NDArray[np.bool_]:
            return np.isin(np.arange(len(place)), [place[e] for e in entries])

        parts = []
        for fact in self.facts:
            own, rows = scalars(fact.node), [fact.node]
            if affine(fact.node):
                if fact.node.size <= ROWS:
                    rows = [select(fact.node, [k]) for k in range(fact.node.size)]
                own = frozenset().union(*(s for s in map(scalars, rows) if len(s) > 1))
            parts.append(scope(own))
        return scope(scalars(self.goal)), parts

    @cached_property
    def unit(self) -> float:
        """What gaps are measured by at least: 1, or the range of the objective where that is less."""
        v = values(self.goal, self._leaves(Interval(self.low[:, None], self.high[:, None])))
        with np.errstate(all="ignore"):
            extent = np.inf if v is None else float((v.high - v.low).max())
        return min(1.0, extent) if extent > 0.0 else 1.0

    def least(self, boxes: Interval) -> Floats:
        """Return floats (K,) below the objective at feasible points of boxes; inf where none is."""
        return self.judged(boxes)[0]

    def judged(self, boxes: Interval) -> tuple[Floats, NDArray[np.bool_]]:
        """Return what `least` does, and the coordinates (d, K) that it depends on within each box.

        Those of the objective, and of constraints that do not hold on all of the box: halves along
        another coordinate say nothing new.
        """
        out, needed = np.full(boxes.shape[1], np.inf), np.ones(boxes.shape, dtype=bool)
        none = self.domain.empty or bool((self.low > self.high).any())  # no integer is between
        for start in range(0, 0 if none else out.size, TOGETHER):
            part = slice(start, start + TOGETHER)
            with np.errstate(all="ignore"):  # far out, ends overflow
                out[part], needed[:, part] = self._judged(boxes[:, part])
        return out, needed

    def _over(self, node: Node, part: Interval) -> Interval | None:
        """Return enclosures over boxes; of what has kinks, as a maximum has, natural ones."""
        near = values_over(node, self.entries, part)
        if near is not None:
            return near
        return values(node, self._leaves(part))

    def _leaves(self, part: Interval) -> dict[Leaf, Interval]:
        """Return the ranges of whole variables."""
        rows: dict[Leaf, list[int]] = {}
        for k, (leaf, _) in enumerate(self.entries):
            rows.setdefault(leaf, []).append(k)
        return {leaf: part[at] for leaf, at in rows.items()}

    def _judged(self, part: Interval) -> tuple[Floats, NDArray[np.bool_]]:
        enclosure, (scope, scopes) = self._over(self.goal, part), self.scopes
        bound = np.full(part.shape[1], -np.inf) if enclosure is None else enclosure.low[0]
        needed = np.repeat(scope[:, None], part.shape[1], axis=1)
        for fact, own in zip(self.facts, scopes, strict=True):
            g = self._over(fact.node, part)
            if g is None:
                needed |= own[:, None]
                continue
            empty = (g.low > 0.0).any(axis=0)
            if fact.zero:
                empty |= (g.high < 0.0).any(axis=0)
            holds = (g.high <= 0.0).all(axis=0) & (not fact.zero)
            needed |= own[:, None] & ~holds
            bound = np.where(empty, np.inf, bound)
        return bound, needed

    def outside(self, x: Floats) -> float:
        """Return how far an argument is below 0 where a function asks that it is not."""
        here = Interval.exactly(x[:, None])
        own = [f.node for f in self.facts if f.name == IMPLIED]
        known = (self._over(n, here) for n in own)
        return max((float(v.low.max()) for v in known if v is not None), default=0.0)

    def inside(self, x: Floats) -> bool:
        """Whether every constraint that is not linear holds at a point, without any tolerance."""
        here = self._leaves(Interval.exactly(x[:, None]))
        for fact in self.facts:
            if affine(fact.node):
                continue
            v = values(fact.node, here)
            if v is None or not (v.high <= 0.0).all() or (fact.zero and not (v.low >= 0.0).all()):
                return False
        return True

    def most(self, x: Floats) -> float:
        """Return what is minimised at a point, rounded up."""
        v = values(self.goal, self._leaves(Interval.exactly(x[:, None])))
        return np.inf if v is None else float(v.high.max())

    def defined(self, x: Floats) -> bool:
        """Whether every function that is read has a finite value at a point."""
        at = {leaf: np.zeros(leaf.size) for leaf, _ in self.entries}
        for (leaf, j), v in zip(self.entries, x, strict=True):
            at[leaf][j] = v
        return finite_at((self.goal, *(f.node for f in self.facts)), at)

    def closed(self, tree: Boxes) -> float:
        """Return the least of the objective over all boxes of a tree that covers the program's."""
        # of a loaded problem the variables are others
        if tree.low.size != self.low.size or not {*tree.whole} <= {*self.whole}:
            return -np.inf
        if not ((tree.low <= self.low).all() and (tree.high >= self.high).all()):
            return -np.inf
        worst = np.inf
        try:
            for boxes in tree.rounds():
                if boxes.shape[1]:
                    least = float(self.least(boxes).min())
                    worst = min(worst, -np.inf if np.isnan(least) else least)
        except ValueError:
            return -np.inf
        return worst


@dataclass(frozen=True, eq=False)
class BoxProof:
    """Boxes that cover every feasible point, on each of which the objective is bounded.

    Attributes
    ----------
    problem : Problem
        Whose optimum it bounds.
    tree : Boxes
        How the first box was cut.
    values : mapping
        The point it is compared with.
    """

    problem: Problem
    tree: Boxes
    values: Values
    source: str = "boxes"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Read the problem anew and enclose the objective on every box again."""
        sign = 1.0 if self.problem.sense == "minimize" else -1.0
        upper = sign * self.problem.objective_at(self.values)
        program = Program.of(self.problem)
        bound = min(program.closed(self.tree), upper)
        apart = max(drift(values, self.values), unvouched(multipliers))
        return DualCheck(sign * bound, 0.0, consistency=apart, unit=program.unit, apart=True)


@dataclass(frozen=True, eq=False, repr=False)
class NoPoint(Certificate):
    """Boxes that cover everything within the bounds, none with a feasible point."""

    problem: Problem
    tree: Boxes
    of_objective = False

    def verify(self) -> Verdict:
        """Enclose the constraints on every box again."""
        empty = Program.of(self.problem).closed(self.tree) == np.inf
        return Verdict(empty, () if empty else ("a box may have a feasible point",))

    def __str__(self) -> str:
        if len(self.tree) == 1:
            return "the ranges that constraints leave exclude each other"
        return f"{len(self.tree)} boxes cover the bounds, and no constraint set meets one"

    __repr__ = __str__


def _with_ranges(node: Node, domain: Domain) -> Node:
    """Return a node in which signs and Huber functions, which proofs take as they are, have ranges."""
    known: dict[Node, Node] = {}
    for n in subnodes(node):
        if isinstance(n, Opaque):
            e = n.expression
            with contextlib.suppress(DataError, Unread):
                if type(e).__name__ == "sign":
                    inner = read(e.args[0], domain).node
                    if not any(isinstance(part, Opaque) for part in subnodes(inner)):
                        known[n] = raw_call("sign", [inner], n.size)
                elif type(e).__name__ == "huber" and not e.M.parameters():
                    size, limit = cp.abs(e.args[0]), float(e.M.value)  # both parts rise with it
                    written = cp.square(cp.minimum(size, limit)) + 2.0 * limit * cp.pos(
                        size - limit
                    )
                    known[n] = _with_ranges(read(written, domain).node, domain)
    return rebuilt(node, Algebra(domain), known) if known else node


def excluded_by_ranges(problem: Problem) -> Infeasible | None:
    """Return that no point is feasible where ranges alone show it, None where they do not."""
    try:
        program = Program.of(problem)
    except UnsupportedProblem:
        return None
    uncut = (np.array([-1], dtype=np.int8),)
    proof = NoPoint(problem, Boxes(program.entries, program.low, program.high, uncut))
    if not program.domain.empty:
        return None
    needed = [*problem.constraints]
    for name in problem.constraints:
        fewer = [n for n in needed if n != name]
        if Domain([f for f in program.facts if f.name in (*fewer, IMPLIED)]).empty:
            needed = fewer
    return Infeasible.of(proof, needed)


def excluded_by_boxes(problem: Problem, seconds: float) -> Infeasible | None:
    """Return that no point is feasible where few boxes show it, whatever the objective is."""
    if sum(v.size for v in problem.variables.values()) > SCALARS:
        return None
    stated = problem.with_terms({}, problem.constraints)
    try:
        _searched(stated, Program.of(stated), Request(time_limit=seconds))
    except Infeasible as e:
        proof = NoPoint(problem, cast("NoPoint", e.certificate).tree)
        return Infeasible(e.cause, str(proof), e.remedy, certificate=proof)
    except (UnsupportedProblem, SolverFailure):
        pass
    return None


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Halve boxes until each has no feasible point, or none that is better by the tolerance."""
    request.refuse_options(profile)
    begin = time.perf_counter()
    if sum(v.size for v in problem.variables.values()) > SCALARS:
        raise UnsupportedProblem("boxes are for few variables", f"at most {SCALARS} scalars")
    program = Program.of(problem)
    bounded = np.isfinite(program.high - program.low).all()
    if not bounded and problem.problem_class.curvature in ("log-log convex", "quasiconvex"):
        raise UnsupportedProblem(
            "boxes without ends are for what nobody else takes",
            f"this is a {problem.problem_class}, and a variable has no bounds",
            "state bounds",
        )
    ended, proof = _searched(problem, program, request)
    seconds = {"solve": time.perf_counter() - begin}
    return Outcome(ended, dict(proof.values), {}, proof, seconds)


def enclosed(solution: Solution, tolerance: float, time_limit: float) -> tuple[Solution, BoxProof]:
    """Return a solution of a small nonconvex program, or a better one, and boxes that bound it.

    Raises
    ------
    UnsupportedProblem
        There are too many variables, or a term is not read.
    SolverFailure
        Boxes are left when the time is over.
    """
    problem = solution.problem
    if (size := sum(v.size for v in problem.variables.values())) > SCALARS:
        raise UnsupportedProblem(
            "only bounds of convex problems are proved, with integers by branching, and of few "
            "variables by boxes",
            f"this is {problem.problem_class} of {size} scalars; its bound is {solution.grade}",
        )
    program, request = Program.of(problem), Request(tolerance, time_limit)
    ended, proof = _searched(problem, program, request, solution.values)
    if ended != "optimal":
        raise SolverFailure(
            f"boxes are left after {time_limit:g} s",
            f"the bound is {proof.check(proof.values, {}).bound:.8g}",
            "give more time, or narrow the bounds",
            solution=solution,
        )
    at = problem.objective_at(proof.values)
    return replace(solution, values=proof.values, objective=at, multipliers={}), proof


def _searched(
    problem: Problem,
    program: Program,
    request: Request,
    known: Values | None = None,
) -> tuple[str, BoxProof]:
    """Halve boxes until each is without a point that is better than the best, or than a known one."""
    whole, sign = list(program.whole), 1.0 if problem.sense == "minimize" else -1.0
    if whole and not np.isfinite(program.high - program.low).all():
        raise UnsupportedProblem(
            "boxes with integers have ends", "a variable has no bounds", "state bounds"
        )
    leaves = {name: leaf_of(v) for name, v in problem.variables.items()}
    integers = {leaves[name] for name in problem.integers}
    free = len(program.whole) < len(program.entries)  # else there is nothing to search
    best: tuple[float, dict[str, Any]] | None = None

    def take(x: Floats, values: dict[str, Any]) -> None:
        nonlocal best
        if not program.defined(x):
            return
        off = [t.relative_violation(values) for t in problem.constraints.values()]
        off.append(program.outside(x))
        with np.errstate(all="ignore"):
            value = sign * problem.objective_at(values)
        good = max(off) <= 0.1 * request.tolerance and np.isfinite(value)
        if good and (best is None or value < best[0]):
            best = value, values

    def offer(x: Floats) -> None:
        x[whole] = np.round(x[whole])
        point = {leaf: np.zeros(leaf.size) for leaf in leaves.values()}
        for (leaf, j), v in zip(program.entries, x, strict=True):
            point[leaf][j] = v
        late = time.perf_counter() + 0.25 * request.seconds_left
        held = {leaf: Interval.exactly(point[leaf]) for leaf in integers}
        rest = program.domain.extended(boxes=held)
        local = local_optimum(problem, leaves, rest, point, late) if free else None
        for p in (point, *([] if local is None else [local])):
            values = {
                n: np.reshape(p[leaf], problem.variables[n].shape, order="F")
                for n, leaf in leaves.items()
            }
            take(np.array([p[leaf][j] for leaf, j in program.entries]), values)

    if known is not None:
        held = {n: np.array(known[n], dtype=float) for n in leaves}
        flat = {leaf: np.ravel(held[n], order="F") for n, leaf in leaves.items()}
        take(np.array([flat[leaf][j] for leaf, j in program.entries]), held)
    low, high = program.low[:, None], program.high[:, None]
    cuts: list[NDArray[np.int8]] = []
    seen, closed, stuck, wide = 0, 0, 0, np.isinf(program.high - program.low)[:, None]
    width = np.where(wide, 1.0, np.maximum(program.high - program.low, 1e-300)[:, None])
    ended, least = "optimal", min(SMALL, program.unit)
    try:
        for level in range(ROUNDS):
            asked = time.perf_counter()
            floors, needed = program.judged(Interval(low, high))
            pace = (time.perf_counter() - asked) / low.shape[1]
            points = ((low == high) | ~needed).all(axis=0)  # their halves say nothing new
            middles = Interval(low, high).middle()
            middles[whole] = np.round(middles[whole])
            for k in np.flatnonzero(points & (floors < (np.inf if best is None else best[0]))):
                offer(middles[:, k].copy())
            if level % 6 == 0:
                at = program.least(Interval.exactly(middles))  # of points: their objectives, or inf
                near = np.where(np.isfinite(at), at, np.inf)
                for k in dict.fromkeys([int(near.argmin()), *np.argsort(floors)[:STARTS].tolist()]):
                    if np.isfinite(floors[k]) or np.isfinite(at[k]) or best is None:
                        offer(middles[:, k].copy())
            target = np.inf
            if best is not None:
                target = best[0] - 0.5 * request.tolerance * max(least, abs(best[0]))
            kept = floors >= target if best is not None else floors == np.inf
            stuck, kept = stuck + int((points & ~kept).sum()), kept | points
            extents = _extent(high, wide, width) - _extent(low, wide, width)
            axis = np.argmax(np.where(needed, extents, -1.0), axis=0)
            halves = halved(low[:, ~kept], high[:, ~kept], axis[~kept], program.whole)
            cuts.append(np.where(kept, -1, axis).astype(np.int8))
            low, high = halves
            seen, closed = seen + int(kept.size), closed + int(kept.sum())
            if not low.shape[1]:
                break
            if best is not None and best[0] < -LEAST:
                raise SolverFailure(
                    "the objective has no limit that boxes prove",
                    f"{sign * best[0]:.3g} was met at a feasible point",
                    "bound the variables it depends on",
                )
            # the next boxes, and the proof after them: all that are closed, and the halves of these
            more = pace * (closed + 3 * low.shape[1])
            if seen > BOXES or time.perf_counter() + more > request.deadline:
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        ended = "interrupted"
    if left := low.shape[1] + stuck:  # what is left bounds the optimum too
        if best is None:
            raise SolverFailure(
                "boxes found no feasible point, and do not exclude one",
                f"{left} are left after {seen}",
                "narrow the bounds, or give more time",
            )
        ended = "time_limit" if ended == "optimal" else ended
        cuts.append(np.full(low.shape[1], -1, dtype=np.int8))
    tree = Boxes(program.entries, program.low, program.high, tuple(cuts), program.whole)
    if best is None:
        proof_of = NoPoint(problem, tree)
        raise Infeasible(
            "no point satisfies the constraints", str(proof_of), "diagnose()", certificate=proof_of
        )
    return ended, BoxProof(problem, tree, best[1])


def _extent(x: Floats, wide: NDArray[Any], width: Floats) -> Floats:
    """Return where ends lie: in units of the first box, on a logarithmic scale where it has none."""
    with np.errstate(all="ignore"):
        out: Floats = np.where(wide, np.arcsinh(np.clip(x, -FARTHEST, FARTHEST)), x / width)
    return out


def run_relaxed(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the semidefinite relaxation of a few quadratics; its multipliers bound the optimum."""
    from optfair.backends.solve import solve_as_asked
    from optfair.transforms.exactness import LagrangianProof, quadratic_lagrangian
    from optfair.transforms.relaxation import shor

    request.refuse_options(profile)
    begin = time.perf_counter()
    inside = replace(
        request, options={}, warm_start=None, tolerance=max(1e-10, 0.1 * request.tolerance)
    )
    try:
        lagrangian = quadratic_lagrangian(problem)
        forms, columns, rows, unit = in_units(lagrangian.forms)
        relaxation = shor(_written(forms))
        compiled_at = time.perf_counter()
        there = relaxation.recover(solve_as_asked(relaxation.problem, None, inside))
    except ClassError as e:
        raise UnsupportedProblem(e.cause, e.evidence, e.remedy) from e
    except (Infeasible, Unbounded) as e:
        word = "no point" if isinstance(e, Infeasible) else "no optimum"
        raise SolverFailure(f"its semidefinite relaxation has {word}", str(e.certificate)) from e
    seconds = stages(begin, compiled_at, time.perf_counter())
    x, y = columns * there["x"], unit * rows * lagrangian.vector(there.multipliers)
    values, multipliers = lagrangian.forms.by_name(x), lagrangian.by_name(y)
    return Outcome("optimal", values, multipliers, LagrangianProof(problem), seconds)


def _written(forms: QuadraticForms) -> Problem:
    """Return a problem that states quadratics, of one vector."""
    x = cp.Variable(forms.size, name="x")

    def of(f: QuadraticMap) -> Any:
        i, j = f.pairs
        linear = f.A @ x + f.b
        return linear + f.Q @ cp.multiply(x[i], x[j]) if i.size else linear

    goal = (cp.Minimize if forms.sense == "minimize" else cp.Maximize)(cp.sum(of(forms.total.map)))
    rows = [of(t.map) == 0 if t.set == "zero" else of(t.map) <= 0 for t in forms.constraints]
    return from_cvxpy(cp.Problem(goal, rows), [t.name for t in forms.constraints])
