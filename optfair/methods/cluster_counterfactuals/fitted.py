"""Clusters read off a fitted estimator."""

from __future__ import annotations

from typing import Any

from optfair.errors import DataError, DeclarationError
from optfair.methods.cluster_counterfactuals.partition import Partition

__all__ = ["read_clusters"]


def read_clusters(model: Any) -> tuple[Partition, Any]:
    """Return the clusters of a fitted model, and the feature names it was fitted with or None.

    Known by what they hold, so nothing is imported: ``cluster_centers_`` of the k-means family,
    ``means_`` and ``covariances_`` of Gaussian mixtures, of scikit-learn and of optfair.
    """
    names = getattr(model, "feature_names_in_", None)
    called = type(model).__name__
    if hasattr(model, "means_") and hasattr(model, "covariances_"):
        return (
            Partition.gaussian(
                model.means_,
                model.covariances_,
                getattr(model, "weights_", None),
                getattr(model, "covariance_type", None),
            ),
            names,
        )
    if hasattr(model, "cluster_centers_"):
        metric = getattr(model, "metric", "sqeuclidean")
        if metric not in ("sqeuclidean", "euclidean"):
            raise DeclarationError(
                f"{called} measures distance by {metric!r}",
                "the cell of a center is a polyhedron for squared distances only",
                "fit with squared distances",
            )
        return Partition.kmeans(model.cluster_centers_), names
    if hasattr(model, "fit"):
        raise DataError(
            f"{called} is not fitted, or has no centers",
            "neither cluster_centers_ nor means_ with covariances_ is there",
            "fit it first; known are k-means and Gaussian mixtures",
        )
    raise DataError(
        f"a {called} is not a clustering",
        remedy="give a fitted KMeans, MiniBatchKMeans, FairKMeans or GaussianMixture, or arrays to"
        " ClusterCounterfactual.kmeans or .gaussian",
    )
