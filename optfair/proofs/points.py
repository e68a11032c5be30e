"""Points of a cone program, and directions it recedes along, that exist near given ones."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.cones import Cone, SecondOrder, beside_diagonals
from optfair.proofs.elimination import independent
from optfair.proofs.equations import correction
from optfair.proofs.rounding import (
    UNIT,
    Floats,
    coordinates,
    dot,
    exact_products,
    product,
    reached,
    unscaled,
)

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

# A direction is named by floats that are so near to it, relative to the largest.
NEAR = 1e-6


def recession_faults(form: ConicForm, d: Floats) -> list[str]:
    r"""Return why the objective does not provably fall for ever along a direction near d.

    Needed are :math:`-Ad \in K`, :math:`Pd = 0`, that of forms in rows too, and :math:`q^T d < 0`, in exact arithmetic;
    empty when a direction with all three exists.
    """
    if d.shape != form.q.shape or not np.isfinite(d).all():
        return ["it is not a finite vector with an entry per column"]
    if any(np.isinf(r.share).any() for r in form.rooted):
        return ["rows have formulas with rounded constants"]
    A, cones, flat = form.A, form.cones, []
    if form.P.nnz:
        flat.append(sp.coo_array(form.P))
    for r in form.rooted:
        part = sp.coo_array(r.matrix)
        places = part.row + r.own.start, part.col + r.own.start
        flat.append(sp.coo_array((part.data, places), shape=(d.size, d.size)))
    if flat:
        rows = sp.csr_array(sp.vstack(flat))
        rows = rows[np.flatnonzero(np.diff(rows.indptr))]
        start = form.b.size
        A = sp.csc_array(sp.vstack([A, rows]))
        cones = (*cones, Cone("zero", start, start + rows.shape[0]))
    step = feasible_near(A, np.zeros(A.shape[0]), cones, d)
    if step is None or step.max(initial=0.0) > NEAR * np.abs(d).max(initial=0.0):
        off = product(form.P, d)[0] if form.P.nnz else np.zeros(1)
        bend = float(np.abs(off).max(initial=0.0))
        if bend > 1e-6 * float(np.abs(d).max(initial=0.0)):
            return [f"the quadratic part of the objective bends it by {bend:.1e}"]
        return ["it is not proved to stay within the recession cone"]
    center, radius = dot(form.q, d)
    radius += float(np.abs(form.q) @ step) * (1.0 + 1e-9)
    if not center + radius < 0.0:
        return ["the objective does not improve along it"]
    return []


# A slack below this share of the terms it is the difference of counts as none.
TIGHT = 1e-6


def _vanishing(A: Any, b: Floats, x: Floats, at: NDArray[Any]) -> NDArray[Any]:
    """Return those of some rows beside diagonals that are 0 in the entries that were declared."""
    both: Any = sp.csc_array(sp.hstack([A[at], sp.csr_array(b[at][:, None])]).T)
    both.data, sure = unscaled(both.data)
    point, (column, row, _) = np.append(-x, 1.0), coordinates(both)
    unknown = np.bincount(row, ~sure & (point[column] != 0.0), at.size) > 0.0
    center, radius = exact_products(both, point, np.arange(at.size))
    return np.asarray(at[(center == 0.0) & (radius == 0.0) & ~unknown])


def feasible_near(A: Any, b: Floats, cones: tuple[Cone, ...], x: Floats) -> Floats | None:
    r"""Return how far a point with :math:`b - Ax \in K` exactly is from x, None if unproved.

    Rows that hold exactly or with room are left; the others are taken as equations, which a
    point near x is proved to solve. Curved cones need room.

    Parameters
    ----------
    A, b, cones
        The constraints, their floats taken as exact.
    x : array (n,)
        A point that nearly satisfies them.

    Returns
    -------
    array (n,) or None
        Bound on the distance of each entry.

    Examples
    --------
    >>> A, b = sp.csc_array([[1.0, 1.0]]), np.array([0.3])
    >>> feasible_near(A, b, (Cone("zero", 0, 1),), np.array([0.1, 0.2])) <= 1e-15
    array([ True,  True])
    """
    if x.shape != (A.shape[1],) or not np.isfinite(x).all() or not np.isfinite(b).all():
        return None
    A = sp.csr_array(A)
    moved, off = product(A, x)
    size, s = abs(A) @ np.abs(x) + np.abs(b), b - moved
    close = s - off <= TIGHT * size
    if curved := SecondOrder.of(cones):  # on the boundary as far as floats show
        less = s.copy()
        less[curved.heads] -= TIGHT * np.maximum.reduceat(size[curved.rows], curved.starts)
        close[curved.rows] |= curved.spread(curved.distances(less) > 0.0)
    unsure = np.flatnonzero(close)
    sides = sp.csc_array(b[None, :])
    exact, rest = exact_products(sp.csc_array(A.T), -x, unsure, ((sides, np.ones(1)),))
    s[unsure], off[unsure] = exact, rest
    if (beside := beside_diagonals(cones, b.size)).any():
        off[beside] += 4.0 * UNIT * size[beside]
        beside &= ~beside_diagonals(cones, b.size, mixed=True)
        none = _vanishing(A, b, x, unsure[beside[unsure]])
        s[none] = off[none] = 0.0
    tight, linear = np.zeros((2, b.size), dtype=bool)
    for c in cones:
        at = slice(c.start, c.stop)
        linear[at] = c.kind in ("zero", "nonneg")
        if c.kind == "zero":
            tight[at] = (s[at] != 0.0) | (off[at] != 0.0)
        elif c.kind == "nonneg":
            tight[at] = ~(s[at] - off[at] >= 0.0)
        elif c.outside(s[at], off[at]) > 0.0:
            return None
    if not tight.any():
        return np.zeros(x.size)
    # rows at their bound move with the others: they are equations too
    equal = linear & (tight | (s <= TIGHT * size))
    single = np.diff(A.indptr) == 1
    # columns held at a bound stay there
    room = np.full(x.size, np.inf)
    room[A.indices[A.indptr[np.flatnonzero(equal & single & ~tight)]]] = 0.0
    # rows of columns that stay do not change: they hold as they are, or nothing mends them
    still = ~(abs(A) @ (room > 0.0) > 0.0)
    if (tight & still).any():
        return None
    equations = np.flatnonzero(equal & ~(single & ~tight) & ~still)
    missing = np.abs(s[equations]) + off[equations]
    step = correction(A[equations], missing, room)
    if step is None:  # equations that follow from others are left out, where that is exact
        kept = independent(A[equations], [Fraction(v) for v in b[equations].tolist()])
        step = correction(A[equations][kept], missing[kept], room) if kept else None
    if step is None and (due := missing > 0.0).any():  # what holds exactly stays as it is
        room = np.where(abs(A[equations]).T @ (missing == 0.0) > 0.0, 0.0, room)
        step = correction(A[equations][due], missing[due], room)
    if step is None or not np.isfinite(step).all():
        return None
    change = reached(abs(A), step)
    left = ~equal & linear
    if not (s[left] - off[left] >= change[left]).all():
        return None
    for c in cones:
        if c.kind not in ("zero", "nonneg"):
            at = slice(c.start, c.stop)
            if change[at].any() and c.outside(s[at], off[at] + change[at]) > 0.0:
                return None
    return step
