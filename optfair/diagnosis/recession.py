"""Rays: directions along which the objective improves without limit."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.cone_program import solve_cone_program
from optfair.backends.linear_program import solve_linear_program
from optfair.backends.policy import conic_interface
from optfair.compile.conic import Compiled, compile_problem
from optfair.core.certificate import Certificate, Verdict
from optfair.diagnosis.clock import Clock
from optfair.diagnosis.system import relaxed
from optfair.solution.conic_form import Cone, ConicForm

if TYPE_CHECKING:
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["Ray", "find_ray"]

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
    point : mapping or None
        A feasible point by variable.
    tolerance : float
        Rounding allowed, relative to the size of the terms.
    """

    problem: Problem
    d: Floats
    point: Any = None
    tolerance: float = 1e-7

    def _compiled(self) -> Compiled:
        continuous = relaxed(self.problem)
        return compile_problem(continuous, conic_interface(), {})

    def verify(self) -> Verdict:
        """Check the three conditions on data compiled anew, and the declared terms along the ray."""
        compiled = self._compiled()
        reasons = ray_faults(compiled.form, self.d, self.tolerance)
        if self.point is None:
            reasons.append("no feasible point goes with it: the problem may be infeasible")
        elif not reasons and self.period == 0:
            reasons.append("no multiple of it moves integer variables by integers")
        elif not reasons:
            reasons += self._along(compiled.by_name(self.d, None)[0])
        return Verdict(not reasons, tuple(reasons))

    def _along(self, direction: dict[str, Floats]) -> list[str]:
        """Evaluate the declared constraints and objective from the point along the direction."""
        p = self.problem
        sign = 1.0 if p.sense == "minimize" else -1.0
        if set(self.point) != set(direction):
            return ["the point has other variables"]
        start = {k: np.asarray(v, dtype=float) for k, v in self.point.items()}
        reasons = []
        before = sign * p.objective_value(start)
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
            value = sign * p.objective_value(x)
            if t > 0.0 and not value < before:
                reasons.append(f"the objective does not improve at step {t:g}")
            before = value
        return reasons

    @property
    def direction(self) -> dict[str, Floats]:
        """The direction by variable."""
        return self._compiled().by_name(self.d, None)[0]

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
        form = self._compiled().form
        return float(form.sign * (form.q @ self.d))

    def __str__(self) -> str:
        moving = [k for k, v in self.direction.items() if np.abs(v).max(initial=0.0) > 0.0]
        return f"a ray along {', '.join(map(repr, moving))} with rate {self.rate:.6g}"

    __repr__ = __str__


def ray_faults(form: ConicForm, d: Floats, tolerance: float) -> list[str]:
    """Return what is wrong with a direction, empty when it is a ray."""
    if d.shape != form.q.shape or not np.isfinite(d).all() or not np.abs(d).max(initial=0.0) > 0.0:
        return ["it is not a direction of the compiled problem"]
    d = d / np.abs(d).max()
    reasons = []
    s = -(form.A @ d)
    size = abs(form.A) @ np.abs(d)
    for c in form.cones:
        scale = max(1.0, float(size[c.start : c.stop].max(initial=0.0)))
        off = c.distance(s[c.start : c.stop]) / scale
        if off > tolerance:
            reasons.append(f"it leaves the recession cone ({c.kind}) by {off:.1e}")
            break
    bend = np.abs(form.P @ d).max(initial=0.0)
    most = max(1.0, float((abs(form.P) @ np.abs(d)).max(initial=0.0)))
    if bend > tolerance * most:
        reasons.append(f"the quadratic part of the objective bends it by {bend:.1e}")
    rate, most = float(form.q @ d), float(np.abs(form.q) @ np.abs(d))
    # the gain must stand clear of what the conditions above let pass
    if not rate < -1e3 * tolerance * most or most == 0.0:
        reasons.append("the objective does not improve along it")
    return reasons


def find_ray(problem: Problem, point: Any, clock: Clock, tolerance: float = 1e-7) -> Ray | None:
    r"""Return a verified ray of a convex problem, None when none was found.

    The shortest ray moves few variables, so it says what is not bounded:

    .. math::
        \min_d \; \|d\|_1 \quad \text{s.t.} \quad -Ad \in K, \; Pd = 0, \; q^T d = -\|q\|_\infty

    Parameters
    ----------
    problem : Problem
        Convex; integer variables are taken as continuous.
    point : mapping or None
        A feasible point, if one is known.
    clock : Clock
        When to stop.
    tolerance : float
        Rounding allowed.
    """
    form = compile_problem(relaxed(problem), conic_interface(), {}).form
    d = clock.run(lambda: _shortest(form, clock.left))
    if d is None:
        return None
    for cut in (1e-6, 1e-9, 0.0):  # the simplest direction that is a ray
        rounded = np.where(np.abs(d) > cut * np.abs(d).max(initial=0.0), d, 0.0)
        if rounded.any() and not ray_faults(form, rounded, tolerance):
            return Ray(problem, rounded / np.abs(rounded).max(), point, tolerance)
    return None


def _shortest(form: ConicForm, seconds: float | None) -> Floats | None:
    """Solve for the ray of least 1-norm: with d the difference of two nonnegative parts."""
    n, m = form.q.size, form.b.size
    largest = float(np.abs(form.q).max(initial=0.0))
    if largest == 0.0:
        return None
    limit = np.inf if seconds is None else seconds
    q = sp.csc_array(form.q[None, :] / largest)
    half = sp.csc_array(sp.vstack([form.A, form.P, q]))
    both = sp.csc_array(sp.hstack([half, -half]))
    sides = np.zeros(m + n + 1)
    sides[-1] = -1.0
    cost = np.ones(2 * n)
    if all(c.kind in ("zero", "nonneg") for c in form.cones):
        lower = sides.copy()
        for c in form.cones:
            if c.kind == "nonneg":
                lower[c.start : c.stop] = -np.inf
        found = solve_linear_program(
            cost, both, lower, sides, np.zeros(2 * n), np.full(2 * n, np.inf), time_limit=limit
        )
        x = found.x if found.status == "optimal" else None
    else:
        cones = (*form.cones, Cone("zero", m, m + n + 1), Cone("nonneg", m + n + 1, m + 3 * n + 1))
        stacked = sp.csc_array(sp.vstack([both, -sp.eye_array(2 * n)]))
        b = np.concatenate([sides, np.zeros(2 * n)])
        nothing = sp.csc_array((2 * n, 2 * n))
        conic = solve_cone_program(
            nothing, cost, stacked, b, cones, tolerance=1e-10, time_limit=limit
        )
        x = conic.x if conic.status == "optimal" else None
    return None if x is None else x[:n] - x[n:]
