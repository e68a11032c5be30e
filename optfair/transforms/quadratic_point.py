"""From the moment matrix of a relaxation to a point of the quadratic problem."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from optfair.transforms.lagrangian import QuadraticLagrangian

Floats = NDArray[np.float64]

__all__ = ["best_point"]

FEASIBLE = 1e-8
CLOSE = 1e-10
ACTIVE = 1e-6
SAMPLES = 24
SEARCHES = 5
STEPS = 30
PATIENCE = 4


def best_point(
    lagrangian: QuadraticLagrangian, moments: Floats, multipliers: Floats
) -> tuple[Floats, Floats]:
    """Return the best point found, and the multipliers that prove the better bound.

    First the points that an exact relaxation holds, improved with its multipliers: the first
    whose objective meets the bound is returned. Else points are drawn from the moments, and
    the best of all start a local search. Seeded, so the same moments give the same point.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _best_point(lagrangian, moments, multipliers)


def _best_point(
    lagrangian: QuadraticLagrangian, moments: Floats, multipliers: Floats
) -> tuple[Floats, Floats]:
    y0 = np.where(lagrangian.inequality, np.maximum(multipliers, 0.0), multipliers)
    points: list[Floats] = []
    for start in _held(lagrangian, moments, y0):
        x = _feasible(lagrangian, start)
        points.append(x)
        for point, y in (_improved(lagrangian, x, y0), (x, y0)):
            infeasible, value = _rank(lagrangian, point)
            found = lagrangian.check(point, y)
            near = abs(value - found.bound) <= CLOSE * max(1.0, abs(value))
            if near and not infeasible and found.dual <= FEASIBLE:
                return point, y
    points += [_feasible(lagrangian, start) for start in _drawn(moments)]
    points.sort(key=lambda x: _rank(lagrangian, x))
    points += [_feasible(lagrangian, _local(lagrangian, x)) for x in points[:SEARCHES]]
    best = min(points, key=lambda x: _rank(lagrangian, x))
    # where the relaxation is exact up to its solver's accuracy, Newton's method closes the rest
    point, y = _improved(lagrangian, best, y0)
    found, plain = lagrangian.check(point, y), lagrangian.check(best, y0)
    better = found.dual <= FEASIBLE and found.bound >= plain.bound
    if better and _rank(lagrangian, point) <= _rank(lagrangian, best):
        return point, y
    return best, y0


def _rank(lagrangian: QuadraticLagrangian, x: Floats) -> tuple[bool, float]:
    """Order points: feasible ones by objective, before the others by violation."""
    f = lagrangian.rows(x)
    broken = np.where(lagrangian.inequality, np.maximum(f, 0.0), np.abs(f))
    off = float((broken / (1.0 + np.abs(lagrangian.rows.b))).max(initial=0.0))
    if not np.isfinite(off):  # a Newton step went astray
        return True, np.inf
    return (True, off) if off > FEASIBLE else (False, float(lagrangian.goal(x)[0]))


def _held(lagrangian: QuadraticLagrangian, moments: Floats, y: Floats) -> Iterator[Floats]:
    """Yield the points that the moments of an exact relaxation are made of."""
    mean = moments[1:, 0]
    spread = moments[1:, 1:] - np.outer(mean, mean)
    H, g, _ = lagrangian.at(y)
    h, V = np.linalg.eigh(H)
    curved = h > ACTIVE * max(1.0, float(np.abs(h).max(initial=0.0)))
    # multipliers are accurate where eigenvectors of the moments are not: solve H x = -g,
    # and along the flat directions keep the mean
    stationary = mean - V[:, curved] @ (V[:, curved].T @ (H @ mean + g) / h[curved])
    yield stationary
    flat = V[:, ~curved]
    if flat.shape[1]:  # the hard case: all the spread lies there, and its length is known
        inside = flat.T @ spread @ flat
        length = np.sqrt(max(float(np.trace(inside)), 0.0))
        _, axes = np.linalg.eigh((inside + inside.T) / 2.0)
        for axis in (flat @ axes[:, -1], flat @ axes[:, 0]):
            yield stationary + length * axis
            yield stationary - length * axis
    yield mean


def _drawn(moments: Floats) -> Iterator[Floats]:
    """Yield normal points with these moments."""
    mean = moments[1:, 0]
    spread = moments[1:, 1:] - np.outer(mean, mean)
    sizes, axes = np.linalg.eigh((spread + spread.T) / 2.0)
    root = axes * np.sqrt(np.maximum(sizes, 0.0))
    rng = np.random.default_rng(0)
    for _ in range(SAMPLES):
        yield mean + root @ rng.normal(size=mean.size)


def _local(lagrangian: QuadraticLagrangian, x: Floats) -> Floats:
    """Return a local minimum near x by sequential quadratic programming."""
    free = np.zeros(lagrangian.rows.b.size)
    constraints: list[Any] = []
    for kind, mask in (("eq", ~lagrangian.inequality), ("ineq", lagrangian.inequality)):
        at, sign = np.flatnonzero(mask), 1.0 if kind == "eq" else -1.0
        if at.size:
            constraints.append(
                {
                    "type": kind,
                    "fun": lambda v, at=at, sign=sign: sign * lagrangian.rows(v)[at],
                    "jac": lambda v, at=at, sign=sign: sign * lagrangian.jacobian(v, at),
                }
            )
    H, g, _ = lagrangian.at(free)
    search: Any = minimize  # its stubs know constraints only where they are literals
    found = search(
        lambda v: float(lagrangian.goal(v)[0]),
        x,
        jac=lambda v: H @ v + g,
        method="SLSQP",
        constraints=constraints,
        options={"ftol": 1e-12, "maxiter": 200},
    )
    return np.asarray(found.x, dtype=float) if np.isfinite(found.x).all() else x


def _feasible(lagrangian: QuadraticLagrangian, x: Floats) -> Floats:
    """Move x onto the constraints it breaks, by the shortest Newton steps."""
    for _ in range(STEPS):
        f = lagrangian.rows(x)
        broken = np.flatnonzero(np.where(lagrangian.inequality, f > 0.0, f != 0.0))
        if not broken.size or not np.isfinite(f).all():
            break
        step = np.linalg.lstsq(lagrangian.jacobian(x, broken), -f[broken], rcond=None)[0]
        if not np.isfinite(step).all():
            break
        x = x + step
    return x


def _improved(lagrangian: QuadraticLagrangian, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Solve the optimality conditions near (x, λ) by Newton's method; keep what is better."""
    large = ACTIVE * (1.0 + float(np.abs(y).max(initial=0.0)))
    active = np.flatnonzero(~lagrangian.inequality | (y > large))
    n = x.size
    start = np.where(lagrangian.inequality & (y <= large), 0.0, y)
    best, least, since = (x, y), np.inf, 0
    x, y = x.copy(), start
    scale = 1.0 + np.abs(lagrangian.rows.b[active])
    for _ in range(STEPS):
        H, g, _ = lagrangian.at(y)
        J, f = lagrangian.jacobian(x, active), lagrangian.rows(x)[active]
        slope = H @ x + g
        unit = max(1.0, abs(float(lagrangian.goal(x)[0])))
        # a large multiplier makes a small violation dear
        costs = np.abs(f) * np.maximum(1.0 / scale, np.abs(y[active]) / unit)
        size = max(_largest(slope) / (1.0 + _largest(g)), _largest(costs))
        if not np.isfinite(size):
            break
        since += 1  # the first steps may lead away before they converge
        if size < least:
            best, least, since = (x.copy(), y.copy()), size, 0
        if since == PATIENCE or least < np.finfo(float).eps:
            break
        # rows of one size, so that small gradients are not taken for dependent ones
        rows = (_largest(H) or 1.0) / np.maximum(np.abs(J).max(axis=1, initial=0.0), 1e-300)
        J = rows[:, None] * J
        system = np.block([[H, J.T], [J, np.zeros((active.size, active.size))]])
        step = np.linalg.lstsq(system, -np.concatenate([slope, rows * f]), rcond=1e-12)[0]
        x = x + step[:n]
        y = y.copy()
        y[active] += rows * step[n:]
    return best


def _largest(vector: Floats) -> float:
    return float(np.abs(vector).max(initial=0.0))
