"""Checks on the numbers that small models are declared from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.models.data import check_matrix

Floats = NDArray[np.float64]

__all__ = ["check_number", "check_semidefinite", "check_symmetric", "check_vector"]


def check_vector(values: Any, what: str, size: int | None = None) -> Floats:
    """Return a finite float vector, of a given length where one is asked for."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise DataError(f"{what} has entries that are not numbers", str(e)) from None
    if vector.ndim != 1 or vector.size == 0 or (size is not None and vector.size != size):
        wanted = "a list of numbers" if size is None else f"{size} numbers"
        raise DataError(f"{what} has shape {vector.shape}", remedy=f"give {wanted}")
    if not np.isfinite(vector).all():
        raise DataError(
            f"{what} has entries that are NaN or infinite",
            f"the first is entry {int(np.flatnonzero(~np.isfinite(vector))[0])}",
            "give finite numbers",
        )
    return vector


def check_number(value: Any, what: str, *, positive: bool = False) -> float:
    """Return one finite number, above zero where that is asked for."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number) or (positive and number <= 0.0):
        kind = "positive number" if positive else "finite number"
        raise DataError(f"{what} {value!r} is not a {kind}", remedy=f"give a {kind}")
    return number


def check_symmetric(values: Any, what: str) -> Floats:
    """Return a finite symmetric matrix."""
    matrix = check_matrix(values, what)
    if matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"{what} is not square", f"shape {matrix.shape}", "give an n x n matrix")
    apart = np.abs(matrix - matrix.T)
    if apart.max() > 1e-9 * max(1.0, float(np.abs(matrix).max())):
        i, j = np.unravel_index(int(apart.argmax()), apart.shape)
        raise DataError(
            f"{what} is not symmetric",
            f"entries ({i}, {j}) and ({j}, {i}) differ by {apart[i, j]:.3g}",
            "average it with its transpose",
        )
    return np.asarray((matrix + matrix.T) / 2)


def check_semidefinite(values: Any, what: str) -> Floats:
    """Return a symmetric matrix without negative eigenvalues."""
    matrix = check_symmetric(values, what)
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -1e-9 * max(1.0, float(np.abs(matrix).max())):
        raise DataError(
            f"{what} has a negative eigenvalue",
            f"the smallest is {lowest:.3g}",
            "a covariance has none: see NearestCorrelation",
        )
    return matrix
