"""A problem of one point that is to lie in a cluster: its terms, which algorithm fits, and how far off it stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import cvxpy as cp
import numpy as np

from optfair.core.adopt import from_cvxpy
from optfair.core.certificate import OTHER, Certificate, NonconvexityWitness, Verdict
from optfair.core.composition import RELATIONS, model_goal, model_term
from optfair.core.expressions import Values
from optfair.core.identity import same_program
from optfair.core.parameters import Datum
from optfair.core.problem_class import LP, Evidence, ProblemClass
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import DeclarationError, Infeasible, OptfairError
from optfair.features.feature_problem import FeatureProblem, sides_moved, sides_within
from optfair.methods.cluster_counterfactuals.partition import Boundary, Partition, Section
from optfair.numbers import Floats, Indices

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

# The terms of a counterfactual: bounds on features, sides of boundaries, distances.

#: the variable that flags changed features
FLAGS = "changes.changed"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BoundTerm(ConstraintTerm):
    """Bounds on single features, which special algorithms read off.

    Parameters
    ----------
    indices : array (m,)
        Columns.
    relation : {"==", ">=", "<="}
        Of the features to the limits.
    limits : array (m,)
        The right-hand side.
    sizes : array (m,)
        Size of a number in each feature: what a violation is measured by at least.
    """

    indices: Indices
    relation: str
    limits: Floats
    sizes: Floats

    def violations(self, values: Values, unit: Any = 1.0, side: Any = None) -> tuple[float, float]:
        """Return the largest violation, each feature in its own unit."""
        return super().violations(values, np.minimum(unit, self.sizes), side)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SideTerm(ConstraintTerm):
    """A point on one side of a boundary.

    Parameters
    ----------
    boundary : Boundary
        At most 0 on this side.
    section : Section
        The boundary in the features that are free.
    against : int
        The cluster on the other side, -1 where there is none.
    """

    boundary: Boundary
    section: Section
    against: int


def bound_term(
    point: Any, indices: Indices, relation: str, limits: Floats, sizes: Floats
) -> BoundTerm:
    """Return the term ``point[indices] relation limits``; its name is set when it is bound."""
    latex = {"==": "z_j = c_j", ">=": r"z_j \ge l_j", "<=": r"z_j \le u_j"}[relation]
    derived = model_term("bound", RELATIONS[relation](point[indices], limits), latex)
    known = {f.name: getattr(derived, f.name) for f in fields(ConstraintTerm)}
    return BoundTerm(**known, indices=indices, relation=relation, limits=limits, sizes=sizes)


def side_term(
    name: str, point: Any, boundary: Boundary, against: int, section: Section
) -> SideTerm:
    """Return the term that a point is on the side of the target, with its class."""
    free, y = section.free, section.anchor[section.free]

    def build() -> Any:
        u = point[free] - y
        left = section.slope @ u
        if not section.linear:
            convex = float(section.eigenvalues[0]) >= 0.0
            D = cp.psd_wrap(section.D) if convex else section.D
            left = 0.5 * cp.quad_form(u, D) + left
        return left <= -section.level

    return SideTerm(
        name,
        frozenset({"point"}),
        _evidence(name, section),
        build,
        latex=_latex(against, section),
        violation=lambda v: np.asarray(
            max(0.0, section.value(np.asarray(v["point"], dtype=float)))
            if np.isfinite(v["point"]).all()
            else np.inf
        ),
        shape=(),
        scale=abs(section.level),
        boundary=boundary,
        section=section,
        against=against,
    )


def _evidence(name: str, section: Section) -> Evidence:
    if section.linear:
        return Evidence(name, "affine", "Nonpositive", LP)
    d = section.eigenvalues
    note = f"Hessian eigenvalues in [{d[0]:.3g}, {d[-1]:.3g}]"
    quadratic = ProblemClass(False, True)
    if d[0] >= 0.0:
        return Evidence(name, "convex quadratic", "Nonpositive", quadratic, note)
    word = "indefinite quadratic" if d[-1] > 0.0 else "concave quadratic"
    return Evidence(name, word, "Nonpositive", quadratic.with_curvature("unverified"), note)


def _latex(against: int, section: Section) -> str:
    if against < 0:
        return r"p_t(z) \ge \delta"
    if section.linear:
        return rf"v_{{{against}}}^T z \le c_{{{against}}}"
    k = rf"{{{against}}}"
    return rf"\tfrac12 z^T D_{k} z - e_{k}^T z + c_{k} \le 0"


# Two points of a cluster whose midpoint is outside.


def opposite_points(p: PointProblem) -> NonconvexityWitness | None:
    """Return opposite points along a direction in which a boundary curves downwards.

    From a center outside, far enough in both directions the boundary is below 0 again; with
    further constraints some lengths may still do. None where none of the tries does.
    """
    if set(p.variables) != {"point"}:
        return None
    for t in p.sides:
        s = t.section
        if t.evidence.problem_class.convex:
            continue
        d, V = np.linalg.eigh(s.D)
        for v, curvature in ((V[:, i], d[i]) for i in np.flatnonzero(d < 0.0)[:3]):
            for center in _outside(p, s, V, d, v):
                u = center[s.free] - s.anchor[s.free]
                level = s.value(center)
                slope = float((s.slope + s.D @ u) @ v)
                # level ± slope r + ½ curvature r² <= 0 on both sides
                reach = (abs(slope) + np.sqrt(slope**2 - 2.0 * curvature * level)) / -curvature
                for longer in (1.0 + 1e-6, 1.1, 2.0, 10.0):
                    step = np.zeros(center.size)
                    step[s.free] = longer * reach * v
                    first, second = {"point": center + step}, {"point": center - step}
                    witness = NonconvexityWitness(p, t.name, first, second)
                    if witness.verify():
                        return witness
    return None


def _outside(p: Any, s: Any, V: Floats, d: Floats, v: Floats) -> Iterator[Floats]:
    """Yield points on the wrong side of a boundary."""
    starts = [s.anchor, p.clusters.means[p.source], p.clusters.means[p.target]]
    unit = float(np.abs(p.clusters.means).max()) + 1.0
    for start in starts:
        z = s.anchor.copy()
        z[s.free] = start[s.free]
        yield from (c for c in (z, _crest(s, z, v)) if s.value(c) > 1e-5 * (1.0 + abs(s.level)))
    for size in (1.0, 10.0, 100.0):
        z = s.anchor.copy()
        z[s.free] += size * unit * V[:, -1]
        if d[-1] > 0.0 and s.value(z) > 1e-5 * (1.0 + abs(s.level)):
            yield z


def _crest(s: Any, z: Floats, v: Floats) -> Floats:
    """Return the point along v where the boundary function is largest."""
    u = z[s.free] - s.anchor[s.free]
    z = z.copy()
    z[s.free] += float((s.slope + s.D @ u) @ v) / -float(v @ s.D @ v) * v
    return z


# Which special algorithm fits a counterfactual: read off its terms.

HALF_SPACE = "half-space"
CELL = "cell"
ONE_QUADRATIC = "one-quadratic"
SEVERAL_QUADRATICS = "several-quadratics"


def structure_loss(p: PointProblem, name: str) -> str:
    """Return why a structure does not stand, empty if it does.

    - ``half-space``: one linear boundary, and bounds if the metric is diagonal;
    - ``cell``: any linear boundaries and bounds;
    - ``one-quadratic``: one boundary with curvature, and no bounds but fixed features;
    - ``several-quadratics``: boundaries of which one has curvature, and any bounds.
    """
    if name not in (HALF_SPACE, CELL, ONE_QUADRATIC, SEVERAL_QUADRATICS):
        return f"a {p.title} does not have it"
    return terms_loss(p) or _shape_loss(p, name)


def terms_loss(p: PointProblem) -> str:
    """Return what is there beside boundaries, bounds and a squared distance, empty if nothing is."""
    if p.data["distance"] != "l2":
        return f"its distance is {p.data['distance']!r}, not a squared distance"
    for integer in sorted(p.integers):
        return f"{integer!r} is integer"
    if set(p.objective) != {"distance"}:
        extra = sorted(set(p.objective) - {"distance"})
        return f"{extra[0]!r} is in the objective" if extra else "the distance was removed"
    if set(p.variables) != {"point"}:
        extra = sorted(set(p.variables) - {"point"})
        return f"{extra[0]!r} is a further variable"
    for t in p.constraints.values():
        if not isinstance(t, (SideTerm, BoundTerm)):
            return f"{t.name!r} is not a bound on a feature"
    return ""


def _shape_loss(p: Any, name: str) -> str:
    sides = p.sides
    if not sides:
        return "no boundary is left"
    curved = [t for t in sides if not t.section.linear]
    lower, upper = p.limits
    bounded = bool((np.isfinite(lower) | np.isfinite(upper))[p.free].any())
    if name in (HALF_SPACE, CELL):
        if curved:
            return f"{curved[0].name!r} is curved"
        if name == CELL:
            return ""
        if len(sides) > 1:
            return f"there are {len(sides)} boundaries"
        matrix = p.metric is not None and p.metric.ndim == 2
        return "bounds and a metric matrix do not go together" if bounded and matrix else ""
    if name == ONE_QUADRATIC:
        if len(sides) > 1:
            return f"there are {len(sides)} boundaries"
        if bounded:
            return "a free feature is bounded"
        return "" if curved else f"{sides[0].name!r} is linear"
    if not curved:
        return "every boundary is linear"
    return "" if len(sides) > 1 or bounded else "there is one boundary only"


# How far from a cluster the constraints keep a point that cannot reach it.

#: how the evidence of an error begins that says how far one can get
MARGIN = "the largest margin that can be attained"

# Dual residual up to which the bound of a relaxation is taken for proved.
PROVED = 1e-6
# Seconds for what is only said in a message.
SECONDS = 10.0


@dataclass(frozen=True, eq=False, repr=False)
class MarginBound(Certificate):
    r"""A bound above 0 on the least t with :math:`g_k(z) \le t` for every boundary.

    Parameters
    ----------
    problem : PointProblem
        Whose boundaries they are.
    solution : Solution
        Of the problem min t, or with the multipliers of its semidefinite relaxation.
    """

    problem: PointProblem
    solution: Solution
    of_objective = False

    def verify(self) -> Verdict:
        """Recompute the Lagrange bound from the terms, which the problem has."""
        s = self.solution
        if s.proof is None:
            return Verdict(False, ("there is no bound",))
        if not same_program(s.problem, self._aim()):
            return Verdict(False, (OTHER,))
        check = s.proof.check(s.values, s.multipliers)
        reasons = [] if check.bound > 0.0 else [f"the bound is {check.bound:.3g}"]
        if not check.dual <= PROVED:
            reasons.append(f"dual residual {check.dual:.1e}")
        return Verdict(not reasons, tuple(reasons))

    def _aim(self) -> Problem:
        """Return the problem min t under the constraints that the solution's has."""
        from optfair.methods.cluster_counterfactuals.evidence import PRODUCTS, products

        p: Any = self.problem
        names = self.solution.problem.constraints
        sides = {t.name for t in p.sides}
        kept = [t for n, t in p.constraints.items() if n in names and n not in sides]
        aim: Problem = least_maximum(p, kept, products(p)[0] if PRODUCTS in names else None)
        return aim

    def __str__(self) -> str:
        return f"boundaries that stay {self.solution.bound:.6g} short of the target"


def least_maximum(p: PointProblem, constraints: Any, further: Any = None) -> Any:
    r"""Return the problem :math:`\min_{z, t} t` s.t. :math:`g_k(z) \le t` and constraints.

    A density that is asked for stays a constraint.

    Parameters
    ----------
    p : PointProblem
        Whose boundaries g are meant.
    constraints : iterable of ConstraintTerm
        What z must satisfy beside them.
    further : dict, optional
        CVXPY constraints by name.
    """
    t = cp.Variable(name="short")
    built: dict[str, Any] = {}
    for side in p.sides:
        row = side.build()
        built[side.name] = row.expr <= t if side.against >= 0 else row
    built |= {term.name: term.build() for term in constraints} | dict(further or {})
    return from_cvxpy(cp.Problem(cp.Minimize(t), list(built.values())), list(built))


def with_margin(p: PointProblem, error: Infeasible) -> Infeasible:
    """Return the error with the largest margin to the target, where that is what fails.

    Parameters
    ----------
    p : PointProblem
        What was infeasible.
    error : Infeasible
        What was found; without a certificate, it gets the one found here.
    """
    if error.evidence.startswith(MARGIN):
        return error
    sides = {t.name for t in p.sides}
    if error.conflict and not sides & set(error.conflict):
        return error  # other constraints exclude each other
    try:
        aim = least_maximum(p, [t for n, t in p.constraints.items() if n not in sides])
        if not aim.problem_class.convex:
            return error
        best = aim.solve(time_limit=SECONDS)
    except OptfairError:
        return error
    proof = MarginBound(p, best)
    if not (best.is_optimal(1e-6) and best.bound > 0.0):
        return error
    certificate = error.certificate
    if certificate is None and not aim.integers and proof.verify():
        certificate = proof
    says = f"{MARGIN} is {-best.objective:.6g}, it must be at least 0"
    return Infeasible(
        f"no point that may be chosen is in cluster {p.target}",
        f"{says}; {error.evidence}",
        "free more features, widen their bounds, or ask for less plausibility",
        certificate=certificate,
        conflict=error.conflict or tuple(p.constraints),
    )


# A problem of one point that is to lie in a cluster.


class PointProblem(FeatureProblem):
    """A point near a row, on one side of boundaries between clusters.

    It reads its own terms: which features are free, between which bounds, and which boundaries
    the point must respect. Features that are held fixed are substituted into the boundaries and
    into the distance whenever its terms change.

    Attributes
    ----------
    free : array (f,)
        Columns of the features that may change.
    anchor : array (d,)
        The row, with what fixed features are held at.
    """

    free: Indices
    anchor: Floats

    clusters = Datum[Partition]("The clusters.")
    factual = Datum[Floats]("The row (d,).")
    source = Datum[int]("Cluster to leave.")
    target = Datum[int]("Cluster to reach.")
    metric = Datum[Floats | None]("Weights (d,), matrix (d, d), or None.")

    @property
    def sides(self) -> tuple[SideTerm, ...]:
        """The terms that say on which side of a boundary the point lies."""
        return tuple(t for t in self.constraints.values() if isinstance(t, SideTerm))

    @property
    def bounds(self) -> tuple[BoundTerm, ...]:
        """The terms that bound single features."""
        return tuple(t for t in self.constraints.values() if isinstance(t, BoundTerm))

    @property
    def limits(self) -> tuple[Floats, Floats]:
        """Lower and upper bound of every feature (d,), infinite where there is none."""
        lower, upper = np.full(self.factual.size, -np.inf), np.full(self.factual.size, np.inf)
        for t in self.bounds:
            if t.relation != "<=":
                np.maximum.at(lower, t.indices, t.limits)
            if t.relation != ">=":
                np.minimum.at(upper, t.indices, t.limits)
        return lower, upper

    @property
    def inside(self) -> bool:
        """Whether the row satisfies every constraint as it is: then its distance is 0."""
        if set(self.variables) - {"point", FLAGS}:
            return False  # whole features: the row may not be whole
        lower, upper = self.limits
        y = self.factual
        bounded = bool(((lower <= y) & (y <= upper)).all())
        return bounded and all(t.section.boundary.value(y) <= 0.0 for t in self.sides)

    @property
    def objective_unit(self) -> float:
        """Distance between the clusters' centers as it is charged, or the least change, at most 1."""
        weights = np.ones(self.factual.size) if self.metric is None else self.metric
        if self.data["distance"] == "changes":
            return min(1.0, float(weights.min()))
        means = self.clusters.means
        away = means - means.mean(axis=0)
        if self.data["distance"] == "l1":
            charged = np.abs(away) @ weights
        else:
            charged = (away @ weights if weights.ndim == 2 else away * weights) * away
        return min(1.0, 2.0 * float(charged.sum()) / max(1, len(means) - 1)) or 1.0

    def _side(self, k: int) -> SideTerm:
        boundary = self.clusters.boundary(k, self.target, self.data["plausibility"])
        section = boundary.section(self.anchor, self.free)
        return side_term(f"target.{k}", self["point"], boundary, k, section)

    def _distance(self, variables: Mapping[str, Any]) -> ObjectiveTerm:
        """Return the objective in the free features: by points, or by flags of changes."""
        y, metric, free, kind = self.factual, self.metric, self.free, self.data["distance"]
        weights = np.ones(y.size) if metric is None else metric
        if kind == "changes":
            flags = variables[FLAGS]
            latex = r"\textstyle\sum_j w_j b_j"
            return model_goal("changes", weights @ flags, latex, names={flags.id: FLAGS})
        moved = variables["point"][free] - y[free]
        rest = self.anchor - y
        rest[free] = 0.0
        if kind == "l1":
            unit = float(np.exp2(np.round(np.log2(weights.max()))))  # rows are near 1 in it
            size = unit * cp.norm1(cp.multiply(weights[free] / unit, moved))
            size = size + float(weights @ np.abs(rest))
            return model_goal("distance", size, r"\textstyle\sum_j w_j |z_j - y_j|")
        if weights.ndim == 2:
            square = cp.quad_form(moved, cp.psd_wrap(weights[np.ix_(free, free)]))
        else:
            square = cp.sum_squares(
                moved if metric is None else cp.multiply(np.sqrt(weights[free]), moved)
            )
        if rest.any():
            pull = weights @ rest if weights.ndim == 2 else weights * rest
            square = square + 2.0 * pull[free] @ moved + float(rest @ pull)
        formula = r"\|z - y\|_2^2" if metric is None else r"(z - y)^T W (z - y)"
        return model_goal("distance", square, formula)

    def _child(self, **fields: Any) -> Self:
        child = super()._child(**fields)
        return child._substituted() if "constraints" in fields else child

    def _substituted(self) -> Self:
        """Return this problem with the features that are now held fixed substituted."""
        lower, upper = self.limits
        held = lower == upper
        anchor = np.where(held, lower, self.factual)
        free = np.flatnonzero(~held)
        counted = FLAGS in self.variables and self.data["distance"] == "changes"
        counted = counted and "changes" not in self.objective
        same = np.array_equal(free, self.free) and np.array_equal(anchor, self.anchor)
        if same and not counted:
            return self
        self._set(free=free, anchor=anchor)
        terms = {n: self._resected(t) for n, t in self.constraints.items()}
        objective = dict(self.objective)
        if counted or "distance" in objective:
            again = self._distance(self.variables)
            objective[again.name] = again
        self._set(constraints=MappingProxyType(terms), objective=MappingProxyType(objective))
        return self

    def _resected(self, t: Any) -> Any:
        if not isinstance(t, SideTerm):
            return t
        section = t.boundary.section(self.anchor, self.free)
        again = side_term(t.name, self["point"], t.boundary, t.against, section)
        return replace(again, origin=t.origin)

    def structure_refusal(self, name: str) -> str:
        """Return why a special algorithm does not apply, empty if it does."""
        return structure_loss(self, name)

    def find_witness(self) -> NonconvexityWitness | None:
        """Return opposite points beyond a boundary that curves away, else search."""
        return opposite_points(self) or super().find_witness()

    def explained(self, error: Infeasible) -> Infeasible:
        """Return the error with the largest margin to the target, where that is out of reach."""
        return with_margin(self, error)

    # --- what rules ask for --------------------------------------------------------------

    def fixed(self, indices: Indices) -> BoundTerm:
        """Return the term that these features stay."""
        sizes = self.clusters.sizes[indices]
        return bound_term(self["point"], indices, "==", self.factual[indices], sizes)

    def within(self, indices: Indices, lower: Floats, upper: Floats) -> dict[str, BoundTerm]:
        """Return the bounds of these features."""
        return {
            word: bound_term(self["point"], at, relation, limit, self.clusters.sizes[at])
            for word, relation, at, limit in sides_within(indices, lower, upper)
        }

    def moves(self, indices: Indices, sign: Floats) -> dict[str, BoundTerm]:
        """Return the directions of these features as bounds at the row."""
        return {
            word: bound_term(self["point"], at, relation, self.factual[at], self.clusters.sizes[at])
            for word, relation, at in sides_moved(indices, sign)
        }

    def dense(self, density: float) -> dict[str, BoundTerm] | SideTerm:
        """Return the ellipsoid where the target's density is at least this, or its mean alone."""
        if self.clusters.kind != "gaussian":
            raise DeclarationError(
                "clusters of k-means have no density",
                remedy="use plausibility=, or ClusterCounterfactual.gaussian",
            )
        if self.clusters.peaks(self.target, density):
            mean = self.clusters.means[self.target]
            return self.within(np.arange(mean.size), mean, mean)
        boundary = self.clusters.ellipsoid(self.target, density)
        section = boundary.section(self.anchor, self.free)
        return side_term("density", self["point"], boundary, -1, section)
