"""Two points of a cluster whose midpoint is outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import NonconvexityWitness

if TYPE_CHECKING:
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["opposite_points"]


def opposite_points(problem: Problem) -> NonconvexityWitness | None:
    """Return opposite points along a direction in which a boundary curves downwards.

    From a center outside, far enough in both directions the boundary is below 0 again; with
    further constraints some lengths may still do. None where none of the tries does.
    """
    p: Any = problem
    if set(p.variables) != {"point"}:
        return None
    for t in p.sides:
        s = t.section
        if t.evidence.problem_class.convex:
            continue
        d, V = np.linalg.eigh(s.D)
        for v, curvature in ((V[:, i], d[i]) for i in np.flatnonzero(d < 0.0)[:3]):
            for center in _outside(p, s, V, d, v):
                u = center[s.free] - s.anchor[s.free]
                level = s.value(center)
                slope = float((s.slope + s.D @ u) @ v)
                # level ± slope r + ½ curvature r² <= 0 on both sides
                reach = (abs(slope) + np.sqrt(slope**2 - 2.0 * curvature * level)) / -curvature
                for longer in (1.0 + 1e-6, 1.1, 2.0, 10.0):
                    step = np.zeros(center.size)
                    step[s.free] = longer * reach * v
                    first, second = {"point": center + step}, {"point": center - step}
                    witness = NonconvexityWitness(problem, t.name, first, second)
                    if witness.verify():
                        return witness
    return None


def _outside(p: Any, s: Any, V: Floats, d: Floats, v: Floats) -> Iterator[Floats]:
    """Yield points on the wrong side of a boundary."""
    starts = [s.anchor, p.clusters.means[p.source], p.clusters.means[p.target]]
    unit = float(np.abs(p.clusters.means).max()) + 1.0
    for start in starts:
        z = s.anchor.copy()
        z[s.free] = start[s.free]
        yield from (c for c in (z, _crest(s, z, v)) if s.value(c) > 1e-5 * (1.0 + abs(s.level)))
    for size in (1.0, 10.0, 100.0):
        z = s.anchor.copy()
        z[s.free] += size * unit * V[:, -1]
        if d[-1] > 0.0 and s.value(z) > 1e-5 * (1.0 + abs(s.level)):
            yield z


def _crest(s: Any, z: Floats, v: Floats) -> Floats:
    """Return the point along v where the boundary function is largest."""
    u = z[s.free] - s.anchor[s.free]
    z = z.copy()
    z[s.free] += float((s.slope + s.D @ u) @ v) / -float(v @ s.D @ v) * v
    return z
