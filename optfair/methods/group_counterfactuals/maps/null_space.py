"""What a map does in directions in which its group has no extent, and its cost says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.expressions import Values
from optfair.methods.group_counterfactuals.maps.moments import ROUNDING

if TYPE_CHECKING:
    from optfair.methods.group_counterfactuals.maps.map_problem import MapProblem
    from optfair.methods.group_counterfactuals.maps.piece import Piece

Floats = NDArray[np.float64]

__all__ = ["as_far_as_feasible", "nearest_to_identity"]

# Eigenvalues this near to a bound are at it, relative to the size of the matrix.
AT_BOUND = 1e-8
# Projections end when a round changes nothing more than this.
STILL, ROUNDS = 1e-12, 500
# Relative violation that is let pass, where the solution itself has less.
FEASIBLE = 1e-9


def nearest_to_identity(A: Floats, root: Floats, K: float | None, k: float | None) -> Floats:
    r"""Return the matrix nearest to I among those that move the group as A does.

    Let R be a basis of the range of Σ and N one of its null space. Cost and members depend on
    A R only; given that, the symmetric block :math:`B = N^T A N` is free but for the Loewner
    bounds. By Schur complements with :math:`D = R^T A R` and :math:`E = N^T A R`

    .. math::
        \tfrac1k I + E (D - \tfrac1k I)^+ E^T \preceq B \preceq K I - E (K I - D)^+ E^T

    and the B nearest to I in the Frobenius norm is found by Dykstra's projections onto both.

    Parameters
    ----------
    A : array (d, d)
        Symmetric, within the bounds.
    root : array (d, r)
        L with Σ = L Lᵀ, of full column rank.
    K, k : float or None
        Loewner bounds; without k the matrix is positive semidefinite.
    """
    d, r = root.shape
    basis = np.linalg.svd(root, full_matrices=True)[0]
    R, N = basis[:, :r], basis[:, r:]
    D, E = R.T @ A @ R, N.T @ A @ R
    least = 0.0 if k is None else 1.0 / k
    low = least * np.eye(d - r) + _complement(D - least * np.eye(r), E)
    high = None if K is None else K * np.eye(d - r) - _complement(K * np.eye(r) - D, E)
    B = N.T @ A @ N
    return np.asarray(A + N @ (_between(low, high) - B) @ N.T)


def _complement(D: Floats, E: Floats) -> Floats:
    values, vectors = np.linalg.eigh((D + D.T) / 2)
    inside = values > AT_BOUND * max(1.0, float(np.abs(values).max(initial=0.0)))
    turned = E @ vectors[:, inside]
    return np.asarray((turned / values[inside]) @ turned.T)


def _between(low: Floats, high: Floats | None) -> Floats:
    """Return the matrix nearest to I between two others, by Dykstra's projections."""
    B = np.eye(len(low))
    if high is None:
        return low + _positive(B - low)
    up, down = np.zeros_like(B), np.zeros_like(B)
    for _ in range(ROUNDS):
        above = low + _positive(B + up - low)
        up = B + up - above
        last, B = B, high - _positive(high - above - down)
        down = above + down - B
        if max(np.abs(B - last).max(), np.abs(B - above).max()) <= STILL * (1.0 + np.abs(B).max()):
            break
    return B


def _positive(S: Floats) -> Floats:
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def as_far_as_feasible(problem: MapProblem, values: Values, wanted: Values) -> Values:
    """Return the point on the way from one to another that the constraints still allow.

    Both must send the members to the same points, or the first is returned; then terms of one
    row per member need not be asked.
    """
    if not all(_alike(piece, values, wanted) for piece in problem.pieces):
        return values
    changed = {name for name in wanted if wanted[name] is not values[name]}
    terms = [t for t in problem.constraints.values() if t.rows is None and changed & t.scope]

    def at(share: float) -> dict[str, Any]:
        moved = {n: (1.0 - share) * values[n] + share * wanted[n] for n in changed}
        return {**values, **moved}

    def allowed(share: float) -> bool:
        point = at(share)
        return all(
            t.relative_violation(point) <= max(FEASIBLE, t.relative_violation(values))
            for t in terms
        )

    if allowed(1.0):
        return at(1.0)
    inside, outside = 0.0, 1.0
    while outside - inside > 1e-9:
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if allowed(middle) else (inside, middle)
    return at(inside)


def _alike(piece: Piece, values: Values, wanted: Values) -> bool:
    """Whether two maps send the members to the same points, feature by feature in its own size."""
    (mean, A), (other, B) = piece.read(values), piece.read(wanted)
    start = np.abs(piece.moments.mean) * ROUNDING
    turned = np.abs(piece.centered @ A.T).max(axis=0, initial=0.0)
    apart = np.abs(piece.centered @ (B - A).T + (other - mean)).max(axis=0, initial=0.0)
    return bool((apart <= FEASIBLE * turned + np.abs(A) @ start + start).all())
