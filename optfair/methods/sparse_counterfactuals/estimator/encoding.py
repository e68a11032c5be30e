"""Points for distances between rows of numbers and categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.methods.sparse_counterfactuals.estimator.stacked_rows import (
    StackedRows,
    column_indices,
)

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["MixedEncoding"]


@dataclass(frozen=True, eq=False)
class MixedEncoding:
    r"""Numbers standardised, categories as indicators, each feature weighted.

    .. math::
        \|e(x) - e(r)\|^2 = \sum_{k\ \text{numeric}} w_k \frac{(x_k - r_k)^2}{s_k^2}
            + \sum_{k\ \text{categorical}} w_k [x_k \ne r_k]

    s is the standard deviation over all tables of the stack together; a feature that is
    constant there counts nothing.

    Attributes
    ----------
    weights : array (d,)
        w.
    scales : array (d,)
        s of the numeric features, 1 for others.
    """

    stack: StackedRows
    weights: Floats
    scales: Floats

    @classmethod
    def of(cls, stack: StackedRows, weights: Any = None) -> MixedEncoding:
        """Return the encoding of a stack.

        Parameters
        ----------
        stack : StackedRows
            Tables.
        weights : array-like (d,) or dict of feature to number, optional
            Non-negative, 1 by default.

        Raises
        ------
        DataError
            Weights that do not fit.

        Examples
        --------
        >>> stack = StackedRows.of([[0.0, 1.0]], [[2.0, 3.0]], categorical=[1])
        >>> encoding = MixedEncoding.of(stack, {"x1": 4.0})
        >>> x, r = (encoding.points(block) for block in stack.blocks)
        >>> round(float(((x - r) ** 2).sum()), 9)  # 2² / 1² for the number, 4 for the category
        8.0
        """
        w = _weights(weights, stack.names)
        codes = np.concatenate(stack.blocks)
        scales = np.ones(len(stack.names))
        for j in np.flatnonzero(stack.numeric):
            column = stack.numbers(codes, int(j))
            scales[j] = column.std() if np.ptp(column) > 0 else 1.0
        return cls(stack, w, scales)

    def points(self, codes: Indices, stack: StackedRows | None = None) -> Floats:
        """Return coded rows as points whose squared distances are those above.

        Parameters
        ----------
        codes : int array (n, d)
            Rows.
        stack : StackedRows, optional
            Whose codes they are, that of the encoding by default.
        """
        stack = self.stack if stack is None else stack
        parts = []
        for j in range(codes.shape[1]):
            if stack.numeric[j]:
                scale = np.sqrt(self.weights[j]) / self.scales[j]
                parts.append(scale * stack.numbers(codes, j)[:, None])
            else:
                indicator = codes[:, j, None] == np.arange(stack.sizes[j])
                parts.append(np.sqrt(0.5 * self.weights[j]) * indicator)
        return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.float64)

    def cost(self, x: Indices, r: Indices) -> Floats:
        """Return the squared distances (n, m) of coded rows."""
        from scipy.spatial.distance import cdist

        return np.asarray(cdist(self.points(x), self.points(r), "sqeuclidean"))


def _weights(weights: Any, names: tuple[str, ...]) -> Floats:
    given: Any = weights
    if weights is None:
        return np.ones(len(names))
    if isinstance(weights, Mapping):
        given = np.ones(len(names))
        given[column_indices(names, weights)] = [float(v) for v in weights.values()]
    try:
        w = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "feature_weights has entries that are not numbers", remedy="give a number per feature"
        ) from None
    if w.shape != (len(names),) or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise DataError(
            "feature_weights does not fit the features",
            f"shape {w.shape} for {len(names)} features"
            if w.shape != (len(names),)
            else "there is a negative or non-finite entry, or all are zero",
            "give one non-negative number per feature",
        )
    return w
