"""Cones of a cone program: membership, distance, and points exactly inside."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from optfair.proofs.definiteness import definiteness, dense_shift
from optfair.proofs.rounding import ROOT, UNIT, Floats, enclosed_sums, length, lengths_of
from optfair.proofs.triples import (
    FLOOR,
    exp_above,
    exp_dual_points,
    exp_moves,
    exp_rows,
    power_depth,
    power_dual_point,
    power_moves,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

ConeKind = Literal["zero", "nonneg", "soc", "psd", "exp", "pow"]

# Largest orders of matrices whose eigenvalues are found, and of those whose roots are squared exactly.
LONG, DIGITS = 250, 1_200
# Steps of inverse iteration, which find the least eigenvalue to a few percent; entries for each that is
# not 0 from which on a matrix is multiplied as a sparse one.
INVERSE, SPARSE = 12, 20
# Lines of a triangle that are copied to the other one together.
BY_LINES = 256
# Order from which on the least eigenvalue is that of a Krylov space; its vectors, their restarts
# (of dense and sparse matrices), and how much more than it a factorisation must confirm.
KRYLOV, VECTORS, RESTARTS, MORE = 1_000, 60, (5, 200), 1.01


@dataclass(frozen=True)
class Cone:
    """A block of rows of ``s = b - A x`` and the cone it lies in.

    Parameters
    ----------
    kind : str
        zero, nonneg, soc (rows ``t, x``), psd (scaled triangle), exp, pow.
    start, stop : int
        Rows of the block.
    order : int
        Matrix order of a psd block.
    upper : bool
        Whether a psd block lists the upper triangle column by column (else the lower one).
    power : float
        Exponent of a three-dimensional power cone.
    root : float
        What multipliers of a psd block are multiplied by off the diagonal, beside those that they
        are the entries of: 1 in the relaxations of `on_face`, whose rows bear a factor 2 there, and 2
        where rows are the entries of the matrix.
    mixed : bool
        Whether entries of a psd block off the diagonal may be rounded means of two that differ.
    """

    kind: ConeKind
    start: int
    stop: int
    order: int = 0
    upper: bool = True
    power: float = 0.5
    root: float = ROOT
    mixed: bool = False

    def matrix(self, entries: Floats) -> Floats:
        """Return the symmetric matrix of a psd block from its scaled triangle."""
        full = np.zeros((self.order, self.order))
        scaled, n, at = np.where(self.diagonal, entries, entries / self.root), self.order, 0
        for i in range(n):  # the places of all are more numbers than these
            line = full[i, : i + 1] if self.upper else full[i, i:]
            line[:] = scaled[at : at + line.size]
            at += line.size
        half = full if self.upper else full.T
        for i in range(0, n, BY_LINES):
            k = slice(i, i + BY_LINES)
            half[:i, k] = half[k, :i].T
            half[k, k] += np.tril(half[k, k], -1).T
        return full

    def distance(self, entries: Floats, *, dual: bool = False) -> float:
        """Return how far a block is outside the cone (or its dual), in the largest entry."""
        return largest_entry(self.lacking(entries, dual=dual))

    def lacking(self, entries: Floats, *, dual: bool = False) -> Floats:
        """Return moves of the entries that together bring a block into the cone (or its dual)."""
        if not np.isfinite(entries).all():
            return np.full(entries.size, np.inf)
        if self.kind == "zero" or not entries.size:
            return np.asarray(0.0 * entries if dual else np.abs(entries))
        if self.kind == "nonneg":
            return np.maximum(-entries, 0.0)
        if self.kind == "exp":
            return exp_moves(entries, dual=dual)
        if self.kind == "pow":
            return power_moves(entries, self.power, dual=dual)
        moves = np.zeros(entries.size)
        if self.kind == "psd":
            moves[self.diagonal] = below_semidefinite(self.matrix(entries))
        else:
            moves[0] = max(0.0, np.linalg.norm(entries[1:]) - entries[0])
        return moves

    def penalty(self, s: Floats, moves: Floats, z: Floats, least: float = 0.0) -> float:
        r"""Return what a violation is worth at multipliers, :math:`\langle m, z \rangle` for moves m into the cone.

        A violated equation is worth what others lose by it, of either sign. What a block lacks is
        also measured with a diagonal of 1, in which it is the same in any units; amounts below
        the least are not.
        """
        if self.kind == "zero":
            return float(-s @ z)
        worth = float(moves @ np.abs(z))
        if self.kind != "psd" or not (least < worth < np.inf and s[self.diagonal].min() > 0.0):
            return worth
        own, price = s[self.diagonal], np.abs(z[self.diagonal])
        roots = np.sqrt(own)
        more = below_semidefinite(self.matrix(s) / roots / roots[:, None])
        return min(worth, more * float(own @ price))

    @property
    def places(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Row and column of the matrix for each row of a psd block."""
        return _triangle(self.order, self.upper)

    def reading(self, *, scaled: bool = True) -> Any:
        """Return the matrix that makes the rows of a psd block of all entries, column by column.

        Off the diagonal it takes the mean of two, times the root of 2 where these are scaled.
        """
        n, (i, j) = self.order, self.places
        row = np.empty((n, n), dtype=np.intp)
        each = np.full((n, n), 0.5 * (self.root if scaled else 1.0))
        row[i, j] = row[j, i] = np.arange(i.size)
        np.fill_diagonal(each, 1.0)
        columns = (each.ravel(), row.ravel(), np.arange(n * n + 1))
        return sp.csc_array(columns, shape=(i.size, n * n))

    @property
    def diagonal(self) -> NDArray[np.bool_]:
        """Which rows of a psd block are its diagonal."""
        on, k = np.zeros(self.order * (self.order + 1) // 2, dtype=bool), np.arange(self.order)
        on[k * (k + 3) // 2 if self.upper else k * (2 * self.order + 1 - k) // 2] = True
        return on

    @property
    def stretch(self) -> float:
        """How much longer a move of the matrix may be than that of the multipliers it consists of."""
        return 1.4143 if self.root == 1.0 else 1.0

    def dual_point(self, z: Floats) -> Floats:
        """Return a vector near z that is exactly in the dual cone."""
        z = np.array(z, dtype=float)
        if self.kind == "nonneg":
            return np.maximum(z, 0.0)
        if self.kind == "soc":
            own = length(z[1:])
            z[0] = max(z[0], own, 0.0)
        elif self.kind == "psd":
            z[self.diagonal] += _lift(self.matrix(z))
        elif self.kind == "exp":
            z = exp_dual_points(z.reshape(-1, 3)).ravel()
        elif self.kind == "pow":
            z = power_dual_point(z, self.power)
        return z

    def depth(self, z: Floats) -> float:
        """Return a proved distance of a psd or pow block from the boundary of the dual, 0 without proof.

        What moves the scaled entries by no more, in length, stays in the cone.
        """
        if self.kind == "pow":
            return power_depth(z, self.power)
        Z = self.matrix(z)
        own = np.diag(Z).copy()
        least = 0.5 * _least_eigenvalue(Z) if np.isfinite(Z).all() else 0.0
        np.fill_diagonal(Z, own - least)
        if not (least > FLOOR and _semidefinite(Z)):
            return 0.0
        np.fill_diagonal(Z, own)
        # entries off the diagonal were divided by the root of 2, those on it rounded once
        size = float(np.abs(Z).sum(axis=1).max()) + least
        return max(0.0, least * (1.0 - 1e-12) - 8.0 * UNIT * size) / self.stretch

    def outside(self, s: Floats, error: Floats) -> float:
        """Return 0 when a block is in the cone wherever it is within the error, else how far off."""
        if not s.any() and not error.any():
            return 0.0
        if not (np.isfinite(s).all() and np.isfinite(error).all()):
            return np.inf
        if self.kind == "soc":
            if not error.any():
                own = SecondOrder.of([replace(self, start=0, stop=s.size)])
                return float(own.raised(s)[0] - s[0])
            tail = length(np.abs(s[1:]) + error[1:])
            return float(max(0.0, tail - (s[0] - error[0])))
        if self.kind == "psd":
            return self._psd_outside(s, error)
        x, y, z = s.reshape(-1, 3).T
        ex, ey, ez = error.reshape(-1, 3).T
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self.kind == "exp":  # y exp(x/y) is convex in y: its largest is at an end
                ends = [h * exp_above((x + ex) / h) for h in (y - ey, y + ey)]
                most = np.maximum(np.maximum(*ends), FLOOR) * (1.0 + 1e-12)
                inner = (y - ey > 0.0) & (z - ez >= most)
                edge = (y == 0.0) & (ey == 0.0) & (x + ex <= 0.0) & (z - ez >= 0.0)
            else:
                u, v = np.maximum(x - ex, 0.0), np.maximum(y - ey, 0.0)
                most = u**self.power * v ** (1.0 - self.power) * (1.0 - 1e-12)
                most = np.where((np.minimum(u, v) > FLOOR) & (most > FLOOR), most, -1.0)
                inner = (x - ex >= 0.0) & (y - ey >= 0.0) & (np.abs(z) + ez <= most)
                edge = (x - ex >= 0.0) & (y - ey >= 0.0) & (z == 0.0) & (ez == 0.0)
        if bool((inner | edge).all()):
            return 0.0
        return max(self.distance(s), largest_entry(error), float(np.finfo(float).tiny))

    def _psd_outside(self, s: Floats, error: Floats) -> float:
        """Return 0 for a block that is positive semidefinite wherever it is within the error."""
        M, E = self.matrix(s), self.matrix(error)
        used = M.any(axis=1) | E.any(axis=1)
        M, E = M[np.ix_(used, used)], E[np.ix_(used, used)]
        own = np.diag(M).copy()
        if np.count_nonzero(M) == np.count_nonzero(own) and not E.any():
            return float(max(0.0, -own.min()))
        # an entry off the diagonal is the scaled one over the root of 2, one on it is lowered
        loose = float((E + 4.0 * UNIT * np.abs(M)).sum(axis=1).max())
        most = float(np.abs(M).max())
        np.fill_diagonal(M, own - loose * (1.0 + 1e-6))
        shift = definiteness(M).shift
        return 0.0 if shift == 0.0 else max(loose, min(shift, most))

    def products(self, s: Floats, z: Floats, unit: float = 1.0) -> tuple[float, float]:
        r"""Return the size of the Jordan product of slack and multiplier (0 at an optimum), and what it says.

        In a symmetric cone that is curved the product is at most :math:`\sqrt{s^T z\, |s| |z|}`,
        where half-lines have :math:`s^T z`. The second number is divided by
        :math:`\sqrt{|s| |z| / unit}` where that is above 1, as it is where an optimum is not
        attained and slacks are far out.
        """
        if self.kind == "zero" or s.size == 0:
            return 0.0, 0.0
        if self.kind == "soc":
            return SecondOrder.of([replace(self, start=0, stop=s.size)]).products(s, z, unit)
        if self.kind == "psd":
            slack: Any = self.matrix(s)
            if SPARSE * np.count_nonzero(slack) < slack.size:
                slack = sp.csr_array(slack)
            product = np.asarray(slack @ self.matrix(z))
            size = float(np.abs(product + product.T).max() / 2)
            far = float(np.linalg.norm(s) * np.linalg.norm(z)) / unit
            return size, size / max(1.0, far) ** 0.5
        size = float(np.abs(s * z).max()) if self.kind == "nonneg" else float(abs(s @ z))
        return size, size


@lru_cache(maxsize=16)
def _triangle(order: int, upper: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the places of a psd block, read-only: they are asked for many times."""
    # column by column over the upper triangle = row by row over the lower
    places = np.tril_indices(order) if upper else np.triu_indices(order)
    for part in places:
        part.flags.writeable = False
    return places


def beside_diagonals(cones: Iterable[Cone], m: int, *, mixed: bool = False) -> NDArray[np.bool_]:
    """Return which of the rows stand times a rounded root of 2, or which of them are mixed."""
    beside = np.zeros(m, dtype=bool)
    for c in cones:
        if c.kind == "psd" and c.root == ROOT and c.mixed >= mixed:
            beside[c.start : c.stop] = ~c.diagonal
    return beside


def below_semidefinite(M: Floats) -> float:
    """Return how far the least eigenvalue of a symmetric matrix is below 0, as floats show it.

    Examples
    --------
    >>> below_semidefinite(np.eye(2)), round(below_semidefinite(np.diag([1.0, -0.5])), 9)
    (0.0, 0.5)
    """
    if _factors(M):  # a tenth of the time that eigenvalues take
        return 0.0
    if len(M) >= KRYLOV and (below := -MORE * least_of_krylov(M)) > 0.0:
        own = np.diag(M).copy()
        np.fill_diagonal(M, own + below)
        confirmed = _factors(M)
        np.fill_diagonal(M, own)
        if confirmed:
            return below
    return float(max(0.0, -np.linalg.eigvalsh(M)[0]))


def _factors(M: Floats) -> bool:
    """Whether a matrix has a Cholesky factor, as floats show it."""
    with contextlib.suppress(np.linalg.LinAlgError):
        return bool(np.linalg.cholesky(M).size >= 0)
    return False


def least_of_krylov(M: Any) -> float:
    """Return what the least eigenvalue of a large symmetric matrix seems to be, 0 where nothing."""
    if isinstance(M, np.ndarray) and SPARSE * np.count_nonzero(M) < M.size:
        M = sp.csr_array(M)
    size = float(abs(M).sum(axis=0).max())  # what is near 0 is not known to as many digits
    far = LinearOperator(M.shape, matvec=lambda v: size * v - M @ v, dtype=float)
    start, often = np.random.default_rng(0).standard_normal(M.shape[0]), RESTARTS[sp.issparse(M)]
    how = {"which": "LA", "v0": start, "ncv": VECTORS, "maxiter": often, "tol": 1e-8}
    try:
        return size - float(eigsh(far, 1, return_eigenvectors=False, **how)[0])
    except ArpackError:
        return 0.0


@dataclass(frozen=True, eq=False)
class SecondOrder:
    """The second-order cones of a program, all at once.

    Parameters
    ----------
    heads : array (k,)
        First row of each.
    rows : array
        The rows of all, one cone after the other.
    starts : array (k,)
        Where each begins in these.
    """

    heads: NDArray[np.intp]
    rows: NDArray[np.intp]
    starts: NDArray[np.intp]

    @classmethod
    def of(cls, cones: Iterable[Cone]) -> SecondOrder:
        """Return those among some cones."""
        ends = [(c.start, c.stop) for c in cones if c.kind == "soc" and c.stop > c.start]
        heads, stops = np.array(ends, dtype=np.intp).reshape(-1, 2).T
        starts = np.cumsum(stops - heads) - (stops - heads)
        rows = np.repeat(heads - starts, stops - heads) + np.arange((stops - heads).sum())
        return cls(heads, rows, starts)

    def lengths(self, v: Floats) -> Floats:
        """Return floats above the length of each block."""
        return lengths_of(v[self.rows], self.starts)

    def __len__(self) -> int:
        return self.heads.size

    @property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """For each row behind a head that head, and the row."""
        behind = self.rows != self.spread(self.heads)
        return self.spread(self.heads)[behind], self.rows[behind]

    def spread(self, each: NDArray[Any]) -> NDArray[Any]:
        """Return for each of the rows what its cone has."""
        return np.repeat(each, self.sizes)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Number of rows of each."""
        return np.diff(self.starts, append=self.rows.size)

    def depths(self, z: Floats) -> Floats:
        """Return floats below the distances of blocks inside their cones from the boundary."""
        tails = z.copy()
        tails[self.heads] = 0.0
        room = (z[self.heads] - self.lengths(tails)) * 0.7071 - FLOOR
        return np.maximum(room, 0.0)

    def raised(self, z: Floats) -> Floats:
        """Return heads such that each block is exactly in its cone; those that are so, stay."""
        tails = z.copy()
        tails[self.heads] = 0.0
        heads, least = z[self.heads], self.lengths(tails)
        near = (heads < least) & (heads >= least * (1.0 - 1e-12))
        if near.any():  # on the boundary as far as floats show
            own = self.spread(near)
            signs = np.where(np.isin(self.rows[own], self.heads), 1.0, -1.0)
            v, group = z[self.rows[own]], np.repeat(np.arange(near.sum()), self.sizes[near])
            center, radius, known = enclosed_sums(signs * v, v, group, int(near.sum()))
            least[near] = np.where(known & (center - radius >= 0.0), heads[near], least[near])
        return np.maximum(heads, least)

    def sums(self, v: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over the rows of each."""
        return np.asarray(np.add.reduceat(v[self.rows], self.starts))

    def distances(self, v: Floats) -> Floats:
        """Return how far each block is outside its cone, which is its own dual."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.square(v)
            squares[self.heads] = 0.0
            excess = np.maximum(np.sqrt(self.sums(squares)) - v[self.heads], 0.0)
            return np.where(np.isfinite(self.sums(v)), excess, np.inf)

    def products(self, s: Floats, z: Floats, unit: float = 1.0) -> tuple[float, float]:
        """Return the largest of what `Cone.products` says of each."""
        at, head = self.rows, self.spread(self.heads)
        cross = s[head] * z[at] + z[head] * s[at]
        cross[self.starts] = self.sums(s * z)
        far = np.sqrt(self.sums(s * s) * self.sums(z * z)) / unit
        near = cross / self.spread(np.sqrt(np.maximum(far, 1.0)))
        return largest_entry(cross), largest_entry(near)


def cone_figures(
    cones: tuple[Cone, ...],
    s: Floats,
    z: Floats,
    unit: float,
    least: float,
    beyond: Floats | None = None,
) -> tuple[float, ...]:
    """Return how far slacks and multipliers are outside the cones, and their products in them.

    The last are what multipliers outside are worth at the slacks, and slacks at the multipliers.
    What is given last gets how far each entry of the slacks is outside.
    """
    out = np.zeros(s.size) if beyond is None else beyond
    exp, figures = exp_rows(cones), list[tuple[float, ...]]([(0.0,) * 6])
    if exp.size:
        own, out[exp] = _exp_figures(s[exp], z[exp])
        figures.append(own)
    if curved := SecondOrder.of(cones):
        off, outside = curved.distances(s), curved.distances(z)
        out[curved.heads] = off
        sums = float(outside @ curved.sums(np.abs(s))), float(off @ np.abs(z[curved.heads]))
        products = curved.products(s, z, unit)
        figures.append((largest_entry(off), largest_entry(outside), *products, *sums))
    for c in cones:
        if c.kind not in ("soc", "exp"):
            si, zi = s[c.start : c.stop], z[c.start : c.stop]
            off, o = c.lacking(si), c.distance(zi, dual=True)
            out[c.start : c.stop] = off
            sums = o * float(np.abs(si).sum()), c.penalty(si, off, zi, least * unit)
            figures.append((largest_entry(off), o, *c.products(si, zi, unit), *sums))
    table = np.array(figures).T
    return *table[:4].max(axis=1).tolist(), *table[4:].sum(axis=1).tolist()


def _semidefinite(Z: Floats) -> bool:
    """Whether a symmetric matrix is proved semidefinite: as it stands, without empty rows, with digits."""
    if dense_shift(Z, 0.0) == 0.0 or definiteness(Z).shift == 0.0:
        return True
    own = Z.diagonal()
    if not (own.min() > 1e-140 and np.abs(Z).max() < 1e140 and len(Z) <= DIGITS):
        return False
    units = np.exp2(-np.round(0.5 * np.log2(own)))
    near, spare = Z * units[:, None] * units, 4.0 * (len(Z) + 4.0) * UNIT
    np.fill_diagonal(near, near.diagonal() - spare)
    with contextlib.suppress(np.linalg.LinAlgError):
        return _beyond(near, scipy.linalg.cholesky(near, lower=True)) + 4.0 * UNIT <= spare
    return False


def _least_eigenvalue(Z: Floats) -> float:
    """Return about the least eigenvalue; of large matrices by inverse iteration, 0 if not positive."""
    if len(Z) <= LONG:
        return float(np.linalg.eigvalsh(Z)[0])
    try:
        root = scipy.linalg.cho_factor(Z, check_finite=False)
    except np.linalg.LinAlgError:
        return 0.0
    v, size = np.random.default_rng(0).standard_normal(len(Z)), 1.0
    for _ in range(INVERSE):
        v = scipy.linalg.cho_solve(root, v / np.linalg.norm(v), check_finite=False)
        size = float(np.linalg.norm(v))
    return 1.0 / size


def _lift(Z: Floats) -> float:
    """Return what to add to the diagonal so that the matrix is proved positive semidefinite."""
    own = np.diag(Z).copy()
    if np.count_nonzero(Z) == np.count_nonzero(own):
        return max(0.0, -float(own.min(initial=0.0)))
    size = float(np.abs(Z).sum(axis=1).max(initial=0.0))
    slack = 8.0 * UNIT * size  # entries off the diagonal were divided by the root of 2
    lowered = Z.copy()
    np.fill_diagonal(lowered, own - slack)
    if _semidefinite(lowered):
        return 0.0  # there is room for that
    lift = min(definiteness(Z).shift, _beyond(Z))
    if not np.isfinite(lift):
        least = float(np.linalg.eigvalsh(Z)[0])
        for more in (1e-12, 1e-9, 1e-6, 1e-3, 1.0):
            lift = max(0.0, -least) + more * size
            if np.isfinite(shift := definiteness(Z + lift * np.eye(len(Z))).shift):
                lift += shift
                break
    return float(lift + slack)


def _beyond(Z: Floats, F: Floats | None = None) -> float:
    r"""Return a bound on how far a matrix is from :math:`F F^T`, which is positive semidefinite.

    Of :math:`\|Z - F F^T\|_2 \le \|Z - F F^T\|_F` the products are exact: F is taken as a sum of
    parts with so few digits. A factorisation is charged for much more than what is left.

    References
    ----------
    K. Ozaki et al., Error-free transformations of matrix multiplication, Numer. Algorithms 59 (2012).
    """
    if len(Z) > (LONG if F is None else DIGITS) or not (1e-140 < float(np.abs(Z).max()) < 1e140):
        return np.inf  # parts may underflow; or entries are not known
    if F is None:
        sizes, vectors = np.linalg.eigh(Z)
        F = vectors * np.sqrt(np.maximum(sizes, 0.0))
    digits = (52 - len(Z).bit_length()) // 2
    largest = np.exp2(np.ceil(np.log2(np.maximum(np.abs(F).max(axis=1), 1e-100))))[:, None]
    parts = []
    for k in (1, 2, 3):
        grid = 1.5 * 2.0 ** (52 - k * digits) * largest  # a sum with it has no digits below
        parts.append((F + grid) - grid)
        F = F - parts[-1]
    left, error = Z, np.zeros_like(Z)
    for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)):
        T = parts[i] @ parts[j].T
        if i != j:
            T = T + T.T
            error += 2.0 * UNIT * np.abs(T)
        left = left - T
        error += 2.0 * UNIT * np.abs(left)
    # squares below the floats are less than what is added
    return float(np.sqrt(np.square(np.abs(left) + error).sum())) * (1.0 + 1e-9) + 1e-150


def _exp_figures(S: Floats, Z: Floats) -> tuple[tuple[float, ...], Floats]:
    """Return the figures of exponential cones, as `cone_figures` has them of all, and of each entry."""
    known_s, known_z = (np.isfinite(V).all(axis=1) for V in (S, Z))
    off, outside = np.full(S.shape, np.inf), np.full(len(Z), np.inf)
    off[known_s] = exp_moves(S[known_s], dual=False).reshape(-1, 3)
    outside[known_z] = exp_moves(Z[known_z], dual=True).reshape(-1, 3).max(axis=1)
    product = largest_entry((S * Z).sum(axis=1))
    sums = outside @ np.abs(S).sum(axis=1), (off * np.abs(Z)).sum()
    worst = largest_entry(off), largest_entry(outside)
    return (*worst, product, product, *map(float, sums)), off


def largest_entry(vector: Any) -> float:
    """Return the largest size of an entry, 0 of none."""
    return float(np.abs(vector).max(initial=0.0))
