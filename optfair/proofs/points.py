"""Whether a point satisfying a cone program, or a direction it recedes along, exists near a given one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.cones import Cone
from optfair.proofs.rounding import correction, dot, exact_products, product

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]

# A slack below this share of the terms it is the difference of counts as none.
TIGHT = 1e-6
# A direction is named by floats that are so near to it, relative to the largest.
NEAR = 1e-6


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
    >>> from optfair.proofs.cones import Cone
    >>> A, b = sp.csc_array([[1.0, 1.0]]), np.array([0.3])
    >>> feasible_near(A, b, (Cone("zero", 0, 1),), np.array([0.1, 0.2])) <= 1e-15
    array([ True,  True])
    """
    if x.shape != (A.shape[1],) or not np.isfinite(x).all() or not np.isfinite(b).all():
        return None
    moved, off = product(A, x)
    rows = sp.csc_array(sp.csr_array(A).T)
    size = abs(sp.csr_array(A)) @ np.abs(x) + np.abs(b)
    s = b - moved
    unsure = np.flatnonzero(s - off <= TIGHT * size)
    sides = sp.csc_array(b[None, :])
    exact, rest = exact_products(rows, -x, unsure, ((sides, np.ones(1)),))
    s[unsure], off[unsure] = exact, rest
    tight = np.zeros(b.size, dtype=bool)
    for c in cones:
        at = slice(c.start, c.stop)
        if c.kind == "zero":
            tight[at] = (s[at] != 0.0) | (off[at] != 0.0)
        elif c.kind == "nonneg":
            tight[at] = ~(s[at] - off[at] >= 0.0)
        elif c.outside(s[at], off[at]) > 0.0:
            return None
    if not tight.any():
        return np.zeros(x.size)
    # rows at their bound move with the others: they are equations too
    linear = np.zeros(b.size, dtype=bool)
    for c in cones:
        if c.kind in ("zero", "nonneg"):
            linear[c.start : c.stop] = True
    equal = linear & (tight | (s <= TIGHT * size))
    A = sp.csr_array(A)
    single = np.diff(A.indptr) == 1
    # columns held at a bound stay there
    room = np.full(x.size, np.inf)
    room[A.indices[A.indptr[np.flatnonzero(equal & single & ~tight)]]] = 0.0
    equations = np.flatnonzero(equal & ~(single & ~tight))
    step = correction(A[equations], np.abs(s[equations]) + off[equations], room)
    if step is None or not np.isfinite(step).all():
        return None
    change = (abs(A) @ step) * (1.0 + 1e-9)
    left = ~equal & linear
    if not (s[left] - off[left] >= change[left]).all():
        return None
    for c in cones:
        if c.kind not in ("zero", "nonneg"):
            at = slice(c.start, c.stop)
            if change[at].any() and c.outside(s[at], off[at] + change[at]) > 0.0:
                return None
    return step


def recession_faults(form: ConicForm, d: Floats) -> list[str]:
    r"""Return why the objective does not provably fall for ever along a direction near d.

    Needed are :math:`-Ad \in K`, :math:`Pd = 0` and :math:`q^T d < 0`, in exact arithmetic;
    empty when a direction with all three exists.
    """
    if d.shape != form.q.shape or not np.isfinite(d).all():
        return ["it is not a finite vector with an entry per column"]
    A, cones = form.A, form.cones
    if form.P.nnz:
        flat = sp.csr_array(form.P)
        flat = flat[np.flatnonzero(np.diff(flat.indptr))]
        start = form.b.size
        A = sp.csc_array(sp.vstack([A, flat]))
        cones = (*cones, Cone("zero", start, start + flat.shape[0]))
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
