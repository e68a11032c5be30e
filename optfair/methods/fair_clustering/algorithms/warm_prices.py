"""Prices of group masses from a solution found before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optfair.backends.request import Request
from optfair.errors import DeclarationError
from optfair.methods.fair_clustering.grouped_rows import GroupedRows

__all__ = ["warm_prices"]


def warm_prices(p: GroupedRows, request: Request) -> NDArray[np.float64] | None:
    """Return the multipliers of ``mass definition`` of the warm start, if there is one.

    Raises
    ------
    DeclarationError
        A solution of another kind of problem, or of one with other groups or clusters.
    """
    if request.warm_start is None:
        return None
    given = request.warm_start.multipliers
    if "mass definition" not in given:
        raise DeclarationError(
            "the warm start has no multipliers of 'mass definition'",
            f"it is a solution of {type(request.warm_start.problem).__name__}",
            f"give a solution of a {type(p).__name__} with as many groups and clusters",
        )
    prices = np.asarray(given["mass definition"], dtype=float)
    if prices.shape != p["masses"].shape:
        raise DeclarationError(
            f"the warm start has prices {prices.shape}, this problem needs {p['masses'].shape}",
            remedy="give a solution with as many groups and clusters",
        )
    return prices
