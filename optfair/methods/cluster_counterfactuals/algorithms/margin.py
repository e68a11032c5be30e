"""The largest margin to a target, where boundaries are curved: bounded by a relaxation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.backends.solve import solve
from optfair.errors import Infeasible, SolverFailure, Unbounded
from optfair.methods.cluster_counterfactuals.shortfall import MARGIN, MarginBound, least_maximum
from optfair.transforms.shor import shor

if TYPE_CHECKING:
    from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual

Flags = NDArray[np.bool_]

__all__ = ["PRODUCTS", "out_of_reach", "with_products"]

#: the term that squares the bounds
PRODUCTS = "products of bounds"

# Relative gap up to which the margin itself is known, and not only a bound on it.
KNOWN = 1e-6


def _products(p: ClusterCounterfactual) -> tuple[Any, Flags]:
    r"""Return :math:`(z_j - l_j)(z_j - u_j) \le 0`, and for which free features.

    Bounds imply it. A relaxation that knows bounds as lines only lets the squares of features
    grow, so where a boundary curves away it may have no bound at all.
    """
    low, high = (limit[p.free] for limit in p.limits)
    both = np.isfinite(low) & np.isfinite(high)
    if not both.any():
        return None, both
    low, high, z = low[both], high[both], p["point"][p.free[both]]
    return cp.square(z) - cp.multiply(low + high, z) <= -low * high, both


def with_products(p: ClusterCounterfactual) -> tuple[Any, Flags]:
    """Return the problem with its bounds stated as quadratics too, and for which features."""
    constraint, both = _products(p)
    return (p if constraint is None else p.with_constraints({PRODUCTS: constraint})), both


def out_of_reach(p: ClusterCounterfactual, *, time_limit: float | None = None) -> Infeasible | None:
    r"""Return the error that no point is in the target, None where that is not proved.

    .. math:: \min_{z, t}\; t \quad\text{s.t.}\quad g_k(z) \le t,\; \text{bounds}

    Its relaxation bounds t from below: above 0 it proves that there is no point, and -t is the
    largest margin. A density that is asked for stays a constraint.
    """
    extra, _ = _products(p)
    aim = least_maximum(p, p.bounds, {} if extra is None else {PRODUCTS: extra})
    relaxation = shor(aim)
    try:
        found = relaxation.recover(solve(relaxation.problem, time_limit=time_limit))
    except (SolverFailure, Unbounded, Infeasible):
        return None
    proof = MarginBound(found)
    if not proof.verify():
        return None
    exact = found.gap <= KNOWN and found.status.primal == "feasible"
    margin = f"is {-found.objective:.6g}" if exact else f"is at most {-found.bound:.6g}"
    return Infeasible(
        f"no point that may be chosen is in cluster {p.target}",
        f"{MARGIN} {margin}, it must be at least 0;"
        " proved by a semidefinite relaxation, recomputed from the terms",
        "free more features, widen their bounds, or ask for less plausibility",
        certificate=proof,
        conflict=tuple(n for n in aim.constraints if n != PRODUCTS),
    )
