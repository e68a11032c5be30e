"""A clustering as scores: a row belongs to the cluster with the largest; boundaries lie between two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, kind_of
from optfair.numbers import Flags, Floats, Indices, check_choice, check_matrix, check_vector, floats

# Where one cluster ends and another begins: a linear or quadratic function of a point.

EPS = float(np.finfo(float).eps)
# Features whose sizes are within this factor of each other are measured in one unit.
ALIKE = 2.0**10
# Difference of two logarithms, relative to them, that is rounding of the densities.
PEAK = 32.0 * EPS


@dataclass(frozen=True, eq=False)
class Boundary:
    r"""A function of a point that is at most 0 on the side of the target.

    .. math::
        g(z) = \tfrac12 (z - a)^T P (z - a) - \tfrac12 (z - b)^T Q (z - b) + r

    Written in differences from the centers a and b, it loses no digits where the clusters are
    far from the origin. Its curvature is D = P - Q, indefinite in general.

    Parameters
    ----------
    a, b : array (d,)
        Centers of the target and of the other cluster.
    P, Q : array (d, d) or None
        Their precisions; None for Q is no other cluster. Where both are the same array, g is
        linear.
    r : float
        Constant.
    """

    a: Floats
    P: Floats
    b: Floats
    Q: Floats | None
    r: float

    @property
    def linear(self) -> bool:
        """Whether it has no curvature at all."""
        return self.Q is not None and (self.Q is self.P or bool((self.Q == self.P).all()))

    def straight(self, free: Flags) -> bool:
        """Whether it has no curvature in the features that may change."""
        return self.linear or not self.curvature(np.flatnonzero(free))[0].any()

    def value(self, Z: Floats) -> Floats:
        """Return g at one point (d,) or at rows (n, d)."""
        if self.linear:
            # P(a-part) - P(b-part) with the square of z cancelled by hand
            normal = self.P @ (self.b - self.a)
            return np.asarray((Z - (self.a + self.b) / 2.0) @ normal + self.r)
        near = Z - self.a
        total = 0.5 * ((near @ self.P) * near).sum(axis=-1)
        if self.Q is not None:
            far = Z - self.b
            total = total - 0.5 * ((far @ self.Q) * far).sum(axis=-1)
        return np.asarray(total + self.r)

    def gradient(self, Z: Floats) -> Floats:
        """Return the gradient at one point (d,) or at rows (n, d)."""
        if self.linear:
            return np.asarray(np.broadcast_to(self.P @ (self.b - self.a), Z.shape))
        slope = (Z - self.a) @ self.P
        return np.asarray(slope if self.Q is None else slope - (Z - self.b) @ self.Q)

    def curvature(self, free: Indices) -> tuple[Floats, float]:
        """Return D on some features, and the size of the rounding in its entries.

        Entries that are all rounding are returned as 0: then g is linear in these features.
        """
        P = self.P[np.ix_(free, free)]
        if self.Q is None:
            return P, EPS * float(np.abs(P).max(initial=0.0))
        Q = self.Q[np.ix_(free, free)]
        D = P - Q
        noise = EPS * float(max(np.abs(P).max(initial=0.0), np.abs(Q).max(initial=0.0)))
        if np.abs(D).max(initial=0.0) <= 4.0 * noise:
            D = np.zeros_like(D)
        return (D + D.T) / 2.0, noise

    def slope_noise(self, Z: Floats) -> Floats:
        """Return the size of the rounding in the gradient at rows (n, d)."""
        size = np.abs(self.P).max() * np.abs(Z - self.a).sum(axis=-1)
        if self.Q is not None:
            size = size + np.abs(self.Q).max() * np.abs(Z - self.b).sum(axis=-1)
        return np.asarray(4.0 * EPS * size)

    def section(self, anchor: Floats, free: Indices) -> Section:
        """Return g as a function of some features, the others held at an anchor."""
        D, noise = self.curvature(free)
        return Section(
            self,
            free,
            anchor,
            D,
            self.gradient(anchor)[free],
            float(self.value(anchor)),
            noise,
            float(self.slope_noise(anchor)),
        )


@dataclass(frozen=True, eq=False)
class Section:
    r"""A boundary in the free features, expanded about an anchor.

    .. math:: g(u) = \tfrac12 u^T D u + l^T u + g_0,\qquad u = z_F - y_F

    Attributes
    ----------
    boundary : Boundary
        What it is a section of.
    free : array (f,)
        Columns of the free features.
    anchor : array (d,)
        The point it is expanded about.
    D, slope, level : array (f, f), array (f,), float
        Curvature, gradient and value at the anchor.
    noise, slope_noise : float
        Size of the rounding in D and in the slope.
    """

    boundary: Boundary
    free: Indices
    anchor: Floats
    D: Floats
    slope: Floats
    level: float
    noise: float
    slope_noise: float

    @property
    def linear(self) -> bool:
        """Whether there is no curvature in the free features."""
        return not self.D.any()

    @cached_property
    def eigenvalues(self) -> Floats:
        """Eigenvalues of D in ascending order; those that are rounding are 0."""
        d = np.linalg.eigvalsh(self.D)
        small = 4.0 * d.size * (self.noise + EPS * float(np.abs(self.D).max(initial=0.0)))
        return np.asarray(np.where(np.abs(d) <= small, 0.0, d))

    @property
    def constant(self) -> bool:
        """Whether the free features do not move it at all."""
        return self.linear and bool((np.abs(self.slope) <= self.slope_noise).all())

    def value(self, point: Floats) -> float:
        """Return g at a point (d,), whose other features are taken from the anchor."""
        z = self.anchor.copy()
        z[self.free] = point[self.free]
        return float(self.boundary.value(z))

    def gradient(self, point: Floats) -> Floats:
        """Return the gradient in the free features (f,)."""
        return np.asarray(self.D @ (point[self.free] - self.anchor[self.free]) + self.slope)


# A clustering as scores: a row belongs to the cluster with the largest.

COVARIANCES = ("full", "tied", "diag", "spherical")


@dataclass(frozen=True, eq=False)
class Partition:
    r"""Clusters with a score each.

    .. math::
        s_k(x) = -\tfrac12 (x - m_k)^T P_k (x - m_k) + r_k

    K-means: P = I and r = 0, so the nearest center wins. Gaussian clusters:
    :math:`P_k = \Sigma_k^{-1}` and :math:`r_k = \log\pi_k - \tfrac12\log\det(2\pi\Sigma_k)`, so
    the score is the logarithm of weight times density.

    Attributes
    ----------
    kind : {"kmeans", "gaussian"}
        What the clusters are.
    means : array (K, d)
        Centers.
    precisions : tuple of array (d, d)
        One per cluster; clusters with one covariance share one array.
    offsets : array (K,)
        r.
    log_weights : array (K,)
        log π; 0 for k-means.
    """

    kind: str
    means: Floats
    precisions: tuple[Floats, ...]
    offsets: Floats
    log_weights: Floats

    @classmethod
    def kmeans(cls, centers: Any) -> Partition:
        """Return clusters of rows that are nearest to a center."""
        means = check_matrix(centers, "centers")
        _at_least_two(means.shape[0])
        _distinct(means)
        K, eye = means.shape[0], np.eye(means.shape[1])
        return cls("kmeans", means, (eye,) * K, np.zeros(K), np.zeros(K))

    @classmethod
    def gaussian(
        cls, means: Any, covariances: Any, weights: Any = None, covariance_type: str | None = None
    ) -> Partition:
        """Return Gaussian clusters.

        Parameters
        ----------
        means : array-like (K, d)
            Centers.
        covariances : array-like
            (K, d, d) full, (d, d) tied, (K, d) diagonal, (K,) or a number spherical: the forms
            of scikit-learn.
        weights : array-like (K,), optional
            Positive; rescaled to sum 1. Equal by default.
        covariance_type : {"full", "tied", "diag", "spherical"}, optional
            Which form it is; by default read from the shape, which must then leave no doubt.
        """
        m = check_matrix(means, "means")
        K, d = m.shape
        _at_least_two(K)
        log_weights = np.log(_weights(weights, K))
        matrices = _covariances(covariances, covariance_type, K, d)
        factors = [_cholesky(S, k if len(matrices) > 1 else None) for k, S in enumerate(matrices)]
        inverses = [np.linalg.inv(L) for L in factors]
        precisions = [_symmetric(R.T @ R) for R in inverses]
        halves = [float(np.log(np.diag(L)).sum()) for L in factors]
        if len(precisions) == 1:
            precisions, halves = precisions * K, halves * K
        offsets = log_weights - np.array(halves) - 0.5 * d * np.log(2.0 * np.pi)
        return cls("gaussian", m, tuple(precisions), offsets, log_weights)

    @property
    def size(self) -> int:
        """Number K of clusters."""
        return int(self.means.shape[0])

    @property
    def dimension(self) -> int:
        """Number d of features."""
        return int(self.means.shape[1])

    def scores(self, X: Floats) -> Floats:
        """Return the scores of rows (n, K), or of one row (K,)."""
        columns = []
        for m, P, r in zip(self.means, self.precisions, self.offsets, strict=True):
            away = X - m
            columns.append(r - 0.5 * ((away @ P) * away).sum(axis=-1))
        return np.stack(columns, axis=-1)

    def labels(self, X: Floats) -> NDArray[np.intp]:
        """Return the cluster of each row."""
        return np.asarray(self.scores(X).argmax(axis=-1), dtype=np.intp)

    @cached_property
    def sizes(self) -> Floats:
        """Size of a number in each feature (d,), powers of two: how far apart or wide clusters are."""
        spread = self.means.var(axis=0)
        if self.kind != "kmeans":
            spread = spread + np.mean([1.0 / np.diag(P) for P in self.precisions], axis=0)
        size = np.sqrt(spread)
        most = float(size.max()) or 1.0
        size = np.where(size > 0.0, size, most)
        if size.min() * ALIKE >= most:
            size = np.full_like(size, most)
        return np.asarray(np.exp2(np.round(np.log2(size))))

    def in_sizes(self) -> Partition:
        """Return the same clusters in features of size 1; without rounding, as sizes are powers of two.

        Scores of k-means are divided by the square of the largest size.
        """
        sizes = self.sizes
        by = 1.0 / float(sizes.max()) ** 2 if self.kind == "kmeans" else 1.0
        scaled = {id(P): P * (by * sizes[:, None] * sizes) for P in self.precisions}
        return Partition(
            self.kind,
            self.means / sizes,
            tuple(scaled[id(P)] for P in self.precisions),
            self.offsets * by,
            self.log_weights,
        )

    def boundary(self, other: int, target: int, plausibility: float = 0.0) -> Boundary:
        r"""Return the function that is at most 0 where the target beats another cluster.

        Its value is :math:`s_o(z) - s_t(z)` plus a margin: :math:`\log(1 + \varepsilon)` for
        Gaussian clusters, :math:`p_t \ge (1 + \varepsilon) p_o`, and
        :math:`\tfrac12\varepsilon\|m_t - m_o\|^2` for k-means.
        """
        a, b = self.means[target], self.means[other]
        if self.kind == "kmeans":
            margin = 0.5 * plausibility * float((a - b) @ self.precisions[target] @ (a - b))
        else:
            margin = float(np.log1p(plausibility))
        r = float(self.offsets[other] - self.offsets[target]) + margin
        return Boundary(a, self.precisions[target], b, self.precisions[other], r)

    def _log_peak(self, target: int) -> float:
        return float(self.offsets[target] - self.log_weights[target])

    def peaks(self, target: int, density: float) -> bool:
        """Whether this is the target's largest density, as far as digits of logarithms tell."""
        peak = self._log_peak(target)
        return abs(float(np.log(density)) - peak) <= PEAK * (1.0 + abs(peak))

    def ellipsoid(self, target: int, density: float) -> Boundary:
        r"""Return the function that is at most 0 where the target's density is at least this.

        .. math:: \tfrac12 (z - m)^T P (z - m) \le \log p_t(m_t) - \log\delta
        """
        peak = self._log_peak(target)
        if np.log(density) > peak:
            raise DeclarationError(
                f"cluster {target} is nowhere as dense as {density:g}",
                f"its largest density is {np.exp(peak):.6g}, at its mean",
                "ask for less",
            )
        m = self.means[target]
        return Boundary(m, self.precisions[target], m, None, float(np.log(density)) - peak)


def _at_least_two(K: int) -> None:
    if K < 2:
        raise DataError(
            "there is one cluster only", remedy="a counterfactual leads from one cluster to another"
        )


def _distinct(means: Floats) -> None:
    _, first, counts = np.unique(means, axis=0, return_index=True, return_counts=True)
    if (counts > 1).any():
        k = int(first[counts > 1][0])
        twin = int(np.flatnonzero((means == means[k]).all(axis=1))[1])
        raise DataError(f"centers {k} and {twin} are the same point", remedy="drop one of them")


def _weights(weights: Any, K: int) -> Floats:
    if weights is None:
        return np.full(K, 1.0 / K)
    w = check_vector(weights, "weights", K)
    if (w <= 0.0).any():
        raise DataError(
            "weights do not fit the clusters",
            f"values {w.tolist()[:10]}",
            f"give {K} positive numbers",
        )
    return np.asarray(w / w.sum())


def _covariances(given: Any, kind: str | None, K: int, d: int) -> list[Floats]:
    """Return full matrices: one for all clusters, or one each."""
    if kind is not None:
        check_choice(kind, "covariance_type", COVARIANCES)
    S = floats(given, "covariances")
    shapes = {"full": (K, d, d), "tied": (d, d), "diag": (K, d), "spherical": (K,)}
    fits = [name for name, shape in shapes.items() if S.shape == shape]
    if S.ndim == 0:
        fits, S = ["spherical"], np.full(K, float(S))
    if kind is None and len(fits) == 1:
        kind = fits[0]
    if kind is None or kind not in fits:
        wanted = ", ".join(f"{shape} {name}" for name, shape in shapes.items())
        raise DataError(
            "covariances does not fit the means"
            if not fits or kind
            else f"covariances may be {' or '.join(fits)}",
            f"shape {S.shape} for {K} clusters of {d} features",
            f"give {wanted}, and say which with covariance_type",
        )
    if kind == "full":
        return list(S)
    if kind == "tied":
        return [S]
    rows = S if kind == "diag" else np.repeat(S[:, None], d, axis=1)
    return [np.diag(row) for row in rows]


def _cholesky(S: Floats, k: int | None) -> Floats:
    name = "the covariance" if k is None else f"covariance {k}"
    off = float(np.abs(S - S.T).max(initial=0.0))
    if off > 1e-8 * max(1e-300, float(np.abs(S).max(initial=0.0))):
        raise DataError(f"{name} is not symmetric", f"off by {off:.1e}", "give (S + S.T) / 2")
    try:
        return np.asarray(np.linalg.cholesky(_symmetric(S)))
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(_symmetric(S))[0])
        raise DataError(
            f"{name} is not positive definite",
            f"its least eigenvalue is {least:.3g}",
            "drop constant or dependent features, or add to its diagonal (reg_covar)",
        ) from None


def _symmetric(M: Floats) -> Floats:
    return np.asarray((M + M.T) / 2.0)


# Clusters read off a fitted estimator.


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
        f"{kind_of(model)} is not a clustering",
        remedy="give a fitted KMeans, MiniBatchKMeans, FairKMeans or GaussianMixture, or arrays to"
        " ClusterCounterfactual.kmeans or .gaussian",
    )


# Clusters of counterfactuals, from a [data] table.


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
