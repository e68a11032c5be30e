"""What a map is declared from: members, target, bounds, and the moments of the group or its mixture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from optfair.core.expressions import Values
from optfair.errors import DataError, DeclarationError
from optfair.features.feature_problem import feature_names
from optfair.features.linear_score import LinearScore
from optfair.numbers import LARGEST, check_matrix, floats, real

if TYPE_CHECKING:
    from optfair.methods.group_counterfactuals.maps.map_problem import MapProblem, Piece

__all__ = [
    "ROUNDING",
    "GaussianParts",
    "Moments",
    "as_far_as_feasible",
    "checked_bound",
    "checked_costs",
    "map_data",
    "nearest_to_identity",
]


# Mean and covariance of a group: all that the cost of an affine map depends on.

Floats = NDArray[np.float64]


# What the mean of equal numbers leaves of their differences, relative to the numbers.
ROUNDING = 16 * np.finfo(float).eps


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Mean μ, covariance Σ and a root L with :math:`\Sigma = L L^T`.

    Parameters
    ----------
    mean : array (d,)
        μ.
    covariance : array (d, d)
        Σ, symmetric and positive semidefinite.
    root : array (d, r)
        L, with as many columns as Σ has rank.
    """

    mean: Floats
    covariance: Floats
    root: Floats

    @property
    def singular(self) -> bool:
        """Whether the group lies in a plane of fewer dimensions than there are features."""
        return bool(self.root.shape[1] < self.mean.size)

    @property
    def deviations(self) -> Floats:
        """Standard deviation of each feature (d,)."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @classmethod
    def of_rows(cls, centered: Floats, mean: Floats) -> Moments:
        """Return the moments of rows whose mean was taken off; the covariance has weight 1/n."""
        return cls.given(mean, centered.T @ centered / centered.shape[0])

    @classmethod
    def given(cls, mean: Any, covariance: Any) -> Moments:
        """Return the moments somebody gave.

        Raises
        ------
        DataError
            Shapes that do not fit, entries that are not finite, a covariance that is not
            symmetric or has a negative eigenvalue.
        """
        mu = check_matrix(np.reshape(np.asarray(mean, dtype=object), (1, -1)), "mean")[0]
        sigma = check_matrix(covariance, "covariance")
        d = mu.size
        if sigma.shape != (d, d):
            raise DataError(
                f"covariance has shape {sigma.shape} for a mean of {d} features",
                remedy=f"give {d} x {d} numbers",
            )
        size = float(np.abs(sigma).max())
        if float(np.abs(sigma - sigma.T).max()) > 1e-9 * size:
            raise DataError("covariance is not symmetric", remedy="give (S + S.T) / 2")
        sigma = (sigma + sigma.T) / 2
        eigenvalues = np.linalg.eigvalsh(sigma)
        if eigenvalues[0] < -1e-9 * max(size, 1e-300):
            raise DataError(
                f"covariance has the negative eigenvalue {eigenvalues[0]:.3g}",
                remedy="give a positive semidefinite matrix",
            )
        flat = np.sqrt(np.maximum(np.diag(sigma), 0.0)) <= ROUNDING * np.abs(mu)
        sigma[flat], sigma[:, flat] = 0.0, 0.0  # of equal numbers, whose mean is rounded
        root = _root(sigma)
        for array in (mu, sigma, root):
            array.flags.writeable = False
        return cls(mu, sigma, root)


def _root(sigma: Floats) -> Floats:
    """Return L with Σ = L Lᵀ, of full column rank.

    What rounding leaves of a zero eigenvalue is no direction of the group. It is told apart in
    standard deviations: a feature in small units has as much extent as one in large units.
    """
    deviations = np.sqrt(np.maximum(np.diag(sigma), 0.0))
    units = np.where(deviations > 0.0, deviations, 1.0)
    eigenvalues, vectors = np.linalg.eigh(sigma / np.outer(units, units))
    if eigenvalues[0] < -1e-9 * eigenvalues[-1]:  # small features are rounding of large ones
        units = np.ones_like(units)
        eigenvalues, vectors = np.linalg.eigh(sigma)
    kept = eigenvalues > 10 * units.size * np.finfo(float).eps * max(eigenvalues[-1], 0.0)
    return np.asarray(units[:, None] * vectors[:, kept] * np.sqrt(eigenvalues[kept]))


# What a map is declared from: members, target, weights and bounds, checked.


def map_data(
    X: Any,
    score: Any,
    *,
    probability: float | None,
    threshold: float | None,
    target_class: Any,
    feature_costs: Any,
    moments: Moments | None = None,
) -> dict[str, Any]:
    """Return what every map is declared from: members, moments, target, weights.

    The moments are those of the members unless others are given.

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target or weights that do not fit.
    """
    linear = LinearScore.of(score)
    names = _names(X, linear)
    normal, level = linear.halfspace(target_class, probability=probability, threshold=threshold)
    d = linear.coef.size
    if X is None and moments is None:
        raise DeclarationError(
            "there is no group", "neither members X nor moments are given", "give X"
        )
    if moments is not None and moments.mean.size != d:
        raise DataError(
            f"the moments have {moments.mean.size} features, the score has {d}",
            remedy="give moments of the features of the score",
        )
    centered = np.zeros((0, d)) if X is None else linear.check_points(X)
    mean = centered.mean(axis=0) if moments is None else moments.mean
    centered -= mean  # a copy already: the only one of the members that is kept
    centered.flags.writeable = False
    return {
        "centered": centered,
        "moments": Moments.of_rows(centered, mean) if moments is None else moments,
        "plug in": moments is None,
        "normal": normal,
        "level": level,
        "score": linear,
        "target_class": target_class,
        "features": names,
        "costs": checked_costs(feature_costs, names),
    }


def _names(X: Any, score: LinearScore) -> tuple[str, ...]:
    named = hasattr(X, "columns")
    if not named:
        return score.names or feature_names(None, score.coef.size)
    names = feature_names(X, len(X.columns))
    if score.names is not None and names != score.names:
        raise DataError(
            "the columns of X are not those of the score",
            f"X has {', '.join(names)}; the score has {', '.join(score.names)}",
            "give the columns the score was fitted on, in its order",
        )
    return names


def checked_costs(costs: Any, names: tuple[str, ...]) -> Floats:
    """Return one positive weight per feature from a number, as many numbers, or a dict."""
    d = len(names)
    if costs is None:
        return np.ones(d)
    if isinstance(costs, Mapping):
        unknown = [str(f) for f in costs if str(f) not in names]
        if unknown:
            raise DataError(
                f"feature_costs names {unknown[0]!r}",
                f"the features are {', '.join(names)}",
                "give one of them",
            )
        costs = [costs.get(name, 1.0) for name in names]
    c = floats(costs, "feature_costs")
    if c.shape not in ((), (d,)) or not np.isfinite(c).all() or (c <= 0).any():
        raise DeclarationError(
            f"feature_costs={costs!r} are not {d} positive numbers",
            "a feature that costs nothing could move without limit",
            "give one per feature, or a dict by name",
        )
    return np.broadcast_to(c, (d,)).copy()


def checked_bound(value: Any, name: str) -> float | None:
    """Return K or k as a number of at least 1, or None for no bound.

    Raises
    ------
    DeclarationError
        Below 1, or not a number: the identity would be excluded, and then nothing keeps the
        cost of a group that is already at its target at 0.
    """
    if value is None:
        return None
    number = real(value)
    if not number >= 1.0 or LARGEST < number < np.inf:
        raise DeclarationError(
            f"{name}={value!r} is not at least 1",
            "K bounds how much distances grow and k how much they shrink; 1 is an isometry",
            f"give {name} >= 1, or None for no bound",
        )
    return None if np.isinf(number) else number


# What a map does in directions in which its group has no extent, and its cost says nothing.

# Eigenvalues this near to a bound are at it, relative to the size of the matrix.
AT_BOUND = 1e-8
# Projections end when a round changes nothing more than this.
STILL, ROUNDS = 1e-12, 500
# Relative violation that is let pass, where the solution itself has less.
FEASIBLE = 1e-9


def nearest_to_identity(A: Floats, root: Floats, K: float | None, k: float | None) -> Floats:
    r"""Return the matrix nearest to I among those that move the group as A does.

    Let R be a basis of the range of Σ and N one of its null space. Cost and members depend on
    A R only; given that, the symmetric block :math:`B = N^T A N` is free but for the Loewner
    bounds. By Schur complements with :math:`D = R^T A R` and :math:`E = N^T A R`

    .. math::
        \tfrac1k I + E (D - \tfrac1k I)^+ E^T \preceq B \preceq K I - E (K I - D)^+ E^T

    and the B nearest to I in the Frobenius norm is found by Dykstra's projections onto both.

    Parameters
    ----------
    A : array (d, d)
        Symmetric, within the bounds.
    root : array (d, r)
        L with Σ = L Lᵀ, of full column rank.
    K, k : float or None
        Loewner bounds; without k the matrix is positive semidefinite.
    """
    d, r = root.shape
    basis = np.linalg.svd(root, full_matrices=True)[0]
    R, N = basis[:, :r], basis[:, r:]
    D, E = R.T @ A @ R, N.T @ A @ R
    least = 0.0 if k is None else 1.0 / k
    low = least * np.eye(d - r) + _complement(D - least * np.eye(r), E)
    high = None if K is None else K * np.eye(d - r) - _complement(K * np.eye(r) - D, E)
    B = N.T @ A @ N
    return np.asarray(A + N @ (_between(low, high) - B) @ N.T)


def _complement(D: Floats, E: Floats) -> Floats:
    values, vectors = np.linalg.eigh((D + D.T) / 2)
    inside = values > AT_BOUND * max(1.0, float(np.abs(values).max(initial=0.0)))
    turned = E @ vectors[:, inside]
    return np.asarray((turned / values[inside]) @ turned.T)


def _between(low: Floats, high: Floats | None) -> Floats:
    """Return the matrix nearest to I between two others, by Dykstra's projections."""
    B = np.eye(len(low))
    if high is None:
        return low + _positive(B - low)
    up, down = np.zeros_like(B), np.zeros_like(B)
    for _ in range(ROUNDS):
        above = low + _positive(B + up - low)
        up = B + up - above
        last, B = B, high - _positive(high - above - down)
        down = above + down - B
        if max(np.abs(B - last).max(), np.abs(B - above).max()) <= STILL * (1.0 + np.abs(B).max()):
            break
    return B


def _positive(S: Floats) -> Floats:
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def as_far_as_feasible(problem: MapProblem, values: Values, wanted: Values) -> Values:
    """Return the point on the way from one to another that the constraints still allow.

    Both must send the members to the same points, or the first is returned; then terms of one
    row per member need not be asked.
    """
    if not all(_alike(piece, values, wanted) for piece in problem.pieces):
        return values
    changed = {name for name in wanted if wanted[name] is not values[name]}
    terms = [t for t in problem.constraints.values() if t.rows is None and changed & t.scope]

    def at(share: float) -> dict[str, Any]:
        moved = {n: (1.0 - share) * values[n] + share * wanted[n] for n in changed}
        return {**values, **moved}

    def allowed(share: float) -> bool:
        point = at(share)
        return all(
            t.relative_violation(point) <= max(FEASIBLE, t.relative_violation(values))
            for t in terms
        )

    if allowed(1.0):
        return at(1.0)
    inside, outside = 0.0, 1.0
    while outside - inside > 1e-9:
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if allowed(middle) else (inside, middle)
    return at(inside)


def _alike(piece: Piece, values: Values, wanted: Values) -> bool:
    """Whether two maps send the members to the same points, feature by feature in its own size."""
    (mean, A), (other, B) = piece.read(values), piece.read(wanted)
    start = np.abs(piece.moments.mean) * ROUNDING
    turned = np.abs(piece.centered @ A.T).max(axis=0, initial=0.0)
    apart = np.abs(piece.centered @ (B - A).T + (other - mean)).max(axis=0, initial=0.0)
    return bool((apart <= FEASIBLE * turned + np.abs(A) @ start + start).all())


# A mixture of Gaussians as numbers, and which component a point belongs to.


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
        w = floats(weights, "weights")
        mu, sigma = floats(means, "means"), floats(covariances, "covariances")
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
