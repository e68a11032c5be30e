"""Components that a fit starts from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.fair_clustering.starts import INITS, check_distinct, starting_centers
from optfair.methods.fair_mixtures.estimator.components import Components
from optfair.methods.fair_mixtures.estimator.gaussians import Gaussians
from optfair.methods.fair_mixtures.estimator.multinoullis import Multinoullis
from optfair.methods.fair_mixtures.estimator.sample import Sample
from optfair.numbers import check_matrix

Floats = NDArray[np.float64]

__all__ = ["check_start", "empty_components", "first_components"]

# Rows that the k-means of a start runs on.
SAMPLED = 50_000
# Weight that other components get in a start with categories: no probability starts at zero.
SOFT = 0.1


def check_start(init: Any, clusters: int, columns: int) -> str | Floats | Components:
    """Return a way to start, means, or components.

    Raises
    ------
    DeclarationError, DataError
        An unknown name, means of another shape.
    """
    if isinstance(init, str):
        if init not in INITS:
            raise DeclarationError(f"unknown init {init!r}", remedy=nearest(init, INITS))
        return init
    if isinstance(init, Components):
        if init.clusters != clusters or init.means.shape[1] != columns:
            raise DataError(
                "init does not fit",
                f"{init.clusters} components in {init.means.shape[1]} numeric columns,"
                f" for n_components={clusters} and {columns} columns",
                "give components of a fit on the same columns",
            )
        return init
    means = check_matrix(init, "init")
    if means.shape != (clusters, columns):
        raise DataError(
            f"init has shape {means.shape}",
            f"n_components={clusters}, and the rows have {columns} numeric columns",
            "give one row of means per component",
        )
    return means


def empty_components(
    sample: Sample, clusters: int, shape: str, floor: float, offsets: NDArray[np.intp], least: float
) -> Components:
    """Return equal components that carry shape, floors and origin; see `first_components`."""
    X = sample.rows.numeric
    d = X.shape[1]
    gaussians = None
    if d:
        origin = sample.weights @ X
        scale = {
            "shared": np.ones(()),
            "spherical": np.ones(clusters),
            "diag": np.ones((clusters, d)),
            "tied": np.eye(d),
            "full": np.tile(np.eye(d), (clusters, 1, 1)),
        }[shape]
        gaussians = Gaussians(shape, np.zeros((clusters, d)), scale, origin, floor)
    multinoullis = None
    if offsets.size > 1:
        even = np.concatenate([np.full(n, 1.0 / n) for n in np.diff(offsets)])
        multinoullis = Multinoullis(np.tile(even, (clusters, 1)), offsets, least)
    return Components(np.full(clusters, 1.0 / clusters), gaussians, multinoullis)


def first_components(
    sample: Sample, empty: Components, init: str | Floats | Components, *, scale: float, seed: int
) -> Components:
    """Return the components of a start.

    Rows get the cluster of the nearest start center, numeric columns as they are; with
    categorical columns, numeric ones standardised beside indicators. Components are estimated
    from these clusters.

    Parameters
    ----------
    sample : Sample
        Rows.
    empty : Components
        Shape, floors and origin.
    init : str, means (K, d) or Components
        As checked.
    scale : float
        Factor on the estimated standard deviations; larger ones start softer.
    seed : int
        Seed of the draw.
    """
    if isinstance(init, Components):
        return init
    rng = np.random.default_rng(seed)
    few = sample.drawn(rng, SAMPLED)
    K = empty.clusters
    if isinstance(init, str):
        features = _features(few, empty)
        check_distinct(features[few.weights > 0], K)
        centers = starting_centers(
            features, few.weights, K, init=init, metric="sqeuclidean", seed=seed
        )
    else:
        features, centers = few.rows.numeric, init
    far = (centers**2).sum(axis=1) - 2.0 * features @ centers.T
    R = np.zeros((few.count, K))
    R[np.arange(few.count), far.argmin(axis=1)] = 1.0
    if empty.multinoullis is not None:
        R = (1.0 - SOFT) * R + SOFT / K
    found = empty.estimated(few.statistics(empty, R))
    # even weights, as the paper starts; a center that no row is near stays where it was
    found = found.with_weights(np.full(K, 1.0 / K))
    g = found.gaussians
    if g is not None:
        if not isinstance(init, str):
            g = g.at(centers)
        found = Components(found.weights, g.scaled(scale), found.multinoullis)
    return found


def _features(sample: Sample, empty: Components) -> Floats:
    """Return what k-means starts on."""
    X = sample.rows.numeric
    m = empty.multinoullis
    if m is None:
        return X
    w = sample.weights
    if X.shape[1]:
        middle = w @ X
        spread = np.sqrt(w @ (X - middle) ** 2)
        X = (X - middle) / np.where(spread > 0.0, spread, 1.0)
    flags = np.zeros((sample.count, int(m.offsets[-1])))
    for j, start in enumerate(m.offsets[:-1]):
        known = sample.rows.codes[:, j] >= 0
        flags[known, start + sample.rows.codes[known, j]] = np.sqrt(0.5)
    return np.hstack([X, flags])
