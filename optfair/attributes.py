"""Several attributes of a row as one label, ``sex=female, race=black``, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError

# A part of a label: a name and a value, in which what separates them is escaped.
PART = re.compile(r"((?:[^\\=,]|\\.)+)=((?:[^\\=,]|\\.)*)", re.DOTALL)
SEPARATOR = ", "


def columns_of(values: Any) -> dict[str, Any] | None:
    """Return the columns of a frame or a mapping by name, None of anything else."""
    if isinstance(values, Mapping):
        return {str(name): np.asanyarray(column) for name, column in values.items()}
    if getattr(values, "ndim", 0) == 2 and hasattr(values, "columns"):
        return {str(name): np.asarray(values[name]) for name in values.columns}
    return None


def attribute_names(values: Any) -> tuple[str, ...]:
    """Return the names of several columns of labels; none of one column, or of anything else."""
    several = values if isinstance(values, Mapping) else getattr(values, "columns", ())
    return tuple(map(str, several)) if len(several) > 1 else ()


def lacking(labels: Any) -> NDArray[np.bool_]:
    """Return which labels are missing: masked, None, NaN, infinite or no date."""
    masked = np.ma.getmaskarray(labels) if isinstance(labels, np.ma.MaskedArray) else False
    labels = np.asarray(labels)
    if labels.dtype.kind in "fM":
        missing = ~np.isfinite(labels)
    elif labels.dtype == object:
        missing = np.array(list(map(is_missing, labels.ravel().tolist())), dtype=bool)
    else:
        missing = np.zeros(labels.size, dtype=bool)
    return np.asarray(missing.reshape(labels.shape) | masked)


def lacks_labels(labels: Any) -> bool:
    """Whether a label is missing."""
    return bool(lacking(labels).any())


def missing_rows(values: Any, frame: Any = None, named: int = 5) -> str:
    """Return which rows of a column lack a label, by the index of its frame: the first few.

    Examples
    --------
    >>> missing_rows(["a", None, "b", None])
    'in rows 1, 3'
    >>> missing_rows([None] * 9)
    'in rows 0, 1, 2, 3, 4 and 4 more'
    """
    at = np.flatnonzero(lacking(values)).tolist()
    frame = values if frame is None else frame
    index = frame.index if hasattr(frame, "iloc") else range(np.size(values))
    more = f" and {len(at) - named} more" if len(at) > named else ""
    return f"in row{'s' * (len(at) > 1)} {', '.join(str(index[i]) for i in at[:named])}{more}"


def is_missing(label: Any) -> bool:
    """Whether a label is None, NaN or a missing value that refuses comparison."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def crossed(columns: Mapping[str, Any], what: str, frame: Any = None) -> NDArray[Any]:
    """Return one label per row that names all its attributes; a single column is its own.

    Raises
    ------
    DataError
        No column, columns of several lengths, missing values.

    Examples
    --------
    >>> crossed({"sex": ["f", "m"], "age": [30, 40]}, "groups").tolist()
    ['sex=f, age=30', 'sex=m, age=40']
    """
    arrays = {name: np.asanyarray(column) for name, column in columns.items()}
    shapes = {a.shape for a in arrays.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise DataError(
            f"{what} is no frame of labels",
            f"its columns have the shapes {', '.join(map(str, sorted(shapes))) or 'of none'}",
            "give one label per row in each column",
        )
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    codes = np.zeros(len(next(iter(arrays.values()))), dtype=np.intp)
    parts = []
    for name, column in arrays.items():
        if lacks_labels(column):
            raise DataError(
                f"{what} has missing labels in {name!r}",
                missing_rows(column, frame),
                "drop those rows or give them a label",
            )
        levels, index = np.unique(column.astype(str), return_inverse=True)
        parts.append([f"{_escaped(name)}={_escaped(level)}" for level in levels.tolist()])
        codes = codes * levels.size + index
    kinds, index = np.unique(codes, return_inverse=True)
    places = np.unravel_index(kinds, [len(p) for p in parts])
    labels = [
        SEPARATOR.join(p[i] for p, i in zip(parts, at, strict=True))
        for at in zip(*places, strict=True)
    ]
    return np.array(labels)[index]


def attributes_of(labels: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the values of each attribute that labels name; none when they name no attributes.

    Examples
    --------
    >>> labels = crossed({"sex": ["f", "m"], "age": [30, 40]}, "groups")
    >>> {name: values.tolist() for name, values in attributes_of(labels).items()}
    {'sex': ['f', 'm'], 'age': ['30', '40']}
    >>> attributes_of(np.array(["f", "m"]))
    {}
    """
    rows = [_parts(str(label)) for label in labels.tolist()]
    names = {tuple(row) for row in rows}
    if len(names) != 1:
        return {}
    return {name: np.array([row[name] for row in rows]) for name in names.pop()}


def _parts(label: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    at = 0
    while match := PART.match(label, at):
        parts[_plain(match[1])] = _plain(match[2])
        at = match.end()
        if at == len(label):
            return parts
        if not label.startswith(SEPARATOR, at):
            break
        at += len(SEPARATOR)
    return {}


def _escaped(text: str) -> str:
    return re.sub(r"([\\=,])", r"\\\1", text)


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
