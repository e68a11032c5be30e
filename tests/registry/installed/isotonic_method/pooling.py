"""Pool adjacent violators: an exact algorithm for the structure ``chain``, with its proof."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair.backends.request import Outcome
from optfair.core.certificate import DualCheck
from optfair.proofs.rounding import loss


def pooled(y: np.ndarray) -> np.ndarray:
    """Return the increasing numbers nearest to y."""
    levels: list[list[float]] = []
    for value in y:
        levels.append([float(value), 1])
        while len(levels) > 1 and levels[-2][0] >= levels[-1][0]:
            (a, m), (b, n) = levels.pop(-2), levels.pop()
            levels.append([(a * m + b * n) / (m + n), m + n])
    return np.repeat([a for a, _ in levels], [int(n) for _, n in levels])


def run(problem: Any, profile: Any, request: Any) -> Outcome:
    """Pool, and read the multipliers off the sums of residuals."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    y = problem.data["observed"]
    x = pooled(y)
    z = np.maximum(2.0 * np.cumsum(y - x)[:-1], 0.0)
    seconds = {"compile": 0.0, "solve": time.perf_counter() - begin}
    return Outcome("optimal", {"fitted": x}, {"order": z}, ChainProof(problem), seconds)


@dataclass(frozen=True, eq=False)
class ChainProof:
    r"""Bound from any multipliers z >= 0 of the order: g'y - |g|^2 / 4 with g = D'z."""

    problem: Any
    source: str = "duality"

    def check(self, values: Any, multipliers: Any) -> DualCheck:
        y, x = self.problem.data["observed"], np.asarray(values["fitted"], dtype=float)
        z = np.asarray(multipliers["order"], dtype=float)
        if z.shape != (y.size - 1,) or x.shape != y.shape:
            return DualCheck(-np.inf, np.inf, np.inf, np.inf)
        sure = np.maximum(z, 0.0)
        g = np.append(sure, 0.0) - np.insert(sure, 0, 0.0)
        size = float(np.abs(g) @ np.abs(y) + g @ g)
        unit = 1.0 + float(np.abs(y).max())
        return DualCheck(
            bound=float(g @ y - g @ g / 4.0) - loss(4 * y.size, size),
            dual=float(np.abs(2.0 * (x - y) + g).max() + np.maximum(-z, 0.0).max()) / unit,
            complementarity=float(np.abs(z * np.diff(x)).max()) / unit**2,
        )
