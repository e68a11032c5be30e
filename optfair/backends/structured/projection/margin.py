"""The largest margin to a target, where boundaries are curved: bounded by a relaxation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.backends.solve import solve
from optfair.core.adopt import from_cvxpy
from optfair.core.certificate import Certificate, Verdict
from optfair.errors import Infeasible, SolverFailure, Unbounded
from optfair.transforms.shor import shor

if TYPE_CHECKING:
    from optfair.core.solution import Solution
    from optfair.models.cluster_counterfactual import ClusterCounterfactual

Flags = NDArray[np.bool_]

__all__ = ["PRODUCTS", "MarginBound", "out_of_reach", "with_products"]

#: the term that squares the bounds
PRODUCTS = "products of bounds"

# Dual residual up to which the bound of a relaxation is taken for proved.
PROVED = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class MarginBound(Certificate):
    r"""A bound above 0 on the least t with :math:`g_k(z) \le t` for every boundary.

    Parameters
    ----------
    solution : Solution
        Of the problem min t, with the multipliers of its semidefinite relaxation.
    """

    solution: Solution

    def verify(self) -> Verdict:
        """Recompute the Lagrange bound from the terms."""
        s = self.solution
        if s.proof is None:
            return Verdict(False, ("there is no bound",))
        found = s.proof.check(s.values, s.multipliers)
        reasons = [] if found.bound > 0.0 else [f"the bound is {found.bound:.3g}"]
        if not found.dual <= PROVED:
            reasons.append(f"dual residual {found.dual:.1e}")
        return Verdict(not reasons, tuple(reasons))

    def __str__(self) -> str:
        return f"boundaries that stay {self.solution.bound:.6g} short of the target"

    __repr__ = __str__


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


def out_of_reach(p: ClusterCounterfactual) -> Infeasible | None:
    r"""Return the error that no point is in the target, None where that is not proved.

    .. math:: \min_{z, t}\; t \quad\text{s.t.}\quad g_k(z) \le t,\; \text{bounds}

    Its relaxation bounds t from below: above 0 it proves that there is no point, and -t is the
    largest margin. A density that is asked for stays a constraint.
    """
    t = cp.Variable(name="short")
    constraints, names = [], []
    for side in p.sides:
        built = side.build()
        constraints.append(built.expr <= t if side.against >= 0 else built)
        names.append(side.name)
    for bound in p.bounds:
        constraints.append(bound.build())
        names.append(bound.name)
    extra, _ = _products(p)
    named = [*names, PRODUCTS] if extra is not None else names
    constraints += [] if extra is None else [extra]
    relaxation = shor(from_cvxpy(cp.Problem(cp.Minimize(t), constraints), named))
    try:
        found = relaxation.recover(solve(relaxation.problem))
    except (SolverFailure, Unbounded, Infeasible):
        return None
    proof = MarginBound(found)
    if not proof.verify():
        return None
    exact = found.gap <= PROVED and found.status.primal == "feasible"
    margin = f"is {-found.objective:.6g}" if exact else f"is at most {-found.bound:.6g}"
    return Infeasible(
        f"no point that may be chosen is in cluster {p.target}",
        f"the largest margin that can be attained {margin}, it must be at least 0;"
        " proved by a semidefinite relaxation, recomputed from the terms",
        "free more features, widen their bounds, or ask for less plausibility",
        certificate=proof,
        conflict=tuple(names),
    )
