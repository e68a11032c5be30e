"""Route of the structure ``entropic-projection``: Newton on the prices of the masses, with its proof."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from optfair.backends.request import Outcome, Request
from optfair.backends.terminal import round_progress
from optfair.core.certificate import DualCheck, drift
from optfair.core.expressions import Values
from optfair.core.solution import LazyValues
from optfair.methods.fair_clustering.algorithms.entropic_projection import (
    EntropicProjection,
    project,
)
from optfair.methods.fair_clustering.algorithms.log_rows import (
    group_log_sums,
    group_softmax,
    mass_pass,
)
from optfair.methods.fair_clustering.assignment import gathered_masses
from optfair.methods.fair_clustering.mass_rules import (
    CompiledRules,
    compile_rules,
    warm_prices,
)
from optfair.methods.fair_mixtures.responsibilities import FairResponsibilities
from optfair.numbers import Floats
from optfair.proofs.rounding import loss

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
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
    with round_progress(request.verbose, "entropic projection") as report:
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
    values, multipliers, proof = _recovered(p, rules, result)
    return Outcome(
        result.status,
        values,
        multipliers,
        proof,
        {
            "compile": compiled_at - begin,
            "solve": solved_at - compiled_at,
            "recover": time.perf_counter() - solved_at,
        },
        tuple(result.history),
    )


def _recovered(
    p: FairResponsibilities, rules: CompiledRules, result: EntropicProjection
) -> tuple[dict[str, Floats], Mapping[str, Any], EntropicProof]:
    groups, w = p.data["groups"], p.data["weights"]
    proof = EntropicProof(p, rules, result.y, result.z)
    prices = proof.prices
    R = group_softmax(p.log_prob, groups, prices)
    M = gathered_masses(R, groups, w, p.shares.size)
    named = rules.compiled.by_name(result.y, result.z)[1]
    multipliers = LazyValues(
        {
            "row sum": lambda: _frozen(proof.row_multipliers()),
            "nonnegativity": lambda: _frozen(np.zeros(p.log_prob.shape)),
            "mass definition": _frozen(prices),
            **{name: _frozen(v) for name, v in named.items()},
        }
    )
    object.__setattr__(proof, "own", multipliers)
    return {"responsibilities": _frozen(R), "masses": _frozen(M)}, multipliers, proof


def _frozen(array: Floats) -> Floats:
    array = np.asarray(array)
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class EntropicProof:
    r"""Bound from the prices Λ of the masses, recomputed from the rows.

    .. math::
        q(\Lambda) = -\sum_i w_i \log\sum_k \psi_{ik} e^{-\Lambda_{g_i k}}
                     + \min_M \{h(M) - \langle\Lambda, M\rangle : \text{rules}\}

    The second part is the Lagrangian value of the rules' multipliers z, whose derivative in
    M is Λ itself. The multipliers of the row sums follow from Λ,
    :math:`w_i (\log\sum_k \psi_{ik} e^{-\Lambda_{g_i k}} - 1)`; those of the signs are 0,
    because every responsibility is positive.
    """

    problem: FairResponsibilities
    rules: CompiledRules
    y: Floats
    z: Floats
    own: Any = None
    source: str = "duality"

    @property
    def prices(self) -> Floats:
        """Λ (G x K)."""
        return self.rules.program.prices(self.y, self.z)

    def row_multipliers(self) -> Floats:
        """Return the multipliers of the row sums."""
        p = self.problem
        sums = group_log_sums(p.log_prob, p.data["groups"], self.prices)
        return np.asarray(p.data["weights"] * (sums - 1.0))

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute bound and residuals with the multipliers given."""
        p, program = self.problem, self.rules.program
        form = program.form
        prices = np.asarray(multipliers["mass definition"], dtype=float)
        rows = p.log_prob, p.data["groups"], p.data["weights"]
        found = mass_pass(*rows, prices, curvature=False)
        rules = program.proved_bound(self.y, self.z, prices)
        sized = 1.0 + abs(found.value) + float(np.abs(prices).max(initial=0.0))
        sized += float(np.abs(p.log_prob[np.isfinite(p.log_prob)]).max(initial=0.0))
        bound = rules.value - found.value - loss(sum(p.log_prob.shape), sized)
        unit = 1.0 + max(abs(found.value), float(np.abs(prices).max(initial=0.0)))
        outside = max(
            (c.distance(self.z[c.start : c.stop], dual=True) for c in form.cones), default=0.0
        )
        dual = max(outside, program.stationarity(self.y, self.z)) / unit
        s = form.slack(self.y)
        jordan = max(
            (c.complementarity(s[c.start : c.stop], self.z[c.start : c.stop]) for c in form.cones),
            default=0.0,
        )
        apart = float((np.abs(prices - self.prices) / (1.0 + np.abs(prices))).max(initial=0.0))
        return DualCheck(
            bound,
            dual,
            jordan / unit,
            max(apart, self._drift(multipliers)),
            unpaid=rules.unpaid,
            free=() if rules.unpaid is None else form.column_names(rules.unpaid.columns),
        )

    def _drift(self, multipliers: Mapping[str, Any]) -> float:
        """Return how far multipliers somebody handed in are from those that follow from Λ."""
        if multipliers is self.own:  # read-only, and derived from Λ when first read
            return 0.0
        derived: dict[str, Floats] = {
            "row sum": self.row_multipliers(),
            "nonnegativity": np.zeros(self.problem.log_prob.shape),
            **self.rules.compiled.by_name(self.y, self.z)[1],
        }
        return drift(multipliers, derived)
