"""Route of the structure ``separable-target``: project every member on its half-space."""

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
from optfair.methods.group_counterfactuals.group_counterfactual import IndependentCounterfactuals
from optfair.proofs.rounding import loss

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["ProjectionProof", "run"]


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Project, and read the multipliers off the steps."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    p = cast(IndependentCounterfactuals, problem)
    Z = p.projected()
    v, along = p.normal, p.normal / p.feature_costs
    short = np.maximum(p.level - p.points @ v, 0.0)
    y = 2.0 * short / (len(p.points) * float(v @ along))
    Z.flags.writeable = y.flags.writeable = False
    seconds = {"compile": 0.0, "solve": time.perf_counter() - begin}
    return Outcome(
        "optimal", {"counterfactuals": Z}, {"classification": y}, ProjectionProof(p), seconds
    )


@dataclass(frozen=True, eq=False)
class ProjectionProof:
    r"""Bound from multipliers y of the target, for weights c of the features.

    .. math::
        \sum_i \min_z \tfrac1n \|z - x_i\|_c^2 + y_i (t - v^T z)
        = \sum_i y_i (t - v^T x_i) - \tfrac n4\, y_i^2 \textstyle\sum_j v_j^2 / c_j

    It holds for every y ≥ 0.
    """

    problem: IndependentCounterfactuals
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound, and how far the pair is from stationary."""
        p = self.problem
        X, v, c = p.points, p.normal, p.feature_costs
        n = X.shape[0]
        y = np.asarray(multipliers["classification"], dtype=float)
        Z = np.asarray(values["counterfactuals"], dtype=float)
        if y.shape != (n,) or Z.shape != X.shape:
            return DualCheck(-np.inf, np.inf, np.inf, np.inf)
        short, sure = p.level - X @ v, np.maximum(y, 0.0)
        # each member's own gradient: the mean over n members must not hide one of them
        gradient = 2.0 * c * (Z - X) - n * np.outer(y, v)
        unit = 1.0 + float(np.abs(2.0 * c * (Z - X)).max(initial=0.0))
        rounding = 8.0 * np.finfo(float).eps * float((c * np.abs(X)).max(initial=0.0))
        off = max(0.0, float(np.abs(gradient).max(initial=0.0)) - rounding)
        slack = Z @ v - p.level
        curve = float(0.25 * n * np.sum(np.square(sure)) * np.sum(v * v / c))
        parts = abs(p.level) + np.abs(X) @ np.abs(v)
        return DualCheck(
            bound=float(sure @ short) - curve - loss(n + v.size, float(sure @ parts) + curve),
            dual=max(off, n * max(0.0, -float(y.min(initial=0.0)))) / unit,
            complementarity=n
            * float(np.abs(y * slack).max(initial=0.0))
            / (unit * (1.0 + abs(p.level))),
        )
