"""The size of a number in each column of a cone program, by which rows are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optfair.numbers import Floats, Indices
from optfair.proofs.rounding import coordinates, equilibrated

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

# Right-hand sides, the largest of which is less, are in a unit of their own; least largest number of a
# row, and the inverse of the most, from which units are sought.
LEAST, FAINT = 1e-290, 1e-60
# Auxiliary columns in turn through which the unit of one is that of another.
CHAINED = 8


def column_units(form: ConicForm) -> Floats:
    r"""Return :math:`1 / d_j`, where d equilibrates the rows with their right-hand sides.

    An auxiliary column counts for no more than what stands beside it in its rows and cones: t of
    :math:`\lVert e x \rVert \le t \le e y` is in the unit of e x, however small e is.

    Parameters
    ----------
    form : ConicForm
        The program.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> from optfair.compile.form import compile_problem
    >>> x, e = cp.Variable(2, name="x"), 2.0**-40
    >>> rows = [cp.norm(e * x) <= e * x[0] + e, x >= -1]
    >>> form = compile_problem(of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), rows)), "CLARABEL").form
    >>> np.log2(column_units(form)).round().tolist()
    [0.0, 0.0, -40.0]
    """
    m, n = form.A.shape
    row, column, entry = coordinates(form.columns_of_rows)
    i, j = np.append(row, np.arange(m)), np.append(column, np.full(m, n))
    # a row in units that steps would lead out of the floats says what it says in nearer ones
    top = np.fmax(np.asarray(form.sizes.max(axis=1).todense()).ravel(), np.abs(form.b))
    own = np.maximum(np.minimum(1.0, np.minimum(top, 1.0) / FAINT), FAINT * top)
    own = np.where((top > 0.0) & np.isfinite(top), own, 1.0)
    b = form.b / own
    side = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    side = side if 0.0 < side < LEAST else 1.0  # the inverse of smaller ones is no float
    sizes = np.abs(np.concatenate([entry / own[row], b / side]))
    used = (sizes > 0.0) & np.isfinite(sizes)
    units = equilibrated(i[used], j[used], sizes[used], (m, n + 1))[1]
    return _beside(form, np.asarray(units[:-1] / units[-1] * side))


def blocks_of(form: ConicForm) -> Indices:
    """Return the first row of the cone that each row is in, itself where it is alone."""
    block = np.arange(form.b.size)
    for c in form.cones:
        at = np.arange(c.start, c.stop)
        if c.kind in ("exp", "pow"):  # cones of three entries, one after the other
            block[at] = at - (at - c.start) % 3
        elif c.kind not in ("zero", "nonneg"):
            block[at] = c.start
    return block


def _auxiliary(form: ConicForm) -> NDArray[np.bool_]:
    """Return which columns are of no declared variable, none where nothing is known of these."""
    auxiliary = np.full(form.q.size, bool(form.columns))
    for declared in form.columns.values():
        auxiliary[declared] = False
    return auxiliary


def shrunk(form: ConicForm) -> Floats:
    """Return the units of auxiliary columns that are below 1, and 1 for others."""
    auxiliary = _auxiliary(form)
    if not auxiliary.any():
        return np.ones(form.q.size)
    return np.where(auxiliary, np.minimum(1.0, form.column_units), 1.0)


def _beside(form: ConicForm, units: Floats) -> Floats:
    """Return the units with those of auxiliary columns no larger than what stands beside them."""
    auxiliary = _auxiliary(form)
    if not auxiliary.any():
        return units
    row, column, entry = coordinates(form.columns_of_rows)
    block, size, most = form.blocks[row], np.abs(entry), np.zeros(form.b.size)
    np.maximum.at(most, form.blocks, np.where(np.isfinite(form.b), np.abs(form.b), 0.0))
    known = ~auxiliary[column]
    np.maximum.at(most, block[known], size[known] * units[column[known]])
    known |= size == 0.0
    block, column, size = block[~known], column[~known], size[~known]
    own = np.where(auxiliary, 0.0, units)
    for _ in range(CHAINED):
        terms, first, second = size * own[column], most.copy(), most.copy()
        np.maximum.at(first, block, terms)
        whose = np.full(most.size, -1)
        largest = terms == first[block]
        whose[block[largest]] = column[largest]
        other = whose[block] != column
        np.maximum.at(second, block[other], terms[other])
        beside, nearest = np.where(other, first[block], second[block]), np.zeros(units.size)
        with np.errstate(over="ignore"):
            np.maximum.at(nearest, column, beside / size)
        before, own = own, np.where(auxiliary, np.minimum(units, nearest), units)
        if (own == before).all():
            break
    return np.where(own > 0.0, own, units)
