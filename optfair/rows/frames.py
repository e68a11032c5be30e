"""What users hand to estimators: arrays or data frames, groups as labels or as a column, and parameters."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest
from optfair.numbers import check_matrix

__all__ = [
    "check_parameters",
    "checked_rows",
    "column_names",
    "generator",
    "same_columns",
    "start_seeds",
    "taken_apart",
]


# What users hand to estimators: arrays or data frames, groups as labels or as a column.

Floats = NDArray[np.float64]


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


# Parameters of FairKMeans, checked before anything is computed.

KNOWN = {
    "algorithm": ("exact", "paper"),
    "coupling": ("network-simplex", "sinkhorn"),
    "metric": ("sqeuclidean", "l1"),
}
# Starts by default, where centers are not given.
STARTS = 10


def check_parameters(model: Any) -> None:
    """Raise on the first parameter that cannot be used.

    Raises
    ------
    DeclarationError
        Naming the parameter.
    """
    for name, known in KNOWN.items():
        value = getattr(model, name)
        if not isinstance(value, str) or value not in known:
            raise DeclarationError(f"unknown {name} {value!r}", remedy=nearest(str(value), known))
    for name in ("n_clusters", "max_iter", "partition_size"):
        if not _whole(getattr(model, name)) or getattr(model, name) < 1:
            raise DeclarationError(
                f"{name}={getattr(model, name)!r} is not a positive integer", remedy="correct"
            )
    if model.n_init != "auto" and (not _whole(model.n_init) or model.n_init < 1):
        raise DeclarationError(
            f"n_init={model.n_init!r} is not a positive integer", remedy='give one, or "auto"'
        )
    if model.n_jobs is not None and (
        not _whole(model.n_jobs) or (model.n_jobs < 1 and model.n_jobs != -1)
    ):
        raise DeclarationError(
            f"n_jobs={model.n_jobs!r} is neither a positive integer nor -1", remedy="correct"
        )
    if not _real(model.tol) or not 0 <= model.tol < 1:
        raise DeclarationError(f"tol={model.tol!r} is outside [0, 1)", remedy="give e.g. 1e-6")
    for name in ("time_limit", "regularization"):
        value = getattr(model, name)
        if (name == "regularization" or value is not None) and not (_real(value) and value > 0):
            raise DeclarationError(f"{name}={value!r} is not a positive number", remedy="correct")
    if model.verbose not in (0, 1, 2):
        raise DeclarationError(f"verbose={model.verbose!r} is not 0, 1 or 2", remedy="correct")


def _whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and bool(np.isfinite(float(value)))


def start_seeds(random_state: Any, n_init: Any, *, given: bool) -> list[int]:
    """Return one seed per start; given centers need one start only.

    Parameters
    ----------
    random_state : int, Generator, RandomState or None
        Where seeds come from.
    n_init : int or "auto"
        Starts.
    given : bool
        Whether the centers are given.
    """
    count = 1 if given else (STARTS if n_init == "auto" else int(n_init))
    if isinstance(random_state, np.random.RandomState):
        return [int(s) for s in random_state.randint(2**31 - 1, size=count)]
    children = generator(random_state).spawn(count)
    return [int(child.integers(2**31 - 1)) for child in children]


def generator(random_state: Any) -> np.random.Generator:
    """Return a generator of random numbers.

    Parameters
    ----------
    random_state : int, Generator, RandomState or None
        Where its seed comes from.

    Raises
    ------
    DeclarationError
        Nothing that seeds a generator.
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(2**31 - 1)))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as e:
        raise DeclarationError(
            f"random_state={random_state!r} seeds nothing", str(e), "give an integer from 0 on"
        ) from None
