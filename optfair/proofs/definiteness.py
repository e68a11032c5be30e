"""Positive semidefinite or not: proved by a factorisation whose error is bounded, or refuted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.csgraph
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

from optfair.proofs.elimination import exactly_semidefinite
from optfair.proofs.rounding import (
    UNIT,
    Floats,
    coordinates,
    gamma,
    group_products,
    quadratic_value,
)
from optfair.proofs.sparse_factors import factors, row_errors, sparse_shift

# A matrix of this order is factored densely; a larger one sparsely, unless it is full.
DENSE, FULL = 400, 4_000
# Sum of squared orders of blocks that are decided in fractions, times their ranks and what each costs.
FRACTIONS, EACH = 200_000, 8
# Shares of the diagonal that are taken off to prove how definite a matrix is.
SHARES = (1e-2, 1e-4, 1e-7, 1e-9, 1e-10)
# Least and largest shift that is tried, in units of the rounding of the largest row.
SHIFTS = (4.0, 262144.0)
TINY = 2.0**-1022
# Matrices of which is known what was proved last, and powers of two between which they may be.
KEPT, WIDE = 8, 400
Factored = tuple[Floats | None, float, Floats | None]


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
    floor : array (n,) or None
        :math:`P + \delta E - \operatorname{diag}(\mu) \succeq 0` is proved for this
        :math:`\mu \ge 0`, with E the identity on the columns that need a shift; they have
        :math:`\mu_j = 0`. None where nothing is proved.
    shifted : array (n,) of bool or None
        The columns that need the shift; None where nothing is proved.
    """

    shift: float
    witness: Floats | None = None
    value: float = 0.0
    size: float = 0.0
    floor: Floats | None = None
    shifted: NDArray[np.bool_] | None = None

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
# Columns whose numbers are all this few roundings of the largest row hold nothing else.
SILENT = 64.0


def symmetric(P: Any) -> Any:
    """Return (P + P')/2: an array where P is small, else sparse by columns."""
    if P.shape[0] <= DENSE:
        whole = as_array(P)
        return (whole + whole.T) * 0.5
    P = sp.csc_array(P, dtype=float)
    return sp.csc_array((P + P.T) * 0.5)


def definiteness(P: Any, *, sharp: bool = False) -> Definiteness:
    r"""Prove :math:`P + \delta I \succeq 0` for the least δ that is tried, or refute P.

    Dense: a Cholesky factorisation of :math:`P + \delta I - c I`, diagonal rounded down, that
    completes proves it when :math:`c \ge \gamma_{n+1}/(1 - \gamma_{n+1}) \operatorname{tr} P`
    (Rump). Sparse: any exact :math:`L D L^T` with D > 0 is positive definite, so
    :math:`\lambda_{\min}(P) \ge -\delta - \|E\|` with the residual E bounded from the factors.

    Parameters
    ----------
    P : sparse or dense (n, n)
        Symmetric floats, taken as exact.
    sharp : bool
        Also how definite it is, column by column; and without a shift where a matrix is
        diagonally dominant, or falls apart into blocks small enough for fractions.

    Returns
    -------
    Definiteness

    Examples
    --------
    >>> print(definiteness(np.diag([1.0, 2.0])))
    positive semidefinite, proved
    >>> print(definiteness(np.diag([1.0, -1e-4])))
    refuted: v'Pv = -0.0001 for a unit vector v
    >>> print(definiteness(np.ones((2, 2)), sharp=True))
    positive semidefinite, proved
    >>> definiteness(np.ones((2, 2))).accepted
    True

    References
    ----------
    Rump: Verification of positive definiteness, BIT 46, 2006. Higham: Accuracy and Stability of
    Numerical Algorithms, Theorem 10.3.
    """
    P = stored(P)
    n, (row, column, entry) = P.shape[0], coordinates(P)
    nothing, met = np.zeros(n), np.zeros(n, dtype=bool)
    met[row] = met[column] = True
    used = np.flatnonzero(met)  # empty rows and columns do not matter
    if not used.size:
        return Definiteness(0.0, floor=nothing, shifted=nothing > 0.0)
    core = _part(P, used)
    if not np.isfinite(entry).all() or not is_symmetric(core):
        return Definiteness(np.inf)
    size = float(np.bincount(row, np.abs(entry)).max()) * (1.0 + 1e-10)
    own = core.diagonal()
    alone = (np.bincount(column, minlength=n)[used] == 1) & (own != 0.0)  # nothing to factor
    least = float(own[alone].min(initial=np.inf))
    if least < -ROUNDING * size:
        return Definiteness(
            np.inf, _unit(P, used[np.flatnonzero(alone)[own[alone].argmin()]]), least, size
        )
    floor, shifted = np.zeros(used.size), np.zeros(used.size, dtype=bool)
    floor[alone] = np.maximum(own[alone], 0.0)
    shifted[alone] = own[alone] < 0.0
    shift = max(0.0, -least)
    rest = np.flatnonzero(~alone)
    if rest.size:
        shift_of_rest, own_floor, own_shifted, v = _joined(_part(core, rest), size, sharp)
        if v is not None:
            full = np.zeros(n)
            full[used[rest]] = v
            low = quadratic_value(P, full)[1] / float(v @ v)
            if low < -ROUNDING * size:
                return Definiteness(np.inf, full, low, size)
        if not np.isfinite(shift_of_rest):
            return Definiteness(np.inf, size=size)
        floor[rest], shifted[rest] = own_floor, own_shifted
        shift = max(shift, shift_of_rest)
    everywhere, where = nothing.copy(), np.zeros(nothing.size, dtype=bool)
    everywhere[used], where[used] = floor, shifted
    return Definiteness(shift, size=size, floor=everywhere, shifted=where)


def curvature_of(P: Any) -> Definiteness:
    r"""Prove or refute that a quadratic form is convex, in the units of its own columns.

    P is semidefinite where DPD is, for any positive diagonal D. A shift that is slight beside the
    largest numbers of P may be all that a column in another unit has; so what needs a shift is
    looked at again with diagonal entries near 1. Columns that hold nothing but rounding beside
    the others are left out of that.

    Parameters
    ----------
    P : sparse or dense (n, n)
        Symmetric floats, taken as exact.

    Examples
    --------
    >>> print(curvature_of(np.diag([1e5, -1e-5])))
    refuted: v'Pv = -1e-05 for a unit vector v
    """
    known = definiteness(P)
    if not 0.0 < known.shift <= ACCEPTED * known.size:
        return known
    P = sp.csc_array(P)
    own, most = P.diagonal(), abs(P).max(axis=0).toarray().ravel()
    used = np.flatnonzero(most > SILENT * UNIT * known.size)
    if known.shift <= ACCEPTED * own[used].min():
        return known  # it is slight in every column
    if (own[used] <= 0.0).any():
        v = _along_axis(P, int(used[own[used].argmin()]))
    else:
        units = np.exp2(-np.round(np.log2(own[used]) / 2.0))
        if np.ptp(units) == 0.0:
            return known
        scale = sp.diags_array(units)
        again = definiteness(sp.csc_array(scale @ _part(P, used) @ scale))
        if again.witness is None:
            return known
        v = np.zeros(own.size)
        v[used] = units * again.witness
    v = np.ldexp(v, 1 - int(np.frexp(np.abs(v).max())[1]))
    value = quadratic_value(P, v)[1]
    return Definiteness(np.inf, v, value, known.size) if value < 0.0 else known


def _along_axis(P: Any, j: int) -> Floats:
    """Return a direction in which P falls, where an entry of its diagonal is not positive."""
    v = _unit(P, j)
    column = P[:, [j]].toarray().ravel()
    if column[j] == 0.0 and (k := int(np.abs(column).argmax())) != j:
        v[j] = -np.exp2(np.ceil(np.log2(max(P[k, k], 1e-300) / abs(column[k])))) * np.sign(
            column[k]
        )
        v[k] = 1.0
    return v


def _part(P: Any, at: NDArray[Any]) -> Any:
    """Return some rows and the same columns, as they are looked at."""
    P = stored(P)
    if at.size == P.shape[0]:
        return P
    if isinstance(P, np.ndarray):
        return P[np.ix_(at, at)]
    if at.size > DENSE:
        return sp.csc_array(P[at][:, at])
    place = np.full(P.shape[0], at.size)
    place[at] = np.arange(at.size)
    row, column, entry = coordinates(P)
    core = np.zeros((at.size + 1, at.size + 1))
    core[place[row], place[column]] = entry
    return np.ascontiguousarray(core[:-1, :-1])


def stored(P: Any) -> Any:
    """Return a matrix as it is looked at: an array where it is small, else by columns, without zeros."""
    if P.shape[0] <= DENSE:
        return as_array(P)
    P = sp.csc_array(P, dtype=float)
    P.sum_duplicates()
    if not P.data.all():
        P = P.copy()
        P.eliminate_zeros()
    return P


def is_symmetric(P: Any) -> bool:
    """Whether a matrix is symmetric to the last digit."""
    return not (P != P.T).sum()


def _joined(
    core: Any, size: float, sharp: bool
) -> tuple[float, Floats, NDArray[np.bool_], Floats | None]:
    """Return shift, floor and shifted columns of a matrix without entries that stand alone.

    With a vector in whose direction it is negative, where nothing better is known.
    """
    n = core.shape[0]
    none, nowhere = np.zeros(n), np.zeros(n, dtype=bool)
    if dominant(core):
        floor = floor_of(core) if sharp else None
        return 0.0, none if floor is None else floor, nowhere, None
    core = as_array(core) if n <= DENSE else core
    floor, shift, v = _factored(core, size)
    if floor is not None:
        return 0.0, floor, nowhere, None
    if not sharp or shift == 0.0 or not np.isfinite(shift):
        return shift, none, nowhere | (shift > 0.0), v
    return *_parts(core, shift), None


def _factored(core: Any, size: float) -> Factored:
    """Return what `floor_of` does, or `_shift` where there is none; of the last matrices it is known.

    A problem's is looked at where it is declared and where it is compiled, often twice as large.
    """
    entries, places = (
        (core, ()) if isinstance(core, np.ndarray) else (core.data, (core.indices, core.indptr))
    )
    power = int(np.frexp(np.abs(entries).max())[1])
    near = np.ldexp(entries, -power)
    with np.errstate(over="ignore"):
        same = np.array_equal(np.ldexp(near, power), entries) and abs(power) <= WIDE
    if not same:
        return _looked_at(core, size)
    scaled: Any = sp.csc_array((near, *places), shape=core.shape) if places else near
    floor, shift, v = _once(_Matrix(scaled, float(np.ldexp(size, -power))))
    if floor is not None:
        own = np.ldexp(floor, power)
        return (own if own.min() >= TINY else np.zeros(own.size)), 0.0, None
    return None, max(float(np.ldexp(shift, power)), TINY) if shift else 0.0, v


class _Matrix:
    """A matrix that is another's equal where its numbers are; once they are looked at it is empty."""

    def __init__(self, core: Any, size: float) -> None:
        self.core, self.size = core, size
        parts = [core] if isinstance(core, np.ndarray) else [core.data, core.indices, core.indptr]
        hashed = hashlib.blake2b(repr((core.shape, len(parts), size)).encode())
        for part in parts:  # places are counted in long integers or short ones
            hashed.update((part if part.dtype == float else part.astype(np.int64)).tobytes())
        self.digest = hashed.digest()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Matrix) and self.digest == other.digest


@lru_cache(maxsize=KEPT)
def _once(matrix: _Matrix) -> Factored:
    core, matrix.core = matrix.core, None
    return _looked_at(core, matrix.size)


def forget() -> None:
    """Forget the last matrices, so that the next is looked at whatever it is."""
    _once.cache_clear()


def _looked_at(core: Any, size: float) -> Factored:
    error = _factorisation(core)(core, 0.0)
    floor = floor_of(core, error)  # most curved objectives are definite
    return (None, *_shift(core, size, error)) if floor is None else (floor, 0.0, None)


def _parts(core: Any, shift: float) -> tuple[float, Floats, NDArray[np.bool_]]:
    """Decide the blocks of a matrix one by one, the small ones in fractions, the others together."""
    work, n = 0, core.shape[0]
    floor, open_ones = np.zeros(n), np.ones(n, dtype=bool)
    met = sp.csr_array(core)  # of an array what is near 0 would not count
    count, part = scipy.sparse.csgraph.connected_components(met, directed=False)
    orders = np.bincount(part, minlength=count)
    for k in np.argsort(orders, kind="stable"):
        if EACH * int(orders[k]) ** 2 > FRACTIONS - work:
            break
        at = np.flatnonzero(part == k)
        block = as_array(core[at][:, at])
        own, d = floor_of(block), np.sqrt([v if v > 0.0 else 1.0 for v in block.diagonal()])
        rank = 1 if own is not None else np.linalg.matrix_rank(block / d / d[:, None])
        work += (EACH + int(rank)) * int(orders[k]) ** 2  # so many steps on so many entries
        floor[at] = 0.0 if own is None else own
        if own is not None or (work <= FRACTIONS and exactly_semidefinite(block)):
            open_ones[at] = False
    at = np.flatnonzero(open_ones)
    if 0 < at.size < n:
        rest = core[at][:, at]
        own = floor_of(rest)
        if own is not None or dominant(rest):
            floor[at] = 0.0 if own is None else own
            open_ones[at] = False
    return shift if open_ones.any() else 0.0, floor, open_ones


def _shift(core: Any, size: float, error: float) -> tuple[float, Floats | None]:
    """Return the least shift that is tried and proved, or a direction in which it is negative."""
    factor = _factorisation(core)
    if error <= UNIT * size:
        return error, None
    least, (step, largest) = np.inf, (k * UNIT * size for k in SHIFTS)
    while True:
        # a singular matrix has large factors next to it, and these large errors
        proved = factor(core, step)
        if proved > least:
            break
        least = min(least, proved)
        if proved <= 3.0 * step or step >= largest:
            break
        # its error falls as the shift grows: both are least where they are equal
        evened = sqrt(step * proved) if np.isfinite(proved) else 0.0
        step = min(max(16.0 * step, evened, TINY), largest)
    if np.isfinite(least):
        return least, None
    v = negative_direction(core, size)
    if v is None:
        return np.inf, None
    low = quadratic_value(core, v)[1] / float(v @ v)
    if low < -ROUNDING * size:
        return np.inf, v
    return factor(core, -2.0 * low + SHIFTS[-1] * UNIT * size), None


def as_array(P: Any) -> Floats:
    """Return a matrix with all its places, in double precision: others would be factored in their own."""
    return np.asarray(P if isinstance(P, np.ndarray) else P.toarray(), dtype=float)


def _factorisation(core: Any) -> Callable[[Any, float], float]:
    n = core.shape[0]
    return dense_shift if n <= DENSE or (n <= FULL and 5 * core.nnz >= n * n) else sparse_shift


def floor_of(core: Any, error: Floats | float | None = None) -> Floats | None:
    r"""Return :math:`\mu > 0` for which :math:`P - \operatorname{diag}(\mu) \succeq 0` is proved.

    A share of the diagonal is taken off; what rounding leaves of it is what is proved. The error of
    a factorisation of the matrix itself may be known: infinite where it breaks down.
    """
    own = core.diagonal()
    if not (own > 0.0).all() or np.max(error or 0.0) == np.inf:
        return None
    factor = _factorisation(core)
    dense = factor is dense_shift
    errors: Any = factor if dense else row_errors
    lowered: Any = (as_array(core) if dense else core).copy()
    if not dense:
        lines = np.repeat(np.arange(own.size), np.diff(lowered.indptr))
        diagonal = np.flatnonzero(lowered.indices == lines)
    for share in SHARES:
        less = own * (1.0 - share)
        if factor is dense_shift:
            np.fill_diagonal(lowered, less)
        else:
            lowered.data[diagonal] = less
        left = np.nextafter(own - less - errors(lowered, 0.0) * (1.0 + 4.0 * UNIT), -np.inf)
        if (left > 0.0).all():
            return np.asarray(np.nextafter(left, 0.0))
        error = errors(core, 0.0) if error is None else error
        if share == SHARES[0] and (error >= share * own).any():
            break  # no share is as large as the error of a factorisation
    return None


def dominant(P: Any) -> bool:
    r"""Whether :math:`P_{ii} \ge \sum_{j \ne i} |P_{ij}|` exactly, as in every Laplacian: then P is semidefinite.

    Examples
    --------
    >>> dominant(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    True
    """
    n, (row, column, entry) = P.shape[0], coordinates(P)
    own, sizes = P.diagonal(), np.abs(entry)
    # crude first: most matrices fail it by much
    total = np.bincount(column, sizes, n)
    if (own + np.abs(own) - total < -1e-6 * sizes.max(initial=0.0)).any():
        return False
    signed = np.where(row == column, entry, -sizes)
    center, radius = group_products(signed, np.ones(signed.size), column, n)
    return bool((center >= radius).all())


def _unit(P: Any, at: int) -> Floats:
    return np.eye(1, P.shape[0], at).ravel()


def negative_direction(P: Any, size: float) -> Floats | None:
    """Return a unit vector v with v'Pv < 0 in exact arithmetic, None when none was met."""
    own = P.diagonal()
    tried = [_unit(P, int(own.argmin()))] if own.min() < 0.0 else []
    if own.size <= DENSE:
        # near 1 by a power of two: products of the entries stay in the range of floats
        near_one = np.ldexp(as_array(P), -int(np.frexp(abs(P).max())[1]))
        values, vectors = np.linalg.eigh(near_one)
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
    factored = factors(P, 0.0) or factors(P, -1e-9 * size)
    if factored is None:
        return []
    place, L, _, D = factored
    pivots = []
    for k in np.argsort(D)[:3]:
        if D[k] >= 0.0:
            break
        e = _unit(P, int(k))
        w = spla.spsolve_triangular(sp.csr_array(L.T), e, lower=False, unit_diagonal=True)
        pivots.append(w[place])
    return pivots


def dense_shift(P: Any, shift: float) -> float:
    """Return a shift for which P + shift I is proved positive semidefinite, infinite if none."""
    return np.inf if cholesky(P, shift) is None else shift


def cholesky(P: Any, shift: float) -> Floats | None:
    """Return L with P + shift I - L L' proved positive semidefinite, None where it breaks down."""
    A = as_array(P).copy()
    n = len(A)
    rounding = float(gamma(n + 2.0))
    trace = float(np.abs(np.diag(A)).sum()) + n * shift
    c = rounding / (1.0 - 2.0 * rounding) * trace * (1.0 + 1e-9) + 1e-300
    own = np.diag(A).copy()
    lowered = own + shift - c
    lowered = lowered - 4.0 * UNIT * (np.abs(own) + shift + c)  # rounded down, whatever cancels
    np.fill_diagonal(A, lowered)
    if not ((lowered > 0.0).all() and np.isfinite(A).all()):
        return None
    try:
        return np.asarray(scipy.linalg.cholesky(A, lower=True, check_finite=False))
    except np.linalg.LinAlgError:
        return None
