"""Arguments of the models of fair clustering, from a [data] table; and their smallest problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optfair.errors import DataError
from optfair.library.construction import dataset_rows, named_centers
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.coupling import KantorovichCoupling


def assignment_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `FairAssignment`.

    With ``dataset``, X, groups and centers come from a data set; any other entry is an
    argument as it stands. ``fairness = "none"`` leaves the default rule out.
    """
    arguments = dict(data)
    if "dataset" in data:
        X, labels, centers = dataset_rows(arguments)
        arguments |= {"X": X, "groups": labels, "centers": named_centers(centers, X)}
    return _without_rule(arguments)


def bound_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `FairKMeansBound`: as of `FairAssignment`, but no centers."""
    arguments = dict(data)
    if "dataset" in data:
        X, labels, _ = dataset_rows(arguments, centers=False)
        arguments |= {"X": X, "groups": labels}
    return _without_rule(arguments)


def coupling_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `KantorovichCoupling`.

    With ``dataset``, the two sets of points are the two groups, in the order of their labels.
    """
    arguments = dict(data)
    if "dataset" not in data:
        return arguments
    X, labels, asked = dataset_rows(arguments)
    centers = named_centers(asked, X)
    names = np.unique(labels)
    if names.size != 2:
        raise DataError(
            f"a coupling joins two groups, {data['groups']!r} has {names.size}",
            ", ".join(map(str, names)),
            "choose a column with two values, or FairAssignment for more groups",
        )
    first, second = (X[labels == name] for name in names)
    return arguments | {"first": first, "second": second, "centers": centers}


def _without_rule(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments.get("fairness") == "none":
        arguments["fairness"] = None
    return arguments


def small_assignment() -> FairAssignment:
    """Return a problem with the structure ``mass-assignment``: three rows, two clusters."""
    rows = [[0.0], [1.0], [3.0]]
    return FairAssignment(rows, groups=[0, 1, 0], centers=rows[:2])


def small_coupling() -> KantorovichCoupling:
    """Return a problem with the structure ``coupling``: two points and two points."""
    return KantorovichCoupling(cost=[[0.0, 1.0], [1.0, 0.0]])
