"""Route of the structure ``coupling``: POT's network simplex, duals repaired, certificate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import ot
from numpy.typing import NDArray

from optfair.backends.request import Outcome, Request
from optfair.core.certificate import DualCheck
from optfair.core.expressions import Values
from optfair.core.problem import Problem
from optfair.methods.fair_clustering.coupling import KantorovichCoupling
from optfair.proofs.rounding import loss

if TYPE_CHECKING:
    from optfair.backends.request import SolverProfile

Floats = NDArray[np.float64]

# Uniform marginals 1/n0 and 1/n1 are carried as the integers n1 and n0: sums are then exact.
LARGEST_INTEGER = 2**53
ITERATIONS = 50_000_000
# POT's result code of an optimal plan.
OPTIMAL = 1


def run_network_simplex(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the transport problem and repair its potentials to a dual feasible pair."""
    p = cast(KantorovichCoupling, problem)
    request.refuse_options(profile)
    begin = time.perf_counter()
    C = p.cost
    a, b, unit = _integer_masses(p.data["a"], p.data["b"])
    compiled_at = time.perf_counter()
    # no warnings.catch_warnings: it changes the filters of all threads; POT warns of a stop only
    plan, log = ot.emd(a, b, C, numItermax=ITERATIONS, log=True)
    solved_at = time.perf_counter()
    plan = np.asarray(plan, dtype=float) * unit
    # c-transform: the largest u for this v and then the largest v, so u + v <= C holds
    v = np.asarray(log["v"], dtype=float)
    u = (C - v).min(axis=1)
    v = (C - u[:, None]).min(axis=0)
    plan.flags.writeable = u.flags.writeable = v.flags.writeable = False
    proof = TransportProof(p)
    multipliers = {"row marginal": -u, "column marginal": -v, "nonnegativity": _slack(C, u, v)}
    return Outcome(
        "optimal" if log["result_code"] == OPTIMAL else "stalled",
        {"plan": plan},
        multipliers,
        proof,
        {
            "compile": compiled_at - begin,
            "solve": solved_at - compiled_at,
            "recover": time.perf_counter() - solved_at,
        },
    )


def _slack(C: Floats, u: Floats, v: Floats) -> Floats:
    return np.asarray(C - u[:, None] - v)


def _integer_masses(a: Floats, b: Floats) -> tuple[Floats, Floats, float]:
    """Return integer masses and the factor back when both marginals are uniform."""
    n0, n1 = a.size, b.size
    uniform = np.ptp(a) == 0.0 and np.ptp(b) == 0.0
    if uniform and n0 * n1 < LARGEST_INTEGER:
        divisor = np.gcd(n0, n1)
        heavy, light = np.full(n0, float(n1 // divisor)), np.full(n1, float(n0 // divisor))
        return heavy, light, float(a.sum()) / (n0 * float(n1 // divisor))
    return a, b * (a.sum() / b.sum()), 1.0


@dataclass(frozen=True, eq=False)
class TransportProof:
    r"""Potentials with :math:`u_i + v_j \le C_{ij}`: their value is a bound for every plan."""

    problem: KantorovichCoupling
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound; the multipliers of the marginals are -u and -v."""
        C, a, b = self.problem.cost, self.problem.data["a"], self.problem.data["b"]
        u = -np.asarray(multipliers["row marginal"], dtype=float)
        v = -np.asarray(multipliers["column marginal"], dtype=float)
        slack = _slack(C, u, v)
        given = np.asarray(multipliers["nonnegativity"], dtype=float)
        unit = 1.0 + float(np.abs(C).max())
        apart = np.inf
        if given.shape == slack.shape:
            apart = float(np.abs(given - slack).max()) / unit
        plan = np.asarray(values["plan"], dtype=float)
        return DualCheck(
            # potentials that are too high by a rounding are lowered, row by row
            bound=float(a @ u + b @ v + a @ np.minimum(slack.min(axis=1), 0.0))
            - loss(a.size + b.size, float(a @ (np.abs(u) + np.abs(C).max(axis=1)) + b @ np.abs(v))),
            dual=max(0.0, -float(slack.min())) / unit,
            complementarity=float((np.abs(plan) * np.abs(slack)).max()) / unit,
            consistency=apart,
        )
