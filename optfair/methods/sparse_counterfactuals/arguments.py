"""Choices of edits from a [data] table: rows of a data set, scored by a table of points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.sparse_counterfactuals.choices import Cells, enumerated_choices

Floats = NDArray[np.float64]

__all__ = ["Scorecard", "action_arguments"]

_KEYS = ("dataset", "rows", "seed", "intercept", "points", "accepted")


class Scorecard:
    r"""A logistic score from points: what lenders call a scorecard.

    .. math:: f(x) = \frac{1}{1 + e^{-(b + \sum_j p_j(x_j))}}

    Parameters
    ----------
    columns : mapping
        Feature -> its values in the data set, from which numbers are standardised.
    points : mapping
        Feature -> points per standard deviation, or a table of points by category.
    intercept : float
        b.
    """

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], points: Mapping[str, Any], intercept: float
    ) -> None:
        self.features = tuple(points)
        self._points = [points[name] for name in self.features]
        self._scales = [
            None if isinstance(p, Mapping) else _scale(columns[name], name)
            for name, p in points.items()
        ]
        self._intercept = float(intercept)

    def coordinates(self, rows: NDArray[Any]) -> Floats:
        """Return the points of every cell (m, d)."""
        found = np.empty(rows.shape)
        for j, (p, scale) in enumerate(zip(self._points, self._scales, strict=True)):
            if scale is None:
                found[:, j] = _looked_up(rows[:, j], p, self.features[j])
            else:
                found[:, j] = float(p) * (rows[:, j].astype(np.float64) - scale[0]) / scale[1]
        return found

    def __call__(self, rows: NDArray[Any]) -> Floats:
        """Return the score of rows (m,)."""
        s = self._intercept + self.coordinates(rows).sum(axis=1)
        e = np.exp(-np.abs(s))
        return np.asarray(np.where(s >= 0, 1.0, e) / (1.0 + e))


def action_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ActionPlan` and `MinimumEdits`.

    With ``dataset``, the factuals are rows that a scorecard rejects, a sample of them; the value
    of every cell is that of the nearest row it accepts, near in points. ``target`` is the mean
    score of those counterfactuals unless it is given. Other entries are arguments as they stand.
    """
    arguments = dict(data)
    if "dataset" not in data:
        return arguments
    from optfair import datasets  # data are asked for by name, and only then

    asked = {key: arguments.pop(key) for key in _KEYS if key in arguments}
    missing = [key for key in _KEYS if key not in asked]
    if missing:
        raise DeclarationError(
            f"[data] names a dataset but no {missing[0]}", remedy=f"add {', '.join(missing)}"
        )
    table = datasets.load(asked["dataset"])
    columns = {name: table[name] for name in asked["points"]}
    score = Scorecard(columns, asked["points"], asked["intercept"])
    rows = np.column_stack([column.astype(object) for column in columns.values()])
    known = score(rows)
    rejected, accepted = np.flatnonzero(known < 0.5), np.flatnonzero(known >= asked["accepted"])
    count = int(asked["rows"])
    if not 0 < count <= rejected.size or not accepted.size:
        raise DataError(
            f"{count} rejected rows are asked for",
            f"the scorecard rejects {rejected.size} rows and accepts {accepted.size}"
            f" at {asked['accepted']:g}",
            "ask for fewer rows, or change the points",
        )
    rng = np.random.default_rng(asked["seed"])
    chosen = np.sort(rng.choice(rejected, count, replace=False))
    at, there = score.coordinates(rows[chosen]), score.coordinates(rows[accepted])
    apart = np.abs(at[:, None, :] - there[None, :, :]).sum(axis=2)
    values = rows[accepted[apart.argmin(axis=1)]]
    cells = Cells.of(rows[chosen], values)
    target = float(arguments.pop("target", score(values).mean()))
    choices = enumerated_choices(score, cells, target, costs=arguments.pop("costs", None))
    features = arguments.pop("features", score.features)
    return arguments | {"effects": choices, "cells": cells, "features": features}


def _scale(column: NDArray[Any], name: str) -> tuple[float, float]:
    try:
        numbers = column.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"{name!r} is not a number in every row",
            remedy="give points by category: NAME = { category = points }",
        ) from None
    return float(numbers.mean()), float(numbers.std()) or 1.0


def _looked_up(column: NDArray[Any], points: Mapping[str, Any], name: str) -> Floats:
    labels, where = np.unique(column.astype(str), return_inverse=True)
    for label in map(str, labels):
        if label not in points:
            raise DeclarationError(
                f"no points for {label!r} of {name!r}", remedy=nearest(label, points)
            )
    return np.array([float(points[label]) for label in labels])[where]
