"""Clusters of counterfactuals, from a [data] table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optfair.errors import DeclarationError
from optfair.methods.cluster_counterfactuals.partition import Partition

__all__ = ["cluster_arguments"]


def cluster_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ClusterCounterfactual`.

    With ``centers``, clusters of k-means; with ``means`` and ``covariances``, Gaussian clusters,
    with ``cluster_weights`` and ``covariance_type`` where they are needed. Any other entry is
    an argument as it stands.

    Examples
    --------
    >>> found = cluster_arguments({"centers": [[0.0], [2.0]], "factual": [0.5], "target": 1})
    >>> found["clusters"].kind, found["target"]
    ('kmeans', 1)
    """
    arguments = dict(data)
    centers, means = arguments.pop("centers", None), arguments.pop("means", None)
    if (centers is None) == (means is None):
        raise DeclarationError(
            "[data] has both centers and means" if centers else "[data] has no clusters",
            remedy="give centers of k-means, or means and covariances of Gaussian clusters",
        )
    if centers is not None:
        return arguments | {"clusters": Partition.kmeans(centers)}
    if "covariances" not in arguments:
        raise DeclarationError("[data] has means but no covariances", remedy="add covariances")
    clusters = Partition.gaussian(
        means,
        arguments.pop("covariances"),
        arguments.pop("cluster_weights", None),
        arguments.pop("covariance_type", None),
    )
    return arguments | {"clusters": clusters}
