"""Multipliers near given ones, whose residual is paid for by bounds or by a move."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.effort import HASTE, late, left_out
from optfair.proofs.residual import (
    Ints,
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
from optfair.proofs.rounding import UNIT, Floats, dot, length
from optfair.proofs.triples import FLOOR

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


# How much more than the residual is worth at the point its repair may cost, and how much of the
# size of the objective it may cost at any rate.
DEAR, SPARE = 1e3, 1e-10
# Bounds so many times as large as the largest entry of the point are far out.
FAR = 100.0
# Share of the objective that a tilt may cost, and times what multipliers fall short of it at which
# a cost is no reason to look for less.
SLIGHT, SHORT = 2e-8, 4.0
# What residuals cost at the point, in gaps that are allowed, from which on any proof will do.
HOPELESS = 1e3
# Multipliers below such a share of the largest cost, times their rows, may be rounding.
NOISE = (1e-11, 1e-8)
# Times that columns which a move opens are made 0 with the others.
ROUNDS = 5
# Share of its head by which the rest of a multiplier may be longer, to be shortened to it.
CLOSE = 1e-6
# Share of it by which it is then shorter: room for moves.
INSIDE = 1e-9
# So many unpaid columns are closed by equations before anything larger is solved.
FEW = 200
# Unpaid columns from which on one factorisation is tried before an inverse of their equations, and
# from which on nothing else is, once.
SEVERAL, MANY = 60, 1_000


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

    def of(self, residual: Residual) -> tuple[Floats, Floats]:
        """Return the bounds by which a residual is charged."""
        if self.floor is None or self.x is None:
            return self.lower, self.upper
        known: tuple[Residual, tuple[Floats, Floats]] | None = self.__dict__.get("_last")
        # the same residual is asked about several times
        if known is None or known[0] is not residual:
            known = self.__dict__["_last"] = (residual, self._around(self.x, self.floor, residual))
        return known[1]

    def _around(self, x: Floats, floor: Floats, residual: Residual) -> tuple[Floats, Floats]:
        at = floor > 0.0
        width = np.full(at.size, np.inf)
        with np.errstate(over="ignore"):
            width[at] = residual.size[at] / floor[at] * (1.0 + 8.0 * UNIT) + 1e-300
        near, far = np.nextafter(x - width, -np.inf), np.nextafter(x + width, np.inf)
        # their least corner is what is charged: ends that cross make it more, never less
        return np.maximum(self.lower, near), np.minimum(self.upper, far)

    def unpaid(self, residual: Residual) -> NDArray[np.bool_]:
        """Return the columns whose residual meets a bound that is not there."""
        return residual.unpaid(*self.of(residual))

    def paying(self, residual: Residual) -> Callable[[Floats, Floats], bool]:
        """Return what says whether bounds that are tighter leave nothing unpaid."""
        return lambda lower, upper: not self.tighter(lower, upper).unpaid(residual).any()


def carrying(form: ConicForm, z: Floats) -> Iterator[ConicForm]:
    """Yield the program without the equations that have no part in a contradiction, and as it is.

    Those of an objective may move as far as they like, and bring columns that must be 0 as well.
    """
    left = np.ones(z.size, dtype=bool)
    for c in form.cones:
        if c.kind == "zero":
            left[c.start : c.stop] = z[c.start : c.stop] != 0.0
    if not left.all():
        A = sp.csc_array(sp.diags_array(left.astype(float)) @ form.A)
        A.eliminate_zeros()
        yield replace(form, A=A)
    yield form


def sides_of(form: ConicForm, z: Floats) -> tuple[float, float]:
    """Return a center and radius of b'z, with b as it was declared."""
    center, radius = dot(form.b, z)
    if form.declared_within is not None:
        radius += float(form.declared_within * np.abs(form.b) @ np.abs(z)) * (1.0 + 1e-9)
    return center, radius


def value_of(form: ConicForm, x: Floats, z: Floats) -> tuple[float, float]:
    """Return a center and radius of -½ x'Px - b'z."""
    center, radius = sides_of(form, z)
    value = -center
    radius += 4.0 * UNIT * abs(center)
    if form.P.nnz:
        Px, off = form.bending(x)
        bent, rounding = dot(x, Px)
        value -= 0.5 * bent
        radius += 0.5 * (rounding + float(np.abs(x) @ off) * (1.0 + 1e-9)) + UNIT * abs(bent)
    return value, radius * (1.0 + 1e-9)


def total_of(
    form: ConicForm, x: Floats, z: Floats, residual: Residual, spent: float, boxes: Boxes
) -> float:
    """Return a float below what multipliers prove, the unpaid columns left out."""
    lower, upper = boxes.of(residual)
    paid = residual.cost(lower, upper, ~residual.unpaid(lower, upper))
    value, spared = value_of(form, x, z)
    total = value - spared + paid - spent
    return with_offset(form, total - 8.0 * UNIT * (abs(value) + abs(paid) + spent))


def with_offset(form: ConicForm, total: float) -> float:
    """Return a float that is not above the total plus the constant, and next to it."""
    s = form.offset + total
    t = s - form.offset
    lost = (form.offset - (s - t)) + (total - t)  # exactly what the sum lacks
    return s if lost >= 0.0 or not np.isfinite(s) else float(np.nextafter(s, -np.inf))


def lowered(form: ConicForm, residual: Residual, z: Floats, at: Ints) -> Floats:
    r"""Return multipliers that leave less in some columns, at the expense of what they have to spare.

    As `absorbed` does; and where a second-order cone's head is a column with no other row, whose
    multiplier :math:`z_0` is not its cost q, q is taken for it and the others are shortened to be
    within: moved into the cone, :math:`z_0` may be above, and t has no upper bound.
    """
    near, A, n = absorbed(form, residual, z, at), form.rows, form.q.size
    cones = [c for c in form.cones if c.kind == "soc" and c.stop - c.start > 1]
    cones = [c for c in cones if A.indptr[c.start + 1] - A.indptr[c.start] == 1]
    heads = np.array([c.start for c in cones], dtype=np.intp)
    if not heads.size or form.P.nnz:
        return near
    column, entry = A.indices[A.indptr[heads]], A.data[A.indptr[heads]]
    alone = np.bincount(A.indices[A.data != 0.0], minlength=n)[column] == 1
    fits = (entry == -1.0) & alone & np.isin(column, at)
    head = form.q[column]
    for k in np.flatnonzero(fits & (head > FLOOR) & (near[heads] > head)):
        tail = slice(cones[k].start + 1, cones[k].stop)
        size = length(near[tail])
        if size <= head[k] * (1.0 + CLOSE):
            near[heads[k]] = head[k]
            near[tail] *= min(1.0, head[k] / max(size, head[k]) * (1.0 - INSIDE))
    return near


def peeled_in_turn(
    form: ConicForm, residual: Residual, z: Floats, boxes: Boxes, *, light: bool = False
) -> tuple[Residual, float]:
    """Return the residual without unpaid columns, where rows take these one by one, and the cost."""
    zeroed = boxes.unpaid(residual)
    for _ in range(ROUNDS):
        moved = peeled(form, residual, z, zeroed) if zeroed.any() else None
        if moved is None:
            break
        after = boxes.unpaid(moved[0])
        if not after.any():
            return moved
        if light and after.sum() >= zeroed.sum():  # it goes from row to row
            break
        zeroed = zeroed | after  # columns that were paid on one side only
    return residual, 0.0


def lightly_peeled(
    form: ConicForm, residual: Residual, x: Floats, z: Floats, boxes: Boxes
) -> tuple[Residual, float] | None:
    """Return the residual without unpaid columns where rows take all of it for next to nothing.

    Definitions of one column by others do: asked first, they spare what rows imply of bounds.
    """
    moved = peeled_in_turn(form, residual, z, boxes, light=True)
    if boxes.unpaid(moved[0]).any():
        return None
    loss = total_of(form, x, z, residual, 0.0, boxes) - total_of(form, x, z, *moved, boxes)
    size = float(np.abs(form.q) @ np.abs(x)) + abs(form.objective(x) - form.offset)
    return moved if loss <= SPARE * size else None


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
            residual = residual_of(form, x, near, form.q)
            at = np.flatnonzero(boxes.unpaid(residual))
            yield near, sharper(form, residual, x, near, form.q, at)


def far_from(objective: float, enough: float, here: float) -> bool:
    """Whether residuals cost so much at the point that no move nearby proves enough."""
    return 0.0 < HOPELESS * (objective - enough) < here


class _Moves:
    """Multipliers near given ones, with fewer unpaid columns, that cost little enough.

    A proof that costs much more than what it pays for says less than none.
    """

    def __init__(
        self,
        form: ConicForm,
        residual: Residual,
        x: Floats,
        z: Floats,
        boxes: Boxes,
        enough: float = np.inf,
    ) -> None:
        self.form, self.x, self.boxes = form, x, boxes
        self.best = (z, residual, 0.0)
        # what a move leaves over is not the residual of the multipliers it starts from: searches
        # go on from multipliers with their own, or the cost of the move would be lost
        self.own = (z, residual)
        self._near: list[tuple[Floats, Residual, tuple[Floats, Residual]]] = []
        open_ones = boxes.unpaid(residual)
        self.left = float(residual.size[open_ones].sum())
        here = float(residual.size[open_ones] @ np.abs(x[open_ones]))
        self.slight = SPARE * (1.0 + float(np.abs(form.q) @ np.abs(x)))
        objective = form.objective(x)
        share = SLIGHT * abs(objective)
        total = total_of(form, x, z, residual, 0.0, boxes)
        self.least = total - max(DEAR * here, self.slight, share)
        short = min(SHORT * (objective - total), share)
        self.enough = min(total - max(1e-2 * max(self.slight, share), short), enough)
        if far_from(objective, enough, here):
            self.enough = -np.inf

    def offer(self, z: Floats, residual: Residual, spent: float) -> bool:
        """Take others that leave less; of those that leave nothing, what says most."""
        total = total_of(self.form, self.x, z, residual, spent, self.boxes)
        left = float(residual.size[self.boxes.unpaid(residual)].sum())
        if not (total >= self.least and (left < self.left or left == 0.0)):
            return False
        self.best, self.left = (z, residual, spent), left
        self.least = total if left == 0.0 else self.least
        return True

    @property
    def settled(self) -> bool:
        """Whether nothing is left, at next to no cost."""
        return self.left == 0.0 and self.least >= self.enough

    def close(
        self, around: tuple[Floats, Residual], first: int = 0, most: int | None = None
    ) -> None:
        """Close the unpaid columns by equations, around polished multipliers and as they were."""
        starts = self.offered(around, first, most)
        for near, start in starts if most is None else [*starts]:  # few are all offered before
            if self.settled or late():
                return
            lower, upper = self.boxes.of(start)
            again = (self.form, start, self.x, near, self.form.q, lower, upper)
            count = np.count_nonzero(start.unpaid(lower, upper))
            ways = (True, False) if count <= MANY else (True,)
            for quick in ways if count > SEVERAL else (False,):
                self.offer(near, *repaired(*again, quick=quick))
                if self.settled or late():
                    return

    def offered(
        self, around: tuple[Floats, Residual], first: int = 0, most: int | None = None
    ) -> Iterator[tuple[Floats, Residual]]:
        """Yield multipliers around which columns are closed by equations, each once it is offered."""
        for near, start in itertools.islice(self._starts(*around), first, most):
            if self.offer(near, start, 0.0):
                self.own = (near, start)
            yield near, start
            if self.settled or late() or np.count_nonzero(self.boxes.unpaid(start)) > MANY:
                return

    def _starts(self, z: Floats, residual: Residual) -> Iterator[tuple[Floats, Residual]]:
        """Yield multipliers polished, as they are, and both without what may be rounding."""
        plain = _without_noise(self.form, self.x, z, self.boxes)
        for near, left in itertools.chain([(z, residual)], plain):
            yield (nearer := self._polished(near, left))
            if nearer[1] is not left:
                yield near, left

    def _polished(self, z: Floats, residual: Residual) -> tuple[Floats, Residual]:
        """Return what `polished` does, once."""
        for other, left, known in self._near:
            if other is z and left is residual:
                return known
        bounds = self.boxes.of(residual)
        known = polished(self.form, residual, self.x, z, self.form.q, *bounds)
        self._near.append((z, residual, known))
        return known

    def tilt(self, *, quick: bool) -> None:
        """Tilt all multipliers, by the shortest move or by a linear program."""
        form, x, boxes = self.form, self.x, self.boxes
        for near in _tilted(form, x, *self._polished(*self.own), boxes, quick=quick):
            again = residual_of(form, x, near, form.q)
            again = sharper(form, again, x, near, form.q, np.flatnonzero(boxes.unpaid(again)))
            if self.offer(near, *peeled_in_turn(form, again, near, boxes)):
                self.own = (near, again)
            elif np.count_nonzero(boxes.unpaid(again)) <= FEW:  # more is left, with more room
                self.offer(near, *repaired(form, again, x, near, form.q, *boxes.of(again)))
            if self.settled:
                return


def _tilted(
    form: ConicForm, x: Floats, z: Floats, residual: Residual, boxes: Boxes, *, quick: bool = False
) -> Iterator[Floats]:
    """Yield multipliers, polished before, tilted where less is left, the cheapest first."""
    for near in tilted(form, residual, x, z, *boxes.of(residual), quick=quick):
        yield in_dual(form.cones, near)


def inside(form: ConicForm, x: Floats, z: Floats, *, quick: bool) -> Floats | None:
    """Return multipliers nearby with room in their cones for moves that close the columns.

    They are looked for in the units in which the numbers of the program are near 1.
    """
    if form.same is not None:
        same, unit = form.same
        near = inside(same.form, x / same.columns, unit * same.multipliers(z), quick=quick)
        return None if near is None else same.multipliers_back(near) / unit
    near = in_dual(form.cones, z)
    boxes = Boxes(*form.column_bounds, x=x, floor=form.curvature.floor)
    left = residual_of(form, x, near, form.q)
    start = polished(form, left, x, near, form.q, *boxes.of(left))
    room = _tilted(form, x, *start, boxes, quick=quick)
    return next(reversed([*room]), None)


def closed(
    form: ConicForm, residual: Residual, x: Floats, z: Floats, boxes: Boxes, enough: float = np.inf
) -> tuple[Floats, Residual, float]:
    """Return multipliers nearby with fewer unpaid columns, their residual, and what that costs.

    A few columns are closed by equations; else, and where what is proved is not enough, all
    multipliers are tilted, at last by a linear program, and equations are closed around others, too.
    """
    no_moves = HASTE.get() is not None and np.isfinite(enough)
    if no_moves and total_of(form, x, z, residual, 0.0, boxes) < enough and left_out(1):
        return z, residual, 0.0  # moves cost more
    moves = _Moves(form, residual, x, z, boxes, enough)
    for near, left in _without_noise(form, x, z, boxes):  # of an optimum of 0 nothing else is left
        if not boxes.unpaid(left).any() and moves.offer(near, left, 0.0) and moves.settled:
            return moves.best
    given, few = moves.own, np.count_nonzero(boxes.unpaid(residual)) <= FEW
    # a basis may be exact before it is polished; a solver's pair of a quadratic program is none
    bent = form.P.nnz > 0 and all(c.kind in ("zero", "nonneg") for c in form.cones)
    first = 2 if form.polyhedral else 0 if bent else 1
    if not (form.polyhedral or late()):  # in curved cones there is seldom room as they are
        moves.tilt(quick=True)
    if few and first and not moves.settled:
        moves.close(given, most=first)
    for quick, most in ((True, 1), (False, None)):
        if late():
            return moves.best
        if bent and quick and not moves.settled:
            for _ in moves.offered(moves.own, most=None if few else 2):
                pass
        if not moves.settled and (form.polyhedral or not quick):
            moves.tilt(quick=quick)
        if moves.left > 0.0 and not (few and moves.own is given) and not (bent and quick):
            moves.close(moves.own, most=most)
    if few and not moves.settled and not (bent and moves.left == 0.0):
        moves.close(given, first=first)
    return moves.best


def cheaper(
    form: ConicForm,
    residual: Residual,
    x: Floats,
    z: Floats,
    total: float,
    boxes: Boxes,
    bare: Boxes,
    enough: float = np.inf,
) -> tuple[Floats, Residual, float] | None:
    """Return a move that leaves little to the bounds that rows imply, where these are dear.

    In mixed units, and along unstable recursions, they are far out: what is rounding in one column
    is much there. The residual is that of the multipliers, not what a move has left; the total is
    what they prove without this. The columns that are dear are closed, and where that is not
    enough, those whose bounds are far out, and all that have none of their own, if they are few.
    """
    if left_out(1):
        return None
    slight = SLIGHT * max(abs(total), form.unit)
    free = total_of(form, x, z, residual, 0.0, bare)
    open_ones = bare.unpaid(residual)
    here = float(residual.size[open_ones] @ np.abs(x[open_ones]))
    if not free - total > slight or far_from(form.objective(x), enough, here):
        return None
    with np.errstate(invalid="ignore"):
        reach = np.maximum(np.abs(boxes.lower), np.abs(boxes.upper))
        dear = open_ones & ~(residual.size * reach <= slight / (4.0 * open_ones.sum()))
    best, before = None, list[NDArray[np.bool_]]()
    for shut in (dear, reach > FAR * np.abs(x).max(initial=1.0), open_ones):
        own = shut & open_ones
        # many at once only where nearly as many are dear
        most = max(FEW, 2 * int(before[0].sum())) if before else own.size
        many = int(own.sum()) > most
        if late() or many or any(np.array_equal(own, other) for other in before):
            continue
        before.append(own)
        lower = np.where(shut, bare.lower, boxes.lower)
        within = bare.tighter(lower, np.where(shut, bare.upper, boxes.upper))
        near = closed(form, residual, x, z, within, enough)
        value = -np.inf if within.unpaid(near[1]).any() else total_of(form, x, *near, within)
        if value > total:
            best, total = near, value
        if free - total <= slight or total >= enough:
            break
    return best


def dear_columns(form: ConicForm, x: Floats, residual: Residual, boxes: Boxes) -> Ints:
    """Return the columns whose residual costs much because of its rounding, if they are few."""
    lower, upper = boxes.of(residual)
    with np.errstate(invalid="ignore"):
        charge = (residual.high - residual.low) * np.maximum(np.abs(lower), np.abs(upper))
    charge = np.where(np.isfinite(charge), charge, 0.0)
    slight = SLIGHT * max(abs(form.objective(x)), form.unit)
    if not float(charge.sum()) > slight:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(charge > slight / (4.0 * charge.size))
