"""Positive semidefinite or not: proved by a factorisation whose error is bounded, or refuted."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

from optfair.proofs.rounding import UNIT, exact_dot, gamma

Floats = NDArray[np.float64]

__all__ = ["Definiteness", "definiteness", "negative_direction", "symmetric"]

# A matrix of this order is factored densely; a larger one sparsely, unless it is full.
DENSE, FULL = 400, 4_000
# Shifts that are tried, in units of the rounding of the largest row, before it is given up.
SHIFTS = (4.0, 64.0, 1024.0, 16384.0, 262144.0)


@dataclass(frozen=True, eq=False)
class Definiteness:
    r"""What is proved of a symmetric matrix P of floats.

    Attributes
    ----------
    shift : float
        :math:`P + \delta I \succeq 0` is proved for this δ, in exact arithmetic; infinite when
        nothing is.
    witness : array (n,) or None
        A vector v with :math:`v^T P v < 0` in exact arithmetic.
    value : float
        An upper bound on :math:`v^T P v` for a witness of length about 1.
    size : float
        The largest row sum of absolute values: the unit of δ.
    """

    shift: float
    witness: Floats | None = None
    value: float = 0.0
    size: float = 0.0

    @property
    def accepted(self) -> bool:
        """Whether P counts as positive semidefinite; what the shift may cost is charged later."""
        return self.shift <= ACCEPTED * self.size

    def __str__(self) -> str:
        if self.witness is not None:
            return f"refuted: v'Pv = {self.value:.3g} for a unit vector v"
        if not np.isfinite(self.shift):
            return "not decided"
        if self.shift == 0.0:
            return "positive semidefinite, proved"
        return f"positive semidefinite up to {self.shift:.1e}, proved"


# A negative value of v'Pv beyond this share of the largest row is a fact of the data; what is
# smaller may come from how they were computed, and is paid for in every bound.
ROUNDING = 1e-10
# The largest shift, in the same unit, with which a quadratic is called convex.
ACCEPTED = 1e-9


def symmetric(P: Any) -> Any:
    """Return (P + P')/2 as a sparse matrix."""
    P = sp.csc_array(P)
    return sp.csc_array((P + P.T) * 0.5)


def definiteness(P: Any) -> Definiteness:
    r"""Prove :math:`P + \delta I \succeq 0` for the least δ that is tried, or refute P.

    Dense: a Cholesky factorisation of :math:`P + \delta I - c I`, diagonal rounded down, that
    completes proves it when :math:`c \ge \gamma_{n+1}/(1 - \gamma_{n+1}) \operatorname{tr} P`
    (Rump). Sparse: any exact :math:`L D L^T` with D > 0 is positive definite, so
    :math:`\lambda_{\min}(P) \ge -\delta - \|E\|` with the residual E bounded from the factors.

    Parameters
    ----------
    P : sparse or dense (n, n)
        Symmetric floats, taken as exact.

    Returns
    -------
    Definiteness

    Examples
    --------
    >>> print(definiteness(np.diag([1.0, 2.0])))
    positive semidefinite, proved
    >>> print(definiteness(np.diag([1.0, -1e-4])))
    refuted: v'Pv = -0.0001 for a unit vector v
    >>> singular = definiteness(np.ones((2, 2)))
    >>> singular.accepted, 0.0 < singular.shift < 1e-12
    (True, True)

    References
    ----------
    Rump: Verification of positive definiteness, BIT 46, 2006. Higham: Accuracy and Stability of
    Numerical Algorithms, Theorem 10.3.
    """
    P = sp.csc_array(P)
    P.sum_duplicates()
    P.eliminate_zeros()
    if not P.nnz:
        return Definiteness(0.0)
    if not np.isfinite(P.data).all() or (P - P.T).nnz:
        return Definiteness(np.inf)
    used = np.flatnonzero(np.diff(P.indptr))  # empty rows and columns do not matter
    core = sp.csc_array(P[used][:, used])
    size = float(abs(core).sum(axis=1).max()) * (1.0 + 1e-10)
    diagonal = core.diagonal()
    if core.nnz == np.count_nonzero(diagonal):  # diagonal: nothing to factor
        low = float(diagonal.min())
        if low >= -ROUNDING * size:
            return Definiteness(max(0.0, -low), size=size)
        return _refuted(_unit(P, used[int(diagonal.argmin())]), low, size)
    n = core.shape[0]
    full_enough = n <= FULL and 5 * core.nnz >= n * n
    factor = _dense if n <= DENSE or full_enough else _sparse
    if np.isfinite(proved := factor(core, 0.0)) and proved <= UNIT * size:
        return Definiteness(proved, size=size)
    for step in SHIFTS:
        if np.isfinite(proved := factor(core, step * UNIT * size)):
            return Definiteness(proved, size=size)
    v = negative_direction(core, size)
    if v is None:
        return Definiteness(np.inf, size=size)
    full = np.zeros(P.shape[0])
    full[used] = v
    low = quadratic_value(P, full)[1] / float(v @ v)
    if low < -ROUNDING * size:
        return _refuted(full, low, size)
    return Definiteness(factor(core, -2.0 * low + SHIFTS[-1] * UNIT * size), size=size)


def _refuted(v: Floats, value: float, size: float) -> Definiteness:
    return Definiteness(np.inf, v, value, size)


def _unit(P: Any, at: int) -> Floats:
    v = np.zeros(P.shape[0])
    v[at] = 1.0
    return v


def quadratic_value(P: Any, v: Floats) -> tuple[float, float]:
    """Return floats below and above the exact v'Pv."""
    P = sp.coo_array(P)
    # v_i P_ij is rounded once; the error is charged against the sum of the sizes
    left = v[P.row] * P.data
    center, radius = exact_dot(left, v[P.col])
    radius += float(UNIT * (np.abs(left) @ np.abs(v[P.col])) * (1.0 + 1e-6)) * 1.01 + 1e-300
    return center - radius * (1.0 + 1e-6), center + radius * (1.0 + 1e-6)


def negative_direction(P: Any, size: float) -> Floats | None:
    """Return a unit vector v with v'Pv < 0 in exact arithmetic, None when none was met."""
    n = P.shape[0]
    tried = []
    diagonal = P.diagonal()
    if diagonal.min() < 0.0:
        tried.append(np.eye(1, n, int(diagonal.argmin())).ravel())
    if n <= DENSE:
        values, vectors = np.linalg.eigh(P.toarray())
        if values[0] < 0.0:
            tried.insert(0, vectors[:, 0])
    elif not tried:
        tried += _pivots(P, size)
    best: tuple[float, Floats] | None = None
    for v in tried:
        length = float(np.linalg.norm(v))
        if not np.isfinite(length) or length == 0.0:
            continue
        high = quadratic_value(P, v / length)[1]
        if high < 0.0 and (best is None or high < best[0]):
            best = (high, v / length)
    return None if best is None else best[1]


def _pivots(P: Any, size: float) -> list[Floats]:
    """Return L^-T e_k for the most negative pivots of a factorisation, which may be witnesses."""
    factored = _factors(P, 0.0) or _factors(P, -1e-9 * size)
    if factored is None:
        return []
    solver, L, D = factored
    found = []
    for k in np.argsort(D)[:3]:
        if D[k] >= 0.0:
            break
        e = np.zeros(D.size)
        e[k] = 1.0
        w = spla.spsolve_triangular(sp.csr_array(L.T), e, lower=False, unit_diagonal=True)
        v = np.empty_like(w)
        v[:] = w[solver.perm_r]
        found.append(v)
    return found


def _dense(P: Any, shift: float) -> float:
    """Return a shift for which P + shift I is proved positive semidefinite, infinite if none."""
    A = P.toarray()
    n = len(A)
    rounding = float(gamma(n + 2.0))
    trace = float(np.abs(np.diag(A)).sum()) + n * shift
    c = rounding / (1.0 - 2.0 * rounding) * trace * (1.0 + 1e-9) + 1e-300
    own = np.diag(A).copy()
    lowered = own + shift - c
    lowered = lowered - 4.0 * UNIT * (np.abs(own) + shift + c)  # rounded down, whatever cancels
    np.fill_diagonal(A, lowered)
    if not (lowered > 0.0).all():
        return np.inf
    try:
        scipy.linalg.cholesky(A, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return np.inf
    return shift


def _factors(P: Any, shift: float) -> tuple[Any, Any, Floats] | None:
    """Return (solver, L, D) of P + shift I in its own order, None where it breaks down."""
    shifted = sp.csc_array(P + shift * sp.eye_array(P.shape[0], format="csc")) if shift else P
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            solver = spla.splu(
                shifted,
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
        except RuntimeError:  # exactly singular
            return None
    if not np.array_equal(solver.perm_r, solver.perm_c):
        return None
    return solver, sp.csr_array(solver.L), np.asarray(solver.U.diagonal(), dtype=float)


def _sparse(P: Any, shift: float) -> float:
    """Return a proved shift from a sparse factorisation: shift + the bound on its residual."""
    factored = _factors(P, shift)
    if factored is None:
        return np.inf
    solver, L, D = factored
    if not (D > 0.0).all() or not np.isfinite(D).all():
        return np.inf
    U = sp.csr_array(solver.U)
    if not (np.isfinite(L.data).all() and np.isfinite(U.data).all()):
        return np.inf
    n = P.shape[0]
    ones = np.ones(n)
    longest = int(np.diff(L.indptr).max())
    DLt = sp.csr_array(sp.diags_array(D) @ L.T)
    first = gamma(longest + 4.0) * (abs(L) @ (abs(U) @ ones))
    second = abs(L) @ (abs(DLt - U) @ ones) + 4.0 * UNIT * (abs(L) @ (abs(DLt) @ ones))
    # the shift itself is rounded where it meets the diagonal
    third = 2.0 * UNIT * (float(np.abs(P.diagonal()).max()) + shift)
    error = float((first + second).max()) * (1.0 + 1e-9) + third
    return shift + error
