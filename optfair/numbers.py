"""The gate of numbers: matrices, vectors, weights and groups, checked before anything is built."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from optfair.attributes import columns_of, crossed, lacks_labels, missing_rows
from optfair.errors import (
    DataError,
    DeclarationError,
    OutOfMemory,
    kind_of,
    nearest,
    no_number,
    shown,
)

# Arrays by their entries, as everything here takes and returns them.
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

# Beyond this size squares of numbers and sums of them lose every digit that data have.
LARGEST = 1e15
# Below this share of all weight, groups have no fractions in floats.
LEAST_SHARE = 1e-100


def floats(values: Any, what: str, *, infinite: bool = False, flags: bool = True) -> Floats:
    """Return numbers as a new float array of any shape; booleans count as 0 and 1.

    Parameters
    ----------
    values : array-like or DataFrame
        Real numbers, none of them missing, and none beyond `LARGEST`.
    what : str
        What to call it in messages.
    infinite : bool
        Whether entries may be infinite, and of any size.
    flags : bool
        Whether an array may be one of booleans; a single boolean is never a number.

    Raises
    ------
    DataError
        With the first complex number, date, text, masked entry, object, NaN, or too large number.
    """
    if hasattr(values, "tocsr"):
        raise DataError(f"{what} is sparse", kind_of(values), "give a dense array: .toarray()")
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        where = np.argwhere(np.ma.getmaskarray(values))[0]
        raise DataError(f"{what} has masked entries", _place(where), "fill or drop them")
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            _refuse_objects(array, what, values)
        elif array.dtype.kind not in "fiub" or (
            array.dtype.kind == "b" and not (array.ndim and flags)
        ):
            first = f", the first is {_plain(array.flat[0])!r}" if array.size else ""
            why = f"they are {'texts' if array.dtype.kind in 'US' else array.dtype}{first}"
            raise DataError(f"{what} has entries that are not numbers", why, "give real numbers")
        # a copy: the problem must not change when the caller's array does
        array = np.array(array, dtype=np.float64, order="C", copy=True)
    except OverflowError as e:
        raise DataError(f"{what} has entries beyond all floats", str(e), "scale them") from None
    except (DataError, MemoryError):
        raise
    except Exception as e:  # ragged lists, and whatever foreign containers raise
        raise DataError(
            f"{what} has entries that are not numbers", str(e)[:200], "encode them first"
        ) from None
    # one pass where all is well
    if not array.size or (np.isfinite(low := array.min()) and np.isfinite(high := array.max())):
        if array.size and not infinite and max(-low, high) > LARGEST:
            where = np.argwhere(np.abs(array) > LARGEST)[0]
            raise DataError(
                f"{what} has entries beyond {LARGEST:.0e}",
                f"the first is {array[tuple(where)]:.3g} in {_place(where, values)}",
                "state it in other units",
            )
        return array
    bad = np.isnan(array) if infinite else ~np.isfinite(array)
    if bad.any():
        where = np.argwhere(bad)[0]
        raise DataError(
            f"{what} has {int(bad.sum())} entries that are NaN or infinite",
            f"the first is {array[tuple(where)]} in {_place(where, values)}",
            "drop or impute them",
        )
    return array


def _refuse_objects(array: Any, what: str, values: Any) -> None:
    kinds = {type(entry): entry for entry in array.ravel().tolist()}
    if all(_is_real(entry) for entry in kinds.values()):
        return
    where, entry = next((at, v) for at, v in np.ndenumerate(array) if not _is_real(v))
    missing = entry is None or type(entry).__name__ in ("NAType", "NaTType")
    said = "missing" if missing else kind_of(entry)
    raise DataError(
        f"{what} has entries that are not numbers",
        f"{_place(np.array(where), values)} is {said}" if where else f"it is {said}",
        "drop or impute them" if missing else "give real numbers",
    )


def _is_real(entry: Any) -> bool:
    return isinstance(entry, (Real, np.bool_)) and not isinstance(entry, np.timedelta64)


def _place(where: NDArray[np.intp], values: Any = None) -> str:
    """Return where an entry is, with what a frame or series calls that row and column."""
    at = [str(i) for i in where.tolist()]
    for k, axis in enumerate(("index", "columns")[: len(at)] if hasattr(values, "iloc") else ()):
        called = str(getattr(values, axis)[where[k]])
        at[k] += f" ({called})" if called != at[k] else ""
    return f"row {at[0]}, column {at[1]}" if len(at) == 2 else f"entry {', '.join(at)}"


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
    matrix = floats(values, what)
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
    if 0.0 < np.abs(matrix).max() < 1e-140:
        why = "the squares of such numbers are no floats"
        raise DataError(f"{what} has no entry above 1e-140", why, "state it in other units")
    return matrix


def check_fit(values: Any, what: str, rows: int) -> None:
    """Raise on an array that has not one entry per row."""
    shape = np.shape(values)
    if shape != (rows,):
        raise DataError(
            f"{what} does not fit the rows", f"shape {shape} for {rows} rows", "give one per row"
        )


def check_weights(weights: Any, rows: int) -> Floats:
    """Return weights that sum to 1; equal ones by default."""
    if weights is None:
        return np.full(rows, 1.0 / rows)
    w = floats(weights, "sample_weight")
    check_fit(w, "sample_weight", rows)
    if (w < 0).any():
        raise DataError(
            "sample_weight has negative entries",
            f"the first is in row {int(np.flatnonzero(w < 0)[0])}",
            "give non-negative numbers",
        )
    if not w.sum() > 0:
        raise DataError("sample_weight sums to zero", remedy="give some row a positive weight")
    return np.asarray(w / w.sum())


def check_table(values: Any, what: str) -> Any:
    """Return rows of numbers and texts: a data frame as it is, anything else as an array."""
    if hasattr(values, "columns"):
        return values
    if hasattr(values, "tocsr") or isinstance(values, np.ma.MaskedArray):
        return floats(values, what)
    try:
        table = np.asarray(values)
        fine = table.dtype.kind in "fiubUS"
        if table.dtype.kind == "O":
            real_or_text = (Real, str, np.bool_, type(None))
            fine = bool(table.ndim) and all(
                issubclass(kind, real_or_text) for kind in set(map(type, table.ravel().tolist()))
            )
    except ValueError as e:  # rows of several lengths
        raise DataError(f"{what} is no table", str(e), "give rows of one length") from None
    if not fine:
        raise DataError(
            f"{what} has entries that are neither numbers nor texts",
            f"they are {table.dtype}",
            "encode them first",
        )
    return table


def check_labels(values: Any, what: str, rows: int | None = None) -> NDArray[Any]:
    """Return labels of one kind, one per row: texts, whole numbers, truth values or dates.

    Several columns make one label that names its attributes.
    """
    if (columns := columns_of(values)) is not None:
        values = crossed(columns, what, values)
    try:
        labels = np.asarray(values)
        shape = labels.shape
    except ValueError as e:  # lists of several lengths
        raise DataError(f"{what} is no list of labels", str(e), "give one label per row") from None
    if labels.ndim != 1 or (rows is not None and labels.size != rows):
        raise DataError(
            f"{what} does not fit the rows",
            f"shape {shape}" + ("" if rows is None else f" for {rows} rows"),
            "give one label per row",
        )
    if labels.dtype.kind in "cmV":
        raise DataError(
            f"{what} has entries that are no labels",
            f"they are {labels.dtype}",
            "give texts, whole numbers or dates",
        )
    if lacks_labels(values if isinstance(values, np.ma.MaskedArray) else labels):
        rows_without = missing_rows(values)
        raise DataError(
            f"{what} has missing labels", rows_without, "drop those rows or give them a label"
        )
    if labels.dtype == object:
        try:
            set(labels.tolist())
            sorted({type(v): v for v in labels.tolist()}.values())
        except TypeError:
            raise DataError(
                f"{what} mixes labels that cannot be compared",
                f"types {sorted({type(v).__name__ for v in labels})}",
                "use one type, e.g. strings",
            ) from None
    return labels


def encode_groups(
    groups: Any, rows: int, weights: Floats, seen: int | None = None
) -> tuple[NDArray[np.intp], NDArray[Any], Floats]:
    """Return (group index of each row, sorted labels, weight share of each), of rows or more seen."""
    names, index = np.unique(check_labels(groups, "groups", rows), return_inverse=True)
    if names.size < 2:
        raise DataError(
            "groups has one group only",
            f"every label is {_plain(names[0])!r}",
            "fairness compares groups: give at least two",
        )
    fractional = names.dtype.kind == "f" and bool((names != np.round(names)).any())
    seen = seen or rows
    many = 50 if names.dtype.kind in "iuf" else max(50, seen // 2)
    if names.size > many or (fractional and names.size > min(10, seen // 2)):
        raise DataError(
            f"groups has {names.size} different labels in {seen} rows",
            f"for example {_plain(names[0])!r}",
            "it looks like a number, not a group: bin it first",
        )
    shares = _shares(index, weights, names.size)
    empty = np.flatnonzero(shares < LEAST_SHARE)
    if empty.size:
        raise DataError(
            f"group {_plain(names[empty[0]])!r} is empty",
            f"its rows have weight {shares[empty[0]]:.3g}",
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


def _plain(label: Any) -> Any:
    """Return a label as Python prints it, not as NumPy does."""
    return label.item() if isinstance(label, np.generic) else label


# Checks on the numbers that small models are declared from.


def check_vector(values: Any, what: str, size: int | None = None) -> Floats:
    """Return a finite float vector, of a given length where one is asked for."""
    vector = floats(values, what)
    if vector.ndim != 1 or vector.size == 0 or (size is not None and vector.size != size):
        wanted = "a list of numbers" if size is None else f"{size} numbers"
        raise DataError(f"{what} has shape {vector.shape}", remedy=f"give {wanted}")
    return vector


def check_number(
    value: Any,
    what: str,
    *,
    positive: bool = False,
    least: float = -np.inf,
    most: float = LARGEST,
    infinite: bool = False,
) -> float:
    """Return one number, above zero or within a range where that is asked for.

    Parameters
    ----------
    value : float
        No boolean, text, complex number or array.
    what : str
        What to call it in messages.
    positive : bool
        Whether it must be above zero.
    least, most : float
        Range.
    infinite : bool
        Whether it may be infinite.
    """
    number = np.nan
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if _is_real(value) and not isinstance(value, (bool, np.bool_)):
        with suppress(OverflowError):
            number = float(value)
    most = np.inf if infinite else most
    fine = np.isfinite(number) or (infinite and not np.isnan(number))
    if not fine or not max(least, -most) <= number <= most or (positive and number <= 0.0):
        kind = "positive number" if positive else "number" if infinite else "finite number"
        if np.isfinite(least):
            kind += f" of at least {least:g}"
        if most < LARGEST or most < number < np.inf:
            kind += f" of at most {most:g}"
        raise DataError(f"{what} is {shown(value)}, not a {kind}", remedy=f"give a {kind}")
    return number


def real(value: Any) -> float:
    """Return a number as a float, and NaN for whatever is none."""
    try:
        return check_number(value, "", infinite=True)
    except DataError:
        return float("nan")


def whole(value: Any) -> bool:
    """Whether a value is a whole number, of a type for them: 2, not 2.0 or True."""
    return isinstance(value, (int, np.integer)) and abs(real(value)) <= LARGEST


def check_positive(value: Any, what: str) -> float:
    """Return a finite number above zero."""
    return check_number(value, what, positive=True)


def check_probability(value: Any, what: str) -> float:
    """Return a number above 0 and below 1."""
    number = real(value)
    if not 0.0 < number < 1.0:
        cause, remedy = f"{what}={shown(value)} is not inside (0, 1)", "give e.g. 0.8"
        raise DeclarationError(cause, no_number(value), remedy)
    return number


def check_seconds(value: Any, what: str) -> float:
    """Return a number of seconds above zero, which may be infinite."""
    return check_number(value, what, positive=True, infinite=True)


def check_count(value: Any, what: str, *, least: int = 1) -> int:
    """Return a whole number of at least ``least``, no boolean."""
    number = check_number(value, what)
    if number != np.floor(number) or number < least:
        kind = f"whole number of at least {least}"
        raise DataError(f"{what} is {shown(value)}, not a {kind}", remedy=f"give a {kind}")
    return int(number)


def check_level(value: Any, what: str) -> int:
    """Return how much is shown: 0, 1 or 2; True is 1."""
    if isinstance(value, (bool, np.bool_)) or real(value) in (0, 1, 2):
        return int(value)
    cause = f"{what} is {shown(value)}, not 0, 1 or 2"
    raise DeclarationError(cause, no_number(value), "0 is silent")


def check_flag(value: Any, what: str) -> bool:
    """Return True or False, which the value must be."""
    if not isinstance(value, (bool, np.bool_)):
        raise DataError(f"{what} is {shown(value)}, not True or False", remedy="give True or False")
    return bool(value)


def check_text(value: Any, what: str) -> str:
    """Return a text with something in it."""
    if not isinstance(value, str) or not value:
        raise DataError(f"{what} is {shown(value)}, not a text", remedy="give a text")
    return value


def check_mapping(value: Any, what: str) -> Mapping[Any, Any]:
    """Return a mapping."""
    if not isinstance(value, Mapping):
        raise DataError(f"{what} is {shown(value)}, no mapping", remedy="give a dict")
    return value


def check_point(value: Any, what: str) -> Mapping[Any, Any]:
    """Return a mapping from names to finite numbers."""
    for name, entry in check_mapping(value, what).items():
        floats(entry, f"{what}[{name!r}]", flags=False)
    return cast(Mapping[Any, Any], value)


def check_callable(value: Any, what: str) -> Any:
    """Return a function."""
    if not callable(value):
        raise DataError(f"{what} is {shown(value)}, no function", remedy="give a function")
    return value


def check_functions(value: Any, what: str) -> Mapping[Any, Any]:
    """Return a mapping to functions."""
    for name, function in check_mapping(value, what).items():
        check_callable(function, f"{what}[{name!r}]")
    return cast(Mapping[Any, Any], value)


def check_jobs(value: Any, what: str) -> int:
    """Return how many processes: 1, 2, ... or -1 for all cores."""
    if check_count(value, what, least=-1) == 0:
        raise DataError(f"{what} is 0", remedy="give 1, 2, ... or -1 for all cores")
    return int(value)


def check_path(value: Any, what: str = "path") -> Path:
    """Return the path of a file."""
    try:
        path = Path(value)
        if not path.name or "\0" in str(path):
            raise ValueError("it names no file")
        os.fsencode(path)
        path.exists()
    except (TypeError, ValueError, OSError) as e:
        raise DataError(
            f"{what} is {shown(value)}, no path of a file", str(e)[:100], "give the name of a file"
        ) from None
    return path


def check_seed(value: Any, what: str) -> Any:
    """Return a seed: None, a whole number of at least 0, or one of NumPy's generators."""
    if value is None or isinstance(value, (np.random.Generator, np.random.RandomState)):
        return value
    seed = check_count(value, what, least=0)
    if seed >= 2**32:
        raise DataError(f"{what} is {shown(value)}, too large", remedy="give less than 2**32")
    return seed


def check_names(values: Any, what: str) -> tuple[Any, ...]:
    """Return names, of which each is a text or a number."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DataError(f"{what} is {shown(values)}, no list of names", remedy="give a list")
    names = tuple(values)
    for name in names:
        if not isinstance(name, (str, Real, np.generic)):
            raise DataError(f"{what} has {shown(name)}", "it is no name", "give texts")
    return names


def one_of(*kinds: type) -> Callable[[Any, str], Any]:
    """Return a check that a value is an instance of one of these classes."""

    def check(value: Any, what: str) -> Any:
        if not isinstance(value, kinds):
            of = " or ".join(kind.__name__ for kind in kinds)
            raise DataError(f"{what} is {shown(value)}, no {of}", remedy=f"give a {of}")
        return value

    return check


P = ParamSpec("P")
R = TypeVar("R")


class Taken:
    """What a check returns to have something else taken in place of an argument."""

    def __init__(self, instead: Any) -> None:
        self.instead = instead


def checked(**checks: Callable[[Any, str], Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a public function refuse arguments that cannot be what it means.

    None passes where it is the default or the annotation says so. Where memory runs out inside,
    the function raises `OutOfMemory`.

    Parameters
    ----------
    **checks : callable
        From the value and the name of an argument; they raise `DataError`. One that returns
        `Taken` has something else taken in place of the argument.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        places = tuple(parameters)
        free = {
            name
            for name, p in parameters.items()
            if p.default is None or "None" in str(p.annotation)
        }

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            instead: dict[str, Any] = {}
            for name, value in (*zip(places, args, strict=False), *kwargs.items()):
                if name in checks and not (value is None and name in free):
                    taken = checks[name](value, name)
                    if isinstance(taken, Taken):
                        instead[name] = taken.instead
            given = dict(zip(places, args, strict=False)) | kwargs | instead
            try:
                return cast(Any, function)(**given) if instead else function(*args, **kwargs)
            except OutOfMemory:
                raise
            except MemoryError as e:
                raise OutOfMemory(
                    f"{function.__name__} needs more memory than there is",
                    str(e),
                    "give it fewer rows or columns, or the process more memory",
                ) from None

        return call

    return wrap


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
        raise DeclarationError(
            f"unknown {what} {shown(value)}", remedy=nearest(str(value)[:200], known)
        )
