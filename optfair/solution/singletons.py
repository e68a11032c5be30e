"""Rows of one entry, which are bounds of columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

# A row of one entry is a bound of its column unless the entry is this large, or its inverse is:
# what it may be violated by is counted in the units of the column then.
STEEPEST = 2.0**10


class Singletons:
    """The rows of one entry of a polyhedral form: bounds of their columns, which take no pivot.

    Parameters
    ----------
    form : ConicForm
        Zero and nonnegative cones only.
    integer : array (n,) of bool, optional
        Columns whose bounds must be whole numbers: HiGHS 1.15 is wrong beside others.
    most : float
        Entries that count are between this and its inverse.
    """

    def __init__(
        self, form: ConicForm, integer: NDArray[np.bool_] | None = None, most: float = STEEPEST
    ) -> None:
        rows, self.size = form.rows, (form.b.size, form.q.size)
        single = np.diff(rows.indptr) == 1
        at = rows.indptr[:-1][single]
        entry, stated = np.abs(rows.data[at]), np.ones(at.size, dtype=bool)
        if integer is not None and integer.any():
            with np.errstate(invalid="ignore"):
                stated = ~integer[rows.indices[at]] | (form.b[single] % entry == 0.0)
        single[single] = (entry * most >= 1.0) & (entry <= most) & stated
        self.rows, self.others = np.flatnonzero(single), np.flatnonzero(~single)
        at = rows.indptr[self.rows]
        self.column, self.entry, self.equal = rows.indices[at], rows.data[at], form.equal[self.rows]
        self.A = rows[self.others] if self.rows.size else rows

    def limits(self, b: Floats, held: NDArray[np.bool_] | None = None) -> Limits:
        """Return the tightest bounds that rows with right-hand sides b state, of those that hold."""
        n = self.size[1]
        lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
        least, most = np.full(n, -1), np.full(n, -1)
        on = np.ones(self.rows.size, dtype=bool) if held is None else held[self.rows]
        stated = b[self.rows] / self.entry
        for bound, owner, side, sign in (
            (upper, most, (self.entry > 0.0) | self.equal, 1.0),
            (lower, least, (self.entry < 0.0) | self.equal, -1.0),
        ):
            at = np.flatnonzero(on & side)
            order = at[np.argsort(-sign * stated[at], kind="stable")]  # the tightest last
            bound[self.column[order]] = stated[order]
            owner[self.column[order]] = order
        return Limits(self, lower, upper, least, most)


@dataclass(frozen=True, eq=False)
class Limits:
    """Bounds (n,) of the columns, and which row of one entry states each, -1 where none does."""

    of: Singletons
    lower: Floats
    upper: Floats
    least: NDArray[np.intp]
    most: NDArray[np.intp]

    def crossed(self, tolerance: float) -> tuple[Limits, Floats | None]:
        """Return the limits with those that cross by a tolerance brought together.

        Where they are further apart, a Farkas vector of the form is returned with them.
        """
        lower, upper = self.lower, self.upper
        apart = np.where(np.isfinite(lower) & np.isfinite(upper), lower - upper, -np.inf)
        j = int(apart.argmax()) if apart.size else 0
        if not apart.size or apart[j] <= 0.0:
            return self, None
        if apart[j] > tolerance:
            z = np.zeros(self.of.size[0])
            for k, sign in ((self.least[j], -1.0), (self.most[j], 1.0)):
                z[self.of.rows[k]] = sign / self.of.entry[k]
            return self, z
        at, lower, upper = apart > 0.0, lower.copy(), upper.copy()
        lower[at] = upper[at] = 0.5 * lower[at] + 0.5 * upper[at]
        return replace(self, lower=lower, upper=upper), None

    def multipliers(self, others: Floats, left: Floats) -> Floats:
        """Return multipliers (m,) of all rows: of the others, and of bounds what is left of columns."""
        z = np.zeros(self.of.size[0])
        z[self.of.others] = others
        for side, owner in ((left < 0.0, self.most), (left > 0.0, self.least)):
            j = np.flatnonzero(side & (owner >= 0))
            k = owner[j]
            z[self.of.rows[k]] -= left[j] / self.of.entry[k]
        return z
