r"""Bounds of cone programs that hold in exact arithmetic.

For :math:`\min \tfrac12 x^T P x + q^T x` subject to :math:`b - Ax \in K` with :math:`P \succeq 0`,
any x and any :math:`z \in K^*` give, with :math:`r = Px + A^T z + q`,

.. math:: -\tfrac12 x^T P x - b^T z + \inf_y r^T y

as a bound: what the multipliers leave over must be paid with bounds that every feasible y obeys.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.proofs.columns import (
    ROUNDS,
    Rows,
    bent,
    declared_bounds,
    linear_rows,
    mutual_bounds,
    propagated,
    proved_floor,
    rotated_rows,
    spare_of,
    with_cut,
    zeroing_rows,
)
from optfair.proofs.definiteness import definiteness
from optfair.proofs.digits import bound_nearby
from optfair.proofs.faces import on_face
from optfair.proofs.moves import (
    FEW,
    SEVERAL,
    SLIGHT,
    Boxes,
    cheaper,
    closed,
    dear_columns,
    lightly_peeled,
    lowered,
    peeled_in_turn,
    total_of,
)
from optfair.proofs.residual import (
    NEAR,
    Ints,
    Residual,
    in_dual,
    residual_of,
    sharper,
)
from optfair.proofs.rounding import Floats, loss

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Limits = tuple[float, float]  # what the objective is at most, and a bound that is enough


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
    reach : float
        Nothing is said of larger |y_j|.
    unit : float
        Least unit of these columns: what is said of y_j here is said of that times y_j.
    """

    columns: Ints
    slope: float
    curve: float
    size: float
    here: float = 0.0
    natural: float = 1.0
    reach: float = np.inf
    unit: float = 1.0

    def times(self, factor: float) -> Unpaid:
        """Return the same for an objective multiplied by a positive factor."""
        parts = (self.slope * factor, self.curve * factor)
        return replace(self, slope=parts[0], curve=parts[1], here=self.here * factor)

    def spread(self, copies: Ints, factor: float) -> Unpaid:
        """Return the same where columns count for others, which are so many times as large then."""
        return replace(self.times(factor), columns=np.union1d(self.columns, copies))

    def joined(self, other: Unpaid | None) -> Unpaid:
        """Return what the lesser of two bounds may lose."""
        if other is None:
            return self
        names = ("slope", "curve", "size", "here", "natural")
        parts = {name: max(getattr(self, name), getattr(other, name)) for name in names}
        least = ("reach", "unit")
        parts |= {name: min(getattr(self, name), getattr(other, name)) for name in least}
        return Unpaid(np.union1d(self.columns, other.columns), **parts)

    @property
    def near(self) -> float:
        """What the bound loses within the size that a radius has to be clear of."""
        size = max(1.0, self.size, self.natural)
        return self.slope * size + 2.0 * self.curve * self.columns.size * size * size

    def radius(self, loss: float) -> float:
        """Return the largest R for which the bound is short by no more than ``loss``."""
        if not loss > 0.0:
            return 0.0
        bend = 0.5 * self.curve * self.columns.size
        # slope R + bend (R + size)² <= loss
        rate = self.slope + 2.0 * bend * self.size
        left = loss * (1.0 - 1e-9) - bend * self.size * self.size
        if not (left > 0.0 and np.isfinite(rate)):
            return 0.0
        if rate == 0.0 and bend == 0.0:
            return self.reach
        with np.errstate(over="ignore"):
            reach = 2.0 * left / (rate + np.sqrt(rate * rate + 4.0 * bend * left))
        return float(min(reach * (1.0 - 1e-9), np.finfo(float).max, self.reach))


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
    by : array (m,) or None
        Multipliers that were moved, before the least of moves, if any prove it.
    """

    value: float
    unpaid: Unpaid | None = None
    fault: str = ""
    by: Floats | None = None

    def worth(self) -> tuple[bool, float, float]:
        """Return what is the more the better: whether it is proved, and how far, and what."""
        return not self.fault, -(0.0 if self.unpaid is None else self.unpaid.near), self.value


def loosened(
    form: ConicForm, upper: float, pair: tuple[Floats, Floats] | None
) -> tuple[ConicForm, Unpaid | None]:
    """Return the form with rows that every feasible point obeys, where those of roots are rounded.

    Parameters
    ----------
    form : ConicForm
        The program.
    upper : float
        A value of the objective that points may be held to.
    pair : (x, z) or None
        Forms of columns without bounds are as near as they are within a multiple of x, more where z
        charges little; it is returned. None leaves them out.
    """
    rounded = form.rounded
    if not rounded:
        return form, None
    rows = linear_rows(form)
    single, which, entry = zeroing_rows(form)
    # of s is known that it is not negative
    rows.low[single] = np.where(entry > 0.0, 0.0, -np.inf)
    rows.high[single] = np.where(entry > 0.0, np.inf, 0.0)
    wanted = np.concatenate([np.arange(r.own.start, r.own.stop)[r.charged] for r in rounded])

    def suffice(lower: Floats, upper: Floats) -> bool:
        return bool(np.isfinite(lower[wanted]).all() and np.isfinite(upper[wanted]).all())

    lower, above = declared_bounds(rows)
    lower, above = propagated(rows, lower, above, suffice)
    if not suffice(lower, above):
        rows = with_cut(form, rows, upper).below(*rotated_rows(form))
        lower, above = propagated(rows, lower, above, suffice)
    far = np.maximum(np.abs(lower), np.abs(above))
    unpaid, open_ones = None, wanted[~np.isfinite(far[wanted])]
    if pair is not None and open_ones.size:
        size, natural = float(np.abs(pair[0]).max(initial=0.0)), _natural(form, open_ones)
        price = float(np.abs(pair[1][single]).max(initial=0.0))
        rate = max(price * sum(float(r.share[r.charged].sum()) for r in rounded), 1e-300)
        spare = CHARGE * max(form.unit, abs(form.objective(pair[0])))
        reach = max(REACH * max(1.0, size, natural), float(np.sqrt(spare / rate)))
        far[open_ones] = reach
        unpaid = Unpaid(open_ones, 0.0, 0.0, size, 0.0, natural, reach)
    b, kept = form.b.copy(), np.ones(form.b.size)
    for r in rounded:
        used = r.share > 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            most = float(r.share[used] @ far[r.own][used] ** 2) * (1.0 + 1e-9) + 1e-300
        at, factor = single[which == r.column], entry[which == r.column]
        if np.isfinite(most) and np.count_nonzero(form.equal[at]) < 2:
            b[at] = np.where(form.equal[at] | (factor > 0.0), factor * most, b[at])
        else:  # nothing is said of s
            b[at] = kept[at] = 0.0
    numbers: dict[str, Any] = {"b": b, "rooted": ()}
    if not kept.all():
        numbers["A"] = sp.csc_array(sp.diags_array(kept) @ form.A)
    return form.moved(numbers), unpaid


# Radius within which rounded roots are charged at least, in sizes of the point: one of half as much
# is granted; and the share of the objective that it may cost to have more.
REACH, CHARGE = 2e3, 1e-9
# Passes over the rows before a move is tried; a share of the objective that bounds far out cost.
FIRST, FAR = 2, 2e-9


def _held(form: ConicForm, boxes: Boxes, upper: float) -> Boxes:
    """Return the boxes with those of curved columns in which the objective is at most a value."""
    floor = proved_floor(form)
    at = floor > 0.0
    if not np.isfinite(upper) or not at.any():
        return boxes
    with np.errstate(invalid="ignore", over="ignore"):
        least = np.where(form.q > 0.0, form.q * boxes.lower, form.q * boxes.upper)[~at]
    least = least[form.q[~at] != 0.0]
    side = spare_of(form, upper)
    left = side - float(least.sum()) + loss(least.size, float(np.abs(least).sum()) + abs(side))
    if not np.isfinite(left):
        return boxes
    middle = form.q[at] / floor[at]
    reach = (
        np.sqrt(2.0 * max(left, 0.0) / floor[at]) * (1.0 + 1e-12) + np.abs(middle) * 1e-12 + 1e-150
    )
    lower, upper_ones = boxes.lower.copy(), boxes.upper.copy()
    lower[at] = np.maximum(lower[at], -middle - reach)
    upper_ones[at] = np.minimum(upper_ones[at], reach - middle)
    return boxes.tighter(lower, upper_ones)


def implied(
    form: ConicForm, rows: Rows, residual: Residual, boxes: Boxes, rounds: int = ROUNDS
) -> Boxes:
    """Return the boxes with the bounds that rows imply, as far as the residual needs them."""
    near = boxes.tighter(
        *propagated(rows, boxes.lower, boxes.upper, boxes.paying(residual), rounds)
    )
    if rounds < ROUNDS or not near.unpaid(residual).any():
        return near
    if (more := rotated_rows(form))[1].size:
        lower, upper = near.lower, near.upper
        near = near.tighter(*propagated(rows.below(*more), lower, upper, boxes.paying(residual)))
    return near


def in_circles(form: ConicForm, rows: Rows, residual: Residual, boxes: Boxes) -> Boxes:
    """Return the boxes with those of columns that cones bound by each other."""
    if not any(c.kind == "soc" for c in form.cones):
        return boxes
    every = rows.below(*rotated_rows(form, shorter=False))
    ends = mutual_bounds(every, boxes.lower, boxes.upper)
    if np.array_equal(ends, (boxes.lower, boxes.upper)):
        return boxes
    return boxes.tighter(*propagated(every, *ends, boxes.paying(residual)))


def lower_bound(
    form: ConicForm, x: Floats, z: Floats, upper: float = np.inf, enough: float = np.inf
) -> LowerBound:
    """Return what a primal-dual pair proves about the optimum.

    Parameters
    ----------
    form : ConicForm
        The compiled program; its floats are taken as exact.
    x : array (n,)
        Any point; only the curvature is measured there.
    z : array (m,)
        Any vector; it is moved into the dual cone first.
    upper : float
        A value of the objective. The bound is then the least of it and of what holds where the
        objective is at most that, so nothing about the point has to be feasible.
    enough : float
        A bound as large as this, without anything unpaid, is not improved upon.
    """
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        return LowerBound(-np.inf, fault="the multipliers are not finite")

    def proved() -> LowerBound:
        held, within = loosened(form, upper, (x, z))
        cheap = _bound_in_boxes(held, x, z, (upper, enough))
        bound = cheap or _bound_of_rows(held, x, z, (upper, enough))
        if held is not form:  # loosened where the objective is at most that
            bound = replace(bound, value=min(bound.value, upper))
        return bound if within is None else replace(bound, unpaid=within.joined(bound.unpaid))

    # a pair is looked at by its solver and by others
    return form.remembered("bound", (x.tobytes(), z.tobytes(), upper, enough), proved)


def _bound_in_boxes(form: ConicForm, x: Floats, z: Floats, limits: Limits) -> LowerBound | None:
    """Return a bound where that is enough with a slight shift of P, which bounded columns pay for."""
    # whether P is exactly semidefinite takes longer to see than that it nearly is
    asked = form.P.nnz > 0 and np.isfinite(limits[1]) and "curvature" not in vars(form)
    if not (asked and all(np.isfinite(ends).all() for ends in form.column_bounds)):
        return None
    light = copy.copy(form)
    vars(light)["curvature"] = definiteness(form.P)
    bound = _bound_as_it_stands(light, x, z, limits)
    return bound if bound.unpaid is None and bound.value >= limits[1] else None


def _bound_of_rows(form: ConicForm, x: Floats, z: Floats, limits: Limits) -> LowerBound:
    """Return the bound of rows that hold as they stand."""
    there = _in_units_of_same(form, x, z, limits)
    if there and there[0].unpaid is None:
        return there[0]
    return max([*there, _bound_as_it_stands(form, x, z, limits)], key=LowerBound.worth)


def _in_units_of_same(form: ConicForm, x: Floats, z: Floats, limits: Limits) -> list[LowerBound]:
    """Return the bounds of the same program with numbers near 1, where moves are small; best first."""
    if form.same is None:
        return []
    same, unit = form.same
    known = []
    for there in same.candidates(z):
        ends = unit * limits[0], unit * limits[1]
        bound = _bound_of_rows(same.form, x / same.columns, unit * there, ends)
        if (left := bound.unpaid) is not None:
            least = float(same.columns[left.columns].min())
            left = replace(left.times(1.0 / unit), unit=least)
        if not bound.fault:
            near = None if bound.by is None else same.multipliers_back(bound.by) / unit
            known.append(LowerBound(bound.value / unit, left, by=near))
        if left is None and bound.value >= ends[1]:
            break
    return sorted(known, key=LowerBound.worth, reverse=True)


def _bound_as_it_stands(form: ConicForm, x: Floats, z: Floats, limits: Limits) -> LowerBound:
    """Return the bound of the numbers as they are."""
    curvature = form.curvature
    if not np.isfinite(curvature.shift):
        return LowerBound(-np.inf, fault=f"the objective is not convex: {curvature}")
    if not form.q.any() and curvature.shift == 0.0 and form.offset >= limits[1]:
        return LowerBound(form.offset)  # squares are 0 at least
    near = in_dual(form.cones, z)
    if not np.isfinite(near).all():
        return LowerBound(-np.inf, fault="the multipliers leave the range of floats")
    with np.errstate(over="ignore", invalid="ignore"):
        known = _lower_bound(form, x, near, limits, z)
        if known.unpaid is not None and form.P.nnz and curvature.shift == 0.0:
            known = max(known, _bound_of_objective(form, x), key=LowerBound.worth)
        known = _in_digits(form, x, z, limits[1], known)
    far = -np.inf if known.unpaid is None else known.value - REACH * known.unpaid.near
    if form.q.any() or curvature.shift > 0.0 or form.offset < far:
        return known
    return max(known, LowerBound(form.offset), key=LowerBound.worth)


def _bound_of_objective(form: ConicForm, x: Floats) -> LowerBound:
    r"""Return the least value of a quadratic objective whatever the rows say, where x is near it.

    :math:`\tfrac12 y^T P y + q^T y \ge t` for all y is
    :math:`\bigl(\begin{smallmatrix} P & q \\ q^T & -2 t \end{smallmatrix}\bigr) \succeq 0`.
    """
    slope, size = form.P @ x + form.q, abs(form.P) @ np.abs(x) + np.abs(form.q)
    if not np.abs(slope).max() <= NEAR * size.max():
        return LowerBound(-np.inf, fault="the objective falls")
    cost, value = sp.csc_array(form.q[:, None]), form.objective(x) - form.offset
    for share in (SLIGHT**1.5, SLIGHT):
        least = value - share * max(abs(value), form.unit)
        bordered = sp.block_array([[form.P, cost], [cost.T, sp.csc_array([[-2.0 * least]])]])
        if definiteness(bordered, sharp=True).shift == 0.0:
            return LowerBound(float(np.nextafter(form.offset + least, -np.inf)))
    return LowerBound(-np.inf, fault="the form is not known to be semidefinite")


def _in_digits(form: ConicForm, x: Floats, z: Floats, goal: float, known: LowerBound) -> LowerBound:
    """Return the bound of multipliers with many digits, where floats have too few for a proof."""
    left = np.abs(form.q + form.across.times(z)).max(initial=0.0)
    done = known.unpaid is None and known.value >= goal
    if done or not left <= NEAR * np.abs(z).max(initial=0.0):
        return known  # or they are not nearly right
    value = form.dual_objective(x, z)
    slight = SLIGHT * max(abs(value), form.unit)
    loss = value - known.value + (0.0 if known.unpaid is None else known.unpaid.here)
    sharp = bound_nearby(form, z) if loss > slight else None
    if sharp is None or not sharp[0] - sharp[1] * float(np.abs(x).sum()) > value - loss + slight:
        return known
    at, size = np.arange(form.q.size), float(np.abs(x).max(initial=0.0))
    left_out = Unpaid(at, sharp[1], 0.0, size, sharp[1] * size, _natural(form, at))
    return LowerBound(sharp[0], left_out)


def _lower_bound(
    form: ConicForm, x: Floats, z: Floats, limits: Limits, given: Floats
) -> LowerBound:
    """Return the bound of multipliers in the dual cone, near those that show a face."""
    curvature, (upper, enough) = form.curvature, limits
    enough = np.inf if curvature.shift > 0.0 else enough  # that is charged for at the end
    residual = residual_of(form, x, z, form.q)
    boxes = bare = Boxes(*form.column_bounds, x=x, floor=curvature.floor)
    best, spent, facing = np.inf, 0.0, list[LowerBound]()
    if (at := np.flatnonzero(boxes.unpaid(residual))).size:
        residual = sharper(form, residual, x, z, form.q, at)
    own, start = residual, z  # a residual, and the multipliers it is that of
    # what costs nothing is not looked at step by step
    some = form.b.size > 0 and bool(boxes.unpaid(residual).any())
    if some:
        best, plain, known = upper, linear_rows(form), False
        rows = with_cut(form, plain, upper)
        if not form.P.nnz:  # a limit of the costs bounds most columns, in few steps
            boxes = implied(form, rows, residual, boxes, FIRST)
        elif rows is not plain:  # that of the linear part of others may be far out
            boxes, known = implied(form, plain, residual, boxes), True
            paid = total_of(form, x, z, residual, 0.0, boxes)
            if not boxes.unpaid(residual).any() and paid >= enough:
                rows, best = plain, np.inf
            else:
                within = implied(form, rows, residual, boxes)
                free, paid = (total_of(form, x, z, residual, 0.0, b) for b in (bare, within))
                dear = not within.unpaid(residual).any() and paid < enough < np.inf
                if free - paid > FAR * max(abs(paid), form.unit) or dear:
                    rows, best = plain, np.inf
                    if dear:
                        facing = [LowerBound(min(float(np.nextafter(paid, -np.inf)), upper))]
                else:
                    boxes = within
        few = 0 < np.count_nonzero(boxes.unpaid(residual)) <= (np.inf if form.P.nnz else FEW)
        if few and (light := lightly_peeled(form, residual, x, z, boxes)):
            residual, spent = light
        elif not known and boxes.unpaid(residual).any():
            boxes = implied(form, rows, residual, boxes)
        if form.P.nnz and boxes.unpaid(residual).any():
            held = _held(form, boxes, upper)
            if held is not boxes:
                boxes, best = implied(form, rows, residual, held), upper
    if some and boxes.unpaid(residual).any():
        at = np.flatnonzero(boxes.unpaid(residual))
        near = lowered(form, residual, z, at)
        if (near != z).any():
            start = z = near
            own = residual = sharper(form, residual_of(form, x, z, form.q), x, z, form.q, at)
        if boxes.unpaid(residual).any():
            residual, spent = peeled_in_turn(form, residual, z, boxes)
    count = np.count_nonzero(boxes.unpaid(residual))
    if some and count > SEVERAL:  # fewer are closed in less time
        boxes = in_circles(form, rows, residual, boxes)
    if some and boxes.unpaid(residual).any():
        # few columns without blocks are closed in less time than a face is looked for
        first = count <= FEW and not any(c.kind == "psd" for c in form.cones)
        moved = closed(form, residual, x, z, boxes, enough) if first else None
        done = moved is not None and not boxes.unpaid(moved[1]).any()
        if not done and (face := on_face(form, given)) is not None:
            total = total_of(form, x, z, residual, 0.0, boxes)
            slight = SLIGHT * max(abs(total), form.unit)
            there = _lower_bound(face.form, x, in_dual(face.form.cones, face.z), limits, face.z)
            unpaid = there.unpaid and there.unpaid.spread(*face.copies)
            there = replace(there, unpaid=unpaid, by=None)
            if not there.fault and there.value >= min(total - slight, enough):
                facing.append(there)
                if there.unpaid is None:
                    return there
        z, residual, spent = moved or closed(form, residual, x, z, boxes, enough)
        if count <= SEVERAL and boxes.unpaid(residual).any():
            boxes = in_circles(form, rows, residual, boxes)
    total = total_of(form, x, z, residual, spent, boxes)
    dear = boxes is not bare and not boxes.unpaid(residual).any() and total < enough
    if dear and (less := cheaper(form, own, x, start, total, boxes, bare, enough)) is not None:
        z, residual, spent = less
        total = total_of(form, x, z, residual, spent, boxes)
    open_ones = boxes.unpaid(residual)
    short = not (spent or some or total >= enough)
    if short and (at := dear_columns(form, x, residual, boxes)).size:
        residual = sharper(form, residual, x, z, form.q, at)
        total = max(total, total_of(form, x, z, residual, spent, boxes))
    curved = np.zeros(form.q.size, dtype=bool)
    if curvature.shift > 0.0:
        lost, curved = bent(form, x, boxes.lower, boxes.upper)
        total -= lost
    total = min(float(np.nextafter(total, -np.inf)), best)
    if not np.isfinite(total):
        return LowerBound(-np.inf, fault="the numbers leave the range of floats")
    if not (open_ones.any() or curved.any()):
        return max([LowerBound(total, by=z), *facing], key=LowerBound.worth)
    worst = residual.size
    near = np.maximum(np.abs(x), float(np.abs(x).mean()))
    unpaid = Unpaid(
        np.flatnonzero(open_ones | curved),
        float(worst[open_ones].sum()) * (1.0 + 1e-9),
        curvature.shift if curved.any() else 0.0,
        float(np.abs(x).max(initial=0.0)),
        float(worst[open_ones] @ near[open_ones]),
        _natural(form, np.flatnonzero(open_ones | curved)),
    )
    return max([LowerBound(total, unpaid), *facing], key=LowerBound.worth)


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
