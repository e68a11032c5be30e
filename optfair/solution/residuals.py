"""Residuals of a solution, recomputed on the declared problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.parameters import check_parameters

if TYPE_CHECKING:
    from optfair.core.certificate import DualCheck, DualProof
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

__all__ = ["Measurement", "Residuals", "measure", "residuals"]


@dataclass(frozen=True)
class Residuals:
    """How far a solution is from being optimal; all relative, all 0 at an optimum.

    Attributes
    ----------
    primal : dict
        Largest violation of each constraint / (1 + size of its right-hand side), and the
        distance of integer variables from integers.
    objective : float
        Stated minus declared objective at the values / max(1, abs(objective)).
    dual : float
        Stationarity and sign of the multipliers / (1 + size of the objective's gradient).
    gap : float
        (objective - bound) / max(unit, abs(objective)), the bound recomputed; the unit is
        ``problem.objective_unit``.
    complementarity : float
        Products of slacks and multipliers / max(1, abs(objective)).
    consistency : float
        Difference between the named numbers and those that prove the bound.
    source : str
        Who stands behind the bound: "duality" when it was recomputed here.
    """

    primal: Mapping[str, float]
    objective: float
    dual: float
    gap: float
    complementarity: float
    consistency: float
    source: str

    @property
    def feasibility(self) -> float:
        """Largest entry of ``primal``."""
        return max(self.primal.values(), default=0.0)

    def above(self, tolerance: float) -> tuple[str, ...]:
        """Return what exceeds the tolerance, in words.

        Products of slacks and multipliers go with the square root of the gap on curved
        cones, so they are held to that.
        """
        found = [
            f"{name!r} is violated by {v:.1e}"
            for name, v in self.primal.items()
            if not v <= tolerance
        ]
        checks = {
            "stated and declared objective differ by": (self.objective, tolerance),
            "dual residual": (self.dual, tolerance),
            "gap": (self.gap, tolerance),
            "complementarity": (self.complementarity, max(tolerance, 0.1 * tolerance**0.5)),
            # the same numbers by the same arithmetic: there is nothing to tolerate
            "named values differ from the proof by": (self.consistency, 1e-12),
        }
        found += [f"{k} {v:.1e}" for k, (v, limit) in checks.items() if not v <= limit]
        return tuple(found)

    def __str__(self) -> str:
        rows = [f"{name:<24} {v:.1e}" for name, v in self.primal.items()]
        rows += [
            f"{'objective mismatch':<24} {self.objective:.1e}",
            f"{'dual':<24} {self.dual:.1e}",
            f"{'gap':<24} {self.gap:.1e}   bound by {self.source or 'nobody'}",
            f"{'complementarity':<24} {self.complementarity:.1e}",
            f"{'consistency':<24} {self.consistency:.1e}",
        ]
        return "\n".join(rows)


@dataclass(frozen=True)
class Measurement:
    """What is recomputed from values and multipliers, before it is held against a claim.

    Attributes
    ----------
    primal : dict
        Relative violation by constraint name, and distance from integers and symmetry.
    objective : float
        Declared objective at the values.
    check : DualCheck or None
        Bound and dual residuals, None without a proof.
    unit : float
        Least size an objective is measured by.
    """

    primal: Mapping[str, float]
    objective: float
    check: DualCheck | None
    sign: float
    source: str
    unit: float = 1.0

    def against(self, objective: float, bound: float) -> Residuals:
        """Return the residuals of a solution that claims this objective and bound."""
        unit = max(self.unit, abs(self.objective))
        mismatch = abs(self.objective - objective) / unit
        if self.check is None:
            return Residuals(self.primal, mismatch, np.inf, np.inf, np.inf, np.inf, "")
        check = self.check
        # a bound beyond the objective is as wrong as one before it
        gap = abs(self.sign * (self.objective - check.bound)) / unit
        drift = abs(check.bound - bound) / unit if np.isfinite(check.bound) else 0.0
        return Residuals(
            self.primal,
            mismatch,
            check.dual,
            gap,
            check.complementarity,
            max(check.consistency, drift),
            self.source,
        )


def measure(
    problem: Problem,
    values: Mapping[str, Any],
    multipliers: Mapping[str, Any],
    proof: DualProof | None,
) -> Measurement:
    """Evaluate values on the declared terms, and the bound on data and multipliers."""
    check_parameters(problem.terms)
    sign = 1.0 if problem.sense == "minimize" else -1.0
    if not values:
        nothing = dict.fromkeys(problem.constraints, np.inf)
        return Measurement(nothing, np.inf, None, sign, "")
    primal = {name: t.relative_violation(values) for name, t in problem.constraints.items()}
    for name, variable in problem.variables.items():
        x = np.asarray(values[name], dtype=float)
        if name in problem.integers:
            primal[f"{name} integer"] = float(np.abs(x - np.round(x)).max(initial=0.0))
        if variable.attributes.get("symmetric"):
            primal[f"{name} symmetric"] = float(np.abs(x - x.T).max(initial=0.0))
        if not np.isfinite(x).all():
            primal[f"{name} finite"] = np.inf
    if proof is not None and proof.problem is not problem:
        proof = None  # a bound on another problem proves nothing here
    check = None if proof is None else proof.check(values, multipliers)
    source = "" if proof is None else proof.source
    return Measurement(
        primal, problem.objective_value(values), check, sign, source, problem.objective_unit
    )


def residuals(solution: Solution) -> Residuals:
    """Evaluate a solution on the declared terms, and its bound on data and multipliers.

    Parameters
    ----------
    solution : Solution
        What a solver returned.

    Returns
    -------
    Residuals
        Infinite entries where there are no values, or no bound.
    """
    found = measure(solution.problem, solution.values, solution.multipliers, solution.proof)
    return found.against(solution.objective, solution.bound)
