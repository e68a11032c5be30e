"""Solve a problem whose objective is in large or small units as one with an objective near 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optfair.core.certificate import DualCheck, DualProof
from optfair.core.expressions import Values
from optfair.core.problem import Problem
from optfair.core.solution import Solution
from optfair.core.term import ObjectiveTerm

__all__ = ["RescaledProof", "solve_rescaled"]


@dataclass(frozen=True, eq=False)
class RescaledProof:
    """A proof for the objective divided by a unit: bound and multipliers are the unit times it.

    Residuals are those of the divided problem, so they mean the same in any units.
    """

    problem: Problem
    divided: DualProof
    unit: float

    @property
    def source(self) -> str:
        """Who vouches for the bound."""
        return self.divided.source

    def stored(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return what the proof is made of again, in the units of the problem itself."""
        stored = getattr(self.divided, "stored", None)
        found = None if stored is None else stored()
        if found is None:
            return None
        facts, arrays = found
        return facts, arrays | {"z": arrays["z"] * self.unit}

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound on the divided problem."""
        found = self.divided.check(values, _times(multipliers, 1.0 / self.unit))
        unpaid = None if found.unpaid is None else found.unpaid.times(self.unit)
        return replace(
            found,
            bound=found.bound * self.unit,
            unpaid=unpaid,
            unit=found.unit * self.unit,
            estimate=None if found.estimate is None else found.estimate * self.unit,
        )


def solve_rescaled(
    problem: Problem, divided: Problem, unit: float, solve: Callable[[Problem], Solution]
) -> Solution:
    """Solve a problem with its objective divided by a power of two, and return to its units.

    Parameters
    ----------
    problem : Problem
        What the solution is of.
    divided : Problem
        A copy of it; its objective is replaced.
    unit : float
        A power of two, so that no digit changes.
    solve : callable
        Solves the divided problem.
    """
    objective = {name: _divided(term, unit) for name, term in problem.objective.items()}
    found = solve(divided.with_terms(objective, problem.constraints))
    return replace(
        found,
        problem=problem,
        objective=found.objective * unit,
        bound=found.bound * unit,
        unit=found.unit * unit,
        multipliers=_times(found.multipliers, unit),
        proof=None if found.proof is None else RescaledProof(problem, found.proof, unit),
    )


def _divided(term: ObjectiveTerm, unit: float) -> ObjectiveTerm:
    return replace(
        term, build=lambda: term.build() / unit, value=lambda values: term.value(values) / unit
    )


def _times(multipliers: Mapping[str, Any], factor: float) -> dict[str, Any]:
    scaled = {}
    for name, y in multipliers.items():
        scaled[name] = np.asarray(np.asarray(y, dtype=float) * factor)
        scaled[name].flags.writeable = False
    return scaled
