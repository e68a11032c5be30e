"""What users hand to estimators: arrays or data frames, their columns and categories, groups as labels or as a column."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from optfair.attributes import attributes_of, is_missing
from optfair.errors import DataError, DeclarationError, nearest, no_number, shown
from optfair.numbers import (
    Floats,
    Indices,
    check_choice,
    check_labels,
    check_level,
    check_matrix,
    check_seed,
    check_table,
    real,
    whole,
)

P = ParamSpec("P")
R = TypeVar("R")

# What users hand to estimators: arrays or data frames, groups as labels or as a column.


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
    groups : array-like (n,), frame (n, a), str or list of str
        Labels, a column of them for each attribute, or names of columns of the frame, which
        are then taken off the rows.
    """
    X, groups = without_groups(X, groups)
    names = column_names(X)
    text = (
        [] if names is None else [n for n, c in zip(names, X.columns, strict=True) if _text(X[c])]
    )
    if text:
        raise DataError(
            f"X has columns that are not numbers: {', '.join(text)}",
            remedy="leave them out, encode them, name one of them in groups=, or convert numbers"
            " that are held as objects: X.astype(float)",
        )
    return checked_rows(X), groups, names


def checked_rows(X: Any) -> Floats:
    """Return rows as finite numbers whose squares are finite too."""
    return check_matrix(X, "X")


def _text(column: Any) -> bool:
    """Whether a column of a frame holds neither numbers nor truth values."""
    kind = np.asarray(column[:1]).dtype.kind
    return kind not in "iufb" and not str(getattr(column, "dtype", "")).startswith(("Int", "Float"))


def same_names(what: str, names: tuple[str, ...] | None, fitted: tuple[str, ...] | None) -> None:
    """Raise unless columns have the names of the fit, where both have some."""
    if fitted is not None and names is not None and names != fitted:
        raise DataError(
            f"{what} has other columns than the fit",
            f"fitted on {', '.join(fitted)}; got {', '.join(names)}",
            "give the same columns in the same order",
        )


def same_columns(X: Any, fitted: tuple[str, ...] | None, count: int) -> None:
    """Raise unless rows have the columns of the fit, in the same order."""
    X = check_table(X, "X")
    names = column_names(X)
    same_names("X", names, fitted)
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
    "goal": ("mean", "group"),
    "labels": ("soft", "hard"),
    "metric": ("sqeuclidean", "l1"),
    "search": ("restarts", "swap"),
}
# Starts by default, where centers are not given, and the most that can be asked for.
STARTS, MOST_STARTS = 10, 1_000_000
# Seeds that have a generator of their own, which takes longer to make than many more take to draw.
ALONE = 1_000


def check_parameters(model: Any) -> None:
    """Raise on the first parameter that cannot be used.

    Raises
    ------
    DeclarationError
        Naming the parameter.
    """
    for name, known in KNOWN.items():
        check_choice(getattr(model, name), name, known)
    for name in ("n_clusters", "max_iter", "partition_size"):
        if not whole(getattr(model, name)) or getattr(model, name) < 1:
            raise DeclarationError(
                f"{name}={getattr(model, name)!r} is not a positive integer",
                no_number(getattr(model, name)),
                "give 1 or more",
            )
    if not (isinstance(model.n_init, str) and model.n_init == "auto") and (
        not whole(model.n_init) or model.n_init < 1
    ):
        raise DeclarationError(
            f"n_init={model.n_init!r} is not a positive integer",
            no_number(model.n_init),
            'give one, or "auto"',
        )
    if model.n_jobs is not None and (
        not whole(model.n_jobs) or (model.n_jobs < 1 and model.n_jobs != -1)
    ):
        raise DeclarationError(
            f"n_jobs={model.n_jobs!r} is neither a positive integer nor -1",
            remedy="give one of them",
        )
    if not _real(model.tol) or not 0 <= model.tol < 1:
        why = no_number(model.tol)
        raise DeclarationError(f"tol={model.tol!r} is outside [0, 1)", why, "give e.g. 1e-6")
    for name in ("time_limit", "regularization"):
        value = getattr(model, name)
        if (name == "regularization" or value is not None) and not (_real(value) and value > 0):
            raise DeclarationError(f"{name}={value!r} is not a positive number", remedy="give one")
    check_seed(model.random_state, "random_state")
    check_level(model.verbose, "verbose")


def _real(value: Any) -> bool:
    return abs(real(value)) <= 1e15


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
    if count > MOST_STARTS:
        raise DeclarationError(
            f"n_init={n_init!r} is more starts than can be made",
            f"each has a seed, and {MOST_STARTS:,} are the most",
            "give fewer, such as 100, and a time_limit",
        )
    if isinstance(random_state, np.random.RandomState):
        return [int(s) for s in random_state.randint(2**31 - 1, size=count)]
    children = generator(random_state).spawn(min(count, ALONE))
    seeds = [int(child.integers(2**31 - 1)) for child in children]
    further = children[-1].integers(2**31 - 1, size=count - len(seeds))
    return seeds + [int(seed) for seed in further]


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


def group_index(names: NDArray[Any], labels: Any, rows: int) -> NDArray[np.intp]:
    """Return the position of each label among the groups of the fit.

    Raises
    ------
    DataError
        Labels that the fit did not see, or not one per row.
    """
    given = check_labels(labels, "groups", rows)
    if given.dtype.kind == names.dtype.kind == "M":  # of any units
        unit = np.promote_types(given.dtype, names.dtype)
        given, names = given.astype(unit), names.astype(unit)
    known = {name: g for g, name in enumerate(np.asarray(names).tolist())}
    distinct, inverse = np.unique(given, return_inverse=True)
    unknown = [v for v in distinct.tolist() if v not in known]
    if unknown:
        own, fitted = tuple(attributes_of(distinct)), tuple(attributes_of(names))
        if own and own != fitted:
            raise DataError(
                "groups has other attributes than the fit",
                f"fitted on {', '.join(fitted) or 'labels'}; got {', '.join(own)}",
                "give the same columns of groups in the same order",
            )
        alike = {str(v) for v in unknown} & set(map(str, known))
        text = shown if alike else str  # 1 and '1' are two labels
        raise DataError(
            f"groups has labels the fit did not see: {', '.join(map(text, unknown[:5]))}",
            f"it saw {', '.join(map(text, known)) or 'none'}; a new group has no prices",
            "fit again with rows of that group" if known else "leave groups out, as the fit did",
        )
    return np.array([known[v] for v in distinct.tolist()], dtype=np.intp)[inverse]


# Rows with numeric and categorical columns, as arrays that components read.


@dataclass(frozen=True, eq=False)
class MixedRows:
    """Rows, numeric columns apart from categorical ones.

    Parameters
    ----------
    numeric : array (n, d)
        Numbers; d may be 0.
    codes : array (n, c) of int
        Positions in each column's list of categories, -1 for one that is not in it; c may be 0.
    """

    numeric: Floats
    codes: Indices

    @classmethod
    def of(cls, X: Floats) -> MixedRows:
        """Return rows without categorical columns."""
        return cls(X, np.zeros((len(X), 0), dtype=np.intp))

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.numeric)

    def __getitem__(self, rows: slice | Indices) -> MixedRows:
        """Return some rows; a slice copies nothing."""
        return MixedRows(self.numeric[rows], self.codes[rows])


# Columns of mixed data: which are categories, which categories there are, and what rows become.

# From this many categories on, a column is no category but a name or number of a row.
MANY = 1_000


@dataclass(frozen=True, eq=False)
class Columns:
    """What the columns of a fit are; turns rows into `MixedRows`.

    Parameters
    ----------
    names : tuple of str or None
        Names of the columns, of a data frame.
    width : int
        Number of columns.
    categorical : tuple of int
        Positions of categorical columns; the others are numeric.
    categories : tuple of arrays
        Sorted categories of each of them: numbers, or texts.
    """

    names: tuple[str, ...] | None
    width: int
    categorical: tuple[int, ...]
    categories: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, X: Any, categorical: Any) -> Columns:
        """Return the columns of the rows of a fit.

        Parameters
        ----------
        X : array-like or DataFrame (n, d)
            Rows without groups.
        categorical : "auto", or sequence of names or positions
            "auto": the columns of a data frame that are not numbers.
        """
        names = column_names(X)
        if names is None:
            X = check_table(X, "X")
        if np.ndim(X) != 2 or not len(X):
            raise DataError("X is no table", f"shape {np.shape(X)}", "give rows x columns")
        width = int(np.shape(X)[1])
        chosen = chosen_columns(X, names, categorical)
        self = cls(names, width, chosen, tuple(categories_of(X, j) for j in chosen))
        self.check_categories()
        self._check_constant(X)
        return self

    @property
    def numeric(self) -> tuple[int, ...]:
        """Positions of the numeric columns."""
        return tuple(j for j in range(self.width) if j not in self.categorical)

    @property
    def offsets(self) -> NDArray[np.intp]:
        """Where the categories of each column start in one row of all of them."""
        return np.cumsum([0, *(c.size for c in self.categories)])

    def encoded(self, X: Any) -> MixedRows:
        """Return rows in the columns of the fit; categories it did not see get code -1.

        Raises
        ------
        DataError
            Other columns, missing or infinite numbers, text in numeric columns.
        """
        X = check_table(X, "X")
        same_columns(X, self.names, self.width)
        if not self.categorical:
            try:
                return MixedRows.of(checked_rows(X))
            except DataError:
                self._check_text(X)
                raise
        self._check_text(X)
        numbers = [np.asarray(column_of(X, j), dtype=float) for j in self.numeric]
        numeric = checked_rows(np.stack(numbers, axis=1)) if numbers else np.zeros((len(X), 0))
        codes = np.empty((len(X), len(self.categorical)), dtype=np.intp)
        for c, (j, known) in enumerate(zip(self.categorical, self.categories, strict=True)):
            codes[:, c] = _coded(column_of(X, j), known)
        return MixedRows(numeric, codes)

    def check_categories(self) -> None:
        """Raise unless every column has a category, and not too many."""
        for j, known in zip(self.categorical, self.categories, strict=True):
            if not 0 < known.size < MANY:
                raise DataError(
                    f"column {_named(self.names, j)} has {known.size} categories",
                    remedy="leave it out, or bin it first",
                )

    def _check_text(self, X: Any) -> None:
        """Raise on text in numeric columns."""
        text = [_named(self.names, j) for j in self.numeric if is_text(column_of(X, j))]
        if text:
            raise DataError(
                f"X has columns that are not numbers: {', '.join(text)}",
                remedy="name them in categorical=, leave them out, or name one in groups=",
            )

    def _check_constant(self, X: Any) -> None:
        """Raise on numeric columns that do not vary: they say nothing and have no variance."""
        if len(X) < 2:
            return
        constant = []
        for j in self.numeric:
            values = np.asarray(column_of(X, j))
            if values.dtype.kind in "iufb" and (values == values[0]).all():
                constant.append(_named(self.names, j))
        refuse_constant(constant)


def refuse_constant(columns: list[str]) -> None:
    """Raise where there are columns that do not vary."""
    if columns:
        raise DataError(
            f"X has constant columns: {', '.join(columns)}",
            "they tell no cluster from another, and their variance is zero",
            "leave them out",
        )


def check_row_order(**given: Any) -> None:
    """Refuse what has the index of rows given before in another order: all are taken by position."""
    known: dict[str, Any] = {}
    for name, values in given.items():
        parts = [*values.values()] if isinstance(values, Mapping) else [values]
        for other, rows in known.items():
            for part in parts:
                _check_order(rows, part, other, name)
        if parts:  # columns have one index
            known[name] = parts[0]


def in_one_order(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function refuse arguments whose rows have the same index in another order.

    Parameters
    ----------
    *names : str
        Arguments with a row for each row.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        places = tuple(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = dict(zip(places, args, strict=False)) | kwargs
            check_row_order(**{name: given[name] for name in names if name in given})
            return function(*args, **kwargs)

        return call

    return wrap


def _check_order(rows: Any, values: Any, other: str, name: str) -> None:
    own: Any = getattr(rows, "index", None)
    index: Any = getattr(values, "index", None)
    kinds = type(own), type(index)
    # beside another index, one that counts tells no rows apart
    counted = [kind.__name__ for kind in kinds].count("RangeIndex") == 1
    if counted or not all(kind.__module__.partition(".")[0] == "pandas" for kind in kinds):
        return
    if not own.equals(index) and len(own) == len(index) and set(own) == set(index):
        raise DataError(
            f"{name} has the index of {other} in another order",
            "rows are taken by position, not by index",
            f"give {name}.loc[{other}.index], or {name}.to_numpy() if the positions are right",
        )


def without_groups(X: Any, groups: Any) -> tuple[Any, Any]:
    """Return (rows, group labels), where ``groups`` may name columns of a frame.

    Parameters
    ----------
    X : array-like or DataFrame
        Rows.
    groups : array-like, frame, str, list of str or None
        Labels, a column of them for each attribute, or the names of the columns that hold them.
    """
    names = column_names(X)
    check_row_order(X=X, groups=groups)
    if isinstance(groups, str):
        if names is None:
            raise DataError(
                f"groups={groups!r} names a column, but X has no column names",
                remedy="give a DataFrame, or one label per row",
            )
        if groups not in names:
            raise DataError(f"X has no column {groups!r}", remedy=nearest(groups, names))
        named = [groups]
    elif isinstance(groups, list) and names is not None and len(groups) < len(X):
        named = groups if all(isinstance(g, str) and g in names for g in groups) else []
    else:
        named = []
    if not named or names is None:
        return X, groups
    chosen = [names.index(g) for g in named]  # names may be numbers in the frame
    own = [X.columns[j] for j in chosen]
    rest = X[[c for j, c in enumerate(X.columns) if j not in chosen]]
    return rest, np.asarray(X[own[0]]) if len(own) == 1 else X[own]


def column_of(X: Any, j: int) -> Any:
    """Return one column of an array or data frame."""
    return X[:, j] if isinstance(X, np.ndarray) else X[X.columns[j]]


def _named(names: tuple[str, ...] | None, j: int) -> str:
    return str(j) if names is None else names[j]


def is_text(column: Any) -> bool:
    """Whether a column holds anything but numbers and truth values."""
    values = np.asarray(column)
    if values.dtype.kind in "iufb":
        return str(getattr(column, "dtype", "")) == "category"
    try:
        values.astype(float)
    except OverflowError:  # no text: refused with the numbers
        return False
    except (TypeError, ValueError):
        return True
    return values.dtype.kind in "US"


def known_values(column: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return (values as numbers or texts, which are missing)."""
    values = np.asarray(column)
    if values.dtype.kind in "iufb":
        numbers = values.astype(float)
        return numbers, np.isnan(numbers)
    missing = np.array([is_missing(v) for v in values.tolist()], dtype=bool)
    return values.astype(str), missing


def categories_of(X: Any, j: int) -> NDArray[Any]:
    """Return the different entries of a column that are not missing, in order."""
    values, missing = known_values(column_of(X, j))
    return np.unique(values[~missing])


def chosen_columns(X: Any, names: tuple[str, ...] | None, categorical: Any) -> tuple[int, ...]:
    """Return the positions of categorical columns: those named, or of text where it is "auto"."""
    width = int(np.shape(X)[1])
    if not isinstance(categorical, str):
        return tuple(sorted({column_position(c, names, width) for c in categorical}))
    if categorical != "auto":
        raise DataError(
            f"categorical={categorical!r} is neither 'auto' nor a list of columns",
            remedy="give names or positions in a list",
        )
    return () if names is None else tuple(j for j in range(width) if is_text(column_of(X, j)))


def _coded(column: Any, known: NDArray[Any]) -> NDArray[np.intp]:
    values, missing = known_values(column)
    if values.dtype.kind != known.dtype.kind:  # text now, numbers in the fit, or the reverse
        distinct, inverse = np.unique(values, return_inverse=True)
        change = _written if known.dtype.kind == "U" else _number
        values = np.array([change(v) for v in distinct.tolist()])[inverse]
    at = np.minimum(np.searchsorted(known, values), known.size - 1)
    return np.where((known[at] == values) & ~missing, at, -1).astype(np.intp)


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def column_position(column: Any, names: tuple[str, ...] | None, width: int) -> int:
    """Return where a column named or numbered by the user is."""
    if isinstance(column, str) and names is not None:
        if column not in names:
            raise DataError(f"X has no column {column!r}", remedy=nearest(column, names))
        return names.index(column)
    if whole(column) and 0 <= column < width:
        return int(column)
    raise DataError(
        f"categorical names the column {column!r}",
        f"X has {width} columns" + ("" if names is None else f": {', '.join(names[:10])}"),
        "give names of columns, or positions from 0",
    )
