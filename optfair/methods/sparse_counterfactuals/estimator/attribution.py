"""What an attribution says: a value per cell, its error, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

__all__ = ["Attribution"]


@dataclass(frozen=True, eq=False)
class Attribution:
    r"""Shapley values of the features of every row.

    Attributes
    ----------
    values : array (n, d)
        φ, in units of the score; row i sums to f(x_i) − E[f(r) | i].
    standard_error : array (n, d)
        Of a sampled value; 0 where it is exact.
    method : {"exact", "linear", "sampled", "mixed", "given"}
        All coalitions, the closed form of a linear score, an estimate, exact for some rows and
        estimated for others, or values from elsewhere.
    baseline : array (n,)
        E[f(r) | i], the mean score of the counterfactuals coupled to row i.
    evaluations : int
        Rows the model was asked for.
    """

    values: Floats
    standard_error: Floats
    method: str
    baseline: Floats
    evaluations: int

    def __repr__(self) -> str:
        n, d = self.values.shape
        error = f", standard error up to {self.standard_error.max():.2g}" if self.sampled else ""
        return f"Attribution: {n} rows of {d} features, {self.method}{error}"

    @property
    def sampled(self) -> bool:
        """Whether some values are estimates."""
        return self.method in ("sampled", "mixed")
