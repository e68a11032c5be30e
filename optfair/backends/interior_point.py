r"""Semidefinite programs by a primal-dual interior-point method on small dense blocks.

.. math::
    \min_x\; q^T x \quad \text{s.t.} \quad b - Ax = s \in K, \qquad
    \max_z\; -b^T z \quad \text{s.t.} \quad A^T z = -q,\; z \in K^*

with K a product of points, half-lines and positive semidefinite cones. A step solves a system of
as many equations as there are columns, :math:`M_{ij} = \operatorname{tr}(A_i Z A_j S^{-1})`, and
costs a few products of matrices of the order of the blocks; a general cone solver factors a
matrix with a row for each *entry* of a block. Directions are those of Helmberg, Rendl,
Vanderbei, Wolkowicz (1996), Kojima, Shindoh, Hara (1997) and Monteiro (1997); steps are those of
Mehrotra, as in Borchers: CSDP, a C library for semidefinite programming (1999); how entries of M
are formed follows Fujisawa, Kojima, Nakata (1997).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.cones import Cone

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

__all__ = ["Ended", "interior_point"]

ROOT = float(np.sqrt(2.0))
# Entries of a stack of matrices that are held at a time.
HELD = 8_000_000
# Seconds for one product of entries, and for one of a dense product of matrices (measured).
GATHERED, MULTIPLIED = 6e-9, 3e-11
# Iterations without a better point after which it has ended.
PATIENCE = 15
# Products of numbers in an iteration up to which it is repeated with the digits of a long double.
LONG, FINER = 4e8, bool(np.finfo(np.longdouble).eps < 1e-3 * np.finfo(float).eps)
# Residual of a certificate that no point, or no bound, exists; the rest is for its proof.
EVIDENT = 1e-8


@dataclass(frozen=True, eq=False)
class Ended:
    """Where the method ended, and on what word.

    Attributes
    ----------
    status : str
        optimal, inaccurate, time_limit, infeasible, unbounded.
    x, z : array
        The best pair; z is a Farkas vector when infeasible, x a ray when unbounded.
    iterations : int
    error : float
        Largest relative residual of the pair.
    """

    status: str
    x: Floats
    z: Floats
    iterations: int
    error: float


@dataclass(eq=False)
class _Block:
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
        own = sp.csc_array(A[self.rows])
        self.columns = np.flatnonzero(np.diff(own.indptr))
        own = sp.coo_array(own[:, self.columns])
        k, n = self.columns.size, self.n
        self.weight = np.where(self.i == self.j, 1.0, ROOT)
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
        some = np.concatenate([[0], np.cumsum(count[order])])
        dense = (k - np.arange(k + 1)) * (4.0 * n**3 * MULTIPLIED + 2e-9 * k * n)
        best = int(np.argmin(GATHERED * some.astype(float) ** 2 + dense))
        self.products = some[best].astype(float) ** 2 + 4.0 * (k - best) * n**3
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
        full = np.zeros((self.n, self.n), dtype=entries.dtype)
        full[self.i, self.j] = entries / self.weight
        full[self.j, self.i] = full[self.i, self.j]
        return full

    def entries(self, matrix: Floats) -> Floats:
        """Return scaled entries of the symmetric part of a matrix."""
        return np.asarray(0.5 * (matrix[self.i, self.j] + matrix[self.j, self.i]) * self.weight)

    def add_to(self, M: Floats, Z: Floats, inverse: Floats) -> None:
        """Add tr(A_i Z A_j S⁻¹) to M, for all pairs of columns."""
        n, few, many = self.n, self.few, self.many
        if few.size and self.stack is not None:
            left, right = self.stack @ Z, self.stack @ inverse
            at, count = self.line_row, self.line_row.size
            right = right[:, at]
            found = np.empty((count, few.size), dtype=M.dtype)
            step = max(1, HELD // max(count, 1))
            for k in range(0, count, step):
                part = left[k : k + step][:, at] * right[:, k : k + step].T
                found[k : k + step] = np.add.reduceat(part, self.starts, axis=1)
            own = self.columns[few]
            M[np.ix_(own, own)] += np.add.reduceat(found, self.starts, axis=0)
        step = max(1, HELD // (n * n))
        for k in range(0, many.size, step):
            some = many[k : k + step]
            at = (some[:, None] * n + np.arange(n)).ravel()
            U = (self.wide[at] @ inverse).reshape(some.size, n, n)
            U = np.matmul(Z, U).reshape(some.size, n * n)
            found = np.asarray(self.full @ U.T)
            M[np.ix_(self.columns, self.columns[some])] += found
            M[np.ix_(self.columns[some], self.columns[few])] += found[few].T


@dataclass(eq=False)
class _Point:
    """Slack and multipliers: one matrix per block, and the half-lines."""

    blocks: list[Floats]
    line: Floats

    def plus(self, step: float, other: _Point) -> _Point:
        pairs = zip(self.blocks, other.blocks, strict=True)
        return _Point([a + step * b for a, b in pairs], self.line + step * other.line)

    def dot(self, other: _Point) -> float:
        pairs = zip(self.blocks, other.blocks, strict=True)
        return float(sum(np.vdot(a, b) for a, b in pairs) + self.line @ other.line)


@dataclass(frozen=True, eq=False)
class _Iterate:
    """A pair with its error."""

    error: float
    x: Floats
    w: Floats
    S: _Point
    Z: _Point

    def point(self, dtype: Any) -> tuple[Floats, Floats, _Point, _Point]:
        S, Z = (
            _Point([m.astype(dtype) for m in p.blocks], p.line.astype(dtype))
            for p in (self.S, self.Z)
        )
        return self.x.astype(dtype), self.w.astype(dtype), S, Z


def interior_point(
    q: Floats,
    A: Any,
    b: Floats,
    cones: Sequence[Cone],
    *,
    tolerance: float = 1e-9,
    deadline: float = np.inf,
    iterations: int = 150,
    log: Callable[[str], None] | None = None,
) -> Ended:
    """Solve a program whose cones are zero, nonneg and psd.

    Parameters
    ----------
    q, A, b, cones
        The program.
    tolerance : float
        Relative residuals and gap to stop at.
    deadline : float
        ``time.perf_counter()`` to stop at.
    iterations : int
        At most so many.
    log : callable, optional
        Gets a line for each iteration.
    """
    found = _Method(q, sp.csc_array(A), b, cones)
    ended = found.run(tolerance, deadline, iterations, log)
    if ended.status == "inaccurate" and found.work <= LONG and FINER:
        # rounding stopped it: go on from the best pair with more digits
        finer = _Method(q, sp.csc_array(A), b, cones, np.longdouble)
        again = finer.run(tolerance, deadline, iterations, log, found.best)
        return replace(again, iterations=ended.iterations + again.iterations)
    return ended


def _components(n: int, i: Indices, j: Indices, used: NDArray[np.bool_]) -> Indices:
    graph = sp.coo_array((np.ones(int(used.sum())), (i[used], j[used])), shape=(n, n))
    found: Indices = sp.csgraph.connected_components(graph, directed=False)[1]
    return found


class _Method:
    def __init__(
        self, q: Floats, A: Any, b: Floats, cones: Sequence[Cone], dtype: Any = np.float64
    ) -> None:
        self.m, self.n = A.shape
        self.dtype = dtype
        A, q, b = A.astype(dtype), q.astype(dtype), b.astype(dtype)
        # columns by their size, then objective and sides: residuals are relative to these
        size = np.sqrt(np.asarray(A.multiply(A).sum(axis=0)).ravel())
        self.unit = np.where(size > 0.0, size, 1.0)
        self.A = sp.csc_array(A @ sp.diags_array(1.0 / self.unit))
        self.side = max(float(np.sqrt(b @ b)), 1e-300)
        cost = q / self.unit
        self.cost = max(float(np.sqrt(cost @ cost)), 1e-300)
        self.q, self.b = cost / self.cost, b / self.side
        self._split(cones)
        self.At = sp.csr_array(self.A.T)
        self.total = sum(k.n for k in self.blocks) + self.line.size
        self.best: _Iterate | None = None
        self.work = self.n**3 / 3.0 + sum(40.0 * k.n**3 + k.products for k in self.blocks)

    def _split(self, cones: Sequence[Cone]) -> None:
        """Take blocks apart where nothing ties their rows together."""
        rows = sp.csr_array(self.A)
        used = (np.diff(rows.indptr) > 0) | (self.b != 0.0)
        zero, line = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        self.blocks: list[_Block] = []
        for c in cones:
            at = np.arange(c.start, c.stop)
            if c.kind == "zero":
                zero.append(at)
            elif c.kind == "nonneg":
                line.append(at)
            else:
                i, j = (np.asarray(p, dtype=np.int64) for p in c.places)
                of = _components(c.order, i, j, used[at])
                rank = np.zeros(c.order, dtype=np.int64)
                order = np.argsort(of, kind="stable")
                sizes = np.bincount(of)
                first = np.concatenate([[0], np.cumsum(sizes)])[:-1]
                rank[order] = np.arange(c.order) - np.repeat(first, sizes)
                inside = of[i] == of[j]
                single = inside & (sizes[of[i]] == 1)
                line.append(at[single])
                for k in np.flatnonzero(sizes > 1):
                    own = inside & (of[i] == k)
                    self.blocks.append(_Block(int(sizes[k]), at[own], rank[i[own]], rank[j[own]]))
        self.zero, self.line = np.concatenate(zero), np.concatenate(line)
        self.E = sp.csr_array(rows[self.zero])
        self.L = sp.csr_array(rows[self.line])
        for block in self.blocks:
            block.prepare(rows)

    def point(self, v: Floats) -> _Point:
        return _Point([k.matrix(v[k.rows]) for k in self.blocks], v[self.line])

    def vector(self, p: _Point) -> Floats:
        v = np.zeros(self.m, dtype=self.dtype)
        v[self.line] = p.line
        for block, matrix in zip(self.blocks, p.blocks, strict=True):
            v[block.rows] = block.entries(matrix)
        return v

    def run(
        self,
        tolerance: float,
        deadline: float,
        iterations: int,
        log: Callable[[str], None] | None,
        start: _Iterate | None = None,
    ) -> Ended:
        x, w, S, Z = self._start() if start is None else start.point(self.dtype)
        since, status, k = 0, "inaccurate", 0
        best = _Iterate(np.inf, x, w, S, Z)
        for k in range(iterations):
            zv, sv = self.vector(Z), self.vector(S)
            zv[self.zero] = w
            Ax, Az = self.A @ x, self.At @ zv
            rp, off = -self.q - Az, self.b - Ax - sv
            primal, dual = float(self.q @ x), -float(self.b @ zv)
            scale = self.side * self.cost
            big = max(abs(primal), abs(dual))
            mu = S.dot(Z) / self.total
            gap = max(abs(primal - dual), mu * self.total) / (1.0 / scale + big)
            off_p, off_d = float(np.sqrt(off @ off)), float(np.sqrt(rp @ rp))
            error = max(gap, off_p / 2.0, off_d / 2.0)
            if log is not None:
                log(f"{k:3d} {primal * scale: .10e} {dual * scale: .10e} {off_p:.1e} {off_d:.1e} {mu:.1e}")
            if error < best.error:
                since, best = 0, _Iterate(error, x, w, S, Z)
            else:
                since += 1
            if error <= tolerance:
                status = "optimal"
                break
            if dual > 0.0 and off_d > tolerance and float(np.sqrt(Az @ Az)) <= EVIDENT * dual:
                return Ended("infeasible", self._x(x), self._z(zv / dual), k, error)
            if primal < 0.0 and off_p > tolerance:
                ray = float(np.sqrt((Ax + sv) @ (Ax + sv)))
                if ray <= EVIDENT * -primal:
                    return Ended("unbounded", self._x(x / -primal), self._z(zv), k, error)
            if time.perf_counter() > deadline:
                status = "time_limit"
                break
            if since > PATIENCE or not np.isfinite(error):
                break
            try:
                x, w, S, Z = self._step(x, w, S, Z, rp, off, mu, k, log)
            except np.linalg.LinAlgError as e:
                if log is not None:
                    log(str(e))
                break
        self.best = best
        z = self.vector(best.Z)
        z[self.zero] = best.w
        return Ended(status, self._x(best.x), self._z(z), k, best.error)

    def _start(self) -> tuple[Floats, Floats, _Point, _Point]:
        """Return a start far out on the diagonal, as in CSDP, for data of size 1."""
        far = 10.0 * self.total
        far_z = 0.5 * far * float((1.0 + np.abs(self.q)).max(initial=1.0))
        far_s = 2.0 * far / np.sqrt(max(self.total, 1))
        S, Z = (
            _Point(
                [size * np.eye(k.n, dtype=self.dtype) for k in self.blocks],
                np.full(self.line.size, size, dtype=self.dtype),
            )
            for size in (far_s, far_z)
        )
        return np.zeros(self.n, self.dtype), np.zeros(self.zero.size, self.dtype), S, Z

    def _x(self, x: Floats) -> Floats:
        return np.asarray(x / self.unit * self.side, dtype=float)

    def _z(self, z: Floats) -> Floats:
        return np.asarray(z * self.cost, dtype=float)

    def _step(
        self,
        x: Floats,
        w: Floats,
        S: _Point,
        Z: _Point,
        rp: Floats,
        off: Floats,
        mu: float,
        k: int,
        log: Any,
    ) -> tuple[Floats, Floats, _Point, _Point]:
        roots = [_inverse_root(s) for s in S.blocks]
        inverse = _Point([r.T @ r for r in roots], 1.0 / S.line)
        roots_z = [_inverse_root(z) for z in Z.blocks]
        solve = self._factored(Z, inverse)
        R = self.point(off)
        equal = off[self.zero]

        def between(left: _Point, middle: _Point) -> _Point:
            """sym(left · middle · S⁻¹)"""
            blocks = [
                _symmetric(a @ (d @ i))
                for a, d, i in zip(left.blocks, middle.blocks, inverse.blocks, strict=True)
            ]
            return _Point(blocks, left.line * middle.line * inverse.line)

        fixed = between(Z, R)

        def direction(sigma: float, second: _Point | None) -> tuple[Floats, Floats, _Point, _Point]:
            target = Z.plus(-sigma * mu, inverse)  # Z - σμ S⁻¹
            if second is not None:
                target = target.plus(1.0, second)
            target = target.plus(1.0, fixed)
            h = rp + self.At @ self.vector(target)
            dx, dw = solve(h, equal)
            moved = self.A @ dx
            dS = self.point(off - moved)
            back = between(Z, self.point(moved))
            dZ = _Point([-t for t in target.blocks], -target.line).plus(1.0, back)
            return dx, dw, dS, dZ

        dx, dw, dS, dZ = direction(0.0, None)
        a_s, a_z = _length(S, dS, roots), _length(Z, dZ, roots_z)
        a_s, a_z = min(1.0, a_s), min(1.0, a_z)
        after = S.plus(a_s, dS).dot(Z.plus(a_z, dZ)) / self.total
        power = max(1.0, 3.0 * min(a_s, a_z) ** 2) if mu > 1e-6 else 1.0
        sigma = min(1.0, max(after / mu, 0.0) ** power) if mu > 0.0 else 0.1
        sigma = max(sigma, 1e-6)
        dx, dw, dS, dZ = direction(sigma, between(dZ, dS))
        close = 0.9 + 0.09 * min(a_s, a_z)
        a_s, a_z = _length(S, dS, roots), _length(Z, dZ, roots_z)
        a_s, a_z = min(1.0, close * a_s), min(1.0, close * a_z)
        S, a_s = _inside(S, a_s, dS)
        Z, a_z = _inside(Z, a_z, dZ)
        if log is not None:
            log(f"      sigma {sigma:.1e} steps {a_s:.3f} {a_z:.3f}")
        return x + a_s * dx, w + a_z * dw, S, Z

    def _factored(
        self, Z: _Point, inverse: _Point
    ) -> Callable[[Floats, Floats], tuple[Floats, Floats]]:
        M = np.zeros((self.n, self.n), dtype=self.dtype)
        for block, z, i in zip(self.blocks, Z.blocks, inverse.blocks, strict=True):
            block.add_to(M, z, i)
        if self.line.size:
            M += (self.L.T @ sp.diags_array(Z.line * inverse.line) @ self.L).toarray()
        E = self.E
        if E.shape[0]:
            # adding EᵀE moves no solution, and columns that only equations tie get a pivot
            rho = max(float(np.abs(np.diag(M)).max(initial=0.0)), 1e-300)
            extra = (E.T @ E).toarray() * rho
        else:
            rho, extra = 0.0, 0.0
        factor = _cholesky(M + extra)
        if not E.shape[0]:
            return lambda h, e: (_refined(M, factor, h), np.zeros(0, self.dtype))
        dense = E.toarray()
        across = _solved(factor, dense.T)
        second = _cholesky(dense @ across)
        K = M + extra

        def solve(h: Floats, e: Floats) -> tuple[Floats, Floats]:
            # (M + ρEᵀE) dx + Eᵀdw = h + ρEᵀe, E dx = e
            dx, dw = np.zeros(self.n, self.dtype), np.zeros(e.size, self.dtype)
            for _ in range(3):
                r1, r2 = h + rho * (E.T @ e) - K @ dx - E.T @ dw, e - E @ dx
                first = _solved(factor, r1)
                more = _solved(second, E @ first - r2)
                dw = dw + more
                dx = dx + first - across @ more
            return dx, dw

        return solve


def _refined(M: Floats, factor: Any, h: Floats) -> Floats:
    x = _solved(factor, h)
    for _ in range(2):
        x = x + _solved(factor, h - M @ x)
    return np.asarray(x)


def _cholesky(M: Floats) -> Any:
    """Factor, with as little on the diagonal as lets it complete."""
    size = float(np.abs(np.diag(M)).max(initial=0.0))
    if not np.isfinite(size):
        raise np.linalg.LinAlgError("the system has left the range of floats")
    own = np.abs(np.diag(M))
    for more in (0.0, 1e-15, 1e-13, 1e-11, 1e-9):
        try:
            return _root(M + np.diag(more * np.maximum(own, 1e-3 * size)) if more else M)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("the system is singular")


def _symmetric(a: Floats) -> Floats:
    return np.asarray(0.5 * (a + a.T))


def _root(M: Floats) -> Floats:
    """Return the lower Cholesky factor."""
    if M.dtype == np.float64:
        return np.asarray(sl.cholesky(M, lower=True, check_finite=False))
    L = M.copy()
    for k in range(len(L)):
        if not L[k, k] > 0.0:
            raise np.linalg.LinAlgError("a matrix is not positive definite")
        L[k, k] = np.sqrt(L[k, k])
        L[k + 1 :, k] /= L[k, k]
        L[k + 1 :, k + 1 :] -= np.multiply.outer(L[k + 1 :, k], L[k + 1 :, k])
    return np.asarray(np.tril(L))


def _solved(root: Floats, h: Floats) -> Floats:
    """Return the solution of L Lᵀ x = h."""
    if root.dtype == np.float64:
        return np.asarray(sl.cho_solve((root, True), h, check_finite=False))
    x = np.array(h)
    for k in range(len(root)):
        x[k] = (x[k] - root[k, :k] @ x[:k]) / root[k, k]
    for k in range(len(root) - 1, -1, -1):
        x[k] = (x[k] - root[k + 1 :, k] @ x[k + 1 :]) / root[k, k]
    return x


def _inverse_root(s: Floats) -> Floats:
    """Return the inverse of the lower Cholesky factor."""
    root = _root(s)
    if root.dtype == np.float64:
        inverse, fault = sl.lapack.dtrtri(root, lower=1)
        if fault:
            raise np.linalg.LinAlgError("a block is singular")
        return np.asarray(np.tril(inverse))
    inverse = np.eye(len(root), dtype=root.dtype)
    for k in range(len(root)):
        inverse[k] = (inverse[k] - root[k, :k] @ inverse[:k]) / root[k, k]
    return np.asarray(inverse)


def _length(p: _Point, d: _Point, roots: Sequence[Floats]) -> float:
    """Return how far a point can go in a direction before it leaves the cone."""
    least = 0.0
    if p.line.size:
        least = float((d.line / p.line).min())
    for root, step in zip(roots, d.blocks, strict=True):
        least = min(least, _least(root @ step @ root.T))
    return 1.0 / -least if least < 0.0 else np.inf


def _least(M: Floats) -> float:
    """Return the least eigenvalue."""
    own = _symmetric(M).astype(float)
    return float(sl.eigvalsh(own, subset_by_index=[0, 0], check_finite=False)[0])


def _inside(p: _Point, step: float, d: _Point) -> tuple[_Point, float]:
    """Go so far, or less where rounding would leave the cone."""
    for _ in range(30):
        found = p.plus(step, d)
        if not (found.line > 0.0).all():
            step *= 0.8
            continue
        try:
            for block in found.blocks:
                _root(block)
        except np.linalg.LinAlgError:
            step *= 0.8
            continue
        return found, step
    raise np.linalg.LinAlgError("no step stays inside")
