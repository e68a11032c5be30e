"""What multipliers prove of a program of which only some numbers move, in a few products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.columns import declared_bounds, linear_rows, propagated
from optfair.proofs.moves import value_of, with_offset
from optfair.proofs.residual import residual_of
from optfair.proofs.rounding import UNIT, Floats, gamma

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


# Columns that may be without a bound and without curvature.
OPEN = 500
# Room for sums of nonnegative numbers that are computed.
ROOM = 1.0 + 1e-9


class KeptBound:
    r"""The bound of `lower_bound` where only right-hand sides and costs move, in a few products.

    With :math:`r = Px + q + A^T z`, z in the dual cone, :math:`P \succeq \operatorname{diag}(\mu)`,

    .. math::
        f(y) \ge -\tfrac12 x^T P x - b^T z + \sum_j \min_{y_j}
        \bigl( r_j y_j + \tfrac12 \mu_j (y_j - x_j)^2 \bigr),

    and a column costs :math:`|r_j| \max(|l_j|, |u_j|)` between bounds of its own, or
    :math:`|r_j x_j| + r_j^2 / 2 \mu_j` with curvature. So does one between bounds that rows imply
    whose right-hand sides do not move. The open columns U, which have none of these,
    must cancel: with the equations E, :math:`z_E` moves by
    :math:`\delta = -A_{EU}^{-T} r_U`, which is never computed but bounded by an approximate
    inverse B and :math:`\rho = \| I - B A_{EU}^T \|_\infty < 1`,

    .. math:: |\delta| \le |B| |r_U| + \frac{\rho}{1 - \rho} \bigl\| |B| |r_U| \bigr\|_\infty

    and costs :math:`|b_E|^T |\delta|` and the residual :math:`|A_E|^T |\delta|` elsewhere. All of it
    is known but for the numbers that move.

    Parameters
    ----------
    form : ConicForm
        Points and half-lines only, with a curvature that is proved without a shift.
    moving : array (m,) of bool, optional
        Rows whose right-hand sides move; by default all.

    Raises
    ------
    ValueError
        The open columns do not cancel, or there are too many: `lower_bound` says more.

    Examples
    --------
    >>> from optfair.proofs.cones import Cone
    >>> from optfair.solution.conic_form import ConicForm
    >>> A, b = sp.csc_array([[1.0, -1.0], [-1.0, 0.0]]), np.array([0.0, -1.0])
    >>> P, cones = sp.csc_array([[0.0, 0.0], [0.0, 1.0]]), (Cone("zero", 0, 1), Cone("nonneg", 1, 2))
    >>> form = ConicForm(P, np.zeros(2), 0.0, A, b, cones)
    >>> kept = KeptBound(form)
    >>> bound = kept(form, np.ones(2), np.array([1.0, 1.0]))
    >>> bound < 0.5, round(bound, 9)
    (True, 0.5)
    """

    def __init__(self, form: ConicForm, moving: NDArray[np.bool_] | None = None) -> None:
        curvature = form.curvature
        curved = form.rooted or any(c.kind not in ("zero", "nonneg") for c in form.cones)
        if curvature.shift != 0.0 or curved:
            raise ValueError("not of points and half-lines, or not convex without a shift")
        n, rows = form.q.size, form.rows
        self._nonneg = form.nonnegative
        self._floor = np.zeros(n) if curvature.floor is None else curvature.floor
        lower, upper = form.column_bounds
        boxed = np.isfinite(lower) & np.isfinite(upper)
        # a bound is one of the sides of rows of one entry, whichever: the largest is paid for
        single = np.flatnonzero(np.diff(rows.indptr) == 1)
        at = rows.indptr[single]
        single, at = single[rows.data[at] != 0.0], at[rows.data[at] != 0.0]
        order = np.argsort(rows.indices[at], kind="stable")
        self._single, at = single[order], at[order]
        self._entry = np.abs(rows.data[at])
        columns, self._first = np.unique(rows.indices[at], return_index=True)
        self._column, self._kept = columns[boxed[columns]], boxed[columns]
        self._boxed = boxed
        self._curved = ~boxed & (self._floor > 0.0)
        opened = np.flatnonzero(~boxed & ~self._curved)
        self._fixed, self._sides = np.zeros(0, dtype=np.intp), np.zeros(0)
        self._implied, self._reach = opened[:0], np.zeros(0)
        if moving is not None and opened.size:
            opened = self._bounded(form, opened, moving)
        equal = np.flatnonzero(form.equal)
        if opened.size > min(OPEN, equal.size):
            raise ValueError(f"{opened.size} columns without a bound")
        self._open, self._equal = opened, equal[:0]
        if opened.size:
            self._cancel(form, equal)

    def _bounded(
        self, form: ConicForm, opened: NDArray[np.int64], moving: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Bound open columns by the rows that stay, and return those that are left."""
        rows = linear_rows(form)
        rows.low[moving], rows.high[moving] = -np.inf, np.inf

        def suffice(lower: Floats, upper: Floats) -> bool:
            return bool((np.isfinite(lower) & np.isfinite(upper))[opened].all())

        ends = propagated(rows, *declared_bounds(rows), suffice)
        reach = np.abs(np.array(ends))[:, opened].max(axis=0)
        held = np.isfinite(reach)
        self._implied, self._reach = opened[held], reach[held]
        if held.any():
            self._fixed = np.flatnonzero(~moving)
            self._sides = form.b[self._fixed]
        left: NDArray[np.int64] = opened[~held]
        return left

    def _cancel(self, form: ConicForm, equal: NDArray[np.int64]) -> None:
        """Choose the equations that cancel the open columns, and invert them."""
        M = form.rows[equal][:, self._open].toarray().T
        _, _, order = scipy.linalg.qr(M, mode="economic", pivoting=True)
        chosen = np.sort(order[: self._open.size])
        M, self._equal = np.ascontiguousarray(M[:, chosen]), equal[chosen]
        try:
            B = np.linalg.inv(M)
        except np.linalg.LinAlgError:
            raise ValueError("open columns that the equations do not cancel") from None
        size = np.abs(B)
        with np.errstate(over="ignore", invalid="ignore"):
            off = np.abs(np.eye(len(M)) - B @ M) + 2.0 * UNIT
            off += gamma(2.0 * len(M) + 4.0) * (size @ np.abs(M))
            rho = float(off.sum(axis=1).max()) * ROOM
        if not rho < 0.5:
            raise ValueError("open columns that the equations hardly cancel")
        self._inverse, self._slack = size * ROOM, rho / (1.0 - rho) * ROOM
        self._elsewhere = sp.csr_array(abs(form.rows[self._equal]).T)

    def __call__(self, form: ConicForm, x: Floats, z: Floats) -> float:
        """Return a float below the objective of every feasible point, -inf where nothing is proved.

        Parameters
        ----------
        form : ConicForm
            With the matrix and the curvature this was made of.
        x, z : array
            Any point, and any vector that is not negative on inequalities.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if not (z[self._nonneg] >= 0.0).all():
                return -np.inf
            if self._fixed.size and not np.array_equal(form.b[self._fixed], self._sides):
                return -np.inf
            rest = residual_of(form, x, z, form.q).size
            value, radius = value_of(form, x, z)
            cost = 0.0
            if self._open.size:
                moved = self._inverse @ rest[self._open]
                moved = (moved + self._slack * moved.max()) * ROOM
                rest = (rest + self._elsewhere @ moved) * ROOM
                cost = float(np.abs(form.b[self._equal]) @ moved)
            if self._column.size:
                sides = np.abs(form.b[self._single]) / self._entry
                reach = np.maximum.reduceat(sides, self._first)[self._kept]
                cost += float(rest[self._column] @ reach)
            cost += float(rest[self._implied] @ self._reach)
            at = self._curved
            if at.any():
                own = rest[at]
                cost += float(own @ (np.abs(x[at]) + own / self._floor[at]))
            bound = value - (radius + cost + 16.0 * UNIT * abs(value)) * ROOM - 1e-300
            bound = with_offset(form, bound)
        return bound if np.isfinite(bound) else -np.inf
