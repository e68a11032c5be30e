"""The gate of numbers: matrices, vectors, weights and groups, checked before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest

__all__ = [
    "check_matrix",
    "check_number",
    "check_semidefinite",
    "check_symmetric",
    "check_vector",
    "check_weights",
    "encode_groups",
]


# Checks that every model makes on its data before anything is built.

Floats = NDArray[np.float64]


def check_matrix(values: Any, what: str, *, columns: int | None = None) -> Floats:
    """Return a finite float matrix, or say where it is not one.

    Parameters
    ----------
    values : array-like or DataFrame (n, d)
        Numbers.
    what : str
        What to call it in messages.
    columns : int, optional
        Width it must have.
    """
    try:
        # a copy: the problem must not change when the caller's array does
        matrix = np.array(values, dtype=np.float64, order="C", copy=True)
    except (TypeError, ValueError) as e:
        raise DataError(
            f"{what} has entries that are not numbers", str(e), "encode them first"
        ) from None
    if matrix.ndim != 2:
        raise DataError(
            f"{what} has {matrix.ndim} dimension(s)", f"shape {matrix.shape}", "give rows x columns"
        )
    if matrix.size == 0:
        raise DataError(
            f"{what} is empty", f"shape {matrix.shape}", "give at least one row and column"
        )
    if columns is not None and matrix.shape[1] != columns:
        raise DataError(
            f"{what} has {matrix.shape[1]} columns, the rows have {columns}",
            f"shape {matrix.shape}",
            "give centers in the coordinates of the rows",
        )
    bad = ~np.isfinite(matrix)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f"{what} has {int(bad.sum())} entries that are NaN or infinite",
            f"the first is {matrix[row, column]} in row {row}, column {column}",
            "drop or impute them",
        )
    return matrix


def check_weights(weights: Any, rows: int) -> Floats:
    """Return weights that sum to 1; equal ones by default."""
    if weights is None:
        return np.full(rows, 1.0 / rows)
    try:
        w = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise DataError(
            "sample_weight has entries that are not numbers", str(e), "give numbers"
        ) from None
    if w.shape != (rows,):
        raise DataError(
            "sample_weight does not fit the rows",
            f"shape {w.shape} for {rows} rows",
            "give one per row",
        )
    if not np.isfinite(w).all() or (w < 0).any():
        raise DataError(
            "sample_weight has negative or non-finite entries",
            f"the first is in row {int(np.flatnonzero(~np.isfinite(w) | (w < 0))[0])}",
            "give non-negative numbers",
        )
    if not w.sum() > 0:
        raise DataError("sample_weight sums to zero", remedy="give some row a positive weight")
    return np.asarray(w / w.sum())


def encode_groups(
    groups: Any, rows: int, weights: Floats
) -> tuple[NDArray[np.intp], NDArray[Any], Floats]:
    """Return (group index of each row, sorted labels, weight share of each group)."""
    labels = np.asarray(groups)
    if labels.shape != (rows,):
        raise DataError(
            "groups does not fit the rows",
            f"shape {labels.shape} for {rows} rows",
            "give one label per row",
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError("groups has missing labels", remedy="drop those rows or give them a label")
    if labels.dtype == object and any(_missing(v) for v in labels):
        raise DataError("groups has missing labels", remedy="drop those rows or give them a label")
    try:
        names, index = np.unique(labels, return_inverse=True)
    except TypeError:
        raise DataError(
            "groups mixes labels that cannot be compared",
            f"types {sorted({type(v).__name__ for v in labels})}",
            "use one type, e.g. strings",
        ) from None
    if names.size < 2:
        raise DataError(
            "groups has one group only",
            f"every label is {_plain(names[0])!r}",
            "fairness compares groups: give at least two",
        )
    fractional = names.dtype.kind == "f" and bool((names != np.round(names)).any())
    many = 50 if names.dtype.kind in "iuf" else max(50, rows // 2)
    if names.size > many or (fractional and names.size > min(10, rows // 2)):
        raise DataError(
            f"groups has {names.size} different labels in {rows} rows",
            f"for example {_plain(names[0])!r}",
            "it looks like a number, not a group: bin it first",
        )
    shares = _shares(index, weights, names.size)
    empty = np.flatnonzero(shares <= 0)
    if empty.size:
        raise DataError(
            f"group {_plain(names[empty[0]])!r} is empty",
            "its rows have weight 0",
            "drop the group or give its rows weight",
        )
    return index.astype(np.intp), names, shares


def _shares(index: NDArray[np.intp], weights: Floats, groups: int) -> Floats:
    """Return the weight share of each group to the last digit.

    A million weights added one after the other are off by 1e-11, and a rule at the very share
    of the population would be refused or infeasible by that much.
    """
    counts = np.bincount(index, minlength=groups)
    if np.ptp(weights) == 0.0:
        return np.asarray(counts / index.size)
    ordered = weights[np.argsort(index, kind="stable")]
    parts = np.split(ordered, np.cumsum(counts)[:-1])  # NumPy adds each part up in pairs
    totals = np.array([part.sum() for part in parts])
    return np.asarray(totals / totals.sum())


def _missing(label: Any) -> bool:
    """Whether a label is None, NaN or a missing value that refuses comparison."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def _plain(label: Any) -> Any:
    """Return a label as Python prints it, not as NumPy does."""
    return label.item() if isinstance(label, np.generic) else label


# Checks on the numbers that small models are declared from.


def check_vector(values: Any, what: str, size: int | None = None) -> Floats:
    """Return a finite float vector, of a given length where one is asked for."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise DataError(
            f"{what} has entries that are not numbers", str(e), "give numbers"
        ) from None
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


def as_number(value: Any) -> float:
    """Return one value as a number, NaN where it is none: then no comparison holds."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def check_number(value: Any, what: str, *, positive: bool = False) -> float:
    """Return one finite number, above zero where that is asked for."""
    number = as_number(value)
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


def check_choice(value: Any, what: str, known: Sequence[str]) -> None:
    """Raise unless a value is one of the known words."""
    if not isinstance(value, str) or value not in known:
        raise DeclarationError(f"unknown {what} {value!r}", remedy=nearest(str(value), known))
