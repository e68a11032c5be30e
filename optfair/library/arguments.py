"""Rows, groups and centers of the papers' models, from a [data] table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest

Floats = NDArray[np.float64]

__all__ = ["assignment_arguments", "bound_arguments", "coupling_arguments", "group_arguments"]

_ROW_KEYS = ("dataset", "groups", "columns", "standardize", "l2", "sample", "centers")


def assignment_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `FairAssignment`.

    With ``dataset``, X, groups and centers come from a data set; any other entry is an
    argument as it stands. ``fairness = "none"`` leaves the default rule out.
    """
    arguments = dict(data)
    if "dataset" in data:
        X, labels, centers = _rows(arguments)
        arguments |= {"X": X, "groups": labels, "centers": _centers(centers, X)}
    return _without_rule(arguments)


def bound_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `FairKMeansBound`: as of `FairAssignment`, but no centers."""
    arguments = dict(data)
    if "dataset" in data:
        X, labels, _ = _rows(arguments, centers=False)
        arguments |= {"X": X, "groups": labels}
    return _without_rule(arguments)


def coupling_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `KantorovichCoupling`.

    With ``dataset``, the two sets of points are the two groups, in the order of their labels.
    """
    arguments = dict(data)
    if "dataset" not in data:
        return arguments
    X, labels, asked = _rows(arguments)
    centers = _centers(asked, X)
    names = np.unique(labels)
    if names.size != 2:
        raise DataError(
            f"a coupling joins two groups, {data['groups']!r} has {names.size}",
            ", ".join(map(str, names)),
            "choose a column with two values, or FairAssignment for more groups",
        )
    first, second = (X[labels == name] for name in names)
    return arguments | {"first": first, "second": second, "centers": centers}


def group_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the models of a group and a linear score.

    With ``dataset``, X are the rows whose column ``groups`` has the label ``group``, of the
    sample where there is one; the score is given by its coefficients, because a fitted one
    would differ in its last digits from machine to machine.
    """
    arguments = dict(data)
    if "dataset" not in data:
        return arguments
    X, labels, _ = _rows(arguments, centers=False)
    if "group" not in arguments:
        raise DeclarationError("[data] names a dataset but no group", remedy="add group = a label")
    group = str(arguments.pop("group"))
    members = X[labels == group]
    if not len(members):
        raise DataError(
            f"no row has {data['groups']!r} = {group!r}", remedy=nearest(group, np.unique(labels))
        )
    return arguments | {"X": members, "score": _named_score(data)}


def _named_score(data: Mapping[str, Any]) -> Any:
    """Return the score of a table with the names of the data set's columns."""
    from optfair import datasets
    from optfair.features.linear_score import LinearScore

    columns = data.get("columns") or datasets.load(data["dataset"]).numeric_columns
    given = data.get("score")
    if not isinstance(given, list) or len(given) != 2:
        raise DeclarationError(
            f"score in [data] is {given!r}", remedy="write score = [[coefficients], intercept]"
        )
    return LinearScore(given[0], given[1], names=columns)


def _without_rule(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments.get("fairness") == "none":
        arguments["fairness"] = None
    return arguments


def _rows(arguments: dict[str, Any], *, centers: bool = True) -> tuple[Floats, NDArray[Any], Any]:
    """Take the keys about rows out of a table; return rows, labels, and the centers asked for."""
    from optfair import datasets  # data are asked for by name, and only then

    taken = _ROW_KEYS if centers else tuple(k for k in _ROW_KEYS if k != "centers")
    asked = {key: arguments.pop(key) for key in taken if key in arguments}
    for key in ("groups", "centers") if centers else ("groups",):
        if key not in asked:
            raise DeclarationError(f"[data] names a dataset but no {key}", remedy=f"add {key}")
    X, labels = datasets.load(asked["dataset"]).numeric(
        asked["groups"],
        columns=asked.get("columns"),
        standardize=asked.get("standardize", True),
        l2=asked.get("l2", False),
    )
    if "sample" in asked:
        s = _exactly(asked["sample"], ("rows", "seed"), "sample")
        if not 0 < s["rows"] <= X.shape[0]:
            raise DataError(
                f"a sample of {s['rows']} rows", f"there are {X.shape[0]}", "ask for fewer"
            )
        chosen = np.random.default_rng(s["seed"]).choice(X.shape[0], s["rows"], replace=False)
        chosen.sort()
        X, labels = X[chosen], labels[chosen]
    return X, labels, asked.get("centers")


def _centers(asked: Any, X: Floats) -> Floats:
    """Return explicit centers, or those that k-means++ draws."""
    if not isinstance(asked, Mapping):
        return np.asarray(asked, dtype=np.float64)
    c = _exactly(asked, ("method", "seed", "k"), "centers")
    if c["method"] != "kmeans++":
        raise DeclarationError(
            f"unknown method {c['method']!r} of centers", remedy=nearest(c["method"], ["kmeans++"])
        )
    from sklearn.cluster import kmeans_plusplus

    centers, _ = kmeans_plusplus(X, c["k"], random_state=c["seed"])
    return np.asarray(centers, dtype=np.float64)


def _exactly(table: Any, keys: tuple[str, ...], what: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping) or set(table) != set(keys):
        raise DeclarationError(
            f"{what} in [data] is {table!r}", remedy=f"give a table with exactly {', '.join(keys)}"
        )
    return table
