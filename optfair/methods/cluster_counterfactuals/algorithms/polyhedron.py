"""The nearest point of a polyhedron: a dual active-set method over many rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.methods.cluster_counterfactuals.algorithms.projections import (
    Projections,
    inverse_metric,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

__all__ = ["nearest_in_polyhedron"]

# A violation below this share of the numbers it is the difference of is rounding.
ROUNDING = 1e-14
# A normal whose part outside the span of the others is below this is dependent on them.
DEPENDENT = 1e-10
# Rounds per constraint after which a row counts as not solved; each ends in at most a few.
ROUNDS = 40
CHUNK = 4_096


def nearest_in_polyhedron(
    Y: Floats, A: Floats, b: Floats, *, metric: Floats | None = None
) -> Projections:
    r"""Project rows on a polyhedron.

    .. math:: \min_z (z - y)^T W (z - y) \;\text{ s.t. }\; A z \le b

    The method of Goldfarb and Idnani: from the unconstrained minimiser y the most violated
    constraint enters, and those whose multipliers would become negative leave. The normals in
    the active set stay linearly independent, every full step raises the dual objective, so it
    ends after finitely many steps, in a proof of infeasibility where there is no point. All
    rows take their steps together: only the products of normals :math:`A W^{-1} A^T` are
    needed, not the dimension.

    Parameters
    ----------
    Y : array (n, d)
        Rows.
    A : array (m, d)
        Normals, shared by all rows.
    b : array (m,) or (n, m)
        Right-hand sides; infinite ones do not count.
    metric : array (d,) or (d, d), optional
        Weights or matrix W, positive definite; the identity by default.

    Returns
    -------
    Projections
        Unreached rows carry a Farkas vector: multipliers λ >= 0 with A'λ = 0 and b'λ < 0.

    Examples
    --------
    >>> import numpy as np
    >>> A, b = np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2)
    >>> found = nearest_in_polyhedron(np.array([[1.0, 2.0], [1.0, -2.0]]), A, b)
    >>> found.points.tolist(), found.multipliers.tolist()
    ([[0.0, 0.0], [0.0, -2.0]], [[2.0, 4.0], [2.0, 0.0]])

    References
    ----------
    Goldfarb, Idnani: A Numerically Stable Dual Method for Solving Strictly Convex Quadratic
    Programs, Mathematical Programming 27 (1983).
    """
    n, m = Y.shape[0], A.shape[0]
    inverse = inverse_metric(metric, Y.shape[1])
    lengths = np.sqrt(np.einsum("ij,jk,ik->i", A, inverse, A))
    usable = lengths > 0.0
    # unit normals: violations are distances in the metric, and comparable
    unit = A / np.where(usable, lengths, 1.0)[:, None]
    right = np.broadcast_to(b, (n, m)) / np.where(usable, lengths, 1.0)
    pull = unit @ inverse
    G = pull @ unit.T
    lengths_of_parts = np.abs(unit).max(initial=0.0)
    points, multipliers = np.empty_like(Y), np.zeros((n, m))
    reached = np.ones(n, dtype=bool)
    for begin in range(0, n, CHUNK):
        part = slice(begin, min(begin + CHUNK, n))
        y, r = Y[part], right[part]
        start = y @ unit.T - r
        size = np.where(np.isfinite(r), np.abs(r), 0.0)
        size += np.abs(y).sum(axis=1, keepdims=True) * lengths_of_parts
        slack = ROUNDING * (1.0 + size)
        # a normal of length 0 says only whether its right-hand side is negative
        void = (start > slack) & ~usable
        multipliers[part], reached[part] = _active_sets(start, G, slack, usable)
        if void.any():
            hit = void.any(axis=1)
            multipliers[part][hit] = np.where(void[hit], 1.0, 0.0)
            reached[part][hit] = False
        points[part] = y - multipliers[part] @ pull
    points[~reached] = np.nan
    shortfall = np.where(reached, 0.0, np.nan)
    scaled = multipliers / np.where(usable, lengths, 1.0)
    return Projections(points, np.where(reached[:, None], 2.0, 1.0) * scaled, reached, shortfall)


def _active_sets(start: Floats, G: Floats, slack: Floats, usable: Flags) -> tuple[Floats, Flags]:
    """Return multipliers of ½‖z - y‖² (n, m), and whether each row was reached."""
    n, m = start.shape
    rank = int(np.linalg.matrix_rank(G, tol=DEPENDENT, hermitian=True))
    y = np.zeros((n, m))
    reached = np.ones(n, dtype=bool)
    entering = np.full(n, -1)
    active = np.zeros((n, m), dtype=bool)
    todo = np.arange(n)
    for _ in range(ROUNDS * (m + 1)):
        above = start[todo] - y[todo] @ G
        fresh = entering[todo] < 0
        excess = np.where(active[todo] | ~usable, -np.inf, above - slack[todo])
        worst = np.argmax(excess, axis=1)
        done = fresh & (excess[np.arange(todo.size), worst] <= 0.0)
        entering[todo] = np.where(fresh, worst, entering[todo])
        todo, above = todo[~done], above[~done]
        if not todo.size:
            return _sharpened(start, G, y, active, reached), reached
        step, dead = _step(G, rank, y, active, entering, todo, above)
        reached[todo[dead]] = False
        if dead.any():
            y[todo[dead]] = step[dead]
            todo = todo[~dead]
            if not todo.size:
                return _sharpened(start, G, y, active, reached), reached
    reached[todo] = False  # not solved: said as not reached, with multipliers that prove nothing
    return _sharpened(start, G, y, active, reached), reached


def _step(
    G: Floats,
    rank: int,
    y: Floats,
    active: Flags,
    entering: NDArray[Any],
    todo: NDArray[Any],
    above: Floats,
) -> tuple[Floats, Flags]:
    """Take one step in every row; return Farkas vectors and which rows have one."""
    rows = np.arange(todo.size)
    k = entering[todo]
    among = active[todo]
    rho = _combination(G, among, k)
    room = G[k, k] - (G[k] * rho).sum(axis=1)
    # as many independent normals as there are span the space, whatever rounding says
    free = (room > DEPENDENT) & (among.sum(axis=1) < rank)
    with np.errstate(divide="ignore", invalid="ignore"):
        full = np.where(free, above[rows, k] / np.where(free, room, 1.0), np.inf)
        falling = among & (rho > 1e-14)
        ratios = np.where(falling, y[todo] / np.where(falling, rho, 1.0), np.inf)
    leaving = np.argmin(ratios, axis=1)
    partial = ratios[rows, leaving]
    dead = np.isinf(full) & np.isinf(partial)
    length = np.where(dead, 0.0, np.minimum(full, partial))
    farkas = np.where(among, np.maximum(-rho, 0.0), 0.0)
    farkas[rows, k] = 1.0
    y[todo] = np.where(among, np.maximum(y[todo] - length[:, None] * rho, 0.0), y[todo])
    y[todo, k] += length
    drops = ~dead & (partial < full)
    y[todo[drops], leaving[drops]] = 0.0
    active[todo[drops], leaving[drops]] = False
    enters = ~dead & ~drops
    active[todo[enters], k[enters]] = True
    entering[todo[enters]] = -1
    return farkas, dead


def _combination(G: Floats, among: Flags, k: NDArray[Any]) -> Floats:
    """Return the coefficients of normal k in the active ones, by least squares in the metric."""
    n, m = among.shape
    most = int(among.sum(axis=1).max(initial=0))
    rho = np.zeros((n, m))
    if most == 0:
        return rho
    slots = np.argsort(~among, axis=1, kind="stable")[:, :most]
    held = np.take_along_axis(among, slots, axis=1)
    both = held[:, :, None] & held[:, None, :]
    system = np.where(both, G[slots[:, :, None], slots[:, None, :]], np.eye(most))
    right = np.where(held, G[k[:, None], slots], 0.0)
    found = np.linalg.solve(system, right[:, :, None])[:, :, 0]
    np.put_along_axis(rho, slots, np.where(held, found, 0.0), axis=1)
    return rho


def _sharpened(start: Floats, G: Floats, y: Floats, active: Flags, reached: Flags) -> Floats:
    """Solve for the multipliers of the final active sets once more: rounding of steps goes."""
    rows = np.flatnonzero(reached & active.any(axis=1))
    if not rows.size:
        return y
    among = active[rows]
    most = int(among.sum(axis=1).max())
    slots = np.argsort(~among, axis=1, kind="stable")[:, :most]
    held = np.take_along_axis(among, slots, axis=1)
    both = held[:, :, None] & held[:, None, :]
    system = np.where(both, G[slots[:, :, None], slots[:, None, :]], np.eye(most))
    right = np.where(held, np.take_along_axis(start[rows], slots, axis=1), 0.0)
    found = np.linalg.solve(system, right[:, :, None])[:, :, 0]
    exact = np.zeros_like(y[rows])
    np.put_along_axis(exact, slots, np.where(held, np.maximum(found, 0.0), 0.0), axis=1)
    y[rows] = exact
    return y
