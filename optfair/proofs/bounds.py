r"""Bounds of cone programs that hold in exact arithmetic.

For :math:`\min \tfrac12 x^T P x + q^T x` subject to :math:`b - Ax \in K` with :math:`P \succeq 0`,
any x and any :math:`z \in K^*` give, with :math:`r = Px + A^T z + q`,

.. math:: -\tfrac12 x^T P x - b^T z + \inf_y r^T y

as a bound: what the multipliers leave over must be paid with bounds that every feasible y obeys.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optfair.proofs.columns import (
    ROUNDS,
    Rows,
    bent,
    linear_rows,
    mutual_bounds,
    propagated,
    proved_floor,
    rotated_rows,
    spare_of,
    tighten,
    with_cut,
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
from optfair.proofs.unpaid import REACH, Unpaid, loosened, natural_size

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Limits = tuple[float, float]  # what the objective is at most, and a bound that is enough


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
        Multipliers near those given that it rests on, but for moves that are only known to exist;
        None where it rests on others, as those of a face.
    """

    value: float
    unpaid: Unpaid | None = None
    fault: str = ""
    by: Floats | None = None

    def worth(self) -> tuple[bool, float, float]:
        """Return what is the more the better: whether it is proved, and how far, and what."""
        return not self.fault, -(0.0 if self.unpaid is None else self.unpaid.near), self.value


# Passes over the rows before a move is tried; a share of the objective that bounds far out cost.
FIRST, FAR = 3, 2e-9


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
    near = boxes
    if near.unpaid(residual).any():
        near = near.tighter(*opposite_sums(rows, near.lower, near.upper))
    near = near.tighter(*propagated(rows, near.lower, near.upper, boxes.paying(residual), rounds))
    if rounds < ROUNDS or not near.unpaid(residual).any():
        return near
    if (more := rotated_rows(form))[1].size:
        lower, upper = near.lower, near.upper
        near = near.tighter(*propagated(rows.below(*more), lower, upper, boxes.paying(residual)))
    return near


# Entries whose double is a float for sure.
MOST = 1e300


def opposite_sums(rows: Rows, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    r"""Return bounds that sums of two rows of two columns imply, where one column cancels.

    As :math:`t \ge 0` of :math:`x - t \le 0` and :math:`-x - t \le 0`, neither of which bounds t.
    """
    pairs = np.flatnonzero((np.diff(rows.A.indptr) == 2) & np.isfinite(rows.high))
    at = rows.A.indptr[pairs] + np.arange(2)[:, None]
    order = np.argsort(rows.A.indices[at], axis=0)
    column, entry = (np.take_along_axis(v[at], order, 0) for v in (rows.A.indices, rows.A.data))
    near = np.lexsort((entry[1], column[1], column[0]))  # two rows of the same columns in turn
    one, other = near[:-1], near[1:]
    same = (column[:, one] == column[:, other]).all(axis=0)
    n, limit = lower.size, np.append(-lower, upper)
    for kept, lost in ((0, 1), (1, 0)):
        opposite = (entry[lost, one] == -entry[lost, other]) & same
        own = entry[kept, one]
        both = opposite & (own == entry[kept, other]) & (own != 0.0) & (np.abs(own) < MOST)
        with np.errstate(over="ignore"):
            side = rows.high[pairs[one[both]]] + rows.high[pairs[other[both]]]
        side = np.where(side == 0.0, 0.0, np.nextafter(side, np.inf))  # a sum is 0 if it is exact
        bounded = column[kept, one[both]] + n * (own[both] > 0.0)
        tighten(limit, bounded, 2.0 * np.abs(own[both]), side)
    return -limit[:n], limit[n:]


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
    left_out = Unpaid(at, sharp[1], 0.0, size, sharp[1] * size, natural_size(form, at))
    return LowerBound(sharp[0], left_out)


def _lower_bound(
    form: ConicForm, x: Floats, z: Floats, limits: Limits, given: Floats
) -> LowerBound:
    """Return the bound of multipliers in the dual cone, near those that show a face."""
    bound = _Bounding(form, x, z, limits)
    if bound.some:
        bound.bound_columns()
        if bound.open:
            bound.move()
        if (proved := bound.close(given)) is not None:
            return proved
    bound.cheapen()
    return bound.made()


class _Bounding:
    """A bound in the making: multipliers, what they leave over, and the bounds of columns that pay for it."""

    def __init__(self, form: ConicForm, x: Floats, z: Floats, limits: Limits) -> None:
        self.form, self.x, self.z, self.limits = form, x, z, limits
        self.upper, self.enough = limits
        if form.curvature.shift > 0.0:
            self.enough = np.inf  # that is charged for at the end
        self.residual = residual_of(form, x, z, form.q)
        self.boxes = self.bare = Boxes(*form.column_bounds, x=x, floor=form.curvature.floor)
        if self.open:
            self.residual = self._sharper(np.flatnonzero(self.boxes.unpaid(self.residual)))
        # a residual, the multipliers it is that of, and what it costs to have less of it
        self.own, self.start, self.spent = self.residual, z, 0.0
        # what holds below a value of the objective says no more than that
        self.best, self.facing = np.inf, list[LowerBound]()
        # what costs nothing is not looked at step by step
        self.some = form.b.size > 0 and self.open
        self.rows: Rows
        self.circles = False  # whether those that bound columns by each other were looked for

    @property
    def open(self) -> bool:
        """Whether nothing pays for what is left of some column."""
        return bool(self.boxes.unpaid(self.residual).any())

    @property
    def count(self) -> int:
        """Number of such columns."""
        return int(np.count_nonzero(self.boxes.unpaid(self.residual)))

    def total(self, boxes: Boxes | None = None) -> float:
        """Return what is proved within the boxes, or others, but for such columns."""
        within = self.boxes if boxes is None else boxes
        return total_of(self.form, self.x, self.z, self.residual, self.spent, within)

    def _sharper(self, at: Ints) -> Residual:
        return sharper(self.form, self.residual, self.x, self.z, self.form.q, at)

    def _implied(self, boxes: Boxes, rounds: int = ROUNDS) -> Boxes:
        return implied(self.form, self.rows, self.residual, boxes, rounds)

    def bound_columns(self) -> None:
        """Bound columns by rows, by a limit of the objective, and where it bends."""
        form = self.form
        self.rows = plain = linear_rows(form)
        limited = with_cut(form, plain, self.upper)
        known = form.P.nnz > 0 and limited is not plain
        if known:
            self._by_rows_or_objective(limited)
        else:
            self.rows, self.best = limited, self.upper
            if not form.P.nnz:  # a limit of the costs bounds most columns, in few steps
                self.boxes = self._implied(self.boxes, FIRST)
        light = None
        if 0 < self.count <= (np.inf if form.P.nnz else FEW):
            light = lightly_peeled(form, self.residual, self.x, self.z, self.boxes)
        if light is not None:
            self.residual, self.spent = light
        elif not known and self.open:
            self.boxes = self._implied(self.boxes)
        if form.P.nnz and self.open:
            held = _held(form, self.boxes, self.upper)
            if held is not self.boxes:
                self.boxes, self.best = self._implied(held), self.upper
        if self.count > SEVERAL:  # fewer are closed in less time
            self._bound_by_each_other()

    def _bound_by_each_other(self) -> None:
        self.boxes = in_circles(self.form, self.rows, self.residual, self.boxes)
        self.circles = True

    def _by_rows_or_objective(self, limited: Rows) -> None:
        """Bound columns by rows alone; the limit of an objective that bends may be far out."""
        self.boxes = self._implied(self.boxes)
        if not self.open and self.total() >= self.enough:
            return
        plain, self.rows = self.rows, limited
        within = self._implied(self.boxes)
        free, paid = self.total(self.bare), self.total(within)
        dear = not within.unpaid(self.residual).any() and paid < self.enough < np.inf
        if dear:
            self.facing = [LowerBound(min(float(np.nextafter(paid, -np.inf)), self.upper))]
        if dear or free - paid > FAR * max(abs(paid), self.form.unit):
            self.rows = plain
        else:
            self.boxes, self.best = within, self.upper

    def move(self) -> None:
        """Move multipliers in their cones so that less is left, and charge for what is moved with them."""
        form, x, at = self.form, self.x, np.flatnonzero(self.boxes.unpaid(self.residual))
        near = lowered(form, self.residual, self.z, at)
        if (near != self.z).any():
            self.start = self.z = near
            self.residual = residual_of(form, x, near, form.q)
            self.own = self.residual = self._sharper(at)
        if self.open:
            moved = peeled_in_turn(form, self.residual, self.z, self.boxes)
            self.residual, self.spent = moved

    def close(self, given: Floats) -> LowerBound | None:
        """Close the columns that are left, or bound them by each other; return what a face proves."""
        form, x, count = self.form, self.x, self.count
        if not count:
            return None
        stated = form, self.residual, x, self.z, self.boxes, self.enough
        # few columns without blocks are closed in less time than a face is looked for
        first = count <= FEW and not any(c.kind == "psd" for c in form.cones)
        moved = closed(*stated) if first else None
        done = moved is not None and not self.boxes.unpaid(moved[1]).any()
        if not done and (there := self._on_face(given)) is not None:
            self.facing.append(there)
            if there.unpaid is None:
                return there
        self.z, self.residual, self.spent = moved or closed(*stated)
        if self.open and not self.circles:
            self._bound_by_each_other()
        return None

    def _on_face(self, given: Floats) -> LowerBound | None:
        """Return what is proved on a face, where it is no less than what is proved here."""
        if (face := on_face(self.form, given)) is None:
            return None
        here = total_of(self.form, self.x, self.z, self.residual, 0.0, self.boxes)
        slight, z = SLIGHT * max(abs(here), self.form.unit), in_dual(face.form.cones, face.z)
        there = _lower_bound(face.form, self.x, z, self.limits, face.z)
        unpaid = there.unpaid and there.unpaid.spread(*face.copies)
        worse = there.fault or there.value < min(here - slight, self.enough)
        return None if worse else replace(there, unpaid=unpaid, by=None)

    def cheapen(self) -> None:
        """Leave little to bounds that are far out, where too little is proved."""
        form, x, total = self.form, self.x, self.total()
        if self.boxes is not self.bare and not self.open and total < self.enough:
            limits = self.boxes, self.bare, self.enough
            less = cheaper(form, self.own, x, self.start, total, *limits)
            if less is not None:
                self.z, self.residual, self.spent = less
            return
        if self.spent or self.some or total >= self.enough:
            return
        if (at := dear_columns(form, x, self.residual, self.boxes)).size:
            before, self.residual = self.residual, self._sharper(at)
            self.residual = before if self.total() < total else self.residual

    def made(self) -> LowerBound:
        """Return the bound, or a better one that was proved on the way."""
        form, x, size, open_ones = (
            self.form,
            self.x,
            self.residual.size,
            self.boxes.unpaid(self.residual),
        )
        total, curved = self.total(), np.zeros(form.q.size, dtype=bool)
        if form.curvature.shift > 0.0:
            lost, curved = bent(form, x, self.boxes.lower, self.boxes.upper)
            total -= lost
        total = min(float(np.nextafter(total, -np.inf)), self.best)
        if not np.isfinite(total):
            return LowerBound(-np.inf, fault="the numbers leave the range of floats")
        if not (open_ones.any() or curved.any()):
            return max([LowerBound(total, by=self.z), *self.facing], key=LowerBound.worth)
        near = np.maximum(np.abs(x), float(np.abs(x).mean()))
        unpaid = Unpaid(
            np.flatnonzero(open_ones | curved),
            float(size[open_ones].sum()) * (1.0 + 1e-9),
            form.curvature.shift if curved.any() else 0.0,
            float(np.abs(x).max(initial=0.0)),
            float(size[open_ones] @ near[open_ones]),
            natural_size(form, np.flatnonzero(open_ones | curved)),
        )
        return max([LowerBound(total, unpaid), *self.facing], key=LowerBound.worth)
