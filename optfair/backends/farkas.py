"""Farkas certificates and rays: why a problem has no solution, or no end, checked on the compiled data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.quad_form import QuadForm
from numpy.typing import NDArray

from optfair.backends.cone_program import solve_cone_program
from optfair.backends.exact import (
    direction_nearby,
    exact_optimum,
    exact_slack,
    falls,
    violation,
)
from optfair.backends.integer_programs import completed, integers_of
from optfair.backends.linear_program import solve_linear_program
from optfair.backends.registry import claimed_unbounded, conic_interface
from optfair.compile.form import Compiled, compile_problem
from optfair.convexity.domain import Domain
from optfair.convexity.intervals import Interval
from optfair.convexity.reading import Unread, demanded, leaf_of, read, read_constraint
from optfair.core.canonical import built
from optfair.core.certificate import BEYOND, Certificate, Verdict, within
from optfair.core.problem_class import parts_of
from optfair.core.term import ConstraintTerm, Term, is_quadratic
from optfair.errors import DataError, SolverFailure, Unbounded
from optfair.numbers import Floats, Indices
from optfair.proofs.cones import Cone
from optfair.proofs.contradictions import candidates, infeasibility, simple
from optfair.proofs.points import feasible_near, recession_faults
from optfair.solution.conic_form import ConicForm
from optfair.solution.units import equilibrium
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Seconds that direction and start of a ray may take in fractions; the least power of two with an inverse.
EXACT, LEAST = 20.0, -1022.0


@dataclass(frozen=True, eq=False, repr=False)
class InfeasibilityProof(Certificate):
    r"""A vector z in the dual cone whose combination of the rows nothing can satisfy.

    For every x with b - Ax in the cone :math:`0 \le z^T(b - Ax) = b^T z - r^T x`, with
    :math:`r = A^T z`; so there is none when :math:`b^T z < \min_x r^T x` over the bounds that
    other rows put on x. Where nothing bounds a column, r must be 0 there, or so small that only
    points beyond 1e15 are left, which are none: the grade of `verify` says how far it goes. All
    of it is checked in exact arithmetic.

    Parameters
    ----------
    form : ConicForm
        The compiled constraints.
    z : array (m,)
        The Farkas vector.
    conflict : tuple of str
        Names of the terms that exclude each other.
    """

    form: ConicForm
    z: Floats
    conflict: tuple[str, ...] = ()
    states, of_objective = "no point satisfies the constraints", False

    def _faults(self, problem: Problem) -> tuple[str, ...]:
        from optfair.backends.recompilation import faults_anew as anew

        return self.verify().reasons or anew(problem, self.form, self._anew)

    def _anew(self, own: ConicForm, at: Indices) -> InfeasibilityProof | None:
        """Return it on a program that has its rows; chains count them in a form of their own."""
        if type(self) is InfeasibilityProof:
            return replace(self, form=own, z=np.bincount(at, self.z, own.b.size).astype(float))
        return None if own.rounded or self.form.rounded else self

    def verify(self) -> Verdict:
        """Recompute the contradiction, with everything that rounding leaves paid for."""
        proof = infeasibility(self.form, np.asarray(self.z, dtype=float))
        if proof.proved:
            return Verdict(True)
        if proof.columns is None:
            return Verdict(False, (proof.fault,))
        names = ", ".join(map(repr, self.form.column_names(proof.columns)))
        if proof.excludes:
            beyond = f"column {names} is free, and numbers from {BEYOND:.0e} on are no coordinates"
            return Verdict(True, (), within(proof.radius, beyond))
        because = f"not rigorous: free column {names}"
        grade = within(proof.radius, because)
        return Verdict(False, (f"it excludes points {grade.limits} only: {because}",), grade)

    @cached_property
    def limits(self) -> str:
        """For which points it is proved, in words; empty for all."""
        return self.verify().grade.limits

    def where(self, owned: Mapping[str, Indices]) -> str:
        """Return where constraints, by their rows, exclude each other, in words; empty for everywhere."""
        left = np.zeros(self.z.size)
        for rows in owned.values():
            left[rows] = 1.0
        alone = left.all() or _excluded(self.form, self.z, left)
        return "" if alone else "where the objective is finite"

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.conflict))
        return f"Farkas certificate over {names} {self.limits}".strip()


def carriers(multipliers: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the terms that carry a Farkas vector."""
    sizes = {k: float(np.abs(v).max(initial=0.0)) for k, v in multipliers.items()}
    largest = max(sizes.values(), default=0.0)
    return tuple(k for k, v in sizes.items() if v > 1e-4 * largest)


def proved_infeasible(
    form: ConicForm,
    z: NDArray[np.float64],
    owned: Mapping[str, NDArray[np.intp]],
    *,
    everywhere: bool = False,
) -> InfeasibilityProof | None:
    """Return a proof that verifies, from a vector that a solver reports.

    A solver leaves rounding where the vector has zeros. On rows that bound the objective by an
    auxiliary variable there is nothing else in that variable's column, so the rounding cancels
    with nothing; small entries are therefore set to zero as far as the proof needs it. Where the
    exact vector has few digits, rounding to these makes it exact: that is tried first.

    Parameters
    ----------
    form : ConicForm
        The compiled constraints.
    z : array (m,)
        What the solver reports.
    owned : mapping
        Name of a term -> its rows. The conflict of the proof are terms whose rows alone are proved
        to have no point in common.
    everywhere : bool
        Whether points beyond 1e15 must be excluded, too.
    """
    far: Floats | None = None
    for exact, repair in candidates(form, z):
        proof = infeasibility(form, exact, repair=repair)
        if proof.proved:
            return InfeasibilityProof(form, exact, _conflict(form, exact, owned))
        far = exact if far is None and proof.excludes and not everywhere else far
    return None if far is None else InfeasibilityProof(form, far, _conflict(form, far, owned))


def _conflict(
    form: ConicForm, z: NDArray[np.float64], owned: Mapping[str, NDArray[np.intp]]
) -> tuple[str, ...]:
    """Return terms whose rows exclude each other, few of them where that is proved.

    Those that carry the vector need not be enough: a small multiplier may be needed, and bounds
    that pay for what does not cancel may be implied by rows without any.
    """
    sizes = {name: np.abs(z[rows]) for name, rows in owned.items()}
    for names in (carriers(sizes), tuple(k for k, v in sizes.items() if v.any())):
        left = np.ones(z.size)
        left[[i for name in owned.keys() - set(names) for i in owned[name]]] = 0.0
        if left.all() or _excluded(form, z, left):
            return names
    return tuple(owned)


def _excluded(form: ConicForm, z: NDArray[np.float64], left: Floats) -> bool:
    """Whether a vector proves that no point satisfies the rows that are left."""
    A = sp.csc_array(sp.diags_array(left) @ form.A)
    A.eliminate_zeros()  # 0 is in every cone: a row of zeros excludes nothing
    return bool(infeasibility(replace(form, A=A, b=form.b * left), z * left).excludes)


def unbounded(
    problem: Problem,
    solver: str,
    point: Mapping[str, Any] | None = None,
    why: str = "",
    seconds: float | None = None,
) -> Unbounded | SolverFailure:
    """Return what to raise when a solver says unbounded: proved by a ray, or its word."""
    ray = find_ray(problem, point, seconds) if problem.problem_class.convex else None
    proved = None if ray is None else proved_unbounded(ray)
    return proved or claimed_unbounded(problem, solver, why)


def proved_unbounded(ray: Ray) -> Unbounded | None:
    """Return what to raise of a ray, None where it does not verify."""
    if not ray.verify():
        return None
    return Unbounded(
        f"the objective ({', '.join(map(repr, ray.problem.objective))}) improves without limit",
        f"{ray}, from a feasible point, verified on the compiled data",
        "bound the variables it depends on",
        ray=ray.direction,
        certificate=ray,
    )


# Steps along the ray at which the declared problem is evaluated.
STEPS = (1.0, 10.0, 100.0)


@dataclass(frozen=True, eq=False, repr=False)
class Ray(Certificate):
    r"""A direction d with :math:`-Ad \in K`, :math:`Pd = 0` and :math:`q^T d < 0`.

    From a feasible x every :math:`x + td`, :math:`t \ge 0`, is feasible, because K is a
    closed convex cone, and the objective falls by :math:`-q^T d` per unit of t. Integer
    variables stay integer where t is a multiple of `period`.

    Parameters
    ----------
    problem : Problem
        What is unbounded.
    d : array (n,)
        Direction in the columns of the compiled problem, largest entry 1 in size.
    start : array (n,) or None
        A point in the same columns; a feasible one is proved to be near it.
    tolerance : float
        Rounding allowed where the declared terms are evaluated along the ray.
    exact_d, exact_start : tuple of Fraction or None
        Direction, and of rows that are points and half-lines the point, themselves; `d` and `start`
        are their roundings. None where what is near the roundings is proved without them.
    """

    problem: Problem
    d: Floats
    start: Floats | None = None
    tolerance: float = 1e-7
    exact_d: tuple[Fraction, ...] | None = None
    exact_start: tuple[Fraction, ...] | None = None
    states = "the objective improves without limit"

    @cached_property
    def _compiled(self) -> Compiled:
        return self.anew()

    def anew(self) -> Compiled:
        """Compile what the direction and the point are proved on."""
        return compile_problem(relaxed(self.problem), conic_interface())

    @property
    def point(self) -> Any:
        """The point it starts from, by variable; None when there is none."""
        return None if self.start is None else self._compiled.by_name(self.start, None)[0]

    def verify(self) -> Verdict:
        """Prove direction and point on data compiled anew, and follow the declared terms."""
        compiled = self.anew()
        form = compiled.form
        if self.exact_d is None:
            reasons = recession_faults(form, self.d)
        else:
            down = _rounds(self.exact_d, self.d) and falls(form, self.exact_d)
            reasons = [] if down else ["its fractions are no direction of unlimited improvement"]
        if self.start is None:
            reasons.append("no feasible point goes with it: the problem may be infeasible")
        elif not self.starts(compiled):
            reasons.append("no feasible point is proved near the one it starts from")
        elif not reasons and self.period == 0:
            reasons.append("no multiple of it moves integer variables by integers")
        elif not reasons:
            reasons += self._along(compiled.by_name(self.d, None)[0])
        return Verdict(not reasons, tuple(reasons))

    def starts(self, compiled: Compiled) -> bool:
        """Whether a feasible point near the start is proved, integer variables held."""
        form, x = compiled.form, self.start
        if x is None or x.shape != form.q.shape:
            return False
        if self.exact_start is not None and not self.problem.integers:
            return _rounds(self.exact_start, x) and _satisfies(form, self.exact_start)
        A, b, cones = form.A, form.b, form.cones
        if self.problem.integers:
            places = compiled.places()
            held = np.unique(np.concatenate([places[k].ravel() for k in self.problem.integers]))
            held = held[held >= 0]
            x = x.copy()
            x[held] = np.round(x[held])
            A = sp.csc_array(sp.vstack([A, sp.eye_array(x.size, format="csr")[held]]))
            cones = (*cones, Cone("zero", b.size, b.size + held.size))
            b = np.concatenate([b, x[held]])
        step = feasible_near(A, b, cones, x)
        return step is not None and (form.polyhedral or self._declared(compiled, x, step))

    def _declared(self, compiled: Compiled, x: Floats, step: Floats) -> bool:
        """Whether terms that rows state by roots hold themselves, wherever the point is within a step."""
        boxes, places = {}, compiled.places()
        low, high = np.append(np.nextafter(x - step, -np.inf), 0.0), np.append(x + step, 0.0)
        for name, v in self.problem.variables.items():
            at = np.ravel(places[name], order="F")
            boxes[leaf_of(v)] = Interval.of(low[at], np.nextafter(high[at], np.inf))
        domain = Domain(boxes=boxes)
        try:
            for t in stated_by_roots(self.problem):
                e = built(t)
                if isinstance(t, ConstraintTerm):
                    facts = read_constraint(t.name, e, domain)
                    facts = facts and [*facts, *(f for a in e.args for f in demanded(a, domain))]
                else:
                    facts = demanded(e, domain)
                    if not np.isfinite(domain.range(read(e, domain).node).high).all():
                        return False
                holds = all((domain.range(f.node).high <= 0.0).all() for f in facts)
                if not (holds and (facts or not isinstance(t, ConstraintTerm))):
                    return False
        except (DataError, Unread):
            return False
        return True

    def _along(self, direction: dict[str, Floats]) -> list[str]:
        """Evaluate the declared constraints and objective from the point along the direction."""
        p = self.problem
        sign = 1.0 if p.sense == "minimize" else -1.0
        exactly = self.exact_d is not None and self.exact_start is not None
        start = {k: np.asarray(v, dtype=float) for k, v in self.point.items()}
        for name in p.integers:
            start[name] = np.round(start[name])
        reasons = []
        before = sign * p.objective_at(start)
        for t in (0.0, *(self.period * step for step in STEPS)):
            x = {k: v + t * direction[k] for k, v in start.items()}
            size = 1.0 + max((float(np.abs(v).max(initial=0.0)) for v in x.values()), default=0.0)
            for name in p.integers:
                off = float(np.abs(x[name] - np.round(x[name])).max(initial=0.0))
                if not off <= 10 * self.tolerance * size:
                    reasons.append(f"{name!r} is off an integer by {off:.1e} at step {t:g}")
            for name, term in p.constraints.items():
                off = term.relative_violation(x)
                if not off <= 10 * self.tolerance * size:
                    reasons.append(f"{name!r} is violated by {off:.1e} at step {t:g}")
            value = sign * p.objective_at(x)
            # what falls in fractions may fall by less than floats show beside large numbers
            if t > 0.0 and not (exactly or value < before):
                reasons.append(f"the objective does not improve at step {t:g}")
            before = value
        return reasons

    def in_fractions(self, seconds: float = EXACT) -> Ray:
        """Return the ray with direction and point in fractions, as far as they have some."""
        end = time.perf_counter() + seconds
        form, ray = self._compiled.form, self
        if ray.exact_d is None and (d := _exact_direction(form, self.d, end)) is not None:
            ray = replace(ray, d=np.array(d, dtype=float), exact_d=d)
        if ray.exact_start is None and not self.problem.integers:
            x = _vertex(_without_costs(form), end)
            ray = ray if x is None else replace(ray, start=np.array(x, dtype=float), exact_start=x)
        return ray

    @property
    def direction(self) -> dict[str, Floats]:
        """The direction by variable."""
        return self._compiled.by_name(self.d, None)[0]

    @property
    def period(self) -> int:
        """Steps after which integer variables are integer again; 0 when they never are."""
        moves = [v for k, v in self.direction.items() if k in self.problem.integers]
        period = 1
        for move in (float(m) for v in moves for m in np.unique(v)):
            nearest = Fraction(move).limit_denominator(1000)
            if abs(float(nearest) - move) > 1e-9:
                return 0
            period = lcm(period, nearest.denominator)
        return period if period <= 10**6 else 0

    @property
    def rate(self) -> float:
        """Change of the declared objective per unit of the direction."""
        form = self._compiled.form
        return float(form.sign * (form.q @ self.d))

    def __str__(self) -> str:
        moving = [k for k, v in self.direction.items() if np.abs(v).max(initial=0.0) > 0.0]
        return f"a ray along {', '.join(map(repr, moving))} with rate {self.rate:.6g}"

    __repr__ = __str__


def stated_by_roots(problem: Problem) -> list[Term]:
    """Return the terms whose rows have rounded roots: of matrices, or by formulas of their own."""
    return [
        t
        for t in problem.terms
        if t.evidence.proof is not None or any(isinstance(n, QuadForm) for n in parts_of(built(t)))
        if isinstance(t, ConstraintTerm) or not is_quadratic(built(t))
    ]


def find_ray(
    problem: Problem,
    point: Mapping[str, Any] | None = None,
    seconds: float | None = None,
    first: Ray | None = None,
) -> Ray | None:
    r"""Return a ray of a convex problem, None when none is proved.

    The shortest ray moves few variables, so it says what is not bounded:

    .. math::
        \min_d \; \|d\|_1 \quad \text{s.t.} \quad -Ad \in K, \; Pd = 0, \; q^T d = -\|q\|_\infty

    Its `verify` also proves that a feasible point goes with it.

    Parameters
    ----------
    problem : Problem
        Convex; integer variables are taken as continuous.
    point : mapping, optional
        A feasible point by variable, if one is known.
    seconds : float, optional
        Time it may take.
    first : Ray, optional
        One that says which program it is sought of.
    """
    end = time.perf_counter() + (EXACT if seconds is None else min(EXACT, seconds))
    first = first or Ray(problem, np.zeros(0))
    compiled = first.anew()
    form = compiled.form
    linear = all(c.kind in ("zero", "nonneg") for c in form.cones)
    rows, columns = np.ones(form.b.size), np.ones(form.q.size)
    # the shortest; else that in other units of columns, or one with room to every curved cone
    other = equilibrium(form)[1] if linear else columns
    for unit, cost in ((columns, 1.0), (other, float(linear))):
        own = form.in_units(rows, unit)
        d = _shortest(own, seconds, cost)
        ray = None if d is None else _exact(first, form, own, unit, d, end)
        if ray is not None:
            return _begun(ray, compiled, point, end)
    return None


def _exact(
    first: Ray, form: ConicForm, own: ConicForm, unit: Floats, d: Floats, end: float
) -> Ray | None:
    """Return the simplest direction near d, of the form with columns in units, proved to be a ray."""
    d = d / np.abs(d).max()
    unit = unit * np.exp2(-np.round(np.log2(np.abs(d * unit).max())))
    kept = [np.where(np.abs(d) > cut, d, 0.0) for cut in (1e-6, 1e-9, 0.0)]
    near = [w for v in kept for w in (np.round(v, 9), v)]
    near += simple(d, None if own.units is None else own.units[1])
    rays = (replace(first, d=c * unit) for c in near)
    ray = next((r for r in rays if not recession_faults(form, r.d)), None)
    if ray is None and (moved := _exact_direction(own, d, end)) is not None:
        direction = tuple(v * Fraction(u) for v, u in zip(moved, unit.tolist(), strict=True))
        ray = replace(first, d=np.array(direction, dtype=float), exact_d=direction)
    return ray


def _begun(ray: Ray, compiled: Compiled, point: Mapping[str, Any] | None, end: float) -> Ray:
    """Return a ray with a point that it starts from, proved where one is."""
    for start, fractions in _starts(ray.problem, compiled, point, end):
        for far in (0, ray.period) if fractions is None else (0,):  # there may be more room
            at = None if start is None else start + far * ray.d
            begun = replace(ray, start=at, exact_start=fractions)
            if begun.starts(compiled):
                return begun
    return begun


def _exact_direction(form: ConicForm, d: Floats, end: float) -> tuple[Fraction, ...] | None:
    """Return a direction in fractions that moves the columns that d moves.

    Equations between decimals have no solution in floats; a vertex has one in fractions.
    """
    at = np.flatnonzero(np.abs(d) > 1e-9 * np.abs(d).max(initial=0.0))
    if not form.polyhedral or not at.size:
        near = direction_nearby(form, d)
        return near if near is not None and falls(form, near) else None
    m = form.b.size
    own = replace(
        form,
        P=sp.csc_array((at.size, at.size)),
        q=np.sign(d[at]),
        offset=0.0,
        A=sp.csc_array(sp.vstack([sp.csc_array(form.A)[:, at], sp.csc_array(form.q[None, at])])),
        b=np.append(np.zeros(m), -np.abs(form.q).max()),
        cones=(*form.cones, Cone("zero", m, m + 1)),
        columns={},
    )
    moved = _vertex(own, end)
    if moved is None:
        return None
    largest = max(abs(v) for v in moved)
    direction = [Fraction(0)] * d.size
    for j, v in zip(at.tolist(), moved, strict=True):
        direction[j] = v / largest
    return tuple(direction)


def _vertex(form: ConicForm, end: float) -> tuple[Fraction, ...] | None:
    """Return an optimal point of a polyhedral form in fractions; None where none is found."""
    if not form.polyhedral:
        return None
    try:
        return tuple(exact_optimum(form, max(0.0, end - time.perf_counter()))[0])
    except SolverFailure:
        return None


def _rounds(fractions: tuple[Fraction, ...], v: Floats) -> bool:
    """Whether a vector holds these fractions, rounded."""
    return len(fractions) == v.size and np.array_equal(np.array(fractions, dtype=float), v)


def _satisfies(form: ConicForm, x: tuple[Fraction, ...]) -> bool:
    """Whether a point satisfies every row exactly."""
    own = _without_costs(form)
    return own.polyhedral and violation(own, exact_slack(own, list(x))) == 0


def _without_costs(form: ConicForm) -> ConicForm:
    """Return the rows alone: they are points and half-lines whatever the objective is."""
    n = form.q.size
    return replace(form, P=sp.csc_array((n, n)), q=np.zeros(n), offset=0.0)


def _starts(
    problem: Problem, compiled: Compiled, point: Mapping[str, Any] | None, end: float
) -> Iterator[tuple[Floats | None, tuple[Fraction, ...] | None]]:
    """Yield points in all columns: the one that is known, one with room, a vertex and its fractions."""
    form, inside = compiled.form, None
    if point is not None:
        x = np.full(form.q.size, np.nan)
        for name, place in compiled.places().items():
            known = place >= 0
            x[place[known]] = np.asarray(point[name], dtype=float)[known]
        if np.isfinite(x).all():
            yield x, None
        elif problem.integers:
            yield completed(form, integers_of(problem, compiled, point)), None
    if not problem.integers:
        own = _without_costs(form)
        room = solve_cone_program(own.P, own.q, own.A, own.b, own.cones, tolerance=1e-9)
        inside = room.x if room.status == "optimal" else None
        if inside is not None:
            yield inside, None
        if (vertex := _vertex(own, end)) is not None:
            yield np.array(vertex, dtype=float), vertex
    yield inside, None


def _shortest(form: ConicForm, seconds: float | None, weight: float) -> Floats | None:
    """Solve for the ray of least 1-norm: with d the difference of two nonnegative parts."""
    n, m = form.q.size, form.b.size
    largest = float(np.abs(form.q).max(initial=0.0))
    if largest == 0.0:
        return None
    limit = np.inf if seconds is None else seconds
    q = sp.csc_array(form.q[None, :] / largest)
    linear = all(c.kind in ("zero", "nonneg") for c in form.cones)
    A = form.A
    if linear:  # no row has a side, so each may be in a unit of its own
        sizes = np.asarray(abs(form.rows).max(axis=1).todense()).ravel()
        powers = np.round(np.log2(np.where(sizes > 0.0, sizes, 1.0)))
        A = sp.diags_array(np.exp2(-np.maximum(powers, LEAST))) @ A
    half = sp.vstack([A, form.P, q])
    both = sp.csc_array(sp.hstack([half, -half]))
    sides, cost = np.append(np.zeros(m + n), -1.0), np.full(2 * n, weight)
    answer: Any
    if linear:
        lower = np.where(np.append(form.nonnegative, np.zeros(n + 1, dtype=bool)), -np.inf, sides)
        least, most = np.zeros(2 * n), np.full(2 * n, np.inf)
        answer = solve_linear_program(cost, both, lower, sides, least, most, time_limit=limit)
    else:
        cones = (*form.cones, Cone("zero", m, m + n + 1), Cone("nonneg", m + n + 1, m + 3 * n + 1))
        rows = sp.csc_array(sp.vstack([both, -sp.eye_array(2 * n)]))
        b = np.concatenate([sides, np.zeros(2 * n)])
        flat = sp.csc_array((2 * n, 2 * n))
        answer = solve_cone_program(flat, cost, rows, b, cones, tolerance=1e-10, time_limit=limit)
    x = answer.x
    return x[:n] - x[n:] if answer.status == "optimal" and x.any() else None
