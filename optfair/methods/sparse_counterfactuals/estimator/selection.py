"""The order in which cells are edited: by weight, or drawn with probabilities by weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError, nearest

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

__all__ = ["SELECTIONS", "ordered_cells"]

SELECTIONS = ("top", "sample")


def ordered_cells(
    weights: Floats, editable: Flags, selection: str, rng: np.random.Generator
) -> Indices:
    r"""Return the editable cells in the order in which a growing budget edits them.

    .. math:: \varphi_{ik} = |\phi_{ik}| / \|\phi\|_1

    The first C cells are the edits of budget C, so that edits are nested. "top" goes by
    falling weight, row by row at ties. "sample" draws without replacement with probabilities
    φ, line 7 of Algorithm 1: cells come in the order of E/φ with E exponential. Cells without
    weight come last. Cells where nothing would change are not editable and cost no budget.

    Parameters
    ----------
    weights : array (n, d)
        φ up to a factor; not negative.
    editable : bool array (n, d)
        Cells that may be edited.
    selection : {"top", "sample"}
        How.
    rng : Generator
        For "sample".

    Returns
    -------
    int array (L, 2)
        Row and column of each editable cell.

    Raises
    ------
    DeclarationError
        An unknown name.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.array([[0.1, 0.5], [0.4, 0.0]])
    >>> editable = np.array([[True, True], [False, True]])
    >>> ordered_cells(weights, editable, "top", np.random.default_rng(0)).tolist()
    [[0, 1], [0, 0], [1, 1]]

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, Algorithm 1. Efraimidis, Spirakis: Weighted random sampling with a
    reservoir, Information Processing Letters 97, 2006.
    """
    if selection not in SELECTIONS:
        raise DeclarationError(
            f"unknown selection {selection!r}", remedy=nearest(str(selection), SELECTIONS)
        )
    cells = np.argwhere(editable)
    w = weights[editable]
    if selection == "top":
        return cells[np.argsort(-w, kind="stable")]
    with np.errstate(divide="ignore"):
        key = rng.exponential(size=w.size) / w
    # cells without weight in random order too
    return cells[np.lexsort((rng.random(w.size), key))]
