"""Positive semidefinite blocks: the products, factors and directions that an interior-point method needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.backends.blocks_backend import Method

Indices = NDArray[np.int64]

# Entries of a stack of matrices that are held at a time.
HELD = 8_000_000
# Entries that stay in the cache of a processor.
NEAR = 200_000
# Seconds that a factor of the system takes at least, by the cube of its order.
FACTOR = 8e-12
# Residual of a certificate that no point, or no bound, exists; the rest is for its proof.
EVIDENT = 1e-8
# Lines of a matrix up to which products are summed without BLAS.
FEW = 8
# Order of matrices from which on eigenvalues are those of Krylov spaces, how many steps they have at
# most, and how near they are.
LARGE, KRYLOV, CLOSE = 300, 60, 0.02
# Entries for each that is not 0 from which on matrices of that order are multiplied as sparse ones.
SPARSE = 20
# Seconds for one product of entries, of a sparse line with a matrix, and of matrices (measured).
GATHERED, SPREAD, MULTIPLIED = 6e-9, 6e-10, 3e-11


@dataclass(eq=False)
class Block:
    """A positive semidefinite block: matrices of the columns that occur in it.

    Parameters
    ----------
    n : int
        Order.
    rows : array (t,)
        Rows of the program that hold its lower triangle.
    i, j : array (t,)
        Row and column of each.
    """

    n: int
    rows: Indices
    i: Indices
    j: Indices
    columns: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    full: Any = None  # (k, n n): the matrices, row by row
    weight: Floats = field(default_factory=lambda: np.zeros(0))

    def prepare(self, A: Any) -> None:
        """Read the matrices of the columns."""
        every = sp.csc_array(A[self.rows])
        self.columns = np.flatnonzero(np.diff(every.indptr))
        own = sp.coo_array(every[:, self.columns])
        k, n = self.columns.size, self.n
        self.weight = np.where(self.i == self.j, 1.0, np.sqrt(2.0))
        i, j, v = self.i[own.row], self.j[own.row], own.data / self.weight[own.row]
        off = i != j
        place = np.concatenate([i * n + j, (j * n + i)[off]])
        column = np.concatenate([own.col, own.col[off]])
        self.full = sp.csr_array((np.r_[v, v[off]], (column, place)), shape=(k, n * n))
        self.full.sum_duplicates()
        self._choose()

    def _choose(self) -> None:
        """Decide which columns meet each other entry by entry, and which by dense products."""
        n, k = self.n, self.columns.size
        entry = sp.coo_array(self.full)
        line = np.unique(entry.row.astype(np.int64) * n + entry.col // n)
        count = np.bincount(line // n, minlength=k)
        order = np.argsort(count, kind="stable")
        some = np.concatenate([[0.0], np.cumsum(count[order], dtype=float)])
        read = np.concatenate([[0.0], np.cumsum(np.diff(self.full.indptr)[order], dtype=float)])
        dense = (k - np.arange(k + 1)) * (4.0 * n**3 * MULTIPLIED + 2e-9 * k * n)
        best = int(np.argmin(GATHERED * some**2 + 2.0 * n * SPREAD * read + dense))
        sparse = np.zeros(k, dtype=bool)
        sparse[order[:best]] = True
        self.few, self.many = np.flatnonzero(sparse), np.flatnonzero(~sparse)
        lines = line[sparse[line // n]]
        self.line_row = lines % n
        owner = np.searchsorted(self.few, lines // n)
        self.starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if owner.size else owner
        wide = sp.csr_array(self.full.reshape((k * n, n)))
        self.stack = sp.csr_array(wide[lines]) if lines.size else None
        self.wide = wide

    def matrix(self, entries: Floats) -> Floats:
        """Return the symmetric matrix of scaled entries."""
        full = np.zeros((self.n, self.n))
        full[self.i, self.j] = entries / self.weight
        full[self.j, self.i] = full[self.i, self.j]
        return full

    def entries(self, matrix: Floats) -> Floats:
        """Return scaled entries of the symmetric part of a matrix."""
        return np.asarray(0.5 * (matrix[self.i, self.j] + matrix[self.j, self.i]) * self.weight)

    def scaled(self, to: Floats) -> Floats:
        """Return the scaled entries of T A_j Tᵀ, a column for each.

        Of A_j only the lines that are not 0 are multiplied.
        """
        k, n = self.columns.size, self.n
        entry = sp.coo_array(self.full)
        line, place = np.unique(
            entry.row.astype(np.int64) * n + entry.col // n, return_inverse=True
        )
        owner, width = line // n, np.bincount(line // n, minlength=k)
        first = np.cumsum(width) - width
        of_line = np.arange(line.size) - first[owner]
        across = np.searchsorted(line, entry.row.astype(np.int64) * n + entry.col % n)
        columns = np.empty((k, self.rows.size))
        order, at, flat = np.argsort(width, kind="stable"), 0, self.i * n + self.j
        while at < k:
            wide = width[order[at:]]
            fits = (np.arange(wide.size) + 1) * n * (n + 2 * wide) <= HELD
            fits &= wide <= 2 * wide[0] + 4  # the others are filled up with zeros
            some = order[at : at + max(1, int(fits.sum()))]
            most = int(width[some].max(initial=0))
            if 2 * most > n:
                full = to @ self.full[some].toarray().reshape(-1, n, n) @ to.T
            else:
                rank = np.full(k, -1)
                rank[some] = np.arange(some.size)
                own, mine = rank[owner] >= 0, rank[entry.row] >= 0
                lines = np.zeros((some.size, most), dtype=np.int64)
                lines[rank[owner[own]], of_line[own]] = line[own] % n
                inner = np.zeros((some.size, most, most))
                sides = of_line[place[mine]], of_line[across[mine]]
                inner[(rank[entry.row[mine]], *sides)] = entry.data[mine]
                half = to.T[lines]  # (j, l, n)
                inside = np.matmul(inner, half)
                if most <= FEW:
                    full = np.einsum("jla,jlb->jab", half, inside)
                else:
                    full = np.matmul(half.transpose(0, 2, 1), inside)
            columns[some] = np.take(full.reshape(some.size, n * n), flat, axis=1) * self.weight
            at += some.size
        return columns.T

    def add_to(
        self,
        M: Floats,
        Z: Floats,
        inverse: Floats,
        in_time: Callable[[], None] = lambda: None,
    ) -> None:
        """Add tr(A_i Z A_j S⁻¹) to M, for all pairs of columns, while ``in_time`` does not raise."""
        n, few, many = self.n, self.few, self.many
        if few.size and self.stack is not None:
            left, right = self.stack @ Z, np.ascontiguousarray((self.stack @ inverse).T)
            at, count, starts = self.line_row, self.line_row.size, self.starts
            block = np.zeros((few.size, few.size))  # it is symmetric: the upper half is mirrored
            step, first = max(1, NEAR // max(count, 1)), 0
            while first < few.size:
                in_time()
                k = starts[first]
                last = max(first + 1, int(np.searchsorted(starts, k + step)))
                end = starts[last] if last < few.size else count
                part = np.take(left[k:end], at[k:], axis=1) * right[:, k:][at[k:end]]
                part = _sums(part, starts[first:] - k, axis=1)
                block[first:last, first:] = _sums(part, starts[first:last] - k, axis=0)
                block[last:, first:last] = block[first:last, last:].T
                first = last
            own = self.columns[few]
            M[np.ix_(own, own)] += block
        step = max(1, HELD // (n * n))
        for k in range(0, many.size, step):
            in_time()
            some = many[k : k + step]
            at = (some[:, None] * n + np.arange(n)).ravel()
            lines: Any = self.wide[at]
            lines = lines.toarray() if lines.nnz * SPARSE > at.size * n else lines
            U = (lines @ inverse).reshape(some.size, n, n)
            U = np.matmul(Z, U).reshape(some.size, n * n)
            block = np.asarray(self.full @ U.T)
            M[np.ix_(self.columns, self.columns[some])] += block
            M[np.ix_(self.columns[some], self.columns[few])] += block[few].T


def _sums(M: Floats, starts: Indices, axis: int) -> Floats:
    """Return the sums of neighbouring lines from each start to the next."""
    size = np.diff(np.append(starts, M.shape[axis]))
    if (size == 1).all():
        return M
    if (size == 2).all():
        return np.asarray(M[:, ::2] + M[:, 1::2] if axis else M[::2] + M[1::2])
    return np.asarray(np.add.reduceat(M, starts, axis=axis))


@dataclass(eq=False)
class Point:
    """Slack and multipliers: one matrix per block, and the half-lines."""

    blocks: list[Floats]
    line: Floats

    def plus(self, step: float, other: Point) -> Point:
        """Return the point so far in a direction."""
        pairs = zip(self.blocks, other.blocks, strict=True)
        return Point([a + step * b for a, b in pairs], self.line + step * other.line)

    def dot(self, other: Point) -> float:
        """Return the inner product."""
        pairs = zip(self.blocks, other.blocks, strict=True)
        return float(sum(np.vdot(a, b) for a, b in pairs) + self.line @ other.line)


@dataclass(frozen=True, eq=False)
class Iterate:
    """A pair with its error."""

    error: float
    x: Floats
    w: Floats
    S: Point
    Z: Point


class Normal:
    """Directions from normal equations: cheap, as accurate as M is well conditioned."""

    def __init__(self, method: Method, now: Iterate, rp: Floats, off: Floats) -> None:
        self.method, self.S, self.Z, self.rp, self.off = method, now.S, now.Z, rp, off
        self.roots = [inverse_root(s) for s in now.S.blocks]
        self.roots_z = [inverse_root(z) for z in now.Z.blocks]
        self.inverse = Point([r.T @ r for r in self.roots], 1.0 / now.S.line)
        self._factor()
        self.fixed = self._between(self.Z, method.point(off))

    def _between(self, left: Point, middle: Point) -> Point:
        """Return the symmetric part of left · middle · S⁻¹."""
        triples = zip(left.blocks, middle.blocks, self.inverse.blocks, strict=True)
        blocks = [symmetric(a @ (_thin(d) @ i)) for a, d, i in triples]
        return Point(blocks, left.line * middle.line * self.inverse.line)

    def direction(
        self, target: float, second: tuple[Point, Point] | None
    ) -> tuple[Floats, Floats, Point, Point]:
        """Return the moves of x, of prices of equations, of S and of Z."""
        method = self.method
        back = self.Z.plus(-target, self.inverse).plus(1.0, self.fixed)
        if second is not None:
            back = back.plus(1.0, self._between(*second))
        dx, dw = self._solved(self.rp + method.At @ method.vector(back), self.off[method.zero])
        moved = method.A @ dx
        dZ = self._between(self.Z, method.point(moved)).plus(-1.0, back)
        return dx, dw, method.point(self.off - moved), dZ

    def length_s(self, d: Point) -> float:
        """Return how far the slack can go."""
        return step_length(self.S, d, self.roots)

    def length_z(self, d: Point) -> float:
        """Return how far the multipliers can go."""
        return step_length(self.Z, d, self.roots_z)

    def raised(self, d: Point) -> Point:
        """Return a move of Z in its own units."""
        return d

    def _factor(self) -> None:
        method = self.method
        M = np.zeros((method.n, method.n))
        blocks = zip(method.blocks, self.Z.blocks, self.inverse.blocks, strict=True)
        for block, z, i in blocks:
            block.add_to(M, z, i, method.in_time)
        if method.line.size:
            own = sp.diags_array(self.Z.line * self.inverse.line)
            M += (method.L.T @ own @ method.L).toarray()
        self.rho = 0.0
        if method.zero.size:
            # adding ρEᵀE moves no solution, and columns that only equations tie get a pivot
            self.rho = max(float(np.abs(np.diag(M)).max(initial=0.0)), 1e-300)
            M += (method.E.T @ method.E).toarray() * self.rho
        method.in_time(FACTOR * float(method.n) ** 3)
        self.M, self.root = M, cholesky(M)
        if method.zero.size:
            self.across = sl.cho_solve(self.root, method.E.toarray().T, check_finite=False)
            self.second = cholesky(method.E @ self.across)

    def _solved(self, h: Floats, e: Floats) -> tuple[Floats, Floats]:
        """Return dx and dw of (M + ρEᵀE) dx + Eᵀdw = h + ρEᵀe, E dx = e."""
        E = self.method.E
        h = h + self.rho * (E.T @ e) if e.size else h
        dx, dw = np.zeros(h.size), np.zeros(e.size)
        for _ in range(3):  # the first and two refinements
            left = h - self.M @ dx - (E.T @ dw if e.size else 0.0)
            more = sl.cho_solve(self.root, left, check_finite=False)
            if e.size:
                price = sl.cho_solve(self.second, E @ (dx + more) - e, check_finite=False)
                dw, more = dw + price, more - self.across @ price
            dx = dx + more
        return dx, dw


class Orthogonal:
    """Directions in the scaling of Nesterov and Todd, by orthogonal factors.

    With :math:`G^{-1} S G^{-T} = G^T Z G = D` diagonal, B the scaled columns, the system is one
    of least squares, and its condition the root of that of :math:`B^T B`: multipliers meet their
    equations to the last digits where `Normal` loses them all.
    """

    def __init__(self, method: Method, now: Iterate, rp: Floats, off: Floats) -> None:
        self.method, self.off = method, off
        self.to: list[Floats] = []  # G⁻¹
        sizes = []
        for s, z in zip(now.S.blocks, now.Z.blocks, strict=True):
            upper = root_of(z).T
            u, size, _ = sl.svd(upper @ root_of(s), check_finite=False)
            self.to.append((u.T @ upper) / np.sqrt(size)[:, None])
            sizes.append(size)
        self.sizes, self.line = sizes, np.sqrt(now.Z.line * now.S.line)
        self.ratio = np.sqrt(now.Z.line / now.S.line)
        self.S = self.Z = Point([np.diag(size) for size in sizes], self.line)
        B = np.zeros((method.m, method.n), order="F")
        for block, to in zip(method.blocks, self.to, strict=True):
            B[np.ix_(block.rows, block.columns)] = block.scaled(to)
        B[method.line] = method.L.toarray() * self.ratio[:, None]
        E = method.E.toarray()
        # equations among the rows move no solution
        B[method.zero] = E
        (self.mirrors, self.scale), T = sl.qr(B, mode="raw", overwrite_a=True, check_finite=False)
        self.T = T[: method.n]
        if not np.abs(np.diag(self.T)).min(initial=np.inf) > 0.0:
            raise np.linalg.LinAlgError("columns depend on each other")
        self.F = self._triangular(E.T, transposed=True) if E.size else np.zeros((method.n, 0))
        self.rp = self._triangular(rp, transposed=True)
        inside = method.point(off)
        triples = zip(self.to, inside.blocks, strict=True)
        self.inside = Point([t @ r @ t.T for t, r in triples], inside.line * self.ratio)

    def _turned(self, v: Floats, *, back: bool = False) -> Floats:
        """Return Qᵀv, or Qv where the rows behind are 0."""
        column = np.zeros((self.mirrors.shape[0], 1), order="F")
        column[: v.size, 0] = v
        kind = "N" if back else "T"
        turned, _, fault = sl.lapack.dormqr("L", kind, self.mirrors, self.scale, column, 64)
        if fault:
            raise np.linalg.LinAlgError("the factor cannot be applied")
        return np.asarray(turned[:, 0] if back else turned[: self.T.shape[0], 0])

    def _triangular(self, h: Floats, *, transposed: bool = False) -> Floats:
        solved = sl.solve_triangular(self.T, h, trans=1 if transposed else 0, check_finite=False)
        return np.asarray(solved)

    def direction(
        self, target: float, second: tuple[Point, Point] | None
    ) -> tuple[Floats, Floats, Point, Point]:
        """Return the moves of x, of prices of equations, of S and of Z, these two scaled."""
        method, blocks = self.method, []
        line = target - self.line**2
        for k, size in enumerate(self.sizes):
            side = 2.0 * np.diag(target - size**2)
            if second is not None:
                side -= 2.0 * symmetric(second[0].blocks[k] @ second[1].blocks[k])
            blocks.append(side / (size[:, None] + size))
        if second is not None:
            line = line - second[0].line * second[1].line
        both = Point(blocks, line / self.line)  # what the moves of S and Z add up to
        c = method.vector(both.plus(-1.0, self.inside))
        equal = self.off[method.zero]
        c[method.zero] = -equal
        y = self.rp - self._turned(c)
        dw: Floats = np.zeros(equal.size)
        if equal.size:
            dw = np.asarray(np.linalg.solve(self.F.T @ self.F, self.F.T @ y - equal), dtype=float)
            y = y - self.F @ dw
        dZ = method.point(c + self._turned(y, back=True))
        return self._triangular(y), dw, both.plus(-1.0, dZ), dZ

    def length_s(self, d: Point) -> float:
        """Return how far the slack can go."""
        return step_length(self.S, d, [np.diag(size**-0.5) for size in self.sizes])

    length_z = length_s

    def raised(self, d: Point) -> Point:
        """Return a move of Z in its own units."""
        blocks = [t.T @ m @ t for t, m in zip(self.to, d.blocks, strict=True)]
        return Point(blocks, d.line * self.ratio)


def components(n: int, i: Indices, j: Indices, used: NDArray[np.bool_]) -> Indices:
    """Return which lines of a matrix the entries that are used tie together."""
    graph = sp.coo_array((np.ones(int(used.sum())), (i[used], j[used])), shape=(n, n))
    return np.asarray(sp.csgraph.connected_components(graph, directed=False)[1], dtype=np.int64)


def cholesky(M: Floats) -> Any:
    """Factor, with as little on the diagonal as lets it complete."""
    size = float(np.abs(np.diag(M)).max(initial=0.0))
    if not np.isfinite(size):
        raise np.linalg.LinAlgError("the system has left the range of floats")
    own = np.abs(np.diag(M))
    for more in (0.0, 1e-15, 1e-13, 1e-11, 1e-9):
        try:
            raised = M + np.diag(more * np.maximum(own, 1e-3 * size)) if more else M
            return sl.cho_factor(raised, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("the system is singular")


def norm(v: Floats) -> float:
    """Return the Euclidean length."""
    return float(np.linalg.norm(v))


def symmetric(a: Floats) -> Floats:
    """Return the symmetric part."""
    return np.asarray(0.5 * (a + a.T))


def root_of(M: Floats) -> Floats:
    """Return the lower Cholesky factor."""
    return np.asarray(sl.cholesky(M, lower=True, check_finite=False))


def inverse_root(s: Floats) -> Floats:
    """Return the inverse of the lower Cholesky factor."""
    inverse, fault = sl.lapack.dtrtri(root_of(s), lower=1)
    if fault:
        raise np.linalg.LinAlgError("a block is singular")
    return np.asarray(np.tril(inverse))


def step_length(p: Point, d: Point, roots: Sequence[Floats]) -> float:
    """Return how far a point can go in a direction before it leaves the cone."""
    least = 0.0
    if p.line.size:
        least = float((d.line / p.line).min())
    for root, step in zip(roots, d.blocks, strict=True):
        least = min(least, _least(root, step))
    return 1.0 / -least if least < 0.0 else np.inf


def _thin(M: Floats) -> Any:
    """Return a matrix in which most entries are 0 as a sparse one."""
    few = np.count_nonzero(M) * SPARSE < M.size
    return sp.csr_array(M) if few and len(M) >= LARGE else M


def _least(root: Floats, step: Floats) -> float:
    """Return the least eigenvalue of R D Rᵀ; of large ones a little less, by Lanczos' method."""
    n = len(root)
    basis, across, beside = np.empty((KRYLOV, n)), np.zeros(KRYLOV), np.zeros(KRYLOV)
    v = np.random.default_rng(0).standard_normal(n)
    for k in range(KRYLOV if n >= LARGE else 0):
        basis[k] = v / norm(v)
        v = root @ (step @ (root.T @ basis[k]))
        across[k] = basis[k] @ v
        for _ in range(2):
            v -= basis[: k + 1].T @ (basis[: k + 1] @ v)
        beside[k] = norm(v)
        if k % 4 == 3 or beside[k] <= CLOSE * abs(across[0]):
            sizes, vectors = sl.eigh_tridiagonal(across[: k + 1], beside[:k])
            off = beside[k] * abs(float(vectors[-1, 0]))  # an eigenvalue is as near
            if off <= CLOSE * max(1.0, abs(float(sizes[0]))):
                return float(sizes[0] - off)
            if beside[k] == 0.0:
                break
    own = symmetric(root @ step @ root.T)
    return float(sl.eigvalsh(own, subset_by_index=[0, 0], check_finite=False)[0])


def moved_inside(p: Point, step: float, d: Point) -> tuple[Point, float]:
    """Go so far, or less where rounding would leave the cone."""
    for _ in range(30):
        moved = p.plus(step, d)
        if not (moved.line > 0.0).all():
            step *= 0.8
            continue
        try:
            for block in moved.blocks:
                root_of(block)
        except np.linalg.LinAlgError:
            step *= 0.8
            continue
        return moved, step
    raise np.linalg.LinAlgError("no step stays inside")


def evident(size: float, value: float, off: bool, other_off: bool) -> bool:
    """Whether a vector improves for ever: it is as good as 0 where its value is 1.

    Where its own equations hold, a large value alone may be that of an optimum, so it must be
    beyond any, and the other side's equations must not hold.
    """
    return value > 0.0 and (
        (off and size <= EVIDENT * value) or (other_off and size <= EVIDENT**2 * value)
    )
