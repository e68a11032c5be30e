"""Cones of three entries, exponential and power cones: depth, moves, and points exactly inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optfair.proofs.rounding import UNIT, Floats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optfair.proofs.cones import Cone

# What is positive but smaller is taken for this: below it floats lose digits.
FLOOR = 1e-290
# Steps that look for the depth of a power cone, each with half of it.
HALVES = 60


def exp_above(power: Floats) -> Floats:
    """Return exp, not below what has all digits of a float: a large factor would show the others."""
    return np.asarray(np.maximum(np.exp(power), FLOOR))


def _exp_least(u: Floats, v: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Return where u < 0, and there floats that are not below -u exp(v/u - 1)."""
    inner = u < -np.finfo(float).tiny
    safe = np.where(inner, u, -1.0)
    with np.errstate(over="ignore"):
        power = v / safe - 1.0
        rounded = np.where(power == 0.0, 0.0, (16.0 + 8.0 * np.abs(power)) * UNIT)  # exp(0) is 1
        least = -safe * exp_above(power) * (1.0 + rounded)
    return inner, np.maximum(least, FLOOR)  # positive, however far below the smallest float


def exp_depths(z: Floats) -> Floats:
    """Return by how much at least the last entry of each triple of a dual point may be less."""
    u, v, w = z.reshape(-1, 3).T
    inner, least = _exp_least(u, v)
    return np.where(inner, np.maximum((w - least) * (1.0 - 1e-12) - FLOOR, 0.0), 0.0)


def exp_rows(cones: Iterable[Cone]) -> NDArray[np.intp]:
    """Return the rows of all exponential cones (k, 3)."""
    starts = [k for c in cones if c.kind == "exp" for k in range(c.start, c.stop, 3)]
    return np.array(starts, dtype=np.intp)[:, None] + np.arange(3)


def exp_dual_points(z: Floats) -> Floats:
    """Return triples in {u < 0, -u exp(v/u - 1) <= w} or {u = 0, v >= 0, w >= 0}."""
    u, v, w = z.T
    inner, least = _exp_least(u, v)
    edge = ~(inner & np.isfinite(least))  # the edge u = 0 is nearer than a w out of reach
    v, w = np.where(edge, np.maximum(v, 0.0), v), np.maximum(w, np.where(edge, 0.0, least))
    return np.column_stack([np.where(edge, 0.0, u), v, w])


def exp_moves(v: Floats, *, dual: bool) -> Floats:
    """Return the shorter move, of z or of x, into z >= y exp(x/y), or into its dual cone, of triples."""
    x, y, z = v.reshape(-1, 3).T
    tiny, at = np.finfo(float).tiny, 1 if dual else 0
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if dual:  # K* = {(u, v, w): u < 0, -u exp(v/u - 1) <= w} and {u = 0, v, w >= 0}
            inside, u = x < -tiny, np.minimum(x, -tiny)
            above, beside = -x * np.exp(y / u - 1.0) - z, u * (1.0 + np.log(z / -u)) - y
        else:
            inside, h = y > tiny, np.maximum(y, tiny)
            above, beside = y * np.exp(x / h) - z, x - h * np.log(z / h)
    moves, near = np.column_stack([x, -y, -z]), inside & (beside < above)
    moves[inside] = 0.0
    moves[inside, 2] = np.nan_to_num(above[inside], posinf=np.inf)
    moves[near, 2], moves[near, at] = 0.0, beside[near]
    return np.maximum(moves, 0.0).ravel()


def power_moves(v: Floats, power: float, *, dual: bool) -> Floats:
    """Return a move of a triple into a power cone, or of multipliers into its dual."""
    x, y, z = v / np.array([power, 1.0 - power, 1.0]) if dual else v
    base = max(x, 0.0) ** power * max(y, 0.0) ** (1.0 - power)
    return np.maximum([-x, -y, abs(z) - base], 0.0)


def power_dual_point(z: Floats, power: float) -> Floats:
    """Return a triple in {u, v >= 0, |w| <= (u/a)^a (v/(1-a))^(1-a)}, near z."""
    u, v = max(z[0], 0.0), max(z[1], 0.0)
    return np.array([u, v, np.sign(z[2]) * min(abs(z[2]), _power_least(u, v, power))])


def _power_least(u: float, v: float, power: float) -> float:
    """Return a float that is not above (u/a)^a (v/(1-a))^(1-a), 0 where digits are lost."""
    a = power
    with np.errstate(over="ignore", invalid="ignore"):
        base = np.float64(u) ** a * np.float64(v) ** (1.0 - a) * a**-a * (1.0 - a) ** (a - 1.0)
    sure = min(u, v) > FLOOR and FLOOR < base < np.inf
    return float(base * (1.0 - 1e-13)) if sure else 0.0


def power_depth(z: Floats, power: float) -> float:
    """Return how far each entry of a dual point may move and stay, 0 without proof."""
    u, v, w = float(z[0]), float(z[1]), abs(float(z[2]))
    if not (np.isfinite(z).all() and w < _power_least(u, v, power)):
        return 0.0
    depth = 0.5 * min(u, v)
    for _ in range(HALVES):
        low = (np.nextafter(u - depth, 0.0), np.nextafter(v - depth, 0.0))
        if np.nextafter(w + depth, np.inf) <= _power_least(*low, power):
            return depth
        depth *= 0.5
    return 0.0


def power_normal(z: Floats, power: float) -> tuple[Floats, float]:
    """Return by which entries the depth of a dual point grows, and how large it is; 0 on an edge."""
    u, v, w = z
    base = _power_least(u, v, power)
    if not base > 0.0:
        return np.zeros(3), 0.0
    return np.array([power * base / u, (1.0 - power) * base / v, -np.sign(w)]), base - abs(w)
