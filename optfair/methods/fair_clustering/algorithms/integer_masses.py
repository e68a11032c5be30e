"""Whole numbers of rows per group and cluster: rules on them, and rows of which only few are told apart."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.linear_program import row_scale, solve_linear_program
from optfair.methods.fair_clustering.algorithms.costs import CostRows, SeparableCost
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.pricing import (
    Box,
    box_for,
    label_masses,
    label_sums,
    lowered,
    price,
)
from optfair.rows.sources import Chunk
from optfair.rows.survey import Survey

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

# Relative violation of a rule that is rounding, with what sums of weights round away.
ROUNDING = 4e-9
# The same of counts that are sought: labels with them must not miss a rule by more than rounding.
SOUGHT = 5e-10
# How far from an integer a count is fractional, and rounds of tightening.
FRACTION, ROUNDS = 1e-6, 8
# Relative difference of weights that are equal.
EQUAL = 1e-9


def whole_rows(groups: Integers, weights: Floats, count: int) -> tuple[Floats, Floats] | None:
    """Return the weight of a row in each group and how many there are (G,).

    None where rows of a group weigh differently; rows of weight 0 do not count.
    """
    held = weights > 0.0
    groups, weights = groups[held], weights[held]
    rows = np.bincount(groups, minlength=count).astype(float)
    least, most = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(least, groups, weights)
    np.maximum.at(most, groups, weights)
    if not rows.all() or (most - least > EQUAL * most).any():
        return None
    return np.bincount(groups, weights, count) / rows, rows


class WholeCounts:
    r"""Whole numbers of rows :math:`N_{gk}` whose masses :math:`w_g N_{gk}` obey the rules.

    Parameters
    ----------
    program : MassProgram
        Polyhedral rules.
    unit, counts : arrays (G,)
        Weight of a row in each group, and how many there are; see `whole_rows`.
    """

    def __init__(self, program: MassProgram, unit: Floats, counts: Floats) -> None:
        self.program, self.unit, self.counts = program, unit, counts

    def impossible(
        self,
        whole: NDArray[np.bool_] | None = None,
        time_limit: float = np.inf,
        *,
        several: bool = False,
    ) -> bool:
        """Whether branching ends without counts, whole in some groups or in all, that obey.

        With ``several``, counts that leave some rows to a second cluster.
        """
        cost, matrix, low, high = self._rules(0, ROUNDING)
        if several:
            columns = self.program.masses
            each = np.repeat(np.arange(columns.shape[1])[None], columns.shape[0], axis=0)
            sums = (np.ones(columns.size), (each.ravel(), columns.ravel()))
            held = sp.csc_array(sums, shape=(columns.shape[1], cost.size))
            matrix = sp.vstack([matrix, held], format="csc")
            low = np.concatenate([low, np.zeros(columns.shape[1])])
            most = np.full(columns.shape[1], self.counts.sum() - 1.0)
            high = np.concatenate([high, most])
        answer = solve_linear_program(
            np.zeros(cost.size),
            matrix,
            low,
            high,
            self._lower(0),
            np.full(cost.size, np.inf),
            tolerance=1e-9,
            time_limit=time_limit,
            integer=self._integer(cost.size, whole),
        )
        return answer.status == "infeasible"

    def cheapest(self, rows: CountedRows, time_limit: float) -> Floats | None:
        """Return the best counts for few rows that a general solver finds."""
        costs, counts, (G, K) = rows.costs, rows.counts, self.program.masses.shape
        n, arcs = costs.size, np.arange(costs.size * K)
        far = np.hstack([block for *_, block in costs.blocks()]).T
        cost, matrix, low, high = self._rules(n * K, ROUNDING)
        each = (costs.weights / counts / float(self.unit.mean()))[:, None]
        cost[-n * K :] = np.where(np.isfinite(far), each * far, 0.0).ravel()
        upper = np.full(cost.size, np.inf)
        upper[-n * K :] = np.where(np.isfinite(far), counts[:, None], 0.0).ravel()
        row, cluster = np.divmod(arcs, K)
        ones = np.ones(arcs.size)
        own = sp.csc_array((ones, (row, arcs)), shape=(n, arcs.size))
        gathered = sp.csc_array(
            (ones, (costs.groups[row] * K + cluster, arcs)), shape=(G * K, n * K)
        )
        size = self.program.form.q.size
        answer = solve_linear_program(
            cost / (float(np.abs(cost).max()) or 1.0),
            sp.vstack(
                [
                    matrix,
                    sp.hstack([sp.csc_array((n, size)), own]),
                    sp.hstack([-self._counts(), gathered]),
                ],
                format="csc",
            ),
            np.concatenate([low, counts, np.zeros(G * K)]),
            np.concatenate([high, counts, np.zeros(G * K)]),
            self._lower(n * K),
            upper,
            tolerance=1e-9,
            time_limit=time_limit,
            integer=self._integer(cost.size),
        )
        return np.asarray(answer.x[self.program.masses]) if answer.x.size else None

    def _counts(self) -> sp.csc_array:
        at = self.program.masses.ravel()
        entries = (np.ones(at.size), (np.arange(at.size), at))
        return sp.csc_array(entries, shape=(at.size, self.program.form.q.size))

    def _rules(self, more: int, missed: float) -> tuple[Floats, sp.csc_array, Floats, Floats]:
        """Return costs, rows and sides of the rules in (counts, auxiliaries, more columns).

        Weights of rows are rounded, so that a count times one may miss an equation by ``missed``.
        """
        program, form = self.program, self.program.form
        G, K = program.masses.shape
        unit = np.ones(form.q.size)
        unit[program.masses] = self.unit[:, None]
        A = sp.csc_array(form.A @ sp.diags_array(unit))
        scale = row_scale(A)
        simplex = sp.csc_array(
            (np.ones(G * K), (np.repeat(np.arange(G), K), program.masses.ravel())),
            shape=(G, form.q.size),
        )
        rows = sp.vstack([sp.diags_array(scale) @ A, simplex])
        matrix = sp.hstack([rows, sp.csc_array((rows.shape[0], more))], format="csc")
        slack = missed * (1.0 + np.abs(form.b))
        high = (form.b + slack) * scale
        low = np.where(form.equal, (form.b - slack) * scale, -np.inf)
        cost = np.concatenate([form.q * unit / float(self.unit.mean()), np.zeros(more)])
        return cost, matrix, np.concatenate([low, self.counts]), np.concatenate([high, self.counts])

    def _lower(self, more: int) -> Floats:
        lower = np.zeros(self.program.form.q.size + more)
        free = np.ones(self.program.form.q.size, dtype=bool)
        free[self.program.masses] = False
        lower[: free.size][free] = -np.inf
        return lower

    def _integer(self, size: int, whole: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        integer = np.zeros(size, dtype=bool)
        groups = np.ones(self.unit.size, dtype=bool) if whole is None else whole
        integer[self.program.masses[groups].ravel()] = True
        return integer


class CountRules:
    r"""The rules in whole numbers of rows, and what they leave of limits on them.

    .. math:: \sum_j a_{ij} y_j \le b_i, \qquad \sum_k N_{gk} = n_g

    with counts N in y, and auxiliaries. Sides are raised by what rounding may violate.

    Parameters
    ----------
    program : MassProgram
        Polyhedral rules.
    unit, counts : arrays (G,)
        Weight of a row, and number of rows, of each group.
    whole : bool
        Whether counts are whole; else limits are those of any masses.
    """

    def __init__(
        self, program: MassProgram, unit: Floats, counts: Floats, *, whole: bool = True
    ) -> None:
        form = program.form
        self.size = form.q.size
        factor = np.ones(self.size)
        factor[program.masses] = unit[:, None]
        share = np.zeros(self.size)
        share[program.masses] = program.shares[:, None]
        #: by how much a row may be violated
        self.slack = ROUNDING * (1.0 + np.abs(form.b) + abs(form.A) @ share)
        A = sp.csr_array(form.A @ sp.diags_array(factor))
        #: rules that are equations
        self.equal = equal = form.equal
        simplex = program.simplex_rows
        rows = sp.coo_array(sp.vstack([A, -A[equal], simplex, -simplex]))
        high = np.concatenate([form.b + self.slack, (self.slack - form.b)[equal], counts, -counts])
        order = np.argsort(rows.col, kind="stable")
        self._row, self._column = rows.row[order], rows.col[order]
        self._value, self._high, self._height = rows.data[order], high, rows.shape[0]
        self._first = np.flatnonzero(np.diff(self._column, prepend=-1))
        self._owner = self._column[self._first]
        self._whole = np.zeros(self.size, dtype=bool)
        self._whole[program.masses] = whole
        low, most = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        low[program.masses], most[program.masses] = 0.0, counts[:, None]
        #: limits that the rules put on counts and auxiliaries, None where they leave nothing
        self.root = self.tightened(low, most)

    def tightened(self, low: Floats, high: Floats) -> tuple[Floats, Floats] | None:
        """Return limits that the rules leave within others; None where they leave nothing."""
        a, i, j = self._value, self._row, self._column
        up, whole = a > 0.0, self._whole
        for turn in range(2 * ROUNDS):
            if turn >= ROUNDS and (high > low)[whole].any():
                break  # limits may creep; where all counts are fixed, few rounds more end it
            end = np.where(up, low[j], high[j])
            infinite = ~np.isfinite(end)
            least = a * np.where(infinite, 0.0, end)
            total = np.bincount(i, least, self._height)
            open_ends = np.bincount(i, infinite, self._height)
            room = self._high[i] - (total[i] - least)
            # what the others in the row leave, widened by the rounding of their sum
            size = np.bincount(i, np.abs(least), self._height) + np.abs(self._high)
            limit = (room + 1e-12 * size[i]) / a
            alone = open_ends[i] - infinite == 0
            most = np.minimum.reduceat(np.where(up & alone, limit, np.inf), self._first)
            least_of = np.maximum.reduceat(np.where(~up & alone, limit, -np.inf), self._first)
            above, below = high.copy(), low.copy()
            above[self._owner] = np.minimum(above[self._owner], most)
            below[self._owner] = np.maximum(below[self._owner], least_of)
            above[whole] = np.floor(above[whole] + FRACTION)
            below[whole] = np.ceil(below[whole] - FRACTION)
            if (below > above + FRACTION).any():
                return None
            # auxiliaries, too: where all counts are fixed, they alone say what is broken
            moved = bool(((above < high) | (below > low)).any())
            low, high = below, above
            if not moved:
                break
        return low, high


# Rows that may change clusters are told apart; the others are counted.

# Rows next to each boundary that stay open, and how many they are together.
WIDE, TOGETHER = 128.0, 4_000.0
# Rows per block of a pass.
BLOCK = 8_192


def wide_box(costs: CostRows, prices: Floats, rows: int) -> Box:
    """Return the box in which so many of all ``rows`` can change clusters; see `settled`."""
    ranks = max(min(WIDE, TOGETHER / prices.size), 8.0) * costs.size / rows
    return box_for(costs, price(costs, prices), np.full(prices.shape, ranks))


@dataclass(frozen=True, eq=False)
class SettledRows:
    """Rows whose cheapest cluster is the same for all prices in a box, counted, and the others.

    Attributes
    ----------
    labels : tuple of arrays of int
        Cheapest clusters of consecutive rows.
    rows : int
        How many.
    at, groups : arrays (o,)
        Open rows by number, and their groups.
    costs, weights : arrays (o, K), (o,)
        Of the open rows.
    counts, masses : arrays (G, K)
        Settled rows of positive weight, and that.
    cost, size : float
        What they pay, and how large that is without signs.
    least, most : arrays (G,)
        Extremes of the positive weights of all rows.
    points : array (o, d)
        Open rows.
    apart, spread : array (K, d), float
        Of the settled rows, less the mean of their cluster: weighted sums, and that of their squares.
    """

    labels: tuple[NDArray[Any], ...]
    rows: int
    at: Integers
    groups: Integers
    costs: Floats
    weights: Floats
    counts: Floats
    masses: Floats
    cost: float
    size: float
    least: Floats
    most: Floats
    points: Floats
    apart: Floats
    spread: float

    def __add__(self, other: SettledRows) -> SettledRows:
        def both(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(self, name), getattr(other, name)])

        return SettledRows(
            self.labels + other.labels,
            self.rows + other.rows,
            np.concatenate([self.at, self.rows + other.at]),
            both("groups"),
            both("costs"),
            both("weights"),
            self.counts + other.counts,
            self.masses + other.masses,
            self.cost + other.cost,
            self.size + other.size,
            np.minimum(self.least, other.least),
            np.maximum(self.most, other.most),
            both("points"),
            self.apart + other.apart,
            self.spread + other.spread,
        )


def settled(
    costs: Floats,
    groups: Integers,
    weights: Floats,
    prices: Floats,
    box: Box,
    rounding: float,
    rows: tuple[Floats, Floats],
) -> SettledRows:
    """Return some rows settled at prices and in a box around them.

    Parameters
    ----------
    costs : array (K, m)
    groups, weights : arrays (m,)
    prices : array (G, K)
    box : Box
    rounding : float
        Relative error of a cost.
    rows : arrays (m, d), (K, d)
        The rows, of any columns, and a mean for each cluster.
    """
    (G, K), here, held = prices.shape, np.arange(groups.size), weights > 0.0
    reduced = costs + np.take(prices.T, groups, axis=1)
    best = reduced.argmin(axis=0)
    own = costs[best, here]
    near = reduced[best, here] + box.up[groups, best]
    near += 4.0 * rounding * (np.abs(own) + np.abs(prices).max())
    reduced -= 4.0 * rounding * np.abs(costs)
    reduced -= np.take(box.down.T, groups, axis=1)
    reduced[best, here] = np.inf
    open_ = held & (reduced.min(axis=0) <= near)
    at, rest = np.flatnonzero(open_), np.flatnonzero(held & ~open_)
    cells = best[rest], groups[rest]
    apart = rows[0][rest] - rows[1][best[rest]]
    least, most = np.full(G, np.inf), np.zeros(G)
    np.minimum.at(least, groups[held], weights[held])
    np.maximum.at(most, groups[held], weights[held])
    return SettledRows(
        (best.astype(np.min_scalar_type(K)),),
        groups.size,
        at,
        groups[at],
        costs[:, at].T,
        weights[at],
        label_masses(*cells, np.ones(rest.size), (G, K)),
        label_masses(*cells, weights[rest], (G, K)),
        float(weights[rest] @ own[rest]),
        float(weights[rest] @ np.abs(own[rest])),
        least,
        most,
        rows[0][at],
        label_sums(apart, cells[0], weights[rest], K),
        float(weights[rest] @ np.square(apart).sum(axis=1)),
    )


@dataclass(frozen=True, eq=False)
class SettlingPass:
    """The map of a pass that settles rows at centers; an object, so that it travels to workers."""

    survey: Survey
    centers: Floats
    prices: Floats
    box: Box

    def __call__(self, chunk: Chunk) -> SettledRows:
        """Return the rows of one chunk."""
        rows = self.survey.read(chunk)
        parts = []
        for start in range(0, len(rows.X), BLOCK):
            own = slice(start, start + BLOCK)
            cost = SeparableCost("sqeuclidean", rows.X[own], self.centers)
            stated = cost.columns(slice(None)), rows.groups[own], rows.weights[own]
            both = rows.X[own], self.centers
            parts.append(settled(*stated, self.prices, self.box, cost.rounding, both))
        return reduce(operator.add, parts)


class CountedRows:
    r"""Open rows, and one row for the settled ones of each group and cluster.

    Such a row pays nothing where it is, and elsewhere

    .. math:: \Lambda_{gk} - \Lambda_{gj} + u_{gk} + d_{gj}

    with the sides u, d of the box: what every row that is settled pays more there, or less than
    that. So all that is proved of these rows, with what the settled ones pay, holds for all rows,
    at any prices; and in the box it is the same.

    Parameters
    ----------
    rows : SettledRows
    prices, box
        What they were settled by.
    shares : array (G,)
        Weight shares of the groups.
    rounding : float
        Relative error of a cost.
    """

    def __init__(
        self, rows: SettledRows, prices: Floats, box: Box, shares: Floats, rounding: float
    ) -> None:
        self.rows, G = rows, len(prices)
        g, k = np.nonzero(rows.counts)
        apart = (prices + box.up)[g, k, None] - (prices - box.down)[g]
        apart[np.arange(g.size), k] = 0.0
        paid = SeparableCost("precomputed", np.concatenate([rows.costs, apart]))
        weights = np.concatenate([rows.weights, rows.masses[g, k]])
        #: costs, groups and weights of these rows
        self.stated = paid, np.concatenate([rows.groups, g]), weights
        self.costs = CostRows(*self.stated)
        every = np.concatenate([np.ones(rows.at.size), rows.counts[g, k]])
        #: rows that each stands for, in the order of the costs
        self.counts = every[self.costs.rows]
        # clusters of those that stand for settled rows, -1 for open ones
        self._settled = np.append(np.full(rows.at.size, -1), k)[self.costs.rows]
        #: which stand for one row that may move
        self.alone = (self._settled < 0) & (self.counts == 1.0)
        #: weight of a row and number of rows of each group
        self.total = rows.counts.sum(axis=1) + np.bincount(rows.groups, minlength=G)
        self.unit = shares / self.total
        #: what settled rows pay
        self.value, self.rounding = rows.cost, rounding
        #: whether rows of a group weigh the same
        self.equal = bool((rows.most - rows.least <= EQUAL * rows.most).all())

    def proved(self, prices: Floats) -> tuple[float, float]:
        """Return what rows cost at least at prices, and the size of it.

        Costs are lowered by their rounding; what sums round away is the caller's to charge, by the size.
        """
        value = self.rows.cost - self.rounding * self.rows.size
        size = self.rows.size
        for g, start, stop, block in self.costs.blocks():
            low = (block + prices[g][:, None]).min(axis=0)
            largest = np.abs(prices[g]).max(initial=0.0)
            worth = lowered(low, self.costs.weights[start:stop], self.rounding, largest)
            value, size = value + worth[0], size + worth[1]
        return value, size

    def cost(self, labels: Integers) -> float:
        """Return the mean cost of labels of these rows."""
        total = self.value
        for _, start, stop, block in self.costs.blocks():
            own = block[labels[start:stop], np.arange(stop - start)]
            total += float(self.costs.weights[start:stop] @ own)
        return total

    def kept(self, labels: Integers) -> Integers:
        """Return labels with those of settled rows, which are all alike, where they are settled."""
        return np.where(self._settled < 0, labels, self._settled)

    def whole(self, labels: Integers) -> Integers:
        """Return the labels of all rows, from those of the open ones."""
        every = np.concatenate(self.rows.labels)
        own = self.costs.rows < self.rows.at.size
        every[self.rows.at[self.costs.rows[own]]] = labels[own]
        return every
