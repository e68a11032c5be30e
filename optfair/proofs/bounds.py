r"""Bounds of cone programs that hold in exact arithmetic.

For :math:`\min \tfrac12 x^T P x + q^T x` subject to :math:`b - Ax \in K` with :math:`P \succeq 0`,
any x and any :math:`z \in K^*` give, with :math:`r = Px + A^T z + q`,

.. math:: -\tfrac12 x^T P x - b^T z + \inf_y r^T y

as a bound: what the multipliers leave over must be paid with bounds that every feasible y obeys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.columns import Rows, linear_rows, propagated
from optfair.proofs.cones import FLOOR, Cone, length
from optfair.proofs.rounding import (
    ELIMINATED,
    UNIT,
    correcting_step,
    correction,
    dot,
    exact_products,
    gamma,
    independent,
    product,
)

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = ["Contradiction", "LowerBound", "Unpaid", "infeasibility", "lower_bound"]


# How much more than the residual is worth at the point its repair may cost, and how much of the
# size of the objective it may cost at any rate.
DEAR, SPARE = 1e3, 1e-10
# Times that columns which a move opens are made 0 with the others.
ROUNDS = 3


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


def _in_dual(cones: tuple[Cone, ...], z: Floats) -> Floats:
    """Return a vector near z that is exactly in the dual of every cone."""
    z = np.array(z, dtype=float)
    for c in cones:
        at = slice(c.start, c.stop)
        if c.kind == "nonneg":
            z[at] = np.maximum(z[at], 0.0)
        elif c.kind != "zero":
            z[at] = c.dual_point(z[at])
    return z


@dataclass(frozen=True, eq=False)
class _Residual:
    """Enclosure of r = Px + q + A'z, exact where it was asked for."""

    low: Floats
    high: Floats

    @property
    def size(self) -> Floats:
        """Bound on the residual in size."""
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)))

    def unpaid(self, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
        """Return the columns whose residual meets a bound that is not there."""
        return ((self.low < 0.0) & ~np.isfinite(upper)) | ((self.high > 0.0) & ~np.isfinite(lower))

    def cost(self, lower: Floats, upper: Floats, paid: NDArray[np.bool_]) -> float:
        """Return a float below the sum of min r y over the boxes of the paid columns."""
        with np.errstate(invalid="ignore", over="ignore"):
            corners = np.array(
                [self.low * lower, self.low * upper, self.high * lower, self.high * upper]
            )
        # 0 times a bound that is not there; a residual that is not known has no end at all
        corners[np.isnan(corners)] = 0.0
        corners[:, np.isinf(self.low) | np.isinf(self.high)] = -np.inf
        least = corners.min(axis=0)[paid]
        size = float(np.abs(least).sum())
        return float(least.sum() - gamma(least.size + 8.0) * size - least.size * 1e-320)


def _residual(form: ConicForm, x: Floats | None, z: Floats, q: Floats) -> _Residual:
    center, radius = product(form.A.T, z)
    size = np.abs(center) + np.abs(q)
    center = center + q
    if x is not None and form.P.nnz:
        bent, more = product(form.P, x)
        center, radius, size = center + bent, radius + more, size + np.abs(bent)
    radius = radius + 4.0 * UNIT * size
    return _enclosed(center, radius)


def _enclosed(center: Floats, radius: Floats) -> _Residual:
    """Return the ends, infinite where a number left the range of floats."""
    with np.errstate(invalid="ignore"):
        low, high = center - radius, center + radius
    known = np.isfinite(low) & np.isfinite(high)
    return _Residual(np.where(known, low, -np.inf), np.where(known, high, np.inf))


def _sharper(
    form: ConicForm, found: _Residual, x: Floats | None, z: Floats, q: Floats, at: Ints
) -> _Residual:
    """Return the residual with some columns correctly rounded, exactly 0 where they are."""
    more: tuple[tuple[Any, Floats], ...] = ((sp.csc_array(q[None, :]), np.ones(1)),)
    if x is not None and form.P.nnz:
        more += ((form.P, x),)
    center, radius = exact_products(form.columns_of_rows, z, at, more)
    low, high = found.low.copy(), found.high.copy()
    sharp = _enclosed(center, radius)
    low[at], high[at] = sharp.low, sharp.high
    return _Residual(low, high)


def _with_cut(form: ConicForm, rows: Rows, upper: float | None) -> Rows:
    """Add the row that the objective is at most a known value, for a linear objective."""
    if upper is None or form.P.nnz or not np.isfinite(upper) or not form.q.any():
        return rows
    side = np.nextafter(upper - form.offset, np.inf)
    side += 4.0 * UNIT * (abs(upper) + abs(form.offset))
    return rows.with_row(form.q, float(side))


def _bounds(
    form: ConicForm, found: _Residual, rows: Rows, lower: Floats, upper: Floats
) -> tuple[Floats, Floats]:
    def suffice(low: Floats, high: Floats) -> bool:
        return not found.unpaid(low, high).any()

    return propagated(rows, lower, upper, suffice)


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
    curvature = form.curvature
    if not np.isfinite(curvature.shift):
        return LowerBound(-np.inf, fault=f"the objective is not convex: {curvature}")
    z = _in_dual(form.cones, z)
    if not np.isfinite(z).all():
        return LowerBound(-np.inf, fault="the multipliers leave the range of floats")
    with np.errstate(over="ignore", invalid="ignore"):
        return _lower_bound(form, x, z, upper)


def _lower_bound(form: ConicForm, x: Floats, z: Floats, upper: float | None) -> LowerBound:
    """Return the bound of multipliers that are in the dual cone."""
    curvature = form.curvature
    found = _residual(form, x, z, form.q)
    rows = linear_rows(form)
    lower, above = form.column_bounds
    open_ones = found.unpaid(lower, above)
    if open_ones.any():
        found = _sharper(form, found, x, z, form.q, np.flatnonzero(open_ones))
        open_ones = found.unpaid(lower, above)
    best = np.inf
    if open_ones.any():
        cut = _with_cut(form, rows, upper)
        lower, above = _bounds(form, found, cut, lower, above)
        best = np.inf if upper is None else upper
        open_ones = found.unpaid(lower, above)
    spent = 0.0
    if open_ones.any():
        z, found, spent = _closed(form, found, x, z, lower, above)
        open_ones = found.unpaid(lower, above)
    total = _total(form, x, z, found, spent, lower, above)
    curved = np.zeros(form.q.size, dtype=bool)
    if curvature.shift > 0.0:
        curved = np.diff(sp.csc_array(form.P).indptr) > 0
        far = np.maximum(np.abs(above - x), np.abs(lower - x))
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


def _closed(
    form: ConicForm, found: _Residual, x: Floats, z: Floats, lower: Floats, upper: Floats
) -> tuple[Floats, _Residual, float]:
    """Return multipliers nearby with fewer unpaid columns, their residual, and what that costs.

    A proof that costs much more than what it pays for says less than none: then nothing moves.
    """
    open_ones = found.unpaid(lower, upper)
    here = float(found.size[open_ones] @ np.abs(x[open_ones]))
    size = 1.0 + float(np.abs(form.q) @ np.abs(x))
    least = _total(form, x, z, found, 0.0, lower, upper) - max(DEAR * here, SPARE * size)
    best, fewest = (z, found, 0.0), int(open_ones.sum())
    for polish in (False, True):
        start = _polished(form, found, x, z, form.q, lower, upper) if polish else (z, found)
        moved, costs = _repaired(form, start[1], x, start[0], form.q, lower, upper)
        total = _total(form, x, start[0], moved, costs, lower, upper)
        left = int(moved.unpaid(lower, upper).sum())
        if total >= least and left <= fewest - (fewest > 0):
            best, fewest, least = (start[0], moved, costs), left, total if left == 0 else least
        if fewest == 0 and costs <= 1e-3 * SPARE * size:
            break
    return best


def _total(
    form: ConicForm,
    x: Floats,
    z: Floats,
    found: _Residual,
    spent: float,
    lower: Floats,
    upper: Floats,
) -> float:
    """Return a float below what multipliers prove, the unpaid columns left out."""
    paid = found.cost(lower, upper, ~found.unpaid(lower, upper))
    value, spared = _value(form, x, z)
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


def _value(form: ConicForm, x: Floats, z: Floats) -> tuple[float, float]:
    """Return a center and radius of -½ x'Px - b'z + offset."""
    center, radius = dot(form.b, z)
    value = form.offset - center
    radius += 4.0 * UNIT * (abs(form.offset) + abs(center))
    if form.P.nnz:
        Px, off = product(form.P, x)
        bent, rounding = dot(x, Px)
        value -= 0.5 * bent
        radius += 0.5 * (rounding + float(np.abs(x) @ off) * (1.0 + 1e-9)) + UNIT * abs(bent)
    return value, radius * (1.0 + 1e-9)


def _movable(form: ConicForm, z: Floats) -> Floats:
    """Return how far each multiplier may move and stay in the dual cone.

    Rows of equalities move freely. Entries behind the head of a second-order cone, those of a
    positive semidefinite block off its diagonal, and the first two of an exponential cone move
    too: the head, the diagonal or the last entry is then raised.
    """
    room = np.zeros(z.size)
    for c in form.cones:
        at = slice(c.start, c.stop)
        if c.kind == "zero":
            room[at] = np.inf
        elif c.kind == "nonneg":
            room[at] = z[at]
        elif not z[at].any():
            continue  # to raise its head would cost columns that are exact
        elif c.kind == "soc":
            room[c.start + 1 : c.stop] = np.inf
        elif c.kind == "psd":
            room[at] = np.where(c.diagonal, 0.0, np.inf)
        elif c.kind == "exp":
            reach = np.abs(z[at].reshape(-1, 3)[:, :1]) / 16.0
            room[at] = (reach * np.array([[1.0, 1.0, 0.0]])).ravel()
    return room


def _raised(form: ConicForm, z: Floats, moved: Floats) -> Floats:
    """Return what entries that keep the others in the dual cone must be raised by."""
    up = np.zeros(z.size)
    for c in form.cones:
        own = moved[c.start : c.stop]
        if c.kind not in ("soc", "psd", "exp") or not own.any():
            continue
        if c.kind == "exp":
            u, v, _ = z[c.start : c.stop].reshape(-1, 3).T
            du, dv, _ = own.reshape(-1, 3).T
            ratio = np.divide(v, u, out=np.zeros_like(u), where=u != 0.0)
            # the slopes of -u exp(v/u - 1), doubled for moves of a sixteenth of u
            with np.errstate(over="ignore"):
                steep = 2.0 * np.exp(ratio - 1.0 + 0.2 * (1.0 + np.abs(ratio)))
                steep = np.maximum(steep, FLOOR)
            up[c.start + 2 : c.stop : 3] = steep * (dv + (1.0 + 2.0 * np.abs(ratio)) * du)
            continue
        where = np.arange(c.start, c.stop)
        up[where[:1] if c.kind == "soc" else where[c.diagonal]] = length(own)
    return up


def _polished(
    form: ConicForm,
    found: _Residual,
    x: Floats | None,
    z: Floats,
    q: Floats,
    lower: Floats,
    upper: Floats,
) -> tuple[Floats, _Residual]:
    """Return multipliers moved in floats so that less is left in the unpaid columns.

    What is then proved to exist near them is nearer, and costs less.
    """
    at = np.flatnonzero(found.unpaid(lower, upper))
    middle = 0.5 * (found.low[at] + found.high[at])
    step = correcting_step(sp.csr_array(form.columns_of_rows[:, at].T), middle, _movable(form, z))
    if step is None:
        return z, found
    near = _in_dual(form.cones, z + step)
    if not np.isfinite(near).all():
        return z, found
    again = _sharper(form, _residual(form, x, near, q), x, near, q, at)
    left = again.unpaid(lower, upper)
    better = again.size[left].sum() < found.size[at].sum()
    return (near, again) if better else (z, found)


def _repaired(
    form: ConicForm,
    found: _Residual,
    x: Floats | None,
    z: Floats,
    q: Floats,
    lower: Floats,
    upper: Floats,
) -> tuple[_Residual, float]:
    """Return the residual, moved so that less of it is unpaid, and what that costs."""
    before = found.unpaid(lower, upper)
    zeroed, best = before, (found, 0.0)
    least = float(found.size[before].sum())
    for _ in range(ROUNDS):
        moved = _repair(form, found, x, z, q, np.flatnonzero(zeroed))
        if moved is None:
            break
        after = moved[0].unpaid(lower, upper)
        left = float(moved[0].size[after].sum())
        if left < least:
            best, least = moved, left
        if not after.any():
            best = moved
            break
        zeroed = zeroed | after  # the move opened other columns: they are made 0 as well
    return best


def _exact_residual(
    form: ConicForm, q: Floats, x: Floats | None, z: Floats, at: Ints, width: int
) -> list[Fraction] | None:
    """Return the residual of a few columns in fractions, None when they are many."""
    if at.size * (width + 1) > ELIMINATED:
        return None
    residual = []
    parts = [(form.columns_of_rows, z)]
    if x is not None and form.P.nnz:
        parts.append((sp.csc_array(form.P), x))
    for j in at:
        total = Fraction(float(q[j]))
        for M, v in parts:
            own = slice(M.indptr[j], M.indptr[j + 1])
            for a, i in zip(M.data[own], M.indices[own], strict=True):
                total += Fraction(float(a)) * Fraction(float(v[i]))
        residual.append(total)
    return residual


def _repair(
    form: ConicForm, found: _Residual, x: Floats | None, z: Floats, q: Floats, at: Ints
) -> tuple[_Residual, float] | None:
    """Return the residual after a move that makes some columns exactly 0, and what it costs.

    The move of multipliers, and of the point where curvature is measured, is not computed: a
    solution of the equations is proved to exist, of a size that keeps the multipliers in the
    dual cone, and the other columns are charged for it.
    """
    m = z.size
    columns, room = form.columns_of_rows, _movable(form, z)
    # with a shift, what is paid for it depends on the point
    bent = x is not None and form.P.nnz > 0 and form.curvature.shift == 0.0
    if bent:
        columns = sp.csc_array(sp.vstack([columns, form.P]))
        room = np.concatenate([room, np.full(form.q.size, np.inf)])
    whole = sp.csr_array(columns[:, at].T)
    used = np.flatnonzero((np.diff(sp.csc_array(whole).indptr) > 0) & (room > 0.0))
    M = whole[:, used]
    step = correction(M, found.size[at], room[used])
    if step is None:  # equations that follow from others are left out, where that is exact
        exact = _exact_residual(form, q, x, z, at, used.size)
        kept = None if exact is None else independent(M, exact)
        step = correction(M[kept], found.size[at][kept], room[used]) if kept else None
    moved = None if step is None else np.zeros(room.size)
    if moved is not None:
        moved[used] = step
    if moved is None or not (moved <= room).all() or not np.isfinite(moved).all():
        return None
    up = np.zeros(room.size)
    up[:m] = _raised(form, z, moved[:m])
    if not np.isfinite(up).all() or (abs(whole) @ up > 0.0).any():
        return None  # what is raised would spoil what was made exact
    change = abs(columns).T @ (moved + up) * (1.0 + 1e-9)
    low = np.where(change > 0.0, np.nextafter(found.low - change, -np.inf), found.low)
    high = np.where(change > 0.0, np.nextafter(found.high + change, np.inf), found.high)
    low[at] = high[at] = 0.0
    if not (np.isfinite(change).all() and np.isfinite(moved).all()):
        return None
    spent = float(np.abs(form.b) @ (moved + up)[:m])
    if bent and x is not None:
        step = moved[m:]
        Px, off = product(form.P, x)
        spent += float((np.abs(Px) + off) @ step) + 0.5 * float(step @ (abs(form.P) @ step))
    return _Residual(low, high), spent * (1.0 + 1e-9) + 1e-300


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
    largest = float(np.abs(z).max(initial=0.0))
    if largest == 0.0:
        return Contradiction(False, 0.0, "it is zero")
    # scaled before it is moved into the dual cone: small entries round each on its own
    z = _in_dual(form.cones, np.ldexp(z, -int(np.floor(np.log2(largest)))))
    if not np.isfinite(z).all():
        return Contradiction(False, 0.0, "it is not a finite vector with an entry per row")
    nothing = np.zeros(form.q.size)
    found = _residual(form, None, z, nothing)
    rows = linear_rows(form)
    lower, upper = form.column_bounds
    open_ones = found.unpaid(lower, upper)
    if open_ones.any():
        found = _sharper(form, found, None, z, nothing, np.flatnonzero(open_ones))
        open_ones = found.unpaid(lower, upper)
    if open_ones.any():
        lower, upper = _bounds(form, found, rows, lower, upper)
        open_ones = found.unpaid(lower, upper)
    if open_ones.any() and repair:
        near, moved = _polished(form, found, None, z, nothing, lower, upper)
        moved, spent = _repaired(form, moved, None, near, nothing, lower, upper)
        proof = _contradiction(form, near, moved, spent, lower, upper)
        if proof.proved:
            return proof
    return _contradiction(form, z, found, 0.0, lower, upper)


def _contradiction(
    form: ConicForm, z: Floats, found: _Residual, spent: float, lower: Floats, upper: Floats
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
