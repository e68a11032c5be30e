"""How far from a cluster the constraints keep a point that cannot reach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp

from optfair.core.adopt import from_cvxpy
from optfair.core.certificate import Certificate, Verdict
from optfair.errors import Infeasible, OptfairError

if TYPE_CHECKING:
    from optfair.core.solution import Solution
    from optfair.methods.cluster_counterfactuals.point_problem import PointProblem

__all__ = ["MARGIN", "MarginBound", "least_maximum", "with_margin"]

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
    solution : Solution
        Of the problem min t, or with the multipliers of its semidefinite relaxation.
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
    proof = MarginBound(best)
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
