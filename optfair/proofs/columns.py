"""Bounds on the columns of a cone program that every feasible point obeys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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
Entries = tuple[Any, Any, Any, Floats]

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

    @property
    def sides(self) -> Floats:
        """The right-hand sides of `inequalities`."""
        return np.append(self.high, -self.low)

    @cached_property
    def inequalities(self) -> Inequalities:
        """The sides of rows as upper bounds of columns and of their negatives.

        Rows of one entry, which bound a column once and for all, are none, unless others are behind.
        """
        length = np.diff(self.A.indptr)
        return Inequalities.of(self.A, np.flatnonzero((length > 1) | bool(self.behind.size)))

    @cached_property
    def single(self) -> tuple[Any, Any, Floats]:
        """The lines of one entry, the places of v that they bound, and the sizes of their entries."""
        alone = np.flatnonzero(np.diff(self.A.indptr) == 1)
        entry = self.A.data[self.A.indptr[alone]]
        alone, entry = alone[entry != 0.0], entry[entry != 0.0]
        (m, n), on = self.A.shape, self.A.indices[self.A.indptr[alone]].astype(np.intp)
        above = on + n * (entry > 0.0)
        bounded = np.concatenate([above, 2 * on + n - above])
        return np.concatenate([alone, alone + m]), bounded, np.tile(np.abs(entry), 2)

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
class Inequalities:
    r"""Rows as bounds of columns and of their negatives by the others, :math:`v = (-x, x)`.

    .. math::
        a^T x \le u \quad\Leftrightarrow\quad
        |a_j| v_{b_j} \le u + \sum_{k \ne j} |a_k| v_{m_k}

    Line i is that of the upper side of row i, i + m of the lower one.

    Attributes
    ----------
    line : array (k,) of int
        That of each inequality.
    row, met, bounded : array of int
        Of each entry: its inequality, and the places in v that it meets and that it bounds.
    size : array
        Its absolute value; no zeros.
    share : array (k,)
        What is lost by rounding of their sums, as a share of the sum of sizes.
    meets, count : sparse csr (k, 2 n)
        :math:`|a_k|` and 1 at :math:`m_k`.
    """

    line: Any
    row: Any
    met: Any
    bounded: Any
    size: Floats
    share: Floats
    meets: Any
    count: Any

    @classmethod
    def of(cls, A: Any, which: Any) -> Inequalities:
        """Return those of some rows of a csr matrix."""
        if not A.data.all():
            A = A.copy()
            A.eliminate_zeros()
        m, n = A.shape
        A = A if which.size == m else A[which]
        length = np.diff(A.indptr)
        row, column, entry = coordinates(A)
        row, column, above = row.astype(np.intp), column.astype(np.intp), n * (entry > 0.0)
        below, above = column + (n - above), column + above
        met, size = np.concatenate([below, above]), np.tile(np.abs(entry), 2)
        start, shape = np.append(A.indptr, A.indptr[1:] + A.nnz), (2 * which.size, 2 * n)
        return cls(
            np.concatenate([which, which + m]),
            np.concatenate([row, row + which.size]),
            met,
            np.concatenate([above, below]),
            size,
            np.tile(gamma(2.0 * length + 8.0) * (1.0 + 8.0 * UNIT), 2),
            sp.csr_array((size, met, start), shape=shape),
            sp.csr_array((np.ones(met.size), met, start), shape=shape),
        )

    @property
    def entries(self) -> Entries:
        """The row, met and bounded places and size of each entry."""
        return self.row, self.met, self.bounded, self.size


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
    n, all_of = lower.size, rows.inequalities
    known = np.append(-lower, upper)
    _by_single(rows, known)
    far = OUT * max(1.0, float(np.abs(known[np.isfinite(known)]).max(initial=0.0)))
    open_ones = np.isinf(known) & (np.bincount(all_of.met, minlength=2 * n) > 0)
    open_ones &= np.bincount(all_of.bounded, minlength=2 * n) > 0
    limit = np.where(open_ones, far, known)
    if not _shortened(rows, known, open_ones):
        return lower, upper
    for tried in range(CIRCLES):
        if not open_ones.any():
            break
        least = _limits_of(rows, limit, open_ones)
        over = open_ones & ~(least <= BELOW * limit)
        if not over.any():
            for _ in range(NEARER):  # what holds V holds c + A V
                before, limit = limit, np.where(open_ones, np.minimum(limit, least), limit)
                if (limit >= (1.0 - GAIN) * before)[open_ones].all():
                    break
                least = _limits_of(rows, limit, open_ones)
            return np.maximum(lower, -limit[:n]), np.minimum(upper, limit[n:])
        grown = GROWN / BELOW * least
        lost = over & ((tried >= GROWING) | ~(grown < NONE))
        limit = np.where(lost, np.inf, np.where(over, np.maximum(limit, grown), limit))
        open_ones = open_ones & ~lost
        if tried % FARTHER == FARTHER - 1:
            limit = np.where(open_ones, 2.0 * OUT * limit, limit)
    return lower, upper


def _shortened(rows: Rows, known: Floats, open_ones: Any) -> bool:
    r"""Whether A shortens any of limits that are equal; where it shortens none, it shortens no others.

    If :math:`A V \ge V > 0` and :math:`A W < W`, at the largest s of :math:`s_i = V_i / W_i` it is
    :math:`V_i \le (A V)_i \le s (A W)_i < s W_i = V_i`. Of fewer columns fewer rows say anything.
    """
    low, high = (np.where(np.isfinite(side), 0.0, side) for side in (rows.low, rows.high))
    bare = Rows(rows.A, low, high, rows.side, rows.behind, rows.factor)
    equal = np.where(open_ones, 1.0, np.where(np.isfinite(known), 0.0, known))
    return bool((_limits_of(bare, equal, open_ones)[open_ones] < 1.0).any())


def _limits_of(rows: Rows, limit: Floats, open_ones: Any) -> Floats:
    """Return c + A V by the least of the rows, rounded up, infinite where no row says anything."""
    least = np.full(limit.size, np.inf)
    every = rows.inequalities
    side, share, m = rows.sides[every.line], every.share, every.share.size
    row, met, bounded, size = _within(np.isfinite(side), every.entries)
    part = size * limit[met]
    free, circular = ~np.isfinite(part), open_ones[met]
    fixed = np.where(free | circular, 0.0, part)
    grown = np.where(circular & ~free, part, 0.0)
    totals = [np.bincount(row, v, m)[row] for v in (free, fixed, grown)]
    off = share[row] * (np.bincount(row, np.abs(fixed), m)[row] + totals[2]) + 1e-300
    rest = side[row] + (totals[1] - fixed) + 2.0 * off + 8.0 * UNIT * np.abs(side[row])
    rest = np.maximum(rest, 0.0) + (totals[2] - grown) + 2.0 * off
    most = rest / size * (1.0 + 8.0 * UNIT) + LOST
    ok = (totals[0] == free) & ~np.isnan(most)
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
    limit = np.full(2 * n, np.inf)
    gains = _by_single(rows, limit)
    return -limit[:n], limit[n:], gains


def _by_single(rows: Rows, limit: Floats) -> Any:
    """Tighten limits by lines of one entry; return the gains."""
    (line, bounded, size), before = rows.single, limit.copy()
    ends = tighten(limit, bounded, size, rows.sides[line])
    return _gains(line % rows.low.size, bounded, ends, before, limit)


def _gains(row: Any, bounded: Any, ends: Floats, before: Floats, limit: Floats) -> Any:
    """Return (rows, columns, sides, values) of the bounds that got tighter, each from one row.

    Side 0 is a lower bound, 1 an upper one.
    """
    here = np.flatnonzero((ends == limit[bounded]) & (limit[bounded] != before[bounded]))
    here = here[np.unique(bounded[here], return_index=True)[1]]
    n, at = limit.size // 2, np.asarray(bounded[here])
    side = (at >= n).astype(int)
    return row[here], at % n, side, np.where(side == 1, limit[at], -limit[at])


def tighten(limit: Floats, bounded: Any, size: Floats, side: Floats) -> Floats:
    """Apply ``size v[bounded] <= side`` to limits of v, rounded up; return each one's end."""
    with np.errstate(over="ignore", invalid="ignore"):
        end = side / size
        end = np.where(size == 1.0, end, end + (2.0 * UNIT * np.abs(end) + LOST))  # or more
    nearer = np.flatnonzero(end < limit[bounded])
    np.minimum.at(limit, bounded[nearer], end[nearer])
    return end


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
    if wanted(lower, upper):
        return lower, upper
    n, every = lower.size, rows.inequalities
    limit = np.append(-lower, upper)
    missing: list[int] = []  # bounds that are not there, before each pass

    def step(row: Any, bounded: Any, size: Floats, side: Floats) -> Floats:
        """Tighten the limits by inequalities, and return what they were."""
        before = limit.copy()
        ends = tighten(limit, bounded, size, side)
        limit[limit >= NONE] = np.inf
        if trace is not None:
            trace.append(_gains(row % rows.low.size, bounded, ends, before, limit))
        crossed = -limit[:n] > limit[n:]
        if crossed.any():  # no point at all: any bounds do, and these are near
            both = np.tile(crossed, 2)
            limit[both] = before[both]
        return before

    due = np.ones(every.line.size, dtype=bool)  # inequalities of which something they meet changed
    for tried in range(rounds):
        missing.append(int(np.isinf(limit).sum()))
        idle = len(missing) > IDLE and missing[-1] == missing[-1 - IDLE]
        if idle or (tried and (not due.any() or wanted(-limit[:n], limit[n:]))):
            break
        if not (tried or rows.behind.size):
            line, bounded, size = rows.single
            step(line, bounded, size, rows.sides[line])
        absent = np.isinf(limit)
        finite = np.where(absent, 0.0, limit)
        open_ones = every.count @ absent.astype(float)
        total = every.meets @ finite
        total[~np.isfinite(total)] = np.inf  # says nothing
        off = every.share * (every.meets @ np.abs(finite)) + 1e-300
        linked = False
        if rows.behind.size:
            linked = _bounded_behind(rows, -total - off, due & (open_ones == 0.0), trace)
        # with two places open an inequality says nothing
        side = rows.sides[every.line]
        says = due & (open_ones < 2.0) & (side < np.inf)
        row, met, bounded, size = _within(says, every.entries)
        if open_ones.any():  # the activity of the others: nothing open but the column itself
            own = np.flatnonzero(open_ones[row] == absent[met])
            row, met, bounded, size = row[own], met[own], bounded[own], size[own]
        slack = side + (2.0 * off + 8.0 * UNIT * np.abs(side))
        slack = slack[row] + (total[row] - size * finite[met])
        gained = _gained(step(every.line[row], bounded, size, slack), limit)
        due = every.count @ gained.astype(float) > 0.0
        if rows.behind.size and (linked or gained.any()):
            due[:] = True  # a row behind others is bounded by both of them
    return -limit[:n], limit[n:]


def _bounded_behind(rows: Rows, least: Floats, shut: Any, trace: Trace | None) -> bool:
    """Tighten the rows behind others, from the least activities; whether any got tighter."""
    sides, m = (rows.low.copy(), rows.high.copy()), rows.low.size
    linked = rows.bounded_behind(least[:m], shut[:m] & np.isfinite(rows.high))
    if trace is not None and linked:
        now = rows.low, rows.high
        changed = [np.flatnonzero(a != b) for a, b in zip(sides, now, strict=True)]
        which = np.repeat([0, 1], [c.size for c in changed])
        values = np.concatenate([own[at] for own, at in zip(now, changed, strict=True)])
        trace.append((np.concatenate(changed), np.full(which.size, -1), which, values))
    return linked


def _within(some: NDArray[np.bool_], entries: Entries) -> Entries:
    """Return the entries of some inequalities."""
    row, met, bounded, size = entries
    here = np.flatnonzero(some[row])
    return entries if here.size == row.size else (row[here], met[here], bounded[here], size[here])


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


def _gained(before: Floats, limit: Floats) -> NDArray[np.bool_]:
    """Return what a pass gave a limit, or moved by a share worth another pass."""
    gained = np.zeros(limit.size, dtype=bool)
    at = np.flatnonzero(limit != before)
    size = np.where(np.isfinite(before[at]), np.abs(before[at]), 0.0)
    gained[at] = np.abs(limit[at] - before[at]) > GAIN * (1.0 + size)
    return gained
