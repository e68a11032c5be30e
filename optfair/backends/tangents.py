"""Convex programs without cones: tangents of proved functions, cut until the gap closes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints import Inequality, NonPos

from optfair.backends.boxes import excluded_by_ranges
from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.local_optima import Point, definition, inside, local_optimum, middle_of
from optfair.backends.registry import choose, claimed_infeasible
from optfair.backends.request import SMALL, Outcome, Request, SolverProfile
from optfair.compile.form import compile_problem
from optfair.convexity.derivatives import gradient_at
from optfair.convexity.domain import IMPLIED, Domain, Fact
from optfair.convexity.expression import Leaf, Node, affine
from optfair.convexity.intervals import Interval
from optfair.convexity.proof import CurvatureProof, within
from optfair.convexity.prove import proved_where
from optfair.convexity.reading import Unread, leaf_of, read, read_constraint
from optfair.core.canonical import built
from optfair.core.certificate import Certificate, DualCheck, Verdict, drift
from optfair.core.composition import constraint_term, objective_term
from optfair.core.expressions import Values
from optfair.core.identity import fingerprint
from optfair.core.labels import free_name
from optfair.core.term import ConstraintTerm, Term
from optfair.errors import DataError, Infeasible, OptfairError, Unbounded, UnsupportedProblem
from optfair.numbers import Floats
from optfair.transforms.relaxation import relaxed as continuous

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution


# Rounds of cutting, and those with integers: each cuts a point off.
ROUNDS, LATTICE = 60, 1_000
# Rounds that must close a thousandth of the gap together.
STALLED = 12
# A box that is so much wider to one side of a point than to the other.
LOPSIDED = 100.0
# How much a start is moved towards the middle of the box where a slope is infinite.
INWARD = (0.0, 1e-6, 1e-3, 0.1, 0.5)
# Tangents at most until a relaxation has a limit, and growth of the cube in which they are sought.
FIRST, GROWTH, CLOSED = 60, 10.0, 1e-6
# A start where numbers of a tangent are so large may be in another unit than the data.
FAR = 1e9


@dataclass(frozen=True, eq=False)
class Curved:
    """A term that was proved convex, or concave, and is replaced by tangents.

    Attributes
    ----------
    term : Term
        As declared.
    proof : CurvatureProof
        Of its curvature.
    node : Node
        Its function in normal form.
    sign : float
        1 where it is convex, -1 where concave.
    domain : Domain
        Where it was proved, and its functions are defined.
    """

    term: Term
    proof: CurvatureProof
    node: Node
    sign: float
    domain: Domain

    @classmethod
    def of(cls, term: Term, sense: str) -> Curved:
        """Return a term with its function."""
        sign = 1.0 if isinstance(term, ConstraintTerm) or sense == "minimize" else -1.0
        proof = term.evidence.proof or _by_rules(term, "convex" if sign > 0 else "concave")
        if proof is None:
            raise UnsupportedProblem(f"{term.name!r} has no proof of its curvature")
        reading = read(proof.expression, proof.domain)
        if reading.curved:
            raise UnsupportedProblem(
                f"{term.name!r} is defined where a function that is not affine is not negative"
            )
        return cls(term, proof, reading.node, sign, reading.domain)

    def tangent(self, point: Point, boxes: Domain) -> tuple[Floats, dict[Leaf, Floats]] | None:
        r"""Return c, G with :math:`f(x) \ge c + G x` within boxes, below a convex f.

        Of a concave function -f is taken. With f and its gradient enclosed at the point,

        .. math:: f(x) - G x \ge f(x_k) - G x_k + (\nabla f(x_k) - G)(x - x_k),

        and the last product is enclosed over the box. G lies in the middle of the enclosure, or at
        its end where the box is far wider to one side: then that side costs nothing.
        """
        own = {leaf: point[leaf] for leaf in self.node.leaves}
        if not within(point, self.domain):
            return None
        enclosed = gradient_at(self.node, own)
        if enclosed is None:
            return None
        value, slopes = enclosed
        total = value if self.sign > 0 else -value
        G: dict[Leaf, Floats] = {}
        for leaf, slope in slopes.items():
            g = slope if self.sign > 0 else -slope
            if not (np.isfinite(g.low).all() and np.isfinite(g.high).all()):
                return None
            x, box = Interval.exactly(own[leaf]), boxes.box(leaf)
            right, left = box.high - own[leaf], own[leaf] - box.low
            middle = np.where(right > LOPSIDED * left, g.low, g.low + (g.high - g.low) / 2)
            middle = np.where(left > LOPSIDED * right, g.high, middle)
            off = (g - Interval.exactly(middle)) * (box - x)[None]
            step = Interval.exactly(middle) * x[None]
            for j in range(leaf.size):
                total = total - step[:, j] + off[:, j]
            G[leaf] = middle
        if not np.isfinite(total.low).all():
            return None
        return total.low, G

    def value(self, point: Point) -> Interval:
        """Return enclosures of the function."""
        enclosed = gradient_at(self.node, {leaf: point[leaf] for leaf in self.node.leaves})
        return Interval.of(-np.inf, np.inf) if enclosed is None else enclosed[0]


@dataclass(frozen=True, eq=False)
class TangentProof:
    """A bound from a relaxation: proved functions replaced by tangents at stored points.

    Attributes
    ----------
    problem : Problem
        Whose optimum it bounds.
    points : tuple
        Where the tangents touch.
    relaxed : Solution
        Of the relaxation, with its own proof.
    values, multipliers : mapping
        The numbers it is about.
    """

    problem: Problem
    points: tuple[Values, ...]
    relaxed: Solution
    values: Values
    multipliers: Mapping[str, Any]
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Check every proof of curvature, make the tangents anew, and recompute their bound."""
        again = _made_anew(self.problem, self.points)
        same = again is not None and fingerprint(again) == fingerprint(self.relaxed.problem)
        own = self.relaxed.proof
        if own is None or not same:
            return DualCheck(-np.inf if self.problem.sense == "minimize" else np.inf, np.inf)
        inner = own.check(self.relaxed.values, self.relaxed.multipliers)
        apart = max(drift(values, self.values), drift(multipliers, self.multipliers))
        return replace(
            inner, consistency=max(inner.consistency, apart), complementarity=0.0, rows=0.0
        )


@dataclass(frozen=True, eq=False, repr=False)
class TangentContradiction(InfeasibilityProof):
    """A Farkas vector of a relaxation: what tangents of proved functions exclude, they exclude.

    Attributes
    ----------
    problem : Problem
        Of which no point satisfies the constraints.
    points : tuple
        Where the tangents touch.
    """

    problem: Problem = field(kw_only=True)
    points: tuple[Values, ...] = field(kw_only=True)

    def _faults(self, problem: Problem) -> tuple[str, ...]:
        """Return why this is no proof about a problem: its rows are made of the declared one."""
        return Certificate._faults(self, problem)

    def verify(self) -> Verdict:
        """Check every proof of curvature, make the tangents anew, and the vector on their rows."""
        again = _made_anew(self.problem, self.points)
        if again is None:
            return Verdict(False, ("a curvature is not proved, or a point is of another problem",))
        for profile in choose(again, None):
            try:
                form = compile_problem(again, profile.compile_as or profile.cvxpy_name).form
            except OptfairError:
                continue
            if form.cones == self.form.cones:
                return InfeasibilityProof(form, self.z).verify().everywhere
        return Verdict(False, ("its rows are not those of the problem and its tangents",))

    def __str__(self) -> str:
        return f"{super().__str__()}, by {len(self.points)} tangents"

    __repr__ = __str__


def _excluded(
    problem: Problem, solver: str, points: list[Point], domain: Domain, e: Infeasible
) -> OptfairError:
    """Return that no point satisfies the constraints, as what tangents exclude shows."""
    certificate = e.certificate
    if not isinstance(certificate, InfeasibilityProof):
        return claimed_infeasible(problem, solver, e.evidence)
    bent = {t.name for t in _curved(problem)}
    bounds = {fact.name for fact in domain.facts}
    within = {*e.conflict} | (bent | bounds if {*e.conflict} - {*problem.constraints} else set())
    names = tuple(name for name in problem.constraints if name in within)
    named = _named(problem, points)
    proof = TangentContradiction(
        certificate.form, certificate.z, names, problem=problem, points=named
    )
    if not (verdict := proof.verify()):
        return claimed_infeasible(problem, solver, "; ".join(verdict.reasons))
    return Infeasible.of(proof, names)


def _named(problem: Problem, points: Iterable[Point]) -> tuple[Values, ...]:
    """Return points by the names of variables: those of a loaded problem are others."""
    names = {leaf_of(v): name for name, v in problem.variables.items()}
    return tuple({names[leaf]: x for leaf, x in point.items()} for point in points)


def _made_anew(problem: Problem, named: tuple[Values, ...]) -> Problem | None:
    """Return the relaxation by tangents at some points, None where a curvature is not proved."""
    leaves = {name: leaf_of(v) for name, v in problem.variables.items()}
    if any({*point} != {*leaves} for point in named):
        return None
    points = tuple({leaves[name]: x for name, x in point.items()} for point in named)
    curved = [Curved.of(t, problem.sense) for t in _curved(problem)]
    if not all(c.proof.verify() for c in curved):
        return None
    return _relaxation(problem, curved, points, _domain(problem, curved))


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Start from a local point, cut by tangents, and stop when bound and value meet."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    curved = [Curved.of(t, problem.sense) for t in _curved(problem)]
    if not curved:
        raise UnsupportedProblem(
            "tangents need a term whose curvature is proved beyond composition rules",
            "no term of this problem is",
            "leave the choice of a solver to the policy",
        )
    leaves = {name: leaf_of(v) for name, v in problem.variables.items()}
    domain = _domain(problem, curved)
    if domain.empty and (excluded := excluded_by_ranges(problem)) is not None:
        raise excluded
    bare = any("nonlinear" in c.term.evidence.problem_class.cones for c in curved)
    whole = [leaves[name] for name in sorted(problem.integers)]
    if not (bare or whole or all(_bounded(n, domain) for c in curved for n in c.node.leaves)):
        raise UnsupportedProblem(
            "tangents prove little without bounds on the variables",
            "a variable of a curved term has none on one side",
            "choose a solver of cones, or state bounds",
        )
    defined = definition(problem)
    begun = time.perf_counter()
    best: tuple[float, dict[str, Floats]] | None = None
    sign = 1.0 if problem.sense == "minimize" else -1.0

    def offer(point: Point) -> None:
        nonlocal best
        values = {
            n: np.reshape(point[leaf], problem.variables[n].shape, order="F")
            for n, leaf in leaves.items()
        }
        worst = max(
            (t.relative_violation(values) for t in problem.constraints.values()), default=0.0
        )
        value = sign * problem.objective_at(values)
        if (
            worst <= 0.1 * request.tolerance
            and np.isfinite(value)
            and defined(point, 0.1 * request.tolerance)
            and (best is None or value < best[0])
        ):
            best = value, values

    points: list[Point] = []
    start = _start(leaves, curved, domain)
    local = local_optimum(problem, leaves, domain, start, request.deadline)
    tried: set[bytes] = set()
    for given in (start, *([] if local is None else [local])):
        touching = _touching(given, curved, domain)
        if touching is not None:
            points.append(touching)
    if local is not None and not whole:
        offer(local)
    relaxed: Solution | None = None
    program: Problem | None = None
    status, bounds = "inaccurate", list[float]()
    fresh = -STALLED  # the last round with other integers
    for k in range(LATTICE if whole else ROUNDS):
        again = replace(
            request, options={}, warm_start=None, tolerance=max(1e-10, 0.1 * request.tolerance)
        )
        if not k and points:
            points += _first(problem, curved, points, domain, again)
        program = _relaxation(problem, curved, points, domain, program)
        try:
            relaxed = _solved(program, again)
        except Infeasible as e:  # what the tangents exclude, the functions exclude
            raise _excluded(problem, profile.name, points, domain, e) from None
        except Unbounded as e:
            if relaxed is None:
                raise UnsupportedProblem(
                    "tangents bound nothing here: without the curved terms there is no limit",
                    e.evidence,
                    "state bounds"
                    if bare or whole
                    else "choose a solver of cones, or state bounds",
                ) from None
            break
        except OptfairError:
            if relaxed is None:
                raise
            break  # the bound of the round before stands, whatever failed in this one
        x = {leaf: np.ravel(relaxed.values[n], order="F") for n, leaf in leaves.items()}
        x |= {leaf: np.round(x[leaf]) for leaf in whole}
        offer(x)
        known = b"".join(x[leaf].tobytes() for leaf in whole)
        if whole and known not in tried:  # the best continuous values at these integers
            tried.add(known)
            fresh = k
            there = {leaf: Interval.exactly(x[leaf]) for leaf in whole}
            fixed = domain.extended(boxes=there)
            best_there = local_optimum(problem, leaves, fixed, x, request.deadline)
            if best_there is not None:
                offer(best_there)
                touching = _touching(best_there, curved, domain)
                points += [] if touching is None else [touching]
        bound = sign * relaxed.bound
        if best is not None and best[0] - bound <= 0.5 * request.tolerance * max(
            SMALL, abs(best[0])
        ):
            status = "optimal"
            break
        bounds.append(bound)
        if time.perf_counter() > request.deadline:
            status = "time_limit"
            break
        gained = bound - bounds[-STALLED - 1] if len(bounds) > STALLED else np.inf
        settled = best is not None and gained <= 1e-3 * (best[0] - bound)
        if settled and k - fresh >= STALLED:
            break
        if best is not None and not whole:
            near = {leaf: np.ravel(best[1][n], order="F") for n, leaf in leaves.items()}
            x = {leaf: (x[leaf] + near[leaf]) / 2 for leaf in x} if len(points) % 2 else x
            offer(x)
        touching = _touching(inside(x, domain), curved, domain)
        if touching is None:
            break
        points.append(touching)
    seconds = {"compile": begun - begin, "solve": time.perf_counter() - begun}
    if relaxed is None:
        return Outcome("failed", {} if best is None else best[1], {}, None, seconds)
    values = best[1] if best is not None else {n: relaxed.values[n] for n in leaves}
    multipliers = _multipliers(problem, relaxed, len(points))
    used = points[: len([n for n in relaxed.problem.constraints if n.startswith(_PREFIX)])]
    proof = TangentProof(problem, _named(problem, used), relaxed, values, multipliers)
    return Outcome(status, values, multipliers, proof, seconds)


_PREFIX, _HEIGHT = "tangents at ", "height of "


def _bounded(leaf: Leaf, domain: Domain) -> bool:
    box = domain.box(leaf)
    return bool(np.isfinite(box.low).all() and np.isfinite(box.high).all())


def _curved(problem: Problem) -> list[Term]:
    """Return the proved terms without cones; where all have some, every proved term."""
    proved = [t for t in problem.terms if t.evidence.proof is not None]
    if problem.integers:  # what is left is given to branch and bound, which knows no such cones
        return [
            t
            for t in problem.terms
            if t in proved or t.evidence.problem_class.cones & {"exp", "pow"}
        ]
    bare = [t for t in proved if "nonlinear" in t.evidence.problem_class.cones]
    return bare or proved


def _by_rules(term: Term, kind: str) -> CurvatureProof | None:
    """Return the proof of a term that obeys composition rules, None where it has no function."""
    written = built(term)
    if isinstance(term, ConstraintTerm) and not isinstance(written, (Inequality, NonPos)):
        return None
    expression = written.expr if isinstance(term, ConstraintTerm) else written
    proof = proved_where(expression, {}, kind, 0.5)
    return proof if isinstance(proof, CurvatureProof) else None


def _domain(problem: Problem, curved: list[Curved]) -> Domain:
    """Return what all proofs know of the variables, and the bounds of the others."""
    facts: dict[Any, Fact] = {}
    for c in curved:
        for fact in c.domain.facts:
            facts.setdefault((fact.name, fact.node), fact)
    domain = Domain(facts.values())
    known = domain.names
    rows: list[Fact] = []
    for name, t in problem.constraints.items():
        if name not in known and t.evidence.function == "affine" and hasattr(built(t), "args"):
            rows += read_constraint(name, built(t), domain)
    domain = domain.extended(rows)
    bent = [
        f
        for name, t in problem.constraints.items()
        if name not in known and t.evidence.function != "affine"
        for f in _row(t, domain)
    ]
    return domain.extended(bent)


def _row(term: Term, domain: Domain) -> list[Fact]:
    """Return what a curved constraint says, and so of ranges."""
    try:
        return read_constraint(term.name, built(term), domain)
    except (DataError, Unread):
        return []


def _touching(point: Point, curved: list[Curved], domain: Domain) -> Point | None:
    """Return a point near the given one at which every function has a tangent."""
    middle = inside(middle_of({n.name: n for n in point}, domain), domain)
    for share in INWARD:
        near = {n: x + share * (middle[n] - x) for n, x in point.items()}
        if all(c.tangent(near, domain) is not None for c in curved):
            return near
    return None


def _start(leaves: Mapping[str, Leaf], curved: list[Curved], domain: Domain) -> Point:
    """Return the middle of the boxes, or nearer to 0 where tangents have no numbers that are FAR."""
    middle = inside(middle_of(leaves, domain), domain)
    near = inside({leaf: np.zeros(leaf.size) for leaf in leaves.values()}, domain)
    for share in (1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        point = {n: x + share * (middle[n] - x) for n, x in near.items()}
        cuts = [c.tangent(point, domain) for c in curved]
        if all(
            cut and max(np.abs(v).max() for v in (cut[0], *cut[1].values())) < FAR for cut in cuts
        ):
            return point
    return middle


def _relaxation(
    problem: Problem,
    curved: list[Curved],
    points: Any,
    domain: Domain,
    earlier: Problem | None = None,
) -> Problem:
    """Return the problem with tangents in place of its curved terms, after those that it has."""
    flat = {leaf_of(v): cp.reshape(v, (v.size,), order="F") for v in problem.variables.values()}
    base = _without_curves(problem, curved, domain) if earlier is None else earlier
    rows, known = dict(base.constraints), base.names
    heights = {n: base.variables.get(f"{_HEIGHT}{n}") for n in problem.objective}
    for k in range(sum(n.startswith(_PREFIX) for n in rows), len(points)):
        parts = []
        for c in curved:
            cut = c.tangent(points[k], domain)
            if cut is None:
                continue
            offset, G = cut
            line: Any = offset + sum(g @ flat[leaf] for leaf, g in G.items())
            v = heights.get(c.term.name)
            parts.append(line if v is None else line - v if c.sign > 0 else line + v)
        name = f"{_PREFIX}{k}"
        rows[name] = constraint_term(name, cp.hstack(parts) <= 0, known)
    made: Problem = base.with_terms(base.objective, rows)
    return made


def _without_curves(problem: Problem, curved: list[Curved], domain: Domain) -> Problem:
    """Return the problem with a variable for each curved objective, and bounds that curves imply."""
    names = {c.term.name for c in curved}
    flat = {leaf_of(v): cp.reshape(v, (v.size,), order="F") for v in problem.variables.values()}
    heights = {
        c.term.name: cp.Variable(name=f"{_HEIGHT}{c.term.name}")
        for c in curved
        if c.term.name in problem.objective
    }
    with_heights = problem.with_terms(
        {n: t for n, t in problem.objective.items() if n not in names},
        {n: t for n, t in problem.constraints.items() if n not in names},
    ).with_variables({v.name(): v for v in heights.values()})
    known = with_heights.names
    goals = dict(with_heights.objective)
    for name, v in heights.items():
        goals[name] = objective_term(name, v, known, problem.sense)
    rows = dict(with_heights.constraints)
    straight = Domain([f for f in domain.facts if affine(f.node) and f.name != IMPLIED])
    for leaf, v in flat.items():
        box, plain = domain.box(leaf), straight.box(leaf)
        low = np.isfinite(box.low) & (box.low > plain.low)
        high = np.isfinite(box.high) & (box.high < plain.high)
        for at, side in ((low, "low"), (high, "high")):
            if at.any():
                name = free_name(f"{leaf.name} {side} as curves imply", rows)
                own = v[at] - getattr(box, side)[at]
                rows[name] = constraint_term(name, own >= 0 if at is low else own <= 0, known)
    made: Problem = with_heights.with_terms(goals, rows)
    return made


def _solved(program: Problem, request: Request) -> Solution:
    from optfair.backends.solve import solve_as_asked

    return solve_as_asked(program, None, request)


def _first(
    problem: Problem, curved: list[Curved], points: list[Point], domain: Domain, request: Request
) -> list[Point]:
    """Return points whose tangents, after the given ones, give the relaxation a limit.

    Its optimum in a cube about the last point is cut off until that touches no side, or until a
    larger cube makes no difference; the cube grows where a cut makes none.
    """
    center, more, last, grown = points[-1], list[Point](), -np.inf, False
    own = {leaf_of(v): (n, v) for n, v in problem.variables.items()}
    if all(_bounded(leaf, domain) for leaf in own):
        return more
    sign, program = 1.0 if problem.sense == "minimize" else -1.0, None
    reach = max((float(np.abs(x).max(initial=0.0)) for x in center.values()), default=0.0) or 1.0
    for _ in range(FIRST):
        program = _relaxation(problem, curved, [*points, *more], domain, program)
        sides = []
        for leaf, (_, v) in own.items():
            off = cp.vec(v, order="F") - center[leaf]
            sides += [off - reach, -reach - off]
        cube = constraint_term("cube", cp.hstack(sides) <= 0, program.names)
        rows = {**program.constraints, free_name("cube", program.constraints): cube}
        try:
            s = _solved(continuous(program.with_terms(program.objective, rows)), request)
        except OptfairError:
            break  # the relaxation itself says what is the matter
        x = {leaf: np.ravel(s.values[n], order="F") for leaf, (n, _) in own.items()}
        value, little = sign * s.objective, CLOSED * max(SMALL, abs(last))
        free = all((np.abs(x[n] - center[n]) < 0.999 * reach).all() for n in own)
        if free or (grown and value >= last - little):
            break
        touching = _touching(inside(x, domain), curved, domain)
        grown = not grown and value <= last + little
        last = value
        if grown:
            reach *= GROWTH
        elif touching is None:
            break
        else:
            more.append(touching)
    return more


def _multipliers(problem: Problem, relaxed: Solution, count: int) -> dict[str, Any]:
    """Return the multipliers of the declared constraints; those of tangents belong to their term."""
    out: dict[str, Any] = {}
    curved = _curved(problem)
    sums: dict[str, Floats] = {}
    for name, z in relaxed.multipliers.items():
        if not name.startswith(_PREFIX):
            if name in problem.constraints:
                out[name] = z
            continue
        flat, at = np.ravel(np.asarray(z, dtype=float)), 0
        for t in curved:
            size = int(np.prod(t.shape)) if isinstance(t, ConstraintTerm) else 1
            part = flat[at : at + size]
            sums[t.name] = sums.get(t.name, np.zeros(size)) + part
            at += size
    for t in curved:
        if isinstance(t, ConstraintTerm) and t.name in sums:
            out[t.name] = np.reshape(sums[t.name], t.shape, order="F")
    return out
