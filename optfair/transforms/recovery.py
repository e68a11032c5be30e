"""From values on the original problem to a solution of it, measured on its own terms."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.certificate import DualCheck, DualProof, drift
from optfair.core.expressions import Values
from optfair.core.solution import Solution, Status
from optfair.errors import DeclarationError
from optfair.proofs.grade import reported
from optfair.solution.residuals import measure

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["RelaxationBound", "check_origin", "recovered"]


@dataclass(frozen=True, eq=False)
class RelaxationBound:
    """The bound of a relaxation, recomputed from the relaxation's own proof.

    The relaxation has the same objective and a larger feasible set, so what bounds its
    optimum bounds the original's. The values must be those that were recovered from it.
    """

    problem: Problem
    relaxed: Solution
    values: Values

    @property
    def source(self) -> str:
        """Who stands behind the relaxation's bound."""
        return "nobody" if self.relaxed.proof is None else self.relaxed.proof.source

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the relaxation's bound."""
        proof = self.relaxed.proof
        if proof is None or proof.problem is not self.relaxed.problem:
            sign = 1.0 if self.problem.sense == "minimize" else -1.0
            return DualCheck(-sign * np.inf, np.inf)
        found = proof.check(self.relaxed.values, self.relaxed.multipliers)
        return replace(found, consistency=max(found.consistency, drift(values, self.values)))


def check_origin(solution: Solution, problem: Problem, called: str) -> None:
    """Refuse a solution of another problem: its numbers mean nothing for this one."""
    if solution.problem is not problem:
        raise DeclarationError(
            f"this is not a solution of the {called}",
            "recover() reads solutions of its own .problem only",
            "solve that problem and hand in what it returns",
        )


def recovered(
    problem: Problem,
    solution: Solution,
    values: Mapping[str, Any],
    multipliers: Mapping[str, Any],
    proof: DualProof,
    transform: str,
    *,
    otherwise: str = "relaxed",
) -> Solution:
    """Return the solution of ``problem`` that these values are, measured on its terms.

    Parameters
    ----------
    problem : Problem
        The original.
    solution : Solution
        Of the transformed problem.
    values, multipliers : dict
        By the names of the original.
    proof : DualProof
        Of a bound on the original's optimum.
    transform : str
        What is added to the record.
    otherwise : str
        Termination when the residuals do not say optimal.
    """
    begin = time.perf_counter()
    tolerance = float(solution.options.get("tolerance", 1e-6))
    found = measure(problem, values, multipliers, proof)
    sign = 1.0 if problem.sense == "minimize" else -1.0
    bound = -sign * np.inf if found.check is None else found.check.bound
    off = found.against(found.objective, bound)
    optimal, grade = not off.above(tolerance), off.grade(tolerance)
    if not grade.sound and not grade.by:
        grade = reported(solution.solver, grade.because)
    status = Status(
        "optimal" if optimal else otherwise,
        "feasible" if off.feasibility <= tolerance else "infeasible",
        "feasible" if off.dual <= tolerance else "unknown",
        grade,
    )
    spent = solution.seconds.get("recover", 0.0) + time.perf_counter() - begin
    return Solution(
        problem=problem,
        solver=solution.solver,
        version=solution.version,
        status=status,
        objective=found.objective,
        bound=bound,
        values=values,
        multipliers=multipliers,
        proof=proof,
        seconds={**solution.seconds, "recover": spent},
        options=solution.options,
        transforms=(*solution.transforms, transform),
        attempts=solution.attempts,
        progress=solution.progress,
        unit=found.unit,
    )
