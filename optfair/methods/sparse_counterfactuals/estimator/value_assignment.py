"""The value each cell may take: that of one coupled counterfactual, or an average of several."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError, nearest
from optfair.methods.sparse_counterfactuals.estimator.stacked_rows import StackedRows

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["VALUES", "assigned_values"]

VALUES = ("max", "avg")


def assigned_values(
    stack: StackedRows,
    counterfactuals: Indices,
    coupling: Floats,
    value: str,
    rng: np.random.Generator | None = None,
) -> tuple[StackedRows, Indices]:
    r"""Return the value of every cell, as codes of a stack that knows it.

    .. math::
        \text{max: } q_i = r_{\tau(i)},\; \tau(i) = \arg\max_j p_{ij}; \qquad
        \text{avg: } q_{ik} = \sum_j \frac{p_{ij}}{\sum_{j'} p_{ij'}} r_{jk}

    "avg" never invents a category: a categorical feature takes the value with the largest
    total probability (the mode), that of the most probable row at ties. Features of whole
    numbers take the average rounded to a whole number.

    Parameters
    ----------
    stack : StackedRows
        Factuals, counterfactuals and maybe more.
    counterfactuals : int array (m, d)
        Codes of the counterfactuals.
    coupling : array (n, m)
        p.
    value : {"max", "avg"}
        Which.
    rng : Generator, optional
        Draws one of several most probable rows, as all are under a uniform coupling; the first
        by default.

    Returns
    -------
    stack : StackedRows
        The same, with averages added.
    codes : int array (n, d)
        Codes of q in it.

    Raises
    ------
    DeclarationError
        An unknown name.

    Examples
    --------
    >>> import numpy as np
    >>> stack = StackedRows.of([[0.0, 0.0]], [[1.0, 5.0], [2.0, 5.0], [6.0, 7.0]], categorical=[1])
    >>> p = np.array([[0.3, 0.3, 0.4]])
    >>> for value in ("max", "avg"):
    ...     known, codes = assigned_values(stack, stack.blocks[1], p, value)
    ...     print(known.rows(codes).round(3).tolist())
    [[6.0, 7.0]]
    [[3.3, 5.0]]

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, eq. (9) and (10).
    """
    if value not in VALUES:
        raise DeclarationError(f"unknown value {value!r}", remedy=nearest(str(value), VALUES))
    partner = _most_probable(coupling, rng)
    codes = counterfactuals[partner].copy()
    single = (coupling > 0).sum(axis=1) == 1
    if value == "max" or single.all():  # an average of one row is that row, to the last digit
        return stack, codes
    share = coupling / coupling.sum(axis=1, keepdims=True)
    numbers = np.zeros(codes.shape)
    for j in range(codes.shape[1]):
        if stack.numeric[j]:
            column = stack.numbers(counterfactuals, j)
            average = share @ column
            # rounding must not carry an average of equal numbers away from them
            average = np.clip(average, column.min(), column.max())
            average = np.rint(average) if stack.whole[j] else average
            numbers[:, j] = np.where(single, column[partner], average)
        else:
            votes = share @ (counterfactuals[:, j, None] == np.arange(stack.sizes[j]))
            best = votes.max(axis=1)
            own = votes[np.arange(len(votes)), codes[:, j]] >= best - 1e-12
            codes[:, j] = np.where(own, codes[:, j], votes.argmax(axis=1))
    return stack.with_numbers(numbers, codes)


def _most_probable(coupling: Floats, rng: np.random.Generator | None) -> Indices:
    if rng is None:
        return np.asarray(coupling.argmax(axis=1))
    tied = coupling >= coupling.max(axis=1, keepdims=True) * (1.0 - 1e-12)
    return np.asarray(np.where(tied, rng.random(coupling.shape), -1.0).argmax(axis=1))
