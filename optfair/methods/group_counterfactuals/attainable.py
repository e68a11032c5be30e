"""How far a target can be reached when it is out of reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import cvxpy as cp
import numpy as np

from optfair.core.certificate import Certificate, Verdict
from optfair.core.classify import objective_term
from optfair.core.composition import named_term
from optfair.core.solution import Solution
from optfair.core.term import family
from optfair.errors import Infeasible, OptfairError
from optfair.features.linear_score import LinearScore

__all__ = ["OutOfReach", "Targeted", "largest_level", "with_attainable"]

# Name of the rows that send members to the target.
ROWS = "classification"
# Multipliers below this share of the largest are what a solver leaves of zero.
ACTIVE = 1e-6


class Targeted(Protocol):
    """A problem whose members are sent to a half-space w·z >= t."""

    @property
    def level(self) -> float:
        """The number t."""

    @property
    def data(self) -> Mapping[str, Any]:
        """With ``score`` (a `LinearScore`) and ``normal``."""

    def scored_at_least(self, level: Any) -> dict[str, Any]:
        """Return the rows with an expression in place of the level, by term name."""


@dataclass(frozen=True, eq=False, repr=False)
class OutOfReach(Certificate):
    """Proof that no point reaches a level: the largest one that is attainable, with its bound.

    Parameters
    ----------
    solution : Solution
        Of the problem whose objective is the level.
    level : float
        What was asked for.
    """

    solution: Solution
    level: float

    @property
    def conflict(self) -> tuple[str, ...]:
        """Constraints that keep the level down: those with multipliers."""
        sizes = {
            name: float(np.abs(np.asarray(y, dtype=float)).max(initial=0.0))
            for name, y in self.solution.multipliers.items()
        }
        largest = max(sizes.values(), default=0.0)
        return tuple(name for name, size in sizes.items() if size > ACTIVE * largest)

    def verify(self) -> Verdict:
        """Recompute the bound on the level and compare."""
        reasons = self.solution.certificate.verify().reasons
        if not self.solution.bound < self.level:
            reasons += (f"levels up to {self.solution.bound:.6g} are not excluded",)
        return Verdict(not reasons, reasons)

    def __str__(self) -> str:
        return f"no level above {self.solution.bound:.10g}, asked for is {self.level:.10g}"

    __repr__ = __str__


def largest_level(problem: Any) -> Solution:
    """Return the solution with the largest t that the constraints other than the target allow.

    Parameters
    ----------
    problem : Targeted
        Its objective does not count.

    Returns
    -------
    Solution
        Its objective is t, in units of the score without its intercept.

    Raises
    ------
    OptfairError
        The other constraints exclude each other, or t has no limit.
    """
    aim = problem.with_variables(target=cp.Variable(name="target"))
    level = aim["target"]
    rows = {name: named_term(aim, name, row) for name, row in aim.scored_at_least(level).items()}
    others = {k: t for k, t in problem.constraints.items() if family(k) != ROWS}
    goal = objective_term("target", level, aim.names, "maximize")
    aim = aim.with_terms({"target": goal}, {**rows, **others})._child(sense="maximize")
    solution: Solution = aim.solve()
    return solution


def with_attainable(problem: Any, error: Infeasible) -> Infeasible:
    """Return the error with the largest target that is attainable, where that is what fails.

    Parameters
    ----------
    problem : Targeted
        What was infeasible.
    error : Infeasible
        What was found; without a certificate, or with one over more constraints, it gets the
        one found here.
    """
    target = cast(Targeted, problem)
    if problem.sense == "maximize":  # asked for here already
        return error
    if error.conflict and ROWS not in map(family, error.conflict):
        return error
    try:
        best = largest_level(problem)
    except OptfairError:
        return error
    proof = OutOfReach(best, target.level)
    if not proof.verify():
        return error
    score: LinearScore = target.data["score"]
    at = int(np.argmax(np.abs(score.coef)))
    # the target is that of one class: its score is s or -s
    constant = float(np.sign(target.data["normal"][at] * score.coef[at])) * score.intercept
    reached, asked = best.objective + constant, target.level + constant
    word, option = "score", "threshold"
    if score.link:
        reached, asked = (1.0 / (1.0 + np.exp(-s)) for s in (reached, asked))
        word, option = "probability", "probability"
    said = f"the largest attainable {word} is {reached:.6g}, asked for is {asked:.6g}"
    below = np.floor(reached * 1e4) / 1e4
    remedy = f"ask for {option} <= {below:g}, or soften what keeps it down"
    # an interior point may mix conflicts; the bound on the target names what it is made of
    known = error.certificate is not None and not set(proof.conflict) < set(error.conflict)
    names = error.conflict if known else proof.conflict
    return Infeasible(
        f"these constraints exclude each other: {', '.join(map(repr, names))}",
        f"{said}; {error.evidence}" if known else f"{said}, with a bound that is verified",
        remedy,
        certificate=error.certificate if known else proof,
        conflict=names,
    )
