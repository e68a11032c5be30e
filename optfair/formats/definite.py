"""Whether a large sparse matrix is positive semidefinite, by factorising it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

__all__ = ["semidefinite"]

# Rounding of the entries is forgiven up to this share of the largest.
_SHARE = 1e-9


def semidefinite(P: Any) -> str:
    r"""Return why a symmetric matrix is positive semidefinite, or an empty text.

    Either every column is dominated by its diagonal entry, or :math:`P + \delta I = LDL^T` with
    D > 0, for :math:`\delta` of 1e-9 of the largest entry.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> semidefinite(sp.csc_array([[2.0, -1.0], [-1.0, 2.0]]))
    'diagonally dominant'
    >>> semidefinite(sp.csc_array([[1.0, 1.5], [1.5, 3.0]])), semidefinite(sp.csc_array([[-1.0]]))
    ('LDL factors, D > 0', '')
    """
    P = sp.csc_array(P)
    diagonal = P.diagonal()
    if (diagonal < 0.0).any():
        return ""
    rest = np.asarray(abs(P).sum(axis=0)).ravel() - diagonal
    if (diagonal >= rest).all():
        return "diagonally dominant"
    delta = _SHARE * float(np.abs(P.data).max())
    shifted = sp.csc_matrix(P + delta * sp.eye_array(P.shape[0], format="csc"))
    try:
        factors = splu(
            shifted,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except (RuntimeError, MemoryError):  # a pivot is exactly zero
        return ""
    symmetric = np.array_equal(factors.perm_r, factors.perm_c)
    return "LDL factors, D > 0" if symmetric and (factors.U.diagonal() > 0.0).all() else ""
