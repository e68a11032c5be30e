r"""Bounds of cone programs that hold in exact arithmetic.

For :math:`\min \tfrac12 x^T P x + q^T x` subject to :math:`b - Ax \in K` with :math:`P \succeq 0`,
any x and any :math:`z \in K^*` give, with :math:`r = Px + A^T z + q`,

.. math:: -\tfrac12 x^T P x - b^T z + \inf_y r^T y

as a bound: what the multipliers leave over must be paid with bounds that every feasible y obeys.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.columns import Rows, linear_rows, propagated, rotated_rows
from optfair.proofs.digits import bound_nearby
from optfair.proofs.faces import on_face
from optfair.proofs.residual import (
    NEAR,
    Residual,
    absorbed,
    in_dual,
    peeled,
    polished,
    repaired,
    residual_of,
    sharper,
    tilted,
)
from optfair.proofs.rounding import (
    UNIT,
    dot,
)

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# How much more than the residual is worth at the point its repair may cost, and how much of the
# size of the objective it may cost at any rate.
DEAR, SPARE = 1e3, 1e-10
# Share of the objective that a tilt may cost.
SLIGHT = 2e-8
# Multipliers below such a share of the largest cost, times their rows, may be rounding.
NOISE = (1e-11, 1e-8)
# Times that columns which a move opens are made 0 with the others.
ROUNDS = 5
# So many unpaid columns are closed by equations before anything larger is solved.
FEW = 200


@dataclass(frozen=True, eq=False)
class Unpaid:
    r"""What a bound may lose, because columns without bounds have residuals.

    With :math:`|y_j| \le R` on these columns the bound is short by at most
    :math:`R \sum_j |r_j| + \tfrac12 \delta \sum_j (R + |x_j|)^2`.

    Attributes
    ----------
    columns : array of int
        Columns that are not paid for.
    slope : float
        :math:`\sum_j |r_j|`.
    curve : float
        δ: how far P may be from positive semidefinite on them.
    size : float
        Largest :math:`|x_j|` of all columns.
    here : float
        What the bound loses at the size of the solution itself: no proof, but a sign of trouble.
    natural : float
        Size of a number in these columns: one over the largest share they have in a row. A
        column whose coefficients are 1e-9 of their rows' may well be 1e9.
    """

    columns: Ints
    slope: float
    curve: float
    size: float
    here: float = 0.0
    natural: float = 1.0

    def times(self, factor: float) -> Unpaid:
        """Return the same for an objective multiplied by a positive factor."""
        parts = (self.slope * factor, self.curve * factor)
        return replace(self, slope=parts[0], curve=parts[1], here=self.here * factor)

    def joined(self, other: Unpaid | None) -> Unpaid:
        """Return what the lesser of two bounds may lose."""
        if other is None:
            return self
        names = ("slope", "curve", "size", "here", "natural")
        parts = {name: max(getattr(self, name), getattr(other, name)) for name in names}
        return Unpaid(np.union1d(self.columns, other.columns), **parts)

    def radius(self, loss: float) -> float:
        """Return the largest R for which the bound is short by no more than ``loss``."""
        if not loss > 0.0:
            return 0.0
        bend = 0.5 * self.curve * self.columns.size
        # slope R + bend (R + size)² <= loss
        rate = self.slope + 2.0 * bend * self.size
        left = loss * (1.0 - 1e-9) - bend * self.size**2
        if not (left > 0.0 and np.isfinite(rate)):
            return 0.0
        if rate == 0.0 and bend == 0.0:
            return np.inf
        with np.errstate(over="ignore"):
            reach = 2.0 * left / (rate + np.sqrt(rate**2 + 4.0 * bend * left))
        return float(min(reach * (1.0 - 1e-9), np.finfo(float).max))


@dataclass(frozen=True, eq=False)
class LowerBound:
    """A bound on the compiled objective, offset included.

    Attributes
    ----------
    value : float
        Valid in exact arithmetic for all feasible points, or, with ``unpaid``, for those near
        enough to the origin; -inf when nothing is proved.
    unpaid : Unpaid or None
        Columns that nothing bounds and whose residual is not exactly 0.
    fault : str
        Why nothing is proved.
    """

    value: float
    unpaid: Unpaid | None = None
    fault: str = ""


def _with_cut(form: ConicForm, rows: Rows, upper: float | None) -> Rows:
    """Add the row that the objective is at most a known value, for a linear objective."""
    if upper is None or form.P.nnz or not np.isfinite(upper) or not form.q.any():
        return rows
    side = np.nextafter(upper - form.offset, np.inf)
    side += 4.0 * UNIT * (abs(upper) + abs(form.offset))
    return rows.below(form.q[None, :], np.array([side]))


def _implied(form: ConicForm, rows: Rows, found: Residual, boxes: Boxes) -> Boxes:
    """Return the boxes with the bounds that rows imply, as far as the residual needs them."""

    def suffice(lower: Floats, upper: Floats) -> bool:
        return not boxes.tighter(lower, upper).unpaid(found).any()

    near = boxes.tighter(*propagated(rows, boxes.lower, boxes.upper, suffice))
    if near.unpaid(found).any() and (more := rotated_rows(form))[1].size:
        near = near.tighter(*propagated(rows.below(*more), near.lower, near.upper, suffice))
    return near


@dataclass(frozen=True, eq=False)
class Boxes:
    r"""Bounds on the columns, and what curvature pays where there are none.

    With :math:`P \succeq \operatorname{diag}(\mu)` the objective grows by at least
    :math:`\tfrac12 \mu_j (y_j - x_j)^2` away from x, and

    .. math::
        \min_y\; r y + \tfrac12 \mu (y - x)^2 = r x - \frac{r^2}{2 \mu}
        \ge \min_{|y - x| \le w} r y, \quad w \ge \frac{|r|}{2 \mu},

    so a column is charged for a residual r as if it had these, around x, where they are nearer
    than its bounds: either charge alone is valid, and so is the less.
    """

    lower: Floats
    upper: Floats
    x: Floats | None = None
    floor: Floats | None = None

    def tighter(self, lower: Floats, upper: Floats) -> Boxes:
        """Return the same with other bounds."""
        return replace(self, lower=lower, upper=upper)

    def of(self, found: Residual) -> tuple[Floats, Floats]:
        """Return the bounds by which a residual is charged."""
        if self.floor is None or self.x is None:
            return self.lower, self.upper
        at = self.floor > 0.0
        width = np.full(at.size, np.inf)
        with np.errstate(over="ignore"):
            width[at] = found.size[at] / self.floor[at] * (1.0 + 8.0 * UNIT) + 1e-300
        near, far = np.nextafter(self.x - width, -np.inf), np.nextafter(self.x + width, np.inf)
        # their least corner is what is charged: ends that cross make it more, never less
        return np.maximum(self.lower, near), np.minimum(self.upper, far)

    def unpaid(self, found: Residual) -> NDArray[np.bool_]:
        """Return the columns whose residual meets a bound that is not there."""
        return found.unpaid(*self.of(found))


def lower_bound(form: ConicForm, x: Floats, z: Floats, upper: float | None = None) -> LowerBound:
    """Return what a primal-dual pair proves about the optimum.

    Parameters
    ----------
    form : ConicForm
        The compiled program; its floats are taken as exact.
    x : array (n,)
        Any point; only the curvature is measured there.
    z : array (m,)
        Any vector; it is moved into the dual cone first.
    upper : float, optional
        A value of the objective. The bound is then the least of it and of what holds where the
        objective is at most that, so nothing about the point has to be feasible.

    Returns
    -------
    LowerBound
    """
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        return LowerBound(-np.inf, fault="the multipliers are not finite")
    if form.congruent is not None:  # the same program: moves into a block are as large as its lines
        scaled, by_row, by_column = form.congruent
        told = lower_bound(scaled, x / by_column, z / by_row, upper)
        if told.unpaid is None and not told.fault:
            return told
    curvature = form.curvature
    if not np.isfinite(curvature.shift):
        return LowerBound(-np.inf, fault=f"the objective is not convex: {curvature}")
    near = in_dual(form.cones, z)
    if not np.isfinite(near).all():
        return LowerBound(-np.inf, fault="the multipliers leave the range of floats")
    with np.errstate(over="ignore", invalid="ignore"):
        return _in_digits(form, x, z, _lower_bound(form, x, near, upper))


def _in_digits(form: ConicForm, x: Floats, z: Floats, found: LowerBound) -> LowerBound:
    """Return the bound of multipliers with many digits, where floats have too few for a proof."""
    left = np.abs(form.q + form.across.rows @ z).max(initial=0.0)
    if not left <= NEAR * np.abs(z).max(initial=0.0):
        return found  # they are not nearly right
    told = form.dual_objective(x, z)
    slight = SLIGHT * max(abs(told), form.unit)
    loss = told - found.value + (0.0 if found.unpaid is None else found.unpaid.here)
    sharp = bound_nearby(form, z) if loss > slight else None
    if sharp is None or not sharp[0] - sharp[1] * float(np.abs(x).sum()) > told - loss + slight:
        return found
    at, size = np.arange(form.q.size), float(np.abs(x).max(initial=0.0))
    return LowerBound(
        sharp[0], Unpaid(at, sharp[1], 0.0, size, sharp[1] * size, _natural(form, at))
    )


def _lower_bound(form: ConicForm, x: Floats, z: Floats, upper: float | None) -> LowerBound:
    """Return the bound of multipliers that are in the dual cone."""
    curvature = form.curvature
    found = residual_of(form, x, z, form.q)
    boxes = Boxes(*form.column_bounds, x=x, floor=curvature.floor)
    best, spent = np.inf, 0.0
    some = bool(boxes.unpaid(found).any())  # what costs nothing is not looked at step by step
    if some:
        found = sharper(form, found, x, z, form.q, np.flatnonzero(boxes.unpaid(found)))
        some = bool(boxes.unpaid(found).any())
    if some and (peeled_off := _lightly_peeled(form, found, x, z, boxes)):
        found, spent = peeled_off
    if some and boxes.unpaid(found).any():
        boxes = _implied(form, _with_cut(form, linear_rows(form), upper), found, boxes)
        best = np.inf if upper is None else upper
    if some and boxes.unpaid(found).any():
        at = np.flatnonzero(boxes.unpaid(found))
        near = absorbed(form, found, z, at)
        if (near != z).any():
            z = near
            found = sharper(form, residual_of(form, x, z, form.q), x, z, form.q, at)
    if some and boxes.unpaid(found).any():
        found, spent = _peeled(form, found, z, boxes)
    if some and boxes.unpaid(found).any():
        if (held := _on_face(form, found, x, z, upper, boxes)) is not None:
            return held
        z, found, spent = _moved(form, found, x, z, boxes)
    open_ones = boxes.unpaid(found)
    total = _total(form, x, z, found, spent, boxes)
    if not (spent or some) and (dear := _dear(form, x, found, boxes)).size:
        found = sharper(form, found, x, z, form.q, dear)
        total = max(total, _total(form, x, z, found, spent, boxes))
    curved = np.zeros(form.q.size, dtype=bool)
    if curvature.shift > 0.0:
        curved = np.diff(sp.csc_array(form.P).indptr) > 0
        curved &= True if curvature.shifted is None else curvature.shifted
        far = np.maximum(np.abs(boxes.upper - x), np.abs(boxes.lower - x))
        boxed = curved & np.isfinite(far)
        total -= 0.5 * curvature.shift * float(np.square(far[boxed]).sum()) * (1.0 + 1e-9)
        curved &= ~boxed
    total = min(float(np.nextafter(total, -np.inf)), best)
    if not np.isfinite(total):
        return LowerBound(-np.inf, fault="the numbers leave the range of floats")
    if not (open_ones.any() or curved.any()):
        return LowerBound(total)
    worst = found.size
    near = np.maximum(np.abs(x), float(np.abs(x).mean()) if x.size else 0.0)
    unpaid = Unpaid(
        np.flatnonzero(open_ones | curved),
        float(worst[open_ones].sum()) * (1.0 + 1e-9),
        curvature.shift if curved.any() else 0.0,
        float(np.abs(x).max(initial=0.0)),
        float(worst[open_ones] @ near[open_ones]),
        _natural(form, np.flatnonzero(open_ones | curved)),
    )
    return LowerBound(total, unpaid)


def _without_noise(
    form: ConicForm, x: Floats, z: Floats, boxes: Boxes
) -> Iterator[tuple[Floats, Residual]]:
    """Yield multipliers without entries that may be rounding, and what these leave.

    An entry counts by what it adds to a column, beside the largest number there.
    """
    costs = np.abs(form.q) + (np.abs(form.P @ x) if form.P.nnz else 0.0)
    share = np.abs(z) * form.sizes.max(axis=1).toarray().ravel()
    before = z
    for noise in NOISE:
        small = (share <= noise * float(costs.max(initial=0.0))) | (not costs.any())
        for c in form.cones:  # an entry of a matrix is nothing by itself
            if c.kind not in ("zero", "nonneg", "soc"):
                small[c.start : c.stop] = small[c.start : c.stop].all()
        near = np.where(small, 0.0, z)
        if (near != before).any():
            before, near = near, in_dual(form.cones, near)
            found = residual_of(form, x, near, form.q)
            at = np.flatnonzero(boxes.unpaid(found))
            yield near, sharper(form, found, x, near, form.q, at)


def _dear(form: ConicForm, x: Floats, found: Residual, boxes: Boxes) -> Ints:
    """Return the columns whose residual costs much because of its rounding, if they are few."""
    lower, upper = boxes.of(found)
    with np.errstate(invalid="ignore"):
        charge = (found.high - found.low) * np.maximum(np.abs(lower), np.abs(upper))
    charge = np.where(np.isfinite(charge), charge, 0.0)
    slight = SLIGHT * max(abs(form.objective(x)), form.unit)
    if not float(charge.sum()) > slight:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(charge > slight / (4.0 * charge.size))


def _on_face(
    form: ConicForm, found: Residual, x: Floats, z: Floats, upper: float | None, boxes: Boxes
) -> LowerBound | None:
    """Return the bound on the face of the multipliers, where that is proved and says as much."""
    face = on_face(form, z)
    if face is None:
        return None
    near = _lower_bound(face.form, x, in_dual(face.form.cones, face.z), upper)
    total = _total(form, x, z, found, 0.0, boxes)
    slight = SLIGHT * max(abs(total), form.unit)
    good = not near.fault and near.unpaid is None and near.value >= total - slight
    return near if good else None


class _Moves:
    """Multipliers near given ones, with fewer unpaid columns, that cost little enough.

    A proof that costs much more than what it pays for says less than none.
    """

    def __init__(self, form: ConicForm, found: Residual, x: Floats, z: Floats, boxes: Boxes):
        self.form, self.x, self.boxes = form, x, boxes
        self.best = (z, found, 0.0)
        open_ones = boxes.unpaid(found)
        self.left = float(found.size[open_ones].sum())
        here = float(found.size[open_ones] @ np.abs(x[open_ones]))
        self.slight = SPARE * (1.0 + float(np.abs(form.q) @ np.abs(x)))
        cost = max(DEAR * here, self.slight, SLIGHT * abs(form.objective(x)))
        self.least = _total(form, x, z, found, 0.0, boxes) - cost

    def offer(self, z: Floats, found: Residual, spent: float) -> None:
        """Take others that leave less; of those that leave nothing, what says most."""
        total = _total(self.form, self.x, z, found, spent, self.boxes)
        left = float(found.size[self.boxes.unpaid(found)].sum())
        if total >= self.least and (left < self.left or left == 0.0):
            self.best, self.left = (z, found, spent), left
            self.least = total if left == 0.0 else self.least

    def close(self) -> None:
        """Close the unpaid columns by equations, around these multipliers and polished ones."""
        z, found, _ = self.best
        for near, start in self._starts(z, found):
            self.offer(near, start, 0.0)
            lower, upper = self.boxes.of(start)
            again = (self.form, start, self.x, near, self.form.q, lower, upper)
            self.offer(near, *repaired(*again))
            if self.left == 0.0 and self.best[2] <= 1e-3 * self.slight:
                return

    def _starts(self, z: Floats, found: Residual) -> Iterator[tuple[Floats, Residual]]:
        """Yield multipliers as they are, polished, and both without what may be rounding."""
        plain = _without_noise(self.form, self.x, z, self.boxes)
        for near, left in itertools.chain([(z, found)], plain):
            yield near, left
            bounds = self.boxes.of(left)
            yield polished(self.form, left, self.x, near, self.form.q, *bounds)

    def tilt(self) -> None:
        """Tilt all multipliers by a linear program."""
        form, x, boxes = self.form, self.x, self.boxes
        z, found, _ = self.best
        start, nearer = polished(form, found, x, z, form.q, *boxes.of(found))
        near = tilted(form, nearer, x, start, *boxes.of(nearer))
        if near is not None:
            near = in_dual(form.cones, near)
            again = residual_of(form, x, near, form.q)
            again = sharper(form, again, x, near, form.q, np.flatnonzero(boxes.unpaid(again)))
            self.offer(near, *_peeled(form, again, near, boxes))


def _moved(
    form: ConicForm, found: Residual, x: Floats, z: Floats, boxes: Boxes
) -> tuple[Floats, Residual, float]:
    """Return multipliers nearby with fewer unpaid columns, their residual, and what that costs.

    A few columns are closed by equations; else, and where that is not enough, all multipliers
    are tilted first, which takes a linear program.
    """
    moves = _Moves(form, found, x, z, boxes)
    if np.count_nonzero(boxes.unpaid(found)) <= FEW:
        moves.close()
    if moves.left > 0.0:
        moves.tilt()
    if moves.left > 0.0:
        moves.close()
    return moves.best


def _peeled(form: ConicForm, found: Residual, z: Floats, boxes: Boxes) -> tuple[Residual, float]:
    """Return the residual without unpaid columns, where rows take these one by one, and the cost."""
    zeroed = boxes.unpaid(found)
    for _ in range(ROUNDS):
        moved = peeled(form, found, z, zeroed) if zeroed.any() else None
        if moved is None:
            break
        after = boxes.unpaid(moved[0])
        if not after.any():
            return moved
        zeroed = zeroed | after  # columns that were paid on one side only
    return found, 0.0


def _lightly_peeled(
    form: ConicForm, found: Residual, x: Floats, z: Floats, boxes: Boxes
) -> tuple[Residual, float] | None:
    """Return the residual without unpaid columns where rows take all of it for next to nothing.

    Definitions of one column by others do: asked first, they spare what rows imply of bounds.
    """
    moved = _peeled(form, found, z, boxes)
    if boxes.unpaid(moved[0]).any():
        return None
    loss = _total(form, x, z, found, 0.0, boxes) - _total(form, x, z, *moved, boxes)
    size = float(np.abs(form.q) @ np.abs(x)) + abs(form.objective(x) - form.offset)
    return moved if loss <= SPARE * size else None


def _total(
    form: ConicForm,
    x: Floats,
    z: Floats,
    found: Residual,
    spent: float,
    boxes: Boxes,
) -> float:
    """Return a float below what multipliers prove, the unpaid columns left out."""
    lower, upper = boxes.of(found)
    paid = found.cost(lower, upper, ~found.unpaid(lower, upper))
    value, spared = value_of(form, x, z)
    total = value - spared + paid - spent
    return total - 8.0 * UNIT * (abs(value) + abs(paid) + spent)


def _natural(form: ConicForm, at: Ints) -> float:
    """Return the largest size of a number in some columns, by their shares in the rows.

    Rows of one entry say nothing of it: their only column has the whole share.
    """
    rows = abs(sp.csr_array(sp.vstack([sp.csr_array(form.A), sp.csr_array(form.q[None, :])])))
    rows = rows[np.flatnonzero(np.diff(rows.indptr) > 1)]
    if not rows.nnz:
        return 1.0
    most = rows.max(axis=1).toarray().ravel()
    most[most == 0.0] = 1.0
    share = sp.csc_array(sp.diags_array(1.0 / most) @ rows)[:, at].max(axis=0).toarray().ravel()
    if form.P.nnz:
        share[np.diff(sp.csc_array(form.P)[:, at].indptr) > 0] = 1.0
    return float(1.0 / share[share > 0.0].min(initial=1.0))


def value_of(form: ConicForm, x: Floats, z: Floats) -> tuple[float, float]:
    """Return a center and radius of -½ x'Px - b'z + offset."""
    center, radius = dot(form.b, z)
    value = form.offset - center
    radius += 4.0 * UNIT * (abs(form.offset) + abs(center))
    if form.P.nnz:
        Px, off = form.bending(x)
        bent, rounding = dot(x, Px)
        value -= 0.5 * bent
        radius += 0.5 * (rounding + float(np.abs(x) @ off) * (1.0 + 1e-9)) + UNIT * abs(bent)
    return value, radius * (1.0 + 1e-9)


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
    """

    proved: bool
    radius: float
    fault: str = ""
    columns: Ints | None = None


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
    if form.congruent is not None:
        scaled, by_row, _ = form.congruent
        told = infeasibility(scaled, z / by_row, repair=repair)
        if told.proved:
            return told
    largest = float(np.abs(z).max(initial=0.0))
    if largest == 0.0:
        return Contradiction(False, 0.0, "it is zero")
    # scaled before it is moved into the dual cone: small entries round each on its own
    z = in_dual(form.cones, np.ldexp(z, -int(np.floor(np.log2(largest)))))
    if not np.isfinite(z).all():
        return Contradiction(False, 0.0, "it is not a finite vector with an entry per row")
    nothing = np.zeros(form.q.size)
    found = residual_of(form, None, z, nothing)
    rows = linear_rows(form)
    lower, upper = form.column_bounds
    open_ones = found.unpaid(lower, upper)
    if open_ones.any():
        found = sharper(form, found, None, z, nothing, np.flatnonzero(open_ones))
        open_ones = found.unpaid(lower, upper)
    if open_ones.any():
        implied = _implied(form, rows, found, Boxes(lower, upper))
        lower, upper = implied.lower, implied.upper
        open_ones = found.unpaid(lower, upper)
    if open_ones.any() and repair:
        near, moved = polished(form, found, None, z, nothing, lower, upper)
        moved, spent = repaired(form, moved, None, near, nothing, lower, upper)
        proof = _contradiction(form, near, moved, spent, lower, upper)
        if proof.proved:
            return proof
        face = on_face(replace(form, q=nothing), z)
        if face is not None and (proof := infeasibility(face.form, face.z)).proved:
            return proof
    return _contradiction(form, z, found, 0.0, lower, upper)


def _contradiction(
    form: ConicForm, z: Floats, found: Residual, spent: float, lower: Floats, upper: Floats
) -> Contradiction:
    open_ones = found.unpaid(lower, upper)
    center, radius = dot(form.b, z)
    # b'z - r'y < 0 for every y within the bounds
    surplus = -(center + radius) - spent + found.cost(lower, upper, ~open_ones)
    if not surplus > 0.0:
        return Contradiction(False, 0.0, "its rows do not contradict each other")
    if not open_ones.any():
        return Contradiction(True, np.inf)
    reach = surplus / float(found.size[open_ones].sum()) * (1.0 - 1e-9)
    where = np.flatnonzero(open_ones)
    return Contradiction(False, reach, "columns without a bound do not cancel", where)
