"""Units of rows, columns and the lines of semidefinite blocks, all powers of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

# Binary digits by which lines of a block must differ, and by which all numbers must come nearer.
APART = 10.0
# Steps of the least squares.
STEPS = 200
# Numbers of a program up to which units are looked for, and the largest exponent of a unit.
LARGEST, MOST = 1_000_000, 250.0
# Largest exponent of a number then: none is lost below or above what floats hold.
HELD = 500.0


def congruence(form: ConicForm) -> tuple[Floats, Floats] | None:
    r"""Return powers of two for rows and columns that undo :math:`S \mapsto D S D` of its blocks.

    With :math:`D = \operatorname{diag}(2^{d_i})` a block S is positive semidefinite where DSD is, and no
    digit changes. The exponents of lines, rows, columns, sides and costs solve

    .. math::
        \min \sum_{a_{kl} \ne 0} (\log_2 |a_{kl}| + e_k + c_l)^2, \qquad
        e_k = d_i + d_j \text{ for an entry } (i, j),

    over all numbers of the program, which brings them near 1 as far as units can.

    Parameters
    ----------
    form : ConicForm
        The program.

    Returns
    -------
    (rows, columns) or None
        None where there is no block, or its lines are in one unit nearly.
    """
    m, n = form.A.shape
    blocks = [c for c in form.cones if c.kind == "psd" and c.order > 1]
    if not blocks or form.A.nnz + m + n > LARGEST:
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
    A, cost = sp.coo_array(form.A), np.flatnonzero(form.q)
    side = np.flatnonzero(form.b)
    # columns, then what sides and costs are measured in
    data = np.abs(np.concatenate([A.data, form.b[side], form.q[cost]]))
    row = np.concatenate([A.row, side, np.full(cost.size, m)])
    column = np.concatenate([A.col, np.full(side.size, n), cost]) + lines
    used = (data > 0.0) & np.isfinite(data)
    logs, row, column = np.log2(data[used]), row[used], column[used]
    if not logs.size or logs.max() - logs.min() < 2.0 * APART:
        return None
    costs = lines + n + 1
    first, second = np.append(first, costs), np.append(second, costs)
    half = np.where(np.append(single, True)[row], 0.0, 1.0)
    k = np.arange(logs.size)
    ones = np.ones(logs.size)
    E = sp.csr_array(
        (
            np.concatenate([ones, half, ones]),
            (np.tile(k, 3), np.r_[first[row], second[row], column]),
        ),
        shape=(logs.size, costs + 1),
    )
    found = np.round(spla.lsmr(E, -logs, atol=1e-10, btol=1e-10, maxiter=STEPS)[0])
    left, d = logs + E @ found, found[m:lines]
    nearer = logs.max() - logs.min() - (left.max() - left.min())
    if d.max() - d.min() < APART or nearer < APART:
        return None
    if np.abs(found).max() > MOST or np.abs(left).max() > HELD:
        return None
    rows = found[first[:m]] + np.where(single, 0.0, found[second[:m]])
    return np.exp2(rows), np.exp2(found[lines : lines + n])
