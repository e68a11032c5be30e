"""Rows, groups and centers of a data set, from a [data] table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest

Floats = NDArray[np.float64]

__all__ = ["dataset_rows", "named_centers"]

ROW_KEYS = ("dataset", "groups", "columns", "standardize", "l2", "sample", "centers")


def dataset_rows(
    arguments: dict[str, Any], *, centers: bool = True
) -> tuple[Floats, NDArray[Any], Any]:
    """Take the keys about rows out of a table; return rows, labels, and the centers asked for."""
    from optfair import datasets  # data are asked for by name, and only then

    taken = ROW_KEYS if centers else tuple(k for k in ROW_KEYS if k != "centers")
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


def named_centers(asked: Any, X: Floats) -> Floats:
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
