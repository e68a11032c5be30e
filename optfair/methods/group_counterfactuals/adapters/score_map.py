"""Route of the structure ``score-factors``: solve in d + 1 numbers, lift, prove on the map."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.backends.request import Outcome, Request
from optfair.core.certificate import DualCheck
from optfair.core.expressions import Values
from optfair.errors import SolverFailure
from optfair.methods.group_counterfactuals.maps.score_line import Reduction, ScoreLine
from optfair.proofs.bounds import Unpaid
from optfair.proofs.rounding import loss

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["ScoreMapProof", "run"]

# The reduced problem is solved to this share of the tolerance.
SHARE = 0.25


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the reduced problem by the default solvers of its class, and lift the result."""
    p: Any = problem
    request.refuse_options(profile)
    begin = time.perf_counter()
    reduced = ScoreLine(p)
    reduction: Reduction = reduced.data["reduction"]
    limit = None if request.time_limit is None else request.seconds_left
    declared_at = time.perf_counter()
    found = reduced.solve(tolerance=max(SHARE * request.tolerance, 1e-12), time_limit=limit)
    solved_at = time.perf_counter()
    step = (float(found["score"]) - reduced.data["start"]) / reduced.data["weight"]
    mean = p.moments.mean + step * p.normal / p.feature_costs
    values = reduction.lift(mean, np.asarray(found["factors"], dtype=float))
    multipliers: dict[str, Floats] = {}
    for name, term in p.constraints.items():
        part = name.removeprefix("factor ")
        if part in found.multipliers:
            multipliers[name] = np.array(found.multipliers[part], dtype=float)
            continue
        # a bound on the whole matrix was left out: it is slack, or this is not the optimum
        off = term.relative_violation(values)
        if off > request.tolerance:
            raise SolverFailure(f"{name!r} is active", f"left out, it is violated by {off:.1e}")
        multipliers[name] = np.zeros(term.shape)
    for array in (*values.values(), *multipliers.values()):
        array.flags.writeable = False
    compiled = declared_at - begin + float(found.seconds.get("compile", 0.0))
    return Outcome(
        found.status.termination,
        values,
        multipliers,
        ScoreMapProof(p, reduction),
        {
            "compile": compiled,
            "solve": solved_at - begin - compiled,
            "recover": time.perf_counter() - solved_at,
        },
        found.progress,
    )


@dataclass(frozen=True, eq=False)
class ScoreMapProof:
    r"""Bound from multipliers y of the members and λ of the bounds on the factors.

    .. math::
        q(y, \lambda) = (t - s_0) \sum_i y_i - \tfrac14 Q \big(\textstyle\sum_i y_i\big)^2
        + g^T f_0 - \tfrac14 \|h\|^2 - \lambda_u^T u + \lambda_l^T l,\qquad
        g = \lambda_u - \lambda_l - T^T \sum_i y_i (x_i - \mu) = R^T h

    the minimum of the Lagrangian over all maps of the problem.
    """

    problem: Any
    reduction: Reduction
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute bound and residuals."""
        p, r = self.problem, self.reduction
        w, mean, centered = p.normal, p.moments.mean, p.data["centered"]
        image, factors = np.asarray(values["mean"], dtype=float), r.factors(values)
        y = np.asarray(multipliers["classification"], dtype=float)
        sure = np.maximum(y, 0.0)  # the bound holds for signs that are right only
        total, Q = float(sure.sum()), float(w @ (w / p.feature_costs))
        slope = -(r.turn.T @ (sure @ centered))
        unit = 1.0 + float(np.abs(total * w).max()) + float(np.abs(slope).max())
        bound = total * (p.level - float(w @ mean)) - 0.25 * Q * total**2
        outside, products = -float(y.min(initial=0.0)), 0.0
        sizes = total * (abs(p.level) + float(np.abs(w) @ np.abs(mean))) + 0.25 * Q * total**2
        sizes += float(sure @ (np.abs(centered) @ np.abs(r.turn).sum(axis=1)))
        edges = self._edges()
        for name in multipliers:
            rate = np.asarray(multipliers[name], dtype=float)
            if name in edges:
                sign, edge = edges[name]
                if name != "factor identity":
                    outside = max(outside, -float(rate.min(initial=0.0)))
                    rate = np.maximum(rate, 0.0)
                slope = slope + sign * rate
                sizes += abs(edge) * float(np.abs(rate).sum())
                bound -= sign * edge * float(rate.sum())
                products = max(products, float(np.abs(rate * (factors - edge)).max(initial=0.0)))
            elif name != "classification":  # left out of the bound, so nothing may be claimed
                outside = max(outside, float(np.abs(rate).max(initial=0.0)))
        h = np.linalg.lstsq(r.root.T, slope, rcond=None)[0]
        bound += float(slope @ r.center) - 0.25 * float(h @ h)
        left = np.abs(r.root.T @ h - slope)
        rest = float(left.max(initial=0.0))
        sizes += float(np.abs(slope) @ np.abs(r.center)) + float(h @ h)
        bound -= loss(y.size + w.size + h.size, sizes)
        # what no factor cancels is paid with their bounds, or holds near the origin only
        K = p.data["K"]
        boxed = K is not None and "factor upper" in edges and "factor lower" in edges
        bound -= float(left.sum()) * K * (1.0 + 1e-12) if boxed else 0.0
        away = np.abs(factors)
        unpaid = Unpaid(
            np.arange(left.size),
            float(left.sum()),
            0.0,
            float(away.max(initial=0.0)),
            float(left @ away),
        )
        apart = float(np.abs(2.0 * p.feature_costs * (image - mean) - total * w).max())
        turned = 2.0 * (r.root.T @ (r.root @ (factors - r.center))) + slope
        cheapest = r.lift(image, factors)
        drift = (
            np.abs(np.asarray(values[name]) - best).max() / (1.0 + np.abs(best).max())
            for name, best in cheapest.items()
        )
        slack = centered @ (r.turn @ factors) + float(w @ image) - p.level
        return DualCheck(
            bound=bound,
            dual=max(max(apart, float(np.abs(turned).max()), rest, outside) / unit, *drift),
            complementarity=max(products, float(np.abs(y * slack).max(initial=0.0))) / unit,
            unpaid=None if boxed or not unpaid.slope else unpaid,
            free=("factors",),
        )

    def _edges(self) -> dict[str, tuple[float, float]]:
        """Return (sign, edge) of the bounds by name: sign (f - edge) <= 0."""
        K, k = self.problem.data["K"], self.problem.data.get("k")
        known = {
            "factor upper": (1.0, K),
            "factor lower": (-1.0, 0.0 if k is None else 1.0 / k),
            "factor identity": (1.0, 1.0),
        }
        return {name: known[name] for name in self.reduction.bounds}
