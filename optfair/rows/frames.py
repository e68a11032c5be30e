"""What users hand to estimators: arrays or data frames, groups as labels or as a column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, nearest
from optfair.numbers import check_matrix

Floats = NDArray[np.float64]

__all__ = ["checked_rows", "column_names", "same_columns", "taken_apart"]

LARGEST = 1e100


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns, None for what has none."""
    columns = getattr(X, "columns", None)
    return None if columns is None else tuple(str(c) for c in columns)


def taken_apart(X: Any, groups: Any) -> tuple[Floats, Any, tuple[str, ...] | None]:
    """Return (rows as numbers, group labels, column names or None).

    Parameters
    ----------
    X : array-like or DataFrame (n, d)
        Rows.
    groups : array-like (n,) or str
        Labels, or the name of a column of the frame, which is then taken off the rows.
    """
    names = column_names(X)
    if isinstance(groups, str):
        if names is None:
            raise DataError(
                f"groups={groups!r} names a column, but X has no column names",
                remedy="give a DataFrame, or one label per row",
            )
        if groups not in names:
            raise DataError(f"X has no column {groups!r}", remedy=nearest(groups, names))
        own = names.index(groups)  # names may be numbers in the frame
        groups = np.asarray(X[X.columns[own]])
        X = X[[c for j, c in enumerate(X.columns) if j != own]]
        names = column_names(X)
    text = (
        [] if names is None else [n for n, c in zip(names, X.columns, strict=True) if _text(X[c])]
    )
    if text:
        raise DataError(
            f"X has columns that are not numbers: {', '.join(text)}",
            remedy="leave them out, encode them, or name one of them in groups=",
        )
    return checked_rows(X), groups, names


def checked_rows(X: Any) -> Floats:
    """Return rows as finite numbers whose squares are finite too."""
    rows = check_matrix(X, "X")
    largest = float(np.abs(rows).max())
    if largest > LARGEST:
        raise DataError(
            f"X has entries as large as {largest:.0e}",
            "squared distances would overflow",
            "rescale the columns",
        )
    return rows


def _text(column: Any) -> bool:
    """Whether a column of a frame holds neither numbers nor truth values."""
    kind = np.asarray(column[:1]).dtype.kind
    return kind not in "iufb" and not str(getattr(column, "dtype", "")).startswith(("Int", "Float"))


def same_columns(X: Any, fitted: tuple[str, ...] | None, count: int) -> None:
    """Raise unless rows have the columns of the fit, in the same order."""
    names = column_names(X)
    if fitted is not None and names is not None and names != fitted:
        raise DataError(
            "X has other columns than the fit",
            f"fitted on {', '.join(fitted)}; got {', '.join(names)}",
            "give the same columns in the same order",
        )
    if np.ndim(X) != 2:
        raise DataError(
            "X is no table", f"shape {np.shape(X)}", "give rows x columns; of one row, X[None]"
        )
    width = np.shape(X)[1]
    if width != count:
        raise DataError(
            f"X has {width} columns, the fit had {count}", remedy="give the columns of the fit"
        )
