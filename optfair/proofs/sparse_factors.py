"""Sparse symmetric factorisations in an order of their own, and bounds on their residuals."""

from __future__ import annotations

import contextlib
import warnings
from math import sqrt
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

from optfair.proofs.rounding import UNIT, Floats, gamma

# Entries of a line that meets most others, in square roots of the order (as in AMD, ACM TOMS 837).
LONG = 10.0


def factors(P: Any, shift: float) -> tuple[NDArray[np.int32], Any, Any, Floats] | None:
    """Return (place, L, U, D) of P + shift I in its own order, None where it breaks down."""
    shifted = sp.csc_array(P + shift * sp.eye_array(P.shape[0], format="csc")) if shift else P
    order = _long_last(P)
    solver = _in_symmetric_order(shifted if order is None else shifted[order][:, order], order)
    if solver is None or not np.array_equal(solver.perm_r, solver.perm_c):
        return None
    place = solver.perm_r
    if order is not None:
        place = np.empty_like(place)
        place[order] = solver.perm_r
    return place, sp.csr_array(solver.L), sp.csr_array(solver.U), solver.U.diagonal()


def _long_last(P: Any) -> NDArray[np.int64] | None:
    """Return an order in which lines that meet most others come last, None where there are none.

    The minimum degree of all lines takes longer than their factors then.
    """
    n, count = P.shape[0], np.diff(P.indptr)
    long = count > max(LONG, LONG * sqrt(n))
    if not long.any():
        return None
    short = np.flatnonzero(~long)
    rest = abs(P[short][:, short])
    if rest.nnz > short.size:  # the places of entries decide: a diagonal that cannot break down
        safe = sp.csc_array(rest + sp.diags_array(1.0 + rest.sum(axis=0)))
        solver = _in_symmetric_order(safe, None)
        short = short if solver is None else short[np.argsort(solver.perm_c)]
    return np.concatenate([short, np.flatnonzero(long)])


def _in_symmetric_order(P: Any, order: Any) -> Any:
    """Return SuperLU's factors in the order of minimum degree, or as it stands where it has one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(RuntimeError):  # exactly singular
            return spla.splu(
                sp.csc_array(P),
                permc_spec="MMD_AT_PLUS_A" if order is None else "NATURAL",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
    return None


def sparse_shift(P: Any, shift: float) -> float:
    """Return a proved shift from a sparse factorisation: shift + the bound on its residual."""
    return shift + float(row_errors(P, shift).max())


def row_errors(P: Any, shift: float) -> Floats:
    r"""Return e for which :math:`P + \delta I + \operatorname{diag}(e) \succeq 0` is proved, infinite if none.

    A row of the residual of a sparse factorisation has sums of absolute values of at most :math:`e_i`:
    few in a short row, whatever the long ones have.
    """
    factored = factors(P, shift)
    if factored is None:
        return np.full(P.shape[0], np.inf)
    place, L, U, D = factored
    if not ((D > 0.0).all() and all(np.isfinite(v).all() for v in (D, L.data, U.data))):
        return np.full(P.shape[0], np.inf)
    ones = np.ones(P.shape[0])
    longest = int(np.diff(L.indptr).max())
    DLt = sp.csr_array(sp.diags_array(D) @ L.T)
    first = gamma(longest + 4.0) * (abs(L) @ (abs(U) @ ones))
    second = abs(L) @ (abs(DLt - U) @ ones) + 4.0 * UNIT * (abs(L) @ (abs(DLt) @ ones))
    # the shift itself is rounded where it meets the diagonal
    third = 2.0 * UNIT * (np.abs(P.diagonal()) + shift)
    return np.asarray((first + second)[place] * (1.0 + 1e-9) + third + 1e-300)
