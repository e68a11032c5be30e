"""Units of the rows and columns of a cone program, in which it is handed to solvers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

from optfair.numbers import Floats, Indices
from optfair.proofs import digits
from optfair.proofs.rounding import coordinates
from optfair.solution.column_units import blocks_of, shrunk

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

# Binary digits by which lines of a block must differ, and by which all numbers must come nearer.
APART = 10.0
# Binary digits below the largest sides at which sides are rounding, and which share is largest:
# a few may stand for none.
SIDES, MANY = 40, 0.99
# Weight of sides and costs beside the numbers of curved programs without blocks.
LIGHT = 0.1
# Coefficients below such a share of the largest in their row and of that in their column.
NOISE = 1e-13
# Steps of the least squares, and those after which a small gain stays small.
STEPS, FEW = 200, 20
# Numbers of a program up to which units are looked for, and the largest exponent of a unit.
LARGEST, MOST = 1_000_000, 250.0
# Largest exponent of a number then: none is lost below or above what floats hold.
HELD = 500.0


def congruence(form: ConicForm) -> tuple[Floats, Floats] | None:
    r"""Return powers of two for rows and columns that undo :math:`S \mapsto D S D`.

    With :math:`D = \operatorname{diag}(2^{d_i})` a block S is positive semidefinite where DSD is, a
    curved objective P is convex where DPD is, and no digit changes. The exponents of lines, rows,
    columns, sides and costs solve

    .. math::
        \min \sum_{a_{kl} \ne 0} (\log_2 |a_{kl}| + e_k + c_l)^2
        + \sum_{p_{kl} \ne 0} (\log_2 |p_{kl}| + t + c_k + c_l)^2, \qquad
        e_k = d_i + d_j \text{ for an entry } (i, j),

    over all numbers of the program, which brings them near 1 as far as units can; t is that of
    the costs.

    Parameters
    ----------
    form : ConicForm
        The program.

    Returns
    -------
    (rows, columns) or None
        None where there is neither a block nor curvature, or its lines, and the columns that
        bend, are in one unit nearly.
    """
    m, n = form.A.shape
    blocks = [c for c in form.cones if c.kind == "psd" and c.order > 1]
    if not (blocks or form.P.nnz) or form.A.nnz + form.P.nnz + m + n > LARGEST:
        return None
    beside = [form.b, form.q][: 2 * bool(blocks)]
    if _apart(np.concatenate([form.A.data, form.P.data, *beside])) < 2.0 * APART:
        return None  # most programs are seen to need none by their largest and least number
    # whose exponents that of a row is the sum of: of its cone, or of two lines
    first, second, single, lines = np.arange(m), np.arange(m), np.ones(m, dtype=bool), m
    for c in form.cones:
        at = np.arange(c.start, c.stop)
        if c.kind == "psd":
            i, j = c.places
            first[at], second[at], single[at] = lines + i, lines + j, False
            lines += c.order
        elif c.kind in ("exp", "pow"):  # cones of three entries, one after the other
            first[at] = at - (at - c.start) % 3
        elif c.kind == "soc":
            first[at] = c.start
    costs = lines + n + 1  # behind the columns stand the unit of sides and that of costs
    first, second = np.append(first, costs), np.append(second, costs)
    cost, side = np.flatnonzero(form.q), np.flatnonzero((form.b != 0.0) & np.isfinite(form.b))
    row, column, entry = coordinates(form.columns_of_rows)
    *bent, curvature = coordinates(form.bending.rows)
    upper = bent[0] <= bent[1]
    # numbers, and the row and the columns whose units they are in
    parts: tuple[tuple[Any, ...], ...] = (
        (entry, row, column, None),
        (form.b[side], side, np.full(side.size, n), None),
        (form.q[cost], np.full(cost.size, m), cost, None),
        (curvature[upper], np.full(upper.sum(), m), bent[1][upper], bent[0][upper]),
    )
    # sides and costs of any size go with the same units: they only tell the rest apart, but for
    # those of lines; a side that is next to nothing is rounding
    usual = _usual(np.abs(form.b[side])) if side.size and not blocks else 0.0
    logs, weight, places = [], [], []
    for k, (values, row, column, other) in enumerate(parts):
        sizes = np.abs(values)
        used = (sizes > (usual if k == 1 else 0.0)) & np.isfinite(sizes)
        if k == 1 and blocks:  # rounding says nothing of units
            used &= sizes > NOISE * _least_largest(sizes, first[row], second[row], of_lines=True)
        if k in (0, 3) and not blocks:
            used &= sizes > NOISE * _least_largest(sizes, row if other is None else other, column)
        logs.append(np.log2(sizes[used]))
        weight.append(np.full(logs[-1].size, LIGHT if k in (1, 2) and not blocks else 1.0))
        places.append((row[used], column[used], (column if other is None else other)[used]))
    logarithms, share = np.concatenate(logs), np.concatenate(weight)
    row, column, other = (np.concatenate(part) for part in zip(*places, strict=True))
    twice = np.append(np.where(single, 0.0, 1.0), 0.0)[row]
    part_of = np.repeat(np.arange(len(parts)), [each.size for each in logs])
    data = np.concatenate([np.ones(2 * row.size), twice, np.where(part_of == 3, 1.0, 0.0)])
    index = np.concatenate([first[row], column + lines, second[row], other + lines])
    where = np.tile(np.arange(logarithms.size), 4)[data > 0.0], index[data > 0.0]
    E = sp.csr_array((data[data > 0.0], where), (logarithms.size, costs + 1))
    kept = np.ones(logarithms.size, dtype=bool)
    while True:
        counted = kept & (share == 1.0)
        if not counted.any() or np.ptp(logarithms[counted]) < 2.0 * APART:
            return None
        weighed, sides = sp.csr_array(sp.diags_array(share * kept) @ E), -share * kept * logarithms
        for steps, part in (FEW, 0.7), (STEPS, 1.0):  # most that gain too little show it early
            powers = np.round(spla.lsmr(weighed, sides, atol=1e-10, btol=1e-10, maxiter=steps)[0])
            left, columns = logarithms + E @ powers, powers[lines : lines + n]
            gain = np.ptp(logarithms[counted]) - np.ptp(left[counted])
            if min(gain, np.ptp(powers[m:lines] if blocks else columns)) < part * APART:
                return None
        # costs of a block that are next to nothing in these units too are rounding
        dust = kept & (part_of == 2) & (left < left[kept].max() - SIDES) & bool(blocks)
        if not dust.any():
            break
        kept &= ~dust
    if np.abs(powers).max() > MOST or np.abs(left).max() > HELD:
        return None
    rows = powers[first[:m]] + np.where(single, 0.0, powers[second[:m]])
    if side.size and not blocks:  # entries do not say in which unit points are: their sides do
        near = np.exp2(np.log2(np.abs(form.b[side])) + rows[side])
        middle = np.round(np.log2(np.median(near[near > _usual(near)])))
        rows, columns = rows - middle, columns + middle
    return np.exp2(rows), np.exp2(columns)


def _least_largest(
    sizes: Floats, row: Indices, column: Indices, *, of_lines: bool = False
) -> Floats:
    """Return the lesser of the largest entry of the row and that of the column, or of both lines."""
    most = np.zeros((2, 1 + max(row.max(initial=-1), column.max(initial=-1))))
    for k, place in enumerate((row, column)):
        np.maximum.at(most[k], place, sizes)
    most = np.maximum(most, most[::-1]) if of_lines else most
    return np.asarray(np.minimum(most[0, row], most[1, column]))


def _usual(sides: Floats) -> float:
    """Return a size below which sides are rounding of the others."""
    return float(np.ldexp(np.quantile(sides, MANY), -SIDES))


# Coefficients outside this range are handed over in other units.
SMALL, LARGE = 1e-6, 1e6
# So are columns of curved programs whose largest coefficient is less than this, or its inverse more.
COLUMN = 1e-5
# Rounds in which rows and columns are brought near 1 in turn, and binary digits that end them.
BALANCING, SETTLED = 60, 1e-9
# Sizes of right-hand sides below or above which points of curved programs are in another unit.
LEVEL = (1.0 / 64.0, 1024.0)
# Binary digits that coefficients alone may move that unit, and that what is squared is smaller by.
REACH, MISFIT = 30.0, 6.0
# Binary digits by which numbers must come nearer for cones to be turned.
TURNED = 4.0
# Share of one multiplier of a cone in another at which it has lost digits.
LOST = 2.0**-16
# Share of the largest diagonal entry of a slack below which another is taken for that.
NEAR = 1e-10
# Binary digits that units of one cone may be apart.
BOOST = 32.0


def balanced(
    form: ConicForm, held: NDArray[np.bool_] | None = None, *, moderate: bool = False
) -> tuple[Floats, Floats] | None:
    """Return powers of two for rows and columns that bring numbers near 1, 1 for those that are held.

    None where they are as they stand, unless moderate factors are asked for as well.
    """
    row, column, entry = coordinates(form.columns_of_rows)
    used = (entry != 0.0) & np.isfinite(entry)
    row, column, sizes = row[used], column[used], np.abs(entry[used])
    near = not sizes.size or (sizes.min() >= SMALL and sizes.max() <= LARGE)
    if not sizes.size or (near and form.polyhedral):
        return None
    m, n = form.A.shape
    # what is tiny in its row and in its column is rounding, and says nothing of units
    in_row, any_column, in_column = np.zeros(m), np.zeros(n), np.zeros(n)
    np.maximum.at(in_row, row, sizes)
    np.maximum.at(any_column, column, sizes)
    # nor does the entry of a bound, which has the unit of its column in any case: its side does
    several, sides = np.bincount(row, minlength=m)[row] > 1, np.abs(form.b)[row]
    stated = ~several & (sides > 0.0) & np.isfinite(sides)
    np.maximum.at(in_column, column[several], sizes[several])
    joined = in_column > 0.0
    with np.errstate(over="ignore"):
        share = sizes[stated] / sides[stated]
    np.maximum.at(in_column, column[stated], share)
    in_column = np.where(in_column > 0.0, in_column, any_column)
    most = in_column[in_column > 0.0]
    alike = form.polyhedral or (most.min() >= COLUMN and most.max() <= 1.0 / COLUMN)
    if alike and near and not moderate:
        return None
    notable = sizes > NOISE * np.minimum(in_row[row], in_column[column])
    if not notable.all():  # beside auxiliary columns that are as small, it is none
        own, in_row = sizes * shrunk(form)[column], np.zeros(m)
        np.maximum.at(in_row, row, own)
        notable |= own > NOISE * np.minimum(in_row[row], in_column[column])
    row, column, sizes = row[notable], column[notable], sizes[notable]
    if not sizes.size:
        return None
    if alike and not moderate and sizes.min() >= SMALL and sizes.max() <= LARGE:
        return None
    block = blocks_of(form)
    logs, row = np.log2(sizes), block[row]
    rows, columns = np.zeros(m), np.zeros(n)
    in_row = np.maximum(np.bincount(row, minlength=m), 1)
    weight = np.asarray(several[notable] | ~joined[column], dtype=float)
    in_column = np.maximum(np.bincount(column, weight, minlength=n), 1)
    free = np.ones(n) if held is None else np.asarray(~held, dtype=float)
    for _ in range(BALANCING):
        before, rows = columns, -np.bincount(row, logs + columns[column], m) / in_row
        columns = -free * np.bincount(column, weight * (logs + rows[row]), n) / in_column
        if np.abs(columns - before).max() <= SETTLED:
            break
    rows, sides = rows[block], np.abs(form.b)
    with np.errstate(divide="ignore"):
        shift = np.log2(sides) + rows
    shift = shift[(sides > 0.0) & np.isfinite(shift)]
    middle = float(np.median(shift)) if shift.size and held is None else 0.0
    with np.errstate(over="ignore"):
        units = np.exp2(np.round(rows - middle)), np.exp2(np.round(columns + middle))
    fit = all(np.isfinite(u).all() and (u > 0.0).all() for u in units)
    return units if fit and _bends_alike(form, units[1]) else None


def equilibrium(form: ConicForm, *, sides: bool = False) -> tuple[Floats, Floats]:
    """Return powers of two that bring the largest entry of each row and each column near 1.

    And right-hand sides, where that is asked for. The rows of a cone have one unit.
    """
    A = sp.hstack([form.A, sp.csc_array(form.b[:, None])], format="csc") if sides else form.A
    block = blocks_of(form)
    rows, columns = digits.balanced(A, block)
    last = columns[-1] if sides else 1.0
    return rows[block] * last, columns[: form.q.size] / last


def _bends_alike(form: ConicForm, columns: Floats) -> bool:
    """Whether units of columns keep the curvature of the objective within reach of floats.

    Rows do not see it: a variance may be in the same unit for columns whose rows differ by 1e20.
    """
    row, column, entry = coordinates(form.bending.rows)
    sizes = np.abs(entry)
    used = sizes > 0.0
    if not used.any():
        return True
    after = sizes * columns[row] * columns[column]

    def spread(v: Floats) -> float:
        return float(v[used].max() / max(v[used].min(), 1e-300))

    return spread(after) <= max(LARGE**2, spread(sizes))


def _median(sizes: Floats) -> float:
    """Return the median, of numbers near the end of the floats as well."""
    return 2.0 * float(np.median(0.5 * sizes))


def level(form: ConicForm) -> tuple[Floats, Floats] | None:
    """Return one unit for all points, where all sides are small in their cones, or most are large."""
    known = (form.b != 0.0) & np.isfinite(form.b)
    curved = any(known[c.start : c.stop].any() for c in form.cones if c.kind in ("exp", "pow"))
    if curved or not known.any():
        return None
    most, block = np.zeros(form.b.size), blocks_of(form)
    np.maximum.at(most, block[form.columns_of_rows.indices], np.abs(form.columns_of_rows.data))
    sides = np.abs(form.b[known])
    sizes = sides / np.where(most > 0.0, most, 1.0)[block[known]]
    largest, middle = float(sizes.max()), _median(sizes)
    high = np.inf if form.polyhedral else LEVEL[1]  # a simplex method takes large ones as they are
    if LEVEL[0] <= largest and middle <= high:
        return None
    small = largest < LEVEL[0]
    if min(largest, sides.max()) < 2.0**-MOST:
        return None
    power = float(np.round(np.log2(largest if small else middle)))
    own = float(np.log2(sides.max() if small else _median(sides)))
    # sides over tiny coefficients are no size of points
    if abs(power - own) > REACH or abs(power) > MOST:
        return None
    other = None if small or not form.P.nnz else balanced(form, moderate=True)
    if other is not None:  # what is squared may have another unit than what they bound
        bent = other[1][np.unique(form.P.indices)]
        if np.median(np.log2(bent)) < power - MISFIT:
            return other
    m, n = form.A.shape
    return np.full(m, np.exp2(-power)), np.full(n, np.exp2(power))


@dataclass(frozen=True, eq=False)
class Handed:
    r"""A program in other units, and the way back.

    Attributes
    ----------
    form : ConicForm
        What is handed over.
    columns : array
        Units of the columns.
    turn, back : tuple of sparse (m, m)
        Factors of T, which maps slacks to those of what is handed over and each cone to itself, and of
        its inverse, in the order in which they are applied: their product would lose digits.
    pairs : (heads, stops) of arrays or None
        First rows, and those behind the last, of second-order cones whose u and v have each a unit.
    """

    form: ConicForm
    columns: Floats
    turn: tuple[Any, ...]
    back: tuple[Any, ...]
    pairs: tuple[Indices, Indices] | None = None

    @classmethod
    def of(cls, form: ConicForm, rows: Floats, columns: Floats) -> Handed:
        """Return a program in these units of rows and columns."""
        units = (sp.diags_array(rows, format="csr"),), (sp.diags_array(1.0 / rows, format="csr"),)
        return cls(form.in_units(rows, columns), columns, *units)

    @property
    def rows(self) -> Floats:
        """Units of the rows, where each has its own."""
        return np.asarray(self.turn[0].diagonal())

    def exactly(self, form: ConicForm) -> bool:
        """Whether the program comes back, so that no number left the range of floats."""
        return alike(form, mapped(self.form, self.back, 1.0 / self.columns))

    def slack(self, s: Floats) -> Floats:
        """Return slacks of the program as those of what is handed over."""
        return np.asarray(reduce(_applied, self.turn, s))

    def multipliers(self, z: Floats) -> Floats:
        """Return multipliers of the program as those of what is handed over."""
        return np.asarray(reduce(_applied, (f.T for f in reversed(self.back)), z))

    def candidates(self, z: Floats) -> list[Floats]:
        """Return the multipliers as they are, and with digits restored."""
        restored = self.restored(z)
        return [self.multipliers(z), *([] if restored is None else [restored])]

    def restored(self, z: Floats) -> Floats | None:
        r"""Return multipliers with the digits that u or v lost beside the other, None where none did.

        Where :math:`(u + v, u - v, w)` has a multiplier with :math:`\mu \gg \nu` on u and v, as one in
        another unit has, ν is what is left of a difference. It is :math:`\lVert \omega \rVert^2 / \mu` on
        the boundary of the cone.
        """
        if self.pairs is None:
            return None
        heads, stops = self.pairs
        first, second = np.abs(z[heads] + z[heads + 1]), np.abs(z[heads] - z[heads + 1])
        lost = np.minimum(first, second) <= LOST * np.maximum(first, second)
        if not lost.any():
            return None
        side = np.where(first >= second, 1.0, -1.0)[lost]
        heads, stops = heads[lost], stops[lost]
        near = self.multipliers(z)
        large = near[heads] + side * near[heads + 1]
        ends = np.column_stack([heads + 2, stops]).ravel()
        tails = np.add.reduceat(np.append(np.square(near), 0.0), ends)[::2]
        small = np.divide(tails, large, out=np.zeros_like(tails), where=large > 0.0)
        near[heads], near[heads + 1] = (large + small) / 2.0, side * (large - small) / 2.0
        return near

    def multipliers_back(self, z: Floats) -> Floats:
        """Return multipliers of what is handed over as those of the program."""
        return np.asarray(reduce(_applied, (f.T for f in reversed(self.turn)), z))


def _applied(to: Any, factor: Any) -> Any:
    return factor @ to


def mapped(form: ConicForm, turn: Sequence[Any], columns: Floats) -> ConicForm:
    """Return the form with factors applied to its rows, and units of its columns."""
    across = sp.diags_array(columns)
    return replace(
        form,
        P=sp.csc_array(across @ form.P @ across),
        q=form.q * columns,
        A=sp.csc_array(reduce(_applied, turn, form.A) @ across),
        b=np.asarray(reduce(_applied, turn, form.b)),
        rooted=(),
    )


def alike(one: ConicForm, other: ConicForm) -> bool:
    """Whether the numbers of two programs are the same."""
    for name in ("P", "q", "A", "b"):
        own, its = getattr(one, name), getattr(other, name)
        if (own - its).nnz if sp.issparse(own) else not np.array_equal(own, its):
            return False
    return True


def turned(form: ConicForm) -> Handed | None:
    r"""Return the program in units in which the rows of its cones have numbers near 1.

    The last row of an exponential cone :math:`y e^{x / y} \le z` has a unit of its own, as
    :math:`y e^{(x + k y) / y} \le e^k z`. Exponents of power cones :math:`x^\alpha y^{1 - \alpha} \ge |z|` have
    :math:`e_z = \alpha e_x + (1 - \alpha) e_y`, and so, with a half, have those of second-order cones
    :math:`u + v \ge \lVert (u - v, w) \rVert` whose u and v have no number in common; rows of other cones
    have one. They solve, with those of columns and of costs,

    .. math::
        \min \sum_{a_{ij} \ne 0} (\log_2 |a_{ij}| + e_i + c_j)^2 + w \sum_{b_i \ne 0} (\log_2 |b_i| + e_i)^2
        + \sum_{p_{ij} \ne 0} (\log_2 |p_{ij}| + t + c_i + c_j)^2 + w \sum_{q_j \ne 0} (\log_2 |q_j| + t + c_j)^2

    None where there are no such cones, or numbers come not much nearer.
    """
    m, n = form.A.shape
    if form.polyhedral or form.A.nnz + form.P.nnz + m + n > LARGEST:
        return None
    exp, power = (
        np.concatenate(
            [[], *(np.arange(c.start, c.stop, 3) for c in form.cones if c.kind == kind)]
        ).astype(int)
        for kind in ("exp", "pow")
    )
    second_order = [
        (c.start, c.stop) for c in form.cones if c.kind == "soc" and c.stop > c.start + 2
    ]
    if not (exp.size or power.size or second_order):
        return None
    heads, stops = np.array(second_order, dtype=int).reshape(-1, 2).T
    numbers = sp.csr_array(sp.hstack([form.rows, sp.csr_array(form.b[:, None])]))
    # u and v have no number in common, so nothing is rounded
    apart = (abs(numbers[heads]) - abs(numbers[heads + 1])).count_nonzero(axis=1) == 0
    heads, stops = heads[apart], stops[apart]
    if not (exp.size or power.size or heads.size):
        return None
    # a row has the exponent of one, or those of two by their shares
    first, second, part = np.arange(m), np.arange(m), np.ones(m)
    for c in form.cones:
        if c.kind in ("soc", "psd"):
            first[c.start : c.stop] = c.start
    first[exp + 1] = exp
    first[power + 2], second[power + 2] = power, power + 1
    part[power + 2] = [
        c.power for c in form.cones if c.kind == "pow" for _ in range(c.start, c.stop, 3)
    ]
    first[heads + 1] = heads + 1
    width = stops - heads - 2
    tails = np.repeat(heads + 2 - np.cumsum(width) + width, width) + np.arange(width.sum())
    first[tails], second[tails] = np.repeat(heads, width), np.repeat(heads + 1, width)
    part[tails] = 0.5
    # u and v in place of u + v and u - v
    one, half = np.ones(m), np.ones(m)
    one[heads + 1], half[heads], half[heads + 1] = -1.0, 0.5, 0.5
    pairs = np.concatenate([heads, heads + 1])
    across = np.ones(pairs.size), (pairs, np.roll(pairs, heads.size))
    sums = sp.diags_array(one, format="csr") + sp.csr_array(across, (m, m))
    halves = sp.csr_array(sp.diags_array(half) @ sums)
    numbers = sp.csr_array(halves @ numbers) if heads.size else numbers
    exponents, columns = _exponents(form, (first, second, part), numbers, heads)
    if exponents is None or columns is None:
        return None
    steps = np.zeros(m)
    steps[exp] = np.log(2.0) * (exponents[exp + 2] - exponents[exp])
    whole, rows = sp.eye_array(m, format="csr"), np.exp2(exponents)
    move = sp.diags_array(steps[:-1], offsets=1, shape=(m, m))
    units, undone = (sp.diags_array(v, format="csr") for v in (rows, 1.0 / rows))
    turn = (halves, units, sums, sp.csr_array(whole + move))
    back = (sp.csr_array(whole - move), halves, undone, sums)
    return Handed(mapped(form, turn, columns), columns, turn, back, (heads, stops))


def _apart(numbers: Floats) -> float:
    """Return by how many binary digits numbers are apart."""
    return _ptp(np.log2(np.abs(numbers[(numbers != 0.0) & np.isfinite(numbers)])))


def _ptp(v: Floats) -> float:
    return float(np.ptp(v)) if v.size else 0.0


def _exponents(
    form: ConicForm, shares: Any, numbers: Any, heads: Indices
) -> tuple[Floats, Floats] | tuple[None, None]:
    """Return exponents of rows, and units of columns, of numbers whose last column are the sides.

    A row has exponents of two by the share of the first.
    """
    (m, n), (row, column, entry) = form.A.shape, coordinates(numbers)
    cost = np.flatnonzero(form.q)
    if _apart(entry) + _apart(form.q[cost]) < TURNED:
        return None, None
    i, j, bent = coordinates(form.bending.rows)
    i, j, bent = i[i <= j], j[i <= j], bent[i <= j]
    # numbers, the rows they are in, the columns, and their weights; behind the columns come those
    # that have no unit, and the costs
    values = np.concatenate([entry, bent, form.q[cost]])
    nowhere = np.full(bent.size + cost.size, m)
    places = (
        np.concatenate([column, i, cost]),
        np.concatenate([np.full(entry.size, n), j, np.full(cost.size, n)]),
        np.concatenate([np.full(entry.size, n), nowhere - m + n + 1]),
    )
    light = np.concatenate([column == n, np.repeat([False, True], [bent.size, cost.size])])
    used = np.flatnonzero((values != 0.0) & np.isfinite(values))
    first, second, part = (np.append(v, v[:1]) for v in shares)
    in_row = np.concatenate([row, nowhere])[used]
    inside = np.where(in_row < m, part[in_row], 0.0)
    at = [place[used] for place in places]
    data = np.concatenate([inside, (in_row < m) - inside, *((p != n) * 1.0 for p in at)])
    where = np.concatenate([first[in_row], second[in_row], *(m + p for p in at)])
    line, shape = np.tile(np.arange(used.size), 5), (used.size, m + n + 2)
    E: Any = sp.csr_array((data, (line, where)), shape=shape)
    E.eliminate_zeros()
    log, weight = np.log2(np.abs(values[used])), np.where(light[used], LIGHT, 1.0)
    weighed = E.copy()
    weighed.data *= np.repeat(weight, np.diff(E.indptr))
    powers = np.round(spla.lsmr(weighed, -weight * log, atol=1e-10, btol=1e-10, maxiter=STEPS)[0])
    # multipliers of u + v and u - v have no digits left of u or v when their units are too far apart
    middle, apart = powers[heads] + powers[heads + 1], powers[heads] - powers[heads + 1]
    apart = np.clip(apart, -BOOST, BOOST)
    powers[heads] = np.round((middle + apart) / 2.0)
    powers[heads + 1] = np.round((middle - apart) / 2.0)
    powers[heads] += (powers[heads] + powers[heads + 1]) % 2.0  # a half of both is whole
    left = log + E @ powers
    rows, costs = (  # costs get another unit later
        _ptp(log[part]) - _ptp(left[part])
        for part in (used < entry.size, used >= entry.size + bent.size)
    )
    if max(rows, rows + costs) < TURNED or np.abs(powers).max() > MOST or np.abs(left).max() > HELD:
        return None, None
    first, second, part = shares
    own = part * powers[first] + (1.0 - part) * powers[second]
    return own, np.exp2(powers[m : m + n])


def units_at(form: ConicForm, x: Floats) -> Handed:
    r"""Return the program in the units of a point, in which its slacks and columns are near 1.

    A row, and all rows of a second-order cone, is measured by the largest sum of sizes of its terms,
    an entry of a block by the roots of two diagonal entries of the slack, and an exponential cone by y
    and by z, as `turned` does. The unit of a column is the least change that is 1 in a row. Numbers of the
    program do not say where points are: a matrix of 1e6 that is multiplied by shares is not.
    """
    m, s = form.b.size, form.slack(x)
    terms = abs(form.rows) @ np.abs(x) + np.abs(form.b)
    size, block = np.zeros(m), blocks_of(form)
    np.maximum.at(size, block, terms)
    size, exp = size[block], np.zeros(0, dtype=int)
    for c in form.cones:
        at = np.arange(c.start, c.stop)
        if c.kind == "psd":
            i, j = c.places
            own = s[at][c.diagonal]
            roots = _near(np.sqrt(np.maximum(own, NEAR * max(own.max(), 0.0))))
            size[at] = roots[i] * roots[j]
        elif c.kind == "exp":
            exp = np.append(exp, at[::3])
    size[exp] = size[exp + 1] = s[exp + 1]
    size[exp + 2] = s[exp + 2]
    units = _near(size)
    steps = np.zeros(m)
    steps[exp] = np.log(units[exp + 1] / units[exp + 2])
    whole, move = sp.eye_array(m, format="csr"), sp.csr_array((steps[exp], (exp, exp + 1)), (m, m))
    rows, undone = (sp.diags_array(v, format="csr") for v in (1.0 / units, units))
    turn, back = (rows, sp.csr_array(whole + move)), (sp.csr_array(whole - move), undone)
    columns = 1.0 / _near(abs(rows @ form.rows).max(axis=0).toarray().ravel())
    return Handed(mapped(form, turn, columns), columns, turn, back)


def _near(sizes: Floats) -> Floats:
    """Return powers of two next to sizes, 1 where these are none."""
    known = np.isfinite(sizes) & (sizes > 0.0)
    powers = np.round(np.log2(np.where(known, sizes, 1.0)))
    return np.asarray(np.exp2(np.clip(powers, -MOST, MOST)))
