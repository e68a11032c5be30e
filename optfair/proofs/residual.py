"""What multipliers leave over in each column, and moves nearby that leave nothing, or a sign that is paid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.cones import Cone, SecondOrder
from optfair.proofs.equations import correcting_step, correction, implying
from optfair.proofs.faces import kernels_of, normals_of
from optfair.proofs.rounding import UNIT, Floats, entries_of, exact_products, gamma, length, reached
from optfair.proofs.triples import FLOOR, exp_depths, exp_dual_points, exp_rows

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


Ints = NDArray[np.int64]

# Multipliers that are moved by more than this share of the largest are others.
NEAR = 1e-6
# Times that rows are looked for which have one unpaid column only: so long is a chain of states.
LEVELS = 10_000
EDGE: Mapping[int, float] = MappingProxyType({})  # nowhere is a block known to have room
DEEP = ("psd", "pow")  # cones that say how deep they hold a point
# Times that columns which a move opens are made 0, too; all that it may, up to so many for each.
ROUNDS, MANY = 3, 2


def in_dual(cones: tuple[Cone, ...], z: Floats) -> Floats:
    """Return a vector near z that is exactly in the dual of every cone."""
    z = np.array(z, dtype=float)
    for c in cones:
        at = slice(c.start, c.stop)
        if c.kind == "nonneg":
            z[at] = np.maximum(z[at], 0.0)
        elif c.kind not in ("zero", "soc", "exp"):
            z[at] = c.dual_point(z[at])
    if (exp := exp_rows(cones)).size:
        z[exp] = exp_dual_points(z[exp])
    if curved := SecondOrder.of(cones):
        z[curved.heads] = curved.raised(z)
    return z


@dataclass(frozen=True, eq=False)
class Residual:
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


def residual_of(form: ConicForm, x: Floats | None, z: Floats, q: Floats) -> Residual:
    """Return an enclosure of Px + q + A'z; without x, of q + A'z."""
    center, radius = form.across(z)
    size = np.abs(center) + np.abs(q)
    center = center + q
    if x is not None and form.P.nnz:
        bent, more = form.bending(x)
        center, radius, size = center + bent, radius + more, size + np.abs(bent)
    radius = radius + 4.0 * UNIT * size
    if form.declared_within is not None:
        radius = radius + form.across.terms(form.declared_within * np.abs(z))
    return _enclosed(center, radius)


def _enclosed(center: Floats, radius: Floats) -> Residual:
    """Return the ends, infinite where a number left the range of floats."""
    with np.errstate(invalid="ignore"):
        low, high = center - radius, center + radius
    known = np.isfinite(low) & np.isfinite(high)
    return Residual(np.where(known, low, -np.inf), np.where(known, high, np.inf))


def sharper(
    form: ConicForm, residual: Residual, x: Floats | None, z: Floats, q: Floats, at: Ints
) -> Residual:
    """Return the residual with some columns correctly rounded, exactly 0 where they are."""
    if not at.size:
        return residual
    more: tuple[tuple[Any, Floats], ...] = ((q, np.ones(1)),)
    if x is not None and form.P.nnz:
        more += ((form.P, x),)
    center, radius = exact_products(form.columns_of_rows, z, at, more, form.rows)
    if form.declared_within is not None:
        radius = radius + form.across.terms(form.declared_within * np.abs(z))[at]
    low, high = residual.low.copy(), residual.high.copy()
    sharp = _enclosed(center, radius)
    low[at], high[at] = sharp.low, sharp.high
    return Residual(low, high)


def absorbed(form: ConicForm, residual: Residual, z: Floats, at: Ints) -> Floats:
    r"""Return multipliers with what some columns have left over taken out of their own bounds'.

    A column with :math:`r_j < 0` and no upper bound has a lower one: the multiplier of that row
    is reduced by :math:`|r_j|`, as far as it goes. An interior-point method leaves there more
    than it leaves in the columns.
    """
    A = form.rows
    rows = np.flatnonzero(form.nonnegative & (np.diff(A.indptr) == 1) & (z > 0.0))
    column, entry = A.indices[A.indptr[rows]], A.data[A.indptr[rows]]
    open_ones = np.zeros(form.q.size, dtype=bool)
    open_ones[at] = True
    excess = np.where(entry < 0.0, -residual.low[column], residual.high[column])
    fits = open_ones[column] & (entry != 0.0) & (excess > 0.0) & np.isfinite(excess)
    rows, column, less = rows[fits], column[fits], (excess / np.abs(entry))[fits]
    order = np.argsort(-z[rows], kind="stable")  # one row a column, that with the most to give
    rows, less = rows[order], less[order]
    _, first = np.unique(column[order], return_index=True)
    rows, less = rows[first], less[first]
    near = z.copy()
    near[rows] = np.maximum(np.nextafter(z[rows] - less * (1.0 + 8.0 * UNIT), -np.inf), 0.0)
    return near


def peeled(
    form: ConicForm,
    residual: Residual,
    z: Floats,
    unpaid: NDArray[np.bool_],
    depths: Mapping[int, float] = EDGE,
) -> tuple[Residual, float] | None:
    r"""Return the residual after a move that makes unpaid columns exactly 0 one by one, and its cost.

    A row whose only unpaid column is j can take all that is left over there, at the expense of
    columns that are paid for; without j, other rows have one unpaid column only. In the order
    of these choices the equations :math:`A_j^T \Delta = -r_j` are triangular, so a solution exists
    with

    .. math::
        |\Delta_{i(j)}| \le \Bigl(|r_j| + \sum_{k \text{ chosen later}}
        |a_{i(k) j}| |\Delta_{i(k)}|\Bigr) / |a_{i(j) j}| .

    None when columns are left, or multipliers have not the room.
    """
    room, by_column = _movable(form, z, depths), form.across.sizes
    free = np.flatnonzero(room > 0.0)
    entry, column, row = entries_of(form.rows, free)
    here = unpaid[column] & (entry != 0.0)
    row, column, entry = free[row[here]], column[here], np.abs(entry[here])
    columns = sp.csc_array((entry, (row, column)), shape=(z.size, unpaid.size))
    # how many columns of a row are left, and the sum of their numbers: of one that is the column
    open_ones, left = int(np.count_nonzero(unpaid)), np.bincount(row, minlength=z.size)
    numbers = np.bincount(row, column, z.size)
    ready = np.flatnonzero(left == 1)
    levels: list[tuple[Ints, Ints, Floats]] = []
    while ready.size and len(levels) < LEVELS:
        column = np.unique(numbers[ready].astype(np.intp))
        entry, row, which = entries_of(columns, column)
        single = np.flatnonzero(left[row] == 1)
        # of the rows of a column the one with most room, then with the largest entry
        order = np.lexsort((-entry[single], -room[row[single]], which[single]))
        _, first = np.unique(which[single][order], return_index=True)
        one = single[order][first]
        levels.append((row[one], column, entry[one]))
        open_ones -= column.size
        np.subtract.at(left, row, 1)
        np.subtract.at(numbers, row, column[which])
        ready = row[left[row] == 1]
    if open_ones:
        return None
    moved = np.zeros(z.size)
    with np.errstate(over="ignore"):
        for row, column, entry in reversed(levels):
            due = residual.size[column] + _reached_in(by_column, column, moved)
            moved[row] = due / entry * (1.0 + 1e-12) + np.where(due > 0.0, 1e-300, 0.0)
        if not (np.isfinite(moved).all() and (moved <= room).all()):
            return None
        up = _raised(form, z, moved, depths)
        if not np.isfinite(up).all():
            return None
        if up.any() and (_reached_in(by_column, np.flatnonzero(unpaid), up) > 0.0).any():
            return None
        change = reached(by_column, moved + up)
        spent = float(np.abs(form.b) @ (moved + up)) * (1.0 + 1e-9) + 1e-300
    if not (np.isfinite(change).all() and np.isfinite(spent)):
        return None
    low = np.where(change > 0.0, np.nextafter(residual.low - change, -np.inf), residual.low)
    high = np.where(change > 0.0, np.nextafter(residual.high + change, np.inf), residual.high)
    low[unpaid] = high[unpaid] = 0.0
    return Residual(low, high), spent


def _reached_in(sizes: Any, rows: Ints, step: Floats) -> Floats:
    """Return what `reached` says of some rows, from their entries alone."""
    entry, inner, which = entries_of(sizes, rows)
    terms = entry * step[inner]
    most = np.bincount(which, terms, rows.size) * (1.0 + 1e-9)
    met = np.bincount(which, (entry > 0.0) & (step[inner] > 0.0), rows.size) > 0.0
    return np.where(met, most + 1e-300, most)


def _curved_depths(form: ConicForm, z: Floats) -> dict[int, float]:
    curved = SecondOrder.of(form.cones)
    depths = curved.depths(z).tolist() if curved else []
    return dict(zip(curved.heads.tolist(), depths, strict=True))


def _movable(form: ConicForm, z: Floats, depths: Mapping[int, float] = EDGE) -> Floats:
    """Return how far each multiplier may move and stay in the dual cone.

    Rows of equalities move freely. Entries behind the head of a second-order cone, those of a
    positive semidefinite block off its diagonal, and the first two of an exponential cone move
    too: the head, the diagonal or the last entry is then raised. Inside a cone every entry moves as
    far as its depth, of an exponential one only the last.
    """
    room = np.zeros(z.size)
    for c in form.cones:
        at = slice(c.start, c.stop)
        if c.kind == "zero":
            room[at] = np.inf
        elif c.kind == "nonneg":
            room[at] = z[at]
        elif c.kind == "soc" or not z[at].any():
            continue  # to raise its head would cost columns that are exact
        elif c.kind == "pow" or (c.kind == "psd" and depths.get(c.start, 0.0) > 0.0):
            room[at] = depths.get(c.start, 0.0)
        elif c.kind == "psd":
            room[at] = np.where(c.diagonal, 0.0, np.inf)
    exp = exp_rows(form.cones)
    room[exp[:, :2]] = np.abs(z[exp[:, :1]]) / 16.0
    room[exp[:, 2]] = [depths.get(head, 0.0) for head in exp[:, 0].tolist()]
    if curved := SecondOrder.of(form.cones):
        within = np.array([depths.get(head, 0.0) for head in curved.heads.tolist()])
        edge = np.where(curved.sums(z != 0.0) > 0, np.inf, 0.0)
        room[curved.rows] = curved.spread(np.where(within > 0.0, within, edge))
        room[curved.heads] = within
    return room


def _raised(
    form: ConicForm, z: Floats, moved: Floats, depths: Mapping[int, float] = EDGE
) -> Floats:
    """Return what entries that keep the others in the dual cone must be raised by."""
    up = np.zeros(z.size)
    if curved := SecondOrder.of(form.cones):
        within, lengths = [depths.get(k, 0.0) for k in curved.heads.tolist()], curved.lengths(moved)
        up[curved.heads] = np.where(lengths <= within, 0.0, lengths)
    exp = exp_rows(form.cones)
    if (exp := exp[moved[exp].any(axis=1)]).size:
        (u, v, _), (du, dv, dw) = z[exp].T, moved[exp].T
        ratio = np.divide(v, u, out=np.zeros_like(u), where=u != 0.0)
        # the slopes of -u exp(v/u - 1), doubled for moves of a sixteenth of u
        with np.errstate(over="ignore"):
            steep = np.maximum(2.0 * np.exp(ratio - 1.0 + 0.2 * (1.0 + np.abs(ratio))), FLOOR)
            raised = steep * (dv + (1.0 + 2.0 * np.abs(ratio)) * du)
        raised = np.where(du + dv > 0.0, raised + FLOOR, raised) * (1.0 + 1e-9) + dw
        spare = np.array([depths.get(k, 0.0) for k in exp[:, 0].tolist()])
        up[exp[:, 2]] = np.where(raised <= spare, 0.0, raised)
    for c in form.cones:
        own = moved[c.start : c.stop]
        if c.kind != "psd" or not own.any() or length(own) <= depths.get(c.start, 0.0):
            continue
        up[np.arange(c.start, c.stop)[c.diagonal]] = length(own) * c.stretch
    return up


def polished(
    form: ConicForm,
    residual: Residual,
    x: Floats | None,
    z: Floats,
    q: Floats,
    lower: Floats,
    upper: Floats,
) -> tuple[Floats, Residual]:
    """Return multipliers moved in floats so that less is left in the unpaid columns.

    What is then proved to exist near them is nearer, and costs less.
    """
    at = np.flatnonzero(residual.unpaid(lower, upper))
    middle = 0.5 * (residual.low[at] + residual.high[at])
    anywhere = {c.start: np.inf for c in form.cones if c.kind in DEEP}
    room = _movable(form, z, anywhere | _curved_depths(form, z))
    M, used = _equations(form.columns_of_rows, at, room)
    part = correcting_step(M, middle, room[used])
    if part is None or not np.abs(part).max() <= NEAR * np.abs(z).max():
        return z, residual  # these multipliers are not nearly right
    step = np.zeros(z.size)
    step[used] = part
    if not np.isfinite(near := in_dual(form.cones, z + step)).all():
        return z, residual
    again = residual_of(form, x, near, q)
    # columns that were 0 are as exact as before
    again = sharper(form, again, x, near, q, np.flatnonzero(again.unpaid(lower, upper)))
    left = again.unpaid(lower, upper)
    better = again.size[left].sum() < residual.size[at].sum()
    return (near, again) if better else (z, residual)


def _equations(columns: Any, at: Ints, room: Floats) -> tuple[Any, Ints]:
    """Return some columns over the rows that may move as equations, and which rows these are."""
    entry, row, which = entries_of(columns, at)
    free = room[row] > 0.0
    used, own = np.unique(row[free], return_inverse=True)
    start = np.append(0, np.cumsum(np.bincount(which[free], minlength=at.size)))
    return sp.csr_array((entry[free], own, start), shape=(at.size, used.size)), used


def repaired(
    form: ConicForm,
    residual: Residual,
    x: Floats | None,
    z: Floats,
    q: Floats,
    lower: Floats,
    upper: Floats,
    *,
    quick: bool = False,
) -> tuple[Residual, float]:
    """Return the residual, moved so that less of it is unpaid, and what that costs."""
    before, asked = residual.unpaid(lower, upper), (form, residual, x, z, q)
    best, least = (residual, 0.0), float(residual.size[before].sum())
    inner = {c.start: c.depth(z[c.start : c.stop]) for c in form.cones if c.kind in DEEP}
    exp = exp_rows(form.cones)
    inner |= dict(zip(exp[:, 0].tolist(), exp_depths(z[exp.ravel()]).tolist(), strict=True))
    inner |= _curved_depths(form, z)
    # where there is room inside the cones nothing has to be raised to stay there
    opened = before | ~(np.isfinite(lower) | np.isfinite(upper))
    for depths in [inner, EDGE] if any(inner.values()) else [EDGE]:
        zeroed = opened if quick and opened.sum() <= MANY * before.sum() else before
        whole, wide = ~zeroed, None
        for tried in range(ROUNDS):
            same = np.array_equal(zeroed, whole)
            moved = wide if same else _repair(*asked, np.flatnonzero(zeroed), depths, quick)
            if moved is None:  # more equations than a dense factor is made for may be triangular
                moved = peeled(form, residual, z, zeroed, depths)
            if moved is None:
                break
            after = moved[0].unpaid(lower, upper)
            left = float(moved[0].size[after].sum())
            if left < least:
                best, least = moved, left
            if not after.any():
                return moved
            zeroed = zeroed | after  # the move opened other columns: they are made 0 as well
            if tried == 0 and opened.sum() <= MANY * zeroed.sum():  # and so may another
                whole = zeroed | opened
                wide = _repair(*asked, np.flatnonzero(whole), depths, quick)
                if wide is not None and not wide[0].unpaid(lower, upper).any():
                    return wide
    return best


def _repair(
    form: ConicForm,
    residual: Residual,
    x: Floats | None,
    z: Floats,
    q: Floats,
    at: Ints,
    depths: Mapping[int, float],
    quick: bool,
) -> tuple[Residual, float] | None:
    """Return the residual after a move that makes some columns exactly 0, and what it costs.

    The move of multipliers, and of the point where curvature is measured, is not computed: a
    solution of the equations is proved to exist, of a size that keeps the multipliers in the
    dual cone, and the other columns are charged for it.
    """
    m = z.size
    room = _movable(form, z, depths)
    M, used = _equations(form.columns_of_rows, at, room)
    # with a shift, what is paid for it depends on the point
    bent = x is not None and form.P.nnz > 0 and form.curvature.shift == 0.0
    if bent:
        # where the objective is strictly convex, curvature pays
        floor = form.curvature.floor
        free = np.full(form.q.size, np.inf) if floor is None else np.where(floor > 0.0, 0.0, np.inf)
        bending, columns = _equations(form.bending.rows, at, free)
        M, used = sp.csr_array(sp.hstack([M, bending])), np.append(used, m + columns)
        room = np.append(room, free)

    def reach(step: Floats) -> Floats:
        most = reached(form.across.sizes, step[:m])
        return most + reached(form.bending.sizes, step[m:]) if bent else most

    size = residual.size[at]
    step = correction(M, size, room[used], quick=quick, known=form.inverses)
    # equations that follow from others are left out, where that is exact
    if step is None and not quick:
        kept = implying(form, q, x, z, at, M, used)
        step = correction(M[kept], size[kept], room[used], known=form.inverses) if kept else None
    if step is None:
        return None
    moved = np.zeros(room.size)
    moved[used] = step
    if not (moved <= room).all() or not np.isfinite(moved).all():
        return None
    up = np.zeros(room.size)
    up[:m] = _raised(form, z, moved[:m], depths)
    if not np.isfinite(up).all() or (up.any() and (reach(up)[at] > 0.0).any()):
        return None  # what is raised would spoil what was made exact
    change = reach(moved + up)
    low = np.where(change > 0.0, np.nextafter(residual.low - change, -np.inf), residual.low)
    high = np.where(change > 0.0, np.nextafter(residual.high + change, np.inf), residual.high)
    low[at] = high[at] = 0.0
    if not np.isfinite(change).all():
        return None
    spent = float(np.abs(form.b) @ (moved + up)[:m])
    if bent and x is not None:
        step = moved[m:]
        Px, off = form.bending(x)
        bent_by = form.bending.sizes @ step
        spent += float((np.abs(Px) + off) @ step) + 0.5 * float(step @ bent_by)
    return Residual(low, high), spent * (1.0 + 1e-9) + 1e-300


# Entries of the program that is solved, and how far it may move, in sizes of what is left over.
ENTRIES, REACH = 300_000, 1e4
# Iterations, so that it ends after as many on every machine.
ITERATIONS = 5_000
# What every column gets beyond what it lacks, of the largest left over; the price of one that is left.
MARGIN, ELASTIC = 1e-2, 10.0
# Depth of multipliers in curved cones, in sizes of what is left over, and the size from which on a move
# of as much leaves their direction nearly as it is.
DEPTH, TURNED = 8.0, 1e3
# Shares of margin and depth that are tried: a step whose equations are exact needs less room.
SHARES = (0.0, 1e-3, 1.0)
# Share of the largest multiplier by which those of half-lines next to nothing may grow beside cones.
SPARE = 1e-5


def tilted(
    form: ConicForm,
    residual: Residual,
    x: Floats,
    z: Floats,
    lower: Floats,
    upper: Floats,
    *,
    curved: bool = True,
    quick: bool = False,
) -> tuple[Floats, ...]:
    r"""Return multipliers nearby whose residuals are paid for by the bounds there are, cheapest first.

    A column with a lower bound alone pays for :math:`r_j \ge 0` only. The move Δ solves

    .. math::
        \min_{\Delta, e \ge 0}\; s^T \Delta + M e \quad\text{subject to}\quad
        r_j + A_j^T \Delta + e_j \ge \epsilon \text{ (lower bound alone)},\;
        r_j + A_j^T \Delta - e_j \le -\epsilon \text{ (upper bound alone)},\;
        A_j^T \Delta = 0 \text{ (neither)},

    with the slacks s, so that rows move which are active: that costs nothing. Multipliers of
    second-order and exponential cones move to where there is room within, by their normals
    :math:`g^T \Delta \ge d`, and blocks, where no program is solved, along their kernels; then
    :math:`A_j^T \Delta = -r_j` for the columns without bounds. A column in which the optimal points are
    unbounded cannot be tilted, and is left. What comes out is judged by its own residuals; nothing
    here needs to be exact.

    Parameters
    ----------
    form : ConicForm
        The compiled program.
    residual : Residual
        What the multipliers leave over.
    x, z : array
        Primal point, multipliers in the dual cones.
    lower, upper : array (n,)
        Bounds that pay.
    curved : bool
        Whether multipliers of cones move as well, which are left out where this leads nowhere.
    quick : bool
        The shortest moves that make what is short of its margin as large as it, or as shares of
        it, without a program.

    Returns
    -------
    tuple of arrays (m,)
        None of them where the program is too large or has no solution.
    """
    low_only = np.isfinite(lower) & ~np.isfinite(upper)
    high_only = np.isfinite(upper) & ~np.isfinite(lower)
    neither = ~(np.isfinite(lower) | np.isfinite(upper))
    unpaid = residual.unpaid(lower, upper)
    unit = float(residual.size[unpaid].max(initial=0.0))
    normals, depths = normals_of(form, z if curved else np.zeros(z.size))
    if form.A.nnz > ENTRIES or not (0.0 < unit < np.inf):
        return ()
    floor = max(unit, rounding := 64.0 * UNIT * float(np.abs(z).max()))
    kernels, low = (
        kernels_of(form, z, DEPTH * floor) if quick and curved else (normals[:0], depths[:0])
    )
    if not ((low_only | high_only)[unpaid].any() or normals.nnz or kernels.nnz):
        return ()
    unit = floor if normals.nnz or kernels.nnz else unit
    room, moving = np.zeros(z.size), np.zeros(z.size, dtype=bool)
    moving[normals.indices] = moving[kernels.indices] = True
    room[moving] = np.inf
    least = SPARE * float(np.abs(z).max()) if quick and normals.nnz else 0.0
    for c in form.cones:
        at = slice(c.start, c.stop)
        if c.kind in ("zero", "nonneg"):
            grown = np.where(z[at] > 0.0, np.maximum(z[at], least), 0.0)
            room[at], moving[at] = np.inf if c.kind == "zero" else grown, True
        elif c.kind == "soc" and quick and not np.linalg.norm(z[at][1:]) > TURNED * unit:
            moving[at.start + 1 : at.stop] = False  # a move would turn the normal: the head grows
    rows = np.flatnonzero(moving)
    by_column: Any = sp.csr_array(sp.csr_array(form.A)[rows].T)
    middle, side = 0.5 * (residual.low + residual.high), np.where(low_only, 1.0, -1.0)
    if quick:
        sides = np.where(low_only, residual.low, np.where(high_only, -residual.high, np.inf))
        some, shallow = neither | (sides < REACH * unit), depths < DEPTH * unit
        deeper = normals[shallow][:, rows], kernels[:, rows]
        M = sp.vstack([by_column[some], *deeper], format="csr")
        lacks = np.append(depths[shallow] - DEPTH * unit, low)

        def off(share: float) -> Floats:
            short = side * np.minimum(sides - share * unit, 0.0)
            spared = np.minimum(lacks + (1.0 - share) * DEPTH * unit, 0.0)
            lacking = np.where(lacks < 0.0, spared, lacks)
            return np.append(np.where(neither, middle, short)[some], lacking)

        shares = sorted({min(max(share, rounding / unit), 1.0) for share in SHARES})
        offs = np.column_stack([off(share) for share in shares])
        steps = correcting_step(M, offs, room[rows] / float(np.abs(z).max()))
        moved = np.zeros((z.size, 0 if steps is None else len(shares)))
        if steps is not None:
            moved[rows] = steps
        near = z + moved.T
        return tuple(v for v in near if (v[form.nonnegative] >= 0.0).all())
    if normals.nnz:  # columns that pay on one side do so at the bound there
        slack = form.slack(np.where(low_only, lower, np.where(high_only, upper, x)))[rows]
    else:
        slack = np.maximum(form.slack(x)[rows], 0.0)
    size = max(float(np.abs(slack).max(initial=0.0)), 1.0)
    cost = np.concatenate([slack, -slack]) / size + 1e-6
    most = np.concatenate([np.full(rows.size, REACH), np.minimum(room[rows] / unit, REACH)])
    both = sp.hstack([by_column, -by_column], format="csr")
    # r + A'Δ + e >= margin for columns that are short of it; the others keep what they have
    A_ub, b_ub = [], []
    for one, sign, own in ((low_only, -1.0, residual.low), (high_only, 1.0, -residual.high)):
        columns = np.flatnonzero(one & (own < REACH * unit))
        spare = own[columns] / unit
        A_ub.append(sign * both[columns])
        b_ub.append(np.where(spare > 0.0, 0.99 * spare, spare - MARGIN))
    A_ub.append(-sp.hstack([normals[:, rows], -normals[:, rows]]))
    b_ub.append(depths / unit - DEPTH)
    side = np.concatenate(b_ub)
    elastic = -sp.eye_array(side.size, format="csr")[:, np.flatnonzero(side < 0.0)]
    columns = np.flatnonzero(neither)
    if not all(np.isfinite(part).all() for part in (cost, side, most, both.data)):
        return ()
    solve: Any = scipy.optimize.linprog
    answer = solve(
        np.concatenate([cost, np.full(elastic.shape[1], ELASTIC)]),
        A_ub=sp.hstack([sp.vstack(A_ub), elastic], format="csr"),
        b_ub=side,
        A_eq=sp.hstack(
            [both[columns], sp.csr_array((columns.size, elastic.shape[1]))], format="csr"
        ),
        b_eq=-middle[columns] / unit * bool(normals.nnz),
        bounds=np.column_stack(
            [
                np.zeros(most.size + elastic.shape[1]),
                np.append(most, np.full(elastic.shape[1], np.inf)),
            ]
        ),
        method="highs-ds",
        options={"maxiter": ITERATIONS},
    )
    if answer.status != 0:
        again = (form, residual, x, z, lower, upper)
        return tilted(*again, curved=False) if normals.nnz else ()
    step = np.zeros(z.size)
    step[rows] = unit * (answer.x[: rows.size] - answer.x[rows.size : 2 * rows.size])
    return (np.asarray(z + step),)
