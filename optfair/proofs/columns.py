"""Bounds on the columns of a cone program that every feasible point obeys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.cones import SecondOrder
from optfair.proofs.rounding import (
    LOST,
    UNIT,
    Floats,
    coordinates,
    gamma,
)

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


Trace = list[tuple[Any, Any, Any, Any]]

# A bound of this size says nothing.
NONE = 1e15
# Passes over the rows, the least relative gain that is worth another one, and passes in turn that
# only move bounds.
ROUNDS, GAIN, IDLE = 30, 1e-3, 4


class Rows:
    """Linear rows ``low <= A x <= high`` that follow from a cone program.

    Parameters
    ----------
    A : sparse csr (m, n)
        Exact floats.
    low, high : array (m,)
        Infinite where there is none.
    side : array (m,)
        The right-hand sides b of the cones.
    behind : array (3, k) of int
        Rows that two others bound: the slack of the first is at most a geometric mean of the
        other two, as behind the head of a second-order cone (taken twice), off the diagonal of a
        positive semidefinite block (up to the factor), or last in a power cone.
    factor : array (2, k)
        1, or the root of 2 that scales entries off a diagonal; and the weight of the second row
        in the mean.
    """

    def __init__(
        self, A: Any, low: Floats, high: Floats, side: Floats, behind: Any, factor: Floats
    ) -> None:
        self.A: Any = A if A.format == "csr" else sp.csr_array(A)
        self.low, self.high = low, high
        self.side, self.behind, self.factor = side, behind, factor

    def below(self, more: Any, high: Floats) -> Rows:
        """Return the rows and more, of linear functions that are at most ``high``."""
        A = sp.csr_array(sp.vstack([self.A, sp.csr_array(more)]))
        low = np.append(self.low, np.full(high.size, -np.inf))
        sides = np.append(self.side, np.zeros(high.size))
        return Rows(A, low, np.append(self.high, high), sides, self.behind, self.factor)

    def bounded_behind(self, least: Floats, shut: Any) -> bool:
        r"""Tighten the rows behind others, from the least activities; whether any got tighter.

        Parameters
        ----------
        least : array (m,)
            Floats below :math:`\min a^T x`.
        shut : array (m,) of bool
            Where it is finite.
        """
        row, first, second = self.behind
        known = shut[first] & shut[second]
        if not known.any():
            return False
        row, first, second = row[known], first[known], second[known]
        most = [
            np.maximum(self.side[k] - least[k], 0.0) * (1.0 + 4.0 * UNIT) for k in (first, second)
        ]
        most = [
            m + 4.0 * UNIT * np.abs(least[k]) for m, k in zip(most, (first, second), strict=True)
        ]
        factor, weight = self.factor[:, known]
        mean = most[0] ** weight * most[1] ** (1.0 - weight) * (1.0 + 1024.0 * UNIT)
        reach = factor * mean * (1.0 + 16.0 * UNIT)
        reach += 4.0 * UNIT * np.abs(self.side[row]) + 1e-300
        high, low = self.side[row] + reach, self.side[row] - reach
        better = (high < self.high[row]) | (low > self.low[row])
        self.high[row] = np.fmin(self.high[row], high)
        self.low[row] = np.fmax(self.low[row], low)
        return bool(better.any())


@dataclass(frozen=True, eq=False)
class Rooted:
    r"""A quadratic form that rows state by a rounded root of its matrix.

    .. math:: w^T P w \ge \lVert F w \rVert^2 - \sum_j d_j w_j^2

    The rows have :math:`\lVert F w \rVert^2 - s`, and one of them says :math:`s = 0`. With
    :math:`s = \sum_j d_j B_j^2` instead, they hold wherever the form does and :math:`|w_j| \le B_j`.

    Attributes
    ----------
    column : int
        That of s.
    own : slice
        Columns of w.
    share : array (k,)
        d; all 0 where :math:`F^T F \preceq P` is proved.
    matrix : sparse csr (k, k)
        P.
    """

    column: int
    own: slice
    share: Floats
    matrix: Any

    @property
    def charged(self) -> NDArray[np.bool_]:
        """The columns by which the shortfall is measured."""
        return np.asarray((self.share > 0.0) & np.isfinite(self.share))

    def in_units(self, columns: Floats) -> Rooted:
        """Return the same for columns that are multiplied by powers of two."""
        units = columns[self.own]
        share = self.share * units * units / columns[self.column]
        share = np.where(self.share > 0.0, share + 1e-300, share)
        across = sp.diags_array(units)
        return replace(self, share=share, matrix=sp.csr_array(across @ self.matrix @ across))


def root_excess(P: Any, F: Any) -> Floats:
    r"""Return d with :math:`F^T F \preceq P + \operatorname{diag}(d)`, by the sums of its rows in their units.

    With :math:`E = F^T F - P` and any :math:`u > 0`,

    .. math::
        w^T E w \le \sum_{ij} |E_{ij}| \tfrac12 \Bigl(\frac{u_i}{u_j} w_i^2 + \frac{u_j}{u_i} w_j^2\Bigr)
        = \sum_i w_i^2\, u_i \sum_j |E_{ij}| / u_j

    Parameters
    ----------
    P : sparse or dense (n, n)
        Symmetric floats.
    F : sparse or dense (k, n)
        Floats.

    Examples
    --------
    >>> bool(root_excess(np.ones((2, 2)), np.ones((1, 2))).max() < 1e-14)
    True
    >>> bool(root_excess(np.zeros((1, 1)), np.ones((1, 1)))[0] >= 1.0)
    True
    """
    k, sizes = F.shape[0], abs(F)
    units = np.sqrt(np.maximum(P.diagonal(), 0.0))
    largest = abs(sp.csr_array(P)).max(axis=1).toarray().ravel()
    most = units.max(initial=0.0) or 1.0
    units = np.where(units > 0.0, units, np.where(largest > 0.0, largest / most, most))
    with np.errstate(all="ignore"):
        per = 1.0 / units
        off = abs(P - F.T @ F) @ per + gamma(k + 4.0) * (sizes.T @ (sizes @ per))
        d = units * (off + (k + 4.0) * LOST * float(per.sum())) * (1.0 + 1e-9) + LOST
    return np.where(np.isnan(d), np.inf, d)  # units may have left the range of floats


def zeroing_rows(form: ConicForm) -> tuple[Any, Any, Floats]:
    """Return the rows that say of forms with rounded roots that s = 0, with the columns and entries of s."""
    rows, columns = form.rows, [r.column for r in form.rounded]
    if columns and not rows.data.all():
        rows = rows.copy()
        rows.eliminate_zeros()
    single = np.flatnonzero((np.diff(rows.indptr) == 1) & (form.equal | form.nonnegative))
    at = rows.indptr[single]
    here = np.isin(rows.indices[at], columns)
    return single[here], rows.indices[at[here]], rows.data[at[here]]


def linear_rows(form: ConicForm) -> Rows:
    """Return the rows of the zero and nonnegative cones, and the heads of the others.

    The first entry of a second-order cone, the diagonal of a positive semidefinite block, the
    last two of an exponential cone and the first two of a power cone are nonnegative.
    """
    m = form.b.size
    low, high = np.full(m, -np.inf), np.full(m, np.inf)
    behind, factors = [np.zeros((3, 0), dtype=int)], [np.zeros((2, 0))]
    for c in form.cones:
        at = slice(c.start, c.stop)
        if c.kind in ("zero", "nonneg"):
            high[at] = form.b[at]
            if c.kind == "zero":
                low[at] = form.b[at]
            continue
        if c.kind == "soc":
            continue
        where = np.arange(c.start, c.stop)
        if c.kind == "psd":
            on = where[c.diagonal]
            if c.root != 1.0:
                some = ~c.diagonal & (np.diff(form.rows.indptr[c.start : c.stop + 1]) > 0)
                off, (i, j) = where[some], (on[k[some]] for k in c.places)  # others bound nothing
                behind.append(np.array([off, i, j]))
                factors.append(np.tile([[2.0 / c.root], [0.5]], off.size))
            where = on
        elif c.kind == "exp":
            where = where.reshape(-1, 3)[:, 1:].ravel()
        else:
            behind.append(where[[2, 0, 1]][:, None])
            factors.append(np.array([[1.0], [c.power]]))
            where = where[:2]
        high[where] = form.b[where]
    if curved := SecondOrder.of(form.cones):
        high[curved.heads] = form.b[curved.heads]
        heads, tails = curved.pairs
        behind.append(np.array([tails, heads, heads]))
        factors.append(np.tile([[1.0], [0.5]], tails.size))
    return Rows(
        form.rows,
        low,
        high,
        form.b,
        np.concatenate(behind, axis=1),
        np.concatenate(factors, axis=1),
    )


def rotated_rows(form: ConicForm, *, shorter: bool = True) -> tuple[Any, Floats]:
    r"""Return rows in which a column of a second-order cone cancels, and their upper sides.

    Of :math:`s_0 \ge |s_k|` follow :math:`s_0 \pm s_k \ge 0`. In rotated cones, such as
    :math:`u + v \ge \lVert (u - v, 2 w) \rVert`, these are the signs of u and v. Only sums that are
    exact count. If not only shorter ones are asked for, those without a column that cancels are there, too.
    """
    head, tail = SecondOrder.of(form.cones).pairs
    if not head.size:
        return form.rows[:0], np.zeros(0)
    if shorter:
        both = np.diff(form.rows[head].multiply(form.rows[tail]).tocsr().indptr) > 0
        head, tail = head[both], tail[both]  # in others no column can cancel
    H, T = form.rows[head], form.rows[tail]
    entries = (abs(H) + abs(T)).count_nonzero(axis=1) + (not shorter)
    rows, sides = [], []
    for sign in (1.0, -1.0):
        whole = H + sign * T
        part = whole - H
        lost = abs(H - (whole - part)) + abs(sign * T - part)
        exact = (lost.count_nonzero(axis=1) == 0) & (whole.count_nonzero(axis=1) < entries)
        rows.append(whole[np.flatnonzero(exact)])
        side = form.b[head] + sign * form.b[tail]
        sides.append(np.nextafter(side, np.inf)[exact])
    rows_of = sp.csr_array(sp.vstack(rows))
    rows_of.eliminate_zeros()
    return rows_of, np.concatenate(sides)


# Rounds in which limits that hold each other are looked for, those of them in which such may grow,
# and by what; the share of itself that each must imply; how far out the first are; and after how many
# rounds all are so much farther out, where what is fixed counts for less. Rounds in which those that
# hold come nearer.
CIRCLES, GROWING, GROWN, BELOW, OUT, FARTHER = 40, 24, 1.002, 0.999, 4.0, 6
NEARER = 10


@np.errstate(over="ignore", invalid="ignore")
def mutual_bounds(rows: Rows, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    r"""Return bounds of columns that rows bound by each other, as in :math:`y \le (w + t)/2,\ w \le (y + r)/2`.

    Let rows say :math:`v_i \le c_i + \sum_k A_{ik} v_k` with :math:`A, c \ge 0`, for columns and
    their negatives that nothing bounds yet, and :math:`V > 0` with :math:`c + A V < V`. At a point
    with :math:`s = \max_i v_i / V_i > 1` it would be :math:`v \le s (c + A V) < s V`; so
    :math:`v \le V` at every point that obeys the rows.

    Parameters
    ----------
    rows : Rows
        What holds; of rows behind others nothing is made.
    lower, upper : array (n,)
        Bounds known so far; they are not changed.

    Examples
    --------
    >>> A = sp.csr_array([[1.0, -0.5], [-0.5, 1.0]])  # v <= 1 + w / 2, w <= 1 + v / 2
    >>> high, nothing = np.ones(2), np.zeros((3, 0), dtype=int)
    >>> circle = Rows(A, -high * np.inf, high, high, nothing, np.zeros((2, 0)))
    >>> upper = mutual_bounds(circle, np.zeros(2), np.full(2, np.inf))[1]
    >>> bool((upper >= 2.0).all()), bool(np.isfinite(upper).all())
    (True, True)
    """
    n, (row, column, entry) = lower.size, coordinates(rows.A)
    used = entry != 0.0
    row, column, entry = row[used].astype(np.intp), column[used].astype(np.intp), entry[used]
    known = np.append(-lower, upper)  # of the negatives of columns, then of the columns
    far = OUT * max(1.0, float(np.abs(known[np.isfinite(known)]).max(initial=0.0)))
    open_ones = np.isinf(known) & (np.bincount(column, minlength=n)[np.arange(2 * n) % n] > 0)
    limit = np.where(open_ones, far, known)
    if not _shortened(rows, (row, column, entry), known, open_ones):
        return lower, upper
    for tried in range(CIRCLES):
        if not open_ones.any():
            break
        least = _limits_of(rows, (row, column, entry), limit, open_ones)
        over = open_ones & ~(least <= BELOW * limit)
        if not over.any():
            for _ in range(NEARER):  # what holds V holds c + A V
                before, limit = limit, np.where(open_ones, np.minimum(limit, least), limit)
                if (limit >= (1.0 - GAIN) * before)[open_ones].all():
                    break
                least = _limits_of(rows, (row, column, entry), limit, open_ones)
            return np.maximum(lower, -limit[:n]), np.minimum(upper, limit[n:])
        grown = GROWN / BELOW * least
        lost = over & ((tried >= GROWING) | ~(grown < NONE))
        limit = np.where(lost, np.inf, np.where(over, np.maximum(limit, grown), limit))
        open_ones = open_ones & ~lost
        if tried % FARTHER == FARTHER - 1:
            limit = np.where(open_ones, 2.0 * OUT * limit, limit)
    return lower, upper


def _shortened(rows: Rows, entries: Any, known: Floats, open_ones: Any) -> bool:
    r"""Whether A shortens any of limits that are equal; where it shortens none, it shortens no others.

    If :math:`A V \ge V > 0` and :math:`A W < W`, at the largest s of :math:`s_i = V_i / W_i` it is
    :math:`V_i \le (A V)_i \le s (A W)_i < s W_i = V_i`. Of fewer columns fewer rows say anything.
    """
    low, high = (np.where(np.isfinite(side), 0.0, side) for side in (rows.low, rows.high))
    bare = Rows(rows.A, low, high, rows.side, rows.behind, rows.factor)
    equal = np.where(open_ones, 1.0, np.where(np.isfinite(known), 0.0, known))
    return bool((_limits_of(bare, entries, equal, open_ones)[open_ones] < 1.0).any())


def _limits_of(rows: Rows, entries: Any, limit: Floats, open_ones: Any) -> Floats:
    """Return c + A V by the least of the rows, rounded up, infinite where no row says anything."""
    row, column, entry = entries
    m, n = rows.A.shape
    least = np.full(2 * n, np.inf)
    share = gamma(2.0 * np.bincount(row, minlength=m) + 8.0) * (1.0 + 8.0 * UNIT)
    for sign, side in ((1.0, rows.high), (-1.0, -rows.low)):
        stated = np.isfinite(side)
        at = np.flatnonzero(stated[row])
        own, a = row[at], sign * entry[at]
        # the least activity is that of columns at lower bounds, and of others at upper ones
        met = np.where(a > 0.0, column[at], column[at] + n)
        part = np.abs(a) * limit[met]  # is taken off
        free, circular = ~np.isfinite(part), open_ones[met]
        fixed = np.where(free | circular, 0.0, part)
        grown = np.where(circular & ~free, part, 0.0)
        totals = [np.bincount(own, v, m)[own] for v in (free, fixed, grown)]
        off = share[own] * (np.bincount(own, np.abs(fixed), m)[own] + totals[2]) + 1e-300
        rest = side[own] + (totals[1] - fixed) + 2.0 * off + 8.0 * UNIT * np.abs(side[own])
        rest = np.maximum(rest, 0.0) + (totals[2] - grown) + 2.0 * off
        most = rest / np.abs(a) * (1.0 + 8.0 * UNIT) + LOST
        ok = (totals[0] == free) & ~np.isnan(most)
        bounded = np.where(a > 0.0, column[at] + n, column[at])
        np.minimum.at(least, bounded[ok], most[ok])
    return least


def declared_bounds(rows: Rows) -> tuple[Floats, Floats]:
    """Return the bounds that rows of one entry state, rounded outward."""
    lower, upper, _ = _declared(rows)
    return lower, upper


def declared_steps(rows: Rows) -> Any:
    """Return where the bounds come from that rows of one entry state, as an entry of a trace."""
    return _declared(rows)[2]


def _declared(rows: Rows) -> tuple[Floats, Floats, Any]:
    n = rows.A.shape[1]
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    before = lower.copy(), upper.copy()
    single = np.flatnonzero(np.diff(rows.A.indptr) == 1)
    at = rows.A.indptr[single]
    single, at = single[rows.A.data[at] != 0.0], at[rows.A.data[at] != 0.0]
    row, column = np.tile(single, 2), np.tile(rows.A.indices[at], 2)
    entry = np.concatenate([rows.A.data[at], -rows.A.data[at]])
    side = np.concatenate([rows.high[single], -rows.low[single]])
    stated = np.isfinite(side)
    row, column = row[stated], column[stated]
    ends = tighten(lower, upper, column, entry[stated], side[stated])
    return lower, upper, _gains(row, column, ends, before, (lower, upper))


def _gains(row: Any, column: Any, ends: Any, before: Any, now: Any) -> Any:
    """Return (rows, columns, sides, values) of the bounds that got tighter, each from one row.

    Side 0 is a lower bound, 1 an upper one.
    """
    parts = []
    for side, (end, old, new) in enumerate(zip(ends, before, now, strict=True)):
        here = np.flatnonzero((end == new[column]) & (new[column] != old[column]))
        here = here[np.unique(column[here], return_index=True)[1]]
        parts.append((row[here], column[here], np.full(here.size, side), new[column[here]]))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def tighten(
    lower: Floats, upper: Floats, column: Any, entry: Floats, side: Floats
) -> tuple[Floats, Floats]:
    """Apply ``entry x[column] <= side`` to the bounds, rounded outward; return its ends."""
    positive = entry > 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        end = side / entry
        ulp = 2.0 * UNIT * np.abs(end) + LOST  # or more
        outward = end + np.where(positive, ulp, -ulp)
    end = np.where(np.abs(entry) == 1.0, end, outward)
    known = ~np.isnan(end)
    above = np.where(positive & known, end, np.inf)
    below = np.where(known & ~positive, end, -np.inf)
    nearer = np.flatnonzero(above < upper[column])
    np.minimum.at(upper, column[nearer], above[nearer])
    nearer = np.flatnonzero(below > lower[column])
    np.maximum.at(lower, column[nearer], below[nearer])
    return below, above


@np.errstate(over="ignore", invalid="ignore")
def propagated(
    rows: Rows,
    lower: Floats,
    upper: Floats,
    wanted: Any,
    rounds: int = ROUNDS,
    trace: Trace | None = None,
) -> tuple[Floats, Floats]:
    r"""Return bounds that rows imply, by the activities of their other columns.

    .. math::
        a_j x_j \le u - \min_{x \in [l, u]} \sum_{k \ne j} a_k x_k

    Every step is rounded outward. It ends when every wanted column has its bound, or `IDLE` passes
    have given no column one.

    Parameters
    ----------
    rows : Rows
        What holds.
    lower, upper : array (n,)
        Bounds known so far; they are not changed.
    wanted : callable
        Bounds -> whether they suffice.
    rounds : int
        Most passes.
    trace : list, optional
        Gets (rows, columns, sides, values) of the bounds that each step found together; column
        -1 for sides of rows behind others.
    """
    lower, upper = lower.copy(), upper.copy()
    m = rows.A.shape[0]
    row, column, entry = coordinates(rows.A)
    every = row.astype(np.intp), column.astype(np.intp), entry
    if not rows.A.data.all():
        every = tuple(part[rows.A.data != 0.0] for part in every)
    length = np.bincount(every[0], minlength=m)
    off_share = gamma(2.0 * length + 8.0) * (1.0 + 8.0 * UNIT)
    due = np.ones(m, dtype=bool)  # rows of which a column has changed
    missing: list[int] = []  # bounds that are not there, before each pass
    for tried in range(rounds):
        none = np.isinf(lower), np.isinf(upper)
        missing.append(int(none[0].sum() + none[1].sum()))
        idle = len(missing) > IDLE and missing[-1] == missing[-1 - IDLE]
        if idle or not due.any() or wanted(lower, upper):
            break
        before = lower.copy(), upper.copy()
        linked = False
        # with two columns free on both sides a row says nothing, whatever their signs
        nowhere = none[0] & none[1]
        known = due
        if nowhere.any():
            known = due & (np.bincount(every[0], nowhere[every[1]], m) < 2.0)
        if tried == 0 and not rows.behind.size:
            alone = length == 1  # nothing else bounds their column
        elif tried == 1 and not rows.behind.size:
            every = tuple(part[~alone[every[0]]] for part in every)
        looked_at = _within(known, every)
        for sign in (1.0, -1.0):
            side = rows.high if sign > 0 else -rows.low
            stated = known & np.isfinite(side)
            row, column, entry = _within(stated, looked_at)
            a = sign * entry
            part = a * np.where(a > 0.0, lower[column], upper[column])
            free = ~np.isfinite(part)
            some = bool(free.any())
            open_ones = np.bincount(row, free, m) if some else np.zeros(m)
            part = np.where(free, 0.0, part) if some else part
            total = np.bincount(row, part, m)
            off = off_share * np.bincount(row, np.abs(part), m) + 1e-300
            if sign > 0 and rows.behind.size:
                shut = (open_ones == 0) & stated
                sides = rows.low.copy(), rows.high.copy()
                linked = rows.bounded_behind(total - off, shut)
                if trace is not None and linked:
                    changed = [
                        np.flatnonzero(a != b)
                        for a, b in zip(sides, (rows.low, rows.high), strict=True)
                    ]
                    which = np.repeat([0, 1], [c.size for c in changed])
                    values = np.concatenate([rows.low[changed[0]], rows.high[changed[1]]])
                    nothing = np.full(which.size, -1)
                    trace.append((np.concatenate(changed), nothing, which, values))
            if some:  # the activity of the others: nothing open but the column itself
                ok = np.flatnonzero(open_ones[row] == free)
                row, column, a, part = row[ok], column[ok], a[ok], part[ok]
            spare = 2.0 * off + 8.0 * UNIT * np.abs(side)
            slack = side[row] - (total[row] - part) + spare[row]
            old = (lower.copy(), upper.copy()) if trace is not None else before
            ends = tighten(lower, upper, column, a, slack)
            upper[upper >= NONE], lower[lower <= -NONE] = np.inf, -np.inf
            if trace is not None:
                trace.append(_gains(row, column, ends, old, (lower, upper)))
        crossed = lower > upper
        if crossed.any():  # no point at all: any bounds do, and these are near
            lower[crossed], upper[crossed] = before[0][crossed], before[1][crossed]
        gained = _gained(before, (lower, upper))
        due = np.zeros(m, dtype=bool)
        due[every[0][gained[every[1]]]] = True
        if linked or (gained.any() and rows.behind.size):
            due[:] = True  # a row behind others is bounded by both of them
    return lower, upper


def _within(rows: NDArray[np.bool_], entries: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the entries of some rows."""
    here = np.flatnonzero(rows[entries[0]])
    return entries if here.size == entries[0].size else tuple(part[here] for part in entries)


def proved_floor(form: ConicForm) -> Floats:
    r"""Return :math:`\mu \ge 0` with :math:`P \succeq \operatorname{diag}(\mu)`, 0 where none is proved."""
    floor = form.curvature.floor
    known = form.curvature.shift == 0.0 and floor is not None
    return np.asarray(floor) if known else np.zeros(form.q.size)


def spare_of(form: ConicForm, upper: float) -> float:
    r"""Return what an upper bound of the objective leaves to linear and to curved columns together.

    .. math::
        \sum_{\mu_j = 0} q_j y_j + \sum_{\mu_j > 0} \tfrac12 \mu_j (y_j + q_j / \mu_j)^2
        \le u - c + \sum_{\mu_j > 0} q_j^2 / 2 \mu_j
    """
    side = np.nextafter(upper - form.offset, np.inf)
    side += 4.0 * UNIT * (abs(upper) + abs(form.offset))
    floor = proved_floor(form)
    at = floor > 0.0
    with np.errstate(over="ignore"):
        size = np.abs(form.q[at])  # a square may underflow where the quotient does not
        own = float((size * (size / (2.0 * floor[at]))).sum()) * (1.0 + 1e-9)
    return float(np.nextafter(side + (own + 1e-300 if at.any() else 0.0), np.inf))


def with_cut(form: ConicForm, rows: Rows, upper: float) -> Rows:
    """Add the row that the objective is at most a known value, as far as it is linear."""
    if not np.isfinite(upper) or form.curvature.shift != 0.0:  # without one, curvature only adds
        return rows
    cost = np.where(proved_floor(form) > 0.0, 0.0, form.q)
    return rows.below(cost[None, :], np.array([spare_of(form, upper)])) if cost.any() else rows


# Share of an objective that curvature may cost within bounds that only rows imply.
BENT = 1e-8


def bent(form: ConicForm, x: Floats, low: Floats, high: Floats) -> tuple[float, NDArray[np.bool_]]:
    """Return what a shift of P costs within bounds, and the columns that need it and have none."""
    shift, shifted = form.curvature.shift, form.curvature.shifted
    at = np.diff(sp.csc_array(form.P).indptr) > 0
    at &= True if shifted is None else shifted

    def suffice(low: Floats, high: Floats) -> bool:
        return bool(np.isfinite(low[at]).all() and np.isfinite(high[at]).all())

    implied = propagated(linear_rows(form), low, high, suffice)
    ends = form.column_bounds, implied
    far, near = (np.maximum(np.abs(b - x), np.abs(a - x)) for a, b in ends)
    own = BENT * max(form.unit, abs(form.objective(x))) / max(1.0, float(at.sum()))
    far = np.where(0.5 * shift * np.square(near) <= own, np.minimum(far, near), far)
    boxed = at & np.isfinite(far)
    return 0.5 * shift * float(np.square(far[boxed]).sum()) * (1.0 + 1e-9), at & ~boxed


def _gained(before: tuple[Floats, Floats], now: tuple[Floats, Floats]) -> NDArray[np.bool_]:
    """Return the columns that a pass gave a bound, or moved one by a share worth another pass."""
    gained = np.zeros(now[0].size, dtype=bool)
    for old, new in zip(before, now, strict=True):
        at = np.flatnonzero(new != old)
        size = np.where(np.isfinite(old[at]), np.abs(old[at]), 0.0)
        gained[at] |= np.abs(new[at] - old[at]) > GAIN * (1.0 + size)
    return gained
