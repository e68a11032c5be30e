"""Roots F of semidefinite matrices, F'F next to them or proved to be below, and rows that state them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.definiteness import DENSE, as_array, cholesky
from optfair.proofs.elimination import TESTED, exact_root, exactly_semidefinite
from optfair.proofs.rounding import LOST, UNIT, Floats, gamma
from optfair.proofs.sparse_factors import factors, sparse_shift

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

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


@dataclass(frozen=True, eq=False)
class Rooted:
    r"""A quadratic form that rows state by a rounded root of its matrix.

    .. math:: w^T P w \ge \lVert F w \rVert^2 - \sum_j d_j w_j^2

    The rows have :math:`\lVert F w \rVert^2 - s`, and one of them says :math:`s = 0`. With
    :math:`s = \sum_j d_j B_j^2` instead, they hold wherever the form does and :math:`|w_j| \le B_j`.

    Attributes
    ----------
    column : int
        That of s.
    own : slice
        Columns of w.
    share : array (k,)
        d; all 0 where :math:`F^T F \preceq P` is proved.
    matrix : sparse csr (k, k)
        P.
    """

    column: int
    own: slice
    share: Floats
    matrix: Any

    @property
    def charged(self) -> NDArray[np.bool_]:
        """The columns by which the shortfall is measured."""
        return np.asarray((self.share > 0.0) & np.isfinite(self.share))

    def in_units(self, columns: Floats) -> Rooted:
        """Return the same for columns that are multiplied by powers of two."""
        units = columns[self.own]
        share = self.share * units * units / columns[self.column]
        share = np.where(self.share > 0.0, share + 1e-300, share)
        across = sp.diags_array(units)
        return replace(self, share=share, matrix=sp.csr_array(across @ self.matrix @ across))


def root_excess(P: Any, F: Any) -> Floats:
    r"""Return d with :math:`F^T F \preceq P + \operatorname{diag}(d)`, by the sums of its rows in their units.

    With :math:`E = F^T F - P` and any :math:`u > 0`,

    .. math::
        w^T E w \le \sum_{ij} |E_{ij}| \tfrac12 \Bigl(\frac{u_i}{u_j} w_i^2 + \frac{u_j}{u_i} w_j^2\Bigr)
        = \sum_i w_i^2\, u_i \sum_j |E_{ij}| / u_j

    Parameters
    ----------
    P : sparse or dense (n, n)
        Symmetric floats.
    F : sparse or dense (k, n)
        Floats.

    Examples
    --------
    >>> bool(root_excess(np.ones((2, 2)), np.ones((1, 2))).max() < 1e-14)
    True
    >>> bool(root_excess(np.zeros((1, 1)), np.ones((1, 1)))[0] >= 1.0)
    True
    """
    k, sizes = F.shape[0], abs(F)
    units = np.sqrt(np.maximum(P.diagonal(), 0.0))
    largest = abs(sp.csr_array(P)).max(axis=1).toarray().ravel()
    most = units.max(initial=0.0) or 1.0
    units = np.where(units > 0.0, units, np.where(largest > 0.0, largest / most, most))
    with np.errstate(all="ignore"):
        per = 1.0 / units
        off = abs(P - F.T @ F) @ per + gamma(k + 4.0) * (sizes.T @ (sizes @ per))
        d = units * (off + (k + 4.0) * LOST * float(per.sum())) * (1.0 + 1e-9) + LOST
    return np.where(np.isnan(d), np.inf, d)  # units may have left the range of floats


def zeroing_rows(form: ConicForm) -> tuple[Any, Any, Floats]:
    """Return the rows that say of forms with rounded roots that s = 0, with the columns and entries of s."""
    rows, columns = form.rows, [r.column for r in form.rounded]
    if columns and not rows.data.all():
        rows = rows.copy()
        rows.eliminate_zeros()
    single = np.flatnonzero((np.diff(rows.indptr) == 1) & (form.equal | form.nonnegative))
    at = rows.indptr[single]
    here = np.isin(rows.indices[at], columns)
    return single[here], rows.indices[at[here]], rows.data[at[here]]
