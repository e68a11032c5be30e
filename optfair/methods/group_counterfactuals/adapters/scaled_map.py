"""Route of the structure ``uniform-scale``: the closed form, with its multipliers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from optfair.backends.request import Outcome, Request
from optfair.core.certificate import DualCheck
from optfair.core.expressions import Values
from optfair.methods.group_counterfactuals.maps.scaled_map import ScaledMap
from optfair.proofs.rounding import loss

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["ScaledMapProof", "run"]


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Evaluate the closed form."""
    p = cast(ScaledMap, problem)
    request.refuse_options(profile)
    begin = time.perf_counter()
    w, mean, costs = p.normal, p.moments.mean, p.feature_costs
    behind = -(p.data["centered"] @ w)
    last = int(np.argmax(behind))
    rho, gap = float(behind[last]), p.level - float(w @ mean)
    Q, T = float(w @ (w / costs)), _spread(p)
    compiled_at = time.perf_counter()
    scale, pull = 1.0, 0.0
    if gap + rho > 0.0:
        least = 0.0 if p.data["k"] is None else 1.0 / p.data["k"]
        # T = 0 when all members are equal: then every scale is as good
        free = (T * Q - rho * gap) / (T * Q + rho**2) if T * Q + rho**2 > 0.0 else 1.0
        scale = 1.0 if p.data["K"] == p.data["k"] == 1.0 else max(least, free)
        pull = max(gap + scale * rho, 0.0) / Q
    solved_at = time.perf_counter()
    y = np.zeros(behind.size)
    y[last] = 2.0 * pull
    values = {"mean": mean + pull * w / costs, "scale": np.array(scale)}
    # stationarity in the scale: 2 T (a - 1) + y rho + upper - lower = 0
    force = 2.0 * T * (scale - 1.0) + y[last] * rho
    multipliers: dict[str, Any] = {"classification": y}
    for name in p.constraints:
        if name == "factor lower":
            multipliers[name] = np.array(max(force, 0.0))
        elif name == "factor upper":
            multipliers[name] = np.array(max(-force, 0.0))
        elif name == "factor identity":
            multipliers[name] = np.array(-force)
    for array in (*values.values(), *multipliers.values()):
        array.flags.writeable = False
    seconds = {
        "compile": compiled_at - begin,
        "solve": solved_at - compiled_at,
        "recover": time.perf_counter() - solved_at,
    }
    return Outcome("optimal", values, multipliers, ScaledMapProof(p), seconds)


def _spread(p: ScaledMap) -> float:
    return float(p.feature_costs @ np.diag(p.moments.covariance))


@dataclass(frozen=True, eq=False)
class ScaledMapProof:
    r"""Bound from multipliers y of the members and those of the bounds on the scale.

    .. math::
        q(y, \lambda) = \min_{s, a}\; \|s\|_C^2 + T (a - 1)^2
        + \sum_i y_i (t - w^T (\mu + s) - a\, w^T (x_i - \mu))
        + \lambda_u (a - K) + \lambda_l (\tfrac1k - a)

    which separates in the shift s and the scale a.
    """

    problem: ScaledMap
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute bound and residuals."""
        p = self.problem
        w, mean, centered = p.normal, p.moments.mean, p.data["centered"]
        Q, T = float(w @ (w / p.feature_costs)), _spread(p)
        y = np.asarray(multipliers["classification"], dtype=float)
        ahead = centered @ w
        sure = np.maximum(y, 0.0)  # the bound holds for signs that are right only
        total, turned = float(sure.sum()), float(sure @ ahead)
        slope, constant, outside, products, sizes = -turned, 0.0, 0.0, 0.0, 0.0
        scale = float(np.asarray(values["scale"]))
        for name, sign, bound in self._bounds():
            rate = given = float(np.asarray(multipliers[name]))
            if name != "factor identity":
                rate = max(given, 0.0)
            slope += sign * rate
            constant -= sign * rate * bound
            products = max(products, abs(rate * (scale - bound)))
            outside = max(outside, -given) if name != "factor identity" else outside
            sizes += abs(rate * bound)
        # min over a of T (a - 1)^2 + slope a; over s of |s|_C^2 - total w·s
        bound = total * (p.level - float(w @ mean)) - 0.25 * total**2 * Q + constant + slope
        rest = abs(slope)
        if T > 0.0:
            bound -= 0.25 * slope**2 / T
            rest = abs(2.0 * T * (scale - 1.0) + slope)
        shift = np.asarray(values["mean"], dtype=float) - mean
        apart = np.abs(2.0 * p.feature_costs * shift - total * w).max()
        slack = float(w @ (mean + shift)) + scale * ahead - p.level
        unit = 1.0 + float(np.abs(total * w).max())
        sizes += total * (abs(p.level) + float(np.abs(w) @ np.abs(mean))) + abs(slope)
        sizes += float(sure @ (np.abs(centered) @ np.abs(w))) + 0.25 * total**2 * Q
        bound -= loss(y.size + w.size, sizes + (0.25 * slope**2 / T if T > 0.0 else 0.0))
        return DualCheck(
            bound=bound if T > 0.0 or slope == 0.0 else -np.inf,
            dual=max(float(apart), rest, outside, -float(y.min(initial=0.0))) / unit,
            complementarity=max(products, float(np.abs(y * slack).max(initial=0.0))) / unit,
        )

    def _bounds(self) -> list[tuple[str, float, float]]:
        """Return (name, sign, bound) of the constraints on the scale: sign (a - bound) <= 0."""
        K, k = self.problem.data["K"], self.problem.data["k"]
        known = {
            "factor upper": (1.0, K),
            "factor lower": (-1.0, 0.0 if k is None else 1.0 / k),
            "factor identity": (1.0, 1.0),
        }
        return [(n, *known[n]) for n in self.problem.constraints if n in known]
