r"""Contradictions of constraints that hold in exact arithmetic.

No y satisfies :math:`b - Ay \in K` where :math:`b^T z < \inf_y (A^T z)^T y` for some :math:`z \in K^*`
(Farkas); the infimum is over bounds that every feasible y obeys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from optfair.proofs.bounds import implied
from optfair.proofs.columns import NONE, linear_rows
from optfair.proofs.digits import whole_multiple
from optfair.proofs.faces import on_face
from optfair.proofs.moves import Boxes, carrying, sides_of
from optfair.proofs.residual import (
    Ints,
    Residual,
    in_dual,
    polished,
    repaired,
    residual_of,
    sharper,
)
from optfair.proofs.rounding import Floats
from optfair.proofs.unpaid import loosened

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


# Binary digits of a vector that is tried first.
DIGITS = 24
# Entries of a reported vector below such a share of the largest may be rounding.
NOISE = (0.0, 1e-9, 1e-7, 1e-5)


@dataclass(frozen=True, eq=False)
class Contradiction:
    """What a vector of multipliers proves about the constraints alone.

    Attributes
    ----------
    proved : bool
        Whether no point satisfies them, in exact arithmetic.
    radius : float
        No point with entries of at most this size satisfies them.
    fault : str
        Why it is not proved.
    columns : array of int
        Columns that nothing bounds and whose residual is not 0.
    excludes : bool
        Whether no point satisfies them whose declared numbers are below 1e15, as those of points
        are, in units of the sides of these rows.
    """

    proved: bool
    radius: float
    fault: str = ""
    columns: Ints | None = None
    excludes: bool = False


def infeasibility(form: ConicForm, z: Floats, *, repair: bool = True) -> Contradiction:
    r"""Return what a Farkas vector proves: :math:`b^T z < \min_y (A^T z)^T y` is impossible.

    Parameters
    ----------
    form : ConicForm
        The compiled constraints.
    z : array (m,)
        Any vector; it is moved into the dual cone first.
    repair : bool
        Whether columns that do not cancel may be made to by a small move.
    """
    if z.shape != form.b.shape or not np.isfinite(z).all():
        return Contradiction(False, 0.0, "it is not a finite vector with an entry per row")
    form, _ = loosened(form, np.inf, None)
    if form.same is not None:
        same, _ = form.same
        for there in same.candidates(z):
            balanced = infeasibility(same.form, there, repair=repair)
            if balanced.proved:
                return balanced
    largest = float(np.abs(z).max(initial=0.0))
    if largest == 0.0:
        return Contradiction(False, 0.0, "it is zero")
    # scaled before it is moved into the dual cone: small entries round each on its own
    z = in_dual(form.cones, np.ldexp(z, -int(np.floor(np.log2(largest)))))
    if not np.isfinite(z).all():
        return Contradiction(False, 0.0, "it is not a finite vector with an entry per row")
    nothing = np.zeros(form.q.size)
    residual = residual_of(form, None, z, nothing)
    lower, upper = form.column_bounds
    open_ones = residual.unpaid(lower, upper)
    if open_ones.any():
        residual = sharper(form, residual, None, z, nothing, np.flatnonzero(open_ones))
        open_ones = residual.unpaid(lower, upper)
    if open_ones.any():
        boxes = implied(form, linear_rows(form), residual, Boxes(lower, upper))
        lower, upper = boxes.lower, boxes.upper
        open_ones = residual.unpaid(lower, upper)
    if open_ones.any() and repair:
        for part in carrying(form, z):
            near, moved = polished(part, residual, None, z, nothing, lower, upper)
            moved, spent = repaired(part, moved, None, near, nothing, lower, upper)
            if (proof := _contradiction(form, near, moved, spent, lower, upper)).proved:
                return proof
        face = on_face(replace(form, q=nothing), z)
        if face is not None and (proof := infeasibility(face.form, face.z)).proved:
            return proof
    return _contradiction(form, z, residual, 0.0, lower, upper)


def _contradiction(
    form: ConicForm, z: Floats, residual: Residual, spent: float, lower: Floats, upper: Floats
) -> Contradiction:
    open_ones = residual.unpaid(lower, upper)
    center, radius = sides_of(form, z)
    # b'z - r'y < 0 for every y within the bounds
    surplus = -(center + radius) - spent + residual.cost(lower, upper, ~open_ones)
    if not surplus > 0.0:
        return Contradiction(False, 0.0, "its rows do not contradict each other")
    if not open_ones.any():
        return Contradiction(True, np.inf, excludes=True)
    reach = surplus / float(residual.size[open_ones].sum()) * (1.0 - 1e-9)
    reach = min(reach, float(np.finfo(float).max))  # beyond the floats there still are points
    where = np.flatnonzero(open_ones)
    # an auxiliary number of an ordinary point may be large: a square
    own = np.zeros(form.q.size, dtype=bool)
    for at in form.columns.values():
        own[at] = True
    far = bool(reach >= NONE * _length(form, z) and own[where].all())
    return Contradiction(False, reach, "columns without a bound do not cancel", where, far)


def _length(form: ConicForm, z: Floats) -> float:
    """Return how large the numbers are that the rows of a vector speak of, 1 at least."""
    used = np.flatnonzero(z)
    entries = (
        abs(form.rows[used]).max(axis=1).toarray().ravel() if form.A.nnz else np.zeros(used.size)
    )
    sides = np.abs(form.b[used])
    with np.errstate(over="ignore"):
        return float((sides / np.where(entries > 0.0, entries, np.inf)).max(initial=1.0))


def candidates(form: ConicForm, z: Floats) -> Iterator[tuple[Floats, bool]]:
    """Yield vectors near what a solver reports, and whether they may be moved until they are exact."""
    largest = float(np.abs(z).max(initial=0.0))
    if largest > 0.0:
        yield np.round(z / largest * 2.0**DIGITS) / 2.0**DIGITS, False
    cleaned = z
    for share in NOISE:
        yield (cleaned := np.where(np.abs(z) > share * largest, z, 0.0)), True
    yield from ((v, True) for v in _without_open(form, cleaned))
    yield from ((v, False) for v in simple(z, None if form.units is None else form.units[0]))


def simple(v: Floats, units: Floats | None) -> list[Floats]:
    """Return small whole numbers in the same direction, as they stand and in other units.

    On the boundary of a curved cone a vector cannot be moved until it is exact, it must be.
    """
    candidates = [whole_multiple(v)]
    if units is not None:
        other = whole_multiple(v / units)
        candidates.append(None if other is None else other * units)
    return [w for w in candidates if w is not None]


def _without_open(form: ConicForm, z: Floats) -> list[Floats]:
    """Leave out what meets a column that nothing bounds and that does not cancel: all, or its cones.

    Those of an objective are of this kind: they have no part in a contradiction.
    """
    proof = infeasibility(form, z, repair=False)
    if proof.columns is None:
        return []
    met, curved = (np.zeros(form.b.size, dtype=bool) for _ in range(2))
    met[form.columns_of_rows[:, proof.columns].indices] = True
    for c in form.cones:
        if c.kind not in ("zero", "nonneg") and met[c.start : c.stop].any():
            curved[c.start : c.stop] = True
    return [np.where(left, 0.0, z) for left in (met | curved, curved)]
