"""A counterfactual as a projection: where it starts from, and what it must satisfy."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optfair.backends.request import Outcome
from optfair.methods.cluster_counterfactuals.algorithms.evidence import (
    BoundaryProof,
    named_multipliers,
)
from optfair.methods.cluster_counterfactuals.algorithms.refusal import refuse_conflicting_bounds

if TYPE_CHECKING:
    from optfair.methods.cluster_counterfactuals.boundary import Section
    from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual

Floats = NDArray[np.float64]

__all__ = ["Setting", "outcome"]


@dataclass(frozen=True, eq=False)
class Setting:
    r"""The projection :math:`\min_u u^T W u`, u = z_F - start, of a counterfactual.

    Attributes
    ----------
    free : array (f,)
        Columns of the free features.
    start : array (d,)
        The nearest point that holds the fixed features: the row, where they are held at its
        own values.
    metric : array (f,) or (f, f) or None
        W.
    sections : tuple of Section
        The boundaries about the start.
    lower, upper : array (f,)
        Bounds on u.
    limits : (array (f,), array (f,))
        The same bounds on the features.
    """

    free: NDArray[np.intp]
    start: Floats
    metric: Floats | None
    sections: tuple[Section, ...]
    lower: Floats
    upper: Floats
    limits: tuple[Floats, Floats]

    @classmethod
    def of(cls, p: ClusterCounterfactual) -> Setting:
        """Read the projection off a problem.

        Raises
        ------
        Infeasible
            Bounds that exclude each other.
        """
        refuse_conflicting_bounds(p)
        free, start, metric = p.free, p.anchor.copy(), p.metric
        if metric is not None and metric.ndim == 1:
            metric = metric[free]
        elif metric is not None:
            away = start - p.factual
            block = metric[np.ix_(free, free)]
            if away.any():  # what is held elsewhere pulls the others along through the matrix
                start[free] -= np.linalg.solve(block, (metric @ away)[free])
            metric = block
        sections = tuple(t.boundary.section(start, free) for t in p.sides)
        low, high = (limit[free] for limit in p.limits)
        lower, upper = low - start[free], high - start[free]
        return cls(free, start, metric, sections, lower, upper, (low, high))

    @property
    def bounded(self) -> bool:
        """Whether a free feature has a bound."""
        return bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any())

    def normal(self, k: int) -> Floats:
        """Return the slope of a boundary; 0 where the free features do not move it."""
        section = self.sections[k]
        return np.zeros_like(section.slope) if section.constant else section.slope

    def at(self, u: Floats) -> Floats:
        """Return the point (d,) of a step, on a bound where the step ends there."""
        z = self.start.copy()
        # start + (limit - start) is not the limit itself
        z[self.free] = np.where(u == self.lower, self.limits[0], z[self.free] + u)
        z[self.free] = np.where(u == self.upper, self.limits[1], z[self.free])
        if self.bounded:
            z[self.free] = np.clip(z[self.free], *self.limits)
        return z


def outcome(p: ClusterCounterfactual, z: Floats, mu: Floats, clock: tuple[float, float]) -> Outcome:
    """Return what a route found, with named multipliers and the proof of its bound.

    Parameters
    ----------
    p : ClusterCounterfactual
        What was solved.
    z : array (d,)
        The point.
    mu : array (m,)
        Multipliers of the sides.
    clock : (float, float)
        When the work began, and when the projection did.
    """
    solved_at = time.perf_counter()
    multipliers = named_multipliers(p, z, mu)
    seconds = {
        "compile": clock[1] - clock[0],
        "solve": solved_at - clock[1],
        "recover": time.perf_counter() - solved_at,
    }
    return Outcome("optimal", {"point": z}, multipliers, BoundaryProof(p), seconds)
