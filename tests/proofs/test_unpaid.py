"""What a bound may lose in columns that nothing pays for, and how large numbers in them may well be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from optfair.proofs.cones import Cone
from optfair.proofs.roots import Rooted
from optfair.proofs.unpaid import Unpaid, loosened, natural_size
from optfair.solution.conic_form import ConicForm


def form_of(A: Any, q: Any, P: Any = None) -> ConicForm:
    A = np.atleast_2d(np.asarray(A, dtype=float))
    m, n = A.shape
    bent = sp.csc_array((n, n)) if P is None else sp.csc_array(np.diag(np.asarray(P, dtype=float)))
    cones = (Cone("nonneg", 0, m),)
    return ConicForm(bent, np.asarray(q, dtype=float), 0.0, sp.csc_array(A), np.zeros(m), cones)


@pytest.mark.parametrize(
    ("A", "q", "P", "at", "size"),
    [
        ([[1.0, 1e-9]], [0.0, 0.0], None, [1], 1e9),
        ([[1.0, 1e-9]], [0.0, 0.0], None, [0], 1.0),
        ([[1.0, 1e-9], [2.0, 0.5]], [0.0, 0.0], None, [1], 4.0),  # its largest share
        ([[1.0, 1e-9]], [1.0, 1e-3], None, [1], 1e3),  # costs are a row
        ([[1.0, 1e-9]], [0.0, 0.0], [0.0, 2.0], [1], 1.0),  # what bends is as large as it bends
        ([[1.0, 1e-9]], [0.0, 0.0], [2.0, 0.0], [1], 1e9),
        ([[0.0, 1e-9]], [0.0, 0.0], None, [1], 1.0),  # a row of one entry says nothing
        ([[1.0, 1e-9, 0.0], [0.0, 1e-3, 1.0]], [0.0] * 3, None, [0, 1], 1e3),
        ([[1.0, -1e-6, 1e-4]], [0.0] * 3, None, [1, 2], 1e6),
        ([[1.0, 1.0, 0.0]], [0.0] * 3, None, [2], 1.0),  # in no row
    ],
)
def test_a_number_is_as_large_as_its_share_of_a_row_is_small(
    A: Any, q: Any, P: Any, at: list[int], size: float
) -> None:
    assert natural_size(form_of(A, q, P), np.array(at)) == pytest.approx(size, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("slope", "curve"), [(1e-9, 0.0), (0.0, 1e-14), (1e-9, 1e-14), (1.0, 0.0)])
def test_within_the_radius_no_more_is_lost_and_just_beyond_it_is(
    slope: float, curve: float, unit: float
) -> None:
    left = Unpaid(np.arange(3), slope * unit, curve * unit, size=2.0)
    radius = left.radius(1e-3 * unit)

    def lost(R: float) -> float:
        return left.slope * R + 0.5 * left.curve * 3 * (R + 2.0) ** 2

    assert lost(radius) <= 1e-3 * unit < lost(radius * (1.0 + 1e-8))
    assert left.times(4.0).radius(4e-3 * unit) == pytest.approx(radius, rel=1e-12)
    assert left.radius(0.0) == left.radius(-1.0) == left.radius(np.nan) == 0.0


@pytest.mark.parametrize("entry", [0.25, 1.0, 4.0, -0.25])
@pytest.mark.parametrize(("equal", "most"), [(0, 3.0), (1, 3.0), (2, 3.0), (1, np.inf)])
def test_rows_of_a_rounded_root_leave_room_for_all_that_it_lacks(
    entry: float, equal: int, most: float
) -> None:
    # |w| <= most, entry s <= 0 or = 0 so many times, and what the root lacks is at most 0.5 w²
    A = [[0.0, entry]] * max(equal, 1) + [[1.0, 0.0], [-1.0, 0.0]]
    m = len(A)
    cones = (Cone("zero", 0, equal), Cone("nonneg", equal, m))
    root = Rooted(1, slice(0, 1), np.array([0.5]), sp.csr_array([[1.0]]))
    b = np.append(np.zeros(m - 2), [most, most])
    form = ConicForm(
        *(sp.csc_array((2, 2)), np.zeros(2), 0.0, sp.csc_array(np.array(A)), b),
        cones if equal else cones[1:],
        rooted=(root,),
    )
    held, left = loosened(form, np.inf, None)
    assert left is None and not held.rounded
    if equal > 1 or not np.isfinite(most):  # which s they mean cannot be said: nothing is
        assert (held.b[:-2] == 0.0).all() and not held.A.toarray()[:-2].any()
        return
    assert (held.A.toarray() == np.array(A)).all()
    room = held.b[0] / entry
    if equal or entry > 0.0:
        assert 4.5 * (1.0 + 1e-10) <= room <= 4.5 * (1.0 + 1e-8)
    else:  # that s is not negative, which it is not
        assert held.b[0] == 0.0
    assert held.b[-2:].tolist() == [most, most]


@pytest.mark.parametrize("entry", [0.25, 4.0])
@pytest.mark.parametrize(
    ("prices", "reach"),
    [
        ((1e-3, 1e-20), 2e3 * 5.0),  # the row that charges most counts
        ((1e-20, 1e-22), np.sqrt(1e-9 / 0.5e-20)),  # to what costs next to nothing more is allowed
    ],
)
def test_a_root_is_charged_within_a_reach_where_nothing_bounds_its_columns(
    entry: float, prices: tuple[float, float], reach: float
) -> None:
    A = sp.csc_array([[0.0, entry], [0.0, entry]])
    root = Rooted(1, slice(0, 1), np.array([0.5]), sp.csr_array([[1.0]]))
    form = ConicForm(
        *(sp.csc_array((2, 2)), np.zeros(2), 0.0, A, np.zeros(2)),
        (Cone("nonneg", 0, 2),),
        rooted=(root,),
    )
    held, left = loosened(form, np.inf, (np.array([-5.0, 0.0]), np.array(prices)))
    assert left is not None and left.reach == pytest.approx(reach, rel=1e-12)
    assert (left.columns.tolist(), left.slope, left.curve, left.here) == ([0], 0.0, 0.0, 0.0)
    assert left.size == 5.0 and left.natural == 1.0
    room = held.b / entry  # of any point within the reach
    assert (0.5 * reach**2 <= room).all() and (room <= 0.5 * reach**2 * (1.0 + 1e-8)).all()
    # nothing is lost within the reach, and beyond it nothing is known
    assert left.radius(1e-300) == left.reach and held.A.toarray().tolist() == A.toarray().tolist()
