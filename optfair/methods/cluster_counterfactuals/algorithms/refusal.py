"""What is said when no point of the target can be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from optfair.errors import Infeasible
from optfair.methods.cluster_counterfactuals.algorithms.evidence import Unreachable
from optfair.methods.cluster_counterfactuals.shortfall import MARGIN

if TYPE_CHECKING:
    from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual

Floats = NDArray[np.float64]

__all__ = ["refuse_conflicting_bounds", "unreachable"]


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


def unreachable(p: ClusterCounterfactual, weights: Floats) -> Infeasible:
    """Return the error that the target cannot be reached, with its proof.

    Parameters
    ----------
    p : ClusterCounterfactual
        What was asked.
    weights : array (m,)
        Weights of its sides that prove it.
    """
    proof = Unreachable(p, np.asarray(weights, dtype=float))
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
        says + f"; {'proved from the data' if proof.verify() else 'not proved'}",
        "free more features, widen their bounds, or ask for less plausibility",
        certificate=proof if proof.verify() else None,
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
    found = linprog(goal, A_ub=rows, b_ub=-levels, bounds=bounds)
    return -proof.least if found.x is None else float(found.x[-1])
