"""The terms of a counterfactual: bounds on features, sides of boundaries, distances; and why they are not convex."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import NonconvexityWitness
from optfair.core.classify import model_goal, model_term
from optfair.core.problem_class import LP, Evidence, ProblemClass
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.methods.cluster_counterfactuals.partition import Boundary, Section

if TYPE_CHECKING:
    from optfair.core.problem import Problem


# The terms of a counterfactual: bounds on features, sides of boundaries, distances.

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


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
    """

    indices: Indices
    relation: str
    limits: Floats


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


def bound_term(point: Any, indices: Indices, relation: str, limits: Floats) -> BoundTerm:
    """Return the term ``point[indices] relation limits``; its name is set when it is bound."""
    z = point[indices]
    parts: dict[str, tuple[Any, str]] = {
        "==": (lambda: z == limits, r"z_j = c_j"),
        ">=": (lambda: z >= limits, r"z_j \ge l_j"),
        "<=": (lambda: z <= limits, r"z_j \le u_j"),
    }
    built, latex = parts[relation]
    derived = model_term("bound", built(), latex)
    known = {f.name: getattr(derived, f.name) for f in fields(ConstraintTerm)}
    return BoundTerm(**known, indices=indices, relation=relation, limits=limits)


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


def distance_term(
    kind: str,
    variables: Mapping[str, Any],
    y: Floats,
    metric: Floats | None,
    free: Indices,
    anchor: Floats,
) -> ObjectiveTerm:
    """Return the objective, in the free features.

    Parameters
    ----------
    kind : {"l2", "l1", "changes"}
        Squared distance, absolute distance, number of changed features.
    variables : dict
        ``point``, and the flags ``changes.changed`` for the number of changes.
    y : array (d,)
        The factual.
    metric : array (d,) or (d, d) or None
        Weights, or the matrix of "l2".
    free : array (f,)
        Columns of the free features.
    anchor : array (d,)
        What the others are held at.
    """
    d = y.size
    weights = np.ones(d) if metric is None else metric
    if kind == "changes":
        flags = variables[FLAGS]
        latex = r"\textstyle\sum_j w_j b_j"
        return model_goal("changes", weights @ flags, latex, names={flags.id: FLAGS})
    moved = variables["point"][free] - y[free]
    rest = np.where(np.isin(np.arange(d), free), 0.0, anchor - y)
    if kind == "l1":
        size = cp.norm1(cp.multiply(weights[free], moved)) + float(weights @ np.abs(rest))
        return model_goal("distance", size, r"\textstyle\sum_j w_j |z_j - y_j|")
    W = np.diag(weights) if weights.ndim == 1 else weights
    if weights.ndim == 1:
        square = cp.sum_squares(
            moved if metric is None else cp.multiply(np.sqrt(weights[free]), moved)
        )
    else:
        square = cp.quad_form(moved, cp.psd_wrap(W[np.ix_(free, free)]))
    if rest.any():
        square = square + 2.0 * (W @ rest)[free] @ moved + float(rest @ W @ rest)
    formula = r"\|z - y\|_2^2" if metric is None else r"(z - y)^T W (z - y)"
    return model_goal("distance", square, formula)


# Two points of a cluster whose midpoint is outside.


def opposite_points(problem: Problem) -> NonconvexityWitness | None:
    """Return opposite points along a direction in which a boundary curves downwards.

    From a center outside, far enough in both directions the boundary is below 0 again; with
    further constraints some lengths may still do. None where none of the tries does.
    """
    p: Any = problem
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
                    witness = NonconvexityWitness(problem, t.name, first, second)
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
