"""Arguments of the models of a group and a linear score, from a [data] table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optfair import datasets
from optfair.errors import DataError, DeclarationError, nearest
from optfair.features.linear_score import LinearScore
from optfair.library.arguments import dataset_rows

__all__ = ["group_arguments"]


def group_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the models of a group and a linear score.

    With ``dataset``, X are the rows whose column ``groups`` has the label ``group``, of the
    sample where there is one; the score is given by its coefficients, because a fitted one
    would differ in its last digits from machine to machine.
    """
    arguments = dict(data)
    if "dataset" not in data:
        return arguments
    X, labels, _ = dataset_rows(arguments, centers=False)
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
    columns = data.get("columns") or datasets.load(data["dataset"]).numeric_columns
    given = data.get("score")
    if not isinstance(given, list) or len(given) != 2:
        raise DeclarationError(
            f"score in [data] is {given!r}", remedy="write score = [[coefficients], intercept]"
        )
    return LinearScore(given[0], given[1], names=columns)
