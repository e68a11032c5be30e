"""Route of the structure ``entropic-projection``: Newton on the prices of the masses, with its proof."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from optfair.backends.isolation import round_progress
from optfair.backends.request import Outcome, Request, SolverProfile
from optfair.methods.fair_clustering.adapters import PricedProof, price_round
from optfair.methods.fair_clustering.algorithms.entropic_projection import project
from optfair.methods.fair_clustering.algorithms.pricing import (
    group_log_sums,
    group_softmax,
    mass_pass,
)
from optfair.methods.fair_clustering.mass_rules import compile_rules, warm_prices
from optfair.methods.fair_clustering.metrics import gathered_masses
from optfair.methods.fair_mixtures.problems import FairResponsibilities
from optfair.numbers import Floats
from optfair.proofs.rounding import loss

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Distance of the masses from the rules that the search aims at, and its share of the tolerance:
# the gap is the distance times the prices.
AIM, SHARE = 1e-11, 1e-3


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Run the projection on a problem that has the structure."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    p = cast(FairResponsibilities, problem)
    start = warm_prices(p, request)
    rules = compile_rules(p)
    compiled_at = time.perf_counter()
    with round_progress(
        request.verbose, "entropic projection", "first prices", price_round
    ) as report:
        result = project(
            p.log_prob,
            p.data["groups"],
            p.data["weights"],
            rules.program,
            prices=start,
            tolerance=min(AIM, SHARE * request.tolerance),
            deadline=request.deadline,
            report=report,
        )
    solved_at = time.perf_counter()
    proof = EntropicProof(p, rules, result.y, result.z)
    R = group_softmax(p.log_prob, p.data["groups"], proof.prices)
    M = gathered_masses(R, p.data["groups"], p.data["weights"], p.shares.size)
    values = {"responsibilities": R, "masses": M}
    return proof.outcome(result, values, (begin, compiled_at, solved_at))


@dataclass(frozen=True, eq=False)
class EntropicProof(PricedProof):
    r"""Bound of a projection, recomputed from the rows.

    .. math::
        q_{\text{rows}}(\Lambda) = -\sum_i w_i \log\sum_k \psi_{ik} e^{-\Lambda_{g_i k}}

    The multipliers of the row sums are
    :math:`w_i (\log\sum_k \psi_{ik} e^{-\Lambda_{g_i k}} - 1)`; those of the signs are 0,
    because every responsibility is positive.
    """

    def row_multipliers(self) -> Floats:
        """Return the multipliers of the row sums."""
        p = self.problem
        sums = group_log_sums(p.log_prob, p.data["groups"], self.prices)
        return np.asarray(p.data["weights"] * (sums - 1.0))

    def sign_multipliers(self) -> Floats:
        """Return the multipliers of the signs (n x K)."""
        return np.zeros(self.problem.log_prob.shape)

    def bound(self, prices: Floats, rules: float) -> tuple[float, float]:
        """Return q, rounded down, from the value of the rules; and the size of its numbers."""
        p = self.problem
        rows = p.log_prob, p.data["groups"], p.data["weights"]
        mass = mass_pass(*rows, prices, curvature=False)
        largest = float(np.abs(prices).max(initial=0.0))
        sized = 1.0 + abs(mass.value) + largest
        sized += float(np.abs(p.log_prob[np.isfinite(p.log_prob)]).max(initial=0.0))
        bound = rules - mass.value - loss(sum(p.log_prob.shape), sized)
        return bound, 1.0 + max(abs(mass.value), largest)
