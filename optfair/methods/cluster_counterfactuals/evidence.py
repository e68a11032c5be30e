"""A counterfactual as a projection: what it must satisfy, its multipliers and proof, or why there is none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import linprog

from optfair.backends.request import Outcome, stages
from optfair.backends.solve import solve
from optfair.core.certificate import Certificate, DualCheck, Verdict
from optfair.core.expressions import Values
from optfair.errors import Infeasible, SolverFailure, Unbounded
from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import metric_matrix, weighted
from optfair.methods.cluster_counterfactuals.point_problem import MARGIN, MarginBound, least_maximum
from optfair.numbers import Flags, Floats
from optfair.proofs.rounding import loss
from optfair.transforms.relaxation import shor

if TYPE_CHECKING:
    from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
    from optfair.methods.cluster_counterfactuals.partition import Boundary, Section


# Multipliers, proofs and refusals of projections on boundaries of clusters.

# A sum of slopes that cancels to this share of its terms is 0.
CANCELLED = 1e-9


def _pull(p: ClusterCounterfactual, z: Floats) -> Floats:
    """Return the gradient of the distance in the free features (f,)."""
    away = p.anchor - p.factual
    away[p.free] = z[p.free] - p.factual[p.free]
    return np.asarray(2.0 * weighted(away, p.metric)[p.free])


def named_multipliers(p: ClusterCounterfactual, z: Floats, mu: Floats) -> dict[str, Any]:
    """Return multipliers by term: those of the sides are given, those of bounds follow.

    Parameters
    ----------
    p : ClusterCounterfactual
        What was solved.
    z : array (d,)
        The point.
    mu : array (m,)
        Multipliers of its sides, in their order.
    """
    sides = p.sides
    named: dict[str, Any] = {t.name: np.array(float(m)) for t, m in zip(sides, mu, strict=True)}
    push = _pull(p, z)
    for t, m in zip(sides, mu, strict=True):
        if m != 0.0:
            push = push + m * t.section.gradient(z)
    left = np.zeros(p.factual.size)
    left[p.free] = push
    lower, upper = p.limits
    for b in p.bounds:
        y = np.zeros(b.indices.size)
        if b.relation != "==":
            at, (sign, limit) = b.indices, (1.0, lower) if b.relation == ">=" else (-1.0, upper)
            tight = (b.limits == limit[at]) & (sign * z[at] <= sign * b.limits)
            y = np.where(tight, np.maximum(sign * left[at], 0.0), 0.0)
            left[at] -= sign * y
        named[b.name] = y
    return named


@dataclass(frozen=True, eq=False)
class BoundaryProof:
    r"""The Lagrange bound of a squared distance over sides of boundaries and bounds.

    .. math::
        L(z) = (z - y)^T W (z - y) + \sum_k \mu_k g_k(z) + \text{bounds}

    over the free features. Where :math:`2W + \sum_k \mu_k D_k \succeq 0` the least value of L is
    a bound on the optimum, convex or not. A better point than z lies in the ball of radius
    :math:`\|z - y\|_W` about y, so a slope or a negative curvature that is rounding costs no
    more than it can over that ball.

    Parameters
    ----------
    problem : ClusterCounterfactual
        What was solved.
    products : array (f,), optional
        Multipliers of :math:`(z_j - l_j)(z_j - u_j) \le 0`, which the bounds of a feature imply and
        which add curvature; 0 where a feature has not both.
    """

    problem: ClusterCounterfactual
    products: Floats | None = None
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound and its residuals from the boundaries."""
        p = self.problem
        names = [*(t.name for t in p.sides), *(t.name for t in p.bounds)]
        point = np.asarray(values["point"], dtype=float)
        if any(n not in multipliers for n in names) or not np.isfinite(point).all():
            return DualCheck(-np.inf, np.inf)
        given = [np.asarray(multipliers[n], dtype=float) for n in names]
        shapes = [p.constraints[n].shape for n in names]
        if any(
            y.shape != s or not np.isfinite(y).all() for y, s in zip(given, shapes, strict=True)
        ):
            return DualCheck(-np.inf, np.inf)
        mu, y = given[: len(p.sides)], given[len(p.sides) :]
        free, W = p.free, metric_matrix(p.metric, p.factual.size)
        sized = 2.0 * abs(p.objective_value(values))
        slope, lagrangian = _pull(p, point), p.objective_value(values)
        H = 2.0 * W[np.ix_(free, free)]
        parts, wrong, products = float(np.abs(slope).max(initial=0.0)), 0.0, 0.0
        for t, m in zip(p.sides, mu, strict=True):
            sure, wrong = max(0.0, float(m)), max(wrong, -float(m))
            g, gradient = t.section.value(point), t.section.gradient(point)
            slope = slope + sure * gradient
            H = H + sure * t.section.D
            lagrangian += sure * g
            sized += sure * (abs(g) + float(np.abs(gradient) @ np.abs(point[free])))
            products = max(products, abs(sure * g))
            parts = max(parts, sure * float(np.abs(gradient).max(initial=0.0)))
        full = np.zeros(point.size)
        full[free] = slope
        held = p.anchor.copy()
        held[free] = point[free]
        for b, m in zip(p.bounds, y, strict=True):
            if b.relation == "==":
                np.add.at(full, b.indices, m)
                continue
            sign = -1.0 if b.relation == ">=" else 1.0
            sure = np.maximum(m, 0.0)
            wrong = max(wrong, float(-m.min(initial=0.0)))
            np.add.at(full, b.indices, sign * sure)
            away = sign * (held[b.indices] - b.limits) * sure
            lagrangian += float(away.sum())
            sized += float((np.abs(b.limits) * sure).sum()) + float(np.abs(away).sum())
            products = max(products, float(np.abs(away).max(initial=0.0)))
        if self.products is not None:
            low, high = (limit[free] for limit in p.limits)
            both = np.isfinite(low) & np.isfinite(high)
            nu = np.where(both, np.maximum(self.products, 0.0), 0.0)
            low, high, z = np.where(both, low, 0.0), np.where(both, high, 0.0), point[free]
            full[free] += nu * (2.0 * z - low - high)
            H = H + np.diag(2.0 * nu)
            lagrangian += float((nu * (z - low) * (z - high)).sum())
        spent, negative = _loss(H, full[free], W[np.ix_(free, free)], p.objective_value(values))
        # slopes along features that are held are multipliers of what holds them: 0 here, because
        # these features were substituted
        residual = float(np.abs(full).max(initial=0.0)) / (1.0 + parts)
        largest = 1.0 + max((float(np.abs(m).max(initial=0.0)) for m in given), default=0.0)
        return DualCheck(
            bound=lagrangian - spent - loss(full.size + len(given), sized),
            dual=max(residual, wrong / largest, negative),
            complementarity=products / max(1.0, abs(p.objective_value(values))),
        )


def _loss(H: Floats, slope: Floats, W: Floats, squared: float) -> tuple[float, float]:
    """Return how far the Lagrangian falls from here, and its most negative curvature."""
    if not slope.size:
        return 0.0, 0.0
    h, T = scipy.linalg.eigh(H / 2.0, W)
    h = h - 8.0 * h.size * np.finfo(float).eps * float(np.abs(h).max())  # known up to rounding
    s = T.T @ slope
    radius = 2.0 * np.sqrt(max(squared, 0.0))
    limited = np.abs(s) * radius + np.maximum(-h, 0.0) * radius**2
    with np.errstate(divide="ignore", over="ignore"):
        curved = np.where(h > 0.0, s**2 / (4.0 * np.maximum(h, 1e-300)), np.inf)
    negative = max(0.0, -float(h[0])) / (1.0 + float(np.abs(h).max()))
    return float(np.minimum(curved, limited).sum()), negative


@dataclass(frozen=True, eq=False, repr=False)
class Unreachable(Certificate):
    r"""Weights of boundaries whose weighted sum is positive wherever the bounds allow.

    With :math:`\theta \ge 0` and :math:`\sum_k \theta_k g_k(z) > 0` for every z within the
    bounds, not every :math:`g_k(z) \le 0`.

    Parameters
    ----------
    problem : ClusterCounterfactual
        What cannot be satisfied.
    weights : array (m,)
        θ, one per side.
    """

    problem: ClusterCounterfactual
    weights: Floats
    of_objective = False

    @property
    def least(self) -> float:
        """Least value of the weighted sum, weights scaled to sum 1; -inf where it has none."""
        p = self.problem
        theta = np.asarray(self.weights, dtype=float)
        if (theta < 0.0).any() or not theta.sum() > 0.0 or theta.size != len(p.sides):
            return -np.inf
        theta = theta / theta.sum()
        f = p.free.size
        D, slope, level = np.zeros((f, f)), np.zeros(f), 0.0
        size = np.zeros(f)
        noise = 0.0
        for t, w in zip(p.sides, theta, strict=True):
            if w == 0.0:
                continue
            D, slope = D + w * t.section.D, slope + w * t.section.slope
            level += w * t.section.level
            size += w * (np.abs(t.section.slope) + t.section.slope_noise / CANCELLED)
            noise = max(noise, t.section.noise)
        slope = np.where(np.abs(slope) <= CANCELLED * size, 0.0, slope)
        lower, upper = (limit[p.free] - p.anchor[p.free] for limit in p.limits)
        if (lower > upper).any():
            return np.inf
        if not D.any():
            with np.errstate(invalid="ignore"):
                ends = np.where(slope > 0.0, slope * lower, slope * upper)
            return float(level + np.where(slope == 0.0, 0.0, ends).sum())
        d, V = np.linalg.eigh(D)
        small = 4.0 * f * (noise + np.finfo(float).eps * float(np.abs(D).max()))
        along = V.T @ slope
        flat = np.abs(d) <= small
        if (d < -small).any() or (np.abs(along[flat]) > CANCELLED * size.max()).any():
            return -np.inf
        return float(level - 0.5 * (along[~flat] ** 2 / d[~flat]).sum())

    def verify(self) -> Verdict:
        """Recompute the least value."""
        least = self.least
        return Verdict(least > 0.0, () if least > 0.0 else (f"its least value is {least:.3g}",))

    def __str__(self) -> str:
        return f"boundaries that stay {self.least:.6g} short of the target"


# What is said when no point of the target can be reached.


def refuse_conflicting_bounds(p: ClusterCounterfactual) -> None:
    """Raise where the bounds of a feature exclude each other."""
    lower, upper = p.limits
    for b in p.bounds:
        if b.relation == "==":
            off = b.limits != p.anchor[b.indices]
            lower[b.indices[off]] = np.inf
    clash = np.flatnonzero(lower > upper)
    if not clash.size:
        return
    j = int(clash[0])
    names = tuple(b.name for b in p.bounds if j in b.indices)
    raise Infeasible(
        f"the bounds of feature {p.features[j]!r} exclude each other",
        f"{', '.join(map(repr, names))} leave nothing; the row has {p.factual[j]:.6g}",
        "relax one of them, or free the feature",
        certificate=Unreachable(p, np.ones(len(p.sides))),
        conflict=names,
    )


def unreachable(p: ClusterCounterfactual, weights: Floats) -> Infeasible | SolverFailure:
    """Return the error that the target cannot be reached, with its proof; without one, no answer.

    Parameters
    ----------
    p : ClusterCounterfactual
        What was asked.
    weights : array (m,)
        Weights of its sides that prove it.
    """
    proof = Unreachable(p, np.asarray(weights, dtype=float))
    if not (verdict := proof.verify()):
        return SolverFailure(
            f"cluster {p.target} is said to be out of reach, which is not proved",
            "; ".join(verdict.reasons),
            "rescale the features, or name another solver",
        )
    sides = [t for t, w in zip(p.sides, weights, strict=True) if w > 0.0]
    lower, upper = p.limits
    bound = [
        b.name
        for b in p.bounds
        if b.relation == "==" or (np.isfinite(lower) | np.isfinite(upper))[b.indices].any()
    ]
    margin = _largest_margin(p, proof)
    others = ", ".join(str(t.against) for t in sides if t.against >= 0)
    says = f"{MARGIN} is {margin:.6g}, it must be at least 0"
    return Infeasible(
        f"no point that may be chosen is in cluster {p.target}"
        + (f" rather than {others}" if others else ""),
        says + "; proved from the data",
        "free more features, widen their bounds, or ask for less plausibility",
        certificate=proof,
        conflict=(*(t.name for t in sides), *bound),
    )


def _largest_margin(p: ClusterCounterfactual, proof: Unreachable) -> float:
    """Return max over z of the least of -g_k(z), where it is linear; else what the proof says."""
    if len(p.sides) == 1 or any(not t.section.linear for t in p.sides):
        return -proof.least
    slopes = np.array([t.section.slope for t in p.sides])
    levels = np.array([t.section.level for t in p.sides])
    lower, upper = (limit[p.free] - p.anchor[p.free] for limit in p.limits)
    goal = np.append(np.zeros(p.free.size), -1.0)
    rows = np.hstack([slopes, np.ones((levels.size, 1))])
    bounds = [*zip(lower, upper, strict=True), (None, None)]
    answer = linprog(goal, A_ub=rows, b_ub=-levels, bounds=bounds)
    return -proof.least if answer.x is None else float(answer.x[-1])


# A counterfactual as a projection: where it starts from, and what it must satisfy.


@dataclass(frozen=True, eq=False)
class Projection:
    r"""The projection :math:`\min_u u^T W u`, u = z_F - start, of a counterfactual.

    Attributes
    ----------
    free : array (f,)
        Columns of the free features.
    start : array (d,)
        The nearest point that holds the fixed features: the row, where they are held at its
        own values.
    metric : array (f,) or (f, f) or None
        W.
    sections : tuple of Section
        The boundaries about the start.
    lower, upper : array (f,)
        Bounds on u.
    limits : (array (f,), array (f,))
        The same bounds on the features.
    """

    free: NDArray[np.intp]
    start: Floats
    metric: Floats | None
    sections: tuple[Section, ...]
    lower: Floats
    upper: Floats
    limits: tuple[Floats, Floats]

    @classmethod
    def of(cls, p: ClusterCounterfactual) -> Projection:
        """Read the projection off a problem.

        Raises
        ------
        Infeasible
            Bounds that exclude each other.
        """
        refuse_conflicting_bounds(p)
        free, start, metric = p.free, p.anchor.copy(), p.metric
        if metric is not None and metric.ndim == 1:
            metric = metric[free]
        elif metric is not None:
            away = start - p.factual
            block = metric[np.ix_(free, free)]
            if away.any():  # what is held elsewhere pulls the others along through the matrix
                start[free] -= np.linalg.solve(block, (metric @ away)[free])
            metric = block
        sections = tuple(t.boundary.section(start, free) for t in p.sides)
        low, high = (limit[free] for limit in p.limits)
        lower, upper = low - start[free], high - start[free]
        return cls(free, start, metric, sections, lower, upper, (low, high))

    @property
    def sides(self) -> tuple[list[Boundary], Flags, Floats | None]:
        """The boundaries, which features are free (d,), and the metric."""
        free = np.isin(np.arange(self.start.size), self.free)
        return [section.boundary for section in self.sections], free, self.metric

    @property
    def bounded(self) -> bool:
        """Whether a free feature has a bound."""
        return bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any())

    def normal(self, k: int) -> Floats:
        """Return the slope of a boundary; 0 where the free features do not move it."""
        section = self.sections[k]
        return np.zeros_like(section.slope) if section.constant else section.slope

    def at(self, u: Floats) -> Floats:
        """Return the point (d,) of a step, on a bound where the step ends there."""
        z = self.start.copy()
        # start + (limit - start) is not the limit itself
        z[self.free] = np.where(u == self.lower, self.limits[0], z[self.free] + u)
        z[self.free] = np.where(u == self.upper, self.limits[1], z[self.free])
        if self.bounded:
            z[self.free] = np.clip(z[self.free], *self.limits)
        return z


def outcome(p: ClusterCounterfactual, z: Floats, mu: Floats, clock: tuple[float, float]) -> Outcome:
    """Return what a route found, with named multipliers and the proof of its bound.

    Parameters
    ----------
    p : ClusterCounterfactual
        What was solved.
    z : array (d,)
        The point.
    mu : array (m,)
        Multipliers of the sides.
    clock : (float, float)
        When the work began, and when the projection did.
    """
    solved_at = time.perf_counter()
    multipliers = named_multipliers(p, z, mu)
    seconds = stages(*clock, solved_at)
    return Outcome("optimal", {"point": z}, multipliers, BoundaryProof(p), seconds)


# The largest margin to a target, where boundaries are curved: bounded by a relaxation.

#: the term that squares the bounds
PRODUCTS = "products of bounds"

# Relative gap up to which the margin itself is known, and not only a bound on it.
KNOWN = 1e-6


def products(p: ClusterCounterfactual) -> tuple[dict[str, Any], Flags]:
    r"""Return :math:`(z_j - l_j)(z_j - u_j) \le 0` by name, and for which free features.

    Bounds imply it. A relaxation that knows bounds as lines only lets the squares of features
    grow, so where a boundary curves away it may have no bound at all.
    """
    low, high = (limit[p.free] for limit in p.limits)
    both = np.isfinite(low) & np.isfinite(high)
    if not both.any():
        return {}, both
    low, high, z = low[both], high[both], p["point"][p.free[both]]
    return {PRODUCTS: cp.square(z) - cp.multiply(low + high, z) <= -low * high}, both


def out_of_reach(p: ClusterCounterfactual, *, time_limit: float | None) -> Infeasible | None:
    r"""Return the error that no point is in the target, None where that is not proved.

    .. math:: \min_{z, t}\; t \quad\text{s.t.}\quad g_k(z) \le t,\; \text{bounds}

    Its relaxation bounds t from below: above 0 it proves that there is no point, and -t is the
    largest margin. A density that is asked for stays a constraint.
    """
    aim = least_maximum(p, p.bounds, products(p)[0])
    relaxation = shor(aim)
    try:
        solution = relaxation.recover(solve(relaxation.problem, time_limit=time_limit))
    except (SolverFailure, Unbounded, Infeasible):
        return None
    proof = MarginBound(p, solution)
    if not proof.verify():
        return None
    exact = solution.gap <= KNOWN and solution.status.primal == "feasible"
    margin = f"is {-solution.objective:.6g}" if exact else f"is at most {-solution.bound:.6g}"
    return Infeasible(
        f"no point that may be chosen is in cluster {p.target}",
        f"{MARGIN} {margin}, it must be at least 0;"
        " proved by a semidefinite relaxation, recomputed from the terms",
        "free more features, widen their bounds, or ask for less plausibility",
        certificate=proof,
        conflict=tuple(n for n in aim.constraints if n != PRODUCTS),
    )
