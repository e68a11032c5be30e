"""What the search for the largest balance under a budget returns, and how it is verified."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import Certificate, Verdict
from optfair.core.problem import Problem
from optfair.core.solution import Solution
from optfair.methods.fair_clustering.fair_assignment import FairAssignment
from optfair.methods.fair_clustering.rules.proportions import balance

__all__ = ["RULE", "BalanceUnderBudget", "affordable", "population_balance", "typical_cost"]

# Name of the constraint that the search adds.
RULE = "balance"
# Rows that the size of a cost is taken from.
SAMPLED = 1_000
# What fractions lose in double precision.
ROUNDING = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False, repr=False)
class BalanceUnderBudget:
    """The largest balance of an assignment within a budget, proved from both sides.

    Attributes
    ----------
    problem : FairAssignment
        What the balance was sought on.
    balance : float
        Balance of the assignment ``solution`` (soft), whose cost is within the budget.
    upper : float
        No assignment within the budget has a larger balance.
    solution : Solution
        The assignment: the cheapest of its balance.
    refused : Solution, Certificate or None
        Proof that balance ``upper`` costs more than the budget: the cheapest assignment with
        that balance and its bound, or a certificate that there is none. None where ``upper``
        is the population's balance, which nothing exceeds.
    budget : float
        Largest mean cost allowed.
    steps : tuple of (float, float)
        Balance and least cost of each problem that was solved; infinite where infeasible.
    status : {"converged", "time_limit", "interrupted", "stalled"}
        Why the search stopped; "stalled" where the solver's tolerance does not tell on which
        side of the budget a balance is.
    tolerance : float
        Relative residual that counts as rounding.
    seconds : float
        Wall time.
    """

    problem: FairAssignment
    balance: float
    upper: float
    solution: Solution
    refused: Solution | Certificate | None
    budget: float
    steps: tuple[tuple[float, float], ...]
    status: str
    tolerance: float
    seconds: float

    @property
    def labels(self) -> NDArray[np.intp]:
        """Cluster with the largest fraction of each row (hard)."""
        return np.asarray(np.argmax(self.solution["assignment"], axis=1), dtype=np.intp)

    def verify(self) -> Verdict:
        """Recompute both ends from the problem, the assignment and the multipliers."""
        highest = population_balance(self.problem)
        if not 0.0 <= self.balance <= highest * (1.0 + 1e-12):
            return Verdict(False, (f"balance {self.balance:.6g} is not in [0, {highest:.6g}]",))
        reasons = self._unproved(highest)
        declared = self.problem.with_constraints({RULE: balance(self.balance)})
        for name, term in declared.constraints.items():
            off = term.relative_violation(self.solution.values)
            if not off <= self.tolerance:
                reasons.append(f"the assignment violates {name!r} by {off:.1e}")
        cost = declared.objective_value(self.solution.values)
        if not affordable(cost, self.budget, self.tolerance, typical_cost(self.problem)):
            reasons.append(f"the assignment costs {cost:.10g}")
        return Verdict(not reasons, tuple(reasons))

    def _unproved(self, highest: float) -> list[str]:
        """Say why a balance above ``upper`` is not excluded."""
        if self.refused is None:
            if self.upper >= highest * (1.0 - 1e-12):
                return []
            return [f"balances from {self.upper:.6g} to {highest:.6g} are not refused"]
        if isinstance(self.refused, Certificate):
            return list(self.refused.verify().reasons)
        reasons = []
        other, found = self.refused.problem, self.refused.residuals()
        terms = self.problem.constraints
        if other.objective != self.problem.objective or terms != {
            k: t for k, t in other.constraints.items() if k != RULE
        }:
            reasons.append("the refusal is of another problem")
        elif abs(_asked(other) - self.upper) > 1e-12:
            reasons.append(f"the refusal is of balance {_asked(other):.6g}")
        if not found.dual <= self.tolerance or not found.consistency <= 1e-12:
            reasons.append("the refusal does not prove its bound")
        if not self.refused.bound > self.budget:
            reasons.append(f"the refusal costs {self.refused.bound:.10g} at least")
        return reasons

    def __repr__(self) -> str:
        why = "the population's" if self.refused is None else "more is proved to cost more"
        return "\n".join(
            [
                f"BalanceUnderBudget: {self.status} after {len(self.steps)} problems,"
                f" {self.seconds:.2f} s",
                f"  balance  {self.balance:.6g}, at most {self.upper:.6g} ({why})",
                f"  cost     {self.solution.objective:.10g}, budget {self.budget:.10g}",
            ]
        )


def affordable(cost: float, budget: float, tolerance: float, unit: float) -> bool:
    """Whether a cost is within the budget, but for the rounding that solvers are allowed.

    That is relative to the cost, whatever its units; rounding of sums is relative to ``unit``,
    the cost of a row.
    """
    return cost - max(tolerance * abs(cost), ROUNDING * unit) <= budget


def typical_cost(problem: FairAssignment) -> float:
    """Return the mean absolute cost of some rows over all clusters."""
    step = max(1, problem.cost.rows // SAMPLED)
    return float(np.abs(problem.cost.columns(slice(None, None, step))).mean())


def population_balance(problem: Problem) -> float:
    """Return the population's balance: clusters average to it, so none of all exceeds it."""
    shares = problem.data["shares"]
    return float(shares.min() / shares.max())


def _asked(problem: Problem) -> float:
    """Return the b of a problem's rule: what clusters of the first group alone violate it by."""
    alone = np.zeros(problem["masses"].shape)
    alone[0] = 1.0
    return float(np.max(problem.constraints[RULE].violation({"masses": alone})))
