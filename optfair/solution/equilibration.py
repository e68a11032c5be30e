"""Units of rows, columns, curvature and the lines of semidefinite blocks, all powers of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from optfair.numbers import Floats, Indices
from optfair.proofs.rounding import coordinates

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
# Passes that bring the largest entry of every row and column near 1.
PASSES = 8
# Steps of the least squares.
STEPS = 200
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
    if not blocks:  # most programs are seen to need none by their largest and least number
        sizes = np.abs(np.concatenate([form.A.data, form.P.data]))
        sizes = sizes[(sizes > 0.0) & np.isfinite(sizes)]
        if not sizes.size or np.log2(sizes.max()) - np.log2(sizes.min()) < 2.0 * APART:
            return None
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
        if k in (0, 3) and not blocks:
            used &= sizes > NOISE * _least_largest(sizes, row if other is None else other, column)
        logs.append(np.log2(sizes[used]))
        weight.append(np.full(logs[-1].size, LIGHT if k in (1, 2) and not blocks else 1.0))
        places.append((row[used], column[used], (column if other is None else other)[used]))
    told, share = np.concatenate(logs), np.concatenate(weight)
    counted = share == 1.0
    if not counted.any() or np.ptp(told[counted]) < 2.0 * APART:
        return None
    row, column, other = (np.concatenate(part) for part in zip(*places, strict=True))
    twice = np.append(np.where(single, 0.0, 1.0), 0.0)[row]
    squared = np.arange(told.size) >= told.size - logs[-1].size
    data = np.concatenate([np.ones(2 * told.size), twice, np.where(squared, 1.0, 0.0)])
    index = np.concatenate([first[row], column + lines, second[row], other + lines])
    where = np.tile(np.arange(told.size), 4)[data > 0.0], index[data > 0.0]
    E = sp.csr_array((data[data > 0.0], where), (told.size, costs + 1))
    weighed = sp.csr_array(sp.diags_array(share) @ E)
    powers = np.round(spla.lsmr(weighed, -share * told, atol=1e-10, btol=1e-10, maxiter=STEPS)[0])
    left, columns = told + E @ powers, powers[lines : lines + n]
    apart = np.ptp(powers[m:lines] if blocks else columns)
    if apart < APART or np.ptp(told[counted]) - np.ptp(left[counted]) < APART:
        return None
    if np.abs(powers).max() > MOST or np.abs(left).max() > HELD:
        return None
    rows = powers[first[:m]] + np.where(single, 0.0, powers[second[:m]])
    if side.size and not blocks:  # entries do not say in which unit points are: their sides do
        near = np.exp2(np.log2(np.abs(form.b[side])) + rows[side])
        middle = np.round(np.log2(np.median(near[near > _usual(near)])))
        rows, columns = rows - middle, columns + middle
    return np.exp2(rows), np.exp2(columns)


def equilibrated(
    row: Indices, column: Indices, sizes: Floats, shape: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Return factors of rows and columns that bring the largest entry of each near 1."""
    down, along = np.ones(shape[0]), np.ones(shape[1])
    for _ in range(PASSES):
        scaled = down[row] * sizes * along[column]
        for at, units in ((row, down), (column, along)):
            largest = np.zeros(units.size)
            np.maximum.at(largest, at, scaled)
            units /= np.sqrt(np.where(largest > 0.0, largest, 1.0))
    return down, along


def _least_largest(sizes: Floats, row: Indices, column: Indices) -> Floats:
    """Return the lesser of the largest entry of the row and that of the column of each entry."""
    each = []
    for place in (row, column):
        largest = np.zeros(place.max(initial=-1) + 1)
        np.maximum.at(largest, place, sizes)
        each.append(largest[place])
    return np.minimum(*each)


def _usual(sides: Floats) -> float:
    """Return a size below which sides are rounding of the others."""
    return float(np.ldexp(np.quantile(sides, MANY), -SIDES))
