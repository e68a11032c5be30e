"""Farkas certificates of infeasibility, checked on the compiled data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.compile.conic import Compiled
from optfair.core.certificate import Certificate, Verdict

__all__ = ["InfeasibilityProof"]


@dataclass(frozen=True, eq=False)
class InfeasibilityProof(Certificate):
    r"""A vector z in the dual cone with :math:`A^T z = 0` and :math:`b^T z < 0`.

    Then no x has b - Ax in the cone: :math:`0 \le z^T(b - Ax) = b^T z < 0` is impossible.
    """

    compiled: Compiled
    z: NDArray[np.float64]
    tolerance: float = 1e-6

    def verify(self) -> Verdict:
        """Check the three conditions, relative to :math:`-b^T z`."""
        form = self.compiled.form
        value = -float(form.b @ self.z)
        if not value > 0.0:
            return Verdict(False, ("b'z is not negative",))
        z = self.z / value
        reasons = []
        leak = float(np.abs(form.A.T @ z).max(initial=0.0))
        if leak > self.tolerance:
            reasons.append(f"A'z is {leak:.1e} of -b'z")
        outside = max((c.distance(z[c.start : c.stop], dual=True) for c in form.cones), default=0.0)
        if outside > self.tolerance:
            reasons.append(f"z leaves the dual cone by {outside:.1e}")
        return Verdict(not reasons, tuple(reasons))

    def conflict(self) -> tuple[str, ...]:
        """Return the names of the terms that carry the certificate."""
        _, multipliers = self.compiled.by_name(np.zeros(self.compiled.form.q.size), self.z)
        sizes = {k: float(np.abs(v).max(initial=0.0)) for k, v in multipliers.items()}
        largest = max(sizes.values(), default=0.0)
        return tuple(k for k, v in sizes.items() if v > 1e-4 * largest)

    def __str__(self) -> str:
        return f"Farkas certificate over {', '.join(map(repr, self.conflict()))}"
