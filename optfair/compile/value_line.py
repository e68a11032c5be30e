r"""A line under the optimal value along a segment of right-hand sides, from one pair of multipliers.

For :math:`v(t) = \min_x \{f(x) + c t : b_0 + t b_1 - A x \in K\}` put t among the columns:

.. math:: v(t) \ge s t + \min_{x, t} \{f(x) + (c - s) t : b_0 + t b_1 - A x \in K,\; l \le t \le u\}.

The minimum is bounded like that of any cone program, so the line holds on the whole segment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from optfair.numbers import Floats
from optfair.proofs.bounds import LowerBound
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm

# What a right-hand side on the segment may be off the line between its ends, of their size: it
# is rounded twice at every t.
ROUNDED = 64.0 * np.finfo(float).eps


@dataclass(frozen=True)
class ValueLine:
    """``value + slope * (t - start)`` bounds the optimal value of the minimisation from below.

    Attributes
    ----------
    start, value, slope : float
        The line.
    sound : bool
        Whether it is proved, not only near the origin.
    """

    start: float
    value: float
    slope: float
    sound: bool

    def __call__(self, t: float) -> float:
        """Return the line at t, rounded down."""
        step = self.slope * (t - self.start)
        off = 4.0 * np.finfo(float).eps * (abs(step) + abs(self.value))
        return float(self.value + step - off)


def same_rows(one: ConicForm, other: ConicForm) -> bool:
    """Whether two forms differ in right-hand sides and constants at most."""
    return (
        one.cones == other.cones
        and np.array_equal(one.q, other.q)
        and all(_equal(getattr(one, k), getattr(other, k)) for k in ("A", "P"))
    )


def _equal(one: Any, other: Any) -> bool:
    return one is other or (one.shape == other.shape and abs(one - other).max() == 0.0)


def value_line(
    ends: tuple[ConicForm, ConicForm],
    low: float,
    high: float,
    z: Floats,
    bound: Callable[[ConicForm, Floats, Floats], LowerBound],
) -> ValueLine | None:
    """Return the line that multipliers prove between two right-hand sides.

    Parameters
    ----------
    ends : tuple of ConicForm
        The program at both ends of the segment; their rows are the same.
    low, high : float
        The parameter there.
    z : array (m,)
        Multipliers at some point of the segment.
    bound : callable
        (form, columns, rows) -> what is proved of a form with further columns behind those of the
        program and further rows behind its rows: zeros, one for each.

    Returns
    -------
    ValueLine or None
        None where nothing is proved, or the rows differ.
    """
    first, last = ends
    if not same_rows(first, last) or not high > low:
        return None
    m = first.A.shape[0]
    move = (last.b - first.b) / (high - low)
    rate = (last.offset - first.offset) / (high - low)
    reach = max(abs(low), abs(high))
    size = np.abs(first.b) + np.abs(last.b) + np.abs(move) * reach
    moved = np.flatnonzero(move)
    slack = ROUNDED * size[moved]
    k = moved.size
    up = sp.csr_array((np.ones(k), (moved, np.arange(k))), shape=(m, k))
    t_column = sp.csr_array((-move[moved], (moved, np.zeros(k, dtype=int))), shape=(m, 1))
    unit, eye = sp.csr_array([[1.0]]), sp.eye_array(k, format="csr")
    A = sp.csc_array(
        sp.block_array(
            [
                [first.A, t_column, up],
                [None, unit, None],
                [None, -unit, None],
                [None, None, eye],
                [None, None, -eye],
            ]
        )
        if k
        else sp.block_array([[first.A, t_column], [None, unit], [None, -unit]])
    )
    b = np.concatenate([first.b, [high - low, 0.0], slack, slack])
    slope = rate - float(move @ z)
    form = replace(
        first,
        A=A,
        b=b,
        P=sp.csc_array(sp.block_diag([first.P, sp.csc_array((1 + k, 1 + k))])),
        q=np.concatenate([first.q, [rate - slope], np.zeros(k)]),
        cones=(*first.cones, Cone("nonneg", m, m + 2 + 2 * k)),
    )
    proved = bound(form, np.zeros(1 + k), np.zeros(2 + 2 * k))
    if not np.isfinite(proved.value):
        return None
    off = ROUNDED * (abs(first.offset) + abs(last.offset) + abs(rate) * reach)
    return ValueLine(low, float(proved.value - off), slope, proved.unpaid is None)
