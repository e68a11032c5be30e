"""Linear equations with exact coefficients: how large a solution is, and which of a program's imply others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from optfair.proofs.cones import beside_diagonals
from optfair.proofs.definiteness import floor_of, symmetric
from optfair.proofs.effort import left_out
from optfair.proofs.elimination import ELIMINATED, independent
from optfair.proofs.rounding import (
    LOST,
    UNIT,
    Floats,
    coordinates,
    entries_of,
    exact_sums,
    gamma,
    unscaled,
)

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Ints = NDArray[np.intp]

# Equations that are solved densely, and entries of their matrix.
EQUATIONS, FEW, ENTRIES = 1_500, 400, 4_000_000
# Equations that are solved by their products with each other: to prove how far a solution is, in floats.
# More of them only where each shares entries with so few others.
SQUARED, SOLVED, LINKED = 2_500, 5_000, 8
# What is added to products of dependent equations, of the largest, and steps that make up for it.
RIDGE, STEPS = 1e-12, 5
# Entries of a matrix from which on normal equations are tried first, those from which on what they leave
# of equations that are near to depend or to contradict each other is taken, too, and how long a step
# may be, in sizes of what is corrected: a longer one comes of equations that nearly depend.
QUICK, LARGE, LONGEST = 10_000, 200_000, 1e6
# Rounds in which equations of one unknown are solved, as bounds of bounds grow along a chain; and what
# makes up for the rounding of a quotient.
FORCED, ROUNDED = 3, 1.0 + 1e-15
# Sparse factors are made where entries are one in so many, of a matrix and of its square.
THIN = 16


def with_own_unknowns(row: Ints, column: Ints, k: int) -> NDArray[np.bool_]:
    """Return which equations have an unknown of their own, or have it where such ones are left out.

    They follow from none of the others, and none of the others from them.

    Parameters
    ----------
    row, column : arrays of int
        Places of the entries, none of them twice.
    k : int
        Number of equations.

    Examples
    --------
    >>> with_own_unknowns(np.array([0, 0, 1, 1, 2, 3]), np.array([0, 1, 1, 2, 3, 3]), 4).tolist()
    [True, True, False, False]
    """
    some, live = np.zeros(k, dtype=bool), np.arange(row.size)
    while live.size:
        own = row[live[np.bincount(column[live])[column[live]] == 1]]
        if not own.size:
            break
        some[own] = True
        live = live[~some[row[live]]]
    return some


def _too_large(k: int, m: int) -> bool:
    """Whether a dense factorisation of k rows of m entries takes too long; few rows may be longer."""
    return k > EQUATIONS or k * m > ENTRIES * (2 if k <= FEW else 1)


def _square(M: Any, weight: Floats, most: int) -> Floats | None:
    """Return M W Mᵀ, W diagonal, in floats; None where that is too large."""
    k, m = M.shape
    full = np.diff(M.indptr) * THIN > m
    if k > most or int(full.sum()) * m > 4 * ENTRIES:
        return None
    thin, dense = sp.csr_array(M[~full]), M[full].toarray()
    count = np.bincount(thin.indices, minlength=m).astype(float)
    if float(count @ count) > ENTRIES:
        if k * m > 4 * ENTRIES:
            return None
        full, thin, dense = np.ones(k, dtype=bool), thin[:0], M.toarray()
    weighted = (dense * weight).T
    across = thin @ weighted
    square = np.empty((k, k))
    square[np.ix_(~full, ~full)] = (thin @ sp.diags_array(weight) @ thin.T).toarray()
    square[np.ix_(~full, full)], square[np.ix_(full, ~full)] = across, across.T
    square[np.ix_(full, full)] = dense @ weighted
    return square


def correcting_step(M: Any, residual: Floats, room: Floats) -> Floats | None:
    r"""Return a small vector with :math:`M \Delta \approx -r`, in floats; None when it is too large to try.

    Parameters
    ----------
    M : sparse (k, m)
        Rows.
    residual : array (k,) or (k, s)
        r, or some, for as many steps by the same factors.
    room : array (m,)
        Entries with more room are moved more; those with none are left.
    """
    rows = sp.csr_array(M)
    k, m = rows.shape
    used = np.flatnonzero((room > 0.0) & (np.bincount(rows.indices, minlength=m) > 0))
    large = _too_large(k, used.size)
    if not used.size or not np.isfinite(residual).all():
        return None
    weight = np.minimum(room[used], 1.0)
    own: Any = rows[:, used]
    size = abs(own).max(axis=1).toarray().ravel()
    size[size == 0.0] = 1.0
    own.data = own.data / size[coordinates(own)[0]] * weight[own.indices]
    side = -(residual.T / size).T
    small = k * used.size <= QUICK or (used.size == k and not _thin(own))
    own = own.toarray() if small and not large else own
    try:
        step = None
        if used.size == k and isinstance(own, np.ndarray):
            with contextlib.suppress(np.linalg.LinAlgError):
                step = np.linalg.solve(own, side)
        elif k > SOLVED:
            step = None if (solve := _bordered(own)) is None else _in_steps(own, side, solve)
        elif k * used.size > QUICK:
            step = _shortest(own, side, dependent=True)
        near = step is not None and _is_least(own, step, side)
        if not (near or large):
            own = own if isinstance(own, np.ndarray) else own.toarray()
            step = scipy.linalg.lstsq(own, side, cond=1e-9, lapack_driver="gelsy")[0]
    except (np.linalg.LinAlgError, ValueError):
        return None
    if step is None:
        return None
    moved = np.zeros((m, *residual.shape[1:]))
    moved[used] = (step.T * weight).T
    return moved if np.isfinite(moved).all() else None


def _is_least(M: Any, step: Floats, side: Floats) -> bool:
    """Whether a step solves the equations, or leaves the least of those that contradict each other."""
    left, most = M @ step - side, np.abs(side).max()
    if not np.abs(step).max() <= LONGEST * most:
        return False
    if M.shape[0] * M.shape[1] <= LARGE:  # others cost little, and leave less
        return bool(np.abs(left).max() <= 1e-12 * most)
    return bool(np.abs(left).max() <= 1e-6 * most or np.abs(M.T @ left).max() <= 1e-3 * most)


def _in_steps(M: Any, side: Floats, solve: Callable[[Floats], Floats]) -> Floats:
    """Return a solution in steps that a factor with a ridge gives, each of them as long as is best.

    They are conjugate residuals: what is left never grows, also of equations without a solution.
    """
    step, before = np.zeros((M.shape[1], *side.shape[1:])), list[tuple[Any, Any]]()
    for _ in range(STEPS):
        left = side - M @ step
        if np.abs(left).max() <= 1e-12 * np.abs(side).max():
            break
        move = M.T @ solve(left)
        image = M @ move
        for other, own in before:
            share = (own * image).sum(axis=0)
            move, image = move - share * other, image - share * own
        length = np.sqrt(np.square(image).sum(axis=0))
        move, image = (np.divide(v, length, where=length > 0.0, out=0.0 * v) for v in (move, image))
        before.append((move, image))
        step = step + (image * left).sum(axis=0) * move
    return np.asarray(step)


def _bordered(M: Any) -> Callable[[Floats], Floats] | None:
    """Return what solves M Mᵀ y = r, with a ridge, where most lines are thin: others border these.

    None where few lines are, or their products with each other are not.
    """
    k, m = M.shape
    full = np.diff(M.indptr) * THIN > m
    thin, others = M[~full], M[full]
    some = np.bincount(others.indices, minlength=m) > 0
    count = np.bincount(thin.indices, minlength=m).astype(float)
    few, size = 2 * thin.shape[0] < k, others.shape[0] * int(some.sum())
    if few or size > 4 * ENTRIES or float(count @ count) > ENTRIES:
        return None
    square, dense = sp.csc_array(thin @ thin.T), others[:, some].toarray()
    if square.nnz > (thin.shape[0] ** 2 / THIN if k <= SOLVED else LINKED * k):
        return None
    border = dense @ dense.T
    ridge = RIDGE * max(square.diagonal().max(), np.diag(border).max(initial=0.0))
    square = sp.csc_array(square + ridge * sp.eye_array(square.shape[0]))
    how = {"SymmetricMode": True}
    inner = splu(square, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=how)
    across = thin[:, some] @ dense.T
    behind = inner.solve(across)
    border += ridge * np.eye(border.shape[0]) - across.T @ behind
    root = scipy.linalg.cho_factor(border, overwrite_a=True) if border.size else None

    def solve(r: Floats) -> Floats:
        y = np.empty_like(r)
        y[~full] = inner.solve(np.ascontiguousarray(r[~full]))
        if root is not None:
            y[full] = scipy.linalg.cho_solve(root, r[full] - across.T @ y[~full])
            y[~full] -= behind @ y[full]
        return y

    return solve


def _shortest(M: Any, side: Floats, *, dependent: bool = False) -> Floats | None:
    """Return the shortest solution by normal equations, where their condition allows for these.

    Of equations that may be dependent a ridge keeps the factor regular, and steps take away what it
    leaves of the residual; where they contradict each other, the least squares are what remains.
    """
    with contextlib.suppress(np.linalg.LinAlgError, ValueError, RuntimeError):
        solve: Callable[[Floats], Floats]
        square: Any
        if dependent and not isinstance(M, np.ndarray) and (bordered := _bordered(M)):
            return _in_steps(M, side, bordered)
        if not isinstance(M, np.ndarray) and _thin(M):
            square, how = sp.csc_array(M @ M.T), {"SymmetricMode": True}
            factor = splu(square, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=how)
            own, solve = np.sqrt(np.abs(factor.U.diagonal())), factor.solve
        else:
            dense = isinstance(M, np.ndarray)
            square = M @ M.T if dense else _square(M, np.ones(M.shape[1]), SOLVED)
            if square is None:
                return None
            if dependent:
                square[np.diag_indices_from(square)] += RIDGE * square.diagonal().max()
            root = scipy.linalg.cho_factor(square)
            own, solve = np.diag(root[0]), partial(scipy.linalg.cho_solve, root)
        if dependent:
            return _in_steps(M, side, solve)
        if own.min() > 1e-4 * own.max():
            return np.asarray(M.T @ solve(side))
    return None


def _thin(M: Any) -> bool:
    """Whether a matrix is not small, and most entries are 0, of it and of its square."""
    k, m = M.shape
    if not (k * m > QUICK and THIN * M.nnz <= k * m):
        return False
    # a column that meets c rows makes c² entries, of which others' may be the same
    made = np.square(np.bincount(sp.csr_array(M).indices, minlength=m).astype(float))
    if THIN * made.max() > k * k:
        return False
    return bool(THIN * made.sum() <= k * k or THIN * (M @ M.T).nnz <= k * k)


def _right_inverse(M: Any) -> Floats | None:
    """Return R with M R near the identity, in floats; None where M has no full row rank."""
    k, m = M.shape
    if _thin(M):
        if m > k:
            R = _shortest(M, np.eye(k))
        else:
            R = None
            with contextlib.suppress(RuntimeError):
                R = splu(sp.csc_array(M)).solve(np.eye(k))
        if R is not None and np.isfinite(R).all():
            return np.asarray(R)
    dense = M.toarray()
    if m == k:
        return np.linalg.inv(dense)
    R = _shortest(dense, np.eye(k)) if dense.size > QUICK else None
    if R is None:
        Q, T, order = scipy.linalg.qr(dense.T, mode="economic", pivoting=True)
        if abs(T[-1, -1]) <= 1e-13 * abs(T[0, 0]):
            return None
        R = np.empty((m, k))
        R[:, order] = Q @ scipy.linalg.solve_triangular(T, np.eye(k), trans="T")
    return R


def _by_right_inverse(M: Any, weight: Floats) -> tuple[Floats, Floats] | None:
    """Return the sums of the lines of |I - M R| and of |R|, from above, for a right inverse R nearly."""
    k, m = M.shape
    R = _right_inverse(M @ sp.diags_array(weight))
    if R is None or not np.isfinite(R).all():
        return None
    unscaled = R * weight[:, None]
    if not _thin(M):
        M = M.toarray()
    off = np.abs(np.eye(k) - M @ unscaled)
    off += gamma(2.0 * m + 8.0) * (abs(M) @ np.abs(unscaled) + 1.0)
    return off.sum(axis=1), np.abs(unscaled).sum(axis=1) * (1.0 + float(gamma(2.0 * k + 8.0)))


def _by_squares(M: Any, weight: Floats) -> tuple[Floats, Floats] | None:
    r"""Return the same for :math:`R = W M^T H`, H near the inverse of :math:`M W M^T`: no line of R is made."""
    (k, m), sizes = M.shape, abs(M)
    square = _square(M, weight, SQUARED)
    if square is None:
        return None
    H = scipy.linalg.cho_solve(scipy.linalg.cho_factor(square), np.eye(k))
    most = np.abs(H).sum(axis=1)
    width = weight * (sizes.T @ most)
    off = np.abs(np.eye(k) - square @ H).sum(axis=1)
    off += float(gamma(2.0 * k + 8.0)) * (np.abs(square) @ most + k)
    off += float(gamma(2.0 * m + 16.0)) * (sizes @ width) + m * LOST * float(most.sum())
    return off * (1.0 + 1e-9), width * (1.0 + 1e-9)


def _by_lengths(M: Any, weight: Floats, residual: Floats) -> Floats | None:
    r"""Return how large the shortest solution is at most, by one factorisation, in floats rounded up.

    Where :math:`S = M W M^T \succeq \operatorname{diag}(\mu) = D \succ 0`, :math:`\Delta = -W M^T y`
    with :math:`S y = r` has :math:`\|D^{1/2} y\| \le \rho = \|D^{-1/2} r\|` and
    :math:`\|W^{-1/2} \Delta\| \le \rho`, so
    :math:`|\Delta_i| \le \rho \min(w_i^{1/2}, w_i \|D^{-1/2} M e_i\|)`.
    """
    (k, m), sizes = M.shape, abs(M)
    how = M @ sp.diags_array(weight) @ M.T if _thin(M) else _square(M, weight, SQUARED)
    if how is None:
        return None
    error = float(gamma(2.0 * m + 24.0)) * (sizes @ (weight * sizes.sum(axis=0)))  # of each row
    floor = floor_of(symmetric(how))
    if floor is None:
        return None
    least = floor - (error * (1.0 + 1e-9) + k * m * LOST)
    if not (least > 0.0).all():
        return None
    lost = k * LOST / float(least.min())  # what squares that underflow were
    within = np.sqrt(sizes.power(2).T @ (1.0 / least) + lost)
    length = sqrt(float((np.square(residual) / least).sum()) + lost)
    most = np.minimum(np.sqrt(weight), weight * within) * length
    return np.asarray(most * (1.0 + float(gamma(4.0 * k + 64.0))) + LOST)


def _forced(
    M: Any, residual: Floats, room: Floats
) -> tuple[Floats, Floats, NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Return the unknowns that equations of one unknown give, and what is left of the others.

    An equation without a second unknown leaves no choice, and what it gives is known in the others.

    Returns
    -------
    (moved, residual, equations, unknowns) or None
        Bounds on unknowns that are given and on the right-hand sides that are left, which equations
        and which unknowns these have. None where an equation has no unknown.
    """
    k, m = M.shape
    row, column, entry = coordinates(M)
    size, rest = np.abs(entry), residual.copy()
    equations, unknowns, moved = np.ones(k, dtype=bool), room > 0.0, np.zeros(m)
    here = unknowns[column] & (size > 0.0)
    row, column, size = row[here], column[here], size[here]
    for _ in range(FORCED):
        count = np.bincount(row, minlength=k)
        if (equations & (count == 0) & (rest > 0.0)).any():
            return None
        equations &= count > 0
        single = np.flatnonzero(count[row] == 1)
        _, first = np.unique(column[single], return_index=True)
        at = single[first]  # of equations of the same unknown one; the other has none then
        if not at.size:
            break
        with np.errstate(over="ignore"):
            moved[column[at]] = rest[row[at]] / size[at] * ROUNDED + np.where(
                rest[row[at]] > 0.0, LOST, 0.0
            )
            equations[row[at]] = unknowns[column[at]] = False
            known = ~unknowns[column] & equations[row]
            step = moved[column[known]]
            more = np.bincount(row[known], size[known] * step, k)
            met = np.bincount(row[known], step > 0.0, k) > 0.0  # also where a product underflows
            rest = np.where(met, (rest + more) * (1.0 + float(gamma(m + 8.0))) + m * LOST, rest)
        left = unknowns[column] & equations[row]
        row, column, size = row[left], column[left], size[left]
    used = unknowns & (np.bincount(column, minlength=m) > 0)
    return moved, rest, equations, used


Inverses = dict[bytes, tuple[Floats, Floats] | None]  # what is known of those of equations


def _inverse(M: Any, weight: Floats, known: Inverses) -> tuple[Floats, Floats] | None:
    """Return what `_by_right_inverse` does, of more equations `_by_squares`; each once."""
    parts = np.array([*M.shape, M.nnz]), M.indptr, M.indices, M.data, weight
    own = blake2b(b"".join(part.tobytes() for part in parts)).digest()
    if own not in known:
        made = _by_squares if _too_large(*M.shape) else _by_right_inverse
        with contextlib.suppress(np.linalg.LinAlgError, ValueError):
            known[own] = made(M, weight)
    return known.setdefault(own, None)


def correction(
    M: Any,
    residual: Floats,
    room: Floats,
    *,
    quick: bool = False,
    known: Inverses | None = None,
) -> Floats | None:
    r"""Return how large a vector must be that solves :math:`M \Delta = -r` exactly.

    With an approximate right inverse R and :math:`\|I - M R\|_\infty \le e < 1` the matrix
    :math:`M R` is invertible, so :math:`\Delta = -R (M R)^{-1} r` is an exact solution, and

    .. math:: |\Delta_i| \le \frac{\|r\|_\infty}{1 - e} \sum_j |R_{ij}| .

    Nothing is solved exactly; that a solution of this size exists is all a proof needs.

    Parameters
    ----------
    M : sparse (k, m)
        Exact floats.
    residual : array (k,)
        Bound on each entry of r in size.
    room : array (m,)
        Entries with more room are moved more; those with none are left.
    quick : bool
        By one factorisation, which bounds the length of a solution and says less of its entries.
    known : dict, optional
        Where what is found out about equations is kept, for other residuals.

    Returns
    -------
    array (m,) or None
        Bound on each entry of the solution; None when no solution is proved to exist, and in haste
        where there are more equations than that allows for.

    Examples
    --------
    >>> correction(sp.csr_array([[2.0, 0.0]]), np.array([1e-9]), np.ones(2)) <= [5.1e-10, 0.0]
    array([ True,  True])
    >>> correction(sp.csr_array([[0.0, 0.0]]), np.array([1e-9]), np.ones(2)) is None
    True
    """
    k, m = M.shape
    moved = np.zeros(m)
    if k == 0:
        return moved
    rows = sp.csr_array(M)
    if not rows.has_canonical_format:
        single = rows.copy()
        single.sum_duplicates()
        if single.nnz != rows.nnz:
            return None  # entries that stand twice are added up with a rounding
    given = _forced(rows, residual, room)
    if given is None:
        return None
    moved, residual, left, some = given
    used, rows, residual = np.flatnonzero(some), rows[left], residual[left]
    if not (k := rows.shape[0]):
        return moved if np.isfinite(moved).all() else None
    if used.size < k:
        return None
    own: Any = rows[:, used]
    size = abs(own).max(axis=1).toarray().ravel()
    if not (size > 0.0).all() or not np.isfinite(size).all() or not np.isfinite(residual).all():
        return None
    # rows in units of their own size, so that one large row does not spoil the others
    size = np.exp2(np.ceil(np.log2(size)))  # a power of two: dividing by it is exact
    before, each = own.data, size[coordinates(own)[0]]
    own.data = before / each
    if not (own.data * each == before).all():
        return None  # beside a large entry a small one underflows
    weight = np.minimum(room[used], 1.0)
    if quick:
        step = _by_lengths(own, weight, residual / size * (1.0 + 2.0 * UNIT) + LOST)
        if step is not None:
            moved[used] = step
        return moved if step is not None and np.isfinite(moved).all() else None
    if left_out(k):
        return None
    inverse = _inverse(own, weight, {} if known is None else known)
    if inverse is None:
        return None
    off, width = inverse
    e = float(off.max()) * (1.0 + gamma(2.0 * k + 8.0))
    if not e < 0.5:
        return None
    most = float((residual / size).max()) * (1.0 + 8.0 * UNIT) / (1.0 - e)
    if residual.any():
        most += 1e-300
    moved[used] = width * most
    moved[used] += 1e-300 if residual.any() else 0.0
    return moved if np.isfinite(moved).all() else None


def implying(
    form: ConicForm,
    q: Floats,
    x: Floats | None,
    z: Floats,
    at: Any,
    M: Any,
    used: Any,
) -> list[int] | None:
    r"""Return equations that make the residuals of some columns 0 and imply the others, exactly.

    Rows beside a diagonal count in the entries that were declared: what is left over of a column is
    :math:`a + \sqrt2 b` for rational numbers, of which both must follow.

    Parameters
    ----------
    form : ConicForm
        The program.
    q, x, z
        The residual is that of :math:`Px + q + A^T z`, without x of :math:`q + A^T z`.
    at : array of int
        The columns.
    M : sparse csr (k, p)
        What moves them.
    used : array (p,) of int
        By which rows, or, behind these, columns of P.

    Returns
    -------
    list of int or None
        None where they contradict each other, are too many, or an entry is not known for sure, and
        where each has an unknown of its own.
    """
    M = sp.csr_array(M)
    row, column, data = coordinates(M)
    free = with_own_unknowns(row[data != 0.0], column[data != 0.0], M.shape[0])
    own, core = np.flatnonzero(free), np.flatnonzero(~free)
    if not core.size or own.size > EQUATIONS:
        return None
    at, M = at[core], M[core]
    entry, row, column = entries_of(form.columns_of_rows, at)
    if entry.size > ELIMINATED:
        return None
    beside = beside_diagonals(form.cones, z.size)
    scaled = beside[row]
    entry = entry.copy()
    entry[scaled], sure = unscaled(entry[scaled])
    if not sure.all() or beside_diagonals(form.cones, z.size, mixed=True)[row].any():
        return None
    moves = np.append(beside, np.zeros(q.size, dtype=bool))[used][M.indices]
    M.data[moves], _ = unscaled(M.data[moves])
    terms = [(entry, z[row], column + at.size * scaled)]
    parts = [(sp.csc_array(q[None, :]), np.ones(1))]
    if x is not None and form.P.nnz:
        parts.append((sp.csc_array(form.P), x))
    for matrix, v in parts:
        entry, row, column = entries_of(matrix, at)
        terms.append((entry, v[row], column))
    left, right, group = (np.concatenate(part) for part in zip(*terms, strict=True))
    exact = exact_sums(left, right, group, 2 * at.size)
    kept = independent(M, exact[: at.size], exact[at.size :])
    if kept is None or len(kept) > EQUATIONS:
        return None
    return sorted([*own.tolist(), *core[kept].tolist()])
