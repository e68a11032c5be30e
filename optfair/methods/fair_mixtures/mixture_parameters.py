"""Natural parameters of a Gaussian mixture with one precision, in which any numbers are one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from optfair.core.solution import Solution

Floats = NDArray[np.float64]
Values = Mapping[str, Any] | Solution

__all__ = ["MixtureParameters", "NaturalParameters"]


class MixtureParameters(NamedTuple):
    """A Gaussian mixture with one precision, in the units of the data.

    Attributes
    ----------
    means : array (K, d)
    weights : array (K,)
        Positive, of sum 1.
    precision : float
        1/σ², of all components and coordinates.
    """

    means: Floats
    weights: Floats
    precision: float


@dataclass(frozen=True, eq=False)
class NaturalParameters:
    r"""Rows, and what slopes θ, levels β and the log precision t mean for them.

    .. math::
        \log \alpha_k f_k(x) = \theta_k^T x + \beta_k - \log\sum_l e^{A_l} + c(x, t), \qquad
        A_k = \beta_k + \tfrac12 e^{-t} \|\theta_k\|^2, \quad
        \alpha_k \propto e^{A_k}, \quad \mu_k = e^{-t} \theta_k

    Values are mappings with the keys ``slopes``, ``levels``, ``log_precision``, ``log_sums``.

    Attributes
    ----------
    points : array (n, d)
        Rows less ``center``, divided by ``scale``.
    center : array (d,)
    scale : float
    """

    points: Floats
    center: Floats
    scale: float

    def logits(self, v: Values) -> Floats:
        """Return logarithms of responsibilities up to a number per row (n x K)."""
        slopes = np.asarray(v["slopes"], dtype=float)
        return np.asarray(self.points @ slopes.T + np.asarray(v["levels"], dtype=float))

    def log_sums(self, v: Values) -> Floats:
        """Return the ``log_sums`` that make the responsibilities of each row sum to 1 (n,)."""
        return np.asarray(logsumexp(self.logits(v), axis=1))

    def fractions(self, v: Values) -> Floats:
        """Return responsibilities as ``log_sums`` says, whatever their sums are (n x K)."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.logits(v) - np.asarray(v["log_sums"])[:, None]))

    def component_logs(self, v: Values) -> Floats:
        """Return A, the logarithms of the components' weights up to a number (K,)."""
        norms = (np.asarray(v["slopes"], dtype=float) ** 2).sum(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            bend = 0.5 * norms * np.exp(-float(np.asarray(v["log_precision"])))
        return np.asarray(v["levels"] + bend)

    def parameters(self, v: Values) -> MixtureParameters:
        """Return means, weights and precision in the units of the data."""
        inner = float(np.exp(float(np.asarray(v["log_precision"]))))
        means = self.center + self.scale * np.asarray(v["slopes"]) / inner
        weights = np.asarray(softmax(self.component_logs(v)))
        return MixtureParameters(means, weights, inner / self.scale**2)

    def values(self, means: Any, weights: Any, precision: float) -> dict[str, Floats]:
        """Return the values of a mixture given in the units of the data."""
        inner = float(precision) * self.scale**2
        shifted = (np.asarray(means, dtype=float) - self.center) / self.scale
        levels = np.log(np.asarray(weights, dtype=float)) - 0.5 * inner * (shifted**2).sum(axis=1)
        found = {
            "slopes": inner * shifted,
            "levels": levels - levels.mean(),
            "log_precision": np.asarray(np.log(inner)),
        }
        return {**found, "log_sums": self.log_sums(found)}
