"""Roots F of semidefinite matrices, F'F next to them or proved to be below."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from optfair.proofs.definiteness import DENSE, as_array, cholesky
from optfair.proofs.elimination import TESTED, exact_root, exactly_semidefinite
from optfair.proofs.rounding import UNIT
from optfair.proofs.sparse_factors import factors, sparse_shift

# What a singular matrix has left in its last pivots, in roundings a column; what sparse factors lose.
SINGULAR, EXACT = 4.0, 1e-12
# Lines of matrices whose roots are sought in whole numbers; a pivot of others is clear of what is
# taken off when so many times as large; shares of the diagonal that are tried.
PROVED, CLEAR = 30, 1e3
LOWERED = (0.0, 2.0 * UNIT, 8.0 * UNIT, 32.0 * UNIT)


def lower_root(P: Any) -> tuple[Any, bool]:
    r"""Return F with F'F next to P, for a semidefinite matrix, and whether it is proved to be below.

    No share of a column is lost, however small it is beside the others. Of a matrix of few lines
    :math:`F^T F \preceq P` is tested in whole numbers, so rows with F say nothing that P does not;
    of more it follows, in units with a diagonal near 1, from what is taken off before the
    factorisation, as in `definiteness`. Singular ones lose a share of short rows, or are rounded.

    Parameters
    ----------
    P : sparse or dense (n, n)
        Symmetric floats, taken as exact.

    Examples
    --------
    >>> bool(lower_root(np.diag([1.0, 1e-20]))[0][1, 1] ** 2 <= 1e-20), lower_root(np.ones((2, 2)))
    (True, (array([[1., 1.]]), True))
    """
    used = np.flatnonzero((own := np.asarray(P.diagonal())) > 0.0)
    if not used.size and not as_array(P).any():
        return np.zeros((0, own.size)), True
    units = np.exp2(-np.round(np.log2(own[used]) / 2.0))
    if own.size > DENSE and used.size == own.size and hasattr(P, "toarray"):
        scaled = sp.csc_array(sp.diags_array(units) @ P @ sp.diags_array(units))
        error = sparse_shift(scaled, 0.0)
        for shift in (-4.0 * error, 0.0) if error <= EXACT else ():
            # of what is taken off, a third pays for the factors, and so much for their root
            if shift and not 3.0 * (sparse_shift(scaled, shift) - shift) <= -shift:
                continue
            factored = factors(scaled, shift)
            if factored is None or not factored[3].min() > SINGULAR * UNIT * own.size:
                continue
            place, L, _, D = factored
            root: Any = sp.csc_array(sp.diags_array(np.sqrt(D)) @ L.T)[:, place]
            return root @ sp.diags_array(1.0 / units), bool(shift)
    whole = as_array(P)
    core = whole[np.ix_(used, used)] * units[:, None] * units
    F = np.zeros((used.size, own.size))
    if np.count_nonzero(core) == np.count_nonzero(whole):  # else it is not semidefinite
        for taken in LOWERED if used.size <= TESTED else ():
            near = exact_root(core - taken * np.eye(used.size))
            if near is not None and exactly_semidefinite(
                np.block([[np.eye(len(near)), near], [near.T, core]])
            ):
                F[: len(near), used] = near / units
                return F[: len(near)], True
        L = cholesky(core, 0.0)
        slight = CLEAR * UNIT * used.size**2 if used.size > PROVED else 0.0
        if L is not None and np.diag(L).min() ** 2 > slight:
            F[:, used] = L.T / units
            return F, True
        for below in (True, False) if used.size <= PROVED else ():
            if (near := exact_root(core, below=below)) is not None:
                F[: len(near), used] = near / units  # of its rank, at least
                return F[: len(near)], below
    L, order, rank, _ = scipy.linalg.lapack.dpstrf(core, tol=SINGULAR * UNIT * own.size, lower=1)
    F[:, used[order - 1]] = np.tril(L).T / units[order - 1]
    return F[:rank], False
