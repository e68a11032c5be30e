"""A mixture of Gaussians as numbers, and which component a point belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from optfair.errors import DataError
from optfair.methods.group_counterfactuals.maps.moments import Moments

Floats = NDArray[np.float64]

__all__ = ["GaussianParts"]


@dataclass(frozen=True, eq=False)
class GaussianParts:
    r"""Weights and moments of the components of a Gaussian mixture.

    Parameters
    ----------
    weights : array (m,)
        Positive, of sum 1.
    moments : tuple of Moments
        Of each component, with covariances that are positive definite.
    """

    weights: Floats
    moments: tuple[Moments, ...]

    @classmethod
    def of(cls, components: Any, points: Floats) -> GaussianParts:
        """Return the mixture that somebody gave in one form or another.

        Parameters
        ----------
        components : fitted GaussianMixture, (weights, means, covariances), or labels (n,)
            Labels give one Gaussian for each, with the moments of its rows.
        points : array (n, d)
            The rows that labels belong to.

        Raises
        ------
        DataError
            What is given does not fit, or a component is flat.
        """
        if hasattr(components, "covariances_"):
            return cls._given(
                components.weights_,
                components.means_,
                _full(components),
                points.shape[1],
            )
        if isinstance(components, (tuple, list)) and [np.ndim(c) for c in components] == [1, 2, 3]:
            weights, means, covariances = components
            return cls._given(weights, means, covariances, points.shape[1])
        labels = np.asarray(components)
        if labels.shape != (points.shape[0],):
            raise DataError(
                "components are neither a mixture nor labels of the rows",
                f"an array of shape {labels.shape} for {points.shape[0]} rows",
                "give a fitted GaussianMixture, (weights, means, covariances), or one label per row",
            )
        rows = [points[labels == label] for label in np.unique(labels)]
        return cls._given(
            np.array([len(r) for r in rows], dtype=float),
            np.stack([r.mean(axis=0) for r in rows]),
            np.stack([np.cov(r.T, bias=True).reshape(r.shape[1], -1) for r in rows]),
            points.shape[1],
        )

    @classmethod
    def _given(cls, weights: Any, means: Any, covariances: Any, d: int) -> GaussianParts:
        w = np.asarray(weights, dtype=float)
        mu, sigma = np.asarray(means, dtype=float), np.asarray(covariances, dtype=float)
        m = w.size
        if mu.shape != (m, d) or sigma.shape != (m, d, d):
            raise DataError(
                f"the mixture does not fit {d} features",
                f"{m} weights, means {mu.shape}, covariances {sigma.shape}",
                f"give means ({m}, {d}) and covariances ({m}, {d}, {d})",
            )
        if not (np.isfinite(w).all() and (w > 0).all()):
            raise DataError(
                "the mixture has a component without weight", remedy="drop components of weight 0"
            )
        moments = tuple(Moments.given(mean, s) for mean, s in zip(mu, sigma, strict=True))
        flat = [j for j, one in enumerate(moments) if one.singular]
        if flat:
            raise DataError(
                f"component {flat[0]} of the mixture has no spread in some direction",
                f"its covariance has rank {moments[flat[0]].root.shape[1]} of {d}",
                "use fewer components, or add a little to the diagonal of its covariance",
            )
        return cls(np.asarray(w / w.sum()), moments)

    def log_densities(self, points: Floats) -> Floats:
        """Return log of weight times density, one column per component (n, m)."""
        columns = []
        for weight, one in zip(self.weights, self.moments, strict=True):
            lower = np.linalg.cholesky(one.covariance)
            scaled = solve_triangular(lower, (points - one.mean).T, lower=True)
            size = 2 * np.log(np.diag(lower)).sum() + one.mean.size * np.log(2 * np.pi)
            columns.append(np.log(weight) - 0.5 * (size + np.square(scaled).sum(axis=0)))
        return np.stack(columns, axis=1)

    def assign(self, points: Floats) -> NDArray[np.intp]:
        """Return the most probable component of each row."""
        return np.asarray(self.log_densities(points).argmax(axis=1), dtype=np.intp)


def _full(mixture: Any) -> Floats:
    """Return the covariances of a scikit-learn mixture as full matrices."""
    given = np.asarray(mixture.covariances_, dtype=float)
    m, d = np.shape(mixture.means_)
    kind = mixture.covariance_type
    if kind == "tied":
        return np.broadcast_to(given, (m, d, d))
    if kind == "diag":
        return np.stack([np.diag(row) for row in given])
    if kind == "spherical":
        return given[:, None, None] * np.eye(d)
    return given
