"""Least relaxations: by how much constraints in conflict would have to give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints import PSD, SOC, Equality, ExpCone, Inequality, NonNeg, PowCone3D, Zero
from numpy.typing import NDArray

from optfair.backends.solve import solve
from optfair.core.certificate import Certificate, Verdict
from optfair.core.classify import constraint_term, objective_term
from optfair.core.problem import Declaration, Problem
from optfair.core.solution import Solution
from optfair.diagnosis.clock import Clock
from optfair.diagnosis.system import System
from optfair.errors import DeclarationError, Infeasible, OptfairError

Floats = NDArray[np.float64]

__all__ = ["ElasticProblem", "Relaxation", "elastic_names", "least_relaxation"]


class ElasticProblem(Problem):
    r"""Least weighted relaxation of some constraints, the others held.

    .. math::
        \min_{x,\, s \ge 0} \; \sum_k \frac{1}{1 + \beta_k} \sum_i s_{ki}
        \quad \text{s.t.} \quad f_k(x) \le s_k, \;\; |h_k(x)| \le s_k, \;\;
        G_k(x) + s_k e \in K_k

    :math:`\beta_k` is the size of the right-hand side, so that all constraints give in
    relative terms; e is a point inside the cone: (1, 0) of the second-order cone, I of the
    semidefinite cone, (-1, 1, 1) of the exponential cone, (1, 1, 0) of a power cone.

    Class: that of the constraints.

    Parameters
    ----------
    system : System
        The constraints.
    elastic : tuple of str
        Which of them may give.
    """

    title = "least relaxation"

    def __init__(self, system: System, elastic: tuple[str, ...]) -> None:
        super().__init__({"system": system, "elastic": elastic})

    def declare(self) -> Declaration:
        """Give each elastic constraint a variable for what it gives."""
        system: System = self.data["system"]
        source = system.problem
        variables = dict(source.variables)
        changed, slacks = {}, {}
        for name in self.data["elastic"]:
            constraint, slack = _loosened(source.constraints[name].build())
            if constraint is None:
                raise DeclarationError(
                    f"{name!r} cannot give",
                    f"it is {source.constraints[name].evidence}",
                    "write it as an inequality",
                )
            changed[name], slacks[name] = constraint, slack
            variables[self.given(name)] = slack
        ids = {v.id: name for name, v in variables.items()}
        terms = {n: t for n, t in source.constraints.items() if n not in changed}
        goal = []
        for name, slack in slacks.items():
            weight = 1.0 / (1.0 + source.constraints[name].largest_side)
            label = self.given(name)
            goal.append(objective_term(label, weight * cp.sum(slack), ids, "minimize"))
            terms[name] = constraint_term(name, changed[name], ids)
            terms[f"{label} is not negative"] = constraint_term(
                f"{label} is not negative", slack >= 0, ids
            )
        return Declaration(
            variables, "minimize", tuple(goal), tuple(terms.values()), source.integers
        )

    @staticmethod
    def given(name: str) -> str:
        """Return the name of the variable of what a constraint gives."""
        return f"what {name} gives"


def _loosened(c: Any) -> tuple[Any, Any]:
    """Return a constraint that gives by a new variable, and the variable."""
    s = cp.Variable(np.shape(c.args[0]) if not isinstance(c, PSD) else ())
    if isinstance(c, (Equality, Zero)):
        s = cp.Variable(c.expr.shape)
        return cp.abs(c.expr) <= s, s
    if isinstance(c, Inequality):
        s = cp.Variable(c.expr.shape)
        return c.expr <= s, s
    if isinstance(c, NonNeg):
        return c.args[0] + s >= 0, s
    if isinstance(c, PSD):
        return c.args[0] + s * np.eye(c.args[0].shape[0]) >> 0, s
    if isinstance(c, SOC):
        return SOC(c.args[0] + s, c.args[1], axis=c.axis), s
    if isinstance(c, ExpCone):
        return ExpCone(c.args[0] - s, c.args[1] + s, c.args[2] + s), s
    if isinstance(c, PowCone3D):
        return PowCone3D(c.args[0] + s, c.args[1] + s, c.args[2], c.alpha), s
    return None, None


@dataclass(frozen=True, eq=False, repr=False)
class Relaxation(Certificate):
    """By how much some constraints give, and the proof that less does not do.

    Parameters
    ----------
    system : System
        The constraints.
    elastic : tuple of str
        Those that may give.
    solution : Solution or None
        Of the elastic problem; None when no amount helps.
    refusal : str
        Why there is no solution.
    """

    system: System
    elastic: tuple[str, ...]
    solution: Solution | None
    refusal: str = ""

    def amounts(self) -> dict[str, Floats]:
        """Return what each constraint gives, entry by entry, in its own units."""
        if self.solution is None:
            return {}
        terms = self.system.problem.constraints
        sizes = {name: 1.0 + terms[name].largest_side for name in self.elastic}
        given = {
            name: np.asarray(self.solution[ElasticProblem.given(name)], dtype=float)
            for name in self.elastic
        }
        worst = max(float(v.max(initial=0.0)) / sizes[name] for name, v in given.items())
        # what an interior-point method leaves beside the amounts that count
        noise = max(1e-2 * self.system.tolerance, 1e-6 * worst)
        return {name: np.where(v > noise * sizes[name], v, 0.0) for name, v in given.items()}

    def total(self, name: str) -> float:
        """Return what a constraint gives, summed over its entries."""
        return float(self.amounts()[name].sum()) if self.solution is not None else np.inf

    def largest(self, name: str) -> float:
        """Return the most that an entry of a constraint gives."""
        if self.solution is None:
            return np.inf
        return float(self.amounts()[name].max(initial=0.0))

    def verify(self) -> Verdict:
        """Recompute feasibility and bound of the elastic problem, declared anew."""
        if self.solution is None:
            return Verdict(False, (self.refusal,))
        problem = self.solution.problem
        if (
            not isinstance(problem, ElasticProblem)
            or problem.data["system"] is not self.system
            or problem.data["elastic"] != self.elastic
        ):
            return Verdict(False, ("the solution is that of another problem",))
        return self.solution.certificate.verify()

    def __str__(self) -> str:
        if self.solution is None:
            return self.refusal
        given = ", ".join(f"{k!r} by {self.total(k):.6g}" for k in self.elastic if self.total(k))
        return f"least relaxation: {given or 'nothing'}"

    __repr__ = __str__


def elastic_names(system: System, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the constraints that can give: not integrality, not a domain."""
    able = []
    for name in names:
        if name in system.integers or name in system.domains:
            continue
        if _loosened(system.problem.constraints[name].build())[0] is not None:
            able.append(name)
    return tuple(able)


def least_relaxation(system: System, elastic: tuple[str, ...], clock: Clock) -> Relaxation:
    """Return by how much the elastic constraints must give for the others to hold with them."""
    if not elastic:
        return Relaxation(system, elastic, None, "none of the constraints can give")
    try:
        problem = ElasticProblem(system, elastic)
        found = clock.run(lambda: solve(problem, tolerance=system.tolerance, time_limit=clock.left))
    except Infeasible as e:
        why = (
            f"no amount helps: {', '.join(map(repr, e.conflict)) or 'the others'} stay in conflict"
        )
        return Relaxation(system, elastic, None, why)
    except OptfairError as e:
        return Relaxation(system, elastic, None, e.cause)
    if found is not None and found.status.termination == "interrupted":
        clock.interrupted = True
    if found is None or found.status.termination != "optimal":
        return Relaxation(system, elastic, None, clock.stopped or "no proved optimum was found")
    return Relaxation(system, elastic, found)
