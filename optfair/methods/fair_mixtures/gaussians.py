r"""Gaussian parts of mixture components, in five shapes of covariance."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from optfair.errors import DataError
from optfair.numbers import Floats, Indices
from optfair.rows.sources import Summed

SHAPES = ("shared", "spherical", "diag", "tied", "full")
# Shapes whose scale is a Cholesky factor.
MATRICES = ("tied", "full")
# Stands for no mass at all.
TINY = 1e-300
# Variance, as a share of the least one, of a column that is constant in a component.
CONSTANT = 1e-12


@dataclass(frozen=True, eq=False)
class Moments(Summed):
    r"""Sums over rows that Gaussian parts are estimated from; those of two chunks add up.

    Parameters
    ----------
    mass : array (K,)
        :math:`\sum_i R_{ik}`.
    first : array (K, d)
        :math:`\sum_i R_{ik} (x_i - o)` about a fixed origin o.
    second : array
        :math:`\sum_i R_{ik}` times: the squared norm, summed over k () for "shared", (K,) for
        "spherical"; the squares (K, d) for "diag"; the outer product, summed over k (d, d) for
        "tied", (K, d, d) for "full".
    """

    mass: Floats
    first: Floats
    second: Floats

    def __mul__(self, factor: float) -> Moments:
        return Moments(factor * self.mass, factor * self.first, factor * self.second)


@dataclass(frozen=True, eq=False)
class Gaussians:
    r"""K normal densities; ``scale`` is a square root of the covariance.

    Parameters
    ----------
    shape : {"shared", "spherical", "diag", "tied", "full"}
        :math:`\sigma^2 I`, :math:`\sigma_k^2 I`, :math:`\mathrm{diag}(\sigma_{kj}^2)`,
        :math:`L L^\top`, :math:`L_k L_k^\top`.
    centred : array (K, d)
        Means minus ``origin``.
    scale : array (), (K,), (K, d), (d, d) or (K, d, d)
        Standard deviations, or lower Cholesky factors.
    origin : array (d,)
        Fixed for all chunks and iterations: sums about it lose few digits.
    floor : float
        Least variance in any direction (``reg_covar``). Estimates maximise the likelihood
        among covariances that respect it, so likelihoods stay monotone.
    """

    shape: str
    centred: Floats
    scale: Floats
    origin: Floats
    floor: float

    @property
    def means(self) -> Floats:
        """Means (K, d)."""
        return np.asarray(self.centred + self.origin)

    @property
    def covariances(self) -> Floats:
        """Variances or covariance matrices, in the shape of ``scale``."""
        if self.shape in MATRICES:
            return np.asarray(self.scale @ np.swapaxes(self.scale, -1, -2))
        return np.asarray(self.scale**2)

    @property
    def matrices(self) -> Floats:
        """Covariance matrices (K, d, d), whatever the shape."""
        K, d = self.centred.shape
        if self.shape in MATRICES:
            return np.broadcast_to(self.covariances, (K, d, d))
        return np.asarray(self._deviations()[:, :, None] ** 2 * np.eye(d))

    @property
    def free(self) -> int:
        """Number of free parameters, as BIC counts them."""
        K, d = self.centred.shape
        own = {"shared": 1, "spherical": K, "diag": K * d}
        triangle = d * (d + 1) // 2
        return int(K * d + own.get(self.shape, triangle if self.shape == "tied" else K * triangle))

    def _deviations(self) -> Floats:
        """Return standard deviations (K, d) of the shapes without correlations."""
        columns = self.scale[:, None] if self.shape == "spherical" else self.scale
        return np.broadcast_to(columns, self.centred.shape)

    def log_prob(self, X: Floats) -> Floats:
        """Return log densities (n, K)."""
        K, d = self.centred.shape
        x = X - self.origin
        if self.shape in MATRICES:
            far = np.empty((len(x), K))
            tied = self.shape == "tied"
            white = solve_triangular(self.scale, x.T, lower=True) if tied else x.T
            for k in range(K):
                if tied:
                    mean = solve_triangular(self.scale, self.centred[k], lower=True)
                    apart = white - mean[:, None]
                else:
                    apart = solve_triangular(
                        self.scale[k], white - self.centred[k][:, None], lower=True
                    )
                far[:, k] = np.einsum("ji,ji->i", apart, apart)
        elif self.shape == "diag":
            precision = self.scale**-2.0
            far = (x**2) @ precision.T - 2.0 * x @ (self.centred * precision).T
            far += (self.centred**2 * precision).sum(axis=1)
        else:
            far = -2.0 * x @ self.centred.T
            far += np.einsum("ij,ij->i", x, x)[:, None] + (self.centred**2).sum(axis=1)
            far /= self.scale**2
        np.maximum(far, 0.0, out=far)
        far *= -0.5
        far -= 0.5 * d * np.log(2.0 * np.pi) + self._log_volume()
        return far

    def _log_volume(self) -> Floats:
        """Return half the log determinant of each covariance (K,)."""
        if self.shape in MATRICES:
            roots = np.diagonal(self.scale, axis1=-2, axis2=-1)
            return np.broadcast_to(np.log(roots).sum(axis=-1), len(self.centred))
        return np.asarray(np.log(self._deviations()).sum(axis=1))

    def moments(self, X: Floats, R: Floats) -> Moments:
        """Return the sums over rows with weights ``R`` (n, K), which may be negative."""
        x = X - self.origin
        first = R.T @ x
        if self.shape == "shared":
            second = np.asarray(R.sum(axis=1) @ np.einsum("ij,ij->i", x, x))
        elif self.shape == "spherical":
            second = R.T @ np.einsum("ij,ij->i", x, x)
        elif self.shape == "diag":
            second = R.T @ x**2
        elif self.shape == "tied":
            second = (x * R.sum(axis=1)[:, None]).T @ x
        else:
            second = np.stack([(x * r[:, None]).T @ x for r in R.T])
        return Moments(R.sum(axis=0), first, second)

    def estimated(self, s: Moments) -> Gaussians:
        """Return the parts that maximise `expected` of ``s``.

        A component without mass is put at the origin; see `restarted`.

        Raises
        ------
        DataError
            A singular covariance, where ``floor`` is 0.
        """
        d = self.centred.shape[1]
        mass = np.maximum(s.mass, TINY)
        means = s.first / mass[:, None]
        if self.shape in MATRICES:
            outer = (
                np.einsum("k,ki,kj->ij", mass, means, means) / mass.sum()
                if self.shape == "tied"
                else np.einsum("ki,kj->kij", means, means)
            )
            weight = mass.sum() if self.shape == "tied" else mass[:, None, None]
            scale = _root(s.second / weight - outer, self.floor)
        else:
            if self.shape == "diag":
                spread = s.second / mass[:, None] - means**2
            else:
                norms = (means**2).sum(axis=1)
                if self.shape == "shared":
                    spread = (s.second - mass @ norms) / (d * mass.sum())
                else:
                    spread = (s.second / mass - norms) / d
            scale = np.sqrt(np.maximum(spread, self.floor))
        self._check(np.asarray(scale))
        return replace(self, centred=means, scale=np.asarray(scale))

    def _check(self, scale: Floats) -> None:
        """Raise when a covariance is singular."""
        roots = np.diagonal(scale, axis1=-2, axis2=-1) if self.shape in MATRICES else scale
        if np.isfinite(roots).all() and roots.min() > 0.0:
            return
        raise DataError(
            f"a component has a singular covariance (covariance_type={self.shape!r})",
            "the rows in it do not vary in some direction, and nothing bounds its variance below",
            f"give reg_covar > 0, e.g. 1e-6 (it is {self.floor:g}), or fewer components",
        )

    def beside(self, which: Indices) -> Floats:
        """Return points half a deviation from the means of some components, in all columns."""
        spread = np.sqrt(np.diagonal(self.matrices, axis1=1, axis2=2))
        return np.asarray((self.means + 0.5 * spread)[which])

    def at(self, means: Floats) -> Gaussians:
        """Return the same covariances at other means (K, d)."""
        return replace(self, centred=means - self.origin)

    def scaled(self, factor: float) -> Gaussians:
        """Return the same means with standard deviations multiplied by a factor."""
        return replace(self, scale=self.scale * factor)

    def restarted(self, dead: Indices, points: Floats) -> Gaussians:
        """Return the parts with dead components at new points, spread like the average.

        Parameters
        ----------
        dead : array of int
            Components.
        points : array (dead, d)
            Their new means.
        """
        centred = self.centred.copy()
        centred[dead] = points - self.origin
        scale = self.scale
        if self.shape in ("spherical", "diag", "full"):
            living = np.setdiff1d(np.arange(len(centred)), dead)
            scale = scale.copy()
            scale[dead] = scale[living].mean(axis=0)  # of lower factors: one again
        return replace(self, centred=centred, scale=scale)

    def scatter(self, s: Moments) -> Floats:
        """Return the second moments about the present means, in the shape of the covariances."""
        c = self.centred
        if self.shape in MATRICES:
            cross = np.einsum("ki,kj->kij", s.first, c)
            own = np.einsum("k,ki,kj->kij", s.mass, c, c)
            moved = own - cross - np.swapaxes(cross, 1, 2)
            return np.asarray(s.second + (moved.sum(axis=0) if self.shape == "tied" else moved))
        moved = s.mass[:, None] * c**2 - 2.0 * s.first * c
        if self.shape == "diag":
            return np.asarray(s.second + moved)
        return np.asarray(s.second + (moved.sum() if self.shape == "shared" else moved.sum(axis=1)))

    def expected(self, s: Moments) -> float:
        r"""Return :math:`\sum_{ik} R_{ik} \log f_k(x_i)` from the sums alone."""
        d = self.centred.shape[1]
        spread = self.scatter(s)
        if self.shape in MATRICES:
            inverse = np.linalg.inv(self.scale)
            quadratic = float((spread * (np.swapaxes(inverse, -1, -2) @ inverse)).sum())
        else:
            quadratic = float((spread / self.scale**2).sum())
        volume = self._log_volume() + 0.5 * d * np.log(2.0 * np.pi)
        return -0.5 * quadratic - float(s.mass @ volume)

    def gradient(self, s: Moments) -> Floats:
        """Return the derivative of `expected` in the local coordinates of `moved`, at 0."""
        apart = s.first - s.mass[:, None] * self.centred
        spread = self.scatter(s)
        if self.shape in MATRICES:
            inverse = np.linalg.inv(self.scale)
            inverses = np.broadcast_to(inverse, (len(apart), *inverse.shape[-2:]))
            mean = np.einsum("kij,kj->ki", inverses, apart)
            white = inverse @ spread @ np.swapaxes(inverse, -1, -2)
            mass = s.mass.sum() if self.shape == "tied" else s.mass[:, None, None]
            white = white - mass * np.eye(white.shape[-1])
            lower = np.tril_indices(white.shape[-1])
            return np.concatenate([mean.ravel(), white[..., lower[0], lower[1]].ravel()])
        mean = apart / self._deviations()
        d = apart.shape[1]
        mass = {"shared": d * s.mass.sum(), "spherical": d * s.mass, "diag": s.mass[:, None]}
        own = spread / self.scale**2 - mass[self.shape]
        return np.concatenate([mean.ravel(), np.ravel(own)])

    def information(self, mass: Floats) -> Floats:
        """Return the diagonal of the complete-data information in the local coordinates."""
        d = self.centred.shape[1]
        mean = np.repeat(mass, d)
        if self.shape in MATRICES:
            i, j = np.tril_indices(d)
            one = np.where(i == j, 2.0, 1.0)
            return np.concatenate(
                [mean, mass.sum() * one if self.shape == "tied" else np.outer(mass, one).ravel()]
            )
        own = {
            "shared": np.array([2.0 * d * mass.sum()]),
            "spherical": 2.0 * d * mass,
            "diag": np.repeat(2.0 * mass, d),
        }
        return np.concatenate([mean, own[self.shape]])

    def moved(self, step: Floats) -> Gaussians:
        r"""Return the parts at ``step`` from these, in units of their own scale.

        Means move by L p; standard deviations grow by exp(p), factors become L T with T lower
        triangular, of diagonal exp(p). Variances stop at the floor.
        """
        K, d = self.centred.shape
        mean, own = step[: K * d].reshape(K, d), step[K * d :]
        if self.shape in MATRICES:
            L = np.broadcast_to(self.scale, (K, d, d))
            i, j = np.tril_indices(d)
            T = np.zeros((1 if self.shape == "tied" else K, d, d))
            T[:, i, j] = own.reshape(len(T), -1)
            T[:, range(d), range(d)] = np.exp(T[:, range(d), range(d)])
            factor = self.scale @ (T[0] if self.shape == "tied" else T)
            scale = _root(factor @ np.swapaxes(factor, -1, -2), self.floor)
            return replace(
                self, centred=self.centred + np.einsum("kij,kj->ki", L, mean), scale=scale
            )
        scale = np.maximum(self.scale * np.exp(own.reshape(self.scale.shape)), np.sqrt(self.floor))
        return replace(self, centred=self.centred + self._deviations() * mean, scale=scale)

    def drawn(self, which: Indices, rng: np.random.Generator) -> Floats:
        """Return one row of each of the components named (m, d)."""
        noise = rng.standard_normal((which.size, self.centred.shape[1]))
        if self.shape == "tied":
            noise = noise @ self.scale.T
        elif self.shape == "full":
            for k in np.unique(which):
                noise[which == k] = noise[which == k] @ self.scale[k].T
        else:
            noise *= self._deviations()[which]
        return np.asarray(self.means[which] + noise)


def _root(covariance: Floats, floor: float) -> Floats:
    """Return lower Cholesky factors of covariances, eigenvalues raised to the floor.

    Raising eigenvalues maximises the likelihood among the covariances that respect the floor. Where
    columns differ by orders, rounding hides the least eigenvalues of a covariance, not those of one of
    unit diagonal, nor the singular values of a square root.
    """
    variances = np.diagonal(covariance, axis1=-2, axis2=-1)
    # what goes with a constant is rounding as well: beside no variance it is any correlation
    constant = variances <= CONSTANT * floor
    apart = (constant[..., :, None] | constant[..., None, :]) & ~np.eye(
        variances.shape[-1], dtype=bool
    )
    covariance = np.where(apart, 0.0, covariance)
    spread = np.sqrt(variances.clip(min=TINY))
    turned = covariance / spread[..., :, None] / spread[..., None, :]
    values, vectors = np.linalg.eigh(turned.clip(-1.0, 1.0))  # more is rounding
    halves = np.sqrt(np.maximum(values, 0.0))[..., :, None] * np.swapaxes(vectors, -1, -2)
    _, roots, ways = np.linalg.svd(halves * spread[..., None, :])
    if not (floor > 0.0 or values.min() > np.finfo(float).eps * spread.shape[-1]):
        return np.zeros_like(covariance)  # the caller says what is wrong
    low = roots.min() < floor**0.5
    roots = np.maximum(roots, floor**0.5)
    if not low:
        with contextlib.suppress(np.linalg.LinAlgError):
            return np.asarray(np.linalg.cholesky(covariance))
    # the factor of a product, which is not made: rounding may leave it no such factor
    R = np.linalg.qr(roots[..., :, None] * ways, mode="r")
    signs = np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0.0, -1.0, 1.0)
    return np.asarray(np.swapaxes(signs[..., :, None] * R, -1, -2))
