"""Search for a proof that a problem is not convex."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import NonconvexityWitness

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["search_witness"]

TRIES = 400


def search_witness(problem: Problem) -> NonconvexityWitness | None:
    """Look for two feasible points with a bad midpoint around random centers.

    A search that finds nothing proves nothing: the class then stays *unverified*.
    """
    suspects = [t.name for t in problem.terms if not t.evidence.problem_class.convex]
    sizes = {name: v.shape for name, v in problem.variables.items()}
    if sum(v.size for v in problem.variables.values()) > 2_000:
        return None
    rng = np.random.default_rng(0)

    def unpack(flat: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        out, at = {}, 0
        for name, shape in sizes.items():
            size = int(np.prod(shape))
            out[name] = flat[at : at + size].reshape(shape)
            at += size
        return out

    def projected(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        # symmetric variables take symmetric values
        parts = unpack(flat)
        for name, v in problem.variables.items():
            if v.attributes.get("symmetric"):
                parts[name] = (parts[name] + parts[name].T) / 2
        return np.concatenate([np.ravel(parts[name]) for name in sizes])

    total = sum(int(np.prod(s)) for s in sizes.values())
    for _ in range(TRIES):
        center = projected(rng.normal(size=total) * 10.0 ** rng.uniform(-2, 1))
        if rng.random() < 0.3:
            center = np.zeros(total)
        step = projected(rng.normal(size=total))
        if rng.random() < 0.5:  # one coordinate at a time meets axis-shaped sets
            step *= np.arange(total) == rng.integers(total)
            step = projected(step)
        step *= 10.0 ** rng.uniform(-1, 1.5) / max(np.linalg.norm(step), 1e-12)
        first, second = unpack(center + step), unpack(center - step)
        for name in suspects:
            witness = NonconvexityWitness(problem, name, first, second)
            if witness.verify():
                return witness
    return None
