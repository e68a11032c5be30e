"""Columns that nothing pays for: what a bound may lose in them, and rows of rounded roots that charge them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.proofs.columns import (
    declared_bounds,
    linear_rows,
    propagated,
    rotated_rows,
    with_cut,
)
from optfair.proofs.residual import Ints
from optfair.proofs.roots import zeroing_rows
from optfair.proofs.rounding import Floats

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

# Radius within which rounded roots are charged at least, in sizes of the point: one of half as much
# is granted; and the share of the objective that it may cost to have more.
REACH, CHARGE = 2e3, 1e-9


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
    reach : float
        Nothing is said of larger |y_j|.
    unit : float
        Least unit of these columns: what is said of y_j here is said of that times y_j.
    """

    columns: Ints
    slope: float
    curve: float
    size: float
    here: float = 0.0
    natural: float = 1.0
    reach: float = np.inf
    unit: float = 1.0

    def times(self, factor: float) -> Unpaid:
        """Return the same for an objective multiplied by a positive factor."""
        parts = (self.slope * factor, self.curve * factor)
        return replace(self, slope=parts[0], curve=parts[1], here=self.here * factor)

    def spread(self, copies: Ints, factor: float) -> Unpaid:
        """Return the same where columns count for others, which are so many times as large then."""
        return replace(self.times(factor), columns=np.union1d(self.columns, copies))

    def joined(self, other: Unpaid | None) -> Unpaid:
        """Return what the lesser of two bounds may lose."""
        if other is None:
            return self
        names = ("slope", "curve", "size", "here", "natural")
        parts = {name: max(getattr(self, name), getattr(other, name)) for name in names}
        least = ("reach", "unit")
        parts |= {name: min(getattr(self, name), getattr(other, name)) for name in least}
        return Unpaid(np.union1d(self.columns, other.columns), **parts)

    @property
    def near(self) -> float:
        """What the bound loses within the size that a radius has to be clear of."""
        size = max(1.0, self.size, self.natural)
        return self.slope * size + 2.0 * self.curve * self.columns.size * size * size

    def radius(self, loss: float) -> float:
        """Return the largest R for which the bound is short by no more than ``loss``."""
        if not loss > 0.0:
            return 0.0
        bend = 0.5 * self.curve * self.columns.size
        # slope R + bend (R + size)² <= loss
        rate = self.slope + 2.0 * bend * self.size
        left = loss * (1.0 - 1e-9) - bend * self.size * self.size
        if not (left > 0.0 and np.isfinite(rate)):
            return 0.0
        if rate == 0.0 and bend == 0.0:
            return self.reach
        with np.errstate(over="ignore"):
            reach = 2.0 * left / (rate + np.sqrt(rate * rate + 4.0 * bend * left))
        return float(min(reach * (1.0 - 1e-9), np.finfo(float).max, self.reach))


def natural_size(form: ConicForm, at: Ints) -> float:
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


def loosened(
    form: ConicForm, upper: float, pair: tuple[Floats, Floats] | None
) -> tuple[ConicForm, Unpaid | None]:
    """Return the form with rows that every feasible point obeys, where those of roots are rounded.

    Parameters
    ----------
    form : ConicForm
        The program.
    upper : float
        A value of the objective that points may be held to.
    pair : (x, z) or None
        Forms of columns without bounds are as near as they are within a multiple of x, more where z
        charges little; it is returned. None leaves them out.
    """
    rounded = form.rounded
    if not rounded:
        return form, None
    rows = linear_rows(form)
    single, which, entry = zeroing_rows(form)
    # of s is known that it is not negative
    rows.low[single] = np.where(entry > 0.0, 0.0, -np.inf)
    rows.high[single] = np.where(entry > 0.0, np.inf, 0.0)
    wanted = np.concatenate([np.arange(r.own.start, r.own.stop)[r.charged] for r in rounded])

    def suffice(lower: Floats, upper: Floats) -> bool:
        return bool(np.isfinite(lower[wanted]).all() and np.isfinite(upper[wanted]).all())

    lower, above = declared_bounds(rows)
    lower, above = propagated(rows, lower, above, suffice)
    if not suffice(lower, above):
        rows = with_cut(form, rows, upper).below(*rotated_rows(form))
        lower, above = propagated(rows, lower, above, suffice)
    far = np.maximum(np.abs(lower), np.abs(above))
    unpaid, open_ones = None, wanted[~np.isfinite(far[wanted])]
    if pair is not None and open_ones.size:
        size, natural = float(np.abs(pair[0]).max(initial=0.0)), natural_size(form, open_ones)
        price = float(np.abs(pair[1][single]).max(initial=0.0))
        rate = max(price * sum(float(r.share[r.charged].sum()) for r in rounded), 1e-300)
        spare = CHARGE * max(form.unit, abs(form.objective(pair[0])))
        reach = max(REACH * max(1.0, size, natural), float(np.sqrt(spare / rate)))
        far[open_ones] = reach
        unpaid = Unpaid(open_ones, 0.0, 0.0, size, 0.0, natural, reach)
    b, kept = form.b.copy(), np.ones(form.b.size)
    for r in rounded:
        used = r.share > 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            most = float(r.share[used] @ far[r.own][used] ** 2) * (1.0 + 1e-9) + 1e-300
        at, factor = single[which == r.column], entry[which == r.column]
        if np.isfinite(most) and np.count_nonzero(form.equal[at]) < 2:
            b[at] = np.where(form.equal[at] | (factor > 0.0), factor * most, b[at])
        else:  # nothing is said of s
            b[at] = kept[at] = 0.0
    numbers: dict[str, Any] = {"b": b, "rooted": ()}
    if not kept.all():
        numbers["A"] = sp.csc_array(sp.diags_array(kept) @ form.A)
    return form.moved(numbers), unpaid
