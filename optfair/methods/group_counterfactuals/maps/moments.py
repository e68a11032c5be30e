"""Mean and covariance of a group: all that the cost of an affine map depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.numbers import check_matrix

Floats = NDArray[np.float64]

__all__ = ["ROUNDING", "Moments"]

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
