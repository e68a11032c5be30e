"""One affine map within a problem, written in its variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.term import Values
from optfair.methods.group_counterfactuals.maps.moments import Moments

Floats = NDArray[np.float64]

__all__ = ["Piece"]


@dataclass(frozen=True, eq=False)
class Piece:
    """One affine map of a problem, with the members it moves.

    Parameters
    ----------
    part : str
        Suffix of its term names: empty for the only piece, ``.0`` ... for components.
    weight : float
        Its weight in the cost.
    moments : Moments
        Of the distribution it moves.
    centered : array (m, d)
        Its members minus ``moments.mean``.
    mean : CVXPY expression (d,)
        Image of ``moments.mean``.
    matrix : CVXPY expression (d, d)
        A, affine in the variables.
    scope : tuple of str
        Names of the variables of mean and of matrix.
    read : callable
        Values by name -> (mean, matrix) as arrays.
    factors : CVXPY expression, optional
        Factors along given directions, for a matrix that is written with them.
    image : CVXPY expression, optional
        Covariance of the image, where it is an unknown.
    sides : mapping
        Factors of what bounds on the singular values leave, where they are unknowns.
    """

    part: str
    weight: float
    moments: Moments
    centered: Floats
    mean: Any
    matrix: Any
    scope: tuple[str, str]
    read: Callable[[Values], tuple[Floats, Floats]]
    factors: Any = None
    image: Any = None
    sides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables it depends on."""
        return frozenset(self.scope)

    def turned(self, values: Values) -> Floats:
        """Return A as an array."""
        return self.read(values)[1]

    def offset(self, values: Values) -> Floats:
        """Return b of g(x) = A x + b."""
        mean, A = self.read(values)
        return np.asarray(mean - A @ self.moments.mean)
