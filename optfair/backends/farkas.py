"""Farkas certificates of infeasibility, checked on the compiled data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import Certificate, Verdict
from optfair.solution.conic_form import ConicForm

__all__ = ["InfeasibilityProof", "carriers", "proved_infeasible", "recedes"]

# Entries of a reported vector below such a share of the largest may be rounding.
NOISE = (0.0, 1e-7, 1e-5)


@dataclass(frozen=True, eq=False, repr=False)
class InfeasibilityProof(Certificate):
    r"""A vector z in the dual cone with :math:`A^T z = 0` and :math:`b^T z < 0`.

    Then no x has b - Ax in the cone: :math:`0 \le z^T(b - Ax) = b^T z < 0` is impossible.

    Parameters
    ----------
    form : ConicForm
        The compiled constraints.
    z : array (m,)
        The Farkas vector.
    conflict : tuple of str
        Names of the terms that exclude each other.
    tolerance : float
        Rounding allowed in :math:`A^T z`, relative to the size of its terms.
    """

    form: ConicForm
    z: NDArray[np.float64]
    conflict: tuple[str, ...] = ()
    tolerance: float = 1e-6

    def verify(self) -> Verdict:
        """Check the three conditions, relative to :math:`-b^T z`."""
        form = self.form
        value = -float(form.b @ self.z)
        if not value > 0.0:
            return Verdict(False, ("b'z is not negative",))
        z = self.z / value
        reasons = []
        # cancellation column by column: a small coefficient with a large x is no rounding
        size = abs(form.A).T @ np.abs(z)
        leak = float((np.abs(form.A.T @ z) / np.where(size > 0.0, size, 1.0)).max(initial=0.0))
        if leak > self.tolerance:
            reasons.append(f"A'z cancels to {leak:.1e} of its terms only")
        outside = max((c.distance(z[c.start : c.stop], dual=True) for c in form.cones), default=0.0)
        if outside > self.tolerance:
            reasons.append(f"z leaves the dual cone by {outside:.1e}")
        return Verdict(not reasons, tuple(reasons))

    def __str__(self) -> str:
        return f"Farkas certificate over {', '.join(map(repr, self.conflict))}"

    __repr__ = __str__


def carriers(multipliers: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the terms that carry a Farkas vector."""
    sizes = {k: float(np.abs(v).max(initial=0.0)) for k, v in multipliers.items()}
    largest = max(sizes.values(), default=0.0)
    return tuple(k for k, v in sizes.items() if v > 1e-4 * largest)


def proved_infeasible(
    form: ConicForm,
    z: NDArray[np.float64],
    conflict: Callable[[NDArray[np.float64]], tuple[str, ...]],
) -> InfeasibilityProof | None:
    """Return a proof that verifies, from a vector that a solver reports.

    A solver leaves rounding where the vector has zeros. On rows that bound the objective by an
    auxiliary variable there is nothing else in that variable's column, so the rounding cancels
    with nothing; small entries are therefore set to zero as far as the proof needs it.

    Parameters
    ----------
    form : ConicForm
        The compiled constraints.
    z : array (m,)
        What the solver reports.
    conflict : callable
        From a vector to the names of the terms that carry it.
    """
    largest = float(np.abs(z).max(initial=0.0))
    for share in NOISE:
        exact = np.where(np.abs(z) > share * largest, z, 0.0)
        proof = InfeasibilityProof(form, exact, conflict(exact))
        if proof.verify():
            return proof
    return None


def recedes(form: ConicForm, d: NDArray[np.float64], tolerance: float = 1e-6) -> bool:
    """Return whether the objective falls for ever along d: -Ad in the cones, Pd = 0, q'd < 0."""
    if d.size != form.q.size or not np.isfinite(d).all():
        return False
    fall = -float(form.q @ d)
    if not fall > 0.0:
        return False
    d = d / max(fall, float(np.abs(d).max()))
    moved = -(form.A @ d)
    outside = max((c.distance(moved[c.start : c.stop]) for c in form.cones), default=0.0)
    curved = float(np.abs(form.P @ d).max(initial=0.0))
    return max(outside, curved) <= tolerance and -float(form.q @ d) > tolerance
