"""How far a group must be moved, found by looking at a classifier's answers only."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from optfair.errors import Infeasible
from optfair.methods.group_counterfactuals.map_families import Group
from optfair.methods.group_counterfactuals.metrics.target import Target

Floats = NDArray[np.float64]

__all__ = ["valid_translations"]

# Distances tried, in multiples of the group's spread, and how often the first that works is halved.
LADDER: Floats = np.logspace(-3, 7, 11, base=2.0)
HALVINGS = 6
# Members looked at first; all of them then need at least as much, and the shortest are tried.
MOST, KEPT = 200, 20
FURTHER = np.array([1.0, 1.1, 1.3, 1.7, 2.5, 5.0, 10.0])


def valid_translations(
    target: Target, group: Group, background: Floats | None, rng: np.random.Generator
) -> Floats:
    """Return shifts (m, d) after each of which every member reaches the target, nearest first.

    Directions are those of the features, random ones, the estimated slope of the mean margin,
    and from the group's mean to rows of the background that reach the target.

    Raises
    ------
    Infeasible
        None was found. Deformations might still reach the target, but a search would have to
        find one by chance.
    """
    rows = group.members
    if _all_valid(target, rows, np.zeros(rows.shape[1])):
        return np.zeros((1, rows.shape[1]))
    if rows.shape[0] > MOST:
        rows = rows[rng.choice(rows.shape[0], MOST, replace=False)]
    # a feature that is constant in the group may move by the scale of the others
    spread = np.sqrt(np.diag(group.covariance))
    spread = np.where(spread > 0, spread, spread.max() or 1.0)
    directions = _directions(target, rows, group.center, spread, background, rng)
    size = np.linalg.norm(spread)
    found = _shifts(target, rows, size * directions, LADDER)
    if rows.shape[0] < group.members.shape[0]:
        # from the shortest that work for some of the members to what all of them need
        found.sort(key=lambda shift: float(np.linalg.norm(shift)))
        found = _shifts(target, group.members, np.array(found[:KEPT]), FURTHER)
    if not found:
        raise Infeasible(
            "no translation of the group was found that every member reaches the target with",
            f"{len(directions)} directions up to {LADDER[-1]:g} times the spread of the group",
            "give background= rows of which some reach the target, or a lower probability",
        )
    shifts = np.array(found)
    return shifts[np.argsort(np.linalg.norm(shifts, axis=1), kind="stable")]


def _directions(
    target: Target,
    rows: Floats,
    center: Floats,
    spread: Floats,
    background: Floats | None,
    rng: np.random.Generator,
) -> Floats:
    d = center.size
    axes = np.diag(spread)
    slope = np.array(
        [
            (target.margin(rows + step).mean() - target.margin(rows - step).mean()) / s
            for step, s in zip(0.5 * axes, spread, strict=True)
        ]
    )
    parts = [slope[None], slope[None] * spread**2, axes, -axes]
    parts.append(rng.normal(size=(min(4 * d, 60), d)) * spread)
    if background is not None:
        reached = background[target.margin(background) >= 0]
        nearest = np.argsort(np.linalg.norm(reached - center, axis=1), kind="stable")[:20]
        parts += [reached[nearest] - center, (reached.mean(axis=0) - center)[None]] * bool(
            reached.size
        )
    stacked = np.vstack(parts)
    norms = np.linalg.norm(stacked, axis=1)
    return np.asarray(stacked[norms > 0] / norms[norms > 0, None])


def _all_valid(target: Target, rows: Floats, shift: Floats) -> bool:
    return bool((target.margin(rows + shift) >= 0).all())


def _shifts(target: Target, rows: Floats, units: Iterable[Floats], ladder: Floats) -> list[Floats]:
    """Return the shortest multiple of each unit that works, where a step of the ladder does."""
    found = []
    for unit in units:
        for low, high in zip((0.0, *ladder), ladder, strict=False):
            if _all_valid(target, rows, high * unit):
                found.append(_nearest(target, rows, unit, (low, high)))
                break
    return found


def _nearest(target: Target, rows: Floats, unit: Floats, bracket: tuple[float, float]) -> Floats:
    low, high = bracket
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _all_valid(target, rows, middle * unit):
            high = middle
        else:
            low = middle
    return high * unit
