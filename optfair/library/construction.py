"""How the tables of an instance become a problem: models and rules by name, rows of data sets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair import registry
from optfair.core.composition import Rule
from optfair.core.problem import Problem
from optfair.errors import DataError, DeclarationError, nearest
from optfair.locate import check_keys
from optfair.numbers import Floats

# Which models and rules a file of facts may name, and how their tables become objects.


def model_names() -> tuple[str, ...]:
    """Return the names of the models an instance may have."""
    return registry.names("models")


def construct(model: str, data: Mapping[str, Any], where: str) -> Problem:
    """Return the problem a [data] table declares.

    Parameters
    ----------
    model : str
        Name of the model.
    data : mapping
        The table.
    where : str
        What to call the table in messages.
    """
    maker = registry.load("models", model, f"model of {where}")
    # models whose [data] says where rows come from; others take its entries as keywords
    reads = model in registry.names("arguments")
    arguments = registry.load("arguments", model)(data) if reads else dict(data)
    fairness = arguments.get("fairness")
    if isinstance(fairness, Mapping):
        arguments["fairness"] = rule(fairness, f"fairness in {where}")
    problem: Problem = _called(maker, arguments, where)
    return problem


def rule(table: Mapping[str, Any], where: str) -> Rule:
    """Return the rule of a table with the key ``kind`` and the rule's parameters."""
    if "kind" not in table:
        raise DeclarationError(
            f"{where} has no kind", remedy=f"write kind = one of {list(registry.names('rules'))}"
        )
    maker = registry.load("rules", table["kind"], f"kind of {where}")
    made: Rule = _called(maker, {k: v for k, v in table.items() if k != "kind"}, where)
    return made


def _called(maker: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> Any:
    """Call with keywords, after telling unknown and missing ones."""
    signature = inspect.signature(maker).parameters
    parameters = {k: p for k, p in signature.items() if p.kind is not p.VAR_KEYWORD}
    if len(parameters) == len(signature):  # else the maker checks what it is given
        check_keys(arguments, parameters, where)
    missing = [k for k, p in parameters.items() if p.default is p.empty and k not in arguments]
    if missing:
        raise DeclarationError(
            f"{where} lacks {', '.join(missing)}", remedy=f"it may have {', '.join(parameters)}"
        )
    return maker(**arguments)


# Rows, groups and centers of a data set, from a [data] table.

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
