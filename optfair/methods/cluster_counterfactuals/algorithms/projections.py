"""What every projection returns: nearest points of many rows, with multipliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

__all__ = ["Projections", "inverse_metric"]


@dataclass(frozen=True, eq=False)
class Projections:
    r"""Nearest points, one row each.

    Attributes
    ----------
    points : array (n, d)
        NaN in rows without a nearest point.
    multipliers : array (n, m)
        Multiplier of each constraint g <= 0 in min \|z - y\|² + λ g; 0 where it is not met
        with equality. In rows without a nearest point, a proof that there is none: weights
        of the constraints whose weighted sum is positive everywhere.
    reached : array (n,) of bool
        Whether there is a point that satisfies the constraints.
    shortfall : array (n,)
        Least value of the constraint where it cannot be brought to 0 or below, NaN where it
        was not computed; 0 in rows that were reached.
    """

    points: Floats
    multipliers: Floats
    reached: Flags
    shortfall: Floats


def inverse_metric(metric: Floats | None, size: int) -> Floats:
    """Return the inverse of a metric given as weights (d,) or a matrix (d, d); None is Euclidean."""
    if metric is None:
        return np.eye(size)
    if metric.ndim == 1:
        return np.diag(1.0 / metric)
    inverse = np.linalg.inv(metric)
    return np.asarray((inverse + inverse.T) / 2.0)
