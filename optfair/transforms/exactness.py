"""Certificate that a relaxation is exact: multipliers that prove a point globally optimal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from optfair.core.certificate import Certificate, Verdict
from optfair.core.expressions import Values
from optfair.transforms.lagrangian import (
    LagrangianCheck,
    QuadraticLagrangian,
    quadratic_lagrangian,
)

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["Exactness"]


@dataclass(frozen=True, eq=False, repr=False)
class Exactness(Certificate):
    r"""A feasible point and multipliers λ that together prove a global optimum.

    .. math::
        H(\lambda) \succeq 0,\quad \nabla_x L(x, \lambda) = 0,\quad \lambda_i f_i(x) = 0,
        \quad \lambda_i \ge 0 \text{ for inequalities}

    Then x minimises :math:`L(\cdot, \lambda)` over all of space, so
    :math:`f_0(x) = L(x, \lambda) \le f_0` on the feasible set: the Lagrange (and semidefinite)
    relaxation is exact, also where the problem is not convex. For one quadratic constraint
    with an interior point such λ exist whenever there is an optimum (the S-lemma).

    Parameters
    ----------
    problem : Problem
        Quadratic, convex or not.
    values : mapping
        The point, by variable name.
    multipliers : mapping
        λ, by constraint name.
    tolerance : float
        Relative size of what counts as zero.

    Examples
    --------
    The largest x² on [-1, 1] is at its ends; λ = 1 proves it.

    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Maximize(x**2), [x**2 <= 1]), ["interval"])
    >>> Exactness(p, {"x": 1.0}, {"interval": 1.0}).verify()
    verified
    >>> Exactness(p, {"x": 0.5}, {"interval": 1.0}).verify()
    NOT verified: a multiplier times its constraint is 7.5e-01; value 0.25 and bound 1 differ

    References
    ----------
    Pólik, Terlaky: A Survey of the S-Lemma, SIAM Review 49 (2007).
    """

    problem: Problem
    values: Values
    multipliers: Values
    tolerance: float = 1e-6

    @property
    def value(self) -> float:
        """Declared objective at the point."""
        return self.problem.objective_value(self.values)

    @property
    def bound(self) -> float:
        """Bound on the optimum that the multipliers prove, recomputed."""
        lagrangian = quadratic_lagrangian(self.problem)
        return lagrangian.sign * self._check(lagrangian).bound

    def _check(self, lagrangian: QuadraticLagrangian) -> LagrangianCheck:
        x, y = lagrangian.forms.vector(self.values), lagrangian.vector(self.multipliers)
        return lagrangian.check(x, y)

    def verify(self) -> Verdict:
        """Recompute feasibility, curvature, stationarity and complementarity from the terms."""
        lagrangian = quadratic_lagrangian(self.problem)
        misfit = lagrangian.misfit(self.values, self.multipliers)
        if misfit:
            return Verdict(False, (misfit,))
        found = self._check(lagrangian)
        reasons = [
            f"{name!r} is violated by {off:.1e}"
            for name, t in self.problem.constraints.items()
            if not (off := t.relative_violation(self.values)) <= self.tolerance
        ]
        checks = {
            "the Hessian of the Lagrangian has a negative eigenvalue": found.curvature,
            "a multiplier of an inequality is negative": found.signs,
            "the Lagrangian falls along a direction without curvature": found.flat,
            "the gradient of the Lagrangian is not zero": found.stationarity,
            "a multiplier times its constraint is": found.complementarity,
        }
        reasons += [f"{k} {v:.1e}" for k, v in checks.items() if not v <= self.tolerance]
        value, bound = self.value, lagrangian.sign * found.bound
        if not abs(value - bound) <= self.tolerance * max(1.0, abs(value)):
            reasons.append(f"value {value:.6g} and bound {bound:.6g} differ")
        return Verdict(not reasons, tuple(reasons))

    def __str__(self) -> str:
        return f"exact relaxation: value {self.value:.10g}, bound {self.bound:.10g}"

    __repr__ = __str__
